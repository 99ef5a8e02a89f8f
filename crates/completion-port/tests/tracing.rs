//! Feature `tracing`: a subscriber is user code, and may do with a port what user code may do.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::cell::Cell;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
use testkit::{Socket, on_edge_triggered_systems};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id as SpanId, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber, subscriber};

/// The message of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// Calls its function with the message of each event of this library, unless that call is what emits it.
struct Listener<F>(F);

impl<F: Fn(&str) + 'static> Subscriber for Listener<F>
where
    F: Send + Sync,
{
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "completion_port"
    }
    fn new_span(&self, _: &Attributes<'_>) -> SpanId {
        SpanId::from_u64(1)
    }
    fn record(&self, _: &SpanId, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &SpanId, _: &SpanId) {}
    fn event(&self, event: &Event<'_>) {
        thread_local! {
            static LISTENS: Cell<bool> = const { Cell::new(true) };
        }
        if LISTENS.replace(false) {
            let mut message = Message::default();
            event.record(&mut message);
            (self.0)(&message.0);
            LISTENS.set(true);
        }
    }
    fn enter(&self, _: &SpanId) {}
    fn exit(&self, _: &SpanId) {}
}

/// Runs `act` with such a listener, in a thread that must not get stuck.
fn listening(listen: impl Fn(&str) + Send + Sync + 'static, act: impl FnOnce() + Send + 'static) {
    let (done, end) = mpsc::channel::<()>();
    let test = thread::spawn(move || {
        let _done = done;
        // Of a single subscriber `tracing` asks the calling thread, which has none while it is in an event,
        // and remembers the answer for each place that emits one.
        let _another = Dispatch::new(Listener(|_: &str| {}));
        subscriber::with_default(Listener(listen), act);
    });
    let ended = end.recv_timeout(Duration::from_secs(30));
    assert_eq!(ended, Err(mpsc::RecvTimeoutError::Disconnected), "it is stuck");
    test.join().unwrap();
}

fn one_shot(socket: &Socket) -> Registration<'_, u32> {
    Registration::new(socket, 7, Interest::IN, OneShot::Level)
}

/// Takes packets until one is of that kind.
fn take_until(port: &Port<u32, usize>, is_it: impl Fn(Packet<'_, u32, usize>) -> bool) {
    let mut batch = Batch::new();
    loop {
        for packet in port.wait(&mut batch, None).unwrap() {
            if is_it(packet) {
                return;
            }
        }
    }
}

on_edge_triggered_systems! {
    /// Whatever is locked by the calls that emit events, this would wait for it.
    fn a_subscriber_may_register_and_remove_whatever_it_is_told(system: &System) {
        let port = Arc::new(system.port::<u32, usize>(1));
        // As many as it takes to have one for each part of the table of descriptors.
        let others: Arc<Vec<_>> = Arc::new((0..64).map(|_| system.event()).collect());
        let (ours, theirs) = system.unix_pair();
        let (closed, owned) = (system.event(), system.event());
        let told = Arc::new(Mutex::new(Vec::new()));
        let listen = {
            let (port, told) = (Arc::clone(&port), Arc::clone(&told));
            move |message: &str| {
                told.lock().unwrap().push(message.to_owned());
                for other in others.iter() {
                    let id = port.register(one_shot(other)).unwrap();
                    assert_eq!(port.remove_and_wait(id, None).unwrap(), 7);
                }
            }
        };
        let acting = Arc::clone(&port);
        listening(listen, move || {
            let port = acting;
            let id = port.register(one_shot(&ours)).unwrap();
            port.remove_and_wait(id, None).unwrap();
            let id = port.register(one_shot(&ours)).unwrap();
            port.remove(id).unwrap();
            take_until(&port, |packet| matches!(packet, Packet::Removed(_, 7)));
            let id = port.register(one_shot(&ours)).unwrap();
            port.raw().forget(id).unwrap();
            port.register(one_shot(&ours)).unwrap();
            theirs.write(b"x").unwrap();
            take_until(&port, |packet| matches!(packet, Packet::Ready(_)));

            // A registration that has ended, of which the kernel goes on to tell.
            let lives_on = closed.dup().unwrap();
            port.register(one_shot(&closed)).unwrap();
            lives_on.signal(1).unwrap();
            let mut batch = Batch::new();
            let token = port.wait(&mut batch, None).unwrap().next();
            drop(closed);
            drop(token);
            while port.stats().rebuilds == 0 {
                lives_on.signal(1).unwrap();
                assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
            }
            port.register(one_shot(&owned)).unwrap();
            owned.signal(1).unwrap();
            take_until(&port, |packet| matches!(packet, Packet::Ready(_)));
        });
        let told = told.lock().unwrap();
        let times = |wanted: &str| told.iter().filter(|message| message.contains(wanted)).count();
        assert_eq!(times("registered"), 6, "{told:?}");
        assert_eq!(times("ended"), 6, "{told:?}");
        assert_eq!(times("stale"), 1, "{told:?}");
    }
}
