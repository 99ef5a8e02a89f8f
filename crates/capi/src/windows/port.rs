//! A port as the C library has it on Windows.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use completion_port::{BlockDetection, ErrorKind, Packet, Port, Readiness};
use windows_sys::Win32::Foundation::HANDLE;

use crate::abi::{Entry, event};
use crate::errors::{code, code_of};
use crate::taking::{Queue, bits_of, entry_of_socket, with_waiter};
use crate::windows::message::Message;
use crate::windows::relay::{Relay, Relayed};
use crate::windows::sockets::{self, Key};

/// A port, and the number of its handle.
pub(crate) struct CompletionPort {
    name: u64,
    is_closed: AtomicBool,
    pub(crate) port: Port<Key, Message>,
    /// Once anything was associated.
    relay: Mutex<Option<Relay>>,
}

impl CompletionPort {
    pub(crate) fn new(name: u64, concurrency: usize) -> Result<Self, u32> {
        // A socket can be associated with one completion port of the kernel alone, and notifications of the system do so,
        // by their documentation. Polls do not, so that the relay can have it.
        // Windows has no call that reports a sleeping thread. The program announces a blocking call with `cp_blocking`.
        let port = Port::builder()
            .concurrency(concurrency)
            .readiness(Readiness::Polls)
            .block_detection(BlockDetection::Announced)
            .build();
        Ok(Self {
            name,
            is_closed: AtomicBool::new(false),
            port: port.map_err(code_of)?,
            relay: Mutex::new(None),
        })
    }

    /// Whether its handle has not been closed.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_closed.load(Acquire)
    }

    /// Its handle is closed: threads that wait on it have their share of it, and it is gone when the last of them has
    /// left.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Release);
        drop(self.relay.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.port.raw().abandon();
    }

    pub(crate) fn raw(&self) -> completion_port::raw::Raw<'_, Key, Message> {
        self.port.raw()
    }

    /// The number of its handle.
    pub(crate) fn name(&self) -> u64 {
        self.name
    }

    /// Whether a packet is queued, which is left there.
    pub(crate) fn is_ready(&self) -> Result<bool, u32> {
        with_waiter(1, |waiter| self.raw().has_packets(&mut waiter.batch)).map_err(code_of)
    }

    /// Queues a packet of three words.
    pub(crate) fn post_words(
        &self,
        bytes: u32,
        key: usize,
        overlapped: *mut c_void,
    ) -> Result<(), u32> {
        let overlapped = overlapped.expose_provenance();
        let message = Message { bytes, key, overlapped, internal: 0 };
        self.port.post(message).map_err(|refused| code_of(refused.error()))
    }

    /// The operations of `file` complete here from now on.
    pub(crate) fn associate(self: &Arc<Self>, file: HANDLE, key: usize) -> Result<(), u32> {
        let mut relay = self.relay.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_open() {
            return Err(code::INVALID_HANDLE);
        }
        if relay.is_none() {
            let port = Arc::downgrade(self);
            *relay = Some(Relay::start(move |message| relayed(&port, message))?);
        }
        relay.as_ref().map_or(Ok(()), |relay| relay.associate(file, key))
    }
}

/// Posts the packet of an operation that the system has ended.
fn relayed(port: &Weak<CompletionPort>, message: &Message) -> Relayed {
    let Some(port) = port.upgrade() else { return Relayed::Over };
    match port.port.post(Message { ..*message }) {
        Ok(()) => Relayed::Posted,
        Err(refused) if refused.error().kind() == ErrorKind::OutOfMemory => Relayed::Refused,
        Err(_) => Relayed::Over,
    }
}

impl Queue for CompletionPort {
    type Key = Key;
    type Message = Message;
    type Buffer = Vec<u8>;

    fn port(&self) -> &Port<Key, Message> {
        &self.port
    }

    fn name(&self) -> u64 {
        self.name
    }

    fn is_open(&self) -> bool {
        self.is_open()
    }

    fn has_had_what_is_for_none(&self) -> bool {
        false
    }

    fn entry(&self, packet: Packet<'_, Key, Message>) -> Option<Entry> {
        match packet {
            Packet::Notified(notified) => {
                Some(entry_of_socket(notified.key().word, bits_of(notified.events())))
            }
            Packet::Removed(id, key) => {
                sockets::end(key.number, self.name, id);
                Some(entry_of_socket(key.word, event::REMOVE.into()))
            }
            Packet::Posted(message) => Some(Entry {
                key: message.key,
                overlapped: std::ptr::with_exposed_provenance_mut(message.overlapped),
                internal: message.internal,
                bytes: message.bytes,
            }),
            // A wait that clones keys brings no tokens.
            _ => None,
        }
    }
}
