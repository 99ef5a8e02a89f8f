//! How a thread waits on a port.

use std::time::Duration;

use crate::abi::Entry;
use crate::taking::{self, Changed};
use crate::windows::port::CompletionPort;

/// Takes packets of a port; see [`taking::take`].
///
/// # Safety
///
/// As for [`taking::take`].
pub(crate) unsafe fn take(
    port: &CompletionPort,
    entries: *mut Entry,
    room: usize,
    timeout: Option<Duration>,
    changed: Changed,
) -> Result<u32, u32> {
    // SAFETY: as this call.
    unsafe { taking::take(port, entries, room, timeout, changed) }
}
