//! Threads that wait, and what a program learns when none is left.

use super::Engine;
use super::queue::Hub;
use crate::state::schedule::Waited;

impl Engine {
    /// Returns how many threads wait and have no packet.
    pub(crate) fn idle_threads(&self) -> usize {
        if self.forked() { 0 } else { self.lock().schedule().workers().waiting() }
    }

    /// Whether the program's hook is due, because the calling thread ends its wait and none waits.
    ///
    /// The thread holds the lock since it decided to return. So of several threads that leave, the
    /// last one finds that none waits.
    pub(super) fn leaves_none_idle(&self, hub: &mut Hub, waited: Waited) -> bool {
        self.no_idle.is_some()
            && waited == Waited::Packets
            && hub.schedule().workers().waiting() == 0
    }

    /// Runs the program's hook if no thread waits. The calling thread is about to block.
    #[inline]
    pub(crate) fn blocks_with_none_idle(&self) {
        if self.no_idle.is_some() && self.idle_threads() == 0 {
            self.run_idle_hook();
        }
    }

    /// Runs the program's hook. The caller holds no lock.
    pub(super) fn run_idle_hook(&self) {
        if let Some(hook) = &self.no_idle
            && !self.forked()
        {
            hook.run();
        }
    }
}
