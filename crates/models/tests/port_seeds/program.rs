//! The actions of the threads of a run, drawn from a seed. Each part has a number, so that a
//! reduction can leave parts out.

use crate::port::raw::AnyTrigger;
use crate::sim::FileScript;
use crate::turns::{Lot, lot_below};
use crate::types::interest::Interest;
use crate::{BlockDetection, OneShot, Persistent};

pub(crate) const PLACES: usize = 3;

/// A step of a thread that is not a handler.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Registers the socket of a place, or a new one that the key owns.
    Register {
        place: usize,
        owned: bool,
        by_number: bool,
        interest: Interest,
        trigger: AnyTrigger,
    },
    /// The peer writes.
    Write {
        place: usize,
        bytes: usize,
    },
    /// Reads all data. Handlers may read at the same time.
    Drain {
        place: usize,
    },
    /// The peer shuts down writing.
    HalfClose {
        place: usize,
    },
    /// Closes both ends and opens a pair that reuses their numbers.
    Reopen {
        place: usize,
    },
    /// Duplicates the socket and closes the duplicate.
    Duplicate {
        place: usize,
    },
    Enable {
        which: usize,
        interest: Interest,
        trigger: AnyTrigger,
    },
    EnableAlso {
        which: usize,
        interest: Interest,
    },
    Disable {
        which: usize,
    },
    Remove {
        which: usize,
    },
    RemoveAndWait {
        which: usize,
        microseconds: u64,
    },
    Forget {
        which: usize,
    },
    /// Removes a registration, and takes its key if nothing is using it.
    RemoveNow {
        which: usize,
    },
    /// Starts an operation on a file without an association. A message brings its outcome.
    StartThenPost {
        start: Start,
    },
    Post {
        messages: usize,
    },
    PostAt {
        microseconds: u64,
    },
    /// Cancels a message that was posted for a later time.
    Cancel {
        which: usize,
    },
    /// Waits with a timeout. May forget the batch.
    Wait {
        microseconds: u64,
        room: usize,
        forgets: bool,
    },
    /// Finishes a token that a handler has passed on.
    Mail {
        armed: bool,
    },
    /// Associates a socket and starts an operation on it.
    Associate {
        shared: bool,
        start: Start,
    },
    /// Starts an operation on a shared association.
    Start {
        which: usize,
        start: Start,
    },
    /// The peer of an association sends.
    Feed {
        which: usize,
        bytes: usize,
    },
    /// The peer of an association ends its stream.
    Hush {
        which: usize,
    },
    CancelOperation {
        which: usize,
    },
    /// Associates a listener and starts an accept on it.
    Listen {
        shared: bool,
        start: Start,
    },
    /// A client connects to a listener.
    Connect {
        which: usize,
    },
    /// Associates a datagram socket and starts an operation on it.
    AssociateDatagrams {
        shared: bool,
        start: Start,
    },
    /// Associates an unconnected socket and starts a connect.
    Dial {
        shared: bool,
        way: Dial,
        start: Start,
    },
    /// The peer of an association, or a client of a listener, resets its connection.
    Reset {
        which: usize,
    },
    /// The kernel ends the file operations that it holds.
    ReleaseFiles,
    HasPackets,
    Look {
        which: usize,
    },
    Sleep {
        microseconds: u64,
    },
}

/// The result of a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dial {
    Answered,
    Refused,
    /// Neither accepted nor refused.
    Silent,
}

/// An operation, or an arming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// `Some`: a send, of all its bytes if true. `None`: a receive.
    pub(crate) send: Option<bool>,
    pub(crate) bytes: usize,
    /// The deadline.
    pub(crate) microseconds: Option<u64>,
    /// The start returns the outcome if the operation completes immediately.
    pub(crate) at_once: bool,
    /// If there is a token, arm it instead.
    pub(crate) arms: bool,
    /// On a stream, a file write. It fails when the kernel ends it, since the socket is not a file.
    /// On a datagram socket, many datagrams instead of one.
    pub(crate) other: bool,
}

impl Start {
    fn drawn(mut below: impl FnMut(usize) -> usize) -> Self {
        Self {
            send: [None, None, None, None, Some(true), Some(false)][below(6)],
            bytes: [1, 2, 2, 3, 8][below(5)],
            microseconds: [None, None, None, Some(0), Some(40), Some(900), Some(5_000)][below(7)],
            at_once: below(4) == 0,
            arms: below(6) == 0,
            other: below(4) == 0,
        }
    }

    /// Draws a start from the run's own random numbers.
    pub(crate) fn by_lot() -> Self {
        Self::drawn(lot_below)
    }
}

/// What a handler does with a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Habit {
    ReadAll,
    ReadAllAndSaySo,
    ReadOne,
    ReadNothing,
    RearmAs(Interest, AnyTrigger),
    /// Arms through the `Changes` of the next call.
    Process,
    /// Asks for another packet.
    Again,
    Park,
    ParkAndEnable,
    Drop,
    IntoKey,
    RemoveAndRearm,
    RemoveAndDrop,
    PassOn,
    Blocking(u64),
    /// Sleeps unannounced.
    Sleep(u64),
    /// Computes for this many microseconds.
    Busy(u64),
    Post,
    /// Posts this many messages to its own thread.
    PostAfter(usize),
    /// Posts this many messages to its own thread, each of which displaces the one before.
    PostNext(usize),
    /// Posts this many messages behind its packets.
    PostBehind(usize),
    /// Exchanges the key of its token.
    MapKey,
    /// Calls `enable_also` for OUT on this or another registration, and rearms unchanged.
    Wake(usize),
    /// Leaves the rest of the batch unread.
    Leave,
    /// Leaves the rest and forgets the batch, so that only the next wait or the thread's exit
    /// returns the rest.
    Forget,
}

#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) room: usize,
    /// The timeouts of the first waits, in microseconds. The other waits have none.
    pub(crate) limits: Vec<u64>,
    pub(crate) habits: Vec<Habit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Shutdown,
    /// Shuts down gracefully, with a deadline after this many microseconds.
    Finish(u64),
    Close,
    Abandon,
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) limit: usize,
    pub(crate) detection: BlockDetection,
    pub(crate) one_shot_kernel: bool,
    pub(crate) hides_switches: bool,
    pub(crate) tcp: bool,
    /// Packets come without tokens.
    pub(crate) cloned: bool,
    /// After how many microseconds another thread runs next to computing ones.
    pub(crate) overcommit: Option<u64>,
    /// How the kernel treats file operations.
    pub(crate) files: FileScript,
    pub(crate) end: End,
    /// The port ends while the actors are still running.
    pub(crate) ends_early: bool,
    pub(crate) workers: Vec<Worker>,
    pub(crate) actors: Vec<Vec<Step>>,
}

fn trigger(lot: &mut Lot) -> AnyTrigger {
    lot.pick(&[
        AnyTrigger::OneShot(OneShot::Level),
        AnyTrigger::OneShot(OneShot::Level),
        AnyTrigger::OneShot(OneShot::Edge),
        AnyTrigger::Persistent(Persistent::Level),
        AnyTrigger::Persistent(Persistent::Edge),
    ])
}

fn interest(lot: &mut Lot) -> Interest {
    match lot.below(10) {
        0 => Interest::OUT,
        1 => Interest::HANGUP,
        2 => Interest::IN | Interest::HANGUP,
        3 => Interest::IN | Interest::OUT,
        _ => Interest::IN,
    }
}

/// Draws a step. Each theme weights the kinds of steps differently, so that runs differ by more
/// than the order of steps.
fn steps_of(lot: &mut Lot, theme: usize) -> Step {
    let place = lot.below(PLACES);
    let which = lot.below(8);
    let kind = match theme {
        // Mostly messages.
        0 => lot.pick(&[1, 3, 11, 11, 11, 11, 11, 12, 14, 16, 17, 17, 18]),
        // Traffic on lasting registrations.
        1 => lot.pick(&[0, 1, 1, 1, 1, 1, 2, 3, 11, 13, 16, 17]),
        // Calls that take an `Id`.
        2 => lot.pick(&[0, 0, 1, 1, 1, 6, 6, 7, 8, 9, 10, 13, 16, 19, 19]),
        // Closed numbers.
        3 => lot.pick(&[0, 0, 1, 1, 4, 4, 5, 6, 8, 13, 15, 16]),
        // Only handlers read and arm, so level packets and hints are exact.
        4 | 5 => lot.pick(&[0, 0, 1, 1, 1, 1, 1, 1, 1, 3, 3, 5, 11, 13, 16, 19]),
        _ => lot.below(20),
    };
    match kind {
        0 => Step::Register {
            place,
            owned: lot.once_in(2),
            by_number: lot.once_in(3),
            interest: interest(lot),
            trigger: trigger(lot),
        },
        1 => Step::Write { place, bytes: 1 + lot.below(4) },
        2 => Step::Drain { place },
        3 => Step::HalfClose { place },
        4 => Step::Reopen { place },
        5 => Step::Duplicate { place },
        6 => Step::Enable { which, interest: interest(lot), trigger: trigger(lot) },
        7 => Step::Disable { which },
        8 => Step::Remove { which },
        9 => Step::RemoveAndWait { which, microseconds: lot.pick(&[0, 20, 3_000]) },
        10 => Step::Forget { which },
        11 => Step::Post { messages: lot.pick(&[1, 1, 1, 2, 5]) },
        12 => Step::Wait {
            microseconds: lot.pick(&[0, 100, 2_000]),
            room: lot.pick(&[0, 1, 3, 8]),
            forgets: lot.once_in(2),
        },
        13 => Step::Mail { armed: !lot.once_in(4) },
        14 => Step::HasPackets,
        15 => Step::Look { which },
        17 => Step::PostAt { microseconds: lot.pick(&[0, 10, 300, 2_000, 20_000]) },
        18 => Step::Cancel { which },
        19 => Step::EnableAlso { which, interest: interest(lot) },
        _ => Step::Sleep { microseconds: lot.pick(&[10, 300, 2_000, 20_000]) },
    }
}

/// Inserts steps with operations into an actor's steps.
fn add_operations(lot: &mut Lot, steps: &mut Vec<Step>) {
    for _ in 0..2 + lot.below(20) {
        let which = lot.below(4);
        let start = Start::drawn(|bound| lot.below(bound));
        let step = match lot.below(10) {
            0 | 1 => Step::Associate { shared: lot.once_in(2), start },
            2..5 => Step::Start { which, start },
            5..8 => Step::Feed { which, bytes: 1 + lot.below(6) },
            8 if lot.once_in(4) => Step::Hush { which },
            8 => Step::ReleaseFiles,
            _ => Step::CancelOperation { which: lot.below(6) },
        };
        steps.insert(lot.below(steps.len() + 1), step);
    }
    for _ in 0..1 + lot.below(2) {
        let start = Start::drawn(|bound| lot.below(bound));
        steps.insert(0, Step::Associate { shared: lot.once_in(2), start });
    }
}

/// Inserts steps with listeners into an actor's steps.
fn add_listeners(lot: &mut Lot, steps: &mut Vec<Step>) {
    for _ in 0..4 + lot.below(24) {
        let which = lot.below(3);
        let start = Start::drawn(|bound| lot.below(bound));
        let step = match lot.below(10) {
            0..4 => Step::Start { which, start },
            4..8 => Step::Connect { which },
            8 if lot.once_in(8) => Step::Remove { which },
            _ => Step::CancelOperation { which: lot.below(6) },
        };
        steps.insert(lot.below(steps.len() + 1), step);
    }
    let start = Start::drawn(|bound| lot.below(bound));
    steps.insert(0, Step::Listen { shared: !lot.once_in(3), start });
}

/// Inserts steps with connects, datagrams and resets into an actor's steps.
fn add_connections(lot: &mut Lot, steps: &mut Vec<Step>) {
    for _ in 0..4 + lot.below(20) {
        let which = lot.below(5);
        let start = Start::drawn(|bound| lot.below(bound));
        let way = lot.pick(&[Dial::Answered, Dial::Answered, Dial::Refused, Dial::Silent]);
        let step = match lot.below(14) {
            0 => Step::AssociateDatagrams { shared: lot.once_in(2), start },
            1 | 2 => Step::Dial { shared: lot.once_in(2), way, start },
            3..6 => Step::Start { which, start },
            6..11 => Step::Feed { which, bytes: 1 + lot.below(6) },
            11 => Step::Reset { which: lot.below(12) },
            12 if lot.once_in(4) => Step::Remove { which },
            _ => Step::CancelOperation { which: lot.below(6) },
        };
        steps.insert(lot.below(steps.len() + 1), step);
    }
    for _ in 0..1 + lot.below(2) {
        let start = Start::drawn(|bound| lot.below(bound));
        let shared = lot.once_in(2);
        let step = if lot.once_in(3) {
            Step::AssociateDatagrams { shared, start }
        } else {
            let way = lot.pick(&[Dial::Answered, Dial::Answered, Dial::Refused, Dial::Silent]);
            Step::Dial { shared, way, start }
        };
        steps.insert(0, step);
    }
}

/// Inserts steps into an actor's steps that remove registrations immediately, or use a file
/// without an association.
fn add_late_steps(lot: &mut Lot, steps: &mut Vec<Step>) {
    for _ in 0..1 + lot.below(8) {
        let step = if lot.once_in(2) {
            Step::RemoveNow { which: lot.below(8) }
        } else {
            Step::StartThenPost { start: Start::drawn(|bound| lot.below(bound)) }
        };
        steps.insert(lot.below(steps.len() + 1), step);
    }
}

fn habit(lot: &mut Lot, sleeps: bool, reads: bool) -> Habit {
    if reads && !lot.once_in(6) {
        return lot.pick(&[
            Habit::ReadAllAndSaySo,
            Habit::ReadAllAndSaySo,
            Habit::ReadAll,
            Habit::ReadOne,
        ]);
    }
    let time = lot.pick(&[5, 40, 700, 3_000, 12_000]);
    match lot.below(31) {
        0 => Habit::ReadOne,
        1 => Habit::ReadNothing,
        2 | 3 => Habit::RearmAs(interest(lot), trigger(lot)),
        4 => Habit::Process,
        5 => Habit::Park,
        6 => Habit::ParkAndEnable,
        7 => Habit::Drop,
        8 => Habit::IntoKey,
        9 => Habit::RemoveAndRearm,
        10 => Habit::RemoveAndDrop,
        11 => Habit::PassOn,
        12 | 13 if sleeps => Habit::Blocking(time),
        14 | 15 if sleeps => Habit::Sleep(time),
        16 => Habit::Busy(time),
        17 => Habit::Post,
        18 => Habit::Leave,
        19 => Habit::PostAfter(lot.pick(&[1, 1, 2, 5, 70])),
        20..23 => Habit::ReadAllAndSaySo,
        23 | 24 => Habit::Wake(lot.below(8)),
        25 | 26 => Habit::Again,
        _ => Habit::ReadAll,
    }
}

/// Programs that found a fault, each with the number of schedules to run.
pub(crate) fn known() -> Vec<(Program, u64)> {
    let register = |place, trigger| Step::Register {
        place,
        owned: true,
        by_number: false,
        interest: Interest::IN,
        trigger,
    };
    let level = AnyTrigger::Persistent(Persistent::Level);
    let once = AnyTrigger::OneShot(OneShot::Level);
    let one_worker =
        |habits: &[Habit]| Worker { number: 0, room: 2, limits: vec![], habits: habits.to_vec() };
    let plain = Program {
        limit: 1,
        detection: BlockDetection::Announced,
        one_shot_kernel: false,
        hides_switches: false,
        tcp: false,
        cloned: false,
        overcommit: None,
        files: FileScript::Done,
        end: End::Shutdown,
        ends_early: false,
        workers: vec![one_worker(&[Habit::ReadAll])],
        actors: vec![],
    };
    // A handler enables a registration while another thread enables it with another trigger. Either
    // call may come last.
    let armed_by_two = |one_shot_kernel, first, trigger| Program {
        one_shot_kernel,
        cloned: true,
        actors: vec![
            (0..PLACES)
                .flat_map(|place| {
                    [
                        register(place, first),
                        Step::Write { place, bytes: 2 },
                        Step::Sleep { microseconds: 10 },
                        Step::Enable { which: 0, interest: Interest::IN, trigger },
                    ]
                })
                .collect(),
        ],
        ..plain.clone()
    };
    // An operation times out before it was tried, and a check has just found the socket not ready.
    // The next connect must still begin.
    let send = |microseconds, at_once| Start {
        send: Some(true),
        bytes: 3,
        microseconds,
        at_once,
        arms: false,
        other: false,
    };
    let connects = Program {
        tcp: true,
        workers: vec![one_worker(&[Habit::Wake(6), Habit::Busy(12_000)])],
        actors: vec![vec![
            Step::Dial { shared: true, way: Dial::Refused, start: send(Some(40), true) },
            Step::Start { which: 0, start: send(None, true) },
        ]],
        ..plain.clone()
    };
    // The next connect is tried while another thread abandons the previous one, which has timed
    // out.
    let abandons = Program {
        tcp: true,
        limit: 3,
        workers: (0..3).map(|number| Worker { number, ..one_worker(&[Habit::ReadAll]) }).collect(),
        actors: vec![
            std::iter::once(Step::Dial {
                shared: true,
                way: Dial::Silent,
                start: send(Some(0), false),
            })
            .chain((0..6).flat_map(|_| {
                [
                    Step::Start { which: 0, start: send(Some(0), false) },
                    Step::Start { which: 0, start: send(Some(40), false) },
                ]
            }))
            .collect(),
        ],
        ..plain.clone()
    };
    vec![
        (armed_by_two(false, once, level), 1_000),
        (armed_by_two(true, once, AnyTrigger::Persistent(Persistent::Edge)), 1_000),
        (armed_by_two(true, level, AnyTrigger::OneShot(OneShot::Edge)), 1_000),
        (connects, 1_000),
        (abandons, 1_000),
    ]
}

impl Program {
    pub(crate) fn of_seed(seed: u64) -> Self {
        let lot = &mut Lot::new(seed, 0);
        let theme = lot.below(8);
        let calm = lot.once_in(3);
        // Most handlers read and continue.
        let reads = lot.once_in(2);
        let sleeps = !calm && !lot.once_in(3);
        let workers = 1 + lot.below(4);
        let workers = (0..workers)
            .map(|number| {
                let limits = if calm { 0 } else { lot.pick(&[0, 0, 1, 4]) };
                Worker {
                    number,
                    room: lot.pick(&[1, 2, 4, 16]),
                    limits: (0..limits).map(|_| lot.pick(&[0, 50, 1_000, 9_000])).collect(),
                    habits: (0..1 + lot.below(8)).map(|_| habit(lot, sleeps, reads)).collect(),
                }
            })
            .collect();
        let longest = if theme == 4 || theme == 5 { 80 } else { lot.pick(&[6, 20, 60]) };
        let actors = 1 + lot.below(3);
        let mut actors: Vec<Vec<Step>> = (0..actors)
            .map(|_| {
                let length = 1 + lot.below(longest);
                let mut steps: Vec<Step> = (0..length).map(|_| steps_of(lot, theme)).collect();
                if calm {
                    steps.retain(|step| !matches!(step, Step::Wait { .. }));
                }
                // Otherwise most runs would have nothing to report.
                for place in 0..lot.below(PLACES + 1) {
                    let trigger = trigger(lot);
                    let (owned, by_number) = (lot.once_in(2), false);
                    let interest = Interest::IN;
                    steps.insert(0, Step::Register { place, owned, by_number, interest, trigger });
                }
                steps
            })
            .collect();
        // Drawn from a separate stream, so that the rest of each program stays unchanged.
        let more = &mut Lot::new(seed, 9);
        if more.once_in(3) {
            for steps in &mut actors {
                if more.once_in(3) {
                    steps.clear();
                }
                add_operations(more, steps);
            }
        }
        let more = &mut Lot::new(seed, 10);
        if more.once_in(4) {
            for steps in &mut actors {
                if more.once_in(2) {
                    steps.clear();
                }
                add_listeners(more, steps);
            }
        }
        let connections = &mut Lot::new(seed, 11);
        if connections.once_in(4) {
            for steps in &mut actors {
                if connections.once_in(3) {
                    steps.clear();
                }
                add_connections(connections, steps);
            }
        }
        let late = &mut Lot::new(seed, 12);
        if late.once_in(3) {
            actors.iter_mut().for_each(|steps| add_late_steps(late, steps));
        }
        let mut workers: Vec<Worker> = workers;
        if late.once_in(3) {
            for worker in &mut workers {
                let count = late.pick(&[1, 2, 5]);
                worker.habits.push(late.pick(&[Habit::PostNext(count), Habit::MapKey]));
            }
        }
        let behind = &mut Lot::new(seed, 13);
        if behind.once_in(3) {
            for worker in &mut workers {
                worker.habits.push(Habit::PostBehind(behind.pick(&[1, 2, 5])));
            }
        }
        let overcommit = late.pick(&[None, None, None, Some(50), Some(2_000)]);
        let gracefully = late.pick(&[None, None, Some(0), Some(300), Some(20_000)]);
        let mut program = Self {
            limit: 1 + lot.below(4),
            detection: lot.pick(&[
                BlockDetection::Automatic,
                BlockDetection::Automatic,
                BlockDetection::Tick,
                BlockDetection::Announced,
            ]),
            one_shot_kernel: lot.once_in(5),
            hides_switches: lot.once_in(3),
            tcp: lot.once_in(2),
            cloned: lot.once_in(4),
            overcommit,
            files: more.pick(&[
                FileScript::Done,
                FileScript::Queued,
                FileScript::Begun,
                FileScript::Stubborn,
            ]),
            end: lot.pick(&[End::Shutdown, End::Shutdown, End::Close, End::Close, End::Abandon]),
            ends_early: lot.once_in(5),
            workers,
            actors,
        };
        if let (End::Shutdown, Some(microseconds)) = (program.end, gracefully) {
            program.end = End::Finish(microseconds);
        }
        program
    }

    /// Returns the number of parts that can be left out.
    pub(crate) fn parts(&self) -> usize {
        let habits: usize = self.workers.iter().map(|worker| worker.habits.len() + 1).sum();
        habits + self.actors.iter().map(Vec::len).sum::<usize>() + self.actors.len()
    }

    /// Returns the program without some of its parts. Threads come first, so that a reduction tries
    /// the largest parts first.
    pub(crate) fn without(&self, left_out: &[usize]) -> Self {
        let mut number = 0;
        let mut is_in = || {
            number += 1;
            !left_out.contains(&(number - 1))
        };
        let mut program = self.clone();
        program.workers.retain(|_| is_in());
        if program.workers.is_empty() {
            program.workers.push(self.workers[0].clone());
        }
        program.actors.clear();
        let actors: Vec<bool> = self.actors.iter().map(|_| is_in()).collect();
        for (steps, all) in self.actors.iter().zip(actors) {
            let steps = steps.iter().filter(|_| is_in() && all).copied().collect();
            program.actors.push(steps);
        }
        for worker in &self.workers {
            let habits =
                worker.habits.iter().map(|habit| if is_in() { *habit } else { Habit::ReadAll });
            let habits: Vec<Habit> = habits.collect();
            if let Some(kept) = program.workers.iter_mut().find(|it| it.number == worker.number) {
                kept.habits = habits;
            }
        }
        program
    }

    fn has(&self, is_so: impl Fn(Habit) -> bool) -> bool {
        self.workers.iter().flat_map(|worker| &worker.habits).any(|habit| is_so(*habit))
    }

    fn does(&self, is_so: impl Fn(Step) -> bool) -> bool {
        self.actors.iter().flatten().any(|step| is_so(*step))
    }

    /// Returns whether the number of running threads is exact: no thread sleeps, not even in
    /// `remove_and_wait`, and no wait times out.
    pub(crate) fn keeps_its_limit(&self) -> bool {
        !self.has(|habit| matches!(habit, Habit::Blocking(_) | Habit::Sleep(_) | Habit::Drop))
            && !self.does(|step| matches!(step, Step::Wait { .. }))
            && self.workers.iter().all(|worker| worker.limits.is_empty())
            && self.overcommit.is_none()
    }

    /// Returns whether messages may be dropped with the port: it is abandoned, or the last thread
    /// with unread packets waits no more.
    pub(crate) fn may_leave_messages(&self) -> bool {
        let waits_once = |step| matches!(step, Step::Wait { forgets: true, .. });
        self.end == End::Abandon || self.ends_early && self.does(waits_once)
    }

    /// As `may_leave_messages`. An operation may also remain if a thread that takes no packets was
    /// starting it when the port was closed.
    pub(crate) fn may_leave_operations(&self) -> bool {
        self.may_leave_messages() || self.ends_early && self.end == End::Close
    }

    /// Returns whether only one thread takes packets.
    pub(crate) fn keeps_order(&self) -> bool {
        self.workers.len() == 1 && !self.does(|step| matches!(step, Step::Wait { .. }))
    }

    /// Returns whether only handlers read and arm, each of another socket. A level packet is then
    /// exact, and a hint is true.
    pub(crate) fn handlers_alone_arm(&self) -> bool {
        // `enable_also` waits for a token that is out, but without tokens it arms.
        let arms = |step| self.cloned && matches!(step, Step::EnableAlso { .. });
        let wakes = |habit| self.cloned && matches!(habit, Habit::Wake(_));
        !self.does(|step| {
            // A socket that the port forgets may be registered again.
            let forgets = matches!(step, Step::Forget { .. });
            matches!(step, Step::Enable { .. } | Step::Drain { .. } | Step::Reopen { .. })
                || arms(step)
                || forgets
        }) && !self.has(|habit| habit == Habit::ParkAndEnable || wakes(habit))
    }
}
