//! What can be registered on ports of the system.

use std::os::fd::{AsFd, AsRawFd};

use crate::source::{BorrowedSource, KernelId, Source};

impl<S: AsFd + ?Sized> Source for S {
    #[inline]
    fn as_source(&self) -> BorrowedSource<'_> {
        BorrowedSource::new(KernelId::SYSTEM, self.as_fd().as_raw_fd())
    }
}
