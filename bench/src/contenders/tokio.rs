//! `tokio`: the runtime with several threads, a task for each connection.
//!
//! A task reads again as soon as it has handled the data, and yields only when its budget in the
//! runtime is used up. So a sink reads in the same way in either mode: real servers do not yield
//! after each read.

use std::io::{self, ErrorKind};
use std::net::{TcpStream, UdpSocket};

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use ::tokio::runtime::{Builder, Runtime};

use super::Listening;
use super::{Contender, Server, threads, version};
use crate::sink::Service;
use crate::work::{BUFFER, Carry, process, process_datagram};

pub(crate) fn contender() -> Contender {
    Contender {
        name: "tokio",
        about: "tokio: the multi-threaded runtime, a task per connection",
        version: || version::of_crate!("tokio").to_owned(),
        start,
    }
}

fn start(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_io().build()?;
    Ok(Box::new(Tokio { runtime, service }))
}

struct Tokio {
    runtime: Runtime,
    service: Service,
}

impl Server for Tokio {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let _context = self.runtime.enter();
        let stream = ::tokio::net::TcpStream::from_std(stream)?;
        // A connection that fails ends its task and nothing else.
        self.runtime.spawn(serve(stream, self.service));
        Ok(())
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        let _context = self.runtime.enter();
        let socket = ::tokio::net::UdpSocket::from_std(socket)?;
        self.runtime.spawn(async move { threads::end_with(answer(socket).await) });
        Ok(())
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        let _context = self.runtime.enter();
        let listener = ::tokio::net::TcpListener::from_std(at.listener()?)?;
        let service = self.service;
        self.runtime.spawn(async move { threads::end_with(accept(listener, service).await) });
        Ok(())
    }
}

/// Datagram for datagram. An answer waits for room in the socket.
async fn answer(socket: ::tokio::net::UdpSocket) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await?;
        process_datagram(&buffer[..length]);
        socket.send_to(&buffer[..length], from).await?;
    }
}

async fn accept(listener: ::tokio::net::TcpListener, service: Service) -> io::Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(::tokio::spawn(serve(stream, service))),
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

async fn serve(mut stream: ::tokio::net::TcpStream, service: Service) -> io::Result<()> {
    let mut carry = Carry::default();
    let mut buffer = [0; BUFFER];
    let buffer = &mut buffer[..service.buffer()];
    loop {
        let read = stream.read(buffer).await?;
        if read == 0 {
            return Ok(());
        }
        match service {
            Service::Echo => {
                process(&mut carry, &buffer[..read]);
                stream.write_all(&buffer[..read]).await?;
            }
            Service::Sink(sink) => sink.handle(read),
        }
    }
}
