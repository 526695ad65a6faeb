// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab paths`: the CPU cost of every path, by transport, packet size and sink.
//!
//! A member's ratio to the reference of its transport (`read_writev` for RTP, as in figure 5 of the
//! data-paths paper; `read_write` for plain datagrams and TCP, `framed_writev` for RTP in frames on
//! an RTSP connection) is computed within each round
//! ([`measure::schedule`]). Each member and size sends a gigabyte in all rounds together, or runs
//! for three and a half seconds of processor time.
//!
//! Sources: the data-paths paper, table 1 and figures 3 to 5: every row that a stock kernel has,
//! and those of its own calls where the module `pagewire_rtp` is loaded; section 5 for its implied
//! throughput.
//! Does not measure pacing, many sessions (`sessions`), or the gap between packets (`batch`).

use paths::{Host, INTERLEAVED_PATHS, Open, PATHS, Spec, SystemCalls, Transport, Via};

use crate::published;
use measure::Error;
use measure::Options;
use measure::bench::Bench;
use measure::bench::Case;
use measure::fixture::USUAL_BYTES;
use measure::network::{self, Sink};
use measure::results::Results;
use measure::schedule::{Group, Scale, Schedule};
use measure::sender::DATAGRAM_BYTES_MAX;

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let scale = match options.quick {
        true => Scale { rounds: QUICK_ROUNDS, bytes: QUICK_BYTES },
        false => Scale { rounds: FULL_ROUNDS, bytes: FULL_BYTES },
    };
    let scale = Scale { rounds: options.rounds.unwrap_or(scale.rounds).max(1), ..scale };
    let mut results = Results::new("paths", options.command.clone());
    let mut bench = Bench::new(&options.sinks)?;
    results.complete = true;
    let groups = plan(options, &mut results)?;
    Schedule::new(options, scale, &groups).run(&mut bench, groups, &mut results)?;
    published::add(&mut results);
    Ok(results)
}

/// Returns all groups; notes the omitted ones with the reason.
fn plan(options: &Options, results: &mut Results) -> Result<Vec<Group>, Error> {
    let host = Host::here();
    let real = options.sinks.iter().any(|sink| matches!(sink, Sink::Interface(..)));
    let mut usable = Vec::new();
    for spec in PATHS.iter().chain(INTERLEAVED_PATHS).filter(|spec| options.wants(spec)) {
        let device = matches!(spec.open, Open::Stream { via: Via::Device, .. });
        match (spec.probe)(&host) {
            Ok(()) if real && device => results.notes.push(format!(
                "skip: {spec}: verified in the laboratory's own network alone, not by an interface"
            )),
            Ok(()) => usable.push(*spec),
            Err(reason) => results.notes.push(format!("skip: {spec}: {reason}")),
        }
    }
    if usable.is_empty() {
        return Err(Error::nothing_to_measure(options));
    }
    let mut groups = Vec::new();
    for sink in options.sinks_or(&[Sink::IfbSoftware, Sink::IfbDevice]) {
        for bytes in sizes(options, &sink) {
            let is_datagrams = |spec: &&&Spec| matches!(spec.open, Open::Stream { .. });
            let datagrams = usable.iter().filter(is_datagrams);
            let mut cases: Vec<Case> =
                datagrams.flat_map(|spec| segments(spec, bytes, &sink)).collect();
            let mtu_bytes = network::mtu_bytes(&sink);
            cases.retain(|case| case.fits(mtu_bytes));
            groups.push(Group { sink: sink.clone(), bytes, cases });
        }
    }
    if real {
        let note = "downloads and frames over TCP are not measured by an interface: they need a \
                    peer that takes them";
        results.notes.push(note.to_owned());
    }
    for bytes in packet_sizes(options).into_iter().filter(|_| !real) {
        let framed = usable.iter().filter(|spec| spec.transport == Transport::Interleaved);
        let cases = framed.flat_map(|spec| segments(spec, bytes, &Sink::Veth)).collect();
        groups.push(Group { sink: Sink::Veth, bytes, cases });
    }
    for bytes in steps(options).into_iter().filter(|_| !real) {
        let downloads = usable.iter().filter(|spec| spec.transport == Transport::Tcp);
        let mut cases: Vec<Case> =
            downloads.map(|spec| Case::new(spec, &Sink::Veth, bytes, 1)).collect();
        // Row of the data-paths paper: the file in one call against packets.
        let whole = usable.iter().filter(|_| bytes == USUAL_BYTES);
        let whole =
            whole.filter(|spec| (spec.transport, spec.name) == (Transport::Tcp, "sendfile"));
        cases.extend(whole.map(|spec| Case {
            instead_of_bytes: Some(bytes),
            ..Case::new(spec, &Sink::Veth, WHOLE_BYTES, 1)
        }));
        groups.push(Group { sink: Sink::Veth, bytes, cases });
    }
    groups.retain(|group| !group.cases.is_empty());
    if groups.is_empty() {
        return Err(Error::Caller {
            what: "size".to_owned(),
            found: format!(
                "nothing of that size; a datagram has at most {DATAGRAM_BYTES_MAX} bytes"
            ),
        });
    }
    Ok(groups)
}

/// Returns the datagram sizes: one size for a quick run or an ifb device, otherwise all of a curve.
fn sizes(options: &Options, sink: &Sink) -> Vec<u32> {
    match (&options.sizes[..], options.quick) {
        ([], true) => vec![USUAL_BYTES],
        ([], false) if *sink == Sink::IfbDevice => vec![USUAL_BYTES],
        ([], false) => SIZES.to_vec(),
        (sizes, _) => {
            let fit = sizes.iter().filter(|bytes| **bytes <= DATAGRAM_BYTES_MAX);
            fit.copied().collect()
        }
    }
}

/// Returns the sizes of packets in frames: the usual one, which a plan's packets have.
fn packet_sizes(options: &Options) -> Vec<u32> {
    match &options.sizes[..] {
        [] => vec![USUAL_BYTES],
        sizes => sizes.iter().copied().filter(|bytes| *bytes <= DATAGRAM_BYTES_MAX).collect(),
    }
}

fn steps(options: &Options) -> Vec<u32> {
    match (&options.sizes[..], options.quick) {
        ([], true) => QUICK_STEPS.to_vec(),
        ([], false) => STEPS.to_vec(),
        (sizes, _) => sizes.to_vec(),
    }
}

fn segments(spec: &'static Spec, bytes: u32, sink: &Sink) -> Vec<Case> {
    let counts: &[u32] = match spec.system_calls {
        SystemCalls::PerPacket(_) | SystemCalls::PerStep(_) => &[1],
        _ if bytes == USUAL_BYTES => &[SHORT_RUN, LONG_RUN],
        _ => &[LONG_RUN],
    };
    counts.iter().map(|&count| Case::new(spec, sink, bytes, count)).collect()
}

/// Sizes of the data-paths paper's figures 3 and 4; the largest is the limit of a datagram.
const SIZES: &[u32] =
    &[64, 128, 256, 512, 1024, USUAL_BYTES, 2048, 4096, 8192, 16_384, 32_768, 65_507];
const STEPS: &[u32] = &[USUAL_BYTES, 4096, 16_384, 65_536, 131_072, 1 << 20];
const QUICK_STEPS: &[u32] = &[USUAL_BYTES, 131_072];
/// Most bytes that a download path moves in a call.
const WHOLE_BYTES: u32 = 1 << 20;
/// Packets of a 5 Mb/s stream in a burst of 20 ms, and the most of 1328 bytes in 64 KiB off pages.
const SHORT_RUN: u32 = 10;
const LONG_RUN: u32 = 44;
const FULL_BYTES: u64 = 1_000_000_000;
const FULL_ROUNDS: usize = 7;
const QUICK_BYTES: u64 = 60_000_000;
const QUICK_ROUNDS: usize = 3;
