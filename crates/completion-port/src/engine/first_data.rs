//! How an accept waits for the first data of the connection that it has won.
//!
//! The listener says nothing of that data, and other accepts of the listener must not wait for it. So the
//! accept leaves the listener's lane, and waits in that of an *internal* slot, which watches the connection.
//! The slot has no key, and makes no packets. Once the accept has ended it comes home: the connection has
//! left the kernel's set, and the internal slot is given up, before anything is handed out.

use super::registrations::{Entry, Purpose};
use super::seat::Seat;
use super::{Aloft, Engine, Name, Phase, name_parts};
use crate::error::{Call, Error, ErrorKind};
use crate::interest::Interest;
use crate::state::facts::Descriptor;
use crate::state::flights::Course;
use crate::state::queue::{FLIGHT, NIL};
use crate::state::slot::{Drained, Mode};

/// An internal slot is never armed.
const UNARMED: Mode = Mode { interest: Interest::NONE, edge: false, one_shot: true };

impl Engine {
    /// The calling thread has tried an operation, which has won a connection that has no data yet. From here
    /// on the operation waits for that. It ends if it is called off by now, or the port closed.
    ///
    /// If the connection cannot be watched the operation is where it was: the caller goes on as if it had
    /// just tried it. `also` makes sure that a slot's cell can be used.
    pub(crate) fn await_data<'e>(
        &'e self,
        aloft: &mut Aloft<'e>,
        connection: Descriptor,
        also: impl FnOnce(u32) -> bool,
        seat: Option<&Seat>,
    ) -> Result<Course, Error> {
        let Aloft { record, index, flight, slot, desk } = *aloft;
        let (node, poll) = (record | FLIGHT, self.poll_of(slot.descriptor()));
        let made = self.make_internal(index, connection, also);
        let mut lanes = desk.lock();
        let internal = match made {
            Ok(internal) => internal,
            Err(error) if error.kind() == ErrorKind::Closed => {
                let (course, effects) = lanes.give_up(&self.nodes, slot, node, poll);
                drop(lanes);
                self.see_to(effects, index, seat);
                return Ok(course);
            }
            Err(error) => return Err(error),
        };
        let (there, _) = name_parts(internal);
        let (there_slot, there_desk) = (self.slot(there), self.desks.at(there));
        let (direction, deadline) = (flight.direction(), flight.deadline());
        // Both locks are held while the operation changes place, so that a thread which calls it off finds it
        // in one place or the other.
        let mut there_lanes = there_desk.lock();
        // As for any start: either the thread that closes the port finds the operation, or this one sees that
        // the port is closed.
        let may_leave = self.phase() == Phase::Open && !flight.is_called_off();
        let lend = || there_slot.lend(direction.facts(), Drained::of(direction)).ok();
        // The connection had no data when that was last tried, before it was watched: an edge since says
        // otherwise.
        let Some(is_ready) = may_leave.then(lend).flatten() else {
            drop(there_lanes);
            let (course, effects) = lanes.give_up(&self.nodes, slot, node, poll);
            drop(lanes);
            self.dismiss(internal);
            self.see_to(effects, index, seat);
            return Ok(course);
        };
        let to = (&mut *there_lanes, there);
        let (course, effects) = lanes.leave(&self.nodes, slot, node, to, is_ready, poll);
        there_desk.set_deadline(deadline);
        drop(there_lanes);
        drop(lanes);
        self.mind_alarm(there, there_desk);
        if course == Course::Waits {
            self.watch_for(internal, there_slot, direction);
        } else {
            *aloft = self.aloft(record);
        }
        self.see_to(effects, index, seat);
        Ok(course)
    }

    /// An internal slot that watches `connection`, for an operation of the slot `home`. It is held.
    fn make_internal(
        &self,
        home: u32,
        connection: Descriptor,
        also: impl FnOnce(u32) -> bool,
    ) -> Result<Name, Error> {
        let index = self.reserve_slot(Call::Accept, Purpose::Internal, also)?;
        let desk = match self.desk_with_timer(index, Call::Accept) {
            Ok(desk) => desk,
            Err(error) => {
                self.slot(index).free();
                self.give_back_slot(index, Purpose::Internal);
                return Err(error);
            }
        };
        desk.set_home(home);
        let entry = Entry {
            descriptor: connection,
            mode: UNARMED,
            borrowed: false,
            associated: Some(Interest::IN),
            shared: false,
        };
        self.enter(Call::Accept, index, entry).inspect_err(|_| {
            desk.set_home(NIL);
            self.give_back_slot(index, Purpose::Internal);
        })
    }

    /// An operation has ended, and its node is the caller's. If it has ended at an internal slot, it is its
    /// registration's again, and the connection is watched no more.
    #[inline]
    pub(crate) fn bring_home<'e>(&'e self, aloft: &mut Aloft<'e>) {
        if let Some(home) = aloft.desk.home() {
            self.bring_home_to(home, aloft);
        }
    }

    #[cold]
    #[inline(never)]
    fn bring_home_to<'e>(&'e self, home: u32, aloft: &mut Aloft<'e>) {
        let internal = aloft.registration();
        aloft.desk.lock().send_home(aloft.flight, home);
        self.desks.at(home).lock().note_return();
        self.dismiss(internal);
        *aloft = self.aloft(aloft.record);
    }

    /// An internal slot, which the caller owns, watches its connection no more, and is given up.
    fn dismiss(&self, internal: Name) {
        let (index, _) = name_parts(internal);
        let (slot, desk) = (self.slot(index), self.desks.at(index));
        self.detach(slot.descriptor(), internal);
        // Under the lock, with which other threads look whose it is. A child that is forked here finds no
        // slot in use that has neither a key nor a home.
        let lanes = desk.lock();
        slot.free();
        desk.set_home(NIL);
        drop(lanes);
        self.give_back_slot(index, Purpose::Internal);
    }
}
