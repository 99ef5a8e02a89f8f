//! The timers of a port: a heap, earliest first.
//!
//! The timer of a posted message is identified by the message's cell. A slot has at most two
//! timers: one for the deadline of its arming and one for its operations. The heap knows the place
//! of each timer, so removing one needs no search and leaves no stale entry.

use super::moment::Moment;

/// Identifies a timer of this heap. Names are unique, also among the ports of one kernel: see
/// [`Timers::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TimerName {
    /// The cell of a message, or the number of a slot with [`SLOT_TIMER`] and perhaps
    /// [`OF_OPERATIONS`] set.
    cell: u32,
    /// Counts up from name to name.
    number: u64,
}

/// Set in the number of a slot, to tell it from a cell.
const SLOT_TIMER: u32 = 1 << 31;
/// Set in addition for the timer of a slot's operations.
const OF_OPERATIONS: u32 = 1 << 30;
/// The timer of the port's own deadline, in place of the last slot's.
const OF_PORT: u32 = u32::MAX;

/// Which of the two timers of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotTimer {
    /// The timer for the deadline of its arming.
    Readiness,
    /// The timer of its operations.
    Operations,
}

impl SlotTimer {
    /// Returns the number that identifies this timer of `slot` in a name.
    fn of(self, slot: u32) -> u32 {
        match self {
            Self::Readiness => SLOT_TIMER | slot,
            Self::Operations => SLOT_TIMER | OF_OPERATIONS | slot,
        }
    }
}

/// A timer that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The timer of the message in this cell.
    Message(u32),
    /// A timer of this slot.
    SlotTimer(SlotTimer, u32),
    /// The timer of the port's own deadline.
    Port,
}

#[derive(Clone, Copy, Debug)]
struct TimerEntry {
    at: Moment,
    name: TimerName,
}

impl TimerEntry {
    /// Timers for the same moment are due in the order in which they were set.
    fn rank(&self) -> (Moment, u64) {
        (self.at, self.name.number)
    }
}

/// The heap of timers.
#[derive(Debug)]
pub(crate) struct Timers {
    heap: Vec<TimerEntry>,
    /// For each cell, the place of its timer in the heap, or [`NOWHERE`].
    places: Vec<u32>,
    /// For each slot, the place of its timer of either kind.
    of_deadlines: Vec<u32>,
    of_operations: Vec<u32>,
    /// The place of the timer of the port's own deadline.
    of_port: u32,
    /// How many entries are timers of slots, or the port's own.
    slot_timers_set: usize,
    next_number: u64,
}

const NOWHERE: u32 = u32::MAX;

/// How many entries are below each one in the heap. With four there are half as many levels as with
/// two, and an entry that moves by a level changes a place in memory far away.
const BELOW: usize = 4;

impl Timers {
    /// Creates an empty heap whose names are numbered from `next_number`. If other heaps begin far
    /// from this number, their names never match here.
    pub(crate) const fn new(next_number: u64) -> Self {
        Self {
            heap: Vec::new(),
            places: Vec::new(),
            of_deadlines: Vec::new(),
            of_operations: Vec::new(),
            of_port: NOWHERE,
            slot_timers_set: 0,
            next_number,
        }
    }

    /// Returns when the first timer is due; [`Moment::NEVER`] if there is none.
    #[inline]
    pub(crate) fn next(&self) -> Moment {
        self.heap.first().map_or(Moment::NEVER, |first| first.at)
    }

    /// Returns how many messages have a timer.
    pub(crate) fn messages(&self) -> usize {
        self.heap.len() - self.slot_timers_set
    }

    /// Makes room for a timer of `cell`. Returns false if there is no memory.
    pub(crate) fn reserve(&mut self, cell: u32) -> bool {
        Self::reserve_up_to(&mut self.places, cell) && self.reserve_entries()
    }

    /// Makes room for this timer of `slot` and of all slots before it, however often it is set.
    /// Returns false if there is no memory.
    pub(crate) fn reserve_slot_timer(&mut self, timer: SlotTimer, slot: u32) -> bool {
        // No system has this many descriptors.
        slot < OF_PORT & !(SLOT_TIMER | OF_OPERATIONS)
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

    /// Makes room for an entry for every cell, every timer of a slot, and the port's own.
    fn reserve_entries(&mut self) -> bool {
        let wanted = self.places.len() + self.of_deadlines.len() + self.of_operations.len() + 1;
        self.heap.try_reserve(wanted.saturating_sub(self.heap.len())).is_ok()
    }

    /// Sets or moves a timer of `slot`. There must be room for it.
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

    /// Sets the timer of the port's own deadline, or moves it if `at` is earlier. Returns false if
    /// there is no memory.
    pub(crate) fn set_port_timer(&mut self, at: Moment) -> bool {
        if self.of_port != NOWHERE {
            let place = self.of_port as usize;
            if at < self.heap[place].at {
                self.heap[place].at = at;
                self.rise(place);
            }
            return true;
        }
        let has_room = self.reserve_entries();
        if has_room {
            self.slot_timers_set += 1;
            self.set(OF_PORT, at);
        }
        has_room
    }

    /// Stops the timers of all messages, so that none of them becomes due. They can still be
    /// [cancelled](Self::cancel).
    pub(crate) fn stop_messages(&mut self) {
        for entry in &mut self.heap {
            if entry.name.cell & SLOT_TIMER == 0 {
                entry.at = Moment::NEVER;
            }
        }
        for place in (0..self.heap.len().div_ceil(BELOW)).rev() {
            self.sink(place);
        }
    }

    /// Sets a timer for `cell`, which must not have one. There must be room for it.
    pub(crate) fn set(&mut self, cell: u32, at: Moment) -> TimerName {
        let name = TimerName { cell, number: self.next_number };
        self.next_number += 1;
        self.heap.push(TimerEntry { at, name });
        self.rise(self.heap.len() - 1);
        name
    }

    /// Removes and returns the first timer if it is due at `now`.
    pub(crate) fn take_due(&mut self, now: Moment) -> Option<Due> {
        let first =
            self.heap.first().filter(|first| first.at <= now && first.at != Moment::NEVER)?;
        let cell = first.name.cell;
        self.take_out(0);
        Some(if cell & SLOT_TIMER == 0 {
            Due::Message(cell)
        } else if cell == OF_PORT {
            Due::Port
        } else if cell & OF_OPERATIONS == 0 {
            Due::SlotTimer(SlotTimer::Readiness, cell & !SLOT_TIMER)
        } else {
            Due::SlotTimer(SlotTimer::Operations, cell & !(SLOT_TIMER | OF_OPERATIONS))
        })
    }

    /// Removes the timer of a message and returns its cell. Returns `None` if the timer is no
    /// longer there.
    pub(crate) fn cancel(&mut self, name: TimerName) -> Option<u32> {
        let place = self.places.get(name.cell as usize).copied().filter(|it| *it != NOWHERE)?;
        if self.heap[place as usize].name != name {
            return None;
        }
        self.take_out(place as usize);
        Some(name.cell)
    }

    /// Returns the cells of all messages that have a timer, in no order.
    pub(crate) fn cells(&self) -> impl Iterator<Item = u32> + '_ {
        self.heap.iter().map(|entry| entry.name.cell).filter(|cell| cell & SLOT_TIMER == 0)
    }

    /// Returns the places of this kind of timer.
    fn slot_timers(&mut self, timer: SlotTimer) -> &mut Vec<u32> {
        match timer {
            SlotTimer::Readiness => &mut self.of_deadlines,
            SlotTimer::Operations => &mut self.of_operations,
        }
    }

    /// Returns where the place of this timer is stored.
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
        if cell == OF_PORT {
            &mut self.of_port
        } else if cell & OF_OPERATIONS == 0 {
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

    /// Moves the entry at `place` towards the front, to where it belongs.
    fn rise(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let above = (place - 1) / BELOW;
            if self.heap[above].rank() <= entry.rank() {
                break;
            }
            self.put(place, self.heap[above]);
            place = above;
        }
        self.put(place, entry);
    }

    /// Moves the entry at `place` towards the back, to where it belongs.
    fn sink(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let first = BELOW * place + 1;
            let below = first..(first + BELOW).min(self.heap.len());
            let Some(least) = below.min_by_key(|below| self.heap[*below].rank()) else { break };
            if entry.rank() <= self.heap[least].rank() {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }

    /// Puts an entry at `place`, and stores that place.
    #[allow(clippy::cast_possible_truncation, reason = "there are fewer entries than cells")]
    fn put(&mut self, place: usize, entry: TimerEntry) {
        self.heap[place] = entry;
        *self.noted(entry.name.cell) = place as u32;
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
        // Another timer of the same cell has another name.
        timers.set(0, moment(1));
        assert_eq!(timers.cancel(name), None);
    }

    #[test]
    fn a_message_and_the_alarms_of_a_slot_of_the_same_number_are_three_timers() {
        let mut timers = Timers::new(7);
        let slot_timers = [SlotTimer::Readiness, SlotTimer::Operations];
        assert!(
            timers.reserve(3)
                && slot_timers.iter().all(|timer| timers.reserve_slot_timer(*timer, 3))
        );
        let message = timers.set(3, moment(5));
        timers.set_slot_timer(SlotTimer::Readiness, 3, moment(9));
        timers.set_slot_timer(SlotTimer::Operations, 3, moment(4));
        // This moves the timer; and there is room for all slots before 3.
        timers.set_slot_timer(SlotTimer::Readiness, 3, moment(6));
        timers.set_slot_timer(SlotTimer::Readiness, 2, moment(1));
        assert_eq!((timers.messages(), timers.next()), (1, moment(1)));
        assert_eq!(timers.cancel(message), Some(3));
        let taken: Vec<_> = std::iter::from_fn(|| timers.take_due(moment(8))).collect();
        let [deadline_timer, operations] = slot_timers.map(|timer| Due::SlotTimer(timer, 3));
        assert_eq!(taken, [Due::SlotTimer(SlotTimer::Readiness, 2), operations, deadline_timer]);
        assert_eq!((timers.messages(), timers.next()), (0, Moment::NEVER));
    }

    #[test]
    fn the_ports_own_timer_moves_to_an_earlier_time_only() {
        let mut timers = Timers::new(7);
        assert!(timers.set_port_timer(moment(5)) && timers.reserve(1));
        timers.set(1, moment(3));
        assert!(timers.set_port_timer(moment(9)) && timers.set_port_timer(moment(4)));
        assert_eq!((timers.messages(), timers.cells().count()), (1, 1));
        let taken: Vec<_> = std::iter::from_fn(|| timers.take_due(moment(4))).collect();
        assert_eq!(taken, [Due::Message(1), Due::Port]);
        // It may be set again.
        assert!(timers.set_port_timer(moment(8)));
        assert_eq!(timers.next(), moment(8));
    }

    #[test]
    fn stopped_messages_are_never_due_and_can_be_cancelled() {
        let mut timers = Timers::new(7);
        let names: Vec<_> = (0..5)
            .map(|cell| {
                assert!(timers.reserve(cell));
                timers.set(cell, moment(u64::from(cell)))
            })
            .collect();
        for slot in 0..3 {
            assert!(timers.reserve_slot_timer(SlotTimer::Operations, slot));
            timers.set_slot_timer(SlotTimer::Operations, slot, moment(10 - u64::from(slot)));
        }
        timers.stop_messages();
        assert_eq!((timers.messages(), timers.next()), (5, moment(8)));
        let taken: Vec<_> = std::iter::from_fn(|| timers.take_due(moment(20))).collect();
        assert_eq!(taken, [2, 1, 0].map(|slot| Due::SlotTimer(SlotTimer::Operations, slot)));
        for (name, cell) in names.into_iter().zip(0..) {
            assert_eq!(timers.cancel(name), Some(cell));
        }
        assert_eq!(timers.messages(), 0);
    }

    proptest! {
        #[test]
        fn it_does_what_a_sorted_list_does(steps in vec((0..4_u8, 0..40_u32, 0..50_u64), 1..200)) {
            let mut timers = Timers::new(7);
            // The moment and the name.
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
