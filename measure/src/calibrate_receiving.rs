// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU cost of every receive path by socket on this machine, in two seconds: the order in which
//! `pagewire receive --path auto` tries them.
//!
//! The short form of the experiment `receive`: one stream of packets of the usual size, sent as GSO
//! batches and one by one, over a veth pair on one core. All paths have the same sender, and its
//! CPU cost is in every figure: subtracting it would not change the order and could give negative
//! figures on a noisy machine. Members are timed alternately until [`BUDGET`] is used up, at least
//! once each. A run that hands over fewer packets than were sent refuses its member.
//!
//! Sources: the experiment `receive`.
//! Does not choose, compare bytes, or time paths that receive frames from the device
//! (`packet_ring`, `xdp`): these bypass the firewall and are used by name alone.

use std::time::{Duration, Instant};

use paths::{Host, RECEIVE_PATHS, Via};

use crate::calibrate::Rank;
use crate::error::Error;
use crate::feed::Sending;
use crate::fixture::Fixture;
use crate::fixture::USUAL_BYTES;
use crate::meter::{Cores, Meter, pin};
use crate::network::{Network, Sink};
use crate::receive_bench::{Bench, Case, ReceiveLoad};
use crate::statistics::Figure;

/// Times every receive path by socket; the caller provides a network namespace of its own.
/// Returns the cheapest first within a way of sending, refused ones last.
///
/// # Errors
/// [`Error::Unavailable`] where no device can be made.
pub fn calibrate_receiving() -> Result<Vec<Rank>, Error> {
    let until = Instant::now() + BUDGET;
    let host = Host::here();
    let mut network = Network::new()?;
    network.make(&Sink::Veth)?;
    pin(&Cores::allowed(), false);
    let bench = Bench { network, fixture: Fixture::small()?, meter: Meter::of_this_process() };
    let (mut ranks, mut cases) = (Vec::new(), Vec::new());
    for spec in RECEIVE_PATHS {
        let refused = match spec.via {
            Via::Device => Some(BY_NAME_ALONE.to_owned()),
            Via::Socket => (spec.probe)(&host).err().map(|reason| reason.to_string()),
        };
        for sending in [Sending::Joined, Sending::Apart] {
            let case = Case::new(spec, ReceiveLoad { bytes: USUAL_BYTES, streams: 1, sending });
            match &refused {
                Some(reason) => ranks.push(rank(&case, None, Some(reason.clone()))),
                None => cases.push(case),
            }
        }
    }
    for _ in 0..ROUNDS_MAX {
        for case in cases.iter_mut().filter(|case| case.failed.is_none()) {
            match bench.time(case, (RUN_BYTES, 0.0)) {
                Ok(sample) => case.samples.extend(sample),
                Err(error) => case.failed = Some(error.to_string()),
            }
        }
        if Instant::now() >= until {
            break;
        }
    }
    for case in &cases {
        let cpu_costs: Vec<f64> = case.samples.iter().map(|sample| sample.whole).collect();
        let cpu_s_per_gb =
            (case.failed.is_none() && !cpu_costs.is_empty()).then(|| Figure::of(cpu_costs).median);
        ranks.push(rank(case, cpu_s_per_gb, case.failed.clone()));
    }
    ranks.sort_by(|a, b| {
        let cpu_s_per_gb = |rank: &Rank| rank.cpu_s_per_gb.unwrap_or(f64::INFINITY);
        b.burst_packets.cmp(&a.burst_packets).then(cpu_s_per_gb(a).total_cmp(&cpu_s_per_gb(b)))
    });
    Ok(ranks)
}

fn rank(case: &Case, cpu_s_per_gb: Option<f64>, refused: Option<String>) -> Rank {
    let burst_packets = if case.load.sending == Sending::Joined { case.load.burst() } else { 1 };
    let (transport, member) = ("receive".to_owned(), case.spec.name.to_owned());
    Rank { transport, member, burst_packets, cpu_s_per_gb, refused }
}

/// Reason why paths of whole frames are never chosen automatically.
const BY_NAME_ALONE: &str =
    "takes frames off the device past the firewall; taken by its name alone";
const BUDGET: Duration = Duration::from_millis(1500);
const ROUNDS_MAX: usize = 7;
const RUN_BYTES: u64 = 4_000_000;
