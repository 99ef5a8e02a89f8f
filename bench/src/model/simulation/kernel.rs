//! The network and the kernel: which requests arrive, and which thread learns of them.

use super::{AT_ONCE, Packet, Simulation, Sleep, Step};
use crate::state::schedule::{USUAL_EDGES, Wake};

impl Simulation {
    pub(super) fn arrive(&mut self, connection: usize) {
        self.connections[connection].arrived = self.now;
        self.set.ready.push_back(connection);
        // At no thread's expense: the network wakes it.
        self.release_sleeper(None, self.home(connection));
    }

    /// The kernel releases the thread that started waiting last. Returns whether there was one.
    fn release_sleeper(&mut self, by: Option<usize>, data: Option<usize>) -> Option<usize> {
        let sleeper = self.in_kernel.pop();
        sleeper.into_iter().for_each(|thread| self.wake(thread, by, data));
        sleeper
    }

    /// Another thread is woken by `thread`. What that costs.
    pub(super) fn notify(&mut self, thread: usize, wake: Wake) -> u64 {
        let costs = self.setup.costs;
        let by = self.threads[thread].cpu;
        let data = self.queue.front().and_then(|packet| self.home(packet.connection));
        let across = |this: &Self, woken: usize| costs.wake_across(by, this.threads[woken].cpu);
        if wake.in_kernel {
            self.rung = true;
            let woken = self.release_sleeper(Some(by), data);
            return woken.map_or(costs.tell, |woken| costs.wake_kernel + across(self, woken));
        }
        if self.threads[wake.worker].sleep == Sleep::Parked {
            self.wake(wake.worker, Some(by), data);
            return costs.wake + across(self, wake.worker);
        }
        self.threads[wake.worker].token = true;
        costs.tell
    }

    /// When the thread, which begins at `begin`, has armed a connection in the set. That it may have to wait for
    /// a thread that polls the set is left out.
    pub(super) fn modify(&mut self, thread: usize, begin: u64) -> u64 {
        let owner = std::mem::replace(&mut self.set.serial.owner, thread);
        begin + self.setup.costs.modify + self.line(owner, thread)
    }

    pub(super) fn poll(&mut self, thread: usize, until: u64) {
        let costs = self.setup.costs;
        let step = Step::Poll { until };
        let owner_line = self.line(self.set.serial.owner, thread);
        let kernel = &mut self.set;
        if kernel.serial.free_at > self.now {
            let at = kernel.serial.free_at;
            self.counters.for_set += at - self.now;
            return self.turn_to(thread, step, at);
        }
        let woken = std::mem::take(&mut self.rung);
        let count = kernel.ready.len().min(USUAL_EDGES - usize::from(woken));
        if count == 0 && !woken && until > self.now {
            return self.fall_asleep(thread, Sleep::InKernel, step, until);
        }
        let mut spent = if count == 0 { costs.empty } else { costs.poll };
        spent += owner_line + u64::from(woken) * costs.event;
        let mut delivery = 0;
        for connection in kernel.ready.drain(..count) {
            let it = &mut self.connections[connection];
            let line = costs.line(self.threads[it.owner].cpu, self.threads[thread].cpu);
            spent += costs.event + line * costs.event_percent / 100;
            if !self.setup.is_bare {
                delivery += costs.deliver + line * costs.deliver_percent / 100;
            }
            it.owner = thread;
            self.threads[thread].found.push(Packet { connection, from: thread });
        }
        kernel.serial.free_at = self.now + spent;
        kernel.serial.owner = thread;
        kernel.serial.busy += spent;
        let slept = until != AT_ONCE;
        let end = self.now + spent + delivery;
        self.turn_to(thread, Step::Polled { slept, woken }, end);
    }
}
