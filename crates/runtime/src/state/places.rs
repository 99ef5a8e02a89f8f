//! Numbered places, by which the end of a runtime finds its tasks.

use crate::state::lock;
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

impl<T> Slots<T> {
    fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        })
    }
}

impl<T> Places<T> {
    /// Reserves a place. It counts as taken, and is empty.
    pub(crate) fn reserve(&self) -> usize {
        lock(&self.0).reserve()
    }

    /// Fills a reserved place. Its owner must not have given it up.
    pub(crate) fn set(&self, place: usize, value: T) {
        lock(&self.0).entries[place] = Some(value);
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

    /// Returns what `f` makes of the filled places.
    pub(crate) fn map<U>(&self, f: impl FnMut(&T) -> U) -> Vec<U> {
        lock(&self.0).entries.iter().flatten().map(f).collect()
    }
}
