//! Edge-triggered `epoll` with nothing in between: the floor.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::Taker;
use super::pairs::{Driver, receive};
use crate::work::BUFFER;

/// Events taken by a wait at most.
pub(super) const EVENTS: usize = 64;

/// Everything, once and for all: no further call is made for the entry.
const ALL: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

struct Edge {
    set: OwnedFd,
    events: Vec<Event>,
    streams: Vec<TcpStream>,
}

pub(super) fn build(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    for (number, stream) in receivers.iter().enumerate() {
        epoll::add(&set, stream, EventData::new_u64(number as u64), ALL)?;
    }
    Ok(Box::new(Edge { set, events: Vec::with_capacity(EVENTS), streams: receivers }))
}

/// The connection that an event is about.
pub(super) fn number(event: &Event) -> usize {
    usize::try_from(event.data.u64()).unwrap_or(usize::MAX)
}

impl Taker for Edge {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        let mut buffer = [0; BUFFER];
        driver.each(|| {
            self.events.clear();
            epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut self.events), None)?;
            let mut taken = 0;
            for event in &self.events {
                // The read is short, so nothing is left.
                taken += receive(&self.streams[number(event)], &mut buffer)?;
            }
            Ok(taken)
        })
    }
}
