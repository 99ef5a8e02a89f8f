//! The kinds of operations. Each file has the kinds of one call: the functions that make and start
//! such an operation, its attempt, and its outcome.
//!
//! To add a kind, add its file and its line in `kinds!`. If it has a new result, add a variant of
//! [`Outcome`].

mod accept;
mod connect;
mod many;
mod read;
mod receive;
mod send;
mod sync;
mod task;
mod write;

pub(crate) use task::TaskFunctions;
pub(super) use task::attempt as attempt_task;

use super::attempt::AttemptTarget;
use super::data::{Bytes, Progress};
use super::{Operation, Outcome};
use crate::backend::files::FileKind;
use crate::backend::sockets::{Rest, SocketAttempt, SocketKind};
use crate::types::buffer::Buffer;
use crate::types::error::{Call, Result};
use crate::types::interest::Direction;

/// A kind of operation.
trait OperationKind {
    /// The call that its errors and events name.
    const CALL: Call;
    const DIRECTION: Direction;
    /// From its start, it waits for nothing but readiness of its direction.
    const AWAITS_EDGE: bool = false;
    /// It fills its buffer.
    const FILLS: bool = false;
    /// Its outcome without an error, if that is a number of bytes and the buffer.
    const BYTES: Option<Bytes> = None;
    /// The request to a system that performs it on a socket.
    const ON_SOCKET: Option<SocketKind> = None;
    /// The request to a system that performs it on a file.
    const ON_FILE: Option<FileKind> = None;

    /// Returns whether its first attempt waits for nothing but its turn.
    fn begins_unasked<B>(_operation: &Operation<B>) -> bool {
        false
    }

    /// Tries the operation once. [`SocketAttempt::NeedsSystem`] means that the system performs the
    /// rest.
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest>;

    /// Takes the outcome of an operation that has ended. `result` is the number of bytes it has
    /// transferred, or its error. Nothing of value remains in the operation.
    fn outcome<B>(
        operation: &mut Operation<B>,
        progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B>;
}

/// Declares the kinds, and what depends on the kind of an operation.
macro_rules! kinds {
    ($($file:ident::$Kind:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($Kind,)*
        }

        impl Kind {
            #[inline]
            pub(crate) fn call(self) -> Call {
                match self {
                    $(Self::$Kind => $file::$Kind::CALL,)*
                }
            }

            #[inline]
            pub(crate) fn direction(self) -> Direction {
                match self {
                    $(Self::$Kind => $file::$Kind::DIRECTION,)*
                }
            }

            /// Returns the direction, if an operation of this kind waits for nothing but readiness
            /// of that direction.
            #[inline]
            pub(crate) fn awaits(self) -> Option<Direction> {
                let awaits_edge = match self {
                    $(Self::$Kind => $file::$Kind::AWAITS_EDGE,)*
                };
                awaits_edge.then(|| self.direction())
            }

            pub(crate) fn fills(self) -> bool {
                match self {
                    $(Self::$Kind => $file::$Kind::FILLS,)*
                }
            }

            #[inline]
            pub(crate) fn bytes(self) -> Option<Bytes> {
                match self {
                    $(Self::$Kind => $file::$Kind::BYTES,)*
                }
            }

            pub(crate) fn on_socket(self) -> Option<SocketKind> {
                match self {
                    $(Self::$Kind => $file::$Kind::ON_SOCKET,)*
                }
            }

            #[inline]
            pub(crate) fn on_file(self) -> Option<FileKind> {
                match self {
                    $(Self::$Kind => $file::$Kind::ON_FILE,)*
                }
            }
        }

        impl<B> Operation<B> {
            /// Returns whether its first attempt waits only for its turn, and for no edge.
            pub(crate) fn begins_unasked(&self) -> bool {
                match self.kind {
                    $(Kind::$Kind => $file::$Kind::begins_unasked(self),)*
                }
            }

            /// Takes the outcome of the operation, which has ended with `result`. Nothing of value
            /// remains in it.
            pub(super) fn take_outcome(
                &mut self,
                progress: &mut Progress,
                result: Result<usize>,
            ) -> Outcome<B> {
                match self.kind {
                    $(Kind::$Kind => $file::$Kind::outcome(self, progress, result),)*
                }
            }
        }

        impl<B: Buffer> Operation<B> {
            /// Tries the operation once.
            #[allow(
                clippy::inline_always,
                reason = "what it is passed is put together in memory otherwise"
            )]
            #[inline(always)]
            pub(super) fn attempt(
                &mut self,
                progress: &mut Progress,
                target: AttemptTarget<'_>,
            ) -> SocketAttempt<Rest> {
                match self.kind {
                    $(Kind::$Kind => $file::$Kind::attempt(self, progress, target),)*
                }
            }
        }
    };
}

kinds! {
    receive::Receive,
    receive::ReceiveFrom,
    many::ReceiveMany,
    many::SendMany,
    send::Send,
    send::SendAll,
    accept::Accept,
    connect::Connect,
    read::Read,
    write::Write,
    sync::SyncData,
    sync::SyncAll,
    task::TaskIn,
    task::TaskOut,
}
