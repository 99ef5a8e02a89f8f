//! One io_uring, and the only thread that uses it.
//!
//! No other thread submits to the ring: requests die with the thread that submitted them, and their
//! completions would interrupt that thread's other system calls. Requests reach the ring's thread
//! through a list. An eventfd, which the ring itself reads, wakes the thread. Requests that arrive
//! while the thread is awake need no further wake-up.

use std::collections::{HashMap, VecDeque};
use std::iter;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::{IoUring, Probe, opcode, types};

use super::super::errors::RING_ENTER;
use crate::backend::files::{FileKind, FileTarget};
use crate::backend::request::{FileRequest, Submit};
use crate::sys::portable::errors::{Retries, pause};
use crate::sys::portable::request_queue::RequestQueue;
use crate::sys::unix::files::{FileCall, Pool, block_signals, complete, fault, note};
use crate::sys::unix::options::{Code, last_code};
use crate::sys::unix::threads;
use crate::types::error::Fault;

/// The number of entries that one call submits to the kernel.
const ENTRIES: u32 = 64;

/// The most requests of the kind that ends by itself that the kernel has at a time.
///
/// The others wait in the list, where they can still be cancelled without the kernel.
const MOST: usize = 256;

/// The most requests of the kind that may never end by itself. They are in addition to [`MOST`].
const MOST_OTHERS: usize = 240;

/// The size of the completion queue.
///
/// It has room for the completions of all these requests, of a cancel for each, and of the read
/// that wakes the thread. It therefore never overflows. Some kernels take no more entries after an
/// overflow.
const COMPLETIONS: u32 = 1024;

const _: () = assert!(2 * (MOST + MOST_OTHERS + 1) <= COMPLETIONS as usize);

/// Names of entries that are not requests. The lower half of a request's name is an op index, which
/// is smaller.
const WAKE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// The longest sleep between two checks for completed requests after the ring was given up.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The first such sleep. Each further one is twice as long.
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);

/// A port's reference to its ring. The thread has another, so the ring lasts until the last
/// operation has returned.
pub(super) struct Ring(Arc<SharedRing>);

struct SharedRing {
    inbox: Mutex<Inbox>,
    wake: OwnedFd,
    /// The ring's descriptor, for a forked child to close.
    ring: AtomicI32,
}

#[derive(Default)]
struct Inbox {
    /// Requests that end by themselves and have not started, oldest first.
    requests: RequestQueue,
    /// Requests that may never end by themselves and have not started, oldest first.
    others: RequestQueue,
    /// The names of the requests to cancel.
    cancels: Vec<u64>,
    /// The thread will look here before it next sleeps.
    is_awake: bool,
    /// The port is gone.
    is_over: bool,
    /// Performs the requests if the kernel refuses to run the ring.
    fallback: Option<RingFallback>,
    /// The thread has ended: the kernel has no request.
    has_ended: bool,
}

/// Replaces a ring that the kernel refuses to run.
#[derive(Clone)]
enum RingFallback {
    Pool(Arc<Pool>),
    /// The port was asked for a ring only. Requests fail with this code.
    Nothing(Code),
}

impl Inbox {
    /// Takes the requests that the kernel does not have.
    fn take_queued(&mut self) -> Vec<FileRequest> {
        let mut requests = self.requests.take_all();
        requests.append(&mut self.others.take_all());
        requests
    }
}

impl RingFallback {
    /// Performs these requests.
    fn take(&self, requests: Vec<FileRequest>) {
        match self {
            Self::Pool(pool) => {
                requests.into_iter().for_each(|request| pool.submit(request));
                pool.flush();
            }
            Self::Nothing(code) => fail_all(requests, *code),
        }
    }
}

/// Completes requests that nothing can perform with an error.
fn fail_all(requests: Vec<FileRequest>, code: Code) {
    for mut request in requests {
        request.fault = Some(fault(code));
        complete(request);
    }
}

impl SharedRing {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread, unless it is awake.
    fn wake(&self, mut inbox: MutexGuard<'_, Inbox>) {
        if std::mem::replace(&mut inbox.is_awake, true) {
            return;
        }
        drop(inbox);
        let one = 1_u64.to_ne_bytes();
        // SAFETY: write(2) reads as many bytes at the pointer as its third argument says.
        // - valid for reads: `one` has eight bytes, which is the size of a write to an eventfd. The
        //   call would block only if the counter were about to overflow, but the thread reads it
        //   after each write.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

/// Opens a ring that has every feature used here.
fn open() -> Result<IoUring, Code> {
    let code = |error: std::io::Error| code_of(&error);
    // The ring needs no locking against other threads (Linux 6.0), and its completions need not
    // interrupt this thread (Linux 5.19). It must not delay completions until io_uring_enter(2)
    // asks for them (`IORING_SETUP_DEFER_TASKRUN`): if that call were forbidden, nothing would
    // report when the kernel has released a request.
    let ring = IoUring::builder()
        .setup_cqsize(COMPLETIONS)
        .setup_single_issuer()
        .setup_coop_taskrun()
        .build(ENTRIES)
        .or_else(|_| IoUring::builder().setup_cqsize(COMPLETIONS).build(ENTRIES))
        .map_err(code)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(code)?;
    let needed = [
        opcode::Readv::CODE,
        opcode::Writev::CODE,
        opcode::Fsync::CODE,
        opcode::Read::CODE,
        opcode::AsyncCancel::CODE,
        opcode::PollAdd::CODE,
    ];
    // No completion is lost, and the kernel copies a list of parts when it is submitted.
    let keeps = ring.params().is_feature_nodrop() && ring.params().is_feature_submit_stable();
    if !keeps || !needed.iter().all(|code| probe.is_supported(*code)) {
        return Err(libc::ENOSYS);
    }
    try_out(ring)
}

/// Runs one no-op on the ring. A sandbox may allow making a ring and refuse the call that uses it.
fn try_out(mut ring: IoUring) -> Result<IoUring, Code> {
    // SAFETY: `push` requires that the memory which the entry names stays valid until the kernel
    // has completed it.
    // - the entry names none.
    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    debug_assert!(pushed.is_ok(), "a new ring has room");
    let mut retries = Retries::default();
    loop {
        if ring.completion().next().is_some() {
            return Ok(ring);
        }
        if let Err(error) = ring.submit_and_wait(1) {
            let code = code_of(&error);
            if !retries.pass(&RING_ENTER, code) {
                // The caller takes `EAGAIN` for a temporary shortage of threads.
                return Err(if code == libc::EAGAIN { libc::EBUSY } else { code });
            }
        } else if !retries.again() {
            return Err(libc::EIO);
        }
    }
}

fn code_of(error: &std::io::Error) -> Code {
    error.raw_os_error().unwrap_or(libc::ENOSYS)
}

/// Checks whether this process can use a ring.
pub(super) fn check() -> Result<(), Code> {
    open().map(drop)
}

impl Ring {
    /// Starts a ring and its thread.
    ///
    /// If the kernel later refuses to run it, threads perform the requests if `may_be_threads` is
    /// set; otherwise the requests fail.
    pub(super) fn new(may_be_threads: bool) -> Result<Self, Code> {
        Self::with_stream_flags(may_be_threads, 0)
    }

    /// Starts a ring that reads and writes files without positions with these flags.
    fn with_stream_flags(may_be_threads: bool, stream_flags: libc::c_int) -> Result<Self, Code> {
        // The ring's read of it must wait, so the descriptor must not be non-blocking.
        // SAFETY: eventfd(2) has no memory requirements.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if wake < 0 {
            return Err(last_code());
        }
        // SAFETY: `from_raw_fd` requires an open descriptor that nothing else owns.
        // - eventfd(2) has just returned it.
        let wake = unsafe { OwnedFd::from_raw_fd(wake) };
        let inbox = Mutex::new(Inbox { is_awake: true, ..Inbox::default() });
        let shared = Arc::new(SharedRing { inbox, wake, ring: AtomicI32::new(-1) });
        let (say, heard) = mpsc::channel();
        let threads = Arc::clone(&shared);
        let run = move || {
            block_signals();
            // The submitting thread makes the ring, as the kernel requires of a single issuer.
            let ring = match open() {
                Ok(ring) => ring,
                Err(code) => {
                    let _ = say.send(Err(code));
                    return;
                }
            };
            threads.ring.store(ring.as_raw_fd(), SeqCst);
            let _ = say.send(Ok(()));
            drop(say);
            RingThread {
                shared: threads,
                ring,
                jobs: HashMap::new(),
                others: 0,
                pushed: VecDeque::new(),
                found: VecDeque::new(),
                wakes: Box::new(0),
                is_listening: false,
                may_be_threads,
                stream_flags,
                retries: Retries::default(),
                refusal: None,
            }
            .fly();
        };
        threads::start(c"port-ring", run)?;
        // The thread answers as soon as it has set up the ring.
        heard.recv().unwrap_or(Err(libc::ENOSYS)).map(|()| Self(shared))
    }

    /// Returns whether the kernel refuses to run the ring and threads do its work.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.0.lock().fallback, Some(RingFallback::Pool(_)))
    }

    /// Closes the descriptors in a forked child, where the ring's thread does not exist.
    pub(super) fn forget_in_child(self) {
        let shared = std::mem::ManuallyDrop::new(self);
        for number in [shared.0.ring.load(SeqCst), shared.0.wake.as_raw_fd()] {
            // SAFETY: close(2) requires that nothing uses the descriptor any more.
            // - nothing in this process does: the ring's thread does not exist here, and nothing
            //   touches the shared state again.
            unsafe { libc::close(number) };
        }
    }
}

impl Submit<FileTarget> for Ring {
    fn prepare(&self) -> Result<(), Fault> {
        // The ring has had its thread from the start.
        Ok(())
    }

    fn submit(&self, request: FileRequest) {
        let mut inbox = self.0.lock();
        if let Some(RingFallback::Pool(pool)) = &inbox.fallback {
            pool.submit(request);
            return;
        }
        let list = if request.target.file.ends_by_itself() {
            &mut inbox.requests
        } else {
            &mut inbox.others
        };
        list.push(request);
    }

    fn flush(&self) {
        let mut inbox = self.0.lock();
        match inbox.fallback.clone() {
            None => self.0.wake(inbox),
            Some(RingFallback::Pool(pool)) => {
                drop(inbox);
                pool.flush();
            }
            Some(RingFallback::Nothing(code)) => {
                let requests = inbox.take_queued();
                drop(inbox);
                fail_all(requests, code);
            }
        }
    }

    fn cancel(&self, id: u64) -> Option<FileRequest> {
        let mut inbox = self.0.lock();
        if let Some(request) = inbox.requests.take(id).or_else(|| inbox.others.take(id)) {
            return Some(request);
        }
        if let Some(RingFallback::Pool(pool)) = &inbox.fallback
            && let Some(request) = pool.cancel(id)
        {
            return Some(request);
        }
        if !inbox.has_ended {
            inbox.cancels.push(id);
            self.0.wake(inbox);
        }
        None
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut inbox = self.0.lock();
        inbox.is_over = true;
        let (requests, fallback) = (inbox.take_queued(), inbox.fallback.take());
        self.0.wake(inbox);
        // The kernel does not have these, and their port is gone.
        drop(requests);
        drop(fallback);
    }
}

/// A request that the kernel has.
struct RingJob {
    request: FileRequest,
    /// The kernel was asked to cancel the request.
    is_cancelled: bool,
    /// The kernel has a poll of the descriptor, and not the request itself.
    is_polling: bool,
    /// How often the kernel has ended the request without a reason.
    retries: Retries,
}

/// The state of the ring's thread.
struct RingThread {
    shared: Arc<SharedRing>,
    ring: IoUring,
    /// The requests that the kernel has, by name. It may access the memory of each from
    /// `RingThread::submit` until the completion arrives.
    jobs: HashMap<u64, RingJob>,
    /// How many of those may never end by themselves.
    others: usize,
    /// The names of the entries that the kernel has not taken, in their order.
    pushed: VecDeque<u64>,
    /// Completions that were taken from the kernel and are not processed yet.
    found: VecDeque<(u64, i32)>,
    /// The memory to which the kernel writes the eventfd's count.
    wakes: Box<u64>,
    /// The kernel has a read of the eventfd.
    is_listening: bool,
    /// Threads may perform requests if the kernel refuses to.
    may_be_threads: bool,
    /// The `RWF_` flags of reads and writes of files without positions.
    stream_flags: libc::c_int,
    /// How often io_uring_enter(2) has failed in succession.
    retries: Retries,
    /// Why the kernel refuses to run the ring. It is not called again, so it takes no more entries.
    refusal: Option<Code>,
}

impl RingThread {
    /// Runs until the port is gone and the kernel has released all requests.
    fn fly(mut self) {
        self.listen();
        let mut is_leaving = false;
        loop {
            let (requests, cancels, is_over) = self.collect();
            for request in requests {
                self.submit(request);
            }
            for name in cancels {
                self.cancel(name);
            }
            if is_over && !is_leaving {
                is_leaving = true;
                let names: Vec<_> = self.jobs.keys().copied().collect();
                names.into_iter().for_each(|name| self.cancel(name));
                self.push(CANCEL, opcode::AsyncCancel::new(WAKE).build());
            }
            if is_leaving && self.jobs.is_empty() && !self.is_listening {
                // The kernel no longer uses any memory of this thread.
                return;
            }
            self.enter(usize::from(self.found.is_empty()));
            if let Some(code) = self.refusal {
                return self.give_up(code);
            }
            self.reap();
            if !self.is_listening && !is_leaving {
                self.listen();
            }
        }
    }

    /// Submits the entries to the kernel and waits for `wanted` completions.
    ///
    /// Records a permanent refusal.
    fn enter(&mut self, wanted: usize) {
        if self.refusal.is_some() {
            return;
        }
        match self.ring.submit_and_wait(wanted) {
            Ok(_) => self.retries = Retries::default(),
            Err(error) => {
                let code = code_of(&error);
                if !self.retries.pass(&RING_ENTER, code) {
                    self.refusal = Some(code);
                }
            }
        }
        let left = self.ring.submission().len();
        while self.pushed.len() > left {
            self.pushed.pop_front();
        }
    }

    /// Replaces the ring after the kernel has refused to run it.
    ///
    /// Requests that the kernel has not taken go to the pool or fail. The kernel still completes
    /// the others in the ring's memory, but it cannot be asked to cancel them.
    fn give_up(mut self, code: Code) {
        let mut fallback = Some(match self.may_be_threads {
            true => RingFallback::Pool(Arc::new(Pool::new())),
            false => RingFallback::Nothing(code),
        });
        let mut time = SHORTEST_PAUSE;
        let mut has_rung = false;
        loop {
            self.reap();
            let mut requests = self.disembark();
            let mut inbox = self.shared.lock();
            for name in std::mem::take(&mut inbox.cancels) {
                if let Some(jobs) = self.jobs.get_mut(&name) {
                    jobs.is_cancelled = true;
                }
            }
            if inbox.is_over {
                // The port is gone: nothing more is started.
                fallback = None;
                self.jobs.values_mut().for_each(|jobs| jobs.is_cancelled = true);
            } else if inbox.fallback.is_none() {
                requests.extend(inbox.take_queued());
                inbox.fallback.clone_from(&fallback);
            }
            inbox.has_ended = self.jobs.is_empty() && !self.is_listening;
            let has_ended = inbox.has_ended;
            if self.jobs.is_empty() && self.is_listening && !has_rung {
                // The write ends the read of the eventfd, which is all that the kernel has now.
                has_rung = true;
                inbox.is_awake = false;
                self.shared.wake(inbox);
            } else {
                drop(inbox);
            }
            match &fallback {
                Some(fallback) => fallback.take(requests),
                None => drop(requests),
            }
            if has_ended {
                return;
            }
            pause(time);
            time = (2 * time).min(LONGEST_PAUSE);
        }
    }

    /// Takes back the requests that the kernel has not taken.
    fn disembark(&mut self) -> Vec<FileRequest> {
        let mut requests = Vec::new();
        for name in std::mem::take(&mut self.pushed) {
            self.is_listening &= name != WAKE;
            if let Some(RingJob { request, .. }) = self.jobs.remove(&name) {
                self.others -= usize::from(!request.target.file.ends_by_itself());
                requests.push(request);
            }
        }
        requests
    }

    /// Takes new requests and cancels from the inbox. Submitters wake the thread from here on.
    fn collect(&mut self) -> (Vec<FileRequest>, Vec<u64>, bool) {
        let room = MOST.saturating_sub(self.jobs.len() - self.others);
        let room_for_others = MOST_OTHERS.saturating_sub(self.others);
        let mut inbox = self.shared.lock();
        inbox.is_awake = false;
        let mut requests = Vec::with_capacity(inbox.requests.len().min(room));
        requests.extend(iter::from_fn(|| inbox.requests.pop()).take(room));
        requests.extend(iter::from_fn(|| inbox.others.pop()).take(room_for_others));
        (requests, std::mem::take(&mut inbox.cancels), inbox.is_over)
    }

    /// Adds an entry with this name to the submission queue.
    fn push(&mut self, name: u64, entry: Entry) {
        let entry = entry.user_data(name);
        while self.refusal.is_none() {
            // SAFETY: `push` requires that the memory which the entry names stays valid until the
            // kernel has completed it.
            // - each caller says why.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                break;
            }
            // The queue is full: the kernel takes and copies the entries. It may first require room
            // for completions.
            self.fetch();
            self.enter(0);
        }
        // If the kernel takes no more entries, the name stays in `pushed` and the request is taken
        // back.
        self.pushed.push_back(name);
    }

    /// Starts a read of the eventfd. Its completion wakes this thread.
    fn listen(&mut self) {
        let place: *mut u64 = &raw mut *self.wakes;
        let descriptor = types::Fd(self.shared.wake.as_raw_fd());
        let entry = opcode::Read::new(descriptor, place.cast(), 8).build();
        // The kernel writes eight bytes to `wakes`, which is on the heap and which nothing else
        // accesses. This thread does not end before the kernel has completed the read or cancelled
        // it.
        self.push(WAKE, entry);
        self.is_listening = true;
    }

    /// Lends the memory of a request to the kernel. An invalid request fails here.
    fn submit(&mut self, request: FileRequest) {
        let name = request.id;
        self.others += usize::from(!request.target.file.ends_by_itself());
        self.jobs.insert(
            name,
            RingJob {
                request,
                is_cancelled: false,
                is_polling: false,
                retries: Retries::default(),
            },
        );
        self.submit_again(name);
    }

    /// Submits the remaining part of a request.
    fn submit_again(&mut self, name: u64) {
        let Some(jobs) = self.jobs.get(&name) else { return };
        let call = match FileCall::of(&jobs.request) {
            Ok(call) => call,
            Err(code) => return self.complete(name, Err(code)),
        };
        let descriptor = types::Fd(call.descriptor);
        let parts = call.parts.as_ptr().cast();
        let offset = call.position.cast_unsigned();
        let flags = if call.position < 0 { self.stream_flags } else { 0 };
        let entry = match call.what {
            FileKind::Read => opcode::Readv::new(descriptor, parts, call.count())
                .offset(offset)
                .rw_flags(flags)
                .build(),
            FileKind::Write => opcode::Writev::new(descriptor, parts, call.count())
                .offset(offset)
                .rw_flags(flags)
                .build(),
            FileKind::Append => opcode::Writev::new(descriptor, parts, call.count())
                .offset(offset)
                .rw_flags(libc::RWF_APPEND)
                .build(),
            FileKind::SyncData => {
                opcode::Fsync::new(descriptor).flags(types::FsyncFlags::DATASYNC).build()
            }
            FileKind::SyncAll => opcode::Fsync::new(descriptor).build(),
        };
        // The kernel reads the list of parts when the entry is submitted, and accesses the parts
        // until it completes the entry. The request stays in `jobs` until then. The list and the
        // buffer are on the heap and do not move when the map moves the request. Nothing else
        // touches the buffer. The descriptor stays open as long as the request exists.
        self.push(name, entry);
    }

    /// Polls the descriptor of a request, for streams on which the kernel does not wait.
    fn poll(&mut self, name: u64) {
        let Some(jobs) = self.jobs.get_mut(&name) else { return };
        jobs.is_polling = true;
        let is_read = jobs.request.kind == FileKind::Read;
        let events = if is_read { libc::POLLIN } else { libc::POLLOUT };
        let descriptor = types::Fd(jobs.request.target.file.descriptor());
        let entry = opcode::PollAdd::new(descriptor, u32::from(events.cast_unsigned())).build();
        // The entry names no memory.
        self.push(name, entry);
    }

    /// Asks the kernel to cancel a request. The request completes in any case, cancelled or not.
    fn cancel(&mut self, name: u64) {
        let Some(jobs) = self.jobs.get_mut(&name) else { return };
        if std::mem::replace(&mut jobs.is_cancelled, true) {
            return;
        }
        // The entry names no memory.
        self.push(CANCEL, opcode::AsyncCancel::new(name).build());
    }

    /// Takes completions from the kernel.
    fn fetch(&mut self) {
        let completed = self.ring.completion().map(|entry| (entry.user_data(), entry.result()));
        self.found.extend(completed);
    }

    fn reap(&mut self) {
        self.fetch();
        while let Some((name, result)) = self.found.pop_front() {
            match name {
                WAKE => self.is_listening = false,
                CANCEL => {}
                name => self.complete(name, usize::try_from(result).map_err(|_| -result)),
            }
        }
    }

    /// Processes the completion of a request. The kernel has released the request and its memory.
    fn complete(&mut self, name: u64, result: Result<usize, Code>) {
        let Some(jobs) = self.jobs.get_mut(&name) else { return };
        let is_cancelled = jobs.is_cancelled;
        // The result of a poll does not matter: the request's next attempt reports any error.
        let was_polling = std::mem::take(&mut jobs.is_polling);
        let is_over = match result {
            Err(libc::ECANCELED | libc::EINTR) if is_cancelled => {
                jobs.request.is_cancelled = true;
                true
            }
            // Only this thread cancels, and it has not cancelled this request. It retries.
            Err(libc::ECANCELED | libc::EINTR) if jobs.retries.again() => false,
            _ if was_polling => false,
            // The program has made the descriptor non-blocking, and the kernel does not wait for it
            // then.
            Err(libc::EAGAIN) if !jobs.request.target.file.has_positions() && !is_cancelled => {
                return self.poll(name);
            }
            result => note(&mut jobs.request, result) == ControlFlow::Break(()),
        };
        if is_over || is_cancelled {
            // The request reports the bytes done so far. It is cancelled only if a part remains.
            jobs.request.is_cancelled |= !is_over;
            if let Some(jobs) = self.jobs.remove(&name) {
                self.others -= usize::from(!jobs.request.target.file.ends_by_itself());
                complete(jobs.request);
            }
        } else {
            self.submit_again(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write, pipe};
    use std::time::Duration;

    use super::*;
    use crate::backend::files::{FileRef, Issuer};
    use crate::types::buffer::Buffer;
    use crate::types::io_buffer::IoBuffer;
    use crate::types::source::Descriptor;

    struct End(File);

    impl FileRef for End {
        fn descriptor(&self) -> Descriptor {
            self.0.as_raw_fd()
        }

        fn has_positions(&self) -> bool {
            false
        }
    }

    struct Sender(Mutex<mpsc::Sender<FileRequest>>);

    impl Issuer for Sender {
        fn complete(&self, request: FileRequest) {
            let _ = self.0.lock().unwrap().send(request);
        }
    }

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn what_would_have_to_wait_is_tried_again_when_it_is_ready() {
        // With this flag the kernel returns EAGAIN for a stream that would block. Kernels before 6.4
        // do so for a non-blocking one.
        let Ok(ring) = Ring::with_stream_flags(false, libc::RWF_NOWAIT) else {
            return testkit::skipped("this process may not use io_uring");
        };
        let (say, heard) = mpsc::channel();
        let ends: Arc<dyn Issuer> = Arc::new(Sender(Mutex::new(say)));
        let start = |id, end: &Arc<End>, kind, bytes: Vec<u8>| {
            let mut buffer = IoBuffer::new(bytes);
            if kind == FileKind::Read {
                buffer.lend_room(|buffer: &mut Vec<u8>, part| {
                    // SAFETY: `room` requires that only initialized bytes are written to the parts.
                    // - the ring writes the bytes that it has read.
                    unsafe { buffer.room(&mut |room| part(room)) };
                });
            } else {
                buffer.lend_bytes(|buffer: &Vec<u8>, part| buffer.filled(&mut |bytes| part(bytes)));
            }
            ring.submit(FileRequest::new(
                id,
                FileTarget {
                    file: Arc::clone(end) as Arc<dyn FileRef>,
                    offset: 0,
                    issuer: Arc::downgrade(&ends),
                },
                kind,
                Some(buffer),
            ));
            ring.flush();
        };
        let said = |request: FileRequest| {
            let code = request.fault.and_then(|fault| fault.code);
            (request.id, request.done, code, request.is_cancelled)
        };
        let ended = || said(heard.recv_timeout(SOON).unwrap());
        let early = || heard.recv_timeout(Duration::from_millis(20)).ok().map(said);
        let (reader, writer) = pipe().unwrap();
        let reader = Arc::new(End(File::from(OwnedFd::from(reader))));
        let writer = Arc::new(End(File::from(OwnedFd::from(writer))));
        start(1, &reader, FileKind::Read, Vec::with_capacity(4));
        let first = early();
        if first.is_some_and(|(.., code, _)| code == Some(libc::EOPNOTSUPP)) {
            return testkit::skipped("this kernel has no RWF_NOWAIT for pipes");
        }
        assert_eq!(first, None);
        (&writer.0).write_all(b"x").unwrap();
        assert_eq!(ended(), (1, 1, None, false));
        // Another one, cancelled while it waits.
        start(2, &reader, FileKind::Read, Vec::with_capacity(4));
        assert_eq!(early(), None);
        assert!(ring.cancel(2).is_none());
        assert_eq!(ended(), (2, 0, None, true));
        // A write continues as room becomes available.
        start(3, &writer, FileKind::Write, vec![7; 1 << 18]);
        assert_eq!(early(), None);
        let mut came = vec![0; 1 << 18];
        (&reader.0).read_exact(&mut came).unwrap();
        assert_eq!(ended(), (3, 1 << 18, None, false));
        assert!(came.iter().all(|byte| *byte == 7));
    }
}
