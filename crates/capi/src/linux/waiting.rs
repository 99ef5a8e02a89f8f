//! How a thread waits on a port: as long as it does, it sees to the operations there.

use std::time::Duration;

use crate::abi::Entry;
use crate::linux::driver::wake_if_asleep;
use crate::linux::port::CompletionPort;
use crate::taking::{self, Changed};

/// Calls `wait`, by which the calling thread waits on `port`.
#[inline]
fn attending<R>(port: &CompletionPort, wait: impl FnOnce() -> R) -> R {
    struct Leaves<'p>(&'p CompletionPort);
    impl Drop for Leaves<'_> {
        #[inline]
        fn drop(&mut self) {
            if self.0.leave() {
                wake_if_asleep();
            }
        }
    }
    port.come();
    let _leaves = Leaves(port);
    wait()
}

/// Takes packets of a port; see [`taking::take`].
///
/// # Safety
///
/// As of that.
pub(crate) unsafe fn take(
    port: &CompletionPort,
    entries: *mut Entry,
    room: usize,
    timeout: Option<Duration>,
    changed: Changed,
) -> Result<u32, u32> {
    // SAFETY: as this call.
    attending(port, || unsafe { taking::take(port, entries, room, timeout, changed) })
}
