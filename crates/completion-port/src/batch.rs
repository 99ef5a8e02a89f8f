//! Room for a wait to work in.

use crate::engine::Scratch;

/// Room for the packets of one wait: how many are taken at most, and the buffers for asking the
/// kernel, allocated once and used again by each wait.
///
/// One batch for each thread; it may serve several ports in turn.
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

/// The packets of a wait unless the caller says otherwise, and the edges asked for at once.
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
        let room = capacity.max(USUAL);
        let scratch = Scratch {
            edges: Vec::with_capacity(room),
            probes: Vec::with_capacity(room),
            nodes: Vec::with_capacity(room),
        };
        Self { capacity, scratch }
    }

    /// From now on a wait takes at most `capacity` packets. Allocates if the kernel has never been
    /// asked for so many at once.
    pub fn set_capacity(&mut self, capacity: usize) {
        /// The kernel is not asked for more at once, however much room there is.
        const MOST: usize = 1024;
        self.capacity = capacity;
        let room = capacity.clamp(USUAL, MOST);
        self.scratch.edges.reserve(room);
        self.scratch.probes.reserve(room);
        self.scratch.nodes.reserve(room);
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
