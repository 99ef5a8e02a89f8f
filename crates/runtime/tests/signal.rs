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
