//! The calls of a port that start operations of a shared association, and cancel operations.

use crate::engine::{EndReason, Name, Plan, Step};
use crate::memory::cells::Cell;
use crate::memory::trace::traces_packets;
use crate::port::current::{own_worker, with_current_worker};
use crate::port::deadline::Deadline;
use crate::port::operation::attempt::{AttemptTarget, settle, unload};
use crate::port::operation::complete::trace_completed;
use crate::port::operation::completed::use_up;
use crate::port::operation::data::Brings;
use crate::port::operation::submit::TryingOnFile;
use crate::port::operation::{OpData, OpId, Operation, Outcome, SharedId, Started};
use crate::port::{Port, Store};
use crate::types::address::Address;
use crate::types::buffer::Buffer;
use crate::types::error::{Call, Error, Refused, Result};
use crate::types::interest::Interest;
use crate::types::source::{OwnedSource, Source};

impl<K, M, B: Buffer> Port<K, M, B> {
    /// Starts an operation of a shared association. Its packet is
    /// [`Packet::SharedCompleted`](crate::Packet::SharedCompleted).
    ///
    /// Operations of one direction are performed in the order in which they were started.
    /// Operations on files run simultaneously, in whatever order the system chooses.
    ///
    /// # Errors
    ///
    /// On failure nothing has changed, and the error returns the operation with its buffer:
    /// [`ErrorKind::NotRegistered`](crate::ErrorKind::NotRegistered),
    /// [`ErrorKind::Removing`](crate::ErrorKind::Removing),
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed),
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory),
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    ///
    /// If the socket does not allow the operation, the outcome reports that.
    ///
    /// # Examples
    ///
    /// See [`Port::associate_shared`].
    pub fn start(
        &self,
        id: SharedId,
        operation: Operation<B>,
    ) -> Result<OpId, Refused<Operation<B>>> {
        let (op_index, name, step) = self.share(id, operation, false)?;
        if let Step::Ends(_) = step {
            let engine = self.engine();
            with_current_worker(engine, |worker| engine.queue_own_operation(op_index, worker));
        }
        Ok(name)
    }

    /// Starts an operation, without a packet if it completes immediately: then this call returns
    /// its outcome.
    ///
    /// While a handler continues this way, other packets wait, as with
    /// [`Ready::start_now`](crate::Ready::start_now). After a dozen operations or so, call
    /// [`Port::start`] instead.
    ///
    /// # Errors
    ///
    /// As for [`Port::start`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Operation, Outcome, Port, Started};
    /// use std::net::{TcpListener, TcpStream};
    /// use std::sync::Arc;
    ///
    /// let port = Port::<Arc<TcpStream>>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (_far, _) = listener.accept()?;
    /// let id = port.associate_shared(Arc::new(near))?;
    /// let sent = port.start_now(id, Operation::send(b"hello".to_vec()))?;
    /// assert!(matches!(sent, Started::Completed(Outcome::Sent(Ok(5), _))));
    /// let received = port.start_now(id, Operation::recv(Vec::with_capacity(5)))?;
    /// assert!(matches!(received, Started::InFlight(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_now(
        &self,
        id: SharedId,
        operation: Operation<B>,
    ) -> Result<Started<Outcome<B>>, Refused<Operation<B>>> {
        let (op_index, name, step) = self.share(id, operation, true)?;
        let Step::Ends(reason) = step else { return Ok(Started::InFlight(name)) };
        Ok(Started::Completed(self.store().take_unseen(op_index, reason)))
    }

    /// Puts an operation in flight, and tries it if it is the only one of its direction.
    ///
    /// If it ends, the caller queues its packet or, with `now`, takes its outcome.
    pub(super) fn share(
        &self,
        id: SharedId,
        operation: Operation<B>,
        now: bool,
    ) -> Result<(u32, OpId, Step), Refused<Operation<B>>> {
        let (store, engine) = (self.store(), self.engine());
        let call = operation.call();
        let refuse = |error: Error, operation| {
            engine.trace_refused(&error, Some(id.0), None);
            Refused::new(error, operation)
        };
        let plan = operation.plan(engine.backend());
        let reserve = |op_index| store.operations.reserve(op_index);
        let op_index =
            with_current_worker(engine, |worker| engine.shared_op(id.0, &plan, worker, reserve));
        let op_index = match op_index {
            Ok(op_index) => op_index,
            Err(error) => return Err(refuse(error, operation)),
        };
        let is_of_file = operation.is_of_file();
        let name = OpId(if is_of_file {
            engine.mark(op_index, false, false)
        } else {
            engine.mark(op_index, operation.is_task(), operation.begins_unasked())
        });
        if traces_packets() {
            engine.trace_started(id.0, call);
        }
        let cell = store.operations.at(op_index);
        operation.load(cell, Brings::Clone);
        if is_of_file {
            return match store.share_on_file(cell, id.0, op_index, &plan, now) {
                Ok(step) => Ok((op_index, name, step)),
                Err(error) => {
                    let operation = unload(cell).into_operation();
                    engine.release_op(op_index);
                    Err(refuse(error, operation))
                }
            };
        }
        match engine.share(id.0, op_index, &plan) {
            Ok(Step::Try) => {
                let op_ref = engine.op_ref(op_index);
                Ok((
                    op_index,
                    name,
                    store.attempt_shared(cell, &op_ref, own_worker(engine).as_deref().into()),
                ))
            }
            Ok(step) => Ok((op_index, name, step)),
            Err(error) => {
                let operation = unload(cell).into_operation();
                engine.release_op(op_index);
                Err(refuse(error, operation))
            }
        }
    }

    /// Cancels an operation in flight, of a token or of a shared association.
    ///
    /// Its packet follows, with its key and its buffer. The outcome is
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled), unless the operation completed first.
    /// Returns false if the operation had already ended. The time it takes does not depend on the
    /// number of operations in flight.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, ErrorKind, Operation, Outcome, Packet, Port};
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// let port = Port::<TcpStream>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (_far, _) = listener.accept()?;
    /// let receive = port.associate(near)?.recv(Vec::with_capacity(16))?;
    /// assert!(port.cancel(receive)?);
    ///
    /// let mut batch = Batch::new();
    /// let Some(Packet::Completed(done)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// assert_eq!(done.error().map(|error| error.kind()), Some(ErrorKind::Cancelled));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self, operation: OpId) -> Result<bool> {
        self.engine().cancel_operation(operation.0)
    }

    /// Makes a stream socket, associates it, and connects it to an address.
    ///
    /// Names are not resolved. `key_of` makes the key, which must own the socket. The packet is
    /// [`Packet::Completed`](crate::Packet::Completed) with [`Outcome::Connected`], and its token
    /// continues the connection.
    ///
    /// `deadline` is when the attempt ends at the latest. Without one, the system's limit applies,
    /// some minutes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DescriptorLimit`](crate::ErrorKind::DescriptorLimit) or another error of the
    /// system if it makes no socket; otherwise as for [`Port::associate`]. If the key was already
    /// made, it is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Outcome, Packet, Port};
    /// use std::net::{TcpListener, TcpStream};
    /// # #[cfg(windows)]
    /// # use std::os::windows::io::OwnedSocket as OwnedFd;
    /// # #[cfg(unix)]
    /// use std::os::fd::OwnedFd;
    /// use std::time::Duration;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let port = Port::<TcpStream>::new()?;
    /// let deadline = Some(Duration::from_secs(10).into());
    /// port.connect(listener.local_addr()?, deadline, |socket| OwnedFd::from(socket).into())?;
    ///
    /// let mut batch = Batch::new();
    /// let Some(Packet::Completed(done)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// let (token, outcome) = done.into_parts();
    /// assert!(matches!(outcome, Outcome::Connected(Ok(()))));
    /// assert_eq!(token.key().peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect(
        &self,
        address: impl Into<Address>,
        deadline: Option<Deadline>,
        key_of: impl FnOnce(OwnedSource) -> K,
    ) -> Result<OpId>
    where
        K: Source,
    {
        let address = address.into();
        self.engine().check_open(Call::Connect)?;
        let socket = self
            .engine()
            .backend()
            .open_stream(&address)
            .map_err(|fault| Error::new(Call::Connect, fault.kind).with_code(fault.code))?;
        let token = self.associate_for(key_of(socket), Interest::IN | Interest::OUT)?;
        let connect = Operation::connect(address);
        let connect = match deadline {
            Some(deadline) => connect.deadline(deadline),
            None => connect,
        };
        Ok(token.start(connect)?)
    }
}

impl<K, B: Buffer> Store<K, B> {
    /// Completes an operation of a shared association without a packet, and takes its outcome. It
    /// has ended and belongs to the caller.
    fn take_unseen(&self, op_index: u32, reason: EndReason) -> Outcome<B> {
        let (op_ref, cell) = (self.engine.op_ref(op_index), self.operations.at(op_index));
        let registration = op_ref.registration();
        self.engine.abandon_connect(&op_ref, reason);
        settle(cell, reason);
        self.engine.complete_shared(&op_ref, None);
        if traces_packets() {
            trace_completed(&self.engine, registration, cell);
        }
        use_up(self, op_index)
    }

    /// Starts an operation on a file, of a shared association, and does the part that is possible
    /// immediately. The operation is in `cell`.
    ///
    /// If that completes it, queues its packet or, with `now`, ends it without one. If the start is
    /// refused, the operation is still in its cell.
    fn share_on_file(
        &self,
        cell: &Cell<OpData<B>>,
        association: Name,
        op_index: u32,
        plan: &Plan,
        now: bool,
    ) -> Result<Step> {
        let engine = &self.engine;
        let step = engine.share_file(association, op_index, plan)?;
        if let Step::Ends(_) = step {
            return Ok(step);
        }
        let op_ref = engine.op_ref(op_index);
        let trying = TryingOnFile { store: self, cell, op_ref: &op_ref };
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value: an operation is in its cell until its packet is taken;
        // - nothing else: between `share_file` and the calls below, the engine gives the operation
        //   to no other thread.
        let data = unsafe { cell.get_mut() };
        let is_over = data.attempt(|| AttemptTarget::of(engine, &op_ref)).is_over();
        let request = if is_over || engine.forked() {
            None
        } else {
            self.file_request(data, op_index, op_ref.index)
        };
        std::mem::forget(trying);
        if engine.forked() {
            // The buffer's code has forked, and this is the child: the operation belongs to the
            // parent.
            std::mem::forget(request);
            return Ok(Step::Waits);
        }
        let Some(request) = request else {
            if now {
                engine.file_done(&op_ref);
                return Ok(Step::Ends(EndReason::Done));
            }
            engine.queue_file_done(&op_ref);
            return Ok(Step::Waits);
        };
        match engine.submit_file(&op_ref, plan.deadline, request) {
            Ok(()) => Ok(Step::Waits),
            Err((reason, request)) => {
                self.unpack(cell, op_index, request);
                Ok(Step::Ends(reason))
            }
        }
    }
}
