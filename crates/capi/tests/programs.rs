//! The C and C++ programs beside this file: each is built and run as it is, with the static library, under
//! AddressSanitizer and in Valgrind. What they claim stands in them.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

mod toolchain;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use completion_port::{ErrorKind, FileEngine, Port};
use toolchain::{
    Build, Linkage, Profile, finds_leaks, library_directory, package, scratch, succeed,
};

/// What a program said that it left out is said here too, where it is seen.
fn tell(said: &str) {
    print!("{said}");
}

fn runs(test: &str, build: Build) {
    let directory = scratch(test);
    if let Some(program) = build.program(&directory) {
        tell(&succeed(&mut Command::new(program)));
    }
}

/// Nothing is used after it was freed, nothing overflows, nothing is left when the program ends.
fn is_clean_under_address_sanitizer(test: &str, build: Build) {
    let leaks = u8::from(finds_leaks());
    let directory = scratch(test);
    let build = build.flags(&[
        "-O1",
        "-fno-omit-frame-pointer",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    ]);
    if let Some(program) = build.program(&directory) {
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

            /// As it is: built once, for two of the tests.
            fn program() -> Option<&'static Path> {
                static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
                let build = || Build::of(SOURCES).program(&scratch(stringify!($name)));
                PROGRAM.get_or_init(build).as_deref()
            }

            #[test]
            fn runs() {
                if let Some(program) = program() {
                    tell(&succeed(&mut Command::new(program)));
                }
            }

            #[test]
            fn runs_with_the_static_library() {
                let build = Build::of(SOURCES).linked(Linkage::Static);
                super::runs(concat!(stringify!($name), "-static"), build);
            }

            #[test]
            fn is_clean_under_address_sanitizer() {
                let test = concat!(stringify!($name), "-asan");
                super::is_clean_under_address_sanitizer(test, Build::of(SOURCES));
            }

            #[test]
            fn is_clean_in_valgrind() {
                if let Some(program) = program() {
                    tell(&toolchain::is_clean_in_valgrind(program));
                }
            }

            $(#[test]
            fn $as_cxx() {
                super::runs(concat!(stringify!($name), "-c++"), Build::of(SOURCES).in_cxx());
            })?
        }
    )+};
}

programs! {
    layouts: "layouts.c" => runs_as_cxx;
    own_names: "own_names.c" => runs_as_cxx;
    internals: "internals.c" => runs_as_cxx;
    forked: "forked.c" => runs_as_cxx;
    port_handles: "port_handles.c" => runs_as_cxx;
    process_call: "process_call.c" => runs_as_cxx;
    signals: "signals.c" => runs_as_cxx;
    registration: "registration.c" => runs_as_cxx;
    refusing_kernel: "refusing_kernel.c" => runs_as_cxx;
    delivery: "delivery.c" => runs_as_cxx;
    closed_sockets: "closed_sockets.c" => runs_as_cxx;
    same_number: "same_number.c" => runs_as_cxx;
    closes_seen: "closes_seen.c", "closes_elsewhere.c", "../compat/source/close.c";
    queue: "queue.c" => runs_as_cxx;
    any_thread: "any_thread.c" => runs_as_cxx;
    spared_calls: "spared_calls.c" => runs_as_cxx;
    hints: "hints.c" => runs_as_cxx;
    winsock_calls: "winsock_calls.c" => runs_as_cxx;
    lookup: "lookup.c" => runs_as_cxx;
    two_units: "two_units_one.c", "two_units_two.c" => runs_as_cxx;
    members: "members.cpp";
    members_in_c: "members_in_c.c" => runs_as_cxx;
    opted_out: "opted_out.c" => runs_as_cxx;
    win32: "win32.c" => runs_as_cxx;
    threads: "threads.c" => runs_as_cxx;
    timers: "timers.c" => runs_as_cxx;
    text: "text.c" => runs_as_cxx;
    machine: "machine.c" => runs_as_cxx;
    microsoft_c: "microsoft_c.c" => runs_as_cxx;
    socket_buffers: "socket_buffers.c" => runs_as_cxx;
    socket_state: "socket_state.c" => runs_as_cxx;
    annotations: "annotations.c" => runs_as_cxx;
    overlapped_transfers: "overlapped_transfers.c" => runs_as_cxx;
    overlapped_results: "overlapped_results.c" => runs_as_cxx;
    overlapped_callbacks: "overlapped_callbacks.c" => runs_as_cxx;
    overlapped_and_readiness: "overlapped_and_readiness.c" => runs_as_cxx;
    overlapped_stress: "overlapped_stress.c" => runs_as_cxx;
    overlapped_forked: "overlapped_forked.c" => runs_as_cxx;
    overlapped_connections: "overlapped_connections.c" => runs_as_cxx;
    overlapped_refusals: "overlapped_refusals.c" => runs_as_cxx;
    files: "files.c" => runs_as_cxx;
    overlapped_files: "overlapped_files.c" => runs_as_cxx;
    files_forked: "files_forked.c" => runs_as_cxx;
    files_stress: "files_stress.c" => runs_as_cxx;
    transmit: "transmit.c" => runs_as_cxx;
    transmit_disk: "transmit_disk.c" => runs_as_cxx;
    shape_event_loop: "shape_event_loop.c" => runs_as_cxx;
    shape_udp_engine: "shape_udp_engine.c" => runs_as_cxx;
    shape_game_server: "shape_game_server.c" => runs_as_cxx;
    shape_actor_runtime: "shape_actor_runtime.c" => runs_as_cxx;
    shape_oneshot_server: "shape_oneshot_server.cpp";
    shape_proactor: "shape_proactor.cpp";
    shape_neutral_queue: "shape_neutral_queue.c";
    shape_file_copier: "shape_file_copier.c" => runs_as_cxx;
}

/// What the library keeps for as long as the process lives can be told from what is lost; also in the library
/// as it is installed, of which the optimiser has taken away what is never read.
#[test]
fn the_library_as_it_is_installed_leaks_nothing() {
    for (test, source) in
        [("installed-queue", "queue.c"), ("installed-sockets", "closed_sockets.c")]
    {
        is_clean_under_address_sanitizer(test, Build::of(&[source]).with(Profile::Release));
    }
}

/// The C library's headers redefine some calls where a unit is optimised and fortified; the mapping to this
/// library must hold there too, also if there are two such units.
#[test]
fn socket_calls_are_mapped_where_the_c_library_checks_them() {
    for level in ["-D_FORTIFY_SOURCE=1", "-D_FORTIFY_SOURCE=2", "-D_FORTIFY_SOURCE=3"] {
        for sources in [&["winsock_calls.c"][..], &["two_units_one.c", "two_units_two.c"]] {
            for build in [Build::of(sources), Build::of(sources).in_cxx()] {
                runs("fortified", build.flags(&["-O2", "-U_FORTIFY_SOURCE", level]));
            }
        }
    }
}

/// One unit in C, one in C++, each with all headers.
#[test]
fn units_of_both_languages_make_one_program() {
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

/// What is told of one socket and not of the next one of its number does not need a recent kernel.
#[test]
fn sockets_are_told_apart_where_the_system_has_no_name_for_them() {
    for source in ["winsock_calls.c", "registration.c", "closed_sockets.c"] {
        runs("nameless", Build::of(&[source, "nameless_sockets.c"]));
    }
}

/// The programs of operations on files, whatever does those that have to wait: what the environment asks for.
fn files_are_read_and_written_by(engine: &str) {
    let directory = scratch(&format!("files-by-{engine}"));
    for source in
        ["files.c", "overlapped_files.c", "files_stress.c", "files_forked.c", "transmit.c"]
    {
        let program = Build::of(&[source]).program(&directory).unwrap();
        tell(&succeed(Command::new(program).env("COMPLETION_PORT_FILES", engine)));
    }
}

#[test]
fn files_are_read_and_written_by_threads_too() {
    files_are_read_and_written_by("threads");
}

#[test]
fn files_are_read_and_written_by_a_ring_too() {
    let port: Result<Port<()>, _> = Port::builder().file_engine(FileEngine::Ring).build();
    match port {
        Ok(_) => files_are_read_and_written_by("ring"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            toolchain::skipped("operations on files by a ring", &error.to_string());
        }
    }
}

/// Optimised as a whole program.
#[test]
fn socket_calls_are_mapped_where_all_is_optimised_together() {
    runs("whole", Build::of(&["winsock_calls.c"]).flags(&["-O2", "-flto"]));
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
