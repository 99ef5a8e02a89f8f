//! Objects with names: what `CreateMutex` and the like do with one. A name is known in its process only.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::mem::discriminant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::abi::Handle;
use crate::errors::{code, guarded, set_last};
use crate::handles;
use crate::linux::object::Object;
use crate::linux::process::Own;
use crate::linux::waitable::{Kind, Waitable};

/// The longest name, in characters: `MAX_PATH` without the end.
const LONGEST: usize = 259;

/// The prefixes of names that every process of the session, or of the machine, knows on the reference.
const OF_SESSION: &str = "Local\\";
const OF_MACHINE: &str = "Global\\";

#[derive(Default)]
struct Names {
    objects: HashMap<String, Weak<Waitable>>,
    /// At this size, names whose objects are gone are removed.
    most: usize,
}

static NAMES: Own<Mutex<Names>> = Own::new(begin_child);

extern "C" fn begin_child() {
    NAMES.pass_on();
}

fn names() -> MutexGuard<'static, Names> {
    NAMES.get(|_| Box::default()).lock().unwrap_or_else(PoisonError::into_inner)
}

impl Names {
    fn find(&self, name: &str) -> Option<Arc<Waitable>> {
        self.objects.get(name)?.upgrade()
    }

    fn add(&mut self, name: String, object: &Arc<Waitable>) {
        if self.objects.len() >= self.most {
            self.objects.retain(|_, object| object.strong_count() > 0);
            self.most = 2 * self.objects.len() + 16;
        }
        self.objects.insert(name, Arc::downgrade(object));
    }
}

/// The name at a pointer, whose characters have this size: of one byte it is UTF-8.
///
/// # Safety
///
/// `name` points to characters of this size, with a zero after them.
unsafe fn read(name: *const c_void, unit: c_int) -> Result<String, u32> {
    let text = match unit {
        1 => {
            // SAFETY: `text` demands what this call demands.
            let bytes = unsafe { text::<u8>(name.cast()) }?;
            String::from_utf8_lossy(&bytes).into_owned()
        }
        2 => {
            // SAFETY: as above.
            let units = unsafe { text::<u16>(name.cast()) }?;
            String::from_utf16_lossy(&units)
        }
        _ => {
            // SAFETY: as above.
            let units = unsafe { text::<u32>(name.cast()) }?;
            let char_of = |unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
            units.into_iter().map(char_of).collect()
        }
    };
    let within = text.strip_prefix(OF_SESSION).unwrap_or(&text);
    if within.strip_prefix(OF_MACHINE).unwrap_or(within).contains('\\') {
        return Err(code::PATH_NOT_FOUND);
    }
    Ok(within.to_owned())
}

/// The units before the first that is zero.
///
/// # Safety
///
/// There is one that is zero.
unsafe fn text<T: Copy + Default + PartialEq>(first: *const T) -> Result<Vec<T>, u32> {
    let mut units = Vec::new();
    // A character has four units at most.
    while units.len() <= 4 * LONGEST {
        let place = first.wrapping_add(units.len());
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - no unit before this one is zero, and the caller guarantees that one is.
        let unit = unsafe { place.read() };
        if unit == T::default() {
            return Ok(units);
        }
        units.push(unit);
    }
    Err(code::FILENAME_EXCED_RANGE)
}

fn found(handle: Handle) -> Result<Arc<Waitable>, u32> {
    handles::find(handle, |object| match object {
        Object::Waitable(object) => Some(Arc::clone(object)),
        _ => None,
    })
}

/// Gives an object its name, which has just been created, and returns its handle. If an object of its kind has that name,
/// closes the handle and returns one of that object; the last error is `ERROR_ALREADY_EXISTS` then, and 0 otherwise. Null on
/// failure, and the handle is closed as well. A null handle, or a name that is null or empty, changes nothing.
///
/// # Safety
///
/// `name` is null, or points to characters of `unit` bytes with a zero after them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_name_object(
    object: Handle,
    name: *const c_void,
    unit: c_int,
) -> Handle {
    if object.is_null() || name.is_null() {
        return object;
    }
    let give = || {
        let given = found(object)?;
        // SAFETY: `read` demands characters of this size with a zero after them.
        // - the caller guarantees that for a pointer that is not null.
        let name = unsafe { read(name, unit) }?;
        if name.is_empty() {
            return Ok((object, 0));
        }
        if name.chars().count() > LONGEST {
            return Err(code::FILENAME_EXCED_RANGE);
        }
        let mut names = names();
        let Some(other) = names.find(&name) else {
            names.add(name, &given);
            return Ok((object, 0));
        };
        drop(names);
        if discriminant(other.kind()) != discriminant(given.kind()) {
            return Err(code::INVALID_HANDLE);
        }
        let opened = handles::open(|_| Ok(Object::Waitable(other)))?;
        abandon(object, &given);
        Ok((opened, code::ALREADY_EXISTS))
    };
    guarded(std::ptr::null_mut(), || {
        let (handle, last) = give().unwrap_or_else(|code| {
            if let Ok(given) = found(object) {
                abandon(object, &given);
            }
            (std::ptr::null_mut(), code)
        });
        set_last(last);
        handle
    })
}

/// Closes the handle of an object that nobody else knows. The calling thread may own it.
fn abandon(handle: Handle, object: &Waitable) {
    if matches!(object.kind(), Kind::Mutex) {
        object.give_up();
    }
    drop(handles::close(handle));
}

/// Opens an object by its name: `OpenMutex` and the like. `like` is an object of the kind, and closed. Null on failure.
///
/// # Safety
///
/// As for [`cp_name_object`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_open_named(like: Handle, name: *const c_void, unit: c_int) -> Handle {
    let open = || {
        let like = found(like)?;
        if name.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        // SAFETY: `read` demands characters of this size with a zero after them.
        // - the caller guarantees that for a pointer that is not null.
        let name = unsafe { read(name, unit) }?;
        let object = names().find(&name).ok_or(code::FILE_NOT_FOUND)?;
        if discriminant(object.kind()) != discriminant(like.kind()) {
            return Err(code::INVALID_HANDLE);
        }
        handles::open(|_| Ok(Object::Waitable(object)))
    };
    guarded(std::ptr::null_mut(), || {
        let opened = open();
        drop(handles::close(like));
        opened.unwrap_or_else(|code| {
            set_last(code);
            std::ptr::null_mut()
        })
    })
}
