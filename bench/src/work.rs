//! A request's work for its handler: the format of a message, and the work it describes.
//!
//! The sender of a message gives the amount of work in turns of a loop, not in microseconds, so
//! that all servers of a run do the same work for it; the load generator measures once how many
//! turns a microsecond has.

use std::hint::black_box;
use std::net::ToSocketAddrs as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::system;

/// The length of every message, in bytes.
pub(crate) const MESSAGE: usize = 64;

/// The length of the buffer into which a handler reads.
pub(crate) const BUFFER: usize = 4096;

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// The same bytes back, nothing else.
    Echo,
    /// That many turns of a loop.
    Turns(u32),
    /// A sleep of that many microseconds.
    Sleep(u32),
    /// That many turns of a loop under the process's lock.
    Locked(u32),
    /// A loop for that many microseconds.
    Spin(u32),
    /// A sleep of that many microseconds with the process's lock.
    Held(u32),
    /// A read of a file that is not in memory.
    File,
    /// A lookup of a host name.
    Name,
}

/// The lock for which [`Work::Locked`] competes.
static LOCK: Mutex<u64> = Mutex::new(0);

/// A message: the kind of work, its amount, a number to tell messages apart, and a filling that
/// depends on the number.
pub(crate) fn message(work: Work, number: u64) -> [u8; MESSAGE] {
    let (kind, amount) = work.parts();
    let mut message = [0; MESSAGE];
    for (index, byte) in message.iter_mut().enumerate().skip(16) {
        *byte = number.to_le_bytes()[index % 8] ^ 0x5a;
    }
    message[0] = kind;
    message[4..8].copy_from_slice(&u32::to_le_bytes(amount));
    message[8..16].copy_from_slice(&number.to_le_bytes());
    message
}

/// Parses a message; `None` if it is not from this benchmark.
pub(crate) fn parse(message: &[u8; MESSAGE]) -> Option<Work> {
    let amount = u32::from_le_bytes([message[4], message[5], message[6], message[7]]);
    Work::from_parts(message[0], amount)
}

/// Does the work of a message.
pub(crate) fn perform(message: &[u8; MESSAGE]) {
    if let Some(work) = parse(message) {
        work.perform();
    }
}

impl Work {
    /// Its number, and its amount.
    pub(crate) fn parts(self) -> (u8, u32) {
        match self {
            Work::Echo => (0, 0),
            Work::Turns(amount) => (1, amount),
            Work::Sleep(amount) => (2, amount),
            Work::Locked(amount) => (3, amount),
            Work::Spin(amount) => (4, amount),
            Work::Held(amount) => (5, amount),
            Work::File => (6, 0),
            Work::Name => (7, 0),
        }
    }

    pub(crate) fn from_parts(kind: u8, amount: u32) -> Option<Work> {
        Some(match kind {
            0 => Work::Echo,
            1 => Work::Turns(amount),
            2 => Work::Sleep(amount),
            3 => Work::Locked(amount),
            4 => Work::Spin(amount),
            5 => Work::Held(amount),
            6 => Work::File,
            7 => Work::Name,
            _ => return None,
        })
    }

    pub(crate) fn perform(self) {
        match self {
            Work::Echo => {}
            Work::Turns(turns) => {
                turn(turns, u64::from(turns));
            }
            Work::Sleep(microseconds) => sleep(Duration::from_micros(microseconds.into())),
            Work::Locked(turns) => {
                let mut shared = LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                *shared = turn(turns, *shared);
            }
            Work::Spin(microseconds) => {
                let end = Instant::now() + Duration::from_micros(microseconds.into());
                while Instant::now() < end {
                    turn(100, 1);
                }
            }
            Work::Held(microseconds) => {
                let _held = LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                sleep(Duration::from_micros(microseconds.into()));
            }
            // A panic ends the connection, which the client reports.
            Work::File => system::read_uncached().expect("the file can be read"),
            Work::Name => {
                let found = ("localhost", 80).to_socket_addrs();
                assert!(
                    found.is_ok_and(|mut all| all.next().is_some()),
                    "localhost has an address"
                );
            }
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the measurement needs a blocking handler")]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// The word of a file at an offset, different for each.
pub(crate) fn word(offset: u64) -> u64 {
    (offset ^ 0x5a5a_0f0f_3c3c_9696).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The work of a sink's handler: that many turns of the same loop.
pub(crate) fn compute(turns: u32) {
    turn(turns, u64::from(turns));
}

/// That many turns of a loop in which each turn needs the previous result.
fn turn(turns: u32, start: u64) -> u64 {
    let mut state = black_box(start);
    for _ in 0..turns {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(state)
}

/// How many turns of the loop a microsecond has on this machine: the fastest of many tries.
pub(crate) fn turns_per_microsecond() -> u32 {
    const TURNS: u32 = 20_000;
    let fastest = (0..200)
        .map(|start| {
            let began = Instant::now();
            turn(TURNS, start);
            began.elapsed()
        })
        .min()
        .unwrap_or_default();
    let nanoseconds = u32::try_from(fastest.as_nanos()).unwrap_or(u32::MAX).max(1);
    (TURNS.saturating_mul(1000) / nanoseconds).max(1)
}

/// The part of a message that has arrived so far on a connection.
#[derive(Debug)]
pub(crate) struct Carry {
    held: [u8; MESSAGE],
    filled: usize,
}

impl Default for Carry {
    fn default() -> Self {
        Carry { held: [0; MESSAGE], filled: 0 }
    }
}

/// Performs each message that `bytes`, the next bytes of the connection of `carry`, completes.
///
/// Whole messages are performed where they lie; only a part of one is copied.
pub(crate) fn process(carry: &mut Carry, mut bytes: &[u8]) {
    if carry.filled > 0 {
        let taken = bytes.len().min(MESSAGE - carry.filled);
        carry.held[carry.filled..carry.filled + taken].copy_from_slice(&bytes[..taken]);
        carry.filled += taken;
        bytes = &bytes[taken..];
        if carry.filled < MESSAGE {
            return;
        }
        carry.filled = 0;
        perform(&carry.held);
    }
    let (whole, rest) = bytes.as_chunks::<MESSAGE>();
    whole.iter().for_each(perform);
    carry.held[..rest.len()].copy_from_slice(rest);
    carry.filled = rest.len();
}

/// Performs each message of a datagram; an incomplete one at its end does not count.
pub(crate) fn process_datagram(bytes: &[u8]) {
    bytes.as_chunks::<MESSAGE>().0.iter().for_each(perform);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_was_put_into_it() {
        let all = [
            Work::Echo,
            Work::Turns(7),
            Work::Sleep(5000),
            Work::Locked(u32::MAX),
            Work::Spin(1_000_000),
            Work::Held(5000),
            Work::File,
            Work::Name,
        ];
        for (number, work) in all.into_iter().enumerate() {
            assert_eq!(parse(&message(work, number as u64)), Some(work));
        }
        let mut foreign = message(Work::Echo, 1);
        foreign[0] = 99;
        assert_eq!(parse(&foreign), None);
    }

    #[test]
    fn the_works_that_block_end() {
        for work in [Work::Sleep(1), Work::Held(1), Work::File, Work::Name] {
            work.perform();
        }
    }

    #[test]
    fn messages_with_different_numbers_differ() {
        assert_ne!(message(Work::Echo, 1), message(Work::Echo, 2));
        assert_ne!(message(Work::Echo, 1)[16..], message(Work::Echo, 256)[16..]);
    }

    /// A sleep of 20 ms that arrives in any two pieces is done once, when it is complete.
    #[test]
    fn a_split_message_is_performed_when_its_last_byte_is_there() {
        let asked = message(Work::Sleep(5_000), 3);
        for cut in [1, 8, 32, 63] {
            let mut carry = Carry::default();
            process(&mut carry, &asked[..cut]);
            assert_eq!(carry.filled, cut);
            assert_eq!(carry.held[..cut], asked[..cut]);
            let began = Instant::now();
            process(&mut carry, &asked[cut..]);
            assert!(began.elapsed() >= Duration::from_millis(5));
            assert_eq!(carry.filled, 0);
        }
    }

    /// Three messages and a half, then the other half and one more: five are performed.
    #[test]
    fn a_read_may_hold_several_messages_and_a_part_of_one() {
        let stream: Vec<u8> = (0..5).flat_map(|n| message(Work::Sleep(2_000), n)).collect();
        let mut carry = Carry::default();
        let began = Instant::now();
        process(&mut carry, &stream[..MESSAGE * 7 / 2]);
        assert!(began.elapsed() >= Duration::from_millis(6));
        assert_eq!(carry.filled, MESSAGE / 2);
        let began = Instant::now();
        process(&mut carry, &stream[MESSAGE * 7 / 2..]);
        assert!(began.elapsed() >= Duration::from_millis(4));
        assert_eq!(carry.filled, 0);
    }

    #[test]
    fn byte_by_byte_is_like_all_at_once() {
        let asked = message(Work::Sleep(3_000), 9);
        let mut carry = Carry::default();
        let began = Instant::now();
        for (index, byte) in asked.iter().enumerate() {
            process(&mut carry, &[*byte]);
            assert_eq!(carry.filled, (index + 1) % MESSAGE);
        }
        assert!(began.elapsed() >= Duration::from_millis(3));
    }

    #[test]
    fn the_loop_has_turns() {
        assert!(turns_per_microsecond() > 10);
    }
}
