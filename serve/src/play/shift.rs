// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shift of a play: the distance of its sequence numbers and timestamps from the asset's own.
//!
//! Sources: RFC 2326 Appendix B (continuity over a jump), RFC 3550 §A.1.

use std::sync::Arc;

use crate::library::asset::Source;

/// Offset that a session adds to sequence numbers and timestamps of its asset's packets.
///
/// Both are continuous and monotonic across jumps (RFC 2326, appendix B): a receiver by RFC 3550
/// §A.1 discards a packet 3000 numbers ahead or 100 behind, and ffmpeg drops everything after a
/// jump back until the numbers have caught up. The shift is zero until the first jump, so the wire
/// image, which holds the asset's own numbers, serves all sessions that play straight on; after a
/// jump a session is served from the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shift {
    pub(crate) sequence: u16,
    pub(crate) timestamp: u32,
}

impl Shift {
    /// Returns the shift with which packet `to` has this sequence number and timestamp.
    pub(crate) fn landing(
        source: &Arc<Source>,
        (sequence, timestamp): (u16, u32),
        to: u64,
    ) -> Shift {
        let first = source.asset.plan.identity().first_sequence;
        let own = first.wrapping_add(to.wrapping_sub(source.asset.first_packet()) as u16);
        Shift {
            sequence: sequence.wrapping_sub(own),
            timestamp: timestamp.wrapping_sub(source.holding(to).timestamp_of(to)),
        }
    }
}
