//! The second scenario: an edge-triggered UDP server.
//!
//! The socket is registered before it is bound, so that no datagram can arrive before the port
//! watches for it. There is one permanent registration. Each packet means that something has
//! arrived since the socket was last found empty, so the server reads until it is empty again.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::thread;
use std::time::Instant;

use completion_port::{Batch, Id, Interest, Packet, Persistent, Port, Registration};
use socket2::{Domain, Socket, Type};

use super::client::bursts;
use super::pattern::Pattern;
use super::progress::Progress;
use super::{Check, Outcome, Share, Title};
use crate::failure::Failure;
use crate::gauge::Gauge;
use crate::retry::uninterrupted;

pub(crate) const TITLE: Title = Title {
    name: "udp",
    title: "An edge-triggered UDP server",
    about: "one thread, one edge registration made before bind, drained each time; a client sends \
            bursts",
};

/// Few enough to fit into the smallest receive buffer, so that none is lost on loopback.
const BURST: u64 = 32;
const BURSTS: u64 = 500;
const LENGTH: usize = 512;

/// The client's messages to the server.
enum Message {
    Finished,
}

#[derive(Default)]
struct Served {
    handled: u64,
    edges: u64,
    datagrams: u64,
    received: u64,
    sent: u64,
    removed: u64,
}

pub(crate) fn run(share: Share, progress: &Progress) -> Result<Outcome, Failure> {
    let bursts_sent = share.of(BURSTS);
    let datagrams = bursts_sent * BURST;
    progress.set_goal(datagrams * LENGTH as u64);
    let begin = Instant::now();
    let refused = |error: io::Error| Failure::midway("setting up the server", &error);
    let port: Port<(), Message> = Port::builder().build().map_err(|error| refused(error.into()))?;
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).map_err(refused)?;
    socket.set_nonblocking(true).map_err(refused)?;
    let id = port
        .register(Registration::new(&socket, (), Interest::IN, Persistent::Edge))
        .map_err(|error| refused(error.into()))?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into()).map_err(refused)?;
    let socket = UdpSocket::from(socket);
    let address = socket.local_addr().map_err(refused)?;

    let gauge = Gauge::default();
    let (served, told) = thread::scope(|scope| {
        let client = scope.spawn(|| {
            let shape = (bursts_sent, BURST, LENGTH);
            let told = bursts(address, Pattern::of_client(0), shape, progress);
            // This fails only if the server has given up.
            let _ = port.post(Message::Finished);
            told
        });
        let served = serve(&port, &socket, id, progress, &gauge);
        (served, client.join().unwrap_or_else(|_| Err("panicked".into())))
    });
    let elapsed = begin.elapsed();
    let served = served.map_err(|error| Failure::midway("serving", &error))?;
    let (echoes, fault) = match told {
        Ok(echoes) => (echoes, None),
        Err(fault) => (0, Some(fault)),
    };
    Ok(Outcome {
        connections: 0,
        received: served.received,
        sent: served.sent,
        by_thread: vec![served.handled],
        peak: gauge.peak(),
        stats: port.stats(),
        elapsed,
        more: vec![("datagrams", served.datagrams), ("edges", served.edges)],
        checks: vec![
            Check::count("datagrams came back as they were sent", echoes, datagrams),
            Check::no_error("errors of the client", fault),
            Check::count("registrations gave their key back", served.removed, 1),
        ],
    })
}

/// Handles packets until the client has finished and the registration is removed.
fn serve(
    port: &Port<(), Message>,
    socket: &UdpSocket,
    id: Id,
    progress: &Progress,
    gauge: &Gauge,
) -> io::Result<Served> {
    let mut batch = Batch::new();
    let mut served = Served::default();
    while served.removed == 0 && !progress.time_left().is_zero() {
        let packets = port.wait(&mut batch, progress.time_left())?;
        let _at_work = gauge.enter();
        for packet in packets {
            served.handled += 1;
            match packet {
                Packet::Notified(_) => {
                    served.edges += 1;
                    drain(socket, &mut served)?;
                }
                Packet::Posted(Message::Finished) => port.remove(id)?,
                Packet::Removed(..) => served.removed += 1,
                _ => {}
            }
        }
    }
    Ok(served)
}

/// Sends back all available datagrams until the socket is empty: only that enables the next edge.
fn drain(socket: &UdpSocket, served: &mut Served) -> io::Result<()> {
    let mut buffer = [0; LENGTH + 1];
    loop {
        match uninterrupted(|| socket.recv_from(&mut buffer)) {
            Ok((length, sender)) => {
                served.datagrams += 1;
                served.received += length as u64;
                served.sent += uninterrupted(|| socket.send_to(&buffer[..length], sender))? as u64;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
