//! The concurrency controller: how many packets a worker takes, when it wakes another one, and when
//! a returning worker is parked.
//!
//! A wake-up is the most expensive thing a port does, but a worker that is not woken leaves a
//! processor idle while packets wait. Two rules decide, and a third one checks their result:
//!
//! * *Burst*: queued packets are worth a wake-up if the active workers would need longer for them
//!   than the wake-up takes.
//! * *Sustained*: if a worker has not been idle for a while and has found more than one packet each
//!   time, one worker is missing, however short the queue. It wakes another one, so the number of
//!   workers doubles in each such period.
//! * *Trial*: more workers are not faster if other threads need the processors or if handlers
//!   contend. From time to time the controller runs half or twice as many workers, alternating with
//!   the current number. The larger number stays only if it gets more done. The result of a trial
//!   is `size`, the number of workers that the first two rules may activate. Beyond `size`, another
//!   worker is woken only for packets that would otherwise wait much longer.
//!
//! This module knows neither a clock nor threads: moments are arguments. Durations are nanoseconds
//! in a `u64`, since they are multiplied and divided by numbers of packets and workers.

mod kept;

use super::Moment;

/// The time from a wake-up until the thread runs. Work that the running workers finish within this
/// time is not worth a wake-up.
const WAKE: u64 = 25_000;

/// Queued packets must not wait longer than this plus [`WAKE`] while an idle worker could be woken
/// for them.
pub(super) const STAND: u64 = 75_000;

/// The limit that replaces [`STAND`] once a trial has shown that more workers get no more done,
/// because other threads or the clients need the processors.
const STAND_IN_VAIN: u64 = 400_000;

/// If packets take longer than this, every packet left in the queue is worth a wake-up. A thread
/// then also stays in the kernel's wait, since a packet that arrives in the meantime would have to
/// wait for a handler to finish.
const LONG: u64 = 15_000;

/// A worker that has held packets for this long loses them to an idle worker, whatever the estimate
/// of a packet's duration was.
const OVERDUE: u64 = 900_000;

/// A lone worker takes at most its fair part of the queue, or this many packets if that is more.
pub(super) const PART: usize = 16;

/// A worker that has been busy for this long wakes another one even if it leaves only a few packets
/// each time.
const SUSTAINED: u64 = 150_000;

/// The length of an interval: how long a trial runs each number of workers at a time.
const STRETCH: u64 = 1_000_000;

/// The first part of an interval is not measured, since workers are still waking up or being
/// parked.
const CHANGE: u64 = STRETCH / 4;

/// A trial ends after this many pairs of intervals, one for each number of workers. It ends after
/// the first pair if the larger number was in use before the trial and did better: an idle
/// processor costs more than a wrong result.
const PAIRS: u8 = 2;

/// The pauses between trials: before the first trial, after a trial that changed the number, the
/// longest one while all workers are in use, and the longest one while fewer are. Each trial
/// without a change doubles the pause.
const PAUSES: [u64; 4] = [2_000_000, 16_000_000, 1_000_000_000, 128_000_000];

/// The part of the queue that a worker takes when it leaves for its handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) packets: usize,
    /// Another worker should be woken for the rest.
    pub(crate) call: bool,
}

/// The state of the port as the worker that divides the queue sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Packets in the queue, including those that this worker will take.
    pub(crate) queued: usize,
    /// How many of them, at most, this worker has returned to the queue when it arrived.
    pub(crate) own: usize,
    /// How many packets this worker has room for.
    pub(crate) room: usize,
    /// Other active workers: they run, search, or were called and are not awake yet.
    pub(crate) others: usize,
    /// Idle workers that could be woken.
    pub(crate) helpers: usize,
    /// How many workers may run at a time: the concurrency value, or the number of workers if that
    /// is lower.
    pub(crate) threads: usize,
    /// Packets that the port has handed out so far.
    pub(crate) handed: u64,
}

/// What the controller knows of one worker.
#[derive(Clone, Copy, Debug, Default)]
struct WorkerLoad {
    /// Since when the worker has been busy, always finding more than one packet.
    busy_since: Option<Moment>,
    /// How often in a row the worker has found packets in the queue that it had returned to it
    /// itself, modulo 16.
    kept: u8,
    /// When the worker last took packets. Recorded only if the port has several workers, and either
    /// another one was active or several packets were queued.
    took_at: Option<Moment>,
    /// How many it took then.
    took: usize,
}

/// The controller of a port, guarded by the port's lock.
#[derive(Debug)]
pub(crate) struct Controller {
    /// The estimated time per packet, in nanoseconds. It approximates a running median, since some
    /// packets take a thousand times as long as others.
    pub(super) packet: u64,
    /// The concurrency value.
    limit: usize,
    /// How many workers the burst and sustained rules may activate.
    size: usize,
    loads: Vec<WorkerLoad>,
    /// Packets that were left in the queue: the value of `handed` at which all of them are handed
    /// out, and when they were seen.
    stands: Option<(u64, Moment)>,
    /// When several workers were last active and packets were left over.
    busy_at: Option<Moment>,
    trial: Trial,
    /// The length of the pause before the current or the last trial.
    pause: u64,
    /// Whether the last trial ended with the larger number.
    grew: bool,
}

#[derive(Debug)]
enum Trial {
    /// No trial starts before this moment. `None` until there is something to try.
    Pause {
        until: Option<Moment>,
    },
    Running(Intervals),
}

/// A running trial.
#[derive(Debug)]
struct Intervals {
    /// The two numbers of workers that are compared, and the number before the trial.
    numbers: [usize; 2],
    before: usize,
    /// How many workers could run when the trial began.
    threads: usize,
    /// The index into `numbers` for the current interval, when the interval began, and how many
    /// pairs are complete.
    which: usize,
    begun: Moment,
    pairs: u8,
    /// When measuring began, and the value of `handed` then. `None` while the interval is still
    /// settling.
    counted_from: Option<(Moment, u64)>,
    /// The total for each number so far: packets, and the time measured.
    done: [(u64, u64); 2],
}

impl Controller {
    /// Creates a controller whose `size` is the concurrency value.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            packet: 8_000,
            limit,
            size: limit,
            loads: Vec::new(),
            stands: None,
            busy_at: None,
            trial: Trial::Pause { until: None },
            pause: PAUSES[0],
            grew: true,
        }
    }

    /// Updates the estimate: a packet took `packet` nanoseconds.
    pub(crate) fn note(&mut self, packet: u64) {
        let step = self.packet / 8 + 1;
        self.packet = packet.clamp(self.packet.saturating_sub(step), self.packet + step);
    }

    /// Returns whether a packet takes about as long as a wake-up or longer, see [`LONG`].
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.packet >= LONG
    }

    /// Adds a worker, which is not active yet.
    pub(crate) fn worker(&mut self, worker: usize) {
        if self.loads.len() <= worker {
            self.loads.resize(worker + 1, WorkerLoad::default());
        }
        self.rest(worker);
    }

    /// Notes that the worker is idle, blocked or gone.
    #[inline]
    pub(crate) fn rest(&mut self, worker: usize) {
        self.loads[worker] = WorkerLoad::default();
    }

    /// Counts the workers whose packets are overdue. They are not expected to take more soon.
    fn absent(&self, now: Moment) -> usize {
        let is_absent = |load: &&WorkerLoad| {
            load.took_at.is_some_and(|took| now.nanoseconds_since(took) > OVERDUE)
        };
        self.loads.iter().filter(is_absent).count()
    }

    /// Returns when the packets of `worker` become overdue. `None` if the controller does not know
    /// when the worker took them.
    pub(crate) fn overdue_at(&self, worker: usize) -> Option<Moment> {
        self.loads[worker].took_at.map(|took| took.after(OVERDUE))
    }

    /// Returns whether the packets of `worker` are overdue. If the worker was alone when it took
    /// them, the time is unknown and counts from now.
    pub(crate) fn is_overdue(&mut self, worker: usize, now: Moment) -> bool {
        let took = *self.loads[worker].took_at.get_or_insert(now);
        now.nanoseconds_since(took) >= OVERDUE
    }

    /// Estimates how long the last of `packets` waits if `threads` workers handle them.
    fn standing(&self, packets: usize, threads: usize) -> u64 {
        packets as u64 * self.packet / threads.max(1) as u64
    }

    /// Returns how long queued packets may wait while this many `workers` are active.
    fn patience(&self, workers: usize) -> u64 {
        // A running trial has not shown anything yet.
        let is_tried = matches!(self.trial, Trial::Running(_));
        if workers < self.size || is_tried { STAND } else { STAND_IN_VAIN }
    }

    /// Returns whether `packets` left to `workers` workers are worth a wake-up.
    pub(crate) fn is_worth_a_wake(&self, packets: usize, workers: usize) -> bool {
        let most = if workers < self.size { WAKE } else { self.patience(workers) };
        packets > 0 && (self.is_long() || self.standing(packets, workers) > most)
    }

    /// Returns whether the returning `worker` may be parked, leaving the queue and new events to
    /// the `others`. This requires that enough of the others are active and return as often as this
    /// worker does, and that so little is queued that a worker woken later would still be in time.
    pub(crate) fn leaves(
        &self,
        worker: usize,
        queued: usize,
        others: usize,
        now: impl FnOnce() -> Moment,
    ) -> bool {
        const SOON: u64 = STAND_IN_VAIN / 2;
        if others < self.size || self.is_long() {
            return false;
        }
        let now = now();
        let others = others - self.absent(now).min(others);
        others >= self.size
            && self.standing(queued, others) <= SOON
            && self.loads[worker].took_at.is_some_and(|took| now.nanoseconds_since(took) <= SOON)
    }

    /// Returns whether a worker that finds nothing may sleep in the kernel's wait next to
    /// `in_kernel` others, while others are running and `searching`. The kernel then wakes it for
    /// the next event, and no running worker has to.
    ///
    /// While packets are long, no other worker would return soon for that event. While packets are
    /// short, the next worker to return takes several, so another sleeper is useful only if several
    /// workers were not enough lately.
    pub(crate) fn may_join(
        &self,
        in_kernel: usize,
        running: usize,
        searching: usize,
        now: impl FnOnce() -> Moment,
    ) -> bool {
        if self.is_long() {
            return in_kernel + running < self.limit;
        }
        let Some(busy) = self.busy_at else { return false };
        let now = now();
        now < busy.after(SUSTAINED)
            && in_kernel + running + searching < self.size + self.absent(now).min(running)
    }

    /// Returns how many packets `worker` takes if no other worker may run.
    #[inline]
    pub(crate) fn take_alone(&mut self, worker: usize, queued: usize, room: usize) -> usize {
        // Recording the time would cost a clock read.
        self.loads[worker].took_at = None;
        queued.min(room)
    }

    /// Returns what `worker` takes, and whether it wakes another worker. Calls `now` only where the
    /// time matters.
    pub(crate) fn divide(
        &mut self,
        worker: usize,
        view: View,
        now: impl FnOnce() -> Moment,
    ) -> Share {
        let View { queued, room, others, helpers, threads, handed, .. } = view;
        if threads <= 1 {
            return Share { packets: self.take_alone(worker, queued, room), call: false };
        }
        let is_more = queued > 1;
        if !is_more {
            self.loads[worker].busy_since = None;
            self.stands = None;
            if others == 0 {
                self.loads[worker].took_at = None;
                return Share { packets: queued.min(room), call: false };
            }
        }
        let now = now();
        self.loads[worker].took_at = Some(now);
        // An absent worker will not take its part of the queue.
        let others = others - self.absent(now).min(others);
        let view = View { others, ..view };
        let mut share = if self.is_long() || self.has_stood(view, now) {
            // Take little, to return soon: otherwise packets wait for a handler although other
            // workers could take them.
            let packets = queued.div_ceil(2 * threads).min(room);
            Share { packets, call: packets < queued }
        } else {
            if is_more && others > 0 {
                self.busy_at = Some(now);
            }
            self.advance(now, threads, handed);
            self.divide_short(worker, view, now)
        };
        self.loads[worker].took = share.packets;
        share.call &= helpers > 0;
        if share.packets == queued {
            self.stands = None;
        }
        if share.call {
            self.loads[worker].busy_since = None;
        }
        share
    }

    /// Divides packets that take less time than a wake-up.
    fn divide_short(&mut self, worker: usize, view: View, now: Moment) -> Share {
        let View { queued, own, room, others, helpers, threads, .. } = view;
        let workers = others + 1;
        let own = self.kept(worker, own.min(queued));
        let with_help = queued.div_ceil(workers + 1);
        let sustained = queued > 1 && workers < self.size && self.is_sustained(worker, now);
        let burst = self.is_worth_a_wake(queued - with_help, workers)
            || self.standing(queued, workers) > self.patience(workers);
        let is_helped = helpers > 0 && (sustained || burst);
        let part = match (is_helped, workers) {
            (true, _) => with_help,
            // The worker returns for the rest, and polls in between.
            (false, 1) => queued.div_ceil(threads).max(PART),
            // Usually it keeps the same ones, which are in that processor's cache.
            (false, _) => own + (queued - own).div_ceil(workers),
        };
        let packets = part.min(queued).min(room);
        let call = is_helped || self.is_worth_a_wake(queued - packets, workers);
        Share { packets, call }
    }

    /// Returns whether the first queued packet was seen long ago. If so, handlers take longer than
    /// estimated.
    fn has_stood(&mut self, view: View, now: Moment) -> bool {
        let View { queued, others, handed, .. } = view;
        let most = self.patience(others + 1);
        match self.stands {
            Some((number, since)) if handed < number => now.nanoseconds_since(since) > most,
            _ => {
                self.stands = Some((handed + queued as u64, now));
                false
            }
        }
    }

    /// Notes that no running worker has returned recently, so any packet found now may have waited
    /// a while. Applies until the port has handed out `handed` packets.
    pub(crate) fn was_unattended(&mut self, handed: u64) {
        self.stands = Some((handed, Moment::ZERO));
    }

    /// Returns whether `worker` has been busy for long enough to wake another worker.
    fn is_sustained(&mut self, worker: usize, now: Moment) -> bool {
        let long_enough = match &self.trial {
            // A trial measures throughput, not how quickly workers become active.
            Trial::Running(_) => 0,
            Trial::Pause { .. } => SUSTAINED,
        };
        let since = *self.loads[worker].busy_since.get_or_insert(now);
        now.nanoseconds_since(since) >= long_enough
    }

    /// Continues the running trial or begins one. `threads` is how many workers may run at a time,
    /// `handed` how many packets the port has handed out.
    fn advance(&mut self, now: Moment, threads: usize, handed: u64) {
        match &mut self.trial {
            Trial::Pause { until: None } => {
                self.trial = Trial::Pause { until: Some(now.after(self.pause)) };
            }
            Trial::Pause { until: Some(until) } if now < *until => {}
            Trial::Pause { .. } => self.begin(now, threads),
            Trial::Running(trial) => {
                let (before, threads) = (trial.before, trial.threads);
                match trial.advance(now, handed) {
                    IntervalEnd::Same => {}
                    IntervalEnd::Next(size) => self.size = size,
                    IntervalEnd::Over(size) => {
                        self.grew = size == trial.numbers[1];
                        let most = if size < threads { PAUSES[3] } else { PAUSES[2] };
                        let longer = (2 * self.pause).clamp(PAUSES[1], most);
                        self.pause = if size == before { longer } else { PAUSES[1] };
                        self.end(size, threads, now);
                    }
                    IntervalEnd::Void => {
                        self.pause = (2 * self.pause).clamp(PAUSES[1], PAUSES[3]);
                        self.end(before, threads, now);
                    }
                }
            }
        }
    }

    /// Begins a trial with half or twice the current number of workers.
    fn begin(&mut self, now: Moment, threads: usize) {
        let before = self.size.min(threads);
        let up = before == 1 || before < threads && self.grew;
        let numbers =
            if up { [before, (2 * before).min(threads)] } else { [before.div_ceil(2), before] };
        // The number that is not in use now goes first.
        let which = usize::from(up);
        self.size = numbers[which];
        self.trial = Trial::Running(Intervals {
            numbers,
            before,
            threads,
            which,
            begun: now,
            pairs: 0,
            counted_from: None,
            done: [(0, 0); 2],
        });
    }

    /// Ends a trial and sets `size`. If `size` covers all current workers, it becomes the
    /// concurrency value, so that workers that join later run as well.
    fn end(&mut self, size: usize, threads: usize, now: Moment) {
        self.size = if size >= threads { self.limit } else { size };
        self.trial = Trial::Pause { until: Some(now.after(self.pause)) };
    }
}

/// The outcome of an interval, with the number of workers to run next.
enum IntervalEnd {
    Same,
    Next(usize),
    Over(usize),
    /// The workers had so little to do that the trial shows nothing.
    Void,
}

impl Intervals {
    fn advance(&mut self, now: Moment, handed: u64) -> IntervalEnd {
        let since = now.nanoseconds_since(self.begun);
        if since > 3 * STRETCH {
            return IntervalEnd::Void;
        }
        if since < CHANGE {
            return IntervalEnd::Same;
        }
        let Some((from, at)) = self.counted_from else {
            self.counted_from = Some((now, handed));
            return IntervalEnd::Same;
        };
        if now.nanoseconds_since(from) < STRETCH - CHANGE {
            return IntervalEnd::Same;
        }
        let (packets, time) = &mut self.done[self.which];
        *packets += handed - at;
        *time += now.nanoseconds_since(from);
        let worked = self.numbers[self.which];
        if worked == self.before {
            // The other number had its interval first.
            self.pairs += 1;
            let better = self.numbers[usize::from(self.is_greater_better())];
            let stays = better == self.before && better == self.numbers[1];
            if stays || self.pairs == PAIRS {
                return IntervalEnd::Over(better);
            }
        }
        self.which = 1 - self.which;
        self.begun = now;
        self.counted_from = None;
        IntervalEnd::Next(self.numbers[self.which])
    }

    /// Returns whether the additional workers add at least an eighth of the throughput that they
    /// would add with perfect scaling.
    fn is_greater_better(&self) -> bool {
        let [lower, higher] = self.numbers.map(|number| number as u128);
        let [less, more] = self.done.map(|(packets, time)| (u128::from(packets), u128::from(time)));
        // more / its time >= less / its time * (1 + (higher - lower) / lower / 8)
        more.0 * less.1 * 8 * lower >= less.0 * more.1 * (8 * lower + (higher - lower))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    fn at(nanoseconds: u64) -> Moment {
        Moment::from_nanoseconds(nanoseconds)
    }

    /// A controller for this many workers, all of which may run, with packets of `packet`
    /// nanoseconds.
    fn controller(threads: usize, packet: u64) -> Controller {
        let mut controller = Controller::new(threads);
        (0..threads).for_each(|worker| controller.worker(worker));
        (0..200).for_each(|_| controller.note(packet));
        controller
    }

    /// The view of a worker that has just returned: `others` are active and the rest are idle.
    fn view(threads: usize, queued: usize, others: usize) -> View {
        let helpers = threads - others - 1;
        View { queued, own: 0, room: 64, others, helpers, threads, handed: 0 }
    }

    fn divide(controller: &mut Controller, view: View) -> (usize, bool) {
        let Share { packets, call } = controller.divide(0, view, || at(0));
        (packets, call)
    }

    #[test]
    fn a_single_slow_packet_changes_little_and_many_change_all() {
        let mut controller = controller(2, 5_000);
        controller.note(5_000_000);
        assert!(!controller.is_long());
        (0..20).for_each(|_| controller.note(20_000));
        assert!(controller.is_long());
        (0..20).for_each(|_| controller.note(5_000));
        assert!(!controller.is_long());
    }

    #[test]
    fn a_thread_that_is_alone_takes_everything_and_asks_for_no_time() {
        let mut controller = controller(1, 5_000);
        let view = View { helpers: 0, ..view(1, 50, 0) };
        let share = controller.divide(0, view, || unreachable!("time does not matter"));
        assert_eq!(share, Share { packets: 50, call: false });
    }

    #[test]
    fn a_burst_is_worth_a_wake_if_its_half_takes_longer_than_a_wake() {
        // Half of ten packets of 5 us takes 25 us, half of twelve 30 us.
        assert_eq!(divide(&mut controller(2, 5_000), view(2, 10, 0)), (10, false));
        assert_eq!(divide(&mut controller(2, 5_000), view(2, 12, 0)), (6, true));
        // Two workers need 15 us for what takes one 30 us.
        assert_eq!(divide(&mut controller(4, 5_000), view(4, 12, 1)), (6, false));
        assert_eq!(divide(&mut controller(4, 5_000), view(4, 18, 1)), (6, true));
    }

    #[test]
    fn of_long_packets_each_one_that_is_left_is_worth_a_wake() {
        assert_eq!(divide(&mut controller(2, 20_000), view(2, 1, 0)), (1, false));
        assert_eq!(divide(&mut controller(2, 20_000), view(2, 2, 0)), (1, true));
        assert_eq!(
            divide(&mut controller(2, 20_000), view(2, 64, 1)),
            (16, false),
            "nobody is idle"
        );
    }

    #[test]
    fn of_what_may_have_stood_for_long_each_packet_is_worth_a_wake() {
        let mut controller = controller(4, 1_000);
        controller.was_unattended(u64::MAX);
        let mut taken =
            [5, 4, 1, 5].map(|queued| controller.divide(0, view(4, queued, 0), || at(STAND + 1)));
        assert_eq!(
            taken.map(|it| (it.packets, it.call)),
            [(1, true), (1, true), (1, false), (5, false)]
        );
        // Packets that another worker has seen in the queue count as well.
        taken = [0, 0, STAND, STAND + 1]
            .map(|now| controller.divide(0, View { room: 1, ..view(4, 5, 0) }, || at(now)));
        assert_eq!(taken.map(|it| it.call), [false, false, false, true]);
    }

    #[test]
    fn what_a_thread_brings_back_stays_with_it() {
        let mut controller = controller(2, 1_000);
        let mut taken = |queued| divide(&mut controller, View { own: 8, ..view(2, queued, 1) }).0;
        assert_eq!(taken(8), 8);
        assert_eq!(taken(12), 10, "and half of the rest");
        assert_eq!(taken(4), 4, "another thread has taken some meanwhile");
        assert_eq!([0; 14].map(|_| taken(8))[11..], [8, 4, 8], "the sixteenth time");
    }

    #[test]
    fn threads_at_work_divide_what_there_is() {
        assert_eq!(divide(&mut controller(4, 1_000), view(4, 12, 3)), (3, false));
        assert_eq!(divide(&mut controller(4, 1_000), view(4, 2, 3)), (1, false));
    }

    #[test]
    fn nothing_falls_to_a_thread_that_does_not_come_back() {
        let mut controller = controller(3, 1_000);
        let mut handed = 0;
        let mut divide = |worker, others, now| {
            handed += 12;
            let view = View { helpers: 0, handed, ..view(3, 12, others) };
            controller.divide(worker, view, || at(now)).packets
        };
        assert_eq!(divide(1, 1, 0), 6);
        assert_eq!(divide(0, 1, OVERDUE), 6);
        assert_eq!(divide(0, 1, OVERDUE + 1), 12, "as if it were alone");
        assert_eq!(divide(0, 2, OVERDUE + 2), 6, "one of the others may come back");
        controller.rest(1);
        assert_eq!(controller.absent(at(2 * OVERDUE)), 0);
    }

    #[test]
    fn nothing_is_left_to_a_thread_that_does_not_come_back() {
        let mut controller = controller(2, 1_000);
        controller.size = 1;
        controller.divide(1, view(2, 2, 1), || at(0));
        controller.divide(0, view(2, 2, 1), || at(OVERDUE));
        assert!(controller.leaves(0, 1, 1, || at(OVERDUE)));
        assert!(!controller.leaves(0, 1, 1, || at(OVERDUE + 1)));
        controller.divide(1, view(2, 2, 1), || at(OVERDUE + 1));
        assert!(controller.leaves(0, 1, 1, || at(OVERDUE + 1)));
    }

    #[test]
    fn what_is_left_for_want_of_room_counts() {
        let view = View { room: 4, ..view(2, 10, 0) };
        assert_eq!(divide(&mut controller(2, 5_000), view), (4, true));
    }

    /// One worker always finds two packets of a microsecond each and takes both, so there is no
    /// burst.
    #[test]
    fn a_thread_that_is_never_idle_calls_one_more_after_a_while() {
        let mut controller = controller(2, 1_000);
        let called = (0..1_000).map(|turn| turn * 2_000).find(|now| {
            let share = controller.divide(0, view(2, 2, 0), || at(*now));
            assert_eq!(share.packets, if share.call { 1 } else { 2 });
            share.call
        });
        assert_eq!(called, Some(SUSTAINED));
    }

    #[test]
    fn a_thread_that_rests_or_finds_a_single_packet_begins_anew() {
        for pause in [Controller::rest, |controller: &mut Controller, worker| {
            controller.divide(worker, view(2, 1, 0), || at(0));
        }] {
            let mut controller = controller(2, 1_000);
            for turn in 0..1_000 {
                let now = turn * 2_000;
                if now % 100_000 == 0 {
                    pause(&mut controller, 0);
                }
                assert!(!controller.divide(0, view(2, 2, 0), || at(now)).call, "at {now}");
            }
        }
    }

    /// A simulation of workers with packets of `packet` nanoseconds and a queue that is never
    /// empty. Together, the workers are as fast as `speed` single ones.
    struct Work {
        controller: Controller,
        threads: usize,
        speed: fn(usize) -> f64,
        workers: usize,
        handed: u64,
        now: u64,
        queued: usize,
    }

    impl Work {
        fn new(threads: usize, packet: u64, queued: usize, speed: fn(usize) -> f64) -> Self {
            let controller = controller(threads, packet);
            Self { controller, threads, speed, workers: 1, handed: 0, now: 0, queued }
        }

        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rough simulation"
        )]
        fn run_until(&mut self, end: u64, mut watch: impl FnMut(&Self)) {
            while self.now < end {
                for worker in 0..self.workers {
                    let others = self.workers - 1;
                    let now = self.now;
                    if others > 0 && self.controller.leaves(worker, self.queued, others, || at(now))
                    {
                        // Which worker is parked makes no difference here.
                        self.workers -= 1;
                        self.controller.rest(self.workers);
                        break;
                    }
                    let helpers = self.threads - self.workers;
                    let view = View {
                        queued: self.queued,
                        own: 0,
                        room: 64,
                        others,
                        helpers,
                        threads: self.threads,
                        handed: self.handed,
                    };
                    let now = self.now;
                    let share = self.controller.divide(worker, view, || at(now));
                    self.handed += share.packets as u64;
                    let each = self.controller.packet as f64 / (self.speed)(self.workers);
                    self.now += (share.packets as f64 * each) as u64;
                    self.workers += usize::from(share.call && helpers > 0);
                }
                watch(self);
            }
        }
    }

    #[test]
    fn threads_that_do_more_together_come_to_work_and_stay() {
        for threads in [2, 4, 16] {
            for packet in [1_000, 2_000, 5_000, 10_000] {
                let mut work = Work::new(threads, packet, 2 * threads, |workers| workers as f64);
                work.run_until(MILLISECOND, |_| {});
                assert_eq!(work.workers, threads, "{packet}");
                let (mut less, mut all) = (0, 0);
                work.run_until(150 * MILLISECOND, |work| {
                    all += 1;
                    less += u64::from(work.workers < threads);
                });
                assert!(less * 20 < all, "{threads} threads, {packet}: {less} of {all}");
            }
        }
    }

    #[test]
    fn threads_that_do_no_more_together_go_to_rest_and_are_seldom_tried() {
        for threads in [2, 4, 16] {
            let mut work = Work::new(threads, 2_000, 8, |_| 1.0);
            work.run_until(300 * MILLISECOND, |_| {});
            let (mut more, mut all) = (0, 0);
            work.run_until(3_000 * MILLISECOND, |work| {
                all += 1;
                more += u64::from(work.workers > 1);
            });
            assert!(more * 20 < all, "{threads} threads: {more} of {all}");
        }
    }

    #[test]
    fn what_changes_is_found_by_the_next_trial() {
        let mut work = Work::new(2, 2_000, 8, |_| 1.0);
        work.run_until(3_000 * MILLISECOND, |_| {});
        work.speed = |workers| workers as f64;
        work.run_until(4_200 * MILLISECOND, |_| {});
        assert_eq!(work.controller.size, 2);
        work.speed = |_| 1.0;
        work.run_until(5_400 * MILLISECOND, |_| {});
        assert_eq!(work.controller.size, 1);
    }

    #[test]
    fn a_crew_that_has_all_threads_takes_in_those_that_come_later() {
        let mut work = Work::new(8, 2_000, 16, |workers| workers as f64);
        work.threads = 2;
        work.run_until(100 * MILLISECOND, |_| {});
        work.threads = 8;
        work.run_until(102 * MILLISECOND, |_| {});
        assert_eq!(work.workers, 8);
    }

    #[test]
    fn threads_that_come_during_a_trial_come_to_work() {
        let mut work = Work::new(8, 2_000, 16, |workers| workers as f64);
        work.threads = 2;
        while matches!(work.controller.trial, Trial::Pause { .. }) {
            work.run_until(work.now + STRETCH / 10, |_| {});
        }
        work.threads = 8;
        while matches!(work.controller.trial, Trial::Running(_)) {
            work.run_until(work.now + STRETCH / 10, |_| {});
        }
        assert_eq!(
            work.controller.size, 8,
            "the trial was one of two threads, and both were needed"
        );
        work.run_until(work.now + MILLISECOND, |_| {});
        assert_eq!(work.workers, 8);
    }

    #[test]
    fn a_trial_in_which_nothing_happens_tells_nothing_and_makes_the_pause_longer() {
        let mut controller = controller(2, 2_000);
        let size = controller.size;
        let (mut now, mut handed) = (0, 0);
        let mut divide = |controller: &mut Controller, now: u64| {
            handed += 2;
            controller.divide(0, View { handed, ..view(2, 2, 1) }, || at(now));
        };
        let pauses = [(); 6].map(|()| {
            divide(&mut controller, now);
            let Trial::Pause { until: Some(until) } = controller.trial else {
                panic!("{:?}", controller.trial);
            };
            let until = until.nanoseconds();
            assert_eq!(controller.size, size);
            let pause = until - now;
            divide(&mut controller, until);
            assert!(matches!(controller.trial, Trial::Running(_)));
            now = until + 10 * STRETCH;
            pause
        });
        assert_eq!(pauses, [2, 16, 32, 64, 128, 128].map(|pause| pause * MILLISECOND));
    }

    proptest! {
        /// A worker always takes at least one packet, and no more than are queued or than it has
        /// room for. It wakes no worker if none is idle, and leaves nothing that would wait too
        /// long.
        #[test]
        fn nothing_stands_for_long_while_a_thread_is_idle(
            threads in 2_usize..20,
            steps in prop::collection::vec(
                (0_usize..20, 1_usize..300, 1_usize..65, 0_usize..20, 0_u64..400_000, 1_u64..60_000, any::<bool>()),
                1..200,
            ),
        ) {
            let mut controller = controller(threads, 5_000);
            let (mut now, mut handed) = (MILLISECOND, 0);
            for (worker, queued, room, others, time, packet, late) in steps {
                now += time;
                controller.note(packet);
                let (worker, others) = (worker % threads, others % threads);
                let helpers = threads - 1 - others;
                if late {
                    controller.was_unattended(u64::MAX);
                }
                let view = View { queued, own: worker, room, others, helpers, threads, handed };
                let Share { packets, call } = controller.divide(worker, view, || at(now));
                handed += packets as u64;
                prop_assert!(packets >= 1 && packets <= queued.min(room));
                prop_assert!(!call || helpers > 0);
                let left = queued - packets;
                if helpers > 0 && !call {
                    prop_assert!(left == 0 || !late);
                    let most = controller.patience(others + 1);
                    prop_assert!(controller.standing(left, others + 1) <= most);
                    prop_assert!(controller.standing(queued, others + 1) <= most || controller.is_long());
                }
                prop_assert!(controller.size >= 1 && controller.size <= controller.limit);
            }
        }

        /// A worker is parked only if others are active, and leaves them nothing that would wait
        /// too long.
        #[test]
        fn a_thread_leaves_only_what_others_soon_take(
            packet in 100_u64..60_000,
            queued in 0_usize..300,
            others in 0_usize..16,
            size in 1_usize..=16,
            away in 0_u64..MILLISECOND,
        ) {
            let mut controller = controller(16, packet);
            controller.size = size;
            controller.divide(0, view(16, 2, 1), || at(MILLISECOND));
            if controller.leaves(0, queued, others, || at(MILLISECOND + away)) {
                prop_assert!(others >= size);
                prop_assert!(controller.standing(queued, others) <= STAND_IN_VAIN / 2);
                prop_assert!(away <= STAND_IN_VAIN / 2);
            }
        }
    }
}
