//! The examples: built by hand, by make and by CMake, the last two through pkg-config; each checks itself.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

mod toolchain;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use toolchain::{
    Build, Profile, finds_leaks, has, include_flags, is_clean_in_valgrind, library_directory,
    package, scratch, succeed,
};

const EXAMPLES: [&str; 5] = [
    "poll_replacement",
    "edge_udp_server",
    "threaded_server",
    "overlapped_echo_server",
    "static_file_server",
];

#[test]
fn examples_do_what_they_say() {
    for name in EXAMPLES {
        let build = Build::of_example(&format!("{name}.c"));
        let program = build.kept(&format!("example-{name}")).unwrap();
        print!("{}", succeed(&mut Command::new(program)));
    }
}

#[test]
#[ignore = "the leg c-asan"]
fn examples_are_clean_under_address_sanitizer() {
    let leaks = u8::from(finds_leaks());
    for name in EXAMPLES {
        let build = Build::of_example(&format!("{name}.c"));
        let build =
            build.flags(&["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]);
        let program = build.kept(&format!("example-{name}-asan")).unwrap();
        succeed(Command::new(program).env("ASAN_OPTIONS", format!("detect_leaks={leaks}")));
    }
}

/// Those that other programs are written after.
#[test]
#[ignore = "the leg valgrind"]
fn examples_are_clean_in_valgrind() {
    for name in ["overlapped_echo_server", "static_file_server"] {
        let build = Build::of_example(&format!("{name}.c"));
        let program = build.kept(&format!("example-{name}")).unwrap();
        print!("{}", is_clean_in_valgrind(&program));
    }
}

/// Every example is in the list here, and in both build files.
#[test]
fn no_example_is_left_out() {
    let directory = package().join("examples");
    let [make, cmake] = ["Makefile", "CMakeLists.txt"]
        .map(|name| fs::read_to_string(directory.join(name)).unwrap());
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "c") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(EXAMPLES.contains(&name), "{name} is not run");
            assert!(make.contains(name) && cmake.contains(name), "{name} is not built");
        }
    }
}

/// A directory with a `completion_port_compat.pc` that describes the library where cargo has put it.
fn package_config(directory: &Path) -> PathBuf {
    let libraries = library_directory(Profile::Debug);
    let text = format!(
        "libdir={}\nrpath=-Wl,-rpath,${{libdir}}\nName: completion_port_compat\n\
         Description: as it was built\nVersion: 0\nCflags: {} -fms-extensions\n\
         Libs: -L${{libdir}} -lcompletion_port\n",
        libraries.display(),
        include_flags().join(" "),
    );
    let place = directory.join("pkgconfig");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("completion_port_compat.pc"), text).unwrap();
    place
}

#[test]
#[ignore = "the leg c-ways"]
fn make_finds_the_library_by_pkg_config() {
    if !has("make") || !has("pkg-config") {
        return;
    }
    let directory = scratch("make");
    let mut make = Command::new("make");
    make.arg("-C").arg(package().join("examples")).arg("check");
    make.arg(format!("BUILD={}", directory.join("build").display()));
    make.env("PKG_CONFIG_PATH", package_config(&directory)).env_remove("MAKEFLAGS");
    // Cargo's own folder may have an older library, and comes before the one that the programs name.
    make.env_remove("LD_LIBRARY_PATH");
    let said = succeed(&mut make);
    for name in EXAMPLES {
        assert!(directory.join("build").join(name).exists(), "{said}");
    }
}

#[test]
#[ignore = "the leg c-ways"]
fn cmake_finds_the_library_by_pkg_config() {
    if !has("cmake") || !has("pkg-config") {
        return;
    }
    let directory = scratch("cmake");
    let build = directory.join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(package().join("examples")).arg("-B").arg(&build);
    succeed(configure.env("PKG_CONFIG_PATH", package_config(&directory)));
    succeed(Command::new("cmake").arg("--build").arg(&build));
    let mut test = Command::new("ctest");
    test.env_remove("LD_LIBRARY_PATH");
    let said =
        succeed(test.args(["--output-on-failure", "--no-tests=error", "--test-dir"]).arg(&build));
    assert!(said.contains("100% tests passed"), "{said}");
}
