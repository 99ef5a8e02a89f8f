//! Sources, which can be registered, and how a port identifies them: by a number and the kernel
//! that assigned it.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

#[cfg(feature = "sim")]
use crate::sim;
use crate::types::fd::{OwnedFd, number_of};

/// The number by which the process names a kernel object.
pub(crate) type Descriptor = i32;

/// Something that can be registered on a port: a socket, or whatever else the system can watch.
///
/// Every type that is [`AsFd`](std::os::fd::AsFd) is a source: sockets, files, pipes, and
/// references and `Arc`s of them. With the feature `sim`, a `sim::Socket` is a source for ports on
/// its own simulated kernel.
///
/// A type that contains a source becomes one by returning it. So a server can use the same key type
/// for real and simulated sockets. Only another source can provide the [`BorrowedSource`] that the
/// trait returns.
///
/// An implementation must return the same source each time. A port whose key owns its descriptor
/// checks the source again when the key returns, and refuses a different one with
/// [`ErrorKind::BadDescriptor`](crate::ErrorKind::BadDescriptor).
///
/// # Platform notes
///
/// The types that are sources by default depend on the system. On Unix they are those that are
/// `AsFd`, on Windows those that are `AsSocket`. A [`FileSource`] makes a file a source everywhere.
///
/// # Examples
///
/// ```
/// use completion_port::{Batch, BorrowedSource, Interest, OneShot, Packet, Port, Registration};
/// use completion_port::{Source, sim};
/// use std::net::UdpSocket;
///
/// enum Socket {
///     Real(UdpSocket),
///     Simulated(sim::Socket),
/// }
///
/// impl Source for Socket {
///     fn as_source(&self) -> BorrowedSource<'_> {
///         match self {
///             Socket::Real(socket) => socket.as_source(),
///             Socket::Simulated(socket) => socket.as_source(),
///         }
///     }
/// }
///
/// fn is_writable(port: &Port<Socket>, socket: Socket) -> completion_port::Result<bool> {
///     port.register(Registration::owned(socket, Interest::OUT, OneShot::Level))?;
///     let packet = port.wait(&mut Batch::new(), None)?.next();
///     Ok(matches!(packet, Some(Packet::Ready(ready)) if ready.events().is_out()))
/// }
///
/// assert!(is_writable(&Port::new()?, Socket::Real(UdpSocket::bind("127.0.0.1:0")?))?);
///
/// let kernel = sim::Kernel::new();
/// let port = Port::builder().build_simulated(&kernel)?;
/// assert!(is_writable(&port, Socket::Simulated(kernel.udp_bound()?))?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be registered on a port",
    label = "this is no `Source`",
    note = "every type that is `AsFd` is a `Source`; a type that has a source becomes one by `Source::as_source`",
    note = "an `Arc` of a source that is not `AsFd` is none: use a `SharedSource`"
)]
pub trait Source {
    /// Returns the source for the port to watch.
    fn as_source(&self) -> BorrowedSource<'_>;
}

/// A kernel that assigns numbers to descriptors: the system's own, or a simulated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelId(u64);

impl KernelId {
    /// The kernel that the process runs on.
    pub(crate) const SYSTEM: Self = Self(0);

    /// Creates the id of a new simulated kernel.
    #[cfg(feature = "sim")]
    pub(crate) fn simulated() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }
}

/// A descriptor's number, and the kernel that assigned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceName {
    pub(crate) kernel: KernelId,
    pub(crate) number: Descriptor,
}

/// A borrowed [`Source`], in the form that a port uses.
///
/// The sources of this crate make it, and those of a program return it; see [`Source`].
#[derive(Clone, Copy)]
pub struct BorrowedSource<'s> {
    pub(crate) name: SourceName,
    source: PhantomData<&'s ()>,
}

impl BorrowedSource<'_> {
    /// Creates a source for a descriptor that stays open during the result's lifetime.
    pub(crate) fn new(kernel: KernelId, number: Descriptor) -> Self {
        Self { name: SourceName { kernel, number }, source: PhantomData }
    }
}

impl Source for BorrowedSource<'_> {
    fn as_source(&self) -> BorrowedSource<'_> {
        *self
    }
}

/// A socket that a port has made: one that it has accepted, or connects. Dropping it closes the
/// socket.
///
/// It is a [`Source`], and converts into the types that the program's own types contain: on Unix
/// into an `OwnedFd`, and from there into a `TcpStream`, for example. It is non-blocking, and
/// programs that the process executes do not inherit it.
///
/// The program's own descriptors convert into it, so that a server can use one type for all its
/// sockets.
///
/// # Examples
///
/// A socket of the system:
///
/// ```
/// use completion_port::{OwnedSource, Source};
/// use std::net::{TcpListener, TcpStream};
/// # #[cfg(windows)]
/// # use std::os::windows::io::OwnedSocket as OwnedFd;
/// # #[cfg(unix)]
/// use std::os::fd::OwnedFd;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let socket = OwnedSource::from(OwnedFd::from(listener));
///
/// let listener = TcpListener::from(OwnedFd::from(socket));
/// assert_eq!(listener.local_addr()?, address);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A simulated one:
///
/// ```
/// use completion_port::{OwnedSource, sim};
///
/// let kernel = sim::Kernel::new();
/// let (ours, theirs) = kernel.tcp_pair()?;
/// let socket = OwnedSource::from(ours);
///
/// theirs.write(b"hello")?;
/// let ours = socket.into_simulated().expect("a simulated socket");
/// assert_eq!(ours.read(&mut [0; 9])?, 5);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct OwnedSource(pub(crate) OwnedKind);

pub(crate) enum OwnedKind {
    System(OwnedFd),
    #[cfg(feature = "sim")]
    Simulated(sim::Socket),
}

impl OwnedSource {
    /// Returns the simulated socket, if it is one.
    ///
    /// # Errors
    ///
    /// A socket of the system is returned unchanged.
    #[cfg(feature = "sim")]
    pub fn into_simulated(self) -> Result<sim::Socket, Self> {
        match self.0 {
            OwnedKind::Simulated(socket) => Ok(socket),
            kind @ OwnedKind::System(_) => Err(Self(kind)),
        }
    }

    /// Returns the descriptor, if it is one of the system.
    ///
    /// # Errors
    ///
    /// A simulated socket is returned unchanged.
    pub fn into_descriptor(self) -> Result<OwnedFd, Self> {
        match self.0 {
            OwnedKind::System(descriptor) => Ok(descriptor),
            #[cfg(feature = "sim")]
            kind @ OwnedKind::Simulated(_) => Err(Self(kind)),
        }
    }
}

impl Source for OwnedSource {
    fn as_source(&self) -> BorrowedSource<'_> {
        match &self.0 {
            OwnedKind::System(descriptor) => {
                BorrowedSource::new(KernelId::SYSTEM, number_of(descriptor))
            }
            #[cfg(feature = "sim")]
            OwnedKind::Simulated(socket) => socket.as_source(),
        }
    }
}

impl From<OwnedFd> for OwnedSource {
    fn from(descriptor: OwnedFd) -> Self {
        Self(OwnedKind::System(descriptor))
    }
}

#[cfg(feature = "sim")]
impl From<sim::Socket> for OwnedSource {
    fn from(socket: sim::Socket) -> Self {
        Self(OwnedKind::Simulated(socket))
    }
}

impl From<OwnedSource> for OwnedFd {
    /// # Panics
    ///
    /// If the socket is a simulated one, which has no descriptor. Ports of the system never make
    /// these. If it may be either, use [`OwnedSource::into_descriptor`].
    fn from(source: OwnedSource) -> Self {
        source.into_descriptor().expect("a simulated socket has no descriptor")
    }
}

impl fmt::Debug for OwnedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedSource").field(&self.as_source()).finish()
    }
}

impl fmt::Debug for BorrowedSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simulated = self.name.kernel != KernelId::SYSTEM;
        f.debug_struct("BorrowedSource")
            .field("number", &self.name.number)
            .field("simulated", &simulated)
            .finish()
    }
}

/// A file as a [`Source`], in the same way on every system.
///
/// On Unix, a file is itself a source and doesn't need this. On Windows only sockets are sources,
/// because files are named differently. Portable programs wrap their files in this.
///
/// # Examples
///
/// ```
/// use completion_port::{Batch, FileSource, Outcome, Packet, Port};
/// use std::fs::File;
///
/// # let path = std::env::current_exe()?;
/// let port: Port<FileSource<File>> = Port::builder().build()?;
/// port.associate(FileSource::new(File::open(path)?))?.read_at(vec![0; 16], 0)?;
/// let Some(Packet::Completed(done)) = port.wait(&mut Batch::new(), None)?.next() else { panic!() };
/// let (token, Outcome::Read(read, _)) = done.into_parts() else { panic!() };
/// assert_eq!(read?, 16);
/// let length = token.key().metadata()?.len();
/// # assert!(length > 16);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileSource<F>(F);

impl<F> FileSource<F> {
    /// Wraps a file.
    pub fn new(file: F) -> Self {
        Self(file)
    }

    /// Returns the file itself.
    #[must_use]
    pub fn into_inner(this: Self) -> F {
        this.0
    }
}

impl<F> Deref for FileSource<F> {
    type Target = F;
    fn deref(&self) -> &F {
        &self.0
    }
}

/// A source that its clones share: a key for persistent registrations.
///
/// An `Arc` of a type that is [`AsFd`](std::os::fd::AsFd) is itself a source and doesn't need this.
/// An `Arc` of any other source is not a source. A `SharedSource` is such an `Arc` and also a
/// source.
///
/// # Examples
///
/// ```
/// use completion_port::{Batch, Interest, Packet, Persistent, Port, Registration, SharedSource, sim};
///
/// let kernel = sim::Kernel::new();
/// let port: Port<SharedSource<sim::Socket>> = Port::builder().build_simulated(&kernel)?;
/// let (ours, theirs) = kernel.tcp_pair()?;
/// port.register(Registration::owned(SharedSource::new(ours), Interest::IN, Persistent::Level))?;
///
/// theirs.write(b"hello")?;
/// let Some(Packet::Notified(notified)) = port.wait(&mut Batch::new(), None)?.next() else { panic!() };
/// assert_eq!(notified.key().read(&mut [0; 9])?, 5); // a clone of the port's own key
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedSource<S: ?Sized>(Arc<S>);

impl<S> SharedSource<S> {
    /// Wraps a source that is not shared yet.
    pub fn new(source: S) -> Self {
        Self(Arc::new(source))
    }

    /// Returns the source itself if `this` is its last clone, like [`Arc::into_inner`].
    #[must_use]
    pub fn into_inner(this: Self) -> Option<S> {
        Arc::into_inner(this.0)
    }
}

impl<S: Source + ?Sized> Source for SharedSource<S> {
    fn as_source(&self) -> BorrowedSource<'_> {
        self.0.as_source()
    }
}

impl<S: ?Sized> Clone for SharedSource<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: ?Sized> Deref for SharedSource<S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S: ?Sized> From<Arc<S>> for SharedSource<S> {
    fn from(source: Arc<S>) -> Self {
        Self(source)
    }
}

impl<S: fmt::Debug + ?Sized> fmt::Debug for SharedSource<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedSource").field(&&*self.0).finish()
    }
}
