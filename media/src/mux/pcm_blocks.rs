// SPDX-License-Identifier: MIT OR Apache-2.0
//! Regroups the packets of a PCM track into blocks of one size, in the form that MP4 stores.
//!
//! Senders choose the length of their packets: 1 ms for studios, 20 to 64 ms for cameras. A sample
//! of an MP4 track is a block of about 20 ms ([`PcmConfig::block_frames`]), so that its tables need
//! no entry for each sample. G.711 and 8 bits become 16 bits, as `ipcm` has no form of them; 16 and
//! 24 bits change from the byte order of the network to little-endian, the order that all readers
//! of `ipcm` support.
//!
//! The frames of a block follow each other without a gap. A unit that is more than [`SLACK_MS`]
//! from the end of the unit before it begins another block, at its own time; the block before it is
//! short. Some cameras read a clock of milliseconds for their timestamps, or read it when they send
//! a packet. Such times scatter by less, so their sound has no gaps, and no frame is further from
//! its time than a viewer notices. A unit after a lost packet begins another block unless it is
//! within a frame of its place, a rounding error: the packet of a studio is shorter than the slack.
//!
//! Costs one copy of the sound, and holds less than a block.
//!
//! Sources: ISO/IEC 23003-5 (`ipcm`, `pcmC`); RFC 3551 §4.5.10 (L8), §4.5.11 (L16), §4.5.14 (PCMA,
//! PCMU); RFC 3190 §4 (L24); ITU-T G.711.
//! Does not fill gaps with silence, or reorder channels: more than two are refused
//! ([`super::check_tracks`]).

use super::UNIT_BYTES_MAX;
use super::g711::{A_LAW, MU_LAW};
use crate::tracks::{Codec, PcmConfig, PcmForm};
use crate::{AccessUnit, MuxRefusal};

/// Largest difference from the expected time that continues a block, in milliseconds: half a block.
const SLACK_MS: i64 = 10;

/// Most bytes of a block. Those of two channels of 24 bits at 384 kHz are smaller; a description
/// may name any rate.
const BLOCK_BYTES_MAX: usize = 64 << 10;

/// Returns the form in which MP4 stores the sound of a PCM track.
pub const fn stored(config: PcmConfig) -> PcmConfig {
    let form = match config.form {
        PcmForm::L24 | PcmForm::L24BigEndian => PcmForm::L24,
        PcmForm::L8 | PcmForm::L16 | PcmForm::L16BigEndian | PcmForm::ALaw | PcmForm::MuLaw => {
            PcmForm::L16
        }
    };
    PcmConfig { form, ..config }
}

/// Collects the sound of a track.
#[derive(Debug)]
pub(super) struct PcmBlocks {
    track: usize,
    form: PcmForm,
    /// Bytes of a frame in units and in blocks.
    unit_frame_bytes: usize,
    frame_bytes: usize,
    block_bytes: usize,
    slack: u64,
    /// The started block.
    block: Vec<u8>,
    /// Time of its first frame.
    start: i64,
    /// End of the last frame.
    end: Option<i64>,
}

impl PcmBlocks {
    /// Blocks of a track; `None` for other codecs than PCM.
    pub(super) fn of(track: usize, codec: &Codec) -> Option<PcmBlocks> {
        let Codec::Pcm(config) = *codec else { return None };
        let stored = stored(config);
        let frame_bytes = stored.frame_bytes().max(1) as usize;
        let block_frames = (stored.block_frames() as usize).min(BLOCK_BYTES_MAX / frame_bytes);
        Some(PcmBlocks {
            track,
            form: config.form,
            unit_frame_bytes: config.frame_bytes().max(1) as usize,
            frame_bytes,
            block_bytes: block_frames.max(1) * frame_bytes,
            slack: (i64::from(config.rate_hz) * SLACK_MS / 1000).max(1).unsigned_abs(),
            block: Vec::new(),
            start: 0,
            end: None,
        })
    }

    /// Adds a unit; returns the blocks that it completes.
    ///
    /// # Errors
    /// The unit is empty or too large, or does not hold whole frames; it is dropped.
    pub(super) fn push(&mut self, unit: &AccessUnit) -> Result<Vec<AccessUnit>, MuxRefusal> {
        let (track, limit) = (self.track, UNIT_BYTES_MAX);
        let mut bytes = &unit.bytes[..];
        match bytes.len() {
            0 => return Err(MuxRefusal::Empty { track }),
            bytes if bytes > limit => return Err(MuxRefusal::TooLarge { track, bytes, limit }),
            bytes if !bytes.is_multiple_of(self.unit_frame_bytes) => {
                let what = "the unit does not hold whole frames of PCM";
                return Err(MuxRefusal::Malformed { track, what });
            }
            _ => {}
        }
        let mut blocks = Vec::new();
        let slack = if unit.is_after_loss { 1 } else { self.slack };
        let mut end = match self.end {
            Some(end) if unit.time.abs_diff(end) <= slack => end,
            _ => {
                blocks.extend(self.cut());
                unit.time
            }
        };
        while !bytes.is_empty() {
            if self.block.is_empty() {
                self.start = end;
                self.block.reserve_exact(self.block_bytes);
            }
            let room = (self.block_bytes - self.block.len()) / self.frame_bytes;
            let most = (room * self.unit_frame_bytes).min(bytes.len());
            let (now, rest) = bytes.split_at(most);
            convert(self.form, now, &mut self.block);
            end = end.saturating_add((now.len() / self.unit_frame_bytes) as i64);
            if self.block.len() == self.block_bytes {
                blocks.extend(self.cut());
            }
            bytes = rest;
        }
        self.end = Some(end);
        Ok(blocks)
    }

    /// Ends the started block, if there is one.
    pub(super) fn cut(&mut self) -> Option<AccessUnit> {
        let mut bytes = std::mem::take(&mut self.block);
        if bytes.is_empty() {
            return None;
        }
        bytes.shrink_to_fit();
        Some(AccessUnit { time: self.start, bytes, is_start: true, is_after_loss: false })
    }

    /// Time of the first frame of the started block.
    pub(super) fn start(&self) -> Option<i64> {
        (!self.block.is_empty()).then_some(self.start)
    }

    /// Frames of a block of this many bytes.
    pub(super) fn frames(&self, bytes: usize) -> u32 {
        u32::try_from(bytes / self.frame_bytes).unwrap_or(u32::MAX)
    }
}

/// Appends the samples of a unit, which are in network order, in the stored form.
fn convert(form: PcmForm, unit: &[u8], block: &mut Vec<u8>) {
    let decode = |table: &[i16; 256], block: &mut Vec<u8>| {
        block.extend(unit.iter().flat_map(|&byte| table[usize::from(byte)].to_le_bytes()));
    };
    match form {
        PcmForm::ALaw => decode(&A_LAW, block),
        PcmForm::MuLaw => decode(&MU_LAW, block),
        // Subtracting 128 from a byte inverts its upper bit.
        PcmForm::L8 => block.extend(unit.iter().flat_map(|&byte| [0, byte ^ 0x80])),
        PcmForm::L16 | PcmForm::L16BigEndian => {
            block.extend(unit.as_chunks().0.iter().flat_map(|&[high, low]| [low, high]));
        }
        PcmForm::L24 | PcmForm::L24BigEndian => {
            block.extend(unit.as_chunks().0.iter().flat_map(|&[high, mid, low]| [low, mid, high]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_HZ: u32 = 8000;

    fn blocks(form: PcmForm, channels: u8, rate_hz: u32) -> PcmBlocks {
        let config = PcmConfig { form, rate_hz, channels };
        PcmBlocks::of(2, &Codec::Pcm(config)).expect("PCM")
    }

    fn unit(time: i64, bytes: Vec<u8>, is_after_loss: bool) -> AccessUnit {
        AccessUnit { time, bytes, is_start: true, is_after_loss }
    }

    /// Times and frames of blocks of one channel of 16 bits.
    fn sizes(blocks: &[AccessUnit]) -> Vec<(i64, usize)> {
        blocks.iter().map(|block| (block.time, block.bytes.len() / 2)).collect()
    }

    #[test]
    fn samples_are_converted_to_the_stored_form() {
        let converted = |form, bytes: &[u8]| {
            let mut out = Vec::new();
            convert(form, bytes, &mut out);
            out
        };
        let samples = |form, bytes: &[u8]| -> Vec<i16> {
            let out = converted(form, bytes);
            out.as_chunks().0.iter().map(|&bytes| i16::from_le_bytes(bytes)).collect()
        };
        assert_eq!(samples(PcmForm::ALaw, &[0xd5, 0x55, 0x2a, 0xaa]), [8, -8, -32256, 32256]);
        assert_eq!(samples(PcmForm::MuLaw, &[0xff, 0x80, 0x00]), [0, 32124, -32124]);
        assert_eq!(samples(PcmForm::L8, &[0, 127, 128, 129, 255]), [-32768, -256, 0, 256, 32512]);
        assert_eq!(samples(PcmForm::L16, &[0x80, 0x01, 0x12, 0x34]), [-32767, 0x1234]);
        assert_eq!(converted(PcmForm::L24, &[1, 2, 3, 4, 5, 6]), [3, 2, 1, 6, 5, 4]);
    }

    #[test]
    fn packets_of_any_length_become_blocks_of_one_size() {
        for packet in [1, 40, 160, 240, 320, 512, 7777] {
            let mut blocks = blocks(PcmForm::MuLaw, 1, RATE_HZ);
            let sound: Vec<u8> = (0..10_000_u32).map(|at| ((at * at) >> 3) as u8).collect();
            let (mut all, mut time) = (Vec::new(), 5000);
            for bytes in sound.chunks(packet) {
                all.extend(blocks.push(&unit(time, bytes.to_vec(), false)).unwrap());
                time += bytes.len() as i64;
                assert_eq!(
                    blocks.start().is_some(),
                    !(time - 5000).unsigned_abs().is_multiple_of(160)
                );
            }
            all.extend(blocks.cut());
            assert!(blocks.cut().is_none());
            let expected: Vec<_> = (0..62).map(|block| (5000 + 160 * block, 160)).collect();
            assert_eq!(sizes(&all), [&expected[..], &[(5000 + 9920, 80)]].concat(), "{packet}");
            assert_eq!(blocks.frames(all[62].bytes.len()), 80);
            let written: Vec<u8> = all.into_iter().flat_map(|block| block.bytes).collect();
            let mut decoded = Vec::new();
            convert(PcmForm::MuLaw, &sound, &mut decoded);
            assert!(written == decoded, "packets of {packet} frames");
        }
    }

    #[test]
    fn blocks_hold_whole_frames_of_all_channels() {
        let mut blocks = blocks(PcmForm::L24, 2, 44_100);
        let sound = vec![7; 6 * 1000];
        let [block] = &blocks.push(&unit(0, sound, false)).unwrap()[..] else { panic!("a block") };
        // 20 ms, divisible by the packets of a block.
        assert_eq!((block.bytes.len(), blocks.start()), (6 * 880, Some(880)));
    }

    /// A packet lost, one that overlaps, and a clock that scatters by some milliseconds.
    #[test]
    fn a_gap_ends_a_block_and_a_scattered_clock_does_not() {
        let mut blocks = blocks(PcmForm::ALaw, 1, RATE_HZ);
        let mut all = Vec::new();
        let times = [0, 230, 150 + 320, 1000, 1321, 1200];
        for time in times {
            all.extend(blocks.push(&unit(time, vec![0xd5; 240], false)).unwrap());
        }
        all.extend(blocks.cut());
        // The first three have no gap; the fourth is 290 frames late, the fifth 81, one
        // more than the slack; the last goes back by 361.
        let expected = [
            (0, 160),
            (160, 160),
            (320, 160),
            (480, 160),
            (640, 80),
            (1000, 160),
            (1160, 80),
            (1321, 160),
            (1481, 80),
            (1200, 160),
            (1360, 80),
        ];
        assert_eq!(sizes(&all), expected);
    }

    /// At 48 kHz a packet of a studio has 48 frames.
    #[test]
    fn a_lost_packet_shorter_than_the_slack_ends_a_block() {
        for (is_after_loss, late, expected) in [
            (true, 48, vec![(0, 48), (96, 48)]),
            (true, 1, vec![(0, 96)]),
            (true, -1, vec![(0, 96)]),
            (false, 48, vec![(0, 96)]),
        ] {
            let mut blocks = blocks(PcmForm::L16, 1, 48_000);
            let mut all = blocks.push(&unit(0, vec![0; 96], false)).unwrap();
            all.extend(blocks.push(&unit(48 + late, vec![0; 96], is_after_loss)).unwrap());
            all.extend(blocks.cut());
            assert_eq!(sizes(&all), expected, "{late} frames");
        }
    }

    #[test]
    fn units_that_hold_no_whole_frames_are_refused_and_the_next_is_accepted() {
        let mut blocks = blocks(PcmForm::L16, 2, RATE_HZ);
        let refusal = blocks.push(&unit(0, Vec::new(), false)).unwrap_err();
        assert_eq!(refusal, MuxRefusal::Empty { track: 2 });
        let refusal = blocks.push(&unit(0, vec![0; 6], false)).unwrap_err();
        assert!(matches!(refusal, MuxRefusal::Malformed { track: 2, .. }), "{refusal}");
        let refusal = blocks.push(&unit(0, vec![0; UNIT_BYTES_MAX + 4], false)).unwrap_err();
        assert!(matches!(refusal, MuxRefusal::TooLarge { track: 2, .. }), "{refusal}");
        assert!(blocks.push(&unit(0, vec![0; 8], false)).unwrap().is_empty());
        assert_eq!(blocks.start(), Some(0));
    }

    /// A description may name any rate.
    #[test]
    fn blocks_of_any_rate_are_small() {
        for rate_hz in [1, 8000, 192_000, u32::MAX] {
            for (form, channels) in [(PcmForm::L8, 1), (PcmForm::L24, 2)] {
                let mut blocks = blocks(form, channels, rate_hz);
                assert!((1..=BLOCK_BYTES_MAX).contains(&blocks.block_bytes));
                let found = blocks.push(&unit(i64::MAX, vec![0; 60_000], false)).unwrap();
                assert!(found.iter().all(|block| block.bytes.len() <= BLOCK_BYTES_MAX));
            }
        }
        assert!(PcmBlocks::of(0, &Codec::Opus { channels: 2 }).is_none());
    }
}
