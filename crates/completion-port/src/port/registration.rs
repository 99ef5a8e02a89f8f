//! What a caller hands to a port to be watched, and the name that it gets there.

use std::fmt;

use crate::types::error::Error;
use crate::types::interest::Interest;
use crate::types::source::Descriptor;
use crate::types::source::{BorrowedSource, KernelId, Source, SourceName};
use crate::types::trigger::{Terms, Trigger};

/// The name of a registration on its port; it means nothing to another port. A name is never used
/// again once its registration has ended: a call with such a name is refused with
/// [`ErrorKind::NotRegistered`](crate::ErrorKind::NotRegistered).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub(crate) u64);

impl Error {
    /// The registration that the descriptor has already, if that is on this port. Only an error of
    /// kind [`ErrorKind::AlreadyRegistered`](crate::ErrorKind::AlreadyRegistered) has it.
    ///
    /// Change it by [`Port::enable`](crate::Port::enable), or end it by [`Port::remove`](crate::Port::remove).
    /// Another thread may have done so meanwhile.
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

/// A [`Source`], the key that stands for it, what to report of it and how: everything that
/// [`Port::register`](crate::Port::register) needs.
///
/// The source is a descriptor, or a simulated one. The descriptor may be a socket of any
/// family and state, a pipe, an eventfd, timerfd or pidfd, a terminal: whatever the system can watch.
/// It may be blocking or not.
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
    /// The kernel that gave the number; `None` if only the number is known.
    pub(crate) kernel: Option<KernelId>,
    pub(crate) number: Descriptor,
    pub(crate) key: K,
    pub(crate) terms: Terms<K>,
    pub(crate) source_of: Option<fn(&K) -> SourceName>,
}

/// The owner of a registration's descriptor.
pub(crate) enum SourceOwner<'s> {
    /// Its key.
    Key,
    /// The caller, at least until it is registered.
    Caller(
        #[allow(dead_code, reason = "borrowed for as long as the registration is")]
        BorrowedSource<'s>,
    ),
    /// The caller has not said.
    Unknown,
}

impl<K: Source> Registration<'static, K> {
    /// A key that owns its descriptor: a socket, or a struct or enum that has one and is a [`Source`] by
    /// that.
    ///
    /// While it is registered the port owns the key, so the descriptor cannot be closed under it. A
    /// one-shot packet lends the key to the handler. The key is not moved in memory until the
    /// registration ends.
    ///
    /// A persistent packet brings a clone of the key, so the key is one that shares its descriptor
    /// with its clones, as `Arc<TcpStream>` and [`SharedSource`](crate::SharedSource) do.
    ///
    /// The registration lasts as long as the port has its own key, whatever becomes of the clones.
    /// It goes on if all clones are dropped. When it ends nothing more is reported, though clones
    /// keep the descriptor open. Through a clone the program can use the descriptor and register it
    /// anew; the last clone that is dropped closes it.
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
        }
    }
}

impl<'s, K> Registration<'s, K> {
    /// A source that stays with the caller, and any key. With a persistent trigger the registration
    /// stays enabled, and each packet has a clone of the key.
    ///
    /// Remove the registration before the descriptor is closed. Closing it first is safe: the
    /// registration ends without a packet as soon as the port finds out, and the key is dropped
    /// then. The port finds out at the latest when the number is registered again, or when the
    /// registration is enabled and checked. If a duplicate keeps the object alive, packets report
    /// it until then.
    ///
    /// Linux since 6.9: if another thread is just coming out of the kernel's wait when a registered
    /// descriptor is closed, the object may stay open until that thread comes out of it again, and a peer
    /// learns of the end that late. Not so if the registration was removed first, or if its key owns
    /// the descriptor ([`Registration::owned`]).
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
        }
    }

    /// A descriptor of which only the number is known.
    pub(crate) fn numbered(number: Descriptor, key: K, terms: Terms<K>) -> Self {
        Self { owner: SourceOwner::Unknown, kernel: None, number, key, terms, source_of: None }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Gives the key back.
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
            .finish_non_exhaustive()
    }
}
