//! The invariants after each step of any program.

use super::{Does, Fake, Notice, Packet, Rig};
use crate::state::moment::Moment;
use crate::state::schedule::watchdog::TICK;
use crate::state::schedule::{Schedule, SchedulePort, Status, WorkerNumber};

impl Rig {
    /// Checks a change of statuses.
    pub(super) fn compare(&self, before: &[Status], running: usize, exceeds: bool, adopts: bool) {
        let blocked = |statuses: &[Status]| {
            let is = |it: &&Status| matches!(it, Status::Blocked | Status::FoundAsleep);
            statuses.iter().filter(is).count()
        };
        let after = self.statuses();
        let most = self.limit.max(running);
        let resumed = blocked(before).saturating_sub(blocked(&after)) + usize::from(exceeds);
        let runs = self.schedule.workers.running();
        assert!(runs <= most + resumed, "{runs} run of {most}, {before:?} {after:?}");
        if adopts || self.port.is_over() {
            return;
        }
        // The newest idle worker is woken first.
        let listed = |worker: usize| self.port.threads[worker].listed;
        let idle =
            |worker: &usize| after[*worker] == Status::Idle && before[*worker] == Status::Idle;
        for worker in 0..before.len() {
            if before[worker] == Status::Idle
                && matches!(after[worker], Status::Called | Status::Given)
            {
                let newest = (0..before.len()).filter(idle).map(listed).max();
                assert!(
                    newest < Some(listed(worker)),
                    "{worker} was not the newest: {before:?} {after:?}"
                );
            }
        }
    }

    /// Returns whether `worker` is awake in a wait, or a wake-up for it is on its way.
    fn is_on_its_way(&self, worker: WorkerNumber) -> bool {
        let thread = &self.port.threads[worker];
        match &thread.does {
            Does::Gone | Does::Out => false,
            Does::Polls(..) => self.is_kernel_woken(),
            Does::Parks(..) => thread.token || self.notices.contains(&Notice::Thread(worker)),
            _ => true,
        }
    }

    /// Returns whether a wake-up is about to bring a thread out of the kernel's wait.
    fn is_kernel_woken(&self) -> bool {
        self.port.eventfd
            || self.notices.contains(&Notice::Kernel)
            || self.port.peek.as_ref().is_some_and(|(_, woken)| *woken)
    }

    /// Checks what holds whenever no thread has the lock.
    #[track_caller]
    pub(in super::super) fn check(&self) {
        self.port.asked.set(0);
        self.check_packets();
        self.check_threads();
        self.check_figures();
        self.check_attendance();
        self.check_timers();
    }

    #[track_caller]
    fn check_packets(&self) {
        let Fake { queue, unchecked, kernel, taken, threads, .. } = &self.port;
        let mut all: Vec<u32> = Vec::new();
        let mut add = |packets: &mut dyn Iterator<Item = &Packet>| {
            all.extend(packets.map(|packet| packet.number));
        };
        add(&mut queue.iter().chain(unchecked).chain(kernel).chain(taken));
        add(&mut self.port.timers.iter().map(|(_, packet)| packet));
        if let Some((edges, _)) = &self.port.peek {
            add(&mut edges.iter());
        }
        for thread in threads {
            add(&mut thread.hand.iter());
            match &thread.does {
                Does::Checks(_, ready) | Does::Asks(_, ready) => add(&mut ready.iter()),
                Does::Returns(_, poll, ready) => add(&mut poll.edges.iter().chain(ready)),
                _ => {}
            }
        }
        all.sort_unstable();
        assert!(all.iter().copied().eq(1..=self.put_in), "of {}: {all:?}", self.put_in);
        assert_eq!(self.schedule.handed, self.port.handed);
    }

    #[track_caller]
    fn check_threads(&self) {
        let Schedule { workers, loaded, .. } = &self.schedule;
        let kernel_wakes = self.is_kernel_woken()
            || self
                .port
                .threads
                .iter()
                .any(|thread| matches!(&thread.does, Does::Returns(_, poll, _) if poll.woken));
        for (worker, thread) in self.port.threads.iter().enumerate() {
            let status = workers.status(worker);
            let fits = match &thread.does {
                Does::Gone => status == Status::Vacant,
                Does::Out => matches!(
                    status,
                    Status::Away
                        | Status::Running
                        | Status::Blocked
                        | Status::FoundAsleep
                        | Status::Excess
                ),
                does => {
                    matches!(status, Status::Idle | Status::Called | Status::Given)
                        || status == Status::Searching && !does.sleeps()
                }
            };
            assert!(fits, "{worker} is {status:?}, and does {:?}", thread.does);
            let polls = match &thread.does {
                Does::Polls(..) => true,
                Does::Returns(_, poll, _) => poll.slept,
                _ => false,
            };
            assert_eq!(workers.is_in_kernel(worker), polls, "{worker} does {:?}", thread.does);
            assert!(workers.watching() != Some(worker) || thread.does.waits(), "{worker} watches");
            if workers.is_awaited(worker) {
                let comes = match &thread.does {
                    Does::Polls(..) => kernel_wakes,
                    _ => self.is_on_its_way(worker),
                };
                assert!(comes, "{worker} is {status:?}, and no wake is under way for it");
            }
            if loaded[worker] {
                assert_eq!(status, Status::Running, "{worker} has several packets");
            }
            assert!(thread.hand.is_empty() || matches!(status, Status::Running | Status::Given));
            assert_eq!(thread.presumed, status == Status::FoundAsleep);
            assert!(!thread.blocks || status == Status::Blocked);
        }
    }

    #[track_caller]
    fn check_figures(&self) {
        let statuses = self.statuses();
        let count = |of: &[Status]| statuses.iter().filter(|it| of.contains(it)).count();
        let Schedule { workers, loaded, loads, .. } = &self.schedule;
        let figures = self.schedule.figures();
        let counted = count(&[Status::Running, Status::Given]);
        assert_eq!(figures.running, counted);
        assert_eq!(figures.idle, count(&[Status::Idle]));
        assert_eq!(figures.blocked, count(&[Status::Blocked, Status::FoundAsleep]));
        assert_eq!(workers.presumed_blocked(), count(&[Status::FoundAsleep]));
        assert_eq!(figures.excess, count(&[Status::Excess]));
        assert!(figures.excess <= self.limit);
        assert_eq!(workers.at_work(), counted + count(&[Status::Searching, Status::Called]));
        let waiting = [Status::Searching, Status::Idle, Status::Called];
        assert_eq!(workers.waiting(), count(&waiting));
        assert_eq!(
            workers.in_kernel(),
            (0..statuses.len()).filter(|it| workers.is_in_kernel(*it)).count()
        );
        assert_eq!(*loads, loaded.iter().filter(|it| **it).count());
        assert_eq!(figures.wakes, self.wakes);
        assert!(figures.spurious <= figures.wakes);
        assert_eq!(figures.blocks_found, self.port.found);
    }

    /// While workers are idle, everything is found within a millisecond, wherever it is.
    #[track_caller]
    fn check_attendance(&self) {
        let Schedule { workers, .. } = &self.schedule;
        let threads = self.port.threads.len();
        if workers.idle() == 0 || (0..threads).any(|worker| self.is_on_its_way(worker)) {
            return;
        }
        if self.schedule.is_attended(&self.port) {
            return;
        }
        let Some(watchdog) = workers.watching() else {
            panic!("no thread looks after the port: {self:#?}");
        };
        let until =
            self.port.threads[watchdog].does.until().expect("the watchdog sleeps for a time");
        assert!(until <= self.port.now + TICK, "the watchdog sleeps too long: {self:#?}");
    }

    /// While workers are idle, one of them wakes when a timer is due, or at most a millisecond
    /// later.
    #[track_caller]
    fn check_timers(&self) {
        let due = self.port.due();
        assert_eq!(self.schedule.due, due);
        let threads = &self.port.threads;
        let is_cared_for = self.schedule.workers.idle() == 0
            || (0..threads.len()).any(|worker| self.is_on_its_way(worker));
        if due == Moment::NEVER || is_cared_for {
            return;
        }
        let latest = due.max(self.port.now + TICK);
        let comes = threads.iter().any(|it| it.does.until().is_some_and(|until| until <= latest));
        assert!(comes, "no thread wakes for the timer at {due:?}: {self:#?}");
    }
}
