//! A set of watched descriptors without a port, for tests that examine edges.

use std::io;

use super::{Conditions, Kernel, Socket};
use crate::backend::reactor::Until;

/// A set of watched descriptors without a port, the counterpart of an edge-triggered epoll set.
#[derive(Debug)]
pub struct Watcher {
    kernel: Kernel,
    set: u64,
}

impl Watcher {
    pub(super) fn new(kernel: &Kernel) -> Self {
        let set = kernel.lock().add_set();
        Self { kernel: kernel.clone(), set }
    }

    /// Watches `socket` for the `wanted` conditions (IN and OUT), and for RDHUP, HUP and ERR.
    ///
    /// Its edges carry `token`.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the set watches it already.
    pub fn watch(&self, socket: &Socket, token: u64, wanted: Conditions) -> io::Result<()> {
        let mut guard = self.kernel.lock();
        let state = &mut *guard;
        let place = (socket.file(), socket.number());
        let set = state.sets.entry(self.set).or_default();
        if set.has(place) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        set.add(place, token, wanted, Some(Until::Detached), &mut state.objects);
        Ok(())
    }

    /// Stops watching `socket`. No effect if the set does not watch it.
    pub fn forget(&self, socket: &Socket) {
        let mut state = self.kernel.lock();
        state.sets.entry(self.set).or_default().remove((socket.file(), socket.number()));
    }

    /// Returns the edges since the last call, each with all conditions that hold now.
    pub fn edges(&self) -> Vec<(u64, Conditions)> {
        let mut guard = self.kernel.lock();
        let state = &mut *guard;
        let set = state.sets.entry(self.set).or_default();
        let mut edges = Vec::new();
        set.take(usize::MAX, &mut state.objects, |token, now| edges.push((token, now)));
        edges
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.kernel.lock().sets.remove(&self.set);
    }
}
