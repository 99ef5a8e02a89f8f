//! Operations on files: what their packets bring.

use completion_port::{Error, Outcome};
#[cfg(target_os = "linux")]
use testkit::{HangingDisk, System, in_a_process_of_its_own, skipped};

/// The system of this machine with each of its file engines. One that it has not is skipped, by the name of the test.
#[cfg(target_os = "linux")]
pub(crate) fn native() -> impl Iterator<Item = System> {
    [System::native_with_ring(), System::native_with_threads()].into_iter().filter(|system| {
        let has_it = system.has_its_file_engine();
        if !has_it {
            skipped("with a ring: this process may use no io_uring");
        }
        has_it
    })
}

/// A disk that hangs where a read begins at `place`, in the process of its own in which the test `name` runs once more.
/// `None` in the first one, and where none is to be had, which is said.
#[cfg(target_os = "linux")]
pub(crate) fn hanging_disk(name: &str, place: u32) -> Option<HangingDisk> {
    if !in_a_process_of_its_own(name) {
        return None;
    }
    let disk = HangingDisk::new(place);
    disk.inspect_err(|error| skipped(format_args!("no system call can be held: {error}"))).ok()
}

/// So many bytes, of which no two neighbouring pages are the same.
pub(crate) fn page(len: usize) -> Vec<u8> {
    (0..len).map(|place| u8::try_from((place + place / 251) % 256).unwrap()).collect()
}

/// The bytes of a read.
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

/// How much a write has written.
#[track_caller]
pub(crate) fn written<B>(outcome: &Outcome<B>) -> Result<usize, Error> {
    match outcome {
        Outcome::Written(result, _) => *result,
        _ => panic!("no write"),
    }
}

/// What having a file put on the disk has come to.
#[track_caller]
pub(crate) fn synced<B>(outcome: &Outcome<B>) -> Result<(), Error> {
    match outcome {
        Outcome::Synced(result) => *result,
        _ => panic!("it is something else"),
    }
}
