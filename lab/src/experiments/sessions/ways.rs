// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ways of the experiment's sessions to their clients, and the ratio of TCP to UDP.
//!
//! A device that drops packets never acknowledges one, so sessions over TCP need a receiver. Beside
//! them the sessions over UDP have the same one: all go through the veth pair, whose segmentation
//! is off for both transports (`ethtool -K near tso off tx-udp-segmentation off`). The kernel
//! segments each super-packet before the device, as for a card that cannot. TCP is measured once
//! more with TSO, which nearly every card has. The sender's core also does the receiver's work up
//! to its socket, for both: over TCP that is reassembly and acknowledgements.
//!
//! Sources: veth(4), ethtool(8).
//! Does not subtract the receiver's work.

use std::net::Ipv4Addr;

use paths::Transport;
use serde_json::Value;

use super::{BITS_PER_SECOND, Point};
use measure::Error;
use measure::network::{Network, Sink};
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// A transport of sessions and the sink of those that are not verified.
pub(super) struct Way {
    transport: Transport,
    pub(super) sink: Sink,
    /// True where the device segments TCP.
    pub(super) tso: bool,
}

static UDP: Way = Way { transport: Transport::Udp, sink: Sink::IfbSoftware, tso: false };
static UDP_BESIDE: Way = Way { transport: Transport::Udp, sink: Sink::Veth, tso: false };
static TCP: Way = Way { transport: Transport::Tcp, sink: Sink::Veth, tso: false };
static TCP_TSO: Way = Way { transport: Transport::Tcp, sink: Sink::Veth, tso: true };

/// Returns the ways of the selected transports, UDP first; UDP alone by default.
pub(super) fn of(transports: &[Transport]) -> Result<Vec<&'static Way>, Error> {
    let is_known = |transport: &&Transport| matches!(transport, Transport::Udp | Transport::Tcp);
    if let Some(unknown) = transports.iter().find(|transport| !is_known(transport)) {
        return Err(Error::Caller {
            what: format!("transport {unknown}"),
            found: "sessions go over udp or tcp; write one of them, or both".to_owned(),
        });
    }
    let udp = transports.is_empty() || transports.contains(&Transport::Udp);
    Ok(match (udp, transports.contains(&Transport::Tcp)) {
        (true, true) => vec![&UDP_BESIDE, &TCP, &TCP_TSO],
        (false, true) => vec![&TCP, &TCP_TSO],
        _ => vec![&UDP],
    })
}

impl Way {
    /// Returns the name of the transport in results and as an option of `load`.
    pub(super) fn name(&self) -> &'static str {
        self.transport.name()
    }

    /// Returns the name for notes and progress.
    pub(super) fn title(&self) -> String {
        format!("{}{}", self.name(), if self.tso { " with TSO" } else { "" })
    }

    /// Adds the parameters that tell the ways apart to a row.
    pub(super) fn tag(&self, row: Row) -> Row {
        let segmentation = if self.tso { "device" } else { "kernel" };
        row.with("transport", self.name()).with("segmentation", segmentation)
    }

    /// Returns the address of clients whose sessions are not verified.
    pub(super) fn source(&self) -> Ipv4Addr {
        if self.sink == Sink::Veth { Network::SAMPLED } else { Network::SUNK }
    }

    /// Returns the packets that were sent and did not reach the sink of the sessions that are not
    /// verified; over the veth pair the clients count, session by session.
    pub(super) fn missing(&self, sent: u64, arrived: u64) -> u64 {
        if self.sink == Sink::Veth { 0 } else { sent.saturating_sub(arrived) }
    }

    /// True when the sessions that are only counted got their rate, where their packets arrive.
    pub(super) fn is_whole(&self, result: &Value) -> bool {
        if self.sink != Sink::Veth {
            return true;
        }
        let seconds = result["seconds"].as_f64().unwrap_or(0.0);
        let due = BITS_PER_SECOND as f64 / 8.0 / PAYLOAD_BYTES * seconds * RATE_SHARE_MIN;
        result["counted"]["packets_least"].as_f64().unwrap_or(0.0) >= due
    }
}

/// Adds the ratios of sessions that a core carries over TCP to those over UDP, by the processor
/// time of a byte in the slices of both points.
pub(super) fn add_ratio(points: &[Point], cores: usize, results: &mut Results) {
    let Some(udp) = points.iter().find(|point| point.way.transport == Transport::Udp) else {
        return;
    };
    let cost = |point: &Point| Figure::of(point.cpu_costs.clone()).median;
    for tcp in points.iter().filter(|point| point.way.transport == Transport::Tcp) {
        let (of_udp, of_tcp) = (cost(udp), cost(tcp));
        let ratios = udp.cpu_costs.iter().zip(&tcp.cpu_costs);
        let ratios = ratios.filter(|(_, tcp)| **tcp > 0.0).map(|(udp, tcp)| udp / tcp).collect();
        let row = Row::new("sessions", "server", RATIO, "of 1", Figure::of(ratios));
        results.rows.push(tcp.way.tag(row.with("sessions", udp.sessions).with("cores", cores)));
        results.notes.push(format!(
            "{} sessions, {cores} cores: {of_udp:.3} s/GB over udp, {of_tcp:.3} over {}; a core \
             carries {:.2} of the sessions",
            udp.sessions,
            tcp.way.title(),
            of_udp / of_tcp.max(1e-9),
        ));
    }
}

/// Adds the ratio of the largest timely numbers of sessions.
pub(super) fn add_ratio_of_most(
    ways: &[&'static Way],
    most: &[Option<usize>],
    cores: usize,
    results: &mut Results,
) {
    let found = || ways.iter().zip(most).filter_map(|(way, most)| Some((way, (*most)?)));
    let Some((_, udp)) = found().find(|(way, _)| way.transport == Transport::Udp) else { return };
    for (way, tcp) in found().filter(|(way, _)| way.transport == Transport::Tcp) {
        let figure = Figure::derived(tcp as f64 / udp as f64);
        let row = Row::new("sessions", "server", RATIO_OF_MOST, "of 1", figure);
        results.rows.push(way.tag(row.with("cores", cores)));
    }
}

/// Note of a run with both transports.
pub(super) const NOTE: &str = "all through a veth pair that segments nothing, or TCP alone where \
    TSO is named: the sender's core does the receiver's work, too";
const RATIO: &str = "sessions a core, TCP of UDP";
const RATIO_OF_MOST: &str = "most timely sessions, TCP of UDP";
/// Seven packets of transport stream.
const PAYLOAD_BYTES: f64 = 1316.0;
/// Least part of the rate for each client.
const RATE_SHARE_MIN: f64 = 0.98;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_transports_have_the_same_sink() {
        let both = of(&[Transport::Tcp, Transport::Udp]).unwrap();
        assert_eq!(both.iter().map(|way| way.name()).collect::<Vec<_>>(), ["udp", "tcp", "tcp"]);
        assert!(both.iter().all(|way| way.sink == Sink::Veth));
        assert_eq!(of(&[]).unwrap()[0].sink, Sink::IfbSoftware);
        assert!(of(&[Transport::Rtp]).is_err());
    }

    #[test]
    fn counted_sessions_over_tcp_need_their_rate() {
        let result = |least: u64| {
            let counted = serde_json::json!({"sessions": 9, "packets_least": least});
            serde_json::json!({"seconds": 4.0, "counted": counted})
        };
        assert!(TCP.is_whole(&result(1890)) && !TCP.is_whole(&result(1800)));
        assert!(UDP.is_whole(&result(0)), "the device counts");
    }
}
