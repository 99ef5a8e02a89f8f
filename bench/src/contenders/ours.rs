//! The completion port: owned keys, one-shot, armed right after each handler.

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;

use completion_port::{
    Batch, BlockDetection, Interest, OneShot, Packet, Port, Ready, Registration, Source,
};

use super::Listening;
use super::nonblocking::{Handler, Next, Owning, Peer};
use super::{Contender, Server, threads, version};
use crate::names::{BY_TICK, OWN_BUFFERS};
use crate::sink::Service;

/// Packets taken by a wait at most.
const BATCH: usize = 64;

pub(crate) fn contender() -> Contender {
    Contender {
        name: "ours",
        about: "completion-port: one port for all threads, with its usual settings",
        version: || version::of_crate!("completion-port").to_owned(),
        start: |threads, service| start::<Peer>(threads, service, BlockDetection::Automatic),
    }
}

/// The port on a system that gives no records of sleeps: what blocks is found out by the tick alone.
pub(crate) fn by_tick() -> Contender {
    Contender {
        name: BY_TICK,
        about: "completion-port, which finds out by its tick alone which threads block",
        start: |threads, service| start::<Peer>(threads, service, BlockDetection::Tick),
        ..contender()
    }
}

/// Each socket has its own read buffer, as is necessary if a receive is in flight for it.
pub(crate) fn with_own_buffers() -> Contender {
    Contender {
        name: OWN_BUFFERS,
        about: "completion-port, with a buffer for each connection instead of one for each thread",
        start: |threads, service| start::<Owning>(threads, service, BlockDetection::Automatic),
        ..contender()
    }
}

fn start<K: Key>(
    threads: usize,
    service: Service,
    detection: BlockDetection,
) -> io::Result<Box<dyn Server>> {
    let port = Arc::new(Port::builder().block_detection(detection).build()?);
    let server = Ours::<K> { port, service };
    for _ in 0..threads {
        let server = Ours { port: Arc::clone(&server.port), service };
        threads::spawn("ours", move || server.serve())?;
    }
    Ok(Box::new(server))
}

/// How a server keeps its sockets.
trait Key: Source + Send + Sync + 'static {
    fn of(peer: Peer, service: Service) -> Self;

    /// [`Peer::serve`].
    fn serve(&mut self, handler: &mut Handler) -> io::Result<Option<Next>>;
}

impl Key for Peer {
    fn of(peer: Peer, _: Service) -> Self {
        peer
    }

    #[inline]
    fn serve(&mut self, handler: &mut Handler) -> io::Result<Option<Next>> {
        self.serve(handler, false)
    }
}

impl Key for Owning {
    fn of(peer: Peer, service: Service) -> Self {
        Owning::new(peer, service)
    }

    #[inline]
    fn serve(&mut self, handler: &mut Handler) -> io::Result<Option<Next>> {
        self.serve(handler, false)
    }
}

struct Ours<K> {
    port: Arc<Port<K>>,
    service: Service,
}

impl<K: Key> Server for Ours<K> {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        self.register(Peer::of(stream))
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        self.register(Peer::Listener(at.listener()?))
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        self.register(Peer::Datagrams(socket))
    }

    fn wakes(&self) -> Option<u64> {
        Some(self.port.stats().wakes)
    }
}

impl<K: Key> Ours<K> {
    fn register(&self, peer: Peer) -> io::Result<()> {
        let key = K::of(peer, self.service);
        self.port.register(Registration::owned(key, Interest::IN, OneShot::Level))?;
        Ok(())
    }

    fn serve(&self) -> io::Result<()> {
        let mut batch = Batch::with_capacity(BATCH);
        let mut handler: Handler = Handler::new(self.service);
        loop {
            for packet in self.port.wait(&mut batch, None)? {
                let Packet::Ready(mut ready) = packet else { continue };
                let next = ready.key_mut().serve(&mut handler)?;
                arm(ready, next)?;
                for stream in handler.accepted.drain(..) {
                    self.register(Peer::of(stream))?;
                }
            }
        }
    }
}

/// Arms a connection for its next event, or ends it.
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
