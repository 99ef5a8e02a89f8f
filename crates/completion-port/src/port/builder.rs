//! Makes a port.

use std::marker::PhantomData;

use crate::backend::Backend;
use crate::engine::Engine;
use crate::memory::cells::Cells;
use crate::port::{Port, Store};
use crate::sys;
use crate::types::buffer::Buffer;
use crate::types::config::{BlockDetection, FileEngine, Readiness};
use crate::types::error::{Call, Error, Result};
use crate::types::source::KernelId;

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
    /// [`ErrorKind::DescriptorLimit`](crate::ErrorKind::DescriptorLimit) or [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if the system has no descriptor
    /// or memory left; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if [`BlockDetection::Switches`], [`FileEngine::Ring`] or a
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
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if [`BlockDetection::Switches`] was asked for and the simulated kernel
    /// was told that it has no such records.
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
        let engine = Engine::new(limit, self.block_detection, backend)?;
        if self.queue_delays {
            engine.measure_delays(true);
        }
        Ok(Port { store: Store::new(engine, kernel), messages: Cells::new() })
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
