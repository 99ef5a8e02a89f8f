//! Operations on files. Threads perform them: none of these systems reports what is cached.

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::System;
use crate::backend::files::{FileRef, FileTarget, Files, Now};
use crate::backend::request::Submit;
use crate::sys::unix::files::{Pool, file_ref, is_file};
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

    fn file_ref(&self, descriptor: Descriptor) -> Result<Arc<dyn FileRef>, Fault> {
        file_ref(descriptor)
    }

    fn file_requests(&self) -> &dyn Submit<FileTarget> {
        self.calls.files.get_or_init(Pool::new)
    }

    fn files_name(&self) -> Option<&'static str> {
        self.calls.files.get().map(|_| "threads")
    }
}
