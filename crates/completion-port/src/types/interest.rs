//! The conditions that a registration requests and a packet reports.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Sub};

macro_rules! set_of_bits {
    ($name:ident: $($bit:ident)|+) => {
        impl $name {
            /// Returns whether this contains all of `other`.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns whether this contains any of `other`.
            #[must_use]
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Returns whether this is empty.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            pub(crate) const fn bits(self) -> u8 {
                self.0
            }
        }

        impl BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl BitAnd for $name {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut first = true;
                for (bit, name) in [$((Self::$bit, stringify!($bit))),+] {
                    if self.contains(bit) {
                        f.write_str(if first { "" } else { "|" })?;
                        f.write_str(name)?;
                        first = false;
                    }
                }
                if first { f.write_str("NONE") } else { Ok(()) }
            }
        }
    };
}

/// The event filter: the conditions that a registration requests.
///
/// Errors are always reported and cannot be requested.
///
/// ```
/// use completion_port::Interest;
/// let both = Interest::IN | Interest::HANGUP;
/// assert!(both.contains(Interest::IN) && !both.contains(Interest::OUT));
/// assert_eq!(format!("{both:?}"), "IN|HANGUP");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Interest(u8);

impl Interest {
    /// Nothing but errors, and a complete hang-up once at each enabling. If a handler enables a
    /// hung-up descriptor with this filter at each packet, the next packet follows immediately,
    /// forever: after a hang-up there is nothing left to wait for.
    pub const NONE: Self = Self(0);
    /// A read or an accept would not block. The end of a stream is reported as IN too, unless
    /// [`Interest::HANGUP`] was requested.
    pub const IN: Self = Self(1);
    /// A write would not block, or a connect has completed.
    pub const OUT: Self = Self(2);
    /// A stream was disconnected, half-closed by its peer, or aborted. Never on datagram sockets.
    pub const HANGUP: Self = Self(4);
    /// All conditions.
    pub const ALL: Self = Self(7);

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }
}

set_of_bits!(Interest: IN | OUT | HANGUP);

/// The conditions that held, as a packet reports them.
///
/// ```
/// use completion_port::Events;
/// let events = Events::IN | Events::HANGUP;
/// assert!(events.is_in() && events.is_hangup() && !events.is_err());
/// assert_eq!((events - Events::IN, events & Events::OUT), (Events::HANGUP, Events::NONE));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Events(u8);

impl Events {
    /// No condition.
    pub const NONE: Self = Self(0);
    /// A read or an accept would not block.
    pub const IN: Self = Self(1);
    /// A write would not block, or a connect has completed.
    pub const OUT: Self = Self(2);
    /// A stream was disconnected, half-closed by its peer, or aborted.
    pub const HANGUP: Self = Self(4);
    /// The stream has ended in both directions, so a write fails. Always comes with
    /// [`Events::HANGUP`]. HANGUP alone means that the peer has ended its half, and that you may
    /// still write.
    pub const WRITE_CLOSED: Self = Self(8);
    /// The deadline of the arming has passed, perhaps without any other event. Only with
    /// [`Ready::rearm_until`](crate::Ready::rearm_until).
    pub const TIMED_OUT: Self = Self(0x20);
    /// An error is pending. A read or `take_error` returns it, and clears it. On Linux it may
    /// instead be an entry of the socket's error queue, which only a receive with `MSG_ERRQUEUE`
    /// takes.
    pub const ERR: Self = Self(0x40);

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns whether this contains [`Events::IN`].
    #[must_use]
    pub const fn is_in(self) -> bool {
        self.contains(Self::IN)
    }

    /// Returns whether this contains [`Events::OUT`].
    #[must_use]
    pub const fn is_out(self) -> bool {
        self.contains(Self::OUT)
    }

    /// Returns whether this contains [`Events::HANGUP`].
    #[must_use]
    pub const fn is_hangup(self) -> bool {
        self.contains(Self::HANGUP)
    }

    /// Returns whether nothing more will arrive, apart from unread data. Equivalent to
    /// [`Events::is_hangup`].
    #[must_use]
    pub const fn is_read_closed(self) -> bool {
        self.is_hangup()
    }

    /// Returns whether this contains [`Events::TIMED_OUT`].
    #[must_use]
    pub const fn is_timed_out(self) -> bool {
        self.contains(Self::TIMED_OUT)
    }

    /// Returns whether this contains [`Events::WRITE_CLOSED`].
    #[must_use]
    pub const fn is_write_closed(self) -> bool {
        self.contains(Self::WRITE_CLOSED)
    }

    /// Returns whether this contains [`Events::ERR`].
    #[must_use]
    pub const fn is_err(self) -> bool {
        self.contains(Self::ERR)
    }
}

set_of_bits!(Events: IN | OUT | HANGUP | WRITE_CLOSED | TIMED_OUT | ERR);

/// The trigger of a registration that each packet disables until it is armed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "there is no third trigger")]
pub enum OneShot {
    /// Makes a packet as soon as a condition holds.
    Level,
    /// Makes a packet when a condition begins to hold, and for the conditions that hold when it is
    /// enabled, unless a hint denies them. The handler must drain until
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock). Not recommended: `Level` costs the same.
    Edge,
}

/// The trigger of a registration that stays enabled, whichever thread handles its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "there is no third trigger")]
pub enum Persistent {
    /// While a condition holds, makes another packet after each one that is taken. Several threads
    /// can then hold packets of one registration.
    Level,
    /// Makes a packet when a condition begins to hold, and for the conditions that hold when it is
    /// enabled. The handler must drain until [`WouldBlock`](std::io::ErrorKind::WouldBlock).
    Edge,
}

/// The settings of a registration: filter and trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// The event filter.
    pub(crate) interest: Interest,
    /// Edge-triggered rather than level-triggered.
    pub(crate) edge: bool,
    /// A packet disables the registration.
    pub(crate) one_shot: bool,
}

/// A direction. Operations of one direction do not wait for those of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In = 0,
    Out = 1,
}

impl Direction {
    pub(crate) const BOTH: [Self; 2] = [Self::In, Self::Out];
}
