// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the stall finder through the real program: on its own kernels and specimens, on a C program
//! made here, and on commands that cannot be watched.
//!
//! Counts are exact and no test measures time. The run lasts some ten seconds; a tracer that cannot
//! be used here is skipped, with the reason.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::{PROGRAM, folder, lab, read, stderr};

/// Returns the pairs of a report that were found within a function of this name.
fn within<'a>(report: &'a Value, name: &str) -> Vec<&'a Value> {
    let pairs = report["pairs"].as_array().expect("pairs");
    let ends = |pair: &&Value| pair["within"].as_str().is_some_and(|within| within.ends_with(name));
    pairs.iter().filter(ends).collect()
}

#[test]
fn the_fault_is_found_in_the_program_itself_and_nothing_in_what_it_uses() {
    let folder = folder();
    let file = folder.path().join("check.json");
    let output = lab(&["stalls", "--self", "--json", file.to_str().unwrap()]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    if stderr(&output).contains("this needs lackey or steps") {
        return eprintln!("skip: {}", stderr(&output).trim());
    }
    assert_eq!(output.status.code(), Some(0), "{shown}{}", stderr(&output));
    let check = read(&file);
    for passed in check["passed"].as_array().unwrap() {
        eprintln!("skip: {}", passed.as_str().unwrap());
    }
    for report in check["reports"].as_array().unwrap() {
        let tracer = &report["tracer"];
        let findings = check["findings"].as_array().unwrap();
        let finding = |name: &str| {
            let mut found = findings.iter().filter(|it| it["exercise"] == name);
            found.find(|it| it["tracer"] == *tracer).expect("every exercise with every tracer")
        };
        // 25 batches of four descriptors, each with its own narrow store.
        assert_eq!(finding("narrow_store")["blocked"], 100, "{tracer}");
        for clean in ["sse_blend", "descriptor", "packet", "cbc", "checksum", "copy", "stamp"] {
            assert_eq!(finding(clean)["blocked"], 0, "{tracer} {clean}: {shown}");
        }
        let pairs = within(report, "::narrow_store");
        let mut narrow = BTreeSet::new();
        for pair in &pairs {
            assert_eq!(pair["load"]["bytes"], 16, "{pair}");
            assert_eq!(pair["stores"][0]["bytes"], 2, "the youngest store: {pair}");
            for touch in [&pair["load"], &pair["stores"][0]] {
                let function = touch["function"].as_str().unwrap();
                assert!(function.contains("narrow_store"), "{touch}");
                assert!(touch["source"].as_str().unwrap().contains("lab/src/specimens/descriptor"));
                assert!(touch["instruction"].as_str().unwrap().contains('['), "{touch}");
            }
            narrow.insert(pair["stores"][0]["address"].as_u64().unwrap());
        }
        // Four stores of a batch, times the compiler's copies of the batch.
        assert!(!narrow.is_empty() && narrow.len() % 4 == 0, "{tracer}: {pairs:#?}");
        assert!(within(report, "::sse_blend").is_empty(), "{tracer}");
    }
    assert!(shown.contains("narrow_store   100 blocked loads found"), "{shown}");
}

/// Compiles a program with a function that stalls a hundred times and one that never does.
fn program(folder: &std::path::Path) -> Option<PathBuf> {
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&source, PROGRAM_SOURCE).unwrap();
    let mut compiler = Command::new("cc");
    match compiler.args(["-O1", "-g", "-o"]).arg(&program).arg(&source).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", stderr(&output));
            Some(program)
        }
        Err(error) => {
            eprintln!("skip: cc: {error}");
            None
        }
    }
}

const PROGRAM_SOURCE: &str = r#"
#include <stdint.h>
#include <stdio.h>
__attribute__((noinline)) uint64_t torn(volatile uint8_t *bytes) {
    bytes[3] = 7;
    return *(volatile uint64_t *)bytes;
}
__attribute__((noinline)) uint64_t whole(volatile uint64_t *word) {
    *word = 7;
    return *word;
}
int main(void) {
    uint64_t word = 0, sum = 0;
    for (int n = 0; n < 100; n++) sum += torn((volatile uint8_t *)&word);
    for (int n = 0; n < 100; n++) sum += whole(&word);
    printf("sum %lu\n", sum);
    return 5;
}
"#;

#[test]
fn a_program_is_reported_with_its_line_and_the_status_says_so_when_asked() {
    let folder = folder();
    let Some(program) = program(folder.path()) else { return };
    let program = program.to_str().unwrap();
    for tracer in ["lackey", "steps"] {
        let run = |function: &str, more: &[&str]| {
            let options = ["stalls", "--by", tracer, "--function", function];
            lab(&[&options[..], more, &["--", program]].concat())
        };
        let output = run("torn", &["--fail", "--json", "-"]);
        if stderr(&output).contains("this needs") {
            eprintln!("skip: {}", stderr(&output).trim());
            continue;
        }
        assert_eq!(output.status.code(), Some(3), "{tracer}: {}", stderr(&output));
        assert!(stderr(&output).contains("sum "), "the program's own output stands aside");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
        assert_eq!((&report["blocked"], &report["exit"]), (&100.into(), &5.into()), "{tracer}");
        let pair = &report["pairs"][0];
        assert_eq!((&pair["count"], &pair["load"]["function"]), (&100.into(), &"torn".into()));
        assert!(pair["load"]["source"].as_str().unwrap().ends_with("program.c:6"), "{pair}");
        assert!(pair["stores"][0]["source"].as_str().unwrap().ends_with("program.c:5"), "{pair}");
        assert!(pair["cost_ns"].as_f64().is_some_and(|cost| cost >= 0.0), "{pair}");
        assert!(report["command"].as_str().unwrap().starts_with("pagewire lab stalls --by"));
        let output = run("torn", &[]);
        assert_eq!(output.status.code(), Some(0), "found, and nobody asked to fail");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        for part in ["sum ", "100 blocked loads", "torn", "program.c:6", "ended with 5"] {
            assert!(shown.contains(part), "{tracer}: {part} in {shown}");
        }
        let output = run("whole", &["--fail"]);
        assert_eq!(output.status.code(), Some(0), "{tracer}: {}", stderr(&output));
        // Both bounds: a reach of four finds a store four instructions back, a reach of one does
        // not.
        let output = run("torn", &["--fail", "--reach", "1"]);
        let near = if stderr(&output).is_empty() { output.status.code() } else { None };
        assert!([Some(0), Some(3)].contains(&near), "{tracer}: {}", stderr(&output));
    }
}

#[test]
fn what_cannot_be_watched_is_said_in_a_line() {
    let folder = folder();
    let text = folder.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    let text = text.to_str().unwrap();
    for (arguments, wanted) in [
        (&["stalls"][..], "<COMMAND>"),
        (&["stalls", "--by", "guess", "--", "true"], "write one of counters, lackey, steps"),
        (&["stalls", "--", "no-such-program"], "no such command in PATH; write its path"),
        (&["stalls", "--", text], "not a file that can be executed"),
        (&["stalls", "--window", "0", "--", "true"], "--window"),
        (&["stalls", "--self", "--", "true"], "--self"),
        (&["stalls", "--self", "--by", "counters"], "write one of lackey, steps"),
        (&["stalls", "true"], "true"),
    ] {
        let output = lab(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(wanted), "{arguments:?}: {}", stderr(&output));
    }
    let listed = lab(&["stalls", "--list"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for tracer in ["counters", "lackey", "steps"] {
        assert!(listed.lines().any(|line| line.starts_with(tracer)), "{listed}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn without_valgrind_the_next_way_is_named_and_taken() {
    let alone = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("PATH", "/nonexistent").output().expect("the program runs")
    };
    let output = alone(&["stalls", "--by", "lackey", "--", "/bin/true"]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("valgrind: not installed: "), "{message}");
    assert!(message.contains("; apt install valgrind; the tracer "), "{message}");
    let options = ["stalls", "--steps", "10", "--json", "-", "--", "/bin/true"];
    let output = alone(&options);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_ne!(report["tracer"], "lackey");
    let notes = report["notes"].to_string();
    assert!(report["tracer"] == "counters" || notes.contains("lackey cannot be used here"));
}
