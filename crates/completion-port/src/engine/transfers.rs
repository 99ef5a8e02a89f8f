//! How an operation on a socket is handed to a back end that carries it out by itself.
//!
//! The operation stays the active one of its lane meanwhile: those behind it wait, and no edge concerns it. An edge that
//! has its own name tells that it can be brought back ([`Engine::bring_back`]).

use super::Engine;
use super::operations::Aloft;
use super::seat::Seat;
use crate::backend::sockets::Transfer;
use crate::state::operations::Step;
use crate::state::queue::FLIGHT;

impl Engine {
    /// The operation that the caller has tried goes to the back end; it may have come back when this returns, and is the
    /// caller's no more. If it was called off meanwhile it has ended, and the transfer is the caller's again.
    #[cold]
    #[allow(clippy::result_large_err, reason = "a refusal gives the transfer back")]
    pub(crate) fn hand_over_transfer(
        &self,
        aloft: &Aloft<'_>,
        transfer: Transfer,
        seat: Option<&Seat>,
    ) -> Result<(), (Step, Transfer)> {
        let Aloft { record, index, slot, desk, .. } = *aloft;
        let poll = self.current_poll();
        let mut lanes = desk.lock();
        let (step, effects) = lanes.hand_over_active(&self.nodes, slot, record | FLIGHT, poll);
        if step != Step::Waits {
            drop(lanes);
            self.see_to(effects, index, seat);
            return Err((step, transfer));
        }
        // With the lock: a thread that calls the flight off finds it at the back end.
        self.backend.hand_over(transfer);
        drop(lanes);
        self.backend.begin();
        Ok(())
    }
}
