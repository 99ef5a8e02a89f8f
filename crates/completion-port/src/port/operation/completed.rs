//! The packets of operations.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::engine::name_of;
use crate::memory::cells::Cell;
use crate::port::Store;
use crate::port::current::with_current_worker;
use crate::port::operation::data::take_outcome;
use crate::port::operation::{OpData, OpId, Outcome, SharedId};
use crate::port::registration::Id;
use crate::port::token::Ready;
use crate::state::slot::Slot;
use crate::types::error::Error;

/// The packet of an operation that was started by a token. It holds the token, and the operation's
/// outcome with its buffer.
///
/// [`Completed::into_parts`] returns both. Dropping the packet instead ends the registration, as
/// dropping a token does.
///
/// # Examples
///
/// See [`Port::associate`](crate::Port::associate).
#[must_use = "dropping it ends the registration; `into_parts` gives the token back"]
pub struct Completed<'p, K, B = Vec<u8>> {
    // No larger than a token, so that packets with buffers do not make packets of readiness more
    // expensive. The outcome stays in the operation's cell until the program takes it.
    store: &'p Store<K, B>,
    /// It is held.
    slot: &'p Slot,
    /// The operation's cell. The operations of this registration use it in turn. Nothing else uses
    /// it while this packet has the token.
    cell: &'p Cell<OpData<B>>,
    /// The slot's index.
    index: u32,
    /// It may be shared between threads only if key and buffer may.
    parts: PhantomData<(K, Outcome<B>)>,
}

impl<'p, K, B> Completed<'p, K, B> {
    /// Creates the packet of the operation in `cell`, of the slot `index`. The operation has
    /// completed and is settled.
    #[inline]
    pub(super) fn of(
        store: &'p Store<K, B>,
        slot: &'p Slot,
        index: u32,
        cell: &'p Cell<OpData<B>>,
    ) -> Self {
        Self { store, slot, cell, index, parts: PhantomData }
    }

    /// Returns the registration's name.
    #[must_use]
    pub fn id(&self) -> Id {
        Id(name_of(self.index, self.slot.word().generation()))
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &K {
        // SAFETY: `get` requires a value that is neither changed nor taken while the reference
        // lives.
        // - a value: the packet has the token, which has the key, and outlives the reference;
        // - neither changed nor taken: the token owns the cell. Only `into_parts` and the drop
        //   release the token, both by value.
        unsafe { self.store.keys.cells.at(self.index).get() }
    }

    /// Returns why the operation has failed, if it has.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        // SAFETY: `get` requires a value that is neither changed nor taken while the reference
        // lives.
        // - a value: the operation was settled when this packet was made;
        // - neither changed nor taken: only this packet knows of it, and takes it when it is used
        //   up.
        unsafe { self.cell.get() }.error()
    }

    /// Returns the token and the operation's outcome.
    #[must_use = "dropping the token ends the registration"]
    #[inline]
    pub fn into_parts(self) -> (Ready<'p, K, B>, Outcome<B>) {
        let this = ManuallyDrop::new(self);
        let token = Ready::of(this.store, this.slot, this.index);
        take_outcome(this.cell, |outcome| (token, outcome))
    }
}

impl<K, B> Drop for Completed<'_, K, B> {
    // Inlined, so that a packet need not be in memory unless a reference to it is passed on.
    #[inline]
    fn drop(&mut self) {
        abandon(self.store, self.slot, self.index, self.cell);
    }
}

/// Drops the packet of an operation of this slot, with the slot's token.
#[cold]
#[inline(never)]
fn abandon<K, B>(store: &Store<K, B>, slot: &Slot, index: u32, cell: &Cell<OpData<B>>) {
    let (token, outcome) = Completed::of(store, slot, index, cell).into_parts();
    drop(token);
    drop(outcome);
}

impl<K, B> fmt::Debug for Completed<'_, K, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completed")
            .field("id", &self.id())
            .field("error", &self.error())
            .finish_non_exhaustive()
    }
}

/// The packet of an operation of a shared association. It holds a clone of the key, and the
/// operation's outcome with its buffer.
///
/// # Examples
///
/// See [`Port::associate_shared`](crate::Port::associate_shared).
pub struct SharedCompleted<'p, K, B = Vec<u8>> {
    pub(super) store: &'p Store<K, B>,
    pub(super) op_index: u32,
    pub(super) key: ManuallyDrop<K>,
    /// It may be shared between threads only if the buffer may.
    pub(super) outcome: PhantomData<Outcome<B>>,
}

impl<K, B> SharedCompleted<'_, K, B> {
    /// Returns the association's name.
    #[must_use]
    pub fn id(&self) -> SharedId {
        SharedId(self.settled().association)
    }

    /// Returns the operation's name, as returned when it was started.
    #[must_use]
    pub fn operation(&self) -> OpId {
        self.settled().name
    }

    /// Returns the clone of the key that came with this packet.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns why the operation has failed, if it has.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.settled().error()
    }

    fn settled(&self) -> &OpData<B> {
        // SAFETY: `get` requires a value that is neither changed nor taken while the reference
        // lives.
        // - a value: the operation was settled when this packet was made;
        // - neither changed nor taken: only this packet knows of it, and takes it when it is used
        //   up.
        unsafe { self.store.operations.at(self.op_index).get() }
    }

    /// Returns the clone of the key and the operation's outcome.
    #[must_use]
    pub fn into_parts(self) -> (K, Outcome<B>) {
        let mut this = ManuallyDrop::new(self);
        let outcome = use_up(this.store, this.op_index);
        // SAFETY: `ManuallyDrop::take` requires that the value is not used again.
        // - this call consumes `this`, which does not drop the packet.
        (unsafe { ManuallyDrop::take(&mut this.key) }, outcome)
    }
}

impl<K, B> Drop for SharedCompleted<'_, K, B> {
    // Inlined, so that a packet need not be in memory unless a reference to it is passed on.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `ManuallyDrop::take` requires that the value is not used again.
        // - the packet is being dropped, and `ManuallyDrop` does not drop the key.
        drop_parts(self.store, self.op_index, unsafe { ManuallyDrop::take(&mut self.key) });
    }
}

/// Drops the parts of a packet.
#[cold]
#[inline(never)]
fn drop_parts<K, B>(store: &Store<K, B>, op_index: u32, key: K) {
    let outcome = use_up(store, op_index);
    drop(key);
    drop(outcome);
}

/// Takes the outcome of an operation that has completed, and frees its op index. Its packet is used
/// up, or it has none.
pub(super) fn use_up<K, B>(store: &Store<K, B>, op_index: u32) -> Outcome<B> {
    let outcome = take_outcome(store.operations.at(op_index), |outcome| outcome);
    with_current_worker(&store.engine, |worker| store.engine.free_op(op_index, worker));
    outcome
}

impl<K, B> fmt::Debug for SharedCompleted<'_, K, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCompleted")
            .field("id", &self.id())
            .field("operation", &self.operation())
            .field("error", &self.error())
            .finish_non_exhaustive()
    }
}
