//! A worker in a wait: what it does next, and when it goes to the kernel.

use std::time::Duration;

use super::controller::{Share, View};
use super::turn::{Action, Looking, Query, Turn, Waited, Wake};
use super::{Schedule, SchedulePort, Status, USUAL_EDGES, WorkerNumber};
use crate::state::moment::Moment;

impl Schedule {
    /// Decides what the worker of `turn` does next.
    ///
    /// `queries` is a buffer for questions, empty at first. `is_filled`: the kernel's last answer
    /// filled all the room for edges. `queue_due` queues the messages that are due at a moment and
    /// returns when the next one is due, or [`Moment::NEVER`].
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    pub(crate) fn next<S: SchedulePort>(
        &mut self,
        turn: &mut Turn,
        queries: &mut Vec<Query>,
        is_filled: bool,
        port: &mut S,
        queue_due: impl FnOnce(&mut S, Moment) -> Moment,
    ) -> Action {
        if self.watches_time {
            self.queue_due_timers(turn, port, queue_due);
        }
        loop {
            if let Some(action) = self.answer_call(turn, queries, port) {
                return action;
            }
            let leaves = self.leaves(turn, port);
            let takes = self.workers.has_room() && !leaves;
            if takes && port.unchecked() > 0 && !turn.is_refused {
                return Action::Check;
            }
            if takes && port.ready() > 0 {
                match self.take(turn, queries, is_filled, port) {
                    Some(action) => return action,
                    None => continue,
                }
            }
            if !leaves && self.scan_before_sleep(turn, port) {
                continue;
            }
            self.spurious += u64::from(std::mem::take(&mut turn.called));
            let can_poll = self.may_poll(turn.me, port);
            self.watch_if_unattended(turn, can_poll, leaves, port);
            let watches = self.workers.watching() == Some(turn.me);
            let due = if self.is_carried() { Moment::NEVER } else { self.due };
            let times = turn.deadline.is_some() || watches || due != Moment::NEVER;
            let now = if times { port.now() } else { Moment::ZERO };
            let left = turn.deadline.map(|deadline| deadline.since(now));
            if left == Some(Duration::ZERO) {
                if leaves {
                    // This is the worker's last chance to find something, in the queue or in the
                    // kernel.
                    self.watchdog.defers = false;
                    turn.rests = false;
                    turn.asked = self.asked;
                    continue;
                }
                match self.time_out(turn, queries, (is_filled, can_poll), now, port) {
                    Some(action) => return action,
                    None => continue,
                }
            }
            let mut timeout = left;
            if watches {
                if self.watchdog.is_due(now) {
                    turn.rests = false;
                    self.begin_look(turn, now, queries, port);
                    continue;
                }
                let look = self.next_look(now, port).since(now);
                timeout = Some(left.map_or(look, |left| left.min(look)));
            }
            if due != Moment::NEVER {
                let sleep = due.since(now);
                timeout = Some(timeout.map_or(sleep, |timeout| timeout.min(sleep)));
                self.carrier = Some((turn.me, due));
            }
            return self.sleep(turn, timeout, can_poll && !leaves, watches);
        }
    }

    /// Continues a look that has begun, then finds out why the worker is awake. Returns the next
    /// action if the worker need not search.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    fn answer_call(
        &mut self,
        turn: &mut Turn,
        queries: &mut Vec<Query>,
        port: &mut impl SchedulePort,
    ) -> Option<Action> {
        let me = turn.me;
        if turn.is_new || turn.looking != Looking::No {
            if let Some(action) = self.go_on_looking(turn, queries, port) {
                return Some(action);
            }
            if std::mem::take(&mut turn.is_new) {
                self.begin(turn, port);
            }
        }
        if self.workers.status(me) == Status::Given {
            self.workers.run(me);
            return Some(Action::Return(Waited::Packets, self.depart(port)));
        }
        if self.workers.status(me) == Status::Called {
            self.workers.answer(me);
            turn.called = true;
            if self.workers.watching() == Some(me) {
                self.watchdog.defers = false;
            }
        }
        if port.is_over() {
            self.workers.dismiss(me);
            return Some(Action::Return(Waited::Closed, None));
        }
        None
    }

    /// Returns whether the worker leaves the queue and the kernel's events to the busy workers.
    #[inline]
    fn leaves(&self, turn: &Turn, port: &impl SchedulePort) -> bool {
        turn.rests
            || self.watchdog.defers
                && self.workers.watching() == Some(turn.me)
                && self.workers.is_another_busy(turn.me)
                && (!self.controller.is_long()
                    || port.ready() == 0
                        && port.unchecked() == 0
                        && self.sources.are_for_one_thread(self.controller.packet))
    }

    /// Lets the worker take what is queued. Returns its next action, or `None` if it must look at
    /// the queue again.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    fn take(
        &mut self,
        turn: &mut Turn,
        queries: &mut Vec<Query>,
        is_filled: bool,
        port: &mut impl SchedulePort,
    ) -> Option<Action> {
        self.recount(port);
        if !self.workers.has_room() {
            return None;
        }
        if self.may_requery(port) {
            self.begin_requery(queries, port);
            turn.looking = Looking::BeforeTaking;
            return None;
        }
        // Packets that are left over must not keep newer ones from being found. So each wait asks
        // the kernel once, even if the queue is not empty.
        if self.asked == turn.asked && self.may_ask(port) {
            return Some(self.ask(false));
        }
        // If other workers may run, the next one to arrive finds the edges that the kernel still
        // has.
        if is_filled && self.workers.may_run() == 1 && self.may_ask_further(turn, turn.room, port) {
            return Some(self.ask(true));
        }
        Some(Action::Return(Waited::Packets, self.claim(turn, port)))
    }

    /// Makes the worker, which finds nothing, the watchdog if the port needs one.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    fn watch_if_unattended(
        &mut self,
        turn: &Turn,
        can_poll: bool,
        leaves: bool,
        port: &impl SchedulePort,
    ) {
        let attended =
            if can_poll && !leaves { self.is_quiet(port) } else { self.is_attended(port) };
        if !attended && self.workers.watching().is_none() {
            self.workers.watch(turn.me);
            self.watchdog.is_appointed(turn.rests || !can_poll);
        }
    }

    /// Ends the worker's wait, whose time has run out at `now`. Returns the next action, or `None`
    /// if the worker looks for sleepers first.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    fn time_out(
        &mut self,
        turn: &mut Turn,
        queries: &mut Vec<Query>,
        (is_filled, can_poll): (bool, bool),
        now: Moment,
        port: &mut impl SchedulePort,
    ) -> Option<Action> {
        if !turn.has_looked
            && !self.workers.has_room()
            && self.watchdog.is_stale(now, self.until_next_look(now))
        {
            // Workers that count as running may be asleep, and perhaps no worker waits for long
            // enough to be the watchdog.
            turn.has_looked = true;
            self.begin_look(turn, now, queries, port);
            return None;
        }
        let asks = self.asked == turn.asked || is_filled && self.may_ask_further(turn, 1, port);
        if can_poll && self.workers.in_kernel() == 0 && asks {
            return Some(self.ask(false));
        }
        self.workers.run(turn.me);
        Some(Action::Return(Waited::TimedOut, self.depart(port)))
    }

    /// Puts the worker to sleep, in the kernel's wait if it `polls`.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    fn sleep(
        &mut self,
        turn: &mut Turn,
        timeout: Option<Duration>,
        polls: bool,
        watches: bool,
    ) -> Action {
        (turn.asks_time, turn.has_scanned) = (true, false);
        // Others may take what it has returned to the queue.
        turn.own = 0;
        self.workers.rest(turn.me);
        self.controller.rest(turn.me);
        if polls {
            if watches {
                // The watchdog takes what it finds there itself.
                self.watchdog.defers = false;
            }
            self.asked = self.asked.wrapping_add(1);
            self.workers.begin_in_kernel(turn.me);
            return Action::Poll(timeout);
        }
        turn.rests = false;
        Action::Park(timeout)
    }

    /// Notes that the system refuses to report what is ready to this worker. The worker stops
    /// asking, and returns with queued packets, or without a packet as if its time had run out.
    #[cold]
    pub(crate) fn refuse(&self, turn: &mut Turn) {
        turn.is_refused = true;
        turn.deadline = Some(Moment::ZERO);
        turn.asked = self.asked.wrapping_sub(1);
    }

    /// Queues the messages that are due. The worker is awake, so it is no longer the carrier.
    #[inline(never)]
    fn queue_due_timers<S: SchedulePort>(
        &mut self,
        turn: &mut Turn,
        port: &mut S,
        queue_due: impl FnOnce(&mut S, Moment) -> Moment,
    ) {
        if self.carrier.is_some_and(|(carrier, _)| carrier == turn.me) {
            self.carrier = None;
        }
        self.watches_time = self.has_timers() || self.carrier.is_some();
        if !self.has_timers() || !std::mem::take(&mut turn.asks_time) {
            return;
        }
        let now = port.now();
        if self.due <= now {
            let due = queue_due(port, now);
            self.next_timer(due);
            // Messages are not left to the running workers.
            turn.rests = false;
            if self.workers.watching() == Some(turn.me) {
                self.watchdog.defers = false;
            }
        }
    }

    /// Takes the worker's share of the queue. Returns which other worker it wakes.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    fn claim(&mut self, turn: &Turn, port: &mut impl SchedulePort) -> Option<Wake> {
        let me = turn.me;
        let (queued, own, room) = (port.ready(), turn.own, turn.room);
        let threads = self.workers.may_run();
        let Share { packets, call } = if threads <= 1 {
            Share { packets: self.controller.take_alone(me, queued, room), call: false }
        } else {
            let others = self.workers.others_at_work(me);
            let helpers = self.workers.helpers(me);
            let view = View { queued, own, room, others, helpers, threads, handed: self.handed };
            self.controller.divide(me, view, || port.now())
        };
        port.take(packets);
        self.handed += packets as u64;
        if packets > 1 {
            self.loaded[me] = true;
            self.loads += 1;
        }
        self.workers.run(me);
        if port.ready() > 0 && self.workers.idle() > 0 && !self.workers.has_room() {
            self.scan(port);
        }
        self.depart_calling(call || port.begins_with_post(), port)
    }

    /// Returns whether a worker asks the kernel for edges without sleeping there.
    #[inline]
    pub(crate) fn may_ask(&self, port: &impl SchedulePort) -> bool {
        port.registered() > 0 && self.workers.in_kernel() == 0 && port.takes_edges()
    }

    /// Returns whether a worker asks the kernel for edges before it appends packets to the queue.
    #[inline]
    pub(crate) fn asks(&mut self, port: &impl SchedulePort) -> bool {
        let asks = self.may_ask(port);
        if asks {
            self.asked = self.asked.wrapping_add(1);
        }
        asks
    }

    #[inline]
    pub(super) fn ask(&mut self, grow: bool) -> Action {
        self.asked = self.asked.wrapping_add(1);
        Action::Ask { grow }
    }

    /// Returns whether the worker asks the kernel again to reach this many packets. The kernel may
    /// have more edges than there was room for.
    #[cold]
    fn may_ask_further(&self, turn: &mut Turn, packets: usize, port: &impl SchedulePort) -> bool {
        let is_short = port.ready() + port.unchecked() < packets;
        turn.further += 1;
        is_short && turn.further <= most_further(port) && self.may_ask(port)
    }

    /// Returns whether `me` may enter the kernel's wait, perhaps in addition to others.
    ///
    /// No other worker may enter while the set is about to be replaced, since a thread that sleeps
    /// in the old set gets no edges from the new one. The kernel wakes the thread that entered
    /// last, so only the newest waiting worker may enter.
    #[inline]
    fn may_poll(&self, me: WorkerNumber, port: &impl SchedulePort) -> bool {
        if self.workers.in_kernel() == 0 {
            return self.workers.has_room() && !port.is_replacing();
        }
        self.may_join(me, port)
    }

    #[inline(never)]
    fn may_join(&self, me: WorkerNumber, port: &impl SchedulePort) -> bool {
        let in_kernel = self.workers.in_kernel();
        let running = self.workers.running();
        let searching = self.workers.others_at_work(me) - running;
        let for_one = self.sources.are_for_one_thread(self.controller.packet);
        !(self.controller.is_long() && for_one)
            && self.controller.may_join(in_kernel, running, searching, || port.now())
            && self.workers.is_newest_poller(me)
            && !port.is_replacing()
            && !port.is_full_of_stale_events()
    }

    /// Notes that `me` has left the kernel's wait.
    #[inline]
    pub(crate) fn end_in_kernel(&mut self, me: WorkerNumber) {
        self.workers.end_in_kernel(me);
    }

    /// Handles a wake-up that brought `me` out of the kernel's wait. If several threads sleep
    /// there, the kernel chooses which one it wakes. If another worker was meant, `me` adopts its
    /// wake-up. Returns whether another wake-up is due.
    #[inline(never)]
    pub(crate) fn woken(&mut self, me: WorkerNumber, port: &mut impl SchedulePort) -> bool {
        if !self.workers.is_awaited(me)
            && let Some(meant) = self.workers.awaited()
        {
            self.workers.adopt_wakeup(me, meant);
            port.adopt(meant);
        }
        if let Some(watching) = self.workers.watching()
            && watching != me
            && !self.watchdog.has_begun()
            && self.workers.is_in_kernel(watching)
        {
            // The wake-up was meant to start the watchdog. So this worker attends to the port
            // instead, or appoints another watchdog when it leaves.
            self.workers.resign();
        }
        // The kernel may merge two wake-ups into one.
        self.workers.awaited().is_some()
    }
}

/// Returns how often the kernel is asked again at most. That is enough to find everything it has,
/// since it reports each descriptor once unless there are new events.
pub(crate) fn most_further(port: &impl SchedulePort) -> usize {
    port.registered() / USUAL_EDGES + 1
}
