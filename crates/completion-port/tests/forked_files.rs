//! Rule 32: a forked child performs file operations, whatever another thread of its parent had
//! locked while it started or exited.
//!
//! Each thread takes a lock of the standard library when it starts and when it exits. A fork rarely
//! happens while a thread holds it. So in this test the allocator stops a thread of the parent in
//! each allocation of its start and of its exit, one after the other.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::alloc::{GlobalAlloc, Layout, System as Plain};
use std::cell::Cell;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst};
use std::thread;

use completion_port::{Batch, FileEngine, FileSource, Operation, Packet, Port};
use testkit::{SOON, System, in_forked_child};

/// An allocator that can stop a thread in a given call.
struct Stopping;

#[global_allocator]
static ALLOCATOR: Stopping = Stopping;

/// How many more allocator calls the thread makes before the one that stops it.
static BEFORE: AtomicU32 = AtomicU32::new(0);
/// A thread stops in its start only if it starts while this is set.
static STOPS_BEGINNERS: AtomicBool = AtomicBool::new(false);
static HAS_STOPPED: AtomicBool = AtomicBool::new(false);
static MAY_GO_ON: AtomicBool = AtomicBool::new(false);
/// The thread's kernel id, once it has started.
static ITS_NUMBER: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// The state of the thread: `ENDS` while it exits, `IS_OLD` once it has started.
    static ENDS: Cell<bool> = const { Cell::new(false) };
    static IS_OLD: Cell<bool> = const { Cell::new(false) };
}

/// Counts an allocator call, and stops in the chosen one.
fn step() {
    let counts = ENDS.get() || (STOPS_BEGINNERS.load(SeqCst) && !IS_OLD.get());
    if !counts || HAS_STOPPED.load(SeqCst) {
        return;
    }
    if BEFORE.fetch_sub(1, SeqCst) == 0 {
        HAS_STOPPED.store(true, SeqCst);
        while !MAY_GO_ON.load(SeqCst) {
            thread::yield_now();
        }
    }
}

// SAFETY: each call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Stopping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        step();
        // SAFETY: the caller's promises are those of the system allocator.
        unsafe { Plain.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        step();
        // SAFETY: the caller's promises are those of the system allocator.
        unsafe { Plain.dealloc(place, layout) }
    }
}

/// Returns whether `engine` performs file operations for a port of the calling process.
fn does_files(file: File, engine: FileEngine) -> bool {
    let made = Port::builder().file_engine(engine).build::<FileSource<File>, ()>();
    let Ok(own) = made else { return false };
    let Ok(mut token) = own.associate(FileSource::new(file)) else { return false };
    let mut batch = Batch::new();
    for operation in [Operation::write_at(b"page".to_vec(), 0), Operation::sync_data()] {
        if token.start(operation).is_err() {
            return false;
        }
        let Ok(mut packets) = own.wait(&mut batch, SOON) else { return false };
        let Some(Packet::Completed(done)) = packets.next() else { return false };
        let (back, outcome) = done.into_parts();
        if outcome.error().is_some() {
            return false;
        }
        token = back;
    }
    true
}

/// Forks while a thread is in allocator call number `before` of its start or exit. Returns false if
/// it makes fewer calls.
fn forks_beside(before: u32, in_end: bool, file: &File) -> bool {
    BEFORE.store(before, SeqCst);
    HAS_STOPPED.store(false, SeqCst);
    MAY_GO_ON.store(false, SeqCst);
    ITS_NUMBER.store(0, SeqCst);
    STOPS_BEGINNERS.store(!in_end, SeqCst);
    let builder = thread::Builder::new().name("a name that lies on the heap".to_owned());
    let other = builder
        .spawn(move || {
            IS_OLD.set(true);
            // SAFETY: gettid(2) has no requirements.
            ITS_NUMBER.store(unsafe { libc::gettid() }, SeqCst);
            ENDS.set(in_end);
        })
        .unwrap();
    // Whether the thread has made all its calls: it has started, or it is gone.
    let is_over = || match ITS_NUMBER.load(SeqCst) {
        0 => false,
        number => !in_end || !Path::new(&format!("/proc/self/task/{number}")).exists(),
    };
    while !HAS_STOPPED.load(SeqCst) && !is_over() {
        thread::yield_now();
    }
    let has_stopped = HAS_STOPPED.load(SeqCst);
    STOPS_BEGINNERS.store(false, SeqCst);
    if has_stopped {
        for engine in [FileEngine::Automatic, FileEngine::Threads] {
            let file = file.try_clone().unwrap();
            let status = in_forked_child(|| u8::from(!does_files(file, engine)));
            assert_eq!(status, 0, "{engine:?}, behind {before} calls, in its end: {in_end}");
        }
    }
    MAY_GO_ON.store(true, SeqCst);
    other.join().unwrap();
    has_stopped
}

#[test]
fn a_child_does_operations_on_files_whatever_its_parents_threads_had_locked() {
    IS_OLD.set(true);
    let file = System::native().file(b"page");
    let file = File::from(file.descriptor().try_clone_to_owned().unwrap());
    for in_end in [false, true] {
        let calls = (0..).take_while(|before| forks_beside(*before, in_end, &file)).count();
        println!("{calls} calls, in its end: {in_end}");
        assert!(calls > 0, "in its end: {in_end}");
    }
}
