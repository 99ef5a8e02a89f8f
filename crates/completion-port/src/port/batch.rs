//! Room for a wait to work in.

use crate::engine::Scratch;

/// Room for the packets of one wait: how many it takes at most, and the buffers for the questions
/// to the kernel, which each wait uses again. The buffers grow when a thread is alone at its port,
/// wants more packets, and the kernel has more to report than fits.
///
/// Make one batch for each thread; it may serve several ports in turn.
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

/// How many packets a wait takes unless the caller says otherwise.
const USUAL: usize = 64;

impl Batch {
    /// Room for 64 packets.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(USUAL)
    }

    /// Room for `capacity` packets. With room for none, a wait returns at once and takes nothing.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { capacity, scratch: Scratch::new() }
    }

    /// From now on a wait takes at most `capacity` packets.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    /// How many packets a wait takes at most.
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
