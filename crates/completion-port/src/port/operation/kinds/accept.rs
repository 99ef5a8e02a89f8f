//! Accepting a connection.

use super::OperationKind;
use crate::backend::sockets::{Rest, SocketAttempt, SocketKind};
use crate::port::operation::attempt::AttemptTarget;
use crate::port::operation::data::Progress;
use crate::port::operation::{Detail, Kind, OpId, Operation, Outcome};
use crate::port::token::Ready;
use crate::types::buffer::Buffer;
use crate::types::error::{Call, Refused, Result};
use crate::types::interest::Direction;

impl<B> Operation<B> {
    /// Accepts a connection. The first accept of a listener makes it non-blocking.
    pub fn accept() -> Self {
        Self::new(Kind::Accept, None, Detail::None)
    }
}

impl<K, B: Buffer> Ready<'_, K, B> {
    /// Starts [`Operation::accept`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn accept(self) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::accept())
    }
}

pub(super) struct Accept;

impl OperationKind for Accept {
    const CALL: Call = Call::Accept;
    const DIRECTION: Direction = Direction::In;
    const AWAITS_EDGE: bool = true;
    const ON_SOCKET: Option<SocketKind> = Some(SocketKind::Accept);

    #[inline(never)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        if let Err(fault) = target.make_nonblocking() {
            return SocketAttempt::Failed(fault);
        }
        target.system().accept(target.descriptor).map(|(socket, peer)| {
            (progress.socket, operation.detail) = (Some(socket), Detail::of(peer));
            Rest::Unknown
        })
    }

    fn outcome<B>(
        operation: &mut Operation<B>,
        progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B> {
        let peer = operation.detail.take_address();
        let mut socket = || progress.socket.take().expect("an accept brings a connection");
        Outcome::Accepted(result.map(|_| (socket(), peer)))
    }
}
