//! What a handle may stand for on Linux.

use std::sync::Arc;

use crate::abi::Handle;
use crate::linux::file::File;
use crate::linux::foreign::Foreign;
use crate::linux::port::CompletionPort;
use crate::linux::process::Own;
use crate::table::Table;

/// What a handle stands for.
#[derive(Clone)]
pub(crate) enum Object {
    /// A port.
    Port(Arc<CompletionPort>),
    /// An open file.
    File(Arc<File>),
    /// Something that a header of this library has made.
    Foreign(Arc<Foreign>),
}

impl Object {
    /// A port that was just made.
    pub(crate) fn of_port(port: CompletionPort) -> Self {
        Self::Port(Arc::new(port))
    }

    /// The port, if it is one.
    pub(crate) fn port(&self) -> Option<&Arc<CompletionPort>> {
        match self {
            Self::Port(port) => Some(port),
            Self::File(_) | Self::Foreign(_) => None,
        }
    }
}

static TABLE: Own<Table<Object>> = Own::new(begin_child);

extern "C" fn begin_child() {
    TABLE.pass_on();
}

/// The handles of this process.
pub(crate) fn handles() -> &'static Table<Object> {
    TABLE.get(Table::new)
}

/// The event that a handle stands for, which lives on for the caller when its handle is closed.
pub(crate) fn event(handle: Handle) -> Result<Arc<Foreign>, u32> {
    handles().look_up(handle, |object| match object {
        Object::Foreign(foreign) if foreign.is_event() => Some(Arc::clone(foreign)),
        _ => None,
    })
}

/// The file that a handle stands for, which lives on for the caller when its handle is closed.
pub(crate) fn file(handle: Handle) -> Result<Arc<File>, u32> {
    handles().look_up(handle, |object| match object {
        Object::File(file) => Some(Arc::clone(file)),
        _ => None,
    })
}
