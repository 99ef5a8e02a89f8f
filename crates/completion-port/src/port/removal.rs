//! Removing a registration without its last packet.

use crate::engine::name_parts;
use crate::port::Port;
use crate::port::registration::Id;
use crate::types::error::Result;

/// Where the key of a removed registration is. [`Port::remove_now`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there is no third way")]
#[must_use = "it may have the key"]
pub enum Removal<K> {
    /// Here: there is no last packet.
    Key(K),
    /// In use. The last packet returns it, as after [`Port::remove`].
    PacketFollows,
}

impl<K> Removal<K> {
    /// Returns the key, if the call has returned it.
    pub fn into_key(self) -> Option<K> {
        if let Self::Key(key) = self { Some(key) } else { None }
    }
}

impl<K, M, B> Port<K, M, B> {
    /// Removes a registration, and returns its key if nothing is using it.
    ///
    /// That is so if no handler holds the key, no operation of the registration is in flight, and
    /// it is not queued, for a packet or for a check of what holds. Then there is no last packet.
    /// Otherwise this call is [`Port::remove`]: the last packet follows, with the key, and
    /// replaces a queued one.
    ///
    /// The call neither waits nor searches the queue. [`Port::remove_and_wait`] does both, and
    /// returns the key in any case.
    ///
    /// # Threads
    ///
    /// Another thread may still handle an earlier packet of a persistent registration, with its
    /// clone of the key.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotRegistered`](crate::ErrorKind::NotRegistered): there is no such
    ///   registration, or its key has been returned.
    /// - [`ErrorKind::Removing`](crate::ErrorKind::Removing): it is already being removed. Its key
    ///   comes with the packet, or to the thread in [`Port::remove_and_wait`].
    /// - [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, Packet, Persistent, Port, Registration, Removal};
    /// use std::net::UdpSocket;
    ///
    /// let port = Port::<&str>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let idle = Registration::new(&socket, "idle", Interest::IN, Persistent::Level);
    /// let id = port.register(idle)?;
    /// assert_eq!(port.remove_now(id)?, Removal::Key("idle"));
    ///
    /// // A socket that can be written to has a packet queued.
    /// let busy = Registration::new(&socket, "busy", Interest::OUT, Persistent::Level);
    /// let id = port.register(busy)?;
    /// let mut batch = Batch::new();
    /// assert_eq!(port.wait(&mut batch, None)?.count(), 1);
    /// assert_eq!(port.remove_now(id)?, Removal::PacketFollows);
    /// let last = port.wait(&mut batch, None)?.next();
    /// assert!(matches!(last, Some(Packet::Removed(_, "busy"))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_now(&self, id: Id) -> Result<Removal<K>> {
        if !self.told(id, self.store.engine.remove_now(id.0))? {
            return Ok(Removal::PacketFollows);
        }
        // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
        // - owned: `remove_now` has made the node this thread's;
        // - a value: the key is in its cell whenever the slot is not held.
        let key = unsafe { self.store.keys.cells.take(name_parts(id.0).0) };
        self.store.engine.free(id.0);
        Ok(Removal::Key(key))
    }
}
