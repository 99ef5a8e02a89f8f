//! An async runtime in which tasks may block.
//!
//! Tasks, sockets and timers run on the threads of one [completion port](completion_port). The port
//! keeps as many threads *running* as there are processors. When a task sleeps in the kernel, in
//! `std::thread::sleep`, a contended mutex, `std::fs`, a name lookup or a database driver, another
//! thread takes its place, and takes back what the sleeping thread has not run yet.
//!
//! # What may a task do?
//!
//! - **Block on anything.** On Linux, macOS and FreeBSD the other tasks continue within two
//!   milliseconds, or immediately if the call is inside [`spawn_blocking`] or
//!   [`Port::blocking`](completion_port::Port::blocking). On Windows, NetBSD and OpenBSD the system
//!   does not report sleeping threads: there, an unannounced blocking call counts against the
//!   concurrency value until it returns.
//! - **Compute.** Other threads take over the tasks that wait for its thread. If all running threads
//!   have computed for 10 ms, one more runs.
//!
//! What it must not do:
//!
//! - block every thread on something that itself needs a thread: 512 tasks that wait for a
//!   condition variable, which the 513th would signal;
//! - block in one branch of `join!` or `select!`: all branches are one task, so the others stop
//!   until the call returns. Spawn the branch instead.
//!
//! # Examples
//!
//! ```
//! use completion_port_runtime::{Runtime, net::TcpListener, spawn};
//! use std::io::{Read, Write};
//!
//! let runtime = Runtime::new()?;
//! let (address, server) = runtime.block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let address = listener.local_addr()?;
//!     let server = spawn(async move {
//!         loop {
//!             let (stream, _) = listener.accept().await?;
//!             spawn(async move {
//!                 let mut buffer = [0; 1024];
//!                 while let Ok(read @ 1..) = stream.read(&mut buffer).await {
//!                     std::thread::sleep(std::time::Duration::from_millis(1)); // harmless
//!                     if stream.write_all(&buffer[..read]).await.is_err() {
//!                         break;
//!                     }
//!                 }
//!             });
//!         }
//!         #[allow(unreachable_code)]
//!         Ok::<(), std::io::Error>(())
//!     });
//!     Ok::<_, std::io::Error>((address, server))
//! })?;
//! let mut client = std::net::TcpStream::connect(address)?;
//! client.write_all(b"hello")?;
//! let mut echo = [0; 5];
//! client.read_exact(&mut echo)?;
//! assert_eq!(&echo, b"hello");
//! server.abort();
//! # Ok::<(), std::io::Error>(())
//! ```

mod activity;
mod block_on;
#[cfg(feature = "tokio-compat")]
pub mod compat;
mod context;
mod dump;
mod file_stream;
mod fork;
pub mod fs;
pub mod guide;
pub mod net;
mod pool;
#[cfg(feature = "quinn")]
pub mod quinn;
mod readiness;
mod runtime;
mod shared;
pub mod signal;
mod state;
mod sync;
mod task;
pub mod time;
#[cfg(any(feature = "hyper", feature = "tokio-io"))]
mod traits;
#[cfg(windows)]
mod windows_console;

/// Makes an `async fn main` the program's `main`. It runs on its own [`Runtime`].
///
/// The function may have any name, visibility, return type and attributes. It has no parameters and
/// is not generic. When it returns, the runtime is dropped, which aborts the remaining tasks.
///
/// Arguments set what the [`Builder`] methods of the same names set: `concurrency`, `thread_limit`,
/// `thread_name` and `thread_stack_size`. `crate = path` names this crate, if it was renamed. Without
/// arguments, the runtime has the default settings.
///
/// # Panics
///
/// The function panics if the system refuses to start a runtime.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{main, time::sleep};
///
/// #[main(concurrency = 2, thread_name = "server")]
/// async fn main() -> Result<(), std::num::ParseIntError> {
///     sleep(std::time::Duration::from_millis(1)).await;
///     assert_eq!("7".parse::<u32>()?, 7);
///     Ok(())
/// }
/// ```
pub use completion_port_runtime_macros::main;
pub use context::Entered;
pub use dump::{Dump, Metrics};
pub use runtime::{Builder, Handle, Runtime, Shutdown, spawn, spawn_blocking};
pub use task::{AbortHandle, JoinError, JoinHandle, yield_now};
#[doc(no_inline)]
pub use time::{interval, sleep, sleep_until, timeout, timeout_at};
