//! Instructions of user code for each event, counted by `valgrind --tool=callgrind`.
//!
//! A child under callgrind does a piece of work, once with few and once with many repetitions; the
//! difference is the cost of the repetitions, without start and end. Unlike times, this is the same
//! on every run, and shows the functions. System calls do not count.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io, process};

use crate::compare::is_ours;
use crate::report::{Cell, Quantity, Row};
use crate::{files, in_flight, posts, registration, single, timers};

/// A child's work, as given on its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// `single`, `posts`, `timers`, `files`, `registration` or `datagrams`.
    pub(crate) bench: String,
    pub(crate) contender: String,
    /// Connections that are ready at the same time, or messages posted together.
    pub(crate) size: usize,
    /// Events, messages or sockets.
    pub(crate) amount: usize,
}

impl Work {
    /// Does the child's work.
    pub(crate) fn perform(&self) -> io::Result<()> {
        let unknown = || io::Error::other(format!("no such work: {self:?}"));
        match self.bench.as_str() {
            "single" => {
                let entry = single::entry(&self.contender).ok_or_else(unknown)?;
                single::Prepared::new(entry, self.size)?.passes(self.amount / self.size)
            }
            "posts" => posts::perform(&self.contender, self.size, self.amount)?.ok_or_else(unknown),
            "timers" => timers::perform(&self.contender, self.amount)?.ok_or_else(unknown),
            "files" => files::perform(&self.contender, self.amount)?.ok_or_else(unknown),
            "registration" => {
                registration::perform(&self.contender, self.amount)?.ok_or_else(unknown).map(drop)
            }
            "datagrams" => in_flight::perform(&self.contender, self.amount)?.ok_or_else(unknown),
            _ => Err(unknown()),
        }
    }
}

/// A situation counted as one.
struct Situation {
    bench: &'static str,
    title: &'static str,
    contenders: &'static [&'static str],
    sizes: &'static [usize],
    /// Few repetitions, and many.
    amounts: [usize; 2],
}

const SITUATIONS: [Situation; 6] = [
    Situation {
        bench: "single",
        title: "an event: wait, receive, arm (without what `bare` needs for sending and receiving)",
        contenders: &[
            "ours",
            "ours, plain keys",
            "ours, no hint",
            "ours, persistent",
            "ours, delays",
            "ours, deadlines",
            "ours, operations",
            "epoll_edge",
            "epoll_one_shot",
            "mio",
            "polling",
            "polling, edge",
            "tokio",
            BARE,
        ],
        sizes: &[1, 4, 16, 64],
        amounts: [1280, 5120],
    },
    Situation {
        bench: "posts",
        title: "a message: post and take, nobody asleep",
        contenders: &["ours", "ours, with a socket", "crossbeam-channel", "eventfd in epoll"],
        sizes: &[1, 64],
        amounts: [1280, 5120],
    },
    Situation {
        bench: "timers",
        title: "a timer: armed, and cancelled or taken",
        contenders: &timers::PERFORMED,
        sizes: &[1],
        amounts: [5_000, 15_000],
    },
    Situation {
        bench: "files",
        title: "a read of 4 KiB from a file, cached: start, outcome, and a check of the data",
        contenders: &files::PERFORMED,
        sizes: &[1],
        amounts: [5_000, 15_000],
    },
    Situation {
        bench: "registration",
        title: "a socket: registration and removal",
        contenders: &[
            "ours",
            "ours, plain keys",
            "ours, with packets",
            "ours, by tokens",
            "epoll_ctl",
            "mio",
            "polling",
            "tokio",
        ],
        sizes: &[1],
        amounts: [1000, 2000],
    },
    Situation {
        bench: "datagrams",
        title: "a datagram of 64 bytes: sent, and taken by the port",
        contenders: &in_flight::NAMES,
        sizes: &[1],
        amounts: [1280, 5120],
    },
];

/// The part to subtract.
const BARE: &str = "bare";

/// Functions of ours that are named.
const FUNCTIONS: usize = 16;

/// Counts everything, a cell for each bench. Children are `cport-bench perform BENCH CONTENDER SIZE
/// AMOUNT`, which does [`Work::perform`].
pub(crate) fn run(progress: &mut dyn FnMut(&str)) -> io::Result<Vec<Cell>> {
    count_all(&env::current_exe()?, &|_| true, progress)
}

/// Counts what uses the port, in this build and in another one: how many percent more this one takes.
pub(crate) fn compare(other: &Path, progress: &mut dyn FnMut(&str)) -> io::Result<Vec<Cell>> {
    let counted = |name: &str| name == BARE || is_ours(name);
    let own = count_all(&env::current_exe()?, &counted, &mut |step| {
        progress(&format!("{step}, this build"));
    })?;
    let other = count_all(other, &counted, &mut |step| {
        progress(&format!("{step}, the other build"));
    })?;
    Ok(own.into_iter().zip(&other).map(|(own, other)| differences(own, other)).collect())
}

/// The counts of this build, each with the difference from the other build.
fn differences(mut own: Cell, other: &Cell) -> Cell {
    // Nothing is compared with the first row.
    own.compared.clear();
    own.notes.clear();
    for (row, other) in own.rows.iter_mut().zip(&other.rows) {
        if let Some(reason) = &other.failure {
            row.failure.get_or_insert_with(|| format!("the other build: {reason}"));
        }
        for Quantity { name, unit, values, .. } in std::mem::take(&mut row.quantities) {
            let own = values.first().copied().flatten();
            let before = other.values(&name).first().copied().flatten();
            let more = own.zip(before).map(|(own, before)| (own / before - 1.0) * 100.0);
            row.push(&name, &unit, own);
            row.push(&format!("{name}, more"), "%", more);
        }
    }
    own
}

fn count_all(
    executable: &Path,
    counted: &dyn Fn(&str) -> bool,
    progress: &mut dyn FnMut(&str),
) -> io::Result<Vec<Cell>> {
    let scratch = env::temp_dir().join(format!("cport-bench-{}", process::id()));
    fs::create_dir_all(&scratch)?;
    let mut cells = Vec::new();
    for situation in &SITUATIONS {
        progress(&format!("instructions: {}", situation.bench));
        let row = |name: &&str| Row { contender: (*name).to_owned(), ..Row::default() };
        let mut cell = Cell {
            scenario: "instructions".to_owned(),
            title: situation.title.to_owned(),
            threads: Some(1),
            compared: situation.sizes[0].to_string(),
            rows: situation.contenders.iter().filter(|name| counted(name)).map(row).collect(),
            ..Cell::default()
        };
        if cell.rows.is_empty() {
            continue;
        }
        for size in situation.sizes {
            count_size(&mut cell, *size, situation.amounts, &|contender, amount| {
                let (bench, contender) = (situation.bench.to_owned(), contender.to_owned());
                let work = Work { bench, contender, size: *size, amount };
                profile(executable, &work, &scratch)
            });
        }
        cells.push(cell);
    }
    fs::remove_dir_all(&scratch)?;
    Ok(cells)
}

/// Fills the column of a size.
fn count_size(
    cell: &mut Cell,
    size: usize,
    amounts: [usize; 2],
    profile: &dyn Fn(&str, usize) -> io::Result<Profile>,
) {
    let mut differences = Vec::new();
    for row in &mut cell.rows {
        let name = &row.contender;
        let difference = profile(name, amounts[0])
            .and_then(|few| Ok(profile(name, amounts[1])?.less(&few)))
            .map_err(|error| row.failure = Some(error.to_string()));
        differences.push(difference.ok());
    }
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let repetitions = (amounts[1] - amounts[0]) as f64;
    let bare = cell.rows.iter().position(|row| row.contender == BARE);
    let floor = bare.and_then(|index| Some(differences[index].as_ref()?.total()));
    for (row, difference) in cell.rows.iter_mut().zip(&differences) {
        let total = difference.as_ref().map(Profile::total);
        let above = match floor {
            Some(floor) if row.contender != BARE => total.map(|total| total - floor),
            _ => total,
        };
        row.push(&size.to_string(), "", above.map(|above| above / repetitions));
    }
    if let Some(Some(ours)) = differences.first() {
        let functions: Vec<String> = ours
            .largest(FUNCTIONS)
            .into_iter()
            .map(|(name, cost)| format!("{:.1} {name}", cost / repetitions))
            .collect();
        cell.notes.push(format!("ours, {size}: {}", functions.join("; ")));
    }
}

/// Instructions by function, without those of the functions it calls.
#[derive(Clone, Debug, Default, PartialEq)]
struct Profile(HashMap<String, f64>);

impl Profile {
    fn total(&self) -> f64 {
        self.0.values().sum()
    }

    fn less(mut self, other: &Profile) -> Profile {
        for (name, cost) in &other.0 {
            *self.0.entry(name.clone()).or_default() -= cost;
        }
        self
    }

    fn largest(&self, count: usize) -> Vec<(&str, f64)> {
        let mut all: Vec<_> = self.0.iter().map(|(name, cost)| (name.as_str(), *cost)).collect();
        all.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(other.0)));
        all.truncate(count);
        all
    }
}

/// Does a piece of work in a child under callgrind.
fn profile(executable: &Path, work: &Work, scratch: &Path) -> io::Result<Profile> {
    let file: PathBuf = scratch.join("callgrind.out");
    let done = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(executable)
        .args(["perform", &work.bench, &work.contender])
        .args([work.size.to_string(), work.amount.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("valgrind: {error}")))?;
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr);
        let last = text.lines().last().unwrap_or_default();
        return Err(io::Error::other(format!("valgrind: {}: {last}", done.status)));
    }
    parse(&fs::read_to_string(file)?)
}

/// Reads callgrind's own format: lines `fn=(number) name` (the name only the first time), then
/// lines `position cost`. The line after `calls=` has the cost of the called function.
fn parse(text: &str) -> io::Result<Profile> {
    let mut names: HashMap<String, String> = HashMap::new();
    let mut profile = Profile::default();
    let mut current = String::new();
    let mut is_call = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            current = resolve(name, &mut names);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            resolve(name, &mut names);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            if std::mem::take(&mut is_call) {
                continue;
            }
            let cost = line.split_whitespace().nth(1).unwrap_or("0");
            let cost: f64 = cost.parse().map_err(|_| io::Error::other(format!("odd: {line}")))?;
            *profile.0.entry(current.clone()).or_default() += cost;
        }
    }
    if profile.0.is_empty() {
        return Err(io::Error::other("callgrind has counted nothing"));
    }
    Ok(profile)
}

/// A name, which is written out once and then only named by its number.
fn resolve(name: &str, names: &mut HashMap<String, String>) -> String {
    let (number, written) = name.split_once(' ').unwrap_or((name, ""));
    if !written.is_empty() {
        names.insert(number.to_owned(), written.to_owned());
    }
    names.get(number).cloned().unwrap_or_else(|| number.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
version: 1
events: Ir
positions: line
fl=(1) a.rs
fn=(1) outer
16 5
+3 4
cfn=(2) inner with blanks
calls=2 0
* 300
fn=(2)
7 300
fn=(1)
-2 1
totals: 310
";

    #[test]
    fn costs_are_those_of_the_function_itself() {
        let profile = parse(TEXT).unwrap();
        assert_eq!(profile.largest(9), [("inner with blanks", 300.0), ("outer", 10.0)]);
        assert_eq!(profile.total(), 310.0);
        assert!(parse("totals: 0").is_err());
    }

    #[test]
    fn the_difference_is_made_function_by_function() {
        let few = parse(TEXT).unwrap();
        let many = parse(&TEXT.replace("7 300", "7 700")).unwrap();
        assert_eq!(many.less(&few).largest(1), [("inner with blanks", 400.0)]);
    }

    #[test]
    fn prices_are_for_one_repetition_and_above_the_bare_ones() {
        let rows = ["ours", BARE].map(|name| Row { contender: name.to_owned(), ..Row::default() });
        let mut cell = Cell { rows: rows.into(), ..Cell::default() };
        count_size(&mut cell, 4, [10, 30], &|contender, amount| {
            let each = if contender == BARE { 7 } else { 107 };
            Ok(Profile(HashMap::from([("all".to_owned(), (1000 + each * amount) as f64)])))
        });
        assert_eq!(cell.rows[0].values("4"), [Some(100.0)]);
        assert_eq!(cell.rows[1].values("4"), [Some(7.0)]);
        assert_eq!(cell.notes, ["ours, 4: 107.0 all"]);
    }

    #[test]
    fn another_build_is_compared_in_percent() {
        let count = |counts: [Option<f64>; 2]| {
            let mut row = Row { contender: "ours".to_owned(), ..Row::default() };
            row.push("1", "", counts[0]);
            row.push("4", "", counts[1]);
            let notes = vec!["ours, 1: 107.0 all".to_owned()];
            Cell { rows: vec![row], notes, compared: "1".to_owned(), ..Cell::default() }
        };
        let mut other = count([Some(200.0), None]);
        other.rows[0].failure = Some("valgrind: killed".to_owned());
        let cell = differences(count([Some(190.0), Some(70.0)]), &other);
        let row = &cell.rows[0];
        assert!((row.values("1, more")[0].unwrap() + 5.0).abs() < 1e-9);
        assert_eq!((row.values("1"), row.values("4")), (&[Some(190.0)][..], &[Some(70.0)][..]));
        assert_eq!(row.values("4, more"), [None]);
        assert_eq!(row.failure.as_deref(), Some("the other build: valgrind: killed"));
        assert!(cell.notes.is_empty());
        assert!(!crate::table::cell(&cell).contains("it/ours"));
    }
}
