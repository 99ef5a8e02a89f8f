//! An HTTP/1.1 server by hyper on the runtime, with a handler that simply blocks.
//!
//! `cargo run --manifest-path ecosystem/Cargo.toml --bin http 127.0.0.1:7080`. SIGTERM or Ctrl-C
//! ends it, after the requests that have begun.
//!
//! - `GET /` answers immediately.
//! - `GET /slow` sleeps for 5 ms by `std::thread::sleep`, as a synchronous driver would. Other
//!   requests are answered meanwhile.
//! - `GET /wait` blocks on a channel until the handler of `GET /release` sends to it.
//! - `GET /waiting` answers how many handlers block there.
//! - `POST /echo` answers with the body.

use std::convert::Infallible;
use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use completion_port_runtime::net::{TcpListener, TcpStream};
use completion_port_runtime::signal::{ctrl_c, terminate};
use completion_port_runtime::{Handle, main, sleep, spawn};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};

/// A body may have this many bytes.
const MOST: usize = 1 << 20;

/// How long a request waits to be released.
const PATIENCE: Duration = Duration::from_secs(60);

/// Releases the handlers that wait.
static WAITING: Mutex<Vec<mpsc::Sender<()>>> = Mutex::new(Vec::new());

fn waiting() -> MutexGuard<'static, Vec<mpsc::Sender<()>>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks until another handler releases this one. Returns whether it did.
fn wait() -> bool {
    let (release, released) = mpsc::channel();
    waiting().push(release);
    released.recv_timeout(PATIENCE).is_ok()
}

/// Releases all handlers that wait, and returns how many there were.
fn release() -> usize {
    // A handler that has lost its patience has dropped its end of the channel.
    waiting().drain(..).filter(|handler| handler.send(()).is_ok()).count()
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let status = |status, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET, "/") => Response::new(Full::from("hello\n")),
        (&Method::GET, "/slow") => {
            #[allow(clippy::disallowed_methods, reason = "the point of the example")]
            std::thread::sleep(Duration::from_millis(5));
            Response::new(Full::from("slept\n"))
        }
        (&Method::GET, "/wait") if wait() => Response::new(Full::from("released\n")),
        (&Method::GET, "/wait") => status(StatusCode::SERVICE_UNAVAILABLE, "nobody released it\n"),
        (&Method::GET, "/waiting") => Response::new(Full::from(format!("{}\n", waiting().len()))),
        (&Method::GET, "/release") => Response::new(Full::from(format!("{}\n", release()))),
        (&Method::POST, "/echo") => {
            match http_body_util::Limited::new(request.into_body(), MOST).collect().await {
                Ok(body) => Response::new(Full::new(body.to_bytes())),
                Err(_) => status(StatusCode::PAYLOAD_TOO_LARGE, "too much, or cut off\n"),
            }
        }
        _ => status(StatusCode::NOT_FOUND, "there is nothing\n"),
    })
}

/// Serves a connection until it ends, or the server does.
async fn serve(stream: TcpStream, timer: Handle) {
    let connection = http1::Builder::new()
        .timer(timer)
        .header_read_timeout(Duration::from_secs(30))
        .serve_connection(stream, service_fn(answer));
    // A client that breaks the protocol or leaves ends its connection and nothing else.
    let _ = connection.await;
}

async fn accept(listener: TcpListener) {
    let Some(handle) = Handle::try_current() else { return };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // It only makes answers quicker.
                let _ = stream.set_nodelay(true);
                drop(spawn(serve(stream, handle.clone())));
            }
            // A client has left, or descriptors are short for a moment.
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

#[main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let accepting = spawn(accept(listener));
    let stopped = spawn(async {
        let interrupted = spawn(ctrl_c());
        terminate().await?;
        interrupted.abort();
        Ok::<(), std::io::Error>(())
    });
    stopped.await??;
    accepting.abort();
    Ok(())
}
