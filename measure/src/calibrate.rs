// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks the paths that a server could use on this machine; times all of them in two seconds.
//!
//! The short form of the experiment `paths`: RTP at two lengths of a burst, to a sink that segments
//! where the server's device does, and downloads through the veth pair. The machine's own devices
//! send nothing. Two paths within a few percent of each other may change places from run to run;
//! their order is then unimportant.
//!
//! Costs at most two seconds ([`BUDGET`] and the last round): members are timed alternately, so
//! every member has the same number of samples, and fewer on a slow machine.
//!
//! Sources: the experiment `paths`.
//! Does not choose a path; the caller does, from the paths that it may use.

use std::time::{Duration, Instant};

use paths::{Host, Open, PATHS, RECEIVE_PATHS, Transport, Via};
use serde::{Deserialize, Serialize};

use crate::bench::{Bench, Case};
use crate::error::Error;
use crate::fixture::Fixture;
use crate::fixture::USUAL_BYTES;
use crate::network::{Network, Sink};
use crate::statistics::Figure;

/// CPU cost of one path on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rank {
    /// `rtp`, `tcp`, or `receive` for paths from socket to memory.
    pub transport: String,
    /// Name of the path.
    pub member: String,
    /// Packets a call for which it was timed (the sender's when receiving); 0 for downloads.
    pub burst_packets: u32,
    /// Median of processor seconds per 10⁹ bytes; `None` where the path cannot be used.
    pub cpu_s_per_gb: Option<f64>,
    /// Reason why it cannot be used.
    pub refused: Option<String>,
}

impl Rank {
    /// True when this program may have measured it. A file with ranks may be damaged or written by
    /// another program.
    pub fn is_plausible(&self) -> bool {
        let sending = || PATHS.iter().map(|spec| (spec.transport.to_string(), spec.name));
        let receiving = || RECEIVE_PATHS.iter().map(|spec| ("receive".to_owned(), spec.name));
        let is_known = sending()
            .chain(receiving())
            .any(|(transport, member)| transport == self.transport && member == self.member);
        let is_cost = |cpu_s_per_gb: f64| cpu_s_per_gb.is_finite() && cpu_s_per_gb > 0.0;
        let is_text = |text: &String| !text.contains(char::is_control);
        is_known
            && self.cpu_s_per_gb.is_none_or(is_cost)
            && self.refused.as_ref().is_none_or(is_text)
    }
}

/// Times every path by socket; the caller provides a network namespace of its own. `segments`: true
/// when the server's device cuts super-packets itself. Returns the cheapest first within transport
/// and burst, refused ones last.
///
/// # Errors
/// [`Error::Unavailable`] where no device can be made.
pub fn calibrate(segments: bool) -> Result<Vec<Rank>, Error> {
    let until = Instant::now() + BUDGET;
    let host = Host::here();
    let sink = if segments { Sink::IfbDevice } else { Sink::IfbSoftware };
    let mut bench = Bench::with(Network::new()?, Fixture::make()?)?;
    let image = bench.fixture.image(USUAL_BYTES)?;
    bench.network.make(&Sink::Veth)?;
    let to = bench.network.make(&sink)?;
    let mut ranks = Vec::new();
    let mut cases = Vec::new();
    for spec in PATHS.iter().filter(|spec| spec.transport != Transport::Udp) {
        let refused = match spec.open {
            Open::Stream { via: Via::Device, .. } => Some(BY_NAME_ALONE.to_owned()),
            _ => (spec.probe)(&host).err().map(|reason| reason.to_string()),
        };
        for case in bursts(spec, &sink) {
            match &refused {
                Some(reason) => ranks.push(rank(&case, None, Some(reason.clone()))),
                None => cases.push(case),
            }
        }
    }
    for round in 0..=ROUNDS_MAX {
        for case in cases.iter_mut().filter(|case| case.failed.is_none()) {
            let tcp = case.spec.transport == Transport::Tcp;
            let bytes = if tcp { DOWNLOAD_BYTES } else { RUN_BYTES };
            match bench.time(case, &image, to, (bytes, 0.0)) {
                Ok(sample) if round > 0 => case.samples.push(sample),
                Ok(_) => {}
                Err(error) => case.failed = Some(error.to_string()),
            }
        }
        let enough = cases.iter().all(|c| c.failed.is_some() || !c.samples.is_empty());
        if enough && Instant::now() >= until {
            break;
        }
    }
    for case in &cases {
        let cpu_costs: Vec<f64> = case.samples.iter().map(|sample| sample.cpu_s_per_gb).collect();
        let cpu_s_per_gb = (!cpu_costs.is_empty()).then(|| Figure::of(cpu_costs).median);
        ranks.push(rank(case, cpu_s_per_gb, case.failed.clone()));
    }
    ranks.sort_by(|a, b| {
        let order = |rank: &Rank| (rank.transport.clone(), rank.burst_packets);
        let cpu_s_per_gb = |rank: &Rank| rank.cpu_s_per_gb.unwrap_or(f64::INFINITY);
        order(a).cmp(&order(b)).then(cpu_s_per_gb(a).total_cmp(&cpu_s_per_gb(b)))
    });
    Ok(ranks)
}

/// True when the in-kernel engine's paths can be timed here; that may change from start to start.
pub fn has_engine() -> bool {
    Host::here().needs_engine().is_ok()
}

/// Returns a case for each burst length; a download has one case.
fn bursts(spec: &'static paths::Spec, sink: &Sink) -> Vec<Case> {
    if spec.transport == Transport::Tcp {
        return vec![Case::new(spec, &Sink::Veth, STEP_BYTES, 1)];
    }
    BURSTS.iter().map(|&packets| Case::new(spec, sink, USUAL_BYTES, packets)).collect()
}

fn rank(case: &Case, cpu_s_per_gb: Option<f64>, refused: Option<String>) -> Rank {
    let burst_packets = if case.spec.transport == Transport::Tcp { 0 } else { case.segments };
    Rank {
        transport: case.spec.transport.to_string(),
        member: case.spec.name.to_owned(),
        burst_packets,
        cpu_s_per_gb,
        refused,
    }
}

/// Reason why paths of whole frames are never chosen automatically.
const BY_NAME_ALONE: &str =
    "puts frames on the device past routing and firewall; taken by its name alone";
/// Packets of 1328 bytes in 20 ms of a stream of 5 Mb/s, and packets in 64 KiB.
pub const BURSTS: [u32; 2] = [10, 44];
const BUDGET: Duration = Duration::from_millis(1500);
const ROUNDS_MAX: usize = 5;
const RUN_BYTES: u64 = 4_000_000;
/// A download exceeds the sockets' buffers.
const DOWNLOAD_BYTES: u64 = 32 << 20;
/// Bytes that a server hands to a download path at a time.
const STEP_BYTES: u32 = 4 << 20;
