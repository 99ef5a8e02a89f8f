//! What is to happen at a time to come: a heap, earliest first.
//!
//! A posted message is named by its cell. A slot has two timers at most, its *timers*: one for the deadline of its
//! arming, and one for whatever its operations wait for. The heap knows where each stands, so that one is taken out
//! without a search and nothing is left behind.

use super::moment::Moment;

/// A timer of this heap. No other one ever has the same name, and none of another port of the same kernel: see
/// [`Timers::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TimerName {
    /// The cell of a message; or [`SLOT_TIMER`], perhaps [`OF_OPERATIONS`], and the number of a slot.
    cell: u32,
    /// They count up.
    number: u64,
}

/// Set in the number of a slot, to tell it from that of a cell.
const SLOT_TIMER: u32 = 1 << 31;
/// Besides, if it is the timer of operations.
const OF_OPERATIONS: u32 = 1 << 30;

/// Which of the two timers of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotTimer {
    /// That of its arming.
    DeadlineTimer,
    /// That of its operations.
    Operations,
}

impl SlotTimer {
    /// What stands in a name for this timer of `slot`.
    fn of(self, slot: u32) -> u32 {
        match self {
            Self::DeadlineTimer => SLOT_TIMER | slot,
            Self::Operations => SLOT_TIMER | OF_OPERATIONS | slot,
        }
    }
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The message in this cell.
    Message(u32),
    /// A timer of this slot.
    SlotTimer(SlotTimer, u32),
}

#[derive(Clone, Copy, Debug)]
struct TimerEntry {
    at: Moment,
    name: TimerName,
}

impl TimerEntry {
    /// Of several for the same moment the one goes first that was set first.
    fn rank(&self) -> (Moment, u64) {
        (self.at, self.name.number)
    }
}

/// Timers, by when they are due.
#[derive(Debug)]
pub(crate) struct Timers {
    heap: Vec<TimerEntry>,
    /// Where the timer of a cell stands, by cells; [`NOWHERE`] if it has none.
    places: Vec<u32>,
    /// The same for the timers of slots.
    of_deadlines: Vec<u32>,
    of_operations: Vec<u32>,
    /// How many entries are timers.
    slot_timers_set: usize,
    next_number: u64,
}

const NOWHERE: u32 = u32::MAX;

impl Timers {
    /// Timers whose names begin with this number. Where others begin with one that is far from it, a name of
    /// theirs means nothing here.
    pub(crate) const fn new(next_number: u64) -> Self {
        Self {
            heap: Vec::new(),
            places: Vec::new(),
            of_deadlines: Vec::new(),
            of_operations: Vec::new(),
            slot_timers_set: 0,
            next_number,
        }
    }

    /// When the first one is due; [`Moment::NEVER`] if there is none.
    #[inline]
    pub(crate) fn next(&self) -> Moment {
        self.heap.first().map_or(Moment::NEVER, |first| first.at)
    }

    /// How many messages wait for their time.
    pub(crate) fn messages(&self) -> usize {
        self.heap.len() - self.slot_timers_set
    }

    /// Makes sure that a timer can be set for `cell`. False if there is no memory.
    pub(crate) fn reserve(&mut self, cell: u32) -> bool {
        Self::reserve_up_to(&mut self.places, cell) && self.reserve_entries()
    }

    /// Makes sure that this timer can be set, however often, for `slot` and all slots before. False if there is no
    /// memory.
    pub(crate) fn reserve_slot_timer(&mut self, timer: SlotTimer, slot: u32) -> bool {
        // No system has so many descriptors.
        slot < OF_OPERATIONS
            && Self::reserve_up_to(self.slot_timers(timer), slot)
            && self.reserve_entries()
    }

    fn reserve_up_to(places: &mut Vec<u32>, number: u32) -> bool {
        let wanted = number as usize + 1;
        let more = wanted.saturating_sub(places.len());
        if places.try_reserve(more).is_err() {
            return false;
        }
        if more > 0 {
            places.resize(wanted, NOWHERE);
        }
        true
    }

    /// Makes room for an entry of each cell and of each timer.
    fn reserve_entries(&mut self) -> bool {
        let wanted = self.places.len() + self.of_deadlines.len() + self.of_operations.len();
        self.heap.try_reserve(wanted.saturating_sub(self.heap.len())).is_ok()
    }

    /// Sets a timer of `slot`, or moves it. There is room for it.
    pub(crate) fn set_slot_timer(&mut self, timer: SlotTimer, slot: u32, at: Moment) {
        match self.slot_timers(timer)[slot as usize] {
            NOWHERE => {
                self.slot_timers_set += 1;
                self.set(timer.of(slot), at);
            }
            place => {
                let place = place as usize;
                self.heap[place].at = at;
                self.rise(place);
                self.sink(place);
            }
        }
    }

    /// Sets a timer for `cell`, which has none, and for which there is room.
    pub(crate) fn set(&mut self, cell: u32, at: Moment) -> TimerName {
        let name = TimerName { cell, number: self.next_number };
        self.next_number += 1;
        self.heap.push(TimerEntry { at, name });
        self.rise(self.heap.len() - 1);
        name
    }

    /// Takes the first timer, if that is due at `now`.
    pub(crate) fn take_due(&mut self, now: Moment) -> Option<Due> {
        let first =
            self.heap.first().filter(|first| first.at <= now && first.at != Moment::NEVER)?;
        let cell = first.name.cell;
        self.take_out(0);
        Some(if cell & SLOT_TIMER == 0 {
            Due::Message(cell)
        } else if cell & OF_OPERATIONS == 0 {
            Due::SlotTimer(SlotTimer::DeadlineTimer, cell & !SLOT_TIMER)
        } else {
            Due::SlotTimer(SlotTimer::Operations, cell & !(SLOT_TIMER | OF_OPERATIONS))
        })
    }

    /// Takes a timer out, due or not. `None` if it is not there any more; otherwise its cell.
    pub(crate) fn cancel(&mut self, name: TimerName) -> Option<u32> {
        let place = self.places.get(name.cell as usize).copied().filter(|it| *it != NOWHERE)?;
        if self.heap[place as usize].name != name {
            return None;
        }
        self.take_out(place as usize);
        Some(name.cell)
    }

    /// The cells of all messages, in no order.
    pub(crate) fn cells(&self) -> impl Iterator<Item = u32> + '_ {
        self.heap.iter().map(|entry| entry.name.cell).filter(|cell| cell & SLOT_TIMER == 0)
    }

    /// Where the timers of slots stand.
    fn slot_timers(&mut self, timer: SlotTimer) -> &mut Vec<u32> {
        match timer {
            SlotTimer::DeadlineTimer => &mut self.of_deadlines,
            SlotTimer::Operations => &mut self.of_operations,
        }
    }

    /// Where the place of this cell's or timer's entry is noted.
    #[inline]
    fn noted(&mut self, cell: u32) -> &mut u32 {
        if cell & SLOT_TIMER == 0 {
            &mut self.places[cell as usize]
        } else {
            self.noted_of_timer(cell)
        }
    }

    #[inline(never)]
    fn noted_of_timer(&mut self, cell: u32) -> &mut u32 {
        if cell & OF_OPERATIONS == 0 {
            &mut self.of_deadlines[(cell & !SLOT_TIMER) as usize]
        } else {
            &mut self.of_operations[(cell & !(SLOT_TIMER | OF_OPERATIONS)) as usize]
        }
    }

    fn take_out(&mut self, place: usize) {
        let entry = self.heap.swap_remove(place);
        *self.noted(entry.name.cell) = NOWHERE;
        self.slot_timers_set -= usize::from(entry.name.cell & SLOT_TIMER != 0);
        if place < self.heap.len() {
            self.rise(place);
            self.sink(place);
        }
    }

    /// Moves the entry at `place` to the front as far as it belongs.
    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heap[above].rank() <= self.heap[place].rank() {
                break;
            }
            self.heap.swap(above, place);
            self.note(place);
            place = above;
        }
        self.note(place);
    }

    /// Moves the entry at `place` to the back as far as it belongs.
    fn sink(&mut self, mut place: usize) {
        loop {
            let below = 2 * place + 1..(2 * place + 3).min(self.heap.len());
            let Some(least) = below.min_by_key(|below| self.heap[*below].rank()) else { break };
            if self.heap[place].rank() <= self.heap[least].rank() {
                break;
            }
            self.heap.swap(least, place);
            self.note(place);
            place = least;
        }
        self.note(place);
    }

    /// The entry at `place` stands there.
    #[allow(clippy::cast_possible_truncation, reason = "there are fewer entries than cells")]
    fn note(&mut self, place: usize) {
        *self.noted(self.heap[place].name.cell) = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn moment(number: u64) -> Moment {
        Moment::from_nanoseconds(number)
    }

    #[test]
    fn of_several_for_one_moment_the_first_goes_first() {
        let mut timers = Timers::new(7);
        for cell in [3, 1, 2] {
            assert!(timers.reserve(cell));
            timers.set(cell, moment(5));
        }
        let taken: Vec<_> = std::iter::from_fn(|| timers.take_due(moment(5))).collect();
        assert_eq!(taken, [3, 1, 2].map(Due::Message));
    }

    #[test]
    fn what_is_never_due_does_not_come_and_can_be_cancelled() {
        let mut timers = Timers::new(7);
        assert!(timers.reserve(0));
        let name = timers.set(0, Moment::NEVER);
        assert_eq!(timers.take_due(Moment::NEVER), None);
        assert_eq!(timers.cancel(name), Some(0));
        assert_eq!(timers.cancel(name), None);
        // Another one in the same cell is not the first one.
        timers.set(0, moment(1));
        assert_eq!(timers.cancel(name), None);
    }

    #[test]
    fn a_message_and_the_alarms_of_a_slot_of_the_same_number_are_three_timers() {
        let mut timers = Timers::new(7);
        let slot_timers = [SlotTimer::DeadlineTimer, SlotTimer::Operations];
        assert!(
            timers.reserve(3)
                && slot_timers.iter().all(|timer| timers.reserve_slot_timer(*timer, 3))
        );
        let message = timers.set(3, moment(5));
        timers.set_slot_timer(SlotTimer::DeadlineTimer, 3, moment(9));
        timers.set_slot_timer(SlotTimer::Operations, 3, moment(4));
        // Moved, and there is room for the slots before.
        timers.set_slot_timer(SlotTimer::DeadlineTimer, 3, moment(6));
        timers.set_slot_timer(SlotTimer::DeadlineTimer, 2, moment(1));
        assert_eq!((timers.messages(), timers.next()), (1, moment(1)));
        assert_eq!(timers.cancel(message), Some(3));
        let taken: Vec<_> = std::iter::from_fn(|| timers.take_due(moment(8))).collect();
        let [deadline_timer, operations] = slot_timers.map(|timer| Due::SlotTimer(timer, 3));
        assert_eq!(
            taken,
            [Due::SlotTimer(SlotTimer::DeadlineTimer, 2), operations, deadline_timer]
        );
        assert_eq!((timers.messages(), timers.next()), (0, Moment::NEVER));
    }

    proptest! {
        #[test]
        fn it_does_what_a_sorted_list_does(steps in vec((0..4_u8, 0..40_u32, 0..50_u64), 1..200)) {
            let mut timers = Timers::new(7);
            // When, number, cell.
            let mut plain: Vec<(u64, TimerName)> = Vec::new();
            let mut ended = Vec::new();
            for (step, cell, at) in steps {
                let there = plain.iter().position(|(_, name)| name.cell == cell);
                match (step, there) {
                    (0 | 1, None) => {
                        prop_assert!(timers.reserve(cell));
                        plain.push((at, timers.set(cell, moment(at))));
                    }
                    (2, Some(there)) => {
                        let (_, name) = plain.remove(there);
                        prop_assert_eq!(timers.cancel(name), Some(cell));
                        ended.push(name);
                    }
                    (3, _) => {
                        plain.sort_by_key(|(at, name)| (*at, name.number));
                        while plain.first().is_some_and(|(first, _)| *first <= at) {
                            let (_, name) = plain.remove(0);
                            prop_assert_eq!(timers.take_due(moment(at)), Some(Due::Message(name.cell)));
                            ended.push(name);
                        }
                        prop_assert_eq!(timers.take_due(moment(at)), None);
                    }
                    _ => {}
                }
                for name in &ended {
                    prop_assert_eq!(timers.cancel(*name), None);
                }
                let next = plain.iter().map(|(at, _)| moment(*at)).min();
                prop_assert_eq!(timers.next(), next.unwrap_or(Moment::NEVER));
                prop_assert_eq!(timers.messages(), plain.len());
                let mut cells: Vec<_> = timers.cells().collect();
                let mut expected: Vec<_> = plain.iter().map(|(_, name)| name.cell).collect();
                cells.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(cells, expected);
            }
        }
    }
}
