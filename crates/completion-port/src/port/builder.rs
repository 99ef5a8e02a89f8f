//! Settings that make a port.

use std::marker::PhantomData;
use std::time::Duration;

use crate::backend::Backend;
use crate::engine::Engine;
use crate::memory::cells::{Cells, CellsApart};
use crate::port::{Port, Store};
use crate::sys;
use crate::types::buffer::Buffer;
use crate::types::config::{BlockDetection, FileEngine, IdleHook, Readiness};
use crate::types::error::{Call, Error, Result};
use crate::types::source::KernelId;

/// Settings for a new port. [`Port::builder`] returns the defaults.
///
/// The settings don't depend on the port's types. The compiler infers these at
/// [`PortBuilder::build`], from how the port is used or from an annotation.
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
    overcommit_after: Option<Duration>,
    no_idle: Option<IdleHook>,
    /// The type of the buffers. The builder contains none.
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
            overcommit_after: None,
            no_idle: None,
            buffers: PhantomData,
        }
    }
}

/// Returns how many processors the process may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl<B> PortBuilder<B> {
    /// Sets how many threads may run with packets simultaneously. 0 means the number of processors
    /// that the process may use ([`std::thread::available_parallelism`]).
    pub fn concurrency(mut self, threads: usize) -> Self {
        self.concurrency = threads;
        self
    }

    /// Sets how the port detects that a handler is blocking. The default is the best method the
    /// system offers.
    pub fn block_detection(mut self, detection: BlockDetection) -> Self {
        self.block_detection = detection;
        self
    }

    /// Makes the port arm each descriptor again after each report, as on systems without
    /// edge-triggered sets.
    ///
    /// That costs a system call for each packet. The setting exists to test the code for such
    /// systems on this one.
    #[cfg(feature = "sim")]
    pub fn one_shot_kernel(mut self, one_shot: bool) -> Self {
        self.one_shot_kernel = one_shot;
        self
    }

    /// Sets how the port performs operations on files that have to wait for a disk. The default is
    /// the best method the system offers.
    pub fn file_engine(mut self, engine: FileEngine) -> Self {
        self.file_engine = engine;
        self
    }

    /// Sets how the system reports to the port that sockets are ready, if it has more than one way.
    /// The default is [`Readiness::Automatic`].
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// Measures, from the start, how long packets wait in the queue. Off by default.
    ///
    /// See [`Port::measure_queue_delays`].
    pub fn queue_delays(mut self, measured: bool) -> Self {
        self.queue_delays = measured;
        self
    }

    /// Lets more threads run than the concurrency value allows while every running thread computes.
    /// Off by default: a handler that computes keeps its place, however long.
    ///
    /// If packets have waited for `time`, and no running thread has come to wait meanwhile, the
    /// thread that has run longest no longer counts, and one more thread may run. At most one more
    /// thread does so each `time`, and at most twice as many threads run as the concurrency value.
    /// A thread that does not count stops at its next wait, if the others are enough. The port
    /// looks every millisecond, so `time` may be exceeded by two. It needs an idle thread for that,
    /// and for the packets.
    ///
    /// Use it for handlers that compute for tens of milliseconds next to quick ones. The quick ones
    /// then share the processors with the computing ones, instead of waiting for them. A handler
    /// that sleeps needs no such setting where the system reports sleeping threads.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Packet, Port};
    /// use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    /// use std::time::Duration;
    ///
    /// let port: Port<(), &str> =
    ///     Port::builder().concurrency(1).overcommit_after(Duration::from_millis(10)).build()?;
    /// port.post("compute")?;
    /// port.post("quick")?;
    /// let done = AtomicBool::new(false);
    /// let serve = || {
    ///     let mut batch = Batch::with_capacity(1);
    ///     for packet in port.wait(&mut batch, None).unwrap() {
    ///         match packet {
    ///             Packet::Posted("quick") => done.store(true, SeqCst),
    ///             _ => while !done.load(SeqCst) { std::hint::spin_loop() },
    ///         }
    ///     }
    /// };
    /// std::thread::scope(|scope| {
    ///     scope.spawn(serve);
    ///     scope.spawn(serve);
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn overcommit_after(mut self, time: Duration) -> Self {
        self.overcommit_after = Some(time);
        self
    }

    /// Sets a hook that runs when no idle thread is left, so that a pool can grow on demand.
    ///
    /// An idle thread is one that waits, awake or asleep, and has no packet. The hook runs whenever
    /// a thread
    ///
    /// - leaves its wait with packets, before it gets the first one, or
    /// - announces that it blocks, by [`Port::blocking`] or [`Port::remove_and_wait`],
    ///
    /// and no other thread is idle then. A thread that sleeps in a handler is not idle, announced or
    /// not. Packets that come later stay queued until a thread waits: one that returns, or one that
    /// the hook starts. So no packet is stuck without a call of the hook since the last thread
    /// waited. If several threads leave simultaneously, the last one runs it; others may run it too.
    ///
    /// A wait that times out does not run the hook. Its thread should wait again, or end if
    /// [`Port::idle_threads`] is not 0.
    ///
    /// The hook runs on that thread, without a lock. It may call the port, but must not wait on it.
    /// Packets are delayed for as long as it takes, so let it only wake the thread that starts
    /// others. A busy pool runs it at each wait, which costs an indirect call. If it panics, the
    /// wait panics, and the packets return to the queue when the thread waits again or ends.
    ///
    /// # Examples
    ///
    /// A pool that starts a thread when it needs one, up to a maximum:
    ///
    /// ```
    /// use completion_port::{Batch, Packet, Port};
    /// use std::sync::mpsc::{channel, sync_channel};
    /// use std::thread;
    ///
    /// const MOST: usize = 8;
    ///
    /// enum Job {
    ///     Send(std::sync::mpsc::Sender<u32>),
    ///     Receive(std::sync::mpsc::Receiver<u32>),
    /// }
    ///
    /// fn serve(port: &Port<(), Job>) {
    ///     let mut batch = Batch::with_capacity(1);
    ///     while let Ok(packets) = port.wait(&mut batch, None) {
    ///         for packet in packets {
    ///             match packet {
    ///                 Packet::Posted(Job::Send(to)) => to.send(7).unwrap(),
    ///                 // Blocks until another thread has sent.
    ///                 Packet::Posted(Job::Receive(from)) => {
    ///                     assert_eq!(port.blocking(|| from.recv()), Ok(7));
    ///                     port.close();
    ///                 }
    ///                 _ => {}
    ///             }
    ///         }
    ///     }
    /// }
    ///
    /// // Room for one: several calls before a thread is started count as one.
    /// let (grow, needed) = sync_channel(1);
    /// let port: Port<(), Job> = Port::builder()
    ///     .on_no_idle(move || {
    ///         let _ = grow.try_send(());
    ///     })
    ///     .build()?;
    /// let (to, from) = channel();
    /// port.post(Job::Receive(from))?;
    /// port.post(Job::Send(to))?;
    /// thread::scope(|scope| {
    ///     let mut threads = vec![scope.spawn(|| serve(&port))];
    ///     while !threads.iter().any(|thread| thread.is_finished()) {
    ///         let is_needed = needed.recv_timeout(std::time::Duration::from_millis(10)).is_ok();
    ///         if is_needed && threads.len() < MOST {
    ///             threads.push(scope.spawn(|| serve(&port)));
    ///         }
    ///     }
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_no_idle(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.no_idle = Some(IdleHook::new(hook));
        self
    }

    /// Sets the type of [`Buffer`] that the port's operations send and fill. The default is
    /// `Vec<u8>`.
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
            overcommit_after,
            no_idle,
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
            overcommit_after,
            no_idle,
            buffers,
        }
    }

    /// Makes the port.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::DescriptorLimit`](crate::ErrorKind::DescriptorLimit) or
    ///   [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory): the system has no descriptor or
    ///   memory left.
    /// - [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported): you chose
    ///   [`BlockDetection::Switches`], [`FileEngine::Ring`] or a [`Readiness`] explicitly, and this
    ///   system does not offer it.
    pub fn build<K, M>(self) -> Result<Port<K, M, B>> {
        let backend = sys::native(self.one_shot_kernel, self.file_engine, self.readiness)
            .map_err(|fault| Error::new(Call::Create, fault.kind).with_code(fault.code))?;
        self.build_on(backend, KernelId::SYSTEM)
    }

    /// Makes a port on a simulated kernel.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if you chose
    /// [`BlockDetection::Switches`] and the simulated kernel is configured without the scheduler's
    /// records.
    #[cfg(feature = "sim")]
    pub fn build_simulated<K, M>(self, kernel: &crate::sim::Kernel) -> Result<Port<K, M, B>> {
        let backend = kernel.backend(self.one_shot_kernel);
        self.build_on(backend, kernel.id())
    }

    pub(crate) fn build_on<K, M>(
        self,
        backend: Box<dyn Backend>,
        kernel: KernelId,
    ) -> Result<Port<K, M, B>> {
        let limit = match self.concurrency {
            0 => processors(),
            given => given,
        };
        let engine = Engine::new(limit, self.block_detection, self.no_idle, backend)?;
        if self.queue_delays {
            engine.measure_delays(true);
        }
        if let Some(time) = self.overcommit_after {
            engine.overcommit_after(time);
        }
        Ok(Port {
            store: Store::new(engine, kernel),
            messages: CellsApart::new(),
            messages_of: Cells::new(),
        })
    }
}

impl<K> Port<K> {
    /// Makes a port with the default settings, whose only message is `()`. For messages of another
    /// type, use `Port::builder().build()`.
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
    /// Returns the default settings, for a port of any types. By default, as many threads may run
    /// as there are processors.
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
