//! The token of a one-shot packet, which holds the key.

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
use crate::port::current::current_worker;
use crate::port::deadline::Deadline;
use crate::port::registration::Id;
use crate::state::slot::{Drained, Slot};
use crate::types::error::{Call, Error, ErrorKind, Refused};
use crate::types::interest::{Events, Interest, Mode};
use crate::types::source::SourceName;
use crate::types::trigger::{Terms, Trigger};

/// A one-shot packet: it holds the key, which the port does not touch until the registration is
/// rearmed.
///
/// The handler has `&mut` access to the key without a lock, since no other thread can get a packet
/// of this registration meanwhile. The handler ends the token in one of these ways:
///
/// - [`rearm`](Ready::rearm) gives the key back and enables the registration again;
/// - [`park`](Ready::park) gives the key back and leaves it disabled;
/// - [`into_key`](Ready::into_key) ends the registration and keeps the key;
/// - dropping the token ends the registration and drops the key, which closes an owned socket.
///
/// A token may move to another thread; to a thread that outlives the borrow of the port it goes by
/// [`with_port`](Ready::with_port). A token that is forgotten (`mem::forget`) leaks its key. Its
/// registration stays there, disabled, until the port is dropped, and [`Port::shutdown`](crate::Port::shutdown) waits for
/// it in vain.
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
    /// So that a token is shared between threads only if its key may be.
    pub(in crate::port) key: PhantomData<K>,
}

/// What a token is made of, for what becomes of it in the end.
pub(in crate::port) struct Held<'p, K, B> {
    pub(in crate::port) store: &'p Store<K, B>,
    pub(in crate::port) slot: &'p Slot,
    /// Where the key lies, which is the token's: the slot is held as long as that is here.
    pub(in crate::port) cell: &'p Cell<K>,
    /// The slot's number.
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
    /// The registration's name.
    #[must_use]
    pub fn id(&self) -> Id {
        Id(self.held.name())
    }

    /// The conditions that held.
    #[must_use]
    pub fn events(&self) -> Events {
        self.held.events
    }

    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        // SAFETY: `get` demands a value that is neither changed nor taken as long as the reference
        // lives.
        // - a value: the token has it, and is there as long as the reference;
        // - neither changed nor taken: the cell is the token's. The token changes it only when
        //   borrowed exclusively, and takes it only when used up.
        unsafe { self.held.cell.get() }
    }

    /// The key, to be changed. A key that owns its descriptor must keep owning the registered
    /// descriptor; otherwise [`Ready::rearm`] and [`Ready::park`] fail with
    /// [`ErrorKind::BadDescriptor`]. The port tells descriptors apart by number: nothing is
    /// reported of another socket that happens to have the same number. To go on with another
    /// socket, take the key out by [`Ready::into_key`] and register it anew.
    #[inline]
    #[must_use]
    pub fn key_mut(&mut self) -> &mut K {
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference
        // lives.
        // - a value: the token has it, and is there as long as the reference;
        // - nothing else: the cell is the token's, which is borrowed exclusively.
        unsafe { self.held.cell.get_mut() }
    }

    /// Says that nothing is left to read: the next read would block. Rearming then costs no system
    /// call.
    ///
    /// This is true after a read that returned [`WouldBlock`](std::io::ErrorKind::WouldBlock), and
    /// on TCP streams and pipes after one that returned fewer bytes than were asked for. If it is
    /// said although something is left to read, that is reported only when more arrives.
    ///
    /// A short read proves nothing on datagram sockets (the next datagram may be there), on
    /// listeners and on `AF_UNIX` streams that carry descriptors. A read that filled its buffer
    /// proves nothing on any descriptor. The port ignores the hint at a TCP urgent mark.
    ///
    /// A handler whose read filled its buffer does best to read again at once, a dozen times or so,
    /// since a packet costs more than a read. Then it should rearm, so that the other sockets have
    /// their turn.
    pub fn read_drained(&mut self) {
        self.held.drained = self.held.drained.and(Drained::READ);
    }

    /// Says that a write returned [`WouldBlock`](std::io::ErrorKind::WouldBlock). Rearming then costs
    /// no system call.
    pub fn write_full(&mut self) {
        self.held.drained = self.held.drained.and(Drained::WRITE);
    }

    /// Gives the key back and enables the registration again, with the filter and trigger it has.
    ///
    /// If a condition still holds, a packet follows at once, whatever the trigger. In the common
    /// case this is one compare-and-swap and no system call; without a hint
    /// ([`Ready::read_drained`], [`Ready::write_full`]) the next wait asks the kernel about all
    /// sockets of a batch in one call.
    ///
    /// If a borrowed descriptor has something to report then, the wait makes one more call for it,
    /// which tells whether the number still names what was registered.
    ///
    /// # Errors
    ///
    /// If the call fails, the registration has ended, and the error gives the key back:
    /// - [`ErrorKind::Closed`]: the port is closed or shutting down;
    /// - [`ErrorKind::NotRegistered`]: the descriptor was found to have been closed;
    /// - [`ErrorKind::NotPollable`]: it is a file, which has operations and no readiness;
    /// - [`ErrorKind::BadDescriptor`]: the key owns another descriptor than the registered one;
    /// - [`ErrorKind::Forked`].
    #[inline]
    pub fn rearm(self) -> Result<(), Refused<K>> {
        self.arm(None)
    }

    /// Gives the key back and enables the registration again, until a deadline: if nothing has happened by then, a
    /// packet reports [`Events::TIMED_OUT`]. It never does so earlier. While a thread waits at the port, or comes to
    /// wait within a millisecond, it is at most that late.
    ///
    /// It is made for deadlines that are moved with each packet, as those of idle connections are: to move one
    /// costs a store, and no thread is woken for it. Each timer rings once in a while, finds its deadline moved, and
    /// is set anew.
    ///
    /// # Errors
    ///
    /// As for [`Ready::rearm`]; and [`ErrorKind::OutOfMemory`], with a registration's first deadline.
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

    /// The same, with another filter and trigger, as [`Ready::rearm_as`]. An association's first arming says by
    /// this what it waits for, and until when.
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

    /// Gives the key back and enables the registration again, with `mode` or as it was, until a deadline.
    #[inline]
    fn arm_until(self, mode: Option<Mode>, deadline: Deadline) -> Result<(), Refused<K>> {
        if !self.has_its_descriptor() {
            return Err(self.into_held().refuse(Call::Rearm));
        }
        let Held { store, slot, cell, index, events, drained } = self.into_held();
        let held = Held { store, slot, cell, index, events, drained };
        let engine = &store.engine;
        let at = deadline.moment(engine.backend());
        // Stored before the slot is armed, and its timer looked at afterwards: so either this thread sees that the timer
        // has rung, or the thread for which it rings sees the new deadline.
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

    /// Gives the key back and enables the registration again, with another filter and trigger. With a
    /// persistent trigger its further packets are [`Packet::Notified`](crate::Packet::Notified).
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

    /// Gives the key back and leaves the registration disabled, until
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

    /// Ends the registration and keeps the key. No packet of it follows.
    #[must_use = "to drop the key as well, drop the token"]
    pub fn into_key(self) -> K {
        self.into_held().end()
    }

    /// Gives the key back and enables the registration again, with `mode` or as it was.
    #[inline]
    fn arm(self, mode: Option<Mode>) -> Result<(), Refused<K>> {
        if !self.has_its_descriptor() {
            return Err(self.into_held().refuse(Call::Rearm));
        }
        // Taken apart here, and put together again only to be passed on, so that the token need not
        // lie in memory.
        let Held { store, slot, cell, index, events, drained } = self.into_held();
        if !traces_packets() && store.engine.rearm(slot, mode, false, drained) {
            return Ok(());
        }
        Held { store, slot, cell, index, events, drained }.rearm(mode, false)
    }

    /// Uses the token up. From here on the key may belong to the port, so the token's drop must not
    /// run.
    #[inline]
    fn into_held(self) -> Held<'p, K, B> {
        ManuallyDrop::new(self).held
    }

    /// Whether the key owns the registered descriptor still, if it owns one.
    #[inline]
    fn has_its_descriptor(&self) -> bool {
        let Held { store, slot, .. } = self.held;
        // User code, which may panic: the key is still the token's then.
        store.keys.source_of.get().is_none_or(|source_of| {
            let registered = SourceName { kernel: store.kernel, number: slot.descriptor() };
            slot.word().is_borrowed() || registered == source_of(self.key())
        })
    }
}

impl<'p, K, B> Ready<'p, K, B> {
    /// The token of a slot that has just been associated, and is held.
    pub(crate) fn associated(store: &'p Store<K, B>, index: u32) -> Self {
        Self::of(store, store.engine.slot(index), index)
    }

    /// A token that has nothing to report.
    #[inline]
    pub(in crate::port) fn of(store: &'p Store<K, B>, slot: &'p Slot, index: u32) -> Self {
        let cell = store.keys.cells.at(index);
        let held = Held { store, slot, cell, index, events: Events::NONE, drained: Drained::NONE };
        Self { held, key: PhantomData }
    }
}

impl<K, B> Held<'_, K, B> {
    /// The registration's name, which it has as long as it is held.
    fn name(&self) -> Name {
        name_of(self.index, self.slot.word().generation())
    }

    /// The token is used up: the engine is to have the key, and to rearm the registration with `mode`, or as
    /// it was. A subscriber hears of it.
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

    /// The token is used up: the engine is to have the key.
    #[inline(never)]
    fn put_back(self, call: Call, mode: Option<Mode>, timed: bool) -> Result<(), Refused<K>> {
        let (engine, worker) = (&self.store.engine, || current_worker(&self.store.engine));
        let name = self.name();
        let back = KeyReturn { mode, timed, drained: self.drained };
        let accepted = engine.put_back(call, self.slot, name, back, worker);
        // Refused: the slot is still held.
        accepted.map_err(|error| self.refuse_with(error))
    }

    /// The token is used up: the registration ends, since the key owns another descriptor by now.
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

    /// The token is used up: the registration ends, and so does the key.
    #[inline(never)]
    fn abandon(self) {
        drop(self.end());
    }

    /// The token is used up: the registration ends, and the key goes back to the caller.
    fn end(self) -> K {
        let name = self.name();
        // SAFETY: `take` demands that the caller owns the cell, with a value in it.
        // - owned: the slot is held by this token;
        // - a value: the token has it, and it is taken out once, since only the token's drop and what has
        //   used it up (`into_held`) come here, and neither comes back.
        let key = unsafe { self.cell.take() };
        // The kernel first: once the key is dropped, another part of the program may get its
        // descriptor's number.
        self.store.engine.end(name);
        key
    }
}

impl<K, B> Drop for Ready<'_, K, B> {
    // Inlined, so that a token need not lie in memory unless a reference to it is passed on.
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
