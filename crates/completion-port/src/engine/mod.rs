//! The engine connects the state of the port (`state`) with the system (`backend`, `sys`). It has
//! the only loop in which threads wait.
//!
//! It does not know the types of keys and messages, only the indexes of the cells that hold them;
//! [`port`](crate::port) moves them in and out. Everything that threads share, except the slots'
//! words, is under one lock. The lock is never held while user code runs, while a thread sleeps, or
//! during a kernel call that does more than report the current state.
//!
//! The engine consists of layers. Each layer owns its data privately and contains the one below it:
//!
//! ```text
//! Engine       waits, the end of registrations, and the end of the port
//! Operations   the queues of operations
//! Requests     what operations request from the back end
//! Registry     the registrations: arming, checks, deadlines
//! Workers      the threads: how they join and leave, block, sleep, and are observed
//! Queue        the lock, packets on their way to a thread, timers
//! Context      what every layer reads: the system, the slots and cells, the phase
//! ```
//!
//! So calls only go down. A layer returns whatever concerns a layer above it.

mod context;
mod debug;
mod enable;
mod finishing;
mod idle;
mod nodes;
mod operations;
mod queue;
mod registry;
mod removal;
mod requests;
mod sharing;
mod shutdown;
mod wait;
mod worker;
mod workers;

use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::backend::Backend;
pub(crate) use crate::state::timers::TimerName;
use crate::types::config::{BlockDetection, IdleHook};
use crate::types::error::{Call, Error};
use context::Context;
use queue::Queue;
use registry::Registry;
use requests::Requests;
use workers::Workers;

pub(crate) use crate::state::operations::{ConnectPermission, EndReason, OpEntry, Step};
pub(crate) use crate::state::schedule::Waited;
pub(crate) use context::{DisplayedName, Name, name_of, name_parts};
pub(crate) use operations::{AttemptContext, OpRef, Operations, Plan};
pub(crate) use queue::{Histogram, OpThread, Posting, Taken};
pub(crate) use registry::{KeyReturn, NewRegistration};
pub(crate) use wait::{DeferredWork, Scratch};
pub(crate) use worker::{PacketTally, Worker};

/// See the module's documentation. The fields that every packet needs come first, in as few cache
/// lines as possible: after a system call each line has to be fetched again.
#[repr(C, align(64))]
pub(crate) struct Engine {
    operations: Operations,
    /// What the program runs when no thread waits.
    no_idle: Option<IdleHook>,
}

impl Deref for Engine {
    type Target = Operations;

    #[inline]
    fn deref(&self) -> &Operations {
        &self.operations
    }
}

impl Engine {
    /// Creates a port's engine, which lets `limit` threads run at a time.
    ///
    /// Fails if `detection` is not available here.
    pub(crate) fn new(
        limit: usize,
        detection: BlockDetection,
        no_idle: Option<IdleHook>,
        backend: Box<dyn Backend>,
    ) -> Result<Arc<Self>, Error> {
        let observes_all = detection == BlockDetection::Switches;
        let detection = match detection {
            BlockDetection::Automatic | BlockDetection::Switches => match backend.can_observe() {
                Ok(()) => BlockDetection::Switches,
                Err(fault) if observes_all => {
                    return Err(Error::new(Call::Create, fault.kind).with_code(fault.code));
                }
                Err(_) => BlockDetection::Tick,
            },
            chosen => chosen,
        };
        Ok(Arc::new_cyclic(|this: &Weak<Self>| {
            let number = backend.descriptors().enter(this.clone());
            let queue = Queue::new(Context::new(number, limit, detection, backend));
            queue.lock().lists_mut().set_hooked(no_idle.is_some());
            let workers = Workers::new(queue, observes_all);
            Self { operations: Operations::new(Requests::new(Registry::new(workers))), no_idle }
        }))
    }
}
