//! Threads that wait at a completion port of the kernel, for requests and for what the kernel has done of them.
//!
//! A request of an overlapped file is handed to the kernel by whichever thread takes it, part after part, and any of them
//! goes on with it when the kernel's packet comes. None of them waits for a file: of another file, and when it is to be
//! flushed, a thread of a [`WaitingJobs`] does. The threads and the completion port belong to the service, which outlives its port
//! until the last request has come back: the kernel writes to a buffer, or reads it, until its packet has come.

use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::waiting::{LANES, WaitingJobs, complete, lane_of};
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

/// How many threads wait at the completion port at most: few enough to be no burden. The kernel may do what it is asked for in
/// the call, and a disk is slow.
const MOST: usize = 8;

/// The longest time, in milliseconds, after which a call that a thread is to leave is asked for again.
const LONGEST_PAUSE: u32 = 32;

/// Of what is posted: there may be a request, or the end.
const LOOK: usize = 2;

/// The most bytes that one call is given.
const LONGEST: usize = 1 << 30;

/// Behind the last byte of a file, as a position to write to.
const END: i64 = -1;

/// A code of the system.
pub(super) type SystemCode = u32;

/// A request, and the memory in which the kernel notes what it has come to. While it flies, all of that is the kernel's.
#[repr(C)]
struct FileTransfer {
    /// First, since its address is what a packet brings.
    overlapped: OVERLAPPED,
    request: FileRequest,
}

impl FileTransfer {
    /// What the kernel says that a read or write has come to.
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a status")]
    fn result(&self) -> Result<usize, SystemCode> {
        let status = self.overlapped.Internal as i32;
        if is_error(status) { Err(code_of(status)) } else { Ok(self.overlapped.InternalHigh) }
    }
}

pub(super) fn code_of(status: i32) -> SystemCode {
    // SAFETY: RtlNtStatusToDosError demands nothing.
    unsafe { RtlNtStatusToDosError(status) }
}

/// Where a [`FileTransfer`] is. It only tells it from others.
type TransferAddress = usize;

fn address_of(flight: &FileTransfer) -> TransferAddress {
    ptr::from_ref(flight).addr()
}

/// A request that a thread has begun with, until it comes back.
struct PendingJob {
    id: u64,
    /// Of the request's file.
    file: HANDLE,
    /// Tells the last call for it from one for a later request that has the same memory.
    serial: u64,
    /// The kernel has it, or is just being asked to take it. Whoever takes this back makes the box of it again.
    flies: bool,
    /// It was asked for.
    is_cancelled: bool,
}

// SAFETY: `Send` demands that another thread may use the value.
// - `file` is passed to CancelIoEx, which any thread may call.
unsafe impl Send for PendingJob {}

impl PendingJob {
    /// Has the kernel end what it has begun with the memory at this address, if it has.
    fn cancel(&self, address: TransferAddress) {
        // SAFETY: CancelIoEx demands an open file. It looks for a request that was made with this address, and does not
        // touch what lies there.
        // - open: the request has a share of it, and what is aboard is taken out, by the same lock that is held here, before
        //   its request is given back.
        unsafe { CancelIoEx(self.file, ptr::without_provenance(address)) };
    }
}

#[derive(Default)]
pub(super) struct ServiceState {
    /// Not begun, oldest first.
    queue: RequestQueue,
    aboard: HashMap<TransferAddress, PendingJob>,
    serials: u64,
    threads: usize,
    /// Those that wait at the completion port.
    idle: usize,
    /// One of them asks for what was cancelled again.
    is_reminding: bool,
    /// Of what a thread has to wait for.
    pub(super) lanes: [WaitingJobs; LANES],
    /// The port is gone.
    pub(super) is_over: bool,
}

impl ServiceState {
    /// There is nothing left to do.
    fn is_done(&self) -> bool {
        self.is_over && self.aboard.is_empty() && !self.lanes.iter().any(WaitingJobs::is_at_work)
    }

    /// Asks for what was cancelled again, if it is this thread that does. For how many milliseconds it may wait for a packet
    /// then: `pause` is how long it last did for that.
    fn remind(&mut self, pause: &mut Option<u32>) -> u32 {
        if pause.is_none() && self.is_reminding {
            return INFINITE;
        }
        let is_wanted = self.lanes.iter().filter(|lane| lane.remind()).count() > 0;
        *pause = is_wanted.then(|| pause.map_or(1, |last| LONGEST_PAUSE.min(2 * last)));
        self.is_reminding = is_wanted;
        pause.unwrap_or(INFINITE)
    }
}

pub(super) struct SharedService {
    port: SystemPort,
    state: Mutex<ServiceState>,
    /// Of each lane.
    pub(super) has_work: [Condvar; LANES],
    /// [`OverlappedCall::perform`], or a function of a test that demands and promises the same.
    pub(super) perform: PerformCall,
}

/// The type of [`OverlappedCall::perform`].
pub(super) type PerformCall =
    unsafe fn(&OverlappedCall, FileKind, HANDLE, *mut c_void, *mut IO_STATUS_BLOCK) -> i32;

/// A port's share of the service. The threads have theirs, and so it lasts until the last operation has returned.
pub(super) struct Service(pub(super) Arc<SharedService>);

impl Service {
    /// A service without a thread.
    pub(super) fn new(port: SystemPort) -> Self {
        Self(Arc::new(SharedService {
            port,
            state: Mutex::default(),
            has_work: Default::default(),
            perform: OverlappedCall::perform,
        }))
    }

    /// What overlapped files are associated with.
    pub(super) fn port(&self) -> &SystemPort {
        &self.0.port
    }

    pub(super) fn is_prepared(&self) -> bool {
        self.0.lock().threads > 0
    }

    /// Starts a thread, which was counted.
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
        match lane_of(&request) {
            Some(lane) => state.lanes[lane].push(request),
            None => state.queue.push(request),
        }
    }

    fn flush(&self) {
        let mut state = self.0.lock();
        let is_wanted = !state.queue.is_empty();
        let needs_another = state.queue.len() > state.idle && state.threads < MOST;
        state.threads += usize::from(needs_another);
        let hired = state.lanes.each_mut().map(WaitingJobs::hire);
        drop(state);
        if needs_another {
            // If there can be no more, the others do it.
            let _ = self.start();
        }
        if is_wanted {
            self.0.port.post(LOOK);
        }
        for (lane, needs_another) in hired.into_iter().enumerate() {
            match needs_another {
                Some(true) => self.0.start_waiting(lane),
                Some(false) => self.0.has_work[lane].notify_one(),
                None => {}
            }
        }
    }

    fn cancel(&self, id: u64) -> Option<FileRequest> {
        let mut state = self.0.lock();
        if let Some(request) = state.queue.take(id) {
            return Some(request);
        }
        if let Some(request) = state.lanes.iter_mut().find_map(|lane| lane.take(id)) {
            return Some(request);
        }
        if let Some((address, aboard)) = state.aboard.iter_mut().find(|(_, it)| it.id == id) {
            aboard.is_cancelled = true;
            aboard.cancel(*address);
        } else if state.lanes.iter_mut().any(|lane| lane.cancel(id)) {
            // In case that the kernel has not been there yet.
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
        for (address, aboard) in &mut state.aboard {
            aboard.is_cancelled = true;
            aboard.cancel(*address);
        }
        let queues = state.lanes.each_mut().map(WaitingJobs::end);
        self.0.dismiss(&state);
        drop(state);
        self.0.port.post(LOOK);
        self.0.has_work.iter().for_each(Condvar::notify_all);
        // No thread has begun with these, and their port is gone.
        drop((queue, queues));
    }
}

/// How far a thread gets with a request at once.
enum TransferStep {
    /// The kernel has it. Its packet comes, or has been taken by another thread already.
    Flies,
    Done(Box<FileTransfer>, Result<usize, SystemCode>),
}

/// What is asked of the kernel next.
pub(super) struct OverlappedCall {
    pub(super) file: HANDLE,
    position: i64,
    /// Of the first part that is left.
    start: *mut u8,
    len: u32,
}

impl OverlappedCall {
    /// `None`: nothing is left of the request.
    pub(super) fn of(request: &FileRequest) -> Result<Option<Self>, SystemCode> {
        let file = super::handle_of(request.target.file.descriptor());
        if matches!(request.kind, FileKind::SyncData | FileKind::SyncAll) {
            return Ok(Some(Self { file, position: 0, start: ptr::null_mut(), len: 0 }));
        }
        let position = match i64::try_from(request.position()) {
            _ if request.kind == FileKind::Append => END,
            _ if !request.target.file.has_positions() => 0,
            Ok(position) => position,
            // Some of these have a meaning of their own.
            Err(_) => return Err(ERROR_INVALID_PARAMETER),
        };
        let parts = request.buffer.as_ref().map_or(&[][..], |io_buffer| io_buffer.parts());
        let Some(part) = parts.first() else { return Ok(None) };
        let len = u32::try_from(part.len.min(LONGEST)).unwrap_or(0);
        Ok(Some(Self { file, position, start: part.start.cast(), len }))
    }

    /// Asks for it, and returns a status. If that is an error, the kernel keeps nothing.
    ///
    /// # Safety
    ///
    /// Unless the call is refused, the kernel reads the part of the buffer, or writes to it, and writes a status to `block`,
    /// until it tells that it is done: by that the call returns, by the event, or by a packet that brings the context. Until
    /// then both are valid, and nothing else uses them. The file is open, and is associated with a completion port if
    /// there is a context.
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
            // SAFETY: NtReadFile writes at most as many bytes to the buffer as it is told, and a status at the fifth
            // argument, until it tells that it is done. It reads the position at once.
            // - the caller promises that the two are valid so long; a request that reads has lent its room.
            unsafe { NtReadFile(file, event, None, context, block, start, len, at, ptr::null()) }
        } else {
            // SAFETY: NtWriteFile reads as many bytes of the buffer as it is told; all else as for NtReadFile.
            // - the same; a request that writes has lent its bytes, which are not written to until the request has returned.
            unsafe { NtWriteFile(file, event, None, context, block, start, len, at, ptr::null()) }
        }
    }
}

impl SharedService {
    pub(super) fn lock(&self) -> MutexGuard<'_, ServiceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the threads end, if there is nothing left to do.
    pub(super) fn dismiss(&self, state: &ServiceState) {
        if state.is_done() {
            (0..state.threads).for_each(|_| self.port.post(LOOK));
        }
    }

    /// What each thread does that waits at the completion port.
    fn serve(&self) {
        let mut pause = None;
        let mut state = self.lock();
        // A thread that ends with an operation under way would take it along.
        while !state.is_done() {
            let patience = state.remind(&mut pause);
            state.idle += 1;
            drop(state);
            let mut room = [MaybeUninit::uninit()];
            // Operations under way end by this port alone, so the thread continues.
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
            // SAFETY: `assume_init` demands a value.
            // - `SystemPort::take` says that it has written one.
            let packet = CompletionPacket::from(unsafe { entry.assume_init() });
            match packet {
                CompletionPacket::Posted(_) => {
                    let Some(request) = state.queue.pop() else { continue };
                    let flight =
                        Box::new(FileTransfer { overlapped: OVERLAPPED::default(), request });
                    let aboard = PendingJob {
                        id: flight.request.id,
                        file: super::handle_of(flight.request.target.file.descriptor()),
                        serial: 0,
                        flies: false,
                        is_cancelled: false,
                    };
                    state.aboard.insert(address_of(&flight), aboard);
                    drop(state);
                    self.go_on(flight);
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

    /// The flight whose end a packet with this address tells. `None`: Wine tells of some calls that it has refused, and the
    /// memory may be that of another flight by now, or the thread that has made the call has not gone on yet.
    fn landed(&self, overlapped: *mut OVERLAPPED) -> Option<Box<FileTransfer>> {
        let mut state = self.lock();
        let aboard = state.aboard.get_mut(&overlapped.addr()).filter(|aboard| aboard.flies)?;
        // SAFETY: `&raw const` of a field demands a pointer within an object.
        // - the address is that of a flight that flies, as was seen just now: of the first field of a box's memory, which
        //   nobody frees before that is taken back, by the lock that is held here.
        let status = unsafe { &raw const (*overlapped).Internal };
        // SAFETY: reading demands a valid place; what the kernel may write meanwhile is read as a whole word.
        // - as above.
        if unsafe { status.read_volatile() } == STATUS_PENDING.cast_unsigned() as usize {
            // A packet that is this flight's has a status. Only of threads that end Wine loses it, and none of these does.
            return None;
        }
        aboard.flies = false;
        // SAFETY: `from_raw` demands a pointer of `into_raw` that nothing else uses.
        // - `SharedService::begin` has made it so, of the first field of a `FileTransfer`, with the provenance of the whole;
        // - the kernel has written a status, which is the last that it does with the memory; `begin` does not touch it after
        //   the call by which the kernel got it, unless it takes back that it flies, which this thread alone has done now.
        Some(unsafe { Box::from_raw(overlapped.cast::<FileTransfer>()) })
    }

    /// Takes a packet that brings this address, and goes on with the request whose call it ends, if it ends one.
    pub(super) fn take_packet(&self, overlapped: *mut OVERLAPPED) {
        let Some(flight) = self.landed(overlapped) else { return };
        let result = flight.result();
        if let Some(flight) = self.note(flight, result) {
            self.go_on(flight);
        }
    }

    /// Does what is left of a request, as far as it goes without the kernel's packet.
    fn go_on(&self, mut flight: Box<FileTransfer>) {
        while let TransferStep::Done(back, result) = self.begin(flight) {
            match self.note(back, result) {
                Some(back) => flight = back,
                None => return,
            }
        }
    }

    /// Asks the kernel for the next part of a request.
    fn begin(&self, mut flight: Box<FileTransfer>) -> TransferStep {
        let what = flight.request.kind;
        let call = match OverlappedCall::of(&flight.request) {
            Ok(Some(call)) => call,
            Ok(None) => return TransferStep::Done(flight, Ok(0)),
            Err(code) => return TransferStep::Done(flight, Err(code)),
        };
        let address = address_of(&flight);
        flight.overlapped = OVERLAPPED {
            Internal: STATUS_PENDING.cast_unsigned() as usize,
            ..OVERLAPPED::default()
        };
        let serial = self.take_off(address);
        let flight = Box::into_raw(flight);
        // SAFETY: `perform` demands that the call's memory, and the status, stay valid and are not shared until a packet
        // brings the context, or the call is refused; and that the file is associated with a completion port. A `FileTransfer`
        // begins with an OVERLAPPED, and that with a status.
        // - valid: the request has lent its buffer, which stays where it is and is nobody else's until the request has returned; the
        //   flight's memory is freed by nothing but a packet when there is a status, or a refusal;
        // - not shared: no reference to the memory exists until then;
        // - the flight has a share of the file, which is associated with `self.port`, since no thread waits for it.
        let status =
            unsafe { (self.perform)(&call, what, ptr::null_mut(), flight.cast(), flight.cast()) };
        if !is_error(status) {
            self.cancel_if_asked(address);
            return TransferStep::Flies;
        }
        if !self.take_back_flight(address, serial) {
            // Wine has told of it by a packet as well, and another thread has the request.
            return TransferStep::Flies;
        }
        // SAFETY: `from_raw` demands a pointer of `into_raw` that nothing else uses.
        // - it was made above; the call is over, and has kept nothing; that it flies was taken back by this thread alone.
        let flight = unsafe { Box::from_raw(flight) };
        TransferStep::Done(flight, Err(code_of(status)))
    }

    /// A request that was cancelled before the kernel had it.
    fn cancel_if_asked(&self, address: TransferAddress) {
        let state = self.lock();
        if let Some(aboard) = state.aboard.get(&address).filter(|aboard| aboard.is_cancelled) {
            aboard.cancel(address);
        }
    }

    /// A call is about to be made for the flight there. Its serial number.
    fn take_off(&self, address: TransferAddress) -> u64 {
        let mut state = self.lock();
        state.serials += 1;
        let serial = state.serials;
        if let Some(aboard) = state.aboard.get_mut(&address) {
            (aboard.serial, aboard.flies) = (serial, true);
        }
        serial
    }

    /// A call was refused. Whether the flight is that of the calling thread still: another one may have taken it, and yet
    /// another flight have the same memory.
    fn take_back_flight(&self, address: TransferAddress, serial: u64) -> bool {
        let mut state = self.lock();
        let aboard = state.aboard.get_mut(&address).filter(|aboard| aboard.serial == serial);
        aboard.is_some_and(|aboard| std::mem::take(&mut aboard.flies))
    }

    /// Notes what a call has come to. The request, if something is left of it.
    fn note(
        &self,
        mut flight: Box<FileTransfer>,
        result: Result<usize, SystemCode>,
    ) -> Option<Box<FileTransfer>> {
        let address = address_of(&flight);
        let mut state = self.lock();
        let is_cancelled = state.aboard.get(&address).is_some_and(|aboard| aboard.is_cancelled);
        if !conclude(&mut flight.request, result, is_cancelled) {
            return Some(flight);
        }
        state.aboard.remove(&address);
        self.dismiss(&state);
        drop(state);
        complete(flight.request);
        None
    }
}

/// Notes what a call for a request has come to, and whether the request was cancelled. Whether the request comes back.
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
        // The system has let go of it for a reason of its own. Once more.
        Err(ERROR_OPERATION_ABORTED) => false,
        result => note(request, result) == ControlFlow::Break(()),
    };
    // What was done so far is told, and that it was cancelled, if something is left.
    request.is_cancelled |= is_cancelled && !is_over;
    is_over || is_cancelled
}

/// Notes what a call for a request has come to. `Break`: the request has come to its end.
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
                    // It would be so again, for ever.
                    request.fault = Some(fault_of_file(ERROR_WRITE_FAULT));
                    true
                }
                FileKind::Write | FileKind::Append => request.is_complete(),
                FileKind::SyncData | FileKind::SyncAll => true,
            };
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        // The end of the file, or of what was written to a pipe.
        Err(ERROR_HANDLE_EOF | ERROR_BROKEN_PIPE) if is_read => ControlFlow::Break(()),
        // Past the cache a read goes on at multiples of a block only, and the file has ended within one.
        Err(ERROR_INVALID_PARAMETER) if request.has_come_to_the_end() => ControlFlow::Break(()),
        Err(code) => {
            request.fault = Some(fault_of_file(code));
            ControlFlow::Break(())
        }
    }
}

/// What an operation on a file has failed with. Its handle is open, whatever the code says.
fn fault_of_file(code: SystemCode) -> Fault {
    match system_fault(code) {
        fault @ Fault { kind: ErrorKind::OutOfMemory, .. } => fault,
        fault => Fault { kind: ErrorKind::Other, ..fault },
    }
}
