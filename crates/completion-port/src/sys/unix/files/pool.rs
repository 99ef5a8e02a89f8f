//! A small pool of threads, each of which performs one operation at a time.
//!
//! Operations that may never end have separate threads, so they do not delay those that do.

use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Code, FileCall, block_signals, complete, fault, note};
use crate::backend::files::{FileKind, FileTarget};
use crate::backend::request::{FileRequest, Submit};
use crate::sys::portable::request_queue::RequestQueue;
use crate::sys::system::calls;
use crate::sys::unix::errors::{POLL, repeat, repeat_for};
use crate::sys::unix::threads;
use crate::types::error::Fault;

/// The most threads of each [`PoolQueue`], including hanging ones: more than a disk serves at a
/// time, and few enough to cost little.
const MOST: usize = 8;

/// How long a thread without work stays.
const REST: Duration = Duration::from_secs(10);

/// A port's reference to its pool. The threads have their own, so the pool lasts until the last
/// operation has returned.
pub(in crate::sys) struct Pool {
    disks: PoolQueue,
    others: PoolQueue,
}

/// Threads and the requests that they perform.
#[derive(Default)]
struct PoolQueue(Arc<SharedPool>);

#[derive(Default)]
struct SharedPool {
    state: Mutex<PoolState>,
    has_work: Condvar,
}

#[derive(Default)]
struct PoolState {
    /// Requests that have not started, oldest first.
    queue: RequestQueue,
    threads: usize,
    /// The threads without work.
    idle: usize,
    /// The port is gone.
    is_over: bool,
}

impl SharedPool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one thread of the pool.
    fn serve(&self) {
        block_signals();
        let mut state = self.lock();
        loop {
            if let Some(mut request) = state.queue.pop() {
                drop(state);
                perform(&mut request);
                complete(request);
                state = self.lock();
                continue;
            }
            if state.is_over {
                break;
            }
            state.idle += 1;
            let woken = self.has_work.wait_timeout(state, REST);
            let (waited, time) = woken.unwrap_or_else(PoisonError::into_inner);
            state = waited;
            state.idle -= 1;
            if time.timed_out() && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

impl Pool {
    /// Makes a pool without threads.
    pub(in crate::sys) fn new() -> Self {
        Self { disks: PoolQueue::default(), others: PoolQueue::default() }
    }
}

impl Submit<FileTarget> for Pool {
    fn prepare(&self) -> Result<(), Fault> {
        // The first request starts a thread.
        Ok(())
    }

    fn submit(&self, request: FileRequest) {
        let ends_by_itself = request.target.file.ends_by_itself();
        let lane = if ends_by_itself { &self.disks } else { &self.others };
        lane.0.lock().queue.push(request);
    }

    fn flush(&self) {
        self.disks.flush();
        self.others.flush();
    }

    /// A request that a thread has started completes as usual.
    fn cancel(&self, id: u64) -> Option<FileRequest> {
        self.disks.cancel(id).or_else(|| self.others.cancel(id))
    }
}

impl PoolQueue {
    /// Makes a thread start the queued requests: an idle thread, or a new one.
    fn flush(&self) {
        let mut state = self.0.lock();
        if state.queue.is_empty() {
            return;
        }
        if state.queue.len() <= state.idle || state.threads == MOST {
            drop(state);
            self.0.has_work.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.0);
        let Err(code) = threads::start(c"port-files", move || shared.serve()) else { return };
        let mut state = self.0.lock();
        state.threads -= 1;
        if state.threads > 0 {
            // The existing threads perform it; one of them may be idle.
            drop(state);
            self.0.has_work.notify_one();
            return;
        }
        let queue = state.queue.take_all();
        drop(state);
        for mut request in queue {
            request.fault = Some(fault(code));
            complete(request);
        }
    }

    fn cancel(&self, id: u64) -> Option<FileRequest> {
        self.0.lock().queue.take(id)
    }
}

impl Drop for PoolQueue {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_over = true;
        let queue = state.queue.take_all();
        drop(state);
        self.0.has_work.notify_all();
        // No thread has started these, and their port is gone.
        drop(queue);
    }
}

/// Performs a request to its end, however long that takes.
fn perform(request: &mut FileRequest) {
    loop {
        let done = FileCall::of(request).and_then(|call| match perform_call(&call) {
            // Repeats the call when the descriptor is ready.
            Err(libc::EAGAIN) if call.position < 0 => wait_for(&call).map(|()| None),
            result => result.map(Some),
        });
        let Some(result) = done.transpose() else { continue };
        if note(request, result) == ControlFlow::Break(()) {
            return;
        }
    }
}

/// Waits until a call would succeed on a non-blocking descriptor without positions.
///
/// The program has made it non-blocking.
fn wait_for(call: &FileCall<'_>) -> Result<(), Code> {
    let events = if call.what == FileKind::Read { libc::POLLIN } else { libc::POLLOUT };
    let mut one = libc::pollfd { fd: call.descriptor, events, revents: 0 };
    // SAFETY: poll(2) reads and writes as many elements at the pointer as its second argument says.
    // - valid for both: `one` is a local.
    repeat_for(&POLL, || unsafe { libc::poll(&raw mut one, 1, -1) as libc::ssize_t }).map(drop)
}

/// Makes one system call, which may block.
#[allow(clippy::cast_possible_truncation, reason = "both have a machine's word")]
fn perform_call(call: &FileCall<'_>) -> Result<usize, Code> {
    let FileCall { descriptor, what, parts, position } = *call;
    let count = call.count().cast_signed();
    let parts: *const libc::iovec = parts.as_ptr().cast();
    if what == FileKind::Append {
        // SAFETY: `append` requires parts at the pointer whose bytes may be read.
        // - as for pwritev(2) below.
        return unsafe { calls::append(descriptor, parts, count) };
    }
    repeat(|| match what {
        // SAFETY: preadv(2) reads `count` elements at the pointer, and writes to each part at most
        // as many bytes as its length says.
        // - valid for reads: `parts` is a slice of `count` elements, with the layout of
        //   `struct iovec`;
        // - valid for writes: a read request has lent its room. The room does not move, and nothing
        //   else accesses it until the request has returned, which is after this call.
        FileKind::Read if position >= 0 => unsafe {
            libc::preadv(descriptor, parts, count, position)
        },
        // SAFETY: as for preadv(2).
        FileKind::Read => unsafe { libc::readv(descriptor, parts, count) },
        // SAFETY: pwritev(2) reads `count` elements at the pointer, and the bytes of each part.
        // - valid for reads: `parts` as above; a write request has lent its bytes. They do not
        //   move, and nothing writes to them until the request has returned, which is after this
        //   call.
        FileKind::Write if position >= 0 => unsafe {
            libc::pwritev(descriptor, parts, count, position)
        },
        // SAFETY: as for pwritev(2).
        FileKind::Write => unsafe { libc::writev(descriptor, parts, count) },
        FileKind::Append => unreachable!("it has been done above"),
        FileKind::SyncData => calls::sync_data(descriptor) as libc::ssize_t,
        FileKind::SyncAll => calls::sync_all(descriptor) as libc::ssize_t,
    })
}
