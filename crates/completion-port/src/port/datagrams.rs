//! Receiving and sending batches of datagrams, for programs that use readiness.
//!
//! [`types::datagrams`](crate::types::datagrams) has the design.

use std::io;

use crate::sys::datagrams::{self as system, is_blocked};
use crate::types::datagrams::Datagrams;
use crate::types::datagrams::transfer::{End, receive, send};
use crate::types::error::{Call, Error, ErrorKind, Fault};
use crate::types::source::{Descriptor, KernelId, Source};

impl Datagrams {
    /// Receives the datagrams that have arrived on a socket, with their senders, as many as there
    /// are slots for, at most 512. Returns their number. Datagrams that were in the batch are gone.
    ///
    /// This is for programs that wait for readiness. It never waits. If it returns fewer datagrams
    /// than there are slots, or [`Datagrams::is_drained`] returns true, nothing is left in the
    /// socket.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing has arrived. Other errors are those of the socket. Datagrams that
    /// were received before the error are in the batch; see [`Datagrams::len`]. On Linux there are
    /// none, because the kernel keeps the error for the next call. A simulated socket is refused:
    /// `sim::Socket::recv_many` receives from one.
    ///
    /// # Platform notes
    ///
    /// See [`Operation::recv_many`](crate::Operation::recv_many). The socket must carry datagrams:
    /// this call does not check it. On Windows it must be non-blocking.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Datagrams, Interest, OneShot, Packet, Port, Registration};
    /// use std::net::UdpSocket;
    ///
    /// let port = Port::<UdpSocket>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_nonblocking(true)?;
    /// socket.send_to(b"hello", socket.local_addr()?)?;
    /// port.register(Registration::owned(socket, Interest::IN, OneShot::Level))?;
    ///
    /// let mut datagrams = Datagrams::new(32, 2048);
    /// let mut batch = Batch::new();
    /// for packet in port.wait(&mut batch, None)? {
    ///     let Packet::Ready(mut ready) = packet else { continue };
    ///     assert_eq!(datagrams.recv(ready.key())?, 1);
    ///     if datagrams.is_drained() {
    ///         ready.read_drained();
    ///     }
    ///     ready.rearm()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recv(&mut self, socket: &(impl Source + ?Sized)) -> io::Result<usize> {
        let received = descriptor_of(socket).and_then(|descriptor| {
            receive(
                self,
                |datagrams| system::receive_many(descriptor, datagrams),
                |room| system::receive_one(descriptor, room),
                |fault| if is_blocked(*fault) { End::Drained } else { End::Failed },
            )
        });
        match received {
            Ok(()) => Ok(self.len()),
            Err(fault) => Err(error_of(Call::Receive, fault)),
        }
    }

    /// Sends the datagrams on a socket, and removes those that were sent. Returns their number.
    ///
    /// This is for programs that wait for readiness. It never waits. If it has not sent all, it
    /// would have to wait: call it again when the socket is writable, and it continues with the
    /// others.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none could be sent yet. Other errors are those of the socket. Those that were
    /// sent before the error are removed from the batch, and the one that it concerns is the first
    /// one. A simulated socket is refused:
    /// `sim::Socket::send_many` sends on one.
    ///
    /// # Platform notes
    ///
    /// See [`Operation::send_many`](crate::Operation::send_many). On Windows the socket must be
    /// non-blocking.
    ///
    /// # Examples
    ///
    /// See [`Datagrams::push`].
    pub fn send(&mut self, socket: &(impl Source + ?Sized)) -> io::Result<usize> {
        let before = self.len();
        let sent = descriptor_of(socket).and_then(|descriptor| {
            send(
                self,
                usize::MAX,
                |datagrams| system::send_many(descriptor, datagrams),
                |bytes, to| system::send_one(descriptor, bytes, to),
            )
        });
        let count = before - self.len();
        match sent {
            Ok(_) => Ok(count),
            Err(fault) if count > 0 && is_blocked(fault) => Ok(count),
            Err(fault) => Err(error_of(Call::Send, fault)),
        }
    }

    /// Lets the kernel join datagrams that arrive on a UDP socket into one message with segments
    /// (`UDP_GRO` on Linux). From then on, a message may have 65,535 bytes: slots with less room
    /// lose what does not fit.
    ///
    /// [`Datagram::segments`](crate::Datagram::segments) takes them apart, and is right without
    /// this option too.
    ///
    /// # Errors
    ///
    /// If the system or the socket does not have the option. Each datagram then arrives alone.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::Datagrams;
    /// use std::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let room = if Datagrams::enable_gro(&socket).is_ok() { 65_535 } else { 2048 };
    /// let datagrams = Datagrams::new(16, room);
    /// # assert_eq!(datagrams.room(), room);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn enable_gro(socket: &(impl Source + ?Sized)) -> io::Result<()> {
        let enabled = descriptor_of(socket).and_then(system::enable_gro);
        enabled.map_err(|fault| error_of(Call::Receive, fault))
    }
}

fn descriptor_of(socket: &(impl Source + ?Sized)) -> Result<Descriptor, Fault> {
    let name = socket.as_source().name;
    if name.kernel == KernelId::SYSTEM {
        Ok(name.number)
    } else {
        Err(Fault { kind: ErrorKind::WrongKernel, code: None })
    }
}

fn error_of(call: Call, fault: Fault) -> io::Error {
    match fault.code {
        Some(code) => io::Error::from_raw_os_error(code),
        None => Error::new(call, fault.kind).into(),
    }
}
