//! Helpers of the trials.

use std::error::Error;
use std::fmt::{self, Debug};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, Outcome, Packet, Port};

use crate::failure::Failure;
use crate::system;

/// A trial's observation, in the form of the expectation; or the error that prevented it.
pub(crate) type Seen = Result<String, Box<dyn Error>>;

/// The system lacks the subject of a rule. A trial fails with this error.
#[derive(Debug)]
pub(crate) struct Lacking(pub(crate) &'static str);

impl Error for Lacking {}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

static PATIENCE: OnceLock<Duration> = OnceLock::new();

/// The limit of a wait for an event that must happen. Only a missing event takes this long.
pub(crate) fn soon() -> Duration {
    PATIENCE.get().copied().unwrap_or(Duration::from_secs(20))
}

/// The wait for events that must not happen.
pub(crate) const QUIET: Duration = Duration::from_millis(5);

/// A port whose keys and messages are numbers.
pub(crate) type Plain = Port<u32, u32>;

/// Checks that ports and sockets can be created at all.
pub(crate) fn begin(patience: Duration) -> Result<(), Failure> {
    PATIENCE.get_or_init(|| patience);
    let made = || -> io::Result<()> {
        let port: Plain = Port::builder().build()?;
        // The thread's seat needs a descriptor, too.
        drop(port.wait(&mut Batch::new(), Duration::ZERO)?);
        tcp_pair()?;
        udp()?;
        system::pair()?;
        Ok(())
    };
    made().map_err(|error| Failure::to_begin("making a port and sockets to try it with", &error))
}

pub(crate) fn plain() -> completion_port::Result<Plain> {
    Port::builder().build()
}

/// A port on which one thread may run at a time.
pub(crate) fn narrow() -> completion_port::Result<Plain> {
    Port::builder().concurrency(1).build()
}

pub(crate) fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    Ok((near, listener.accept()?.0))
}

/// An address of this machine at which nothing listens: the port of a service that no system has,
/// and too low to be assigned to another program.
pub(crate) const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// A socket that is writable but not readable.
pub(crate) fn udp() -> io::Result<UdpSocket> {
    UdpSocket::bind("127.0.0.1:0")
}

/// A packet as text. Drops a token, which ends its registration.
pub(crate) fn word<K, M: Debug>(packet: Packet<'_, K, M>) -> String {
    match packet {
        Packet::Ready(ready) => format!("ready {:?}", ready.events()),
        Packet::Notified(notified) => format!("notified {:?}", notified.events()),
        Packet::Posted(message) => format!("posted {message:?}"),
        Packet::Removed(..) => "removed".to_owned(),
        Packet::Completed(done) => format!("done: {}", result(&done.into_parts().1)),
        Packet::SharedCompleted(finished) => {
            format!("finished: {}", result(&finished.into_parts().1))
        }
        _ => "a packet of another kind".to_owned(),
    }
}

/// The result of an operation, as text.
pub(crate) fn result(outcome: &Outcome) -> String {
    match (outcome, outcome.error()) {
        (_, Some(error)) => match error.os_code() {
            Some(code) => format!("code {code}"),
            None => format!("{:?}", error.kind()),
        },
        (Outcome::Read(_, bytes), _) => format!("read {:?}", String::from_utf8_lossy(bytes)),
        (Outcome::Connected(_), _) => "connected".to_owned(),
        _ => "something else".to_owned(),
    }
}

/// The packets of one wait, as text.
pub(crate) fn wait<K, M: Debug>(
    port: &Port<K, M>,
    limit: Duration,
) -> completion_port::Result<String> {
    let mut batch = Batch::new();
    let packets = port.wait(&mut batch, limit)?;
    let words: Vec<_> = packets.map(word).collect();
    Ok(if words.is_empty() { "nothing".to_owned() } else { words.join(", ") })
}

/// The number of packets from one wait. Drops tokens.
pub(crate) fn count<K, M>(port: &Port<K, M>, limit: Duration) -> completion_port::Result<usize> {
    Ok(port.wait(&mut Batch::new(), limit)?.count())
}

/// The result of a call, in one word.
pub(crate) fn outcome<R, E: Into<completion_port::Error>>(result: Result<R, E>) -> String {
    match result {
        Ok(_) => "accepted".to_owned(),
        Err(error) => format!("{:?}", error.into().kind()),
    }
}

/// Waits until a condition holds, for at most [`soon`].
pub(crate) fn until(mut is_so: impl FnMut() -> bool) -> Result<(), Box<dyn Error>> {
    let deadline = Instant::now() + soon();
    while !is_so() {
        if Instant::now() > deadline {
            return Err("the expected event did not happen in time".into());
        }
        thread::yield_now();
    }
    Ok(())
}
