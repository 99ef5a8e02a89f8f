//! `compio`: a runtime for each thread, on `io_uring`. Each connection has one permanent receive
//! request, into buffers that the kernel picks.

use std::io::{self, ErrorKind};
use std::num::NonZero;
use std::os::unix::net::UnixStream;
use std::pin::pin;

use ::compio::BufResult;
use ::compio::driver::ProactorBuilder;
use ::compio::io::{AsyncRead, AsyncReadMulti, AsyncWriteExt};
use ::compio::runtime::{Runtime, RuntimeBuilder};
use futures_util::StreamExt;

use super::dealer::{Given, Inbox, deal};
use super::threads::end_with;
use super::{Contender, Server, version};
use crate::sink::Service;
use crate::work::{Carry, process, process_datagram};

/// Buffers of a runtime. They are used in turn, so that many of them displace more of the cache than
/// they save requests that find none.
const BUFFERS: NonZero<u16> = NonZero::new(256).expect("more than none");

pub(crate) fn contender() -> Contender {
    Contender {
        name: "compio",
        about: "compio: a runtime per thread, multishot receive, connections dealt round robin",
        version: || format!("{} (io_uring)", version::of_crate!("compio")),
        start,
    }
}

fn start(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    let build = move || build(service);
    deal("compio", threads, build, move |runtime, inbox, rung| {
        serve(&runtime, &inbox, rung, service)
    })
}

fn build(service: Service) -> io::Result<Runtime> {
    let mut driver = ProactorBuilder::new();
    driver.single_issuer(true).coop_taskrun(true).taskrun_flag(true).defer_taskrun(true);
    driver.buffer_pool_size(BUFFERS).buffer_pool_buffer_len(service.buffer());
    RuntimeBuilder::new().with_proactor(driver).build()
}

fn serve(runtime: &Runtime, inbox: &Inbox, rung: UnixStream, service: Service) -> io::Result<()> {
    runtime.block_on(async {
        let mut rung = ::compio::net::UnixStream::from_std(rung)?;
        let mut buffer = Vec::with_capacity(64);
        loop {
            let BufResult(read, mut back) = rung.read(buffer).await;
            if read? == 0 {
                return Ok(());
            }
            back.clear();
            buffer = back;
            for given in inbox.take_all() {
                match given {
                    Given::Stream(stream) => {
                        let stream = ::compio::net::TcpStream::from_std(stream)?;
                        // A connection that fails ends its task and nothing else.
                        ::compio::runtime::spawn(handle(stream, service)).detach();
                    }
                    Given::Listener(listener) => {
                        let listener = ::compio::net::TcpListener::from_std(listener)?;
                        let accepting = async move { end_with(accept(&listener, service).await) };
                        ::compio::runtime::spawn(accepting).detach();
                    }
                    Given::Datagrams(socket) => {
                        let socket = ::compio::net::UdpSocket::from_std(socket)?;
                        let answering = async move { end_with(answer(&socket).await) };
                        ::compio::runtime::spawn(answering).detach();
                    }
                }
            }
        }
    })
}

/// Receives with one permanent request. Answers are sent from separate memory: the crate cannot
/// send a part of a receive buffer.
async fn answer(socket: &::compio::net::UdpSocket) -> io::Result<()> {
    let mut received = pin!(socket.recv_from_multi());
    while let Some(datagram) = received.next().await {
        let datagram = match datagram {
            Ok(datagram) => datagram,
            // No buffer was free; the next call asks again.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => continue,
            Err(error) => return Err(error),
        };
        let Some(from) = datagram.addr().and_then(|from| from.as_socket()) else { continue };
        process_datagram(datagram.data());
        let answer = datagram.data().to_vec();
        drop(datagram);
        let BufResult(sent, _) = socket.send_to(answer, from).await;
        sent?;
    }
    Err(io::Error::other("receives no more"))
}

/// Accepts with one permanent request.
async fn accept(listener: &::compio::net::TcpListener, service: Service) -> io::Result<()> {
    let mut incoming = listener.incoming();
    while let Some(accepted) = incoming.next().await {
        match accepted {
            Ok(stream) => ::compio::runtime::spawn(handle(stream, service)).detach(),
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("accepts no more"))
}

async fn handle(stream: ::compio::net::TcpStream, service: Service) -> io::Result<()> {
    let mut carry = Carry::default();
    let (mut reader, mut writer) = (&stream, &stream);
    let mut received = pin!(reader.read_multi(service.buffer()));
    // It ends with the stream.
    while let Some(filled) = received.next().await {
        let filled = match filled {
            Ok(filled) => filled,
            // No buffer was free; the next call asks again.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => continue,
            Err(error) => return Err(error),
        };
        match service {
            Service::Echo => {
                process(&mut carry, &filled);
                let BufResult(written, _) = writer.write_all(filled).await;
                written?;
            }
            // The buffer is given back first: another read may be waiting for it.
            Service::Sink(sink) => {
                let length = filled.len();
                drop(filled);
                sink.handle(length);
            }
        }
    }
    Ok(())
}
