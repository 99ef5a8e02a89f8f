//! The contenders on Windows.

use super::{Contender, ours, runtime, tokio};

/// All contenders; the first is the one to which the others are compared.
pub(crate) fn all() -> Vec<Contender> {
    vec![ours::contender(), tokio::contender(), runtime::contender()]
}
