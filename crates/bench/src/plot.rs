//! The plot: server processor time for each request in S1 with 64 connections, as SVG.
//!
//! The background stays transparent and all colours are of middle lightness, so that the picture can
//! be read on white and on black.

use std::fmt::Write as _;

use crate::report::Report;
use crate::scenario::CPU;
use crate::statistics::{Estimate, estimate_present};
use crate::targets::{CONNECTIONS, OURS, THREADS};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 34.0;
const BAR: f64 = 11.0;
const GAP: f64 = 11.0;
/// One for each number of threads, from light to dark, each far enough from white and from black.
const COLOURS: [&str; 3] = ["#6aa5dd", "#3b82c4", "#2763a0"];
const OUR_COLOURS: [&str; 3] = ["#f0a35e", "#e07b20", "#b85c0c"];
pub(crate) const TEXT: &str = "#808080";

/// The plot, or why there is none.
pub(crate) fn svg(report: &Report) -> Result<String, String> {
    let cells: Vec<_> = THREADS
        .iter()
        .zip(0..)
        .filter_map(|(threads, colour)| Some((report.cell("S1", *threads, CONNECTIONS)?, colour)))
        .collect();
    let Some((first, _)) = cells.first() else {
        return Err("no plot: S1 with 64 connections was not measured".to_owned());
    };
    let names: Vec<&str> = first.rows.iter().map(|row| &*row.contender).collect();
    let bars: Vec<Vec<(usize, Estimate)>> = names
        .iter()
        .map(|name| {
            let of_cell = |(cell, colour): &(&crate::report::Cell, usize)| {
                Some((*colour, estimate_present(cell.row(name)?.values(CPU))?))
            };
            cells.iter().filter_map(of_cell).collect()
        })
        .collect();
    let top_value = |found: &Estimate| found.interval.map_or(found.median, |(_, high)| high);
    let largest = bars.iter().flatten().map(|(_, found)| top_value(found)).fold(0.0, f64::max);
    if largest <= 0.0 {
        return Err("no plot: there are no values".to_owned());
    }
    let step = step(largest);
    let end = (largest / step).ceil() * step;
    let scale = (WIDTH - LEFT - RIGHT) / end;
    let group = BAR * float(cells.len()) + GAP;
    let foot = TOP + group * float(names.len());
    let height = foot + BOTTOM;

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"{TEXT}\" role=\"img\">\n\
         <title>Server processor time per request</title>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"15\" font-weight=\"bold\">Server processor time \
         per request, in microseconds</text>\n"
    );
    legend(&mut svg, report, &cells.iter().map(|(_, colour)| *colour).collect::<Vec<_>>());
    let mut value = 0.0;
    while value <= end + step / 2.0 {
        let x = LEFT + value * scale;
        put(
            &mut svg,
            format_args!(
                "<path d=\"M{x:.1} {TOP}V{foot:.1}\" stroke=\"{TEXT}\" stroke-opacity=\".35\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
                foot + 18.0,
                value / 1000.0,
            ),
        );
        value += step;
    }
    for ((name, bars), index) in names.iter().zip(&bars).zip(0..) {
        let y = TOP + GAP / 2.0 + group * float(index);
        let weight = if index == 0 { " font-weight=\"bold\"" } else { "" };
        let name = if *name == OURS { "completion-port" } else { *name };
        put(
            &mut svg,
            format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\"{weight}>{name}</text>\n",
                LEFT - 8.0,
                y + BAR * float(cells.len()) / 2.0 + 4.0,
            ),
        );
        let colours = if index == 0 { OUR_COLOURS } else { COLOURS };
        for ((colour, found), place) in bars.iter().zip(0..) {
            bar(&mut svg, found, scale, y + BAR * float(place), colours[*colour]);
        }
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// A bar with the interval of its median, and the median as a number.
fn bar(svg: &mut String, found: &Estimate, scale: f64, y: f64, colour: &str) {
    let (end, middle) = (found.median * scale, y + BAR / 2.0);
    put(
        svg,
        format_args!(
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{end:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\n",
            BAR - 1.5,
        ),
    );
    let (low, high) = found.interval.unwrap_or((found.median, found.median));
    let (low, high) = (LEFT + low * scale, LEFT + high * scale);
    let end = LEFT + end;
    if found.interval.is_some() {
        // The part on the bar is white, the part beyond it as the text is.
        for (from, to, mark, colour) in [(low, end, low, "#fff"), (end, high, high, TEXT)] {
            put(
                svg,
                format_args!(
                    "<path d=\"M{from:.1} {middle:.1}H{to:.1}M{mark:.1} {:.1}v5\" \
                     stroke=\"{colour}\" stroke-width=\"1.4\"/>\n",
                    middle - 2.5,
                ),
            );
        }
    }
    put(
        svg,
        format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\">{:.2}</text>\n",
            high.max(end) + 5.0,
            middle + 3.0,
            found.median / 1000.0,
        ),
    );
}

/// Which shade is which number of threads, and what was measured where.
fn legend(svg: &mut String, report: &Report, colours: &[usize]) {
    for (index, colour) in colours.iter().enumerate() {
        let x = LEFT + 90.0 * float(index);
        let threads = THREADS[*colour];
        let plural = if threads == 1 { "" } else { "s" };
        put(
            svg,
            format_args!(
                "<rect x=\"{x:.1}\" y=\"34\" width=\"10\" height=\"10\" fill=\"{}\"/>\
             <rect x=\"{:.1}\" y=\"34\" width=\"10\" height=\"10\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"43\">{threads} thread{plural}</text>\n",
                OUR_COLOURS[*colour],
                x + 11.0,
                COLOURS[*colour],
                x + 26.0,
            ),
        );
    }
    let x = LEFT + 90.0 * float(colours.len()) + 12.0;
    put(
        svg,
        format_args!(
            "<text x=\"{x:.1}\" y=\"43\">{CONNECTIONS} connections, {} processors, Linux {}</text>\n",
            report.machine.processors,
            escape(&report.machine.kernel),
        ),
    );
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
    use super::*;
    use crate::report::tests::{cell, report};

    fn measured() -> Report {
        let values = |ours: f64, mio: f64| [("ours", vec![ours; 6]), ("mio", vec![mio; 6])];
        report(vec![
            cell("S1", 1, 64, CPU, "ns", &values(5000.0, 6000.0)),
            cell("S1", 2, 64, CPU, "ns", &values(5500.0, 8000.0)),
        ])
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

    #[test]
    fn there_is_a_bar_for_each_contender_and_number_of_threads() {
        let svg = svg(&measured()).unwrap();
        assert!(is_well_formed(&svg), "{svg}");
        assert_eq!(svg.matches(" height=\"9.5\"").count(), 4);
        for text in [">completion-port<", ">mio<", ">1 thread<", ">2 threads<", ">5.00<", ">8.00<"]
        {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert!(!svg.contains("4 threads"));
        assert!(svg.len() < 10_000);
    }

    #[test]
    fn the_length_of_a_bar_is_in_proportion() {
        let svg = svg(&measured()).unwrap();
        let widths: Vec<f64> = svg
            .lines()
            .filter(|line| line.contains("height=\"9.5\""))
            .map(|line| line.split("width=\"").nth(1).unwrap().split('"').next().unwrap())
            .map(|width| width.parse().unwrap())
            .collect();
        assert_eq!(widths.len(), 4);
        assert!((widths[3] / widths[0] - 1.6).abs() < 0.01, "{widths:?}");
        assert!(widths.iter().all(|width| *width <= WIDTH - LEFT - RIGHT));
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
}
