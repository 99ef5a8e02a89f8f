//! What a wait returns.

mod files;
mod operations;
mod owned;

pub use operations::{Done, Finished};
pub use owned::OwnedReady;

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use crate::engine::{Engine, Name, Return, Scratch, Seat, Taken, Waited, name_of, name_parts};
use crate::memory::cells::Cell;
use crate::memory::trace::hears_packets;
use crate::port::current::{Membership, current_seat, take_seat};
use crate::port::deadline::Deadline;
use crate::port::registration::Id;
use crate::port::{Port, Store};
use crate::state::moment::Moment;
use crate::state::queue::{NIL, Node};
use crate::state::slot::{Drained, Slot, Turn};
use crate::types::buffer::Buffer;
use crate::types::error::{Call, Error, ErrorKind, Refused};
use crate::types::interest::Mode;
use crate::types::interest::{Events, Interest};
use crate::types::source::SourceName;
use crate::types::trigger::{Terms, Trigger};

/// One packet.
#[non_exhaustive]
pub enum Packet<'p, K, M, B = Vec<u8>> {
    /// A one-shot registration reports; the key is the handler's until it is rearmed.
    Ready(Ready<'p, K, B>),
    /// A persistent registration reports; it stays enabled, and the packet has a clone of the key.
    Notified(Notified<K>),
    /// A posted message.
    Posted(M),
    /// A registration has ended by [`Port::remove`]; its key comes back. No other packet of it
    /// follows, but another thread may still hold an earlier one of a persistent registration.
    Removed(Id, K),
    /// An operation that was started by a token has ended. [`Done::into_parts`] gives the token back, and what has
    /// become of the operation.
    Done(Done<'p, K, B>),
    /// An operation of a shared association has ended; the packet has a clone of the key.
    Finished(Finished<'p, K, B>),
}

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
/// registration stays there, disabled, until the port is dropped, and [`Port::shutdown`] waits for
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
    held: Held<'p, K, B>,
    /// So that a token is shared between threads only if its key may be.
    key: PhantomData<K>,
}

/// What a token is made of, for what becomes of it in the end.
struct Held<'p, K, B> {
    store: &'p Store<K, B>,
    slot: &'p Slot,
    /// Where the key lies, which is the token's: the slot is held as long as that is here.
    cell: &'p Cell<K>,
    /// The slot's number.
    index: u32,
    events: Events,
    drained: Drained,
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
        let arming = match engine.arming(index, Call::Rearm) {
            Ok(arming) => arming,
            Err(error) => return Err(held.refuse_with(error)),
        };
        arming.set_deadline(at);
        if hears_packets() || !engine.rearm(slot, mode, true, drained) {
            held.rearm(mode, true)?;
        }
        engine.mind_arming(index, arming);
        Ok(())
    }

    /// Gives the key back and enables the registration again, with another filter and trigger. With a
    /// persistent trigger its further packets are [`Packet::Notified`].
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
        if !hears_packets() && store.engine.rearm(slot, mode, false, drained) {
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
        if hears_packets() {
            engine.tell_enabled(name, mode);
        }
        Ok(())
    }

    /// The token is used up: the engine is to have the key.
    #[inline(never)]
    fn put_back(self, call: Call, mode: Option<Mode>, timed: bool) -> Result<(), Refused<K>> {
        let (engine, seat) = (&self.store.engine, || current_seat(&self.store.engine));
        let name = self.name();
        let back = Return { mode, timed, drained: self.drained };
        let accepted = engine.put_back(call, self.slot, name, back, seat);
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
        engine.tell_refused(&error, Some(name), None);
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

impl<K: fmt::Debug, M: fmt::Debug, B> fmt::Debug for Packet<'_, K, M, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(ready) => f.debug_tuple("Ready").field(ready).finish(),
            Self::Notified(notified) => f.debug_tuple("Notified").field(notified).finish(),
            Self::Posted(message) => f.debug_tuple("Posted").field(message).finish(),
            Self::Removed(id, key) => f.debug_tuple("Removed").field(id).field(key).finish(),
            Self::Done(done) => f.debug_tuple("Done").field(done).finish(),
            Self::Finished(finished) => f.debug_tuple("Finished").field(finished).finish(),
        }
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

/// A packet of a persistent registration.
///
/// # Examples
///
/// ```
/// use completion_port::{Batch, Interest, Packet, Persistent, Port, Registration};
/// use std::net::UdpSocket;
///
/// let port = Port::<&str>::new()?;
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// port.register(Registration::new(&socket, "socket", Interest::OUT, Persistent::Edge))?;
/// for packet in port.wait(&mut Batch::new(), None)? {
///     let Packet::Notified(notified) = packet else { continue };
///     assert_eq!(*notified.key(), "socket");
///     assert!(notified.events().is_out());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Notified<K> {
    id: Id,
    events: Events,
    key: K,
}

impl<K> Notified<K> {
    /// The registration's name.
    #[must_use]
    pub fn id(&self) -> Id {
        self.id
    }

    /// The conditions that held.
    #[must_use]
    pub fn events(&self) -> Events {
        self.events
    }

    /// The clone of the key that came with this packet.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Keeps that clone.
    #[must_use]
    pub fn into_key(self) -> K {
        self.key
    }
}

impl<K> fmt::Debug for Notified<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notified")
            .field("id", &self.id)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

/// The packets of one wait. Each is moved out when the iterator comes to it.
///
/// What is left when it is dropped goes back to the front of the queue. If a thread is stuck with
/// one packet, an idle thread takes the rest from its iterator after a millisecond or two. A thread
/// that comes to wait may take them sooner.
///
/// The iterator cannot leave the thread that waited.
///
/// # Examples
///
/// ```
/// use completion_port::{Batch, Packet, Port};
///
/// let port: Port<(), u32> = Port::builder().build()?;
/// (1..=3).try_for_each(|number| port.post(number))?;
/// let mut batch = Batch::new();
/// let first = port.wait(&mut batch, None)?.next(); // the other two go back
/// assert!(matches!(first, Some(Packet::Posted(1))));
/// assert_eq!(port.wait(&mut batch, None)?.count(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "packets that are not taken go back to the queue"]
pub struct Packets<'b, 'p, K, M, B = Vec<u8>> {
    port: &'p Port<K, M, B>,
    scratch: &'b mut Scratch,
    room: usize,
    deadline: Option<Moment>,
    seat: Option<Rc<Membership>>,
    /// Whether there was a packet, or the wait is over without one.
    settled: bool,
    /// Packets bring clones of the keys, also those of one-shot registrations.
    clones: bool,
}

impl<'b, 'p, K, M, B> Packets<'b, 'p, K, M, B> {
    /// A wait that takes nothing.
    pub(crate) fn none(port: &'p Port<K, M, B>, scratch: &'b mut Scratch) -> Self {
        Self { port, scratch, room: 0, deadline: None, seat: None, settled: true, clones: false }
    }

    /// What a wait of `seat` has brought.
    pub(crate) fn waited(
        port: &'p Port<K, M, B>,
        scratch: &'b mut Scratch,
        room: usize,
        deadline: Option<Moment>,
        seat: Rc<Membership>,
        waited: Waited,
    ) -> Self {
        let settled = waited != Waited::Packets;
        let seat = Some(seat);
        let clones = false;
        Self { port, scratch, room, deadline, seat, settled, clones }
    }

    /// The same packets, with clones of all keys. How they are cloned must be known to the port.
    #[inline]
    pub(crate) fn with_clones(mut self) -> Self {
        self.clones = true;
        self
    }
}

impl<'p, K, M, B: Buffer> Packets<'_, 'p, K, M, B> {
    /// A packet whose key the caller owns now. The key stays in its cell.
    #[inline]
    fn ready(&self, slot: &'p Slot, index: u32, events: Events) -> Packet<'p, K, M, B> {
        let store = self.port.store();
        let cell = store.keys.cells.at(index);
        let held = Held { store, slot, cell, index, events, drained: Drained::NONE };
        Packet::Ready(Ready { held, key: PhantomData })
    }

    /// A packet of a posted message.
    #[inline]
    fn posted(&self, cell: u32, seat: &Seat) -> Packet<'p, K, M, B> {
        // SAFETY: `take` demands that the caller owns the cell, with a value in it.
        // - owned: the message's node came off the queue, and stands there once;
        // - a value: the message was put there before its node was queued.
        let message = unsafe { self.port.messages().take(cell) };
        self.port.engine().free_post(seat, cell);
        Packet::Posted(message)
    }

    /// Any packet; `None` if there is nothing for the caller in it.
    fn unpack(&self, taken: Taken<'p>, seat: &Seat) -> Option<Packet<'p, K, M, B>> {
        let engine = self.port.engine();
        let keys = &self.port.keys().cells;
        match taken {
            Taken::Ready(slot, name, events) => {
                if hears_packets() {
                    engine.tell_named(name, events);
                }
                Some(self.ready(slot, name_parts(name).0, events))
            }
            Taken::Posted(cell) => Some(self.posted(cell, seat)),
            Taken::Operation(record) => self.operation(record, seat),
            Taken::Notified(name, events) => {
                let key = {
                    // If the clone panics, this still gives the node back, and the packet is made
                    // again.
                    let mut node = Cloning { engine, name, seat, unreported: events };
                    let clone = self.port.clone_key().expect("set before the first such packet");
                    // SAFETY: `clone_with` demands that the caller owns the cell, with a value in
                    // it, until it returns.
                    // - owned: the node is this thread's until `node` is dropped;
                    // - a value: the key lies in its cell whenever the slot is not held.
                    let key = unsafe { keys.clone_with(name_parts(name).0, clone) };
                    node.unreported = Events::NONE;
                    key
                };
                if engine.forked() {
                    // The clone has forked, and this is the child.
                    return None;
                }
                if hears_packets() {
                    engine.tell_named(name, events);
                }
                Some(Packet::Notified(Notified { id: Id(name), events, key }))
            }
            Taken::Removed(name) => {
                // SAFETY: `take` demands that the caller owns the cell, with a value in it.
                // - owned: the node is this thread's and will not be queued again;
                // - a value: the key lies in its cell whenever the slot is not held.
                let key = unsafe { keys.take(name_parts(name).0) };
                engine.free(name);
                Some(Packet::Removed(Id(name), key))
            }
            Taken::Gone(name) => {
                engine.release_number(name);
                // SAFETY: `take` demands that the caller owns the cell, with a value in it.
                // - owned: the node is this thread's and will not be queued again;
                // - a value: the key lies in its cell whenever the slot is not held.
                let key = unsafe { keys.take(name_parts(name).0) };
                engine.free(name);
                drop(key);
                None
            }
        }
    }

    /// The next packet that the seat has been handed, of any kind, as [`Engine::next`]; whether there was
    /// one, and whether there is something for the caller in it.
    #[inline(never)]
    fn next_other(&self, seat: &Seat, first: Node) -> Option<Option<Packet<'p, K, M, B>>> {
        let engine = self.port.engine();
        if first == NIL
            && let Some(cell) = engine.next_posted(seat)
        {
            return Some(Some(self.posted(cell, seat)));
        }
        if first == NIL
            && let Some(record) = engine.next_operation(seat)
        {
            return Some(self.operation(record, seat));
        }
        let taken = engine.next(seat, first)?;
        Some(self.unpack(taken, seat))
    }

    /// A clone of the key of a node that came off the seat's chain, and has not had its turn.
    #[inline]
    fn clone_key(&self, index: u32) -> K {
        let clone = self.port.clone_key().expect("set before the first such wait");
        // If the clone panics, this still queues the node.
        let node = Unfinished { engine: self.port.engine(), index, turn: Turn::Check };
        // SAFETY: `clone_with` demands that the caller owns the cell, with a value in it, until
        // it returns.
        // - owned: the node came off the seat's chain, and has not had its turn;
        // - a value: the key lies in its cell whenever the slot is not held.
        let key = unsafe { self.port.keys().cells.clone_with(index, clone) };
        std::mem::forget(node);
        key
    }

    /// The next packet that the seat has been handed, with a clone of its key; whether there was one, and
    /// whether there is something for the caller in it.
    // Where it is called the key's token is, which would pass through memory if this were a part of it.
    #[inline(never)]
    fn next_clone(&self, seat: &Seat) -> Option<Option<Packet<'p, K, M, B>>> {
        let engine = self.port.engine();
        let Some((index, slot)) = engine.next_slot(seat) else {
            if seat.is_empty_handed() {
                return None;
            }
            return self.next_other_clone(seat, None);
        };
        let key = self.clone_key(index);
        // Unless the clone has forked, and this is the child.
        if !engine.forked()
            && let Some((name, events)) = engine.hand_and_park(seat, index, slot)
        {
            if hears_packets() {
                engine.tell_named(name, events);
            }
            return Some(Some(Packet::Notified(Notified { id: Id(name), events, key })));
        }
        self.next_other_clone(seat, Some((index, key)))
    }

    /// The same in all but the common case, which is a packet of a one-shot registration. `begun` is a slot whose key was
    /// cloned and whose turn has not come, and the clone, if one was taken.
    #[inline(never)]
    fn next_other_clone(
        &self,
        seat: &Seat,
        begun: Option<(u32, K)>,
    ) -> Option<Option<Packet<'p, K, M, B>>> {
        let engine = self.port.engine();
        let (first, mut made) = begun.map_or((NIL, None), |(index, key)| (index, Some(key)));
        let mut key = None;
        let taken = engine.next_by(seat, first, |index, slot| {
            let clone = made.take().unwrap_or_else(|| self.clone_key(index));
            if engine.forked() {
                // The clone has forked, and this is the child: what was handed to the parent is the
                // parent's.
                return Turn::Nothing;
            }
            let turn = slot.take_and_park();
            if let Turn::Held(_) | Turn::Cloned(_) = turn {
                key = Some(clone);
            } else {
                discard(engine, index, turn, clone);
            }
            turn
        })?;
        Some(match (taken, key) {
            (Taken::Ready(_, name, events), Some(key)) => {
                if hears_packets() {
                    engine.tell_named(name, events);
                }
                Some(Packet::Notified(Notified { id: Id(name), events, key }))
            }
            (Taken::Notified(name, events), Some(key)) => {
                engine.cloned(name, Events::NONE, Some(seat));
                if hears_packets() {
                    engine.tell_named(name, events);
                }
                Some(Packet::Notified(Notified { id: Id(name), events, key }))
            }
            (taken, _) => self.unpack(taken, seat),
        })
    }

    /// Ends the iterator, also if the thread has another packet later.
    #[inline]
    fn end(&mut self) -> Option<Packet<'p, K, M, B>> {
        self.seat = None;
        None
    }

    /// Waits for the rest of the time: what the thread was handed brought no packet, since it was
    /// disabled or drained meanwhile.
    #[cold]
    fn wait_on(&mut self) {
        let engine = self.port.engine();
        if engine.forked() {
            self.settled = true;
            return;
        }
        // The thread may have waited on another port since, and so given this seat up. Or it has
        // this seat for one wait only, and must give it up before it takes another.
        self.seat = None;
        let seat = take_seat(engine);
        let waited = engine.wait(&seat, self.scratch, self.room, self.deadline, self.port.store());
        self.seat = Some(seat);
        self.settled = waited != Waited::Packets;
    }
}

/// A node that needs something done after user code has been called. The drop does it if that code
/// panics.
struct Unfinished<'e> {
    engine: &'e Engine,
    index: u32,
    /// What its turn was; [`Turn::Check`] if it has had none yet.
    turn: Turn,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        match self.turn {
            Turn::Check | Turn::Removed | Turn::Gone => self.engine.queue_again(self.index),
            Turn::Collect => self.engine.announce_collected(),
            // Nothing is left to be done, or there is a packet that has the clone.
            Turn::Nothing | Turn::Held(_) | Turn::Cloned(_) => {}
        }
    }
}

/// Drops a clone that was made for a packet, of a node whose turn was something else.
#[cold]
#[inline(never)]
fn discard<K>(engine: &Engine, index: u32, turn: Turn, clone: K) {
    let node = Unfinished { engine, index, turn };
    drop(clone);
    std::mem::forget(node);
}

/// A node whose key is being cloned.
struct Cloning<'e> {
    engine: &'e Engine,
    name: Name,
    seat: &'e Seat,
    /// What no packet will report if the clone panics.
    unreported: Events,
}

impl Drop for Cloning<'_> {
    fn drop(&mut self) {
        self.engine.cloned(self.name, self.unreported, Some(self.seat));
    }
}

impl<'p, K, M, B: Buffer> Iterator for Packets<'_, 'p, K, M, B> {
    type Item = Packet<'p, K, M, B>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let engine = self.port.engine();
        if engine.forked() {
            // What was handed to the parent is the parent's.
            return None;
        }
        loop {
            let seat = self.seat.as_ref()?;
            let taken = if self.clones {
                self.next_clone(seat)
            } else {
                match engine.next_ready(seat) {
                    Ok((index, slot, events)) => {
                        self.settled = true;
                        if hears_packets() {
                            engine.tell_reported(index, events);
                        }
                        return Some(self.ready(slot, index, events));
                    }
                    Err(NIL) if self.settled && seat.is_empty_handed() => return self.end(),
                    Err(first) => self.next_other(seat, first),
                }
            };
            match taken {
                Some(Some(packet)) => {
                    self.settled = true;
                    return Some(packet);
                }
                None if self.settled => return self.end(),
                // A clone of a key has forked, and this is the child.
                _ if engine.forked() => return None,
                Some(None) => {}
                None => self.wait_on(),
            }
        }
    }
}

impl<K, M, B: Buffer> FusedIterator for Packets<'_, '_, K, M, B> {}

impl<K, M, B> Drop for Packets<'_, '_, K, M, B> {
    fn drop(&mut self) {
        if let Some(seat) = &self.seat {
            self.port.engine().give_back(seat);
        }
    }
}

impl<K, M, B> fmt::Debug for Packets<'_, '_, K, M, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packets").field("room", &self.room).finish_non_exhaustive()
    }
}
