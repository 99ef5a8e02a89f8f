//! The layer for bindings to other languages: registrations by number, packets by clone.
//!
//! A [`Port`] moves its keys to handlers and back, and its [`Ready`](crate::Ready) tokens see to it
//! that a key is used by one thread at a time. Other languages have neither: a handler there knows
//! a descriptor by its number alone, a key is a word that any part of the program may copy, and any
//! thread may enable a registration at any time.
//!
//! What they need instead is behind [`Port::raw`]: calls that take numbers, packets that bring
//! copies, and hints that the port asks for late. The C library is built on these calls.
//!
//! A program may make both kinds of calls on the same port. Nothing here is unsafe. What these
//! calls give up is that the port knows the owner of a descriptor. A number that is closed without
//! [`Raw::forget`] or [`Port::remove`] is treated as [`Registration::new`] says of a borrowed
//! descriptor.
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
use std::time::Duration;

use crate::engine::{DeferredWork, name_parts};
use crate::port::Port;
use crate::port::batch::Batch;
use crate::port::current::current_worker;
use crate::port::operation::{SharedId, Started};
use crate::port::packets::Packets;
pub use crate::port::raw::file_task::{
    FileEnd, FileTask, FileTaskId, FileTasks, FileWork, OpenFile, ReadNow,
};
pub use crate::port::raw::task::{Attempt, Ending, Side, Task};
use crate::port::registration::{Id, Registration};
use crate::state::slot::Drained;
use crate::types::error::{Refused, Result};
use crate::types::fd::RawFd;
use crate::types::interest::Direction;
use crate::types::interest::{Interest, Mode, OneShot, Persistent};
use crate::types::trigger::{Terms, Trigger, sealed};

/// A trigger of either kind, chosen while the program runs.
///
/// It goes with keys that can be cloned, as [`Persistent`] does.
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
        // Of either kind how keys are cloned, so that nothing depends on the kind but the mode.
        Terms { mode: Mode { interest, edge, one_shot }, clone: Some(K::clone) }
    }
}

/// What is known about a descriptor when its registration is enabled again: nothing, unless said.
///
/// It must have been found out after the last packet of the registration was taken, and before it is
/// enabled. See [`Ready::read_drained`](crate::Ready::read_drained) for when that is so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "hints do nothing until a registration is enabled with them"]
pub struct Hints(Drained);

impl Hints {
    /// Whether the next read would block, and whether the next write would.
    pub const fn new(read_drained: bool, write_full: bool) -> Self {
        Self(Drained::of_both(read_drained, write_full))
    }
}

/// The calls of a port that are for bindings to other languages; [`Port::raw`] makes it.
///
/// It is a view of the port, which costs nothing to make and to copy.
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
    /// Registers a descriptor by its number. As [`Port::register`], for a descriptor that stays with
    /// the caller.
    ///
    /// # Errors
    ///
    /// As for [`Port::register`]. A number that names nothing, or is none, is refused with
    /// [`ErrorKind::BadDescriptor`](crate::ErrorKind::BadDescriptor), and costs no memory.
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

    /// Associates a descriptor by its number: tasks and operations are started by the association's name. It may be enabled
    /// for readiness besides, with a persistent trigger.
    ///
    /// The key is [`Sync`], as for [`Port::associate_shared`]: several threads may take packets of the association at the
    /// same time, and each of them clones the key.
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

    /// Enables a registration by its name, and overwrites its filter and trigger. As
    /// [`Port::enable`], with hints that spare the kernel the question whether a condition still
    /// holds. The port calls `hints`, perhaps more than once, after it has read the state that it
    /// is about to change. So if the clones of a key count, `hints` sees the clone of every packet
    /// that was taken before.
    ///
    /// # Threads
    ///
    /// With hints, no other thread may enable this registration meanwhile: a hint that is older than a packet
    /// in between is a wrong one, and what is left to read then is reported only when more arrives.
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

    /// Waits for packets, as [`Port::wait`]; but each packet of a registration is
    /// [`Packet::Notified`](crate::Packet::Notified), with a clone of the key. One that is one-shot
    /// keeps its key, and is disabled until a call enables it by its name.
    ///
    /// The key is cloned before the packet is taken: a clone that counts tells whether a packet was
    /// taken since.
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
    /// Starts a task of an association. If nothing else of its side is in flight, and that is ready as far as is
    /// known, the task is tried at once; if it is done by that it comes back, and is not told of its end.
    ///
    /// As long as it is in flight, readiness of its side is its own and is not reported. [`Port::cancel`] cancels it.
    ///
    /// # Errors
    ///
    /// As for [`Port::start`]; the task comes back.
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
    /// Tries the work of a [task](Task) before the task is made. Work that can be done immediately needs no task, and no
    /// memory for one.
    ///
    /// If no operation of this side is in flight, and the descriptor may be ready, this calls `attempt` once, as the port
    /// would call [`Task::attempt`]. Operations of the same side that other threads start meanwhile wait for the end of
    /// this call.
    ///
    /// Returns true if the attempt has returned [`Done`](Attempt::Done) or [`Drained`](Attempt::Drained).
    /// Otherwise the caller starts a task by [`Raw::start_task`], which returns an error if there is no such
    /// association or the port is closed. Another thread's operation may have been started before that task.
    ///
    /// If a `tracing` subscriber receives events of packets, this calls nothing and returns false. The events of the
    /// task then describe the work.
    ///
    /// The attempt runs without any lock of the port. It must not call `try_now` for the same side of the same association
    /// and wait for the result.
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

    /// Says that what the first task of this side has waited for is there: one that was [`OutOfResources`](Attempt::OutOfResources) is
    /// tried without further delay, by a thread that waits or comes to wait. If it is being tried just now, and says that
    /// it lacks something, it is tried once more. One that waits for its descriptor may be tried once too often. Nothing
    /// else happens, also if there is no task or no such registration.
    ///
    /// Any thread may call it that has none of the port's locks, also inside an [attempt](Task::attempt).
    pub fn retry(self, id: SharedId, side: Side) {
        let direction = match side {
            Side::In => Direction::In,
            Side::Out => Direction::Out,
        };
        self.port.engine().pull_in(id.id().0, direction);
    }

    /// What carries operations on files out by this port's file engine, and calls their ends.
    #[must_use]
    pub fn file_tasks<T: FileTask>(self) -> FileTasks<'p, T> {
        FileTasks::new(self.port.engine())
    }

    /// Posts a message that tells of a finished [task](Task), as [`Port::post`](crate::Port::post) does. It is the calling thread's own
    /// doing: if that runs at the port, it soon comes back and takes the packet itself. If the thread has found the end within its
    /// wait, it hands the packet out as it does what the kernel has reported. So no other thread is woken for a packet alone.
    ///
    /// # Errors
    ///
    /// As for [`Port::post`](crate::Port::post).
    pub fn post_found(self, message: M) -> Result<(), Refused<M>> {
        self.port.post_found(message)
    }

    /// Goes on with the tasks that a call of this thread has left to be gone on with: one that starts or cancels a
    /// task, and one that ends a registration, may do so. A wait, and [`Raw::has_packets`], go on with all of them.
    ///
    /// No lock may be held that the [end](Task::end) of a task wants.
    #[inline]
    pub fn run_deferred(self) {
        self.port.store().run_deferred();
    }

    /// Ends a registration at once and without a packet, as if its descriptor had been closed. Its
    /// key is dropped; a key that is out with a handler is dropped when the handler gives it back.
    /// A packet that another thread has taken stays with that thread.
    ///
    /// The descriptor should still be open. Then nothing is left behind in the kernel, even if
    /// there are duplicates.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotRegistered`](crate::ErrorKind::NotRegistered) if there is no such
    /// registration, or if it is being removed: its last packet comes all the same.
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    #[inline]
    pub fn forget(self, id: Id) -> Result<()> {
        if self.port.engine().forget(id.0)? {
            // SAFETY: `take` demands that the caller owns the cell, with a value in it.
            // - owned: `forget` has made the node this thread's;
            // - a value: the key lies in its cell whenever the slot is not held.
            let key = unsafe { self.port.keys().cells.take(name_parts(id.0).0) };
            self.port.engine().free(id.0);
            drop(key);
        }
        Ok(())
    }

    /// Whether a registration goes on and its number still names the descriptor that was
    /// registered. False if that descriptor was closed since, even if its number has been given out
    /// again. Makes a system call.
    #[inline]
    #[must_use]
    pub fn is_current(self, id: Id) -> bool {
        self.port.engine().is_current(id.0)
    }

    /// How many packets to take at a time if none of them can be given back, since the caller moves them
    /// into memory of its own before it handles them: what a C program does, or a runtime with queues.
    ///
    /// Packets that are left in the iterator of a wait go to another thread if the handler of an
    /// earlier one sleeps or goes on for long. Packets that the caller has moved wait for that
    /// handler to end.
    ///
    /// Usually the number is `usize::MAX`. It goes down to 1 once a thread is found asleep, or
    /// stuck for some milliseconds with what it took. It goes up again step by step while no thread
    /// is found so. Each time that this was too soon, the next rise takes longer.
    ///
    /// Hand the number to [`Batch::set_capacity`]; the port itself does not enforce it. It may
    /// change at any time. Reading it costs next to nothing as long as there is no limit.
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

    /// Whether a packet is queued, that is, whether a wait would bring one if its thread may run.
    /// The call takes no packet, and the calling thread does not count as one that waits or runs.
    /// The call first queues what the kernel has to report, unless a thread is in the kernel's
    /// wait: then that thread does so. It goes on with [tasks](Task).
    ///
    /// Packets that the calling thread has left in its own iterator count, since its next wait
    /// takes them back. A packet does not count if its registration was enabled again meanwhile,
    /// since that has to be checked. Packets in the iterator of another thread, or just being
    /// checked by one, do not count either.
    ///
    /// A registration that was disabled or changed while its packet was queued may leave an entry
    /// in the queue that comes to nothing. One call looks at no more than 256 entries, and moves
    /// those that come to nothing to the end of the queue. If more of them stand before the first
    /// packet, the call may say false; a later call, or a wait, finds the packet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the port is closed and nothing is left in it,
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked). If the call finds no packet, and the system refuses for good to
    /// report what is ready: as for [`Port::wait`].
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
        let own = current_worker(self.port.engine());
        let mut look = || self.port.engine().has_packets(own.as_deref(), &mut batch.scratch);
        loop {
            let found = look()?;
            // Behind each look, which may have put something aside. Tasks may post as they end.
            let has_gone_on = self.port.store().run_deferred();
            if found || !has_gone_on {
                return Ok(found);
            }
        }
    }

    /// Queues what the kernel has to report, unless a thread is in the kernel's wait, which does so; and goes on with
    /// tasks. It takes nothing, and the calling thread does not count as one that waits or runs. It is for a thread
    /// that sees to a port where perhaps no other does. [`Raw::has_packets`] need not ask the kernel if something is
    /// queued; this does.
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

    /// Closes the port and leaves what is queued. All waits end at once with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed), and the port's descriptors can be
    /// registered elsewhere.
    ///
    /// To get what is queued, call [`Port::close`]; to get every key back, [`Port::shutdown`].
    #[inline]
    pub fn abandon(self) {
        if !self.port.engine().forked() {
            self.port.engine().abandon();
        }
    }

    /// Whether this process is a forked child of the one that made the port. There every other call
    /// fails with [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    #[inline]
    #[must_use]
    pub fn is_forked(self) -> bool {
        self.port.engine().forked()
    }
}
