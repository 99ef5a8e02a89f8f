//! That the kernel refuses for good to say what is ready: kept here until a wait can report it.

use std::sync::atomic::Ordering::Relaxed;

use super::Engine;
use crate::error::{Call, Error};
use crate::state::facts::Fault;

/// The error of a wait that the kernel has refused.
#[cold]
pub(crate) fn error_of(fault: Fault) -> Error {
    Error::new(Call::Wait, fault.kind).with_code(fault.code)
}

impl Engine {
    /// Keeps a refusal that its caller cannot report. The next wait of any thread reports it.
    #[cold]
    pub(crate) fn keep_fault(&self, fault: Fault) {
        let mut state = self.lock();
        state.stock.fault = Some(fault);
        self.has_fault.store(true, Relaxed);
    }

    /// The refusal that the calling wait has to report, if there is one.
    #[cold]
    pub(super) fn take_fault(&self) -> Option<Fault> {
        let mut state = self.lock();
        self.has_fault.store(false, Relaxed);
        state.stock.fault.take()
    }

    /// Fails if an earlier wait has kept a refusal.
    #[inline]
    pub(crate) fn check_fault(&self) -> Result<(), Error> {
        if self.has_fault.load(Relaxed)
            && let Some(fault) = self.take_fault()
        {
            return Err(error_of(fault));
        }
        Ok(())
    }
}
