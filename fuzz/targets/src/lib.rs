// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz targets for every parser of untrusted input, each with its checked properties.
//!
//! A target checks more than "no panic": accepted input must satisfy the documentation. Two
//! programs feed the targets: the test `replay` of this crate, with the seeds and a fixed set of
//! mutations, and the program in `fuzz/`, with inputs that libFuzzer finds by coverage.
//!
//! Does not look for memory errors: the fuzzed crates have no unsafe code there.
#![forbid(unsafe_code)]

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
mod text;
mod trick;
mod ts;
mod unseal;

/// All targets. A new target is a file, its `mod` and its line here.
pub static TARGETS: &[FuzzTarget] = &[
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
    text::TARGET,
    plan::TARGET,
    unseal::TARGET,
    manifest::TARGET,
    epub::TARGET,
];

/// One parser of untrusted input.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Name in `FUZZ_TARGET`, of the target's test, and of the folders of seeds and corpus.
    pub name: &'static str,
    /// Feeds the parser; panics when a documented property does not hold.
    pub run: fn(&[u8]),
}
