//! The driver of the schedule's tests is compiled in, by tests as well as by `cargo fuzz`.

fn main() {
    println!("cargo::rustc-cfg=fuzzing");
    println!("cargo::rerun-if-changed=build.rs");
}
