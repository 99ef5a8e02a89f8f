//! Requests and replies in the protocol of Redis (RESP 2).

/// More bytes are no request.
const LONGEST_REQUEST: usize = 1 << 20;
const LONGEST_LINE: usize = 4096;
const MOST_ARGUMENTS: usize = 1024;

/// What a client asks for.
pub(crate) struct Request {
    pub(crate) words: Vec<Vec<u8>>,
    /// The number of its bytes.
    pub(crate) length: usize,
}

/// Returns the first request. `None` if it is incomplete.
///
/// The words of a value are not looked at, so trying again when more has arrived costs little. An
/// incomplete request has at most as many bytes as a request may have.
pub(crate) fn parse(input: &[u8]) -> Result<Option<Request>, &'static str> {
    let Some((first, mut at)) = line(input, 0)? else { return Ok(None) };
    let Some(count) = first.strip_prefix(b"*") else {
        // What a person types.
        let words = first.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        return Ok(Some(Request { words: words.map(<[u8]>::to_vec).collect(), length: at }));
    };
    let count = number(count).filter(|count| *count <= MOST_ARGUMENTS);
    let mut arguments = Vec::new();
    for _ in 0..count.ok_or("invalid multibulk length")? {
        let Some((header, begin)) = line(input, at)? else { return Ok(None) };
        let length = header.strip_prefix(b"$").ok_or("expected '$'")?;
        let end = number(length).map(|length| begin.saturating_add(length));
        let end = end.filter(|end| *end < LONGEST_REQUEST).ok_or("invalid bulk length")?;
        at = end + 2;
        if input.len() < at {
            return Ok(None);
        }
        if input[end..at] != *b"\r\n" {
            return Err("expected the end of a value");
        }
        arguments.push(begin..end);
    }
    let words = arguments.into_iter().map(|range| input[range].to_vec()).collect();
    Ok(Some(Request { words, length: at }))
}

/// Returns the line that begins at `at`, and where the next one begins. `None` if it is incomplete.
fn line(input: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, &'static str> {
    let rest = &input[at..];
    match rest.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            Ok(Some((line, at + end + 1)))
        }
        None if rest.len() < LONGEST_LINE => Ok(None),
        None => Err("too big inline request"),
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

pub(crate) fn simple(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("+{text}\r\n").as_bytes());
}

pub(crate) fn error(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("-{text}\r\n").as_bytes());
}

pub(crate) fn integer(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(format!(":{number}\r\n").as_bytes());
}

pub(crate) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn nil(out: &mut Vec<u8>) {
    out.extend_from_slice(b"$-1\r\n");
}

/// The beginning of an array, whose elements follow.
pub(crate) fn array(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(format!("*{count}\r\n").as_bytes());
}

pub(crate) fn nil_array(out: &mut Vec<u8>) {
    out.extend_from_slice(b"*-1\r\n");
}
