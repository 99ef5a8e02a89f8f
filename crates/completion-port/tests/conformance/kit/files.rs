//! File operations, and the outcomes in their packets.

use completion_port::{Error, Outcome};
#[cfg(target_os = "linux")]
use testkit::{HangingDisk, System, in_a_process_of_its_own, skipped};

/// Returns this machine's system with each of its file engines. Skips a missing engine and reports
/// that.
#[cfg(target_os = "linux")]
pub(crate) fn native() -> impl Iterator<Item = System> {
    [System::native_with_ring(), System::native_with_threads()].into_iter().filter(|system| {
        let has_it = system.has_its_file_engine();
        if !has_it {
            skipped("with a ring: this process may not use io_uring");
        }
        has_it
    })
}

/// Returns a disk that hangs when a read begins at `place`, in the child process in which the test
/// `name` runs again. Returns `None` in the parent, and where no such disk is available, which it
/// reports.
#[cfg(target_os = "linux")]
pub(crate) fn hanging_disk(name: &str, place: u32) -> Option<HangingDisk> {
    if !in_a_process_of_its_own(name) {
        return None;
    }
    let disk = HangingDisk::new(place);
    disk.inspect_err(|error| skipped(format_args!("a system call cannot be held here: {error}")))
        .ok()
}

/// Returns `len` bytes in which no two neighbouring pages are equal.
pub(crate) fn page(len: usize) -> Vec<u8> {
    (0..len).map(|place| u8::try_from((place + place / 251) % 256).unwrap()).collect()
}

/// Returns the bytes of a read.
#[track_caller]
pub(crate) fn read(outcome: Outcome) -> Result<Vec<u8>, Error> {
    match outcome {
        Outcome::Read(Ok(count), buffer) => {
            assert_eq!(count, buffer.len());
            Ok(buffer)
        }
        Outcome::Read(Err(error), _) => Err(error),
        _ => panic!("no read"),
    }
}

/// Returns the number of bytes written.
#[track_caller]
pub(crate) fn written<B>(outcome: &Outcome<B>) -> Result<usize, Error> {
    match outcome {
        Outcome::Written(result, _) => *result,
        _ => panic!("no write"),
    }
}

/// Returns the result of a sync.
#[track_caller]
pub(crate) fn synced<B>(outcome: &Outcome<B>) -> Result<(), Error> {
    match outcome {
        Outcome::Synced(result) => *result,
        _ => panic!("it is something else"),
    }
}
