//! The layer for bindings to other languages: registrations by number, packets with cloned keys.
//!
//! A [`Port`] moves its keys to handlers and back, and [`Ready`](crate::Ready) tokens ensure that
//! only one thread at a time uses a key. Other languages have neither. A handler there knows a
//! descriptor only by its number, a key is a word that any part of the program may copy, and any
//! thread may enable a registration at any time.
//!
//! [`Port::raw`] offers what such bindings need: calls that take numbers, packets with clones of
//! the keys, and hints that the port asks for late. The C library is built on these calls.
//!
//! A program may mix both kinds of calls on the same port. Nothing here is unsafe. With these
//! calls, however, the port doesn't know the owner of a descriptor. If you close a number without
//! [`Raw::forget`] or [`Port::remove`], the rules for borrowed descriptors apply: see
//! [`Registration::new`].
//!
//! # Examples
//!
//! ```
//! use completion_port::raw::Hints;
//! use completion_port::{Batch, Interest, OneShot, Packet, Port};
//! use std::net::UdpSocket;
//! # #[cfg(windows)]
//! # trait AsRawFd: std::os::windows::io::AsRawSocket {
//! #     fn as_raw_fd(&self) -> i32 {
//! #         self.as_raw_socket().try_into().unwrap()
//! #     }
//! # }
//! # #[cfg(windows)]
//! # impl AsRawFd for UdpSocket {}
//! # #[cfg(unix)]
//! use std::os::fd::AsRawFd;
//!
//! let port = Port::new()?;
//! let socket = UdpSocket::bind("127.0.0.1:0")?;
//! let raw = port.raw();
//! let id = raw.register_number(socket.as_raw_fd(), 7_usize, Interest::OUT, OneShot::Level)?;
//! for _ in 0..2 {
//!     let mut batch = Batch::new();
//!     let packet = raw.wait_cloned(&mut batch, None)?.next();
//!     let Some(Packet::Notified(notified)) = packet else { panic!("{packet:?}") };
//!     assert_eq!((notified.id(), *notified.key()), (id, 7));
//!     raw.enable(id, Interest::OUT, OneShot::Level, Hints::default)?; // there is no token
//! }
//! assert!(raw.is_current(id));
//! raw.forget(id)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file_task;
mod task;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{DeferredWork, name_parts};
use crate::port::Port;
use crate::port::batch::Batch;
use crate::port::current::own_worker;
use crate::port::operation::{OpId, SharedId, Started};
use crate::port::packets::Packets;
pub use crate::port::raw::file_task::{
    FileEnd, FileTask, FileTaskId, FileTasks, FileWork, OpenFile, ReadNow,
};
pub use crate::port::raw::task::{Attempt, Ending, Side, Task};
use crate::port::registration::{Id, Registration};
pub use crate::state::operations::EdgeNotes;
use crate::state::slot::Drained;
use crate::types::error::{Refused, Result};
use crate::types::fd::RawFd;
use crate::types::interest::Direction;
use crate::types::interest::{Interest, Mode, OneShot, Persistent};
use crate::types::trigger::{Terms, Trigger, sealed};

/// A trigger of either kind, chosen at run time.
///
/// Like [`Persistent`], it requires a key that can be cloned.
///
/// # Examples
///
/// ```
/// use completion_port::raw::AnyTrigger;
/// use completion_port::{Interest, OneShot, Persistent, Registration};
/// use std::net::UdpSocket;
///
/// let is_once = std::env::args().count() == 1;
/// let trigger: AnyTrigger =
///     if is_once { OneShot::Level.into() } else { Persistent::Level.into() };
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// let _ = Registration::new(&socket, 7, Interest::IN, trigger);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "there is no third kind")]
pub enum AnyTrigger {
    /// A packet disables the registration.
    OneShot(OneShot),
    /// The registration stays enabled.
    Persistent(Persistent),
}

impl From<OneShot> for AnyTrigger {
    fn from(trigger: OneShot) -> Self {
        Self::OneShot(trigger)
    }
}

impl From<Persistent> for AnyTrigger {
    fn from(trigger: Persistent) -> Self {
        Self::Persistent(trigger)
    }
}

impl<K: Clone> Trigger<K> for AnyTrigger {}

impl<K: Clone> sealed::Trigger<K> for AnyTrigger {
    #[inline]
    fn terms(self, interest: Interest) -> Terms<K> {
        let (edge, one_shot) = match self {
            Self::OneShot(trigger) => (trigger == OneShot::Edge, true),
            Self::Persistent(trigger) => (trigger == Persistent::Edge, false),
        };
        // Both kinds say how to clone keys, so that only the mode depends on the kind.
        Terms { mode: Mode { interest, edge, one_shot }, clone: Some(K::clone) }
    }
}

/// What is known about a descriptor when its registration is enabled again. By default, nothing.
///
/// The facts must have been established after the last packet of the registration was taken, and
/// before it is enabled. [`Ready::read_drained`](crate::Ready::read_drained) says when a hint is
/// true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "hints do nothing until a registration is enabled with them"]
pub struct Hints(Drained);

impl Hints {
    /// Creates hints: whether the next read would block, and whether the next write would.
    pub const fn new(read_drained: bool, write_full: bool) -> Self {
        Self(Drained::of_both(read_drained, write_full))
    }
}

/// The calls of a port that are meant for bindings to other languages. [`Port::raw`] returns it.
///
/// It is a view of the port. Making and copying it costs nothing.
pub struct Raw<'p, K, M = (), B = Vec<u8>> {
    port: &'p Port<K, M, B>,
}

impl<K, M, B> Clone for Raw<'_, K, M, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, M, B> Copy for Raw<'_, K, M, B> {}

impl<K, M, B> fmt::Debug for Raw<'_, K, M, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Raw").field(self.port).finish()
    }
}

impl<'p, K, M, B> Raw<'p, K, M, B> {
    #[inline]
    pub(crate) fn new(port: &'p Port<K, M, B>) -> Self {
        Self { port }
    }
}

impl<'p, K: Clone, M, B> Raw<'p, K, M, B> {
    /// Registers a descriptor by its number.
    ///
    /// Works like [`Port::register`], for a descriptor that the caller keeps.
    ///
    /// # Errors
    ///
    /// As for [`Port::register`]. A number that names no descriptor is refused with
    /// [`ErrorKind::BadDescriptor`](crate::ErrorKind::BadDescriptor), without using memory.
    #[inline]
    pub fn register_number(
        self,
        descriptor: RawFd,
        key: K,
        interest: Interest,
        trigger: impl Trigger<K>,
    ) -> Result<Id, Refused<K>> {
        self.port.register(Registration::numbered(descriptor, key, trigger.terms(interest)))
    }

    /// Associates a descriptor by its number.
    ///
    /// Tasks and operations are started by the association's name. You can also enable it for
    /// readiness, with a persistent trigger.
    ///
    /// The key must be [`Sync`], as for [`Port::associate_shared`]: several threads may take
    /// packets of the association simultaneously, and each of them clones the key.
    ///
    /// # Errors
    ///
    /// As for [`Raw::register_number`].
    pub fn associate_number(self, descriptor: RawFd, key: K) -> Result<SharedId, Refused<K>>
    where
        K: Sync,
    {
        let mode = Mode { interest: Interest::NONE, edge: false, one_shot: false };
        let terms = Terms { mode, clone: Some(K::clone) };
        self.port.associate_number(Registration::numbered(descriptor, key, terms))
    }

    /// Enables a registration by its name and overwrites its filter and trigger.
    ///
    /// Works like [`Port::enable`], with hints that save asking the kernel whether a condition
    /// still holds. The port calls `hints`, perhaps more than once, after it has read the state
    /// that it is about to change. So if the key counts its clones, `hints` sees the clone of every
    /// packet that was taken before.
    ///
    /// # Threads
    ///
    /// If you give hints, no other thread may enable this registration at the same time. A hint
    /// that predates an intervening packet is wrong: unread data is then reported only when more
    /// arrives.
    ///
    /// # Errors
    ///
    /// As for [`Port::enable`].
    #[inline]
    pub fn enable(
        self,
        id: Id,
        interest: Interest,
        trigger: impl Trigger<K>,
        hints: impl Fn() -> Hints,
    ) -> Result<()> {
        self.port.enable_with(id, trigger.terms(interest), || hints().0)
    }

    /// Waits for packets, each with a clone of its key.
    ///
    /// Works like [`Port::wait`], except that every packet of a registration is
    /// [`Packet::Notified`](crate::Packet::Notified). A one-shot registration keeps its key and is
    /// disabled until a call enables it by its name.
    ///
    /// The port clones the key before it takes the packet. So a key that counts its clones shows
    /// whether a packet was taken since.
    ///
    /// # Waiting
    ///
    /// As for [`Port::wait`].
    ///
    /// # Errors
    ///
    /// As for [`Port::wait`].
    #[inline]
    pub fn wait_cloned<'b>(
        self,
        batch: &'b mut Batch,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Packets<'b, 'p, K, M, B>> {
        self.port.keys().know_clone(Some(K::clone));
        self.port.wait(batch, timeout).map(Packets::with_clones)
    }
}

impl<K, M, B: Task> Raw<'_, K, M, B> {
    /// Starts a task of an association.
    ///
    /// If no other task or operation of its side is in flight and the descriptor appears to be
    /// ready, this call tries the task immediately. If that completes the task, the call returns it
    /// and doesn't call [`Task::end`].
    ///
    /// While a task is in flight, readiness of its side belongs to it and is not reported.
    /// [`Port::cancel`] cancels it.
    ///
    /// # Errors
    ///
    /// As for [`Port::start`]. The error returns the task.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::raw::{Attempt, Ending, Side, Task};
    /// use completion_port::{Batch, Buffer, Port, Started};
    /// use std::io::{ErrorKind, Read, Write};
    /// use std::mem::MaybeUninit;
    /// use std::net::{TcpListener, TcpStream};
    /// # #[cfg(windows)]
    /// # trait AsRawFd: std::os::windows::io::AsRawSocket {
    /// #     fn as_raw_fd(&self) -> i32 {
    /// #         self.as_raw_socket().try_into().unwrap()
    /// #     }
    /// # }
    /// # #[cfg(windows)]
    /// # impl AsRawFd for TcpStream {}
    /// # #[cfg(windows)]
    /// # type RawFd = i32;
    /// # #[cfg(unix)]
    /// use std::os::fd::{AsRawFd, RawFd};
    /// use std::sync::mpsc::{Sender, channel};
    ///
    /// /// Reads a byte, and sends it on.
    /// struct ReadByte(TcpStream, Option<u8>, Sender<u8>);
    ///
    /// // SAFETY: there is no room.
    /// unsafe impl Buffer for ReadByte {
    ///     fn filled<'b>(&'b self, _: &mut dyn FnMut(&'b [u8])) {}
    ///     unsafe fn room<'b>(&'b mut self, _: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {}
    ///     unsafe fn set_filled(&mut self, _: usize) {}
    /// }
    ///
    /// impl Task for ReadByte {
    ///     fn attempt(&mut self, _: RawFd) -> Attempt {
    ///         let mut byte = [0];
    ///         match self.0.read(&mut byte) {
    ///             Err(error) if error.kind() == ErrorKind::WouldBlock => Attempt::Blocked,
    ///             outcome => {
    ///                 self.1 = outcome.is_ok().then_some(byte[0]);
    ///                 Attempt::Done
    ///             }
    ///         }
    ///     }
    ///     fn end(self, _: Ending) {
    ///         let _ = self.1.map(|byte| self.2.send(byte));
    ///     }
    /// }
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut far, _) = listener.accept()?;
    /// near.set_nonblocking(true)?;
    /// let (sender, receiver) = channel();
    /// let port: Port<u32, (), ReadByte> = Port::builder().buffers().build()?;
    /// let id = port.raw().associate_number(near.as_raw_fd(), 7)?;
    /// let task = ReadByte(near, None, sender);
    /// let started = port.raw().start_task(id, Side::In, task).map_err(|it| it.error())?;
    /// assert!(matches!(started, Started::InFlight(_)));
    /// far.write_all(b"x")?;
    /// // No packet tells of it.
    /// assert!(!port.raw().has_packets(&mut Batch::new())?);
    /// assert_eq!(receiver.recv(), Ok(b'x'));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_task(
        self,
        id: SharedId,
        side: Side,
        task: B,
    ) -> Result<Started<(B, Ending)>, Refused<B>> {
        let direction = match side {
            Side::In => Direction::In,
            Side::Out => Direction::Out,
        };
        self.port.start_task(id, direction, task)
    }
}

impl<'p, K, M, B> Raw<'p, K, M, B> {
    /// Tries the work of a [task](Task) before the task is made.
    ///
    /// Work that can be done immediately needs no task, and no memory for one.
    ///
    /// If no operation of this side is in flight and the descriptor may be ready, this calls
    /// `attempt` once, as the port would call [`Task::attempt`]. Meanwhile, operations of the same
    /// side that other threads start wait for this call to end.
    ///
    /// Returns true if the attempt returned [`Done`](Attempt::Done) or
    /// [`Drained`](Attempt::Drained). Otherwise the caller starts a task with [`Raw::start_task`],
    /// which returns an error if the association doesn't exist or the port is closed. Another
    /// thread's operation may have started before that task.
    ///
    /// If a `tracing` subscriber receives packet events, this doesn't call `attempt` and returns
    /// false. The task's events then describe the work.
    ///
    /// The attempt runs without any lock of the port. It must not call `try_now` for the same side
    /// of the same association and wait for the result.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::Port;
    /// use completion_port::raw::{Attempt, Side};
    /// use std::io::{ErrorKind, Write};
    /// use std::net::{TcpListener, TcpStream};
    /// # #[cfg(windows)]
    /// # trait AsRawFd: std::os::windows::io::AsRawSocket {
    /// #     fn as_raw_fd(&self) -> i32 {
    /// #         self.as_raw_socket().try_into().unwrap()
    /// #     }
    /// # }
    /// # #[cfg(windows)]
    /// # impl AsRawFd for TcpStream {}
    /// # #[cfg(unix)]
    /// use std::os::fd::AsRawFd;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let socket = TcpStream::connect(listener.local_addr()?)?;
    /// socket.set_nonblocking(true)?;
    /// let port: Port<u32> = Port::new()?;
    /// let id = port.raw().associate_number(socket.as_raw_fd(), 7).map_err(|it| it.error())?;
    /// let mut sent = Ok(0);
    /// let is_done = port.raw().try_now(id, Side::Out, |_| {
    ///     sent = (&socket).write(b"hello");
    ///     match &sent {
    ///         Err(error) if error.kind() == ErrorKind::WouldBlock => Attempt::Blocked,
    ///         _ => Attempt::Done,
    ///     }
    /// });
    /// assert!(is_done);
    /// assert_eq!(sent?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn try_now(self, id: SharedId, side: Side, attempt: impl FnOnce(RawFd) -> Attempt) -> bool {
        let direction = match side {
            Side::In => Direction::In,
            Side::Out => Direction::Out,
        };
        self.port.try_now(id, direction, attempt)
    }

    /// Does what [`Raw::try_now`] does, for a caller that lets no other thread use this side of the
    /// association meanwhile. It costs the port no lock.
    ///
    /// Until this call has returned, no other thread may start an operation of this side, try work
    /// of it, or change or remove the association. For example, the caller has a lock that all of
    /// these take. Otherwise two operations of one side may run at the same time, or an attempt
    /// after the end of its association. `id` is that of an association of this port.
    ///
    /// The port does not learn what the attempt finds. After [`Blocked`](Attempt::Blocked) or
    /// [`Drained`](Attempt::Drained), it believes that the side is ready, and the next operation of
    /// the side is tried for nothing. So this is for sends, which rarely find that. An association
    /// that is also enabled is left to [`Raw::start_task`]: this returns false without a call of
    /// `attempt`.
    ///
    /// # Examples
    ///
    /// As for [`Raw::try_now`], with this call instead.
    #[inline]
    pub fn try_exclusively(
        self,
        id: SharedId,
        side: Side,
        attempt: impl FnOnce(RawFd) -> Attempt,
    ) -> bool {
        let direction = match side {
            Side::In => Direction::In,
            Side::Out => Direction::Out,
        };
        self.port.try_exclusively(id, direction, attempt)
    }

    /// Retries the first task of this side without further delay.
    ///
    /// Call this when the resource that an [`OutOfResources`](Attempt::OutOfResources) task waits
    /// for has become available, or when an [`Idle`](Attempt::Idle) task has something to do. A
    /// thread that waits on the port, or the next one that does, retries the task. If the task is
    /// being tried right now and returns one of these, it is tried once more. A task that waits for its descriptor may be tried unnecessarily. If there
    /// is no task or no such registration, nothing happens.
    ///
    /// # Threads
    ///
    /// Any thread that holds none of the port's locks may call this, including inside an
    /// [attempt](Task::attempt).
    pub fn retry(self, id: SharedId, side: Side) {
        let direction = match side {
            Side::In => Direction::In,
            Side::Out => Direction::Out,
        };
        self.port.engine().pull_in(id.id().0, direction);
    }

    /// Has the port take part in what a [task](Task) in flight and its program tell each other about
    /// edges, as [`EdgeNotes`] describes.
    ///
    /// From now on, while the task waits and none of its work does, an edge is only noted. That costs
    /// little more than the kernel's report. In these cases an edge still has the task tried:
    ///
    /// - The task is being tried, and that attempt returns [`Idle`](Attempt::Idle) or
    ///   [`Blocked`](Attempt::Blocked).
    /// - The descriptor has reported an end, an error or urgent data, now or before.
    ///
    /// Of several calls for tasks of the same side, the last one counts. If the task has ended, if the
    /// name is not that of a task, or in a forked child, nothing happens.
    ///
    /// # Platform notes
    ///
    /// On Windows, nothing happens: each edge has the task tried.
    ///
    /// # Threads
    ///
    /// Any thread that holds none of the port's locks may call this, including inside an
    /// [attempt](Task::attempt). It runs no task.
    pub fn keep_edge_notes(self, task: OpId, notes: &Arc<EdgeNotes>) {
        self.port.engine().keep_edge_notes(task.0, notes);
    }

    /// Returns the calls that run operations on files with this port's file engine, and call their
    /// ends.
    #[must_use]
    pub fn file_tasks<T: FileTask>(self) -> FileTasks<'p, T> {
        FileTasks::new(self.port.engine())
    }

    /// Posts a message that reports a finished [task](Task).
    ///
    /// Works like [`Port::post`](crate::Port::post), but no other thread is woken for this packet
    /// alone. If the calling thread runs handlers of this port, it soon returns to its wait and
    /// takes the packet itself. If it completed the task within its wait, it delivers the packet as
    /// it delivers kernel events. As with these, a thread that returns to its wait may leave the
    /// packet to others.
    ///
    /// # Errors
    ///
    /// As for [`Port::post`](crate::Port::post).
    pub fn post_found(self, message: M) -> Result<(), Refused<M>> {
        self.port.post_found(message)
    }

    /// Runs deferred tasks.
    ///
    /// A call that starts or cancels a task, or ends a registration, may defer attempts at tasks
    /// and their ends. The calling thread then calls this. Waits and [`Raw::has_packets`] run all
    /// deferred tasks as well.
    ///
    /// The caller must not hold a lock that the [end](Task::end) of a task acquires.
    #[inline]
    pub fn run_deferred(self) {
        self.port.store().run_deferred();
    }

    /// Ends a registration immediately and without a packet, as if its descriptor had been closed.
    ///
    /// The call drops the key. If a handler holds the key, the key is dropped when the handler
    /// returns it. A packet that another thread has taken stays with that thread.
    ///
    /// The descriptor should still be open. Then nothing remains in the kernel, even if the
    /// descriptor has duplicates.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotRegistered`](crate::ErrorKind::NotRegistered) if there is no such
    /// registration, or if it is being removed: its last packet still arrives.
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    #[inline]
    pub fn forget(self, id: Id) -> Result<()> {
        if self.port.engine().forget(id.0)? {
            // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
            // - owned: `forget` has made the node this thread's;
            // - a value: the key is in its cell whenever the slot is not held.
            let key = unsafe { self.port.keys().cells.take(name_parts(id.0).0) };
            self.port.engine().free(id.0);
            drop(key);
        }
        Ok(())
    }

    /// Checks that a registration continues and that its number still names the registered
    /// descriptor.
    ///
    /// Returns false if that descriptor has been closed since, even if its number is in use again.
    /// Makes a system call.
    #[inline]
    #[must_use]
    pub fn is_current(self, id: Id) -> bool {
        self.port.engine().is_current(id.0)
    }

    /// Returns how many packets to take at a time if they can't return to the queue.
    ///
    /// Use this if the caller moves packets into its own memory before it handles them, as a C
    /// program or a runtime with queues does. Packets that stay in the iterator of a wait go to
    /// another thread if the handler of an earlier one sleeps or runs for long. Packets that the
    /// caller has moved wait until that handler ends.
    ///
    /// The number is normally `usize::MAX`. It drops to 64 when a thread is found that sleeps for a
    /// millisecond, and to 1 after four such sleeps, each found within 100 ms of the one before, or
    /// when a thread is stuck for some milliseconds with the packets it took. It rises again step by
    /// step while no such thread is found. Each time it rose too soon, the next rise takes longer.
    ///
    /// Pass the number to [`Batch::set_capacity`]; the port itself does not enforce it. It may
    /// change at any time. Reading it costs almost nothing while there is no limit.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Port};
    /// use std::time::Duration;
    ///
    /// let port: Port<(), u32> = Port::builder().build()?;
    /// port.post(7)?;
    /// let raw = port.raw();
    /// let mut batch = Batch::new();
    /// batch.set_capacity(raw.advised_room().min(64));
    /// let taken: Vec<_> = raw.wait_cloned(&mut batch, Duration::ZERO)?.collect();
    /// assert_eq!(taken.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn advised_room(self) -> usize {
        self.port.engine().advised_room()
    }

    /// Checks whether a packet is queued, so that a wait would return one if its thread may run.
    ///
    /// The call takes no packet, and the calling thread does not count as waiting or running.
    /// First, the call queues what the kernel has to report, unless a thread is in the kernel's
    /// wait: then that thread does so. The call also runs [tasks](Task).
    ///
    /// Packets that remain in the calling thread's own iterator count, since its next wait takes
    /// them. Packets in another thread's iterator, or that another thread is checking, do not
    /// count. Nor does a packet whose registration was enabled again since, because that needs a
    /// check.
    ///
    /// A registration that was disabled or changed while its packet was queued may leave an entry
    /// without a packet in the queue. One call examines at most 256 entries, and moves those
    /// without a packet to the end of the queue. If more of them precede the first packet, the call
    /// may return false; a later call, or a wait, finds the packet.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Closed`](crate::ErrorKind::Closed): the port is closed and empty.
    /// - [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    /// - As for [`Port::wait`], if the call finds no packet and the system permanently refuses to
    ///   report readiness.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Port};
    ///
    /// let port: Port<(), u32> = Port::builder().build()?;
    /// let mut batch = Batch::new();
    /// assert!(!port.raw().has_packets(&mut batch)?);
    /// port.post(1)?;
    /// assert!(port.raw().has_packets(&mut batch)?);
    /// assert_eq!(port.wait(&mut batch, None)?.count(), 1);
    /// assert!(!port.raw().has_packets(&mut batch)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn has_packets(self, batch: &mut Batch) -> Result<bool> {
        let own = own_worker(self.port.engine());
        let mut look = || self.port.engine().has_packets(own.as_deref(), &mut batch.scratch);
        loop {
            let found = look()?;
            // After each look, which may have deferred work. Tasks may post as they end.
            let has_gone_on = self.port.store().run_deferred();
            if found || !has_gone_on {
                return Ok(found);
            }
        }
    }

    /// Queues what the kernel has to report, and runs tasks.
    ///
    /// If a thread is in the kernel's wait, that thread queues the kernel's reports instead. The
    /// call takes no packet, and the calling thread does not count as waiting or running. Use this
    /// in a thread that looks after a port on which perhaps no thread waits. Unlike
    /// [`Raw::has_packets`], it asks the kernel even if something is already queued.
    ///
    /// # Errors
    ///
    /// As for [`Raw::has_packets`].
    pub fn drive(self, batch: &mut Batch) -> Result<()> {
        loop {
            self.port.engine().drive(&mut batch.scratch)?;
            if !self.port.store().run_deferred() {
                return Ok(());
            }
        }
    }

    /// Closes the port and leaves its queue as it is.
    ///
    /// All waits end immediately with [`ErrorKind::Closed`](crate::ErrorKind::Closed), and the
    /// port's descriptors can be registered elsewhere.
    ///
    /// To take the queued packets, call [`Port::close`]. To get every key back, call
    /// [`Port::shutdown`].
    #[inline]
    pub fn abandon(self) {
        if !self.port.engine().forked() {
            self.port.engine().abandon();
        }
    }

    /// Returns true in a forked child of the process that made the port. There, every other call
    /// fails with [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    #[inline]
    #[must_use]
    pub fn is_forked(self) -> bool {
        self.port.engine().forked()
    }
}
