//! What the programs need of a runtime, so that each program has one source for all of them.

use std::future::Future;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

pub(super) use self::ours::Ours;
pub(super) use self::smol::Smol;
pub(super) use self::tokio::{Eager, OnTokio, Tokio};

mod ours;
mod smol;
mod tokio;

/// A runtime. Functions without `self` are called in its context.
pub(super) trait Runtime: Send + Sync + Sized + 'static {
    /// A connection.
    type Stream: Send + 'static;
    type Listener: Send + Sync + 'static;
    /// The same for hyper, by the adapter that is usual for the runtime.
    type Io: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static;
    /// A task whose result another task awaits.
    type Join<T: Send + 'static>: Future<Output = T> + Send + 'static;

    /// Starts it with that many workers, or as many as it has by default.
    fn start(workers: Option<usize>) -> io::Result<Self>;

    /// Runs a future on the calling thread.
    fn block_on<F: Future>(&self, future: F) -> F::Output;

    /// Spawns a task from outside. Nobody waits for it.
    fn begin(&self, future: impl Future<Output = ()> + Send + 'static);

    /// Takes over a connection from outside.
    fn stream(&self, stream: TcpStream) -> io::Result<Self::Stream>;

    /// Takes over a listener, which is in non-blocking mode, from outside.
    fn listener(&self, listener: TcpListener) -> io::Result<Self::Listener>;

    /// The next connection.
    fn accept(listener: &Self::Listener) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Self::Join<T>;

    fn spawn_blocking<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Self::Join<T>;

    /// Lets the task continue although nobody waits for it.
    fn detach<T: Send + 'static>(task: Self::Join<T>);

    fn yield_now() -> impl Future<Output = ()> + Send;

    fn sleep(time: Duration) -> impl Future<Output = ()> + Send;

    fn read(
        stream: &mut Self::Stream,
        buffer: &mut [u8],
    ) -> impl Future<Output = io::Result<usize>> + Send;

    fn write_all(
        stream: &mut Self::Stream,
        bytes: &[u8],
    ) -> impl Future<Output = io::Result<()>> + Send;

    fn io(stream: Self::Stream) -> Self::Io;

    /// Threads that run tasks, if it counts them.
    fn threads(&self) -> Option<usize> {
        None
    }

    /// How it detects blocked threads and carries out operations on files, if it does either.
    fn detected(&self) -> Option<String> {
        None
    }
}
