//! The counter of system calls counts exactly.

use std::thread;

fn getppid() {
    // SAFETY: getppid(2) demands nothing.
    unsafe { libc::getppid() };
}

#[test]
#[ignore = "run under the counter by `every_call_of_a_section_is_counted_and_no_other`"]
fn seventeen_calls_in_the_section_and_some_outside() {
    getppid();
    testkit::syscalls::section(|| (0..17).for_each(|_| getppid()));
    getppid();
}

#[test]
fn every_call_of_a_section_is_counted_and_no_other() {
    match testkit::syscalls::count("seventeen_calls_in_the_section_and_some_outside") {
        Ok(calls) => {
            assert_eq!(calls.of(libc::SYS_getppid), 17);
            assert_eq!(calls.total(), 17, "{calls:?}");
        }
        Err(refused) => {
            println!("every_call_of_a_section_is_counted_and_no_other: SKIPPED: {refused}");
        }
    }
}

#[test]
#[ignore = "run under the counter by `the_calls_of_other_threads_are_counted`"]
fn five_calls_in_another_thread() {
    testkit::syscalls::section(|| {
        thread::spawn(|| (0..5).for_each(|_| getppid())).join().expect("the thread does not panic");
    });
}

#[test]
fn the_calls_of_other_threads_are_counted() {
    match testkit::syscalls::count("five_calls_in_another_thread") {
        Ok(calls) => {
            assert_eq!(calls.of(libc::SYS_getppid), 5);
            assert!(calls.total() > 5, "a thread costs calls too: {calls:?}");
        }
        Err(refused) => println!("the_calls_of_other_threads_are_counted: SKIPPED: {refused}"),
    }
}

#[test]
#[should_panic(expected = "is no test, or has no section")]
fn a_test_without_a_section_is_not_counted_as_quiet() {
    if let Err(refused) = testkit::syscalls::count("no_such_test") {
        panic!("is no test, or has no section, but SKIPPED: {refused}");
    }
}
