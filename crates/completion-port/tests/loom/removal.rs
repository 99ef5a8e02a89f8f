//! Models registrations that end while another thread creates them, arms them, or waits for their
//! keys.

use std::time::Duration;

use crate::engine::{Taken, Waited};
use crate::kit::{
    Handler, LEVEL, NO_HINT, NoTasks, Seen, engine, entry, explore, next, scratch, spawn,
};
use crate::types::error::Call;

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
