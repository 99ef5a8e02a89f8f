//! Threads that wait for one request after the other: where no packet of the kernel comes, since the handle is the program's own
//! or is not overlapped, and where something is put on a disk.
//!
//! A thread may wait in the call itself, and be asked to leave it when it has not quite entered: the kernel finds nothing
//! then. So what was cancelled is asked for again, by a thread that waits at the completion port of the [`Service`], until the
//! call has returned.
//!
//! [`Service`]: super::service::Service

use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use windows_sys::Win32::Foundation::{ERROR_OPERATION_ABORTED, HANDLE, STATUS_PENDING};
use windows_sys::Win32::Storage::FileSystem::FlushFileBuffers;
use windows_sys::Win32::System::IO::{
    CancelIoEx, CancelSynchronousIo, IO_STATUS_BLOCK, IO_STATUS_BLOCK_0,
};
use windows_sys::Win32::System::Threading::{
    CreateEventW, GetCurrentThread, INFINITE, WaitForSingleObject,
};

use super::service::{OverlappedCall, SharedService, SystemCode, code_of, conclude};
use crate::backend::files::FileKind;
use crate::backend::request::FileRequest;
use crate::sys::portable::request_queue::RequestQueue;
use crate::sys::windows::afd::driver::is_error;
use crate::sys::windows::options::last_error;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;

/// How many threads each [`WaitingJobs`] has at most. A thread that hangs is one of them.
const MOST: usize = 8;

/// How long a thread stays that has nothing to do.
const REST: Duration = Duration::from_secs(10);

/// One is for requests that end by themselves, and one for those that may not, so that these hold up none of the others.
pub(super) const LANES: usize = 2;

/// By which lane a request goes, if a thread has to wait for it.
pub(super) fn lane_of(request: &FileRequest) -> Option<usize> {
    let waits = request.target.file.waits()
        || matches!(request.kind, FileKind::SyncData | FileKind::SyncAll);
    waits.then(|| usize::from(request.target.file.ends_by_itself()))
}

/// Requests, and the threads that wait for them.
#[derive(Default)]
pub(super) struct WaitingJobs {
    /// Not begun, oldest first.
    queue: RequestQueue,
    pub(super) at_work: Vec<Work>,
    threads: usize,
    /// Those that have nothing to do.
    idle: usize,
}

/// A request that a thread has begun with, until it comes back.
pub(super) struct Work {
    id: u64,
    call: BlockingCall,
    /// It was asked for.
    is_cancelled: bool,
}

/// What a thread does of its request.
enum BlockingCall {
    /// Nothing that could be ended.
    None,
    /// This thread is in a call, or about to enter one, or has just left it.
    Waits(HANDLE),
    /// The kernel has begun with what was asked for of this file with a status at this address.
    Flies(HANDLE, usize),
}

// SAFETY: `Send` demands that another thread may use the value.
// - the handles are passed to CancelSynchronousIo and CancelIoEx, which any thread may call.
unsafe impl Send for BlockingCall {}

impl Work {
    /// Has the kernel end what it has begun, if it has.
    fn cancel(&self) {
        match self.call {
            BlockingCall::None => {}
            BlockingCall::Waits(thread) => {
                // SAFETY: CancelSynchronousIo demands an open handle of a thread.
                // - open: the thread owns it, and takes this back, by the same lock that is held here, before it ends or goes
                //   on to anything else that could be ended.
                unsafe { CancelSynchronousIo(thread) };
            }
            BlockingCall::Flies(file, address) => {
                // SAFETY: CancelIoEx demands an open file. It looks for a request that was made with this address, and does
                // not touch what lies there.
                // - open: the request has a share of it, and this is taken back, as above, before the request is given back.
                unsafe { CancelIoEx(file, ptr::without_provenance(address)) };
            }
        }
    }
}

impl WaitingJobs {
    pub(super) fn push(&mut self, request: FileRequest) {
        self.queue.push(request);
    }

    pub(super) fn is_at_work(&self) -> bool {
        !self.at_work.is_empty()
    }

    /// Whether there is something to be begun with, and whether that takes one more thread, which is counted.
    pub(super) fn hire(&mut self) -> Option<bool> {
        if self.queue.is_empty() {
            return None;
        }
        let needs_another = self.queue.len() > self.idle && self.threads < MOST;
        self.threads += usize::from(needs_another);
        Some(needs_another)
    }

    pub(super) fn take(&mut self, id: u64) -> Option<FileRequest> {
        self.queue.take(id)
    }

    /// The port is gone. What no thread has begun with.
    pub(super) fn end(&mut self) -> Vec<FileRequest> {
        for work in &mut self.at_work {
            work.is_cancelled = true;
            work.cancel();
        }
        self.queue.take_all()
    }

    /// Asks the kernel to let go of a request. Whether that is here.
    pub(super) fn cancel(&mut self, id: u64) -> bool {
        let Some(work) = self.work(id) else { return false };
        work.is_cancelled = true;
        work.cancel();
        true
    }

    /// Asks the kernel once more for what was cancelled and may not have been there yet. Whether there is such a thing.
    pub(super) fn remind(&self) -> bool {
        let deaf = |work: &&Work| work.is_cancelled && matches!(work.call, BlockingCall::Waits(_));
        self.at_work.iter().filter(deaf).map(Work::cancel).count() > 0
    }

    fn work(&mut self, id: u64) -> Option<&mut Work> {
        self.at_work.iter_mut().find(|work| work.id == id)
    }
}

/// What a thread needs to wait, made when it first does.
#[derive(Default)]
struct Tools {
    thread: Option<OwnedHandle>,
    event: Option<OwnedHandle>,
}

impl Tools {
    /// A handle of this thread.
    fn thread(&mut self) -> Result<HANDLE, SystemCode> {
        if self.thread.is_none() {
            // SAFETY: GetCurrentThread demands nothing.
            let this = unsafe { GetCurrentThread() };
            self.thread = Some(super::duplicate(this)?);
        }
        Ok(self.thread.as_ref().map_or(ptr::null_mut(), OwnedHandle::as_raw_handle))
    }

    /// What an operation tells its end by, if the call for it does not wait.
    fn event(&mut self) -> Result<HANDLE, SystemCode> {
        if self.event.is_none() {
            // SAFETY: CreateEventW reads attributes and a name at its two pointers.
            // - null stands for none of either. The event is reset by the operation that it is given to.
            let made = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
            if made.is_null() {
                return Err(last_error());
            }
            // SAFETY: `from_raw_handle` demands an open handle that nothing else owns.
            // - the call above returned it just now.
            self.event = Some(unsafe { OwnedHandle::from_raw_handle(made) });
        }
        Ok(self.event.as_ref().map_or(ptr::null_mut(), OwnedHandle::as_raw_handle))
    }
}

impl SharedService {
    /// Starts a thread of a lane, which was counted. If there can be none, and there is no other, what was put fails.
    pub(super) fn start_waiting(self: &Arc<Self>, lane: usize) {
        let shared = Arc::clone(self);
        let builder = thread::Builder::new().name("port-files".to_owned());
        let Err(error) = builder.spawn(move || shared.wait(lane)) else { return };
        let mut state = self.lock();
        let it = &mut state.lanes[lane];
        it.threads -= 1;
        if it.threads > 0 {
            // The others do it, of which one may be idle.
            drop(state);
            self.has_work[lane].notify_one();
            return;
        }
        let queue = it.queue.take_all();
        drop(state);
        for mut request in queue {
            request.fault =
                Some(Fault { kind: ErrorKind::OutOfMemory, code: error.raw_os_error() });
            complete(request);
        }
    }

    /// What each thread of a lane does.
    fn wait(&self, lane: usize) {
        let mut tools = Tools::default();
        let mut state = self.lock();
        loop {
            if let Some(request) = state.lanes[lane].queue.pop() {
                let work = Work { id: request.id, call: BlockingCall::None, is_cancelled: false };
                state.lanes[lane].at_work.push(work);
                drop(state);
                self.wait_for(lane, request, &mut tools);
                state = self.lock();
                continue;
            }
            if state.is_over {
                break;
            }
            state.lanes[lane].idle += 1;
            let woken = self.has_work[lane].wait_timeout(state, REST);
            let (waited, time) = woken.unwrap_or_else(PoisonError::into_inner);
            state = waited;
            state.lanes[lane].idle -= 1;
            if time.timed_out() && state.lanes[lane].queue.is_empty() {
                break;
            }
        }
        state.lanes[lane].threads -= 1;
    }

    /// Does a request to its end, or until it is cancelled.
    fn wait_for(&self, lane: usize, mut request: FileRequest, tools: &mut Tools) {
        let mut is_over = false;
        while !is_over {
            let result = self.call(lane, &request, tools);
            let mut state = self.lock();
            let it = &mut state.lanes[lane];
            let place = it.at_work.iter().position(|work| work.id == request.id);
            let is_cancelled = place.is_some_and(|place| {
                it.at_work[place].call = BlockingCall::None;
                it.at_work[place].is_cancelled
            });
            is_over = conclude(&mut request, result, is_cancelled);
            if is_over {
                place.map(|place| it.at_work.swap_remove(place));
                self.dismiss(&state);
            }
        }
        complete(request);
    }

    /// Notes what the thread of a request does from now on. Whether the request was cancelled.
    fn turn(&self, lane: usize, id: u64, call: BlockingCall) -> bool {
        let mut state = self.lock();
        let Some(work) = state.lanes[lane].work(id) else { return false };
        work.call = call;
        let is_flying = matches!(work.call, BlockingCall::Flies(..));
        if work.is_cancelled && is_flying {
            work.cancel();
        }
        work.is_cancelled
    }

    /// Does what comes next of a request, and waits for it.
    fn call(
        &self,
        lane: usize,
        request: &FileRequest,
        tools: &mut Tools,
    ) -> Result<usize, SystemCode> {
        let Some(call) = OverlappedCall::of(request)? else { return Ok(0) };
        let (thread, event) = (tools.thread()?, tools.event()?);
        if self.turn(lane, request.id, BlockingCall::Waits(thread)) {
            return Err(ERROR_OPERATION_ABORTED);
        }
        if matches!(request.kind, FileKind::SyncData | FileKind::SyncAll) {
            // SAFETY: FlushFileBuffers demands an open file.
            // - the request has a share of it.
            let done = unsafe { FlushFileBuffers(call.file) };
            return if done == 0 { Err(last_error()) } else { Ok(0) };
        }
        let pending = IO_STATUS_BLOCK_0 { Status: STATUS_PENDING };
        let mut block = IO_STATUS_BLOCK { Anonymous: pending, Information: 0 };
        let block = &raw mut block;
        // SAFETY: `perform` demands that the call's memory, and the status, stay valid and are not shared until what was
        // asked for is done.
        // - the event, or the call's return, tells that, for which is waited below; `block` is a local, and used by no
        //   other name; the request has lent its buffer, which stays where it is and is nobody else's until the request has
        //   returned;
        // - no packet comes of what has no context.
        let mut status =
            unsafe { (self.perform)(&call, request.kind, event, ptr::null_mut(), block) };
        if is_error(status) {
            return Err(code_of(status));
        }
        if status == STATUS_PENDING {
            self.turn(lane, request.id, BlockingCall::Flies(call.file, block.addr()));
            while status == STATUS_PENDING {
                // SAFETY: WaitForSingleObject demands an open handle.
                // - `tools` owns it.
                unsafe { WaitForSingleObject(event, INFINITE) };
                // SAFETY: reading demands that the place is valid, and is not written to meanwhile.
                // - valid: it begins with the status;
                // - not written to: the kernel writes the status before it signals. Should the wait have failed, a word
                //   is read that is whole at any time.
                status = unsafe { block.cast::<i32>().read_volatile() };
            }
        }
        if is_error(status) {
            return Err(code_of(status));
        }
        // SAFETY: reading demands a valid place that is not written to meanwhile.
        // - the kernel is done with it, as its status says.
        Ok(unsafe { (*block).Information })
    }
}

/// Returns a request. A buffer may be dropped by that, whose code may panic: the thread goes on.
pub(super) fn complete(request: FileRequest) {
    let _ = catch_unwind(AssertUnwindSafe(|| request.complete()));
}
