// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloader of PCM: packets of whole frames (one sample of each channel) without a header.
//!
//! A packet of 8-bit samples, A-law or mu-law is a range of the file. RTP requires larger samples
//! in network order. Where the file has them so, a packet is a range of it, too; most files have
//! the other order: the bytes of a chapter are read and swapped when it is laid out, and stay in
//! memory as its packets. That costs one copy of each second of sound, which all sessions share,
//! and memory of its size as long as the layout is kept: 192 kB a second of 16-bit stereo at 48
//! kHz. Each session then copies them once more, after its RTP headers. The packets of a block, 20
//! ms, are a row: one call sends them.
//!
//! Sources: RFC 3551 §4.2 (packets), §4.5.10 (L8), §4.5.11 (L16), §4.5.14 (PCMA, PCMU); RFC 3190 §4
//! (L24).
//! Does not reorder channels to RFC 3551 §4.1: files do not have that order.

use std::io;

use super::TimedSample;
use super::layout::{FilePiece, LayoutWriter};
use crate::read_at::ReadAt;
use crate::tracks::{PcmConfig, PcmForm};

/// Lays out the packets of a chapter's blocks.
pub(super) fn lay_out(
    config: &PcmConfig,
    samples: &[TimedSample],
    file: &(impl ReadAt + ?Sized),
    writer: &mut LayoutWriter,
) -> io::Result<()> {
    let (frame, packet_frames) = (config.frame_bytes(), config.packet_frames());
    let each = (packet_frames * frame) as usize;
    let mut block = Vec::new();
    for one in samples {
        let FilePiece { file_offset, bytes } = one.piece();
        let bytes = bytes - bytes % frame;
        if bytes < one.sample.bytes {
            writer.fault();
        }
        if bytes == 0 {
            continue;
        }
        // A payload of a byte a frame is no longer than a packet.
        writer.stepped_unit(one.times, packet_frames as u16);
        let swap = match config.form {
            PcmForm::L16 => swap_16,
            PcmForm::L24 => swap_24,
            PcmForm::L8
            | PcmForm::ALaw
            | PcmForm::MuLaw
            | PcmForm::L16BigEndian
            | PcmForm::L24BigEndian => {
                writer.slices(FilePiece { file_offset, bytes }, each);
                continue;
            }
        };
        block.resize(bytes as usize, 0);
        file.read_exact_at(&mut block, file_offset)?;
        swap(&mut block);
        // A call sends packets in memory of one size.
        let (whole, rest) = block.split_at(block.len() - block.len() % each);
        for part in [(whole, each), (rest, rest.len())] {
            if !part.0.is_empty() && !writer.rows(part.0, part.1) {
                break;
            }
        }
    }
    Ok(())
}

fn swap_16(bytes: &mut [u8]) {
    bytes.chunks_exact_mut(2).for_each(|sample| sample.swap(0, 1));
}

fn swap_24(bytes: &mut [u8]) {
    bytes.chunks_exact_mut(3).for_each(|sample| sample.swap(0, 2));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_swapped_each_by_itself() {
        let mut bytes = [1, 2, 3, 4, 5, 6];
        swap_16(&mut bytes);
        assert_eq!(bytes, [2, 1, 4, 3, 6, 5]);
        let mut bytes = [1, 2, 3, 4, 5, 6];
        swap_24(&mut bytes);
        assert_eq!(bytes, [3, 2, 1, 6, 5, 4]);
    }
}
