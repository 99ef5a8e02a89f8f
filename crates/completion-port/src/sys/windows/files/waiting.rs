//! Threads that perform one request after the other and wait for it.
//!
//! They serve requests without a packet of the kernel, since the handle is the program's own or is
//! not overlapped, and flushes.
//!
//! A thread may wait inside the call. If the cancellation comes just before the thread enters the
//! call, the kernel finds nothing to cancel. A thread at the completion port of the [`Service`]
//! therefore repeats the cancellation until the call has returned.
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

/// The most threads of each [`WaitingJobs`], including hanging ones.
const MOST: usize = 8;

/// How long a thread without work stays.
const REST: Duration = Duration::from_secs(10);

/// The number of lists: one for requests that end by themselves, and one for those that may never
/// end, so that these do not delay the others.
pub(super) const POOLS: usize = 2;

/// Returns the list for a request, if a thread has to wait for it.
pub(super) fn pool_of(request: &FileRequest) -> Option<usize> {
    let waits = request.target.file.waits()
        || matches!(request.kind, FileKind::SyncData | FileKind::SyncAll);
    waits.then(|| usize::from(request.target.file.ends_by_itself()))
}

/// Requests, and the threads that wait for them.
#[derive(Default)]
pub(super) struct WaitingJobs {
    /// Requests that have not started, oldest first.
    queue: RequestQueue,
    pub(super) at_work: Vec<BegunRequest>,
    threads: usize,
    /// The threads without work.
    idle: usize,
}

/// A request that a thread has started, until it returns.
pub(super) struct BegunRequest {
    id: u64,
    call: BlockingCall,
    /// Its cancellation was requested.
    is_cancelled: bool,
}

/// What a thread does for its request.
enum BlockingCall {
    /// Nothing that could be cancelled.
    None,
    /// This thread is in a call, is about to enter one, or has just left it.
    Waits(HANDLE),
    /// The kernel has started an operation on this file, with its status at this address.
    Pending(HANDLE, usize),
}

// SAFETY: `Send` requires that another thread may use the value.
// - the handles are passed to CancelSynchronousIo and CancelIoEx, which any thread may call.
unsafe impl Send for BlockingCall {}

impl BegunRequest {
    /// Asks the kernel to cancel the operation, if it has one.
    fn cancel(&self) {
        match self.call {
            BlockingCall::None => {}
            BlockingCall::Waits(thread) => {
                // SAFETY: CancelSynchronousIo requires an open handle of a thread.
                // - open: the thread owns it, and clears this, under the lock that is held here,
                //   before it ends or starts anything else that could be cancelled.
                unsafe { CancelSynchronousIo(thread) };
            }
            BlockingCall::Pending(file, address) => {
                // SAFETY: CancelIoEx requires an open file. It looks for a request that was made
                // with this address, and does not access the memory there.
                // - open: the request has a reference to it, and this is cleared, as above, before
                //   the request completes.
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

    /// Returns whether a new thread is needed, and counts it. `None` if no request is queued.
    pub(super) fn begin(&mut self) -> Option<bool> {
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

    /// Ends the list when the port is gone. Returns the requests that no thread has started.
    pub(super) fn end(&mut self) -> Vec<FileRequest> {
        for work in &mut self.at_work {
            work.is_cancelled = true;
            work.cancel();
        }
        self.queue.take_all()
    }

    /// Asks the kernel to cancel a request. Returns whether the list has it.
    pub(super) fn cancel(&mut self, id: u64) -> bool {
        let Some(work) = self.work(id) else { return false };
        work.is_cancelled = true;
        work.cancel();
        true
    }

    /// Repeats the cancellation of calls that the kernel may not have had yet.
    ///
    /// Returns whether there are any.
    pub(super) fn remind(&self) -> bool {
        let deaf =
            |work: &&BegunRequest| work.is_cancelled && matches!(work.call, BlockingCall::Waits(_));
        self.at_work.iter().filter(deaf).map(BegunRequest::cancel).count() > 0
    }

    fn work(&mut self, id: u64) -> Option<&mut BegunRequest> {
        self.at_work.iter_mut().find(|work| work.id == id)
    }
}

/// The handles that a thread needs to wait, each made when first needed.
#[derive(Default)]
struct WaitTools {
    thread: Option<OwnedHandle>,
    event: Option<OwnedHandle>,
}

impl WaitTools {
    /// Returns a handle of this thread.
    fn thread(&mut self) -> Result<HANDLE, SystemCode> {
        if self.thread.is_none() {
            // SAFETY: GetCurrentThread has no requirements.
            let this = unsafe { GetCurrentThread() };
            self.thread = Some(super::duplicate(this)?);
        }
        Ok(self.thread.as_ref().map_or(ptr::null_mut(), OwnedHandle::as_raw_handle))
    }

    /// Returns the event that reports the end of an operation whose call does not wait.
    fn event(&mut self) -> Result<HANDLE, SystemCode> {
        if self.event.is_none() {
            // SAFETY: CreateEventW reads attributes and a name at its two pointers.
            // - null means none for both. The operation that gets the event resets it.
            let made = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
            if made.is_null() {
                return Err(last_error());
            }
            // SAFETY: `from_raw_handle` requires an open handle that nothing else owns.
            // - the call above has just returned it.
            self.event = Some(unsafe { OwnedHandle::from_raw_handle(made) });
        }
        Ok(self.event.as_ref().map_or(ptr::null_mut(), OwnedHandle::as_raw_handle))
    }
}

impl SharedService {
    /// Starts a thread of a list, which was already counted.
    ///
    /// If it cannot start and there is no other, the queued requests fail.
    pub(super) fn start_waiting(self: &Arc<Self>, pool: usize) {
        let shared = Arc::clone(self);
        let builder = thread::Builder::new().name("port-files".to_owned());
        let Err(error) = builder.spawn(move || shared.wait(pool)) else { return };
        let mut state = self.lock();
        let it = &mut state.pools[pool];
        it.threads -= 1;
        if it.threads > 0 {
            // The existing threads perform them; one of them may be idle.
            drop(state);
            self.has_work[pool].notify_one();
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

    /// Runs one thread of a list.
    fn wait(&self, pool: usize) {
        let mut tools = WaitTools::default();
        let mut state = self.lock();
        loop {
            if let Some(request) = state.pools[pool].queue.pop() {
                let work =
                    BegunRequest { id: request.id, call: BlockingCall::None, is_cancelled: false };
                state.pools[pool].at_work.push(work);
                drop(state);
                self.wait_for(pool, request, &mut tools);
                state = self.lock();
                continue;
            }
            if state.is_over {
                break;
            }
            state.pools[pool].idle += 1;
            let woken = self.has_work[pool].wait_timeout(state, REST);
            let (waited, time) = woken.unwrap_or_else(PoisonError::into_inner);
            state = waited;
            state.pools[pool].idle -= 1;
            if time.timed_out() && state.pools[pool].queue.is_empty() {
                break;
            }
        }
        state.pools[pool].threads -= 1;
    }

    /// Performs a request to its end, or until it is cancelled.
    fn wait_for(&self, pool: usize, mut request: FileRequest, tools: &mut WaitTools) {
        let mut is_over = false;
        while !is_over {
            let result = self.call(pool, &request, tools);
            let mut state = self.lock();
            let it = &mut state.pools[pool];
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

    /// Notes what the thread of a request does from now on.
    ///
    /// Returns whether the request was cancelled.
    fn turn(&self, pool: usize, id: u64, call: BlockingCall) -> bool {
        let mut state = self.lock();
        let Some(work) = state.pools[pool].work(id) else { return false };
        work.call = call;
        let is_flying = matches!(work.call, BlockingCall::Pending(..));
        if work.is_cancelled && is_flying {
            work.cancel();
        }
        work.is_cancelled
    }

    /// Makes the next call of a request, and waits for it.
    fn call(
        &self,
        pool: usize,
        request: &FileRequest,
        tools: &mut WaitTools,
    ) -> Result<usize, SystemCode> {
        let Some(call) = OverlappedCall::of(request)? else { return Ok(0) };
        let (thread, event) = (tools.thread()?, tools.event()?);
        if self.turn(pool, request.id, BlockingCall::Waits(thread)) {
            return Err(ERROR_OPERATION_ABORTED);
        }
        if matches!(request.kind, FileKind::SyncData | FileKind::SyncAll) {
            // SAFETY: FlushFileBuffers requires an open file.
            // - the request has a reference to it.
            let done = unsafe { FlushFileBuffers(call.file) };
            return if done == 0 { Err(last_error()) } else { Ok(0) };
        }
        let pending = IO_STATUS_BLOCK_0 { Status: STATUS_PENDING };
        let mut block = IO_STATUS_BLOCK { Anonymous: pending, Information: 0 };
        let block = &raw mut block;
        // SAFETY: `perform` requires that the call's memory and the status stay valid and are not
        // shared until the operation has finished.
        // - the event, or the call's return, reports that, and the code below waits for it; `block`
        //   is a local that is used under no other name; the request has lent its buffer, which
        //   does not move and which nothing else accesses until the request has returned;
        // - an operation without a context queues no packet.
        let mut status =
            unsafe { (self.perform)(&call, request.kind, event, ptr::null_mut(), block) };
        if is_error(status) {
            return Err(code_of(status));
        }
        if status == STATUS_PENDING {
            self.turn(pool, request.id, BlockingCall::Pending(call.file, block.addr()));
            while status == STATUS_PENDING {
                // SAFETY: WaitForSingleObject requires an open handle.
                // - `tools` owns it.
                unsafe { WaitForSingleObject(event, INFINITE) };
                // SAFETY: reading requires that the object is valid and not written to meanwhile.
                // - valid: it begins with the status;
                // - not written to: the kernel writes the status before it signals. If the wait has
                //   failed, the word that is read is whole at any time.
                status = unsafe { block.cast::<i32>().read_volatile() };
            }
        }
        if is_error(status) {
            return Err(code_of(status));
        }
        // SAFETY: reading requires a valid object that is not written to meanwhile.
        // - the kernel has finished with it, as its status says.
        Ok(unsafe { (*block).Information })
    }
}

/// Completes a request. It may drop a buffer, whose code may panic; the thread continues.
pub(super) fn complete(request: FileRequest) {
    let _ = catch_unwind(AssertUnwindSafe(|| request.complete()));
}
