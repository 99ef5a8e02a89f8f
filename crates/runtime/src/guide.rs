//! From `main` to a server, and what differs from tokio. This module has only documentation.
//!
//! # A server
//!
//! [`main`](crate::main) makes an `async fn main` the program's `main`. [`spawn`](crate::spawn)
//! starts a task for each connection. A task calls what it needs, also if that blocks: here
//! [`std::fs`], a mutex and a lookup of a name by the system.
//!
//! ```no_run
//! use completion_port_runtime::net::{TcpListener, TcpStream};
//! use completion_port_runtime::time::{sleep, timeout};
//! use completion_port_runtime::{main, signal, spawn};
//! use std::sync::Mutex;
//! use std::time::Duration;
//!
//! static VISITORS: Mutex<u64> = Mutex::new(0);
//!
//! async fn serve(stream: TcpStream) -> std::io::Result<()> {
//!     let mut request = [0; 1024];
//!     let read = timeout(Duration::from_secs(30), stream.read(&mut request)).await??;
//!     let page = std::fs::read("index.html")?; // blocks: other tasks run meanwhile
//!     *VISITORS.lock().unwrap() += 1; // blocks if another task holds it
//!     let _ = &request[..read];
//!     stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").await?;
//!     stream.write_all(&page).await
//! }
//!
//! #[main]
//! async fn main() -> std::io::Result<()> {
//!     let listener = TcpListener::bind("localhost:8080").await?;
//!     spawn(async move {
//!         loop {
//!             match listener.accept().await {
//!                 Ok((stream, _)) => drop(spawn(serve(stream))),
//!                 // A client has left, or descriptors are short for a moment.
//!                 Err(_) => sleep(Duration::from_millis(10)).await,
//!             }
//!         }
//!     });
//!     signal::shutdown().await
//! }
//! ```
//!
//! To let open requests end, make the [`Runtime`](crate::Runtime) yourself and end it with
//! [`Runtime::shutdown`](crate::Runtime::shutdown): see [`signal`](crate::signal). The folder
//! `examples` has a proxy, a file server and a name server.
//!
//! # What may I block on?
//!
//! On anything: `std::thread::sleep`, a mutex, a condition variable, a channel of the standard
//! library, `std::fs`, `getaddrinfo`, a database driver, a child process, `Handle::block_on`. When
//! a thread sleeps in the kernel, the port lets another one run and takes back the tasks that the
//! sleeping thread has not run yet. Long computations need no announcement either.
//!
//! What does it cost?
//!
//! - Detection takes a few microseconds to two milliseconds, as the system permits. A call inside
//!   [`spawn_blocking`](crate::spawn_blocking) or
//!   [`Port::blocking`](completion_port::Port::blocking) needs no detection.
//! - Each blocked task occupies a thread and its stack, up to
//!   [`Builder::thread_limit`](crate::Builder::thread_limit).
//! - On Windows, NetBSD and OpenBSD, the system does not report sleeping threads. There, an
//!   unannounced blocking call counts against the concurrency value until it returns, and after
//!   10 ms without progress one more thread runs. Announce long calls by `spawn_blocking`.
//!
//! # What must I not do?
//!
//! - **Block every thread on something that needs a thread.** If 512 tasks wait for a condition
//!   variable that the 513th would signal, nothing runs. [`Metrics::stalls`](crate::Metrics::stalls)
//!   counts that, and [`Handle::dump`](crate::Handle::dump) shows who waits for what.
//! - **Block in one branch of `join!` or `select!`.** All branches are one task, so the others stop
//!   until the call returns. Spawn the branch instead.
//! - **Hold a lock of the standard library across `.await`.** It works as badly as elsewhere: the
//!   task may wait for long while others block on the lock. The compiler refuses it in spawned
//!   tasks, since such guards are not `Send`.
//!
//! # Which allocator?
//!
//! Any. A few threads take turns with the tasks, and glibc's `malloc` has a heap for each thread. So
//! these heaps grow and shrink more often than with one thread per processor: that cost an HTTP
//! server 3 % of its processor time. Another allocator avoids it, and so does the environment
//! variable `MALLOC_TRIM_THRESHOLD_=8388608`.
//!
//! # Coming from tokio
//!
//! | tokio | here |
//! |---|---|
//! | `#[tokio::main]`, `worker_threads = n` | [`#[main]`](crate::main), `concurrency = n` |
//! | `Runtime`, `Builder`, `Handle` | the same names; `max_blocking_threads` is [`Builder::thread_limit`](crate::Builder::thread_limit), for all threads |
//! | `flavor = "current_thread"` | missing: `concurrency = 1` runs one task at a time, on changing threads |
//! | `Runtime::shutdown_timeout` | [`Runtime::shutdown`](crate::Runtime::shutdown), which can also drain |
//! | `Runtime::drop` | the same, but it also waits for tasks that block |
//! | `task::spawn`, `JoinHandle`, `AbortHandle` | the same; `JoinError::is_cancelled` is [`JoinError::is_aborted`](crate::JoinError::is_aborted) |
//! | `task::spawn_blocking` | the same; rarely needed |
//! | `task::block_in_place` | missing, because nothing needs it: call the function |
//! | `task::yield_now` | the same; there is no budget, a task that is always ready must yield |
//! | `JoinSet`, `LocalSet`, `spawn_local`, `task_local!` | missing: collect handles in a `Vec` or a `FuturesUnordered`; tasks are `Send` |
//! | `select!`, `join!` | missing: those of the `futures` crate work |
//! | `sync` | missing: tokio's own works here without its runtime, as do `async-lock`, `flume` and the standard library's channels |
//! | `process` | missing: [`std::process`] works, and may block |
//! | `net::{TcpListener, TcpStream, UdpSocket, Unix…}` | the same names; all calls take `&self`; [`peek`](crate::net::TcpStream::peek), `split`, `into_split` and `reunite` as there |
//! | `net::TcpSocket` | `socket2::Socket` with [`TcpStream::connect_socket`](crate::net::TcpStream::connect_socket), or `from_std` for a listener |
//! | `TcpStream::writable`, `ready`, `try_io` | missing: `write` waits; `try_read` and `try_write` exist |
//! | `net::lookup_host` | [`std::net::ToSocketAddrs`], which blocks |
//! | `io::copy`, `BufReader`, `AsyncReadExt` | those of `futures` by the traits of futures-io, or tokio's own by the feature `tokio-io` |
//! | `time::{sleep, sleep_until, timeout, timeout_at, interval}` | the same, with [`std::time::Instant`]; an [`Interval`](crate::time::Interval) skips missed ticks |
//! | `time::pause`, `advance` | missing: there is no virtual time |
//! | `fs::File` | [`fs::File`](crate::fs::File) reads and writes at positions; [`FileStream`](crate::fs::FileStream) has a position, as tokio's file |
//! | `fs::read`, `read_to_string`, `write` | the same |
//! | `fs::metadata`, `create_dir`, … | [`std::fs`], which blocks |
//! | `signal::ctrl_c`, `signal::unix::signal(kind)` | [`signal::ctrl_c`](crate::signal::ctrl_c); on Unix `signal::Signal` |
//! | `runtime::RuntimeMetrics`, `Handle::dump` | [`Handle::metrics`](crate::Handle::metrics), [`Handle::dump`](crate::Handle::dump), without an unstable flag |
//!
//! A crate that calls tokio's own `net`, `time` or `spawn`, such as axum, reqwest, sqlx or tonic,
//! needs tokio's runtime, which then runs in the same process. With the feature `tokio-compat`,
//! `Builder::tokio_compat` starts it, and all tasks run in its context. It has its own threads, or
//! this runtime's threads poll it (`Builder::tokio_workers`). The module `compat` says what runs
//! where, and what may block.
//!
//! | feature | |
//! |---|---|
//! | `hyper` | hyper's traits for streams, halves, timers and tasks |
//! | `quinn` | quinn's traits for sockets, timers and tasks: QUIC |
//! | `tokio-compat` | a tokio runtime as well, in whose context tasks run |
//! | `tokio-io` | tokio's traits for streams, halves and [`FileStream`](crate::fs::FileStream) |
//! | `tracing` | a warning when every thread is blocked |
