//! Sockets: a persistent edge-triggered registration, and the tasks that wait for it.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use completion_port::{Events, Id, Interest, Persistent, Registration, Source};

use crate::context;
use crate::runtime::Handle;
use crate::shared::Shared;

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

/// The tasks that wait for one direction of a socket.
#[derive(Default)]
struct Waiters {
    /// How many edges there were. A task that has seen an earlier number tries again instead of
    /// waiting, so no edge is lost between its attempt and its wait.
    edges: AtomicU32,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// The task that waits by polling: the last one wins, as for any `poll` function.
    polling: Option<Waker>,
    /// The futures that wait, by number.
    futures: Vec<(u64, Waker)>,
    next: u64,
}

impl Waiters {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let (polling, futures) = {
            let mut waiting = self.lock();
            self.edges.fetch_add(1, SeqCst);
            (waiting.polling.take(), std::mem::take(&mut waiting.futures))
        };
        polling.into_iter().for_each(Waker::wake);
        futures.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// Stores a waker, and returns the one before it if that wakes another task. The caller drops it
/// without a lock, because that may drop the other task and its futures.
pub(crate) fn replace_waker(place: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    if place.as_ref().is_some_and(|old| old.will_wake(waker)) {
        return None;
    }
    place.replace(waker.clone())
}

/// A future's place among those that wait for a direction. Dropped, it waits no more.
struct Place<'s> {
    waiters: &'s Waiters,
    number: Option<u64>,
}

impl Place<'_> {
    /// Waits for the next edge after the number `seen`. Returns false if there was one already.
    fn wait(&mut self, seen: u32, context: &Context<'_>) -> bool {
        let mut waiting = self.waiters.lock();
        if self.waiters.edges.load(SeqCst) != seen {
            return false;
        }
        let number = *self.number.get_or_insert_with(|| {
            waiting.next += 1;
            waiting.next
        });
        let old = match waiting.futures.iter_mut().find(|(it, _)| *it == number) {
            Some((_, waker)) if waker.will_wake(context.waker()) => None,
            Some((_, waker)) => Some(std::mem::replace(waker, context.waker().clone())),
            None => {
                waiting.futures.push((number, context.waker().clone()));
                None
            }
        };
        drop(waiting);
        drop(old);
        true
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = {
                let mut waiting = self.waiters.lock();
                let place = waiting.futures.iter().position(|(it, _)| *it == number);
                place.map(|place| waiting.futures.swap_remove(place))
            };
            drop(waker);
        }
    }
}

/// A non-blocking socket, registered with the runtime's port once it has to wait.
pub(crate) struct Io<S: Source> {
    /// `None` once it was taken out.
    socket: Option<S>,
    state: Arc<SocketState>,
    shared: Arc<Shared>,
    id: OnceLock<Id>,
    /// Which directions the registration reports: 1 read, 2 write.
    watched: AtomicU32,
    /// Held while the registration is made or changed.
    registering: Mutex<()>,
}

impl<S: Source> Io<S> {
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
            watched: AtomicU32::new(0),
            registering: Mutex::new(()),
        }
    }

    pub(crate) fn get(&self) -> &S {
        self.socket.as_ref().expect("it is taken out by value only")
    }

    /// Ends the registration and returns the socket.
    pub(crate) fn into_inner(mut self) -> S {
        self.unregister();
        self.socket.take().expect("it is taken out once")
    }

    fn unregister(&self) {
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
            let seen = waiters.edges.load(SeqCst);
            match attempt(self.get()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => return Poll::Ready(result),
            }
            if self.watch(direction)? {
                // The socket may have become ready before it was watched.
                continue;
            }
            let mut waiting = waiters.lock();
            if waiters.edges.load(SeqCst) == seen {
                let old = replace_waker(&mut waiting.polling, context.waker());
                drop(waiting);
                drop(old);
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
        let mut place = Place { waiters, number: None };
        std::future::poll_fn(move |context| {
            loop {
                let seen = waiters.edges.load(SeqCst);
                match attempt(self.get()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    result => return Poll::Ready(result),
                }
                if self.watch(direction)? {
                    continue;
                }
                if place.wait(seen, context) {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Makes the port report this direction. Returns whether it did not before.
    fn watch(&self, direction: Direction) -> io::Result<bool> {
        let bit = match direction {
            Direction::Read => 1,
            Direction::Write => 2,
        };
        if !self.shared.is_open() {
            return Err(io::Error::other("the runtime of this socket has ended"));
        }
        if self.watched.load(SeqCst) & bit != 0 {
            return Ok(false);
        }
        let _registering = self.registering.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = self.watched.load(SeqCst) | bit;
        let mut interest = Interest::HANGUP;
        if watched & 1 != 0 {
            interest |= Interest::IN;
        }
        if watched & 2 != 0 {
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
            }
        }
        self.watched.store(watched, SeqCst);
        Ok(true)
    }
}

impl<S: Source> Drop for Io<S> {
    fn drop(&mut self) {
        if self.socket.is_some() {
            self.unregister();
        }
    }
}

/// Returns the error of calls that need a runtime.
pub(crate) fn no_runtime() -> io::Error {
    io::Error::other("no runtime: call this in a task, in `block_on`, or after `Handle::enter`")
}
