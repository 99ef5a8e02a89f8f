//! How the errors of system calls are handled. Each back end has one table with a row for each call; an error in no row is
//! permanent.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::types::error::ErrorKind;
use crate::types::error::Fault;

/// An `errno`, or what the system has instead.
pub(crate) type Code = i32;

/// The errors of one call that pass. Every other error is permanent: the call is given up, and its caller reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errors {
    /// The call is made again at once, and after [`Retries`] given up.
    pub(crate) again: &'static [Code],
    /// The call is repeated after the next edge of the descriptor.
    pub(crate) ready: &'static [Code],
    /// The call is repeated after a delay, since no edge announces what it lacks. There is no limit: the operation has a
    /// deadline, and can be cancelled.
    pub(crate) later: &'static [Code],
}

/// What follows a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Again,
    Ready,
    Later,
    Failed,
}

impl Errors {
    /// No error of the call passes.
    pub(crate) const NONE: Self = Self { again: &[], ready: &[], later: &[] };

    /// What follows a call that has failed with `code`.
    #[allow(clippy::inline_always, reason = "folded with the constant of the caller's table")]
    #[inline(always)]
    pub(crate) fn then(&self, code: Code) -> Then {
        match code {
            code if self.ready.contains(&code) => Then::Ready,
            code if self.again.contains(&code) => Then::Again,
            code if self.later.contains(&code) => Then::Later,
            _ => Then::Failed,
        }
    }
}

/// The fault of a failed call that a wait makes: `forbidden` lists what a sandbox says, and what an old
/// system says, `short` what says that memory is short.
pub(crate) fn fault_of_wait(code: Code, forbidden: &[Code], short: &[Code]) -> Fault {
    let kind = match code {
        code if forbidden.contains(&code) => ErrorKind::Unsupported,
        code if short.contains(&code) => ErrorKind::OutOfMemory,
        _ => ErrorKind::Other,
    };
    Fault { kind, code: Some(code) }
}

/// How often a call has been made again without success.
#[derive(Debug, Default)]
pub(crate) struct Retries(u32);

/// So often without a pause: a signal ends a call once.
const AT_ONCE: u32 = 4;

/// So often all in all. The pauses add up to 82 ms.
const MOST: u32 = AT_ONCE + 13;

/// The first pause. Each further one is twice as long.
const PAUSE: Duration = Duration::from_micros(10);

impl Retries {
    /// Whether to repeat the call, after a pause if it has failed before. False: it has failed too often, and the error
    /// is permanent.
    #[cold]
    pub(crate) fn again(&mut self) -> bool {
        self.0 += 1;
        if self.0 > MOST {
            return false;
        }
        if let Some(pauses) = self.0.checked_sub(AT_ONCE + 1) {
            pause(PAUSE * (1 << pauses));
        }
        true
    }

    /// Whether to repeat a call that has failed with `code`.
    #[cold]
    pub(crate) fn pass(&mut self, errors: &Errors, code: Code) -> bool {
        errors.then(code) == Then::Again && self.again()
    }
}

/// Sleeps for about that long.
pub(crate) fn pause(time: Duration) {
    // A thread's token for `park_timeout` belongs to the program.
    let nobody = Mutex::new(());
    let nothing = nobody.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = Condvar::new().wait_timeout(nothing, time);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Errors = Errors { again: &[4], ready: &[11], later: &[12] };

    #[test]
    fn what_no_row_has_is_permanent() {
        let then = [4, 11, 12, 1].map(|code| SOME.then(code));
        assert_eq!(then, [Then::Again, Then::Ready, Then::Later, Then::Failed]);
        assert_eq!(Errors::NONE.then(4), Then::Failed);
    }

    #[test]
    fn an_error_that_stays_is_permanent_in_the_end() {
        let mut retries = Retries::default();
        let made = (0..1000).take_while(|_| retries.pass(&SOME, 4)).count();
        assert_eq!(made, MOST as usize);
        // The pauses add up to what the comment says.
        let pauses: Duration = (0..MOST - AT_ONCE).map(|pauses| PAUSE * (1 << pauses)).sum();
        assert_eq!(pauses.as_micros(), 81_910);
        // What does not pass is not even tried again.
        assert!(!Retries::default().pass(&SOME, 12));
    }
}
