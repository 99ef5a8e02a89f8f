//! The words in which a back end reports to the engine what a kernel said.

use std::fmt;

use super::moment::Moment;
use crate::types::interest::{Direction, Interest};
use crate::types::source::Descriptor;

/// What a kernel says of a descriptor at one moment, in the words of `epoll_ctl(2)` and `poll(2)`, with the
/// bits of the former, so that on Linux an edge needs no translation.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub(crate) struct Facts(u32);

impl Facts {
    /// Nothing holds.
    pub(crate) const NONE: Self = Self(0);
    /// A read or an accept would not block.
    pub(crate) const IN: Self = Self(0x1);
    /// A write would not block.
    pub(crate) const OUT: Self = Self(0x4);
    /// The peer has shut its writing half, or the whole connection.
    pub(crate) const RDHUP: Self = Self(0x2000);
    /// Both halves are shut, the other end of a pipe is gone, or a stream was never connected.
    pub(crate) const HUP: Self = Self(0x10);
    /// An error is pending.
    pub(crate) const ERR: Self = Self(0x8);
    /// The number names nothing: the descriptor was closed.
    pub(crate) const CLOSED: Self = Self(0x20);
    /// Urgent data has come, and its mark was not read past: a read stops at the mark, whatever
    /// lies behind it.
    pub(crate) const URGENT: Self = Self(0x2);

    /// The error or the hang-up reported with this is new: an edge-triggered kernel reports each of them once.
    pub(crate) const NEWS: Self = Self(1 << 16);

    /// What is not simply readiness.
    pub(crate) const RARE: Self = Self(!(Self::IN.0 | Self::OUT.0));

    /// The bits.
    #[allow(dead_code, reason = "for systems whose kernel has the same bits")]
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// The facts that tell of an interest's directions.
    #[inline]
    pub(crate) const fn asked_by(interest: Interest) -> Self {
        Self::of_directions((interest.bits() & 0b11) as u64)
    }

    /// Whether every fact of `other` is among these.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The directions in which something is ready, as the bits of an interest in them.
    #[inline]
    pub(crate) const fn directions(self) -> u32 {
        self.0 & Self::IN.0 | (self.0 & Self::OUT.0) >> 1
    }

    /// The facts for an interest's directions, which are its lowest bits.
    #[inline]
    pub(crate) const fn of_directions(bits: u64) -> Self {
        Self((bits & 0b01) as u32 | ((bits & 0b10) as u32) << 1)
    }

    /// Whether the object is connected, listening or needs no connection: a stream that is being connected
    /// shows nothing, one that is not connected a hang-up.
    pub(crate) const fn tell_of_life(self) -> bool {
        self.any(Self(Self::IN.0 | Self::OUT.0)) && !self.any(Self::HUP)
    }

    /// Whether a file of the kernel that [reports changes](crate::backend::reactor::Reactor::reports_changes) may say this.
    #[inline]
    pub(crate) const fn may_be_change(self) -> bool {
        self.any(Self(Self::ERR.0 | Self::URGENT.0)) && !self.any(Self(Self::HUP.0 | Self::RDHUP.0))
    }

    /// What such a file has reported: to a registration that `reads`, that it can be read again.
    pub(crate) const fn of_change(self, reads: bool) -> Self {
        let hidden = if reads { Self::ERR.0 | Self::URGENT.0 } else { Self::URGENT.0 };
        Self(self.0 & !hidden | if reads { Self::IN.0 } else { 0 })
    }

    /// Whether any fact of `other` is among these.
    pub(crate) const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOr for Facts {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitAnd for Facts {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl std::ops::BitOrAssign for Facts {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::IN, "IN"),
            (Self::OUT, "OUT"),
            (Self::RDHUP, "RDHUP"),
            (Self::HUP, "HUP"),
            (Self::ERR, "ERR"),
            (Self::CLOSED, "CLOSED"),
            (Self::URGENT, "URGENT"),
            (Self::NEWS, "NEWS"),
        ];
        let mut first = true;
        for (fact, name) in names {
            if self.has(fact) {
                f.write_str(if first { "" } else { "|" })?;
                f.write_str(name)?;
                first = false;
            }
        }
        if first { f.write_str("NONE") } else { Ok(()) }
    }
}

impl Direction {
    pub(crate) fn facts(self) -> Facts {
        match self {
            Self::In => Facts::IN,
            Self::Out => Facts::OUT,
        }
    }
}

/// One edge that the kernel reported: what holds now, and the name given at the back end. It lies as
/// Linux writes it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(packed))]
pub(crate) struct Edge {
    /// What the kernel reported.
    pub(crate) facts: Facts,
    /// The name given when the descriptor was attached.
    pub(crate) name: u64,
}

/// One question "what holds now?", and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// The descriptor asked about.
    pub(crate) descriptor: Descriptor,
    /// The answer; [`Facts::CLOSED`] if the number names nothing.
    pub(crate) facts: Facts,
}

/// What kind of object a descriptor names, as far as hang-ups depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorKind {
    /// A socket that carries a stream.
    Stream,
    /// A socket that carries a sequence of records over a connection. A record may be empty, and then nothing tells it from
    /// the end but the order in which they are read.
    Records,
    /// A socket that carries datagrams.
    Datagram,
    /// Not a socket: a pipe, a terminal, an event, timer, signal or process descriptor.
    NoSocket,
}

impl DescriptorKind {
    /// Whether it is a socket that has a connection.
    pub(crate) const fn is_connected(self) -> bool {
        matches!(self, Self::Stream | Self::Records)
    }
}

/// What has ended of a descriptor whose unread bytes are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// The peer's half, or both.
    Peer,
    /// The own reading half.
    Own,
    /// An error is pending, which a read may take.
    Failed,
}

/// Whether a thread is on a processor, or would be if one were free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "for systems that tell")]
pub(crate) enum Presence {
    /// It runs, or was preempted.
    Awake,
    /// It sleeps in the kernel, since that time on the back end's clock.
    Asleep {
        /// When it went to sleep.
        since: Moment,
    },
}
