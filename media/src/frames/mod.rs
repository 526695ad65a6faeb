// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of consecutive frames: MPEG audio (`.mp3`, `.mp2`) and AAC in ADTS (`.aac`).
//!
//! Such a file has no table: each frame's header gives the start of the next one. The demuxer steps
//! from header to header. Costs one read of ten bytes a frame, about half a microsecond from the
//! page cache: 70 ms an hour of sound. Tags (ID3, APE) and the zeros that pad them are skipped
//! before the frames, between them (joined files) and after them. If frames do not follow each
//! other, the next place with two consecutive headers is searched for, in at most [`SEARCH_BYTES`];
//! if there is none the sound ends, with a warning if more than that is left.
//!
//! Sources: ISO/IEC 11172-3 §2.4.1.3 and 13818-3 §2.4.1 (headers of MPEG audio); ISO/IEC 14496-3
//! §1.A.2.2 (ADTS); id3.org, "ID3v2.4.0 Structure" §3.1, §3.4 (footer), and "ID3v1";
//! wiki.hydrogenaudio.org, "APE Tags Header".
//! Does not correct encoder delay: players of a stream cannot remove it.

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

/// Bytes of a header that determine a frame's size.
pub(crate) const HEADER_BYTES: usize = 10;

/// A frame, by its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Bytes of all of it, header included.
    pub(crate) bytes: u32,
    /// Bytes at its start that are not sent: fewer than those of a header.
    pub(crate) skipped: u32,
    /// Samples a second.
    pub(crate) rate_hz: u32,
    /// Samples of the frame; 0 if it belongs to the frame before.
    pub(crate) duration: u32,
    pub(crate) codec: Codec,
}

/// Parses the header of a frame; `None` if no frame begins here.
pub(crate) type FrameParser = fn(&[u8; HEADER_BYTES]) -> Option<Frame>;

/// Returns bytes, samples and sample rate of the frame of MPEG audio that begins here; `None` if
/// there is none, or one of free format.
pub(crate) fn mpeg_audio_frame(bytes: &[u8]) -> Option<(u32, u32, u32)> {
    let frame = frame_at_start(bytes, mpeg_audio::parse)?;
    Some((frame.bytes, frame.duration, frame.rate_hz))
}

/// The frame that begins here, of which fewer bytes than a header may be there.
pub(crate) fn frame_at_start(bytes: &[u8], parse: FrameParser) -> Option<Frame> {
    let mut header = [0; HEADER_BYTES];
    let there = bytes.len().min(HEADER_BYTES);
    header[..there].copy_from_slice(&bytes[..there]);
    parse(&header)
}

/// Reads through a file of frames, some of them per call.
#[derive(Debug)]
pub struct FrameDemuxer {
    container: Container,
    parse: FrameParser,
    file_bytes: u64,
    at: u64,
    first: Option<Frame>,
    table: Option<SampleTableBuilder>,
    /// Bytes that belong to no frame, and the offset of the first ones.
    lost_bytes: u64,
    lost_at: Option<u64>,
    /// True while the bytes before the position are a tag, or the padding after one.
    is_behind_tag: bool,
    /// No frame was found after its position.
    is_cut: bool,
}

impl FrameDemuxer {
    /// Returns the demuxer of a file that begins with two frames of one kind, which may follow
    /// tags; `None` for another file. Costs a read of 32 bytes, and with tags some more.
    pub fn of(file: &(impl ReadAt + ?Sized), file_bytes: u64) -> Option<FrameDemuxer> {
        let kinds = [
            (Container::Adts, adts::parse as FrameParser),
            (Container::MpegAudio, mpeg_audio::parse),
        ];
        let begins = kinds.into_iter().filter_map(|(container, parse)| {
            let mut demuxer = FrameDemuxer {
                container,
                parse,
                file_bytes,
                at: 0,
                first: None,
                table: None,
                lost_bytes: 0,
                lost_at: None,
                is_behind_tag: false,
                is_cut: false,
            };
            for _ in 0..TAGS_MAX {
                if !demuxer.step_over_tag(file).ok()? {
                    break;
                }
            }
            let begins = match demuxer.is_followed(file, demuxer.at).ok()? {
                true => demuxer.at,
                // A tag may be longer than its size field: the search continues after it.
                false if demuxer.is_behind_tag => demuxer.search(file).ok()??,
                false => return None,
            };
            Some((begins, demuxer))
        });
        begins.min_by_key(|(begins, _)| *begins).map(|(_, demuxer)| demuxer)
    }

    /// The kind of file.
    pub fn container(&self) -> Container {
        self.container
    }

    /// Offset of the next frame.
    pub fn position(&self) -> u64 {
        self.at.min(self.file_bytes)
    }

    /// Reads about `samples` further frames; true if all of the file is read.
    ///
    /// # Errors
    /// The file is not of this kind, or cannot be read.
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
                _ if self.step_over_tag(file)? => {}
                _ => {
                    let Some(next) = self.search(file)? else {
                        self.is_cut = true;
                        return Ok(true);
                    };
                    self.lost_bytes += next - self.at;
                    self.lost_at.get_or_insert(self.at);
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
        self.is_behind_tag = false;
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

    /// Skips the tag at the position, or zeros after one; false if there is neither.
    fn step_over_tag(&mut self, file: &(impl ReadAt + ?Sized)) -> Result<bool, DemuxError> {
        let left = self.file_bytes - self.at.min(self.file_bytes);
        let mut header = [0; TAG_HEADER_BYTES];
        let header = &mut header[..left.min(TAG_HEADER_BYTES as u64) as usize];
        file.read_exact_at(header, self.at)?;
        if let Some(bytes) = tag_bytes(header).filter(|&bytes| bytes <= left) {
            self.at += bytes;
            self.is_behind_tag = true;
            return Ok(true);
        }
        if !self.is_behind_tag || header.first() != Some(&0) {
            return Ok(false);
        }
        let mut filling = vec![0; left.min(SEARCH_BYTES as u64) as usize];
        file.read_exact_at(&mut filling, self.at)?;
        self.at += filling.iter().take_while(|&&byte| byte == 0).count() as u64;
        Ok(true)
    }

    /// True if a frame begins at `offset` that another follows.
    fn is_followed(&self, file: &(impl ReadAt + ?Sized), offset: u64) -> Result<bool, DemuxError> {
        let frame = self.header(file, offset)?.and_then(|header| (self.parse)(&header));
        let Some(frame) = frame.filter(|frame| self.fits(frame)) else { return Ok(false) };
        let next = self.header(file, offset + u64::from(frame.bytes))?;
        Ok(next.and_then(|header| (self.parse)(&header)).is_some())
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

    /// Returns the offset of the next place after the present one at which a frame begins that
    /// another frame follows.
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
        let track = Track::new(1, first.codec, samples, identity);
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
        let lost = self.lost_at.map(|at| {
            format!(
                "{} bytes between the frames, the first at byte {at}, are no frames or those of \
                 another rate, and are not streamed; encode it anew (ffmpeg -i IN OUT.flac)",
                self.lost_bytes
            )
        });
        Ok(whole.with_warnings(lost.into_iter().chain(is_cut.then_some(warning)).collect()))
    }
}

/// Returns the sample rate from the header of a frame of MPEG audio; `None` if no frame begins
/// here.
pub(crate) fn mpeg_audio_rate_hz(frame: &[u8]) -> Option<u32> {
    mpeg_audio::parse(frame.first_chunk()?).map(|frame| frame.rate_hz)
}

/// Returns the bytes of the tag that begins with these; `None` if there is none. An APE tag has its
/// number of bytes in a header, or in a footer after its items.
fn tag_bytes(beginning: &[u8]) -> Option<u64> {
    match *beginning {
        [b'I', b'D', b'3', version, _, flags, a, b, c, d, ..] => {
            let is_size = version != 0xff && (a | b | c | d) & 0x80 == 0;
            let size = [a, b, c, d].into_iter().fold(0, |size, byte| size << 7 | u64::from(byte));
            let footer = if flags & 0x10 != 0 { 10 } else { 0 };
            is_size.then_some(10 + size + footer)
        }
        [b'T', b'A', b'G', ..] => Some(128),
        [b'A', b'P', b'E', b'T', b'A', b'G', b'E', b'X', _, _, _, _, a, b, c, d, ..] => {
            let is_header = beginning.get(23).is_some_and(|flags| flags & 0x20 != 0);
            let size = if is_header { u32::from_le_bytes([a, b, c, d]).into() } else { 0 };
            Some(TAG_HEADER_BYTES as u64 + size)
        }
        _ => None,
    }
}

/// Bytes of the longest header of a tag, that of APE.
const TAG_HEADER_BYTES: usize = 32;

/// Most tags, and stretches of zeros, after which the first frame is searched for.
const TAGS_MAX: usize = 64;

/// Bytes in which the next frame is searched for: some seconds of sound.
const SEARCH_BYTES: usize = 64 << 10;

#[cfg(test)]
pub(crate) mod tests;
