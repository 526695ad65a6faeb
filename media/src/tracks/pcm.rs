// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCM: sound as samples, linear or companded, and the size of its blocks and packets.
//!
//! A table with an entry for each sample of sound would be as large as the sound. So a sample of
//! the table is a block of frames (a frame is one sample of each channel) of about 20 ms, and a
//! block is a whole number of packets of one size: 4 bytes a block are 0.7 MB an hour, at any rate.
//! Play can start with each block.
//!
//! Sources: RFC 3551 §4.1 to §4.5 (L8, L16, PCMA, PCMU), RFC 3190 §4 (L24).
//! Does not reorder channels.

use crate::payload::PAYLOAD_BYTES_MAX;

/// Form of a sample of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PcmForm {
    /// 8 bits, unsigned: 128 is silence.
    L8,
    /// 16 bits, signed, little-endian in the file.
    L16,
    /// 24 bits, signed, little-endian in the file.
    L24,
    /// A-law (ITU-T G.711), 8 bits.
    ALaw,
    /// mu-law (ITU-T G.711), 8 bits.
    MuLaw,
    /// 16 bits, signed, in network order in the file, too.
    L16BigEndian,
    /// 24 bits, signed, in network order in the file, too.
    L24BigEndian,
}

impl PcmForm {
    /// All forms.
    pub const ALL: [PcmForm; 7] = [
        PcmForm::L8,
        PcmForm::L16,
        PcmForm::L24,
        PcmForm::ALaw,
        PcmForm::MuLaw,
        PcmForm::L16BigEndian,
        PcmForm::L24BigEndian,
    ];

    /// Bytes of a sample.
    pub const fn bytes(self) -> u32 {
        match self {
            PcmForm::L8 | PcmForm::ALaw | PcmForm::MuLaw => 1,
            PcmForm::L16 | PcmForm::L16BigEndian => 2,
            PcmForm::L24 | PcmForm::L24BigEndian => 3,
        }
    }

    /// True if RTP has the bytes of a sample in the other order than the file.
    pub const fn is_swapped(self) -> bool {
        matches!(self, PcmForm::L16 | PcmForm::L24)
    }
}

/// Parameters of a track of PCM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcmConfig {
    /// Form of the samples.
    pub form: PcmForm,
    /// Frames a second: the RTP clock rate. At least 1.
    pub rate_hz: u32,
    /// Channels, in the order of the file. At least 1.
    pub channels: u8,
}

impl PcmConfig {
    /// Bytes of a frame: one sample of each channel.
    pub fn frame_bytes(&self) -> u32 {
        self.form.bytes() * u32::from(self.channels)
    }

    /// Frames of a packet: a part of 20 ms that fits, and as many in each packet of a block.
    pub fn packet_frames(&self) -> u32 {
        self.wanted_frames() / self.block_packets()
    }

    /// Frames of a block: the sum of those of its packets.
    pub fn block_frames(&self) -> u32 {
        self.packet_frames() * self.block_packets()
    }

    fn wanted_frames(&self) -> u32 {
        (self.rate_hz / BLOCKS_PER_SECOND).max(1)
    }

    fn block_packets(&self) -> u32 {
        // 255 channels of 24 bits have 765 bytes.
        let most = PAYLOAD_BYTES_MAX as u32 / self.frame_bytes();
        self.wanted_frames().div_ceil(most)
    }
}

/// Blocks of 20 ms, which RFC 3551 §4.2 asks of packets: the delay of a player that waits for one.
const BLOCKS_PER_SECOND: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_packets_of_about_twenty_milliseconds() {
        let sizes = |form, rate_hz, channels| {
            let config = PcmConfig { form, rate_hz, channels };
            (config.packet_frames(), config.block_frames(), config.frame_bytes())
        };
        assert_eq!(sizes(PcmForm::MuLaw, 8000, 1), (160, 160, 1));
        assert_eq!(sizes(PcmForm::L16, 48_000, 2), (320, 960, 4));
        assert_eq!(sizes(PcmForm::L16, 44_100, 2), (294, 882, 4));
        // 882 frames cannot be divided into four packets of one size.
        assert_eq!(sizes(PcmForm::L24, 44_100, 2), (220, 880, 6));
        assert_eq!(sizes(PcmForm::L24, 192_000, 8), (56, 3808, 24));
        assert_eq!(sizes(PcmForm::L24, 1, 255), (1, 1, 765));
        for form in PcmForm::ALL {
            for rate_hz in [8000, 11_025, 22_050, 32_000, 96_000, 192_000] {
                for channels in 1..=8 {
                    let (packet, block, frame) = sizes(form, rate_hz, channels);
                    assert!(packet * frame <= PAYLOAD_BYTES_MAX as u32 && block % packet == 0);
                    assert!(block <= rate_hz / 50 && block * 50 > rate_hz * 9 / 10, "{block}");
                }
            }
        }
    }
}
