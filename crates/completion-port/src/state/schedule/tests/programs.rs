//! Random programs of a few threads. The choices come from proptest here, and from a fuzzer's bytes
//! in `fuzz/`.

use std::time::Duration;

use super::super::Status;
use super::super::Waited;
use super::super::watchdog::TICK;
use super::driver::{Does, Rig};

/// The next event. Events that are impossible are skipped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Join,
    Wait(usize, usize, Option<u64>),
    Step(usize),
    WakeSpuriously(usize),
    Take(usize),
    GiveBack(usize),
    /// A running worker adds a message to its own packets.
    Keep(usize),
    Block(usize),
    Unblock(usize),
    Nod(usize),
    Rise(usize),
    Leave(usize),
    Post,
    /// Posts a message that is due after this many microseconds.
    PostIn(u64),
    Edge(usize),
    Remember(usize),
    BeginPeek,
    EndPeek,
    /// A thread begins or ends the replacement of the kernel's set.
    Replace(bool),
    Deliver,
    /// Advances the clock by this many microseconds.
    Pass(u64),
    /// Runs all threads in a wait until none can continue.
    Settle,
    /// Advances the clock by a millisecond and settles.
    Tick,
}

/// The port of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) limit: usize,
    pub(crate) threads: usize,
    /// The estimated time per packet, in microseconds.
    pub(crate) packet: u64,
    pub(crate) detects: bool,
    pub(crate) observes: bool,
    /// How many edges the kernel reports at a time.
    pub(crate) edges: usize,
    /// The port lets more threads run if packets have waited for [`OVERCOMMIT`].
    pub(crate) overcommits: bool,
}

/// For how long packets wait before another thread may run, on a port that overcommits.
const OVERCOMMIT: Duration = TICK.saturating_mul(3);

fn rig(setting: Setting) -> Rig {
    let mut rig = Rig::new(setting.limit, setting.threads);
    rig.schedule.expect(Duration::from_micros(setting.packet));
    rig.port.detects = setting.detects;
    rig.port.observes = setting.observes;
    rig.port.edges = setting.edges;
    if setting.overcommits {
        rig.schedule.overcommit_after(OVERCOMMIT);
    }
    rig.delays = true;
    rig
}

/// Returns whether `worker` is in user code and free to act.
fn acts(rig: &Rig, worker: usize) -> bool {
    rig.port.threads.get(worker).is_some_and(|thread| {
        matches!(thread.does, Does::Out) && thread.asleep.is_none() && !thread.blocks
    })
}

fn apply(rig: &mut Rig, event: Event, threads: usize) {
    match event {
        Event::Join => {
            let gone = rig.port.threads.iter().any(|thread| matches!(thread.does, Does::Gone));
            if gone || rig.port.threads.len() < threads {
                rig.join();
            }
        }
        Event::Wait(worker, room, timeout) if acts(rig, worker) => {
            if rig.port.observes {
                rig.observe(worker);
            }
            rig.wait(worker, room, timeout.map(Duration::from_micros));
        }
        Event::Step(worker) if worker < rig.port.threads.len() => {
            rig.step(worker);
        }
        Event::WakeSpuriously(worker) if worker < rig.port.threads.len() => {
            rig.wake_spuriously(worker)
        }
        Event::Take(worker) if acts(rig, worker) => {
            rig.take_packet(worker);
        }
        Event::GiveBack(worker) if acts(rig, worker) => rig.release(worker),
        Event::Keep(worker) if acts(rig, worker) => {
            rig.keep(worker);
        }
        Event::Block(worker) if acts(rig, worker) => {
            rig.block(worker);
        }
        Event::Unblock(worker) if rig.port.threads.get(worker).is_some_and(|it| it.blocks) => {
            rig.unblock(worker);
        }
        Event::Nod(worker) if acts(rig, worker) => rig.nod(worker, true),
        Event::Rise(worker) if worker < rig.port.threads.len() => rig.nod(worker, false),
        Event::Leave(worker) if acts(rig, worker) => rig.leave(worker),
        Event::Post => {
            rig.post();
        }
        Event::PostIn(time) => rig.post_in(Duration::from_micros(time)),
        Event::Edge(packets) => rig.edge(packets),
        Event::Remember(worker) if acts(rig, worker) && rig.status(worker) == Status::Running => {
            rig.remember();
        }
        Event::BeginPeek => rig.begin_peek(),
        Event::EndPeek => rig.end_peek(),
        Event::Replace(begins) => rig.port.replacing = begins,
        Event::Deliver => rig.deliver(),
        Event::Pass(time) => rig.port.now += Duration::from_micros(time),
        Event::Settle => rig.settle(),
        Event::Tick => rig.pass(TICK),
        _ => {}
    }
}

/// Checks that idle threads soon take everything that they may take, if threads in user code do
/// nothing more.
fn everything_is_taken(rig: &mut Rig, overcommits: bool) {
    rig.port.replacing = false;
    rig.settle();
    // Each of seven threads may need [`OVERCOMMIT`], and a look before that.
    let ticks = if overcommits { 49 } else { 21 };
    (0..ticks).for_each(|_| rig.pass(TICK));
    let idle = rig.schedule.workers.idle();
    let is_left = !rig.port.queue.is_empty() || !rig.port.kernel.is_empty();
    let is_left = is_left || rig.port.due() <= rig.port.now;
    if idle > 0 && rig.schedule.workers.has_room() {
        assert!(!is_left && rig.port.unchecked.is_empty(), "something is left: {rig:#?}");
        assert_eq!(
            rig.schedule.loads, 0,
            "a thread keeps packets that it does not handle: {rig:#?}"
        );
    }
    if overcommits && idle > 0 && rig.schedule.workers.excess() < rig.limit {
        assert!(!is_left, "no other thread may run, however long packets wait: {rig:#?}");
    }
    if idle > 0 && is_left && rig.port.detects {
        let is_missed = |worker: &usize| {
            rig.status(*worker) == Status::Running && rig.port.threads[*worker].asleep.is_some()
        };
        let missed = (0..rig.port.threads.len()).find(is_missed);
        assert_eq!(missed, None, "a thread sleeps, and counts: {rig:#?}");
    }
}

/// Lets all threads handle their packets and wait. Checks that, once the port is closed, every wait
/// returns that.
fn all_are_dismissed(rig: &mut Rig, closed_first: bool) {
    if closed_first {
        rig.close();
    }
    // In each round, some thread takes a packet, even if only one.
    let rounds = 50 + rig.port.queue.len() + rig.port.kernel.len();
    for round in 0..2 * rounds {
        for worker in 0..rig.port.threads.len() {
            rig.nod(worker, false);
            if rig.port.threads[worker].blocks {
                rig.unblock(worker);
            }
            if acts(rig, worker) {
                while rig.take_packet(worker).is_some() {}
                if rig.port.threads[worker].waited != Some(Waited::Closed) {
                    rig.wait(worker, 2, None);
                }
            }
        }
        rig.pass(TICK);
        if round == rounds && !closed_first {
            assert!(rig.port.queue.is_empty() && rig.port.kernel.is_empty(), "{rig:#?}");
            rig.close();
        }
    }
    for (worker, thread) in rig.port.threads.iter().enumerate() {
        if !matches!(thread.does, Does::Gone) {
            assert_eq!(rig.status(worker), Status::Away, "{rig:#?}");
            assert_eq!(thread.waited, Some(Waited::Closed), "{rig:#?}");
        }
    }
}

/// Runs a program. Whatever happens, and in whatever order threads get the lock, the invariants of
/// [`Rig::check`] hold after each step, packets that remain are soon taken, and a port that ends
/// dismisses its workers.
pub(crate) fn play(setting: Setting, events: Vec<Event>, closed_first: bool) {
    let mut rig = rig(setting);
    for event in events {
        apply(&mut rig, event, setting.threads);
    }
    everything_is_taken(&mut rig, setting.overcommits);
    let any = rig.port.threads.iter().any(|thread| !matches!(thread.does, Does::Gone));
    if any {
        all_are_dismissed(&mut rig, closed_first);
    }
}

#[cfg(test)]
mod random {
    use proptest::prelude::*;

    use super::{Event, Setting, play};

    fn event() -> impl Strategy<Value = Event> {
        let thread = 0_usize..7;
        let room = prop_oneof![Just(1_usize), Just(2), Just(64)];
        let timeout = prop_oneof![4 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(300)), 1 => Just(Some(5_000))];
        let time = prop_oneof![2 => 1_u64..50, 2 => 50_u64..400, 1 => 400_u64..3_000];
        prop_oneof![
            1 => Just(Event::Join),
            8 => (thread.clone(), room, timeout).prop_map(|(it, room, time)| Event::Wait(it, room, time)),
            20 => thread.clone().prop_map(Event::Step),
            1 => thread.clone().prop_map(Event::WakeSpuriously),
            5 => thread.clone().prop_map(Event::Take),
            3 => thread.clone().prop_map(Event::Keep),
            1 => thread.clone().prop_map(Event::GiveBack),
            1 => thread.clone().prop_map(Event::Block),
            1 => thread.clone().prop_map(Event::Unblock),
            3 => thread.clone().prop_map(Event::Nod),
            2 => thread.clone().prop_map(Event::Rise),
            1 => thread.clone().prop_map(Event::Leave),
            4 => Just(Event::Post),
            3 => time.clone().prop_map(Event::PostIn),
            4 => (1_usize..5).prop_map(Event::Edge),
            1 => thread.prop_map(Event::Remember),
            1 => Just(Event::BeginPeek),
            1 => Just(Event::EndPeek),
            1 => any::<bool>().prop_map(Event::Replace),
            6 => Just(Event::Deliver),
            4 => time.prop_map(Event::Pass),
            3 => Just(Event::Settle),
            3 => Just(Event::Tick),
        ]
    }

    fn setting() -> impl Strategy<Value = Setting> {
        let packet = prop_oneof![Just(1_u64), Just(5), Just(30)];
        let edges = prop_oneof![Just(2_usize), Just(64)];
        let flags = (any::<bool>(), any::<bool>(), any::<bool>());
        (1_usize..5, 1_usize..8, packet, flags, edges).prop_map(
            |(limit, threads, packet, (detects, observes, overcommits), edges)| {
                let observes = detects && observes;
                Setting { limit, threads, packet, detects, observes, edges, overcommits }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

        #[test]
        fn whatever_happens_nothing_is_lost_and_no_port_is_deaf(
            setting in setting(),
            events in prop::collection::vec(event(), 1..150),
            closed_first in any::<bool>(),
        ) {
            play(setting, events, closed_first);
        }
    }
}
