//! One poll of one socket by the socket driver, and the memory that the driver owns until it ends.
//!
//! The driver (`\Device\Afd`) is what Winsock itself calls. Its poll is undocumented but used by
//! many programs; its numbers have been the same since Windows 2000, and Wine has them.
//!
//! Prior art: wepoll, libuv, mio and polling use the driver in the same way.

use std::io;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
use windows_sys::Wdk::Storage::FileSystem::{FILE_OPEN, NtCreateFile};
use windows_sys::Wdk::System::IO::NtDeviceIoControlFile;
use windows_sys::Win32::Foundation::{
    HANDLE, RtlNtStatusToDosError, STATUS_CANCELLED, STATUS_PENDING, STATUS_SUCCESS, UNICODE_STRING,
};
use windows_sys::Win32::Networking::WinSock::SOCKET;
use windows_sys::Win32::Storage::FileSystem::{FILE_SHARE_READ, FILE_SHARE_WRITE, SYNCHRONIZE};
use windows_sys::Win32::System::IO::{CancelIoEx, IO_STATUS_BLOCK, IO_STATUS_BLOCK_0, OVERLAPPED};

use super::super::options::system_fault;
use super::super::port::SystemPort;
use super::Watched;
use crate::types::error::Fault;

/// The events that a poll requests and reports.
pub(in crate::sys::windows) mod event {
    /// A receive would not block.
    pub(in crate::sys::windows) const RECEIVE: u32 = 0x1;
    /// Urgent data has arrived.
    pub(in crate::sys::windows) const URGENT: u32 = 0x2;
    /// A send would not block.
    pub(in crate::sys::windows) const SEND: u32 = 0x4;
    /// The peer has ended the stream.
    pub(in crate::sys::windows) const DISCONNECT: u32 = 0x8;
    /// The connection was reset.
    pub(in crate::sys::windows) const ABORT: u32 = 0x10;
    /// This process has closed the socket.
    pub(in crate::sys::windows) const LOCAL_CLOSE: u32 = 0x20;
    /// An accept would not block.
    pub(in crate::sys::windows) const ACCEPT: u32 = 0x80;
    /// A connect has failed.
    pub(in crate::sys::windows) const CONNECT_FAIL: u32 = 0x100;
}

/// The driver's code for a poll: its device type, function 9, buffered.
const POLL: u32 = 0x0001_2024;

/// A poll of one socket, in the form that the driver reads and writes.
#[repr(C)]
struct Info {
    /// In units of 100 nanoseconds, negative if relative. The largest value means no limit.
    timeout: i64,
    sockets: u32,
    is_exclusive: u32,
    socket: SOCKET,
    events: u32,
    status: i32,
}

const _: () = assert!(size_of::<Info>() == 32);

const INFO_SIZE: u32 = 32;

/// The socket and the purpose of a request.
pub(in crate::sys::windows) enum Owner {
    /// The request polls for the facts that the engine wants.
    MainSet(Arc<Watched>),
    /// The request reports when the socket is closed.
    Sentinel(Arc<Watched>),
}

/// The memory of one poll. From the request to its end, the driver owns all of it except `owner`.
#[repr(C)]
pub(in crate::sys::windows) struct Poll {
    /// The first field, since its address comes from the completion port.
    overlapped: OVERLAPPED,
    info: Info,
    owner: Option<Owner>,
}

// SAFETY: `Send` requires that another thread may use the value.
// - the OVERLAPPED has an event's handle, which is always null, and a pointer that is not used; the
//   other fields are numbers and an `Arc` of a type that may be sent and shared.
unsafe impl Send for Poll {}

impl Poll {
    pub(in crate::sys::windows) fn new() -> Box<Self> {
        Box::new(Self {
            overlapped: OVERLAPPED::default(),
            info: Info {
                timeout: i64::MAX,
                sockets: 0,
                is_exclusive: 0,
                socket: 0,
                events: 0,
                status: 0,
            },
            owner: None,
        })
    }
}

/// A request that the driver has. Its memory is not accessed through this: the address is only its
/// identity.
pub(in crate::sys::windows) struct PendingPoll {
    address: NonNull<Poll>,
    /// The driver answered immediately.
    pub(in crate::sys::windows) was_ready: bool,
}

// SAFETY: `Send` and `Sync` require that another thread may use the value.
// - `address` is compared, and passed to CancelIoEx, which any thread may call; it is never
//   dereferenced.
unsafe impl Send for PendingPoll {}
// SAFETY: as above.
unsafe impl Sync for PendingPoll {}

impl PendingPoll {
    /// Returns whether `ended` is this request.
    pub(in crate::sys::windows) fn is(&self, ended: &EndedPoll) -> bool {
        ptr::eq(self.address.as_ptr(), &raw const *ended.request)
    }
}

/// Returns whether a status means that the call failed and no packet reports it.
///
/// Its two highest bits are then set.
pub(in crate::sys::windows) fn is_error(status: i32) -> bool {
    status.cast_unsigned() >> 30 == 3
}

/// The result of a request.
pub(in crate::sys::windows) enum PollEnd {
    /// The driver has reported these events.
    Told(u32),
    /// It reports nothing: it was cancelled by this back end, or by the system, which may cancel it
    /// when the thread that made it ends.
    Void,
    /// The driver failed to poll.
    Failed,
}

/// A request that has ended. This process owns its memory again.
pub(in crate::sys::windows) struct EndedPoll {
    request: Box<Poll>,
}

impl EndedPoll {
    /// Takes the memory of a request that the completion port has reported.
    ///
    /// # Safety
    ///
    /// A packet of the port that the request's [`Device`] is associated with had this address, and
    /// this function was not called for that packet before.
    pub(in crate::sys::windows) unsafe fn take(
        overlapped: *mut OVERLAPPED,
        device: &Device,
    ) -> Self {
        // SAFETY: `from_raw` requires a pointer from `into_raw` that nothing else uses.
        // - every address that the device completes comes from `start_poll`, which made it from
        //   `into_raw`: it is that of the first field of a `Poll`, with the provenance of the
        //   whole;
        // - the driver has finished with the memory once it has queued the packet, and `start_poll`
        //   does not access it after the call that passes it to the driver; each request makes one
        //   packet, and the caller passes its address once.
        let request = unsafe { Box::from_raw(overlapped.cast::<Poll>()) };
        device.pending.fetch_sub(1, SeqCst);
        Self { request }
    }

    /// Takes the owner of the request.
    pub(in crate::sys::windows) fn take_owner(&mut self) -> Option<Owner> {
        self.request.owner.take()
    }

    /// Returns the result of the request.
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "see below")]
    pub(in crate::sys::windows) fn end(&self) -> PollEnd {
        let Info { sockets, events, .. } = self.request.info;
        // The field has an NTSTATUS, in a wider type.
        match self.request.overlapped.Internal as i32 {
            STATUS_SUCCESS if sockets > 0 => PollEnd::Told(events),
            STATUS_SUCCESS => PollEnd::Told(0),
            // Wine writes nothing if the thread that made the request ends just as it is answered.
            STATUS_CANCELLED => PollEnd::Void,
            status if !is_error(status) => PollEnd::Void,
            _ => PollEnd::Failed,
        }
    }

    /// Returns the memory for another request.
    pub(in crate::sys::windows) fn into_memory(self) -> Box<Poll> {
        self.request
    }
}

/// Submits a request to the driver. On failure it returns the memory, and no packet comes.
pub(in crate::sys::windows) type StartPoll =
    dyn Fn(&OwnedHandle, Box<Poll>) -> Result<PendingPoll, (Box<Poll>, Fault)> + Send + Sync;

/// The socket driver, opened for polls.
pub(in crate::sys::windows) struct Device {
    file: OwnedHandle,
    /// The number of requests that the completion port has not reported yet.
    pending: AtomicUsize,
    /// [`start_poll`]. Tests set a function that fails.
    pub(in crate::sys::windows) start: Box<StartPoll>,
}

impl Device {
    /// Opens the driver. Its packets come from `port`.
    pub(in crate::sys::windows) fn open(port: &SystemPort, key: usize) -> Result<Self, Fault> {
        // The part after the driver's name is for people who inspect the process.
        let mut name: Vec<u16> = r"\Device\Afd\CompletionPort".encode_utf16().collect();
        let bytes = u16::try_from(2 * name.len()).unwrap_or(u16::MAX);
        let name =
            UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: name.as_mut_ptr() };
        let attributes = OBJECT_ATTRIBUTES {
            Length: u32::try_from(size_of::<OBJECT_ATTRIBUTES>()).unwrap_or(u32::MAX),
            RootDirectory: ptr::null_mut(),
            ObjectName: &raw const name,
            Attributes: 0,
            SecurityDescriptor: ptr::null(),
            SecurityQualityOfService: ptr::null(),
        };
        let mut status =
            IO_STATUS_BLOCK { Anonymous: IO_STATUS_BLOCK_0 { Status: 0 }, Information: 0 };
        let mut handle: HANDLE = ptr::null_mut();
        let sharing = FILE_SHARE_READ | FILE_SHARE_WRITE;
        // SAFETY: NtCreateFile reads attributes, which point to a name of the length that it
        // states, and writes a handle and a status. Null pointers mean no size and no extended
        // attributes.
        // - valid: all four are locals, and the name's buffer, also a local, has the length in
        //   bytes.
        let code = unsafe {
            NtCreateFile(
                &raw mut handle,
                SYNCHRONIZE,
                &raw const attributes,
                &raw mut status,
                ptr::null(),
                0,
                sharing,
                FILE_OPEN,
                0,
                ptr::null(),
                0,
            )
        };
        if code != STATUS_SUCCESS {
            // SAFETY: RtlNtStatusToDosError has no requirements.
            return Err(system_fault(unsafe { RtlNtStatusToDosError(code) }));
        }
        // SAFETY: `from_raw_handle` requires an open handle that nothing else owns.
        // - the call above has just written it.
        let file = unsafe { OwnedHandle::from_raw_handle(handle) };
        port.associate(&file, key)?;
        Ok(Self { file, pending: AtomicUsize::new(0), start: Box::new(start_poll) })
    }

    /// Makes the driver report when one of `events` holds for `socket`, which may be immediately.
    ///
    /// The completion port reports it in either case.
    ///
    /// # Errors
    ///
    /// The memory is returned, and no packet will come.
    pub(in crate::sys::windows) fn submit(
        &self,
        mut memory: Box<Poll>,
        owner: Owner,
        socket: SOCKET,
        events: u32,
    ) -> Result<PendingPoll, (Box<Poll>, Fault)> {
        // The driver overwrites this status, so a lost status differs from a success.
        memory.overlapped = OVERLAPPED {
            Internal: STATUS_PENDING.cast_unsigned() as usize,
            ..OVERLAPPED::default()
        };
        memory.info =
            Info { timeout: i64::MAX, sockets: 1, is_exclusive: 0, socket, events, status: 0 };
        memory.owner = Some(owner);
        self.pending.fetch_add(1, SeqCst);
        (self.start)(&self.file, memory).map_err(|(mut memory, fault)| {
            self.pending.fetch_sub(1, SeqCst);
            memory.owner = None;
            (memory, fault)
        })
    }

    /// Asks the driver to cancel a request. Its packet still comes.
    ///
    /// Returns false if the request has already ended, and its packet is queued or was taken.
    pub(in crate::sys::windows) fn cancel(&self, pending: &PendingPoll) -> bool {
        // SAFETY: CancelIoEx requires an open file. It looks for a request that was made with this
        // address, and does not access the memory there.
        // - open: `self` owns it.
        unsafe { CancelIoEx(self.file.as_raw_handle(), pending.address.as_ptr().cast()) != 0 }
    }

    /// Returns the number of requests that the driver has, or whose packets were not taken.
    pub(in crate::sys::windows) fn pending(&self) -> usize {
        self.pending.load(SeqCst)
    }

    /// Asks the driver to cancel all requests.
    pub(in crate::sys::windows) fn cancel_all(&self) -> io::Result<()> {
        // SAFETY: CancelIoEx requires an open file; null means all requests.
        // - open: `self` owns it.
        let done = unsafe { CancelIoEx(self.file.as_raw_handle(), ptr::null()) };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Hands the driver, which was opened as `file`, a request that was prepared in `memory`.
///
/// # Errors
///
/// The memory comes back, and no packet will come.
pub(in crate::sys::windows) fn start_poll(
    file: &OwnedHandle,
    memory: Box<Poll>,
) -> Result<PendingPoll, (Box<Poll>, Fault)> {
    let request = Box::into_raw(memory);
    // SAFETY: `&raw mut` of a field demands a pointer within an object.
    // - `request` is a box's, made just now.
    let info = unsafe { &raw mut (*request).info }.cast();
    // SAFETY: `&raw mut` of a field demands a pointer within an object.
    // - as above.
    let block = unsafe { &raw mut (*request).overlapped }.cast::<IO_STATUS_BLOCK>();
    // SAFETY: NtDeviceIoControlFile reads and writes as many bytes at the two pointers to buffers as it is told, and
    // writes a status at the fifth argument, until a packet of the file's completion port brings the fourth. An
    // OVERLAPPED begins with such a status.
    // - valid: all are of `request`, whose memory is freed by nothing but `EndedPoll::take`, which that packet brings
    //   about, or below, where no packet comes;
    // - not shared: no reference to the memory exists until then;
    // - the file is open, since `file` owns it. Without a port that it is associated with, no packet comes, and nothing
    //   frees the memory. No event and no routine are given.
    let status = unsafe {
        NtDeviceIoControlFile(
            file.as_raw_handle(),
            ptr::null_mut(),
            None,
            request.cast(),
            block,
            POLL,
            info,
            INFO_SIZE,
            info,
            INFO_SIZE,
        )
    };
    if is_error(status) {
        // SAFETY: `from_raw` demands a pointer of `into_raw` that nothing else uses.
        // - it was made above, and a call that is refused keeps nothing and queues no packet.
        let memory = unsafe { Box::from_raw(request) };
        // SAFETY: RtlNtStatusToDosError demands nothing.
        return Err((memory, system_fault(unsafe { RtlNtStatusToDosError(status) })));
    }
    // SAFETY: `new_unchecked` demands a pointer that is not null.
    // - a box's is not.
    let address = unsafe { NonNull::new_unchecked(request) };
    Ok(PendingPoll { address, was_ready: status == STATUS_SUCCESS })
}
