//! A port of the C library on Windows.

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
    /// Created by the first association.
    relay: Mutex<Option<Relay>>,
}

impl CompletionPort {
    pub(crate) fn new(name: u64, concurrency: usize) -> Result<Self, u32> {
        // A socket can be associated with only one completion port of the kernel, and the system's
        // notifications use such an association, according to their documentation. Polls do not,
        // which leaves it to the relay. Windows has no call that reports a sleeping thread. The
        // program announces a blocking call with `cp_blocking`.
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

    /// Its handle is closed. Waiting threads hold shares of the port; the last one to leave drops
    /// it.
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

    /// Whether a packet is queued, without taking it.
    pub(crate) fn is_ready(&self) -> Result<bool, u32> {
        with_waiter(1, |waiter| self.raw().has_packets(&mut waiter.batch)).map_err(code_of)
    }

    /// Queues a packet of three values.
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

    /// From now on the operations of `file` complete here.
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

/// Posts the packet of a finished system operation.
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
