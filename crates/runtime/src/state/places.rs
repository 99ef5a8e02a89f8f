//! Numbered places, by which tasks are found that are to be aborted.

use crate::state::{lock, reserve_free};
use crate::sync::Mutex;

/// Numbered places. A place that was given up is used again.
pub(crate) struct Places<T>(Mutex<Slots<T>>);

struct Slots<T> {
    entries: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self(Mutex::new(Slots { entries: Vec::new(), free: Vec::new() }))
    }
}

impl<T> Places<T> {
    /// Puts a value into a free place, and returns the place.
    pub(crate) fn insert(&self, value: T) -> usize {
        let slots = &mut *lock(&self.0);
        let Some(place) = slots.free.pop() else {
            slots.entries.push(Some(value));
            reserve_free(&mut slots.free, slots.entries.capacity());
            return slots.entries.len() - 1;
        };
        slots.entries[place] = Some(value);
        place
    }

    /// Returns what `f` makes of the value in a place. `None` if the place is free or does not
    /// exist.
    pub(crate) fn get<U>(&self, place: usize, f: impl FnOnce(&mut T) -> U) -> Option<U> {
        lock(&self.0).entries.get_mut(place)?.as_mut().map(f)
    }

    /// Gives a place up. The caller drops what it held without a lock.
    pub(crate) fn remove(&self, place: usize) -> Option<T> {
        let mut slots = lock(&self.0);
        slots.free.push(place);
        slots.entries[place].take()
    }

    /// Returns how many places are taken.
    pub(crate) fn len(&self) -> usize {
        let slots = lock(&self.0);
        slots.entries.len() - slots.free.len()
    }

    /// Returns what `f` makes of each value.
    pub(crate) fn map<U>(&self, f: impl FnMut(&T) -> U) -> Vec<U> {
        lock(&self.0).entries.iter().flatten().map(f).collect()
    }
}
