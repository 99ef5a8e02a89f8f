//! Returning a token for one more packet.

use super::{Held, Ready};
use crate::memory::trace::traces_packets;
use crate::port::current::current_worker;
use crate::types::error::{Call, Refused};

impl<K, B> Ready<'_, K, B> {
    /// Returns the key, enables the registration again, and queues its next packet immediately.
    ///
    /// Use this when the handler stops although it could continue: it has done its share of
    /// requests, and the next one is complete in its own buffer. [`Ready::rearm`] would wait until
    /// the peer sends more. The packet goes to the end of the queue, so every other connection has
    /// its turn first.
    ///
    /// The packet reports the directions of the filter and of
    /// [`Port::enable_also`](crate::Port::enable_also), or `IN` if there are none. The port does not
    /// check them, so a read or write may return [`WouldBlock`](std::io::ErrorKind::WouldBlock). An
    /// end or error that came before is reported after the next rearming. A deadline from
    /// [`Ready::rearm_until`] ends. [`Port::disable`](crate::Port::disable) drops the packet;
    /// [`Port::enable`](crate::Port::enable) keeps it.
    ///
    /// # Errors
    ///
    /// As for [`Ready::rearm`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
    /// use std::io::{Read, Write};
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// let port = Port::<(TcpStream, Vec<u8>)>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut far, _) = listener.accept()?;
    /// let source = near.try_clone()?;
    /// port.register(Registration::new(&source, (near, Vec::new()), Interest::IN, OneShot::Level))?;
    /// far.write_all(b"first\nsecond\n")?;
    ///
    /// let mut batch = Batch::new();
    /// let mut handled = 0;
    /// while handled < 2 {
    ///     let Some(Packet::Ready(mut ready)) = port.wait(&mut batch, None)?.next() else { panic!() };
    ///     let (stream, buffer) = ready.key_mut();
    ///     if !buffer.contains(&b'\n') {
    ///         let mut bytes = [0; 64];
    ///         let read = stream.read(&mut bytes)?;
    ///         buffer.extend(&bytes[..read]);
    ///     }
    ///     // One request for each packet.
    ///     if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
    ///         buffer.drain(..=end);
    ///         handled += 1;
    ///     }
    ///     if buffer.contains(&b'\n') { ready.again()? } else { ready.rearm()? }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn again(self) -> Result<(), Refused<K>> {
        if !self.has_its_descriptor() {
            return Err(self.into_held().refuse(Call::Rearm));
        }
        self.into_held().report_again()
    }
}

impl<K, B> Held<'_, K, B> {
    /// Returns the key to the engine, which queues a packet. Uses the token up.
    fn report_again(self) -> Result<(), Refused<K>> {
        let (engine, worker) = (&self.store.engine, || current_worker(&self.store.engine));
        let (name, mode) = (self.name(), self.slot.word().mode());
        let back = (mode, self.drained);
        let accepted = engine.put_back_again(Call::Rearm, self.slot, name, back, worker);
        // On refusal the slot is still held.
        accepted.map_err(|error| self.refuse_with(error))?;
        if traces_packets() {
            engine.trace_enabled(name, mode);
        }
        Ok(())
    }
}
