//! The sockets, timers and tasks of [quinn](https://docs.rs/quinn), for QUIC on this runtime
//! (feature `quinn`).
//!
//! [`CompletionPortRuntime`] is the last argument of `quinn::Endpoint::new`. The feature turns on
//! no feature of quinn: the program's own dependency on quinn selects TLS and its provider.
//!
//! # Which part does what?
//!
//! `quinn-udp`, quinn's own crate for sockets, makes the system calls, and this runtime reports
//! when they are worth repeating. [`Datagrams`](crate::net::Datagrams) isn't used: it owns its
//! memory, while quinn lends buffers. QUIC also needs the address that a datagram was sent to, and
//! datagrams that no router fragments. `quinn-udp` has both, and batches as well.
//!
//! quinn spawns one task for the endpoint and one for each connection. While a task of the program
//! blocks, these continue to send acknowledgements and keep-alives.
//!
//! # Cancelling and ending
//!
//! The endpoint's task receives all datagrams, so dropping a future of quinn loses none. quinn
//! documents which calls lose bytes of a stream. Dropping the last handle of an endpoint and of its
//! connections closes them, and the endpoint's task ends after that. To tell the peers before the
//! program ends, call `Endpoint::close` and await `Endpoint::wait_idle` before
//! [`Runtime::shutdown`](crate::Runtime::shutdown), which waits for the endpoint's task only if it
//! drains. Dropping the [`Runtime`](crate::Runtime) aborts quinn's tasks: their peers hear no more
//! and wait for their idle timeout.
//!
//! # Errors
//!
//! `Endpoint::new` and `Endpoint::rebind` fail if the system refuses an option of the socket, or
//! outside a runtime. Calls that spawn (`Endpoint::connect`, `Incoming::accept`) panic outside a
//! runtime. A datagram that the system refuses to send counts as lost, as QUIC requires:
//! `quinn-udp` logs it through `tracing`, at most once a minute. An error of receiving ends the
//! endpoint, except a reset.
//!
//! # Platform notes
//!
//! On Linux, one call receives up to 32 buffers (`recvmmsg`) of up to 64 datagrams each
//! (`UDP_GRO`), and sends several datagrams to one peer (`UDP_SEGMENT`). On Windows, one call
//! receives or sends several datagrams of one peer, if the system can. On FreeBSD, one call
//! receives up to 32 datagrams. Elsewhere, and to send on FreeBSD, there is one call for each. Only
//! Linux is tested.
//!
//! # Examples
//!
//! A server that echoes each stream. Its certificate is in `config`.
//!
//! ```no_run
//! use completion_port_runtime::{quinn::CompletionPortRuntime, spawn};
//! use std::sync::Arc;
//!
//! async fn serve(
//!     config: quinn::EndpointConfig,
//!     server: quinn::ServerConfig,
//! ) -> std::io::Result<()> {
//!     let socket = std::net::UdpSocket::bind("0.0.0.0:4433")?;
//!     let runtime = Arc::new(CompletionPortRuntime);
//!     let endpoint = quinn::Endpoint::new(config, Some(server), socket, runtime)?;
//!     while let Some(incoming) = endpoint.accept().await {
//!         spawn(async move {
//!             let Ok(connection) = incoming.await else { return };
//!             while let Ok((mut send, mut recv)) = connection.accept_bi().await {
//!                 spawn(async move {
//!                     if let Ok(bytes) = recv.read_to_end(1 << 20).await {
//!                         std::thread::sleep(std::time::Duration::from_millis(1)); // harmless
//!                         let _ = send.write_all(&bytes).await;
//!                     }
//!                 });
//!             }
//!         });
//!     }
//!     Ok(())
//! }
//! ```

use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use ::quinn::udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use ::quinn::{AsyncTimer, AsyncUdpSocket, Runtime, UdpPoller};

use crate::readiness::{Direction, Io};
use crate::time::{Sleep, sleep_until};

/// The current runtime, for `quinn::Endpoint::new`.
///
/// # Panics
///
/// `quinn::Runtime::spawn` panics outside a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "it has no settings: the current runtime has them")]
pub struct CompletionPortRuntime;

impl Runtime for CompletionPortRuntime {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(sleep_until(deadline))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        drop(crate::spawn(future));
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(Socket::new(socket)?))
    }
}

impl AsyncTimer for Sleep {
    fn reset(self: Pin<&mut Self>, deadline: Instant) {
        Sleep::reset(self.get_mut(), deadline);
    }

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Future::poll(self, context)
    }
}

/// A value of [`Socket::full_at`] that is no number of edges.
const HAS_ROOM: u64 = u64::MAX;

/// A socket, and the options that `quinn-udp` has set.
#[derive(Debug)]
struct Socket {
    io: Io<UdpSocket>,
    udp: UdpSocketState,
    /// How many edges there were when the system last had no room for a datagram. The socket is
    /// full until the next edge. An outdated value costs one more attempt, and loses no edge.
    full_at: AtomicU64,
}

impl Socket {
    fn new(socket: UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let udp = UdpSocketState::new((&socket).into())?;
        Ok(Self { io: Io::new(socket)?, udp, full_at: AtomicU64::new(HAS_ROOM) })
    }

    /// Returns the number of edges if the socket is full.
    fn full(&self) -> Option<u32> {
        let edges = self.io.edges(Direction::Write);
        (self.full_at.load(SeqCst) == u64::from(edges)).then_some(edges)
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller { socket: self, waiting: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let seen = self.io.edges(Direction::Write);
        let result = self.udp.send(self.io.get().into(), transmit);
        match &result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.full_at.store(u64::from(seen), SeqCst);
            }
            // Most sends find it so already.
            _ if self.full_at.load(SeqCst) != HAS_ROOM => self.full_at.store(HAS_ROOM, SeqCst),
            _ => {}
        }
        result
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let asked = buffers.len().min(BATCH_SIZE);
        self.io.poll(Direction::Read, context, |_| {
            let receive = |socket: &UdpSocket| self.udp.recv(socket.into(), buffers, meta);
            self.io.take(receive, |received| is_all(*received, asked))
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.get().local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.udp.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.udp.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.udp.may_fragment()
    }
}

/// Whether nothing is left in the socket after a call that was asked for this many buffers.
///
/// On Linux that call is recvmmsg(2). It fills fewer once the socket is empty. So quinn, which
/// receives until it has to wait, makes one system call less each time.
fn is_all(received: usize, asked: usize) -> bool {
    cfg!(target_os = "linux") && received < asked
}

/// A connection's wait for room in the socket, which all connections of the endpoint share.
struct Poller {
    socket: Arc<Socket>,
    waiting: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>>,
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { socket, waiting } = &mut *self;
        let edge = match waiting {
            Some(edge) => edge,
            None => {
                let Some(seen) = socket.full() else { return Poll::Ready(Ok(())) };
                let socket = Arc::clone(socket);
                waiting.insert(Box::pin(async move {
                    socket.io.next_edge(Direction::Write, seen).await
                }))
            }
        };
        let result = ready!(edge.as_mut().poll(context));
        *waiting = None;
        Poll::Ready(result)
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("is_waiting", &self.waiting.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::Shutdown;
    use std::sync::atomic::AtomicU32;
    use std::task::{Wake, Waker};

    use super::*;
    use crate::state::waiters::Waiters;
    use crate::{Runtime, yield_now};

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_receive_that_has_room_left_takes_everything() {
        Runtime::new().unwrap().block_on(async {
            let socket = Socket::new(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
            let near = UdpSocket::bind("127.0.0.1:0").unwrap();
            near.connect(socket.local_addr().unwrap()).unwrap();
            let is_drained = || Waiters::is_drained(socket.io.edges(Direction::Read));
            for datagram in 1..=100_u8 {
                near.send(&[datagram]).unwrap();
                let mut memory = [[0; 2048]; 2];
                let mut buffers = memory.each_mut().map(|room| IoSliceMut::new(room));
                let mut meta = [RecvMeta::default(); 2];
                let receive = poll_fn(|context| socket.poll_recv(context, &mut buffers, &mut meta));
                assert_eq!(receive.await.unwrap(), 1);
                assert_eq!((meta[0].len, buffers[0][0]), (1, datagram));
                // The next one waits for an edge, which may have come late.
                assert!(is_drained() || datagram > 1);
            }
        });
    }

    /// What `try_send` notes if the system has no room. A test can't fill a UDP socket.
    fn fill(socket: &Socket) {
        socket.full_at.store(u64::from(socket.io.edges(Direction::Write)), SeqCst);
    }

    #[test]
    fn a_full_socket_wakes_all_its_connections_at_the_next_edge() {
        Runtime::new().unwrap().block_on(async {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let socket = Arc::new(Socket::new(socket).unwrap());
            let mut pollers: [_; 3] =
                std::array::from_fn(|_| Arc::clone(&socket).create_io_poller());
            let first = &mut pollers[0];
            poll_fn(|context| first.as_mut().poll_writable(context)).await.unwrap();
            // The socket is not watched yet, and may have room again.
            fill(&socket);
            poll_fn(|context| first.as_mut().poll_writable(context)).await.unwrap();
            // The port reports once that it has.
            while socket.full().is_some() {
                yield_now().await;
            }
            fill(&socket);
            let count = Arc::<Count>::default();
            let waker = Waker::from(Arc::clone(&count));
            let mut context = Context::from_waker(&waker);
            for _ in 0..2 {
                for poller in &mut pollers {
                    assert!(poller.as_mut().poll_writable(&mut context).is_pending());
                }
            }
            // One connection ends while it waits.
            let [first, second, _] = &mut pollers;
            drop(std::mem::replace(first, Arc::clone(&socket).create_io_poller()));
            socket.io.shutdown(Shutdown::Write, |_, _| Ok(())).unwrap();
            assert_eq!(count.0.load(SeqCst), 2);
            for poller in [first, second] {
                assert!(poller.as_mut().poll_writable(&mut context).is_ready());
            }
            // A send that succeeds notes that there is room.
            fill(&socket);
            let destination = socket.local_addr().unwrap();
            let contents = &[7; 100];
            let datagram =
                Transmit { destination, ecn: None, contents, segment_size: None, src_ip: None };
            socket.try_send(&datagram).unwrap();
            assert_eq!(socket.full(), None);
        });
    }
}
