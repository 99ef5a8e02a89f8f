//! The servers: the example on our runtime, its answers one by one on others, and in a bare loop.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};

use completion_port_runtime::net;

use self::dns_echo::{Answer, MOST};
use super::bare_loop;
use crate::contenders::{Contender, Listening, Server, threads};
use crate::runtimes::api::{Ours, Runtime, Smol, Tokio};
use crate::sink::Service;

#[path = "../../../../crates/runtime/examples/dns_echo.rs"]
pub(super) mod dns_echo;

/// The address of each name.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

/// All of them.
pub(in crate::runtimes) fn servers() -> Vec<Contender> {
    let on = |name, start| Contender { name, about: "", version: String::new, start };
    vec![
        on("ours/dns", start::<Ours>),
        on("tokio/dns", start::<Tokio>),
        on("smol/dns", start::<Smol>),
        Contender {
            name: "loop/dns",
            about: "one thread with recvmmsg and sendmmsg, and nothing else",
            version: || "recvmmsg".to_owned(),
            start: start_loop,
        },
    ]
}

/// Turns a query of that length into its answer, in a buffer of [`MOST`] bytes or more. Returns the
/// length of the answer; `None` if there is none.
pub(super) fn answer(buffer: &mut [u8], length: usize) -> Option<usize> {
    let query = buffer.get(..length).filter(|query| query.len() <= MOST)?;
    let answer = Answer::to(query)?;
    answer.write(&mut buffer[..answer.len()], ADDRESS);
    Some(answer.len())
}

/// A runtime with sockets for datagrams.
trait AnswerQueries: Runtime {
    /// Answers the queries that come to a socket, in non-blocking mode. Returns only an error.
    fn answer(socket: UdpSocket) -> impl Future<Output = io::Result<()>> + Send;
}

impl AnswerQueries for Ours {
    async fn answer(socket: UdpSocket) -> io::Result<()> {
        dns_echo::serve(net::UdpSocket::from_std(socket)?, ADDRESS).await;
        Ok(())
    }
}

impl AnswerQueries for Tokio {
    async fn answer(socket: UdpSocket) -> io::Result<()> {
        one_by_one(tokio::net::UdpSocket::from_std(socket)?).await
    }
}

impl AnswerQueries for Smol {
    async fn answer(socket: UdpSocket) -> io::Result<()> {
        one_by_one(smol::net::UdpSocket::try_from(socket)?).await
    }
}

/// A socket that transfers one datagram at a time. It tries first, and waits only if that would block.
trait Socket: Send + Sync {
    fn receive(
        &self,
        buffer: &mut [u8],
    ) -> impl Future<Output = io::Result<(usize, SocketAddr)>> + Send;

    fn send(
        &self,
        datagram: &[u8],
        to: SocketAddr,
    ) -> impl Future<Output = io::Result<usize>> + Send;
}

impl Socket for tokio::net::UdpSocket {
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match self.try_recv_from(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.recv_from(buffer).await,
            received => received,
        }
    }

    async fn send(&self, datagram: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.send_to(datagram, to).await
    }
}

impl Socket for smol::net::UdpSocket {
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_from(buffer).await
    }

    async fn send(&self, datagram: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.send_to(datagram, to).await
    }
}

async fn one_by_one(socket: impl Socket) -> io::Result<()> {
    // One byte more than a query may have.
    let mut buffer = [0; MOST + 1];
    loop {
        let (length, from) = socket.receive(&mut buffer).await?;
        if let Some(length) = answer(&mut buffer, length) {
            // If it fails, its client is lost, and asks again.
            drop(socket.send(&buffer[..length], from).await);
        }
    }
}

struct OnRuntime<R>(R);

fn start<R: AnswerQueries>(_: usize, service: Service) -> io::Result<Box<dyn Server>> {
    if service != Service::Echo {
        return Err(ErrorKind::Unsupported.into());
    }
    Ok(Box::new(OnRuntime(R::start(None)?)))
}

impl<R: AnswerQueries> Server for OnRuntime<R> {
    fn add(&self, _: TcpStream) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn listen(&self, _: &Listening) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        self.0.begin(async move { threads::end_with(R::answer(socket).await) });
        Ok(())
    }

    fn workers(&self) -> Option<usize> {
        self.0.threads()
    }

    fn detected(&self) -> Option<String> {
        self.0.detected()
    }
}

struct Loop;

/// It has a thread for each socket, however many threads others have.
fn start_loop(_: usize, service: Service) -> io::Result<Box<dyn Server>> {
    if service != Service::Echo {
        return Err(ErrorKind::Unsupported.into());
    }
    Ok(Box::new(Loop))
}

impl Server for Loop {
    fn add(&self, _: TcpStream) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn listen(&self, _: &Listening) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        socket.set_nonblocking(false)?;
        threads::spawn("loop", move || bare_loop::serve(&socket))
    }
}
