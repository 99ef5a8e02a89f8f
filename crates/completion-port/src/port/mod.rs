//! The port and its public calls.

pub(crate) mod batch;
mod builder;
pub(crate) mod changes;
pub(crate) mod current;
mod datagrams;
pub(crate) mod deadline;
pub(crate) mod operation;
pub(crate) mod packets;
mod post;
pub mod raw;
mod register;
pub(crate) mod registration;
pub(crate) mod removal;
mod shutdown;
mod stats;
pub(crate) mod token;
mod wait;

pub use builder::PortBuilder;
pub use stats::ThreadStats;

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::engine::{DeferredWork, Engine};
use crate::memory::cells::{Cells, CellsApart, Keys};
use crate::port::operation::OpData;
use crate::port::operation::message::MessagesOf;
use crate::port::raw::Raw;
use crate::sync::yield_now;
use crate::types::source::KernelId;

/// An I/O completion port: one queue of packets that any number of threads wait on, fed by
/// registered sockets and posted messages.
///
/// `K` is the type of the keys, which stand for the registered descriptors. `M` is the type of the
/// messages, by default `()`. The port owns keys and messages while it holds them, and drops those
/// that remain when it is dropped.
///
/// # Threads
///
/// Any thread may call any method at any time. Of the threads that wait, at most as many as the
/// *concurrency value* run with packets simultaneously. The thread that waited last is released
/// first.
///
/// A thread counts as running from the moment it gets a packet, or its wait times out, until it
/// waits again, exits, or sleeps in the kernel. The port learns immediately that a thread waits
/// again or exits. It learns that a thread sleeps when the thread announces that with
/// [`Port::blocking`], or else within about two milliseconds if another thread is waiting.
///
/// # Platform notes
///
/// On Windows, NetBSD and OpenBSD the port learns only from [`Port::blocking`] that a thread
/// sleeps.
///
/// Linux: the port uses one `epoll` set, with each descriptor in it once, edge-triggered (see
/// [epoll(7)](https://man7.org/linux/man-pages/man7/epoll.7.html)). In a forked child every call is
/// refused with [`ErrorKind::Forked`](crate::ErrorKind::Forked), and dropping the port only closes
/// its descriptors.
///
/// # Examples
///
/// ```
/// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
/// use std::io::Write;
/// use std::net::{TcpListener, TcpStream};
///
/// let port: Port<TcpStream, &str> = Port::builder().build()?;
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut near = TcpStream::connect(listener.local_addr()?)?;
/// let (far, _) = listener.accept()?;
/// port.register(Registration::owned(far, Interest::IN, OneShot::Level))?;
/// port.post("hello")?;
/// near.write_all(b"x")?;
///
/// let mut batch = Batch::new();
/// let (mut posted, mut ready) = (0, 0);
/// while posted + ready < 2 {
///     for packet in port.wait(&mut batch, None)? {
///         match packet {
///             Packet::Posted(message) => posted += usize::from(message == "hello"),
///             Packet::Ready(token) => ready += usize::from(token.events().is_in()),
///             _ => {}
///         }
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Port<K, M = (), B = Vec<u8>> {
    store: Store<K, B>,
    messages: CellsApart<M>,
    messages_of: MessagesOf<M, B>,
}

/// The keys of a port, and the engine, which tracks the owner of each.
pub(crate) struct Store<K, B> {
    pub(crate) engine: OwnedEngine,
    /// The kernel that the engine's descriptor numbers belong to.
    pub(crate) kernel: KernelId,
    pub(crate) keys: Keys<K>,
    /// Operations in flight, by op index.
    pub(crate) operations: Cells<OpData<B>>,
    /// Runs deferred tasks. Set when the first task starts, so that ports without tasks do not
    /// require buffers to be tasks.
    pub(crate) runs_deferred: OnceLock<fn(&Self) -> bool>,
}

impl<K, B> Store<K, B> {
    fn new(engine: Arc<Engine>, kernel: KernelId) -> Self {
        Self {
            engine: OwnedEngine::new(engine),
            kernel,
            keys: Keys::new(),
            operations: Cells::new(),
            runs_deferred: OnceLock::new(),
        }
    }
}

impl<K, B> DeferredWork for Store<K, B> {
    fn run_deferred(&self) -> bool {
        self.runs_deferred.get().is_some_and(|run_deferred| run_deferred(self))
    }
}

/// A port's share of its engine. Dropping it waits until no other thread has a share, so that the
/// engine ends here and not later in another thread.
pub(crate) struct OwnedEngine(ManuallyDrop<Arc<Engine>>);

impl OwnedEngine {
    fn new(engine: Arc<Engine>) -> Self {
        Self(ManuallyDrop::new(engine))
    }
}

impl Deref for OwnedEngine {
    type Target = Arc<Engine>;
    #[inline]
    fn deref(&self) -> &Arc<Engine> {
        &self.0
    }
}

impl Drop for OwnedEngine {
    fn drop(&mut self) {
        // SAFETY: `ManuallyDrop::take` requires that the value is not used again.
        // - `self` is being dropped, and `ManuallyDrop` does not drop the value.
        let mut engine = unsafe { ManuallyDrop::take(&mut self.0) };
        // A thread that is giving up its worker, or a port that asks about a descriptor, may keep
        // the engine for a few instructions. Checking for such a thread first and then dropping
        // this share would be a race: a thread that takes its share in between could become the
        // last owner.
        while let Err(shared) = Arc::try_unwrap(engine) {
            if shared.forked() {
                break;
            }
            engine = shared;
            yield_now();
        }
    }
}

impl<K, M, B> Port<K, M, B> {
    /// Returns how many threads may run with packets simultaneously.
    #[must_use]
    pub fn concurrency(&self) -> usize {
        self.store.engine.limit()
    }

    /// Returns the calls for bindings to other languages, where handlers keep no token and know
    /// descriptors by number.
    #[inline]
    #[must_use]
    pub fn raw(&self) -> Raw<'_, K, M, B> {
        Raw::new(self)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.store.engine
    }

    pub(crate) fn keys(&self) -> &Keys<K> {
        &self.store.keys
    }

    pub(crate) fn store(&self) -> &Store<K, B> {
        &self.store
    }

    pub(crate) fn messages(&self) -> &CellsApart<M> {
        &self.messages
    }

    pub(crate) fn clone_key(&self) -> Option<fn(&K) -> K> {
        self.store.keys.clone.get().copied()
    }
}

impl<K, M, B> fmt::Debug for Port<K, M, B> {
    /// Writes the slots, the threads and the queue, to diagnose stalls. `docs/STALLS.md` explains
    /// each line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.engine.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::Shutdown;

    use super::Port;
    use crate::engine::name_parts;
    use crate::port::batch::Batch;
    use crate::port::registration::{Id, Registration};
    use crate::sim::Kernel;
    use crate::state::facts::Facts;
    use crate::state::slot::GENERATIONS;
    use crate::types::error::ErrorKind;
    use crate::types::interest::{Interest, OneShot};

    /// A slot that has used all its names is not assigned again, and everything else continues.
    #[test]
    fn a_slot_without_a_name_left_is_retired() {
        const NAMES: u32 = 3;
        let kernel = Kernel::new();
        let port: Port<()> = Port::builder().build_simulated(&kernel).unwrap();
        let socket = kernel.udp_bound().unwrap();
        let register =
            || port.register(Registration::new(&socket, (), Interest::IN, OneShot::Level)).unwrap();
        let first = register();
        port.remove_and_wait(first, None).unwrap();
        let mut names = HashSet::from([first]);
        // As if it had used all names but the last few.
        let engine = port.engine();
        let last = engine.first_generation() + GENERATIONS - NAMES;
        engine.slot(0).begin_with(last % GENERATIONS);
        let mut slots = Vec::new();
        for _ in 0..2 * NAMES {
            let id = register();
            assert!(names.insert(id), "{id:?} was given out before");
            for name in &names {
                let known = if *name == id { Ok(()) } else { Err(ErrorKind::NotRegistered) };
                assert_eq!(port.disable(*name).map_err(|error| error.kind()), known);
            }
            slots.push(name_parts(id.0).0);
            assert_eq!(port.stats().registered, 1);
            port.remove_and_wait(id, None).unwrap();
        }
        assert_eq!(slots, [0, 0, 0, 1, 1, 1]);
        assert_eq!(port.stats().registered, 0);
        // A port whose slots are retired can still shut down.
        port.shutdown().unwrap();
        let closed = port.wait(&mut Batch::new(), None).unwrap_err();
        assert_eq!(closed.kind(), ErrorKind::Closed);
    }

    /// A registration ends after the kernel's answer, and another socket gets its number. That
    /// socket must not be asked: a query can take its error.
    fn asks_nothing_after<K>(kernel: &Kernel, port: &Port<K>, id: Id, end: impl FnOnce()) {
        let engine = port.engine();
        let slot = engine.slot(name_parts(id.0).0);
        let (word, number) = (slot.word(), slot.descriptor());
        let ask = || engine.ask_more(number, id.0, word, Facts::IN | Facts::RDHUP);
        let asked = || (kernel.calls().own_end, kernel.calls().unread);
        let before = asked();
        assert!(ask().is_some());
        let now = asked();
        assert_eq!(now, (before.0 + 1, before.1 + 1));
        end();
        let next = kernel.tcp_fresh().unwrap();
        assert_eq!(next.number(), number, "the number is not in use again");
        assert!(ask().is_none());
        assert_eq!(asked(), now);
    }

    #[test]
    fn a_socket_that_its_registration_returned_is_not_asked() {
        let kernel = Kernel::new();
        let port = Port::builder().build_simulated(&kernel).unwrap();
        let (socket, _peer) = kernel.tcp_pair().unwrap();
        socket.shutdown(Shutdown::Read).unwrap();
        let id = port.register(Registration::owned(socket, Interest::IN, OneShot::Level)).unwrap();
        asks_nothing_after(&kernel, &port, id, || drop(port.remove_and_wait(id, None).unwrap()));
    }

    #[test]
    fn a_borrowed_socket_that_was_closed_is_not_asked() {
        let kernel = Kernel::new();
        let port = Port::builder().build_simulated(&kernel).unwrap();
        let (socket, _peer) = kernel.tcp_pair().unwrap();
        socket.shutdown(Shutdown::Read).unwrap();
        let registration = Registration::new(&socket, (), Interest::IN, OneShot::Level);
        let id = port.register(registration).unwrap();
        asks_nothing_after(&kernel, &port, id, || drop(socket));
    }
}
