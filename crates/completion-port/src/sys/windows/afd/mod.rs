//! The back end of Windows: a kernel's completion port as the set, and polls by the driver of sockets.
//!
//! The driver answers a poll once, by level: as soon as something holds that was asked for, at once if it does
//! already. So the reactor is one-shot, and `Reactor::want` is one system call. Each socket has one such request
//! in flight at most, its *main* one, and another one, its *sentinel*, for as long as it is attached: that asks for
//! nothing but the closing of the socket, since its number may be given out again afterwards.
//!
//! The two are made with memory that the driver has until the completion port tells that they are over. So they own
//! the record of the socket, too; see [`Poll`].
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

use self::driver::{Device, End, EndedPoll, Flying, Owner, Poll, event};
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

/// Of what is posted: a wake.
const WAKE: usize = 1;
/// Of what is posted: a sleeper is to look when it has to get up.
const NUDGE: usize = 2;
/// Of what the driver completes.
const POLLED: usize = 3;
/// Of what sockets complete.
pub(super) const CARRIED: usize = 4;

/// `IPPROTO_UDP`, in a field that has another type.
const UDP: i32 = 17;

/// What goes on holding once it does.
const STICKY: u32 = event::DISCONNECT | event::ABORT | event::CONNECT_FAIL;

/// How soon a socket that is watched until it is detached is asked about again, if it was ready when it was last
/// asked about. The time doubles as long as it is.
pub(super) const SOON: Duration = Duration::from_millis(1);

/// How long that time becomes at most.
const LATE: Duration = Duration::from_millis(16);

/// How long the drop of a reactor waits for the requests that it has cancelled.
pub(super) const LAST: Duration = Duration::from_secs(5);

/// What a socket is polled for that is watched for what is `wanted`.
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

/// What the driver's answer says, in the words of epoll.
fn facts(events: u32) -> Facts {
    // After these a read and a write return at once.
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

/// A socket that is attached, or was, as long as the driver has requests of it.
pub(super) struct Watched {
    /// As the driver knows it, below whatever providers there are.
    base: SOCKET,
    state: Mutex<State>,
}

struct State {
    name: u64,
    wanted: Facts,
    until: Until,
    main: Option<Main>,
    /// The memory of the main request while none is in flight.
    spare: Option<Box<Poll>>,
    /// `None` once the socket is detached or closed.
    sentinel: Option<Sentinel>,
    /// What is asked for was granted, and the system was short of memory for the main request.
    is_owed: bool,
    /// What [`Until::Detached`] has brought already and would bring for ever.
    told: u32,
    /// How long that which is watched until it is detached is let be before it is asked about again.
    pause: Duration,
    /// What the last poll has told.
    last: u32,
    /// No operation on the socket waits.
    is_nonblocking: bool,
    /// Whether the kernel carries operations on the socket out; `None`: not known yet.
    carried: Option<Option<SystemTransfers>>,
    /// The kernel has declined a connect: the next attempt is to begin it.
    begins_connects: bool,
    /// The socket is attached no more, and nothing is asked of it but whether it is closed.
    is_detached: bool,
}

/// A socket on which the kernel carries operations out, by what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemTransfers {
    /// TCP.
    Stream,
    /// UDP.
    Datagrams,
}

impl SystemTransfers {
    /// What would be carried out on this socket.
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

    /// Whether a receive with so much room is carried out. A datagram would be taken though there is none.
    pub(super) fn carries_receive(self, room: &[&mut [MaybeUninit<u8>]]) -> bool {
        self == Self::Stream || room.iter().any(|part| !part.is_empty())
    }
}

/// The request that tells of the closing.
enum Sentinel {
    Flying(Flying),
    /// It ended without a word, and the system was short of memory for another one.
    Owed,
}

impl Sentinel {
    fn flying(&self) -> Option<&Flying> {
        match self {
            Self::Flying(flying) => Some(flying),
            Self::Owed => None,
        }
    }
}

struct Main {
    flying: Flying,
    events: u32,
    /// It was made for something else, or before the question was asked that is to be answered now. Its answer does
    /// not count, and another one takes its place.
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

/// What is asked about later, and which threads will.
#[derive(Default)]
struct Late {
    /// Sockets that are watched until they are detached and were reported, or that a request is owed to; and when they are
    /// asked about again.
    sockets: Vec<(Moment, Arc<Watched>)>,
    /// When each thread gets up that sleeps no longer than until the first of them is due, as it was when it lay down.
    limits: Vec<Moment>,
    /// A packet is on its way by which a thread comes to look here.
    is_nudged: bool,
}

impl Late {
    /// When the first one is due.
    fn next(&self) -> Option<Moment> {
        self.sockets.iter().map(|(due, _)| *due).min()
    }

    /// Whether no thread will be up in time that sleeps or is being called.
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
    /// Those that are detached, and associated with the completion port for as long as they are open.
    pub(super) former: Mutex<HashMap<Descriptor, Arc<Watched>>>,
    late: Mutex<Late>,
    /// Threads that may sleep at the completion port.
    pub(super) sleepers: AtomicUsize,
    pub(super) files: FileService,
    pub(super) operations: OverlappedOperations,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What refuses a call about a socket that is not attached, or is no longer what was attached.
const NOT_ATTACHED: Fault = Fault { kind: ErrorKind::BadDescriptor, code: Some(WSAENOTSOCK) };

/// Whether what has failed with this is worth another try.
fn is_passing(fault: &Fault) -> bool {
    fault.kind == ErrorKind::OutOfMemory
}

/// Whether Winsock is there. The standard library starts it as well; it counts how often.
fn started() -> Result<(), Fault> {
    static CODE: OnceLock<WinsockCode> = OnceLock::new();
    const VERSION: u16 = 0x202;
    let code = CODE.get_or_init(|| {
        let mut data = MaybeUninit::<WSADATA>::uninit();
        // SAFETY: WSAStartup writes what it has to tell at the pointer.
        // - valid for writes: `data` is a local, which is not read.
        unsafe { WSAStartup(VERSION, data.as_mut_ptr()) }
    });
    if *code == 0 { Ok(()) } else { Err(fault_of(*code)) }
}

/// One WSAIoctl that takes nothing and gives a socket.
fn related(descriptor: Descriptor, question: u32) -> Result<SOCKET, WinsockCode> {
    let mut answer: SOCKET = INVALID_SOCKET;
    let size = u32::try_from(size_of::<SOCKET>()).unwrap_or(0);
    let mut written = 0;
    // SAFETY: WSAIoctl writes at most as many bytes at the pointer of the answer as it is told, and their number at
    // the other one. It has no input, and is over when it returns, since it gets no OVERLAPPED.
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

/// The socket as the driver knows it. Providers may put themselves before it.
pub(super) fn base_of(descriptor: Descriptor) -> Result<SOCKET, Fault> {
    match related(descriptor, SIO_BASE_HANDLE) {
        Ok(base) => Ok(base),
        Err(WSAENOTSOCK) => Err(refusal(descriptor, WSAENOTSOCK)),
        // No provider should refuse the first question, and some do. This one they do not.
        Err(_) => {
            related(descriptor, SIO_BSP_HANDLE_POLL).map_err(|code| refusal(descriptor, code))
        }
    }
}

/// Why there is no base of what has this number.
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

    /// Makes the request by which the driver tells that the socket is closed.
    fn guard(&self, watched: &Arc<Watched>) -> Result<Flying, Fault> {
        let owner = Owner::Sentinel(Arc::clone(watched));
        let made = self.device.submit(Poll::new(), owner, watched.base, event::LOCAL_CLOSE);
        made.map_err(|(_, fault)| fault)
    }

    /// Makes it where there is none, and nobody is told of a failure. If the system is short of memory it is made later.
    fn guard_or_owe(&self, watched: &Arc<Watched>, state: &mut State, moment: Moment) {
        match self.guard(watched) {
            Ok(flying) => state.sentinel = Some(Sentinel::Flying(flying)),
            Err(fault) if is_passing(&fault) => {
                state.sentinel = Some(Sentinel::Owed);
                self.owe(watched, moment);
            }
            Err(_) => self.abandon(state),
        }
    }

    /// Has a request made later. A thread that polls sees to it, which the caller is, or tells.
    fn owe(&self, watched: &Arc<Watched>, moment: Moment) {
        locked(&self.late).sockets.push((moment + LATE, Arc::clone(watched)));
    }

    /// Whether what was attached is open still, and so the number names it. No time is lost in which a closing
    /// would not be told.
    ///
    /// # Errors
    ///
    /// The system is short of memory for the question. Nothing has changed.
    fn is_there(&self, watched: &Arc<Watched>, state: &mut State) -> Result<bool, Fault> {
        let Some(former) = state.sentinel.take() else { return Ok(false) };
        // First another one: if the former is still in flight afterwards, the socket was not closed in between, and
        // so it is the same that both are about.
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
        // Where there was none nothing can be known of the time in between.
        if former.flying().is_none_or(|former| self.device.cancel(former)) {
            state.sentinel = Some(Sentinel::Flying(next));
            return Ok(true);
        }
        // It is over, so the socket was closed. The next one may be about another socket.
        self.device.cancel(&next);
        self.abandon(state);
        Ok(false)
    }

    /// The socket was detached. If it stays associated with the completion port that is remembered: the association cannot
    /// be asked for, nor made once more.
    fn part_with(&self, descriptor: Descriptor, watched: &Arc<Watched>) {
        let mut state = watched.state();
        if state.sentinel.is_none() || !matches!(state.carried, Some(Some(_))) {
            return self.abandon(&mut state);
        }
        if let Some(main) = &state.main {
            self.device.cancel(&main.flying);
        }
        state.is_detached = true;
        // With the lock: a thread that is told of its closing afterwards finds it there.
        locked(&self.former).insert(descriptor, Arc::clone(watched));
    }

    /// If a socket that is detached was closed, it is remembered no longer.
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

    /// What is known of operations on a socket that is being attached, if it was attached before.
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
                // With the lock, as in `part_with`.
                locked(&self.former).insert(descriptor, Arc::clone(&former));
                Err(fault)
            }
        }
    }

    /// The socket was detached or closed.
    fn abandon(&self, state: &mut State) {
        let sentinel = state.sentinel.take();
        let main = state.main.as_ref().map(|main| &main.flying);
        for flying in sentinel.as_ref().and_then(Sentinel::flying).into_iter().chain(main) {
            self.device.cancel(flying);
        }
    }

    /// Makes the main request, where none is in flight.
    fn ask(&self, watched: &Arc<Watched>, state: &mut State) -> Result<(), Fault> {
        let events = polled(state.wanted, state.until) & !state.told;
        let memory = state.spare.take().unwrap_or_else(Poll::new);
        let owner = Owner::Main(Arc::clone(watched));
        match self.device.submit(memory, owner, watched.base, events) {
            Ok(flying) => {
                state.main = Some(Main { flying, events, is_old: false });
                Ok(())
            }
            Err((memory, fault)) => {
                state.spare = Some(memory);
                Err(fault)
            }
        }
    }

    /// The same where nobody is told of a failure. If the system is short of memory it is asked later.
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

    /// Asks for what is wanted of a socket from now on.
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
        // It may have been answered before this question. Whichever way it ends, the next one follows.
        main.is_old = true;
        let events = polled(wanted, until);
        if main.events & events != events {
            self.device.cancel(&main.flying);
        }
        Ok(())
    }

    /// What a request has come to.
    fn end(&self, mut ended: EndedPoll, moment: Moment) -> Option<Edge> {
        match ended.take_owner()? {
            Owner::Sentinel(watched) => {
                let mut state = watched.state();
                let flying = state.sentinel.as_ref().and_then(Sentinel::flying);
                let is_current = flying.is_some_and(|flying| flying.is(&ended));
                if is_current {
                    state.sentinel = None;
                }
                match ended.end() {
                    // Also by a former one, whose end was not told yet when another took its place.
                    End::Told(_) => self.abandon(&mut state),
                    End::Void if is_current => self.guard_or_owe(&watched, &mut state, moment),
                    End::Failed if is_current => self.abandon(&mut state),
                    End::Void | End::Failed => {}
                }
                self.forget_if_closed(&watched, state);
                None
            }
            Owner::Main(watched) => {
                let mut state = watched.state();
                let main = state.main.take()?;
                let end = ended.end();
                state.spare = Some(ended.into_memory());
                self.answer(&watched, &mut state, &main, &end, moment)
            }
        }
    }

    /// The main request is over.
    fn answer(
        &self,
        watched: &Arc<Watched>,
        state: &mut State,
        main: &Main,
        end: &End,
        moment: Moment,
    ) -> Option<Edge> {
        if state.sentinel.is_none() || state.is_detached {
            return None;
        }
        let events = match end {
            End::Told(events) if events & event::LOCAL_CLOSE != 0 => {
                self.abandon(state);
                return None;
            }
            End::Told(events) if !main.is_old && facts(*events) != Facts::NONE => *events,
            End::Failed if !main.is_old => event::ABORT,
            _ => {
                self.ask_or_owe(watched, state, moment);
                return None;
            }
        };
        state.last = events;
        if state.until == Until::Detached {
            state.told |= events & STICKY;
            state.pause = match main.flying.was_ready {
                true => (2 * state.pause).clamp(SOON, LATE),
                false => Duration::ZERO,
            };
            let due = moment + state.pause;
            locked(&self.late).sockets.push((due, Arc::clone(watched)));
        }
        Some(Edge { facts: facts(events), name: state.name })
    }

    /// Asks again about the sockets whose time has come.
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

    /// The calling thread lies down, to be back at `end` at the latest. If it is to look after sockets before that, or then,
    /// this is noted, and taken back by [`Afd::get_up`].
    fn lie_down(&self, end: Option<Moment>) -> Option<Moment> {
        let mut late = locked(&self.late);
        let next = late.next()?;
        let limit = end.map_or(next, |end| end.min(next));
        late.limits.push(limit);
        Some(limit)
    }

    /// A thread is up again that had noted this.
    fn get_up(&self, limit: Moment) {
        let limits = &mut locked(&self.late).limits;
        // Those of the same time are not told apart, and need not be.
        if let Some(place) = limits.iter().position(|noted| *noted == limit) {
            limits.swap_remove(place);
        }
    }

    /// The calling thread does not look after sockets any more. If no other one will be up in time, one is called.
    fn hand_on(&self) {
        if self.sleepers.load(SeqCst) == 0 {
            // The next thread that comes looks first. It is counted before.
            return;
        }
        let mut late = locked(&self.late);
        if late.is_forgotten() {
            late.is_nudged = true;
            drop(late);
            self.port.post(NUDGE);
        }
    }

    /// Takes packets once, for at most so long. Returns how many there were, and whether a wake was among them.
    fn take(&self, edges: &mut Vec<Edge>, limit: Option<Duration>) -> Result<(usize, bool), Fault> {
        let mut room = [const { MaybeUninit::uninit() }; ROOM];
        // A packet gives one edge at most.
        let most = (edges.capacity() - edges.len()).clamp(1, ROOM);
        let milliseconds = limit.map_or(u32::MAX, timeout::whole_milliseconds);
        let count = self.port.take(&mut room[..most], milliseconds)?;
        let moment = now();
        let mut woken = false;
        for place in &room[..count] {
            // SAFETY: `assume_init_read` demands a value, which must not be used twice if it owns something.
            // - `SystemPort::take` says that the first `count` have been written; an entry owns nothing.
            let packet = CompletionPacket::from(unsafe { place.assume_init_read() });
            match packet {
                CompletionPacket::Posted(WAKE) => woken = true,
                // This thread lies down again, and looks before it does, or hands on.
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
                    // SAFETY: `EndedPoll::take` demands an address that a packet of the device's port has brought just
                    // now, once.
                    // - sockets are associated with `port` by another key, what is posted there without one has no
                    //   address, and nothing else but `device` is associated with it; each packet is taken once.
                    let ended = unsafe { EndedPoll::take(overlapped, &self.device) };
                    edges.extend(self.end(ended, moment));
                }
            }
        }
        Ok((count, woken))
    }

    /// Takes packets until there is something to tell, or the time is over. Returns whether a wake was among them.
    fn take_until(&self, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> Result<bool, Fault> {
        edges.clear();
        let sleeps = timeout != Some(Duration::ZERO);
        let end = timeout.and_then(|timeout| now().checked_add(timeout));
        let mut woken = false;
        loop {
            if sleeps {
                // Counted before the list is looked at: who adds to it afterwards sees that.
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
                // The events that were taken go first.
                Err(_) => return Ok(woken),
            };
            woken |= is_woken;
            let is_full = edges.len() == edges.capacity();
            let is_found = woken || !edges.is_empty();
            // There may be more. And what has brought nothing may have asked for what holds.
            if is_full || (is_found && count < ROOM) {
                return Ok(woken);
            }
            if count == 0 && (is_found || end.is_some_and(|end| now() >= end)) {
                return Ok(woken);
            }
        }
    }

    /// Whether the socket's operations are known not to wait. They are made so on the first question.
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

    /// Whether the kernel carries operations on the socket out: that is settled by the first question, which associates the
    /// socket with the completion port. Other ways are taken for what is associated with another one, was opened for no
    /// overlapped calls, has another provider before the system's, or is of a family other than those of IP.
    pub(super) fn carries(&self, descriptor: Descriptor) -> Option<SystemTransfers> {
        let watched = self.find(descriptor)?;
        let mut state = watched.state();
        if state.carried.is_none() {
            state.carried = Some(watched.associate(descriptor, &self.port));
        }
        state.carried.flatten()
    }

    /// Whether a connect of the socket is handed to the kernel.
    pub(super) fn carries_connects(&self, descriptor: Descriptor) -> bool {
        self.carries(descriptor) == Some(SystemTransfers::Stream)
            && self.find(descriptor).is_some_and(|watched| !watched.state().begins_connects)
    }

    /// The kernel has declined a connect of the socket.
    pub(super) fn stop_carrying_connects(&self, descriptor: Descriptor) {
        if let Some(watched) = self.find(descriptor) {
            watched.state().begins_connects = true;
        }
    }

    /// Whether the last poll of the socket has told that a connect has failed.
    pub(super) fn has_failed_to_connect(&self, descriptor: Descriptor) -> bool {
        let watched = self.find(descriptor);
        watched.is_some_and(|watched| watched.state().last & event::CONNECT_FAIL != 0)
    }
}

/// How many bytes can be read.
pub(super) fn unread(descriptor: Descriptor) -> Option<usize> {
    let mut count = 0;
    // SAFETY: ioctlsocket with FIONREAD writes one number at the pointer, or fails.
    // - valid for writes: `count` is a local.
    let done = unsafe { ioctlsocket(socket(descriptor), FIONREAD, &raw mut count) };
    if done == 0 { usize::try_from(count).ok() } else { None }
}

/// What kind of object the number names.
pub(super) fn kind(descriptor: Descriptor) -> DescriptorKind {
    match number(descriptor, SOL_SOCKET, SO_TYPE) {
        Ok(SOCK_STREAM) => DescriptorKind::Stream,
        Ok(SOCK_SEQPACKET) => DescriptorKind::Records,
        Ok(_) => DescriptorKind::Datagram,
        Err(_) => DescriptorKind::NoSocket,
    }
}

/// From now on nothing that is done on the socket waits, unless it is done with an OVERLAPPED.
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
        // Requests of sockets that were detached or are asked about anew are cancelled one by one. All the same:
        let _ = self.device.cancel_all();
        let end = now() + LAST;
        let mut edges = Vec::new();
        while self.device.flying() + self.operations.flying() > 0 && now() < end {
            // No thread polls any more. What would be asked anew has been abandoned.
            if self.take(&mut edges, Some(SOON)).is_err() {
                break;
            }
        }
        // If the driver keeps a request for longer, its memory is never freed.
    }
}
