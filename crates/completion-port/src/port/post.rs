//! The calls of a port that post messages and cancel them.

use crate::engine::{Posting, Worker};
use crate::port::Port;
use crate::port::current::own_worker;
use crate::port::deadline::{Deadline, TimerId};
use crate::types::error::{Refused, Result};

impl<K, M, B> Port<K, M, B> {
    /// Queues a message and wakes at most one thread for it: the one that waited last.
    ///
    /// Later messages reuse the memory of earlier ones. The port frees it only when it is dropped:
    /// if its queue once held a million messages simultaneously, the port keeps the memory for a
    /// million.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed),
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory),
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked). The error returns the message.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, ErrorKind, Packet, Port};
    ///
    /// let port: Port<(), String> = Port::builder().build()?;
    /// port.post("work".to_owned())?;
    /// let mut batch = Batch::new();
    /// let packet = port.wait(&mut batch, None)?.next();
    /// assert!(matches!(packet, Some(Packet::Posted(work)) if work == "work"));
    ///
    /// port.close();
    /// let refused = port.post("too late".to_owned()).unwrap_err();
    /// assert_eq!((refused.kind(), refused.value().as_str()), (ErrorKind::Closed, "too late"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn post(&self, message: M) -> Result<(), Refused<M>> {
        self.begin_post(message, Ok).map(Posting::queue)
    }

    /// See [`Raw::post_found`](crate::port::raw::Raw::post_found).
    pub(crate) fn post_found(&self, message: M) -> Result<(), Refused<M>> {
        let worker = own_worker(&self.store.engine);
        self.begin_post(message, Ok).map(|posting| posting.queue_found(worker.as_deref()))
    }

    /// Puts `message` into a cell, unless `admit` refuses the posting.
    ///
    /// The result keeps the port locked, so use it immediately.
    #[inline]
    fn begin_post<'p>(
        &'p self,
        message: M,
        admit: impl FnOnce(Posting<'p>) -> Result<Posting<'p>>,
    ) -> Result<Posting<'p>, Refused<M>> {
        let reserve = |number| self.messages.reserve(number);
        let posting = match self.store.engine.begin_post(reserve).and_then(admit) {
            Ok(posting) => posting,
            Err(error) => {
                self.store.engine.trace_refused(&error, None, None);
                return Err(Refused::new(error, message));
            }
        };
        // SAFETY: `put` requires that the caller owns the cell and that it is empty.
        // - owned: the cell was just reserved, and no other thread knows it;
        // - empty: a cell is freed only after its message was moved out.
        unsafe { self.messages.put(posting.cell(), message) };
        Ok(posting)
    }

    /// Queues a message for the current thread, ahead of its remaining packets, and wakes no other
    /// thread to handle it.
    ///
    /// A handler uses it to continue its own work in another packet, as a runtime does with a task
    /// that has just become ready. The data is in this processor's cache.
    ///
    /// The packet is the next item of the thread's [`Packets`](crate::Packets), even if the batch
    /// is full by then, or the first one of its next wait. Of several such messages, the last one
    /// comes first. Like the rest of a batch, the message goes to another thread if this one
    /// announces that it blocks, is found asleep, or does not reach the message for about a
    /// millisecond while another thread is idle. So an idle thread may be woken to keep watch.
    ///
    /// So that other packets get their turn, at most 64 such messages in a row go first, over any
    /// number of waits. The count restarts when the thread comes to wait with none of them left.
    /// Further messages go to the end of the queue, where the thread finds them when it waits. If
    /// the calling thread does not run packets of this port, the message is queued as by
    /// [`post`](Self::post).
    ///
    /// # Errors
    ///
    /// As for [`post`](Self::post).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Packet, Port};
    ///
    /// let port: Port<(), &str> = Port::builder().build()?;
    /// port.post("first")?;
    /// port.post("second")?;
    /// let mut batch = Batch::new();
    /// let mut order = Vec::new();
    /// while order.len() < 3 {
    ///     for packet in port.wait(&mut batch, None)? {
    ///         let Packet::Posted(message) = packet else { continue };
    ///         if message == "first" {
    ///             port.post_after("what follows")?;
    ///         }
    ///         order.push(message);
    ///     }
    /// }
    /// assert_eq!(order, ["first", "what follows", "second"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn post_after(&self, message: M) -> Result<(), Refused<M>> {
        self.post_in_front(message, false)
    }

    /// Queues a message for the current thread, as [`post_after`](Self::post_after) does, and moves
    /// the message that was in front of it to the shared queue.
    ///
    /// So a thread keeps one message at a time: the newest. A handler that makes ten tasks ready
    /// runs the last one next, and the other nine wake idle threads by the usual rules. Only a
    /// message that the thread has put in front itself, and has not taken, is moved. It goes to the
    /// end of the queue.
    ///
    /// # Errors
    ///
    /// As for [`post`](Self::post).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Packet, Port};
    ///
    /// let port: Port<(), &str> = Port::builder().build()?;
    /// port.post("first")?;
    /// port.post("second")?;
    /// let mut batch = Batch::new();
    /// let mut order = Vec::new();
    /// while order.len() < 4 {
    ///     for packet in port.wait(&mut batch, None)? {
    ///         let Packet::Posted(message) = packet else { continue };
    ///         if message == "first" {
    ///             port.post_next("displaced")?;
    ///             port.post_next("what follows")?;
    ///         }
    ///         order.push(message);
    ///     }
    /// }
    /// assert_eq!(order, ["first", "what follows", "second", "displaced"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn post_next(&self, message: M) -> Result<(), Refused<M>> {
        self.post_in_front(message, true)
    }

    fn post_in_front(&self, mut message: M, displaces: bool) -> Result<(), Refused<M>> {
        let engine = &self.store.engine;
        let worker = own_worker(engine);
        if let Some(worker) = worker.as_deref()
            && let Some(cell) = engine.cell_in_front(worker, displaces)
        {
            match self.put_alone(worker, cell, message, true) {
                Ok(()) => return Ok(()),
                Err(back) => message = back,
            }
        }
        self.begin_post(message, Ok).map(|posting| posting.put_next(worker.as_deref(), displaces))
    }

    /// Queues a message when the current thread next waits, at the end of the queue.
    ///
    /// A handler uses it for work that other packets may come before, as a runtime does with a task
    /// that yields. It is the cheapest way to post: after the first one of a batch, it takes no lock.
    ///
    /// Until that wait, no other thread sees the message, and none is woken to handle it, unless the
    /// thread drops [`Packets`](crate::Packets) that it has not taken. Like the rest of a batch, it
    /// goes to another thread if this one announces that it blocks, is found
    /// asleep, or makes no progress for about a millisecond while another thread is idle. If the
    /// calling thread does not run packets of this port, the message is queued as by
    /// [`post`](Self::post).
    ///
    /// # Errors
    ///
    /// As for [`post`](Self::post).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Packet, Port};
    ///
    /// let port: Port<(), &str> = Port::builder().build()?;
    /// port.post("first")?;
    /// let mut batch = Batch::new();
    /// let mut order = Vec::new();
    /// while order.len() < 4 {
    ///     for packet in port.wait(&mut batch, None)? {
    ///         let Packet::Posted(message) = packet else { continue };
    ///         if message == "first" {
    ///             port.post_behind("third")?;
    ///             port.post_behind("fourth")?;
    ///             port.post("second")?;
    ///         }
    ///         order.push(message);
    ///     }
    /// }
    /// assert_eq!(order, ["first", "second", "third", "fourth"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn post_behind(&self, mut message: M) -> Result<(), Refused<M>> {
        let engine = &self.store.engine;
        let worker = own_worker(engine);
        if let Some(worker) = worker.as_deref()
            && let Some(cell) = engine.cell_behind(worker)
        {
            match self.put_alone(worker, cell, message, false) {
                Ok(()) => return Ok(()),
                Err(back) => message = back,
            }
        }
        self.begin_post(message, Ok).map(|posting| posting.put_behind(worker.as_deref()))
    }

    /// Puts a message into a cell that this thread has emptied, and `in_front` of the thread's
    /// packets or at their end, without the lock.
    ///
    /// Returns it, and frees the cell, if another thread has taken away what was there.
    fn put_alone(&self, worker: &Worker, cell: u32, message: M, in_front: bool) -> Result<(), M> {
        let engine = &self.store.engine;
        // SAFETY: `put` requires that the caller owns the cell and that it is empty.
        // - owned: it was taken out of those that this thread has emptied, which no other thread
        //   knows until they are freed;
        // - empty: a cell is among them only after its message was moved out.
        unsafe { self.messages.put(cell, message) };
        let is_put = if in_front {
            engine.put_in_front(worker, cell)
        } else {
            engine.put_behind(worker, cell)
        };
        if is_put {
            return Ok(());
        }
        // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
        // - owned: it is in no chain, because the call above has failed;
        // - a value: the message was put there above.
        let message = unsafe { self.messages.take(cell) };
        engine.free_post(worker, cell);
        Err(message)
    }

    /// Posts a message at a future time. It is queued then, as by [`post`](Self::post), and never
    /// earlier.
    ///
    /// While a thread waits on the port, or comes to wait within a millisecond, the message is at
    /// most that late. If all threads are running handlers, the first one that returns to wait
    /// finds it.
    ///
    /// Messages for the same moment are queued in the order in which they were posted. While there
    /// are timers, each wait reads the clock. A timer that is due before all others may wake a
    /// thread, so that it sleeps no longer than that. Setting or cancelling a timer takes a number
    /// of steps that grows with the logarithm of the number of timers.
    ///
    /// Once the port is closed, messages that are not due yet are no longer delivered.
    /// [`cancel_post`](Self::cancel_post) still returns them, and the port drops the rest when it
    /// is dropped.
    ///
    /// # Errors
    ///
    /// As for [`post`](Self::post).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Packet, Port};
    /// use std::time::{Duration, Instant};
    ///
    /// let port: Port<(), &str> = Port::builder().build()?;
    /// let begun = Instant::now();
    /// port.post_at(begun + Duration::from_millis(10), "soon")?;
    /// port.post_at(Duration::from_millis(20), "later")?;
    /// let never = port.post_at(Duration::from_secs(3600), "in an hour")?;
    ///
    /// let mut batch = Batch::new();
    /// let mut seen = Vec::new();
    /// while seen.len() < 2 {
    ///     for packet in port.wait(&mut batch, None)? {
    ///         let Packet::Posted(message) = packet else { continue };
    ///         seen.push(message);
    ///     }
    /// }
    /// assert_eq!(seen, ["soon", "later"]);
    /// assert!(begun.elapsed() >= Duration::from_millis(20));
    /// assert_eq!(port.cancel_post(never), Some("in an hour"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn post_at(
        &self,
        deadline: impl Into<Deadline>,
        message: M,
    ) -> Result<TimerId, Refused<M>> {
        let at = deadline.into().moment(self.store.engine.backend());
        let posting = self.begin_post(message, Posting::for_timer)?;
        Ok(TimerId(posting.queue_at(at)))
    }

    /// Cancels a message that is not due yet, and returns it.
    ///
    /// Returns `None` if the message is already queued or delivered, if it was cancelled before, or
    /// in a forked child.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::Port;
    /// use std::time::Duration;
    ///
    /// let port: Port<(), u32> = Port::builder().build()?;
    /// let timer = port.post_at(Duration::from_secs(60), 7)?;
    /// assert_eq!(port.cancel_post(timer), Some(7));
    /// assert_eq!(port.cancel_post(timer), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_post(&self, timer: TimerId) -> Option<M> {
        self.store.engine.cancel_post(timer.0, |cell| {
            // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
            // - owned: only the timer knew the cell. `Engine::cancel_post` has taken the timer out
            //   of the heap, and keeps the lock until the message is moved out;
            // - a value: `post_at` put the message there under the same lock under which it set the
            //   timer.
            unsafe { self.messages.take(cell) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::batch::Batch;
    use crate::port::packets::Packet;
    use crate::sim::Kernel;
    use crate::types::error::ErrorKind;

    /// The port is closed, or not, after the thread has taken the cell: as if it had lost the race.
    #[test]
    fn a_message_that_comes_too_late_to_be_put_behind_is_posted_or_refused() {
        for closes in [false, true] {
            let port: Port<(), u32> = Port::builder().build_simulated(&Kernel::new()).unwrap();
            let mut batch = Batch::new();
            (0..2).for_each(|message| port.post(message).unwrap());
            let mut packets = port.wait(&mut batch, None).unwrap();
            assert!(matches!(packets.next(), Some(Packet::Posted(0))));
            port.post_behind(10).unwrap();
            let engine = port.engine();
            let worker = own_worker(engine).unwrap();
            let cell = engine.cell_behind(&worker).unwrap();
            if closes {
                port.close();
            } else {
                // Another thread would take its packets away, too.
                port.blocking(|| {});
            }
            assert_eq!(port.put_alone(&worker, cell, 11, false), Err(11));
            // The cell can be used again.
            let posted = port.post_behind(11).map_err(|refused| refused.kind());
            assert_eq!(posted, if closes { Err(ErrorKind::Closed) } else { Ok(()) });
            drop((worker, packets));
            let mut left = Vec::new();
            while left.len() < if closes { 2 } else { 3 } {
                for packet in port.wait(&mut batch, None).unwrap() {
                    let Packet::Posted(message) = packet else { panic!("{packet:?}") };
                    left.push(message);
                }
            }
            assert_eq!(left, if closes { vec![1, 10] } else { vec![1, 10, 11] });
        }
    }
}
