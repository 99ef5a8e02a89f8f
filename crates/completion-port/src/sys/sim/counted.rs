//! Simulated completion ports that count their threads, by the documentation of Windows. A thread is counted by the port that
//! it has last taken packets from, until it sleeps: in the simulated kernel, or because a test
//! [says](Kernel::set_thread_asleep) so.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

use super::reach::alive;
use super::{Kernel, Mechanism, State};
use crate::sys::counted::{Away, Calls, Counted};

/// What a kernel knows of the ports that count.
#[derive(Debug, Default)]
pub(super) struct Counting {
    /// The packets of each port that is there. Each lets one thread run.
    packets: BTreeMap<u64, usize>,
    last: u64,
    /// From which port each thread has last taken packets, if that counts, and whether it has ended.
    threads: HashMap<ThreadId, (u64, Weak<()>)>,
    /// The threads that have ports of their own.
    own: HashMap<ThreadId, Weak<Counted<CountingPort>>>,
    /// The kernel counts nothing, and hands out what there is.
    #[cfg(test)]
    pub(super) counts_none: bool,
}

impl State {
    /// How many threads run that a port counts, beside the calling one.
    fn running(&self, port: u64) -> usize {
        #[cfg(test)]
        if self.counting.counts_none {
            return 0;
        }
        let others = self.counting.threads.iter();
        let others =
            others.filter(|(thread, (at, _))| *at == port && **thread != thread::current().id());
        others.filter(|(thread, (_, alive))| !self.sleeps_or_has_ended(**thread, alive)).count()
    }

    /// Whether a thread sleeps or has ended.
    pub(super) fn sleeps_or_has_ended(&self, thread: ThreadId, alive: &Weak<()>) -> bool {
        match self.scripted_sleep.get(&thread) {
            Some((Some(sleeps), _)) => *sleeps,
            _ => self.sleeps(thread) || alive.strong_count() == 0,
        }
    }
}

/// A port that lets one thread run.
#[derive(Debug)]
pub(super) struct CountingPort {
    kernel: Kernel,
    number: u64,
}

impl CountingPort {
    pub(super) fn new(kernel: &Kernel) -> Self {
        let mut state = kernel.lock();
        state.counting.last += 1;
        let number = state.counting.last;
        state.counting.packets.insert(number, 0);
        drop(state);
        Self { kernel: kernel.clone(), number }
    }

    #[cfg(test)]
    pub(super) fn packets(&self) -> usize {
        self.kernel.lock().counting.packets[&self.number]
    }
}

impl Drop for CountingPort {
    fn drop(&mut self) {
        let counting = &mut self.kernel.lock().counting;
        counting.packets.remove(&self.number);
        counting.threads.retain(|_, (port, _)| *port != self.number);
        counting.own.retain(|_, own| own.strong_count() > 0);
    }
}

impl Calls for CountingPort {
    fn post(&self) -> bool {
        let mut state = self.kernel.lock();
        state.counting.packets.entry(self.number).and_modify(|packets| *packets += 1);
        true
    }

    fn take(&self) -> Option<bool> {
        let mut state = self.kernel.lock();
        state.counting.threads.insert(thread::current().id(), (self.number, alive()));
        let is_free = state.running(self.number) == 0;
        let packets = state.counting.packets.get_mut(&self.number)?;
        let takes = is_free && *packets > 0;
        *packets -= usize::from(takes);
        Some(takes)
    }
}

impl Kernel {
    /// The port of its own by which the calling thread is counted, made if need be. `None` where threads are looked at in
    /// another way.
    pub(super) fn counted_here(&self) -> Option<Arc<Counted<CountingPort>>> {
        if self.lock().mechanism != Mechanism::Notifications {
            return None;
        }
        if let Some(own) = self.own_counted() {
            own.come_back();
            return Some(own);
        }
        let own = Arc::new(Counted::new(CountingPort::new(self)));
        self.lock().counting.own.insert(thread::current().id(), Arc::downgrade(&own));
        own.come_back();
        Some(own)
    }

    /// The same if it is there already.
    pub(super) fn own_counted(&self) -> Option<Arc<Counted<CountingPort>>> {
        self.lock().counting.own.get(&thread::current().id())?.upgrade()
    }

    /// The calling thread takes packets from a port that counts for nothing, for as long as what is returned lives.
    pub(super) fn go_to_another_port(&self) -> Option<Away<CountingPort>> {
        let away = self.own_counted().as_ref().map(Away::from);
        self.lock().counting.threads.remove(&thread::current().id());
        away
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::sys::counted::is_counting;

    type Task = Box<dyn FnOnce() + Send>;

    fn kernel() -> Kernel {
        let kernel = Kernel::new();
        kernel.watch_by(Mechanism::Notifications);
        kernel
    }

    /// A thread that does what it is told. The kernel takes it for one that runs.
    struct Worker {
        tasks: Sender<Task>,
        thread: thread::JoinHandle<()>,
    }

    impl Worker {
        fn new() -> Self {
            let (tasks, told) = channel::<Task>();
            let thread = thread::spawn(move || told.into_iter().for_each(|task| task()));
            Self { tasks, thread }
        }

        fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
            let (give, take) = channel();
            self.tasks.send(Box::new(move || give.send(task()).unwrap())).unwrap();
            take.recv().unwrap()
        }

        fn id(&self) -> ThreadId {
            self.thread.thread().id()
        }

        fn begin(&self, kernel: &Kernel) -> Arc<Counted<CountingPort>> {
            let kernel = kernel.clone();
            self.run(move || kernel.counted_here().unwrap())
        }

        /// Has this one ask about another one.
        fn asks(&self, kernel: &Kernel, other: &Arc<Counted<CountingPort>>) -> Option<bool> {
            let (kernel, other) = (kernel.clone(), Arc::clone(other));
            self.run(move || {
                let nowhere = CountingPort::new(&kernel);
                other.is_asleep(kernel.own_counted().as_ref(), &nowhere)
            })
        }

        fn end(self) {
            drop(self.tasks);
            self.thread.join().unwrap();
        }
    }

    #[test]
    fn who_sleeps_is_told_from_who_runs() {
        let kernel = kernel();
        let (seen, asker) = (Worker::new(), Worker::new());
        let counted = seen.begin(&kernel);
        let _own = asker.begin(&kernel);
        for _ in 0..3 {
            for _ in 0..100 {
                assert_eq!(asker.asks(&kernel, &counted), Some(false));
                assert_eq!(counted.port().packets(), 1, "one packet stands");
            }
            kernel.set_thread_asleep(seen.id(), true);
            for _ in 0..100 {
                assert_eq!(asker.asks(&kernel, &counted), Some(true));
            }
            kernel.set_thread_asleep(seen.id(), false);
        }
    }

    #[test]
    fn a_thread_that_takes_packets_elsewhere_is_not_known_until_it_comes_back() {
        let kernel = kernel();
        let (seen, asker) = (Worker::new(), Worker::new());
        let counted = seen.begin(&kernel);
        let away = seen.run({
            let kernel = kernel.clone();
            move || kernel.go_to_another_port()
        });
        assert_eq!(asker.asks(&kernel, &counted), None);
        seen.run(|| drop(away));
        assert_eq!(asker.asks(&kernel, &counted), Some(false));
    }

    /// A packet stands when it comes back, and it takes that itself.
    #[test]
    fn a_thread_is_known_that_comes_back_to_a_packet() {
        let kernel = kernel();
        let (seen, asker) = (Worker::new(), Worker::new());
        let counted = seen.begin(&kernel);
        for sleeps in [false, true, false] {
            assert_eq!(asker.asks(&kernel, &counted), Some(false));
            assert_eq!(counted.port().packets(), 1);
            seen.run({
                let kernel = kernel.clone();
                move || drop(kernel.go_to_another_port())
            });
            assert_eq!(counted.port().packets(), 0);
            kernel.set_thread_asleep(seen.id(), sleeps);
            assert_eq!(asker.asks(&kernel, &counted), Some(sleeps));
            kernel.set_thread_asleep(seen.id(), false);
        }
    }

    /// Whether it is counted itself or not: the next one that asks would be answered that a thread runs.
    #[test]
    fn who_asks_does_not_stay_where_it_has_asked() {
        let kernel = kernel();
        let (seen, first, second) = (Worker::new(), Worker::new(), Worker::new());
        let counted = seen.begin(&kernel);
        for is_counted in [false, true] {
            let own = is_counted.then(|| first.begin(&kernel));
            assert_eq!(first.asks(&kernel, &counted), Some(false));
            kernel.set_thread_asleep(seen.id(), true);
            assert_eq!(second.asks(&kernel, &counted), Some(true));
            assert_eq!(first.asks(&kernel, &counted), Some(true));
            kernel.set_thread_asleep(seen.id(), false);
            if let Some(own) = own {
                assert_eq!(second.asks(&kernel, &own), Some(false), "it is counted as before");
            }
        }
    }

    #[test]
    fn a_thread_that_asks_about_itself_is_not_told() {
        let kernel = kernel();
        let seen = Worker::new();
        let counted = seen.begin(&kernel);
        assert_eq!(seen.asks(&kernel, &counted), None);
    }

    #[test]
    fn a_thread_that_has_ended_sleeps() {
        let kernel = kernel();
        let (seen, asker) = (Worker::new(), Worker::new());
        let counted = seen.begin(&kernel);
        assert_eq!(asker.asks(&kernel, &counted), Some(false));
        seen.end();
        assert_eq!(asker.asks(&kernel, &counted), Some(true));
        drop(counted);
        asker.end();
        let counting = &kernel.lock().counting;
        assert!(
            counting.packets.is_empty() && counting.threads.is_empty() && counting.own.is_empty()
        );
    }

    /// However questions and returns meet, no packet is lost or doubled: the last question has its answer.
    #[test]
    fn questions_and_returns_may_meet() {
        const ROUNDS: usize = 2000;
        let kernel = kernel();
        let seen = Worker::new();
        let counted = seen.begin(&kernel);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let nowhere = CountingPort::new(&kernel);
                    while !is_over.load(SeqCst) {
                        assert_ne!(counted.is_asleep(None, &nowhere), Some(true));
                        assert!(counted.port().packets() <= 1);
                    }
                });
            }
            let kernel = kernel.clone();
            seen.run(move || (0..ROUNDS).for_each(|_| drop(kernel.go_to_another_port())));
            is_over.store(true, SeqCst);
        });
        kernel.set_thread_asleep(seen.id(), true);
        assert_eq!(Worker::new().asks(&kernel, &counted), Some(true));
    }

    #[test]
    fn a_kernel_that_counts_is_told_from_one_that_does_not() {
        let kernel = kernel();
        let says_so = {
            let kernel = kernel.clone();
            move || kernel.set_thread_asleep(thread::current().id(), true)
        };
        assert_eq!(is_counting(|| Some(CountingPort::new(&kernel)), says_so.clone()), Some(true));
        kernel.lock().counting.counts_none = true;
        assert_eq!(is_counting(|| Some(CountingPort::new(&kernel)), says_so), Some(false));
    }
}
