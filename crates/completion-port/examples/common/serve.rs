//! The loop of a server's thread, which a panic in a handler does not end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use completion_port::{Batch, Buffer, Packet, Port};

/// Handles packets until the port has shut down.
///
/// A panic in `handle` has dropped the packet that `handle` had, so it ends only that packet's
/// connection. The rest of the batch is queued again, and the next wait brings it.
pub(crate) fn serve<K, M, B: Buffer>(port: &Port<K, M, B>, handle: impl Fn(Packet<'_, K, M, B>)) {
    let mut batch = Batch::new();
    loop {
        // The batch is unwind-safe, because each wait begins with an empty one. State that handlers
        // share needs locks that survive a panic: see `lock`.
        let round = || port.wait(&mut batch, None).map(|packets| packets.for_each(&handle));
        // The standard library's hook has printed a panic.
        if let Ok(Err(_)) = catch_unwind(AssertUnwindSafe(round)) {
            return;
        }
    }
}
