// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurement files: a written file can be read; every error of reading or writing has a cure.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use measure::{FORMAT, Results, save};
use tempfile::TempDir;

use crate::sample;

#[test]
fn what_was_written_is_read() {
    let (_folder, path) = target();
    let results = sample::large();
    results.write(&path).unwrap();
    let read = Results::read(&path).unwrap();
    assert_eq!(read.json(), results.json());
    assert_eq!((read.host, read.warnings), (results.host, results.warnings));
    // The mode is that of any new file of the user, not of a temporary one.
    let plain = path.with_extension("plain");
    fs::write(&plain, "").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&plain));
}

#[test]
fn one_row_of_the_file_is_one_figure() {
    let value: serde_json::Value = serde_json::from_str(&sample::small().json()).unwrap();
    let row = serde_json::json!({
        "experiment": "paths",
        "member": "wire_sendfile",
        "parameters": { "bytes": "1328", "segments": "44" },
        "metric": "CPU cost",
        "unit": "s/GB",
        "median": 0.29,
        "spread": 0.068_965_517_241_379_38,
        "samples": [0.29, 0.33, 0.25, 0.31, 0.27],
    });
    assert_eq!(value["rows"][1], row);
    assert_eq!(value["rows"][4]["published"], "the study, figure 5");
    assert_eq!(value["format"], FORMAT);
    assert_eq!(value["host"]["memory_bytes"], 8_589_934_592_u64);
}

#[test]
fn file_of_the_format_before_is_read_under_the_new_names() {
    let (_folder, path) = target();
    let results = sample::small();
    let before =
        results.json().replace("\"format\": 2", "\"format\": 1").replace("CPU cost", "bill");
    assert!(before.contains("\"format\": 1") && before.contains("\"metric\":\"bill\""));
    fs::write(&path, before).unwrap();
    let read = Results::read(&path).unwrap();
    assert_eq!((read.format, &read.rows), (FORMAT, &results.rows));
    assert_eq!(read.warnings, results.warnings);
}

#[test]
fn file_has_a_row_a_line() {
    let results = sample::small();
    let text = results.json();
    let rows = text.lines().filter(|line| line.starts_with("    {\"experiment\""));
    assert_eq!(rows.count(), results.rows.len());
    let empty = Results { rows: Vec::new(), ..results };
    assert_eq!(Results::from_json(&empty.json(), "none").unwrap(), empty);
}

#[test]
fn another_version_is_refused_by_its_number() {
    let (_folder, path) = target();
    // A later version's other fields are unknown.
    fs::write(&path, r#"{"format": 3, "runs": [{"x": null}]}"#).unwrap();
    let expected = format!(
        "{}: measurement format 3; this program reads 1 and 2; measure again or use the \
         version that wrote it",
        path.display()
    );
    assert_eq!(Results::read(&path).unwrap_err().to_string(), expected);
}

#[test]
fn an_experiment_that_is_not_known_is_no_fault() {
    let text = sample::small().json().replace("\"paths\"", "\"of the future\"");
    assert_eq!(Results::from_json(&text, "x").unwrap().experiment, "of the future");
}

#[test]
fn a_file_cut_anywhere_is_said_to_be_damaged() {
    let text = sample::small().json();
    for bytes in 0..text.trim_end().len() {
        let Some(cut) = text.get(..bytes) else { continue };
        let error = Results::from_json(cut, "a.json").unwrap_err().to_string();
        assert!(error.starts_with("a.json: damaged measurement file: "), "{bytes}: {error}");
        assert!(error.ends_with("; measure again"), "{error}");
    }
}

#[test]
fn what_is_no_measurement_is_said_to_be_none() {
    let (_folder, path) = target();
    let error = |content: &[u8]| {
        fs::write(&path, content).unwrap();
        let error = Results::read(&path).unwrap_err().to_string();
        error.strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
    };
    for other in ["{}", "[]", "\"x\"", r#"{"format": "one"}"#, r#"{"experiment": "paths"}"#] {
        assert!(error(other.as_bytes()).starts_with("not a measurement file: "), "{other}");
    }
    assert!(error(b"\xff\xfe").starts_with("not a measurement file: invalid utf-8"));
    // The head is right and the body is not.
    assert!(error(br#"{"format": 1}"#).starts_with("damaged measurement file: missing field"));
    let infinite = sample::small().json().replace("2.21", "1e999");
    assert!(error(infinite.as_bytes()).contains("number out of range"));
    for value in [1e308, -1e308, 900.0] {
        let mut outside = sample::small();
        outside.rows[0].figure.median = value;
        let found = error(outside.json().as_bytes());
        assert!(found.contains("is not that of its samples; measure again"), "{value}: {found}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let unknown = format!("\"unknown\": {deep}, \"unit\":");
    let deep = sample::small().json().replacen("\"unit\":", &unknown, 1);
    assert!(error(deep.as_bytes()).contains("recursion limit"));
}

#[test]
fn a_file_without_end_is_not_read_to_its_end() {
    let error = Results::read(Path::new("/dev/zero")).unwrap_err().to_string();
    assert!(error.starts_with("/dev/zero: over 64 MiB"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let (_folder, path) = target();
    let error = Results::read(&path).unwrap_err().to_string();
    assert!(error.starts_with(&format!("reading {}: No such file", path.display())), "{error}");
}

#[test]
fn a_full_device_is_said_with_a_cure() {
    let error = sample::small().write(Path::new("/dev/full")).unwrap_err().to_string();
    let expected = "writing /dev/full: No space left on device (os error 28); make room there, or \
        name a file on another disk";
    assert_eq!(error, expected);
}

/// A limit on file size (setrlimit(2)) simulates a disk that fills up during the write: the error
/// is returned after a part is written. The limit applies to the process, so this test runs itself
/// again below a shell that sets it.
#[test]
fn a_disk_that_fills_up_leaves_the_old_file_and_no_other() {
    if let Some(path) = std::env::var_os(LIMITED) {
        let error = sample::large().write(Path::new(&path)).unwrap_err().to_string();
        assert!(error.contains("File too large (os error 27); make room there"), "{error}");
        return;
    }
    let (folder, path) = target();
    save(&path, "the old file\n").unwrap();
    let name = "files::a_disk_that_fills_up_leaves_the_old_file_and_no_other";
    let output = Command::new("sh")
        // Without the trap, SIGXFSZ, which accompanies the error, would end the process.
        .args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" --exact \"$1\" --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .env(LIMITED, &path)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("1 passed"), "{stdout}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "the old file\n");
    assert_eq!(names(folder.path()), ["a.json"]);
}

#[test]
fn a_folder_that_is_not_there_is_said_with_a_cure() {
    let (folder, _) = target();
    let path = folder.path().join("none/a.json");
    let error = sample::small().write(&path).unwrap_err().to_string();
    let expected = "No such file or directory (os error 2); make the folder, or name a file in one \
        that exists";
    assert_eq!(error, format!("writing {}: {expected}", path.display()));
    let error = sample::small().write(folder.path()).unwrap_err().to_string();
    assert!(error.contains("Is a directory"), "{error}");
}

#[test]
fn a_link_stays_a_link_and_a_device_a_device() {
    let (folder, path) = target();
    save(&path, "old").unwrap();
    let link = folder.path().join("latest.json");
    symlink("a.json", &link).unwrap();
    save(&link, "new").unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(names(folder.path()), ["a.json", "latest.json"]);
    save(Path::new("/dev/null"), "new").unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

fn target() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    (folder, path)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

const LIMITED: &str = "PAGEWIRE_TEST_LIMITED_TARGET";
