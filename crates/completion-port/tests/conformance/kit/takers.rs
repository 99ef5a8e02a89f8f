//! Threads that take packets one by one and report them, as most tests of the concurrency value
//! need.

use std::cell::Cell;
use std::sync::{Mutex, mpsc};
use std::thread::{self, Scope, ThreadId};
use std::time::Duration;

use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
use testkit::{Socket, System};

use crate::kit::threads::{End, Gate, hear, settle, take};

/// Threads that take the messages of a port one by one.
///
/// They are numbered from 0, in the order in which they begin to wait. A thread reports each
/// message that it takes, with its own number, and then handles it.
pub(crate) struct Takers<'a> {
    on: &'a System,
    port: &'a Port<(), usize>,
    started: Cell<usize>,
    say: mpsc::Sender<(usize, usize)>,
    heard: mpsc::Receiver<(usize, usize)>,
}

impl<'a> Takers<'a> {
    pub(crate) fn of(on: &'a System, port: &'a Port<(), usize>) -> Self {
        let (say, heard) = mpsc::channel();
        Self { on, port, started: Cell::new(0), say, heard }
    }

    /// Starts `threads` threads, each when all earlier ones wait.
    pub(crate) fn start<'t>(
        &self,
        scope: &'t Scope<'t, '_>,
        threads: usize,
        handle: impl Fn(usize) + Copy + Send + 't,
    ) where
        'a: 't,
    {
        for _ in 0..threads {
            let (port, say, number) = (self.port, self.say.clone(), self.started.get());
            scope.spawn(move || {
                while let Some(message) = take(port) {
                    say.send((message, number)).unwrap();
                    handle(message);
                }
            });
            self.started.set(number + 1);
            settle(self.on, port, number + 1);
        }
    }

    /// Returns the next message taken, with the number of its thread. A simulated clock advances
    /// meanwhile.
    #[track_caller]
    pub(crate) fn hear(&self, what: &str) -> (usize, usize) {
        hear(self.on, &self.heard, what)
    }

    /// Returns the next message taken, without advancing a simulated clock.
    #[track_caller]
    pub(crate) fn at_once(&self, what: &str) -> (usize, usize) {
        self.heard.recv_timeout(self.on.soon()).expect(what)
    }

    /// Returns the next message that has already been taken.
    pub(crate) fn heard_already(&self) -> Option<(usize, usize)> {
        self.heard.try_recv().ok()
    }

    /// Returns whether no unreported message has been taken.
    pub(crate) fn are_silent(&self) -> bool {
        self.heard.try_recv().is_err()
    }
}

/// Runs `test` with a port that lets `limit` threads run, takers for `test` to start, and a gate
/// for their handlers. At the end of the test, even if it fails, opens the gate and ends the
/// takers.
pub(crate) fn with_takers(
    on: &System,
    limit: usize,
    test: impl for<'s, 'e> FnOnce(&'s Scope<'s, 'e>, &'e Port<(), usize>, &Takers<'e>, &'e Gate),
) {
    on.several_threads_wait();
    let port = on.port_without_detection(limit);
    let gate = Gate::default();
    let takers = Takers::of(on, &port);
    thread::scope(|scope| {
        let _end = End::of(&port, [&gate]);
        test(scope, &port, &takers, &gate);
    });
}

/// Sockets that are registered with a port, and threads that take their packets.
///
/// The sockets are numbered from 0, which are their keys. A thread reports which socket's packet it
/// has, and runs with it until that socket's gate is open.
pub(crate) struct Sockets<'a> {
    on: &'a System,
    port: &'a Port<usize, ()>,
    /// The registered ends, kept open.
    _ours: Vec<Socket>,
    theirs: Vec<Socket>,
    pub(crate) gates: Vec<Gate>,
    pub(crate) say: mpsc::Sender<(usize, ThreadId)>,
    heard: mpsc::Receiver<(usize, ThreadId)>,
}

impl<'a> Sockets<'a> {
    /// Registers `sockets` sockets for IN, one-shot and level-triggered.
    pub(crate) fn of(on: &'a System, port: &'a Port<usize, ()>, sockets: usize) -> Self {
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..sockets).map(|_| on.unix_pair()).unzip();
        for (key, socket) in ours.iter().enumerate() {
            port.register(Registration::new(socket, key, Interest::IN, OneShot::Level)).unwrap();
        }
        let gates = ours.iter().map(|_| Gate::default()).collect();
        let (say, heard) = mpsc::channel();
        Self { on, port, _ours: ours, theirs, gates, say, heard }
    }

    /// Returns a guard that ends the threads when it is dropped.
    pub(crate) fn end(&self) -> End<'_, usize, ()> {
        End::of(self.port, &self.gates)
    }

    /// Starts `threads` threads, each when all earlier ones wait. They take one packet at a time.
    pub(crate) fn start<'t>(&'t self, scope: &'t Scope<'t, '_>, threads: usize) {
        self.start_with_room(scope, threads, 1);
    }

    /// Starts threads as `start` does, with a batch capacity of `room`.
    pub(crate) fn start_with_room<'t>(
        &'t self,
        scope: &'t Scope<'t, '_>,
        threads: usize,
        room: usize,
    ) {
        self.start_and_then(scope, threads, room, || {});
    }

    /// Starts threads as `start_with_room` does. Each calls `then` with a packet after it has
    /// passed the gate.
    pub(crate) fn start_and_then<'t>(
        &'t self,
        scope: &'t Scope<'t, '_>,
        threads: usize,
        room: usize,
        then: impl Fn() + Copy + Send + 't,
    ) {
        let before = self.port.stats().parked;
        for started in 1..=threads {
            let (port, gates, say) = (self.port, &self.gates[..], self.say.clone());
            scope.spawn(move || {
                let mut batch = Batch::with_capacity(room);
                while let Ok(packets) = port.wait(&mut batch, None) {
                    for packet in packets {
                        let Packet::Ready(ready) = packet else { panic!("{packet:?}") };
                        say.send((*ready.key(), thread::current().id())).unwrap();
                        gates[*ready.key()].pass();
                        then();
                    }
                }
            });
            settle(self.on, port, before + started);
        }
    }

    /// Makes a socket readable.
    #[track_caller]
    pub(crate) fn write(&self, socket: usize) {
        self.theirs[socket].write(b"x").unwrap();
    }

    /// Lets running handlers continue, and later ones pass.
    pub(crate) fn open_all(&self) {
        self.gates.iter().for_each(Gate::open);
    }

    /// Returns the next socket whose packet is taken, and the thread that took it. A simulated
    /// clock advances meanwhile.
    #[track_caller]
    pub(crate) fn hear(&self, what: &str) -> (usize, ThreadId) {
        hear(self.on, &self.heard, what)
    }

    /// Returns the next socket whose packet is taken, without advancing a simulated clock.
    #[track_caller]
    pub(crate) fn at_once(&self) -> (usize, ThreadId) {
        self.heard.recv_timeout(self.on.soon()).expect("a thread takes the packet of a socket")
    }

    /// Returns the next socket whose packet has already been taken.
    pub(crate) fn heard_already(&self) -> Option<(usize, ThreadId)> {
        self.heard.try_recv().ok()
    }

    /// Returns whether no thread takes a packet within this real time.
    pub(crate) fn stay_silent(&self, time: Duration) -> bool {
        self.heard.recv_timeout(time).is_err()
    }

    /// Returns whether no unreported packet has been taken.
    pub(crate) fn are_silent(&self) -> bool {
        self.heard.try_recv().is_err()
    }
}

/// Checks ports with one seat and two threads each. Again and again one handler sleeps unannounced
/// until the other thread has its seat.
pub(crate) fn each_block_is_noticed(
    on: &System,
    ports: &[Port<(), usize>],
    times: usize,
    before: impl FnOnce(),
) {
    let (go_on, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    thread::scope(|scope| {
        let go_on = go_on;
        let _end: Vec<_> = ports.iter().map(|port| End::of(port, [])).collect();
        let crews: Vec<_> = ports.iter().map(|port| (port, Takers::of(on, port))).collect();
        for (_, takers) in &crews {
            takers.start(scope, 2, |message| {
                if message == 0 {
                    let _ = blocked.lock().unwrap().recv();
                }
            });
        }
        before();
        for (port, takers) in crews {
            for _ in 0..times {
                for message in 0..2 {
                    port.post(message).unwrap();
                    assert_eq!(takers.hear("another one takes over").0, message);
                }
                go_on.send(()).unwrap();
                settle(on, port, 2);
            }
        }
    });
}
