//! What is posted to a port.

/// Words that were posted, or that tell of an operation of the system.
pub(crate) struct Message {
    pub(crate) bytes: u32,
    pub(crate) key: usize,
    pub(crate) overlapped: usize,
    /// How the operation has ended, in the system's words; 0 of what is none.
    pub(crate) internal: usize,
}
