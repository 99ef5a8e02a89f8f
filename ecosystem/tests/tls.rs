//! The TLS server, as a program, with clients that check the content, and rude ones.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion, version,
};
use users::clients::{connect, content, ends, reset};
use users::server::{Server, assert_rests, end};

/// An answer that takes longer does not come, however busy the machine is.
const SOON: Duration = Duration::from_secs(120);

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A new certificate, and a server that has it.
struct Site {
    server: Server,
    folder: PathBuf,
    clients: Clients,
}

/// What clients know of it.
struct Clients {
    address: SocketAddr,
    roots: RootCertStore,
}

impl Site {
    fn start(name: &str, idle: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (chain, key) = (folder.join("chain.pem"), folder.join("key.pem"));
        fs::write(&chain, issued.cert.pem()).unwrap();
        fs::write(&key, issued.signing_key.serialize_pem()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(issued.cert.der().clone()).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_tls"));
        let files = [chain.to_str().unwrap(), key.to_str().unwrap()];
        let server = Server::start(program, &["127.0.0.1:0", files[0], files[1], idle]);
        let clients = Clients { address: server.address, roots };
        Self { server, folder, clients }
    }
}

impl Clients {
    fn connection(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConnection {
        let config = ClientConfig::builder_with_protocol_versions(versions)
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        ClientConnection::new(Arc::new(config), name).unwrap()
    }

    fn connect(&self) -> Stream {
        StreamOwned::new(self.connection(rustls::ALL_VERSIONS), connect(self.address))
    }
}

#[track_caller]
fn exchange(stream: &mut Stream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    stream.flush().unwrap();
    let mut answer = vec![0; bytes.len()];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer == bytes, "another answer of {} bytes", bytes.len());
}

fn be_polite(clients: &Clients) {
    let mut stream = clients.connect();
    for (seed, length) in (0..).zip([1, 5, 100, 4096, 20_000]) {
        exchange(&mut stream, &content(seed, length));
    }
}

#[test]
fn it_echoes_in_each_version() {
    let site = Site::start("versions", "3600");
    for version in [&version::TLS12, &version::TLS13] {
        let connection = site.clients.connection(&[version]);
        let mut stream = StreamOwned::new(connection, connect(site.clients.address));
        for (seed, length) in (0..).zip([1, 100, 16_384, 16_385, 100_000]) {
            exchange(&mut stream, &content(seed, length));
        }
        for seed in 0..50 {
            exchange(&mut stream, &content(seed, 64 * 1024));
        }
        assert_eq!(stream.conn.protocol_version(), Some(version.version));
    }
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| be_polite(&site.clients));
        }
    });
    assert_rests(&site.server);
    end(site.server);
}

#[test]
fn records_come_in_pieces_and_many_at_once() {
    let site = Site::start("pieces", "3600");
    let mut socket = connect(site.clients.address);
    let mut tls = site.clients.connection(rustls::ALL_VERSIONS);
    // Each byte in a separate segment, the handshake included.
    while tls.is_handshaking() || tls.wants_write() {
        let mut bytes = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut bytes).unwrap();
        }
        bytes.iter().for_each(|byte| socket.write_all(&[*byte]).unwrap());
        if tls.is_handshaking() {
            tls.read_tls(&mut socket).unwrap();
            tls.process_new_packets().unwrap();
        }
    }
    let mut stream = StreamOwned::new(tls, socket);
    exchange(&mut stream, b"hello");
    // Many records in one write.
    let (mut records, mut expected) = (Vec::new(), Vec::new());
    for seed in 0..100 {
        let bytes = content(seed, 10 + usize::from(seed));
        stream.conn.writer().write_all(&bytes).unwrap();
        while stream.conn.wants_write() {
            stream.conn.write_tls(&mut records).unwrap();
        }
        expected.extend(bytes);
    }
    stream.sock.write_all(&records).unwrap();
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer == expected);
    end(site.server);
}

#[test]
fn a_client_that_ends_its_half_gets_the_rest_and_the_end() {
    let site = Site::start("halves", "3600");
    let mut stream = site.clients.connect();
    let bytes = content(3, 50_000);
    stream.write_all(&bytes).unwrap();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    let mut answer = Vec::new();
    // An end that is none of TLS would be an error.
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer == bytes, "{} bytes", answer.len());
    end(site.server);
}

/// Sends without reading until nothing more is taken. Returns the number of bytes.
fn fill(stream: &mut Stream, part: &[u8]) -> usize {
    const TOO_MUCH: usize = 256 << 20;
    stream.sock.set_nonblocking(true).unwrap();
    let (mut sent, mut last) = (0, Instant::now());
    while last.elapsed() < Duration::from_millis(200) {
        assert!(sent < TOO_MUCH, "the server reads without end");
        if !stream.conn.wants_write() {
            let at = sent % part.len();
            sent += stream.conn.writer().write(&part[at..]).unwrap();
        }
        match stream.conn.write_tls(&mut stream.sock) {
            Ok(_) => last = Instant::now(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::park_timeout(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    }
    sent
}

/// Whether a call has done something. If not, it would have blocked.
fn has_moved(outcome: io::Result<usize>) -> bool {
    match outcome {
        Ok(count) => {
            assert!(count > 0, "the stream has ended");
            true
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    }
}

/// Reads the echo of what [`fill`] has sent. Its last record may be written only after that, so
/// nothing here may block.
fn drain(stream: &mut Stream, part: &[u8], sent: usize) {
    let deadline = Instant::now() + SOON;
    let mut buffer = vec![0; part.len()];
    let mut read = 0;
    while read < sent {
        assert!(Instant::now() < deadline, "{read} of {sent} bytes");
        let (tls, socket) = (&mut stream.conn, &mut stream.sock);
        let has_written = tls.wants_write() && has_moved(tls.write_tls(socket));
        let has_read = has_moved(tls.read_tls(socket));
        tls.process_new_packets().unwrap();
        loop {
            let at = read % part.len();
            let room = &mut buffer[at..];
            match tls.reader().read(room) {
                Ok(count) => {
                    assert!(count > 0, "it ends after {read} of {sent} bytes");
                    assert!(room[..count] == part[at..at + count], "other bytes from {read} on");
                    read += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        if !has_written && !has_read {
            thread::park_timeout(Duration::from_millis(1));
        }
    }
    stream.sock.set_nonblocking(false).unwrap();
}

#[test]
fn slow_and_rude_clients_harm_nobody_else() {
    let site = Site::start("rude", "3600");
    let part = content(1, 16 * 1024);
    let mut slow: Vec<_> = (0..6)
        .map(|_| {
            let mut stream = site.clients.connect();
            exchange(&mut stream, b"hello");
            let sent = fill(&mut stream, &part);
            (stream, sent)
        })
        .collect();
    assert_rests(&site.server);
    be_polite(&site.clients);
    for number in 0..20 {
        let address = site.clients.address;
        // Before, within and after the handshake, with an answer on its way, without a proper end.
        reset(connect(address));
        let mut socket = connect(address);
        let mut tls = site.clients.connection(rustls::ALL_VERSIONS);
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).unwrap();
        socket.write_all(&hello[..hello.len() * number / 20]).unwrap();
        if number % 2 == 0 {
            reset(socket)
        } else {
            drop(socket)
        }
        let mut stream = site.clients.connect();
        exchange(&mut stream, b"hello");
        if number % 3 != 0 {
            stream.write_all(&part).unwrap();
        }
        if number % 2 == 0 { reset(stream.sock) } else { drop(stream.sock) }
    }
    // A client that does not speak TLS gets an alert, or the end.
    for bytes in [&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], &content(9, 100_000)] {
        let mut socket = connect(site.clients.address);
        let _ = socket.write_all(bytes);
        let said = ends(&mut socket).unwrap();
        assert!(said.is_empty() || said[0] == 21, "{said:?}");
    }
    be_polite(&site.clients);
    reset(slow.pop().unwrap().0.sock);
    for (stream, sent) in &mut slow {
        drain(stream, &part, *sent);
        exchange(stream, b"and on");
    }
    assert_rests(&site.server);
    // With clients in each state.
    let _silent = connect(site.clients.address);
    let _deaf = fill(&mut slow[0].0, &part);
    end(site.server);
}

#[test]
fn silent_clients_have_their_time() {
    let mut site = Site::start("silent", "1");
    let begun = Instant::now();
    let limit = Duration::from_secs(1);
    let mut before_the_handshake = connect(site.clients.address);
    // On a busy machine the time may be over before the handshake is.
    let mut after_it = (0..100)
        .find_map(|_| {
            let mut stream = site.clients.connect();
            stream.write_all(b"hello").and_then(|()| stream.read_exact(&mut [0; 5])).ok()?;
            Some(stream)
        })
        .expect("a handshake within a second");
    // One byte now and then does not lengthen the time for the handshake.
    let mut endless = connect(site.clients.address);
    let mut hello = Vec::new();
    site.clients.connection(rustls::ALL_VERSIONS).write_tls(&mut hello).unwrap();
    let refused = hello.iter().find_map(|byte| {
        thread::park_timeout(limit / 10);
        endless.write_all(&[*byte]).err()
    });
    assert!(refused.is_some(), "a handshake of {:?} is allowed", begun.elapsed());
    assert_eq!(ends(&mut before_the_handshake).unwrap(), b"");
    ends(&mut after_it.sock).unwrap();
    assert!(begun.elapsed() >= limit);
    site.server.assert_runs();
    end(site.server);
}

/// OpenSSL's client, where there is one.
#[test]
fn the_client_of_openssl_understands_it() -> io::Result<()> {
    let site = Site::start("openssl", "3600");
    for version in ["-tls1_2", "-tls1_3"] {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-no_ign_eof", "-verify_return_error", version]);
        command.args(["-servername", "localhost", "-connect", &site.clients.address.to_string()]);
        command.arg("-CAfile").arg(site.folder.join("chain.pem"));
        let spawned =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut client) = spawned else {
            println!("skipped: openssl is not installed");
            break;
        };
        let (mut input, output) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
        let mut output = BufReader::new(output);
        for line in ["hello\n", "and another line\n"] {
            input.write_all(line.as_bytes())?;
            let mut answer = String::new();
            output.read_line(&mut answer)?;
            assert_eq!(answer, line, "{version}");
        }
        drop(input);
        assert!(client.wait()?.success(), "{version}");
    }
    end(site.server);
    Ok(())
}
