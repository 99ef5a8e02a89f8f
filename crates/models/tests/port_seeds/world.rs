//! Runs a program: its port, sockets, threads and clock.

use std::collections::{BTreeMap, VecDeque};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::ledger::{Change, Exact, Key, Ledger, Message, NO_ORDER, is_level, is_one_shot};
use crate::operations::{Link, Tray};
use crate::port::raw::{AnyTrigger, Hints};
use crate::program::{End, Habit, PLACES, Program, Step, Worker};
use crate::search;
use crate::sim::{Kernel, Socket};
use crate::turns::{self, Joiner, fail, point};
use crate::{
    Batch, BlockDetection, Changes, ErrorKind, Events, Id, Interest, OneShot, OpId, OwnedReady,
    Packet, Port, Ready, Refused, Registration, Removal, SharedFile, TimerId,
};

type Token = OwnedReady<Key, Message, Tray>;

/// Enough time for a port to do everything that is due: dozens of scan intervals of the watchdog.
const LONG: Duration = Duration::from_millis(60);
/// A waiting thread that hasn't acted for this long never will, unless another thread arrives.
const LATE: Duration = Duration::from_millis(10);
/// After this many packets of a registration, its handlers end it.
const MOST_PACKETS: u64 = 30;
/// If no thread can run for this long, no thread waits for a time.
const FOR_EVER: Duration = Duration::from_secs(100);

/// A pair of sockets. If `near` is `None`, a key owns that end.
#[derive(Default)]
struct Place {
    near: Option<Arc<Socket>>,
    far: Option<Arc<Socket>>,
}

pub(crate) struct World {
    pub(crate) kernel: Kernel,
    pub(crate) port: Arc<Port<Key, Message, Tray>>,
    pub(crate) ledger: Arc<Ledger>,
    program: Program,
    places: [Mutex<Place>; PLACES],
    /// All registrations so far.
    pub(crate) known: Mutex<Vec<(u32, Id)>>,
    pub(crate) links: Mutex<Vec<Arc<Link>>>,
    /// A file without an association.
    pub(crate) file: SharedFile,
    /// The ids of operations that were started.
    pub(crate) operations: Mutex<Vec<OpId>>,
    mail: Mutex<VecDeque<Token>>,
    timers: Mutex<Vec<TimerId>>,
    /// The port is about to be closed.
    pub(crate) ends: AtomicBool,
    /// Only the thread that ends the run is left.
    over: AtomicBool,
}

/// The state of a thread that waits for packets.
#[derive(Default)]
struct Hands<'p> {
    /// It occupies a seat and isn't waiting.
    is_working: bool,
    /// The changes for its next call, and what to record in the ledger then.
    changes: Changes<'p, Key, Tray>,
    rearms: Vec<(u32, Interest, AnyTrigger)>,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Read {
    /// All data, and then it would have blocked.
    All(usize),
    Some,
    Nothing,
    /// The end of the stream, an error, or a closed socket.
    Over,
}

fn read(socket: &Socket, most: usize) -> Read {
    let mut total = 0;
    while total < most {
        match socket.read(&mut [0; 3][..(most - total).min(3)]) {
            Ok(0) => return Read::Over,
            Ok(read) => total += read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return if total == 0 { Read::Nothing } else { Read::All(total) };
            }
            Err(_) => return Read::Over,
        }
    }
    Read::Some
}

pub(crate) fn expect(kind: ErrorKind, among: &[ErrorKind], call: &str) {
    if !among.contains(&kind) {
        fail(&format!("{call} was refused: {kind:?}"));
    }
}

/// The errors with which returning a token or enabling may fail.
pub(crate) const REFUSALS: [ErrorKind; 7] = [
    ErrorKind::Closed,
    ErrorKind::BadDescriptor,
    ErrorKind::NotRegistered,
    ErrorKind::Removing,
    ErrorKind::KeyHeld,
    ErrorKind::KeyShared,
    ErrorKind::AlreadyRegistered,
];

impl World {
    fn near(&self, place: usize) -> Option<Arc<Socket>> {
        self.places[place].lock().unwrap().near.clone()
    }

    fn far(&self, place: usize) -> Option<Arc<Socket>> {
        self.places[place].lock().unwrap().far.clone()
    }

    pub(crate) fn pair(&self) -> (Arc<Socket>, Arc<Socket>) {
        let pair = if self.program.tcp { self.kernel.tcp_pair() } else { self.kernel.unix_pair() };
        let (near, far) = pair.unwrap();
        (Arc::new(near), Arc::new(far))
    }

    /// Replaces the sockets of a place. The former ones are closed unless another thread uses them.
    fn set_place(&self, place: usize, near: Option<Arc<Socket>>, far: Arc<Socket>) {
        let new = Place { near, far: Some(far) };
        let former = std::mem::replace(&mut *self.places[place].lock().unwrap(), new);
        drop(former);
    }

    fn which(&self, which: usize) -> Option<(u32, Id)> {
        let known = self.known.lock().unwrap();
        // Count from the newest: the others may be long gone.
        let place = which.checked_rem(known.len())?;
        Some(known[known.len() - 1 - place])
    }

    fn sleep(&self, time: u64) {
        turns::sleep_until(self.kernel.now() + Duration::from_micros(time));
    }

    // ---- the steps of an actor ----

    fn act<'p>(&'p self, actor: usize, step: Step, hands: &mut Hands<'p>) {
        self.ledger.note(|| format!("{step:?}"));
        match step {
            Step::Register { place, owned, by_number, interest, trigger } => {
                self.register(place, owned, by_number, interest, trigger);
            }
            Step::Write { place, bytes } => {
                if let Some(far) = self.far(place) {
                    // The other end may be closed by now.
                    let _ = far.write(&[b'x'; 8][..bytes]);
                }
            }
            Step::Drain { place } => {
                if let Some(near) = self.near(place) {
                    read(&near, usize::MAX);
                }
            }
            Step::HalfClose { place } => {
                if let Some(far) = self.far(place) {
                    let _ = far.shutdown(Shutdown::Write);
                }
            }
            Step::Reopen { place } => {
                if let Some(near) = self.near(place) {
                    self.ledger
                        .doubt(|facts| std::ptr::eq(facts.socket.as_ptr(), Arc::as_ptr(&near)));
                }
                let former = std::mem::take(&mut *self.places[place].lock().unwrap());
                drop(former);
                point();
                let (near, far) = self.pair();
                self.set_place(place, Some(near), far);
            }
            Step::Duplicate { place } => {
                if let Some(near) = self.near(place) {
                    let duplicate = near.dup().unwrap();
                    point();
                    drop(duplicate);
                }
            }
            Step::Enable { which, interest, trigger } => {
                let Some((key, id)) = self.which(which) else { return };
                self.enable(key, id, interest, trigger);
            }
            Step::EnableAlso { which, interest } => self.enable_also(which, interest),
            Step::Disable { which } => {
                let Some((key, id)) = self.which(which) else { return };
                self.disable(key, id);
            }
            Step::Remove { which } => {
                let Some((key, id)) = self.which(which) else { return };
                self.remove(key, id);
            }
            Step::RemoveAndWait { which, microseconds } => {
                let Some((key, id)) = self.which(which) else { return };
                self.remove_and_wait(key, id, microseconds);
            }
            Step::Forget { which } => {
                let Some((key, id)) = self.which(which) else { return };
                self.ledger.changing(key, false);
                let forgotten = self.port.raw().forget(id);
                self.ledger.with(key, |facts| facts.is_doubtful |= forgotten.is_ok());
            }
            Step::RemoveNow { which } => {
                let Some((key, id)) = self.which(which) else { return };
                self.remove_now(key, id);
            }
            Step::StartThenPost { start } => self.start_then_post(start),
            Step::Post { messages } => (0..messages).for_each(|_| self.post(actor)),
            Step::PostAt { microseconds } => self.post_at(microseconds),
            Step::Cancel { which } => self.cancel(which),
            Step::Wait { microseconds, room, forgets } => {
                let mut batch = Batch::with_capacity(room);
                let limit = Some(Duration::from_micros(microseconds));
                let habit = || if forgets { Habit::Forget } else { Habit::ReadAll };
                self.wait(100 + actor, &mut batch, limit, hands, habit);
            }
            Step::Mail { armed } => {
                let token = self.mail.lock().unwrap().pop_front();
                if let Some(token) = token {
                    self.finish(token, armed);
                }
            }
            Step::HasPackets => {
                let asked = self.port.raw().has_packets(&mut Batch::with_capacity(4));
                if let Err(error) = asked {
                    expect(error.kind(), &[ErrorKind::Closed], "has_packets");
                }
            }
            Step::Look { which } => {
                let _ = self.port.stats();
                if let Some((_, id)) = self.which(which) {
                    let _ = self.port.raw().is_current(id);
                }
                if let Some(near) = self.near(which % PLACES) {
                    let _ = self.port.id_of(&*near);
                }
                let _ = self.port.raw().advised_room();
            }
            Step::Sleep { microseconds } => self.sleep(microseconds),
            Step::Associate { .. }
            | Step::Start { .. }
            | Step::Feed { .. }
            | Step::Hush { .. }
            | Step::ReleaseFiles
            | Step::CancelOperation { .. }
            | Step::Listen { .. }
            | Step::Connect { .. }
            | Step::AssociateDatagrams { .. }
            | Step::Dial { .. }
            | Step::Reset { .. } => self.operate(step),
        }
    }

    fn register(
        &self,
        place: usize,
        owned: bool,
        by_number: bool,
        interest: Interest,
        trigger: AnyTrigger,
    ) {
        let number;
        let registered = if owned {
            let (near, far) = self.pair();
            let key = self.ledger.key(Some(Arc::clone(&near)), &near, interest, trigger);
            number = key.number;
            self.ledger.note(|| format!("  key {number} owns {}", near.number()));
            drop(near);
            self.set_place(place, None, far);
            self.port.register(Registration::owned(key, interest, trigger))
        } else {
            let Some(near) = self.near(place) else { return };
            let key = self.ledger.key(None, &near, interest, trigger);
            number = key.number;
            self.ledger.note(|| format!("  key {number} for {}", near.number()));
            if by_number {
                self.port.raw().register_number(near.number(), key, interest, trigger)
            } else {
                self.port.register(Registration::new(&*near, key, interest, trigger))
            }
        };
        match registered {
            Ok(id) => {
                self.ledger.registered(number, id);
                self.known.lock().unwrap().push((number, id));
            }
            Err(refused) => {
                self.ledger.over(number);
                expect(refused.kind(), &REFUSALS, "register");
            }
        }
    }

    fn enable(&self, key: u32, id: Id, interest: Interest, trigger: AnyTrigger) {
        let began = self.ledger.changing(key, true);
        match self.port.enable(id, interest, trigger) {
            Ok(()) => self.ledger.changed(key, began, Change::Enabled(interest, trigger)),
            Err(error) => expect(error.kind(), &REFUSALS, "enable"),
        }
    }

    fn enable_also(&self, which: usize, interest: Interest) {
        let Some((key, id)) = self.which(which) else { return };
        self.ledger.asking_also(key, interest);
        if let Err(error) = self.port.enable_also(id, interest) {
            let among = [ErrorKind::Closed, ErrorKind::NotRegistered, ErrorKind::Removing];
            expect(error.kind(), &among, "enable_also");
            self.ledger.asked_in_vain(key);
        }
    }

    pub(crate) fn disable(&self, key: u32, id: Id) {
        let began = self.ledger.changing(key, false);
        match self.port.disable(id) {
            Ok(()) => self.ledger.changed(key, began, Change::Disabled),
            Err(error) => expect(error.kind(), &REFUSALS, "disable"),
        }
    }

    pub(crate) fn remove(&self, key: u32, id: Id) {
        let began = self.ledger.changing(key, false);
        match self.port.remove(id) {
            Ok(()) => self.ledger.changed(key, began, Change::Removed),
            Err(error) => expect(error.kind(), &REFUSALS, "remove"),
        }
    }

    fn remove_and_wait(&self, key: u32, id: Id, microseconds: u64) {
        let began = self.ledger.changing(key, false);
        match self.port.remove_and_wait(id, Duration::from_micros(microseconds)) {
            Ok(back) => {
                if back.number != key {
                    fail(&format!("key {} came back instead of {key}", back.number));
                }
                self.ledger.over(key);
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                self.ledger.changed(key, began, Change::Removed);
            }
            Err(error) => expect(error.kind(), &REFUSALS, "remove_and_wait"),
        }
    }

    fn remove_now(&self, key: u32, id: Id) {
        let began = self.ledger.changing(key, false);
        match self.port.remove_now(id) {
            Ok(Removal::Key(back)) => {
                if back.number != key {
                    fail(&format!("key {} came back instead of {key}", back.number));
                }
                // Nothing had the key, and no packet follows.
                self.ledger.last_packet(key, began);
            }
            Ok(Removal::PacketFollows) => self.ledger.changed(key, began, Change::Removed),
            Err(error) => expect(error.kind(), &REFUSALS, "remove_now"),
        }
    }

    fn post(&self, poster: usize) {
        self.post_by(poster, |message| self.port.post(message));
    }

    fn post_at(&self, microseconds: u64) {
        let message = self.ledger.letter(NO_ORDER);
        let number = message.number;
        let later = Duration::from_micros(microseconds);
        let time = self.kernel.now() + later;
        self.ledger.note(|| format!("  posts {number} for {time:?}"));
        self.ledger.posting_at(number, time);
        match self.port.post_at(later, message) {
            Ok(timer) => {
                self.ledger.posted_at(number, self.kernel.now() + later);
                self.timers.lock().unwrap().push(timer);
            }
            Err(refused) => {
                expect(refused.kind(), &[ErrorKind::Closed], "post_at");
                self.ledger.given_back(number);
            }
        }
    }

    fn cancel(&self, which: usize) {
        let mut timers = self.timers.lock().unwrap();
        if timers.is_empty() {
            return;
        }
        let which = which % timers.len();
        let timer = timers.swap_remove(which);
        drop(timers);
        if let Some(message) = self.port.cancel_post(timer) {
            self.ledger.note(|| format!("  has back {}", message.number));
            self.ledger.given_back(message.number);
        }
    }

    fn post_after(&self) {
        self.post_by(NO_ORDER, |message| self.port.post_after(message));
    }

    fn post_next(&self) {
        self.post_by(NO_ORDER, |message| self.port.post_next(message));
    }

    fn post_behind(&self) {
        self.post_by(NO_ORDER, |message| self.port.post_behind(message));
    }

    fn post_by(&self, poster: usize, post: impl FnOnce(Message) -> Result<(), Refused<Message>>) {
        let message = self.ledger.letter(poster);
        let number = message.number;
        self.ledger.note(|| format!("  posts {number}"));
        self.ledger.posting(number);
        if let Err(refused) = post(message) {
            expect(refused.kind(), &[ErrorKind::Closed], "post");
            self.ledger.given_back(number);
        }
    }

    fn finish(&self, mut token: Token, armed: bool) {
        let key = token.key().number;
        let all = token.key().socket().map(|socket| read(&socket, usize::MAX));
        turns::linger();
        if all == Some(Read::Over) || !armed {
            self.ledger.over(key);
            drop(token);
            return;
        }
        if matches!(all, Some(Read::All(_) | Read::Nothing)) {
            token.read_drained();
        }
        let interest = Interest::IN;
        let trigger = AnyTrigger::OneShot(OneShot::Level);
        self.ledger.giving_back(key, Some((interest, trigger)));
        if let Err(refused) = token.rearm_as(interest, trigger) {
            self.ledger.over(key);
            expect(refused.kind(), &REFUSALS, "the rearming of an owned token");
        }
    }

    // ---- the loop of a worker ----

    /// Waits once and handles the packets. Returns false once the port is closed.
    fn wait<'p>(
        &'p self,
        worker: usize,
        batch: &mut Batch,
        limit: Option<Duration>,
        hands: &mut Hands<'p>,
        mut habit: impl FnMut() -> Habit,
    ) -> bool {
        if std::mem::take(&mut hands.is_working) {
            self.ledger.rests();
        }
        let waited = if !hands.changes.is_empty() {
            for (key, interest, trigger) in hands.rearms.drain(..) {
                self.ledger.giving_back(key, Some((interest, trigger)));
            }
            self.port.process(&mut hands.changes, batch, limit)
        } else if self.program.cloned {
            self.port.raw().wait_cloned(batch, limit)
        } else {
            self.port.wait(batch, limit)
        };
        let mut packets = match waited {
            Ok(packets) => packets,
            Err(error) => {
                expect(error.kind(), &[ErrorKind::Closed], "wait");
                return false;
            }
        };
        loop {
            let began = self.ledger.now();
            let Some(packet) = packets.next() else { break };
            if !std::mem::replace(&mut hands.is_working, true) {
                self.ledger.works(true);
            }
            let habit = habit();
            self.handle(worker, packet, began, habit, hands);
            if habit == Habit::Leave {
                break;
            }
            if habit == Habit::Forget {
                std::mem::forget(packets);
                return true;
            }
        }
        drop(packets);
        self.end_refused(hands);
        if !std::mem::replace(&mut hands.is_working, true) {
            self.ledger.works(false);
        }
        true
    }

    /// Ends the registrations of changes that were refused or never applied.
    fn end_refused(&self, hands: &mut Hands<'_>) {
        for refused in hands.changes.refused() {
            let (error, key) = refused.into_parts();
            expect(error.kind(), &REFUSALS, "process");
            if let Some(key) = key {
                self.ledger.over(key.number);
            }
        }
    }

    fn handle<'p>(
        &'p self,
        worker: usize,
        packet: Packet<'p, Key, Message, Tray>,
        began: u64,
        habit: Habit,
        hands: &mut Hands<'p>,
    ) {
        match packet {
            Packet::Posted(mut message) => {
                self.ledger.note(|| format!("takes message {}", message.number));
                self.ledger.taken(worker, message.number, self.kernel.now());
                if let Some((operation, outcome)) = message.operation.take() {
                    self.ended_by_message(operation, outcome);
                }
                self.before(worker, habit);
            }
            Packet::Ready(ready) => {
                let (key, events) = (ready.key().number, ready.events());
                self.ledger.note(|| format!("takes token of key {key}, {events:?}, {habit:?}"));
                self.ledger.packet(key, events, began, true);
                self.before(worker, habit);
                match self.link_of(key) {
                    Some(link) => self.after(&link, ready, events.is_hangup()),
                    None => self.handle_token(ready, habit, hands),
                }
            }
            Packet::Notified(notified) => {
                let (id, events) = (notified.id(), notified.events());
                let key = notified.into_key();
                self.ledger
                    .note(|| format!("takes clone of key {}, {events:?}, {habit:?}", key.number));
                self.ledger.packet(key.number, events, began, false);
                if let Some(link) = self.link_of(key.number) {
                    drop(key);
                    self.before(worker, habit);
                    self.handle_notified_link(&link);
                    return;
                }
                let trigger = self.ledger.with(key.number, |facts| facts.trigger);
                let spent = is_one_shot(trigger).then(|| self.ledger.spent(key.number, began));
                self.before(worker, habit);
                self.handle_clone(&key, id, events, habit, trigger, spent);
            }
            Packet::Completed(done) => {
                self.handle_done(done, began, || self.before(worker, habit));
            }
            Packet::SharedCompleted(finished) => {
                self.handle_finished(finished, began, || self.before(worker, habit));
            }
            Packet::Removed(_, key) => {
                self.ledger.note(|| format!("takes last packet of key {}", key.number));
                self.ledger.last_packet(key.number, began);
                self.before(worker, habit);
            }
        }
    }

    /// Runs what the handler does before it looks at the packet.
    fn before(&self, worker: usize, habit: Habit) {
        turns::linger();
        match habit {
            Habit::Blocking(time) => self.port.blocking(|| {
                self.ledger.sleeps(1);
                self.sleep(time);
                self.ledger.sleeps(-1);
            }),
            Habit::Sleep(time) => {
                let me = std::thread::current().id();
                self.kernel.set_thread_asleep(me, true);
                self.ledger.sleeps(1);
                self.sleep(time);
                self.ledger.sleeps(-1);
                self.kernel.set_thread_asleep(me, false);
            }
            Habit::Busy(time) => {
                self.kernel.advance(Duration::from_micros(time));
                turns::time_is(self.kernel.now());
                point();
            }
            // Otherwise handlers would keep each other busy forever.
            Habit::Post if turns::lot_below(2) == 0 => self.post(10 + worker),
            Habit::PostAfter(count) if turns::lot_below(2 * count) == 0 => {
                (0..count).for_each(|_| self.post_after());
            }
            Habit::PostNext(count) if turns::lot_below(2 * count) == 0 => {
                (0..count).for_each(|_| self.post_next());
            }
            Habit::PostBehind(count) if turns::lot_below(2 * count) == 0 => {
                (0..count).for_each(|_| self.post_behind());
            }
            Habit::Wake(which) if turns::lot_below(2) == 0 => {
                self.enable_also(which, Interest::OUT);
            }
            _ => {}
        }
    }

    fn handle_token<'p>(
        &'p self,
        mut ready: Ready<'p, Key, Tray>,
        habit: Habit,
        hands: &mut Hands<'p>,
    ) {
        let (key, id, events) = (ready.key().number, ready.id(), ready.events());
        let (packets, interest, trigger, has_another_filter) = self.ledger.with(key, |facts| {
            (facts.packets, facts.interest, facts.trigger, facts.has_another_filter)
        });
        let room = match habit {
            Habit::ReadOne => 1,
            Habit::ReadNothing => 0,
            _ => usize::MAX,
        };
        let found =
            ready.key().socket().map_or(Read::Over, |socket| self.look(&socket, events, room));
        self.check_is_exact(key, found, events, trigger);
        let is_over = found == Read::Over || packets > MOST_PACKETS;
        // Otherwise a registration that is always ready would report forever.
        let runs_deferred = if interest.contains(Interest::OUT) || events.is_hangup() {
            Some((Interest::IN, AnyTrigger::OneShot(OneShot::Level)))
        } else if has_another_filter {
            Some((interest, trigger))
        } else {
            None
        };
        if habit == Habit::MapKey && !is_over {
            ready = match ready.map_key(|former| former.clone()) {
                Ok(ready) => ready,
                Err(refused) => {
                    self.ledger.over(key);
                    return expect(refused.kind(), &REFUSALS, "map_key");
                }
            };
            if ready.key().number != key {
                fail("another key is in the token");
            }
        }
        let outcome = match habit {
            _ if is_over => {
                self.ledger.over(key);
                drop(ready);
                return;
            }
            Habit::Drop => {
                self.ledger.over(key);
                drop(ready);
                return;
            }
            Habit::IntoKey => {
                self.ledger.over(key);
                if ready.into_key().number != key {
                    fail("another key came out of a token");
                }
                return;
            }
            Habit::RemoveAndDrop => {
                self.remove(key, id);
                self.ledger.over(key);
                drop(ready);
                return;
            }
            Habit::PassOn if !self.ends.load(SeqCst) => {
                let Ok(token) = ready.with_port(&self.port) else { fail("no token of this port") };
                self.mail.lock().unwrap().push_back(token);
                return;
            }
            Habit::Park => {
                self.ledger.giving_back(key, None);
                ready.park().map(|_| ())
            }
            Habit::ParkAndEnable => {
                self.ledger.giving_back(key, None);
                let parked = ready.park().map(|_| ());
                if parked.is_ok() {
                    self.enable(key, id, Interest::IN, trigger);
                }
                parked
            }
            Habit::Again if runs_deferred.is_none() => {
                self.ledger.giving_back(key, Some((interest, trigger)));
                self.ledger.asking_again(key);
                ready.again()
            }
            Habit::Process if runs_deferred.is_none() => {
                hands.rearms.push((key, interest, trigger));
                hands.changes.rearm(ready);
                return;
            }
            Habit::RearmAs(interest, trigger) => {
                self.ledger.giving_back(key, Some((interest, trigger)));
                ready.rearm_as(interest, trigger)
            }
            _ => {
                if habit == Habit::RemoveAndRearm {
                    self.remove(key, id);
                }
                let is_drained = matches!(found, Read::All(_) | Read::Nothing) && room > 0;
                if is_drained && habit == Habit::ReadAllAndSaySo {
                    ready.read_drained();
                }
                self.ledger.giving_back(key, Some(runs_deferred.unwrap_or((interest, trigger))));
                match runs_deferred {
                    Some((interest, trigger)) => ready.rearm_as(interest, trigger),
                    None => ready.rearm(),
                }
            }
        };
        if let Err(refused) = outcome {
            self.ledger.over(key);
            expect(refused.kind(), &REFUSALS, "the return of a token");
        }
    }

    /// Checks that a level packet was true at some time since the registration was armed, if only
    /// its handlers read. Two kinds of registrations are excluded. If one used to be persistent,
    /// another handler with a clone of its key may still read. If one was removed and its socket is
    /// registered again while its handler runs, each of the two handlers may read.
    fn check_is_exact(&self, key: u32, found: Read, events: Events, trigger: AnyTrigger) {
        if found == Read::Nothing
            && events.is_in()
            && trigger == AnyTrigger::OneShot(OneShot::Level)
            && self.program.handlers_alone_arm()
            && !self.ledger.with(key, |facts| {
                let may_be_early = facts.is_armed_by_name || facts.was_asked_for;
                may_be_early || facts.removing || facts.is_of_shared_socket
            })
        {
            fail(&format!("key {key}: a level packet for {events:?} without anything to read"));
        }
    }

    fn look(&self, socket: &Socket, events: Events, room: usize) -> Read {
        if events.is_out() {
            let _ = socket.write(b"y");
        }
        let found = if room == 0 { Read::Some } else { read(socket, room) };
        turns::linger();
        found
    }

    fn handle_clone(
        &self,
        key: &Key,
        id: Id,
        events: Events,
        habit: Habit,
        trigger: AnyTrigger,
        spent: Option<u64>,
    ) {
        let room = if habit == Habit::ReadOne { 1 } else { usize::MAX };
        let found = key.socket().map_or(Read::Over, |socket| self.look(&socket, events, room));
        let key = key.number;
        self.check_is_exact(key, found, events, trigger);
        let (packets, interest) = self.ledger.with(key, |facts| (facts.packets, facts.interest));
        let ends = matches!(habit, Habit::RemoveAndRearm | Habit::RemoveAndDrop | Habit::IntoKey);
        if found == Read::Over || packets > MOST_PACKETS || ends {
            self.remove(key, id);
        } else if habit == Habit::Drop {
            self.remove_and_wait(key, id, 0);
        } else if let Some(spent) = spent {
            if habit == Habit::Park {
                return;
            }
            let trigger = if let Habit::RearmAs(_, trigger) = habit { trigger } else { trigger };
            let drained = matches!(found, Read::All(_) | Read::Nothing)
                && habit == Habit::ReadAllAndSaySo
                && self.program.handlers_alone_arm();
            let call = self.ledger.arming(key, spent, Interest::IN, trigger);
            let hints = || Hints::new(drained, false);
            let enabled = self.port.raw().enable(id, Interest::IN, trigger, hints);
            self.ledger.armed(key, call);
            if let Err(error) = enabled {
                self.ledger.doubt(|facts| facts.id == Some(id));
                expect(error.kind(), &REFUSALS, "enable");
            }
        } else if interest.contains(Interest::OUT) || events.is_hangup() {
            self.enable(key, id, Interest::IN, AnyTrigger::OneShot(OneShot::Level));
        } else if habit == Habit::Park {
            self.disable(key, id);
        } else if let Habit::RearmAs(interest, trigger) = habit {
            self.enable(key, id, interest, trigger);
        }
    }

    fn work(&self, worker: &Worker) {
        let mut batch = Batch::with_capacity(worker.room);
        let mut limits = worker.limits.iter();
        let mut habits = worker.habits.iter().cycle();
        let mut hands = Hands::default();
        loop {
            let limit = limits.next().map(|limit| Duration::from_micros(*limit));
            let habit = || *habits.next().unwrap();
            if !self.wait(worker.number, &mut batch, limit, &mut hands, habit) {
                break;
            }
        }
        // The tokens in `hands` were not returned by any call. Dropping the changes drops them.
        self.ledger.note(|| "ends".to_owned());
    }

    // ---- the clock and the end ----

    fn tick(&self) {
        let mut step = Duration::from_micros(50);
        let mut in_vain = Duration::ZERO;
        let mut late = BTreeMap::new();
        while !self.over.load(SeqCst) {
            let is_idle = turns::idle();
            if self.over.load(SeqCst) {
                break;
            }
            if !is_idle {
                let time = [1, 5, 40, 300][turns::lot_below(4)];
                self.kernel.advance(Duration::from_micros(time));
                turns::time_is(self.kernel.now());
                step = Duration::from_micros(50);
                in_vain = Duration::ZERO;
                continue;
            }
            if !self.ends.load(SeqCst) {
                let now = self.kernel.now();
                late = self.look_for_what_is_due(now, late);
            }
            self.kernel.advance(step);
            turns::time_is(self.kernel.now());
            if turns::another_can_run() {
                step = Duration::from_micros(50);
                in_vain = Duration::ZERO;
            } else {
                in_vain += step;
                step = (step * 2).min(Duration::from_secs(10));
                if in_vain > FOR_EVER {
                    fail("all threads block for ever");
                }
            }
        }
    }

    /// Returns the due packets, each with the time since which no packet was taken. `late` is the
    /// previous result. No thread can run, so nothing may be due if all threads wait, and nothing
    /// for long if a waiting thread may run.
    fn look_for_what_is_due(
        &self,
        now: Duration,
        late: BTreeMap<String, Duration>,
    ) -> BTreeMap<String, Duration> {
        if self.ledger.all_wait() {
            self.ledger.check_all_was_told(&self.kernel);
            return BTreeMap::new();
        }
        let stats = self.port.stats();
        // Each packet may take its time, so any packet taken restarts the measurement.
        let taken = format!("{} packets were taken", stats.packets.total());
        let due = self.ledger.due(&self.kernel);
        let is_late = late.contains_key(&taken);
        let are_noticed = self.program.detection != BlockDetection::Announced;
        let may_run = stats.running < self.program.limit || are_noticed && self.ledger.all_sleep();
        if due.is_empty() || stats.parked == 0 || !may_run {
            return BTreeMap::new();
        }
        let since = |it: &String| late.get(it).copied().filter(|_| is_late).unwrap_or(now);
        let due: Vec<(String, Duration)> =
            due.into_iter().map(|it| (it.clone(), since(&it))).collect();
        for (it, since) in &due {
            if now - *since > LATE {
                fail(&format!(
                    "a thread waits that may run, and this is due since {since:?}; it is {now:?}:\n  {it}"
                ));
            }
        }
        due.into_iter().chain([(taken, now)]).collect()
    }

    /// Waits until the handlers have no more work.
    fn rest(&self) {
        for _ in 0..1_000 {
            // File operations that handlers start meanwhile are held again, so repeat until there
            // are none.
            self.kernel.release_files();
            turns::sleep_until(self.kernel.now() + LONG);
            turns::quiet();
            if self.ledger.all_wait() && self.kernel.held_files() == 0 {
                return;
            }
        }
        fail("handlers do not come to rest");
    }

    /// Checks, while all threads are quiet, that everything due was reported and that new data is
    /// reported.
    fn check_the_quiet(&self) {
        self.rest();
        self.ledger.check_all_was_told(&self.kernel);
        let attentive = self.ledger.attentive();
        let mut expected = Vec::new();
        for place in 0..PLACES {
            let Some(far) = self.far(place) else { continue };
            for (key, packets, socket) in &attentive {
                let Some(socket) = socket.upgrade() else { continue };
                let before = self.kernel.unread(&socket);
                if far.write(b"z").is_ok() && before < self.kernel.unread(&socket) {
                    expected.push((*key, *packets));
                }
            }
        }
        self.rest();
        for (key, packets) in expected {
            if self.ledger.with(key, |facts| facts.packets == packets) {
                fail(&format!(
                    "key {key} is enabled, and does not tell that there is more to read"
                ));
            }
        }
        self.ledger.check_all_was_told(&self.kernel);
    }

    fn end(&self) {
        self.ends.store(true, SeqCst);
        self.ledger.note(|| format!("{:?}", self.program.end));
        match self.program.end {
            End::Shutdown => self.port.shutdown().unwrap(),
            End::Finish(microseconds) => {
                self.port.shutdown_gracefully(Duration::from_micros(microseconds)).unwrap();
            }
            End::Close => self.port.close(),
            End::Abandon => self.port.raw().abandon(),
        }
    }
}

/// Runs a program, with turns drawn from `schedule`.
pub(crate) fn run(program: &Program, schedule: u64, writes_notes: bool) -> u64 {
    turns::simulate(schedule, 3_000_000, || run_inside(program, writes_notes))
}

fn run_inside(program: &Program, writes_notes: bool) {
    let kernel = Kernel::new();
    kernel.manual_clock();
    kernel.hide_switches(program.hides_switches);
    kernel.script_files(program.files);
    let exact = Exact {
        at_work: program.keeps_its_limit().then_some(program.limit),
        order: program.keeps_order(),
    };
    let ledger = Ledger::new(exact, writes_notes);
    let port = Port::builder()
        .buffers()
        .concurrency(program.limit)
        .block_detection(program.detection)
        .one_shot_kernel(program.one_shot_kernel);
    let port = match program.overcommit {
        Some(after) => port.overcommit_after(Duration::from_micros(after)),
        None => port,
    };
    let port: Port<Key, Message, Tray> = port.build_simulated(&kernel).unwrap();
    let world = Arc::new(World {
        kernel: kernel.clone(),
        port: Arc::new(port),
        ledger: Arc::clone(&ledger),
        program: program.clone(),
        places: Default::default(),
        known: Mutex::default(),
        links: Mutex::default(),
        file: SharedFile::new(kernel.file(b"").unwrap()),
        operations: Mutex::default(),
        timers: Mutex::default(),
        mail: Mutex::default(),
        ends: AtomicBool::new(false),
        over: AtomicBool::new(false),
    });
    let told = Arc::downgrade(&world);
    turns::report_with(move || {
        let Some(world) = told.upgrade() else { return };
        println!("{}", world.ledger.report());
        println!("{:#?}", world.port);
        std::mem::forget(world);
    });
    for place in 0..PLACES {
        let (near, far) = world.pair();
        world.set_place(place, Some(near), far);
    }
    let spawn = |name: String, act: Box<dyn FnOnce(&World) + Send>| {
        let world = Arc::clone(&world);
        turns::spawn(name, move || act(&world))
    };
    let clock = spawn("clock".to_owned(), Box::new(World::tick));
    let workers: Vec<Joiner> = (program.workers.iter().cloned())
        .map(|worker| {
            spawn(format!("worker {}", worker.number), Box::new(move |world| world.work(&worker)))
        })
        .collect();
    let actors: Vec<Joiner> = (program.actors.iter().cloned().enumerate())
        .map(|(number, steps)| {
            let act = move |world: &World| {
                // Once it has waited, it occupies a seat until it exits.
                let mut hands = Hands::default();
                for step in steps {
                    world.act(number, step, &mut hands);
                }
                if hands.is_working {
                    world.ledger.rests();
                }
            };
            spawn(format!("actor {number}"), Box::new(act))
        })
        .collect();
    if program.ends_early {
        let time = turns::lot_below(2_000) as u64;
        world.sleep(time);
        world.end();
    }
    actors.into_iter().for_each(Joiner::join);
    if !program.ends_early {
        world.sleep(2_000);
        finish_mail(&world);
        world.check_the_quiet();
        world.end();
    }
    let ended = kernel.now();
    while workers.iter().any(|worker| !worker.is_over()) {
        finish_mail(&world);
        kernel.release_files();
        world.sleep(500);
        if kernel.now() - ended > FOR_EVER {
            fail("the port is closed, and a wait does not end");
        }
    }
    workers.into_iter().for_each(Joiner::join);
    finish_mail(&world);
    if matches!(program.end, End::Shutdown | End::Finish(_)) && world.port.stats().registered != 0 {
        fail("a port that was shut down has registrations");
    }
    search::count(turns::points(), world.port.stats().packets.total());
    world.over.store(true, SeqCst);
    clock.join();
    turns::report_with({
        let ledger = Arc::clone(&ledger);
        move || println!("{}", ledger.report())
    });
    let world = Arc::into_inner(world).unwrap();
    world.check_links(!program.may_leave_operations());
    let World { port, places, links, file, .. } = world;
    drop(Arc::into_inner(port).unwrap());
    drop((places, links, file));
    // The kernel may hold buffers longer than the port lives.
    kernel.release_files();
    ledger.check_all_is_gone(program.may_leave_messages(), program.may_leave_operations());
    if kernel.open_descriptors() != 0 || kernel.ports() != 0 {
        fail(&format!("left open: {kernel:?}"));
    }
}

fn finish_mail(world: &World) {
    loop {
        let token = world.mail.lock().unwrap().pop_front();
        let Some(token) = token else { break };
        world.finish(token, true);
    }
}
