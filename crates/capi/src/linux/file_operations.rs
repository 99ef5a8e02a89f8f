//! File operations that continue after the call that has started them: how they end and are
//! cancelled. Also performs operations in the calling thread.
//!
//! The file engine of a port performs them. The process has this port for them alone, and no thread
//! waits on it. So operations end without any thread taking packets, without any port of the
//! program, and independently of the port that receives their packets. The engine's thread writes
//! the OVERLAPPED, sets the event and posts the packet.
//!
//! An operation has a share of its file, and the program's memory until its end is reported. So
//! closing the handle or the port ends no operation, except for files without positions, where a
//! read may wait forever.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use completion_port::raw::{FileEnd, FileTask, FileTaskId, FileTasks, FileWork};
use completion_port::{Buffer, FileEngine, Port};

use crate::abi::Overlapped;
use crate::errors::{code, code_of};
use crate::handles;
use crate::linux::errno::Signals;
use crate::linux::fetches::{Awaited, Fetching, Part};
use crate::linux::file::{File, InFlight, errno, without_signal};
use crate::linux::later::Later;
use crate::linux::port::{Begun, CompletionPort};
use crate::linux::process::Own;
use crate::linux::status;
use crate::linux::waitable::Waitable;
use crate::linux::waits::{this_thread, wake_waiting};

/// The smallest block: unbuffered transfers are multiples of it.
const BLOCK: usize = 512;

/// The system's maximum for one call.
const MOST: usize = 0x7FFF_F000;

/// Of one process.
#[derive(Default)]
struct Service {
    tasks: OnceLock<FileTasks<'static, EngineTask>>,
    begins: Mutex<()>,
}

static SERVICE: Own<Service> = Own::new(begin_child);

extern "C" fn begin_child() {
    SERVICE.pass_on();
}

/// The engine that the environment selects: `COMPLETION_PORT_FILES`.
fn wanted() -> FileEngine {
    match std::env::var("COMPLETION_PORT_FILES").as_deref() {
        Ok("threads") => FileEngine::Threads,
        Ok("ring") => FileEngine::Ring,
        _ => FileEngine::Automatic,
    }
}

/// Performs operations that have to wait.
pub(crate) fn tasks() -> Result<&'static FileTasks<'static, EngineTask>, u32> {
    let service = SERVICE.get(|_| Box::default());
    if let Some(tasks) = service.tasks.get() {
        return Ok(tasks);
    }
    let _begins = service.begins.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(tasks) = service.tasks.get() {
        return Ok(tasks);
    }
    let port: Port<()> = Port::builder().file_engine(wanted()).build().map_err(code_of)?;
    // As long as the process lives.
    let port: &Port<()> = Box::leak(Box::new(port));
    Ok(service.tasks.get_or_init(|| port.raw().file_tasks()))
}

/// The direction and the program's memory of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) is_read: bool,
    pub(crate) place: *mut u8,
    pub(crate) count: usize,
}

impl Transfer {
    /// Checks the access rights of the file.
    pub(crate) fn check(&self, file: &File) -> Result<(), u32> {
        let may = if self.is_read { file.terms.reads } else { file.terms.writes };
        if !may {
            return Err(code::ACCESS_DENIED);
        }
        if self.place.is_null() && self.count > 0 {
            return Err(code::NOACCESS);
        }
        Ok(())
    }

    /// Whether it is aligned as unbuffered transfers require.
    pub(crate) fn is_aligned(&self, offset: u64) -> bool {
        offset.is_multiple_of(BLOCK as u64)
            && self.count.is_multiple_of(BLOCK)
            && self.place.addr().is_multiple_of(BLOCK)
    }

    /// Its status, if the system has reported no error.
    pub(crate) fn ended_well(&self, file: &File, bytes: usize) -> u32 {
        if !self.is_read || bytes > 0 || self.count == 0 {
            status::SUCCESS
        } else if file.has_positions() {
            status::END_OF_FILE
        } else if file.is_pipe() {
            status::PIPE_BROKEN
        } else {
            // End of typed input.
            status::SUCCESS
        }
    }

    /// Performs it in the calling thread, which blocks; at `position`, or at the file's position.
    /// Returns the number of bytes and the status.
    pub(crate) fn perform(&self, file: &File, position: Option<i64>) -> (usize, u32) {
        let position = position.filter(|_| file.has_positions());
        let mut done = 0;
        let mut signals = Signals::default();
        while done < self.count {
            let place = self.place.wrapping_add(done).cast::<c_void>();
            let count = (self.count - done).min(MOST);
            let descriptor = file.descriptor();
            let at = position.map(|from| from.saturating_add_unsigned(done as u64));
            let call = || match (self.is_read, at) {
                // SAFETY: pread(2) writes at most `count` bytes at the pointer.
                // - valid for writes: the program lends the memory to this call, as `cp_read_file`
                //   demands.
                (true, Some(at)) => unsafe { libc::pread(descriptor, place, count, at) },
                // SAFETY: as for pread(2).
                (true, None) => unsafe { libc::read(descriptor, place, count) },
                // SAFETY: pwrite(2) reads `count` bytes at the pointer.
                // - valid for reads: the program lends the memory to this call, as `cp_write_file`
                //   demands.
                (false, Some(at)) => unsafe { libc::pwrite(descriptor, place, count, at) },
                // SAFETY: as for pwrite(2).
                (false, None) => unsafe { libc::write(descriptor, place, count) },
            };
            // A pipe may have lost its reader.
            let came = if file.is_plain() { call() } else { without_signal(call) };
            match usize::try_from(came) {
                Ok(0) if self.is_read => break,
                Ok(0) => return (done, status::of_file(libc::EIO)),
                Ok(came) => done += came,
                Err(_) if signals.ended(errno()) => continue,
                Err(_) => return (done, status::of_file(errno())),
            }
            if self.is_read && !file.is_plain() {
                // Returns the data that is available.
                break;
            }
        }
        (done, self.ended_well(file, done))
    }
}

/// The destination of a file operation's packet.
pub(crate) enum Packet {
    /// No packet.
    None,
    /// This port, with this key.
    To(Arc<CompletionPort>, usize),
    /// The operation began without an association.
    Later(Arc<Later>),
}

/// Ends, through `end`, an operation that began without an association. Returns the port and key for its packet.
pub(crate) fn port_of_later(
    later: &Later,
    end: impl FnOnce(),
) -> Option<(Arc<CompletionPort>, usize)> {
    let (port, key) = later.get(end)?;
    Some((handles::port_named(port)?, key))
}

/// The recipients of the end of a file operation.
pub(crate) struct Recipients {
    pub(crate) overlapped: NonNull<Overlapped>,
    pub(crate) file: Arc<File>,
    pub(crate) event: Option<Arc<Waitable>>,
    /// Without an event: the handle itself is signalled.
    pub(crate) signal: Option<Arc<Waitable>>,
    pub(crate) packet: Packet,
}

// SAFETY: recipients may be used by a thread other than their creator, although they have a pointer.
// - the OVERLAPPED is only written, with atomic stores, and the program keeps it valid until it has
//   seen the end, as `cp_read_file` and `cp_write_file` demand.
unsafe impl Send for Recipients {}

impl Recipients {
    pub(crate) fn overlapped(&self) -> &Overlapped {
        // SAFETY: a shared reference demands a value that lives on and changes only as its type
        // allows.
        // - lives on: the program keeps it valid until it has seen the end, after which this is not
        //   called;
        // - not changed: the words that are written are atomic.
        unsafe { self.overlapped.as_ref() }
    }

    /// The operation has ended: reports it. Stores `bytes` first, then the status.
    pub(crate) fn tell(self, ended: u32, bytes: u32, has_packet: bool) {
        let overlapped = self.overlapped;
        self.overlapped().bytes.store(bytes as usize, Relaxed);
        let Self { file, event, signal, packet, .. } = self;
        // First, so that a closed file is really closed when the program learns of its last
        // operation's end.
        drop(file);
        // SAFETY: as in `overlapped`.
        let end = || unsafe { overlapped.as_ref() }.status.store(ended as usize, Release);
        let packet = match packet {
            Packet::Later(later) => port_of_later(&later, end),
            Packet::To(port, key) => {
                end();
                Some((port, key))
            }
            Packet::None => {
                end();
                None
            }
        };
        // From here on the program may have freed it.
        if let Some(event) = event {
            event.set();
        }
        if let Some(signal) = signal {
            signal.set();
        }
        wake_waiting(overlapped.as_ptr());
        if let Some((port, key)) = packet.filter(|_| has_packet) {
            // Fails if the port was closed meanwhile, or if there is no memory.
            let _ = port.post_end(bytes, key, overlapped.as_ptr().cast::<c_void>(), ended);
        }
    }
}

/// An operation that the file engine performs.
pub(crate) struct FileOperation {
    pub(crate) recipients: Recipients,
    pub(crate) transfer: Transfer,
    /// How many bytes the calling thread has read before.
    pub(crate) before: usize,
}

// SAFETY: the operation may be used by a thread other than its creator, although it has a pointer.
// - the memory is the operation's until its end, as `cp_read_file` and `cp_write_file` demand.
unsafe impl Send for FileOperation {}

// SAFETY: the parts are always the same memory, which is not that of the value: it does not move
// with the value, and is valid until the operation ends, as `cp_read_file` and `cp_write_file`
// demand.
unsafe impl Buffer for FileOperation {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        let Transfer { is_read: false, place, count } = self.transfer else { return };
        if count > 0 {
            // SAFETY: a slice from a pointer demands that many bytes there, which are not written
            // to meanwhile.
            // - the program lends them to the operation until its end, and does not write to them.
            part(unsafe { std::slice::from_raw_parts(place, count) });
        }
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        let Transfer { is_read: true, place, count } = self.transfer else { return };
        if let Some(left) = count.checked_sub(self.before).filter(|left| *left > 0) {
            let place = place.wrapping_add(self.before).cast();
            // SAFETY: a slice from a pointer demands that many bytes there, which nothing else uses
            // meanwhile.
            // - the program lends them to the operation until its end.
            part(unsafe { std::slice::from_raw_parts_mut(place, left) });
        }
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

impl FileTask for FileOperation {
    fn end(self, end: FileEnd) {
        let Self { recipients, transfer, before } = self;
        let bytes = before + end.bytes;
        let ended = match end.error {
            _ if end.is_cancelled => status::CANCELLED,
            Some(error) => status::of_file(error.os_code().unwrap_or(libc::ENOMEM)),
            None => transfer.ended_well(&recipients.file, bytes),
        };
        recipients.file.lock().operations.remove(&recipients.overlapped.as_ptr().addr());
        recipients.tell(ended, u32::try_from(bytes).unwrap_or(u32::MAX), true);
    }
}

/// The file engine's tasks: an operation of the program, or a part of a file to be sent over a
/// socket.
pub(crate) enum EngineTask {
    FileOperation(FileOperation),
    Fetching(Fetching),
}

// SAFETY: in both cases the parts are always the same memory, which does not move with the value,
// as each states.
unsafe impl Buffer for EngineTask {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        match self {
            Self::FileOperation(operation) => operation.filled(part),
            Self::Fetching(fetching) => fetching.filled(part),
        }
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        match self {
            // SAFETY: `room` demands that only initialized bytes are written to the parts.
            // - the caller guarantees it.
            Self::FileOperation(operation) => unsafe { operation.room(part) },
            // SAFETY: as above.
            Self::Fetching(fetching) => unsafe { fetching.room(part) },
        }
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

impl FileTask for EngineTask {
    fn end(self, end: FileEnd) {
        match self {
            Self::FileOperation(operation) => operation.end(end),
            Self::Fetching(fetching) => fetching.end(end),
        }
    }
}

/// A part of a file that the file engine reads. Dropping this before the end cancels the read.
pub(crate) struct Fetch {
    id: FileTaskId,
    awaited: Arc<Awaited>,
}

impl Fetch {
    /// Starts reading that many bytes of a file, or a few more. `wake` is called at the end, by the
    /// calling thread or by another one that holds no lock. `None` if it cannot start now.
    pub(crate) fn begin(
        file: &Arc<File>,
        offset: i64,
        size: usize,
        wake: impl FnOnce() + Send + 'static,
    ) -> Option<Self> {
        let tasks = tasks().ok()?;
        let (fetching, from, awaited) = Fetching::new(offset, size, wake);
        let id = tasks.name();
        let work = (FileWork::Read, from);
        tasks.start(id, file, work, EngineTask::Fetching(fetching)).ok()?;
        Some(Self { id, awaited })
    }

    /// The part, or the error of its read; `None` while it is being read.
    pub(crate) fn take(&self) -> Option<Result<Part, c_int>> {
        self.awaited.take()
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        if self.awaited.give_up()
            && let Ok(tasks) = tasks()
        {
            tasks.cancel(self.id);
        }
    }
}

/// Hands an operation over to the file engine.
pub(crate) fn hand_over(
    tasks: &FileTasks<'_, EngineTask>,
    what: (FileWork, u64),
    operation: FileOperation,
) -> Result<Begun, u32> {
    let file = Arc::clone(&operation.recipients.file);
    let address = operation.recipients.overlapped.as_ptr().addr();
    let id = tasks.name();
    let mut state = file.lock();
    // The thread that closes the handle first sets this, then cancels the operations it finds.
    let in_flight = InFlight { id, thread: this_thread(), is_cancelled: state.is_closed };
    state.operations.insert(address, in_flight);
    drop(state);
    // The file is not locked: this thread itself may report the end.
    if let Err(refused) = tasks.start(id, &file, what, EngineTask::FileOperation(operation)) {
        let (error, task) = refused.into_parts();
        file.lock().operations.remove(&address);
        if let EngineTask::FileOperation(operation) = task {
            operation.recipients.overlapped().status.store(status::UNSUCCESSFUL as usize, Release);
        }
        return Err(error.os_code().map_or_else(
            || code_of(error),
            |errno| status::code_in_win32(status::of_file(errno)),
        ));
    }
    let is_cancelled = |it: &InFlight| it.id == id && it.is_cancelled;
    if file.lock().operations.get(&address).is_some_and(is_cancelled) {
        // A thread tried to cancel it too early, or the last handle was closed.
        tasks.cancel(id);
    }
    Ok(Begun::Pending)
}

/// Cancels operations of a file: one by its OVERLAPPED or all, those of a thread or of any. Returns
/// their number.
pub(crate) fn cancel(file: &File, address: Option<usize>, thread: Option<u64>) -> usize {
    if file.is_inherited() {
        return 0;
    }
    let cancel = |operation: &mut InFlight| {
        operation.is_cancelled = true;
        operation.id
    };
    let meant: Vec<FileTaskId> = {
        let operations = &mut file.lock().operations;
        match address {
            Some(address) => operations.get_mut(&address).map(cancel).into_iter().collect(),
            None => {
                let all = operations.values_mut();
                let own = all.filter(|it| thread.is_none_or(|wanted| it.thread == wanted));
                own.map(cancel).collect()
            }
        }
    };
    if let Ok(tasks) = tasks() {
        meant.iter().for_each(|id| tasks.cancel(*id));
    }
    meant.len()
}

/// The handle of a file was closed.
pub(crate) fn let_go(file: &File) {
    if !file.has_positions() && !file.is_inherited() {
        // It might never end.
        file.lock().is_closed = true;
        cancel(file, None, None);
    }
}
