//! What a thread does in a wait: what the schedule says, step by step.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::aside::GoesOn;
use super::poll::Scratch;
use super::seat::{MEASURED, Seat};
use super::sleep::Notice;
use super::{Engine, Notable, Phase, State};
use crate::state::moment::Moment;
use crate::state::schedule::{Action, Query, Turn, Waited};
use crate::sync::MutexGuard;
use crate::types::config::BlockDetection;

impl Engine {
    /// Waits until `seat` has been handed packets, at most `room` of them, or `deadline` is over
    /// (`None`: no limit). `port` goes on with the operations that were put aside, whenever there are any, without the lock.
    pub(crate) fn wait(
        &self,
        seat: &Seat,
        scratch: &mut Scratch,
        room: usize,
        deadline: Option<Moment>,
        port: &dyn GoesOn,
    ) -> Waited {
        if self.has_fault() {
            return Waited::Failed;
        }
        seat.come_to_wait();
        seat.attention.store(0, Relaxed);
        let packet = self.end_quota(seat);
        let mut state = self.lock();
        // Left over if the iterator of an earlier wait was forgotten, or is still about.
        self.take_chain_back(&mut state.stock, seat);
        self.give_back_emptied(&mut state.stock, seat);
        let State { schedule, stock } = &mut *state;
        let mut stage = self.stage(stock, seat);
        let mut turn = Turn::new(seat.number, room, deadline);
        schedule.arrive(&mut turn, packet, &mut scratch.queries, &mut stage);
        loop {
            let State { schedule, stock } = &mut *state;
            let mut stage = self.stage(stock, seat);
            let Scratch { queries, is_filled, .. } = &mut *scratch;
            state = match schedule.next(&mut turn, queries, *is_filled, &mut stage) {
                Action::Return(waited, wake) => {
                    let notice = wake.map(|wake| state.stock.notice(wake));
                    if state.stock.notable.is_any() {
                        self.end_notably(state, seat, notice, port);
                    } else {
                        drop(state);
                        self.notify(notice);
                    }
                    // Queued packets go first, and the next wait fails.
                    let fails = turn.is_refused() && waited == Waited::TimedOut;
                    return if fails { Waited::Failed } else { waited };
                }
                Action::Check => self.recheck(state, seat, scratch),
                Action::Ask { grow } => {
                    if grow {
                        scratch.grow();
                    }
                    self.ask(state, seat, scratch)
                }
                Action::Query(query) => self.query(state, query),
                // What was put aside is not to wait for the end of a sleep, nor is what comes of it.
                Action::Poll(_) if state.stock.notable.has(Notable::ASIDE) => {
                    let state = self.go_on(state, seat, port);
                    self.sleep_in_kernel(state, seat, scratch, Some(Duration::ZERO))
                }
                Action::Park(_) if state.stock.notable.has(Notable::ASIDE) => {
                    self.sleep(self.go_on(state, seat, port), seat, Some(Duration::ZERO))
                }
                Action::Poll(timeout) => self.sleep_in_kernel(state, seat, scratch, timeout),
                Action::Park(timeout) => self.sleep(state, seat, timeout),
            };
            if scratch.is_refused {
                scratch.is_refused = false;
                state.schedule.refuse(&mut turn);
            }
            // What comes of it is to be found by this wait, however soon that ends.
            if state.stock.notable.has(Notable::ASIDE) {
                state = self.go_on(state, seat, port);
            }
        }
    }

    /// Goes on with what was put aside, without the lock.
    #[cold]
    fn go_on<'e>(
        &'e self,
        state: MutexGuard<'e, State>,
        seat: &Seat,
        port: &dyn GoesOn,
    ) -> MutexGuard<'e, State> {
        drop(state);
        let goes_on = seat.begin_going_on();
        port.go_on();
        drop(goes_on);
        self.lock()
    }

    /// The wait of the thread of `seat` ends on a port of which something is notable. The other thread is woken
    /// before a subscriber hears of anything, which may take its time.
    #[cold]
    #[inline(never)]
    fn end_notably<'e>(
        &'e self,
        mut state: MutexGuard<'e, State>,
        seat: &Seat,
        notice: Option<Notice>,
        port: &dyn GoesOn,
    ) {
        let is_any_aside = state.stock.notable.has(Notable::ASIDE);
        if state.stock.notable.has(Notable::MEASURED) {
            seat.attention.fetch_or(MEASURED, Relaxed);
        }
        let found = state.stock.take_found();
        if state.stock.phase != Phase::Open {
            state = self.end_if_over(state);
        }
        drop(state);
        self.notify(notice);
        if is_any_aside {
            port.go_on();
        }
        self.tell_found(found);
    }

    /// Asks the system, without the lock, whether another thread sleeps, unless the processor time
    /// of that thread tells. If it has made no progress and sleeps, it is observed from now on.
    #[inline(never)]
    pub(super) fn query<'e>(
        &'e self,
        state: MutexGuard<'e, State>,
        query: Query,
    ) -> MutexGuard<'e, State> {
        let Some(member) = state.stock.members[query.seat].clone() else { return state };
        drop(state);
        // First: what the thread runs while the system is asked is not counted as known.
        let ran = member.thread.processor_time();
        let asleep = query.is_settled_by(ran).or_else(|| member.thread.asleep());
        let is_observed = query.stuck_at.is_some()
            && asleep == Some(true)
            && self.detection == BlockDetection::Switches
            && member.thread.observe();
        let mut state = self.lock();
        // The seat may be another thread's by now.
        if !member.seat.left.load(Relaxed) {
            let State { schedule, stock } = &mut *state;
            schedule.answer(query, ran, asleep, is_observed, &mut self.stage(stock, None));
        }
        state
    }

    /// Whether waits return at once because the port is closed and nothing is left in it.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase() != Phase::Open && self.lock().stock.is_over()
    }
}
