// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz program: feeds bytes from libFuzzer to every parser of untrusted input.
//!
//! One program holds all targets, so that they are built and instrumented once; `FUZZ_TARGET` names
//! the one to run. `fuzz/run.sh` builds it (no nightly compiler, no cargo-fuzz) and runs it. A
//! target checks more than "no panic": accepted input must satisfy the documentation.
//!
//! Sources: libFuzzer's documentation, "Startup initialization"; SanitizerCoverage.
//!
//! Does not look for memory errors: the fuzzed crates have no unsafe code there.
#![no_main]
#![forbid(unsafe_code)]

use std::sync::OnceLock;

mod depayload;
mod elementary;
mod epub;
mod frames;
mod http;
mod intake;
mod layouts;
mod manifest;
mod mkv;
mod mp4;
mod payload;
mod pieces;
mod plan;
mod presentations;
mod reassembly;
mod reply;
mod rtcp;
mod rtp;
mod rtsp;
mod sap;
mod splice;
mod trick;
mod ts;
mod unseal;

/// All targets. A new target is a file, its `mod` and its line here.
static TARGETS: &[FuzzTarget] = &[
    rtsp::TARGET,
    reply::TARGET,
    http::TARGET,
    rtcp::TARGET,
    rtp::TARGET,
    sap::TARGET,
    intake::TARGET,
    ts::TARGET,
    mp4::TARGET,
    mkv::TARGET,
    frames::TARGET,
    depayload::TARGET,
    payload::TARGET,
    splice::TARGET,
    plan::TARGET,
    unseal::TARGET,
    manifest::TARGET,
    epub::TARGET,
];

/// One parser of untrusted input.
struct FuzzTarget {
    /// Name in `FUZZ_TARGET` and of the folders of seeds and corpus.
    name: &'static str,
    /// Feeds the parser; panics when a documented property does not hold.
    run: fn(&[u8]),
}

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
