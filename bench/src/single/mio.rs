//! `mio`.

use std::io;
use std::net::TcpStream;

use ::mio::{Events, Interest, Poll, Token};

use super::Taker;
use super::edge::EVENTS;
use super::pairs::{Driver, receive};
use crate::work::BUFFER;

struct Mio {
    poll: Poll,
    events: Events,
    streams: Vec<::mio::net::TcpStream>,
}

pub(super) fn build(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    let poll = Poll::new()?;
    let mut streams: Vec<_> = receivers.into_iter().map(::mio::net::TcpStream::from_std).collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        poll.registry().register(stream, Token(number), Interest::READABLE)?;
    }
    Ok(Box::new(Mio { poll, events: Events::with_capacity(EVENTS), streams }))
}

impl Taker for Mio {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        let mut buffer = [0; BUFFER];
        driver.each(|| {
            self.poll.poll(&mut self.events, None)?;
            let mut taken = 0;
            for event in &self.events {
                // The read is short, so nothing is left.
                taken += receive(&self.streams[event.token().0], &mut buffer)?;
            }
            Ok(taken)
        })
    }
}
