//! A map by the addresses of OVERLAPPEDs.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// By the address of each OVERLAPPED. A program that chose its addresses such that they meet in the map would slow itself
/// down, and nobody else: so a product will do for a hash, which is a tenth of the work of the usual one.
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
        /// The golden ratio's digits, as Fibonacci hashing has them: it spreads what lies at even distances.
        const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
        let product = (self.0 ^ address as u64).wrapping_mul(FACTOR);
        self.0 = product ^ (product >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn addresses_at_even_distances_are_spread() {
        for distance in [8, 16, 32, 48, 64, 4096, 1 << 16, 1 << 20] {
            let hashes = (0..1024_usize).map(|at| {
                let mut hash = Product::default();
                hash.write_usize(0x7F12_3456_7000 + at * distance);
                hash.finish()
            });
            let hashes: Vec<u64> = hashes.collect();
            // A map of 2,048 places looks at the last bits for the place.
            let places: HashSet<u64> = hashes.iter().map(|hash| hash & 2047).collect();
            assert!(places.len() > 600, "{} places at a distance of {distance}", places.len());
            // And at the first seven for whether it is worth a look.
            let tags: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert!(tags.len() > 100, "{} tags at a distance of {distance}", tags.len());
        }
    }
}
