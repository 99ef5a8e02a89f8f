//! A token that keeps its port alive.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Held, Ready};
use crate::port::Port;
use crate::port::deadline::Deadline;
use crate::port::operation::{OpId, Operation, SharedId};
use crate::port::registration::Id;
use crate::state::slot::Drained;
use crate::types::buffer::Buffer;
use crate::types::error::Refused;
use crate::types::interest::{Events, Interest};
use crate::types::source::Source;
use crate::types::trigger::Trigger;

/// A one-shot packet that keeps its port alive: a [`Ready`] that borrows nothing.
/// [`Ready::with_port`] makes it.
///
/// Use it when a handler continues where the borrow of the port ends: in a thread pool, in a thread
/// that is never joined, in a struct. It has the methods of [`Ready`] and ends in the same ways:
/// rearm it, park it, or take its key. Dropping it ends the registration.
///
/// The token releases the port last, after the registration has ended or the key has been returned.
/// If the port has no other owner by then, the thread that uses up the token drops the port with
/// all its keys and messages. That can happen in [`OwnedReady::rearm`] too.
///
/// A token inside a key or a message of its own port keeps that port alive forever. So does a
/// forgotten one (`mem::forget`).
///
/// # Examples
///
/// ```
/// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
/// use std::io::{Read, Write};
/// use std::net::{TcpListener, TcpStream};
/// use std::sync::Arc;
/// use std::thread;
///
/// let port: Arc<Port<TcpStream>> = Arc::new(Port::new()?);
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut near = TcpStream::connect(listener.local_addr()?)?;
/// let (far, _) = listener.accept()?;
/// port.register(Registration::owned(far, Interest::IN, OneShot::Level))?;
/// near.write_all(b"hello")?;
///
/// let mut batch = Batch::new();
/// let mut workers = Vec::new();
/// for packet in port.wait(&mut batch, None)? {
///     let Packet::Ready(ready) = packet else { continue };
///     let Ok(mut ready) = ready.with_port(&port) else { unreachable!("it is this port's") };
///     // Not a scoped thread: it may outlive this one, and every borrow.
///     workers.push(thread::spawn(move || {
///         let mut buffer = [0; 16];
///         let read = ready.key_mut().read(&mut buffer).unwrap_or(0);
///         assert_eq!(&buffer[..read], b"hello");
///         ready.rearm().is_ok()
///     }));
/// }
/// drop(batch);
/// drop(port);
/// assert!(workers.pop().is_some_and(|worker| worker.join().unwrap()));
/// assert_eq!(near.read(&mut [0; 16])?, 0); // the last owner has dropped the port, and with it the key
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping the token ends the registration; `rearm` goes on with it"]
pub struct OwnedReady<K, M = (), B = Vec<u8>> {
    port: Arc<Port<K, M, B>>,
    /// The index of the slot, which this token holds unless it is used up.
    index: u32,
    events: Events,
    drained: Drained,
    is_used_up: bool,
    /// A token may be shared between threads only if its key may.
    key: PhantomData<K>,
}

impl<'p, K, B> Ready<'p, K, B> {
    /// Converts the token into one that keeps its port alive instead of borrowing it. Use it for a
    /// thread that outlives the borrow.
    ///
    /// This adds an owner to the `Arc`.
    ///
    /// # Errors
    ///
    /// If the token belongs to a different port, the error returns the token.
    ///
    /// # Examples
    ///
    /// See [`OwnedReady`].
    pub fn with_port<M>(self, port: &Arc<Port<K, M, B>>) -> Result<OwnedReady<K, M, B>, Self> {
        // Comparing addresses suffices: the token borrows its port, so the port does not move while
        // the token lives.
        if !std::ptr::eq(port.store(), self.held.store) {
            return Err(self);
        }
        let port = Arc::clone(port);
        let Held { index, events, drained, .. } = self.into_held();
        Ok(OwnedReady { port, index, events, drained, is_used_up: false, key: PhantomData })
    }
}

impl<K, M, B> OwnedReady<K, M, B> {
    /// Returns the contents of the token.
    #[inline]
    fn held(&self) -> Held<'_, K, B> {
        let &Self { ref port, index, events, drained, .. } = self;
        let store = port.store();
        let (slot, cell) = (store.engine.slot(index), store.keys.cells.at(index));
        Held { store, slot, cell, index, events, drained }
    }

    /// Uses the token up and returns its contents as a token that borrows the port.
    #[inline]
    fn take(&mut self) -> Ready<'_, K, B> {
        self.is_used_up = true;
        Ready { held: self.held(), key: PhantomData }
    }

    /// Returns the port, so that a handler can post to it or register something on it.
    #[must_use]
    pub fn port(&self) -> &Arc<Port<K, M, B>> {
        &self.port
    }

    /// Works like [`Ready::id`].
    #[must_use]
    pub fn id(&self) -> Id {
        Id(self.held().name())
    }

    /// Works like [`Ready::events`].
    #[must_use]
    pub fn events(&self) -> Events {
        self.events
    }

    /// Works like [`Ready::key`].
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        // SAFETY: `get` requires a value that is neither changed nor taken while the reference
        // lives.
        // - a value: the token has one, because it is used up only by value or by its drop, and so
        //   outlives the reference. Its port, which contains the cell, outlives the token;
        // - neither changed nor taken: the token owns the cell. It changes the key only when
        //   borrowed exclusively, and takes it only when used up.
        unsafe { self.held().cell.get() }
    }

    /// Works like [`Ready::key_mut`].
    #[inline]
    #[must_use]
    pub fn key_mut(&mut self) -> &mut K {
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value: the token has one, because it is used up only by value or by its drop, and so
        //   outlives the reference. Its port, which contains the cell, outlives the token;
        // - nothing else: the token owns the cell, and is borrowed exclusively.
        unsafe { self.held().cell.get_mut() }
    }

    /// Works like [`Ready::read_drained`].
    pub fn read_drained(&mut self) {
        self.drained = self.drained.and(Drained::READ);
    }

    /// Works like [`Ready::write_full`].
    pub fn write_full(&mut self) {
        self.drained = self.drained.and(Drained::WRITE);
    }

    /// Works like [`Ready::rearm`], then releases the port.
    ///
    /// # Errors
    ///
    /// As for [`Ready::rearm`].
    #[inline]
    pub fn rearm(mut self) -> Result<(), Refused<K>> {
        self.take().rearm()
    }

    /// Works like [`Ready::again`], then releases the port.
    ///
    /// # Errors
    ///
    /// As for [`Ready::rearm`].
    pub fn again(mut self) -> Result<(), Refused<K>> {
        self.take().again()
    }

    /// Works like [`Ready::rearm_as`], then releases the port.
    ///
    /// # Errors
    ///
    /// As for [`Ready::rearm`].
    #[inline]
    pub fn rearm_as(
        mut self,
        interest: Interest,
        trigger: impl Trigger<K>,
    ) -> Result<(), Refused<K>> {
        self.take().rearm_as(interest, trigger)
    }

    /// Works like [`Ready::rearm_until`], then releases the port.
    ///
    /// # Errors
    ///
    /// As for [`Ready::rearm_until`].
    pub fn rearm_until(mut self, deadline: impl Into<Deadline>) -> Result<(), Refused<K>> {
        self.take().rearm_until(deadline)
    }

    /// Works like [`Ready::rearm_as_until`], then releases the port.
    ///
    /// # Errors
    ///
    /// As for [`Ready::rearm_until`].
    pub fn rearm_as_until(
        mut self,
        interest: Interest,
        trigger: impl Trigger<K>,
        deadline: impl Into<Deadline>,
    ) -> Result<(), Refused<K>> {
        self.take().rearm_as_until(interest, trigger, deadline)
    }

    /// Works like [`Ready::start`], then releases the port.
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Operation, Outcome, Packet, Port};
    /// use std::net::{TcpListener, TcpStream};
    /// use std::sync::Arc;
    /// use std::thread;
    ///
    /// let port = Arc::new(Port::<TcpStream>::new()?);
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (_far, _) = listener.accept()?;
    /// let Ok(token) = port.associate(near)?.with_port(&port) else { unreachable!("it is this port's") };
    /// // Not a scoped thread: it may outlive this one, and every borrow.
    /// thread::spawn(|| token.start(Operation::send(b"hello".to_vec())).is_ok());
    ///
    /// let mut batch = Batch::new();
    /// let Some(Packet::Completed(done)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// assert!(matches!(done.into_parts().1, Outcome::Sent(Ok(5), _)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start(mut self, operation: Operation<B>) -> Result<OpId, Refused<(K, Operation<B>)>>
    where
        B: Buffer,
    {
        self.take().start(operation)
    }

    /// Works like [`Ready::park`], then releases the port.
    ///
    /// # Errors
    ///
    /// As for [`Ready::rearm`].
    pub fn park(mut self) -> Result<Id, Refused<K>> {
        self.take().park()
    }

    /// Works like [`Ready::share`], then releases the port.
    ///
    /// # Errors
    ///
    /// As for [`Ready::share`].
    pub fn share(mut self) -> Result<SharedId, Refused<K>>
    where
        K: Source + Clone + Sync,
    {
        self.take().share()
    }

    /// Works like [`Ready::map_key`]. If it fails or panics, it releases the port.
    ///
    /// # Errors
    ///
    /// As for [`Ready::map_key`].
    pub fn map_key(mut self, change: impl FnOnce(K) -> K) -> Result<Self, Refused<K>> {
        let _ = self.take().map_key(change)?.into_held();
        self.is_used_up = false;
        Ok(self)
    }

    /// Works like [`Ready::into_key`], then releases the port.
    #[must_use = "to drop the key as well, drop the token"]
    pub fn into_key(mut self) -> K {
        self.take().into_key()
    }
}

impl<K, M, B> Drop for OwnedReady<K, M, B> {
    /// Ends the registration, unless the token is used up, then releases the port.
    fn drop(&mut self) {
        if !self.is_used_up {
            drop(self.take());
        }
    }
}

impl<K, M, B> fmt::Debug for OwnedReady<K, M, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedReady")
            .field("id", &self.id())
            .field("events", &self.events())
            .finish_non_exhaustive()
    }
}
