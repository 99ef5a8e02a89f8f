//! The parts that the back ends of a simulated kernel share, whatever their reactors are.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::set::WakeCause;
use super::{Kernel, KernelState, ObjectKind, stream};
use crate::backend::host::{Host, Origin};
use crate::backend::thread::Thread;
use crate::state::facts::{DescriptorKind, Presence};
use crate::state::moment::Moment;
use crate::state::table::Descriptors;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::{Descriptor, KernelId};

/// The back end of one port on a simulated kernel.
pub(super) trait OnKernel: Send + Sync {
    fn kernel(&self) -> &Kernel;

    /// Returns a number that no other port of the kernel has.
    fn port(&self) -> u64;

    /// Returns the process that made it.
    fn origin_of(&self) -> Origin;

    /// Changes the kernel's state and publishes the change.
    fn act<R>(&self, act: impl FnOnce(&mut KernelState) -> R) -> R {
        let mut state = self.kernel().lock();
        let done = act(&mut state);
        self.kernel().publish(state);
        done
    }
}

/// Queries about the object that a number names.
impl Kernel {
    pub(super) fn ask_unread(&self, descriptor: Descriptor) -> Option<usize> {
        let mut state = self.lock();
        state.calls.unread += 1;
        let file = state.file(descriptor)?;
        state.objects.unread(file)
    }

    pub(super) fn ask_own_end(&self, descriptor: Descriptor) -> bool {
        let mut state = self.lock();
        state.calls.own_end += 1;
        let Some(file) = state.file(descriptor) else { return false };
        state.objects.tcp_state(file).is_some_and(|state| !stream::PEER_ENDED.contains(&state))
    }

    pub(super) fn ask_was_connected(&self, descriptor: Descriptor) -> bool {
        let mut state = self.lock();
        state.calls.was_connected += 1;
        let Some(file) = state.file(descriptor) else { return false };
        state.objects.was_connected(file)
    }

    pub(super) fn ask_kind(&self, descriptor: Descriptor) -> DescriptorKind {
        let mut state = self.lock();
        state.calls.kind += 1;
        let Some(file) = state.file(descriptor) else { return DescriptorKind::NoSocket };
        match state.objects.kind(file) {
            ObjectKind::Stream => DescriptorKind::Stream,
            ObjectKind::Datagram => DescriptorKind::Datagram,
            ObjectKind::NoSocket => DescriptorKind::NoSocket,
        }
    }
}

impl<T: OnKernel> Host for T {
    fn now(&self) -> Moment {
        let mut state = self.kernel().lock();
        state.calls.now += 1;
        state.clock
    }

    fn this_thread(&self) -> Box<dyn Thread> {
        Box::new(SimulatedThread {
            kernel: self.kernel().clone(),
            thread: thread::current().id(),
            alive: alive(),
            unparked: Arc::new(AtomicBool::new(false)),
            observed: AtomicBool::new(false),
        })
    }

    fn can_observe(&self) -> Result<(), Fault> {
        if self.kernel().lock().hides_switches {
            return Err(Fault { kind: ErrorKind::Unsupported, code: None });
        }
        Ok(())
    }

    fn kernel_id(&self) -> KernelId {
        self.kernel().id()
    }

    fn origin(&self) -> Origin {
        self.origin_of()
    }

    fn descriptors(&self) -> &Descriptors {
        self.kernel().descriptors()
    }
}

thread_local! {
    /// Dropped when the thread ends.
    static ALIVE: Arc<()> = Arc::new(());
}

/// Returns a reference that has no owner once the calling thread has ended.
fn alive() -> Weak<()> {
    ALIVE.try_with(Arc::downgrade).unwrap_or_default()
}

#[derive(Debug)]
struct SimulatedThread {
    kernel: Kernel,
    thread: ThreadId,
    /// The thread's [`ALIVE`].
    alive: Weak<()>,
    /// Whether an `unpark` is pending that no `park` has taken. It changes only under the kernel's
    /// lock, so none is missed; it is atomic so that it can be shared.
    unparked: Arc<AtomicBool>,
    observed: AtomicBool,
}

impl Thread for SimulatedThread {
    fn park(&self, timeout: Option<Duration>) {
        let mut state = self.kernel.lock();
        state.calls.park += 1;
        let until = state.deadline(timeout);
        self.kernel.sleep(state, until, WakeCause::Park(Arc::clone(&self.unparked)), |_| {
            self.unparked.swap(false, Relaxed)
        });
    }

    fn unpark(&self) {
        let mut state = self.kernel.lock();
        state.calls.unpark += 1;
        self.unparked.store(true, Relaxed);
        self.kernel.publish(state);
    }

    fn asleep(&self) -> Option<bool> {
        let mut state = self.kernel.lock();
        state.calls.asleep += 1;
        match state.scripted_sleep.get(&self.thread) {
            Some((scripted, _)) => *scripted,
            None => Some(state.sleeps(self.thread) || self.alive.strong_count() == 0),
        }
    }

    fn observe(&self) -> bool {
        let allowed = !self.kernel.lock().hides_switches;
        self.observed.fetch_or(allowed, Relaxed);
        allowed
    }

    fn read_record(&self) -> Option<Presence> {
        if !self.observed.load(Relaxed) {
            return None;
        }
        let state = self.kernel.lock();
        let (asleep, since) = match state.scripted_sleep.get(&self.thread) {
            Some((scripted, since)) => (*scripted, *since),
            None => (Some(state.sleeps(self.thread)), Moment::ZERO),
        };
        Some(if asleep? { Presence::Asleep { since } } else { Presence::Awake })
    }
}
