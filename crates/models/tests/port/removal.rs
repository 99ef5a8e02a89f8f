//! Models registrations that end while another thread creates them, arms them, or waits for their
//! keys.

use std::time::Duration;

use crate::engine::{Engine, Taken, Waited, Worker, name_parts};
use crate::kit::{
    Handler, LEVEL, NO_HINT, NoTasks, PERSISTENT, PERSISTENT_EDGE, Seen, engine, entry, explore,
    next, register, scratch, spawn, visit,
};
use crate::state::moment::Moment;
use crate::types::error::Call;
use crate::types::interest::Events;

#[test]
fn a_registration_that_is_being_made_is_shut_down_with_the_others() {
    explore(|| {
        let (engine, _) = engine(1);
        let registrar = spawn(&engine, |engine| {
            let index = engine.reserve_slot(Call::Register, |_| true).ok()?;
            let registered = engine.register(Call::Register, index, entry(LEVEL), || None);
            if registered.is_err() {
                engine.cancel(index);
            }
            registered.ok()
        });
        engine.shut_down().unwrap();
        let registered = registrar.join().unwrap();
        let worker = engine.join();
        let mut removed = None;
        while engine.wait(&worker, &mut scratch(), 1, None, &NoTasks) == Waited::Packets {
            while let Some(taken) = next(&engine, &worker) {
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
fn a_remover_that_waits_gets_the_key_whatever_the_handler_does() {
    explore(|| {
        let handler = Handler::of_a_port(2);
        let (engine, name) = (&handler.engine, handler.name);
        let remover = spawn(engine, move |engine| {
            engine.collect(name, None).unwrap();
            engine.free(name);
        });
        handler.rearm(NO_HINT, true);
        remover.join().unwrap();
        assert_eq!(engine.snapshot().registered, 0);
    });
}

#[test]
fn a_remover_that_gives_up_waiting_leaves_an_ordinary_removal() {
    explore(|| {
        let handler = Handler::of_a_port(2);
        let (engine, name) = (&handler.engine, handler.name);
        let remover =
            spawn(engine, move |engine| engine.collect(name, Some(Duration::ZERO)).is_ok());
        handler.rearm(NO_HINT, false);
        if !remover.join().unwrap() {
            // The timeout passed first, so the last packet brings the key instead.
            assert_eq!(handler.wait(), (Waited::Packets, Some(Seen::Removed(name))));
        }
        engine.free(name);
        assert_eq!(engine.snapshot().registered, 0);
    });
}

/// A thread takes a packet of a persistent registration and clones its key. Another one removes the
/// registration without a packet.
#[test]
fn a_key_that_is_removed_now_is_returned_once() {
    for mode in [PERSISTENT, PERSISTENT_EDGE] {
        explore(move || {
            let (engine, fake) = engine(1);
            let name = register(&engine, mode);
            fake.arrive();
            let taker = spawn(&engine, move |engine| {
                visit(engine, |worker| {
                    engine.wait(worker, &mut scratch(), 4, Some(Moment::ZERO), &NoTasks);
                    take_all(engine, worker)
                })
            });
            let is_here = engine.remove_now(name).unwrap();
            if is_here {
                engine.free(name);
            }
            let removed = taker.join().unwrap();
            let removed = removed
                + visit(&engine, |worker| {
                    engine.wait(worker, &mut scratch(), 4, Some(Moment::ZERO), &NoTasks);
                    take_all(&engine, worker)
                });
            assert_eq!(removed + usize::from(is_here), 1);
            assert_eq!(engine.snapshot().registered, 0);
        });
    }
}

/// Takes the packets that are assigned to `worker`. Returns how many of them were removals.
fn take_all(engine: &Engine, worker: &Worker) -> usize {
    let mut removed = 0;
    while let Some(taken) = next(engine, worker) {
        match taken {
            Taken::Notified(name, _) => engine.cloned(name, Events::NONE, Some(worker)),
            Taken::Removed(name) => {
                engine.free(name);
                removed += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    removed
}

/// Of two threads that remove a registration, one gets the key, or the packet has it.
#[test]
fn of_two_removers_one_gets_the_key() {
    explore(|| {
        let (engine, fake) = engine(1);
        let name = register(&engine, PERSISTENT);
        let other = spawn(&engine, move |engine| {
            let is_here = engine.remove_now(name).is_ok_and(|is_here| is_here);
            if is_here {
                engine.free(name);
            }
            is_here
        });
        fake.arrive();
        let is_here = engine.remove_now(name).is_ok_and(|is_here| is_here);
        if is_here {
            engine.free(name);
        }
        let is_there = other.join().unwrap();
        assert!(is_here != is_there, "nothing else uses the key");
        assert_eq!(engine.snapshot().registered, 0);
    });
}

/// A handler arms its token, or enables nothing more, while the port begins to finish.
#[test]
fn a_key_that_comes_back_while_the_port_finishes_is_returned_once() {
    for with_worker in [false, true] {
        explore(move || {
            let handler = Handler::of_a_port(1);
            let (engine, name) = (&handler.engine, handler.name);
            handler.fake.read();
            let closer = spawn(engine, |engine| engine.finish_by(Moment::NEVER).unwrap());
            // The short way, as `Ready::rearm` takes it.
            let slot = engine.slot(name_parts(name).0);
            if !engine.rearm(slot, None, false, NO_HINT) {
                handler.rearm(NO_HINT, with_worker);
            }
            assert_eq!(handler.wait(), (Waited::Packets, Some(Seen::Removed(name))));
            engine.free(name);
            closer.join().unwrap();
            assert_eq!(handler.wait(), (Waited::Closed, None));
            assert_eq!(engine.snapshot().registered, 0);
        });
    }
}
