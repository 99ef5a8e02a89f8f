//! How many packets a thread takes at a time if it cannot give any back.
//!
//! A batch goes to an idle thread if the thread that has it sleeps or is stuck. What a caller has moved
//! into memory of its own does not. So it takes fewer packets at a time where that has happened lately,
//! down to a single one, and more again where it has not.

/// The highest limit; each one below it is a quarter of the one above.
const MOST: u32 = 16;

/// For so long, in nanoseconds, no thread has been found asleep or stuck: the limit rises.
const CALM: u64 = 1_000_000_000;

/// What a thread takes, at most. Guarded by the port's lock.
#[derive(Debug)]
pub(crate) struct Advice {
    room: u32,
    /// When a thread was last found asleep or stuck, or the limit was last raised.
    at: u64,
}

impl Advice {
    /// There is no limit.
    pub(crate) const ALL: u32 = u32::MAX;

    pub(crate) fn new() -> Self {
        Self { room: Self::ALL, at: 0 }
    }

    /// The limit.
    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    /// A thread has been found asleep, or stuck with what it took.
    pub(crate) fn lower(&mut self, now: u64) {
        self.room = (self.room / 4).clamp(1, MOST);
        self.at = now;
    }

    /// Raises the limit if it is time to.
    pub(crate) fn raise(&mut self, now: u64) {
        if now.saturating_sub(self.at) >= CALM {
            self.room = if self.room >= MOST { Self::ALL } else { self.room * 4 };
            self.at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_goes_down_to_one_and_back_to_none() {
        let mut advice = Advice::new();
        let down = [(); 4].map(|()| {
            advice.lower(5);
            advice.room()
        });
        assert_eq!(down, [16, 4, 1, 1]);
        advice.raise(CALM + 4);
        assert_eq!(advice.room(), 1);
        let up = [1, 2, 3, 4].map(|time| {
            advice.raise(time * CALM + 5);
            advice.room()
        });
        assert_eq!(up, [4, 16, Advice::ALL, Advice::ALL]);
    }

    #[test]
    fn the_limit_stays_where_threads_are_found_asleep_now_and_then() {
        let mut advice = Advice::new();
        for turn in 0..100 {
            advice.lower(turn * CALM);
            advice.raise(turn * CALM + CALM / 2);
        }
        assert_eq!(advice.room(), 1);
    }
}
