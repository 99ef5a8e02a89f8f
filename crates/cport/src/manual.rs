//! `cport completions` and `cport man`: what a shell and a reader of manuals know of the command.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::text::say;

/// What `cport completions` can be told.
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell that reads them
    shell: Shell,
}

/// What `cport man` can be told.
#[derive(Args)]
pub(crate) struct Manual {
    /// Write the pages of all commands into this directory (cport.1, cport-echo.1, ...)
    directory: Option<PathBuf>,
}

/// Prints the completions of a command.
pub(crate) fn complete(options: &Completions, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "cport", &mut script);
    say(format_args!("{}", String::from_utf8_lossy(&script)))
}

/// Prints the page of a command, or writes those of all its commands.
pub(crate) fn describe(options: &Manual, command: Command) -> Result<(), Failure> {
    // There is no page for `help`, to which a list of all commands would lead.
    let mut command = command
        .disable_help_subcommand(true)
        .mut_subcommand("bench", |bench| bench.disable_help_subcommand(true));
    command.build();
    match &options.directory {
        None => {
            let page = page(command).map_err(|error| Failure::to_begin("the page", &error))?;
            say(format_args!("{}", String::from_utf8_lossy(&page)))
        }
        Some(directory) => write_all(&command, directory),
    }
}

fn write_all(command: &Command, directory: &Path) -> Result<(), Failure> {
    let refused = |file: &Path, error: io::Error| {
        let what = format!("cannot write {}", file.display());
        Failure::to_begin(&what, &error).and("; another directory may do")
    };
    fs::create_dir_all(directory).map_err(|error| refused(directory, error))?;
    let mut commands = vec![command.clone()];
    while let Some(command) = commands.pop() {
        let shown = |it: &&Command| !it.is_hide_set();
        commands.extend(command.get_subcommands().filter(shown).cloned());
        let name = command.get_display_name().unwrap_or(command.get_name());
        let file = directory.join(format!("{}.1", name.replace(' ', "-")));
        let page = page(command.clone()).map_err(|error| refused(&file, error))?;
        fs::write(&file, page).map_err(|error| refused(&file, error))?;
        say(format_args!("{}\n", file.display()))?;
    }
    Ok(())
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(page)
}
