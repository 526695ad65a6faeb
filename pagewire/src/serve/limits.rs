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
    /// Pace of downloads of playable media, as a multiple of the media's rate such as 4x or 2.5x:
    /// each connection has ten seconds of media (1 to 16 MiB) at full speed, then this; off for as
    /// fast as the network. Other files are not paced.
    #[arg(long, value_name = "FACTOR", default_value = "4x", value_parser = pace)]
    http_pace: Pace,
    /// Rate of each connection's downloads over HTTP, bits a second, such as 20M [default: no
    /// limit].
    #[arg(long, value_name = "RATE", value_parser = bits_per_s)]
    http_rate_per_connection: Option<u64>,
    /// Rate of each address's downloads, shared equally by those in progress; of IPv6, of each /64
    /// [default: no limit].
    #[arg(long, value_name = "RATE", value_parser = bits_per_s)]
    http_rate_per_address: Option<u64>,
    /// Rate of all downloads, shared equally by those in progress [default: no limit].
    #[arg(long, value_name = "RATE", value_parser = bits_per_s)]
    http_rate: Option<u64>,
    /// Sessions over RTSP of one user [default: no limit].
    #[arg(long, value_name = "N", value_parser = count())]
    sessions_per_user: Option<u32>,
    /// Sessions over RTSP of one file or channel [default: no limit].
    #[arg(long, value_name = "N", value_parser = count())]
    sessions_per_asset: Option<u32>,
    /// Rate of all sessions over RTSP together, bits a second, such as 2G; one more gets 453
    /// [default: no limit].
    #[arg(long, value_name = "RATE", value_parser = bits_per_s)]
    rate: Option<u64>,
    /// Rate of a user's sessions over RTSP together [default: no limit].
    #[arg(long, value_name = "RATE", value_parser = bits_per_s)]
    rate_per_user: Option<u64>,
    /// Load of the pacer threads, 0.05 to 1, above which a new session gets 453, for it would make
    /// others late; and of all cores, above which a new viewer of HLS or DASH gets 503; off to
    /// admit all the same.
    #[arg(long, value_name = "LOAD", default_value = "0.9", value_parser = load)]
    admit_load: Load,
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
        limits.http_pace = self.http_pace.0;
        limits.http_rate_per_connection = self.http_rate_per_connection;
        limits.http_rate_per_address = self.http_rate_per_address;
        limits.http_rate = self.http_rate;
        limits.sessions_per_user = self.sessions_per_user;
        limits.sessions_per_asset = self.sessions_per_asset;
        limits.rate = self.rate;
        limits.rate_per_user = self.rate_per_user;
        limits.admit_load = self.admit_load.0;
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

/// A share of the processor time; `None` for no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load(Option<f64>);

fn load(text: &str) -> Result<Load, String> {
    if text == "off" {
        return Ok(Load(None));
    }
    let load = text.parse().ok().filter(|load: &f64| load.is_finite());
    load.map(|load| Load(Some(load))).ok_or_else(|| "write a part such as 0.9, or off".into())
}

/// A multiple of the media's rate; `None` for no pacing.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pace(Option<f64>);

fn pace(text: &str) -> Result<Pace, String> {
    if text == "off" {
        return Ok(Pace(None));
    }
    let factor = text.strip_suffix(['x', 'X']).unwrap_or(text).parse().ok();
    let factor = factor.filter(|factor: &f64| factor.is_finite());
    factor
        .map(|factor| Pace(Some(factor)))
        .ok_or_else(|| "write a factor such as 4x, or off".into())
}

/// Parses `20M`, `1.5G` or `500000`; units are powers of 1000.
fn bits_per_s(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'M' | 'm')) => (&text[..at], 1e6),
        Some((at, 'G' | 'g')) => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let rate = number.map(|number| (number * factor).round() as u64);
    rate.ok_or_else(|| "write bits a second such as 20M; units are K, M and G".into())
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
    fn paces_are_factors_or_off() {
        for (text, factor) in [("4x", 4.0), ("4", 4.0), ("2.5x", 2.5), ("0.5X", 0.5)] {
            assert_eq!(pace(text), Ok(Pace(Some(factor))), "{text}");
        }
        assert_eq!(pace("off"), Ok(Pace(None)));
        for wrong in ["", "x", "4xx", "on", "inf", "NaNx", "4 x"] {
            assert!(pace(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn loads_are_parts_or_off() {
        assert_eq!((load("0.9"), load("off")), (Ok(Load(Some(0.9))), Ok(Load(None))));
        for wrong in ["", "NaN", "inf", "90%"] {
            assert!(load(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_are_bits_a_second_with_units() {
        for (text, rate) in [("500000", 500_000), ("20M", 20_000_000), ("1.5g", 1_500_000_000)] {
            assert_eq!(bits_per_s(text), Ok(rate), "{text}");
        }
        for wrong in ["", "M", "20MB", "-1M", "inf", "20 M", "20Mbit"] {
            assert!(bits_per_s(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn networks_are_a_list_or_none() {
        assert_eq!(networks("none"), Ok(Networks(Vec::new())));
        assert_eq!(networks("10.0.0.0/8, fd00::/8").map(|list| list.0.len()), Ok(2));
        assert!(networks("").is_err() && networks("10.0.0.0/8,").is_err());
    }
}
