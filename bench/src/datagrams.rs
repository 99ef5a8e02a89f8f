//! The clients of a server that echoes datagrams: one thread, with a socket for each of the
//! server's.
//!
//! Each socket has a fixed number of requests in flight, and an answer makes room for the next one.
//! Over loopback, a datagram is lost only if the receiver's buffer is full, and far too few are in
//! flight for that. So every answer is awaited, and a missing one is an error.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::asking::{Ask, Progress, Tally};
use crate::histogram::Histogram;
use crate::load::Pattern;
use crate::system::{Set, Wanted};
use crate::work::{MESSAGE, Work, message};

/// A request, or room for one.
struct Slot {
    request: [u8; MESSAGE],
    sent_at: Instant,
    is_under_way: bool,
}

/// A socket of the clients.
struct Client {
    socket: UdpSocket,
    slots: Vec<Slot>,
    /// The total number of requests, which distinguishes them.
    count: u64,
    /// Requests answered in this round.
    answered: u64,
}

/// Clients of a server.
pub(crate) struct Datagrams {
    set: Set,
    clients: Vec<Client>,
}

impl Datagrams {
    /// A client for each of a server's sockets, with that many requests in flight.
    pub(crate) fn new(sockets: &[SocketAddr], under_way: usize) -> io::Result<Datagrams> {
        let mut set = Set::new()?;
        let mut clients = Vec::with_capacity(sockets.len());
        for server in sockets {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(server)?;
            socket.set_nonblocking(true)?;
            set.add(&socket, clients.len(), Wanted::Input)?;
            let slot =
                |_| Slot { request: [0; MESSAGE], sent_at: Instant::now(), is_under_way: false };
            let slots = (0..under_way).map(slot).collect();
            clients.push(Client { socket, slots, count: 0, answered: 0 });
        }
        Ok(Datagrams { set, clients })
    }

    fn answered(&self) -> impl Iterator<Item = u64> + Clone {
        self.clients.iter().map(|client| client.answered)
    }
}

impl Client {
    /// Sends the next request of a slot. Its number identifies the client and the slot.
    fn send(&mut self, index: usize, at: usize) -> Result<(), String> {
        let slot = &mut self.slots[at];
        let number = (index as u64) << 48 | (at as u64) << 40 | (self.count & 0xff_ffff_ffff);
        self.count += 1;
        slot.request = message(Work::Echo, number);
        slot.is_under_way = true;
        slot.sent_at = Instant::now();
        match self.socket.send(&slot.request) {
            Ok(MESSAGE) => Ok(()),
            Ok(count) => Err(format!("load generator: sent {count} of {MESSAGE} bytes")),
            Err(error) => Err(format!("sending: {error}")),
        }
    }

    /// Takes an answer, if there is one: its slot, and how long it took.
    fn receive(&mut self) -> Result<Option<(usize, Duration)>, String> {
        // One byte more than is expected: the server must not send it.
        let mut buffer = [0; MESSAGE + 1];
        let count = match self.socket.recv(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(format!("receiving: {error}")),
        };
        let at = usize::from(buffer[13]);
        let slot = self.slots.get_mut(at).filter(|slot| slot.is_under_way);
        let Some(slot) = slot.filter(|slot| slot.request == buffer[..count]) else {
            return Err("an answer differs from its request".to_owned());
        };
        slot.is_under_way = false;
        self.answered += 1;
        Ok(Some((at, slot.sent_at.elapsed())))
    }
}

impl Ask for Datagrams {
    /// Each request asks for nothing but to be sent back.
    fn run(
        &mut self,
        _pattern: Pattern,
        time: Duration,
        latencies: &mut Histogram,
    ) -> Result<Tally, String> {
        let mut under_way = 0;
        for (index, client) in self.clients.iter_mut().enumerate() {
            client.answered = 0;
            for at in 0..client.slots.len() {
                client.send(index, at)?;
                under_way += 1;
            }
        }
        let (mut progress, all) = (Progress::new(time), under_way);
        while under_way > 0 {
            let left = progress.left(under_way, all, self.answered())?;
            self.set.wait(left)?;
            for event in 0..self.set.count() {
                let Some(index) = self.set.index(event) else { continue };
                let client = &mut self.clients[index];
                // At most as many as were in flight at the event: later ones have their own events.
                for _ in 0..client.slots.iter().filter(|slot| slot.is_under_way).count() {
                    let Some((at, latency)) = client.receive()? else { break };
                    latencies.record(latency);
                    if progress.is_sending() {
                        client.send(index, at)?;
                    } else {
                        under_way -= 1;
                    }
                }
            }
        }
        Ok(progress.tally(self.answered()))
    }

    fn connections(&self) -> usize {
        self.clients.len()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::load::Handlers;

    const TIME: Duration = Duration::from_millis(30);

    /// Runs clients of two sockets, with three requests under way on each, of which a server answers each by as
    /// many datagrams as `answers` makes of it.
    fn run(answers: fn(&mut [u8; MESSAGE]) -> usize) -> (Result<Tally, String>, Histogram) {
        let sockets: Vec<UdpSocket> =
            (0..2).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<SocketAddr> =
            sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        for socket in sockets {
            thread::spawn(move || {
                let mut bytes = [0; MESSAGE];
                while let Ok((MESSAGE, from)) = socket.recv_from(&mut bytes) {
                    for _ in 0..answers(&mut bytes) {
                        // The client may have gone.
                        let _ = socket.send_to(&bytes, from);
                    }
                }
            });
        }
        let mut datagrams = Datagrams::new(&addresses, 3).unwrap();
        let mut latencies = Histogram::default();
        let pattern = Pattern { handlers: Handlers::Quick, burst: 3 };
        (datagrams.run(pattern, TIME, &mut latencies), latencies)
    }

    #[test]
    fn every_request_is_answered_and_counted_once() {
        let (tally, latencies) = run(|_| 1);
        let tally = tally.unwrap();
        assert!(tally.in_time > 0 && tally.answered >= tally.in_time, "{tally:?}");
        // Requests in flight when the time ends, and their last events.
        assert!(tally.answered - tally.in_time <= 6, "{tally:?}");
        assert!(tally.least <= tally.in_time / 2, "{tally:?}");
        assert!(tally.seconds >= 0.03, "{tally:?}");
        assert!(latencies.per_mille(500).unwrap() > 0.0);
    }

    #[test]
    fn a_wrong_answer_is_found() {
        for change in [8, 13, 40] {
            let (tally, _) = match change {
                8 => run(|bytes| {
                    bytes[8] ^= 1;
                    1
                }),
                // The number of another slot, and a number without a slot.
                13 => run(|bytes| {
                    bytes[13] ^= 0x81;
                    1
                }),
                _ => run(|bytes| {
                    bytes[40] ^= 1;
                    1
                }),
            };
            assert_eq!(tally.unwrap_err(), "an answer differs from its request", "{change}");
        }
    }

    /// The answer of one slot does not count for another.
    #[test]
    fn an_answer_that_comes_twice_is_a_wrong_one() {
        assert_eq!(run(|_| 2).0.unwrap_err(), "an answer differs from its request");
    }

    #[test]
    fn an_answer_that_is_lost_stalls_and_does_not_hang() {
        let stalled = run(|_| 0).0.unwrap_err();
        assert_eq!(stalled, "stalled: 6 of 6 without answer for 5 s");
    }
}
