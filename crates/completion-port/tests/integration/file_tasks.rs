//! File operations that end by a call instead of a packet, with either file engine.

// The files are given by descriptor, closed behind the port's back, and shared with a forked child.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use completion_port::raw::{FileEnd, FileTask, FileTasks, FileWork, OpenFile, ReadNow};
use completion_port::{Batch, Buffer, ErrorKind, FileEngine, Port};
use testkit::SOON;

const ENGINES: [FileEngine; 2] = [FileEngine::Automatic, FileEngine::Threads];

struct Opened {
    file: File,
    has_positions: bool,
}

impl OpenFile for Opened {
    fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    fn has_positions(&self) -> bool {
        self.has_positions
    }
}

/// Bytes that report how their operation ended, or that they were dropped instead.
struct Bytes(Vec<u8>, Sender<(Option<FileEnd>, Vec<u8>)>);

// SAFETY: `Buffer` requires memory that stays in place when the value is moved.
// - the memory is the vector's, on the heap.
unsafe impl Buffer for Bytes {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        part(&self.0);
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        part(self.0.spare_capacity_mut());
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

impl FileTask for Bytes {
    fn end(mut self, end: FileEnd) {
        let mut bytes = std::mem::take(&mut self.0);
        if bytes.is_empty() {
            // SAFETY: `set_len` requires that many initialized elements within the capacity.
            // - the system has read that many bytes into the spare capacity.
            unsafe { bytes.set_len(end.bytes) };
        }
        let _ = self.1.send((Some(end), bytes));
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let _ = self.1.send((None, Vec::new()));
    }
}

struct World<'p> {
    tasks: FileTasks<'p, Bytes>,
    sender: Sender<(Option<FileEnd>, Vec<u8>)>,
    receiver: Receiver<(Option<FileEnd>, Vec<u8>)>,
}

fn port_with(engine: FileEngine) -> Port<()> {
    Port::builder().file_engine(engine).build().unwrap()
}

impl<'p> World<'p> {
    fn new(port: &'p Port<()>) -> Self {
        let (sender, receiver) = channel();
        Self { tasks: port.raw().file_tasks(), sender, receiver }
    }

    fn bytes(&self, bytes: impl Into<Vec<u8>>) -> Bytes {
        Bytes(bytes.into(), self.sender.clone())
    }

    /// Returns the end of the next operation, and its bytes. Checks that the task is dropped
    /// afterwards.
    fn end(&self) -> (FileEnd, Vec<u8>) {
        let (end, bytes) = self.receiver.recv_timeout(SOON).unwrap();
        assert_eq!(self.receiver.recv_timeout(SOON).unwrap(), (None, Vec::new()));
        (end.unwrap(), bytes)
    }
}

fn well(bytes: usize) -> FileEnd {
    FileEnd { bytes, error: None, is_cancelled: false }
}

fn scratch(name: &str) -> (PathBuf, Arc<Opened>) {
    let name = format!("completion-port-{name}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    (path, Arc::new(Opened { file, has_positions: true }))
}

fn pipe() -> (Arc<Opened>, File) {
    let mut ends = [0; 2];
    // SAFETY: pipe2(2) writes two descriptors at the pointer.
    // - valid for writes: it points to a local array of two.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: `from_raw_fd` requires a descriptor without another owner.
    // - pipe2 has just created both.
    let [reader, writer] = ends.map(|end| File::from(unsafe { OwnedFd::from_raw_fd(end) }));
    (Arc::new(Opened { file: reader, has_positions: false }), writer)
}

#[test]
fn file_tasks_read_and_write_and_call_their_ends_without_a_packet() {
    for engine in ENGINES {
        let port = port_with(engine);
        let world = World::new(&port);
        let (path, file) = scratch("file-tasks");
        for (work, offset, text) in [
            (FileWork::Write, 0, "hello"),
            (FileWork::Write, 5, " there"),
            (FileWork::Append, 7, ", and more"),
        ] {
            let tasks = &world.tasks;
            tasks.start(tasks.name(), &file, (work, offset), world.bytes(text)).unwrap();
            assert_eq!(world.end(), (well(text.len()), text.into()));
        }
        let whole = b"hello there, and more";
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        let room = world.bytes(Vec::with_capacity(64));
        world.tasks.start(world.tasks.name(), &file, (FileWork::Read, 6), room).unwrap();
        assert_eq!(world.end(), (well(whole.len() - 6), whole[6..].into()));
        let mut room = [MaybeUninit::new(0); 8];
        let (came, now) = world.tasks.read_now(&*file, 16, &mut room);
        assert!(matches!((came, now), (5, ReadNow::Done) | (0, ReadNow::Never | ReadNow::Waits)));
        assert_eq!(world.tasks.read_now(&*file, 100, &mut room).0, 0);
        let reader = Arc::new(Opened { file: File::open(&path).unwrap(), has_positions: true });
        let bytes = world.bytes("refused");
        world.tasks.start(world.tasks.name(), &reader, (FileWork::Write, 0), bytes).unwrap();
        let (end, _) = world.end();
        assert_eq!(end.error.unwrap().os_code(), Some(libc::EBADF));
        let mut batch = Batch::new();
        assert!(!port.raw().has_packets(&mut batch).unwrap());
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_file_task_that_is_cancelled_ends_once() {
    let port = port_with(FileEngine::Automatic);
    let world = World::new(&port);
    let with_ring: completion_port::Result<Port<()>> =
        Port::builder().file_engine(FileEngine::Ring).build();
    if with_ring.is_err() {
        // A thread can't cancel what it has begun.
        return;
    }
    for writes in [false, true] {
        let (reader, mut writer) = pipe();
        let id = world.tasks.name();
        let room = world.bytes(Vec::with_capacity(8));
        world.tasks.start(id, &reader, (FileWork::Read, 0), room).unwrap();
        if writes {
            writer.write_all(b"x").unwrap();
        }
        world.tasks.cancel(id);
        world.tasks.cancel(id);
        let (end, _) = world.end();
        assert_eq!(end.is_cancelled, end.bytes == 0);
        assert!(writes || end.is_cancelled);
    }
}

#[test]
fn file_tasks_that_nobody_waits_for_are_dropped_at_their_ends() {
    for engine in ENGINES {
        let port = port_with(engine);
        let World { tasks, sender, receiver } = World::new(&port);
        let (reader, mut writer) = pipe();
        let room = Bytes(Vec::with_capacity(8), sender);
        tasks.start(tasks.name(), &reader, (FileWork::Read, 0), room).unwrap();
        drop(tasks);
        writer.write_all(b"x").unwrap();
        assert_eq!(receiver.recv_timeout(SOON).unwrap(), (None, Vec::new()));
        // Dropping the port waits for no task.
        let tasks = port.raw().file_tasks();
        let (sender, receiver) = channel();
        let room = Bytes(Vec::with_capacity(8), sender);
        tasks.start(tasks.name(), &reader, (FileWork::Read, 0), room).unwrap();
        drop(tasks);
        drop(port);
        writer.write_all(b"y").unwrap();
        assert_eq!(receiver.recv_timeout(SOON).unwrap(), (None, Vec::new()));
    }
}

#[test]
fn a_forked_child_starts_no_file_task() {
    if !testkit::in_a_process_of_its_own("file_tasks::a_forked_child_starts_no_file_task") {
        return;
    }
    let port = port_with(FileEngine::Automatic);
    let world = World::new(&port);
    let (path, file) = scratch("file-tasks-forked");
    let is_refused = testkit::in_forked_child(|| {
        let start =
            world.tasks.start(world.tasks.name(), &file, (FileWork::Read, 0), world.bytes(""));
        u8::from(start.is_err_and(|refused| refused.error().kind() == ErrorKind::Forked))
    });
    assert_eq!(is_refused, 1);
    std::fs::remove_file(path).unwrap();
}
