// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subtitles as text: cues from files of SubRip and WebVTT and from text tracks, for WebVTT.
//!
//! A [`CueList`] holds the cues of one language in the order of their times. [`parse`] creates it
//! from a side-car file, [`text_cues`] from a track of an MP4 or Matroska file ([`text_tracks`]
//! lists those). It is written whole, for MPEG-DASH, or as the segments of a playlist of HLS
//! ([`CueList::segment`]). Tracks of TTML have no cues: their documents are sent unchanged
//! ([`ttml_tracks`]).
//!
//! Costs: parsing costs about 10 ns a byte; a list has the bytes of its texts and 88 a cue. A
//! segment costs a step for each cue before its end.
//!
//! Sources: WebVTT (W3C Candidate Recommendation); RFC 8216 §3.5 (segments of WebVTT); the Encoding
//! standard (byte order marks, windows-1252); 3GPP TS 26.245 (`tx3g`); ISO/IEC 14496-30 (`wvtt`);
//! Matroska subtitle specifications.
//! Does not read subtitles that are pictures, ASS, the documents of TTML, or teletext.

mod subrip;
#[cfg(test)]
mod tests;
mod track;
mod track_samples;
mod tracks;
mod ttml;
mod webvtt;

use std::borrow::Cow;

use encoding_rs::{Encoding, WINDOWS_1252};

pub use crate::error::TextFault;
pub use track::{TextCoding, TextTrack, is_language};
pub use tracks::{NoCues, text_cues, text_tracks, ttml_tracks};
pub(crate) use ttml::TtmlEntry;
pub use ttml::{FoundTtmlTracks, TtmlTrack};
pub use webvtt::TimestampMap;

/// Bytes of a side-car file, and of all texts of a track: a film of three hours has 200 KB.
pub const TEXT_BYTES_MAX: usize = 4 << 20;

/// Cues of a list: a film has 2000.
pub const CUES_MAX: usize = 1 << 16;

/// Bytes of the text of a cue. A longer one is left out.
pub(crate) const CUE_BYTES_MAX: usize = 16 << 10;

/// Bytes of a cue's identifier, and of its settings; longer ones are left out.
const FIELD_BYTES_MAX: usize = 256;

/// Most bytes of all style sheets and regions, which every segment repeats; further ones are
/// dropped.
const BLOCKS_BYTES_MAX: usize = 16 << 10;

/// Latest time of a cue: 1000 hours.
const TIME_MS_MAX: u64 = 1000 * 3600 * 1000;

/// Format of a side-car file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextFormat {
    /// SubRip, `.srt`.
    SubRip,
    /// WebVTT, `.vtt`.
    WebVtt,
}

/// A text with the time of its display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextCue {
    /// Start, in milliseconds of the film.
    pub start_ms: u64,
    /// End; later than the start.
    pub end_ms: u64,
    /// Identifier of a WebVTT cue; mostly empty.
    pub identifier: String,
    /// Settings of a WebVTT cue, as written; mostly empty.
    pub settings: String,
    /// Text in WebVTT's syntax: lines, of which none is empty or has an arrow.
    pub text: String,
}

/// The cues of one language.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CueList {
    /// Style sheets and regions, each a block followed by an empty line.
    blocks: String,
    /// In the order of their starts.
    cues: Vec<TextCue>,
    left_out: usize,
    text_bytes: usize,
}

/// Parses a side-car file.
///
/// # Errors
/// The file is too large, is not text, or has no cue.
pub fn parse(bytes: &[u8], format: TextFormat) -> Result<CueList, TextFault> {
    if bytes.is_empty() {
        return Err(TextFault::Empty);
    }
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(TextFault::TooLarge {
            bytes: bytes.len() as u64,
            limit: TEXT_BYTES_MAX as u64,
        });
    }
    let text = decoded(bytes);
    if let Some(offset) = text.find('\0') {
        return Err(TextFault::Binary { offset: offset as u64 });
    }
    let mut list = CueList::default();
    match format {
        TextFormat::SubRip => subrip::read(&text, &mut list)?,
        TextFormat::WebVtt => webvtt::read(&text, &mut list)?,
    }
    match list.cues.is_empty() {
        true => Err(TextFault::NoCue),
        false => Ok(list.sorted()),
    }
}

/// Decodes the text of a file: by its byte order mark, else as UTF-8 if it is valid, else as
/// windows-1252, in which older files of western languages are encoded and in which every byte has
/// a meaning.
fn decoded(bytes: &[u8]) -> Cow<'_, str> {
    if let Some((encoding, mark_bytes)) = Encoding::for_bom(bytes) {
        return encoding.decode_without_bom_handling(&bytes[mark_bytes..]).0;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => WINDOWS_1252.decode_without_bom_handling(bytes).0,
    }
}

impl CueList {
    /// The cues, in the order of their starts.
    pub fn cues(&self) -> &[TextCue] {
        &self.cues
    }

    /// Number of cues that were left out: their times cannot be read, their text is too long, or
    /// they end before they begin.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Memory of the list.
    pub fn memory_bytes(&self) -> usize {
        let cues = self.cues.capacity() * size_of::<TextCue>();
        size_of::<CueList>() + self.blocks.capacity() + cues + self.text_bytes
    }

    /// Adds a cue whose text is in WebVTT's syntax; empty lines are dropped.
    ///
    /// # Errors
    /// There are too many cues, or too many bytes.
    fn push(&mut self, mut cue: TextCue) -> Result<(), TextFault> {
        let is_long = cue.text.len() > CUE_BYTES_MAX
            || cue.identifier.len() > FIELD_BYTES_MAX
            || cue.settings.len() > FIELD_BYTES_MAX;
        if is_long {
            self.left_out += 1;
            return Ok(());
        }
        cue.text = plain_lines(&cue.text);
        // As the last sample that ffmpeg writes of mov_text, which has no length.
        if cue.text.is_empty() {
            return Ok(());
        }
        if cue.end_ms <= cue.start_ms || cue.end_ms > TIME_MS_MAX {
            self.left_out += 1;
            return Ok(());
        }
        if self.cues.len() == CUES_MAX {
            return Err(TextFault::TooMany { limit: CUES_MAX });
        }
        let bytes = cue.text.len() + cue.identifier.len() + cue.settings.len();
        self.text_bytes += bytes;
        // Escapes lengthen a text up to five times.
        if self.text_bytes > 5 * TEXT_BYTES_MAX {
            let (bytes, limit) = (self.text_bytes as u64, 5 * TEXT_BYTES_MAX as u64);
            return Err(TextFault::TooLarge { bytes, limit });
        }
        self.cues.push(cue);
        Ok(())
    }

    /// Adds a style sheet or region, if it fits the limit.
    fn push_block(&mut self, block: &str) {
        if self.blocks.len() + block.len() <= BLOCKS_BYTES_MAX {
            self.blocks.push_str(block);
            self.blocks.push_str("\n\n");
        }
    }

    fn sorted(mut self) -> CueList {
        self.cues.sort_by_key(|cue| cue.start_ms);
        self.cues.shrink_to_fit();
        self
    }
}

/// Returns the text without its empty lines, and without arrows, which WebVTT parses as times.
fn plain_lines(text: &str) -> String {
    let lines = text.split(['\n', '\r']).filter(|line| !line.trim().is_empty());
    let mut plain = String::with_capacity(text.len());
    for line in lines {
        if !plain.is_empty() {
            plain.push('\n');
        }
        plain.push_str(line);
    }
    // An arrow in a WebVTT text is a sign of a broken file.
    if plain.contains("-->") { plain.replace("-->", "--&gt;") } else { plain }
}

/// Writes plain text in WebVTT's syntax.
fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            other => out.push(other),
        }
    }
}

/// Lines of a text, ended by LF, CR or both, without their ends.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\n', '\r']) else {
            rest = None;
            return Some(text);
        };
        let bytes = if text[end..].starts_with("\r\n") { 2 } else { 1 };
        rest = Some(&text[end + bytes..]);
        Some(&text[..end])
    })
}

/// Parses a line of times: start, end, and the rest of the line; `None` for another line.
fn timing(line: &str) -> Option<(u64, u64, &str)> {
    let (start, rest) = line.split_once("-->")?;
    let rest = rest.trim();
    let (end, settings) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    Some((time_ms(start.trim())?, time_ms(end)?, settings.trim()))
}

/// A time `[hours:]minutes:seconds[.milliseconds]`, with a point or comma.
fn time_ms(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once(['.', ',']).unwrap_or((text, ""));
    let digits = |text: &str| -> Option<u64> {
        let is_number = (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| text.parse().ok())?
    };
    let fraction = match fraction.get(..3.min(fraction.len()))? {
        "" => 0,
        text => digits(text)?,
    };
    let mut parts = whole.split(':').rev();
    let seconds = digits(parts.next()?)?;
    let minutes = digits(parts.next()?)?;
    let hours = parts.next().map_or(Some(0), digits)?;
    let is_time = parts.next().is_none() && seconds < 60 && minutes < 60;
    is_time.then(|| ((hours * 60 + minutes) * 60 + seconds) * 1000 + fraction)
}
