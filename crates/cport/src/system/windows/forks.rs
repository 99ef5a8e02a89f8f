//! No process is forked here.

use crate::probe::kit::{Lacking, Seen};

const LACKING: Lacking = Lacking("this system forks no process");

pub(crate) fn forked() -> Seen {
    Err(LACKING.into())
}

pub(crate) fn operations() -> Seen {
    Err(LACKING.into())
}
