//! The objects that can be registered on ports of the system.

use std::os::fd::{AsFd, AsRawFd};

use crate::types::source::{BorrowedSource, FileSource, KernelId, Source};

impl<S: AsFd + ?Sized> Source for S {
    #[inline]
    fn as_source(&self) -> BorrowedSource<'_> {
        BorrowedSource::new(KernelId::SYSTEM, self.as_fd().as_raw_fd())
    }
}

impl<F: AsFd> Source for FileSource<F> {
    #[inline]
    fn as_source(&self) -> BorrowedSource<'_> {
        (**self).as_source()
    }
}
