//! `monoio`: a task for each connection, and a receive that is asked for each time.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use ::monoio::io::AsyncReadRent;
use ::monoio::{FusionDriver, FusionRuntime, IoUringDriver, LegacyDriver, RuntimeBuilder};

use super::Taker;
use super::pairs::Driver;
use super::tally::Tally;
use crate::work::BUFFER;

/// On `io_uring` where the system has it, on `epoll` elsewhere.
struct Monoio {
    runtime: FusionRuntime<IoUringDriver, LegacyDriver>,
    tally: Arc<Tally>,
}

pub(super) fn build(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    let mut runtime = RuntimeBuilder::<FusionDriver>::new().build()?;
    let tally = Arc::<Tally>::default();
    runtime.block_on(async {
        for stream in receivers {
            let stream = ::monoio::net::TcpStream::from_std(stream)?;
            ::monoio::spawn(receive(stream, Arc::clone(&tally)));
        }
        io::Result::Ok(())
    })?;
    Ok(Box::new(Monoio { runtime, tally }))
}

async fn receive(mut stream: ::monoio::net::TcpStream, tally: Arc<Tally>) {
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        let (read, used) = stream.read(buffer).await;
        if !tally.note(read) {
            return;
        }
        buffer = used;
        buffer.clear();
    }
}

impl Taker for Monoio {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        self.runtime.block_on(self.tally.passes(driver))
    }
}
