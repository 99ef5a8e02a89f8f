//! Threads that wait at a completion port of the kernel, for jobs and for what the kernel has done of them.
//!
//! A job of an overlapped file is handed to the kernel by whichever thread takes it, part after part, and any of them
//! goes on with it when the kernel's packet comes. Of another file, and when it is to be flushed, its thread waits. The
//! threads and the completion port belong to the service, which outlives its port until the last job has come back: the
//! kernel writes to a buffer, or reads it, until its packet has come.

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::ErrorKind;
use crate::state::facts::Fault;
use crate::sys::files::{Job, What};
use crate::sys::windows::options::{last_error, system_fault};
use crate::sys::windows::port::{Packet, Port};
use crate::sys::windows::request::is_error;
use windows_sys::Wdk::Storage::FileSystem::{NtReadFile, NtWriteFile};
use windows_sys::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_HANDLE_EOF, ERROR_INVALID_PARAMETER, ERROR_NOT_ENOUGH_MEMORY,
    ERROR_OPERATION_ABORTED, ERROR_WRITE_FAULT, HANDLE, RtlNtStatusToDosError, STATUS_PENDING,
};
use windows_sys::Win32::Storage::FileSystem::FlushFileBuffers;
use windows_sys::Win32::System::IO::{CancelIoEx, IO_STATUS_BLOCK, OVERLAPPED};
use windows_sys::Win32::System::Threading::{CreateEventW, INFINITE, WaitForSingleObject};

/// More than a disk does at once, and few enough to be no burden. A thread that hangs is one of them.
const MOST: usize = 8;

/// Of what is posted: there may be a job, or the end.
const LOOK: usize = 2;

/// The smallest unit that a read past the cache is aligned to.
const BLOCK: usize = 512;

/// The most bytes that one call is given.
const LONGEST: usize = 1 << 30;

/// Behind the last byte of a file, as a position to write to.
const END: i64 = -1;

/// A code of the system.
type Code = u32;

/// A job, and the memory in which the kernel notes what it has come to. While it flies, all of that is the kernel's.
#[repr(C)]
struct Flight {
    /// First, since its address is what a packet brings.
    overlapped: OVERLAPPED,
    job: Job,
}

impl Flight {
    /// What the kernel says that a read or write has come to.
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a status")]
    fn result(&self) -> Result<usize, Code> {
        let status = self.overlapped.Internal as i32;
        if is_error(status) { Err(code_of(status)) } else { Ok(self.overlapped.InternalHigh) }
    }
}

fn code_of(status: i32) -> Code {
    // SAFETY: RtlNtStatusToDosError demands nothing.
    unsafe { RtlNtStatusToDosError(status) }
}

/// Where a [`Flight`] is. It only tells it from others.
type Address = usize;

fn address_of(flight: &Flight) -> Address {
    ptr::from_ref(flight).addr()
}

/// A job that a thread has begun with, until it comes back.
struct Aboard {
    name: u64,
    /// Of the job's file.
    file: HANDLE,
    /// Tells the last call for it from one for a later job that has the same memory.
    serial: u64,
    /// The kernel has it, or is just being asked to take it. Whoever takes this back makes the box of it again.
    flies: bool,
    /// It was asked for.
    is_called_off: bool,
}

// SAFETY: `Send` demands that another thread may use the value.
// - `file` is passed to CancelIoEx, which any thread may call.
unsafe impl Send for Aboard {}

impl Aboard {
    /// Has the kernel end what it has begun with the memory at this address, if it has.
    fn cancel(&self, address: Address) {
        // SAFETY: CancelIoEx demands an open file. It looks for a request that was made with this address, and does not
        // touch what lies there.
        // - open: the job has a share of it, and what is aboard is taken out, by the same lock that is held here, before
        //   its job is given back.
        unsafe { CancelIoEx(self.file, ptr::without_provenance(address)) };
    }
}

#[derive(Default)]
struct State {
    /// Not begun, oldest first.
    queue: VecDeque<Job>,
    aboard: HashMap<Address, Aboard>,
    serials: u64,
    threads: usize,
    /// Those that wait at the completion port.
    idle: usize,
    /// The port is gone.
    is_over: bool,
}

struct Shared {
    port: Port,
    state: Mutex<State>,
    #[cfg(test)]
    refusals: Mutex<Option<Refusal>>,
}

/// How the next call that is refused is told of by a packet as well, which another thread takes before the one that has made
/// the call goes on: with a status or without.
#[cfg(test)]
pub(super) type Refusal = Option<i32>;

/// A port's share of the service. The threads have theirs, and so it lasts until the last operation has returned.
pub(super) struct Service(Arc<Shared>);

impl Service {
    /// A service without a thread.
    pub(super) fn new(port: Port) -> Self {
        Self(Arc::new(Shared {
            port,
            state: Mutex::default(),
            #[cfg(test)]
            refusals: Mutex::default(),
        }))
    }

    /// What overlapped files are associated with.
    pub(super) fn port(&self) -> &Port {
        &self.0.port
    }

    /// Makes sure that there is a thread.
    pub(super) fn prepare(&self) -> Result<(), Fault> {
        let mut state = self.0.lock();
        if state.threads > 0 {
            return Ok(());
        }
        state.threads = 1;
        drop(state);
        self.start()
    }

    #[cfg(test)]
    pub(super) fn tell_of_next_refusal(&self, how: Refusal) {
        *self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner) = Some(how);
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

    pub(super) fn put(&self, job: Job) {
        self.0.lock().queue.push_back(job);
    }

    /// Has a thread begin with what was put: an idle one, or else one more.
    pub(super) fn go(&self) {
        let mut state = self.0.lock();
        let needs_another = state.queue.len() > state.idle && state.threads < MOST;
        state.threads += usize::from(needs_another);
        drop(state);
        if needs_another {
            // If there can be no more, the others do it.
            let _ = self.start();
        }
        self.0.port.post(LOOK);
    }

    /// The job of this name, if no thread has begun with it. Otherwise the kernel is asked to let go of it.
    pub(super) fn take_back(&self, name: u64) -> Option<Job> {
        let mut state = self.0.lock();
        if let Some(place) = state.queue.iter().position(|job| job.name == name) {
            return state.queue.remove(place);
        }
        if let Some((address, aboard)) = state.aboard.iter_mut().find(|(_, it)| it.name == name) {
            aboard.is_called_off = true;
            aboard.cancel(*address);
        }
        None
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_over = true;
        let queue = std::mem::take(&mut state.queue);
        for (address, aboard) in &mut state.aboard {
            aboard.is_called_off = true;
            aboard.cancel(*address);
        }
        self.0.dismiss(&state);
        drop(state);
        // No thread has begun with these, and their port is gone.
        drop(queue);
    }
}

/// How far a thread gets with a job at once.
enum Step {
    /// The kernel has it. Its packet comes, or has been taken by another thread already.
    Flies,
    Done(Box<Flight>, Result<usize, Code>),
}

/// What a thread waits for an operation on, made when it first does.
struct Signal(Option<OwnedHandle>);

impl Signal {
    fn handle(&mut self) -> Result<HANDLE, Code> {
        if self.0.is_none() {
            // SAFETY: CreateEventW reads attributes and a name at its two pointers.
            // - null stands for none of either. The event is reset by the operation that it is given to.
            let made = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
            if made.is_null() {
                return Err(last_error());
            }
            // SAFETY: `from_raw_handle` demands an open handle that nothing else owns.
            // - the call above returned it just now.
            self.0 = Some(unsafe { OwnedHandle::from_raw_handle(made) });
        }
        self.0.as_ref().map(OwnedHandle::as_raw_handle).ok_or(ERROR_NOT_ENOUGH_MEMORY)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the threads end, if there is nothing left to do.
    fn dismiss(&self, state: &State) {
        if state.is_over && state.aboard.is_empty() {
            (0..state.threads).for_each(|_| self.port.post(LOOK));
        }
    }

    /// What each thread does.
    fn serve(&self) {
        let mut signal = Signal(None);
        let mut state = self.lock();
        // A thread that ends with an operation under way would take it along.
        while !(state.is_over && state.aboard.is_empty()) {
            state.idle += 1;
            drop(state);
            let mut room = [MaybeUninit::uninit()];
            let count = self.port.take(&mut room, INFINITE);
            state = self.lock();
            state.idle -= 1;
            if count == 0 {
                continue;
            }
            let [entry] = room;
            // SAFETY: `assume_init` demands a value.
            // - `Port::take` says that it has written one.
            let packet = Packet::from(unsafe { entry.assume_init() });
            match packet {
                Packet::Posted(_) => {
                    let Some(job) = state.queue.pop_front() else { continue };
                    let flight = Box::new(Flight { overlapped: OVERLAPPED::default(), job });
                    let aboard = Aboard {
                        name: flight.job.name,
                        file: super::handle_of(flight.job.file.descriptor()),
                        serial: 0,
                        flies: false,
                        is_called_off: false,
                    };
                    state.aboard.insert(address_of(&flight), aboard);
                    drop(state);
                    self.go_on(flight, &mut signal);
                }
                Packet::Ended(overlapped, _) => {
                    drop(state);
                    if let Some(flight) = self.landed(overlapped) {
                        let result = flight.result();
                        self.note_and_go_on(flight, result, &mut signal);
                    }
                }
            }
            state = self.lock();
        }
        state.threads -= 1;
    }

    /// The flight whose end a packet with this address tells. `None`: Wine tells of some calls that it has refused, and the
    /// memory may be that of another flight by now, or the thread that has made the call has not gone on yet.
    fn landed(&self, overlapped: *mut OVERLAPPED) -> Option<Box<Flight>> {
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
        // - `Shared::begin` has made it so, of the first field of a `Flight`, with the provenance of the whole;
        // - the kernel has written a status, which is the last that it does with the memory; `begin` does not touch it after
        //   the call by which the kernel got it, unless it takes back that it flies, which this thread alone has done now.
        Some(unsafe { Box::from_raw(overlapped.cast::<Flight>()) })
    }

    /// Does with a call that was refused what [`Refusal`] says.
    #[cfg(test)]
    fn tell_of_refusal(&self, flight: *mut Flight) {
        let refusal = self.refusals.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(status) = refusal else { return };
        let overlapped = flight.cast::<OVERLAPPED>();
        if let Some(status) = status {
            // SAFETY: writing through a pointer demands a valid place that nothing else uses.
            // - the call for this flight was refused, and no thread has taken it back.
            unsafe { (*overlapped).Internal = status.cast_unsigned() as usize };
        }
        if let Some(flight) = self.landed(overlapped) {
            let result = flight.result();
            self.note_and_go_on(flight, result, &mut Signal(None));
        }
    }

    fn note_and_go_on(
        &self,
        flight: Box<Flight>,
        result: Result<usize, Code>,
        signal: &mut Signal,
    ) {
        if let Some(flight) = self.note(flight, result) {
            self.go_on(flight, signal);
        }
    }

    /// Does what is left of a job, as far as it goes without the kernel's packet.
    fn go_on(&self, mut flight: Box<Flight>, signal: &mut Signal) {
        while let Step::Done(back, result) = self.begin(flight, signal) {
            match self.note(back, result) {
                Some(back) => flight = back,
                None => return,
            }
        }
    }

    /// Asks the kernel for the next part of a job.
    fn begin(&self, mut flight: Box<Flight>, signal: &mut Signal) -> Step {
        let job = &flight.job;
        let file = super::handle_of(job.file.descriptor());
        let what = job.what;
        if matches!(what, What::SyncData | What::SyncAll) {
            // SAFETY: FlushFileBuffers demands an open file.
            // - the job has a share of it.
            let done = unsafe { FlushFileBuffers(file) };
            let result = if done == 0 { Err(last_error()) } else { Ok(0) };
            return Step::Done(flight, result);
        }
        let position = match i64::try_from(job.position()) {
            _ if what == What::Append => END,
            _ if !job.file.has_positions() => 0,
            Ok(position) => position,
            // Some of these have a meaning of their own.
            Err(_) => return Step::Done(flight, Err(ERROR_INVALID_PARAMETER)),
        };
        let parts = job.loan.as_ref().map_or(&[][..], |loan| loan.parts());
        let Some(part) = parts.first().copied() else { return Step::Done(flight, Ok(0)) };
        let len = u32::try_from(part.len.min(LONGEST)).unwrap_or(0);
        let waits = job.file.waits();
        let address = address_of(&flight);
        let event = match waits.then(|| signal.handle()).transpose() {
            Ok(event) => event.unwrap_or(ptr::null_mut()),
            Err(code) => return Step::Done(flight, Err(code)),
        };
        flight.overlapped = OVERLAPPED {
            Internal: STATUS_PENDING.cast_unsigned() as usize,
            ..OVERLAPPED::default()
        };
        let serial = if waits { 0 } else { self.take_off(address) };
        let flight = Box::into_raw(flight);
        let block = flight.cast::<IO_STATUS_BLOCK>();
        // Without one no packet comes.
        let context = if waits { ptr::null_mut() } else { flight.cast() };
        let (at, start) = (&raw const position, part.start);
        // SAFETY: NtReadFile writes at most as many bytes to the buffer as it is told, and a status at the fifth argument,
        // until it tells that it is done: by a packet that brings the fourth, or by the event. It reads the position at
        // once. A `Flight` begins with an OVERLAPPED, and that with such a status.
        // - valid: a job that reads has lent its room, which stays where it is and is nobody else's until the job has
        //   returned; the flight's memory is freed by nothing but a packet when there is a status, the event below, or a refusal;
        // - not shared: no reference to the memory exists until then;
        // - the file is open: the flight has a share of it; it is associated with `self.port` if no event is given.
        let read = || unsafe {
            NtReadFile(file, event, None, context, block, start.cast(), len, at, ptr::null())
        };
        // SAFETY: NtWriteFile reads as many bytes of the buffer as it is told; all else as for NtReadFile.
        // - valid: a job that writes has lent its bytes, which are not written to until the job has returned.
        let write = || unsafe {
            NtWriteFile(file, event, None, context, block, start.cast(), len, at, ptr::null())
        };
        let mut status = if what == What::Read { read() } else { write() };
        if !waits && !is_error(status) {
            self.cancel_if_called_off(address);
            return Step::Flies;
        }
        if waits && status == STATUS_PENDING {
            self.cancel_if_called_off(address);
            while status == STATUS_PENDING {
                // SAFETY: WaitForSingleObject demands an open handle.
                // - `signal` owns it.
                unsafe { WaitForSingleObject(event, INFINITE) };
                // SAFETY: reading demands that the place is valid, and is not written to meanwhile.
                // - valid: the flight was boxed above, and nothing has freed it, since it has no packet; it begins with the
                //   status, in a word;
                // - not written to: the kernel writes the status before it signals. Should the wait have failed, a word
                //   is read that is whole at any time.
                let now = unsafe { block.cast::<usize>().read_volatile() };
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_possible_wrap,
                    reason = "a status in a wider field"
                )]
                {
                    status = now as i32;
                }
            }
            // SAFETY: `from_raw` demands a pointer of `into_raw` that nothing else uses.
            // - it was made above, and the kernel is done with it, as its status says.
            let flight = unsafe { Box::from_raw(flight) };
            let result = flight.result();
            return Step::Done(flight, result);
        }
        if !waits {
            #[cfg(test)]
            self.tell_of_refusal(flight);
            if !self.take_back_flight(address, serial) {
                // Wine has told of it by a packet as well, and another thread has the job.
                return Step::Flies;
            }
        }
        // SAFETY: as above: the call is over, and has kept nothing; that it flies was taken back by this thread alone.
        let flight = unsafe { Box::from_raw(flight) };
        let result = if is_error(status) { Err(code_of(status)) } else { flight.result() };
        Step::Done(flight, result)
    }

    /// A job that was called off before the kernel had it.
    fn cancel_if_called_off(&self, address: Address) {
        let state = self.lock();
        if let Some(aboard) = state.aboard.get(&address).filter(|aboard| aboard.is_called_off) {
            aboard.cancel(address);
        }
    }

    /// A call is about to be made for the flight there. Its serial number.
    fn take_off(&self, address: Address) -> u64 {
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
    fn take_back_flight(&self, address: Address, serial: u64) -> bool {
        let mut state = self.lock();
        let aboard = state.aboard.get_mut(&address).filter(|aboard| aboard.serial == serial);
        aboard.is_some_and(|aboard| std::mem::take(&mut aboard.flies))
    }

    /// Notes what a call has come to. The job, if something is left of it.
    fn note(&self, mut flight: Box<Flight>, result: Result<usize, Code>) -> Option<Box<Flight>> {
        let address = address_of(&flight);
        let job = &mut flight.job;
        let mut state = self.lock();
        let is_called_off = state.aboard.get(&address).is_some_and(|aboard| aboard.is_called_off);
        let is_over = match result {
            Err(ERROR_OPERATION_ABORTED) if is_called_off => {
                job.is_called_off = true;
                true
            }
            // The system has let go of it for a reason of its own. Once more.
            Err(ERROR_OPERATION_ABORTED) => false,
            result => note(job, result) == ControlFlow::Break(()),
        };
        if !is_over && !is_called_off {
            return Some(flight);
        }
        // What was done so far is told, and that it was called off, if something is left.
        job.is_called_off |= !is_over;
        state.aboard.remove(&address);
        self.dismiss(&state);
        drop(state);
        let job = flight.job;
        // A buffer may be dropped by that, whose code may panic: the thread goes on.
        let _ = catch_unwind(AssertUnwindSafe(|| job.give_back()));
        None
    }
}

/// Notes what a call for a job has come to. `Break`: the job has come to its end.
fn note(job: &mut Job, result: Result<usize, Code>) -> ControlFlow<()> {
    let is_read = job.what == What::Read;
    match result {
        Ok(count) => {
            job.advance(count);
            let is_over = match job.what {
                What::Read => count == 0 || job.is_complete() || !job.file.has_positions(),
                What::Write | What::Append if count == 0 && !job.is_complete() => {
                    // It would be so again, for ever.
                    job.fault = Some(fault_of_file(ERROR_WRITE_FAULT));
                    true
                }
                What::Write | What::Append => job.is_complete(),
                What::SyncData | What::SyncAll => true,
            };
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        // The end of the file, or of what was written to a pipe.
        Err(ERROR_HANDLE_EOF | ERROR_BROKEN_PIPE) if is_read => ControlFlow::Break(()),
        // Past the cache a read goes on at multiples of a block only. That the last one was none was the end of the
        // file, which has grown since.
        Err(ERROR_INVALID_PARAMETER) if is_read && !job.done.is_multiple_of(BLOCK) => {
            ControlFlow::Break(())
        }
        Err(code) => {
            job.fault = Some(fault_of_file(code));
            ControlFlow::Break(())
        }
    }
}

/// What an operation on a file has failed with. Its handle is open, whatever the code says.
fn fault_of_file(code: Code) -> Fault {
    match system_fault(code) {
        fault @ Fault { kind: ErrorKind::OutOfMemory, .. } => fault,
        fault => Fault { kind: ErrorKind::Other, ..fault },
    }
}
