//! Objects that threads can wait for (events, semaphores, timers, mutexes, threads), and the waits.
//!
//! One lock per process guards the queues of all objects, so a wait for several objects is a single step. A thread holds it
//! only while a signal looks for its waits, never across a system call, and takes no other lock meanwhile.
//!
//! # The invariant
//!
//! Whenever the lock is free:
//!
//! 1. A wait that has not ended has an entry in the queue of each of its objects. Queues are ordered from the oldest wait to
//!    the newest.
//! 2. No queued wait can be satisfied: a wait for any object has no signalled object, a wait for all objects has at least one
//!    that is not signalled.
//! 3. A granted wait has no entries. The same step took the signals it needed from its objects.
//!
//! So the thread that signals an object decides, before it returns, which waits end. A later signal or reset no longer finds
//! these waits, even if their threads have not run yet. A wait that times out or fails removes its entries in the same step
//! in which it checks that it has not been granted.
//!
//! Two kinds of things change without a signal. A *timer* becomes due: each wait for it sleeps until then at most, and the
//! first one to check signals the timer for all ([`Waitable::look`]). A *port* receives packets: only polling finds them, so
//! a wait that includes ports checks every millisecond and takes what it finds itself ([`How::Looks`]).
//!
//! # Forks
//!
//! A child inherits the objects in their state at the fork, but none of the waiting threads. The signal count is a single
//! word, so it is consistent. A queue belongs to the process that used it last (`home`). The child starts with an empty one,
//! because the fork may have caught the parent's in the middle of a change. The same can happen to the time of a timer and to
//! the owner of a mutex, if another thread was changing them during the fork.

use std::cell::{RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::errors::code;
use crate::linux::port::CompletionPort;
use crate::linux::process::Own;
use crate::linux::waits::this_thread;
use crate::linux::words::{ANY, cp_clock, wait_while, wake};

/// Added to the place of a mutex whose owner ended without releasing it.
pub(crate) const ABANDONED: u32 = 0x80;

// ---- The lock ------------------------------------------------------------------------------------

/// Grants access to everything the lock guards. There is one per process.
struct Key {
    /// Identifies this process among those it was forked from.
    home: u64,
    /// Queues of the parent's threads, kept but never read.
    inherited: Vec<ManuallyDrop<VecDeque<Entry>>>,
}

struct Lock {
    home: u64,
    key: Mutex<Key>,
}

static LOCK: Own<Lock> = Own::new(begin_child);

extern "C" fn begin_child() {
    LOCK.pass_on();
}

fn the_lock() -> &'static Lock {
    LOCK.get(|parent| {
        let home = parent.map_or(1, |parent| parent.home + 1);
        Box::new(Lock { home, key: Mutex::new(Key { home, inherited: Vec::new() }) })
    })
}

fn lock() -> MutexGuard<'static, Key> {
    the_lock().key.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Granted waits whose threads must be woken once the lock is free.
#[derive(Default)]
struct Wakes(Vec<Arc<Wait>>);

impl Wakes {
    /// Runs `change` with the lock held, then unlocks and wakes the threads of granted waits.
    fn of<R>(change: impl FnOnce(&mut Key, &mut Self) -> R) -> R {
        let mut wakes = Self::default();
        let mut key = lock();
        let result = change(&mut key, &mut wakes);
        drop(key);
        for wait in wakes.0 {
            wake(wait.word.as_ptr(), 1, ANY);
        }
        result
    }
}

// ---- Objects -------------------------------------------------------------------------------------

/// The kind of an object.
#[derive(Debug)]
pub(crate) enum Kind {
    Event,
    /// With its maximum count.
    Semaphore(u32),
    Timer,
    Mutex,
    Thread(ThreadWords),
}

/// State of a thread besides its end.
#[derive(Debug, Default)]
pub(crate) struct ThreadWords {
    /// Its thread id; 0 until it runs.
    pub(crate) id: AtomicU32,
    /// The thread was not created suspended, or was resumed.
    pub(crate) may_go: AtomicU32,
    pub(crate) result: AtomicU32,
}

/// An object that threads wait for.
pub(crate) struct Waitable {
    kind: Kind,
    /// A wait that ends consumes one signal.
    resets: bool,
    /// Number of waits it can end; 1 if it ends any number. Changed only with the lock held.
    signals: AtomicU32,
    guarded: UnsafeCell<Guarded>,
}

// SAFETY: a shared reference may be used by several threads.
// - everything that is not atomic is reached only with the one key of the process: see `guarded`.
unsafe impl Sync for Waitable {}

/// The part of an object that the lock guards.
struct Guarded {
    /// The process that used it last.
    home: u64,
    /// Waits of threads of that process. Dropped by hand: a child must not release the entries it inherits.
    queue: ManuallyDrop<VecDeque<Entry>>,
    timer: Times,
    /// The mutex's owner, how often it owns the mutex, and whether an owner ended without releasing it.
    owner: u64,
    depth: u32,
    is_abandoned: bool,
}

/// A wait in the queue of one of its objects. `place` is the object's index in the call.
struct Entry {
    wait: Arc<Wait>,
    place: u32,
}

/// When a timer is due.
#[derive(Default)]
struct Times {
    is_set: bool,
    /// `due` is a time of day.
    is_absolute: bool,
    /// Nanoseconds on the clock.
    due: u64,
    /// 0 if it fires once.
    period: u64,
}

/// Maximum sleep while waiting for an absolute time, because the clock may be changed meanwhile.
const LONGEST_SLEEP_FOR_AN_ABSOLUTE_TIME: Duration = Duration::from_millis(500);

/// Nanoseconds since 1970.
fn time_of_day() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

impl Waitable {
    pub(crate) fn new(kind: Kind, resets: bool, signals: u32) -> Self {
        let guarded = Guarded {
            home: 0,
            queue: ManuallyDrop::default(),
            timer: Times::default(),
            owner: 0,
            depth: 0,
            is_abandoned: false,
        };
        let signals = AtomicU32::new(signals);
        Self { kind, resets, signals, guarded: UnsafeCell::new(guarded) }
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The state of a thread object.
    pub(crate) fn thread(&self) -> Option<&ThreadWords> {
        if let Kind::Thread(words) = &self.kind { Some(words) } else { None }
    }

    pub(crate) fn is_signalled(&self) -> bool {
        self.signals.load(SeqCst) > 0
    }

    /// Returns what the lock guards, for as long as the key is borrowed.
    #[allow(clippy::mut_from_ref, reason = "the key itself is borrowed")]
    fn guarded<'k>(&'k self, key: &'k mut Key) -> &'k mut Guarded {
        // SAFETY: a unique reference demands a value that lives on, and that nothing else uses meanwhile.
        // - lives on: the object is borrowed for as long;
        // - nothing else: the key is borrowed for as long, and the process has no second one.
        let guarded = unsafe { &mut *self.guarded.get() };
        if guarded.home != key.home {
            // It holds entries of the parent's threads, and may be half changed.
            let inherited = std::mem::take(&mut guarded.queue);
            if guarded.home != 0 {
                key.inherited.push(inherited);
            }
            guarded.home = key.home;
        }
        guarded
    }

    /// Whether it would end a wait of this thread.
    fn is_ready_for(&self, thread: u64, key: &mut Key) -> bool {
        let owns = |guarded: &Guarded| guarded.depth > 0 && guarded.owner == thread;
        self.is_signalled() || matches!(self.kind, Kind::Mutex) && owns(self.guarded(key))
    }

    /// Ends a wait of this thread. Returns whether the object is an abandoned mutex.
    fn take(&self, thread: u64, key: &mut Key) -> bool {
        if let Kind::Mutex = self.kind {
            let guarded = self.guarded(key);
            guarded.owner = thread;
            guarded.depth = guarded.depth.saturating_add(1);
            let was_abandoned = std::mem::take(&mut guarded.is_abandoned);
            self.signals.store(0, SeqCst);
            return was_abandoned;
        }
        if self.resets {
            self.signals.fetch_sub(1, SeqCst);
        }
        false
    }

    /// Ends a wait of the calling thread if the object is signalled now. Returns whether it is an abandoned mutex.
    fn try_take(&self) -> Option<bool> {
        if !matches!(self.kind, Kind::Timer | Kind::Mutex) && !self.is_signalled() {
            return None;
        }
        let thread = this_thread();
        Wakes::of(|key, wakes| {
            self.look(key, wakes);
            self.is_ready_for(thread, key).then(|| self.take(thread, key))
        })
    }

    /// Ends the waits that its signals satisfy, oldest first.
    fn grant(&self, key: &mut Key, wakes: &mut Wakes) {
        let mut at = 0;
        while self.is_signalled()
            && let Some(entry) = self.guarded(key).queue.get(at)
        {
            let (wait, place) = (Arc::clone(&entry.wait), entry.place);
            match wait.how {
                // The waiting thread checks whether this is enough, and keeps its entries meanwhile.
                How::Looks => {
                    wait.word.store(Wait::LOOK, Release);
                    wakes.0.push(wait);
                    at += 1;
                }
                // The wait has removed all its entries here, so the next wait is at the same index.
                _ if wait.satisfy(place, key) => wakes.0.push(wait),
                _ => at += 1,
            }
        }
    }

    /// Makes all waiting threads check it again.
    fn stir(&self, key: &mut Key, wakes: &mut Wakes) {
        for entry in self.guarded(key).queue.iter() {
            entry.wait.word.store(Wait::LOOK, Release);
            wakes.0.push(Arc::clone(&entry.wait));
        }
    }

    /// Signals an event, or the end of a thread.
    pub(crate) fn set(&self) {
        Wakes::of(|key, wakes| {
            self.signals.store(1, SeqCst);
            self.grant(key, wakes);
        });
    }

    /// Undoes the reset of an auto-reset event by a wait. An event that a wait leaves set may have been reset since.
    pub(crate) fn put_back(&self) {
        if self.resets {
            self.set();
        }
    }

    /// Resets an event.
    pub(crate) fn reset(&self) {
        // A concurrent `set` counts as coming after this reset.
        if self.is_signalled() {
            let _key = lock();
            self.signals.store(0, SeqCst);
        }
    }

    /// Signals an event for the threads waiting now: one of them, or all.
    pub(crate) fn pulse(&self) {
        Wakes::of(|key, wakes| {
            self.signals.store(1, SeqCst);
            self.grant(key, wakes);
            self.signals.store(0, SeqCst);
        });
    }

    /// Adds to a semaphore's count and returns the previous count. `None` if the count would exceed the maximum.
    pub(crate) fn release(&self, count: u32, most: u32) -> Option<u32> {
        Wakes::of(|key, wakes| {
            let before = self.signals.load(SeqCst);
            if count > most - before {
                return None;
            }
            self.signals.store(before + count, SeqCst);
            self.grant(key, wakes);
            Some(before)
        })
    }

    /// The number of entries in its queue.
    pub(crate) fn waiting(&self) -> usize {
        self.guarded(&mut lock()).queue.len()
    }

    // ---- Timers ----

    /// Sets a timer, either to `due` nanoseconds from now or to a time of day.
    pub(crate) fn set_timer(&self, due: u64, is_absolute: bool, period: u64) {
        let due = if is_absolute { due } else { cp_clock().saturating_add(due) };
        Wakes::of(|key, wakes| {
            self.signals.store(0, SeqCst);
            self.guarded(key).timer = Times { is_set: true, is_absolute, due, period };
            // Their waits must use the new time.
            self.stir(key, wakes);
        });
    }

    /// Stops a timer. If it has already fired, it stays signalled.
    pub(crate) fn cancel_timer(&self) {
        Wakes::of(|key, wakes| {
            self.look(key, wakes);
            self.guarded(key).timer.is_set = false;
        });
    }

    /// Signals the object if it is a timer that is due. Returns how long a wait may sleep until it must check again.
    fn look(&self, key: &mut Key, wakes: &mut Wakes) -> Option<Duration> {
        if !matches!(self.kind, Kind::Timer) {
            return None;
        }
        let timer = &mut self.guarded(key).timer;
        if !timer.is_set {
            return None;
        }
        let mut now = if timer.is_absolute { time_of_day() } else { cp_clock() };
        let is_due = now >= timer.due;
        if is_due {
            timer.is_set = timer.period > 0;
            if timer.is_set {
                let late = (now - timer.due) % timer.period;
                // The period measures elapsed time, even if the time of day is changed.
                now = cp_clock();
                timer.due = now - late + timer.period;
                timer.is_absolute = false;
            }
        }
        let left = Duration::from_nanos(timer.due.saturating_sub(now));
        let most = if timer.is_absolute { LONGEST_SLEEP_FOR_AN_ABSOLUTE_TIME } else { left };
        let again = timer.is_set.then(|| left.min(most));
        if is_due {
            self.signals.store(1, SeqCst);
            self.grant(key, wakes);
        }
        again
    }

    // ---- Mutexes ----

    /// Releases a mutex once. Returns false if the calling thread does not own it.
    pub(crate) fn give_up(&self) -> bool {
        let left = Wakes::of(|key, wakes| {
            let guarded = self.guarded(key);
            if guarded.depth == 0 || guarded.owner != this_thread() {
                return None;
            }
            guarded.depth -= 1;
            let left = guarded.depth;
            if left == 0 {
                self.signals.store(1, SeqCst);
                self.grant(key, wakes);
            }
            Some(left)
        });
        if left == Some(0) {
            let is_other = |it: &Weak<Self>| !std::ptr::eq(it.as_ptr(), self);
            let _ = OWNED.try_with(|owned| owned.borrow_mut().0.retain(is_other));
        }
        left.is_some()
    }

    /// Abandons the mutex because its owner is ending.
    fn abandon(&self) {
        Wakes::of(|key, wakes| {
            let guarded = self.guarded(key);
            if guarded.depth > 0 && guarded.owner == this_thread() {
                guarded.depth = 0;
                guarded.is_abandoned = true;
                self.signals.store(1, SeqCst);
                self.grant(key, wakes);
            }
        });
    }
}

impl fmt::Debug for Waitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waitable").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Drop for Waitable {
    fn drop(&mut self) {
        let is_own = LOCK.find().is_some_and(|lock| lock.home == self.guarded.get_mut().home);
        if is_own {
            // SAFETY: `drop` demands a value that is not used again.
            // - the object ends here, and no other process has left the queue half changed.
            unsafe { ManuallyDrop::drop(&mut self.guarded.get_mut().queue) };
        }
    }
}

/// The mutexes a thread owns. Those it still owns when it ends become abandoned.
#[derive(Default)]
struct Owned(Vec<Weak<Waitable>>);

thread_local! {
    static OWNED: RefCell<Owned> = RefCell::default();
}

impl Owned {
    fn abandon(&mut self) {
        self.0.drain(..).filter_map(|it| it.upgrade()).for_each(|it| it.abandon());
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Abandons the mutexes of the calling thread, which is about to end.
pub(crate) fn abandon_owned() {
    let _ = OWNED.try_with(|owned| owned.borrow_mut().abandon());
}

/// Records that the calling thread owns an object, if it is a mutex.
fn note_owned(mutex: &Arc<Waitable>) {
    if !matches!(mutex.kind, Kind::Mutex) {
        return;
    }
    let _ = OWNED.try_with(|owned| {
        let owned = &mut owned.borrow_mut().0;
        owned.retain(|it| it.strong_count() > 0);
        let it = Arc::downgrade(mutex);
        if !owned.iter().any(|known| known.ptr_eq(&it)) {
            owned.push(it);
        }
    });
}

// ---- Waits ---------------------------------------------------------------------------------------

/// The objects and ports of a wait, each with its index in the call.
#[derive(Clone, Default)]
pub(crate) struct Awaited {
    pub(crate) objects: Vec<(u32, Arc<Waitable>)>,
    pub(crate) ports: Vec<(u32, Arc<CompletionPort>)>,
}

/// The condition that ends a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The first signal.
    Any,
    /// All objects are signalled at the same time.
    All,
    /// The same, but there are ports among them: the thread itself has to check.
    Looks,
}

/// A waiting thread.
struct Wait {
    /// [`SLEEP`](Self::SLEEP), [`LOOK`](Self::LOOK), or the granted result. Changed only with the lock held.
    word: AtomicU32,
    how: How,
    thread: u64,
    awaited: Awaited,
}

/// Greater than any index in a wait.
const PLACES: u32 = ABANDONED;

impl Wait {
    const SLEEP: u32 = 0;
    /// Its thread must check the objects again.
    const LOOK: u32 = 1;
    /// Set together with the result: an index, possibly with [`ABANDONED`].
    const GRANTED: u32 = 1 << 31;

    fn of(awaited: Awaited, all: bool) -> Arc<Self> {
        let how = match all {
            true if awaited.ports.is_empty() => How::All,
            true => How::Looks,
            false => How::Any,
        };
        let word = AtomicU32::new(Self::SLEEP);
        Arc::new(Self { word, how, thread: this_thread(), awaited })
    }

    /// Returns the granted result.
    fn granted(&self) -> Option<u32> {
        let word = self.word.load(Acquire);
        (word & Self::GRANTED != 0).then_some(word & !Self::GRANTED)
    }

    /// Takes all objects if all are signalled, or the first signalled one at an index in `places`. Returns the result of the
    /// wait.
    fn take(&self, places: Range<u32>, key: &mut Key) -> Option<u32> {
        let objects = &self.awaited.objects;
        let abandoned = |is_it| if is_it { ABANDONED } else { 0 };
        if self.how == How::Any {
            let (place, object) = objects.iter().find(|(place, object)| {
                places.contains(place) && object.is_ready_for(self.thread, key)
            })?;
            return Some(place + abandoned(object.take(self.thread, key)));
        }
        if !objects.iter().all(|(_, object)| object.is_ready_for(self.thread, key)) {
            return None;
        }
        let of_ended = objects.iter().filter(|(_, object)| object.take(self.thread, key)).count();
        Some(abandoned(of_ended > 0))
    }

    /// Grants the wait, now that the object at this index is signalled, unless it needs more objects.
    fn satisfy(self: &Arc<Self>, place: u32, key: &mut Key) -> bool {
        let Some(result) = self.take(place..place + 1, key) else { return false };
        self.unlink(key);
        self.word.store(Self::GRANTED | result, Release);
        true
    }

    fn link(self: &Arc<Self>, key: &mut Key) {
        for (place, object) in &self.awaited.objects {
            object.guarded(key).queue.push_back(Entry { wait: Arc::clone(self), place: *place });
        }
    }

    fn unlink(self: &Arc<Self>, key: &mut Key) {
        for (_, object) in &self.awaited.objects {
            let queue = &mut object.guarded(key).queue;
            while let Some(at) = queue.iter().position(|entry| Arc::ptr_eq(&entry.wait, self)) {
                queue.remove(at);
            }
        }
    }

    /// Returns a bit for each index of a port, and for each index of a port that has packets. Fails if a port is closed.
    fn ports(&self) -> Result<(u64, u64), u32> {
        let (mut all, mut ready) = (0, 0);
        for (place, port) in &self.awaited.ports {
            if !port.is_open() || port.raw().is_forked() {
                return Err(code::INVALID_HANDLE);
            }
            all |= 1 << place;
            ready |= u64::from(port.is_ready()?) << place;
        }
        Ok((all, ready))
    }

    /// Checks all objects and ports, and takes what ends the wait. Returns `None` if nothing does. The wait then checks again
    /// after `pause`, if that is set.
    fn look(
        &self,
        ports: Result<(u64, u64), u32>,
        pause: &mut Option<Duration>,
        key: &mut Key,
        wakes: &mut Wakes,
    ) -> Option<Result<u32, u32>> {
        let objects = &self.awaited.objects;
        *pause = objects.iter().filter_map(|(_, object)| object.look(key, wakes)).min();
        // A result that was granted must not be lost.
        if let Some(result) = self.granted() {
            return Some(Ok(result));
        }
        let (all, ready) = match ports {
            Ok(ports) => ports,
            Err(code) => return Some(Err(code)),
        };
        if all != 0 {
            *pause = Some(pause.map_or(BETWEEN_LOOKS, |pause| pause.min(BETWEEN_LOOKS)));
        }
        let is_any = self.how == How::Any;
        let port = (is_any && ready != 0).then(|| ready.trailing_zeros());
        let taken =
            if is_any || ready == all { self.take(0..port.unwrap_or(PLACES), key) } else { None };
        self.word.store(Self::SLEEP, Release);
        taken.or(port).map(Ok)
    }
}

/// Tracks whether a wait has entries in queues, and removes them however the wait ends.
struct Linked<'w> {
    wait: &'w Arc<Wait>,
    is_linked: bool,
}

impl Linked<'_> {
    fn link(&mut self, key: &mut Key) {
        if !self.is_linked {
            self.wait.link(key);
            self.is_linked = true;
        }
    }

    fn unlink(&mut self, key: &mut Key) {
        if self.is_linked {
            self.wait.unlink(key);
            self.is_linked = false;
        }
    }
}

impl Drop for Linked<'_> {
    fn drop(&mut self) {
        // A granted wait has no entries, although `is_linked` is still set. The other case is a check of a port that
        // panicked.
        if self.is_linked && self.wait.granted().is_none() {
            self.unlink(&mut lock());
        }
    }
}

/// The interval at which a wait checks its ports.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Waits until one of the objects and ports is signalled, or until all are, for `limit` at most. Returns the index of that
/// one, possibly with [`ABANDONED`]. Fails with the code of a timeout or of a closed port.
pub(crate) fn wait(awaited: Awaited, all: bool, limit: Option<Duration>) -> Result<u32, u32> {
    if let [(place, object)] = &*awaited.objects
        && awaited.ports.is_empty()
    {
        // Most waits are for one object. If it is signalled already, the wait needs no entry and no memory.
        match object.try_take() {
            Some(was_abandoned) => {
                note_owned(object);
                return Ok(place + if was_abandoned { ABANDONED } else { 0 });
            }
            None if limit == Some(Duration::ZERO) => return Err(code::WAIT_TIMEOUT),
            None => {}
        }
    }
    let wait = Wait::of(awaited, all);
    let result = until_satisfied(&wait, limit)?;
    for (place, object) in &wait.awaited.objects {
        if all || *place == result % ABANDONED {
            note_owned(object);
        }
    }
    Ok(result)
}

fn until_satisfied(wait: &Arc<Wait>, limit: Option<Duration>) -> Result<u32, u32> {
    let began = limit.map(|_| Instant::now());
    let mut linked = Linked { wait, is_linked: false };
    loop {
        let ports = wait.ports();
        let left = limit.zip(began).map(|(limit, began)| limit.saturating_sub(began.elapsed()));
        let mut pause = None;
        let ended = Wakes::of(|key, wakes| {
            let is_over = || (left == Some(Duration::ZERO)).then_some(Err(code::WAIT_TIMEOUT));
            let ended = wait.look(ports, &mut pause, key, wakes).or_else(is_over);
            // In the same step, because an entry means that the wait has not ended.
            if ended.is_some() {
                linked.unlink(key)
            } else {
                linked.link(key)
            }
            ended
        });
        if let Some(result) = ended {
            return result;
        }
        let pause = [left, pause].into_iter().flatten().min();
        wait_while(&wait.word, Wait::SLEEP, pause);
        if let Some(result) = wait.granted() {
            return Ok(result);
        }
    }
}
