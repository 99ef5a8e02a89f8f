//! The descriptor numbers of a simulated kernel.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::objects::FileId;
use crate::types::source::Descriptor;

/// Which file each number names. The lowest free number is given out first, and again after it was
/// given back, as a Unix kernel does it.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    files: Vec<Option<FileId>>,
    /// The free places of `files`.
    free: BinaryHeap<Reverse<usize>>,
    /// How many numbers a file has besides its first one, if any.
    duplicates: BTreeMap<FileId, usize>,
}

impl Numbers {
    /// Gives `file` its first number; `None` if there is no number left.
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

    /// Gives `file`, which has a number, one more.
    pub(super) fn add_duplicate(&mut self, file: FileId) -> Option<Descriptor> {
        let number = self.add(file)?;
        *self.duplicates.entry(file).or_default() += 1;
        Some(number)
    }

    /// Takes a number of `file` back. True if it was the last one.
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

    /// The file that a number names now.
    pub(super) fn file(&self, number: Descriptor) -> Option<FileId> {
        let place = usize::try_from(number).ok()?;
        self.files.get(place).copied().flatten()
    }

    /// How many numbers name a file.
    pub(super) fn in_use(&self) -> usize {
        self.files.len() - self.free.len()
    }
}
