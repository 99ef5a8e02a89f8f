//! `compio`, on `io_uring`: a task for each connection, and a receive that is asked for each time.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use ::compio::BufResult;
use ::compio::driver::ProactorBuilder;
use ::compio::io::AsyncRead;
use ::compio::runtime::{Runtime, RuntimeBuilder};

use super::Taker;
use super::pairs::Driver;
use super::tally::Tally;
use crate::work::BUFFER;

struct Compio {
    runtime: Runtime,
    tally: Arc<Tally>,
}

pub(super) fn build(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    let mut driver = ProactorBuilder::new();
    driver.single_issuer(true).coop_taskrun(true).taskrun_flag(true).defer_taskrun(true);
    let runtime = RuntimeBuilder::new().with_proactor(driver).build()?;
    let tally = Arc::<Tally>::default();
    runtime.block_on(async {
        for stream in receivers {
            let stream = ::compio::net::TcpStream::from_std(stream)?;
            ::compio::runtime::spawn(receive(stream, Arc::clone(&tally))).detach();
        }
        io::Result::Ok(())
    })?;
    Ok(Box::new(Compio { runtime, tally }))
}

async fn receive(mut stream: ::compio::net::TcpStream, tally: Arc<Tally>) {
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        let BufResult(read, used) = stream.read(buffer).await;
        if !tally.note(read) {
            return;
        }
        buffer = used;
        buffer.clear();
    }
}

impl Taker for Compio {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        self.runtime.block_on(self.tally.passes(driver))
    }
}
