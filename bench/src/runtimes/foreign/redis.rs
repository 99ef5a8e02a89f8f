//! Redis, without saving anything.

use std::io;
use std::process::Command;

use super::Foreign;
use crate::contenders::Server;
use crate::sink::Service;

const NAME: &str = "redis-server";

/// Why it does not take part, if it doesn't.
pub(in crate::runtimes) fn lacks() -> Option<String> {
    super::need(NAME).err()
}

pub(in crate::runtimes) fn version() -> String {
    let said = super::said_by(NAME, "--version").unwrap_or_else(|| "not installed".to_owned());
    let number = said.split_whitespace().find_map(|word| word.strip_prefix("v="));
    number.map_or(said.clone(), |number| format!("Redis {number}"))
}

/// Its commands run on one thread, however many threads others have.
pub(in crate::runtimes) fn start(_: usize, service: Service) -> io::Result<Box<dyn Server>> {
    if service != Service::Echo {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let program = super::need(NAME).map_err(io::Error::other)?;
    let server = Foreign::start(NAME, |address, folder| {
        let mut command = Command::new(&program);
        command.args(["--port", &address.port().to_string()]);
        command.args(["--bind", &address.ip().to_string()]).arg("--dir").arg(folder);
        command.args(["--save", "", "--appendonly", "no", "--loglevel", "warning"]);
        Ok(command)
    })?;
    Ok(Box::new(server))
}
