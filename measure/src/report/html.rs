// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report as one self-contained HTML page: the result, plots, tables, samples; at the end
//! warnings and the set-up with its skips.
//!
//! It contains no script, and its policy forbids scripts and requests: it can be mailed, opened
//! from a disk and read in ten years. Light or dark follows the reader's preference.
//!
//! Sources: HTML Living Standard §13.1 (escapes); CSP Level 3.
//! Does not compare two measurements; [`crate::compare()`] does.

use std::fmt::Write;

use super::plot::{COLOURS, Styles, bars, lines};
use super::sections::{Section, at_commonest_value, plots, tables};
use super::{Doubts, Ratios, facts, marks, number, parameters, published_sources, spread};
use crate::compare::more_is_better;
use crate::results::{Results, Row};

/// Returns the page.
pub fn html(results: &Results) -> String {
    let title = escape(&format!("pagewire lab {}", results.experiment));
    let style = style();
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    let doubts = Doubts::of(results);
    let ratios = Ratios::of(&results.rows);
    result(&mut page, results, &ratios, &doubts);
    plotted(&mut page, results);
    page.push_str("<h2>Figures</h2>\n");
    let sections = tables(results.rows.iter().filter(|row| !ratios.is_beside(row)));
    let folded = sections.len() > TABLES_OPEN;
    if folded {
        let _ = writeln!(page, "<details>\n<summary>{} tables</summary>", sections.len());
    }
    for section in &sections {
        table(&mut page, section, &ratios, &doubts);
    }
    if folded {
        page.push_str("</details>\n");
    }
    samples(&mut page, &results.rows);
    warnings(&mut page, &doubts);
    set_up(&mut page, results);
    page.push_str("</body>\n</html>\n");
    page
}

/// Writes the best and the worst of the experiment's main quantity at the usual size, and the
/// number of warnings.
fn result<'a>(page: &mut String, results: &'a Results, ratios: &Ratios<'a>, doubts: &Doubts<'a>) {
    let sections = plots(results.rows.iter());
    let Some(section) = sections.iter().find(|section| section.metric == ratios.of) else { return };
    let cut = at_commonest_value(section);
    let section = cut.as_ref().unwrap_or(section);
    let mut rows: Vec<&Row> =
        section.rows.iter().filter(|row| row.published.is_none()).copied().collect();
    rows.sort_by(|a, b| a.figure.median.total_cmp(&b.figure.median));
    if more_is_better(section.unit) {
        rows.reverse();
    }
    let (Some(best), Some(worst)) = (rows.first(), rows.last()) else { return };
    let one = |row: &&'a Row| {
        let (label, median) = (escape(&section.label(row)), number(row.figure.median));
        let marks = marks(&doubts.of_row(row));
        format!("<b>{label}</b>: {median} {} {} {marks}", escape(section.unit), spread(row))
    };
    let _ = write!(page, "<p class=\"result\">{}: ", escape(&section.title()));
    let _ = write!(page, "best {}", one(best).trim_end());
    if rows.len() > 1 {
        let _ =
            write!(page, "; of {} the dearest or slowest {}", rows.len(), one(worst).trim_end());
    }
    page.push_str(".</p>\n");
    let (count, plural) = match results.warnings.len() {
        1 => (1, ""),
        count => (count, "s"),
    };
    if count > 0 {
        let _ = writeln!(
            page,
            "<p class=\"soft\">{count} warning{plural}: <a href=\"#warnings\">below</a>; a mark, \
             !1, is beside each figure that one is about.</p>"
        );
    }
}

/// Writes host, command, notes and skips.
fn set_up(page: &mut String, results: &Results) {
    page.push_str("<h2>Set-up</h2>\n<dl>\n");
    for (name, value) in facts(results) {
        let _ = writeln!(page, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    page.push_str("</dl>\n");
    if !results.notes.is_empty() {
        page.push_str("<ul>\n");
        for note in &results.notes {
            let _ = writeln!(page, "<li>{}</li>", escape(note));
        }
        page.push_str("</ul>\n");
    }
}

fn warnings(page: &mut String, doubts: &Doubts<'_>) {
    if doubts.kinds.is_empty() {
        return;
    }
    page.push_str("<section class=\"warnings\" id=\"warnings\">\n<h2>Warnings</h2>\n");
    for (index, kind) in doubts.kinds.iter().enumerate() {
        let _ = write!(page, "<div><b>!{}</b><div>", index + 1);
        let list = |page: &mut String, from: usize, to: usize| {
            for warning in &kind.warnings[from..to] {
                let _ = writeln!(page, "<p>{}</p>", escape(&warning.to_string()));
            }
        };
        let open = kind.warnings.len().min(WARNINGS_OPEN);
        list(page, 0, open);
        if kind.warnings.len() > open {
            let more = kind.warnings.len() - open;
            let _ = writeln!(page, "<details><summary>{more} more like these</summary>");
            list(page, open, kind.warnings.len());
            page.push_str("</details>\n");
        }
        let _ = writeln!(page, "<p class=\"soft\">Cure: {}.</p></div></div>", escape(kind.cure()));
    }
    page.push_str("</section>\n");
}

/// Writes lines over the axis and bars at its commonest value; bars alone where there is no axis.
fn plotted(page: &mut String, results: &Results) {
    let sections = plots(results.rows.iter());
    let styles = Styles::of(&sections);
    for section in &sections {
        let drawn = match at_commonest_value(section) {
            None => bars(section, &styles),
            Some(cut) => {
                let lines = lines(section, &styles);
                match cut.rows.len() {
                    0 | 1 => lines,
                    _ => {
                        let (name, value) = cut.shared[cut.shared.len() - 1];
                        let at = format!("at {name}={value}");
                        format!("{lines}<h3>{}</h3>\n{}", escape(&at), bars(&cut, &styles))
                    }
                }
            }
        };
        let _ = write!(page, "<h2>{}", escape(&section.metric_line()));
        match section.shared_line() {
            shared if shared.is_empty() => page.push_str("</h2>\n"),
            shared => {
                let _ = writeln!(page, " <small>{}</small></h2>", escape(&shared));
            }
        }
        page.push_str(&drawn);
    }
    let sources = published_sources(&results.rows);
    if !sources.is_empty() {
        let sources = escape(&sources.join("; "));
        let _ = writeln!(
            page,
            "<p class=\"soft\">Dashed: published in {sources}; not measured \
             here.</p>"
        );
    }
}

fn table<'a>(page: &mut String, section: &Section<'a>, ratios: &Ratios<'a>, doubts: &Doubts<'a>) {
    let columns = ratios.columns(section.metric, &section.rows);
    let _ = writeln!(page, "<table>\n<caption>{}</caption>", escape(&section.title()));
    let _ = write!(page, "<tr><th></th><th>{}</th><th>spread</th>", escape(&section.metric_line()));
    for column in &columns {
        let _ = write!(page, "<th>{}</th>", escape(column));
    }
    page.push_str("<th></th></tr>\n");
    for row in &section.rows {
        let (label, median) = (escape(&section.label(row)), number(row.figure.median));
        let _ = write!(page, "<tr><td>{label}</td><td>{median}</td><td>{}</td>", spread(row));
        for column in &columns {
            let ratio = ratios.beside(row, column);
            let ratio = ratio.map(|ratio| number(ratio.figure.median)).unwrap_or_default();
            let _ = write!(page, "<td>{ratio}</td>");
        }
        let _ = writeln!(page, "<td class=\"soft\">{}</td></tr>", marks(&doubts.of_row(row)));
    }
    page.push_str("</table>\n");
}

fn samples(page: &mut String, rows: &[Row]) {
    page.push_str("<details>\n<summary>All samples, in the order they were taken</summary>\n");
    page.push_str("<table class=\"samples\">\n<tr><th></th><th>metric</th><th>samples</th></tr>\n");
    for row in rows.iter().filter(|row| row.published.is_none()) {
        let (member, parameters) = (escape(&row.member), escape(&parameters(row)));
        let (metric, unit) = (escape(&row.metric), escape(&row.unit));
        let samples: Vec<String> = row.figure.samples.iter().map(f64::to_string).collect();
        let samples = samples.join(" ");
        let _ = write!(page, "<tr><td>{member} <span class=\"soft\">{parameters}</span></td>");
        let _ = writeln!(page, "<td>{metric} {unit}</td><td>{samples}</td></tr>");
    }
    page.push_str("</table>\n</details>\n");
}

/// Escapes text and double-quoted attributes, in HTML and in SVG within it.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

fn style() -> String {
    let mut style = String::from(STYLE);
    for (index, (light, _)) in PALETTE.iter().enumerate() {
        let _ = writeln!(style, ".c{index} {{ --c: {light} }}");
    }
    style.push_str("@media (prefers-color-scheme: dark) {\n");
    for (index, (_, dark)) in PALETTE.iter().enumerate() {
        let _ = writeln!(style, ".c{index} {{ --c: {dark} }}");
    }
    style.push_str("}\n");
    style
}

const WARNINGS_OPEN: usize = 6;
/// Number of tables above which they are folded: the plots show the same figures.
const TABLES_OPEN: usize = 6;

/// Okabe and Ito's colours, darker on white and lighter on black so that thin lines stay visible.
const PALETTE: [(&str, &str); COLOURS] = [
    ("#0072b2", "#56a8e0"),
    ("#d55e00", "#f08a4b"),
    ("#00815e", "#2fc79a"),
    ("#b8508f", "#e08cc0"),
    ("#9a7400", "#e6b422"),
    ("#3f51b5", "#98a6f5"),
    ("#6d6d6d", "#b4b4b4"),
    ("#a33030", "#f07070"),
];

const STYLE: &str = r#":root { color-scheme: light dark; --ink: #1c1f23; --soft: #666c74;
  --paper: #fff; --rule: #e4e6e9; --note: #fff6dc }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e9; --soft: #989fa8; --paper: #16181b;
  --rule: #33373c; --note: #35300f } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 960px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.6em; margin: 0 0 .5em }
h2 { font-size: 1.15em; margin: 2em 0 .5em }
h3 { font-size: 1em; font-weight: 600; margin: 1em 0 .3em }
small { font-weight: 400; color: var(--soft); margin-left: .5em }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1em 1em; margin: 0 }
dt, .soft, caption, th { color: var(--soft) }
dd { margin: 0; overflow-wrap: anywhere }
ul { padding-left: 1.2em }
.warnings { background: var(--note); padding: .8em 1em; border-radius: 6px; margin: 1.5em 0 }
.warnings h2 { margin: 0 0 .4em }
.warnings > div { display: flex; gap: .8em; margin-bottom: .6em }
.warnings b { min-width: 2em }
.warnings p { margin: 0; overflow-wrap: anywhere }
table { border-collapse: collapse; margin: 1em 0 1.6em; font-variant-numeric: tabular-nums }
caption { text-align: left; padding-bottom: .3em }
th { font-weight: 400; text-align: right }
td, th { padding: .15em .8em .15em 0; border-bottom: 1px solid var(--rule); text-align: right }
td:first-child { text-align: left }
.samples { font-size: .85em }
.samples td, .samples th { text-align: left; vertical-align: top }
summary { cursor: pointer }
svg { display: block; width: 100%; height: auto; font: 12px ui-monospace, monospace }
svg text { fill: var(--ink) }
svg text.soft { fill: var(--soft) }
.grid { stroke: var(--rule); fill: none }
.axis { stroke: var(--soft); fill: none }
.one { stroke: var(--soft); stroke-dasharray: 2 3; fill: none }
.series text { fill: var(--c) }
.line { stroke: var(--c); stroke-width: 1.8; fill: none; stroke-linejoin: round }
.lead { stroke: var(--c); stroke-width: .8; fill: none; opacity: .45 }
.mark, .fill { fill: var(--c) }
.fill { opacity: .85 }
.whisker { stroke: var(--ink); stroke-width: 1; fill: none; opacity: .6 }
.hit, .row { fill: transparent }
.bar:hover .row { fill: var(--rule); opacity: .6 }
.s1 .line { stroke-dasharray: 9 3 }
.s2 .line { stroke-dasharray: 2 2 }
.s3 .line { stroke-dasharray: 9 3 2 3 }
.s1 .fill { opacity: .6 }
.s2 .fill { opacity: .45 }
.s3 .fill { opacity: .3 }
.result { font-size: 1.1em }
a { color: inherit }
.published .line { stroke-dasharray: 6 4 }
.published .mark { fill: var(--paper); stroke: var(--c); stroke-width: 1.4 }
.published .fill { fill: var(--c); fill-opacity: .12; stroke: var(--c); stroke-dasharray: 5 3 }
svg:has(.series:hover) .series:not(:hover) { opacity: .18 }
@media print { details:not([open]) > :not(summary) { display: block } }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup() {
        let text = "</title><script>alert('1')</script>\" onload=\"x&\u{0}";
        let expected = "&lt;/title&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot; \
            onload=&quot;x&amp;\u{fffd}";
        assert_eq!(escape(text), expected);
    }
}
