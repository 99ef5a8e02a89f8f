//! The server, on a port.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Weak};

use completion_port::{
    BorrowedSource, Events, Id, Interest, OneShot, Packet, Port, Ready, Registration, Source,
};

use super::common::{accept, send};
use super::protocol::{Call, Caller, Progress, Session, Store};

/// Read at a time.
const PORTION: usize = 16 * 1024;

thread_local! {
    /// For the thread's reads.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; PORTION]);
}

pub(crate) enum Peer {
    Listener(TcpListener),
    Client(Client),
}

pub(crate) struct Client {
    stream: TcpStream,
    /// Belongs to the thread that handles the client's packet, output and all.
    session: Session,
    has_ended: bool,
}

/// A message: keys have expired.
pub(crate) struct Sweep;

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.as_source(),
            Self::Client(client) => client.stream.as_source(),
        }
    }
}

pub(crate) type OurPort = Port<Peer, Sweep>;

/// A port, and values whose deadlines are messages to it.
pub(crate) fn start() -> io::Result<(Arc<OurPort>, Arc<Store>)> {
    let port: Arc<OurPort> = Arc::new(Port::builder().build()?);
    let store = Arc::new(Store::with_fallible_timer({
        let port = Arc::downgrade(&port);
        // Fails if the server ends or has no memory.
        move |at| port.upgrade().is_some_and(|port| port.post_at(at, Sweep).is_ok())
    }));
    Ok((port, store))
}

/// Accepts clients from a listener in non-blocking mode.
pub(crate) fn listen(port: &OurPort, listener: TcpListener) -> io::Result<()> {
    let listener = Peer::Listener(listener);
    port.register(Registration::owned(listener, Interest::IN, OneShot::Level))?;
    Ok(())
}

pub(crate) fn handle(port: &Arc<OurPort>, store: &Arc<Store>, packet: Packet<'_, Peer, Sweep>) {
    match packet {
        Packet::Ready(mut ready) => match ready.key_mut() {
            Peer::Listener(listener) => {
                let stream = accept(listener);
                // First, so that nothing that follows can keep the listener from it.
                let _ = ready.rearm();
                if let Some(stream) = stream {
                    welcome(port, store, stream);
                }
            }
            Peer::Client(_) => work(port, ready),
        },
        // The end of the server, or of a subscriber that did not read: it gets what there is room
        // for.
        Packet::Removed(_, Peer::Client(mut client)) => drop(client.flush()),
        Packet::Posted(Sweep) => store.sweep(),
        _ => {}
    }
}

fn welcome(port: &OurPort, store: &Arc<Store>, stream: TcpStream) {
    let client = Peer::Client(Client { stream, session: Session::new(store), has_ended: false });
    // A refused client is closed.
    drop(port.register(Registration::owned(client, Interest::IN, OneShot::Level)));
}

/// Calls the handler of client `id`, which then reads its mailbox.
fn caller(port: &Weak<OurPort>, id: Id) -> Caller {
    let port = Weak::clone(port);
    Box::new(move |call| {
        port.upgrade().is_some_and(|port| match call {
            Call::Mail => port.enable_also(id, Interest::OUT).is_ok(),
            Call::CutOff => port.remove(id).is_ok(),
        })
    })
}

/// Handles the packet of a client.
fn work(port: &Arc<OurPort>, mut ready: Ready<'_, Peer>) {
    let (id, events) = (ready.id(), ready.events());
    let Peer::Client(client) = ready.key_mut() else { return };
    // An error ends only this client: its token is dropped.
    let Ok(Some((next, progress))) = client.work(&|| caller(&Arc::downgrade(port), id), events)
    else {
        return;
    };
    let _ = match progress {
        Progress::Waits(Some(until)) => ready.rearm_as_until(next, OneShot::Level, until),
        _ => ready.rearm_as(next, OneShot::Level),
    };
}

impl Client {
    /// Returns the interest to rearm with, or `None` if the connection has ended.
    fn work(
        &mut self,
        caller: &dyn Fn() -> Caller,
        events: Events,
    ) -> io::Result<Option<(Interest, Progress)>> {
        // Reading is paused while it waits, so only this shows that the client has gone.
        if self.session.is_blocked() && (events.is_hangup() || events.is_err()) {
            return Ok(None);
        }
        // Requests of the last time, and what others have sent.
        let mut progress = self.execute(caller)?;
        // Bounded, so that a client that sends constantly does not occupy this thread.
        for _ in 0..16 {
            if progress != Progress::Reads || self.is_full() {
                break;
            }
            let is_all = self.receive()?;
            progress = self.execute(caller)?;
            if is_all {
                break;
            }
        }
        Ok(self.next_interest(progress).map(|next| (next, progress)))
    }

    /// Executes requests and sends the replies.
    fn execute(&mut self, caller: &dyn Fn() -> Caller) -> io::Result<Progress> {
        let mut progress = self.session.execute(caller);
        self.flush()?;
        // As long as its replies find room.
        for _ in 0..16 {
            if progress != Progress::Full || self.is_full() {
                break;
            }
            progress = self.session.execute(caller);
            self.flush()?;
        }
        Ok(progress)
    }

    /// If another client sends something after this has looked, its `enable_also` adds OUT.
    fn next_interest(&self, progress: Progress) -> Option<Interest> {
        let mut next = if self.is_full() { Interest::OUT } else { Interest::NONE };
        match progress {
            Progress::Waits(_) => next |= Interest::HANGUP,
            // Further requests are executed once there is room for their replies.
            Progress::Full => next |= Interest::OUT,
            // Nobody reads from a client that does not read.
            Progress::Reads if next == Interest::NONE => next |= Interest::IN,
            Progress::Reads | Progress::Ends => {}
        }
        (next != Interest::NONE).then_some(next)
    }

    /// Replies are left, since the client does not read.
    fn is_full(&self) -> bool {
        !self.session.output.is_empty()
    }

    /// Reads a portion. Returns whether nothing is left.
    fn receive(&mut self) -> io::Result<bool> {
        if self.has_ended {
            return Ok(true);
        }
        let (stream, input) = (&mut self.stream, self.session.input());
        let read = BUFFER.with_borrow_mut(|buffer| {
            let read = stream.read(buffer);
            input.extend_from_slice(&buffer[..*read.as_ref().unwrap_or(&0)]);
            read
        });
        match read {
            Ok(0) => {
                self.has_ended = true;
                self.session.end_input();
                Ok(true)
            }
            Ok(read) => Ok(read < PORTION),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        send(&mut self.stream, &mut self.session.output)
    }
}
