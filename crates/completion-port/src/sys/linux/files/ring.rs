//! One io_uring, and the thread that has it to itself.
//!
//! No other thread submits to the ring. Requests die with the thread that has submitted them, and their
//! completion would interrupt that thread's other system calls. So requests come to the ring's thread by a
//! list, and an eventfd, on which the ring itself has a read, wakes it: once for however many requests come
//! while it is awake.

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

/// Entries that are handed to the kernel by one call.
const ENTRIES: u32 = 64;

/// How many requests the kernel has at once of those that end by themselves. More wait in the list, from where they can be taken
/// back.
const MOST: usize = 256;

/// And besides, of those that may not.
const MOST_OTHERS: usize = 240;

/// Room for the completions of so many requests, of a cancel for each, and of what wakes the thread, so that none has to
/// wait for room: some kernels take no more entries then.
const COMPLETIONS: u32 = 1024;

const _: () = assert!(2 * (MOST + MOST_OTHERS + 1) <= COMPLETIONS as usize);

/// The names of what is no request. The lower half of a request's name is the number of a record, which is less.
const WAKE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// How long the thread of a ring that was given up sleeps at most between two looks for completed requests.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// And at first. Each further pause is twice as long.
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);

/// A port's share of its ring. The thread has its own, and so the ring lasts until the last operation has returned.
pub(super) struct Ring(Arc<SharedRing>);

struct SharedRing {
    inbox: Mutex<Inbox>,
    wake: OwnedFd,
    /// The ring's descriptor, for a forked child to close.
    ring: AtomicI32,
}

#[derive(Default)]
struct Inbox {
    /// Not begun, oldest first: those that end by themselves.
    requests: RequestQueue,
    /// And those that may not.
    others: RequestQueue,
    /// Names of requests that are to be cancelled.
    cancels: Vec<u64>,
    /// The thread is going to look here before it next sleeps.
    is_awake: bool,
    /// The port is gone.
    is_over: bool,
    /// What does the requests instead, if the kernel refuses to run the ring.
    instead: Option<Instead>,
    /// The thread has ended: the kernel has no request.
    has_ended: bool,
}

/// What does requests instead of a ring.
#[derive(Clone)]
enum Instead {
    Pool(Arc<Pool>),
    /// Nothing: nothing but a ring is wanted. They fail with this code.
    Nothing(Code),
}

impl Inbox {
    /// The requests that the kernel does not have.
    fn take_queued(&mut self) -> Vec<FileRequest> {
        let mut requests = self.requests.take_all();
        requests.append(&mut self.others.take_all());
        requests
    }
}

impl Instead {
    /// Does these requests.
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

/// Returns requests that nothing does.
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
        // - valid for reads: `one` has eight bytes, which is what an eventfd takes. It would wait only if the counter
        //   were about to overflow, and it is read each time.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

/// A ring with all that is needed here.
fn open() -> Result<IoUring, Code> {
    let code = |error: std::io::Error| code_of(&error);
    // It need not lock against other threads (Linux 6.0), nor interrupt this thread for a completion (Linux 5.19). It must
    // not put completions off until io_uring_enter(2) asks for them (`IORING_SETUP_DEFER_TASKRUN`): should that call be
    // forbidden, nothing would tell any more when the kernel has let go of a request.
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
    // No completion is lost, and a list of parts is copied when it is submitted.
    let keeps = ring.params().is_feature_nodrop() && ring.params().is_feature_submit_stable();
    if !keeps || !needed.iter().all(|code| probe.is_supported(*code)) {
        return Err(libc::ENOSYS);
    }
    try_out(ring)
}

/// Has the ring do nothing once. A sandbox may allow a ring to be made, and refuse what it is used by.
fn try_out(mut ring: IoUring) -> Result<IoUring, Code> {
    // SAFETY: `push` demands that the memory which the entry names stays valid until the kernel has completed it.
    // - it names none.
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
                // As `EAGAIN` it would be taken for a shortage of threads, which passes.
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

/// Whether a ring is to be had.
pub(super) fn check() -> Result<(), Code> {
    open().map(drop)
}

impl Ring {
    /// A ring with its thread. If the kernel refuses to run it later, threads do the requests, or the requests fail.
    pub(super) fn new(may_be_threads: bool) -> Result<Self, Code> {
        Self::with_stream_flags(may_be_threads, 0)
    }

    /// Opens a ring that reads and writes files without positions with these flags.
    fn with_stream_flags(may_be_threads: bool, stream_flags: libc::c_int) -> Result<Self, Code> {
        // A read of it by the ring waits: the descriptor must not be non-blocking.
        // SAFETY: eventfd(2) demands nothing of memory.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if wake < 0 {
            return Err(last_code());
        }
        // SAFETY: `from_raw_fd` demands an open descriptor that nothing else owns.
        // - eventfd(2) has just returned it.
        let wake = unsafe { OwnedFd::from_raw_fd(wake) };
        let inbox = Mutex::new(Inbox { is_awake: true, ..Inbox::default() });
        let shared = Arc::new(SharedRing { inbox, wake, ring: AtomicI32::new(-1) });
        let (say, heard) = mpsc::channel();
        let threads = Arc::clone(&shared);
        let run = move || {
            block_signals();
            // Made by the thread that submits, as the kernel demands of one that does so alone.
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
            Pilot {
                shared: threads,
                ring,
                aboard: HashMap::new(),
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
        // The thread sets the ring up, and no more, before it answers.
        heard.recv().unwrap_or(Err(libc::ENOSYS)).map(|()| Self(shared))
    }

    /// Whether the kernel refuses to run the ring, and threads do its work.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.0.lock().instead, Some(Instead::Pool(_)))
    }

    /// The port is dropped in a forked child, where the thread is not: closes the descriptors, and does nothing else.
    pub(super) fn forget_in_child(self) {
        let shared = std::mem::ManuallyDrop::new(self);
        for number in [shared.0.ring.load(SeqCst), shared.0.wake.as_raw_fd()] {
            // SAFETY: close(2) demands that nothing uses the descriptor any more.
            // - in this process nothing does: the thread is not here, and what both share is never touched again.
            unsafe { libc::close(number) };
        }
    }
}

impl Submit<FileTarget> for Ring {
    fn prepare(&self) -> Result<(), Fault> {
        // The ring has its thread from the beginning.
        Ok(())
    }

    fn submit(&self, request: FileRequest) {
        let mut inbox = self.0.lock();
        if let Some(Instead::Pool(pool)) = &inbox.instead {
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
        match inbox.instead.clone() {
            None => self.0.wake(inbox),
            Some(Instead::Pool(pool)) => {
                drop(inbox);
                pool.flush();
            }
            Some(Instead::Nothing(code)) => {
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
        if let Some(Instead::Pool(pool)) = &inbox.instead
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
        let (requests, instead) = (inbox.take_queued(), inbox.instead.take());
        self.0.wake(inbox);
        // The kernel does not have these, and their port is gone.
        drop(requests);
        drop(instead);
    }
}

/// A request that the kernel has.
struct RingJob {
    request: FileRequest,
    /// It was asked to let go of it.
    is_cancelled: bool,
    /// It has been asked when the descriptor is ready, and not yet for the request.
    is_polling: bool,
    /// How often it has ended the request for no reason.
    retries: Retries,
}

/// The ring's thread.
struct Pilot {
    shared: Arc<SharedRing>,
    ring: IoUring,
    /// By their names. The memory of each is lent to the kernel from `Pilot::submit` until its completion has come.
    aboard: HashMap<u64, RingJob>,
    /// How many of those may not end by themselves.
    others: usize,
    /// The names of the entries that the kernel has not taken, in their order.
    pushed: VecDeque<u64>,
    /// Completions that were taken from the kernel, and not worked off yet.
    found: VecDeque<(u64, i32)>,
    /// Where the kernel puts what it reads from the eventfd.
    wakes: Box<u64>,
    /// It is going to.
    is_listening: bool,
    /// Threads may do requests, if the kernel refuses to.
    may_be_threads: bool,
    /// The `RWF_` flags of reads and writes on what has no positions.
    stream_flags: libc::c_int,
    /// How often it could not be asked for anything.
    retries: Retries,
    /// Why the kernel refuses to run the ring. It is not called again, so it takes no more entries.
    refusal: Option<Code>,
}

impl Pilot {
    /// Goes on until the port is gone, and the kernel has let go of all requests.
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
                let names: Vec<_> = self.aboard.keys().copied().collect();
                names.into_iter().for_each(|name| self.cancel(name));
                self.push(CANCEL, opcode::AsyncCancel::new(WAKE).build());
            }
            if is_leaving && self.aboard.is_empty() && !self.is_listening {
                // The kernel has nothing of this thread's memory any more.
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

    /// Hands entries to the kernel, and waits for so many completions. What it refuses for good is noted.
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

    /// The kernel refuses to run the ring. Requests that it has not taken are done in another way. It still completes those that it
    /// has, in the ring's memory, but cannot be asked to cancel them.
    fn give_up(mut self, code: Code) {
        let mut instead = Some(match self.may_be_threads {
            true => Instead::Pool(Arc::new(Pool::new())),
            false => Instead::Nothing(code),
        });
        let mut time = SHORTEST_PAUSE;
        let mut has_rung = false;
        loop {
            self.reap();
            let mut requests = self.disembark();
            let mut inbox = self.shared.lock();
            for name in std::mem::take(&mut inbox.cancels) {
                if let Some(aboard) = self.aboard.get_mut(&name) {
                    aboard.is_cancelled = true;
                }
            }
            if inbox.is_over {
                // The port is gone: nothing more is begun.
                instead = None;
                self.aboard.values_mut().for_each(|aboard| aboard.is_cancelled = true);
            } else if inbox.instead.is_none() {
                requests.extend(inbox.take_queued());
                inbox.instead.clone_from(&instead);
            }
            inbox.has_ended = self.aboard.is_empty() && !self.is_listening;
            let has_ended = inbox.has_ended;
            if self.aboard.is_empty() && self.is_listening && !has_rung {
                // It ends the read of the eventfd, which is all that the kernel has now.
                has_rung = true;
                inbox.is_awake = false;
                self.shared.wake(inbox);
            } else {
                drop(inbox);
            }
            match &instead {
                Some(instead) => instead.take(requests),
                None => drop(requests),
            }
            if has_ended {
                return;
            }
            pause(time);
            time = (2 * time).min(LONGEST_PAUSE);
        }
    }

    /// The requests that the kernel has not taken.
    fn disembark(&mut self) -> Vec<FileRequest> {
        let mut requests = Vec::new();
        for name in std::mem::take(&mut self.pushed) {
            self.is_listening &= name != WAKE;
            if let Some(RingJob { request, .. }) = self.aboard.remove(&name) {
                self.others -= usize::from(!request.target.file.ends_by_itself());
                requests.push(request);
            }
        }
        requests
    }

    /// What has come. From here on the thread is woken for more.
    fn collect(&mut self) -> (Vec<FileRequest>, Vec<u64>, bool) {
        let room = MOST.saturating_sub(self.aboard.len() - self.others);
        let room_for_others = MOST_OTHERS.saturating_sub(self.others);
        let mut inbox = self.shared.lock();
        inbox.is_awake = false;
        let mut requests = Vec::with_capacity(inbox.requests.len().min(room));
        requests.extend(iter::from_fn(|| inbox.requests.pop()).take(room));
        requests.extend(iter::from_fn(|| inbox.others.pop()).take(room_for_others));
        (requests, std::mem::take(&mut inbox.cancels), inbox.is_over)
    }

    /// Puts an entry with this name where the kernel takes it from.
    fn push(&mut self, name: u64, entry: Entry) {
        let entry = entry.user_data(name);
        while self.refusal.is_none() {
            // SAFETY: `push` demands that the memory which the entry names stays valid until the kernel has completed
            // it.
            // - each caller says why.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                break;
            }
            // Full: the kernel takes what is there, and copies it. It may want to be rid of completions first.
            self.fetch();
            self.enter(0);
        }
        // If it takes nothing any more, that stays there as well.
        self.pushed.push_back(name);
    }

    /// Asks the kernel to read from the eventfd, which is how this thread is woken.
    fn listen(&mut self) {
        let place: *mut u64 = &raw mut *self.wakes;
        let descriptor = types::Fd(self.shared.wake.as_raw_fd());
        let entry = opcode::Read::new(descriptor, place.cast(), 8).build();
        // The kernel writes eight bytes to `wakes`, which is on the heap, and which nothing looks at. This thread does
        // not end before the kernel has done so, or has been told not to.
        self.push(WAKE, entry);
        self.is_listening = true;
    }

    /// Lends the memory of a request to the kernel, or returns the request if there is something wrong with it.
    fn submit(&mut self, request: FileRequest) {
        let name = request.id;
        self.others += usize::from(!request.target.file.ends_by_itself());
        self.aboard.insert(
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

    /// Asks the kernel for what is left of a request.
    fn submit_again(&mut self, name: u64) {
        let Some(aboard) = self.aboard.get(&name) else { return };
        let call = match FileCall::of(&aboard.request) {
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
        // The kernel reads the list of parts when it is submitted, and writes to them or reads them until it completes
        // the entry. The request stays in `aboard` until then: the list and the buffer are on the heap, and stay where
        // they are though the request be moved in the map. Nothing else touches the buffer. The descriptor is open as
        // long as the request.
        self.push(name, entry);
    }

    /// Asks the kernel to say when a request could do something, on what has no positions and does not wait itself.
    fn poll(&mut self, name: u64) {
        let Some(aboard) = self.aboard.get_mut(&name) else { return };
        aboard.is_polling = true;
        let is_read = aboard.request.kind == FileKind::Read;
        let events = if is_read { libc::POLLIN } else { libc::POLLOUT };
        let descriptor = types::Fd(aboard.request.target.file.descriptor());
        let entry = opcode::PollAdd::new(descriptor, u32::from(events.cast_unsigned())).build();
        // No memory is named.
        self.push(name, entry);
    }

    /// Asks the kernel to let go of a request. It completes all the same, cancelled or not.
    fn cancel(&mut self, name: u64) {
        let Some(aboard) = self.aboard.get_mut(&name) else { return };
        if std::mem::replace(&mut aboard.is_cancelled, true) {
            return;
        }
        // No memory is named.
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

    /// The kernel has let go of a request, and of its memory.
    fn complete(&mut self, name: u64, result: Result<usize, Code>) {
        let Some(aboard) = self.aboard.get_mut(&name) else { return };
        let is_cancelled = aboard.is_cancelled;
        // What it has said of the descriptor the next request for the request finds out.
        let was_polling = std::mem::take(&mut aboard.is_polling);
        let is_over = match result {
            Err(libc::ECANCELED | libc::EINTR) if is_cancelled => {
                aboard.request.is_cancelled = true;
                true
            }
            // Only this thread cancels. Of what it did not: once more.
            Err(libc::ECANCELED | libc::EINTR) if aboard.retries.again() => false,
            _ if was_polling => false,
            // The program has made it non-blocking, and the kernel does not wait for it then.
            Err(libc::EAGAIN) if !aboard.request.target.file.has_positions() && !is_cancelled => {
                return self.poll(name);
            }
            result => note(&mut aboard.request, result) == ControlFlow::Break(()),
        };
        if is_over || is_cancelled {
            // What was done so far is told, and that it was cancelled, if something is left.
            aboard.request.is_cancelled |= !is_over;
            if let Some(aboard) = self.aboard.remove(&name) {
                self.others -= usize::from(!aboard.request.target.file.ends_by_itself());
                complete(aboard.request);
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
        // With this flag the kernel returns EAGAIN for a stream that would block, as kernels before 6.4 do for a
        // non-blocking one.
        let Ok(ring) = Ring::with_stream_flags(false, libc::RWF_NOWAIT) else {
            return testkit::skipped("this process may use no io_uring");
        };
        let (say, heard) = mpsc::channel();
        let ends: Arc<dyn Issuer> = Arc::new(Sender(Mutex::new(say)));
        let start = |id, end: &Arc<End>, kind, bytes: Vec<u8>| {
            let mut buffer = IoBuffer::new(bytes);
            if kind == FileKind::Read {
                buffer.lend_room(|buffer: &mut Vec<u8>, part| {
                    // SAFETY: `room` demands that only initialized bytes are written to the parts.
                    // - the ring writes what it has read.
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
            return testkit::skipped("this kernel cannot be asked not to wait for a pipe");
        }
        assert_eq!(first, None);
        (&writer.0).write_all(b"x").unwrap();
        assert_eq!(ended(), (1, 1, None, false));
        // Once more, and cancelled meanwhile.
        start(2, &reader, FileKind::Read, Vec::with_capacity(4));
        assert_eq!(early(), None);
        assert!(ring.cancel(2).is_none());
        assert_eq!(ended(), (2, 0, None, true));
        // A write goes on as there is room for it.
        start(3, &writer, FileKind::Write, vec![7; 1 << 18]);
        assert_eq!(early(), None);
        let mut came = vec![0; 1 << 18];
        (&reader.0).read_exact(&mut came).unwrap();
        assert_eq!(ended(), (3, 1 << 18, None, false));
        assert!(came.iter().all(|byte| *byte == 7));
    }
}
