//! Batches of datagrams in a run, and a plain model of an association's datagrams: what its peer has
//! sent, what operations have received, what they have sent, and what the peer has received.
//!
//! The model isn't part of the simulation: its locks are no points.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Mutex;

use crate::sim::SEND_BUFFER;
use crate::turns::fail;
use crate::types::address::Address;
use crate::{Datagrams, Error, ErrorKind, Result};

/// The room of a slot for receiving. Peers send longer datagrams too, which are cut.
const ROOM: usize = 4;
/// The most bytes of a slot to send.
const MOST: usize = 64;
/// Of no more datagrams than these, a socket loses none, even if nothing is received.
const KEPT: usize = SEND_BUFFER / (768 + MOST);

/// The datagrams of an association, in both directions.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// What the peer has sent: the length of each datagram, by its first byte.
    fed: Mutex<BTreeMap<usize, usize>>,
    /// The first bytes of those that operations have received.
    taken: Mutex<BTreeSet<usize>>,
    /// What operations that have ended have sent: lengths, by the byte of which the operation's
    /// datagrams consist.
    sent: Mutex<BTreeMap<u8, Vec<usize>>>,
    /// The bytes and lengths that the peer has received.
    heard: Mutex<Vec<(u8, usize)>>,
}

/// Returns slots for receiving. One is in use, and a receive must empty it.
pub(crate) fn for_receiving(slots: usize) -> Datagrams {
    let mut datagrams = Datagrams::new(slots, ROOM);
    if !datagrams.push(b"old", None) {
        fail("a free slot was refused");
    }
    datagrams
}

/// Returns the lengths of the datagrams in a slot. All in a batch are different, so none can pass for
/// another. Every second slot has two segments.
fn lengths_of(slot: usize) -> Vec<usize> {
    let long = 2 * slot + 2;
    if slot % 2 == 1 { vec![long, long - 1] } else { vec![long] }
}

/// Returns datagrams that consist of `byte`. If `fails`, one of them has an address to which nothing
/// can be sent.
pub(crate) fn for_sending(byte: u8, slots: usize, to: &Address, fails: bool) -> Datagrams {
    let nowhere = Address::from(SocketAddr::from(([127, 0, 0, 1], 9)));
    let mut datagrams = Datagrams::new(slots, MOST);
    for slot in 0..slots {
        let to = if fails && slot == slots / 2 { &nowhere } else { to };
        let lengths = lengths_of(slot);
        let bytes = vec![byte; lengths.iter().sum()];
        if !datagrams.push_segments(&bytes, lengths[0], Some(to.clone())) {
            fail("a free slot was refused");
        }
    }
    datagrams
}

impl Model {
    /// The peer is about to send a datagram. Its bytes count up from `first`.
    pub(crate) fn feeding(&self, first: usize, len: usize) {
        self.fed.lock().unwrap().insert(first, len);
    }

    /// The peer has received a datagram.
    pub(crate) fn heard(&self, bytes: &[u8]) {
        self.heard.lock().unwrap().extend(bytes.first().map(|byte| (*byte, bytes.len())));
    }

    /// An operation has received one datagram, cut to `room`.
    pub(crate) fn received(&self, number: usize, bytes: &[u8], room: usize, is_cut: bool) {
        let Some(first) = bytes.first().copied().map(usize::from) else {
            fail(&format!("operation {number} has received an empty datagram"));
        };
        let len = self.fed.lock().unwrap().get(&first).copied();
        let counts_up = bytes.iter().enumerate().all(|(at, byte)| usize::from(*byte) == first + at);
        let is_right = |len: usize| bytes.len() == len.min(room) && is_cut == (len > room);
        if !counts_up || !len.is_some_and(is_right) {
            fail(&format!("operation {number} has {bytes:?}, cut {is_cut}, of {len:?} bytes"));
        }
        if !self.taken.lock().unwrap().insert(first) {
            fail(&format!("operation {number} has a datagram that came before: {bytes:?}"));
        }
    }

    /// A receive of many has ended. Returns the place of its first byte and the number of bytes from
    /// there to its last one.
    pub(crate) fn received_many(
        &self,
        number: usize,
        result: &Result<usize>,
        datagrams: &Datagrams,
        peer: Option<&Address>,
    ) -> Option<(usize, usize)> {
        let count = datagrams.len();
        let is_right = match result {
            // There are as many as fit, or the socket was emptied.
            Ok(told) => {
                *told == count && count > 0 && datagrams.is_drained() == (count < datagrams.slots())
            }
            Err(error) => error.transferred() == 0 && count == 0,
        };
        if !is_right {
            fail(&format!("operation {number}, {result:?}, has received {datagrams:?}"));
        }
        let mut place = None;
        for datagram in datagrams.iter() {
            if datagram.address() != peer || datagram.segment_size().is_some() {
                fail(&format!("operation {number} has received {datagram:?}"));
            }
            self.received(number, datagram.bytes(), datagrams.room(), datagram.is_truncated());
            let first = usize::from(datagram.bytes()[0]);
            let (begin, end) = place.unwrap_or((first, first));
            if first < end {
                fail(&format!("operation {number} has received {first} after {end}"));
            }
            place = Some((begin, first + datagram.bytes().len()));
        }
        place.map(|(begin, end)| (begin, end - begin))
    }

    /// A send of one datagram has ended.
    pub(crate) fn sent(&self, byte: u8, len: usize, is_sent: bool) {
        self.sent.lock().unwrap().insert(byte, if is_sent { vec![len] } else { Vec::new() });
    }

    /// A send of many has ended, which was to send what [`for_sending`] returns.
    pub(crate) fn sent_many(
        &self,
        number: usize,
        byte: u8,
        result: &Result<usize>,
        datagrams: &Datagrams,
    ) {
        let slots = datagrams.slots();
        let mut lengths: Vec<usize> = (0..slots).flat_map(lengths_of).collect();
        let segments = || datagrams.iter().flat_map(|datagram| datagram.segments());
        let left: Vec<usize> = segments().map(<[u8]>::len).collect();
        let fails_next = || {
            let next = datagrams.get(0).and_then(|datagram| datagram.address());
            next.is_some_and(|address| address.as_ip().is_some())
        };
        let is_right = match result {
            Ok(count) => *count == slots && left.is_empty(),
            Err(error) => {
                error.transferred() == slots - datagrams.len()
                    && (error.kind() != ErrorKind::WrongKernel || fails_next())
            }
        };
        let bytes = segments().flatten();
        if !is_right || !lengths.ends_with(&left) || bytes.copied().any(|it| it != byte) {
            fail(&format!("operation {number}, {result:?}, has left {left:?} of {lengths:?}"));
        }
        lengths.truncate(lengths.len() - left.len());
        self.sent.lock().unwrap().insert(byte, lengths);
    }

    /// A send was refused when it had sent something.
    pub(crate) fn sent_though_refused(
        &self,
        number: usize,
        error: Error,
        bytes: &[u8],
        datagrams: Option<&Datagrams>,
    ) {
        match datagrams {
            Some(datagrams) => self.sent_many(number, bytes[0], &Err(error), datagrams),
            None => self.sent(bytes[0], bytes.len(), true),
        }
    }

    /// A receive was refused when it had received something.
    pub(crate) fn received_though_refused(&self, bytes: &[u8], datagrams: Option<&Datagrams>) {
        let many = datagrams.into_iter().flat_map(Datagrams::iter);
        let first = many.map(|datagram| datagram.bytes()[0]).chain(bytes.first().copied());
        self.taken.lock().unwrap().extend(first.map(usize::from));
    }

    /// Checks, at the end, that no datagram was lost or repeated, and that none has overtaken
    /// another. `has_all` means that the outcomes of all operations are known.
    pub(crate) fn check(&self, key: u32, has_all: bool) {
        let (fed, taken) = (self.fed.lock().unwrap().clone(), self.taken.lock().unwrap().clone());
        if has_all && fed.len() <= KEPT && !fed.keys().take(taken.len()).eq(&taken) {
            fail(&format!("key {key} was sent {fed:?}, and has received {taken:?}"));
        }
        let mut heard: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
        for (byte, len) in self.heard.lock().unwrap().iter() {
            heard.entry(*byte).or_default().push(*len);
        }
        let sent = self.sent.lock().unwrap().clone();
        let keeps_all = has_all && sent.values().map(Vec::len).sum::<usize>() <= KEPT;
        for (byte, lengths) in &sent {
            let heard = heard.remove(byte).unwrap_or_default();
            let mut left = lengths.iter();
            let is_in_order = heard.iter().all(|len| left.any(|it| it == len));
            if !is_in_order || keeps_all && heard != *lengths {
                fail(&format!("send {byte} of key {key} has sent {lengths:?}, not {heard:?}"));
            }
        }
        if has_all && !heard.is_empty() {
            fail(&format!("operations of key {key} that sent nothing have sent {heard:?}"));
        }
    }
}
