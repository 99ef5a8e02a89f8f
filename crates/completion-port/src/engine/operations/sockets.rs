//! Submits socket operations to a back end that performs them.
//!
//! Meanwhile the operation stays the active one of its operation queue: later ones wait, and no
//! edge concerns it. An edge whose name is the request's id reports its completion
//! ([`Operations::bring_back`]).

use super::{OpRef, Operations};
use crate::backend::request::SocketRequest;
use crate::engine::queue::OpThread;
use crate::state::operations::Step;
use crate::state::queue::OP;

impl Operations {
    /// Submits the operation that the caller has tried.
    ///
    /// The caller no longer owns it, and it may have completed when this returns. If it was
    /// cancelled meanwhile, it has ended, and the caller gets the request back.
    #[cold]
    #[allow(clippy::result_large_err, reason = "a refusal gives the request back")]
    pub(crate) fn submit_socket(
        &self,
        op_ref: &OpRef<'_>,
        request: SocketRequest,
        thread: OpThread<'_>,
    ) -> Result<(), (Step, SocketRequest)> {
        let Some(requests) = self.backend().socket_requests() else {
            unreachable!("attempts need the system only where it performs requests")
        };
        let OpRef { op_index, index, slot, entry, .. } = *op_ref;
        let poll = self.current_poll();
        let mut queues = entry.lock();
        let (step, follow_up) = queues.submit_active(self.nodes(), slot, op_index | OP, poll);
        if step != Step::Waits {
            drop(queues);
            self.see_to(follow_up, index, thread);
            return Err((step, request));
        }
        // Under the lock, so that a thread that cancels the operation finds the request at the back
        // end.
        requests.submit(request);
        drop(queues);
        requests.flush();
        Ok(())
    }
}
