//! What is handed to a port to be watched, and the name it gets there.

use std::fmt;

use crate::error::Error;
use crate::interest::{Interest, OneShot, Persistent};
use crate::state::facts::Descriptor;
use crate::state::slot::Mode;
use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd};

/// The name of a registration on its port; it means nothing to another port. It is never used again once the registration has ended;
/// a call with the name of an ended one is refused with
/// [`ErrorKind::NotRegistered`](crate::ErrorKind::NotRegistered).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub(crate) u64);

impl Error {
    /// The registration that the descriptor has already, if that is on this port; only ever there with
    /// [`ErrorKind::AlreadyRegistered`](crate::ErrorKind::AlreadyRegistered).
    ///
    /// Change it by [`Port::rearm`](crate::Port::rearm), or end it by [`Port::remove`](crate::Port::remove).
    /// Another thread may have done so meanwhile.
    #[must_use]
    pub fn registration(&self) -> Option<Id> {
        self.existing.map(Id)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, generation) = crate::engine::token_parts(self.0);
        write!(f, "Id({index}#{generation})")
    }
}

impl OneShot {
    #[inline]
    pub(crate) fn mode(self, interest: Interest) -> Mode {
        Mode { interest, edge: self == Self::Edge, one_shot: true }
    }
}

impl Persistent {
    pub(crate) fn mode(self, interest: Interest) -> Mode {
        Mode { interest, edge: self == Self::Edge, one_shot: false }
    }
}

/// A descriptor, the key that stands for it, what to report of it and how: everything that
/// [`Port::register`](crate::Port::register) needs.
///
/// The descriptor may be a socket of any family and state, a pipe, an eventfd, timerfd or pidfd, a
/// terminal: whatever the system can watch. It may be blocking or not.
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
/// let shared = Registration::persistent(&socket, Arc::new("name"), Interest::IN, Persistent::Edge);
/// // The key *is* the socket: the port owns it as long as it is registered.
/// let owned = Registration::owned(socket.try_clone()?, Interest::IN, OneShot::Level);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a registration does nothing until it is handed to a port"]
pub struct Registration<'s, K> {
    pub(crate) owner: Owner<'s>,
    pub(crate) number: Descriptor,
    pub(crate) key: K,
    pub(crate) mode: Mode,
    pub(crate) clone: Option<fn(&K) -> K>,
    pub(crate) descriptor_of: Option<fn(&K) -> Descriptor>,
}

/// Who owns the descriptor of a registration.
pub(crate) enum Owner<'s> {
    /// Its key.
    Key,
    /// The caller, at least until it is registered.
    Caller(
        #[allow(dead_code, reason = "borrowed for as long as the registration is")] BorrowedFd<'s>,
    ),
    /// Nobody has said so.
    Unknown,
}

impl<K: AsFd> Registration<'static, K> {
    /// A key that owns its descriptor: a socket, or a struct or enum that has one.
    ///
    /// While it is registered the port owns the key, so the descriptor cannot be closed under it. A
    /// packet hands the key to the handler, where it lies: it is not moved until the registration ends.
    pub fn owned(key: K, interest: Interest, trigger: OneShot) -> Self {
        let descriptor_of: fn(&K) -> Descriptor = |key| key.as_fd().as_raw_fd();
        Self {
            owner: Owner::Key,
            number: descriptor_of(&key),
            key,
            mode: trigger.mode(interest),
            clone: None,
            descriptor_of: Some(descriptor_of),
        }
    }
}

impl<'s, K> Registration<'s, K> {
    /// A descriptor that stays with the caller, and any key.
    ///
    /// Remove the registration before the descriptor is closed. Closing it first is safe, and ends
    /// the registration without a packet as soon as the port finds out: at the latest when the
    /// number is registered again, or when it is armed and checked; then the key is dropped. If a duplicate
    /// keeps the object alive, it is reported until then.
    pub fn new<S: AsFd + ?Sized>(
        socket: &'s S,
        key: K,
        interest: Interest,
        trigger: OneShot,
    ) -> Self {
        Self::borrowed(socket.as_fd(), key, trigger.mode(interest), None)
    }

    /// A registration that stays enabled; each packet has a clone of the key.
    ///
    /// As for [`Registration::new`], the descriptor stays with the caller.
    pub fn persistent<S: AsFd + ?Sized>(
        socket: &'s S,
        key: K,
        interest: Interest,
        trigger: Persistent,
    ) -> Self
    where
        K: Clone,
    {
        Self::borrowed(socket.as_fd(), key, trigger.mode(interest), Some(K::clone))
    }

    fn borrowed(socket: BorrowedFd<'s>, key: K, mode: Mode, clone: Option<fn(&K) -> K>) -> Self {
        let number = socket.as_raw_fd();
        Self { owner: Owner::Caller(socket), number, key, mode, clone, descriptor_of: None }
    }

    /// A descriptor of which only the number is known.
    pub(crate) fn numbered(number: Descriptor, key: K, mode: Mode) -> Self
    where
        K: Clone,
    {
        let clone: fn(&K) -> K = K::clone;
        Self { owner: Owner::Unknown, number, key, mode, clone: Some(clone), descriptor_of: None }
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
            .field("owned", &matches!(self.owner, Owner::Key))
            .field("interest", &self.mode.interest)
            .field("edge", &self.mode.edge)
            .field("one_shot", &self.mode.one_shot)
            .finish_non_exhaustive()
    }
}
