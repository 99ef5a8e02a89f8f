//! Connections that outlive their socket because its number is used again: `DisconnectEx` with `TF_REUSE_SOCKET` and the
//! like.
//!
//! The sending half of such a connection is shut down, but its last data may still be on the way. If data arrives for a
//! closed socket, the system resets the connection, and the peer loses whatever it has not read. So each former connection
//! keeps a descriptor until the peer closes its side, too. A single thread discards what the peer sends until then, and ends
//! soon after the last connection.
//!
//! There are two limits: the number of connections, and the time during which the peer accepts no data. A connection beyond
//! them is closed. The system still sends the remaining data, and resets the connection only if the peer sends more.
//!
//! A forked child closes its copies. At that moment another thread of the parent may have locked the list, so atomics hold
//! the descriptor numbers, too.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::linux::connections::{Choice, option, set_option};
use crate::linux::process::Own;
use crate::linux::sockets::errno;
use crate::linux::{descriptors, driver};

/// Upper limit for the number of connections. They may use at most this fraction of the process's descriptors.
const MOST: usize = 1024;
const PART_OF_DESCRIPTORS: u64 = 4;

/// A connection is kept for this long after its peer last accepted data.
const TIME: Duration = Duration::from_secs(120);

/// The thread ends after this long without a connection.
const IDLE: Duration = Duration::from_millis(100);

/// Number of reads from one connection before the thread turns to the others.
const ROUNDS: usize = 16;

/// A socket's former connection, which has its own descriptor.
#[derive(Debug)]
pub(crate) struct Former {
    descriptor: RawFd,
    /// The [identity](descriptors::identity) of its socket. It detects that the program has closed a descriptor it does not
    /// know.
    identity: u64,
}

impl Former {
    /// Takes the connection of a socket whose sending half is shut down. Returns `None` if the system needs no help to end
    /// it, because the peer has closed its side or the program wants a reset. Also returns `None` if the process has no free
    /// descriptor.
    pub(crate) fn of(descriptor: RawFd) -> Option<Self> {
        let lingers: Choice = (libc::SOL_SOCKET, libc::SO_LINGER, 8);
        // Whether closing waits for the peer, and for how many seconds.
        let (set, _) = option(descriptor, lingers)?;
        let (is_on, is_timed) = (set[..4] != [0; 4], set[4..8] != [0; 4]);
        if is_on && is_timed {
            set_option(descriptor, lingers, &[0; 8]);
        }
        let is_open = drain(descriptor);
        if !is_open || (is_on && !is_timed) {
            return None;
        }
        // SAFETY: fcntl(2) with F_DUPFD_CLOEXEC demands nothing of memory.
        let made = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
        (made >= 0).then(|| Self { descriptor: made, identity: descriptors::identity(made) })
    }

    /// Keeps the connection until it ends.
    pub(crate) fn linger(self) {
        LINGERING.get(|_| Box::new(Lingering::new(TIME))).add(self, most());
    }

    /// Whether its number still names it.
    fn is_there(&self) -> bool {
        descriptors::identity(self.descriptor) == self.identity
    }

    /// The number of bytes that the peer has not accepted.
    fn unsent(&self) -> c_int {
        let mut bytes: c_int = 0;
        // SAFETY: ioctl(2) with TIOCOUTQ, which is SIOCOUTQ of a socket, writes a number at the pointer.
        // - valid for writes: it is a local.
        let done = unsafe { libc::ioctl(self.descriptor, libc::TIOCOUTQ, &raw mut bytes) };
        if done < 0 { 0 } else { bytes }
    }
}

impl Drop for Former {
    fn drop(&mut self) {
        if self.is_there() {
            // Closing a connection with unread data would reset it.
            drain(self.descriptor);
            close(self.descriptor);
        }
    }
}

fn close(descriptor: RawFd) {
    // SAFETY: close(2) demands that nobody else uses the descriptor.
    // - this module created it, and shares it with nobody.
    unsafe { libc::close(descriptor) };
}

/// Reads and discards the data that has arrived. Returns whether more may come.
fn drain(descriptor: RawFd) -> bool {
    let mut place = [0_u8; 1 << 14];
    for _ in 0..ROUNDS {
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: recv(2) writes at most that many bytes at the pointer. For TCP it discards them instead.
        // - valid for writes: it is a local of that size.
        let read = unsafe { libc::recv(descriptor, place.as_mut_ptr().cast(), place.len(), flags) };
        match read {
            0 => return false,
            1.. => {}
            _ if errno() == libc::EINTR => {}
            _ => return errno() == libc::EAGAIN,
        }
    }
    true
}

/// The number of connections this process may keep.
fn most() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit(2) writes a limit at the pointer.
    // - valid for writes: it is a local of that type.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } < 0 {
        return MOST;
    }
    usize::try_from(limit.rlim_cur / PART_OF_DESCRIPTORS).map_or(MOST, |part| part.min(MOST))
}

/// A kept connection.
#[derive(Debug)]
struct Kept {
    former: Former,
    /// Its name in the epoll set.
    name: u64,
    /// Its index in `numbers`.
    place: usize,
    /// When its peer was last known to accept data, and how much data was unaccepted by then.
    since: Instant,
    unsent: c_int,
}

/// The connections kept in one process.
#[derive(Debug)]
struct Lingering {
    time: Duration,
    /// Their descriptor numbers while these are open, or -1. The last entry is that of the epoll set.
    numbers: Box<[AtomicI32]>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kept: Vec<Kept>,
    names: u64,
    /// The thread's epoll set, if the thread is running.
    set: Option<RawFd>,
    /// The thread found nothing to do last time.
    is_idle: bool,
}

static LINGERING: Own<Lingering> = Own::new(begin_child);

extern "C" fn begin_child() {
    if let Some(lingering) = LINGERING.find() {
        lingering.numbers.iter().for_each(shut);
    }
    LINGERING.pass_on();
}

/// Closes the descriptor in this entry. A child forked meanwhile does not close one that is already closed.
fn shut(number: &AtomicI32) {
    let descriptor = number.swap(-1, SeqCst);
    if descriptor >= 0 {
        close(descriptor);
    }
}

impl Lingering {
    fn new(time: Duration) -> Self {
        let numbers = (0..=MOST).map(|_| AtomicI32::new(-1)).collect();
        Self { time, numbers, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, keeping at most `most` in total. Closes it if there is no thread.
    fn add(&'static self, former: Former, most: usize) {
        let mut state = self.lock();
        while !state.kept.is_empty() && state.kept.len() >= most.min(MOST) {
            self.end(&mut state, 0);
        }
        if most == 0 {
            return;
        }
        let Some(set) = self.set(&mut state) else { return };
        let is_free = |number: &AtomicI32| number.load(Relaxed) < 0;
        let Some(place) = self.numbers[..MOST].iter().position(is_free) else { return };
        let name = state.names;
        state.names += 1;
        let events = c_int::cast_unsigned(libc::EPOLLIN | libc::EPOLLRDHUP);
        let mut event = libc::epoll_event { events, u64: name };
        // SAFETY: epoll_ctl(2) reads the event at the pointer.
        // - valid for reads: it is a local.
        let added =
            unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, former.descriptor, &raw mut event) };
        if added < 0 {
            return;
        }
        self.numbers[place].store(former.descriptor, SeqCst);
        let unsent = former.unsent();
        state.kept.push(Kept { former, name, place, since: Instant::now(), unsent });
    }

    /// Returns the thread's epoll set, and starts the thread if it is not running.
    fn set(&'static self, state: &mut State) -> Option<RawFd> {
        if state.set.is_none() {
            // SAFETY: epoll_create1(2) demands nothing of memory.
            let made = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
            if made < 0 {
                return None;
            }
            self.numbers[MOST].store(made, SeqCst);
            // The thread checks the list first, and finds it locked.
            if driver::spawn("cp-linger", move || self.serve(made)).is_err() {
                shut(&self.numbers[MOST]);
                return None;
            }
            (state.set, state.is_idle) = (Some(made), false);
        }
        state.set
    }

    /// Drops the connection at this index of the list.
    fn end(&self, state: &mut State, at: usize) {
        let Kept { former, place, .. } = state.kept.remove(at);
        self.numbers[place].store(-1, SeqCst);
        if let Some(set) = state.set
            && former.is_there()
        {
            // A copy in a child that was forked without the C library would keep it in the set.
            // SAFETY: epoll_ctl(2) with EPOLL_CTL_DEL demands nothing of memory.
            unsafe {
                libc::epoll_ctl(set, libc::EPOLL_CTL_DEL, former.descriptor, ptr::null_mut())
            };
        }
    }

    /// The thread's main loop.
    fn serve(&self, set: RawFd) {
        const EVENTS: usize = 64;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        while let Some(pause) = self.look() {
            let pause = c_int::try_from(pause.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX);
            let room = c_int::try_from(EVENTS).unwrap_or(1);
            // SAFETY: epoll_wait(2) writes at most that many events at the pointer.
            // - valid for writes: the array has that many.
            let come = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), room, pause) };
            match usize::try_from(come) {
                Ok(come) => events[..come].iter().for_each(|event| self.read(event.u64)),
                Err(_) if errno() == libc::EINTR => {}
                Err(_) => return self.give_up(),
            }
        }
    }

    /// Handles that the program has closed the thread's epoll set. Its number may name something else by now.
    #[cold]
    fn give_up(&self) {
        let mut state = self.lock();
        state.set = None;
        self.numbers[MOST].store(-1, SeqCst);
        while !state.kept.is_empty() {
            self.end(&mut state, 0);
        }
    }

    /// Reads from a connection that has data.
    fn read(&self, name: u64) {
        let mut state = self.lock();
        let Some(at) = state.kept.iter().position(|kept| kept.name == name) else { return };
        let former = &state.kept[at].former;
        if !former.is_there() || !drain(former.descriptor) {
            self.end(&mut state, at);
        }
    }

    /// Drops connections whose time is up. Returns how long the thread may wait, or `None` if it must end.
    fn look(&self) -> Option<Duration> {
        let mut state = self.lock();
        let now = Instant::now();
        let mut pause = IDLE;
        let mut at = 0;
        while at < state.kept.len() {
            let kept = &mut state.kept[at];
            if now.duration_since(kept.since) >= self.time {
                let unsent = kept.former.unsent();
                if unsent >= kept.unsent {
                    self.end(&mut state, at);
                    continue;
                }
                (kept.unsent, kept.since) = (unsent, now);
            }
            let left = self.time.saturating_sub(now.duration_since(kept.since));
            pause = if at == 0 { left } else { pause.min(left) };
            at += 1;
        }
        let was_idle = std::mem::replace(&mut state.is_idle, at == 0);
        if at == 0 && was_idle {
            // Before the list is unlocked, so that the next connection starts another thread.
            state.set = None;
            shut(&self.numbers[MOST]);
            return None;
        }
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    /// Creates a connected pair. One end has sent `sent` and shut down its sending half.
    fn shut_pair(sent: &[u8]) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.write_all(sent).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        (near, far)
    }

    /// Keeps the connection, and closes the program's descriptor.
    fn keep(lingering: &'static Lingering, near: TcpStream, most: usize) {
        let former = Former::of(near.as_raw_fd()).unwrap();
        drop(near);
        lingering.add(former, most);
    }

    fn new(time: Duration) -> &'static Lingering {
        Box::leak(Box::new(Lingering::new(time)))
    }

    /// Waits until exactly `count` connections are kept. If that is none, also waits until the thread has ended.
    fn until(lingering: &Lingering, count: usize) {
        let began = Instant::now();
        loop {
            let state = lingering.lock();
            if state.kept.len() == count && (count > 0 || state.set.is_none()) {
                let open = lingering.numbers.iter().filter(|number| number.load(SeqCst) >= 0);
                assert_eq!(open.count(), count + usize::from(count > 0));
                return;
            }
            drop(state);
            assert!(began.elapsed() < Duration::from_secs(60), "expected {count} connections");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_connection_is_kept_until_its_peer_has_ended_it() {
        let lingering = new(Duration::from_secs(1000));
        for _ in 0..2 {
            let (near, mut far) = shut_pair(b"hello");
            keep(lingering, near, 2);
            until(lingering, 1);
            // More than both sockets buffer, so the thread must read it.
            far.write_all(&vec![0; 16 << 20]).unwrap();
            let mut come = Vec::new();
            far.read_to_end(&mut come).unwrap();
            assert_eq!(come, b"hello");
            drop(far);
            until(lingering, 0);
        }
    }

    #[test]
    fn what_needs_no_help_is_not_kept() {
        let (near, far) = shut_pair(b"");
        far.shutdown(Shutdown::Write).unwrap();
        let mut byte = [0];
        assert_eq!((&near).read(&mut byte).unwrap(), 0);
        assert!(Former::of(near.as_raw_fd()).is_none(), "both sides have ended it");
        let (near, _far) = shut_pair(b"");
        let resets: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];
        set_option(near.as_raw_fd(), (libc::SOL_SOCKET, libc::SO_LINGER, 8), &resets);
        assert!(Former::of(near.as_raw_fd()).is_none(), "expected a reset");
        assert!(Former::of(-1).is_none());
    }

    #[test]
    fn a_silent_peer_is_left_when_its_time_is_over() {
        let lingering = new(Duration::from_millis(20));
        let (near, mut far) = shut_pair(b"hello");
        keep(lingering, near, 2);
        until(lingering, 0);
        // All sent data still arrives.
        let mut come = Vec::new();
        far.read_to_end(&mut come).unwrap();
        assert_eq!(come, b"hello");
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let lingering = new(Duration::from_secs(1000));
        let (pairs, mut fars): (Vec<_>, Vec<_>) = (0..3).map(|_| shut_pair(b"hello")).unzip();
        for near in pairs {
            keep(lingering, near, 2);
        }
        until(lingering, 2);
        assert_eq!(lingering.lock().kept.iter().map(|kept| kept.name).collect::<Vec<_>>(), [1, 2]);
        for far in &mut fars {
            let mut come = Vec::new();
            far.read_to_end(&mut come).unwrap();
            assert_eq!(come, b"hello");
        }
        drop(fars);
        until(lingering, 0);
        // The limit is none at all, so it is closed.
        let (near, mut far) = shut_pair(b"hello");
        keep(lingering, near, 0);
        let mut come = Vec::new();
        far.read_to_end(&mut come).unwrap();
        assert_eq!(come, b"hello");
        until(lingering, 0);
    }
}
