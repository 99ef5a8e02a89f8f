//! How a thread sleeps, and how others are woken.

use std::sync::Arc;
use std::time::Duration;

use super::seat::Seat;
use super::{Engine, State, Stock};
use crate::state::schedule::Wake;
use crate::sync::MutexGuard;
use crate::sys::thread::Thread;

/// A thread that is to be woken, once the lock is given up.
#[must_use]
pub(super) struct Notice {
    thread: Arc<dyn Thread>,
    /// In the kernel's wait rather than parked.
    in_kernel: bool,
}

impl Stock {
    /// What it takes to wake a thread.
    #[inline]
    pub(super) fn notice(&self, wake: Wake) -> Notice {
        let member = self.members[wake.seat].as_ref().expect("an idle seat has a member");
        Notice { thread: Arc::clone(&member.thread), in_kernel: wake.in_kernel }
    }
}

impl Engine {
    /// Sleeps without the lock until another thread wakes this one, or `timeout` is over (`None`:
    /// no limit), or for no reason. The thread of `seat` calls it.
    #[inline(never)]
    pub(super) fn sleep<'e>(
        &'e self,
        state: MutexGuard<'e, State>,
        seat: &Seat,
        timeout: Option<Duration>,
    ) -> MutexGuard<'e, State> {
        let member = state.stock.members[seat.number].as_ref().expect("a thread that waits sits");
        let thread = Arc::clone(&member.thread);
        drop(state);
        thread.park(timeout);
        self.lock()
    }

    #[inline]
    pub(super) fn notify(&self, notice: Option<Notice>) {
        if let Some(notice) = notice {
            self.release(notice);
        }
    }

    #[inline(never)]
    fn release(&self, Notice { thread, in_kernel }: Notice) {
        if in_kernel {
            self.backend.wake();
        } else {
            thread.unpark();
        }
    }

    /// Wakes every thread that still waits, if there is nothing left to wait for. The lock is given up for
    /// that, and taken again.
    #[inline(never)]
    pub(super) fn end_if_over<'e>(
        &'e self,
        mut state: MutexGuard<'e, State>,
    ) -> MutexGuard<'e, State> {
        if !state.stock.is_over() {
            return state;
        }
        let mut notices = Vec::new();
        while let Some(wake) = state.schedule.dismiss() {
            notices.push(state.stock.notice(wake));
        }
        drop(state);
        notices.into_iter().for_each(|notice| self.notify(Some(notice)));
        self.lock()
    }
}
