//! A registration as the caller describes it, and its name on the port.

use std::fmt;

use crate::port::deadline::Deadline;
use crate::types::error::Error;
use crate::types::interest::Interest;
use crate::types::source::Descriptor;
use crate::types::source::{BorrowedSource, KernelId, Source, SourceName};
use crate::types::trigger::{Terms, Trigger};

/// The name of a registration on its port. Other ports don't know it.
///
/// A name is never reused. After its registration has ended, calls with the name are refused with
/// [`ErrorKind::NotRegistered`](crate::ErrorKind::NotRegistered).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub(crate) u64);

impl Error {
    /// Returns the descriptor's existing registration, if it is on this port.
    ///
    /// Only an error of kind [`ErrorKind::AlreadyRegistered`](crate::ErrorKind::AlreadyRegistered)
    /// has one. To change the registration, call [`Port::enable`](crate::Port::enable). To end it,
    /// call [`Port::remove`](crate::Port::remove). Another thread may already have done so.
    #[must_use]
    pub fn registration(&self) -> Option<Id> {
        self.existing.map(Id)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::engine::DisplayedName(self.0).fmt(f)
    }
}

/// A [`Source`], the key that stands for it, and what to report when: everything that
/// [`Port::register`](crate::Port::register) needs.
///
/// The source is a descriptor, or a simulated one. The descriptor may be a socket of any family in
/// any state, a pipe, an eventfd, a timerfd, a pidfd, a terminal: whatever the system can watch. It
/// may be blocking or non-blocking.
///
/// # Examples
///
/// ```
/// use completion_port::{Interest, OneShot, Persistent, Registration};
/// use std::net::UdpSocket;
/// use std::sync::Arc;
///
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// // The key is any value; the socket stays with the caller.
/// let by_number = Registration::new(&socket, 7_usize, Interest::IN, OneShot::Level);
/// // A persistent registration hands out clones of its key.
/// let shared = Registration::new(&socket, Arc::new("name"), Interest::IN, Persistent::Edge);
/// // The key *is* the socket: the port owns it as long as it is registered.
/// let owned = Registration::owned(socket.try_clone()?, Interest::IN, OneShot::Level);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a registration does nothing until it is handed to a port"]
pub struct Registration<'s, K> {
    pub(crate) owner: SourceOwner<'s>,
    /// The kernel that assigned the number; `None` if only the number is known.
    pub(crate) kernel: Option<KernelId>,
    pub(crate) number: Descriptor,
    pub(crate) key: K,
    pub(crate) terms: Terms<K>,
    pub(crate) source_of: Option<fn(&K) -> SourceName>,
    pub(crate) deadline: Option<Deadline>,
}

/// The owner of a registration's descriptor.
pub(crate) enum SourceOwner<'s> {
    /// Its key.
    Key,
    /// The caller, at least until the descriptor is registered.
    Caller(
        #[allow(dead_code, reason = "borrowed for as long as the registration is")]
        BorrowedSource<'s>,
    ),
    /// The caller did not say.
    Unknown,
}

impl<K: Source> Registration<'static, K> {
    /// Creates a registration of a key that owns its descriptor: a socket, or a struct or enum that
    /// contains one and implements [`Source`].
    ///
    /// While the key is registered, the port owns it, so nothing else can close the descriptor. A
    /// one-shot packet lends the key to the handler. The key stays at its address until the
    /// registration ends.
    ///
    /// A persistent packet holds a clone of the key. So the key must share its descriptor with its
    /// clones, as `Arc<TcpStream>` and [`SharedSource`](crate::SharedSource) do.
    ///
    /// The registration lasts as long as the port has its own key, even if all clones are dropped.
    /// Once it ends, nothing more is reported, although clones keep the descriptor open. Through a
    /// clone, the program can use the descriptor and register it again. Dropping the last clone
    /// closes it.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, Packet, Persistent, Port, Registration};
    /// use std::net::UdpSocket;
    /// use std::sync::Arc;
    ///
    /// let port = Port::new()?;
    /// let socket = Arc::new(UdpSocket::bind("127.0.0.1:0")?);
    /// let (address, mut batch) = (socket.local_addr()?, Batch::new());
    /// let id = port.register(Registration::owned(socket, Interest::OUT, Persistent::Edge))?;
    ///
    /// let Some(Packet::Notified(notified)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// let clone = notified.into_key();
    /// drop(port.remove_and_wait(id, None)?); // the port's own key
    /// assert_eq!(clone.local_addr()?, address); // still open
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn owned(key: K, interest: Interest, trigger: impl Trigger<K>) -> Self {
        let source_of: fn(&K) -> SourceName = |key| key.as_source().name;
        let SourceName { kernel, number } = source_of(&key);
        Self {
            owner: SourceOwner::Key,
            kernel: Some(kernel),
            number,
            key,
            terms: trigger.terms(interest),
            source_of: Some(source_of),
            deadline: None,
        }
    }
}

impl<'s, K> Registration<'s, K> {
    /// Creates a registration of a source that the caller keeps, with any key.
    ///
    /// With a persistent trigger the registration stays enabled, and each packet holds a clone of
    /// the key.
    ///
    /// Remove the registration before you close the descriptor. Closing it first is safe: the
    /// registration ends without a packet, and the key is dropped, as soon as the port detects the
    /// close. That happens at the latest when the number is registered again, or when the
    /// registration is enabled and checked. Until then, if a duplicate keeps the object open,
    /// packets report its events.
    ///
    /// Linux 6.9 and later: if you close a registered descriptor while another thread is returning
    /// from the kernel's wait, the object may stay open until that thread's next return. A peer
    /// sees the end only then. To avoid this, remove the registration first, or let its key own the
    /// descriptor ([`Registration::owned`]).
    pub fn new<S: Source + ?Sized>(
        source: &'s S,
        key: K,
        interest: Interest,
        trigger: impl Trigger<K>,
    ) -> Self {
        let source = source.as_source();
        Self {
            owner: SourceOwner::Caller(source),
            kernel: Some(source.name.kernel),
            number: source.name.number,
            key,
            terms: trigger.terms(interest),
            source_of: None,
            deadline: None,
        }
    }

    /// Creates a registration of a descriptor of which only the number is known.
    pub(crate) fn numbered(number: Descriptor, key: K, terms: Terms<K>) -> Self {
        let owner = SourceOwner::Unknown;
        Self { owner, kernel: None, number, key, terms, source_of: None, deadline: None }
    }

    /// Sets a deadline for the first packet, as [`Ready::rearm_until`](crate::Ready::rearm_until)
    /// does for the next one.
    ///
    /// If nothing has happened by then, that packet reports
    /// [`Events::TIMED_OUT`](crate::Events::TIMED_OUT). A duration counts from the registration.
    ///
    /// # Examples
    ///
    /// A client that connects and says nothing:
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
    /// use std::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// let port = Port::<TcpStream>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let _silent = TcpStream::connect(listener.local_addr()?)?;
    /// let (client, _) = listener.accept()?;
    /// let client = Registration::owned(client, Interest::IN, OneShot::Level);
    /// port.register(client.deadline(Duration::from_millis(10)))?;
    ///
    /// let mut batch = Batch::new();
    /// let Some(Packet::Ready(ready)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// assert!(ready.events().is_timed_out());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deadline(self, deadline: impl Into<Deadline>) -> Self {
        Self { deadline: Some(deadline.into()), ..self }
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Consumes the registration and returns its key.
    #[must_use]
    pub fn into_key(self) -> K {
        self.key
    }
}

impl<K> fmt::Debug for Registration<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("descriptor", &self.number)
            .field("owned", &matches!(self.owner, SourceOwner::Key))
            .field("interest", &self.terms.mode.interest)
            .field("edge", &self.terms.mode.edge)
            .field("one_shot", &self.terms.mode.one_shot)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
