//! The program with eager hand-off of tokio's driver: the same source, in a build for unstable
//! features of tokio, which has a separate target folder.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The folder, next to that of this build.
const FOLDER: &str = "eager-handoff";
const FLAG: &str = "--cfg tokio_unstable";

/// The program, which is built by the first call.
pub(super) fn program() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> Result<PathBuf, String> {
    let own = env::current_exe().map_err(|error| error.to_string())?;
    let target = own.ancestors().nth(2).ok_or("this program is in no target folder")?;
    let target = target.join(FOLDER);
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let flags = match env::var("RUSTFLAGS") {
        Ok(flags) => format!("{flags} {FLAG}"),
        Err(_) => FLAG.to_owned(),
    };
    eprintln!("building with `{FLAG}`, which takes some minutes the first time");
    let status = Command::new(cargo)
        .args(["build", "--release", "--locked", "--quiet", "--bin", "cport-bench"])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .arg("--target-dir")
        .arg(&target)
        .env("RUSTFLAGS", flags)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err(format!("its build failed: cargo: {status}"));
    }
    Ok(target.join("release").join("cport-bench"))
}
