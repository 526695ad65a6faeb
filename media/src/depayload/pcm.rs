// SPDX-License-Identifier: MIT OR Apache-2.0
//! Depayloader of PCM: each packet is a unit of whole frames (one sample of each channel), in
//! network order.
//!
//! Sources: RFC 3551 §4.5.10 (L8), §4.5.11 (L16), §4.5.14 (PCMA, PCMU); RFC 3190 §4 (L24).
//! Does not swap bytes or conceal lost packets.

use super::{Output, TimedPacket};
use crate::tracks::{Codec, PcmConfig};

/// Checks that each packet holds whole frames.
#[derive(Debug)]
pub(super) struct PcmUnits {
    codec: Codec,
    frame_bytes: usize,
}

impl PcmUnits {
    pub(super) fn new(config: PcmConfig) -> PcmUnits {
        PcmUnits { codec: Codec::Pcm(config), frame_bytes: config.frame_bytes() as usize }
    }

    pub(super) fn codec(&self) -> &Codec {
        &self.codec
    }

    pub(super) fn push(&mut self, packet: TimedPacket<'_>, output: &mut Output) {
        let payload = packet.payload;
        match !payload.is_empty() && payload.len().is_multiple_of(self.frame_bytes) {
            true => output.unit(packet.time, payload.to_vec(), true),
            false => output.malformed(),
        }
    }
}
