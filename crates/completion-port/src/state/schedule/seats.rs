//! Which threads may run: the concurrency value, the threads that wait, and which of them is
//! released next.
//!
//! Every method is called with the engine's lock held. Nothing here sleeps or wakes a thread: what
//! is to be done comes back as a value.

use std::fmt;

/// A thread's place at the port.
pub(crate) type SeatNumber = usize;

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
struct SeatState {
    status: Status,
    /// How often threads had come to wait when it last went off.
    arrivals_before: u64,
    /// When it last began to sleep in a wait, as a count of `beginnings`.
    since: u64,
}

impl fmt::Debug for SeatState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, arrivals_before, since } = self;
        write!(f, "{status:?} arrivals_before {arrivals_before} since {since}")
    }
}

/// The threads at one port.
#[derive(Debug)]
pub(crate) struct Seats {
    limit: usize,
    /// Threads that have a place.
    seated: usize,
    running: usize,
    searching: usize,
    called: usize,
    /// How often threads have come to wait.
    arrivals: u64,
    /// Threads that are blocked without having said so.
    presumed: usize,
    places: Vec<SeatState>,
    /// The threads that wait, the newest last.
    idle: Vec<SeatNumber>,
    /// How often threads have begun to sleep in a wait.
    beginnings: u64,
    /// The threads in the kernel's wait.
    in_kernel: Vec<SeatNumber>,
    watching: Option<SeatNumber>,
}

impl Seats {
    /// A port that lets `limit` threads run at once.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            seated: 0,
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
    pub(crate) fn join(&mut self) -> SeatNumber {
        let vacant = self.places.iter().position(|place| place.status == Status::Vacant);
        let number = vacant.unwrap_or_else(|| {
            self.places.push(SeatState { status: Status::Vacant, arrivals_before: 0, since: 0 });
            // So that going idle never allocates.
            self.idle.reserve(self.places.len());
            self.in_kernel.reserve(self.places.len());
            self.places.len() - 1
        });
        self.places[number].status = Status::Away;
        self.seated += 1;
        number
    }

    /// The thread of `seat` has gone for good.
    pub(crate) fn leave(&mut self, seat: SeatNumber) {
        self.stop_counting(seat);
        self.places[seat].status = Status::Vacant;
        self.seated -= 1;
        if self.watching == Some(seat) {
            self.watching = None;
        }
    }

    #[inline]
    pub(crate) fn status(&self, seat: SeatNumber) -> Status {
        self.places[seat].status
    }

    pub(crate) fn statuses(&self) -> impl Iterator<Item = (SeatNumber, Status)> + '_ {
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

    /// The same without the thread of `seat`, which is in a wait.
    #[inline]
    pub(crate) fn others_at_work(&self, seat: SeatNumber) -> usize {
        self.at_work() - usize::from(self.places[seat].status == Status::Searching)
    }

    /// Threads that could be released beside the one that asks, which is about to run itself.
    #[inline]
    pub(crate) fn helpers(&self, seat: SeatNumber) -> usize {
        // A thread that searches is going to take a seat.
        if self.others_at_work(seat) + 1 >= self.limit {
            return 0;
        }
        let me = usize::from(self.places[seat].status == Status::Idle);
        self.idle.len() - me
    }

    /// How many threads may run at once: the concurrency value, or the number of threads if that is
    /// lower.
    pub(crate) fn may_run(&self) -> usize {
        self.limit.min(self.seated)
    }

    /// The thread of `seat` has come to wait. Whether another one has come since it went off.
    #[inline]
    pub(crate) fn arrive(&mut self, seat: SeatNumber) -> bool {
        self.stop_counting(seat);
        self.searching += 1;
        let place = &mut self.places[seat];
        place.status = Status::Searching;
        let others_came = self.arrivals != place.arrivals_before;
        self.arrivals += 1;
        others_came
    }

    /// The thread of `seat` takes packets, or its wait is over: it is counted from now on.
    #[inline]
    pub(crate) fn run(&mut self, seat: SeatNumber) {
        self.unlist(seat);
        if self.watching == Some(seat) {
            self.watching = None;
        }
        let place = &mut self.places[seat];
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

    /// The wait of the thread of `seat` finds that there will be no more packets.
    pub(crate) fn dismiss(&mut self, seat: SeatNumber) {
        self.stop_counting(seat);
        if self.watching == Some(seat) {
            self.watching = None;
        }
        self.places[seat].status = Status::Away;
    }

    /// Threads that were seen asleep without having said so, and may be awake again.
    #[inline]
    pub(crate) fn presumed_blocked(&self) -> usize {
        self.presumed
    }

    /// The thread of `seat` is about to sleep in the wait.
    #[inline]
    pub(crate) fn rest(&mut self, seat: SeatNumber) {
        let place = &mut self.places[seat];
        if place.status == Status::Searching {
            place.status = Status::Idle;
            self.searching -= 1;
            self.beginnings += 1;
            place.since = self.beginnings;
            self.idle.push(seat);
        }
    }

    /// The thread of `seat` was called and is awake now.
    pub(crate) fn answer(&mut self, seat: SeatNumber) {
        if self.places[seat].status == Status::Called {
            self.called -= 1;
            self.searching += 1;
            self.places[seat].status = Status::Searching;
        }
    }

    /// Takes the newest idle thread off the list, to search. `None` if no thread is idle, if there
    /// is no room beside the threads that search already, or if a called thread is still on its
    /// way.
    pub(crate) fn call(&mut self) -> Option<SeatNumber> {
        if self.called > 0 || self.at_work() >= self.limit {
            return None;
        }
        self.call_anyway()
    }

    /// Takes the newest idle thread off the list, to search, whatever the limit.
    pub(crate) fn call_anyway(&mut self) -> Option<SeatNumber> {
        let seat = self.idle.pop()?;
        self.called += 1;
        self.places[seat].status = Status::Called;
        Some(seat)
    }

    /// Takes the newest idle thread off the list, to be handed a packet, and counts it. `None` if
    /// no thread is idle, if there is no room, or if a called thread will find the packet.
    pub(crate) fn give(&mut self) -> Option<SeatNumber> {
        if self.called > 0 || !self.has_room() {
            return None;
        }
        let seat = self.idle.pop()?;
        self.running += 1;
        self.places[seat].status = Status::Given;
        Some(seat)
    }

    /// How many threads are in the kernel's wait.
    #[inline]
    pub(crate) fn in_kernel(&self) -> usize {
        self.in_kernel.len()
    }

    #[inline]
    pub(crate) fn is_in_kernel(&self, seat: SeatNumber) -> bool {
        self.in_kernel.contains(&seat)
    }

    /// Whether every thread in the kernel's wait began to wait before the thread of `seat`, which
    /// is in a wait. The kernel releases the thread that came to it last, which is then the newest
    /// here as well.
    pub(crate) fn is_newest_poller(&self, seat: SeatNumber) -> bool {
        self.places[seat].status != Status::Idle
            || self
                .in_kernel
                .iter()
                .all(|other| self.places[*other].since < self.places[seat].since)
    }

    /// The thread of `seat` enters the kernel's wait.
    #[inline]
    pub(crate) fn begin_in_kernel(&mut self, seat: SeatNumber) {
        self.in_kernel.push(seat);
    }

    /// The thread of `seat` has left the kernel's wait.
    #[inline]
    pub(crate) fn end_in_kernel(&mut self, seat: SeatNumber) {
        if self.in_kernel.last() == Some(&seat) {
            self.in_kernel.pop();
        } else {
            self.in_kernel.retain(|other| *other != seat);
        }
    }

    /// A thread in the kernel's wait that was taken off the list and is not awake yet.
    pub(crate) fn awaited(&self) -> Option<SeatNumber> {
        self.in_kernel.iter().copied().find(|seat| self.is_awaited(*seat))
    }

    /// Whether the thread of `seat` was taken off the list and is not awake yet.
    pub(crate) fn is_awaited(&self, seat: SeatNumber) -> bool {
        matches!(self.places[seat].status, Status::Called | Status::Given)
    }

    /// The thread of `seat`, which is in a wait, adopts the wake-up of `absent`: it gets the status
    /// of `absent`, which goes back to where it was in the list.
    pub(crate) fn adopt_wakeup(&mut self, seat: SeatNumber, absent: SeatNumber) {
        self.unlist(seat);
        self.searching -= 1;
        self.places[seat].status = std::mem::replace(&mut self.places[absent].status, Status::Idle);
        let before = |other: &SeatNumber| self.places[*other].since < self.places[absent].since;
        let place = self.idle.partition_point(before);
        self.idle.insert(place, absent);
    }

    /// The watchdog: the idle thread that looks after the port at short intervals.
    #[inline]
    pub(crate) fn watching(&self) -> Option<SeatNumber> {
        self.watching
    }

    /// Appoints the watchdog: the newest parked thread, or a thread in the kernel's wait if no
    /// other is idle. `None` if no thread is idle.
    pub(crate) fn appoint(&mut self) -> Option<SeatNumber> {
        let parked = self.idle.iter().rev().copied().find(|seat| !self.is_in_kernel(*seat));
        self.watching = parked.or_else(|| self.idle.last().copied());
        self.watching
    }

    /// The thread of `seat`, which is in a wait, is the watchdog from now on.
    pub(crate) fn watch(&mut self, seat: SeatNumber) {
        self.watching = Some(seat);
    }

    pub(crate) fn resign(&mut self) {
        self.watching = None;
    }

    /// A running thread blocks. False if it is not counted anyway.
    pub(crate) fn block(&mut self, seat: SeatNumber, announced: bool) -> bool {
        if self.places[seat].status != Status::Running {
            return false;
        }
        self.running -= 1;
        self.presumed += usize::from(!announced);
        self.places[seat].status = if announced { Status::Blocked } else { Status::FoundAsleep };
        true
    }

    /// A blocked thread runs again; the limit may be exceeded by that.
    pub(crate) fn unblock(&mut self, seat: SeatNumber) {
        let status = self.places[seat].status;
        if matches!(status, Status::Blocked | Status::FoundAsleep) {
            self.presumed -= usize::from(status == Status::FoundAsleep);
            self.running += 1;
            self.places[seat].status = Status::Running;
        }
    }

    #[inline]
    fn stop_counting(&mut self, seat: SeatNumber) {
        match self.places[seat].status {
            Status::Running | Status::Given => self.running -= 1,
            Status::Called => self.called -= 1,
            Status::Idle => {
                self.unlist(seat);
                self.searching -= 1;
            }
            Status::FoundAsleep => self.presumed -= 1,
            Status::Searching => self.searching -= 1,
            Status::Vacant | Status::Away | Status::Blocked => {}
        }
    }

    #[inline]
    fn unlist(&mut self, seat: SeatNumber) {
        if self.places[seat].status == Status::Idle {
            if self.idle.last() == Some(&seat) {
                self.idle.pop();
            } else {
                self.idle.retain(|other| *other != seat);
            }
            self.searching += 1;
            self.places[seat].status = Status::Searching;
        }
    }
}
