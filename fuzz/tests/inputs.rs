//! Each target with a few thousand strings of random bytes: so it is compiled and runs without a fuzzer.

/// Always the same bytes: xorshift.
struct Dice(u64);

impl Dice {
    fn list(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let count = self.list() % most;
        (0..count).map(|_| self.list().to_le_bytes()[3]).collect()
    }
}

fn play(target: fn(&[u8]), inputs: u32, most: u64) {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for _ in 0..inputs {
        let data = dice.bytes(most);
        if std::panic::catch_unwind(|| target(&data)).is_err() {
            panic!("a rule is broken by {data:?}");
        }
    }
}

#[test]
fn the_schedule_keeps_its_invariants() {
    play(completion_port_fuzz::schedule, 3_000, 800);
}

#[test]
fn a_slot_keeps_the_rules_of_its_table() {
    play(completion_port_fuzz::slot, 20_000, 400);
}
