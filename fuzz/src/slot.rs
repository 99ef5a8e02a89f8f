//! Interprets bytes as the history of one slot: actions of the kernel, handlers, requests and the
//! slot's turn, one after another.
//!
//! A model of the table of owners in docs/design/SLOT.md, and of the bits in
//! docs/design/OPERATIONS.md, predicts the answer of each transition and the word after it. This code
//! sees only the dump of the word.

use crate::reader::Reader;
use crate::state::facts::Facts;
use crate::state::slot::{
    Answer, Checked, Delivery, Drained, Expiry, GENERATIONS, NodeTurn, Refusal, Removal, Slot,
    SlotStep,
};
use crate::types::interest::Mode;
use crate::types::interest::{Events, Interest};

/// Where the node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    /// The slot is free.
    Free,
    /// It has no owner, and the key rests in its cell.
    Rests,
    /// A thread owns it, or the queue; its turn comes.
    Queued,
    /// Its owner has asked the kernel.
    Asked,
    /// Its owner clones the key.
    Cloning,
    /// The token has it.
    Held,
    /// An operation has it, which the token has started and which is in its operation queue.
    Lent,
    /// A lone operation has it, which waits.
    Alone,
    /// The same, and the operation's own node is with a thread.
    Due,
    /// The thread that has detected an expired deadline has it.
    Expired,
}

#[derive(Debug)]
struct Model {
    slot: Slot,
    node: Node,
    generation: u32,
    /// Of the newest poll.
    poll: u32,
    enabled: bool,
    /// Events requested in addition to the filter and not reported yet; empty unless it is enabled
    /// or held.
    also: Interest,
    removing: bool,
    closed: bool,
    /// A thread waits for the key.
    collected: bool,
    /// Operations share the key.
    shared: bool,
    /// They are in flight: in, out. So is that of a token.
    flying: [bool; 2],
    /// The arming has a deadline, which has passed.
    timed: bool,
    late: bool,
    /// The handler has asked for the packet that is due.
    again: bool,
}

const DIRECTIONS: [Facts; 2] = [Facts::IN, Facts::OUT];

/// Plays the history.
pub fn run(data: &[u8]) {
    let mut bytes = Reader::new(data);
    let mut model = Model {
        slot: Slot::default(),
        node: Node::Free,
        generation: 0,
        poll: u32::MAX - 3,
        enabled: false,
        also: Interest::NONE,
        removing: false,
        closed: false,
        collected: false,
        shared: false,
        flying: [false; 2],
        timed: false,
        late: false,
        again: false,
    };
    model.slot.begin_with(0);
    while !bytes.is_at_the_end() {
        model.step(&mut bytes);
        model.check();
    }
}

fn mode(bytes: &mut Reader<'_>) -> Mode {
    let bits = bytes.byte();
    Mode {
        interest: Interest::from_bits(bits & 0b111),
        edge: bits & 8 != 0,
        one_shot: bits & 16 != 0,
    }
}

fn facts(bytes: &mut Reader<'_>) -> Facts {
    let all = [Facts::IN, Facts::OUT, Facts::RDHUP, Facts::HUP, Facts::ERR, Facts::URGENT];
    let bits = bytes.byte();
    let chosen = (0..all.len()).filter(|bit| bits & 1 << bit != 0);
    chosen.fold(Facts::NONE, |facts, bit| facts | all[bit])
}

fn drained(bytes: &mut Reader<'_>) -> Drained {
    bytes.one_of(&[Drained::NONE, Drained::READ, Drained::WRITE])
}

impl Model {
    fn step(&mut self, bytes: &mut Reader<'_>) {
        match bytes.byte() % 25 {
            // Anything may happen at any time,
            0 | 1 => self.deliver(bytes),
            2 => self.poll = self.poll.wrapping_add(1 + u32::from(bytes.byte() % 140)),
            3 => self.enable(bytes),
            4 => self.disable(bytes),
            5 => self.remove(bytes),
            6 => self.retire(bytes),
            7 => self.collect(bytes),
            8 => self.stop_collecting(bytes),
            9 => self.enable_also(bytes),
            10 => self.share(bytes),
            11 => self.drop_ref(bytes),
            12 => self.complete_last(),
            13 => self.expire(),
            14 => self.claim_alone(),
            // except for the actions of the owner of the node.
            _ => match self.node {
                Node::Free => self.register(bytes),
                Node::Rests => {}
                Node::Queued => self.take_turn(bytes),
                Node::Asked => self.answer(bytes),
                Node::Cloning => self.clone_key(bytes),
                Node::Held if bytes.byte().is_multiple_of(3) => self.lend(bytes),
                Node::Held => self.release(bytes),
                Node::Lent => self.complete(bytes),
                Node::Alone => {}
                Node::Due => self.try_alone(bytes),
                Node::Expired => self.tell_expired(bytes),
            },
        }
    }

    /// The registration's generation, or now and then another one.
    fn named(&self, bytes: &mut Reader<'_>) -> (u32, bool) {
        let is_stale = bytes.byte() % 16 == 15;
        let generation = self.generation.wrapping_sub(u32::from(is_stale)) & (GENERATIONS - 1);
        (generation, self.node != Node::Free && !is_stale)
    }

    fn admits(&self, is_named: bool) -> Result<(), Refusal> {
        if !is_named || self.closed {
            Err(Refusal::NotRegistered)
        } else if self.removing {
            Err(Refusal::Removing)
        } else {
            Ok(())
        }
    }

    fn free(&mut self) {
        self.slot.free();
        self.generation += 1;
        self.node = Node::Free;
        self.also = Interest::NONE;
        [self.enabled, self.removing, self.closed, self.collected] = [false; 4];
        [self.timed, self.late, self.again] = [false; 3];
    }

    /// The key is with a handler, or with an operation that its token has started.
    fn is_away(&self) -> bool {
        matches!(self.node, Node::Held | Node::Lent | Node::Alone | Node::Due)
    }

    /// The caller owns the node of a resting slot if `next` has it.
    fn follow(&mut self, next: SlotStep) {
        match next {
            SlotStep::Nothing => {}
            SlotStep::Queue | SlotStep::Recheck => {
                assert_eq!(self.node, Node::Rests, "the node has two owners");
                self.node = Node::Queued;
            }
            SlotStep::Collect | SlotStep::Gone | SlotStep::Idle => {
                panic!("{next:?} is the token's or the turn's")
            }
        }
    }

    // ---- what happens at any time ----

    fn deliver(&mut self, bytes: &mut Reader<'_>) {
        let (generation, is_named) = self.named(bytes);
        let facts = facts(bytes);
        let newest = self.poll;
        let poll = newest.wrapping_sub(u32::from(bytes.byte() % 4));
        let word = self.slot.word();
        if bytes.choice() && self.slot.queue(generation, facts, poll, || newest) {
            assert!(is_named && self.enabled);
            self.follow(SlotStep::Queue);
            return;
        }
        match self.slot.deliver(generation, facts, poll, || newest) {
            Delivery::Stale => assert!(!is_named),
            Delivery::Due => {
                assert!(is_named);
                assert_eq!(self.node, Node::Alone, "the node has two owners");
                assert_ne!(self.concerned(facts), Facts::NONE);
                self.node = Node::Due;
            }
            Delivery::NotifyOps(next, concerned) => {
                assert!(is_named);
                assert_eq!(concerned, self.concerned(facts));
                self.follow(next);
            }
            Delivery::Noted(next) if self.node == Node::Due => {
                assert!(is_named);
                assert_eq!(next, SlotStep::Nothing);
            }
            Delivery::Noted(next) => {
                assert!(is_named);
                assert_eq!(
                    self.concerned(facts),
                    Facts::NONE,
                    "an edge does not reach the flights"
                );
                let interest = word.interest();
                let is_wanted = facts.any(Facts::IN) && interest.contains(Interest::IN)
                    || facts.any(Facts::OUT) && interest.contains(Interest::OUT);
                if self.enabled && self.node == Node::Rests && is_wanted {
                    assert_ne!(next, SlotStep::Nothing, "an edge is lost");
                }
                self.follow(next);
            }
        }
    }

    fn enable(&mut self, bytes: &mut Reader<'_>) {
        let (generation, is_named) = self.named(bytes);
        let (mode, drained) = (mode(bytes), drained(bytes));
        let may_be_shared = mode.one_shot && !self.slot.word().mode().one_shot;
        let mut done = self.slot.enable(generation, mode, || drained, self.poll);
        if done == Err(Refusal::Shared) && !self.shared && bytes.choice() {
            // The engine knows that it is not.
            done = self.slot.enable_unshared(generation, mode, || drained, self.poll);
            assert_ne!(done, Err(Refusal::Shared));
        }
        match self.admits(is_named) {
            Ok(()) if self.is_away() => assert_eq!(done, Err(Refusal::Held)),
            Ok(()) if done == Err(Refusal::Shared) => assert!(may_be_shared),
            Ok(()) => {
                [self.enabled, self.timed, self.late] = [true, false, false];
                self.follow(done.expect("nothing is against it"));
            }
            Err(refusal) => assert_eq!(done, Err(refusal)),
        }
    }

    fn enable_also(&mut self, bytes: &mut Reader<'_>) {
        let (generation, is_named) = self.named(bytes);
        let interest = Interest::from_bits(bytes.byte() & 0b111);
        let done = self.slot.enable_also(generation, interest, self.poll);
        if let Err(refusal) = self.admits(is_named) {
            assert_eq!(done, Err(refusal));
            return;
        }
        let next = done.expect("nothing is against it");
        if self.is_away() || interest.is_empty() {
            assert_eq!(next, SlotStep::Nothing);
        }
        self.also |= interest;
        if !self.is_away() && !interest.is_empty() {
            if !self.enabled {
                // A new arming. A deadline of the former one is of no account.
                [self.timed, self.late] = [false; 2];
            }
            self.enabled = true;
        }
        self.follow(next);
    }

    /// A packet has reported `events`.
    fn report(&mut self, events: Events) {
        self.also = self.also - Interest::from_bits(events.bits() & 0b111);
    }

    fn disable(&mut self, bytes: &mut Reader<'_>) {
        let (generation, is_named) = self.named(bytes);
        let admitted = self.admits(is_named);
        assert_eq!(self.slot.disable(generation), admitted);
        self.enabled &= admitted.is_err();
        if admitted.is_ok() && !self.is_away() {
            self.also = Interest::NONE;
            [self.late, self.again] = [false; 2];
        }
    }

    fn remove(&mut self, bytes: &mut Reader<'_>) {
        let (generation, is_named) = self.named(bytes);
        let collects = bytes.choice();
        let done = self.slot.remove(generation, collects);
        match self.admits(is_named) {
            Err(Refusal::Removing) => assert_eq!(done, Ok(Removal::Already)),
            Err(refusal) => assert_eq!(done, Err(refusal)),
            Ok(()) => {
                [self.enabled, self.removing] = [false, true];
                if self.ends(done.expect("nothing is against it")) {
                    if collects {
                        self.free();
                    }
                } else {
                    self.collected = collects;
                }
            }
        }
    }

    fn retire(&mut self, bytes: &mut Reader<'_>) {
        let (generation, is_named) = self.named(bytes);
        let done = self.slot.retire(generation);
        if self.admits(is_named).is_ok() {
            [self.enabled, self.closed] = [false, true];
            self.ends(done);
        } else {
            assert_eq!(done, Removal::Already);
        }
    }

    /// Whether the caller that ends the registration has become the owner of the node.
    fn ends(&mut self, done: Removal) -> bool {
        let rests = self.node == Node::Rests && !self.shared;
        assert_eq!(done, if rests { Removal::Owned } else { Removal::Marked });
        if rests {
            self.node = Node::Queued;
        }
        rests
    }

    /// The thread that waits for the key looks.
    fn collect(&mut self, bytes: &mut Reader<'_>) {
        if !self.collected {
            return;
        }
        let (generation, is_named) = self.named(bytes);
        let done = self.slot.collect(generation);
        if !is_named {
            assert_eq!(done, Some(Err(Refusal::NotRegistered)));
        } else if self.node == Node::Rests && !self.shared {
            assert_eq!(done, Some(Ok(())));
            self.free();
        } else {
            assert_eq!(done, None, "the key has another owner");
        }
    }

    fn stop_collecting(&mut self, bytes: &mut Reader<'_>) {
        let (generation, is_named) = self.named(bytes);
        let is_owned = self.slot.stop_collecting(generation);
        let stops = is_named && self.collected;
        assert_eq!(is_owned, stops && self.node == Node::Rests && !self.shared);
        self.collected &= !stops;
        if is_owned {
            self.node = Node::Queued;
        }
    }

    /// The part of an edge with these facts that concerns operations.
    fn concerned(&self, facts: Facts) -> Facts {
        let concerns = |queue: &usize| {
            self.flying[*queue] && (facts.any(Facts::RARE) || facts.any(DIRECTIONS[*queue]))
        };
        let queues = (0..2).filter(concerns);
        queues.fold(Facts::NONE, |concerned, queue| concerned | DIRECTIONS[queue])
    }

    fn queue(bytes: &mut Reader<'_>) -> usize {
        usize::from(bytes.choice())
    }

    /// Operations of a registration without tokens are started by its name. Or its key goes back to
    /// a token.
    fn share(&mut self, bytes: &mut Reader<'_>) {
        let (generation, is_named) = self.named(bytes);
        let queue = Self::queue(bytes);
        if self.is_away() || self.slot.word().mode().one_shot {
            return;
        }
        if bytes.byte().is_multiple_of(4) {
            let reclaimed = self.slot.reclaim(generation);
            match self.admits(is_named) {
                Ok(()) if self.node == Node::Rests && !self.shared => {
                    assert_eq!(reclaimed, Ok(()));
                    assert!(self.slot.word().mode().one_shot);
                    [self.enabled, self.timed] = [false; 2];
                    self.node = Node::Held;
                }
                Ok(()) => assert_eq!(reclaimed, Err(Refusal::Shared)),
                Err(refusal) => assert_eq!(reclaimed, Err(refusal)),
            }
            return;
        }
        let shared = self.slot.share(generation, DIRECTIONS[queue]);
        match self.admits(is_named) {
            Ok(()) => {
                assert!(shared.is_ok());
                (self.shared, self.flying[queue]) = (true, true);
            }
            Err(refusal) => assert_eq!(shared, Err(refusal)),
        }
    }

    /// The last operation of a direction has ended.
    fn drop_ref(&mut self, bytes: &mut Reader<'_>) {
        let queue = Self::queue(bytes);
        if !std::mem::replace(&mut self.flying[queue], false) {
            return;
        }
        let next = self.slot.drop_ref(DIRECTIONS[queue], self.poll);
        assert!(self.enabled || next == SlotStep::Nothing, "there is nothing to report");
        self.follow(next);
    }

    /// The packet of the last operation that shared the key is taken.
    fn complete_last(&mut self) {
        if !self.shared || self.flying != [false; 2] {
            return;
        }
        self.shared = false;
        let next = self.slot.complete_last();
        if !self.removing && !self.closed {
            assert_eq!(next, SlotStep::Nothing);
        } else if self.collected {
            assert_eq!(next, SlotStep::Collect, "the remover sleeps on");
        } else if self.node == Node::Rests {
            assert_eq!(next, SlotStep::Queue, "the removal is forgotten");
            self.follow(next);
        } else {
            assert_eq!(next, SlotStep::Nothing);
        }
    }

    /// The timer rings.
    fn expire(&mut self) {
        if self.node == Node::Free {
            return;
        }
        let expected = if !self.enabled || !self.timed {
            Expiry::Untimed
        } else if self.node == Node::Rests {
            Expiry::Claimed
        } else {
            Expiry::Queued
        };
        assert_eq!(self.slot.expire(), expected);
        if expected == Expiry::Claimed {
            (self.node, self.late) = (Node::Expired, true);
        }
    }

    // ---- the owner's actions ----

    /// The thread that has found a deadline over queues the node, or finds that the deadline was moved.
    fn tell_expired(&mut self, bytes: &mut Reader<'_>) {
        self.node = Node::Queued;
        if bytes.choice() {
            self.late = false;
            let is_due = self.slot.expire_not();
            assert!(is_due || !self.removing && !self.closed, "the end is forgotten");
            if !is_due {
                self.node = Node::Rests;
            }
        }
    }

    /// The token starts an operation.
    fn lend(&mut self, bytes: &mut Reader<'_>) {
        if !self.slot.word().mode().one_shot {
            return;
        }
        if bytes.byte().is_multiple_of(4) {
            // It has done the operation itself, and a removal changes nothing of that.
            self.slot.lend_ended(drained(bytes));
            (self.node, self.timed) = (Node::Due, false);
            return;
        }
        let queue = Self::queue(bytes);
        if bytes.choice() {
            let lent = self.slot.lend_alone(DIRECTIONS[queue], drained(bytes));
            match (self.admits(true), lent) {
                (Ok(()), Ok(_)) => {
                    (self.node, self.flying[queue], self.timed) = (Node::Due, true, false);
                }
                (expected, lent) => assert_eq!(lent.map(|_| ()), expected),
            }
            return;
        }
        let lent = self.slot.lend(DIRECTIONS[queue], drained(bytes));
        match self.admits(true) {
            Ok(()) => {
                assert!(lent.is_ok());
                (self.node, self.flying[queue], self.timed) = (Node::Lent, true, false);
            }
            Err(refusal) => assert_eq!(lent, Err(refusal)),
        }
    }

    /// A lone operation is cancelled.
    fn claim_alone(&mut self) {
        assert_eq!(self.slot.claim_alone(), self.node == Node::Alone);
        if self.node == Node::Alone {
            self.node = Node::Due;
        }
    }

    /// The thread that has the node of a lone operation tries it, or takes its packet.
    fn try_alone(&mut self, bytes: &mut Reader<'_>) {
        let is_in_flight = self.flying != [false; 2];
        match bytes.byte() % 4 {
            0 if is_in_flight => {
                self.slot.begin_alone();
                assert!(!self.slot.block_alone(), "no edge has come since it was begun");
                self.node = Node::Alone;
            }
            1 if is_in_flight => {
                if !self.slot.block_alone() {
                    self.node = Node::Alone;
                }
            }
            2 if is_in_flight => {
                self.slot.leave_alone();
                self.node = Node::Lent;
            }
            _ => {
                self.slot.complete_alone(bytes.choice());
                (self.node, self.flying) = (Node::Held, [false; 2]);
            }
        }
    }

    /// The operation of a token ends, and its packet is taken.
    fn complete(&mut self, bytes: &mut Reader<'_>) {
        if bytes.choice() {
            self.drop_ref(bytes);
        }
        self.slot.complete(if bytes.choice() { Facts::IN } else { Facts::NONE });
        (self.node, self.flying) = (Node::Held, [false; 2]);
    }

    fn register(&mut self, bytes: &mut Reader<'_>) {
        let generation = self.slot.register(3, mode(bytes), bytes.choice());
        assert_eq!(generation, self.generation);
        self.node = Node::Held;
    }

    fn take_turn(&mut self, bytes: &mut Reader<'_>) {
        let way = bytes.byte() % 3;
        let word = self.slot.word();
        if way == 0 && self.slot.take_plainly().is_some() {
            assert!(word.mode().one_shot && self.also.is_empty() && !self.late && !self.again);
            return self.hand_out();
        }
        // It reports nothing that the kernel has reported, or that the registration asks for.
        let asks = word.interest().intersects(Interest::IN | Interest::OUT);
        let is_empty = self.again && !asks && !format!("{word:?}").contains("pending");
        let is_due = word.is_due();
        let turn = if way == 1 { self.slot.take_and_park() } else { self.slot.take() };
        let is_packet = matches!(turn, NodeTurn::Held(_) | NodeTurn::Cloned(_) | NodeTurn::Removed);
        assert_eq!(is_due, is_packet);
        let is_last = !self.shared;
        let expected = if !is_last && (self.closed || self.removing) {
            Some(NodeTurn::Nothing)
        } else if self.closed {
            Some(NodeTurn::Gone)
        } else if self.collected {
            Some(NodeTurn::Collect)
        } else if self.removing {
            Some(NodeTurn::Removed)
        } else if !self.enabled {
            Some(NodeTurn::Nothing)
        } else {
            None
        };
        assert_eq!(turn, expected.unwrap_or(turn));
        if self.again && expected.is_none() {
            assert!(is_packet || turn == NodeTurn::Check, "the packet is lost");
        }
        if let NodeTurn::Held(events) | NodeTurn::Cloned(events) = turn {
            assert_eq!(events.is_timed_out(), self.late);
            // A deadline is reported once.
            self.timed &= !self.late;
        }
        self.late &= turn == NodeTurn::Check;
        self.again &= turn == NodeTurn::Check;
        let told = |events| if is_empty { Events::NONE } else { events };
        match turn {
            NodeTurn::Gone | NodeTurn::Removed => self.free(),
            NodeTurn::Collect | NodeTurn::Nothing => self.node = Node::Rests,
            NodeTurn::Check => {
                self.slot.begin_check();
                self.node = Node::Asked;
            }
            NodeTurn::Held(events) => {
                assert!(word.mode().one_shot && !events.is_empty());
                self.hand_out();
                self.report(told(events));
                if way == 1 {
                    self.node = Node::Rests;
                    self.park();
                }
            }
            NodeTurn::Cloned(events) => {
                assert!(!events.is_empty());
                self.node = Node::Cloning;
                self.report(told(events));
                if word.mode().one_shot {
                    assert!(way == 1 && !self.also.is_empty());
                    self.park();
                }
            }
        }
    }

    /// A key returned for parking is armed for the additional events.
    fn park(&mut self) {
        self.enabled = !self.also.is_empty();
        self.timed &= !self.enabled;
    }

    fn hand_out(&mut self) {
        assert!(self.enabled && !self.removing && !self.closed, "there is no packet");
        self.enabled = false;
        self.node = Node::Held;
    }

    fn answer(&mut self, bytes: &mut Reader<'_>) {
        let answer = Answer { is_own_end: bytes.choice(), ..facts(bytes).into() };
        match self.slot.check(answer) {
            Checked::Nothing => {
                let is_due = self.late || self.again;
                assert!(self.enabled && !is_due, "the owner has something to do");
                self.node = Node::Rests;
            }
            Checked::Hot => self.node = Node::Queued,
            Checked::Again => self.slot.begin_check(),
        }
    }

    fn clone_key(&mut self, bytes: &mut Reader<'_>) {
        let unreported = bytes.one_of(&[Events::NONE, Events::NONE, Events::IN]);
        let next = self.slot.cloned(unreported);
        if self.removing || self.closed {
            assert_eq!(next, SlotStep::Queue);
        } else if !self.enabled {
            assert_eq!(next, SlotStep::Nothing);
        }
        self.node = Node::Rests;
        self.follow(next);
    }

    fn release(&mut self, bytes: &mut Reader<'_>) {
        let mode = Some(mode(bytes)).filter(|_| bytes.choice());
        let (drained, timed) = (drained(bytes), bytes.byte().is_multiple_of(3));
        match bytes.byte() % 5 {
            // The token is dropped.
            0 => return self.free(),
            1 if self.slot.rearm(mode, timed, drained, self.poll) => {
                assert!(!self.removing && !self.closed && self.also.is_empty());
                [self.enabled, self.timed] = [true, timed];
                self.node = Node::Rests;
                return;
            }
            2 => {
                let next = self.slot.put_back_again(drained, self.poll);
                let mode = Some(self.slot.word().mode());
                if self.admits(true).is_ok() {
                    assert!(matches!(next, SlotStep::Queue | SlotStep::Recheck));
                    self.again = true;
                }
                return self.is_returned(next, mode, false);
            }
            _ => {}
        }
        let opens = mode.is_none() && self.slot.word().mode().one_shot && bytes.choice();
        let next = if opens {
            // From now on operations share the key.
            self.slot.open(drained, self.poll)
        } else {
            self.slot.put_back(mode, timed, drained, self.poll)
        };
        assert!(!(opens && self.slot.word().mode().one_shot));
        self.is_returned(next, mode, timed);
    }

    fn is_returned(&mut self, next: SlotStep, mode: Option<Mode>, timed: bool) {
        if self.closed {
            assert_eq!(next, SlotStep::Gone);
            return self.free();
        }
        self.node = Node::Rests;
        if self.collected {
            assert_eq!(next, SlotStep::Collect);
        } else if self.removing {
            assert_eq!(next, SlotStep::Queue);
            self.follow(next);
        } else {
            if mode.is_some() {
                [self.enabled, self.timed] = [true, timed];
            } else {
                self.park();
            }
            assert!(self.enabled || next == SlotStep::Nothing, "it is parked");
            self.follow(next);
        }
    }

    // ---- what always holds ----

    /// The model and the dump of the word agree, and the rules of the table of bits hold.
    fn check(&self) {
        let word = self.slot.word();
        let dump = format!("{word:?}");
        let says = |name: &str| dump.split(' ').any(|it| it == name);
        assert_eq!(word.generation(), self.generation, "{self:?}");
        assert_eq!(word.is_live(), self.node != Node::Free, "{self:?}");
        let is_queued =
            matches!(self.node, Node::Queued | Node::Asked | Node::Cloning | Node::Expired);
        assert_eq!(says("queued"), is_queued || self.node == Node::Due, "{dump}, {self:?}");
        assert_eq!(says("held"), self.node == Node::Held, "{dump}, {self:?}");
        let is_lone = matches!(self.node, Node::Alone | Node::Due);
        assert_eq!(says("lone"), is_lone, "{dump}, {self:?}");
        let is_lent = self.shared || self.node == Node::Lent || is_lone;
        assert_eq!(says("lent"), is_lent, "{dump}, {self:?}");
        assert_eq!([says("in-flight-in"), says("in-flight-out")], self.flying, "{dump}, {self:?}");
        assert!(!self.enabled || says("timed") == self.timed, "{dump}, {self:?}");
        assert_eq!(says("late"), self.late, "{dump}, {self:?}");
        assert_eq!(says("again"), self.again, "{dump}, {self:?}");
        assert_eq!(says("enabled"), self.enabled, "{dump}, {self:?}");
        assert_eq!(says("removing"), self.removing, "{dump}, {self:?}");
        assert_eq!(says("closed"), self.closed, "{dump}, {self:?}");
        assert_eq!(says("collected"), self.collected, "{dump}, {self:?}");
        for (interest, name) in [
            (Interest::IN, "also-in"),
            (Interest::OUT, "also-out"),
            (Interest::HANGUP, "also-hangup"),
        ] {
            let is_asked = self.also.contains(interest) && !self.removing && !self.closed;
            assert!(self.removing || self.closed || says(name) == is_asked, "{dump}, {self:?}");
        }
        let is_open = says("pending") || says("unchecked");
        assert!(!(self.enabled && (self.removing || self.closed)), "{dump}");
        assert!(!(says("held") && (says("queued") || is_open)), "{dump}");
        assert!(!(self.enabled && !is_queued && is_open), "{dump}");
        assert!(!(self.closed && self.removing), "{dump}");
        assert!(self.removing || !self.collected, "{dump}");
    }
}
