//! Chores of the workspace: `cargo xtask install --prefix DIR` builds the C library and installs it.

mod install;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask install --prefix DIR [--destdir DIR] [--libdir NAME]

Builds libcompletion_port and installs it below DIR: the shared and the static library, the headers
and the pkg-config files completion_port and completion_port_compat.

  --prefix DIR   where it will be used, for example /usr/local
  --destdir DIR  put in front of that while it is copied, for packages
  --libdir NAME  instead of `lib`, for example lib64 or lib/aarch64-linux-gnu";

/// The arguments of `install`, or what is wrong with them.
fn parse(mut arguments: impl Iterator<Item = String>) -> Result<install::Places, String> {
    match arguments.next().as_deref() {
        Some("install") => {}
        Some(other) => return Err(format!("there is no chore `{other}`")),
        None => return Err("which chore?".to_owned()),
    }
    let (mut prefix, mut destdir, mut libdir) = (None, None, "lib".to_owned());
    while let Some(argument) = arguments.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        let value = value.or_else(|| arguments.next()).ok_or(format!("{name} of what?"))?;
        match name.as_str() {
            "--prefix" => prefix = Some(PathBuf::from(value)),
            "--destdir" => destdir = Some(PathBuf::from(value)),
            "--libdir" => libdir = value,
            _ => return Err(format!("what is `{name}`?")),
        }
    }
    let prefix = prefix.ok_or("install needs --prefix")?;
    let prefix = std::path::absolute(&prefix).map_err(|error| error.to_string())?;
    Ok(install::Places { prefix, destdir, libdir })
}

fn main() -> ExitCode {
    let places = match parse(std::env::args().skip(1)) {
        Ok(places) => places,
        Err(complaint) => {
            eprintln!("{complaint}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match install::install(&places) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot install: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<install::Places, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_prefix_is_needed_and_the_rest_is_not() {
        let places = parsed("install --prefix /usr").unwrap();
        assert_eq!(
            (places.prefix, places.destdir, places.libdir.as_str()),
            ("/usr".into(), None, "lib")
        );
        let places = parsed("install --prefix=/usr --destdir=d --libdir lib64").unwrap();
        assert_eq!((places.destdir, places.libdir.as_str()), (Some("d".into()), "lib64"));
        assert!(parsed("install").is_err());
        assert!(parsed("install --prefix").is_err());
        assert!(parsed("install --prefix /usr --where").is_err());
        assert!(parsed("").is_err());
        assert!(parsed("build").is_err());
    }
}
