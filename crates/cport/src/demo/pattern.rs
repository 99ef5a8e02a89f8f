//! The data that the clients send.

/// The bytes of one client. Each depends on the client and on its position. This detects lost,
/// doubled and moved bytes, and those of another client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    seed: u64,
}

impl Pattern {
    /// The bytes of client `number`.
    pub(crate) fn of_client(number: u64) -> Self {
        Self { seed: mixed(number) }
    }

    /// The bytes from position `offset` on.
    pub(crate) fn fill(self, offset: u64, bytes: &mut [u8]) {
        let mut place = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let word = mixed(self.seed ^ (place / 8)).to_le_bytes();
            let from = (place % 8) as usize;
            let count = rest.len().min(8 - from);
            let (head, tail) = rest.split_at_mut(count);
            head.copy_from_slice(&word[from..from + count]);
            rest = tail;
            place += count as u64;
        }
    }

    /// The position of the first wrong byte, if `bytes` start at `offset`.
    pub(crate) fn first_wrong(self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = [0; 1024];
        let mut place = offset;
        for part in bytes.chunks(expected.len()) {
            let expected = &mut expected[..part.len()];
            self.fill(place, expected);
            if part != expected {
                let wrong = part.iter().zip(expected.iter()).take_while(|(a, b)| a == b).count();
                return Some(place + wrong as u64);
            }
            place += part.len() as u64;
        }
        None
    }

    /// A length between 1 and `most`, different for each `round`.
    pub(crate) fn length(self, round: u64, most: usize) -> usize {
        let rest = mixed(self.seed.wrapping_add(!round)) % most as u64;
        usize::try_from(rest).map_or(most, |rest| rest + 1)
    }
}

/// The finalizer of splitmix64: neighbouring numbers give unrelated ones.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn parts_of_a_stream_are_those_of_the_whole() {
        let pattern = Pattern::of_client(7);
        let mut whole = [0; 5000];
        pattern.fill(0, &mut whole);
        for (from, to) in [(0, 1), (3, 20), (1023, 1025), (13, 4999)] {
            let mut part = vec![0; to - from];
            pattern.fill(from as u64, &mut part);
            assert_eq!(part, &whole[from..to]);
            assert_eq!(pattern.first_wrong(from as u64, &part), None);
        }
    }

    #[test]
    fn a_wrong_byte_is_found_where_it_is() {
        let pattern = Pattern::of_client(1);
        let mut bytes = [0; 3000];
        pattern.fill(50, &mut bytes);
        bytes[2345] ^= 1;
        assert_eq!(pattern.first_wrong(50, &bytes), Some(2395));
        // Moved by one, or another client's.
        pattern.fill(51, &mut bytes);
        assert!(pattern.first_wrong(50, &bytes).is_some());
        assert!(Pattern::of_client(2).first_wrong(51, &bytes).is_some());
    }
}
