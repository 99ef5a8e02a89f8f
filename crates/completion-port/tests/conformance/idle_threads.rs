//! Rule 79: what a program learns when no idle thread is left.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, BlockDetection, Packet, Port};
use testkit::{System, on_every_system};

use crate::kit::packets::messages;

/// A port for this many threads that counts the calls of its hook.
fn counting<M>(on: &System, concurrency: usize) -> (Port<(), M>, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let hook = move || {
        counter.fetch_add(1, SeqCst);
    };
    let builder = Port::builder().concurrency(concurrency).on_no_idle(hook);
    let port = on.built(builder.block_detection(BlockDetection::Announced)).unwrap();
    (port, calls)
}

/// Waits until `holds`.
#[track_caller]
fn until(on: &System, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < on.soon(), "it does not come");
        thread::yield_now();
    }
}

/// A handler that reports that it runs, and continues when the test says so.
type Handler = Box<dyn FnOnce() + Send>;

fn serve(port: &Port<(), Handler>) {
    let mut batch = Batch::with_capacity(1);
    while let Ok(packets) = port.wait(&mut batch, None) {
        for packet in packets {
            if let Packet::Posted(handler) = packet {
                handler();
            }
        }
    }
}

/// Posts a handler that runs until something is sent.
fn occupy(port: &Port<(), Handler>, on: &System) -> Sender<()> {
    let (begin, begun) = channel();
    let (end, ended) = channel::<()>();
    port.post(Box::new(move || {
        begin.send(()).unwrap();
        let _ = ended.recv();
    }))
    .unwrap();
    begun.recv_timeout(on.soon()).expect("no thread takes it");
    end
}

on_every_system! {
    /// Rule 79.
    fn the_hook_runs_when_the_last_idle_thread_leaves(system: &System) {
        let (port, calls) = counting(system, 3);
        let count = || calls.load(SeqCst);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| serve(&port));
            }
            until(system, || port.idle_threads() == 2);
            let first = occupy(&port, system);
            assert_eq!((port.idle_threads(), count()), (1, 0));
            let second = occupy(&port, system);
            assert_eq!((port.idle_threads(), count()), (0, 1));
            // A thread that comes is idle again, and leaves again.
            drop(first);
            until(system, || port.idle_threads() == 1);
            assert_eq!(count(), 1);
            let third = occupy(&port, system);
            assert_eq!((port.idle_threads(), count()), (0, 2));
            drop((second, third));
            port.close();
        });
    }

    /// Rule 79: packets that come meanwhile wait for a thread.
    fn a_thread_that_always_finds_packets_runs_it_at_each_wait(system: &System) {
        let (port, calls) = counting::<u32>(system, 1);
        let mut batch = Batch::with_capacity(1);
        for message in 1..=4 {
            port.post(message).unwrap();
        }
        for message in 1..=4 {
            let packet = port.wait(&mut batch, None).unwrap().next();
            assert!(matches!(packet, Some(Packet::Posted(number)) if number == message));
            assert_eq!(calls.load(SeqCst), message as usize);
        }
    }

    /// Rule 79.
    fn a_wait_without_a_packet_does_not_run_it(system: &System) {
        let (port, calls) = counting::<u32>(system, 1);
        let mut batch = Batch::new();
        for timeout in [Duration::ZERO, Duration::from_millis(1)] {
            assert_eq!(port.wait(&mut batch, Some(timeout)).unwrap().count(), 0);
        }
        port.close();
        assert!(port.wait(&mut batch, None).is_err());
        assert_eq!((port.idle_threads(), calls.load(SeqCst)), (0, 0));
    }

    /// Rule 79: blocking frees a seat, and nobody is there for it.
    fn a_thread_that_blocks_runs_it_unless_another_one_is_idle(system: &System) {
        let (port, calls) = counting::<Handler>(system, 1);
        port.post(Box::new(|| {})).unwrap();
        let mut batch = Batch::new();
        let mut packets = port.wait(&mut batch, None).unwrap();
        assert!(packets.next().is_some());
        assert_eq!(calls.load(SeqCst), 1);
        port.blocking(|| assert_eq!((port.idle_threads(), calls.load(SeqCst)), (0, 2)));
        // A nested announcement says nothing new.
        port.blocking(|| port.blocking(|| assert_eq!(calls.load(SeqCst), 3)));
        thread::scope(|scope| {
            scope.spawn(|| serve(&port));
            until(system, || port.idle_threads() == 1);
            port.blocking(|| assert_eq!(calls.load(SeqCst), 3));
            drop(packets);
            port.close();
        });
        // A thread that is not at the port does not count.
        thread::scope(|scope| scope.spawn(|| port.blocking(|| ())).join().unwrap());
    }

    /// Rule 79: each handler waits for the next one, for which no thread is there.
    fn a_pool_that_grows_on_demand_does_not_starve(system: &System) {
        const DEPTH: usize = 5;
        for announces in [false, true] {
            let (grow, needed) = sync_channel(1);
            let builder = Port::builder()
                .concurrency(if announces { 1 } else { DEPTH })
                .on_no_idle(move || { let _ = grow.try_send(()); });
            let port: Port<(), usize> = system.built(builder).unwrap();
            let (send, receive): (Vec<_>, Vec<_>) = (0..=DEPTH).map(|_| channel::<()>()).unzip();
            let send = Mutex::new(send);
            let receive = receive.into_iter().map(|it| Mutex::new(Some(it))).collect::<Vec<_>>();
            let handle = |depth: usize| {
                let next: Option<Receiver<()>> = receive[depth + 1].lock().unwrap().take();
                if depth + 1 < DEPTH {
                    port.post(depth + 1).unwrap();
                    let next = next.unwrap();
                    let answer = || next.recv().unwrap();
                    if announces { port.blocking(answer) } else { answer() }
                }
                let answer = send.lock().unwrap()[depth].clone();
                answer.send(()).unwrap();
            };
            let serve = || {
                let mut batch = Batch::new();
                while let Ok(packets) = port.wait(&mut batch, None) {
                    for packet in packets {
                        if let Packet::Posted(depth) = packet {
                            handle(depth);
                        }
                    }
                }
            };
            let threads = thread::scope(|scope| {
                let answer = receive[0].lock().unwrap().take().unwrap();
                let begun = Instant::now();
                port.post(0).unwrap();
                scope.spawn(serve);
                let mut threads = 1;
                while answer.try_recv().is_err() {
                    if needed.recv_timeout(Duration::from_millis(1)).is_ok() {
                        threads += 1;
                        scope.spawn(serve);
                    }
                    if begun.elapsed() > system.soon() {
                        // The handlers then fail, and the test with them.
                        send.lock().unwrap().clear();
                        break;
                    }
                }
                port.close();
                threads
            });
            // One for each handler. Each may have asked for one more, when it blocked.
            assert!((DEPTH..=2 * DEPTH + 1).contains(&threads), "{threads}");
        }
    }

    /// Rule 79: no lock is held, and a panic loses no packet.
    fn the_hook_may_call_the_port_and_may_panic(system: &System) {
        let place: Arc<OnceLock<Weak<Port<(), u32>>>> = Arc::default();
        let panics = AtomicBool::new(true);
        let port = {
            let place = Arc::clone(&place);
            let hook = move || {
                let port = place.get().and_then(Weak::upgrade).expect("it is waited on");
                assert_eq!((port.idle_threads(), port.stats().running), (0, 1));
                if panics.swap(false, SeqCst) {
                    port.post(2).unwrap();
                    panic!("as intended");
                }
            };
            Arc::new(system.built(Port::builder().concurrency(1).on_no_idle(hook)).unwrap())
        };
        place.set(Arc::downgrade(&port)).unwrap();
        port.post(1).unwrap();
        let mut batch = Batch::new();
        let panicked = catch_unwind(AssertUnwindSafe(|| drop(port.wait(&mut batch, None))));
        assert!(panicked.is_err());
        assert_eq!(messages(port.wait(&mut batch, None).unwrap()), [1, 2]);
    }
}
