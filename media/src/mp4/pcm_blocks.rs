// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes blocks of about 20 ms of the samples of a PCM track, however a writer divided it.
//!
//! A sample of such a track may be a frame (one sample of each channel), as in QuickTime, or a
//! second. Frames that continue each other in the file and in time are collected, and each block of
//! [`PcmConfig::block_frames`] leaves as soon as another one is full behind it. So a block has less
//! than twice as many frames, and is shorter only where a row of frames ends: with a chunk of the
//! file, or at a gap. An hour costs 0.7 MB in the table of samples, and 48 bytes are held here.
//!
//! Samples of one size that last as long as their frames are joined before: a step of the reader is
//! a block and not a frame ([`Joined`]). 172 million frames, an hour of 48 kHz, are 180,000 steps.
//!
//! Sources: ISO/IEC 23003-5 §4 (samples of PCM); QuickTime File Format, "Sound Sample Descriptions"
//! (uncompressed sound).
//! Does not read sound.

use super::entries::REMUX;
use super::movie::TrackState;
use crate::DemuxError;
use crate::tracks::{Codec, MediaSample, PcmConfig, SAMPLE_BYTES_MAX, SampleFault};

/// How samples of PCM are joined while tables are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Joined {
    frame_bytes: u32,
    block_bytes: u32,
    rate_hz: u32,
    timescale: u32,
}

impl Joined {
    /// The bytes of a sample, of which a table has this constant size. QuickTime has written 1 for
    /// a frame of any size.
    pub(super) fn bytes_of(&self, constant: u32) -> u32 {
        if constant == 1 { self.frame_bytes } else { constant }
    }

    /// Most samples of this size that are joined; at least 1.
    pub(super) fn samples_max(&self, bytes: u32) -> u32 {
        self.block_bytes.checked_div(bytes).unwrap_or(1).max(1)
    }

    /// True if samples of this size last exactly as long as their frames: there is no gap behind
    /// them. Those of a block last 20 ms.
    pub(super) fn is_gapless(&self, bytes: u32, duration: u32) -> bool {
        let units = u128::from(bytes) * u128::from(self.timescale);
        units == u128::from(duration) * u128::from(self.rate_hz) * u128::from(self.frame_bytes)
    }
}

/// Collects the frames of a track.
#[derive(Debug, Clone)]
pub(super) struct PcmBlocks {
    frame_bytes: u32,
    block_frames: u32,
    rate_hz: u32,
    timescale: u32,
    row: Option<Row>,
}

/// Frames that continue each other in the file and in time.
#[derive(Debug, Clone, Copy)]
struct Row {
    file_offset: u64,
    bytes: u64,
    /// Time of the first frame, and of the end of the last.
    decode: u64,
    end: u64,
    offset: i32,
}

impl PcmBlocks {
    pub(super) fn new(config: &PcmConfig, timescale: u32) -> PcmBlocks {
        PcmBlocks {
            frame_bytes: config.frame_bytes(),
            block_frames: config.block_frames(),
            rate_hz: config.rate_hz,
            timescale,
            row: None,
        }
    }

    /// Time of the end of the frames; `None` if there are none.
    pub(super) fn end(&self) -> Option<u64> {
        self.row.map(|row| row.end)
    }

    /// Time of so many bytes, in units of the time scale.
    fn units(&self, bytes: u64) -> u64 {
        let frames = u128::from(bytes / u64::from(self.frame_bytes));
        let rate_hz = u128::from(self.rate_hz);
        ((frames * u128::from(self.timescale) + rate_hz / 2) / rate_hz) as u64
    }

    /// True if the frames of a sample continue those that are held. A row whose time is not that of
    /// its frames ends: there is a gap behind it.
    fn is_continued_by(&self, sample: &MediaSample) -> bool {
        self.row.is_none_or(|row| {
            row.file_offset.saturating_add(row.bytes) == sample.file_offset
                && row.end == sample.decode
                && row.offset == sample.offset
                && (row.end - row.decode).abs_diff(self.units(row.bytes)) <= 1
        })
    }

    /// Adds the frames of a sample, which continue those that are held.
    fn add(&mut self, sample: &MediaSample) {
        let MediaSample { file_offset, bytes, decode, duration, offset, .. } = *sample;
        let end = decode.saturating_add(duration.into());
        let row = self.row.get_or_insert(Row { file_offset, bytes: 0, decode, end, offset });
        row.bytes += u64::from(bytes);
        row.end = end;
    }

    /// Removes a whole block, if as many frames remain behind it.
    fn next_whole(&mut self) -> Option<MediaSample> {
        let bytes = u64::from(self.block_frames) * u64::from(self.frame_bytes);
        let units = self.units(bytes);
        let row = self.row.as_mut().filter(|row| row.bytes >= 2 * bytes)?;
        let block = row.sample(bytes, units.min(row.end - row.decode));
        row.file_offset = row.file_offset.saturating_add(bytes);
        row.bytes -= bytes;
        row.decode += u64::from(block.duration);
        Some(block)
    }

    /// Removes all frames, as one block.
    fn last(&mut self) -> Option<MediaSample> {
        let row = self.row.take()?;
        Some(row.sample(row.bytes, row.end - row.decode))
    }
}

impl Row {
    /// Its first frames: so many bytes, which last so long.
    fn sample(&self, bytes: u64, units: u64) -> MediaSample {
        let Row { file_offset, decode, offset, .. } = *self;
        let duration = u32::try_from(units).unwrap_or(u32::MAX);
        let bytes = u32::try_from(bytes).expect("a sample is bounded, and so is a block");
        MediaSample { file_offset, bytes, decode, offset, duration, is_start: true }
    }
}

impl TrackState {
    /// Parameters of the PCM of this description; `None` for other codecs.
    pub(super) fn pcm(&self, description: u32) -> Option<PcmConfig> {
        let found = self.descriptions.get((description as usize).checked_sub(1)?)?;
        match found.codec {
            Ok(Codec::Pcm(config)) => Some(config),
            _ => None,
        }
    }

    /// How samples of this description are joined; `None` if they are not.
    pub(super) fn joined(&self, description: u32) -> Option<Joined> {
        let config = self.pcm(description)?;
        let (frame_bytes, rate_hz) = (config.frame_bytes(), config.rate_hz);
        let timescale = self.samples.as_ref().ok()?.so_far().timescale();
        let block_bytes = config.block_frames() * frame_bytes;
        Some(Joined { frame_bytes, block_bytes, rate_hz, timescale })
    }

    /// Leaves a track out whose table has an entry for each of very many frames.
    pub(super) fn leave_out_listed(&mut self, limit: u32) {
        self.samples = Err(format!(
            "PCM whose table lists the sizes of more than {limit} samples one by one; {REMUX}"
        ));
    }

    /// Adds the frames of a sample of PCM.
    pub(super) fn push_frames(&mut self, sample: MediaSample) -> Result<(), DemuxError> {
        let Some(blocks) = &mut self.blocks else { return self.push_sample(sample) };
        let (bytes, frame_bytes) = (sample.bytes, blocks.frame_bytes);
        if bytes > SAMPLE_BYTES_MAX {
            let fault = SampleFault::TooLarge { bytes, limit: SAMPLE_BYTES_MAX };
            return Err(self.refuse(self.len(), fault));
        }
        if !bytes.is_multiple_of(frame_bytes) {
            self.samples = Err(format!(
                "PCM with a sample of {bytes} bytes, where a frame of all channels has \
                 {frame_bytes}; {REMUX}"
            ));
            return Ok(());
        }
        if bytes == 0 {
            return Ok(());
        }
        if !blocks.is_continued_by(&sample) {
            self.end_block()?;
        }
        if let Some(blocks) = &mut self.blocks {
            blocks.add(&sample);
        }
        while let Some(block) = self.blocks.as_mut().and_then(PcmBlocks::next_whole) {
            self.push_sample(block)?;
        }
        Ok(())
    }

    /// Adds the frames that are held, as a block.
    pub(super) fn end_block(&mut self) -> Result<(), DemuxError> {
        match self.blocks.as_mut().and_then(PcmBlocks::last) {
            Some(block) => self.push_sample(block),
            None => Ok(()),
        }
    }
}
