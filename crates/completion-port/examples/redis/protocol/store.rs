//! What all clients share: values, subscriptions, and the clients that wait for an element.
//!
//! The order of the locks: that of the waiting clients, those of shards in their order, that of the
//! subscribers, that of a mailbox.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use super::mailbox::Mailbox;
use super::{lock, resp};

/// At most 64: a set of shards is a number with a bit for each.
const SHARDS: usize = 64;

pub(super) enum Value {
    Text(Vec<u8>),
    /// Never empty.
    List(VecDeque<Vec<u8>>),
}

pub(super) struct WrongType;

pub(super) struct Entry {
    pub(super) value: Value,
    /// When the key expires. Only its shard changes it.
    deadline: Option<Instant>,
}

impl Entry {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

/// A part of the keys.
#[derive(Default)]
pub(super) struct Shard {
    entries: HashMap<Vec<u8>, Entry>,
    /// The keys with a deadline, in its order.
    deadlines: BTreeSet<(Instant, Vec<u8>)>,
}

impl Shard {
    /// Returns the entry of a key. One that has expired is removed first.
    pub(super) fn get(&mut self, key: &[u8]) -> Option<&mut Entry> {
        // Usually no key has a deadline, and one look-up is enough.
        if !self.deadlines.is_empty()
            && self.entries.get(key)?.deadline.is_some_and(|at| at <= Instant::now())
        {
            self.remove(key);
            return None;
        }
        self.entries.get_mut(key)
    }

    /// Replaces the value of a key and its deadline.
    pub(super) fn set(&mut self, key: &[u8], value: Value, deadline: Option<Instant>) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.value = value;
        } else {
            self.entries.insert(key.to_vec(), Entry { value, deadline: None });
        }
        self.set_deadline(key, deadline);
    }

    /// Replaces the deadline of a key that exists.
    pub(super) fn set_deadline(&mut self, key: &[u8], deadline: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if let Some(before) = std::mem::replace(&mut entry.deadline, deadline) {
            self.deadlines.remove(&(before, key.to_vec()));
        }
        if let Some(at) = deadline {
            self.deadlines.insert((at, key.to_vec()));
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        self.set_deadline(key, None);
        self.entries.remove(key).is_some()
    }

    /// Takes the first element of a list. `None` if there is none.
    fn pop(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, WrongType> {
        let (element, is_empty) = match self.get(key) {
            None => return Ok(None),
            Some(Entry { value: Value::Text(_), .. }) => return Err(WrongType),
            Some(Entry { value: Value::List(list), .. }) => (list.pop_front(), list.is_empty()),
        };
        if is_empty {
            self.remove(key);
        }
        Ok(element)
    }

    /// Removes the keys that have expired. Returns the next deadline.
    fn sweep(&mut self, now: Instant) -> Option<Instant> {
        while let Some((at, key)) = self.deadlines.pop_first() {
            if at > now {
                self.deadlines.insert((at, key));
                return Some(at);
            }
            self.entries.remove(&key);
        }
        None
    }
}

/// The clients that wait for an element, in order.
#[derive(Default)]
struct Waiting {
    of_list: HashMap<Vec<u8>, VecDeque<u64>>,
    /// All lists that a client waits for, and its mailbox.
    of_client: HashMap<u64, (Vec<Vec<u8>>, Arc<Mailbox>)>,
}

impl Waiting {
    /// Forgets that a client waits. Returns its mailbox if it did.
    fn remove(&mut self, client: u64) -> Option<Arc<Mailbox>> {
        let (lists, mailbox) = self.of_client.remove(&client)?;
        for list in &lists {
            if let Some(clients) = self.of_list.get_mut(list) {
                clients.retain(|other| *other != client);
                if clients.is_empty() {
                    self.of_list.remove(list);
                }
            }
        }
        Some(mailbox)
    }
}

/// The mailboxes of a channel's subscribers.
type Subscribers = HashMap<u64, Arc<Mailbox>>;

/// An element, with the name of its list.
type Popped<'l> = Option<(&'l [u8], Vec<u8>)>;

pub(crate) struct Store {
    shards: [Mutex<Shard>; SHARDS],
    waiting: Mutex<Waiting>,
    channels: Mutex<HashMap<Vec<u8>, Subscribers>>,
    clients: AtomicU64,
    /// The time for which `timer` was last called.
    armed: Mutex<Option<Instant>>,
    timer: Box<dyn Fn(Instant) -> bool + Send + Sync>,
}

impl Store {
    /// `timer(at)` must call `sweep` at that time.
    #[allow(dead_code, reason = "the timer of a server may fail")]
    pub(crate) fn new(timer: impl Fn(Instant) + Send + Sync + 'static) -> Self {
        Self::with_fallible_timer(move |at| {
            timer(at);
            true
        })
    }

    /// `timer(at)` must call `sweep` at that time, or return false.
    pub(crate) fn with_fallible_timer(
        timer: impl Fn(Instant) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            waiting: Mutex::default(),
            channels: Mutex::default(),
            clients: AtomicU64::new(0),
            armed: Mutex::default(),
            timer: Box::new(timer),
        }
    }

    pub(super) fn next_number(&self) -> u64 {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    /// Locks the part of the keys that has this one.
    pub(super) fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        lock(&self.shards[index(key)])
    }

    /// Locks the parts that have these keys.
    pub(super) fn shards(&self, keys: &[&[u8]]) -> Shards<'_> {
        let set = keys.iter().fold(0, |set, key| set | (1_u64 << index(key)));
        let guards = (0..SHARDS).filter(|at| set & (1 << at) != 0).map(|at| lock(&self.shards[at]));
        Shards { set, guards: guards.collect() }
    }

    /// The number of keys, including those that have expired and were not removed yet.
    pub(super) fn size(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }

    /// Has the keys with this deadline removed when it has passed.
    pub(super) fn arm(&self, at: Instant) {
        let mut armed = lock(&self.armed);
        // If the timer fails, the next deadline is another chance.
        if armed.is_none_or(|earlier| at < earlier) && (self.timer)(at) {
            *armed = Some(at);
        }
    }

    /// Removes the keys that have expired.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        {
            let mut armed = lock(&self.armed);
            // A call for a later time than the one that was armed last.
            if armed.is_some_and(|at| at > now) {
                return;
            }
            // A command that sets a deadline from now on arms the timer itself.
            *armed = None;
        }
        let next = self.shards.iter().filter_map(|shard| lock(shard).sweep(now)).min();
        if let Some(next) = next {
            self.arm(next);
        }
    }

    /// Appends to a list, or puts before it, and gives its elements to the clients that wait for
    /// them. Returns how long it was before that.
    pub(super) fn push(
        &self,
        name: &[u8],
        elements: &[&[u8]],
        at_front: bool,
    ) -> Result<usize, WrongType> {
        let mut waiting = lock(&self.waiting);
        let mut shard = self.shard(name);
        if shard.get(name).is_none() {
            shard.set(name, Value::List(VecDeque::new()), None);
        }
        let length = match shard.get(name) {
            Some(Entry { value: Value::List(list), .. }) => {
                for element in elements {
                    if at_front {
                        list.push_front(element.to_vec());
                    } else {
                        list.push_back(element.to_vec());
                    }
                }
                list.len()
            }
            _ => return Err(WrongType),
        };
        while let Some(first) = waiting.of_list.get(name).and_then(|all| all.front().copied()) {
            if shard.get(name).is_none() {
                break;
            }
            let Some(mailbox) = waiting.remove(first) else { break };
            // If the client is just leaving, the next one gets the element.
            mailbox.send(|bytes| {
                if let Ok(Some(element)) = shard.pop(name) {
                    resp::array(bytes, 2);
                    resp::bulk(bytes, name);
                    resp::bulk(bytes, &element);
                }
            });
        }
        Ok(length)
    }

    /// Takes the first element of the first list that has one; the name is that of the list. If there
    /// is none, the client waits for one.
    pub(super) fn pop_or_wait<'l>(
        &self,
        client: u64,
        lists: &[&'l [u8]],
        mailbox: impl FnOnce() -> Arc<Mailbox>,
    ) -> Result<Popped<'l>, WrongType> {
        let mut waiting = lock(&self.waiting);
        for list in lists {
            if let Some(element) = self.shard(list).pop(list)? {
                return Ok(Some((*list, element)));
            }
        }
        for list in lists {
            waiting.of_list.entry(list.to_vec()).or_default().push_back(client);
        }
        let lists = lists.iter().map(|list| list.to_vec()).collect();
        waiting.of_client.insert(client, (lists, mailbox()));
        Ok(None)
    }

    pub(super) fn is_blocked(&self, client: u64) -> bool {
        lock(&self.waiting).of_client.contains_key(&client)
    }

    /// Forgets that a client waits. Returns whether it did.
    pub(super) fn unblock(&self, client: u64) -> bool {
        lock(&self.waiting).remove(client).is_some()
    }

    pub(super) fn subscribe(&self, client: u64, channel: &[u8], mailbox: &Arc<Mailbox>) {
        let mut channels = lock(&self.channels);
        let subscribers = channels.entry(channel.to_vec()).or_default();
        subscribers.insert(client, Arc::clone(mailbox));
    }

    pub(super) fn unsubscribe<'c>(&self, client: u64, from: impl Iterator<Item = &'c [u8]>) {
        let mut channels = lock(&self.channels);
        for channel in from {
            if let Some(subscribers) = channels.get_mut(channel) {
                subscribers.remove(&client);
                if subscribers.is_empty() {
                    channels.remove(channel);
                }
            }
        }
    }

    /// Sends a message to all subscribers of a channel, and returns their number.
    pub(super) fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        let channels = lock(&self.channels);
        let Some(subscribers) = channels.get(channel) else { return 0 };
        for mailbox in subscribers.values() {
            mailbox.send(|bytes| {
                resp::array(bytes, 3);
                resp::bulk(bytes, b"message");
                resp::bulk(bytes, channel);
                resp::bulk(bytes, message);
            });
        }
        subscribers.len()
    }
}

/// The shard of a key (FNV-1a).
fn index(key: &[u8]) -> usize {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(16_777_619);
    let hash = key.iter().fold(2_166_136_261, step);
    // The upper bits depend on every byte.
    (hash >> 26) as usize % SHARDS
}

/// Several shards, locked in their order, so that no two commands wait for each other.
pub(super) struct Shards<'s> {
    set: u64,
    guards: Vec<MutexGuard<'s, Shard>>,
}

impl Shards<'_> {
    /// The one that has this key.
    pub(super) fn of(&mut self, key: &[u8]) -> &mut Shard {
        let before = self.set & ((1 << index(key)) - 1);
        &mut self.guards[before.count_ones() as usize]
    }
}
