//! The blocking service with axum. axum is unmodified on ours, on tokio, and on tokio with
//! `spawn_blocking` in the handler.

use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net;

use super::api::{Ours, Runtime, Tokio};
use super::server::{not_accepted, perform};
use super::shared::row_name;
use crate::contenders::{Contender, Listening, Server};
use crate::http::ANSWER;
use crate::report::Described;
use crate::sink::Service;
use crate::work::Work;

/// The servers. A name begins with that of the runtime.
pub(super) fn servers() -> Vec<Contender> {
    const ON_TOKIO: &str =
        concat!("axum ", env!("VERSION_OF_axum"), ", tokio ", env!("VERSION_OF_tokio"));
    vec![
        Contender {
            name: "ours/axum",
            about: "feature `tokio-compat` of completion-port-runtime, without workers of tokio. \
                    Ours: the tasks that accept, and that run hyper and the handler of a \
                    connection; all threads. tokio's: sockets, and the driver that one of our \
                    threads waits in",
            version: || {
                let ours = env!("VERSION_OF_completion-port-runtime");
                format!("{ON_TOKIO}, completion-port-runtime {ours}")
            },
            start: on_ours,
        },
        Contender {
            name: "tokio/axum",
            about: "`axum::serve`, as many workers as processors; all is tokio's",
            version: || ON_TOKIO.to_owned(),
            start: on_tokio_with::<false>,
        },
        Contender {
            name: "tokio_spawn_blocking/axum",
            about: "the same; what blocks is inside spawn_blocking",
            version: || ON_TOKIO.to_owned(),
            start: on_tokio_with::<true>,
        },
    ]
}

/// The same, for the report.
pub(super) fn described() -> impl Iterator<Item = Described> {
    servers().into_iter().map(|server| Described {
        name: format!("{} with axum", row_name(&server)),
        ..Described::of(&server)
    })
}

/// Serves what connects to a listener, in tasks that it starts.
type Serve<R> = fn(&R, TcpListener) -> io::Result<()>;

struct WithAxum<R> {
    runtime: R,
    serve: Serve<R>,
}

fn start<R: Runtime>(
    runtime: impl FnOnce() -> io::Result<R>,
    serve: Serve<R>,
    service: Service,
) -> io::Result<Box<dyn Server>> {
    if service != Service::Echo {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(Box::new(WithAxum { runtime: runtime()?, serve }))
}

fn on_ours(_: usize, service: Service) -> io::Result<Box<dyn Server>> {
    start(Ours::with_tokio, serve_in_our_tasks, service)
}

fn on_tokio_with<const OFFLOADS: bool>(_: usize, service: Service) -> io::Result<Box<dyn Server>> {
    start(|| Tokio::start(None), serve_by_axum::<OFFLOADS>, service)
}

impl<R: Runtime> Server for WithAxum<R> {
    fn add(&self, _: TcpStream) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        (self.serve)(&self.runtime, at.listener()?)
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

/// What `axum::serve` does, except that it would run connections in tasks of tokio, in which
/// handlers may not block.
fn serve_in_our_tasks(ours: &Ours, listener: TcpListener) -> io::Result<()> {
    // In the context of tokio, whose listener it is.
    let listener = ours.block_on(async { net::TcpListener::from_std(listener) })?;
    let app = app::<Ours, false>();
    ours.begin(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => Ours::detach(Ours::spawn(serve(stream, app.clone()))),
                Err(error) => not_accepted(&error),
            }
        }
    });
    Ok(())
}

/// A connection that fails ends its task and nothing else.
async fn serve(stream: net::TcpStream, app: Router) {
    let builder = auto::Builder::new(TokioExecutor::new());
    let service = TowerToHyperService::new(app);
    drop(builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await);
}

fn serve_by_axum<const OFFLOADS: bool>(tokio: &Tokio, listener: TcpListener) -> io::Result<()> {
    let listener = tokio.listener(listener)?;
    // It doesn't end, and has no error.
    tokio.begin(async move { drop(axum::serve(listener, app::<Tokio, OFFLOADS>()).await) });
    Ok(())
}

/// `GET /<kind>/<amount>` asks for that work.
fn app<R: Runtime, const OFFLOADS: bool>() -> Router {
    Router::new().route("/{kind}/{amount}", get(answer::<R, OFFLOADS>))
}

async fn answer<R: Runtime, const OFFLOADS: bool>(
    Path((kind, amount)): Path<(u8, u32)>,
) -> (StatusCode, &'static str) {
    match Work::from_parts(kind, amount) {
        Some(work) => {
            perform::<R, OFFLOADS>(work).await;
            (StatusCode::OK, ANSWER)
        }
        None => (StatusCode::NOT_FOUND, ANSWER),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use crate::names::runtimes::{OURS, SPAWN_BLOCKING, TOKIO};
    use crate::runtimes::server::tests::checks_answers_of_http;
    use crate::runtimes::server::{Kind, of};
    use crate::runtimes::shared::each_installed;

    /// A client of each server.
    fn each(test: impl Fn(TcpStream)) {
        let server = |name: &str| of(name, Kind::Axum).ok_or_else(|| format!("no server `{name}`"));
        each_installed(&[OURS, TOKIO, SPAWN_BLOCKING], server, |_, connect| test(connect()));
    }

    #[test]
    fn axum_answers_after_its_work() {
        each(|mut client| checks_answers_of_http(&mut client));
    }

    /// What is no number, and another method: axum's own answers.
    #[test]
    fn axum_refuses_what_it_has_no_route_for() {
        each(|mut client| {
            let requests = [
                ("GET", "/x/0", "400 Bad Request"),
                ("GET", "/0", "404 Not Found"),
                ("POST", "/0/0", "405 Method Not Allowed"),
            ];
            let last = requests.len() - 1;
            let mut text = String::new();
            for (index, (method, path, _)) in requests.into_iter().enumerate() {
                let connection = if index == last { "close" } else { "keep-alive" };
                let head = format!("{method} {path} HTTP/1.1\r\nhost: it\r\n");
                let rest = format!("connection: {connection}\r\ncontent-length: 0\r\n\r\n");
                client.write_all(format!("{head}{rest}").as_bytes()).unwrap();
            }
            client.read_to_string(&mut text).unwrap();
            let found: Vec<&str> = text.split("HTTP/1.1 ").skip(1).collect();
            assert_eq!(found.len(), requests.len(), "{text}");
            for (answer, (_, _, status)) in found.iter().zip(requests) {
                assert!(answer.starts_with(status), "{text}");
            }
        });
    }
}
