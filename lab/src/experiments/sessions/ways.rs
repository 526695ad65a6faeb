// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ways of the experiment's sessions to their clients, and the ratio of TCP to UDP.
//!
//! A device that drops packets never acknowledges one, so sessions over TCP need a receiver. Beside
//! them the sessions over UDP have the same one: all go through the veth pair, whose segmentation
//! is off for both transports (`ethtool -K near tso off tx-udp-segmentation off`). The kernel
//! segments each super-packet before the device, as for a card that cannot. TCP is measured once
//! more with TSO, which nearly every card has.
//!
//! The sender's core also does the receiver's work up to its socket, for both: over TCP that is
//! reassembly and acknowledgements. The amount depends on the receiver: the drivers of cards join
//! segments before TCP processes them (GRO), and TCP then acknowledges many at once. Both kinds of
//! receiver are measured; a receiver that gets segments one by one charges the server's core for
//! work that a client does elsewhere.
//!
//! Sources: veth(4), ethtool(8); Linux `Documentation/networking/segmentation-offloads.rst`.
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
    /// True where the receiver joins received packets (GRO).
    pub(super) gro: bool,
}

static UDP: Way =
    Way { transport: Transport::Udp, sink: Sink::IfbSoftware, tso: false, gro: false };
static UDP_BESIDE: Way = by_veth(Transport::Udp, false, true);
static TCP: Way = by_veth(Transport::Tcp, false, true);
static TCP_TSO: Way = by_veth(Transport::Tcp, true, true);
/// UDP to a receiver that gets packets one by one.
static UDP_APART: Way = by_veth(Transport::Udp, false, false);
static TCP_APART: Way = by_veth(Transport::Tcp, false, false);

const fn by_veth(transport: Transport, tso: bool, gro: bool) -> Way {
    Way { transport, sink: Sink::Veth, tso, gro }
}

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
        (true, true) => vec![&UDP_BESIDE, &TCP, &TCP_TSO, &UDP_APART, &TCP_APART],
        (false, true) => vec![&TCP, &TCP_TSO, &TCP_APART],
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
        let apart = self.sink == Sink::Veth && !self.gro;
        let receiver = if apart { " to receivers without GRO" } else { "" };
        format!("{}{}{receiver}", self.name(), if self.tso { " with TSO" } else { "" })
    }

    /// True when this is UDP to the same receivers as the other way.
    fn is_udp_beside(&self, other: &Way) -> bool {
        self.transport == Transport::Udp && self.gro == other.gro
    }

    /// Adds the parameters that distinguish the ways to a row.
    pub(super) fn tag(&self, row: Row) -> Row {
        let segmentation = if self.tso { "device" } else { "kernel" };
        let row = row.with("transport", self.name()).with("segmentation", segmentation);
        match self.sink {
            Sink::Veth => row.with("gro", if self.gro { "on" } else { "off" }),
            _ => row,
        }
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
    let cost = |point: &Point| Figure::of(point.cpu_costs.clone()).median;
    for tcp in points.iter().filter(|point| point.way.transport == Transport::Tcp) {
        let Some(udp) = points.iter().find(|point| point.way.is_udp_beside(tcp.way)) else {
            continue;
        };
        let (of_udp, of_tcp) = (cost(udp), cost(tcp));
        let ratios = udp.cpu_costs.iter().zip(&tcp.cpu_costs);
        let ratios = ratios.filter(|(_, tcp)| **tcp > 0.0).map(|(udp, tcp)| udp / tcp).collect();
        let row = Row::new("sessions", "server", RATIO, "of 1", Figure::of(ratios));
        results.rows.push(tcp.way.tag(row.with("sessions", udp.sessions).with("cores", cores)));
        results.notes.push(format!(
            "{} sessions, {cores} cores: {of_udp:.3} s/GB over {}, {of_tcp:.3} over {}; a core \
             carries {:.2} of the sessions",
            udp.sessions,
            udp.way.title(),
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
    for (way, tcp) in found().filter(|(way, _)| way.transport == Transport::Tcp) {
        let Some((_, udp)) = found().find(|(udp, _)| udp.is_udp_beside(way)) else { continue };
        let figure = Figure::derived(tcp as f64 / udp as f64);
        let row = Row::new("sessions", "server", RATIO_OF_MOST, "of 1", figure);
        results.rows.push(way.tag(row.with("cores", cores)));
    }
}

/// Note of a run with both transports.
pub(super) const NOTE: &str = "all through a veth pair that segments nothing, or TCP alone where \
    TSO is named: the sender's core does the receiver's work, too; a receiver with GRO joins \
    segments before TCP sees them, as drivers of cards do";
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
        assert_eq!(
            both.iter().map(|way| way.title()).collect::<Vec<_>>(),
            [
                "udp",
                "tcp",
                "tcp with TSO",
                "udp to receivers without GRO",
                "tcp to receivers without GRO"
            ]
        );
        assert!(both.iter().all(|way| way.sink == Sink::Veth));
        for tcp in both.iter().filter(|way| way.transport == Transport::Tcp) {
            let beside: Vec<_> = both.iter().filter(|way| way.is_udp_beside(tcp)).collect();
            assert!(matches!(beside[..], [udp] if udp.gro == tcp.gro), "{}", tcp.title());
        }
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
