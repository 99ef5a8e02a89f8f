//! Maps by the addresses of OVERLAPPEDs.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by the address of each OVERLAPPED. A program that chose colliding addresses would slow
/// down only itself, so a product is a sufficient hash. It costs a tenth of the default hash.
pub(crate) type ByAddress<V> = HashMap<usize, V, BuildHasherDefault<Product>>;

/// The hash of one address. Addresses end in zeros; a map looks at the first bits of a hash and at the last ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Product(u64);

impl Hasher for Product {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        /// The digits of the golden ratio, as in Fibonacci hashing, which spreads values at even
        /// distances.
        const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
        let product = (self.0 ^ address as u64).wrapping_mul(FACTOR);
        self.0 = product ^ (product >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The same for a number that rarely has more than a receive and a send. The first ones are in an
/// unordered list, the rest in a map.
#[derive(Debug)]
pub(crate) struct Few<V> {
    first: Vec<(usize, V)>,
    beyond: ByAddress<V>,
}

/// Maximum length of the list. Searching it takes less time than a hash.
const FIRST: usize = 4;

impl<V> Default for Few<V> {
    fn default() -> Self {
        Self { first: Vec::new(), beyond: ByAddress::default() }
    }
}

impl<V> Few<V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.beyond.is_empty()
    }

    fn place(&self, address: usize) -> Option<usize> {
        self.first.iter().position(|(at, _)| *at == address)
    }

    pub(crate) fn get(&self, address: usize) -> Option<&V> {
        match self.place(address) {
            Some(place) => self.first.get(place).map(|(_, value)| value),
            None if self.beyond.is_empty() => None,
            None => self.beyond.get(&address),
        }
    }

    pub(crate) fn get_mut(&mut self, address: usize) -> Option<&mut V> {
        match self.place(address) {
            Some(place) => self.first.get_mut(place).map(|(_, value)| value),
            None if self.beyond.is_empty() => None,
            None => self.beyond.get_mut(&address),
        }
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        self.get(address).is_some()
    }

    /// Adds an entry that is not present.
    pub(crate) fn insert(&mut self, address: usize, value: V) {
        debug_assert!(!self.contains(address), "it is there");
        if self.first.len() < FIRST {
            self.first.push((address, value));
        } else {
            self.beyond.insert(address, value);
        }
    }

    pub(crate) fn remove(&mut self, address: usize) {
        match self.place(address) {
            Some(place) => drop(self.first.swap_remove(place)),
            None if self.beyond.is_empty() => {}
            None => drop(self.beyond.remove(&address)),
        }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.first.iter().map(|(_, value)| value).chain(self.beyond.values())
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.first.iter_mut().map(|(_, value)| value).chain(self.beyond.values_mut())
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        self.first.into_iter().map(|(_, value)| value).chain(self.beyond.into_values())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn what_is_beyond_the_first_ones_is_found_as_they_are() {
        let mut few = Few::default();
        assert!(few.is_empty());
        for address in 0..3 * FIRST {
            few.insert(address, 10 * address);
        }
        assert_eq!((few.first.len(), few.beyond.len()), (FIRST, 2 * FIRST));
        // One of each kind, and one that was never present.
        for address in [1, FIRST + 1, 3 * FIRST] {
            few.remove(address);
            assert!(!few.contains(address));
        }
        // In a free slot.
        few.insert(FIRST + 1, 7);
        assert_eq!((few.first.len(), few.beyond.len()), (FIRST, 2 * FIRST - 1));
        *few.get_mut(2 * FIRST).unwrap() += 1;
        few.values_mut().filter(|value| **value == 20).for_each(|value| *value = 3);
        let mut left: Vec<_> = few.into_values().collect();
        left.sort_unstable();
        let beyond = (FIRST + 2..3 * FIRST).map(|at| 10 * at + usize::from(at == 2 * FIRST));
        let wanted: Vec<_> = [0, 3, 7, 30, 10 * FIRST].into_iter().chain(beyond).collect();
        assert_eq!(left, wanted);
    }

    #[test]
    fn addresses_at_even_distances_are_spread() {
        for distance in [8, 16, 32, 48, 64, 4096, 1 << 16, 1 << 20] {
            let hashes = (0..1024_usize).map(|at| {
                let mut hash = Product::default();
                hash.write_usize(0x7F12_3456_7000 + at * distance);
                hash.finish()
            });
            let hashes: Vec<u64> = hashes.collect();
            // A map of 2,048 places takes the place from the last bits.
            let places: HashSet<u64> = hashes.iter().map(|hash| hash & 2047).collect();
            assert!(places.len() > 600, "{} places at a distance of {distance}", places.len());
            // It compares the first seven bits before the key.
            let tags: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert!(tags.len() > 100, "{} tags at a distance of {distance}", tags.len());
        }
    }
}
