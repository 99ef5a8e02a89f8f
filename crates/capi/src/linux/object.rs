//! The objects behind handles on Linux.

use std::sync::Arc;

use crate::abi::{Handle, Overlapped};
use crate::linux::file::File;
use crate::linux::foreign::Foreign;
use crate::linux::mapping::Mapping;
use crate::linux::port::CompletionPort;
use crate::linux::process::Own;
use crate::linux::registered::Registered;
use crate::linux::waitable::{Awaited, Kind, Waitable};
use crate::table::{TAG, Table};

/// The object of a handle.
#[derive(Clone)]
pub(crate) enum Object {
    /// A port.
    Port(Arc<CompletionPort>),
    /// An open file.
    File(Arc<File>),
    /// A file mapping.
    Mapping(Arc<Mapping>),
    /// An object created by a header of this library.
    Foreign(Arc<Foreign>),
    /// An event, a thread or another object that threads wait for.
    Waitable(Arc<Waitable>),
    /// The library's own wait, which calls a function.
    Registered(Arc<Registered>),
}

impl Object {
    /// A new port.
    pub(crate) fn of_port(port: CompletionPort) -> Self {
        Self::Port(Arc::new(port))
    }

    /// The port, if it is one.
    pub(crate) fn port(&self) -> Option<&Arc<CompletionPort>> {
        match self {
            Self::Port(port) => Some(port),
            Self::File(_)
            | Self::Mapping(_)
            | Self::Foreign(_)
            | Self::Waitable(_)
            | Self::Registered(_) => None,
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

/// Returns the event of a handle. It stays valid for the caller after the handle is closed.
pub(crate) fn event(handle: Handle) -> Result<Arc<Waitable>, u32> {
    handles().look_up(handle, |object| match object {
        Object::Waitable(event) if matches!(event.kind(), Kind::Event) => Some(Arc::clone(event)),
        _ => None,
    })
}

/// Returns the event of an OVERLAPPED, and whether a packet reports its operation.
pub(crate) fn event_of(overlapped: &Overlapped) -> Result<(Option<Arc<Waitable>>, bool), u32> {
    let has_packet = overlapped.event.addr() & 1 == 0;
    let is_none = overlapped.event.addr() & !TAG == 0;
    let event = if is_none { None } else { Some(event(overlapped.event)?) };
    Ok((event, has_packet))
}

/// Returns the file of a handle. It stays valid for the caller after the handle is closed.
pub(crate) fn file(handle: Handle) -> Result<Arc<File>, u32> {
    handles().look_up(handle, |object| match object {
        Object::File(file) => Some(Arc::clone(file)),
        _ => None,
    })
}

/// Returns the mapping of a handle. It stays valid for the caller after the handle is closed.
pub(crate) fn mapping(handle: Handle) -> Result<Arc<Mapping>, u32> {
    handles().look_up(handle, |object| match object {
        Object::Mapping(mapping) => Some(Arc::clone(mapping)),
        _ => None,
    })
}

/// Returns the objects and ports of these handles, for a wait. They stay valid for it after the handles are closed.
pub(crate) fn awaited(wanted: &[Handle]) -> Result<Awaited, u32> {
    let mut awaited = Awaited::default();
    for (place, handle) in (0..).zip(wanted) {
        handles().look_up(*handle, |object| {
            match object {
                Object::Port(port) => awaited.ports.push((place, Arc::clone(port))),
                Object::File(file) => awaited.objects.push((place, Arc::clone(&file.signal))),
                Object::Waitable(it) => awaited.objects.push((place, Arc::clone(it))),
                Object::Mapping(_) | Object::Foreign(_) | Object::Registered(_) => return None,
            }
            Some(())
        })?;
    }
    Ok(awaited)
}
