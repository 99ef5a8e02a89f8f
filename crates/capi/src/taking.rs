//! How a call takes packets of a port and writes them into the caller's array.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use completion_port::{Batch, Buffer, Events, Packet, Port};

use crate::abi::{Entry, event};
use crate::errors::{code, code_of};

/// A port of the C library, as seen by a call that takes packets.
pub(crate) trait Queue {
    type Key: Clone;
    type Message;
    type Buffer: Buffer;

    fn port(&self) -> &Port<Self::Key, Self::Message, Self::Buffer>;

    /// The number of its handle.
    fn name(&self) -> u64;

    /// Whether its handle has not been closed.
    fn is_open(&self) -> bool;

    /// Converts a packet for the caller; `None` if it is not for the caller.
    fn entry(&self, packet: Packet<'_, Self::Key, Self::Message, Self::Buffer>) -> Option<Entry>;

    /// Whether a packet taken since the last call was for no caller.
    fn has_had_what_is_for_none(&self) -> bool;
}

/// What the calling thread's waits need.
pub(crate) struct Waiter {
    /// Room for packets, which each wait reuses.
    pub(crate) batch: Batch,
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
pub(crate) fn with_waiter<R>(room: usize, f: impl FnOnce(&mut Waiter) -> R) -> R {
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

/// The outcome of the changes that a call makes before it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// None was refused.
    AsAsked,
    /// Some were refused.
    InPart,
    /// All were refused.
    NotAtAll,
}

/// Converts events to the bits of the interface.
pub(crate) fn bits_of(events: Events) -> u32 {
    let known = [
        (events.is_in(), event::IN),
        (events.is_out(), event::OUT),
        (events.is_hangup(), event::HANGUP),
        (events.is_err(), event::ERR),
    ];
    known.into_iter().filter(|(holds, _)| *holds).map(|(_, bit)| u32::from(bit)).sum()
}

/// The entry for the events of a socket.
pub(crate) fn entry_of_socket(key: usize, bits: u32) -> Entry {
    Entry { key, overlapped: std::ptr::null_mut(), internal: 0, bytes: bits }
}

/// Waits for packets, stores them and returns their number. If changes were refused, it does not
/// sleep, and finding no packet is not a failure. The exception: all changes were refused, as in
/// this thread's last wait, which brought no packet either.
///
/// # Safety
///
/// `entries` points to room for `room` entries that no other thread uses meanwhile.
pub(crate) unsafe fn take<Q: Queue>(
    queue: &Q,
    entries: *mut Entry,
    room: usize,
    timeout: Option<Duration>,
    changed: Changed,
) -> Result<u32, u32> {
    // Stored packets cannot be taken back from a handler that sleeps.
    let most = room.min(queue.port().raw().advised_room());
    let mut tells = false;
    let mut is_in_vain = false;
    let began = (timeout.is_some() && queue.has_had_what_is_for_none()).then(Instant::now);
    let taken: completion_port::Result<usize> = with_waiter(most, |waiter| {
        let told = std::mem::take(&mut waiter.told) == queue.name();
        let mut timeout = timeout;
        match changed {
            Changed::AsAsked => {}
            Changed::InPart => tells = true,
            Changed::NotAtAll => {
                tells = !told;
                waiter.told = queue.name();
            }
        }
        if tells {
            timeout = Some(Duration::ZERO);
        }
        let mut taken = 0;
        let mut is_none_for_caller = false;
        for packet in queue.port().raw().wait_cloned(&mut waiter.batch, timeout)? {
            let Some(entry) = queue.entry(packet) else {
                is_none_for_caller = true;
                continue;
            };
            // SAFETY: `add` demands that the result is in the same allocation.
            // - a batch has no more packets than there is room for.
            let place = unsafe { entries.add(taken) };
            // SAFETY: writing through a raw pointer demands that it is valid, and that no other
            // thread uses the memory.
            // - the caller guarantees it.
            unsafe { place.write(entry) };
            taken += 1;
        }
        if taken > 0 {
            waiter.told = 0;
        }
        is_in_vain = taken == 0 && is_none_for_caller;
        Ok(taken)
    });
    match taken {
        Ok(0) if is_in_vain && queue.is_open() && !tells => {
            // The packets reported nothing new. The wait continues.
            let left = |limit: Duration| match began {
                Some(began) => limit.saturating_sub(began.elapsed()),
                None => limit,
            };
            // SAFETY: as this call.
            unsafe { take(queue, entries, room, timeout.map(left), changed) }
        }
        Ok(0) if tells && queue.is_open() => Ok(0),
        Ok(0) if queue.is_open() => Err(code::WAIT_TIMEOUT),
        Ok(0) => Err(code::ABANDONED_WAIT_0),
        Ok(taken) => u32::try_from(taken).map_err(|_| code::INTERNAL_ERROR),
        Err(error) if error.kind() == completion_port::ErrorKind::Closed => {
            Err(code::ABANDONED_WAIT_0)
        }
        Err(error) => Err(code_of(error)),
    }
}
