//! System-dependent functions of the benchmark, and measurements that one system alone has.

use serde::{Deserialize, Serialize};

#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(windows, path = "windows/mod.rs")]
mod here;

use self::here::LACKS;
pub(crate) use self::here::*;

/// How often threads of the process have lost the processor.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Switches {
    /// Since they went to sleep, and so had to be woken.
    pub(crate) voluntary: u64,
    /// Since they were preempted.
    pub(crate) involuntary: u64,
}

/// The events that a socket's clients request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Input,
    /// Room to send, whenever there is some again after there was none.
    Output,
    Both,
}

/// Why a scenario is not measured on this system, if it is not.
pub(crate) fn lacks(scenario: &str) -> Option<&'static str> {
    let lacking = LACKS.iter().find(|(lacking, _)| lacking.eq_ignore_ascii_case(scenario));
    lacking.map(|(_, reason)| *reason)
}
