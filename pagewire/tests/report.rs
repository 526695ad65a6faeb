// SPDX-License-Identifier: MIT OR Apache-2.0
//! `scripts/report.py`: counts, skips and flaky tests of a run, and the faults that make it red.

#![forbid(unsafe_code)]

use std::fs;
use std::process::{Command, Output};

use tempfile::TempDir;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/report.py");

/// The files that cargo-nextest and `scripts/test.sh` leave of a run.
#[derive(Default)]
struct Run<'a> {
    /// Elements `testcase` of the report; none where there was no report.
    cases: Option<&'a str>,
    log: &'a str,
    flaky: &'a str,
    is_ci: bool,
}

impl Run<'_> {
    /// Returns true for exit status 0, and the output of the script; `None` where there is no
    /// Python.
    fn report(&self) -> Option<(bool, String)> {
        let folder = TempDir::new().expect("a temporary folder");
        let file = |name: &str| folder.path().join(name);
        if let Some(cases) = self.cases {
            let report = format!("<testsuites><testsuite>{cases}</testsuite></testsuites>");
            fs::write(file("junit.xml"), report).expect("room for a report");
        }
        fs::write(file("log"), self.log).expect("room for a log");
        fs::write(file("flaky.toml"), self.flaky).expect("room for a list");
        let mut command = Command::new("python3");
        command.arg(SCRIPT).args([file("junit.xml"), file("log"), file("flaky.toml")]);
        command.env_remove("CI");
        if self.is_ci {
            command.env("CI", "true");
        }
        let Output { status, stdout, stderr } = match command.output() {
            Ok(output) => output,
            Err(error) => {
                eprintln!("skip: report: python3: not installed: {error}");
                return None;
            }
        };
        assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
        Some((status.success(), String::from_utf8(stdout).expect("UTF-8")))
    }
}

fn case(name: &str, inside: &str) -> String {
    format!(
        r#"<testcase classname="pagewire::faults" name="{name}" time="1.5">{inside}</testcase>"#
    )
}

const DATE: &str = "date = 2999-01-01";
const TRIED_AGAIN: &str = r#"<flakyFailure type="test failure"/>"#;

#[test]
fn counts_are_those_of_the_report() {
    let cases = [
        case("a", ""),
        case("b", r#"<failure type="test failure">said</failure>"#),
        case("c", "<system-err>skip: io_uring: ENOSYS</system-err>"),
    ];
    let run = Run { cases: Some(&cases.concat()), ..Run::default() };
    let Some((is_green, output)) = run.report() else { return };
    assert!(is_green, "{output}");
    assert!(output.ends_with("\npassed 2\nfailed 1\nflaky 0\nskipped 1\n"), "{output}");
    assert!(output.contains("\nfailed tests:\n  pagewire::faults b\n"), "{output}");
    assert!(output.contains("  skip: io_uring: ENOSYS (pagewire::faults c)\n"), "{output}");
    assert!(output.contains("\n     1.50 s  pagewire::faults a\n"), "{output}");
}

#[test]
fn run_without_a_report_has_no_tests() {
    let Some((is_green, output)) = Run::default().report() else { return };
    assert!(is_green && output.ends_with("\npassed 0\nfailed 0\nflaky 0\nskipped 0\n"), "{output}");
}

#[test]
fn missing_program_is_a_fault_on_ci_alone() {
    for line in [
        "skip: hls: chromium: not installed: No such file or directory (os error 2)",
        "skip: strace: No such file or directory (os error 2)",
        "skip: no network namespace: sh: 1: ethtool: not found",
        "skip: kernel: module: make: not installed; apt-get install make",
    ] {
        let log = format!("== tests\n{line}\nanother line\n{line}\n");
        let run = |is_ci| Run { log: &log, is_ci, ..Run::default() }.report();
        let (Some((is_green, output)), Some((is_green_on_ci, output_on_ci))) =
            (run(false), run(true))
        else {
            return;
        };
        assert!(is_green && output.ends_with("skipped 1\n") && output.contains(line), "{output}");
        assert!(!is_green_on_ci && output_on_ci.contains("scripts/setup.sh"), "{output_on_ci}");
    }
}

#[test]
fn lack_of_the_host_is_a_skip_everywhere() {
    let log = "skip: io_uring: ENOSYS\nskip: counters: no hardware counter here\n";
    let Some((is_green, output)) = (Run { log, is_ci: true, ..Run::default() }).report() else {
        return;
    };
    assert!(is_green && output.ends_with("skipped 2\n"), "{output}");
}

#[test]
fn more_than_five_skips_for_a_busy_machine_are_a_fault() {
    for (count, is_fault) in [(5, false), (6, true)] {
        let log: String = (0..count)
            .map(|number| format!("skip: busy machine: test {number}: 3 datagrams dropped\n"))
            .collect();
        let Some((is_green, output)) = (Run { log: &log, ..Run::default() }).report() else {
            return;
        };
        assert_eq!(is_green, !is_fault, "{output}");
    }
}

#[test]
fn tests_that_need_another_try_are_listed_with_cause_and_date() {
    let case = case("a", TRIED_AGAIN);
    let entry = |cause: &str, date: &str| {
        format!("[[flaky]]\ntest = \"pagewire::faults a\"\ncause = \"{cause}\"\ndate = {date}\n")
    };
    for (flaky, fault) in [
        (entry("a cause", "2999-01-01"), ""),
        (String::new(), "pagewire::faults a: needed another try, and is not in the list"),
        (entry("a cause", "2020-01-01"), "listed since 2020-01-01, more than 14 days"),
        (entry("", "2999-01-01"), "its entry names no cause"),
        (entry("a cause", "'soon'"), "its entry has no date"),
    ] {
        let run = Run { cases: Some(&case), flaky: &flaky, ..Run::default() };
        let Some((is_green, output)) = run.report() else { return };
        assert_eq!(is_green, fault.is_empty(), "{flaky}{output}");
        assert!(output.contains(fault) && output.contains("flaky 1\n"), "{flaky}{output}");
    }
}

#[test]
fn more_than_three_tests_that_need_another_try_are_a_fault() {
    for (count, is_fault) in [(3, false), (4, true)] {
        let names = ["a", "b", "c", "d"];
        let cases: String = names[..count].iter().map(|name| case(name, TRIED_AGAIN)).collect();
        let entry = |name: &&str| {
            format!("[[flaky]]\ntest = \"pagewire::faults {name}\"\ncause = \"one\"\n{DATE}\n")
        };
        let flaky: String = names.iter().map(entry).collect();
        let run = Run { cases: Some(&cases), flaky: &flaky, ..Run::default() };
        let Some((is_green, output)) = run.report() else { return };
        assert_eq!(is_green, !is_fault, "{output}");
    }
}
