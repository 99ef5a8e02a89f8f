//! The traits of hyper and of tokio, so that crates written for them run on this runtime.

#[cfg(feature = "hyper")]
mod for_hyper {
    use std::future::Future;
    use std::io;
    use std::net::Shutdown;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};
    use std::time::{Duration, Instant};

    use hyper::rt::{Executor, Read, ReadBufCursor, Timer, Write};

    use crate::net::TcpStream;
    use crate::{Handle, Sleep, sleep, sleep_until};

    impl Read for TcpStream {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            mut buffer: ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            // SAFETY: `as_mut` requires that only initialized bytes are written to the memory.
            // - `poll_read_uninit` only receives into it.
            let room = unsafe { buffer.as_mut() };
            let read = ready!(self.poll_read_uninit(context, room))?;
            // SAFETY: `advance` requires that this many bytes are initialized.
            // - the system reports that it has written that many, from the beginning.
            unsafe { buffer.advance(read) };
            Poll::Ready(Ok(()))
        }
    }

    impl Write for TcpStream {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &[u8],
        ) -> Poll<io::Result<usize>> {
            Self::poll_write(&self, context, buffer)
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffers: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            Self::poll_write_vectored(&self, context, buffers)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(self.shutdown(Shutdown::Write))
        }
    }

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

    use crate::net::TcpStream;

    impl AsyncRead for TcpStream {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            // SAFETY: `unfilled_mut` requires that only initialized bytes are written to the memory.
            // - `poll_read_uninit` only receives into it.
            let room = unsafe { buffer.unfilled_mut() };
            let read = ready!(self.poll_read_uninit(context, room))?;
            // SAFETY: `assume_init` requires that this many bytes are initialized.
            // - the system reports that it has written that many, from the beginning.
            unsafe { buffer.assume_init(read) };
            buffer.advance(read);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for TcpStream {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &[u8],
        ) -> Poll<io::Result<usize>> {
            Self::poll_write(&self, context, buffer)
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffers: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            Self::poll_write_vectored(&self, context, buffers)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(self.shutdown(Shutdown::Write))
        }
    }
}
