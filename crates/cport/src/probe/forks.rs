//! Forked children: a child has no part in its parent's port.

use super::Trial;
use crate::system::forks::forked;

pub(super) const TRIALS: &[Trial] = &[Trial {
    rule: 32,
    what: "a forked child calls and drops its parent's port, and makes its own",
    expected: "Forked, 2 back, Forked; its own: posted 3; the parent: posted 1, ready IN",
    run: forked,
}];
