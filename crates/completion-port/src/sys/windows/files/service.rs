//! Threads that wait at a completion port of the kernel, for requests and for the kernel's packets.
//!
//! Whichever thread takes a request of an overlapped file submits it to the kernel, one part after
//! the other. Any thread continues it when the kernel's packet arrives. None of these threads waits
//! for a file: a thread of a [`WaitingJobs`] performs flushes, and requests of files that are not
//! overlapped. The threads and the completion port belong to the service. It outlives its port
//! until the last request has returned, since the kernel accesses a buffer until its packet
//! arrives.

use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::waiting::{POOLS, WaitingJobs, complete, pool_of};
use crate::backend::files::{FileKind, FileTarget};
use crate::backend::request::{FileRequest, Submit};
use crate::sys::portable::request_queue::RequestQueue;
use crate::sys::windows::afd::driver::is_error;
use crate::sys::windows::options::system_fault;
use crate::sys::windows::port::{CompletionPacket, SystemPort, nap};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use windows_sys::Wdk::Storage::FileSystem::{NtReadFile, NtWriteFile};
use windows_sys::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_HANDLE_EOF, ERROR_INVALID_PARAMETER, ERROR_OPERATION_ABORTED,
    ERROR_WRITE_FAULT, HANDLE, RtlNtStatusToDosError, STATUS_PENDING,
};
use windows_sys::Win32::System::IO::{CancelIoEx, IO_STATUS_BLOCK, OVERLAPPED};
use windows_sys::Win32::System::Threading::INFINITE;

/// The most threads at the completion port: few enough to cost little. The kernel may perform an
/// operation within the call, and a disk is slow.
const MOST: usize = 8;

/// The longest time, in milliseconds, between two attempts to cancel a call in which a thread
/// waits.
const LONGEST_PAUSE: u32 = 32;

/// The key of posted packets: there may be a request, or the service may have ended.
const LOOK: usize = 2;

/// The most bytes of one call.
const LONGEST: usize = 1 << 30;

/// The position of a write that appends to a file.
const END: i64 = -1;

/// An error code of the system.
pub(super) type SystemCode = u32;

/// A request, and the memory to which the kernel writes its result. While `is_pending` is set, the
/// kernel owns all of it.
#[repr(C)]
struct FileTransfer {
    /// The first field, since its address comes with the packet.
    overlapped: OVERLAPPED,
    request: FileRequest,
}

impl FileTransfer {
    /// Returns the result of a read or write that has ended.
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a status")]
    fn result(&self) -> Result<usize, SystemCode> {
        let status = self.overlapped.Internal as i32;
        if is_error(status) { Err(code_of(status)) } else { Ok(self.overlapped.InternalHigh) }
    }
}

pub(super) fn code_of(status: i32) -> SystemCode {
    // SAFETY: RtlNtStatusToDosError has no requirements.
    unsafe { RtlNtStatusToDosError(status) }
}

/// The address of a [`FileTransfer`], used only as its identity.
type TransferAddress = usize;

fn address_of(transfer: &FileTransfer) -> TransferAddress {
    ptr::from_ref(transfer).addr()
}

/// A request that a thread has started, until it returns.
struct PendingJob {
    id: u64,
    /// The request's file.
    file: HANDLE,
    /// Distinguishes its last call from one for a later request with the same memory.
    serial: u64,
    /// The kernel has it, or is being called for it. The thread that clears this makes the box of
    /// it again.
    is_pending: bool,
    /// Its cancellation was requested.
    is_cancelled: bool,
}

// SAFETY: `Send` requires that another thread may use the value.
// - `file` is passed to CancelIoEx, which any thread may call.
unsafe impl Send for PendingJob {}

impl PendingJob {
    /// Asks the kernel to cancel the operation with the memory at this address, if there is one.
    fn cancel(&self, address: TransferAddress) {
        // SAFETY: CancelIoEx requires an open file. It looks for a request that was made with this
        // address, and does not access the memory there.
        // - open: the request has a reference to it, and the entry in `pending` is removed before
        //   the request completes, under the lock that is held here.
        unsafe { CancelIoEx(self.file, ptr::without_provenance(address)) };
    }
}

#[derive(Default)]
pub(super) struct ServiceState {
    /// Requests that have not started, oldest first.
    queue: RequestQueue,
    pending: HashMap<TransferAddress, PendingJob>,
    serials: u64,
    threads: usize,
    /// The threads that wait at the completion port.
    idle: usize,
    /// One of these threads repeats the requested cancellations.
    is_reminding: bool,
    /// Requests that a thread has to wait for.
    pub(super) pools: [WaitingJobs; POOLS],
    /// The port is gone.
    pub(super) is_over: bool,
}

impl ServiceState {
    /// Returns whether nothing remains to be done.
    fn is_done(&self) -> bool {
        self.is_over && self.pending.is_empty() && !self.pools.iter().any(WaitingJobs::is_at_work)
    }

    /// Repeats the requested cancellations, if this thread is the one that does so.
    ///
    /// Returns how many milliseconds it may wait for a packet afterwards. `pause` is the last such
    /// time.
    fn remind(&mut self, pause: &mut Option<u32>) -> u32 {
        if pause.is_none() && self.is_reminding {
            return INFINITE;
        }
        let is_wanted = self.pools.iter().filter(|pool| pool.remind()).count() > 0;
        *pause = is_wanted.then(|| pause.map_or(1, |last| LONGEST_PAUSE.min(2 * last)));
        self.is_reminding = is_wanted;
        pause.unwrap_or(INFINITE)
    }
}

pub(super) struct SharedService {
    port: SystemPort,
    state: Mutex<ServiceState>,
    /// One for each element of `pools`.
    pub(super) has_work: [Condvar; POOLS],
    /// [`OverlappedCall::perform`], or a function of a test that demands and promises the same.
    pub(super) perform: PerformCall,
}

/// The type of [`OverlappedCall::perform`].
pub(super) type PerformCall =
    unsafe fn(&OverlappedCall, FileKind, HANDLE, *mut c_void, *mut IO_STATUS_BLOCK) -> i32;

/// A port's reference to the service. The threads have their own, so it lasts until the last
/// operation has returned.
pub(super) struct Service(pub(super) Arc<SharedService>);

impl Service {
    /// Makes a service without threads.
    pub(super) fn new(port: SystemPort) -> Self {
        Self(Arc::new(SharedService {
            port,
            state: Mutex::default(),
            has_work: Default::default(),
            perform: OverlappedCall::perform,
        }))
    }

    /// Returns the port with which overlapped files are associated.
    pub(super) fn port(&self) -> &SystemPort {
        &self.0.port
    }

    pub(super) fn is_prepared(&self) -> bool {
        self.0.lock().threads > 0
    }

    /// Starts a thread, which was already counted.
    fn start(&self) -> Result<(), Fault> {
        let shared = Arc::clone(&self.0);
        let builder = thread::Builder::new().name("port-files".to_owned());
        let Err(error) = builder.spawn(move || shared.serve()) else { return Ok(()) };
        self.0.lock().threads -= 1;
        Err(Fault { kind: ErrorKind::OutOfMemory, code: error.raw_os_error() })
    }
}

impl Submit<FileTarget> for Service {
    fn prepare(&self) -> Result<(), Fault> {
        let mut state = self.0.lock();
        if state.threads > 0 {
            return Ok(());
        }
        state.threads = 1;
        drop(state);
        self.start()
    }

    fn submit(&self, request: FileRequest) {
        let mut state = self.0.lock();
        match pool_of(&request) {
            Some(pool) => state.pools[pool].push(request),
            None => state.queue.push(request),
        }
    }

    fn flush(&self) {
        let mut state = self.0.lock();
        let is_wanted = !state.queue.is_empty();
        let needs_another = state.queue.len() > state.idle && state.threads < MOST;
        state.threads += usize::from(needs_another);
        let begun = state.pools.each_mut().map(WaitingJobs::begin);
        drop(state);
        if needs_another {
            // If no thread can be started, the others do the work.
            let _ = self.start();
        }
        if is_wanted {
            self.0.port.post(LOOK);
        }
        for (pool, needs_another) in begun.into_iter().enumerate() {
            match needs_another {
                Some(true) => self.0.start_waiting(pool),
                Some(false) => self.0.has_work[pool].notify_one(),
                None => {}
            }
        }
    }

    fn cancel(&self, id: u64) -> Option<FileRequest> {
        let mut state = self.0.lock();
        if let Some(request) = state.queue.take(id) {
            return Some(request);
        }
        if let Some(request) = state.pools.iter_mut().find_map(|pool| pool.take(id)) {
            return Some(request);
        }
        if let Some((address, pending)) = state.pending.iter_mut().find(|(_, it)| it.id == id) {
            pending.is_cancelled = true;
            pending.cancel(*address);
        } else if state.pools.iter_mut().any(|pool| pool.cancel(id)) {
            // The kernel may not have had the call yet, so a thread must repeat this.
            self.0.port.post(LOOK);
        }
        None
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_over = true;
        let queue = state.queue.take_all();
        for (address, pending) in &mut state.pending {
            pending.is_cancelled = true;
            pending.cancel(*address);
        }
        let queues = state.pools.each_mut().map(WaitingJobs::end);
        self.0.dismiss(&state);
        drop(state);
        self.0.port.post(LOOK);
        self.0.has_work.iter().for_each(Condvar::notify_all);
        // No thread has started these, and their port is gone.
        drop((queue, queues));
    }
}

/// The result of one call for a request.
enum TransferStep {
    /// The kernel has it. Its packet will come, or another thread has already taken it.
    Pending,
    Done(Box<FileTransfer>, Result<usize, SystemCode>),
}

/// The next call for a request.
pub(super) struct OverlappedCall {
    pub(super) file: HANDLE,
    position: i64,
    /// The start of the first remaining part.
    start: *mut u8,
    len: u32,
}

impl OverlappedCall {
    /// Returns the next call, or `None` if nothing of the request remains.
    pub(super) fn of(request: &FileRequest) -> Result<Option<Self>, SystemCode> {
        let file = super::handle_of(request.target.file.descriptor());
        if matches!(request.kind, FileKind::SyncData | FileKind::SyncAll) {
            return Ok(Some(Self { file, position: 0, start: ptr::null_mut(), len: 0 }));
        }
        let position = match i64::try_from(request.position()) {
            _ if request.kind == FileKind::Append => END,
            _ if !request.target.file.has_positions() => 0,
            Ok(position) => position,
            // Some of these positions have special meanings.
            Err(_) => return Err(ERROR_INVALID_PARAMETER),
        };
        let parts = request.buffer.as_ref().map_or(&[][..], |io_buffer| io_buffer.parts());
        let Some(part) = parts.first() else { return Ok(None) };
        let len = u32::try_from(part.len.min(LONGEST)).unwrap_or(0);
        Ok(Some(Self { file, position, start: part.start.cast(), len }))
    }

    /// Makes the call, and returns a status.
    ///
    /// # Safety
    ///
    /// Unless the call is refused, the kernel accesses the part of the buffer, and writes a status
    /// to `block`, until it reports that it has finished: by the return of the call, by the event,
    /// or by a packet with the context. Until then both are valid, and nothing else uses them. The
    /// file is open, and is associated with a completion port if there is a context.
    pub(super) unsafe fn perform(
        &self,
        what: FileKind,
        event: HANDLE,
        context: *mut c_void,
        block: *mut IO_STATUS_BLOCK,
    ) -> i32 {
        let Self { file, start, len, .. } = *self;
        let (start, at) = (start.cast::<c_void>(), &raw const self.position);
        if what == FileKind::Read {
            // SAFETY: NtReadFile writes at most as many bytes to the buffer as its length says, and
            // a status at the fifth argument, until it reports that it has finished. It reads the
            // position before it returns.
            // - the caller guarantees that both are valid until then; a read request has lent its
            //   room.
            unsafe { NtReadFile(file, event, None, context, block, start, len, at, ptr::null()) }
        } else {
            // SAFETY: NtWriteFile reads as many bytes of the buffer as its length says; everything
            // else as for NtReadFile.
            // - as above; a write request has lent its bytes, which nothing writes to until the
            //   request has returned.
            unsafe { NtWriteFile(file, event, None, context, block, start, len, at, ptr::null()) }
        }
    }
}

impl SharedService {
    pub(super) fn lock(&self) -> MutexGuard<'_, ServiceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all threads so that they end, if nothing remains to be done.
    pub(super) fn dismiss(&self, state: &ServiceState) {
        if state.is_done() {
            (0..state.threads).for_each(|_| self.port.post(LOOK));
        }
    }

    /// Runs one thread that waits at the completion port.
    fn serve(&self) {
        let mut pause = None;
        let mut state = self.lock();
        // A thread that ends cancels the operations that it has started.
        while !state.is_done() {
            let patience = state.remind(&mut pause);
            state.idle += 1;
            drop(state);
            let mut room = [MaybeUninit::uninit()];
            // Only this port reports the end of pending operations, so the thread continues.
            let count = self.port.take(&mut room, patience).unwrap_or_else(|_| {
                nap();
                0
            });
            state = self.lock();
            state.idle -= 1;
            if count == 0 {
                continue;
            }
            let [entry] = room;
            // SAFETY: `assume_init` requires an initialized value.
            // - `SystemPort::take` says that it has written one.
            let packet = CompletionPacket::from(unsafe { entry.assume_init() });
            match packet {
                CompletionPacket::Posted(_) => {
                    let Some(request) = state.queue.pop() else { continue };
                    let transfer =
                        Box::new(FileTransfer { overlapped: OVERLAPPED::default(), request });
                    let pending = PendingJob {
                        id: transfer.request.id,
                        file: super::handle_of(transfer.request.target.file.descriptor()),
                        serial: 0,
                        is_pending: false,
                        is_cancelled: false,
                    };
                    state.pending.insert(address_of(&transfer), pending);
                    drop(state);
                    self.go_on(transfer);
                }
                CompletionPacket::Ended(overlapped, _) => {
                    drop(state);
                    self.take_packet(overlapped);
                }
            }
            state = self.lock();
        }
        state.threads -= 1;
    }

    /// Takes the transfer whose end a packet with this address reports.
    ///
    /// Returns `None` if the packet does not belong to this transfer: Wine also queues packets for
    /// some calls that it has refused. The memory may belong to another transfer by now, or the
    /// thread that made the call has not continued yet.
    fn completed(&self, overlapped: *mut OVERLAPPED) -> Option<Box<FileTransfer>> {
        let mut state = self.lock();
        let pending =
            state.pending.get_mut(&overlapped.addr()).filter(|pending| pending.is_pending)?;
        // SAFETY: `&raw const` of a field requires a pointer to an object.
        // - the address belongs to a transfer whose `is_pending` is set, as checked above. It is that of
        //   the first field of a box's memory, which nothing frees before `is_pending` is cleared under
        //   the lock that is held here.
        let status = unsafe { &raw const (*overlapped).Internal };
        // SAFETY: reading requires a valid object; the kernel may write it meanwhile, so it is read
        // as one word.
        // - as above.
        if unsafe { status.read_volatile() } == STATUS_PENDING.cast_unsigned() as usize {
            // A packet of this transfer has a status. Wine loses it only if the calling thread
            // ends, and none of these threads does meanwhile.
            return None;
        }
        pending.is_pending = false;
        // SAFETY: `from_raw` requires a pointer from `into_raw` that nothing else uses.
        // - `SharedService::begin` has made it so, from the first field of a `FileTransfer`, with
        //   the provenance of the whole;
        // - the kernel has written a status, after which it does not access the memory; `begin`
        //   does not access it after the call that passes it to the kernel, unless it clears
        //   `is_pending`, which only this thread has done.
        Some(unsafe { Box::from_raw(overlapped.cast::<FileTransfer>()) })
    }

    /// Takes a packet with this address, and continues the request whose call it ends, if any.
    pub(super) fn take_packet(&self, overlapped: *mut OVERLAPPED) {
        let Some(transfer) = self.completed(overlapped) else { return };
        let result = transfer.result();
        if let Some(transfer) = self.note(transfer, result) {
            self.go_on(transfer);
        }
    }

    /// Performs the remaining parts of a request until it must wait for a packet of the kernel.
    fn go_on(&self, mut transfer: Box<FileTransfer>) {
        while let TransferStep::Done(back, result) = self.begin(transfer) {
            match self.note(back, result) {
                Some(back) => transfer = back,
                None => return,
            }
        }
    }

    /// Submits the next part of a request to the kernel.
    fn begin(&self, mut transfer: Box<FileTransfer>) -> TransferStep {
        let what = transfer.request.kind;
        let call = match OverlappedCall::of(&transfer.request) {
            Ok(Some(call)) => call,
            Ok(None) => return TransferStep::Done(transfer, Ok(0)),
            Err(code) => return TransferStep::Done(transfer, Err(code)),
        };
        let address = address_of(&transfer);
        transfer.overlapped = OVERLAPPED {
            Internal: STATUS_PENDING.cast_unsigned() as usize,
            ..OVERLAPPED::default()
        };
        let serial = self.take_off(address);
        let transfer = Box::into_raw(transfer);
        // SAFETY: `perform` requires that the call's memory and the status stay valid and are not
        // shared until a packet returns the context or the call is refused, and that the file is
        // associated with a completion port. A `FileTransfer` begins with an OVERLAPPED, and that
        // with a status.
        // - valid: the request has lent its buffer, which does not move and which nothing else
        //   accesses until the request has returned; only a packet with a status, or a refusal,
        //   frees the transfer's memory;
        // - not shared: no reference to the memory exists until then;
        // - the transfer has a reference to the file, which is associated with `self.port`, since
        //   no thread waits for it.
        let status = unsafe {
            (self.perform)(&call, what, ptr::null_mut(), transfer.cast(), transfer.cast())
        };
        if !is_error(status) {
            self.cancel_if_asked(address);
            return TransferStep::Pending;
        }
        if !self.take_back_transfer(address, serial) {
            // Wine has also queued a packet for it, and another thread has the request.
            return TransferStep::Pending;
        }
        // SAFETY: `from_raw` requires a pointer from `into_raw` that nothing else uses.
        // - it was made above; the call has ended and has kept nothing; only this thread has
        //   cleared `is_pending`.
        let transfer = unsafe { Box::from_raw(transfer) };
        TransferStep::Done(transfer, Err(code_of(status)))
    }

    /// Cancels a request whose cancellation was requested before the kernel had it.
    fn cancel_if_asked(&self, address: TransferAddress) {
        let state = self.lock();
        if let Some(pending) = state.pending.get(&address).filter(|pending| pending.is_cancelled) {
            pending.cancel(address);
        }
    }

    /// Marks the transfer at this address as passed to the kernel.
    ///
    /// Returns the serial number of the call.
    fn take_off(&self, address: TransferAddress) -> u64 {
        let mut state = self.lock();
        state.serials += 1;
        let serial = state.serials;
        if let Some(pending) = state.pending.get_mut(&address) {
            (pending.serial, pending.is_pending) = (serial, true);
        }
        serial
    }

    /// Takes back the transfer of a refused call. Returns whether the calling thread still has it.
    ///
    /// Another thread may have taken it, and yet another transfer may have the same memory.
    fn take_back_transfer(&self, address: TransferAddress, serial: u64) -> bool {
        let mut state = self.lock();
        let pending = state.pending.get_mut(&address).filter(|pending| pending.serial == serial);
        pending.is_some_and(|pending| std::mem::take(&mut pending.is_pending))
    }

    /// Notes the result of a call. Returns the transfer if a part of the request remains.
    fn note(
        &self,
        mut transfer: Box<FileTransfer>,
        result: Result<usize, SystemCode>,
    ) -> Option<Box<FileTransfer>> {
        let address = address_of(&transfer);
        let mut state = self.lock();
        let is_cancelled = state.pending.get(&address).is_some_and(|pending| pending.is_cancelled);
        if !conclude(&mut transfer.request, result, is_cancelled) {
            return Some(transfer);
        }
        state.pending.remove(&address);
        self.dismiss(&state);
        drop(state);
        complete(transfer.request);
        None
    }
}

/// Notes the result of a call and a cancellation. Returns whether the request has ended.
pub(super) fn conclude(
    request: &mut FileRequest,
    result: Result<usize, SystemCode>,
    is_cancelled: bool,
) -> bool {
    let is_over = match result {
        Err(ERROR_OPERATION_ABORTED) if is_cancelled => {
            request.is_cancelled = true;
            true
        }
        // The system has cancelled it for its own reasons. It is retried.
        Err(ERROR_OPERATION_ABORTED) => false,
        result => note(request, result) == ControlFlow::Break(()),
    };
    // The request reports the bytes done so far. It is cancelled only if a part remains.
    request.is_cancelled |= is_cancelled && !is_over;
    is_over || is_cancelled
}

/// Notes the result of a call in its request. `Break`: the request has ended.
fn note(request: &mut FileRequest, result: Result<usize, SystemCode>) -> ControlFlow<()> {
    let is_read = request.kind == FileKind::Read;
    match result {
        Ok(count) => {
            request.advance(count);
            let is_over = match request.kind {
                FileKind::Read => {
                    count == 0 || request.is_complete() || !request.target.file.has_positions()
                }
                FileKind::Write | FileKind::Append if count == 0 && !request.is_complete() => {
                    // A retry would write nothing again, without end.
                    request.fault = Some(fault_of_file(ERROR_WRITE_FAULT));
                    true
                }
                FileKind::Write | FileKind::Append => request.is_complete(),
                FileKind::SyncData | FileKind::SyncAll => true,
            };
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        // The end of the file, or of the data in a pipe.
        Err(ERROR_HANDLE_EOF | ERROR_BROKEN_PIPE) if is_read => ControlFlow::Break(()),
        // A direct read continues only at multiples of a block, and the file has ended within one.
        Err(ERROR_INVALID_PARAMETER) if request.has_come_to_the_end() => ControlFlow::Break(()),
        Err(code) => {
            request.fault = Some(fault_of_file(code));
            ControlFlow::Break(())
        }
    }
}

/// Converts the error of an operation on a file. Its handle is open, whatever the code says.
fn fault_of_file(code: SystemCode) -> Fault {
    match system_fault(code) {
        fault @ Fault { kind: ErrorKind::OutOfMemory, .. } => fault,
        fault => Fault { kind: ErrorKind::Other, ..fault },
    }
}
