//! Functions of the program that threads of this library call, either when operations end (`BindIoCompletionCallback`,
//! `CreateThreadpoolIo`) or at the program's request (`QueueUserWorkItem`).
//!
//! The descriptor is associated with a port that belongs to the library and at which its threads wait, so these are ordinary
//! packets. As many threads run as there are processors, and one more for each that blocks. A function may begin operations,
//! run for long, and wait for another function: [`PoolSize`] decides how many threads there are.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::{Entry, Handle};
use crate::errors::{code, guarded, set_last, succeeds};
use crate::handles::{self, open_port, usable_port};
use crate::linux::associations::Counts;
use crate::linux::pool_size::PoolSize;
use crate::linux::process::Own;
use crate::linux::status::code_in_win32;
use crate::linux::waiting;
use crate::linux::words::{ANY, wait_while, wake};
use crate::linux::{associations, descriptors, driver, numbers, object};
use crate::taking::Changed;

/// `LPOVERLAPPED_COMPLETION_ROUTINE`.
pub type Routine = unsafe extern "C" fn(u32, u32, *mut c_void);
/// `LPTHREAD_START_ROUTINE`.
pub type WorkFunction = unsafe extern "C" fn(*mut c_void) -> u32;
/// `PTP_WIN32_IO_CALLBACK`.
pub type Callback =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, u32, usize, *mut c_void);

/// The meaning of a packet of the port: the key is the address of one of these.
#[derive(Debug)]
enum Binding {
    Routine(Routine),
    Io(Io),
    /// The packet's pointer is a [`Work`].
    Work,
}

/// A request of `QueueUserWorkItem`.
struct Work {
    function: WorkFunction,
    context: *mut c_void,
}

/// `TP_IO`.
#[derive(Debug)]
struct Io {
    callback: Callback,
    context: *mut c_void,
    /// Announced operations whose calls have not returned, plus one until it is closed.
    shares: AtomicUsize,
    /// Packets that are queued, or whose calls have not returned.
    calls: AtomicU32,
    /// Threads waiting for those.
    waiting: AtomicUsize,
    /// The handle whose operations it reports, and the [identity](descriptors::identity) of its
    /// socket; 0 for a file.
    file: usize,
    identity: u64,
}

impl Io {
    /// Operations in flight that no thread has cancelled.
    fn idle(&self) -> usize {
        let file: Handle = std::ptr::without_provenance_mut(self.file);
        if let Ok(file) = object::file(file) {
            return file.lock().operations.values().filter(|it| !it.is_cancelled).count();
        }
        let Ok(descriptor) = RawFd::try_from(self.file) else { return 0 };
        let Some(number) = numbers::find(descriptor) else { return 0 };
        let state = number.lock();
        if descriptors::identity(descriptor) != self.identity {
            // It is closed.
            return 0;
        }
        state.operations.values().filter(|it| !it.is_called_off).count()
    }
}

/// The maximum number of threads, until `QueueUserWorkItem` sets another one.
const MOST: usize = 500;
/// How long an idle thread stays, if there are more threads than at the start.
const REST: Duration = Duration::from_secs(20);

/// Of one process.
struct Pool {
    port: OnceLock<usize>,
    pool_size: PoolSize,
    /// One for each function. Never freed.
    routines: Mutex<Vec<&'static Binding>>,
}

static POOL: Own<Pool> = Own::new(begin_child);

fn pool() -> &'static Pool {
    POOL.get(|_| {
        Box::new(Pool {
            port: OnceLock::new(),
            pool_size: PoolSize::new(MOST),
            routines: Mutex::default(),
        })
    })
}

extern "C" fn begin_child() {
    POOL.pass_on();
}

/// The port, and the threads that wait there.
fn port() -> Result<Handle, u32> {
    let pool = pool();
    if let Some(port) = pool.port.get() {
        return Ok(std::ptr::without_provenance_mut(*port));
    }
    let _begins = pool.routines.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(port) = pool.port.get() {
        return Ok(std::ptr::without_provenance_mut(*port));
    }
    let port = open_port(0)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let address = port.addr();
    // If the system refuses to create one, the existing threads do the work.
    if (0..(2 * processors).max(4)).take_while(|_| pool.start_thread(address)).count() == 0 {
        let _ = handles::close(port);
        return Err(code::NO_SYSTEM_RESOURCES);
    }
    pool.pool_size.keep();
    let _ = usable_port(port)?.counts.set(count_call);
    let _ = pool.port.set(address);
    Ok(port)
}

impl Pool {
    /// Starts another thread, unless there are enough. Returns whether it was started.
    fn start_thread(&'static self, port: usize) -> bool {
        if !self.pool_size.add() {
            return false;
        }
        let was_started = driver::spawn("cp-pool", move || self.serve(port)).is_ok();
        if !was_started {
            self.pool_size.work();
            self.pool_size.remove();
        }
        was_started
    }

    /// Starts a thread if all are busy. A thread that takes work does this first, but the system
    /// may have refused, or the limit may have been raised since.
    fn reinforce(&'static self) {
        if let Some(port) = self.port.get()
            && self.pool_size.is_at_work()
        {
            self.start_thread(*port);
        }
    }

    /// Each thread's main loop.
    fn serve(&'static self, address: usize) {
        let handle: Handle = std::ptr::without_provenance_mut(address);
        let mut is_new = true;
        while let Ok(port) = usable_port(handle) {
            let mut entry =
                Entry { key: 0, overlapped: std::ptr::null_mut(), internal: 0, bytes: 0 };
            // It counts as waiting since it was to be started.
            if !std::mem::take(&mut is_new) {
                self.pool_size.rest();
            }
            // SAFETY: `take` demands room for that many entries.
            // - there is room for one.
            let taken =
                unsafe { waiting::take(&port, &raw mut entry, 1, Some(REST), Changed::AsAsked) };
            match taken {
                Ok(_) => {
                    // If the system refuses to start it, the next thread or the next work tries again.
                    let _ = self.pool_size.work() && self.start_thread(address);
                    drop(port);
                    call(&entry);
                }
                Err(code::WAIT_TIMEOUT) if self.pool_size.leave() => return,
                Err(code::WAIT_TIMEOUT) => {}
                Err(_) => {
                    self.pool_size.work();
                    self.pool_size.remove();
                    return;
                }
            }
        }
    }
}

fn call(entry: &Entry) {
    let binding = std::ptr::with_exposed_provenance::<Binding>(entry.key);
    // SAFETY: a shared reference demands a value that lives on and changes only as its type allows.
    // - lives on: keys of this port are addresses of bindings. One of a routine is never given up;
    //   one of an `Io` has a share for each operation, as `cp_start_pool_io` demands, which is
    //   given up below.
    let binding = unsafe { &*binding };
    let ended = code_in_win32(u32::try_from(entry.internal).unwrap_or(u32::MAX));
    match binding {
        // SAFETY: the routine demands the arguments that the reference passes.
        // - they are passed; the program guarantees that any thread may call it at any time.
        Binding::Routine(routine) => unsafe { routine(ended, entry.bytes, entry.overlapped) },
        Binding::Io(io) => {
            let (none, this) =
                (std::ptr::null_mut(), std::ptr::from_ref(binding).cast_mut().cast());
            // SAFETY: as above.
            unsafe {
                (io.callback)(
                    none,
                    io.context,
                    entry.overlapped,
                    ended,
                    entry.bytes as usize,
                    this,
                );
            };
            io.calls.fetch_sub(1, SeqCst);
            // SAFETY: `release` demands a share.
            // - that of this operation.
            unsafe { release(this) };
        }
        Binding::Work => {
            // SAFETY: `from_raw` demands a pointer of `into_raw` that is used nowhere else.
            // - only `queue_work` posts packets with this key, each with its own pointer.
            let work = unsafe { Box::from_raw(entry.overlapped.cast::<Work>()) };
            // SAFETY: the function demands the context that the program has given for it.
            // - it gets that; the program allows any thread to call it at any time.
            unsafe { (work.function)(work.context) };
        }
    }
}

/// A packet with this key, which leads to a call, is about to be queued, or was refused.
fn count_call(key: usize, is_queued: bool) {
    let binding = std::ptr::with_exposed_provenance::<Binding>(key);
    // SAFETY: as in `call`.
    if let Binding::Io(io) = unsafe { &*binding } {
        let change = if is_queued { 1 } else { u32::MAX };
        io.calls.fetch_add(change, SeqCst);
    }
}

/// `WT_EXECUTEINIOTHREAD`, `WT_EXECUTELONGFUNCTION`, `WT_EXECUTEINPERSISTENTTHREAD`, `WT_TRANSFER_IMPERSONATION`: these flags
/// have no effect.
const WORK_FLAGS: u32 = 0x01 | 0x10 | 0x80 | 0x100;
/// Above the flags: the maximum number of threads, unless it is 0.
const LIMIT_AT: u32 = 16;

/// Queues a function for the pool. Any thread may call it with this context.
pub(crate) fn queue_work(function: WorkFunction, context: *mut c_void) -> Result<(), u32> {
    static WORK: Binding = Binding::Work;
    let port = usable_port(port()?)?;
    let key = (&raw const WORK).expose_provenance();
    let work = Box::into_raw(Box::new(Work { function, context }));
    port.post_words(0, key, work.cast()).inspect_err(|_| {
        // SAFETY: `from_raw` demands a pointer of `into_raw` that is used nowhere else.
        // - it was just created, and the packet was refused.
        drop(unsafe { Box::from_raw(work) });
    })?;
    pool().reinforce();
    Ok(())
}

/// Queues a function for a thread of the library: `QueueUserWorkItem`.
///
/// # Safety
///
/// The function may be called with `context` from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_queue_work(
    function: Option<WorkFunction>,
    context: *mut c_void,
    flags: u32,
) -> c_int {
    succeeds(|| {
        let function = function.ok_or(code::INVALID_PARAMETER)?;
        if flags & !WORK_FLAGS & ((1 << LIMIT_AT) - 1) != 0 {
            return Err(code::INVALID_PARAMETER);
        }
        if flags >> LIMIT_AT != 0 {
            pool().pool_size.limit((flags >> LIMIT_AT) as usize);
        }
        queue_work(function, context)
    })
}

/// Calls a function at the end of each operation of a descriptor: `BindIoCompletionCallback`.
///
/// # Safety
///
/// The function may be called from any thread at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_bind_routine(
    file: Handle,
    routine: Option<Routine>,
    flags: u32,
) -> c_int {
    succeeds(|| {
        let routine = routine.filter(|_| flags == 0).ok_or(code::INVALID_PARAMETER)?;
        let port = usable_port(port()?)?;
        let mut routines = pool().routines.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |known: &&&Binding| matches!(known, Binding::Routine(it) if *it as usize == routine as usize);
        let binding = match routines.iter().find(is_it) {
            Some(known) => known,
            None => {
                routines.push(Box::leak(Box::new(Binding::Routine(routine))));
                routines[routines.len() - 1]
            }
        };
        let key = std::ptr::from_ref(binding).expose_provenance();
        associations::associate(file, &port, key)
    })
}

/// Creates an object that calls a function at the end of each operation of a descriptor:
/// `CreateThreadpoolIo`. Returns null on failure.
///
/// # Safety
///
/// As for [`cp_bind_routine`]; and with that `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_new_pool_io(
    file: Handle,
    callback: Option<Callback>,
    context: *mut c_void,
) -> *mut c_void {
    let make = || {
        let callback = callback.ok_or(code::INVALID_PARAMETER)?;
        let port = usable_port(port()?)?;
        let identity = RawFd::try_from(file.addr()).map_or(0, descriptors::identity);
        let io = Io {
            callback,
            context,
            shares: AtomicUsize::new(1),
            calls: AtomicU32::new(0),
            waiting: AtomicUsize::new(0),
            file: file.addr(),
            identity,
        };
        let made = Box::into_raw(Box::new(Binding::Io(io)));
        let key = made.expose_provenance();
        // An operation already in flight was not announced. It has no share, so its end would release another one.
        associations::associate_some(file, &port, key, Counts::ForLaterOnes).inspect_err(|_| {
            // SAFETY: `from_raw` demands a pointer of `into_raw` that is used nowhere else.
            // - it was just created, and nothing has it as its key.
            drop(unsafe { Box::from_raw(made) });
        })?;
        Ok(made.cast())
    };
    guarded(std::ptr::null_mut(), || {
        make().unwrap_or_else(|code| {
            set_last(code);
            std::ptr::null_mut()
        })
    })
}

/// The object behind a pointer of the program.
///
/// # Safety
///
/// It is one of [`cp_new_pool_io`], and the caller has a share of it as long as the reference
/// lives.
unsafe fn io<'i>(pointer: *mut c_void) -> Option<&'i Io> {
    // SAFETY: a shared reference demands a value that lives on and changes only as its type allows.
    // - lives on: the caller has a share;
    // - not changed: its count is atomic.
    match unsafe { pointer.cast::<Binding>().as_ref() } {
        Some(Binding::Io(io)) => Some(io),
        _ => None,
    }
}

/// Gives up a share.
///
/// # Safety
///
/// As for `io`; the share is used no more.
unsafe fn release(pointer: *mut c_void) {
    // SAFETY: `io` demands a pointer of this library and a share.
    // - the caller guarantees it.
    let Some(io) = (unsafe { io(pointer) }) else { return };
    // A waiting thread has a share as well, so the object can only be gone if no thread waits.
    let (is_awaited, calls) = (io.waiting.load(SeqCst) > 0, io.calls.as_ptr());
    let left = io.shares.fetch_sub(1, SeqCst) - 1;
    if is_awaited {
        wake(calls, i32::MAX, ANY);
    }
    if left == 0 {
        // SAFETY: `from_raw` demands a pointer of `into_raw` that is used nowhere else.
        // - no share is left.
        drop(unsafe { Box::from_raw(pointer.cast::<Binding>()) });
    }
}

/// An operation is about to begin: `StartThreadpoolIo`.
///
/// # Safety
///
/// `pointer` was made by [`cp_new_pool_io`], and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_start_pool_io(pointer: *mut c_void) {
    // SAFETY: `io` demands a pointer of this library and a share.
    // - the caller guarantees it; it is not closed.
    if let Some(io) = unsafe { io(pointer) } {
        io.shares.fetch_add(1, SeqCst);
        pool().reinforce();
    }
}

/// The operation was not started, or no packet reports it: `CancelThreadpoolIo`.
///
/// # Safety
///
/// As for [`cp_start_pool_io`], which was called for this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_cancel_pool_io(pointer: *mut c_void) {
    // SAFETY: `release` demands a share.
    // - that of the operation.
    unsafe { release(pointer) };
}

/// `CloseThreadpoolIo`: frees the object after its last operation.
///
/// # Safety
///
/// As for [`cp_start_pool_io`]; the pointer is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_close_pool_io(pointer: *mut c_void) {
    // SAFETY: as above.
    unsafe { release(pointer) };
}

/// How long a wait continues for announced operations whose state is unknown: they are about to
/// start, or are just ending.
const GRACE: Duration = Duration::from_secs(1);
/// The interval at which such a wait checks again.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until the callbacks of all finished operations have returned:
/// `WaitForThreadpoolIoCallbacks`. Does not wait for operations in flight.
///
/// # Safety
///
/// As for [`cp_start_pool_io`]; the calling thread is not in such a callback itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_wait_for_pool_io(pointer: *mut c_void) {
    // SAFETY: `io` demands a pointer of this library and a share.
    // - the caller guarantees it; it is not closed.
    let Some(io) = (unsafe { io(pointer) }) else { return };
    let began = Instant::now();
    io.waiting.fetch_add(1, SeqCst);
    loop {
        // In the order of an operation's stages.
        let announced = io.shares.load(SeqCst) - 1;
        let idle = io.idle();
        let calls = io.calls.load(SeqCst);
        if calls == 0 && (announced <= idle || began.elapsed() >= GRACE) {
            break;
        }
        wait_while(&io.calls, calls, (calls == 0).then_some(LOOK));
    }
    io.waiting.fetch_sub(1, SeqCst);
}

// SAFETY: a binding may be used by any thread, though it has a pointer.
// - the context is only handed to the callback, which may be called from any thread with it, as `cp_new_pool_io`
//   demands.
unsafe impl Send for Binding {}
// SAFETY: as above; the shared part is an atomic count.
unsafe impl Sync for Binding {}
