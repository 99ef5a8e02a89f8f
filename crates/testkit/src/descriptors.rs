//! Which descriptors the process has open.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::SOON;

/// The open descriptors: number and target, as in `/proc/self/fd`.
#[must_use]
pub fn open() -> BTreeMap<i32, String> {
    let list = fs::read_dir("/proc/self/fd").unwrap();
    let numbers = list.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // The descriptor of the listing itself is closed by now, and so has no name.
    let numbers: Vec<String> = numbers.collect();
    numbers
        .into_iter()
        .filter_map(|number| {
            let name = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
            Some((number.parse().unwrap(), name.display().to_string()))
        })
        .collect()
}

/// Panics if there is a descriptor in `after` that was not in `before`.
#[track_caller]
pub fn assert_same(before: &BTreeMap<i32, String>, after: &BTreeMap<i32, String>) {
    let new: Vec<_> = after.iter().filter(|(number, _)| !before.contains_key(number)).collect();
    assert!(new.is_empty(), "descriptors were left open: {new:?}");
}

/// Waits until all open descriptors were already in `before`. A thread of the library may outlive its port, and only then
/// closes its descriptors.
///
/// # Panics
///
/// Panics if others stay open for too long.
#[track_caller]
#[allow(
    clippy::disallowed_methods,
    reason = "no event reports that a thread has closed a \
                                              descriptor"
)]
pub fn await_same(before: &BTreeMap<i32, String>) {
    let begun = Instant::now();
    let has_more = || open().keys().any(|number| !before.contains_key(number));
    while has_more() && begun.elapsed() < SOON {
        thread::sleep(Duration::from_millis(1));
    }
    assert_same(before, &open());
}

/// Runs `act` and panics if the process has more descriptors open afterwards. For test binaries in
/// which nothing else runs at the same time.
#[track_caller]
pub fn assert_no_descriptor_left<R>(act: impl FnOnce() -> R) -> R {
    let before = open();
    let done = act();
    assert_same(&before, &open());
    done
}
