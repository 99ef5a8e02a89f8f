//! What tasks do and wait for, as [`Handle::dump`](crate::Handle::dump) shows it.
//!
//! The futures of this crate note what they wait for when they return `Pending`, in the task that
//! is being polled. A note is one word, so that a reader never mixes two of them. All accesses are
//! relaxed: nothing depends on them, and a dump of a running program is outdated anyway.

use std::cell::Cell;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(unix)]
use std::os::fd::{AsRawFd as AsRaw, BorrowedFd as Borrowed, RawFd as Raw};
#[cfg(windows)]
use std::os::windows::io::{AsRawSocket as AsRaw, BorrowedSocket as Borrowed, RawSocket as Raw};

/// The bits of a note that say what kind of wait it is.
const KIND: u32 = 60;

/// The bits of a socket's note that have its place in the list. Above are those of its generation.
const PLACE: u32 = 32;

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Queued,
    Waiting,
    /// On the thread of this number.
    Running(u64),
}

/// What a future waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Read(SocketName),
    Write(SocketName),
    /// A time, in nanoseconds since the runtime was built.
    Timer(u64),
    File,
    /// The task with this name.
    Task(u64),
}

impl Wait {
    fn to_note(self) -> u64 {
        let (kind, detail) = match self {
            Self::Read(name) => (1, name.0),
            Self::Write(name) => (2, name.0),
            Self::Timer(at) => (3, at),
            Self::File => (4, 0),
            Self::Task(number) => (5, number),
        };
        kind << KIND | detail & ((1 << KIND) - 1)
    }

    fn of_note(note: u64) -> Option<Self> {
        let detail = note & ((1 << KIND) - 1);
        Some(match note >> KIND {
            1 => Self::Read(SocketName(detail)),
            2 => Self::Write(SocketName(detail)),
            3 => Self::Timer(detail),
            4 => Self::File,
            5 => Self::Task(detail),
            _ => return None,
        })
    }
}

/// What a task does, and what its last poll waited for.
#[derive(Default)]
pub(crate) struct Activity {
    /// 0: queued, 1: waiting, more: running on the thread of this number less 2.
    doing: AtomicU64,
    /// The first two things that the last poll waited for. 0: nothing.
    waits: [AtomicU64; 2],
}

thread_local! {
    /// The task that the thread polls. It lives as long as the [`Polling`] that has set it.
    static POLLED: Cell<*const Activity> = const { Cell::new(std::ptr::null()) };
    /// The number of the thread in its runtime.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

impl Activity {
    pub(crate) fn set_queued(&self) {
        self.doing.store(0, Relaxed);
    }

    pub(crate) fn set_waiting(&self) {
        self.doing.store(1, Relaxed);
    }

    /// Makes this the task that the current thread polls.
    pub(crate) fn poll(&self) -> Polling<'_> {
        self.doing.store(THREAD.get() + 2, Relaxed);
        self.waits.iter().for_each(|wait| wait.store(0, Relaxed));
        Polling { outer: POLLED.replace(self), _activity: PhantomData }
    }

    pub(crate) fn doing(&self) -> Doing {
        match self.doing.load(Relaxed) {
            0 => Doing::Queued,
            1 => Doing::Waiting,
            thread => Doing::Running(thread - 2),
        }
    }

    pub(crate) fn waits(&self) -> [Option<Wait>; 2] {
        self.waits.each_ref().map(|wait| Wait::of_note(wait.load(Relaxed)))
    }
}

/// Returns the number of the current thread in its runtime.
#[cfg(feature = "tokio-compat")]
pub(crate) fn thread() -> u64 {
    THREAD.get()
}

/// While this exists, the thread polls a task.
pub(crate) struct Polling<'a> {
    outer: *const Activity,
    _activity: PhantomData<&'a Activity>,
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        POLLED.set(self.outer);
    }
}

/// Notes what the current task waits for. Called by a future that is about to return `Pending`.
#[inline]
pub(crate) fn note(wait: Wait) {
    let polled = POLLED.get();
    // SAFETY: the reference requires a live `Activity`, or null.
    // - the pointer was made from the reference that `poll` has borrowed for its `Polling`;
    // - that one is on the stack of a caller, since its drop replaces the pointer.
    let Some(activity) = (unsafe { polled.as_ref() }) else { return };
    let [first, second] = &activity.waits;
    // Only this thread writes, as it polls the task.
    let free = if first.load(Relaxed) == 0 { first } else { second };
    free.store(wait.to_note(), Relaxed);
}

/// The name of a socket in the list of its runtime: its place and a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketName(u64);

/// What the system does not know of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    None,
    Connecting(SocketAddr),
    #[cfg(unix)]
    Signal(i32),
}

/// The registered sockets of a runtime, for their addresses.
#[derive(Default)]
pub(crate) struct SocketList(Mutex<Sockets>);

#[derive(Default)]
struct Sockets {
    entries: Vec<(u64, Option<(Raw, Label)>)>,
    free: Vec<usize>,
}

impl SocketList {
    fn lock(&self) -> MutexGuard<'_, Sockets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a socket, which the caller removes before it is closed.
    pub(crate) fn enter(&self, socket: &impl AsRawSource, label: Label) -> SocketName {
        let mut sockets = self.lock();
        let place = sockets.free.pop().unwrap_or_else(|| {
            sockets.entries.push((0, None));
            sockets.entries.len() - 1
        });
        let (generation, entry) = &mut sockets.entries[place];
        *entry = Some((socket.raw(), label));
        SocketName(*generation << PLACE | place as u64)
    }

    pub(crate) fn remove(&self, name: SocketName) {
        let mut sockets = self.lock();
        let Some((place, generation)) = sockets.find(name) else { return };
        // As many bits as a note has room for.
        let next = (generation + 1) & ((1 << (KIND - PLACE)) - 1);
        sockets.entries[place] = (next, None);
        sockets.free.push(place);
    }

    /// Describes what a wait for this socket waits for.
    pub(crate) fn describe(&self, name: SocketName, writes: bool) -> String {
        let sockets = self.lock();
        let entry = sockets.find(name).and_then(|(place, _)| sockets.entries[place].1);
        let Some((raw, label)) = entry else { return "a socket that was closed".to_owned() };
        // SAFETY: `borrow_raw` requires that the socket stays open during the borrow.
        // - its owner removes it from this list before it closes it, and for that needs the lock,
        //   which is held until the end of this function.
        let socket = unsafe { Borrowed::borrow_raw(raw) };
        describe(socket2::SockRef::from(&socket), label, writes)
    }
}

impl Sockets {
    /// Returns the place of a socket that is in the list, and its generation.
    fn find(&self, name: SocketName) -> Option<(usize, u64)> {
        let place = usize::try_from(name.0 & ((1 << PLACE) - 1)).ok()?;
        let (generation, entry) = self.entries.get(place)?;
        (entry.is_some() && *generation == name.0 >> PLACE).then_some((place, *generation))
    }
}

/// A socket that has the system's number.
pub(crate) trait AsRawSource {
    fn raw(&self) -> Raw;
}

impl<S: AsRaw> AsRawSource for S {
    fn raw(&self) -> Raw {
        #[cfg(unix)]
        return self.as_raw_fd();
        #[cfg(windows)]
        return self.as_raw_socket();
    }
}

fn describe(socket: socket2::SockRef<'_>, label: Label, writes: bool) -> String {
    let text = |address: std::io::Result<socket2::SockAddr>| {
        let address = address.ok()?;
        #[cfg(unix)]
        if let Some(path) = address.as_pathname() {
            return Some(path.display().to_string());
        }
        address.as_socket().map(|address| address.to_string())
    };
    match label {
        Label::Connecting(to) if socket.peer_addr().is_err() => return format!("connect to {to}"),
        #[cfg(unix)]
        Label::Signal(number) => return format!("signal {number}"),
        _ => {}
    }
    let local = text(socket.local_addr()).unwrap_or_else(|| "an unnamed socket".to_owned());
    let peer = socket.peer_addr();
    let is_stream = socket.r#type().is_ok_and(|it| it == socket2::Type::STREAM);
    match (writes, peer.is_ok()) {
        (false, false) if is_stream => format!("accept on {local}"),
        (false, false) => format!("receive on {local}"),
        (true, false) => format!("send on {local}"),
        (writes, true) => {
            let call = if writes { "send to" } else { "receive from" };
            let peer = text(peer).unwrap_or_else(|| "an unnamed socket".to_owned());
            format!("{call} {peer} on {local}")
        }
    }
}

/// The threads of a runtime, by number.
#[derive(Default)]
pub(crate) struct ThreadList(Mutex<Vec<Option<Option<u64>>>>);

/// While this exists, the current thread is in the list.
pub(crate) struct Listed<'t> {
    list: &'t ThreadList,
    number: u64,
}

impl ThreadList {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Option<u64>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the current thread.
    pub(crate) fn enter(&self) -> Listed<'_> {
        let mut threads = self.lock();
        let place = threads.iter().position(Option::is_none).unwrap_or_else(|| {
            threads.push(None);
            threads.len() - 1
        });
        threads[place] = Some(system_number());
        let number = place as u64 + 1;
        THREAD.set(number);
        Listed { list: self, number }
    }

    /// Returns the numbers of the threads, and those of the system.
    pub(crate) fn all(&self) -> Vec<(u64, Option<u64>)> {
        let threads = self.lock();
        (1..).zip(threads.iter()).filter_map(|(number, it)| Some((number, (*it)?))).collect()
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        if let Some(place) = usize::try_from(self.number - 1).ok()
            && let Some(entry) = self.list.lock().get_mut(place)
        {
            *entry = None;
        }
    }
}

/// Returns the system's number of the current thread, as the port reports it.
fn system_number() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: gettid(2) has no requirements.
        let number = unsafe { libc::syscall(libc::SYS_gettid) };
        u64::try_from(number).ok()
    }
    #[cfg(target_os = "macos")]
    {
        let mut number = 0;
        // SAFETY: pthread_threadid_np(3) writes a number at the pointer.
        // - the pointer is that of a local variable; 0 is the current thread.
        let status = unsafe { libc::pthread_threadid_np(0, &raw mut number) };
        (status == 0).then_some(number)
    }
    #[cfg(windows)]
    {
        // SAFETY: GetCurrentThreadId has no requirements.
        Some(u64::from(unsafe { windows_sys::Win32::System::Threading::GetCurrentThreadId() }))
    }
    #[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let name = SocketName((0xabc_def0 << PLACE) | 0xffff_ffff);
        let far = (1 << KIND) - 1;
        for wait in [
            Wait::Read(name),
            Wait::Write(SocketName(0)),
            Wait::Timer(far),
            Wait::File,
            Wait::Task(17),
        ] {
            assert_eq!(Wait::of_note(wait.to_note()), Some(wait));
        }
        assert_eq!(Wait::of_note(0), None);
    }

    /// A name of a socket that has left the list does not name the next one in its place.
    #[test]
    fn a_closed_socket_has_no_address() {
        let list = SocketList::default();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let first = list.enter(&socket, Label::None);
        let address = socket.local_addr().unwrap();
        assert_eq!(list.describe(first, false), format!("receive on {address}"));
        assert_eq!(list.describe(first, true), format!("send on {address}"));
        list.remove(first);
        let second = list.enter(&socket, Label::None);
        assert_ne!(first, second);
        assert_eq!(list.describe(first, false), "a socket that was closed");
        list.remove(first);
        assert_eq!(list.describe(second, false), format!("receive on {address}"));
    }
}
