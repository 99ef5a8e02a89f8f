//! Attempts at operations on sockets, one system call each.

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
use crate::sys::portable::errors::{Errors, Retries, Then};
use crate::sys::system::{System, calls};
use crate::types::address::{Address, AddressKind};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;
use crate::types::source::{OwnedKind, OwnedSource};

/// Parts for which there is room without much ado.
const FEW: usize = 8;

/// How many connections one accept passes over. An error that stays would keep it here forever.
const PASSED_OVER: usize = 64;

fn fault(code: Code) -> Fault {
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

/// The result of a call that has failed.
#[inline]
fn not_done<T>(errors: &Errors, code: Code) -> SocketAttempt<T> {
    match errors.then(code) {
        Then::Ready => SocketAttempt::Blocked,
        Then::Later => SocketAttempt::OutOfResources,
        // What would have passed has stayed.
        Then::Again | Then::Failed => failed(code),
    }
}

fn owned(descriptor: OwnedFd) -> OwnedSource {
    OwnedSource(OwnedKind::System(descriptor))
}

/// The address of the socket's peer, or its own.
fn name(descriptor: Descriptor, of: SocketName) -> Result<Option<Address>, Code> {
    let mut raw = RawAddress::room();
    let (address, len): (_, *mut libc::socklen_t) = (raw.as_mut_ptr(), raw.len_mut());
    let call = match of {
        SocketName::Peer => libc::getpeername,
        SocketName::Own => libc::getsockname,
    };
    // SAFETY: getpeername(2) and getsockname(2) read a length at the second pointer, write at most so many
    // bytes at the first and the full length at the second.
    // - valid: both point into `raw`, a local, whose length is that of its room.
    let done = unsafe { call(descriptor, address, len) };
    if done == 0 { Ok(raw.address()) } else { Err(last_code()) }
}

#[derive(Clone, Copy)]
enum SocketName {
    Peer,
    Own,
}

/// Whether a socket whose peer has this address is a stream that is connected to itself. That happens if a
/// connect to a port of this machine, at which nothing listens, is given the same port as its own.
fn is_own_peer(descriptor: Descriptor, peer: Option<&Address>) -> bool {
    let own = || name(descriptor, SocketName::Own).ok().flatten();
    peer.is_some_and(|peer| own().is_some_and(|own| own.is_same_end(peer))) && is_stream(descriptor)
}

fn is_stream(descriptor: Descriptor) -> bool {
    number(descriptor, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
}

/// Has a stream be as if it had never been connected. False where the system has no call for that.
fn disconnect(descriptor: Descriptor) -> bool {
    let is_done = calls::disconnect(descriptor);
    if is_done {
        // That a connect was broken off, which no later call is to tell.
        let _ = number(descriptor, libc::SOL_SOCKET, libc::SO_ERROR);
    }
    is_done
}

/// What becomes of a connect whose stream is connected to itself: it was refused, and the socket is not connected.
fn refused_by_itself(descriptor: Descriptor) -> SocketAttempt<()> {
    disconnect(descriptor);
    failed(libc::ECONNREFUSED)
}

/// Whether poll(2) says one of `events` now.
fn holds(descriptor: Descriptor, events: i16) -> Result<bool, Code> {
    let mut question = libc::pollfd { fd: descriptor, events, revents: 0 };
    // SAFETY: poll(2) reads and writes as many questions at the pointer as its second argument says.
    // - valid: `question`, one, lives until the call returns.
    repeat_for(&POLL, || unsafe { libc::poll(&raw mut question, 1, 0) as libc::ssize_t })?;
    Ok(question.revents & events != 0)
}

/// A part of the room that a receive fills, as recvmsg(2) takes it.
#[repr(transparent)]
pub(in crate::sys) struct ReceivePart<'r> {
    raw: libc::iovec,
    room: PhantomData<&'r mut [MaybeUninit<u8>]>,
}

impl<'r> ReceivePart<'r> {
    const EMPTY: Self =
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

/// Whether a list has more parts than one call takes, and the socket carries messages: they cannot be
/// received or sent piece by piece.
fn is_too_long(descriptor: Descriptor, lengths: impl Iterator<Item = usize>) -> bool {
    lengths.filter(|length| *length > 0).count() > PARTS && !is_stream(descriptor)
}

/// A message without any part: what it points to is put in afterwards.
fn message() -> libc::msghdr {
    // SAFETY: `assume_init` demands that the bytes are a value of the type.
    // - zeros are null pointers and lengths of nothing; some C libraries have fields besides, of numbers,
    //   that cannot be written by name.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// recvmsg(2). Returns how many bytes came, and whether a datagram was cut.
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
    // SAFETY: recvmsg(2) reads and writes the message at the pointer. It writes at most as many bytes as the
    // message says to its parts and its name, and reads the list of parts.
    // - valid: `message` is a local; the list is `parts`, whose elements lie as `struct iovec` does; each
    //   borrows its room mutably, and has its length; the name is `from`, which is borrowed mutably, or null;
    // - the rest of the message is null.
    let len = repeat(|| unsafe { libc::recvmsg(descriptor, &raw mut message, flags) })?;
    if let Some(from) = from {
        *from.len_mut() = message.msg_namelen;
    }
    Ok(Received { len, is_cut: message.msg_flags & libc::MSG_TRUNC != 0 })
}

/// Whether something could be received, of which nothing is taken; and from where. To ask for no byte at
/// all would not do: it takes a datagram, or the descriptors that come with a stream's bytes, and some
/// protocols then never wait.
fn look(descriptor: Descriptor, from: Option<&mut RawAddress>) -> Result<Received, Code> {
    let mut byte = [MaybeUninit::uninit()];
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    receive_message(descriptor, &mut [ReceivePart::new(&mut byte)], from, flags)?;
    Ok(Received { len: 0, is_cut: false })
}

/// A receive into any list of parts.
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

/// A receive into one part of a stream.
fn receive_of_stream(
    descriptor: Descriptor,
    room: &mut [MaybeUninit<u8>],
) -> Result<Received, Code> {
    let (place, size) = (room.as_mut_ptr().cast(), room.len());
    // SAFETY: recv(2) writes at most `size` bytes at the pointer.
    // - valid for writes: `room` has so many, and is borrowed mutably over the call.
    let len = repeat(|| unsafe { libc::recv(descriptor, place, size, libc::MSG_DONTWAIT) })?;
    Ok(Received { len, is_cut: false })
}

/// What sends to sockets raise no signal with, and do not wait with.
const SENDING: i32 = libc::MSG_DONTWAIT | calls::NO_SIGNAL;

/// A send of one part.
fn send_part(descriptor: Descriptor, part: &[u8], to: Option<&RawAddress>) -> Result<usize, Code> {
    let bytes = part.as_ptr().cast();
    let (address, len) = to.map_or((ptr::null(), 0), |to| (to.as_ptr(), to.len()));
    // SAFETY: sendto(2) reads as many bytes at each pointer as the argument behind it says.
    // - valid for reads: `part` and `to` are borrowed over the call, and these are their lengths; a null
    //   pointer stands with a length of 0.
    repeat(|| unsafe { libc::sendto(descriptor, bytes, part.len(), SENDING, address, len) })
}

/// A send of any list of parts.
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
    // SAFETY: sendmsg(2) reads the message at the pointer, the list of its parts, their bytes and its name.
    // It writes nothing.
    // - valid for reads: `message` is a local; the list is `parts`, whose elements are laid out as
    //   `struct iovec` (the standard library promises it), and borrow their bytes; the name is `to`, which is
    //   borrowed with its length, or null;
    // - the rest of the message is null.
    repeat(|| unsafe { libc::sendmsg(descriptor, &raw const message, SENDING) })
}

/// The first connection that `call` brings, with the peer's address in the room.
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

/// How the connect begins that `call` asks for.
pub(in crate::sys) fn connect_by(mut call: impl FnMut() -> Result<(), Code>) -> Result<(), Code> {
    let mut done = call();
    if done == Err(libc::ECONNABORTED) {
        // So TCP tells of an earlier connect that has failed, and whose error was fetched: the socket is
        // as if it were new from now on.
        done = call();
    }
    let mut retries = Retries::default();
    let mut was_ended = false;
    while let Err(code) = done
        && retries.pass(&CONNECT, code)
    {
        // A signal ends the call and not the connect; the next call reports its state.
        was_ended = true;
        done = call();
    }
    match done {
        Err(libc::EISCONN) if was_ended => Ok(()),
        Err(libc::EALREADY) if was_ended => Err(libc::EINPROGRESS),
        done => done,
    }
}

/// The result of a receive that has failed.
#[inline]
fn not_received<T>(code: Code) -> SocketAttempt<T> {
    if code == libc::ENOBUFS {
        // Messages are lost, and memory is not short now.
        return SocketAttempt::Failed(Fault { kind: ErrorKind::Other, code: Some(code) });
    }
    not_done(&RECEIVE, code)
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
        // Linux takes a connect behind one that has got its connection for the end of that, whatever its address is.
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
            // It has failed since the error was asked for, or another call has taken the error. A stream that
            // is being connected shows no hang-up.
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
            room => receive_parts(descriptor, room, None),
        };
        received.map_or_else(not_received, SocketAttempt::Done)
    }

    fn receive_from(
        &self,
        descriptor: Descriptor,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<(Received, Option<Address>)> {
        let mut from = RawAddress::room();
        match receive_parts(descriptor, room, Some(&mut from)) {
            Ok(received) => SocketAttempt::Done((received, from.address())),
            Err(code) => not_received(code),
        }
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
        match sent {
            Ok(count) => SocketAttempt::Done(count),
            // A receiver of AF_UNIX to which the socket is not connected has a full queue. No edge tells when
            // there is room: this socket could send to others.
            // The same if the system refuses to say.
            Err(libc::EAGAIN) if to.is_some() && holds(descriptor, libc::POLLOUT) != Ok(false) => {
                SocketAttempt::OutOfResources
            }
            Err(code) => not_done(&SEND, code),
        }
    }
}
