//! The public interface of `completion-port`, one item a line, as `docs/API.txt` of that crate keeps it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fmt, fs, io};

/// What to do with the listing.
#[derive(Debug, clap::Args)]
pub(crate) struct Todo {
    /// Compare docs/API.txt with the interface, and fail if they differ
    #[arg(long, conflicts_with = "update")]
    check: bool,
    /// Write docs/API.txt again
    #[arg(long)]
    update: bool,
    /// Take the interface from this file, which rustdoc has written, instead of asking rustdoc
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The format of rustdoc's JSON that the crate `public-api` reads in the version that `Cargo.toml` names.
/// Rust 1.95 writes it.
const FORMAT: u32 = 57;

/// The first lines of the file, for its readers.
const HEAD: &str = "\
# The public interface of completion-port, with all features. `cargo xtask api --update` writes this
# file, and a test of xtask compares it. Of the traits that the compiler implements by itself only
# Send and Sync are listed.
";

/// Why there is no listing, or a wrong one.
#[derive(Debug)]
pub(crate) enum Failure {
    /// This toolchain's rustdoc writes no JSON, or JSON of another format.
    Unsupported(String),
    /// The file and the interface differ.
    Differs(String),
    /// Anything else.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(reason) => write!(f, "SKIPPED public interface: {reason}"),
            Self::Differs(lines) => write!(
                f,
                "docs/API.txt and the public interface differ; `cargo xtask api --update` \
                 updates it, and RELEASING.md explains the consequences for the version\n{lines}"
            ),
            Self::Other(reason) => write!(f, "cannot list the public interface: {reason}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}

/// Makes rustdoc write the public interface; returns the file.
fn rustdoc() -> Result<PathBuf, Failure> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or(workspace().join("target"), PathBuf::from);
    // A separate folder: in another one, the variable below would cause everything to be rebuilt.
    let target = target.join("api");
    let output = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .current_dir(workspace())
        // A stable rustdoc writes JSON only if it takes itself for an unstable one.
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("RUSTDOCFLAGS")
        .env_remove("RUSTFLAGS")
        .args(["rustdoc", "--quiet", "--package", "completion-port", "--lib", "--all-features"])
        .arg("--target-dir")
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"])
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Other(format!("rustdoc failed\n{said}")));
    }
    Ok(target.join("doc/completion_port.json"))
}

/// The number after `"format_version":`, which rustdoc writes in each format.
fn format_of(json: &str) -> Option<u32> {
    let (_, rest) = json.rsplit_once("\"format_version\":")?;
    let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Whether the line belongs into the listing.
fn is_listed(line: &str) -> bool {
    // The papers are modules for rustdoc alone.
    if line.starts_with("pub mod completion_port::_") {
        return false;
    }
    let by_itself =
        ["marker::Freeze", "marker::Unpin", "marker::UnsafeUnpin", "panic::unwind_safe::"];
    !(line.starts_with("impl") && by_itself.iter().any(|path| line.contains(path)))
}

fn listing(json: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(json)?;
    let format = format_of(&text)
        .ok_or_else(|| Failure::Other(format!("{} has no format version", json.display())))?;
    if format != FORMAT {
        return Err(Failure::Unsupported(format!(
            "this rustdoc writes JSON of format {format}, and {FORMAT} is read, which is that of Rust 1.95"
        )));
    }
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .build()
        .map_err(|error| Failure::Other(error.to_string()))?;
    let mut listing = HEAD.to_owned();
    for line in api.items().map(ToString::to_string).filter(|line| is_listed(line)) {
        listing.push_str(&line);
        listing.push('\n');
    }
    Ok(listing)
}

/// The lines in only one of the two, with a sign for each.
fn difference(file: &str, interface: &str) -> String {
    let mut lines = Vec::new();
    let mut only_in = |one: &str, other: &str, sign: char| {
        let mut left: Vec<_> = other.lines().collect();
        for line in one.lines() {
            if let Some(at) = left.iter().position(|&candidate| candidate == line) {
                left.swap_remove(at);
            } else {
                lines.push(format!("{sign}{line}"));
            }
        }
    };
    only_in(file, interface, '-');
    only_in(interface, file, '+');
    if lines.is_empty() {
        lines.push("the same lines in another order".to_owned());
    }
    lines.join("\n")
}

/// Prints, compares or writes the listing.
pub(crate) fn api(todo: &Todo) -> Result<(), Failure> {
    let json = match &todo.json {
        Some(json) => json.clone(),
        None => rustdoc()?,
    };
    let interface = listing(&json)?;
    let file = workspace().join("crates/completion-port/docs/API.txt");
    if todo.update {
        fs::write(&file, interface)?;
    } else if todo.check {
        let kept = fs::read_to_string(&file)?;
        if kept != interface {
            return Err(Failure::Differs(difference(&kept, &interface)));
        }
    } else {
        print!("{interface}");
    }
    Ok(())
}
