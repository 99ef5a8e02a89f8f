//! The servers on a runtime: an echo, and HTTP/1.1 by hyper. Their handlers do what a request asks
//! for where they are, or inside `spawn_blocking`. Those with axum are in `axum`.

use std::convert::Infallible;
use std::io;
use std::net::{TcpStream, UdpSocket};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};

use super::api::{Eager, Ours, Runtime, Smol, Tokio};
use super::axum;
use crate::contenders::{Contender, Server};
use crate::http::ANSWER;
use crate::sink::Service;
use crate::system::Listening;
use crate::work::{BUFFER, MESSAGE, Work, parse};

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Echo,
    /// HTTP by hyper, ...
    Http,
    /// ... and by axum, for which only some runtimes have a server. It accepts by its own means.
    Axum,
}

/// The name by which a server's process is started: a runtime's name is also that of a contender in
/// other scenarios.
macro_rules! server {
    ($name:literal, $runtime:ty, $offloads:literal, $as_told:literal) => {
        [
            contender(concat!($name, "/echo"), start::<$runtime, Echo<$offloads>, $as_told>),
            contender(concat!($name, "/http"), start::<$runtime, Http<$offloads>, $as_told>),
        ]
    };
}

/// All servers. Only the one with more workers takes their number.
pub(crate) fn all() -> Vec<Contender> {
    [
        server!("ours", Ours, false, false),
        server!("tokio", Tokio, false, false),
        server!("tokio_more_workers", Tokio, false, true),
        server!("tokio_spawn_blocking", Tokio, true, false),
        server!("tokio_eager_handoff", Eager, false, false),
        server!("smol", Smol, false, false),
    ]
    .concat()
}

type Start = fn(usize, Service) -> io::Result<Box<dyn Server>>;

fn contender(name: &'static str, start: Start) -> Contender {
    Contender { name, about: "", version: String::new, start }
}

/// The server of a runtime.
pub(super) fn of(runtime: &str, kind: Kind) -> Option<Contender> {
    let kind = match kind {
        Kind::Echo => "echo",
        Kind::Http => "http",
        Kind::Axum => "axum",
    };
    let mut all = all().into_iter().chain(axum::servers());
    all.find(|server| server.name.split_once('/') == Some((runtime, kind)))
}

fn start<R: Runtime, S: Serving<R> + Default, const AS_TOLD: bool>(
    threads: usize,
    service: Service,
) -> io::Result<Box<dyn Server>> {
    let threads = AS_TOLD.then_some(threads);
    OnRuntime::<R, S>::start(threads, service, |_| S::default())
}

/// What a server does with a connection. A connection that fails ends its task and nothing else.
pub(super) trait Serving<R: Runtime>: Clone + Send + Sync + 'static {
    fn serve(self, stream: R::Stream) -> impl Future<Output = ()> + Send + 'static;
}

#[derive(Clone, Copy, Default)]
struct Echo<const OFFLOADS: bool>;

impl<R: Runtime, const OFFLOADS: bool> Serving<R> for Echo<OFFLOADS> {
    async fn serve(self, stream: R::Stream) {
        drop(echo::<R, OFFLOADS>(stream).await);
    }
}

#[derive(Clone, Copy, Default)]
struct Http<const OFFLOADS: bool>;

impl<R: Runtime, const OFFLOADS: bool> Serving<R> for Http<OFFLOADS> {
    async fn serve(self, stream: R::Stream) {
        drop(serve::<R, OFFLOADS>(stream).await);
    }
}

/// A server with a task for each connection.
pub(super) struct OnRuntime<R, S> {
    runtime: R,
    serving: S,
}

impl<R: Runtime, S: Serving<R>> OnRuntime<R, S> {
    /// With that many threads, or the runtime's usual number.
    pub(super) fn start(
        threads: Option<usize>,
        service: Service,
        serving: impl FnOnce(&R) -> S,
    ) -> io::Result<Box<dyn Server>> {
        if service != Service::Echo {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let runtime = R::start(threads)?;
        let serving = serving(&runtime);
        Ok(Box::new(OnRuntime { runtime, serving }))
    }
}

impl<R: Runtime, S: Serving<R>> Server for OnRuntime<R, S> {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        let stream = self.runtime.stream(stream)?;
        let serving = self.serving.clone();
        self.runtime.begin(serving.serve(stream));
        Ok(())
    }

    /// Its connections have `TCP_NODELAY` by the listener.
    fn listen(&self, at: &Listening) -> io::Result<()> {
        let listener = self.runtime.listener(at.listener()?)?;
        let serving = self.serving.clone();
        self.runtime.begin(async move {
            loop {
                match R::accept(&listener).await {
                    Ok(stream) => R::detach(R::spawn(serving.clone().serve(stream))),
                    Err(error) => not_accepted(&error),
                }
            }
        });
        Ok(())
    }

    fn answer(&self, _: UdpSocket) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn workers(&self) -> Option<usize> {
        self.runtime.threads()
    }

    fn detected(&self) -> Option<String> {
        self.runtime.detected()
    }
}

/// Handles a failed accept. If no later one could succeed, it ends the process: otherwise the server
/// would be measured with fewer connections than there are.
pub(super) fn not_accepted(error: &io::Error) {
    // The client has gone while its connection waited.
    if error.kind() != io::ErrorKind::ConnectionAborted {
        eprintln!("accept: {error}");
        std::process::exit(1);
    }
}

/// Does what a request asks for.
pub(super) async fn perform<R: Runtime, const OFFLOADS: bool>(work: Work) {
    if OFFLOADS && work != Work::Echo {
        R::spawn_blocking(move || work.perform()).await;
    } else {
        work.perform();
    }
}

async fn echo<R: Runtime, const OFFLOADS: bool>(mut stream: R::Stream) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    let mut filled = 0;
    loop {
        let read = R::read(&mut stream, &mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        let (messages, _) = buffer[..filled].as_chunks::<MESSAGE>();
        let whole = messages.len() * MESSAGE;
        for work in messages.iter().map(parse) {
            perform::<R, OFFLOADS>(work.unwrap_or(Work::Echo)).await;
        }
        R::write_all(&mut stream, &buffer[..whole]).await?;
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
    }
}

async fn serve<R: Runtime, const OFFLOADS: bool>(stream: R::Stream) -> hyper::Result<()> {
    let service = service_fn(answer::<R, OFFLOADS>);
    http1::Builder::new().serve_connection(R::io(stream), service).await
}

/// `GET /<kind>/<amount>` asks for that work.
async fn answer<R: Runtime, const OFFLOADS: bool>(
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::from(ANSWER));
    match asked(request.uri().path()) {
        Some(work) => perform::<R, OFFLOADS>(work).await,
        None => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    Ok(response)
}

fn asked(path: &str) -> Option<Work> {
    let (kind, amount) = path.strip_prefix('/')?.split_once('/')?;
    Work::from_parts(kind.parse().ok()?, amount.parse().ok()?)
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::names::runtimes::EAGER;
    use crate::work::message;

    /// A client of a server of each runtime that this build has.
    fn each(kind: Kind, test: impl Fn(&mut TcpStream)) {
        for runtime in super::super::CONTENDERS.map(|contender| contender.name) {
            let server = (of(runtime, kind).unwrap().start)(2, Service::Echo);
            if runtime == EAGER {
                assert!(server.is_err(), "this build has no unstable features");
                continue;
            }
            let server = server.unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            server.add(listener.accept().unwrap().0).unwrap();
            eprintln!("{runtime}");
            test(&mut client);
        }
    }

    #[test]
    fn an_echo_returns_what_comes_in_any_pieces() {
        each(Kind::Echo, |client| {
            let sent: Vec<u8> = [Work::Echo, Work::Sleep(100), Work::Held(10), Work::Echo]
                .into_iter()
                .zip(0..)
                .flat_map(|(work, number)| message(work, number))
                .collect();
            let mut received = vec![0; sent.len()];
            for piece in [1, MESSAGE - 1, MESSAGE, MESSAGE + 5, sent.len()] {
                for part in sent.chunks(piece) {
                    client.write_all(part).unwrap();
                }
                received.fill(0);
                client.read_exact(&mut received).unwrap();
                assert_eq!(received, sent, "in pieces of {piece}");
            }
        });
    }

    pub(in crate::runtimes) fn checks_answers_of_http(client: &mut TcpStream) {
        for (path, status) in [("/0/0", "200 OK"), ("/2/100", "200 OK"), ("/99/0", "404 ")] {
            write!(client, "GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
            let mut answer = String::new();
            while !answer.ends_with(&format!("\r\n\r\n{ANSWER}")) {
                let mut buffer = [0; 512];
                let read = client.read(&mut buffer).unwrap();
                assert!(read > 0, "{answer}");
                answer.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
            }
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
        }
    }

    #[test]
    fn http_is_answered_after_its_work() {
        each(Kind::Http, checks_answers_of_http);
    }
}
