//! Overlapped accepts and connects: `AcceptEx`, `ConnectEx` and related calls.
//!
//! An accept takes a socket that the program has created. The connection replaces that socket: it
//! gets its number, its association and its options. If the number names something else by then,
//! the connection is closed.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use completion_port::raw::{Attempt, Side};
use libc::{iovec, sockaddr, socklen_t};

use crate::abi::Overlapped;
use crate::errors::{code, guarded};
use crate::linux::descriptors::{
    self, is_bound, is_connected, is_local, is_own_peer, is_unused, listens,
};
use crate::linux::errno::{Signals, code_of_errno};
use crate::linux::numbers::{
    self, Acceptance, Associated, LISTENS, Number, OPTIONS, READING_SHUT, RECEIVE_ROOM, SEND_ROOM,
    State, UNUSED, has_shut_reading,
};
use crate::linux::operations::{Next, Target, Work, answered, move_registration};
use crate::linux::port::{Begun, Outcome, Told};
use crate::linux::sockets::{errno, is_unspecified, note_use};
use crate::linux::starting::{Start, start};
use crate::linux::transfers::{Address, Parts, Receiving, Sending, repeated};
use crate::linux::{memory, registrations, sharing};

/// Additional bytes in each address block of the reference.
const BESIDE_ADDRESS: u32 = 16;

/// The status flags of a new socket without options.
const OF_NEW: c_int = libc::O_RDWR;

/// The descriptor of a SOCKET; a closed one if it cannot be a descriptor.
pub(crate) fn descriptor_of(socket: usize) -> RawFd {
    RawFd::try_from(socket).unwrap_or(-1)
}

/// Replaces the socket that `descriptor` names with `made`, a new one. Its entry is locked, and
/// keeps the association, the choices and the registration. `is_tcp` if it is known to be a stream.
/// If an operation `begins`, it starts immediately. The caller reports the operations that have
/// ended. If the system refuses, the number keeps its former state.
pub(crate) fn replace(
    state: &mut State,
    number: &'static Number,
    descriptor: RawFd,
    made: &OwnedFd,
    is_tcp: bool,
    begins: bool,
) -> (registrations::Ended, Result<(), c_int>) {
    let was_vouched = number.is_vouched();
    let State { associated, registered, chosen, .. } = *state;
    let options = number.options();
    let ended = number.retire_locked(state, registrations::end);
    let done = number.with_blocking_kept(|| {
        // SAFETY: fcntl(2) with F_GETFD demands nothing of memory.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
        let status = if options & UNUSED != 0 {
            OF_NEW
        } else {
            // SAFETY: as above, with F_GETFL.
            unsafe { libc::fcntl(descriptor, libc::F_GETFL) }
        };
        if flags < 0 || status < 0 {
            return Err(errno());
        }
        if status != OF_NEW {
            // SAFETY: fcntl(2) with F_SETFL demands nothing of memory.
            unsafe { libc::fcntl(made.as_raw_fd(), libc::F_SETFL, status) };
        }
        let inherited = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        // SAFETY: dup3(2) demands that what `descriptor` was is not used any more.
        // - it is the program's, which has lent it for this; no operation on it is being attempted
        //   any more.
        let done = unsafe { libc::dup3(made.as_raw_fd(), descriptor, inherited) };
        if done < 0 { Err(errno()) } else { Ok(()) }
    });
    if was_vouched {
        number.vouch();
    }
    // The identity of the connection, by the number that only this library knows: the program may
    // close the other one unnoticed.
    let named = if done.is_ok() { made.as_raw_fd() } else { descriptor };
    let identity = descriptors::identity(named);
    state.tcp = Some(identity).filter(|_| is_tcp && done.is_ok());
    state.associated = associated.map(|it| Associated { identity, ..it });
    state.chosen = chosen.handed_on(identity);
    // The carried options, to be carried again next time. The reading half of `made` is open.
    number.set_options(options & !(READING_SHUT | UNUSED));
    move_registration(state, number, descriptor, registered, begins && done.is_ok());
    (ended, done)
}

/// An option of sockets: level, name, and maximum size of its value.
pub(crate) type Choice = (c_int, c_int, usize);

/// The options that a connection inherits from the socket given to its accept.
const CARRIED: [Choice; 14] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 4),
    (libc::SOL_SOCKET, libc::SO_LINGER, 8),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE, 4),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE, 4),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO, 16),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO, 16),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY, 4),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 4),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 4),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4),
    (libc::IPPROTO_IP, libc::IP_TOS, 4),
    (libc::IPPROTO_IP, libc::IP_TTL, 4),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, 4),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 4),
];

/// The value of an option, if the socket has it.
pub(crate) fn option(
    descriptor: RawFd,
    (level, name, room): Choice,
) -> Option<([u8; 16], socklen_t)> {
    let mut value = [0_u8; 16];
    let mut size = socklen_t::try_from(room).ok()?;
    let place = value.as_mut_ptr().cast::<c_void>();
    // SAFETY: getsockopt(2) writes at most `size` bytes at the value's pointer, and the size at the
    // other.
    // - valid: both are locals, and the value has at least that many bytes, as `CARRIED` says.
    let done = unsafe { libc::getsockopt(descriptor, level, name, place, &raw mut size) };
    (done == 0).then_some((value, size))
}

/// Copies to `to` the options that the program has set on `from`, whose entry is `number`.
pub(crate) fn carry_options(number: &Number, from: RawFd, to: RawFd) {
    let set = number.options() & (OPTIONS | SEND_ROOM | RECEIVE_ROOM);
    if set == 0 {
        return;
    }
    for choice in CARRIED {
        let (Some(wanted), Some(present)) = (option(from, choice), option(to, choice)) else {
            continue;
        };
        if wanted != present {
            let (value, size) = wanted;
            set_option(to, choice, &value[..size as usize]);
        }
    }
    // Without a requested buffer size, the system chooses it for the connection.
    for (sort, name) in [(SEND_ROOM, libc::SO_SNDBUF), (RECEIVE_ROOM, libc::SO_RCVBUF)] {
        if set & sort != 0
            && let Some(room) = whole(from, name)
        {
            // The system returns twice the requested size.
            set_option(to, (libc::SOL_SOCKET, name, 4), &(room / 2).to_ne_bytes());
        }
    }
}

/// Sets an option, if the socket has it.
pub(crate) fn set_option(descriptor: RawFd, (level, name, _): Choice, value: &[u8]) {
    let size = socklen_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: setsockopt(2) reads `size` bytes at the pointer.
    // - valid for reads: that is how long the slice is.
    unsafe { libc::setsockopt(descriptor, level, name, value.as_ptr().cast(), size) };
}

/// An option of sockets that is a whole number.
pub(crate) fn whole(descriptor: RawFd, name: c_int) -> Option<c_int> {
    let (value, _) = option(descriptor, (libc::SOL_SOCKET, name, 4))?;
    let [one, two, three, four, ..] = value;
    Some(c_int::from_ne_bytes([one, two, three, four]))
}

/// An accept's claim on the socket that is to become its connection, stored in that number's entry.
struct Claim {
    number: &'static Number,
    known: Acceptance,
    /// The entry no longer has it.
    is_over: bool,
}

impl Claim {
    /// Claims `descriptor`, which is this number, for an accept about to start. Fails if another
    /// accept has the socket.
    fn new(number: &'static Number, descriptor: RawFd, known: Acceptance) -> Result<Self, u32> {
        let mut state = number.lock();
        if state.is_closing(descriptor) {
            return Err(code::WSAENOTSOCK);
        }
        if state.accept.is_some() {
            return Err(code::WSAEINVAL);
        }
        state.accept = Some(known);
        Ok(Self { number, known, is_over: false })
    }

    fn give_up(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            let mut state = self.number.lock();
            state.accept = state.accept.filter(|accept| *accept != self.known);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// An accept.
struct Accepting {
    accept: RawFd,
    /// `None` after the end, or once the receive of first data has it.
    claim: Option<Claim>,
    /// The [identity](descriptors::identity) of the socket given for the connection; `None` until the
    /// accept becomes a task. One that ends within its call isn't checked.
    identity: Option<u64>,
    room: Room,
    /// The connection, and the size of its peer's address, which is in the room.
    connection: Option<(OwnedFd, socklen_t)>,
}

/// Where the first data and the addresses are stored. The block of the local address may be empty.
#[derive(Clone, Copy)]
struct Room {
    place: *mut u8,
    data: u32,
    local: u32,
    remote: u32,
}

// SAFETY: the room may be used by a thread other than its creator, although it is a pointer.
// - the memory is the operation's until its end, as `cp_accept_ex` demands.
unsafe impl Send for Room {}

impl Room {
    /// The two address blocks: start and length.
    fn blocks(self) -> [(*mut u8, u32); 2] {
        let local = self.place.wrapping_add(self.data as usize);
        [(local, self.local), (local.wrapping_add(self.local as usize), self.remote)]
    }

    /// Calls `ask`, which stores an address in a block if possible. Passes the maximum size.
    fn put(
        (place, block): (*mut u8, u32),
        ask: impl FnOnce(*mut sockaddr, *mut socklen_t) -> c_int,
    ) -> (c_int, socklen_t) {
        let most = block - BESIDE_ADDRESS;
        let mut size = most;
        let done = ask(place.cast(), &raw mut size);
        (done, if done < 0 { 0 } else { size.min(most) })
    }

    /// Stores the size of an address at the end of its block.
    fn note((place, block): (*mut u8, u32), size: socklen_t) {
        let end = place.wrapping_add(block as usize - size_of::<u32>());
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the block is the operation's, as `cp_accept_ex` demands, and has that many bytes after
        //   the address.
        unsafe { end.cast::<u32>().write_unaligned(size) };
    }
}

/// Maximum number of connections that one attempt skips. A permanent error would otherwise never
/// let it end.
const PASSED_OVER: usize = 64;

impl Work for Accepting {
    /// The receive of first data, which follows it, needs it there.
    fn is_listed(&self) -> bool {
        self.room.data > 0
    }

    /// All threads of a server start accepts on one listener, and each takes several system calls.
    fn starts_unlocked(&self) -> bool {
        !self.is_listed()
    }

    fn prepare_socket(&self, number: &Number, descriptor: RawFd) -> Result<(), u32> {
        if !is_listener(number, descriptor)? {
            return Err(code::WSAEINVAL);
        }
        let is_believed = registrations::is_believed(number);
        // From here on accepts on the listener never block.
        if number.need_nonblocking(descriptor, is_believed) {
            Ok(())
        } else {
            Err(code::WSAENOTSOCK)
        }
    }

    fn becomes_task(&mut self) {
        self.identity = Some(descriptors::identity(self.accept));
    }

    fn attempt(&mut self, listener: RawFd, outcome: &mut Outcome) -> Attempt {
        let (mut signals, mut passed_over) = (Signals::default(), 0);
        loop {
            let [_, remote] = self.room.blocks();
            let (made, length) = Room::put(remote, |address, size| {
                // SAFETY: accept4(2) writes at most `size` bytes at the address's pointer, and the size at the other.
                // - valid: the block is the operation's, as `cp_accept_ex` demands, and has more bytes than that.
                unsafe { libc::accept4(listener, address, size, libc::SOCK_CLOEXEC) }
            });
            if made >= 0 {
                // SAFETY: `from_raw_fd` demands a descriptor that has no other owner.
                // - the call has just created it.
                self.connection = Some((unsafe { OwnedFd::from_raw_fd(made) }, length));
                return Attempt::Done;
            }
            match errno() {
                // The peer has given up the connection. Another one may be queued.
                libc::ECONNABORTED | libc::EPROTO => {
                    passed_over += 1;
                    if passed_over == PASSED_OVER {
                        return Attempt::OutOfResources;
                    }
                }
                errno if signals.ended(errno) => {}
                libc::EAGAIN if has_shut_reading(listener) => {
                    outcome.errno = libc::EINVAL;
                    return Attempt::Done;
                }
                libc::EAGAIN => return Attempt::Blocked,
                libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => {
                    return Attempt::OutOfResources;
                }
                errno => {
                    outcome.errno = errno;
                    return Attempt::Done;
                }
            }
        }
    }

    fn finish(&mut self, _: Target, mut outcome: Outcome) -> Outcome {
        let Some((connection, length)) = self.connection.take() else {
            self.give_up();
            return outcome;
        };
        let Some(mut claim) = self.claim.take() else { return outcome };
        let [local, remote] = self.room.blocks();
        Room::note(remote, length);
        if self.room.local > 0 {
            let (_, length) = Room::put(local, |address, size| {
                // SAFETY: getsockname(2) writes at most `size` bytes at the address's pointer, and the size at the other.
                // - valid: the block is the operation's, as `cp_accept_ex` demands, and has more bytes than that.
                unsafe { libc::getsockname(connection.as_raw_fd(), address, size) }
            });
            Room::note(local, length);
        }
        let data = self.room.data;
        let Claim { number, known, .. } = claim;
        let mut state = number.lock();
        // A thread that closes the socket first removes the accept from the entry, under the lock.
        // After that the number may belong to another socket.
        let is_known = state.accept == Some(known);
        let is_another = |identity| descriptors::identity(self.accept) != identity;
        if !is_known || self.identity.is_some_and(is_another) {
            drop(state);
            // The connection is closed, too.
            outcome.errno = libc::ECANCELED;
            return outcome;
        }
        carry_options(number, self.accept, connection.as_raw_fd());
        // The replaced socket's operations end, but not the accept.
        state.accept = None;
        // A connection has the type of its listener.
        let is_tcp = outcome.is_tcp;
        let (ended, replaced) =
            replace(&mut state, number, self.accept, &connection, is_tcp, data > 0);
        if replaced.is_ok() {
            state.begin_connection();
        }
        if replaced.is_ok() && data > 0 {
            state.accept = Some(known);
            self.claim = Some(claim);
        } else {
            claim.is_over = true;
        }
        drop(state);
        ended.tell();
        if let Err(errno) = replaced {
            outcome.errno = errno;
        }
        outcome
    }

    fn succeeds_by_packet(&self) -> bool {
        true
    }

    /// Another accept may have the socket.
    fn give_up(&mut self) {
        self.claim = None;
    }

    fn next(&mut self) -> Option<Next> {
        let Room { place, data, .. } = self.room;
        let claim = self.claim.take()?;
        let accept = claim.known;
        let part = iovec { iov_base: place.cast(), iov_len: data as usize };
        let receiving = Receiving::plain(Parts::One(part));
        let work = Box::new(FirstData { receiving, claim });
        Some(Next { descriptor: self.accept, accept, work })
    }
}

/// The first data of an accepted connection. Closing the socket still cancels the accept.
struct FirstData {
    receiving: Receiving,
    claim: Claim,
}

impl Work for FirstData {
    fn attempt(&mut self, descriptor: RawFd, outcome: &mut Outcome) -> Attempt {
        self.receiving.attempt(descriptor, outcome)
    }

    fn finish(&mut self, target: Target, outcome: Outcome) -> Outcome {
        self.claim.give_up();
        self.receiving.finish(target, outcome)
    }

    fn give_up(&mut self) {
        self.claim.give_up();
    }

    fn status(&self, target: Target, errno: c_int) -> u32 {
        self.receiving.status(target, errno)
    }
}

/// Gives each accept a unique name.
static ACCEPTS: AtomicU64 = AtomicU64::new(1);

/// Converts a result to the BOOL of a call.
pub(crate) fn is_done(answer: c_int) -> c_int {
    c_int::from(answer == 0)
}

/// Whether a socket listens. Asks the system each time, unless the library has seen it listen and
/// would have seen its shutdown.
fn is_listener(number: &Number, descriptor: RawFd) -> Result<bool, u32> {
    if number.options() & LISTENS != 0 && registrations::is_believed(number) {
        return Ok(true);
    }
    let is_listener = listens(descriptor).ok_or(code::WSAENOTSOCK)?;
    if is_listener {
        number.set_options(LISTENS);
    }
    Ok(is_listener)
}

/// `AcceptEx`.
///
/// # Safety
///
/// `overlapped`, and `place` with room for the sum of the three sizes, stay valid until the
/// operation ends. `received` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_accept_ex(
    listener: usize,
    accept: usize,
    place: *mut c_void,
    data: u32,
    local: u32,
    remote: u32,
    received: *mut u32,
    overlapped: *mut c_void,
) -> c_int {
    let begin = || {
        let (listener, accept) = (descriptor_of(listener), descriptor_of(accept));
        if overlapped.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        let of_listener = numbers::entry(listener).ok_or(code::WSAENOTSOCK)?;
        let is_listener = is_listener(of_listener, listener)?;
        let number = numbers::entry(accept).ok_or(code::WSAENOTSOCK)?;
        let is_new = number.options() & UNUSED != 0 && registrations::is_believed(number);
        let kind = match is_new {
            true => libc::SOCK_STREAM,
            false => descriptors::kind(accept).ok_or(code::WSAENOTSOCK)?,
        };
        if !memory::may_be(place) {
            return Err(code::WSAEFAULT);
        }
        let least = of_listener.size_of_address(listener, registrations::is_believed(of_listener));
        let is_short = |block: u32| block < BESIDE_ADDRESS + least;
        // The local address may be left out.
        if !is_listener || is_short(remote) || local > 0 && is_short(local) {
            return Err(code::WSAEINVAL);
        }
        if kind != libc::SOCK_STREAM || !(is_new || is_unused(accept)) {
            return Err(code::WSAEINVAL);
        }
        let name = ACCEPTS.fetch_add(1, Relaxed);
        let known = Acceptance { listener, overlapped: overlapped.addr(), name };
        let accepting = Accepting {
            accept,
            claim: Some(Claim::new(number, accept, known)?),
            identity: None,
            room: Room { place: place.cast(), data, local, remote },
            connection: None,
        };
        let how = Start {
            descriptor: listener,
            overlapped: overlapped.cast::<Overlapped>(),
            side: Side::In,
            tells_flags: false,
            told: Told::bytes(received),
            accept: name,
        };
        // SAFETY: `start` demands an OVERLAPPED that stays valid until the operation ends.
        // - the caller guarantees it, also for `received`.
        let begun = unsafe { start(how, accepting) };
        if matches!(begun, Ok(Begun::Pending)) && number.lock().accept != Some(known) {
            // The accept has already ended, or another thread has closed its socket before the accept
            // was in flight.
            registrations::cancel_accept(known);
        }
        begun
    };
    guarded(0, || is_done(answered(begin())))
}

/// `GetAcceptExSockaddrs`.
///
/// # Safety
///
/// `place` points to memory that an accept with these sizes has filled. The other pointers are null
/// or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_accepted_addresses(
    place: *mut c_void,
    data: u32,
    local: u32,
    remote: u32,
    local_address: *mut *mut sockaddr,
    local_size: *mut c_int,
    remote_address: *mut *mut sockaddr,
    remote_size: *mut c_int,
) {
    let place = place.cast::<u8>();
    for (offset, block, address, size) in [
        (data as usize, local as usize, local_address, local_size),
        (data as usize + local as usize, remote as usize, remote_address, remote_size),
    ] {
        let start = place.wrapping_add(offset);
        if block == 0 {
            // The accept had no room for this one.
            continue;
        }
        if !address.is_null() {
            // SAFETY: writing through a raw pointer demands that it is valid.
            // - the caller guarantees it for a non-null pointer.
            unsafe { address.write(start.cast()) };
        }
        if !size.is_null() && block >= size_of::<u32>() {
            let end = start.wrapping_add(block - size_of::<u32>());
            // SAFETY: reading through a raw pointer demands that it is valid.
            // - the caller guarantees that the block was filled.
            let told = unsafe { end.cast::<u32>().read_unaligned() };
            // SAFETY: as above.
            unsafe { size.write(c_int::try_from(told).unwrap_or(0)) };
        }
    }
}

/// A connect, with optional data to send after it.
struct Connecting {
    address: Address,
    /// A non-blocking `connect` of the program is already in progress.
    is_late: bool,
    is_begun: bool,
    is_connected: bool,
    /// `None` if there is no data.
    data: Option<Sending>,
}

impl Connecting {
    /// Starts to connect. Returns 0 or an errno.
    fn begin(&self, descriptor: RawFd) -> c_int {
        let address = (&raw const self.address.bytes).cast::<sockaddr>();
        // SAFETY: connect(2) reads that many bytes at the pointer.
        // - valid for reads: the address is the operation's own.
        let connect = || unsafe { libc::connect(descriptor, address, self.address.size) };
        let begin = || {
            let mut done = connect();
            if done < 0 && errno() == libc::ECONNABORTED {
                // The system reports the failure of an earlier connect once more.
                done = connect();
            }
            let (mut signals, mut was_ended) = (Signals::default(), false);
            while done < 0 && signals.ended(errno()) {
                // A signal interrupts the call but not the connect; the next call reports its
                // state.
                was_ended = true;
                done = connect();
            }
            match errno() {
                _ if done == 0 => 0,
                libc::EALREADY if was_ended => libc::EINPROGRESS,
                libc::EISCONN if was_ended => 0,
                errno => errno,
            }
        };
        match numbers::entry(descriptor) {
            Some(number) => number.while_nonblocking(descriptor, begin),
            None => libc::EBADF,
        }
    }

    /// The result of a connect in progress; `None` while it is still in progress.
    fn ask(descriptor: RawFd) -> Option<c_int> {
        let mut asked = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
        // SAFETY: poll(2) reads and writes that many entries.
        // - valid: there is one.
        match repeated(|| unsafe { libc::poll(&raw mut asked, 1, 0) } as isize) {
            0 => return None,
            done if done < 0 => return Some(errno()),
            _ => {}
        }
        let errno = whole(descriptor, libc::SO_ERROR)?;
        // Only the first call that asks gets the error.
        let is_refused = errno == 0 && !is_connected(descriptor);
        Some(if is_refused { libc::ECONNREFUSED } else { errno })
    }
}

/// Ends a connect of a TCP stream, or the resulting connection. The socket keeps the port that the
/// program has bound, and can be connected again. Returns false for other protocols, which have no
/// such call.
fn dissolve(descriptor: RawFd) -> bool {
    let sa_family = libc::sa_family_t::try_from(libc::AF_UNSPEC).unwrap_or(0);
    let nothing = sockaddr { sa_family, sa_data: [0; 14] };
    let size = socklen_t::try_from(size_of_val(&nothing)).unwrap_or(0);
    // SAFETY: connect(2) reads that many bytes at the pointer.
    // - valid for reads: it is a local of that size.
    if unsafe { libc::connect(descriptor, &raw const nothing, size) } < 0 {
        return false;
    }
    // Discards the error that the connection was reset: no call must report it.
    let _ = whole(descriptor, libc::SO_ERROR);
    true
}

impl Work for Connecting {
    fn attempt(&mut self, descriptor: RawFd, outcome: &mut Outcome) -> Attempt {
        if !self.is_connected {
            let errno = if self.is_begun {
                let Some(errno) = Self::ask(descriptor) else { return Attempt::Blocked };
                errno
            } else {
                self.begin(descriptor)
            };
            match errno {
                0 if is_own_peer(descriptor) => {
                    dissolve(descriptor);
                    self.is_begun = true;
                    outcome.errno = libc::ECONNREFUSED;
                    return Attempt::Done;
                }
                0 => self.is_connected = true,
                libc::EINPROGRESS => {
                    self.is_begun = true;
                    return Attempt::Blocked;
                }
                // The queue of a local listener is full, and no event announces free space.
                libc::EAGAIN if !self.is_begun && is_local(descriptor) => {
                    return Attempt::OutOfResources;
                }
                libc::EALREADY => {
                    self.is_late = true;
                    outcome.errno = libc::EINVAL;
                    return Attempt::Done;
                }
                errno => {
                    outcome.errno = errno;
                    return Attempt::Done;
                }
            }
        }
        self.data.as_mut().map_or(Attempt::Done, |data| data.attempt(descriptor, outcome))
    }

    fn begins_unasked(&self) -> bool {
        true
    }

    fn connects(&self) -> bool {
        true
    }

    fn succeeds_by_packet(&self) -> bool {
        true
    }

    /// The peer's answer may arrive during the call; to the program that makes no difference.
    fn fails_by_packet(&self, _: Outcome) -> bool {
        self.is_begun || self.is_connected
    }

    /// The system would continue it, and the next connect would report its end. The number's entry
    /// still has it, so no other has started.
    fn call_off(&mut self, target: Target) {
        if !self.is_begun && !self.is_connected {
            return;
        }
        let Target { descriptor, number, epoch } = target;
        // Otherwise the socket is being closed.
        let is_dissolved = number.in_epoch(epoch, || dissolve(descriptor)).unwrap_or(false);
        let _ = target.if_current(|state| {
            state.forget_past();
            if self.is_connected && !is_dissolved {
                state.begin_connection();
            }
        });
    }

    fn finish(&mut self, target: Target, outcome: Outcome) -> Outcome {
        if self.is_late {
            return outcome;
        }
        let is_refused = outcome.errno != 0 && !self.is_connected;
        let _ = target.if_current(|state| {
            state.forget_past();
            if self.is_connected {
                state.begin_connection();
            }
            if is_refused {
                state.remember(target.descriptor, |past| past.was_refused = true);
            }
        });
        outcome
    }
}

/// `ConnectEx`.
///
/// # Safety
///
/// `name` is null or points to an address of that size. `overlapped`, and `data` with that many
/// bytes, stay valid until the operation ends. `sent` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_connect_ex(
    socket: usize,
    name: *const sockaddr,
    name_size: c_int,
    data: *mut c_void,
    data_size: u32,
    sent: *mut u32,
    overlapped: *mut c_void,
) -> c_int {
    let begin = || {
        let descriptor = descriptor_of(socket);
        let kind = descriptors::kind(descriptor).ok_or(code::WSAENOTSOCK)?;
        if overlapped.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        if !memory::is_there(name, size_of::<libc::sa_family_t>()) {
            return Err(code::WSAEFAULT);
        }
        if kind != libc::SOCK_STREAM {
            return Err(code::WSAEOPNOTSUPP);
        }
        let is_reused = numbers::find(descriptor).is_some_and(|number| number.lock().is_reused);
        note_use(descriptor);
        if listens(descriptor) == Some(true)
            || !(is_reused || is_local(descriptor) || is_bound(descriptor))
        {
            return Err(code::WSAEINVAL);
        }
        if is_connected(descriptor) {
            // After a connect that had to wait, the system treats the next one as its end.
            return Err(code_of_errno(libc::EISCONN));
        }
        // SAFETY: `new` demands that many bytes.
        // - the caller guarantees it.
        let address = unsafe { Address::new(name, name_size) }?;
        if address.size < descriptors::size_of_address(descriptor) {
            return Err(code::WSAEFAULT);
        }
        // SAFETY: `is_unspecified` demands an address of that size.
        // - it is a copy of that size.
        if unsafe { is_unspecified((&raw const address.bytes).cast(), address.size) } {
            return Err(code_of_errno(libc::EADDRNOTAVAIL));
        }
        sharing::before_connect(descriptor);
        let part = iovec { iov_base: data, iov_len: data_size as usize };
        let has_data = !data.is_null() && data_size > 0;
        let data = has_data.then(|| Sending::plain(Parts::One(part)));
        let connecting =
            Connecting { address, is_late: false, is_begun: false, is_connected: false, data };
        let overlapped = overlapped.cast::<Overlapped>();
        let told = Told::bytes(sent);
        let (side, tells_flags) = (Side::Out, false);
        let how = Start { descriptor, overlapped, side, tells_flags, told, accept: 0 };
        // SAFETY: `start` demands an OVERLAPPED that stays valid until the operation ends.
        // - the caller guarantees it, also for `sent`.
        unsafe { start(how, connecting) }
    };
    guarded(0, || is_done(answered(begin())))
}
