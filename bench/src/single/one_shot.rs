//! `epoll` with EPOLLONESHOT, each entry enabled again by a separate call.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::Taker;
use super::edge::{EVENTS, number};
use super::pairs::{Driver, receive};
use crate::work::BUFFER;

const ONCE: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ONESHOT);

struct Once {
    set: OwnedFd,
    events: Vec<Event>,
    streams: Vec<TcpStream>,
}

pub(super) fn build(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    for (number, stream) in receivers.iter().enumerate() {
        epoll::add(&set, stream, EventData::new_u64(number as u64), ONCE)?;
    }
    Ok(Box::new(Once { set, events: Vec::with_capacity(EVENTS), streams: receivers }))
}

impl Taker for Once {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        let mut buffer = [0; BUFFER];
        driver.each(|| {
            self.events.clear();
            epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut self.events), None)?;
            let mut taken = 0;
            for event in &self.events {
                let stream = &self.streams[number(event)];
                taken += receive(stream, &mut buffer)?;
                epoll::modify(&self.set, stream, event.data, ONCE)?;
            }
            Ok(taken)
        })
    }
}
