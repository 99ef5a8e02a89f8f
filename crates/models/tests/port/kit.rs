//! Code shared by the models: the bounds, ports, threads, and what a thread does at a port.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use crate::engine::{
    DeferredWork, Engine, KeyReturn, NewRegistration, Scratch, Taken, Waited, Worker, name_of,
    name_parts,
};
use crate::fake::{Fake, Handle};
use crate::state::slot::Drained;
use crate::types::config::{BlockDetection, IdleHook};
use crate::types::error::Call;
use crate::types::interest::Mode;
use crate::types::interest::{Events, Interest};

pub(crate) fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_within(3, model);
}

/// Explores a model that is too large for the usual bound.
pub(crate) fn explore_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    if builder.preemption_bound.is_none() {
        builder.preemption_bound = Some(preemptions);
    }
    builder.check(model);
}

pub(crate) const LEVEL: Mode = Mode { interest: Interest::IN, edge: false, one_shot: true };

pub(crate) const EDGE: Mode = Mode { interest: Interest::IN, edge: true, one_shot: true };

pub(crate) const PERSISTENT: Mode = Mode { interest: Interest::IN, edge: false, one_shot: false };

pub(crate) const PERSISTENT_EDGE: Mode =
    Mode { interest: Interest::IN, edge: true, one_shot: false };

pub(crate) const READ: Drained = Drained::READ;

pub(crate) const NO_HINT: Drained = Drained::NONE;

/// A port whose kernel doesn't report sleeping threads.
pub(crate) fn engine(limit: usize) -> (Arc<Engine>, Arc<Fake>) {
    port(limit, BlockDetection::Automatic, Fake::new(false))
}

/// A port whose kernel reports which thread sleeps.
pub(crate) fn looking_engine(limit: usize, detection: BlockDetection) -> (Arc<Engine>, Arc<Fake>) {
    port(limit, detection, Fake::new(true))
}

/// A port whose kernel watches until the next edge.
pub(crate) fn one_shot_engine(limit: usize) -> (Arc<Engine>, Arc<Fake>) {
    port(limit, BlockDetection::Automatic, Fake::one_shot(false))
}

/// A port whose kernel watches until the next edge and reports which thread sleeps.
pub(crate) fn one_shot_looking_engine(limit: usize) -> (Arc<Engine>, Arc<Fake>) {
    port(limit, BlockDetection::Announced, Fake::one_shot(true))
}

/// A port that runs `hook` when no thread waits.
pub(crate) fn hooked_engine(limit: usize, hook: impl Fn() + Send + Sync + 'static) -> Arc<Engine> {
    let backend = Box::new(Handle(Fake::new(false)));
    let hook = Some(IdleHook::new(hook));
    Engine::new(limit, BlockDetection::Automatic, hook, backend).unwrap()
}

fn port(limit: usize, detection: BlockDetection, fake: Arc<Fake>) -> (Arc<Engine>, Arc<Fake>) {
    let backend = Box::new(Handle(Arc::clone(&fake)));
    (Engine::new(limit, detection, None, backend).unwrap(), fake)
}

/// Starts a thread that runs `act` on the shared value.
pub(crate) fn spawn<S: 'static, T: 'static>(
    shared: &Arc<S>,
    act: impl FnOnce(&S) -> T + 'static,
) -> thread::JoinHandle<T> {
    let shared = Arc::clone(shared);
    thread::spawn(move || act(&shared))
}

/// A port on which the calling thread holds the packet of a registration.
pub(crate) struct Handler {
    pub(crate) engine: Arc<Engine>,
    pub(crate) fake: Arc<Fake>,
    pub(crate) name: u64,
    pub(crate) worker: Arc<Worker>,
}

impl Handler {
    pub(crate) fn of_a_port(limit: usize) -> Self {
        Self::of(engine(limit))
    }

    pub(crate) fn of((engine, fake): (Arc<Engine>, Arc<Fake>)) -> Self {
        let name = register(&engine, LEVEL);
        fake.arrive();
        let worker = engine.join();
        let handler = Self { engine, fake, name, worker };
        assert_eq!(handler.wait(), (Waited::Packets, Some(Seen::Ready(name))));
        handler
    }

    /// Waits, and takes the first packet if there is one.
    pub(crate) fn wait(&self) -> (Waited, Option<Seen>) {
        let waited = self.engine.wait(&self.worker, &mut scratch(), 4, None, &NoTasks);
        let seen = (waited == Waited::Packets).then(|| see_next(&self.engine, &self.worker));
        (waited, seen.flatten())
    }

    /// Arms the registration again, either as a thread with a worker or as any other thread.
    pub(crate) fn rearm(&self, drained: Drained, with_worker: bool) {
        let slot = self.engine.slot(name_parts(self.name).0);
        let mine = || with_worker.then(|| Arc::clone(&self.worker));
        let back = KeyReturn { mode: Some(LEVEL), timed: false, drained };
        self.engine.put_back(Call::Rearm, slot, self.name, back, mine).unwrap();
    }

    /// The same, and asks for another packet.
    pub(crate) fn again(&self, drained: Drained, with_worker: bool) {
        let slot = self.engine.slot(name_parts(self.name).0);
        let mine = || with_worker.then(|| Arc::clone(&self.worker));
        let back = (LEVEL, drained);
        self.engine.put_back_again(Call::Rearm, slot, self.name, back, mine).unwrap();
    }
}

pub(crate) fn post(engine: &Engine) {
    engine.begin_post(|_| true).unwrap().queue();
}

/// Posts a message. Returns false if the port was closed first.
pub(crate) fn try_to_post(engine: &Engine) -> bool {
    engine.begin_post(|_| true).map(|posting| posting.queue()).is_ok()
}

/// A port without tasks.
pub(crate) struct NoTasks;

impl DeferredWork for NoTasks {
    fn run_deferred(&self) -> bool {
        false
    }
}

pub(crate) fn scratch() -> Scratch {
    Scratch::with_room(4)
}

/// Waits until `see` returns something from the packets assigned to `worker`. An assigned node may
/// make no packet, or another thread may take it back first.
pub(crate) fn wait_for<T>(
    engine: &Engine,
    worker: &Worker,
    see: impl Fn() -> Option<T>,
) -> Option<T> {
    while engine.wait(worker, &mut scratch(), 4, None, &NoTasks) == Waited::Packets {
        let seen = see();
        if seen.is_some() {
            return seen;
        }
    }
    None
}

/// Joins the port, runs `act`, and leaves.
pub(crate) fn visit<T>(engine: &Engine, act: impl FnOnce(&Worker) -> T) -> T {
    let worker = engine.join();
    let done = act(&worker);
    engine.leave(&worker);
    done
}

/// Takes the next packet assigned to `worker`, as the iterator of a wait does.
pub(crate) fn next<'e>(engine: &'e Engine, worker: &Worker) -> Option<Taken<'e>> {
    match engine.next_ready(worker) {
        Ok((index, slot, events)) => {
            Some(Taken::Ready(slot, name_of(index, slot.word().generation()), events))
        }
        Err(first) => engine.next(worker, first),
    }
}

/// Waits and takes messages until the port is closed. Returns their number.
pub(crate) fn serve(engine: &Engine, room: usize) -> usize {
    let worker = engine.join();
    let mut scratch = scratch();
    let mut taken = 0;
    while engine.wait(&worker, &mut scratch, room, None, &NoTasks) != Waited::Closed {
        while let Some(packet) = next(engine, &worker) {
            let Taken::Posted(cell) = packet else { panic!("only messages were posted") };
            engine.free_post(&worker, cell);
            taken += 1;
        }
    }
    engine.leave(&worker);
    taken
}

/// What a packet was.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seen {
    /// The registration of this name is readable.
    Ready(u64),
    Posted,
    /// The last packet of the registration of this name.
    Removed(u64),
}

impl Seen {
    pub(crate) fn of(taken: Taken<'_>) -> Self {
        match taken {
            Taken::Ready(_, name, Events::IN) => Self::Ready(name),
            Taken::Posted(_) => Self::Posted,
            Taken::Removed(name) => Self::Removed(name),
            other => panic!("{other:?}"),
        }
    }
}

/// Takes the next available packet.
pub(crate) fn see_next(engine: &Engine, worker: &Worker) -> Option<Seen> {
    next(engine, worker).map(Seen::of)
}

/// Joins, waits for a packet, takes it, and leaves. If another thread has taken the assigned
/// packets back, it continues to wait, as the iterator of a wait does.
pub(crate) fn take_any(engine: &Engine) -> Seen {
    let worker = engine.join();
    let seen = loop {
        assert_eq!(engine.wait(&worker, &mut scratch(), 1, None, &NoTasks), Waited::Packets);
        if let Some(seen) = see_next(engine, &worker) {
            break seen;
        }
    };
    engine.leave(&worker);
    seen
}

/// Joins, waits for a message, takes it, and leaves.
pub(crate) fn take_one(engine: &Engine) {
    assert_eq!(take_any(engine), Seen::Posted);
}

/// Registers the one descriptor of the fake kernel.
pub(crate) fn register(engine: &Engine, mode: Mode) -> u64 {
    let index = engine.reserve_slot(Call::Register, |_| true).unwrap();
    engine.register(Call::Register, index, entry(mode), || None).unwrap()
}

/// Returns a registration of the one descriptor, armed with `mode`.
pub(crate) fn entry(mode: Mode) -> NewRegistration {
    NewRegistration { descriptor: 3, mode, borrowed: false, associated: None, shared: false }
}

/// The ways to detect a sleeping thread.
pub(crate) const LOOKS: [BlockDetection; 3] =
    [BlockDetection::Automatic, BlockDetection::Switches, BlockDetection::Tick];
