//! The slot's word, the queue, the seats and the wait, model-checked: every interleaving of a few
//! threads, within a bound on preemptions, under the C11 memory model.
//!
//! The sources are the library's own, compiled here once more with the model checker's primitives in
//! the place of the standard library's. The models follow the tables of ARCHITECTURE.md. The bound is
//! three preemptions, or `LOOM_MAX_PREEMPTIONS`.

#![allow(dead_code, unused_imports, reason = "the library's sources are used in part")]
#![allow(missing_docs, unreachable_pub, unnameable_types, clippy::unwrap_used, reason = "a test")]
#![allow(
    clippy::arc_with_non_send_sync,
    reason = "what threads share unsoundly is what the model checker reports"
)]

#[path = "../src/detection.rs"]
mod detection;
#[path = "../src/engine/mod.rs"]
mod engine;
#[path = "../src/error.rs"]
mod error;
#[path = "loom/hand_over.rs"]
mod hand_over;
#[path = "../src/interest.rs"]
mod interest;
#[path = "../src/state/mod.rs"]
mod state;
#[path = "../src/trace.rs"]
mod trace;

/// The seam; the back end is [`Handle`].
#[path = "../src/sys"]
mod sys {
    pub(crate) mod backend;
    pub(crate) mod host;
    pub(crate) mod reactor;
    pub(crate) mod thread;
}

/// What `src/sync.rs` is to the library.
mod sync {
    use std::sync::atomic::Ordering;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    pub(crate) fn barrier(_own: &AtomicU32) {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn barrier_behind_exchange() {
        fence(Ordering::SeqCst);
    }
}

use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use loom::thread;

use detection::BlockDetection;
use engine::{Engine, Scratch, Seat, Taken, Waited, token, token_parts};
use error::{Call, ErrorKind};
use interest::{Events, Interest};
use state::facts::{Descriptor, Edge, Facts, Fault, Kind, Presence, Probe};
use state::moment::Moment;
use state::slot::{Answer, Checked, Delivery, Drained, Mode, Next, Refusal, Removal, Slot, Turn};
use state::table::Descriptors;
use sys::host::{Host, Origin};
use sys::reactor::Reactor;
use sys::thread::Thread;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_within(3, model);
}

/// The same for a model that is too large for the usual bound.
fn explore_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    if builder.preemption_bound.is_none() {
        builder.preemption_bound = Some(preemptions);
    }
    builder.check(model);
}

const LEVEL: Mode = Mode { interest: Interest::IN, edge: false, one_shot: true };
const EDGE: Mode = Mode { interest: Interest::IN, edge: true, one_shot: true };
const PERSISTENT: Mode = Mode { interest: Interest::IN, edge: false, one_shot: false };
const PERSISTENT_EDGE: Mode = Mode { interest: Interest::IN, edge: true, one_shot: false };
const READ: Drained = Drained::READ;
const NO_HINT: Drained = Drained::NONE;

// ---- the slot alone ----------------------------------------------------------------------------

/// A slot with its key, which the checker watches: two accesses that nothing orders are reported.
struct Cell {
    slot: Slot,
    key: UnsafeCell<Option<u32>>,
    /// Nodes won and not yet dealt with: what the queue would have.
    won: AtomicUsize,
    /// Whether the kernel would say that a read does not block.
    readable: AtomicBool,
}

impl Cell {
    fn registered(mode: Mode) -> Self {
        let slot = Slot::default();
        slot.register(3, mode, false);
        assert_eq!(slot.put_back(Some(mode), NO_HINT, 0), Next::Nothing);
        Self {
            slot,
            key: UnsafeCell::new(Some(7)),
            won: AtomicUsize::new(0),
            readable: AtomicBool::new(false),
        }
    }

    /// The same with its packet taken and the key out.
    fn held(mode: Mode) -> Self {
        let cell = Self::registered(mode);
        assert_eq!(cell.deliver(Facts::IN), Next::Queue);
        cell.won.store(0, SeqCst);
        assert_eq!(cell.slot.take(), Turn::Held(Events::IN));
        assert_eq!(cell.take_key(), 7);
        cell
    }

    fn note(&self, next: Next) -> Next {
        if matches!(next, Next::Queue | Next::Recheck) {
            assert_eq!(self.won.fetch_add(1, SeqCst), 0, "a node is won by one thread at a time");
        }
        next
    }

    fn deliver(&self, facts: Facts) -> Next {
        self.deliver_at(facts, 9)
    }

    fn deliver_at(&self, facts: Facts, harvest: u32) -> Next {
        self.deliver_among(facts, harvest, || harvest)
    }

    fn deliver_among(&self, facts: Facts, harvest: u32, newest: impl Fn() -> u32) -> Next {
        if self.slot.queue(0, facts, harvest, &newest) {
            return self.note(Next::Queue);
        }
        match self.slot.deliver(0, facts, harvest, newest) {
            Delivery::Stale => Next::Nothing,
            Delivery::Noted(next) => self.note(next),
        }
    }

    fn put_back(&self, mode: Option<Mode>, drained: Drained) -> Next {
        self.put_key(7);
        if mode.is_some() && self.slot.rearm(mode, drained, 5) {
            return Next::Nothing;
        }
        self.note(self.slot.put_back(mode, drained, 5))
    }

    fn take_key(&self) -> u32 {
        self.key.with_mut(|key| {
            // SAFETY: dereferencing demands that nobody else accesses the cell meanwhile.
            // - that is what the model checks: loom reports any access that nothing orders.
            unsafe { (*key).take() }.expect("the key is taken out once")
        })
    }

    fn put_key(&self, key: u32) {
        self.key.with_mut(|place| {
            // SAFETY: dereferencing demands that nobody else accesses the cell meanwhile.
            // - that is what the model checks: loom reports any access that nothing orders.
            let before = unsafe { (*place).replace(key) };
            assert_eq!(before, None, "the cell is empty while the key is out");
        });
    }

    fn clone_key(&self) -> u32 {
        self.key.with(|key| {
            // SAFETY: dereferencing demands that nobody writes to the cell meanwhile.
            // - that is what the model checks: loom reports any access that nothing orders.
            unsafe { *key }.expect("the key is there to be cloned")
        })
    }

    /// The same with its packet taken and the key left in its cell.
    fn parked(mode: Mode) -> Self {
        let cell = Self::registered(mode);
        assert_eq!(cell.deliver(Facts::IN), Next::Queue);
        assert_eq!(cell.turn_without_token(|| {}), Turn::Held(Events::IN));
        cell
    }

    /// Does what a thread does whose turn it is with the node: checks, then takes.
    fn turn(&self) -> Turn {
        self.turn_by(|| self.slot.hand().map_or_else(|| self.slot.take(), Turn::Held))
    }

    /// The same for one that clones the key before, and leaves a one-shot registration parked.
    fn turn_without_token(&self, before: impl Fn()) -> Turn {
        self.turn_by(|| {
            before();
            assert_eq!(self.clone_key(), 7);
            self.slot.take_and_park()
        })
    }

    fn turn_by(&self, take: impl Fn() -> Turn) -> Turn {
        assert_eq!(self.won.swap(0, SeqCst), 1);
        loop {
            match take() {
                Turn::Check => {
                    self.slot.begin_check();
                    let facts = if self.readable.load(SeqCst) { Facts::IN } else { Facts::NONE };
                    if self.slot.check(facts.into()) == Checked::Nothing {
                        return Turn::Nothing;
                    }
                }
                turn => return turn,
            }
        }
    }
}

#[test]
fn an_edge_that_meets_arming_is_neither_lost_nor_told_twice() {
    for mode in [LEVEL, EDGE] {
        explore(move || {
            let cell = Arc::new(Cell::held(mode));
            let kernel = {
                let cell = Arc::clone(&cell);
                thread::spawn(move || {
                    cell.readable.store(true, SeqCst);
                    cell.deliver(Facts::IN);
                })
            };
            cell.put_back(Some(mode), READ);
            kernel.join().unwrap();
            assert_eq!(cell.won.load(SeqCst), 1);
            assert_eq!(cell.turn(), Turn::Held(Events::IN));
            assert_eq!(cell.take_key(), 7);
        });
    }
}

#[test]
fn two_edges_and_arming_make_one_packet_or_two_in_turn() {
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        let kernel = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                cell.readable.store(true, SeqCst);
                cell.deliver(Facts::IN);
                cell.deliver(Facts::IN);
            })
        };
        cell.put_back(Some(LEVEL), NO_HINT);
        kernel.join().unwrap();
        assert_eq!(cell.won.load(SeqCst), 1);
        assert_eq!(cell.turn(), Turn::Held(Events::IN));
    });
}

#[test]
fn an_edge_that_meets_enabling_by_name_is_neither_lost_nor_told_twice() {
    for mode in [LEVEL, EDGE] {
        explore(move || {
            let cell = Arc::new(Cell::parked(mode));
            let kernel = {
                let cell = Arc::clone(&cell);
                thread::spawn(move || {
                    cell.readable.store(true, SeqCst);
                    cell.deliver(Facts::IN);
                })
            };
            cell.note(cell.slot.enable(0, mode, || READ, 5).unwrap());
            kernel.join().unwrap();
            assert_eq!(cell.won.load(SeqCst), 1);
            assert_eq!(cell.turn_without_token(|| {}), Turn::Held(Events::IN));
        });
    }
}

/// Who has found a descriptor drained may enable it after another thread has taken a packet of later
/// data: the count of packets, raised before each turn, tells.
#[test]
fn a_hint_from_before_a_packet_hides_nothing_from_who_took_it() {
    explore(|| {
        let cell = Arc::new(Cell::registered(LEVEL));
        let packets = Arc::new(AtomicUsize::new(0));
        cell.readable.store(true, SeqCst);
        assert_eq!(cell.deliver(Facts::IN), Next::Queue);
        let taker = {
            let (cell, packets) = (Arc::clone(&cell), Arc::clone(&packets));
            thread::spawn(move || {
                cell.turn_without_token(|| {
                    packets.fetch_add(1, SeqCst);
                })
            })
        };
        let hint = || if packets.load(SeqCst) == 0 { READ } else { NO_HINT };
        cell.note(cell.slot.enable(0, LEVEL, hint, 5).unwrap());
        assert_eq!(taker.join().unwrap(), Turn::Held(Events::IN));
        // The taker has read nothing, and enables it.
        cell.note(cell.slot.enable(0, LEVEL, || NO_HINT, 5).unwrap());
        assert_eq!(cell.won.load(SeqCst), 1);
        assert_eq!(cell.turn(), Turn::Held(Events::IN));
    });
}

#[test]
fn remembered_readiness_arms_but_never_reports_unchecked() {
    // The first way in which cached readiness could break a level packet: it is from before.
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        let late = {
            let cell = Arc::clone(&cell);
            // An edge of data that the handler has read already: nothing is readable.
            thread::spawn(move || cell.deliver(Facts::IN))
        };
        let armed = cell.put_back(Some(LEVEL), NO_HINT);
        assert_ne!(armed, Next::Queue);
        late.join().unwrap();
        if cell.won.load(SeqCst) == 1 && armed == Next::Recheck {
            // Whether the stale edge came before or after, the kernel's word decides.
            let turn = cell.turn();
            if turn == Turn::Nothing {
                assert_eq!(cell.won.load(SeqCst), 0);
            }
        }
    });
}

#[test]
fn an_edge_harvested_before_arming_is_checked() {
    // The second way: the kernel found the edge, the handler read the data and armed, and only then
    // is the edge delivered.
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        cell.readable.store(true, SeqCst);
        let harvest = Arc::new(AtomicU32::new(4));
        let kernel = {
            let (cell, harvest) = (Arc::clone(&cell), Arc::clone(&harvest));
            thread::spawn(move || {
                let number = harvest.fetch_add(1, SeqCst) + 1;
                sync::fence(SeqCst);
                if cell.readable.load(SeqCst) {
                    cell.deliver_among(Facts::IN, number, || harvest.load(SeqCst))
                } else {
                    Next::Nothing
                }
            })
        };
        // Another thread begins a harvest meanwhile, where several may.
        harvest.fetch_add(1, SeqCst);
        // The handler reads all there is, and says so.
        cell.readable.store(false, SeqCst);
        cell.put_key(7);
        sync::fence(SeqCst);
        let number = harvest.load(SeqCst);
        let armed = cell.note(cell.slot.put_back(Some(LEVEL), READ, number));
        assert_ne!(armed, Next::Queue);
        let delivered = kernel.join().unwrap();
        assert_ne!(delivered, Next::Queue, "nothing is readable, so nothing goes out unchecked");
        if cell.won.load(SeqCst) == 1 {
            assert_eq!(cell.turn(), Turn::Nothing);
        }
    });
}

#[test]
fn an_edge_that_overtakes_a_check_is_not_lost() {
    for mode in [LEVEL, PERSISTENT, EDGE] {
        explore(move || {
            let cell = Arc::new(Cell::registered(mode));
            // Something to check: remembered readiness that no longer holds.
            assert_eq!(cell.deliver(Facts::IN | Facts::RDHUP), Next::Recheck);
            let kernel = {
                let cell = Arc::clone(&cell);
                thread::spawn(move || {
                    cell.readable.store(true, SeqCst);
                    cell.deliver(Facts::IN);
                })
            };
            let first = cell.turn();
            kernel.join().unwrap();
            if first == Turn::Nothing {
                assert_eq!(cell.won.load(SeqCst), 1, "the later edge must have won the node");
                assert!(matches!(cell.turn(), Turn::Held(_) | Turn::Cloned(_)));
            } else {
                assert!(matches!(first, Turn::Held(_) | Turn::Cloned(_)));
            }
        });
    }
}

#[test]
fn whatever_comes_during_a_check_makes_it_be_repeated() {
    // Not only IN and OUT: a hang-up or an error that nobody had seen when the kernel was asked.
    const ENDS: Mode = Mode { interest: Interest::HANGUP, edge: false, one_shot: true };
    const ERRORS: Mode = Mode { interest: Interest::NONE, edge: true, one_shot: false };
    for (mode, late) in [(ENDS, Facts::RDHUP), (ENDS, Facts::HUP), (ERRORS, Facts::ERR)] {
        explore(move || {
            let cell = Arc::new(Cell::registered(mode));
            assert_eq!(cell.deliver(Facts::ERR), Next::Recheck);
            cell.won.store(0, SeqCst);
            let ended = Arc::new(AtomicBool::new(false));
            let kernel = {
                let (cell, ended) = (Arc::clone(&cell), Arc::clone(&ended));
                thread::spawn(move || {
                    ended.store(true, SeqCst);
                    cell.deliver(late);
                })
            };
            let ask = || {
                cell.slot.begin_check();
                let facts = if ended.load(SeqCst) { late } else { Facts::NONE };
                cell.slot.check(Answer { kind: Some(Kind::Stream), ..facts.into() })
            };
            let mut checked = ask();
            kernel.join().unwrap();
            if checked == Checked::Nothing {
                // The node was given back before the news: the edge must have won it.
                assert_eq!(cell.won.load(SeqCst), 1);
                checked = ask();
            }
            loop {
                while checked == Checked::Again {
                    checked = ask();
                }
                assert_eq!(checked, Checked::Hot);
                match cell.slot.take() {
                    Turn::Check => checked = ask(),
                    turn => {
                        assert!(matches!(turn, Turn::Held(_) | Turn::Cloned(_)), "{turn:?}");
                        break;
                    }
                }
            }
        });
    }
}

#[test]
fn what_comes_during_a_check_of_a_disabled_slot_is_found_when_it_is_enabled() {
    // Neither is there a further edge for an error, nor for an end that data came before.
    for late in [Facts::ERR, Facts::RDHUP, Facts::HUP] {
        explore(move || {
            let cell = Arc::new(Cell::registered(LEVEL));
            assert_eq!(cell.deliver(Facts::ERR), Next::Recheck);
            let came = Arc::new(AtomicBool::new(false));
            let kernel = {
                let (cell, came) = (Arc::clone(&cell), Arc::clone(&came));
                thread::spawn(move || {
                    came.store(true, SeqCst);
                    cell.deliver(late);
                })
            };
            let disabler = {
                let cell = Arc::clone(&cell);
                thread::spawn(move || cell.slot.disable(0).unwrap())
            };
            cell.won.store(0, SeqCst);
            loop {
                cell.slot.begin_check();
                let facts = if came.load(SeqCst) { late } else { Facts::NONE };
                match cell.slot.check(facts.into()) {
                    Checked::Again => {}
                    Checked::Nothing => break,
                    Checked::Hot => match cell.slot.take() {
                        Turn::Check => {}
                        _ => break,
                    },
                }
            }
            disabler.join().unwrap();
            kernel.join().unwrap();
            let won = cell.won.load(SeqCst) == 1;
            if cell.slot.word().is_held() {
                cell.slot.put_back(None, NO_HINT, 5);
            }
            let enabled = cell.slot.enable(0, LEVEL, || NO_HINT, 5).unwrap();
            assert!(won || enabled == Next::Recheck, "nobody will ask the kernel");
        });
    }
}

#[test]
fn an_edge_is_reported_however_often_its_registration_is_enabled_meanwhile() {
    explore(|| {
        let cell = Arc::new(Cell::registered(EDGE));
        let kernel = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                cell.readable.store(true, SeqCst);
                cell.deliver(Facts::IN);
            })
        };
        for _ in 0..2 {
            cell.note(cell.slot.enable(0, EDGE, || NO_HINT, 5).unwrap());
        }
        kernel.join().unwrap();
        assert_eq!(cell.won.load(SeqCst), 1);
        assert_eq!(cell.turn(), Turn::Held(Events::IN));
    });
}

#[test]
fn a_registration_that_is_being_made_is_shut_down_with_the_others() {
    explore(|| {
        let (engine, _) = engine(1);
        let registrar = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                let index = engine.reserve_slot(Call::Register, |_| true).ok()?;
                let registered = engine.register(index, 3, LEVEL, false, || None);
                if registered.is_err() {
                    engine.cancel(index);
                }
                registered.ok()
            })
        };
        engine.shut_down().unwrap();
        let registered = registrar.join().unwrap();
        let seat = engine.join();
        let mut removed = None;
        while engine.wait(&seat, &mut scratch(), 1, None) == Waited::Packets {
            while let Some(taken) = next(&engine, &seat) {
                let Taken::Removed(name) = taken else { panic!("{taken:?}") };
                assert_eq!(removed.replace(name), None);
                engine.free(name);
            }
        }
        assert_eq!(removed, registered, "the key is given back once: here or by the refusal");
        assert_eq!(engine.snapshot().registered, 0);
    });
}

#[test]
fn enabling_and_disabling_against_an_edge_leave_nothing_behind() {
    explore(|| {
        let cell = Arc::new(Cell::registered(LEVEL));
        cell.slot.disable(0).unwrap();
        let kernel = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                cell.readable.store(true, SeqCst);
                cell.deliver(Facts::IN);
            })
        };
        let disabler = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || cell.slot.disable(0).unwrap())
        };
        cell.note(cell.slot.enable(0, LEVEL, || NO_HINT, 5).unwrap());
        kernel.join().unwrap();
        disabler.join().unwrap();
        // Whatever happened, one more enabling must find the data.
        cell.note(cell.slot.enable(0, LEVEL, || NO_HINT, 5).unwrap());
        assert_eq!(cell.won.load(SeqCst), 1);
        assert_eq!(cell.turn(), Turn::Held(Events::IN));
        assert_eq!(cell.take_key(), 7);
    });
}

#[test]
fn removal_against_arming_and_an_edge_gives_the_key_back_once() {
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        let kernel = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || cell.deliver(Facts::IN))
        };
        let remover = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                if cell.slot.remove(0, false).unwrap() == Removal::Owned {
                    cell.note(Next::Queue);
                }
            })
        };
        cell.put_back(Some(LEVEL), NO_HINT);
        kernel.join().unwrap();
        remover.join().unwrap();
        assert_eq!(cell.won.load(SeqCst), 1);
        assert_eq!(cell.turn(), Turn::Removed);
        assert_eq!(cell.take_key(), 7);
        cell.slot.free();
        assert_eq!(cell.slot.remove(0, false), Err(Refusal::NotRegistered));
    });
}

#[test]
fn removal_against_a_persistent_packet_comes_last_and_never_during_a_clone() {
    for mode in [PERSISTENT, PERSISTENT_EDGE] {
        explore(move || {
            let cell = Arc::new(Cell::registered(mode));
            cell.readable.store(true, SeqCst);
            assert_eq!(cell.deliver(Facts::IN), Next::Queue);
            let remover = {
                let cell = Arc::clone(&cell);
                thread::spawn(move || {
                    if cell.slot.remove(0, false).unwrap() == Removal::Owned {
                        cell.note(Next::Queue);
                    }
                })
            };
            let kernel = {
                let cell = Arc::clone(&cell);
                thread::spawn(move || cell.deliver(Facts::IN))
            };
            cell.won.store(0, SeqCst);
            let mut removed = false;
            if let Turn::Cloned(events) = {
                cell.won.store(1, SeqCst);
                cell.turn()
            } {
                assert_eq!(events, Events::IN);
                assert_eq!(cell.clone_key(), 7);
                cell.note(cell.slot.cloned(Events::NONE));
            } else {
                removed = true;
            }
            remover.join().unwrap();
            kernel.join().unwrap();
            if !removed {
                assert_eq!(cell.won.load(SeqCst), 1);
                assert_eq!(cell.turn(), Turn::Removed);
            }
            assert_eq!(cell.take_key(), 7);
        });
    }
}

#[test]
fn a_closed_descriptor_gives_its_key_up_once() {
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        let other = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                if cell.slot.retire(0) == Removal::Owned {
                    cell.note(Next::Queue);
                }
            })
        };
        let armed = cell.put_back(Some(LEVEL), READ);
        other.join().unwrap();
        if armed == Next::Gone {
            assert_eq!(cell.won.load(SeqCst), 0);
        } else {
            assert_eq!(cell.won.load(SeqCst), 1);
            assert_eq!(cell.turn(), Turn::Gone);
        }
        assert_eq!(cell.take_key(), 7);
    });
}

#[test]
fn a_waiting_remover_gets_the_key_from_the_handler() {
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        let handler = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || cell.put_back(Some(LEVEL), NO_HINT))
        };
        let marked = cell.slot.remove(0, true).unwrap();
        let armed = handler.join().unwrap();
        match marked {
            Removal::Owned => assert_eq!(armed, Next::Nothing),
            Removal::Marked if armed == Next::Collect => {
                assert_eq!(cell.slot.collect(0), Some(Ok(())));
            }
            Removal::Marked => {
                assert_eq!(armed, Next::Recheck, "it was armed first, and stands in the queue");
                assert_eq!(cell.turn(), Turn::Collect);
                assert_eq!(cell.slot.collect(0), Some(Ok(())));
            }
            Removal::Already => unreachable!(),
        }
        assert_eq!(cell.take_key(), 7);
    });
}

#[test]
fn an_edge_of_the_former_registration_never_reaches_the_next_one() {
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        let late = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || cell.slot.deliver(0, Facts::IN, 9, || 9))
        };
        // The token is dropped, the slot given up and used again.
        cell.slot.free();
        let generation = cell.slot.register(4, LEVEL, false);
        assert_eq!(generation, 1);
        assert_eq!(cell.slot.put_back(Some(LEVEL), NO_HINT, 5), Next::Nothing);
        let delivery = late.join().unwrap();
        assert!(matches!(delivery, Delivery::Stale | Delivery::Noted(Next::Nothing)));
        // The new registration is silent: an edge of its own must be the first to win the node.
        assert_eq!(
            cell.slot.deliver(generation, Facts::IN, 9, || 9),
            Delivery::Noted(Next::Queue),
            "the late edge left something behind"
        );
    });
}

// ---- the engine --------------------------------------------------------------------------------

/// A kernel of a few booleans. Waits with a limit wait without one: no model depends on time; unless
/// it tells who sleeps, when a limit lets time pass, and the others go on.
struct Fake {
    state: loom::sync::Mutex<FakeState>,
    changed: loom::sync::Condvar,
    descriptors: Descriptors,
    /// Whether it tells who sleeps: for the one thread that says so in its place.
    tells: bool,
    /// The one descriptor is in the last one.
    sets: usize,
    sleeper: std::sync::OnceLock<thread::ThreadId>,
    /// Whether that thread sleeps; it has done so for long.
    asleep: AtomicBool,
    /// Of no interest to the model, so that it is no thing that the checker follows.
    microseconds: std::sync::atomic::AtomicU64,
}

#[derive(Default)]
struct FakeState {
    edges: Vec<Edge>,
    woken: bool,
    readable: bool,
    token: u64,
}

struct Handle(Arc<Fake>);

/// Parks as the real one does, on a lock and a condition: the checker's own `park` forgets an
/// `unpark` that comes while the thread waits for a lock, or lets the others go on.
struct LoomThread {
    thread: thread::ThreadId,
    token: loom::sync::Mutex<bool>,
    given: loom::sync::Condvar,
    fake: Arc<Fake>,
    /// As the clock.
    observed: std::sync::atomic::AtomicBool,
}

impl LoomThread {
    fn is_asleep(&self) -> bool {
        self.fake.sleeper.get() == Some(&self.thread) && self.fake.asleep.load(SeqCst)
    }
}

impl Thread for LoomThread {
    fn park(&self, timeout: Option<Duration>) {
        let mut token = self.token.lock().unwrap();
        if !*token {
            token = match timeout {
                Some(timeout) if self.fake.tells => {
                    drop(token);
                    self.fake.pass(timeout);
                    self.token.lock().unwrap()
                }
                _ => self.given.wait(token).unwrap(),
            };
        }
        *token = false;
    }
    fn nap(&self, until: Moment, last: Option<Moment>) {
        let until = last.map_or(until, |last| until.min(last));
        self.park(Some(until.since(self.fake.time())));
    }
    /// Who naps here comes back early.
    fn postpone(&self, _: Moment) {}
    fn unpark(&self) {
        *self.token.lock().unwrap() = true;
        self.given.notify_one();
    }
    fn asleep(&self) -> Option<bool> {
        self.fake.tells.then(|| self.is_asleep())
    }
    fn observe(&self) -> bool {
        self.observed.store(self.fake.tells, SeqCst);
        self.fake.tells
    }
    fn glance(&self) -> Option<Presence> {
        if !self.observed.load(SeqCst) {
            return None;
        }
        let asleep = Presence::Asleep { since: Moment::ZERO };
        Some(if self.is_asleep() { asleep } else { Presence::Awake })
    }
}

impl Fake {
    fn new(tells: bool) -> Arc<Self> {
        Self::with_sets(1, tells)
    }

    fn with_sets(sets: usize, tells: bool) -> Arc<Self> {
        Arc::new(Self {
            state: loom::sync::Mutex::new(FakeState::default()),
            changed: loom::sync::Condvar::new(),
            descriptors: Descriptors::new(),
            tells,
            sets,
            sleeper: std::sync::OnceLock::new(),
            asleep: AtomicBool::new(false),
            microseconds: std::sync::atomic::AtomicU64::new(if tells { 1_000_000 } else { 0 }),
        })
    }

    /// The calling thread is the one about which there is something to tell. Before it joins.
    fn is_me(&self) {
        self.sleeper.set(thread::current().id()).unwrap();
    }

    /// Lets the time of a wait with a limit pass, while the others go on.
    fn pass(&self, timeout: Duration) {
        let time = u64::try_from(timeout.as_micros()).unwrap();
        self.microseconds.fetch_add(time, SeqCst);
        thread::yield_now();
    }

    fn time(&self) -> Moment {
        Moment::ZERO + Duration::from_micros(self.microseconds.load(SeqCst))
    }

    fn arrive(&self) {
        let mut state = self.state.lock().unwrap();
        state.readable = true;
        let token = state.token;
        state.edges.push(Edge { token, facts: Facts::IN });
        self.changed.notify_all();
    }

    fn read(&self) {
        self.state.lock().unwrap().readable = false;
    }
}

impl Reactor for Handle {
    fn name(&self) -> &'static str {
        "fake"
    }
    fn attach(&self, _descriptor: Descriptor, token: u64) -> Result<(), Fault> {
        self.0.state.lock().unwrap().token = token;
        Ok(())
    }
    fn adopt(&self, _descriptor: Descriptor, token: u64) -> Result<(), Fault> {
        self.0.state.lock().unwrap().token = token;
        Ok(())
    }
    fn detach(&self, _descriptor: Descriptor) {}
    fn watches(&self, _descriptor: Descriptor) -> bool {
        true
    }
    fn sets(&self) -> usize {
        self.0.sets
    }
    fn doze(&self, timeout: Option<Duration>) -> u64 {
        let mut state = self.0.state.lock().unwrap();
        while timeout != Some(Duration::ZERO) && state.edges.is_empty() && !state.woken {
            if let Some(timeout) = timeout {
                drop(state);
                self.0.pass(timeout);
                state = self.0.state.lock().unwrap();
                break;
            }
            state = self.0.changed.wait(state).unwrap();
        }
        state.woken = false;
        if state.edges.is_empty() { 0 } else { 1 << (self.0.sets - 1) }
    }
    fn harvest(&self, set: usize, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> bool {
        edges.clear();
        if set + 1 < self.0.sets {
            return false;
        }
        let mut state = self.0.state.lock().unwrap();
        while timeout != Some(Duration::ZERO) && state.edges.is_empty() && !state.woken {
            if let Some(timeout) = timeout
                && self.0.tells
            {
                drop(state);
                self.0.pass(timeout);
                state = self.0.state.lock().unwrap();
                break;
            }
            state = self.0.changed.wait(state).unwrap();
        }
        let woken = self.0.sets == 1 && std::mem::take(&mut state.woken);
        // Like the real one it looks again at what it has noted, and reports what holds now.
        let readable = state.readable;
        state.edges.retain(|_| readable);
        edges.append(&mut state.edges);
        woken
    }
    fn wake(&self) {
        self.0.state.lock().unwrap().woken = true;
        self.0.changed.notify_all();
    }
    fn probe(&self, probes: &mut [Probe]) {
        let state = self.0.state.lock().unwrap();
        for probe in probes {
            probe.facts = if state.readable { Facts::IN } else { Facts::NONE };
        }
    }
    fn unread(&self, _descriptor: Descriptor) -> Option<usize> {
        None
    }
    fn is_own_end(&self, _descriptor: Descriptor) -> bool {
        false
    }
    fn kind(&self, _descriptor: Descriptor) -> Kind {
        Kind::Stream
    }
    fn rebuild(&self, _live: &mut dyn Iterator<Item = (Descriptor, u64)>) -> Result<(), Fault> {
        Ok(())
    }
}

impl Host for Handle {
    fn now(&self) -> Moment {
        self.0.time()
    }
    fn this_thread(&self) -> Box<dyn Thread> {
        Box::new(LoomThread {
            thread: thread::current().id(),
            token: loom::sync::Mutex::new(false),
            given: loom::sync::Condvar::new(),
            fake: Arc::clone(&self.0),
            observed: false.into(),
        })
    }
    fn can_observe(&self) -> Result<(), Fault> {
        if self.0.tells {
            return Ok(());
        }
        Err(Fault { kind: ErrorKind::Unsupported, code: None })
    }
    fn origin(&self) -> Origin {
        Origin::by_number()
    }
    fn descriptors(&self) -> &Descriptors {
        &self.0.descriptors
    }
}

fn engine(limit: usize) -> (Arc<Engine>, Arc<Fake>) {
    let fake = Fake::new(false);
    let backend = Box::new(Handle(Arc::clone(&fake)));
    (Engine::new(limit, BlockDetection::Automatic, backend).unwrap(), fake)
}

fn post(engine: &Engine) {
    engine.begin_post(|_| true).unwrap().queue();
}

/// False if the port was closed first.
fn try_to_post(engine: &Engine) -> bool {
    engine.begin_post(|_| true).map(|posting| posting.queue()).is_ok()
}

fn scratch() -> Scratch {
    Scratch::with_room(4)
}

/// The next packet of those that `seat` has been handed, as the iterator of a wait takes it.
fn next<'e>(engine: &'e Engine, seat: &Seat) -> Option<Taken<'e>> {
    match engine.next_ready(seat) {
        Ok((index, slot, events)) => {
            Some(Taken::Ready(slot, token(index, slot.word().generation()), events))
        }
        Err(first) => engine.next(seat, first),
    }
}

/// Waits and takes until the port is closed; gives the number of messages taken.
fn serve(engine: &Engine, room: usize) -> usize {
    let seat = engine.join();
    let mut scratch = scratch();
    let mut taken = 0;
    while engine.wait(&seat, &mut scratch, room, None) != Waited::Closed {
        while let Some(packet) = next(engine, &seat) {
            let Taken::Posted(cell) = packet else { panic!("only messages were posted") };
            engine.free_post(&seat, cell);
            taken += 1;
        }
    }
    engine.leave(&seat);
    taken
}

#[test]
fn a_post_against_a_thread_that_goes_to_sleep_is_not_missed() {
    explore(|| {
        let (engine, _) = engine(1);
        let waiter = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || serve(&engine, 2))
        };
        post(&engine);
        engine.close();
        assert_eq!(waiter.join().unwrap(), 1);
    });
}

#[test]
fn a_post_reaches_a_thread_even_if_nothing_else_ever_happens() {
    explore(|| {
        let (engine, _) = engine(1);
        let waiter = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                let seat = engine.join();
                let waited = engine.wait(&seat, &mut scratch(), 1, None);
                assert_eq!(waited, Waited::Packets);
                assert!(matches!(next(&engine, &seat), Some(Taken::Posted(_))));
            })
        };
        post(&engine);
        // No close: a lost wake-up would leave the waiter asleep, which the checker reports.
        waiter.join().unwrap();
    });
}

#[test]
fn two_waiters_get_two_posts() {
    explore(|| {
        let (engine, _) = engine(2);
        let wait_once = |engine: &Arc<Engine>| {
            let engine = Arc::clone(engine);
            thread::spawn(move || {
                let seat = engine.join();
                assert_eq!(engine.wait(&seat, &mut scratch(), 1, None), Waited::Packets);
                assert!(matches!(next(&engine, &seat), Some(Taken::Posted(_))));
                engine.leave(&seat);
            })
        };
        let waiters = [wait_once(&engine), wait_once(&engine)];
        post(&engine);
        post(&engine);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn with_one_seat_a_packet_waits_for_it_and_is_not_forgotten() {
    explore(|| {
        let (engine, _) = engine(1);
        let running = Arc::new(AtomicUsize::new(0));
        let wait_once = |engine: &Arc<Engine>| {
            let (engine, running) = (Arc::clone(engine), Arc::clone(&running));
            thread::spawn(move || {
                let seat = engine.join();
                assert_eq!(engine.wait(&seat, &mut scratch(), 1, None), Waited::Packets);
                assert!(matches!(next(&engine, &seat), Some(Taken::Posted(_))));
                assert_eq!(running.fetch_add(1, SeqCst), 0, "one thread runs at a time");
                running.fetch_sub(1, SeqCst);
                engine.leave(&seat);
            })
        };
        let waiters = [wait_once(&engine), wait_once(&engine)];
        post(&engine);
        post(&engine);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn a_thread_that_says_it_blocks_hands_its_seat_over() {
    explore(|| {
        let (engine, _) = engine(1);
        let other = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                let seat = engine.join();
                assert_eq!(engine.wait(&seat, &mut scratch(), 1, None), Waited::Packets);
                assert!(matches!(next(&engine, &seat), Some(Taken::Posted(_))));
                engine.leave(&seat);
            })
        };
        let seat = engine.join();
        post(&engine);
        post(&engine);
        assert_eq!(engine.wait(&seat, &mut scratch(), 1, None), Waited::Packets);
        assert!(matches!(next(&engine, &seat), Some(Taken::Posted(_))));
        // The other one must get the second message while this thread sleeps.
        assert!(engine.begin_blocking(&seat));
        other.join().unwrap();
        engine.end_blocking(&seat);
        engine.leave(&seat);
    });
}

#[test]
fn closing_ends_every_wait() {
    explore(|| {
        let (engine, _) = engine(2);
        let waiter = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || serve(&engine, 1))
        };
        let other = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || serve(&engine, 1))
        };
        engine.close();
        assert_eq!(waiter.join().unwrap() + other.join().unwrap(), 0);
    });
}

/// Two threads wait, in the kernel's wait as far as they like, and take what comes until the port is
/// closed.
fn crowd(meanwhile: impl FnOnce(&Engine, &Fake)) -> usize {
    let (engine, fake) = engine(3);
    engine.expect(Duration::from_millis(1));
    let waiters = [(); 2].map(|()| {
        let engine = Arc::clone(&engine);
        thread::spawn(move || serve(&engine, 1))
    });
    meanwhile(&engine, &fake);
    engine.close();
    waiters.map(|waiter| waiter.join().unwrap()).iter().sum()
}

#[test]
fn closing_ends_every_wait_of_a_crowd() {
    explore(|| assert_eq!(crowd(|_, _| ()), 0));
}

#[test]
fn a_crowd_gets_two_posts() {
    explore_within(2, || {
        let posts = |engine: &Engine, _: &Fake| {
            post(engine);
            post(engine);
        };
        assert_eq!(crowd(posts), 2);
    });
}

#[test]
fn a_post_reaches_one_of_a_crowd_even_if_nothing_else_ever_happens() {
    explore_within(2, || {
        let (engine, _) = engine(3);
        engine.expect(Duration::from_millis(1));
        let poster = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                post(&engine);
                post(&engine);
            })
        };
        let other = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || take_one(&engine))
        };
        take_one(&engine);
        other.join().unwrap();
        poster.join().unwrap();
    });
}

#[test]
fn an_edge_and_a_post_both_reach_a_crowd() {
    explore_within(2, || {
        let (engine, fake) = engine(3);
        engine.expect(Duration::from_millis(1));
        let name = register(&engine, LEVEL);
        let poster = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || post(&engine))
        };
        let other = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || take_any(&engine))
        };
        fake.arrive();
        let mut taken = [take_any(&engine), other.join().unwrap()];
        taken.sort();
        assert_eq!(taken, [Seen::Ready(name), Seen::Posted]);
        poster.join().unwrap();
    });
}

#[test]
fn an_edge_and_a_post_both_reach_those_who_wait_for_several_sets() {
    explore_within(2, || {
        let fake = Fake::with_sets(2, true);
        let backend = Box::new(Handle(Arc::clone(&fake)));
        let engine = Engine::new(2, BlockDetection::Announced, backend).unwrap();
        let name = register(&engine, LEVEL);
        let poster = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || post(&engine))
        };
        let other = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || take_any(&engine))
        };
        fake.arrive();
        let mut taken = [take_any(&engine), other.join().unwrap()];
        taken.sort();
        assert_eq!(taken, [Seen::Ready(name), Seen::Posted]);
        poster.join().unwrap();
    });
}

/// What a packet was.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    /// Something to read for the registration of this name.
    Ready(u64),
    Posted,
}

impl Seen {
    fn of(taken: Taken<'_>) -> Self {
        match taken {
            Taken::Ready(_, name, Events::IN) => Self::Ready(name),
            Taken::Posted(_) => Self::Posted,
            other => panic!("{other:?}"),
        }
    }
}

/// The next packet at hand.
fn see_next(engine: &Engine, seat: &Seat) -> Option<Seen> {
    next(engine, seat).map(Seen::of)
}

/// Waits for a packet, takes it and goes.
fn take_any(engine: &Engine) -> Seen {
    let seat = engine.join();
    assert_eq!(engine.wait(&seat, &mut scratch(), 1, None), Waited::Packets);
    let seen = see_next(engine, &seat).unwrap();
    engine.leave(&seat);
    seen
}

/// Waits for a message, takes it and goes.
fn take_one(engine: &Engine) {
    assert_eq!(take_any(engine), Seen::Posted);
}

/// Registers the one descriptor of the fake kernel.
fn register(engine: &Engine, mode: Mode) -> u64 {
    let index = engine.reserve_slot(Call::Register, |_| true).unwrap();
    engine.register(index, 3, mode, false, || None).unwrap()
}

#[test]
fn an_edge_and_a_post_both_reach_the_thread_in_the_kernels_wait() {
    explore(|| {
        let (engine, fake) = engine(1);
        register(&engine, LEVEL);
        let kernel = {
            let fake = Arc::clone(&fake);
            thread::spawn(move || fake.arrive())
        };
        let poster = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || post(&engine))
        };
        let seat = engine.join();
        let (mut ready, mut posted) = (0, 0);
        while ready + posted < 2 {
            assert_eq!(engine.wait(&seat, &mut scratch(), 4, None), Waited::Packets);
            while let Some(taken) = next(&engine, &seat) {
                match Seen::of(taken) {
                    Seen::Ready(_) => ready += 1,
                    Seen::Posted => posted += 1,
                }
            }
        }
        assert_eq!((ready, posted), (1, 1));
        kernel.join().unwrap();
        poster.join().unwrap();
    });
}

/// A thread that only asks whether there is a packet may find an edge, or use up a wake, for which another
/// one is about to sleep in the kernel's wait.
#[test]
fn who_asks_for_packets_takes_nothing_from_a_thread_that_waits() {
    for is_edge in [false, true] {
        explore(move || {
            let (engine, fake) = engine(1);
            register(&engine, LEVEL);
            let [waiter, asker] = [true, false].map(|waits| {
                let engine = Arc::clone(&engine);
                thread::spawn(move || {
                    if waits {
                        take_any(&engine);
                    } else {
                        engine.has_packets(None, &mut scratch()).unwrap();
                    }
                })
            });
            if is_edge {
                fake.arrive()
            } else {
                post(&engine)
            }
            // Nothing else ever happens.
            waiter.join().unwrap();
            asker.join().unwrap();
        });
    }
}

/// A thread that only asks may have what is left of a closed port in its hands: to check it, without the
/// lock. Waits go on until it is put back, and end if nothing comes of it.
#[test]
fn a_closed_port_is_not_over_while_a_thread_that_asks_checks_what_is_left() {
    for is_left in [true, false] {
        explore(move || {
            let (engine, fake) = engine(1);
            let name = register(&engine, LEVEL);
            fake.arrive();
            let seat = engine.join();
            assert_eq!(engine.wait(&seat, &mut scratch(), 4, None), Waited::Packets);
            assert_eq!(see_next(&engine, &seat), Some(Seen::Ready(name)));
            if !is_left {
                fake.read();
            }
            let mine = || Some(Arc::clone(&seat));
            let slot = engine.slot(token_parts(name).0);
            engine.put_back(Call::Rearm, slot, name, Some(LEVEL), NO_HINT, mine).unwrap();
            engine.close();
            let asker = {
                let engine = Arc::clone(&engine);
                thread::spawn(move || {
                    engine.has_packets(None, &mut scratch()).map_err(|e| e.kind())
                })
            };
            let first = engine.wait(&seat, &mut scratch(), 4, None);
            let taken = if first == Waited::Packets { see_next(&engine, &seat) } else { None };
            assert_eq!(taken.is_some(), is_left);
            let said = asker.join().unwrap();
            assert!(is_left || matches!(said, Ok(false) | Err(ErrorKind::Closed)), "{said:?}");
            if first == Waited::Packets {
                assert_eq!(engine.wait(&seat, &mut scratch(), 4, None), Waited::Closed);
            }
        });
    }
}

#[test]
fn data_that_a_handler_left_behind_is_found_by_the_next_wait() {
    explore(|| {
        let (engine, fake) = engine(1);
        let name = register(&engine, LEVEL);
        fake.arrive();
        let seat = engine.join();
        assert_eq!(engine.wait(&seat, &mut scratch(), 4, None), Waited::Packets);
        assert_eq!(see_next(&engine, &seat), Some(Seen::Ready(name)));
        let kernel = {
            let fake = Arc::clone(&fake);
            thread::spawn(move || {
                // All was read, and more arrives: before or after the handler arms.
                fake.read();
                fake.arrive();
            })
        };
        let mine = || Some(Arc::clone(&seat));
        engine
            .put_back(
                Call::Rearm,
                engine.slot(token_parts(name).0),
                name,
                Some(LEVEL),
                NO_HINT,
                mine,
            )
            .unwrap();
        assert_eq!(engine.wait(&seat, &mut scratch(), 4, None), Waited::Packets);
        assert_eq!(see_next(&engine, &seat), Some(Seen::Ready(name)));
        kernel.join().unwrap();
    });
}

#[test]
fn an_edge_that_a_wait_found_before_its_data_was_read_makes_no_packet() {
    // As above, with the numbers that the engine gives: a harvest finds the edge, the handler reads
    // the data, says so and arms, and only then is the edge delivered.
    explore(|| {
        let (engine, fake) = engine(2);
        let name = register(&engine, LEVEL);
        fake.arrive();
        let seat = engine.join();
        assert_eq!(engine.wait(&seat, &mut scratch(), 4, None), Waited::Packets);
        assert_eq!(see_next(&engine, &seat), Some(Seen::Ready(name)));
        fake.arrive();
        let other = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                let seat = engine.join();
                engine.wait(&seat, &mut scratch(), 4, Some(Moment::ZERO));
                let seen = see_next(&engine, &seat);
                engine.leave(&seat);
                seen
            })
        };
        fake.read();
        engine
            .put_back(
                Call::Rearm,
                engine.slot(token_parts(name).0),
                name,
                Some(LEVEL),
                READ,
                || None,
            )
            .unwrap();
        assert_eq!(other.join().unwrap(), None, "nothing could be read since it was armed");
    });
}

#[test]
fn packets_taken_back_from_a_thread_are_taken_once() {
    explore(|| {
        let (engine, _) = engine(2);
        post(&engine);
        post(&engine);
        let seat = engine.join();
        assert_eq!(engine.wait(&seat, &mut scratch(), 2, None), Waited::Packets);
        let thief = {
            let (engine, seat) = (Arc::clone(&engine), Arc::clone(&seat));
            thread::spawn(move || {
                engine.give_back(&seat);
                let mine = engine.join();
                let mut taken = 0;
                // A thread at work counts on the other one for a part of what there is.
                while engine.wait(&mine, &mut scratch(), 2, Some(Moment::ZERO)) == Waited::Packets {
                    while next(&engine, &mine).is_some() {
                        taken += 1;
                    }
                }
                engine.leave(&mine);
                taken
            })
        };
        let mut taken = 0;
        while next(&engine, &seat).is_some() {
            taken += 1;
        }
        let stolen = thief.join().unwrap();
        engine.leave(&seat);
        assert_eq!(taken + stolen, 2);
    });
}

#[test]
fn a_remover_that_waits_gets_the_key_whatever_the_handler_does() {
    explore(|| {
        let (engine, fake) = engine(2);
        let name = register(&engine, LEVEL);
        fake.arrive();
        let seat = engine.join();
        assert_eq!(engine.wait(&seat, &mut scratch(), 4, None), Waited::Packets);
        assert_eq!(see_next(&engine, &seat), Some(Seen::Ready(name)));
        let remover = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                engine.collect(name, None).unwrap();
                engine.free(name);
            })
        };
        let mine = || Some(Arc::clone(&seat));
        engine
            .put_back(
                Call::Rearm,
                engine.slot(token_parts(name).0),
                name,
                Some(LEVEL),
                NO_HINT,
                mine,
            )
            .unwrap();
        remover.join().unwrap();
        assert_eq!(engine.snapshot().registered, 0);
    });
}

#[test]
fn a_remover_that_gives_up_waiting_leaves_an_ordinary_removal() {
    explore(|| {
        let (engine, fake) = engine(2);
        let name = register(&engine, LEVEL);
        fake.arrive();
        let seat = engine.join();
        assert_eq!(engine.wait(&seat, &mut scratch(), 4, None), Waited::Packets);
        assert_eq!(see_next(&engine, &seat), Some(Seen::Ready(name)));
        let remover = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || engine.collect(name, Some(Duration::ZERO)).is_ok())
        };
        engine
            .put_back(
                Call::Rearm,
                engine.slot(token_parts(name).0),
                name,
                Some(LEVEL),
                NO_HINT,
                || None,
            )
            .unwrap();
        if !remover.join().unwrap() {
            // Its time was over first: the key comes with the last packet instead.
            assert_eq!(engine.wait(&seat, &mut scratch(), 4, None), Waited::Packets);
            assert!(
                matches!(next(&engine, &seat), Some(Taken::Removed(removed)) if removed == name)
            );
        }
        engine.free(name);
        assert_eq!(engine.snapshot().registered, 0);
    });
}
