//! The room that a wait works in.

use crate::engine::Scratch;

/// The room for the packets of one wait: how many it takes at most, and the buffers for the
/// kernel's events, which waits reuse.
///
/// The buffers grow when a thread is alone at its port, wants more packets, and the kernel has more
/// events than fit.
///
/// Make one batch for each thread. A batch may serve several ports in turn.
///
/// ```
/// use completion_port::Batch;
/// let batch = Batch::with_capacity(16);
/// assert_eq!(batch.capacity(), 16);
/// ```
#[derive(Debug)]
pub struct Batch {
    capacity: usize,
    pub(crate) scratch: Scratch,
}

/// The default number of packets that a wait takes.
const USUAL: usize = 64;

impl Batch {
    /// Creates a batch with room for 64 packets.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(USUAL)
    }

    /// Creates a batch with room for `capacity` packets. Without any room, a wait returns
    /// immediately and takes nothing.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { capacity, scratch: Scratch::new() }
    }

    /// Sets how many packets a wait takes at most from now on.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    /// Returns how many packets a wait takes at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}
