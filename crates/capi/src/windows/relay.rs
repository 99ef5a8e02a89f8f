//! Forwards packets of the system's own operations to a port.
//!
//! Each port of this library has a completion port of the kernel, which the program never sees, and
//! with which files and sockets are associated. A thread takes its packets and posts them
//! unchanged. So a program starts and cancels its operations with the system's calls, and their
//! packets arrive in the same queue as all others.

use std::mem::MaybeUninit;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::ptr;
use std::sync::Arc;

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::IO::{
    CreateIoCompletionPort, GetQueuedCompletionStatusEx, OVERLAPPED_ENTRY,
    PostQueuedCompletionStatus,
};
use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_PIN, GetModuleHandleExW,
};
use windows_sys::Win32::System::Threading::{INFINITE, Sleep};

use crate::errors::code;
use crate::windows::last::last;
use crate::windows::message::Message;

/// Maximum number of packets taken by one call.
const ROOM: usize = 64;

/// The outcome of relaying a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relayed {
    /// The port has it.
    Posted,
    /// There was no memory for it: retry.
    Refused,
    /// The port was closed.
    Over,
}

/// The completion port of the kernel, and the thread that waits there.
pub(crate) struct Relay {
    kernel: Arc<OwnedHandle>,
}

impl Relay {
    /// Starts handing packets to `post`.
    pub(crate) fn start(
        post: impl FnMut(&Message) -> Relayed + Send + 'static,
    ) -> Result<Self, u32> {
        stay_loaded()?;
        // SAFETY: CreateIoCompletionPort demands a file or INVALID_HANDLE_VALUE, and a port or null.
        // - INVALID_HANDLE_VALUE and null ask for a new port without a file.
        let kernel = unsafe { CreateIoCompletionPort(INVALID_HANDLE_VALUE, ptr::null_mut(), 0, 1) };
        if kernel.is_null() {
            return Err(last());
        }
        // SAFETY: `from_raw_handle` demands an open handle that nothing else owns.
        // - the call above has just returned it.
        let kernel = Arc::new(unsafe { OwnedHandle::from_raw_handle(kernel) });
        let share = Arc::clone(&kernel);
        let thread = std::thread::Builder::new().name("cp-relay".to_owned());
        let begun = thread.spawn(move || run(&share, post));
        begun.map_err(|_| code::NO_SYSTEM_RESOURCES)?;
        Ok(Self { kernel })
    }

    /// From now on packets of `file` are relayed, with `key`. Fails as the system's call does.
    pub(crate) fn associate(&self, file: HANDLE, key: usize) -> Result<(), u32> {
        // SAFETY: CreateIoCompletionPort demands an open port, and fails if the other handle is not one of a file.
        // - open: `self` owns it.
        let done = unsafe { CreateIoCompletionPort(file, self.kernel.as_raw_handle(), key, 0) };
        if done.is_null() { Err(last()) } else { Ok(()) }
    }
}

impl Drop for Relay {
    /// The thread ends. Operations in flight continue, and their packets are discarded.
    fn drop(&mut self) {
        loop {
            // Tells the thread to end: operations never end without an OVERLAPPED.
            // SAFETY: PostQueuedCompletionStatus demands an open port, and passes the other words
            // on.
            // - open: `self` owns it.
            let done = unsafe {
                PostQueuedCompletionStatus(self.kernel.as_raw_handle(), 0, 0, ptr::null())
            };
            if done != 0 {
                return;
            }
            nap();
        }
    }
}

fn run(kernel: &OwnedHandle, mut post: impl FnMut(&Message) -> Relayed) {
    let mut entries = [const { MaybeUninit::<OVERLAPPED_ENTRY>::uninit() }; ROOM];
    loop {
        for entry in taken(kernel, &mut entries) {
            if entry.lpOverlapped.is_null() {
                return;
            }
            let message = Message {
                bytes: entry.dwNumberOfBytesTransferred,
                key: entry.lpCompletionKey,
                overlapped: entry.lpOverlapped.expose_provenance(),
                internal: entry.Internal,
            };
            loop {
                match post(&message) {
                    Relayed::Posted => break,
                    Relayed::Refused => nap(),
                    Relayed::Over => return,
                }
            }
        }
    }
}

/// Waits for packets.
fn taken<'e>(
    kernel: &OwnedHandle,
    entries: &'e mut [MaybeUninit<OVERLAPPED_ENTRY>; ROOM],
) -> &'e [OVERLAPPED_ENTRY] {
    let room = u32::try_from(ROOM).unwrap_or(1);
    let mut count = 0;
    // SAFETY: GetQueuedCompletionStatusEx writes at most `room` entries at the first pointer, and
    // their number at the second.
    // - valid for writes: there are that many, and they are borrowed mutably; `count` is a local;
    // - the port is open, since the caller has a share of it.
    let done = unsafe {
        GetQueuedCompletionStatusEx(
            kernel.as_raw_handle(),
            entries.as_mut_ptr().cast(),
            room,
            &raw mut count,
            INFINITE,
            0,
        )
    };
    if done == 0 {
        // The system is short of memory. The caller retries.
        nap();
        return &[];
    }
    let count = usize::try_from(count).unwrap_or(0).min(ROOM);
    // SAFETY: `from_raw_parts` demands that many values, which are not changed as long as they are
    // borrowed.
    // - values: the call has written the first `count` of the array;
    // - not changed: the array is borrowed for as long.
    unsafe { std::slice::from_raw_parts(entries.as_ptr().cast(), count) }
}

/// Until the next tick.
fn nap() {
    // SAFETY: Sleep demands nothing.
    unsafe { Sleep(1) };
}

/// Prevents unloading: this library has a thread.
fn stay_loaded() -> Result<(), u32> {
    static HERE: u8 = 0;
    let flags = GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS;
    let mut module = ptr::null_mut();
    // SAFETY: GetModuleHandleExW with FROM_ADDRESS takes an address within a module, and writes that module's handle at
    // the other pointer.
    // - within a module: it is that of a static of this library;
    // - valid for writes: `module` is a local.
    let done = unsafe { GetModuleHandleExW(flags, (&raw const HERE).cast(), &raw mut module) };
    if done == 0 { Err(last()) } else { Ok(()) }
}
