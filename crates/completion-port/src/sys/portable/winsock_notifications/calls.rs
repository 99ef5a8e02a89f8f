//! The calls of a kernel that the reactor makes, and what they take and return.

use std::time::Duration;

use super::Holders;
use crate::state::facts::{AtEnd, DescriptorKind};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// The key behind which operations end.
pub(crate) const CARRIED: u64 = 2;

/// What a program asks for, and what a report says.
pub(crate) mod event {
    pub(crate) const IN: u32 = 0x1;
    pub(crate) const OUT: u32 = 0x2;
    pub(crate) const HANGUP: u32 = 0x4;
    pub(crate) const ERR: u32 = 0x40;
    pub(crate) const REMOVE: u32 = 0x80;
}

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Enable = 1,
    Remove = 4,
}

/// How a registration reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotificationTrigger {
    /// `LEVEL | ONESHOT`
    LevelOnce = 0x5,
    /// `EDGE | PERSISTENT`
    EdgeAlways = 0xa,
}

/// A change of a registration, and what has become of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotificationChange {
    pub(crate) descriptor: Descriptor,
    pub(crate) key: u64,
    /// Of the bits of [`event`], what is asked for.
    pub(crate) filter: u32,
    pub(crate) operation: ChangeKind,
    pub(crate) trigger: NotificationTrigger,
    /// 0 if it was done.
    pub(crate) result: u32,
}

/// It has one on another port, or its removal is on its way.
pub(crate) const INVALID_PARAMETER: u32 = 87;
pub(crate) const NOT_ENOUGH_MEMORY: u32 = 8;
pub(crate) const NO_SYSTEM_RESOURCES: u32 = 1450;
/// The number names no socket.
pub(crate) const NOT_SOCKET: u32 = 10038;

/// What a call has taken from the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NotificationPacket {
    pub(crate) key: u64,
    pub(crate) events: u32,
    /// Behind [`CARRIED`], what tells the operation from others.
    pub(crate) place: usize,
}

/// The few calls of a kernel that the reactor makes. The kernel's queue is behind them.
pub(crate) trait NotificationCalls: Send + Sync + 'static {
    /// The name of the reactor.
    fn name(&self) -> &'static str;

    /// Makes the changes in their order, notes the result of each, and takes packets. It waits for them for at most
    /// `timeout` (`None`: no limit), unless there is no room or a change was refused. Returns how many there are.
    ///
    /// Fails if the system refuses to tell, and would continue to do so; each change has this result then.
    fn process(
        &self,
        changes: &mut [NotificationChange],
        room: &mut [NotificationPacket],
        timeout: Option<Duration>,
    ) -> Result<usize, Fault>;

    /// Puts a packet without events into the queue.
    fn post(&self, key: u64);

    /// An operation may have ended: a packet has brought this place, behind [`CARRIED`]. If one has ended, its name. It calls
    /// the system, and asks `is_there` whether a number names the socket still that was attached: the caller has no lock.
    fn ended(&self, place: usize, is_there: &dyn Fn(Descriptor) -> bool) -> Option<u64>;

    /// What a registration with this filter would report of a socket now, if it told of all that holds.
    fn look(&self, descriptor: Descriptor, filter: u32) -> u32;

    /// Whether the number names anything at all.
    fn is_open(&self, descriptor: Descriptor) -> bool;

    /// The code by which programs know a refusal of this kind.
    fn code(&self, kind: ErrorKind, result: u32) -> i32;

    /// See [`Reactor::unread`].
    fn unread(&self, descriptor: Descriptor, end: AtEnd) -> Option<usize>;

    /// See [`Reactor::is_own_end`].
    fn is_own_end(&self, descriptor: Descriptor) -> bool;

    /// See [`Reactor::was_connected`].
    fn was_connected(&self, descriptor: Descriptor) -> bool;

    /// See [`Reactor::kind`].
    fn kind(&self, descriptor: Descriptor) -> DescriptorKind;

    /// Whether a registration that is enabled by edge tells at once of what holds, as if it had begun just then.
    fn tells_when_enabled(&self) -> bool;

    /// What all reactors of this kernel share.
    fn holders(&self) -> &Holders;
}
