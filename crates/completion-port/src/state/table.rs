//! Which port of the process has which descriptor number.
//!
//! A descriptor has one registration, on one port, and the table stores which. An entry becomes
//! stale if the number is closed without being removed first; it may then be reused. The kernel
//! reveals that. A thread holds the lock of a number during the system call that attaches or
//! detaches it, so the table and the kernel always agree about each number.

use std::array;
use std::sync::{Arc, PoisonError, Weak};

use crate::sync::{Mutex, MutexGuard};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// The number of locks of the table. A number's lowest bits select its lock.
const SHARDS: usize = 16;

/// A port, as the table sees it.
pub(crate) trait Holder: Send + Sync {
    /// Returns whether the port's kernel set contains the object that `descriptor` names now, as
    /// claimed by the port's registration `name`.
    fn watches(&self, descriptor: Descriptor, name: u64) -> bool;

    /// Returns whether the port's registration `name` still exists.
    fn is_live(&self, name: u64) -> bool;

    /// Ends the registration `name`, whose descriptor was closed without being removed. Called
    /// without any lock of the table.
    fn retire(&self, name: u64);
}

#[derive(Clone, Copy)]
struct TableEntry {
    /// The port's number; 0 if no port has the descriptor.
    port: u64,
    name: u64,
}

const FREE: TableEntry = TableEntry { port: 0, name: 0 };

/// Why a number could not be claimed.
pub(crate) enum Claim {
    /// The system refused.
    Refused(Fault),
    /// The registration of this name on the same port has it.
    Here(u64, Fault),
    /// Another port of the process has it.
    Elsewhere,
}

/// The table for one kernel: there is one for the process, and one for each simulated kernel.
pub(crate) struct Descriptors {
    shards: [Mutex<Vec<TableEntry>>; SHARDS],
    ports: Mutex<Ports>,
}

struct Ports {
    last: u64,
    live: Vec<(u64, Weak<dyn Holder>)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Descriptors {
    /// Creates an empty table.
    pub(crate) fn new() -> Self {
        Self {
            shards: array::from_fn(|_| Mutex::new(Vec::new())),
            ports: Mutex::new(Ports { last: 0, live: Vec::new() }),
        }
    }

    /// Adds a port and returns its number, which is never 0 and never reused.
    pub(crate) fn enter(&self, holder: Weak<dyn Holder>) -> u64 {
        let mut ports = locked(&self.ports);
        ports.last += 1;
        let number = ports.last;
        ports.live.push((number, holder));
        number
    }

    /// Removes a port. Its descriptors must have been released.
    pub(crate) fn leave(&self, port: u64) {
        locked(&self.ports).live.retain(|(number, _)| *number != port);
    }

    fn holder(&self, port: u64) -> Option<Arc<dyn Holder>> {
        let ports = locked(&self.ports);
        ports
            .live
            .iter()
            .find(|(number, _)| *number == port)
            .and_then(|(_, holder)| holder.upgrade())
    }

    /// Claims `descriptor` for the registration `name` of `port`.
    ///
    /// `attach` adds the descriptor to the kernel's set. If the set already contains the object,
    /// but no registration has it, `adopt` is called as well: the number was closed and then made
    /// to name the same object again. If there is no memory to store the claim, `detach` undoes
    /// either. All three are called with the number's lock held. A stale registration of the number
    /// is retired.
    pub(crate) fn claim(
        &self,
        descriptor: Descriptor,
        port: u64,
        name: u64,
        attach: impl FnOnce() -> Result<(), Fault>,
        adopt: impl FnOnce() -> Result<(), Fault>,
        detach: impl FnOnce(),
    ) -> Result<(), Claim> {
        let (shard, place) = Self::place(descriptor).map_err(Claim::Refused)?;
        let mut entries = locked(&self.shards[shard]);
        let former = entries.get(place).copied().unwrap_or(FREE);
        let holder = if former.port == 0 { None } else { self.holder(former.port) };
        if let Some(holder) = &holder
            && former.port != port
            && holder.watches(descriptor, former.name)
        {
            return Err(Claim::Elsewhere);
        }
        match attach() {
            Err(fault) if fault.kind == ErrorKind::AlreadyRegistered => {
                let live = former.port == port
                    && holder.as_ref().is_some_and(|holder| {
                        // For a file, this error does not come from the kernel: the former
                        // registration may belong to a number that was closed.
                        holder.is_live(former.name) && holder.watches(descriptor, former.name)
                    });
                if live {
                    return Err(Claim::Here(former.name, fault));
                }
                adopt().map_err(Claim::Refused)?;
            }
            outcome => outcome.map_err(Claim::Refused)?,
        }
        if entries.len() <= place {
            // Grow only now: a number that names nothing can have any value.
            let more = place + 1 - entries.len();
            if entries.try_reserve(more).is_err() {
                detach();
                return Err(Claim::Refused(Fault { kind: ErrorKind::OutOfMemory, code: None }));
            }
            entries.resize(place + 1, FREE);
        }
        entries[place] = TableEntry { port, name };
        drop(entries);
        if let Some(holder) = holder {
            holder.retire(former.name);
        }
        Ok(())
    }

    /// Releases `descriptor` if the registration `name` of `port` still has it. Only then, `detach`
    /// is called to remove it from the kernel's set, with the number's lock held.
    pub(crate) fn release(
        &self,
        descriptor: Descriptor,
        port: u64,
        name: u64,
        detach: impl FnOnce(),
    ) {
        let Ok((shard, place)) = Self::place(descriptor) else { return };
        let mut entries = locked(&self.shards[shard]);
        match entries.get_mut(place) {
            Some(entry) if entry.port == port && entry.name == name => {
                detach();
                *entry = FREE;
            }
            _ => {}
        }
    }

    /// Returns the name of the registration of `port` that has `descriptor`.
    pub(crate) fn find(&self, descriptor: Descriptor, port: u64) -> Option<u64> {
        let (shard, place) = Self::place(descriptor).ok()?;
        let entries = locked(&self.shards[shard]);
        entries.get(place).filter(|entry| entry.port == port).map(|entry| entry.name)
    }

    /// Returns whether the registration `name` of `port` still has `descriptor`, and `watches`
    /// confirms that the port's set contains the object that the number names now. `watches` is
    /// called with the number's lock held.
    pub(crate) fn holds(
        &self,
        descriptor: Descriptor,
        port: u64,
        name: u64,
        watches: impl FnOnce() -> bool,
    ) -> bool {
        let Ok((shard, place)) = Self::place(descriptor) else { return false };
        let entries = locked(&self.shards[shard]);
        let entry = entries.get(place).copied().unwrap_or(FREE);
        entry.port == port && entry.name == name && watches()
    }

    fn place(descriptor: Descriptor) -> Result<(usize, usize), Fault> {
        let number = usize::try_from(descriptor)
            .map_err(|_| Fault { kind: ErrorKind::BadDescriptor, code: None })?;
        Ok((number % SHARDS, number / SHARDS))
    }
}
