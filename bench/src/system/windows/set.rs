//! What the clients wait with: `WSAPoll`, by level.

use std::io;
use std::os::windows::io::AsSocket;
use std::time::Duration;

use windows_sys::Win32::Networking::WinSock::{
    POLLRDNORM, POLLWRNORM, SOCKET_ERROR, WSAPOLLFD, WSAPoll,
};

use crate::system::Wanted;

/// The sockets of clients, and the events of the last wait.
pub(crate) struct Set {
    /// By their numbers.
    asked: Vec<WSAPOLLFD>,
    told: Vec<usize>,
}

impl Set {
    #[allow(clippy::unnecessary_wraps, reason = "a set of another system may be refused")]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Set { asked: Vec::new(), told: Vec::new() })
    }

    /// Events of the socket have this number from now on, instead of the former one.
    #[allow(clippy::unnecessary_wraps, reason = "as above")]
    pub(crate) fn add(
        &mut self,
        socket: &impl AsSocket,
        index: usize,
        wanted: Wanted,
    ) -> io::Result<()> {
        let events = match wanted {
            Wanted::Input => POLLRDNORM,
            Wanted::Output => POLLWRNORM,
            Wanted::Both => POLLRDNORM | POLLWRNORM,
        };
        let fd = super::number(socket);
        if self.asked.len() <= index {
            self.asked.resize_with(index + 1, WSAPOLLFD::default);
        }
        self.asked[index] = WSAPOLLFD { fd, events, revents: 0 };
        Ok(())
    }

    /// Waits for an event or the timeout.
    pub(crate) fn wait(&mut self, time: Duration) -> Result<(), String> {
        self.told.clear();
        // Rounded up: a wait that ends early would be made again and again.
        let milliseconds = i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        let count = u32::try_from(self.asked.len()).map_err(|error| error.to_string())?;
        // SAFETY: WSAPoll reads and writes that many elements at the pointer.
        // - valid for both: they are those of the list, which nothing else uses meanwhile.
        let result = unsafe { WSAPoll(self.asked.as_mut_ptr(), count, milliseconds) };
        if result == SOCKET_ERROR {
            return Err(format!("load generator: {}", io::Error::last_os_error()));
        }
        let told = self.asked.iter().enumerate().filter(|(_, one)| one.revents != 0);
        self.told.extend(told.map(|(index, _)| index));
        Ok(())
    }

    pub(crate) fn count(&self) -> usize {
        self.told.len()
    }

    /// The number of an event's socket.
    pub(crate) fn index(&self, at: usize) -> Option<usize> {
        self.told.get(at).copied()
    }
}
