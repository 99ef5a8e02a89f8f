//! Looks up which versions of its dependencies (in `Cargo.lock`) and of the compiler this package is
//! built with, and builds the C library, which is measured as a program in C has it: linked dynamically.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

const LOCK: &str = "Cargo.lock";
const PACKAGE: &str = env!("CARGO_PKG_NAME");

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={LOCK}");
    let lock = fs::read_to_string(LOCK)?;
    let packages: Vec<&str> = lock.split("[[package]]").skip(1).collect();
    let own = packages.iter().find(|package| field(package, "name") == Some(PACKAGE));
    let own = own.ok_or("the package is not in the lock file")?;
    let (_, list) = own.split_once("dependencies = [").ok_or("it has no dependencies there")?;
    let (list, _) = list.split_once(']').ok_or("their list has no end")?;
    // If a crate has two versions, uses the newer one, which is listed later.
    let mut versions = BTreeMap::new();
    for entry in list.lines().filter_map(quoted) {
        // A name alone, or name and version if there is more than one of that name.
        let (name, version) = match entry.split_once(' ') {
            Some(pair) => pair,
            None => {
                let package = packages.iter().find(|package| field(package, "name") == Some(entry));
                let version = package.and_then(|package| field(package, "version"));
                (entry, version.ok_or_else(|| format!("{entry} has no version"))?)
            }
        };
        versions.insert(name, version);
    }
    for (name, version) in versions {
        println!("cargo::rustc-env=VERSION_OF_{name}={version}");
    }
    let compiler = std::env::var("RUSTC")?;
    let version = Command::new(compiler).arg("--version").output()?;
    println!("cargo::rustc-env=BENCH_RUSTC={}", String::from_utf8(version.stdout)?.trim());
    // It is measured on Linux alone.
    if std::env::var("CARGO_CFG_TARGET_OS")? == "linux" { build_c_library() } else { Ok(()) }
}

/// In a separate folder: cargo has locked the current one.
fn build_c_library() -> Result<(), Box<dyn Error>> {
    let target = Path::new(&std::env::var("OUT_DIR")?).join("c");
    for source in
        ["Cargo.lock", "crates/capi/Cargo.toml", "crates/capi/src", "crates/completion-port/src"]
    {
        println!("cargo::rerun-if-changed=../{source}");
    }
    let profile = std::env::var("PROFILE")?;
    let mut build = Command::new(std::env::var("CARGO")?);
    if profile == "release" {
        // As `cargo xtask install` builds it.
        build.args(["--config", "profile.release.lto=true"]);
        build.args(["--config", "profile.release.codegen-units=1"]);
    }
    let status = build
        .args(["build", "--locked", "--package", "completion-port-capi"])
        .args(["--profile", if profile == "release" { "release" } else { "dev" }])
        .args(["--manifest-path", "../Cargo.toml"])
        .arg("--target-dir")
        .arg(&target)
        // Lints and sanitizers are for the enclosing build.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .status()?;
    if !status.success() {
        return Err("the C library does not build".into());
    }
    let built = target.join(profile);
    println!("cargo::rustc-link-search=native={}", built.display());
    // Before any search path that cargo sets: there may be another build of it.
    println!("cargo::rustc-link-arg=-Wl,--disable-new-dtags,-rpath,{}", built.display());
    Ok(())
}

/// The value of a line `key = "value"`.
fn field<'p>(package: &'p str, key: &str) -> Option<&'p str> {
    let is_it = |line: &&str| line.split_once(" = ").is_some_and(|(name, _)| name == key);
    package.lines().find(is_it).and_then(quoted)
}

/// The text in quotation marks in a line.
fn quoted(line: &str) -> Option<&str> {
    line.split('"').nth(1)
}
