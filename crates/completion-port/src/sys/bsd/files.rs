//! Operations on files, which threads do: none of these systems tells what is in memory.

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::System;
use crate::backend::files::{Files, Hold, Job, Now};
use crate::sys::unix::files::{Pool, hold, is_file};
use crate::types::error::Fault;
use crate::types::source::Descriptor;

impl Files for System {
    fn is_file(&self, descriptor: Descriptor) -> bool {
        is_file(descriptor)
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

    fn hold(&self, descriptor: Descriptor) -> Result<Arc<dyn Hold>, Fault> {
        hold(descriptor)
    }

    fn prepare(&self) -> Result<(), Fault> {
        self.calls.files.get_or_init(Pool::new);
        Ok(())
    }

    fn put(&self, job: Job) {
        self.calls.files.get_or_init(Pool::new).put(job);
    }

    fn go(&self) {
        if let Some(pool) = self.calls.files.get() {
            pool.go();
        }
    }

    fn take_back(&self, name: u64) -> Option<Job> {
        self.calls.files.get()?.take_back(name)
    }

    fn files_name(&self) -> Option<&'static str> {
        self.calls.files.get().map(|_| "threads")
    }
}
