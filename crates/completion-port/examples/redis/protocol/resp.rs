//! Requests and replies in the protocol of Redis (RESP 2).

use std::borrow::Cow;
use std::ops::Range;

/// A longer request is refused.
const LONGEST_REQUEST: usize = 1 << 20;
const LONGEST_LINE: usize = 4096;
const MOST_ARGUMENTS: i64 = 1024;

/// Finds the words of the first request, and returns its length. `None` if it is incomplete.
///
/// The words of a value are not looked at, so trying again when more has arrived costs little. An
/// incomplete request has at most as many bytes as a request may have.
pub(crate) fn parse(
    input: &[u8],
    words: &mut Vec<Range<usize>>,
) -> Result<Option<usize>, Cow<'static, str>> {
    words.clear();
    let Some((first, mut at)) = line(input, 0)? else { return Ok(None) };
    let Some(count) = input[first.clone()].strip_prefix(b"*") else {
        inline(input, first, words);
        return Ok(Some(at));
    };
    // Redis takes a negative number of words for none.
    let count = integer_of(count).filter(|count| *count <= MOST_ARGUMENTS);
    for _ in 0..count.ok_or("invalid multibulk length")? {
        let Some((header, begin)) = line(input, at)? else { return Ok(None) };
        let length = match &input[header] {
            [b'$', length @ ..] => integer_of(length).and_then(|it| usize::try_from(it).ok()),
            [] => return Err("expected '$', got ' '".into()),
            [other, ..] => {
                return Err(format!("expected '$', got '{}'", char::from(*other)).into());
            }
        };
        let end = length.map(|length| begin.saturating_add(length));
        let end = end.filter(|end| *end < LONGEST_REQUEST).ok_or("invalid bulk length")?;
        at = end + 2;
        if input.len() < at {
            return Ok(None);
        }
        if input[end..at] != *b"\r\n" {
            return Err("expected the end of a value".into());
        }
        words.push(begin..end);
    }
    Ok(Some(at))
}

/// What a person types.
fn inline(input: &[u8], line: Range<usize>, words: &mut Vec<Range<usize>>) {
    let mut begin = None;
    for at in line.clone().chain([line.end]) {
        let is_word = at < line.end && !input[at].is_ascii_whitespace();
        match begin {
            None if is_word => begin = Some(at),
            Some(first) if !is_word => {
                words.push(first..at);
                begin = None;
            }
            _ => {}
        }
    }
}

/// Returns the line that begins at `at`, and where the next one begins. `None` if it is incomplete.
fn line(input: &[u8], at: usize) -> Result<Option<(Range<usize>, usize)>, &'static str> {
    let rest = &input[at..];
    match rest.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            Ok(Some((at..at + line.len(), at + end + 1)))
        }
        None if rest.len() < LONGEST_LINE => Ok(None),
        None => Err("too big inline request"),
    }
}

/// Reads an integer as Redis does: in decimal, with at most a minus, and in one way only.
pub(crate) fn integer_of(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        b"0" if digits.len() == text.len() => Some(0),
        [b'1'..=b'9', ..] if digits.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(text).ok()?.parse().ok()
        }
        _ => None,
    }
}

/// Appends an integer in decimal.
pub(crate) fn decimal(out: &mut Vec<u8>, number: i64) {
    // The longest number has nineteen digits.
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b"0123456789"[(rest % 10) as usize];
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

fn header(out: &mut Vec<u8>, kind: u8, number: i64) {
    out.push(kind);
    decimal(out, number);
    out.extend_from_slice(b"\r\n");
}

/// A number of things in memory, which is far below the greatest.
fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn simple(out: &mut Vec<u8>, text: &str) {
    out.push(b'+');
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// An error is one line, so ends of lines in it become blanks, as with Redis.
pub(crate) fn error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    out.extend(text.bytes().map(|byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn integer(out: &mut Vec<u8>, number: i64) {
    header(out, b':', number);
}

pub(crate) fn length(out: &mut Vec<u8>, number: usize) {
    integer(out, count(number));
}

pub(crate) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', count(bytes.len()));
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn nil(out: &mut Vec<u8>) {
    out.extend_from_slice(b"$-1\r\n");
}

/// The beginning of an array, whose elements follow.
pub(crate) fn array(out: &mut Vec<u8>, elements: usize) {
    header(out, b'*', count(elements));
}

pub(crate) fn nil_array(out: &mut Vec<u8>) {
    out.extend_from_slice(b"*-1\r\n");
}
