//! What the clients wait with: an epoll set, edge-triggered.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::system::Wanted;

/// Events taken by a wait at most.
const EVENTS: usize = 64;

/// The sockets of clients, and the events of the last wait.
pub(crate) struct Set {
    set: OwnedFd,
    events: Vec<Event>,
}

impl Set {
    pub(crate) fn new() -> io::Result<Self> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Set { set, events: Vec::with_capacity(EVENTS) })
    }

    /// Events of the socket have this number from now on, until it is closed.
    pub(crate) fn add(
        &mut self,
        socket: &impl AsFd,
        index: usize,
        wanted: Wanted,
    ) -> io::Result<()> {
        let flags = match wanted {
            Wanted::Input => EventFlags::IN,
            Wanted::Output => EventFlags::OUT,
            Wanted::Both => EventFlags::IN | EventFlags::OUT,
        };
        epoll::add(&self.set, socket, EventData::new_u64(index as u64), flags | EventFlags::ET)?;
        Ok(())
    }

    /// Waits for an event or the timeout.
    pub(crate) fn wait(&mut self, time: Duration) -> Result<(), String> {
        let timeout = Timespec::try_from(time).map_err(|error| error.to_string())?;
        self.events.clear();
        let space = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.set, space, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(format!("load generator: {error}")),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.events.len()
    }

    /// The number of an event's socket.
    pub(crate) fn index(&self, at: usize) -> Option<usize> {
        usize::try_from(self.events[at].data.u64()).ok()
    }
}
