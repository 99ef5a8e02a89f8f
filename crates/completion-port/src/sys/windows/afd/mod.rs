//! The back end of Windows: a completion port of the kernel as the set, and polls by the socket
//! driver.
//!
//! The driver answers a poll once, by level: as soon as one of the requested conditions holds, or
//! immediately if one already does. The reactor is therefore one-shot, and `Reactor::want` is one
//! system call. Each socket has at most one such request at a time, its *main* request. While it is
//! attached it also has a *sentinel* request, which only reports the closing of the socket, since
//! the number may be reused afterwards.
//!
//! The driver owns the memory of both requests until the completion port reports their end. The
//! requests therefore also own the state of the socket, [`Watched`]; see [`Poll`].
//!
//! Prior art: wepoll, libuv, mio and polling drive the same device.

pub(super) mod driver;
mod reactor;

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use windows_sys::Win32::Networking::WinSock::{
    AF_INET, AF_INET6, FIONBIO, FIONREAD, INVALID_SOCKET, SIO_BASE_HANDLE, SIO_BSP_HANDLE_POLL,
    SO_TYPE, SOCK_SEQPACKET, SOCK_STREAM, SOCKET, SOL_SOCKET, WSADATA, WSAENOTSOCK, WSAIoctl,
    WSAStartup, ioctlsocket,
};

use self::driver::{Device, EndedPoll, Owner, PendingPoll, Poll, PollEnd, event};
use super::files::FileService;
use super::host::now;
use super::operations::OverlappedOperations;
use super::options::{WinsockCode, fault, fault_of, is_open, last_code, number, socket};
use super::port::{CompletionPacket, ROOM, SystemPort};
use super::sockets::{TCP, protocol};
use super::timeout;
use crate::backend::reactor::{Reactor as _, Until};
use crate::state::facts::{DescriptorKind, Edge, Facts};
use crate::state::moment::Moment;
use crate::types::config::FileEngine;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// The key of posted packets: a wake.
const WAKE: usize = 1;
/// The key of posted packets: a sleeper must check when to wake up.
const NUDGE: usize = 2;
/// The key of the driver's packets.
const POLLED: usize = 3;
/// The key of the packets of sockets.
pub(super) const CARRIED: usize = 4;

/// `IPPROTO_UDP`, for a field with another type.
const UDP: i32 = 17;

/// Events that last once they hold.
const STICKY: u32 = event::DISCONNECT | event::ABORT | event::CONNECT_FAIL;

/// The first delay before a socket that is watched until it is detached is polled again, if it was
/// ready when it was last polled. The delay doubles while it stays ready.
pub(super) const SOON: Duration = Duration::from_millis(1);

/// The longest such delay.
const LATE: Duration = Duration::from_millis(16);

/// The longest time that the drop of a reactor waits for the requests that it has cancelled.
pub(super) const LAST: Duration = Duration::from_secs(5);

/// Returns the events to poll for the `wanted` facts.
fn polled(wanted: Facts, until: Until) -> u32 {
    let mut events = event::ABORT | event::CONNECT_FAIL | event::LOCAL_CLOSE;
    if until != Until::Room {
        events |= event::DISCONNECT;
    }
    if wanted.has(Facts::IN) {
        events |= event::RECEIVE | event::ACCEPT | event::URGENT;
    }
    if wanted.has(Facts::OUT) {
        events |= event::SEND;
    }
    events
}

/// Converts the driver's events to the facts of epoll.
fn facts(events: u32) -> Facts {
    // After these, a read and a write return immediately.
    let over = Facts::IN | Facts::OUT | Facts::RDHUP | Facts::HUP | Facts::ERR;
    let known = [
        (event::RECEIVE, Facts::IN),
        (event::ACCEPT, Facts::IN),
        (event::URGENT, Facts::URGENT),
        (event::SEND, Facts::OUT),
        (event::DISCONNECT, Facts::IN | Facts::RDHUP),
        (event::ABORT, over),
        (event::CONNECT_FAIL, over),
    ];
    let mut facts = Facts::NONE;
    for (event, fact) in known {
        if events & event != 0 {
            facts |= fact;
        }
    }
    facts
}

/// The state of a socket, which lives as long as it is attached or the driver has requests for it.
pub(super) struct Watched {
    /// The driver's handle of the socket, below any layered providers.
    base: SOCKET,
    state: Mutex<State>,
}

struct State {
    name: u64,
    wanted: Facts,
    until: Until,
    main: Option<MainSet>,
    /// The memory of the main request while the driver does not have it.
    spare: Option<Box<Poll>>,
    /// `None` once the socket is detached or closed.
    sentinel: Option<Sentinel>,
    /// A request of the engine was accepted, but the system had no memory for the main request.
    is_owed: bool,
    /// Lasting events that were already reported for [`Until::Detached`], and would be reported
    /// forever.
    told: u32,
    /// The delay before a socket that is watched until it is detached is polled again.
    pause: Duration,
    /// The events of the last poll.
    last: u32,
    /// The socket is non-blocking.
    is_nonblocking: bool,
    /// Whether the kernel carries out operations on the socket; `None` if not known yet.
    carried: Option<Option<SystemTransfers>>,
    /// The kernel has refused a connect, so the next attempt starts it.
    begins_connects: bool,
    /// The socket is no longer attached. Only its closing is watched.
    is_detached: bool,
}

/// A socket whose operations the kernel carries out, by transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemTransfers {
    /// TCP.
    Stream,
    /// UDP.
    Datagrams,
}

impl SystemTransfers {
    /// Returns the kind of operations that the kernel can carry out on this socket.
    pub(super) fn of(descriptor: Descriptor) -> Option<Self> {
        let (family, protocol) = protocol(descriptor)?;
        if family != i32::from(AF_INET) && family != i32::from(AF_INET6) {
            return None;
        }
        match protocol {
            TCP => Some(Self::Stream),
            UDP => Some(Self::Datagrams),
            _ => None,
        }
    }

    /// Returns whether the kernel carries out a receive with this room.
    ///
    /// Without room it would take a datagram.
    pub(super) fn carries_receive(self, room: &[&mut [MaybeUninit<u8>]]) -> bool {
        self == Self::Stream || room.iter().any(|part| !part.is_empty())
    }
}

/// The request that reports the closing of a socket.
enum Sentinel {
    PendingPoll(PendingPoll),
    /// It ended without a report, and the system had no memory for another one.
    Owed,
}

impl Sentinel {
    fn pending(&self) -> Option<&PendingPoll> {
        match self {
            Self::PendingPoll(pending) => Some(pending),
            Self::Owed => None,
        }
    }
}

struct MainSet {
    pending: PendingPoll,
    events: u32,
    /// It was made for other facts, or before the current request of the engine. Its answer does
    /// not count, and another request replaces it.
    is_old: bool,
}

impl Watched {
    fn associate(&self, descriptor: Descriptor, port: &SystemPort) -> Option<SystemTransfers> {
        if self.base != socket(descriptor) {
            return None;
        }
        let carried = SystemTransfers::of(descriptor)?;
        let handle = ptr::without_provenance_mut(socket(descriptor));
        port.associate_number(handle, CARRIED).ok()?;
        Some(carried)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

/// The sockets that are polled again later, and the threads that will do it.
#[derive(Default)]
struct DelayedPolls {
    /// Sockets that are watched until they are detached and were reported, and sockets whose
    /// request must be retried, each with the time of its next poll.
    sockets: Vec<(Moment, Arc<Watched>)>,
    /// When each thread wakes that sleeps at most until the first entry, as of when it went to
    /// sleep.
    limits: Vec<Moment>,
    /// A packet is queued that makes a thread check this list.
    is_nudged: bool,
}

impl DelayedPolls {
    /// Returns when the first entry is due.
    fn next(&self) -> Option<Moment> {
        self.sockets.iter().map(|(due, _)| *due).min()
    }

    /// Returns whether no sleeping thread wakes in time and none was asked to.
    fn is_forgotten(&self) -> bool {
        let is_missed = |next| self.limits.iter().all(|limit| *limit > next);
        !self.is_nudged && self.next().is_some_and(is_missed)
    }
}

/// See the module's documentation.
pub(super) struct Afd {
    pub(super) port: SystemPort,
    pub(super) device: Device,
    sockets: Mutex<HashMap<Descriptor, Arc<Watched>>>,
    /// Detached sockets that are associated with the completion port as long as they are open.
    pub(super) former: Mutex<HashMap<Descriptor, Arc<Watched>>>,
    late: Mutex<DelayedPolls>,
    /// The number of threads that may sleep at the completion port.
    pub(super) sleepers: AtomicUsize,
    pub(super) files: FileService,
    pub(super) operations: OverlappedOperations,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The fault for a socket that is not attached, or no longer the one that was attached.
const NOT_ATTACHED: Fault = Fault { kind: ErrorKind::BadDescriptor, code: Some(WSAENOTSOCK) };

/// Returns whether a failed call is worth retrying.
fn is_passing(fault: &Fault) -> bool {
    fault.kind == ErrorKind::OutOfMemory
}

/// Starts Winsock. The standard library starts it too; Winsock counts the starts.
fn started() -> Result<(), Fault> {
    static CODE: OnceLock<WinsockCode> = OnceLock::new();
    const VERSION: u16 = 0x202;
    let code = CODE.get_or_init(|| {
        let mut data = MaybeUninit::<WSADATA>::uninit();
        // SAFETY: WSAStartup writes a description at the pointer.
        // - valid for writes: `data` is a local, which is not read.
        unsafe { WSAStartup(VERSION, data.as_mut_ptr()) }
    });
    if *code == 0 { Ok(()) } else { Err(fault_of(*code)) }
}

/// Makes one WSAIoctl without input that returns a socket.
fn related(descriptor: Descriptor, question: u32) -> Result<SOCKET, WinsockCode> {
    let mut answer: SOCKET = INVALID_SOCKET;
    let size = u32::try_from(size_of::<SOCKET>()).unwrap_or(0);
    let mut written = 0;
    // SAFETY: WSAIoctl writes at most as many bytes at the answer's pointer as the argument says,
    // and their number at the other pointer. It has no input, and has finished when it returns,
    // since it gets no OVERLAPPED.
    // - valid for writes: both are locals, and `size` is that of `answer`.
    let done = unsafe {
        WSAIoctl(
            socket(descriptor),
            question,
            ptr::null(),
            0,
            (&raw mut answer).cast(),
            size,
            &raw mut written,
            ptr::null_mut(),
            None,
        )
    };
    if done == 0 { Ok(answer) } else { Err(last_code()) }
}

/// Returns the driver's handle of the socket. Layered providers may have replaced it.
pub(super) fn base_of(descriptor: Descriptor) -> Result<SOCKET, Fault> {
    match related(descriptor, SIO_BASE_HANDLE) {
        Ok(base) => Ok(base),
        Err(WSAENOTSOCK) => Err(refusal(descriptor, WSAENOTSOCK)),
        // No provider should refuse the first ioctl, but some do. They do not refuse this one.
        Err(_) => {
            related(descriptor, SIO_BSP_HANDLE_POLL).map_err(|code| refusal(descriptor, code))
        }
    }
}

/// Returns why a number has no base socket.
fn refusal(descriptor: Descriptor, code: WinsockCode) -> Fault {
    let kind = match number(descriptor, SOL_SOCKET, SO_TYPE) {
        Ok(_) => return fault(descriptor, code),
        Err(_) if is_open(descriptor) => ErrorKind::NotPollable,
        Err(_) => ErrorKind::BadDescriptor,
    };
    Fault { kind, code: Some(code) }
}

impl Afd {
    pub(super) fn new(files: FileEngine) -> Result<Self, Fault> {
        started()?;
        let port = SystemPort::new()?;
        let device = Device::open(&port, POLLED)?;
        Ok(Self {
            port,
            device,
            sockets: Mutex::default(),
            former: Mutex::default(),
            late: Mutex::default(),
            sleepers: AtomicUsize::new(0),
            files: FileService::new(files),
            operations: OverlappedOperations::default(),
        })
    }

    fn find(&self, descriptor: Descriptor) -> Option<Arc<Watched>> {
        locked(&self.sockets).get(&descriptor).cloned()
    }

    /// Makes the sentinel request, with which the driver reports the closing of the socket.
    fn guard(&self, watched: &Arc<Watched>) -> Result<PendingPoll, Fault> {
        let owner = Owner::Sentinel(Arc::clone(watched));
        let made = self.device.submit(Poll::new(), owner, watched.base, event::LOCAL_CLOSE);
        made.map_err(|(_, fault)| fault)
    }

    /// Makes the missing sentinel request where no caller can get the error.
    ///
    /// A shortage of memory causes a retry.
    fn guard_or_owe(&self, watched: &Arc<Watched>, state: &mut State, moment: Moment) {
        match self.guard(watched) {
            Ok(pending) => state.sentinel = Some(Sentinel::PendingPoll(pending)),
            Err(fault) if is_passing(&fault) => {
                state.sentinel = Some(Sentinel::Owed);
                self.owe(watched, moment);
            }
            Err(_) => self.abandon(state),
        }
    }

    /// Schedules the retry of a request.
    ///
    /// A polling thread makes it: the caller is one, or wakes one.
    fn owe(&self, watched: &Arc<Watched>, moment: Moment) {
        locked(&self.late).sockets.push((moment + LATE, Arc::clone(watched)));
    }

    /// Checks whether the attached socket is still open, so its number names it.
    ///
    /// No closing goes unreported meanwhile.
    ///
    /// # Errors
    ///
    /// The system has no memory for the request. Nothing has changed.
    fn is_there(&self, watched: &Arc<Watched>, state: &mut State) -> Result<bool, Fault> {
        let Some(former) = state.sentinel.take() else { return Ok(false) };
        // Make the new sentinel first: if the former one is still pending afterwards, the socket
        // was not closed in between, and both watch the same socket.
        let next = match self.guard(watched) {
            Ok(next) => next,
            Err(fault) if is_passing(&fault) => {
                state.sentinel = Some(former);
                return Err(fault);
            }
            Err(_) => {
                self.abandon(state);
                return Ok(false);
            }
        };
        // Without a former sentinel, nothing is known about the time in between.
        if former.pending().is_none_or(|former| self.device.cancel(former)) {
            state.sentinel = Some(Sentinel::PendingPoll(next));
            return Ok(true);
        }
        // The former one has ended, so the socket was closed. The new one may watch another socket.
        self.device.cancel(&next);
        self.abandon(state);
        Ok(false)
    }

    /// Processes the detachment of a socket.
    ///
    /// If the socket stays associated with the completion port, it is kept in `former`: the
    /// association can neither be queried nor made again.
    fn part_with(&self, descriptor: Descriptor, watched: &Arc<Watched>) {
        let mut state = watched.state();
        if state.sentinel.is_none() || !matches!(state.carried, Some(Some(_))) {
            return self.abandon(&mut state);
        }
        if let Some(main) = &state.main {
            self.device.cancel(&main.pending);
        }
        state.is_detached = true;
        // With the state's lock: a thread that processes the closing afterwards finds the entry.
        locked(&self.former).insert(descriptor, Arc::clone(watched));
    }

    /// Removes a detached socket from `former` if it was closed.
    fn forget_if_closed(&self, watched: &Arc<Watched>, state: MutexGuard<'_, State>) {
        if !state.is_detached || state.sentinel.is_some() {
            return;
        }
        drop(state);
        let mut former = locked(&self.former);
        // Its number was its base: see `associate`.
        let descriptor = Descriptor::try_from(watched.base).unwrap_or(-1);
        if former.get(&descriptor).is_some_and(|it| Arc::ptr_eq(it, watched)) {
            former.remove(&descriptor);
        }
    }

    /// Returns what is known about operations on a socket that was attached before.
    fn remembered(&self, descriptor: Descriptor) -> Result<Option<Option<SystemTransfers>>, Fault> {
        let former = locked(&self.former).remove(&descriptor);
        let Some(former) = former else { return Ok(None) };
        let mut state = former.state();
        match self.is_there(&former, &mut state) {
            Ok(is_there) => {
                self.abandon(&mut state);
                Ok(if is_there { state.carried } else { None })
            }
            Err(fault) => {
                // With the state's lock, as in `part_with`.
                locked(&self.former).insert(descriptor, Arc::clone(&former));
                Err(fault)
            }
        }
    }

    /// Cancels all requests of a socket that was detached or closed.
    fn abandon(&self, state: &mut State) {
        let sentinel = state.sentinel.take();
        let main = state.main.as_ref().map(|main| &main.pending);
        for pending in sentinel.as_ref().and_then(Sentinel::pending).into_iter().chain(main) {
            self.device.cancel(pending);
        }
    }

    /// Makes the main request, when the driver has none.
    fn ask(&self, watched: &Arc<Watched>, state: &mut State) -> Result<(), Fault> {
        let events = polled(state.wanted, state.until) & !state.told;
        let memory = state.spare.take().unwrap_or_else(Poll::new);
        let owner = Owner::MainSet(Arc::clone(watched));
        match self.device.submit(memory, owner, watched.base, events) {
            Ok(pending) => {
                state.main = Some(MainSet { pending, events, is_old: false });
                Ok(())
            }
            Err((memory, fault)) => {
                state.spare = Some(memory);
                Err(fault)
            }
        }
    }

    /// Like [`Self::ask`], where no caller can get the error. A shortage of memory causes a retry.
    fn ask_or_owe(&self, watched: &Arc<Watched>, state: &mut State, moment: Moment) {
        match self.ask(watched, state) {
            Ok(()) => state.is_owed = false,
            Err(fault) if is_passing(&fault) => {
                state.is_owed = true;
                self.owe(watched, moment);
            }
            Err(_) => self.abandon(state),
        }
    }

    /// Polls a socket for the facts that the engine wants from now on.
    fn ask_for(
        &self,
        watched: &Arc<Watched>,
        state: &mut State,
        name: u64,
        wanted: Facts,
        until: Until,
    ) -> Result<(), Fault> {
        if state.sentinel.is_none() {
            return Err(NOT_ATTACHED);
        }
        (state.name, state.wanted, state.until, state.told) = (name, wanted, until, 0);
        state.is_owed = false;
        let Some(main) = &mut state.main else { return self.ask(watched, state) };
        // It may have been answered before this request. However it ends, the next one follows.
        main.is_old = true;
        let events = polled(wanted, until);
        if main.events & events != events {
            self.device.cancel(&main.pending);
        }
        Ok(())
    }

    /// Processes the end of a request.
    fn end(&self, mut ended: EndedPoll, moment: Moment) -> Option<Edge> {
        match ended.take_owner()? {
            Owner::Sentinel(watched) => {
                let mut state = watched.state();
                let pending = state.sentinel.as_ref().and_then(Sentinel::pending);
                let is_current = pending.is_some_and(|pending| pending.is(&ended));
                if is_current {
                    state.sentinel = None;
                }
                match ended.end() {
                    // Also for a former sentinel, whose end had not been reported when another one
                    // replaced it.
                    PollEnd::Told(_) => self.abandon(&mut state),
                    PollEnd::Void if is_current => self.guard_or_owe(&watched, &mut state, moment),
                    PollEnd::Failed if is_current => self.abandon(&mut state),
                    PollEnd::Void | PollEnd::Failed => {}
                }
                self.forget_if_closed(&watched, state);
                None
            }
            Owner::MainSet(watched) => {
                let mut state = watched.state();
                let main = state.main.take()?;
                let end = ended.end();
                state.spare = Some(ended.into_memory());
                self.answer(&watched, &mut state, &main, &end, moment)
            }
        }
    }

    /// Processes the end of the main request.
    fn answer(
        &self,
        watched: &Arc<Watched>,
        state: &mut State,
        main: &MainSet,
        end: &PollEnd,
        moment: Moment,
    ) -> Option<Edge> {
        if state.sentinel.is_none() || state.is_detached {
            return None;
        }
        let events = match end {
            PollEnd::Told(events) if events & event::LOCAL_CLOSE != 0 => {
                self.abandon(state);
                return None;
            }
            PollEnd::Told(events) if !main.is_old && facts(*events) != Facts::NONE => *events,
            PollEnd::Failed if !main.is_old => event::ABORT,
            _ => {
                self.ask_or_owe(watched, state, moment);
                return None;
            }
        };
        state.last = events;
        if state.until == Until::Detached {
            state.told |= events & STICKY;
            state.pause = match main.pending.was_ready {
                true => (2 * state.pause).clamp(SOON, LATE),
                false => Duration::ZERO,
            };
            let due = moment + state.pause;
            locked(&self.late).sockets.push((due, Arc::clone(watched)));
        }
        Some(Edge { facts: facts(events), name: state.name })
    }

    /// Polls the sockets again that are due.
    fn ask_late(&self, moment: Moment) {
        let mut late = locked(&self.late);
        if late.sockets.is_empty() {
            return;
        }
        let due: Vec<_> = late.sockets.extract_if(.., |(due, _)| *due <= moment).collect();
        drop(late);
        for (_, watched) in due {
            let mut state = watched.state();
            if matches!(state.sentinel, Some(Sentinel::Owed)) {
                self.guard_or_owe(&watched, &mut state, moment);
            }
            let is_attached = state.sentinel.is_some() && !state.is_detached;
            let is_due = state.until == Until::Detached || state.is_owed;
            if is_attached && state.main.is_none() && is_due {
                self.ask_or_owe(&watched, &mut state, moment);
            }
            self.forget_if_closed(&watched, state);
        }
    }

    /// Prepares the calling thread to sleep until `end` at most.
    ///
    /// If it must poll sockets again by then, this notes its wake-up time, and [`Afd::get_up`]
    /// removes it.
    fn lie_down(&self, end: Option<Moment>) -> Option<Moment> {
        let mut late = locked(&self.late);
        let next = late.next()?;
        let limit = end.map_or(next, |end| end.min(next));
        late.limits.push(limit);
        Some(limit)
    }

    /// Removes the wake-up time that a thread noted before it slept.
    fn get_up(&self, limit: Moment) {
        let limits = &mut locked(&self.late).limits;
        // Equal times are interchangeable.
        if let Some(place) = limits.iter().position(|noted| *noted == limit) {
            limits.swap_remove(place);
        }
    }

    /// Wakes another thread if none wakes in time to poll sockets again.
    ///
    /// The calling thread leaves the poll, so it will not do that itself.
    fn hand_on(&self) {
        if self.sleepers.load(SeqCst) == 0 {
            // The next thread that polls checks the list first. It counts itself before.
            return;
        }
        let mut late = locked(&self.late);
        if late.is_forgotten() {
            late.is_nudged = true;
            drop(late);
            self.port.post(NUDGE);
        }
    }

    /// Takes packets once, waiting at most `limit`.
    ///
    /// Returns their number, and whether one was a wake.
    fn take(&self, edges: &mut Vec<Edge>, limit: Option<Duration>) -> Result<(usize, bool), Fault> {
        let mut room = [const { MaybeUninit::uninit() }; ROOM];
        // A packet makes at most one edge.
        let most = (edges.capacity() - edges.len()).clamp(1, ROOM);
        let milliseconds = limit.map_or(u32::MAX, timeout::whole_milliseconds);
        let count = self.port.take(&mut room[..most], milliseconds)?;
        let moment = now();
        let mut woken = false;
        for place in &room[..count] {
            // SAFETY: `assume_init_read` requires an initialized value, which must not be used
            // twice if it owns something.
            // - `SystemPort::take` says that the first `count` were written; an entry owns nothing.
            let packet = CompletionPacket::from(unsafe { place.assume_init_read() });
            match packet {
                CompletionPacket::Posted(WAKE) => woken = true,
                // This thread checks the list before it sleeps again, or wakes another thread for
                // it.
                CompletionPacket::Posted(_) => locked(&self.late).is_nudged = false,
                CompletionPacket::Ended(overlapped, CARRIED) => {
                    let is_there = |descriptor| self.watches(descriptor);
                    let sign = |place| self.port.post_for(CARRIED, place);
                    if let Some(name) = self.operations.complete(overlapped.addr(), &sign, is_there)
                    {
                        edges.push(Edge { facts: Facts::NONE, name });
                    }
                }
                CompletionPacket::Ended(overlapped, _) => {
                    // SAFETY: `EndedPoll::take` requires an address that a packet of the device's
                    // port has just returned, once.
                    // - sockets are associated with `port` under `CARRIED`, posted packets with an
                    //   address have that key too, and nothing else but `device` is associated with
                    //   `port`; each packet is taken once.
                    let ended = unsafe { EndedPoll::take(overlapped, &self.device) };
                    edges.extend(self.end(ended, moment));
                }
            }
        }
        Ok((count, woken))
    }

    /// Takes packets until there is an edge or a wake, or the time has passed.
    ///
    /// Returns whether there was a wake.
    fn take_until(&self, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> Result<bool, Fault> {
        edges.clear();
        let sleeps = timeout != Some(Duration::ZERO);
        let end = timeout.and_then(|timeout| now().checked_add(timeout));
        let mut woken = false;
        loop {
            if sleeps {
                // Count first, then check the list: a thread that adds an entry afterwards sees the
                // count.
                self.sleepers.fetch_add(1, SeqCst);
            }
            let moment = now();
            self.ask_late(moment);
            let is_found = woken || !edges.is_empty();
            let noted = if sleeps && !is_found { self.lie_down(end) } else { None };
            let limit = match noted.or(end) {
                _ if is_found => Some(Duration::ZERO),
                Some(limit) => Some(limit.since(moment)),
                None => timeout,
            };
            let taken = self.take(edges, limit);
            if let Some(noted) = noted {
                self.get_up(noted);
            }
            if sleeps {
                self.sleepers.fetch_sub(1, SeqCst);
            }
            let (count, is_woken) = match taken {
                Ok(taken) => taken,
                Err(fault) if edges.is_empty() && !woken => return Err(fault),
                // Return the events that were taken first. A later poll will report the error.
                Err(_) => return Ok(woken),
            };
            woken |= is_woken;
            let is_full = edges.len() == edges.capacity();
            let is_found = woken || !edges.is_empty();
            // There may be more packets. A packet without an edge may have requested facts that
            // already hold.
            if is_full || (is_found && count < ROOM) {
                return Ok(woken);
            }
            if count == 0 && (is_found || end.is_some_and(|end| now() >= end)) {
                return Ok(woken);
            }
        }
    }

    /// Makes the socket non-blocking, unless it is known to be.
    pub(super) fn make_sure_not_to_wait(&self, descriptor: Descriptor) -> Result<(), WinsockCode> {
        let watched = self.find(descriptor);
        if watched.as_ref().is_some_and(|watched| watched.state().is_nonblocking) {
            return Ok(());
        }
        make_nonblocking(descriptor)?;
        if let Some(watched) = watched {
            watched.state().is_nonblocking = true;
        }
        Ok(())
    }

    /// Returns whether the kernel carries out operations on the socket.
    ///
    /// The first call decides it: it associates the socket with the completion port. It returns
    /// `None` for sockets that are associated with another port, were not opened for overlapped
    /// calls, have a layered provider, or are not of an IP family.
    pub(super) fn carries(&self, descriptor: Descriptor) -> Option<SystemTransfers> {
        let watched = self.find(descriptor)?;
        let mut state = watched.state();
        if state.carried.is_none() {
            state.carried = Some(watched.associate(descriptor, &self.port));
        }
        state.carried.flatten()
    }

    /// Returns whether the kernel carries out connects of the socket.
    pub(super) fn carries_connects(&self, descriptor: Descriptor) -> bool {
        self.carries(descriptor) == Some(SystemTransfers::Stream)
            && self.find(descriptor).is_some_and(|watched| !watched.state().begins_connects)
    }

    /// Notes that the kernel has refused a connect of the socket.
    pub(super) fn stop_carrying_connects(&self, descriptor: Descriptor) {
        if let Some(watched) = self.find(descriptor) {
            watched.state().begins_connects = true;
        }
    }

    /// Returns whether the last poll of the socket reported a failed connect.
    pub(super) fn has_failed_to_connect(&self, descriptor: Descriptor) -> bool {
        let watched = self.find(descriptor);
        watched.is_some_and(|watched| watched.state().last & event::CONNECT_FAIL != 0)
    }
}

/// Returns the number of bytes that can be read.
pub(super) fn unread(descriptor: Descriptor) -> Option<usize> {
    let mut count = 0;
    // SAFETY: ioctlsocket with FIONREAD writes one number at the pointer, or fails.
    // - valid for writes: `count` is a local.
    let done = unsafe { ioctlsocket(socket(descriptor), FIONREAD, &raw mut count) };
    if done == 0 { usize::try_from(count).ok() } else { None }
}

/// Returns the kind of object that the number names.
pub(super) fn kind(descriptor: Descriptor) -> DescriptorKind {
    match number(descriptor, SOL_SOCKET, SO_TYPE) {
        Ok(SOCK_STREAM) => DescriptorKind::Stream,
        Ok(SOCK_SEQPACKET) => DescriptorKind::Records,
        Ok(_) => DescriptorKind::Datagram,
        Err(_) => DescriptorKind::NoSocket,
    }
}

/// Makes a socket non-blocking. Calls with an OVERLAPPED can still wait.
pub(super) fn make_nonblocking(descriptor: Descriptor) -> Result<(), WinsockCode> {
    let mut on = 1;
    // SAFETY: ioctlsocket with FIONBIO reads one number at the pointer.
    // - valid for reads: `on` is a local.
    let done = unsafe { ioctlsocket(socket(descriptor), FIONBIO, &raw mut on) };
    if done == 0 { Ok(()) } else { Err(last_code()) }
}

impl Drop for Afd {
    fn drop(&mut self) {
        for all in [&self.sockets, &self.former] {
            for (_, watched) in locked(all).drain() {
                self.abandon(&mut watched.state());
            }
        }
        locked(&self.late).sockets.clear();
        self.operations.end();
        // Requests of detached and re-polled sockets are cancelled one by one. This cancels the
        // rest.
        let _ = self.device.cancel_all();
        let end = now() + LAST;
        let mut edges = Vec::new();
        while self.device.pending() + self.operations.pending() > 0 && now() < end {
            // No thread polls any more, and abandoned sockets make no further requests.
            if self.take(&mut edges, Some(SOON)).is_err() {
                break;
            }
        }
        // If the driver keeps a request for longer, its memory is never freed.
    }
}
