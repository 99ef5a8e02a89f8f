//! The error codes, under the names that the simulated kernel uses.

#[allow(unused_imports, reason = "the simulated kernel has more of them than a reactor")]
pub(crate) use libc::{
    EACCES, EAGAIN, EALREADY, EBADF, ECONNABORTED, ECONNREFUSED, ECONNRESET, EDESTADDRREQ, EEXIST,
    EFBIG, EINPROGRESS, EINTR, EINVAL, EIO, EISCONN, EMFILE, EMSGSIZE, ENFILE, ENOBUFS, ENODEV,
    ENOENT, ENOMEM, ENOSPC, ENOSYS, ENOTCONN, ENOTSOCK, EOPNOTSUPP, EPERM, EPIPE, ESPIPE,
};
