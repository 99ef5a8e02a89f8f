//! Programs that show one thing each, on the simulated kernel: what the tests of the pool, of tasks
//! and of timers do on the system's. Programs that found a fault belong here too.

use crate::completion_port::BlockDetection;
use crate::program::{End, Program, Step};

/// How many schedules each runs under.
const SCHEDULES: u64 = if cfg!(debug_assertions) { 10 } else { 300 };

/// Tasks that one thread spawns, and then joins.
fn joined(tasks: Vec<Vec<Step>>) -> Program {
    let spawns = (0..tasks.len()).map(Step::Spawn);
    let joins = (0..tasks.len()).map(|_| Step::Join);
    Program { actors: vec![spawns.chain(joins).collect()], tasks, ..Program::plain() }
}

fn of_tasks() -> Vec<Program> {
    let yields = vec![Step::Yield; 5];
    let pings = |own, other| {
        let turn = [Step::Receive(own, 9_000), Step::Send(other)];
        turn.into_iter().cycle().take(12).collect::<Vec<_>>()
    };
    let has_children = vec![Step::Spawn(1), Step::Spawn(2), Step::AbortOwn, Step::Join, Step::Join];
    vec![
        joined(vec![yields.clone(); 12]),
        joined(vec![[vec![Step::Send(1)], pings(0, 1)].concat(), pings(1, 0)]),
        joined(vec![vec![Step::Panic], yields.clone()]),
        // An abort meets each state of the task.
        joined(vec![has_children, yields.clone(), vec![Step::Sleep(300), Step::Block(300)]]),
        // Nobody awaits the task.
        Program {
            tasks: vec![vec![Step::Spawn(1), Step::Detach], vec![Step::Sleep(300), Step::Yield]],
            actors: vec![vec![Step::Spawn(0), Step::Detach]],
            ..Program::plain()
        },
    ]
}

fn of_the_pool() -> Vec<Program> {
    let sleeps = vec![Step::Block(9_000); 2];
    let one = |tasks| Program { concurrency: 1, ..joined(tasks) };
    let waits = vec![Step::Spawn(1), Step::BlockOn];
    let sleepers = || [vec![sleeps.clone(); 4], vec![vec![Step::Yield; 3]; 2]].concat();
    vec![
        // Tasks that sleep hold up no other, by each way to detect them.
        one(sleepers()),
        Program { hides_switches: true, ..one(sleepers()) },
        Program { detection: BlockDetection::Tick, ..one(sleepers()) },
        // The limit of threads.
        Program { limit: 2, ..one(vec![sleeps.clone(); 4]) },
        Program { overcommit: Some(500), ..one(vec![vec![Step::Compute(9_000)], vec![], vec![]]) },
        // The system refuses threads, at first and later.
        Program { refusals: 3, ..one(sleepers()) },
        Program { refusals: 2, refuses_first: true, ..joined(sleepers()) },
        Program { refusals: 9, refuses_first: true, ..joined(sleepers()) },
        // Nothing else runs until the refused thread is there.
        Program { refusals: 2, ..one(vec![vec![Step::Block(200_000)]; 4]) },
        // A task blocks on another one, which needs a thread.
        Program { limit: 2, tasks: vec![waits, vec![Step::Yield]], ..one(vec![vec![]]) },
        one(vec![vec![Step::BlockElsewhere(300); 2]; 3]),
        // Threads leave after they have waited for ten seconds, and others come.
        Program { limit: 3, ..one(vec![vec![Step::Block(300), Step::Sleep(11_000_000)]; 2]) },
    ]
}

fn of_timers_and_ends() -> Vec<Program> {
    let timers = [Step::Reset(300, 10), Step::Reset(10, 2_000), Step::Ticks(100)];
    let timers = [&timers[..], &[Step::TimeOut(300), Step::Sleep(1), Step::Sleep(300)]].concat();
    let reads = vec![Step::Read(0, 9_000); 2];
    let mut ends = vec![
        joined(vec![timers.clone(); 3]),
        joined(vec![reads.clone(), reads, vec![Step::Sleep(100), Step::Write(0, 3)]]),
    ];
    // Another thread spawns, aborts and wakes while the runtime ends.
    let disturbs: Vec<Step> = (1..6)
        .flat_map(|task| [Step::Spawn(task), Step::AbortAny(task), Step::WakeAny(0), Step::Join])
        .collect();
    let waits = vec![Step::Receive(0, 300), Step::Yield, Step::Block(100), Step::Forever];
    for end in [End::Abort, End::AbortFor(10), End::Drop, End::DropInTask] {
        ends.push(Program {
            end,
            ends_early: true,
            tasks: vec![waits.clone(); 6],
            actors: vec![vec![Step::Spawn(0)], disturbs.clone()],
            ..Program::plain()
        });
    }
    ends
}

pub(crate) fn known() -> Vec<(Program, u64)> {
    let programs = [of_tasks(), of_the_pool(), of_timers_and_ends()].concat();
    programs.into_iter().map(|program| (program, SCHEDULES)).collect()
}
