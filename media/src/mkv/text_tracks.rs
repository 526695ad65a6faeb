// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks of text in a Matroska file: their list, and the blocks of one.
//!
//! The list costs the reads up to the tracks, which precede the media. The blocks cost a look at
//! the header of each block of the file, as planning the file does.
//!
//! Sources: RFC 9559 §5.1.4 (Tracks), §5.1.3.5.3 (BlockDuration); Matroska subtitle
//! specifications.
//! Does not read texts, or use the index of the file (Cues).

use super::tracks::{Entry, TRACK_ENTRY};
use super::{MkvDemuxer, ebml};
use crate::text::{CUES_MAX, TextCoding, TextTrack};
use crate::tracks::TRACKS_READ_MAX;
use crate::{DemuxError, ReadAt};

/// Blocks examined at a time.
const STEP_BLOCKS: usize = 1 << 16;

/// Milliseconds that a text without a duration is shown.
const SHOWN_MS: u64 = 5000;

/// Bytes of a track's language.
const LANGUAGE_BYTES_MAX: usize = 128;

/// Place and times of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextBlock {
    pub(crate) file_offset: u64,
    pub(crate) bytes: u32,
    pub(crate) start_ms: u64,
    pub(crate) end_ms: u64,
}

/// The tracks of text, and the blocks of one of them.
#[derive(Debug, Default)]
pub(super) struct MkvText {
    /// Number of the track whose blocks are collected; `None` if the tracks are listed.
    wanted: Option<u32>,
    tracks: Vec<TextTrack>,
    blocks: Vec<TextBlock>,
}

/// The tracks of text.
pub(crate) fn text_tracks(
    file: &(impl ReadAt + ?Sized),
    file_bytes: u64,
) -> Result<Vec<TextTrack>, DemuxError> {
    let mut demuxer = MkvDemuxer::new(file_bytes);
    demuxer.text = Some(MkvText::default());
    while !demuxer.has_tracks && !demuxer.advance(file, 1)? {}
    Ok(demuxer.text.map_or_else(Vec::new, |text| text.tracks))
}

/// Returns the blocks of a text track, with its coding; `None` if the file has no such track.
pub(crate) fn text_blocks(
    file: &(impl ReadAt + ?Sized),
    file_bytes: u64,
    id: u32,
) -> Result<Option<(TextCoding, Vec<TextBlock>)>, DemuxError> {
    let mut demuxer = MkvDemuxer::new(file_bytes);
    demuxer.text = Some(MkvText { wanted: Some(id), ..MkvText::default() });
    while !demuxer.advance(file, STEP_BLOCKS)? {}
    let text = demuxer.text.unwrap_or_default();
    let track = text.tracks.iter().find(|track| track.id == id);
    Ok(track.map(|track| (track.coding, text.blocks)))
}

impl MkvText {
    /// Reads the text tracks from the content of a Tracks element.
    pub(super) fn read_tracks(&mut self, content: &[u8]) {
        let entries = ebml::children(content).filter(|(id, _)| *id == TRACK_ENTRY);
        for (_, entry) in entries.take(TRACKS_READ_MAX) {
            let entry = Entry::read(entry);
            let coding = match entry.codec_id {
                "S_TEXT/UTF8" | "S_TEXT/ASCII" => TextCoding::Utf8,
                "S_TEXT/WEBVTT" => TextCoding::WebVtt,
                "D_WEBVTT/SUBTITLES" | "D_WEBVTT/CAPTIONS" => TextCoding::WebmVtt,
                _ => continue,
            };
            let Ok(id @ 1..) = u32::try_from(entry.number) else { continue };
            if entry.is_encoded {
                continue;
            }
            let letters =
                |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').into();
            let language = match entry.language_tag {
                [] => entry.language.map(|letters| letters.to_vec()),
                tag => Some(tag[..tag.len().min(LANGUAGE_BYTES_MAX)].to_vec()),
            };
            let language = language.map(|tag| letters(&tag));
            let mut track = TextTrack::new(id, coding, language);
            track.name = entry.label.name;
            track.is_forced = entry.is_forced;
            self.tracks.push(track);
        }
    }

    /// True for the number of the track whose blocks are collected.
    pub(super) fn is_of(&self, track: u64) -> bool {
        self.wanted.is_some_and(|wanted| u64::from(wanted) == track)
    }

    /// Adds the frames of a block, shown from a time on, in units of `scale_ns`; false if there are
    /// too many.
    pub(super) fn push(
        &mut self,
        frames: &[(u64, u32)],
        (time, duration): (i64, Option<u64>),
        scale_ns: u64,
    ) -> bool {
        let ms = |units: i128| u64::try_from(units * i128::from(scale_ns) / 1_000_000).ok();
        let start_ms = ms(time.into()).unwrap_or(0);
        let end_ms = match duration {
            Some(duration) => ms(i128::from(time) + i128::from(duration)).unwrap_or(0),
            None => start_ms.saturating_add(SHOWN_MS),
        };
        let blocks = frames.iter();
        self.blocks.extend(blocks.map(|&(file_offset, bytes)| TextBlock {
            file_offset,
            bytes,
            start_ms,
            end_ms,
        }));
        self.blocks.len() <= CUES_MAX
    }
}
