//! The calls of a port that wait for packets, and the one that tells it of a handler that blocks.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Waited, Worker};
use crate::port::Port;
use crate::port::batch::Batch;
use crate::port::changes::Changes;
use crate::port::current::{current_worker, take_worker};
use crate::port::packets::Packets;
use crate::state::moment::Moment;
use crate::types::error::{Call, Error, ErrorKind, Result};

impl<K, M, B> Port<K, M, B> {
    /// Waits for packets.
    ///
    /// # Waiting
    ///
    /// Returns as soon as there is a packet for this thread. Returns without a packet when
    /// `timeout` is over (`None`: no limit), never earlier. Signals do not end the wait. What an
    /// earlier wait of this thread left in its iterator goes back to the front of the queue.
    ///
    /// A packet may be taken back before the thread comes to it (see [`Packets`]), or turn out to
    /// have nothing to report. If no packet is left, the iterator waits on for the rest of the
    /// time. If the port is closed then, the iterator is empty, and the next wait says so.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`] once the port is closed and its queue is empty;
    /// [`ErrorKind::Forked`].
    ///
    /// If nothing is queued and the system refuses for good to report what is ready:
    /// [`ErrorKind::Unsupported`] in a sandbox that forbids the call, [`ErrorKind::OutOfMemory`],
    /// otherwise [`ErrorKind::Other`], each with the system's code ([`Error::os_code`]). Nothing has
    /// changed then. The port still delivers what is queued, and each wait asks the system again. A
    /// wait that returns packets leaves its refusal to the next wait of any thread, which fails.
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

    /// Applies changes, then waits for packets: both in one call. The results are in `changes` when
    /// this returns: one for each change.
    ///
    /// # Waiting
    ///
    /// As for [`Port::wait`]. If the capacity of `batch` is zero, the call applies the changes and
    /// returns.
    ///
    /// If a change was refused the call does not sleep: it takes what is there, perhaps nothing.
    /// There is one exception. If every change was refused, and every change of the same thread's
    /// next call is refused as well, with no packet or other wait in between, that next call sleeps
    /// as usual.
    ///
    /// # Errors
    ///
    /// As for [`Port::wait`]. If the call fails, it has applied no change, and all of them are
    /// still in `changes`. If the system refuses to report what is ready, the call has applied its changes and
    /// returns no packet; the next call fails.
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
        // Closed by another thread meanwhile: the changes have been applied, so the call has not
        // failed; the next one says so.
        if changes.any_was_refused() && batch.capacity() > 0 {
            return Ok(self.take_and_tell(batch, deadline, changes.all_were_refused()));
        }
        // What the wait has failed with is kept, and the next one reports it.
        Ok(self.take(batch, deadline).0)
    }

    /// Takes what is there, without sleeping, since changes were refused; sleeps all the same if
    /// the thread has seen that refusal.
    #[cold]
    fn take_and_tell<'b, 'p>(
        &'p self,
        batch: &'b mut Batch,
        deadline: Option<Moment>,
        all_were_refused: bool,
    ) -> Packets<'b, 'p, K, M, B> {
        let worker = take_worker(&self.store.engine);
        let tells = !all_were_refused || worker.traces_refusals();
        let deadline = if tells { Some(Moment::ZERO) } else { deadline };
        let (packets, _) = self.take(batch, deadline);
        if all_were_refused {
            worker.has_heard_of_refusal();
        }
        packets
    }

    fn deadline(&self, timeout: Option<Duration>) -> Result<Option<Moment>> {
        if self.store.engine.forked() {
            return Err(Error::new(Call::Wait, ErrorKind::Forked));
        }
        // A deadline beyond the clock's range is none.
        Ok(timeout.and_then(|timeout| self.store.engine.backend().now().checked_add(timeout)))
    }

    fn take<'b, 'p>(
        &'p self,
        batch: &'b mut Batch,
        deadline: Option<Moment>,
    ) -> (Packets<'b, 'p, K, M, B>, Waited) {
        let room = batch.capacity();
        if room == 0 {
            // This call does not wait: the thread goes on running at whatever port it runs.
            return (Packets::none(self, &mut batch.scratch), Waited::TimedOut);
        }
        let worker = take_worker(&self.store.engine);
        let engine = &self.store.engine;
        let waited = engine.wait(&worker, &mut batch.scratch, room, deadline, &self.store);
        (Packets::waited(self, &mut batch.scratch, room, deadline, worker, waited), waited)
    }

    /// Runs `f`, which is expected to sleep: on a lock, in a blocking read, in a computation that
    /// runs elsewhere. Until `f` returns, this thread does not count as running, and another one
    /// takes its place.
    ///
    /// Packets that this thread has not come to yet go back to the queue. When `f` returns, more
    /// threads may run than the concurrency value says, until one of them waits.
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
        struct Blocked<'e>(&'e Engine, Arc<Worker>);
        impl Drop for Blocked<'_> {
            fn drop(&mut self) {
                self.0.end_blocking(&self.1);
            }
        }
        let worker =
            if self.store.engine.forked() { None } else { current_worker(&self.store.engine) };
        let _blocked = worker
            .filter(|worker| self.store.engine.begin_blocking(worker))
            .map(|worker| Blocked(&self.store.engine, worker));
        f()
    }
}
