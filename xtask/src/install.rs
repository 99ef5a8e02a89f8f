//! Builds the C library in release mode and copies it, its object, its headers, and the files by which pkg-config
//! and CMake find it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// Where things go.
#[derive(Debug, clap::Args)]
pub(crate) struct Places {
    /// Where they will be used, for example /usr/local
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    pub(crate) prefix: PathBuf,
    /// Prefix for the destination of the copies, for packages
    #[arg(long, value_name = "DIR")]
    pub(crate) destdir: Option<PathBuf>,
    /// The folder for libraries below the prefix, for example lib64 or lib/aarch64-linux-gnu
    #[arg(long, value_name = "NAME", default_value = "lib")]
    pub(crate) libdir: String,
    /// Target system, if not this one; one that links statically, like musl, has no shared library
    #[arg(long, value_name = "TRIPLE")]
    pub(crate) target: Option<String>,
}

fn absolute(path: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

/// Programs that were linked against one library run with every other of the same major version.
const SONAME: &str = "libcompletion_port.so.0";
/// As sources spell them for file systems that do not care, and headers that are parts of `windows.h` to the
/// reference. Links, so that the tree can be kept on such a file system.
const SPELLINGS: [(&str, &[&str]); 10] = [
    ("winsock2.h", &["WinSock2.h", "Winsock2.h", "WINSOCK2.h", "WINSOCK2.H"]),
    ("ws2tcpip.h", &["WS2tcpip.h", "Ws2tcpip.h", "Ws2TcpIp.h", "WS2TCPIP.h", "WS2TCPIP.H"]),
    ("mswsock.h", &["MSWSock.h", "MSWsock.h", "MsWSock.h", "Mswsock.h", "MSWSOCK.H"]),
    ("iphlpapi.h", &["Iphlpapi.h", "IPHlpApi.h", "IpHlpApi.h", "IPHLPAPI.H"]),
    ("mstcpip.h", &["MSTcpIP.h", "Mstcpip.h", "mstcpIP.h"]),
    ("ioapiset.h", &["IoAPISet.h"]),
    ("sdkddkver.h", &["SDKDDKVer.h", "SdkDdkVer.h"]),
    ("winternl.h", &["Winternl.h", "WinTernl.h"]),
    ("process.h", &["Process.h"]),
    ("windows.h", WINDOWS),
];
const WINDOWS: &[&str] = &[
    "Windows.h",
    "WINDOWS.h",
    "WINDOWS.H",
    "basetsd.h",
    "consoleapi.h",
    "errhandlingapi.h",
    "handleapi.h",
    "minwinbase.h",
    "minwindef.h",
    "Mmsystem.h",
    "MMSystem.h",
    "mmsystem.h",
    "processthreadsapi.h",
    "synchapi.h",
    "sysinfoapi.h",
    "threadpoollegacyapiset.h",
    "timeapi.h",
    "WinBase.h",
    "winbase.h",
    "WinDef.h",
    "windef.h",
    "WinError.h",
    "winerror.h",
    "WinNT.h",
    "winnt.h",
];
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}

/// Builds both libraries; the folder they are in.
fn build(triple: Option<&str>) -> io::Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or(workspace().join("target"), PathBuf::from);
    // A separate folder: elsewhere the library is built without the name it gets here.
    let target = target.join("install");
    let cargo = env::var_os("CARGO").unwrap_or("cargo".into());
    let mut rustc = Command::new(cargo);
    rustc
        .current_dir(workspace())
        .args(["rustc", "--release", "--package", "completion-port-capi", "--lib", "--target-dir"])
        .arg(&target);
    if let Some(triple) = triple {
        rustc.args(["--target", triple]);
    }
    let status = rustc
        .args(["--config", "profile.release.lto=true"])
        .args(["--config", "profile.release.codegen-units=1"])
        .args(["--config", "profile.release.strip='debuginfo'"])
        .args(["--", "-C", &format!("link-arg=-Wl,-soname,{SONAME}")])
        .status()?;
    if !status.success() {
        return Err(io::Error::other("the library does not build"));
    }
    Ok(triple.map_or(target.clone(), |triple| target.join(triple)).join("release"))
}

/// Compiles the object with the system's own names, next to the library, with the compiler that
/// cargo has linked it with.
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

/// Compiler options for sources written for the reference.
const COMPAT_FLAGS: &str = "-D_DEFAULT_SOURCE -fms-extensions -Wno-unknown-pragmas";
/// What the library needs of the system if it is linked statically.
const SYSTEM_LIBRARIES: &str = "-lutil -lrt -lpthread -lm -ldl";

/// The name under which [`unwinder`] is installed.
const UNWINDER: &str = "completion_port_unwind";

/// What finds a function's caller, where the Rust toolchain brings its own and puts it into programs only: for musl,
/// whose compiler may have none that goes with it.
fn unwinder(triple: Option<&str>) -> io::Result<Option<PathBuf>> {
    let Some(triple) = triple else { return Ok(None) };
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or("rustc".into()));
    let told = rustc.args(["--print", "target-libdir", "--target", triple]).output()?;
    let folder = String::from_utf8_lossy(&told.stdout);
    let library = Path::new(folder.trim()).join("self-contained/libunwind.a");
    Ok(library.exists().then_some(library))
}

/// What a program is linked with besides the library, if that is in it.
fn private_libraries(has_unwinder: bool) -> String {
    if has_unwinder {
        format!("-l{UNWINDER} {SYSTEM_LIBRARIES}")
    } else {
        SYSTEM_LIBRARIES.to_owned()
    }
}

fn pkg_config(places: &Places, has_unwinder: bool) -> [(&'static str, String); 3] {
    let private = private_libraries(has_unwinder);
    let (prefix, libdir) = (places.prefix.display(), &places.libdir);
    let variables =
        format!("prefix={prefix}\nlibdir=${{prefix}}/{libdir}\nincludedir=${{prefix}}/include\n\n");
    let library = format!(
        "{variables}rpath=-Wl,-rpath,${{libdir}}\n\nName: completion_port\n\
         Description: One I/O completion port for any number of threads, with socket notifications\n\
         Version: {VERSION}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lcompletion_port\n\
         Libs.private: {private}\n"
    );
    // Before GCC 13 a header cannot turn off the warning about `#pragma comment` in C++; and in plain
    // C11 the system's headers hide `struct addrinfo` and much else that Winsock's have. A struct without a name in
    // another one, which sources for the reference use, is C only with -fms-extensions.
    let compat = format!(
        "{variables}rpath=-Wl,-rpath,${{libdir}}\n\nName: completion_port_compat\n\
         Description: completion_port under the names of Winsock: winsock2.h, mswsock.h, windows.h\n\
         Version: {VERSION}\n\
         Requires: completion_port\n\
         Cflags: -I${{includedir}}/completion_port/compat {COMPAT_FLAGS} -pthread\n\
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

/// The input of `find_package(completion_port)`. It finds the rest relative to its own location, so
/// the installation can be moved.
fn cmake(libdir: &str, has_shared: bool, has_unwinder: bool) -> [(&'static str, String); 2] {
    let up = "../".repeat(2 + libdir.split('/').filter(|part| !part.is_empty()).count());
    let up = up.trim_end_matches('/');
    let kinds: &[&str] = if has_shared { &["shared", "static"] } else { &["static"] };
    let mut config = format!(
        "# completion_port::completion_port    the library under its own names: <completion_port.h>\n\
         # completion_port::compat             and under those of Winsock: <winsock2.h>, <windows.h>\n\
         # completion_port::close              what close, dup2, dup3 and close_range close is seen\n\
         # The first two are there with _static, too: linked into the program.\n\
         include(CMakeFindDependencyMacro)\n\
         find_dependency(Threads)\n\
         get_filename_component(_completion_port_prefix \"${{CMAKE_CURRENT_LIST_DIR}}/{up}\" ABSOLUTE)\n\
         set(_completion_port_libdir \"${{_completion_port_prefix}}/{libdir}\")\n\
         if(TARGET completion_port::completion_port)\n    return()\nendif()\n"
    );
    let file = format!("libcompletion_port.so.{VERSION}");
    for kind in kinds {
        let (name, place, more) = match *kind {
            "shared" => ("", file.as_str(), format!("    IMPORTED_SONAME {SONAME}\n")),
            _ => {
                let mut libraries = SYSTEM_LIBRARIES.replace("-l", "").replace(' ', ";");
                if has_unwinder {
                    let file = format!("${{_completion_port_libdir}}/lib{UNWINDER}.a");
                    libraries = format!("{file};{libraries}");
                }
                let more =
                    format!("    INTERFACE_LINK_LIBRARIES \"Threads::Threads;{libraries}\"\n");
                ("_static", "libcompletion_port.a", more)
            }
        };
        let (kind, flags) = (kind.to_uppercase(), COMPAT_FLAGS.replace("-D_DEFAULT_SOURCE ", ""));
        let flags = flags.replace(' ', ";");
        config += &format!(
            "\nadd_library(completion_port::completion_port{name} {kind} IMPORTED)\n\
             set_target_properties(completion_port::completion_port{name} PROPERTIES\n\
             {four}IMPORTED_LOCATION \"${{_completion_port_libdir}}/{place}\"\n{more}\
             {four}INTERFACE_INCLUDE_DIRECTORIES \"${{_completion_port_prefix}}/include\")\n\
             add_library(completion_port::compat{name} INTERFACE IMPORTED)\n\
             set_target_properties(completion_port::compat{name} PROPERTIES\n\
             {four}INTERFACE_INCLUDE_DIRECTORIES \"${{_completion_port_prefix}}/include/completion_port/compat\"\n\
             {four}INTERFACE_COMPILE_DEFINITIONS _DEFAULT_SOURCE\n\
             {four}INTERFACE_COMPILE_OPTIONS \"{flags}\"\n\
             {four}INTERFACE_LINK_LIBRARIES \"completion_port::completion_port{name};Threads::Threads\")\n",
            four = "    ",
        );
    }
    if !has_shared {
        config += "\nadd_library(completion_port::completion_port INTERFACE IMPORTED)\n\
                   set_target_properties(completion_port::completion_port PROPERTIES\n    \
                   INTERFACE_LINK_LIBRARIES completion_port::completion_port_static)\n\
                   add_library(completion_port::compat INTERFACE IMPORTED)\n\
                   set_target_properties(completion_port::compat PROPERTIES\n    \
                   INTERFACE_LINK_LIBRARIES completion_port::compat_static)\n";
    }
    config += "\nadd_library(completion_port::close INTERFACE IMPORTED)\n\
               set_target_properties(completion_port::close PROPERTIES\n    \
               INTERFACE_LINK_LIBRARIES \"${_completion_port_libdir}/completion_port_close.o\")\n\
               unset(_completion_port_libdir)\nunset(_completion_port_prefix)\n";
    // Before 1.0, the second part of the version determines compatibility.
    let mut parts = VERSION.split('.');
    let (major, minor) = (parts.next().unwrap_or("0"), parts.next().unwrap_or("0"));
    let version = format!(
        "set(PACKAGE_VERSION {VERSION})\n\
         if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)\n    set(PACKAGE_VERSION_EXACT TRUE)\nendif()\n\
         if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION\n   \
         OR NOT PACKAGE_FIND_VERSION_MAJOR EQUAL {major}\n   \
         OR (PACKAGE_FIND_VERSION_COUNT GREATER 1 AND NOT PACKAGE_FIND_VERSION_MINOR EQUAL {minor}))\n    \
         set(PACKAGE_VERSION_COMPATIBLE FALSE)\nelse()\n    set(PACKAGE_VERSION_COMPATIBLE TRUE)\nendif()\n"
    );
    [("completion_port-config.cmake", config), ("completion_port-config-version.cmake", version)]
}

/// How to make a program find the library, printed after copying.
fn how_to_start(places: &Places) -> String {
    let library = places.prefix.join(&places.libdir);
    let library = library.display();
    format!(
        "\nA program that is linked with the shared library starts if the loader finds that. Either\n\
         - tell the loader, as root: echo {library} > /etc/ld.so.conf.d/completion_port.conf && ldconfig\n  \
         (where {library} is known to it already, ldconfig alone)\n\
         - or tell the program, when it is linked: -Wl,-rpath,{library}\n  \
         (pkg-config --variable=rpath completion_port says that; CMake does it for programs that are not installed)\n\
         - or link statically: see docs/PORTING.md\n"
    )
}

/// Copies with the permissions of a plain file, replacing any existing one.
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
    let built = build(places.target.as_deref())?;
    let root = match &places.destdir {
        // `join` would start again at the slash.
        Some(destdir) => destdir.join(places.prefix.strip_prefix("/").unwrap_or(&places.prefix)),
        None => places.prefix.clone(),
    };
    let library = root.join(&places.libdir);
    let include = root.join("include");
    let compat = include.join("completion_port/compat");
    let pkg_configs = library.join("pkgconfig");
    let cmakes = library.join("cmake/completion_port");
    let sys = compat.join("sys");
    for folder in [&library, &include, &compat, &sys, &pkg_configs, &cmakes] {
        fs::create_dir_all(folder)?;
    }

    let file = format!("libcompletion_port.so.{VERSION}");
    let shared = built.join("libcompletion_port.so");
    let has_shared = shared.exists();
    if has_shared {
        copy(&shared, &library.join(&file))?;
        link(&file, &library.join(SONAME))?;
        link(SONAME, &library.join("libcompletion_port.so"))?;
    }
    copy(&built.join("libcompletion_port.a"), &library.join("libcompletion_port.a"))?;
    let unwinder = unwinder(places.target.as_deref())?;
    if let Some(from) = &unwinder {
        copy(from, &library.join(format!("lib{UNWINDER}.a")))?;
    }
    copy(&compile_object(&built)?, &library.join("completion_port_close.o"))?;

    let headers = workspace().join("crates/capi");
    for (from, to) in
        [("include", &include), ("compat/include", &compat), ("compat/include/sys", &sys)]
    {
        for entry in fs::read_dir(headers.join(from))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                continue;
            }
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    for (name, spellings) in SPELLINGS {
        for spelling in spellings {
            link(name, &compat.join(spelling))?;
        }
    }
    let cmake = cmake(&places.libdir, has_shared, unwinder.is_some())
        .map(|(name, text)| (cmakes.join(name), text));
    let pkg_config =
        pkg_config(places, unwinder.is_some()).map(|(name, text)| (pkg_configs.join(name), text));
    for (path, text) in cmake.into_iter().chain(pkg_config) {
        fs::write(&path, text)?;
        println!("{}", path.display());
    }
    if has_shared {
        print!("{}", how_to_start(places));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spelling_is_that_of_a_header_and_no_two_are_the_same() {
        let headers = workspace().join("crates/capi/compat/include");
        let mut all = std::collections::BTreeSet::new();
        for (name, spellings) in SPELLINGS {
            assert!(headers.join(name).exists(), "{name}");
            for spelling in spellings {
                assert!(all.insert(spelling), "{spelling} is there twice");
                assert!(!headers.join(spelling).exists(), "{spelling} would replace a header");
                let is_part_of_windows = name == "windows.h";
                assert!(is_part_of_windows || spelling.eq_ignore_ascii_case(name), "{spelling}");
            }
        }
    }
}
