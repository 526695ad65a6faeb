// SPDX-License-Identifier: MIT OR Apache-2.0
//! Protocol errors of a peer in RTSP, SDP, SAP, RTP and RTCP, each with the rule that it breaks.
//!
//! All are of the kind *Peer*: the other side broke the protocol. A fault carries the byte offset
//! at which it was found (in the connection for RTSP, in the datagram for RTP, RTCP and SAP, in the
//! document for SDP), so that it can be found in a capture. It does not name the peer: the caller
//! adds that.
//!
//! HTTP has its own type (`http::Malformed`), with a status code to answer with.

use std::fmt;

/// Violation of the protocol by a peer: offset, fault and rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Malformed {
    /// Byte offset of the fault: in the connection (RTSP), the datagram (RTP, RTCP, SAP), the text
    /// (SDP).
    pub offset: u64,
    /// Fault found there.
    pub fault: Fault,
}

/// Violations of the protocol, one variant each.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The start line is not an RTSP request line, or not an RTSP status line if a reply is due.
    StartLine,
    /// The start line alone is longer than a whole head may be.
    StartLineTooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// An RTSP version other than 1.0.
    Version,
    /// The request URL is not an absolute `rtsp:` URL (or `*`), or does not decode to UTF-8.
    Url,
    /// The head (start line and headers) is longer than the limit.
    HeadTooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// More header lines than the limit.
    TooManyHeaders {
        /// The limit, in lines.
        limit: usize,
    },
    /// A header line without a colon, without a name, with a name that is no token, or a
    /// continuation line with nothing to continue.
    HeaderLine,
    /// A control character inside a line.
    ControlCharacter,
    /// Content-Length is not a number, or occurs twice with different values.
    ContentLength,
    /// The body is longer than the limit.
    BodyTooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// A Transfer-Encoding, which RTSP does not have.
    TransferEncoding,
    /// The message was begun but not completed in the time allowed.
    Overdue,
    /// A GET or POST on an RTSP port without a usable `x-sessioncookie`.
    TunnelCookie,
    /// A byte in the upload half of an HTTP tunnel that is not base64.
    Base64,
    /// Reply with a status other than 200.
    Status {
        /// The status code of the reply.
        code: u16,
    },
    /// A reply that lacks a required header, or has one that cannot be parsed.
    ReplyHeader {
        /// Name of the header.
        name: &'static str,
    },
    /// The session description cannot be parsed.
    Description,
    /// The session description offers no MPEG transport stream over RTP/AVP.
    NoTransportStream {
        /// The encodings that it offers instead.
        offered: String,
    },
    /// The session description offers no stream of RTP at all.
    NoStream {
        /// The streams that it offers instead.
        offered: String,
    },
    /// An RTP packet shorter than its headers, extension or padding say.
    RtpTooShort,
    /// RTP or RTCP of a version other than 2.
    RtpVersion {
        /// The version found.
        version: u8,
    },
    /// An RTCP packet that is cut short or contradicts its own length.
    RtcpLength,
    /// A datagram on the RTCP port that does not begin with a sender or receiver report.
    RtcpFirst {
        /// The packet type found.
        packet_type: u8,
    },
    /// A SAP packet shorter than the lengths in its header.
    SapTooShort,
    /// SAP of a version other than 1.
    SapVersion {
        /// The version found.
        version: u8,
    },
    /// A SAP packet whose payload is encrypted or compressed.
    SapEncoded,
    /// A SAP packet whose payload is not SDP.
    SapPayload,
}

impl Fault {
    /// The rule that was broken.
    pub fn section(&self) -> &'static str {
        match self {
            Fault::StartLine | Fault::StartLineTooLong { .. } => "RFC 2326 §6.1",
            Fault::Version => "RFC 2326 §3.1",
            Fault::Url => "RFC 2326 §3.2",
            Fault::HeadTooLong { .. } | Fault::TooManyHeaders { .. } => "RFC 2326 §4.2",
            Fault::HeaderLine | Fault::ControlCharacter => "RFC 2326 §15.1",
            Fault::ContentLength | Fault::BodyTooLong { .. } => "RFC 2326 §12.14",
            Fault::TransferEncoding => "RFC 2326 §4.4",
            Fault::Overdue => "RFC 2326 §7.1.1",
            Fault::TunnelCookie => "RTSP over HTTP",
            Fault::Base64 => "RFC 4648 §4",
            Fault::Status { .. } => "RFC 2326 §11",
            Fault::ReplyHeader { name: "Transport" } => "RFC 2326 §12.39",
            Fault::ReplyHeader { name: "Session" } => "RFC 2326 §12.37",
            Fault::ReplyHeader { name: "RTP-Info" } => "RFC 2326 §12.33",
            Fault::ReplyHeader { .. } => "RFC 2326 §12",
            Fault::Description => "RFC 8866 §9",
            Fault::NoTransportStream { .. } => "RFC 2250 §2",
            Fault::NoStream { .. } => "RFC 8866 §5.14",
            Fault::RtpTooShort | Fault::RtpVersion { .. } => "RFC 3550 §5.1",
            Fault::RtcpLength | Fault::RtcpFirst { .. } => "RFC 3550 §6.1",
            Fault::SapTooShort
            | Fault::SapVersion { .. }
            | Fault::SapEncoded
            | Fault::SapPayload => "RFC 2974 §6",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::StartLine => f.write_str("start line that is not RTSP"),
            Fault::StartLineTooLong { limit } => write!(f, "start line of more than {limit} bytes"),
            Fault::Version => f.write_str("RTSP version other than 1.0"),
            Fault::Url => f.write_str("request URL that is neither an absolute rtsp URL nor *"),
            Fault::HeadTooLong { limit } => write!(f, "head of more than {limit} bytes"),
            Fault::TooManyHeaders { limit } => write!(f, "more than {limit} header lines"),
            Fault::HeaderLine => f.write_str("header line that is not a name, a colon and a value"),
            Fault::ControlCharacter => f.write_str("control character in a line"),
            Fault::ContentLength => f.write_str("Content-Length that is not one number"),
            Fault::BodyTooLong { limit } => write!(f, "body of more than {limit} bytes"),
            Fault::TransferEncoding => f.write_str("Transfer-Encoding, which RTSP does not have"),
            Fault::Overdue => f.write_str("message not completed in the time allowed"),
            Fault::TunnelCookie => {
                f.write_str("HTTP request without the x-sessioncookie of an RTSP tunnel")
            }
            Fault::Base64 => f.write_str("byte of a tunnelled request that is no base64"),
            Fault::Status { code } => write!(f, "answered with status {code}"),
            Fault::ReplyHeader { name } => {
                write!(f, "reply with no {name} header that can be understood")
            }
            Fault::Description => f.write_str("session description that is not SDP"),
            Fault::NoTransportStream { offered } => write!(
                f,
                "session description without an MPEG transport stream over RTP/AVP; it offers \
                 {offered}"
            ),
            Fault::NoStream { offered } => {
                write!(f, "session description without a stream over RTP/AVP; it offers {offered}")
            }
            Fault::RtpTooShort => f.write_str("RTP packet shorter than its header says"),
            Fault::RtpVersion { version } => write!(f, "RTP version {version}"),
            Fault::RtcpLength => f.write_str("RTCP packet that contradicts its length"),
            Fault::RtcpFirst { packet_type } => {
                write!(f, "compound RTCP packet that begins with type {packet_type}")
            }
            Fault::SapTooShort => f.write_str("SAP packet shorter than its header says"),
            Fault::SapVersion { version } => write!(f, "SAP version {version}"),
            Fault::SapEncoded => f.write_str("SAP packet with an encrypted or compressed payload"),
            Fault::SapPayload => f.write_str("SAP packet without a session description"),
        }
    }
}

impl Malformed {
    pub(crate) fn new(offset: u64, fault: Fault) -> Self {
        Malformed { offset, fault }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {} ({})", self.offset, self.fault, self.fault.section())
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_has_place_finding_and_rule() {
        let malformed = Malformed::new(312, Fault::TooManyHeaders { limit: 64 });
        assert_eq!(malformed.to_string(), "byte 312: more than 64 header lines (RFC 2326 §4.2)");
    }
}
