//! That the kernel refuses for good to say what is ready: kept here until a wait can report it.

use std::sync::atomic::Ordering::Relaxed;

use super::Engine;
use crate::types::error::Fault;
use crate::types::error::{Call, Error, ErrorKind};

impl Engine {
    /// Keeps a refusal until a wait of any thread reports it.
    #[cold]
    pub(crate) fn keep_fault(&self, fault: Fault) {
        let mut state = self.lock();
        state.stock.fault = Some(fault);
        self.has_fault.store(true, Relaxed);
    }

    /// Whether there is a refusal that no wait has reported.
    #[inline]
    pub(crate) fn has_fault(&self) -> bool {
        self.has_fault.load(Relaxed)
    }

    /// The error of the calling wait: the refusal that was kept last, perhaps of another thread. It stays, since two waits
    /// may have met a refusal before one of them reports it.
    #[cold]
    pub(crate) fn take_fault(&self) -> Error {
        let state = self.lock();
        self.has_fault.store(false, Relaxed);
        let fault = state.stock.fault;
        let fault = fault.unwrap_or(Fault { kind: ErrorKind::Other, code: None });
        Error::new(Call::Wait, fault.kind).with_code(fault.code)
    }
}
