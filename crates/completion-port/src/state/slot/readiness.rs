//! What a slot remembers of the kernel: the readiness that edges and checks have found, and the
//! events that the next packet would report.
//!
//! Nothing here depends on the owner of the node. The only bit of ownership that this module reads
//! is `QUEUED`: while the node is queued, a check may be in progress. The only other module that it
//! imports is [`report`](super::report).

use super::report::Answer;
use super::{
    ALIVE, ALSO, ALSO_SHIFT, ARMED_AT, DIRECTIONS, EDGE, EDGES, EDGES_SHIFT, HALF_CLOSED, LASTING,
    PENDING, PENDING_SHIFT, POLL, POLLS, QUEUED, READY, READY_SHIFT, RECHECK, REPORTED, UNCHECKED,
    WATCHED_SHIFT, Word,
};
use crate::state::facts::Facts;
use crate::types::interest::Direction;
use crate::types::interest::{Events, Interest};

/// How much higher ERR is in [`Events`] than in the pending mask.
const ERR_SHIFT: u32 = 2;

/// A handler's hint: the directions that it has drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drained(u8);

impl Drained {
    /// No hint.
    pub(crate) const NONE: Self = Self(0);
    /// A read would block.
    pub(crate) const READ: Self = Self(1);
    /// A write would block.
    pub(crate) const WRITE: Self = Self(2);

    /// Returns the hint that this direction is drained.
    #[inline]
    pub(crate) const fn of(direction: Direction) -> Self {
        match direction {
            Direction::In => Self::READ,
            Direction::Out => Self::WRITE,
        }
    }

    /// Returns the hint for both directions.
    #[inline]
    pub(crate) const fn of_both(read: bool, write: bool) -> Self {
        Self((read as u8 * Self::READ.0) | (write as u8 * Self::WRITE.0))
    }

    /// Combines two hints.
    #[inline]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Word {
    /// Returns whether the peer is known to have ended the stream.
    pub(crate) fn is_half_closed(self) -> bool {
        self.has(HALF_CLOSED)
    }

    /// Returns whether no urgent data, error or end is known. If so, a short read has left nothing
    /// that was noted before it.
    pub(crate) fn is_drained_by_short_read(self) -> bool {
        !self.has(RECHECK | HALF_CLOSED)
    }

    /// Returns whether the socket was seen connected or listening.
    pub(crate) fn is_alive(self) -> bool {
        self.has(ALIVE)
    }

    /// Returns what the next packet reports.
    #[inline]
    pub(super) fn pending(self) -> Events {
        let pending = ((self.0 & PENDING) >> PENDING_SHIFT) as u8;
        Events::from_bits(pending & 0b1111 | (pending & 0b1_0000) << ERR_SHIFT)
    }

    /// Adds `events` to the next packet.
    #[inline]
    pub(super) fn expecting(self, events: Events) -> Self {
        let bits = u64::from(events.bits());
        self.with((bits & 0b1111 | bits >> ERR_SHIFT & 0b1_0000) << PENDING_SHIFT)
    }

    /// Returns the ready directions among those that packets report.
    #[inline]
    pub(super) fn wanted(self, facts: Facts) -> Events {
        let asked = u64::from(self.interest().bits());
        Events::from_bits((u64::from(facts.directions()) & asked & DIRECTIONS) as u8)
    }

    /// Returns the ready directions among those in the filter. Equals [`Word::wanted`] if nothing
    /// else is requested and no operations are outstanding.
    #[inline]
    pub(super) fn filtered(self, facts: Facts) -> Events {
        Events::from_bits((u64::from(facts.directions()) & self.0 & DIRECTIONS) as u8)
    }

    /// Returns whether a direction that packets report is known ready.
    #[inline]
    pub(super) fn is_ready(self) -> bool {
        self.0 >> READY_SHIFT & u64::from(self.interest().bits()) & DIRECTIONS != 0
    }

    /// Returns whether the filter has a direction that is known ready, or that the kernel does not
    /// watch.
    #[inline]
    pub(super) fn is_ready_or_unwatched(self) -> bool {
        (self.0 >> READY_SHIFT | !(self.0 >> WATCHED_SHIFT)) & self.0 & DIRECTIONS != 0
    }

    /// Returns whether an edge may be older than the arming, so that a level-triggered packet for
    /// it could be false. That is so if the kernel found the edge in poll number `poll`, and the
    /// slot was armed during that poll or later. `newest` returns the highest poll number so far.
    /// Since the numbers wrap around, a slot that was armed long ago may seem to be armed later.
    /// That only costs a check.
    #[inline]
    pub(crate) fn may_predate(self, poll: u32, newest: impl Fn() -> u32) -> bool {
        !self.has(EDGE) && self.was_armed_since(poll, newest())
    }

    /// Returns whether the slot was, or may have been, armed since poll number `poll` began.
    /// `newest` is the highest poll number so far.
    #[inline]
    fn was_armed_since(self, poll: u32, newest: u32) -> bool {
        newest.wrapping_sub(self.armed_at()) % POLLS <= newest.wrapping_sub(poll)
    }

    /// Returns the number of the poll at which the slot was armed, modulo [`POLLS`].
    #[inline]
    pub(super) fn armed_at(self) -> u32 {
        ((self.0 & POLL) >> ARMED_AT) as u32
    }

    /// Returns the directions that the kernel watches.
    #[inline]
    pub(crate) fn watched(self) -> Facts {
        Facts::of_directions(self.0 >> WATCHED_SHIFT & DIRECTIONS)
    }

    /// Returns the directions that the kernel must watch before the slot is armed for `wanted`,
    /// including those it watches already. `None` if it watches all of `wanted`.
    #[inline]
    pub(crate) fn unwatched(self, wanted: Facts) -> Option<Facts> {
        let watched = self.watched();
        if watched.has(wanted) { None } else { Some(wanted | watched) }
    }

    /// Returns the directions that packets report and those with outstanding operations.
    pub(crate) fn wanted_directions(self) -> Facts {
        Facts::of_directions(u64::from(self.interest().bits()) & DIRECTIONS) | self.in_flight()
    }

    /// Returns whether the direction is known ready.
    pub(crate) fn is_known_ready(self, direction: Facts) -> bool {
        self.has(u64::from(direction.directions()) << READY_SHIFT)
    }

    /// Returns whether an operation of this direction is worth an attempt: the direction is known
    /// ready, or there was an end, an error or urgent data, which no further edge may report.
    pub(crate) fn may_be_ready(self, direction: Facts) -> bool {
        self.is_known_ready(direction) || !self.is_plain()
    }

    /// Notes whether the direction is ready.
    pub(super) fn knowing_of(self, direction: Facts, ready: bool) -> Self {
        let bits = u64::from(direction.directions()) << READY_SHIFT;
        if ready { self.with(bits) } else { self.without(bits) }
    }

    /// Returns whether a short read proves that nothing is left to read, because no end, error or
    /// urgent data was seen.
    pub(crate) fn is_plain(self) -> bool {
        !self.has(RECHECK | HALF_CLOSED)
    }

    /// Notes that the kernel watches these directions as well.
    #[inline]
    pub(super) fn watching(self, wanted: Facts) -> Self {
        self.with(u64::from(wanted.directions()) << WATCHED_SHIFT)
    }

    /// Notes an edge from the kernel.
    #[inline]
    pub(super) fn noting(self, facts: Facts) -> Self {
        let directions = u64::from(facts.directions());
        let word = self.with(directions << READY_SHIFT | directions << EDGES_SHIFT);
        if facts.any(Facts::RARE) { word.noting_rare(facts) } else { word.with(ALIVE) }
    }

    /// Notes an edge with more than readiness. It counts for both directions, since an attempt in
    /// either may now have a different result.
    #[cold]
    fn noting_rare(self, facts: Facts) -> Self {
        let mut word = if facts.reports_life() { self.with(ALIVE) } else { self };
        word = word.with(EDGES);
        // With urgent data, a short read does not prove that nothing is left.
        let ended = facts.has(Facts::RDHUP) && !word.is_half_closed();
        if ended || facts.any(Facts::ERR | Facts::HUP | Facts::URGENT) {
            word = word.with(RECHECK);
        }
        // An error or hang-up is new if the kernel says so, or if it watches a direction that is in
        // use. A one-shot reactor counts as watching none, since it repeats them whenever it is
        // asked.
        let is_news = facts.has(Facts::NEWS) || word.wanted_directions().any(word.watched());
        if facts.any(Facts::ERR | Facts::HUP) && is_news {
            word = word.without(REPORTED);
        }
        // If a check is in progress, its answer may be older than this edge.
        if word.has(QUEUED) { word.with(UNCHECKED) } else { word }
    }

    /// Updates the pending packet of an enabled slot for an edge that was noted.
    pub(super) fn weighing(self, facts: Facts, poll: u32, newest: impl Fn() -> u32) -> Self {
        let fresh = self.wanted(facts) - self.pending();
        let unclear = facts.any(Facts::ERR | Facts::HUP | Facts::RDHUP);
        if unclear || (!fresh.is_empty() && self.may_predate(poll, newest)) {
            self.with(UNCHECKED)
        } else {
            self.expecting(fresh)
        }
    }

    /// Applies a handler's hint: drained directions are no longer ready, unless an edge since the
    /// packet was taken disproves it.
    #[inline]
    pub(super) fn dried(self, drained: Drained) -> Self {
        let dry = u64::from(drained.0) & !(self.0 >> EDGES_SHIFT);
        self.without(dry << READY_SHIFT)
    }

    /// Notes that the slot is armed at `poll` and nothing has been reported since.
    #[inline]
    pub(super) fn armed(self, poll: u32) -> Self {
        let armed_at = u64::from(poll) << ARMED_AT & POLL;
        self.without(UNCHECKED | REPORTED | POLL).with(armed_at)
    }

    /// Arms the slot at `poll`. The next packet reports the current state, whatever the trigger, so
    /// remembered readiness must be checked first.
    pub(super) fn recalling(self, poll: u32) -> Self {
        let ends = Interest::IN | Interest::HANGUP;
        let unclear = self.has(RECHECK)
            || (self.has(HALF_CLOSED) && self.interest().intersects(ends))
            || self.is_ready();
        let word = self.armed(poll).without(PENDING);
        if unclear { word.with(UNCHECKED) } else { word }
    }

    /// Makes the next enabling ask the kernel and bypass the fast paths. With a one-shot reactor,
    /// this is always so.
    pub(super) fn suspected(self) -> Self {
        self.with(RECHECK)
    }

    /// Forgets everything that the kernel will report again.
    pub(super) fn forgetting(self) -> Self {
        self.without(READY | EDGES | HALF_CLOSED | UNCHECKED | PENDING | LASTING)
    }

    /// Returns whether a one-shot reactor watches the descriptor until it is detached.
    pub(crate) fn is_lasting(self) -> bool {
        self.has(LASTING)
    }

    /// Prepares for asking the kernel: an edge that arrives from now on may be newer than its
    /// answer.
    pub(super) fn asking(self) -> Self {
        self.without(EDGES | UNCHECKED)
    }

    /// Accepts an edge from a one-shot reactor, found by poll number `poll`, as its answer. Returns
    /// `None` if the slot was armed since that poll began, whatever its trigger, because the
    /// reactor has not been asked for that arming yet.
    pub(super) fn answered(self, poll: u32, newest: u32) -> Option<Self> {
        if self.was_armed_since(poll, newest) { None } else { Some(self.asking()) }
    }

    /// Applies the kernel's answer. Returns what the next packet reports, or `None` if an edge that
    /// arrived after the question may be newer than the answer.
    pub(super) fn knowing(self, answer: Answer) -> (Self, Option<Events>) {
        if self.has(UNCHECKED) {
            return (self, None);
        }
        let is_rare = answer.facts.any(Facts::RARE);
        let word = if answer.was_connected { self.with(ALIVE) } else { self };
        let (mut word, directions) = if is_rare {
            word.knowing_rare(answer)
        } else {
            let word = if answer.facts.reports_life() { word.with(ALIVE) } else { word };
            (word.without(RECHECK), answer.facts.directions().into())
        };
        if answer.is_edge {
            word = word.suspected();
        }
        // A direction is not ready if it is missing in the answer and no edge since the question
        // has brought it.
        let kept = word.0 >> READY_SHIFT & word.0 >> EDGES_SHIFT & DIRECTIONS;
        word = word.without(READY).with((directions | kept) << READY_SHIFT);
        if word.0 & kept & !directions != 0 {
            return (word.with(UNCHECKED), None);
        }
        let events = if is_rare {
            answer.report(word.interest(), word.has(REPORTED), word.has(ALIVE))
        } else {
            word.wanted(answer.facts)
        };
        // These events are news since the packet, like an edge: an earlier hint proves nothing.
        let news = u64::from(events.bits()) & DIRECTIONS;
        (word.without(PENDING).expecting(events).with(news << EDGES_SHIFT), Some(events))
    }

    /// Applies an answer with more than readiness. Returns the ready directions.
    #[cold]
    fn knowing_rare(self, answer: Answer) -> (Self, u64) {
        let facts = answer.facts;
        if answer.is_fresh() {
            return (self.without(HALF_CLOSED).with(RECHECK), 0);
        }
        let mut word = if facts.reports_life() { self.with(ALIVE) } else { self };
        if facts.has(Facts::RDHUP) && !answer.is_own_end {
            word = word.with(HALF_CLOSED);
        }
        if !facts.any(Facts::ERR | Facts::HUP | Facts::URGENT) {
            word = word.without(RECHECK);
        }
        let is_empty = answer.is_own_end && answer.unread == Some(0);
        let unready = if is_empty { Facts::IN.directions() } else { 0 };
        (word, (facts.directions() & !unready).into())
    }

    /// Notes that a packet has reported `events`.
    #[inline]
    pub(super) fn having_reported(self, events: Events) -> Self {
        // The edges of a level-triggered registration only serve to disprove a hint about this
        // packet. Those of an edge-triggered registration are news until a packet reports them.
        let asked = u64::from(self.interest().bits());
        let news = if self.has(EDGE) { asked & DIRECTIONS } else { DIRECTIONS };
        let reported = u64::from(events.bits());
        let mut word = self.without(PENDING | news << EDGES_SHIFT | reported << ALSO_SHIFT & ALSO);
        if reported & asked == 0 && reported != 0 {
            word = word.with(REPORTED);
        }
        // Without a pending event, there was no check.
        let was_checked = self.has(PENDING) && self.has(RECHECK);
        if was_checked { word.having_reported_rare(events) } else { word }
    }

    /// If the last check found a stream that was connected or listening and is fresh again, this
    /// packet has reported its end. From here on, the stream counts as unused.
    #[cold]
    fn having_reported_rare(self, events: Events) -> Self {
        let is_fresh = !self.has(READY | HALF_CLOSED) && !events.is_err();
        if is_fresh { self.without(ALIVE) } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ENABLED, Mode};
    use super::*;
    use crate::state::facts::DescriptorKind;

    const STREAM: Option<DescriptorKind> = Some(DescriptorKind::Stream);

    /// An enabled slot with this interest.
    fn enabled(interest: Interest) -> Word {
        let mode = Mode { interest, edge: false, one_shot: false };
        Word(ENABLED).with_mode(mode)
    }

    #[test]
    fn a_hang_up_is_no_sign_of_life() {
        let word = enabled(Interest::OUT).with(QUEUED);
        // A connecting stream shows nothing, and an unconnected one a hang-up.
        for silent in [Facts::NONE, Facts::OUT | Facts::HUP, Facts::IN | Facts::HUP] {
            let answer = Answer { kind: STREAM, ..silent.into() };
            assert!(!word.knowing(answer).0.has(ALIVE), "{silent:?}");
        }
        assert!(!word.noting(Facts::OUT | Facts::HUP).has(ALIVE));
        assert!(word.knowing(Facts::OUT.into()).0.has(ALIVE));
        assert!(word.noting(Facts::IN).has(ALIVE));
    }

    #[test]
    fn a_stream_that_is_fresh_again_is_reported_once() {
        let fresh = Facts::OUT | Facts::HUP;
        let answer = Answer { kind: STREAM, unread: Some(0), ..fresh.into() };
        let (found, events) = enabled(Interest::IN).with(ALIVE).knowing(answer);
        assert_eq!(events, Some(Events::IN));
        let again = found.recalling(0);
        assert!(again.has(UNCHECKED));
        assert_eq!(again.asking().knowing(answer).1, Some(Events::IN), "it was not reported");
        let reported = found.having_reported(Events::IN);
        assert_eq!(reported.knowing(answer).1, Some(Events::NONE));
    }

    #[test]
    fn an_error_of_a_connection_with_no_room_leaves_it_alive() {
        // For example, the socket's error queue: no other fact holds.
        let live = enabled(Interest::OUT).with(ALIVE).noting(Facts::ERR);
        let (failed, events) = live.asking().knowing(Facts::ERR.into());
        assert_eq!(events, Some(Events::ERR));
        let reported = failed.having_reported(Events::ERR);
        assert!(reported.has(ALIVE) && reported.has(REPORTED));
    }

    #[test]
    fn the_own_end_is_asked_about_until_the_peer_has_ended() {
        let word = enabled(Interest::IN);
        let facts = Facts::IN | Facts::OUT | Facts::RDHUP;
        let own = Answer { unread: Some(0), is_own_end: true, ..facts.into() };
        let (own, events) = word.knowing(own);
        assert_eq!(events, Some(Events::NONE));
        assert!(!own.is_half_closed());
        // An edge with the same facts may come from the peer.
        assert!(own.noting(facts).has(RECHECK));
        let (ended, events) = word.knowing(facts.into());
        assert_eq!(events, Some(Events::IN));
        assert!(ended.is_half_closed());
    }

    #[test]
    fn an_edge_that_overtakes_an_answer_makes_the_check_be_repeated() {
        let asked = enabled(Interest::IN).with(QUEUED).asking();
        let (word, events) = asked.noting(Facts::IN).knowing(Facts::NONE.into());
        assert!(events.is_none() && word.has(UNCHECKED));
        assert_eq!(word.asking().knowing(Facts::NONE.into()).1, Some(Events::NONE));
        assert!(asked.noting(Facts::ERR).knowing(Facts::NONE.into()).1.is_none());
        // The filter does not ask for OUT, so the answer may be older than that edge.
        let (word, events) = asked.noting(Facts::OUT).knowing(Facts::NONE.into());
        assert_eq!(events, Some(Events::NONE));
        assert!(word.with_mode(Mode { interest: Interest::OUT, ..word.mode() }).is_ready());
    }

    #[test]
    fn an_edge_since_the_packet_proves_a_hint_wrong() {
        let taken = enabled(Interest::IN).noting(Facts::IN).having_reported(Events::IN);
        assert!(taken.is_ready(), "no handler has drained it");
        assert!(!taken.dried(Drained::READ).is_ready());
        assert!(taken.dried(Drained::WRITE).is_ready());
        assert!(taken.noting(Facts::IN).dried(Drained::READ).is_ready());
        let checked = taken.asking().knowing(Facts::IN.into()).0;
        assert!(checked.dried(Drained::READ).is_ready(), "a check has found it again");
    }

    #[test]
    fn an_edge_is_checked_if_the_slot_was_armed_since_its_poll_began() {
        let word = enabled(Interest::IN).armed(300);
        let unchecked = |poll, newest: u32| {
            word.noting(Facts::IN).weighing(Facts::IN, poll, || newest).has(UNCHECKED)
        };
        assert!(!unchecked(301, 301) && !unchecked(301, 310));
        assert!(unchecked(300, 300) && unchecked(299, 300) && unchecked(290, 305));
        assert!(unchecked(300 + POLLS, 300 + POLLS), "the numbers come round again");
    }

    #[test]
    fn an_edge_answers_no_question_that_was_not_asked_yet() {
        for edge in [false, true] {
            let word = enabled(Interest::IN).with(QUEUED | UNCHECKED);
            let word = word.with_mode(Mode { edge, ..word.mode() }).armed(300).with(UNCHECKED);
            let answered = word.answered(301, 302).expect("it was armed before the poll began");
            assert!(!answered.has(UNCHECKED));
            assert!(word.answered(300, 300).is_none() && word.answered(299, 305).is_none());
        }
    }
}
