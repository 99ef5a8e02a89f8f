//! `polling`, in the mode it advises and in the one that needs no further call.

use std::io;
use std::net::TcpStream;
use std::num::NonZeroUsize;

use ::polling::{Event, Events, PollMode, Poller};

use super::Taker;
use super::edge::EVENTS;
use super::pairs::{Driver, receive};
use crate::work::BUFFER;

struct Polling {
    poller: Poller,
    events: Events,
    streams: Vec<TcpStream>,
    mode: PollMode,
}

fn build(receivers: Vec<TcpStream>, mode: PollMode) -> io::Result<Box<dyn Taker>> {
    let poller = Poller::new()?;
    for (number, stream) in receivers.iter().enumerate() {
        // SAFETY: the source must be taken out of the poller before it is closed.
        // - `drop` does so; here, it is closed together with the poller.
        unsafe { poller.add_with_mode(stream, Event::readable(number), mode) }?;
    }
    let room = NonZeroUsize::new(EVENTS).unwrap_or(NonZeroUsize::MIN);
    let events = Events::with_capacity(room);
    Ok(Box::new(Polling { poller, events, streams: receivers, mode }))
}

pub(super) fn one_shot(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    build(receivers, PollMode::Oneshot)
}

pub(super) fn edge(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    build(receivers, PollMode::Edge)
}

impl Taker for Polling {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        let mut buffer = [0; BUFFER];
        driver.each(|| {
            self.events.clear();
            self.poller.wait(&mut self.events, None)?;
            let mut taken = 0;
            for event in self.events.iter() {
                let stream = &self.streams[event.key];
                taken += receive(stream, &mut buffer)?;
                if self.mode == PollMode::Oneshot {
                    self.poller.modify(stream, Event::readable(event.key))?;
                }
            }
            Ok(taken)
        })
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        for stream in &self.streams {
            // A refused socket is not in the poller.
            let _ = self.poller.delete(stream);
        }
    }
}
