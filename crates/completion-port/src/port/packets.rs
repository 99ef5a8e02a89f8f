//! The packets of a wait.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::engine::{Engine, Name, OpThread, Scratch, Taken, Waited, Worker, name_parts};
use crate::memory::trace::traces_packets;
use crate::port::Port;
use crate::port::current::{CurrentWorker, take_worker};
use crate::port::operation::{Completed, SharedCompleted};
use crate::port::registration::Id;
use crate::port::token::{Held, Ready};
use crate::state::moment::Moment;
use crate::state::queue::{NIL, Node};
use crate::state::slot::{Drained, NodeTurn, Slot};
use crate::types::buffer::Buffer;
use crate::types::interest::Events;

/// One packet.
#[non_exhaustive]
pub enum Packet<'p, K, M, B = Vec<u8>> {
    /// A one-shot registration reports. The handler owns the key until it rearms it.
    Ready(Ready<'p, K, B>),
    /// A persistent registration reports, and stays enabled. The packet holds a clone of the key.
    Notified(Notified<K>),
    /// A posted message.
    Posted(M),
    /// A registration has ended by [`Port::remove`]. This returns its key. None of its packets
    /// follows, but another thread may still hold an earlier one of a persistent registration.
    Removed(Id, K),
    /// An operation that was started by a token has ended. [`Completed::into_parts`] returns the
    /// token and the operation's outcome.
    Completed(Completed<'p, K, B>),
    /// An operation of a shared association has ended. The packet holds a clone of the key.
    SharedCompleted(SharedCompleted<'p, K, B>),
}

impl<K: fmt::Debug, M: fmt::Debug, B> fmt::Debug for Packet<'_, K, M, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(ready) => f.debug_tuple("Ready").field(ready).finish(),
            Self::Notified(notified) => f.debug_tuple("Notified").field(notified).finish(),
            Self::Posted(message) => f.debug_tuple("Posted").field(message).finish(),
            Self::Removed(id, key) => f.debug_tuple("Removed").field(id).field(key).finish(),
            Self::Completed(done) => f.debug_tuple("Completed").field(done).finish(),
            Self::SharedCompleted(finished) => {
                f.debug_tuple("SharedCompleted").field(finished).finish()
            }
        }
    }
}

/// A packet of a persistent registration.
///
/// # Examples
///
/// ```
/// use completion_port::{Batch, Interest, Packet, Persistent, Port, Registration};
/// use std::net::UdpSocket;
///
/// let port = Port::<&str>::new()?;
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// port.register(Registration::new(&socket, "socket", Interest::OUT, Persistent::Edge))?;
/// for packet in port.wait(&mut Batch::new(), None)? {
///     let Packet::Notified(notified) = packet else { continue };
///     assert_eq!(*notified.key(), "socket");
///     assert!(notified.events().is_out());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Notified<K> {
    id: Id,
    events: Events,
    key: K,
}

impl<K> Notified<K> {
    /// Returns the registration's name.
    #[must_use]
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns the conditions that held.
    #[must_use]
    pub fn events(&self) -> Events {
        self.events
    }

    /// Returns the clone of the key that came with this packet.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Keeps the clone of the key.
    #[must_use]
    pub fn into_key(self) -> K {
        self.key
    }
}

impl<K> fmt::Debug for Notified<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notified")
            .field("id", &self.id)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

/// The packets of one wait. The iterator moves each one out when it reaches it.
///
/// When the iterator is dropped, its remaining packets return to the front of the queue. If a
/// thread is stuck with one packet, an idle thread takes the rest from its iterator after a
/// millisecond or two. A thread that comes to wait may take them sooner.
///
/// The iterator cannot leave the thread that waited.
///
/// # Examples
///
/// ```
/// use completion_port::{Batch, Packet, Port};
///
/// let port: Port<(), u32> = Port::builder().build()?;
/// (1..=3).try_for_each(|number| port.post(number))?;
/// let mut batch = Batch::new();
/// let first = port.wait(&mut batch, None)?.next(); // the other two go back
/// assert!(matches!(first, Some(Packet::Posted(1))));
/// assert_eq!(port.wait(&mut batch, None)?.count(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "packets that are not taken go back to the queue"]
pub struct Packets<'b, 'p, K, M, B = Vec<u8>> {
    pub(super) port: &'p Port<K, M, B>,
    scratch: &'b mut Scratch,
    room: usize,
    deadline: Option<Moment>,
    worker: Option<Rc<CurrentWorker>>,
    /// The worker's progress when the wait returned.
    begun: u32,
    /// There was a packet, or the wait has ended without one.
    settled: bool,
    /// Every packet of a registration holds a clone of the key, even if the registration is
    /// one-shot.
    clones: bool,
}

impl<'b, 'p, K, M, B> Packets<'b, 'p, K, M, B> {
    /// Creates the iterator of a wait that takes nothing.
    pub(crate) fn none(port: &'p Port<K, M, B>, scratch: &'b mut Scratch) -> Self {
        let (room, deadline, worker, begun) = (0, None, None, 0);
        Self { port, scratch, room, deadline, worker, begun, settled: true, clones: false }
    }

    /// Creates the iterator over the result of a wait of `worker`.
    pub(crate) fn waited(
        port: &'p Port<K, M, B>,
        scratch: &'b mut Scratch,
        room: usize,
        deadline: Option<Moment>,
        worker: Rc<CurrentWorker>,
        waited: Waited,
    ) -> Self {
        let settled = waited != Waited::Packets;
        let (begun, worker) = (worker.progress(), Some(worker));
        let clones = false;
        Self { port, scratch, room, deadline, worker, begun, settled, clones }
    }

    /// Makes each packet bring a clone of its key. The port must already know how to clone keys.
    #[inline]
    pub(crate) fn with_clones(mut self) -> Self {
        self.clones = true;
        self
    }
}

impl<'p, K, M, B: Buffer> Packets<'_, 'p, K, M, B> {
    /// Builds a packet whose key now belongs to the caller. The key stays in its cell.
    #[inline]
    fn ready(&self, slot: &'p Slot, index: u32, events: Events) -> Packet<'p, K, M, B> {
        let store = self.port.store();
        let cell = store.keys.cells.at(index);
        let held = Held { store, slot, cell, index, events, drained: Drained::NONE };
        Packet::Ready(Ready { held, key: PhantomData })
    }

    /// Returns how the engine sees this thread while it handles an operation of these packets.
    #[inline]
    pub(super) fn op_thread<'w>(&self, worker: &'w Worker) -> OpThread<'w> {
        // Each node that the thread takes changes its progress, even if it makes no packet.
        let taken = worker.progress().wrapping_sub(self.begun);
        OpThread::in_wait(worker, self.room, taken as usize)
    }

    /// Builds the packet of a posted message.
    #[inline]
    fn posted(&self, cell: u32, worker: &Worker) -> Packet<'p, K, M, B> {
        // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
        // - owned: this thread took the message's node off the queue, which holds it only once;
        // - a value: the message was put there before its node was queued.
        let message = unsafe { self.port.messages().take(cell) };
        self.port.engine().free_post(worker, cell);
        Packet::Posted(message)
    }

    /// Builds a packet of any kind. Returns `None` if it holds nothing for the caller.
    fn unpack(&self, taken: Taken<'p>, worker: &Worker) -> Option<Packet<'p, K, M, B>> {
        let engine = self.port.engine();
        let keys = &self.port.keys().cells;
        match taken {
            Taken::Ready(slot, name, events) => {
                if traces_packets() {
                    engine.trace_packet(name, events);
                }
                Some(self.ready(slot, name_parts(name).0, events))
            }
            Taken::Posted(cell) => Some(self.posted(cell, worker)),
            Taken::Operation(op_index) => self.operation(op_index, worker),
            Taken::Notified(name, events) => {
                let key = {
                    // If the clone panics, this still returns the node, and the packet is made
                    // again.
                    let mut node = Cloning { engine, name, worker, unreported: events };
                    let clone = self.port.clone_key().expect("set before the first such packet");
                    // SAFETY: `clone_with` requires that the caller owns the cell until it returns,
                    // and that the cell holds a value.
                    // - owned: the node is this thread's until `node` is dropped;
                    // - a value: the key is in its cell whenever the slot is not held.
                    let key = unsafe { keys.clone_with(name_parts(name).0, clone) };
                    node.unreported = Events::NONE;
                    key
                };
                if engine.forked() {
                    // Cloning the key has forked, and this is the child.
                    return None;
                }
                if traces_packets() {
                    engine.trace_packet(name, events);
                }
                Some(Packet::Notified(Notified { id: Id(name), events, key }))
            }
            Taken::Removed(name) => {
                // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
                // - owned: the node is this thread's and will not be queued again;
                // - a value: the key is in its cell whenever the slot is not held.
                let key = unsafe { keys.take(name_parts(name).0) };
                engine.free(name);
                Some(Packet::Removed(Id(name), key))
            }
            Taken::Gone(name) => {
                engine.release_number(name);
                // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
                // - owned: the node is this thread's and will not be queued again;
                // - a value: the key is in its cell whenever the slot is not held.
                let key = unsafe { keys.take(name_parts(name).0) };
                engine.free(name);
                drop(key);
                None
            }
        }
    }

    /// Takes the worker's next packet, of any kind.
    ///
    /// The outer `None`: there is none. The inner `None`: it holds nothing for the caller.
    #[inline(never)]
    fn next_other(&self, worker: &Worker, first: Node) -> Option<Option<Packet<'p, K, M, B>>> {
        let engine = self.port.engine();
        if first == NIL {
            // Messages and operations have their own path. On the general path a packet passes
            // through memory.
            match engine.next_without_turn(worker) {
                Some(Taken::Posted(cell)) => return Some(Some(self.posted(cell, worker))),
                Some(Taken::Operation(op_index)) => return Some(self.operation(op_index, worker)),
                _ => {}
            }
        }
        let taken = engine.next(worker, first)?;
        Some(self.unpack(taken, worker))
    }

    /// Clones the key of a node that was taken from the worker's chain and has not had its turn.
    #[inline]
    fn clone_key(&self, index: u32) -> K {
        let clone = self.port.clone_key().expect("set before the first such wait");
        // If the clone panics, this still queues the node.
        let node = Unfinished { engine: self.port.engine(), index, turn: NodeTurn::Check };
        // SAFETY: `clone_with` requires that the caller owns the cell until it returns, and that
        // the cell holds a value.
        // - owned: this thread took the node from its worker's chain, and the node has not had its
        //   turn;
        // - a value: the key is in its cell whenever the slot is not held.
        let key = unsafe { self.port.keys().cells.clone_with(index, clone) };
        std::mem::forget(node);
        key
    }

    /// Takes the worker's next packet, with a clone of its key. Returns what `next_other` returns.
    // Not inlined: otherwise the key's token in the caller would pass through memory.
    #[inline(never)]
    fn next_cloned(&self, worker: &Worker) -> Option<Option<Packet<'p, K, M, B>>> {
        let engine = self.port.engine();
        match engine.next_ready_cloned(worker, |index| self.clone_key(index)) {
            Ok((name, events, key)) => {
                if traces_packets() {
                    engine.trace_packet(name, events);
                }
                Some(Some(Packet::Notified(Notified { id: Id(name), events, key })))
            }
            Err((NIL, _)) if worker.is_empty_handed() => None,
            Err((first, clone)) => self.next_other_cloned(worker, first, clone),
        }
    }

    /// Does what `next_cloned` does, in every case except the common one, a packet of a one-shot
    /// registration.
    ///
    /// If a node was taken whose turn has not come, `first` is that node and `made` the clone of
    /// its key. Otherwise `first` is `NIL`.
    #[inline(never)]
    fn next_other_cloned(
        &self,
        worker: &Worker,
        first: Node,
        mut made: Option<K>,
    ) -> Option<Option<Packet<'p, K, M, B>>> {
        let engine = self.port.engine();
        if first == NIL {
            // As in `next_other`. `made` is a clone of a taken node's key, and none was taken.
            match engine.next_without_turn(worker) {
                Some(Taken::Posted(cell)) => return Some(Some(self.posted(cell, worker))),
                Some(Taken::Operation(op_index)) => return Some(self.operation(op_index, worker)),
                _ => {}
            }
        }
        let mut key = None;
        let taken = engine.next_by(worker, first, |index, slot| {
            let clone = made.take().unwrap_or_else(|| self.clone_key(index));
            if engine.forked() {
                // Cloning the key has forked, and this is the child. The packets of this worker
                // belong to the parent.
                return NodeTurn::Nothing;
            }
            let turn = slot.take_and_park();
            if let NodeTurn::Held(_) | NodeTurn::Cloned(_) = turn {
                key = Some(clone);
            } else {
                discard(engine, index, turn, clone);
            }
            turn
        })?;
        Some(match (taken, key) {
            (Taken::Ready(_, name, events), Some(key)) => {
                if traces_packets() {
                    engine.trace_packet(name, events);
                }
                Some(Packet::Notified(Notified { id: Id(name), events, key }))
            }
            (Taken::Notified(name, events), Some(key)) => {
                engine.cloned(name, Events::NONE, Some(worker));
                if traces_packets() {
                    engine.trace_packet(name, events);
                }
                Some(Packet::Notified(Notified { id: Id(name), events, key }))
            }
            (taken, _) => self.unpack(taken, worker),
        })
    }

    /// Ends the iterator, even if the thread gets another packet later.
    #[inline]
    fn end(&mut self) -> Option<Packet<'p, K, M, B>> {
        self.worker = None;
        None
    }

    /// Waits for the rest of the time. The packets of this wait had nothing to report, because
    /// their registrations were disabled or drained meanwhile.
    #[cold]
    fn wait_on(&mut self) {
        let engine = self.port.engine();
        if engine.forked() {
            self.settled = true;
            return;
        }
        // The thread may have waited on another port since, and so have given up this worker. Or it
        // has this worker for one wait only, and must give it up before it takes another.
        self.worker = None;
        let worker = take_worker(engine);
        let waited =
            engine.wait(&worker, self.scratch, self.room, self.deadline, self.port.store());
        self.begun = worker.progress();
        self.worker = Some(worker);
        self.settled = waited != Waited::Packets;
    }
}

/// A node that needs further work after user code was called. If that code panics, the drop does
/// the work.
struct Unfinished<'e> {
    engine: &'e Engine,
    index: u32,
    /// The turn it had; [`NodeTurn::Check`] if it has had none yet.
    turn: NodeTurn,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        match self.turn {
            NodeTurn::Check | NodeTurn::Removed | NodeTurn::Gone => {
                self.engine.queue_again(self.index)
            }
            NodeTurn::Collect => self.engine.announce_collected(),
            // There is nothing to do, or a packet holds the clone.
            NodeTurn::Nothing | NodeTurn::Held(_) | NodeTurn::Cloned(_) => {}
        }
    }
}

/// Drops a clone that was made for a packet, when the node's turn was something else.
#[cold]
#[inline(never)]
fn discard<K>(engine: &Engine, index: u32, turn: NodeTurn, clone: K) {
    let node = Unfinished { engine, index, turn };
    drop(clone);
    std::mem::forget(node);
}

/// A node whose key is being cloned.
struct Cloning<'e> {
    engine: &'e Engine,
    name: Name,
    worker: &'e Worker,
    /// The events that no packet will report if the clone panics.
    unreported: Events,
}

impl Drop for Cloning<'_> {
    fn drop(&mut self) {
        self.engine.cloned(self.name, self.unreported, Some(self.worker));
    }
}

impl<'p, K, M, B: Buffer> Iterator for Packets<'_, 'p, K, M, B> {
    type Item = Packet<'p, K, M, B>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let engine = self.port.engine();
        if engine.forked() {
            // The packets of this worker belong to the parent.
            return None;
        }
        loop {
            let worker = self.worker.as_ref()?;
            let taken = if self.clones {
                self.next_cloned(worker)
            } else {
                match engine.next_ready(worker) {
                    Ok((index, slot, events)) => {
                        self.settled = true;
                        if traces_packets() {
                            engine.trace_reported(index, events);
                        }
                        return Some(self.ready(slot, index, events));
                    }
                    Err(NIL) if self.settled && worker.is_empty_handed() => return self.end(),
                    Err(first) => self.next_other(worker, first),
                }
            };
            match taken {
                Some(Some(packet)) => {
                    self.settled = true;
                    return Some(packet);
                }
                None if self.settled => return self.end(),
                // Cloning a key has forked, and this is the child.
                _ if engine.forked() => return None,
                Some(None) => {}
                None => self.wait_on(),
            }
        }
    }
}

impl<K, M, B: Buffer> FusedIterator for Packets<'_, '_, K, M, B> {}

impl<K, M, B> Drop for Packets<'_, '_, K, M, B> {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            self.port.engine().return_packets(worker);
        }
    }
}

impl<K, M, B> fmt::Debug for Packets<'_, '_, K, M, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packets").field("room", &self.room).finish_non_exhaustive()
    }
}
