//! The calls of a port that wait for packets, and the one that announces a blocking handler.

use std::time::Duration;

use crate::engine::{Engine, Waited};
use crate::port::Port;
use crate::port::batch::Batch;
use crate::port::changes::Changes;
use crate::port::current::{OwnWorker, own_worker, take_worker};
use crate::port::packets::Packets;
use crate::state::moment::Moment;
use crate::types::error::{Call, Error, ErrorKind, Result};

impl<K, M, B> Port<K, M, B> {
    /// Waits for packets.
    ///
    /// # Waiting
    ///
    /// Returns as soon as there is a packet for this thread. Returns without a packet when
    /// `timeout` has passed (`None`: no limit), never earlier. Signals do not end the wait. Packets
    /// that an earlier wait of this thread left in its iterator return to the front of the queue.
    ///
    /// Another thread may take a packet before this thread reaches it (see [`Packets`]), or a
    /// packet may turn out to have nothing to report. If no packet remains, the iterator waits for
    /// the rest of the time. If the port is closed meanwhile, the iterator is empty and the next
    /// wait fails.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Closed`]: the port is closed and its queue is empty.
    /// - [`ErrorKind::Forked`].
    /// - If nothing is queued and the system permanently refuses to report readiness:
    ///   [`ErrorKind::Unsupported`] in a sandbox that forbids the call, [`ErrorKind::OutOfMemory`],
    ///   or otherwise [`ErrorKind::Other`]. Each carries the system's code ([`Error::os_code`]).
    ///
    /// A failed wait has changed nothing. The port still delivers what is queued, and each wait
    /// asks the system again. If a wait returns packets although the system refused, the next wait
    /// of any thread fails instead.
    pub fn wait<'b, 'p>(
        &'p self,
        batch: &'b mut Batch,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Packets<'b, 'p, K, M, B>> {
        let deadline = self.deadline(timeout.into())?;
        match self.take(batch, deadline) {
            (_, Waited::Closed) => Err(Error::new(Call::Wait, ErrorKind::Closed)),
            (_, Waited::Failed) => Err(self.store.engine.take_fault()),
            (packets, _) => Ok(packets),
        }
    }

    /// Applies changes, then waits for packets, in one call. Afterwards `changes` has one result
    /// for each change.
    ///
    /// # Waiting
    ///
    /// As for [`Port::wait`]. If the capacity of `batch` is zero, the call applies the changes and
    /// returns.
    ///
    /// If a change was refused, the call does not sleep: it takes what is there, perhaps nothing.
    /// There is one exception. If every change was refused, and every change of the same thread's
    /// next call is refused as well, with no packet or other wait in between, that next call sleeps
    /// as usual.
    ///
    /// # Errors
    ///
    /// As for [`Port::wait`]. A failed call has applied no change, and all of them are still in
    /// `changes`. If the system refuses to report readiness after the changes were applied, the
    /// call succeeds without a packet, and the next call fails.
    pub fn process<'b, 'p>(
        &'p self,
        changes: &mut Changes<'_, K, B>,
        batch: &'b mut Batch,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Packets<'b, 'p, K, M, B>> {
        let deadline = self.deadline(timeout.into())?;
        if self.store.engine.is_closed() {
            return Err(Error::new(Call::Wait, ErrorKind::Closed));
        }
        if self.store.engine.has_fault() {
            return Err(self.store.engine.take_fault());
        }
        changes.apply(self);
        // Another thread may have closed the port meanwhile. Since the changes have been applied,
        // this call has not failed; the next one returns the error.
        if changes.any_was_refused() && batch.capacity() > 0 {
            return Ok(self.take_after_refusals(batch, deadline, changes.all_were_refused()));
        }
        // If the wait fails, its error is kept, and the next wait reports it.
        Ok(self.take(batch, deadline).0)
    }

    /// Takes what is there without sleeping, because changes were refused. Sleeps nevertheless if
    /// the thread has already seen that refusal.
    #[cold]
    fn take_after_refusals<'b, 'p>(
        &'p self,
        batch: &'b mut Batch,
        deadline: Option<Moment>,
        all_were_refused: bool,
    ) -> Packets<'b, 'p, K, M, B> {
        let worker = take_worker(&self.store.engine);
        let returns = !all_were_refused || worker.returns_for_refusals();
        let deadline = if returns { Some(Moment::ZERO) } else { deadline };
        let (packets, _) = self.take(batch, deadline);
        if all_were_refused {
            worker.note_refusal();
        }
        packets
    }

    fn deadline(&self, timeout: Option<Duration>) -> Result<Option<Moment>> {
        if self.store.engine.forked() {
            return Err(Error::new(Call::Wait, ErrorKind::Forked));
        }
        // A deadline beyond the clock's range means none.
        Ok(timeout.and_then(|timeout| self.store.engine.backend().now().checked_add(timeout)))
    }

    fn take<'b, 'p>(
        &'p self,
        batch: &'b mut Batch,
        deadline: Option<Moment>,
    ) -> (Packets<'b, 'p, K, M, B>, Waited) {
        let room = batch.capacity();
        if room == 0 {
            // This call does not wait, so the thread stays at the port where it runs.
            return (Packets::none(self, &mut batch.scratch), Waited::TimedOut);
        }
        let worker = take_worker(&self.store.engine);
        let engine = &self.store.engine;
        let waited = engine.wait(&worker, &mut batch.scratch, room, deadline, &self.store);
        (Packets::waited(self, &mut batch.scratch, room, deadline, worker, waited), waited)
    }

    /// Runs `f`, which is expected to block: on a lock, in a blocking read, for a computation
    /// elsewhere.
    ///
    /// Until `f` returns, this thread does not count as running, and another one takes its place.
    /// Packets that this thread has not reached yet return to the queue. When `f` returns, more
    /// threads may run than the concurrency value allows, until one of them waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::Port;
    /// use std::sync::Mutex;
    ///
    /// let port = Port::<()>::new()?;
    /// let contended = Mutex::new(0);
    /// *port.blocking(|| contended.lock().unwrap()) += 1;
    /// assert_eq!(contended.into_inner()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocking<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Blocked<'e>(&'e Engine, OwnWorker);
        impl Drop for Blocked<'_> {
            fn drop(&mut self) {
                self.0.end_blocking(&self.1);
            }
        }
        let worker = if self.store.engine.forked() { None } else { own_worker(&self.store.engine) };
        let blocked = worker
            .filter(|worker| self.store.engine.begin_blocking(worker))
            .map(|worker| Blocked(&self.store.engine, worker));
        if blocked.is_some() {
            self.store.engine.blocks_with_none_idle();
        }
        f()
    }
}
