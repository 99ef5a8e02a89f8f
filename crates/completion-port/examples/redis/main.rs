//! A small server with the protocol of Redis: PING, ECHO, GET, SET, DEL, LPUSH, RPUSH, BLPOP,
//! PUBLISH, SUBSCRIBE, UNSUBSCRIBE and QUIT.
//!
//! `cargo run --example redis 127.0.0.1:6379`, and `redis-cli` in another terminal. SIGTERM or
//! Ctrl-C ends it.
//!
//! A client may send many requests without waiting for replies. While it doesn't read the replies, or waits in BLPOP,
//! the server neither executes its further requests nor reads more of them.

mod commands;
#[path = "../common/mod.rs"]
mod common;
mod resp;
#[path = "../common/serve.rs"]
mod serve;
mod store;

use std::collections::HashSet;
use std::error::Error;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use common::{Found, accept, asked_to_end, listen, lock, receive, send};
use completion_port::{
    BorrowedSource, Events, Id, Interest, OneShot, Packet, Port, Ready, Registration, Source,
};
use store::{Outbox, Store};

/// No further request of a client with this many unsent bytes is executed.
const HIGH_WATER: usize = 64 * 1024;

enum Peer {
    Listener(TcpListener),
    Client(Client),
}

struct Client {
    stream: TcpStream,
    /// Requests that were not executed yet.
    input: Vec<u8>,
    outbox: Outbox,
    store: Arc<Mutex<Store>>,
    /// Known from the first packet on.
    id: Option<Id>,
    subscriptions: HashSet<Vec<u8>>,
    blocked: Option<Wait>,
    /// The client sends nothing more.
    has_ended: bool,
    /// No request is executed any more: the client has sent QUIT, or what is no request.
    has_quit: bool,
}

/// A client waits for an element of a list, and may have a deadline.
#[derive(Clone, Copy)]
struct Wait {
    until: Option<Instant>,
}

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.as_source(),
            Self::Client(client) => client.stream.as_source(),
        }
    }
}

impl Drop for Client {
    /// However it ends, nothing is sent to it any more.
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let mut store = lock(&self.store);
            store.unblock(id);
            self.subscriptions.iter().for_each(|channel| store.unsubscribe(channel, id));
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let end = asked_to_end()?;
    let (port, store) = (Port::new()?, Arc::default());
    let listener = Peer::Listener(listen()?);
    port.register(Registration::owned(listener, Interest::IN, OneShot::Level))?;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| serve::serve(&port, |packet| handle(&port, &store, packet)));
        }
        let _ = end.recv();
        // A packet returns each key, then the waits end.
        port.shutdown()
    })?;
    Ok(())
}

fn handle(port: &Port<Peer>, store: &Arc<Mutex<Store>>, packet: Packet<'_, Peer, ()>) {
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
        _ => {}
    }
}

fn welcome(port: &Port<Peer>, store: &Arc<Mutex<Store>>, stream: TcpStream) {
    let (input, outbox, subscriptions) = Default::default();
    let client = Peer::Client(Client {
        stream,
        input,
        outbox,
        store: Arc::clone(store),
        id: None,
        subscriptions,
        blocked: None,
        has_ended: false,
        has_quit: false,
    });
    // A refused client is closed.
    drop(port.register(Registration::owned(client, Interest::IN, OneShot::Level)));
}

/// Handles the packet of a client.
fn work(port: &Port<Peer>, mut ready: Ready<'_, Peer>) {
    let (id, events) = (ready.id(), ready.events());
    let Peer::Client(client) = ready.key_mut() else { return };
    client.id = Some(id);
    // An error ends only this client: its token is dropped.
    let Ok(Some(interest)) = client.work(port, id, events) else { return };
    let _ = match client.blocked {
        Some(Wait { until: Some(until) }) => ready.rearm_as_until(interest, OneShot::Level, until),
        _ => ready.rearm_as(interest, OneShot::Level),
    };
}

impl Client {
    /// Returns the interest to rearm with, or `None` if the connection has ended.
    fn work(&mut self, port: &Port<Peer>, id: Id, events: Events) -> io::Result<Option<Interest>> {
        if let Some(wait) = self.blocked {
            // Reading is paused, so only this shows that the client has gone.
            if events.is_hangup() || events.is_err() {
                return Ok(None);
            }
            self.wake(id, wait);
        }
        let mut is_done = false;
        // Bounded, so that a client that sends constantly does not occupy this thread.
        for _ in 0..16 {
            is_done = self.execute(port, id);
            self.flush()?;
            if self.blocked.is_some() || self.is_full() || (is_done && self.has_ended) {
                break;
            }
            if is_done {
                match receive(&mut self.stream, &mut self.input)? {
                    Found::Bytes => is_done = false,
                    Found::Nothing => break,
                    Found::End => self.has_ended = true,
                }
            }
        }
        Ok(self.next_interest(is_done))
    }

    /// If another thread fills the outbox after this has looked, its `enable_also` adds OUT.
    fn next_interest(&self, is_done: bool) -> Option<Interest> {
        let unsent = lock(&self.outbox).len();
        let mut next = if unsent > 0 { Interest::OUT } else { Interest::NONE };
        if self.blocked.is_some() {
            next |= Interest::HANGUP;
        } else if !is_done {
            // Further requests are executed once there is room for their replies.
            next |= Interest::OUT;
        } else if !self.has_ended && unsent < HIGH_WATER {
            next |= Interest::IN;
        }
        (next != Interest::NONE).then_some(next)
    }

    /// Ends the waiting of a client that has got its element, or has waited for long enough.
    fn wake(&mut self, id: Id, wait: Wait) {
        let mut store = lock(&self.store);
        if !store.is_blocked(id) {
            self.blocked = None;
        } else if wait.until.is_some_and(|until| until <= Instant::now()) {
            store.unblock(id);
            resp::nil_array(&mut lock(&self.outbox));
            self.blocked = None;
        }
    }

    /// Executes the requests that have arrived. Returns false if some are left: the client waits
    /// for an element, or does not read its replies.
    fn execute(&mut self, port: &Port<Peer>, id: Id) -> bool {
        let input = std::mem::take(&mut self.input);
        let mut used = 0;
        let is_done = loop {
            if self.blocked.is_some() || self.is_full() {
                break false;
            }
            match resp::parse(&input[used..]) {
                Ok(Some(request)) => {
                    used += request.length;
                    if !request.words.is_empty() {
                        self.run(port, id, &request.words);
                    }
                }
                Ok(None) => break true,
                Err(text) => {
                    resp::error(&mut lock(&self.outbox), &format!("ERR Protocol error: {text}"));
                    self.has_quit = true;
                }
            }
            if self.has_quit {
                self.has_ended = true;
                used = input.len();
                break true;
            }
        };
        self.input = input;
        self.input.drain(..used);
        is_done
    }

    fn is_full(&self) -> bool {
        lock(&self.outbox).len() >= HIGH_WATER
    }

    fn flush(&mut self) -> io::Result<()> {
        send(&mut self.stream, &mut lock(&self.outbox))
    }
}
