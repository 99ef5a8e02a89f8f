//! `shutdown`. The end of a stream follows the sends that are in flight, as on the reference: here the
//! system's call would cut them off.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::Arc;

use completion_port::Started;
use completion_port::raw::{Attempt, Ending, Side};

use crate::linux::descriptors;
use crate::linux::driver;
use crate::linux::errno::{errno, keeping_errno, set_errno};
use crate::linux::numbers::{self, Line, Number, READING_SHUT};
use crate::linux::port::{Begun, BoxedOperation, CompletionPort, PortOperation, Told};
use crate::linux::registrations::port_of;
use crate::linux::sockets::called;

/// `SOCKET_ERROR`.
const FAILED: c_int = -1;

/// Shuts down halves of a socket. A datagram socket needs no peer for that.
fn shut(descriptor: c_int, how: c_int) -> c_int {
    // SAFETY: shutdown(2) demands nothing of memory.
    match unsafe { libc::shutdown(descriptor, how) } {
        // The system has done it, although it reports that there is no peer.
        FAILED
            if errno() == libc::ENOTCONN
                && descriptors::kind(descriptor) == Some(libc::SOCK_DGRAM) =>
        {
            0
        }
        done => done,
    }
}

/// Shuts down the sending half, and perhaps the other one, of a socket whose entry is not locked.
fn shut_sending(number: &Number, descriptor: c_int, how: c_int) -> c_int {
    let mut done = FAILED;
    number.while_shutting(|| {
        done = shut(descriptor, how);
        done == 0
    });
    if done == 0 {
        keeping_errno(|| number.lock().remember(descriptor, |past| past.has_shut = true));
    }
    done
}

/// The end of a stream, in the port that performs its sends. It has no OVERLAPPED.
struct EndOfStream {
    number: &'static Number,
    /// The epoch of the number in which it was started.
    epoch: u32,
    port: Arc<CompletionPort>,
}

impl PortOperation for EndOfStream {
    fn attempt(&mut self, descriptor: RawFd) -> Attempt {
        if self.number.epoch() == self.epoch {
            // The call has succeeded. A connection that has ended meanwhile has no end to send.
            shut_sending(self.number, descriptor, libc::SHUT_WR);
        }
        Attempt::Done
    }

    fn begins_unasked(&self) -> bool {
        true
    }

    fn end(self: Box<Self>, _: Ending) {
        self.port.end_operation();
    }

    fn conclude(self: Box<Self>, _: bool, _: Told) -> Begun {
        Begun::Done
    }

    fn withdraw(self: Box<Self>) {}
}

/// Shuts down the sending half behind the sends in flight. Returns whether it is done, or will be.
fn shut_behind_sends(number: &'static Number, line: Line) -> bool {
    let Some(port) = port_of(line.port) else { return false };
    let end = EndOfStream { number, epoch: number.epoch(), port: Arc::clone(&port) };
    let started = port.raw().start_task(line.id, Side::Out, BoxedOperation(Box::new(end)));
    match started {
        Ok(Started::InFlight(_)) => port.begin_operation(),
        // The sends have ended meanwhile, and it has followed them.
        Ok(Started::Completed(_)) => {}
        // The line has ended.
        Err(_) => return false,
    }
    port.raw().run_deferred();
    driver::watch(&port);
    true
}

/// `shutdown`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_shutdown(descriptor: c_int, how: c_int) -> c_int {
    called(|| {
        let is_known = (libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how);
        if is_known && descriptors::has_no_peer(descriptor) {
            // The system would fail with the same code, and shut the connection that a later connect makes.
            set_errno(libc::ENOTCONN);
            return FAILED;
        }
        let Some(number) = numbers::entry(descriptor) else { return shut(descriptor, how) };
        // A listener that was shut down no longer listens.
        number.clear_options(numbers::LISTENS);
        let was_shut = number.options() & READING_SHUT != 0;
        if how != libc::SHUT_WR {
            // First, so that operations which the system then retries find it.
            number.set_options(READING_SHUT);
        }
        let done = match how {
            libc::SHUT_RD => shut(descriptor, how),
            _ => match line_of_sends(number, descriptor).filter(|_| is_known) {
                Some(line) => {
                    let reading =
                        if how == libc::SHUT_RDWR { shut(descriptor, libc::SHUT_RD) } else { 0 };
                    match reading == 0 && shut_behind_sends(number, line) {
                        true => 0,
                        false => shut_sending(number, descriptor, how),
                    }
                }
                None => shut_sending(number, descriptor, how),
            },
        };
        if done != 0 && !was_shut {
            number.clear_options(READING_SHUT);
        }
        done
    })
}

/// The line of a connected stream that has sends in flight.
fn line_of_sends(number: &Number, descriptor: c_int) -> Option<Line> {
    let line = {
        let state = number.lock();
        state.line.filter(|_| state.operations.values().any(|it| it.side == Side::Out))
    };
    line.filter(|_| descriptors::kind(descriptor) == Some(libc::SOCK_STREAM))
}
