//! Random histories of one slot.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| completion_port_fuzz::slot(data));
