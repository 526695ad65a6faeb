// SPDX-License-Identifier: MIT OR Apache-2.0
//! Feeds bytes from libFuzzer to every parser of untrusted input.
//!
//! One program holds all targets, so that they are built and instrumented once; `FUZZ_TARGET` names
//! the one to run. `fuzz/run.sh` builds it (no nightly compiler, no cargo-fuzz) and runs it. The
//! targets are in `fuzz/targets/`, a crate of the main workspace, whose tests replay their seeds.
//!
//! Sources: libFuzzer's documentation, "Startup initialization"; SanitizerCoverage.
#![no_main]
#![forbid(unsafe_code)]

use std::sync::OnceLock;

use fuzz_targets::{FuzzTarget, TARGETS};

static CHOSEN: OnceLock<&FuzzTarget> = OnceLock::new();

/// Reads `FUZZ_TARGET`. Without it, prints the names of the targets and ends the program.
fn choose() {
    let Ok(name) = std::env::var("FUZZ_TARGET") else {
        for target in TARGETS {
            println!("{}", target.name);
        }
        std::process::exit(0);
    };
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        eprintln!("FUZZ_TARGET={name}: no such target; fuzz/run.sh --list names them");
        std::process::exit(2);
    };
    CHOSEN.get_or_init(|| target);
}

libfuzzer_sys::fuzz_target!(init: choose(), |data: &[u8]| {
    let target = CHOSEN.get().expect("libFuzzer initialises before it runs");
    (target.run)(data);
});
