// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transports by which a server sends a stream to this client, by name.
//!
//! Sources: RFC 2326 §10.12 (interleaved), §12.39 (Transport).
//! Does not open connections.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::{ClientSetting, Error};
use crate::login::rtsp_server;

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
    /// UDP; TCP where the server refuses UDP (461) or no packet arrives, and with TLS.
    #[default]
    Auto,
    /// Only this one.
    Only(StreamTransport),
}

impl TransportChoice {
    /// The transport that is tried first for a URL.
    pub fn first(self, url: &str) -> StreamTransport {
        match self {
            TransportChoice::Auto if is_rtsps(url) => StreamTransport::Tcp,
            TransportChoice::Auto => StreamTransport::Udp,
            TransportChoice::Only(transport) => transport,
        }
    }
}

/// Refuses a transport that would carry media of an `rtsps:` URL past TLS.
///
/// # Errors
/// Caller: the transport is not TCP.
pub fn check_transport(url: &str, transport: StreamTransport) -> Result<(), Error> {
    if !is_rtsps(url) || transport == StreamTransport::Tcp {
        return Ok(());
    }
    let cure = "with rtsps:// media is on the connection of TLS, by others it would be in the \
                clear; write tcp, or leave it out";
    let (setting, found) = (ClientSetting::Transport, transport.to_string());
    Err(Error::Setting { setting, found, cure: cure.to_owned() })
}

fn is_rtsps(url: &str) -> bool {
    rtsp_server(url).is_some_and(|server| server.is_tls)
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
    fn media_does_not_leave_tls() {
        for transport in StreamTransport::ALL {
            assert!(check_transport("rtsp://h/a", transport).is_ok());
            let is_tcp = transport == StreamTransport::Tcp;
            let checked = check_transport("rtsps://h/a", transport);
            assert_eq!(checked.is_ok(), is_tcp);
            let text = checked.err().map_or_else(String::new, |error| error.to_string());
            assert!(is_tcp || text.ends_with("write tcp, or leave it out"), "{text}");
        }
    }

    #[test]
    fn each_transport_is_read_by_its_name() {
        for transport in StreamTransport::ALL {
            assert_eq!(transport.name().parse(), Ok(TransportChoice::Only(transport)));
        }
        assert_eq!("auto".parse(), Ok(TransportChoice::Auto));
        assert_eq!(TransportChoice::Auto.first("rtsp://h/a"), StreamTransport::Udp);
        assert_eq!(TransportChoice::Auto.first("RTSPS://h/a"), StreamTransport::Tcp);
        let wrong = "sctp".parse::<TransportChoice>().unwrap_err();
        assert_eq!(wrong, "sctp: write auto, udp, tcp, http or multicast");
    }
}
