//! Rule 32: a process forks while its other threads are busy. In the child, those threads never
//! finish what they were doing, and what they had locked stays locked.
//!
//! Each claim forks a hundred times, or `FORKS` times if that is set in the environment. A
//! simulated kernel has no processes.

use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::raw::Hints;
use completion_port::{
    Batch, Changes, ErrorKind, Interest, OneShot, Packet, Packets, Persistent, Port, Ready,
    Registration,
};
use testkit::{
    Dice, Forked, SOON, System, exit, fork, forks, in_a_process_of_its_own, in_forked_child,
};

/// Returns whether the calling process can create a port that works.
fn own_port_works() -> bool {
    let Ok(own) = Port::builder().concurrency(1).build() else { return false };
    let mut batch = Batch::new();
    let brings_it =
        |mut packets: Packets<'_, '_, (), u32>| matches!(packets.next(), Some(Packet::Posted(7)));
    own.post(7).is_ok() && own.wait(&mut batch, SOON).is_ok_and(brings_it)
}

/// Computes for `time`.
fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        spin_loop();
    }
}

/// Rule 32: one-time detection for the process may be half done when a child is forked.
#[test]
fn a_child_may_make_a_port_while_its_parent_makes_its_first_epoll() {
    if !in_a_process_of_its_own(
        "forks::a_child_may_make_a_port_while_its_parent_makes_its_first_epoll",
    ) {
        return;
    }
    let mut dice = Dice::new();
    for _ in 0..forks() {
        let later = Duration::from_micros(dice.roll(400));
        // This process creates no port itself, so that each of its children creates its first one.
        let status = in_forked_child(|| {
            let begins = AtomicBool::new(false);
            thread::scope(|scope| {
                let (say, heard) = mpsc::channel();
                let begins = &begins;
                let maker = scope.spawn(move || {
                    say.send(()).unwrap();
                    while !begins.load(SeqCst) {
                        spin_loop();
                    }
                    own_port_works()
                });
                heard.recv().unwrap();
                begins.store(true, SeqCst);
                spin(later);
                // As many as fit, because creating a port is quick.
                let mut children = Vec::new();
                while !maker.is_finished() && children.len() < 16 {
                    match fork() {
                        Some(child) => children.push(child),
                        None => exit(u8::from(!own_port_works())),
                    }
                }
                let failed = children.into_iter().map(Forked::status).filter(|status| *status > 0);
                u8::from(failed.count() > 0) + 2 * u8::from(!maker.join().unwrap())
            })
        });
        assert_eq!(status, 0, "1: the child's port does not work; 2: its parent's");
    }
}

/// A key whose next clone forks on demand, so that it is made in both processes.
#[derive(Default)]
struct Forking {
    forks: Arc<AtomicBool>,
}

thread_local! {
    static CHILD: Cell<Option<Forked>> = const { Cell::new(None) };
    static IS_CHILD: Cell<bool> = const { Cell::new(false) };
}

/// Forks, for [`forked`].
fn fork_here() {
    match fork() {
        Some(child) => CHILD.set(Some(child)),
        None => IS_CHILD.set(true),
    }
}

/// Returns the forked child, or `None` in the child.
fn forked() -> Option<Forked> {
    if IS_CHILD.get() { None } else { Some(CHILD.take().expect("it was to fork")) }
}

impl Clone for Forking {
    fn clone(&self) -> Self {
        if self.forks.swap(false, SeqCst) {
            fork_here();
        }
        Self::default()
    }
}

/// Runs `act` while other threads take all of a port's locks.
fn beside_busy_threads(port: &Port<Forking, u32>, act: impl FnOnce()) {
    struct Over<'b>(&'b AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let event = System::native().event();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            while !over.load(SeqCst) {
                let _ = port.stats();
            }
        });
        scope.spawn(|| {
            while !over.load(SeqCst) {
                let new =
                    Registration::new(&event, Forking::default(), Interest::IN, OneShot::Level);
                let id = port.register(new).unwrap();
                port.remove_and_wait(id, None).unwrap();
            }
        });
        act();
    });
}

fn new_port() -> Port<Forking, u32> {
    Port::builder().concurrency(4).build().unwrap()
}

/// Returns the token of the only registration of `port`, whose counter is signalled.
fn token_of<'p>(port: &'p Port<Forking, u32>, batch: &mut Batch) -> Ready<'p, Forking> {
    loop {
        for packet in port.wait(batch, None).unwrap() {
            if let Packet::Ready(token) = packet {
                return token;
            }
        }
    }
}

/// Rule 32: the child leaves a block, and drops packets, tokens, changes, its seat and the port
/// itself.
#[test]
fn a_child_gives_up_whatever_it_has_of_its_parents_port_epoll() {
    if !in_a_process_of_its_own("forks::a_child_gives_up_whatever_it_has_of_its_parents_port_epoll")
    {
        return;
    }
    let port = new_port();
    let events = [(); 4].map(|()| System::native().event());
    for event in &events {
        event.signal(1).unwrap();
        let new = Registration::new(event, Forking::default(), Interest::IN, OneShot::Level);
        port.register(new).unwrap();
    }
    beside_busy_threads(&port, || {
        let (mut batch, mut more) = (Batch::new(), Batch::new());
        for round in 0..forks() {
            let tokens = [(); 4].map(|()| token_of(&port, &mut batch));
            (0..3).for_each(|message| port.post(message).unwrap());
            let mut packets = port.wait(&mut batch, None).unwrap();
            assert!(matches!(packets.next(), Some(Packet::Posted(0))));
            if round % 4 == 0 {
                fork_here();
            } else {
                // The unread packets return to the queue.
                port.blocking(fork_here);
            }
            let Some(child) = forked() else {
                drop(packets);
                let [first, second, third, fourth] = tokens;
                drop(first);
                let mut changes = Changes::new();
                changes.rearm(second);
                let is_refused = port.post(3).is_err_and(|it| it.kind() == ErrorKind::Forked);
                // The structure for a first deadline is allocated under the port's lock.
                let late = Duration::from_secs(3600);
                let armed = [
                    third.rearm_until(late),
                    fourth.rearm_as_until(Interest::IN, OneShot::Level, late),
                ];
                let is_refused = armed.into_iter().fold(is_refused, |all, armed| {
                    all & armed.is_err_and(|it| it.error().kind() == ErrorKind::Forked)
                });
                // Gives up the seat.
                let works = own_port_works();
                drop(changes);
                // SAFETY: `read` requires that the original value is not used again.
                // - this process exits, and the parent's other threads don't exist in it.
                drop(unsafe { std::ptr::read(&raw const port) });
                exit(u8::from(!is_refused) + 2 * u8::from(!works));
            };
            assert_eq!(child.status(), 0, "1: not refused, 2: its own port does not work");
            let mut rest = packets.count();
            while rest < 2 {
                rest += port.wait(&mut more, None).unwrap().count();
            }
            tokens.into_iter().for_each(|token| token.rearm().unwrap());
        }
    });
}

/// Rule 32: the child is forked while the library calls user code. When that code returns, the
/// child is inside the library.
#[test]
fn a_child_that_is_forked_by_a_clone_of_a_key_leaves_its_parents_port_epoll() {
    if !in_a_process_of_its_own(
        "forks::a_child_that_is_forked_by_a_clone_of_a_key_leaves_its_parents_port_epoll",
    ) {
        return;
    }
    let port = new_port();
    let key = Forking::default();
    let forks_next = Arc::clone(&key.forks);
    let event = System::native().event();
    event.signal(1).unwrap();
    let new = Registration::new(&event, key, Interest::IN, Persistent::Level);
    let id = port.register(new).unwrap();
    beside_busy_threads(&port, || {
        let mut batch = Batch::new();
        for round in 0..forks() {
            let cloned = round % 2 == 0;
            if cloned {
                port.raw().enable(id, Interest::IN, OneShot::Level, Hints::default).unwrap();
            } else {
                port.enable(id, Interest::IN, Persistent::Level).unwrap();
            }
            let mut packets = if cloned {
                port.raw().wait_cloned(&mut batch, None).unwrap()
            } else {
                port.wait(&mut batch, None).unwrap()
            };
            forks_next.store(true, SeqCst);
            let first = packets.next();
            let Some(child) = forked() else {
                // The parent's batch belongs to the parent.
                let nothing = first.is_none() && packets.next().is_none();
                drop(packets);
                exit(u8::from(!nothing) + 2 * u8::from(!own_port_works()));
            };
            assert!(matches!(first, Some(Packet::Notified(_))));
            drop((first, packets));
            assert_eq!(child.status(), 0, "1: it got a packet, 2: its own port does not work");
        }
    });
}

/// Rule 32: the packets after the one for which the key was cloned belong to the parent too.
#[test]
fn a_child_that_is_forked_by_a_clone_of_a_key_takes_nothing_behind_it_epoll() {
    if !in_a_process_of_its_own(
        "forks::a_child_that_is_forked_by_a_clone_of_a_key_takes_nothing_behind_it_epoll",
    ) {
        return;
    }
    let port = new_port();
    let events = [(); 2].map(|()| System::native().event());
    let keys = [(); 2].map(|()| Forking::default());
    let forks_next = Arc::clone(&keys[0].forks);
    let mut batch = Batch::new();
    for (event, key) in events.iter().zip(keys) {
        event.signal(1).unwrap();
        port.register(Registration::new(event, key, Interest::IN, OneShot::Level)).unwrap();
        // In the queue, and taken by no thread.
        drop(port.wait(&mut batch, Duration::ZERO).unwrap());
    }
    (0..3).for_each(|message| port.post(message).unwrap());
    assert_eq!(port.stats().queued, 5);
    forks_next.store(true, SeqCst);
    let mut packets = port.raw().wait_cloned(&mut batch, None).unwrap();
    let first = packets.next();
    let Some(child) = forked() else {
        let nothing = first.is_none() && packets.next().is_none();
        drop(packets);
        exit(u8::from(!nothing) + 2 * u8::from(!own_port_works()));
    };
    assert_eq!(child.status(), 0, "1: it got a packet, 2: its own port does not work");
    assert!(matches!(first, Some(Packet::Notified(_))));
    let rest: Vec<_> = packets.collect();
    assert!(matches!(rest[0], Packet::Notified(_)));
    assert!(matches!(rest[1..], [Packet::Posted(0), Packet::Posted(1), Packet::Posted(2)]));
}
