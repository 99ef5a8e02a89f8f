//! The runtime on a completion port: a task for each connection, written as for tokio.

use std::io::{self, ErrorKind};
use std::net::{TcpStream, UdpSocket};

use completion_port_runtime::{Runtime, net, spawn};

use super::Listening;
use super::{Contender, Server, threads, version};
use crate::sink::Service;
use crate::work::{BUFFER, Carry, process, process_datagram};

pub(crate) fn contender() -> Contender {
    Contender {
        name: "runtime",
        about: "completion-port-runtime: a task per connection, which may block",
        version: || version::of_crate!("completion-port-runtime").to_owned(),
        start,
    }
}

fn start(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    let runtime = Runtime::builder().thread_limit(threads.max(2)).build()?;
    Ok(Box::new(OnPort { runtime, service }))
}

struct OnPort {
    runtime: Runtime,
    service: Service,
}

impl Server for OnPort {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let _context = self.runtime.handle().enter();
        let stream = net::TcpStream::from_std(stream)?;
        // A connection that fails ends its task and nothing else.
        drop(self.runtime.spawn(serve(stream, self.service)));
        Ok(())
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        let _context = self.runtime.handle().enter();
        let socket = net::UdpSocket::from_std(socket)?;
        drop(self.runtime.spawn(async move { threads::end_with(answer(socket).await) }));
        Ok(())
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        let _context = self.runtime.handle().enter();
        let listener = net::TcpListener::from_std(at.listener()?)?;
        let service = self.service;
        drop(self.runtime.spawn(async move { threads::end_with(accept(listener, service).await) }));
        Ok(())
    }
}

/// Answers each datagram. An answer waits for room in the socket.
async fn answer(socket: net::UdpSocket) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await?;
        process_datagram(&buffer[..length]);
        socket.send_to(&buffer[..length], from).await?;
    }
}

async fn accept(listener: net::TcpListener, service: Service) -> io::Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(spawn(serve(stream, service))),
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

async fn serve(stream: net::TcpStream, service: Service) -> io::Result<()> {
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
