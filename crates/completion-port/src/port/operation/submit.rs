//! How the rest of an operation is submitted to the system with its buffer, and what happens when
//! the request completes.

use std::sync::{Arc, Weak};

use crate::backend::files::{FileRef, FileTarget, Issuer};
use crate::backend::request::{FileRequest, SocketRequest};
use crate::backend::sockets::{SocketAttempt, SocketTarget};
use crate::engine::{Engine, OpRef, OpThread, Step};
use crate::memory::cells::Cell;
use crate::port::Store;
use crate::port::operation::attempt::Trying;
use crate::port::operation::data::{Progress, SocketStage};
use crate::port::operation::{Detail, OpData};
use crate::types::buffer::Buffer;
use crate::types::io_buffer::IoBuffer;
use crate::types::source::Descriptor;

impl<B: Buffer> OpData<B> {
    /// Lends the buffer, if the operation has one: its room for a receive or read, its bytes for a
    /// send or write.
    fn lend(&mut self) -> Option<IoBuffer> {
        let fills = self.operation.kind.fills();
        let place = &mut self.operation.buffer;
        let mut lending = LendGuard { io_buffer: place.take().map(IoBuffer::new), place };
        match &mut lending.io_buffer {
            Some(io_buffer) if fills => io_buffer.lend_room(|buffer: &mut B, part| {
                // SAFETY: `room` requires that only initialized bytes are written to the parts.
                // - the back end writes bytes that it has received or read.
                unsafe { buffer.room(&mut |room| part(room)) };
            }),
            Some(io_buffer) => io_buffer.lend_bytes(|buffer: &B, part| {
                buffer.filled(&mut |bytes| part(bytes));
            }),
            None => {}
        }
        lending.io_buffer.take()
    }

    /// Takes the lent buffer back. If the operation fills its buffer, `filled` is the number of
    /// bytes in its room.
    fn return_buffer(&mut self, io_buffer: IoBuffer, filled: Option<usize>) {
        let fills = self.operation.kind.fills();
        let buffer: &mut B = self.operation.buffer.insert(io_buffer.into_buffer());
        let Some(filled) = filled.filter(|_| fills) else { return };
        // SAFETY: `room` requires that only initialized bytes are written to the parts.
        // - nothing is written.
        unsafe { buffer.room(&mut |_| {}) };
        // SAFETY: `set_filled` requires that the first bytes of the room are initialized, and that
        // the buffer is as it was at the call of `room`.
        // - initialized: the system reports that it has written that many, from the beginning of
        //   the parts that the buffer gave before it was moved, and moving it changed none of these
        //   bytes;
        // - as it was: `room` was just called.
        unsafe { buffer.set_filled(filled) };
    }

    /// Makes a request for the rest of an operation on a file, with the buffer.
    fn file_request(
        &mut self,
        id: u64,
        issuer: Weak<dyn Issuer>,
        file: Arc<dyn FileRef>,
    ) -> FileRequest {
        let kind = self.operation.kind.on_file().expect("it is about a file");
        let buffer = self.lend();
        self.is_submitted = true;
        let offset = self.operation.detail.offset();
        let mut request = FileRequest::new(id, FileTarget { file, offset, issuer }, kind, buffer);
        // Moving the buffer changed no byte of its room. So bytes that were read immediately are
        // still there.
        request.advance(self.progress.len);
        request
    }

    /// Makes a request for the rest of an operation on a socket, with the buffer.
    fn socket_request(&mut self, id: u64, descriptor: Descriptor) -> SocketRequest {
        let kind = self.operation.kind.on_socket().expect("an attempt has returned `NeedsSystem`");
        let buffer = self.lend();
        self.is_submitted = true;
        let target = SocketTarget::new(descriptor, self.operation.detail.take_address());
        let mut request = SocketRequest::new(id, target, kind, buffer);
        // The attempts have already sent this many bytes.
        request.advance(self.progress.len);
        request
    }

    /// Takes back the operation's socket request, which has completed or was cancelled.
    fn complete_socket(&mut self, request: SocketRequest) {
        let SocketRequest { target, buffer, done, fault, .. } = request;
        let SocketTarget { address, is_cut, connection, is_declined, .. } = target;
        self.is_submitted = false;
        let stage = if is_declined { SocketStage::Declined } else { SocketStage::Fresh };
        self.progress = Progress { stage, is_cut, len: done, socket: connection, fault };
        self.operation.detail = Detail::of(address);
        if let Some(buffer) = buffer {
            self.return_buffer(buffer, (done > 0).then_some(done));
        }
    }

    /// Takes back the operation's file request, which has completed or was cancelled.
    pub(crate) fn complete_file(&mut self, request: FileRequest) {
        self.is_submitted = false;
        (self.progress.len, self.progress.fault) = (request.done, request.fault);
        if let Some(buffer) = request.buffer {
            self.return_buffer(buffer, Some(request.done));
        }
    }
}

/// A buffer that is being lent. If its code panics, the buffer returns to the operation.
struct LendGuard<'c, B: Buffer> {
    io_buffer: Option<IoBuffer>,
    place: &'c mut Option<B>,
}

impl<B: Buffer> Drop for LendGuard<'_, B> {
    fn drop(&mut self) {
        if let Some(io_buffer) = self.io_buffer.take() {
            *self.place = Some(io_buffer.into_buffer());
        }
    }
}

impl<K, B: Buffer> Store<K, B> {
    /// Submits the operation in `cell` to the back end.
    #[cold]
    #[inline(never)]
    pub(super) fn submit_socket(
        &self,
        cell: &Cell<OpData<B>>,
        op_ref: &OpRef<'_>,
        thread: OpThread<'_>,
    ) -> Step {
        let engine = &self.engine;
        engine.queue_if_lone(op_ref);
        let op_index = op_ref.op_index;
        if !engine.prepare_socket_request(op_index) {
            // The operation waits for an edge instead.
            return engine.tried(op_ref, SocketAttempt::Blocked, thread);
        }
        let trying = Trying { store: self, op_index, worker: thread.worker() };
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value, and nothing else: this thread has just tried the operation, and until it
        //   reports the result to the engine, below, the engine gives the operation to no other
        //   thread.
        let data = unsafe { cell.get_mut() };
        let id = engine.socket_request_of(op_index);
        let request = data.socket_request(id, op_ref.descriptor());
        std::mem::forget(trying);
        if engine.forked() {
            // The buffer's code has forked, and this is the child: the operation belongs to the
            // parent.
            std::mem::forget(request);
            return Step::Waits;
        }
        match engine.submit_socket(op_ref, request, thread) {
            Ok(()) => Step::Waits,
            Err((step, request)) => {
                // SAFETY: `get_mut` requires a value that nothing else accesses while the reference
                // lives.
                // - a value, and nothing else: the operation has ended, and its node belongs to the
                //   caller.
                unsafe { cell.get_mut() }.complete_socket(request);
                step
            }
        }
    }

    /// Takes back the request of the operation in `cell`, which was submitted to the back end and
    /// has returned. The calling thread owns its node.
    #[cold]
    #[inline(never)]
    pub(super) fn fetch(&self, cell: &Cell<OpData<B>>, op_index: u32) {
        let Some(request) = self.engine.take_completed_socket(op_index) else {
            return self.fetch_file(cell, op_index);
        };
        let fetching = CompletionGuard { store: self, cell, op_index };
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value: an operation is in its cell until its packet is taken;
        // - nothing else: only one thread gets the node of an operation, the caller.
        unsafe { cell.get_mut() }.complete_socket(request);
        std::mem::forget(fetching);
    }

    /// Takes back the file request of the operation in `cell`, if it was submitted. The operation
    /// has ended, and the caller is about to make its packet.
    fn fetch_file(&self, cell: &Cell<OpData<B>>, op_index: u32) {
        if let Some(request) = self.engine.take_completed_file(op_index) {
            self.unpack(cell, op_index, request);
        }
    }

    /// Makes a request for the rest of an operation of the slot `index`. Returns `None` if that is
    /// impossible and the operation has ended.
    pub(in crate::port) fn file_request(
        &self,
        data: &mut OpData<B>,
        op_index: u32,
        index: u32,
    ) -> Option<FileRequest> {
        let engine = &self.engine;
        let file = match data.operation.detail.file() {
            Some(file) => engine.prepare_file_request(op_index).and_then(|()| {
                file.file_ref(engine.number(), |number| engine.backend().file_ref(number))
            }),
            None => engine.file_ref(index, op_index),
        };
        match file {
            Ok(file) => {
                let issuer: Weak<Engine> = Arc::downgrade(engine);
                let issuer: Weak<dyn Issuer> = issuer;
                Some(data.file_request(engine.operation_of(op_index), issuer, file))
            }
            Err(fault) => {
                data.fail_at_start(fault);
                None
            }
        }
    }

    /// Unpacks the request of an operation that has ended, and is in `cell`.
    pub(super) fn unpack(&self, cell: &Cell<OpData<B>>, op_index: u32, request: FileRequest) {
        let fetching = CompletionGuard { store: self, cell, op_index };
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value: an operation is in its cell until its packet is taken;
        // - nothing else: only one thread gets an operation that has ended, the caller.
        let data = unsafe { cell.get_mut() };
        data.complete_file(request);
        data.operation.release_file();
        std::mem::forget(fetching);
    }
}

/// Guards an operation that has returned from the back end, while code of its buffer runs. If that
/// panics, the operation fails, and its packet is queued. No such code runs for an operation that
/// will be retried.
struct CompletionGuard<'s, K, B: Buffer> {
    store: &'s Store<K, B>,
    cell: &'s Cell<OpData<B>>,
    op_index: u32,
}

impl<K, B: Buffer> Drop for CompletionGuard<'_, K, B> {
    fn drop(&mut self) {
        if self.store.engine.forked() {
            return;
        }
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value, and nothing else: as in `fetch`, which calls this while it unwinds, and no
        //   longer uses its own reference.
        unsafe { self.cell.get_mut() }.fail_by_panic();
        self.store.engine.queue_operation(self.op_index);
    }
}

/// Guards an operation on a file that its caller tries. If the buffer's code panics, the operation
/// fails, and its packet is queued.
pub(super) struct TryingOnFile<'s, K, B: Buffer> {
    pub(super) store: &'s Store<K, B>,
    pub(super) cell: &'s Cell<OpData<B>>,
    pub(super) op_ref: &'s OpRef<'s>,
}

impl<K, B: Buffer> Drop for TryingOnFile<'_, K, B> {
    fn drop(&mut self) {
        let engine = &self.store.engine;
        if engine.forked() {
            return;
        }
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value, and nothing else: as where this was made. That call unwinds now, and no longer
        //   uses its own reference.
        unsafe { self.cell.get_mut() }.fail_by_panic();
        engine.queue_file_done(self.op_ref);
    }
}
