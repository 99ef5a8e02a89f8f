//! The demo's output: line by line for people, one JSON document for programs.

use std::time::Instant;

use serde_json::{Value, json};

use super::progress::{Progress, shown};
use super::{Check, Outcome, Scenario, Title};
use crate::failure::{Failure, ISSUES};
use crate::terminal::{can_redraw, fitted, output_width};
use crate::text::{bytes, counted, grouped, say, show};

/// Columns of the terminal that a table of all scenarios needs: names, and a cell for each.
const NAMES: usize = 31;
const CELL: usize = 16;

/// Maximum length of lines of prose, whatever the terminal's width.
const PROSE: usize = 96;
/// The footnote of the summary.
const NOTE: &str = "   * Threads that had packets at the same time, counted in the handlers. \
                    More than the concurrency value is possible: a thread that falls asleep in \
                    the kernel meanwhile (on a lock, on a page fault) is replaced, and runs in \
                    parallel with its substitute once it wakes.\n";

/// The audience of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// A person at a terminal, who watches the progress.
    Terminal,
    /// A file or a pipe: plain lines.
    Lines,
    /// A program.
    Json,
}

/// The scenarios so far, and how to show them.
pub(crate) struct Report {
    reader: Reader,
    begin: Instant,
    scenarios: Vec<Scenario>,
}

impl Report {
    pub(crate) fn begin(json: bool) -> Result<Self, Failure> {
        let reader = match (json, can_redraw()) {
            (true, _) => Reader::Json,
            (false, true) => Reader::Terminal,
            (false, false) => Reader::Lines,
        };
        if reader != Reader::Json {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            show(format_args!(
                "Four servers on an I/O completion port, with real clients on loopback ({}).\n",
                counted(processors as u64, "processor")
            ))?;
        }
        Ok(Self { reader, begin: Instant::now(), scenarios: Vec::new() })
    }

    /// Runs one scenario and shows the result.
    pub(crate) fn scenario(
        &mut self,
        title: Title,
        run: impl FnOnce(&Progress) -> Result<Outcome, Failure>,
    ) -> Result<(), Failure> {
        if self.reader != Reader::Json {
            let number = self.scenarios.len() + 1;
            show(format_args!("\n{number}. {}\n   {}\n", title.title, title.about))?;
        }
        let progress = Progress::default();
        let ran = match self.reader {
            Reader::Terminal => shown(&progress, || run(&progress)),
            Reader::Lines | Reader::Json => run(&progress),
        };
        let result = match ran {
            Ok(outcome) => Ok(outcome),
            Err(Failure::Wrong(reason)) => Err(reason),
            Err(unusable) => return Err(unusable),
        };
        let scenario = Scenario { title, result };
        if self.reader != Reader::Json {
            show(format_args!("{}", verdicts(&scenario)))?;
        }
        self.scenarios.push(scenario);
        Ok(())
    }

    /// Shows the summary; fails if a scenario has failed.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        if self.reader == Reader::Json {
            say(format_args!("{:#}\n", self.document()))?;
        } else {
            show(format_args!("{}", self.summary(output_width())))?;
        }
        self.verdict()
    }

    fn verdict(&self) -> Result<(), Failure> {
        match self.fault() {
            Some(fault) => {
                Err(Failure::Wrong(format!("the demo failed: {fault}; please report it: {ISSUES}")))
            }
            None => Ok(()),
        }
    }

    fn fault(&self) -> Option<String> {
        self.scenarios.iter().find_map(|scenario| {
            scenario.fault().map(|fault| format!("{}: {fault}", scenario.title.name))
        })
    }

    fn summary(&self, width: Option<usize>) -> String {
        let ran = self.scenarios.iter().filter_map(|scenario| {
            scenario.result.as_ref().ok().map(|outcome| (scenario.title.name, outcome))
        });
        let columns = ran.collect::<Vec<_>>();
        let mut text = String::from("\nSummary\n");
        // If there is no room for all of them, each has its own table.
        let all = NAMES + CELL * columns.len();
        if width.is_none_or(|width| all <= width) {
            text.push_str(&table(&columns));
        } else {
            let tables = columns.chunks(1).map(table).collect::<Vec<_>>();
            text.push_str(&tables.join("\n"));
        }
        for (name, outcome) in &columns {
            if outcome.by_thread.len() > 1 {
                text.push_str(&format!(
                    "\n   packets by thread ({name}; the thread that waited last goes first)\n"
                ));
                let room = width.map_or(8, |width| (width.saturating_sub(3) / 9).clamp(1, 8));
                for line in outcome.by_thread.chunks(room) {
                    let cells = line.iter().map(|count| format!("{:>9}", grouped(*count)));
                    text.push_str(&format!("   {}\n", cells.collect::<String>()));
                }
            }
        }
        text.push('\n');
        text.push_str(&fitted(NOTE, Some(width.unwrap_or(PROSE).min(PROSE))));
        let outcome = match self.fault() {
            None => "All checks passed".into(),
            Some(fault) => format!("FAILED: {fault}"),
        };
        text + &format!("\n{outcome} ({:.1} s).\n", self.begin.elapsed().as_secs_f64())
    }

    fn document(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "passed": self.fault().is_none(),
            "fault": self.fault(),
            "seconds": self.begin.elapsed().as_secs_f64(),
            "scenarios": self.scenarios.iter().map(scenario_document).collect::<Vec<_>>(),
        })
    }
}

/// A column for each scenario.
fn table(columns: &[(&'static str, &Outcome)]) -> String {
    let mut text = String::new();
    let mut row = |name: &str, cell: &dyn Fn(&'static str, &Outcome) -> String| {
        let cells = columns.iter().map(|(name, outcome)| cell(name, outcome));
        let cells = cells.map(|cell| format!("{cell:>CELL$}")).collect::<String>();
        text.push_str(&format!("   {name:<0$}{cells}\n", NAMES - 3));
    };
    row("", &|name, _| name.into());
    row("connections", &|_, outcome| grouped(outcome.connections));
    row("received", &|_, outcome| bytes(outcome.received));
    row("sent", &|_, outcome| bytes(outcome.sent));
    row("packets: notified", &|_, outcome| grouped(outcome.stats.packets.notified));
    row("         ready", &|_, outcome| grouped(outcome.stats.packets.ready));
    row("         posted", &|_, outcome| grouped(outcome.stats.packets.posted));
    row("         removed", &|_, outcome| grouped(outcome.stats.packets.removed));
    row("         completed", &|_, outcome| grouped(outcome.stats.packets.completed));
    row("threads", &|_, outcome| grouped(outcome.by_thread.len() as u64));
    row("concurrency value", &|_, outcome| grouped(outcome.stats.concurrency as u64));
    row("threads at work, peak *", &|_, outcome| grouped(outcome.peak as u64));
    row("threads woken", &|_, outcome| grouped(outcome.stats.wakes));
    row("  of them for nothing", &|_, outcome| grouped(outcome.stats.spurious_wakes));
    row("kernel asked for events", &|_, outcome| grouped(outcome.stats.polls));
    row("time", &|_, outcome| format!("{:.3} s", outcome.elapsed.as_secs_f64()));
    text
}

/// The checks, line by line.
fn verdicts(scenario: &Scenario) -> String {
    match &scenario.result {
        Err(reason) => format!("   FAILED  {reason}\n"),
        Ok(outcome) => {
            let line = |check: &Check| {
                let word = if check.passed { "ok    " } else { "FAILED" };
                format!("   {word}  {}: {}\n", check.claim, check.detail)
            };
            outcome.checks.iter().map(line).collect()
        }
    }
}

fn scenario_document(scenario: &Scenario) -> Value {
    let mut document = json!({
        "name": scenario.title.name,
        "title": scenario.title.title,
        "passed": scenario.fault().is_none(),
        "fault": scenario.fault(),
    });
    let Ok(outcome) = &scenario.result else { return document };
    let stats = outcome.stats;
    let check = |check: &Check| json!({ "claim": check.claim, "passed": check.passed, "detail": check.detail });
    let more = json!({
        "seconds": outcome.elapsed.as_secs_f64(),
        "backend": stats.backend,
        "connections": outcome.connections,
        "bytes": { "received": outcome.received, "sent": outcome.sent },
        "packets": {
            "ready": stats.packets.ready,
            "notified": stats.packets.notified,
            "posted": stats.packets.posted,
            "removed": stats.packets.removed,
            "completed": stats.packets.completed,
            "total": stats.packets.total(),
        },
        "threads": outcome.by_thread.len(),
        "packets_by_thread": outcome.by_thread,
        "concurrency": stats.concurrency,
        "threads_at_work_peak": outcome.peak,
        "wakes": stats.wakes,
        "spurious_wakes": stats.spurious_wakes,
        "polls": stats.polls,
        "checks": outcome.checks.iter().map(check).collect::<Vec<_>>(),
    });
    for source in [more, outcome.more.iter().copied().collect()] {
        if let (Value::Object(all), Value::Object(more)) = (&mut document, source) {
            all.extend(more);
        }
    }
    document
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use completion_port::Port;

    use super::{Reader, Report};
    use crate::demo::{Check, Outcome, Scenario, Title};
    use crate::failure::Failure;

    fn scenario(checks: Vec<Check>) -> Scenario {
        let outcome = Outcome {
            connections: 3,
            received: 0,
            sent: 0,
            by_thread: vec![1, 2],
            peak: 1,
            stats: Port::<()>::new().unwrap().stats(),
            elapsed: Duration::ZERO,
            more: vec![("edges", 5)],
            checks,
        };
        let title = Title { name: "some", title: "Some scenario", about: "to be shown" };
        Scenario { title, result: Ok(outcome) }
    }

    fn report(scenarios: Vec<Scenario>) -> Report {
        Report { reader: Reader::Lines, begin: Instant::now(), scenarios }
    }

    #[test]
    fn one_check_that_fails_fails_the_whole_with_its_reason() {
        let good = scenario(vec![Check::count("good", 1, 1), Check::no_error("errors", None)]);
        assert!(report(vec![good]).verdict().is_ok());

        let good = Check::count("good", 1, 1);
        let report = report(vec![scenario(vec![good, Check::count("keys came back", 100, 101)])]);
        let document = report.document();
        assert_eq!(document["passed"], false);
        assert_eq!(document["scenarios"][0]["checks"][0]["passed"], true);
        assert_eq!(document["scenarios"][0]["edges"], 5);
        assert!(report.summary(None).contains("FAILED: some: keys came back: 100 of 101"));
        match report.verdict() {
            Err(Failure::Wrong(reason)) => assert!(reason.contains("100 of 101"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_scenario_that_could_not_run_fails_the_whole() {
        let mut broken = scenario(Vec::new());
        broken.result = Err("no luck".into());
        let report = report(vec![broken]);
        assert_eq!(report.document()["scenarios"][0]["fault"], "no luck");
        assert!(report.verdict().is_err());
    }
}
