//! Triggers, and what they require of keys.

use crate::types::interest::Mode;
use crate::types::interest::{Interest, OneShot, Persistent};

/// When a registration reports, and what a packet does to it: [`OneShot`] or [`Persistent`].
///
/// A one-shot trigger works with keys of any type, because its packet moves the key itself to one
/// handler. A persistent trigger requires keys that can be cloned, because each of its packets
/// holds a clone. It does not require [`Sync`]: only one thread at a time clones the port's own
/// key, and has exclusive access to it meanwhile.
///
/// Only the triggers of this crate implement it.
///
/// # Examples
///
/// ```
/// use completion_port::{Interest, OneShot, Persistent, Registration, Trigger};
/// use std::net::UdpSocket;
///
/// fn named(socket: &UdpSocket, trigger: impl Trigger<&'static str>) -> Registration<'_, &'static str> {
///     Registration::new(socket, "name", Interest::IN, trigger)
/// }
///
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// let (_once, _again) = (named(&socket, OneShot::Level), named(&socket, Persistent::Level));
/// # Ok::<(), std::io::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no trigger for keys of type `{K}`",
    label = "this must be a `OneShot`, or a `Persistent` if `{K}` is `Clone`",
    note = "a packet of a persistent registration brings a clone of the key"
)]
pub trait Trigger<K>: sealed::Trigger<K> {}

impl<K> Trigger<K> for OneShot {}

impl<K: Clone> Trigger<K> for Persistent {}

#[allow(unnameable_types, reason = "what cannot be named cannot be implemented elsewhere")]
pub(crate) mod sealed {
    use super::{Interest, Mode};

    /// What this crate requires of a trigger.
    pub trait Trigger<K>: Copy {
        /// Combines the trigger with a filter.
        fn terms(self, interest: Interest) -> Terms<K>;
    }

    /// The settings that a registration is enabled with.
    #[derive(Debug)]
    pub struct Terms<K> {
        /// The filter and the trigger.
        pub(crate) mode: Mode,
        /// How keys are cloned, if packets bring clones.
        pub(crate) clone: Option<fn(&K) -> K>,
    }
}

pub(crate) use sealed::Terms;

impl<K> sealed::Trigger<K> for OneShot {
    #[inline]
    fn terms(self, interest: Interest) -> Terms<K> {
        let mode = Mode { interest, edge: self == Self::Edge, one_shot: true };
        Terms { mode, clone: None }
    }
}

impl<K: Clone> sealed::Trigger<K> for Persistent {
    #[inline]
    fn terms(self, interest: Interest) -> Terms<K> {
        let mode = Mode { interest, edge: self == Self::Edge, one_shot: false };
        Terms { mode, clone: Some(K::clone) }
    }
}
