// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plots as inline SVG: lines over a number, horizontal bars for one value of each.
//!
//! Written here because plotting libraries lack some features: names at the ends of their lines,
//! moved apart until none overlaps; exact values on hovering; colours that follow the reader's
//! light or dark scheme. There are no scripts. Colours, strokes and fonts are classes that the
//! page's style sheet defines.
//!
//! Sources: SVG 2; Tufte, "The Visual Display of Quantitative Information" (names beside the data,
//! no boxes); Okabe and Ito's palette, which colour-blind readers can distinguish.
//! Does not lay out in the browser; a plot scales as a picture does.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::html::escape;
use super::scale::{Area, NAME_GAP, Scale, apart, top};
use super::sections::{PAPER_SIZE, Section};
use super::{RATIO, number, spread};
use crate::results::Row;

/// Styles of a page: a colour for each family of members in all plots, and within it a mark and a
/// stroke for each label.
pub(crate) struct Styles(BTreeMap<String, Look>);

/// Appearance of a label.
#[derive(Clone, Copy, Default)]
struct Look {
    colour: usize,
    /// Its number within the family.
    shape: usize,
}

/// Returns the family of a member: its first word, as in `mmap_gso` and `mmap_writev`.
fn family(member: &str) -> &str {
    member.split(['_', ' ', ',']).next().unwrap_or(member)
}

impl Styles {
    pub(crate) fn of(sections: &[Section<'_>]) -> Styles {
        let mut styles: BTreeMap<String, Look> = BTreeMap::new();
        // Values: the colour, and the number of labels that have it.
        let mut families: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for section in sections {
            for row in &section.rows {
                let name = family(&row.member);
                let others = section.rows.iter().map(|row| family(&row.member));
                let used: Vec<usize> =
                    others.filter_map(|other| families.get(other)).map(|(c, _)| *c).collect();
                let next = families.len() % COLOURS;
                let free = (0..COLOURS).map(|step| (next + step) % COLOURS);
                let colour = free.clone().find(|colour| !used.contains(colour)).unwrap_or(next);
                let (colour, labels) = families.entry(name).or_insert((colour, 0));
                styles.entry(section.label(row)).or_insert_with(|| {
                    *labels += 1;
                    Look { colour: *colour, shape: *labels - 1 }
                });
            }
        }
        Styles(styles)
    }

    fn of_label(&self, label: &str) -> Look {
        self.0.get(label).copied().unwrap_or_default()
    }
}

/// A line: one label's rows in the order of the axis.
struct Series<'a> {
    label: String,
    published: bool,
    points: Vec<(f64, &'a Row)>,
}

/// Draws lines over the section's axis; returns an empty text when it has none.
pub(crate) fn lines(section: &Section<'_>, styles: &Styles) -> String {
    let Some(axis) = section.axis else { return String::new() };
    let mut series = series(section, axis);
    let (drawn, all) = (series.len().min(SERIES_MAX), series.len());
    series.truncate(drawn);
    let points = || series.iter().flat_map(|line| &line.points);
    let Some(across) = Scale::across(points().map(|(x, _)| *x).collect()) else {
        return String::new();
    };
    let label_chars = series.iter().map(|line| line.label.chars().count()).max().unwrap_or(0);
    let names_width = (label_chars.min(NAME_CHARS_MAX) as f64).mul_add(CHAR_WIDTH, 34.0);
    let height = (series.len() as f64 * NAME_GAP + 20.0).max(PLOT_HEIGHT);
    let area = Area { left: 58.0, right: WIDTH - names_width, top: 14.0, bottom: 14.0 + height };
    let up = Scale::up(points().map(|(_, row)| row).copied().collect());
    let mut svg = open(&section.title(), area.bottom + 46.0);
    grid(&mut svg, section, &area, &up);
    ticks(&mut svg, axis, &area, &across, points().map(|(x, _)| *x).collect());
    let ends: Vec<(f64, f64)> = series
        .iter()
        .filter_map(|line| line.points.last())
        .map(|(x, row)| (area.x(&across, *x), area.y(&up, row.figure.median)))
        .collect();
    let places = apart(&ends.iter().map(|end| end.1).collect::<Vec<_>>(), &area);
    for (index, line) in series.iter().enumerate() {
        let style = Style::of(styles.of_label(&line.label), line.published);
        let _ = write!(svg, r#"<g class="series {}">"#, style.classes);
        curve(&mut svg, section, line, &style, |x, y| (area.x(&across, x), area.y(&up, y)));
        let ((x, y), place, to) = (ends[index], places[index], area.right + 16.0);
        let _ =
            write!(svg, r#"<path class="lead" d="M{:.1} {y:.1}L{to:.1} {place:.1}"/>"#, x + 5.0);
        let name = escape(&cut(&line.label));
        let _ =
            write!(svg, r#"<text x="{:.1}" y="{:.1}">{name}</text></g>"#, to + 3.0, place + 4.0);
    }
    svg.push_str("</svg>\n");
    left_out(&mut svg, drawn, all);
    svg
}

/// Draws one horizontal bar a row.
pub(crate) fn bars(section: &Section<'_>, styles: &Styles) -> String {
    let rows = &section.rows[..section.rows.len().min(BARS_MAX)];
    let labels: Vec<String> = rows.iter().map(|row| section.label(row)).collect();
    let label_chars = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let left = (label_chars.min(NAME_CHARS_MAX) as f64).mul_add(CHAR_WIDTH, 16.0);
    let bottom = rows.len() as f64 * BAR_GAP + 8.0;
    let area = Area { left, right: WIDTH - VALUE_WIDTH, top: 8.0, bottom };
    let most = rows.iter().map(|row| top(row)).fold(0.0, f64::max);
    // Plots of ratios always include a line at 1.
    let is_ratio = section.metric.starts_with(RATIO);
    let most = if is_ratio { most.max(1.0) } else { most };
    let scale = Scale { from: 0.0, to: if most > 0.0 { most } else { 1.0 }, log: false };
    let at = |value: f64| area.x(&scale, value.clamp(0.0, scale.to));
    let mut svg = open(&section.title(), bottom + 8.0);
    for (index, row) in rows.iter().enumerate() {
        let style = Style::of(styles.of_label(&labels[index]), row.published.is_some());
        let y = (index as f64).mul_add(BAR_GAP, area.top + 3.0);
        let (width, height) = (at(row.figure.median) - left, BAR_GAP - 6.0);
        let middle = y + height / 2.0;
        let _ = write!(svg, r#"<g class="bar {}"><title>"#, style.classes);
        let _ = write!(svg, "{}</title>", escape(&exact(section, row)));
        let (name, text_y) = (escape(&cut(&labels[index])), middle + 4.0);
        let _ = write!(svg, r#"<rect class="row" x="0" y="{:.1}" width="{WIDTH}""#, y - 3.0);
        let _ = write!(svg, r#" height="{BAR_GAP}"/><text class="name" x="{:.1}""#, left - 8.0);
        let _ = write!(svg, r#" y="{text_y:.1}" text-anchor="end">{name}</text>"#);
        let _ = write!(svg, r#"<rect class="fill" x="{left:.1}" y="{y:.1}" width="{width:.1}""#);
        let _ = write!(svg, r#" height="{height:.1}" rx="2"/>"#);
        whisker(&mut svg, row, |value| (at(value), middle), false);
        let (x, value) = (area.right + 70.0, number(row.figure.median));
        let _ = write!(svg, r#"<text x="{x:.1}" y="{text_y:.1}" text-anchor="end">{value}</text>"#);
        let (x, spread) = (area.right + 78.0, spread(row));
        let _ = write!(svg, r#"<text class="soft" x="{x:.1}" y="{text_y:.1}">{spread}</text></g>"#);
    }
    if is_ratio {
        let (x, top) = (at(1.0), area.top);
        let _ = write!(svg, r#"<path class="one" d="M{x:.1} {top:.1}V{bottom:.1}"/>"#);
    }
    svg.push_str("</svg>\n");
    left_out(&mut svg, rows.len(), section.rows.len());
    svg
}

fn series<'a>(section: &Section<'a>, axis: &str) -> Vec<Series<'a>> {
    let mut order: Vec<Series<'a>> = Vec::new();
    let mut known: BTreeMap<(String, bool), usize> = BTreeMap::new();
    for row in &section.rows {
        let value = row.parameters.get(axis).and_then(|value| value.parse::<f64>().ok());
        let Some(x) = value.filter(|x| x.is_finite()) else { continue };
        let (label, published) = (section.label(row), row.published.is_some());
        let index = *known.entry((label.clone(), published)).or_insert_with(|| {
            order.push(Series { label, published, points: Vec::new() });
            order.len() - 1
        });
        order[index].points.push((x, row));
    }
    for line in &mut order {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    order
}

/// Draws line, marks and whiskers of a series.
fn curve(
    svg: &mut String,
    section: &Section<'_>,
    line: &Series<'_>,
    style: &Style,
    at: impl Fn(f64, f64) -> (f64, f64),
) {
    let mut path = String::new();
    for (x, row) in &line.points {
        let letter = if path.is_empty() { 'M' } else { 'L' };
        let (x, y) = at(*x, row.figure.median);
        let _ = write!(path, "{letter}{x:.1} {y:.1}");
    }
    let _ = write!(svg, r#"<path class="line" d="{path}"/>"#);
    for (x, row) in &line.points {
        whisker(svg, row, |value| at(*x, value), true);
        let (x, y) = at(*x, row.figure.median);
        let title = escape(&exact(section, row));
        let _ = write!(svg, r#"<g><title>{title}</title>{}"#, style.mark(x, y));
        // The invisible circle is larger than the mark, for easier hovering.
        let _ = write!(svg, r#"<circle class="hit" cx="{x:.1}" cy="{y:.1}" r="9"/></g>"#);
    }
}

/// Draws the spread on both sides of the median.
fn whisker(svg: &mut String, row: &Row, at: impl Fn(f64) -> (f64, f64), upright: bool) {
    let deviation = row.figure.deviation();
    if deviation == 0.0 {
        return;
    }
    let (dx, dy) = if upright { (3.0, 0.0) } else { (0.0, 3.0) };
    let mut path = String::new();
    for (letter, end) in [('M', -deviation), ('L', deviation)] {
        let (x, y) = at(row.figure.median + end);
        let _ = write!(path, "{letter}{x:.1} {y:.1}");
    }
    // Each end has a stroke across it.
    for end in [-deviation, deviation] {
        let (x, y) = at(row.figure.median + end);
        let _ = write!(path, "M{:.1} {:.1}L{:.1} {:.1}", x - dx, y - dy, x + dx, y + dy);
    }
    let _ = write!(svg, r#"<path class="whisker" d="{path}"/>"#);
}

/// Formats all facts about a figure in a line.
fn exact(section: &Section<'_>, row: &Row) -> String {
    let (parameters, median) = (super::parameters(row), row.figure.median);
    let comma = if parameters.is_empty() { "" } else { ", " };
    let unit = section.unit;
    let mut line = format!("{}{comma}{parameters}: {} {unit}", row.member, number(median));
    match &row.published {
        Some(source) => {
            let _ = write!(line, ", published: {source}");
        }
        None => {
            let _ = write!(line, " {}, {} samples", spread(row), row.figure.samples.len());
        }
    }
    line
}

fn open(title: &str, height: f64) -> String {
    let title = escape(title);
    format!(r#"<svg viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-label="{title}">"#)
}

fn grid(svg: &mut String, section: &Section<'_>, area: &Area, scale: &Scale) {
    let mut last = f64::MAX;
    for value in scale.round_values() {
        let (y, left, right) = (area.y(scale, value), area.left, area.right);
        let _ = write!(svg, r#"<path class="grid" d="M{left:.1} {y:.1}H{right:.1}"/>"#);
        if last - y >= TICK_GAP_Y {
            let (x, y, value) = (left - 7.0, y + 4.0, number_short(value));
            let _ = write!(svg, r#"<text class="soft" x="{x:.1}" y="{y:.1}""#);
            let _ = write!(svg, r#" text-anchor="end">{value}</text>"#);
            last = y;
        }
    }
    if section.metric.starts_with(RATIO) && scale.from < 1.0 && scale.to >= 1.0 {
        let (y, left, right) = (area.y(scale, 1.0), area.left, area.right);
        let _ = write!(svg, r#"<path class="one" d="M{left:.1} {y:.1}H{right:.1}"/>"#);
    }
}

/// Draws a tick at each measured value; names it where there is room, first the ends and the
/// data-paths paper's size.
fn ticks(svg: &mut String, axis: &str, area: &Area, scale: &Scale, mut values: Vec<f64>) {
    let (y, middle) = (area.bottom, f64::midpoint(area.left, area.right));
    let _ = write!(svg, r#"<path class="axis" d="M{:.1} {y:.1}H{:.1}"/>"#, area.left, area.right);
    values.sort_by(f64::total_cmp);
    values.dedup();
    let study: f64 = PAPER_SIZE.parse().unwrap_or(0.0);
    let preferred = [scale.from, scale.to, study];
    let preferred = preferred.into_iter().filter(|value| values.contains(value));
    let mut named: Vec<f64> = Vec::new();
    for value in preferred.chain(values.iter().copied()) {
        let x = area.x(scale, value);
        let _ = write!(svg, r#"<path class="axis" d="M{x:.1} {y:.1}v5"/>"#);
        if named.iter().all(|other| (x - other).abs() >= TICK_GAP_X) {
            tick_name(svg, x, y, value);
            named.push(x);
        }
    }
    let kind = if scale.log { " (logarithmic)" } else { "" };
    let _ = write!(svg, r#"<text class="soft" x="{middle:.1}" y="{:.1}""#, y + 38.0);
    let _ = write!(svg, r#" text-anchor="middle">{}{kind}</text>"#, escape(axis));
}

fn tick_name(svg: &mut String, x: f64, y: f64, value: f64) {
    let (y, value) = (y + 19.0, number_short(value));
    let _ = write!(svg, r#"<text class="soft" x="{x:.1}" y="{y:.1}""#);
    let _ = write!(svg, r#" text-anchor="middle">{value}</text>"#);
}

/// Formats a round number without trailing zeros.
pub(super) fn number_short(value: f64) -> String {
    match number(value) {
        text if text.contains('e') || !text.contains('.') => text,
        text => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

/// Appearance of a label's rows.
struct Style {
    classes: String,
    shape: usize,
}

impl Style {
    fn of(look: Look, published: bool) -> Style {
        let dashed = if published { " published" } else { "" };
        let shape = look.shape % 4;
        Style { classes: format!("c{} s{shape}{dashed}", look.colour), shape }
    }

    /// Draws a mark; its shape differs within a family.
    fn mark(&self, x: f64, y: f64) -> String {
        let path = match self.shape {
            0 => return format!(r#"<circle class="mark" cx="{x:.1}" cy="{y:.1}" r="3.2"/>"#),
            1 => "m-3.2-3.2h6.4v6.4h-6.4z",
            2 => "m0-4.4l4.4 4.4l-4.4 4.4l-4.4-4.4z",
            _ => "m0-4.2l4.2 7.4h-8.4z",
        };
        format!(r#"<path class="mark" d="M{x:.1} {y:.1}{path}"/>"#)
    }
}

fn cut(label: &str) -> String {
    if label.chars().count() <= NAME_CHARS_MAX {
        return label.to_owned();
    }
    label.chars().take(NAME_CHARS_MAX - 1).chain(['…']).collect()
}

fn left_out(svg: &mut String, drawn: usize, all: usize) {
    if drawn < all {
        let _ =
            writeln!(svg, r#"<p class="soft">{drawn} of {all} drawn; the tables have all.</p>"#);
    }
}

const WIDTH: f64 = 920.0;
const PLOT_HEIGHT: f64 = 330.0;
const BAR_GAP: f64 = 23.0;
/// Width of the value and its spread, to the right of the bars.
const VALUE_WIDTH: f64 = 150.0;
/// Width of a character of the page's monospaced 12 pixels.
const CHAR_WIDTH: f64 = 7.25;
const NAME_CHARS_MAX: usize = 40;
const TICK_GAP_X: f64 = 44.0;
const TICK_GAP_Y: f64 = 16.0;
const SERIES_MAX: usize = 40;
const BARS_MAX: usize = 80;
/// Number of the classes `c0` and so on of the style sheet.
pub(crate) const COLOURS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sections::plots;
    use crate::statistics::Figure;

    #[test]
    fn a_family_has_one_colour_and_each_of_it_a_mark_of_its_own() {
        let members =
            ["read_writev", "mmap_gso", "mmap_writev", "uring", "uring_zc", "rtp", "more", "xdp"];
        let rows = members.map(|member| {
            Row::new("paths", member, "CPU cost", "s/GB", Figure::of(vec![1.0])).with("bytes", 1328)
        });
        let styles = Styles::of(&plots(rows.iter()));
        let look = |member: &str| styles.of_label(member);
        assert_eq!(look("mmap_gso").colour, look("mmap_writev").colour);
        assert_ne!(look("mmap_gso").shape, look("mmap_writev").shape);
        assert_eq!(look("uring").colour, look("uring_zc").colour);
        let mut colours = ["read_writev", "mmap_gso", "uring", "rtp", "more", "xdp"]
            .map(|member| look(member).colour);
        colours.sort_unstable();
        assert!(colours.windows(2).all(|pair| pair[0] != pair[1]), "a colour a family");
    }
}
