//! Whether a completion port of the kernel counts its threads: by bare calls, and without a port of the library. First it is
//! asked as the library asks it, which finds out by that who sleeps: a thread has looked for a packet and found none, and another one looks
//! whether it may take one. Then threads wait there. Nothing is expected of it.

use std::hint::spin_loop;
use std::io::{self, Read as _};
use std::net::TcpStream;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{CloseHandle, HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::IO::{
    CreateIoCompletionPort, GetQueuedCompletionStatusEx, OVERLAPPED_ENTRY,
    PostQueuedCompletionStatus,
};
use windows_sys::Win32::System::Threading::{CreateEventW, Sleep, WaitForSingleObject};

use super::facts::is_wine;

/// For how long a thread blocks, and how long a packet must not be taken, in milliseconds.
const HELD: u32 = 100;
const HELD_FOR: Duration = Duration::from_millis(HELD as u64);

/// Until another thread waits that has just begun to go there.
const COMES: Duration = Duration::from_millis(30);

/// How long anything else may take.
const SOON: Duration = Duration::from_secs(2);
const SOON_IN_MILLISECONDS: u32 = 2000;

/// What was tried, what was seen of each thing, and what is taken to be so where it was not tried.
pub(crate) struct Counted {
    pub(crate) rule: u8,
    pub(crate) what: &'static str,
    pub(crate) seen: Vec<String>,
    pub(crate) inferred: &'static str,
}

pub(crate) fn counted() -> Counted {
    let seen = seen().unwrap_or_else(|error| vec![format!("an error: {error}")]);
    let by_wine = |seen| if is_wine() { format!("as Wine has it, {seen}") } else { seen };
    Counted {
        rule: 39,
        what: "one thread at a time may run, a packet stands and another thread waits; the first one",
        seen: seen.into_iter().map(by_wine).collect(),
        inferred: "what spins holds a packet back, what blocks lets one go, and to look is enough to be counted",
    }
}

/// An object of the kernel, closed when it is dropped.
struct Object(HANDLE);

// SAFETY: a handle may be used by any thread of its process.
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: CloseHandle demands an open handle that nobody uses any more.
        // - `self` owns it, and no borrow is left.
        unsafe { CloseHandle(self.0) };
    }
}

impl Object {
    fn new(handle: HANDLE) -> io::Result<Self> {
        if handle.is_null() { Err(io::Error::last_os_error()) } else { Ok(Self(handle)) }
    }

    /// A completion port for one thread at a time.
    fn port() -> io::Result<Self> {
        // SAFETY: CreateIoCompletionPort demands a file or INVALID_HANDLE_VALUE, and a port or null.
        // - INVALID_HANDLE_VALUE and null ask for a new port without a file.
        Self::new(unsafe { CreateIoCompletionPort(INVALID_HANDLE_VALUE, ptr::null_mut(), 0, 1) })
    }

    /// An event that nobody sets.
    fn event() -> io::Result<Self> {
        // SAFETY: CreateEventW reads attributes and a name at the pointers.
        // - null stands for none.
        Self::new(unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) })
    }

    fn post(&self) {
        // SAFETY: PostQueuedCompletionStatus demands an open port, and passes the other words on.
        // - open: `self` owns it.
        unsafe { PostQueuedCompletionStatus(self.0, 0, 0, ptr::null()) };
    }

    /// Takes a packet of a port. From then on the port counts this thread.
    fn take(&self, milliseconds: u32) -> bool {
        let (mut entry, mut count) = (OVERLAPPED_ENTRY::default(), 0);
        // SAFETY: GetQueuedCompletionStatusEx writes as many packets as it is told at the second argument, and their number
        // at the fourth.
        // - one packet, a number: both are locals; the port is open, since `self` owns it.
        let done = unsafe {
            GetQueuedCompletionStatusEx(self.0, &raw mut entry, 1, &raw mut count, milliseconds, 0)
        };
        done != 0
    }
}

/// Until what no call tells of has come about.
#[allow(clippy::disallowed_methods, reason = "what is to be awaited is what is tried")]
fn pause(time: Duration) {
    thread::sleep(time);
}

fn spin_until(flag: &AtomicBool) {
    let end = Instant::now() + SOON;
    while !flag.load(SeqCst) && Instant::now() < end {
        spin_loop();
    }
}

/// What has become of the packet that stands.
enum Released {
    /// The other thread has taken it while the first one was spinning.
    BySpinning(Duration),
    /// So long after the first thread began to block, and before it went on.
    ByBlocking(Duration),
    Not,
}

/// Has a thread take a packet, spin, and block then by `block`, while another one waits for the packet that stands.
fn released(block: impl FnOnce() + Send) -> io::Result<Released> {
    let port = Object::port()?;
    let goes_on = AtomicBool::new(false);
    let (say_counted, is_counted) = mpsc::channel();
    let (say_taken, taken) = mpsc::channel();
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let has_packet = port.take(SOON_IN_MILLISECONDS);
            // The receiver outlives the scope.
            let _ = say_counted.send(has_packet);
            spin_until(&goes_on);
            let begin = Instant::now();
            block();
            (begin, Instant::now())
        });
        port.post();
        let outcome = awaited(&is_counted).and_then(|has_packet| {
            if !has_packet {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            scope.spawn(|| {
                if port.take(SOON_IN_MILLISECONDS) {
                    let _ = say_taken.send(Instant::now());
                }
            });
            pause(COMES);
            let posted = Instant::now();
            port.post();
            Ok((posted, taken.recv_timeout(HELD_FOR).ok()))
        });
        goes_on.store(true, SeqCst);
        let (begin, end) = first.join().map_err(|_| io::Error::other("a thread has panicked"))?;
        let (posted, early) = outcome?;
        if let Some(at) = early {
            return Ok(Released::BySpinning(at.saturating_duration_since(posted)));
        }
        // A thread that ends is counted no more, so that the other one comes.
        let at = awaited(&taken)?;
        Ok(if at < end {
            Released::ByBlocking(at.saturating_duration_since(begin))
        } else {
            Released::Not
        })
    })
}

fn awaited<T>(from: &Receiver<T>) -> io::Result<T> {
    from.recv_timeout(SOON).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
}

/// What a thread meets that has blocked, and comes back for a packet while the one that was released is running.
fn comes_back() -> io::Result<&'static str> {
    let (port, event) = (Object::port()?, Object::event()?);
    let is_over = AtomicBool::new(false);
    let (say_counted, is_counted) = mpsc::channel();
    let (say_taken, taken) = mpsc::channel();
    let (port, event, is_over) = (&port, &event, &is_over);
    thread::scope(|scope| {
        let first = scope.spawn(move || {
            let _ = say_counted.send(port.take(SOON_IN_MILLISECONDS));
            wait_for(event);
            port.take(HELD)
        });
        scope.spawn(move || {
            let _ = is_counted.recv_timeout(SOON);
            let has_packet = port.take(SOON_IN_MILLISECONDS);
            let _ = say_taken.send(has_packet);
            spin_until(is_over);
        });
        port.post();
        port.post();
        let released = awaited(&taken);
        port.post();
        let has_packet = first.join().map_err(|_| io::Error::other("a thread has panicked"));
        is_over.store(true, SeqCst);
        Ok(match (released?, has_packet?) {
            (false, _) => "not tried, since none was released",
            (true, false) => "it is held back",
            (true, true) => "it takes one",
        })
    })
}

fn wait_for(event: &Object) {
    // SAFETY: WaitForSingleObject demands an open handle.
    // - open: it is borrowed.
    unsafe { WaitForSingleObject(event.0, HELD) };
}

/// A thread looks for a packet, finds none and spins, then waits for an event, and spins again, while another one looks for the
/// packet that stands. That is how the library finds out whether a thread sleeps.
fn asked() -> io::Result<String> {
    let (port, event) = (Object::port()?, Object::event()?);
    let [waits, spins_on] = [const { AtomicBool::new(false) }; 2];
    let (say_stage, stage) = mpsc::channel();
    let (port, event, waits, spins_on) = (&port, &event, &waits, &spins_on);
    thread::scope(|scope| {
        scope.spawn(move || {
            // What stands there later is not its own.
            let has_packet = port.take(0);
            let _ = say_stage.send(has_packet);
            spin_until(waits);
            wait_for(event);
            let _ = say_stage.send(false);
            spin_until(spins_on);
        });
        let outcome = look(port, waits, &stage);
        waits.store(true, SeqCst);
        spins_on.store(true, SeqCst);
        outcome
    })
}

/// What a thread sees that looks for the packet that stands: see [`asked`].
fn look(port: &Object, waits: &AtomicBool, stage: &Receiver<bool>) -> io::Result<String> {
    awaited(stage)?;
    port.post();
    if port.take(0) {
        return Ok("spins: there".to_owned());
    }
    let begin = Instant::now();
    waits.store(true, SeqCst);
    let mut there = None;
    while there.is_none() && begin.elapsed() < HELD_FOR / 2 {
        there = port.take(0).then(|| begin.elapsed());
        thread::yield_now();
    }
    let blocked = match there {
        Some(time) => format!("there after {:.2} ms", time.as_secs_f64() * 1000.0),
        None => "not there".to_owned(),
    };
    // The thread that looks is counted as well, until it looks elsewhere.
    Object::port()?.take(0);
    awaited(stage)?;
    port.post();
    let on = if port.take(0) { "there" } else { "held back" };
    Ok(format!("spins: held back; waits: {blocked}; spins again: {on}"))
}

fn in_words(released: &Released) -> String {
    match released {
        Released::BySpinning(time) => {
            format!("spins: released after {:.2} ms", time.as_secs_f64() * 1000.0)
        }
        Released::ByBlocking(time) => {
            format!("released after {:.2} ms", time.as_secs_f64() * 1000.0)
        }
        Released::Not => "not released before it goes on".to_owned(),
    }
}

fn seen() -> io::Result<Vec<String>> {
    let event = Object::event()?;
    let asked = format!("the other one looks without waiting; {}", asked()?);
    let first = released(|| wait_for(&event))?;
    if let Released::BySpinning(_) = first {
        return Ok(vec![asked, format!("{}: it counts no threads", in_words(&first))]);
    }
    let mut seen = vec![asked, "spins: held back".to_owned()];
    let mut add = |what: &str, released| seen.push(format!("{what}: {}", in_words(&released)));
    add("waits for an event", first);
    // SAFETY: Sleep demands nothing.
    add("sleeps", released(|| unsafe { Sleep(HELD) })?);
    let lock = Mutex::new(());
    let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    add("waits for a lock", waits_for_lock(&lock, held)?);
    let (mut near, _far): (TcpStream, TcpStream) = super::pair()?;
    near.set_read_timeout(Some(HELD_FOR))?;
    // Nothing is sent, so that it fails.
    add("receives", released(|| drop(near.read(&mut [0])))?);
    let other = Object::port()?;
    add("waits at another port", released(|| _ = other.take(HELD))?);
    seen.push(format!("comes back while the other one runs: {}", comes_back()?));
    Ok(seen)
}

/// Blocks by a lock, which is let go of after the usual time.
fn waits_for_lock(lock: &Mutex<()>, held: MutexGuard<'_, ()>) -> io::Result<Released> {
    let (say_blocked, is_blocked) = mpsc::channel();
    thread::scope(|scope| {
        let tried = scope.spawn(move || {
            released(move || {
                let _ = say_blocked.send(());
                drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
            })
        });
        let _ = is_blocked.recv_timeout(SOON);
        pause(HELD_FOR);
        drop(held);
        tried.join().map_err(|_| io::Error::other("a thread has panicked"))?
    })
}
