//! The kit itself: the same claims hold on every system, and its checks detect violations.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::io;
use std::net::Shutdown;
use std::panic::catch_unwind;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use testkit::scheduler::{self, ThreadNumber};
use testkit::{Dice, Obstacle, System, in_a_process_of_its_own, sandbox};

#[global_allocator]
static ALLOCATOR: testkit::alloc::Counting = testkit::alloc::Counting;

fn would_block<T>(done: io::Result<T>) -> bool {
    matches!(done, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

testkit::on_every_system! {
    fn what_is_written_is_read_by_the_other_end(system: &System) {
        let pairs = [system.tcp_pair(), system.unix_pair(), system.udp_pair(),
            system.unix_datagram_pair(), system.pipe()];
        for (reader, writer) in pairs {
            assert!(would_block(reader.read(&mut [0; 8])), "{reader:?}");
            assert_eq!(writer.write(b"four").unwrap(), 4);
            assert_eq!(reader.read_within(system.soon(), 4), b"four");
            assert!(would_block(reader.read(&mut [0; 8])));
        }
    }

    fn a_listener_accepts_what_connects(system: &System) -> io::Result<()> {
        for (listener, client) in [
            (system.tcp_listener(4), system.tcp_fresh()),
            (system.unix_listener(4), system.unix_fresh()),
        ] {
            assert!(would_block(listener.accept()));
            client.connect(&listener.address())?;
            let server = listener.accept_within(system.soon());
            client.write(b"hello")?;
            assert_eq!(server.read_within(system.soon(), 5), b"hello");
            client.shutdown(Shutdown::Write)?;
            assert_eq!(server.read_within(system.soon(), 5), b"");
        }
        Ok(())
    }

    fn a_refused_connect_leaves_its_error(system: &System) -> io::Result<()> {
        let socket = system.tcp_connect_refused();
        assert_eq!(socket.take_error()?.unwrap().kind(), io::ErrorKind::ConnectionRefused);
        assert!(socket.take_error()?.is_none());
        Ok(())
    }

    fn a_reset_is_not_an_end(system: &System) {
        let (ours, theirs) = system.tcp_pair();
        theirs.reset();
        assert_eq!(ours.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    fn a_duplicate_keeps_the_connection(system: &System) {
        let (ours, theirs) = system.tcp_pair();
        let again = theirs.dup().unwrap();
        drop(theirs);
        assert!(would_block(ours.read(&mut [0])));
        drop(again);
        assert_eq!(ours.read_within(system.soon(), 1), b"");
    }

    fn a_full_buffer_takes_no_more_until_it_is_read(system: &System) {
        for (writer, reader) in [system.tcp_pair(), system.unix_pair()] {
            let sum = writer.fill();
            assert!(would_block(writer.write(b"x")));
            assert_eq!(reader.read_within(system.soon(), sum).len(), sum);
            writer.write(b"x").unwrap();
        }
        let (reader, writer) = system.pipe();
        assert_eq!(writer.fill(), 64 * 1024);
        assert_eq!(reader.drain(), 64 * 1024);
    }

    fn datagrams_come_one_by_one_with_their_sender(system: &System) -> io::Result<()> {
        let (first, second) = (system.udp_bound(), system.udp_bound());
        first.send_to(b"one", &second.address())?;
        first.send_to(b"two and more", &second.address())?;
        let mut buf = [0; 4];
        let (taken, from) = second.recv_from(&mut buf)?;
        assert_eq!((&buf[..taken], from), (&b"one"[..], Some(first.address())));
        assert_eq!(second.recv_from(&mut buf)?.0, 4);
        assert!(would_block(second.recv_from(&mut buf)));
        Ok(())
    }

    fn a_counter_adds_up(system: &System) -> io::Result<()> {
        let event = system.event();
        event.signal(2)?;
        event.signal(3)?;
        let mut sum = [0; 8];
        event.read(&mut sum)?;
        assert_eq!(u64::from_ne_bytes(sum), 5);
        assert!(would_block(event.read(&mut sum)));
        Ok(())
    }
}

#[test]
fn a_socket_that_is_left_open_is_found() {
    let leak = |system: &System| std::mem::forget(system.tcp_pair());
    assert!(catch_unwind(|| testkit::run(System::simulated, leak)).is_err());
    assert!(catch_unwind(|| testkit::run(System::native, leak)).is_err());
}

#[test]
fn a_claim_that_fails_fails_the_test() {
    let fail = |_: &System| Err::<(), _>("no");
    assert!(catch_unwind(|| testkit::run(System::simulated, fail)).is_err());
}

#[test]
fn no_process_is_made_while_a_claim_runs() {
    static MADE: AtomicBool = AtomicBool::new(false);
    static MAKER: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
    testkit::run(System::simulated, |system: &System| {
        let maker = thread::spawn(|| {
            let mut child = testkit::spawn(&mut Command::new("true")).unwrap();
            MADE.store(true, SeqCst);
            assert!(child.wait().unwrap().success());
        });
        *MAKER.lock().unwrap() = Some(maker);
        let begun = Instant::now();
        while begun.elapsed() < system.quiet() {
            assert!(!MADE.load(SeqCst), "a process was made");
            thread::yield_now();
        }
    });
    MAKER.lock().unwrap().take().unwrap().join().unwrap();
    assert!(MADE.load(SeqCst));
}

#[test]
fn allocations_of_this_thread_are_counted() {
    let (kept, count) = testkit::alloc::count(|| (Box::new(1), vec![0_u8; 100]));
    assert_eq!(count, 2);
    let (_, none) = testkit::alloc::count(|| drop(kept));
    assert_eq!(none, 0);
    let (_, all) = testkit::alloc::count_all_threads(|| Box::new(1));
    assert!(all >= 1);
}

#[test]
fn who_meets_an_obstacle_sleeps_until_it_is_cleared() {
    let mut obstacles =
        vec![Obstacle::condition(), Obstacle::lock(), Obstacle::pipe(), Obstacle::socket()];
    match Obstacle::missing_page() {
        Ok(page) => obstacles.push(page),
        Err(error) => println!("SKIPPED who_meets_an_obstacle: userfaultfd: {error}"),
    }
    for obstacle in obstacles {
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let met = scope.spawn(|| {
                say.send(ThreadNumber::current()).unwrap();
                obstacle.meet();
            });
            let thread = heard.recv().unwrap();
            let begun = Instant::now();
            while !thread.sleeps() {
                assert!(begun.elapsed() < testkit::SOON, "{obstacle:?} is none");
                thread::yield_now();
            }
            assert!(!met.is_finished());
            obstacle.clear();
            met.join().unwrap();
        });
    }
}

#[test]
fn two_threads_that_share_a_processor_preempt_each_other() {
    let over = AtomicBool::new(false);
    let (say, heard) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                scheduler::share_one_processor();
                say.send(ThreadNumber::current()).unwrap();
                let begun = Instant::now();
                while !over.load(SeqCst) && begun.elapsed() < testkit::SOON {
                    std::hint::spin_loop();
                }
            });
        }
        let both = [heard.recv().unwrap(), heard.recv().unwrap()];
        let before = both.map(ThreadNumber::preemptions);
        let begun = Instant::now();
        let preempted = || (0..2).all(|number| both[number].preemptions() > before[number]);
        while !preempted() && begun.elapsed() < testkit::SOON {
            thread::yield_now();
        }
        let preempted = preempted();
        over.store(true, SeqCst);
        assert!(preempted, "{both:?}");
    });
}

#[test]
fn in_the_sandbox_a_call_is_refused() {
    let parent = || {
        // SAFETY: getppid(2) demands nothing.
        unsafe { libc::syscall(libc::SYS_getppid) }
    };
    if sandbox::is_inside() {
        assert_eq!(parent(), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), sandbox::code());
        assert_eq!(sandbox::code(), Some(libc::ENOTTY));
        return;
    }
    assert!(parent() > 0);
    let name = "in_the_sandbox_a_call_is_refused";
    if let Err(error) = sandbox::run(name, &[libc::SYS_getppid], libc::ENOTTY) {
        println!("SKIPPED {name}: seccomp: {error}");
    }
}

#[test]
fn from_then_on_a_call_is_refused_in_every_thread() {
    let name = "from_then_on_a_call_is_refused_in_every_thread";
    if !in_a_process_of_its_own(name) {
        return;
    }
    let parent = || {
        // SAFETY: getppid(2) demands nothing.
        let parent = unsafe { libc::syscall(libc::SYS_getppid) };
        if parent > 0 { None } else { io::Error::last_os_error().raw_os_error() }
    };
    let (ask, asked) = mpsc::channel::<()>();
    let (say, said) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || asked.iter().for_each(|()| say.send(parent()).unwrap()));
        let other = || {
            ask.send(()).unwrap();
            said.recv().unwrap()
        };
        assert_eq!((parent(), other()), (None, None));
        if let Err(error) = sandbox::refuse_from_now_on(&[libc::SYS_getppid], libc::ENOTTY) {
            println!("SKIPPED {name}: seccomp: {error}");
        } else {
            assert_eq!((parent(), other()), (Some(libc::ENOTTY), Some(libc::ENOTTY)));
        }
        drop(ask);
    });
}

#[test]
fn dice_that_are_derived_differ_and_can_be_had_again() {
    let dice = Dice::new();
    let roll = |mut dice: Dice| (0..20).map(|_| dice.roll(1_000)).collect::<Vec<_>>();
    assert_eq!(roll(dice.clone()), roll(dice.clone()));
    assert_eq!(roll(dice.another(3)), roll(dice.another(3)));
    assert_ne!(roll(dice.another(3)), roll(dice.another(4)));
    assert!(roll(dice).into_iter().all(|number| number < 1_000));
}
