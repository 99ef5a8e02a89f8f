//! What a token changes about its registration: the key, and whether operations share it.

use std::marker::PhantomData;

use super::{Held, Ready};
use crate::engine::{Engine, Name};
use crate::port::current::current_worker;
use crate::port::operation::SharedId;
use crate::types::error::{Call, Error, ErrorKind, Refused};
use crate::types::source::Source;

impl<K: Source + Clone + Sync, B> Ready<'_, K, B> {
    /// Returns the key and makes the registration a shared association, whose operations are
    /// started by its name ([`Port::start`](crate::Port::start)).
    ///
    /// Use it when a connection needs several simultaneous operations from here on, such as that of a
    /// proxy, which receives and sends. The registration, its name and what the port knows of the
    /// descriptor stay the same, and the call makes no system call. The registration is disabled,
    /// as by [`Ready::park`], and [`Port::enable`](crate::Port::enable) enables it with a persistent
    /// trigger. [`Port::unshare`](crate::Port::unshare) returns to a token when no operation is in
    /// flight.
    ///
    /// # Errors
    ///
    /// If the call fails, the registration has ended and the error returns the key:
    /// - [`ErrorKind::NotOwned`]: the key does not own its descriptor.
    /// - [`ErrorKind::OutOfMemory`]; otherwise as for [`Ready::park`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, ErrorKind, Operation, Outcome, Packet, Port};
    /// use std::io::Write;
    /// use std::net::{TcpListener, TcpStream};
    /// use std::sync::Arc;
    ///
    /// let port = Port::<Arc<TcpStream>>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut near = TcpStream::connect(listener.local_addr()?)?;
    /// let (far, _) = listener.accept()?;
    /// let token = port.associate(Arc::new(far))?;
    ///
    /// let id = token.share()?;
    /// port.start(id, Operation::recv(Vec::with_capacity(16)))?;
    /// port.start(id, Operation::send(b"hello".to_vec()))?;
    /// assert_eq!(port.unshare(id).unwrap_err().kind(), ErrorKind::KeyShared);
    ///
    /// near.write_all(b"x")?;
    /// let (mut batch, mut left) = (Batch::new(), 2);
    /// while left > 0 {
    ///     left -= port.wait(&mut batch, None)?.count();
    /// }
    /// let token = port.unshare(id)?;
    /// token.recv(Vec::with_capacity(16))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn share(self) -> Result<SharedId, Refused<K>> {
        if self.held.slot.word().is_borrowed() {
            return Err(self.into_held().refuse_with(Error::new(Call::Share, ErrorKind::NotOwned)));
        }
        if !self.has_its_descriptor() {
            return Err(self.into_held().refuse(Call::Share));
        }
        let held = self.into_held();
        let Held { store, slot, drained, .. } = held;
        let name = held.name();
        // Before any packet that brings a clone.
        store.keys.know_clone(Some(K::clone));
        let worker = || current_worker(&store.engine);
        match store.engine.share_key(slot, name, drained, worker) {
            Ok(()) => Ok(SharedId(name)),
            // The slot is still held.
            Err(error) => Err(held.refuse_with(error)),
        }
    }
}

impl<K, B> Ready<'_, K, B> {
    /// Replaces the key by value, for example by another variant of an enum that keeps the socket.
    ///
    /// A key that owns its descriptor must be replaced by one that owns the same descriptor. Use
    /// [`Ready::key_mut`] to change a key in place.
    ///
    /// If `change` panics, the registration ends as if the token had been dropped.
    ///
    /// # Errors
    ///
    /// If the call fails, the registration has ended and the error returns the new key:
    /// - [`ErrorKind::BadDescriptor`]: it owns a different descriptor from the registered one.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{BorrowedSource, Port, Source};
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// enum Peer {
    ///     Greeting(TcpStream),
    ///     Named { stream: TcpStream, name: String },
    /// }
    ///
    /// impl Source for Peer {
    ///     fn as_source(&self) -> BorrowedSource<'_> {
    ///         let (Peer::Greeting(stream) | Peer::Named { stream, .. }) = self;
    ///         stream.as_source()
    ///     }
    /// }
    ///
    /// let port = Port::<Peer>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// let token = port.associate(Peer::Greeting(stream))?;
    /// let token = token.map_key(|peer| match peer {
    ///     Peer::Greeting(stream) => Peer::Named { stream, name: "first".to_owned() },
    ///     named => named,
    /// })?;
    /// assert!(matches!(token.key(), Peer::Named { name, .. } if name == "first"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map_key(self, change: impl FnOnce(K) -> K) -> Result<Self, Refused<K>> {
        let held = self.into_held();
        let emptied = EmptiedToken { engine: &held.store.engine, name: held.name() };
        // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
        // - owned: the token owns it, and is used up here;
        // - a value: the token has one. If `change` panics, nothing takes it again: `emptied` ends
        //   the registration without it.
        let key = change(unsafe { held.cell.take() });
        // SAFETY: `put` requires that the caller owns the cell and that it is empty.
        // - owned: as above;
        // - empty: its value was just taken.
        unsafe { held.cell.put(key) };
        std::mem::forget(emptied);
        let token = Self { held, key: PhantomData };
        if token.has_its_descriptor() {
            Ok(token)
        } else {
            Err(token.into_held().refuse(Call::MapKey))
        }
    }
}

/// A token without its key, while code of the program replaces that. If this panics, the drop ends
/// the registration.
struct EmptiedToken<'e> {
    engine: &'e Engine,
    name: Name,
}

impl Drop for EmptiedToken<'_> {
    fn drop(&mut self) {
        self.engine.end(self.name);
    }
}
