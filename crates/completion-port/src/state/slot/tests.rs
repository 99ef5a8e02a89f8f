//! Every transition keeps the rules of the table of bits, and each fast path does what the general
//! path does.

use proptest::prelude::*;

use super::*;

/// Any word of a registration that keeps the rules of the table of bits.
fn words() -> impl Strategy<Value = Word> {
    (0..u64::MAX).prop_map(|bits| keeping_the_rules(Word(bits).with(LIVE)))
}

/// Clears bits of the word until it keeps the rules of the table of bits.
fn keeping_the_rules(mut word: Word) -> Word {
    if word.has(ENABLED) {
        word = word.without(HELD | REMOVING | CLOSED);
        if !word.has(QUEUED) {
            word = word.without(UNCHECKED | PENDING);
        }
    }
    if word.has(LENT) && !word.has(ONE_SHOT) {
        word = word.without(HELD);
    }
    if word.has(HELD) {
        word = word.without(UNCHECKED | PENDING);
    }
    if word.is_held() {
        word = word.without(QUEUED);
    }
    if word.has(CLOSED) {
        word = word.without(REMOVING | COLLECTED);
    }
    if word.has(LENT) {
        if word.has(ONE_SHOT) {
            word = word.without(ENABLED | UNCHECKED | PENDING);
            word = if word.is_lone() { word } else { word.without(QUEUED) };
        }
    } else {
        word = word.without(IN_FLIGHT);
    }
    if !word.is_away() && !word.has(ENABLED | REMOVING | CLOSED) {
        word = word.without(ALSO);
    }
    let may_be_late = word.has(QUEUED) && word.has(ENABLED | REMOVING | CLOSED);
    if may_be_late && !word.is_lone() { word } else { word.without(LATE) }
}

/// Facts that the kernel may report.
fn facts() -> impl Strategy<Value = Facts> {
    prop::collection::vec(0..7_usize, 0..4).prop_map(|chosen| {
        let all = [
            Facts::IN,
            Facts::OUT,
            Facts::RDHUP,
            Facts::HUP,
            Facts::ERR,
            Facts::URGENT,
            Facts::IN | Facts::OUT,
        ];
        chosen.into_iter().fold(Facts::NONE, |facts, index| facts | all[index])
    })
}

fn modes() -> impl Strategy<Value = Mode> {
    (0..8_u8, any::<(bool, bool)>()).prop_map(|(filter, (edge, one_shot))| {
        let interest = Interest::from_bits(filter);
        Mode { interest, edge, one_shot }
    })
}

fn hints() -> impl Strategy<Value = Drained> {
    prop::sample::select(vec![Drained::NONE, Drained::READ, Drained::WRITE])
}

/// Arguments of a transition, besides the word.
#[derive(Clone, Copy, Debug)]
struct Choices {
    facts: Facts,
    mode: Mode,
    drained: Drained,
    poll: u32,
    ago: u32,
    choice: bool,
    is_out: bool,
}

impl Choices {
    fn direction(self) -> Facts {
        if self.is_out { Facts::OUT } else { Facts::IN }
    }
}

/// The words that requests and edges lead to.
fn after_requests(word: Word, choices: Choices) -> Vec<Word> {
    let Choices { facts, mode, drained, poll, ago, choice, .. } = choices;
    let newest = || poll.wrapping_add(ago);
    let mut reached = vec![
        word.registered(mode, choice),
        word.delivered(word.generation(), facts, poll, newest).0,
        word.disabled(),
    ];
    reached.extend(word.queued(word.generation(), facts, poll, newest));
    if !word.has(REMOVING | CLOSED) {
        reached.push(word.ending(REMOVING, if choice { COLLECTED } else { 0 }).0);
        reached.push(word.ending(CLOSED, 0).0);
        reached.extend(word.finished(word.generation(), choice).map(|(word, _)| word));
        reached.extend(word.finished_idle(word.generation()).map(|(word, _)| word));
        reached.push(word.enabled_also(mode.interest, poll).0);
        if !(word.is_away() || (word.has(LENT) && mode.one_shot)) {
            reached.push(word.dried(drained).enabled(mode, poll).0);
        }
        reached.push(word.expired().0);
    } else if !word.has(CLOSED) {
        reached.push(word.without(COLLECTED).claimed().0);
    }
    reached
}

/// The words that the owner of the node leads to.
fn after_turns(word: Word, choices: Choices) -> Vec<Word> {
    let Choices { facts, choice, .. } = choices;
    let answer = Answer { is_own_end: choice, ..facts.into() };
    let unreported = if choice { Events::IN } else { Events::NONE };
    let mut reached = Vec::new();
    if word.is_lone() {
        reached.extend([word.claimed_alone().0, word.begun_alone()]);
        if word.has(QUEUED) {
            reached.push(word.blocked_alone().0);
            reached.push(word.completed_alone(choice));
            reached.push(word.queued_up().0);
        }
    } else if word.has(QUEUED) {
        reached.extend([
            word.asking(),
            word.awaiting_edge().0,
            word.checked(answer).0,
            word.taken().0,
            word.taken_and_parked().0,
            word.cloned(unreported).0,
        ]);
        reached.extend(word.taken_plainly().map(|(word, _)| word));
    }
    reached
}

/// The words that the holder of the token leads to, and operations started by the registration's
/// name.
fn after_the_token(word: Word, choices: Choices) -> Vec<Word> {
    let Choices { mode, drained, poll, choice, .. } = choices;
    let direction = choices.direction();
    let mut reached = Vec::new();
    if word.is_held() {
        for timed in [false, true] {
            reached.push(word.returned(choice.then_some(mode), timed, drained, poll).0);
            reached.extend(word.rearmed(choice.then_some(mode), timed, drained, poll));
        }
        reached.push(word.returned_again(drained, poll).0);
        if word.has(ONE_SHOT) {
            reached.extend(word.lent(direction, drained).ok());
            reached.extend(word.lent_alone(direction, drained).ok().map(|(word, _)| word));
            reached.push(word.lent_ended(drained));
            reached.push(word.opened(drained, poll).0);
        }
    } else if !word.has(ONE_SHOT) {
        let shared = word.shared(word.generation(), direction);
        reached.extend(shared.ok().map(|(word, _)| word));
        reached.extend(word.reclaimed(word.generation()).ok());
    }
    reached
}

/// The words that the end of an operation leads to.
fn after_operations(word: Word, choices: Choices) -> Vec<Word> {
    let mut reached = Vec::new();
    if word.has(LENT) && !word.is_lone() {
        let ref_dropped = word.ref_dropped(choices.direction(), choices.poll).0;
        reached.push(ref_dropped);
        let last = ref_dropped.without(IN_FLIGHT);
        if word.has(ONE_SHOT) {
            reached.push(last.completed());
        } else {
            reached.push(last.completed_last().0);
        }
    }
    reached
}

proptest! {
    /// Every transition keeps the rules of the table of bits.
    #[test]
    fn what_the_bits_exclude_never_comes(
        word in words(), facts in facts(), mode in modes(), drained in hints(), poll: u32,
        ago in 0..200_u32, choice: bool, is_out: bool,
    ) {
        let choices = Choices { facts, mode, drained, poll, ago, choice, is_out };
        let reached = [
            after_requests(word, choices),
            after_turns(word, choices),
            after_the_token(word, choices),
            after_operations(word, choices),
        ];
        for word in reached.concat() {
            prop_assert_eq!(word, keeping_the_rules(word));
        }
    }

    /// The fast path of arming does what the general path does.
    #[test]
    fn the_common_case_of_arming_is_no_other(
        word in words(), drained in hints(), poll: u32, other in modes(),
    ) {
        let word = keeping_the_rules(word.without(ENABLED | LENT).with(HELD));
        for (mode, timed) in [(None, false), (None, true), (Some(word.mode()), false), (Some(other), true)] {
            if let Some(armed) = word.rearmed(mode, timed, drained, poll) {
                let mode = mode.unwrap_or(word.mode());
                let general = word.returned(Some(mode), timed, drained, poll);
                prop_assert_eq!(general, (armed, SlotStep::Nothing));
            }
        }
    }

    /// The fast paths of an edge do what the general path does, whatever the word.
    #[test]
    fn the_common_case_of_an_edge_is_no_other(
        word in words(), is_stale: bool, facts in facts(), poll: u32, ago in 0..200_u32,
    ) {
        let newest = || poll.wrapping_add(ago);
        let generation = (word.generation() + u32::from(is_stale)) % GENERATIONS;
        let armed = keeping_the_rules(word.with(ENABLED).without(QUEUED));
        for word in [word, armed] {
            if let Some(queued) = word.queued(generation, facts, poll, newest) {
                let general = word.delivered(generation, facts, poll, newest);
                prop_assert_eq!(general, (queued, Delivery::Noted(SlotStep::Queue)));
            }
        }
        let lone = word.with(LONE | ONE_SHOT).without(ENABLED | QUEUED);
        let lone = keeping_the_rules(lone);
        prop_assert!(lone.is_lone());
        for word in [word, lone, lone.without(EDGES)] {
            if let Some(queued) = word.queued_alone(generation, facts) {
                let general = word.delivered(generation, facts, poll, newest);
                prop_assert_eq!(general, (queued, Delivery::Due));
            }
        }
    }

    #[test]
    fn the_common_case_of_a_turn_is_no_other(word in words()) {
        let likely = keeping_the_rules(word.with(ENABLED | ONE_SHOT | QUEUED));
        for word in [word, likely, likely.without(UNCHECKED | EDGE | PENDING_ERR)] {
            if let Some((handed, events)) = word.taken_plainly() {
                prop_assert_eq!(word.taken(), (handed, NodeTurn::Held(events)));
            }
            if let Some((parked, events)) = word.taken_and_parked_plainly() {
                prop_assert_eq!(word.taken_and_parked(), (parked, NodeTurn::Held(events)));
            }
        }
    }

    /// The fast path of enabling does what the general path does, and refuses what that refuses.
    #[test]
    fn the_common_case_of_enabling_is_no_other(
        word in words(), is_stale: bool, drained in hints(), poll: u32, mode in modes(),
    ) {
        let generation = (word.generation() + u32::from(is_stale)) % GENERATIONS;
        let parked = word.without(ENABLED | HELD | LENT | IN_FLIGHT | ALSO | REMOVING | COLLECTED | CLOSED);
        let parked = keeping_the_rules(parked.without(RECHECK | HALF_CLOSED));
        for word in [word, parked] {
            if let Some(enabled) = word.enabled_plainly(generation, mode, drained, poll) {
                prop_assert_eq!(word.admits(generation), Ok(()));
                prop_assert!(!word.is_away() && word.is_plain());
                prop_assert_eq!(enabled.unwatched(Facts::asked_by(mode.interest)), None);
                let general = word.dried(drained).enabled(mode, poll);
                prop_assert_eq!(general, (enabled, SlotStep::Nothing));
            }
        }
    }

    /// The end of a registration's only operation in one step is what the three steps make that any
    /// other end takes.
    #[test]
    fn the_end_of_the_only_operation_is_one_step(word in words(), out: bool, dry: bool, poll: u32) {
        let direction = Facts::of_directions(if out { 2 } else { 1 });
        if let Some(completed) = word.only_completed(direction, dry) {
            let known = if dry { word.knowing_of(direction, false) } else { word };
            let (dropped, next) = known.ref_dropped(direction, poll);
            prop_assert_eq!(next, SlotStep::Nothing);
            prop_assert_eq!(dropped.completed_last(), (completed, SlotStep::Nothing));
        }
    }

    /// A token and operations that share the key exclude each other: one-shot packets go with one,
    /// and persistent packets with the other.
    #[test]
    fn a_key_is_shared_or_a_tokens(word in words(), drained in hints(), poll: u32, mode in modes()) {
        if word.is_held() && word.has(ONE_SHOT) {
            let (opened, next) = word.opened(drained, poll);
            prop_assert!(!opened.has(ONE_SHOT));
            prop_assert_eq!(opened.has(HELD), next == SlotStep::Gone);
        }
        if let Ok(held) = word.reclaimed(word.generation()) {
            prop_assert!(held.is_held() && held.has(ONE_SHOT) && !held.has(ENABLED));
            prop_assert_eq!(held.besides(), word.besides());
            // Whatever the slot remembered, arming checks.
            let remembers = |word: Word| word.0 & (READY | RECHECK | HALF_CLOSED | ALIVE);
            prop_assert_eq!(remembers(held), remembers(word));
        }
        let enabled = word.enabled_plainly(word.generation(), mode, drained, poll);
        prop_assert!(enabled.is_none() || word.has(ONE_SHOT) || !mode.one_shot);
    }

    /// What the word predicts of the dequeued node is true.
    #[test]
    fn what_is_due_makes_a_packet(word in words()) {
        let (_, turn) = word.taken();
        let is_packet = matches!(turn, NodeTurn::Held(_) | NodeTurn::Cloned(_) | NodeTurn::Removed);
        prop_assert_eq!(word.is_due(), is_packet);
        prop_assert_eq!(word.is_unclear(), turn == NodeTurn::Check);
    }
}

#[test]
fn what_is_common_goes_the_short_way() {
    let armed = Word(LIVE | ENABLED | ONE_SHOT | 1).armed(3);
    let queued = armed.queued(0, Facts::IN | Facts::OUT, 5, || 5).expect("armed before");
    assert!(armed.queued(0, Facts::IN, 3, || 3).is_none(), "armed since the poll began");
    assert!(armed.queued(0, Facts::OUT, 5, || 5).is_none(), "nobody asked for that");
    assert!(armed.queued(1, Facts::IN, 5, || 5).is_none(), "it is another one's");
    assert!(armed.queued(0, Facts::IN | Facts::ERR, 5, || 5).is_none());
    assert!(queued.queued(0, Facts::IN, 5, || 5).is_none(), "it is queued already");
    let (held, events) = queued.taken_plainly().expect("queued");
    assert_eq!(events, Events::IN);
    assert!(held.taken_plainly().is_none());
    assert!(queued.with(REMOVING).taken_plainly().is_none());
}

#[test]
fn arming_with_a_hint_is_the_common_case() {
    let word = Word(LIVE | HELD | ONE_SHOT | 1 | 1 << READY_SHIFT);
    let word = word.watching(Facts::IN | Facts::OUT);
    let hint = Drained::READ;
    let room = Mode { interest: Interest::OUT, edge: false, one_shot: true };
    assert!(word.rearmed(None, false, hint, 3).is_some());
    assert!(word.rearmed(Some(room), false, hint, 3).is_some());
    assert!(word.rearmed(Some(Mode { edge: true, ..room }), false, hint, 3).is_some());
    assert!(word.rearmed(None, false, Drained::NONE, 3).is_none(), "it is still ready");
    assert!(word.with(RECHECK).rearmed(None, false, hint, 3).is_none());
}

#[test]
fn enabling_with_a_hint_is_the_common_case() {
    let mode = Mode { interest: Interest::IN, edge: false, one_shot: true };
    let armed = Word::free(7).registered(mode, false).without(HELD).with(ENABLED).armed(3);
    let queued = armed.watching(Facts::IN).queued(7, Facts::IN, 5, || 5).expect("armed before");
    let (parked, events) = queued.taken_and_parked_plainly().expect("queued");
    assert_eq!((events, parked.has(HELD | ENABLED | QUEUED)), (Events::IN, false));
    let again = |word: Word, drained| word.enabled_plainly(7, mode, drained, 6);
    assert!(again(parked, Drained::READ).is_some_and(|word| word.has(ENABLED)));
    assert!(again(parked, Drained::NONE).is_none(), "it is still ready");
    assert!(again(parked.with(1 << EDGES_SHIFT), Drained::READ).is_none(), "there is more");
    for other in [HELD, LENT, REMOVING, CLOSED, RECHECK, HALF_CLOSED] {
        assert!(again(parked.with(other), Drained::READ).is_none());
    }
    let room = Mode { interest: Interest::OUT, ..mode };
    assert!(parked.enabled_plainly(7, room, Drained::READ, 6).is_none(), "it is not watched");
    assert!(parked.enabled_plainly(8, mode, Drained::READ, 6).is_none(), "it is another one's");
    assert!(again(parked.freed(), Drained::READ).is_none());
}

#[test]
fn what_was_asked_for_besides_is_reported_once_and_changes_no_filter() {
    let both = Facts::IN | Facts::OUT;
    let also_out = |word: Word| word.enabled_also(Interest::OUT, 4);
    let armed = Word(LIVE | ENABLED | ONE_SHOT | 1).watching(both).armed(3);
    let (asked, next) = also_out(armed);
    assert_eq!((next, asked.interest()), (SlotStep::Nothing, Interest::IN | Interest::OUT));
    assert!(asked.queued(0, Facts::OUT, 5, || 5).is_none(), "it takes the long way");
    let (queued, delivery) = asked.delivered(0, Facts::OUT, 5, || 5);
    assert_eq!(delivery, Delivery::Noted(SlotStep::Queue));
    assert!(queued.taken_plainly().is_none(), "it takes the long way");
    let (held, turn) = queued.taken();
    assert_eq!(turn, NodeTurn::Held(Events::OUT));
    assert_eq!((held.interest(), held.mode().interest), (Interest::IN, Interest::IN));

    // A packet with other events keeps the additional request, and so does arming with any filter.
    let (queued, _) = asked.delivered(0, Facts::IN, 5, || 5);
    let (held, turn) = queued.taken();
    assert_eq!((turn, held.besides()), (NodeTurn::Held(Events::IN), Interest::OUT));
    assert!(held.rearmed(None, false, Drained::READ, 6).is_none(), "it takes the long way");
    let hangup = Mode { interest: Interest::HANGUP, ..held.mode() };
    let (armed, next) = held.returned(Some(hangup), false, Drained::READ, 6);
    assert_eq!((next, armed.interest()), (SlotStep::Nothing, Interest::HANGUP | Interest::OUT));

    // A key that is returned to be parked arms the slot for the additional request alone.
    let (asked, next) = also_out(held.without(ALSO));
    assert_eq!((next, asked.has(ENABLED)), (SlotStep::Nothing, false));
    let (armed, next) = asked.returned(None, false, Drained::READ, 6);
    assert_eq!((next, armed.mode().interest), (SlotStep::Nothing, Interest::OUT));
    assert!(armed.has(ENABLED) && armed.besides() == Interest::OUT);
    let (other, _) = armed.enabled(held.mode(), 7);
    assert_eq!(other.interest(), Interest::IN | Interest::OUT, "it is still to be reported");
    assert!(!armed.disabled().has(ENABLED | ALSO));
    let ready = held.with(2 << READY_SHIFT).returned(None, false, Drained::READ, 6);
    assert_eq!(ready.1, SlotStep::Recheck, "what is remembered is checked");
}

/// A held slot with this filter that is watched for both directions.
fn held(filter: Interest) -> Word {
    let mode = Mode { interest: filter, edge: false, one_shot: true };
    Word::free(0).registered(mode, false).watching(Facts::IN | Facts::OUT)
}

#[test]
fn a_packet_that_the_handler_asks_for_comes_whatever_the_kernel_reports() {
    for (filter, events) in [
        (Interest::IN, Events::IN),
        (Interest::OUT | Interest::HANGUP, Events::OUT),
        (Interest::IN | Interest::OUT, Events::IN | Events::OUT),
        (Interest::HANGUP, Events::IN),
        (Interest::NONE, Events::IN),
    ] {
        // A deadline of the former arming ends.
        for word in [held(filter), held(filter).with(TIMED)] {
            let (queued, next) = word.returned_again(Drained::READ, 5);
            assert_eq!(next, SlotStep::Queue);
            assert_eq!((queued.expired().1, queued.has(HELD)), (Expiry::Untimed, false));
            assert!(queued.taken_plainly().is_none(), "it takes the long way");
            let (taken, turn) = queued.taken();
            assert_eq!((turn, taken.has(LATE | QUEUED | ENABLED)), (NodeTurn::Held(events), false));
            assert!(taken.has(HELD));
        }
    }
    // What is ready in the kernel need not be asked about.
    let ready = held(Interest::IN).noting(Facts::IN | Facts::OUT);
    assert_eq!(ready.returned_again(Drained::NONE, 5).1, SlotStep::Queue);
}

#[test]
fn no_check_and_no_request_loses_the_packet_that_the_handler_asks_for() {
    let (queued, _) = held(Interest::IN).returned_again(Drained::READ, 5);
    // An end, an error or urgent data is checked first, and the answer may be that nothing holds.
    for facts in [Facts::URGENT, Facts::ERR, Facts::RDHUP] {
        let (word, delivery) = queued.delivered(0, facts, 6, || 6);
        assert_eq!(
            (delivery, word.taken().1),
            (Delivery::Noted(SlotStep::Nothing), NodeTurn::Check)
        );
        let (word, checked) = word.asking().checked(Facts::NONE.into());
        assert_eq!((checked, word.taken().1), (Checked::Hot, NodeTurn::Held(Events::IN)));
        let (word, _) = word.asking().checked(Facts::ERR.into());
        assert_eq!(word.taken().1, NodeTurn::Held(Events::IN | Events::ERR));
    }
    // What was seen before is checked at the next arming.
    let (word, next) = held(Interest::IN).noting(Facts::ERR).returned_again(Drained::READ, 5);
    let (word, turn) = word.taken();
    assert_eq!((next, turn), (SlotStep::Queue, NodeTurn::Held(Events::IN)));
    assert_eq!(word.returned(None, false, Drained::READ, 6).1, SlotStep::Nothing);
    let armed = word.returned(Some(word.mode()), false, Drained::READ, 6);
    assert_eq!(armed.1, SlotStep::Recheck);

    // Enabling changes what it reports.
    let mode = Mode { interest: Interest::OUT, edge: false, one_shot: false };
    assert!(queued.enabled_plainly(0, mode, Drained::NONE, 6).is_none(), "it takes the long way");
    let (word, _) = queued.enabled(mode, 6);
    let (word, turn) = word.taken();
    assert_eq!(turn, NodeTurn::Cloned(Events::OUT));
    assert!(!word.cloned(Events::NONE).0.has(LATE), "it comes once");
    // An additional request is reported with it.
    let (word, _) = queued.noting(Facts::OUT).enabled_also(Interest::OUT, 6);
    let (word, checked) = word.asking().checked(Facts::NONE.into());
    let (word, turn) = word.taken();
    let both = Events::IN | Events::OUT;
    assert_eq!((checked, turn, word.has(ALSO)), (Checked::Hot, NodeTurn::Held(both), false));
    let (word, _) = held(Interest::IN).with(2 << ALSO_SHIFT).returned_again(Drained::READ, 5);
    assert_eq!(word.taken().1, NodeTurn::Held(both));

    // Disabling drops it for good, and a removal takes its place.
    let (disabled, turn) = queued.disabled().taken();
    assert_eq!((turn, disabled.has(QUEUED)), (NodeTurn::Nothing, false));
    let (enabled, _) = queued.disabled().enabled(queued.mode(), 6);
    assert_eq!(enabled.taken().1, NodeTurn::Nothing);
    let (removed, removal) = queued.ending(REMOVING, 0);
    assert_eq!((removal, removed.taken().1), (Removal::Marked, NodeTurn::Removed));
    let held = held(Interest::IN);
    let again = |word: Word| word.returned_again(Drained::NONE, 5).1;
    assert_eq!(again(held.ending(REMOVING, 0).0), SlotStep::Queue);
    assert_eq!(again(held.ending(REMOVING, COLLECTED).0), SlotStep::Collect);
    assert_eq!(again(held.ending(CLOSED, 0).0), SlotStep::Gone);
}

#[test]
fn a_packet_without_a_check_says_nothing_of_the_connection() {
    // A one-shot reactor, which is not asked.
    let word = held(Interest::IN).suspected().with(ALIVE);
    let (again, next) = word.returned_again(Drained::READ, 5);
    assert_eq!(next, SlotStep::Queue);
    let (expired, _) = word.with(TIMED | ENABLED).without(HELD).expired();
    let timed_out = (expired, NodeTurn::Held(Events::TIMED_OUT));
    for (queued, expected) in [(again, NodeTurn::Held(Events::IN)), timed_out] {
        let (queued, asks) = queued.awaiting_edge();
        assert!(!asks);
        let (word, turn) = queued.taken();
        assert_eq!((turn, word.has(ALIVE)), (expected, true));
    }
}

#[test]
fn what_is_not_watched_yet_is_not_armed_for() {
    let mode = |interest| Mode { interest, edge: false, one_shot: true };
    let word = Word::free(0).registered(mode(Interest::IN | Interest::HANGUP), false);
    assert!(word.rearmed(None, false, Drained::NONE, 3).is_none());
    let word = word.watching(word.wanted_directions());
    assert_eq!((word.watched(), word.unwatched(Facts::asked_by(Interest::IN))), (Facts::IN, None));
    assert!(word.rearmed(None, false, Drained::NONE, 3).is_some());
    assert!(word.rearmed(Some(mode(Interest::NONE)), false, Drained::NONE, 3).is_some());
    for interest in [Interest::OUT, Interest::ALL] {
        assert!(word.rearmed(Some(mode(interest)), false, Drained::NONE, 3).is_none());
        // Directions that are watched already stay watched.
        assert_eq!(word.unwatched(Facts::asked_by(interest)), Some(Facts::IN | Facts::OUT));
    }
    let widened = word.watching(Facts::IN | Facts::OUT);
    assert!(widened.rearmed(Some(mode(Interest::ALL)), false, Drained::NONE, 3).is_some());
    assert_eq!(widened.unwatched(Facts::asked_by(Interest::ALL)), None);
    assert_eq!(Word::free(0).freed().watched(), Facts::NONE);
}

#[test]
fn each_word_of_a_dump_is_explained() {
    let page = include_str!("../../../docs/STALLS.md");
    let all = Word::free(0).with((1 << GENERATION) - 1);
    let dump = format!("{all:?}");
    let words: Vec<_> = dump.split(' ').filter(|word| word.contains(char::is_lowercase)).collect();
    assert!(words.len() > 18, "{dump}");
    for word in words {
        // The page lists the words as "- `one`, `another`: meaning".
        let is_explained = page.lines().filter(|line| line.starts_with("- `")).any(|line| {
            line.split(':').next().is_some_and(|names| names.contains(&format!("`{word}`")))
        });
        assert!(is_explained, "docs/STALLS.md does not explain `{word}`");
    }
}
