//! Which thread does what. This module alone decides which thread takes packets, how the others
//! sleep, which one is woken, and which one is the watchdog.
//!
//! Nothing here calls the system or sleeps. Each thing that happens at the port is a method of
//! [`Schedule`], called with the port's lock held. What the schedule has to know of the port it
//! asks its [`Scene`]. What is to be done comes back as a value. A thread in a wait calls
//! [`Schedule::next`] again and again, and does what that says.

mod advice;
mod crew;
mod pace;
mod seats;
mod sleepers;
#[cfg(any(test, fuzzing))]
pub(crate) mod tests;
mod watchdog;

use std::fmt;
use std::time::Duration;

use self::advice::AWAY;
pub(crate) use self::advice::{Advice, LOOK};
use self::crew::{Crew, Portion, View};
use self::seats::Seats;
pub(crate) use self::seats::{SeatNumber, Status};
use self::sleepers::Sleepers;
use self::watchdog::{STUCK, Watchdog};
use super::facts::Presence;
use super::moment::Moment;

/// What the schedule sees of a port, and does to its queue. No method calls the system, except that the clock
/// may be read.
pub(crate) trait Scene {
    /// The time by the clock of the back end.
    fn now(&self) -> Moment;

    /// Packets in the queue.
    fn ready(&self) -> usize;

    /// Whether the first of them was posted.
    fn begins_with_post(&self) -> bool;

    /// Registrations that the kernel has to be asked about before they can be queued.
    fn unchecked(&self) -> usize;

    /// Cells that hold a posted message whose time has come, or have not been given back yet.
    fn posts(&self) -> usize;

    /// Queues the messages that are due at `now`. Returns when the next one is due; [`Moment::NEVER`] if there
    /// is none.
    fn queue_due(&mut self, now: Moment) -> Moment;

    /// Registrations.
    fn registered(&self) -> usize;

    /// Whether the port has ended: no wait brings anything any more.
    fn is_over(&self) -> bool;

    /// Whether the port still takes what the kernel reports.
    fn takes_edges(&self) -> bool;

    /// Whether the kernel's set is being replaced.
    fn is_replacing(&self) -> bool;

    /// Whether the set should be replaced, because most of its reports are about ended registrations.
    fn is_full_of_strays(&self) -> bool;

    /// Whether threads that sleep without saying so are to be found.
    fn detects(&self) -> bool;

    /// A number that moves on with each packet and each wait of the thread of `seat`.
    fn progress(&self, seat: SeatNumber) -> u32;

    /// Whether the thread of `seat` sleeps, as far as that is known without a system call.
    fn presence(&self, seat: SeatNumber) -> Option<Presence>;

    /// The thread of `seat` is thought to be asleep from now on, or awake.
    fn presume_asleep(&mut self, seat: SeatNumber, asleep: bool);

    /// Hands so many packets of the queue to the thread in whose wait this is called.
    fn take(&mut self, packets: usize);

    /// Hands the first packet of the queue to the idle thread of `seat`.
    fn give(&mut self, seat: SeatNumber);

    /// What the thread of `seat` was handed and has not come to goes back to the front of the queue. False
    /// if there was nothing.
    fn take_back(&mut self, seat: SeatNumber) -> bool;

    /// A thread that cannot give packets back takes at most so many at a time from now on.
    fn advise(&mut self, room: u32);

    /// What the thread of `from` was handed while it slept goes to the thread in whose wait this is
    /// called.
    fn adopt(&mut self, from: SeatNumber);
}

/// How many edges a thread asks the kernel for at once. A thread that runs alone may ask for more
/// later; where several may run, one would wait for the edges of another.
pub(crate) const USUAL_EDGES: usize = 64;

/// One quota in so many is measured: reading the clock costs as much as a packet.
pub(crate) const SAMPLED: u32 = 32;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The thread has been handed packets.
    Packets,
    /// The time is over.
    TimedOut,
    /// The port is closed and nothing is left in it.
    Closed,
    /// The system refuses to report what is ready, and nothing was queued. The engine alone returns it, and has the fault.
    Failed,
}

/// What a thread in a wait does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It returns to its caller, and wakes another thread if there is one for it to wake.
    Return(Waited, Option<Wake>),
    /// It asks the kernel about registrations that are only remembered.
    Check,
    /// It asks the kernel for edges without waiting. With `grow` it first makes room for more edges.
    Ask { grow: bool },
    /// It asks the system about another thread, and passes the answer to [`Schedule::answer`].
    Query(Query),
    /// It sleeps in the kernel's wait for edges, for at most so long.
    Poll(Option<Duration>),
    /// It sleeps until another thread wakes it, for at most so long.
    Park(Option<Duration>),
}

/// Another thread to be woken once the lock is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Wake {
    pub(crate) seat: SeatNumber,
    /// It sleeps in the kernel's wait; otherwise it is parked.
    pub(crate) in_kernel: bool,
}

/// A question to the system about the thread of `seat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) seat: SeatNumber,
    /// It runs and has not moved on from this; otherwise it was found asleep.
    pub(crate) stuck_at: Option<u32>,
    /// How long processors had run it when the system was last asked about it, if its progress was
    /// the same then.
    pub(crate) ran: Option<Duration>,
}

impl Query {
    /// Whether the thread sleeps, if the time tells for which processors `ran` it so far.
    ///
    /// One that was found asleep and has not run since sleeps, or has been woken and does not run
    /// yet. One that has not moved on and has run since the last question was awake then; whether it
    /// is now the next look tells.
    #[must_use]
    pub(crate) fn is_settled_by(self, ran: Option<Duration>) -> Option<bool> {
        let has_run = ran? > self.ran?;
        (has_run == self.stuck_at.is_some()).then_some(!has_run)
    }
}

/// What a thread remembers during a wait.
#[derive(Debug)]
pub(crate) struct Turn {
    me: SeatNumber,
    room: usize,
    deadline: Option<Moment>,
    /// It has just come, and may look after the port first.
    is_new: bool,
    /// It was called to search, and has found nothing so far.
    called: bool,
    /// It leaves the port to the threads at work.
    rests: bool,
    /// Its time has ended, and it has looked for threads that sleep.
    has_looked: bool,
    /// How often the kernel had been asked when the thread came, or last began anew.
    asked: u32,
    /// How often it asked once more for what there was no room for.
    further: usize,
    looking: Looking,
    /// It has not asked yet whether a timer is due, since it came or last slept.
    asks_time: bool,
    /// The system refuses to report what is ready: the thread takes what is queued, and returns.
    is_refused: bool,
}

impl Turn {
    /// Whether the system has refused to report what is ready.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The thread of `me` comes to wait for at most `room` packets, until `deadline` (`None`: no limit).
    #[inline]
    pub(crate) fn new(me: SeatNumber, room: usize, deadline: Option<Moment>) -> Self {
        Self {
            me,
            room,
            deadline,
            is_new: false,
            called: false,
            rests: false,
            has_looked: false,
            asked: 0,
            further: 0,
            looking: Looking::No,
            asks_time: true,
            is_refused: false,
        }
    }
}

/// How far a thread has come in looking after the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looking {
    No,
    /// It asks about threads that do not move, then goes on with what follows a look.
    Stuck {
        now: Moment,
        is_first: bool,
        asks: bool,
    },
    /// It asks about threads that were found asleep, then ends the look.
    Asleep {
        now: Moment,
        is_first: bool,
    },
    /// The same, but before packets are handed out: no look ends with it.
    BeforeTaking,
}

/// The threads of a port, and what decides about them.
#[derive(Debug)]
pub(crate) struct Schedule {
    seats: Seats,
    crew: Crew,
    advice: Advice,
    watchdog: Watchdog,
    sleepers: Sleepers,
    /// When the next timer is due; [`Moment::NEVER`] if there is none.
    due: Moment,
    /// The thread that sleeps no longer than until this moment, when a timer was due as it went to sleep.
    carrier: Option<(SeatNumber, Moment)>,
    /// There may be a timer or a carrier; each wait finds out.
    minds_time: bool,
    /// Seats whose threads were handed several packets, and may still have some.
    loaded: Vec<bool>,
    loads: usize,
    /// How often the kernel was asked for edges; wraps.
    asked: u32,
    /// Packets handed out so far.
    handed: u64,
    /// Threads that were woken, and those of them that were called to search and found nothing.
    wakes: u64,
    spurious: u64,
}

/// Numbers for statistics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) running: usize,
    pub(crate) idle: usize,
    pub(crate) blocked: usize,
    pub(crate) wakes: u64,
    pub(crate) spurious: u64,
    pub(crate) blocks_found: u64,
}

impl Schedule {
    /// The schedule of a port that lets `limit` threads run at once. `begin` is where counters that
    /// wrap begin.
    pub(crate) fn new(limit: usize, begin: u32) -> Self {
        Self {
            seats: Seats::new(limit),
            crew: Crew::new(limit),
            advice: Advice::new(),
            watchdog: Watchdog::default(),
            sleepers: Sleepers::default(),
            due: Moment::NEVER,
            carrier: None,
            minds_time: false,
            loaded: Vec::new(),
            loads: 0,
            asked: begin,
            handed: 0,
            wakes: 0,
            spurious: 0,
        }
    }

    // ---- what threads do ----

    /// A thread takes a seat. Whatever it does next moves its progress on from `progress`.
    pub(crate) fn join(&mut self, is_observed: bool, progress: u32) -> SeatNumber {
        let seat = self.seats.join();
        if self.loaded.len() <= seat {
            self.loaded.resize(seat + 1, false);
        }
        self.watchdog.seat(seat, progress);
        self.crew.seat(seat);
        self.sleepers.seat(seat);
        if is_observed {
            self.sleepers.observe(seat);
        }
        seat
    }

    /// The thread of `seat` has gone for good; what it had not come to is in the queue again.
    pub(crate) fn leave(&mut self, seat: SeatNumber, scene: &impl Scene) -> Option<Wake> {
        self.unload(seat);
        self.sleepers.seat(seat);
        self.seats.leave(seat);
        self.crew.rest(seat);
        self.relieve(scene)
    }

    /// The thread of `turn` comes to wait, and has nothing in its hands: what was left has been taken back.
    /// `packet` is what each of its packets took, if that was measured, in nanoseconds.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    pub(crate) fn arrive(
        &mut self,
        turn: &mut Turn,
        packet: Option<u64>,
        queries: &mut Vec<Query>,
        scene: &mut impl Scene,
    ) {
        if let Some(packet) = packet {
            self.crew.note(packet);
        }
        self.unload(turn.me);
        turn.rests = self.seats.arrive(turn.me);
        let hurries = self.seats.running() > 0 && self.sleepers.pace.hurries();
        if (self.loads > 0 || hurries) && self.looks_first(turn, hurries, queries, scene) {
            return;
        }
        self.begin(turn, scene);
    }

    /// Whether the thread of `turn`, which has just come, looks after the port. Another one has a quota
    /// that it may be stuck with, and perhaps there is no watchdog. Most likely that thread was preempted,
    /// which would last for a millisecond or more. Or looks have lately found sleepers (`hurries`), and one
    /// that runs with a single packet may sleep as well.
    #[inline(never)]
    fn looks_first(
        &mut self,
        turn: &mut Turn,
        hurries: bool,
        queries: &mut Vec<Query>,
        scene: &mut impl Scene,
    ) -> bool {
        let now = scene.now();
        let time = if hurries { self.sleepers.pace.period().min(STUCK) } else { STUCK };
        let looks = self.watchdog.is_stale(now, time);
        if looks {
            turn.is_new = true;
            self.begin_look(turn, now, queries, scene);
        }
        looks
    }

    /// The thread has looked after the port. It leaves the port to the threads at work if others
    /// have come since it went off, and if they will soon come again.
    #[inline]
    fn begin(&self, turn: &mut Turn, scene: &impl Scene) {
        turn.asked = self.asked;
        if turn.rests {
            let queued = scene.ready() + scene.unchecked();
            let others = self.seats.others_at_work(turn.me);
            turn.rests =
                scene.posts() == 0 && self.crew.leaves(turn.me, queued, others, || scene.now());
        }
    }

    /// The thread of `seat` says that it is about to block. `None` if it is not counted anyway; otherwise
    /// what it had not come to is in the queue again.
    pub(crate) fn block(
        &mut self,
        seat: SeatNumber,
        scene: &mut impl Scene,
    ) -> Option<Option<Wake>> {
        if self.seats.status(seat) == Status::FoundAsleep {
            // The thread was found asleep, and is awake. From here on it says itself that it
            // blocks.
            self.found_awake(seat, scene);
        }
        if !self.seats.block(seat, true) {
            return None;
        }
        self.crew.rest(seat);
        self.take_back(seat, scene);
        Some(self.relieve(scene))
    }

    /// The thread of `seat` blocks no longer.
    pub(crate) fn unblock(&mut self, seat: SeatNumber) {
        self.seats.unblock(seat);
    }

    /// Whether the thread of `seat` is counted as one that runs.
    pub(crate) fn is_running(&self, seat: SeatNumber) -> bool {
        self.seats.status(seat) == Status::Running
    }

    /// Whether the thread of `seat` was handed a packet while it slept, and has not woken up yet.
    pub(crate) fn is_given(&self, seat: SeatNumber) -> bool {
        self.seats.status(seat) == Status::Given
    }

    /// What the thread of `seat` was handed and has not come to goes back to the front of the queue.
    #[inline]
    pub(crate) fn take_back(&mut self, seat: SeatNumber, scene: &mut impl Scene) -> bool {
        self.unload(seat);
        scene.take_back(seat)
    }

    #[inline]
    fn unload(&mut self, seat: SeatNumber) {
        if self.loaded[seat] {
            self.loaded[seat] = false;
            self.loads -= 1;
        }
    }

    // ---- what happens to the queue ----

    /// A packet was put at the end of the queue by a thread that does not take it.
    #[inline]
    pub(crate) fn queued(&mut self, scene: &mut impl Scene) -> Option<Wake> {
        if !self.seats.has_room() && self.seats.idle() > 0 {
            self.scan(scene);
        }
        if self.seats.presumed_blocked() > 0 {
            // A thread that was found asleep may run again. The thread that comes for the packet
            // checks that first.
            return self.call().or_else(|| self.look_after(scene));
        }
        match self.seats.give() {
            Some(seat) => {
                scene.give(seat);
                self.handed += 1;
                Some(self.wake(seat))
            }
            None => self.look_after(scene),
        }
    }

    /// The thread of `seat`, which runs, has put a packet in front of what it has left.
    pub(crate) fn kept(&mut self, seat: SeatNumber, scene: &impl Scene) -> Option<Wake> {
        self.handed += 1;
        if !std::mem::replace(&mut self.loaded[seat], true) {
            self.loads += 1;
        }
        self.look_after(scene)
    }

    /// A timer was set for the moment `at`, before all others.
    pub(crate) fn timer_set(&mut self, at: Moment) -> Option<Wake> {
        self.due = at;
        self.minds_time = true;
        if self.seats.idle() == 0 || self.is_carried() {
            return None;
        }
        let seat = match (self.seats.watching(), self.carrier) {
            (Some(_), _) if self.watchdog.comes_by(at) => return None,
            // The watchdog or the carrier sleeps past `at`: it is woken, and goes to sleep anew.
            (Some(seat), _) | (None, Some((seat, _)))
                if self.seats.status(seat) == Status::Idle =>
            {
                seat
            }
            // The watchdog is awake already, and goes to sleep anew.
            (Some(_), _) => return None,
            _ => {
                let seat = self.seats.appoint()?;
                // If no thread is left in the kernel's wait but this one, it goes back there.
                self.watchdog.is_appointed(self.seats.in_kernel() == 0);
                seat
            }
        };
        Some(self.wake(seat))
    }

    /// The next timer is due at the moment `due`, which is no earlier than before.
    pub(crate) fn next_timer(&mut self, due: Moment) {
        self.due = due;
    }

    /// Whether the port waits for a time to come.
    pub(crate) fn has_timers(&self) -> bool {
        self.due != Moment::NEVER
    }

    /// Whether a thread sleeps no longer than until the next timer is due.
    #[inline]
    fn is_carried(&self) -> bool {
        self.due == Moment::NEVER || self.carrier.is_some_and(|(_, until)| until <= self.due)
    }

    /// Something that has to be checked was left to the next wait, or packets were left in the
    /// queue that are not worth a wake.
    #[inline]
    pub(crate) fn look_after(&mut self, scene: &impl Scene) -> Option<Wake> {
        let is_attended = self.is_attended(scene) && self.is_carried();
        if self.seats.idle() == 0 || is_attended || self.seats.watching().is_some() {
            return None;
        }
        let seat = self.seats.appoint()?;
        // If all that is missing is a thread that carries a timer, this one need not leave the kernel's wait.
        self.watchdog.is_appointed(!self.is_attended(scene));
        Some(self.wake(seat))
    }

    /// The calling thread goes off to user code. It calls another thread if it leaves too much
    /// behind.
    pub(crate) fn depart(&mut self, scene: &mut impl Scene) -> Option<Wake> {
        let left = scene.ready();
        if left > 0 && self.seats.idle() > 0 && !self.seats.has_room() {
            self.scan(scene);
        }
        let is_much = self.crew.is_worth_a_wake(left, self.seats.at_work());
        self.depart_calling(is_much || left > 0 && scene.begins_with_post(), scene)
    }

    /// The calling thread goes off to user code. It calls another thread if that is `wanted`.
    #[inline]
    pub(crate) fn depart_calling(&mut self, wanted: bool, scene: &impl Scene) -> Option<Wake> {
        let called = if wanted { self.call() } else { None };
        called.or_else(|| self.look_after(scene))
    }

    /// The port has ended: the next one of the threads that still wait.
    pub(crate) fn dismiss(&mut self) -> Option<Wake> {
        let seat = self.seats.call_anyway()?;
        Some(self.wake(seat))
    }

    /// A seat has become free. Calls another thread to search if there may be something to find.
    fn relieve(&mut self, scene: &impl Scene) -> Option<Wake> {
        let is_quiet = scene.ready() == 0 && scene.unchecked() == 0;
        if is_quiet && self.seats.in_kernel() > 0 {
            return None;
        }
        self.call().or_else(|| self.look_after(scene))
    }

    fn call(&mut self) -> Option<Wake> {
        let seat = self.seats.call()?;
        Some(self.wake(seat))
    }

    fn wake(&mut self, seat: SeatNumber) -> Wake {
        self.wakes += 1;
        Wake { seat, in_kernel: self.seats.is_in_kernel(seat) }
    }

    /// Whether a thread is in the kernel's wait, and nothing else is left to be done.
    #[inline]
    fn is_attended(&self, scene: &impl Scene) -> bool {
        self.seats.in_kernel() > 0 && self.is_quiet(scene)
    }

    /// Whether every packet found so far is being handled.
    #[inline]
    fn is_quiet(&self, scene: &impl Scene) -> bool {
        scene.ready() == 0 && scene.unchecked() == 0 && self.loads == 0
    }

    // ---- a thread in a wait ----

    /// What the thread of `turn` does next. `queries` is room for questions, empty at first. `is_filled`: the
    /// kernel had as many edges as there was room for.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    pub(crate) fn next(
        &mut self,
        turn: &mut Turn,
        queries: &mut Vec<Query>,
        is_filled: bool,
        scene: &mut impl Scene,
    ) -> Action {
        let me = turn.me;
        if self.minds_time {
            self.mind_timers(turn, scene);
        }
        loop {
            if turn.is_new || turn.looking != Looking::No {
                if let Some(action) = self.go_on_looking(turn, queries, scene) {
                    return action;
                }
                if std::mem::take(&mut turn.is_new) {
                    self.begin(turn, scene);
                }
            }
            if self.seats.status(me) == Status::Given {
                self.seats.run(me);
                return Action::Return(Waited::Packets, self.depart(scene));
            }
            if self.seats.status(me) == Status::Called {
                self.seats.answer(me);
                turn.called = true;
                if self.seats.watching() == Some(me) {
                    self.watchdog.defers = false;
                }
            }
            if scene.is_over() {
                self.seats.dismiss(me);
                return Action::Return(Waited::Closed, None);
            }
            // Whether this thread leaves what there is to find, in the queue and with the kernel,
            // to the threads that run.
            let leaves = turn.rests
                || self.watchdog.defers
                    && self.seats.watching() == Some(me)
                    && self.seats.running() > 0
                    && !self.crew.is_long();
            let takes = self.seats.has_room() && !leaves;
            if takes && scene.unchecked() > 0 && !turn.is_refused {
                return Action::Check;
            }
            if takes && scene.ready() > 0 {
                self.recount(scene);
                if !self.seats.has_room() {
                    continue;
                }
                if self.may_requery(scene) {
                    self.begin_requery(queries, scene);
                    turn.looking = Looking::BeforeTaking;
                    continue;
                }
                // Left-over packets must not keep newer ones from being found. So each wait asks
                // the kernel once, even if the queue is not empty.
                if self.asked == turn.asked && self.may_ask(scene) {
                    return self.ask(false);
                }
                // Where other threads may run, the next one that comes finds the edges that are
                // still with the kernel.
                if is_filled
                    && self.seats.may_run() == 1
                    && self.may_ask_further(turn, turn.room, scene)
                {
                    return self.ask(true);
                }
                return Action::Return(Waited::Packets, self.claim(turn, scene));
            }
            if std::mem::take(&mut turn.called) {
                self.spurious += 1;
            }
            let can_poll = self.may_poll(me, scene);
            let attended =
                if can_poll && !leaves { self.is_quiet(scene) } else { self.is_attended(scene) };
            if !attended && self.seats.watching().is_none() {
                self.seats.watch(me);
                self.watchdog.is_appointed(turn.rests || !can_poll);
            }
            let watches = self.seats.watching() == Some(me);
            let due = if self.is_carried() { Moment::NEVER } else { self.due };
            let times = turn.deadline.is_some() || watches || due != Moment::NEVER;
            let now = if times { scene.now() } else { Moment::ZERO };
            let left = turn.deadline.map(|deadline| deadline.since(now));
            if left == Some(Duration::ZERO) {
                if leaves {
                    // This is the thread's last chance to find something, in the queue or with the
                    // kernel.
                    self.watchdog.defers = false;
                    turn.rests = false;
                    turn.asked = self.asked;
                    continue;
                }
                if !turn.has_looked
                    && !self.seats.has_room()
                    && self.watchdog.is_stale(now, self.until_next_look(now))
                {
                    // Threads may sleep that are counted, and perhaps no thread waits for long
                    // enough to be the watchdog.
                    turn.has_looked = true;
                    self.begin_look(turn, now, queries, scene);
                    continue;
                }
                let asks =
                    self.asked == turn.asked || is_filled && self.may_ask_further(turn, 1, scene);
                if can_poll && self.seats.in_kernel() == 0 && asks {
                    return self.ask(false);
                }
                self.seats.run(me);
                return Action::Return(Waited::TimedOut, self.depart(scene));
            }
            let mut timeout = left;
            if watches {
                if self.watchdog.is_due(now) {
                    turn.rests = false;
                    self.begin_look(turn, now, queries, scene);
                    continue;
                }
                let look = self.next_look(now, scene).since(now);
                timeout = Some(left.map_or(look, |left| left.min(look)));
            }
            if due != Moment::NEVER {
                let sleep = due.since(now);
                timeout = Some(timeout.map_or(sleep, |timeout| timeout.min(sleep)));
                self.carrier = Some((me, due));
            }
            turn.asks_time = true;
            self.seats.rest(me);
            self.crew.rest(me);
            if can_poll && !leaves {
                if watches {
                    // What it finds there it takes itself.
                    self.watchdog.defers = false;
                }
                self.asked = self.asked.wrapping_add(1);
                self.seats.begin_in_kernel(me);
                return Action::Poll(timeout);
            }
            turn.rests = false;
            return Action::Park(timeout);
        }
    }

    /// The system refuses to tell the thread of `turn` what there is. It stops asking, and returns with what is queued,
    /// or without a packet as if its time were over.
    #[cold]
    pub(crate) fn refuse(&self, turn: &mut Turn) {
        turn.is_refused = true;
        turn.deadline = Some(Moment::ZERO);
        turn.asked = self.asked.wrapping_sub(1);
    }

    /// The thread of `turn`, which is in a wait, is awake: it carries no timer, and queues what is due.
    #[inline(never)]
    fn mind_timers(&mut self, turn: &mut Turn, scene: &mut impl Scene) {
        if self.carrier.is_some_and(|(carrier, _)| carrier == turn.me) {
            self.carrier = None;
        }
        self.minds_time = self.has_timers() || self.carrier.is_some();
        if !self.has_timers() || !std::mem::take(&mut turn.asks_time) {
            return;
        }
        let now = scene.now();
        if self.due <= now {
            let due = scene.queue_due(now);
            self.next_timer(due);
            // A message is not left to the threads that run.
            turn.rests = false;
            if self.seats.watching() == Some(turn.me) {
                self.watchdog.defers = false;
            }
        }
    }

    /// The thread takes its quota of what is queued. Returns which other thread it wakes.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    fn claim(&mut self, turn: &Turn, scene: &mut impl Scene) -> Option<Wake> {
        let me = turn.me;
        let (queued, room, threads) = (scene.ready(), turn.room, self.seats.may_run());
        let Portion { packets, call } = if threads <= 1 {
            Portion { packets: self.crew.take_alone(me, queued, room), call: false }
        } else {
            let others = self.seats.others_at_work(me);
            let helpers = self.seats.helpers(me);
            let view = View { queued, room, others, helpers, threads, handed: self.handed };
            self.crew.divide(me, view, || scene.now())
        };
        scene.take(packets);
        self.handed += packets as u64;
        if packets > 1 {
            self.loaded[me] = true;
            self.loads += 1;
        }
        self.seats.run(me);
        if scene.ready() > 0 && self.seats.idle() > 0 && !self.seats.has_room() {
            self.scan(scene);
        }
        self.depart_calling(call || scene.begins_with_post(), scene)
    }

    /// Whether a thread asks the kernel for edges without sleeping there.
    #[inline]
    pub(crate) fn may_ask(&self, scene: &impl Scene) -> bool {
        scene.registered() > 0 && self.seats.in_kernel() == 0 && scene.takes_edges()
    }

    /// Whether a thread that has packets to put at the end of the queue asks the kernel for edges first.
    #[inline]
    pub(crate) fn asks(&mut self, scene: &impl Scene) -> bool {
        let asks = self.may_ask(scene);
        if asks {
            self.asked = self.asked.wrapping_add(1);
        }
        asks
    }

    #[inline]
    fn ask(&mut self, grow: bool) -> Action {
        self.asked = self.asked.wrapping_add(1);
        Action::Ask { grow }
    }

    /// Whether the thread asks the kernel, which may have more to report than there was room for,
    /// once more, so as to have that many packets.
    #[cold]
    fn may_ask_further(&self, turn: &mut Turn, packets: usize, scene: &impl Scene) -> bool {
        let is_short = scene.ready() + scene.unchecked() < packets;
        turn.further += 1;
        is_short && turn.further <= most_further(scene) && self.may_ask(scene)
    }

    /// Whether the thread of `me` may enter the kernel's wait, perhaps as one more beside others.
    ///
    /// No more threads enter the wait while the set is about to be replaced, since a thread that
    /// sleeps in the old set gets no edges of the new one. The kernel releases the thread that
    /// entered last, so only the newest one enters.
    #[inline]
    fn may_poll(&self, me: SeatNumber, scene: &impl Scene) -> bool {
        if self.seats.in_kernel() == 0 {
            return self.seats.has_room() && !scene.is_replacing();
        }
        self.may_join(me, scene)
    }

    #[inline(never)]
    fn may_join(&self, me: SeatNumber, scene: &impl Scene) -> bool {
        let in_kernel = self.seats.in_kernel();
        let running = self.seats.running();
        let searching = self.seats.others_at_work(me) - running;
        self.crew.may_join(in_kernel, running, searching, || scene.now())
            && self.seats.is_newest_poller(me)
            && !scene.is_replacing()
            && !scene.is_full_of_strays()
    }

    /// Threads that sleep in the kernel's wait.
    pub(crate) fn in_kernel(&self) -> usize {
        self.seats.in_kernel()
    }

    /// How many threads may run at once: the concurrency value, or the number of threads if that is
    /// lower.
    pub(crate) fn may_run(&self) -> usize {
        self.seats.may_run()
    }

    /// The thread of `me` has come out of the kernel's wait.
    #[inline]
    pub(crate) fn end_in_kernel(&mut self, me: SeatNumber) {
        self.seats.end_in_kernel(me);
    }

    /// A wake has brought the thread of `me` out of the kernel's wait. If several threads sleep
    /// there, the kernel chooses which one it wakes. If this thread was not meant, it adopts the
    /// wake-up of one that was. Returns whether another wake is due.
    #[inline(never)]
    pub(crate) fn woken(&mut self, me: SeatNumber, scene: &mut impl Scene) -> bool {
        if !self.seats.is_awaited(me)
            && let Some(meant) = self.seats.awaited()
        {
            self.seats.adopt_wakeup(me, meant);
            scene.adopt(meant);
        }
        if let Some(watching) = self.seats.watching()
            && watching != me
            && !self.watchdog.has_begun()
            && self.seats.is_in_kernel(watching)
        {
            // The wake was meant to start the watchdog. So this thread looks after the port, or
            // appoints another watchdog when it goes off.
            self.seats.resign();
        }
        // The kernel may merge two wakes into one.
        self.seats.awaited().is_some()
    }

    // ---- what others ask ----

    /// How many packets a thread takes at a time if it cannot give any back.
    pub(crate) fn advise(&mut self, now: Moment) -> u32 {
        let Self { advice, crew, .. } = self;
        advice.look(now, || crew.absent(now, AWAY) > 0);
        advice.room()
    }

    /// The threads and what they do, for hunting stalls.
    pub(crate) fn seats(&self) -> &dyn fmt::Debug {
        &self.seats
    }

    /// What the thread of `seat` does.
    pub(crate) fn status(&self, seat: SeatNumber) -> Status {
        self.seats.status(seat)
    }

    pub(crate) fn figures(&self) -> Figures {
        let is_blocked =
            |(_, status): &(_, Status)| matches!(status, Status::Blocked | Status::FoundAsleep);
        Figures {
            running: self.seats.running(),
            idle: self.seats.idle(),
            blocked: self.seats.statuses().filter(is_blocked).count(),
            wakes: self.wakes,
            spurious: self.spurious,
            blocks_found: self.sleepers.found(),
        }
    }

    /// Pretends that every packet so far took this long: for models in which no time passes.
    #[cfg(any(test, fuzzing))]
    #[allow(dead_code, reason = "for the models, which are a test crate of their own")]
    pub(crate) fn expect(&mut self, packet: Duration) {
        let packet = u64::try_from(packet.as_nanos()).unwrap_or(u64::MAX);
        (0..100).for_each(|_| self.crew.note(packet));
    }
}

/// How often the kernel is asked once more at most, by which all it has is found: each descriptor is
/// found once, unless something happens to it meanwhile.
pub(crate) fn most_further(scene: &impl Scene) -> usize {
    scene.registered() / USUAL_EDGES + 1
}
