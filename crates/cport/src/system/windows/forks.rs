//! This system does not fork processes.

use crate::probe::kit::{Lacking, Seen};

pub(crate) fn forked() -> Seen {
    Err(Lacking("this system forks no process").into())
}
