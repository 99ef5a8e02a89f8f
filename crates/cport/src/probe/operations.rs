//! Operations: what starts them, in which order they are done, and how they end.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, Error, Interest, OneShot, Operation, Packet, Persistent, Port, Ready, Registration,
    SharedId, Started,
};

use super::Trial;
use super::kit::{ANSWERED, QUIET, SOON, Seen, outcome, plain, result, tcp_pair, udp, wait, word};
use crate::connection::stream_of;
use crate::system::{Stream, forks, pair};

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        rule: 50,
        what: "a socket is associated; one is borrowed, and its token sends",
        expected: "nothing, NotOwned",
        run: association,
    },
    Trial {
        rule: 51,
        what: "sent at once, with a packet and without; refused by a closed port",
        expected: "done: sent 1; sent 2, nothing; \"kept\" came back",
        run: starts,
    },
    Trial {
        rule: 52,
        what: "two receives of one byte, two bytes come",
        expected: "finished: received \"a\"; finished: received \"b\"",
        run: order,
    },
    Trial {
        rule: 53,
        what: "enabled, with a receive in flight: some data, then more",
        expected: "finished: received \"a\"; nothing; notified IN",
        run: before_readiness,
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
        rule: 56,
        what: "a send behind one's own half-close, a receive then",
        expected: "done: code 32; done: received \"a\"",
        run: failed,
    },
    Trial {
        rule: 57,
        what: "connected to a listener, and to an address where there is none",
        expected: "done: connected; done: code 111",
        run: connects,
    },
    Trial {
        rule: 58,
        what: "two accepts, two connections",
        expected: "accepted the first, accepted the second",
        run: accepts,
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
        rule: 61,
        what: "armed until 5 ms from now",
        expected: "ready TIMED_OUT, not early",
        run: readiness_deadline,
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
    Trial {
        rule: 64,
        what: "operations in a forked child",
        expected: "Forked, Forked; the parent: finished: received \"x\"",
        run: forks::operations,
    },
    Trial {
        rule: 65,
        what: "a shared association is asked for a one-shot report, a token's for one",
        expected: "KeyShared, KeyHeld",
        run: shared,
    },
    Trial {
        rule: 66,
        what: "two accepts with first data, a silent client and one that speaks",
        expected: "finished: accepted, received \"x\"; nothing",
        run: first_data,
    },
];

type Streams = Port<Arc<Stream>, u32>;

fn streams() -> completion_port::Result<Streams> {
    Port::builder().build()
}

type Token<'p> = Ready<'p, Arc<Stream>>;

fn associated(port: &Streams) -> Result<(Token<'_>, Stream), Box<dyn std::error::Error>> {
    let (near, far) = pair()?;
    far.set_read_timeout(Some(SOON))?;
    Ok((port.associate(Arc::new(near)).map_err(Error::from)?, far))
}

fn by_name(port: &Streams) -> Result<(SharedId, Stream), Box<dyn std::error::Error>> {
    let (near, far) = pair()?;
    Ok((port.associate_shared(Arc::new(near)).map_err(Error::from)?, far))
}

fn room(bytes: usize) -> Vec<u8> {
    Vec::with_capacity(bytes)
}

fn association() -> Seen {
    let port = streams()?;
    let (token, mut far) = associated(&port)?;
    far.write_all(b"x")?;
    let silence = wait(&port, QUIET)?;
    drop(token);
    let (port, socket) = (plain()?, udp()?);
    port.register(Registration::new(&socket, 1, Interest::OUT, OneShot::Level))?;
    let mut batch = Batch::new();
    let Some(Packet::Ready(token)) = port.wait(&mut batch, SOON)?.next() else {
        return Ok("no report".to_owned());
    };
    Ok(format!("{silence}, {}", outcome(token.send(b"x".to_vec()))))
}

fn starts() -> Seen {
    let port = streams()?;
    let (token, _far) = associated(&port)?;
    token.send(b"x".to_vec()).map_err(Error::from)?;
    let packet = wait(&port, SOON)?;
    let (token, _far) = associated(&port)?;
    let started = token.start_now(Operation::send(b"yz".to_vec())).map_err(Error::from)?;
    let Started::Finished((token, now)) = started else { return Ok("it waits".to_owned()) };
    let silence = wait(&port, QUIET)?;
    port.close();
    let refused = token.send(b"kept".to_vec()).err().ok_or("it was not refused")?;
    let kept = refused.into_parts().1.1.into_buffer().unwrap_or_default();
    let kept = String::from_utf8_lossy(&kept);
    Ok(format!("{packet}; {}, {silence}; {kept:?} came back", result(&now)))
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
    let mut packets = port.wait(&mut batch, SOON)?;
    Ok(packets.next().map_or_else(|| "nothing".to_owned(), word))
}

fn before_readiness() -> Seen {
    let port = streams()?;
    let (id, mut far) = by_name(&port)?;
    port.enable(id.id(), Interest::IN, Persistent::Level)?;
    port.start(id, Operation::recv(room(4))).map_err(Error::from)?;
    far.write_all(b"a")?;
    let first = wait(&port, SOON)?;
    let silence = wait(&port, QUIET)?;
    far.write_all(b"b")?;
    Ok(format!("{first}; {silence}; {}", one(&port)?))
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
    let cut = match port.wait(&mut batch, SOON)?.next() {
        Some(Packet::Done(done)) => result(&done.into_parts().1),
        _ => "no operation".to_owned(),
    };
    let port = streams()?;
    let (token, far) = associated(&port)?;
    token.recv(room(4)).map_err(Error::from)?;
    drop(far);
    Ok(format!("{cut}; {}", wait(&port, SOON)?))
}

fn failed() -> Seen {
    let port: Port<TcpStream> = Port::new()?;
    let (near, mut far) = tcp_pair()?;
    near.shutdown(Shutdown::Write)?;
    port.associate(near).map_err(Error::from)?.send(b"x".to_vec()).map_err(Error::from)?;
    let mut batch = Batch::new();
    let Some(packet) = port.wait(&mut batch, SOON)?.next() else {
        return Ok("nothing".to_owned());
    };
    let Packet::Done(done) = packet else { return Ok(word(packet)) };
    let (token, outcome) = done.into_parts();
    let first = format!("done: {}", result(&outcome));
    token.recv(room(4)).map_err(Error::from)?;
    far.write_all(b"a")?;
    Ok(format!("{first}; {}", wait(&port, SOON)?))
}

fn connects() -> Seen {
    let port: Port<TcpStream> = Port::new()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let connect = || -> Seen {
        port.connect(address, Some(ANSWERED.into()), stream_of)?;
        Ok(wait(&port, ANSWERED)?)
    };
    let first = connect()?;
    drop(listener);
    Ok(format!("{first}; {}", connect()?))
}

fn accepts() -> Seen {
    let port: Port<Arc<TcpListener>> = Port::new()?;
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0")?);
    let address = listener.local_addr()?;
    let id = port.associate_shared(listener).map_err(Error::from)?;
    let names = [(); 2].map(|()| port.start(id, Operation::accept()).map_err(Error::from));
    let [first, second] = names;
    let (first, second) = (first?, second?);
    let _clients = [TcpStream::connect(address)?, TcpStream::connect(address)?];
    let (mut words, mut batch) = (Vec::new(), Batch::new());
    while words.len() < 2 {
        let before = words.len();
        for packet in port.wait(&mut batch, SOON)? {
            let Packet::Finished(finished) = packet else { return Ok("no operation".to_owned()) };
            let which = match finished.operation() {
                name if name == first => "the first",
                name if name == second => "the second",
                _ => "another",
            };
            words.push(format!("{} {which}", result(&finished.into_parts().1)));
        }
        if words.len() == before {
            break;
        }
    }
    Ok(words.join(", "))
}

fn first_data() -> Seen {
    let port: Port<Arc<TcpListener>> = Port::new()?;
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0")?);
    let address = listener.local_addr()?;
    let id = port.associate_shared(listener).map_err(Error::from)?;
    for _ in 0..2 {
        port.start(id, Operation::accept_and_recv(room(4))).map_err(Error::from)?;
    }
    let _silent = TcpStream::connect(address)?;
    let mut client = TcpStream::connect(address)?;
    client.write_all(b"x")?;
    let first = wait(&port, SOON)?;
    Ok(format!("{first}; {}", wait(&port, QUIET)?))
}

fn cancels() -> Seen {
    let port = streams()?;
    let (token, _far) = associated(&port)?;
    let receive = token.recv(room(4)).map_err(Error::from)?;
    let once = port.cancel(receive)?;
    let seen = wait(&port, SOON)?;
    Ok(format!("{once}; {seen}; {}", port.cancel(receive)?))
}

const LATER: Duration = Duration::from_millis(5);

fn operation_deadline() -> Seen {
    let port = streams()?;
    let (token, _far) = associated(&port)?;
    let begin = Instant::now();
    token.start(Operation::recv(room(4)).deadline(LATER)).map_err(Error::from)?;
    let seen = wait(&port, SOON)?;
    Ok(format!("{seen}, {}", early(begin)))
}

fn readiness_deadline() -> Seen {
    let port = streams()?;
    let (token, _far) = associated(&port)?;
    let begin = Instant::now();
    token.rearm_until(LATER).map_err(Error::from)?;
    let seen = wait(&port, SOON)?;
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
    let last = wait(&port, SOON)?;
    Ok(format!("{words}; {last}, {}", outcome(wait(&port, SOON))))
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

fn shared() -> Seen {
    let port = streams()?;
    let (id, _far) = by_name(&port)?;
    let first = outcome(port.enable(id.id(), Interest::IN, OneShot::Level));
    let (token, _far) = associated(&port)?;
    let id = token.id();
    token.recv(room(4)).map_err(Error::from)?;
    Ok(format!("{first}, {}", outcome(port.enable(id, Interest::IN, OneShot::Level))))
}
