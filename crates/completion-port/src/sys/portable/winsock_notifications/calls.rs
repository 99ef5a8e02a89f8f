//! The kernel calls that the reactor makes, and their arguments and results.

use std::time::Duration;

use super::Holders;
use crate::state::facts::{AtEnd, DescriptorKind};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// The key of the packets of operations.
pub(crate) const CARRIED: u64 = 2;

/// The events that a program requests and a report contains.
pub(crate) mod event {
    pub(crate) const IN: u32 = 0x1;
    pub(crate) const OUT: u32 = 0x2;
    pub(crate) const HANGUP: u32 = 0x4;
    pub(crate) const ERR: u32 = 0x40;
    pub(crate) const REMOVE: u32 = 0x80;
}

/// The kind of a change.
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

/// A change of a registration, and its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotificationChange {
    pub(crate) descriptor: Descriptor,
    pub(crate) key: u64,
    /// The requested events, as bits of [`event`].
    pub(crate) filter: u32,
    pub(crate) operation: ChangeKind,
    pub(crate) trigger: NotificationTrigger,
    /// 0 if it succeeded.
    pub(crate) result: u32,
}

/// The socket is registered on another port, or its removal is in a queue.
pub(crate) const INVALID_PARAMETER: u32 = 87;
pub(crate) const NOT_ENOUGH_MEMORY: u32 = 8;
pub(crate) const NO_SYSTEM_RESOURCES: u32 = 1450;
/// The number does not name a socket.
pub(crate) const NOT_SOCKET: u32 = 10038;

/// A packet that a call has taken from the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NotificationPacket {
    pub(crate) key: u64,
    pub(crate) events: u32,
    /// With [`CARRIED`], identifies the operation.
    pub(crate) place: usize,
}

/// The kernel calls that the reactor makes. The kernel's queue belongs to the implementation.
pub(crate) trait NotificationCalls: Send + Sync + 'static {
    /// Returns the name of the reactor.
    fn name(&self) -> &'static str;

    /// Makes the changes in order, records the result of each, and takes packets.
    ///
    /// Returns the number of packets. It waits for them for at most `timeout` (`None`: no limit),
    /// unless there is no room or a change failed.
    ///
    /// Fails if the system refuses the call permanently. Each change then has this result.
    fn process(
        &self,
        changes: &mut [NotificationChange],
        room: &mut [NotificationPacket],
        timeout: Option<Duration>,
    ) -> Result<usize, Fault>;

    /// Adds a packet without events to the queue.
    fn post(&self, key: u64);

    /// Processes the packet of an operation, which had this place and the key [`CARRIED`].
    ///
    /// Returns the operation's name if it has ended.
    ///
    /// It calls the system, and it calls `is_there` to check whether a number still names the
    /// attached socket. The caller holds no lock.
    fn ended(&self, place: usize, is_there: &dyn Fn(Descriptor) -> bool) -> Option<u64>;

    /// Returns the events of a socket that a registration with this filter could report now.
    fn look(&self, descriptor: Descriptor, filter: u32) -> u32;

    /// Returns whether the number names any open object.
    fn is_open(&self, descriptor: Descriptor) -> bool;

    /// Returns the error code by which programs know a failure of this kind.
    fn code(&self, kind: ErrorKind, result: u32) -> i32;

    /// See [`Reactor::unread`].
    fn unread(&self, descriptor: Descriptor, end: AtEnd) -> Option<usize>;

    /// See [`Reactor::is_own_end`].
    fn is_own_end(&self, descriptor: Descriptor) -> bool;

    /// See [`Reactor::was_connected`].
    fn was_connected(&self, descriptor: Descriptor) -> bool;

    /// See [`Reactor::kind`].
    fn kind(&self, descriptor: Descriptor) -> DescriptorKind;

    /// Returns whether a registration that is enabled by edge reports conditions that already hold.
    fn tells_when_enabled(&self) -> bool;

    /// Returns the table that all reactors of this kernel share.
    fn holders(&self) -> &Holders;
}
