//! The engine joins what the port knows (`state`) and what the system does (`sys`). It has the one
//! loop in which threads wait.
//!
//! It knows neither the type of the keys nor that of the messages, only the numbers of the cells in
//! which they lie; [`port`](crate::port) moves them in and out. Everything that threads share beside
//! the slots' words is under one lock, which is never held while user code runs, while a thread
//! sleeps, or while the kernel is asked about more than what holds at this moment.
//!
//! The engine is made of parts. Each part has its data to itself, and holds the one below it:
//!
//! ```text
//! Engine       waits, the end of registrations, and the end of the port
//! Operations   the queues of operations, and what the back end has of them
//! Registry     the registrations: arming, checks, deadlines
//! Workers      the threads: how they come and go, block, sleep, and are observed
//! Queue        the lock, packets on their way to a thread, timers
//! Context      what every part reads: the system, the slots and cells, the phase
//! ```
//!
//! So calls go down only. What a part finds out that concerns one above it, it returns.

mod context;
mod debug;
mod enable;
mod nodes;
mod operations;
mod queue;
mod registry;
mod removal;
mod shutdown;
mod wait;
mod worker;
mod workers;

use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::backend::Backend;
pub(crate) use crate::state::timers::TimerName;
use crate::types::config::BlockDetection;
use crate::types::error::{Call, Error};
use context::Context;
use queue::Queue;
use registry::Registry;
use workers::Workers;

pub(crate) use crate::state::operations::{Clearance, EndReason, OpEntry, Step};
pub(crate) use crate::state::schedule::Waited;
pub(crate) use context::{Name, Shown, name_of, name_parts};
pub(crate) use operations::{AttemptContext, OpRef, Operations, Plan};
pub(crate) use queue::{Histogram, Posting, Taken};
pub(crate) use registry::{NewRegistration, Return};
pub(crate) use wait::{GoesOn, Scratch};
pub(crate) use worker::{Tally, Worker};

/// See the module's documentation. The fields that every packet needs come first, in as few cache
/// lines as possible: after a system call each line has to be fetched anew.
#[repr(C, align(64))]
pub(crate) struct Engine {
    operations: Operations,
}

impl Deref for Engine {
    type Target = Operations;

    #[inline]
    fn deref(&self) -> &Operations {
        &self.operations
    }
}

impl Engine {
    /// A port's engine, which lets `limit` threads run at once. Refused if `detection` is not to be
    /// had here.
    pub(crate) fn new(
        limit: usize,
        detection: BlockDetection,
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
            let workers = Workers::new(queue, observes_all);
            Self { operations: Operations::new(Registry::new(workers)) }
        }))
    }
}
