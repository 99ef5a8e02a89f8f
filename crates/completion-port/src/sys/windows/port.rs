//! A completion port of the kernel, on which the reactor's threads wait.

use std::mem::MaybeUninit;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE, WAIT_TIMEOUT};
use windows_sys::Win32::System::IO::{
    CreateIoCompletionPort, GetQueuedCompletionStatusEx, OVERLAPPED, OVERLAPPED_ENTRY,
    PostQueuedCompletionStatus,
};
use windows_sys::Win32::System::Threading::Sleep;

use super::errors::{PORT, fault_of_wait};
use super::options::{WinsockCode, last_error, system_fault};
use crate::sys::portable::errors::{AfterError, Retries};
use crate::types::error::Fault;

/// The most packets of one call.
pub(super) const ROOM: usize = 64;

/// How many threads the kernel lets run with packets: all, since the engine decides that.
pub(super) const ALL: u32 = i32::MAX.cast_unsigned();

/// Room for packets.
pub(super) type PacketRoom = [MaybeUninit<OVERLAPPED_ENTRY>];

/// Sleeps until the next tick.
pub(super) fn nap() {
    // SAFETY: Sleep has no requirements.
    unsafe { Sleep(1) };
}

pub(super) struct SystemPort(OwnedHandle);

impl SystemPort {
    pub(super) fn new() -> Result<Self, Fault> {
        // SAFETY: CreateIoCompletionPort requires a file or INVALID_HANDLE_VALUE, and a port or
        // null.
        // - INVALID_HANDLE_VALUE and null request a new port without a file.
        let port = unsafe { CreateIoCompletionPort(INVALID_HANDLE_VALUE, ptr::null_mut(), 0, ALL) };
        if port.is_null() {
            return Err(system_fault(last_error()));
        }
        // SAFETY: `from_raw_handle` requires an open handle that nothing else owns.
        // - the call above has just returned it.
        Ok(Self(unsafe { OwnedHandle::from_raw_handle(port) }))
    }

    pub(super) fn handle(&self) -> HANDLE {
        self.0.as_raw_handle()
    }

    /// Associates `file` with this port. Its packets have `key`.
    pub(super) fn associate(&self, file: &OwnedHandle, key: usize) -> Result<(), Fault> {
        self.associate_number(file.as_raw_handle(), key)
    }

    /// Associates the object of a handle with this port.
    ///
    /// Fails if it was not opened for overlapped calls, or is already associated with a completion
    /// port.
    pub(super) fn associate_number(&self, file: HANDLE, key: usize) -> Result<(), Fault> {
        // SAFETY: CreateIoCompletionPort requires an open port, and fails for a number that names
        // no file. It accesses no memory of this process.
        // - open: `self` owns it.
        let done = unsafe { CreateIoCompletionPort(file, self.handle(), key, 0) };
        if done.is_null() { Err(system_fault(last_error())) } else { Ok(()) }
    }

    /// Queues a packet with only `key`.
    pub(super) fn post(&self, key: usize) {
        self.post_for(key, 0);
    }

    /// Queues a packet like that of a request at this address.
    ///
    /// Its receiver must not rely on the request existing.
    pub(super) fn post_for(&self, key: usize, address: usize) {
        while let Err(code) = self.try_post_for(key, address)
            && PORT.then(code) == AfterError::Again
        {
            // The system is short of memory. A thread may sleep until this packet comes, so the
            // post is retried.
            nap();
        }
    }

    fn try_post_for(&self, key: usize, address: usize) -> Result<(), WinsockCode> {
        let address = ptr::without_provenance(address);
        // SAFETY: PostQueuedCompletionStatus requires an open port. It passes the other words on
        // unread.
        // - open: `self` owns it.
        let done = unsafe { PostQueuedCompletionStatus(self.handle(), 0, key, address) };
        if done == 0 { Err(last_error().cast_signed()) } else { Ok(()) }
    }

    /// Waits at most `milliseconds` for packets.
    ///
    /// Returns how many it has written to the start of `room`.
    pub(super) fn take(&self, room: &mut PacketRoom, milliseconds: u32) -> Result<usize, Fault> {
        let mut retries = Retries::default();
        loop {
            match self.try_take(room, milliseconds) {
                Ok(count) => return Ok(count),
                Err(WAIT_TIMEOUT) => return Ok(0),
                Err(code) if retries.pass(&PORT, code.cast_signed()) => {}
                Err(code) => return Err(fault_of_wait(code.cast_signed())),
            }
        }
    }

    /// Like [`SystemPort::take`], but returns the code of a call without packets.
    fn try_take(&self, room: &mut PacketRoom, milliseconds: u32) -> Result<usize, u32> {
        let most = u32::try_from(room.len()).unwrap_or(u32::MAX);
        let mut count = 0;
        // SAFETY: GetQueuedCompletionStatusEx writes at most `most` entries at the first pointer,
        // and their number at the second.
        // - valid for writes: `room` has at least that many places and is mutably borrowed during
        //   the call; `count` is a local;
        // - the port is open, since `self` owns it.
        let done = unsafe {
            GetQueuedCompletionStatusEx(
                self.handle(),
                room.as_mut_ptr().cast(),
                most,
                &raw mut count,
                milliseconds,
                0,
            )
        };
        if done == 0 { Err(last_error()) } else { Ok(usize::try_from(count).unwrap_or(0)) }
    }
}

/// The content of a packet.
pub(super) enum CompletionPacket {
    /// The request with the memory at this address has ended. Its file was associated with this
    /// key.
    Ended(*mut OVERLAPPED, usize),
    /// A packet that [`SystemPort::post`] has queued.
    Posted(usize),
}

impl From<OVERLAPPED_ENTRY> for CompletionPacket {
    fn from(entry: OVERLAPPED_ENTRY) -> Self {
        if entry.lpOverlapped.is_null() {
            Self::Posted(entry.lpCompletionKey)
        } else {
            Self::Ended(entry.lpOverlapped, entry.lpCompletionKey)
        }
    }
}
