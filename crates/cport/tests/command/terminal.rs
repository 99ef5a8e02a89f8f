//! The command in terminals of different widths, without a terminal, and without colours.

use std::process::Command;

use crate::common::linux::Terminal;
use crate::common::{cport, run};
use rustix::process::Signal;

const TINY: u16 = 30;
const NARROW: u16 = 50;
const WIDE: u16 = 200;

/// What sets colours and weights ends with this letter.
fn has_colours(text: &str) -> bool {
    let sequences = text.split("\x1b[").skip(1);
    sequences.filter_map(|part| part.chars().find(char::is_ascii_alphabetic)).any(|end| end == 'm')
}

#[test]
fn the_demo_fits_the_terminal() {
    for columns in [TINY, NARROW, WIDE] {
        let (status, text) = Terminal::start(cport(&["demo", "--quick"]), columns).ended();
        assert!(status.success(), "{text}");
        assert!(text.contains("All checks passed"), "{text}");
        // The bar was drawn, and is gone.
        assert!(text.contains("\r\x1b[K"), "{text}");
        // Tables are next to each other if there is room.
        let summary = text.split("Summary").nth(1).unwrap();
        assert_eq!(
            summary.matches("threads at work, peak").count(),
            if columns == WIDE { 1 } else { 4 }
        );
    }
}

#[test]
fn a_terminal_that_cannot_go_back_gets_plain_lines() {
    let mut shell = Command::new("sh");
    // The terminal sets its own TERM.
    shell.args(["-c", "TERM=dumb exec \"$0\" demo --quick", env!("CARGO_BIN_EXE_cport")]);
    let (status, text) = Terminal::start(shell, WIDE).ended();
    assert!(status.success(), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn the_server_fits_the_terminal() {
    for (columns, protocol) in [(TINY, None), (NARROW, None), (WIDE, None), (NARROW, Some("--udp"))]
    {
        let mut arguments = vec!["echo", "--listen", "0", "--threads", "8", "--stats", "100ms"];
        arguments.extend(protocol);
        let server = Terminal::start(cport(&arguments), columns);
        server.wait_for("wakes 0/s");
        server.signal(Signal::USR1);
        let lines = server.text().matches("parked").count();
        server.wait_until("two more lines", |text| text.matches("parked").count() >= lines + 2);
        server.signal(Signal::TERM);
        let (status, text) = server.ended();
        assert!(status.success(), "{text}");
        assert!(text.contains("packets by thread"), "{text}");
        assert!(!has_colours(&text), "{text}");
        if columns == WIDE {
            // The first lines may report threads that start waiting.
            let is_whole =
                |line: &str| line.contains("connections  0 new/s") && line.contains("wakes 0/s");
            assert!(text.lines().any(is_whole), "one line: {text}");
        }
    }
}

#[test]
fn the_probe_fits_the_terminal() {
    for columns in [TINY, NARROW, WIDE] {
        let (status, text) = Terminal::start(cport(&["probe"]), columns).ended();
        assert!(status.success(), "{text}");
        assert_eq!(text.contains("what is tried"), columns > TINY, "{text}");
        assert!(text.contains("0 different"), "{text}");
    }
}

#[test]
fn help_fits_the_terminal() {
    let all: [&[&str]; 6] = [
        &["--help"],
        &["demo", "--help"],
        &["echo", "--help"],
        &["bench", "--help"],
        &["probe", "--help"],
        &["completions", "--help"],
    ];
    for arguments in all {
        for columns in [NARROW, WIDE] {
            let mut command = cport(arguments);
            command.current_dir("/");
            let (status, text) = Terminal::start(command, columns).ended();
            assert!(status.success() && text.contains("Usage"), "{text}");
        }
    }
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let (_, text) = Terminal::start(cport(&["--help"]), WIDE).ended();
    assert!(has_colours(&text), "{text}");
    for arguments in [&["--help"][..], &["echo", "--nonsense"]] {
        let mut command = cport(arguments);
        command.env("NO_COLOR", "1");
        let (_, text) = Terminal::start(command, WIDE).ended();
        assert!(!text.is_empty() && !has_colours(&text), "{text}");
        let ended = run(cport(arguments));
        assert!(!(ended.stdout + &ended.stderr).contains('\x1b'));
    }
}

#[test]
fn an_error_fits_the_terminal() {
    let arguments = ["echo", "--listen", "192.0.2.1:7000"];
    let (status, text) = Terminal::start(cport(&arguments), NARROW).ended();
    assert_eq!(status.code(), Some(2));
    assert!(text.starts_with("cport: cannot listen on") && text.lines().count() > 1, "{text}");
}
