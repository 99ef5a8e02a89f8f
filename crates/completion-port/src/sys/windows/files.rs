//! Operations on files, which this back end does not have: nothing but a socket can be registered.

use std::mem::MaybeUninit;
use std::sync::{Arc, PoisonError};

use super::afd::Afd;
use crate::error::ErrorKind;
use crate::state::facts::{Descriptor, Fault};
use crate::sys::files::{Files, Hold, Now, Task};

const UNSUPPORTED: Fault = Fault { kind: ErrorKind::Unsupported, code: None };

impl Files for Afd {
    fn is_file(&self, _descriptor: Descriptor) -> bool {
        false
    }

    fn reads_now(&self, _descriptor: Descriptor) -> bool {
        false
    }

    fn read_now(
        &self,
        _descriptor: Descriptor,
        _position: u64,
        _room: &mut [&mut [MaybeUninit<u8>]],
    ) -> Now {
        Now::Never
    }

    fn hold(&self, _descriptor: Descriptor) -> Result<Arc<dyn Hold>, Fault> {
        Err(UNSUPPORTED)
    }

    fn prepare(&self) -> Result<(), Fault> {
        Err(UNSUPPORTED)
    }

    // No task comes here, since none can be made without a hold. Should one come all the same, it is given back.
    fn put(&self, mut task: Task) {
        task.fault = Some(UNSUPPORTED);
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    fn go(&self) {
        let refused =
            std::mem::take(&mut *self.refused.lock().unwrap_or_else(PoisonError::into_inner));
        refused.into_iter().for_each(Task::give_back);
    }

    fn take_back(&self, name: u64) -> Option<Task> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let place = refused.iter().position(|task| task.name == name)?;
        Some(refused.swap_remove(place))
    }

    fn files_name(&self) -> Option<&'static str> {
        None
    }
}
