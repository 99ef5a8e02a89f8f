//! Programs are built: examples of the workspace, and programs of a user.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Where the workspace is.
///
/// # Panics
///
/// Never, as long as this crate is in a folder of the workspace.
#[must_use]
pub fn workspace() -> &'static Path {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).expect("this crate is in a folder of the workspace")
}

fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

fn cargo(arguments: &[&str], target: &Path, folder: &Path) {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", target);
    // A user sees warnings.
    command.env("RUSTFLAGS", "-D warnings").env("RUSTDOCFLAGS", "-D warnings");
    let output = command.output().expect("cargo");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?}: {said}");
}

/// Another system whose programs this one can run: that of `USERS_TARGET` by the program `USERS_RUNNER`.
#[derive(Debug)]
pub(crate) struct Other {
    target: String,
    pub(crate) runner: OsString,
}

pub(crate) fn other() -> Option<Other> {
    let (target, runner) = (env::var("USERS_TARGET").ok()?, env::var_os("USERS_RUNNER")?);
    Some(Other { target, runner })
}

/// An example of the library, built.
///
/// # Panics
///
/// If it cannot be built.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    if let Some(Other { target: triple, .. }) = other() {
        // Built before the tests, next to the tested library.
        return target().join(triple).join("debug/examples").join(format!("{name}.exe"));
    }
    let target = target().join("users");
    let arguments = ["build", "--quiet", "--package", "completion-port", "--example", name];
    cargo(&arguments, &target, workspace());
    target.join("debug/examples").join(name)
}

/// A project outside the workspace that depends on the library.
#[derive(Debug)]
pub struct Project {
    folder: PathBuf,
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Project {
    /// A new project with programs, each with name and source, and a library with one line of
    /// documentation.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    #[must_use]
    pub fn new(name: &str, programs: &[(&str, &str)]) -> Self {
        let folder = env::temp_dir().join(format!("completion-port-{name}-{}", std::process::id()));
        let sources = folder.join("src/bin");
        fs::create_dir_all(&sources).expect("a temporary folder");
        let library = workspace().join("crates/completion-port");
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies]\ncompletion-port = {{ path = {library:?} }}\n"
        );
        let write = |path: &str, text: &str| fs::write(folder.join(path), text).expect("a file");
        write("Cargo.toml", &manifest);
        write(
            "src/lib.rs",
            "//! Has a [`completion_port::Port`], which [`completion_port::guide`] tells about.\n\
             pub use completion_port::Port;\n",
        );
        // The versions that have been fetched.
        fs::copy(workspace().join("Cargo.lock"), folder.join("Cargo.lock")).expect("a lock file");
        for (program, source) in programs {
            write(&format!("src/bin/{program}.rs"), source);
        }
        Self { folder }
    }

    /// Builds the programs and returns where they are.
    ///
    /// # Panics
    ///
    /// If they cannot be built.
    #[must_use]
    pub fn build(&self) -> PathBuf {
        let target = target().join("users");
        cargo(&["build", "--quiet", "--offline"], &target, &self.folder);
        target.join("debug")
    }

    /// Builds the documentation of the project and of the library, as the library is by default.
    ///
    /// # Panics
    ///
    /// If there is any warning.
    pub fn document(&self) {
        let target = target().join("users");
        for package in ["completion-port", "documented"] {
            let arguments =
                ["doc", "--quiet", "--offline", "--no-deps", "--lib", "--package", package];
            cargo(&arguments, &target, &self.folder);
        }
    }
}
