//! The table of workers: the concurrency value, which workers wait, and which one is woken next.
//!
//! Every method is called with the port's lock held. Nothing here sleeps or wakes a thread: the
//! caller does what a method returns.

use std::fmt;

/// The number of a worker.
pub(crate) type WorkerNumber = usize;

/// What the port believes a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The number is free.
    Vacant,
    /// In user code and not counted: the worker has never taken a packet, or its last wait found
    /// the port closed.
    Away,
    /// In user code with packets, or after a wait that timed out: counted.
    Running,
    /// Blocked in user code and not counted. The worker announced that, and will announce the end.
    Blocked,
    /// Blocked in user code and not counted, without an announcement. Other workers must find out
    /// when it ends.
    FoundAsleep,
    /// In user code with packets for so long that it is not counted until it waits.
    Excess,
    /// In a wait, looking for packets.
    Searching,
    /// In a wait, on the list of idle workers: parked or in the kernel's wait.
    Idle,
    /// Taken off that list to search, but not awake yet.
    Called,
    /// Taken off that list and handed a packet, so counted, but not awake yet.
    Given,
}

/// The state of one worker.
struct WorkerState {
    status: Status,
    /// The value of `arrivals` when the worker last left for user code.
    arrivals_before: u64,
    /// The value of `beginnings` when the worker last began to sleep in a wait.
    since: u64,
}

impl fmt::Debug for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, arrivals_before, since } = self;
        write!(f, "{status:?} arrivals_before {arrivals_before} since {since}")
    }
}

/// The workers of a port.
#[derive(Debug)]
pub(crate) struct WorkerTable {
    limit: usize,
    /// How many workers there are.
    joined: usize,
    running: usize,
    searching: usize,
    called: usize,
    /// How often workers have begun a wait.
    arrivals: u64,
    /// How many workers are [`Status::FoundAsleep`].
    presumed: usize,
    /// How many workers are [`Status::Excess`].
    excess: usize,
    places: Vec<WorkerState>,
    /// The waiting workers, newest last.
    idle: Vec<WorkerNumber>,
    /// How often workers have begun to sleep in a wait.
    beginnings: u64,
    /// The workers in the kernel's wait.
    in_kernel: Vec<WorkerNumber>,
    watching: Option<WorkerNumber>,
}

impl WorkerTable {
    /// Creates the table of a port that lets `limit` workers run at a time.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            joined: 0,
            running: 0,
            searching: 0,
            called: 0,
            arrivals: 0,
            presumed: 0,
            excess: 0,
            places: Vec::new(),
            idle: Vec::new(),
            beginnings: 0,
            in_kernel: Vec::new(),
            watching: None,
        }
    }

    /// Adds a worker.
    pub(crate) fn join(&mut self) -> WorkerNumber {
        let vacant = self.places.iter().position(|place| place.status == Status::Vacant);
        let number = vacant.unwrap_or_else(|| {
            self.places.push(WorkerState { status: Status::Vacant, arrivals_before: 0, since: 0 });
            // Reserve now, so that going idle never allocates.
            self.idle.reserve(self.places.len());
            self.in_kernel.reserve(self.places.len());
            self.places.len() - 1
        });
        self.places[number].status = Status::Away;
        self.joined += 1;
        number
    }

    /// Removes `worker`.
    pub(crate) fn leave(&mut self, worker: WorkerNumber) {
        self.stop_counting(worker);
        self.places[worker].status = Status::Vacant;
        self.joined -= 1;
        if self.watching == Some(worker) {
            self.watching = None;
        }
    }

    #[inline]
    pub(crate) fn status(&self, worker: WorkerNumber) -> Status {
        self.places[worker].status
    }

    pub(crate) fn statuses(&self) -> impl Iterator<Item = (WorkerNumber, Status)> + '_ {
        self.places.iter().map(|place| place.status).enumerate()
    }

    /// Returns how many workers count against the concurrency value.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    #[inline]
    pub(crate) fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Returns whether another worker may be handed packets.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.running < self.limit
    }

    /// Returns how many workers are in a wait and were handed nothing.
    pub(crate) fn waiting(&self) -> usize {
        self.idle.len() + self.searching + self.called
    }

    /// Returns how many workers are active: they run, search, or were called and are not awake yet.
    #[inline]
    pub(crate) fn at_work(&self) -> usize {
        self.running + self.searching + self.called
    }

    /// Counts the active workers without `worker`, which is in a wait.
    #[inline]
    pub(crate) fn others_at_work(&self, worker: WorkerNumber) -> usize {
        self.at_work() - usize::from(self.places[worker].status == Status::Searching)
    }

    /// Returns whether a worker other than `worker` and the watchdog runs, or has arrived and is still
    /// awake in its wait. It soon sees what there is.
    pub(crate) fn is_another_busy(&self, worker: WorkerNumber) -> bool {
        self.statuses().any(|(other, status)| {
            other != worker
                && self.watching != Some(other)
                && matches!(status, Status::Running | Status::Searching)
        })
    }

    /// Returns how many workers could be woken in addition to `worker`, which is about to run.
    #[inline]
    pub(crate) fn helpers(&self, worker: WorkerNumber) -> usize {
        // A searching worker will take a place under the concurrency value.
        if self.others_at_work(worker) + 1 >= self.limit {
            return 0;
        }
        let me = usize::from(self.places[worker].status == Status::Idle);
        self.idle.len() - me
    }

    /// Returns how many workers may run at a time: the concurrency value, or the number of workers
    /// if that is lower.
    pub(crate) fn may_run(&self) -> usize {
        self.limit.min(self.joined)
    }

    /// Begins a wait of `worker`. Returns whether another worker has begun one since `worker` last
    /// left.
    #[inline]
    pub(crate) fn arrive(&mut self, worker: WorkerNumber) -> bool {
        self.stop_counting(worker);
        self.searching += 1;
        let place = &mut self.places[worker];
        place.status = Status::Searching;
        let others_came = self.arrivals != place.arrivals_before;
        self.arrivals += 1;
        others_came
    }

    /// Lets `worker` leave with packets or after a timeout, and counts it from now on.
    #[inline]
    pub(crate) fn run(&mut self, worker: WorkerNumber) {
        self.unlist(worker);
        if self.watching == Some(worker) {
            self.watching = None;
        }
        let place = &mut self.places[worker];
        match place.status {
            Status::Given => {}
            Status::Searching => {
                self.searching -= 1;
                self.running += 1;
            }
            _ => self.running += 1,
        }
        place.status = Status::Running;
        place.arrivals_before = self.arrivals;
    }

    /// Ends the wait of `worker`, because the port has no more packets.
    pub(crate) fn dismiss(&mut self, worker: WorkerNumber) {
        self.stop_counting(worker);
        if self.watching == Some(worker) {
            self.watching = None;
        }
        self.places[worker].status = Status::Away;
    }

    /// Returns how many workers were found asleep. They may be awake again.
    #[inline]
    pub(crate) fn presumed_blocked(&self) -> usize {
        self.presumed
    }

    /// Notes that `worker` is about to sleep in its wait.
    #[inline]
    pub(crate) fn rest(&mut self, worker: WorkerNumber) {
        let place = &mut self.places[worker];
        if place.status == Status::Searching {
            place.status = Status::Idle;
            self.searching -= 1;
            self.beginnings += 1;
            place.since = self.beginnings;
            self.idle.push(worker);
        }
    }

    /// Notes that `worker`, if it was called, is awake.
    pub(crate) fn answer(&mut self, worker: WorkerNumber) {
        if self.places[worker].status == Status::Called {
            self.called -= 1;
            self.searching += 1;
            self.places[worker].status = Status::Searching;
        }
    }

    /// Takes the newest idle worker off the list to search. Returns `None` if no worker is idle, if
    /// the active workers use up the concurrency value, or if a called worker is not awake yet.
    pub(crate) fn call(&mut self) -> Option<WorkerNumber> {
        if self.called > 0 || self.at_work() >= self.limit {
            return None;
        }
        self.call_anyway()
    }

    /// Takes the newest idle worker off the list to search, whatever the concurrency value.
    pub(crate) fn call_anyway(&mut self) -> Option<WorkerNumber> {
        let worker = self.idle.pop()?;
        self.called += 1;
        self.places[worker].status = Status::Called;
        Some(worker)
    }

    /// Takes the newest idle worker off the list to hand it a packet, and counts it. Returns `None`
    /// if no worker is idle, if the concurrency value is used up, or if a called worker will find
    /// the packet.
    pub(crate) fn give(&mut self) -> Option<WorkerNumber> {
        if self.called > 0 || !self.has_room() {
            return None;
        }
        let worker = self.idle.pop()?;
        self.running += 1;
        self.places[worker].status = Status::Given;
        Some(worker)
    }

    /// Returns how many workers are in the kernel's wait.
    #[inline]
    pub(crate) fn in_kernel(&self) -> usize {
        self.in_kernel.len()
    }

    #[inline]
    pub(crate) fn is_in_kernel(&self, worker: WorkerNumber) -> bool {
        self.in_kernel.contains(&worker)
    }

    /// Returns whether every worker in the kernel's wait began its sleep before `worker`, which is
    /// in a wait. The kernel wakes the thread that entered last, which will then be the newest here
    /// as well.
    pub(crate) fn is_newest_poller(&self, worker: WorkerNumber) -> bool {
        self.places[worker].status != Status::Idle
            || self
                .in_kernel
                .iter()
                .all(|other| self.places[*other].since < self.places[worker].since)
    }

    /// Notes that `worker` enters the kernel's wait.
    #[inline]
    pub(crate) fn begin_in_kernel(&mut self, worker: WorkerNumber) {
        self.in_kernel.push(worker);
    }

    /// Notes that `worker` has left the kernel's wait.
    #[inline]
    pub(crate) fn end_in_kernel(&mut self, worker: WorkerNumber) {
        if self.in_kernel.last() == Some(&worker) {
            self.in_kernel.pop();
        } else {
            self.in_kernel.retain(|other| *other != worker);
        }
    }

    /// Returns a worker in the kernel's wait that was taken off the list and is not awake yet.
    pub(crate) fn awaited(&self) -> Option<WorkerNumber> {
        self.in_kernel.iter().copied().find(|worker| self.is_awaited(*worker))
    }

    /// Returns whether `worker` was taken off the list and is not awake yet.
    pub(crate) fn is_awaited(&self, worker: WorkerNumber) -> bool {
        matches!(self.places[worker].status, Status::Called | Status::Given)
    }

    /// Lets `worker`, which is in a wait, adopt the wake-up of `absent`: it gets the status of
    /// `absent`, which returns to its old place in the list.
    pub(crate) fn adopt_wakeup(&mut self, worker: WorkerNumber, absent: WorkerNumber) {
        self.unlist(worker);
        self.searching -= 1;
        self.places[worker].status =
            std::mem::replace(&mut self.places[absent].status, Status::Idle);
        let before = |other: &WorkerNumber| self.places[*other].since < self.places[absent].since;
        let place = self.idle.partition_point(before);
        self.idle.insert(place, absent);
    }

    /// Returns the watchdog: the idle worker that attends to the port at short intervals.
    #[inline]
    pub(crate) fn watching(&self) -> Option<WorkerNumber> {
        self.watching
    }

    /// Appoints the watchdog: the newest parked worker, or a worker in the kernel's wait if no
    /// other is idle. Returns `None` if no worker is idle.
    pub(crate) fn appoint(&mut self) -> Option<WorkerNumber> {
        let parked = self.idle.iter().rev().copied().find(|worker| !self.is_in_kernel(*worker));
        self.watching = parked.or_else(|| self.idle.last().copied());
        self.watching
    }

    /// Makes `worker`, which is in a wait, the watchdog.
    pub(crate) fn watch(&mut self, worker: WorkerNumber) {
        self.watching = Some(worker);
    }

    pub(crate) fn resign(&mut self) {
        self.watching = None;
    }

    /// Notes that `worker` blocks. Returns false if it is not counted anyway.
    pub(crate) fn block(&mut self, worker: WorkerNumber, announced: bool) -> bool {
        if self.places[worker].status != Status::Running {
            return false;
        }
        self.running -= 1;
        self.presumed += usize::from(!announced);
        self.places[worker].status = if announced { Status::Blocked } else { Status::FoundAsleep };
        true
    }

    /// Returns how often workers have begun a wait.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Returns how many workers run without being counted.
    pub(crate) fn excess(&self) -> usize {
        self.excess
    }

    /// Returns the running worker that left for user code first. Returns `None` if as many workers
    /// as the concurrency value already run without being counted.
    pub(crate) fn longest_running(&self) -> Option<WorkerNumber> {
        if self.excess >= self.limit {
            return None;
        }
        let running = self.statuses().filter(|(_, status)| *status == Status::Running);
        running.map(|(worker, _)| worker).min_by_key(|it| self.places[*it].arrivals_before)
    }

    /// Stops counting `worker`, which runs, until it begins a wait.
    pub(crate) fn exceed(&mut self, worker: WorkerNumber) {
        self.running -= 1;
        self.excess += 1;
        self.places[worker].status = Status::Excess;
    }

    /// Notes that a blocked worker runs again, which may exceed the concurrency value.
    pub(crate) fn unblock(&mut self, worker: WorkerNumber) {
        let status = self.places[worker].status;
        if matches!(status, Status::Blocked | Status::FoundAsleep) {
            self.presumed -= usize::from(status == Status::FoundAsleep);
            self.running += 1;
            self.places[worker].status = Status::Running;
        }
    }

    #[inline]
    fn stop_counting(&mut self, worker: WorkerNumber) {
        match self.places[worker].status {
            Status::Running | Status::Given => self.running -= 1,
            Status::Called => self.called -= 1,
            Status::Idle => {
                self.unlist(worker);
                self.searching -= 1;
            }
            Status::FoundAsleep => self.presumed -= 1,
            Status::Excess => self.excess -= 1,
            Status::Searching => self.searching -= 1,
            Status::Vacant | Status::Away | Status::Blocked => {}
        }
    }

    #[inline]
    fn unlist(&mut self, worker: WorkerNumber) {
        if self.places[worker].status == Status::Idle {
            if self.idle.last() == Some(&worker) {
                self.idle.pop();
            } else {
                self.idle.retain(|other| *other != worker);
            }
            self.searching += 1;
            self.places[worker].status = Status::Searching;
        }
    }
}
