//! Sockets: a persistent edge-triggered registration, and the tasks that wait for it.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::{Context, Poll};

use completion_port::{Events, Id, Interest, Persistent, Registration, Source};

use crate::activity::{self, AsRawSource, Label, SocketName, Wait};
use crate::context;
use crate::runtime::Handle;
use crate::shared::Shared;
use crate::state::waiters::Waiters;
use crate::sync::{AtomicU8, AtomicU32, Mutex};

/// The bits of the watched directions.
const READ: u32 = 1;
const WRITE: u32 = 2;

/// What is known of short reads: nothing yet, that they leave nothing, or that they may leave
/// something. Of a TCP stream it may be left to ask whether a layer lies above it.
const UNKNOWN: u8 = 0;
const DRAINS: u8 = 1;
const KEEPS: u8 = 2;
const TCP: u8 = 3;

/// A direction in which tasks wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// The tasks that wait for a socket. The key of its registration.
#[derive(Default)]
pub(crate) struct SocketState {
    read: Waiters,
    write: Waiters,
}

impl SocketState {
    fn waiters(&self, direction: Direction) -> &Waiters {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// Wakes all tasks.
    pub(crate) fn wake_all(&self) {
        self.read.wake();
        self.write.wake();
    }

    /// Wakes the tasks for which these events are.
    pub(crate) fn report(&self, events: Events) {
        let ends = events.is_hangup() || events.is_err();
        if events.is_in() || ends {
            self.read.wake();
        }
        if events.is_out() || ends {
            self.write.wake();
        }
    }
}

/// A non-blocking socket, registered with the runtime's port once it has to wait.
pub(crate) struct Io<S: Source + AsRawSource> {
    /// `None` once it was taken out.
    socket: Option<S>,
    state: Arc<SocketState>,
    shared: Arc<Shared>,
    id: OnceLock<Id>,
    /// The socket in the runtime's list, once it is registered.
    name: OnceLock<SocketName>,
    label: Label,
    /// Which directions the registration reports: [`READ`] and [`WRITE`].
    watched: AtomicU32,
    /// Whether a short read leaves nothing of such a socket: [`UNKNOWN`], [`TCP`], [`DRAINS`] or
    /// [`KEEPS`].
    short_reads: AtomicU8,
    /// Held while the registration is made or changed.
    registering: Mutex<()>,
}

impl<S: Source + AsRawSource> Io<S> {
    /// Wraps a non-blocking socket. The current runtime will watch it.
    pub(crate) fn new(socket: S) -> io::Result<Self> {
        let Some(handle) = context::current() else { return Err(no_runtime()) };
        Ok(Self::of(socket, &handle))
    }

    fn of(socket: S, handle: &Handle) -> Self {
        Self {
            socket: Some(socket),
            state: Arc::default(),
            shared: Arc::clone(handle.shared()),
            id: OnceLock::new(),
            name: OnceLock::new(),
            label: Label::None,
            watched: AtomicU32::new(0),
            short_reads: AtomicU8::new(UNKNOWN),
            registering: Mutex::new(()),
        }
    }

    /// Labels the socket with something that the system does not know.
    pub(crate) fn labelled(mut self, label: Label) -> Self {
        self.label = label;
        self
    }

    /// Notes that a listener has accepted the socket. It speaks the protocol of the listener, which
    /// is asked only once.
    pub(crate) fn accepted_by<L: Source + AsRawSource>(self, listener: &Io<L>) -> Self {
        if listener.is_tcp() {
            self.short_reads.store(TCP, SeqCst);
        }
        self
    }

    /// Whether the socket, of which nothing is read, speaks TCP.
    fn is_tcp(&self) -> bool {
        if self.short_reads.load(SeqCst) == UNKNOWN {
            let asked = if is_tcp(self.get()) { TCP } else { KEEPS };
            self.short_reads.store(asked, SeqCst);
        }
        self.short_reads.load(SeqCst) == TCP
    }

    /// Notes that the current task waits.
    fn note(&self, direction: Direction) {
        if let Some(name) = self.name.get() {
            activity::note(match direction {
                Direction::Read => Wait::Read(*name),
                Direction::Write => Wait::Write(*name),
            });
        }
    }

    pub(crate) fn get(&self) -> &S {
        self.socket.as_ref().expect("it is taken out by value only")
    }

    /// Shuts down one or both directions by `call`. The tasks that wait for them try again: not
    /// every system reports what its own process has shut down.
    pub(crate) fn shutdown(
        &self,
        how: Shutdown,
        call: impl FnOnce(&S, Shutdown) -> io::Result<()>,
    ) -> io::Result<()> {
        if how != Shutdown::Write {
            // From now on, a read returns the bytes that are left, and then 0, without an edge.
            self.short_reads.store(KEEPS, SeqCst);
        }
        call(self.get(), how)?;
        if how != Shutdown::Write {
            self.state.read.wake();
        }
        if how != Shutdown::Read {
            self.state.write.wake();
        }
        Ok(())
    }

    /// Ends the registration and returns the socket.
    pub(crate) fn into_inner(mut self) -> S {
        self.unregister();
        self.socket.take().expect("it is taken out once")
    }

    fn unregister(&self) {
        // Before the socket is closed or given away: a dump uses it while it is in the list.
        if let Some(name) = self.name.get() {
            self.shared.sockets.remove(*name);
        }
        if let Some(id) = self.id.get() {
            // It fails if the port was closed, and then the registration has ended. If a thread
            // handles its packet, one more packet returns the key.
            drop(self.shared.port.remove_now(*id));
        }
    }

    /// Calls `attempt` until it no longer fails with `WouldBlock`. The task that polled last is
    /// woken.
    pub(crate) fn poll<T>(
        &self,
        direction: Direction,
        context: &Context<'_>,
        mut attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let waiters = self.state.waiters(direction);
        loop {
            let seen = waiters.edges();
            if self.must_try(seen) {
                match attempt(self.get()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    result => return Poll::Ready(result),
                }
            }
            // If this begins to watch the socket, the port reports what holds then.
            self.watch(direction)?;
            if waiters.poll(seen, context.waker()) {
                self.note(direction);
                return Poll::Pending;
            }
        }
    }

    /// Calls `attempt` until it no longer fails with `WouldBlock`. Any number of tasks may wait.
    pub(crate) async fn wait<T>(
        &self,
        direction: Direction,
        mut attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        let waiters = self.state.waiters(direction);
        let mut place = waiters.place();
        std::future::poll_fn(move |context| {
            loop {
                let seen = waiters.edges();
                if self.must_try(seen) {
                    match attempt(self.get()) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                        result => return Poll::Ready(result),
                    }
                }
                self.watch(direction)?;
                if place.wait(seen, context.waker()) {
                    self.note(direction);
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Reads by `read`, which has this much room, and notes if that has taken everything.
    pub(crate) fn receive(
        &self,
        room: usize,
        read: impl FnOnce(&S) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.take(read, |received| 0 < *received && *received < room && self.drains())
    }

    /// Takes what has arrived by `take`, and notes if `is_all` says that nothing is left of what the
    /// port has reported.
    pub(crate) fn take<T>(
        &self,
        take: impl FnOnce(&S) -> io::Result<T>,
        is_all: impl FnOnce(&T) -> bool,
    ) -> io::Result<T> {
        let seen = self.state.read.edges();
        let taken = take(self.get())?;
        if is_all(&taken) && self.reports_more() {
            self.state.read.note_drained(seen);
        }
        Ok(taken)
    }

    /// Whether the port reports what arrives after a read that has taken everything.
    fn reports_more(&self) -> bool {
        let is_drained = |id| self.shared.port.is_drained_by_short_read(id);
        // Once it is watched, the port reports what holds then.
        self.watched.load(SeqCst) & READ == 0 || self.id.get().copied().is_some_and(is_drained)
    }

    /// Whether a short read leaves nothing of such a socket.
    fn drains(&self) -> bool {
        let known = self.short_reads.load(SeqCst);
        if matches!(known, DRAINS | KEEPS) {
            return known == DRAINS;
        }
        let is_plain = (known == TCP || is_tcp(self.get())) && !has_layer(self.get());
        let asked = if is_plain { DRAINS } else { KEEPS };
        // Another thread may have shut the reading half meanwhile.
        self.short_reads.compare_exchange(known, asked, SeqCst, SeqCst).is_ok() && is_plain
    }

    /// Returns the state of the edges of a direction. A caller reads this before an attempt, for
    /// [`Io::next_edge`].
    #[cfg(feature = "quinn")]
    pub(crate) fn edges(&self, direction: Direction) -> u32 {
        self.state.waiters(direction).edges()
    }

    /// Waits for the next edge after the state `seen`. Any number of tasks may wait. If the
    /// direction was not watched yet, it may have become ready before, and this does not wait.
    #[cfg(feature = "quinn")]
    pub(crate) async fn next_edge(&self, direction: Direction, seen: u32) -> io::Result<()> {
        if self.watch(direction)? {
            return Ok(());
        }
        let mut place = self.state.waiters(direction).place();
        std::future::poll_fn(move |context| {
            if place.wait(seen, context.waker()) {
                self.note(direction);
                return Poll::Pending;
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Whether an attempt may succeed, after the state `seen` of the edges. The port of a runtime
    /// that ends reports no more edges.
    fn must_try(&self, seen: u32) -> bool {
        !Waiters::is_drained(seen) || self.shared.is_closed()
    }

    /// Makes the port report this direction. Returns whether this is new.
    fn watch(&self, direction: Direction) -> io::Result<bool> {
        let bit = match direction {
            Direction::Read => READ,
            Direction::Write => WRITE,
        };
        if self.shared.is_closed() {
            return Err(io::Error::other("the runtime of this socket has ended"));
        }
        if self.watched.load(SeqCst) & bit != 0 {
            return Ok(false);
        }
        let _registering = self.registering.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = self.watched.load(SeqCst) | bit;
        // IN reports the peer's end as well.
        let mut interest = Interest::NONE;
        if watched & READ != 0 {
            interest |= Interest::IN;
        }
        if watched & WRITE != 0 {
            interest |= Interest::OUT;
        }
        let port = &self.shared.port;
        match self.id.get() {
            Some(id) => port.enable(*id, interest, Persistent::Edge).map_err(io::Error::from)?,
            None => {
                let key = Arc::clone(&self.state);
                let source = self.get();
                let registration = Registration::new(source, key, interest, Persistent::Edge);
                let id = port
                    .register(registration)
                    .map_err(|refused| io::Error::from(refused.error()))?;
                let _ = self.id.set(id);
                let _ = self.name.set(self.shared.sockets.enter(source, self.label));
            }
        }
        self.watched.store(watched, SeqCst);
        Ok(true)
    }
}

impl<S: Source + AsRawSource + std::fmt::Debug> std::fmt::Debug for Io<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

impl<S: Source + AsRawSource> Drop for Io<S> {
    fn drop(&mut self) {
        if self.socket.is_some() {
            self.unregister();
        }
    }
}

/// Reads an option of a socket, or its first bytes. Returns how many there are.
#[cfg(target_os = "linux")]
fn option(socket: &impl AsRawSource, level: i32, name: i32, value: &mut [u8]) -> Option<u32> {
    let mut len = libc::socklen_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: getsockopt(2) writes at most `len` bytes at one pointer, and their number at the
    // other.
    // - valid for writes: both are borrowed meanwhile, and `len` is the length of the slice;
    // - it reads neither.
    let done = unsafe {
        libc::getsockopt(socket.raw(), level, name, value.as_mut_ptr().cast(), &raw mut len)
    };
    (done == 0).then_some(len)
}

/// Whether a socket speaks TCP, and not a protocol above it such as MPTCP.
#[cfg(target_os = "linux")]
fn is_tcp(socket: &impl AsRawSource) -> bool {
    let mut protocol = [0; 4];
    option(socket, libc::SOL_SOCKET, libc::SO_PROTOCOL, &mut protocol).is_some()
        && i32::from_ne_bytes(protocol) == libc::IPPROTO_TCP
}

/// Whether a layer of the kernel, such as its TLS, lies above a TCP stream.
#[cfg(target_os = "linux")]
fn has_layer(socket: &impl AsRawSource) -> bool {
    // Without a layer, its name is empty, or the system knows none.
    option(socket, libc::IPPROTO_TCP, libc::TCP_ULP, &mut [0; 16]).is_some_and(|len| len > 0)
}

/// The port promises nothing of short reads elsewhere.
#[cfg(not(target_os = "linux"))]
fn is_tcp(_: &impl AsRawSource) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn has_layer(_: &impl AsRawSource) -> bool {
    false
}

/// Returns the error of calls that need a runtime.
pub(crate) fn no_runtime() -> io::Error {
    io::Error::other("no runtime: call this in a task, in `block_on`, or after `Handle::enter`")
}
