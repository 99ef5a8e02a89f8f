//! The objects that can be registered on ports of the system.

use std::os::windows::io::{AsHandle, AsRawHandle, AsSocket};

use crate::types::fd::number_of;
use crate::types::source::Descriptor;
use crate::types::source::{BorrowedSource, FileSource, KernelId, Source};

impl<S: AsSocket + ?Sized> Source for S {
    #[inline]
    fn as_source(&self) -> BorrowedSource<'_> {
        BorrowedSource::new(KernelId::SYSTEM, number_of(&self.as_socket()))
    }
}

impl<F: AsHandle> Source for FileSource<F> {
    #[inline]
    fn as_source(&self) -> BorrowedSource<'_> {
        // Handles of files and sockets share one table of numbers.
        let number = Descriptor::try_from((**self).as_handle().as_raw_handle().addr());
        BorrowedSource::new(KernelId::SYSTEM, number.unwrap_or(-1))
    }
}
