//! Registrations: what can be registered, changed, disabled and removed.

use std::fs::File;
use std::io::{Write as _, pipe};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::Duration;

use completion_port::{
    Batch, Changes, Interest, OneShot, Packet, Persistent, Port, Registration, Source,
};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::Trial;
use super::kit::{Plain, QUIET, SOON, Seen, outcome, plain, tcp_pair, udp, wait};

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
        what: "descriptors of ten kinds, a file, a closed number",
        expected: "10 of 10 accepted; NotPollable; BadDescriptor",
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
    set_socket_linger(&near, Some(Duration::ZERO))?;
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
    let (mut near, far) = UnixStream::pair()?;
    port.register(Registration::new(&far, 1, Interest::IN, OneShot::Level))?;
    let mut changes = Changes::new();
    drop(port.process(&mut changes, &mut Batch::new(), Duration::ZERO)?);
    near.write_all(b"x")?;
    Ok(format!("{} results; {}", changes.results().len(), wait(&port, SOON)?))
}

fn kinds() -> Seen {
    fn accepts<S: Source>(port: &Plain, source: &S) -> usize {
        let registration = Registration::new(source, 1, Interest::ALL, OneShot::Level);
        usize::from(port.register(registration).is_ok())
    }
    let port = plain()?;
    let (near, far) = tcp_pair()?;
    far.shutdown(Shutdown::Both)?;
    let fresh = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let (reader, writer) = pipe()?;
    let (stream, other) = UnixStream::pair()?;
    let unix = UnixListener::bind_addr(&unnamed()?)?;
    let accepted = accepts(&port, &near)
        + accepts(&port, &far)
        + accepts(&port, &fresh)
        + accepts(&port, &TcpListener::bind("127.0.0.1:0")?)
        + accepts(&port, &udp()?)
        + accepts(&port, &stream)
        + accepts(&port, &unix)
        + accepts(&port, &UnixDatagram::unbound()?)
        + accepts(&port, &reader)
        + accepts(&port, &writer);
    drop(other);
    let file = File::open("/proc/self/exe")?;
    let refused = port.register(Registration::new(&file, 1, Interest::IN, OneShot::Level));
    let raw: Port<u32, u32> = plain()?;
    let closed = raw.raw().register_number(i32::MAX, 1, Interest::IN, OneShot::Level);
    Ok(format!("{accepted} of 10 accepted; {}; {}", outcome(refused), outcome(closed)))
}

/// A name for a listener that no file stands for, and that no other process takes.
fn unnamed() -> std::io::Result<std::os::unix::net::SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    let name = format!("cport-probe-{}", std::process::id());
    std::os::unix::net::SocketAddr::from_abstract_name(name)
}
