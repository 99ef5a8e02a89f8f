//! Operations on sockets that the kernel carries out: overlapped calls, whose packets come out of the reactor's completion
//! port, with the polls, or notifications, and the wakes.
//!
//! What can be done at once an attempt has done before (see [`Sockets`](crate::backend::sockets::Sockets)). So a call here has to
//! wait as a rule, and its packet tells of its end even if it has not. The sockets are not told to leave out the packets of
//! what is done at once: that would be so for the program's own calls as well.
//!
//! The memory of a call is the kernel's from the call to its end. It is freed by nothing else: a packet is only the sign to
//! look whether the kernel is done.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use windows_sys::Win32::Foundation::{HANDLE, STATUS_PENDING};
use windows_sys::Win32::Networking::WinSock::{
    AF_INET, AF_INET6, INVALID_SOCKET, IPPROTO_TCP, LPFN_ACCEPTEX, LPFN_CONNECTEX,
    LPFN_GETACCEPTEXSOCKADDRS, SIO_GET_EXTENSION_FUNCTION_POINTER, SO_UPDATE_ACCEPT_CONTEXT,
    SO_UPDATE_CONNECT_CONTEXT, SOCK_STREAM, SOCKADDR, SOCKADDR_STORAGE, SOCKET, SOL_SOCKET,
    WSA_FLAG_NO_HANDLE_INHERIT, WSA_FLAG_OVERLAPPED, WSA_IO_PENDING, WSA_OPERATION_ABORTED, WSABUF,
    WSAECONNABORTED, WSAECONNREFUSED, WSAECONNRESET, WSAEINVAL, WSAEMSGSIZE, WSAENOTSOCK,
    WSAEOPNOTSUPP, WSAGetOverlappedResult, WSAID_ACCEPTEX, WSAID_CONNECTEX,
    WSAID_GETACCEPTEXSOCKADDRS, WSAIoctl, WSARecv, WSARecvFrom, WSASend, WSASendTo, WSASocketW,
    bind, setsockopt,
};
use windows_sys::Win32::System::IO::{CancelIoEx, OVERLAPPED};
use windows_sys::core::GUID;

use super::address::RawAddress;
use super::afd::make_nonblocking;
use super::host::is_wine;
use super::options::{WinsockCode, fault, last_code, socket};
use super::sockets::{SocketName, is_own_peer, length, name, owned};
use crate::backend::request::SocketRequest;
use crate::backend::sockets::{PARTS, SocketKind};
use crate::types::address::{Address, AddressKind};
use crate::types::io_buffer::IoBuffer;
use crate::types::source::Descriptor;
use crate::types::source::{OwnedKind, OwnedSource, Source as _};

/// The most bytes that one call for a send is given: it is done when all of them are sent.
const SOME: usize = 1 << 16;

/// The same for a call of one after the other.
const MUCH: usize = 1 << 20;

/// The room that AcceptEx wants for an address.
const ADDRESS: usize = size_of::<SOCKADDR_STORAGE>() + 16;

/// An operation, and the memory in which the kernel notes what it has come to. While it flies, all of that is the kernel's
/// but the request and the connection.
#[repr(C)]
struct SocketTransfer {
    /// First, since its address is what a packet brings.
    overlapped: OVERLAPPED,
    flags: u32,
    /// Where it goes; or where from it came.
    address: RawAddress,
    /// What AcceptEx writes: the own address of the connection, and that of the peer.
    names: [u8; 2 * ADDRESS],
    /// What AcceptEx makes a connection of.
    connection: Option<OwnedSource>,
    request: SocketRequest,
}

/// Where a [`SocketTransfer`] is. It only tells it from others.
pub(super) type TransferPlace = usize;

/// Has a packet come that brings a place, as if a call had ended: what [`OverlappedOperations::complete`] is told then.
pub(super) type Sign<'s> = &'s dyn Fn(TransferPlace);

/// An operation that was begun, until it has ended.
struct PendingTransfer {
    /// The memory of the flight, as the kernel was told.
    memory: *mut SocketTransfer,
    /// Tells this flight from a later one that has the same memory.
    serial: u64,
    descriptor: Descriptor,
    /// The kernel has it, or has had it, and no packet was taken that tells so.
    flies: bool,
    /// The call is being made: a thread has the memory, and will go on with it.
    is_being_called: bool,
    /// The call has failed at once.
    refused: Option<WinsockCode>,
    /// It was cancelled.
    is_cancelled: bool,
}

// SAFETY: `Send` demands that another thread may use the value.
// - `memory` is a box's, of what may be sent; the box is made of it again by one thread, which takes `flies` back under
//   the lock.
unsafe impl Send for PendingTransfer {}

impl PendingTransfer {
    /// Has the kernel end it. False if the kernel does not have it.
    fn cancel(&self) -> bool {
        let handle: HANDLE = ptr::without_provenance_mut(socket(self.descriptor));
        // SAFETY: CancelIoEx looks for a request of the file that was made with this address, and does not touch what lies
        // there. A number that names nothing it refuses; in a file that has the number by now it finds nothing, since
        // the address is that of this flight alone.
        unsafe { CancelIoEx(handle, self.memory.cast_const().cast()) != 0 }
    }
}

#[derive(Default)]
struct TransferState {
    /// Handed over, and not begun, the oldest first.
    fresh: Vec<SocketRequest>,
    aboard: HashMap<TransferPlace, PendingTransfer>,
    /// Where those aboard are, by their names.
    places: HashMap<u64, TransferPlace>,
    /// What has ended, and was not brought back yet.
    ended: HashMap<u64, SocketRequest>,
    serials: u64,
    /// The reactor is being dropped.
    is_over: bool,
}

/// The operations of one reactor.
pub(super) struct OverlappedOperations {
    state: Mutex<TransferState>,
    /// [`SocketTransfer::call`], or a function of a test that demands and promises the same.
    call: unsafe fn(*mut SocketTransfer) -> WinsockCode,
}

impl Default for OverlappedOperations {
    fn default() -> Self {
        Self { state: Mutex::default(), call: SocketTransfer::call }
    }
}

/// What is known when the kernel is done with a flight.
enum Met {
    Done(usize),
    /// A datagram has filled the room, and more was lost.
    Cut(usize),
    Failed(WinsockCode),
    /// The call has failed at once.
    Refused,
}

/// The functions that the provider of sockets has besides.
#[derive(Clone, Copy)]
struct Extensions {
    accept: LPFN_ACCEPTEX,
    names: LPFN_GETACCEPTEXSOCKADDRS,
    connect: LPFN_CONNECTEX,
}

/// One function of the provider of this socket, as a pointer; null if it has none.
fn extension(of: SOCKET, mut which: GUID) -> *const core::ffi::c_void {
    let mut found: *const core::ffi::c_void = ptr::null();
    let mut written = 0;
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(0);
    // SAFETY: WSAIoctl reads and writes as many bytes at the two pointers as it is told, and the number of those written at
    // the other one. It is over when it returns, since it gets no OVERLAPPED.
    // - valid: all are locals of these sizes.
    let done = unsafe {
        WSAIoctl(
            of,
            SIO_GET_EXTENSION_FUNCTION_POINTER,
            (&raw mut which).cast(),
            size(size_of::<GUID>()),
            (&raw mut found).cast(),
            size(size_of_val(&found)),
            &raw mut written,
            ptr::null_mut(),
            None,
        )
    };
    if done == 0 { found } else { ptr::null() }
}

/// The functions of the system's own provider, to which this socket belongs.
fn extensions(of: SOCKET) -> Extensions {
    static FOUND: OnceLock<Extensions> = OnceLock::new();
    kept_or_asked(&FOUND, of)
}

/// What is kept, or else what the provider of this socket says. If that is not all of them, as when the system is short of
/// memory, it is kept for nobody: the next call asks again.
fn kept_or_asked(kept: &OnceLock<Extensions>, of: SOCKET) -> Extensions {
    const _: () = assert!(size_of::<LPFN_ACCEPTEX>() == size_of::<*const core::ffi::c_void>());
    if let Some(kept) = kept.get() {
        return *kept;
    }
    let accept = extension(of, WSAID_ACCEPTEX);
    let names = extension(of, WSAID_GETACCEPTEXSOCKADDRS);
    let connect = extension(of, WSAID_CONNECTEX);
    // SAFETY: `transmute` demands that what is called has this signature, and that null stands for `None`.
    // - the system documents it for this identifier; the library of the provider is never unloaded, since the process
    //   has sockets of it.
    let accept = unsafe { std::mem::transmute::<*const _, LPFN_ACCEPTEX>(accept) };
    // SAFETY: as above.
    let names = unsafe { std::mem::transmute::<*const _, LPFN_GETACCEPTEXSOCKADDRS>(names) };
    // SAFETY: as above.
    let connect = unsafe { std::mem::transmute::<*const _, LPFN_CONNECTEX>(connect) };
    let asked = Extensions { accept, names, connect };
    if accept.is_some() && names.is_some() && connect.is_some() {
        return *kept.get_or_init(|| asked);
    }
    asked
}

/// The code of a call that has just been made; 0 if it is done.
fn code_of(done: bool) -> WinsockCode {
    if done { 0 } else { last_code() }
}

/// A new socket for a connection of this listener.
fn open_like(listener: Descriptor) -> Result<OwnedSource, WinsockCode> {
    let family = match name(listener, SocketName::Own)? {
        Some(Address(AddressKind::Ip(SocketAddr::V4(_)))) => AF_INET,
        Some(Address(AddressKind::Ip(SocketAddr::V6(_)))) => AF_INET6,
        _ => return Err(WSAEOPNOTSUPP),
    };
    let flags = WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT;
    // SAFETY: WSASocketW reads a protocol's description at the pointer.
    // - null stands for none.
    let made =
        unsafe { WSASocketW(family.into(), SOCK_STREAM, IPPROTO_TCP, ptr::null(), 0, flags) };
    if made == INVALID_SOCKET {
        return Err(last_code());
    }
    Ok(OwnedSource(OwnedKind::System(owned(made))))
}

/// Gives a socket an address of its own, if it has none: ConnectEx demands one.
fn bind_for(descriptor: Descriptor, target: &Address) -> Result<(), WinsockCode> {
    match name(descriptor, SocketName::Own) {
        Err(WSAEINVAL) => {}
        known => return known.map(|_| ()),
    }
    let any = match &target.0 {
        AddressKind::Ip(SocketAddr::V4(_)) => SocketAddr::from(([0; 4], 0)),
        AddressKind::Ip(SocketAddr::V6(_)) => SocketAddr::from(([0_u16; 8], 0)),
        _ => return Err(WSAEOPNOTSUPP),
    };
    let any = RawAddress::of(&any.into()).map_err(|_| WSAEOPNOTSUPP)?;
    // SAFETY: bind reads as many bytes at the pointer as its third argument says.
    // - valid: `any` lives until the call returns, and this is its length.
    let done = unsafe { bind(socket(descriptor), any.as_ptr(), any.len()) };
    if done == 0 { Ok(()) } else { Err(last_code()) }
}

/// How many parts are listed without memory of their own.
const FEW: usize = 8;

/// A list of parts, as the calls take it. They have read it when they return.
struct Parts {
    few: [WSABUF; FEW],
    many: Vec<WSABUF>,
    count: usize,
}

impl Parts {
    /// Those that are left of a loan, at most so many bytes. If there are none it has one that is empty.
    fn of(io_buffer: Option<&IoBuffer>, most: usize) -> Self {
        let mut parts = Self {
            few: [const { WSABUF { len: 0, buf: ptr::null_mut() } }; FEW],
            many: Vec::new(),
            count: 1,
        };
        let all = io_buffer.map_or(&[][..], |io_buffer| io_buffer.parts());
        let mut left = most;
        let buffers = all.iter().take(PARTS).map_while(|part| {
            let len = part.len.min(left);
            left -= len;
            (len > 0).then(|| WSABUF { len: length(len), buf: part.start })
        });
        if all.len() > FEW {
            parts.many.extend(buffers);
            parts.count = parts.many.len();
            return parts;
        }
        for (number, buffer) in buffers.enumerate() {
            parts.few[number] = buffer;
            parts.count = number + 1;
        }
        parts
    }

    fn list(&mut self) -> (*mut WSABUF, u32) {
        let first =
            if self.many.is_empty() { self.few.as_mut_ptr() } else { self.many.as_mut_ptr() };
        (first, length(self.count))
    }
}

impl SocketTransfer {
    fn new(request: SocketRequest) -> Box<Self> {
        Box::new(Self {
            overlapped: OVERLAPPED::default(),
            flags: 0,
            address: RawAddress::room(),
            names: [0; 2 * ADDRESS],
            connection: None,
            request,
        })
    }

    /// What has to be there before the call.
    fn prepare(&mut self) -> Result<(), WinsockCode> {
        self.overlapped = OVERLAPPED {
            Internal: STATUS_PENDING.cast_unsigned() as usize,
            ..OVERLAPPED::default()
        };
        (self.flags, self.address) = (0, RawAddress::room());
        let SocketRequest { kind, ref target, .. } = self.request;
        let (descriptor, address) = (target.descriptor, &target.address);
        if let (SocketKind::Connect | SocketKind::Send, Some(target)) = (kind, address) {
            self.address = RawAddress::of(target).map_err(|_| WSAEOPNOTSUPP)?;
        }
        match (kind, address) {
            (SocketKind::Accept, _) => self.connection = Some(open_like(descriptor)?),
            (SocketKind::Connect, Some(target)) => bind_for(descriptor, target)?,
            _ => {}
        }
        Ok(())
    }

    /// Makes the call. 0 if it is done, or its code; after 0 and `WSA_IO_PENDING` the kernel has the memory.
    ///
    /// # Safety
    ///
    /// `flight` is what `Box::into_raw` has returned. It was [prepared](Self::prepare), and nothing else uses it. From the
    /// call on until its end nothing touches but the status, and nothing frees it.
    unsafe fn call(flight: *mut Self) -> WinsockCode {
        // SAFETY: `&raw mut` of a field demands a pointer within an object.
        // - the caller says that it is a box's.
        let overlapped = unsafe { &raw mut (*flight).overlapped };
        // SAFETY: as above.
        let flags = unsafe { &raw mut (*flight).flags };
        // SAFETY: a reference demands that the place is valid and not used by others as long as it lives.
        // - the caller says so; it ends with this statement.
        let (address, size) = unsafe { &mut (*flight).address }.as_mut_ptrs();
        // SAFETY: reading demands that the place is valid and that nothing writes there.
        // - as above.
        let len = unsafe { *size };
        // SAFETY: a reference demands that the place is valid and not written to as long as it lives.
        // - the caller says so; it is used no more when one of the calls below is made, behind which another thread may
        //   free the memory before this one goes on.
        let request = unsafe { &(*flight).request };
        let (kind, socket) = (request.kind, socket(request.target.descriptor));
        let has_target = request.target.address.is_some();
        let most = match kind {
            SocketKind::Send => SOME,
            SocketKind::SendAll => MUCH,
            _ => usize::MAX,
        };
        let mut parts = Parts::of(request.buffer.as_ref(), most);
        let (parts, count) = parts.list();
        match kind {
            // SAFETY: `accept` demands what this function demands.
            SocketKind::Accept => unsafe { Self::accept(flight, overlapped) },
            // SAFETY: `connect` demands what this function demands.
            SocketKind::Connect => unsafe { Self::connect(flight, overlapped) },
            SocketKind::Receive => {
                // SAFETY: WSARecv reads so many buffers at the second argument, before it returns. Until it is done it
                // writes at most as many bytes to each as it says, flags at the fifth argument and a status at the sixth.
                // - valid: the loan has lent its room, which stays where it is and is nobody else's until the request has
                //   come back; all else is of the flight, which the caller keeps, and the list is a local.
                let done = unsafe {
                    WSARecv(socket, parts, count, ptr::null_mut(), flags, overlapped, None)
                };
                code_of(done == 0)
            }
            SocketKind::ReceiveFrom => {
                // SAFETY: WSARecvFrom does the same, and writes at most as many bytes of an address at the sixth argument
                // as it finds at the seventh, and their number there.
                // - valid: as above.
                let done = unsafe {
                    WSARecvFrom(
                        socket,
                        parts,
                        count,
                        ptr::null_mut(),
                        flags,
                        address,
                        size,
                        overlapped,
                        None,
                    )
                };
                code_of(done == 0)
            }
            SocketKind::Send | SocketKind::SendAll => {
                let to = has_target.then_some((address.cast_const(), len));
                // SAFETY: `send` demands what this function demands, and that the list has so many parts.
                // - it is a local of so many.
                unsafe { Self::send(socket, (parts, count), to, overlapped) }
            }
        }
    }

    /// A WSASendTo, or a WSASend to the socket's peer.
    ///
    /// # Safety
    ///
    /// As for [`call`](Self::call); the address and `overlapped` are the flight's, and the parts those of its buffer, in a
    /// list of so many.
    unsafe fn send(
        socket: SOCKET,
        (parts, count): (*const WSABUF, u32),
        to: Option<(*const SOCKADDR, i32)>,
        overlapped: *mut OVERLAPPED,
    ) -> WinsockCode {
        let none = ptr::null_mut();
        let done = match to {
            // SAFETY: WSASendTo reads so many buffers and an address, the bytes of the buffers until it is done, and writes a
            // status at the argument before the last.
            // - valid: the buffer has lent its bytes, which are not written to until the request has completed; all else
            //   is of the flight, which the caller keeps, and the list is the caller's.
            Some((address, len)) => unsafe {
                WSASendTo(socket, parts, count, none, 0, address, len, overlapped, None)
            },
            // SAFETY: WSASend does the same, without an address.
            // - valid: as above.
            None => unsafe { WSASend(socket, parts, count, none, 0, overlapped, None) },
        };
        code_of(done == 0)
    }

    /// An AcceptEx.
    ///
    /// # Safety
    ///
    /// As for [`call`](Self::call); `overlapped` is the flight's.
    unsafe fn accept(flight: *mut Self, overlapped: *mut OVERLAPPED) -> WinsockCode {
        // SAFETY: `&raw mut` of a field demands a pointer within an object.
        // - the caller says that it is a box's.
        let names = unsafe { &raw mut (*flight).names }.cast();
        // SAFETY: reading demands that the place is valid and not written to.
        // - the caller says so.
        let socket = socket(unsafe { (*flight).request.target.descriptor });
        let Some(accept) = extensions(socket).accept else { return WSAEOPNOTSUPP };
        // SAFETY: a reference demands that the place is valid and not written to as long as it lives.
        // - the caller says so; it is used no more when the call is made.
        let Some(connection) = (unsafe { &(*flight).connection }) else {
            return WSAEOPNOTSUPP;
        };
        let connection = super::options::socket(connection.as_source().name.number);
        let size = u32::try_from(ADDRESS).unwrap_or(0);
        let mut received = 0;
        // SAFETY: AcceptEx writes two addresses of these sizes at the third argument and a status at the last, until
        // it is done; and a count at the seventh, if it is done when it returns.
        // - valid: the count is a local; all else is of the flight, which the caller keeps; the connection is the
        //   flight's, too.
        let done = unsafe {
            accept(socket, connection, names, 0, size, size, &raw mut received, overlapped)
        };
        code_of(done != 0)
    }

    /// A ConnectEx.
    ///
    /// # Safety
    ///
    /// As for [`call`](Self::call); `overlapped` is the flight's.
    unsafe fn connect(flight: *mut Self, overlapped: *mut OVERLAPPED) -> WinsockCode {
        // SAFETY: reading demands that the place is valid and not written to.
        // - the caller says so.
        let socket = socket(unsafe { (*flight).request.target.descriptor });
        // SAFETY: a reference demands that the place is valid and not used by others as long as it lives.
        // - the caller says so; it ends with this statement.
        let (address, size) = unsafe { &mut (*flight).address }.as_mut_ptrs();
        // SAFETY: reading demands that the place is valid and that nothing writes there.
        // - as above.
        let len = unsafe { *size };
        let Some(connect) = extensions(socket).connect else { return WSAEOPNOTSUPP };
        // SAFETY: ConnectEx reads an address of this size at the second argument, and writes a status at the last,
        // until it is done. Null stands for nothing to be sent, and for no count.
        // - valid: all is of the flight, which the caller keeps.
        let done =
            unsafe { connect(socket, address, len, ptr::null(), 0, ptr::null_mut(), overlapped) };
        code_of(done != 0)
    }

    /// What the kernel says of a call with which it is done.
    fn met(&mut self) -> Met {
        let count = self.overlapped.InternalHigh;
        if self.overlapped.Internal == 0 {
            return Met::Done(count);
        }
        let (mut len, mut flags) = (0, 0);
        // SAFETY: WSAGetOverlappedResult reads an OVERLAPPED, and writes a count and flags. It does not wait, as it is told.
        // - valid: all are borrowed over the call.
        let done = unsafe {
            WSAGetOverlappedResult(
                socket(self.request.target.descriptor),
                &raw const self.overlapped,
                &raw mut len,
                0,
                &raw mut flags,
            )
        };
        match code_of(done != 0) {
            0 => Met::Done(count),
            WSAEMSGSIZE
                if matches!(self.request.kind, SocketKind::Receive | SocketKind::ReceiveFrom) =>
            {
                Met::Cut(count)
            }
            code => {
                if matches!(self.request.kind, SocketKind::Send | SocketKind::SendAll) {
                    // Of a send that was cancelled a part may have been sent.
                    let left = self.request.buffer.as_ref().map_or(0, |io_buffer| {
                        io_buffer
                            .parts()
                            .iter()
                            .fold(0_usize, |sum, part| sum.saturating_add(part.len))
                    });
                    self.request.advance(count.min(left));
                }
                Met::Failed(code)
            }
        }
    }

    /// The listener has given up a connection: the flight has it.
    fn take_connection(&mut self) -> Result<(), WinsockCode> {
        let descriptor = self.request.target.descriptor;
        let listener = socket(descriptor);
        let Some(connection) = self.connection.take() else { return Err(WSAECONNABORTED) };
        let number = connection.as_source().name.number;
        let size = i32::try_from(size_of::<SOCKET>()).unwrap_or(0);
        let value = (&raw const listener).cast();
        // SAFETY: setsockopt reads as many bytes at the pointer as its last argument says.
        // - valid: `listener` is a local.
        let done = unsafe {
            setsockopt(socket(number), SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, value, size)
        };
        if done != 0 {
            return Err(last_code());
        }
        make_nonblocking(number)?;
        self.request.target.address = self.peer(listener);
        self.request.target.connection = Some(connection);
        Ok(())
    }

    /// The address of the peer of a connection, as AcceptEx has written it.
    fn peer(&self, listener: SOCKET) -> Option<Address> {
        let names = extensions(listener).names?;
        let (mut own, mut own_len) = (ptr::null_mut(), 0);
        let (mut peer, mut peer_len) = (ptr::null_mut(), 0);
        let size = u32::try_from(ADDRESS).unwrap_or(0);
        // SAFETY: GetAcceptExSockaddrs reads what AcceptEx has written with these sizes, and writes two pointers into that,
        // and two lengths.
        // - valid: the names are those of a call that is done; all else are locals.
        unsafe {
            names(
                self.names.as_ptr().cast(),
                0,
                size,
                size,
                &raw mut own,
                &raw mut own_len,
                &raw mut peer,
                &raw mut peer_len,
            );
        };
        let start = peer.addr().checked_sub(self.names.as_ptr().addr())?;
        let end = start.checked_add(usize::try_from(peer_len).ok()?)?;
        RawAddress::from_bytes(self.names.get(start..end)?).address()
    }

    /// A connect is done.
    fn take_peer(&self) -> Result<(), WinsockCode> {
        let descriptor = self.request.target.descriptor;
        // SAFETY: setsockopt reads as many bytes at the pointer as its last argument says: none.
        let done = unsafe {
            setsockopt(socket(descriptor), SOL_SOCKET, SO_UPDATE_CONNECT_CONTEXT, ptr::null(), 0)
        };
        if done != 0 {
            return Err(last_code());
        }
        if is_own_peer(descriptor, self.request.target.address.as_ref()) {
            return Err(WSAECONNREFUSED);
        }
        Ok(())
    }
}

impl OverlappedOperations {
    fn lock(&self) -> MutexGuard<'_, TransferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn submit(&self, request: SocketRequest) {
        self.lock().fresh.push(request);
    }

    /// Begins with what was put. What is known to have ended at once is told by `sign`.
    pub(super) fn flush(&self, sign: Sign<'_>) {
        loop {
            let mut state = self.lock();
            if state.fresh.is_empty() {
                return;
            }
            let flight = SocketTransfer::new(state.fresh.remove(0));
            let (id, descriptor) = (flight.request.id, flight.request.target.descriptor);
            let memory = Box::into_raw(flight);
            let aboard = PendingTransfer {
                memory,
                serial: 0,
                descriptor,
                flies: false,
                is_being_called: false,
                refused: None,
                is_cancelled: false,
            };
            state.places.insert(id, memory.addr());
            state.aboard.insert(memory.addr(), aboard);
            drop(state);
            // SAFETY: `from_raw` demands a pointer of `into_raw` that nothing else uses.
            // - it was made above, and does not fly.
            self.start(unsafe { Box::from_raw(memory) }, sign);
        }
    }

    /// Hands the kernel what is left of a flight that is aboard.
    fn start(&self, mut flight: Box<SocketTransfer>, sign: Sign<'_>) {
        let prepared = flight.prepare();
        let memory = Box::into_raw(flight);
        let place = memory.addr();
        let mut state = self.lock();
        state.serials += 1;
        let serial = state.serials;
        if let Some(aboard) = state.aboard.get_mut(&place) {
            (aboard.memory, aboard.serial, aboard.flies) = (memory, serial, true);
            aboard.is_being_called = true;
        }
        drop(state);
        let code = match prepared {
            // SAFETY: `call` demands a prepared flight that nothing else uses, and that is let be until the call is over.
            // - it was prepared above; `complete` makes the box of it again when the kernel has written a status, or else
            //   when this call has returned; this function does not touch it any more.
            Ok(()) => unsafe { (self.call)(memory) },
            Err(code) => code,
        };
        let mut state = self.lock();
        // It may have ended by now, and another flight have the same memory.
        let mut aboard = state.aboard.get_mut(&place).filter(|aboard| aboard.serial == serial);
        if let Some(aboard) = &mut aboard {
            aboard.is_being_called = false;
        }
        if matches!(code, 0 | WSA_IO_PENDING) {
            if let Some(aboard) = aboard.filter(|aboard| aboard.is_cancelled) {
                aboard.cancel();
            }
        } else if let Some(aboard) = aboard {
            aboard.refused = Some(code);
            drop(state);
            // No packet tells of it, or one that comes as well.
            sign(place);
        }
    }

    /// A packet has brought this address. If an operation has ended, its name. `is_there` tells whether a number names the
    /// socket still that was attached.
    pub(super) fn complete(
        &self,
        place: TransferPlace,
        sign: Sign<'_>,
        is_there: impl FnOnce(Descriptor) -> bool,
    ) -> Option<u64> {
        let mut state = self.lock();
        // The program may have made calls of its own, with memory of its own.
        let aboard = state.aboard.get_mut(&place).filter(|aboard| aboard.flies)?;
        let mut is_lost = false;
        if aboard.refused.is_none() && !aboard.has_status() {
            // The packet is of an earlier flight in the same memory, or of the program's own: Windows writes the status
            // before it hands a packet out. Wine may have lost this one: it does so if the thread ends, that has made the
            // call, just as it is done. Such a thread has come back from the call.
            if aboard.is_being_called || !is_wine() || aboard.cancel() {
                return None;
            }
            is_lost = !aboard.has_status();
        }
        aboard.flies = false;
        let refused = aboard.refused.take();
        let (memory, was_cancelled) = (aboard.memory, aboard.is_cancelled);
        drop(state);
        // SAFETY: `from_raw` demands a pointer of `into_raw` that nothing else uses.
        // - it is that of a flight that flew, as was seen just now; that was taken back by this thread alone;
        // - the kernel has written a status, which is the last that it does with the memory; or it has refused the call; or
        //   the call has returned, and it knows of no such request.
        let mut flight = unsafe { Box::from_raw(memory) };
        let is_receive =
            matches!(flight.request.kind, SocketKind::Receive | SocketKind::ReceiveFrom);
        let met = match refused {
            Some(WSAEMSGSIZE) if is_receive => Met::Cut(flight.room()),
            Some(_) => Met::Refused,
            None if is_lost => Met::Failed(WSA_OPERATION_ABORTED),
            None => flight.met(),
        };
        let is_over = match met {
            Met::Failed(WSA_OPERATION_ABORTED) if was_cancelled => false,
            met => flight.note(met, is_there),
        };
        let mut state = self.lock();
        let is_cancelled =
            state.is_over || state.aboard.get(&place).is_some_and(|aboard| aboard.is_cancelled);
        if !is_over && !is_cancelled {
            drop(state);
            self.start(flight, sign);
            return None;
        }
        // What was done so far is told, and that it was cancelled, if something is left.
        flight.request.is_cancelled |= !is_over;
        let SocketTransfer { request, .. } = *flight;
        let id = request.id;
        state.aboard.remove(&place);
        state.places.remove(&id);
        let is_dropped = state.is_over;
        if !is_dropped {
            state.ended.insert(id, request);
            return Some(id);
        }
        drop(state);
        // The port is gone. The code of its buffer is called without the lock.
        drop(request);
        None
    }

    pub(super) fn take_completed(&self, id: u64) -> Option<SocketRequest> {
        self.lock().ended.remove(&id)
    }

    /// The operation of this name, if it was not begun. Otherwise the kernel is asked to let go of it.
    pub(super) fn cancel(&self, id: u64) -> Option<SocketRequest> {
        let mut state = self.lock();
        if let Some(place) = state.fresh.iter().position(|request| request.id == id) {
            return Some(state.fresh.remove(place));
        }
        let place = *state.places.get(&id)?;
        if let Some(aboard) = state.aboard.get_mut(&place) {
            aboard.is_cancelled = true;
            if aboard.flies {
                aboard.cancel();
            }
        }
        None
    }

    /// How many operations were begun, and have not ended.
    pub(super) fn flying(&self) -> usize {
        self.lock().aboard.len()
    }

    /// The reactor is being dropped: the kernel is asked to let go of all.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        let (fresh, ended) = (std::mem::take(&mut state.fresh), std::mem::take(&mut state.ended));
        for aboard in state.aboard.values().filter(|aboard| aboard.flies) {
            aboard.cancel();
        }
        drop(state);
        // The code of buffers is called without the lock.
        drop((fresh, ended));
    }
}

impl PendingTransfer {
    /// Whether the kernel has written what the call has come to.
    fn has_status(&self) -> bool {
        // SAFETY: `&raw const` of a field demands a pointer within an object.
        // - it is a box's, which `complete` alone makes again, and takes what flies out before.
        let status = unsafe { &raw const (*self.memory).overlapped.Internal };
        // SAFETY: reading demands a valid place; what the kernel may write meanwhile is read as a whole word.
        // - as above.
        unsafe { status.read_volatile() != STATUS_PENDING.cast_unsigned() as usize }
    }
}

impl SocketTransfer {
    /// How many bytes there is room for.
    fn room(&self) -> usize {
        let parts = self.request.buffer.as_ref().map_or(&[][..], |io_buffer| io_buffer.parts());
        parts.iter().fold(0, |sum, part| sum.saturating_add(part.len))
    }

    /// Notes what a call has come to. False if something is left to be done.
    fn note(&mut self, met: Met, is_there: impl FnOnce(Descriptor) -> bool) -> bool {
        let (descriptor, kind) = (self.request.target.descriptor, self.request.kind);
        let result = match met {
            Met::Done(count) => match kind {
                SocketKind::Accept => self.take_connection(),
                SocketKind::Connect => self.take_peer(),
                SocketKind::Receive | SocketKind::ReceiveFrom => {
                    self.request.done += count;
                    Ok(())
                }
                SocketKind::Send => {
                    self.request.advance(count);
                    Ok(())
                }
                SocketKind::SendAll => {
                    self.request.advance(count);
                    return self.request.is_complete();
                }
            },
            Met::Cut(count) => {
                (self.request.done, self.request.target.is_cut) = (count, true);
                Ok(())
            }
            Met::Refused => {
                self.request.target.is_declined = true;
                Ok(())
            }
            Met::Failed(code) => Err(code),
        };
        match result {
            Ok(()) => {
                if kind == SocketKind::ReceiveFrom {
                    self.request.target.address = self.address.address();
                }
                true
            }
            // The peer has given up this connection. Another one may stand behind it.
            Err(WSAECONNRESET | WSAECONNABORTED) if kind == SocketKind::Accept => false,
            // If it was not recalled, the socket was closed; or the system has let go of it for a reason of its own.
            Err(WSA_OPERATION_ABORTED) if is_there(descriptor) => false,
            Err(WSA_OPERATION_ABORTED) => {
                self.request.fault = Some(fault(descriptor, WSAENOTSOCK));
                true
            }
            Err(code) => {
                self.request.fault = Some(fault(descriptor, code));
                true
            }
        }
    }
}
