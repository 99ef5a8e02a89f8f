//! The command at consoles of Windows that are of different widths.

use crate::common::windows::at_a_console;
use crate::common::{cport, run};

// Windows has no room for a console that is much wider, if its display is small.
const NARROW: i16 = 50;
const WIDE: i16 = 90;

/// Checks a text on the screen: each line has as many words as fit. Continuation lines are indented
/// further.
#[track_caller]
fn assert_fitted(screen: &[String], text: &str, width: i16) {
    let width = usize::try_from(width).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let begin = screen.iter().position(|line| line.split_whitespace().next() == Some(words[0]));
    let mut rest = &words[..];
    let mut room = 0;
    for line in &screen[begin.unwrap_or_else(|| panic!("{screen:#?} has not: {text}"))..] {
        let has: Vec<&str> = line.split_whitespace().collect();
        assert!(rest.starts_with(&has) && !has.is_empty(), "{screen:#?}: {line:?} of {rest:?}");
        let is_first = rest.len() == words.len();
        assert_eq!(line.starts_with("  "), !is_first, "{screen:#?}: {line:?}");
        assert!(is_first || has[0].len() >= room, "{screen:#?}: {line:?} leaves room before it");
        room = width.checked_sub(line.len()).unwrap();
        rest = &rest[has.len()..];
        if rest.is_empty() {
            return;
        }
    }
    panic!("{screen:#?} has not all: {text}");
}

#[test]
fn an_error_fits_the_console() {
    let arguments = ["echo", "--listen", "192.0.2.1:7000"];
    let plain = run(cport(&arguments)).stderr;
    for width in [NARROW, WIDE] {
        let (code, screen) = at_a_console(&arguments, width);
        assert_eq!(code, 2);
        assert_fitted(&screen, &plain, width);
        assert!(screen.len() > 1, "{screen:#?}");
    }
}

#[test]
fn the_demo_fits_the_console() {
    let plain = run(cport(&["demo", "--quick"])).stdout;
    let (code, screen) = at_a_console(&["demo", "--quick"], NARROW);
    assert_eq!(code, 0, "{screen:#?}");
    assert_fitted(&screen, plain.lines().next().unwrap(), NARROW);
    assert!(screen.iter().any(|line| line.contains("All checks passed")), "{screen:#?}");
}

#[test]
fn help_fits_the_console() {
    for width in [NARROW, WIDE] {
        let (code, screen) = at_a_console(&["demo", "--help"], width);
        assert_eq!(code, 0, "{screen:#?}");
        let about = "One after the other, on loopback:";
        assert!(screen.iter().any(|line| line.starts_with(about)), "{screen:#?}");
        let longest = screen.iter().map(String::len).max().unwrap();
        assert!((longest..longest + 12).contains(&usize::try_from(width).unwrap()), "{screen:#?}");
    }
}
