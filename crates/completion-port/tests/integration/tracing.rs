//! Feature `tracing`: a subscriber is user code, and may call the port like other user code.

use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use completion_port::{
    Batch, BlockDetection, Interest, OneShot, Operation, Packet, Port, Registration, SharedSource,
    Started,
};
use testkit::{SOON, Socket, System, on_edge_triggered_systems, on_every_system};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id as SpanId, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber, subscriber};

/// An event as one line: its message, then its fields in brackets.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            write!(self.fields, "[{}={value:?}]", field.name()).unwrap();
        }
    }
}

/// Calls its function with each event of this library, except for events that the function itself
/// causes.
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
            let mut line = Line::default();
            event.record(&mut line);
            (self.0)(&format!("{} {}{}", event.metadata().level(), line.message, line.fields));
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
        // With a single subscriber, `tracing` asks the calling thread, which has none while it
        // handles an event, and caches the answer for each callsite.
        let _another = Dispatch::new(Listener(|_: &str| {}));
        subscriber::with_default(Listener(listen), act);
    });
    let ended = end.recv_timeout(SOON);
    assert_eq!(ended, Err(mpsc::RecvTimeoutError::Disconnected), "it is stuck");
    test.join().unwrap();
}

/// Checks that docs/STALLS.md lists each event with its fields, or names them for all events.
fn assert_explained(told: &[String]) {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/STALLS.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, page) = page.split_once("## The events").unwrap();
    let (common, list) = page.split_once("\n- ").unwrap();
    let items: Vec<_> = list.split("\n- ").collect();
    for line in told {
        let (_, event) = line.split_once(' ').unwrap();
        let (message, fields) = event.split_once('[').unwrap();
        let item = items.iter().find(|item| item.starts_with(&format!("`{message}` (")));
        let item = item.unwrap_or_else(|| panic!("docs/STALLS.md does not list `{message}`"));
        for field in fields.split('[') {
            let name = format!("`{}`", field.split_once('=').unwrap().0);
            let is_explained = item.contains(&name) || common.contains(&name);
            assert!(is_explained, "{name} of `{message}` is not explained");
        }
    }
}

fn one_shot(socket: &Socket) -> Registration<'_, u32> {
    Registration::new(socket, 7, Interest::IN, OneShot::Level)
}

/// Takes packets until `is_it` returns true.
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
    /// If the emitting call held a lock that registration or removal takes, this test would
    /// deadlock.
    fn a_subscriber_may_register_and_remove_whatever_it_is_told(system: &System) {
        let port = Arc::new(system.port::<u32, usize>(1));
        // Enough for one in each part of the descriptor table.
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
        // On kqueue, nothing outlives the descriptor number that it was created for.
        let has_stale_events = !system.is_kqueue();
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

            // The registration has ended, but the kernel keeps reporting events.
            let lives_on = closed.dup().unwrap();
            port.register(one_shot(&closed)).unwrap();
            lives_on.signal(1).unwrap();
            let mut batch = Batch::new();
            let token = port.wait(&mut batch, None).unwrap().next();
            drop(closed);
            drop(token);
            while has_stale_events && port.stats().rebuilds == 0 {
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
        assert_eq!(times("removed"), 3, "{told:?}");
        assert_eq!(times("reported"), 3, "{told:?}");
        assert_eq!(times("ended"), 6, "{told:?}");
        assert_eq!(times("stale"), usize::from(has_stale_events), "{told:?}");
        assert_explained(&told);
    }
}

on_every_system! {
    /// Each operation is started once, and completed or refused once, however it ends and whether
    /// or not it makes a packet.
    fn each_operation_is_told_of_from_its_start_to_its_end(system: &System) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let listen = {
            let told = Arc::clone(&told);
            move |line: &str| told.lock().unwrap().push(line.to_owned())
        };
        let port = system.port::<SharedSource<Socket>, usize>(1);
        let ((own, far), (near, _other)) = (system.unix_pair(), system.unix_pair());
        listening(listen, move || {
            let room = || Vec::with_capacity(4);
            let mut batch = Batch::new();
            let next = |batch: &mut Batch| {
                let Some(Packet::Completed(done)) = port.wait(batch, None).unwrap().next() else { panic!() };
                done.into_parts().0
            };
            let token = port.associate(SharedSource::new(own)).unwrap();
            // Completes immediately, without a packet.
            let sent = token.start_now(Operation::send(b"a".to_vec())).unwrap();
            let Started::Completed((token, _)) = sent else { panic!("there is room for it") };
            // Completes immediately, with a packet.
            token.send(b"b".to_vec()).unwrap();
            let token = next(&mut batch);
            // Completes after an edge.
            token.recv(room()).unwrap();
            far.write(b"x").unwrap();
            let token = next(&mut batch);
            // Is cancelled.
            let receive = token.recv(room()).unwrap();
            assert!(port.cancel(receive).unwrap());
            let token = next(&mut batch);
            // The same steps on a shared association.
            let id = port.associate_shared(SharedSource::new(near)).unwrap();
            port.start_now(id, Operation::send(b"c".to_vec())).unwrap();
            port.start(id, Operation::recv_from(room())).unwrap();
            // Refused or cancelled because the port is closed.
            port.close();
            token.recv(room()).unwrap_err();
            port.start(id, Operation::send(b"d".to_vec())).unwrap_err();
            let mut packets = port.wait(&mut batch, None).unwrap();
            assert!(matches!(packets.next(), Some(Packet::SharedCompleted(_))));
        });
        let told = told.lock().unwrap();
        let seen: Vec<_> = told
            .iter()
            .filter_map(|line| {
                let mut fields = line.split(['[', ']']).map(str::trim).filter(|part| !part.is_empty());
                let what = fields.next().unwrap().split(' ').nth(1).unwrap().to_owned();
                let told: Vec<_> = fields
                    .filter(|field| ["operation=", "error=", "call=", "kind="].iter().any(|it| field.starts_with(it)))
                    .collect();
                let is_of_operation = ["started", "completed", "refused"].contains(&what.as_str());
                is_of_operation.then(|| format!("{what} {}", told.join(" ")))
            })
            .collect();
        let expected = [
            "started operation=Send",
            "completed operation=Send",
            "started operation=Send",
            "completed operation=Send",
            "started operation=Receive",
            "completed operation=Receive",
            "started operation=Receive",
            "completed operation=Receive error=Cancelled",
            "started operation=Send",
            "completed operation=Send",
            "started operation=Receive",
            "refused call=Receive kind=Closed",
            "refused call=Send kind=Closed",
            "completed operation=Receive error=Cancelled",
        ];
        assert_eq!(seen, expected, "{told:#?}");
        assert_explained(&told);
    }

    /// Registered, reported, enabled by a token, through its `Id` and for one more report, refused,
    /// removed, ended: each event has the id that the call returned.
    fn each_event_has_the_name_of_its_registration(system: &System) {
        let port = Arc::new(system.port::<u32, usize>(1));
        let event = system.event();
        let number = event.number();
        let told = Arc::new(Mutex::new(Vec::new()));
        let listen = {
            let told = Arc::clone(&told);
            move |line: &str| told.lock().unwrap().push(line.to_owned())
        };
        let acting = Arc::clone(&port);
        let (names, named) = mpsc::channel();
        listening(listen, move || {
            let port = acting;
            let id = port.register(one_shot(&event)).unwrap();
            let _ = port.register(one_shot(&event)).unwrap_err();
            event.signal(1).unwrap();
            take_until(&port, |packet| {
                let Packet::Ready(ready) = packet else { return false };
                ready.rearm().unwrap();
                true
            });
            port.enable(id, Interest::IN, OneShot::Level).unwrap();
            port.enable_also(id, Interest::OUT).unwrap();
            port.remove(id).unwrap();
            take_until(&port, |packet| matches!(packet, Packet::Removed(_, 7)));
            port.enable(id, Interest::IN, OneShot::Level).unwrap_err();
            port.enable_also(id, Interest::OUT).unwrap_err();
            port.close();
            let _ = port.post(1).unwrap_err();
            names.send(id).unwrap();
        });
        let id = named.recv().unwrap();
        let told = told.lock().unwrap();
        let seen: Vec<String> = told
            .iter()
            .map(|line| {
                // The port's number differs between runs, and the format of a mode isn't part of
                // the contract.
                let parts = line.split_inclusive(['[', ']']).collect::<Vec<_>>().concat();
                let mut fields = parts.split('[');
                let mut kept = fields.next().unwrap().to_owned();
                for field in fields {
                    if !field.starts_with("port=") && !field.starts_with("mode=") {
                        write!(kept, " {}", field.trim_end_matches(']')).unwrap();
                    }
                }
                kept
            })
            .collect();
        let expected = [
            format!("DEBUG registered registration={id:?} descriptor={number}"),
            format!("DEBUG refused call=Register kind=AlreadyRegistered descriptor={number}"),
            format!("TRACE reported registration={id:?} descriptor={number} events=IN"),
            format!("TRACE enabled registration={id:?}"),
            format!("DEBUG enabled registration={id:?}"),
            format!("DEBUG enabled also registration={id:?} interest=OUT"),
            format!("DEBUG removed registration={id:?} descriptor={number}"),
            format!("DEBUG ended registration={id:?} descriptor={number}"),
            format!("DEBUG refused call=Enable kind=NotRegistered registration={id:?}"),
            format!("DEBUG refused call=Enable kind=NotRegistered registration={id:?}"),
            "DEBUG refused call=Post kind=Closed".to_owned(),
        ];
        assert_eq!(seen, expected, "{told:#?}");
        assert!(told.iter().all(|line| line.contains("[port=")), "{told:?}");
        assert_explained(&told);
    }

    /// The event names the woken thread by its worker. A panic of the subscriber doesn't prevent
    /// the wake-up.
    fn a_wake_is_told_whatever_the_subscriber_does(system: &System) {
        system.several_threads_wait();
        let port = Arc::new(system.port::<u32, usize>(1));
        let waiter = {
            let port = Arc::clone(&port);
            thread::spawn(move || take_until(&port, |packet| matches!(packet, Packet::Posted(3))))
        };
        while port.stats().parked == 0 {
            thread::yield_now();
        }
        let worker = port.thread_stats()[0].worker;
        let (tell, told) = mpsc::channel();
        let listen = move |line: &str| {
            if line.contains("woken") {
                tell.send(line.to_owned()).unwrap();
                panic!("a subscriber may");
            }
        };
        let acting = Arc::clone(&port);
        listening(listen, move || acting.post(3).unwrap());
        waiter.join().unwrap();
        let told: Vec<_> = told.iter().collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("TRACE woken[port="), "{told:?}");
        assert!(told[0].contains(&format!("[worker={worker}]")), "{told:?}");
        assert_explained(&told);
    }
}

#[test]
fn a_thread_that_is_found_asleep_is_told_of() {
    testkit::run(System::native, tells_of_a_thread_that_is_found_asleep);
}

fn tells_of_a_thread_that_is_found_asleep(system: &System) {
    system.not_on_windows("call that reports a sleeping thread");
    let port: Port<u32, usize> =
        Port::builder().concurrency(1).block_detection(BlockDetection::Tick).build().unwrap();
    let port = Arc::new(port);
    let (answer, question) = mpsc::channel::<()>();
    let sleeper = {
        let port = Arc::clone(&port);
        thread::spawn(move || {
            take_until(&port, |packet| {
                let is_it = matches!(packet, Packet::Posted(1));
                // It sleeps unannounced.
                let _ = question.recv();
                is_it
            });
        })
    };
    while port.stats().parked == 0 {
        thread::yield_now();
    }
    let worker = port.thread_stats()[0].worker;
    port.post(1).unwrap();
    while port.stats().packets.posted == 0 {
        thread::yield_now();
    }
    port.post(2).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let listen = {
        let told = Arc::clone(&told);
        move |line: &str| told.lock().unwrap().push(line.to_owned())
    };
    let acting = Arc::clone(&port);
    listening(listen, move || take_until(&acting, |packet| matches!(packet, Packet::Posted(2))));
    drop(answer);
    sleeper.join().unwrap();
    let told = told.lock().unwrap();
    let wanted = format!("[worker={worker}]");
    assert!(
        told.iter().any(|line| line.starts_with("DEBUG found asleep") && line.contains(&wanted)),
        "{told:?}"
    );
    assert_explained(&told);
}
