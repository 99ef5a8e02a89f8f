//! Operations in a run: associations, what is started on them, and what must hold of that under any interleaving.
//!
//! An association owns the near end of a pair. The peer sends bytes that count up, so that a receive shows which
//! bytes it has; each send is of bytes that name it.
//!
//! Or it owns a listener, and its operations are accepts with first data. Each client sends bytes that name
//! it, or is silent.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::address::Address;
use crate::interest::Interest;
use crate::ledger::{Key, Ledger};
use crate::program::{Start, Step};
use crate::raw::AnyTrigger;
use crate::sim::{Conditions, Kernel, Socket};
use crate::turns::{self, fail, point};
use crate::world::{REFUSALS, World, expect};
use crate::{
    Buffer, Done, ErrorKind, Finished, Id, OneShot, OpId, Operation, Outcome, Ready, SharedId,
    Started,
};

/// The bytes of one direction: each of them has a number of its own.
const MOST_BYTES: usize = 250;
/// How many operations an association has: their numbers are bytes.
const MOST_FLIGHTS: usize = 120;
/// How late a deadline may be kept: a look of the watchdog, and the pause after it.
const LATE: Duration = Duration::from_millis(2);

/// One end of a pair is associated, the other is the peer's; or a listener is.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) key: u32,
    /// What its operations are started by, if it is shared.
    pub(crate) shared: Option<SharedId>,
    pub(crate) id: Id,
    /// `None`: it is a listener.
    far: Option<Arc<Socket>>,
    /// How many bytes the peer has sent; and what it has received. A thread that is at it has taken it out.
    sent: Mutex<Option<usize>>,
    received: Mutex<Option<Vec<u8>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Started,
    Refused,
    /// Its packet was taken, or its outcome has come back from the start.
    Ended,
}

/// What is known of an operation.
#[derive(Debug)]
struct Flight {
    key: u32,
    is_send: bool,
    on_file: bool,
    fate: Fate,
    /// When its start was called, and had returned.
    began: u64,
    started: Option<u64>,
    /// When it is to end at the latest: no earlier than that, and, once that is known, when it is late.
    earliest: Option<Duration>,
    latest: Option<Duration>,
    /// Its place among the bytes of its direction, and how many those are.
    bytes: Option<(usize, usize)>,
    has_buffer: bool,
}

/// A client of a listener.
#[derive(Debug)]
struct Client {
    /// The listener's key.
    key: u32,
    socket: Arc<Socket>,
    /// It has sent something, or ended its stream.
    has_spoken: bool,
    /// An operation has brought its connection.
    is_accepted: bool,
}

/// What is known of all operations.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Of a client the number is what it sends.
    clients: Vec<Client>,
    flights: Vec<Flight>,
    /// By keys: operations of each direction that were started.
    counts: BTreeMap<u32, usize>,
}

/// A buffer that is given back, whatever happens.
#[derive(Debug)]
pub(crate) struct Tray {
    number: usize,
    bytes: Vec<u8>,
    ledger: Arc<Ledger>,
}

impl Drop for Tray {
    fn drop(&mut self) {
        let mut log = self.ledger.log();
        let had = std::mem::replace(&mut log.flights[self.number].has_buffer, false);
        drop(log);
        if !had {
            fail(&format!("the buffer of operation {} was dropped twice", self.number));
        }
    }
}

// SAFETY: the room is that of the vector, which promises the same.
unsafe impl Buffer for Tray {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        point();
        self.bytes.filled(part);
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        point();
        // SAFETY: the room is that of the vector, and the caller's promise holds for it.
        unsafe { self.bytes.room(part) };
    }

    unsafe fn set_filled(&mut self, len: usize) {
        // SAFETY: the room is that of the vector, and what the caller says of it holds.
        unsafe { self.bytes.set_filled(len) };
    }
}

impl Log {
    /// Operations that were started, and have not ended.
    fn aloft(&self) -> Vec<Aloft> {
        let flights = self.flights.iter().enumerate();
        let aloft = flights
            .filter(|(_, flight)| flight.fate == Fate::Started && flight.started.is_some())
            .map(|(number, flight)| Aloft {
                number,
                key: flight.key,
                is_send: flight.is_send,
                on_file: flight.on_file,
                latest: flight.latest,
            });
        aloft.collect()
    }

    pub(crate) fn report(&self) -> String {
        let number = self.flights.iter().enumerate();
        number.map(|(number, flight)| format!("operation {number}: {flight:?}\n")).collect()
    }

    /// At the end: nothing is lost and nothing swapped.
    pub(crate) fn check(&self, may_leave: bool, left: &mut Vec<String>) {
        for (number, flight) in self.flights.iter().enumerate() {
            if flight.has_buffer {
                left.push(format!("the buffer of operation {number} was leaked"));
            }
            if flight.fate == Fate::Started && !may_leave {
                left.push(format!("operation {number} has no packet"));
            }
        }
        let mut lanes: BTreeMap<(u32, bool), Vec<&Flight>> = BTreeMap::new();
        for flight in &self.flights {
            if flight.bytes.is_some_and(|(_, count)| count > 0) {
                lanes.entry((flight.key, flight.is_send)).or_default().push(flight);
            }
        }
        for ((key, is_send), mut flights) in lanes {
            flights.sort_by_key(|flight| flight.bytes);
            let mut next = 0;
            let mut latest_start = 0;
            for flight in flights {
                let (first, count) = flight.bytes.expect("filtered above");
                if first != next && !may_leave {
                    left.push(format!(
                        "key {key}, send {is_send}: byte {next} was lost or swapped"
                    ));
                }
                next = first + count;
                if flight.started.is_some_and(|started| started < latest_start) {
                    left.push(format!("key {key}, send {is_send}: byte {first} was overtaken"));
                }
                latest_start = latest_start.max(flight.began);
            }
        }
    }
}

/// An operation in flight.
struct Aloft {
    number: usize,
    key: u32,
    is_send: bool,
    on_file: bool,
    latest: Option<Duration>,
}

impl Ledger {
    /// What is due of operations: they have not ended though they could.
    pub(crate) fn due_operations(&self, kernel: &Kernel, due: &mut Vec<String>) {
        let aloft = self.log().aloft();
        for Aloft { number, key, is_send, on_file, latest } in aloft {
            if on_file && kernel.held_files() > 0 {
                // Perhaps this one. What was not begun is given back when it is called off, which
                // `FileScript::Queued` is about; the claims look at that.
                continue;
            }
            let (socket, is_removed) =
                self.with(key, |facts| (facts.socket.upgrade(), facts.removing));
            let is_unread = || {
                let unread = socket.and_then(|socket| kernel.unread(&socket));
                unread.is_some_and(|unread| unread > 0)
            };
            if latest.is_some_and(|latest| latest + LATE < kernel.now()) {
                due.push(format!("the deadline of operation {number} is over"));
            } else if is_removed {
                due.push(format!("the association of operation {number} was removed"));
            } else if on_file {
                due.push(format!("operation {number} on a file has come back"));
            } else if is_send {
                due.push(format!("operation {number} has room"));
            } else if is_unread() {
                due.push(format!("operation {number} has something to receive"));
            }
        }
        self.due_accepts(kernel, due);
    }

    /// Each accept in flight has one of the connections, as far as there are so many. One whose client has
    /// spoken could end.
    fn due_accepts(&self, kernel: &Kernel, due: &mut Vec<String>) {
        let log = self.log();
        let mut accepts: BTreeMap<u32, usize> = BTreeMap::new();
        log.aloft().iter().for_each(|aloft| *accepts.entry(aloft.key).or_default() += 1);
        for (key, accepts) in accepts {
            // One that is not connected yet, or not any more, shows a hang-up.
            let ends = [Conditions::HUP, Conditions::RDHUP, Conditions::ERR];
            let waits = |client: &&Client| {
                let facts = kernel.facts(&client.socket);
                let is_connected = !ends.iter().any(|end| facts.contains(*end));
                client.key == key && !client.is_accepted && is_connected
            };
            let waiting: Vec<_> = log.clients.iter().filter(waits).collect();
            let spoken = waiting.iter().filter(|client| client.has_spoken).count();
            if spoken > waiting.len().saturating_sub(accepts) {
                due.push(format!("a client of key {key} has spoken, and its accept goes on"));
            }
        }
    }
}

impl World {
    /// An association, and its first operation, or its first arming.
    pub(crate) fn associate(&self, is_shared: bool, start: Start) {
        let (near, far) = self.pair();
        self.associate_one(near, Some(far), is_shared, start);
    }

    fn associate_one(
        &self,
        near: Arc<Socket>,
        far: Option<Arc<Socket>>,
        is_shared: bool,
        start: Start,
    ) {
        let trigger = AnyTrigger::OneShot(OneShot::Level);
        let key = self.ledger.key(Some(Arc::clone(&near)), &near, Interest::NONE, trigger);
        let number = key.number;
        drop(near);
        // What of its readiness is reported depends on its operations.
        self.ledger.with(number, |facts| facts.is_doubtful = true);
        self.ledger.note(|| format!("  key {number} is associated"));
        let link = |shared, id| {
            let link = Arc::new(Link {
                key: number,
                shared,
                id,
                far,
                sent: Mutex::new(Some(0)),
                received: Mutex::new(Some(Vec::new())),
            });
            self.ledger.registered(number, id);
            self.links.lock().unwrap().push(Arc::clone(&link));
            self.known.lock().unwrap().push((number, id));
            link
        };
        if is_shared {
            match self.port.associate_shared(key) {
                Ok(id) => self.start_shared(&link(Some(id), id.id()), start),
                Err(refused) => {
                    expect(refused.kind(), &[ErrorKind::Closed], "associate_shared");
                    drop(refused);
                    self.ledger.over(number);
                }
            }
        } else {
            match self.port.associate(key) {
                Ok(token) => {
                    self.ledger.lent_back(number);
                    let link = link(None, token.id());
                    self.go_on(&link, token, start);
                }
                Err(refused) => {
                    expect(refused.kind(), &[ErrorKind::Closed], "associate");
                    drop(refused);
                    self.ledger.over(number);
                }
            }
        }
    }

    pub(crate) fn link_of(&self, key: u32) -> Option<Arc<Link>> {
        self.links.lock().unwrap().iter().find(|link| link.key == key).cloned()
    }

    fn any_link(&self, which: usize) -> Option<Arc<Link>> {
        let links = self.links.lock().unwrap();
        let which = which.checked_rem(links.len())?;
        Some(Arc::clone(&links[links.len() - 1 - which]))
    }

    fn any_listener(&self, which: usize) -> Option<Arc<Link>> {
        let links = self.links.lock().unwrap();
        let listeners: Vec<_> = links.iter().filter(|link| link.far.is_none()).collect();
        Some(Arc::clone(listeners[which.checked_rem(listeners.len())?]))
    }

    /// A client connects to a listener.
    fn connect(&self, which: usize, bytes: usize) {
        let Some(link) = self.any_listener(which) else { return };
        let listener = self.ledger.with(link.key, |facts| facts.socket.upgrade());
        let Some(listener) = listener else { return };
        let socket = Arc::new(self.kernel.tcp_fresh().unwrap());
        // It is known before it is accepted.
        let client = Arc::clone(&socket);
        let client =
            Client { key: link.key, socket: client, has_spoken: false, is_accepted: false };
        let mut log = self.ledger.log();
        let number = log.clients.len();
        if number == MOST_BYTES {
            return;
        }
        log.clients.push(client);
        drop(log);
        self.ledger.note(|| format!("  client {number} connects to key {}", link.key));
        // Refused, if the listener has just been closed.
        if socket.connect(listener.address()).is_err() {
            return;
        }
        drop(listener);
        if bytes > 0 {
            self.speak(number, bytes);
        }
    }

    fn speak(&self, number: usize, bytes: usize) {
        let socket = Arc::clone(&self.ledger.log().clients[number].socket);
        #[allow(clippy::cast_possible_truncation, reason = "there are fewer")]
        let has_spoken = if bytes == 0 {
            socket.shutdown(Shutdown::Write).is_ok()
        } else {
            socket.write(&vec![number as u8; bytes]).is_ok()
        };
        self.ledger.log().clients[number].has_spoken |= has_spoken;
    }

    /// An operation has brought a connection, and its first data.
    fn accepted(&self, key: u32, peer: Option<&Address>, data: &[u8]) {
        let mut log = self.ledger.log();
        let mut clients = log.clients.iter_mut().enumerate();
        let client = clients.find(|(_, client)| peer == Some(&client.socket.address().into()));
        let Some((number, client)) = client else { fail("a connection of no client was accepted") };
        if client.key != key || std::mem::replace(&mut client.is_accepted, true) {
            fail(&format!("client {number} of key {} was accepted for {key}", client.key));
        }
        if data.iter().any(|byte| usize::from(*byte) != number) {
            fail(&format!("client {number} has sent {data:?}"));
        }
    }

    /// Does one of the steps that are about operations.
    pub(crate) fn operate(&self, step: Step) {
        match step {
            Step::Associate { shared, start } => self.associate(shared, start),
            Step::Start { which, start } => {
                let Some(link) = self.any_link(which) else { return };
                if link.shared.is_some() {
                    self.start_shared(&link, start);
                }
            }
            Step::Listen { shared, start } => {
                let listener = Arc::new(self.kernel.tcp_listener(64).unwrap());
                self.associate_one(listener, None, shared, start);
            }
            Step::Connect { which, bytes } => self.connect(which, bytes),
            Step::Speak { which, bytes } => {
                let clients = self.ledger.log().clients.len();
                let Some(which) = which.checked_rem(clients) else { return };
                self.speak(clients - 1 - which, bytes);
            }
            Step::Feed { which, bytes } => {
                let Some(link) = self.any_link(which) else { return };
                let Some(far) = &link.far else { return };
                let Some(first) = link.sent.lock().unwrap().take() else { return };
                let last = first + bytes.min(MOST_BYTES - first);
                #[allow(clippy::cast_possible_truncation, reason = "there are fewer")]
                let bytes: Vec<u8> = (first..last).map(|byte| byte as u8).collect();
                let is_sent = bytes.is_empty() || far.write(&bytes).is_ok();
                *link.sent.lock().unwrap() = Some(if is_sent { last } else { first });
                link.hear();
            }
            Step::Hush { which } => {
                let Some(link) = self.any_link(which) else { return };
                let Some(far) = &link.far else { return };
                let Some(_) = link.sent.lock().unwrap().take() else { return };
                let _ = far.shutdown(Shutdown::Write);
                *link.sent.lock().unwrap() = Some(MOST_BYTES);
            }
            Step::ReleaseFiles => {
                let released = self.kernel.release_files();
                self.ledger.note(|| format!("  {released} operations on files end"));
            }
            Step::CancelOperation { which } => {
                let operations = self.operations.lock().unwrap();
                let Some(which) = which.checked_rem(operations.len()) else { return };
                let operation = operations[operations.len() - 1 - which];
                drop(operations);
                let cancelled = self.port.cancel(operation).unwrap();
                self.ledger.note(|| format!("  cancelled: {cancelled}"));
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// The operation of this start, and its number. `None` if the association has had enough.
    fn operation(&self, link: &Link, start: Start) -> Option<(usize, Operation<Tray>)> {
        let deadline = start.microseconds.map(Duration::from_micros);
        let earliest = deadline.map(|after| self.kernel.now() + after);
        // No point while it is open: another thread may want it.
        let mut log = self.ledger.log();
        let count = log.counts.entry(link.key).or_default();
        if *count == MOST_FLIGHTS {
            return None;
        }
        *count += 1;
        let in_link = *count;
        let number = log.flights.len();
        let on_file = start.on_file && link.far.is_some();
        let is_send = (start.send.is_some() || on_file) && link.far.is_some();
        log.flights.push(Flight {
            key: link.key,
            is_send,
            on_file,
            fate: Fate::Started,
            began: 0,
            started: None,
            earliest,
            latest: None,
            bytes: None,
            has_buffer: true,
        });
        drop(log);
        let began = self.ledger.now();
        self.ledger.log().flights[number].began = began;
        #[allow(clippy::cast_possible_truncation, reason = "there are fewer")]
        let bytes = if is_send {
            vec![in_link as u8; start.bytes]
        } else {
            Vec::with_capacity(start.bytes)
        };
        let tray = Tray { number, bytes, ledger: Arc::clone(&self.ledger) };
        let operation = match start.send {
            _ if on_file => Operation::write_at(tray, 0),
            _ if link.far.is_none() => Operation::accept_and_recv(tray),
            None => Operation::recv(tray),
            Some(false) => Operation::send(tray),
            Some(true) => Operation::send_all(tray),
        };
        self.ledger.note(|| format!("  starts {number}: {start:?} of key {}", link.key));
        let operation = match deadline {
            Some(deadline) => operation.deadline(deadline),
            None => operation,
        };
        Some((number, operation))
    }

    fn started(&self, number: usize, start: Start, operation: Option<OpId>) {
        let moment = self.ledger.now();
        let now = self.kernel.now();
        let mut log = self.ledger.log();
        let flight = &mut log.flights[number];
        flight.started = Some(moment);
        // It counts from some time during the call.
        flight.latest = start.microseconds.map(|after| now + Duration::from_micros(after));
        drop(log);
        if let Some(operation) = operation {
            self.operations.lock().unwrap().push(operation);
        }
    }

    fn refused(&self, number: usize, kind: ErrorKind, operation: Operation<Tray>) {
        let among = [
            ErrorKind::Closed,
            ErrorKind::NotRegistered,
            ErrorKind::Removing,
            ErrorKind::BadDescriptor,
        ];
        expect(kind, &among, "the start of an operation");
        let tray = operation.into_buffer().expect("the buffer comes back");
        if tray.number != number {
            fail("another buffer came back");
        }
        let mut log = self.ledger.log();
        let flight = &mut log.flights[number];
        if flight.fate != Fate::Started {
            fail(&format!("operation {number} was refused, and has ended"));
        }
        flight.fate = Fate::Refused;
    }

    fn start_shared(&self, link: &Link, start: Start) {
        let id = link.shared.expect("the caller has looked");
        let Some((number, operation)) = self.operation(link, start) else { return };
        if start.at_once {
            match self.port.start_now(id, operation) {
                Ok(Started::InFlight(operation)) => self.started(number, start, Some(operation)),
                Ok(Started::Finished(outcome)) => {
                    self.started(number, start, None);
                    self.ended(link, outcome, Some(number));
                }
                Err(refused) => {
                    let kind = refused.kind();
                    self.refused(number, kind, refused.into_parts().1);
                }
            }
        } else {
            match self.port.start(id, operation) {
                Ok(operation) => self.started(number, start, Some(operation)),
                Err(refused) => {
                    let kind = refused.kind();
                    self.refused(number, kind, refused.into_parts().1);
                }
            }
        }
    }

    /// The handler of a token of an association goes on: with an operation, or by arming it.
    pub(crate) fn go_on(&self, link: &Link, token: Ready<'_, Key, Tray>, start: Start) {
        let key = link.key;
        if start.arms {
            self.ledger.giving_back(key, Some((Interest::IN, AnyTrigger::OneShot(OneShot::Level))));
            let armed = match start.microseconds {
                // Its interest is that of an association: nothing but a deadline or a hang-up is reported.
                Some(after) => token.rearm_until(Duration::from_micros(after)),
                None => token.rearm_as(Interest::IN, OneShot::Level),
            };
            if let Err(refused) = armed {
                self.ledger.over(key);
                expect(refused.kind(), &REFUSALS, "the arming of an association");
            }
            return;
        }
        let Some((number, operation)) = self.operation(link, start) else {
            self.ledger.over(key);
            drop(token);
            return;
        };
        self.ledger.lending(key);
        if start.at_once {
            match token.start_now(operation) {
                Ok(Started::InFlight(operation)) => self.started(number, start, Some(operation)),
                Ok(Started::Finished((token, outcome))) => {
                    self.ledger.lent_back(key);
                    self.started(number, start, None);
                    let ends = self.ended(link, outcome, Some(number));
                    self.after(link, token, ends);
                }
                Err(refused) => {
                    self.ledger.over(key);
                    let kind = refused.kind();
                    let (_, (key, operation)) = refused.into_parts();
                    drop(key);
                    self.refused(number, kind, operation);
                }
            }
        } else {
            match token.start(operation) {
                Ok(operation) => self.started(number, start, Some(operation)),
                Err(refused) => {
                    self.ledger.over(key);
                    let kind = refused.kind();
                    let (_, (key, operation)) = refused.into_parts();
                    drop(key);
                    self.refused(number, kind, operation);
                }
            }
        }
    }

    /// An operation has ended, and a thread has its outcome.
    fn taken(&self, outcome: &Outcome<Tray>) {
        let (Outcome::Received(_, Tray { number, .. })
        | Outcome::AcceptedAndReceived(_, Tray { number, .. })
        | Outcome::Sent(_, Tray { number, .. })
        | Outcome::Written(_, Tray { number, .. })) = outcome
        else {
            fail(&format!("it was no such operation: {outcome:?}"))
        };
        let fate = &mut self.ledger.log().flights[*number].fate;
        let former = std::mem::replace(fate, Fate::Ended);
        if former != Fate::Started {
            fail(&format!("operation {number} has ended, though it was {former:?}"));
        }
    }

    /// An operation has ended. True if its association is to end as well.
    fn ended(&self, link: &Link, outcome: Outcome<Tray>, expected: Option<usize>) -> bool {
        let now = self.kernel.now();
        let error = outcome.error();
        let (is_send, count) = match &outcome {
            Outcome::Received(result, _) => (false, result.as_ref().map_or(0, |count| *count)),
            Outcome::Sent(result, _) => {
                (true, result.as_ref().map_or_else(|error| error.transferred(), |count| *count))
            }
            Outcome::AcceptedAndReceived(result, tray) => {
                if let Ok((_, peer, count)) = result {
                    self.accepted(link.key, peer.as_ref(), &tray.bytes[..*count]);
                }
                (false, 0)
            }
            Outcome::Written(Err(error), _) => (true, error.transferred()),
            other => fail(&format!("it was no such operation: {other:?}")),
        };
        let on_file = matches!(&outcome, Outcome::Written(..));
        let is_over = matches!(&outcome, Outcome::Received(Ok(0), _));
        if expected.is_some() {
            self.taken(&outcome);
        }
        let tray = outcome.into_buffer().expect("the buffer comes back");
        let number = tray.number;
        self.ledger.note(|| format!("  operation {number} has ended: {count} bytes, {error:?}"));
        let first = if is_send || count == 0 { None } else { Some(usize::from(tray.bytes[0])) };
        for (place, byte) in tray.bytes.iter().take(count).enumerate() {
            if let Some(first) = first
                && usize::from(*byte) != first + place
            {
                fail(&format!("operation {number} has received {:?}", tray.bytes));
            }
        }
        drop(tray);
        let mut log = self.ledger.log();
        let flight = &mut log.flights[number];
        flight.bytes = first.map(|first| (first, count));
        let (key, was_send, earliest) = (flight.key, flight.is_send, flight.earliest);
        let was_on_file = flight.on_file;
        drop(log);
        if on_file != was_on_file {
            fail(&format!("operation {number} came as one of another kind"));
        }
        if key != link.key || is_send != was_send || expected.is_some_and(|it| it != number) {
            fail(&format!("operation {number} of key {key} came as another one"));
        }
        match error.map(|error| error.kind()) {
            None | Some(ErrorKind::Cancelled) => {}
            Some(ErrorKind::TimedOut) => {
                if earliest.is_none_or(|earliest| now < earliest) {
                    fail(&format!("operation {number} timed out at {now:?}, for {earliest:?}"));
                }
            }
            // As it must: a socket is no file.
            Some(ErrorKind::Other) if on_file => {}
            // It was forgotten; or the peer is gone.
            Some(_) => return true,
        }
        is_over
    }

    /// The token of an operation that has ended is used up.
    pub(crate) fn after(&self, link: &Link, token: Ready<'_, Key, Tray>, ends: bool) {
        turns::linger();
        if ends || self.ends.load(SeqCst) || turns::lot_below(12) == 0 {
            self.ledger.over(link.key);
            if turns::lot_below(2) == 0 {
                drop(token);
            } else if token.into_key().number != link.key {
                fail("another key came out of a token");
            }
            return;
        }
        self.go_on(link, token, Start::by_lot());
    }

    pub(crate) fn handle_done(&self, done: Done<'_, Key, Tray>, began: u64, before: impl FnOnce()) {
        let key = done.key().number;
        let link = self.wait_for_link(key);
        self.ledger.note(|| format!("takes the operation of key {key}"));
        self.ledger.packet(key, crate::Events::NONE, began, true);
        let (token, outcome) = done.into_parts();
        self.taken(&outcome);
        before();
        let ends = self.ended(&link, outcome, None);
        self.after(&link, token, ends);
    }

    pub(crate) fn handle_finished(
        &self,
        finished: Finished<'_, Key, Tray>,
        began: u64,
        before: impl FnOnce(),
    ) {
        let key = finished.key().number;
        let link = self.wait_for_link(key);
        self.ledger.note(|| format!("takes an operation of key {key}"));
        self.ledger.packet(key, crate::Events::NONE, began, false);
        let (key, outcome) = finished.into_parts();
        self.taken(&outcome);
        before();
        let ends = self.ended(&link, outcome, None);
        drop(key);
        turns::linger();
        if ends {
            self.remove(link.key, link.id);
        } else if !self.ends.load(SeqCst) && turns::lot_below(3) > 0 {
            self.start_shared(&link, Start::by_lot());
        }
    }

    /// Readiness of an association was reported, without a token: it is asked for no more.
    pub(crate) fn handle_notified_link(&self, link: &Link) {
        if link.shared.is_some() {
            self.start_shared(link, Start::by_lot());
            self.disable(link.key, link.id);
        } else {
            self.remove(link.key, link.id);
        }
    }

    /// The first packet may come before the association is known.
    fn wait_for_link(&self, key: u32) -> Arc<Link> {
        loop {
            if let Some(link) = self.link_of(key) {
                return link;
            }
            point();
            turns::yield_now();
        }
    }

    /// What the peers have received: each send's bytes stand together. Clients go.
    pub(crate) fn check_links(&self) {
        let clients = std::mem::take(&mut self.ledger.log().clients);
        drop(clients);
        for link in self.links.lock().unwrap().iter() {
            link.hear();
            let received = link.received.lock().unwrap();
            let received = received.as_ref().expect("no other thread is left");
            let mut seen = [false; 256];
            let mut former = 0;
            for byte in received.iter() {
                if *byte != former && std::mem::replace(&mut seen[usize::from(*byte)], true) {
                    fail(&format!("sends of key {} interleave: {received:?}", link.key));
                }
                former = *byte;
            }
        }
    }
}

impl Link {
    /// The peer reads what there is.
    fn hear(&self) {
        let Some(far) = &self.far else { return };
        let Some(mut received) = self.received.lock().unwrap().take() else { return };
        let mut bytes = [0; 64];
        while let Ok(read @ 1..) = far.read(&mut bytes) {
            received.extend_from_slice(&bytes[..read]);
        }
        *self.received.lock().unwrap() = Some(received);
    }
}
