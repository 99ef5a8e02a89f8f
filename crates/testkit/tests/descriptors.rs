//! A leaked descriptor of the process is found. Alone in its process.

use std::fs::File;
use std::panic::catch_unwind;

#[test]
fn a_descriptor_that_is_left_open_is_found() {
    testkit::descriptors::assert_no_descriptor_left(|| drop(File::open("/dev/null")));
    let leak = || {
        testkit::descriptors::assert_no_descriptor_left(|| {
            std::mem::forget(File::open("/dev/null"));
        });
    };
    assert!(catch_unwind(leak).is_err());
}
