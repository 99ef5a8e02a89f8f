//! The C and C++ programs in this folder. Each is built with the shared library, in its own language, and run once.
//! The ignored tests run them in other ways. Each way finds what no other does:
//!
//! - `address_sanitizer`: what a program, or the inline code of a header, does to its own stack and heap, and undefined
//!   behaviour in it; in the optimised library, memory that nothing refers to any more;
//! - `in_valgrind`: the library's own code, and what the kernel writes at the library's request: freed memory, memory
//!   that was never written, leaks;
//! - `cxx`: code that the headers have for C++ alone, and C that C++ refuses;
//! - `static`: a function that the archive lacks or defines twice;
//! - `fortified`, `lto`: a call that a header of the C library has taken back from this library;
//! - `nameless`: a kernel that has no cookie for a socket;
//! - `files_by`: each engine for files, also where the system would choose the other one.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

mod toolchain;

use std::process::Command;

use completion_port::{ErrorKind, FileEngine, Port};
use toolchain::{
    Build, Linkage, Profile, finds_leaks, library_directory, package, scratch, succeed,
};

/// What a program said that it left out is said here too, where it is seen.
fn tell(said: &str) {
    print!("{said}");
}

fn runs(test: &str, build: Build) {
    if let Some(program) = build.kept(test) {
        tell(&succeed(&mut Command::new(program)));
    }
}

/// Compiles and links, and runs nothing: C++ makes of a program's own code what C makes of it.
fn compiles_as_cxx(test: &str, build: Build) {
    build.in_cxx().kept(&format!("{test}-c++"));
}

/// For programs for which the headers have different functions in C++.
fn runs_as_cxx(test: &str, build: Build) {
    runs(&format!("{test}-c++"), build.in_cxx());
}

/// Nothing is used after it was freed, nothing overflows, nothing is left when the program ends.
fn is_clean_under_address_sanitizer(test: &str, build: Build) {
    let leaks = u8::from(finds_leaks());
    let build = build.flags(&[
        "-O1",
        "-fno-omit-frame-pointer",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    ]);
    if let Some(program) = build.kept(&format!("{test}-asan")) {
        let options =
            format!("detect_leaks={leaks}:detect_stack_use_after_return=1:abort_on_error=0");
        tell(&succeed(Command::new(program).env("ASAN_OPTIONS", options)));
    }
}

/// Makes a module for each program, with a test for each way in which it is run.
macro_rules! programs {
    ($($name:ident: $($source:literal),+ $(=> $as_cxx:ident)?;)+) => {$(
        mod $name {
            use super::*;

            const SOURCES: &[&str] = &[$($source),+];

            #[test]
            fn runs() {
                super::runs(stringify!($name), Build::of(SOURCES));
            }

            #[test]
            #[ignore = "the leg c-asan"]
            fn is_clean_under_address_sanitizer() {
                super::is_clean_under_address_sanitizer(stringify!($name), Build::of(SOURCES));
            }

            #[test]
            #[ignore = "the leg valgrind"]
            fn is_clean_in_valgrind() {
                if let Some(program) = Build::of(SOURCES).kept(stringify!($name)) {
                    tell(&toolchain::is_clean_in_valgrind(&program));
                }
            }

            $(#[test]
            #[ignore = "the leg c-ways"]
            fn $as_cxx() {
                super::$as_cxx(stringify!($name), Build::of(SOURCES));
            })?
        }
    )+};
}

programs! {
    layouts: "layouts.c" => runs_as_cxx;
    own_names: "own_names.c" => compiles_as_cxx;
    internals: "internals.c" => compiles_as_cxx;
    forked: "forked.c" => compiles_as_cxx;
    port_handles: "port_handles.c" => compiles_as_cxx;
    process_call: "process_call.c" => compiles_as_cxx;
    signals: "signals.c" => compiles_as_cxx;
    registration: "registration.c" => compiles_as_cxx;
    refusing_kernel: "refusing_kernel.c" => compiles_as_cxx;
    delivery: "delivery.c" => compiles_as_cxx;
    closed_sockets: "closed_sockets.c" => compiles_as_cxx;
    same_number: "same_number.c" => compiles_as_cxx;
    closes_seen: "closes_seen.c", "closes_elsewhere.c", "../compat/source/close.c";
    queue: "queue.c" => compiles_as_cxx;
    any_thread: "any_thread.c" => compiles_as_cxx;
    spared_calls: "spared_calls.c" => compiles_as_cxx;
    hints: "hints.c" => compiles_as_cxx;
    winsock_calls: "winsock_calls.c" => runs_as_cxx;
    lookup: "lookup.c" => compiles_as_cxx;
    hosts: "hosts.c" => runs_as_cxx;
    two_units: "two_units_one.c", "two_units_two.c" => runs_as_cxx;
    members: "members.cpp";
    members_in_c: "members_in_c.c" => runs_as_cxx;
    opted_out: "opted_out.c" => compiles_as_cxx;
    win32: "win32.c" => compiles_as_cxx;
    threads: "threads.c" => runs_as_cxx;
    wait_queues: "wait_queues.c" => compiles_as_cxx;
    timers: "timers.c" => runs_as_cxx;
    text: "text.c" => runs_as_cxx;
    machine: "machine.c" => compiles_as_cxx;
    microsoft_c: "microsoft_c.c" => runs_as_cxx;
    socket_buffers: "socket_buffers.c" => compiles_as_cxx;
    socket_state: "socket_state.c" => compiles_as_cxx;
    socket_codes: "socket_codes.c" => runs_as_cxx;
    datagrams: "datagrams.c" => runs_as_cxx;
    annotations: "annotations.c" => compiles_as_cxx;
    overlapped_transfers: "overlapped_transfers.c" => compiles_as_cxx;
    overlapped_receivers: "overlapped_receivers.c" => compiles_as_cxx;
    overlapped_results: "overlapped_results.c" => compiles_as_cxx;
    overlapped_callbacks: "overlapped_callbacks.c" => compiles_as_cxx;
    overlapped_and_readiness: "overlapped_and_readiness.c" => compiles_as_cxx;
    overlapped_stress: "overlapped_stress.c" => compiles_as_cxx;
    overlapped_forked: "overlapped_forked.c" => compiles_as_cxx;
    overlapped_connections: "overlapped_connections.c" => compiles_as_cxx;
    overlapped_refusals: "overlapped_refusals.c" => compiles_as_cxx;
    files: "files.c" => compiles_as_cxx;
    overlapped_files: "overlapped_files.c" => compiles_as_cxx;
    files_forked: "files_forked.c" => compiles_as_cxx;
    files_mapped: "files_mapped.c" => compiles_as_cxx;
    files_stress: "files_stress.c" => compiles_as_cxx;
    transmit: "transmit.c" => compiles_as_cxx;
    transmit_disk: "transmit_disk.c" => compiles_as_cxx;
    shape_event_loop: "shape_event_loop.c" => compiles_as_cxx;
    shape_udp_engine: "shape_udp_engine.c" => compiles_as_cxx;
    shape_game_server: "shape_game_server.c" => compiles_as_cxx;
    shape_actor_runtime: "shape_actor_runtime.c" => compiles_as_cxx;
    shape_oneshot_server: "shape_oneshot_server.cpp";
    shape_proactor: "shape_proactor.cpp";
    shape_neutral_queue: "shape_neutral_queue.c";
    shape_file_copier: "shape_file_copier.c" => compiles_as_cxx;
}

/// Memory kept for the life of the process is distinguishable from a leak, also in the installed
/// library, where the optimiser has removed variables that are never read.
#[test]
#[ignore = "the leg c-asan"]
fn the_installed_library_is_clean_under_address_sanitizer() {
    for (test, source) in
        [("installed-queue", "queue.c"), ("installed-sockets", "closed_sockets.c")]
    {
        is_clean_under_address_sanitizer(test, Build::of(&[source]).with(Profile::Release));
    }
}

/// The C library's headers redefine some calls where a unit is optimised and fortified; the mapping to this
/// library must hold there too, also if there are two such units.
#[test]
#[ignore = "the leg c-ways"]
fn socket_calls_are_mapped_where_they_are_fortified() {
    for level in ["-D_FORTIFY_SOURCE=1", "-D_FORTIFY_SOURCE=2", "-D_FORTIFY_SOURCE=3"] {
        for (name, sources) in [
            ("calls", &["winsock_calls.c"][..]),
            ("units", &["two_units_one.c", "two_units_two.c"]),
        ] {
            for build in [Build::of(sources), Build::of(sources).in_cxx()] {
                let name = format!("fortified-{name}{level}-{:?}", build.language);
                runs(&name, build.flags(&["-O2", "-U_FORTIFY_SOURCE", level]));
            }
        }
    }
}

/// Also where one program needs all of them, and with the object that sees closes.
#[test]
#[ignore = "the leg c-ways"]
fn the_static_library_has_every_function_once() {
    let directory = scratch("every-function");
    let list = std::fs::read_to_string(package().join("tests/exported_symbols.txt")).unwrap();
    let names: Vec<&str> = list.lines().filter(|line| line.starts_with("cp_")).collect();
    assert!(names.len() > 50, "the functions were not found: {names:?}");
    let declared: String =
        names.iter().map(|name| format!("extern void {name}(void);\n")).collect();
    let text = format!(
        "{declared}void (*volatile all[])(void) = {{{}}};\n\
         int main(void) {{\n    unsigned i;\n    for (i = 0; i < sizeof all / sizeof *all; i++)\n        \
         if (!all[i])\n            return 1;\n    return 0;\n}}\n",
        names.join(", ")
    );
    let source = directory.join("every_function.c");
    std::fs::write(&source, text).unwrap();
    let close = package().join("compat/source/close.c");
    let build = Build { sources: vec![source, close], ..Build::of(&[]) };
    let program = build.linked(Linkage::Static).program(&directory).unwrap();
    succeed(&mut Command::new(program));
}

/// Looking functions up, and intercepting system calls, may differ in a statically linked program.
#[test]
#[ignore = "the leg c-ways"]
fn programs_run_with_the_static_library() {
    for (test, sources) in [
        ("lookup-static", &["lookup.c"][..]),
        ("closes-static", &["closes_seen.c", "closes_elsewhere.c", "../compat/source/close.c"]),
    ] {
        runs(test, Build::of(sources).linked(Linkage::Static));
    }
}

/// One unit in C, one in C++, each with all headers.
#[test]
#[ignore = "the leg c-ways"]
fn units_in_c_and_in_cxx_make_one_program() {
    let Some(cxx) = toolchain::cxx() else { return };
    let directory = scratch("both-languages");
    let mut objects = Vec::new();
    for (compiler, standard, language, source) in [
        (&toolchain::cc(), "-std=c11", "c", "two_units_one.c"),
        (&cxx, "-std=c++17", "c++", "two_units_two.c"),
    ] {
        let object = directory.join(source).with_extension("o");
        let mut compile = Command::new(compiler);
        compile.args([standard, "-D_DEFAULT_SOURCE", "-c", "-x", language]);
        compile.args(toolchain::STRICT).args(toolchain::include_flags());
        succeed(compile.arg(package().join("tests").join(source)).arg("-o").arg(&object));
        objects.push(object);
    }
    let program = directory.join("program");
    let library = library_directory(Profile::Debug);
    let mut link = Command::new(cxx);
    link.args(objects).arg("-L").arg(&library).args(["-lcompletion_port", "-pthread"]);
    link.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", library.display()))
        .arg("-o")
        .arg(&program);
    succeed(&mut link);
    succeed(&mut Command::new(program));
}

/// What closes descriptors is seen also in a library that the program uses, if the program has the object that
/// sees it; not otherwise.
#[test]
fn what_another_library_closes_is_seen() {
    let directory = scratch("closes-elsewhere");
    let source = |name: &str| package().join("tests").join(name);
    let shared = directory.join("libcloses_elsewhere.so");
    let mut library = Command::new(toolchain::cc());
    library.args(["-shared", "-fPIC", "-o"]).arg(&shared).arg(source("closes_elsewhere.c"));
    succeed(&mut library);
    let object = directory.join("close.o");
    let mut compile = Command::new(toolchain::cc());
    compile.args(["-std=c11", "-fPIC"]).args(toolchain::STRICT).args(toolchain::include_flags());
    compile.arg("-c").arg(source("../compat/source/close.c")).arg("-o").arg(&object);
    succeed(&mut compile);
    let places = [library_directory(Profile::Debug), directory.clone()];
    let program = directory.join("program");
    let mut link = Command::new(toolchain::cc());
    link.args(["-std=c11", "-D_DEFAULT_SOURCE"]).args(toolchain::include_flags());
    link.arg(source("closes_seen.c")).arg(&object).arg("-o").arg(&program).arg("-pthread");
    for place in &places {
        link.arg("-L")
            .arg(place)
            .arg(format!("-Wl,--disable-new-dtags,-rpath,{}", place.display()));
    }
    succeed(link.args(["-lcloses_elsewhere", "-lcompletion_port"]));
    tell(&succeed(&mut Command::new(&program)));
}

/// Distinguishing successive sockets with the same number does not need a recent kernel.
#[test]
#[ignore = "the leg c-ways"]
fn nameless_sockets_are_told_apart() {
    for source in ["winsock_calls.c", "registration.c", "closed_sockets.c", "socket_state.c"] {
        runs(&format!("nameless-{source}"), Build::of(&[source, "nameless_sockets.c"]));
    }
}

/// The programs with file operations, for each engine that performs blocking ones, as selected by
/// the environment.
fn files_by(engine: &str) {
    for source in
        ["files.c", "overlapped_files.c", "files_stress.c", "files_forked.c", "transmit.c"]
    {
        let name = source.strip_suffix(".c").unwrap();
        let program = Build::of(&[source]).kept(name).unwrap();
        tell(&succeed(Command::new(program).env("COMPLETION_PORT_FILES", engine)));
    }
}

#[test]
#[ignore = "the leg c-ways"]
fn files_by_threads() {
    files_by("threads");
}

/// Where there is a ring, the programs run with it as they are.
#[test]
#[ignore = "the leg c-ways"]
fn files_by_a_ring_alone() {
    let port: Result<Port<()>, _> = Port::builder().file_engine(FileEngine::Ring).build();
    match port {
        Ok(_) => files_by("ring"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            toolchain::skipped("operations on files by a ring", &error.to_string());
        }
    }
}

/// Optimised as a whole program.
#[test]
#[ignore = "the leg c-ways"]
fn socket_calls_are_mapped_by_lto() {
    runs("lto", Build::of(&["winsock_calls.c"]).flags(&["-O2", "-flto"]));
}

/// The checked mode can be asked for from outside.
#[test]
fn the_environment_turns_the_checked_mode_on() {
    let directory = scratch("checked");
    let source = directory.join("checked.c");
    let text = "#include <completion_port.h>\n\
                int main(void) { return cp_set_checked(0) + 2 * cp_set_checked(1); }\n";
    std::fs::write(&source, text).unwrap();
    let build = Build { sources: vec![source], ..Build::of(&[]) };
    let program = build.program(&directory).unwrap();
    let code = |value: Option<&str>| {
        let mut command = Command::new(&program);
        match value {
            Some(value) => command.env("COMPLETION_PORT_CHECKED", value),
            None => command.env_remove("COMPLETION_PORT_CHECKED"),
        };
        toolchain::run(&mut command).status.code()
    };
    assert_eq!(code(None), Some(0));
    assert_eq!(code(Some("0")), Some(0));
    assert_eq!(code(Some("1")), Some(1));
    assert_eq!(code(Some("yes")), Some(1));
}
