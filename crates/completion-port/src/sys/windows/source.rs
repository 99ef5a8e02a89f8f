//! What can be registered on ports of the system.

use std::os::windows::io::{AsHandle, AsRawHandle, AsRawSocket, AsSocket};

use crate::source::{BorrowedSource, FileSource, KernelId, Source};
use crate::state::facts::Descriptor;

/// What names no socket.
const NONE: Descriptor = -1;

impl<S: AsSocket + ?Sized> Source for S {
    #[inline]
    fn as_source(&self) -> BorrowedSource<'_> {
        // A socket is a handle of the kernel, and of a handle the lower 32 bits count. One that has more would be
        // of a provider that makes up its own: it is refused when it is registered, as a bad descriptor.
        let number = Descriptor::try_from(self.as_socket().as_raw_socket()).unwrap_or(NONE);
        BorrowedSource::new(KernelId::SYSTEM, number)
    }
}

impl<F: AsHandle> Source for FileSource<F> {
    #[inline]
    fn as_source(&self) -> BorrowedSource<'_> {
        // As above. Handles of files and sockets are numbers of one table.
        let number = Descriptor::try_from((**self).as_handle().as_raw_handle().addr());
        BorrowedSource::new(KernelId::SYSTEM, number.unwrap_or(NONE))
    }
}
