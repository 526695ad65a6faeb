// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire paths`: measured once, kept, and measured again on request.
//!
//! Does not judge figures.

#![forbid(unsafe_code)]

#[path = "../../lab/tests/program/namespace.rs"]
mod namespace;

use std::process::{Command, Output};

use namespace::has_network;
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pagewire");

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn cache() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder")
}

/// Returns the output of `pagewire paths` with this cache.
#[track_caller]
fn ranked(cache: &TempDir, more: &[&str]) -> String {
    let output = Command::new(PROGRAM)
        .args(["paths", "--interface", "lo"])
        .args(more)
        .env("XDG_CACHE_HOME", cache.path())
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn paths_are_ranked_once_and_kept() {
    if !has_network() {
        return;
    }
    let cache = cache();
    let ranked = |more: &[&str]| ranked(&cache, more);
    let first = ranked(&[]);
    assert!(first.contains("measured now") && first.contains("wire_sendfile"), "{first}");
    assert!(ranked(&[]).contains("kept from before"));
    let table: Value = serde_json::from_str(&ranked(&["--json"])).unwrap();
    let ranks = table["ranks"].as_array().unwrap();
    for transport in ["rtp", "tcp"] {
        let of = ranks.iter().filter(|rank| rank["transport"] == transport);
        let cpu_costs: Vec<f64> = of.filter_map(|rank| rank["cpu_s_per_gb"].as_f64()).collect();
        assert!(
            cpu_costs.len() >= 2 && cpu_costs.iter().all(|cpu_s_per_gb| *cpu_s_per_gb > 0.0),
            "{table}"
        );
    }
    let unusable = ranks.iter().filter(|rank| rank["cpu_s_per_gb"].is_null());
    assert!(unusable.into_iter().all(|rank| rank["refused"].is_string()), "{table}");
}

#[test]
fn unknown_interface_is_refused_with_its_name() {
    let output = Command::new(PROGRAM)
        .args(["paths", "--interface", "no-such-device"])
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("ENODEV"), "{}", stderr(&output));
}

/// Each ranking measures for seconds.
mod timed {
    use super::*;

    #[test]
    fn paths_are_measured_again_when_asked_for() {
        if !has_network() {
            return;
        }
        let cache = cache();
        assert!(ranked(&cache, &[]).contains("measured now"));
        assert!(ranked(&cache, &["--again"]).contains("measured now"));
        assert!(ranked(&cache, &[]).contains("kept from before"));
    }
}
