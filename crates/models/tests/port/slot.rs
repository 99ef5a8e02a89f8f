//! Models the word of a slot alone: edges, arming, checks, removal, and who may access the key
//! when.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use loom::thread;

use crate::kit::{EDGE, LEVEL, NO_HINT, PERSISTENT, PERSISTENT_EDGE, READ, explore, spawn};
use crate::state::facts::{DescriptorKind, Facts};
use crate::state::slot::{
    Answer, Checked, Delivery, Drained, NodeTurn, Refusal, Removal, Slot, SlotStep,
};
use crate::sync;
use crate::types::interest::Mode;
use crate::types::interest::{Events, Interest};

/// A slot and its key. loom reports two unordered accesses to the key.
struct Cell {
    slot: Slot,
    key: UnsafeCell<Option<u32>>,
    /// Counts slot nodes that a thread owns and has not yet processed. Replaces the queue.
    won: AtomicUsize,
    /// Whether the kernel would report that a read or a write doesn't block.
    readable: AtomicBool,
    writable: AtomicBool,
}

impl Cell {
    fn registered(mode: Mode) -> Self {
        let slot = Slot::default();
        slot.register(3, mode, false);
        slot.watch(slot.word().wanted_directions());
        assert_eq!(slot.put_back(Some(mode), false, NO_HINT, 0), SlotStep::Nothing);
        Self {
            slot,
            key: UnsafeCell::new(Some(7)),
            won: AtomicUsize::new(0),
            readable: AtomicBool::new(false),
            writable: AtomicBool::new(false),
        }
    }

    /// A registered slot whose packet was taken. The key is out.
    fn held(mode: Mode) -> Self {
        let cell = Self::registered(mode);
        assert_eq!(cell.deliver(Facts::IN), SlotStep::Queue);
        cell.won.store(0, SeqCst);
        assert_eq!(cell.slot.take(), NodeTurn::Held(Events::IN));
        assert_eq!(cell.take_key(), 7);
        cell
    }

    fn note(&self, next: SlotStep) -> SlotStep {
        if matches!(next, SlotStep::Queue | SlotStep::Recheck) {
            assert_eq!(self.won.fetch_add(1, SeqCst), 0, "a node is won by one thread at a time");
        }
        next
    }

    fn deliver(&self, facts: Facts) -> SlotStep {
        self.deliver_at(facts, 9)
    }

    /// Returns what the kernel would report.
    fn facts(&self) -> Facts {
        let facts = if self.readable.load(SeqCst) { Facts::IN } else { Facts::NONE };
        if self.writable.load(SeqCst) { facts | Facts::OUT } else { facts }
    }

    /// Makes data available and delivers the kernel's edge.
    fn arrive(&self) {
        self.readable.store(true, SeqCst);
        self.deliver(Facts::IN);
    }

    fn deliver_at(&self, facts: Facts, poll: u32) -> SlotStep {
        self.deliver_among(facts, poll, || poll)
    }

    fn deliver_among(&self, facts: Facts, poll: u32, newest: impl Fn() -> u32) -> SlotStep {
        if self.slot.queue(0, facts, poll, &newest) {
            return self.note(SlotStep::Queue);
        }
        match self.slot.deliver(0, facts, poll, newest) {
            Delivery::Stale => SlotStep::Nothing,
            Delivery::Noted(next) => self.note(next),
            Delivery::NotifyOps(..) | Delivery::Due => unreachable!("no operation is in flight"),
        }
    }

    fn put_back(&self, mode: Option<Mode>, drained: Drained) -> SlotStep {
        self.put_key(7);
        if mode.is_some() && self.slot.rearm(mode, false, drained, 5) {
            return SlotStep::Nothing;
        }
        self.note(self.slot.put_back(mode, false, drained, 5))
    }

    /// Returns the key and asks for another packet.
    fn put_back_again(&self) -> SlotStep {
        self.put_key(7);
        self.note(self.slot.put_back_again(READ, 5))
    }

    fn take_key(&self) -> u32 {
        self.key.with_mut(|key| {
            // SAFETY: dereferencing requires that no other thread accesses the cell meanwhile.
            // - The model checks exactly that: loom reports any unordered access.
            unsafe { (*key).take() }.expect("the key is taken out once")
        })
    }

    fn put_key(&self, key: u32) {
        self.key.with_mut(|place| {
            // SAFETY: dereferencing requires that no other thread accesses the cell meanwhile.
            // - The model checks exactly that: loom reports any unordered access.
            let before = unsafe { (*place).replace(key) };
            assert_eq!(before, None, "the cell is empty while the key is out");
        });
    }

    fn clone_key(&self) -> u32 {
        self.key.with(|key| {
            // SAFETY: dereferencing requires that no other thread writes to the cell meanwhile.
            // - The model checks exactly that: loom reports any unordered access.
            unsafe { *key }.expect("the key is there to be cloned")
        })
    }

    /// A registered slot whose packet was taken. The key stays in its cell.
    fn parked(mode: Mode) -> Self {
        let cell = Self::registered(mode);
        assert_eq!(cell.deliver(Facts::IN), SlotStep::Queue);
        assert_eq!(cell.turn_without_token(|| {}), NodeTurn::Held(Events::IN));
        cell
    }

    /// Processes the node as its owner does: checks, then takes.
    fn turn(&self) -> NodeTurn {
        self.turn_by(|| self.slot.take_plainly().map_or_else(|| self.slot.take(), NodeTurn::Held))
    }

    /// Like `turn`, but first clones the key and leaves a one-shot registration parked.
    fn turn_without_token(&self, before: impl Fn()) -> NodeTurn {
        self.turn_by(|| {
            before();
            assert_eq!(self.clone_key(), 7);
            self.slot.take_and_park()
        })
    }

    fn turn_by(&self, take: impl Fn() -> NodeTurn) -> NodeTurn {
        assert_eq!(self.won.swap(0, SeqCst), 1);
        loop {
            match take() {
                NodeTurn::Check => {
                    self.slot.begin_check();
                    if self.slot.check(self.facts().into()) == Checked::Nothing {
                        return NodeTurn::Nothing;
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
            let kernel = spawn(&cell, Cell::arrive);
            cell.put_back(Some(mode), READ);
            kernel.join().unwrap();
            assert_eq!(cell.won.load(SeqCst), 1);
            assert_eq!(cell.turn(), NodeTurn::Held(Events::IN));
            assert_eq!(cell.take_key(), 7);
        });
    }
}

#[test]
fn two_edges_and_arming_make_one_packet_or_two_in_turn() {
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        let kernel = spawn(&cell, |cell| {
            cell.readable.store(true, SeqCst);
            cell.deliver(Facts::IN);
            cell.deliver(Facts::IN);
        });
        cell.put_back(Some(LEVEL), NO_HINT);
        kernel.join().unwrap();
        assert_eq!(cell.won.load(SeqCst), 1);
        assert_eq!(cell.turn(), NodeTurn::Held(Events::IN));
    });
}

#[test]
fn an_edge_that_meets_enabling_by_name_is_neither_lost_nor_told_twice() {
    for mode in [LEVEL, EDGE] {
        explore(move || {
            let cell = Arc::new(Cell::parked(mode));
            let kernel = spawn(&cell, Cell::arrive);
            cell.note(cell.slot.enable(0, mode, || READ, 5).unwrap());
            kernel.join().unwrap();
            assert_eq!(cell.won.load(SeqCst), 1);
            assert_eq!(cell.turn_without_token(|| {}), NodeTurn::Held(Events::IN));
        });
    }
}

/// A thread that has found a descriptor drained may enable it after another thread has taken a
/// packet of later data. The packet count, which is raised before each node is processed, reveals
/// that the hint is out of date.
#[test]
fn a_hint_from_before_a_packet_hides_nothing_from_who_took_it() {
    explore(|| {
        let cell = Arc::new(Cell::registered(LEVEL));
        let packets = Arc::new(AtomicUsize::new(0));
        cell.readable.store(true, SeqCst);
        assert_eq!(cell.deliver(Facts::IN), SlotStep::Queue);
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
        assert_eq!(taker.join().unwrap(), NodeTurn::Held(Events::IN));
        // The taker has read nothing, and enables the registration.
        cell.note(cell.slot.enable(0, LEVEL, || NO_HINT, 5).unwrap());
        assert_eq!(cell.won.load(SeqCst), 1);
        assert_eq!(cell.turn(), NodeTurn::Held(Events::IN));
    });
}

#[test]
fn remembered_readiness_arms_but_never_reports_unchecked() {
    // First way in which remembered readiness could falsify a level packet: the edge is old.
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        // An edge of data that the handler has already read: nothing is readable.
        let late = spawn(&cell, |cell| cell.deliver(Facts::IN));
        let armed = cell.put_back(Some(LEVEL), NO_HINT);
        assert_ne!(armed, SlotStep::Queue);
        late.join().unwrap();
        if cell.won.load(SeqCst) == 1 && armed == SlotStep::Recheck {
            // Whether the stale edge came before or after, the kernel's answer decides.
            let turn = cell.turn();
            if turn == NodeTurn::Nothing {
                assert_eq!(cell.won.load(SeqCst), 0);
            }
        }
    });
}

#[test]
fn an_edge_polled_before_arming_is_checked() {
    // Second way: the kernel found the edge, the handler read the data and armed, and only then is
    // the edge delivered.
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        cell.readable.store(true, SeqCst);
        let poll = Arc::new(AtomicU32::new(4));
        let kernel = {
            let (cell, poll) = (Arc::clone(&cell), Arc::clone(&poll));
            thread::spawn(move || {
                let number = poll.fetch_add(1, SeqCst) + 1;
                sync::fence(SeqCst);
                if cell.readable.load(SeqCst) {
                    cell.deliver_among(Facts::IN, number, || poll.load(SeqCst))
                } else {
                    SlotStep::Nothing
                }
            })
        };
        // Another thread begins a poll meanwhile, where several may.
        poll.fetch_add(1, SeqCst);
        // The handler reads all data and gives a hint.
        cell.readable.store(false, SeqCst);
        cell.put_key(7);
        sync::fence(SeqCst);
        let number = poll.load(SeqCst);
        let armed = cell.note(cell.slot.put_back(Some(LEVEL), false, READ, number));
        assert_ne!(armed, SlotStep::Queue);
        let delivered = kernel.join().unwrap();
        assert_ne!(
            delivered,
            SlotStep::Queue,
            "nothing is readable, so nothing goes out unchecked"
        );
        if cell.won.load(SeqCst) == 1 {
            assert_eq!(cell.turn(), NodeTurn::Nothing);
        }
    });
}

#[test]
fn an_edge_that_overtakes_a_check_is_not_lost() {
    for mode in [LEVEL, PERSISTENT, EDGE] {
        explore(move || {
            let cell = Arc::new(Cell::registered(mode));
            // There is something to check: remembered readiness that no longer holds.
            assert_eq!(cell.deliver(Facts::IN | Facts::RDHUP), SlotStep::Recheck);
            let kernel = spawn(&cell, Cell::arrive);
            let first = cell.turn();
            kernel.join().unwrap();
            if first == NodeTurn::Nothing {
                assert_eq!(cell.won.load(SeqCst), 1, "the later edge must have won the node");
                assert!(matches!(cell.turn(), NodeTurn::Held(_) | NodeTurn::Cloned(_)));
            } else {
                assert!(matches!(first, NodeTurn::Held(_) | NodeTurn::Cloned(_)));
            }
        });
    }
}

#[test]
fn whatever_comes_during_a_check_makes_it_be_repeated() {
    // Not only IN and OUT: also a hang-up or an error that did not exist yet when the kernel was
    // asked.
    const ENDS: Mode = Mode { interest: Interest::HANGUP, edge: false, one_shot: true };
    const ERRORS: Mode = Mode { interest: Interest::NONE, edge: true, one_shot: false };
    for (mode, late) in
        [(ENDS, Facts::RDHUP), (ENDS, Facts::RDHUP | Facts::HUP), (ERRORS, Facts::ERR)]
    {
        explore(move || {
            let cell = Arc::new(Cell::registered(mode));
            assert_eq!(cell.deliver(Facts::ERR), SlotStep::Recheck);
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
                cell.slot.check(Answer { kind: Some(DescriptorKind::Stream), ..facts.into() })
            };
            let mut checked = ask();
            kernel.join().unwrap();
            if checked == Checked::Nothing {
                // The node was released before the news arrived, so the edge must own it.
                assert_eq!(cell.won.load(SeqCst), 1);
                checked = ask();
            }
            loop {
                while checked == Checked::Again {
                    checked = ask();
                }
                assert_eq!(checked, Checked::Hot);
                match cell.slot.take() {
                    NodeTurn::Check => checked = ask(),
                    turn => {
                        assert!(
                            matches!(turn, NodeTurn::Held(_) | NodeTurn::Cloned(_)),
                            "{turn:?}"
                        );
                        break;
                    }
                }
            }
        });
    }
}

#[test]
fn what_comes_during_a_check_of_a_disabled_slot_is_found_when_it_is_enabled() {
    // Neither an error nor an end that follows data brings a further edge.
    for late in [Facts::ERR, Facts::RDHUP, Facts::HUP] {
        explore(move || {
            let cell = Arc::new(Cell::registered(LEVEL));
            assert_eq!(cell.deliver(Facts::ERR), SlotStep::Recheck);
            let came = Arc::new(AtomicBool::new(false));
            let kernel = {
                let (cell, came) = (Arc::clone(&cell), Arc::clone(&came));
                thread::spawn(move || {
                    came.store(true, SeqCst);
                    cell.deliver(late);
                })
            };
            let disabler = spawn(&cell, |cell| cell.slot.disable(0).unwrap());
            cell.won.store(0, SeqCst);
            loop {
                cell.slot.begin_check();
                let facts = if came.load(SeqCst) { late } else { Facts::NONE };
                match cell.slot.check(facts.into()) {
                    Checked::Again => {}
                    Checked::Nothing => break,
                    Checked::Hot => match cell.slot.take() {
                        NodeTurn::Check => {}
                        _ => break,
                    },
                }
            }
            disabler.join().unwrap();
            kernel.join().unwrap();
            let won = cell.won.load(SeqCst) == 1;
            if cell.slot.word().is_held() {
                cell.slot.put_back(None, false, NO_HINT, 5);
            }
            let enabled = cell.slot.enable(0, LEVEL, || NO_HINT, 5).unwrap();
            assert!(won || enabled == SlotStep::Recheck, "nobody will ask the kernel");
        });
    }
}

#[test]
fn an_edge_is_reported_however_often_its_registration_is_enabled_meanwhile() {
    explore(|| {
        let cell = Arc::new(Cell::registered(EDGE));
        let kernel = spawn(&cell, Cell::arrive);
        for _ in 0..2 {
            cell.note(cell.slot.enable(0, EDGE, || NO_HINT, 5).unwrap());
        }
        kernel.join().unwrap();
        assert_eq!(cell.won.load(SeqCst), 1);
        assert_eq!(cell.turn(), NodeTurn::Held(Events::IN));
    });
}

/// Another connection's handler queues data for this connection and requests a report of room,
/// while this connection's handler has just found the queue empty.
#[test]
fn a_request_for_room_that_meets_arming_is_not_lost() {
    for mode in [Some(LEVEL), Some(EDGE), None] {
        for is_full in [false, true] {
            explore(move || {
                let cell = Arc::new(Cell::held(LEVEL));
                cell.slot.watch(Facts::IN | Facts::OUT);
                cell.writable.store(!is_full, SeqCst);
                if !is_full {
                    assert_eq!(cell.deliver(Facts::OUT), SlotStep::Nothing);
                }
                let queue = Arc::new(AtomicUsize::new(0));
                let other = {
                    let (cell, queue) = (Arc::clone(&cell), Arc::clone(&queue));
                    thread::spawn(move || {
                        queue.fetch_add(1, SeqCst);
                        cell.note(cell.slot.enable_also(0, Interest::OUT, 5).unwrap());
                    })
                };
                let kernel = is_full.then(|| {
                    spawn(&cell, |cell| {
                        cell.writable.store(true, SeqCst);
                        cell.deliver(Facts::OUT);
                    })
                });
                // The handler reports the queue as empty, perhaps too soon.
                let seen = queue.load(SeqCst);
                cell.put_back(mode, READ);
                other.join().unwrap();
                if let Some(kernel) = kernel {
                    kernel.join().unwrap();
                }
                assert_eq!(cell.won.load(SeqCst), 1, "nobody looks at the queue, {seen}");
                assert_eq!(cell.turn(), NodeTurn::Held(Events::OUT));
                assert_eq!(cell.take_key(), 7);
                assert!(!cell.slot.word().interest().contains(Interest::OUT) || mode.is_none());
            });
        }
    }
}

#[test]
fn a_request_for_room_that_meets_a_packet_without_a_token_is_not_lost() {
    for mode in [LEVEL, EDGE, PERSISTENT, PERSISTENT_EDGE] {
        explore(move || {
            let cell = Arc::new(Cell::registered(mode));
            cell.slot.watch(Facts::IN | Facts::OUT);
            cell.writable.store(true, SeqCst);
            assert_eq!(cell.deliver(Facts::OUT), SlotStep::Nothing);
            cell.readable.store(true, SeqCst);
            assert_eq!(cell.deliver(Facts::IN), SlotStep::Queue);
            let other = spawn(&cell, |cell| {
                cell.note(cell.slot.enable_also(0, Interest::OUT, 5).unwrap());
            });
            cell.won.store(1, SeqCst);
            let mut told = Events::NONE;
            let first = cell.turn_without_token(|| {});
            if let NodeTurn::Cloned(events) = first {
                told |= events;
                cell.note(cell.slot.cloned(Events::NONE));
            } else if let NodeTurn::Held(events) = first {
                told |= events;
            }
            other.join().unwrap();
            if !told.is_out() {
                assert_eq!(cell.won.load(SeqCst), 1, "room is not told");
                cell.readable.store(false, SeqCst);
                match cell.turn_without_token(|| {}) {
                    NodeTurn::Held(events) | NodeTurn::Cloned(events) => told |= events,
                    turn => panic!("{turn:?}"),
                }
            }
            assert!(told.is_in() && told.is_out(), "{told:?}");
        });
    }
}

/// The handler has read everything and asks for another packet, because its own buffer
/// has more.
#[test]
fn a_packet_that_a_handler_asks_for_is_neither_lost_nor_told_twice() {
    for mode in [LEVEL, EDGE] {
        // Urgent data, an error that is gone, and an end are checked first.
        for facts in [Facts::IN, Facts::URGENT, Facts::ERR, Facts::RDHUP] {
            explore(move || {
                let cell = Arc::new(Cell::held(mode));
                let kernel = spawn(&cell, move |cell| {
                    cell.deliver(facts);
                });
                cell.put_back_again();
                assert_eq!(cell.turn(), NodeTurn::Held(Events::IN), "{facts:?}");
                assert_eq!(cell.take_key(), 7);
                kernel.join().unwrap();
                assert_eq!(cell.won.load(SeqCst), 0, "it is told twice");
            });
        }
    }
}

#[test]
fn enabling_keeps_a_packet_that_the_handler_asks_for_and_disabling_drops_it() {
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        let enabler = spawn(&cell, |cell| cell.slot.enable(0, LEVEL, || NO_HINT, 5).is_ok());
        let also = spawn(&cell, |cell| cell.slot.enable_also(0, Interest::IN, 5).unwrap());
        cell.put_back_again();
        // Their node is queued, or still with the token.
        assert_eq!(also.join().unwrap(), SlotStep::Nothing);
        enabler.join().unwrap();
        assert_eq!((cell.won.load(SeqCst), cell.turn()), (1, NodeTurn::Held(Events::IN)));
        assert_eq!(cell.take_key(), 7);
    });
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        let disabler = spawn(&cell, |cell| cell.slot.disable(0).unwrap());
        cell.put_back_again();
        let turn = cell.turn();
        disabler.join().unwrap();
        if turn == NodeTurn::Nothing {
            // The registration can go on, and nothing is left of the request.
            assert_eq!(cell.slot.enable(0, LEVEL, || NO_HINT, 5), Ok(SlotStep::Nothing));
            cell.arrive();
            assert_eq!(cell.turn(), NodeTurn::Held(Events::IN));
        } else {
            assert_eq!(turn, NodeTurn::Held(Events::IN));
        }
        assert_eq!(cell.take_key(), 7);
    });
}

#[test]
fn an_end_against_a_packet_that_a_handler_asks_for_gives_the_key_back_once() {
    for is_closed in [false, true] {
        explore(move || {
            let cell = Arc::new(Cell::held(LEVEL));
            let kernel = spawn(&cell, |cell| cell.deliver(Facts::IN));
            let ender = spawn(&cell, move |cell| {
                let ended = if is_closed {
                    cell.slot.retire(0)
                } else {
                    cell.slot.remove(0, false).unwrap()
                };
                assert_eq!(ended, Removal::Marked, "the node has an owner throughout");
            });
            let step = cell.put_back_again();
            kernel.join().unwrap();
            ender.join().unwrap();
            if step == SlotStep::Gone {
                assert!(is_closed && cell.won.load(SeqCst) == 0);
            } else {
                let last = if is_closed { NodeTurn::Gone } else { NodeTurn::Removed };
                assert_eq!((cell.won.load(SeqCst), cell.turn()), (1, last));
            }
            assert_eq!(cell.take_key(), 7);
        });
    }
    // A thread that waits for the key gets it from the handler, or instead of the packet.
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        let handler = spawn(&cell, Cell::put_back_again);
        assert_eq!(cell.slot.remove(0, true), Ok(Removal::Marked));
        if handler.join().unwrap() == SlotStep::Queue {
            assert_eq!(cell.turn(), NodeTurn::Collect);
        }
        assert_eq!(cell.slot.collect(0), Some(Ok(())));
        assert_eq!(cell.take_key(), 7);
    });
}

#[test]
fn enabling_and_disabling_against_an_edge_leave_nothing_behind() {
    explore(|| {
        let cell = Arc::new(Cell::registered(LEVEL));
        cell.slot.disable(0).unwrap();
        let kernel = spawn(&cell, Cell::arrive);
        let disabler = spawn(&cell, |cell| cell.slot.disable(0).unwrap());
        cell.note(cell.slot.enable(0, LEVEL, || NO_HINT, 5).unwrap());
        kernel.join().unwrap();
        disabler.join().unwrap();
        // Whatever happened, enabling once more must find the data.
        cell.note(cell.slot.enable(0, LEVEL, || NO_HINT, 5).unwrap());
        assert_eq!(cell.won.load(SeqCst), 1);
        assert_eq!(cell.turn(), NodeTurn::Held(Events::IN));
        assert_eq!(cell.take_key(), 7);
    });
}

#[test]
fn removal_against_arming_and_an_edge_gives_the_key_back_once() {
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        let kernel = spawn(&cell, |cell| cell.deliver(Facts::IN));
        let remover = spawn(&cell, |cell| {
            if cell.slot.remove(0, false).unwrap() == Removal::Owned {
                cell.note(SlotStep::Queue);
            }
        });
        cell.put_back(Some(LEVEL), NO_HINT);
        kernel.join().unwrap();
        remover.join().unwrap();
        assert_eq!(cell.won.load(SeqCst), 1);
        assert_eq!(cell.turn(), NodeTurn::Removed);
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
            assert_eq!(cell.deliver(Facts::IN), SlotStep::Queue);
            let remover = spawn(&cell, |cell| {
                if cell.slot.remove(0, false).unwrap() == Removal::Owned {
                    cell.note(SlotStep::Queue);
                }
            });
            let kernel = spawn(&cell, |cell| cell.deliver(Facts::IN));
            cell.won.store(0, SeqCst);
            let mut removed = false;
            if let NodeTurn::Cloned(events) = {
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
                assert_eq!(cell.turn(), NodeTurn::Removed);
            }
            assert_eq!(cell.take_key(), 7);
        });
    }
}

#[test]
fn a_closed_descriptor_gives_its_key_up_once() {
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        let other = spawn(&cell, |cell| {
            if cell.slot.retire(0) == Removal::Owned {
                cell.note(SlotStep::Queue);
            }
        });
        let armed = cell.put_back(Some(LEVEL), READ);
        other.join().unwrap();
        if armed == SlotStep::Gone {
            assert_eq!(cell.won.load(SeqCst), 0);
        } else {
            assert_eq!(cell.won.load(SeqCst), 1);
            assert_eq!(cell.turn(), NodeTurn::Gone);
        }
        assert_eq!(cell.take_key(), 7);
    });
}

#[test]
fn a_waiting_remover_gets_the_key_from_the_handler() {
    explore(|| {
        let cell = Arc::new(Cell::held(LEVEL));
        let handler = spawn(&cell, |cell| cell.put_back(Some(LEVEL), NO_HINT));
        let marked = cell.slot.remove(0, true).unwrap();
        let armed = handler.join().unwrap();
        match marked {
            Removal::Owned => assert_eq!(armed, SlotStep::Nothing),
            Removal::Marked if armed == SlotStep::Collect => {
                assert_eq!(cell.slot.collect(0), Some(Ok(())));
            }
            Removal::Marked => {
                assert_eq!(armed, SlotStep::Recheck, "it was armed first, and stands in the queue");
                assert_eq!(cell.turn(), NodeTurn::Collect);
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
        let late = spawn(&cell, |cell| cell.slot.deliver(0, Facts::IN, 9, || 9));
        // The token is dropped, and the slot is freed and used again.
        cell.slot.free();
        let generation = cell.slot.register(4, LEVEL, false);
        assert_eq!(generation, 1);
        assert_eq!(cell.slot.put_back(Some(LEVEL), false, NO_HINT, 5), SlotStep::Nothing);
        let delivery = late.join().unwrap();
        assert!(matches!(delivery, Delivery::Stale | Delivery::Noted(SlotStep::Nothing)));
        // The new registration is idle: its own edge must be the first to own the node.
        assert_eq!(
            cell.slot.deliver(generation, Facts::IN, 9, || 9),
            Delivery::Noted(SlotStep::Queue),
            "the late edge left something behind"
        );
    });
}
