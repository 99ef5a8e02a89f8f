//! Counts of the calls that ports make to the kernel.

use std::ops::Sub;

/// Counts of the calls that the ports of a kernel made to it, by kind.
///
/// Subtract an earlier count to examine one step of a test.
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
    /// Descriptors that a port began to watch.
    pub attach: u64,
    /// Watched descriptors that passed to another registration.
    pub adopt: u64,
    /// Watched descriptors whose conditions a port changed.
    pub want: u64,
    /// Descriptors that a port stopped watching.
    pub detach: u64,
    /// Queries whether a number still names the watched object.
    pub watches: u64,
    /// Waits for edges, whether or not they may sleep.
    pub poll: u64,
    /// Waits for edges that may sleep.
    pub sleeping_poll: u64,
    /// Wake-ups of a wait for edges.
    pub wake: u64,
    /// Calls that query the conditions of one or more descriptors.
    pub probe: u64,
    /// Descriptors that those calls queried.
    pub probed: u64,
    /// Queries for the number of readable bytes.
    pub unread: u64,
    /// Queries whether the process itself ended a stream.
    pub own_end: u64,
    /// Queries whether a failed stream was connected before.
    pub was_connected: u64,
    /// Queries for the kind of object that a number names.
    pub kind: u64,
    /// Replacements of the set of watched descriptors.
    pub rebuild: u64,
    /// Readings of the clock.
    pub now: u64,
    /// Calls that parked a thread.
    pub park: u64,
    /// Calls that unparked a thread.
    pub unpark: u64,
    /// Queries whether a thread is asleep.
    pub asleep: u64,
    /// Sockets opened for a port to connect.
    pub open: u64,
    /// Sockets set to non-blocking mode.
    pub nonblocking: u64,
    /// Attempts to accept.
    pub accept: u64,
    /// Connects that were started, and queries for the result of one.
    pub connect: u64,
    /// Attempts to receive.
    pub receive: u64,
    /// Attempts to send.
    pub send: u64,
    /// Attempts to read a file immediately.
    pub file_read: u64,
    /// Steps of file operations that the kernel carried out itself, on none of the port's threads.
    pub file_job: u64,
}

impl Calls {
    /// Returns the number of system calls: all counts except readings of the clock.
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
