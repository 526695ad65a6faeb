// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transports by which a server sends a stream to this client, by name.
//!
//! Sources: RFC 2326 §10.12 (interleaved), §12.39 (Transport).
//! Does not open connections.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Transport of RTP to this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamTransport {
    /// UDP to a pair of ports of this client.
    Udp,
    /// Interleaved on the RTSP connection.
    Tcp,
    /// Interleaved in RTSP over a pair of HTTP connections.
    Http,
    /// UDP to a group that the server names.
    Multicast,
}

impl StreamTransport {
    /// All transports.
    pub const ALL: [StreamTransport; 4] = [
        StreamTransport::Udp,
        StreamTransport::Tcp,
        StreamTransport::Http,
        StreamTransport::Multicast,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            StreamTransport::Udp => "udp",
            StreamTransport::Tcp => "tcp",
            StreamTransport::Http => "http",
            StreamTransport::Multicast => "multicast",
        }
    }

    /// True where RTP shares a TCP connection with the requests.
    pub fn is_interleaved(self) -> bool {
        matches!(self, StreamTransport::Tcp | StreamTransport::Http)
    }
}

impl FromStr for StreamTransport {
    type Err = String;

    fn from_str(text: &str) -> Result<StreamTransport, String> {
        let found = StreamTransport::ALL.into_iter().find(|transport| transport.name() == text);
        found.ok_or_else(|| format!("{text}: write udp, tcp, http or multicast"))
    }
}

impl fmt::Display for StreamTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Requested transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportChoice {
    /// UDP; TCP where the server refuses UDP (461) or no packet arrives.
    #[default]
    Auto,
    /// Only this one.
    Only(StreamTransport),
}

impl TransportChoice {
    /// The transport that is tried first.
    pub fn first(self) -> StreamTransport {
        match self {
            TransportChoice::Auto => StreamTransport::Udp,
            TransportChoice::Only(transport) => transport,
        }
    }
}

impl FromStr for TransportChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<TransportChoice, String> {
        if text == "auto" {
            return Ok(TransportChoice::Auto);
        }
        let found = text.parse().map(TransportChoice::Only);
        found.map_err(|_| format!("{text}: write auto, udp, tcp, http or multicast"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transport_is_read_by_its_name() {
        for transport in StreamTransport::ALL {
            assert_eq!(transport.name().parse(), Ok(TransportChoice::Only(transport)));
        }
        assert_eq!("auto".parse(), Ok(TransportChoice::Auto));
        let wrong = "sctp".parse::<TransportChoice>().unwrap_err();
        assert_eq!(wrong, "sctp: write auto, udp, tcp, http or multicast");
    }
}
