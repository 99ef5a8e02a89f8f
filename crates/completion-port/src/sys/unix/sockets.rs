//! Attempts at socket operations, one system call each.

use std::io::IoSlice;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::ptr;

use super::address::RawAddress;
use super::errors::{ACCEPT, CONNECT, POLL, RECEIVE, SEND, repeat, repeat_for};
use super::options::{Code, last_code, number};
use crate::backend::sockets::{PARTS, Received, SocketAttempt, Sockets, Transport};
use crate::sys::portable::errors::{AfterError, Errors, Retries};
use crate::sys::system::{System, calls, datagrams as many};
use crate::types::address::{Address, AddressKind};
use crate::types::datagrams::Datagrams;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;
use crate::types::source::{OwnedKind, OwnedSource};

/// The number of parts for which a small array on the stack is enough.
const FEW: usize = 8;

/// How many failed connections one accept skips. A persistent error would otherwise loop forever.
const PASSED_OVER: usize = 64;

pub(in crate::sys) fn fault(code: Code) -> Fault {
    let kind = match code {
        libc::EBADF => ErrorKind::BadDescriptor,
        libc::EMFILE | libc::ENFILE => ErrorKind::DescriptorLimit,
        libc::ENOMEM | libc::ENOBUFS => ErrorKind::OutOfMemory,
        libc::EAFNOSUPPORT => ErrorKind::Unsupported,
        _ => ErrorKind::Other,
    };
    Fault { kind, code: Some(code) }
}

fn failed<T>(code: Code) -> SocketAttempt<T> {
    SocketAttempt::Failed(fault(code))
}

/// Converts the error of a failed call.
#[inline]
fn not_done<T>(errors: &Errors, code: Code) -> SocketAttempt<T> {
    match errors.then(code) {
        AfterError::Ready => SocketAttempt::Blocked,
        AfterError::Later => SocketAttempt::OutOfResources,
        // A temporary error has persisted.
        AfterError::Again | AfterError::Failed => failed(code),
    }
}

fn owned(descriptor: OwnedFd) -> OwnedSource {
    OwnedSource(OwnedKind::System(descriptor))
}

/// Returns the address of the socket's peer, or its own.
fn name(descriptor: Descriptor, of: SocketName) -> Result<Option<Address>, Code> {
    let mut raw = RawAddress::room();
    let (address, len): (_, *mut libc::socklen_t) = (raw.as_mut_ptr(), raw.len_mut());
    let call = match of {
        SocketName::Peer => libc::getpeername,
        SocketName::Own => libc::getsockname,
    };
    // SAFETY: getpeername(2) and getsockname(2) read a length at the second pointer, write at most
    // that many bytes at the first, and write the full length at the second.
    // - valid: both point into `raw`, a local, whose length is that of its room.
    let done = unsafe { call(descriptor, address, len) };
    if done == 0 { Ok(raw.address()) } else { Err(last_code()) }
}

#[derive(Clone, Copy)]
enum SocketName {
    Peer,
    Own,
}

/// Returns whether a socket whose peer has this address is a stream that is connected to itself.
///
/// That happens if the kernel chooses, as the local port of a connect, the very port to which the
/// socket connects and at which nothing listens.
fn is_own_peer(descriptor: Descriptor, peer: Option<&Address>) -> bool {
    let own = || name(descriptor, SocketName::Own).ok().flatten();
    peer.is_some_and(|peer| own().is_some_and(|own| own.is_same_end(peer))) && is_stream(descriptor)
}

fn is_stream(descriptor: Descriptor) -> bool {
    number(descriptor, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
}

/// Returns a stream to its initial state. False if the system has no call for that.
fn disconnect(descriptor: Descriptor) -> bool {
    let is_done = calls::disconnect(descriptor);
    if is_done {
        // Takes the error of the cancelled connect, which no later call should report.
        let _ = number(descriptor, libc::SOL_SOCKET, libc::SO_ERROR);
    }
    is_done
}

/// Handles a stream that connected to itself: the connect counts as refused, and is undone.
fn refused_by_itself(descriptor: Descriptor) -> SocketAttempt<()> {
    disconnect(descriptor);
    failed(libc::ECONNREFUSED)
}

/// Returns whether poll(2) reports one of `events` now.
fn holds(descriptor: Descriptor, events: i16) -> Result<bool, Code> {
    let mut question = libc::pollfd { fd: descriptor, events, revents: 0 };
    // SAFETY: poll(2) reads and writes as many elements at the pointer as its second argument says.
    // - valid: `question` is one element and lives until the call returns.
    repeat_for(&POLL, || unsafe { libc::poll(&raw mut question, 1, 0) as libc::ssize_t })?;
    Ok(question.revents & events != 0)
}

/// A part of the room that a receive fills, in the form of recvmsg(2).
#[repr(transparent)]
pub(in crate::sys) struct ReceivePart<'r> {
    raw: libc::iovec,
    room: PhantomData<&'r mut [MaybeUninit<u8>]>,
}

impl<'r> ReceivePart<'r> {
    pub(in crate::sys) const EMPTY: Self =
        Self { raw: libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }, room: PhantomData };

    #[inline]
    pub(in crate::sys) fn new(room: &'r mut [MaybeUninit<u8>]) -> Self {
        let raw = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        Self { raw, room: PhantomData }
    }
}

/// Calls `act` with the first `N` parts that have room.
#[inline(never)]
pub(in crate::sys) fn with_room<const N: usize, R>(
    room: &mut [&mut [MaybeUninit<u8>]],
    act: impl FnOnce(&mut [ReceivePart<'_>]) -> R,
) -> R {
    let mut parts = [const { ReceivePart::EMPTY }; N];
    let mut count = 0;
    for (place, part) in parts.iter_mut().zip(room.iter_mut().filter(|part| !part.is_empty())) {
        *place = ReceivePart::new(part);
        count += 1;
    }
    act(&mut parts[..count])
}

/// Calls `act` with the first `N` parts that have bytes.
#[inline(never)]
fn with_bytes<const N: usize, R>(parts: &[&[u8]], act: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
    let mut slices = [IoSlice::new(&[]); N];
    let mut count = 0;
    for (place, part) in slices.iter_mut().zip(parts.iter().filter(|part| !part.is_empty())) {
        *place = IoSlice::new(part);
        count += 1;
    }
    act(&slices[..count])
}

/// Returns whether a list is too long for one call, for a socket that carries messages.
///
/// Messages cannot be received or sent in pieces.
fn is_too_long(descriptor: Descriptor, lengths: impl Iterator<Item = usize>) -> bool {
    lengths.filter(|length| *length > 0).count() > PARTS && !is_stream(descriptor)
}

/// Makes a message without parts. The caller sets its pointers.
#[inline]
pub(in crate::sys) fn message() -> libc::msghdr {
    // SAFETY: `assume_init` requires that the bytes are a value of the type.
    // - zeros are null pointers and zero lengths; some C libraries have additional numeric fields
    //   that cannot be written by name.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Calls recvmsg(2). Returns the number of bytes and whether a datagram was cut.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a length of at most 1,024, which some C libraries have as a signed number of 32 bits"
)]
fn receive_message(
    descriptor: Descriptor,
    parts: &mut [ReceivePart<'_>],
    mut from: Option<&mut RawAddress>,
    flags: i32,
) -> Result<Received, Code> {
    let mut message = message();
    if let Some(from) = &mut from {
        message.msg_name = from.as_mut_ptr().cast();
        message.msg_namelen = from.len();
    }
    message.msg_iov = parts.as_mut_ptr().cast();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: recvmsg(2) reads and writes the message at the pointer. It reads the list of parts,
    // and writes at most as many bytes to its parts and its name as the message says.
    // - valid: `message` is a local; the list is `parts`, whose elements have the layout of
    //   `struct iovec`; each borrows its room mutably and has its length; the name is `from`, which
    //   is borrowed mutably, or null;
    // - the rest of the message is null.
    let len = repeat(|| unsafe { libc::recvmsg(descriptor, &raw mut message, flags) })?;
    if let Some(from) = from {
        *from.len_mut() = message.msg_namelen;
    }
    Ok(Received { len, is_cut: message.msg_flags & libc::MSG_TRUNC != 0 })
}

/// Peeks whether a receive would succeed, and from where.
///
/// A receive of zero bytes would not do: it takes a datagram, or the descriptors that come with a
/// stream's bytes, and with some protocols it never waits.
fn look(descriptor: Descriptor, from: Option<&mut RawAddress>) -> Result<Received, Code> {
    let mut byte = [MaybeUninit::uninit()];
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    receive_message(descriptor, &mut [ReceivePart::new(&mut byte)], from, flags)?;
    Ok(Received { len: 0, is_cut: false })
}

/// Receives into any list of parts.
fn receive_parts(
    descriptor: Descriptor,
    room: &mut [&mut [MaybeUninit<u8>]],
    from: Option<&mut RawAddress>,
) -> Result<Received, Code> {
    let is_long = room.len() > PARTS;
    if is_long && is_too_long(descriptor, room.iter().map(|part| part.len())) {
        return Err(libc::EMSGSIZE);
    }
    let receive = |parts: &mut [ReceivePart<'_>]| match parts {
        [] => look(descriptor, from),
        parts => receive_message(descriptor, parts, from, libc::MSG_DONTWAIT),
    };
    if room.len() > FEW {
        with_room::<PARTS, _>(room, receive)
    } else {
        with_room::<FEW, _>(room, receive)
    }
}

/// Receives into one part from a stream.
fn receive_of_stream(
    descriptor: Descriptor,
    room: &mut [MaybeUninit<u8>],
) -> Result<Received, Code> {
    let (place, size) = (room.as_mut_ptr().cast(), room.len());
    // SAFETY: recv(2) writes at most `size` bytes at the pointer.
    // - valid for writes: `room` has `size` bytes, and is borrowed mutably during the call.
    let len = repeat(|| unsafe { libc::recv(descriptor, place, size, libc::MSG_DONTWAIT) })?;
    Ok(Received { len, is_cut: false })
}

/// Receives a datagram into one part, from a socket of [`Transport::Datagrams`].
///
/// recvmsg(2), which shows whether a datagram was cut for every kind of socket, costs the kernel a
/// quarter more.
fn receive_datagram(
    descriptor: Descriptor,
    room: &mut [MaybeUninit<u8>],
    from: &mut RawAddress,
) -> Result<Received, Code> {
    let (place, size) = (room.as_mut_ptr().cast(), room.len());
    let (address, len): (_, *mut libc::socklen_t) = (from.as_mut_ptr(), from.len_mut());
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: recvfrom(2) writes at most `size` bytes at the first pointer. It reads a length at the
    // third one, writes at most that many bytes at the second one, and the full length at the third.
    // - valid for writes: `room` has `size` bytes, and is borrowed mutably during the call; the
    //   others point into `from`, which is borrowed mutably, and whose length is that of its room.
    let whole = repeat(|| unsafe { libc::recvfrom(descriptor, place, size, flags, address, len) })?;
    if from.len() == 0 && whole > 0 {
        // The number names another socket by now. With this flag, a TCP stream discards its bytes,
        // and counts them although it has written none.
        return Err(libc::EBADF);
    }
    Ok(Received { len: whole.min(size), is_cut: whole > size })
}

/// The flags of all sends: no signal, and no waiting.
pub(in crate::sys) const SENDING: i32 = libc::MSG_DONTWAIT | calls::NO_SIGNAL;

/// Sends one part.
fn send_part(descriptor: Descriptor, part: &[u8], to: Option<&RawAddress>) -> Result<usize, Code> {
    let bytes = part.as_ptr().cast();
    let (address, len) = to.map_or((ptr::null(), 0), |to| (to.as_ptr(), to.len()));
    // SAFETY: sendto(2) reads as many bytes at each pointer as the argument after it says.
    // - valid for reads: `part` and `to` are borrowed during the call, and these are their lengths;
    //   a null pointer has the length 0.
    repeat(|| unsafe { libc::sendto(descriptor, bytes, part.len(), SENDING, address, len) })
}

/// Sends any list of parts.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a length of at most 1,024, which some C libraries have as a signed number of 32 bits"
)]
fn send_parts(
    descriptor: Descriptor,
    parts: &[IoSlice<'_>],
    to: Option<&RawAddress>,
) -> Result<usize, Code> {
    let mut message = message();
    if let Some(to) = to {
        message.msg_name = to.as_ptr().cast_mut().cast();
        message.msg_namelen = to.len();
    }
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: sendmsg(2) reads the message at the pointer, the list of its parts, their bytes and
    // its name. It writes nothing.
    // - valid for reads: `message` is a local; the list is `parts`, whose elements have the layout
    //   of `struct iovec` (the standard library guarantees it) and borrow their bytes; the name is
    //   `to`, which is borrowed with its length, or null;
    // - the rest of the message is null.
    repeat(|| unsafe { libc::sendmsg(descriptor, &raw const message, SENDING) })
}

/// Returns the first connection that `call` accepts, with the peer's address.
pub(in crate::sys) fn accept_by(
    mut call: impl FnMut(&mut RawAddress) -> Result<OwnedFd, Code>,
) -> SocketAttempt<(OwnedSource, Option<Address>)> {
    let mut passed_over = 0;
    let mut retries = Retries::default();
    loop {
        let mut raw = RawAddress::room();
        let code = match call(&mut raw) {
            Ok(accepted) => return SocketAttempt::Done((owned(accepted), raw.address())),
            Err(code) => code,
        };
        if calls::is_of_connection(code) {
            passed_over += 1;
            if passed_over == PASSED_OVER {
                return SocketAttempt::OutOfResources;
            }
        } else if !retries.pass(&ACCEPT, code) {
            return not_done(&ACCEPT, code);
        }
    }
}

/// Starts a connect with `call`, and repeats it after temporary errors.
pub(in crate::sys) fn connect_by(mut call: impl FnMut() -> Result<(), Code>) -> Result<(), Code> {
    let mut done = call();
    if done == Err(libc::ECONNABORTED) {
        // TCP reports an earlier failed connect like this after its error was taken. The socket is
        // in its initial state from now on.
        done = call();
    }
    let mut retries = Retries::default();
    let mut was_ended = false;
    while let Err(code) = done
        && retries.pass(&CONNECT, code)
    {
        // A signal ends the call but not the connect. The next call reports its state.
        was_ended = true;
        done = call();
    }
    match done {
        Err(libc::EISCONN) if was_ended => Ok(()),
        Err(libc::EALREADY) if was_ended => Err(libc::EINPROGRESS),
        done => done,
    }
}

/// Converts the error of a failed receive.
#[inline]
fn not_received<T>(code: Code) -> SocketAttempt<T> {
    if code == libc::ENOBUFS {
        // Messages were lost. This is not a shortage of memory.
        return SocketAttempt::Failed(Fault { kind: ErrorKind::Other, code: Some(code) });
    }
    not_done(&RECEIVE, code)
}

/// Converts the error of a failed send, which may have had an address.
fn not_sent<T>(descriptor: Descriptor, has_address: bool, code: Code) -> SocketAttempt<T> {
    // The queue of an unconnected AF_UNIX receiver is full. No edge reports when it has room, since
    // this socket could send to others. If poll(2) fails, this is assumed too.
    if code == libc::EAGAIN && has_address && holds(descriptor, libc::POLLOUT) != Ok(false) {
        return SocketAttempt::OutOfResources;
    }
    not_done(&SEND, code)
}

/// Receives one datagram of any socket, with its sender.
pub(super) fn receive_one(
    descriptor: Descriptor,
    room: &mut [MaybeUninit<u8>],
) -> Result<(Received, Option<Address>), Code> {
    let mut from = RawAddress::room();
    let received = receive_parts(descriptor, &mut [room], Some(&mut from))?;
    Ok((received, from.address()))
}

/// Sends one datagram.
pub(super) fn send_one(
    descriptor: Descriptor,
    bytes: &[u8],
    to: Option<&Address>,
) -> Result<usize, Fault> {
    let to = to.map(RawAddress::of).transpose()?;
    send_part(descriptor, bytes, to.as_ref()).map_err(fault)
}

impl Sockets for System {
    fn make_nonblocking(&self, descriptor: Descriptor) -> Result<(), Fault> {
        let mut on: libc::c_int = 1;
        // SAFETY: ioctl(2) with FIONBIO reads one int at the pointer.
        // - valid for reads: `on` lives until the call returns.
        let done = unsafe { libc::ioctl(descriptor, libc::FIONBIO, &raw mut on) };
        if done == 0 { Ok(()) } else { Err(fault(last_code())) }
    }

    fn transport(&self, descriptor: Descriptor) -> Transport {
        if calls::is_tcp(descriptor) && !calls::has_layer(descriptor) {
            return Transport::DrainedStream;
        }
        if calls::is_udp(descriptor) {
            return Transport::Datagrams;
        }
        if is_stream(descriptor) { Transport::Stream } else { Transport::Messages }
    }

    fn open_stream(&self, address: &Address) -> Result<OwnedSource, Fault> {
        let family = match address.0 {
            AddressKind::Ip(SocketAddr::V4(_)) => libc::AF_INET,
            AddressKind::Ip(SocketAddr::V6(_)) => libc::AF_INET6,
            AddressKind::Local(_) => libc::AF_UNIX,
            #[cfg(feature = "sim")]
            AddressKind::Simulated(_) => {
                return Err(Fault { kind: ErrorKind::WrongKernel, code: None });
            }
        };
        calls::new_stream(family).map(owned).map_err(fault)
    }

    fn accept(&self, descriptor: Descriptor) -> SocketAttempt<(OwnedSource, Option<Address>)> {
        accept_by(|raw| calls::accept(descriptor, raw))
    }

    fn begin_connect(&self, descriptor: Descriptor, address: &Address) -> SocketAttempt<()> {
        let raw = match RawAddress::of(address) {
            Ok(raw) => raw,
            Err(fault) => return SocketAttempt::Failed(fault),
        };
        let connect = || {
            // SAFETY: connect(2) reads as many bytes at the pointer as its third argument says.
            // - valid for reads: `raw` lives until the call returns, and this is its length.
            let done = unsafe { libc::connect(descriptor, raw.as_ptr(), raw.len()) };
            if done == 0 { Ok(()) } else { Err(last_code()) }
        };
        // After a connect that has completed, Linux takes the next one for its end, whatever the
        // address.
        if calls::ADOPTS_CONNECTIONS
            && name(descriptor, SocketName::Peer).is_ok()
            && is_stream(descriptor)
        {
            return failed(libc::EISCONN);
        }
        match connect_by(connect) {
            Ok(()) if is_own_peer(descriptor, Some(address)) => refused_by_itself(descriptor),
            Ok(()) => SocketAttempt::Done(()),
            Err(code) => not_done(&CONNECT, code),
        }
    }

    fn end_connect(&self, descriptor: Descriptor) -> SocketAttempt<()> {
        let error = || number(descriptor, libc::SOL_SOCKET, libc::SO_ERROR);
        match error() {
            Ok(0) => {}
            Ok(code) | Err(code) => return failed(code),
        }
        match name(descriptor, SocketName::Peer) {
            Ok(peer) if is_own_peer(descriptor, peer.as_ref()) => refused_by_itself(descriptor),
            Ok(_) => SocketAttempt::Done(()),
            // It has failed since the error was queried, or another call has taken the error. A
            // connecting stream has no hang-up.
            Err(libc::ENOTCONN) => match holds(descriptor, libc::POLLHUP) {
                Ok(true) => match error() {
                    Ok(0) => failed(libc::ECONNABORTED),
                    Ok(code) | Err(code) => failed(code),
                },
                Ok(false) => SocketAttempt::Blocked,
                Err(code) => failed(code),
            },
            Err(code) => failed(code),
        }
    }

    fn abandon_connect(&self, descriptor: Descriptor) -> bool {
        disconnect(descriptor)
    }

    fn receive(
        &self,
        descriptor: Descriptor,
        transport: Transport,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<Received> {
        let received = match room {
            [part] if transport.is_stream() && !part.is_empty() => {
                receive_of_stream(descriptor, part)
            }
            [part] if transport == Transport::Datagrams && !part.is_empty() => {
                receive_datagram(descriptor, part, &mut RawAddress::room())
            }
            room => receive_parts(descriptor, room, None),
        };
        received.map_or_else(not_received, SocketAttempt::Done)
    }

    fn receive_from(
        &self,
        descriptor: Descriptor,
        transport: Transport,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<(Received, Option<Address>)> {
        let mut from = RawAddress::room();
        let received = match room {
            [part] if transport == Transport::Datagrams && !part.is_empty() => {
                receive_datagram(descriptor, part, &mut from)
            }
            room => receive_parts(descriptor, room, Some(&mut from)),
        };
        match received {
            Ok(received) => SocketAttempt::Done((received, from.address())),
            Err(code) => not_received(code),
        }
    }

    fn receive_many(
        &self,
        descriptor: Descriptor,
        datagrams: &mut Datagrams,
    ) -> Option<SocketAttempt<bool>> {
        let received = many::receive_many(descriptor, datagrams)?;
        Some(received.map_or_else(not_received, SocketAttempt::Done))
    }

    fn send_many(
        &self,
        descriptor: Descriptor,
        datagrams: &mut Datagrams,
    ) -> Option<SocketAttempt<()>> {
        Some(match many::send_many(descriptor, datagrams)? {
            Ok(()) => SocketAttempt::Done(()),
            Err(Fault { code: Some(code), .. }) => {
                let has_address = datagrams.get(0).is_some_and(|first| first.address().is_some());
                not_sent(descriptor, has_address, code)
            }
            Err(fault) => SocketAttempt::Failed(fault),
        })
    }

    fn has_shut_reading(&self, descriptor: Descriptor) -> bool {
        calls::READING_SHUT != 0 && holds(descriptor, calls::READING_SHUT) == Ok(true)
    }

    fn send(
        &self,
        descriptor: Descriptor,
        parts: &[&[u8]],
        address: Option<&Address>,
    ) -> SocketAttempt<usize> {
        if let ([part], None) = (parts, address) {
            let sent = send_part(descriptor, part, None);
            return sent.map_or_else(|code| not_done(&SEND, code), SocketAttempt::Done);
        }
        let to = match address.map(RawAddress::of).transpose() {
            Ok(to) => to,
            Err(fault) => return SocketAttempt::Failed(fault),
        };
        let to = to.as_ref();
        let send = |parts: &[IoSlice<'_>]| match parts {
            [] => send_part(descriptor, &[], to),
            [part] => send_part(descriptor, part, to),
            parts => send_parts(descriptor, parts, to),
        };
        let sent = match parts {
            [part] => send_part(descriptor, part, to),
            parts if parts.len() <= FEW => with_bytes::<FEW, _>(parts, send),
            parts => {
                let lengths = parts.iter().map(|part| part.len());
                if parts.len() > PARTS && is_too_long(descriptor, lengths) {
                    return failed(libc::EMSGSIZE);
                }
                with_bytes::<PARTS, _>(parts, send)
            }
        };
        sent.map_or_else(|code| not_sent(descriptor, to.is_some(), code), SocketAttempt::Done)
    }
}
