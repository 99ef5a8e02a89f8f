//! The servers: the examples' protocol on a port, and as a task for each client on a runtime.

use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use completion_port::Batch;

use self::protocol::Store;
use crate::contenders::{Contender, Listening, Server, threads};
use crate::runtimes::api::{Ours, Runtime, Smol, Tokio};
use crate::runtimes::server::{OnRuntime, Serving};
use crate::sink::Service;

#[path = "../../../../crates/completion-port/examples/redis/protocol/mod.rs"]
mod protocol;
#[path = "../../../../crates/completion-port/examples/redis/server.rs"]
mod server;
#[path = "../../../../crates/completion-port/examples/redis/task.rs"]
mod task;

/// What the example has from the other examples.
mod common {
    use super::{TcpListener, TcpStream, io};
    use crate::contenders::nonblocking;
    use crate::system;

    pub(super) fn accept(listener: &TcpListener) -> Option<TcpStream> {
        system::accept(listener).ok()
    }

    pub(super) fn send(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<()> {
        let sent = nonblocking::send(stream, bytes)?;
        bytes.drain(..sent);
        Ok(())
    }
}

pub(super) fn all() -> Vec<Contender> {
    let on = |name, start| Contender { name, about: "", version: String::new, start };
    vec![
        on("ours/redis", start::<Ours>),
        on("tokio/redis", start::<Tokio>),
        on("smol/redis", start::<Smol>),
        Contender {
            name: "port/redis",
            about: "the protocol of Redis on the completion port",
            version: || concat!("completion-port ", env!("VERSION_OF_completion-port")).to_owned(),
            start: start_on_port,
        },
    ]
}

struct OnPort(Arc<server::OurPort>);

fn start_on_port(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    if service != Service::Echo {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let (port, store) = server::start()?;
    for _ in 0..threads {
        let (port, store) = (Arc::clone(&port), Arc::clone(&store));
        threads::spawn("port", move || {
            let mut batch = Batch::new();
            loop {
                let packets = port.wait(&mut batch, None)?;
                packets.for_each(|packet| server::handle(&port, &store, packet));
            }
        })?;
    }
    Ok(Box::new(OnPort(port)))
}

impl Server for OnPort {
    fn add(&self, _: TcpStream) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        server::listen(&self.0, at.listener()?)
    }

    fn answer(&self, _: UdpSocket) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn wakes(&self) -> Option<u64> {
        Some(self.0.stats().wakes)
    }
}

struct Linked<R: Runtime>(R::Stream);

impl<R: Runtime> task::Link for Linked<R> {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        R::read(&mut self.0, buffer).await
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        R::write_all(&mut self.0, bytes).await
    }

    fn sleep(time: Duration) -> impl Future<Output = ()> + Send {
        R::sleep(time)
    }
}

#[derive(Clone)]
struct Redis(Arc<Store>);

impl<R: Runtime> Serving<R> for Redis {
    async fn serve(self, stream: R::Stream) {
        drop(task::serve(Linked::<R>(stream), self.0).await);
    }
}

fn start<R: Runtime>(_: usize, service: Service) -> io::Result<Box<dyn Server>> {
    OnRuntime::<R, Redis>::start(None, service, |runtime| {
        let store = Arc::new(Store::new(|_| {}));
        let swept = Arc::downgrade(&store);
        runtime.begin(async move {
            while let Some(store) = swept.upgrade() {
                store.sweep();
                drop(store);
                R::sleep(task::SWEEP).await;
            }
        });
        Redis(store)
    })
}
