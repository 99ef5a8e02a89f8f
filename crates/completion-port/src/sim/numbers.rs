//! The descriptor numbers of a simulated kernel.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::objects::FileId;
use crate::types::source::Descriptor;

/// Maps each number to the file it names.
///
/// It assigns the lowest free number and reuses closed ones, as a Unix kernel does.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    files: Vec<Option<FileId>>,
    /// The free places of `files`.
    free: BinaryHeap<Reverse<usize>>,
    /// How many numbers a file has besides its first one. Files with one number have no entry.
    duplicates: BTreeMap<FileId, usize>,
}

impl Numbers {
    /// Gives `file` its first number. Returns `None` if no number is free.
    pub(super) fn add(&mut self, file: FileId) -> Option<Descriptor> {
        let place = self.free.pop().map_or(self.files.len(), |Reverse(place)| place);
        let Ok(number) = Descriptor::try_from(place) else {
            self.free.push(Reverse(place));
            return None;
        };
        if place == self.files.len() {
            self.files.push(Some(file));
        } else {
            self.files[place] = Some(file);
        }
        Some(number)
    }

    /// Gives `file`, which has a number, an additional one.
    pub(super) fn add_duplicate(&mut self, file: FileId) -> Option<Descriptor> {
        let number = self.add(file)?;
        *self.duplicates.entry(file).or_default() += 1;
        Some(number)
    }

    /// Frees a number of `file`. Returns true if it was the last one.
    pub(super) fn remove(&mut self, number: Descriptor, file: FileId) -> bool {
        let Ok(place) = usize::try_from(number) else { return false };
        self.files[place] = None;
        self.free.push(Reverse(place));
        let Some(others) = self.duplicates.get_mut(&file) else { return true };
        *others -= 1;
        if *others == 0 {
            self.duplicates.remove(&file);
        }
        false
    }

    /// Returns the file that a number names now.
    pub(super) fn file(&self, number: Descriptor) -> Option<FileId> {
        let place = usize::try_from(number).ok()?;
        self.files.get(place).copied().flatten()
    }

    /// Returns how many numbers name a file.
    pub(super) fn in_use(&self) -> usize {
        self.files.len() - self.free.len()
    }
}
