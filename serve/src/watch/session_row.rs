// SPDX-License-Identifier: MIT OR Apache-2.0
//! One session as the API shows it, and its identifier.
//!
//! The identifier is no secret and opens nothing: RTSP commands need the random one of
//! [`crate::rtsp::stream_session`].
//!
//! Does not measure.

use serde::Serialize;

use super::cause::SlowCause;

/// Identifier of a session in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum SessionId {
    /// A session of RTSP, by its number.
    Rtsp(u64),
    /// A connection of HTTP.
    Http(u64),
}

impl SessionId {
    /// Reads `rtsp-12` or `http-3`.
    pub(crate) fn parse(text: &str) -> Option<SessionId> {
        let (kind, number) = text.split_once('-')?;
        let is_plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|_| is_plain)?;
        match kind {
            "rtsp" => Some(SessionId::Rtsp(number)),
            "http" => Some(SessionId::Http(number)),
            _ => None,
        }
    }
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SessionId::Rtsp(number) => write!(out, "rtsp-{number}"),
            SessionId::Http(number) => write!(out, "http-{number}"),
        }
    }
}

impl Serialize for SessionId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A session as the API shows it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SessionRow {
    pub(crate) id: SessionId,
    /// Name of the user; `None` if no login is needed.
    pub(crate) user: Option<String>,
    pub(crate) address: String,
    /// One of [`PROTOCOLS`].
    pub(crate) protocol: &'static str,
    pub(crate) asset: String,
    /// Seconds since the Unix epoch.
    pub(crate) started_s: u64,
    pub(crate) duration_s: f64,
    /// Rate over the last seconds.
    pub(crate) bits_per_s: u64,
    /// RTP packets sent; 0 over HTTP.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Lateness of its packets; `None` over HTTP.
    pub(crate) late_ms: Option<LateMs>,
    /// By the last receiver report; over TCP the share of segments sent again.
    pub(crate) lost_percent: Option<f64>,
    pub(crate) jitter_ms: Option<f64>,
    pub(crate) round_trip_ms: Option<f64>,
    /// Name of the path that sends it; `None` before the first packet, and over HTTP.
    pub(crate) path: Option<&'static str>,
    pub(crate) cause: SlowCause,
    /// The cause in words, with the figure that shows it.
    pub(crate) cause_text: String,
}

/// Lateness of packets, upper bounds in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct LateMs {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: f64,
}

/// Protocols of sessions, as in rows and in metrics.
pub(crate) const PROTOCOLS: [&str; 5] = [RTSP_UDP, RTSP_TCP, RTSP_MULTICAST, HTTP, HTTPS];
pub(super) const RTSP_UDP: &str = "rtsp_udp";
pub(super) const RTSP_TCP: &str = "rtsp_tcp";
pub(super) const RTSP_MULTICAST: &str = "rtsp_multicast";
pub(super) const HTTP: &str = "http";
pub(super) const HTTPS: &str = "https";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_read_as_they_are_written() {
        for id in [SessionId::Rtsp(1), SessionId::Http(u64::MAX)] {
            assert_eq!(SessionId::parse(&id.to_string()), Some(id));
        }
        for wrong in ["", "rtsp", "rtsp-", "rtsp-+1", "rtsp--1", "ftp-1", "http-1/..", "http-a"] {
            assert_eq!(SessionId::parse(wrong), None, "{wrong}");
        }
    }
}
