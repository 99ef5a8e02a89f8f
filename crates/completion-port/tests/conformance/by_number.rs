//! Registrations that are known only by descriptor number and id, without tokens. Other languages
//! use them.

use std::cell::Cell;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::raw::{AnyTrigger, Hints};
use completion_port::{
    Batch, ErrorKind, Events, Id, Interest, OneShot, Packet, Persistent, Port, Trigger,
};
use testkit::{
    Socket, System, in_a_process_of_its_own, on_edge_triggered_systems, on_every_system,
};

use crate::kit::descriptors::with_many_descriptors;
use crate::kit::ledger::{Entry, Ledger};
use crate::kit::threads::{let_be_told, settle};

const ONCE: OneShot = OneShot::Level;

/// Returns the next packet's id, events and key.
fn next(port: &Port<usize, usize>) -> Option<(Id, Events, usize)> {
    let mut batch = Batch::new();
    let packet = port.raw().wait_cloned(&mut batch, Duration::ZERO).unwrap().next();
    packet.map(|packet| match packet {
        Packet::Notified(notified) => (notified.id(), notified.events(), *notified.key()),
        other => panic!("{other:?}"),
    })
}

fn register(
    port: &Port<usize, usize>,
    socket: &Socket,
    key: usize,
    trigger: impl Trigger<usize>,
) -> Id {
    port.raw().register_number(socket.number(), key, Interest::IN, trigger).unwrap()
}

/// A key that counts its clones, as those of the C library do.
struct Counted(Arc<AtomicUsize>);

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.0.fetch_add(1, SeqCst);
        Self(Arc::clone(&self.0))
    }
}

thread_local! {
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

/// A key whose clone panics on demand.
struct Fragile;

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(!REFUSES.get(), "told to");
        Self
    }
}

type Act = Box<dyn FnOnce() + Send>;

/// A key that the ledger counts, and whose next clone first calls a function.
struct Watched {
    entry: Entry,
    at_clone: Arc<Mutex<Option<Act>>>,
}

impl Watched {
    fn new(ledger: &Ledger) -> Self {
        Self { entry: ledger.entry(), at_clone: Arc::default() }
    }
}

impl Clone for Watched {
    fn clone(&self) -> Self {
        if let Some(act) = self.at_clone.lock().unwrap().take() {
            act();
        }
        Self { entry: self.entry.clone(), at_clone: Arc::default() }
    }
}

/// Returns the peak memory of this process in KiB, or 0 where the system does not list it.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or(0, |peak| peak.trim().trim_end_matches(" kB").parse().unwrap())
}

/// One thread waits without a timeout and takes packets while another constantly polls. Checks that
/// the waiting thread handles what `act` causes in each round in time. `take` returns how many
/// rounds a packet completes.
fn beside_one_that_asks(
    system: &System,
    port: &Port<usize, usize>,
    rounds: usize,
    take: impl Fn(Packet<'_, usize, usize>) -> usize + Sync,
    act: impl Fn(usize),
) {
    let (taken, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let late = thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = Batch::new();
            while let Ok(packets) = port.raw().wait_cloned(&mut batch, None) {
                for packet in packets {
                    taken.fetch_add(take(packet), SeqCst);
                }
            }
        });
        scope.spawn(|| {
            let mut batch = Batch::new();
            while !is_over.load(SeqCst) {
                let _ = port.raw().has_packets(&mut batch);
                thread::yield_now();
            }
        });
        let late = (1..=rounds).find(|round| {
            // Vary the delay to hit the thread at each place on its way to sleep.
            (0..round % 64 * 8).for_each(|_| std::hint::spin_loop());
            act(*round);
            let is_answered = || taken.load(SeqCst) == *round;
            let begun = std::time::Instant::now();
            while !is_answered() && begun.elapsed() < system.soon() {
                thread::yield_now();
            }
            !is_answered()
        });
        is_over.store(true, SeqCst);
        port.raw().abandon();
        late
    });
    assert_eq!(late, None, "the round that was not answered");
}

on_every_system! {
    /// Rule 16.
    fn a_number_that_names_nothing_costs_no_memory(system: &System) {
        let port = system.port::<usize, usize>(1);
        let before = peak_memory();
        for number in [i32::MAX, i32::MAX - 16, 1 << 30, 1 << 28, -1, i32::MIN] {
            let refused = port.raw().register_number(number, 7, Interest::IN, ONCE).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::BadDescriptor, "{number}");
            assert_eq!(*refused.value(), 7);
        }
        assert_eq!(port.stats().registered, 0);
        // Other tests may use memory meanwhile.
        assert!(peak_memory().saturating_sub(before) < 256 * 1024);
    }

    /// Rule 19.
    fn a_one_shot_packet_without_a_token_leaves_the_registration_disabled(system: &System) {
        let port = system.port::<usize, usize>(1);
        let (near, far) = system.tcp_pair();
        let id = register(&port, &far, 7, ONCE);
        for _ in 0..3 {
            near.write(b"x").unwrap();
            let_be_told(&port, system, 1);
            assert_eq!(next(&port), Some((id, Events::IN, 7)));
            assert_eq!(next(&port), None, "it is spent, and there is no token");
            far.drain();
            port.raw().enable(id, Interest::IN, ONCE, Hints::default).unwrap();
            assert_eq!(next(&port), None);
        }
        port.remove(id).unwrap();
        let mut batch = Batch::new();
        let packet = port.raw().wait_cloned(&mut batch, Duration::ZERO).unwrap().next();
        assert!(matches!(packet, Some(Packet::Removed(removed, 7)) if removed == id), "{packet:?}");
    }

    /// Rule 20.
    fn a_hint_is_ignored_if_more_came_since_the_packet(system: &System) {
        let port = system.port::<usize, usize>(1);
        let (near, far) = system.tcp_pair();
        let (one, other) = system.tcp_pair();
        let id = register(&port, &far, 7, ONCE);
        let second = register(&port, &other, 8, ONCE);
        near.write(b"x").unwrap();
        let_be_told(&port, system, 1);
        assert_eq!(next(&port), Some((id, Events::IN, 7)));
        far.drain();
        near.write(b"y").unwrap();
        // The edge is found while another packet is awaited.
        one.write(b"x").unwrap();
        let_be_told(&port, system, 1);
        assert_eq!(next(&port), Some((second, Events::IN, 8)));
        port.raw().enable(id, Interest::IN, ONCE, || Hints::new(true, true)).unwrap();
        let_be_told(&port, system, 1);
        assert_eq!(next(&port), Some((id, Events::IN, 7)));
    }

    /// Rule 20.
    fn a_hint_hides_nothing_that_was_found_after_it(system: &System) {
        for trigger in [AnyTrigger::from(ONCE), Persistent::Level.into()] {
            let port = system.port::<usize, usize>(1);
            let (near, far) = system.unix_pair();
            let id = register(&port, &far, 7, trigger);
            port.disable(id).unwrap();
            // Nothing is left to read, so the hint is true.
            assert!(far.read(&mut [0]).is_err());
            near.write(b"x").unwrap();
            assert_eq!(next(&port), None, "it is disabled");
            port.raw().enable(id, Interest::IN, trigger, Hints::default).unwrap();
            // This polls the kernel without taking the packet.
            let_be_told(&port, system, 1);
            let mut batch = Batch::new();
            drop(port.raw().wait_cloned(&mut batch, Duration::ZERO).unwrap());
            assert_eq!(port.stats().queued, 1);
            port.raw().enable(id, Interest::IN, trigger, || Hints::new(true, false)).unwrap();
            assert_eq!(next(&port), Some((id, Events::IN, 7)));
        }
    }

    /// Rule 12.
    fn a_persistent_registration_may_become_one_shot_and_back(system: &System) {
        let port = system.port::<usize, usize>(1);
        let (near, far) = system.tcp_pair();
        let id = register(&port, &far, 7, Persistent::Level);
        near.write(b"x").unwrap();
        let_be_told(&port, system, 1);
        assert!(next(&port).is_some());
        let_be_told(&port, system, 1);
        assert!(next(&port).is_some());
        port.raw().enable(id, Interest::IN, ONCE, Hints::default).unwrap();
        let_be_told(&port, system, 1);
        assert!(next(&port).is_some());
        assert!(next(&port).is_none());
        port.raw().enable(id, Interest::IN, Persistent::Level, Hints::default).unwrap();
        let_be_told(&port, system, 1);
        assert!(next(&port).is_some());
        let_be_told(&port, system, 1);
        assert!(next(&port).is_some());
    }

    /// Rule 30.
    fn what_is_forgotten_makes_no_packet_and_frees_its_number(system: &System) {
        let (port, other) = (system.port::<usize, usize>(1), system.port::<usize, usize>(1));
        let (near, far) = system.tcp_pair();
        let id = register(&port, &far, 7, ONCE);
        assert!(port.raw().is_current(id));
        port.raw().forget(id).unwrap();
        assert!(!port.raw().is_current(id));
        near.write(b"x").unwrap();
        assert_eq!(next(&port), None);
        assert_eq!(port.stats().registered, 0);
        let error = |outcome: completion_port::Result<()>| outcome.unwrap_err().kind();
        assert_eq!(error(port.raw().forget(id)), ErrorKind::NotRegistered);
        assert_eq!(error(port.raw().enable(id, Interest::IN, ONCE, Hints::default)), ErrorKind::NotRegistered);
        let id = register(&other, &far, 8, ONCE);
        let_be_told(&other, system, 1);
        assert_eq!(next(&other), Some((id, Events::IN, 8)));
    }

    /// Rule 30.
    fn what_is_forgotten_while_it_is_queued_is_not_reported(system: &System) {
        let port = system.port::<usize, usize>(1);
        let (near, far) = system.tcp_pair();
        let (first, second) = system.tcp_pair();
        let id = register(&port, &far, 7, ONCE);
        register(&port, &second, 8, ONCE);
        near.write(b"x").unwrap();
        first.write(b"x").unwrap();
        let_be_told(&port, system, 2);
        let mut batch = Batch::with_capacity(1);
        let mut one = || {
            let packet = port.raw().wait_cloned(&mut batch, Duration::ZERO).unwrap().next();
            packet.map(|packet| match packet {
                Packet::Notified(notified) => *notified.key(),
                other => panic!("{other:?}"),
            })
        };
        let taken = one().unwrap();
        if taken == 8 {
            port.raw().forget(id).unwrap();
            assert_eq!(one(), None);
        } else {
            // The forgotten one would have been next: its packet is gone, and the other one is
            // reported.
            port.raw().forget(id).unwrap();
            assert_eq!(one(), Some(8));
        }
        let removed = register(&port, &far, 9, ONCE);
        port.remove(removed).unwrap();
        assert_eq!(port.raw().forget(removed).unwrap_err().kind(), ErrorKind::NotRegistered);
    }

    /// Rule 31.
    fn an_abandoned_port_ends_every_wait_and_leaves_what_is_queued(system: &System) {
        system.several_threads_wait();
        let port = system.port::<usize, usize>(4);
        let other = system.port::<usize, usize>(1);
        let (near, far) = system.tcp_pair();
        let id = register(&port, &far, 7, ONCE);
        thread::scope(|scope| {
            let wait = || port.raw().wait_cloned(&mut Batch::new(), None).map(drop).unwrap_err().kind();
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(wait)).collect();
            while port.stats().parked < 3 {
                thread::yield_now();
            }
            port.raw().abandon();
            for thread in waiting {
                assert_eq!(thread.join().unwrap(), ErrorKind::Closed);
            }
        });
        near.write(b"x").unwrap();
        assert_eq!(port.post(1).unwrap_err().kind(), ErrorKind::Closed);
        let error = port.raw().enable(id, Interest::IN, ONCE, Hints::default).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        // Its descriptors may be registered elsewhere immediately, although the port still exists.
        let id = register(&other, &far, 8, ONCE);
        let_be_told(&other, system, 1);
        assert_eq!(next(&other), Some((id, Events::IN, 8)));
        drop(port);
        assert!(other.raw().is_current(id));
    }

    /// Rule 31.
    fn an_abandoned_port_hands_out_nothing_that_is_queued(system: &System) {
        let port = system.port::<usize, usize>(1);
        for message in 0..3 {
            port.post(message).unwrap();
        }
        port.raw().abandon();
        let mut batch = Batch::new();
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap_err().kind(), ErrorKind::Closed);
        port.close();
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap_err().kind(), ErrorKind::Closed);
    }

    /// Rule 29.
    fn a_key_is_cloned_before_its_packet_is_taken(system: &System) {
        let port = system.port::<Counted, usize>(1);
        let (near, far) = system.tcp_pair();
        let clones = Arc::new(AtomicUsize::new(0));
        let key = Counted(Arc::clone(&clones));
        let id = port.raw().register_number(far.number(), key, Interest::IN, ONCE).ok().unwrap();
        near.write(b"x").unwrap();
        let_be_told(&port, system, 1);
        let mut batch = Batch::new();
        assert_eq!(port.raw().wait_cloned(&mut batch, Duration::ZERO).unwrap().count(), 1);
        assert_eq!(clones.load(SeqCst), 1);
        // The hint is requested once the state is known, and applies only to that state.
        let asked = Cell::new(0);
        far.drain();
        let hints = || {
            asked.set(asked.get() + 1);
            Hints::new(clones.load(SeqCst) == 1, false)
        };
        port.raw().enable(id, Interest::IN, ONCE, hints).unwrap();
        assert!(asked.get() >= 1);
        near.write(b"y").unwrap();
        let_be_told(&port, system, 1);
        assert_eq!(port.raw().wait_cloned(&mut batch, Duration::ZERO).unwrap().count(), 1);
    }

    /// Rule 29.
    fn a_panic_while_a_one_shot_key_is_cloned_loses_no_packet(system: &System) {
        let port = system.port::<Fragile, usize>(1);
        let (near, far) = system.tcp_pair();
        port.raw().register_number(far.number(), Fragile, Interest::IN, ONCE).ok().unwrap();
        near.write(b"x").unwrap();
        let_be_told(&port, system, 1);
        let mut batch = Batch::new();
        REFUSES.set(true);
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            port.raw().wait_cloned(&mut batch, Duration::ZERO).map(Iterator::count)
        }));
        REFUSES.set(false);
        assert!(attempt.is_err());
        let_be_told(&port, system, 1);
        assert_eq!(port.raw().wait_cloned(&mut Batch::new(), Duration::ZERO).unwrap().count(), 1);
    }

    /// Rule 40.
    fn whether_a_packet_is_queued_can_be_asked_without_taking_it(system: &System) {
        let port = system.port::<usize, usize>(1);
        let has = || port.raw().has_packets(&mut Batch::new()).unwrap();
        assert!(!has());
        port.post(1).unwrap();
        assert!(has());
        assert!(has());
        assert_eq!(port.raw().wait_cloned(&mut Batch::new(), Duration::ZERO).unwrap().count(), 1);
        assert!(!has());

        // Whether or not a thread waits.
        let (near, far) = system.tcp_pair();
        let id = register(&port, &far, 7, ONCE);
        assert!(!has(), "it may be written to, which is not asked for");
        near.write(b"x").unwrap();
        let_be_told(&port, system, 1);
        assert!(has());
        assert!(has());
        assert_eq!(next(&port), Some((id, Events::IN, 7)));
        assert!(!has(), "it is spent");
        port.raw().enable(id, Interest::IN, ONCE, Hints::default).unwrap();
        let_be_told(&port, system, 1);
        assert!(has());

        // A queued node that makes no packet doesn't count.
        port.disable(id).unwrap();
        assert!(!has());
        port.raw().enable(id, Interest::IN, ONCE, Hints::default).unwrap();
        let_be_told(&port, system, 1);
        assert!(has());
        port.raw().enable(id, Interest::NONE, ONCE, Hints::default).unwrap();
        assert!(!has());
        port.raw().enable(id, Interest::IN, ONCE, Hints::default).unwrap();
        let_be_told(&port, system, 1);
        assert!(has());
        port.raw().enable(id, Interest::IN, ONCE, Hints::default).unwrap();
        far.drain();
        assert!(!has());
        assert_eq!(next(&port), None);

        // Remembered readiness is checked first.
        port.raw().enable(id, Interest::IN, Persistent::Level, Hints::default).unwrap();
        near.write(b"y").unwrap();
        let_be_told(&port, system, 1);
        assert_eq!(next(&port), Some((id, Events::IN, 7)));
        let_be_told(&port, system, 1);
        assert!(has());
        assert_eq!(next(&port), Some((id, Events::IN, 7)));
        far.drain();
        assert!(!has());

        port.remove(id).unwrap();
        assert!(has());
        assert_eq!(port.raw().wait_cloned(&mut Batch::new(), Duration::ZERO).unwrap().count(), 1);
        assert!(!has());
        port.post(2).unwrap();
        port.close();
        assert!(has());
        assert_eq!(port.raw().wait_cloned(&mut Batch::new(), Duration::ZERO).unwrap().count(), 1);
        let error = port.raw().has_packets(&mut Batch::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
    }

    /// Rule 40.
    fn packets_are_queued_though_every_seat_is_taken(system: &System) {
        system.several_threads_wait();
        let port = system.port::<usize, usize>(1);
        let (near, far) = system.tcp_pair();
        let id = register(&port, &far, 7, ONCE);
        port.post(1).unwrap();
        let mut batch = Batch::new();
        let mut packets = port.raw().wait_cloned(&mut batch, Duration::ZERO).unwrap();
        assert!(packets.next().is_some());
        thread::scope(|scope| {
            let has = || scope.spawn(|| port.raw().has_packets(&mut Batch::new()).unwrap()).join().unwrap();
            assert!(!has());
            near.write(b"x").unwrap();
            let_be_told(&port, system, 1);
            assert!(has());
            assert!(has(), "who asks takes no seat and no packet");
        });
        drop(packets);
        assert_eq!(next(&port), Some((id, Events::IN, 7)));
    }

    /// Rule 40.
    fn a_packet_behind_what_nobody_asked_for_is_seen_at_once(system: &System) {
        let _alone = with_many_descriptors();
        let port = system.port::<usize, usize>(1);
        // Each of them is writable, which is an edge to the kernel.
        let pairs: Vec<_> = (0..300).map(|_| system.unix_pair()).collect();
        for (key, (ours, _)) in pairs.iter().enumerate() {
            register(&port, ours, key, ONCE);
        }
        pairs[299].1.write(b"x").unwrap();
        let_be_told(&port, system, 1);
        assert!(port.raw().has_packets(&mut Batch::new()).unwrap());
        assert_eq!(next(&port).map(|(_, _, key)| key), Some(299));
    }

    /// Rule 40.
    fn a_packet_behind_many_that_came_to_nothing_is_seen_by_a_later_call(system: &System) {
        let _alone = with_many_descriptors();
        let port = system.port::<usize, usize>(1);
        let pairs: Vec<_> = (0..300).map(|_| system.unix_pair()).collect();
        let new = |(key, (ours, _)): (usize, &(Socket, Socket))| register(&port, ours, key, ONCE);
        let ids: Vec<_> = pairs.iter().enumerate().map(new).collect();
        for (_, theirs) in &pairs {
            theirs.write(b"x").unwrap();
        }
        // All are queued as soon as the system has reported each of them. `drive` takes no packet.
        let (begun, mut batch) = (Instant::now(), Batch::with_capacity(1000));
        while port.stats().queued < 300 {
            assert!(begun.elapsed() < system.soon(), "{port:?}");
            port.raw().drive(&mut batch).unwrap();
        }
        ids.iter().for_each(|id| port.disable(*id).unwrap());
        port.post(1).unwrap();
        let mut has = || port.raw().has_packets(&mut batch).unwrap();
        assert!(has() || has());
        assert!(has());
        let packet = port.raw().wait_cloned(&mut Batch::with_capacity(1000), Duration::ZERO).unwrap().next();
        assert!(matches!(packet, Some(Packet::Posted(1))), "{packet:?}");
        assert!(!has());
    }

    /// Rule 40.
    fn who_asks_sees_what_is_left_in_its_own_iterator(system: &System) {
        system.several_threads_wait();
        let port = system.port::<usize, usize>(1);
        let has = || port.raw().has_packets(&mut Batch::new());
        let (near, far) = system.tcp_pair();
        let id = register(&port, &far, 7, ONCE);
        near.write(b"x").unwrap();
        let_be_told(&port, system, 1);
        assert!(has().unwrap());
        port.post(1).unwrap();
        port.post(2).unwrap();
        let mut batch = Batch::new();
        let mut packets = port.raw().wait_cloned(&mut batch, None).unwrap();
        assert!(packets.next().is_some());
        assert!(has().unwrap());
        let of_another = || thread::scope(|scope| scope.spawn(has).join().unwrap());
        assert!(!of_another().unwrap(), "it has been handed out");
        port.close();
        assert!(has().unwrap());
        assert_eq!(of_another().unwrap_err().kind(), ErrorKind::Closed);
        // A registration whose queued node makes no packet.
        assert!(packets.next().is_some());
        assert!(has().unwrap());
        port.disable(id).unwrap();
        assert!(packets.next().is_some());
        assert_eq!(has().unwrap_err().kind(), ErrorKind::Closed);
        drop(packets);
        port.raw().abandon();
        assert_eq!(has().unwrap_err().kind(), ErrorKind::Closed);
    }

    /// Rule 40: one thread waits without a timeout while another polls, which may find an edge that
    /// should wake the first one. Nothing else happens, and on a simulated kernel no time passes
    /// either.
    fn who_asks_for_packets_takes_no_edge_from_a_thread_that_waits(system: &System) {
        system.several_threads_wait();
        for is_watched in [false, true] {
            let port = system.port::<usize, usize>(2);
            let (near, far) = system.tcp_pair();
            let id = register(&port, &far, 7, ONCE);
            // The waiting thread watches a thread that has not taken all of its batch.
            let mut batch = Batch::new();
            let mut packets = is_watched.then(|| {
                (0..8).for_each(|message| port.post(message).unwrap());
                port.raw().wait_cloned(&mut batch, None).unwrap()
            });
            assert!(packets.as_mut().is_none_or(|packets| packets.next().is_some()));
            let take = |packet: Packet<'_, usize, usize>| {
                let Packet::Notified(_) = packet else { return 0 };
                let read = far.drain();
                let _ = port.raw().enable(id, Interest::IN, ONCE, || Hints::new(true, false));
                read
            };
            beside_one_that_asks(system, &port, 300, take, |_| near.write(b"x").map(drop).unwrap());
        }
    }

    /// Rule 40: the same for a wake, which announces a message to a thread in the kernel's wait.
    fn who_asks_for_packets_uses_up_no_wake_of_a_thread_that_waits(system: &System) {
        system.several_threads_wait();
        let port = system.port::<usize, usize>(1);
        let (_near, far) = system.tcp_pair();
        register(&port, &far, 7, ONCE);
        beside_one_that_asks(system, &port, 300, |_| 1, |round| port.post(round).unwrap());
    }

    /// Rule 29: the clone was made for a packet that then reported nothing of the registration's
    /// condition.
    fn a_panic_while_a_superfluous_clone_is_dropped_loses_nothing(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Watched, usize>(1);
        let (near, far) = system.tcp_pair();
        let number = far.number();
        let new = || port.raw().register_number(number, Watched::new(&ledger), Interest::IN, ONCE).ok().unwrap();
        let mut batch = Batch::new();
        near.write(b"x").unwrap();
        let queued = || {
            let id = new();
            drop(port.raw().wait_cloned(&mut Batch::new(), system.soon()).unwrap());
            assert_eq!(port.stats().queued, 1);
            id
        };
        let mut panics = || {
            ledger.panic_at_next_drop();
            let attempt = catch_unwind(AssertUnwindSafe(|| {
                port.raw().wait_cloned(&mut batch, Duration::ZERO).map(Iterator::count)
            }));
            assert!(attempt.is_err());
        };
        let next = || {
            let mut more = Batch::new();
            port.raw().wait_cloned(&mut more, Duration::ZERO).unwrap().next()
        };

        // The packet of a removal.
        let id = queued();
        port.remove(id).unwrap();
        panics();
        assert_eq!(ledger.alive(), 1);
        assert!(matches!(next(), Some(Packet::Removed(removed, _)) if removed == id));
        assert_eq!((ledger.alive(), port.stats().registered), (0, 0));

        // A message after a node that makes no packet.
        let id = queued();
        port.disable(id).unwrap();
        port.post(5).unwrap();
        panics();
        assert_eq!(ledger.alive(), 1);
        assert!(matches!(next(), Some(Packet::Posted(5))));
        port.raw().forget(id).unwrap();
        assert_eq!((ledger.alive(), port.stats().registered), (0, 0));

        // A key that is dropped because its descriptor was closed.
        let id = queued();
        port.raw().forget(id).unwrap();
        panics();
        assert!(next().is_none());
        assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
    }

    /// Rule 29: another thread removes the registration meanwhile and waits for the key.
    fn a_panic_while_a_superfluous_clone_is_dropped_keeps_nobody_waiting(system: &System) {
        system.several_threads_wait();
        let ledger = Ledger::default();
        let port = Arc::new(system.port::<Watched, usize>(1));
        let (near, far) = system.tcp_pair();
        near.write(b"x").unwrap();
        let key = Watched::new(&ledger);
        let at_clone = Arc::clone(&key.at_clone);
        let id = port.raw().register_number(far.number(), key, Interest::IN, ONCE).ok().unwrap();
        thread::scope(|scope| {
            let (begin, begun) = mpsc::channel();
            let remover = scope.spawn({
                let port = Arc::clone(&port);
                move || {
                    begun.recv().unwrap();
                    port.remove_and_wait(id, None)
                }
            });
            *at_clone.lock().unwrap() = Some(Box::new({
                let (port, ledger) = (Arc::clone(&port), ledger.clone());
                move || {
                    begin.send(()).unwrap();
                    while port.raw().is_current(id) {
                        thread::yield_now();
                    }
                    ledger.panic_at_next_drop();
                }
            }));
            let attempt = catch_unwind(AssertUnwindSafe(|| {
                port.raw().wait_cloned(&mut Batch::new(), system.soon()).map(Iterator::count)
            }));
            assert!(attempt.is_err());
            assert!(remover.join().unwrap().is_ok());
        });
        assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
    }

    /// Rule 20.
    fn with_many_takers_and_enablers_no_message_is_lost(system: &System) {
        system.several_threads_wait();
        const SOCKETS: usize = 8;
        const BYTES: usize = 300;
        let port = system.port::<usize, usize>(4);
        let pairs: Vec<_> = (0..SOCKETS).map(|_| system.tcp_pair()).collect();
        let ids: Vec<_> =
            pairs.iter().enumerate().map(|(key, (_, far))| register(&port, far, key, ONCE)).collect();
        let read = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut batch = Batch::new();
                    while let Ok(packets) = port.raw().wait_cloned(&mut batch, None) {
                        for packet in packets {
                            let Packet::Notified(notified) = packet else { continue };
                            let key = *notified.key();
                            // Read two bytes one by one: usually more remain, and sometimes none.
                            let far = &pairs[key].1;
                            let mut bytes = (0..2).map(|_| far.read(&mut [0; 1]));
                            let is_dry = bytes.any(|byte| match byte {
                                Ok(count) => {
                                    read.fetch_add(count, SeqCst);
                                    false
                                }
                                Err(error) => {
                                    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                                    true
                                }
                            });
                            let hints = || Hints::new(is_dry, false);
                            if let Err(error) = port.raw().enable(ids[key], Interest::IN, ONCE, hints) {
                                // The last byte was read, and the test has ended.
                                assert_eq!(error.kind(), ErrorKind::Closed);
                            }
                        }
                    }
                });
            }
            for round in 0..BYTES {
                for (near, _) in &pairs {
                    near.write(&[round.to_le_bytes()[0]]).unwrap();
                }
            }
            let all = SOCKETS * BYTES;
            // A lost message never arrives, but a slow run keeps making progress.
            let (mut before, mut begun) = (0, Instant::now());
            while before < all && begun.elapsed() < system.soon() {
                let now = read.load(SeqCst);
                if now > before {
                    (before, begun) = (now, Instant::now());
                }
                thread::yield_now();
            }
            port.raw().abandon();
            assert_eq!(read.load(SeqCst), all);
        });
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), SOCKETS);
    }
}

/// Rule 20: a read stops at the urgent mark, so it is short although data follows.
#[cfg(target_os = "linux")]
#[test]
fn a_drained_hint_is_ignored_at_an_urgent_mark_on_epoll() {
    let on = System::native();
    let port = on.port::<usize, usize>(1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    (&near).write_all(b"ab").unwrap();
    // SAFETY: send(2) reads the given number of bytes at the pointer.
    // - valid: it points to a constant of that length.
    let sent = unsafe { libc::send(near.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1);
    (&near).write_all(b"cd").unwrap();
    let id = port.raw().register_number(far.as_raw_fd(), 7, Interest::IN, ONCE).unwrap();
    let mut seen = Vec::new();
    while seen != b"abcd" {
        let mut batch = Batch::new();
        let packets = port.raw().wait_cloned(&mut batch, on.soon()).unwrap().count();
        assert_eq!(packets, 1, "only {seen:?} was reported");
        let mut buffer = [0; 16];
        let read = far.read(&mut buffer).unwrap();
        seen.extend_from_slice(&buffer[..read]);
        port.raw().enable(id, Interest::IN, ONCE, || Hints::new(true, false)).unwrap();
    }
}

/// Rule 16: the port refuses its own descriptors. Ports on a simulated kernel have none. Runs in a
/// child process in which no other test opens descriptors.
#[cfg(target_os = "linux")]
#[test]
fn the_ports_own_descriptors_are_refused_epoll() {
    if !in_a_process_of_its_own("by_number::the_ports_own_descriptors_are_refused_epoll") {
        return;
    }
    testkit::run(System::native, |system| {
        let before = testkit::descriptors::open();
        let port = system.port::<usize, usize>(1);
        let mut own = testkit::descriptors::open();
        own.retain(|number, _| !before.contains_key(number));
        assert!(own.len() >= 2, "{own:?}");
        for (number, name) in &own {
            let refused = port.raw().register_number(*number, 7, Interest::IN, ONCE).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NotPollable, "{name}");
        }
        // It receives posts while it is in the kernel's wait, and reports sockets.
        let (near, far) = system.tcp_pair();
        register(&port, &near, 8, ONCE);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut batch = Batch::new();
                port.raw().wait_cloned(&mut batch, system.soon()).unwrap().count()
            });
            settle(system, &port, 1);
            port.post(1).unwrap();
            assert_eq!(waiter.join().unwrap(), 1);
        });
        far.write(b"x").unwrap();
        let mut batch = Batch::new();
        assert_eq!(port.raw().wait_cloned(&mut batch, system.soon()).unwrap().count(), 1);
    });
}

on_edge_triggered_systems! {
    /// Rule 20.
    fn what_is_left_unread_is_reported_again_unless_a_hint_denies_it(system: &System) {
        let port = system.port::<usize, usize>(1);
        let (near, far) = system.tcp_pair();
        let id = register(&port, &far, 7, ONCE);
        near.write(b"xy").unwrap();
        assert!(next(&port).is_some());
        far.read(&mut [0]).unwrap();
        port.raw().enable(id, Interest::IN, ONCE, Hints::default).unwrap();
        assert_eq!(next(&port), Some((id, Events::IN, 7)));

        // A wrong hint delays the report until more arrives.
        port.raw().enable(id, Interest::IN, ONCE, || Hints::new(true, false)).unwrap();
        assert_eq!(next(&port), None);
        near.write(b"z").unwrap();
        assert_eq!(next(&port), Some((id, Events::IN, 7)));
    }
}
