//! The calls of a port that start and cancel operations by name.

use crate::engine::{EndReason, Name, Plan, Step};
use crate::memory::cells::Cell;
use crate::memory::trace::traces_packets;
use crate::port::current::{current_worker, with_current_worker};
use crate::port::deadline::Deadline;
use crate::port::operation::attempt::{AttemptTarget, unload};
use crate::port::operation::submit::TryingOnFile;
use crate::port::operation::{OpData, OpId, Operation, Outcome, SharedId, Started};
use crate::port::{Port, Store};
use crate::types::address::Address;
use crate::types::buffer::Buffer;
use crate::types::error::{Call, Error, Refused, Result};
use crate::types::interest::Interest;
use crate::types::source::{OwnedSource, Source};

impl<K, M, B: Buffer> Port<K, M, B> {
    /// Starts an operation of a shared association. Its packet is [`Packet::SharedCompleted`](crate::Packet::SharedCompleted).
    ///
    /// Operations of one direction are done in the order in which they were started.
    /// Those on files are done together, in whatever order the system chooses.
    ///
    /// # Errors
    ///
    /// The operation comes back with its buffer, and nothing has changed: [`ErrorKind::NotRegistered`](crate::ErrorKind::NotRegistered),
    /// [`ErrorKind::Removing`](crate::ErrorKind::Removing), [`ErrorKind::Closed`](crate::ErrorKind::Closed), [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory), [`ErrorKind::Forked`](crate::ErrorKind::Forked). What the
    /// socket does not allow is the operation's outcome.
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
            self.engine().queue_operation(op_index);
        }
        Ok(name)
    }

    /// The same, but an operation that is done at once makes no packet: its outcome comes back from this call.
    ///
    /// Other packets wait while a handler goes on by this, as by [`Ready::start_now`](crate::Ready::start_now): after a dozen operations or so it
    /// does best to call [`Port::start`].
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
        Ok(Started::Completed(self.store().complete_unseen(op_index, reason).take_outcome()))
    }

    /// Puts an operation in flight, and tries it if nothing else of its direction is. If it ends by that, the caller
    /// has its packet queued, or, if it is wanted `now`, takes its outcome.
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
        if is_of_file {
            engine.mark(op_index, false, false);
        } else {
            engine.mark(op_index, operation.is_task(), operation.begins_unasked());
        }
        let name = OpId(engine.operation_of(op_index));
        if traces_packets() {
            engine.trace_started(id.0, call);
        }
        let cell = store.load(op_index, operation, true);
        if is_of_file {
            return match store.share_on_file(cell, id.0, op_index, &plan, now) {
                Ok(step) => Ok((op_index, name, step)),
                Err(error) => {
                    let operation = unload(cell).into_operation();
                    engine.give_back_op(op_index);
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
                    store.attempt_shared(cell, &op_ref, current_worker(engine).as_deref()),
                ))
            }
            Ok(step) => Ok((op_index, name, step)),
            Err(error) => {
                let operation = unload(cell).into_operation();
                engine.give_back_op(op_index);
                Err(refuse(error, operation))
            }
        }
    }

    /// Cancels an operation in flight, of a token or of a shared association. Its packet follows, with its key
    /// and its buffer; the outcome is [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled), unless the operation was done by then. Returns
    /// false if it had ended already. How long it takes does not depend on how many operations are in flight.
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

    /// Makes a stream socket, associates it, and connects it to an address; names are not resolved. `key_of` makes
    /// the key of the socket, which is to own it. The packet is [`Packet::Completed`](crate::Packet::Completed) with
    /// [`Outcome::Connected`], and its token goes on with the connection.
    ///
    /// `deadline`: when the attempt ends at the latest (`None`: as the system has it, some minutes).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DescriptorLimit`](crate::ErrorKind::DescriptorLimit) or what else the system says if it makes no socket; otherwise as for
    /// [`Port::associate`]. The key is dropped then, if there is one already.
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
    /// Starts an operation of a shared association, which is in `cell`, and does what can be done at once. If that is
    /// all, its packet is queued; unless it is wanted `now`: then it ends without one. If it is refused it is in
    /// its cell still.
    fn share_on_file(
        &self,
        cell: &Cell<OpData<B>>,
        association: Name,
        op_index: u32,
        plan: &Plan,
        now: bool,
    ) -> Result<Step> {
        let engine = &self.engine;
        engine.share_file(association, op_index, (plan.call, plan.deadline))?;
        let op_ref = engine.op_ref(op_index);
        let trying = TryingOnFile { store: self, cell, op_ref: &op_ref };
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
        // - a value: an operation is in its cell until its packet is taken;
        // - nothing else: between `share_file` and what follows below the engine hands the operation to no other
        //   thread.
        let data = unsafe { cell.get_mut() };
        let is_over = data.attempt(|| AttemptTarget::of(engine, &op_ref)).is_over();
        let request = if is_over || engine.forked() {
            None
        } else {
            self.file_request(data, op_index, op_ref.index)
        };
        std::mem::forget(trying);
        if engine.forked() {
            // The buffer's code has forked, and this is the child: the operation is the parent's.
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
