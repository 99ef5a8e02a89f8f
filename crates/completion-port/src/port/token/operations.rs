//! How operations are started, tried and handed out.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::{Held, Packet, Packets, Ready};
use crate::engine::{
    Aloft, Attempted, Course, Desk, Engine, Name, Plan, Seat, Verdict, name_of, name_parts,
};
use crate::memory::cells::Cell;
use crate::memory::trace::hears_packets;
use crate::port::current::{current_seat, with_current_seat};
use crate::port::deadline::Deadline;
use crate::port::operation::{Bytes, Cargo, OpId, Operation, Outcome, SharedId, Started};
use crate::port::registration::Id;
use crate::port::task::{Attempt, Ending, Task};
use crate::port::{Port, Store};
use crate::state::moment::Moment;
use crate::state::slot::{Drained, Slot};
use crate::types::address::Address;
use crate::types::buffer::Buffer;
use crate::types::error::{Call, Error, ErrorKind, Refused, Result};
use crate::types::fd::RawFd;
use crate::types::interest::Direction;
use crate::types::interest::{Events, Interest};
use crate::types::source::{OwnedSource, Source};

impl<K, B: Buffer> Store<K, B> {
    /// Puts an operation into the cell of its record, which is the caller's. Returns the cell.
    #[inline]
    fn load(&self, record: u32, operation: Operation<B>, is_shared: bool) -> &Cell<Cargo<B>> {
        let cell = self.cargo.at(record);
        // SAFETY: `put` demands that the caller owns the cell and that it is empty.
        // - owned: the record is the caller's, by its token or since it was just reserved, until the operation is
        //   in flight;
        // - empty: a record is free only after its operation was moved out.
        unsafe { Cargo::put(cell, operation, is_shared) };
        cell
    }

    /// See [`Store::attempt`].
    #[inline(never)]
    fn attempt_again(
        &self,
        cell: &Cell<Cargo<B>>,
        aloft: &Aloft<'_>,
        seat: Option<&Seat>,
    ) -> Attempted {
        self.attempt(cell, aloft, seat)
    }

    /// Tries the operation in `cell`, which the engine has handed to the calling thread for that.
    #[allow(
        clippy::inline_always,
        reason = "what it is passed is put together in memory otherwise"
    )]
    #[inline(always)]
    fn attempt(&self, cell: &Cell<Cargo<B>>, aloft: &Aloft<'_>, seat: Option<&Seat>) -> Attempted {
        let engine = &self.engine;
        let tried = Trying { store: self, record: aloft.record, seat };
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
        // - a value: an operation is in its cell until its packet is taken;
        // - nothing else: from `Course::Try` until it is told what that has come to the engine hands the operation to
        //   no other thread.
        let cargo = unsafe { cell.get_mut() };
        let descriptor = aloft.descriptor();
        let (engine, desk): (&Engine, _) = (engine, aloft.desk);
        let transport = move |descriptor| engine.transport(desk, descriptor);
        let place = engine.place(desk, aloft.record);
        let mut attempted = cargo.attempt(engine.backend(), descriptor, transport, place);
        if attempted == Attempted::Blocked && !aloft.slot.word().is_plain() {
            let transport = engine.transport(desk, descriptor);
            let backend = engine.backend();
            attempted = cargo.attempt_behind_the_end(backend, descriptor, transport, place);
        }
        std::mem::forget(tried);
        attempted
    }

    /// The operation in `cell` was tried, and has come to this. After [`Course::Waits`] it is the caller's no more.
    #[inline]
    fn tried(
        &self,
        cell: &Cell<Cargo<B>>,
        aloft: &Aloft<'_>,
        attempted: Attempted,
        seat: Option<&Seat>,
    ) -> Course {
        if attempted == Attempted::Carried {
            self.hand_over_transfer(cell, aloft, seat)
        } else {
            self.engine.tried(aloft, attempted, seat)
        }
    }

    /// The operation in `cell` is carried out by the back end.
    #[cold]
    #[inline(never)]
    fn hand_over_transfer(
        &self,
        cell: &Cell<Cargo<B>>,
        aloft: &Aloft<'_>,
        seat: Option<&Seat>,
    ) -> Course {
        let engine = &self.engine;
        engine.lane_if_lone(aloft);
        let record = aloft.record;
        if !engine.reserve_transfer(record) {
            // It waits for an edge instead.
            return engine.tried(aloft, Attempted::Blocked, seat);
        }
        let trying = Trying { store: self, record, seat };
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
        // - a value, and nothing else: the operation was just tried by this thread, and until the engine is told what has
        //   come of that, below, it hands the operation to no other thread.
        let cargo = unsafe { cell.get_mut() };
        let transfer = cargo.hand_over_transfer(engine.transfer_of(record), aloft.descriptor());
        std::mem::forget(trying);
        if engine.forked() {
            // The buffer's code has forked, and this is the child: the operation is the parent's.
            std::mem::forget(transfer);
            return Course::Waits;
        }
        match engine.hand_over_transfer(aloft, transfer, seat) {
            Ok(()) => Course::Waits,
            Err((course, transfer)) => {
                // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
                // - a value, and nothing else: the operation has ended, and its node is the caller's.
                unsafe { cell.get_mut() }.take_transfer_back(transfer);
                course
            }
        }
    }

    /// The operation in `cell`, whose node has come to the calling thread, was handed to the back end, and has come back
    /// from it.
    #[cold]
    #[inline(never)]
    fn fetch(&self, cell: &Cell<Cargo<B>>, record: u32) {
        let Some(transfer) = self.engine.take_transfer(record) else {
            return self.fetch_job(cell, record);
        };
        let fetching = Fetching { store: self, cell, record };
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
        // - a value: an operation is in its cell until its packet is taken;
        // - nothing else: the node of an operation comes to one thread, the caller.
        unsafe { cell.get_mut() }.take_transfer_back(transfer);
        std::mem::forget(fetching);
    }

    /// Tries an operation of a shared association until it ends or has to wait. After [`Course::Waits`] it is
    /// the caller's no more.
    fn attempt_shared(
        &self,
        cell: &Cell<Cargo<B>>,
        aloft: &Aloft<'_>,
        seat: Option<&Seat>,
    ) -> Course {
        loop {
            let attempted = self.attempt(cell, aloft, seat);
            if self.engine.forked() {
                // The buffer's code has forked, and this is the child: the operation is the parent's.
                return Course::Waits;
            }
            match self.tried(cell, aloft, attempted, seat) {
                Course::Try => {}
                course => return course,
            }
        }
    }

    /// Tries an operation of a token until it ends, and is landed by that, or has to wait. False: it is the caller's
    /// no more. `known`: what the first attempt has come to, if it was made already.
    fn attempt_own(
        &self,
        cell: &Cell<Cargo<B>>,
        aloft: &Aloft<'_>,
        mut known: Option<Attempted>,
        seat: Option<&Seat>,
    ) -> bool {
        loop {
            let attempted = known.take().unwrap_or_else(|| self.attempt_again(cell, aloft, seat));
            if self.engine.forked() {
                // As above.
                return false;
            }
            // It is settled as done from its beginning.
            if self.engine.tried_and_landed(aloft, attempted) {
                return true;
            }
            match self.tried(cell, aloft, attempted, seat) {
                Course::Try => {}
                Course::Waits => return false,
                Course::Ends(verdict) => {
                    self.engine.abandon_connect(aloft, verdict);
                    self.engine.land_own(aloft);
                    settle(cell, verdict);
                    return true;
                }
            }
        }
    }
}

/// The operation in this cell has ended, and is the caller's: its packet is handed out, or its outcome.
#[cold]
fn tell_completed<B>(engine: &Engine, registration: Name, cell: &Cell<Cargo<B>>) {
    // SAFETY: `get` demands a value that is neither changed nor taken as long as the reference lives.
    // - a value, and neither: as in `settle`.
    let cargo = unsafe { cell.get() };
    engine.tell_completed(registration, cargo.call(), cargo.error());
}

/// Takes back the operation in this cell, which was never in flight, or was refused.
pub(super) fn unload<B>(cell: &Cell<Cargo<B>>) -> Cargo<B> {
    // SAFETY: `take` demands that the caller owns the cell, with a value in it.
    // - owned: the record is the caller's, and no other thread knows of what was put into its cell;
    // - a value: the caller has put it there, and takes it once.
    unsafe { cell.take() }
}

/// The operation in this cell, which is the caller's, has ended.
fn settle<B>(cell: &Cell<Cargo<B>>, verdict: Verdict) {
    // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
    // - a value: an operation is in its cell until its outcome is taken;
    // - nothing else: an operation that has ended is handed to one thread, the caller.
    unsafe { cell.get_mut() }.settle(verdict);
}

/// A task that is done, of which the engine is told when its end has returned, or has panicked.
struct Landing<'a, 'e> {
    engine: &'e Engine,
    aloft: &'a Aloft<'e>,
    attempted: Attempted,
    seat: Option<&'a Seat>,
}

impl Drop for Landing<'_, '_> {
    fn drop(&mut self) {
        if self.engine.forked() {
            // The end has forked, and this is the child.
            return;
        }
        let record = self.aloft.record;
        // It is done, whatever was asked of it meanwhile.
        let _ = self.engine.tried(self.aloft, self.attempted, self.seat);
        self.engine.land_unseen(record, self.seat);
    }
}

/// An operation that is being tried before anything else knows of it. Should that panic, it is dropped.
pub(super) struct Loaded<'s, B>(pub(super) &'s Cell<Cargo<B>>);

impl<B> Drop for Loaded<'_, B> {
    fn drop(&mut self) {
        drop(unload(self.0));
    }
}

/// An operation that is being tried by code of a buffer. Should that panic, the operation fails.
struct Trying<'s, K, B: Buffer> {
    store: &'s Store<K, B>,
    record: u32,
    seat: Option<&'s Seat>,
}

impl<K, B: Buffer> Drop for Trying<'_, K, B> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        let Self { store, record, seat } = *self;
        if store.engine.forked() {
            return;
        }
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
        // - a value, and nothing else: as in `attempt`, from where this is called while it unwinds; the reference there
        //   is used no more.
        unsafe { store.cargo.at(record).get_mut() }.fail_by_panic();
        let aloft = store.engine.aloft(record);
        store.engine.tried(&aloft, Attempted::Done, seat);
        store.engine.queue_operation(record);
    }
}

/// An operation that has come back from the back end, while code of its buffer is called. Should that panic, the operation
/// fails, and its packet is queued. One that is to be tried again calls none.
struct Fetching<'s, K, B: Buffer> {
    store: &'s Store<K, B>,
    cell: &'s Cell<Cargo<B>>,
    record: u32,
}

impl<K, B: Buffer> Drop for Fetching<'_, K, B> {
    fn drop(&mut self) {
        if self.store.engine.forked() {
            return;
        }
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
        // - a value, and nothing else: as in `fetch`, from where this is called while it unwinds; the reference there is
        //   used no more.
        unsafe { self.cell.get_mut() }.fail_by_panic();
        self.store.engine.queue_operation(self.record);
    }
}

impl<'p, K, B> Ready<'p, K, B> {
    /// The token of a slot that has just been associated, and is held.
    pub(crate) fn associated(store: &'p Store<K, B>, index: u32) -> Self {
        Self::of(store, store.engine.slot(index), index)
    }

    /// A token that has nothing to report.
    #[inline]
    fn of(store: &'p Store<K, B>, slot: &'p Slot, index: u32) -> Self {
        let cell = store.keys.cells.at(index);
        let held = Held { store, slot, cell, index, events: Events::NONE, drained: Drained::NONE };
        Self { held, key: PhantomData }
    }
}

/// The packet of an operation that was started by a token: it has the token, and what has become of the
/// operation, with its buffer.
///
/// [`Done::into_parts`] gives both out. If it is dropped instead, the registration ends, as when a token is dropped.
///
/// # Examples
///
/// See [`Port::associate`].
#[must_use = "dropping it ends the registration; `into_parts` gives the token back"]
pub struct Done<'p, K, B = Vec<u8>> {
    // No larger than a token, so that packets of readiness cost no more for the packets that bring buffers: the
    // outcome stays in the operation's cell until it is asked for.
    store: &'p Store<K, B>,
    /// It is held.
    slot: &'p Slot,
    /// Where the operation lies: in the record that the operations of this registration use in turn. Nothing else
    /// uses it as long as this packet has the token.
    cell: &'p Cell<Cargo<B>>,
    /// The slot's number.
    index: u32,
    /// So that it is shared between threads only if key and buffer may be.
    parts: PhantomData<(K, Outcome<B>)>,
}

impl<'p, K, B> Done<'p, K, B> {
    /// The packet of the operation in `cell`, of the slot `index`, which has landed and is settled.
    #[inline]
    fn of(store: &'p Store<K, B>, slot: &'p Slot, index: u32, cell: &'p Cell<Cargo<B>>) -> Self {
        Self { store, slot, cell, index, parts: PhantomData }
    }

    /// The registration's name.
    #[must_use]
    pub fn id(&self) -> Id {
        Id(name_of(self.index, self.slot.word().generation()))
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &K {
        // SAFETY: `get` demands a value that is neither changed nor taken as long as the reference lives.
        // - a value: the packet has the token, which has the key, and is there as long as the reference;
        // - neither changed nor taken: the cell is the token's, which only `into_parts` and the drop give out, by value.
        unsafe { self.store.keys.cells.at(self.index).get() }
    }

    /// Why the operation has failed, if it has.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        // SAFETY: `get` demands a value that is neither changed nor taken as long as the reference lives.
        // - a value: the operation was settled when this packet was made;
        // - neither changed nor taken: only this packet knows of it, and takes it when it is used up.
        unsafe { self.cell.get() }.error()
    }

    /// The token, and what has become of the operation.
    #[must_use = "dropping the token ends the registration"]
    #[inline]
    pub fn into_parts(self) -> (Ready<'p, K, B>, Outcome<B>) {
        let this = ManuallyDrop::new(self);
        let token = Ready::of(this.store, this.slot, this.index);
        take_outcome(this.cell, |outcome| (token, outcome))
    }
}

/// Takes the outcome of an operation that was settled, and that the caller alone knows of. It is made where `then` puts it.
#[inline]
fn take_outcome<B, R>(cell: &Cell<Cargo<B>>, then: impl FnOnce(Outcome<B>) -> R) -> R {
    // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
    // - a value: it was settled when the packet was made, or by the caller, and is taken once;
    // - nothing else: the caller alone knows of it.
    let bytes = unsafe { cell.get_mut() }.take_bytes();
    match bytes {
        Some((Bytes::Received, len, buffer)) => then(Outcome::Received(Ok(len), buffer)),
        Some((Bytes::Sent, len, buffer)) => then(Outcome::Sent(Ok(len), buffer)),
        Some((Bytes::Read, len, buffer)) => then(Outcome::Read(Ok(len), buffer)),
        None => then(take_other_outcome(cell)),
    }
}

/// The same in all but the common cases.
#[inline(never)]
fn take_other_outcome<B>(cell: &Cell<Cargo<B>>) -> Outcome<B> {
    // SAFETY: `take_part` demands that the caller owns the cell, with a value in it.
    // - owned, and a value: as in `take_outcome`, which has taken nothing.
    unsafe { cell.take_part(Cargo::take_outcome) }
}

impl<K, B> Drop for Done<'_, K, B> {
    // Inlined, so that a packet need not lie in memory unless a reference to it is passed on.
    #[inline]
    fn drop(&mut self) {
        abandon(self.store, self.slot, self.index, self.cell);
    }
}

/// The packet of an operation of this slot is dropped, which has the slot's token.
#[cold]
#[inline(never)]
fn abandon<K, B>(store: &Store<K, B>, slot: &Slot, index: u32, cell: &Cell<Cargo<B>>) {
    let (token, outcome) = Done::of(store, slot, index, cell).into_parts();
    drop(token);
    drop(outcome);
}

impl<K, B> fmt::Debug for Done<'_, K, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Done")
            .field("id", &self.id())
            .field("error", &self.error())
            .finish_non_exhaustive()
    }
}

/// The packet of an operation of a shared association: it has a clone of the key, and what has become of the
/// operation, with its buffer.
///
/// # Examples
///
/// See [`Port::associate_shared`].
pub struct Finished<'p, K, B = Vec<u8>> {
    store: &'p Store<K, B>,
    record: u32,
    key: ManuallyDrop<K>,
    /// So that it is shared between threads only if the buffer may be.
    outcome: PhantomData<Outcome<B>>,
}

impl<K, B> Finished<'_, K, B> {
    /// The association's name.
    #[must_use]
    pub fn id(&self) -> SharedId {
        SharedId(self.settled().association)
    }

    /// The operation's name, as its start has returned it.
    #[must_use]
    pub fn operation(&self) -> OpId {
        self.settled().name
    }

    /// The clone of the key that came with this packet.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Why the operation has failed, if it has.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.settled().error()
    }

    fn settled(&self) -> &Cargo<B> {
        // SAFETY: `get` demands a value that is neither changed nor taken as long as the reference lives.
        // - a value: the operation was settled when this packet was made;
        // - neither changed nor taken: only this packet knows of it, and takes it when it is used up.
        unsafe { self.store.cargo.at(self.record).get() }
    }

    /// The clone of the key, and what has become of the operation.
    #[must_use]
    pub fn into_parts(self) -> (K, Outcome<B>) {
        let mut this = ManuallyDrop::new(self);
        let outcome = use_up(this.store, this.record);
        // SAFETY: `take` demands that the value is not used again.
        // - `this` is forgotten with this call.
        (unsafe { ManuallyDrop::take(&mut this.key) }, outcome)
    }
}

impl<K, B> Drop for Finished<'_, K, B> {
    // Inlined, so that a packet need not lie in memory unless a reference to it is passed on.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `take` demands that the value is not used again.
        // - the packet is about to be gone.
        drop_parts(self.store, self.record, unsafe { ManuallyDrop::take(&mut self.key) });
    }
}

/// The packet of this operation is dropped.
#[cold]
#[inline(never)]
fn drop_parts<K, B>(store: &Store<K, B>, record: u32, key: K) {
    let outcome = use_up(store, record);
    drop(key);
    drop(outcome);
}

/// The packet of this operation is used up: takes its outcome, and gives its record back.
fn use_up<K, B>(store: &Store<K, B>, record: u32) -> Outcome<B> {
    let outcome = take_outcome(store.cargo.at(record), |outcome| outcome);
    with_current_seat(&store.engine, |seat| store.engine.free_record(record, seat));
    outcome
}

impl<K, B> fmt::Debug for Finished<'_, K, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished")
            .field("id", &self.id())
            .field("operation", &self.operation())
            .field("error", &self.error())
            .finish_non_exhaustive()
    }
}

/// What the first attempt has come to, which a token makes itself.
enum First {
    /// The operation has ended.
    Done,
    /// It goes in flight, with the result of the first attempt if that needs handling there.
    Left(Option<Attempted>),
    /// The buffer's code has forked, and this is the child.
    Forked,
}

/// An operation in its cell to which its token was to give the key.
struct Lent<'p, K, B> {
    held: Held<'p, K, B>,
    cell: &'p Cell<Cargo<B>>,
    name: OpId,
    /// What has come of that. If it was refused, the slot is still held.
    course: std::result::Result<Course, ErrorKind>,
}

/// An operation that could not be done by its token at once.
pub(super) enum Begun<'p, K, B> {
    /// It has the key.
    InFlight(OpId),
    /// It has ended and is settled. The caller has the key, and the operation of this record in its cell.
    Ended(Held<'p, K, B>, &'p Cell<Cargo<B>>),
}

impl<'p, K, B: Buffer> Begun<'p, K, B> {
    /// Its outcome, if it has ended.
    fn into_started(self) -> Started<(Ready<'p, K, B>, Outcome<B>)> {
        match self {
            Self::InFlight(name) => Started::InFlight(name),
            Self::Ended(held, cell) => {
                if hears_packets() {
                    tell_completed(&held.store.engine, held.name(), cell);
                }
                let token = Ready { held, key: PhantomData };
                take_outcome(cell, |outcome| Started::Finished((token, outcome)))
            }
        }
    }
}

impl<'p, K, B: Buffer> Lent<'p, K, B> {
    /// Tries the operation, if it is to be tried. `known`: what the first attempt has come to, if that is to be seen to in
    /// flight.
    #[allow(clippy::type_complexity, reason = "a refusal gives everything back")]
    #[inline(never)]
    fn go_on(
        self,
        record: u32,
        known: Option<Attempted>,
    ) -> std::result::Result<Begun<'p, K, B>, Refused<(K, Operation<B>)>> {
        let Self { held, cell, name, course } = self;
        let store = held.store;
        match course {
            Ok(Course::Try) => {
                let aloft = store.engine.aloft(record);
                let seat = current_seat(&store.engine);
                if !store.attempt_own(cell, &aloft, known, seat.as_deref()) {
                    return Ok(Begun::InFlight(name));
                }
                let held = Held { drained: Drained::NONE, events: Events::NONE, ..held };
                Ok(Begun::Ended(held, cell))
            }
            Ok(_) => Ok(Begun::InFlight(name)),
            Err(error) => {
                // SAFETY: `get` demands a value that is neither changed nor taken as long as the reference lives.
                // - a value: it was put there before the token was to give the key to it;
                // - neither changed nor taken: the operation was refused, so that no other thread knows of it.
                if unsafe { cell.get() }.transferred() > 0 {
                    // A part was sent, which a refusal could not tell.
                    settle(cell, Verdict::Cancelled);
                    return Ok(Begun::Ended(held, cell));
                }
                // Its token may have begun it already.
                let desk = store.engine.desk_of_operation(held.index);
                let aloft = store.engine.before_start(record, held.index, held.slot, desk);
                store.engine.abandon_connect(&aloft, Verdict::Cancelled);
                let operation = unload(cell).into_operation();
                let token = Ready { held, key: PhantomData };
                Err(token.refuse_operation(Error::new(operation.call(), error), operation))
            }
        }
    }

    /// The same; if the operation ends by that, its packet is queued.
    #[cold]
    #[inline(never)]
    fn go_on_by_packet(self, record: u32) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        match self.go_on(record, None)? {
            Begun::InFlight(name) => Ok(name),
            Begun::Ended(held, cell) => held.end_by_packet(cell, record),
        }
    }
}

impl<'p, K, B: Buffer> Held<'p, K, B> {
    /// Gives the key to the operation of this record, which is in its cell, and waits for an edge of this direction. If it
    /// is refused, the slot is still held.
    #[allow(clippy::inline_always, reason = "a part of the two that call it")]
    #[inline(always)]
    fn lend_to_wait(
        &self,
        record: u32,
        desk: &'p Desk,
        direction: Direction,
        deadline: Moment,
    ) -> (OpId, std::result::Result<Course, ErrorKind>) {
        let Self { store, slot, index, drained, .. } = *self;
        let engine = &store.engine;
        let aloft = engine.before_start(record, index, slot, desk);
        (OpId(aloft.name()), engine.lend_alone(aloft, direction, deadline, drained))
    }

    /// The operation of `record`, which is in `cell`, has ended, and is the caller's with its token: its packet is queued.
    fn end_by_packet(
        self,
        cell: &'p Cell<Cargo<B>>,
        record: u32,
    ) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        let Self { store, slot, index, drained, .. } = self;
        let name = OpId(store.engine.operation_of(record));
        let lent = with_current_seat(&store.engine, |seat| {
            store.engine.lend_ended(slot, index, record, drained, seat)
        });
        if lent {
            return Ok(name);
        }
        let cargo = unload(cell);
        let error = Error::new(cargo.call(), ErrorKind::Closed);
        let error = error.having_transferred(cargo.transferred());
        let token = Ready { held: self, key: PhantomData };
        Err(token.refuse_operation(error, cargo.into_operation()))
    }
}

impl<'p, K, B: Buffer> Ready<'p, K, B> {
    /// Starts an operation, which has the key until it completes: [`Packet::Done`] brings the token back, and
    /// the operation's outcome with its buffer. An operation that can be done at once is done by this call; there is
    /// a packet all the same.
    ///
    /// # Errors
    ///
    /// If the call fails, the registration has ended, and the error gives back the key and the operation with
    /// its buffer:
    /// - [`ErrorKind::Closed`], [`ErrorKind::Removing`], [`ErrorKind::NotRegistered`], [`ErrorKind::BadDescriptor`]:
    ///   as for [`Ready::rearm`];
    /// - [`ErrorKind::NotOwned`]: the key does not own its descriptor;
    /// - [`ErrorKind::OutOfMemory`], [`ErrorKind::Forked`].
    ///
    /// What the socket does not allow is the operation's outcome.
    ///
    /// # Examples
    ///
    /// See [`Port::associate`].
    pub fn start(
        self,
        operation: Operation<B>,
    ) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        let (record, desk) = match self.prepare(operation.call()) {
            Ok(prepared) => prepared,
            Err(error) => return Err(self.refuse_operation(error, operation)),
        };
        let Some(direction) = self.awaits_edge(&operation) else {
            let cell = self.held.store.load(record, operation, false);
            return self.start_by_trying(cell, record, desk);
        };
        let deadline = operation.ends_at(self.held.store.engine.backend());
        let cell = self.load_to_wait(record, operation);
        let held = self.into_held();
        let (name, course) = held.lend_to_wait(record, desk, direction, deadline);
        if let Ok(Course::Waits) = course {
            return Ok(name);
        }
        Lent { held, cell, name, course }.go_on_by_packet(record)
    }

    /// The same for an operation in its cell that is to be tried by its token.
    #[inline(never)]
    fn start_by_trying(
        mut self,
        cell: &'p Cell<Cargo<B>>,
        record: u32,
        desk: &'p Desk,
    ) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        match self.try_first(cell, record, desk) {
            First::Done => self.into_held().end_by_packet(cell, record),
            first => match self.take_off(cell, record, desk, first)? {
                Begun::InFlight(name) => Ok(name),
                Begun::Ended(held, cell) => held.end_by_packet(cell, record),
            },
        }
    }

    /// The same, but an operation that is done at once makes no packet: the token comes back from this call.
    ///
    /// Other packets wait while a handler goes on by this: after a dozen operations or so it does best to call
    /// [`Ready::start`], so that the others have their turn.
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Operation, Outcome, Port, Started};
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// let port = Port::<TcpStream>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (_far, _) = listener.accept()?;
    /// let started = port.associate(near)?.start_now(Operation::send_all(b"hello".to_vec()))?;
    /// let Started::Finished((_token, outcome)) = started else { panic!("there is room for it") };
    /// assert!(matches!(outcome, Outcome::Sent(Ok(5), _)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(clippy::type_complexity, reason = "a refusal gives everything back")]
    pub fn start_now(
        mut self,
        operation: Operation<B>,
    ) -> std::result::Result<Started<(Self, Outcome<B>)>, Refused<(K, Operation<B>)>> {
        let (record, desk) = match self.prepare(operation.call()) {
            Ok(prepared) => prepared,
            Err(error) => return Err(self.refuse_operation(error, operation)),
        };
        if let Some(direction) = self.awaits_edge(&operation) {
            let deadline = operation.ends_at(self.held.store.engine.backend());
            let cell = self.load_to_wait(record, operation);
            let held = self.into_held();
            let (name, course) = held.lend_to_wait(record, desk, direction, deadline);
            if let Ok(Course::Waits) = course {
                return Ok(Started::InFlight(name));
            }
            let lent = Lent { held, cell, name, course };
            return lent.go_on(record, None).map(Begun::into_started);
        }
        let cell = self.held.store.load(record, operation, false);
        match self.try_first(cell, record, desk) {
            First::Done => {
                if hears_packets() {
                    tell_completed(&self.held.store.engine, self.held.name(), cell);
                }
                take_outcome(cell, |outcome| Ok(Started::Finished((self, outcome))))
            }
            first => self.take_off(cell, record, desk, first).map(Begun::into_started),
        }
    }

    /// The direction of an operation that nothing is to be tried of, as far as is known: it waits for an edge of that.
    #[inline]
    fn awaits_edge(&self, operation: &Operation<B>) -> Option<Direction> {
        let Held { slot, drained, .. } = self.held;
        operation.awaits().filter(|direction| !slot.looks_ready(direction.facts(), drained))
    }

    /// Puts an operation into its cell that is to wait.
    #[inline]
    fn load_to_wait(&self, record: u32, operation: Operation<B>) -> &'p Cell<Cargo<B>> {
        if hears_packets() {
            self.held.store.engine.tell_started(self.held.name(), operation.call());
        }
        self.held.store.load(record, operation, false)
    }

    /// The record that an operation of this token is to lie in, and the desk of the registration.
    #[allow(clippy::inline_always, reason = "what it returns passes through memory otherwise")]
    #[inline(always)]
    fn prepare(&self, call: Call) -> Result<(u32, &'p Desk)> {
        let Held { store, slot, index, .. } = self.held;
        let engine = &store.engine;
        if slot.word().is_borrowed() {
            return Err(Error::new(call, ErrorKind::NotOwned));
        }
        if !self.has_its_descriptor() {
            return Err(Error::new(call, ErrorKind::BadDescriptor));
        }
        engine.own_record(index, call, |record| store.cargo.reserve(record))
    }

    /// Tries an operation in its cell, if that can be done by its token. Nothing else is in flight as long as the token is
    /// here, and no other thread knows of the operation yet. Should the buffer's code panic, the token ends the
    /// registration.
    #[allow(clippy::inline_always, reason = "a part of the two that call it")]
    #[inline(always)]
    fn try_first(&mut self, cell: &Cell<Cargo<B>>, record: u32, desk: &Desk) -> First {
        let Held { store, slot, drained, .. } = self.held;
        let engine = &store.engine;
        let loaded = Loaded(cell);
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
        // - a value: the caller has put it there;
        // - nothing else: no other thread knows of it, and `loaded` takes it when the reference is used no more.
        let cargo = unsafe { cell.get_mut() };
        if hears_packets() {
            engine.tell_started(self.held.name(), cargo.call());
        }
        let descriptor = slot.descriptor();
        let mut known = None;
        let is_over = if cargo.is_of_file() {
            let (operation, progress) = cargo.parts();
            store.try_on_file(operation, progress, desk, descriptor)
        } else {
            let engine: &Engine = engine;
            let transport = move |descriptor| engine.transport(desk, descriptor);
            let place = engine.place(desk, record);
            let mut attempted = cargo.attempt(engine.backend(), descriptor, transport, place);
            if attempted == Attempted::Blocked && !slot.word().is_plain() {
                let transport = engine.transport(desk, descriptor);
                let backend = engine.backend();
                attempted = cargo.attempt_behind_the_end(backend, descriptor, transport, place);
            }
            match attempted {
                // Behind what was received an end may stand that no further edge tells of.
                Attempted::Drained if !slot.word().is_plain() => {}
                Attempted::Drained | Attempted::Blocked => {
                    self.held.drained = drained.and(Drained::of(cargo.direction()));
                }
                Attempted::Done => {}
                Attempted::Scarce | Attempted::Paused | Attempted::Carried => {
                    known = Some(attempted);
                }
            }
            matches!(attempted, Attempted::Done | Attempted::Drained)
        };
        std::mem::forget(loaded);
        if engine.forked() {
            // The buffer's code has forked, and this is the child.
            return First::Forked;
        }
        if !is_over {
            return First::Left(known);
        }
        self.held.events = Events::NONE;
        First::Done
    }

    /// An operation in its cell goes in flight, with the key, unless the first attempt says otherwise.
    #[allow(clippy::type_complexity, reason = "a refusal gives everything back")]
    #[inline(never)]
    fn take_off(
        self,
        cell: &'p Cell<Cargo<B>>,
        record: u32,
        desk: &'p Desk,
        first: First,
    ) -> std::result::Result<Begun<'p, K, B>, Refused<(K, Operation<B>)>> {
        let Held { store, slot, index, drained, .. } = self.held;
        let engine = &store.engine;
        let First::Left(known) = first else {
            let operation = unload(cell).into_operation();
            let error = Error::new(operation.call(), ErrorKind::Forked);
            return Err(self.refuse_operation(error, operation));
        };
        // SAFETY: `get` demands a value that is neither changed nor taken as long as the reference lives.
        // - a value: the caller has put it there;
        // - neither changed nor taken: no other thread knows of it, and the reference is used here only.
        let cargo = unsafe { cell.get() };
        let plan = cargo.plan(engine.backend());
        if cargo.is_of_file() {
            return self.take_off_on_file(cell, (record, desk), &plan);
        }
        let held = self.into_held();
        let name = OpId(engine.operation_of(record));
        let course = if known.is_none() {
            let Plan { direction, deadline, .. } = plan;
            let aloft = engine.before_start(record, index, slot, desk);
            engine.lend_alone(aloft, direction, deadline, drained)
        } else {
            let lent = engine.lend(slot, index, desk, record, &plan, drained);
            lent.map_err(|error| error.kind())
        };
        Lent { held, cell, name, course }.go_on(record, known)
    }

    #[cold]
    pub(super) fn refuse_operation(
        self,
        error: Error,
        operation: Operation<B>,
    ) -> Refused<(K, Operation<B>)> {
        let (error, key) = self.into_held().refuse_with(error).into_parts();
        Refused::new(error, (key, operation))
    }

    /// Starts [`Operation::accept`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn accept(self) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::accept())
    }

    /// Starts [`Operation::connect`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn connect(
        self,
        address: impl Into<Address>,
    ) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::connect(address))
    }

    /// Starts [`Operation::recv`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn recv(self, buffer: B) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::recv(buffer))
    }

    /// Starts [`Operation::recv_from`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn recv_from(self, buffer: B) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::recv_from(buffer))
    }

    /// Starts [`Operation::send`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn send(self, buffer: B) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::send(buffer))
    }

    /// Starts [`Operation::send_all`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn send_all(self, buffer: B) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::send_all(buffer))
    }

    /// Starts [`Operation::send_to`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn send_to(
        self,
        buffer: B,
        address: impl Into<Address>,
    ) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::send_to(buffer, address))
    }

    /// Starts [`Operation::read_at`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, FileSource, Outcome, Packet, Port};
    /// use std::fs::File;
    ///
    /// let port = Port::<FileSource<File>>::new()?;
    /// let file = FileSource::new(File::open(std::env::current_exe()?)?);
    /// port.associate(file)?.read_at(Vec::with_capacity(4), 0)?;
    ///
    /// let mut batch = Batch::new();
    /// let Some(Packet::Done(done)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// let (token, outcome) = done.into_parts();
    /// let Outcome::Read(Ok(read), buffer) = outcome else { panic!("it can be read") };
    /// assert!(read >= 4 && buffer.len() == read);
    /// let file = token.into_key(); // or the next operation
    /// # drop(file);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_at(
        self,
        buffer: B,
        offset: u64,
    ) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::read_at(buffer, offset))
    }

    /// Starts [`Operation::write_at`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn write_at(
        self,
        buffer: B,
        offset: u64,
    ) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::write_at(buffer, offset))
    }

    /// Starts [`Operation::sync_data`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn sync_data(self) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::sync_data())
    }

    /// Starts [`Operation::sync_all`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn sync_all(self) -> std::result::Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::sync_all())
    }
}

impl<K, M, B: Buffer> Port<K, M, B> {
    /// Starts an operation of a shared association. Its packet is [`Packet::Finished`].
    ///
    /// Operations of one direction are done in the order in which they were started.
    /// Those on files are done together, in whatever order the system chooses.
    ///
    /// # Errors
    ///
    /// The operation comes back with its buffer, and nothing has changed: [`ErrorKind::NotRegistered`],
    /// [`ErrorKind::Removing`], [`ErrorKind::Closed`], [`ErrorKind::OutOfMemory`], [`ErrorKind::Forked`]. What the
    /// socket does not allow is the operation's outcome.
    ///
    /// # Examples
    ///
    /// See [`Port::associate_shared`].
    pub fn start(
        &self,
        id: SharedId,
        operation: Operation<B>,
    ) -> std::result::Result<OpId, Refused<Operation<B>>> {
        let (record, name, course) = self.share(id, operation, false)?;
        if let Course::Ends(_) = course {
            self.engine().queue_operation(record);
        }
        Ok(name)
    }

    /// The same, but an operation that is done at once makes no packet: its outcome comes back from this call.
    ///
    /// Other packets wait while a handler goes on by this, as by [`Ready::start_now`]: after a dozen operations or so it
    /// does best to call [`Port::start`].
    ///
    /// # Errors
    ///
    /// As for [`Port::start`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Operation, Outcome, Port, Started};
    /// use std::net::{TcpListener, TcpStream};
    /// use std::sync::Arc;
    ///
    /// let port = Port::<Arc<TcpStream>>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (_far, _) = listener.accept()?;
    /// let id = port.associate_shared(Arc::new(near))?;
    /// let sent = port.start_now(id, Operation::send(b"hello".to_vec()))?;
    /// assert!(matches!(sent, Started::Finished(Outcome::Sent(Ok(5), _))));
    /// let received = port.start_now(id, Operation::recv(Vec::with_capacity(5)))?;
    /// assert!(matches!(received, Started::InFlight(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_now(
        &self,
        id: SharedId,
        operation: Operation<B>,
    ) -> std::result::Result<Started<Outcome<B>>, Refused<Operation<B>>> {
        let (record, name, course) = self.share(id, operation, true)?;
        let Course::Ends(verdict) = course else { return Ok(Started::InFlight(name)) };
        Ok(Started::Finished(self.store().land_unseen(record, verdict).take_outcome()))
    }

    /// Puts an operation in flight, and tries it if nothing else of its direction is. If it ends by that, the caller
    /// has its packet queued, or, if it is wanted `now`, takes its outcome.
    fn share(
        &self,
        id: SharedId,
        operation: Operation<B>,
        now: bool,
    ) -> std::result::Result<(u32, OpId, Course), Refused<Operation<B>>> {
        let (store, engine) = (self.store(), self.engine());
        let call = operation.call();
        let refuse = |error: Error, operation| {
            engine.tell_refused(&error, Some(id.0), None);
            Refused::new(error, operation)
        };
        let plan = operation.plan(engine.backend());
        let reserve = |record| store.cargo.reserve(record);
        let record =
            with_current_seat(engine, |seat| engine.shared_record(id.0, &plan, seat, reserve));
        let record = match record {
            Ok(record) => record,
            Err(error) => return Err(refuse(error, operation)),
        };
        let is_of_file = operation.is_of_file();
        if is_of_file {
            engine.mark(record, false, false);
        } else {
            engine.mark(record, operation.is_task(), operation.begins_unasked());
        }
        let name = OpId(engine.operation_of(record));
        if hears_packets() {
            engine.tell_started(id.0, call);
        }
        let cell = store.load(record, operation, true);
        if is_of_file {
            return match store.share_on_file(cell, id.0, record, &plan, now) {
                Ok(course) => Ok((record, name, course)),
                Err(error) => {
                    let operation = unload(cell).into_operation();
                    engine.give_back_record(record);
                    Err(refuse(error, operation))
                }
            };
        }
        match engine.share(id.0, record, &plan) {
            Ok(Course::Try) => {
                let aloft = engine.aloft(record);
                Ok((
                    record,
                    name,
                    store.attempt_shared(cell, &aloft, current_seat(engine).as_deref()),
                ))
            }
            Ok(course) => Ok((record, name, course)),
            Err(error) => {
                let operation = unload(cell).into_operation();
                engine.give_back_record(record);
                Err(refuse(error, operation))
            }
        }
    }

    /// Cancels an operation in flight, of a token or of a shared association. Its packet follows, with its key
    /// and its buffer; the outcome is [`ErrorKind::Cancelled`], unless the operation was done by then. Returns
    /// false if it had ended already. How long it takes does not depend on how many operations are in flight.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, ErrorKind, Operation, Outcome, Packet, Port};
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// let port = Port::<TcpStream>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (_far, _) = listener.accept()?;
    /// let receive = port.associate(near)?.recv(Vec::with_capacity(16))?;
    /// assert!(port.cancel(receive)?);
    ///
    /// let mut batch = Batch::new();
    /// let Some(Packet::Done(done)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// assert_eq!(done.error().map(|error| error.kind()), Some(ErrorKind::Cancelled));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self, operation: OpId) -> Result<bool> {
        self.engine().cancel_operation(operation.0)
    }

    /// Makes a stream socket, associates it, and connects it to an address; names are not resolved. `key_of` makes
    /// the key of the socket, which is to own it. The packet is [`Packet::Done`] with
    /// [`Outcome::Connected`], and its token goes on with the connection.
    ///
    /// `deadline`: when the attempt ends at the latest (`None`: as the system has it, some minutes).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DescriptorLimit`] or what else the system says if it makes no socket; otherwise as for
    /// [`Port::associate`]. The key is dropped then, if there is one already.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Outcome, Packet, Port};
    /// use std::net::{TcpListener, TcpStream};
    /// # #[cfg(windows)]
    /// # use std::os::windows::io::OwnedSocket as OwnedFd;
    /// # #[cfg(unix)]
    /// use std::os::fd::OwnedFd;
    /// use std::time::Duration;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let port = Port::<TcpStream>::new()?;
    /// let deadline = Some(Duration::from_secs(10).into());
    /// port.connect(listener.local_addr()?, deadline, |socket| OwnedFd::from(socket).into())?;
    ///
    /// let mut batch = Batch::new();
    /// let Some(Packet::Done(done)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// let (token, outcome) = done.into_parts();
    /// assert!(matches!(outcome, Outcome::Connected(Ok(()))));
    /// assert_eq!(token.key().peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect(
        &self,
        address: impl Into<Address>,
        deadline: Option<Deadline>,
        key_of: impl FnOnce(OwnedSource) -> K,
    ) -> Result<OpId>
    where
        K: Source,
    {
        let address = address.into();
        self.engine().check_open(Call::Connect)?;
        let socket = self
            .engine()
            .backend()
            .open_stream(&address)
            .map_err(|fault| Error::new(Call::Connect, fault.kind).with_code(fault.code))?;
        let token = self.associate_for(key_of(socket), Interest::IN | Interest::OUT)?;
        let connect = Operation::connect(address);
        let connect = match deadline {
            Some(deadline) => connect.deadline(deadline),
            None => connect,
        };
        Ok(token.start(connect)?)
    }
}

/// An operation that has ended, and whose key is being cloned. Should that panic, its packet is made again.
struct Sharing<'e>(&'e Engine, u32);

impl Drop for Sharing<'_> {
    fn drop(&mut self) {
        self.0.queue_operation(self.1);
    }
}

impl<'p, K, M, B: Buffer> Packets<'_, 'p, K, M, B> {
    /// The operation of `record` has its turn: it is tried, if it has not ended. `None` if it goes on to wait, or
    /// has nothing for the caller.
    #[inline(never)]
    pub(super) fn operation(&self, record: u32, seat: &Seat) -> Option<Packet<'p, K, M, B>> {
        let (store, engine) = (self.port.store(), self.port.engine());
        let (aloft, cell) = (engine.aloft(record), store.cargo.at(record));
        if !engine.turn_alone(&aloft) {
            return self.any_operation(&aloft, cell, seat);
        }
        let attempted = store.attempt(cell, &aloft, Some(seat));
        // The common case of `Store::attempt_own`.
        if engine.forked() || !engine.tried_and_landed(&aloft, attempted) {
            return self.own_operation(&aloft, cell, Some(attempted), seat);
        }
        Some(self.done(&aloft, cell, seat))
    }

    /// The packet of an operation that was started by a token, which has landed, and is settled.
    #[inline]
    fn done(
        &self,
        aloft: &Aloft<'p>,
        cell: &'p Cell<Cargo<B>>,
        seat: &Seat,
    ) -> Packet<'p, K, M, B> {
        let (store, engine) = (self.port.store(), self.port.engine());
        engine.count_operation(seat, true);
        if hears_packets() {
            tell_completed(engine, aloft.registration(), cell);
        }
        Packet::Done(Done::of(store, aloft.slot, aloft.index, cell))
    }

    /// The turn of an operation that was started by a token, and is to be tried; or was tried, and has come to what is
    /// `known`.
    #[cold]
    #[inline(never)]
    fn own_operation(
        &self,
        aloft: &Aloft<'p>,
        cell: &'p Cell<Cargo<B>>,
        known: Option<Attempted>,
        seat: &Seat,
    ) -> Option<Packet<'p, K, M, B>> {
        if self.port.store().attempt_own(cell, aloft, known, Some(seat)) {
            return Some(self.done(aloft, cell, seat));
        }
        self.port.engine().count_operation(seat, false);
        None
    }

    /// The turn of any operation.
    #[inline(never)]
    fn any_operation(
        &self,
        aloft: &Aloft<'p>,
        cell: &'p Cell<Cargo<B>>,
        seat: &Seat,
    ) -> Option<Packet<'p, K, M, B>> {
        let (store, engine, record) = (self.port.store(), self.port.engine(), aloft.record);
        // SAFETY: `get` demands a value that is neither changed nor taken as long as the reference lives.
        // - a value: an operation is in its cell until its packet is taken, which is done below;
        // - neither changed nor taken: the node of an operation comes to one thread, this one.
        let cargo = unsafe { cell.get() };
        let (is_shared, is_handed_over) = (cargo.is_shared, cargo.is_handed_over);
        let course = engine.turn(aloft, Some(seat));
        if is_handed_over {
            store.fetch(cell, record);
            if engine.forked() {
                // The buffer's code has forked, and this is the child.
                return None;
            }
        }
        if !is_shared {
            let Course::Ends(verdict) = course else {
                return self.own_operation(aloft, cell, None, seat);
            };
            engine.abandon_connect(aloft, verdict);
            engine.land_own(aloft);
            if verdict != Verdict::Done {
                // Otherwise it is settled already: as done from its beginning, or when its token tried it.
                settle(cell, verdict);
            }
            return Some(self.done(aloft, cell, seat));
        }
        let course = match course {
            Course::Try => store.attempt_shared(cell, aloft, Some(seat)),
            course => course,
        };
        let Course::Ends(verdict) = course else {
            engine.count_operation(seat, false);
            return None;
        };
        let name = aloft.registration();
        let sharing = Sharing(engine, record);
        let clone = self.port.clone_key().expect("set before the first such association");
        // SAFETY: `get` demands a value that is neither changed nor taken as long as the reference lives.
        // - a value: the key lies in its cell while operations have it, and this one has not landed;
        // - neither changed nor taken: of a shared association no token is made, and the key is moved out only when
        //   the last of its operations has landed. Other threads may clone it meanwhile: it is `Sync`.
        let key = clone(unsafe { store.keys.cells.at(name_parts(name).0).get() });
        std::mem::forget(sharing);
        if engine.forked() {
            // The clone has forked, and this is the child.
            return None;
        }
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
        // - a value, and nothing else: as above; the packet that is made here takes it.
        let cargo = unsafe { cell.get_mut() };
        (cargo.association, cargo.name) = (name, OpId(engine.operation_of(record)));
        cargo.settle(verdict);
        engine.abandon_connect(aloft, verdict);
        engine.count_operation(seat, true);
        engine.land_shared(aloft, seat);
        if hears_packets() {
            tell_completed(engine, name, cell);
        }
        let key = ManuallyDrop::new(key);
        Some(Packet::Finished(Finished { store, record, key, outcome: PhantomData }))
    }
}

impl<K, B: Buffer> Store<K, B> {
    /// Goes on with the tasks that were put aside, until none is left. Whether there were any.
    fn go_on_with_tasks(&self) -> bool {
        let engine = &self.engine;
        if engine.forked() {
            return false;
        }
        let mut has_gone_on = false;
        while let Some(record) = engine.take_aside() {
            has_gone_on = true;
            let cell = self.cargo.at(record);
            let aloft = engine.aloft(record);
            let seat = current_seat(engine);
            let course = match engine.turn(&aloft, seat.as_deref()) {
                Course::Try => self.attempt_task(cell, &aloft, seat.as_deref()),
                course => course,
            };
            if let Course::Ends(verdict) = course {
                self.land_unseen(record, verdict).end_task();
            }
        }
        has_gone_on
    }

    /// Tries a task until it ends or has to wait, as [`Store::attempt_shared`] does. What is done is told here, before the
    /// next task of the direction is tried by any thread, so that the ends come in the order of the bytes; the task is the
    /// caller's no more then.
    fn attempt_task(
        &self,
        cell: &Cell<Cargo<B>>,
        aloft: &Aloft<'_>,
        seat: Option<&Seat>,
    ) -> Course {
        loop {
            let attempted = self.attempt_again(cell, aloft, seat);
            if self.engine.forked() {
                // The task has forked, and this is the child: the task is the parent's.
                return Course::Waits;
            }
            if matches!(attempted, Attempted::Done | Attempted::Drained) {
                let registration = aloft.registration();
                // SAFETY: `take` demands that the caller owns the cell, with a value in it.
                // - owned: the task was just tried by this thread, and until the engine is told what has come of that,
                //   below, it hands the task to no other thread;
                // - a value: as for any operation that is tried.
                let mut cargo = unsafe { self.cargo.take(aloft.record) };
                cargo.settle(Verdict::Done);
                let landing = Landing { engine: &self.engine, aloft, attempted, seat };
                if hears_packets() {
                    self.engine.tell_completed(registration, cargo.call(), cargo.error());
                }
                cargo.end_task();
                drop(landing);
                return Course::Waits;
            }
            match self.tried(cell, aloft, attempted, seat) {
                Course::Try => {}
                course => return course,
            }
        }
    }

    /// An operation of a shared association, or a task, has ended without a packet, and is the caller's alone.
    fn land_unseen(&self, record: u32, verdict: Verdict) -> Cargo<B> {
        let aloft = self.engine.aloft(record);
        self.engine.abandon_connect(&aloft, verdict);
        let registration = aloft.registration();
        // SAFETY: `take` demands that the caller owns the cell, with a value in it.
        // - owned: the operation has ended, and its node is with the caller, or was never queued;
        // - a value: an operation is in its cell until it has landed, which it does below.
        let mut cargo = unsafe { self.cargo.take(record) };
        cargo.settle(verdict);
        with_current_seat(&self.engine, |seat| self.engine.land_unseen(record, seat));
        if hears_packets() {
            self.engine.tell_completed(registration, cargo.call(), cargo.error());
        }
        cargo
    }
}

impl<K, M, B: Task> Port<K, M, B> {
    /// See [`Raw::start_task`](crate::port::raw::Raw::start_task).
    pub(crate) fn start_task(
        &self,
        id: SharedId,
        direction: Direction,
        task: B,
    ) -> std::result::Result<Started<(B, Ending)>, Refused<B>> {
        self.store().goes_on.get_or_init(|| Store::go_on_with_tasks);
        self.engine().begin_tasks();
        let started = self.share(id, Operation::task(direction, task), true);
        let (record, name, course) = started.map_err(|refused| {
            let (error, operation) = refused.into_parts();
            Refused::new(error, operation.into_buffer().expect("a task comes back"))
        })?;
        let Course::Ends(verdict) = course else { return Ok(Started::InFlight(name)) };
        Ok(Started::Finished(self.store().land_unseen(record, verdict).into_task()))
    }
}

impl<K, M, B> Port<K, M, B> {
    /// See [`Raw::try_now`](crate::port::raw::Raw::try_now).
    #[inline]
    pub(crate) fn try_now(
        &self,
        id: SharedId,
        direction: Direction,
        attempt: impl FnOnce(RawFd) -> Attempt,
    ) -> bool {
        // A subscriber hears of it when it is started.
        !hears_packets()
            && self
                .engine()
                .try_unrecorded(id.0, direction, |descriptor| attempt(descriptor).into())
    }
}
