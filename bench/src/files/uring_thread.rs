//! `io_uring` in a dedicated thread, for programs in which no other thread may wait for a disk: one
//! thread hands reads over and takes their results.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};
use rustix::event::{EventfdFlags, eventfd};

use super::plan::Plan;
use super::scratch::{Memory, PAGE, Scratch, Way};
use super::{IN_FLIGHT, Reader, uring};

/// The name of what wakes the thread, which no place has.
const WAKE: u64 = IN_FLIGHT as u64;

#[allow(clippy::cast_possible_truncation, reason = "far below 2^32")]
const LENGTH: u32 = PAGE as u32;

/// Requests to the thread.
#[derive(Default)]
struct Inbox {
    reads: Vec<Memory>,
    /// The thread looks here before it next sleeps.
    is_awake: bool,
    is_over: bool,
}

struct Desk {
    inbox: Mutex<Inbox>,
    /// An eventfd, which the ring reads.
    wake: File,
}

impl Desk {
    fn new() -> io::Result<Desk> {
        // A read of it by the ring waits.
        let wake = File::from(eventfd(0, EventfdFlags::CLOEXEC)?);
        Ok(Desk { inbox: Mutex::default(), wake })
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds requests, and wakes the thread once, whatever their number.
    fn hand(&self, change: impl FnOnce(&mut Inbox)) -> io::Result<()> {
        let mut inbox = self.lock();
        change(&mut inbox);
        let is_awake = std::mem::replace(&mut inbox.is_awake, true);
        drop(inbox);
        if is_awake { Ok(()) } else { (&self.wake).write_all(&1_u64.to_ne_bytes()) }
    }
}

type Ended = (Memory, io::Result<usize>);

struct ByThread {
    desk: Arc<Desk>,
    ended: Receiver<Ended>,
    /// Memory that no read has.
    idle: Vec<Memory>,
    thread: Option<JoinHandle<()>>,
}

pub(super) fn build(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    let (desk, file) = (Arc::new(Desk::new()?), scratch.open(way)?);
    let ((tell, ended), (say, heard)) = (channel(), channel());
    let share = Arc::clone(&desk);
    let run = move || {
        // A ring is made by the only thread that submits to it.
        let pilot = Pilot::new(&share, file, tell);
        let (pilot, error) = match pilot {
            Ok(pilot) => (Some(pilot), None),
            Err(error) => (None, Some(error)),
        };
        // If nobody hears it, nobody hands anything over.
        let _: Result<(), _> = say.send(error);
        if let Some(pilot) = pilot {
            pilot.run();
        }
    };
    let thread = Some(thread::Builder::new().name("ring".to_owned()).spawn(run)?);
    let idle = (0..IN_FLIGHT).map(|_| Memory::new()).collect();
    let reader = ByThread { desk, ended, idle, thread };
    match heard.recv() {
        Ok(None) => Ok(Box::new(reader)),
        Ok(Some(error)) => Err(error),
        Err(gone) => Err(io::Error::other(gone)),
    }
}

impl Reader for ByThread {
    fn read(&mut self, plan: &mut Plan) -> io::Result<()> {
        let mut reads = Vec::with_capacity(IN_FLIGHT);
        loop {
            while let Some(mut memory) = self.idle.pop() {
                if !plan.aim(&mut memory) {
                    self.idle.push(memory);
                    break;
                }
                reads.push(memory);
            }
            if !reads.is_empty() {
                self.desk.hand(|inbox| inbox.reads.append(&mut reads))?;
            } else if self.idle.len() == IN_FLIGHT {
                return Ok(());
            }
            let first = self.ended.recv().map_err(io::Error::other)?;
            for (memory, count) in std::iter::once(first).chain(self.ended.try_iter()) {
                plan.check(&memory, count?)?;
                self.idle.push(memory);
            }
        }
    }
}

impl Drop for ByThread {
    fn drop(&mut self) {
        // Without a wake the thread would never end.
        if self.desk.hand(|inbox| inbox.is_over = true).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _: Result<(), _> = thread.join();
        }
    }
}

/// The ring's thread.
struct Pilot<'d> {
    desk: &'d Desk,
    file: File,
    ring: IoUring,
    /// The memory that the kernel has.
    aboard: [Option<Memory>; IN_FLIGHT],
    free: Vec<usize>,
    /// Where the kernel stores the value of the eventfd.
    wakes: Box<u64>,
    tell: Sender<Ended>,
}

impl Pilot<'_> {
    fn new(desk: &Desk, file: File, tell: Sender<Ended>) -> io::Result<Pilot<'_>> {
        Ok(Pilot {
            desk,
            file,
            ring: uring::ring(IN_FLIGHT + 1)?,
            aboard: [const { None }; IN_FLIGHT],
            free: (0..IN_FLIGHT).collect(),
            wakes: Box::new(0),
            tell,
        })
    }

    /// Runs until everything has ended, and the kernel uses none of this thread's memory.
    fn run(mut self) {
        self.listen();
        let mut is_listening = true;
        loop {
            let (reads, is_over) = {
                let mut inbox = self.desk.lock();
                inbox.is_awake = false;
                (std::mem::take(&mut inbox.reads), inbox.is_over)
            };
            for memory in reads {
                self.submit(memory);
            }
            if is_over && !is_listening && self.free.len() == IN_FLIGHT {
                return;
            }
            if !is_listening && !is_over {
                self.listen();
                is_listening = true;
            }
            self.ring.submit_and_wait(1).expect("the kernel accepts submissions");
            let ended: Vec<(u64, i32)> =
                self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
            for (name, result) in ended {
                match usize::try_from(name) {
                    Ok(place) if place < IN_FLIGHT => self.end(place, result),
                    _ => is_listening = false,
                }
            }
        }
    }

    fn push(&mut self, entry: &Entry) {
        // SAFETY: everything the request refers to must be valid until it ends.
        // - each caller explains why.
        unsafe { self.ring.submission().push(entry) }.expect("there is an entry for each place");
    }

    fn listen(&mut self) {
        let place: *mut u64 = &raw mut *self.wakes;
        let wake = types::Fd(self.desk.wake.as_raw_fd());
        // The counter is on the heap, nothing looks at it, and this thread does not end before the kernel has written there.
        self.push(&opcode::Read::new(wake, place.cast(), 8).build().user_data(WAKE));
    }

    fn submit(&mut self, mut memory: Memory) {
        let place = self.free.pop().expect("no more are handed over");
        let offset = memory.offset;
        let pointer = memory.bytes_mut().as_mut_ptr();
        let file = types::Fd(self.file.as_raw_fd());
        let read = opcode::Read::new(file, pointer, LENGTH).offset(offset).build();
        // The memory is on the heap, and stays in its place, which nothing touches until the completion has been taken. The file
        // is open as long as this thread runs, which is until the last completion.
        self.aboard[place] = Some(memory);
        self.push(&read.user_data(place as u64));
    }

    fn end(&mut self, place: usize, result: i32) {
        let Some(memory) = self.aboard[place].take() else { return };
        self.free.push(place);
        let count = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        // If nobody takes it, the reader is gone.
        let _: Result<(), _> = self.tell.send((memory, count));
    }
}
