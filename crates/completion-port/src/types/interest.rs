//! The words for what a registration asks for and what a packet reports.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Sub};

macro_rules! set_of_bits {
    ($name:ident: $($bit:ident)|+) => {
        impl $name {
            /// Whether all of `other` is in it.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any of `other` is in it.
            #[must_use]
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Whether nothing is in it.
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

/// The event filter: the conditions that a registration asks for.
///
/// Errors are reported always and cannot be asked for.
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
    /// hung-up descriptor with this filter at each packet, the next packet follows at once, for
    /// ever: after a hang-up there is nothing left to wait for.
    pub const NONE: Self = Self(0);
    /// A read or an accept would not block. At the end of a stream this is reported too, unless
    /// [`Interest::HANGUP`] was asked for.
    pub const IN: Self = Self(1);
    /// A write would not block, or a connect is done.
    pub const OUT: Self = Self(2);
    /// A stream was disconnected, half-closed by its peer, or aborted. Never on datagram sockets.
    pub const HANGUP: Self = Self(4);
    /// All of them.
    pub const ALL: Self = Self(7);

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }
}

set_of_bits!(Interest: IN | OUT | HANGUP);

/// What a packet reports: the conditions that held.
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
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// A read or an accept would not block.
    pub const IN: Self = Self(1);
    /// A write would not block, or a connect is done.
    pub const OUT: Self = Self(2);
    /// A stream was disconnected, half-closed by its peer, or aborted.
    pub const HANGUP: Self = Self(4);
    /// The stream is over in both directions: a write fails. Only ever together with [`Events::HANGUP`], which
    /// alone says that the peer has ended its half, and may still be written to.
    pub const WRITE_CLOSED: Self = Self(8);
    /// The deadline of the arming is over, and perhaps nothing else has happened. Only with
    /// [`Ready::rearm_until`](crate::Ready::rearm_until).
    pub const TIMED_OUT: Self = Self(0x20);
    /// An error is pending; a read or `take_error` tells which, and ends it. On Linux it may be an entry of the socket's
    /// error queue instead, which only a receive with `MSG_ERRQUEUE` takes.
    pub const ERR: Self = Self(0x40);

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Whether [`Events::IN`] is in it.
    #[must_use]
    pub const fn is_in(self) -> bool {
        self.contains(Self::IN)
    }

    /// Whether [`Events::OUT`] is in it.
    #[must_use]
    pub const fn is_out(self) -> bool {
        self.contains(Self::OUT)
    }

    /// Whether [`Events::HANGUP`] is in it.
    #[must_use]
    pub const fn is_hangup(self) -> bool {
        self.contains(Self::HANGUP)
    }

    /// Whether nothing more will come to be read, but for what lies unread: the same as
    /// [`Events::is_hangup`].
    #[must_use]
    pub const fn is_read_closed(self) -> bool {
        self.is_hangup()
    }

    /// Whether [`Events::TIMED_OUT`] is in it.
    #[must_use]
    pub const fn is_timed_out(self) -> bool {
        self.contains(Self::TIMED_OUT)
    }

    /// Whether [`Events::WRITE_CLOSED`] is in it.
    #[must_use]
    pub const fn is_write_closed(self) -> bool {
        self.contains(Self::WRITE_CLOSED)
    }

    /// Whether [`Events::ERR`] is in it.
    #[must_use]
    pub const fn is_err(self) -> bool {
        self.contains(Self::ERR)
    }
}

set_of_bits!(Events: IN | OUT | HANGUP | WRITE_CLOSED | TIMED_OUT | ERR);

/// The trigger of a registration that a packet disables until it is armed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "there is no third trigger")]
pub enum OneShot {
    /// A packet as soon as a condition holds.
    Level,
    /// A packet when a condition begins to hold, and for what holds when it is enabled, unless a hint denies
    /// it. The handler must drain to [`WouldBlock`](std::io::ErrorKind::WouldBlock). Advised against:
    /// `Level` costs the same.
    Edge,
}

/// The trigger of a registration that stays enabled, whichever thread handles its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "there is no third trigger")]
pub enum Persistent {
    /// As long as a condition holds, another packet follows each one that was taken. Several
    /// threads can then hold packets of one registration.
    Level,
    /// A packet when a condition begins to hold, and for what holds when it is enabled. The handler must
    /// drain to [`WouldBlock`](std::io::ErrorKind::WouldBlock).
    Edge,
}

/// What a registration asks for: filter and trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// The event filter.
    pub(crate) interest: Interest,
    /// Edge-triggered rather than level-triggered.
    pub(crate) edge: bool,
    /// A packet disables the registration.
    pub(crate) one_shot: bool,
}

/// A direction: operations of one do not wait for those of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In = 0,
    Out = 1,
}

impl Direction {
    pub(crate) const BOTH: [Self; 2] = [Self::In, Self::Out];
}
