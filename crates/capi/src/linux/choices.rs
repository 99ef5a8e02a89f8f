//! What a program has chosen of a socket and the system is not told, or is told in another way.

use std::os::fd::RawFd;

use crate::linux::descriptors;

/// The choices of a program of one socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chosen {
    /// The [identity](descriptors::identity) of the socket; 0 if nothing was chosen of any.
    socket: u64,
    /// `SO_REUSEADDR`.
    pub(crate) is_shared: bool,
    /// `SO_EXCLUSIVEADDRUSE`.
    pub(crate) is_exclusive: bool,
    /// It is a stream with a port of the program's choice.
    pub(crate) has_port: bool,
    /// `SO_SNDBUF`.
    pub(crate) send_room: Option<u32>,
    /// `SO_RCVBUF`.
    pub(crate) receive_room: Option<u32>,
}

impl Chosen {
    /// Those of the socket that `descriptor` names, to be changed.
    pub(crate) fn of(&mut self, descriptor: RawFd) -> &mut Self {
        let socket = descriptors::identity(descriptor);
        if self.socket != socket {
            *self = Self { socket, ..Self::default() };
        }
        self
    }

    /// Those of the socket that `descriptor` names.
    pub(crate) fn known(&self, descriptor: RawFd) -> Self {
        if self.socket != 0 && self.socket == descriptors::identity(descriptor) {
            *self
        } else {
            Self::default()
        }
    }

    /// The same of the socket with this identity, which takes the place of the other one and has no port.
    pub(crate) fn handed_on(self, identity: u64) -> Self {
        if self.socket == 0 { self } else { Self { socket: identity, has_port: false, ..self } }
    }

    /// What a connection has of those of its listener, if that is anything.
    pub(crate) fn inherited(self, listener: RawFd, connection: RawFd) -> Option<Self> {
        // Most have none, and ask nothing.
        if self.send_room.is_none() && self.receive_room.is_none() {
            return None;
        }
        let Self { send_room, receive_room, .. } = self.known(listener);
        let socket = descriptors::identity(connection);
        Some(Self { socket, send_room, receive_room, ..Self::default() })
    }
}
