//! Which threads may run: the concurrency value, the threads that wait, and which of them is
//! released next.
//!
//! Every method is called with the engine's lock held. Nothing here sleeps or wakes a thread: what
//! is to be done comes back as a value.

use std::fmt;

/// A thread's place at the port.
pub(crate) type WorkerNumber = usize;

/// What the thread of a seat is doing, as far as the port knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// No thread has this seat.
    Vacant,
    /// In user code, not counted: the thread has never taken a packet, or its wait found the port
    /// closed.
    Away,
    /// In user code with packets, or after a wait that timed out: counted.
    Running,
    /// Sleeps in the kernel for a reason of its own, not counted. The thread itself has said so,
    /// and will say when it is over.
    Blocked,
    /// The same, but the thread has not said so: other threads have to find out when it is over.
    FoundAsleep,
    /// In a wait, looking for packets.
    Searching,
    /// In a wait, on the list of those to be released: parked, or in the kernel's wait.
    Idle,
    /// Taken off that list to search, but not awake yet.
    Called,
    /// Taken off that list with a packet in hand, and counted, but not awake yet.
    Given,
}

/// What is known of the thread of a seat.
struct WorkerState {
    status: Status,
    /// How often threads had come to wait when it last went off.
    arrivals_before: u64,
    /// When it last began to sleep in a wait, as a count of `beginnings`.
    since: u64,
}

impl fmt::Debug for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, arrivals_before, since } = self;
        write!(f, "{status:?} arrivals_before {arrivals_before} since {since}")
    }
}

/// The threads at one port.
#[derive(Debug)]
pub(crate) struct WorkerTable {
    limit: usize,
    /// Threads that have a place.
    joined: usize,
    running: usize,
    searching: usize,
    called: usize,
    /// How often threads have come to wait.
    arrivals: u64,
    /// Threads that are blocked without having said so.
    presumed: usize,
    places: Vec<WorkerState>,
    /// The threads that wait, the newest last.
    idle: Vec<WorkerNumber>,
    /// How often threads have begun to sleep in a wait.
    beginnings: u64,
    /// The threads in the kernel's wait.
    in_kernel: Vec<WorkerNumber>,
    watching: Option<WorkerNumber>,
}

impl WorkerTable {
    /// A port that lets `limit` threads run at once.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            joined: 0,
            running: 0,
            searching: 0,
            called: 0,
            arrivals: 0,
            presumed: 0,
            places: Vec::new(),
            idle: Vec::new(),
            beginnings: 0,
            in_kernel: Vec::new(),
            watching: None,
        }
    }

    /// A place for one more thread.
    pub(crate) fn join(&mut self) -> WorkerNumber {
        let vacant = self.places.iter().position(|place| place.status == Status::Vacant);
        let number = vacant.unwrap_or_else(|| {
            self.places.push(WorkerState { status: Status::Vacant, arrivals_before: 0, since: 0 });
            // So that going idle never allocates.
            self.idle.reserve(self.places.len());
            self.in_kernel.reserve(self.places.len());
            self.places.len() - 1
        });
        self.places[number].status = Status::Away;
        self.joined += 1;
        number
    }

    /// The thread of `worker` has gone for good.
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

    /// Threads that are counted against the concurrency value.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    #[inline]
    pub(crate) fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Whether one more thread may be handed packets.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.running < self.limit
    }

    /// Threads at work: those that run, search, or were called and are on their way.
    #[inline]
    pub(crate) fn at_work(&self) -> usize {
        self.running + self.searching + self.called
    }

    /// The same without the thread of `worker`, which is in a wait.
    #[inline]
    pub(crate) fn others_at_work(&self, worker: WorkerNumber) -> usize {
        self.at_work() - usize::from(self.places[worker].status == Status::Searching)
    }

    /// Threads that could be released beside the one that asks, which is about to run itself.
    #[inline]
    pub(crate) fn helpers(&self, worker: WorkerNumber) -> usize {
        // A thread that searches is going to take a seat.
        if self.others_at_work(worker) + 1 >= self.limit {
            return 0;
        }
        let me = usize::from(self.places[worker].status == Status::Idle);
        self.idle.len() - me
    }

    /// How many threads may run at once: the concurrency value, or the number of threads if that is
    /// lower.
    pub(crate) fn may_run(&self) -> usize {
        self.limit.min(self.joined)
    }

    /// The thread of `worker` has come to wait. Whether another one has come since it went off.
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

    /// The thread of `worker` takes packets, or its wait is over: it is counted from now on.
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

    /// The wait of the thread of `worker` finds that there will be no more packets.
    pub(crate) fn dismiss(&mut self, worker: WorkerNumber) {
        self.stop_counting(worker);
        if self.watching == Some(worker) {
            self.watching = None;
        }
        self.places[worker].status = Status::Away;
    }

    /// Threads that were seen asleep without having said so, and may be awake again.
    #[inline]
    pub(crate) fn presumed_blocked(&self) -> usize {
        self.presumed
    }

    /// The thread of `worker` is about to sleep in the wait.
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

    /// The thread of `worker` was called and is awake now.
    pub(crate) fn answer(&mut self, worker: WorkerNumber) {
        if self.places[worker].status == Status::Called {
            self.called -= 1;
            self.searching += 1;
            self.places[worker].status = Status::Searching;
        }
    }

    /// Takes the newest idle thread off the list, to search. `None` if no thread is idle, if there
    /// is no room beside the threads that search already, or if a called thread is still on its
    /// way.
    pub(crate) fn call(&mut self) -> Option<WorkerNumber> {
        if self.called > 0 || self.at_work() >= self.limit {
            return None;
        }
        self.call_anyway()
    }

    /// Takes the newest idle thread off the list, to search, whatever the limit.
    pub(crate) fn call_anyway(&mut self) -> Option<WorkerNumber> {
        let worker = self.idle.pop()?;
        self.called += 1;
        self.places[worker].status = Status::Called;
        Some(worker)
    }

    /// Takes the newest idle thread off the list, to be handed a packet, and counts it. `None` if
    /// no thread is idle, if there is no room, or if a called thread will find the packet.
    pub(crate) fn give(&mut self) -> Option<WorkerNumber> {
        if self.called > 0 || !self.has_room() {
            return None;
        }
        let worker = self.idle.pop()?;
        self.running += 1;
        self.places[worker].status = Status::Given;
        Some(worker)
    }

    /// How many threads are in the kernel's wait.
    #[inline]
    pub(crate) fn in_kernel(&self) -> usize {
        self.in_kernel.len()
    }

    #[inline]
    pub(crate) fn is_in_kernel(&self, worker: WorkerNumber) -> bool {
        self.in_kernel.contains(&worker)
    }

    /// Whether every thread in the kernel's wait began to wait before the thread of `worker`, which
    /// is in a wait. The kernel releases the thread that came to it last, which is then the newest
    /// here as well.
    pub(crate) fn is_newest_poller(&self, worker: WorkerNumber) -> bool {
        self.places[worker].status != Status::Idle
            || self
                .in_kernel
                .iter()
                .all(|other| self.places[*other].since < self.places[worker].since)
    }

    /// The thread of `worker` enters the kernel's wait.
    #[inline]
    pub(crate) fn begin_in_kernel(&mut self, worker: WorkerNumber) {
        self.in_kernel.push(worker);
    }

    /// The thread of `worker` has left the kernel's wait.
    #[inline]
    pub(crate) fn end_in_kernel(&mut self, worker: WorkerNumber) {
        if self.in_kernel.last() == Some(&worker) {
            self.in_kernel.pop();
        } else {
            self.in_kernel.retain(|other| *other != worker);
        }
    }

    /// A thread in the kernel's wait that was taken off the list and is not awake yet.
    pub(crate) fn awaited(&self) -> Option<WorkerNumber> {
        self.in_kernel.iter().copied().find(|worker| self.is_awaited(*worker))
    }

    /// Whether the thread of `worker` was taken off the list and is not awake yet.
    pub(crate) fn is_awaited(&self, worker: WorkerNumber) -> bool {
        matches!(self.places[worker].status, Status::Called | Status::Given)
    }

    /// The thread of `worker`, which is in a wait, adopts the wake-up of `absent`: it gets the status
    /// of `absent`, which goes back to where it was in the list.
    pub(crate) fn adopt_wakeup(&mut self, worker: WorkerNumber, absent: WorkerNumber) {
        self.unlist(worker);
        self.searching -= 1;
        self.places[worker].status =
            std::mem::replace(&mut self.places[absent].status, Status::Idle);
        let before = |other: &WorkerNumber| self.places[*other].since < self.places[absent].since;
        let place = self.idle.partition_point(before);
        self.idle.insert(place, absent);
    }

    /// The watchdog: the idle thread that looks after the port at short intervals.
    #[inline]
    pub(crate) fn watching(&self) -> Option<WorkerNumber> {
        self.watching
    }

    /// Appoints the watchdog: the newest parked thread, or a thread in the kernel's wait if no
    /// other is idle. `None` if no thread is idle.
    pub(crate) fn appoint(&mut self) -> Option<WorkerNumber> {
        let parked = self.idle.iter().rev().copied().find(|worker| !self.is_in_kernel(*worker));
        self.watching = parked.or_else(|| self.idle.last().copied());
        self.watching
    }

    /// The thread of `worker`, which is in a wait, is the watchdog from now on.
    pub(crate) fn watch(&mut self, worker: WorkerNumber) {
        self.watching = Some(worker);
    }

    pub(crate) fn resign(&mut self) {
        self.watching = None;
    }

    /// A running thread blocks. False if it is not counted anyway.
    pub(crate) fn block(&mut self, worker: WorkerNumber, announced: bool) -> bool {
        if self.places[worker].status != Status::Running {
            return false;
        }
        self.running -= 1;
        self.presumed += usize::from(!announced);
        self.places[worker].status = if announced { Status::Blocked } else { Status::FoundAsleep };
        true
    }

    /// A blocked thread runs again; the limit may be exceeded by that.
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
