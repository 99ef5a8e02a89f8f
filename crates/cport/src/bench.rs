//! `cport bench`: starts the benchmark, which is a separate command.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Parser};

use crate::failure::Failure;
use crate::system::run_instead;

// This command reads no field: it parses the options to show help and to reject invalid ones.
#[allow(dead_code, reason = "the benchmark, which compiles this file too, reads the fields")]
mod options;

const BENCHMARK: &str = "cport-bench";

/// Everything after `bench` belongs to the benchmark, including `--help`.
#[derive(Clone, Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Passed {
    /// Options of the benchmark; `cport bench --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// What `--help` adds to the benchmark's own description.
const LONG_ABOUT: &str = "The completion port side by side with its rivals\n\n\
    A run needs a source tree of completion-port around the current directory, in which cargo \
    builds the benchmark, or a built benchmark in the same directory as this command. Help needs \
    neither.";

/// The benchmark's own command line.
#[derive(Debug, Parser)]
#[command(
    name = "cport bench",
    version,
    about = options::ABOUT,
    long_about = LONG_ABOUT,
    after_help = options::help(),
    args_conflicts_with_subcommands = true
)]
#[allow(dead_code, reason = "it is parsed to be checked")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<options::Command>,
    #[command(flatten)]
    run: options::Run,
}

/// Becomes the benchmark, and returns only if it cannot.
pub(crate) fn run(passed: &Passed) -> Result<(), Failure> {
    let manifest = source_tree();
    let beside = if manifest.is_none() { beside_this_command() } else { None };
    let (mut command, remedy) = if let Some(program) = beside {
        (
            Command::new(program),
            "; in a source tree, `cargo run --release -- bench` builds a new one",
        )
    } else {
        // Help and argument errors need no benchmark.
        let all = [OsString::from("cport bench")].into_iter().chain(passed.arguments.clone());
        if let Err(said) = Arguments::try_parse_from(all) {
            said.exit();
        }
        let Some(manifest) = manifest else { return Err(missing()) };
        (built_by_cargo(&manifest), "; it builds the benchmark, and comes with https://rustup.rs")
    };
    let error = run_instead(command.args(&passed.arguments).env(options::CALLED_BY_CPORT, "1"));
    let program = Path::new(command.get_program()).display();
    Err(Failure::to_begin(&format!("cannot run {program}"), &error).and(remedy))
}

/// The benchmark is not in the registry, because it has many dependencies.
fn missing() -> Failure {
    let repository = env!("CARGO_PKG_REPOSITORY");
    Failure::Unusable(format!(
        "there is no `{BENCHMARK}` next to this command, and the current directory is in no \
         source tree of completion-port: `git clone {repository}`, and in it `cargo run \
         --release -- bench`"
    ))
}

fn beside_this_command() -> Option<PathBuf> {
    let program =
        env::current_exe().ok()?.with_file_name(format!("{BENCHMARK}{}", env::consts::EXE_SUFFIX));
    program.is_file().then_some(program)
}

/// The benchmark's manifest, if the current directory is in a source tree. Other projects may have a
/// `bench/Cargo.toml` too, so this checks the package's name.
fn source_tree() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    let name = format!("name = \"{BENCHMARK}\"");
    let is_it = |manifest: &PathBuf| {
        fs::read_to_string(manifest).is_ok_and(|text| text.lines().any(|line| line == name))
    };
    here.ancestors().map(|directory| directory.join("bench").join("Cargo.toml")).find(is_it)
}

/// Cargo knows the target folder, and rebuilds what is out of date.
fn built_by_cargo(manifest: &Path) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--release", "--manifest-path"]);
    command.arg(manifest).arg("--");
    command
}
