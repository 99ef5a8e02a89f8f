//! What the kernel's answers mean: those of a probe, and the edges of a one-shot reactor, which are answers too.

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

/// How long a one-shot reactor watches for what a slot asks for. For an edge-triggered registration
/// it reports each change.
pub(super) fn until(word: Word) -> Until {
    let Mode { edge, one_shot, .. } = word.mode();
    if word.is_lasting() || (edge && !one_shot) { Until::Detached } else { Until::Edge }
}

impl Registry {
    /// Notes the kernel's answer about a slot. The caller owns the node.
    pub(in crate::engine) fn answer(&self, node: Node, facts: Facts) -> Checked {
        let slot = self.slot(node);
        let word = slot.word();
        let name = name_of(node, word.generation());
        if facts.has(Facts::CLOSED) {
            // The registration may have been removed meanwhile. The node's turn tells.
            slot.retire(word.generation());
            return Checked::Hot;
        }
        let descriptor = slot.descriptor();
        let answer = if facts.any(Facts::RARE) {
            self.ask_more(descriptor, word, facts)
        } else {
            facts.into()
        };
        let checked = slot.check(Answer { is_edge: self.is_one_shot(), ..answer });
        if checked == Checked::Nothing {
            self.revalidate_given_back(node);
        }
        if checked == Checked::Hot && word.is_borrowed() && !word.is_removing() {
            let watches = || self.backend().watches(descriptor);
            if !self.backend().descriptors().holds(descriptor, self.number(), name, watches) {
                // The number was closed and given out again: the answer is about another file.
                slot.retire(word.generation());
            }
        }
        checked
    }

    /// Asks what else must be known where the facts about `descriptor` say more than readiness, and
    /// are ambiguous.
    #[cold]
    fn ask_more(&self, descriptor: Descriptor, word: Word, facts: Facts) -> Answer {
        let interest = word.interest();
        // Once the peer is known to have ended the stream, that stays so.
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
        // A reset looks like a refused connect to a port that has not seen the connection.
        let failed = facts.has(Facts::ERR | Facts::HUP) && interest.contains(Interest::OUT);
        let was_connected = failed && !word.is_alive() && self.backend().was_connected(descriptor);
        Answer { facts, kind, unread, is_own_end, was_connected, is_edge: false }
    }

    /// Whether an edge reports a change of the kernel's own state, which no check would report again.
    #[inline]
    pub(in crate::engine) fn is_change(&self, slot: &Slot, facts: Facts) -> bool {
        facts.may_be_change() && self.backend().reports_changes(slot.descriptor())
    }

    /// An edge has reported such a change. The caller owns the node. A registration for IN hears that the file can be read
    /// again, any other one of an error, if the kernel calls it that.
    #[cold]
    pub(in crate::engine) fn answer_change(&self, node: Node, facts: Facts) -> Checked {
        let slot = self.slot(node);
        slot.begin_check();
        let reads = slot.word().interest().contains(Interest::IN);
        self.answer(node, facts.of_change(reads))
    }

    /// A one-shot reactor has reported more than readiness, or something that may be older than the
    /// arming. The caller owns the node. The edge is the answer to the question, unless it is older
    /// than that, or the slot was armed again since the poll began: the reactor has not been asked for that arming yet.
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
        // What holds is nothing to report, and the reactor would report it again at once. So it is
        // asked for changes only.
        if checked == Checked::Nothing && slot.make_lasting(word.generation()) {
            let name = name_of(node, word.generation());
            if !self.want(slot, name) {
                return Checked::Hot;
            }
        }
        checked
    }

    /// Makes sure that the kernel watches for what the operations of a slot wait for. False if its descriptor turns out
    /// to be closed: the caller ends them.
    #[inline(never)]
    pub(in crate::engine) fn watch_queues(&self, name: Name, slot: &Slot) -> bool {
        let Some(entry) = self.entry(name_parts(name).0) else { return true };
        let descriptor = slot.descriptor();
        let watching = self.set.read().unwrap_or_else(PoisonError::into_inner);
        // Under the number's lock, so that of two threads the later one asks for what both want.
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
                // It tells of each change from then on.
                Some(None) => return true,
                Some(Some(wanted)) => (wanted, true),
                None => (wanted, false),
            };
            let until = match until(word) {
                _ if is_lasting => Until::Detached,
                // The end would be told at once, again and again, and sends go on behind it. A registration that is
                // enabled has to hear of it.
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

    /// Whether the number of a registration names what was registered, as far as `want` would not find out.
    fn is_same(&self, descriptor: Descriptor, word: Word) -> bool {
        self.backend().notices_reuse() || !word.is_borrowed() || self.backend().watches(descriptor)
    }

    /// Has a one-shot reactor watch for what a registration asks for. False if its descriptor turned out to be
    /// closed, and the caller owns the node.
    pub(in crate::engine) fn want(&self, slot: &Slot, name: Name) -> bool {
        let _watching = self.set.read().unwrap_or_else(PoisonError::into_inner);
        let descriptor = slot.descriptor();
        // Under the number's lock: the thread that comes last hands the reactor what the slot asks
        // for by then.
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
