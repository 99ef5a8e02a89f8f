//! Lines that fit a terminal.

use std::io::{self, IsTerminal};

use terminal_size::{Height, Width, terminal_size_of};

use crate::system::obeys_sequences;

/// The width of standard output; `None` if it is not a terminal, or has no known width.
pub(crate) fn output_width() -> Option<usize> {
    columns(terminal_size_of(io::stdout()))
}

/// The same for standard error.
pub(crate) fn error_width() -> Option<usize> {
    columns(terminal_size_of(io::stderr()))
}

fn columns(size: Option<(Width, Height)>) -> Option<usize> {
    size.map(|(Width(columns), _)| usize::from(columns)).filter(|columns| *columns > 0)
}

/// Whether standard output is a terminal that can redraw a line.
pub(crate) fn can_redraw() -> bool {
    let is_dumb = || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !is_dumb() && obeys_sequences()
}

/// Wraps lines that are too long. Continuation lines are indented further.
pub(crate) fn fitted(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut all = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        if line.chars().count() <= width {
            all.push_str(line);
        } else {
            fit(&mut all, line, width);
        }
        all.push_str(end);
    }
    all
}

fn fit(all: &mut String, line: &str, width: usize) {
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    // No indentation if it would take half of the width.
    let [indent, next] = [indent, indent + 2].map(|it| if it < width / 2 { it } else { 0 });
    all.push_str(&" ".repeat(indent));
    let parts = lines(text, width - indent, width - next);
    all.push_str(&parts.join(&format!("\n{}", " ".repeat(next))));
}

/// The words of a text on lines of at most `first` and then `next` characters. A longer word has
/// its own line. Spaces at line breaks are dropped.
pub(crate) fn lines(text: &str, first: usize, next: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let (mut line, mut length) = (String::new(), None);
    for word in text.split(' ') {
        let room = if lines.is_empty() { first } else { next };
        let letters = word.chars().count();
        length = Some(match length {
            Some(length) if length + 1 + letters <= room => {
                line.push(' ');
                length + 1 + letters
            }
            Some(_) => {
                let full = std::mem::take(&mut line);
                lines.push(full.trim_end_matches(' ').to_owned());
                letters
            }
            None => letters,
        });
        line.push_str(word);
        // Only the first line keeps leading spaces.
        if line.is_empty() && !lines.is_empty() {
            length = None;
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Fields separated by two spaces, on as many lines as needed; none is broken.
pub(crate) fn fields(fields: &[String], width: Option<usize>) -> String {
    let mut text = String::new();
    let mut column = 0;
    for field in fields {
        let length = field.chars().count();
        if column > 0 {
            if width.is_some_and(|width| column + 2 + length > width) {
                text.push_str("\n  ");
                column = 2;
            } else {
                text.push_str("  ");
                column += 2;
            }
        }
        text.push_str(field);
        column += length;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::{fields, fitted};

    #[test]
    fn a_line_that_is_too_long_is_broken_at_spaces_and_carried_over_to_the_right() {
        let text = "short\n   one two three four\nlast";
        assert_eq!(fitted(text, None), text);
        assert_eq!(fitted(text, Some(22)), "short\n   one two three four\nlast");
        assert_eq!(fitted(text, Some(14)), "short\n   one two\n     three\n     four\nlast");
        assert_eq!(fitted("a-word-that-is-longer is", Some(8)), "a-word-that-is-longer\n  is");
        assert_eq!(fitted("      far right", Some(12)), "far right");
        assert_eq!(fitted("name          value", Some(12)), "name\n  value");
        assert_eq!(fitted("", Some(8)), "");
    }

    #[test]
    fn fields_are_not_broken() {
        let all = ["1.0 s", "5 open", "20 requests/s"].map(str::to_owned);
        assert_eq!(fields(&all, None), "1.0 s  5 open  20 requests/s\n");
        assert_eq!(fields(&all, Some(20)), "1.0 s  5 open\n  20 requests/s\n");
        assert_eq!(fields(&all, Some(3)), "1.0 s\n  5 open\n  20 requests/s\n");
    }
}
