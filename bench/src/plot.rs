//! The plot as SVG: each rival's processor time in S1 with 64 connections, divided by the port's.
//!
//! It shows only ratios, of turns of the same round in which the processors were equally far apart
//! for both. A request costs several times as much if they are far apart, so medians of all turns
//! would compare distances, not servers. Each of the two distances has a panel.
//!
//! The picture has a light background, so that it is readable on light and dark pages.

use std::fmt::Write as _;

mod shares;

use crate::report::{APART, Cell, Report, Row};
use crate::scenario::CPU;
use crate::statistics::{Estimate, estimate_present};
use crate::targets::{CONNECTIONS, OURS, THREADS};

/// Below this distance the processors are near each other, in nanoseconds.
const NEAR: f64 = 150.0;
/// Of fewer comparable rounds nothing is drawn.
const FEWEST: usize = 3;

/// The rivals in the order of the tables in the papers, by the names that they have there.
pub(crate) const NAMES: [(&str, &str); 9] = [
    ("epoll_one_shot", "epoll, one-shot + MOD"),
    ("epoll_one_shot_late", "epoll, one-shot + MOD after the batch"),
    ("polling", "polling"),
    ("tokio", "tokio"),
    ("mio", "mio, a Poll per thread"),
    ("uring", "io_uring, multishot receive, a ring per thread"),
    ("epoll_edge", "epoll, edge, a set per thread"),
    ("compio", "compio"),
    ("monoio", "monoio"),
];

const WIDTH: f64 = 900.0;
/// Where the names end and the first panel begins.
const LEFT: f64 = 196.0;
/// Between the panels.
const BETWEEN: f64 = 24.0;
const RIGHT: f64 = 16.0;
/// The column of numbers at the right of a panel.
const NUMBERS: f64 = 44.0;
const TOP: f64 = 112.0;
const BOTTOM: f64 = 62.0;
const LINE: f64 = 14.0;
const GAP: f64 = 10.0;
/// A line of a panel's remarks.
const REMARK: f64 = 16.0;
/// Longer names are broken.
const NAME: usize = 26;

pub(crate) const BACKGROUND: &str = "#ffffff";
pub(crate) const TEXT: &str = "#1f2328";
/// Every second rival.
const BAND: &str = "#f1f3f5";
pub(crate) const GRID: &str = "#d0d7de";
/// One for each number of threads, distinguishable by colour-blind readers and also by shape.
const COLOURS: [&str; THREADS.len()] = ["#0072b2", "#c44e00", "#00785a"];

/// One of the two adjacent pictures.
struct Panel {
    title: &'static str,
    /// By rival and number of threads.
    points: Vec<[Option<Point>; THREADS.len()]>,
    /// Missing data, with the reason.
    remarks: Vec<String>,
}

/// A ratio, and of how many rounds it is.
#[derive(Clone, Copy, Debug)]
struct Point {
    ratio: Estimate,
    rounds: usize,
}

/// The part of the axis that is shown.
#[derive(Clone, Copy, Debug)]
struct Scale {
    begin: f64,
    end: f64,
    step: f64,
}

/// The plot, or why there is none.
pub(crate) fn svg(report: &Report) -> Result<String, String> {
    let cells = || THREADS.iter().filter_map(|threads| report.cell("S1", *threads, CONNECTIONS));
    if cells().next().is_none() {
        return shares::svg(report).ok_or_else(|| {
            "no plot: S1 with 64 connections was not measured, nor R4a; `--scenario S1 --connections 64` does so".to_owned()
        });
    }
    if cells().flat_map(|cell| &cell.rows).all(|row| estimate_present(row.values(CPU)).is_none()) {
        return Err(
            "no plot: there are no values, since each contender failed; the table says why"
                .to_owned(),
        );
    }
    let rivals = rivals(cells());
    let is_noted = cells().flat_map(|cell| &cell.rows).any(|row| row.quantity(APART).is_some());
    let panels = if is_noted {
        vec![
            Panel::new(report, &rivals, "Processors near each other", "near", |it| it < NEAR),
            Panel::new(report, &rivals, "Processors far apart", "far apart", |it| it >= NEAR),
        ]
    } else {
        vec![Panel::of("It was not noted how far apart the processors were", report, &rivals, "")]
    };
    let scale = Scale::of(panels.iter().flat_map(Panel::ratios));
    Ok(draw(report, &rivals, &panels, scale))
}

/// All rivals in some cell: first those with a name in the papers, then the others. Variants of the
/// port are not rivals.
fn rivals<'r>(cells: impl Iterator<Item = &'r Cell>) -> Vec<&'r str> {
    let mut found: Vec<&str> = Vec::new();
    for row in cells.flat_map(|cell| &cell.rows) {
        let name = row.contender.as_str();
        if !name.starts_with(OURS) && !found.contains(&name) {
            found.push(name);
        }
    }
    let place = |name: &&str| NAMES.iter().position(|(known, _)| known == name);
    found.sort_by_key(|name| place(name).unwrap_or(NAMES.len()));
    found
}

/// What a contender is called in the papers.
pub(crate) fn name(contender: &str) -> &str {
    NAMES.iter().find(|(known, _)| *known == contender).map_or(contender, |(_, name)| name)
}

impl Panel {
    /// The turns in which the processors were at such a distance.
    fn new(
        report: &Report,
        rivals: &[&str],
        title: &'static str,
        word: &str,
        is_wanted: impl Fn(f64) -> bool,
    ) -> Panel {
        let mut report = report.clone();
        report.keep(is_wanted);
        Panel::of(title, &report, rivals, word)
    }

    fn of(title: &'static str, report: &Report, rivals: &[&str], word: &str) -> Panel {
        let mut points = vec![[None; THREADS.len()]; rivals.len()];
        let mut remarks = Vec::new();
        for (threads, column) in THREADS.into_iter().zip(0..) {
            let Some(cell) = report.cell("S1", threads, CONNECTIONS) else { continue };
            let Some(ours) = cell.row(OURS) else { continue };
            let found: Vec<Option<Point>> =
                rivals.iter().map(|rival| Point::of(cell.row(rival)?, ours)).collect();
            let rounds = || found.iter().map(|point| point.map_or(0, |point| point.rounds));
            for (row, point) in points.iter_mut().zip(&found) {
                row[column] = point.filter(|point| point.rounds >= FEWEST);
            }
            let name = counted(threads, "thread");
            let most = rounds().max().unwrap_or(0);
            if most == 0 && word.is_empty() {
                remarks.push(format!("{name}: nothing to compare"));
            } else if most == 0 {
                remarks.push(format!("{name}: no rounds with the processors {word}"));
            } else if most < FEWEST {
                remarks.push(format!("{name}: {most} such rounds or fewer, too few"));
            } else if rounds().any(|rounds| rounds < FEWEST) {
                remarks.push(format!("{name}, no mark: fewer than {FEWEST} rounds"));
            }
        }
        Panel { title, points, remarks }
    }

    fn ratios(&self) -> impl Iterator<Item = &Estimate> {
        self.points.iter().flatten().flatten().map(|point| &point.ratio)
    }
}

impl Point {
    fn of(rival: &Row, ours: &Row) -> Option<Point> {
        let ratio = rival.ratio(ours, CPU)?;
        Some(Point { ratio, rounds: rival.comparable(ours, CPU) })
    }
}

impl Scale {
    /// From the smallest to the largest drawn value, including 1.0.
    fn of<'e>(found: impl Iterator<Item = &'e Estimate>) -> Scale {
        let (mut least, mut most) = (1.0_f64, 1.0_f64);
        for ratio in found {
            let (low, high) = ratio.interval.unwrap_or((ratio.median, ratio.median));
            (least, most) = (least.min(low), most.max(high));
        }
        // The marks have one decimal place.
        let step = step(most - least).max(0.1);
        // Room for a mark on either side.
        let begin = ((least - step / 4.0) / step).floor() * step;
        let end = ((most + step / 4.0) / step).ceil() * step;
        Scale { begin, end, step }
    }

    /// The values at which a line is drawn.
    fn marks(self) -> impl Iterator<Item = f64> {
        let first = (self.begin / self.step).round();
        let values = (0..100_u8).map(move |place| (first + f64::from(place)) * self.step);
        values.take_while(move |value| *value < self.end + self.step / 2.0)
    }

    /// How far a value is from the left, if the panel is so wide.
    fn place(self, value: f64, width: f64) -> f64 {
        (value - self.begin) / (self.end - self.begin) * width
    }
}

fn draw(report: &Report, rivals: &[&str], panels: &[Panel], scale: Scale) -> String {
    let group = LINE * float(THREADS.len()) + GAP;
    let foot = TOP + group * float(rivals.len());
    let below = panels.iter().filter(|panel| panel.ratios().next().is_some());
    let remarks = below.map(|panel| panel.remarks.len()).max().unwrap_or(0);
    let height = foot + BOTTOM + REMARK * float(remarks);
    let machine = &report.machine;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"{TEXT}\" role=\"img\">\n\
         <title>Server CPU for each request: rival / port, above 1 the port needs less</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height:.0}\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n\
         <text x=\"16\" y=\"28\" font-size=\"17\" font-weight=\"bold\">Server CPU for each request, \
         rival / port. Above 1: the port needs less.</text>\n\
         <text x=\"16\" y=\"49\">Echo of 64 bytes, {CONNECTIONS} connections, {} processors, {} \
         {}, run of {}.</text>\n\
         <text x=\"{:.1}\" y=\"71.5\">Lines: intervals of 95 %. Hollow: too few rounds for \
         one.</text>\n",
        machine.processors,
        machine.system,
        escape(machine.kernel.split('-').next().unwrap_or_default()),
        escape(&machine.date.chars().take(16).collect::<String>().replace('T', " ")),
        LEFT + 124.0,
    );
    legend(&mut svg);
    for (index, rival) in rivals.iter().enumerate() {
        let top = TOP + group * float(index);
        if index % 2 == 0 {
            put(
                &mut svg,
                format_args!(
                    "<rect x=\"8\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{group:.1}\" \
                     fill=\"{BAND}\"/>\n",
                    WIDTH - 16.0
                ),
            );
        }
        label(&mut svg, name(rival), top + group / 2.0);
    }
    let count = float(panels.len());
    let width = (WIDTH - LEFT - RIGHT - BETWEEN * (count - 1.0)) / count;
    for (index, it) in panels.iter().enumerate() {
        let left = LEFT + (width + BETWEEN) * float(index);
        panel(&mut svg, it, scale, (left, width), (group, foot));
    }
    svg.push_str("</svg>\n");
    svg
}

/// A rival's name, on two lines if it is long.
fn label(svg: &mut String, name: &str, middle: f64) {
    let cut = name.char_indices().rfind(|(at, c)| *c == ' ' && *at <= NAME);
    let lines = match cut {
        Some((at, _)) if name.len() > NAME => vec![&name[..at], &name[at + 1..]],
        _ => vec![name],
    };
    let first = middle + 4.5 - 8.0 * (float(lines.len()) - 1.0);
    for (index, line) in lines.into_iter().enumerate() {
        put(
            svg,
            format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                LEFT - 12.0,
                first + 16.0 * float(index),
                escape(line)
            ),
        );
    }
}

fn panel(
    svg: &mut String,
    panel: &Panel,
    scale: Scale,
    (left, width): (f64, f64),
    (group, foot): (f64, f64),
) {
    put(
        svg,
        format_args!(
            "<text x=\"{left:.1}\" y=\"{:.1}\" font-weight=\"bold\">{}</text>\n",
            TOP - 14.0,
            panel.title
        ),
    );
    if panel.ratios().next().is_none() {
        // No axes without a value: a list of the missing data replaces them.
        let middle = f64::midpoint(TOP, foot) - REMARK * float(panel.remarks.len()) / 2.0;
        remarks(svg, &panel.remarks, left, middle);
        return;
    }
    remarks(svg, &panel.remarks, left, foot + 56.0);
    let inner = width - NUMBERS;
    let at = |value: f64| left + scale.place(value, inner);
    for value in scale.marks() {
        let x = at(value);
        let is_one = (value - 1.0).abs() < scale.step / 10.0;
        let (colour, thickness, weight) =
            if is_one { (TEXT, 1.6, " font-weight=\"bold\"") } else { (GRID, 1.0, "") };
        put(
            svg,
            format_args!(
                "<path d=\"M{x:.1} {TOP}V{foot:.1}\" stroke=\"{colour}\" \
                 stroke-width=\"{thickness}\"/>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\"{weight}>{value:.1}</text>\n",
                foot + 17.0,
            ),
        );
    }
    put(
        svg,
        format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\">the port needs less \u{2192}</text>\n",
            at(1.0) + 6.0,
            foot + 36.0
        ),
    );
    for (row, index) in panel.points.iter().zip(0..) {
        for (point, place) in row.iter().zip(0..) {
            let Some(point) = point else { continue };
            let y = TOP + group * float(index) + GAP / 2.0 + LINE * (float(place) + 0.5);
            mark(svg, &point.ratio, place, at, y);
            let doubt = if point.ratio.interval.is_none() { "?" } else { "" };
            put(
                svg,
                format_args!(
                    "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\">{:.2}{doubt}</text>\n",
                    left + inner + 8.0,
                    y + 4.2,
                    point.ratio.median
                ),
            );
        }
    }
}

fn remarks(svg: &mut String, remarks: &[String], left: f64, top: f64) {
    for (remark, index) in remarks.iter().zip(0..) {
        let y = top + REMARK * float(index);
        put(svg, format_args!("<text x=\"{left:.1}\" y=\"{y:.1}\">{remark}</text>\n"));
    }
}

/// A ratio with its interval: a circle, a square or a diamond by the number of threads.
fn mark(svg: &mut String, ratio: &Estimate, place: usize, at: impl Fn(f64) -> f64, y: f64) {
    let (x, colour) = (at(ratio.median), COLOURS[place]);
    if let Some((low, high)) = ratio.interval {
        put(
            svg,
            format_args!(
                "<path d=\"M{:.1} {y:.1}H{:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>\n",
                at(low),
                at(high)
            ),
        );
    }
    shape(svg, place, (x, y), ratio.interval.is_some());
}

fn shape(svg: &mut String, place: usize, (x, y): (f64, f64), is_full: bool) {
    let outline = match place {
        0 => format!("M{:.1} {y:.1}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z", x - 4.5),
        1 => format!("M{:.1} {:.1}h8v8h-8z", x - 4.0, y - 4.0),
        _ => format!("M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5z", y - 5.5),
    };
    let colour = COLOURS[place];
    let fill = if is_full { colour } else { BACKGROUND };
    put(
        svg,
        format_args!(
            "<path class=\"mark\" d=\"{outline}\" fill=\"{fill}\" stroke=\"{colour}\" \
             stroke-width=\"1.5\"/>\n"
        ),
    );
}

/// Which mark is which number of threads.
fn legend(svg: &mut String) {
    for (threads, place) in THREADS.into_iter().zip(0..) {
        let x = 22.0 + 96.0 * float(place);
        shape(svg, place, (x, 67.0), true);
        put(
            svg,
            format_args!(
                "<text x=\"{:.1}\" y=\"71.5\">{}</text>\n",
                x + 11.0,
                counted(threads, "thread")
            ),
        );
    }
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

pub(crate) fn put(svg: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _: std::fmt::Result = svg.write_fmt(what);
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// The distance of the marks: 1, 2 or 5 times a power of ten, four to ten of them.
pub(crate) fn step(largest: f64) -> f64 {
    let power = 10_f64.powf((largest / 4.0).log10().floor());
    [5.0, 2.0, 1.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| largest / step >= 4.0)
        .unwrap_or(power)
}

#[allow(clippy::cast_precision_loss, reason = "these are numbers of bars, or of registrations")]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::report::tests::{cell, report};

    /// With one and two threads, and that many rounds with near processors before those with far
    /// ones.
    fn measured(near: usize, far: usize) -> Report {
        let of = |threads, rival: f64| {
            // Far apart everything costs three times as much, and the rival a tenth less than that.
            let values =
                |value: f64, far_value: f64| [vec![value; near], vec![far_value; far]].concat();
            let values = [
                ("ours", values(5000.0, 15_000.0)),
                ("ours_in_c", values(5000.0, 15_000.0)),
                ("mio", values(rival, rival * 2.7)),
                ("fresh", values(rival, rival * 2.7)),
            ];
            let mut cell = cell("S1", threads, 64, CPU, "ns", &values);
            for row in &mut cell.rows {
                for round in 0..near + far {
                    row.push(APART, "ns", Some(if round < near { 50.0 } else { 500.0 }));
                }
            }
            cell
        };
        report(vec![of(1, 6000.0), of(2, 8000.0)])
    }

    /// All tags are closed in the order in which they were opened.
    pub(crate) fn is_well_formed(svg: &str) -> bool {
        let mut open: Vec<&str> = Vec::new();
        for tag in svg.split('<').skip(1) {
            let Some((tag, _)) = tag.split_once('>') else { return false };
            if let Some(name) = tag.strip_prefix('/') {
                if open.pop() != Some(name) {
                    return false;
                }
            } else if !tag.ends_with('/') {
                open.extend(tag.split(' ').next());
            }
        }
        open.is_empty()
    }

    /// The marks outside the legend.
    fn marks(svg: &str) -> usize {
        svg.matches("class=\"mark\"").count() - THREADS.len()
    }

    #[test]
    fn near_and_far_turns_are_compared_each_among_themselves() {
        let svg = svg(&measured(6, 7)).unwrap();
        assert!(is_well_formed(&svg), "{svg}");
        // Two rivals, two numbers of threads, two panels.
        assert_eq!(marks(&svg), 8);
        for (text, times) in [(">1.20<", 2), (">1.60<", 2), (">1.08<", 2), (">1.44<", 2)] {
            assert_eq!(svg.matches(text).count(), times, "{text} in {svg}");
        }
        for text in [">Processors near", ">Processors far", ">mio, a Poll per thread<", ">fresh<"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert!(!svg.contains("in_c") && !svg.contains("no rounds"), "{svg}");
        // A line at 1.0 in each panel, and its meaning in words.
        assert_eq!(svg.matches("font-weight=\"bold\">1.0<").count(), 2);
        assert!(svg.contains("Above 1: the port needs less."), "{svg}");
    }

    #[test]
    fn a_panel_says_which_turns_are_missing() {
        let svg = |near, far| svg(&measured(near, far)).unwrap();
        let no_far = svg(6, 0);
        assert!(no_far.contains(">1 thread: no rounds with the processors far apart<"), "{no_far}");
        assert!(
            no_far.contains(">2 threads: no rounds with the processors far apart<"),
            "{no_far}"
        );
        assert!(!no_far.contains("processors near<"), "{no_far}");
        assert_eq!(marks(&no_far), 4);
        let two_far = svg(6, 2);
        assert!(two_far.contains(">1 thread: 2 such rounds or fewer, too few<"), "{two_far}");
        assert_eq!(marks(&two_far), 4);
        let neither = svg(2, 2);
        assert_eq!(marks(&neither), 0);
        assert!(is_well_formed(&neither) && !neither.contains("NaN"), "{neither}");
    }

    #[test]
    fn without_an_interval_a_mark_is_hollow_and_its_number_has_a_question_mark() {
        let svg = svg(&measured(6, 3)).unwrap();
        assert_eq!(svg.matches(">1.20<").count(), 2);
        assert_eq!(svg.matches(">1.08?<").count(), 2);
        let hollow = format!("fill=\"{BACKGROUND}\" stroke=");
        assert_eq!(svg.matches(&hollow).count(), 4);
    }

    #[test]
    fn where_no_distance_was_noted_there_is_one_panel() {
        let mut report = measured(6, 0);
        for row in report.cells.iter_mut().flat_map(|cell| &mut cell.rows) {
            row.quantities.retain(|quantity| quantity.name != APART);
        }
        let svg = svg(&report).unwrap();
        assert_eq!(marks(&svg), 4);
        assert!(svg.contains("It was not noted how far apart"), "{svg}");
    }

    #[test]
    fn a_value_stands_where_the_scale_says_and_1_is_always_on_it() {
        let of = |low: f64, high: f64| Estimate { median: low, interval: Some((low, high)) };
        let scale = Scale::of([of(1.11, 1.42), of(1.3, 1.58)].iter());
        assert!(scale.begin < 1.0 && scale.end >= 1.58, "{scale:?}");
        assert!((scale.place(scale.begin, 200.0)).abs() < 0.01);
        assert!((scale.place(f64::midpoint(scale.begin, scale.end), 200.0) - 100.0).abs() < 0.01);
        assert!(scale.marks().any(|mark| (mark - 1.0).abs() < 0.001), "{scale:?}");
        assert!((Scale::of([].iter()).place(1.0, 1.0)).is_finite());
        let close = Scale::of([of(0.99, 1.04)].iter());
        let marks: Vec<String> = close.marks().map(|mark| format!("{mark:.1}")).collect();
        assert_eq!(marks, ["0.9", "1.0", "1.1"]);
    }

    #[test]
    fn without_values_there_is_no_plot() {
        assert!(svg(&report(Vec::new())).unwrap_err().contains("not measured"));
        let empty = report(vec![cell("S1", 2, 64, CPU, "ns", &[("ours", Vec::new())])]);
        assert!(svg(&empty).unwrap_err().contains("no values"));
    }

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!(step(8000.0), 2000.0);
        assert_eq!(step(3900.0), 500.0);
        assert_eq!(step(40.0), 10.0);
    }

    /// Of the luminances of two colours `#rrggbb`, as WCAG has it.
    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |colour: &str| -> f64 {
            let part = |at: usize| {
                let value = u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
                let value = f64::from(value) / 255.0;
                if value <= 0.039_28 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
        };
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn text_and_marks_can_be_told_from_what_is_behind_them() {
        let svg = svg(&measured(6, 6)).unwrap();
        let whole = format!("<rect width=\"{WIDTH}\"");
        assert!(svg.contains(&whole) && svg.contains(&format!("fill=\"{BACKGROUND}\"/>")), "{svg}");
        for behind in [BACKGROUND, BAND] {
            assert!(contrast(TEXT, behind) > 7.0, "{TEXT} on {behind}");
            for colour in COLOURS {
                assert!(contrast(colour, behind) > 4.0, "{colour} on {behind}");
            }
        }
    }

    /// The pages name the file from which their plots and the table are, and the command.
    #[test]
    fn the_papers_have_the_plot_and_the_table_of_the_file_that_they_name() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
        let papers = ["README.md", "bench/results/RUNS.md"].map(read);
        let mut reports = Vec::new();
        for line in papers.iter().flat_map(|paper| paper.lines()) {
            let Some((_, arguments)) = line.split_once("cargo run --release -- bench report ")
            else {
                continue;
            };
            let words: Vec<&str> = arguments.split(' ').collect();
            // The command is also named for files of any name.
            let [file, "--plot", plot] = words[..] else { continue };
            let report = Report::read(&root.join(file)).unwrap();
            assert!(svg(&report).unwrap() == read(plot), "{plot} is not what the command makes");
            reports.push(report);
        }
        // The first is the README's, and the newest.
        assert_eq!(reports.len(), 5);
        let report = &reports[0];
        let rows =
            papers[1].lines().skip_while(|line| !line.starts_with("| rival / ours, server CPU"));
        let rows: Vec<&str> = rows.skip(2).take_while(|line| line.starts_with('|')).collect();
        assert_eq!(rows.len(), NAMES.len());
        for ((contender, name), row) in NAMES.into_iter().zip(rows) {
            let fields: Vec<String> =
                row.split('|').map(|field| field.trim().replace('`', "")).collect();
            assert_eq!(fields[1], name);
            for (threads, field) in THREADS.into_iter().zip(&fields[2..]) {
                let cell = report.cell("S1", threads, CONNECTIONS).unwrap();
                let ratio = cell.row(contender).unwrap().ratio(cell.row(OURS).unwrap(), CPU);
                let ratio = ratio.unwrap();
                let doubt = if ratio.interval.is_none() { "?" } else { "" };
                assert_eq!(*field, format!("{:.2}{doubt}", ratio.median), "{name}, {threads}");
            }
        }
    }
}
