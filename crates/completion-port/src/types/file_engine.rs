//! How operations on files are done.

/// How a port does those operations on files that cannot be done at once: what has to wait for a disk.
///
/// What the system has in its memory a read takes at once, whatever is chosen. The rest is started when
/// the first operation needs it: a port that has done no such operation has neither a ring nor a thread
/// for it.
///
/// A ring has 256 operations under way at once, threads have eight: of those on what is on a disk, which end by themselves.
/// What may not end, such as a read of a pipe into which nobody writes, has places of its own, 240 in a ring and eight
/// threads. With so many of them no other one of that kind is begun, whatever its file is; those on disks go on. Pipes and
/// terminals are better registered, and read when they are ready.
///
/// # Platform notes
///
/// On Linux [`Ring`](Self::Ring) uses [io_uring(7)](https://man7.org/linux/man-pages/man7/io_uring.7.html):
/// kernel 5.6 or later, unless the administrator has forbidden it
/// (`/proc/sys/kernel/io_uring_disabled`) or the sandbox does, as those of containers often do.
///
/// On Windows `Ring` is the same as [`Automatic`](Self::Automatic): overlapped reads and writes, of the file opened once more for them. Where that is
/// refused, and with [`Threads`](Self::Threads), a thread waits for each operation. Nothing is done at once there.
///
/// # Examples
///
/// ```
/// use completion_port::{FileEngine, Port};
///
/// let port: Port<std::fs::File> = Port::builder().file_engine(FileEngine::Threads).build()?;
/// assert_eq!(port.stats().file_engine, "none"); // nothing has needed one
/// # Ok::<(), completion_port::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileEngine {
    /// The best that the system offers: [`Ring`](Self::Ring), and otherwise [`Threads`](Self::Threads).
    #[default]
    Automatic,
    /// The system's own queue of operations, which one thread of the port has to itself.
    Ring,
    /// A few threads of the port, each of which does one operation at a time: at most eight for what is on disks, and as
    /// many for what is not.
    Threads,
}
