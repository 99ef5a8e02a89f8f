//! What one would write with `epoll`: messages in a queue under a lock, and an eventfd that is written
//! if a thread sleeps. It counts as a semaphore, so that each write wakes one thread.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::{BATCH, Message, Queue, Take};

struct Eventfd {
    shared: Mutex<Shared>,
    set: OwnedFd,
    bell: OwnedFd,
}

struct Shared {
    messages: VecDeque<Message>,
    /// Threads that sleep, or are about to, and have not been woken.
    asleep: usize,
}

pub(super) fn build() -> io::Result<Arc<dyn Queue>> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
    let (set, bell) = (epoll::create(CreateFlags::CLOEXEC)?, eventfd(0, flags)?);
    epoll::add(&set, &bell, EventData::new_u64(0), EventFlags::IN)?;
    let shared = Mutex::new(Shared { messages: VecDeque::new(), asleep: 0 });
    Ok(Arc::new(Eventfd { shared, set, bell }))
}

impl Eventfd {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the bell has rung for the calling thread.
    fn sleep(&self) -> io::Result<()> {
        let mut events = Vec::<Event>::with_capacity(1);
        loop {
            match epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            match rustix::io::read(&self.bell, &mut [0; 8]) {
                Ok(_) => return Ok(()),
                // It rang for another thread.
                Err(Errno::AGAIN | Errno::INTR) => events.clear(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Queue for Eventfd {
    fn post(&self, message: Message) -> io::Result<()> {
        let mut shared = self.lock();
        shared.messages.push_back(message);
        let wakes = shared.asleep > 0;
        shared.asleep -= usize::from(wakes);
        drop(shared);
        if wakes {
            rustix::io::write(&self.bell, &1_u64.to_ne_bytes())?;
        }
        Ok(())
    }

    fn taker(&self) -> io::Result<Box<dyn Take + '_>> {
        Ok(Box::new(self))
    }
}

impl Take for &Eventfd {
    fn take(&mut self, into: &mut Vec<Message>) -> io::Result<()> {
        let mut shared = self.lock();
        while shared.messages.is_empty() {
            shared.asleep += 1;
            drop(shared);
            self.sleep()?;
            shared = self.lock();
        }
        let share = shared.messages.len().min(BATCH);
        into.extend(shared.messages.drain(..share));
        Ok(())
    }
}
