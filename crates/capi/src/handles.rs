//! The handles of this library: numbers in the shape of pointers, which are looked up and never
//! followed. A number that was closed, or never given out, is an error.
//!
//! Bit 62 is set, which no address of a process has, then come a generation and the place in the
//! table; the two lowest bits are clear, as the reference has it. Places are used again in turn, each
//! time with another generation.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use crate::abi::Handle;
use crate::errors::code;
use crate::objects::Foreign;
use crate::queue::CompletionPort;

/// Set in every handle.
const MARK: u64 = 1 << 62;
/// Where the generation stands, and of how many bits it is.
const GENERATION_AT: u32 = 32;
const GENERATION: u64 = (1 << 30) - 1;
/// Where the place stands.
const PLACE_AT: u32 = 2;

/// Places in a chunk, and chunks in the table.
const CHUNK: usize = 256;
const CHUNKS: usize = 256;

/// Places that are free for a while before they are used again.
const REST: usize = 64;

/// What a handle stands for.
#[derive(Clone)]
pub(crate) enum Object {
    /// A port.
    Port(Arc<CompletionPort>),
    /// Something that a header of this library has made.
    Foreign(Arc<Foreign>),
}

#[derive(Default)]
struct Place {
    generation: u64,
    object: Option<Object>,
}

#[derive(Default)]
struct Free {
    /// Places below this one have been used.
    next: usize,
    places: VecDeque<usize>,
}

type Chunk = Box<[RwLock<Place>]>;

static TABLE: [OnceLock<Chunk>; CHUNKS] = [const { OnceLock::new() }; CHUNKS];
static FREE: Mutex<Free> = Mutex::new(Free { next: 0, places: VecDeque::new() });

fn place(number: usize) -> Option<&'static RwLock<Place>> {
    TABLE.get(number / CHUNK)?.get()?.get(number % CHUNK)
}

/// The place and the generation in a handle, if it has the shape of one.
fn parts(handle: Handle) -> Option<(&'static RwLock<Place>, u64)> {
    let bits = handle.addr() as u64;
    let number = usize::try_from((bits & u64::from(u32::MAX)) >> PLACE_AT).ok()?;
    let generation = bits >> GENERATION_AT & GENERATION;
    let is_one = handle_of(number, generation) == bits;
    if is_one { place(number).map(|place| (place, generation)) } else { None }
}

fn handle_of(number: usize, generation: u64) -> u64 {
    MARK | generation << GENERATION_AT | (number as u64) << PLACE_AT
}

/// A handle for an object. It is told what the handle will be before it can be found by it.
pub(crate) fn open(object: impl FnOnce(u64) -> Result<Object, u32>) -> Result<Handle, u32> {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let number = if free.places.len() > REST || free.next == CHUNK * CHUNKS {
        free.places.pop_front().ok_or(code::NO_SYSTEM_RESOURCES)?
    } else {
        free.next += 1;
        free.next - 1
    };
    drop(free);
    let chunk = TABLE[number / CHUNK]
        .get_or_init(|| (0..CHUNK).map(|_| RwLock::new(Place::default())).collect());
    let mut place = chunk[number % CHUNK].write().unwrap_or_else(PoisonError::into_inner);
    place.generation = (place.generation + 1) & GENERATION;
    let handle = handle_of(number, place.generation);
    match object(handle) {
        Ok(object) => {
            place.object = Some(object);
            let handle = usize::try_from(handle).map_err(|_| code::NO_SYSTEM_RESOURCES)?;
            Ok(std::ptr::without_provenance_mut::<c_void>(handle))
        }
        Err(code) => {
            drop(place);
            release(number);
            Err(code)
        }
    }
}

fn release(number: usize) {
    FREE.lock().unwrap_or_else(PoisonError::into_inner).places.push_back(number);
}

/// What a handle stands for.
pub(crate) fn find<R>(
    handle: Handle,
    as_kind: impl FnOnce(&Object) -> Option<R>,
) -> Result<R, u32> {
    let (place, generation) = parts(handle).ok_or(code::INVALID_HANDLE)?;
    let place = place.read().unwrap_or_else(PoisonError::into_inner);
    match &place.object {
        Some(object) if place.generation == generation => {
            as_kind(object).ok_or(code::INVALID_HANDLE)
        }
        _ => Err(code::INVALID_HANDLE),
    }
}

thread_local! {
    /// The port that the calling thread used last, and the number of its handle: a thread hardly ever
    /// uses another, and the places of the table are everybody's.
    static LAST: RefCell<(usize, Weak<CompletionPort>)> = const { RefCell::new((0, Weak::new())) };
}

/// The port that a handle stands for.
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
    let port = find(handle, |object| match object {
        Object::Port(port) => Some(Arc::clone(port)),
        Object::Foreign(_) => None,
    })?;
    let _ = LAST.try_with(|last| last.replace((handle.addr(), Arc::downgrade(&port))));
    Ok(port)
}

/// Whether the port with this name is open still.
pub(crate) fn is_open(name: u64) -> bool {
    usize::try_from(name).is_ok_and(|name| {
        let is_port = |object: &Object| matches!(object, Object::Port(_)).then_some(());
        find(std::ptr::without_provenance_mut(name), is_port).is_ok()
    })
}

/// Takes an object out of the table: from now on its handle is nobody's.
pub(crate) fn close(handle: Handle) -> Result<Object, u32> {
    let (place, generation) = parts(handle).ok_or(code::INVALID_HANDLE)?;
    let mut place = place.write().unwrap_or_else(PoisonError::into_inner);
    if place.generation != generation {
        return Err(code::INVALID_HANDLE);
    }
    let object = place.object.take().ok_or(code::INVALID_HANDLE)?;
    if let Object::Port(port) = &object {
        // Threads that have used it do not look here.
        port.close();
    }
    drop(place);
    let number = (handle.addr() & u32::MAX as usize) >> PLACE_AT;
    release(number);
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_port() -> Handle {
        open(|name| CompletionPort::new(name, 1).map(|port| Object::Port(Arc::new(port)))).unwrap()
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
    fn a_place_that_is_used_again_has_another_handle() {
        let mut seen = std::collections::HashSet::new();
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
        assert!(port(handle.wrapping_byte_add(1)).is_err());
        assert!(port(handle.wrapping_byte_add(4)).is_err() || new_port() != handle);
        assert!(port(handle).is_ok());
        assert!(close(handle).is_ok());
    }
}
