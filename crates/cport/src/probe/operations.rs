//! Operations: the results of connects.

use std::net::{TcpListener, TcpStream};

use completion_port::Port;

use super::Trial;
use super::kit::{NOBODY, Seen, soon, wait};
use crate::connection::stream_of;

pub(super) const TRIALS: &[Trial] = &[Trial {
    rule: 57,
    what: "connected to a listener, and to an address where there is none",
    expected: "done: connected; done: code 111",
    run: connects,
}];

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
