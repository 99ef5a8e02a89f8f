//! Random programs against a plain model of the contract, on every back end.
//!
//! One thread runs a program of registrations, traffic, closes, duplicates, posts and waits, and the
//! model says after each wait what must have come and what may not have come. Several threads run
//! random handlers, of which only what holds under any schedule is asked.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::VecDeque;
use std::io::ErrorKind as IoErrorKind;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

use completion_port::{
    Batch, BorrowedSource, ErrorKind, Events, Id, Interest, OneShot, Packet, Persistent, Port,
    Ready, Registration, Source,
};
use proptest::prelude::*;
use testkit::{Socket, System};

const SOCKETS: usize = 3;

/// A key that tells the model's bookkeeping when it is dropped.
#[derive(Debug)]
struct Key {
    number: u32,
    alive: Arc<AtomicUsize>,
}

impl Key {
    fn new(number: u32, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, SeqCst);
        Self { number, alive: Arc::clone(alive) }
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        Self::new(self.number, &self.alive)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trigger {
    Once(OneShot),
    Stays(Persistent),
}

impl Trigger {
    fn is_edge(self) -> bool {
        matches!(self, Self::Once(OneShot::Edge) | Self::Stays(Persistent::Edge))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Register {
        socket: usize,
        interest: u8,
        trigger: Trigger,
    },
    Write {
        socket: usize,
        bytes: usize,
    },
    /// Somebody reads all there is, whoever holds the key.
    Drain {
        socket: usize,
    },
    /// Somebody reads a byte.
    Read {
        socket: usize,
    },
    EndOfStream {
        socket: usize,
    },
    /// A duplicate of the descriptor comes and goes.
    Duplicate {
        socket: usize,
    },
    Rearm {
        token: usize,
        with_hint: bool,
    },
    RearmAs {
        token: usize,
        interest: u8,
        edge: bool,
    },
    Park {
        token: usize,
    },
    DropToken {
        token: usize,
    },
    KeepKey {
        token: usize,
    },
    Enable {
        socket: usize,
        interest: u8,
        trigger: Trigger,
    },
    Disable {
        socket: usize,
    },
    Remove {
        socket: usize,
    },
    RemoveAndWait {
        socket: usize,
    },
    Post {
        message: u32,
    },
    Wait {
        room: usize,
    },
}

fn triggers() -> impl Strategy<Value = Trigger> {
    prop_oneof![
        4 => Just(Trigger::Once(OneShot::Level)),
        1 => Just(Trigger::Once(OneShot::Edge)),
        2 => Just(Trigger::Stays(Persistent::Level)),
        1 => Just(Trigger::Stays(Persistent::Edge)),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let socket = 0..SOCKETS;
    let token = 0..4_usize;
    prop_oneof![
        4 => (socket.clone(), 0..8_u8, triggers())
            .prop_map(|(socket, interest, trigger)| Step::Register { socket, interest, trigger }),
        5 => (socket.clone(), 1..5_usize).prop_map(|(socket, bytes)| Step::Write { socket, bytes }),
        3 => socket.clone().prop_map(|socket| Step::Drain { socket }),
        2 => socket.clone().prop_map(|socket| Step::Read { socket }),
        1 => socket.clone().prop_map(|socket| Step::EndOfStream { socket }),
        1 => socket.clone().prop_map(|socket| Step::Duplicate { socket }),
        6 => (token.clone(), any::<bool>())
            .prop_map(|(token, with_hint)| Step::Rearm { token, with_hint }),
        2 => (token.clone(), 0..8_u8, any::<bool>())
            .prop_map(|(token, interest, edge)| Step::RearmAs { token, interest, edge }),
        1 => token.clone().prop_map(|token| Step::Park { token }),
        1 => token.clone().prop_map(|token| Step::DropToken { token }),
        1 => token.prop_map(|token| Step::KeepKey { token }),
        2 => (socket.clone(), 0..8_u8, triggers())
            .prop_map(|(socket, interest, trigger)| Step::Enable { socket, interest, trigger }),
        1 => socket.clone().prop_map(|socket| Step::Disable { socket }),
        2 => socket.clone().prop_map(|socket| Step::Remove { socket }),
        1 => socket.prop_map(|socket| Step::RemoveAndWait { socket }),
        2 => any::<u32>().prop_map(|message| Step::Post { message }),
        6 => (1..6_usize).prop_map(|room| Step::Wait { room }),
    ]
}

fn interest_of(bits: u8) -> Interest {
    let mut interest = Interest::NONE;
    for (bit, part) in [(1, Interest::IN), (2, Interest::OUT), (4, Interest::HANGUP)] {
        if bits & bit != 0 {
            interest |= part;
        }
    }
    interest
}

/// Where a registration stands, in the model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Absent,
    Enabled,
    /// Disabled or parked: the key is with the port.
    Idle,
    Held,
    /// Its last packet is due; `held` if its key is out still.
    Removing {
        held: bool,
    },
}

struct Model {
    state: State,
    id: Option<Id>,
    key: u32,
    interest: Interest,
    trigger: Trigger,
    unread: usize,
    ended: bool,
    /// Every condition that held at some moment since the registration was enabled.
    held_since_enabled: Events,
    /// A condition that was asked for began to hold while enabled, and still does: a packet is due.
    owed: bool,
}

impl Model {
    fn new() -> Self {
        Self {
            state: State::Absent,
            id: None,
            key: 0,
            interest: Interest::NONE,
            trigger: Trigger::Once(OneShot::Level),
            unread: 0,
            ended: false,
            held_since_enabled: Events::NONE,
            owed: false,
        }
    }

    /// What holds now and would be reported to this filter.
    fn condition(&self) -> Events {
        let mut events = Events::NONE;
        let hangup = self.ended && self.interest.contains(Interest::HANGUP);
        if hangup {
            events |= Events::HANGUP;
        }
        if self.interest.contains(Interest::IN) && (self.unread > 0 || (self.ended && !hangup)) {
            events |= Events::IN;
        }
        if self.interest.contains(Interest::OUT) {
            events |= Events::OUT;
        }
        events
    }

    fn enable(&mut self, interest: Interest, trigger: Trigger) {
        self.state = State::Enabled;
        self.interest = interest;
        self.trigger = trigger;
        self.held_since_enabled = self.condition();
        self.owed = !self.held_since_enabled.is_empty();
    }

    /// Traffic has changed what holds.
    fn changed(&mut self, arrived: bool) {
        let now = self.condition();
        if self.state == State::Enabled {
            self.held_since_enabled |= now;
            if arrived && !now.is_empty() {
                self.owed = true;
            }
        }
        if now.is_empty() {
            self.owed = false;
        }
    }
}

struct World<'p> {
    port: &'p Port<Key, u32>,
    near: Vec<Socket>,
    far: Vec<Socket>,
    models: Vec<Model>,
    tokens: VecDeque<(usize, Ready<'p, Key>)>,
    messages: VecDeque<u32>,
    alive: Arc<AtomicUsize>,
    next_key: u32,
}

impl<'p> World<'p> {
    fn token(&mut self, wanted: usize) -> Option<(usize, Ready<'p, Key>)> {
        let place = wanted.checked_rem(self.tokens.len())?;
        self.tokens.remove(place)
    }

    /// The model of a token that was armed or parked, unless it was to be removed.
    fn returned(&mut self, socket: usize) -> Option<&mut Model> {
        let model = &mut self.models[socket];
        if let State::Removing { held } = &mut model.state {
            *held = false;
            return None;
        }
        Some(model)
    }

    fn run(&mut self, step: &Step, system: &System) {
        match *step {
            Step::Register { socket, interest, trigger } => {
                self.register(socket, interest, trigger)
            }
            Step::Write { socket, bytes } => {
                if !self.models[socket].ended {
                    assert_eq!(self.far[socket].write(&[b'x'; 8][..bytes]).unwrap(), bytes);
                    self.models[socket].unread += bytes;
                    self.models[socket].changed(true);
                }
            }
            Step::Drain { socket } => self.drain(socket),
            Step::Read { socket } => {
                if self.models[socket].unread > 0 {
                    assert_eq!(self.near[socket].read(&mut [0]).unwrap(), 1);
                    self.models[socket].unread -= 1;
                    self.models[socket].changed(false);
                }
            }
            Step::EndOfStream { socket } => {
                if !self.models[socket].ended {
                    self.far[socket].shutdown(Shutdown::Write).unwrap();
                    self.models[socket].ended = true;
                    self.models[socket].changed(true);
                }
            }
            Step::Duplicate { socket } => drop(self.near[socket].dup().unwrap()),
            Step::Rearm { token, with_hint } => {
                let Some((socket, mut ready)) = self.token(token) else { return };
                // Said only if it is true, as the contract demands.
                if with_hint && self.models[socket].unread == 0 && !self.models[socket].ended {
                    let outcome = self.near[socket].read(&mut [0]);
                    assert_eq!(outcome.unwrap_err().kind(), IoErrorKind::WouldBlock);
                    ready.read_drained();
                }
                ready.rearm().unwrap();
                if let Some(model) = self.returned(socket) {
                    let (interest, trigger) = (model.interest, model.trigger);
                    model.enable(interest, trigger);
                }
            }
            Step::RearmAs { token, interest, edge } => {
                let Some((socket, ready)) = self.token(token) else { return };
                let trigger = if edge { OneShot::Edge } else { OneShot::Level };
                let interest = interest_of(interest);
                ready.rearm_as(interest, trigger).unwrap();
                if let Some(model) = self.returned(socket) {
                    model.enable(interest, Trigger::Once(trigger));
                }
            }
            Step::Park { token } => {
                let Some((socket, ready)) = self.token(token) else { return };
                ready.park().unwrap();
                if let Some(model) = self.returned(socket) {
                    model.state = State::Idle;
                }
            }
            Step::DropToken { token } => {
                let Some((socket, ready)) = self.token(token) else { return };
                drop(ready);
                self.models[socket].state = State::Absent;
            }
            Step::KeepKey { token } => {
                let Some((socket, ready)) = self.token(token) else { return };
                assert_eq!(ready.into_key().number, self.models[socket].key);
                self.models[socket].state = State::Absent;
            }
            Step::Enable { socket, interest, trigger } => self.enable(socket, interest, trigger),
            Step::Disable { socket } => {
                let model = &mut self.models[socket];
                let Some(id) = model.id else { return };
                let outcome = self.port.disable(id).map_err(|error| error.kind());
                match model.state {
                    State::Absent => assert_eq!(outcome, Err(ErrorKind::NotRegistered)),
                    State::Removing { .. } => assert_eq!(outcome, Err(ErrorKind::Removing)),
                    State::Held => assert_eq!(outcome, Ok(())),
                    State::Enabled | State::Idle => {
                        assert_eq!(outcome, Ok(()));
                        model.state = State::Idle;
                    }
                }
            }
            Step::Remove { socket } => {
                let model = &mut self.models[socket];
                let Some(id) = model.id else { return };
                let outcome = self.port.remove(id).map_err(|error| error.kind());
                match model.state {
                    State::Absent => assert_eq!(outcome, Err(ErrorKind::NotRegistered)),
                    State::Removing { .. } => assert_eq!(outcome, Ok(())),
                    State::Held | State::Enabled | State::Idle => {
                        assert_eq!(outcome, Ok(()));
                        model.state = State::Removing { held: model.state == State::Held };
                    }
                }
            }
            Step::RemoveAndWait { socket } => {
                let model = &mut self.models[socket];
                let Some(id) = model.id else { return };
                if model.state == State::Held {
                    return; // Would wait for this very thread.
                }
                let outcome = self.port.remove_and_wait(id, None);
                match model.state {
                    State::Absent => {
                        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::NotRegistered);
                    }
                    State::Removing { .. } => {
                        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Removing);
                    }
                    _ => {
                        assert_eq!(outcome.unwrap().number, model.key);
                        model.state = State::Absent;
                    }
                }
            }
            Step::Post { message } => {
                self.port.post(message).unwrap();
                self.messages.push_back(message);
            }
            Step::Wait { room } => self.wait(room, system),
        }
    }

    fn register(&mut self, socket: usize, interest: u8, trigger: Trigger) {
        let interest = interest_of(interest);
        self.next_key += 1;
        let number = self.next_key;
        let key = Key::new(number, &self.alive);
        let near = &self.near[socket];
        let registration = match trigger {
            Trigger::Once(trigger) => Registration::new(near, key, interest, trigger),
            Trigger::Stays(trigger) => Registration::new(near, key, interest, trigger),
        };
        let outcome = self.port.register(registration);
        let model = &mut self.models[socket];
        match model.state {
            // What is being removed is no longer in the way.
            State::Absent => {
                model.id = Some(outcome.unwrap());
                model.key = number;
                model.enable(interest, trigger);
            }
            State::Removing { .. } => {
                // Registered beside the one that is leaving; ended at once, to keep the model plain.
                let id = outcome.unwrap();
                assert_eq!(self.port.remove_and_wait(id, None).unwrap().number, number);
            }
            _ => {
                let refused = outcome.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::AlreadyRegistered);
                assert_eq!(refused.value().number, number);
            }
        }
    }

    fn enable(&mut self, socket: usize, interest: u8, trigger: Trigger) {
        let interest = interest_of(interest);
        let model = &mut self.models[socket];
        let Some(id) = model.id else { return };
        let outcome = match trigger {
            Trigger::Once(trigger) => self.port.enable(id, interest, trigger),
            Trigger::Stays(trigger) => self.port.enable(id, interest, trigger),
        }
        .map_err(|error| error.kind());
        match model.state {
            State::Absent => assert_eq!(outcome, Err(ErrorKind::NotRegistered)),
            State::Removing { .. } => assert_eq!(outcome, Err(ErrorKind::Removing)),
            State::Held => assert_eq!(outcome, Err(ErrorKind::KeyHeld)),
            State::Enabled | State::Idle => {
                assert_eq!(outcome, Ok(()));
                model.enable(interest, trigger);
            }
        }
    }

    fn drain(&mut self, socket: usize) {
        assert_eq!(self.near[socket].drain(), self.models[socket].unread);
        self.models[socket].unread = 0;
        self.models[socket].changed(false);
    }

    /// Takes packets until no more come, then compares what is left with the model.
    fn wait(&mut self, room: usize, system: &System) {
        let mut batch = Batch::with_capacity(room);
        for _ in 0..1000 {
            let mut taken = 0;
            let port = self.port;
            for packet in port.wait(&mut batch, std::time::Duration::ZERO).unwrap() {
                taken += 1;
                self.packet(packet);
            }
            assert!(taken <= room);
            if taken == 0 {
                self.settle(system);
                return;
            }
        }
        panic!("packets without end: {:#?}", self.port);
    }

    fn packet(&mut self, packet: Packet<'p, Key, u32>) {
        match packet {
            Packet::Posted(message) => {
                assert_eq!(self.messages.pop_front(), Some(message), "messages keep their order");
            }
            Packet::Removed(id, key) => {
                let of = |model: &&mut Model| {
                    model.id == Some(id) && model.state == State::Removing { held: false }
                };
                let model = self.models.iter_mut().find(of).expect("it was to be removed");
                assert_eq!(key.number, model.key);
                model.state = State::Absent;
            }
            Packet::Ready(ready) => {
                let socket = self.reported(ready.id(), ready.events(), ready.key().number);
                assert!(matches!(self.models[socket].trigger, Trigger::Once(_)));
                self.models[socket].state = State::Held;
                self.models[socket].owed = false;
                self.tokens.push_back((socket, ready));
            }
            Packet::Notified(packet) => {
                let socket = self.reported(packet.id(), packet.events(), packet.key().number);
                assert!(matches!(self.models[socket].trigger, Trigger::Stays(_)));
                self.handle(socket, packet.id());
            }
            other => panic!("an unknown packet: {other:?}"),
        }
    }

    /// Checks a packet's claims against the model.
    fn reported(&mut self, id: Id, events: Events, key: u32) -> usize {
        let socket = self.models.iter().position(|model| model.id == Some(id)).unwrap();
        let model = &self.models[socket];
        assert_eq!(model.state, State::Enabled, "{events:?} of a registration that is not enabled");
        assert_eq!(key, model.key);
        assert!(!events.is_empty());
        let allowed = model.held_since_enabled;
        // Edges may be reported again on enabling.
        assert!(
            allowed.contains(events),
            "{events:?} was reported, but since it was enabled only {allowed:?} held"
        );
        if !model.trigger.is_edge() && events.is_in() {
            assert!(model.held_since_enabled.is_in());
        }
        socket
    }

    /// What a sensible handler does with a persistent packet, so that a level one comes to rest.
    fn handle(&mut self, socket: usize, id: Id) {
        self.drain(socket);
        let model = &mut self.models[socket];
        let Trigger::Stays(trigger) = model.trigger else { unreachable!() };
        let tired = if model.ended { Interest::ALL } else { Interest::OUT };
        let interest = model.interest - tired;
        if interest != model.interest {
            self.port.enable(id, interest, trigger).unwrap();
            model.enable(interest, Trigger::Stays(trigger));
        }
        self.models[socket].owed = false;
    }

    /// After a wait that came to an end, nothing may be due.
    fn settle(&mut self, system: &System) {
        assert!(self.messages.is_empty(), "{}: messages were lost", system.name());
        for (number, model) in self.models.iter().enumerate() {
            assert_ne!(
                model.state,
                State::Removing { held: false },
                "REMOVE of {number} is missing"
            );
            if model.state == State::Enabled {
                let due = if model.trigger.is_edge() {
                    model.owed
                } else {
                    !model.condition().is_empty()
                };
                assert!(
                    !due,
                    "{}: socket {number} is due ({:?}), but nothing came: {:#?}",
                    system.name(),
                    model.condition(),
                    self.port
                );
            }
        }
    }
}

fn run_program(system: &System, program: &[Step]) {
    let alive = Arc::new(AtomicUsize::new(0));
    {
        let port = system.port::<Key, u32>(1);
        let (near, far) = (0..SOCKETS).map(|_| system.unix_pair()).unzip();
        let mut world = World {
            port: &port,
            near,
            far,
            models: (0..SOCKETS).map(|_| Model::new()).collect(),
            tokens: VecDeque::new(),
            messages: VecDeque::new(),
            alive: Arc::clone(&alive),
            next_key: 0,
        };
        for step in program {
            world.run(step, system);
        }
        world.wait(4, system);
    }
    assert_eq!(alive.load(SeqCst), 0, "{}: keys leaked, or dropped twice", system.name());
    system.assert_nothing_left();
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_program_on_one_thread_sees_what_the_model_says_epoll(
        program in prop::collection::vec(steps(), 1..60)
    ) {
        run_program(&System::native(), &program);
    }

    #[test]
    fn a_program_on_one_thread_sees_what_the_model_says_sim(
        program in prop::collection::vec(steps(), 1..60)
    ) {
        run_program(&System::simulated(), &program);
    }
}

/// What each thread does with a packet, by lot.
#[derive(Clone, Copy, Debug)]
enum Habit {
    ReadAllAndRearm,
    ReadOneAndRearm,
    Park,
    Drop,
    Remove,
    RemoveAndRearm,
}

#[derive(Clone, Debug)]
struct Scenario {
    threads: usize,
    concurrency: usize,
    sockets: usize,
    writes: Vec<(usize, usize)>,
    messages: usize,
    habits: Vec<Habit>,
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let habit = prop_oneof![
        8 => Just(Habit::ReadAllAndRearm),
        4 => Just(Habit::ReadOneAndRearm),
        1 => Just(Habit::Park),
        1 => Just(Habit::Drop),
        1 => Just(Habit::Remove),
        1 => Just(Habit::RemoveAndRearm),
    ];
    (
        1..5_usize,
        1..4_usize,
        1..6_usize,
        prop::collection::vec((0..6_usize, 1..40_usize), 1..40),
        0..30_usize,
        prop::collection::vec(habit, 1..12),
    )
        .prop_map(|(threads, concurrency, sockets, writes, messages, habits)| Scenario {
            threads,
            concurrency,
            sockets,
            writes,
            messages,
            habits,
        })
}

struct Shared {
    socket: Socket,
    number: usize,
    in_use: Arc<Vec<AtomicBool>>,
    alive: Arc<AtomicUsize>,
}

impl Source for Shared {
    fn as_source(&self) -> BorrowedSource<'_> {
        self.socket.as_source()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

fn run_scenario(system: &System, scenario: &Scenario) {
    system.several_threads_wait();
    let alive = Arc::new(AtomicUsize::new(0));
    let in_use: Arc<Vec<_>> =
        Arc::new((0..scenario.sockets).map(|_| AtomicBool::new(false)).collect());
    let posted = AtomicUsize::new(0);
    let turn = AtomicUsize::new(0);
    {
        let port = system.port::<Shared, usize>(scenario.concurrency);
        let mut far = Vec::new();
        for number in 0..scenario.sockets {
            let (near, peer) = system.unix_pair();
            far.push(peer);
            alive.fetch_add(1, SeqCst);
            let key = Shared {
                socket: near,
                number,
                in_use: Arc::clone(&in_use),
                alive: Arc::clone(&alive),
            };
            port.register(Registration::owned(key, Interest::IN, OneShot::Level)).unwrap();
        }
        thread::scope(|scope| {
            for _ in 0..scenario.threads {
                scope.spawn(|| {
                    let mut batch = Batch::with_capacity(4);
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        for packet in packets {
                            match packet {
                                Packet::Posted(_) => {
                                    posted.fetch_add(1, SeqCst);
                                }
                                Packet::Ready(ready) => {
                                    let habit = turn.fetch_add(1, SeqCst) % scenario.habits.len();
                                    obey(&port, ready, scenario.habits[habit]);
                                }
                                Packet::Removed(_, key) => {
                                    assert!(!in_use[key.number].load(SeqCst));
                                }
                                other => panic!("{:?}", std::mem::discriminant(&other)),
                            }
                        }
                    }
                });
            }
            for message in 0..scenario.messages {
                port.post(message).unwrap();
            }
            for (socket, bytes) in &scenario.writes {
                // The other end may be closed by now.
                let _ = far[socket % scenario.sockets].write(&vec![b'x'; *bytes]);
            }
            port.shutdown().unwrap();
        });
        assert_eq!(port.stats().registered, 0, "{port:#?}");
    }
    assert_eq!(posted.load(SeqCst), scenario.messages, "messages were lost or doubled");
    assert_eq!(alive.load(SeqCst), 0, "keys leaked, or were dropped twice");
    system.assert_nothing_left();
}

fn obey(port: &Port<Shared, usize>, mut ready: Ready<'_, Shared>, habit: Habit) {
    let id = ready.id();
    let number = ready.key().number;
    let in_use = Arc::clone(&ready.key().in_use);
    assert!(!in_use[number].swap(true, SeqCst), "two threads hold one key");
    assert!(ready.events().is_in());
    let mut bytes = [0; 64];
    let room = if matches!(habit, Habit::ReadOneAndRearm) { 1 } else { bytes.len() };
    let read = ready.key_mut().socket.read(&mut bytes[..room]);
    // A level packet is exact, and nobody else reads from this socket.
    let read = read.expect("a level packet was reported for nothing");
    assert!(read > 0);
    if matches!(habit, Habit::Remove | Habit::RemoveAndRearm) {
        port.remove(id).unwrap();
    }
    in_use[number].store(false, SeqCst);
    match habit {
        Habit::ReadAllAndRearm if read < room => {
            ready.read_drained();
            let _ = ready.rearm();
        }
        Habit::ReadAllAndRearm | Habit::ReadOneAndRearm | Habit::RemoveAndRearm => {
            let _ = ready.rearm();
        }
        Habit::Park => {
            let _ = ready.park();
        }
        Habit::Drop | Habit::Remove => drop(ready),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn threads_share_a_port_without_losing_or_doubling_anything_epoll(scenario in scenarios()) {
        run_scenario(&System::native(), &scenario);
    }

    #[test]
    fn threads_share_a_port_without_losing_or_doubling_anything_sim(scenario in scenarios()) {
        run_scenario(&System::simulated(), &scenario);
    }
}
