//! The life of an operation, from its start to its packet.
//!
//! The engine says when an operation is to be tried, and by which thread; what it is, and how it is tried, the
//! caller knows. Between [`Step::Try`] and [`Engine::tried`] the caller has the operation to itself.

use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::time::Duration;

use super::seat::Seat;
use super::{Engine, Name, Phase, name_parts};
use crate::backend::sockets::{Attempt, Rest, Transport};
use crate::memory::trace::trace_aside;
use crate::state::facts::Facts;
use crate::state::moment::Moment;
use crate::state::operations::{
    Clearance, Desk, Effects, Flight, Lanes, Records, Step, Tried, Verdict,
};
use crate::state::queue::{FLIGHT, Fifo, MOST_FLIGHTS, NIL};
use crate::state::slot::{Drained, Next, Refusal, Slot};
use crate::state::timers::Alarm;
use crate::sync::barrier_behind_exchange;
use crate::types::error::Fault;
use crate::types::error::{Call, Error, ErrorKind};
use crate::types::interest::Direction;
use crate::types::source::Descriptor;

/// How long an operation waits for what no edge tells of, until it is tried again.
const SCARCE: Duration = Duration::from_millis(10);

/// How many records a thread keeps whose packets it has taken, until it next waits.
const MOST_LANDED: u32 = 64;

/// What is known of an operation when it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) call: Call,
    pub(crate) direction: Direction,
    /// When it is to end at the latest; [`Moment::NEVER`]: no limit.
    pub(crate) deadline: Moment,
}

/// An operation in flight, and what it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Aloft<'e> {
    pub(crate) record: u32,
    /// The number of its slot.
    pub(crate) index: u32,
    pub(super) flight: &'e Flight,
    pub(crate) slot: &'e Slot,
    pub(crate) desk: &'e Desk,
}

impl Aloft<'_> {
    /// What it is tried on.
    #[inline]
    pub(crate) fn descriptor(&self) -> Descriptor {
        self.slot.descriptor()
    }

    /// Its own name: the record, and how often that was used before.
    #[inline]
    pub(crate) fn name(&self) -> u64 {
        u64::from(self.flight.uses()) << 32 | u64::from(self.record)
    }

    /// The name of its registration.
    #[inline]
    pub(crate) fn registration(&self) -> Name {
        super::name_of(self.index, self.slot.word().generation())
    }
}

/// What an attempt asks of the association that its operation belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Place<'e> {
    engine: &'e Engine,
    desk: &'e Desk,
    record: u32,
}

impl Place<'_> {
    /// The socket that an operation is tried on does not block from here on. The operation keeps the key, and so the
    /// descriptor, in its place.
    pub(crate) fn make_nonblocking(self, descriptor: Descriptor) -> Result<(), Fault> {
        let Self { engine, desk, .. } = self;
        // A file has no connections, which the call for one says.
        if !desk.is_nonblocking.load(SeqCst) && !desk.is_file.load(SeqCst) {
            engine.backend.make_nonblocking(descriptor)?;
            desk.is_nonblocking.store(true, SeqCst);
        }
        Ok(())
    }

    /// The operation, a connect, is about to begin: whether an earlier one that was cancelled lets it.
    pub(crate) fn clear_for_connect(self, descriptor: Descriptor) -> Clearance {
        self.desk.clear_for_connect(|| self.engine.backend.abandon_connect(descriptor))
    }

    /// The connect is under way.
    pub(crate) fn connect_begun(self) {
        self.desk.connect_begun(self.record);
    }

    /// It has come to an end.
    pub(crate) fn connect_ended(self) {
        self.desk.connect_ended();
    }
}

/// Work without a record, during its attempt.
struct Unrecorded<'e> {
    engine: &'e Engine,
    name: Name,
    slot: &'e Slot,
    desk: &'e Desk,
    direction: Direction,
}

impl Unrecorded<'_> {
    /// The attempt has ended with this result. Frees the lane.
    fn tried(&self, attempt: Attempt<Rest>) {
        let Self { engine, name, slot, desk, direction } = *self;
        if engine.forked() {
            // The attempt has forked, and this is the child: the lane is the parent's.
            return;
        }
        let tried = match attempt {
            Attempt::Done(Rest::Nothing) => Tried::Done { dry: slot.word().is_plain() },
            Attempt::Blocked => Tried::Blocked,
            _ => Tried::Done { dry: false },
        };
        let poll = engine.current_poll();
        let mut lanes = desk.lock();
        let (effects, landed) = lanes.tried_unrecorded(&engine.nodes, slot, direction, tried, poll);
        let is_blocked = lanes.blocked().has(direction.facts());
        drop(lanes);
        let (index, _) = name_parts(name);
        if is_blocked {
            engine.watch_for(name, slot, direction);
        }
        engine.see_to(effects, index, None);
        engine.follow(landed, index, None);
    }
}

impl Drop for Unrecorded<'_> {
    /// The attempt has panicked.
    fn drop(&mut self) {
        self.tried(Attempt::Done(Rest::Unknown));
    }
}

impl Engine {
    /// The desk of a slot of which operations were started.
    pub(crate) fn desk_of_operation(&self, index: u32) -> &Desk {
        self.desks.at(index)
    }

    /// What an attempt at the operation of `record` asks, which belongs to this desk.
    #[inline]
    pub(crate) fn place<'e>(&'e self, desk: &'e Desk, record: u32) -> Place<'e> {
        Place { engine: self, desk, record }
    }

    /// The operation of `record` has ended as this says, and its packet is about to be handed out. If it is a connect
    /// that the system continues with, that is given up, before anything else begins on the descriptor or has it.
    #[inline]
    pub(crate) fn abandon_connect(&self, aloft: &Aloft<'_>, verdict: Verdict) {
        if matches!(verdict, Verdict::Cancelled | Verdict::TimedOut) {
            let abandon = || self.backend.abandon_connect(aloft.descriptor());
            if aloft.desk.abandon_connect(aloft.record, abandon) {
                // A connect whose turn came meanwhile is waiting for this to end.
                self.hasten(aloft.registration(), Direction::Out);
            }
        }
    }

    /// The desk of a slot, which is made if there is none, with room for its timer.
    #[inline]
    pub(super) fn desk_with_timer(&self, index: u32, call: Call) -> Result<&Desk, Error> {
        match self.desk(index) {
            Some(desk) if desk.has_timer.load(Acquire) => Ok(desk),
            _ => self.make_desk(index, call),
        }
    }

    #[cold]
    #[inline(never)]
    fn make_desk(&self, index: u32, call: Call) -> Result<&Desk, Error> {
        let scarce = Error::new(call, ErrorKind::OutOfMemory);
        if !self.desks.reserve(index) {
            return Err(scarce);
        }
        let desk = self.desks.at(index);
        if !desk.has_timer.load(SeqCst) {
            if !self.lock().stock.timers.reserve_alarm(Alarm::Operations, index) {
                return Err(scarce);
            }
            desk.has_timer.store(true, SeqCst);
        }
        Ok(desk)
    }

    fn take_record(&self, call: Call, also: impl FnOnce(u32) -> bool) -> Result<u32, Error> {
        let reserve = |number| {
            let reserved =
                number < MOST_FLIGHTS && self.nodes.flights.reserve(number) && also(number);
            if reserved {
                self.nodes.flight(number).begin_uses(self.of_this_port());
            }
            reserved
        };
        let record = self.lock().stock.flights.take(&self.nodes, FLIGHT, reserve);
        record.ok_or(Error::new(call, ErrorKind::OutOfMemory))
    }

    /// The record of an operation that is to be started by the token of the held slot `index`, and the slot's desk.
    /// `also` makes sure that the record's cell can be used.
    #[inline]
    pub(crate) fn own_record(
        &self,
        index: u32,
        call: Call,
        also: impl FnOnce(u32) -> bool,
    ) -> Result<(u32, &Desk), Error> {
        self.check_open(call)?;
        if let Some(desk) = self.desk(index)
            && let Some(own) = desk.own()
        {
            return Ok((own & !FLIGHT, desk));
        }
        self.make_own_record(index, call, also)
    }

    /// The same for a slot that has none yet.
    #[cold]
    fn make_own_record(
        &self,
        index: u32,
        call: Call,
        also: impl FnOnce(u32) -> bool,
    ) -> Result<(u32, &Desk), Error> {
        let desk = self.desk_with_timer(index, call)?;
        let record = self.take_record(call, also)?;
        self.mark(record, false, false);
        desk.keep(record | FLIGHT);
        Ok((record, desk))
    }

    /// The record of an operation that is to be started by the name of a registration, by the thread of `seat`. If it is
    /// not started it is given back by [`Engine::give_back_record`].
    pub(crate) fn shared_record(
        &self,
        name: Name,
        plan: &Plan,
        seat: Option<&Seat>,
        also: impl FnOnce(u32) -> bool,
    ) -> Result<u32, Error> {
        self.check_open(plan.call)?;
        let (index, generation) = name_parts(name);
        let refused = |refusal| Error::new(plan.call, super::kind_of(refusal));
        let (slot, _) = self.known(name).ok_or(refused(Refusal::NotRegistered))?;
        slot.admits(generation).map_err(refused)?;
        self.desk_with_timer(index, plan.call)?;
        // One whose packet the thread has just taken is there, with all that belongs to it.
        match seat.and_then(|seat| seat.landed.pop(|record| &self.nodes.flight(record).link)) {
            Some(record) => Ok(record),
            None => self.take_record(plan.call, also),
        }
    }

    /// A record without an operation, the cell of which is empty.
    pub(crate) fn give_back_record(&self, record: u32) {
        if !self.forked() {
            self.lock().stock.flights.give_back(&self.nodes, FLIGHT, record);
        }
    }

    /// The token of the held slot gives the key to the operation of `record`, which is in its cell. The token has tried it,
    /// and the caller handles the result of that attempt next. If it is refused, the slot is still held.
    pub(crate) fn lend(
        &self,
        slot: &Slot,
        index: u32,
        desk: &Desk,
        record: u32,
        plan: &Plan,
        drained: Drained,
    ) -> Result<Step, Error> {
        let lend = |_: &Lanes| {
            slot.lend(plan.direction.facts(), drained)?;
            // No edge reports that what it lacks is there, or that the system can carry it out.
            Ok(true)
        };
        self.start(slot, index, desk, record, plan, lend)
    }

    /// The operation of `record`, which is in its cell, has a share in the key of a registration.
    pub(crate) fn share(&self, name: Name, record: u32, plan: &Plan) -> Result<Step, Error> {
        let (index, generation) = name_parts(name);
        let slot = self.slot(index);
        // A name may be another port's, and mean any registration here. The flag is set before a registration has its
        // name.
        let share = |lanes: &Lanes| {
            if lanes.is_shared {
                slot.share(generation, plan.direction.facts())
            } else {
                Err(Refusal::NotRegistered)
            }
        };
        self.start(slot, index, self.desks.at(index), record, plan, share)
    }

    #[inline]
    fn start(
        &self,
        slot: &Slot,
        index: u32,
        desk: &Desk,
        record: u32,
        plan: &Plan,
        take_key: impl FnOnce(&Lanes) -> Result<bool, Refusal>,
    ) -> Result<Step, Error> {
        let mut lanes = desk.lock();
        // The thread that closes the port says so before it takes this lock, with which it looks at what is in
        // flight: so either that thread sees this operation, or this one sees that the port is closed.
        if self.phase() != Phase::Open {
            return Err(Error::new(plan.call, ErrorKind::Closed));
        }
        let is_ready =
            take_key(&lanes).map_err(|refusal| Error::new(plan.call, super::kind_of(refusal)))?;
        let Plan { direction, deadline, .. } = *plan;
        let node = record | FLIGHT;
        // Read before the lock is given up: the flight may land at once, and the slot be used anew.
        let name = super::name_of(index, slot.word().generation());
        let step = lanes.start(&self.nodes, node, index, direction, deadline, is_ready);
        if lanes.is_shared {
            desk.hasten(deadline);
        } else if desk.deadline() != deadline {
            // Nothing else moves it: not without the token, and where a timer rings not without the lock.
            desk.set_deadline(deadline);
        }
        drop(lanes);
        self.mind_alarm(index, desk);
        if step == Step::Waits {
            self.watch_for(name, slot, direction);
        }
        Ok(step)
    }

    /// Tries work without a record on the descriptor of a shared registration, if no operation of this direction is in
    /// flight and the direction may be ready. Returns whether the work is done. If not, the caller starts an operation.
    pub(crate) fn try_unrecorded(
        &self,
        name: Name,
        direction: Direction,
        attempt: impl FnOnce(Descriptor) -> Attempt<Rest>,
    ) -> bool {
        let Some(unrecorded) = self.begin_unrecorded(name, direction) else { return false };
        let attempt = attempt(unrecorded.slot.descriptor());
        unrecorded.tried(attempt);
        std::mem::forget(unrecorded);
        attempt.is_over()
    }

    fn begin_unrecorded(&self, name: Name, direction: Direction) -> Option<Unrecorded<'_>> {
        if self.forked() {
            return None;
        }
        let (index, generation) = name_parts(name);
        let (slot, _) = self.known(name)?;
        // Without memory for the desk, the start that follows fails with that error.
        let desk = self.desk_with_timer(index, Call::Receive).ok()?;
        let mut lanes = desk.lock();
        // As in `start`.
        let begins =
            self.phase() == Phase::Open && lanes.begin_unrecorded(slot, generation, direction);
        begins.then(|| Unrecorded { engine: self, name, slot, desk, direction })
    }

    /// The operation of a record that is to be started by the token of the held slot `index`, whose desk this is.
    #[inline]
    pub(crate) fn before_start<'e>(
        &'e self,
        record: u32,
        index: u32,
        slot: &'e Slot,
        desk: &'e Desk,
    ) -> Aloft<'e> {
        Aloft { record, index, flight: self.nodes.flight(record), slot, desk }
    }

    /// The token of the held slot gives the key to an operation, which is in its cell, and waits for nothing but an edge
    /// of this direction. If it is refused, the slot is still held.
    #[allow(clippy::inline_always, reason = "a part of the calls that start an operation")]
    #[inline(always)]
    pub(crate) fn lend_alone(
        &self,
        Aloft { record, index, flight, slot, desk }: Aloft<'_>,
        direction: Direction,
        deadline: Moment,
        drained: Drained,
    ) -> Result<Step, ErrorKind> {
        if desk.deadline() != deadline {
            // Nothing else moves it: not without the token, and where a timer rings not without the operation.
            desk.set_deadline(deadline);
        }
        flight.begin_alone(index, direction, deadline);
        // Read before the slot is given up: the flight may land at once, and the slot be used anew.
        let name = super::name_of(index, slot.word().generation());
        let is_ready = match slot.lend_alone(direction.facts(), drained) {
            Ok(is_ready) => is_ready,
            Err(refusal) => {
                self.withdraw(slot, flight);
                return Err(super::kind_of(refusal));
            }
        };
        // The thread that closes the port says so before it looks at the slot: so either that thread sees this
        // operation, or this one, which still has its node, sees that the port is closed.
        barrier_behind_exchange();
        if self.phase() != Phase::Open {
            self.withdraw(slot, flight);
            return Err(ErrorKind::Closed);
        }
        self.mind_alarm(index, desk);
        if is_ready || slot.block_alone() {
            return Ok(Step::Try);
        }
        self.end_if_called_off(slot, flight, record);
        self.watch_for(name, slot, direction);
        Ok(Step::Waits)
    }

    /// The calling thread has just given the node of a lone operation back. A thread that has called it off before that
    /// has left the node to this one: it is queued. By now it may be another operation's, which its turn tells.
    #[inline]
    fn end_if_called_off(&self, slot: &Slot, flight: &Flight, record: u32) {
        if flight.called_off().is_some() && self.claim_alone(slot, flight) {
            self.queue_operation(record);
        }
    }

    /// The operation that the calling thread is about to start is refused.
    #[cold]
    fn withdraw(&self, slot: &Slot, flight: &Flight) {
        flight.land();
        slot.unlend_alone();
        self.stop_awaiting(flight);
    }

    /// Sets the timer of a desk, if it rings too late for the desk's deadline.
    #[inline]
    pub(crate) fn mind_alarm(&self, index: u32, desk: &Desk) {
        if desk.missed().is_some() {
            self.hasten_alarm(index, desk);
        }
    }

    #[cold]
    #[inline(never)]
    fn hasten_alarm(&self, index: u32, desk: &Desk) {
        let mut state = self.lock();
        // It is read once, so that the timer is never set to a later time than that for which it was set before: threads that
        // have found it early enough rely on it.
        let Some(at) = desk.missed() else { return };
        let super::State { schedule, stock } = &mut *state;
        let before = stock.timers.next();
        stock.timers.set_alarm(Alarm::Operations, index, at);
        desk.set_alarm(at);
        let wake = if at < before { schedule.timer_set(at) } else { None };
        let notice = wake.map(|wake| stock.notice(wake));
        drop(state);
        self.notify(notice);
    }

    /// An operation of this direction waits for an edge.
    #[inline]
    pub(super) fn watch_for(&self, name: Name, slot: &Slot, direction: Direction) {
        if self.is_one_shot || slot.word().unwatched(direction.facts()).is_some() {
            self.watch_for_more(name, slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn watch_for_more(&self, name: Name, slot: &Slot) {
        let ended = self.watch_lanes(name, slot);
        self.submit_all(ended);
    }

    fn submit_all(&self, mut nodes: Fifo) {
        while let Some(node) = nodes.pop(&self.nodes) {
            self.submit(node);
        }
    }

    /// What there is of the operation of a record, which is in flight, or is just being started.
    #[inline]
    pub(crate) fn aloft(&self, record: u32) -> Aloft<'_> {
        let flight = self.nodes.flight(record);
        let index = flight.slot();
        Aloft { record, index, flight, slot: self.slot(index), desk: self.desks.at(index) }
    }

    /// The node of an operation has come to the calling thread. True if it is a lone one that is to be tried. Otherwise
    /// nothing has changed, and [`Engine::turn`] tells.
    #[inline]
    pub(crate) fn turn_alone(&self, aloft: &Aloft<'_>) -> bool {
        let is_to_be_tried = aloft.flight.is_lone() && aloft.flight.called_off().is_none();
        if is_to_be_tried {
            aloft.slot.begin_alone();
        }
        is_to_be_tried
    }

    /// The node of an operation has come to the calling thread.
    #[inline]
    pub(crate) fn turn(&self, aloft: &Aloft<'_>, seat: Option<&Seat>) -> Step {
        if self.turn_alone(aloft) {
            return Step::Try;
        }
        if aloft.flight.is_lone()
            && let Some(verdict) = aloft.flight.called_off()
        {
            return Step::Ends(verdict);
        }
        if aloft.flight.begin() {
            return Step::Try;
        }
        if let Some(verdict) = aloft.flight.end() {
            return Step::Ends(verdict);
        }
        let Aloft { record, index, slot, desk, .. } = *aloft;
        let poll = self.current_poll();
        let (name, direction) = (aloft.registration(), aloft.flight.direction());
        let mut lanes = desk.lock();
        let (step, effects) = lanes.turn(&self.nodes, slot, record | FLIGHT, poll);
        let is_blocked = lanes.blocked().has(direction.facts());
        drop(lanes);
        if is_blocked {
            self.watch_for(name, slot, direction);
        }
        self.see_to(effects, index, seat);
        step
    }

    /// The calling thread has tried an operation that was started by a token, and takes its packet if it has ended:
    /// the key is the caller's then, and the operation stays in its cell until the token starts another one.
    #[inline]
    pub(crate) fn tried_and_landed(&self, aloft: &Aloft<'_>, attempt: Attempt<Rest>) -> bool {
        let dry = match attempt {
            Attempt::Done(Rest::Nothing) => aloft.slot.word().is_plain(),
            Attempt::Done(Rest::Unknown) | Attempt::Failed(_) => false,
            _ => return false,
        };
        if aloft.flight.is_lone() {
            self.land_alone(aloft, dry);
        } else {
            self.land_in_lane(aloft, dry);
        }
        true
    }

    /// The same for one that has its place in a lane, and has ended.
    #[inline(never)]
    fn land_in_lane(&self, aloft: &Aloft<'_>, dry: bool) {
        aloft.desk.lock().tried_and_landed(aloft.flight, aloft.slot, dry);
        self.stop_awaiting(aloft.flight);
    }

    /// The packet of a lone operation is taken by the calling thread, which has its node.
    #[inline]
    fn land_alone(&self, aloft: &Aloft<'_>, dry: bool) {
        aloft.flight.land();
        aloft.slot.land_alone(dry);
        self.stop_awaiting(aloft.flight);
    }

    /// The calling thread has tried a lone operation, which would have to wait for an edge. If it has ended,
    /// [`Engine::land_own`] follows. After [`Step::Waits`] it is the caller's no more.
    #[inline]
    fn blocked_alone(&self, aloft: &Aloft<'_>) -> Step {
        let Aloft { slot, flight, .. } = *aloft;
        let (name, direction) = (aloft.registration(), flight.direction());
        if let Some(verdict) = flight.called_off() {
            return Step::Ends(verdict);
        }
        if slot.block_alone() {
            return Step::Try;
        }
        self.end_if_called_off(slot, flight, aloft.record);
        self.watch_for(name, slot, direction);
        Step::Waits
    }

    /// The operation, whose node the caller has, is not lone any more, if it was: see [`Engine::lane`].
    pub(crate) fn lane_if_lone(&self, aloft: &Aloft<'_>) {
        if aloft.flight.is_lone() {
            self.lane(aloft);
        }
    }

    /// A lone operation, whose node the caller has, waits for something else than an edge: it goes on in its lane, as one
    /// that is being tried.
    #[cold]
    #[inline(never)]
    fn lane(&self, aloft: &Aloft<'_>) {
        let mut lanes = aloft.desk.lock();
        let is_stirred = aloft.slot.leave_alone();
        lanes.adopt(&self.nodes, aloft.record | FLIGHT, is_stirred);
    }

    /// The calling thread has tried an operation. If it has ended, the caller takes the packet, or has it queued by
    /// [`Engine::queue_operation`].
    pub(crate) fn tried(
        &self,
        aloft: &Aloft<'_>,
        attempt: Attempt<Rest>,
        seat: Option<&Seat>,
    ) -> Step {
        if aloft.flight.is_lone() {
            if let Attempt::Blocked = attempt {
                return self.blocked_alone(aloft);
            }
            self.lane(aloft);
        }
        let Aloft { record, index, slot, desk, flight } = *aloft;
        let poll = self.current_poll();
        let mut lanes = desk.lock();
        let tried = match attempt {
            Attempt::Done(Rest::Unknown) | Attempt::Failed(_) => Tried::Done { dry: false },
            // Behind what was received an end may stand that no further edge tells of.
            Attempt::Done(Rest::Nothing) => Tried::Done { dry: slot.word().is_plain() },
            Attempt::Blocked => Tried::Blocked,
            Attempt::OutOfResources => Tried::Scarce(self.backend.now() + SCARCE),
            // Its timer rings at the next look at those, and queues it behind what is there by then.
            Attempt::Yielded => Tried::Scarce(self.backend.now()),
            Attempt::Carried => unreachable!("its caller has seen to it"),
        };
        let direction = flight.direction();
        let name = aloft.registration();
        let (step, effects) = lanes.tried(&self.nodes, slot, record | FLIGHT, tried, poll);
        // Also where this one has ended: another one may wait behind it, for which the kernel was not asked.
        let is_blocked = lanes.blocked().has(direction.facts());
        if let (Step::Waits, Tried::Scarce(at)) = (step, tried) {
            desk.hasten(at);
        }
        drop(lanes);
        if step == Step::Waits {
            self.mind_alarm(index, desk);
        }
        if is_blocked {
            self.watch_for(name, slot, direction);
        }
        self.see_to(effects, index, seat);
        step
    }

    /// An operation is about to be started, by the token of a registration or by its name: `completed` follows, or
    /// `refused`.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_started(&self, registration: Name, call: Call) {
        let _ = (registration, call);
        trace_aside!(
            TRACE,
            port = self.number,
            registration = ?super::Shown(registration),
            operation = ?call,
            "started"
        );
    }

    /// A thread has come to the packet of an operation, or has done it at once. Whatever a subscriber does, the packet
    /// or the outcome goes to the caller.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_completed(&self, registration: Name, call: Call, error: Option<Error>) {
        let _ = (registration, call, error);
        trace_aside!(
            TRACE,
            port = self.number,
            registration = ?super::Shown(registration),
            operation = ?call,
            error = error.map(|error| tracing::field::debug(error.kind())),
            "completed"
        );
    }

    /// Does what a change of a flight asks for besides.
    pub(super) fn see_to(&self, effects: Effects, index: u32, seat: Option<&Seat>) {
        if effects.due != NIL && !self.forked() {
            self.submit(effects.due);
        }
        self.follow(effects.next, index, seat);
    }

    /// An operation has ended: its packet is queued.
    pub(crate) fn queue_operation(&self, record: u32) {
        if !self.forked() {
            self.submit(record | FLIGHT);
        }
    }

    /// The packet of an operation is taken that was started by a token, and had ended before. The key is the caller's
    /// now, and the operation stays in its cell until the token starts another one.
    #[inline]
    pub(crate) fn land_own(&self, aloft: &Aloft<'_>) {
        if aloft.slot.word().is_lone() {
            return self.land_alone(aloft, false);
        }
        let mut lanes = aloft.desk.lock();
        lanes.land(aloft.flight);
        aloft.slot.land(Facts::NONE);
        drop(lanes);
        self.stop_awaiting(aloft.flight);
    }

    /// The packet of a flight is taken, which the waits of a port that was closed may have gone on for.
    #[inline]
    fn stop_awaiting(&self, flight: &Flight) {
        if flight.stop_awaiting() {
            self.end_awaiting();
        }
    }

    /// The packet of an operation is taken that the waits of the closed port have gone on for.
    #[cold]
    fn end_awaiting(&self) {
        if self.forked() {
            return;
        }
        let mut state = self.lock();
        state.stock.peeks -= 1;
        drop(self.end_if_over(state));
    }

    /// The token of a held slot has done the operation of `record` itself: its packet is queued. False, and nothing has
    /// changed, if the port was closed meanwhile, so that perhaps no thread would take it.
    pub(crate) fn lend_ended(
        &self,
        slot: &Slot,
        index: u32,
        record: u32,
        drained: Drained,
        seat: Option<&Seat>,
    ) -> bool {
        let mut state = self.lock();
        if state.stock.phase != Phase::Open {
            return false;
        }
        self.nodes.flight(record).begin_ended(index);
        slot.lend_ended(drained);
        let notice = self.submit_own_locked(&mut state, record | FLIGHT, seat);
        drop(state);
        self.notify(notice);
        true
    }

    /// The packet of an operation is taken that has a share in the key, which has been cloned for it. The record
    /// is given back by [`Engine::free_record`].
    pub(crate) fn land_shared(&self, aloft: &Aloft<'_>, seat: &Seat) {
        let Aloft { index, flight, slot, desk, .. } = *aloft;
        let mut lanes = desk.lock();
        let next = if lanes.land(flight) { slot.land_last() } else { Next::Nothing };
        drop(lanes);
        self.follow(next, index, Some(seat));
        self.stop_awaiting(flight);
    }

    /// The operation of a record has been moved out of its cell by the calling thread, the seat of which this is.
    pub(crate) fn free_record(&self, record: u32, seat: Option<&Seat>) {
        match seat {
            // The thread may never wait again, and take packets that others have waited for.
            Some(seat) if seat.landed.len() < MOST_LANDED => {
                seat.landed.push(record, &self.nodes.flight(record).link);
            }
            _ => self.give_back_record(record),
        }
    }

    /// The same for an operation that has ended before it made a packet: the caller, the seat of which this is, has its
    /// outcome.
    pub(crate) fn land_unseen(&self, record: u32, seat: Option<&Seat>) {
        if self.forked() {
            // The buffer's code has forked, and this is the child.
            return;
        }
        let flight = self.nodes.flight(record);
        let index = flight.slot();
        let mut lanes = self.desks.at(index).lock();
        let next = if lanes.land(flight) { self.slot(index).land_last() } else { Next::Nothing };
        drop(lanes);
        self.stop_awaiting(flight);
        self.free_record(record, seat);
        self.follow(next, index, None);
    }

    /// How the socket carries bytes that an operation is tried on.
    #[inline]
    pub(crate) fn transport(&self, desk: &Desk, descriptor: Descriptor) -> Transport {
        let ask = || self.backend.transport(descriptor) as u8;
        Transport::of(desk.transport(ask))
    }

    /// Does what ends operations and then queues their packets. The waits of a port that is closed in between go on
    /// until that is done.
    fn until_queued<R>(&self, end: impl FnOnce() -> R) -> R {
        self.lock().stock.peeks += 1;
        let ended = end();
        let mut state = self.lock();
        state.stock.peeks -= 1;
        drop(self.end_if_over(state));
        ended
    }

    /// Cancels an operation. False if it has ended already; its packet says how.
    pub(crate) fn cancel_operation(&self, operation: u64) -> Result<bool, Error> {
        self.check_usable(Call::Cancel)?;
        Ok(self.until_queued(|| self.try_to_cancel(operation)))
    }

    fn try_to_cancel(&self, operation: u64) -> bool {
        #[allow(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
        let (record, uses) = (operation as u32, (operation >> 32) as u32);
        let Some(flight) = self.nodes.flights.find(record) else { return false };
        let node = record | FLIGHT;
        while flight.uses() == uses {
            let index = flight.slot();
            let Some(desk) = self.desk(index) else { return false };
            let slot = self.slot(index);
            let poll = self.current_poll();
            let mut lanes = desk.lock();
            // Looked at again: the record may have been used anew, for another registration even.
            if flight.uses() != uses || !flight.is_aloft() {
                break;
            }
            if flight.slot() != index {
                // It has been started since that was read.
                continue;
            }
            let verdict = Verdict::Cancelled;
            if flight.is_lone() {
                let is_called_off = flight.call_off_alone(uses, verdict);
                let is_ours = is_called_off && self.claim_alone(slot, flight);
                drop(lanes);
                if is_ours {
                    self.submit(node);
                }
                return is_called_off;
            }
            let effects = lanes.call_off(&self.nodes, slot, node, verdict, poll);
            let Some(effects) = effects else { break };
            let mut ended = Fifo::new();
            let next = self.cancel_request(&mut lanes, slot, node, verdict, &mut ended);
            lanes.begin_unasked(&self.nodes, &mut ended);
            drop(lanes);
            self.see_to(effects, index, None);
            self.submit_all(ended);
            self.follow(next, index, None);
            return true;
        }
        false
    }

    /// What operations of a registration in this direction may have waited for, and no edge tells of, is there: the
    /// first of them is tried.
    pub(crate) fn hasten(&self, name: Name, direction: Direction) {
        if self.forked() {
            return;
        }
        let (index, generation) = name_parts(name);
        let (Some((slot, _)), Some(desk)) = (self.known(name), self.desk(index)) else { return };
        let mut lanes = desk.lock();
        if slot.word().generation() != generation {
            return;
        }
        let now = self.backend.now();
        if lanes.hasten(direction, now) {
            desk.hasten(now);
        }
        drop(lanes);
        // Which wakes a thread that waits, if that is sooner than it would wake by itself.
        self.mind_alarm(index, desk);
    }

    /// A registration ends, or the port: so do its operations.
    #[inline]
    pub(super) fn call_off(&self, slot: &Slot, name: Name, verdict: Verdict) {
        if slot.word().is_lent() {
            self.until_queued(|| {
                let mut ended = Fifo::new();
                let next = self.call_off_all(name, verdict, &mut ended);
                self.submit_all(ended);
                self.follow(next, name_parts(name).0, None);
            });
        }
    }
}
