// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags of `pagewire serve` for its limits on clients.
//!
//! The defaults are those of [`ClientLimits`], which gives the reason for each.

use std::time::Duration;

use clap::Args;
use serve::{ClientLimits, ClientPrefix, InvalidPrefix};

#[derive(Args)]
#[command(next_help_heading = "Limits on clients")]
pub(super) struct LimitOptions {
    /// Sessions set up on one RTSP connection.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count())]
    sessions_per_connection: u32,
    /// Sessions of one address; of IPv6, of one /64.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count())]
    sessions_per_address: u32,
    /// Sessions in all [default: as many as file descriptors allow, see ulimit -n].
    #[arg(long, value_name = "N", value_parser = count())]
    sessions: Option<u32>,
    /// Connections of one address, RTSP and HTTP together; of IPv6, of one /64.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = count())]
    connections_per_address: u32,
    /// Connections in all [default: half of the file descriptors].
    #[arg(long, value_name = "N", value_parser = count())]
    connections: Option<u32>,
    /// Requests a second on one connection; faster ones wait, and a flood of RTSP is ended.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = count())]
    requests_per_second: u32,
    /// A session that does not play so long after SETUP ends.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = super::timeout_s())]
    play_within: u64,
    /// Networks of proxies or carrier-grade NAT, with commas between: their addresses and requests
    /// are not counted; none for no network.
    #[arg(
        long,
        value_name = "NETWORKS",
        default_value = "127.0.0.0/8,::1/128",
        value_parser = networks
    )]
    exempt_from_limits: Networks,
    /// Streams to ports below 1024, too, which are those of services.
    #[arg(long)]
    allow_low_ports: bool,
}

impl LimitOptions {
    pub(super) fn limits(self) -> ClientLimits {
        let mut limits = ClientLimits::default();
        limits.sessions_per_connection = self.sessions_per_connection;
        limits.sessions_per_address = self.sessions_per_address;
        limits.sessions = self.sessions;
        limits.connections_per_address = self.connections_per_address;
        limits.connections = self.connections;
        limits.requests_per_s = self.requests_per_second;
        limits.play_within = Duration::from_secs(self.play_within);
        limits.exempt = self.exempt_from_limits.0;
        limits.low_ports = self.allow_low_ports;
        limits
    }
}

/// Networks of one argument, separated by commas.
#[derive(Clone, Debug, PartialEq)]
struct Networks(Vec<ClientPrefix>);

fn networks(text: &str) -> Result<Networks, InvalidPrefix> {
    if text == "none" {
        return Ok(Networks(Vec::new()));
    }
    text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>().map(Networks)
}

/// Parses a count from one to a million.
fn count() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1_000_000)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        limits: LimitOptions,
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        let found = Line::parse_from(["serve"]).limits.limits();
        assert_eq!(format!("{found:?}"), format!("{:?}", ClientLimits::default()));
    }

    #[test]
    fn networks_are_a_list_or_none() {
        assert_eq!(networks("none"), Ok(Networks(Vec::new())));
        assert_eq!(networks("10.0.0.0/8, fd00::/8").map(|list| list.0.len()), Ok(2));
        assert!(networks("").is_err() && networks("10.0.0.0/8,").is_err());
    }
}
