// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of the path to a peer (ICMP), as the kernel hands them to the socket they name.
//!
//! ICMP is not authenticated. The kernel finds the socket by the addresses and ports of the packet
//! that a report quotes, which a stranger can guess: 32,256 packets cover all even ports of a
//! client. So a report here is a claim, with the quoted payload as its only evidence. The caller
//! keeps a record of the packets it sent lately; it counts and ignores a report without a quote of
//! one of them.
//!
//! Sources: RFC 792, RFC 4443, RFC 5927 (ICMP attacks; §4.1: check the quote), RFC 1812 §4.3.2.3
//! (how much is quoted), `ip(7)` (`IP_RECVERR`), `linux/errqueue.h`.
//!
//! Does not decide whether a report is true. A host that quotes 8 bytes (RFC 792; BSD and macOS)
//! shows the UDP header alone, so its reports cannot be verified.

/// Bytes of a quoted payload that are kept: an RTP header (RFC 3550 §5.1).
pub const QUOTE_BYTES: usize = wire::rtp::HEADER_BYTES;

/// The fault that a report claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathFault {
    /// No socket is bound to the peer's port.
    PortUnreachable,
    /// A packet exceeded the MTU of a link.
    TooLarge {
        /// Bytes of the largest IP packet that fits.
        mtu: u32,
    },
    /// A fault that may be temporary (net, host and protocol unreachable, prohibited, hop limit)
    /// and ends no stream.
    Transient,
}

/// One report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// The fault that it claims.
    pub fault: PathFault,
    quote: [u8; QUOTE_BYTES],
    quoted: u8,
}

impl PathReport {
    /// Returns a report that quotes a UDP payload which begins with `payload`.
    pub fn new(fault: PathFault, payload: &[u8]) -> Self {
        let bytes = payload.len().min(QUOTE_BYTES);
        let mut quote = [0; QUOTE_BYTES];
        quote[..bytes].copy_from_slice(&payload[..bytes]);
        Self { fault, quote, quoted: bytes as u8 }
    }

    /// Returns the beginning of the quoted packet's payload, at most [`QUOTE_BYTES`]; empty where
    /// the kernel had no room for the report.
    pub fn quote(&self) -> &[u8] {
        &self.quote[..usize::from(self.quoted)]
    }
}
