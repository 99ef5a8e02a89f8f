//! Signals.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use completion_port_runtime::signal::Signal;
use completion_port_runtime::{Runtime, spawn, timeout};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_signal_wakes_each_task_that_waits_for_it() {
    Runtime::new().unwrap().block_on(async {
        let mut first = Signal::new(libc::SIGUSR1).unwrap();
        let mut second = Signal::new(libc::SIGUSR1).unwrap();
        let task = spawn(async move {
            second.recv().await.unwrap();
            second.recv().await.unwrap();
        });
        for _ in 0..2 {
            // SAFETY: `raise` has no requirement.
            // - the handler was installed above.
            assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
            timeout(LIMIT, first.recv()).await.unwrap().unwrap();
        }
        timeout(LIMIT, task).await.unwrap().unwrap();
        // A cancelled wait loses no signal.
        assert!(timeout(Duration::from_millis(1), first.recv()).await.is_err());
        // SAFETY: as above.
        // - the handler is still installed.
        assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
        timeout(LIMIT, first.recv()).await.unwrap().unwrap();
    });
}

/// The named signals have the numbers of the system, and each value gets only its own.
#[test]
fn each_signal_reaches_those_who_wait_for_it() {
    Runtime::new().unwrap().block_on(async {
        let mut signals = [
            (Signal::hangup().unwrap(), libc::SIGHUP),
            (Signal::quit().unwrap(), libc::SIGQUIT),
            (Signal::interrupt().unwrap(), libc::SIGINT),
            (Signal::terminate().unwrap(), libc::SIGTERM),
            (Signal::user_defined2().unwrap(), libc::SIGUSR2),
        ];
        for at in 0..signals.len() {
            // SAFETY: `raise` has no requirement.
            // - the handler was installed above.
            assert_eq!(unsafe { libc::raise(signals[at].1) }, 0);
            timeout(LIMIT, signals[at].0.recv()).await.unwrap().unwrap();
            for (other, number) in &mut signals {
                let none = timeout(Duration::from_millis(1), other.recv()).await;
                assert!(none.is_err(), "{number}");
            }
        }
        // A program is asked to stop by either of two.
        for number in [libc::SIGTERM, libc::SIGINT] {
            let mut asked = Box::pin(completion_port_runtime::signal::shutdown());
            assert!(timeout(Duration::from_millis(1), asked.as_mut()).await.is_err());
            // SAFETY: as above.
            // - the handlers are installed.
            assert_eq!(unsafe { libc::raise(number) }, 0);
            timeout(LIMIT, asked).await.unwrap().unwrap();
        }
    });
}
