//! Runs seeds in child processes, and reduces a program that fails.

use std::env;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Program, known};
use crate::turns::{self, Lot, fail};
use crate::world;

/// A run that takes longer is in a loop without a point.
const LONGEST: Duration = Duration::from_secs(60);
const LONGEST_REPORT: Duration = Duration::from_secs(5);
/// How many schedules each reduced program is tried with.
const SCHEDULES: u64 = 24;
/// How many processes a reduction may start.
const MOST_TRIALS: usize = 400;

fn number_of(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn numbers_of(name: &str) -> Vec<usize> {
    let text = env::var(name).unwrap_or_default();
    text.split(',').filter(|part| !part.is_empty()).map(|part| part.parse().unwrap()).collect()
}

/// Returns the requested seeds as a half-open range.
fn range() -> (u64, u64) {
    if let Some(seed) = number_of("SEED") {
        return (seed, seed + 1);
    }
    if let Ok(text) = env::var("SEEDS") {
        let (from, to) = text.split_once("..").expect("SEEDS=from..to");
        return (from.parse().unwrap(), to.parse().unwrap());
    }
    (0, if cfg!(debug_assertions) { 100 } else { 2_000 })
}

/// What one child process runs.
#[derive(Clone, Debug, Default)]
struct Job {
    from: u64,
    to: u64,
    step: u64,
    left_out: Vec<usize>,
    schedules: (u64, u64),
    notes: bool,
    /// A program from [`known`] instead of a seed's.
    known: Option<usize>,
}

impl Job {
    fn start(&self) -> Child {
        let left_out: Vec<String> = self.left_out.iter().map(usize::to_string).collect();
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "one_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env("SEEDS_JOB", format!("{} {} {}", self.from, self.to, self.step))
            .env("SEEDS_SCHEDULES", format!("{} {}", self.schedules.0, self.schedules.1))
            .env("WITHOUT", left_out.join(","))
            .env("SEEDS_KNOWN", self.known.map_or(String::new(), |known| known.to_string()))
            .env("SEEDS_NOTES", if self.notes { "1" } else { "0" })
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Returns the output of the process if it failed.
    fn failure(&self) -> Option<String> {
        outcome(self.start())
    }
}

/// Returns the output of a process if it failed.
fn outcome(mut child: Child) -> Option<String> {
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    let status = child.wait().unwrap();
    (!status.success()).then(|| format!("{said}{errors}({status})\n"))
}

/// Returns the number after `word` in the last line of `text` that begins with it.
fn said_last(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().rev().find_map(|line| line.strip_prefix(word))?;
    line.split_whitespace().next()?.parse().ok()
}

pub(crate) fn search() {
    let (from, to) = range();
    if number_of("SEED").is_some() {
        let schedule = number_of("SCHEDULE").unwrap_or(0);
        let left_out = numbers_of("WITHOUT");
        let schedules = (schedule, schedule + 1);
        let left = left_out.clone();
        let job =
            Job { from, to, step: 1, left_out: left, schedules, notes: true, ..Job::default() };
        let Some(said) = job.failure() else {
            println!(
                "seed {from} keeps the rules: {:#?}",
                Program::of_seed(from).without(&left_out)
            );
            return;
        };
        if !left_out.is_empty() {
            panic!("{}\n{said}", show(from, &left_out));
        }
        reduce(from, said);
    }
    let processes = thread::available_parallelism().map_or(2, usize::from).min(8) as u64;
    let jobs = (0..processes).map(|number| Job {
        from: from + number,
        to,
        step: processes,
        schedules: (0, 1),
        ..Job::default()
    });
    let children: Vec<(Job, Child)> = jobs.map(|job| (job.clone(), job.start())).collect();
    let failed: Vec<String> =
        children.into_iter().filter_map(|(_, child)| outcome(child)).collect();
    let first = failed.iter().filter_map(|said| Some((said_last(said, "seed ")?, said)));
    if let Some((seed, said)) = first.min_by_key(|(seed, _)| *seed) {
        reduce(seed, said.clone());
    }
    assert!(failed.is_empty(), "{failed:?}");
    println!("{} seeds", to - from);
}

/// Runs the programs that once found a fault.
pub(crate) fn replay_what_is_known() {
    for (number, (program, schedules)) in known().iter().enumerate() {
        let job = Job {
            to: 1,
            step: 1,
            schedules: (0, *schedules),
            known: Some(number),
            ..Job::default()
        };
        let Some(said) = job.failure() else { continue };
        let schedule = said_last(&said, "schedule ").unwrap_or(0);
        let again = Job { schedules: (schedule, schedule + 1), notes: true, ..job };
        panic!("{program:#?}\n{}", again.failure().unwrap_or(said));
    }
}

fn show(seed: u64, left_out: &[usize]) -> String {
    format!("{:#?}", Program::of_seed(seed).without(left_out))
}

/// Reduces the program to the parts that the failure needs, and reports it.
fn reduce(seed: u64, said: String) -> ! {
    let parts = Program::of_seed(seed).parts();
    let mut left_out: Vec<usize> = Vec::new();
    let mut schedule = 0;
    let mut last = said;
    let mut trials = 0;
    if number_of("REDUCE") != Some(0) {
        let mut size = parts.div_ceil(2);
        loop {
            let mut part = 0;
            while part < parts && trials < MOST_TRIALS {
                let more = (part..(part + size).min(parts)).filter(|it| !left_out.contains(it));
                let more: Vec<usize> = more.collect();
                part += size;
                if more.is_empty() {
                    continue;
                }
                let mut trial = left_out.clone();
                trial.extend(more);
                let schedules = (0, SCHEDULES);
                let job = Job {
                    from: seed,
                    to: seed + 1,
                    step: 1,
                    left_out: trial.clone(),
                    schedules,
                    ..Job::default()
                };
                trials += 1;
                if let Some(said) = job.failure() {
                    left_out = trial;
                    schedule = said_last(&said, "schedule ").unwrap_or(0);
                    last = said;
                }
            }
            if size == 1 {
                break;
            }
            size = size.div_ceil(2).min(size - 1);
        }
    }
    left_out.sort_unstable();
    let schedules = (schedule, schedule + 1);
    let job = Job {
        from: seed,
        to: seed + 1,
        step: 1,
        left_out: left_out.clone(),
        schedules,
        notes: true,
        ..Job::default()
    };
    let said = job.failure().unwrap_or(last);
    let without: Vec<String> = left_out.iter().map(usize::to_string).collect();
    panic!(
        "{}\n{said}\nseed {seed} fails, here with {} of {parts} parts. The same again:\n\
         SEED={seed} SCHEDULE={schedule} WITHOUT={} cargo test --release --package {} --test {} \
         every_seed\n",
        show(seed, &left_out),
        parts - left_out.len(),
        without.join(","),
        env!("CARGO_PKG_NAME"),
        env!("CARGO_CRATE_NAME"),
    );
}

/// The current seed and schedule.
static SEED: AtomicU64 = AtomicU64::new(0);
static SCHEDULE: AtomicU64 = AtomicU64::new(0);
static RUNS: AtomicU64 = AtomicU64::new(0);

static POINTS: AtomicU64 = AtomicU64::new(0);
static PACKETS: AtomicU64 = AtomicU64::new(0);

/// Adds the counts of one more run.
pub(crate) fn count(points: u64, packets: u64) {
    POINTS.fetch_add(points, SeqCst);
    PACKETS.fetch_add(packets, SeqCst);
}

pub(crate) fn say_where() {
    println!("\nseed {}", SEED.load(SeqCst));
    println!("schedule {}", SCHEDULE.load(SeqCst));
}

pub(crate) fn run_as_told() {
    let Ok(job) = env::var("SEEDS_JOB") else { return };
    let numbers = |text: &str| -> Vec<u64> {
        text.split_whitespace().map(|part| part.parse().unwrap()).collect()
    };
    let job = numbers(&job);
    let schedules = numbers(&env::var("SEEDS_SCHEDULES").unwrap());
    let left_out = numbers_of("WITHOUT");
    let notes = env::var("SEEDS_NOTES").is_ok_and(|value| value == "1");
    std::panic::set_hook(Box::new(|panic| fail(&format!("{panic}"))));
    thread::spawn(|| {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            thread::park_timeout(Duration::from_secs(1));
            // The dump of a port whose lists are corrupt may never end.
            let longest = if turns::has_failed() { LONGEST_REPORT } else { LONGEST };
            let runs = RUNS.load(SeqCst);
            if runs != seen {
                since = Instant::now();
            } else if since.elapsed() > longest {
                if !turns::has_failed() {
                    say_where();
                    println!("FAILED: a thread is in a loop without a point");
                }
                std::process::abort();
            }
            seen = runs;
        }
    });
    let mut all = 0_u64;
    let mut seed = job[0];
    while seed < job[1] {
        let program = match numbers_of("SEEDS_KNOWN").first() {
            Some(number) => known().swap_remove(*number).0,
            None => Program::of_seed(seed).without(&left_out),
        };
        for schedule in schedules[0]..schedules[1] {
            SEED.store(seed, SeqCst);
            SCHEDULE.store(schedule, SeqCst);
            let turns = Lot::new(seed, 2).next().wrapping_add(schedule);
            let hash = world::run(&program, turns, notes);
            if seed % 64 < job[2] && world::run(&program, turns, notes) != hash {
                fail("the same seed has run in two ways");
            }
            all = all.rotate_left(7) ^ hash;
            RUNS.fetch_add(1, SeqCst);
        }
        seed += job[2];
    }
    println!("turns {all:016x}: {} points, {} packets", POINTS.load(SeqCst), PACKETS.load(SeqCst));
}
