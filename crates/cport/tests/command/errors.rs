//! Each error message names the problem, its subject and a remedy.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Ended, cport, echo, program, run};

/// What shows which addresses a machine has, and which program has one.
const SHOWN_BY: [&str; 2] = if cfg!(windows) {
    [
        "`ipconfig` shows which addresses this machine has",
        "`netstat -ano` shows which process has it",
    ]
} else {
    [
        "`ip address` shows which addresses this machine has",
        "`ss -lnptu` shows which program has it",
    ]
};

/// The system's error for a file that is not a program.
const NO_PROGRAM: &str = if cfg!(windows) { "(os error 193)" } else { "Permission denied" };

/// Checks the single line of output: problem, subject and remedy, in this order.
fn assert_says(ended: &Ended, code: i32, [wrong, what, remedy]: [&str; 3]) {
    assert_eq!(ended.status.code(), Some(code), "{ended:?}");
    let said = &ended.stderr;
    assert_eq!(said.lines().count(), 1, "{ended:?}");
    assert!(said.starts_with(&format!("cport: {wrong}")), "{wrong:?} does not begin {said:?}");
    let end = said.rfind(remedy);
    let found = said.find(what).zip(end).is_some_and(|(what, remedy)| what < remedy);
    assert!(found, "{what:?} before {remedy:?} is not in {said:?}");
}

#[test]
fn an_address_that_cannot_be_had() {
    for (given, what, remedy) in [
        (
            "nonsense",
            "\"nonsense\" (tcp): invalid socket address",
            "expected an address such as 127",
        ),
        ("70000", "\"70000\" (tcp): no port from 0 to 65535", "expected an address such as"),
        ("", "\"\" (tcp)", "expected an address such as"),
        ("192.0.2.1:0", "192.0.2.1:0", SHOWN_BY[0]),
        ("no-such-name.invalid:7000", "no-such-name.invalid:7000", "is the name right?"),
    ] {
        let ended = run(cport(&["echo", "--listen", given]));
        assert_says(&ended, 2, ["cannot listen on", what, remedy]);
    }
    let (_server, address) = echo(&[]);
    let address = address.to_string();
    let ended = run(cport(&["echo", "--listen", &address]));
    assert_says(&ended, 2, ["cannot listen on", &address, SHOWN_BY[1]]);
}

/// Elsewhere nothing limits the descriptors of one process.
#[cfg(target_os = "linux")]
#[test]
fn descriptors_that_run_out() {
    use crate::common::linux::cport_limited;

    for limit in [4, 6] {
        let ended = run(cport_limited(limit, &["echo", "--listen", "0"]));
        let what = format!("the limit is {limit} descriptors");
        assert_says(&ended, 2, ["cannot set up the server", &what, "`ulimit -n` raises it"]);
    }
    let ended = run(cport_limited(100, &["demo"]));
    assert_says(&ended, 2, ["the demo needs", "the limit is 100", "raise it with `ulimit -n "]);
}

/// Other systems have no file that is always full.
#[cfg(target_os = "linux")]
#[test]
fn output_that_has_no_room() {
    use std::fs::File;
    use std::process::Stdio;

    for arguments in [&["echo", "--listen", "0"][..], &["completions", "bash"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = cport(arguments).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let ended = Ended { status: output.status, stdout: String::new(), stderr };
        let words = ["cannot write to standard output", "No space left", "redirect it"];
        assert_says(&ended, 1, words);
    }
}

#[test]
fn a_benchmark_that_is_not_there() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("errors");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    fs::hard_link(env!("CARGO_BIN_EXE_cport"), program(&directory, "cport")).unwrap();
    let bench = || {
        let mut command = Command::new(program(&directory, "cport"));
        command.args(["bench", "--quick"]).current_dir("/");
        command
    };
    assert_says(
        &run(bench()),
        2,
        ["there is no `cport-bench`", "in no source tree", "`git clone https"],
    );
    fs::write(program(&directory, "cport-bench"), "no program").unwrap();
    assert_says(&run(bench()), 2, ["cannot run ", NO_PROGRAM, "builds a new one"]);
}

#[test]
fn arguments_that_make_no_sense() {
    for (arguments, what, remedy) in [
        (&["echo"][..], "--listen <ADDR>", "try '--help'"),
        (&["echo", "--listen", "0", "--threads", "0"], "'0' for '--threads <N>'", "1..=4096"),
        (
            &["echo", "--listen", "0", "--stats", "0"],
            "'0' for '--stats <TIME>'",
            "expected a time from 100ms to 60m, such as 1s",
        ),
        (
            &["echo", "--listen", "0", "--drain", "2h"],
            "'2h' for '--drain <TIME>'",
            "expected a time from 0 to 60m, such as 5s",
        ),
        (&["serve"], "'serve'", "try '--help'"),
        (&["completions", "csh"], "'csh'", "[possible values: bash"),
        (&["demo", "--jsno"], "'--jsno'", "'--json'"),
    ] {
        let ended = run(cport(arguments));
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert!(ended.stderr.starts_with("error: ") && ended.stdout.is_empty(), "{ended:?}");
        for words in [what, remedy] {
            assert!(ended.stderr.contains(words), "{words} in {ended:?}");
        }
    }
}
