//! Ports as the C library has them: made, taken from, posted to, closed.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use completion_port::{Batch, Events, Packet, Port};

use crate::abi::{self, Entry, Handle, NO_HANDLE, event};
use crate::errors::{code, code_of, guarded, set_last, succeeds};
use crate::handles::{self, Object};
use crate::numbers::{self, Associated, Key};
use crate::sockets;

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
        let port = Port::<Key>::builder().concurrency(concurrency).build().map_err(code_of)?;
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
        self.port.abandon();
    }

    /// The number of its handle.
    pub(crate) fn name(&self) -> u64 {
        self.name
    }

    /// Waits for packets and writes them down; how many. If changes were refused it does not sleep, and
    /// none is no failure; unless all were, and the thread's last wait was such a one, too, and brought none.
    ///
    /// # Safety
    ///
    /// `entries` points to room for `room` entries that nobody else uses meanwhile.
    pub(crate) unsafe fn take(
        &self,
        entries: *mut Entry,
        room: usize,
        timeout: Option<Duration>,
        changed: Changed,
    ) -> Result<u32, u32> {
        // Once they are written down they cannot be taken back from a handler that sleeps.
        let most = room.min(self.port.advised_room());
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
            for packet in self.port.wait_cloned(&mut waiter.batch, timeout)? {
                let Some(entry) = self.entry(packet) else { continue };
                // SAFETY: `add` demands that the result is in the same allocation.
                // - a batch has no more packets than there is room for.
                let place = unsafe { entries.add(taken) };
                // SAFETY: writing through a raw pointer demands that it is valid and nobody else's.
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

/// The port of a handle, unless this process is a forked child of the one that made it.
pub(crate) fn usable(handle: Handle) -> Result<Arc<CompletionPort>, u32> {
    let port = handles::port(handle)?;
    if port.is_forked() { Err(code::INVALID_HANDLE) } else { Ok(port) }
}

/// Lets the operations of a descriptor complete on a port.
fn associate(descriptor: usize, port: &CompletionPort, key: usize) -> Result<(), u32> {
    let descriptor = RawFd::try_from(descriptor).map_err(|_| code::INVALID_HANDLE)?;
    // SAFETY: fcntl(2) with F_GETFD demands nothing of memory.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
    if flags < 0 {
        return Err(code::INVALID_HANDLE);
    }
    // A null handle is a mistake, unless the process has given number 0 to a socket.
    if descriptor == 0 && sockets::protocol(descriptor).is_err() {
        return Err(code::INVALID_HANDLE);
    }
    let number = numbers::entry(descriptor).ok_or(code::INVALID_HANDLE)?;
    let identity = sockets::identity(descriptor);
    let mut state = number.lock();
    if state.associated.is_some_and(|it| it.identity == identity && handles::is_open(it.port)) {
        return Err(code::INVALID_PARAMETER);
    }
    state.associated = Some(Associated { port: port.name(), key, identity });
    Ok(())
}

fn create(concurrency: u32) -> Result<Handle, u32> {
    handles::open(|name| {
        let concurrency = usize::try_from(concurrency).unwrap_or(usize::MAX);
        CompletionPort::new(name, concurrency).map(|port| Object::Port(Arc::new(port)))
    })
}

fn create_or_associate(
    file: Handle,
    existing: Handle,
    key: usize,
    concurrency: u32,
) -> Result<Handle, u32> {
    match (file.addr() != NO_HANDLE, existing.is_null()) {
        (false, true) => create(concurrency),
        (false, false) => Err(code::INVALID_PARAMETER),
        (true, false) => {
            associate(file.addr(), &*usable(existing)?, key)?;
            Ok(existing)
        }
        (true, true) => {
            let made = create(concurrency)?;
            let associated =
                handles::port(made).and_then(|port| associate(file.addr(), &port, key));
            associated.map(|()| made).inspect_err(|_| {
                let _ = close(made);
            })
        }
    }
}

fn close(handle: Handle) -> Result<(), u32> {
    // The last share is given up here, where nothing is locked.
    handles::close(handle).map(drop)
}

/// Makes a port, or lets a descriptor's operations complete on one: `CreateIoCompletionPort`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_create_io_completion_port(
    file: Handle,
    existing: Handle,
    key: usize,
    concurrency: u32,
) -> Handle {
    guarded(std::ptr::null_mut(), || {
        create_or_associate(file, existing, key, concurrency).unwrap_or_else(|code| {
            set_last(code);
            std::ptr::null_mut()
        })
    })
}

/// Closes a handle: `CloseHandle`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_close_handle(handle: Handle) -> i32 {
    succeeds(|| close(handle))
}

/// Takes one packet: `GetQueuedCompletionStatus`.
///
/// # Safety
///
/// The three pointers are null or point to room for what is written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_dequeue(
    port: Handle,
    bytes: *mut u32,
    key: *mut usize,
    overlapped: *mut *mut c_void,
    milliseconds: u32,
) -> i32 {
    succeeds(|| {
        if overlapped.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller says so of one that is not null.
        unsafe { overlapped.write(std::ptr::null_mut()) };
        if bytes.is_null() || key.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        let port = usable(port)?;
        let mut entry = Entry { key: 0, overlapped: std::ptr::null_mut(), internal: 0, bytes: 0 };
        let timeout = abi::timeout(milliseconds);
        // SAFETY: `take` demands room for so many entries.
        // - there is room for one.
        unsafe { port.take(&raw mut entry, 1, timeout, Changed::AsAsked) }?;
        // SAFETY: as above.
        unsafe { bytes.write(entry.bytes) };
        // SAFETY: as above.
        unsafe { key.write(entry.key) };
        // SAFETY: as above.
        unsafe { overlapped.write(entry.overlapped) };
        Ok(())
    })
}

/// Takes packets: `GetQueuedCompletionStatusEx`.
///
/// # Safety
///
/// `entries` is null or points to room for `room` entries, and `removed` is null or points to room for
/// a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_dequeue_many(
    port: Handle,
    entries: *mut Entry,
    room: u32,
    removed: *mut u32,
    milliseconds: u32,
    _alertable: i32,
) -> i32 {
    succeeds(|| {
        if removed.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller says so of one that is not null.
        unsafe { removed.write(0) };
        if entries.is_null() || room == 0 {
            return Err(code::INVALID_PARAMETER);
        }
        let port = usable(port)?;
        let timeout = abi::timeout(milliseconds);
        // SAFETY: `take` demands room for so many entries.
        // - the caller says that there is.
        let taken = unsafe { port.take(entries, room as usize, timeout, Changed::AsAsked) }?;
        // SAFETY: as above.
        unsafe { removed.write(taken) };
        Ok(())
    })
}

/// Whether a packet is queued: the code of success if one is, that of a time that is over if none is.
#[unsafe(no_mangle)]
pub extern "C" fn cp_peek(port: Handle) -> u32 {
    let peek = || {
        let port = usable(port)?;
        let has_packets =
            with_waiter(1, |waiter| port.has_packets(&mut waiter.batch)).map_err(code_of)?;
        if has_packets { Ok(code::SUCCESS) } else { Err(code::WAIT_TIMEOUT) }
    };
    guarded(code::INTERNAL_ERROR, || peek().unwrap_or_else(|code| code))
}

/// Posts three words: `PostQueuedCompletionStatus`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_post(port: Handle, bytes: u32, key: usize, overlapped: *mut c_void) -> i32 {
    succeeds(|| {
        let message = Message { bytes, key, overlapped: overlapped.expose_provenance() };
        usable(port)?.post(message).map_err(|refused| code_of(refused.error()))
    })
}
