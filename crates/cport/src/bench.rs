//! `cport bench`: hands over to the benchmark, a command of its own.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::failure::Failure;

const BENCHMARK: &str = "cport-bench";

/// Everything after `bench` is the benchmark's, `--help` too.
#[derive(Clone, Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// Options of the benchmark; `cport bench --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Becomes the benchmark, and returns only if it cannot.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut command = if let Some(program) = beside_this_command() {
        Command::new(program)
    } else if let Some(manifest) = source_tree() {
        built_by_cargo(&manifest)
    } else {
        return Err(Failure::Unusable(format!(
            "there is no `{BENCHMARK}` beside this command, and no source tree here: in that of \
             completion-port, `cargo build --release --package {BENCHMARK}` makes it"
        )));
    };
    let error = command.args(&options.arguments).exec();
    let program = Path::new(command.get_program()).display();
    Err(Failure::to_begin(&program.to_string(), &error))
}

fn beside_this_command() -> Option<PathBuf> {
    let program = env::current_exe().ok()?.with_file_name(BENCHMARK);
    program.is_file().then_some(program)
}

/// The manifest of the workspace that has the benchmark and encloses the current directory.
fn source_tree() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    let is_root = |directory: &&Path| {
        directory.join("crates/bench/Cargo.toml").is_file()
            && directory.join("Cargo.toml").is_file()
    };
    here.ancestors().find(is_root).map(|root| root.join("Cargo.toml"))
}

fn built_by_cargo(manifest: &Path) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--release", "--package", BENCHMARK, "--manifest-path"]);
    command.arg(manifest).arg("--");
    command
}
