//! Counts of what a port asked of the kernel.

use std::ops::Sub;

/// How often the ports of a kernel asked it for what. Subtract an earlier count to look at one
/// step of a test.
///
/// ```
/// # use completion_port::sim;
/// # let kernel = sim::Kernel::new();
/// let before = kernel.calls();
/// // … a step that must not ask the kernel …
/// assert_eq!(kernel.calls() - before, sim::Calls::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Calls {
    /// Descriptors that were to be watched.
    pub attach: u64,
    /// Watched descriptors that were given to another registration.
    pub adopt: u64,
    /// Watched descriptors that were to be watched for something else.
    pub want: u64,
    /// Descriptors that were no longer to be watched.
    pub detach: u64,
    /// Questions whether a number still names what is watched.
    pub watches: u64,
    /// Waits for edges, sleeping or not.
    pub poll: u64,
    /// Waits for edges that were allowed to sleep.
    pub sleeping_poll: u64,
    /// Wake-ups of a wait for edges.
    pub wake: u64,
    /// Calls that asked what holds of some descriptors.
    pub probe: u64,
    /// Descriptors that were asked about by those.
    pub probed: u64,
    /// Questions how many bytes can be read.
    pub unread: u64,
    /// Questions whether the end of a stream is the process's own doing.
    pub own_end: u64,
    /// Questions whether a stream that failed was connected before.
    pub was_connected: u64,
    /// Questions what kind of object a number names.
    pub kind: u64,
    /// Sets of watched descriptors that were replaced.
    pub rebuild: u64,
    /// Readings of the clock.
    pub now: u64,
    /// Threads that parked.
    pub park: u64,
    /// Threads that were to be unparked.
    pub unpark: u64,
    /// Questions whether a thread sleeps.
    pub asleep: u64,
    /// New sockets that a port was to connect.
    pub open: u64,
    /// Sockets that were not to block any more.
    pub nonblocking: u64,
    /// Accepts that were tried.
    pub accept: u64,
    /// Connects that were begun, and questions what has become of one.
    pub connect: u64,
    /// Receives that were tried.
    pub receive: u64,
    /// Sends that were tried.
    pub send: u64,
    /// Reads from files that were tried at once.
    pub file_read: u64,
    /// Steps of operations on files that the kernel has had. No thread of a port makes them.
    pub file_job: u64,
}

impl Calls {
    /// How many system calls this would have been: everything except readings of the clock, which
    /// need none.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.attach
            + self.adopt
            + self.want
            + self.detach
            + self.watches
            + self.poll
            + self.wake
            + self.probe
            + self.unread
            + self.own_end
            + self.was_connected
            + self.kind
            + self.rebuild
            + self.park
            + self.unpark
            + self.asleep
            + self.open
            + self.nonblocking
            + self.accept
            + self.connect
            + self.receive
            + self.send
            + self.file_read
    }
}

impl Sub for Calls {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self {
            attach: self.attach - earlier.attach,
            adopt: self.adopt - earlier.adopt,
            want: self.want - earlier.want,
            detach: self.detach - earlier.detach,
            watches: self.watches - earlier.watches,
            poll: self.poll - earlier.poll,
            sleeping_poll: self.sleeping_poll - earlier.sleeping_poll,
            wake: self.wake - earlier.wake,
            probe: self.probe - earlier.probe,
            probed: self.probed - earlier.probed,
            unread: self.unread - earlier.unread,
            own_end: self.own_end - earlier.own_end,
            was_connected: self.was_connected - earlier.was_connected,
            kind: self.kind - earlier.kind,
            rebuild: self.rebuild - earlier.rebuild,
            now: self.now - earlier.now,
            park: self.park - earlier.park,
            unpark: self.unpark - earlier.unpark,
            asleep: self.asleep - earlier.asleep,
            open: self.open - earlier.open,
            nonblocking: self.nonblocking - earlier.nonblocking,
            accept: self.accept - earlier.accept,
            connect: self.connect - earlier.connect,
            receive: self.receive - earlier.receive,
            send: self.send - earlier.send,
            file_read: self.file_read - earlier.file_read,
            file_job: self.file_job - earlier.file_job,
        }
    }
}
