//! `monoio`: a runtime for each thread.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;

use ::monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use ::monoio::{FusionDriver, FusionRuntime, IoUringDriver, LegacyDriver, RuntimeBuilder};
use io_uring_of_monoio::IoUring;

use super::dealer::{Given, Inbox, deal};
use super::threads::end_with;
use super::{Contender, Server, version};
use crate::sink::Service;
use crate::work::{BUFFER, Carry, process, process_datagram};

pub(crate) fn contender() -> Contender {
    Contender {
        name: "monoio",
        about: "monoio: a runtime per thread, connections dealt round robin, a task each",
        version: || {
            let driver = if ::monoio::utils::detect_uring() { "io_uring" } else { "epoll" };
            format!("{} ({driver})", version::of_crate!("monoio"))
        },
        start,
    }
}

fn start(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    deal("monoio", threads, build, move |engine, inbox, rung| serve(engine, &inbox, rung, service))
}

/// On `io_uring` where the system has it, on `epoll` elsewhere.
type Engine = FusionRuntime<IoUringDriver, LegacyDriver>;

/// With the settings for a ring that only its own thread uses; without, if the kernel refuses them.
fn build() -> io::Result<Engine> {
    let mut settings = IoUring::builder();
    settings.setup_single_issuer().setup_coop_taskrun().setup_defer_taskrun();
    let builder = RuntimeBuilder::<FusionDriver>::new().uring_builder(settings);
    builder.build().or_else(|_| RuntimeBuilder::<FusionDriver>::new().build())
}

fn serve(mut engine: Engine, inbox: &Inbox, rung: UnixStream, service: Service) -> io::Result<()> {
    engine.block_on(async {
        rung.set_nonblocking(true)?;
        let mut rung = ::monoio::net::UnixStream::from_std(rung)?;
        let mut buffer = vec![0; 64];
        loop {
            let (read, back) = rung.read(buffer).await;
            if read? == 0 {
                return Ok(());
            }
            buffer = back;
            for given in inbox.take_all() {
                match given {
                    Given::Stream(stream) => {
                        stream.set_nonblocking(true)?;
                        let stream = ::monoio::net::TcpStream::from_std(stream)?;
                        // A connection that fails ends its task and nothing else.
                        ::monoio::spawn(handle(stream, service));
                    }
                    Given::Listener(listener) => {
                        let listener = ::monoio::net::TcpListener::from_std(listener)?;
                        let accepting = async move { end_with(accept(&listener, service).await) };
                        ::monoio::spawn(accepting);
                    }
                    Given::Datagrams(socket) => {
                        let socket = ::monoio::net::udp::UdpSocket::from_std(socket)?;
                        ::monoio::spawn(async move { end_with(answer(&socket).await) });
                    }
                }
            }
        }
    })
}

/// Datagram for datagram.
async fn answer(socket: &::monoio::net::udp::UdpSocket) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        let (received, filled) = socket.recv_from(buffer).await;
        let (_, from) = received?;
        process_datagram(&filled);
        let (sent, used) = socket.send_to(filled, from).await;
        sent?;
        buffer = used;
        buffer.clear();
    }
}

/// Accepts by a request for each connection: the crate has no other.
async fn accept(listener: &::monoio::net::TcpListener, service: Service) -> io::Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(::monoio::spawn(handle(stream, service))),
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

async fn handle(mut stream: ::monoio::net::TcpStream, service: Service) -> io::Result<()> {
    let mut carry = Carry::default();
    let mut buffer = Vec::with_capacity(service.buffer());
    loop {
        let (read, filled) = stream.read(buffer).await;
        if read? == 0 {
            return Ok(());
        }
        buffer = match service {
            Service::Echo => {
                process(&mut carry, &filled);
                let (written, used) = stream.write_all(filled).await;
                written?;
                used
            }
            Service::Sink(sink) => {
                sink.handle(filled.len());
                filled
            }
        };
        buffer.clear();
    }
}
