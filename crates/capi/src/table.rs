//! Handles: numbers in the shape of pointers, which are looked up and never dereferenced. A number
//! that was closed or never returned is an error.
//!
//! Bit 62 is set, as in no address of a process, followed by a generation and the index in the
//! table. The two lowest bits belong to the program, as in the reference: they are clear in each
//! returned handle, and ignored. Slots are reused in turn, each time with another generation, until
//! all generations are used up.
//!
//! Each process has its own table. A forked child finds the inherited handles, in their state at
//! the fork, and never waits for their locks. Its new handles differ from all inherited ones.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use crate::abi::Handle;
use crate::errors::code;

/// Set in every handle.
pub(crate) const MARK: u64 = 1 << 62;
/// Position of the generation, and its number of bits.
const GENERATION_AT: u32 = 32;
const GENERATION_BITS: u32 = 30;
const GENERATION: u64 = (1 << GENERATION_BITS) - 1;
/// Position of the index.
const PLACE_AT: u32 = 2;
/// The bits that belong to the program.
pub(crate) const TAG: usize = 0x3;

/// Slots in a chunk, and chunks in the table.
const CHUNK: usize = 256;
const CHUNKS: usize = 256;

/// Number of free slots that are kept unused for a while.
const REST: usize = 64;

struct Place<T> {
    /// The generation of the open handle or of the next one, and [`OPEN`] if one is open. Changed
    /// with the object locked. A forked child reads its parent's state where that lock is held
    /// forever.
    state: AtomicU64,
    object: RwLock<Option<T>>,
}

/// The generation that no handle has.
const NONE_LEFT: u64 = 0;
const FIRST: u64 = 1;

/// Set in the state of a place whose handle is open.
const OPEN: u64 = 1 << GENERATION_BITS;

impl<T> Place<T> {
    fn new(generation: u64) -> Self {
        Self { state: AtomicU64::new(generation), object: RwLock::new(None) }
    }

    fn generation(&self) -> u64 {
        self.state.load(Acquire) & GENERATION
    }

    /// Whether the handle of this generation is open.
    fn is_open(&self, generation: u64) -> bool {
        self.state.load(Acquire) == generation | OPEN
    }

    /// The next generation; [`NONE_LEFT`] after the last.
    fn next_generation(&self) -> u64 {
        (self.generation() + 1) & GENERATION
    }

    /// Whether all generations are used up, so that the slot is not used again.
    fn is_used_up(&self) -> bool {
        self.generation() == NONE_LEFT
    }
}

#[derive(Default)]
struct Free {
    /// Slots below this one have been used.
    next: usize,
    places: VecDeque<usize>,
}

type Chunk<T> = Box<[Place<T>]>;

/// The handles of one process.
pub(crate) struct Table<T: 'static> {
    chunks: [OnceLock<Chunk<T>>; CHUNKS],
    free: Mutex<Free>,
    /// The inherited handles. Their locks may be held forever.
    parent: Option<&'static Self>,
}

impl<T> Table<T> {
    pub(crate) fn new(parent: Option<&'static Self>) -> Box<Self> {
        let chunks = [const { OnceLock::new() }; CHUNKS];
        Box::new(Self { chunks, free: Mutex::default(), parent })
    }

    fn place(&self, number: usize) -> Option<&Place<T>> {
        self.chunks.get(number / CHUNK)?.get()?.get(number % CHUNK)
    }

    /// A generation in which neither this process nor an ancestor has returned this slot.
    fn unused_generation(&self, number: usize) -> u64 {
        match (self.place(number), self.parent) {
            (Some(place), _) if place.is_used_up() => NONE_LEFT,
            (Some(place), _) => place.next_generation(),
            (None, Some(parent)) => parent.unused_generation(number),
            (None, None) => FIRST,
        }
    }

    /// A free slot and its number.
    fn free_place(&self) -> Result<(usize, &Place<T>), u32> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let number = if free.places.len() > REST || free.next == CHUNK * CHUNKS {
                free.places.pop_front().ok_or(code::NO_SYSTEM_RESOURCES)?
            } else {
                free.next += 1;
                free.next - 1
            };
            let new = |place| {
                let number = number / CHUNK * CHUNK + place;
                Place::new(self.parent.map_or(FIRST, |parent| parent.unused_generation(number)))
            };
            let chunk = self.chunks[number / CHUNK].get_or_init(|| (0..CHUNK).map(new).collect());
            let place = &chunk[number % CHUNK];
            // An inherited slot may be used up.
            if !place.is_used_up() {
                return Ok((number, place));
            }
        }
    }

    /// Creates a handle for an object. `object` learns the handle's number before anyone can look
    /// it up.
    pub(crate) fn open(&self, object: impl FnOnce(u64) -> Result<T, u32>) -> Result<Handle, u32> {
        let (number, place) = self.free_place()?;
        let mut room = place.object.write().unwrap_or_else(PoisonError::into_inner);
        let generation = place.generation();
        let handle = handle_of(number, generation);
        match object(handle) {
            Ok(object) => {
                *room = Some(object);
                place.state.store(generation | OPEN, Release);
                let handle = usize::try_from(handle).map_err(|_| code::NO_SYSTEM_RESOURCES)?;
                Ok(std::ptr::without_provenance_mut::<c_void>(handle))
            }
            Err(code) => {
                place.state.store(place.next_generation(), Release);
                drop(room);
                self.release(number, place);
                Err(code)
            }
        }
    }

    fn release(&self, number: usize, place: &Place<T>) {
        if !place.is_used_up() {
            self.free.lock().unwrap_or_else(PoisonError::into_inner).places.push_back(number);
        }
    }

    /// The object of a handle of this process or an ancestor.
    fn find<R>(
        &self,
        number: usize,
        generation: u64,
        as_kind: impl FnOnce(&T) -> Option<R>,
    ) -> Option<R> {
        if let Some(place) = self.place(number)
            && place.is_open(generation)
        {
            let object = place.object.read().unwrap_or_else(PoisonError::into_inner);
            return object.as_ref().filter(|_| place.is_open(generation)).and_then(as_kind);
        }
        let mut inherited = self.parent;
        while let Some(table) = inherited {
            if let Some(place) = table.place(number)
                && place.is_open(generation)
            {
                // Fails only if a thread was closing the handle at the time of the fork.
                let object = place.object.try_read().ok()?;
                return object.as_ref().and_then(as_kind);
            }
            inherited = table.parent;
        }
        None
    }

    /// The object of a handle, if it is of that kind.
    pub(crate) fn look_up<R>(
        &self,
        handle: Handle,
        as_kind: impl FnOnce(&T) -> Option<R>,
    ) -> Result<R, u32> {
        let (number, generation) = parts(handle)?;
        self.find(number, generation, as_kind).ok_or(code::INVALID_HANDLE)
    }

    /// Removes the object of a handle from the table, if it is there.
    pub(crate) fn take_out(&self, handle: Handle) -> Result<Option<T>, u32> {
        let (number, generation) = parts(handle)?;
        self.close(number, generation)
    }

    /// Removes an object from the table, so that its handle is no longer valid. An inherited object
    /// stays if a thread was using it at the time of the fork.
    fn close(&self, number: usize, generation: u64) -> Result<Option<T>, u32> {
        let close = |place: &Place<T>| {
            let next = place.next_generation();
            place.state.compare_exchange(generation | OPEN, next, AcqRel, Acquire).is_ok()
        };
        if let Some(place) = self.place(number) {
            let mut object = place.object.write().unwrap_or_else(PoisonError::into_inner);
            if close(place) {
                let object = object.take();
                self.release(number, place);
                return Ok(object);
            }
        }
        let mut inherited = self.parent;
        while let Some(table) = inherited {
            if let Some(place) = table.place(number)
                && close(place)
            {
                return Ok(place.object.try_write().ok().and_then(|mut object| object.take()));
            }
            inherited = table.parent;
        }
        Err(code::INVALID_HANDLE)
    }
}

/// The index and the generation in a handle, if it has the shape of one.
fn parts(handle: Handle) -> Result<(usize, u64), u32> {
    let bits = (handle.addr() & !TAG) as u64;
    let number = (bits & u64::from(u32::MAX)) >> PLACE_AT;
    let generation = bits >> GENERATION_AT & GENERATION;
    match usize::try_from(number) {
        Ok(number) if handle_of(number, generation) == bits => Ok((number, generation)),
        _ => Err(code::INVALID_HANDLE),
    }
}

fn handle_of(number: usize, generation: u64) -> u64 {
    MARK | generation << GENERATION_AT | (number as u64) << PLACE_AT
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// A table, and one of a child that was forked from its process.
    fn parent_and_child() -> (&'static Table<()>, &'static Table<()>) {
        let parent: &Table<()> = Box::leak(Table::new(None));
        (parent, Box::leak(Table::new(Some(parent))))
    }

    fn open_in(table: &Table<()>) -> (usize, u64) {
        parts(table.open(|_| Ok(())).unwrap()).unwrap()
    }

    fn is_found(table: &Table<()>, (number, generation): (usize, u64)) -> bool {
        table.find(number, generation, |_| Some(())).is_some()
    }

    #[test]
    fn a_handle_that_is_closed_while_a_thread_looks_it_up_is_not_found() {
        let table: &Table<()> = Box::leak(Table::new(None));
        let (number, first) = open_in(table);
        let place = table.place(number).unwrap();
        for generation in first..first + 20 {
            let locked = place.object.write().unwrap();
            let looks = AtomicBool::new(false);
            thread::scope(|scope| {
                let found = scope.spawn(|| {
                    looks.store(true, Release);
                    is_found(table, (number, generation))
                });
                while !looks.load(Acquire) {
                    thread::yield_now();
                }
                // Usually the thread is waiting for the lock soon.
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(1) {
                    thread::yield_now();
                }
                // The slot is closed, and open again with the next handle.
                place.state.store((generation + 1) | OPEN, Release);
                drop(locked);
                assert!(!found.join().unwrap());
            });
        }
    }

    #[test]
    fn a_place_that_has_had_all_generations_is_used_no_more() {
        let table: &Table<()> = Box::leak(Table::new(None));
        let mut seen = HashSet::new();
        let (first, _) = open_in(table);
        table.place(first).unwrap().state.store((GENERATION - 2) | OPEN, Release);
        table.close(first, GENERATION - 2).unwrap();
        for _ in 0..4 * REST {
            let handle = open_in(table);
            assert!(seen.insert(handle));
            assert_ne!(handle.1, NONE_LEFT);
            assert!(table.close(handle.0, handle.1).is_ok());
        }
        let last = |generation| seen.contains(&(first, generation));
        assert!(last(GENERATION - 1) && last(GENERATION) && !last(FIRST));
        assert!(table.place(first).unwrap().is_used_up());
        assert!(table.close(first, NONE_LEFT).is_err());
        // In a child neither.
        let child: &Table<()> = Box::leak(Table::new(Some(table)));
        for _ in 0..4 * REST {
            let (number, generation) = open_in(child);
            assert_ne!(number, first);
            assert!(child.close(number, generation).is_ok());
        }
    }

    #[test]
    fn a_child_gives_out_no_handle_that_it_has_inherited() {
        let (parent, child) = parent_and_child();
        let mut seen: HashSet<_> = (0..100).map(|_| open_in(parent)).collect();
        for (number, generation) in seen.iter().copied().take(80) {
            assert!(parent.close(number, generation).is_ok());
        }
        let grandchild: &Table<()> = Box::leak(Table::new(Some(child)));
        for table in [child, grandchild] {
            for _ in 0..100 {
                let handle = open_in(table);
                assert!(seen.insert(handle));
                assert!(table.close(handle.0, handle.1).is_ok_and(|object| object.is_some()));
            }
        }
    }

    #[test]
    fn a_child_finds_what_it_has_inherited_and_closes_it_once() {
        let (parent, child) = parent_and_child();
        let grandchild: &Table<()> = Box::leak(Table::new(Some(child)));
        for table in [child, grandchild] {
            let inherited = open_in(parent);
            let (number, generation) = inherited;
            assert!(is_found(table, inherited));
            assert!(!is_found(table, (number, generation + 1)));
            assert!(table.close(number, generation + 1).is_err());
            assert!(table.close(number, generation).is_ok_and(|object| object.is_some()));
            assert!(!is_found(table, inherited));
            assert!(table.close(number, generation).is_err());
        }
    }

    /// A lock held in a parent is held forever in its child.
    #[test]
    fn a_child_waits_for_no_lock_of_its_parents() {
        let (parent, child) = parent_and_child();
        let (number, generation) = open_in(parent);
        let inherited = parent.place(number).unwrap();
        let _free = parent.free.lock().unwrap();
        {
            let _read = inherited.object.read().unwrap();
            assert!(is_found(child, (number, generation)));
        }
        let _locked = inherited.object.write().unwrap();
        assert!(!is_found(child, (number, generation)));
        assert!(child.close(number, generation).is_ok_and(|object| object.is_none()));
        assert!(child.close(number, generation).is_err());
        let (number, generation) = open_in(child);
        assert!(child.close(number, generation).is_ok());
    }
}
