//! Model checks what an idle task and its program tell each other about edges without a lock: every
//! interleaving of two or three threads, within a bound on preemptions, under the C11 memory model.
//!
//! This crate compiles the port's `state/operations/edge_notes.rs` again, with loom's primitives
//! instead of the standard library's. What uses it has stand-ins with the same orders of events: of
//! the C library, the number with its lock, a receiver's task and the start of a receive
//! (`src/linux/receiving.rs`); a socket; and the queue of the port that tries the task, one attempt
//! at a time, after each edge for which work waits. The bound is three preemptions, or
//! `LOOM_MAX_PREEMPTIONS`.

// loom doesn't build elsewhere.
#![cfg(target_pointer_width = "64")]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use loom::sync::{Mutex, MutexGuard};
use loom::thread;

use crate::edge_notes::EdgeNotes;

#[path = "../../completion-port/src/state/operations/edge_notes.rs"]
mod edge_notes;

/// Replaces the port's `src/sync`.
mod sync {
    use std::cell::Cell;
    use std::sync::atomic::Ordering;

    use loom::sync::atomic::fence;

    loom::thread_local! {
        /// The thread's last access of a flag was a sequentially consistent store.
        static HAS_STORED: Cell<bool> = Cell::new(false);
    }

    /// For loom, sequential consistency of an access is no more than acquire and release. What it
    /// adds here is the order of a store before the same thread's next load. A fence between both
    /// replaces it, only if both demand it.
    #[derive(Debug)]
    pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

    impl AtomicBool {
        pub(crate) fn new(value: bool) -> Self {
            Self(loom::sync::atomic::AtomicBool::new(value))
        }

        pub(crate) fn store(&self, value: bool, ordering: Ordering) {
            self.0.store(value, ordering);
            HAS_STORED.with(|it| it.set(ordering == Ordering::SeqCst));
        }

        pub(crate) fn load(&self, ordering: Ordering) -> bool {
            if HAS_STORED.with(|it| it.replace(false)) && ordering == Ordering::SeqCst {
                fence(Ordering::SeqCst);
            }
            self.0.load(ordering)
        }
    }
}

/// What the number's lock guards: the receive that waits, by its name.
#[derive(Default)]
struct Number {
    waiting: Option<u32>,
}

/// The attempts at the task.
#[derive(Default)]
struct Attempts {
    /// A thread makes one.
    is_running: bool,
    /// An edge has come meanwhile.
    again: bool,
}

/// A socket with a receiver, whose task is idle. Each receive has room for one byte.
struct Socket {
    notes: EdgeNotes,
    number: Mutex<Number>,
    attempts: Mutex<Attempts>,
    /// How many bytes the kernel has.
    bytes: Mutex<u32>,
    /// The receives whose end was reported.
    ended: Mutex<Vec<u32>>,
}

impl Socket {
    /// The last read may have left data, or has shown that there is none.
    fn shared(may_be_ready: bool) -> Arc<Self> {
        let notes = EdgeNotes::new();
        notes.end_wait();
        if may_be_ready {
            notes.note_ready();
        }
        Arc::new(Self {
            notes,
            number: Mutex::default(),
            attempts: Mutex::default(),
            bytes: Mutex::new(0),
            ended: Mutex::default(),
        })
    }

    /// Returns whether there was a byte.
    fn read(&self) -> bool {
        let mut bytes = self.bytes.lock().unwrap();
        let is_there = *bytes > 0;
        *bytes -= u32::from(is_there);
        is_there
    }

    /// Bytes come, with an edge. As `OpQueues::notify_ready`.
    fn arrive(&self, count: u32) {
        *self.bytes.lock().unwrap() += count;
        let attempts = self.attempts.lock().unwrap();
        if attempts.is_running || self.notes.is_tried_at_edge() {
            self.try_task(attempts);
        }
    }

    /// The port tries the task, or has the thread do so that is trying it.
    fn try_task<'s>(&'s self, mut attempts: MutexGuard<'s, Attempts>) {
        if attempts.is_running {
            attempts.again = true;
            return;
        }
        attempts.is_running = true;
        loop {
            drop(attempts);
            self.attempt();
            attempts = self.attempts.lock().unwrap();
            if !std::mem::take(&mut attempts.again) {
                attempts.is_running = false;
                return;
            }
        }
    }

    /// As `Task::attempt`.
    fn attempt(&self) {
        while self.notes.edge() {
            let mut number = self.number.lock().unwrap();
            let Some(receive) = number.waiting else { return };
            self.notes.begin_attempt();
            if !self.read() {
                return;
            }
            number.waiting = None;
            self.notes.end_wait();
            drop(number);
            self.ended.lock().unwrap().push(receive);
        }
    }

    /// A receive begins, unless one waits. Returns whether it has begun.
    fn receive(&self, receive: u32) -> bool {
        let mut number = self.number.lock().unwrap();
        if number.waiting.is_some() {
            return false;
        }
        if self.notes.may_be_ready() {
            // As `try_next`.
            self.notes.begin_attempt();
            let is_done = self.read();
            if is_done {
                self.notes.note_ready();
                drop(number);
                self.ended.lock().unwrap().push(receive);
                return true;
            }
        }
        // As `Receiver::wait` and its callers.
        number.waiting = Some(receive);
        let may_be_ready = self.notes.wait();
        drop(number);
        if may_be_ready {
            self.try_task(self.attempts.lock().unwrap());
        }
        true
    }

    #[track_caller]
    fn assert_ended(&self, receives: &[u32]) {
        assert_eq!(*self.ended.lock().unwrap(), receives);
    }
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    if builder.preemption_bound.is_none() {
        builder.preemption_bound = Some(3);
    }
    builder.check(model);
}

/// Starts a thread that runs `act` on the socket.
fn spawn(socket: &Arc<Socket>, act: impl FnOnce(&Socket) + 'static) -> thread::JoinHandle<()> {
    let socket = Arc::clone(socket);
    thread::spawn(move || act(&socket))
}

/// It finds no data and waits, or takes some and leaves the rest to the next one.
#[test]
fn a_receive_that_begins_against_an_edge_is_carried_out() {
    for may_be_ready in [false, true] {
        explore(move || {
            let socket = Socket::shared(may_be_ready);
            let kernel = spawn(&socket, |socket| socket.arrive(2));
            assert!(socket.receive(1));
            kernel.join().unwrap();
            socket.assert_ended(&[1]);
            assert!(socket.receive(2));
            socket.assert_ended(&[1, 2]);
        });
    }
}

/// Two bytes come while a receive waits, which has room for one.
#[test]
fn a_receive_that_begins_behind_a_full_one_is_reported_after_that() {
    explore(|| {
        let socket = Socket::shared(false);
        assert!(socket.receive(1));
        let kernel = spawn(&socket, |socket| socket.arrive(2));
        let has_begun = socket.receive(2);
        kernel.join().unwrap();
        assert!(has_begun || socket.receive(2));
        socket.assert_ended(&[1, 2]);
    });
}

/// Two edges come, the second one perhaps while the first receive is being carried out, or before that
/// is reported.
#[test]
fn a_receive_that_begins_against_a_second_edge_is_reported_after_the_first_one() {
    explore(|| {
        let socket = Socket::shared(false);
        assert!(socket.receive(1));
        let kernels = [(); 2].map(|()| spawn(&socket, |socket| socket.arrive(1)));
        let has_begun = socket.receive(2);
        kernels.into_iter().for_each(|kernel| kernel.join().unwrap());
        assert!(has_begun || socket.receive(2));
        socket.assert_ended(&[1, 2]);
    });
}
