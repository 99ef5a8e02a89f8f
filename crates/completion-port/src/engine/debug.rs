//! The debug output of a port.

use std::fmt;

use super::Engine;

impl fmt::Debug for Engine {
    /// Shows slots, workers and queues, for debugging stalls.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.forked() {
            return f.write_str("Port of the parent process");
        }
        let hub = self.lock();
        let (schedule, lists) = hub.parts();
        let slots: Vec<_> = (0..lists.highest_slot())
            .filter_map(|index| self.nodes().find_slot(index).map(|slot| (index, slot)))
            .filter(|(_, slot)| slot.word().is_live())
            .map(|(index, slot)| (index, slot.descriptor(), slot.word()))
            .collect();
        let queues = |index| {
            let entry = self.entry(index)?;
            let queues = format!("{:?}", *entry.lock());
            Some((index, queues))
        };
        let lent = slots.iter().filter(|(_, _, word)| word.is_lent());
        let operations: Vec<_> = lent.filter_map(|(index, _, _)| queues(*index)).collect();
        f.debug_struct("Port")
            .field("backend", &self.backend().name())
            .field("limit", &self.limit())
            .field("phase", &lists.phase())
            .field("queued", &lists.ready().nodes(self.nodes()))
            .field("to_be_checked", &lists.recheck().nodes(self.nodes()))
            .field("workers", schedule.workers())
            .field("handled", &self.handled(&hub))
            .field("slots", &slots)
            .field("operations", &operations)
            .finish()
    }
}
