//! Attempts at socket operations, one Winsock call each.
//!
//! Winsock calls have no flag against waiting, so a socket is made non-blocking before its first
//! operation.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::windows::io::{FromRawSocket as _, OwnedSocket, RawSocket};
use std::ptr;

use windows_sys::Win32::Foundation::{HANDLE, HANDLE_FLAG_INHERIT, SetHandleInformation};
use windows_sys::Win32::Networking::WinSock::{
    AF_INET, AF_INET6, AF_UNIX, INVALID_SOCKET, MSG_PEEK, SO_ERROR, SO_PROTOCOL_INFOW, SO_TYPE,
    SOCK_STREAM, SOCKET, SOL_SOCKET, WSA_FLAG_NO_HANDLE_INHERIT, WSA_FLAG_OVERLAPPED, WSABUF,
    WSAECONNABORTED, WSAECONNREFUSED, WSAECONNRESET, WSAEMSGSIZE, WSAENOTCONN, WSAPROTOCOL_INFOW,
    WSARecv, WSARecvFrom, WSASend, WSASendTo, WSASocketW, accept, connect, getpeername,
    getsockname, getsockopt,
};

use super::address::RawAddress;
use super::afd::{Afd, CARRIED, SystemTransfers, make_nonblocking};
use super::errors::{ACCEPT, CONNECT, TRANSFER};
use super::options::{WinsockCode, fault, fault_of, last_code, number, socket};
use crate::backend::request::{SocketRequest, Submit};
use crate::backend::sockets::{
    PARTS, Received, SocketAttempt, SocketKind, SocketTarget, Sockets, Transport,
};
use crate::sys::portable::errors::{AfterError, Errors};
use crate::types::address::{Address, AddressKind};
use crate::types::error::Fault;
use crate::types::source::Descriptor;
use crate::types::source::{OwnedKind, OwnedSource, Source as _};

/// The number of parts for which a small array on the stack is enough.
const FEW: usize = 8;

/// How many failed connections one accept skips. A persistent error would otherwise loop forever.
const PASSED_OVER: usize = 64;

/// `IPPROTO_TCP`, for a field with another type.
pub(super) const TCP: i32 = 6;

fn failed<T>(descriptor: Descriptor, code: WinsockCode) -> SocketAttempt<T> {
    SocketAttempt::Failed(fault(descriptor, code))
}

/// Converts the error of a call.
///
/// If the call would have to wait, the system may carry it out instead.
fn not_done<T>(
    descriptor: Descriptor,
    errors: &Errors,
    code: WinsockCode,
    is_carried: impl FnOnce() -> bool,
) -> SocketAttempt<T> {
    match errors.then(code) {
        AfterError::Ready if is_carried() => SocketAttempt::NeedsSystem,
        AfterError::Ready => SocketAttempt::Blocked,
        AfterError::Later => SocketAttempt::OutOfResources,
        AfterError::Again | AfterError::Failed => failed(descriptor, code),
    }
}

pub(super) fn owned(socket: SOCKET) -> OwnedSocket {
    // SAFETY: `from_raw_socket` requires an open socket that nothing else owns.
    // - each caller passes a socket that `accept` or WSASocketW has just returned.
    unsafe { OwnedSocket::from_raw_socket(socket as RawSocket) }
}

/// Returns the address of the socket's peer, or its own.
pub(super) fn name(descriptor: Descriptor, of: SocketName) -> Result<Option<Address>, WinsockCode> {
    let mut raw = RawAddress::room();
    let (address, len) = raw.as_mut_ptrs();
    let call = match of {
        SocketName::Peer => getpeername,
        SocketName::Own => getsockname,
    };
    // SAFETY: getpeername and getsockname read a length at the second pointer, write at most that
    // many bytes at the first, and write the length at the second.
    // - valid: both point into `raw`, a local, whose length is that of its room.
    let done = unsafe { call(socket(descriptor), address, len) };
    if done == 0 { Ok(raw.address()) } else { Err(last_code()) }
}

#[derive(Clone, Copy)]
pub(super) enum SocketName {
    Peer,
    Own,
}

/// Returns whether a socket whose peer has this address is a stream that is connected to itself.
///
/// That happens if the kernel chooses, as the local port of a connect, the very port to which the
/// socket connects and at which nothing listens.
pub(super) fn is_own_peer(descriptor: Descriptor, peer: Option<&Address>) -> bool {
    let own = || name(descriptor, SocketName::Own).ok().flatten();
    peer.is_some_and(|peer| own().is_some_and(|own| own.is_same_end(peer))) && is_stream(descriptor)
}

fn is_stream(descriptor: Descriptor) -> bool {
    number(descriptor, SOL_SOCKET, SO_TYPE) == Ok(SOCK_STREAM)
}

/// Returns the family and the protocol of a socket, as its provider reports them.
pub(super) fn protocol(descriptor: Descriptor) -> Option<(i32, i32)> {
    let mut info = MaybeUninit::<WSAPROTOCOL_INFOW>::zeroed();
    let mut size = i32::try_from(size_of::<WSAPROTOCOL_INFOW>()).unwrap_or(0);
    let place = info.as_mut_ptr().cast();
    // SAFETY: getsockopt writes at most `size` bytes at the first pointer, and reads and writes the
    // size at the other.
    // - valid: both are locals, and `size` is that of `info`.
    let done = unsafe {
        getsockopt(socket(descriptor), SOL_SOCKET, SO_PROTOCOL_INFOW, place, &raw mut size)
    };
    // SAFETY: `assume_init` requires that the bytes are a value of the type.
    // - it has only numbers, for which zeros and everything that the call may have written are
    //   values.
    let info = unsafe { info.assume_init() };
    (done == 0).then_some((info.iAddressFamily, info.iProtocol))
}

/// A part of the room that a receive fills, in the form of WSARecv. A part that is too long for its
/// length field is filled only up to the longest length.
#[repr(transparent)]
struct ReceivePart<'r> {
    raw: WSABUF,
    room: PhantomData<&'r mut [MaybeUninit<u8>]>,
}

pub(super) fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl<'r> ReceivePart<'r> {
    const EMPTY: Self = Self { raw: WSABUF { len: 0, buf: ptr::null_mut() }, room: PhantomData };

    fn new(room: &'r mut [MaybeUninit<u8>]) -> Self {
        let raw = WSABUF { len: length(room.len()), buf: room.as_mut_ptr().cast() };
        Self { raw, room: PhantomData }
    }
}

/// A part of a send, in the form of WSASend, which does not write to it.
#[repr(transparent)]
struct SendPart<'b> {
    raw: WSABUF,
    bytes: PhantomData<&'b [u8]>,
}

impl<'b> SendPart<'b> {
    const EMPTY: Self = Self { raw: WSABUF { len: 0, buf: ptr::null_mut() }, bytes: PhantomData };

    fn new(bytes: &'b [u8]) -> Self {
        let raw = WSABUF { len: length(bytes.len()), buf: bytes.as_ptr().cast_mut() };
        Self { raw, bytes: PhantomData }
    }
}

/// Calls `act` with the first `N` parts that have room.
#[inline(never)]
fn with_room<const N: usize, R>(
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
fn with_bytes<const N: usize, R>(parts: &[&[u8]], act: impl FnOnce(&[SendPart<'_>]) -> R) -> R {
    let mut slices = [const { SendPart::EMPTY }; N];
    let mut count = 0;
    for (place, part) in slices.iter_mut().zip(parts.iter().filter(|part| !part.is_empty())) {
        *place = SendPart::new(part);
        count += 1;
    }
    act(&slices[..count])
}

/// Returns whether a list has more parts than one call takes.
///
/// Messages cannot be received or sent in pieces.
fn is_too_long(lengths: impl ExactSizeIterator<Item = usize>) -> bool {
    lengths.len() > PARTS && lengths.filter(|length| *length > 0).count() > PARTS
}

/// Calls WSARecv or WSARecvFrom. Returns the number of bytes and whether a datagram was cut.
fn receive_message(
    descriptor: Descriptor,
    parts: &mut [ReceivePart<'_>],
    from: Option<&mut RawAddress>,
    flags: i32,
) -> Result<Received, WinsockCode> {
    let room = parts.iter().map(|part| part.raw.len as usize).sum();
    let count = length(parts.len());
    let buffers = parts.as_mut_ptr().cast::<WSABUF>();
    let mut len = 0;
    let mut flags = flags.cast_unsigned();
    let socket = socket(descriptor);
    let done = match from {
        None => {
            // SAFETY: WSARecv reads `count` buffers at the first pointer, writes at most as many
            // bytes to each as its length says, their number at the second pointer, and reads and
            // writes flags at the third. It has finished when it returns, since it gets no
            // OVERLAPPED.
            // - valid: the list is `parts`, whose elements have the layout of WSABUF; each borrows
            //   its room mutably and has its length; the others are locals.
            unsafe {
                WSARecv(socket, buffers, count, &raw mut len, &raw mut flags, ptr::null_mut(), None)
            }
        }
        Some(from) => {
            let (address, size) = from.as_mut_ptrs();
            // SAFETY: WSARecvFrom does the same, and reads a size at the last pointer, writes at
            // most that many bytes of an address at the pointer before it, and writes the size.
            // - valid: as above; both point into `from`, which is borrowed mutably and whose length
            //   is its room.
            unsafe {
                WSARecvFrom(
                    socket,
                    buffers,
                    count,
                    &raw mut len,
                    &raw mut flags,
                    address,
                    size,
                    ptr::null_mut(),
                    None,
                )
            }
        }
    };
    if done == 0 {
        return Ok(Received { len: len as usize, is_cut: false });
    }
    match last_code() {
        // The room was filled nevertheless.
        WSAEMSGSIZE => Ok(Received { len: room, is_cut: true }),
        code => Err(code),
    }
}

/// Peeks whether a receive would succeed, and from where.
fn look(descriptor: Descriptor, from: Option<&mut RawAddress>) -> Result<Received, WinsockCode> {
    let mut byte = [MaybeUninit::uninit()];
    receive_message(descriptor, &mut [ReceivePart::new(&mut byte)], from, MSG_PEEK)?;
    Ok(Received { len: 0, is_cut: false })
}

/// Receives into any list of parts.
fn receive_parts(
    descriptor: Descriptor,
    room: &mut [&mut [MaybeUninit<u8>]],
    from: Option<&mut RawAddress>,
    is_stream: impl FnOnce() -> bool,
) -> Result<Received, WinsockCode> {
    if is_too_long(room.iter().map(|part| part.len())) && !is_stream() {
        return Err(WSAEMSGSIZE);
    }
    let receive = |parts: &mut [ReceivePart<'_>]| match parts {
        [] => look(descriptor, from),
        parts => receive_message(descriptor, parts, from, 0),
    };
    if room.len() > FEW {
        with_room::<PARTS, _>(room, receive)
    } else {
        with_room::<FEW, _>(room, receive)
    }
}

/// Calls WSASend or WSASendTo.
fn send_parts(
    descriptor: Descriptor,
    parts: &[SendPart<'_>],
    to: Option<&RawAddress>,
) -> Result<usize, WinsockCode> {
    // A datagram of zero bytes has one empty part.
    let parts = if parts.is_empty() { &[SendPart::EMPTY] } else { parts };
    let count = length(parts.len());
    let buffers = parts.as_ptr().cast::<WSABUF>();
    let mut len = 0;
    let socket = socket(descriptor);
    let done = match to {
        None => {
            // SAFETY: WSASend reads `count` buffers at the first pointer and as many bytes of each
            // as its length says, and writes the number of bytes at the second. It has finished
            // when it returns, since it gets no OVERLAPPED.
            // - valid: the list is `parts`, whose elements have the layout of WSABUF, borrow their
            //   bytes and have their lengths; `len` is a local.
            unsafe { WSASend(socket, buffers, count, &raw mut len, 0, ptr::null_mut(), None) }
        }
        Some(to) => {
            // SAFETY: WSASendTo does the same, and reads as many bytes of an address as its length
            // argument says.
            // - valid: as above; `to` is borrowed, and this is its length.
            unsafe {
                WSASendTo(
                    socket,
                    buffers,
                    count,
                    &raw mut len,
                    0,
                    to.as_ptr(),
                    to.len(),
                    ptr::null_mut(),
                    None,
                )
            }
        }
    };
    if done == 0 { Ok(len as usize) } else { Err(last_code()) }
}

/// Receives one datagram.
pub(super) fn receive_one_from(
    descriptor: Descriptor,
    room: &mut [MaybeUninit<u8>],
    from: &mut RawAddress,
) -> Result<Received, WinsockCode> {
    receive_message(descriptor, &mut [ReceivePart::new(room)], Some(from), 0)
}

/// Sends one datagram.
pub(super) fn send_one_to(
    descriptor: Descriptor,
    bytes: &[u8],
    to: Option<&RawAddress>,
) -> Result<usize, WinsockCode> {
    send_parts(descriptor, &[SendPart::new(bytes)], to)
}

impl Sockets for Afd {
    fn make_nonblocking(&self, descriptor: Descriptor) -> Result<(), Fault> {
        make_nonblocking(descriptor).map_err(|code| fault(descriptor, code))
    }

    fn transport(&self, descriptor: Descriptor) -> Transport {
        match (is_stream(descriptor), protocol(descriptor)) {
            (true, Some((_, TCP))) => Transport::DrainedStream,
            (true, _) => Transport::Stream,
            (false, _) => Transport::Messages,
        }
    }

    fn open_stream(&self, address: &Address) -> Result<OwnedSource, Fault> {
        let family = match address.0 {
            AddressKind::Ip(SocketAddr::V4(_)) => AF_INET,
            AddressKind::Ip(SocketAddr::V6(_)) => AF_INET6,
            AddressKind::Local(_) => AF_UNIX,
            #[cfg(feature = "sim")]
            AddressKind::Simulated(_) => {
                let kind = crate::types::error::ErrorKind::WrongKernel;
                return Err(Fault { kind, code: None });
            }
        };
        let flags = WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT;
        // SAFETY: WSASocketW reads a protocol's description at the pointer.
        // - null means none.
        let made = unsafe { WSASocketW(family.into(), SOCK_STREAM, 0, ptr::null(), 0, flags) };
        if made == INVALID_SOCKET {
            return Err(fault_of(last_code()));
        }
        let made = OwnedSource(OwnedKind::System(owned(made)));
        let descriptor = made.as_source().name.number;
        make_nonblocking(descriptor).map_err(|code| fault(descriptor, code))?;
        Ok(made)
    }

    fn accept(&self, descriptor: Descriptor) -> SocketAttempt<(OwnedSource, Option<Address>)> {
        for _ in 0..PASSED_OVER {
            let mut raw = RawAddress::room();
            let (address, len) = raw.as_mut_ptrs();
            // SAFETY: accept reads a length at the second pointer, writes at most that many bytes
            // at the first, and writes the length at the second.
            // - valid: both point into `raw`, a local, whose length is that of its room.
            let accepted = unsafe { accept(socket(descriptor), address, len) };
            if accepted == INVALID_SOCKET {
                match last_code() {
                    // The peer has aborted this connection. The next one may succeed. The last code
                    // comes from Wine, which queries the connection's peer.
                    WSAECONNRESET | WSAECONNABORTED | WSAENOTCONN => continue,
                    code => {
                        let is_carried =
                            || self.carries(descriptor) == Some(SystemTransfers::Stream);
                        return not_done(descriptor, &ACCEPT, code, is_carried);
                    }
                }
            }
            let handle: HANDLE = ptr::without_provenance_mut(accepted);
            let accepted = OwnedSource(OwnedKind::System(owned(accepted)));
            // SAFETY: SetHandleInformation requires an open handle.
            // - `accepted` owns it.
            unsafe { SetHandleInformation(handle, HANDLE_FLAG_INHERIT, 0) };
            // Usually it inherits this from its listener.
            let number = accepted.as_source().name.number;
            return match make_nonblocking(number) {
                Ok(()) => SocketAttempt::Done((accepted, raw.address())),
                Err(code) => failed(number, code),
            };
        }
        SocketAttempt::OutOfResources
    }

    fn begin_connect(&self, descriptor: Descriptor, address: &Address) -> SocketAttempt<()> {
        let raw = match RawAddress::of(address) {
            Ok(raw) => raw,
            Err(fault) => return SocketAttempt::Failed(fault),
        };
        if self.carries_connects(descriptor)
            && matches!(name(descriptor, SocketName::Peer), Err(WSAENOTCONN))
        {
            // The kernel cannot take over a connect that has started.
            return SocketAttempt::NeedsSystem;
        }
        let connect = || {
            // SAFETY: connect reads as many bytes at the pointer as its third argument says.
            // - valid for reads: `raw` lives until the call returns, and this is its length.
            let done = unsafe { connect(socket(descriptor), raw.as_ptr(), raw.len()) };
            if done == 0 { Ok(()) } else { Err(last_code()) }
        };
        let mut done = connect();
        if done == Err(WSAECONNABORTED) {
            // Wine reports an earlier failed connect like this after its error was taken. The
            // socket is in its initial state from now on.
            done = connect();
        }
        match done {
            Ok(()) if is_own_peer(descriptor, Some(address)) => failed(descriptor, WSAECONNREFUSED),
            Ok(()) => SocketAttempt::Done(()),
            Err(code) => not_done(descriptor, &CONNECT, code, || false),
        }
    }

    fn end_connect(&self, descriptor: Descriptor) -> SocketAttempt<()> {
        match number(descriptor, SOL_SOCKET, SO_ERROR) {
            Ok(0) => {}
            Ok(code) | Err(code) => return failed(descriptor, code),
        }
        match name(descriptor, SocketName::Peer) {
            Ok(peer) if is_own_peer(descriptor, peer.as_ref()) => {
                failed(descriptor, WSAECONNREFUSED)
            }
            Ok(_) => SocketAttempt::Done(()),
            // Another call has taken the error.
            Err(WSAENOTCONN) if self.has_failed_to_connect(descriptor) => {
                failed(descriptor, WSAECONNABORTED)
            }
            Err(WSAENOTCONN) => SocketAttempt::Blocked,
            Err(code) => failed(descriptor, code),
        }
    }

    fn has_shut_reading(&self, _descriptor: Descriptor) -> bool {
        // An attempt reports it.
        false
    }

    fn abandon_connect(&self, _descriptor: Descriptor) -> bool {
        // Winsock has no call for that. A connect that the kernel carries out is cancelled instead.
        false
    }

    fn receive(
        &self,
        descriptor: Descriptor,
        transport: Transport,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<Received> {
        let received = self
            .make_sure_not_to_wait(descriptor)
            .and_then(|()| receive_parts(descriptor, room, None, || transport.is_stream()));
        let is_carried =
            || self.carries(descriptor).is_some_and(|carried| carried.carries_receive(room));
        received.map_or_else(
            |code| not_done(descriptor, &TRANSFER, code, is_carried),
            SocketAttempt::Done,
        )
    }

    fn receive_from(
        &self,
        descriptor: Descriptor,
        _transport: Transport,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<(Received, Option<Address>)> {
        let mut from = RawAddress::room();
        let received = self.make_sure_not_to_wait(descriptor).and_then(|()| {
            receive_parts(descriptor, room, Some(&mut from), || is_stream(descriptor))
        });
        match received {
            Ok(received) => SocketAttempt::Done((received, from.address())),
            Err(code) => not_done(descriptor, &TRANSFER, code, || {
                self.carries(descriptor) == Some(SystemTransfers::Datagrams)
                    && SystemTransfers::Datagrams.carries_receive(room)
            }),
        }
    }

    fn send(
        &self,
        descriptor: Descriptor,
        parts: &[&[u8]],
        address: Option<&Address>,
    ) -> SocketAttempt<usize> {
        let to = match address.map(RawAddress::of).transpose() {
            Ok(to) => to,
            Err(fault) => return SocketAttempt::Failed(fault),
        };
        if let Err(code) = self.make_sure_not_to_wait(descriptor) {
            return failed(descriptor, code);
        }
        if is_too_long(parts.iter().map(|part| part.len())) && !is_stream(descriptor) {
            return failed(descriptor, WSAEMSGSIZE);
        }
        let send = |parts: &[SendPart<'_>]| send_parts(descriptor, parts, to.as_ref());
        let sent = if parts.len() <= FEW {
            with_bytes::<FEW, _>(parts, send)
        } else {
            with_bytes::<PARTS, _>(parts, send)
        };
        let is_carried = || self.carries(descriptor).is_some();
        sent.map_or_else(
            |code| not_done(descriptor, &TRANSFER, code, is_carried),
            SocketAttempt::Done,
        )
    }

    fn socket_requests(&self) -> Option<&dyn Submit<SocketTarget>> {
        Some(self)
    }
}

impl Submit<SocketTarget> for Afd {
    fn prepare(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn submit(&self, request: SocketRequest) {
        self.operations.submit(request);
    }

    fn flush(&self) {
        self.operations.flush(&|place| self.port.post_for(CARRIED, place));
    }

    /// Asks the system to cancel a request that has started. An edge reports its end.
    fn cancel(&self, id: u64) -> Option<SocketRequest> {
        self.operations.cancel(id)
    }

    fn take_completed(&self, id: u64) -> Option<SocketRequest> {
        let request = self.operations.take_completed(id)?;
        if request.target.is_declined && request.kind == SocketKind::Connect {
            self.stop_carrying_connects(request.target.descriptor);
        }
        Some(request)
    }
}
