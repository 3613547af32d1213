//! A picture of figures as text in SVG: panels side by side with logarithmic axes of the same length,
//! so that one panel can be read against another. It is readable on a light and a dark page.

use std::fmt::Write as _;

/// One set of axes.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) lines: Vec<Line>,
}

/// A figure for each place on the axis across.
pub(super) struct Line {
    pub(super) class: &'static str,
    pub(super) dashed: bool,
    pub(super) points: Vec<f64>,
}

const COLUMNS: usize = 3;
const WIDTH: f64 = 270.0;
const HEIGHT: f64 = 210.0;
/// Where the axes are within a panel.
const LEFT: f64 = 48.0;
const RIGHT: f64 = 254.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 172.0;
/// What is above all panels.
const HEAD: f64 = 74.0;

const STYLE: &str = "<style>
  svg { --page: #ffffff; --text: #1f2328; --grid: #d1d9e0; --first: #0550ae; --second: #bc4c00; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #0d1117; --text: #e6edf3; --grid: #3d444d; --first: #79c0ff; --second: #ffa657; }
  }
  .page { fill: var(--page); }
  text { fill: var(--text); font: 11px sans-serif; }
  .title { font-weight: bold; font-size: 13px; }
  .grid { stroke: var(--grid); stroke-width: 1; }
  polyline, .key { fill: none; stroke-width: 2; }
  .first { stroke: var(--first); }
  .second { stroke: var(--second); }
  .dashed { stroke-dasharray: 5 4; }
  circle.first { fill: var(--first); }
  circle.second { fill: var(--second); }
</style>
";

/// Draws the panels, with these places on the axis across and a legend of class, dashes and text.
pub(super) fn plot(
    title: &str,
    places: &[usize],
    legend: &[(&str, bool, &str)],
    panels: &[Panel],
) -> String {
    let rows = panels.len().div_ceil(COLUMNS);
    let (width, height) = (WIDTH * COLUMNS as f64, HEAD + HEIGHT * rows as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{title}</title>\n{STYLE}<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"16\" y=\"22\">{title}</text>\n"
    );
    for (number, (class, dashed, text)) in legend.iter().enumerate() {
        let (x, y) = (16.0 + 200.0 * (number / 2) as f64, 42.0 + 18.0 * (number % 2) as f64);
        let classes = classes(class, *dashed);
        let _ = writeln!(
            svg,
            "<line class=\"key {classes}\" x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\"/>\
             <text x=\"{}\" y=\"{}\">{text}</text>",
            x + 26.0,
            x + 32.0,
            y + 4.0,
        );
    }
    let scale = Scale::of(panels);
    for (number, panel) in panels.iter().enumerate() {
        let x = WIDTH * (number % COLUMNS) as f64;
        let y = HEAD + HEIGHT * (number / COLUMNS) as f64;
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        draw(panel, places, &scale, &mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn classes(class: &str, dashed: bool) -> String {
    if dashed { format!("{class} dashed") } else { class.to_owned() }
}

fn draw(panel: &Panel, places: &[usize], scale: &Scale, svg: &mut String) {
    let _ = writeln!(svg, "<text class=\"title\" x=\"{LEFT}\" y=\"18\">{}</text>", panel.title);
    for power in scale.least..=scale.most {
        let y = scale.height(10_f64.powi(power));
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            short(power),
        );
    }
    let across = |at: usize| {
        let steps = places.len().saturating_sub(1).max(1) as f64;
        LEFT + 12.0 + (RIGHT - LEFT - 24.0) * at as f64 / steps
    };
    for (at, place) in places.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{place}</text>",
            across(at),
            BOTTOM + 18.0,
        );
    }
    for line in &panel.lines {
        let points: Vec<(f64, f64)> = line
            .points
            .iter()
            .enumerate()
            .map(|(at, figure)| (across(at), scale.height(*figure)))
            .collect();
        let joined: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let classes = classes(line.class, line.dashed);
        let _ = writeln!(svg, "<polyline class=\"{classes}\" points=\"{}\"/>", joined.join(" "));
        for (x, y) in points {
            let _ = writeln!(
                svg,
                "<circle class=\"{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>",
                line.class
            );
        }
    }
}

/// 0.1, 1, 10, 100, 1k and so on.
fn short(power: i32) -> String {
    let (unit, rest) = match power {
        ..3 => ("", power),
        3..6 => ("k", power - 3),
        _ => ("M", power - 6),
    };
    format!("{}{unit}", 10_f64.powi(rest))
}

/// Nothing smaller has a place on a logarithmic axis.
const LEAST: f64 = 0.01;

/// The powers of ten between which all figures are.
struct Scale {
    least: i32,
    most: i32,
}

impl Scale {
    fn of(panels: &[Panel]) -> Self {
        let lines = panels.iter().flat_map(|panel| &panel.lines);
        let figures = lines.flat_map(|line| &line.points).map(|figure| figure.max(LEAST).log10());
        let ends = (f64::INFINITY, f64::NEG_INFINITY);
        let (least, most) =
            figures.fold(ends, |(least, most), figure| (least.min(figure), most.max(figure)));
        let least = if least.is_finite() { least.floor() as i32 } else { 0 };
        Self { least, most: (most.ceil() as i32).max(least + 1) }
    }

    fn height(&self, figure: f64) -> f64 {
        let share =
            (figure.max(LEAST).log10() - f64::from(self.least)) / f64::from(self.most - self.least);
        BOTTOM - (BOTTOM - TOP) * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_panels_have_the_same_axes() {
        let panel = |title: &str, points: &[f64]| Panel {
            title: title.to_owned(),
            lines: vec![Line { class: "second", dashed: true, points: points.to_vec() }],
        };
        let panels = [panel("a:", &[100.0, 1000.0]), panel("b:", &[50_000.0, 90_000.0])];
        let scale = Scale::of(&panels);
        assert_eq!((scale.least, scale.most), (2, 5));
        assert!((scale.height(100.0) - BOTTOM).abs() < 1e-9);
        assert!((scale.height(100_000.0) - TOP).abs() < 1e-9);
        let svg = plot("Rates", &[1, 8], &[("second", true, "under a lock")], &panels);
        assert_eq!(svg.matches("<polyline class=\"second dashed\"").count(), 2);
        assert_eq!(svg.matches(">100k</text>").count(), 2);
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
        assert!(svg.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn powers_are_short() {
        let powers = [-1, 0, 2, 3, 5, 6].map(short);
        assert_eq!(powers, ["0.1", "1", "100", "1k", "100k", "1M"]);
        assert_eq!(Scale::of(&[]).most, 1);
    }
}
