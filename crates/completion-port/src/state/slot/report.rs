//! What a packet reports: a pure function from the kernel's answer, the event filter and the known
//! state of the socket to [`Events`].
//!
//! This module imports neither the word nor any other module of this folder.

use crate::state::facts::{DescriptorKind, Facts};
use crate::types::interest::{Events, Interest};

/// The kernel's answer to a check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// The facts that hold.
    pub(crate) facts: Facts,
    /// The kind of the descriptor. `None` if the check did not ask.
    pub(crate) kind: Option<DescriptorKind>,
    /// How many bytes can be read. `None` if unknown, or if the check did not ask.
    pub(crate) unread: Option<usize>,
    /// The facts show an end, but it is this process that shut one half. The peer's half is open.
    pub(crate) is_own_end: bool,
    /// The stream has failed and is hung up, but was connected before.
    pub(crate) was_connected: bool,
    /// The answer is an edge from a one-shot reactor. The slot keeps nothing of it that would save
    /// a later question.
    pub(crate) is_edge: bool,
}

impl From<Facts> for Answer {
    /// Makes an answer that contains only the facts.
    fn from(facts: Facts) -> Self {
        Self {
            facts,
            kind: None,
            unread: None,
            is_own_end: false,
            was_connected: false,
            is_edge: false,
        }
    }
}

/// Returns whether these facts are those of a stream socket that was never connected: hung up,
/// although neither half was shut.
fn looks_fresh(facts: Facts) -> bool {
    facts.has(Facts::HUP) && !facts.any(Facts::RDHUP | Facts::ERR | Facts::IN)
}

/// Returns whether the meaning of `facts` depends on the kind of descriptor.
pub(crate) fn depends_on_kind(interest: Interest, facts: Facts) -> bool {
    let ended = facts.any(Facts::HUP | Facts::RDHUP);
    let is_reported = interest.contains(Interest::HANGUP) || interest == Interest::NONE;
    looks_fresh(facts) || (ended && is_reported)
}

/// Returns whether the meaning of `facts` for `interest` depends on the number of unread bytes.
pub(crate) fn depends_on_unread(interest: Interest, facts: Facts) -> bool {
    interest.contains(Interest::IN | Interest::HANGUP) && facts.any(Facts::HUP | Facts::RDHUP)
}

impl Answer {
    /// Returns whether this is the state of a stream socket that is not connected, and never was or
    /// no longer is.
    pub(super) fn is_fresh(self) -> bool {
        looks_fresh(self.facts) && self.kind.is_some_and(DescriptorKind::is_connected)
    }

    /// Returns what a packet reports to a registration with this `interest`. `is_reported`: a
    /// packet has already reported events that the registration did not ask for. `is_alive`: the
    /// socket was seen connected or listening.
    pub(super) fn report(self, interest: Interest, is_reported: bool, is_alive: bool) -> Events {
        let Self { facts, kind, unread, is_own_end, .. } = self;
        if self.is_fresh() && !is_alive {
            return Events::NONE;
        }
        let hung_up = facts.has(Facts::HUP);
        let ended = (hung_up || facts.has(Facts::RDHUP))
            && kind != Some(DescriptorKind::Datagram)
            && !is_own_end;
        let end = if hung_up { Events::HANGUP | Events::WRITE_CLOSED } else { Events::HANGUP };
        let failed = facts.has(Facts::ERR);
        let mut asked = Events::NONE;
        if ended && interest.contains(Interest::HANGUP) {
            asked |= end;
        }
        if interest.contains(Interest::IN) && (facts.has(Facts::IN) || hung_up) {
            // At the end of a stream, a read returns immediately. A registration with HANGUP learns
            // of the end from that event, so IN then means data only. IN also means data only after
            // this process has shut its reading half.
            let is_data = if is_own_end {
                unread.is_some_and(|unread| unread > 0)
            } else {
                // An empty record does not count as unread bytes.
                !asked.is_hangup() || unread != Some(0) || kind == Some(DescriptorKind::Records)
            };
            if is_data {
                asked |= Events::IN;
            }
        }
        // A refused connect looks like a connection that was reset.
        let is_refused = failed && hung_up && !is_alive;
        if interest.contains(Interest::OUT) && (facts.has(Facts::OUT) || hung_up) && !is_refused {
            asked |= Events::OUT;
        }
        let unasked = if failed {
            Events::ERR
        } else if hung_up && ended && interest == Interest::NONE {
            end
        } else {
            Events::NONE
        };
        if asked.is_empty() && is_reported { Events::NONE } else { asked | unasked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_told_from_a_refused_connect_by_what_was_seen_before() {
        let all = Facts::IN | Facts::OUT | Facts::RDHUP | Facts::HUP | Facts::ERR;
        let reset = Answer { kind: Some(DescriptorKind::Stream), unread: Some(0), ..all.into() };
        for interest in [Interest::OUT, Interest::IN | Interest::OUT, Interest::ALL] {
            let refused = reset.report(interest, false, false);
            assert_eq!(reset.report(interest, false, true), refused | Events::OUT);
            assert!(refused.is_err() && !refused.is_out());
        }
    }

    #[test]
    fn what_is_only_readiness_is_reported_as_far_as_it_was_asked_for() {
        let both = Answer::from(Facts::IN | Facts::OUT);
        for is_reported in [false, true] {
            assert_eq!(both.report(Interest::IN | Interest::HANGUP, is_reported, true), Events::IN);
            assert_eq!(both.report(Interest::OUT, is_reported, true), Events::OUT);
            assert_eq!(both.report(Interest::NONE, is_reported, true), Events::NONE);
        }
    }

    #[test]
    fn what_was_not_asked_for_is_reported_once() {
        let error = Answer::from(Facts::ERR);
        assert_eq!(error.report(Interest::IN, false, true), Events::ERR);
        assert_eq!(error.report(Interest::IN, true, true), Events::NONE);
        let with_data = Answer::from(Facts::ERR | Facts::IN);
        assert_eq!(with_data.report(Interest::IN, true, true), Events::IN | Events::ERR);
        let end = Answer {
            kind: Some(DescriptorKind::Stream),
            ..(Facts::IN | Facts::OUT | Facts::HUP).into()
        };
        let gone = Events::HANGUP | Events::WRITE_CLOSED;
        assert_eq!(end.report(Interest::NONE, false, true), gone);
        assert_eq!(end.report(Interest::NONE, true, true), Events::NONE);
    }

    #[test]
    fn the_end_of_records_may_stand_behind_an_empty_one() {
        let ends = Facts::IN | Facts::RDHUP;
        for unread in [Some(0), Some(1), None] {
            let answer = Answer { kind: Some(DescriptorKind::Records), unread, ..ends.into() };
            let report = answer.report(Interest::IN | Interest::HANGUP, false, true);
            assert_eq!(report, Events::IN | Events::HANGUP);
            assert_eq!(answer.report(Interest::HANGUP, false, true), Events::HANGUP);
        }
    }

    #[test]
    fn with_hangup_in_means_data() {
        let (kind, ends) = (Some(DescriptorKind::Stream), Facts::IN | Facts::RDHUP);
        for (unread, expected) in
            [(Some(0), Events::HANGUP), (Some(1), Events::IN | Events::HANGUP)]
        {
            let answer = Answer { kind, unread, ..ends.into() };
            assert_eq!(answer.report(Interest::IN | Interest::HANGUP, false, true), expected);
            assert_eq!(answer.report(Interest::IN, false, true), Events::IN);
            // The end of this process's own reading half is not an end of the peer.
            let own = Answer { is_own_end: true, ..answer };
            assert_eq!(own.report(Interest::ALL, false, true), expected - Events::HANGUP);
        }
    }
}
