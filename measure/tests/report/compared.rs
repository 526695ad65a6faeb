// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of two measurements: the verdict on each figure and the summary.

use measure::{ChangeVerdict, Figure, Results, Row, Warning, compare};

use crate::sample;

/// Returns the verdict on one row with these samples before and after.
#[track_caller]
fn verdict(metric: &str, unit: &str, before: &[f64], after: &[f64]) -> ChangeVerdict {
    let of = |samples: &[f64]| {
        let mut results = sample::small();
        let figure = Figure::of(samples.to_vec());
        results.rows = vec![Row::new("paths", "m", metric, unit, figure)];
        results
    };
    let comparison = compare(&of(before), &of(after)).unwrap();
    assert_eq!(comparison.changes.len(), 1);
    comparison.changes[0].verdict
}

#[test]
fn a_change_is_what_neither_spread_nor_layout_explains() {
    // Deviations of 0.05 and 0.05: a change begins at 2 × 1.4826 × 0.1 = 0.2965.
    let noisy = |median: f64| [median, median - 0.05, median + 0.05, median - 0.1, median + 0.1];
    let cpu_s_per_gb = |before: &[f64], after: &[f64]| verdict("CPU cost", "s/GB", before, after);
    assert_eq!(cpu_s_per_gb(&noisy(2.0), &noisy(1.71)), ChangeVerdict::Unchanged);
    assert_eq!(cpu_s_per_gb(&noisy(2.0), &noisy(1.70)), ChangeVerdict::Faster);
    assert_eq!(cpu_s_per_gb(&noisy(2.0), &noisy(2.30)), ChangeVerdict::Slower);
    // Without noise, a change begins at 2 %.
    assert_eq!(cpu_s_per_gb(&[2.0; 5], &[2.039; 5]), ChangeVerdict::Unchanged);
    assert_eq!(cpu_s_per_gb(&[2.0; 5], &[2.041; 5]), ChangeVerdict::Slower);
    // The figure changes from 0 to more.
    assert_eq!(cpu_s_per_gb(&[0.0; 5], &[0.0; 5]), ChangeVerdict::Unchanged);
    assert_eq!(cpu_s_per_gb(&[0.0; 5], &[0.1; 5]), ChangeVerdict::Slower);
}

#[test]
fn of_a_rate_more_is_better() {
    assert_eq!(verdict("throughput", "Gb/s", &[8.0; 5], &[9.0; 5]), ChangeVerdict::Faster);
    assert_eq!(verdict("timely", "sessions", &[2500.0; 5], &[2000.0; 5]), ChangeVerdict::Slower);
    assert_eq!(verdict("lateness 99.9 %", "ms", &[8.0; 5], &[9.0; 5]), ChangeVerdict::Slower);
}

#[test]
fn too_few_samples_are_not_judged_and_counts_are() {
    assert_eq!(verdict("lateness", "ms", &[8.0], &[1.0]), ChangeVerdict::Unknown);
    assert_eq!(verdict("lateness", "ms", &[8.0; 5], &[1.0; 2]), ChangeVerdict::Unknown);
    assert_eq!(verdict("crossings", "per packet", &[2.0], &[1.0]), ChangeVerdict::Faster);
}

#[test]
fn one_variable_may_differ() {
    let before = sample::small();
    let mut after = sample::small();
    after.commit.push('+');
    assert_eq!(compare(&before, &after).unwrap().warnings, []);
    after.host.kernel = "6.19.0".to_owned();
    let which = vec!["kernel".to_owned(), "commit".to_owned()];
    let expected = [Warning::ManyVariables { which }];
    assert_eq!(compare(&before, &after).unwrap().warnings, expected);
    after.host = before.host.clone();
    after.command.push_str(" --quick");
    let text = compare(&before, &after).unwrap().to_string();
    let line = "warning: 2 things differ between the two measurements: commit, command\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn two_experiments_are_refused() {
    let mut other = sample::small();
    other.experiment = "sessions".to_owned();
    let error = compare(&sample::small(), &other).unwrap_err().to_string();
    let expected = "lab compare: a measurement of paths and one of sessions; give two of the same \
        experiment";
    assert_eq!(error, expected);
}

#[test]
fn rows_are_matched_by_all_that_names_them() {
    let row = |size: u32, unit: &str, value: f64| {
        Row::new("paths", "m", "CPU cost", unit, Figure::of(vec![value; 5])).with("bytes", size)
    };
    let with = |rows: Vec<Row>| Results { rows, ..sample::small() };
    let before = with(vec![row(64, "s/GB", 1.0), row(128, "s/GB", 2.0), row(256, "s/GB", 3.0)]);
    let after = with(vec![row(128, "s/GB", 2.0), row(256, "ms", 3.0), row(128, "s/GB", 5.0)]);
    let comparison = compare(&before, &after).unwrap();
    assert_eq!(comparison.changes.len(), 1);
    assert_eq!(comparison.changes[0].ratio, Some(1.0));
    assert_eq!(comparison.only_before, [before.rows[0].clone(), before.rows[2].clone()]);
    // The second row of a name has no partner.
    assert_eq!(comparison.only_after, [after.rows[1].clone(), after.rows[2].clone()]);
}

#[test]
fn the_table_has_the_largest_change_first() {
    let row = |member: &str, value: f64| {
        let figure = Figure::of(vec![value; 5]);
        Row::new("paths", member, "CPU cost", "s/GB", figure).with("bytes", 1328)
    };
    let mut before = sample::small();
    before.rows.truncate(5);
    let published = before.rows.pop().unwrap();
    before.rows = vec![row("a", 1.0), row("b", 2.0), row("c", 3.0), row("gone", 0.5), published];
    let mut after = before.clone();
    after.rows = vec![row("a", 1.01), row("b", 2.4), row("c", 1.0), row("new", 0.25)];
    after.complete = false;
    let expected = "
  ratio                      first    second  unit
  0.333  faster               3.00      1.00  s/GB  c, CPU cost, bytes=1328
   1.20  slower               2.00      2.40  s/GB  b, CPU cost, bytes=1328
   1.01  unchanged            1.00      1.01  s/GB  a, CPU cost, bytes=1328

only in the first:
  gone, CPU cost, bytes=1328  0.500 s/GB

only in the second:
  new, CPU cost, bytes=1328  0.250 s/GB

published values, left out: 1
";
    let text = compare(&before, &after).unwrap().to_string();
    let (head, table) = text.split_at(text.find("\n\n").unwrap() + 1);
    assert_eq!(table, expected);
    assert!(head.contains("2 × 1.4826 × (both median absolute deviations)"), "{head}");
    assert!(head.ends_with("\nthe second is incomplete: it was interrupted or a member failed\n"));
    let expected = "\
lab paths: the second measurement against the first
the second is incomplete
1 figure better, 1 worse, 1 unchanged
only in the first: 1, only in the second: 1

1.20 times dearer     b, CPU cost, bytes=1328: 2.00 → 2.40 s/GB
3.00 times cheaper    c, CPU cost, bytes=1328: 3.00 → 1.00 s/GB
";
    assert_eq!(compare(&before, &after).unwrap().summary(), expected);
}

#[test]
fn a_ratio_has_its_direction_in_words() {
    let words = |metric: &str, unit: &str, before: f64, after: f64| {
        let of = |value: f64| {
            let figure = Figure::of(vec![value; 5]);
            let rows = vec![Row::new("paths", "m", metric, unit, figure)];
            Results { rows, ..sample::small() }
        };
        compare(&of(before), &of(after)).unwrap().changes[0].words()
    };
    assert_eq!(words("CPU cost", "s/GB", 1.24, 1.0), "1.24 times cheaper");
    assert_eq!(words("CPU cost", "s/GB", 1.0, 1.07), "7 % dearer");
    assert_eq!(words("relative to read_writev", "", 1.0, 0.93), "7 % cheaper");
    assert_eq!(words("throughput", "Gb/s", 1.0, 2.0), "2.00 times faster");
    assert_eq!(words("relative to openssl", "times", 2.0, 1.0), "2.00 times slower");
    assert_eq!(words("late, median", "ms", 4.0, 2.0), "2.00 times shorter");
    assert_eq!(words("timely", "sessions", 2500.0, 2750.0), "10 % more");
    assert_eq!(words("lost", "packets", 0.0, 3.0), "more, from nothing");
    assert_eq!(words("lost", "packets", 3.0, 0.0), "less, to nothing");
}

#[test]
fn a_verdict_is_twenty_lines_at_most_and_a_change_stands_once() {
    let (mut before, mut after) = (sample::large(), sample::large());
    before.host.kernel.push('+');
    after.command.push_str(" --quick");
    after.complete = false;
    before.rows[0].member = "gone".to_owned();
    let measured = after.rows.iter_mut().filter(|row| row.published.is_none());
    for (index, row) in measured.enumerate() {
        let factor = 1.5 + index as f64 / 1000.0;
        row.figure = Figure::of(row.figure.samples.iter().map(|sample| sample * factor).collect());
    }
    let text = compare(&before, &after).unwrap().summary();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 19, "{text}");
    let last = lines[18];
    assert!(last.starts_with("and ") && last.ends_with(" once"), "{last}");
    let listed: Vec<&str> = lines.iter().filter(|line| line.contains(" → ")).copied().collect();
    assert!(listed.len() >= 10, "{text}");
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for line in &listed {
        let label = line.split_once("  ").map_or("", |(_, rest)| rest.trim_start());
        let member = label.split(", ").next().unwrap_or_default();
        let parameters = label.split_once('=').map_or("", |(_, rest)| rest);
        let parameters = parameters.split(": ").next().unwrap_or_default();
        assert!(!kinds.contains(&(member, parameters)), "{line} stands twice");
        kinds.push((member, parameters));
    }
    let same = compare(&sample::small(), &sample::small()).unwrap().summary();
    assert!(same.contains("0 figures better, 0 worse") && !same.contains('→'), "{same}");
}

#[test]
fn what_is_worse_is_seen_beside_any_number_of_larger_gains() {
    let (before, mut after) = (sample::large(), sample::large());
    let measured = after.rows.iter_mut().filter(|row| row.published.is_none());
    for (index, row) in measured.enumerate() {
        // One in fifty rates and CPU costs is a little worse, the rest much better.
        let is_rate = row.unit.ends_with("/s") || row.unit == "times";
        let factor = if (index % 50 == 0) == is_rate { 0.9 } else { 1.1 };
        let factor = if index % 50 == 0 { factor } else { f64::powi(factor, 8) };
        row.figure = Figure::of(row.figure.samples.iter().map(|sample| sample * factor).collect());
    }
    let comparison = compare(&before, &after).unwrap();
    let worse = comparison.changes.iter().filter(|change| change.verdict == ChangeVerdict::Slower);
    let words: Vec<String> = worse.map(measure::Change::words).collect();
    let text = comparison.summary();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 19 && words.len() > 5, "{text}");
    let listed: Vec<&&str> = lines.iter().filter(|line| line.contains(" → ")).collect();
    let of_worse = |line: &&&str| words.iter().any(|words| line.starts_with(words.as_str()));
    assert_eq!(listed.iter().take_while(|line| of_worse(line)).count(), listed.len() / 2, "{text}");
}

#[test]
fn what_did_not_change_does_not_hide_what_did() {
    let (before, mut after) = (sample::large(), sample::large());
    for row in after.rows.iter_mut().filter(|row| row.member == "xdp") {
        row.figure = Figure::of(row.figure.samples.iter().map(|sample| sample * 0.8).collect());
    }
    let text = compare(&before, &after).unwrap().to_string();
    assert_eq!(text.matches("  faster  ").count(), 45);
    assert_eq!(text.matches("  unchanged  ").count(), 582, "every figure is there");
    let last_change = text.rfind("  faster  ").unwrap();
    assert!(text.find("  unchanged  ").unwrap() > last_change, "{text}");
    let verdict = compare(&before, &after).unwrap().summary();
    assert!(verdict.contains("\n45 figures better, 0 worse, 582 unchanged\n"), "{verdict}");
}
