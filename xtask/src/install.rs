//! Builds the C library in release mode and copies it, its object, its headers and its pkg-config files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// Where things go.
#[derive(Debug, clap::Args)]
pub(crate) struct Places {
    /// Where they will be used, for example /usr/local
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    pub(crate) prefix: PathBuf,
    /// What is put in front of that while they are copied, for packages
    #[arg(long, value_name = "DIR")]
    pub(crate) destdir: Option<PathBuf>,
    /// The folder for libraries below the prefix, for example lib64 or lib/aarch64-linux-gnu
    #[arg(long, value_name = "NAME", default_value = "lib")]
    pub(crate) libdir: String,
}

fn absolute(path: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

/// Programs that were linked against one library run with every other of the same major version.
const SONAME: &str = "libcompletion_port.so.0";
/// As sources spell them for file systems that do not care; links, so that the tree can be kept on one.
const SPELLINGS: [(&str, &str); 8] = [
    ("winsock2.h", "WinSock2.h"),
    ("winsock2.h", "Winsock2.h"),
    ("windows.h", "Windows.h"),
    ("ws2tcpip.h", "WS2tcpip.h"),
    ("ws2tcpip.h", "Ws2tcpip.h"),
    ("mswsock.h", "MSWSock.h"),
    ("mswsock.h", "Mswsock.h"),
    ("ioapiset.h", "IoAPISet.h"),
];
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}

/// Builds both libraries; the folder they are in.
fn build() -> io::Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or(workspace().join("target"), PathBuf::from);
    // A folder of its own: elsewhere the library is built without the name that is given to it here.
    let target = target.join("install");
    let cargo = env::var_os("CARGO").unwrap_or("cargo".into());
    let status = Command::new(cargo)
        .current_dir(workspace())
        .args(["rustc", "--release", "--package", "completion-port-capi", "--lib", "--target-dir"])
        .arg(&target)
        .args(["--config", "profile.release.lto=true"])
        .args(["--config", "profile.release.codegen-units=1"])
        .args(["--config", "profile.release.strip='debuginfo'"])
        .args(["--", "-C", &format!("link-arg=-Wl,-soname,{SONAME}")])
        .status()?;
    if !status.success() {
        return Err(io::Error::other("the library does not build"));
    }
    Ok(target.join("release"))
}

/// Compiles the object that has the system's own names, beside the library: with the compiler by which cargo
/// has linked that.
fn compile_object(folder: &Path) -> io::Result<PathBuf> {
    let object = folder.join("completion_port_close.o");
    let package = workspace().join("crates/capi");
    let status = Command::new(env::var_os("CC").unwrap_or("cc".into()))
        .args(["-std=c11", "-O2", "-fPIC", "-c", "-I"])
        .arg(package.join("include"))
        .arg(package.join("compat/source/close.c"))
        .arg("-o")
        .arg(&object)
        .status()?;
    if !status.success() {
        return Err(io::Error::other("completion_port_close.o does not compile"));
    }
    Ok(object)
}

fn pkg_config(places: &Places) -> [(&'static str, String); 3] {
    let (prefix, libdir) = (places.prefix.display(), &places.libdir);
    let variables =
        format!("prefix={prefix}\nlibdir=${{prefix}}/{libdir}\nincludedir=${{prefix}}/include\n\n");
    let library = format!(
        "{variables}Name: completion_port\n\
         Description: One I/O completion port for any number of threads, with socket notifications\n\
         Version: {VERSION}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lcompletion_port\n\
         Libs.private: -lutil -lrt -lpthread -lm -ldl\n"
    );
    // Before GCC 13 a header cannot turn off the warning about `#pragma comment` in C++; and in plain
    // C11 the system's headers hide `struct addrinfo` and much else that Winsock's have.
    let compat = format!(
        "{variables}Name: completion_port_compat\n\
         Description: completion_port under the names of Winsock: winsock2.h, mswsock.h, windows.h\n\
         Version: {VERSION}\n\
         Requires: completion_port\n\
         Cflags: -I${{includedir}}/completion_port/compat -D_DEFAULT_SOURCE -Wno-unknown-pragmas -pthread\n\
         Libs: -pthread\n"
    );
    let close = format!(
        "{variables}Name: completion_port_close\n\
         Description: completion_port sees what close, dup2, dup3 and close_range close\n\
         Version: {VERSION}\n\
         Requires: completion_port\n\
         Libs: ${{libdir}}/completion_port_close.o\n"
    );
    [
        ("completion_port.pc", library),
        ("completion_port_compat.pc", compat),
        ("completion_port_close.pc", close),
    ]
}

/// A copy with the rights of a plain file, whatever is there already.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    remove(to)?;
    fs::copy(from, to)?;
    println!("{}", to.display());
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn link(to: &str, from: &Path) -> io::Result<()> {
    remove(from)?;
    std::os::unix::fs::symlink(to, from)?;
    println!("{} -> {to}", from.display());
    Ok(())
}

/// See the module's documentation.
pub(crate) fn install(places: &Places) -> io::Result<()> {
    let built = build()?;
    let root = match &places.destdir {
        // `join` would start anew at the slash.
        Some(destdir) => destdir.join(places.prefix.strip_prefix("/").unwrap_or(&places.prefix)),
        None => places.prefix.clone(),
    };
    let library = root.join(&places.libdir);
    let include = root.join("include");
    let compat = include.join("completion_port/compat");
    let pkg_configs = library.join("pkgconfig");
    for folder in [&library, &include, &compat, &pkg_configs] {
        fs::create_dir_all(folder)?;
    }

    let file = format!("libcompletion_port.so.{VERSION}");
    copy(&built.join("libcompletion_port.so"), &library.join(&file))?;
    link(&file, &library.join(SONAME))?;
    link(SONAME, &library.join("libcompletion_port.so"))?;
    copy(&built.join("libcompletion_port.a"), &library.join("libcompletion_port.a"))?;
    copy(&compile_object(&built)?, &library.join("completion_port_close.o"))?;

    let headers = workspace().join("crates/capi");
    for (from, to) in [("include", &include), ("compat/include", &compat)] {
        for entry in fs::read_dir(headers.join(from))? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    for (name, spelling) in SPELLINGS {
        link(name, &compat.join(spelling))?;
    }
    for (name, text) in pkg_config(places) {
        let path = pkg_configs.join(name);
        fs::write(&path, text)?;
        println!("{}", path.display());
    }
    Ok(())
}
