//! A small server with the protocol of Redis, a task for each client. The commands are those of the
//! example `redis` of `completion-port`, whose server has no tasks.
//!
//! `cargo run -p completion-port-runtime --example async_redis 127.0.0.1:6379`, and `redis-cli` in another
//! terminal.

#[path = "../../completion-port/examples/redis/protocol/mod.rs"]
mod protocol;
#[path = "../../completion-port/examples/redis/task.rs"]
mod task;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use completion_port_runtime::net::{TcpListener, TcpStream};
use completion_port_runtime::{signal, sleep, spawn};

impl task::Link for TcpStream {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        TcpStream::read(self, buffer).await
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        TcpStream::write_all(self, bytes).await
    }

    fn sleep(time: Duration) -> impl Future<Output = ()> + Send {
        sleep(time)
    }
}

/// Serves clients until the task is aborted.
pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    // A task looks now and then for keys that have expired, so there is no timer to set.
    let store = Arc::new(protocol::Store::new(|_| {}));
    drop(spawn({
        let store = Arc::downgrade(&store);
        async move {
            while let Some(store) = store.upgrade() {
                store.sweep();
                drop(store);
                sleep(task::SWEEP).await;
            }
        }
    }));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Descriptors may be short for a while.
                sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        // An error ends this connection and no other.
        if stream.set_nodelay(true).is_ok() {
            drop(spawn(task::serve(stream, Arc::clone(&store))));
        }
    }
}

#[completion_port_runtime::main]
#[allow(dead_code, reason = "the test calls `serve`")]
async fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let serving = spawn(serve(listener));
    signal::shutdown().await?;
    serving.abort();
    Ok(())
}
