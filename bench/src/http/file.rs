//! A file as the body of an answer. Its length and each of its bytes are checked.

use crate::work::word;

/// A head has less.
const LONGEST_HEAD: usize = 1024;

/// The contents of a file of that length. A longer one begins with the same bytes.
pub(crate) fn contents(length: usize) -> Vec<u8> {
    let words = (0..).step_by(size_of::<u64>()).map(word);
    words.flat_map(u64::to_le_bytes).take(length).collect()
}

/// An answer, of which a part may have come.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    head: Vec<u8>,
    /// How much of the body has come, once the head is complete.
    body: Option<usize>,
}

impl Incoming {
    /// Takes the next bytes. Returns whether the answer is complete; then the next one may begin.
    /// The error says that it is none, or that its body is not the file.
    pub(super) fn take(&mut self, bytes: &[u8], file: &[u8]) -> Result<bool, String> {
        let (begin, piece) = match self.body {
            Some(begin) => (begin, bytes),
            None => match self.take_head(bytes, file.len())? {
                Some(piece) => (0, piece),
                None => return Ok(false),
            },
        };
        if !file[begin..].starts_with(piece) {
            let (end, length) = (begin + piece.len(), file.len());
            return Err(format!("bytes {begin} to {end} are not those of the file of {length}"));
        }
        let end = begin + piece.len();
        let is_complete = end == file.len();
        if is_complete {
            self.head.clear();
        }
        self.body = (!is_complete).then_some(end);
        Ok(is_complete)
    }

    /// The bytes that follow the head, if it is complete.
    fn take_head<'b>(
        &mut self,
        bytes: &'b [u8],
        length: usize,
    ) -> Result<Option<&'b [u8]>, String> {
        let before = self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(LONGEST_HEAD - before)]);
        let odd = |head: &[u8]| format!("an odd answer: {}", String::from_utf8_lossy(head));
        let Some(end) = self.head.windows(4).position(|window| window == b"\r\n\r\n") else {
            let is_longer = self.head.len() == LONGEST_HEAD;
            return if is_longer { Err(odd(&self.head)) } else { Ok(None) };
        };
        let head = &self.head[..end];
        let text = String::from_utf8_lossy(head).to_lowercase();
        let has_length = text.split("\r\n").any(|line| line == format!("content-length: {length}"));
        if !text.starts_with("http/1.1 200 ") || !has_length {
            return Err(odd(head));
        }
        Ok(Some(&bytes[end + 4 - before..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\nserver: test\r\n\r\n";

    fn answer() -> Vec<u8> {
        [HEAD.as_bytes(), &contents(20)].concat()
    }

    #[test]
    fn a_file_begins_like_a_longer_one_and_repeats_nothing() {
        let long = contents(1 << 16);
        assert_eq!(contents(1001), long[..1001]);
        let mut words = long.as_chunks::<8>().0.to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), long.len() / 8);
    }

    #[test]
    fn an_answer_may_come_in_any_pieces_and_another_one_after_it() {
        let mut incoming = Incoming::default();
        for piece in [1, 7, HEAD.len(), HEAD.len() + 3, answer().len()] {
            let answer = answer();
            let pieces: Vec<&[u8]> = answer.chunks(piece).collect();
            for (index, bytes) in pieces.iter().enumerate() {
                let is_last = index + 1 == pieces.len();
                assert_eq!(incoming.take(bytes, &contents(20)), Ok(is_last), "{piece}");
            }
        }
    }

    #[test]
    fn another_answer_is_found() {
        let take = |bytes: &[u8], length| Incoming::default().take(bytes, &contents(length));
        let mut other = answer();
        other[HEAD.len() + 19] ^= 1;
        let words = "bytes 0 to 20 are not those of the file of 20";
        assert_eq!(take(&other, 20).unwrap_err(), words);
        other[HEAD.len() + 19] ^= 1;
        other.push(0);
        assert!(take(&other, 20).is_err());
        assert!(take(&answer(), 21).unwrap_err().starts_with("an odd answer: HTTP/1.1 200"));
        let missing = String::from_utf8_lossy(&answer()).replace("200 OK", "404 Not Found");
        assert!(take(missing.as_bytes(), 20).unwrap_err().contains("404"));
        assert!(take(&[b'x'; LONGEST_HEAD], 20).unwrap_err().starts_with("an odd answer: xxx"));
    }
}
