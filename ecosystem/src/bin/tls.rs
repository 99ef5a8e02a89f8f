//! An echo server over TLS, by rustls on one completion port.
//!
//! `cargo run --manifest-path ecosystem/Cargo.toml 127.0.0.1:7443 chain.pem key.pem 30`. SIGTERM or
//! Ctrl-C ends it. The last argument is the time in seconds that a client may take for the
//! handshake, and between two reads or writes that make progress. The default is 30.
//!
//! rustls does no I/O itself: it takes received bytes, and returns the bytes to send. So it works
//! with readiness unchanged. A handler sends what rustls has to send, and reads only when
//! everything is sent. So a client that does not read is not read from either, and a connection has
//! at most a few records in memory. The same loop does the handshake.

#[path = "../../../crates/completion-port/examples/common/end.rs"]
mod end;
#[path = "../../../crates/completion-port/examples/common/serve.rs"]
mod serve;

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    BorrowedSource, Interest, OneShot, Packet, Port, Ready, Registration, Source,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

enum Peer {
    Listener(TcpListener),
    Client(Box<Client>),
}

struct Client {
    stream: TcpStream,
    tls: ServerConnection,
    /// When the handshake must be done, and later when something must have happened.
    deadline: Instant,
    /// The client has ended its half by `close_notify`.
    has_ended: bool,
}

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.as_source(),
            Self::Client(client) => client.stream.as_source(),
        }
    }
}

struct Server {
    port: Port<Peer>,
    config: Arc<ServerConfig>,
    idle: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let end = end::asked_to_end()?;
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: tls <listen> <chain> <key> [<seconds>]");
    let listener = TcpListener::bind(next()?)?;
    let chain = CertificateDer::pem_file_iter(next()?)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(next()?)?;
    let idle = Duration::from_secs(arguments.next().map_or(Ok(30), |seconds| seconds.parse())?);
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;

    listener.set_nonblocking(true)?;
    println!("listening on {}", listener.local_addr()?);
    let port = Port::new()?;
    let listener = Peer::Listener(listener);
    port.register(Registration::owned(listener, Interest::IN, OneShot::Level))?;
    let server = Server { port, config: Arc::new(config), idle };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| serve::serve(&server.port, |packet| server.handle(packet)));
        }
        let _ = end.recv();
        // A packet returns each key, then the waits end.
        server.port.shutdown()
    })?;
    Ok(())
}

impl Server {
    fn handle(&self, packet: Packet<'_, Peer, ()>) {
        match packet {
            Packet::Ready(ready) => match ready.key() {
                Peer::Listener(_) => self.accept(ready),
                Peer::Client(_) => self.work(ready),
            },
            // The server ends. What there is room for is sent, and that nothing follows.
            Packet::Removed(_, Peer::Client(mut client)) => {
                client.tls.send_close_notify();
                let _ = client.send();
            }
            _ => {}
        }
    }

    fn accept(&self, ready: Ready<'_, Peer>) {
        let Peer::Listener(listener) = ready.key() else { return };
        let accepted = listener.accept();
        let is_short = accepted.as_ref().is_err_and(|error| error.kind() != ErrorKind::WouldBlock);
        if is_short {
            // For instance, no descriptor is left. The listener stays ready.
            thread::park_timeout(Duration::from_millis(10));
        }
        // First, so that nothing that follows can keep the listener from it.
        let _ = ready.rearm();
        if let Ok((stream, _)) = accepted {
            // A client that is refused is closed.
            let _ = self.welcome(stream);
        }
    }

    fn welcome(&self, stream: TcpStream) -> Result<(), Box<dyn Error>> {
        stream.set_nonblocking(true)?;
        // The records of a handshake do not wait for acknowledgements.
        stream.set_nodelay(true)?;
        let tls = ServerConnection::new(Arc::clone(&self.config))?;
        let deadline = Instant::now() + self.idle;
        let client = Peer::Client(Box::new(Client { stream, tls, deadline, has_ended: false }));
        // Its handler finds nothing to do, and rearms it with the deadline.
        self.port.register(Registration::owned(client, Interest::OUT, OneShot::Level))?;
        Ok(())
    }

    fn work(&self, mut ready: Ready<'_, Peer>) {
        let is_late = ready.events().is_timed_out();
        let Peer::Client(client) = ready.key_mut() else { return };
        if is_late {
            return; // closed with its token
        }
        // An error ends only this client.
        let Ok(progress) = client.echo() else { return };
        if progress.has_moved && !client.tls.is_handshaking() {
            client.deadline = Instant::now() + self.idle;
        }
        if let Some(interest) = progress.next {
            let deadline = client.deadline;
            let _ = ready.rearm_as_until(interest, OneShot::Level, deadline);
        }
    }
}

/// What a handler has done.
struct Progress {
    has_moved: bool,
    /// The interest to rearm with, or `None` if the connection has ended.
    next: Option<Interest>,
}

impl Client {
    /// Sends, receives and decrypts until a call would block.
    fn echo(&mut self) -> io::Result<Progress> {
        let mut has_moved = false;
        // Bounded, so that a client that sends constantly does not occupy this thread.
        for _ in 0..16 {
            has_moved |= self.send()?;
            if self.tls.wants_write() {
                return Ok(Progress { has_moved, next: Some(Interest::OUT) });
            }
            if self.has_ended {
                return Ok(Progress { has_moved, next: None });
            }
            match self.tls.read_tls(&mut self.stream) {
                // The end. Below, rustls reports an end without `close_notify` as an error.
                Ok(0) => {}
                Ok(_) => has_moved = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            if let Err(error) = self.tls.process_new_packets() {
                // This says why.
                let _ = self.send();
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
            self.copy()?;
        }
        // After the last round something may be left to send.
        let has_more = self.tls.wants_write() || self.has_ended;
        let next = Some(if has_more { Interest::OUT } else { Interest::IN });
        Ok(Progress { has_moved, next })
    }

    /// Writes what rustls has to send. Returns whether anything was written.
    fn send(&mut self) -> io::Result<bool> {
        let mut has_moved = false;
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => has_moved = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(has_moved)
    }

    /// Encrypts what was decrypted.
    fn copy(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match self.tls.reader().read(&mut buffer) {
                Ok(0) => {
                    self.has_ended = true;
                    self.tls.send_close_notify();
                    return Ok(());
                }
                // This fits into the buffers of rustls, which are empty.
                Ok(read) => self.tls.writer().write_all(&buffer[..read])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // Without `close_notify`, an attacker may have cut the stream.
                Err(error) => return Err(error),
            }
        }
    }
}
