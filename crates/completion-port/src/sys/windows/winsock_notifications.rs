//! Readiness by the socket notifications that Windows has from build 20348 on. A port uses them
//! only if its builder asks for them.
//!
//! The function is looked up when the first port is made, and never imported: a program that was
//! linked with it would not start on an older Windows. Attempts, files, threads and the process are
//! those of the other back end. The kernel carries out operations that have to wait, and their
//! packets come from the port of the notifications.

use std::collections::HashMap;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
#[cfg(feature = "sim")]
use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
    GetModuleHandleExA,
};

use windows_sys::Win32::Foundation::{
    CloseHandle, ERROR_TIMEOUT, HANDLE, HMODULE, INVALID_HANDLE_VALUE, WAIT_TIMEOUT,
};
use windows_sys::Win32::Networking::WinSock::{
    POLLERR, POLLHUP, POLLRDNORM, POLLWRNORM, SO_CONNECT_TIME, SOCK_NOTIFY_REGISTRATION,
    SOL_SOCKET, WSAECONNABORTED, WSAENOTCONN, WSAPOLLFD, WSAPoll,
};
use windows_sys::Win32::System::IO::{
    CreateIoCompletionPort, OVERLAPPED, OVERLAPPED_ENTRY, PostQueuedCompletionStatus,
};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleA, GetProcAddress};
use windows_sys::Win32::System::Threading::INFINITE;
use windows_sys::core::BOOL;

use super::address::RawAddress;
use super::afd::{Afd, LAST, SOON, SystemTransfers, base_of};
use super::errors::{PORT, fault_of_wait};
use super::host::now;
use super::operations::OverlappedOperations;
use super::options::{is_open, last_error, number, socket, system_fault};
use super::port::{ALL, ROOM, nap};
use super::sockets::{SocketName, name};
use super::timeout;
use crate::backend::files::{FileRef, FileTarget, Files, Now};
use crate::backend::host::{Host, Origin};
use crate::backend::reactor::{Reactor, Until, Watch};
use crate::backend::request::{SocketRequest, Submit};
use crate::backend::sockets::{
    Received, SocketAttempt, SocketKind, SocketTarget, Sockets, Transport,
};
use crate::backend::thread::Thread;
use crate::state::facts::{AtEnd, DescriptorKind, Edge, Facts, Probe};
use crate::state::moment::Moment;
use crate::state::table::Descriptors;
use crate::sys::portable::errors::Retries;
use crate::sys::portable::winsock_notifications::{
    CARRIED, Holders, NotificationCalls, NotificationChange, NotificationPacket,
    WinsockNotifications, event,
};
use crate::types::address::Address;
use crate::types::config::FileEngine;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;
use crate::types::source::OwnedSource;

/// `ProcessSocketNotifications`.
///
/// Its arguments are the port; the number of changes, and the changes; milliseconds; the number of
/// entries, the entries, and the place for the number of packets. It returns 0 or an error code.
type NotificationsFunction = unsafe extern "system" fn(
    HANDLE,
    u32,
    *mut SOCK_NOTIFY_REGISTRATION,
    u32,
    u32,
    *mut OVERLAPPED_ENTRY,
    *mut u32,
) -> u32;

/// The calls that make such a port, post to it and close it, with the signatures of
/// `CreateIoCompletionPort`, `PostQueuedCompletionStatus` and `CloseHandle`.
type Create = unsafe extern "system" fn(HANDLE, HANDLE, usize, u32) -> HANDLE;
type Post = unsafe extern "system" fn(HANDLE, u32, usize, *const OVERLAPPED) -> BOOL;
type Close = unsafe extern "system" fn(HANDLE) -> BOOL;

/// Calls that belong together: a port made by one of them works only with the others.
#[derive(Clone, Copy)]
pub(super) struct Library {
    create: Create,
    process: NotificationsFunction,
    post: Post,
    close: Close,
    /// See [`NotificationCalls::tells_when_enabled`].
    tells_when_enabled: bool,
}

/// Finds a function of a loaded library.
fn function(library: HMODULE, name: &CStr) -> Option<unsafe extern "system" fn() -> isize> {
    // SAFETY: GetProcAddress requires a loaded library, and reads a name that ends with a zero.
    // - each caller has just found the library, and it is never unloaded: the program imports other
    //   functions of `ws2_32.dll`, and `replacement` guarantees it for the other library.
    unsafe { GetProcAddress(library, name.as_ptr().cast()) }
}

fn loaded(name: &CStr) -> Option<HMODULE> {
    // SAFETY: GetModuleHandleA reads a name that ends with a zero.
    let library = unsafe { GetModuleHandleA(name.as_ptr().cast()) };
    (!library.is_null()).then_some(library)
}

fn process_of(library: HMODULE) -> Option<NotificationsFunction> {
    let found = function(library, c"ProcessSocketNotifications")?;
    // SAFETY: `transmute` requires that the function has this signature.
    // - the system documents it for this name.
    Some(unsafe {
        std::mem::transmute::<unsafe extern "system" fn() -> isize, NotificationsFunction>(found)
    })
}

/// Returns the system's calls, if it has all of them.
pub(super) fn native() -> Option<Library> {
    Some(Library {
        create: CreateIoCompletionPort,
        process: process_of(loaded(c"ws2_32.dll")?)?,
        post: PostQueuedCompletionStatus,
        close: CloseHandle,
        // The system does not document it.
        tells_when_enabled: false,
    })
}

/// Returns the calls of this workspace's C library, for tests on a system without notifications.
///
/// The process must have loaded the library, and must keep it.
#[cfg(feature = "sim")]
fn replacement() -> Option<Library> {
    let library = loaded(c"completion_port.dll")?;
    let mut own = ptr::null_mut();
    // SAFETY: GetModuleHandleExA with FROM_ADDRESS takes an address within a module, and writes the
    // module's handle at the other pointer.
    // - within a module: it is the address of a function of this crate;
    // - valid for writes: `own` is a local.
    let done = unsafe {
        GetModuleHandleExA(
            GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
            replacement as fn() -> Option<Library> as *const u8,
            &raw mut own,
        )
    };
    if done == 0 || own == library {
        // This is that library, built with the features of the tests: its ports must use the
        // system's calls.
        return None;
    }
    let create = function(library, c"cp_create_io_completion_port")?;
    let post = function(library, c"cp_post")?;
    let close = function(library, c"cp_close_handle")?;
    type Any = unsafe extern "system" fn() -> isize;
    Some(Library {
        // SAFETY: `transmute` requires that the function has this signature.
        // - the library's header declares it.
        create: unsafe { std::mem::transmute::<Any, Create>(create) },
        process: process_of(library)?,
        // SAFETY: as above.
        post: unsafe { std::mem::transmute::<Any, Post>(post) },
        // SAFETY: as above.
        close: unsafe { std::mem::transmute::<Any, Close>(close) },
        // The library's header documents it.
        tells_when_enabled: true,
    })
}

#[cfg(not(feature = "sim"))]
fn replacement() -> Option<Library> {
    None
}

/// Returns the calls, if there are any. They are looked up once.
fn library() -> Option<Library> {
    static FOUND: OnceLock<Option<Library>> = OnceLock::new();
    *FOUND.get_or_init(|| replacement().or_else(native))
}

/// A completion port, with its calls and operations.
struct CompletionPort {
    library: Library,
    port: HANDLE,
    /// The operations that the kernel carries out.
    operations: OverlappedOperations,
}

// SAFETY: any thread may use a handle.
unsafe impl Send for CompletionPort {}
// SAFETY: as above; several threads may do so at the same time.
unsafe impl Sync for CompletionPort {}

impl Drop for CompletionPort {
    fn drop(&mut self) {
        // SAFETY: the call requires a port that no thread uses any more.
        // - `self` owns it, and each call on it borrows `self`.
        unsafe { (self.library.close)(self.port) };
    }
}

fn registration(change: &NotificationChange) -> SOCK_NOTIFY_REGISTRATION {
    SOCK_NOTIFY_REGISTRATION {
        socket: socket(change.descriptor),
        // Keys are counted up from one.
        completionKey: ptr::without_provenance_mut(
            usize::try_from(change.key).unwrap_or(usize::MAX),
        ),
        eventFilter: u16::try_from(change.filter).unwrap_or(0),
        operation: change.operation as u8,
        triggerFlags: change.trigger as u8,
        registrationResult: 0,
    }
}

impl CompletionPort {
    fn new(library: Library, operations: OverlappedOperations) -> Result<Self, Fault> {
        // SAFETY: CreateIoCompletionPort requires a file or INVALID_HANDLE_VALUE, and a port or
        // null.
        // - INVALID_HANDLE_VALUE and null request a new port without a file.
        let port = unsafe { (library.create)(INVALID_HANDLE_VALUE, ptr::null_mut(), 0, ALL) };
        if port.is_null() {
            Err(system_fault(last_error()))
        } else {
            Ok(Self { library, port, operations })
        }
    }

    /// Queues a packet with a key and an address that nothing dereferences.
    fn post_for(&self, key: u64, place: usize) {
        let key = usize::try_from(key).unwrap_or(0);
        let address = ptr::without_provenance(place);
        // SAFETY: PostQueuedCompletionStatus requires an open port. It passes the other words on
        // unread.
        // - open: `self` owns it.
        while unsafe { (self.library.post)(self.port, 0, key, address) } == 0 {
            // The system is short of memory. A thread may sleep until this packet comes, so the
            // post is retried.
            nap();
        }
    }

    /// Associates a socket with this port as long as it is open: its operations end here.
    ///
    /// Fails if the socket already has another port: the documentation allows one for each socket.
    fn associate(&self, descriptor: Descriptor) -> bool {
        let handle = ptr::without_provenance_mut(socket(descriptor));
        let key = usize::try_from(CARRIED).unwrap_or(0);
        // SAFETY: CreateIoCompletionPort requires an open port, and fails for a number that names
        // no file. It accesses no memory of this process.
        // - open: `self` owns it.
        !unsafe { (self.library.create)(handle, self.port, key, 0) }.is_null()
    }

    /// Makes one WSAPoll without waiting.
    fn polled(descriptor: Descriptor) -> i16 {
        let events = POLLRDNORM | POLLWRNORM;
        let mut question = WSAPOLLFD { fd: socket(descriptor), events, revents: 0 };
        // SAFETY: WSAPoll reads and writes as many elements at the pointer as its second argument
        // says.
        // - valid: `question` is one element and a local.
        let done = unsafe { WSAPoll(&raw mut question, 1, 0) };
        if done > 0 { question.revents } else { 0 }
    }
}

impl NotificationCalls for CompletionPort {
    fn name(&self) -> &'static str {
        "notifications"
    }

    fn process(
        &self,
        changes: &mut [NotificationChange],
        room: &mut [NotificationPacket],
        timeout: Option<Duration>,
    ) -> Result<usize, Fault> {
        const MOST: usize = 64;
        let mut registrations: Vec<_> = changes.iter().map(registration).collect();
        let mut entries = [const { MaybeUninit::<OVERLAPPED_ENTRY>::uninit() }; MOST];
        let places = u32::try_from(room.len().min(MOST)).unwrap_or(0);
        let mut count = 0;
        // An empty list must be null.
        let list = match registrations.as_mut_slice() {
            [] => ptr::null_mut(),
            list => list.as_mut_ptr(),
        };
        let (first, told, milliseconds) = match places {
            0 => (ptr::null_mut(), ptr::null_mut(), 0),
            _ => {
                let limit = timeout.map_or(INFINITE, timeout::whole_milliseconds);
                (entries.as_mut_ptr().cast(), &raw mut count, limit)
            }
        };
        // SAFETY: ProcessSocketNotifications reads and writes as many changes at the first pointer
        // as the argument before it says, writes at most as many entries at the second as the
        // argument before that says, and writes their number at the last.
        // - valid: `registrations` and `entries` are locals with that many; `count` is a local;
        //   null means none;
        // - the port is open and was made by the same library, since `self` owns both.
        let process = || unsafe {
            (self.library.process)(
                self.port,
                u32::try_from(changes.len()).unwrap_or(0),
                list,
                milliseconds,
                places,
                first,
                told,
            )
        };
        let mut done = process();
        let mut retries = Retries::default();
        while retries.pass(&PORT, done.cast_signed()) {
            // A failed call has changed nothing.
            done = process();
        }
        // The documentation names both codes for a timeout.
        let is_done = matches!(done, 0 | WAIT_TIMEOUT | ERROR_TIMEOUT);
        for (change, registration) in changes.iter_mut().zip(&registrations) {
            change.result = if is_done { registration.registrationResult } else { done };
        }
        if !is_done {
            return Err(fault_of_wait(done.cast_signed()));
        }
        let count = if done == 0 { usize::try_from(count).unwrap_or(0) } else { 0 };
        for (place, entry) in room.iter_mut().zip(&entries[..count.min(MOST)]) {
            // SAFETY: `assume_init_ref` requires an initialized value.
            // - the call has written the first `count`.
            let entry = unsafe { entry.assume_init_ref() };
            *place = NotificationPacket {
                key: entry.lpCompletionKey as u64,
                events: entry.dwNumberOfBytesTransferred,
                place: entry.lpOverlapped.addr(),
            };
        }
        Ok(count)
    }

    fn post(&self, key: u64) {
        self.post_for(key, 0);
    }

    fn ended(&self, place: usize, is_there: &dyn Fn(Descriptor) -> bool) -> Option<u64> {
        self.operations.complete(place, &|place| self.post_for(CARRIED, place), is_there)
    }

    fn look(&self, descriptor: Descriptor, filter: u32) -> u32 {
        let told = Self::polled(descriptor);
        let known = [
            (POLLRDNORM, filter & event::IN),
            (POLLWRNORM, filter & event::OUT),
            (POLLHUP, filter & event::HANGUP),
            (POLLERR, event::ERR),
        ];
        known.iter().filter(|(bit, _)| told & bit != 0).fold(0, |events, (_, event)| events | event)
    }

    fn is_open(&self, descriptor: Descriptor) -> bool {
        is_open(descriptor)
    }

    fn code(&self, _kind: ErrorKind, result: u32) -> i32 {
        result.cast_signed()
    }

    fn unread(&self, descriptor: Descriptor, _end: AtEnd) -> Option<usize> {
        super::afd::unread(descriptor)
    }

    fn is_own_end(&self, _descriptor: Descriptor) -> bool {
        // The system reports only the peer's end.
        false
    }

    fn was_connected(&self, descriptor: Descriptor) -> bool {
        // The time since the connection was made, in seconds. All bits are set if there was none.
        number(descriptor, SOL_SOCKET, SO_CONNECT_TIME).is_ok_and(|seconds| seconds != -1)
    }

    fn kind(&self, descriptor: Descriptor) -> DescriptorKind {
        super::afd::kind(descriptor)
    }

    fn tells_when_enabled(&self) -> bool {
        self.library.tells_when_enabled
    }

    fn holders(&self) -> &Holders {
        static HOLDERS: OnceLock<Holders> = OnceLock::new();
        HOLDERS.get_or_init(Holders::default)
    }
}

/// What is known about operations on an attached socket.
#[derive(Default)]
struct KnownSocket {
    /// Whether the kernel carries them out; `None` if not known yet.
    carried: Option<Option<SystemTransfers>>,
    /// The kernel has refused a connect, so the next attempt starts it.
    begins_connects: bool,
}

/// The back end: the reactor, and the parts it shares with [`Afd`].
pub(super) struct WinsockBackend {
    reactor: WinsockNotifications<CompletionPort>,
    rest: Afd,
    sockets: Mutex<HashMap<Descriptor, KnownSocket>>,
}

impl WinsockBackend {
    /// Makes the back end. `None` if the system has no notifications.
    pub(super) fn new(
        files: FileEngine,
        operations: OverlappedOperations,
    ) -> Option<Result<Self, Fault>> {
        let library = library()?;
        Some(Afd::new(files).and_then(|rest| {
            let reactor = WinsockNotifications::new(CompletionPort::new(library, operations)?);
            Ok(Self { reactor, rest, sockets: Mutex::default() })
        }))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Descriptor, KnownSocket>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn operations(&self) -> &OverlappedOperations {
        &self.reactor.calls.operations
    }

    /// Returns whether the kernel carries out operations on the socket.
    ///
    /// The first call decides it: it associates the socket with the port of its notifications. A
    /// socket that is already associated waits for edges instead, even if it is associated with
    /// this port: a number that was detached and attached again may name another socket.
    fn carries(&self, descriptor: Descriptor) -> Option<SystemTransfers> {
        let mut known = self.known();
        let known = known.get_mut(&descriptor)?;
        *known.carried.get_or_insert_with(|| {
            let is_base = base_of(descriptor).is_ok_and(|base| base == socket(descriptor));
            let carried = SystemTransfers::of(descriptor).filter(|_| is_base)?;
            self.reactor.calls.associate(descriptor).then_some(carried)
        })
    }

    /// Returns whether the kernel carries out connects of the socket.
    fn carries_connects(&self, descriptor: Descriptor) -> bool {
        self.carries(descriptor) == Some(SystemTransfers::Stream)
            && self.known().get(&descriptor).is_some_and(|known| !known.begins_connects)
    }
}

impl Drop for WinsockBackend {
    fn drop(&mut self) {
        self.operations().end();
        let end = now() + LAST;
        let mut edges = Vec::with_capacity(ROOM);
        while self.operations().pending() > 0 && now() < end {
            // No thread polls any more.
            if self.reactor.poll(&mut edges, Some(SOON)).is_err() {
                break;
            }
        }
        // The memory of operations that the kernel keeps for longer is never freed.
    }
}

/// Turns a blocked attempt into one that the system carries out, if it can.
fn or_carried<T>(attempt: SocketAttempt<T>, is_carried: impl FnOnce() -> bool) -> SocketAttempt<T> {
    match attempt {
        SocketAttempt::Blocked if is_carried() => SocketAttempt::NeedsSystem,
        attempt => attempt,
    }
}

impl Reactor for WinsockBackend {
    fn name(&self) -> &'static str {
        self.reactor.name()
    }

    fn is_one_shot(&self) -> bool {
        self.reactor.is_one_shot()
    }

    fn attach(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault> {
        self.reactor.attach(descriptor, name, wanted)?;
        self.known().insert(descriptor, KnownSocket::default());
        Ok(())
    }

    fn adopt(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault> {
        self.reactor.adopt(descriptor, name, wanted)
    }

    fn want(
        &self,
        descriptor: Descriptor,
        name: u64,
        wanted: Facts,
        until: Until,
    ) -> Result<(), Fault> {
        self.reactor.want(descriptor, name, wanted, until)
    }

    fn notices_reuse(&self) -> bool {
        self.reactor.notices_reuse()
    }

    fn detach(&self, descriptor: Descriptor) {
        self.known().remove(&descriptor);
        self.reactor.detach(descriptor);
    }

    fn watches(&self, descriptor: Descriptor) -> bool {
        self.reactor.watches(descriptor)
    }

    fn poll(&self, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> Result<bool, Fault> {
        self.reactor.poll(edges, timeout)
    }

    fn wake(&self) {
        self.reactor.wake();
    }

    fn probe(&self, probes: &mut [Probe]) -> Result<(), Fault> {
        self.reactor.probe(probes)
    }

    fn unread(&self, descriptor: Descriptor, end: AtEnd) -> Option<usize> {
        self.reactor.unread(descriptor, end)
    }

    fn is_own_end(&self, descriptor: Descriptor) -> bool {
        self.reactor.is_own_end(descriptor)
    }

    fn was_connected(&self, descriptor: Descriptor) -> bool {
        self.reactor.was_connected(descriptor)
    }

    fn kind(&self, descriptor: Descriptor) -> DescriptorKind {
        self.reactor.kind(descriptor)
    }

    fn rebuild(&self, live: &mut dyn Iterator<Item = Watch>) -> Result<(), Fault> {
        self.reactor.rebuild(live)
    }
}

impl Sockets for WinsockBackend {
    fn make_nonblocking(&self, descriptor: Descriptor) -> Result<(), Fault> {
        self.rest.make_nonblocking(descriptor)
    }

    fn transport(&self, descriptor: Descriptor) -> Transport {
        self.rest.transport(descriptor)
    }

    fn open_stream(&self, address: &Address) -> Result<OwnedSource, Fault> {
        self.rest.open_stream(address)
    }

    fn accept(&self, descriptor: Descriptor) -> SocketAttempt<(OwnedSource, Option<Address>)> {
        or_carried(self.rest.accept(descriptor), || {
            self.carries(descriptor) == Some(SystemTransfers::Stream)
        })
    }

    fn begin_connect(&self, descriptor: Descriptor, address: &Address) -> SocketAttempt<()> {
        if RawAddress::of(address).is_ok()
            && self.carries_connects(descriptor)
            && matches!(name(descriptor, SocketName::Peer), Err(WSAENOTCONN))
        {
            // The kernel cannot take over a connect that has started.
            return SocketAttempt::NeedsSystem;
        }
        self.rest.begin_connect(descriptor, address)
    }

    fn end_connect(&self, descriptor: Descriptor) -> SocketAttempt<()> {
        match self.rest.end_connect(descriptor) {
            // Another call has taken the error.
            SocketAttempt::Blocked
                if CompletionPort::polled(descriptor) & (POLLHUP | POLLERR) != 0 =>
            {
                SocketAttempt::Failed(Fault { kind: ErrorKind::Other, code: Some(WSAECONNABORTED) })
            }
            attempt => attempt,
        }
    }

    fn has_shut_reading(&self, descriptor: Descriptor) -> bool {
        self.rest.has_shut_reading(descriptor)
    }

    fn abandon_connect(&self, descriptor: Descriptor) -> bool {
        self.rest.abandon_connect(descriptor)
    }

    fn receive(
        &self,
        descriptor: Descriptor,
        transport: Transport,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<Received> {
        or_carried(self.rest.receive(descriptor, transport, room), || {
            self.carries(descriptor).is_some_and(|carried| carried.carries_receive(room))
        })
    }

    fn receive_from(
        &self,
        descriptor: Descriptor,
        transport: Transport,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<(Received, Option<Address>)> {
        or_carried(self.rest.receive_from(descriptor, transport, room), || {
            self.carries(descriptor) == Some(SystemTransfers::Datagrams)
                && SystemTransfers::Datagrams.carries_receive(room)
        })
    }

    fn send(
        &self,
        descriptor: Descriptor,
        parts: &[&[u8]],
        address: Option<&Address>,
    ) -> SocketAttempt<usize> {
        or_carried(self.rest.send(descriptor, parts, address), || {
            self.carries(descriptor).is_some()
        })
    }

    fn socket_requests(&self) -> Option<&dyn Submit<SocketTarget>> {
        Some(self)
    }
}

impl Submit<SocketTarget> for WinsockBackend {
    fn prepare(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn submit(&self, request: SocketRequest) {
        self.operations().submit(request);
    }

    fn flush(&self) {
        let calls = &self.reactor.calls;
        calls.operations.flush(&|place| calls.post_for(CARRIED, place));
    }

    /// Asks the system to cancel a request that has started. An edge reports its end.
    fn cancel(&self, id: u64) -> Option<SocketRequest> {
        self.operations().cancel(id)
    }

    fn take_completed(&self, id: u64) -> Option<SocketRequest> {
        let request = self.operations().take_completed(id)?;
        if request.target.is_declined
            && request.kind == SocketKind::Connect
            && let Some(known) = self.known().get_mut(&request.target.descriptor)
        {
            known.begins_connects = true;
        }
        Some(request)
    }
}

impl Files for WinsockBackend {
    fn is_file(&self, descriptor: Descriptor) -> bool {
        self.rest.is_file(descriptor)
    }

    fn reads_now(&self, descriptor: Descriptor) -> bool {
        self.rest.reads_now(descriptor)
    }

    fn read_now(
        &self,
        descriptor: Descriptor,
        position: u64,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> Now {
        self.rest.read_now(descriptor, position, room)
    }

    fn file_ref(&self, descriptor: Descriptor) -> Result<Arc<dyn FileRef>, Fault> {
        self.rest.file_ref(descriptor)
    }

    fn file_requests(&self) -> &dyn Submit<FileTarget> {
        self.rest.file_requests()
    }

    fn files_name(&self) -> Option<&'static str> {
        self.rest.files_name()
    }
}

impl Host for WinsockBackend {
    fn now(&self) -> Moment {
        self.rest.now()
    }

    fn moment_of(&self, instant: Instant) -> Moment {
        self.rest.moment_of(instant)
    }

    fn this_thread(&self) -> Box<dyn Thread> {
        self.rest.this_thread()
    }

    fn can_observe(&self) -> Result<(), Fault> {
        self.rest.can_observe()
    }

    fn origin(&self) -> Origin {
        self.rest.origin()
    }

    fn descriptors(&self) -> &Descriptors {
        self.rest.descriptors()
    }
}
