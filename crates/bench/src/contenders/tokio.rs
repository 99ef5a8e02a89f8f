//! `tokio`: the runtime with several threads, a task for each connection.

use std::io;
use std::net::TcpStream;

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use ::tokio::runtime::{Builder, Runtime};

use super::{Contender, Server, version};
use crate::work::{BUFFER, Carry, process};

pub(crate) fn contender() -> Contender {
    Contender {
        name: "tokio",
        about: "tokio: the multi-threaded runtime, a task per connection",
        version: || version::of_crate!("tokio").to_owned(),
        start,
    }
}

fn start(threads: usize) -> io::Result<Box<dyn Server>> {
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_io().build()?;
    Ok(Box::new(Tokio(runtime)))
}

struct Tokio(Runtime);

impl Server for Tokio {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let _context = self.0.enter();
        let stream = ::tokio::net::TcpStream::from_std(stream)?;
        // A connection that fails ends its task and nothing else.
        self.0.spawn(serve(stream));
        Ok(())
    }
}

async fn serve(mut stream: ::tokio::net::TcpStream) -> io::Result<()> {
    let mut carry = Carry::default();
    let mut buffer = [0; BUFFER];
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        process(&mut carry, &buffer[..read]);
        stream.write_all(&buffer[..read]).await?;
    }
}
