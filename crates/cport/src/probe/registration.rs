//! Registrations: what can be registered, and how often.

use std::fs::File;
use std::net::{Shutdown, TcpListener};

use completion_port::{FileSource, Interest, OneShot, Port, Registration, Source};
use socket2::{Domain, Socket, Type};

use super::Trial;
use super::kit::{Plain, Seen, outcome, plain, tcp_pair, udp};
use crate::system;

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        rule: 11,
        what: "a socket registered again, here and on another port",
        expected: "AlreadyRegistered, on this port; AlreadyRegistered, on another; removed: accepted",
        run: once_only,
    },
    Trial {
        rule: 16,
        what: "sockets and what else there is, a file, a closed number",
        expected: "all accepted; NotPollable; BadDescriptor",
        run: kinds,
    },
];

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

/// Registers a source in any state.
pub(crate) fn register_any<S: Source + ?Sized>(
    port: &Plain,
    source: &S,
) -> completion_port::Result<()> {
    let registration = Registration::new(source, 1, Interest::ALL, OneShot::Level);
    port.register(registration).map(drop).map_err(|refused| refused.error())
}

/// A number too high for any system to use, although it might be valid on Windows, where numbers
/// are multiples of 4.
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
