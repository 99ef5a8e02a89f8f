//! Delivery: when a socket is reported, and as what.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::time::Duration;

use completion_port::{Batch, Events, Interest, OneShot, Packet, Persistent, Registration};
use socket2::{Domain, Socket, Type};

use super::Trial;
use super::kit::{NOBODY, Plain, QUIET, Seen, plain, soon, tcp_pair, udp, wait};
use crate::system;

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        rule: 20,
        what: "level: armed with and without something left to read",
        expected: "IN; unread: IN; read: nothing; arrived: IN",
        run: exact_level,
    },
    Trial {
        rule: 21,
        what: "edge, persistent: a byte, no read, another byte",
        expected: "notified IN; nothing; notified IN",
        run: edges,
    },
    Trial {
        rule: 24,
        what: "the peer ends its half: asked for HANGUP, for IN; it closes",
        expected: "HANGUP; IN; HANGUP|WRITE_CLOSED",
        run: hangup,
    },
    Trial {
        rule: 25,
        what: "a refused connect; an unreachable peer, its error fetched",
        expected: "ERR, no OUT; ERR, fetched: nothing",
        run: errors,
    },
    Trial {
        rule: 26,
        what: "a stream before and after its connect; a UDP socket",
        expected: "nothing; then OUT; ready OUT",
        run: fresh,
    },
];

/// The events of the next packet. Arms its registration again if it is one-shot.
fn rearmed(port: &Plain, limit: Duration) -> completion_port::Result<String> {
    let mut batch = Batch::with_capacity(1);
    match port.wait(&mut batch, limit)?.next() {
        None => Ok("nothing".to_owned()),
        Some(Packet::Ready(ready)) => {
            let events = ready.events();
            ready.rearm()?;
            Ok(format!("{events:?}"))
        }
        Some(packet) => Ok(super::kit::word(packet)),
    }
}

/// The events of the next packet. Its registration ends.
fn events(port: &Plain, limit: Duration) -> completion_port::Result<Events> {
    let mut batch = Batch::with_capacity(1);
    Ok(match port.wait(&mut batch, limit)?.next() {
        Some(Packet::Ready(ready)) => ready.events(),
        Some(Packet::Notified(notified)) => notified.events(),
        _ => Events::NONE,
    })
}

fn exact_level() -> Seen {
    let port = plain()?;
    let (mut near, mut far) = system::pair()?;
    port.register(Registration::new(&far, 1, Interest::IN, OneShot::Level))?;
    near.write_all(b"x")?;
    let first = rearmed(&port, soon())?;
    let unread = rearmed(&port, soon())?;
    far.read_exact(&mut [0])?;
    let read = rearmed(&port, QUIET)?;
    near.write_all(b"x")?;
    Ok(format!("{first}; unread: {unread}; read: {read}; arrived: {}", rearmed(&port, soon())?))
}

fn edges() -> Seen {
    let port = plain()?;
    let (mut near, far) = system::pair()?;
    port.register(Registration::new(&far, 1, Interest::IN, Persistent::Edge))?;
    near.write_all(b"x")?;
    let first = wait(&port, soon())?;
    let second = wait(&port, QUIET)?;
    near.write_all(b"x")?;
    Ok(format!("{first}; {second}; {}", wait(&port, soon())?))
}

fn hangup() -> Seen {
    let port = plain()?;
    let mut seen = Vec::new();
    for interest in [Interest::HANGUP, Interest::IN] {
        let (near, far) = tcp_pair()?;
        port.register(Registration::new(&far, 1, interest, OneShot::Level))?;
        near.shutdown(Shutdown::Write)?;
        seen.push(format!("{:?}", events(&port, soon())?));
    }
    let (near, far) = system::pair()?;
    port.register(Registration::new(&far, 1, Interest::HANGUP, OneShot::Level))?;
    drop(near);
    seen.push(format!("{:?}", events(&port, soon())?));
    Ok(seen.join("; "))
}

/// A non-blocking stream that is not connected.
fn unconnected() -> io::Result<Socket> {
    let stream = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Starts a connect, which may already have finished.
fn begin_to_connect(stream: &Socket, address: SocketAddr) -> io::Result<()> {
    match stream.connect(&address.into()) {
        Err(error) if system::is_under_way(&error) => Ok(()),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        outcome => outcome,
    }
}

fn errors() -> Seen {
    let port = plain()?;
    let stream = unconnected()?;
    port.register(Registration::new(&stream, 1, Interest::OUT, OneShot::Level))?;
    begin_to_connect(&stream, NOBODY)?;
    let refused = events(&port, soon())?;
    let refused = match (refused.is_err(), refused.is_out()) {
        (true, false) => "ERR, no OUT".to_owned(),
        _ => format!("{refused:?}"),
    };
    let socket = udp()?;
    socket.connect(NOBODY)?;
    socket.set_nonblocking(true)?;
    port.register(Registration::new(&socket, 2, Interest::IN, OneShot::Level))?;
    socket.send(b"x")?;
    let mut batch = Batch::new();
    let limit = if system::tells_of_unreachable_peers() { soon() } else { QUIET };
    let Some(Packet::Ready(ready)) = port.wait(&mut batch, limit)?.next() else {
        return Ok(format!("{refused}; nothing of the unreachable peer"));
    };
    let told = if ready.events().is_err() { "ERR" } else { "no error" };
    socket.recv(&mut [0]).err().ok_or("the read did not fail")?;
    ready.rearm()?;
    Ok(format!("{refused}; {told}, fetched: {}", wait(&port, QUIET)?))
}

fn fresh() -> Seen {
    let port = plain()?;
    let stream = unconnected()?;
    port.register(Registration::new(&stream, 1, Interest::ALL, OneShot::Level))?;
    let silent = wait(&port, QUIET)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    begin_to_connect(&stream, listener.local_addr()?)?;
    let connected = events(&port, soon())?;
    let socket = udp()?;
    port.register(Registration::new(&socket, 1, Interest::OUT, OneShot::Level))?;
    Ok(format!("{silent}; then {connected:?}; {}", wait(&port, soon())?))
}
