//! The completion port: owned keys, one-shot, armed right after each handler.

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;

use completion_port::{
    Batch, BlockDetection, Interest, OneShot, Packet, Port, Ready, Registration,
};

use super::Listening;
use super::nonblocking::{Handler, Next, Peer};
use super::{Contender, Server, threads, version};
use crate::names::BY_TICK;
use crate::sink::Service;

/// Packets taken by a wait at most.
const BATCH: usize = 64;

pub(crate) fn contender() -> Contender {
    Contender {
        name: "ours",
        about: "completion-port: one port for all threads, with its usual settings",
        version: || version::of_crate!("completion-port").to_owned(),
        start: |threads, service| start(threads, service, BlockDetection::Automatic),
    }
}

/// The port on a system that gives no records of sleeps: what blocks is found out by the tick alone.
pub(crate) fn by_tick() -> Contender {
    Contender {
        name: BY_TICK,
        about: "completion-port, which finds out by its tick alone which threads block",
        start: |threads, service| start(threads, service, BlockDetection::Tick),
        ..contender()
    }
}

fn start(
    threads: usize,
    service: Service,
    detection: BlockDetection,
) -> io::Result<Box<dyn Server>> {
    let port = Arc::new(Port::builder().block_detection(detection).build()?);
    for _ in 0..threads {
        let port = Arc::clone(&port);
        threads::spawn("ours", move || serve(&port, service))?;
    }
    Ok(Box::new(Ours(port)))
}

struct Ours(Arc<Port<Peer>>);

impl Server for Ours {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        register(&self.0, Peer::of(stream))
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        register(&self.0, Peer::Listener(at.listener()?))
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        register(&self.0, Peer::Datagrams(socket))
    }

    fn wakes(&self) -> Option<u64> {
        Some(self.0.stats().wakes)
    }
}

fn register(port: &Port<Peer>, peer: Peer) -> io::Result<()> {
    port.register(Registration::owned(peer, Interest::IN, OneShot::Level))?;
    Ok(())
}

fn serve(port: &Port<Peer>, service: Service) -> io::Result<()> {
    let mut batch = Batch::with_capacity(BATCH);
    let mut handler: Handler = Handler::new(service);
    loop {
        for packet in port.wait(&mut batch, None)? {
            let Packet::Ready(mut ready) = packet else { continue };
            let next = ready.key_mut().serve(&mut handler, false)?;
            arm(ready, next)?;
            for stream in handler.accepted.drain(..) {
                register(port, Peer::of(stream))?;
            }
        }
    }
}

/// Arms a connection for what it waits for next, or ends it.
#[inline]
pub(super) fn arm<K, B>(mut ready: Ready<'_, K, B>, next: Option<Next>) -> io::Result<()> {
    match next {
        Some(Next::Input) => {
            ready.read_drained();
            ready.rearm_as(Interest::IN, OneShot::Level)?;
        }
        // Without a hint: there is probably more.
        Some(Next::Turn) => ready.rearm_as(Interest::IN, OneShot::Level)?,
        Some(Next::Room) => {
            ready.write_full();
            ready.rearm_as(Interest::OUT, OneShot::Level)?;
        }
        None => drop(ready), // deregisters the socket and closes it
    }
    Ok(())
}
