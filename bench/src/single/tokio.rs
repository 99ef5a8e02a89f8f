//! `tokio`, its runtime for one thread: a task for each connection.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use ::tokio::io::AsyncReadExt;
use ::tokio::runtime::{Builder, Runtime};

use super::Taker;
use super::pairs::Driver;
use super::tally::Tally;
use crate::work::BUFFER;

struct Tokio {
    runtime: Runtime,
    tally: Arc<Tally>,
}

pub(super) fn build(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let tally = Arc::<Tally>::default();
    runtime.block_on(async {
        for stream in receivers {
            let stream = ::tokio::net::TcpStream::from_std(stream)?;
            ::tokio::spawn(receive(stream, Arc::clone(&tally)));
        }
        io::Result::Ok(())
    })?;
    Ok(Box::new(Tokio { runtime, tally }))
}

async fn receive(mut stream: ::tokio::net::TcpStream, tally: Arc<Tally>) {
    let mut buffer = [0; BUFFER];
    while tally.note(stream.read(&mut buffer).await) {}
}

impl Taker for Tokio {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        self.runtime.block_on(self.tally.passes(driver))
    }
}
