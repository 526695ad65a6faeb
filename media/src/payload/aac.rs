// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloader of AAC: access units with a header each (mode AAC-hbr), several in a packet.
//!
//! Laid out from the sample table alone; the file is not read.
//!
//! Sources: RFC 3640 §3.2 (payload), §3.3.6 (AAC-hbr).
//! Does not interleave.

use super::fragments::Fragments;
use super::layout::{LayoutWriter, PAYLOAD_BYTES_MAX};
use super::{TimedSample, shared, usual_ticks};

/// Lays out the packets of a chapter's samples.
pub(super) fn lay_out(samples: &[TimedSample], writer: &mut LayoutWriter) {
    let (mut rest, usual_ticks) = (samples, usual_ticks(samples));
    while let Some(first) = rest.first() {
        let count = shared(rest, (2, 2), usual_ticks);
        let (now, later) = rest.split_at(count);
        rest = later;
        writer.unit(first.times);
        if first.sample.bytes as usize > AU_BYTES_MAX {
            writer.fault();
            continue;
        }
        let mut head = (16 * now.len() as u16).to_be_bytes().to_vec();
        for one in now {
            // Size in 13 bits, then an index of zero: the units follow each other.
            head.extend(((one.sample.bytes as u16) << 3).to_be_bytes());
        }
        let pieces: Vec<_> = now.iter().map(TimedSample::piece).collect();
        let bytes: usize = pieces.iter().map(|piece| piece.bytes as usize).sum();
        match head.len() + bytes <= PAYLOAD_BYTES_MAX {
            true => writer.packet(&head, &pieces, true),
            // Fragments of one unit have the header of the whole; the last is marked.
            false => writer.fragments(&head, pieces[0], Fragments::Alike, true),
        };
    }
}

/// Sizes have 13 bits.
const AU_BYTES_MAX: usize = (1 << 13) - 1;
