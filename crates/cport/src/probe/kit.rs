//! What the trials share.

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

/// What a trial has seen, in the words of what is expected; or what kept it from seeing anything.
pub(crate) type Seen = Result<String, Box<dyn Error>>;

/// That the system has nothing of what a rule is about. A trial fails with it.
#[derive(Debug)]
pub(crate) struct Lacking(pub(crate) &'static str);

impl Error for Lacking {}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

static PATIENCE: OnceLock<Duration> = OnceLock::new();

/// The limit of a wait for an event that must happen. Only a missing event takes as long.
pub(crate) fn soon() -> Duration {
    PATIENCE.get().copied().unwrap_or(Duration::from_secs(20))
}

/// For what must not happen.
pub(crate) const QUIET: Duration = Duration::from_millis(5);

/// A port whose keys and messages are numbers.
pub(crate) type Plain = Port<u32, u32>;

/// Checks that ports and sockets can be made at all.
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

/// An address of this machine at which nothing listens: that of a service that no system has, and too low for the
/// system to give it to another program.
pub(crate) const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// A socket that can be written to and has nothing to read.
pub(crate) fn udp() -> io::Result<UdpSocket> {
    UdpSocket::bind("127.0.0.1:0")
}

/// A packet in words. A token is dropped, which ends its registration.
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

/// What has become of an operation, in words.
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

/// The packets of one wait, in words.
pub(crate) fn wait<K, M: Debug>(
    port: &Port<K, M>,
    limit: Duration,
) -> completion_port::Result<String> {
    let mut batch = Batch::new();
    let packets = port.wait(&mut batch, limit)?;
    let words: Vec<_> = packets.map(word).collect();
    Ok(if words.is_empty() { "nothing".to_owned() } else { words.join(", ") })
}

/// How many packets one wait brings. Tokens are dropped.
pub(crate) fn count<K, M>(port: &Port<K, M>, limit: Duration) -> completion_port::Result<usize> {
    Ok(port.wait(&mut Batch::new(), limit)?.count())
}

/// What a call has come to, in one word.
pub(crate) fn outcome<R, E: Into<completion_port::Error>>(result: Result<R, E>) -> String {
    match result {
        Ok(_) => "accepted".to_owned(),
        Err(error) => format!("{:?}", error.into().kind()),
    }
}

/// Waits until something is so, as long as [`soon`] says at most.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) -> Result<(), Box<dyn Error>> {
    let deadline = Instant::now() + soon();
    while !is_so() {
        if Instant::now() > deadline {
            return Err("what it waits for did not happen in time".into());
        }
        thread::yield_now();
    }
    Ok(())
}
