//! A port as the C library has it: keys and messages are words, packets are written into the caller's array.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use completion_port::{Batch, Events, Packet, Port};

use crate::abi::{Entry, event};
use crate::errors::{code, code_of};
use crate::numbers::Key;

/// Three words that were posted.
pub(crate) struct Message {
    bytes: u32,
    key: usize,
    overlapped: usize,
}

/// A port, and the number of its handle.
pub(crate) struct CompletionPort {
    name: u64,
    is_closed: AtomicBool,
    port: Port<Key, Message>,
}

impl Deref for CompletionPort {
    type Target = Port<Key, Message>;
    fn deref(&self) -> &Self::Target {
        &self.port
    }
}

/// What the calling thread's waits need.
struct Waiter {
    /// Room, which each wait uses again.
    batch: Batch,
    /// The port, by the number of its handle, of the thread's last wait, if every change of that call was
    /// refused and it brought no packet; 0 otherwise.
    told: u64,
}

impl Waiter {
    fn new() -> Self {
        Self { batch: Batch::new(), told: 0 }
    }
}

thread_local! {
    static WAITER: RefCell<Waiter> = RefCell::new(Waiter::new());
}

/// Calls `f`, which calls no user code, with room for `room` packets.
fn with_waiter<R>(room: usize, f: impl FnOnce(&mut Waiter) -> R) -> R {
    let mut f = Some(f);
    let mut call = |waiter: &mut Waiter| {
        if waiter.batch.capacity() != room {
            waiter.batch.set_capacity(room);
        }
        f.take().map(|f| f(waiter))
    };
    let result = WAITER.try_with(|waiter| call(&mut waiter.borrow_mut())).ok().flatten();
    // If the thread's values are gone, because it waits while it exits, there is a batch for this once.
    let result = result.or_else(|| call(&mut Waiter::new()));
    result.unwrap_or_else(|| unreachable!("called either way"))
}

/// What became of the changes that a call has made before it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// None was refused.
    AsAsked,
    /// Some were refused.
    InPart,
    /// All were refused.
    NotAtAll,
}

fn bits_of(events: Events) -> u32 {
    let known = [
        (events.is_in(), event::IN),
        (events.is_out(), event::OUT),
        (events.is_hangup(), event::HANGUP),
        (events.is_err(), event::ERR),
    ];
    known.into_iter().filter(|(holds, _)| *holds).map(|(_, bit)| u32::from(bit)).sum()
}

impl CompletionPort {
    pub(crate) fn new(name: u64, concurrency: usize) -> Result<Self, u32> {
        let port = Port::builder().concurrency(concurrency).build().map_err(code_of)?;
        Ok(Self { name, is_closed: AtomicBool::new(false), port })
    }

    /// Whether its handle has not been closed.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_closed.load(Acquire)
    }

    /// Its handle is closed: threads that wait on it have their share of it, and it is gone when the
    /// last of them has left.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Release);
        self.port.raw().abandon();
    }

    /// The number of its handle.
    pub(crate) fn name(&self) -> u64 {
        self.name
    }

    /// Queues a packet of three words.
    pub(crate) fn post_words(
        &self,
        bytes: u32,
        key: usize,
        overlapped: *mut c_void,
    ) -> Result<(), u32> {
        let message = Message { bytes, key, overlapped: overlapped.expose_provenance() };
        self.port.post(message).map_err(|refused| code_of(refused.error()))
    }

    /// Whether a packet is queued, which is left there.
    pub(crate) fn is_ready(&self) -> Result<bool, u32> {
        with_waiter(1, |waiter| self.port.raw().has_packets(&mut waiter.batch)).map_err(code_of)
    }

    /// Waits for packets and writes them down; how many. If changes were refused it does not sleep, and
    /// none is no failure; unless all were, and the thread's last wait was such a one, too, and brought none.
    ///
    /// # Safety
    ///
    /// `entries` points to room for `room` entries that no other thread uses meanwhile.
    pub(crate) unsafe fn take(
        &self,
        entries: *mut Entry,
        room: usize,
        timeout: Option<Duration>,
        changed: Changed,
    ) -> Result<u32, u32> {
        // Once they are written down they cannot be taken back from a handler that sleeps.
        let most = room.min(self.port.raw().advised_room());
        let mut tells = false;
        let taken: completion_port::Result<usize> = with_waiter(most, |waiter| {
            let told = std::mem::take(&mut waiter.told) == self.name;
            let mut timeout = timeout;
            match changed {
                Changed::AsAsked => {}
                Changed::InPart => tells = true,
                Changed::NotAtAll => {
                    tells = !told;
                    waiter.told = self.name;
                }
            }
            if tells {
                timeout = Some(Duration::ZERO);
            }
            let mut taken = 0;
            for packet in self.port.raw().wait_cloned(&mut waiter.batch, timeout)? {
                let Some(entry) = self.entry(packet) else { continue };
                // SAFETY: `add` demands that the result is in the same allocation.
                // - a batch has no more packets than there is room for.
                let place = unsafe { entries.add(taken) };
                // SAFETY: writing through a raw pointer demands that it is valid, and that no other
                // thread uses the place.
                // - the caller says so.
                unsafe { place.write(entry) };
                taken += 1;
            }
            if taken > 0 {
                waiter.told = 0;
            }
            Ok(taken)
        });
        match taken {
            Ok(0) if tells && self.is_open() => Ok(0),
            Ok(0) if self.is_open() => Err(code::WAIT_TIMEOUT),
            Ok(0) => Err(code::ABANDONED_WAIT_0),
            Ok(taken) => u32::try_from(taken).map_err(|_| code::INTERNAL_ERROR),
            Err(error) if error.kind() == completion_port::ErrorKind::Closed => {
                Err(code::ABANDONED_WAIT_0)
            }
            Err(error) => Err(code_of(error)),
        }
    }

    /// What a packet is to a caller.
    fn entry(&self, packet: Packet<'_, Key, Message>) -> Option<Entry> {
        let of_socket = |key: usize, bits: u32| Entry {
            key,
            overlapped: std::ptr::null_mut(),
            internal: 0,
            bytes: bits,
        };
        match packet {
            Packet::Notified(notified) => {
                Some(of_socket(notified.key().word, bits_of(notified.events())))
            }
            Packet::Removed(id, key) => {
                key.number.end(self.name, id);
                Some(of_socket(key.word, event::REMOVE.into()))
            }
            Packet::Posted(message) => Some(Entry {
                key: message.key,
                overlapped: std::ptr::with_exposed_provenance_mut(message.overlapped),
                internal: 0,
                bytes: message.bytes,
            }),
            // A wait that clones keys brings no tokens.
            _ => None,
        }
    }
}
