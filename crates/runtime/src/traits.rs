//! The traits of hyper and of tokio, so that crates written for them run on this runtime.

use crate::net::{OwnedReadHalf, OwnedWriteHalf, Raw, ReadHalf, Stream, TcpStream, WriteHalf};

/// Calls a macro for each type that reads, with its generics, and how the stream is reached.
macro_rules! readers {
    ($implement:ident) => {
        $implement!([] TcpStream, self => &*self);
        #[cfg(unix)]
        $implement!([] crate::net::UnixStream, self => &*self);
        $implement!([S: Stream] ReadHalf<'_, S>, self => self.stream());
        $implement!([S: Stream] OwnedReadHalf<S>, self => self.stream());
    };
}

/// The same for each type that writes.
macro_rules! writers {
    ($implement:ident) => {
        $implement!([] TcpStream, self => &*self);
        #[cfg(unix)]
        $implement!([] crate::net::UnixStream, self => &*self);
        $implement!([S: Stream] WriteHalf<'_, S>, self => self.stream());
        $implement!([S: Stream] OwnedWriteHalf<S>, self => self.stream());
    };
}

/// Defines the methods for writing, which are the same in hyper and tokio.
macro_rules! write_methods {
    ($self:ident => $stream:expr) => {
        fn poll_write(
            $self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &[u8],
        ) -> Poll<io::Result<usize>> {
            Raw::poll_write($stream, context, buffer)
        }

        fn poll_write_vectored(
            $self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffers: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            Raw::poll_write_vectored($stream, context, buffers)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown($self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready($stream.end(Shutdown::Write))
        }
    };
}

#[cfg(feature = "hyper")]
mod for_hyper {
    use std::future::Future;
    use std::io;
    use std::net::Shutdown;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};
    use std::time::{Duration, Instant};

    use hyper::rt::{Executor, Read, ReadBufCursor, Timer, Write};

    use super::{OwnedReadHalf, OwnedWriteHalf, Raw, ReadHalf, Stream, TcpStream, WriteHalf};
    use crate::Handle;
    use crate::time::{Sleep, sleep, sleep_until};

    macro_rules! read {
        ([$($generics:tt)*] $type:ty, $self:ident => $stream:expr) => {
            impl<$($generics)*> Read for $type {
                fn poll_read(
                    $self: Pin<&mut Self>,
                    context: &mut Context<'_>,
                    mut buffer: ReadBufCursor<'_>,
                ) -> Poll<io::Result<()>> {
                    // SAFETY: `as_mut` requires that only initialized bytes are written to the
                    // memory.
                    // - `poll_read_uninit` only receives into it.
                    let room = unsafe { buffer.as_mut() };
                    let read = ready!(Raw::poll_read_uninit($stream, context, room))?;
                    // SAFETY: `advance` requires that this many bytes are initialized.
                    // - the system reports that it has written that many, from the beginning.
                    unsafe { buffer.advance(read) };
                    Poll::Ready(Ok(()))
                }
            }
        };
    }
    readers!(read);

    macro_rules! write {
        ([$($generics:tt)*] $type:ty, $self:ident => $stream:expr) => {
            impl<$($generics)*> Write for $type {
                write_methods!($self => $stream);
            }
        };
    }
    writers!(write);

    impl<F> Executor<F> for Handle
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        fn execute(&self, future: F) {
            drop(self.spawn(future));
        }
    }

    impl Timer for Handle {
        fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
            Box::pin(sleep(duration))
        }

        fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
            Box::pin(sleep_until(deadline))
        }
    }

    impl hyper::rt::Sleep for Sleep {}
}

#[cfg(feature = "tokio-io")]
mod for_tokio {
    use std::io;
    use std::net::Shutdown;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::{OwnedReadHalf, OwnedWriteHalf, Raw, ReadHalf, Stream, TcpStream, WriteHalf};

    macro_rules! read {
        ([$($generics:tt)*] $type:ty, $self:ident => $stream:expr) => {
            impl<$($generics)*> AsyncRead for $type {
                fn poll_read(
                    $self: Pin<&mut Self>,
                    context: &mut Context<'_>,
                    buffer: &mut ReadBuf<'_>,
                ) -> Poll<io::Result<()>> {
                    // SAFETY: `unfilled_mut` requires that only initialized bytes are written to
                    // the memory.
                    // - `poll_read_uninit` only receives into it.
                    let room = unsafe { buffer.unfilled_mut() };
                    let read = ready!(Raw::poll_read_uninit($stream, context, room))?;
                    // SAFETY: `assume_init` requires that this many bytes are initialized.
                    // - the system reports that it has written that many, from the beginning.
                    unsafe { buffer.assume_init(read) };
                    buffer.advance(read);
                    Poll::Ready(Ok(()))
                }
            }
        };
    }
    readers!(read);

    macro_rules! write {
        ([$($generics:tt)*] $type:ty, $self:ident => $stream:expr) => {
            impl<$($generics)*> AsyncWrite for $type {
                write_methods!($self => $stream);
            }
        };
    }
    writers!(write);
}
