//! Operations in a run: associations, the operations started on them, and the rules that must hold
//! under any interleaving.
//!
//! An association owns one of:
//! - the near end of a pair. The peer sends bytes that count up, so a receive shows which bytes it
//!   got. The bytes of each send name that send.
//! - a listener, whose operations are accepts. A client may reset its connection.
//! - a datagram socket. `batches.rs` has a model of its datagrams.
//! - a socket that must first be connected: to a listener that answers, to one whose queue is full,
//!   or to an unused address.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::batches::{self, Model};
use crate::ledger::{Key, Ledger};
use crate::port::raw::AnyTrigger;
use crate::program::{Dial, Start, Step};
use crate::sim::{self, Conditions, Kernel, Socket};
use crate::turns::{self, fail, point};
use crate::types::address::Address;
use crate::types::interest::Interest;
use crate::world::{REFUSALS, World, expect};
use crate::{
    Buffer, Completed, Datagrams, Error, ErrorKind, Id, OneShot, OpId, Operation, Outcome, Ready,
    SharedCompleted, SharedId, Started,
};

/// In place of the key of an operation without an association.
const NO_KEY: u32 = u32::MAX;
/// The most bytes in one direction: each byte has a distinct value.
const MOST_BYTES: usize = 250;
/// The most operations of one association: their numbers are bytes.
const MOST_OPS: usize = 120;
/// How late a deadline may be: one scan interval of the watchdog and the pause after it.
const LATE: Duration = Duration::from_millis(2);

/// An association and its peer, or an associated listener.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) key: u32,
    /// The id for starting operations, if the association is shared.
    pub(crate) shared: Option<SharedId>,
    pub(crate) id: Id,
    kind: Kind,
    /// The peer, if there is one. A thread that resets the connection takes it out.
    far: Mutex<Option<Arc<Socket>>>,
    /// The target of the connection. A peer that doesn't exist yet is accepted from it.
    door: Option<Door>,
    is_connected: AtomicBool,
    /// The number of bytes that the peer has sent, and the bytes that it has received. A thread
    /// that is updating one of them has taken it out.
    sent: Mutex<Option<usize>>,
    received: Mutex<Option<Vec<u8>>>,
    model: Model,
}

/// The kind of socket that an association has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stream,
    Listener,
    Datagrams,
}

/// The target of a connect.
#[derive(Debug)]
struct Door {
    address: sim::Address,
    /// `None`: the address is unused.
    listener: Option<Arc<Socket>>,
    /// The socket that fills the listener's queue.
    filler: Option<Socket>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Accept,
    Connect,
    Receive,
    ReceiveFrom,
    ReceiveMany,
    Send,
    SendMany,
    /// A file read.
    Read,
    /// A file write.
    Write,
}

impl Sort {
    fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendMany | Self::Write)
    }

    fn is_on_file(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    fn has_buffer(self) -> bool {
        !matches!(self, Self::Accept | Self::Connect)
    }

    fn of(outcome: &Outcome<Tray>) -> Self {
        match outcome {
            Outcome::Accepted(_) => Self::Accept,
            Outcome::Connected(_) => Self::Connect,
            Outcome::Received(..) => Self::Receive,
            Outcome::ReceivedFrom(..) => Self::ReceiveFrom,
            Outcome::ReceivedMany(..) => Self::ReceiveMany,
            Outcome::Sent(..) => Self::Send,
            Outcome::SentMany(..) => Self::SendMany,
            Outcome::Read(..) => Self::Read,
            Outcome::Written(..) => Self::Write,
            other => fail(&format!("it was no such operation: {other:?}")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Started,
    Refused,
    /// Its packet was taken, or the start returned its outcome.
    Ended,
}

/// An operation in the log.
#[derive(Debug)]
struct Op {
    key: u32,
    sort: Sort,
    fate: Fate,
    /// When its start was called, and when that returned.
    began: u64,
    started: Option<u64>,
    /// Its deadline: the earliest time at which it may time out and, once known, the time after
    /// which it is late.
    earliest: Option<Duration>,
    latest: Option<Duration>,
    /// The offset of its bytes in their direction, and their number.
    bytes: Option<(usize, usize)>,
    has_buffer: bool,
}

/// A client of a listener.
#[derive(Debug)]
struct Client {
    /// The listener's key.
    key: u32,
    /// `None`: the client has reset its connection.
    socket: Option<Arc<Socket>>,
    address: sim::Address,
    /// An operation has accepted its connection.
    is_accepted: bool,
}

/// The log of all operations.
#[derive(Debug, Default)]
pub(crate) struct Log {
    clients: Vec<Client>,
    ops: Vec<Op>,
    /// By key: the number of operations started, and the number of the last one.
    counts: BTreeMap<u32, usize>,
    last: BTreeMap<u32, usize>,
    /// By `OpId`, once the starts have returned.
    names: BTreeMap<OpId, usize>,
}

/// A buffer that must be dropped, whatever happens.
#[derive(Debug)]
pub(crate) struct Tray {
    number: usize,
    bytes: Vec<u8>,
    datagrams: Option<Datagrams>,
    ledger: Arc<Ledger>,
}

impl Drop for Tray {
    fn drop(&mut self) {
        let mut log = self.ledger.log();
        let had = std::mem::replace(&mut log.ops[self.number].has_buffer, false);
        drop(log);
        if !had {
            fail(&format!("the buffer of operation {} was dropped twice", self.number));
        }
    }
}

// SAFETY: `Buffer` requires stable memory and truthful lengths.
// - the memory is the vector's, whose own implementation promises the same.
unsafe impl Buffer for Tray {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        point();
        self.bytes.filled(part);
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        point();
        // SAFETY: the caller must write only initialized bytes.
        // - the memory is the vector's, so the caller's promise to `room` holds for it.
        unsafe { self.bytes.room(part) };
    }

    unsafe fn set_filled(&mut self, len: usize) {
        // SAFETY: the first `len` bytes must be initialized.
        // - the memory is the vector's, so the caller's promise to `set_filled` holds for it.
        unsafe { self.bytes.set_filled(len) };
    }

    fn datagrams(&mut self) -> Option<&mut Datagrams> {
        point();
        self.datagrams.as_mut()
    }
}

impl Log {
    /// Lists the operations that were started and have not ended.
    fn in_flight(&self) -> Vec<OpRef> {
        let ops = self.ops.iter().enumerate();
        let in_flight = ops
            .filter(|(_, op)| op.fate == Fate::Started && op.started.is_some())
            .map(|(number, op)| OpRef { number, key: op.key, sort: op.sort, latest: op.latest });
        in_flight.collect()
    }

    pub(crate) fn report(&self) -> String {
        let number = self.ops.iter().enumerate();
        number.map(|(number, op)| format!("operation {number}: {op:?}\n")).collect()
    }

    /// Adds an operation that is about to be started. Returns its number.
    fn add(&mut self, key: u32, sort: Sort, earliest: Option<Duration>) -> usize {
        self.ops.push(Op {
            key,
            sort,
            fate: Fate::Started,
            began: 0,
            started: None,
            earliest,
            latest: None,
            bytes: None,
            has_buffer: sort.has_buffer(),
        });
        self.ops.len() - 1
    }

    /// Checks, at the end, that no operation, buffer or byte was lost and that no bytes were
    /// swapped.
    pub(crate) fn check(&self, may_leave: bool, left: &mut Vec<String>) {
        for (number, op) in self.ops.iter().enumerate() {
            if op.has_buffer {
                left.push(format!("the buffer of operation {number} was leaked"));
            }
            if op.fate == Fate::Started && !may_leave {
                left.push(format!("operation {number} has no packet"));
            }
        }
        let mut queues: BTreeMap<(u32, bool), Vec<&Op>> = BTreeMap::new();
        for op in &self.ops {
            if op.bytes.is_some_and(|(_, count)| count > 0) {
                queues.entry((op.key, op.sort.is_send())).or_default().push(op);
            }
        }
        for ((key, is_send), mut ops) in queues {
            ops.sort_by_key(|op| op.bytes);
            let mut next = 0;
            let mut latest_start = 0;
            for op in ops {
                let (first, count) = op.bytes.expect("filtered above");
                // A datagram may have been truncated, or dropped because the buffer was full.
                let is_of_datagrams = matches!(op.sort, Sort::ReceiveFrom | Sort::ReceiveMany);
                let is_whole = first == next || is_of_datagrams && first > next;
                if !is_whole && !may_leave {
                    left.push(format!(
                        "key {key}, send {is_send}: byte {next} was lost or swapped"
                    ));
                }
                next = first + count;
                if op.started.is_some_and(|started| started < latest_start) {
                    left.push(format!("key {key}, send {is_send}: byte {first} was overtaken"));
                }
                latest_start = latest_start.max(op.began);
            }
        }
    }
}

/// An operation in flight.
struct OpRef {
    number: usize,
    key: u32,
    sort: Sort,
    latest: Option<Duration>,
}

impl Ledger {
    /// Adds the operations that could end but have not.
    pub(crate) fn due_operations(&self, kernel: &Kernel, due: &mut Vec<String>) {
        let in_flight = self.log().in_flight();
        for OpRef { number, key, sort, latest } in in_flight {
            if sort.is_on_file() && kernel.held_files() > 0 {
                // The kernel may hold it. An operation that was not begun ends when it is
                // cancelled. That case (`FileScript::Queued`) is left to the conformance tests.
                continue;
            }
            let (socket, is_removed) = if key == NO_KEY {
                (None, false)
            } else {
                self.with(key, |facts| (facts.socket.upgrade(), facts.removing))
            };
            let shows = |wanted: &[Conditions]| {
                let facts = socket.as_ref().map_or(Conditions::NONE, |it| kernel.facts(it));
                wanted.iter().any(|wanted| facts.contains(*wanted))
            };
            if latest.is_some_and(|latest| latest + LATE < kernel.now()) {
                due.push(format!("the deadline of operation {number} is over"));
            } else if is_removed {
                due.push(format!("the association of operation {number} was removed"));
            } else {
                use Conditions as C;
                let what = match sort {
                    Sort::Read | Sort::Write => Some("on a file has come back"),
                    Sort::Send | Sort::SendMany => Some("has room"),
                    Sort::Receive if shows(&[C::IN, C::RDHUP, C::HUP, C::ERR]) => {
                        Some("has something to receive")
                    }
                    Sort::ReceiveFrom | Sort::ReceiveMany if shows(&[C::IN, C::ERR]) => {
                        Some("has a datagram to receive")
                    }
                    Sort::Accept if shows(&[C::IN]) => Some("has a connection to accept"),
                    Sort::Connect if shows(&[C::OUT, C::HUP, C::ERR]) => Some("has its connection"),
                    _ => None,
                };
                due.extend(what.map(|what| format!("operation {number} {what}")));
            }
        }
    }
}

impl World {
    /// Associates one end of a pair, and starts its first operation or arms it.
    pub(crate) fn associate(&self, is_shared: bool, start: Start) {
        let (near, far) = self.pair();
        self.associate_one(near, (Kind::Stream, Some(far), None), is_shared, start);
    }

    /// Associates a datagram socket, and starts its first operation or arms it.
    fn associate_datagrams(&self, is_shared: bool, start: Start) {
        let near = Arc::new(self.kernel.udp_bound().unwrap());
        let far = Some(Arc::new(self.kernel.udp_bound().unwrap()));
        self.associate_one(near, (Kind::Datagrams, far, None), is_shared, start);
    }

    /// Associates an unconnected socket. Its operations are connects until one of them succeeds.
    fn dial(&self, is_shared: bool, way: Dial, start: Start) {
        let near = Arc::new(self.kernel.tcp_fresh().unwrap());
        let door = match way {
            Dial::Answered => {
                let listener = Arc::new(self.kernel.tcp_listener(4).unwrap());
                Door { address: listener.address(), listener: Some(listener), filler: None }
            }
            Dial::Refused => {
                Door { address: self.kernel.unused_address(), listener: None, filler: None }
            }
            Dial::Silent => {
                let listener = self.kernel.tcp_listener(0).unwrap();
                let filler = self.kernel.tcp_fresh().unwrap();
                // The connect stays in progress and fills the queue.
                let _ = filler.connect(listener.address());
                let listener = Arc::new(listener);
                Door { address: listener.address(), listener: Some(listener), filler: Some(filler) }
            }
        };
        self.associate_one(near, (Kind::Stream, None, Some(door)), is_shared, start);
    }

    fn associate_one(
        &self,
        near: Arc<Socket>,
        (kind, far, door): (Kind, Option<Arc<Socket>>, Option<Door>),
        is_shared: bool,
        start: Start,
    ) {
        let trigger = AnyTrigger::OneShot(OneShot::Level);
        let key = self.ledger.key(Some(Arc::clone(&near)), &near, Interest::NONE, trigger);
        let number = key.number;
        drop(near);
        // Which readiness is reported depends on the operations.
        self.ledger.with(number, |facts| facts.is_doubtful = true);
        self.ledger.note(|| format!("  key {number} is associated"));
        let link = |shared, id| {
            let link = Arc::new(Link {
                key: number,
                shared,
                id,
                kind,
                far: Mutex::new(far),
                is_connected: AtomicBool::new(door.is_none()),
                door,
                sent: Mutex::new(Some(0)),
                received: Mutex::new(Some(Vec::new())),
                model: Model::default(),
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
                    self.run_deferred(&link, token, start);
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
        let listeners: Vec<_> = links.iter().filter(|link| link.kind == Kind::Listener).collect();
        Some(Arc::clone(listeners[which.checked_rem(listeners.len())?]))
    }

    /// A client connects to a listener.
    fn connect(&self, which: usize) {
        let Some(link) = self.any_listener(which) else { return };
        let listener = self.ledger.with(link.key, |facts| facts.socket.upgrade());
        let Some(listener) = listener else { return };
        let socket = Arc::new(self.kernel.tcp_fresh().unwrap());
        // Record the client before it can be accepted.
        let client = Client {
            key: link.key,
            socket: Some(Arc::clone(&socket)),
            address: socket.address(),
            is_accepted: false,
        };
        let mut log = self.ledger.log();
        let number = log.clients.len();
        log.clients.push(client);
        drop(log);
        self.ledger.note(|| format!("  client {number} connects to key {}", link.key));
        // Refused if the listener has just been closed.
        let _ = socket.connect(listener.address());
    }

    /// Resets the connection of a client, or of an association's peer.
    fn reset(&self, which: usize) {
        let Some(link) = self.any_link(which) else { return };
        if link.kind == Kind::Listener {
            let mut log = self.ledger.log();
            let clients = log.clients.len();
            let Some(which) = which.checked_rem(clients) else { return };
            let socket = log.clients[clients - 1 - which].socket.take();
            drop(log);
            reset_when_closed(socket);
        } else if link.kind == Kind::Stream {
            let Some(_) = link.sent.lock().unwrap().take() else { return };
            link.hear();
            let far = link.far.lock().unwrap().take();
            reset_when_closed(far);
            *link.sent.lock().unwrap() = Some(MOST_BYTES);
        }
    }

    /// Records a connection that an operation has accepted.
    fn accepted(&self, key: u32, peer: Option<&Address>) {
        let mut log = self.ledger.log();
        let mut clients = log.clients.iter_mut().enumerate();
        let Some(peer) = peer else {
            // The peer's address is unknown, so a client must have reset its connection.
            if !clients.any(|(_, client)| client.key == key && client.socket.is_none()) {
                fail("a connection of no client was accepted");
            }
            return;
        };
        let client = clients.find(|(_, client)| *peer == client.address.into());
        let Some((number, client)) = client else { fail("a connection of no client was accepted") };
        if client.key != key || std::mem::replace(&mut client.is_accepted, true) {
            fail(&format!("client {number} of key {} was accepted for {key}", client.key));
        }
    }

    /// Performs a step that concerns operations.
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
                self.associate_one(listener, (Kind::Listener, None, None), shared, start);
            }
            Step::AssociateDatagrams { shared, start } => self.associate_datagrams(shared, start),
            Step::Dial { shared, way, start } => self.dial(shared, way, start),
            Step::Reset { which } => self.reset(which),
            Step::Connect { which } => self.connect(which),
            Step::Feed { which, bytes } => {
                let Some(link) = self.any_link(which) else { return };
                let Some(far) = link.peer() else { return };
                let near = self.ledger.with(link.key, |facts| facts.socket.upgrade());
                let Some(near) = near.map(|near| near.address()) else { return };
                let Some(first) = link.sent.lock().unwrap().take() else { return };
                let last = first + bytes.min(MOST_BYTES - first);
                #[allow(clippy::cast_possible_truncation, reason = "there are fewer")]
                let bytes: Vec<u8> = (first..last).map(|byte| byte as u8).collect();
                let is_sent = if bytes.is_empty() {
                    true
                } else if link.kind == Kind::Datagrams {
                    link.model.feeding(first, bytes.len());
                    far.send_to(&bytes, near).is_ok()
                } else {
                    far.write(&bytes).is_ok()
                };
                *link.sent.lock().unwrap() = Some(if is_sent { last } else { first });
                link.hear();
            }
            Step::Hush { which } => {
                let Some(link) = self.any_link(which) else { return };
                if link.kind == Kind::Datagrams {
                    return;
                }
                let Some(far) = link.peer() else { return };
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

    /// Creates the operation of `start`. Returns it with its number, or `None` if the association
    /// has reached its limit.
    fn operation(&self, link: &Link, start: Start) -> Option<(usize, Operation<Tray>)> {
        let deadline = start.microseconds.map(Duration::from_micros);
        let earliest = deadline.map(|after| self.kernel.now() + after);
        // There must be no point while the log is open: another thread may need it.
        let mut log = self.ledger.log();
        let count = log.counts.entry(link.key).or_default();
        if *count == MOST_OPS {
            return None;
        }
        *count += 1;
        let in_link = *count;
        let sort = link.sort_of(start);
        let number = log.add(link.key, sort, earliest);
        log.last.insert(link.key, number);
        drop(log);
        let began = self.ledger.now();
        self.ledger.log().ops[number].began = began;
        #[allow(clippy::cast_possible_truncation, reason = "there are fewer")]
        let byte = in_link as u8;
        let tray = |datagrams| {
            let bytes = if sort.is_send() {
                vec![byte; start.bytes]
            } else {
                Vec::with_capacity(start.bytes)
            };
            Tray { number, bytes, datagrams, ledger: Arc::clone(&self.ledger) }
        };
        let operation = match (sort, link.kind) {
            (Sort::Accept, _) => Operation::accept(),
            (Sort::Connect, _) => {
                Operation::connect(link.door.as_ref().expect("it is to be connected").address)
            }
            (Sort::Receive, _) => Operation::recv(tray(None)),
            (Sort::ReceiveFrom, _) => Operation::recv_from(tray(None)),
            (Sort::ReceiveMany, _) => {
                let datagrams = Some(batches::for_receiving(start.bytes));
                Operation::recv_many(tray(datagrams))
            }
            (Sort::SendMany, _) => {
                let far: Address = link.peer().expect("it is never reset").address().into();
                let fails = start.send == Some(false);
                let datagrams = batches::for_sending(byte, start.bytes, &far, fails);
                Operation::send_many(tray(Some(datagrams)))
            }
            (Sort::Write, _) if in_link.is_multiple_of(2) => self.file.write_at(tray(None), 0),
            (Sort::Read | Sort::Write, _) => Operation::write_at(tray(None), 0),
            (Sort::Send, Kind::Datagrams) => {
                let far = link.peer().expect("it is never reset");
                Operation::send_to(tray(None), far.address())
            }
            (Sort::Send, _) if start.send == Some(true) => Operation::send_all(tray(None)),
            (Sort::Send, _) => Operation::send(tray(None)),
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
        let op = &mut log.ops[number];
        op.started = Some(moment);
        // The deadline counts from some moment during the call.
        op.latest = start.microseconds.map(|after| now + Duration::from_micros(after));
        log.names.extend(operation.map(|name| (name, number)));
        drop(log);
        if let Some(operation) = operation {
            self.operations.lock().unwrap().push(operation);
        }
    }

    /// An operation was not put in flight. If the port was closed meanwhile, a token may have
    /// performed it already.
    fn refused(
        &self,
        link: Option<&Link>,
        number: usize,
        error: Error,
        operation: Operation<Tray>,
    ) {
        let among = [
            ErrorKind::Closed,
            ErrorKind::NotRegistered,
            ErrorKind::Removing,
            ErrorKind::BadDescriptor,
            ErrorKind::NotShared,
        ];
        expect(error.kind(), &among, "the start of an operation");
        let tray = operation.into_buffer();
        if tray.as_ref().is_some_and(|tray| tray.number != number) {
            fail("another buffer came back");
        }
        let sort = self.ledger.log().ops[number].sort;
        if tray.is_some() != sort.has_buffer() {
            fail("the buffer did not come back");
        }
        if let (Some(Link { kind: Kind::Datagrams, model, .. }), Some(tray)) = (link, &tray) {
            let Tray { bytes, datagrams, .. } = tray;
            if error.transferred() > 0 && sort.is_send() {
                model.sent_though_refused(number, error, bytes, datagrams.as_ref());
            } else if error.transferred() > 0 {
                model.received_though_refused(bytes, datagrams.as_ref());
            }
        }
        drop(tray);
        let mut log = self.ledger.log();
        let op = &mut log.ops[number];
        if op.fate != Fate::Started {
            fail(&format!("operation {number} was refused, and has ended"));
        }
        op.fate = Fate::Refused;
    }

    /// Starts an operation on a file without an association. A message brings its outcome.
    pub(crate) fn start_then_post(&self, start: Start) {
        let deadline = start.microseconds.map(Duration::from_micros);
        let earliest = deadline.map(|after| self.kernel.now() + after);
        let sort = if start.send.is_some() { Sort::Write } else { Sort::Read };
        let number = self.ledger.log().add(NO_KEY, sort, earliest);
        let bytes = match sort {
            Sort::Write => vec![1; start.bytes],
            _ => Vec::with_capacity(start.bytes),
        };
        let tray = Tray { number, bytes, datagrams: None, ledger: Arc::clone(&self.ledger) };
        let operation = match sort {
            Sort::Write => self.file.write_at(tray, 0),
            _ => self.file.read_at(tray, 0),
        };
        let operation = match deadline {
            Some(deadline) => operation.deadline(deadline),
            None => operation,
        };
        let mut message = self.ledger.letter_of_operation();
        let letter = message.number;
        self.ledger.note(|| format!("  starts {number}: {start:?} for message {letter}"));
        let ledger = Arc::clone(&self.ledger);
        let started = self.port.start_then_post(operation, move |outcome| {
            point();
            ledger.posting(letter);
            message.operation = Some((number, outcome));
            message
        });
        match started {
            Ok(operation) => self.started(number, start, Some(operation)),
            Err(refused) => {
                expect(refused.kind(), &[ErrorKind::Closed], "start_then_post");
                self.ledger.given_back(letter);
                let (error, operation) = refused.into_parts();
                self.refused(None, number, error, operation);
            }
        }
    }

    /// Checks the outcome that a message has brought.
    pub(crate) fn ended_by_message(&self, number: usize, outcome: Outcome<Tray>) {
        self.taken(number, &outcome);
        let (now, error) = (self.kernel.now(), outcome.error().map(|error| error.kind()));
        let count = match &outcome {
            Outcome::Read(result, _) | Outcome::Written(result, _) => result.as_ref().ok().copied(),
            other => fail(&format!("it was no such operation: {other:?}")),
        };
        let sort = Sort::of(&outcome);
        let Some(tray) = outcome.into_buffer() else {
            fail(&format!("the buffer of operation {number} did not come back"))
        };
        let log = self.ledger.log();
        let Op { key, sort: was, earliest, .. } = log.ops[number];
        drop(log);
        if key != NO_KEY || sort != was {
            fail(&format!("operation {number} of key {key}, {was:?}, came as {sort:?}"));
        }
        match error {
            None if count != Some(tray.bytes.len()) => {
                fail(&format!("operation {number} has brought {count:?} of {:?}", tray.bytes));
            }
            None | Some(ErrorKind::Cancelled) => {}
            Some(ErrorKind::TimedOut) if earliest.is_some_and(|earliest| earliest <= now) => {}
            Some(error) => fail(&format!("operation {number} has failed: {error:?}")),
        }
    }

    fn start_shared(&self, link: &Link, start: Start) {
        let id = link.shared.expect("the caller has looked");
        let Some((number, operation)) = self.operation(link, start) else { return };
        if start.at_once {
            match self.port.start_now(id, operation) {
                Ok(Started::InFlight(operation)) => self.started(number, start, Some(operation)),
                Ok(Started::Completed(outcome)) => {
                    self.started(number, start, None);
                    self.taken(number, &outcome);
                    self.ended(link, number, outcome);
                }
                Err(refused) => {
                    let (error, operation) = refused.into_parts();
                    self.refused(Some(link), number, error, operation);
                }
            }
        } else {
            match self.port.start(id, operation) {
                Ok(operation) => self.started(number, start, Some(operation)),
                Err(refused) => {
                    let (error, operation) = refused.into_parts();
                    self.refused(Some(link), number, error, operation);
                }
            }
        }
    }

    /// Continues in the handler of an association's token: starts an operation or arms the
    /// registration.
    pub(crate) fn run_deferred(&self, link: &Link, token: Ready<'_, Key, Tray>, start: Start) {
        let key = link.key;
        if start.arms {
            self.ledger.giving_back(key, Some((Interest::IN, AnyTrigger::OneShot(OneShot::Level))));
            let armed = match start.microseconds {
                // With an association's interest, only a deadline or a hang-up is reported.
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
                Ok(Started::Completed((token, outcome))) => {
                    self.ledger.lent_back(key);
                    self.started(number, start, None);
                    self.taken(number, &outcome);
                    let ends = self.ended(link, number, outcome);
                    self.after(link, token, ends);
                }
                Err(refused) => {
                    self.ledger.over(key);
                    let (error, (key, operation)) = refused.into_parts();
                    drop(key);
                    self.refused(Some(link), number, error, operation);
                }
            }
        } else {
            match token.start(operation) {
                Ok(operation) => self.started(number, start, Some(operation)),
                Err(refused) => {
                    self.ledger.over(key);
                    let (error, (key, operation)) = refused.into_parts();
                    drop(key);
                    self.refused(Some(link), number, error, operation);
                }
            }
        }
    }

    /// An operation has ended, and a thread has its outcome.
    fn taken(&self, number: usize, outcome: &Outcome<Tray>) {
        let (Outcome::Received(_, Tray { number: named, .. })
        | Outcome::ReceivedFrom(_, Tray { number: named, .. })
        | Outcome::ReceivedMany(_, Tray { number: named, .. })
        | Outcome::Sent(_, Tray { number: named, .. })
        | Outcome::SentMany(_, Tray { number: named, .. })
        | Outcome::Read(_, Tray { number: named, .. })
        | Outcome::Written(_, Tray { number: named, .. })) = outcome
        else {
            return self.count_taken(number);
        };
        if *named != number {
            fail(&format!("operation {number} has brought the buffer of {named}"));
        }
        self.count_taken(number);
    }

    fn count_taken(&self, number: usize) {
        let fate = &mut self.ledger.log().ops[number].fate;
        let former = std::mem::replace(fate, Fate::Ended);
        if former != Fate::Started {
            fail(&format!("operation {number} has ended, though it was {former:?}"));
        }
    }

    /// Returns the number of an operation. Waits if its packet has come before its start returned.
    fn number_of(&self, operation: OpId) -> usize {
        loop {
            let number = self.ledger.log().names.get(&operation).copied();
            if let Some(number) = number {
                return number;
            }
            point();
            turns::yield_now();
        }
    }

    /// Checks the outcome of an operation. Returns true if the association must end too.
    fn ended(&self, link: &Link, number: usize, outcome: Outcome<Tray>) -> bool {
        let now = self.kernel.now();
        let error = outcome.error();
        let sort = Sort::of(&outcome);
        let transferred = |result: &crate::Result<usize>| {
            result.as_ref().map_or_else(|error| error.transferred(), |count| *count)
        };
        let count = match &outcome {
            Outcome::Received(result, _) => result.as_ref().map_or(0, |count| *count),
            Outcome::ReceivedFrom(result, tray) => {
                let far = link.peer().map(|far| far.address().into());
                match result {
                    Ok((_, from)) if *from != far => fail("a datagram came from elsewhere"),
                    Ok((count, _)) => *count,
                    Err(error) if error.kind() == ErrorKind::Truncated => tray.bytes.len(),
                    Err(_) => 0,
                }
            }
            Outcome::Sent(result, _) => transferred(result),
            // Their model checks them.
            Outcome::ReceivedMany(..) | Outcome::SentMany(..) => 0,
            Outcome::Accepted(result) => {
                if let Ok((_, peer)) = result {
                    self.accepted(link.key, peer.as_ref());
                }
                0
            }
            Outcome::Connected(result) => {
                if result.is_ok() && !link.door.as_ref().is_some_and(|door| door.answers()) {
                    fail(&format!("operation {number} is connected to nothing"));
                }
                link.is_connected.fetch_or(result.is_ok(), SeqCst);
                0
            }
            Outcome::Written(result, _) => transferred(result),
            other => fail(&format!("it was no such operation: {other:?}")),
        };
        let is_over = matches!(&outcome, Outcome::Received(Ok(0), _));
        let place =
            if link.kind == Kind::Datagrams { link.model_of(number, &outcome) } else { None };
        let tray = outcome.into_buffer();
        if tray.is_some() != sort.has_buffer() {
            fail(&format!("the buffer of operation {number} did not come back"));
        }
        self.ledger.note(|| format!("  operation {number} has ended: {count} bytes, {error:?}"));
        let bytes = tray.as_ref().map_or(&[][..], |tray| &tray.bytes);
        let first = if sort.is_send() || count == 0 { None } else { Some(usize::from(bytes[0])) };
        for (place, byte) in bytes.iter().take(count).enumerate() {
            if let Some(first) = first
                && usize::from(*byte) != first + place
            {
                fail(&format!("operation {number} has received {bytes:?}"));
            }
        }
        drop(tray);
        let mut log = self.ledger.log();
        let op = &mut log.ops[number];
        op.bytes = place.or(first.map(|first| (first, count)));
        let (key, was, earliest) = (op.key, op.sort, op.earliest);
        drop(log);
        if key != link.key || sort != was {
            fail(&format!("operation {number} of key {key}, {was:?}, came as {sort:?}"));
        }
        match error.map(|error| error.kind()) {
            None | Some(ErrorKind::Cancelled | ErrorKind::Truncated) => {}
            Some(ErrorKind::TimedOut) => {
                if earliest.is_none_or(|earliest| now < earliest) {
                    fail(&format!("operation {number} timed out at {now:?}, for {earliest:?}"));
                }
            }
            // Expected: a socket is not a file.
            Some(ErrorKind::Other) if sort == Sort::Write => {}
            // One of its datagrams can't be sent.
            Some(ErrorKind::WrongKernel) if sort == Sort::SendMany => {}
            // A client has reset its connection, or the connect's address is unused.
            Some(ErrorKind::Other) if link.kind == Kind::Listener || sort == Sort::Connect => {}
            // The registration was forgotten, or the peer is gone.
            Some(_) => return true,
        }
        is_over
    }

    /// Uses the token of an operation that has ended.
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
        self.run_deferred(link, token, Start::by_lot());
    }

    pub(crate) fn handle_done(
        &self,
        done: Completed<'_, Key, Tray>,
        began: u64,
        before: impl FnOnce(),
    ) {
        let key = done.key().number;
        let link = self.wait_for_link(key);
        self.ledger.note(|| format!("takes the operation of key {key}"));
        self.ledger.packet(key, crate::Events::NONE, began, true);
        // A token has one operation at a time.
        let number = self.ledger.log().last[&key];
        let (token, outcome) = done.into_parts();
        self.taken(number, &outcome);
        before();
        let ends = self.ended(&link, number, outcome);
        self.after(&link, token, ends);
    }

    pub(crate) fn handle_finished(
        &self,
        finished: SharedCompleted<'_, Key, Tray>,
        began: u64,
        before: impl FnOnce(),
    ) {
        let key = finished.key().number;
        let link = self.wait_for_link(key);
        self.ledger.note(|| format!("takes an operation of key {key}"));
        self.ledger.packet(key, crate::Events::NONE, began, false);
        let number = self.number_of(finished.operation());
        let (key, outcome) = finished.into_parts();
        self.taken(number, &outcome);
        before();
        let ends = self.ended(&link, number, outcome);
        drop(key);
        turns::linger();
        if turns::lot_below(6) == 0 {
            self.switch(&link);
        }
        if ends {
            self.remove(link.key, link.id);
        } else if !self.ends.load(SeqCst) && turns::lot_below(3) > 0 {
            self.start_shared(&link, Start::by_lot());
        }
    }

    /// Takes the key of a shared association back, uses it, and shares it again.
    fn switch(&self, link: &Link) {
        let id = link.shared.expect("the caller has looked");
        let mut token = match self.port.unshare(id) {
            Ok(token) => token,
            Err(error) => {
                let among = [
                    ErrorKind::Closed,
                    ErrorKind::NotRegistered,
                    ErrorKind::Removing,
                    ErrorKind::KeyShared,
                    ErrorKind::NotShared,
                ];
                return expect(error.kind(), &among, "taking a shared key back");
            }
        };
        let key = link.key;
        self.ledger.note(|| format!("  takes key {key} back"));
        self.ledger.taken_back(key);
        if token.key_mut().number != key {
            fail("another key was taken back");
        }
        turns::linger();
        self.ledger.giving_back(key, None);
        if let Err(refused) = token.share() {
            self.ledger.over(key);
            expect(refused.kind(), &REFUSALS, "sharing a key");
        }
    }

    /// Readiness of an association was reported without a token. Disables or removes it.
    pub(crate) fn handle_notified_link(&self, link: &Link) {
        if link.shared.is_some() {
            self.start_shared(link, Start::by_lot());
            self.disable(link.key, link.id);
        } else {
            self.remove(link.key, link.id);
        }
    }

    /// Waits for the link of `key`: the first packet may come before the link is recorded.
    fn wait_for_link(&self, key: u32) -> Arc<Link> {
        loop {
            if let Some(link) = self.link_of(key) {
                return link;
            }
            point();
            turns::yield_now();
        }
    }

    /// Checks that the bytes of each send are contiguous in what the peers received. Drops all
    /// clients. `has_all` means that the outcomes of all operations are known.
    pub(crate) fn check_links(&self, has_all: bool) {
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
            if link.kind == Kind::Datagrams {
                link.model.check(link.key, has_all);
            }
        }
    }
}

impl Door {
    /// Returns whether a connect can succeed.
    fn answers(&self) -> bool {
        self.listener.is_some() && self.filler.is_none()
    }
}

impl Link {
    /// Returns the kind of the next operation.
    fn sort_of(&self, start: Start) -> Sort {
        match (self.kind, start.send) {
            (Kind::Listener, _) => Sort::Accept,
            (Kind::Stream, _) if !self.is_connected.load(SeqCst) => Sort::Connect,
            (Kind::Stream, _) if start.other => Sort::Write,
            (Kind::Datagrams, None) if start.other => Sort::ReceiveMany,
            (Kind::Datagrams, Some(_)) if start.other => Sort::SendMany,
            (Kind::Datagrams, None) => Sort::ReceiveFrom,
            (Kind::Stream, None) => Sort::Receive,
            (Kind::Stream | Kind::Datagrams, Some(_)) => Sort::Send,
        }
    }

    /// Passes the outcome of an operation on a datagram socket to the model. Returns the place of
    /// the bytes of a receive of many.
    fn model_of(&self, number: usize, outcome: &Outcome<Tray>) -> Option<(usize, usize)> {
        match outcome {
            Outcome::ReceivedFrom(result, tray) => {
                let error = result.as_ref().err().map(|error| error.kind());
                if error.is_none() || error == Some(ErrorKind::Truncated) {
                    let is_cut = error.is_some();
                    self.model.received(number, &tray.bytes, tray.bytes.capacity(), is_cut);
                }
            }
            Outcome::ReceivedMany(result, Tray { datagrams: Some(datagrams), .. }) => {
                let peer = self.peer().map(|far| far.address().into());
                return self.model.received_many(number, result, datagrams, peer.as_ref());
            }
            Outcome::Sent(result, tray) => {
                self.model.sent(tray.bytes[0], tray.bytes.len(), result.is_ok());
            }
            Outcome::SentMany(result, Tray { bytes, datagrams: Some(datagrams), .. }) => {
                self.model.sent_many(number, bytes[0], result, datagrams);
            }
            other => fail(&format!("operation {number} of datagrams has ended as {other:?}")),
        }
        None
    }

    /// Returns the peer, or `None` if there is none yet or any more.
    fn peer(&self) -> Option<Arc<Socket>> {
        let far = self.far.lock().unwrap().clone();
        let Some(Door { listener: Some(listener), filler: None, .. }) = &self.door else {
            return far;
        };
        if far.is_some() {
            return far;
        }
        // There must be no point while the lock is held: another thread may need it.
        let accepted = Arc::new(listener.accept().ok()?);
        let peer =
            Arc::clone(self.far.lock().unwrap().get_or_insert_with(|| Arc::clone(&accepted)));
        drop(accepted);
        Some(peer)
    }

    /// Reads all data at the peer.
    fn hear(&self) {
        let Some(far) = self.peer() else { return };
        let Some(mut received) = self.received.lock().unwrap().take() else { return };
        let mut bytes = [0; 64];
        while let Ok(read @ 1..) = far.read(&mut bytes) {
            let read = &bytes[..read];
            if self.kind == Kind::Datagrams {
                self.model.heard(read);
            }
            if self.kind == Kind::Datagrams && read.iter().any(|byte| *byte != read[0]) {
                fail(&format!("a datagram of key {} has {read:?}", self.key));
            }
            received.extend_from_slice(read);
        }
        *self.received.lock().unwrap() = Some(received);
    }
}

/// Resets the connection once no thread uses its socket.
fn reset_when_closed(socket: Option<Arc<Socket>>) {
    if let Some(socket) = socket {
        socket.dup().unwrap().reset();
    }
}
