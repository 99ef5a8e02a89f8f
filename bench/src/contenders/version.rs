//! The versions of the compared crates, from `Cargo.lock`.

/// The version of a crate on which this package depends; the build script has looked it up.
macro_rules! of_crate {
    ($name:literal) => {
        concat!($name, " ", env!(concat!("VERSION_OF_", $name)))
    };
}
pub(super) use of_crate;
