//! The objects behind the handles of this process.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::abi::Handle;
use crate::errors::code;
use crate::system::object::{Object, handles};
use crate::system::port::CompletionPort;

/// Creates a handle for an object. `object` learns the handle's number before anyone can look it
/// up.
pub(crate) fn open(object: impl FnOnce(u64) -> Result<Object, u32>) -> Result<Handle, u32> {
    handles().open(object)
}

/// Creates a port.
pub(crate) fn open_port(concurrency: u32) -> Result<Handle, u32> {
    open(|name| {
        let concurrency = usize::try_from(concurrency).unwrap_or(usize::MAX);
        CompletionPort::new(name, concurrency).map(Object::of_port)
    })
}

/// The object of a handle.
pub(crate) fn find<R>(
    handle: Handle,
    as_kind: impl FnOnce(&Object) -> Option<R>,
) -> Result<R, u32> {
    handles().look_up(handle, as_kind)
}

thread_local! {
    /// The calling thread's last port, and the number of its handle. A thread hardly ever uses
    /// another one, and looking it up in the table touches memory that all threads write.
    static LAST: RefCell<(usize, Weak<CompletionPort>)> = const { RefCell::new((0, Weak::new())) };
}

/// The port of a handle.
pub(crate) fn port(handle: Handle) -> Result<Arc<CompletionPort>, u32> {
    let used = LAST.try_with(|last| {
        let (number, port) = &*last.borrow();
        if *number == handle.addr() { port.upgrade() } else { None }
    });
    if let Ok(Some(port)) = used
        && port.is_open()
    {
        return Ok(port);
    }
    let port = find(handle, |object| object.port().map(Arc::clone))?;
    let _ = LAST.try_with(|last| last.replace((handle.addr(), Arc::downgrade(&port))));
    Ok(port)
}

/// The port of a handle, unless this process is a forked child of the one that created it.
pub(crate) fn usable_port(handle: Handle) -> Result<Arc<CompletionPort>, u32> {
    let port = port(handle)?;
    if port.raw().is_forked() { Err(code::INVALID_HANDLE) } else { Ok(port) }
}

/// The handle of a [name](CompletionPort::name).
fn handle_named(name: u64) -> Option<Handle> {
    usize::try_from(name).ok().map(std::ptr::without_provenance_mut)
}

/// The port with this name, if it is still open.
pub(crate) fn port_named(name: u64) -> Option<Arc<CompletionPort>> {
    port(handle_named(name)?).ok()
}

/// Whether the port with this name is still open.
pub(crate) fn is_open(name: u64) -> bool {
    let is_port = |object: &Object| object.port().map(|_| ());
    handle_named(name).is_some_and(|handle| find(handle, is_port).is_ok())
}

/// Removes an object from the table, so that its handle is no longer valid. `None` for an inherited
/// object that cannot be removed.
pub(crate) fn close(handle: Handle) -> Result<Option<Object>, u32> {
    let object = handles().take_out(handle)?;
    if let Some(port) = object.as_ref().and_then(Object::port) {
        // Threads that have used it do not look it up in the table.
        port.close();
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::ffi::c_void;

    use super::*;

    fn new_port() -> Handle {
        open(|name| CompletionPort::new(name, 1).map(Object::of_port)).unwrap()
    }

    #[test]
    fn a_handle_is_good_until_it_is_closed() {
        let handle = new_port();
        assert!(port(handle).is_ok());
        assert!(close(handle).is_ok());
        assert_eq!(port(handle).err(), Some(code::INVALID_HANDLE));
        assert_eq!(close(handle).err(), Some(code::INVALID_HANDLE));
    }

    #[test]
    fn a_closed_handle_is_refused_to_a_thread_that_has_used_it_last() {
        let handle = new_port();
        // As a waiting thread does.
        let kept = port(handle).unwrap();
        assert!(close(handle).is_ok());
        assert_eq!(port(handle).err(), Some(code::INVALID_HANDLE));
        drop(kept);
    }

    #[test]
    fn a_place_that_is_used_again_has_another_handle() {
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            let handle = new_port();
            assert!(seen.insert(handle));
            assert!(close(handle).is_ok());
        }
        assert!(seen.iter().all(|handle| port(*handle).is_err()));
    }

    #[test]
    fn what_was_never_given_out_is_no_handle() {
        let local = 7_u64;
        let on_the_stack: Handle = (&raw const local).cast_mut().cast();
        let numbers = [0, 1, 3, 4, 0x7fff_ffff, usize::MAX, usize::MAX - 1, 1 << 62, 1 << 63];
        let handles = numbers.map(std::ptr::without_provenance_mut::<c_void>);
        for handle in handles.into_iter().chain([on_the_stack]) {
            assert_eq!(port(handle).err(), Some(code::INVALID_HANDLE), "{handle:?}");
            assert_eq!(close(handle).err(), Some(code::INVALID_HANDLE), "{handle:?}");
        }
        let handle = new_port();
        // The two lowest bits belong to the program.
        assert!((0..4).all(|tag| port(handle.wrapping_byte_add(tag)).is_ok()));
        assert!(port(handle.wrapping_byte_add(4)).is_err() || new_port() != handle);
        assert!(port(handle).is_ok());
        assert!(close(handle).is_ok());
    }
}
