//! Operations: what starts them, in which order they are done, and how they end.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use completion_port::{Batch, Error, Operation, Packet, Port, Ready, SharedId};

use super::Trial;
use super::kit::{NOBODY, Seen, outcome, result, soon, udp, wait, word};
use crate::connection::stream_of;
use crate::system::{Stream, pair};

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        rule: 52,
        what: "two receives of one byte, two bytes come",
        expected: "finished: received \"a\"; finished: received \"b\"",
        run: order,
    },
    Trial {
        rule: 54,
        what: "a message, an operation, a message",
        expected: "posted 1, done: sent 1, posted 2; 1 counted",
        run: in_the_queue,
    },
    Trial {
        rule: 55,
        what: "a datagram that is too long, the end of a stream",
        expected: "Truncated; done: received \"\"",
        run: received,
    },
    Trial {
        rule: 57,
        what: "connected to a listener, and to an address where there is none",
        expected: "done: connected; done: code 111",
        run: connects,
    },
    Trial {
        rule: 59,
        what: "a receive is cancelled, and once more when its packet was taken",
        expected: "true; done: Cancelled; false",
        run: cancels,
    },
    Trial {
        rule: 60,
        what: "a receive until 5 ms from now",
        expected: "done: TimedOut, not early",
        run: operation_deadline,
    },
    Trial {
        rule: 62,
        what: "removed with two receives in flight; a receive on a port that is closed",
        expected: "finished, finished, removed; done: Cancelled, Closed",
        run: ends,
    },
    Trial {
        rule: 63,
        what: "a port is dropped with a receive in flight",
        expected: "its peer sees the end",
        run: dropped,
    },
];

type Streams = Port<Arc<Stream>, u32>;

fn streams() -> completion_port::Result<Streams> {
    Port::builder().build()
}

type Token<'p> = Ready<'p, Arc<Stream>>;

fn associated(port: &Streams) -> Result<(Token<'_>, Stream), Box<dyn std::error::Error>> {
    let (near, far) = pair()?;
    far.set_read_timeout(Some(soon()))?;
    Ok((port.associate(Arc::new(near)).map_err(Error::from)?, far))
}

fn by_name(port: &Streams) -> Result<(SharedId, Stream), Box<dyn std::error::Error>> {
    let (near, far) = pair()?;
    Ok((port.associate_shared(Arc::new(near)).map_err(Error::from)?, far))
}

fn room(bytes: usize) -> Vec<u8> {
    Vec::with_capacity(bytes)
}

fn order() -> Seen {
    let port = streams()?;
    let (id, mut far) = by_name(&port)?;
    for _ in 0..2 {
        port.start(id, Operation::recv(room(1))).map_err(Error::from)?;
    }
    far.write_all(b"ab")?;
    Ok(format!("{}; {}", one(&port)?, one(&port)?))
}

/// The next packet.
fn one(port: &Streams) -> Seen {
    let mut batch = Batch::with_capacity(1);
    let mut packets = port.wait(&mut batch, soon())?;
    Ok(packets.next().map_or_else(|| "nothing".to_owned(), word))
}

fn in_the_queue() -> Seen {
    let port = streams()?;
    let (token, _far) = associated(&port)?;
    port.post(1)?;
    token.send(b"x".to_vec()).map_err(Error::from)?;
    port.post(2)?;
    let words = [one(&port)?, one(&port)?, one(&port)?].join(", ");
    Ok(format!("{words}; {} counted", port.stats().packets.done))
}

fn received() -> Seen {
    let port: Port<UdpSocket> = Port::new()?;
    let (near, far) = (udp()?, udp()?);
    far.send_to(b"too long", near.local_addr()?)?;
    port.associate(near).map_err(Error::from)?.recv(room(3)).map_err(Error::from)?;
    let mut batch = Batch::new();
    let cut = match port.wait(&mut batch, soon())?.next() {
        Some(Packet::Done(done)) => result(&done.into_parts().1),
        _ => "no operation".to_owned(),
    };
    let port = streams()?;
    let (token, far) = associated(&port)?;
    token.recv(room(4)).map_err(Error::from)?;
    drop(far);
    Ok(format!("{cut}; {}", wait(&port, soon())?))
}

fn connects() -> Seen {
    let port: Port<TcpStream> = Port::new()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let connect = |address| -> Seen {
        port.connect(address, Some(soon().into()), stream_of)?;
        Ok(wait(&port, 2 * soon())?)
    };
    let first = connect(listener.local_addr()?)?;
    Ok(format!("{first}; {}", connect(NOBODY)?))
}

fn cancels() -> Seen {
    let port = streams()?;
    let (token, _far) = associated(&port)?;
    let receive = token.recv(room(4)).map_err(Error::from)?;
    let once = port.cancel(receive)?;
    let seen = wait(&port, soon())?;
    Ok(format!("{once}; {seen}; {}", port.cancel(receive)?))
}

const LATER: Duration = Duration::from_millis(5);

fn operation_deadline() -> Seen {
    let port = streams()?;
    let (token, _far) = associated(&port)?;
    let begin = Instant::now();
    token.start(Operation::recv(room(4)).deadline(LATER)).map_err(Error::from)?;
    let seen = wait(&port, soon())?;
    Ok(format!("{seen}, {}", early(begin)))
}

fn early(begin: Instant) -> &'static str {
    if begin.elapsed() < LATER { "early" } else { "not early" }
}

fn ends() -> Seen {
    let port = streams()?;
    let (id, _far) = by_name(&port)?;
    for _ in 0..2 {
        port.start(id, Operation::recv(room(4))).map_err(Error::from)?;
    }
    port.remove(id.id())?;
    let kind = |word: String| word.split(':').next().unwrap_or_default().to_owned();
    let words = [kind(one(&port)?), kind(one(&port)?), kind(one(&port)?)].join(", ");
    let (token, _far) = associated(&port)?;
    token.recv(room(4)).map_err(Error::from)?;
    port.close();
    let last = wait(&port, soon())?;
    Ok(format!("{words}; {last}, {}", outcome(wait(&port, soon()))))
}

fn dropped() -> Seen {
    let port = streams()?;
    let (token, mut far) = associated(&port)?;
    token.recv(room(4)).map_err(Error::from)?;
    drop(port);
    Ok(match far.read(&mut [0]) {
        Ok(0) => "its peer sees the end".to_owned(),
        other => format!("its peer sees {other:?}"),
    })
}
