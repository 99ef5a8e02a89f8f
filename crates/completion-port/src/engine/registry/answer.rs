//! What the kernel's answers mean. An answer is the result of a probe, or an edge of a one-shot
//! reactor.

use std::sync::PoisonError;

use super::Registry;
use crate::backend::reactor::Until;
use crate::engine::context::{Name, name_of, name_parts};
use crate::state::facts::{AtEnd, Facts};
use crate::state::queue::Node;
use crate::state::slot::{
    Answer, Checked, Removal, Slot, Word, depends_on_kind, depends_on_unread,
};
use crate::types::interest::{Interest, Mode};
use crate::types::source::Descriptor;

/// Returns how long a one-shot reactor watches for what a slot asks for.
///
/// For an edge-triggered registration it reports each change.
pub(super) fn until(word: Word) -> Until {
    let Mode { edge, one_shot, .. } = word.mode();
    if word.is_lasting() || (edge && !one_shot) { Until::Detached } else { Until::Edge }
}

impl Registry {
    /// Stores the kernel's answer about a slot. The caller owns the node.
    pub(in crate::engine) fn answer(&self, node: Node, facts: Facts) -> Checked {
        let slot = self.slot(node);
        let word = slot.word();
        let name = name_of(node, word.generation());
        if facts.has(Facts::CLOSED) {
            // The registration may have been removed meanwhile. The node's turn finds that out.
            slot.retire(word.generation());
            return Checked::Hot;
        }
        let descriptor = slot.descriptor();
        let is_rare = facts.any(Facts::RARE);
        let answer = if is_rare {
            let Some(answer) = self.ask_more(descriptor, name, word, facts) else {
                slot.retire(word.generation());
                return Checked::Hot;
            };
            answer
        } else {
            facts.into()
        };
        let checked = slot.check(Answer { is_edge: self.is_one_shot(), ..answer });
        if checked == Checked::Nothing {
            self.revalidate_returned(node);
        }
        // `ask_more` has made sure of that already.
        if checked == Checked::Hot && !is_rare && word.is_borrowed() && !word.is_removing() {
            let watches = || self.backend().watches(descriptor);
            if !self.backend().descriptors().holds(descriptor, self.number(), name, watches) {
                // The number was closed and reused, so the answer is about another file.
                slot.retire(word.generation());
            }
        }
        checked
    }

    /// Asks the kernel what else it takes to interpret facts that report more than readiness.
    ///
    /// Under the number's lock: until it is released, no other thread can return the descriptor to
    /// the program. Otherwise the questions could reach the file that has the number next, and one
    /// of them takes a pending error. `None`: the registration has lost its descriptor.
    #[cold]
    pub(crate) fn ask_more(
        &self,
        descriptor: Descriptor,
        name: Name,
        word: Word,
        facts: Facts,
    ) -> Option<Answer> {
        let mut answer = None;
        let ask = || {
            // A program can close a borrowed descriptor at any time.
            let is_there = !word.is_borrowed() || self.backend().watches(descriptor);
            answer = is_there.then(|| self.ask_about(descriptor, word, facts));
            is_there
        };
        self.backend().descriptors().holds(descriptor, self.number(), name, ask);
        answer
    }

    fn ask_about(&self, descriptor: Descriptor, word: Word, facts: Facts) -> Answer {
        let interest = word.interest();
        // Once the peer has ended the stream, that does not change.
        let may_be_own = facts.has(Facts::RDHUP) && !word.is_half_closed();
        let is_own_end = may_be_own && self.backend().is_own_end(descriptor);
        let kind = depends_on_kind(interest, facts).then(|| self.backend().kind(descriptor));
        let asks_unread = is_own_end || depends_on_unread(interest, facts);
        let end = match is_own_end {
            _ if facts.has(Facts::ERR) => AtEnd::Failed,
            true => AtEnd::Own,
            false => AtEnd::Peer,
        };
        let unread = asks_unread.then(|| self.backend().unread(descriptor, end)).flatten();
        // If the port has not seen the connection, a reset looks like a refused connect.
        let failed = facts.has(Facts::ERR | Facts::HUP) && interest.contains(Interest::OUT);
        let was_connected = failed && !word.is_alive() && self.backend().was_connected(descriptor);
        Answer { facts, kind, unread, is_own_end, was_connected, is_edge: false }
    }

    /// Whether an edge reports a change of the kernel's own state. No check would report it again.
    #[inline]
    pub(in crate::engine) fn is_change(&self, slot: &Slot, facts: Facts) -> bool {
        facts.may_be_change() && self.backend().reports_changes(slot.descriptor())
    }

    /// Stores a change of the kernel's own state that an edge has reported.
    ///
    /// The caller owns the node. A registration for IN reports that the file is readable again. Any
    /// other registration reports an error, if the kernel calls it one.
    #[cold]
    pub(in crate::engine) fn answer_change(&self, node: Node, facts: Facts) -> Checked {
        let slot = self.slot(node);
        slot.begin_check();
        let reads = slot.word().interest().contains(Interest::IN);
        self.answer(node, facts.of_change(reads))
    }

    /// Takes an edge of a one-shot reactor as the answer to a check. The caller owns the node.
    ///
    /// The edge has reported more than readiness, or may be older than the arming. It is no answer
    /// if it is older than the question, or if the slot was armed again since the poll began: the
    /// reactor has not been asked for that arming yet.
    #[cold]
    pub(in crate::engine) fn answer_by_edge(
        &self,
        node: Node,
        facts: Facts,
        poll: u32,
        newest: u32,
    ) -> Checked {
        let slot = self.slot(node);
        if !slot.begin_answer(poll, newest) {
            return Checked::Again;
        }
        let word = slot.word();
        let checked = self.answer(node, facts);
        // There is nothing to report, but the reactor would send the same edge again immediately.
        // So ask for changes only.
        if checked == Checked::Nothing && slot.make_lasting(word.generation()) {
            let name = name_of(node, word.generation());
            if !self.want(slot, name) {
                return Checked::Hot;
            }
        }
        checked
    }

    /// Makes sure that the kernel watches for what the operations of a slot are waiting for.
    ///
    /// False if its descriptor turns out to be closed: the caller ends the operations.
    #[inline(never)]
    pub(in crate::engine) fn watch_queues(&self, name: Name, slot: &Slot) -> bool {
        let Some(entry) = self.entry(name_parts(name).0) else { return true };
        let descriptor = slot.descriptor();
        let watching = self.set.read().unwrap_or_else(PoisonError::into_inner);
        // Under the number's lock, so that the later of two threads asks for what both need.
        let watch = || {
            let blocked = entry.lock().blocked();
            let word = slot.word();
            let blocked = blocked | word.waits_alone();
            let wanted = if self.is_one_shot() {
                Some(blocked | word.armed_directions()).filter(|wanted| *wanted != Facts::NONE)
            } else {
                word.unwatched(blocked)
            };
            let Some(wanted) = wanted else { return true };
            let lasting = if self.is_one_shot() { entry.to_watch_lastingly(wanted) } else { None };
            let (wanted, is_lasting) = match lasting {
                // The reactor reports each change already.
                Some(None) => return true,
                Some(Some(wanted)) => (wanted, true),
                None => (wanted, false),
            };
            let until = match until(word) {
                _ if is_lasting => Until::Detached,
                // `Room`, since the reactor would report the peer's end over and over, and sends
                // still work after it. An enabled registration has to report the end.
                Until::Edge if blocked == Facts::OUT && !word.is_enabled() => Until::Room,
                until => until,
            };
            let is_watched = self.is_same(descriptor, word)
                && self.backend().want(descriptor, name, wanted, until).is_ok();
            if is_watched && !self.is_one_shot() {
                slot.watch(wanted);
            }
            if is_watched && is_lasting {
                entry.watch_lastingly(wanted);
            }
            is_watched
        };
        let is_there = self.backend().descriptors().holds(descriptor, self.number(), name, watch);
        drop(watching);
        is_there
    }

    /// Whether the descriptor still names what was registered. Left to `want`, if that notices.
    fn is_same(&self, descriptor: Descriptor, word: Word) -> bool {
        self.backend().notices_reuse() || !word.is_borrowed() || self.backend().watches(descriptor)
    }

    /// Asks a one-shot reactor to watch for what a registration needs.
    ///
    /// False if its descriptor turned out to be closed and the caller owns the node.
    pub(in crate::engine) fn want(&self, slot: &Slot, name: Name) -> bool {
        let _watching = self.set.read().unwrap_or_else(PoisonError::into_inner);
        let descriptor = slot.descriptor();
        // Under the number's lock, so that the thread that comes last asks for what the slot needs
        // by then.
        let want = || {
            let word = slot.word();
            if let Some(entry) = self.entry(name_parts(name).0) {
                entry.watch_briefly();
            }
            self.is_same(descriptor, word)
                && self
                    .backend()
                    .want(descriptor, name, word.wanted_directions(), until(word))
                    .is_ok()
        };
        let is_there = self.backend().descriptors().holds(descriptor, self.number(), name, want);
        is_there || slot.retire(name_parts(name).1) != Removal::Owned
    }
}
