//! Socket operations that the kernel carries out as overlapped calls.
//!
//! Their packets come from the reactor's completion port, together with those of polls or
//! notifications and of wakes.
//!
//! An attempt has already done what can be done immediately (see
//! [`Sockets`](crate::backend::sockets::Sockets)). A call here therefore usually has to wait, and a
//! packet reports its end even if it does not. The sockets keep packets for calls that complete
//! immediately: turning them off would also affect the program's own calls.
//!
//! The kernel owns the memory of a call from the call to its end. Nothing else frees it: a packet
//! is only a reason to check whether the kernel has finished.

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

/// The most bytes of the call of a [`SocketKind::Send`], which ends when all of them are sent.
const SOME: usize = 1 << 16;

/// The most bytes of each call of a [`SocketKind::SendAll`], which makes one after the other.
const MUCH: usize = 1 << 20;

/// Returns how many bytes one call transfers at most.
fn most_at_once(kind: SocketKind) -> usize {
    match kind {
        SocketKind::Send => SOME,
        SocketKind::SendAll => MUCH,
        _ => usize::MAX,
    }
}

/// The size that AcceptEx requires for an address.
const ADDRESS: usize = size_of::<SOCKADDR_STORAGE>() + 16;

/// An operation, and the memory to which the kernel writes its result. While `is_pending` is set, the
/// kernel owns all of it except the request and the connection.
#[repr(C)]
struct SocketTransfer {
    /// The first field, since its address comes with the packet.
    overlapped: OVERLAPPED,
    flags: u32,
    /// The target address, or the sender's address.
    address: RawAddress,
    /// Written by AcceptEx: the connection's own address and its peer's address.
    names: [u8; 2 * ADDRESS],
    /// The socket that AcceptEx turns into a connection.
    connection: Option<OwnedSource>,
    request: SocketRequest,
}

/// The address of a [`SocketTransfer`], used only as its identity.
pub(super) type TransferPlace = usize;

/// Queues a packet with a place, as if a call had ended. [`OverlappedOperations::complete`] gets
/// the place.
pub(super) type CompletionSignal<'s> = &'s dyn Fn(TransferPlace);

/// A transfer that has started and not ended.
struct PendingTransfer {
    /// The memory of the transfer, with the pointer that was passed to the kernel.
    memory: *mut SocketTransfer,
    /// Distinguishes this call from a later one with the same memory.
    serial: u64,
    descriptor: Descriptor,
    /// The kernel has the transfer, or has ended it and no thread has processed its packet.
    is_pending: bool,
    /// A thread is making the call. It has the memory and will continue with it.
    is_being_called: bool,
    /// The error with which the call failed immediately.
    refused: Option<WinsockCode>,
    /// It was cancelled.
    is_cancelled: bool,
}

// SAFETY: `Send` requires that another thread may use the value.
// - `memory` comes from a box of a type that may be sent; only the thread that clears `is_pending` under
//   the lock makes a box of it again.
unsafe impl Send for PendingTransfer {}

impl PendingTransfer {
    /// Asks the kernel to cancel the call. False if the kernel does not have it.
    fn cancel(&self) -> bool {
        let handle: HANDLE = ptr::without_provenance_mut(socket(self.descriptor));
        // SAFETY: CancelIoEx looks for a request of the file that was made with this address, and
        // does not access the memory there. It fails for a number that names nothing. If the number
        // names another file by now, it finds nothing there, since no other transfer has this
        // address.
        unsafe { CancelIoEx(handle, self.memory.cast_const().cast()) != 0 }
    }
}

#[derive(Default)]
struct TransferState {
    /// Submitted requests that have not started, oldest first.
    fresh: Vec<SocketRequest>,
    pending: HashMap<TransferPlace, PendingTransfer>,
    /// The place of each pending transfer, by request id.
    places: HashMap<u64, TransferPlace>,
    /// Completed requests that have not been taken.
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

/// The result of a transfer that the kernel has finished.
enum CompletionInfo {
    Done(usize),
    /// A datagram has filled the room, and the rest was lost.
    Cut(usize),
    Failed(WinsockCode),
    /// The call has failed immediately.
    Refused,
}

/// Extension functions of the socket provider.
#[derive(Clone, Copy)]
struct Extensions {
    accept: LPFN_ACCEPTEX,
    names: LPFN_GETACCEPTEXSOCKADDRS,
    connect: LPFN_CONNECTEX,
}

/// Returns one function of the socket's provider, or null if the provider has none.
fn extension(of: SOCKET, mut which: GUID) -> *const core::ffi::c_void {
    let mut found: *const core::ffi::c_void = ptr::null();
    let mut written = 0;
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(0);
    // SAFETY: WSAIoctl reads and writes as many bytes at the two pointers as the arguments say, and
    // the number of bytes written at the third. It has finished when it returns, since it gets no
    // OVERLAPPED.
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

/// Returns the functions of the system's own provider, to which this socket belongs.
fn extensions(of: SOCKET) -> Extensions {
    static FOUND: OnceLock<Extensions> = OnceLock::new();
    kept_or_asked(&FOUND, of)
}

/// Returns the functions in `kept`, or asks the provider of this socket for them.
///
/// If the provider does not return all of them, for example for lack of memory, `kept` stays empty
/// and the next call asks again.
fn kept_or_asked(kept: &OnceLock<Extensions>, of: SOCKET) -> Extensions {
    const _: () = assert!(size_of::<LPFN_ACCEPTEX>() == size_of::<*const core::ffi::c_void>());
    if let Some(kept) = kept.get() {
        return *kept;
    }
    let accept = extension(of, WSAID_ACCEPTEX);
    let names = extension(of, WSAID_GETACCEPTEXSOCKADDRS);
    let connect = extension(of, WSAID_CONNECTEX);
    // SAFETY: `transmute` requires that the function has this signature, and that null means
    // `None`.
    // - the system documents it for this identifier; the provider's library is never unloaded,
    //   since the process has sockets of it.
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

/// Returns the code of a call that has just been made, or 0 if it succeeded.
fn code_of(done: bool) -> WinsockCode {
    if done { 0 } else { last_code() }
}

/// Makes a socket for a connection of this listener.
fn open_like(listener: Descriptor) -> Result<OwnedSource, WinsockCode> {
    let family = match name(listener, SocketName::Own)? {
        Some(Address(AddressKind::Ip(SocketAddr::V4(_)))) => AF_INET,
        Some(Address(AddressKind::Ip(SocketAddr::V6(_)))) => AF_INET6,
        _ => return Err(WSAEOPNOTSUPP),
    };
    let flags = WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT;
    // SAFETY: WSASocketW reads a protocol's description at the pointer.
    // - null means none.
    let made =
        unsafe { WSASocketW(family.into(), SOCK_STREAM, IPPROTO_TCP, ptr::null(), 0, flags) };
    if made == INVALID_SOCKET {
        return Err(last_code());
    }
    Ok(OwnedSource(OwnedKind::System(owned(made))))
}

/// Binds a socket that has no address, as ConnectEx requires.
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

/// The number of parts that need no allocation.
const FEW: usize = 8;

/// A list of parts in the form of the calls. A call has read the list when it returns.
struct PartList {
    few: [WSABUF; FEW],
    many: Vec<WSABUF>,
    count: usize,
}

impl PartList {
    /// Makes a list of the remaining parts of a buffer, at most `most` bytes.
    ///
    /// If there are none, the list has one empty part.
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

    /// Prepares the memory for the call.
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

    /// Makes the call.
    ///
    /// Returns 0 if it has succeeded, or its code. After 0 and `WSA_IO_PENDING` the kernel owns the
    /// memory.
    ///
    /// # Safety
    ///
    /// `transfer` is a pointer from `Box::into_raw`. It was [prepared](Self::prepare), and nothing
    /// else uses it. From the call to its end, nothing accesses it except for its status, and
    /// nothing frees it.
    unsafe fn call(transfer: *mut Self) -> WinsockCode {
        // SAFETY: `&raw mut` of a field requires a pointer to an object.
        // - the caller guarantees that it points to a box's object.
        let overlapped = unsafe { &raw mut (*transfer).overlapped };
        // SAFETY: as above.
        let flags = unsafe { &raw mut (*transfer).flags };
        // SAFETY: a reference requires that the object is valid and not used by others during its
        // lifetime.
        // - the caller guarantees it; the reference ends with this statement.
        let (address, size) = unsafe { &mut (*transfer).address }.as_mut_ptrs();
        // SAFETY: reading requires that the object is valid and that nothing writes to it.
        // - as above.
        let len = unsafe { *size };
        // SAFETY: a reference requires that the object is valid and not written to during its
        // lifetime.
        // - the caller guarantees it; the reference is not used after any of the calls below. After
        //   the call another thread may free the memory before this one continues.
        let request = unsafe { &(*transfer).request };
        let (kind, socket) = (request.kind, socket(request.target.descriptor));
        let has_target = request.target.address.is_some();
        let mut parts = PartList::of(request.buffer.as_ref(), most_at_once(kind));
        let (parts, count) = parts.list();
        match kind {
            // SAFETY: `accept` has the requirements of this function.
            SocketKind::Accept => unsafe { Self::accept(transfer, overlapped) },
            // SAFETY: `connect` has the requirements of this function.
            SocketKind::Connect => unsafe { Self::connect(transfer, overlapped) },
            SocketKind::Receive => {
                // SAFETY: WSARecv reads `count` buffers at the second argument before it returns.
                // Until it has finished, it writes at most as many bytes to each buffer as its
                // length says, flags at the fifth argument and a status at the sixth.
                // - valid: the buffer has lent its room, which does not move and which nothing else
                //   accesses until the request has completed; everything else belongs to the
                //   transfer, which the caller keeps, and the list is a local.
                let done = unsafe {
                    WSARecv(socket, parts, count, ptr::null_mut(), flags, overlapped, None)
                };
                code_of(done == 0)
            }
            SocketKind::ReceiveFrom => {
                // SAFETY: WSARecvFrom does the same, and writes at most as many bytes of an address
                // at the sixth argument as it finds at the seventh, and their number there.
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
                // SAFETY: `send` has the requirements of this function, and requires that the list
                // has `count` parts.
                // - it is a local with that many.
                unsafe { Self::send(socket, (parts, count), to, overlapped) }
            }
        }
    }

    /// Calls WSASendTo, or WSASend for the socket's peer.
    ///
    /// # Safety
    ///
    /// As for [`call`](Self::call); the address and `overlapped` belong to the transfer, and the
    /// parts to its buffer, in a list of `count` elements.
    unsafe fn send(
        socket: SOCKET,
        (parts, count): (*const WSABUF, u32),
        to: Option<(*const SOCKADDR, i32)>,
        overlapped: *mut OVERLAPPED,
    ) -> WinsockCode {
        let none = ptr::null_mut();
        let done = match to {
            // SAFETY: WSASendTo reads `count` buffers and an address, reads the bytes of the
            // buffers until it has finished, and writes a status at the last argument but one.
            // - valid: the buffer has lent its bytes, which nothing writes to until the request has
            //   completed; everything else belongs to the transfer, which the caller keeps, and the
            //   list is the caller's.
            Some((address, len)) => unsafe {
                WSASendTo(socket, parts, count, none, 0, address, len, overlapped, None)
            },
            // SAFETY: WSASend does the same, without an address.
            // - valid: as above.
            None => unsafe { WSASend(socket, parts, count, none, 0, overlapped, None) },
        };
        code_of(done == 0)
    }

    /// Calls AcceptEx.
    ///
    /// # Safety
    ///
    /// As for [`call`](Self::call); `overlapped` belongs to the transfer.
    unsafe fn accept(transfer: *mut Self, overlapped: *mut OVERLAPPED) -> WinsockCode {
        // SAFETY: `&raw mut` of a field requires a pointer to an object.
        // - the caller guarantees that it points to a box's object.
        let names = unsafe { &raw mut (*transfer).names }.cast();
        // SAFETY: reading requires that the object is valid and not written to.
        // - the caller guarantees it.
        let socket = socket(unsafe { (*transfer).request.target.descriptor });
        let Some(accept) = extensions(socket).accept else { return WSAEOPNOTSUPP };
        // SAFETY: a reference requires that the object is valid and not written to during its
        // lifetime.
        // - the caller guarantees it; the reference is not used after the call.
        let Some(connection) = (unsafe { &(*transfer).connection }) else {
            return WSAEOPNOTSUPP;
        };
        let connection = super::options::socket(connection.as_source().name.number);
        let size = u32::try_from(ADDRESS).unwrap_or(0);
        let mut received = 0;
        // SAFETY: AcceptEx writes two addresses of these sizes at the third argument and a status
        // at the last, until it has finished; and a count at the seventh, if it has finished when
        // it returns.
        // - valid: the count is a local; everything else belongs to the transfer, which the caller
        //   keeps, including the connection.
        let done = unsafe {
            accept(socket, connection, names, 0, size, size, &raw mut received, overlapped)
        };
        code_of(done != 0)
    }

    /// Calls ConnectEx.
    ///
    /// # Safety
    ///
    /// As for [`call`](Self::call); `overlapped` belongs to the transfer.
    unsafe fn connect(transfer: *mut Self, overlapped: *mut OVERLAPPED) -> WinsockCode {
        // SAFETY: reading requires that the object is valid and not written to.
        // - the caller guarantees it.
        let socket = socket(unsafe { (*transfer).request.target.descriptor });
        // SAFETY: a reference requires that the object is valid and not used by others during its
        // lifetime.
        // - the caller guarantees it; the reference ends with this statement.
        let (address, size) = unsafe { &mut (*transfer).address }.as_mut_ptrs();
        // SAFETY: reading requires that the object is valid and that nothing writes to it.
        // - as above.
        let len = unsafe { *size };
        let Some(connect) = extensions(socket).connect else { return WSAEOPNOTSUPP };
        // SAFETY: ConnectEx reads an address of this size at the second argument, and writes a
        // status at the last until it has finished. Null means nothing to send, and no count.
        // - valid: everything belongs to the transfer, which the caller keeps.
        let done =
            unsafe { connect(socket, address, len, ptr::null(), 0, ptr::null_mut(), overlapped) };
        code_of(done != 0)
    }

    /// Returns the result of a call that the kernel has finished.
    fn met(&mut self) -> CompletionInfo {
        let count = self.overlapped.InternalHigh;
        if self.overlapped.Internal == 0 {
            return CompletionInfo::Done(count);
        }
        let (mut len, mut flags) = (0, 0);
        // SAFETY: WSAGetOverlappedResult reads an OVERLAPPED, and writes a count and flags. With
        // these arguments it does not wait.
        // - valid: all are borrowed during the call.
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
            0 => CompletionInfo::Done(count),
            WSAEMSGSIZE
                if matches!(self.request.kind, SocketKind::Receive | SocketKind::ReceiveFrom) =>
            {
                CompletionInfo::Cut(count)
            }
            code => {
                if matches!(self.request.kind, SocketKind::Send | SocketKind::SendAll) {
                    // A cancelled send may have sent a part.
                    let left = self.request.buffer.as_ref().map_or(0, |io_buffer| {
                        io_buffer
                            .parts()
                            .iter()
                            .fold(0_usize, |sum, part| sum.saturating_add(part.len))
                    });
                    self.request.advance(count.min(left));
                }
                CompletionInfo::Failed(code)
            }
        }
    }

    /// Takes the accepted connection from the transfer.
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

    /// Returns the address of a connection's peer, as AcceptEx has written it.
    fn peer(&self, listener: SOCKET) -> Option<Address> {
        let names = extensions(listener).names?;
        let (mut own, mut own_len) = (ptr::null_mut(), 0);
        let (mut peer, mut peer_len) = (ptr::null_mut(), 0);
        let size = u32::try_from(ADDRESS).unwrap_or(0);
        // SAFETY: GetAcceptExSockaddrs reads the memory that AcceptEx has written with these sizes,
        // and writes two pointers into it and two lengths.
        // - valid: the names are those of a finished call; everything else is a local.
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

    /// Completes a successful connect.
    fn take_peer(&self) -> Result<(), WinsockCode> {
        let descriptor = self.request.target.descriptor;
        // SAFETY: setsockopt reads as many bytes at the pointer as its last argument says, which is
        // none.
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

    /// Starts the submitted requests. `sign` reports those that fail immediately.
    pub(super) fn flush(&self, sign: CompletionSignal<'_>) {
        loop {
            let mut state = self.lock();
            if state.fresh.is_empty() {
                return;
            }
            let transfer = SocketTransfer::new(state.fresh.remove(0));
            let (id, descriptor) = (transfer.request.id, transfer.request.target.descriptor);
            let memory = Box::into_raw(transfer);
            let pending = PendingTransfer {
                memory,
                serial: 0,
                descriptor,
                is_pending: false,
                is_being_called: false,
                refused: None,
                is_cancelled: false,
            };
            state.places.insert(id, memory.addr());
            state.pending.insert(memory.addr(), pending);
            drop(state);
            // SAFETY: `from_raw` requires a pointer from `into_raw` that nothing else uses.
            // - it was made above, and the kernel does not have it.
            self.start(unsafe { Box::from_raw(memory) }, sign);
        }
    }

    /// Submits the remaining part of a pending transfer to the kernel.
    fn start(&self, mut transfer: Box<SocketTransfer>, sign: CompletionSignal<'_>) {
        let prepared = transfer.prepare();
        let memory = Box::into_raw(transfer);
        let place = memory.addr();
        let mut state = self.lock();
        state.serials += 1;
        let serial = state.serials;
        if let Some(pending) = state.pending.get_mut(&place) {
            (pending.memory, pending.serial, pending.is_pending) = (memory, serial, true);
            pending.is_being_called = true;
        }
        drop(state);
        let code = match prepared {
            // SAFETY: `call` requires a prepared transfer that nothing else uses, and that nothing
            // accesses until the call has ended.
            // - it was prepared above; `complete` makes the box of it again when the kernel has
            //   written a status, or when this call has returned; this function does not access it
            //   any more.
            Ok(()) => unsafe { (self.call)(memory) },
            Err(code) => code,
        };
        let mut state = self.lock();
        // The transfer may have ended by now, and another one may have the same memory.
        let mut pending = state.pending.get_mut(&place).filter(|pending| pending.serial == serial);
        if let Some(pending) = &mut pending {
            pending.is_being_called = false;
        }
        if matches!(code, 0 | WSA_IO_PENDING) {
            if let Some(pending) = pending.filter(|pending| pending.is_cancelled) {
                pending.cancel();
            }
        } else if let Some(pending) = pending {
            pending.refused = Some(code);
            drop(state);
            // No packet reports it, or one does so in addition.
            sign(place);
        }
    }

    /// Processes a packet with this address. Returns the request id of an operation that has ended.
    ///
    /// `is_there` returns whether a number still names the attached socket.
    pub(super) fn complete(
        &self,
        place: TransferPlace,
        sign: CompletionSignal<'_>,
        is_there: impl FnOnce(Descriptor) -> bool,
    ) -> Option<u64> {
        let mut state = self.lock();
        // The program may have made its own calls, with its own memory.
        let pending = state.pending.get_mut(&place).filter(|pending| pending.is_pending)?;
        let mut is_lost = false;
        if pending.refused.is_none() && !pending.has_status() {
            // The packet belongs to an earlier transfer in the same memory, or to the program:
            // Windows writes the status before it returns a packet. Wine may have lost this status:
            // it does so if the thread that made the call ends just as the call completes. Such a
            // thread has returned from the call.
            if pending.is_being_called || !is_wine() || pending.cancel() {
                return None;
            }
            is_lost = !pending.has_status();
        }
        pending.is_pending = false;
        let refused = pending.refused.take();
        let (memory, was_cancelled) = (pending.memory, pending.is_cancelled);
        drop(state);
        // SAFETY: `from_raw` requires a pointer from `into_raw` that nothing else uses.
        // - it belongs to a transfer whose `is_pending` was set, as checked above; only this thread has
        //   cleared it;
        // - the kernel has written a status, after which it does not access the memory; or it has
        //   refused the call; or the call has returned, and the kernel knows no such request.
        let mut transfer = unsafe { Box::from_raw(memory) };
        let is_receive =
            matches!(transfer.request.kind, SocketKind::Receive | SocketKind::ReceiveFrom);
        let met = match refused {
            Some(WSAEMSGSIZE) if is_receive => CompletionInfo::Cut(transfer.room()),
            Some(_) => CompletionInfo::Refused,
            None if is_lost => CompletionInfo::Failed(WSA_OPERATION_ABORTED),
            None => transfer.met(),
        };
        let is_over = match met {
            CompletionInfo::Failed(WSA_OPERATION_ABORTED) if was_cancelled => false,
            met => transfer.note(met, is_there),
        };
        let mut state = self.lock();
        let is_cancelled =
            state.is_over || state.pending.get(&place).is_some_and(|pending| pending.is_cancelled);
        if !is_over && !is_cancelled {
            drop(state);
            self.start(transfer, sign);
            return None;
        }
        // The request reports the bytes done so far. It is cancelled only if a part remains.
        transfer.request.is_cancelled |= !is_over;
        let SocketTransfer { request, .. } = *transfer;
        let id = request.id;
        state.pending.remove(&place);
        state.places.remove(&id);
        let is_dropped = state.is_over;
        if !is_dropped {
            state.ended.insert(id, request);
            return Some(id);
        }
        drop(state);
        // The port is gone. The lock is released, since this runs code of the buffer.
        drop(request);
        None
    }

    pub(super) fn take_completed(&self, id: u64) -> Option<SocketRequest> {
        self.lock().ended.remove(&id)
    }

    /// Cancels an operation.
    ///
    /// Returns it if it has not started; otherwise asks the kernel to cancel it.
    pub(super) fn cancel(&self, id: u64) -> Option<SocketRequest> {
        let mut state = self.lock();
        if let Some(place) = state.fresh.iter().position(|request| request.id == id) {
            return Some(state.fresh.remove(place));
        }
        let place = *state.places.get(&id)?;
        if let Some(pending) = state.pending.get_mut(&place) {
            pending.is_cancelled = true;
            if pending.is_pending {
                pending.cancel();
            }
        }
        None
    }

    /// Returns the number of operations that have started and not ended.
    pub(super) fn pending(&self) -> usize {
        self.lock().pending.len()
    }

    /// Asks the kernel to cancel everything, when the reactor is dropped.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        let (fresh, ended) = (std::mem::take(&mut state.fresh), std::mem::take(&mut state.ended));
        for pending in state.pending.values().filter(|pending| pending.is_pending) {
            pending.cancel();
        }
        drop(state);
        // The lock is released, since this runs code of buffers.
        drop((fresh, ended));
    }
}

impl PendingTransfer {
    /// Returns whether the kernel has written the result of the call.
    fn has_status(&self) -> bool {
        // SAFETY: `&raw const` of a field requires a pointer to an object.
        // - it points to a box's object. Only `complete` makes the box again, and it clears `is_pending`
        //   before.
        let status = unsafe { &raw const (*self.memory).overlapped.Internal };
        // SAFETY: reading requires a valid object; the kernel may write it meanwhile, so it is read
        // as one word.
        // - as above.
        unsafe { status.read_volatile() != STATUS_PENDING.cast_unsigned() as usize }
    }
}

impl SocketTransfer {
    /// Returns the number of bytes that there is room for.
    fn room(&self) -> usize {
        let parts = self.request.buffer.as_ref().map_or(&[][..], |io_buffer| io_buffer.parts());
        parts.iter().fold(0, |sum, part| sum.saturating_add(part.len))
    }

    /// Notes the result of a call. Returns false if a part remains to be done.
    fn note(&mut self, met: CompletionInfo, is_there: impl FnOnce(Descriptor) -> bool) -> bool {
        let (descriptor, kind) = (self.request.target.descriptor, self.request.kind);
        let result = match met {
            CompletionInfo::Done(count) => match kind {
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
            CompletionInfo::Cut(count) => {
                (self.request.done, self.request.target.is_cut) = (count, true);
                Ok(())
            }
            CompletionInfo::Refused => {
                self.request.target.is_declined = true;
                Ok(())
            }
            CompletionInfo::Failed(code) => Err(code),
        };
        match result {
            Ok(()) => {
                if kind == SocketKind::ReceiveFrom {
                    self.request.target.address = self.address.address();
                }
                true
            }
            // The peer has aborted this connection. The next one may succeed.
            Err(WSAECONNRESET | WSAECONNABORTED) if kind == SocketKind::Accept => false,
            // If it was not cancelled, the socket was closed, or the system has cancelled it for
            // its own reasons.
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
