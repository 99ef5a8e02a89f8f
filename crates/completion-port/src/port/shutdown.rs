//! How a port ends: closed, shut down or dropped.

use crate::port::Port;
use crate::port::deadline::Deadline;
use crate::port::operation::data::Brings;
use crate::types::error::Result;

impl<K, M, B> Port<K, M, B> {
    /// Closes the port, which refuses new work from now on: registrations, messages, operations and
    /// rearming.
    ///
    /// Waits drain the queue. Once it is empty they return
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed), on every thread. Registrations whose keys
    /// are at the port make no more packets; their keys are dropped with the port. Operations in
    /// flight are cancelled, and waits deliver their packets before they return `Closed`.
    ///
    /// To get every key back, call [`Port::shutdown`] instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, ErrorKind, Port};
    ///
    /// let port: Port<(), u32> = Port::builder().build()?;
    /// port.post(1)?;
    /// port.close();
    /// let mut batch = Batch::new();
    /// assert_eq!(port.wait(&mut batch, None)?.count(), 1);
    /// assert_eq!(port.wait(&mut batch, None).unwrap_err().kind(), ErrorKind::Closed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        if !self.store.engine.forked() {
            self.store.engine.close();
        }
    }

    /// Shuts down in order: refuses new work and removes every registration.
    ///
    /// Each key is returned with a [`Packet::Removed`](crate::Packet::Removed). If a handler holds
    /// a key, that packet is made when the handler rearms or parks its token. Operations in flight
    /// are cancelled, and each makes its packet first. The threads continue to wait as before. Once
    /// no registration and no packet is left, waits return
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
    /// use std::net::UdpSocket;
    ///
    /// let port = Port::<UdpSocket>::new()?;
    /// for _ in 0..3 {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     port.register(Registration::owned(socket, Interest::IN, OneShot::Level))?;
    /// }
    /// port.shutdown()?;
    /// let (mut batch, mut sockets) = (Batch::new(), Vec::new());
    /// while let Ok(packets) = port.wait(&mut batch, None) {
    ///     for packet in packets {
    ///         if let Packet::Removed(_, socket) = packet {
    ///             sockets.push(socket);
    ///         }
    ///     }
    /// }
    /// assert_eq!(sockets.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self) -> Result<()> {
        self.store.engine.shut_down()
    }

    /// Shuts down after what handlers have begun to send is sent, or at a deadline.
    ///
    /// From now on the port refuses registrations, messages and rearming by name, as
    /// [`Port::shutdown`] does. Accepts, connects and receives in flight are cancelled, and so are
    /// those that are started later: their packets report
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled). Sends continue, and operations on
    /// files too. Handlers may start more of them, to answer the requests that they have.
    ///
    /// A key is returned with a [`Packet::Removed`](crate::Packet::Removed) when nothing uses it:
    ///
    /// - immediately, if no handler holds it and no operation is in flight;
    /// - when the handler rearms or parks its token. An operation's packet brings the token back;
    /// - of a shared association, when none of its operations is in flight, no packet is queued at
    ///   the port, and no thread runs with packets, since a handler might start one.
    ///
    /// Once no registration is left, waits return [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    /// At the deadline the port does what [`Port::shutdown`] does, if a thread waits on it or comes
    /// to wait. A deadline that has passed is the same as calling that.
    ///
    /// Of several calls the earliest deadline counts. A port that is shutting down or closed stays
    /// as it is. [`Port::shutdown`] and [`Port::close`] may follow at any time.
    ///
    /// A handler whose receive was cancelled should use up its token without starting another one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked);
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory), and nothing has changed.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Operation, Outcome, Packet, Port};
    /// use std::io::Read;
    /// use std::net::{TcpListener, TcpStream};
    /// use std::thread;
    /// use std::time::Duration;
    ///
    /// let port = Port::<TcpStream>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let (mut busy, mut idle) =
    ///     (TcpStream::connect(listener.local_addr()?)?, TcpStream::connect(listener.local_addr()?)?);
    /// // One client is being sent more than the system's buffers hold, the other says nothing.
    /// const SIZE: usize = 8 << 20;
    /// port.associate(listener.accept()?.0)?.send_all(vec![7; SIZE])?;
    /// port.associate(listener.accept()?.0)?.recv(Vec::with_capacity(16))?;
    /// let reader = thread::spawn(move || {
    ///     let (mut all, mut nothing) = (Vec::new(), Vec::new());
    ///     busy.read_to_end(&mut all)?;
    ///     idle.read_to_end(&mut nothing)?;
    ///     std::io::Result::Ok((all.len(), nothing.len()))
    /// });
    ///
    /// port.shutdown_gracefully(Duration::from_secs(30))?;
    /// let mut batch = Batch::new();
    /// while let Ok(packets) = port.wait(&mut batch, None) {
    ///     for packet in packets {
    ///         match packet {
    ///             // It is sent, or the receive was cancelled. The key is returned once more.
    ///             Packet::Completed(done) => drop(done.into_parts().0.park()?),
    ///             Packet::Removed(_, stream) => drop(stream),
    ///             _ => {}
    ///         }
    ///     }
    /// }
    /// assert_eq!(reader.join().unwrap()?, (SIZE, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_gracefully(&self, deadline: impl Into<Deadline>) -> Result<()> {
        let engine = &self.store.engine;
        engine.finish_by(deadline.into().moment(engine.backend()))
    }
}

/// Calls its function for each number when it is dropped. If a call panics, the function is still
/// called for the remaining numbers.
struct ForEachOnDrop<F: Fn(u32)>(std::vec::IntoIter<u32>, F);

impl<F: Fn(u32)> Drop for ForEachOnDrop<F> {
    fn drop(&mut self) {
        struct RestGuard<'r, F: Fn(u32)>(&'r mut ForEachOnDrop<F>);
        impl<F: Fn(u32)> Drop for RestGuard<'_, F> {
            fn drop(&mut self) {
                for number in self.0.0.by_ref() {
                    (self.0.1)(number);
                }
            }
        }
        let rest = RestGuard(self);
        for number in rest.0.0.by_ref() {
            (rest.0.1)(number);
        }
    }
}

impl<K, M, B> Drop for Port<K, M, B> {
    fn drop(&mut self) {
        let remains = self.store.engine.dismantle();
        let (keys, messages, data) =
            (&self.store.keys.cells, &self.messages, &self.store.operations);
        // These are dropped in reverse order, each of them even if dropping another one panics.
        let messages = ForEachOnDrop(remains.messages.into_iter(), |cell| {
            // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
            // - owned: nothing else has access to the port;
            // - a value: the engine names each message that is still queued, once.
            drop(unsafe { messages.take(cell) });
        });
        let keys = ForEachOnDrop(remains.keys.into_iter(), |index| {
            // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
            // - owned: nothing else has access to the port, and no token borrows it;
            // - a value: the engine names each slot that has a key and is not held, once.
            drop(unsafe { keys.take(index) });
        });
        let operations = ForEachOnDrop(remains.operations.into_iter(), |op_index| {
            // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
            // - owned: nothing else has access to the port, so no thread tries an operation;
            // - a value: the engine names each operation whose packet was not taken, once.
            let operation = unsafe { data.take(op_index) };
            let request = self.store.engine.take_completed_file(op_index);
            let message_of = (operation.brings == Brings::Message).then(|| {
                let index = self.store.engine.op_ref(op_index).index;
                // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
                // - owned: nothing else has access to the port;
                // - a value: it is there until the operation's packet is taken.
                unsafe { self.messages_of.take(index) }
            });
            drop((operation, request, message_of));
        });
        drop(operations);
        drop(keys);
        drop(messages);
        // The engine, with the port's descriptors, ends when `store` is dropped.
    }
}
