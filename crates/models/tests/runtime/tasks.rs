//! Models tasks: aborting against a poll, and spawning against the end of the runtime.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::Waker;

use loom::sync::Mutex;
use loom::sync::atomic::AtomicUsize;

use crate::kit::{Task, explore, spawn};
use crate::state::abort::{Abort, Listed};
use crate::state::ending::{Ending, Phase};
use crate::state::places::Places;

/// A task in the list, with the request to abort it.
#[derive(Clone)]
struct Aborted(Arc<Abort>);

impl AsRef<Abort> for Aborted {
    fn as_ref(&self) -> &Abort {
        &self.0
    }
}

/// A list of one task.
struct List {
    task: Arc<Task>,
    abort: Aborted,
    tasks: Places<Listed<Aborted>>,
    place: usize,
}

impl List {
    fn of(task: Arc<Task>) -> Arc<Self> {
        let (abort, tasks) = (Aborted(Arc::new(Abort::new())), Places::default());
        let place = tasks.insert(Listed::new(abort.clone()));
        Arc::new(Self { task, abort, tasks, place })
    }

    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.task))
    }

    fn abort(&self) {
        self.tasks.abort(self.place, |_| true);
    }

    /// Polls the task if it is queued, for the first time or not. Only an abort ends it.
    fn run(&self, is_first: bool) {
        self.task.run(|| {
            if self.abort.0.is_requested() {
                return true;
            }
            if is_first {
                self.tasks.list_waker(self.place, &self.waker());
            }
            false
        });
    }

    fn assert_has_ended(&self) {
        self.run(false);
        assert!(self.task.has_ended());
        drop(self.tasks.remove(self.place));
    }
}

/// A task that another thread wakes and polls at the same time sees the request to abort it.
#[test]
fn a_task_that_is_aborted_while_it_is_polled_ends() {
    explore(|| {
        let list = List::of(Task::idle());
        list.tasks.list_waker(list.place, &list.waker());
        let polls = spawn(&list, |list| {
            list.waker().wake();
            list.run(false);
        });
        list.abort();
        polls.join().unwrap();
        list.assert_has_ended();
    });
}

/// A task that is aborted before or during its first poll, at whose end its waker is stored, ends.
#[test]
fn a_task_that_is_aborted_in_its_first_poll_ends() {
    explore(|| {
        let list = List::of(Task::scheduled());
        list.task.queue();
        let polls = spawn(&list, |list| list.run(true));
        list.abort();
        polls.join().unwrap();
        list.assert_has_ended();
    });
}

/// The parts of a runtime that `spawn` and `end` use.
struct Runtime {
    ending: Ending,
    tasks: Places<Listed<ListedTask>>,
    /// Stand-in for the port: what was posted, until it is closed.
    posted: Mutex<Option<Vec<Arc<Spawned>>>>,
}

/// A task that never completes.
struct Spawned {
    task: Arc<Task>,
    abort: Abort,
    place: AtomicUsize,
    /// How often its future was dropped.
    ends: AtomicUsize,
}

struct ListedTask(Arc<Spawned>);

impl AsRef<Abort> for ListedTask {
    fn as_ref(&self) -> &Abort {
        &self.0.abort
    }
}

impl Runtime {
    fn new() -> Arc<Self> {
        let posted = Mutex::new(Some(Vec::new()));
        Arc::new(Self { ending: Ending::new(), tasks: Places::default(), posted })
    }

    /// As `task::spawn` does it.
    fn spawn(&self) -> Arc<Spawned> {
        let (task, abort, ends) = (Task::scheduled(), Abort::new(), AtomicUsize::new(0));
        let spawned = Arc::new(Spawned { task, abort, place: AtomicUsize::new(usize::MAX), ends });
        let is_admitted = self.ending.admit(|| {
            let place = self.tasks.insert(Listed::new(ListedTask(Arc::clone(&spawned))));
            spawned.place.store(place, Relaxed);
        });
        let is_posted = is_admitted && self.post(&spawned);
        if !is_posted {
            self.drop_future(&spawned);
            self.ending.task_ended();
        }
        spawned
    }

    fn post(&self, spawned: &Arc<Spawned>) -> bool {
        let is_posted = {
            let mut posted = self.posted.lock().unwrap();
            posted.as_mut().is_some_and(|posted| {
                spawned.task.queue();
                posted.push(Arc::clone(spawned));
                true
            })
        };
        // The thread that ends the runtime runs the tasks here.
        self.ending.signal();
        is_posted
    }

    fn drop_future(&self, spawned: &Spawned) {
        spawned.ends.fetch_add(1, SeqCst);
        drop(self.tasks.remove(spawned.place.load(Relaxed)));
    }

    /// As a thread of the pool does it.
    fn run(&self) {
        let posted = self.posted.lock().unwrap().clone().unwrap_or_default();
        for spawned in posted {
            spawned.task.run(|| {
                let ends = spawned.abort.is_requested();
                if ends {
                    self.drop_future(&spawned);
                } else {
                    let waker = Waker::from(Arc::clone(&spawned.task));
                    self.tasks.list_waker(spawned.place.load(Relaxed), &waker);
                }
                ends
            });
        }
    }

    /// As `runtime::end` does it.
    fn end(&self) {
        self.ending.enter(Phase::Ending);
        self.tasks.abort_all();
        let all_ended = self.ending.wait_until(None, || {
            self.run();
            self.tasks.len() == 0
        });
        assert!(all_ended);
        self.ending.enter(Phase::Closed);
        drop(self.posted.lock().unwrap().take());
    }
}

/// Whenever the task is spawned, it ends once, and the end waits for it or refuses it.
#[test]
fn a_task_that_is_spawned_while_the_runtime_ends_is_dropped_once() {
    explore(|| {
        let runtime = Runtime::new();
        let spawns = spawn(&runtime, Runtime::spawn);
        runtime.end();
        let spawned = spawns.join().unwrap();
        assert_eq!(spawned.ends.load(SeqCst), 1);
        assert_eq!(runtime.tasks.len(), 0);
    });
}

/// Two tasks take and give up places at the same time. No place is used twice.
#[test]
fn places_are_used_by_one_at_a_time() {
    explore(|| {
        let places: Arc<Places<usize>> = Arc::default();
        let takes = |number: usize| {
            move |places: &Places<usize>| {
                let place = places.insert(number);
                assert_eq!(places.get(place, |number| *number), Some(number));
                assert_eq!(places.remove(place), Some(number));
                place
            }
        };
        let other = spawn(&places, takes(1));
        takes(2)(&places);
        other.join().unwrap();
        assert_eq!(places.len(), 0);
    });
}
