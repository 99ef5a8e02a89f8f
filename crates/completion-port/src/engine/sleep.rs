//! How a thread sleeps, and how others are woken.

use std::sync::Arc;
use std::time::Duration;

use super::seat::Seat;
use super::{Engine, State, Stock};
use crate::backend::thread::Thread;
use crate::memory::trace::{hears_packets, trace_aside};
use crate::state::schedule::{SeatNumber, Wake};
use crate::sync::MutexGuard;

/// A thread that is to be woken, once the lock is given up.
#[must_use]
pub(super) struct Notice {
    thread: Arc<dyn Thread>,
    seat: SeatNumber,
    /// In the kernel's wait rather than parked.
    in_kernel: bool,
}

impl Stock {
    /// What it takes to wake a thread.
    #[inline]
    pub(super) fn notice(&mut self, wake: Wake) -> Notice {
        let member = self.members[wake.seat].as_mut().expect("an idle seat has a member");
        member.wakes += 1;
        let Wake { seat, in_kernel } = wake;
        Notice { thread: Arc::clone(&member.thread), seat, in_kernel }
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
    fn release(&self, Notice { thread, seat, in_kernel }: Notice) {
        if in_kernel {
            self.backend.wake();
        } else {
            thread.unpark();
        }
        if hears_packets() {
            self.tell_woken(seat, in_kernel);
        }
    }

    /// A thread was woken. The lock must not be held: a subscriber hears of it.
    #[cold]
    #[inline(never)]
    fn tell_woken(&self, seat: SeatNumber, in_kernel: bool) {
        let _ = (seat, in_kernel);
        trace_aside!(TRACE, port = self.number, seat, in_kernel, "woken");
    }

    /// These threads were found asleep. The lock must not be held: a subscriber hears of it.
    pub(super) fn tell_found(&self, found: Vec<SeatNumber>) {
        for seat in found {
            let _ = seat;
            trace_aside!(DEBUG, port = self.number, seat, "found asleep");
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
