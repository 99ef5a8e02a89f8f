//! Models edges that reach a thread of the port, and checks that only current readiness is
//! reported.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Taken, Waited, Worker};
use crate::fake::Fake;
use crate::kit::{
    Handler, LEVEL, NO_HINT, NoTasks, PERSISTENT, PERSISTENT_EDGE, READ, Seen, engine, explore,
    explore_within, next, one_shot_engine, post, register, scratch, see_next, spawn, take_any,
    visit, wait_for,
};
use crate::state::facts::Facts;
use crate::state::moment::Moment;
use crate::types::error::ErrorKind;
use crate::types::interest::Mode;
use crate::types::interest::{Events, Interest};

/// Two threads wait. There is one edge and one post, and nothing else happens.
#[test]
fn an_edge_and_a_post_both_reach_a_crowd() {
    explore_within(2, || {
        let (engine, fake) = engine(3);
        engine.expect(Duration::from_millis(1));
        let name = register(&engine, LEVEL);
        let poster = spawn(&engine, post);
        let other = spawn(&engine, take_any);
        fake.arrive();
        let mut taken = [take_any(&engine), other.join().unwrap()];
        taken.sort();
        assert_eq!(taken, [Seen::Ready(name), Seen::Posted]);
        poster.join().unwrap();
    });
}

#[test]
fn an_edge_and_a_post_both_reach_the_thread_in_the_kernels_wait() {
    explore(|| {
        let (engine, fake) = engine(1);
        let name = register(&engine, LEVEL);
        let kernel = spawn(&fake, Fake::arrive);
        let poster = spawn(&engine, post);
        let worker = engine.join();
        let mut taken = Vec::new();
        while taken.len() < 2 {
            assert_eq!(engine.wait(&worker, &mut scratch(), 4, None, &NoTasks), Waited::Packets);
            taken.extend(iter::from_fn(|| see_next(&engine, &worker)));
        }
        taken.sort();
        assert_eq!(taken, [Seen::Ready(name), Seen::Posted]);
        kernel.join().unwrap();
        poster.join().unwrap();
    });
}

/// A thread that polls without waiting may find an edge or use up a wake. Another thread that is
/// about to sleep in the kernel's wait must not miss it.
#[test]
fn who_asks_for_packets_takes_nothing_from_a_thread_that_waits() {
    for is_edge in [false, true] {
        explore(move || {
            let (engine, fake) = engine(1);
            register(&engine, LEVEL);
            let [waiter, asker] = [true, false].map(|waits| {
                spawn(&engine, move |engine| {
                    if waits {
                        take_any(engine);
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
            // Nothing else happens in this model.
            waiter.join().unwrap();
            asker.join().unwrap();
        });
    }
}

/// A thread that polls may be checking the last node of a closed port, without holding the lock.
/// Waits continue until it has queued the node again, and end if the check finds nothing.
#[test]
fn a_closed_port_is_not_over_while_a_thread_that_asks_checks_what_is_left() {
    for is_left in [true, false] {
        explore(move || {
            let handler = Handler::of_a_port(1);
            let Handler { engine, fake, .. } = &handler;
            if !is_left {
                fake.read();
            }
            handler.rearm(NO_HINT, true);
            engine.close();
            let asker = spawn(engine, |engine| {
                engine.has_packets(None, &mut scratch()).map_err(|e| e.kind())
            });
            let (first, taken) = handler.wait();
            assert_eq!(taken.is_some(), is_left);
            let said = asker.join().unwrap();
            assert!(is_left || matches!(said, Ok(false) | Err(ErrorKind::Closed)), "{said:?}");
            if first == Waited::Packets {
                assert_eq!(handler.wait(), (Waited::Closed, None));
            }
        });
    }
}

#[test]
fn data_that_a_handler_left_behind_is_found_by_the_next_wait() {
    explore(|| {
        let handler = Handler::of_a_port(1);
        let Handler { fake, name, .. } = &handler;
        let kernel = spawn(fake, |fake| {
            // Everything was read, and more arrives before or after the handler arms.
            fake.read();
            fake.arrive();
        });
        handler.rearm(NO_HINT, true);
        assert_eq!(handler.wait(), (Waited::Packets, Some(Seen::Ready(*name))));
        kernel.join().unwrap();
    });
}

/// The kernel has nothing to report. The packet wakes a thread that waits, or is found by one that
/// comes, whatever the handler's own thread does then.
#[test]
fn a_packet_that_a_handler_asks_for_reaches_a_thread() {
    for (is_one_shot, with_worker) in [(false, false), (false, true), (true, false), (true, true)] {
        explore(move || {
            let kernel = if is_one_shot { one_shot_engine(2) } else { engine(2) };
            let handler = Handler::of(kernel);
            handler.fake.read();
            let other = spawn(&handler.engine, take_any);
            handler.again(READ, with_worker);
            handler.engine.leave(&handler.worker);
            assert_eq!(other.join().unwrap(), Seen::Ready(handler.name));
        });
    }
}

#[test]
fn an_edge_that_a_wait_found_before_its_data_was_read_makes_no_packet() {
    // As above, with poll numbers from the engine: a poll finds the edge; the handler reads the
    // data, gives a hint and arms; only then is the edge delivered.
    explore(|| {
        let handler = Handler::of_a_port(2);
        let Handler { engine, fake, .. } = &handler;
        fake.arrive();
        let other = spawn(engine, |engine| {
            let worker = engine.join();
            engine.wait(&worker, &mut scratch(), 4, Some(Moment::ZERO), &NoTasks);
            let seen = see_next(engine, &worker);
            engine.leave(&worker);
            seen
        });
        fake.read();
        handler.rearm(READ, false);
        assert_eq!(other.join().unwrap(), None, "nothing could be read since it was armed");
    });
}

#[test]
fn an_answer_that_a_wait_found_before_its_data_was_read_makes_no_packet() {
    // The same race with a one-shot reactor, which is asked again when the registration is enabled
    // by name.
    explore(|| {
        let (engine, fake) = one_shot_engine(2);
        let name = register(&engine, LEVEL);
        fake.arrive();
        let other = spawn(&engine, |engine| {
            let worker = engine.join();
            engine.wait(&worker, &mut scratch(), 4, Some(Moment::ZERO), &NoTasks);
            let seen = see_next(engine, &worker);
            engine.leave(&worker);
            seen
        });
        fake.read();
        let enabled = engine.enable(name, LEVEL, || NO_HINT, || None);
        let seen = other.join().unwrap();
        // Otherwise the other thread had taken the packet before.
        assert!(enabled.is_err() || seen.is_none(), "nothing could be read since it was enabled");
    });
}

/// A registration with an empty interest asks for IN while data arrives.
fn what_comes_while_it_is_asked_for_is_reported(engine: &Arc<Engine>, fake: &Arc<Fake>) {
    const NOTHING: Mode = Mode { interest: Interest::NONE, ..LEVEL };
    let name = register(engine, NOTHING);
    let kernel = spawn(fake, |fake| fake.arrive());
    let enabler = spawn(engine, move |engine| {
        engine.enable(name, LEVEL, || NO_HINT, || None).unwrap();
    });
    assert_eq!(take_any(engine), Seen::Ready(name));
    kernel.join().unwrap();
    enabler.join().unwrap();
}

#[test]
fn a_direction_that_is_asked_for_while_it_comes_to_hold_is_reported() {
    explore(|| {
        let (engine, fake) = engine(1);
        what_comes_while_it_is_asked_for_is_reported(&engine, &fake);
    });
}

#[test]
fn a_one_shot_reactor_reports_what_comes_while_it_is_asked_for() {
    explore(|| {
        let (engine, fake) = one_shot_engine(1);
        what_comes_while_it_is_asked_for_is_reported(&engine, &fake);
    });
}

/// Two threads each ask for one direction. Whichever comes second, both directions are watched.
#[test]
fn directions_that_two_threads_ask_for_add_up() {
    const NOTHING: Mode = Mode { interest: Interest::NONE, ..LEVEL };
    const BOTH: Mode = Mode { interest: Interest::from_bits(0b11), ..LEVEL };
    const ROOM: Mode = Mode { interest: Interest::OUT, ..LEVEL };
    explore(|| {
        let (engine, fake) = engine(1);
        let name = register(&engine, NOTHING);
        let others = [LEVEL, ROOM].map(|mode| {
            spawn(&engine, move |engine| engine.enable(name, mode, || NO_HINT, || None).unwrap())
        });
        for other in others {
            other.join().unwrap();
        }
        engine.enable(name, BOTH, || NO_HINT, || None).unwrap();
        assert_eq!(fake.wanted(), Facts::IN | Facts::OUT);
        fake.arrive();
        assert_eq!(take_any(&engine), Seen::Ready(name));
    });
}

#[test]
fn a_handler_arms_a_one_shot_reactor_while_more_comes() {
    for with_worker in [false, true] {
        explore(move || {
            let handler = Handler::of(one_shot_engine(1));
            handler.fake.read();
            let kernel = spawn(&handler.fake, |fake| fake.arrive());
            handler.rearm(READ, with_worker);
            assert_eq!(handler.wait(), (Waited::Packets, Some(Seen::Ready(handler.name))));
            kernel.join().unwrap();
        });
    }
}

/// A thread records the edge of a registration while another one enables it with a different
/// trigger. The edge ended the watch, so the reactor must be asked again.
#[test]
fn a_one_shot_reactor_is_asked_for_what_is_enabled_while_its_edge_is_noted() {
    for mode in [PERSISTENT, PERSISTENT_EDGE] {
        explore(move || {
            let (engine, fake) = one_shot_engine(2);
            // Returns true if the packet brings a clone of the key.
            let take = |engine: &Engine, worker: &Worker| match next(engine, worker)? {
                Taken::Ready(..) => Some(false),
                Taken::Notified(name, _) => {
                    engine.cloned(name, Events::NONE, Some(worker));
                    Some(true)
                }
                other => panic!("{other:?}"),
            };
            let waiter = spawn(&engine, move |engine| {
                visit(engine, |worker| wait_for(engine, worker, || take(engine, worker)))
            });
            let name = register(&engine, LEVEL);
            fake.arrive();
            let enabled = engine.enable(name, mode, || NO_HINT, || None);
            let is_persistent = waiter.join().unwrap() == Some(true);
            assert_eq!(enabled.is_ok(), is_persistent, "a handler has the key otherwise");
            if is_persistent {
                fake.read();
                visit(&engine, |worker| {
                    // Take the pending edges.
                    while engine.wait(worker, &mut scratch(), 4, Some(Moment::ZERO), &NoTasks)
                        == Waited::Packets
                    {
                        take(&engine, worker);
                    }
                    fake.arrive();
                    // Nothing else happens in this model.
                    assert_eq!(wait_for(&engine, worker, || take(&engine, worker)), Some(true));
                });
            }
        });
    }
}

/// A thread asks a one-shot reactor about a registration that ends meanwhile. By then the slot, the
/// number and the kernel's watch belong to the next registration.
#[test]
fn a_one_shot_reactor_is_asked_about_no_other_registration_of_the_slot() {
    explore(|| {
        let (engine, fake) = one_shot_engine(1);
        let name = register(&engine, LEVEL);
        let enabler = spawn(&engine, move |engine| {
            let _ = engine.enable(name, LEVEL, || NO_HINT, || None);
        });
        let is_owned = engine.forget(name).unwrap();
        if is_owned {
            engine.free(name);
        }
        let again = register(&engine, LEVEL);
        enabler.join().unwrap();
        if is_owned {
            fake.arrive();
            assert_eq!(take_any(&engine), Seen::Ready(again));
        }
    });
}
