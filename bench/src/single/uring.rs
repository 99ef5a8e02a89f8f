//! Plain `io_uring`: each connection has one permanent receive request, into buffers that the
//! kernel picks.

#[allow(clippy::duplicate_mod, reason = "the same buffers as the server's, for one thread")]
#[path = "../contenders/linux/uring/buffers.rs"]
mod buffers;

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode, types};

use self::buffers::{Buffers, GROUP};
use super::Taker;
use super::pairs::Driver;
use crate::work::{BUFFER, MESSAGE};

/// Room for requests.
const REQUESTS: u32 = 256;

struct Uring {
    ring: IoUring,
    buffers: Buffers,
    streams: Vec<TcpStream>,
}

pub(super) fn build(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(4 * REQUESTS)
        .build(REQUESTS)?;
    let buffers = Buffers::register(&ring.submitter(), BUFFER)?;
    let mut uring = Uring { ring, buffers, streams: receivers };
    for number in 0..uring.streams.len() {
        uring.request(number)?;
    }
    uring.ring.submit()?;
    Ok(Box::new(uring))
}

impl Uring {
    /// Asks for everything that comes over a connection.
    fn request(&mut self, number: usize) -> io::Result<()> {
        let stream = types::Fd(self.streams[number].as_raw_fd());
        let receive = opcode::RecvMulti::new(stream, GROUP).build().user_data(number as u64);
        // SAFETY: everything the request refers to must be valid until it ends.
        // - the descriptor is open as long as the ring is, which is dropped first;
        // - its buffers are never freed.
        unsafe { self.ring.submission().push(&receive) }.map_err(io::Error::other)
    }

    /// Takes the received data.
    fn take(&mut self) -> io::Result<usize> {
        self.ring.submit_and_wait(1)?;
        let (mut taken, mut ended) = (0, Vec::new());
        for completion in self.ring.completion() {
            let length = usize::try_from(completion.result())
                .map_err(|_| io::Error::from_raw_os_error(-completion.result()))?;
            let id = cqueue::buffer_select(completion.flags())
                .ok_or_else(|| io::Error::other("a completion without a buffer"))?;
            // SAFETY: a completion of this group must have named the buffer, with that many bytes,
            // and must not be used twice.
            // - it is the current one, and every request belongs to this group.
            let filled = unsafe { self.buffers.take(id, length) };
            if self.buffers.bytes(&filled).len() != MESSAGE {
                return Err(io::Error::other(format!("{length} bytes were received together")));
            }
            self.buffers.give_back(filled);
            taken += 1;
            if !cqueue::more(completion.flags()) {
                ended.push(usize::try_from(completion.user_data()).unwrap_or(usize::MAX));
            }
        }
        // The kernel gives a request up when it has found no buffer for a moment.
        ended.into_iter().try_for_each(|number| self.request(number))?;
        Ok(taken)
    }
}

impl Taker for Uring {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        driver.each(|| self.take())
    }
}
