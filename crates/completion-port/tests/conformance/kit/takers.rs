//! Threads that take packets one after the other and say so, as most tests of the concurrency value need
//! them.

use std::cell::Cell;
use std::sync::{Mutex, mpsc};
use std::thread::{self, Scope, ThreadId};
use std::time::Duration;

use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
use testkit::{Socket, System};

use crate::kit::threads::{End, Gate, hear, settle, take};

/// Threads that take the messages of a port one by one.
///
/// They have numbers from 0, in the order in which they come to wait. A thread says which message it has
/// taken, with its own number, and then handles it.
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

    /// Starts so many threads, each when all those before it wait.
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

    /// The next message that is taken, with the number of its thread. The time goes on until then.
    #[track_caller]
    pub(crate) fn hear(&self, what: &str) -> (usize, usize) {
        hear(self.on, &self.heard, what)
    }

    /// The next message that is taken, for which no time has to pass.
    #[track_caller]
    pub(crate) fn at_once(&self, what: &str) -> (usize, usize) {
        self.heard.recv_timeout(self.on.soon()).expect(what)
    }

    /// The next message that has been taken already.
    pub(crate) fn heard_already(&self) -> Option<(usize, usize)> {
        self.heard.try_recv().ok()
    }

    /// No thread has taken a message that was not heard of.
    pub(crate) fn are_silent(&self) -> bool {
        self.heard.try_recv().is_err()
    }
}

/// Runs `test` with a port that lets `limit` threads run, with takers on it that `test` starts, and with a gate for
/// their handlers. When it is over, or has failed, the gate is opened and the takers end.
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
/// The sockets have numbers from 0, which are their keys. A thread says whose packet it has, and runs with
/// it until the gate of that socket is open.
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
    /// Registers so many sockets, one-shot and level-triggered, for what they have to read.
    pub(crate) fn of(on: &'a System, port: &'a Port<usize, ()>, sockets: usize) -> Self {
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..sockets).map(|_| on.unix_pair()).unzip();
        for (key, socket) in ours.iter().enumerate() {
            port.register(Registration::new(socket, key, Interest::IN, OneShot::Level)).unwrap();
        }
        let gates = ours.iter().map(|_| Gate::default()).collect();
        let (say, heard) = mpsc::channel();
        Self { on, port, _ours: ours, theirs, gates, say, heard }
    }

    /// Ends the threads when it is dropped.
    pub(crate) fn end(&self) -> End<'_, usize, ()> {
        End::of(self.port, &self.gates)
    }

    /// Starts so many threads, each when those before it wait. They take one packet at a time.
    pub(crate) fn start<'t>(&'t self, scope: &'t Scope<'t, '_>, threads: usize) {
        self.start_with_room(scope, threads, 1);
    }

    /// The same, with room for so many packets in the batch of a thread.
    pub(crate) fn start_with_room<'t>(
        &'t self,
        scope: &'t Scope<'t, '_>,
        threads: usize,
        room: usize,
    ) {
        self.start_and_then(scope, threads, room, || {});
    }

    /// The same, with something that each thread does with a packet behind the gate.
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

    /// Gives a socket something to read.
    #[track_caller]
    pub(crate) fn write(&self, socket: usize) {
        self.theirs[socket].write(b"x").unwrap();
    }

    /// The handlers that run go on, and those that come do not stop.
    pub(crate) fn open_all(&self) {
        self.gates.iter().for_each(Gate::open);
    }

    /// The next socket whose packet is taken, and by which thread. The time goes on until then.
    #[track_caller]
    pub(crate) fn hear(&self, what: &str) -> (usize, ThreadId) {
        hear(self.on, &self.heard, what)
    }

    /// The next socket whose packet is taken, for which no time has to pass.
    #[track_caller]
    pub(crate) fn at_once(&self) -> (usize, ThreadId) {
        self.heard.recv_timeout(self.on.soon()).expect("a thread takes the packet of a socket")
    }

    /// The next socket whose packet has been taken already.
    pub(crate) fn heard_already(&self) -> Option<(usize, ThreadId)> {
        self.heard.try_recv().ok()
    }

    /// No thread takes a packet within so much real time.
    pub(crate) fn stay_silent(&self, time: Duration) -> bool {
        self.heard.recv_timeout(time).is_err()
    }

    /// No thread has taken a packet that was not heard of.
    pub(crate) fn are_silent(&self) -> bool {
        self.heard.try_recv().is_err()
    }
}

/// Each port has one seat and two threads. Again and again the handler of one sleeps without a word, until the
/// other thread has its seat.
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
