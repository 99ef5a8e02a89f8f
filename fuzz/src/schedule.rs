//! Bytes as a program of a few threads, for the driver of the schedule's own tests.

use crate::reader::Reader;
use crate::state::schedule::tests::programs::{self, Event, Setting};

/// More events find nothing that fewer do not.
const EVENTS: usize = 400;

/// Plays the program. The driver checks after each event that nothing is lost, that no thread is forgotten,
/// and that the port is looked after; and at the end that all threads are dismissed.
pub fn run(data: &[u8]) {
    let mut bytes = Reader::new(data);
    let setting = setting(&mut bytes);
    let closed_first = bytes.choice();
    let mut events = Vec::new();
    while !bytes.is_at_the_end() && events.len() < EVENTS {
        events.push(event(&mut bytes));
    }
    programs::play(setting, events, closed_first);
}

fn setting(bytes: &mut Reader<'_>) -> Setting {
    let detects = bytes.choice();
    Setting {
        limit: 1 + bytes.below(4),
        threads: 1 + bytes.below(7),
        packet: bytes.one_of(&[1, 5, 30]),
        detects,
        observes: detects && bytes.choice(),
        edges: bytes.one_of(&[2, 64]),
        overcommits: bytes.choice(),
    }
}

fn event(bytes: &mut Reader<'_>) -> Event {
    // Usually threads continue.
    match bytes.byte() % 32 {
        0..8 => Event::Step(bytes.below(7)),
        8..12 => {
            let room = [1, 2, 64];
            let timeout = [None, None, None, Some(0), Some(300), Some(5_000)];
            Event::Wait(bytes.below(7), bytes.one_of(&room), bytes.one_of(&timeout))
        }
        12 => Event::Join,
        13 => Event::WakeSpuriously(bytes.below(7)),
        14 => Event::Take(bytes.below(7)),
        15 if bytes.choice() => Event::GiveBack(bytes.below(7)),
        15 => Event::Keep(bytes.below(7)),
        16 => Event::Block(bytes.below(7)),
        17 => Event::Unblock(bytes.below(7)),
        18 => Event::Nod(bytes.below(7)),
        19 => Event::Rise(bytes.below(7)),
        20 => Event::Leave(bytes.below(7)),
        21 => Event::Post,
        22 => Event::Edge(1 + bytes.below(4)),
        23 => Event::Remember(bytes.below(7)),
        24 => Event::BeginPeek,
        25 => Event::EndPeek,
        26 => Event::Replace(bytes.choice()),
        27 | 28 => Event::Deliver,
        29 if bytes.choice() => Event::Pass(1 + u64::from(bytes.word() % 3_000)),
        29 => Event::PostIn(u64::from(bytes.word() % 3_000)),
        30 => Event::Settle,
        _ => Event::Tick,
    }
}
