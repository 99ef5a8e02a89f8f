//! The messages posted to a port.

/// Posted values, or the result of a system operation.
pub(crate) struct Message {
    pub(crate) bytes: u32,
    pub(crate) key: usize,
    pub(crate) overlapped: usize,
    /// How the operation has ended, as a status of the system; otherwise 0.
    pub(crate) internal: usize,
}
