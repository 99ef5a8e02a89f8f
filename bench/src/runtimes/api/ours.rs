//! completion-port-runtime.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use completion_port_runtime::{self as runtime, net};

use super::Runtime;

pub(in crate::runtimes) struct Ours(runtime::Runtime);

impl Ours {
    /// Starts it together with a tokio runtime, for crates that need one. Its threads poll tokio.
    pub(in crate::runtimes) fn with_tokio() -> io::Result<Self> {
        runtime::Runtime::builder().tokio_compat().tokio_workers(0).build().map(Ours)
    }
}

/// A task's output. A panic of a task is one of who waits for it.
pub(in crate::runtimes) struct Join<T>(runtime::JoinHandle<T>);

impl<T> Future for Join<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(context).map(|output| output.expect("the task ends"))
    }
}

impl Runtime for Ours {
    type Stream = net::TcpStream;
    type Listener = net::TcpListener;
    type Io = net::TcpStream;
    type Join<T: Send + 'static> = Join<T>;

    fn start(workers: Option<usize>) -> io::Result<Self> {
        // Its threads are not workers: how many run is the concurrency value.
        runtime::Runtime::builder().concurrency(workers.unwrap_or(0)).build().map(Ours)
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn begin(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.spawn(future));
    }

    fn stream(&self, stream: std::net::TcpStream) -> io::Result<Self::Stream> {
        let _entered = self.0.handle().enter();
        net::TcpStream::from_std(stream)
    }

    fn listener(&self, listener: std::net::TcpListener) -> io::Result<Self::Listener> {
        let _entered = self.0.handle().enter();
        net::TcpListener::from_std(listener)
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        Ok(listener.accept().await?.0)
    }

    fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Join<T> {
        Join(runtime::spawn(future))
    }

    fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Join<T> {
        Join(runtime::spawn_blocking(work))
    }

    fn detach<T: Send + 'static>(task: Join<T>) {
        drop(task);
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        runtime::yield_now()
    }

    fn sleep(time: Duration) -> impl Future<Output = ()> + Send {
        runtime::sleep(time)
    }

    async fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        stream.read(buffer).await
    }

    async fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<()> {
        stream.write_all(bytes).await
    }

    fn io(stream: Self::Stream) -> Self::Io {
        stream
    }

    fn threads(&self) -> Option<usize> {
        Some(self.0.handle().metrics().threads)
    }

    fn detected(&self) -> Option<String> {
        let detection = self.0.handle().metrics().block_detection;
        let files = engine_of_files().unwrap_or_else(|error| format!("none: {error}"));
        Some(format!("blocked threads by {detection:?}, files by {files}"))
    }
}

/// What a runtime of this process starts for operations on files that may have to wait for a disk; it
/// is one of its own, so that the server's has none.
fn engine_of_files() -> io::Result<String> {
    let runtime = runtime::Runtime::new()?;
    let file = std::fs::File::open("/proc/self/exe")?;
    let file = runtime::fs::File::from_std(file);
    let _entered = runtime.handle().enter();
    runtime.block_on(file.sync_all())?;
    Ok(runtime.handle().metrics().file_engine.to_owned())
}
