//! Types of the interface: the structs passed across it and their constants. Names, values and
//! layouts are the reference's; the header documents their meaning.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::Duration;

/// A handle; see [`crate::handles`].
pub type Handle = *mut c_void;

/// `INVALID_HANDLE_VALUE`.
pub const NO_HANDLE: usize = usize::MAX;

/// A change to a registration, and its result.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "the layout is the reference's")]
pub struct Registration {
    /// The descriptor's number.
    pub socket: usize,
    /// Returned in its packets.
    pub key: usize,
    /// The events to report.
    pub filter: u16,
    /// The operation.
    pub operation: u8,
    /// How to report.
    pub trigger: u8,
    /// Set by the call.
    pub result: u32,
}

/// A packet.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "the layout is the reference's")]
pub struct Entry {
    /// The registration's key, or the first posted value.
    pub key: usize,
    /// The posted pointer, or the operation's; null for socket events.
    pub overlapped: *mut c_void,
    /// How the operation has ended; otherwise 0.
    pub internal: usize,
    /// Socket events, or the posted or transferred count.
    pub bytes: u32,
}

/// `OVERLAPPED`: belongs to an operation, and receives its result.
#[repr(C)]
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "the layout is the reference's")]
pub struct Overlapped {
    /// How the operation has ended, or that it is in progress.
    pub status: AtomicUsize,
    /// The number of bytes transferred.
    pub bytes: AtomicUsize,
    /// Offset in a file. For a socket: the flags of a finished receive.
    pub offset: AtomicU32,
    /// The upper half of that offset.
    pub offset_high: AtomicU32,
    /// Set at the end; with its lowest bit set there is no packet.
    pub event: Handle,
}

/// What a registration may request, and a packet may report.
pub mod event {
    /// A read would not block.
    pub const IN: u16 = 1;
    /// A write would not block.
    pub const OUT: u16 = 2;
    /// The stream was disconnected.
    pub const HANGUP: u16 = 4;
    /// Something failed. Always reported.
    pub const ERR: u16 = 0x40;
    /// The registration is removed. Always reported.
    pub const REMOVE: u16 = 0x80;
    /// The bits allowed in a filter.
    pub const KNOWN: u16 = IN | OUT | HANGUP | ERR | REMOVE;
}

/// What can be done with a registration.
pub mod operation {
    /// Nothing.
    pub const NONE: u8 = 0;
    /// Register, or enable again.
    pub const ENABLE: u8 = 1;
    /// Report nothing until it is enabled again.
    pub const DISABLE: u8 = 2;
    /// End it.
    pub const REMOVE: u8 = 4;
}

/// How a registration reports.
pub mod trigger {
    /// Once.
    pub const ONE_SHOT: u8 = 1;
    /// Until it is disabled.
    pub const PERSISTENT: u8 = 2;
    /// Conditions that hold.
    pub const LEVEL: u8 = 4;
    /// Conditions that begin to hold.
    pub const EDGE: u8 = 8;
    /// All of them.
    pub const ALL: u8 = 15;
}

/// Converts a caller's number of milliseconds; `INFINITE` means no limit.
#[must_use]
pub fn timeout(milliseconds: u32) -> Option<Duration> {
    match milliseconds {
        u32::MAX => None,
        limit => Some(Duration::from_millis(limit.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn a_registration_is_laid_out_as_the_references() {
        assert_eq!((size_of::<Registration>(), align_of::<Registration>()), (24, 8));
        assert_eq!(offset_of!(Registration, socket), 0);
        assert_eq!(offset_of!(Registration, key), 8);
        assert_eq!(offset_of!(Registration, filter), 0x10);
        assert_eq!(offset_of!(Registration, operation), 0x12);
        assert_eq!(offset_of!(Registration, trigger), 0x13);
        assert_eq!(offset_of!(Registration, result), 0x14);
    }

    #[test]
    fn an_entry_is_laid_out_as_the_references() {
        assert_eq!((size_of::<Entry>(), align_of::<Entry>()), (32, 8));
        assert_eq!(offset_of!(Entry, key), 0);
        assert_eq!(offset_of!(Entry, overlapped), 8);
        assert_eq!(offset_of!(Entry, internal), 16);
        assert_eq!(offset_of!(Entry, bytes), 24);
    }

    #[test]
    fn an_overlapped_is_laid_out_as_the_references() {
        assert_eq!((size_of::<Overlapped>(), align_of::<Overlapped>()), (32, 8));
        assert_eq!(offset_of!(Overlapped, status), 0);
        assert_eq!(offset_of!(Overlapped, bytes), 8);
        assert_eq!(offset_of!(Overlapped, offset), 16);
        assert_eq!(offset_of!(Overlapped, offset_high), 20);
        assert_eq!(offset_of!(Overlapped, event), 24);
    }

    #[test]
    fn a_time_of_all_ones_is_no_limit() {
        assert_eq!(timeout(u32::MAX), None);
        assert_eq!(timeout(u32::MAX - 1), Some(Duration::from_millis(4_294_967_294)));
        assert_eq!(timeout(0), Some(Duration::ZERO));
    }
}
