//! Whether all edges come from one descriptor.
//!
//! The kernel wakes a thread for each datagram that arrives, even if an earlier one has woken
//! another thread, which will find the same edge. So a second thread in the kernel's wait wakes and
//! finds nothing.

use super::controller::STAND;

/// After this many polls in a row that found an edge of the same descriptor alone, it counts as the
/// only one.
const IN_A_ROW: u32 = 16;

/// Whose edges a poll has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// Those of the registration with this name.
    Of(u64),
    OfSeveral,
}

impl Found {
    /// Edges of the registrations with these names.
    #[inline]
    pub(crate) fn of(mut names: impl Iterator<Item = u64>) -> Self {
        match (names.next(), names.next()) {
            (None, _) => Self::Nothing,
            (Some(name), None) => Self::Of(name),
            _ => Self::OfSeveral,
        }
    }
}

/// What the last polls have found.
#[derive(Debug, Default)]
pub(super) struct Sources {
    last: Option<u64>,
    in_a_row: u32,
}

impl Sources {
    #[inline]
    pub(super) fn note(&mut self, found: Found) {
        let last = match found {
            Found::Nothing => return,
            Found::Of(name) => Some(name),
            Found::OfSeveral => None,
        };
        let is_same = last.is_some() && last == self.last;
        self.in_a_row = if is_same { self.in_a_row.saturating_add(1) } else { 0 };
        self.last = last;
    }

    /// Returns whether all edges come from one descriptor.
    #[inline]
    fn are_one(&self) -> bool {
        self.in_a_row >= IN_A_ROW
    }

    /// Returns whether edges are left to one thread although packets are long: all edges come from
    /// one descriptor, and a packet takes no longer than queued ones may wait.
    #[inline]
    pub(super) fn are_for_one_thread(&self, packet: u64) -> bool {
        self.are_one() && packet <= STAND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_descriptor_counts_as_the_only_one_until_another_has_an_edge() {
        assert_eq!(Found::of([].into_iter()), Found::Nothing);
        assert_eq!(Found::of([7].into_iter()), Found::Of(7));
        assert_eq!(Found::of([7, 8].into_iter()), Found::OfSeveral);
        let mut sources = Sources::default();
        for others in [Found::Of(8), Found::OfSeveral] {
            for _ in 0..=IN_A_ROW {
                assert!(!sources.are_one());
                sources.note(Found::Of(7));
            }
            sources.note(Found::Nothing);
            assert!(sources.are_one());
            assert!(sources.are_for_one_thread(STAND) && !sources.are_for_one_thread(STAND + 1));
            sources.note(others);
        }
        (0..100).for_each(|_| sources.note(Found::OfSeveral));
        assert!(!sources.are_one());
    }
}
