//! Costs in the model, in nanoseconds.
//!
//! *Measured* means: on a virtual machine with two processors of one socket (EPYC of the fifth
//! generation, Linux 6.18), by tight loops that do nothing else. Nothing here was measured on more
//! than two processors; what the model says about more rests on the assumption that a line of the
//! cache costs the same to fetch however many want it.

use crate::options;

/// The prices of everything that is not a handler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Costs {
    /// Fetching a line that another processor of the socket wrote last. Measured: 110 for the first
    /// of several, 65 for each further one.
    pub(crate) near: u64,
    /// The same from another socket. Assumed.
    pub(crate) far: u64,
    /// Processors of a socket. Assumed.
    pub(crate) socket: usize,
    /// The work under the lock for one acquisition. Measured, together with the lock: a post and a
    /// wait, which take it once each, cost 95 in total if no other thread uses the port.
    pub(crate) section: u64,
    /// Lines that a section fetches if another processor had the lock last. Measured as a whole: two
    /// processors that do nothing but post and wait have 285 for each section, 40 + 3 x 80 here.
    pub(crate) section_lines: u64,
    /// Following the link of a queued packet while some of them are taken off the queue. Measured.
    pub(crate) link: u64,
    /// The part of a line's price that this takes if another thread queued the packet. Measured: 43.
    pub(crate) link_percent: u64,
    /// How long a thread tries to get the lock before it sleeps for it: the standard library's
    /// mutex looks 100 times. Measured; it is the processor's `pause` that is so long.
    pub(crate) spin: u64,
    /// `epoll_wait` with a time-out of zero that finds nothing. Measured.
    pub(crate) empty: u64,
    /// `epoll_wait` that finds something, apart from the events. Measured.
    pub(crate) poll: u64,
    /// Each event. Measured: 94, and 33 more if another processor handled the socket last.
    pub(crate) event: u64,
    pub(crate) event_percent: u64,
    /// Noting an event in its slot. Measured in sum with `take` and `arm`: some 60 a packet.
    pub(crate) deliver: u64,
    pub(crate) deliver_percent: u64,
    /// The packet's turn: slot and key, one line each, half hidden behind other work. Assumed.
    pub(crate) take: u64,
    pub(crate) take_percent: u64,
    /// Arming. Measured in sum, see `deliver`.
    pub(crate) arm: u64,
    /// Lines that a handler fetches if another processor received the data. Measured: the
    /// additional cost of an echo of 64 bytes if the processors are far apart.
    pub(crate) data_lines: u64,
    /// Lines that a wake takes if the thread runs in another socket than its waker, half of them on either
    /// side. Assumed.
    pub(crate) wake_lines: u64,
    /// `EPOLL_CTL_MOD`, by which one-shot epoll arms. Measured.
    pub(crate) modify: u64,
    /// The waker's cost of waking a parked thread. Measured.
    pub(crate) wake: u64,
    /// Waking the thread in the kernel's wait, by the eventfd. Measured.
    pub(crate) wake_kernel: u64,
    /// Telling a thread that does not sleep. Measured: a system call that finds nobody.
    pub(crate) tell: u64,
    /// From the wake until the thread runs. Measured: 14,000 to 24,000; on a bare machine less.
    pub(crate) latency: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            near: options::NEAR,
            far: options::FAR,
            socket: 32,
            section: 40,
            section_lines: 3,
            link: 3,
            link_percent: 50,
            spin: 2_300,
            empty: 150,
            poll: 320,
            event: 94,
            event_percent: 40,
            deliver: 15,
            deliver_percent: 50,
            take: 20,
            take_percent: 100,
            arm: 25,
            data_lines: options::DATA,
            wake_lines: 0,
            modify: 250,
            wake: 8_000,
            wake_kernel: 7_000,
            tell: 160,
            latency: 20_000,
        }
    }
}

impl Costs {
    /// A packet, polled and handled by different processors of a socket, without the part of the
    /// one that polls.
    pub(crate) fn packet(&self, handler: u64) -> u64 {
        self.take + self.near * self.take_percent / 100 + handler + self.arm
    }

    /// A packet's event, found and noted by another processor of the socket than the one that handles it.
    pub(crate) fn delivered(&self) -> u64 {
        self.event + self.deliver + self.near * (self.event_percent + self.deliver_percent) / 100
    }

    /// What one side of a wake takes beside its price, if the waker is on one processor and the woken thread
    /// on another.
    pub(crate) fn wake_across(&self, one: usize, other: usize) -> u64 {
        let is_across = one / self.socket != other / self.socket;
        if is_across { self.wake_lines * self.far / 2 } else { 0 }
    }

    /// What it costs `processor` to fetch a line that `owner` wrote last.
    pub(crate) fn line(&self, owner: usize, processor: usize) -> u64 {
        if owner == processor {
            0
        } else if owner / self.socket == processor / self.socket {
            self.near
        } else {
            self.far
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Costs;

    #[test]
    fn a_line_is_free_near_or_far() {
        let costs = Costs { near: 80, far: 150, socket: 4, ..Costs::default() };
        assert_eq!([3, 0, 4].map(|owner| costs.line(owner, 3)), [0, 80, 150]);
    }

    #[test]
    fn a_wake_costs_more_only_across_sockets() {
        let costs = Costs { far: 150, socket: 4, wake_lines: 20, ..Costs::default() };
        assert_eq!([3, 0, 4].map(|waker| costs.wake_across(waker, 3)), [0, 0, 1500]);
    }
}
