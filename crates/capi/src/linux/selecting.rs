//! `select` with the reference's sets: a count and an array of sockets.
//!
//! poll(2) does the waiting. It keeps waiting for a socket that another thread closes, so `closesocket` notifies the waits
//! that contain the socket's number.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libc::{pollfd, timeval};

use crate::errors::{code, guarded, set_last};
use crate::linux::numbers::{self, Number};
use crate::linux::process::Own;
use crate::linux::{descriptors, memory};

const READ: u8 = 1;
const WRITE: u8 = 2;
const EXCEPT: u8 = 4;

/// A socket in at least one set: the sets that watch it, and the sets that report it.
#[derive(Clone, Copy)]
struct Watched {
    descriptor: RawFd,
    wanted: u8,
    ready: u8,
}

/// One of the three sets as the program passes it: its `fd_set`, which begins with the count.
struct Given {
    set: *mut u32,
    sort: u8,
    sockets: Vec<RawFd>,
}

/// Returns the address of a socket in a set. The first one follows the count, aligned as in an array.
fn place_in(set: *mut u32, place: usize) -> *mut usize {
    set.cast::<usize>().wrapping_add(1 + place)
}

impl Given {
    /// # Safety
    ///
    /// `set` is null or points to a count and that many sockets.
    unsafe fn new(set: *mut u32, sort: u8) -> Result<Self, u32> {
        let mut sockets = Vec::new();
        if !set.is_null() && !memory::may_be(set) {
            return Err(code::WSAEFAULT);
        }
        if !set.is_null() {
            // SAFETY: reading through a raw pointer demands that it is valid.
            // - the caller guarantees it for a non-null one.
            let count = unsafe { set.read() } as usize;
            sockets.try_reserve_exact(count).map_err(|_| code::WSAENOBUFS)?;
            for place in 0..count {
                // SAFETY: as above: the caller guarantees that there are that many sockets.
                let socket = unsafe { place_in(set, place).read() };
                sockets.push(RawFd::try_from(socket).map_err(|_| code::WSAENOTSOCK)?);
            }
        }
        Ok(Self { set, sort, sockets })
    }

    /// Reduces the set to its ready sockets, and returns their number. `has_some` means that the program has passed the same
    /// set for another one, which has already been reported: then each socket is listed once.
    ///
    /// # Safety
    ///
    /// As for `new`, and nothing else uses the set.
    unsafe fn report(&self, watched: &[Watched], has_some: bool) -> u32 {
        if self.set.is_null() {
            return 0;
        }
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - the caller guarantees it.
        let had = if has_some { unsafe { self.set.read() } } else { 0 };
        // SAFETY: as above: the caller guarantees that the set has room for as many as it had at first.
        let has = |place: u32| unsafe { place_in(self.set, place as usize).read() };
        let mut count = had;
        for &socket in &self.sockets {
            let place = watched.binary_search_by_key(&socket, |it| it.descriptor);
            let is_ready = place.is_ok_and(|place| watched[place].ready & self.sort != 0);
            let socket = usize::try_from(socket).unwrap_or(usize::MAX);
            if is_ready && !(0..had).any(|place| has(place) == socket) {
                // SAFETY: writing through a raw pointer demands that it is valid.
                // - as above: no more are written than the set had.
                unsafe { place_in(self.set, count as usize).write(socket) };
                count += 1;
            }
        }
        // SAFETY: as above.
        unsafe { self.set.write(count) };
        count - had
    }
}

/// The sockets of all sets, without duplicates, ordered by number.
fn merged(given: &[Given; 3]) -> Vec<Watched> {
    let all = given.iter().flat_map(|given| {
        let watched = |&descriptor: &RawFd| Watched { descriptor, wanted: given.sort, ready: 0 };
        given.sockets.iter().map(watched)
    });
    let mut all: Vec<_> = all.collect();
    all.sort_unstable_by_key(|it| it.descriptor);
    all.dedup_by(|next, kept| {
        let is_same = next.descriptor == kept.descriptor;
        if is_same {
            kept.wanted |= next.wanted;
        }
        is_same
    });
    all
}

/// Returns the current events of one socket.
fn look(descriptor: RawFd, events: i16) -> i16 {
    let mut asked = pollfd { fd: descriptor, events, revents: 0 };
    // SAFETY: poll(2) reads and writes that many entries.
    // - valid: there is one.
    unsafe { libc::poll(&raw mut asked, 1, 0) };
    asked.revents
}

/// Whether the socket reports a hang-up because the program's connect failed.
fn has_failed(descriptor: RawFd) -> bool {
    let past = numbers::find(descriptor).map(|number| number.lock().past(descriptor));
    past.is_some_and(|past| past.was_refused || past.is_connecting)
        && !descriptors::was_connected(descriptor)
}

impl Watched {
    fn events(&self) -> i16 {
        let sorts = [
            (READ, libc::POLLIN | libc::POLLRDHUP),
            (WRITE, libc::POLLOUT),
            (EXCEPT, libc::POLLPRI),
        ];
        let wanted = sorts.iter().filter(|(sort, _)| self.wanted & sort != 0);
        wanted.fold(0, |events, (_, event)| events | event)
    }

    /// Returns the sets that must report a socket with these events.
    fn ready_by(&self, told: i16) -> u8 {
        let is_over = told & libc::POLLHUP != 0;
        if is_over && (told | look(self.descriptor, libc::POLLRDHUP)) & libc::POLLRDHUP == 0 {
            // A stream that was never connected: the system reports a hang-up and writability.
            return 0;
        }
        if is_over && has_failed(self.descriptor) {
            return self.wanted & EXCEPT;
        }
        let mut ready = 0;
        if told & (libc::POLLIN | libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0 {
            ready |= READ;
        }
        if told & libc::POLLOUT != 0 {
            ready |= WRITE;
        }
        if told & libc::POLLPRI != 0 && !descriptors::has_urgent_inline(self.descriptor) {
            ready |= EXCEPT;
        }
        ready & self.wanted
    }
}

/// A wait in progress.
struct Waiter {
    /// The descriptors it waits for, ordered.
    descriptors: Vec<RawFd>,
    /// Those that have been closed meanwhile.
    closed: Mutex<Vec<RawFd>>,
    /// Becomes readable when one is closed. `None` if there was no free descriptor.
    bell: Option<OwnedFd>,
}

/// The waits, and what threads are closing.
#[derive(Default)]
struct Waits {
    waiters: Vec<Arc<Waiter>>,
    /// Each stays here until close(2) has returned, so that no wait begins in between without knowing it.
    closing: Vec<RawFd>,
}

type Waiters = Mutex<Waits>;

static WAITERS: Own<Waiters> = Own::new(begin_child);

fn waits() -> MutexGuard<'static, Waits> {
    locked(WAITERS.get(|_| Box::default()))
}

extern "C" fn begin_child() {
    WAITERS.pass_on();
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `close`, which closes a socket, and notifies the waits that contain it.
pub(crate) fn while_closing<R>(descriptor: RawFd, close: impl FnOnce() -> R) -> R {
    let mut all = waits();
    all.closing.push(descriptor);
    for waiter in &all.waiters {
        if waiter.descriptors.binary_search(&descriptor).is_ok() {
            waiter.note(descriptor);
        }
    }
    drop(all);
    let closed = close();
    let mut all = waits();
    if let Some(place) = all.closing.iter().position(|it| *it == descriptor) {
        all.closing.swap_remove(place);
    }
    closed
}

impl Waiter {
    fn begin(watched: &[Watched]) -> Arc<Self> {
        // SAFETY: eventfd(2) demands nothing of memory.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        // SAFETY: `from_raw_fd` demands a descriptor that has no other owner.
        // - the call has just created it.
        let bell = (bell >= 0).then(|| unsafe { OwnedFd::from_raw_fd(bell) });
        let descriptors: Vec<_> = watched.iter().map(|it| it.descriptor).collect();
        let waiter = Arc::new(Self { descriptors, closed: Mutex::default(), bell });
        let mut all = waits();
        for descriptor in &all.closing {
            if waiter.descriptors.binary_search(descriptor).is_ok() {
                waiter.note(*descriptor);
            }
        }
        all.waiters.push(Arc::clone(&waiter));
        waiter
    }

    /// Notes that a socket of the wait is closed.
    fn note(&self, descriptor: RawFd) {
        locked(&self.closed).push(descriptor);
        if let Some(bell) = &self.bell {
            // An eventfd counts up to 2^64 of these.
            // SAFETY: eventfd_write(3) demands nothing of memory.
            unsafe { libc::eventfd_write(bell.as_raw_fd(), 1) };
        }
    }

    fn end(self: &Arc<Self>) {
        waits().waiters.retain(|it| !Arc::ptr_eq(it, self));
    }

    /// How the wait ends when sockets were closed. A socket watched for reading is reported as readable, as on the reference.
    /// Returns `None` if none was closed.
    fn outcome(&self, watched: &mut [Watched]) -> Option<Result<(), u32>> {
        let closed = locked(&self.closed);
        for descriptor in closed.iter() {
            let place = watched.binary_search_by_key(descriptor, |it| it.descriptor);
            let Some(it) = place.ok().and_then(|place| watched.get_mut(place)) else { continue };
            if it.wanted & READ == 0 {
                return Some(Err(code::WSAENOTSOCK));
            }
            it.ready |= READ;
        }
        (!closed.is_empty()).then_some(Ok(()))
    }
}

/// The interval for checking events that poll(2) would report again and again. Without an eventfd, also the interval for
/// checking which sockets were closed.
const LOOK: Duration = Duration::from_millis(20);

/// The array for poll(2), with the sockets in the same order. The eventfd comes last.
struct Polled {
    asked: Vec<pollfd>,
    /// Some sockets have events that no set reports.
    has_parked: bool,
}

impl Polled {
    fn new(watched: &[Watched]) -> Self {
        let asked = |it: &Watched| pollfd { fd: it.descriptor, events: it.events(), revents: 0 };
        let bell = pollfd { fd: -1, events: libc::POLLIN, revents: 0 };
        let asked = watched.iter().map(asked).chain([bell]).collect();
        Self { asked, has_parked: false }
    }

    /// Waits until this time at most. Fails if one of the descriptors is no longer a socket.
    fn wait(&mut self, watched: &mut [Watched], until: Option<Instant>) -> Result<bool, u32> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = match left {
            Some(left) if self.has_parked => Some(left.min(LOOK)),
            None if self.has_parked => Some(LOOK),
            left => left,
        };
        let time = left.map(|left| libc::timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        let count = self.asked.len() as libc::nfds_t;
        // SAFETY: ppoll(2) reads and writes that many entries, and reads a time unless that is null.
        // - valid: they are the vector's; the time is a local.
        let told = unsafe { libc::ppoll(self.asked.as_mut_ptr(), count, time, ptr::null()) };
        if told < 0 {
            let errno = std::io::Error::last_os_error().raw_os_error();
            return if errno == Some(libc::EINTR) { Ok(false) } else { Err(code::WSAENOBUFS) };
        }
        self.sort(watched)
    }

    /// Returns whether any socket is ready. Sockets with other events are left out until the next check.
    fn sort(&mut self, watched: &mut [Watched]) -> Result<bool, u32> {
        let (mut has_ready, mut has_parked) = (false, false);
        for (it, asked) in watched.iter_mut().zip(&mut self.asked) {
            if asked.fd < 0 {
                asked.fd = it.descriptor;
                continue;
            }
            if asked.revents & libc::POLLNVAL != 0 {
                return Err(code::WSAENOTSOCK);
            }
            if asked.revents == 0 {
                continue;
            }
            it.ready = it.ready_by(asked.revents);
            has_ready |= it.ready != 0;
            if it.ready == 0 {
                has_parked = true;
                asked.fd = -1;
            }
        }
        self.has_parked = has_parked;
        Ok(has_ready)
    }
}

/// Waits until a socket is ready or the time is up.
fn wait(watched: &mut [Watched], limit: Option<Duration>) -> Result<(), u32> {
    let mut polled = Polled::new(watched);
    // If a socket is ready already, this is all the call costs.
    let now = Instant::now();
    if polled.wait(watched, Some(now))? || limit == Some(Duration::ZERO) {
        return Ok(());
    }
    let until = limit.and_then(|limit| now.checked_add(limit));
    let waiter = Waiter::begin(watched);
    if let (Some(bell), Some(asked)) = (&waiter.bell, polled.asked.last_mut()) {
        asked.fd = bell.as_raw_fd();
    }
    // A descriptor closed before `closesocket` knew of the wait is no longer a socket. The eventfd
    // may have its number by now.
    let are_sockets = watched.iter().all(|it| is_socket(it.descriptor));
    let outcome = loop {
        if let Some(outcome) = waiter.outcome(watched) {
            break outcome;
        }
        if !are_sockets {
            break Err(code::WSAENOTSOCK);
        }
        polled.has_parked |= waiter.bell.is_none();
        match polled.wait(watched, until) {
            Ok(false) if until.is_none_or(|until| Instant::now() < until) => {}
            // Events of a closed number belong to something else.
            outcome => {
                break waiter.outcome(watched).unwrap_or(outcome.map(|_| ()));
            }
        }
    };
    waiter.end();
    outcome
}

fn is_socket(descriptor: RawFd) -> bool {
    numbers::find(descriptor).is_some_and(Number::is_vouched)
        || descriptors::protocol(descriptor).is_ok()
}

/// Returns the time limit, or `None` to wait forever.
///
/// # Safety
///
/// `time` is null or points to a time.
unsafe fn limit(time: *const timeval) -> Result<Option<Duration>, u32> {
    if time.is_null() {
        return Ok(None);
    }
    if !memory::may_be(time) {
        return Err(code::WSAEFAULT);
    }
    // SAFETY: reading through a raw pointer demands that it is valid.
    // - the caller guarantees it for a non-null one.
    let timeval { tv_sec, tv_usec } = unsafe { time.read() };
    let seconds = u64::try_from(tv_sec).map_err(|_| code::WSAEINVAL)?;
    let more = u64::try_from(tv_usec).map_err(|_| code::WSAEINVAL)?;
    Ok(Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(more))))
}

/// `select`. Returns the number of sockets left in the sets, or -1. The first argument is ignored.
///
/// # Safety
///
/// Each of the sets is null or points to an `fd_set` that nothing else uses meanwhile; `time` is null or points to a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_select(
    _: c_int,
    reads: *mut u32,
    writes: *mut u32,
    excepts: *mut u32,
    time: *const timeval,
) -> c_int {
    let select = || {
        // SAFETY: `limit` demands null or a time.
        // - the caller guarantees it.
        let limit = unsafe { limit(time) }?;
        // SAFETY: `Given::new` demands null, or a count and that many sockets.
        // - the caller guarantees it for each.
        let given = |set, sort| unsafe { Given::new(set, sort) };
        let given = [given(reads, READ)?, given(writes, WRITE)?, given(excepts, EXCEPT)?];
        let mut watched = merged(&given);
        if watched.is_empty() {
            return Err(code::WSAEINVAL);
        }
        if !watched.iter().all(|it| is_socket(it.descriptor)) {
            return Err(code::WSAENOTSOCK);
        }
        wait(&mut watched, limit)?;
        let mut count = 0;
        for (place, it) in given.iter().enumerate() {
            let has_some = given[..place].iter().any(|other| other.set == it.set);
            // SAFETY: `report` demands what `new` does, and that nothing else uses the set.
            // - the caller guarantees it.
            count += unsafe { it.report(&watched, has_some) };
        }
        Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
    };
    guarded(-1, || {
        let (count, code) = match select() {
            Ok(count) => (count, code::SUCCESS),
            Err(code) => (-1, code),
        };
        set_last(code);
        count
    })
}
