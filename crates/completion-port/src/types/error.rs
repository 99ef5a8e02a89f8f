//! Why calls fail, and what a failed call returns to its caller.

use std::{error, fmt, io};

/// The result of a call on a port. The error type is [`Error`] unless stated otherwise, so that
/// `Result<T, E>` keeps its meaning after `use completion_port::*`.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A call on a port or on a token. An [`Error`] names the one that failed.
///
/// Its [`Display`](fmt::Display) describes the call, as at the beginning of an error's text.
///
/// ```
/// assert_eq!(completion_port::Call::Post.to_string(), "posting a message");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// Creating a port.
    Create,
    /// [`Port::register`](crate::Port::register), or a registration among
    /// [`Changes`](crate::Changes).
    Register,
    /// Rearming a token: [`Ready::rearm`](crate::Ready::rearm),
    /// [`Ready::rearm_as`](crate::Ready::rearm_as), or either among [`Changes`](crate::Changes).
    Rearm,
    /// [`Ready::park`](crate::Ready::park).
    Park,
    /// [`Port::enable`](crate::Port::enable), or an enabling among [`Changes`](crate::Changes).
    Enable,
    /// [`Port::disable`](crate::Port::disable), or a disabling among [`Changes`](crate::Changes).
    Disable,
    /// [`Port::remove`](crate::Port::remove) or
    /// [`Port::remove_and_wait`](crate::Port::remove_and_wait).
    Remove,
    /// [`Port::wait`](crate::Port::wait) or [`Port::process`](crate::Port::process).
    Wait,
    /// [`Port::post`](crate::Port::post).
    Post,
    /// [`Port::shutdown`](crate::Port::shutdown).
    Shutdown,
    /// [`Port::associate`](crate::Port::associate) or
    /// [`Port::associate_shared`](crate::Port::associate_shared).
    Associate,
    /// [`Ready::share`](crate::Ready::share) or [`Port::unshare`](crate::Port::unshare).
    Share,
    /// [`Ready::map_key`](crate::Ready::map_key).
    MapKey,
    /// Accepting a connection, an [`Operation`](crate::Operation).
    Accept,
    /// Connecting, an [`Operation`](crate::Operation).
    Connect,
    /// Receiving, an [`Operation`](crate::Operation).
    Receive,
    /// Sending, an [`Operation`](crate::Operation).
    Send,
    /// Reading from a file, an [`Operation`](crate::Operation).
    Read,
    /// Writing to a file, an [`Operation`](crate::Operation).
    Write,
    /// Syncing a file to the disk, an [`Operation`](crate::Operation).
    Sync,
    /// [`Port::cancel`](crate::Port::cancel).
    Cancel,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "creating a port",
            Self::Register => "registering a descriptor",
            Self::Rearm => "rearming a registration",
            Self::Park => "parking a registration",
            Self::Enable => "enabling a registration",
            Self::Disable => "disabling a registration",
            Self::Remove => "removing a registration",
            Self::Wait => "waiting on a port",
            Self::Post => "posting a message",
            Self::Shutdown => "shutting a port down",
            Self::Associate => "associating a descriptor",
            Self::Share => "sharing a key",
            Self::MapKey => "replacing a key",
            Self::Accept => "accepting a connection",
            Self::Connect => "connecting",
            Self::Receive => "receiving",
            Self::Send => "sending",
            Self::Read => "reading from a file",
            Self::Write => "writing to a file",
            Self::Sync => "writing a file to the disk",
            Self::Cancel => "cancelling an operation",
        })
    }
}

/// Why a call failed, by what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The descriptor is already registered, on this port or on another one of the process. Remove
    /// it there first. To change filter or trigger, use [`Port::enable`](crate::Port::enable).
    AlreadyRegistered,
    /// The number names no open descriptor.
    BadDescriptor,
    /// The operation was cancelled, its registration removed, or the port closed.
    Cancelled,
    /// The port was closed or is shutting down.
    Closed,
    /// The process, or the system, has no descriptor left.
    DescriptorLimit,
    /// This process is a forked child; the port belongs to its parent.
    Forked,
    /// A handler holds the key, and only it can rearm the registration. Or an operation holds the
    /// key, and its packet will return it.
    KeyHeld,
    /// Operations share the key, so that no handler can have exclusive access to it. A one-shot
    /// trigger is impossible. [`Port::unshare`](crate::Port::unshare) fails while operations are in
    /// flight.
    KeyShared,
    /// The descriptor cannot be watched. It is a regular file or a directory, for example, or a
    /// descriptor of the port itself. An associated file has operations, but no readiness.
    NotPollable,
    /// The key does not own its descriptor, so the number might name another descriptor by the time
    /// an operation uses it.
    NotOwned,
    /// The id names no registration, or one that has ended.
    NotRegistered,
    /// The association's operations are started by tokens, and not by its name.
    NotShared,
    /// No memory is available.
    OutOfMemory,
    /// The registration is being removed. Its last packet has not been taken yet.
    Removing,
    /// The time limit of [`Port::remove_and_wait`](crate::Port::remove_and_wait), or the deadline
    /// of an operation, has passed.
    TimedOut,
    /// A datagram was longer than the receiving buffer, and the rest of it is lost.
    Truncated,
    /// The system, or the sandbox of the process, does not offer the requested feature.
    Unsupported,
    /// The source belongs to a different kernel from the port: a simulated socket on a port of the
    /// system, a real socket on a simulated port, or a socket of another simulated kernel.
    WrongKernel,
    /// The user's limit of watched descriptors (`/proc/sys/fs/epoll/max_user_watches`) is reached.
    WatchLimit,
    /// Another error of the system; see [`Error::os_code`].
    Other,
}

impl ErrorKind {
    fn words(self) -> &'static str {
        match self {
            Self::AlreadyRegistered => "the descriptor is registered already",
            Self::BadDescriptor => "the number names no open descriptor",
            Self::Cancelled => "the operation was cancelled",
            Self::Closed => "the port is closed",
            Self::DescriptorLimit => "no descriptor left",
            Self::Forked => "the port belongs to the parent of this forked process",
            Self::KeyHeld => "the key is out with a handler or an operation",
            Self::KeyShared => "operations share the key, so that no handler can have it to itself",
            Self::NotPollable => "the descriptor cannot be watched",
            Self::NotOwned => "the key does not own its descriptor",
            Self::NotRegistered => "there is no such registration, or it has ended",
            Self::NotShared => "the association is not shared",
            Self::OutOfMemory => "no memory",
            Self::Removing => "the registration is being removed",
            Self::TimedOut => "the time is over",
            Self::Truncated => "the datagram was longer than the buffer",
            Self::Unsupported => "the system does not offer it here",
            Self::WrongKernel => "the source belongs to another kernel than the port",
            Self::WatchLimit => "the user's limit of watched descriptors is reached",
            Self::Other => "an error of the system",
        }
    }
}

/// An error of a call on a port: the call, the reason, and the system's own code if it had one.
///
/// It is small and `Copy`, and contains no allocation.
///
/// It converts into [`io::Error`]. If the system gave a code, the conversion keeps it: the result
/// is the error of that code, with its kind ([`io::Error::raw_os_error`], [`io::Error::kind`]).
/// Otherwise the result has the closest kind, and contains this error ([`io::Error::get_ref`]).
///
/// # Examples
///
/// ```
/// use completion_port::{Batch, Call, ErrorKind, Port};
///
/// let port = Port::<()>::new()?;
/// port.close();
/// let error = port.wait(&mut Batch::new(), None).unwrap_err();
/// assert_eq!((error.call(), error.kind()), (Call::Wait, ErrorKind::Closed));
/// assert_eq!(error.to_string(), "waiting on a port: the port is closed");
/// let error: std::io::Error = error.into();
/// assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
/// assert!(error.get_ref().is_some_and(|inner| inner.is::<completion_port::Error>()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Error {
    call: Call,
    kind: ErrorKind,
    elsewhere: bool,
    code: Option<i32>,
    /// The number of bytes that an operation had transferred.
    transferred: usize,
    /// The descriptor's existing registration.
    pub(crate) existing: Option<u64>,
}

impl Error {
    pub(crate) fn new(call: Call, kind: ErrorKind) -> Self {
        Self { call, kind, elsewhere: false, code: None, transferred: 0, existing: None }
    }

    pub(crate) fn having_transferred(self, transferred: usize) -> Self {
        Self { transferred, ..self }
    }

    pub(crate) fn with_code(self, code: Option<i32>) -> Self {
        Self { code, ..self }
    }

    pub(crate) fn of_existing(self, name: u64) -> Self {
        Self { existing: Some(name), ..self }
    }

    pub(crate) fn on_another_port(self) -> Self {
        Self { elsewhere: true, ..self }
    }

    /// Returns the call that failed.
    #[must_use]
    pub fn call(&self) -> Call {
        self.call
    }

    /// Returns why it failed.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the system's own code (`errno`), if the failure came from a system call.
    #[must_use]
    pub fn os_code(&self) -> Option<i32> {
        self.code
    }

    /// Returns how many bytes an operation had sent, written, or put into its buffer before it
    /// failed. For an operation of many datagrams, this is the number of datagrams.
    #[must_use]
    pub fn transferred(&self) -> usize {
        self.transferred
    }

    /// Returns whether the descriptor is registered on *another* port of the process. Only true
    /// with [`ErrorKind::AlreadyRegistered`].
    #[must_use]
    pub fn is_on_another_port(&self) -> bool {
        self.elsewhere
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.call)?;
        // The system's words say more than those of this kind.
        if self.kind != ErrorKind::Other || self.code.is_none() {
            write!(f, ": {}", self.kind.words())?;
        }
        if self.kind == ErrorKind::AlreadyRegistered {
            f.write_str(if self.elsewhere { " on another port" } else { " on this port" })?;
        }
        match self.code {
            Some(code) => write!(f, ": {}", io::Error::from_raw_os_error(code)),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Error");
        shown.field("call", &self.call).field("kind", &self.kind);
        if self.elsewhere {
            shown.field("on_another_port", &true);
        }
        if let Some(code) = self.code {
            shown.field("os", &io::Error::from_raw_os_error(code));
        }
        shown.finish()
    }
}

impl error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        if let Some(code) = error.code {
            return Self::from_raw_os_error(code);
        }
        let kind = match error.kind {
            ErrorKind::AlreadyRegistered => io::ErrorKind::AlreadyExists,
            ErrorKind::BadDescriptor
            | ErrorKind::NotOwned
            | ErrorKind::NotPollable
            | ErrorKind::NotShared
            | ErrorKind::WrongKernel => io::ErrorKind::InvalidInput,
            ErrorKind::Closed => io::ErrorKind::BrokenPipe,
            ErrorKind::Forked | ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::KeyHeld | ErrorKind::KeyShared | ErrorKind::Removing => {
                io::ErrorKind::ResourceBusy
            }
            ErrorKind::Truncated => io::ErrorKind::InvalidData,
            ErrorKind::NotRegistered => io::ErrorKind::NotFound,
            ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
            ErrorKind::TimedOut => io::ErrorKind::TimedOut,
            ErrorKind::Cancelled
            | ErrorKind::DescriptorLimit
            | ErrorKind::WatchLimit
            | ErrorKind::Other => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// An error that returns what the caller passed to the call, such as a key or a message.
///
/// `?` converts it to [`Error`], [`io::Error`] or a box, and drops the returned value. To keep the
/// value, use [`Refused::into_parts`].
///
/// # Examples
///
/// ```
/// use completion_port::{ErrorKind, FileSource, Interest, OneShot, Port, Registration};
/// use std::fs::File;
///
/// let port = Port::<FileSource<File>>::new()?;
/// let file = FileSource::new(File::open(std::env::current_exe()?)?);
/// let refused =
///     port.register(Registration::owned(file, Interest::IN, OneShot::Level)).unwrap_err();
/// let (error, file) = refused.into_parts();
/// assert_eq!(error.kind(), ErrorKind::NotPollable);
/// assert!(file.metadata()?.is_file()); // still open
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Refused<T> {
    error: Error,
    value: T,
}

impl<T> Refused<T> {
    pub(crate) fn new(error: Error, value: T) -> Self {
        Self { error, value }
    }

    /// Returns the error.
    #[must_use]
    pub fn error(&self) -> Error {
        self.error
    }

    /// Returns the kind of the error; short for `error().kind()`.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.error.kind
    }

    /// Returns a reference to the returned value.
    #[must_use]
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Consumes this and returns the error and the value.
    #[must_use]
    pub fn into_parts(self) -> (Error, T) {
        (self.error, self.value)
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> error::Error for Refused<T> {}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

impl<T> From<Refused<T>> for io::Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error.into()
    }
}

/// Why a system call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The kind that the caller can act on.
    pub(crate) kind: ErrorKind,
    /// The system's own code.
    pub(crate) code: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_is_shown_in_the_systems_words() {
        let code = 104;
        let words = io::Error::from_raw_os_error(code);
        let reset = Error::new(Call::Receive, ErrorKind::Other).with_code(Some(code));
        assert_eq!(reset.to_string(), format!("receiving: {words}"));
        // Other kinds say what the port makes of the code.
        let limit = Error::new(Call::Accept, ErrorKind::DescriptorLimit).with_code(Some(code));
        let shown = format!("accepting a connection: no descriptor left: {words}");
        assert_eq!(limit.to_string(), shown);
        let other = Error::new(Call::Send, ErrorKind::Other);
        assert_eq!(other.to_string(), "sending: an error of the system");
    }
}
