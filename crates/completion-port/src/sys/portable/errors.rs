//! How the errors of system calls are handled.
//!
//! Each back end has one table with a row for each call; an error in no row is permanent.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::types::error::ErrorKind;
use crate::types::error::Fault;

/// An `errno`, or what the system has instead.
pub(crate) type Code = i32;

/// The temporary errors of one call. Every other error is permanent: the caller stops and reports
/// it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errors {
    /// The call is repeated immediately, until [`Retries`] runs out.
    pub(crate) again: &'static [Code],
    /// The call is repeated after the next edge of the descriptor.
    pub(crate) ready: &'static [Code],
    /// The call is repeated after a delay, since no edge announces the missing resource. There is no
    /// limit: the operation has a deadline and can be cancelled.
    pub(crate) later: &'static [Code],
}

/// What follows a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterError {
    Again,
    Ready,
    Later,
    Failed,
}

impl Errors {
    /// Every error of the call is permanent.
    pub(crate) const NONE: Self = Self { again: &[], ready: &[], later: &[] };

    /// What follows a call that has failed with `code`.
    #[allow(clippy::inline_always, reason = "folded with the constant of the caller's table")]
    #[inline(always)]
    pub(crate) fn then(&self, code: Code) -> AfterError {
        match code {
            code if self.ready.contains(&code) => AfterError::Ready,
            code if self.again.contains(&code) => AfterError::Again,
            code if self.later.contains(&code) => AfterError::Later,
            _ => AfterError::Failed,
        }
    }
}

/// Returns the fault of a failed wait.
///
/// `forbidden` lists the codes that a sandbox or an old system returns, `short` those for a
/// shortage of memory.
pub(crate) fn fault_of_wait(code: Code, forbidden: &[Code], short: &[Code]) -> Fault {
    let kind = match code {
        code if forbidden.contains(&code) => ErrorKind::Unsupported,
        code if short.contains(&code) => ErrorKind::OutOfMemory,
        _ => ErrorKind::Other,
    };
    Fault { kind, code: Some(code) }
}

/// How many times a call has been repeated without success.
#[derive(Debug, Default)]
pub(crate) struct Retries(u32);

/// How many repetitions have no pause. A signal interrupts a call only once.
const AT_ONCE: u32 = 4;

/// The total number of repetitions. The pauses add up to 82 ms.
const MOST: u32 = AT_ONCE + 13;

/// The first pause. Each further one is twice as long.
const PAUSE: Duration = Duration::from_micros(10);

impl Retries {
    /// Returns whether to repeat the call, after a pause if it has failed before.
    ///
    /// False if it has failed too many times. The error is then permanent.
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

    /// Returns whether to repeat a call that has failed with `code`.
    #[cold]
    pub(crate) fn pass(&mut self, errors: &Errors, code: Code) -> bool {
        errors.then(code) == AfterError::Again && self.again()
    }
}

/// Sleeps for about `time`.
pub(crate) fn pause(time: Duration) {
    // Not `park_timeout`: a thread's token for that belongs to the program.
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
        assert_eq!(
            then,
            [AfterError::Again, AfterError::Ready, AfterError::Later, AfterError::Failed]
        );
        assert_eq!(Errors::NONE.then(4), AfterError::Failed);
    }

    #[test]
    fn an_error_that_stays_is_permanent_in_the_end() {
        let mut retries = Retries::default();
        let made = (0..1000).take_while(|_| retries.pass(&SOME, 4)).count();
        assert_eq!(made, MOST as usize);
        // The pauses add up to the time in the comment above.
        let pauses: Duration = (0..MOST - AT_ONCE).map(|pauses| PAUSE * (1 << pauses)).sum();
        assert_eq!(pauses.as_micros(), 81_910);
        // A permanent error is not retried at all.
        assert!(!Retries::default().pass(&SOME, 12));
    }
}
