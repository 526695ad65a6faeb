// SPDX-License-Identifier: MIT OR Apache-2.0
//! WAV files: RIFF/WAVE, and RF64 or BW64, which are larger than 4 GiB.
//!
//! The header is read chunk by chunk up to the sound, which is cut into blocks of about 20 ms
//! ([`PcmConfig`]); no byte of sound is read for that. Costs a read of 8 bytes a chunk, and 4 bytes
//! of memory a block: 0.7 MB an hour.
//!
//! Sizes that a writer could not fill in are interpreted. A `data` chunk of 0 or 0xffffffff bytes
//! extends to the end of the file (sound that was written to a pipe), and so does one that would
//! end after it (a truncated file).
//!
//! Sources: "Multimedia Programming Interface and Data Specifications 1.0" (RIFF, WAVE); Microsoft,
//! "Multiple Channel Audio Data and WAVE Files" (WAVEFORMATEXTENSIBLE); EBU Tech 3306 (RF64, ds64);
//! ITU-R BS.2088 (BW64).
//! Does not read the table of ds64: only the sound can be larger than 4 GiB. Does not read chunks
//! after the sound.

mod format;

use crate::plan::RtpIdentity;
use crate::read_at::ReadAt;
use crate::tracks::{
    Codec, Container, MediaSample, PcmConfig, Presentation, SAMPLES_MAX, SampleTable,
    SampleTableBuilder, Track,
};
use crate::{DemuxError, Refusal};

/// True for a file that begins as a WAV file does.
pub fn is_wav(beginning: &[u8]) -> bool {
    let Some([kind @ .., _, _, _, _, b'W', b'A', b'V', b'E']) = beginning.first_chunk::<12>()
    else {
        return false;
    };
    KINDS.contains(kind) || *kind == OTHER_ORDER
}

/// Reads a WAV file, some chunks or blocks a call.
#[derive(Debug)]
pub struct WavDemuxer {
    file_bytes: u64,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Header(Header),
    Blocks(Blocks),
}

/// The chunks before the sound, as far as they have been read.
#[derive(Debug, Default)]
struct Header {
    /// Offset of the next chunk; 0 before the file's kind has been read.
    at: u64,
    chunks: u32,
    /// Size of the sound by ds64.
    long_bytes: Option<u64>,
    config: Option<PcmConfig>,
}

/// The sound, as far as it has been cut into blocks.
#[derive(Debug)]
struct Blocks {
    config: PcmConfig,
    at: u64,
    frames: u64,
    /// Bytes that the file lacks of it.
    lacking_bytes: u64,
    table: SampleTableBuilder,
}

impl WavDemuxer {
    /// The demuxer of a file of `file_bytes`.
    pub fn new(file_bytes: u64) -> WavDemuxer {
        WavDemuxer { file_bytes, stage: Stage::Header(Header::default()) }
    }

    /// Offset of the next chunk or block.
    pub fn position(&self) -> u64 {
        match &self.stage {
            Stage::Header(header) => header.at.min(self.file_bytes),
            Stage::Blocks(blocks) => blocks.at.min(self.file_bytes),
        }
    }

    /// Reads about `samples` further chunks or blocks; true if all is read.
    ///
    /// # Errors
    /// The file cannot be streamed, or cannot be read.
    pub fn advance(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        samples: usize,
    ) -> Result<bool, DemuxError> {
        for _ in 0..samples.max(1) {
            match &mut self.stage {
                Stage::Header(header) => {
                    if let Some(blocks) = header.advance(file, self.file_bytes)? {
                        self.stage = Stage::Blocks(blocks);
                    }
                }
                Stage::Blocks(blocks) if blocks.frames == 0 => return Ok(true),
                Stage::Blocks(blocks) => blocks.cut(),
            }
        }
        Ok(false)
    }

    /// The presentation of the file; `identity` draws SSRC and first values of its stream.
    ///
    /// # Errors
    /// The file has no sound.
    pub fn finish(
        self,
        mut identity: impl FnMut() -> RtpIdentity,
    ) -> Result<Presentation, Refusal> {
        let found = match self.stage {
            Stage::Blocks(blocks) => blocks.finish(),
            Stage::Header(_) => None,
        };
        let (config, samples, lacking) =
            found.ok_or_else(|| broken(0, "its header is not read"))?;
        let identity = identity();
        let codec = Codec::Pcm(config);
        let track = Track::new(1, codec, samples, identity);
        let whole = Presentation::assemble(Container::Wav, self.file_bytes, vec![track], vec![])?;
        let cut_off = (lacking > 0).then(|| {
            format!(
                "cut off: by its own size {lacking} bytes are missing at its end; the sound before \
                 is streamed; copy it again"
            )
        });
        Ok(whole.with_warnings(cut_off.into_iter().collect()))
    }
}

impl Header {
    /// Reads the next chunk; returns the blocks when it is the sound.
    fn advance(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        file_bytes: u64,
    ) -> Result<Option<Blocks>, DemuxError> {
        if self.at == 0 {
            self.read_kind(file, file_bytes)?;
            return Ok(None);
        }
        let at = self.at;
        if file_bytes - at < CHUNK_HEADER_BYTES {
            let what = format!("the file ends without sound (no data chunk in {})", self.chunks);
            return Err(broken(at, what).into());
        }
        let mut head = [0; CHUNK_HEADER_BYTES as usize];
        file.read_exact_at(&mut head, at)?;
        let [id @ .., a, b, c, d] = head;
        let (body, bytes) = (at + CHUNK_HEADER_BYTES, u32::from_le_bytes([a, b, c, d]));
        if id == *b"data" {
            return self.sound(body, bytes, file_bytes).map(Some).map_err(DemuxError::from);
        }
        self.chunks += 1;
        if self.chunks > CHUNKS_MAX {
            let what = format!("more than {CHUNKS_MAX} chunks before the sound");
            return Err(broken(at, what).into());
        }
        if u64::from(bytes) > file_bytes - body {
            let id = id.escape_ascii();
            let what =
                format!("chunk \"{id}\" of {bytes} bytes ends behind the file, without sound");
            return Err(broken(at, what).into());
        }
        let mut fields = [0; format::FIELDS_BYTES];
        let held = fields.len().min(bytes as usize);
        match &id {
            b"fmt " if self.config.is_none() => {
                file.read_exact_at(&mut fields[..held], body)?;
                self.config = Some(format::parse(&fields[..held], at)?);
            }
            b"ds64" if self.long_bytes.is_none() => {
                file.read_exact_at(&mut fields[..held], body)?;
                // Size of the file, then that of the sound.
                let size = fields[..held].get(8..16).and_then(|size| size.first_chunk());
                let cut_off = || broken(at, format!("its ds64 chunk has {bytes} bytes, not 28"));
                self.long_bytes = Some(u64::from_le_bytes(*size.ok_or_else(cut_off)?));
            }
            _ => {}
        }
        // Chunks begin at even offsets.
        self.at = (body + u64::from(bytes) + u64::from(bytes & 1)).min(file_bytes);
        Ok(None)
    }

    fn read_kind(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        file_bytes: u64,
    ) -> Result<(), DemuxError> {
        let mut kind = [0; KIND_BYTES];
        if file_bytes < KIND_BYTES as u64 {
            return Err(broken(0, format!("a file of {file_bytes} bytes")).into());
        }
        file.read_exact_at(&mut kind, 0)?;
        if !is_wav(&kind) {
            return Err(broken(0, "it does not begin as a WAV file").into());
        }
        if kind.starts_with(&OTHER_ORDER) {
            return Err(Refusal::WavSound {
                found: "big-endian chunks".to_owned(),
                reason: "RIFX is not read",
                cure: "write it anew (ffmpeg -i IN -c:a pcm_s16le OUT.wav)",
            }
            .into());
        }
        self.at = KIND_BYTES as u64;
        Ok(())
    }

    /// The blocks of the sound, which begins at `at`, and has `bytes` by its chunk.
    fn sound(&self, at: u64, bytes: u32, file_bytes: u64) -> Result<Blocks, Refusal> {
        let chunk_at = at - CHUNK_HEADER_BYTES;
        let Some(config) = self.config else {
            return Err(broken(chunk_at, "no fmt chunk before the sound"));
        };
        let there = file_bytes - at;
        let claimed = match (bytes, self.long_bytes) {
            (u32::MAX, Some(long_bytes)) => long_bytes,
            (bytes, _) => u64::from(bytes),
        };
        let is_unknown = SIZES_UNKNOWN.contains(&claimed);
        let bytes = if is_unknown { there } else { claimed.min(there) };
        let frames = bytes / u64::from(config.frame_bytes());
        if frames == 0 {
            let frame = config.frame_bytes();
            let what = format!("its sound has {bytes} bytes, and {frame} are a frame");
            return Err(broken(chunk_at, what));
        }
        if frames.div_ceil(config.block_frames().into()) > SAMPLES_MAX.into() {
            return Err(Refusal::WavSound {
                found: format!("{} h", frames / u64::from(config.rate_hz) / 3600),
                reason: "more than 16777216 blocks of 20 ms",
                cure: "cut it (ffmpeg -i IN -c copy -f segment -segment_time 86400 OUT%d.wav)",
            });
        }
        let table = SampleTableBuilder::new(config.rate_hz, file_bytes);
        let lacking_bytes = if is_unknown { 0 } else { claimed.saturating_sub(there) };
        Ok(Blocks { config, at, frames, lacking_bytes, table })
    }
}

impl Blocks {
    /// Adds the next block; there are frames left.
    fn cut(&mut self) {
        let frames = self.frames.min(self.config.block_frames().into()) as u32;
        let bytes = frames * self.config.frame_bytes();
        let sample = MediaSample {
            file_offset: self.at,
            bytes,
            decode: self.table.end(),
            offset: 0,
            duration: frames,
            is_start: true,
        };
        let pushed = self.table.push(sample);
        assert!(pushed.is_ok(), "the blocks lie in the file, and are bounded: {pushed:?}");
        self.at += u64::from(bytes);
        self.frames -= u64::from(frames);
    }

    /// The sound, and the bytes that the file lacks of it.
    fn finish(self) -> Option<(PcmConfig, SampleTable, u64)> {
        Some((self.config, self.table.finish()?, self.lacking_bytes))
    }
}

fn broken(offset: u64, what: impl Into<String>) -> Refusal {
    Refusal::BrokenWav { offset, what: what.into() }
}

const KINDS: [[u8; 4]; 3] = [*b"RIFF", *b"RF64", *b"BW64"];
/// The kind whose numbers are big-endian.
const OTHER_ORDER: [u8; 4] = *b"RIFX";
const KIND_BYTES: usize = 12;
const CHUNK_HEADER_BYTES: u64 = 8;

/// Sizes that writers to a pipe give a sound of unknown length: ffmpeg, SoX and others.
const SIZES_UNKNOWN: [u64; 4] = [0, u32::MAX as u64, 0x7fff_f000, i32::MAX as u64];

/// Chunks before the sound: each costs a read.
const CHUNKS_MAX: u32 = 1024;

#[cfg(test)]
mod tests;
