//! Helpers for the tests of the workspace.
//!
//! * [`on_every_system!`] (for files [`on_every_file_system!`]) makes one test of a claim for each
//!   back end that this machine has; it checks that the test leaves no socket and ends in time.
//! * [`System`] makes ports and [`Socket`]s, real or simulated, with the same methods.
//! * [`connected`] makes two ends of a [`Stream`] of the standard library.
//! * [`descriptors`] looks for leaked descriptors, [`alloc`] counts allocations, [`syscalls`]
//!   counts system calls.
//! * [`rights`] sends descriptors over sockets.
//! * An [`Obstacle`] puts a thread to sleep in the kernel, [`scheduler`] reports the state of a
//!   running thread.
//! * A [`HangingDisk`] does not answer some reads until the test releases them.
//! * [`sandbox`] refuses a system call to a test; [`spawn`] starts a process while no claim runs,
//!   [`fork`] forks this one.
//! * [`SOON`] is how long a test waits for an event, and [`effort`] multiplies the repetitions of
//!   random steps.
//! * [`Dice`] are reproducible random numbers.
//!
//! Any error in here makes the test fail: the constructors panic.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "what cannot be done here is the failure of the test that asked for it"
)]

pub mod alloc;
#[cfg(all(unix, not(target_os = "linux")))]
mod bsd_files;
mod child;
#[cfg(target_os = "linux")]
pub mod descriptors;
mod dice;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod fork;
#[cfg(target_os = "linux")]
mod hanging_disk;
#[cfg(target_os = "linux")]
mod missing_page;
mod native;
mod obstacle;
mod patience;
#[cfg(target_os = "linux")]
pub mod rights;
mod run;
#[cfg(target_os = "linux")]
pub mod sandbox;
#[cfg(target_os = "linux")]
pub mod scheduler;
#[cfg(target_os = "linux")]
mod slow_start;
mod socket;
mod stream;
#[cfg(target_os = "linux")]
pub mod syscalls;
mod system;
#[cfg(unix)]
mod unix_files;
#[cfg(windows)]
mod windows_files;

#[cfg(all(unix, not(target_os = "linux")))]
pub use bsd_files::Hanging;
pub use child::{in_a_process_of_its_own, spawn};
pub use dice::Dice;
#[cfg(target_os = "linux")]
pub use files::{BLOCK, Hanging, await_readers, reads_from_cache};
#[cfg(target_os = "linux")]
pub use fork::{Forked, exit, fork, forks, in_forked_child, in_forked_child_with_clock};
#[cfg(target_os = "linux")]
pub use hanging_disk::{HangingDisk, HangingRead};
pub use obstacle::Obstacle;
pub use patience::{LIMIT, SOON, effort};
pub use run::{Outcome, lacking, late, run, skipped};
pub use socket::{Address, Socket};
pub use stream::{Stream, connected, number};
pub use system::{System, port_builder};
#[cfg(windows)]
pub use windows_files::Hanging;
