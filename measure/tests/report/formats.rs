// SPDX-License-Identifier: MIT OR Apache-2.0
//! Report formats: exact outputs of a small measurement, and general rules checked on a large one
//! in the shape of a full run.
//!
//! The large one's page is left in cargo's temporary folder (target/tmp/report.html), for
//! inspection.

use std::path::Path;

use measure::report::{csv, html, markdown, terminal};
use measure::{Figure, Results, Row, Warning};

use crate::sample;

#[test]
fn the_terminal_shows_bars_ratios_and_cures() {
    let expected = "\
lab paths, 5 figures
command    pagewire lab paths --json paths.json
taken      2026-11-21T07:08:09Z
commit     0123456789ab
host       2 cores of AMD EPYC, 8.0 GiB, kernel 6.18.44, virtual (Amazon EC2)
· RTP packets into an ifb device that cannot segment; 5 rounds of 400 MB a member, interleaved; the
  file of 256 MB is in the page cache
· skip: xdp: needs CAP_NET_RAW in the initial namespace; found none

  CPU cost, s/GB (bytes=1328); then relative to read_writev
  read_writev    segments=1     2.20  ± 0 %       1.00      ████████████████████████████████████████
  wire_sendfile  segments=44   0.290  ± 6.9 %    0.132  !1  █████▎

  relative to read_writev
  krtpsendfile   0.730  published  ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░

published, not measured here: the study, figure 5

warnings
!1  wire_sendfile, bytes=1328, segments=44: CPU cost: spread 6.9 % of 5 samples, over 5 %
    wire_sendfile, bytes=1328, segments=44: relative to read_writev: spread 6.9 % of 5 samples, over
    5 %
    cure: measure again on an idle machine, in full (not quick), or with more rounds; give the
          figure only with this warning
";
    let expected =
        expected.replace("\n  CPU cost,", "\nCPU cost,").replace("\n  relative", "\nrelative");
    assert_eq!(terminal(&sample::small()), expected);
}

#[test]
fn csv_has_a_line_a_figure_and_every_digit() {
    let mut results = sample::small();
    results.rows.truncate(2);
    let text = csv(&results);
    let expected = "\
experiment,member,parameters,metric,unit,median,spread,samples,published,commit,taken
paths,read_writev,bytes=1328;segments=1,CPU cost,s/GB,2.2,0,2.2;2.21;2.19;2.2;2.2,,0123456789ab,\
2026-11-21T07:08:09Z
paths,wire_sendfile,bytes=1328;segments=44,CPU cost,s/GB,0.29,0.06896551724137938,\
0.29;0.33;0.25;0.31;0.27,,0123456789ab,2026-11-21T07:08:09Z
";
    assert_eq!(text, expected);
}

#[test]
fn csv_quotes_what_would_be_two_fields() {
    let mut results = sample::small();
    let figure = Figure::published(1.0);
    let row = Row::new("x", "a,\"b\"", "late,\n99 %", "ms", figure).with("k;", "v=1\\");
    results.rows = vec![Row { published: Some("a study".to_owned()), ..row }];
    let (_, line) = csv(&results).split_once('\n').map(|(a, b)| (a.len(), b.to_owned())).unwrap();
    let expected = "x,\"a,\"\"b\"\"\",k\\;=v\\=1\\\\,\"late,\n99 %\",ms,1,0,,a study,0123456789ab,\
        2026-11-21T07:08:09Z\n";
    assert_eq!(line, expected);
}

#[test]
fn markdown_is_tables_with_the_facts_below() {
    let mut results = sample::small();
    results.notes.truncate(1);
    results.warnings.truncate(1);
    let expected = "\
## paths

- RTP packets into an ifb device that cannot segment; 5 rounds of 400 MB a member, interleaved; \
the file of 256 MB is in the page cache

### CPU cost, s/GB (bytes=1328)

| | CPU cost, s/GB | spread | relative to read_writev | warnings |
|---|--:|--:|--:|---|
| read_writev, segments=1 | 2.20 | ± 0 % | 1.00 |  |
| wire_sendfile, segments=44 | 0.290 | ± 6.9 % | 0.132 | !1 |

### relative to read_writev

| | relative to read_writev | spread |
|---|--:|--:|
| krtpsendfile | 0.730 | published |

Published, not measured here: the study, figure 5.

### Warnings

**!1** measure again on an idle machine, in full (not quick), or with more rounds; give the figure \
only with this warning

- wire_sendfile, bytes=1328, segments=44: CPU cost: spread 6.9 % of 5 samples, over 5 %

| | |
|---|---|
| command | pagewire lab paths --json paths.json |
| taken | 2026-11-21T07:08:09Z |
| commit | 0123456789ab |
| host | 2 cores of AMD EPYC, 8.0 GiB, kernel 6.18.44, virtual (Amazon EC2) |
";
    assert_eq!(markdown(&results), expected);
}

#[test]
fn the_terminal_is_100_columns_wide() {
    for results in [sample::large(), hostile()] {
        let text = terminal(&results);
        // A word longer than a line stays unbroken.
        let fits = |line: &&str| {
            let longest = line.split(' ').map(|word| word.chars().count()).max();
            line.chars().count() <= 100 || longest.is_some_and(|longest| longest > 60)
        };
        let wide: Vec<_> = text.lines().filter(|line| !fits(line)).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }
}

#[test]
fn the_page_plots_every_metric_and_hovers_with_every_figure() {
    let results = sample::large();
    let page = html(&results);
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.html"), &page).unwrap();
    assert_balanced(&page);
    // The page has lines and bars for two metrics and two sinks, and bars for counts.
    assert_eq!(page.matches("<svg ").count(), 9);
    // Each figure is in a line or a bar; those at 1328 are in both.
    let at_1328 = |row: &&Row| row.parameters.get("bytes").is_some_and(|bytes| bytes == "1328");
    let hovers = page.matches("<title>").count() - 1;
    assert_eq!(hovers, results.rows.len() + results.rows.iter().filter(at_1328).count());
    assert!(page.contains("bytes=1328, segments=44, sink=ifb device, transport=rtp: "));
    // The published series is dashed in both plots of lines and in both of bars.
    assert_eq!(page.matches(" published\"><").count(), 4);
    for warning in &results.warnings {
        assert!(page.contains(warning.cure().replace('"', "&quot;").as_str()), "{warning}");
    }
    let place = |what: &str| page.find(what).unwrap_or_else(|| panic!("no {what}"));
    let order = ["class=\"result\"", "<svg ", "<table>", "id=\"warnings\"", "<h2>Set-up</h2>"];
    assert!(order.windows(2).all(|pair| place(pair[0]) < place(pair[1])), "the result comes first");
    assert!(place(&results.host.kernel) > place("<h2>Set-up</h2>"), "notes and host at the end");
    assert!(page.contains("prefers-color-scheme: dark"));
    for beyond in ["http://", "https://", "<script", "<link", "src="] {
        assert!(!page.contains(beyond), "{beyond}: the page needs nothing else");
    }
}

#[test]
fn every_format_shows_every_member_and_warning() {
    let results = sample::large();
    for (format, text) in [("terminal", terminal(&results)), ("markdown", markdown(&results))] {
        for row in &results.rows {
            assert!(text.contains(&row.member), "{format}: {}", row.member);
        }
        for warning in Warning::examples() {
            let words = |text: &str| text.split_whitespace().collect::<String>();
            assert!(words(&text).contains(&words(warning.cure())), "{format}: {warning}");
        }
        assert!(text.contains("interrupted or a member failed"), "{format}");
    }
}

/// A file from a stranger may contain any text.
#[test]
fn texts_are_never_taken_for_markup_or_orders() {
    let results = hostile();
    let page = html(&results);
    assert_balanced(&page);
    assert!(!page.contains("<img") && !page.contains("<b>x"), "{page}");
    assert!(!terminal(&results).contains('\u{1b}'));
    let table = markdown(&results);
    assert!(!table.contains("<img") && !table.contains("\u{1b}"));
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| &lt;img")).collect();
    assert!(!rows.is_empty() && rows.iter().all(|row| columns(row) == 5), "{table}");
}

#[test]
fn a_measurement_without_figures_can_be_shown() {
    let mut results = sample::small();
    results.rows.clear();
    results.warnings.clear();
    assert_balanced(&html(&results));
    assert!(terminal(&results).starts_with("lab paths, 0 figures\n"));
    assert_eq!(csv(&results).lines().count(), 1);
    assert!(markdown(&results).contains("| commit | 0123456789ab |"));
}

/// Returns figures at the limits of numbers, and names that contain markup.
fn hostile() -> Results {
    let mut results = sample::small();
    let text = "<img src=x onerror='alert(1)'>\"|&\u{1b}[2J\n<b>x";
    let values = [0.0, -1.0, f64::MAX, f64::MIN_POSITIVE, -f64::MAX, 1e-300];
    let row = |value: f64, size: &str| {
        Row::new(text, text, text, text, Figure::of(vec![value, -value])).with("bytes", size)
    };
    results.rows = values.iter().map(|value| row(*value, "1e308").with(text, text)).collect();
    let sizes = ["-1", "0", "1", "1e308", "-1e308", "1e-308"];
    results.rows.extend(sizes.iter().zip(values).map(|(size, value)| row(value, size)));
    results.warnings = Warning::of_rows(&results.rows);
    results.warnings.push(Warning::MemberFailed { member: text.into(), found: text.into() });
    results.notes.push(text.to_owned());
    results.command = text.to_owned();
    results.experiment = text.to_owned();
    results.host.processor = text.to_owned();
    results
}

/// Checks that tags are balanced, attributes quoted and all numbers finite.
#[track_caller]
fn assert_balanced(page: &str) {
    let mut open = Vec::new();
    let (_, body) = page.split_once("</style>").unwrap();
    assert!(!body.contains("NaN") && !body.contains("inf"), "a number that is none");
    for part in page.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("a tag ends");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        match tag.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "before </{closed}>"),
            None if tag.ends_with('/') || ["!DOCTYPE", "meta"].contains(&name) => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}
