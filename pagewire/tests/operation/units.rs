// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units and files of the packages, as far as they can be checked without installation:
//! `packaging/check.sh` (`make deb-check`) installs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{PROGRAM, watchdog};

fn units() -> Vec<PathBuf> {
    let folder = packaging().join("systemd");
    let found = fs::read_dir(folder).expect("it is in the repository").filter_map(Result::ok);
    let units: Vec<_> = found.map(|entry| entry.path()).collect();
    assert!(units.len() >= 5, "{units:?}");
    units
}

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging")
}

fn analyze(arguments: &[&str], files: &[PathBuf]) -> Option<watchdog::Outcome> {
    let mut command = Command::new("systemd-analyze");
    command.args(arguments).args(files);
    let outcome = watchdog::run(&mut command, Duration::from_secs(60));
    outcome.inspect_err(|reason| eprintln!("skip: {reason}")).ok()
}

#[test]
fn service_has_an_exposure_below_two() {
    let service = packaging().join("systemd/pagewire.service");
    let Some(outcome) = analyze(&["security", "--offline=true", "--no-pager"], &[service]) else {
        return;
    };
    let text = String::from_utf8(outcome.stdout).expect("UTF-8");
    if text.is_empty() {
        eprintln!("skip: systemd-analyze security --offline: {}", outcome.stderr.trim());
        return;
    }
    let line = text.lines().find(|line| line.contains("Overall exposure level"));
    let level = line.and_then(|line| line.split(": ").nth(1)?.split(' ').next()?.parse().ok());
    let level: f64 = level.unwrap_or_else(|| panic!("a level in {text}"));
    assert!(level < 2.0, "{level}: {text}");
    println!("systemd-analyze security: {level}");
}

#[test]
fn units_are_what_systemd_understands() {
    // The units name the program's installed path; here it is elsewhere.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let copies: Vec<_> = units()
        .into_iter()
        .map(|unit| {
            let text = fs::read_to_string(&unit).expect("it is in the repository");
            let copy = folder.path().join(unit.file_name().expect("it has a name"));
            fs::write(&copy, text.replace("/usr/bin/pagewire", PROGRAM)).expect("room for it");
            copy
        })
        .collect();
    let Some(outcome) = analyze(&["verify", "--man=no"], &copies) else { return };
    let ours: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains("pagewire")).collect();
    assert!(ours.is_empty(), "{ours:#?}");
    assert!(outcome.status.success(), "{outcome:?}");
}

#[test]
fn configuration_of_the_package_is_read_whole() {
    let mut command = Command::new(PROGRAM);
    command.args(["config", "show", "--config"]).arg(packaging().join("debian/pagewire.toml"));
    let shown = watchdog::run(&mut command, Duration::from_secs(60)).expect("the program is there");
    let text = String::from_utf8(shown.succeeded()).expect("UTF-8");
    for value in ["/var/lib/pagewire/media", "/var/cache/pagewire"] {
        assert!(text.contains(value), "{value}: {text}");
    }
}

/// The program refuses a socket name that it does not use.
#[test]
fn socket_units_name_their_sockets_as_the_program_does() {
    let mut names = Vec::new();
    for unit in units().iter().filter(|unit| unit.extension().is_some_and(|e| e == "socket")) {
        let text = fs::read_to_string(unit).expect("it is in the repository");
        let value =
            |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let name = value("FileDescriptorName").expect("a name").to_owned();
        let stem = unit.file_stem().and_then(|stem| stem.to_str()).expect("UTF-8");
        assert_eq!(stem, format!("pagewire-{name}"));
        assert_eq!(value("Service"), Some("pagewire.service"));
        names.push(name);
    }
    names.sort();
    assert_eq!(names, ["http", "https", "rtsp", "rtsps"]);
}
