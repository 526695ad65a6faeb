// SPDX-License-Identifier: MIT OR Apache-2.0
//! docs/kernel.md: the tables of the simd-copy and data-paths papers with ours beside, from the
//! measurement file of `pagewire lab kernel`.
//!
//! Makes no table of a part that is missing from the file.

use std::fmt::Write;
use std::mem::{Discriminant, discriminant};

use measure::report::markdown;
use measure::{Results, Row, Warning};

use crate::grid::{Marks, grid};
use crate::measurements::{named, parameter};

/// Returns all tables, in the order of the parts.
pub(crate) fn tables(results: &Results) -> String {
    let marks = Marks::of(&results.warnings);
    let mut text = String::new();
    let mut add = |title: &str, table: String| {
        if !table.is_empty() {
            let _ = write!(text, "\n### {title}\n\n{table}");
        }
    };
    add("memcpy's own time, and the whole run", times(results, &marks));
    add("Functions with most time, percent", functions(results, &marks));
    let cpu_costs = of(results, |row| row.metric == "CPU cost" && row.published.is_none());
    let (sized, whole): (Vec<&Row>, Vec<&Row>) =
        cpu_costs.into_iter().partition(|row| row.parameters.contains_key("bytes"));
    let all = |row: &Row| format!("{}: {}", parameter(row, "workload"), named(&row.member, ""));
    add("Processor seconds a gigabyte, by bytes of a call", grid(&sized, "bytes", all, &marks));
    add("The same, large buffers of tmpfs together", grid(&whole, "workload", member, &marks));
    let ratios = of(results, |row| row.metric == "relative to stock");
    let ratios: Vec<&Row> =
        ratios.into_iter().filter(|row| !row.parameters.contains_key("bytes")).collect();
    add("Relative to stock", grid(&ratios, "workload", member, &marks));
    let speeds = of(results, |row| row.metric.starts_with("speed in the kernel"));
    add("Speed in the kernel, GB/s, by bytes", grid(&speeds, "bytes", member, &marks));
    let sizes = of(results, |row| row.metric == "copies by caller and size");
    let callers = most(results, &sizes);
    add("Copies by caller, and bytes from", grid(&callers, "bytes from", member, &marks));
    let loops = beside(results, ("vectorised loops", ""), &marks);
    add("Vectorised loops", with_notes(loops, results, "vectorise: "));
    for (processor, place) in
        [("with fast strings", "max"), ("without fast strings", "max,-erms,-fsrm")]
    {
        let counted = of(results, |row| {
            row.metric == "instructions" && parameter(row, "processor") == processor
        });
        let title = format!("Instructions a packet, {processor} (`{place}`)");
        let path = |row: &Row| match parameter(row, "step") {
            "" => named(&row.member, ""),
            step => format!("{}, steps of {step}", named(&row.member, "")),
        };
        add(&title, grid(&counted, "transport", path, &marks));
        for reference in ["rtp_sendfile", "mmap_writev", "read_writev", "read_send_rtp"] {
            let metric = format!("instructions, relative to {reference}");
            let title = format!("Instructions relative to `{reference}`, {processor}");
            add(&title, beside(results, (&metric, processor), &marks));
        }
    }
    let copies = of(results, |row| row.metric == "a copy in the kernel");
    let by = |row: &Row| format!("{}, {}", named(&row.member, ""), row.unit);
    add("A copy with vector registers in a native kernel", grid(&copies, "bytes", by, &marks));
    let sections = of(results, |row| row.metric == "what using vector registers costs");
    add("What using them costs", grid(&sections, "by", |row| row.member.clone(), &marks));
    let claims =
        of(results, |row| row.metric.starts_with("claims ") || row.metric.starts_with("paced "));
    let claim = |row: &Row| format!("{}, {}", row.metric, row.unit);
    let check = across_members(&claims, claim, &marks);
    add("The check of the module", with_notes(check, results, "check: "));
    text.push_str(&doubts(results));
    text
}

/// Returns a table, and below it the notes of its part, so that skips with their reasons are beside
/// the figures.
fn with_notes(mut table: String, results: &Results, part: &str) -> String {
    let mut notes = results.notes.iter().filter_map(|note| note.strip_prefix(part)).peekable();
    if !table.is_empty() && notes.peek().is_some() {
        table.push('\n');
        notes.for_each(|note| table.push_str(&format!("- {note}\n")));
    }
    table
}

/// Returns the kinds of warning that the marks number, each quantity in a line with its largest
/// spread; then host, command and commit.
fn doubts(results: &Results) -> String {
    let mut kinds: Vec<(Discriminant<Warning>, &Warning, Vec<String>)> = Vec::new();
    let mut noisy: Vec<(&str, usize, f64)> = Vec::new();
    for warning in &results.warnings {
        let kind = discriminant(warning);
        let index = kinds.iter().position(|(known, ..)| *known == kind).unwrap_or_else(|| {
            kinds.push((kind, warning, Vec::new()));
            kinds.len() - 1
        });
        let Warning::NoisySpread { metric, spread, .. } = warning else {
            kinds[index].2.push(warning.to_string());
            continue;
        };
        match noisy.iter_mut().find(|(known, ..)| known == metric) {
            Some((_, count, most)) => (*count, *most) = (*count + 1, most.max(*spread)),
            None => noisy.push((metric, 1, *spread)),
        }
    }
    let mut text = if kinds.is_empty() { String::new() } else { "\n### Warnings\n".to_owned() };
    for (index, (_, first, lines)) in kinds.iter().enumerate() {
        let _ = write!(text, "\n**!{}** {}\n\n", index + 1, first.cure());
        lines.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
        if matches!(first, Warning::NoisySpread { .. }) {
            for (metric, count, most) in &noisy {
                let (plural, most) = (if *count == 1 { "" } else { "s" }, most * 100.0);
                let _ = writeln!(
                    text,
                    "- {metric}: {count} figure{plural} with a spread over {:.0} %, the largest \
                     {most:.0} %",
                    measure::SPREAD_MAX * 100.0
                );
            }
        }
    }
    let report = markdown(&Results { rows: Vec::new(), warnings: Vec::new(), ..results.clone() });
    let facts = report.find("\n| | |\n|---|---|\n").expect("a report has facts");
    text + &report[facts..] + "\n"
}

fn of(results: &Results, is_in: impl Fn(&Row) -> bool) -> Vec<&Row> {
    results.rows.iter().filter(|row| is_in(row)).collect()
}

fn member(row: &Row) -> String {
    named(&row.member, "")
}

/// Returns the counts of the callers that have a row of their own.
fn most<'a>(results: &'a Results, sizes: &[&'a Row]) -> Vec<&'a Row> {
    let shown = of(results, |row| row.metric == "copies by caller");
    let is_shown = |row: &&&Row| shown.iter().any(|caller| caller.member == row.member);
    sizes.iter().filter(is_shown).copied().collect()
}

/// Tables 3 and 4 of the simd-copy paper: before and after, published and here.
fn times(results: &Results, marks: &Marks<'_>) -> String {
    let metrics = [
        "profile: whole run",
        "profile: memcpy's own time",
        "profile: memcpy's share",
        "memcpy's own time, relative to stock",
        "profile: samples of memcpy",
    ];
    let mut names = vec![
        "whole run, s",
        "memcpy, s",
        "memcpy, %",
        "memcpy, relative to stock",
        "samples, ± √n",
    ];
    let rows = of(results, |row| metrics.contains(&row.metric.as_str()));
    let mut lines: Vec<(String, [String; 5])> = Vec::new();
    for row in rows {
        let place = parameter(row, "workloads");
        let published = if row.published.is_some() { " (published)" } else { "" };
        let name = format!("{place}{published}: {}", named(&row.member, ""));
        let index = lines.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            lines.push((name, Default::default()));
            lines.len() - 1
        });
        let column = metrics.iter().position(|metric| *metric == row.metric).expect("one of them");
        lines[index].1[column] = match column {
            4 => format!("{:.0} ± {:.0}", row.figure.median, row.figure.median.sqrt()),
            _ => marks.cell(row),
        };
    }
    if lines.is_empty() {
        return String::new();
    }
    // Files from before 2026-11-22 have no samples.
    if lines.iter().all(|(_, cells)| cells[4].is_empty()) {
        names.pop();
    }
    let mut text = format!("| workloads | {} |\n|---|", names.join(" | "));
    text.push_str(&"--:|".repeat(names.len()));
    text.push('\n');
    for (name, cells) in lines {
        let _ = writeln!(text, "| {name} | {} |", cells[..names.len()].join(" | "));
    }
    text
}

/// Tables 2 and 3 of the simd-copy paper: each function's share beside ours.
fn functions(results: &Results, marks: &Marks<'_>) -> String {
    let rows = of(results, |row| row.metric == "profile: functions with most time");
    let label = |row: &Row| {
        let published = if row.published.is_some() { " (published)" } else { "" };
        format!("{}{published}: {}", parameter(row, "workloads"), parameter(row, "variant"))
    };
    let mut columns: Vec<(String, Vec<String>)> = Vec::new();
    for row in rows {
        let name = label(row);
        let cell = format!("`{}` {}", row.member, marks.cell(row));
        match columns.iter_mut().find(|(known, _)| *known == name) {
            Some((_, cells)) => cells.push(cell),
            None => columns.push((name, vec![cell])),
        }
    }
    let mut text = String::new();
    for (name, cells) in columns {
        let _ = writeln!(text, "- {name}: {}", cells.join(", "));
    }
    text
}

/// Returns a line for each member: published, and here.
fn beside(results: &Results, (metric, processor): (&str, &str), marks: &Marks<'_>) -> String {
    let rows = of(results, |row| row.metric == metric && parameter(row, "processor") == processor);
    let mut lines: Vec<(String, [String; 2])> = Vec::new();
    for row in rows {
        let name = match parameter(row, "transport") {
            "" => named(&row.member, ""),
            transport => format!("{}, {transport}", named(&row.member, "")),
        };
        let index = lines.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            lines.push((name, Default::default()));
            lines.len() - 1
        });
        lines[index].1[usize::from(row.published.is_none())] = marks.cell(row);
    }
    if lines.is_empty() {
        return String::new();
    }
    let mut text = "| | published | here |\n|---|--:|--:|\n".to_owned();
    for (name, [published, here]) in lines {
        let _ = writeln!(text, "| {name} | {published} | {here} |");
    }
    text
}

/// Returns a line for each label, a column for each member.
fn across_members(rows: &[&Row], label: impl Fn(&Row) -> String, marks: &Marks<'_>) -> String {
    let mut members: Vec<&str> = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    for row in rows {
        if !members.contains(&row.member.as_str()) {
            members.push(&row.member);
        }
        let line = label(row);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if members.is_empty() {
        return String::new();
    }
    let mut text = format!("| | {} |\n|---|", members.join(" | "));
    text.push_str(&"--:|".repeat(members.len()));
    text.push('\n');
    for line in lines {
        let _ = write!(text, "| {line} |");
        for member in &members {
            let row = rows.iter().find(|row| row.member == *member && label(row) == line);
            let _ = write!(text, " {} |", row.map(|row| marks.cell(row)).unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

#[test]
fn published_and_measured_stand_in_one_line() {
    let row = |member: &str, metric: &str, value: f64, published: bool| {
        let figure = measure::Figure::of(vec![value; 5]);
        let row = Row::new("kernel", member, metric, "", figure);
        Row { published: published.then(|| "the study".to_owned()), ..row }
    };
    let ratio = "instructions, relative to rtp_sendfile";
    let engine = |value, published| {
        let row = row("krtpsendfile", ratio, value, published).with("transport", "rtp");
        row.with("processor", "with fast strings")
    };
    let whole = |variant: &str, value, published, place: &str| {
        row(variant, "profile: whole run", value, published).with("workloads", place)
    };
    let mut results = Results::new("kernel", []);
    results.rows = vec![
        engine(0.4, false),
        engine(0.73, true),
        whole("stock", 1.5, false, "mix"),
        whole("stock", 155.11, true, "UnixBench"),
        row("User Mode Linux", "claims that hold", 40.0, false),
        row("Debian's", "claims that hold", 41.0, false),
    ];
    results.warnings = Warning::of_rows(&results.rows);
    let text = tables(&results);
    for line in [
        "| `krtpsendfile`, rtp | 0.730 | 0.400 |",
        "| mix: `stock` | 1.50 |  |  |  |",
        "| UnixBench (published): `stock` | 155 |  |  |  |",
        "| | User Mode Linux | Debian's |",
        "| claims that hold,  | 40.0 | 41.0 |",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("Vectorised loops"), "there are none");
    assert!(!text.contains("samples, ±"), "no column without a figure");
    results.rows.push(whole("stock", 400.0, false, "mix"));
    results.rows.last_mut().unwrap().metric = "profile: samples of memcpy".to_owned();
    let text = tables(&results);
    assert!(text.contains("| mix: `stock` | 1.50 |  |  |  | 400 ± 20 |"), "{text}");
}
