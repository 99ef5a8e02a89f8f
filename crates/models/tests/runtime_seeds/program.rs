//! Random programs: what tasks and other threads do, in which runtime, and how it ends.

use crate::completion_port::BlockDetection;
use crate::turns::Lot;

pub(crate) use crate::known::known;

pub(crate) const MAILBOXES: usize = 3;
pub(crate) const WIRES: usize = 2;

/// One step of a task, or of a thread outside of the runtime. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Yield,
    Sleep(u64),
    /// Sleeps in the kernel, unannounced.
    Block(u64),
    Compute(u64),
    /// Sleeps in a closure of `spawn_blocking`.
    BlockElsewhere(u64),
    /// Spawns the task of this number, unless another one has. Keeps its handle.
    Spawn(usize),
    /// Waits for the task whose handle was kept first.
    Join,
    JoinFor(u64),
    /// Waits for it by `block_on`, in a task: that blocks the thread.
    BlockOn,
    /// Drops the handle that was kept first.
    Detach,
    /// Aborts the task whose handle was kept last.
    AbortOwn,
    AbortAny(usize),
    WakeAny(usize),
    Send(usize),
    Receive(usize, u64),
    /// A timeout over a future that never completes.
    TimeOut(u64),
    /// Polls a timer, moves its deadline, and waits for it.
    Reset(u64, u64),
    Ticks(u64),
    Read(usize, u64),
    Write(usize, usize),
    /// Closes a socket that tasks may be reading from.
    Close(usize),
    Look,
    Panic,
    Forever,
}

/// How a runtime ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Drain,
    Abort,
    /// With a limit, which may pass.
    DrainFor(u64),
    AbortFor(u64),
    Drop,
    DropInTask,
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) concurrency: usize,
    pub(crate) limit: usize,
    pub(crate) detection: BlockDetection,
    pub(crate) overcommit: Option<u64>,
    pub(crate) hides_switches: bool,
    pub(crate) one_shot_kernel: bool,
    /// How many threads cannot be started, and whether the first one is among them.
    pub(crate) refusals: usize,
    pub(crate) refuses_first: bool,
    pub(crate) end: End,
    /// The runtime ends while the other threads are at work.
    pub(crate) ends_early: bool,
    pub(crate) tasks: Vec<Vec<Step>>,
    /// The threads outside of the runtime.
    pub(crate) actors: Vec<Vec<Step>>,
}

/// The runs of one seed start few threads: the turns have room for sixteen.
const MOST_THREADS: usize = 6;

fn time(lot: &mut Lot) -> u64 {
    lot.pick(&[1, 10, 100, 300, 2_000, 9_000])
}

fn step_of_task(lot: &mut Lot, program: &Program, number: usize, tasks: usize) -> Step {
    let step = match lot.below(24) {
        0 => Step::Yield,
        1 => Step::Sleep(time(lot)),
        2 | 3 => Step::Block(time(lot)),
        4 => Step::Compute(time(lot)),
        5 => Step::BlockElsewhere(time(lot)),
        // Tasks spawn only later ones, so none waits for itself.
        6..=9 if number + 1 < tasks => Step::Spawn(number + 1 + lot.below(tasks - number - 1)),
        10 => Step::Join,
        11 => Step::JoinFor(time(lot)),
        12 => Step::Detach,
        13 => Step::AbortOwn,
        14 => Step::AbortAny(lot.below(8)),
        15 => Step::WakeAny(lot.below(8)),
        16 => Step::Send(lot.below(MAILBOXES)),
        17 => Step::Receive(lot.below(MAILBOXES), time(lot)),
        18 => Step::TimeOut(time(lot)),
        19 => Step::Reset(time(lot), time(lot)),
        20 => Step::Ticks(time(lot)),
        21 => Step::Read(lot.below(WIRES), time(lot)),
        22 => Step::Write(lot.below(WIRES), 1 + lot.below(8)),
        _ => match lot.below(6) {
            0 => Step::Panic,
            // Only an abort ends a task that waits forever.
            1 if program.ends_early && program.end != End::Drain => Step::Forever,
            2 => Step::Look,
            3 => Step::Close(lot.below(WIRES)),
            _ => Step::Join,
        },
    };
    if step == Step::Join && lot.once_in(4) { Step::BlockOn } else { step }
}

fn step_of_actor(lot: &mut Lot, tasks: usize) -> Step {
    match lot.below(12) {
        0..=3 => Step::Spawn(lot.below(tasks)),
        4 => Step::Join,
        5 => Step::JoinFor(time(lot)),
        6 => Step::Detach,
        7 => Step::AbortAny(lot.below(8)),
        8 => Step::WakeAny(lot.below(8)),
        9 => Step::Send(lot.below(MAILBOXES)),
        10 => Step::Write(lot.below(WIRES), 1 + lot.below(8)),
        _ => Step::Sleep(time(lot)),
    }
}

impl Program {
    /// A runtime for a program that shows one thing.
    pub(crate) fn plain() -> Self {
        Self {
            concurrency: 2,
            limit: MOST_THREADS,
            detection: BlockDetection::Automatic,
            overcommit: None,
            hides_switches: false,
            one_shot_kernel: false,
            refusals: 0,
            refuses_first: false,
            end: End::Drain,
            ends_early: false,
            tasks: Vec::new(),
            actors: Vec::new(),
        }
    }

    pub(crate) fn of_seed(seed: u64) -> Self {
        let lot = &mut Lot::new(seed, 20);
        let limit = time(lot);
        let end = lot.pick(&[
            End::Drain,
            End::Drain,
            End::Abort,
            End::Abort,
            End::DrainFor(limit),
            End::AbortFor(limit),
            End::Drop,
            End::DropInTask,
        ]);
        let refuses = lot.once_in(5);
        let mut program = Self {
            concurrency: 1 + lot.below(3),
            limit: 2 + lot.below(MOST_THREADS - 1),
            detection: lot.pick(&[
                BlockDetection::Automatic,
                BlockDetection::Automatic,
                BlockDetection::Tick,
                BlockDetection::Announced,
            ]),
            overcommit: lot.pick(&[None, Some(500), Some(10_000)]),
            hides_switches: lot.once_in(3),
            one_shot_kernel: lot.once_in(8),
            refusals: if refuses { 1 + lot.below(4) } else { 0 },
            refuses_first: refuses && lot.once_in(4),
            end,
            ends_early: lot.once_in(2),
            ..Self::plain()
        };
        let tasks = lot.pick(&[3, 7, 14, 20]);
        let longest = lot.pick(&[3, 6, 12, 20]);
        program.tasks = (0..tasks)
            .map(|number| {
                let length = lot.below(longest + 1);
                (0..length).map(|_| step_of_task(lot, &program, number, tasks)).collect()
            })
            .collect();
        let length = 2 + lot.below(16);
        program.actors = (0..1 + lot.below(2))
            .map(|_| (0..length).map(|_| step_of_actor(lot, tasks)).collect())
            .collect();
        // Otherwise nothing would happen in most runs.
        (0..1 + lot.below(3))
            .for_each(|task| program.actors[0].insert(0, Step::Spawn(task % tasks)));
        program.bound()
    }

    /// Keeps the promise that a program makes: it never blocks every thread on tasks that need one.
    fn bound(mut self) -> Self {
        let mut blocking = self.limit - 1;
        for step in self.tasks.iter_mut().flatten() {
            if *step == Step::BlockOn {
                match blocking {
                    0 => *step = Step::Join,
                    _ => blocking -= 1,
                }
            }
        }
        // A run in which threads come and go starts more of them.
        let rests = |step: &Step| matches!(step, Step::Sleep(time) if *time > 1_000_000);
        if self.tasks.iter().flatten().any(rests) {
            self.limit = self.limit.min(4);
        }
        self
    }

    /// Returns the number of parts that can be left out.
    pub(crate) fn parts(&self) -> usize {
        self.tasks.len() + self.tasks.iter().chain(&self.actors).map(Vec::len).sum::<usize>()
    }

    /// Returns the program without some of its parts. A task without steps keeps its number. Tasks
    /// come first, so that a reduction tries the largest parts first.
    pub(crate) fn without(&self, left_out: &[usize]) -> Self {
        let mut number = 0;
        let mut is_in = || {
            number += 1;
            !left_out.contains(&(number - 1))
        };
        let mut program = self.clone();
        for steps in &mut program.tasks {
            if !is_in() {
                steps.fill(Step::Look);
            }
        }
        for steps in program.tasks.iter_mut().chain(&mut program.actors) {
            steps.retain(|_| is_in());
        }
        program
    }
}
