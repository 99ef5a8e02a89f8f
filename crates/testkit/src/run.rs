//! A claim, tested once on each system.

use std::any::Any;
use std::fmt::{Debug, Display};
use std::panic;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use crate::{LIMIT, SOON, System, child};

/// What a claim may return.
pub trait Outcome {
    /// Panics if this is a failure.
    fn check(self);
}

impl Outcome for () {
    fn check(self) {}
}

impl<E: Debug> Outcome for Result<(), E> {
    #[track_caller]
    fn check(self) {
        if let Err(error) = self {
            panic!("the claim returned {error:?}");
        }
    }
}

/// What a claim needs and the system does not have.
struct Lacking(&'static str);

/// Ends the claim that the calling thread makes: it is skipped, by its name, since the system has no `what`.
///
/// # Panics
///
/// Always, by which the claim ends. [`run`] sees to it that its test does not fail.
pub fn lacking(what: &'static str) -> ! {
    panic::resume_unwind(Box::new(Lacking(what)))
}

/// Says, where CI looks for it, that a part of the test of the calling thread is skipped, and why. For a whole claim of
/// [`run`] there is [`lacking`].
pub fn skipped(why: impl Display) {
    let test = thread::current();
    println!("SKIPPED {}: {why}", test.name().unwrap_or("a claim"));
}

/// The machine was so busy that the test missed a time which it had to be in.
struct Late;

/// Ends the calling thread's claim, which is then tried again: the thread had to do something in
/// time, and the machine was too busy.
///
/// # Panics
///
/// Always; this ends the attempt. [`run`] makes sure that the test does not fail, unless it happens
/// too often.
pub fn late() -> ! {
    panic::resume_unwind(Box::new(Late))
}

/// How often a claim may be [`late`], and more often while it is within [`SOON`].
const ATTEMPTS: usize = 20;

/// Runs `claim` on the system that `make` creates; [`on_every_system!`](crate::on_every_system)
/// calls it.
///
/// Fails if the claim panics or returns an error, does not end, or leaves a socket or (simulated) a
/// port behind. With `RUST_TEST_THREADS=1` in the environment, when no other test runs, it also
/// finds any descriptor of the process that was left open. Meanwhile no other test [starts a
/// process](crate::spawn).
pub fn run<R: Outcome + 'static>(make: fn() -> System, claim: fn(&System) -> R) {
    let _undisturbed = child::undisturbed();
    let alone = std::env::var("RUST_TEST_THREADS").is_ok_and(|threads| threads == "1");
    // If the system lists a process's open descriptors.
    #[cfg(target_os = "linux")]
    let before = alone.then(crate::descriptors::open);
    #[cfg(not(target_os = "linux"))]
    let _ = alone;
    let (begun, mut attempts) = (Instant::now(), 1);
    let mut failure = attempt(make, claim);
    while failure.as_ref().is_some_and(|failure| failure.is::<Late>()) {
        let goes_on = attempts < ATTEMPTS || begun.elapsed() < SOON;
        assert!(goes_on, "the test was never in time, {attempts} times");
        failure = attempt(make, claim);
        attempts += 1;
    }
    if let Some(Lacking(what)) = failure.as_ref().and_then(|failure| failure.downcast_ref()) {
        skipped(format_args!("this system has no {what}"));
    } else if let Some(failure) = failure {
        panic::resume_unwind(failure);
    }
    #[cfg(target_os = "linux")]
    if let Some(before) = before {
        crate::descriptors::await_same(&before);
    }
}

/// Tries the claim once. Returns the value of its panic.
fn attempt<R: Outcome + 'static>(
    make: fn() -> System,
    claim: fn(&System) -> R,
) -> Option<Box<dyn Any + Send>> {
    let (done, end) = mpsc::channel::<()>();
    // In a separate thread, so that a stuck test can be distinguished from a slow one.
    let test = thread::spawn(move || {
        let _done = done;
        let system = make();
        #[cfg(any(target_os = "linux", windows))]
        if !system.has_its_file_engine() {
            lacking("io_uring that this process may use");
        }
        claim(&system).check();
        system.assert_nothing_left();
    });
    if let Err(RecvTimeoutError::Timeout) = end.recv_timeout(LIMIT) {
        panic!("the test did not end within {LIMIT:?}");
    }
    test.join().err()
}

/// Creates a module for each claim with one test for each back end: `name::epoll` and `name::sim`.
/// The tests `name::once` and `name::sim_once` use ports that arm a descriptor again for each
/// report. In `name::sim_kqueue` the ports of the simulated kernel watch their sockets with a
/// kqueue, and in `name::sim_notifications` with the notifications of Windows.
///
/// ```
/// testkit::on_every_system! {
///     /// What is written arrives.
///     fn what_is_written_arrives(system: &System) {
///         let (ours, theirs) = system.tcp_pair();
///         theirs.write(b"x").unwrap();
///         assert_eq!(ours.read_within(system.soon(), 10), b"x");
///     }
/// }
/// ```
///
/// A claim may also return a `Result<(), E>`. See [`run`] for additional checks.
#[macro_export]
macro_rules! on_every_system {
    ($($claims:tt)+) => {
        $crate::claims_on! {
            {
                #[cfg(target_os = "linux")] epoll: $crate::System::native;
                #[cfg(target_os = "linux")] #[ignore = "one more configuration"] once: || $crate::System::native().one_shot();
                #[cfg(windows)] afd: || $crate::System::native().one_shot();
                #[cfg(all(unix, not(target_os = "linux")))] kqueue: $crate::System::native;
                #[cfg(all())] sim: $crate::System::simulated;
                #[cfg(all())] #[ignore = "one more configuration"] sim_once: || $crate::System::simulated().one_shot();
                #[cfg(all())] #[ignore = "one more configuration"] sim_notifications: $crate::System::simulated_notifications;
                #[cfg(all())] #[ignore = "one more configuration"] sim_kqueue: $crate::System::simulated_kqueue;
            }
            $($claims)+
        }
    };
}

/// Like [`on_every_system!`](crate::on_every_system), for claims about files: with a ring, with
/// threads, with descriptors that are armed again for each report, and on the simulated kernel in
/// both ways. Without a ring, that test is skipped with a message.
#[macro_export]
macro_rules! on_every_file_system {
    ($($claims:tt)+) => {
        $crate::claims_on! {
            {
                #[cfg(target_os = "linux")] ring: $crate::System::native_with_ring;
                #[cfg(target_os = "linux")] threads: $crate::System::native_with_threads;
                #[cfg(target_os = "linux")] #[ignore = "one more configuration"] once: || $crate::System::native().one_shot();
                #[cfg(windows)] afd: || $crate::System::native().one_shot();
                #[cfg(windows)] afd_threads: $crate::System::native_with_threads;
                #[cfg(all(unix, not(target_os = "linux")))] kqueue: $crate::System::native;
                #[cfg(all())] sim: $crate::System::simulated;
                #[cfg(all())] #[ignore = "one more configuration"] sim_once: || $crate::System::simulated().one_shot();
                #[cfg(all())] #[ignore = "one more configuration"] sim_notifications: $crate::System::simulated_notifications;
                #[cfg(all())] #[ignore = "one more configuration"] sim_kqueue: $crate::System::simulated_kqueue;
            }
            $($claims)+
        }
    };
}

/// Like [`on_every_system!`](crate::on_every_system), for behaviour that differs on a port that
/// arms its descriptors again for each report.
#[macro_export]
macro_rules! on_edge_triggered_systems {
    ($($claims:tt)+) => {
        $crate::claims_on! {
            {
                #[cfg(target_os = "linux")] epoll: $crate::System::native;
                #[cfg(all(unix, not(target_os = "linux")))] kqueue: $crate::System::native;
                #[cfg(all())] sim: $crate::System::simulated;
                #[cfg(all())] #[ignore = "one more configuration"] sim_kqueue: $crate::System::simulated_kqueue;
            }
            $($claims)+
        }
    };
}

/// As [`on_every_system!`](crate::on_every_system), for what only a port does that arms its
/// descriptors again for each report.
#[macro_export]
macro_rules! on_one_shot_systems {
    ($($claims:tt)+) => {
        $crate::claims_on! {
            {
                #[cfg(target_os = "linux")] once: || $crate::System::native().one_shot();
                #[cfg(windows)] afd: || $crate::System::native().one_shot();
                #[cfg(all())] sim_once: || $crate::System::simulated().one_shot();
                #[cfg(all())] #[ignore = "one more configuration"] sim_notifications: $crate::System::simulated_notifications;
            }
            $($claims)+
        }
    };
}

/// As [`on_every_system!`](crate::on_every_system), for what only a port does that watches its sockets by a kqueue.
#[macro_export]
macro_rules! on_kqueue_systems {
    ($($claims:tt)+) => {
        $crate::claims_on! {
            {
                #[cfg(all(unix, not(target_os = "linux")))] kqueue: $crate::System::native;
                #[cfg(all())] #[ignore = "one more configuration"] sim_kqueue: $crate::System::simulated_kqueue;
            }
            $($claims)+
        }
    };
}

/// A module for each claim, with a test on each of the systems.
#[doc(hidden)]
#[macro_export]
macro_rules! claims_on {
    ($systems:tt $($(#[$attribute:meta])* fn $name:ident($system:ident: &System) $(-> $outcome:ty)? $body:block)+) => {$(
        mod $name {
            #[allow(unused_imports, reason = "a claim may need nothing from its surroundings")]
            use super::*;

            $(#[$attribute])*
            fn claim($system: &$crate::System) $(-> $outcome)? $body

            $crate::tests_on! { $systems }
        }
    )+};
}

/// A test of the function `claim` on each of the systems.
#[doc(hidden)]
#[macro_export]
macro_rules! tests_on {
    ({ $($(#[$attribute:meta])+ $name:ident: $make:expr;)+ }) => {$(
        $(#[$attribute])+
        #[test]
        fn $name() {
            $crate::run($make, claim);
        }
    )+};
}
