//! The plot of R4a: the p99 of the quick requests against the share of requests that block, a line
//! for each runtime.

use crate::names::runtimes::{EAGER, MORE_WORKERS, OURS, SMOL, SPAWN_BLOCKING, TOKIO, with_share};
use crate::options::BLOCKING;
use crate::plot::{BACKGROUND, GRID, TEXT, escape, float, put};
use crate::report::{Cell, Report};
use crate::statistics::{Estimate, estimate_present};

/// Of how many requests one blocks, from left to right; 0: none.
const SHARES: [u32; 6] = [0, 200, 100, 50, 20, 10];

/// A line: the contender, its name in the plot, and its colour.
const LINES: [(&str, &str, &str); 6] = [
    (OURS, "ours", "#0072b2"),
    (TOKIO, "tokio", "#c44e00"),
    (MORE_WORKERS, "tokio, as many workers as ours has threads", "#e0a000"),
    (SPAWN_BLOCKING, "tokio, spawn_blocking", "#00785a"),
    (EAGER, "tokio, eager hand-off of the driver", "#a03080"),
    (SMOL, "smol", "#606770"),
];

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 130.0;
const BOTTOM: f64 = 56.0;

/// The part of the logarithmic axis that is shown, in powers of ten of a microsecond.
#[derive(Clone, Copy)]
struct Scale {
    begin: i32,
    end: i32,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>) -> Scale {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for value in values {
            (least, most) = (least.min(value), most.max(value));
        }
        #[allow(clippy::cast_possible_truncation, reason = "a power of ten of a time")]
        let power = |value: f64| value.max(1.0).log10() as i32;
        let begin = if least.is_finite() { power(least) } else { 0 };
        Scale { begin, end: power(most).max(begin) + 1 }
    }

    /// How far from the top a time in microseconds is.
    fn place(self, value: f64) -> f64 {
        let share =
            (value.max(1.0).log10() - f64::from(self.begin)) / f64::from(self.end - self.begin);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }
}

fn column(index: usize) -> f64 {
    let distance = (WIDTH - LEFT - RIGHT) / float(SHARES.len());
    LEFT + distance * (float(index) + 0.5)
}

/// The plot; `None` if the report has no cell with all the shares.
pub(super) fn svg(report: &Report) -> Option<String> {
    let has = |cell: &Cell, share: &u32| cell.row(&with_share(OURS, *share)).is_some();
    let is_it = |cell: &&Cell| cell.scenario == BLOCKING && SHARES.iter().all(|it| has(cell, it));
    report.cells.iter().find(is_it).map(|cell| draw(report, cell))
}

fn points(cell: &Cell, contender: &str) -> Vec<(usize, Estimate)> {
    let of = |(index, share): (usize, &u32)| {
        let row = cell.row(&with_share(contender, *share))?;
        Some((index, estimate_present(row.values("p99"))?))
    };
    SHARES.iter().enumerate().filter_map(of).collect()
}

fn draw(report: &Report, cell: &Cell) -> String {
    let lines = LINES.map(|(contender, _, _)| points(cell, contender));
    let all = lines.iter().flatten().flat_map(|(_, estimate)| {
        let (low, high) = estimate.interval.unwrap_or((estimate.median, estimate.median));
        [low, high]
    });
    let scale = Scale::of(all);
    let machine = &report.machine;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"{TEXT}\" role=\"img\">\n\
         <title>The p99 of quick requests against the share of requests that block</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n\
         <text x=\"16\" y=\"28\" font-size=\"17\" font-weight=\"bold\">p99 of quick requests, by the \
         share of requests that block.</text>\n\
         <text x=\"16\" y=\"49\">{}; {} processors, {}.</text>\n",
        escape(cell.title.split(", by the share").next().unwrap_or_default()),
        machine.processors,
        escape(&machine.date.chars().take(10).collect::<String>()),
    );
    axes(&mut svg, scale);
    for (index, (points, (_, name, colour))) in lines.iter().zip(LINES).enumerate() {
        if !points.is_empty() {
            line(&mut svg, points, scale, colour);
            legend(&mut svg, index, name, colour);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn axes(svg: &mut String, scale: Scale) {
    for power in scale.begin..=scale.end {
        let time = 10_f64.powi(power);
        let y = scale.place(time);
        let label = if power < 3 { format!("{time} us") } else { format!("{} ms", time / 1e3) };
        put(
            svg,
            format_args!(
                "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"{GRID}\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\n",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.5
            ),
        );
    }
    for (index, share) in SHARES.iter().enumerate() {
        let share = if *share == 0 { 0.0 } else { 100.0 / f64::from(*share) };
        put(
            svg,
            format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{share} %</text>\n",
                column(index),
                HEIGHT - BOTTOM + 22.0
            ),
        );
    }
}

fn line(svg: &mut String, points: &[(usize, Estimate)], scale: Scale, colour: &str) {
    let at = |(index, estimate): &(usize, Estimate)| {
        format!("{:.1} {:.1}", column(*index), scale.place(estimate.median))
    };
    let path: Vec<String> = points.iter().map(at).collect();
    put(
        svg,
        format_args!(
            "<path class=\"line\" d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n",
            path.join("L")
        ),
    );
    for (index, estimate) in points {
        let (x, y) = (column(*index), scale.place(estimate.median));
        if let Some((low, high)) = estimate.interval {
            put(
                svg,
                format_args!(
                    "<path d=\"M{x:.1} {:.1}V{:.1}\" stroke=\"{colour}\"/>\n",
                    scale.place(low),
                    scale.place(high)
                ),
            );
        }
        // Hollow: too few rounds for an interval.
        let fill = if estimate.interval.is_some() { colour } else { BACKGROUND };
        put(
            svg,
            format_args!(
                "<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" \
                 stroke=\"{colour}\"/>\n"
            ),
        );
    }
}

fn legend(svg: &mut String, index: usize, name: &str, colour: &str) {
    let (x, y) = (22.0 + 290.0 * float(index % 3), 74.0 + 22.0 * float(index / 3));
    put(
        svg,
        format_args!(
            "<path d=\"M{x:.1} {y:.1}h22\" stroke=\"{colour}\" stroke-width=\"3\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{name}</text>\n",
            x + 30.0,
            y + 4.5
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::tests::is_well_formed;
    use crate::report::tests::{cell, report};

    fn measured(rounds: usize) -> Report {
        let names: Vec<(String, f64)> = SHARES
            .iter()
            .flat_map(|share| [(OURS, 400.0), (TOKIO, 5000.0)].map(|it| (it, *share)))
            .map(|((name, p99), share)| (with_share(name, share), p99))
            .collect();
        let values: Vec<(&str, Vec<f64>)> =
            names.iter().map(|(name, p99)| (&**name, vec![*p99; rounds])).collect();
        report(vec![cell(BLOCKING, 2, 64, "p99", "us", &values)])
    }

    #[test]
    fn each_runtime_has_a_line_with_all_shares() {
        let svg = svg(&measured(6)).unwrap();
        assert!(is_well_formed(&svg), "{svg}");
        assert_eq!(svg.matches("class=\"line\"").count(), 2);
        assert_eq!(svg.matches("class=\"mark\"").count(), 2 * SHARES.len());
        assert!(svg.contains(">0.5 %<") && svg.contains(">10 ms<"), "{svg}");
        assert!(!svg.contains("smol"), "{svg}");
    }

    #[test]
    fn marks_without_an_interval_are_hollow() {
        let full = |rounds| svg(&measured(rounds)).unwrap().matches("fill=\"#0072b2\"").count();
        assert_eq!((full(6), full(2)), (SHARES.len(), 0));
    }

    #[test]
    fn without_all_shares_there_is_no_plot() {
        let mut report = measured(6);
        report.cells[0].rows.retain(|row| row.contender != with_share(OURS, 20));
        assert_eq!(svg(&report), None);
    }
}
