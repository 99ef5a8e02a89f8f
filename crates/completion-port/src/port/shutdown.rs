//! How a port ends: closed, shut down or dropped.

use crate::port::Port;
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
