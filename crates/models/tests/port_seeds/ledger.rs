//! Records every key and message, and checks what must hold under any interleaving.
//!
//! The ledger isn't part of the simulation: its lock is no point, and no thread of a run waits for
//! it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::operations::{Log, Tray};
use crate::port::raw::AnyTrigger;
use crate::port::registration::Id;
use crate::sim::{Conditions, Kernel, Socket};
use crate::turns::{fail, point};
use crate::types::interest::{Events, Interest};
use crate::types::source::{BorrowedSource, Source};
use crate::{OneShot, Outcome, Persistent};

/// The poster of messages whose order isn't checked.
pub(crate) const NO_ORDER: usize = usize::MAX;

/// The state of a registration, according to its calls and packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Enabled,
    /// Disabled, parked, or a one-shot registration whose packet came without a token.
    Off,
    Held,
    Over,
}

#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) id: Option<Id>,
    /// The number of live clones of the key, including the original.
    alive: i64,
    pub(crate) standing: Standing,
    pub(crate) interest: Interest,
    pub(crate) trigger: AnyTrigger,
    /// Requested by `enable_also` and not reported since.
    also: Interest,
    /// It was armed by `enable`, perhaps before the handler of another packet had read.
    pub(crate) is_armed_by_name: bool,
    /// `enable_also` was called while it may have been off, so its filter differs from `interest`.
    pub(crate) has_another_filter: bool,
    /// How often it was armed or was about to be, its tokens, and its packets.
    arms: u64,
    tokens: u64,
    pub(crate) packets: u64,
    /// When its last packet without a token came.
    reported: u64,
    /// One of its tokens is out.
    is_out: bool,
    /// A handler has asked for another packet, which has not come; its last packet was such a one.
    is_asked_for: bool,
    pub(crate) was_asked_for: bool,
    /// Whether it was removed, and when its last packet came.
    pub(crate) removing: bool,
    ended: Option<u64>,
    /// When a call last changed it, or began to.
    changed: u64,
    /// The number of calls begun that enable or disable it through its `Id`.
    calls: u64,
    /// Calls overlapped, so its standing is unknown.
    pub(crate) is_doubtful: bool,
    pub(crate) socket: Weak<Socket>,
    /// When it was made, another key of the socket was still alive: that of a removed registration,
    /// whose handler may read.
    pub(crate) is_of_shared_socket: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Made,
    Queued,
    Taken,
}

#[derive(Debug)]
struct Letter {
    poster: usize,
    fate: Fate,
    alive: bool,
    /// An operation makes it, and leaves none if it has no packet itself.
    is_of_operation: bool,
    /// For a message posted for a later time: the earliest time at which it may come and, once
    /// known, the time at which it is due.
    time: Option<(Duration, Option<Duration>)>,
}

#[derive(Debug, Default)]
struct Book {
    time: u64,
    keys: BTreeMap<u32, Facts>,
    letters: Vec<Letter>,
    /// Threads that process packets, or that occupy a seat without waiting.
    at_work: usize,
    /// The sleeping threads among `at_work`.
    asleep: usize,
    /// The number of the last message that each thread took from each poster.
    orders: BTreeMap<(usize, usize), usize>,
    notes: VecDeque<String>,
}

/// What one run guarantees beyond the rules that always hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exact {
    /// The maximum number of threads at work.
    pub(crate) at_work: Option<usize>,
    /// One thread takes all messages and leaves none to others.
    pub(crate) order: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    book: Mutex<Book>,
    log: Mutex<Log>,
    exact: Exact,
    writes_notes: bool,
}

pub(crate) fn is_one_shot(trigger: AnyTrigger) -> bool {
    matches!(trigger, AnyTrigger::OneShot(_))
}

pub(crate) fn is_level(trigger: AnyTrigger) -> bool {
    matches!(
        trigger,
        AnyTrigger::OneShot(OneShot::Level) | AnyTrigger::Persistent(Persistent::Level)
    )
}

impl Ledger {
    pub(crate) fn new(exact: Exact, writes_notes: bool) -> Arc<Self> {
        Arc::new(Self { book: Mutex::default(), log: Mutex::default(), exact, writes_notes })
    }

    fn open(&self) -> MutexGuard<'_, Book> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.time += 1;
        book
    }

    /// The log of operations. Lock it before the book, never after.
    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        if self.writes_notes {
            let mut book = self.open();
            if book.notes.len() == 400 {
                book.notes.pop_front();
            }
            let name = std::thread::current().name().unwrap_or("main").to_owned();
            let name = if name.contains("one_process") { "main".to_owned() } else { name };
            book.notes.push_back(format!("{name}: {}", text()));
        }
    }

    /// Returns the current logical time, for later comparison.
    pub(crate) fn now(&self) -> u64 {
        self.open().time
    }

    // ---- keys ----

    pub(crate) fn key(
        self: &Arc<Self>,
        owned: Option<Arc<Socket>>,
        socket: &Arc<Socket>,
        interest: Interest,
        trigger: AnyTrigger,
    ) -> Key {
        let mut book = self.open();
        let number = u32::try_from(book.keys.len()).unwrap();
        let socket = Arc::downgrade(socket);
        let is_of_shared_socket =
            book.keys.values().any(|other| other.alive > 0 && other.socket.ptr_eq(&socket));
        let facts = Facts {
            id: None,
            alive: 1,
            standing: Standing::Enabled,
            interest,
            trigger,
            also: Interest::NONE,
            is_armed_by_name: false,
            has_another_filter: false,
            arms: 1,
            tokens: 0,
            packets: 0,
            reported: 0,
            is_out: false,
            is_asked_for: false,
            was_asked_for: false,
            removing: false,
            ended: None,
            changed: book.time,
            calls: 0,
            is_doubtful: false,
            socket,
            is_of_shared_socket,
        };
        book.keys.insert(number, facts);
        drop(book);
        Key { number, owned, ledger: Arc::clone(self) }
    }

    pub(crate) fn with<R>(&self, key: u32, act: impl FnOnce(&mut Facts) -> R) -> R {
        act(self.open().keys.get_mut(&key).unwrap())
    }

    fn count(&self, key: u32, by: i64) {
        let mut book = self.open();
        let facts = book.keys.get_mut(&key).unwrap();
        facts.alive += by;
        if facts.alive < 0 {
            drop(book);
            fail(&format!("key {key} was dropped twice"));
        }
    }

    /// Records the `Id` of a registration. Packets may have come before.
    pub(crate) fn registered(&self, key: u32, id: Id) {
        let mut book = self.open();
        let is_new = book.keys.values().all(|facts| facts.id != Some(id));
        book.keys.get_mut(&key).unwrap().id = Some(id);
        drop(book);
        if !is_new {
            fail(&format!("{id:?} was given out twice"));
        }
    }

    /// Records a packet from a call that began at `began`. `token` means that the key is out with
    /// it.
    pub(crate) fn packet(&self, key: u32, events: Events, began: u64, token: bool) {
        let mut book = self.open();
        let time = book.time;
        let facts = book.keys.get_mut(&key).unwrap();
        let mut broken = None;
        if facts.ended.is_some_and(|ended| ended < began) {
            broken = Some("a packet came after the last one");
        }
        facts.packets += 1;
        facts.was_asked_for = std::mem::take(&mut facts.is_asked_for);
        // With HANGUP, IN means data only.
        let is_in = events.is_in() || events.is_hangup();
        for (interest, is_told) in [(Interest::IN, is_in), (Interest::OUT, events.is_out())] {
            if is_told {
                facts.also = facts.also - interest;
            }
        }
        if token {
            facts.tokens += 1;
            if facts.is_out {
                broken = Some("two tokens are out");
            }
            if facts.tokens > facts.arms {
                broken = Some("more tokens came than it was armed");
            }
            facts.is_out = true;
            facts.standing = Standing::Held;
            facts.changed = time;
        } else {
            facts.reported = time;
        }
        drop(book);
        if let Some(broken) = broken {
            fail(&format!("registration of key {key}: {broken}"));
        }
    }

    /// Records the packet, without a token, of a one-shot registration, which is off afterwards.
    /// Returns the time, for [`Ledger::deadline_timer`].
    pub(crate) fn spent(&self, key: u32, began: u64) -> u64 {
        let mut book = self.open();
        let time = book.time;
        let facts = book.keys.get_mut(&key).unwrap();
        facts.tokens += 1;
        if facts.changed > began {
            facts.is_doubtful = true;
        }
        facts.standing = Standing::Off;
        facts.has_another_filter |= !facts.also.is_empty();
        facts.changed = time;
        let too_many = facts.tokens > facts.arms && !facts.is_doubtful;
        drop(book);
        if too_many {
            fail(&format!("registration of key {key}: more packets came than it was armed"));
        }
        time
    }

    /// The handler of a packet recorded at `spent` is about to arm the registration through its
    /// `Id`. Returns the number of that call, for [`Ledger::armed`].
    pub(crate) fn arming(
        &self,
        key: u32,
        spent: u64,
        interest: Interest,
        trigger: AnyTrigger,
    ) -> u64 {
        self.with(key, |facts| facts.is_doubtful |= facts.changed != spent);
        self.giving_back(key, Some((interest, trigger)));
        self.with(key, |facts| {
            facts.calls += 1;
            facts.calls
        })
    }

    /// That call has returned. If another call began meanwhile, either of the two may have taken
    /// effect last.
    pub(crate) fn armed(&self, key: u32, call: u64) {
        self.with(key, |facts| facts.is_doubtful |= facts.calls != call);
    }

    /// The token is about to be returned, which arms the registration if `armed` is set.
    pub(crate) fn giving_back(&self, key: u32, armed: Option<(Interest, AnyTrigger)>) {
        let mut book = self.open();
        let time = book.time;
        let facts = book.keys.get_mut(&key).unwrap();
        facts.is_out = false;
        facts.changed = time;
        facts.standing = Standing::Off;
        facts.has_another_filter = armed.is_none() && !facts.also.is_empty();
        if let Some((interest, trigger)) = armed {
            facts.arms += 1;
            facts.standing = Standing::Enabled;
            facts.interest = interest;
            facts.trigger = trigger;
        }
    }

    /// The token is about to be returned for another packet, after [`Ledger::giving_back`].
    pub(crate) fn asking_again(&self, key: u32) {
        self.with(key, |facts| facts.is_asked_for = true);
    }

    /// The token is about to be passed to an operation.
    pub(crate) fn lending(&self, key: u32) {
        self.giving_back(key, None);
        self.with(key, |facts| facts.arms += 1);
    }

    /// A call has returned a token.
    pub(crate) fn lent_back(&self, key: u32) {
        self.packet(key, Events::NONE, self.now(), true);
    }

    /// A call has returned the token of a key that was shared.
    pub(crate) fn taken_back(&self, key: u32) {
        self.with(key, |facts| facts.arms += 1);
        self.lent_back(key);
    }

    /// The registration has ended, or is about to, without a last packet.
    pub(crate) fn over(&self, key: u32) {
        let mut book = self.open();
        let time = book.time;
        let facts = book.keys.get_mut(&key).unwrap();
        facts.is_out = false;
        facts.standing = Standing::Over;
        facts.changed = time;
    }

    /// The last packet has come to a call that began at `began`.
    pub(crate) fn last_packet(&self, key: u32, began: u64) {
        let mut book = self.open();
        let time = book.time;
        let facts = book.keys.get_mut(&key).unwrap();
        let twice = facts.ended.is_some();
        let held = facts.is_out;
        facts.ended = Some(time);
        facts.standing = Standing::Over;
        facts.changed = time;
        drop(book);
        if twice {
            fail(&format!("registration of key {key}: two last packets, this one from {began}"));
        }
        if held {
            fail(&format!("registration of key {key}: the last packet came with the key out"));
        }
    }

    /// `enable_also` is about to be called. Each of its conditions may get its own packet: a
    /// condition that one packet does not report stays requested, and enables a parked registration
    /// again.
    pub(crate) fn asking_also(&self, key: u32, interest: Interest) {
        let parts = [Interest::IN, Interest::OUT, Interest::HANGUP];
        let parts = parts.into_iter().filter(|part| interest.contains(*part)).count();
        self.with(key, |facts| {
            facts.arms += u64::try_from(parts).unwrap();
            facts.also |= interest;
            facts.has_another_filter |= facts.standing == Standing::Off;
        });
    }

    /// The call to `enable_also` was refused.
    pub(crate) fn asked_in_vain(&self, key: u32) {
        self.with(key, |facts| facts.also = Interest::NONE);
    }

    /// A call is about to change the registration from outside. Returns the time, for
    /// [`Ledger::changed`].
    pub(crate) fn changing(&self, key: u32, arms: bool) -> u64 {
        let mut book = self.open();
        let time = book.time;
        let facts = book.keys.get_mut(&key).unwrap();
        facts.arms += u64::from(arms);
        facts.calls += 1;
        facts.is_armed_by_name |= arms;
        // An overlapping call sees that this one has changed something.
        facts.changed = time;
        time
    }

    /// That call has succeeded.
    pub(crate) fn changed(&self, key: u32, began: u64, to: Change) {
        let mut book = self.open();
        let time = book.time;
        let facts = book.keys.get_mut(&key).unwrap();
        if facts.changed != began && !matches!(to, Change::Removed) {
            facts.is_doubtful = true;
        }
        facts.changed = time;
        match to {
            Change::Enabled(interest, trigger) => {
                // A packet that came meanwhile may be the one packet of the new trigger.
                facts.is_doubtful |= is_one_shot(trigger) && facts.reported > began;
                (facts.interest, facts.trigger) = (interest, trigger);
                facts.standing = Standing::Enabled;
                facts.has_another_filter = false;
            }
            Change::Disabled => {
                facts.has_another_filter |= !facts.also.is_empty();
                // If a token is out, it stays out. Another thread may have called `enable_also`
                // just before or after.
                facts.also = Interest::NONE;
                facts.is_asked_for = false;
                if facts.standing == Standing::Enabled {
                    facts.standing = Standing::Off;
                }
            }
            Change::Removed => facts.removing = true,
        }
    }

    /// Marks the registrations that `of` selects as doubtful, for instance because their descriptor
    /// was closed.
    pub(crate) fn doubt(&self, of: impl Fn(&Facts) -> bool) {
        for facts in self.open().keys.values_mut() {
            if of(facts) {
                facts.is_doubtful = true;
            }
        }
    }

    // ---- messages ----

    /// Creates a message. Messages of one poster keep their order, unless the poster is
    /// [`NO_ORDER`].
    pub(crate) fn letter(self: &Arc<Self>, poster: usize) -> Message {
        let mut book = self.open();
        let letter =
            Letter { poster, fate: Fate::Made, alive: true, is_of_operation: false, time: None };
        book.letters.push(letter);
        let number = book.letters.len() - 1;
        Message { number, ledger: Arc::clone(self), operation: None }
    }

    /// Creates the message of an operation.
    pub(crate) fn letter_of_operation(self: &Arc<Self>) -> Message {
        let message = self.letter(NO_ORDER);
        self.open().letters[message.number].is_of_operation = true;
        message
    }

    /// A message is about to be posted.
    pub(crate) fn posting(&self, message: usize) {
        self.open().letters[message].fate = Fate::Queued;
    }

    /// A message is about to be posted for `time`.
    pub(crate) fn posting_at(&self, message: usize, time: Duration) {
        let mut book = self.open();
        book.letters[message].fate = Fate::Queued;
        book.letters[message].time = Some((time, None));
    }

    /// The message was posted and is due at `time` at the latest, plus one scan interval of the
    /// watchdog.
    pub(crate) fn posted_at(&self, message: usize, time: Duration) {
        let latest = Some(time + Duration::from_millis(1));
        self.open().letters[message].time.as_mut().expect("it was posted for a time").1 = latest;
    }

    pub(crate) fn given_back(&self, message: usize) {
        let mut book = self.open();
        let taken = book.letters[message].fate == Fate::Taken;
        book.letters[message].fate = Fate::Taken;
        drop(book);
        if taken {
            fail(&format!("message {message} was given back, and was taken"));
        }
    }

    pub(crate) fn taken(&self, thread: usize, message: usize, now: Duration) {
        let mut book = self.open();
        let letter = &mut book.letters[message];
        let (fate, poster, time) = (letter.fate, letter.poster, letter.time);
        letter.fate = Fate::Taken;
        let former = book.orders.insert((thread, poster), message);
        drop(book);
        if let Some((time, _)) = time.filter(|(time, _)| now < *time) {
            fail(&format!("message {message} came at {now:?}, and was for {time:?}"));
        }
        if fate != Fate::Queued {
            fail(&format!("message {message} was taken, though it was {fate:?}"));
        }
        let keeps_order = self.exact.order && poster != NO_ORDER;
        if keeps_order && former.is_some_and(|former| former > message) {
            fail(&format!("message {message} of poster {poster} came after {former:?}"));
        }
    }

    // ---- threads ----

    /// A thread begins to process packets.
    pub(crate) fn works(&self, has_packet: bool) {
        let mut book = self.open();
        book.at_work += 1;
        let at_work = book.at_work;
        drop(book);
        if has_packet && self.exact.at_work.is_some_and(|most| at_work > most) {
            fail(&format!("{at_work} threads run with packets"));
        }
    }

    pub(crate) fn rests(&self) {
        self.open().at_work -= 1;
    }

    /// A thread at work begins to sleep (`by` is 1) or stops sleeping (`by` is -1).
    pub(crate) fn sleeps(&self, by: isize) {
        let mut book = self.open();
        book.asleep = book.asleep.checked_add_signed(by).unwrap();
    }

    /// Returns whether all threads at work are asleep.
    pub(crate) fn all_sleep(&self) -> bool {
        let book = self.open();
        book.at_work == book.asleep
    }

    /// Returns whether all threads that take packets are waiting.
    pub(crate) fn all_wait(&self) -> bool {
        self.open().at_work == 0
    }

    // ---- what is due ----

    /// Lists the packets that are due and that no thread has received.
    pub(crate) fn due(&self, kernel: &Kernel) -> Vec<String> {
        let mut due = Vec::new();
        let mut waiting = Vec::new();
        // There must be no point while the book is open: another thread may need it.
        let (now, held) = (kernel.now(), kernel.held_files());
        for (number, facts) in &self.open().keys {
            if facts.is_doubtful || facts.standing == Standing::Held {
                continue;
            }
            // A removal waits for the operations that the kernel holds.
            if facts.removing && facts.standing != Standing::Over && held == 0 {
                due.push(format!("key {number} was removed, and its last packet did not come"));
            } else if facts.standing == Standing::Enabled
                && facts.is_asked_for
                // A registration whose borrowed socket was closed may end when its number is reused.
                && facts.socket.strong_count() > 0
            {
                due.push(format!("key {number} was to make another packet"));
            } else if facts.standing == Standing::Enabled && is_level(facts.trigger) {
                waiting.push((*number, facts.interest | facts.also, facts.socket.clone()));
            } else if facts.standing != Standing::Over && !facts.also.is_empty() {
                waiting.push((*number, facts.also, facts.socket.clone()));
            }
        }
        for (number, interest, socket) in waiting {
            let Some(socket) = socket.upgrade() else { continue };
            let shown = kernel.facts(&socket);
            if interest.contains(Interest::IN) && shown.contains(Conditions::IN)
                || interest.contains(Interest::OUT) && shown.contains(Conditions::OUT)
            {
                due.push(format!(
                    "key {number} is enabled for {interest:?}, has {shown:?}, and is silent"
                ));
            }
        }
        self.due_operations(kernel, &mut due);
        let book = self.open();
        for (number, letter) in book.letters.iter().enumerate() {
            let is_due = letter.time.is_none_or(|(_, latest)| latest.is_some_and(|it| it <= now));
            if letter.fate == Fate::Queued && is_due {
                due.push(format!("message {number} is queued, and no thread is woken"));
            }
        }
        due
    }

    /// Fails if a packet is due although all threads wait and only time can pass.
    pub(crate) fn check_all_was_told(&self, kernel: &Kernel) {
        let due = self.due(kernel);
        if !due.is_empty() {
            fail(&format!("all threads wait, and these packets are due:\n  {}", due.join("\n  ")));
        }
    }

    /// Returns the registrations that are certainly enabled for IN, with their packet counts. They
    /// must report new data.
    pub(crate) fn attentive(&self) -> Vec<(u32, u64, Weak<Socket>)> {
        let book = self.open();
        let enabled = book.keys.iter().filter(|(_, facts)| {
            facts.standing == Standing::Enabled
                && !facts.is_doubtful
                && !facts.removing
                && facts.interest.contains(Interest::IN)
        });
        enabled.map(|(number, facts)| (*number, facts.packets, facts.socket.clone())).collect()
    }

    /// Checks, at the end, that no key, message or operation was lost or leaked.
    pub(crate) fn check_all_is_gone(&self, may_leave_messages: bool, may_leave_operations: bool) {
        let mut left = Vec::new();
        self.log().check(may_leave_operations, &mut left);
        let book = self.open();
        for (number, facts) in &book.keys {
            if facts.alive != 0 {
                left.push(format!("key {number}: {} left", facts.alive));
            }
        }
        for (number, letter) in book.letters.iter().enumerate() {
            if letter.alive {
                left.push(format!("message {number} was leaked"));
            }
            // A port that is shut down doesn't wait for messages posted for a later time.
            let may_leave =
                if letter.is_of_operation { may_leave_operations } else { may_leave_messages };
            if letter.fate != Fate::Taken && letter.time.is_none() && !may_leave {
                left.push(format!("message {number} was lost"));
            }
        }
        if book.at_work != 0 {
            left.push(format!("{} threads at work", book.at_work));
        }
        drop(book);
        if !left.is_empty() {
            fail(&left.join("\n"));
        }
    }

    /// Describes the last events and all registrations.
    pub(crate) fn report(&self) -> String {
        let Ok(book) = self.book.try_lock() else { return String::new() };
        let mut text = String::new();
        for note in &book.notes {
            text += note;
            text.push('\n');
        }
        for (number, facts) in &book.keys {
            if facts.alive > 0 {
                text += &format!("key {number}: {facts:?}\n");
            }
        }
        drop(book);
        if let Ok(log) = self.log.try_lock() {
            text += &log.report();
        }
        text
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Enabled(Interest, AnyTrigger),
    Disabled,
    Removed,
}

/// The key of a registration, which may own its socket.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) number: u32,
    owned: Option<Arc<Socket>>,
    ledger: Arc<Ledger>,
}

impl Key {
    /// Returns the registered socket, unless it was closed.
    pub(crate) fn socket(&self) -> Option<Arc<Socket>> {
        self.owned.clone().or_else(|| self.ledger.with(self.number, |facts| facts.socket.upgrade()))
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        point();
        self.ledger.count(self.number, 1);
        Self { number: self.number, owned: self.owned.clone(), ledger: Arc::clone(&self.ledger) }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        point();
        self.ledger.count(self.number, -1);
    }
}

impl Source for Key {
    fn as_source(&self) -> BorrowedSource<'_> {
        self.owned.as_ref().unwrap().as_source()
    }
}

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) number: usize,
    ledger: Arc<Ledger>,
    /// The operation that has made it, with its outcome.
    pub(crate) operation: Option<(usize, Outcome<Tray>)>,
}

impl Drop for Message {
    fn drop(&mut self) {
        let twice = !std::mem::replace(&mut self.ledger.open().letters[self.number].alive, false);
        if twice {
            fail(&format!("message {} was dropped twice", self.number));
        }
    }
}
