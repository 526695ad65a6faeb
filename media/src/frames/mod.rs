// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of frames one behind the other: MPEG audio (`.mp3`, `.mp2`) and AAC in ADTS (`.aac`).
//!
//! Such a file has no table: each frame's header tells where the next one begins. The demuxer goes
//! from header to header. Costs one read of ten bytes a frame, about half a microsecond from the
//! page cache: 70 ms an hour of sound. Tags (ID3, APE) are stepped over. Where frames do not follow
//! each other the next place with two headers in a row is looked for, in at most [`SEARCH_BYTES`];
//! where there is none the sound ends, with a warning if more than that is left.
//!
//! Sources: ISO/IEC 11172-3 §2.4.1.3 and 13818-3 §2.4.1 (headers of MPEG audio); ISO/IEC 14496-3
//! §1.A.2.2 (ADTS); id3.org, "ID3v2.4.0 Structure" §3.1.
//! Does not correct for encoder delay: players of a stream cannot take it off.

mod adts;
mod dolby;
mod mpeg_audio;

pub(crate) use adts::parse as parse_adts;
pub(crate) use dolby::parse as parse_dolby;
pub(crate) use mpeg_audio::parse as parse_mpeg_audio;

use crate::plan::RtpIdentity;
use crate::read_at::ReadAt;
use crate::tracks::{
    Codec, Container, MediaSample, Presentation, SampleFault, SampleTableBuilder, Track,
};
use crate::{DemuxError, Refusal};

/// Bytes of a header that tell a frame's size.
pub(crate) const HEADER_BYTES: usize = 10;

/// A frame, by its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Bytes of all of it, header included.
    pub(crate) bytes: u32,
    /// Bytes of its beginning that are not sent: fewer than those of a header.
    pub(crate) skipped: u32,
    /// Samples a second.
    pub(crate) rate_hz: u32,
    /// Samples that it stands for; 0 where it belongs to the frame before.
    pub(crate) duration: u32,
    pub(crate) codec: Codec,
}

/// Bytes, samples and samples a second of the frame of MPEG audio that begins here; none where none
/// does, or one of free format.
pub(crate) fn mpeg_audio_frame(bytes: &[u8]) -> Option<(u32, u32, u32)> {
    let mut header = [0; HEADER_BYTES];
    let there = bytes.len().min(HEADER_BYTES);
    header[..there].copy_from_slice(&bytes[..there]);
    let frame = mpeg_audio::parse(&header)?;
    Some((frame.bytes, frame.duration, frame.rate_hz))
}

/// Goes through a file of frames, some a call.
#[derive(Debug)]
pub struct FrameDemuxer {
    container: Container,
    parse: fn(&[u8; HEADER_BYTES]) -> Option<Frame>,
    file_bytes: u64,
    at: u64,
    first: Option<Frame>,
    table: Option<SampleTableBuilder>,
    /// Bytes that belong to no frame.
    lost_bytes: u64,
    /// No frame was found behind its position, where none of a tag's bytes are.
    is_cut: bool,
}

impl FrameDemuxer {
    /// The demuxer of a file that begins so, at least [`FrameDemuxer::BEGINNING_BYTES`] if it is so
    /// long; none where it does not begin with a tag or two frames.
    pub fn of(beginning: &[u8], file_bytes: u64) -> Option<FrameDemuxer> {
        let first = tag_bytes(beginning);
        let kinds = [
            (Container::Adts, adts::parse as fn(&[u8; HEADER_BYTES]) -> Option<Frame>),
            (Container::MpegAudio, mpeg_audio::parse),
        ];
        let header = |at: usize| beginning.get(at..)?.first_chunk::<HEADER_BYTES>();
        // Behind a tag with a picture the frames are out of sight: the name of it is enough.
        let is_far = first > 0 && header(first as usize).is_none();
        let found = kinds.into_iter().find(|(_, parse)| {
            let frame = header(first as usize).and_then(parse);
            let second = frame.and_then(|frame| header(first as usize + frame.bytes as usize));
            second.and_then(parse).is_some()
        });
        let (container, parse) = found.or(is_far.then_some(kinds[1]))?;
        Some(FrameDemuxer {
            container,
            parse,
            file_bytes,
            at: first,
            first: None,
            table: None,
            lost_bytes: 0,
            is_cut: false,
        })
    }

    /// The kind of file.
    pub fn container(&self) -> Container {
        self.container
    }

    /// Bytes that [`FrameDemuxer::of`] wants to see: a tag's header, or two frames of the longest.
    pub const BEGINNING_BYTES: usize = 4096;

    /// Offset of the next frame.
    pub fn position(&self) -> u64 {
        self.at.min(self.file_bytes)
    }

    /// Goes on for about `samples` frames; true when all of the file is read.
    ///
    /// # Errors
    /// The file is no such file, or cannot be read.
    pub fn advance(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        samples: usize,
    ) -> Result<bool, DemuxError> {
        for _ in 0..samples.max(1) {
            let Some(header) = self.header(file, self.at)? else { return Ok(true) };
            let end = |frame: &Frame| self.at + u64::from(frame.bytes);
            match (self.parse)(&header).filter(|frame| end(frame) <= self.file_bytes) {
                Some(frame) if self.fits(&frame) => self.take(file, frame)?,
                _ if header.starts_with(b"TAG") => return Ok(true),
                _ => {
                    let Some(next) = self.search(file)? else {
                        self.is_cut = !header.starts_with(b"APETAGEX");
                        return Ok(true);
                    };
                    self.lost_bytes += next - self.at;
                    self.at = next;
                }
            }
        }
        Ok(false)
    }

    /// True for a frame that continues the stream: of another rate it is another stream.
    fn fits(&self, frame: &Frame) -> bool {
        self.first
            .as_ref()
            .is_none_or(|first| (first.rate_hz, &first.codec) == (frame.rate_hz, &frame.codec))
    }

    fn take(&mut self, file: &(impl ReadAt + ?Sized), frame: Frame) -> Result<(), DemuxError> {
        let at = self.at;
        self.at += u64::from(frame.bytes);
        let is_first = self.first.is_none();
        if is_first && self.container == Container::MpegAudio && mpeg_audio::is_info(file, at)? {
            // A table of contents in a frame of silence.
            return Ok(());
        }
        let table = self
            .table
            .get_or_insert_with(|| SampleTableBuilder::new(frame.rate_hz, self.file_bytes));
        let sample = MediaSample {
            file_offset: at + u64::from(frame.skipped),
            bytes: frame.bytes - frame.skipped,
            decode: table.end(),
            offset: 0,
            duration: frame.duration,
            is_start: true,
        };
        let container = self.container.name();
        table.push(sample).map_err(|fault: SampleFault| {
            DemuxError::from(Refusal::Sample { container, track: 1, sample: table.len(), fault })
        })?;
        self.first.get_or_insert(frame);
        Ok(())
    }

    /// The header at `offset`; none at the end of the file.
    fn header(
        &self,
        file: &(impl ReadAt + ?Sized),
        offset: u64,
    ) -> Result<Option<[u8; HEADER_BYTES]>, DemuxError> {
        if offset + HEADER_BYTES as u64 > self.file_bytes {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, offset)?;
        Ok(Some(header))
    }

    /// Offset of the next place behind the present one at which a frame begins that another
    /// follows.
    fn search(&self, file: &(impl ReadAt + ?Sized)) -> Result<Option<u64>, DemuxError> {
        let count = (self.file_bytes - self.at).min(SEARCH_BYTES as u64) as usize;
        let mut bytes = vec![0; count];
        file.read_exact_at(&mut bytes, self.at)?;
        for (index, header) in bytes.windows(HEADER_BYTES).enumerate().skip(1) {
            let header = header.first_chunk().expect("a window is as long");
            let Some(frame) = (self.parse)(header).filter(|frame| self.fits(frame)) else {
                continue;
            };
            let next = self.at + index as u64 + u64::from(frame.bytes);
            if let Some(header) = self.header(file, next)?
                && (self.parse)(&header).is_some()
            {
                return Ok(Some(self.at + index as u64));
            }
        }
        Ok(None)
    }

    /// The presentation of the file; `identity` draws SSRC and first values of its stream.
    ///
    /// # Errors
    /// The file has no frames, or more bytes outside of them than in them.
    pub fn finish(
        self,
        mut identity: impl FnMut() -> RtpIdentity,
    ) -> Result<Presentation, Refusal> {
        let container = self.container.name();
        let broken = |what: &str| Refusal::Broken { container, offset: 0, what: what.to_owned() };
        let samples = self.table.and_then(SampleTableBuilder::finish);
        let (Some(samples), Some(first)) = (samples, self.first) else {
            return Err(broken("no frames"));
        };
        if self.lost_bytes > samples.bytes() {
            return Err(broken("more bytes between the frames than in them"));
        }
        let identity = identity();
        let track =
            Track { id: 1, codec: first.codec, language: None, samples, shift: 0, identity };
        let whole =
            Presentation::assemble(self.container, self.file_bytes, vec![track], Vec::new())?;
        let rest = self.file_bytes.saturating_sub(self.at);
        let warning = format!(
            "sound ends at byte {}: behind it {SEARCH_BYTES} bytes have no frame, and the last \
             {rest} bytes are not streamed; make a file of all its frames (ffmpeg -i IN -c copy \
             OUT.mka)",
            self.at
        );
        let is_cut = self.is_cut && rest > SEARCH_BYTES as u64;
        Ok(whole.with_warnings(is_cut.then_some(warning).into_iter().collect()))
    }
}

/// Samples a second by the header of a frame of MPEG audio; none where it begins with none.
pub(crate) fn mpeg_audio_rate_hz(frame: &[u8]) -> Option<u32> {
    mpeg_audio::parse(frame.first_chunk()?).map(|frame| frame.rate_hz)
}

/// Bytes of an ID3v2 tag at the beginning of a file; 0 without one.
fn tag_bytes(beginning: &[u8]) -> u64 {
    let Some(&[b'I', b'D', b'3', version, _, flags, a, b, c, d]) = beginning.first_chunk::<10>()
    else {
        return 0;
    };
    if version == 0xff || (a | b | c | d) & 0x80 != 0 {
        return 0;
    }
    let size = [a, b, c, d].into_iter().fold(0, |size, byte| size << 7 | u64::from(byte));
    let footer = if flags & 0x10 != 0 { 10 } else { 0 };
    10 + size + footer
}

/// Bytes in which the next frame is looked for: some seconds of sound.
const SEARCH_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests;
