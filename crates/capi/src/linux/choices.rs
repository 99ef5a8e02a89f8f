//! A program's choices for a socket that the system does not get, or gets in another form.

use std::os::fd::RawFd;

use crate::linux::descriptors;

/// A program's choices for one socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chosen {
    /// The [identity](descriptors::identity) of the socket; 0 if the program has chosen nothing.
    socket: u64,
    /// `SO_REUSEADDR`.
    pub(crate) is_shared: bool,
    /// `SO_EXCLUSIVEADDRUSE`.
    pub(crate) is_exclusive: bool,
    /// The socket is a stream with a port that the program chose.
    pub(crate) has_port: bool,
    /// `SO_SNDBUF`.
    pub(crate) send_room: Option<u32>,
    /// `SO_RCVBUF`.
    pub(crate) receive_room: Option<u32>,
    /// Which successes queue no packet: `FILE_SKIP_...`.
    pub(crate) modes: u8,
}

impl Chosen {
    /// Returns the choices for the socket that `descriptor` names, for changing.
    pub(crate) fn of(&mut self, descriptor: RawFd) -> &mut Self {
        self.of_socket(descriptors::identity(descriptor))
    }

    /// The same for the socket with this identity.
    pub(crate) fn of_socket(&mut self, socket: u64) -> &mut Self {
        if self.socket != socket {
            *self = Self { socket, ..Self::default() };
        }
        self
    }

    /// Returns the choices for the socket that `descriptor` names.
    pub(crate) fn known(self, descriptor: RawFd) -> Self {
        // Most sockets have none, and this avoids the system call.
        if self.socket == 0 {
            Self::default()
        } else {
            self.known_of(descriptors::identity(descriptor))
        }
    }

    /// Returns the choices for the socket with this identity.
    pub(crate) fn known_of(self, socket: u64) -> Self {
        if self.socket == socket { self } else { Self::default() }
    }

    /// The same choices for the socket with this identity, which replaces the old one and has no port.
    pub(crate) fn handed_on(self, identity: u64) -> Self {
        if self.socket == 0 { self } else { Self { socket: identity, has_port: false, ..self } }
    }

    /// Returns the choices a connection inherits from its listener, if any.
    pub(crate) fn inherited(self, listener: RawFd, connection: RawFd) -> Option<Self> {
        // Most listeners have none, and this avoids the system call.
        if self.send_room.is_none() && self.receive_room.is_none() {
            return None;
        }
        let Self { send_room, receive_room, .. } = self.known(listener);
        let socket = descriptors::identity(connection);
        Some(Self { socket, send_room, receive_room, ..Self::default() })
    }
}
