//! The registration of each socket's number, and the port it is on.
//!
//! The port knows registrations by ID, programs by socket, and the system reuses a socket's number
//! after a close. A number is locked while its registration is changed, before any lock of a port
//! is taken.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use completion_port::Id;
use windows_sys::Win32::Networking::WinSock::{
    SO_TYPE, SOCKET_ERROR, SOL_SOCKET, WSAGetLastError, WSANOTINITIALISED, getsockopt,
};

use crate::errors::code;

/// The number of a socket: the lower 32 bits of its handle.
pub(crate) type Number = i32;

/// The key of a registration, returned in its packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) word: usize,
    pub(crate) number: Number,
}

/// A registration, as the entry of its socket's number stores it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    /// The port's handle.
    pub(crate) port: u64,
    pub(crate) id: Id,
    /// Its last packet is queued: the port no longer watches the socket.
    pub(crate) is_removed: bool,
}

type Part = Mutex<BTreeMap<Number, Registered>>;

/// Number of parts of the table: threads that change different sockets hardly ever contend.
const PARTS: usize = 64;

static TABLE: [Part; PARTS] = [const { Mutex::new(BTreeMap::new()) }; PARTS];

/// A locked number, together with others.
pub(crate) struct Locked {
    part: MutexGuard<'static, BTreeMap<Number, Registered>>,
    number: Number,
}

impl Locked {
    pub(crate) fn registered(&self) -> Option<Registered> {
        self.part.get(&self.number).copied()
    }

    pub(crate) fn set(&mut self, registered: Registered) {
        self.part.insert(self.number, registered);
    }

    pub(crate) fn clear(&mut self) -> Option<Registered> {
        self.part.remove(&self.number)
    }
}

pub(crate) fn lock(number: Number) -> Locked {
    // Numbers of handles are multiples of four.
    let part = &TABLE[(number.cast_unsigned() >> 2) as usize % PARTS];
    Locked { part: part.lock().unwrap_or_else(PoisonError::into_inner), number }
}

/// The last packet of the registration `id` on `port` has been taken.
pub(crate) fn end(number: Number, port: u64, id: Id) {
    let mut locked = lock(number);
    if locked.registered().is_some_and(|it| it.port == port && it.id == id) {
        locked.clear();
    }
}

/// The number of a socket. Providers that create their own handles may have sockets without one.
pub(crate) fn number_of(socket: usize) -> Result<Number, u32> {
    Number::try_from(socket).map_err(|_| code::WSAENOTSOCK)
}

/// Fails for anything but an open socket.
pub(crate) fn check(number: Number) -> Result<(), u32> {
    let socket = usize::try_from(number).map_err(|_| code::WSAENOTSOCK)?;
    let (mut value, mut size) = ([0_u8; 4], 4);
    // SAFETY: getsockopt writes at most `size` bytes at the first pointer, and reads and writes the size at the other.
    // - valid: both are locals, and `value` has four bytes.
    let done =
        unsafe { getsockopt(socket, SOL_SOCKET, SO_TYPE, value.as_mut_ptr(), &raw mut size) };
    // SAFETY: WSAGetLastError demands nothing.
    match (done, unsafe { WSAGetLastError() }) {
        (SOCKET_ERROR, WSANOTINITIALISED) => Err(code::WSANOTINITIALISED),
        (SOCKET_ERROR, _) => Err(code::WSAENOTSOCK),
        _ => Ok(()),
    }
}
