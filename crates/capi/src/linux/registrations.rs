//! What ends a number's registration and its operations, and how far this library believes what it knows of a number.
//!
//! A number remembers its registration by the port's handle. This file joins the two tables: it looks the port
//! up and tells it.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::errors::guarded;
use crate::handles;
use crate::linux::numbers::{Acceptance, InFlight, Line, NO_PORT, Number, Registered, State};
use crate::linux::port::CompletionPort;
use crate::linux::{descriptors, driver, numbers};

/// Whether `descriptor` names the socket of a registration on `port`.
pub(crate) fn is_of(registered: &Registered, descriptor: RawFd, port: &CompletionPort) -> bool {
    match registered.removed {
        Some(identity) => identity == descriptors::identity(descriptor),
        None => port.raw().is_current(registered.id),
    }
}

/// What a number stood for is over: the ports of its registration and of its line forget it, and its operations end.
/// They are told of that by [`Ended::tell`], when no number is locked.
pub(crate) fn end(former: State) -> Ended {
    if let Some(registered) = former.registered
        && let Some(port) = handles::port_named(registered.port)
    {
        // Ended already, or its last packet is on the way: as good.
        let _ = port.raw().forget(registered.id);
    }
    let port = former.line.and_then(|line| port_of(line.port).map(|port| (port, line.id)));
    if let Some((port, id)) = &port {
        let _ = port.raw().forget(id.id());
    }
    Ended {
        port: port.map(|(port, _)| port),
        flights: former.flights.into_values().collect(),
        accept: former.accept,
    }
}

/// Gives up the line of a number whose entry is locked: what is carried out by it ends, as far as it has not.
pub(crate) fn end_line(number: &Number, state: &mut State, line: Line) -> Ended {
    number.retire_line(state);
    let port = port_of(line.port);
    if let Some(port) = &port {
        // Ended already, or just now: as good.
        let _ = port.raw().forget(line.id.id());
    }
    Ended { port, flights: Vec::new(), accept: None }
}

/// What is left to be done of what has ended.
#[must_use]
pub(crate) struct Ended {
    port: Option<Arc<CompletionPort>>,
    flights: Vec<InFlight>,
    accept: Option<Acceptance>,
}

impl Ended {
    pub(crate) fn tell(self) {
        if let Some(port) = self.port {
            port.raw().go_on();
        }
        // Those that are carried out elsewhere by now.
        for flight in self.flights {
            cancel(flight);
        }
        if let Some(accept) = self.accept {
            cancel_accept(accept);
        }
    }
}

/// Cancels an operation that is called off. Whether it has a port still.
pub(crate) fn cancel(flight: InFlight) -> bool {
    let Some(port) = port_of(flight.port) else { return false };
    if let Some(name) = flight.name {
        // One that has ended meanwhile says so itself.
        let _ = port.cancel(name);
        port.raw().go_on();
    }
    true
}

/// Cancels an accept, if it is in flight still.
pub(crate) fn cancel_accept(accept: Acceptance) {
    let number = numbers::find(accept.listener);
    number.and_then(|number| number.call_off(accept)).map(cancel);
}

/// The port that carries out operations, by its name or the driver's own.
pub(crate) fn port_of(name: u64) -> Option<Arc<CompletionPort>> {
    if name == NO_PORT { driver::own_port().ok() } else { handles::port_named(name) }
}

/// Whatever the number stood for has ended.
fn end_all(number: &Number) {
    let mut ended = None;
    number.retire(|former| ended = Some(end(former)));
    if let Some(ended) = ended {
        ended.tell();
    }
}

/// The number is about to be closed, or was: whatever it stood for has ended.
pub(crate) fn retire(descriptor: RawFd) {
    if let Some(number) = numbers::find(descriptor) {
        number.doubt();
        end_all(number);
    }
}

/// Closes a socket by `call`. Whatever its number stood for has ended before, and nothing begins there meanwhile: a
/// thread that learns of an end by a packet may know the number still. `None` if another thread closes it already.
pub(crate) fn close<R>(descriptor: RawFd, identity: u64, call: impl FnOnce() -> R) -> Option<R> {
    let Some(number) = numbers::find(descriptor) else { return Some(call()) };
    number.doubt();
    let mut ended = None;
    if !number.begin_close(descriptor, identity, |former| ended = Some(end(former))) {
        return None;
    }
    if let Some(ended) = ended {
        ended.tell();
    }
    let closed = call();
    number.end_close(identity);
    Some(closed)
}

/// The number has just been given out by a call of this library: whatever it stood for has ended.
pub(crate) fn give_out(descriptor: RawFd) {
    if let Some(number) = numbers::entry(descriptor) {
        end_all(number);
        number.vouch();
    }
}

/// Whether the checked mode is on; unless that has been said, the environment says it.
static CHECKED: AtomicU8 = AtomicU8::new(UNSAID);
const OFF: u8 = 0;
const ON: u8 = 1;
const UNSAID: u8 = 2;

/// Whether each change asks the kernel first if the number still names what was registered.
#[inline]
pub(crate) fn is_checked() -> bool {
    match CHECKED.load(Relaxed) {
        UNSAID => ask_environment(),
        said => said == ON,
    }
}

#[cold]
fn ask_environment() -> bool {
    let set = std::env::var_os("COMPLETION_PORT_CHECKED");
    let said = if set.is_some_and(|value| !value.is_empty() && value != "0") { ON } else { OFF };
    // Unless another thread has said it meanwhile.
    let _ = CHECKED.compare_exchange(UNSAID, said, Relaxed, Relaxed);
    CHECKED.load(Relaxed) == ON
}

/// Whether what was once found of a number need not be asked again.
pub(crate) fn is_believed(number: &Number) -> bool {
    number.is_vouched() && !is_checked()
}

/// Whatever `descriptor` stood for has ended: it is about to be closed, or was.
#[unsafe(no_mangle)]
pub extern "C" fn cp_forget(descriptor: i32) {
    guarded((), || retire(descriptor));
}

/// `descriptor` has just been given out by a call that is not of this library: as if one of it had done so.
#[unsafe(no_mangle)]
pub extern "C" fn cp_adopt(descriptor: i32) {
    guarded((), || give_out(descriptor));
}

/// Whether each change asks the kernel first if the number still names what was registered; returns
/// whether it did so before.
#[unsafe(no_mangle)]
pub extern "C" fn cp_set_checked(on: i32) -> i32 {
    guarded(0, || {
        let on = if on != 0 { ON } else { OFF };
        // Asked first, so that it has been said.
        let _ = is_checked();
        i32::from(CHECKED.swap(on, Relaxed) == ON)
    })
}
