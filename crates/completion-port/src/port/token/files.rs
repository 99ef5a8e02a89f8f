//! How operations on files are started, and how they come back.

use std::sync::{Arc, Weak};

use super::operations::{Begun, Loaded, unload};
use super::{Held, Ready};
use crate::backend::files::{Issuer, Job};
use crate::engine::{Aloft, Course, Desk, Engine, Name, Plan, Verdict};
use crate::memory::cells::Cell;
use crate::port::Store;
use crate::port::operation::{Cargo, OpId, Operation, Progress, TriedNow};
use crate::types::buffer::Buffer;
use crate::types::error::{Error, ErrorKind, Refused, Result};
use crate::types::interest::Events;
use crate::types::source::Descriptor;

impl<K, B: Buffer> Store<K, B> {
    /// Does what can be done at once of an operation. Whether that is all.
    #[inline]
    pub(super) fn try_on_file(
        &self,
        operation: &mut Operation<B>,
        progress: &mut Progress,
        desk: &Desk,
        descriptor: Descriptor,
    ) -> bool {
        let backend = self.engine.backend();
        let reads_now = self.engine.reads_now(desk, descriptor);
        let read = reads_now.then_some(|position: u64, room: &mut [&mut [_]]| {
            backend.read_now(descriptor, position, room)
        });
        match operation.try_now(progress, read) {
            TriedNow::Done => return true,
            TriedNow::NotYet => {}
            TriedNow::Never => desk.stop_reading_now(),
        }
        false
    }

    /// What is left of an operation of the slot `index`, which lies in `record`, becomes a job. `None`: it cannot, and
    /// the operation has ended.
    fn make_job(&self, cargo: &mut Cargo<B>, record: u32, index: u32) -> Option<Job> {
        let engine = &self.engine;
        match engine.hold_file(index, record) {
            Ok(file) => {
                let issuer: Weak<Engine> = Arc::downgrade(engine);
                let issuer: Weak<dyn Issuer> = issuer;
                Some(cargo.hand_over(engine.operation_of(record), issuer, file))
            }
            Err(fault) => {
                cargo.fail_at_start(fault);
                None
            }
        }
    }

    /// Starts an operation of a shared association, which is in `cell`, and does what can be done at once. If that is
    /// all, its packet is queued; unless it is wanted `now`: then it ends without one. If it is refused it is in
    /// its cell still.
    pub(super) fn share_on_file(
        &self,
        cell: &Cell<Cargo<B>>,
        association: Name,
        record: u32,
        plan: &Plan,
        now: bool,
    ) -> Result<Course> {
        let engine = &self.engine;
        engine.share_file(association, record, (plan.call, plan.deadline))?;
        let aloft = engine.aloft(record);
        let trying = Trying { store: self, cell, aloft: &aloft, has_ended: false };
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
        // - a value: an operation is in its cell until its packet is taken;
        // - nothing else: between `share_file` and what follows below the engine hands the operation to no other
        //   thread.
        let cargo = unsafe { cell.get_mut() };
        let (operation, progress) = cargo.parts();
        let is_over = self.try_on_file(operation, progress, aloft.desk, aloft.descriptor());
        let job = if is_over || engine.forked() {
            None
        } else {
            self.make_job(cargo, record, aloft.index)
        };
        std::mem::forget(trying);
        if engine.forked() {
            // The buffer's code has forked, and this is the child: the operation is the parent's.
            std::mem::forget(job);
            return Ok(Course::Waits);
        }
        let Some(job) = job else {
            if now {
                engine.file_done(&aloft);
                return Ok(Course::Ends(Verdict::Done));
            }
            engine.queue_file_done(&aloft);
            return Ok(Course::Waits);
        };
        match engine.hand_over(&aloft, plan.deadline, job) {
            Ok(()) => Ok(Course::Waits),
            Err((verdict, job)) => {
                self.unpack(cell, &aloft, job);
                Ok(Course::Ends(verdict))
            }
        }
    }

    /// The operation in `cell`, the packet of which the caller is about to make, has ended. If the back end has had
    /// it, its job has come back.
    pub(super) fn fetch_job(&self, cell: &Cell<Cargo<B>>, record: u32) {
        if let Some(job) = self.engine.take_job(record) {
            self.unpack(cell, &self.engine.aloft(record), job);
        }
    }

    /// The caller has the job of an operation that has ended, and is in `cell`.
    fn unpack(&self, cell: &Cell<Cargo<B>>, aloft: &Aloft<'_>, job: Job) {
        let trying = Trying { store: self, cell, aloft, has_ended: true };
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
        // - a value: an operation is in its cell until its packet is taken;
        // - nothing else: an operation that has ended is handed to one thread, the caller.
        unsafe { cell.get_mut() }.take_back(job);
        std::mem::forget(trying);
    }
}

/// An operation on a file whose buffer's code is called. Should that panic, the operation fails, and its packet is
/// queued.
struct Trying<'s, K, B: Buffer> {
    store: &'s Store<K, B>,
    cell: &'s Cell<Cargo<B>>,
    aloft: &'s Aloft<'s>,
    has_ended: bool,
}

impl<K, B: Buffer> Drop for Trying<'_, K, B> {
    fn drop(&mut self) {
        let engine = &self.store.engine;
        if engine.forked() {
            return;
        }
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
        // - a value, and nothing else: as where this was made, from where it is called while that unwinds; the
        //   reference there is used no more.
        unsafe { self.cell.get_mut() }.fail_by_panic();
        if self.has_ended {
            engine.queue_operation(self.aloft.record);
        } else {
            engine.queue_file_done(self.aloft);
        }
    }
}

impl<'p, K, B: Buffer> Ready<'p, K, B> {
    /// Hands what is left of an operation on a file, which is in `cell`, to the back end, with the key.
    #[allow(clippy::type_complexity, reason = "a refusal gives everything back")]
    pub(super) fn take_off_on_file(
        self,
        cell: &'p Cell<Cargo<B>>,
        (record, desk): (u32, &Desk),
        plan: &Plan,
    ) -> std::result::Result<Begun<'p, K, B>, Refused<(K, Operation<B>)>> {
        let Held { store, slot, index, drained, .. } = self.held;
        let engine = &store.engine;
        // The token ends the registration if the buffer's code panics.
        let loaded = Loaded(cell);
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
        // - a value: the caller has put it there;
        // - nothing else: no other thread knows of it, and `loaded` takes it when the reference is used no more.
        let cargo = unsafe { cell.get_mut() };
        let job = store.make_job(cargo, record, index);
        let (error, job) = match job {
            _ if engine.forked() => {
                // The buffer's code has forked, and this is the child.
                (Error::new(plan.call, ErrorKind::Forked), job)
            }
            None => {
                std::mem::forget(loaded);
                let held = Held { events: Events::NONE, ..self.into_held() };
                return Ok(Begun::Ended(held, cell));
            }
            Some(job) => {
                let name = OpId(engine.operation_of(record));
                let plan = (plan.call, plan.deadline);
                match engine.lend_file(slot, index, desk, record, plan, drained, job) {
                    Ok(()) => {
                        std::mem::forget(loaded);
                        let _ = self.into_held();
                        return Ok(Begun::InFlight(name));
                    }
                    Err((error, job)) => (error, Some(job)),
                }
            }
        };
        if let Some(job) = job {
            cargo.take_back(job);
        }
        std::mem::forget(loaded);
        Err(self.refuse_operation(error, unload(cell).into_operation()))
    }
}
