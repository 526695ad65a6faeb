// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloader of MPEG audio, AC-3, Enhanced AC-3 and Opus: whole frames after a header of a few
//! bytes.
//!
//! Laid out from the sample table alone; the file is not read. Frames that fit share a packet; a
//! frame larger than a packet is a row of fragments.
//!
//! Sources: RFC 2250 §3.5 (MPEG audio), RFC 4184 §4.1 (AC-3), RFC 4598 §4.1 (E-AC-3), RFC 7587 §4.2
//! (Opus: one frame a packet, no header).
//! Does not parse frames.

use super::fragments::Fragments;
use super::layout::{FilePiece, LayoutWriter, PAYLOAD_BYTES_MAX};
use super::{TimedSample, shared, usual_ticks};

/// A format of whole frames.
#[derive(Clone, Copy)]
pub(super) enum FrameFormat {
    MpegAudio,
    Ac3,
    Eac3,
    Opus,
}

impl FrameFormat {
    /// Lays out the packets of a chapter's samples.
    pub(super) fn lay_out(self, samples: &[TimedSample], writer: &mut LayoutWriter) {
        let (mut rest, usual_ticks) = (samples, usual_ticks(samples));
        while let Some(first) = rest.first() {
            let count = self.shared(rest, usual_ticks);
            let (now, later) = rest.split_at(count);
            rest = later;
            writer.unit(first.times);
            let pieces: Vec<_> = now.iter().map(TimedSample::piece).collect();
            let head = self.head(now.len() as u8);
            let bytes: usize = pieces.iter().map(|piece| piece.bytes as usize).sum();
            match head.len() + bytes <= PAYLOAD_BYTES_MAX {
                true => writer.packet(&head, &pieces, self.is_marked()),
                false => self.fragments(pieces[0], self.is_marked(), writer),
            };
        }
    }

    /// Number of the first samples that share a packet.
    fn shared(self, samples: &[TimedSample], usual_ticks: u64) -> usize {
        if matches!(self, FrameFormat::Opus) {
            return 1;
        }
        shared(samples, (HEAD_BYTES, 0), usual_ticks)
    }

    /// Header of a packet of whole frames.
    fn head(self, frames: u8) -> Vec<u8> {
        match self {
            // Must be zero, then the offset of a fragment.
            FrameFormat::MpegAudio => vec![0; 4],
            // Frame type 0: whole frames.
            FrameFormat::Ac3 | FrameFormat::Eac3 => vec![0, frames],
            FrameFormat::Opus => Vec::new(),
        }
    }

    /// Frames of AC-3 mark the packet in which one ends. In the other formats a mark begins sound
    /// after silence, which a file does not have.
    fn is_marked(self) -> bool {
        matches!(self, FrameFormat::Ac3 | FrameFormat::Eac3)
    }

    fn fragments(self, piece: FilePiece, is_marked: bool, writer: &mut LayoutWriter) -> bool {
        match self {
            FrameFormat::MpegAudio => {
                writer.fragments(&[0; 4], piece, Fragments::Offset, is_marked)
            }
            FrameFormat::Ac3 => {
                let packets = fragments(piece.bytes);
                writer.fragments(&[0, packets], piece, Fragments::Ac3, is_marked)
            }
            // Frame type 1: a fragment; the first one's header counts them.
            FrameFormat::Eac3 => {
                let packets = fragments(piece.bytes);
                writer.fragments(&[1, packets], piece, Fragments::Alike, is_marked)
            }
            // A frame is a packet, and one larger than a packet no sound.
            FrameFormat::Opus => {
                writer.fault();
                false
            }
        }
    }
}

/// Number of fragments of a frame, each after a header of two bytes.
fn fragments(bytes: u32) -> u8 {
    u8::try_from(bytes.div_ceil(PAYLOAD_BYTES_MAX as u32 - 2)).unwrap_or(u8::MAX)
}

/// Bytes of the longest header.
const HEAD_BYTES: usize = 4;
