//! Objects that threads wait for: events, semaphores, timers, mutexes, threads; and the waits.
//!
//! One lock of the process guards the queues of all objects, so that a wait for several of them is one step. It is held for
//! as long as a signal takes to find its waits, never over a system call, and nothing else is locked within.
//!
//! # The invariant
//!
//! Whenever the lock is free:
//!
//! 1. A wait that has not ended has an entry in the queue of each of its objects, the oldest wait first.
//! 2. No wait in a queue can be satisfied: of a wait for any object none is signalled, of a wait for all of them not all
//!    are.
//! 3. A wait that was granted has no entry. What it was granted was taken from its objects in the same step.
//!
//! So the thread that signals an object decides before it returns which waits end. A second signal or a reset finds these
//! waits gone, although their threads have not run. A wait that times out or fails removes its entries in the step in which
//! it finds that nothing was granted to it.
//!
//! Two sorts of things change without a signal. A *timer* becomes due: each wait for it sleeps no longer than until then, and
//! the first that looks signals it for all ([`Waitable::look`]). A *port* gets packets: only a look tells, so that a wait
//! that has ports looks every millisecond, and takes what it finds itself ([`How::Looks`]).
//!
//! # Forks
//!
//! A child has the objects as they were, and none of the threads that wait. The count of signals is one word, and right. The
//! queue belongs to the process that has used it last (`home`): a child begins with an empty one, since the parent's may be
//! half changed. So may be the time of a timer and the owner of a mutex, if another thread changed them during the fork.

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

/// Added to the place of a mutex that a thread has left owned at its end.
pub(crate) const ABANDONED: u32 = 0x80;

// ---- The lock ------------------------------------------------------------------------------------

/// Who has it may use what the lock guards. There is one in each process.
struct Key {
    /// Which process this is, among those that it was forked from.
    home: u64,
    /// Queues of its parent's threads, which it keeps and never looks at.
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

/// Waits that were granted, and whose threads are to be woken when the lock is free.
#[derive(Default)]
struct Wakes(Vec<Arc<Wait>>);

impl Wakes {
    /// Locks, calls `change`, unlocks, and wakes whom that concerns.
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

/// What an object is.
#[derive(Debug)]
pub(crate) enum Kind {
    Event,
    /// With its greatest count.
    Semaphore(u32),
    Timer,
    Mutex,
    Thread(ThreadWords),
}

/// What is known of a thread besides its end.
#[derive(Debug, Default)]
pub(crate) struct ThreadWords {
    /// Its number; 0 until it runs.
    pub(crate) id: AtomicU32,
    /// It is not suspended, or was resumed.
    pub(crate) may_go: AtomicU32,
    pub(crate) result: AtomicU32,
}

/// An object that threads wait for.
pub(crate) struct Waitable {
    kind: Kind,
    /// A wait that it ends takes one of its signals.
    resets: bool,
    /// How many waits it ends; 1 if it ends any number. Changed with the lock held.
    signals: AtomicU32,
    guarded: UnsafeCell<Guarded>,
}

// SAFETY: a shared reference may be used by several threads.
// - what is not atomic is only reached with the one key of the process: see `guarded`.
unsafe impl Sync for Waitable {}

/// What the lock guards of an object.
struct Guarded {
    /// The process that has used it last.
    home: u64,
    /// Waits of threads of that process. By hand, since a child must not give up what it finds there.
    queue: ManuallyDrop<VecDeque<Entry>>,
    timer: Times,
    /// The thread that has a mutex, how often, and whether one that had it has ended.
    owner: u64,
    depth: u32,
    is_abandoned: bool,
}

/// A wait in the queue of one of its objects: the one at this place of the call.
struct Entry {
    wait: Arc<Wait>,
    place: u32,
}

/// When a timer is due.
#[derive(Default)]
struct Times {
    is_set: bool,
    /// `due` is a time of the day.
    is_absolute: bool,
    /// Nanoseconds of the clock.
    due: u64,
    /// 0: it is signalled once.
    period: u64,
}

/// An absolute time may come nearer or farther while a thread sleeps. So long may it sleep.
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

    /// Of a thread.
    pub(crate) fn thread(&self) -> Option<&ThreadWords> {
        if let Kind::Thread(words) = &self.kind { Some(words) } else { None }
    }

    pub(crate) fn is_signalled(&self) -> bool {
        self.signals.load(SeqCst) > 0
    }

    /// What the lock guards, for as long as the key is borrowed.
    #[allow(clippy::mut_from_ref, reason = "the key is what is borrowed")]
    fn guarded<'k>(&'k self, key: &'k mut Key) -> &'k mut Guarded {
        // SAFETY: a unique reference demands a value that lives on, and that nothing else uses meanwhile.
        // - lives on: the object is borrowed as long;
        // - nothing else: so is the key, and the process has no second one.
        let guarded = unsafe { &mut *self.guarded.get() };
        if guarded.home != key.home {
            // Of a parent's threads, and perhaps half changed.
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

    /// Ends a wait of this thread. Whether it is a mutex that was abandoned.
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

    /// Ends a wait of the calling thread, if it is signalled now. Whether it is a mutex that was abandoned.
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

    /// Ends the waits that its signals satisfy, the oldest first.
    fn grant(&self, key: &mut Key, wakes: &mut Wakes) {
        let mut at = 0;
        while self.is_signalled()
            && let Some(entry) = self.guarded(key).queue.get(at)
        {
            let (wait, place) = (Arc::clone(&entry.wait), entry.place);
            match wait.how {
                // Its thread looks whether this is enough, and keeps its entries meanwhile.
                How::Looks => {
                    wait.word.store(Wait::LOOK, Release);
                    wakes.0.push(wait);
                    at += 1;
                }
                // That has removed all its entries here: the next wait's is at the same index.
                _ if wait.satisfy(place, key) => wakes.0.push(wait),
                _ => at += 1,
            }
        }
    }

    /// Lets the threads that wait look at it again.
    fn stir(&self, key: &mut Key, wakes: &mut Wakes) {
        for entry in self.guarded(key).queue.iter() {
            entry.wait.word.store(Wait::LOOK, Release);
            wakes.0.push(Arc::clone(&entry.wait));
        }
    }

    /// Signals it: an event, a thread's end.
    pub(crate) fn set(&self) {
        Wakes::of(|key, wakes| {
            self.signals.store(1, SeqCst);
            self.grant(key, wakes);
        });
    }

    /// Ends the signal of an event.
    pub(crate) fn reset(&self) {
        // One that is set at the same time is set behind this.
        if self.is_signalled() {
            let _key = lock();
            self.signals.store(0, SeqCst);
        }
    }

    /// Signals an event for the threads that wait now: for one of them, or all.
    pub(crate) fn pulse(&self) {
        Wakes::of(|key, wakes| {
            self.signals.store(1, SeqCst);
            self.grant(key, wakes);
            self.signals.store(0, SeqCst);
        });
    }

    /// Adds to a semaphore's count; what it was before. `None` if it would become too great.
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

    /// How many entries its queue has.
    pub(crate) fn waiting(&self) -> usize {
        self.guarded(&mut lock()).queue.len()
    }

    // ---- Timers ----

    /// Sets a timer: to `due` nanoseconds from now, or to a time of the day.
    pub(crate) fn set_timer(&self, due: u64, is_absolute: bool, period: u64) {
        let due = if is_absolute { due } else { cp_clock().saturating_add(due) };
        Wakes::of(|key, wakes| {
            self.signals.store(0, SeqCst);
            self.guarded(key).timer = Times { is_set: true, is_absolute, due, period };
            // They count from the new time.
            self.stir(key, wakes);
        });
    }

    /// Stops a timer. A time that has come before stays signalled.
    pub(crate) fn cancel_timer(&self) {
        Wakes::of(|key, wakes| {
            self.look(key, wakes);
            self.guarded(key).timer.is_set = false;
        });
    }

    /// Signals it if it is a timer whose time has come. Returns after how long the next one comes.
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
                // The period is one of time that passes, whatever becomes of the time of the day.
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

    /// Gives a mutex up once. False if the calling thread does not have it.
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

    /// The thread that has it ends.
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
            // - the object is gone behind this; and no other process has left it half changed.
            unsafe { ManuallyDrop::drop(&mut self.guarded.get_mut().queue) };
        }
    }
}

/// The mutexes that a thread has. Those that it has at its end are abandoned.
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

/// The calling thread is about to end: it abandons what it has.
pub(crate) fn abandon_owned() {
    let _ = OWNED.try_with(|owned| owned.borrow_mut().abandon());
}

/// Notes that the calling thread has an object, if that is a mutex.
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

/// What a wait is for: each object and each port with its place in the call.
#[derive(Clone, Default)]
pub(crate) struct Awaited {
    pub(crate) objects: Vec<(u32, Arc<Waitable>)>,
    pub(crate) ports: Vec<(u32, Arc<CompletionPort>)>,
}

/// What ends a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The first signal.
    Any,
    /// All objects are signalled at the same time.
    All,
    /// The same, and there are ports among them: the thread itself has to look.
    Looks,
}

/// A thread that waits.
struct Wait {
    /// [`SLEEP`](Self::SLEEP), [`LOOK`](Self::LOOK), or what it was granted. Changed with the lock held.
    word: AtomicU32,
    how: How,
    thread: u64,
    awaited: Awaited,
}

/// More than the places of any wait.
const PLACES: u32 = ABANDONED;

impl Wait {
    const SLEEP: u32 = 0;
    /// Its thread is to look at the objects again.
    const LOOK: u32 = 1;
    /// Set together with the result: a place, perhaps [`ABANDONED`].
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

    /// What it was granted.
    fn granted(&self) -> Option<u32> {
        let word = self.word.load(Acquire);
        (word & Self::GRANTED != 0).then_some(word & !Self::GRANTED)
    }

    /// Takes all objects if all are there, or the first one that is there of those at `places`. What the wait returns then.
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

    /// Grants it what it waits for, if that is there now that the object at this place is signalled.
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

    /// A bit for each place of a port, and for each of those that have packets. Fails if one is closed.
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

    /// Looks at everything that it is for, and takes what ends it. `None` if nothing does; then it looks again after the
    /// time in `pause`, if there is one.
    fn look(
        &self,
        ports: Result<(u64, u64), u32>,
        pause: &mut Option<Duration>,
        key: &mut Key,
        wakes: &mut Wakes,
    ) -> Option<Result<u32, u32>> {
        let objects = &self.awaited.objects;
        *pause = objects.iter().filter_map(|(_, object)| object.look(key, wakes)).min();
        // Whatever it was granted must not be lost.
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

/// Whether a wait has entries in queues, from which they are taken however it ends.
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
        // A wait that was granted has none, and was not told so. Another one has them if a look at a port has panicked.
        if self.is_linked && self.wait.granted().is_none() {
            self.unlink(&mut lock());
        }
    }
}

/// How often a wait for ports looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Waits for the first of the objects and ports that is signalled, or until all are, at most for `limit`. Returns the place
/// of that one, perhaps with [`ABANDONED`]; or the code of a timeout, or of a port that was closed.
pub(crate) fn wait(awaited: Awaited, all: bool, limit: Option<Duration>) -> Result<u32, u32> {
    if let [(place, object)] = &*awaited.objects
        && awaited.ports.is_empty()
    {
        // Most waits are for one object. One that ends now needs no entry, and so no memory.
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
            // In the same step: an entry says that it waits.
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
