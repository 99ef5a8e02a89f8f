//! What the number of each socket stands for at present: which registration on which port.
//!
//! The port knows registrations by their names, programs by sockets, which they close and get again. A number is locked
//! while its registration is changed, and before any lock of a port is taken.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use completion_port::Id;
use windows_sys::Win32::Networking::WinSock::{
    SO_TYPE, SOCKET_ERROR, SOL_SOCKET, WSAGetLastError, WSANOTINITIALISED, getsockopt,
};

use crate::errors::code;

/// The number of a socket. Of a handle the lower 32 bits count.
pub(crate) type Number = i32;

/// What a packet of a registration brings: its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) word: usize,
    pub(crate) number: Number,
}

/// A registration, as it is remembered of its socket's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    /// The port's handle.
    pub(crate) port: u64,
    pub(crate) id: Id,
    /// Its last packet is on the way: the port does not watch it any more.
    pub(crate) is_removed: bool,
}

type Part = Mutex<BTreeMap<Number, Registered>>;

/// How many parts the table has, so that threads that change different sockets hardly ever meet.
const PARTS: usize = 64;

static TABLE: [Part; PARTS] = [const { Mutex::new(BTreeMap::new()) }; PARTS];

/// A number that is locked, and others with it.
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

/// The number of a socket. That of a provider that makes up handles of its own may be none.
pub(crate) fn number_of(socket: usize) -> Result<Number, u32> {
    Number::try_from(socket).map_err(|_| code::WSAENOTSOCK)
}

/// Refuses what is no socket that is open.
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
