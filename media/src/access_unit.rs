// SPDX-License-Identifier: MIT OR Apache-2.0
//! An access unit is one whole picture or frame of sound, with its time.
//!
//! Depayloaders assemble them from packets; writers store them in files.
//!
//! Sources: RFC 3550 §5.1 (timestamps); ISO/IEC 14496-15 §5.3.2, §8.3.2 (NAL units with lengths);
//! AV1-ISOBMFF §2.4 (samples of AV1).

/// A picture or a frame of sound, as a sample of an MP4 file holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessUnit {
    /// Presentation time, in units of the RTP clock of its codec ([`crate::Codec::clock_rate_hz`])
    /// from an origin that all units of a track share. It does not wrap.
    pub time: i64,
    /// Content. H.264 and H.265: NAL units, each after its length in four bytes, without access
    /// unit delimiters. AV1: open bitstream units with sizes, without temporal delimiters. AAC: a
    /// raw_data_block. Other codecs: a frame.
    pub bytes: Vec<u8>,
    /// True if decoding can begin here: a key frame, and every frame of sound.
    pub is_start: bool,
    /// True if packets between this unit and the one before were lost.
    pub is_after_loss: bool,
}
