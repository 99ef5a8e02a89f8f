//! A proxy: copies both directions of each connection, and passes on when one side has ended.
//!
//! `cargo run -p completion-port-runtime --example async_proxy 127.0.0.1:7001 example.org:80`.

use std::io;
use std::time::Duration;

use completion_port_runtime::net::{OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream};
use completion_port_runtime::{signal, sleep, spawn};

/// Copies until the reader ends. Dropping the writer then tells the other side.
async fn copy(mut reader: OwnedReadHalf, mut writer: OwnedWriteHalf) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match reader.read(&mut buffer).await? {
            0 => return Ok(()),
            read => writer.write_all(&buffer[..read]).await?,
        }
    }
}

async fn connect(near: TcpStream, target: String) -> io::Result<()> {
    // The lookup of the name blocks, which is allowed.
    let far = TcpStream::connect(target).await?;
    let (near_reader, near_writer) = near.into_split();
    let (far_reader, far_writer) = far.into_split();
    let back = spawn(copy(far_reader, near_writer));
    let there = copy(near_reader, far_writer).await;
    if there.is_err() {
        // A side that is reset ends the other one, too.
        back.abort();
    }
    back.await?
}

/// Serves clients until the task is aborted.
pub(crate) async fn serve(listener: TcpListener, target: String) -> io::Result<()> {
    loop {
        let near = match listener.accept().await {
            Ok((near, _)) => near,
            Err(_) => {
                // Descriptors may be short for a while.
                sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        // An error ends this connection and no other.
        drop(spawn(connect(near, target.clone())));
    }
}

#[completion_port_runtime::main]
#[allow(dead_code, reason = "the test calls `serve`")]
async fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(target)) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("usage: proxy ADDRESS TARGET"));
    };
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let serving = spawn(serve(listener, target));
    signal::shutdown().await?;
    serving.abort();
    Ok(())
}
