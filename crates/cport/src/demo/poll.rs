//! The first scenario: a port as a replacement for `poll`.
//!
//! One thread, and persistent registrations: each is reported repeatedly while there is something
//! to do, like an entry of `poll`'s array. The program owns the sockets; a key is only a name for
//! one. When a client disconnects, its registration is removed. The state behind the name is freed
//! when the last packet with that name has arrived.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use completion_port::{Batch, Id, Interest, Notified, Packet, Persistent, Port, Registration};

use super::client::send_and_disconnect;
use super::pattern::Pattern;
use super::progress::Progress;
use super::{Check, Outcome, Share, Title};
use crate::failure::Failure;
use crate::gauge::Gauge;
use crate::retry::uninterrupted;

pub(crate) const TITLE: Title = Title {
    name: "poll",
    title: "A replacement for poll",
    about: "one thread, persistent level registrations; a client sends and disconnects",
};

/// Bytes that the client sends.
const TOTAL: u64 = 64 * 1024 * 1024;

/// The key: the socket of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Listener,
    Client(u64),
}

/// A client and the state of its stream.
struct Client {
    stream: TcpStream,
    received: u64,
    wrong: Option<u64>,
}

struct Server<'a> {
    port: &'a Port<Source>,
    listener: &'a TcpListener,
    listening: Id,
    clients: HashMap<u64, Client>,
    accepted: u64,
    removed: u64,
    received: u64,
    fault: Option<String>,
    progress: &'a Progress,
}

pub(crate) fn run(share: Share, progress: &Progress) -> Result<Outcome, Failure> {
    let total = share.of(TOTAL);
    progress.set_goal(total);
    let begin = Instant::now();
    let refused = |error: io::Error| Failure::midway("setting up the server", &error);
    let port = Port::<Source>::new().map_err(|error| refused(error.into()))?;
    let (listener, address) = listen().map_err(refused)?;
    let registration =
        Registration::new(&listener, Source::Listener, Interest::IN, Persistent::Level);
    let listening = port.register(registration).map_err(|error| refused(error.into()))?;

    let gauge = Gauge::default();
    let mut server = Server {
        port: &port,
        listener: &listener,
        listening,
        clients: HashMap::new(),
        accepted: 0,
        removed: 0,
        received: 0,
        fault: None,
        progress,
    };
    let (served, told) = thread::scope(|scope| {
        let client =
            scope.spawn(|| send_and_disconnect(address, Pattern::of_client(0), total, progress));
        let served = server.serve(&gauge);
        // If the server gave up, so must the client that is waiting for it to read.
        server.clients.clear();
        (served, client.join().unwrap_or_else(|_| Err("panicked".into())))
    });
    let elapsed = begin.elapsed();
    let handled = served.map_err(|error| Failure::midway("serving", &error))?;
    let fault = server.fault.or(told.err());
    Ok(Outcome {
        connections: server.accepted,
        received: server.received,
        sent: 0,
        by_thread: vec![handled],
        peak: gauge.peak(),
        stats: port.stats(),
        elapsed,
        more: Vec::new(),
        checks: vec![
            Check::count("every byte of the client arrived", server.received, total),
            Check::no_error("errors, or wrong bytes", fault),
            Check::count("registrations gave their key back", server.removed, server.accepted + 1),
        ],
    })
}

fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl Server<'_> {
    /// Handles packets until the client has disconnected and the listener is removed as well;
    /// returns their number.
    fn serve(&mut self, gauge: &Gauge) -> io::Result<u64> {
        let mut batch = Batch::new();
        let mut buffer = vec![0; 64 * 1024];
        let mut handled = 0;
        let mut listening = true;
        while listening {
            let left = self.progress.time_left();
            if left.is_zero() {
                self.fault.get_or_insert("the client did not finish in time".into());
                break;
            }
            let packets = self.port.wait(&mut batch, left)?;
            let _at_work = gauge.enter();
            for packet in packets {
                handled += 1;
                match packet {
                    Packet::Notified(packet) => match *packet.key() {
                        Source::Listener => self.accept()?,
                        Source::Client(number) => self.read(number, &packet, &mut buffer)?,
                    },
                    Packet::Removed(_, Source::Client(number)) => {
                        self.removed += 1;
                        self.bid_farewell(number)?;
                    }
                    Packet::Removed(_, Source::Listener) => {
                        self.removed += 1;
                        listening = false;
                    }
                    _ => {}
                }
            }
        }
        Ok(handled)
    }

    fn accept(&mut self) -> io::Result<()> {
        let stream = match uninterrupted(|| self.listener.accept()) {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        stream.set_nonblocking(true)?;
        let number = self.accepted;
        self.accepted += 1;
        self.port.register(Registration::new(
            &stream,
            Source::Client(number),
            Interest::IN | Interest::HANGUP,
            Persistent::Level,
        ))?;
        self.clients.insert(number, Client { stream, received: 0, wrong: None });
        Ok(())
    }

    /// One read; another packet reports the remaining data. A hang-up is handled once everything
    /// has been read: then it is reported without IN.
    fn read(
        &mut self,
        number: u64,
        packet: &Notified<Source>,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        let mut ended = !packet.events().is_in();
        if packet.events().is_in() {
            match uninterrupted(|| client.stream.read(buffer)) {
                Ok(0) => ended = true,
                Ok(read) => {
                    let pattern = Pattern::of_client(number);
                    let wrong = pattern.first_wrong(client.received, &buffer[..read]);
                    client.wrong = client.wrong.or(wrong);
                    client.received += read as u64;
                    self.received += read as u64;
                    self.progress.advance(read);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => {
                    self.fault.get_or_insert(format!("reading: {error}"));
                    ended = true;
                }
            }
        }
        if ended {
            self.port.remove(packet.id())?;
        }
        Ok(())
    }

    /// The last packet of a client has arrived: nothing refers to it any more. It was the only one,
    /// so removes the listener, too.
    fn bid_farewell(&mut self, number: u64) -> io::Result<()> {
        if let Some(wrong) = self.clients.remove(&number).and_then(|client| client.wrong) {
            self.fault.get_or_insert(format!("byte {wrong} of client {number} is wrong"));
        }
        Ok(self.port.remove(self.listening)?)
    }
}
