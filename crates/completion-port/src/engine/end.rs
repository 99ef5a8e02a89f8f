//! How a port ends.

use std::sync::atomic::Ordering::SeqCst;

use super::seat::Notice;
use super::{Engine, Phase, Shared, token};
use crate::error::{Error, Operation};
use crate::state::queue::{Fifo, POSTED};
use crate::sync::fence;

/// What a dropped port still holds: the numbers of slots with a key, and of cells with a message.
pub(crate) struct Remains {
    pub(crate) keys: Vec<u32>,
    pub(crate) messages: Vec<u32>,
}

impl Engine {
    /// Calls everybody who still waits, if there is nothing left to wait for.
    #[inline(never)]
    pub(super) fn end_if_over(&self, shared: &mut Shared) -> Vec<Notice> {
        let mut notices = Vec::new();
        if Self::is_over(shared) {
            while let Some(number) = shared.seats.call_anyway() {
                notices.push(Self::notice(shared, number));
            }
        }
        notices
    }

    #[inline]
    pub(super) fn is_over(shared: &Shared) -> bool {
        shared.phase != Phase::Open && Self::is_over_at_last(shared)
    }

    #[cold]
    fn is_over_at_last(shared: &Shared) -> bool {
        match shared.phase {
            Phase::Open => false,
            Phase::ShuttingDown => shared.slots.in_use() == 0 && shared.ready.is_empty(),
            Phase::Closed => {
                shared.ready.is_empty() && shared.recheck.is_empty() && shared.peeks == 0
            }
            Phase::Abandoned => true,
        }
    }

    /// Refuses new work; waits go on until the queue is empty.
    pub(crate) fn close(&self) {
        self.end_in(Phase::Closed);
    }

    /// Refuses new work, and ends every wait at once.
    pub(crate) fn abandon(&self) {
        self.end_in(Phase::Abandoned);
    }

    fn end_in(&self, phase: Phase) {
        let mut shared = self.lock();
        if shared.phase == Phase::Abandoned {
            return;
        }
        shared.phase = phase;
        self.phase.store(phase as u8, SeqCst);
        let ended = self.end_if_over(&mut shared);
        drop(shared);
        self.notify_all(ended);
    }

    /// Refuses new work and removes every registration; waits go on until none is left.
    pub(crate) fn shut_down(&self) -> Result<(), Error> {
        self.check_usable(Operation::Shutdown)?;
        let mut shared = self.lock();
        if shared.phase == Phase::Open {
            shared.phase = Phase::ShuttingDown;
            self.phase.store(Phase::ShuttingDown as u8, SeqCst);
        }
        let highest = shared.slots.highest();
        drop(shared);
        // Either this sees a slot that is being registered, or its registrar sees the store above.
        fence(SeqCst);
        for index in 0..highest {
            let Some(slot) = self.nodes.slots.find(index) else { continue };
            let word = slot.word();
            if word.is_live() {
                // Gone or removed meanwhile is as good.
                let _ = self.remove(token(index, word.generation()));
            }
        }
        let mut shared = self.lock();
        let ended = self.end_if_over(&mut shared);
        drop(shared);
        self.notify_all(ended);
        Ok(())
    }

    /// The port is dropped: forgets every descriptor, and tells which slots and cells still hold a
    /// key or a message that is to be dropped.
    pub(crate) fn dismantle(&self) -> Remains {
        let mut remains = Remains { keys: Vec::new(), messages: Vec::new() };
        // In a forked child nobody may ever give the lock up.
        let forked = self.forked();
        let shared = if forked { self.shared.try_lock().ok() } else { Some(self.lock()) };
        if let Some(mut shared) = shared {
            shared.phase = Phase::Closed;
            self.take_back_all(&mut shared);
            // With them go the descriptors by which threads are looked at.
            shared.members.fill_with(|| None);
            let mut queued = std::mem::replace(&mut shared.ready, Fifo::new());
            drop(shared);
            while let Some(node) = queued.pop(&self.nodes) {
                if node & POSTED != 0 {
                    remains.messages.push(node & !POSTED);
                }
            }
        }
        for index in 0.. {
            let Some(slot) = self.nodes.slots.find(index) else { break };
            let word = slot.word();
            if word.is_live() {
                if !forked {
                    self.forget(token(index, word.generation()));
                }
                slot.free();
                if !word.is_held() {
                    remains.keys.push(index);
                }
            }
        }
        if !forked {
            self.backend.descriptors().leave(self.number);
        }
        remains
    }
}
