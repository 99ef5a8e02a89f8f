//! The versions of what is compared: of crates as `Cargo.lock` has them, and of the kernel.

/// The version of a crate on which this package depends; the build script has looked it up.
macro_rules! of_crate {
    ($name:literal) => {
        concat!($name, " ", env!(concat!("VERSION_OF_", $name)))
    };
}
pub(super) use of_crate;

/// The version of the kernel that runs.
pub(super) fn of_kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", release.trim())
}
