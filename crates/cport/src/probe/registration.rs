//! Registrations: what can be registered, changed, disabled and removed.

use std::fs::File;
use std::io::Write as _;
use std::net::{Shutdown, TcpListener};
use std::time::Duration;

use completion_port::{
    Batch, Changes, FileSource, Interest, OneShot, Packet, Persistent, Port, Registration, Source,
};
use socket2::{Domain, SockRef, Socket, Type};

use super::Trial;
use super::kit::{Plain, QUIET, SOON, Seen, outcome, plain, tcp_pair, udp, wait};
use crate::system;

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        rule: 8,
        what: "three changes in one call",
        expected: "accepted, accepted, accepted",
        run: one_result_each,
    },
    Trial {
        rule: 9,
        what: "one registration under each of the four triggers",
        expected: "ready OUT, ready OUT, notified OUT, notified OUT",
        run: each_trigger,
    },
    Trial {
        rule: 10,
        what: "an empty filter: data, then a reset",
        expected: "nothing, then an error",
        run: empty_filter,
    },
    Trial {
        rule: 11,
        what: "a socket registered again, here and on another port",
        expected: "AlreadyRegistered, on this port; AlreadyRegistered, on another; removed: accepted",
        run: once_only,
    },
    Trial {
        rule: 12,
        what: "enabled again with another filter",
        expected: "nothing; then ready OUT, with key 1",
        run: enabled_again,
    },
    Trial {
        rule: 13,
        what: "disabled with a packet queued, then enabled",
        expected: "nothing; then ready OUT",
        run: disabled,
    },
    Trial {
        rule: 14,
        what: "removed twice, enabled meanwhile, disabled afterwards",
        expected: "accepted, accepted, Removing; removed; NotRegistered",
        run: removed,
    },
    Trial {
        rule: 15,
        what: "a call that names no registration",
        expected: "0 results; ready IN",
        run: untouched,
    },
    Trial {
        rule: 16,
        what: "sockets and what else there is, a file, a closed number",
        expected: "all accepted; NotPollable; BadDescriptor",
        run: kinds,
    },
];

fn one_result_each() -> Seen {
    let (port, socket, other) = (plain()?, udp()?, udp()?);
    let id = port.register(Registration::new(&socket, 1, Interest::IN, OneShot::Level))?;
    let mut changes = Changes::new();
    changes.enable(id, Interest::NONE, OneShot::Edge);
    changes.register(Registration::new(&other, 2, Interest::IN, OneShot::Level));
    changes.remove(id);
    drop(port.process(&mut changes, &mut Batch::new(), Duration::ZERO)?);
    let results: Vec<_> = changes.results().iter().map(|result| outcome(*result)).collect();
    Ok(results.join(", "))
}

fn each_trigger() -> Seen {
    let (port, socket) = (plain()?, udp()?);
    let mut batch = Batch::with_capacity(1);
    let mut seen = Vec::new();
    let id = port.register(Registration::new(&socket, 1, Interest::OUT, OneShot::Level))?;
    for number in 0..4 {
        let Some(packet) = port.wait(&mut batch, SOON)?.next() else { break };
        match packet {
            Packet::Ready(ready) => {
                seen.push(format!("ready {:?}", ready.events()));
                if number == 0 {
                    ready.rearm_as(Interest::OUT, OneShot::Edge)?;
                } else {
                    ready.rearm_as(Interest::OUT, Persistent::Level)?;
                }
            }
            other => {
                seen.push(super::kit::word(other));
                port.enable(id, Interest::OUT, Persistent::Edge)?;
            }
        }
    }
    Ok(seen.join(", "))
}

fn empty_filter() -> Seen {
    let port = plain()?;
    let (mut near, far) = tcp_pair()?;
    port.register(Registration::new(&far, 1, Interest::NONE, OneShot::Level))?;
    near.write_all(b"x")?;
    let first = wait(&port, QUIET)?;
    // Closed at once and without a word.
    SockRef::from(&near).set_linger(Some(Duration::ZERO))?;
    drop(near);
    let mut batch = Batch::new();
    let second = port.wait(&mut batch, SOON)?.next();
    let second = match second {
        Some(Packet::Ready(ready)) if ready.events().is_err() => "an error".to_owned(),
        Some(packet) => super::kit::word(packet),
        None => "nothing".to_owned(),
    };
    Ok(format!("{first}, then {second}"))
}

fn once_only() -> Seen {
    let (port, other, socket) = (plain()?, plain()?, udp()?);
    let register = |port: &Plain| {
        port.register(Registration::new(&socket, 1, Interest::IN, OneShot::Level))
            .map_err(|refused| refused.error())
    };
    let id = register(&port)?;
    let place = |outcome: completion_port::Result<_>| match outcome {
        Ok(_) => "accepted".to_owned(),
        Err(error) if error.registration() == Some(id) => {
            format!("{:?}, on this port", error.kind())
        }
        Err(error) if error.is_on_another_port() => format!("{:?}, on another", error.kind()),
        Err(error) => format!("{:?}", error.kind()),
    };
    let (here, there) = (place(register(&port)), place(register(&other)));
    port.remove(id)?;
    Ok(format!("{here}; {there}; removed: {}", outcome(register(&other))))
}

fn enabled_again() -> Seen {
    let (port, socket) = (plain()?, udp()?);
    let id = port.register(Registration::new(&socket, 1, Interest::IN, OneShot::Level))?;
    let before = wait(&port, QUIET)?;
    port.enable(id, Interest::OUT, OneShot::Level)?;
    let mut batch = Batch::new();
    let Some(Packet::Ready(ready)) = port.wait(&mut batch, SOON)?.next() else {
        return Ok(format!("{before}; then no ready socket"));
    };
    Ok(format!("{before}; then ready {:?}, with key {}", ready.events(), ready.key()))
}

fn disabled() -> Seen {
    let (port, socket) = (plain()?, udp()?);
    let id = port.register(Registration::new(&socket, 1, Interest::OUT, OneShot::Level))?;
    port.raw().has_packets(&mut Batch::new())?;
    port.disable(id)?;
    let silent = wait(&port, QUIET)?;
    port.enable(id, Interest::OUT, OneShot::Level)?;
    Ok(format!("{silent}; then {}", wait(&port, SOON)?))
}

fn removed() -> Seen {
    let (port, socket) = (plain()?, udp()?);
    let id = port.register(Registration::new(&socket, 1, Interest::OUT, OneShot::Level))?;
    let (first, second) = (outcome(port.remove(id)), outcome(port.remove(id)));
    let enabled = outcome(port.enable(id, Interest::OUT, OneShot::Level));
    let packets = wait(&port, SOON)?;
    let after = outcome(port.disable(id));
    Ok(format!("{first}, {second}, {enabled}; {packets}; {after}"))
}

fn untouched() -> Seen {
    let port = plain()?;
    let (mut near, far) = system::pair()?;
    port.register(Registration::new(&far, 1, Interest::IN, OneShot::Level))?;
    let mut changes = Changes::new();
    drop(port.process(&mut changes, &mut Batch::new(), Duration::ZERO)?);
    near.write_all(b"x")?;
    Ok(format!("{} results; {}", changes.results().len(), wait(&port, SOON)?))
}

/// Registers something, in whatever state it is.
pub(crate) fn register_any<S: Source + ?Sized>(
    port: &Plain,
    source: &S,
) -> completion_port::Result<()> {
    let registration = Registration::new(source, 1, Interest::ALL, OneShot::Level);
    port.register(registration).map(drop).map_err(|refused| refused.error())
}

/// A number that no system has given out: it is too high, though on Windows, where they are multiples of 4, it might be one.
const CLOSED: i32 = i32::MAX - 3;

fn kinds() -> Seen {
    let port = plain()?;
    let (near, far) = tcp_pair()?;
    far.shutdown(Shutdown::Both)?;
    let fresh = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let (listener, datagrams) = (TcpListener::bind("127.0.0.1:0")?, udp()?);
    register_any(&port, &near)?;
    register_any(&port, &far)?;
    register_any(&port, &fresh)?;
    register_any(&port, &listener)?;
    register_any(&port, &datagrams)?;
    system::register_others(&port)?;
    let file = FileSource::new(File::open(std::env::current_exe()?)?);
    let refused = port.register(Registration::new(&file, 1, Interest::IN, OneShot::Level));
    let raw: Port<u32, u32> = plain()?;
    let closed = raw.raw().register_number(CLOSED, 1, Interest::IN, OneShot::Level);
    Ok(format!("all accepted; {}; {}", outcome(refused), outcome(closed)))
}
