//! nginx with the page of the other servers of HTTP.

use std::fs;
use std::io;
use std::process::Command;

use super::Foreign;
use crate::contenders::Server;
use crate::http::ANSWER;
use crate::sink::Service;

const NAME: &str = "nginx";
/// The first with the option `-e`. Others open a log of the system before they read the configuration.
const OLDEST: [u32; 3] = [1, 19, 5];

/// Why it does not take part, if it doesn't.
pub(in crate::runtimes) fn lacks() -> Option<String> {
    super::need(NAME).err().or_else(|| super::too_old(&version(), OLDEST))
}

pub(in crate::runtimes) fn version() -> String {
    let said = super::said_by(NAME, "-v").unwrap_or_else(|| "not installed".to_owned());
    said.rsplit_once('/').map_or(said.clone(), |(_, number)| format!("{NAME} {number}"))
}

/// With that many workers, each with its own listener, as raw epoll has.
pub(in crate::runtimes) fn start(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    if service != Service::Echo {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let program = super::need(NAME).map_err(io::Error::other)?;
    let server = Foreign::start(NAME, |address, folder| {
        let file = folder.join("nginx.conf");
        fs::write(&file, configuration(threads, &address.to_string()))?;
        let mut command = Command::new(&program);
        command.arg("-p").arg(folder).arg("-c").arg(file).args(["-e", "stderr"]);
        Ok(command)
    })?;
    Ok(Box::new(server))
}

/// Paths are relative to the folder.
fn configuration(workers: usize, address: &str) -> String {
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
        location = /0/0 {{ return 200 "{body}\n"; }}
        location / {{ return 404 "{body}\n"; }}
    }}
}}
"#
    )
}
