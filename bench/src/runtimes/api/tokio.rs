//! tokio: the multi-threaded runtime, as it is or with eager hand-off of its driver.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{self, Builder};

use super::Runtime;

/// tokio; if `EAGER`, a worker that leaves the driver with a task wakes another one, which takes the
/// driver.
pub(in crate::runtimes) struct OnTokio<const EAGER: bool>(runtime::Runtime);

pub(in crate::runtimes) type Tokio = OnTokio<false>;
pub(in crate::runtimes) type Eager = OnTokio<true>;

/// A task's output. A panic of a task is one of who waits for it.
pub(in crate::runtimes) struct Join<T>(tokio::task::JoinHandle<T>);

impl<T> Future for Join<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(context).map(|output| output.expect("the task ends"))
    }
}

fn builder(workers: Option<usize>) -> Builder {
    let mut builder = Builder::new_multi_thread();
    if let Some(workers) = workers {
        builder.worker_threads(workers);
    }
    builder.enable_all();
    builder
}

/// The option exists only in builds for unstable features of tokio.
#[allow(unexpected_cfgs, reason = "tokio defines this one")]
fn eager(workers: Option<usize>) -> io::Result<runtime::Runtime> {
    #[cfg(tokio_unstable)]
    return builder(workers).enable_eager_driver_handoff().build();
    #[cfg(not(tokio_unstable))]
    {
        let _ = workers;
        Err(io::Error::other("this program is built without unstable features of tokio"))
    }
}

impl<const EAGER: bool> Runtime for OnTokio<EAGER> {
    type Stream = TcpStream;
    type Listener = TcpListener;
    type Io = TokioIo<TcpStream>;
    type Join<T: Send + 'static> = Join<T>;

    fn start(workers: Option<usize>) -> io::Result<Self> {
        if EAGER { eager(workers) } else { builder(workers).build() }.map(OnTokio)
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn begin(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.spawn(future));
    }

    fn stream(&self, stream: std::net::TcpStream) -> io::Result<Self::Stream> {
        let _entered = self.0.enter();
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }

    fn listener(&self, listener: std::net::TcpListener) -> io::Result<Self::Listener> {
        let _entered = self.0.enter();
        TcpListener::from_std(listener)
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        Ok(listener.accept().await?.0)
    }

    fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Join<T> {
        Join(tokio::spawn(future))
    }

    fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Join<T> {
        Join(tokio::task::spawn_blocking(work))
    }

    fn detach<T: Send + 'static>(task: Join<T>) {
        drop(task);
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }

    fn sleep(time: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(time)
    }

    async fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        stream.read(buffer).await
    }

    async fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<()> {
        stream.write_all(bytes).await
    }

    fn io(stream: Self::Stream) -> Self::Io {
        TokioIo::new(stream)
    }
}
