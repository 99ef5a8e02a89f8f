//! What holds of a simulated object.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign};

/// What holds of an object at one moment, with the bit values of `poll(2)` and `epoll_ctl(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Conditions(u32);

impl Conditions {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// A read or an accept would not block.
    pub const IN: Self = Self(0x1);
    /// A write would not block.
    pub const OUT: Self = Self(0x4);
    /// An error is pending.
    pub const ERR: Self = Self(0x8);
    /// Both halves are shut, or a stream is not connected.
    pub const HUP: Self = Self(0x10);
    /// The peer has shut its writing half.
    pub const RDHUP: Self = Self(0x2000);

    /// Returns the bits of `poll(2)`.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether the set contains all of `other`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Conditions {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Conditions {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOrAssign for Conditions {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::IN, "IN"),
            (Self::OUT, "OUT"),
            (Self::RDHUP, "RDHUP"),
            (Self::HUP, "HUP"),
            (Self::ERR, "ERR"),
        ];
        let mut first = true;
        for (condition, name) in names {
            if self.contains(condition) {
                f.write_str(if first { "" } else { "|" })?;
                f.write_str(name)?;
                first = false;
            }
        }
        if first { f.write_str("NONE") } else { Ok(()) }
    }
}
