//! Very many registrations on one port of the simulated kernel, where only memory limits their
//! number. The environment variable `REGISTRATIONS` overrides [`USUAL`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use completion_port::{
    Batch, BorrowedSource, Events, Id, Interest, OneShot, Packet, Port, Registration, Source, sim,
};
use testkit::Dice;

/// Enough to reveal disproportionate costs, and still fast.
const USUAL: usize = 5_000;
/// One in this many registrations is ready at a time.
const SHARE: u64 = 100;
/// A wait without blocking, so that a missing packet fails the test instead of hanging it.
/// Everything is ready immediately.
const AT_ONCE: Duration = Duration::ZERO;

/// A counted key that owns its socket.
#[derive(Debug)]
struct Client {
    number: usize,
    socket: sim::Socket,
    alive: Arc<AtomicUsize>,
}

impl Client {
    fn new(number: usize, kernel: &sim::Kernel, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Relaxed);
        Self { number, socket: kernel.udp_bound().unwrap(), alive: Arc::clone(alive) }
    }
}

impl Source for Client {
    fn as_source(&self) -> BorrowedSource<'_> {
        self.socket.as_source()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
    }
}

/// A port with its registrations, and the addresses of their sockets.
struct Crowd {
    port: Port<Client>,
    batch: Batch,
    ids: Vec<Id>,
    addresses: Vec<sim::Address>,
    sender: sim::Socket,
}

impl Crowd {
    fn new(size: usize, kernel: &sim::Kernel, one_shot: bool, alive: &Arc<AtomicUsize>) -> Self {
        let settings = Port::builder().concurrency(1).one_shot_kernel(one_shot);
        let port: Port<Client> = settings.build_simulated(kernel).unwrap();
        let (mut ids, mut addresses) = (Vec::new(), Vec::new());
        for number in 0..size {
            let client = Client::new(number, kernel, alive);
            addresses.push(client.socket.address());
            let registration = Registration::owned(client, Interest::IN, OneShot::Level);
            ids.push(port.register(registration).unwrap());
        }
        let sender = kernel.udp_bound().unwrap();
        Self { port, batch: Batch::new(), ids, addresses, sender }
    }

    /// Sends a byte to each chosen socket, and checks that exactly these are reported.
    fn reach(&mut self, chosen: &BTreeSet<usize>) {
        for number in chosen {
            self.sender.send_to(b"x", self.addresses[*number]).unwrap();
        }
        let mut left = chosen.clone();
        loop {
            let packets = self.port.wait(&mut self.batch, AT_ONCE).unwrap();
            let mut count = 0;
            for packet in packets {
                let Packet::Ready(mut ready) = packet else { panic!("{packet:?}") };
                assert_eq!(
                    (ready.id(), ready.events()),
                    (self.ids[ready.key().number], Events::IN)
                );
                assert!(left.remove(&ready.key().number), "reported without need, or twice");
                assert_eq!(ready.key().socket.read(&mut [0; 2]).unwrap(), 1);
                ready.read_drained();
                ready.rearm().unwrap();
                count += 1;
            }
            if count == 0 {
                break;
            }
        }
        assert_eq!(left, BTreeSet::new(), "not reported");
    }

    /// Takes packets until `count` keys have been returned, each once.
    fn collect(&mut self, count: usize, back: &mut [bool]) {
        let mut left = count;
        while left > 0 {
            let before = left;
            for packet in self.port.wait(&mut self.batch, AT_ONCE).unwrap() {
                let Packet::Removed(id, key) = packet else { panic!("{packet:?}") };
                assert_eq!(id, self.ids[key.number]);
                assert!(!std::mem::replace(&mut back[key.number], true), "given back twice");
                left -= 1;
            }
            assert_ne!(left, before, "keys are missing");
        }
    }
}

fn come_and_go(size: usize, one_shot: bool) {
    let kernel = sim::Kernel::new();
    let alive = Arc::new(AtomicUsize::new(0));
    let mut crowd = Crowd::new(size, &kernel, one_shot, &alive);
    assert_eq!((crowd.port.stats().registered, alive.load(Relaxed)), (size, size));
    assert_eq!(crowd.ids.iter().collect::<BTreeSet<_>>().len(), size);
    crowd.reach(&BTreeSet::new());

    let mut dice = Dice::new();
    for _ in 0..2 {
        let chosen = (0..size).filter(|_| dice.roll(SHARE) == 0).collect();
        crowd.reach(&chosen);
    }
    crowd.reach(&(0..size).collect());

    // Remove half of the registrations one by one, and the rest by a shutdown.
    let mut back = vec![false; size];
    for number in (0..size).step_by(2) {
        crowd.port.remove(crowd.ids[number]).unwrap();
    }
    crowd.collect(size.div_ceil(2), &mut back);
    assert_eq!((crowd.port.stats().registered, alive.load(Relaxed)), (size / 2, size / 2));
    crowd.port.shutdown().unwrap();
    crowd.collect(size / 2, &mut back);
    assert!(back.iter().all(|is_back| *is_back));
    assert_eq!((crowd.port.stats().registered, alive.load(Relaxed)), (0, 0));
    drop(crowd);
    assert_eq!((kernel.open_descriptors(), kernel.ports()), (0, 0));
}

/// Returns the number of registrations.
fn size() -> usize {
    std::env::var("REGISTRATIONS").map_or(USUAL, |size| size.parse().unwrap())
}

#[test]
fn very_many_registrations_come_and_go() {
    come_and_go(size(), false);
}

#[test]
fn very_many_registrations_come_and_go_one_shot() {
    come_and_go(size(), true);
}

/// The keys are dropped without packets.
#[test]
fn a_port_that_is_dropped_drops_very_many_keys() {
    let kernel = sim::Kernel::new();
    let alive = Arc::new(AtomicUsize::new(0));
    let crowd = Crowd::new(size(), &kernel, false, &alive);
    assert_eq!(kernel.open_descriptors(), size() + 1);
    drop(crowd);
    assert_eq!((alive.load(Relaxed), kernel.open_descriptors()), (0, 0));
}
