//! The plot: a line for each way to be told, over the number of registrations, as SVG.

use super::{LINES, Row};
use crate::plot::{BACKGROUND, GRID, TEXT, float, put, step};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 66.0;
const BOTTOM: f64 = 46.0;
/// The colour of each line, and what its strokes are like.
const STYLES: [(&str, &str); LINES.len()] =
    [("#e07b20", "none"), ("#e07b20", "5 4"), ("#2763a0", "none"), ("#2763a0", "5 4")];
/// Room for a name in the legend.
const NAME: f64 = 150.0;

/// Where a value stands.
struct Scale {
    /// The logarithms of the first and the last size.
    sizes: (f64, f64),
    end: f64,
}

impl Scale {
    fn x(&self, size: usize) -> f64 {
        let (first, last) = self.sizes;
        let part = (float(size).log10() - first) / (last - first).max(f64::MIN_POSITIVE);
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, nanoseconds: f64) -> f64 {
        HEIGHT - BOTTOM - nanoseconds / self.end * (HEIGHT - TOP - BOTTOM)
    }
}

/// The plot of rows that have values.
pub(super) fn svg(rows: &[Row]) -> String {
    let tops = rows.iter().flat_map(|row| row.found.iter().flatten());
    let largest =
        tops.map(|it| it.interval.map_or(it.median, |(_, high)| high)).fold(1.0, f64::max);
    let distance = step(largest);
    let size = |row: Option<&Row>| row.map_or(0.0, |row| float(row.size).log10());
    let scale = Scale {
        sizes: (size(rows.first()), size(rows.last())),
        end: (largest / distance).ceil() * distance,
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"{TEXT}\" role=\"img\">\n\
         <title>Processor time for each event, by the number of registrations</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\" font-weight=\"bold\">Processor time for each \
         event, in nanoseconds</text>\n"
    );
    legend(&mut svg, rows);
    grid(&mut svg, rows, &scale, distance);
    for (index, style) in STYLES.iter().enumerate() {
        line(&mut svg, rows, &scale, index, *style);
    }
    svg.push_str("</svg>\n");
    svg
}

fn grid(svg: &mut String, rows: &[Row], scale: &Scale, distance: f64) {
    let (left, right, foot) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM);
    let mut value = 0.0;
    while value <= scale.end + distance / 2.0 {
        let y = scale.y(value);
        put(
            svg,
            format_args!(
                "<path d=\"M{left} {y:.1}H{right}\" stroke=\"{GRID}\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>\n",
                left - 8.0,
                y + 4.0,
            ),
        );
        value += distance;
    }
    for row in rows {
        let x = scale.x(row.size);
        put(svg, format_args!("<path d=\"M{x:.1} {foot:.1}v4\" stroke=\"{TEXT}\"/>\n"));
        // The others stand too near to each other.
        if ["1", "2", "5"].iter().any(|first| is_round(row.size, first)) {
            put(
                svg,
                format_args!(
                    "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
                    foot + 18.0,
                    grouped(row.size),
                ),
            );
        }
    }
    put(
        svg,
        format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">registrations</text>\n",
            f64::midpoint(left, right),
            foot + 36.0,
        ),
    );
}

/// Whether a number is written with this digit and zeros.
fn is_round(number: usize, digit: &str) -> bool {
    number.to_string().trim_end_matches('0') == digit
}

fn line(
    svg: &mut String,
    rows: &[Row],
    scale: &Scale,
    index: usize,
    (colour, dashes): (&str, &str),
) {
    let mut path = String::new();
    let mut marks = String::new();
    for row in rows {
        let Some(found) = row.found[index] else { continue };
        let (x, y) = (scale.x(row.size), scale.y(found.median));
        let step = if path.is_empty() { 'M' } else { 'L' };
        put(&mut path, format_args!("{step}{x:.1} {y:.1}"));
        put(&mut marks, format_args!("M{:.1} {y:.1}h6", x - 3.0));
        if let Some((low, high)) = found.interval {
            put(&mut marks, format_args!("M{x:.1} {:.1}V{:.1}", scale.y(low), scale.y(high)));
        }
    }
    if path.is_empty() {
        return;
    }
    put(
        svg,
        format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
             stroke-dasharray=\"{dashes}\"/>\n<path d=\"{marks}\" stroke=\"{colour}\" stroke-width=\"1.4\"/>\n",
        ),
    );
}

/// Which line is which.
fn legend(svg: &mut String, rows: &[Row]) {
    let measured = |index: &usize| rows.iter().any(|row| row.found[*index].is_some());
    for (place, index) in (0..LINES.len()).filter(measured).enumerate() {
        let (colour, dashes) = STYLES[index];
        let x = LEFT + NAME * float(place);
        put(
            svg,
            format_args!(
                "<path d=\"M{x:.1} 42h28\" stroke=\"{colour}\" stroke-width=\"2\" \
                 stroke-dasharray=\"{dashes}\"/>\n<text x=\"{:.1}\" y=\"46\">{}</text>\n",
                x + 34.0,
                LINES[index].name,
            ),
        );
    }
}

/// With commas between the thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::tests::is_well_formed;
    use crate::statistics::Estimate;

    #[test]
    fn there_is_a_line_for_all_that_was_measured() {
        let of = |median| Some(Estimate { median, interval: Some((median - 9.0, median + 9.0)) });
        let rows = [
            Row { size: 1000, found: [of(300.0), of(100.0), of(900.0), None] },
            Row { size: 1_000_000, found: [of(600.0), of(400.0), None, None] },
        ];
        let svg = svg(&rows);
        assert!(is_well_formed(&svg), "{svg}");
        assert_eq!(svg.matches("fill=\"none\"").count(), 3);
        for text in
            [">1,000<", ">1,000,000<", ">the port, sim<", ">sim alone<", ">the port, epoll<"]
        {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert!(!svg.contains("epoll alone"), "it was not measured");
    }

    #[test]
    fn a_value_stands_where_its_scale_says() {
        let scale = Scale { sizes: (3.0, 6.0), end: 1000.0 };
        assert!((scale.x(1000) - LEFT).abs() < 0.01);
        assert!((scale.x(1_000_000) - (WIDTH - RIGHT)).abs() < 0.01);
        assert!((scale.y(0.0) - (HEIGHT - BOTTOM)).abs() < 0.01);
        assert!((scale.y(1000.0) - TOP).abs() < 0.01);
    }

    #[test]
    fn one_size_and_no_value_make_a_plot_too() {
        for found in [[None; LINES.len()], [Some(Estimate { median: 5.0, interval: None }); 4]] {
            let svg = svg(&[Row { size: 1000, found }]);
            assert!(is_well_formed(&svg) && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
