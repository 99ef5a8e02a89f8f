//! Random programs of a few threads, by the schedule alone.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| completion_port_fuzz::schedule(data));
