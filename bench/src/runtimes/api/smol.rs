//! smol: its executor, on as many threads as there are processors unless told otherwise.

use std::future::Future;
use std::io;
use std::num::NonZero;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use smol::io::{AsyncReadExt as _, AsyncWriteExt as _};
use smol::{Async, Executor, Task, Timer};
use smol_hyper::rt::FuturesIo;

use super::Runtime;

/// `smol::spawn` has one thread by default, which would compare one thread with several.
static EXECUTOR: Executor<'static> = Executor::new();

pub(in crate::runtimes) struct Smol;

impl Runtime for Smol {
    type Stream = Async<std::net::TcpStream>;
    type Listener = Async<std::net::TcpListener>;
    type Io = FuturesIo<Async<std::net::TcpStream>>;
    type Join<T: Send + 'static> = Task<T>;

    /// There is one in a process.
    fn start(workers: Option<usize>) -> io::Result<Self> {
        static STARTED: OnceLock<()> = OnceLock::new();
        let usual = || thread::available_parallelism().map_or(1, NonZero::get);
        let workers = workers.unwrap_or_else(usual);
        if STARTED.set(()).is_ok() {
            for _ in 0..workers {
                let run = || smol::block_on(EXECUTOR.run(smol::future::pending::<()>()));
                thread::Builder::new().name("smol".to_owned()).spawn(run)?;
            }
        }
        Ok(Smol)
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        smol::block_on(future)
    }

    fn begin(&self, future: impl Future<Output = ()> + Send + 'static) {
        EXECUTOR.spawn(future).detach();
    }

    fn stream(&self, stream: std::net::TcpStream) -> io::Result<Self::Stream> {
        Async::new(stream)
    }

    fn listener(&self, listener: std::net::TcpListener) -> io::Result<Self::Listener> {
        Async::new(listener)
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        Ok(listener.accept().await?.0)
    }

    fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Task<T> {
        EXECUTOR.spawn(future)
    }

    fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Task<T> {
        smol::unblock(work)
    }

    fn detach<T: Send + 'static>(task: Task<T>) {
        task.detach();
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        smol::future::yield_now()
    }

    async fn sleep(time: Duration) {
        Timer::after(time).await;
    }

    async fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        stream.read(buffer).await
    }

    async fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<()> {
        stream.write_all(bytes).await
    }

    fn io(stream: Self::Stream) -> Self::Io {
        FuturesIo::new(stream)
    }
}
