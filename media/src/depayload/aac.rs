// SPDX-License-Identifier: MIT OR Apache-2.0
//! Depayloader of AAC: access units after headers with their sizes, several in a packet or one in
//! fragments.
//!
//! Sources: RFC 3640 §3.2 (payload), §3.3.5, §3.3.6 (AAC-lbr, AAC-hbr), §4.1 (parameters).
//! Does not reorder interleaved units.

use super::{Output, TimedPacket, UNIT_BYTES_MAX};
use crate::bits::Bits;
use crate::tracks::Codec;

/// Widths in bits of the fields of an AU header.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeaderBits {
    pub(super) size: u32,
    pub(super) index: u32,
    pub(super) index_delta: u32,
}

/// Assembles AAC access units.
#[derive(Debug)]
pub(super) struct AacUnits {
    codec: Codec,
    bits: HeaderBits,
    /// Duration of a unit, in units of the RTP clock.
    duration: i64,
    /// A partly received unit: its time, its size and the bytes so far.
    open: Option<(i64, usize, Vec<u8>)>,
}

impl AacUnits {
    pub(super) fn new(codec: Codec, bits: HeaderBits, duration: i64) -> AacUnits {
        AacUnits { codec, bits, duration, open: None }
    }

    pub(super) fn codec(&self) -> &Codec {
        &self.codec
    }

    pub(super) fn push(&mut self, packet: TimedPacket<'_>, output: &mut Output) {
        let is_other = self.open.as_ref().is_some_and(|(time, ..)| *time != packet.time);
        if packet.is_after_gap || is_other {
            self.finish(output);
        }
        if self.take(packet, output).is_none() {
            output.malformed();
        }
    }

    /// Drops an incomplete unit and counts it as broken.
    pub(super) fn finish(&mut self, output: &mut Output) {
        if self.open.take().is_some() {
            output.broken_unit();
        }
    }

    /// Parses a packet; `None` if it is malformed.
    fn take(&mut self, packet: TimedPacket<'_>, output: &mut Output) -> Option<()> {
        let (length, rest) = packet.payload.split_first_chunk()?;
        let header_bits = u32::from(u16::from_be_bytes(*length));
        let (headers, mut body) = rest.split_at_checked(header_bits.div_ceil(8) as usize)?;
        let mut bits = Bits::new(headers);
        let mut left = header_bits;
        let mut number = 0;
        while left > 0 {
            let index_bits = if number == 0 { self.bits.index } else { self.bits.index_delta };
            left = left.checked_sub(self.bits.size + index_bits)?;
            let size = bits.take(self.bits.size)? as usize;
            // A nonzero index or index delta means interleaving.
            if bits.take(index_bits)? != 0 || size == 0 || size > UNIT_BYTES_MAX {
                return None;
            }
            let Some((unit, behind)) = body.split_at_checked(size) else {
                return self.fragment(packet, size, body, number == 0 && left == 0, output);
            };
            body = behind;
            output.unit(packet.time + number * self.duration, unit.to_vec(), true);
            number += 1;
        }
        (number > 0).then_some(())
    }

    /// Appends a fragment of a unit of `size` bytes. A fragment must be alone in its packet.
    fn fragment(
        &mut self,
        packet: TimedPacket<'_>,
        size: usize,
        part: &[u8],
        is_alone: bool,
        output: &mut Output,
    ) -> Option<()> {
        if !is_alone || part.is_empty() {
            return None;
        }
        let (time, whole_bytes, mut bytes) =
            self.open.take().unwrap_or((packet.time, size, vec![]));
        bytes.extend_from_slice(part);
        if whole_bytes != size || bytes.len() > size {
            output.broken_unit();
            return None;
        }
        match bytes.len() == size {
            true => output.unit(time, bytes, true),
            // The last fragment, but bytes are missing: the beginning was lost. No field marks a
            // first fragment.
            false if packet.marker => output.broken_unit(),
            false => self.open = Some((time, size, bytes)),
        }
        Some(())
    }
}
