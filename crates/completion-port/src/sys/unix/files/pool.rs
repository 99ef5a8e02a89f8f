//! A few threads, each of which does one operation at a time. What may never end has threads of its own, so that it holds
//! up nothing that does.

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

/// How many threads each [`PoolQueue`] has at most: more than a disk does at once, and few enough to be no burden. A thread that
/// hangs is one of them.
const MOST: usize = 8;

/// How long a thread stays that has nothing to do.
const REST: Duration = Duration::from_secs(10);

/// A port's share of its pool. The threads have theirs, and so the pool lasts until the last operation has returned.
pub(in crate::sys) struct Pool {
    disks: PoolQueue,
    others: PoolQueue,
}

/// Threads, and the requests that they do.
#[derive(Default)]
struct PoolQueue(Arc<SharedPool>);

#[derive(Default)]
struct SharedPool {
    state: Mutex<PoolState>,
    has_work: Condvar,
}

#[derive(Default)]
struct PoolState {
    /// Not begun, oldest first.
    queue: RequestQueue,
    threads: usize,
    /// Those that have nothing to do.
    idle: usize,
    /// The port is gone.
    is_over: bool,
}

impl SharedPool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each thread does.
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
    /// A pool without a thread.
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
    /// Has a thread begin with what was put, if that was here: an idle one, or else one more.
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
            // The others do it, of which one may be idle.
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
        // No thread has begun with these, and their port is gone.
        drop(queue);
    }
}

/// Does a request to its end, however long that takes.
fn perform(request: &mut FileRequest) {
    loop {
        let done = FileCall::of(request).and_then(|call| match perform_call(&call) {
            // Once more, when it is ready.
            Err(libc::EAGAIN) if call.position < 0 => wait_for(&call).map(|()| None),
            result => result.map(Some),
        });
        let Some(result) = done.transpose() else { continue };
        if note(request, result) == ControlFlow::Break(()) {
            return;
        }
    }
}

/// Waits until a call would do something on what has no positions, and does not wait itself: the program has made it
/// non-blocking.
fn wait_for(call: &FileCall<'_>) -> Result<(), Code> {
    let events = if call.what == FileKind::Read { libc::POLLIN } else { libc::POLLOUT };
    let mut one = libc::pollfd { fd: call.descriptor, events, revents: 0 };
    // SAFETY: poll(2) reads and writes as many elements at the pointer as its second argument says.
    // - valid for both: `one` is a local.
    repeat_for(&POLL, || unsafe { libc::poll(&raw mut one, 1, -1) as libc::ssize_t }).map(drop)
}

/// One system call, which may wait.
#[allow(clippy::cast_possible_truncation, reason = "both have a machine's word")]
fn perform_call(call: &FileCall<'_>) -> Result<usize, Code> {
    let FileCall { descriptor, what, parts, position } = *call;
    let count = call.count().cast_signed();
    let parts: *const libc::iovec = parts.as_ptr().cast();
    if what == FileKind::Append {
        // SAFETY: `append` demands parts at the pointer whose bytes may be read.
        // - as for pwritev(2) below.
        return unsafe { calls::append(descriptor, parts, count) };
    }
    repeat(|| match what {
        // SAFETY: preadv(2) reads `count` elements at the pointer, and writes at most as many bytes to each part as it
        // says.
        // - valid for reads: `parts` is a slice of so many, which lie as `struct iovec` does;
        // - valid for writes: a request that reads has lent its room, which stays where it is and is nobody else's until
        //   the request has returned, which is after this call.
        FileKind::Read if position >= 0 => unsafe {
            libc::preadv(descriptor, parts, count, position)
        },
        // SAFETY: as for preadv(2).
        FileKind::Read => unsafe { libc::readv(descriptor, parts, count) },
        // SAFETY: pwritev(2) reads `count` elements at the pointer, and the bytes of each part.
        // - valid for reads: `parts` as above; a request that writes has lent its bytes, which stay where they are and
        //   are not written to until the request has returned, which is after this call.
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
