//! Rule 7: a wait ends with a packet or at its timeout, never earlier.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, Interest, Packet, Port};
use testkit::{SOON, Socket, System, in_a_process_of_its_own, on_every_system};
#[cfg(target_os = "linux")]
use testkit::{exit, fork};

use crate::kit::packets::{
    ONE_SHOT_LEVEL, PERSISTENT_LEVEL, each_packet, messages, port_on, register,
};
#[cfg(target_os = "linux")]
use crate::kit::signals::{catch_signals, interrupt};
use crate::kit::threads::{End, Gate, eventually, hear, now, settle};

on_every_system! {
    /// Rule 7.
    fn a_wait_never_ends_early(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.unix_pair();
        register(&port, &ours, "ours", Interest::HANGUP, PERSISTENT_LEVEL);
        let _start = Instant::now();
        let mut batch = Batch::new();
        for microseconds in [1, 300, 999, 1000, 1001, 1500, 10_000, 30_300] {
            let timeout = Duration::from_micros(microseconds);
            // The wait finds an unrequested event.
            theirs.write(b"x").unwrap();
            let before = now(system);
            assert_eq!(port.wait(&mut batch, timeout).unwrap().count(), 0);
            let took = now(system) - before;
            assert!(took >= timeout, "{took:?} instead of {timeout:?}");
            assert!(took < timeout + system.soon(), "{took:?} instead of {timeout:?}");
        }
    }

    /// Rule 7.
    fn a_wait_that_finds_what_nobody_asked_for_goes_on(system: &System) {
        system.several_threads_wait();
        let port = port_on(system);
        let (ours, theirs) = system.unix_pair();
        register(&port, &ours, "ours", Interest::HANGUP, PERSISTENT_LEVEL);
        let mut timeout = Duration::from_millis(60);
        // On a busy machine the writing thread may be late. Then repeat it with more time.
        while !a_wait_goes_on(&port, system, &theirs, timeout) {
            timeout *= 2;
            assert!(timeout < system.soon(), "the time is over before anything is found");
        }
    }

    /// Rule 7.
    fn a_wait_longer_than_the_clock_can_show_has_no_limit(system: &System) {
        system.several_threads_wait();
        let port = port_on(system);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut batch = Batch::new();
                messages(port.wait(&mut batch, Duration::MAX).unwrap())
            });
            settle(system, &port, 1);
            port.post(7).unwrap();
            assert_eq!(waiter.join().unwrap(), [7]);
        });
    }
}

/// A thread waits for `timeout`. Meanwhile `peer` is written to three times, which no registration
/// requests. Returns false if the wait timed out before that.
fn a_wait_goes_on(port: &Port<&str, u32>, on: &System, peer: &Socket, timeout: Duration) -> bool {
    let _start = Instant::now();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let before = now(on);
            let mut batch = Batch::new();
            assert_eq!(port.wait(&mut batch, timeout).unwrap().count(), 0);
            now(on) - before
        });
        let is_parked = || {
            let end = Instant::now() + on.soon();
            while port.stats().parked != 1 && !waiter.is_finished() {
                assert!(Instant::now() < end, "{port:?}");
                thread::yield_now();
            }
            !waiter.is_finished()
        };
        let mut found = 0;
        while found < 3 && is_parked() {
            peer.write(b"x").unwrap();
            found += usize::from(is_parked());
            if let Some(kernel) = on.kernel() {
                assert!(kernel.wait_for_sleepers(1, on.soon()));
                kernel.advance(Duration::from_millis(19));
            }
        }
        if let Some(kernel) = on.kernel() {
            assert!(kernel.wait_for_sleepers(1, on.soon()), "57 ms are not 60");
            assert!(!waiter.is_finished());
            kernel.advance(Duration::from_millis(3));
        }
        let took = waiter.join().unwrap();
        assert!(took >= timeout, "{took:?}");
        found == 3
    })
}

/// Two threads wait on `port`, one in the kernel's wait and one parked. Both constantly get signals
/// until one of the waits has ended. A wait without a timeout would not end, so each thread gets a
/// message after some hundred signals. Returns what each thread has taken, and how long that took.
#[cfg(target_os = "linux")]
fn wait_under_fire(port: &Port<&str, u32>, timeout: Option<Duration>) -> Vec<(Vec<u32>, Duration)> {
    const ROUNDS: u32 = 300;
    catch_signals();
    thread::scope(|scope| {
        let (done, taken) = mpsc::channel();
        let (started, threads) = mpsc::channel();
        for _ in 0..2 {
            let (done, started) = (done.clone(), started.clone());
            scope.spawn(move || {
                // SAFETY: gettid(2) has no requirements.
                started.send(unsafe { libc::gettid() }).unwrap();
                let start = Instant::now();
                let mut batch = Batch::with_capacity(1);
                let seen = messages(port.wait(&mut batch, timeout).unwrap());
                done.send((seen, start.elapsed())).unwrap();
            });
        }
        let threads = [threads.recv().unwrap(), threads.recv().unwrap()];
        let mut results = Vec::new();
        let (begun, mut rounds) = (Instant::now(), 0);
        while results.is_empty() && (timeout.is_some() || rounds < ROUNDS) {
            threads.into_iter().for_each(interrupt);
            rounds += 1;
            results.extend(taken.recv_timeout(Duration::from_micros(200)));
            assert!(begun.elapsed() < SOON, "the wait does not end");
        }
        if timeout.is_none() {
            for message in [1, 2] {
                port.post(message).unwrap();
            }
        }
        while results.len() < 2 {
            results.push(taken.recv_timeout(SOON).unwrap());
        }
        results
    })
}

/// Rule 7: the simulated kernel has no signals.
#[cfg(target_os = "linux")]
#[test]
fn signals_do_not_end_a_wait_without_a_limit_on_epoll() {
    let port: Port<&str, u32> = System::native().port(2);
    let mut seen: Vec<_> =
        wait_under_fire(&port, None).into_iter().flat_map(|(seen, _)| seen).collect();
    seen.sort_unstable();
    assert_eq!(seen, [1, 2]);
}

/// Rule 7: the simulated kernel has no signals.
#[cfg(target_os = "linux")]
#[test]
fn signals_do_not_end_a_wait_before_its_time_on_epoll() {
    let port: Port<&str, u32> = System::native().port(2);
    let timeout = Duration::from_millis(50);
    for (seen, took) in wait_under_fire(&port, Some(timeout)) {
        assert_eq!(seen, []);
        assert!(took >= timeout, "{took:?}");
    }
}

/// Rule 7: a process is stopped and continued again and again, by its child. The simulated kernel
/// has no processes.
#[cfg(target_os = "linux")]
#[test]
fn a_process_that_is_stopped_goes_on_with_its_waits_epoll() {
    if !in_a_process_of_its_own(
        "time_limits::a_process_that_is_stopped_goes_on_with_its_waits_epoll",
    ) {
        return;
    }
    const LIMIT: Duration = Duration::from_millis(300);
    const STOPS: u32 = 60;
    let on = System::native();
    let port: Port<&str, u32> = on.port(3);
    let (ours, theirs) = on.unix_pair();
    register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
    let runs = Gate::default();
    let wait = |timeout: Option<Duration>| {
        let start = Instant::now();
        let mut batch = Batch::with_capacity(1);
        let packet = port.wait(&mut batch, timeout).unwrap().next();
        (packet.map(|packet| matches!(packet, Packet::Ready(_))), start.elapsed())
    };
    thread::scope(|scope| {
        let (say, heard) = mpsc::channel();
        let (runs, wait, port, on) = (&runs, &wait, &port, &on);
        let _end = End::of(port, [runs]);
        // One thread runs, so that an idle one must be the watchdog.
        let (begin, begun) = mpsc::channel();
        scope.spawn(move || {
            port.post(1).unwrap();
            assert_eq!(wait(None).0, Some(false));
            begin.send(()).unwrap();
            runs.pass();
        });
        begun.recv().unwrap();
        for timeout in [None, Some(LIMIT), Some(LIMIT), Some(LIMIT)] {
            let say = say.clone();
            scope.spawn(move || say.send((timeout, wait(timeout))).unwrap());
        }
        // All wait, except for those that have already timed out.
        let mut over = Vec::new();
        eventually(on, "all wait", || {
            over.extend(heard.try_iter());
            port.stats().parked + over.len() == 4
        });
        let Some(child) = fork() else {
            // SAFETY: getppid(2) has no requirements.
            let parent = unsafe { libc::getppid() };
            for stop in 1..=STOPS {
                for signal in [libc::SIGSTOP, libc::SIGCONT] {
                    // SAFETY: kill(2) accesses no memory.
                    unsafe { libc::kill(parent, signal) };
                    if stop == STOPS && signal == libc::SIGSTOP {
                        theirs.write(b"x").unwrap();
                    }
                    // SAFETY: poll(2) reads nothing at a null pointer if the count is 0.
                    unsafe { libc::poll(std::ptr::null_mut(), 0, 2) };
                }
            }
            exit(0);
        };
        assert_eq!(child.status(), 0);
        let (mut ready, mut ended) = (0, 0);
        while ended < 4 {
            let next = match over.pop() {
                Some(next) => next,
                // If another thread has the socket's packet, only the wait without a timeout may
                // remain.
                None if ready == 1 => match heard.recv_timeout(2 * LIMIT) {
                    Ok(next) => next,
                    Err(_) => {
                        port.post(2).unwrap();
                        continue;
                    }
                },
                None => heard.recv_timeout(SOON).unwrap(),
            };
            match next {
                (_, (Some(is_ready), _)) => ready += u32::from(is_ready),
                (timeout, (None, took)) => {
                    assert_eq!(timeout, Some(LIMIT));
                    assert!(took >= LIMIT, "{took:?}");
                }
            }
            ended += 1;
        }
        assert_eq!(ready, 1);
    });
}

/// Rule 7 (see also 4 and 39): this holds whatever the clock shows next. No test sets the clock of
/// the real system.
#[test]
fn a_clock_that_jumps_loses_nothing_sim() {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        let port = on.port::<usize, u32>(2);
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..8).map(|_| on.unix_pair()).unzip();
        for (number, socket) in ours.iter().enumerate() {
            register(&port, socket, number, Interest::IN, ONE_SHOT_LEVEL);
        }
        let gates = [(); 8].map(|()| Gate::default());
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, &gates);
            let (port, gates) = (&port, &gates);
            for count in 1..=3 {
                let say = say.clone();
                scope.spawn(move || {
                    each_packet(port, Batch::with_capacity(2), |packet| {
                        let Packet::Ready(ready) = packet else { panic!("{packet:?}") };
                        say.send(*ready.key()).unwrap();
                        gates[*ready.key()].pass();
                    });
                });
                settle(on, port, count);
            }
            let limited = scope.spawn(|| {
                let mut batch = Batch::new();
                let count = port.wait(&mut batch, Duration::from_secs(3600)).unwrap().count();
                (count, kernel.now())
            });
            settle(on, port, 4);
            kernel.advance(CENTURY);
            assert_eq!(limited.join().unwrap(), (0, CENTURY));
            // Two threads run, each with a second packet that it has not reached, and the clock
            // jumps at each step.
            let mut seen = BTreeSet::new();
            for (number, theirs) in theirs.iter().enumerate() {
                theirs.write(b"x").unwrap();
                kernel.advance(CENTURY / 8);
                if number >= 4 {
                    gates[number - 4].open();
                    kernel.advance(CENTURY / 8);
                }
                while let Ok(number) = heard.try_recv() {
                    assert!(seen.insert(number));
                }
            }
            gates.iter().for_each(Gate::open);
            while seen.len() < 8 {
                assert!(seen.insert(hear(on, &heard, "each is taken")));
            }
            settle(on, port, 3);
        });
    });
}
