//! nginx with the page of the other servers of HTTP, and with their files.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::Foreign;
use crate::contenders::Server;
use crate::http::ANSWER;
use crate::sink::Service;
use crate::traffic::{FILES, SLOW_FILES};

const NAME: &str = "nginx";
/// The first with the option `-e`. Others open a log of the system before they read the configuration.
const OLDEST: [u32; 3] = [1, 19, 5];

/// The option of a build that can read files in separate threads.
const THREADS: &str = "--with-threads";

/// Why it does not take part, if it doesn't.
pub(in crate::runtimes) fn lacks() -> Option<String> {
    super::need(NAME).err().or_else(|| super::too_old(&version(), OLDEST))
}

/// The same where it serves files.
pub(in crate::runtimes) fn lacks_with_files() -> Option<String> {
    let has_threads = || super::said_by(NAME, "-V").is_some_and(|said| said.contains(THREADS));
    let lacks_threads =
        || (!has_threads()).then(|| format!("{}{NAME} is built without {THREADS}", super::SKIPPED));
    lacks().or_else(lacks_threads)
}

pub(in crate::runtimes) fn version() -> String {
    let said = super::said_by(NAME, "-v").unwrap_or_else(|| "not installed".to_owned());
    said.rsplit_once('/').map_or(said.clone(), |(_, number)| format!("{NAME} {number}"))
}

/// With that many workers, each with its own listener, as raw epoll has.
pub(in crate::runtimes) fn start(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    start_with("", threads, service)
}

/// The same, and the files in this folder, by sendfile(2) in separate threads.
pub(in crate::runtimes) fn start_with_files(
    folder: &Path,
    threads: usize,
    service: Service,
) -> io::Result<Box<dyn Server>> {
    let folder = folder.display();
    let files = format!(
        r#"root "{folder}";
        sendfile on;
        aio threads;
        location /{FILES}/ {{ }}
        location /{SLOW_FILES}/ {{ }}"#
    );
    start_with(&files, threads, service)
}

fn start_with(files: &str, threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    if service != Service::Echo {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let program = super::need(NAME).map_err(io::Error::other)?;
    let server = Foreign::start(NAME, |address, folder| {
        let file = folder.join("nginx.conf");
        fs::write(&file, configuration(threads, &address.to_string(), files))?;
        let mut command = Command::new(&program);
        command.arg("-p").arg(folder).arg("-c").arg(file).args(["-e", "stderr"]);
        Ok(command)
    })?;
    Ok(Box::new(server))
}

/// Paths are relative to the folder.
fn configuration(workers: usize, address: &str, files: &str) -> String {
    let body = ANSWER.trim_end();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {name};"))
        .join(" ");
    format!(
        r#"daemon off;
worker_processes {workers};
worker_rlimit_nofile 65536;
pid nginx.pid;
error_log stderr emerg;
events {{ worker_connections 32768; }}
http {{
    access_log off;
    {temporary}
    server_tokens off;
    default_type text/plain;
    keepalive_timeout 1h;
    keepalive_requests 1000000000;
    server {{
        listen {address} reuseport backlog=4096;
        {files}
        location = /0/0 {{ return 200 "{body}\n"; }}
        location / {{ return 404 "{body}\n"; }}
    }}
}}
"#
    )
}
