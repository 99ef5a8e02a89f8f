//! The seats of the calling thread: one on each port it has waited on, given up when it exits.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::engine::{Engine, Seat};

/// The port keeps its seats, and gives them up when it is dropped, whatever its threads do then.
struct Membership {
    engine: Weak<Engine>,
    seat: Weak<Seat>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade()
            && !engine.backend().forked()
            && let Some(seat) = self.seat.upgrade()
        {
            engine.leave(&seat);
        }
    }
}

thread_local! {
    /// The port that the thread waited on last; a thread runs packets of one port at a time.
    static CURRENT: RefCell<Option<Membership>> = const { RefCell::new(None) };
}

/// A seat, for as long as a wait and its packets need it.
pub(crate) struct Seated {
    seat: Arc<Seat>,
    /// There if the thread cannot keep the seat, which is given up with this.
    for_once: Option<Weak<Engine>>,
}

impl Deref for Seated {
    type Target = Seat;
    fn deref(&self) -> &Seat {
        &self.seat
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        if let Some(engine) = self.for_once.as_ref().and_then(Weak::upgrade)
            && !engine.backend().forked()
        {
            engine.leave(&self.seat);
        }
    }
}

/// The seat of the calling thread on the port of `engine`, which it is about to wait on. A seat on
/// another port is given up: the thread runs there no longer.
pub(crate) fn take_seat(engine: &Arc<Engine>) -> Seated {
    let seated = CURRENT.try_with(|current| {
        let mut current = current.borrow_mut();
        if let Some(membership) = &*current
            && std::ptr::eq(membership.engine.as_ptr(), Arc::as_ptr(engine))
            && let Some(seat) = membership.seat.upgrade()
        {
            return (seat, None);
        }
        let seat = engine.join();
        let membership = Membership { engine: Arc::downgrade(engine), seat: Arc::downgrade(&seat) };
        (seat, current.replace(membership))
    });
    match seated {
        // The former membership is dropped here, after the borrow.
        Ok((seat, _former)) => Seated { seat, for_once: None },
        // The thread's local values are gone already: it waits in the destructor of another one.
        Err(_) => Seated { seat: engine.join(), for_once: Some(Arc::downgrade(engine)) },
    }
}

/// The seat of the calling thread on the port of `engine`, if that is the port it waited on last.
pub(crate) fn current_seat(engine: &Engine) -> Option<Arc<Seat>> {
    let seat = CURRENT.try_with(|current| {
        let current = current.borrow();
        let membership = current.as_ref()?;
        if std::ptr::eq(membership.engine.as_ptr(), engine) {
            membership.seat.upgrade()
        } else {
            None
        }
    });
    seat.ok().flatten()
}
