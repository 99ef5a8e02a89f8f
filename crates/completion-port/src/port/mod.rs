//! The port: the public calls.

pub(crate) mod batch;
pub(crate) mod changes;
pub(crate) mod current;
pub(crate) mod deadline;
pub(crate) mod file_task;
pub(crate) mod operation;
pub mod raw;
pub(crate) mod registration;
pub(crate) mod task;
pub(crate) mod token;

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::backend::Backend;
use crate::engine::{Engine, Entry, GoesOn, Histogram, Posting, Seat, Tally, Waited, name_parts};
use crate::memory::cells::{Cells, Keys};
use crate::port::batch::Batch;
use crate::port::changes::Changes;
use crate::port::current::{current_seat, take_seat};
use crate::port::deadline::{Deadline, TimerId};
use crate::port::operation::{Cargo, SharedId};
use crate::port::raw::Raw;
use crate::port::registration::{Id, Owner, Registration};
use crate::port::token::{Packets, Ready};
use crate::state::moment::Moment;
use crate::state::schedule::Status;
use crate::state::slot::Drained;
use crate::sync::yield_now;
use crate::sys;
use crate::types::buffer::Buffer;
use crate::types::config::{BlockDetection, FileEngine, Readiness};
use crate::types::error::{Call, Error, ErrorKind, Refused, Result};
use crate::types::interest::{Interest, OneShot, Persistent};
use crate::types::source::Descriptor;
use crate::types::source::{KernelId, Source, SourceName};
use crate::types::stats::{PacketCounts, QueueDelays, Stats, ThreadStats, ThreadStatus};
use crate::types::trigger::{Terms, Trigger};

/// An I/O completion port: one queue of packets that any number of threads wait on, fed by the
/// state of registered sockets and by posted messages.
///
/// `K` is the type of the keys, which stand for the registered descriptors, `M` that of the
/// messages: `()` unless the program says otherwise. The port owns both while they are with it.
/// When it is dropped, it drops those that it still has.
///
/// # Threads
///
/// Every method may be called from any thread at any time. Of the threads that wait, at most as
/// many as the *concurrency value* run with packets at once; the one that waited last is released
/// first.
///
/// A thread counts as running from the moment it gets a packet, or its wait times out, until it
/// waits again, exits, or sleeps in the kernel. The port knows at once when a thread waits again or
/// exits. It knows that a thread sleeps when the thread says so by [`Port::blocking`], or else
/// within about two milliseconds if another thread waits meanwhile.
///
/// # Platform notes
///
/// On Windows, NetBSD and OpenBSD only [`Port::blocking`] reports a thread that sleeps.
///
/// Linux: one `epoll` set, with each descriptor in it once, edge-triggered; see
/// [epoll(7)](https://man7.org/linux/man-pages/man7/epoll.7.html). In a forked child every call is
/// refused with [`ErrorKind::Forked`], and dropping the port closes its descriptors and does nothing
/// else.
///
/// # Examples
///
/// ```
/// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
/// use std::io::Write;
/// use std::net::{TcpListener, TcpStream};
///
/// let port: Port<TcpStream, &str> = Port::builder().build()?;
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut near = TcpStream::connect(listener.local_addr()?)?;
/// let (far, _) = listener.accept()?;
/// port.register(Registration::owned(far, Interest::IN, OneShot::Level))?;
/// port.post("hello")?;
/// near.write_all(b"x")?;
///
/// let mut batch = Batch::new();
/// let (mut posted, mut ready) = (0, 0);
/// while posted + ready < 2 {
///     for packet in port.wait(&mut batch, None)? {
///         match packet {
///             Packet::Posted(message) => posted += usize::from(message == "hello"),
///             Packet::Ready(token) => ready += usize::from(token.events().is_in()),
///             _ => {}
///         }
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Port<K, M = (), B = Vec<u8>> {
    store: Store<K, B>,
    messages: Cells<M>,
}

/// The keys of a port, and the engine, which knows the owner of each.
pub(crate) struct Store<K, B> {
    pub(crate) engine: Hold,
    /// At which kernel the engine's numbers mean something.
    pub(crate) kernel: KernelId,
    pub(crate) keys: Keys<K>,
    /// Operations in flight.
    pub(crate) cargo: Cells<Cargo<B>>,
    /// How tasks go on, once one was started: so that a port without any asks nothing of its buffers.
    pub(crate) goes_on: OnceLock<fn(&Self) -> bool>,
}

impl<K, B> GoesOn for Store<K, B> {
    fn go_on(&self) -> bool {
        self.goes_on.get().is_some_and(|go_on| go_on(self))
    }
}

/// A port's share of its engine. The engine ends when the port drops this, and not in another
/// thread some time later.
pub(crate) struct Hold(ManuallyDrop<Arc<Engine>>);

impl Deref for Hold {
    type Target = Arc<Engine>;
    #[inline]
    fn deref(&self) -> &Arc<Engine> {
        &self.0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // SAFETY: `take` demands that the value is not used again.
        // - it is about to be gone, and has no drop of its own.
        let mut engine = unsafe { ManuallyDrop::take(&mut self.0) };
        // A thread that is just giving up its seat, or a port that asks about a descriptor, may
        // hold on to the engine for a few instructions. It would not do to check for such a thread
        // and then let go: one could come in between, and be the last owner.
        while let Err(shared) = Arc::try_unwrap(engine) {
            if shared.forked() {
                break;
            }
            engine = shared;
            yield_now();
        }
    }
}

/// Settings for a new port; [`Port::builder`] begins with the usual ones.
///
/// The settings know nothing of the port's types. [`PortBuilder::build`] takes those from how the
/// port is used, or from what is written at the `let`.
///
/// # Examples
///
/// ```
/// use completion_port::{Interest, OneShot, Port, Registration};
/// use std::net::UdpSocket;
///
/// // Here the keys are sockets and the messages numbers: the two calls below say so.
/// let port = Port::builder().concurrency(4).build()?;
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// port.register(Registration::owned(socket, Interest::IN, OneShot::Level))?;
/// port.post(7_u32)?;
/// assert_eq!(port.concurrency(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct PortBuilder<B = Vec<u8>> {
    concurrency: usize,
    block_detection: BlockDetection,
    one_shot_kernel: bool,
    file_engine: FileEngine,
    readiness: Readiness,
    queue_delays: bool,
    /// What a buffer is; the builder has none.
    buffers: PhantomData<fn(B) -> B>,
}

impl Default for PortBuilder {
    fn default() -> Self {
        Self {
            concurrency: 0,
            block_detection: BlockDetection::default(),
            one_shot_kernel: false,
            file_engine: FileEngine::default(),
            readiness: Readiness::default(),
            queue_delays: false,
            buffers: PhantomData,
        }
    }
}

/// How many processors the process may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl<B> PortBuilder<B> {
    /// How many threads may run with packets at once; 0 means the number of processors that the
    /// process may use ([`std::thread::available_parallelism`]).
    pub fn concurrency(mut self, threads: usize) -> Self {
        self.concurrency = threads;
        self
    }

    /// How the port finds out that a thread which runs with packets blocks. The usual setting is
    /// the best that the system offers.
    pub fn block_detection(mut self, detection: BlockDetection) -> Self {
        self.block_detection = detection;
        self
    }

    /// Whether the port arms each descriptor anew for each report, as it has to on systems without
    /// edge-triggered sets. That costs a system call for each packet. The setting exists so that
    /// the code for such systems can be tested on this one.
    #[cfg(feature = "sim")]
    pub fn one_shot_kernel(mut self, one_shot: bool) -> Self {
        self.one_shot_kernel = one_shot;
        self
    }

    /// How the port does those operations on files that have to wait for a disk. The usual setting is the best that
    /// the system offers.
    pub fn file_engine(mut self, engine: FileEngine) -> Self {
        self.file_engine = engine;
        self
    }

    /// How the system tells the port that sockets are ready, where it has more than one way. The default is
    /// [`Readiness::Automatic`].
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// Whether the port measures from the first how long its packets stand in the queue; not so unless it
    /// is asked for. See [`Port::measure_queue_delays`].
    pub fn queue_delays(mut self, measured: bool) -> Self {
        self.queue_delays = measured;
        self
    }

    /// What the port's operations send and fill: a [`Buffer`]. `Vec<u8>` unless this is called.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Operation, Port};
    ///
    /// let port: Port<std::net::TcpStream, (), Box<[u8]>> =
    ///     Port::builder().buffers::<Box<[u8]>>().build()?;
    /// let _ = (port, Operation::recv(vec![0; 4096].into_boxed_slice()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn buffers<C: Buffer>(self) -> PortBuilder<C> {
        let Self {
            concurrency,
            block_detection,
            one_shot_kernel,
            file_engine,
            readiness,
            queue_delays,
            ..
        } = self;
        let buffers = PhantomData;
        PortBuilder {
            concurrency,
            block_detection,
            one_shot_kernel,
            file_engine,
            readiness,
            queue_delays,
            buffers,
        }
    }

    /// Makes the port.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DescriptorLimit`] or [`ErrorKind::OutOfMemory`] if the system has no descriptor
    /// or memory left; [`ErrorKind::Unsupported`] if [`BlockDetection::Switches`], [`FileEngine::Ring`] or a
    /// [`Readiness`] was asked for by name and the system does not offer it here.
    pub fn build<K, M>(self) -> Result<Port<K, M, B>> {
        let backend = sys::native(self.one_shot_kernel, self.file_engine, self.readiness)
            .map_err(|fault| Error::new(Call::Create, fault.kind).with_code(fault.code))?;
        self.build_on(backend, KernelId::SYSTEM)
    }

    /// Makes a port on a simulated kernel.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if [`BlockDetection::Switches`] was asked for and the simulated kernel
    /// was told that it has no such records.
    #[cfg(feature = "sim")]
    pub fn build_simulated<K, M>(self, kernel: &crate::sim::Kernel) -> Result<Port<K, M, B>> {
        let backend = kernel.backend(self.one_shot_kernel);
        self.build_on(backend, kernel.id())
    }

    fn build_on<K, M>(self, backend: Box<dyn Backend>, kernel: KernelId) -> Result<Port<K, M, B>> {
        let limit = match self.concurrency {
            0 => processors(),
            given => given,
        };
        let engine = Engine::new(limit, self.block_detection, backend)?;
        if self.queue_delays {
            engine.measure_delays(true);
        }
        Ok(Port {
            store: Store {
                engine: Hold(ManuallyDrop::new(engine)),
                kernel,
                keys: Keys::new(),
                cargo: Cells::new(),
                goes_on: OnceLock::new(),
            },
            messages: Cells::new(),
        })
    }
}

impl<K> Port<K> {
    /// A port with the usual settings, to which only the message `()` can be posted. For messages of
    /// another type: `Port::builder().build()`.
    ///
    /// # Errors
    ///
    /// As for [`PortBuilder::build`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Port, Registration};
    /// use std::net::UdpSocket;
    ///
    /// let port = Port::new()?; // its keys are what is registered below
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// port.register(Registration::new(&socket, "a key", Interest::OUT, OneShot::Level))?;
    /// assert_eq!(port.wait(&mut Batch::new(), None)?.count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new() -> Result<Self> {
        PortBuilder::default().build()
    }
}

/// Implemented for one type only, so that `Port::builder` compiles without annotations.
/// [`PortBuilder::build`] makes a port of any types.
impl Port<(), ()> {
    /// Settings for a port of any types. They begin as the usual ones: as many threads may run as
    /// there are processors.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Packet, Port};
    ///
    /// let port: Port<(), String> = Port::builder().concurrency(1).build()?;
    /// port.post("work".to_owned())?;
    /// let packet = port.wait(&mut Batch::new(), None)?.next();
    /// assert!(matches!(packet, Some(Packet::Posted(work)) if work == "work"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> PortBuilder {
        PortBuilder::default()
    }
}

impl<K, M, B> Port<K, M, B> {
    /// How many threads may run with packets at once.
    #[must_use]
    pub fn concurrency(&self) -> usize {
        self.store.engine.limit()
    }

    /// Registers a descriptor and enables it. If a condition that the filter asks for holds
    /// already, a packet follows at once.
    ///
    /// # Errors
    ///
    /// The key is given back, and nothing is registered:
    /// - [`ErrorKind::AlreadyRegistered`]: on this port ([`Error::registration`] names it), or on another
    ///   one of the process ([`Error::is_on_another_port`]); that registration is untouched.
    /// - [`ErrorKind::BadDescriptor`], [`ErrorKind::NotPollable`]: closed, or of a kind that cannot
    ///   be watched, such as a regular file.
    /// - [`ErrorKind::WrongKernel`]: a simulated socket, and this port is not on its kernel, or a real
    ///   one on a simulated port.
    /// - [`ErrorKind::WatchLimit`], [`ErrorKind::OutOfMemory`]: may succeed later.
    /// - [`ErrorKind::Closed`], [`ErrorKind::Forked`].
    ///
    /// # Threads
    ///
    /// The first packet may be handled by another thread before this returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{ErrorKind, Interest, OneShot, Port, Registration};
    /// use std::net::UdpSocket;
    ///
    /// let port = Port::<String>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let named = |name: &str| {
    ///     Registration::new(&socket, name.to_owned(), Interest::IN, OneShot::Level)
    /// };
    /// let id = port.register(named("first"))?;
    /// let refused = port.register(named("second")).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::AlreadyRegistered);
    /// assert_eq!(refused.error().registration(), Some(id));
    /// assert_eq!(refused.into_parts().1, "second"); // the key comes back
    /// assert_eq!(port.remove_and_wait(id, None)?, "first");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register(
        &self,
        registration: Registration<'_, K>,
    ) -> std::result::Result<Id, Refused<K>> {
        self.register_as(Call::Register, registration, None, false)
    }

    /// Registers a descriptor. If it is `associated`, it is watched for that from the first, and not armed: a
    /// token has the key, which the caller makes, unless it is `shared`.
    fn register_as(
        &self,
        call: Call,
        registration: Registration<'_, K>,
        associated: Option<Interest>,
        shared: bool,
    ) -> std::result::Result<Id, Refused<K>> {
        let Registration { owner, kernel, number, key, terms, source_of } = registration;
        if kernel.is_some_and(|kernel| kernel != self.store.kernel) {
            // Its number may name something else here.
            let usable = self.store.engine.check_open(call);
            let wrong = Error::new(call, ErrorKind::WrongKernel);
            return Err(self.refused(usable.err().unwrap_or(wrong), number, key));
        }
        let reserve = |number| self.store.keys.cells.reserve(number);
        let index = match self.store.engine.reserve_slot(call, reserve) {
            Ok(index) => index,
            Err(error) => return Err(self.refused(error, number, key)),
        };
        self.store.keys.know_clone(terms.clone);
        if let Some(source_of) = source_of {
            self.store.keys.source_of.get_or_init(|| source_of);
        }
        // SAFETY: `put` demands that the caller owns the cell and that it is empty.
        // - owned: the slot was reserved just now, and no other thread knows it;
        // - empty: a slot is given up only after its key was moved out.
        unsafe { self.store.keys.cells.put(index, key) };
        let borrowed = !matches!(owner, Owner::Key);
        let seat = || current_seat(&self.store.engine);
        let entry = Entry { descriptor: number, mode: terms.mode, borrowed, associated, shared };
        self.store.engine.register(call, index, entry, seat).map(Id).map_err(|error| {
            // SAFETY: `take` demands that the caller owns the cell, with a value in it.
            // - owned: a refused slot was held by the call all the time, and is given up only below;
            // - a value: the key put there just now.
            let key = unsafe { self.store.keys.cells.take(index) };
            self.store.engine.cancel(index);
            self.refused(error, number, key)
        })
    }

    /// A registration of `number` was refused. A subscriber hears of it.
    #[cold]
    fn refused(&self, error: Error, number: Descriptor, key: K) -> Refused<K> {
        self.store.engine.tell_refused(&error, None, Some(number));
        Refused::new(error, key)
    }

    /// The registration of a source on this port; `None` if the source has none, or if its
    /// registration is being removed. The call asks the system, so that a descriptor that was
    /// closed is not mistaken for another one that has its number now.
    ///
    /// # Threads
    ///
    /// Another thread may end the registration, or make one, before this returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Interest, OneShot, Port, Registration};
    /// use std::net::UdpSocket;
    ///
    /// let port = Port::<u32>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// assert_eq!(port.id_of(&socket), None);
    /// let id = port.register(Registration::new(&socket, 7, Interest::IN, OneShot::Level))?;
    /// assert_eq!(port.id_of(&socket), Some(id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn id_of<S: Source + ?Sized>(&self, source: &S) -> Option<Id> {
        let SourceName { kernel, number } = source.as_source().name;
        if kernel == self.store.kernel { self.store.engine.find(number).map(Id) } else { None }
    }

    /// Associates a key with the port, which owns its descriptor: nothing is asked for yet. The token says what
    /// comes first: an operation ([`Ready::start`](crate::Ready::start)), or readiness
    /// ([`Ready::rearm_as`](crate::Ready::rearm_as)).
    ///
    /// A registration that [`Port::register`] has made is an association, too, which is asked for readiness at
    /// once; the token of its packet starts operations as well.
    ///
    /// A file that no system can watch, such as a regular file or a directory, is associated as well. It has the
    /// operations of files ([`Operation::read_at`](crate::Operation::read_at) and so on), and no readiness: to arm it is
    /// refused with [`ErrorKind::NotPollable`].
    ///
    /// # Errors
    ///
    /// As for [`Port::register`], but that files are taken.
    ///
    /// # Platform notes
    ///
    /// Linux: as long as a file is associated, and has had an operation that had to wait, the port has a duplicate of
    /// its descriptor. When that is closed the process loses its POSIX record locks on the file
    /// ([fcntl(2)](https://man7.org/linux/man-pages/man2/F_SETLK.2const.html)), as with any descriptor of it.
    ///
    /// A Unix does not tell the port of a descriptor that other code closes by its number, under the key. An operation in
    /// flight ends when the port next finds the descriptor closed
    /// ([`ErrorKind::BadDescriptor`]), when it is cancelled, or at its deadline: perhaps never.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Operation, Outcome, Packet, Port};
    /// use std::io::Write;
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// let port = Port::<TcpStream>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut near = TcpStream::connect(listener.local_addr()?)?;
    /// let (far, _) = listener.accept()?;
    /// port.associate(far)?.start(Operation::recv(Vec::with_capacity(16)))?;
    /// near.write_all(b"hello")?;
    ///
    /// for packet in port.wait(&mut Batch::new(), None)? {
    ///     let Packet::Done(done) = packet else { panic!() };
    ///     let (token, Outcome::Received(Ok(5), buffer)) = done.into_parts() else { panic!() };
    ///     assert_eq!(buffer, b"hello");
    ///     token.start(Operation::send_all(buffer))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn associate(&self, key: K) -> std::result::Result<Ready<'_, K, B>, Refused<K>>
    where
        K: Source,
    {
        self.associate_for(key, Interest::IN)
    }

    /// The same, watched for `expected` from the first.
    pub(crate) fn associate_for(
        &self,
        key: K,
        expected: Interest,
    ) -> std::result::Result<Ready<'_, K, B>, Refused<K>>
    where
        K: Source,
    {
        let registration = Registration::owned(key, Interest::NONE, OneShot::Level);
        let id = self.register_as(Call::Associate, registration, Some(expected), false)?;
        Ok(Ready::associated(&self.store, name_parts(id.0).0))
    }

    /// Associates a key whose operations are started by the association's name ([`Port::start`]), several at once:
    /// to receive and send, or sixteen accepts on one listener. Their packets bring clones of the key
    /// ([`Packet::Finished`](crate::Packet::Finished)), and never a token.
    ///
    /// [`Port::enable`] can ask it for readiness besides, with a persistent trigger. While operations of a
    /// direction are in flight, readiness of that direction is theirs, and is not reported.
    ///
    /// # Errors
    ///
    /// As for [`Port::register`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Operation, Outcome, Packet, Port};
    /// use std::net::{TcpListener, TcpStream};
    /// use std::sync::Arc;
    ///
    /// let port = Port::<Arc<TcpListener>>::new()?;
    /// let listener = Arc::new(TcpListener::bind("127.0.0.1:0")?);
    /// let address = listener.local_addr()?;
    /// let id = port.associate_shared(listener)?;
    /// for _ in 0..16 {
    ///     port.start(id, Operation::accept())?;
    /// }
    /// let _client = TcpStream::connect(address)?;
    ///
    /// let mut batch = Batch::new();
    /// let Some(Packet::Finished(finished)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// let (_listener, outcome) = finished.into_parts();
    /// assert!(matches!(outcome, Outcome::Accepted(Ok(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn associate_shared(&self, key: K) -> std::result::Result<SharedId, Refused<K>>
    where
        K: Source + Clone + Sync,
    {
        let registration = Registration::owned(key, Interest::NONE, Persistent::Level);
        let id = self.register_as(Call::Associate, registration, Some(Interest::IN), true)?;
        Ok(SharedId(id.0))
    }

    /// See [`Raw::associate_number`](crate::port::raw::Raw::associate_number).
    pub(crate) fn associate_number(
        &self,
        registration: Registration<'_, K>,
    ) -> std::result::Result<SharedId, Refused<K>> {
        let id = self.register_as(Call::Associate, registration, Some(Interest::IN), true)?;
        Ok(SharedId(id.0))
    }

    /// Enables a registration by its name, and overwrites its filter and trigger. The registration
    /// may be parked, disabled or enabled already. Its key must be with the port; a handler that
    /// has the key rearms its token instead, by [`Ready::rearm`](crate::Ready::rearm). If a
    /// condition holds, a packet follows at once, whatever the trigger. A packet that is queued
    /// already is checked against the new filter. To add to what a registration reports, whatever state
    /// it is in, call [`Port::enable_also`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::KeyHeld`] if the key is out with a handler, which alone can rearm it;
    /// [`ErrorKind::NotPollable`] if it is a file, which has no readiness;
    /// [`ErrorKind::NotRegistered`], [`ErrorKind::Removing`], [`ErrorKind::Closed`],
    /// [`ErrorKind::Forked`]. A refused call has changed nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
    /// use std::net::UdpSocket;
    ///
    /// let port = Port::<u32>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let id = port.register(Registration::new(&socket, 7, Interest::IN, OneShot::Level))?;
    /// port.enable(id, Interest::OUT, OneShot::Level)?; // a UDP socket can be written to at once
    /// let mut batch = Batch::new();
    /// let packet = port.wait(&mut batch, None)?.next();
    /// assert!(matches!(packet, Some(Packet::Ready(ready)) if ready.events().is_out()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enable(&self, id: Id, interest: Interest, trigger: impl Trigger<K>) -> Result<()> {
        self.enable_with(id, trigger.terms(interest), || Drained::NONE)
    }

    /// Asks for one more report of a registration: as soon as something of `interest` holds, one packet
    /// tells so, whatever the registration's filter is. It is how the handler of one connection has the
    /// handler of another one called, when that connection can be written to, say.
    ///
    /// The call merges into whatever state the registration is in, and neither waits nor fails for
    /// it:
    ///
    /// - It is enabled: its next packets report `interest` as well, beside its filter.
    /// - A packet of it is queued: that packet reports what holds of `interest` by then.
    /// - Its key is out with a handler: whatever filter that handler rearms it with, `interest`
    ///   is added. So a request that comes while the handler is just finishing is not lost.
    /// - It is parked or disabled: it is enabled with `interest` as its filter, and the trigger that
    ///   it has. A handler that rearms it later says by [`Ready::rearm_as`](crate::Ready::rearm_as) for what.
    ///
    /// What was asked for is forgotten when a packet has reported it, and by [`Port::disable`].
    /// [`Port::enable`], rearming and parking do not forget it. If several threads ask for
    /// the same before that packet, there is one packet. Nothing is asked for by [`Interest::NONE`].
    ///
    /// What a thread did before the call is visible to the handler of that packet: a thread that first
    /// puts data into a queue, and then asks for OUT, can be sure that a handler sees the data.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotRegistered`], [`ErrorKind::Removing`], [`ErrorKind::Closed`]: there is nothing left to
    /// be told. [`ErrorKind::Forked`]. A refused call has changed nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
    /// use std::io::Write;
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// let port = Port::<TcpStream>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut far, _) = listener.accept()?;
    /// let id = port.register(Registration::owned(near, Interest::IN, OneShot::Level))?;
    /// let mut batch = Batch::new();
    ///
    /// far.write_all(b"x")?;
    /// let mut packets = port.wait(&mut batch, None)?;
    /// let Some(Packet::Ready(mut ready)) = packets.next() else { unreachable!() };
    /// port.enable_also(id, Interest::OUT)?; // another thread may do so, while the key is out
    /// std::io::Read::read(ready.key_mut(), &mut [0; 16])?;
    /// ready.rearm()?; // for IN, and once for OUT
    /// drop(packets);
    ///
    /// let Some(Packet::Ready(ready)) = port.wait(&mut batch, None)?.next() else { unreachable!() };
    /// assert!(ready.events().is_out());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enable_also(&self, id: Id, interest: Interest) -> Result<()> {
        let seat = || current_seat(&self.store.engine);
        self.told(id, self.store.engine.enable_also(id.0, interest, seat))
    }

    #[inline]
    pub(crate) fn enable_with(
        &self,
        id: Id,
        terms: Terms<K>,
        drained: impl Fn() -> Drained,
    ) -> Result<()> {
        self.store.keys.know_clone(terms.clone);
        if self.store.engine.enable_plainly(id.0, terms.mode, &drained) {
            return Ok(());
        }
        self.enable_otherwise(id, terms, drained)
    }

    /// The same in all but the common case.
    #[inline(never)]
    fn enable_otherwise(
        &self,
        id: Id,
        terms: Terms<K>,
        drained: impl Fn() -> Drained,
    ) -> Result<()> {
        let seat = || current_seat(&self.store.engine);
        self.told(id, self.store.engine.enable(id.0, terms.mode, drained, seat))
    }

    /// Disables a registration: nothing is reported of it until it is enabled again. It keeps its
    /// key, and makes no packet. A packet that a thread has not come to yet is not delivered. While
    /// the key is out with a handler this changes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotRegistered`], [`ErrorKind::Removing`], [`ErrorKind::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Port, Registration};
    /// use std::net::UdpSocket;
    /// use std::time::Duration;
    ///
    /// let port = Port::<u32>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let id = port.register(Registration::new(&socket, 7, Interest::OUT, OneShot::Level))?;
    /// port.disable(id)?;
    /// assert_eq!(port.wait(&mut Batch::new(), Duration::ZERO)?.count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn disable(&self, id: Id) -> Result<()> {
        self.told(id, self.store.engine.disable(id.0))
    }

    /// Removes a registration, enabled or not. One packet follows, the last one:
    /// [`Packet::Removed`](crate::Packet::Removed), which gives the key back. While the key is out
    /// with a handler, that packet is made when the handler rearms or parks its token; if the
    /// handler drops the token or keeps the key, there is none. The descriptor may be registered
    /// again at once, here or elsewhere.
    ///
    /// Operations of the registration that are in flight are cancelled. Each makes its packet, and
    /// the last packet comes behind these.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotRegistered`] if there is no such registration, or its last packet has been
    /// taken; no packet is made. A second call while that packet is on its way succeeds, and makes
    /// no second packet. [`ErrorKind::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
    /// use std::net::UdpSocket;
    ///
    /// let port = Port::<UdpSocket>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let id = port.register(Registration::owned(socket, Interest::IN, OneShot::Level))?;
    /// port.remove(id)?;
    /// for packet in port.wait(&mut Batch::new(), None)? {
    ///     let Packet::Removed(removed, socket) = packet else { continue };
    ///     assert_eq!(removed, id);
    ///     drop(socket); // only now is it closed
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove(&self, id: Id) -> Result<()> {
        self.told(id, self.store.engine.remove(id.0))
    }

    /// What a call about a registration has come to. A subscriber hears of a refusal.
    #[inline]
    fn told<R>(&self, id: Id, outcome: Result<R>) -> Result<R> {
        outcome.inspect_err(|error| self.store.engine.tell_refused(error, Some(id.0), None))
    }

    /// Removes a registration and waits for its key, which is returned here instead of in a packet.
    /// Packets of it that no thread has come to yet are not delivered.
    ///
    /// # Waiting
    ///
    /// Returns at once unless the key is out with a handler, or operations are in flight. Then it
    /// returns when the handler rearms or parks its token, at most after `timeout` (`None`: no
    /// limit); meanwhile the thread counts as in [`Port::blocking`]. A handler that waits here for a
    /// key that it holds itself waits in vain.
    ///
    /// Operations in flight are cancelled, and each makes its packet. It returns when other threads
    /// have taken all of these packets, and the token that one may bring has come back. So a thread
    /// that is the only one at the port waits for ever, if there is an operation in flight and no
    /// limit: call [`Port::remove`] there, and wait for the packet.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::TimedOut`]: the key is still out; the registration is being removed, as by
    ///   [`Port::remove`].
    /// - [`ErrorKind::NotRegistered`]: there is no such registration, or the handler has dropped or
    ///   kept the key, which ended it.
    /// - [`ErrorKind::Removing`]: it is being removed already; its key comes with the packet.
    /// - [`ErrorKind::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Interest, OneShot, Port, Registration};
    /// use std::net::UdpSocket;
    /// use std::time::Duration;
    ///
    /// let port = Port::<UdpSocket>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let address = socket.local_addr()?;
    /// let id = port.register(Registration::owned(socket, Interest::IN, OneShot::Level))?;
    /// let socket = port.remove_and_wait(id, Duration::from_secs(1))?;
    /// assert_eq!(socket.local_addr()?, address);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_and_wait(&self, id: Id, timeout: impl Into<Option<Duration>>) -> Result<K> {
        let timeout = timeout.into();
        self.told(id, self.blocking(|| self.store.engine.collect(id.0, timeout)))?;
        // SAFETY: `take` demands that the caller owns the cell, with a value in it.
        // - owned: `collect` has made the node this thread's;
        // - a value: the key lies in its cell whenever the slot is not held.
        let key = unsafe { self.store.keys.cells.take(name_parts(id.0).0) };
        self.store.engine.free(id.0);
        Ok(key)
    }

    /// Queues a message and wakes at most one thread for it: the one that waited last.
    ///
    /// Later messages use the room of earlier ones again. The port gives the memory back when it is
    /// dropped: a port that has had a million messages in its queue at once keeps the memory for a
    /// million.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`], [`ErrorKind::OutOfMemory`], [`ErrorKind::Forked`]; the message is given
    /// back.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, ErrorKind, Packet, Port};
    ///
    /// let port: Port<(), String> = Port::builder().build()?;
    /// port.post("work".to_owned())?;
    /// let mut batch = Batch::new();
    /// let packet = port.wait(&mut batch, None)?.next();
    /// assert!(matches!(packet, Some(Packet::Posted(work)) if work == "work"));
    ///
    /// port.close();
    /// let refused = port.post("too late".to_owned()).unwrap_err();
    /// assert_eq!((refused.kind(), refused.value().as_str()), (ErrorKind::Closed, "too late"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn post(&self, message: M) -> std::result::Result<(), Refused<M>> {
        self.begin_post(message, Ok).map(Posting::queue)
    }

    /// See [`Raw::post_found`](crate::port::raw::Raw::post_found).
    pub(crate) fn post_found(&self, message: M) -> std::result::Result<(), Refused<M>> {
        let seat = current_seat(&self.store.engine);
        self.begin_post(message, Ok).map(|posting| posting.queue_found(seat.as_deref()))
    }

    /// Puts `message` into a cell, unless `admit` refuses what is being posted. What it returns is to be used at
    /// once: it keeps the port locked.
    #[inline]
    fn begin_post<'p>(
        &'p self,
        message: M,
        admit: impl FnOnce(Posting<'p>) -> Result<Posting<'p>>,
    ) -> std::result::Result<Posting<'p>, Refused<M>> {
        let reserve = |number| self.messages.reserve(number);
        let posting = match self.store.engine.begin_post(reserve).and_then(admit) {
            Ok(posting) => posting,
            Err(error) => {
                self.store.engine.tell_refused(&error, None, None);
                return Err(Refused::new(error, message));
            }
        };
        // SAFETY: `put` demands that the caller owns the cell and that it is empty.
        // - owned: the cell was reserved just now, and no other thread knows it;
        // - empty: a cell is given up only after its message was moved out.
        unsafe { self.messages.put(posting.cell(), message) };
        Ok(posting)
    }

    /// Has the calling thread handle `message` next, before what else it has left of its last wait, and
    /// wakes no other thread for it. It is for a handler that goes on with its own work in another
    /// packet, as a runtime does with a task that has just become ready: the data is in the cache of
    /// this processor.
    ///
    /// The packet is the next item of the thread's [`Packets`], even if the batch is full by then, or
    /// the first one of its next wait. Of several such messages the last one comes first. As with the
    /// rest of a batch, the message goes to another thread if this one announces that it blocks, is
    /// found asleep, or does not come to it for a millisecond or so while another thread is idle; so an
    /// idle thread may be woken to keep watch.
    ///
    /// So that the other packets have their turn, at most 64 messages in a row go in front, over however many
    /// waits: the count begins anew when the thread comes to wait with none of them left. A further one goes to the
    /// end of the queue, where the thread finds it when it waits. Where the calling thread does not run packets of
    /// this port, the message is queued as by [`post`](Self::post).
    ///
    /// # Errors
    ///
    /// As for [`post`](Self::post).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Packet, Port};
    ///
    /// let port: Port<(), &str> = Port::builder().build()?;
    /// port.post("first")?;
    /// port.post("second")?;
    /// let mut batch = Batch::new();
    /// let mut order = Vec::new();
    /// while order.len() < 3 {
    ///     for packet in port.wait(&mut batch, None)? {
    ///         let Packet::Posted(message) = packet else { continue };
    ///         if message == "first" {
    ///             port.post_after("what follows")?;
    ///         }
    ///         order.push(message);
    ///     }
    /// }
    /// assert_eq!(order, ["first", "what follows", "second"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn post_after(&self, message: M) -> std::result::Result<(), Refused<M>> {
        let seat = current_seat(&self.store.engine);
        self.begin_post(message, Ok).map(|posting| posting.put_next(seat.as_deref()))
    }

    /// Posts a message at a time to come: it is queued then, as by [`post`](Self::post), and never earlier.
    /// While a thread waits at the port, or comes to wait within a millisecond, the message is at most that
    /// late. If all threads are in their handlers, the first one that comes back finds it.
    ///
    /// Messages for the same moment are queued in the order in which they were posted. While there are timers,
    /// each wait looks at the clock; a timer that is due before all others may wake a thread, so that it sleeps
    /// no longer than that. To set and to cancel one takes a number of steps that grows with the logarithm of
    /// how many there are.
    ///
    /// When the port is closed, messages whose time has not come are not handed out any more:
    /// [`cancel_post`](Self::cancel_post) still gives them back, and what is left is dropped with the port.
    ///
    /// # Errors
    ///
    /// As for [`post`](Self::post).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Packet, Port};
    /// use std::time::{Duration, Instant};
    ///
    /// let port: Port<(), &str> = Port::builder().build()?;
    /// let begun = Instant::now();
    /// port.post_at(Duration::from_millis(20), "later")?;
    /// port.post_at(begun + Duration::from_millis(10), "soon")?;
    /// let never = port.post_at(Duration::from_secs(3600), "in an hour")?;
    ///
    /// let mut batch = Batch::new();
    /// let mut seen = Vec::new();
    /// while seen.len() < 2 {
    ///     for packet in port.wait(&mut batch, None)? {
    ///         let Packet::Posted(message) = packet else { continue };
    ///         seen.push(message);
    ///     }
    /// }
    /// assert_eq!(seen, ["soon", "later"]);
    /// assert!(begun.elapsed() >= Duration::from_millis(20));
    /// assert_eq!(port.cancel_post(never), Some("in an hour"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn post_at(
        &self,
        deadline: impl Into<Deadline>,
        message: M,
    ) -> std::result::Result<TimerId, Refused<M>> {
        let at = deadline.into().moment(self.store.engine.backend());
        let posting = self.begin_post(message, Posting::for_timer)?;
        Ok(TimerId(posting.queue_at(at)))
    }

    /// Takes back a message whose time has not come. `None` if it is queued or was handed out already, if it
    /// was taken back before, or in a forked child.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::Port;
    /// use std::time::Duration;
    ///
    /// let port: Port<(), u32> = Port::builder().build()?;
    /// let timer = port.post_at(Duration::from_secs(60), 7)?;
    /// assert_eq!(port.cancel_post(timer), Some(7));
    /// assert_eq!(port.cancel_post(timer), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_post(&self, timer: TimerId) -> Option<M> {
        self.store.engine.cancel_post(timer.0, |cell| {
            // SAFETY: `take` demands that the caller owns the cell, with a value in it.
            // - owned: `Engine::cancel_post` has taken the timer, which alone knew the cell, out of the
            //   heap, and keeps the lock until the cell is moved out;
            // - a value: `post_at` put the message there under the same lock under which it set the timer.
            unsafe { self.messages.take(cell) }
        })
    }

    /// Waits for packets.
    ///
    /// # Waiting
    ///
    /// Returns as soon as there is a packet for this thread. Returns without a packet when
    /// `timeout` is over (`None`: no limit), never earlier. Signals do not end the wait. What an
    /// earlier wait of this thread left in its iterator goes back to the front of the queue.
    ///
    /// A packet may be taken back before the thread comes to it (see [`Packets`]), or turn out to
    /// have nothing to report. If no packet is left, the iterator waits on for the rest of the
    /// time. If the port is closed then, the iterator is empty, and the next wait says so.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`] once the port is closed and its queue is empty;
    /// [`ErrorKind::Forked`].
    ///
    /// If nothing is queued and the system refuses for good to report what is ready:
    /// [`ErrorKind::Unsupported`] in a sandbox that forbids the call, [`ErrorKind::OutOfMemory`],
    /// otherwise [`ErrorKind::Other`], each with the system's code ([`Error::os_code`]). Nothing has
    /// changed then. The port still delivers what is queued, and each wait asks the system again. A
    /// wait that returns packets leaves its refusal to the next wait of any thread, which fails.
    pub fn wait<'b, 'p>(
        &'p self,
        batch: &'b mut Batch,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Packets<'b, 'p, K, M, B>> {
        let deadline = self.deadline(timeout.into())?;
        match self.take(batch, deadline) {
            (_, Waited::Closed) => Err(Error::new(Call::Wait, ErrorKind::Closed)),
            (_, Waited::Failed) => Err(self.store.engine.take_fault()),
            (packets, _) => Ok(packets),
        }
    }

    /// Applies changes, then waits for packets: both in one call. The results are in `changes` when
    /// this returns: one for each change.
    ///
    /// # Waiting
    ///
    /// As for [`Port::wait`]. If the capacity of `batch` is zero, the call applies the changes and
    /// returns.
    ///
    /// If a change was refused the call does not sleep: it takes what is there, perhaps nothing.
    /// There is one exception. If every change was refused, and every change of the same thread's
    /// next call is refused as well, with no packet or other wait in between, that next call sleeps
    /// as usual.
    ///
    /// # Errors
    ///
    /// As for [`Port::wait`]. If the call fails, it has applied no change, and all of them are
    /// still in `changes`. If the system refuses to report what is ready, the call has applied its changes and
    /// returns no packet; the next call fails.
    pub fn process<'b, 'p>(
        &'p self,
        changes: &mut Changes<'_, K, B>,
        batch: &'b mut Batch,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Packets<'b, 'p, K, M, B>> {
        let deadline = self.deadline(timeout.into())?;
        if self.store.engine.is_closed() {
            return Err(Error::new(Call::Wait, ErrorKind::Closed));
        }
        if self.store.engine.has_fault() {
            return Err(self.store.engine.take_fault());
        }
        changes.apply(self);
        // Closed by another thread meanwhile: the changes have been applied, so the call has not
        // failed; the next one says so.
        if changes.any_was_refused() && batch.capacity() > 0 {
            return Ok(self.take_and_tell(batch, deadline, changes.all_were_refused()));
        }
        // What the wait has failed with is kept, and the next one reports it.
        Ok(self.take(batch, deadline).0)
    }

    /// Takes what is there, without sleeping, since changes were refused; sleeps all the same if
    /// the thread has seen that refusal.
    #[cold]
    fn take_and_tell<'b, 'p>(
        &'p self,
        batch: &'b mut Batch,
        deadline: Option<Moment>,
        all_were_refused: bool,
    ) -> Packets<'b, 'p, K, M, B> {
        let seat = take_seat(&self.store.engine);
        let tells = !all_were_refused || seat.hears_of_refusal();
        let deadline = if tells { Some(Moment::ZERO) } else { deadline };
        let (packets, _) = self.take(batch, deadline);
        if all_were_refused {
            seat.has_heard_of_refusal();
        }
        packets
    }

    fn deadline(&self, timeout: Option<Duration>) -> Result<Option<Moment>> {
        if self.store.engine.forked() {
            return Err(Error::new(Call::Wait, ErrorKind::Forked));
        }
        // A deadline beyond the clock's range is none.
        Ok(timeout.and_then(|timeout| self.store.engine.backend().now().checked_add(timeout)))
    }

    fn take<'b, 'p>(
        &'p self,
        batch: &'b mut Batch,
        deadline: Option<Moment>,
    ) -> (Packets<'b, 'p, K, M, B>, Waited) {
        let room = batch.capacity();
        if room == 0 {
            // This call does not wait: the thread goes on running at whatever port it runs.
            return (Packets::none(self, &mut batch.scratch), Waited::TimedOut);
        }
        let seat = take_seat(&self.store.engine);
        let engine = &self.store.engine;
        let waited = engine.wait(&seat, &mut batch.scratch, room, deadline, &self.store);
        (Packets::waited(self, &mut batch.scratch, room, deadline, seat, waited), waited)
    }

    /// Runs `f`, which is expected to sleep: on a lock, in a blocking read, in a computation that
    /// runs elsewhere. Until `f` returns, this thread does not count as running, and another one
    /// takes its place.
    ///
    /// Packets that this thread has not come to yet go back to the queue. When `f` returns, more
    /// threads may run than the concurrency value says, until one of them waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::Port;
    /// use std::sync::Mutex;
    ///
    /// let port = Port::<()>::new()?;
    /// let contended = Mutex::new(0);
    /// *port.blocking(|| contended.lock().unwrap()) += 1;
    /// assert_eq!(contended.into_inner()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocking<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Blocked<'e>(&'e Engine, Arc<Seat>);
        impl Drop for Blocked<'_> {
            fn drop(&mut self) {
                self.0.end_blocking(&self.1);
            }
        }
        let seat = if self.store.engine.forked() { None } else { current_seat(&self.store.engine) };
        let _blocked = seat
            .filter(|seat| self.store.engine.begin_blocking(seat))
            .map(|seat| Blocked(&self.store.engine, seat));
        f()
    }

    /// Refuses new work from now on: registrations, messages, rearming. Waits drain the queue; once
    /// it is empty they return [`ErrorKind::Closed`], on every thread. Registrations that are still
    /// with the port make no more packets; their keys are dropped with the port. Operations in flight
    /// are cancelled, and waits hand out their packets before that.
    ///
    /// To get every key back, call [`Port::shutdown`] instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, ErrorKind, Port};
    ///
    /// let port: Port<(), u32> = Port::builder().build()?;
    /// port.post(1)?;
    /// port.close();
    /// let mut batch = Batch::new();
    /// assert_eq!(port.wait(&mut batch, None)?.count(), 1);
    /// assert_eq!(port.wait(&mut batch, None).unwrap_err().kind(), ErrorKind::Closed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        if !self.store.engine.forked() {
            self.store.engine.close();
        }
    }

    /// Shuts down in order: refuses new work, and removes every registration. Each key comes back
    /// with a [`Packet::Removed`](crate::Packet::Removed). For a key that is out with a handler,
    /// that packet is made when the handler rearms or parks its token. Operations in flight are
    /// cancelled, and each makes its packet before that. The threads go on waiting as before; once no
    /// registration and no packet is left they get [`ErrorKind::Closed`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
    /// use std::net::UdpSocket;
    ///
    /// let port = Port::<UdpSocket>::new()?;
    /// for _ in 0..3 {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     port.register(Registration::owned(socket, Interest::IN, OneShot::Level))?;
    /// }
    /// port.shutdown()?;
    /// let (mut batch, mut sockets) = (Batch::new(), Vec::new());
    /// while let Ok(packets) = port.wait(&mut batch, None) {
    ///     for packet in packets {
    ///         if let Packet::Removed(_, socket) = packet {
    ///             sockets.push(socket);
    ///         }
    ///     }
    /// }
    /// assert_eq!(sockets.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self) -> Result<()> {
        self.store.engine.shut_down()
    }

    /// The calls for bindings to other languages, in which handlers keep no token and know descriptors by
    /// number.
    #[inline]
    #[must_use]
    pub fn raw(&self) -> Raw<'_, K, M, B> {
        Raw::new(self)
    }

    /// The state of the port at this moment, and what it has done so far. In a forked child, which
    /// has no part in the port, all numbers are zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::Port;
    ///
    /// let port: Port<(), &str> = Port::builder().build()?;
    /// port.post("hello")?;
    /// let stats = port.stats();
    /// assert_eq!((stats.queued, stats.registered, stats.packets.total()), (1, 0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        let seen = self.store.engine.snapshot();
        Stats {
            backend: self.store.engine.backend().name(),
            file_engine: self.store.engine.backend().files_name().unwrap_or("none"),
            block_detection: self.store.engine.detection(),
            concurrency: self.store.engine.limit(),
            registered: seen.registered,
            queued: seen.queued,
            running: seen.threads.running,
            blocked: seen.threads.blocked,
            parked: seen.threads.idle,
            wakes: seen.threads.wakes,
            spurious_wakes: seen.threads.spurious,
            blocks_found: seen.threads.blocks_found,
            polls: seen.polls,
            empty_polls: seen.empty_polls,
            rebuilds: seen.rebuilds,
            packets: counts(&seen.packets),
        }
    }

    /// What each thread at the port does at this moment, and what it has done there so far: one entry for
    /// each thread that has waited on the port and has neither ended nor waited on another port since. In
    /// a forked child there is none.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Port, ThreadStatus};
    ///
    /// let port: Port<(), &str> = Port::builder().build()?;
    /// port.post("hello")?;
    /// let mut batch = Batch::new();
    /// assert_eq!(port.wait(&mut batch, None)?.count(), 1);
    /// let threads = port.thread_stats();
    /// assert_eq!(threads.len(), 1);
    /// assert_eq!((threads[0].status, threads[0].packets.posted), (ThreadStatus::Running, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn thread_stats(&self) -> Vec<ThreadStats> {
        let threads = self.store.engine.threads().into_iter();
        let stats = threads.filter_map(|thread| {
            Some(ThreadStats {
                seat: thread.seat,
                system_number: thread.system_number,
                status: status_of(thread.status)?,
                packets: counts(&thread.packets),
                wakes: thread.wakes,
                blocks_found: thread.blocks_found,
            })
        });
        stats.collect()
    }

    /// Begins to measure how long packets stand in the queue, or ends it. Nothing is measured, and no
    /// time is lost for it, unless it is asked for here or by [`PortBuilder::queue_delays`].
    ///
    /// Packets that are queued when it begins are not counted. When it ends the figures stay, and go on
    /// when it begins again. In a forked child the call does nothing.
    ///
    /// While it is measured, the clock is read once for each packet, and once for each lot that is queued
    /// together; eight bytes are kept for each registration and each place of a message. A one-shot packet
    /// takes some 440 instructions more where 64 come at once, and 660 where each comes alone, besides what it
    /// takes to read the clock. Without it, wait, receipt and arming take 290 and 1,170. (`cport bench
    /// --scenario instructions`, the rows `ours` and `ours, delays`.)
    ///
    /// # Examples
    ///
    /// See [`Port::queue_delays`].
    pub fn measure_queue_delays(&self, on: bool) {
        self.store.engine.measure_delays(on);
    }

    /// How long packets have stood in the queue, as far as that was measured: from the moment at which
    /// the port learned of a condition, a message or a removal, until a thread came to its packet. What
    /// a thread has in its batch and has not come to counts as queued.
    ///
    /// # Threads
    ///
    /// Counters are read one after the other. Packets that are taken meanwhile may be in some and not in
    /// others.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Port};
    /// use std::time::Duration;
    ///
    /// let port: Port<(), &str> = Port::builder().queue_delays(true).build()?;
    /// port.post("hello")?;
    /// std::thread::sleep(Duration::from_millis(1));
    /// assert_eq!(port.wait(&mut Batch::new(), None)?.count(), 1);
    /// let delays = port.queue_delays();
    /// assert_eq!(delays.count(), 1);
    /// assert!(delays.total() >= Duration::from_millis(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn queue_delays(&self) -> QueueDelays {
        let Histogram { buckets, total } = self.store.engine.delays();
        QueueDelays { buckets, total: Duration::from_nanos(total) }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.store.engine
    }

    pub(crate) fn keys(&self) -> &Keys<K> {
        &self.store.keys
    }

    pub(crate) fn store(&self) -> &Store<K, B> {
        &self.store
    }

    pub(crate) fn messages(&self) -> &Cells<M> {
        &self.messages
    }

    pub(crate) fn clone_key(&self) -> Option<fn(&K) -> K> {
        self.store.keys.clone.get().copied()
    }
}

fn counts(tally: &Tally) -> PacketCounts {
    PacketCounts {
        ready: tally.ready,
        notified: tally.notified,
        posted: tally.posted,
        removed: tally.removed,
        done: tally.done,
    }
}

/// What a thread does, in the words for users; `None` if the seat has none.
fn status_of(status: Status) -> Option<ThreadStatus> {
    Some(match status {
        Status::Vacant => return None,
        Status::Away => ThreadStatus::Away,
        Status::Running => ThreadStatus::Running,
        Status::Blocked => ThreadStatus::Blocked,
        Status::FoundAsleep => ThreadStatus::FoundAsleep,
        Status::Searching | Status::Called | Status::Given => ThreadStatus::Searching,
        Status::Idle => ThreadStatus::Idle,
    })
}

/// When it is dropped, calls its function for each number. If a call panics, the function is still
/// called for the numbers after it.
struct Each<F: Fn(u32)>(std::vec::IntoIter<u32>, F);

impl<F: Fn(u32)> Drop for Each<F> {
    fn drop(&mut self) {
        struct Rest<'r, F: Fn(u32)>(&'r mut Each<F>);
        impl<F: Fn(u32)> Drop for Rest<'_, F> {
            fn drop(&mut self) {
                for number in self.0.0.by_ref() {
                    (self.0.1)(number);
                }
            }
        }
        let rest = Rest(self);
        for number in rest.0.0.by_ref() {
            (rest.0.1)(number);
        }
    }
}

impl<K, M, B> Drop for Port<K, M, B> {
    fn drop(&mut self) {
        let remains = self.store.engine.dismantle();
        let (keys, messages, cargo) = (&self.store.keys.cells, &self.messages, &self.store.cargo);
        // These are dropped in reverse order, each of them even if the drop of the other panics.
        let messages = Each(remains.messages.into_iter(), |cell| {
            // SAFETY: `take` demands that the caller owns the cell, with a value in it.
            // - owned: nothing else has the port;
            // - a value: the engine names each message that is still queued, once.
            drop(unsafe { messages.take(cell) });
        });
        let keys = Each(remains.keys.into_iter(), |index| {
            // SAFETY: `take` demands that the caller owns the cell, with a value in it.
            // - owned: nothing else has the port, and no token borrows it any more;
            // - a value: the engine names each slot that has a key and is not held, once.
            drop(unsafe { keys.take(index) });
        });
        let operations = Each(remains.operations.into_iter(), |record| {
            // SAFETY: `take` demands that the caller owns the cell, with a value in it.
            // - owned: nothing else has the port, so that no thread tries an operation;
            // - a value: the engine names each operation whose packet was not taken, once.
            let operation = unsafe { cargo.take(record) };
            let job = self.store.engine.take_job(record);
            drop((operation, job));
        });
        drop(operations);
        drop(keys);
        drop(messages);
        // The engine, and with it the port's descriptors, ends with its `Hold`.
    }
}

impl<K, M, B> fmt::Debug for Port<K, M, B> {
    /// The slots, the threads and the queue, for hunting stalls; `docs/STALLS.md` explains each line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.engine.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::sim::Kernel;
    use crate::state::slot::GENERATIONS;
    use crate::types::interest::OneShot;

    /// A slot that has given every name it has is not given out again, and everything else goes on.
    #[test]
    fn a_slot_without_a_name_left_is_retired() {
        const NAMES: u32 = 3;
        let kernel = Kernel::new();
        let port: Port<()> = Port::builder().build_simulated(&kernel).unwrap();
        let socket = kernel.udp_bound().unwrap();
        let register =
            || port.register(Registration::new(&socket, (), Interest::IN, OneShot::Level)).unwrap();
        let first = register();
        port.remove_and_wait(first, None).unwrap();
        let mut names = HashSet::from([first]);
        // As if it had been used for all names but the last few.
        let engine = port.engine();
        let last = engine.first_generation() + GENERATIONS - NAMES;
        engine.slot(0).begin_with(last % GENERATIONS);
        let mut slots = Vec::new();
        for _ in 0..2 * NAMES {
            let id = register();
            assert!(names.insert(id), "{id:?} was given out before");
            for name in &names {
                let known = if *name == id { Ok(()) } else { Err(ErrorKind::NotRegistered) };
                assert_eq!(port.disable(*name).map_err(|error| error.kind()), known);
            }
            slots.push(name_parts(id.0).0);
            assert_eq!(port.stats().registered, 1);
            port.remove_and_wait(id, None).unwrap();
        }
        assert_eq!(slots, [0, 0, 0, 1, 1, 1]);
        assert_eq!(port.stats().registered, 0);
        // A port whose slots are retired still comes to its end.
        port.shutdown().unwrap();
        let closed = port.wait(&mut Batch::new(), None).unwrap_err();
        assert_eq!(closed.kind(), ErrorKind::Closed);
    }
}
