// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds the identity of an RTP stream: its SSRC and first values.
//!
//! A packet plan has one, and so has each track of a presentation.
//!
//! Sources: RFC 3550 §5.1.
//! Does not draw the values; [`crate::store`] does.

/// SSRC and first values of an asset's RTP stream, drawn at random when the plan is created (RFC
/// 3550 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtpIdentity {
    /// Synchronisation source.
    pub ssrc: u32,
    /// Sequence number of packet 0.
    pub first_sequence: u16,
    /// RTP timestamp of time zero.
    pub first_timestamp: u32,
}
