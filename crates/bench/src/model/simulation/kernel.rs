//! The network and the kernel: what arrives, and who is told of it.

use super::{AT_ONCE, Packet, ROOM, Serial, Simulation, Sleep, Step};

impl Simulation {
    pub(super) fn arrive(&mut self, connection: usize) {
        self.connections[connection].arrived = self.now;
        let set = &mut self.sets[connection % self.setup.sets];
        set.ready.push_back(connection);
        set.listed = true;
        // Whoever sleeps in the kernel is woken by the network, at nobody's expense here.
        let sleeps = |thread: &usize| {
            self.threads[*thread].sleep == Sleep::InKernel && self.seats.is_polling(*thread)
        };
        if let Some(sleeper) = (0..self.threads.len()).find(sleeps) {
            self.wake(sleeper);
        }
    }

    pub(super) fn doze(&mut self, thread: usize, until: u64) {
        if self.top.free_at > self.now {
            return self.turn_to(thread, Step::Doze { until }, self.top.free_at);
        }
        let costs = self.setup.costs;
        let mut end = self.now + costs.empty;
        let mut ready = 0;
        if self.sets.iter().any(|set| set.listed) {
            end += costs.harvest - costs.empty;
        }
        let foreign = costs.nested_lines * costs.line(self.top.owner, thread);
        for (number, set) in self.sets.iter_mut().enumerate().filter(|(_, set)| set.listed) {
            // The kernel locks a set to see whether it is ready, and while it is harvested.
            end = end.max(set.serial.free_at) + costs.nested + foreign;
            set.serial.free_at = end;
            set.listed = !set.ready.is_empty();
            ready |= u64::from(set.listed) << number;
        }
        self.top = Serial { free_at: end, owner: thread, busy: 0 };
        self.threads[thread].sets = ready;
        if ready == 0 && self.may_sleep(thread, until) {
            let step = Step::Doze { until: AT_ONCE };
            return self.fall_asleep(thread, Sleep::InKernel, step, until);
        }
        self.turn_to(thread, Step::Merge { set: None }, end);
    }

    pub(super) fn harvest(&mut self, thread: usize, set: usize, until: u64) {
        let costs = self.setup.costs;
        let may_sleep = self.may_sleep(thread, until);
        let kernel = &mut self.sets[set];
        if kernel.serial.free_at > self.now {
            let at = kernel.serial.free_at;
            return self.turn_to(thread, Step::Harvest { set, until }, at);
        }
        let count = kernel.ready.len().min(ROOM);
        if count == 0 && may_sleep {
            let step = Step::Harvest { set, until: AT_ONCE };
            return self.fall_asleep(thread, Sleep::InKernel, step, until);
        }
        let mut spent = if count == 0 { costs.empty } else { costs.harvest };
        spent += costs.line(kernel.serial.owner, thread);
        let mut delivery = 0;
        for connection in kernel.ready.drain(..count) {
            let it = &mut self.connections[connection];
            let line = costs.line(it.owner, thread);
            spent += costs.event + line * costs.event_percent / 100;
            delivery += costs.deliver + line * costs.deliver_percent / 100;
            it.owner = thread;
            self.threads[thread].found.push(Packet { connection, from: thread });
        }
        kernel.serial.free_at = self.now + spent;
        kernel.serial.owner = thread;
        kernel.serial.busy += spent + delivery;
        self.turn_to(thread, Step::Merge { set: Some(set) }, self.now + spent + delivery);
    }

    fn may_sleep(&self, thread: usize, until: u64) -> bool {
        until > self.now && !self.threads[thread].notified
    }
}
