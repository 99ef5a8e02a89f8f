//! Connecting a socket.

use super::OperationKind;
use crate::backend::sockets::{Rest, SocketAttempt, SocketKind};
use crate::engine::ConnectPermission;
use crate::port::operation::attempt::AttemptTarget;
use crate::port::operation::data::{Progress, SocketStage};
use crate::port::operation::{Detail, Kind, OpId, Operation, Outcome};
use crate::port::token::Ready;
use crate::sys::codes;
use crate::types::address::Address;
use crate::types::buffer::Buffer;
use crate::types::error::{Call, ErrorKind, Fault, Refused, Result};
use crate::types::interest::Direction;

impl<B> Operation<B> {
    /// Connects to an address. It makes the socket non-blocking.
    ///
    /// A stream that is already connected, or that the program itself is connecting, is not
    /// connected again: the outcome has the system's code (`EISCONN`, `EALREADY`).
    ///
    /// If the operation is cancelled or its deadline passes, the connect is aborted. When the
    /// packet is delivered, the socket is not connected, even if the connection had already been
    /// established, and you may connect it again.
    ///
    /// # Platform notes
    ///
    /// Linux aborts a connect by calling
    /// [connect(2)](https://man7.org/linux/man-pages/man2/connect.2.html) with `AF_UNSPEC`. The
    /// address set with bind(2) remains, except for a port that the kernel chose. On macOS and the
    /// BSDs, and for `AF_VSOCK`, there is no such call: the connect continues, and every later
    /// connect of the association fails with `EALREADY`. Windows cancels a connect that the system
    /// performs.
    pub fn connect(address: impl Into<Address>) -> Self {
        Self::new(Kind::Connect, None, Detail::Address(address.into()))
    }
}

impl<K, B: Buffer> Ready<'_, K, B> {
    /// Starts [`Operation::connect`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn connect(self, address: impl Into<Address>) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::connect(address))
    }
}

pub(super) struct Connect;

impl OperationKind for Connect {
    const CALL: Call = Call::Connect;
    // It waits for readiness only after it has begun.
    const DIRECTION: Direction = Direction::Out;
    const ON_SOCKET: Option<SocketKind> = Some(SocketKind::Connect);

    fn begins_unasked<B>(_operation: &Operation<B>) -> bool {
        true
    }

    #[inline(never)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        if let Err(fault) = target.make_nonblocking() {
            return SocketAttempt::Failed(fault);
        }
        try_to_connect(operation, progress, target).map(|()| Rest::Unknown)
    }

    fn outcome<B>(
        _operation: &mut Operation<B>,
        _progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B> {
        Outcome::Connected(result.map(|_| ()))
    }
}

fn try_to_connect<B>(
    operation: &Operation<B>,
    progress: &mut Progress,
    target: AttemptTarget<'_>,
) -> SocketAttempt<()> {
    let (sockets, descriptor) = (target.system(), target.descriptor);
    let place = target.place();
    if progress.stage == SocketStage::Begun {
        let attempt = sockets.end_connect(descriptor);
        if !matches!(attempt, SocketAttempt::Blocked) {
            place.connect_ended();
        }
        return attempt;
    }
    match place.clear_for_connect(descriptor) {
        ConnectPermission::Clear => {}
        ConnectPermission::NotYet => return SocketAttempt::OutOfResources,
        ConnectPermission::Never => {
            let code = Some(codes::EALREADY);
            return SocketAttempt::Failed(Fault { kind: ErrorKind::Other, code });
        }
    }
    let address = operation.detail.address().expect("it was started with an address");
    let attempt = sockets.begin_connect(descriptor, address);
    if matches!(attempt, SocketAttempt::Blocked) {
        progress.stage = SocketStage::Begun;
        place.connect_begun();
    }
    attempt
}
