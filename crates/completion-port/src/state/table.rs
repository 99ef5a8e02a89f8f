//! Which port of the process holds which descriptor number.
//!
//! A descriptor has one registration, on one port. The table remembers which. The kernel tells
//! whether an entry is stale: the number was closed without being removed first, and perhaps given
//! out again. A thread holds the lock of a number over the system call that attaches or detaches
//! it, so that table and kernel agree about each number at any time.

use std::array;
use std::sync::{Arc, PoisonError, Weak};

use crate::sync::{Mutex, MutexGuard};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// Locks of the table; a number's lock is chosen by its lowest bits.
const SHARDS: usize = 16;

/// A port, as the table sees it.
pub(crate) trait Holder: Send + Sync {
    /// Whether the port's kernel set has what `descriptor` names now, which the registration `name` of the port
    /// has claimed.
    fn watches(&self, descriptor: Descriptor, name: u64) -> bool;

    /// Whether the registration `name` of the port goes on.
    fn is_live(&self, name: u64) -> bool;

    /// Ends the registration `name`, whose descriptor was closed without being removed. Called
    /// with no lock of the table held.
    fn retire(&self, name: u64);
}

#[derive(Clone, Copy)]
struct TableEntry {
    /// The port's number; 0 if no port holds the descriptor.
    port: u64,
    name: u64,
}

const FREE: TableEntry = TableEntry { port: 0, name: 0 };

/// Why a number could not be claimed.
pub(crate) enum Claim {
    /// The system refused.
    Refused(Fault),
    /// This port has it already, by the registration of this name.
    Here(u64, Fault),
    /// Another port of the process has it.
    Elsewhere,
}

/// The table of one kernel: there is one for the process, and one for each simulated kernel.
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
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self {
            shards: array::from_fn(|_| Mutex::new(Vec::new())),
            ports: Mutex::new(Ports { last: 0, live: Vec::new() }),
        }
    }

    /// Takes a port in and gives it its number, which is never 0 and never given twice.
    pub(crate) fn enter(&self, holder: Weak<dyn Holder>) -> u64 {
        let mut ports = locked(&self.ports);
        ports.last += 1;
        let number = ports.last;
        ports.live.push((number, holder));
        number
    }

    /// Forgets a port. Its descriptors must have been released.
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

    /// Claims `descriptor` for the registration `name` of `port`. `attach` asks the kernel;
    /// `adopt` is asked instead if the kernel's set has what the number names, but no registration
    /// does: the number was closed, and then made to name the same object again. If there is no
    /// memory to note the claim, `detach` undoes either. All are called with the number's lock
    /// held. A stale registration of the number is retired.
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
                        // Of a file the kernel has not said so: the former one may be of a number that was closed.
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
            // Not earlier: a number that names nothing may be of any size.
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

    /// Gives `descriptor` up if it is still held by the registration `name` of `port`. `detach`
    /// tells the kernel; it is called with the number's lock held, and only then.
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

    /// The registration of `port` that has `descriptor`, by its name.
    pub(crate) fn find(&self, descriptor: Descriptor, port: u64) -> Option<u64> {
        let (shard, place) = Self::place(descriptor).ok()?;
        let entries = locked(&self.shards[shard]);
        entries.get(place).filter(|entry| entry.port == port).map(|entry| entry.name)
    }

    /// Whether the registration `name` of `port` has `descriptor` still, and `watches` says that its
    /// set has what the number names now. `watches` is called with the number's lock held.
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
