//! The token of a one-shot packet, which holds the key.

mod again;
mod change;
mod finishing;
mod owned;
mod start;

pub use owned::OwnedReady;

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::engine::{KeyReturn, Name, name_of};
use crate::memory::cells::Cell;
use crate::memory::trace::traces_packets;
use crate::port::Store;
use crate::port::current::{current_worker, with_current_worker};
use crate::port::deadline::Deadline;
use crate::port::registration::Id;
use crate::state::slot::{Drained, Slot};
use crate::types::error::{Call, Error, ErrorKind, Refused};
use crate::types::interest::{Events, Interest, Mode};
use crate::types::source::SourceName;
use crate::types::trigger::{Terms, Trigger};

/// A one-shot packet. It holds the key, which the port does not touch until the registration is
/// rearmed.
///
/// The handler has `&mut` access to the key without a lock, because no other thread can get a
/// packet of this registration meanwhile. The handler ends the token in one of these ways:
///
/// - [`rearm`](Ready::rearm) returns the key and enables the registration again.
/// - [`again`](Ready::again) does that, and the next packet follows immediately.
/// - [`park`](Ready::park) returns the key and leaves the registration disabled.
/// - [`into_key`](Ready::into_key) ends the registration and keeps the key.
/// - Dropping the token ends the registration and drops the key, which closes an owned socket.
///
/// A token may move to another thread. To move it to a thread that outlives the borrow of the port,
/// convert it with [`with_port`](Ready::with_port). A forgotten token (`mem::forget`) leaks its
/// key. Its registration remains, disabled, until the port is dropped. So after
/// [`Port::shutdown`](crate::Port::shutdown), waits never return [`ErrorKind::Closed`].
///
/// # Examples
///
/// ```
/// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
/// use std::io::{Read, Write};
/// use std::net::{TcpListener, TcpStream};
///
/// let port = Port::<TcpStream>::new()?;
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut near = TcpStream::connect(listener.local_addr()?)?;
/// let (far, _) = listener.accept()?;
/// port.register(Registration::owned(far, Interest::IN, OneShot::Level))?;
/// near.write_all(b"hello")?;
///
/// let mut batch = Batch::new();
/// for packet in port.wait(&mut batch, None)? {
///     if let Packet::Ready(mut ready) = packet {
///         let mut buffer = [0; 16];
///         let read = ready.key_mut().read(&mut buffer)?;
///         assert_eq!(&buffer[..read], b"hello");
///         ready.rearm()?;
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping the token ends the registration; `rearm` goes on with it"]
pub struct Ready<'p, K, B = Vec<u8>> {
    pub(in crate::port) held: Held<'p, K, B>,
    /// A token may be shared between threads only if its key may.
    pub(in crate::port) key: PhantomData<K>,
}

/// The contents of a token, for the calls that use it up.
pub(in crate::port) struct Held<'p, K, B> {
    pub(in crate::port) store: &'p Store<K, B>,
    pub(in crate::port) slot: &'p Slot,
    /// The key's cell. The token owns it, because the slot is held while the token exists.
    pub(in crate::port) cell: &'p Cell<K>,
    /// The slot's index.
    pub(in crate::port) index: u32,
    pub(in crate::port) events: Events,
    pub(in crate::port) drained: Drained,
}

impl<K, B> Clone for Held<'_, K, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, B> Copy for Held<'_, K, B> {}

impl<'p, K, B> Ready<'p, K, B> {
    /// Returns the registration's name.
    #[must_use]
    pub fn id(&self) -> Id {
        Id(self.held.name())
    }

    /// Returns the conditions that held.
    #[must_use]
    pub fn events(&self) -> Events {
        self.held.events
    }

    /// Returns the key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        // SAFETY: `get` requires a value that is neither changed nor taken while the reference
        // lives.
        // - a value: the token has one, and outlives the reference;
        // - neither changed nor taken: the token owns the cell. It changes the key only when
        //   borrowed exclusively, and takes it only when used up.
        unsafe { self.held.cell.get() }
    }

    /// Returns the key, mutably.
    ///
    /// A key that owns its descriptor must keep owning the registered descriptor. Otherwise
    /// [`Ready::rearm`] and [`Ready::park`] fail with [`ErrorKind::BadDescriptor`]. The port
    /// identifies descriptors by number, and reports nothing about another socket that happens to
    /// have the same number. To continue with another socket, take the key out with
    /// [`Ready::into_key`] and register it again.
    #[inline]
    #[must_use]
    pub fn key_mut(&mut self) -> &mut K {
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value: the token has one, and outlives the reference;
        // - nothing else: the token owns the cell, and is borrowed exclusively.
        unsafe { self.held.cell.get_mut() }
    }

    /// Hints that nothing is left to read: the next read would block. Rearming then needs no system
    /// call.
    ///
    /// The hint is true after a read that returned [`WouldBlock`](std::io::ErrorKind::WouldBlock),
    /// and on TCP streams and pipes after a read that returned fewer bytes than requested. If the
    /// hint is false, the unread data is reported only when more arrives.
    ///
    /// A short read proves nothing on datagram sockets, where the next datagram may be waiting, on
    /// listeners, and on `AF_UNIX` streams that carry descriptors. A read that filled its buffer
    /// proves nothing on any descriptor. The port ignores the hint at a TCP urgent mark.
    ///
    /// If a read fills the buffer, read again, up to a dozen times or so: a packet costs more than
    /// a read. Then rearm, so that other sockets get their turn.
    pub fn read_drained(&mut self) {
        self.held.drained = self.held.drained.and(Drained::READ);
    }

    /// Hints that a write returned [`WouldBlock`](std::io::ErrorKind::WouldBlock). Rearming then
    /// needs no system call.
    pub fn write_full(&mut self) {
        self.held.drained = self.held.drained.and(Drained::WRITE);
    }

    /// Returns the key and enables the registration again, with its current filter and trigger.
    ///
    /// If a condition still holds, a packet follows immediately, whatever the trigger. In the
    /// common case this is one compare-and-swap and no system call. Without a hint
    /// ([`Ready::read_drained`], [`Ready::write_full`]) the next wait asks the kernel about all
    /// sockets of a batch in one call.
    ///
    /// If a borrowed descriptor then has something to report, the wait makes one more system call,
    /// to check that the number still names the registered descriptor.
    ///
    /// # Errors
    ///
    /// If the call fails, the registration has ended and the error returns the key:
    /// - [`ErrorKind::Closed`]: the port is closed. During a [`Port::shutdown`](crate::Port::shutdown)
    ///   the call succeeds, and [`Packet::Removed`](crate::Packet::Removed) returns the key.
    /// - [`ErrorKind::NotRegistered`]: the descriptor turned out to be closed.
    /// - [`ErrorKind::NotPollable`]: it is a file, which has operations but no readiness.
    /// - [`ErrorKind::BadDescriptor`]: the key owns a different descriptor from the registered one.
    /// - [`ErrorKind::Forked`].
    #[inline]
    pub fn rearm(self) -> Result<(), Refused<K>> {
        self.arm(None)
    }

    /// Returns the key and enables the registration again, with a deadline.
    ///
    /// If nothing has happened by the deadline, a packet reports [`Events::TIMED_OUT`], never
    /// earlier. While a thread waits on the port, or comes to wait within a millisecond, the packet
    /// is at most that late.
    ///
    /// This is made for deadlines that move with each packet, such as those of idle connections.
    /// Moving one costs a store and wakes no thread. The timer occasionally expires, finds that its
    /// deadline has moved, and is set again.
    ///
    /// # Errors
    ///
    /// As for [`Ready::rearm`]. A registration's first deadline can also fail with
    /// [`ErrorKind::OutOfMemory`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
    /// use std::io::{Read, Write};
    /// use std::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// let port = Port::<TcpStream>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut far, _) = listener.accept()?;
    /// port.register(Registration::owned(near, Interest::IN, OneShot::Level))?;
    /// far.write_all(b"x")?;
    ///
    /// let mut batch = Batch::new();
    /// let Some(Packet::Ready(mut ready)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// ready.key_mut().read_exact(&mut [0])?;
    /// ready.rearm_until(Duration::from_millis(10))?; // from here on the client says nothing
    /// let Some(Packet::Ready(ready)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// assert!(ready.events().is_timed_out());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn rearm_until(self, deadline: impl Into<Deadline>) -> Result<(), Refused<K>> {
        self.arm_until(None, deadline.into())
    }

    /// Returns the key and enables the registration again, with another filter and trigger, and a
    /// deadline.
    ///
    /// Works like [`Ready::rearm_as`] and [`Ready::rearm_until`] combined. Use it to arm an
    /// association for the first time with a deadline.
    ///
    /// # Errors
    ///
    /// As for [`Ready::rearm_until`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Packet, Port};
    /// use std::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// let port = Port::<TcpStream>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (_far, _) = listener.accept()?;
    /// let soon = Duration::from_millis(10);
    /// port.associate(near)?.rearm_as_until(Interest::IN, OneShot::Level, soon)?;
    ///
    /// let mut batch = Batch::new();
    /// let Some(Packet::Ready(ready)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// assert!(ready.events().is_timed_out());
    /// // It still may be written to.
    /// ready.rearm_as_until(Interest::OUT, OneShot::Level, soon)?;
    /// let Some(Packet::Ready(ready)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// assert!(ready.events().is_out() && !ready.events().is_timed_out());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn rearm_as_until(
        self,
        interest: Interest,
        trigger: impl Trigger<K>,
        deadline: impl Into<Deadline>,
    ) -> Result<(), Refused<K>> {
        let terms = trigger.terms(interest);
        self.held.store.keys.know_clone(terms.clone);
        self.arm_until(Some(terms.mode), deadline.into())
    }

    /// Returns the key and enables the registration again with a deadline, with `mode` or as it
    /// was.
    #[inline]
    fn arm_until(self, mode: Option<Mode>, deadline: Deadline) -> Result<(), Refused<K>> {
        if !self.has_its_descriptor() {
            return Err(self.into_held().refuse(Call::Rearm));
        }
        let Held { store, slot, cell, index, events, drained } = self.into_held();
        let held = Held { store, slot, cell, index, events, drained };
        let engine = &store.engine;
        let at = deadline.moment(engine.backend());
        // The deadline is stored before the slot is armed, and its timer is checked afterwards. So
        // either this thread sees that the timer has expired, or the thread that handles the expiry
        // sees the new deadline.
        let deadline_timer = match engine.deadline_timer(index, Call::Rearm) {
            Ok(deadline_timer) => deadline_timer,
            Err(error) => return Err(held.refuse_with(error)),
        };
        deadline_timer.set_deadline(at);
        if traces_packets() || !engine.rearm(slot, mode, true, drained) {
            held.rearm(mode, true)?;
        }
        engine.revalidate_deadline_timer(index, deadline_timer);
        Ok(())
    }

    /// Returns the key and enables the registration again, with another filter and trigger.
    ///
    /// With a persistent trigger, its further packets are
    /// [`Packet::Notified`](crate::Packet::Notified).
    ///
    /// # Errors
    ///
    /// As for [`Ready::rearm`].
    #[inline]
    pub fn rearm_as(self, interest: Interest, trigger: impl Trigger<K>) -> Result<(), Refused<K>> {
        self.rearm_with(trigger.terms(interest))
    }

    #[inline]
    pub(crate) fn rearm_with(self, terms: Terms<K>) -> Result<(), Refused<K>> {
        self.held.store.keys.know_clone(terms.clone);
        self.arm(Some(terms.mode))
    }

    /// Returns the key and leaves the registration disabled, until
    /// [`Port::enable`](crate::Port::enable) enables it.
    ///
    /// # Errors
    ///
    /// As for [`Ready::rearm`].
    pub fn park(self) -> Result<Id, Refused<K>> {
        if !self.has_its_descriptor() {
            return Err(self.into_held().refuse(Call::Park));
        }
        let id = self.id();
        self.into_held().put_back(Call::Park, None, false).map(|()| id)
    }

    /// Ends the registration and keeps the key. The registration makes no more packets.
    #[must_use = "to drop the key as well, drop the token"]
    pub fn into_key(self) -> K {
        self.into_held().end()
    }

    /// Returns the key and enables the registration again, with `mode` or as it was.
    #[allow(
        clippy::inline_always,
        reason = "a call costs a packet 26 instructions, and some compilations make one"
    )]
    #[inline(always)]
    fn arm(self, mode: Option<Mode>) -> Result<(), Refused<K>> {
        if !self.has_its_descriptor() {
            return Err(self.into_held().refuse(Call::Rearm));
        }
        // The token is taken apart here, and reassembled only to be passed on, so that it need not
        // be in memory.
        let Held { store, slot, cell, index, events, drained } = self.into_held();
        if !traces_packets() && store.engine.rearm(slot, mode, false, drained) {
            return Ok(());
        }
        Held { store, slot, cell, index, events, drained }.rearm(mode, false)
    }

    /// Uses the token up without running its drop, because the key may belong to the port from now
    /// on.
    #[inline]
    fn into_held(self) -> Held<'p, K, B> {
        ManuallyDrop::new(self).held
    }

    /// Checks that the key still owns the registered descriptor. True if it never owned one.
    #[inline]
    fn has_its_descriptor(&self) -> bool {
        let Held { store, slot, .. } = self.held;
        // This is user code, which may panic. In that case the token still has the key.
        store.keys.source_of.get().is_none_or(|source_of| {
            let registered = SourceName { kernel: store.kernel, number: slot.descriptor() };
            slot.word().is_borrowed() || registered == source_of(self.key())
        })
    }
}

impl<'p, K, B> Ready<'p, K, B> {
    /// Creates the token of a slot that was just associated and is held.
    pub(crate) fn associated(store: &'p Store<K, B>, index: u32) -> Self {
        Self::of(store, store.engine.slot(index), index)
    }

    /// Creates a token without events.
    #[inline]
    pub(in crate::port) fn of(store: &'p Store<K, B>, slot: &'p Slot, index: u32) -> Self {
        let cell = store.keys.cells.at(index);
        let held = Held { store, slot, cell, index, events: Events::NONE, drained: Drained::NONE };
        Self { held, key: PhantomData }
    }
}

impl<K, B> Held<'_, K, B> {
    /// Returns the registration's name, which stays the same while the slot is held.
    fn name(&self) -> Name {
        name_of(self.index, self.slot.word().generation())
    }

    /// Returns the key to the engine and rearms the registration with `mode`, or as it was. Uses
    /// the token up.
    ///
    /// Reports the rearming to the tracing subscriber.
    #[cold]
    fn rearm(self, mode: Option<Mode>, timed: bool) -> Result<(), Refused<K>> {
        let (engine, name) = (&self.store.engine, self.name());
        let mode = mode.unwrap_or_else(|| self.slot.word().mode());
        self.put_back(Call::Rearm, Some(mode), timed)?;
        if traces_packets() {
            engine.trace_enabled(name, mode);
        }
        Ok(())
    }

    /// Returns the key to the engine. Uses the token up.
    #[inline(never)]
    fn put_back(self, call: Call, mode: Option<Mode>, timed: bool) -> Result<(), Refused<K>> {
        let (engine, worker) = (&self.store.engine, || current_worker(&self.store.engine));
        let name = self.name();
        let back = KeyReturn { mode, timed, drained: self.drained };
        let accepted = engine.put_back(call, self.slot, name, back, worker);
        // On refusal the slot is still held.
        accepted.map_err(|error| self.refuse_with(error))
    }

    /// Ends the registration, because the key owns another descriptor now. Uses the token up.
    #[cold]
    #[inline(never)]
    fn refuse(self, call: Call) -> Refused<K> {
        self.refuse_with(Error::new(call, ErrorKind::BadDescriptor))
    }

    #[cold]
    fn refuse_with(self, error: Error) -> Refused<K> {
        let (engine, name) = (&self.store.engine, self.name());
        let refused = Refused::new(error, self.end());
        engine.trace_refused(&error, Some(name), None);
        refused
    }

    /// Ends the registration and drops the key. Uses the token up.
    #[inline(never)]
    fn abandon(self) {
        drop(self.end());
    }

    /// Ends the registration and returns the key. Uses the token up.
    fn end(self) -> K {
        let name = self.name();
        // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
        // - owned: this token holds the slot;
        // - a value: the token has it. It is taken only once: only the token's drop and the calls
        //   that use the token up (`into_held`) lead here, and each token has only one of these.
        let key = unsafe { self.cell.take() };
        with_current_worker(&self.store.engine, |worker| {
            if let Some(worker) = worker {
                worker.stops_handling(self.index);
            }
        });
        // Tell the kernel first: once the key is dropped, another part of the program may get its
        // descriptor's number.
        self.store.engine.end(name);
        key
    }
}

impl<K, B> Drop for Ready<'_, K, B> {
    // Inlined, so that a token need not be in memory unless a reference to it is passed on.
    #[inline]
    fn drop(&mut self) {
        self.held.abandon();
    }
}

impl<K, B> fmt::Debug for Ready<'_, K, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready")
            .field("id", &self.id())
            .field("events", &self.events())
            .finish_non_exhaustive()
    }
}
