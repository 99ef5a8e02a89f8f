//! The types with which a back end reports to the engine what a kernel said.

use std::fmt;

use super::moment::Moment;
use crate::types::interest::{Direction, Interest};
use crate::types::source::Descriptor;

/// What a kernel reports of a descriptor at one moment, in the terms of `epoll_ctl(2)` and
/// `poll(2)`. The bits are those of the former, so that an edge needs no translation on Linux.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub(crate) struct Facts(u32);

impl Facts {
    /// No fact holds.
    pub(crate) const NONE: Self = Self(0);
    /// A read or an accept would not block.
    pub(crate) const IN: Self = Self(0x1);
    /// A write would not block.
    pub(crate) const OUT: Self = Self(0x4);
    /// The peer has shut its writing half, or the whole connection.
    pub(crate) const RDHUP: Self = Self(0x2000);
    /// Both halves are shut, the other end of a pipe is closed, or a stream was never connected.
    pub(crate) const HUP: Self = Self(0x10);
    /// An error is pending.
    pub(crate) const ERR: Self = Self(0x8);
    /// The number names nothing: the descriptor was closed.
    pub(crate) const CLOSED: Self = Self(0x20);
    /// Urgent data has arrived, and nobody has read past its mark. A read stops at the mark, even
    /// if more data follows.
    pub(crate) const URGENT: Self = Self(0x2);

    /// The error or hang-up reported with this is new. An edge-triggered kernel reports each of
    /// them once.
    pub(crate) const NEWS: Self = Self(1 << 16);

    /// Every fact other than readiness.
    pub(crate) const RARE: Self = Self(!(Self::IN.0 | Self::OUT.0));

    #[allow(dead_code, reason = "for systems whose kernel has the same bits")]
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the facts for the directions of an interest.
    #[inline]
    pub(crate) const fn asked_by(interest: Interest) -> Self {
        Self::of_directions((interest.bits() & 0b11) as u64)
    }

    /// Returns whether every fact of `other` is among these.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the ready directions, as bits of an interest.
    #[inline]
    pub(crate) const fn directions(self) -> u32 {
        self.0 & Self::IN.0 | (self.0 & Self::OUT.0) >> 1
    }

    /// Returns the facts for the directions in the lowest bits of an interest.
    #[inline]
    pub(crate) const fn of_directions(bits: u64) -> Self {
        Self((bits & 0b01) as u32 | ((bits & 0b10) as u32) << 1)
    }

    /// Returns whether the object is connected, listening or needs no connection. A connecting
    /// stream shows nothing, and an unconnected one a hang-up.
    pub(crate) const fn reports_life(self) -> bool {
        self.any(Self(Self::IN.0 | Self::OUT.0)) && !self.any(Self::HUP)
    }

    /// Returns whether these facts may come from a kernel file that [reports
    /// changes](crate::backend::reactor::Reactor::reports_changes).
    #[inline]
    pub(crate) const fn may_be_change(self) -> bool {
        self.any(Self(Self::ERR.0 | Self::URGENT.0)) && !self.any(Self(Self::HUP.0 | Self::RDHUP.0))
    }

    /// Translates an edge of such a file. A registration that `reads` learns that the file can be
    /// read again.
    pub(crate) const fn of_change(self, reads: bool) -> Self {
        let hidden = if reads { Self::ERR.0 | Self::URGENT.0 } else { Self::URGENT.0 };
        Self(self.0 & !hidden | if reads { Self::IN.0 } else { 0 })
    }

    /// Returns whether any fact of `other` is among these.
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

/// An edge from the kernel, in the memory layout of Linux.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(packed))]
pub(crate) struct Edge {
    /// The facts that the kernel reported.
    pub(crate) facts: Facts,
    /// The name given when the descriptor was attached.
    pub(crate) name: u64,
}

/// A question to the kernel about the current facts, and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// The descriptor in question.
    pub(crate) descriptor: Descriptor,
    /// The answer; [`Facts::CLOSED`] if the number names nothing.
    pub(crate) facts: Facts,
}

/// The kind of object that a descriptor names. The meaning of a hang-up depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorKind {
    /// A stream socket.
    Stream,
    /// A socket for sequences of records over a connection. A record may be empty. Only the order
    /// of reading tells such a record from the end.
    Records,
    /// A datagram socket.
    Datagram,
    /// Not a socket: a pipe, a terminal, or an event, timer, signal or process descriptor.
    NoSocket,
}

impl DescriptorKind {
    /// Returns whether this is a socket that has a connection.
    pub(crate) const fn is_connected(self) -> bool {
        matches!(self, Self::Stream | Self::Records)
    }
}

/// Which end a check has seen before it asks for the number of unread bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// The peer has ended its half, or both.
    Peer,
    /// This process has shut its reading half.
    Own,
    /// An error is pending, which a read may clear.
    Failed,
}

/// Whether a thread is runnable or asleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "for systems that tell")]
pub(crate) enum Presence {
    /// It runs, or was preempted.
    Awake,
    /// It sleeps in the kernel.
    Asleep {
        /// When it went to sleep, on the back end's clock.
        since: Moment,
    },
}
