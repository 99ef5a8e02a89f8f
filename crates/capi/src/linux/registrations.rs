//! Ending the registration and operations of a number, and how far the state of a number is
//! trusted.
//!
//! A number stores the handle of its registration's port. This file joins the two tables: it looks
//! the port up and notifies it.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed, Ordering::Release};

use completion_port::{OpId, SharedId};

use crate::errors::guarded;
use crate::handles;
use crate::linux::numbers::{Acceptance, InFlight, Line, NO_PORT, Number, Registered, State};
use crate::linux::port::{CompletionPort, Outcome};
use crate::linux::receiver::{ReceiverPort, WaitingReceive};
use crate::linux::waits::wake_waiting;
use crate::linux::{descriptors, driver, numbers, status};

/// Whether `descriptor` names the socket of a registration on `port`.
pub(crate) fn is_of(registered: &Registered, descriptor: RawFd, port: &CompletionPort) -> bool {
    match registered.removed {
        Some(identity) => identity == descriptors::identity(descriptor),
        None => port.raw().is_current(registered.id),
    }
}

/// Ends the registration and operations of a number: the ports forget them. [`Ended::tell`] reports
/// the rest, when no number is locked.
pub(crate) fn end(mut former: State) -> Ended {
    // Before the operations that follow it end.
    if let Some(CancelledReceive { receive, port, .. }) = cancel_receive(&mut former, |_, _| true) {
        end_receive(receive, &*port, status::CANCELLED, Outcome::default());
    }
    if let Some(registered) = former.registered
        && let Some(port) = handles::port_named(registered.port)
    {
        // It may have ended already, or its last packet is queued.
        let _ = port.raw().forget(registered.id);
    }
    let port = former.line.and_then(|line| port_of(line.port).map(|port| (port, line.id)));
    if let Some((port, id)) = &port {
        let _ = port.raw().forget(id.id());
    }
    Ended {
        port: port.map(|(port, _)| port),
        operations: former.operations.into_values().collect(),
        accept: former.accept,
    }
}

/// Gives up the line of a number whose entry is locked: its operations end, unless they have ended.
pub(crate) fn end_line(number: &Number, state: &mut State, line: Line) -> Ended {
    number.retire_line(state);
    let port = port_of(line.port);
    if let Some(port) = &port {
        // It may have ended already.
        let _ = port.raw().forget(line.id.id());
    }
    Ended::deferred(port)
}

/// The remaining work for ended operations.
#[must_use]
pub(crate) struct Ended {
    port: Option<Arc<CompletionPort>>,
    operations: Vec<InFlight>,
    accept: Option<Acceptance>,
}

impl Ended {
    /// Tasks of this port may have been deferred.
    pub(crate) fn deferred(port: Option<Arc<CompletionPort>>) -> Self {
        Self { port, operations: Vec::new(), accept: None }
    }

    pub(crate) fn tell(self) {
        if let Some(port) = self.port {
            port.raw().run_deferred();
        }
        // Operations that other ports perform by now.
        for operation in self.operations {
            cancel(operation);
        }
        if let Some(accept) = self.accept {
            cancel_accept(accept);
        }
    }
}

/// Cancels a cancelled operation at its port. Returns whether it still has one.
pub(crate) fn cancel(operation: InFlight) -> bool {
    let Some(port) = port_of(operation.port) else { return false };
    if let Some(name) = operation.name {
        // It reports its own end if it has ended meanwhile.
        let _ = port.cancel(name);
        port.raw().run_deferred();
    }
    true
}

/// A receive that was cancelled while it waited in its receiver.
#[must_use]
pub(crate) struct CancelledReceive {
    receive: WaitingReceive,
    port: Arc<dyn ReceiverPort>,
    /// The receiver's task, if that ends too.
    task: Option<OpId>,
}

impl CancelledReceive {
    /// Reports the end. The number is not locked.
    pub(crate) fn tell(self) {
        let Self { receive, port, task } = self;
        // Before the operations that follow, which may end now.
        end_receive(receive, &*port, status::CANCELLED, Outcome::default());
        if let Some(task) = task {
            port.cancel_task(task);
        }
    }
}

/// Takes the receive that waits in the receiver of a number whose entry is locked, if `is_meant`
/// returns true for its address and its operation.
pub(crate) fn cancel_receive(
    state: &mut State,
    is_meant: impl FnOnce(usize, &InFlight) -> bool,
) -> Option<CancelledReceive> {
    let receiver = state.receiver.as_mut()?;
    let address = receiver.waiting()?.address();
    state.operations.get(address).filter(|it| is_meant(address, it))?;
    let receive = receiver.take()?;
    let port = Arc::clone(receiver.port());
    let mut task = None;
    if receiver.is_over() {
        task = receiver.task();
        state.receiver = None;
    }
    state.operations.remove(address);
    Some(CancelledReceive { receive, port, task })
}

/// Ends the receiver of a number whose entry is locked, because something else starts on the reading
/// side of `line`, which is on `port`. If a receive waits, the receiver ends with that. Returns
/// whether the caller runs deferred tasks when it holds no lock.
pub(crate) fn end_receiver(state: &mut State, port: &CompletionPort, line: SharedId) -> bool {
    let Some(receiver) = state.receiver.as_mut().filter(|it| it.is_on(line)) else { return false };
    receiver.end_after_waiting();
    let is_over = receiver.is_over();
    if is_over {
        if let Some(task) = receiver.task() {
            let _ = port.cancel(task);
        }
        state.receiver = None;
    }
    is_over
}

/// Reports the end of a receive of a receiver to the program. No lock is held but that of a number.
pub(crate) fn end_receive(
    receive: WaitingReceive,
    port: &dyn ReceiverPort,
    ended: u32,
    outcome: Outcome,
) {
    let WaitingReceive { overlapped, key, .. } = receive;
    port.end_operation();
    // SAFETY: a shared reference demands a value that lives on and changes only as its type allows.
    // - lives on: the program keeps it valid until it has seen the end, which is written last;
    // - not changed: the words that are written are atomic.
    let words = unsafe { overlapped.as_ref() };
    words.offset.store(outcome.flags, Relaxed);
    words.bytes.store(outcome.bytes as usize, Relaxed);
    words.status.store(ended as usize, Release);
    // From here on the program may have freed it.
    wake_waiting(overlapped.as_ptr());
    port.post_ended(outcome.bytes, key, overlapped, ended);
}

/// Cancels an accept that is still in flight.
pub(crate) fn cancel_accept(accept: Acceptance) {
    let number = numbers::find(accept.listener);
    number.and_then(|number| number.call_off(accept)).map(cancel);
}

/// The port that performs operations, by its name, or the driver's own.
pub(crate) fn port_of(name: u64) -> Option<Arc<CompletionPort>> {
    if name == NO_PORT { driver::own_port().ok() } else { handles::port_named(name) }
}

/// Compares what a number's entry, which is locked, knows of its socket with the socket that it names. If that is another one,
/// the operations of the former socket end, and the caller reports them.
#[inline(never)]
pub(crate) fn compare(
    state: &mut State,
    number: &'static Number,
    descriptor: RawFd,
) -> Option<Ended> {
    let identity = || descriptors::identity(descriptor);
    // The line of a port that is closed has ended, whatever its socket.
    let is_another =
        |line: &Line| port_of(line.port).is_some_and(|port| !port.raw().is_current(line.id.id()));
    if state.associated.is_some_and(|it| it.identity != identity())
        || state.line.as_ref().is_some_and(is_another)
    {
        let registered = state.registered.take();
        // The association may be newer than the operations in flight.
        let associated = state.associated.filter(|it| it.identity == identity());
        let chosen = state.chosen;
        let mut ended = None;
        number.retire_locked(state, |former| ended = Some(end(former)));
        state.registered = registered;
        if associated.is_some() {
            state.associated = associated;
        }
        state.chosen = chosen.known(descriptor);
        return ended;
    }
    None
}

/// Ends the number's registration and operations.
fn end_all(number: &Number) {
    let mut ended = None;
    number.retire(|former| ended = Some(end(former)));
    if let Some(ended) = ended {
        ended.tell();
    }
}

/// The number is about to be closed, or was: ends its registration and operations.
pub(crate) fn retire(descriptor: RawFd) {
    if let Some(number) = numbers::find(descriptor) {
        number.doubt();
        end_all(number);
    }
}

/// Closes a socket by `call`. First ends its registration and operations, and lets nothing start
/// meanwhile: a thread that sees the end in a packet may still know the number. `None` if another
/// thread is already closing it.
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

/// A call of this library has just returned the number: ends its former registration and
/// operations.
pub(crate) fn give_out(descriptor: RawFd) {
    if let Some(number) = numbers::entry(descriptor) {
        end_all(number);
        number.vouch();
    }
}

/// Whether checked mode is on. Unless the program has set it, the environment decides.
static CHECKED: AtomicU8 = AtomicU8::new(UNSAID);
const OFF: u8 = 0;
const ON: u8 = 1;
const UNSAID: u8 = 2;

/// Whether each change first asks the kernel if the number still names the registered socket.
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
    // Unless another thread has set it meanwhile.
    let _ = CHECKED.compare_exchange(UNSAID, said, Relaxed, Relaxed);
    CHECKED.load(Relaxed) == ON
}

/// Whether facts about a number need not be checked again.
pub(crate) fn is_believed(number: &Number) -> bool {
    number.is_vouched() && !is_checked()
}

/// Ends the registration and operations of `descriptor`, which is about to be closed or was.
#[unsafe(no_mangle)]
pub extern "C" fn cp_forget(descriptor: i32) {
    guarded((), || retire(descriptor));
}

/// A call of another library has just returned `descriptor`: treats it like this library's.
#[unsafe(no_mangle)]
pub extern "C" fn cp_adopt(descriptor: i32) {
    guarded((), || give_out(descriptor));
}

/// Sets whether each change first asks the kernel if the number still names the registered socket.
/// Returns the previous setting.
#[unsafe(no_mangle)]
pub extern "C" fn cp_set_checked(on: i32) -> i32 {
    guarded(0, || {
        let on = if on != 0 { ON } else { OFF };
        // First, so that the environment has been read.
        let _ = is_checked();
        i32::from(CHECKED.swap(on, Relaxed) == ON)
    })
}
