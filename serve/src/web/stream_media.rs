// SPDX-License-Identifier: MIT OR Apache-2.0
//! The segments and key frames of a transport stream that is sent as it is.
//!
//! Segments and key frames are ranges of the file, with tables in front where they lack them. Where
//! all have their tables in the file, playlists list ranges of it.
//!
//! Sources: `media::segments`, `media::StreamKeyFrames`.
//! Does not make playlists ([`super::media_playlist`]).

use std::ops::Range;
use std::sync::Arc;

use media::cmaf::{SegmentParts, TARGET_S};
use media::{Coding, SegmentPlan, StreamKeyFrames, entry_points};

use super::protection::SegmentCipher;
use super::shown_tracks::{ShownTracks, shown};
use crate::http::open_files::OpenFile;
use crate::library::asset::Asset;

/// Longest segment of a transport stream that is copied.
pub(super) const COPIED_BYTES_MAX: u64 = 256 << 20;

/// A transport stream.
pub(super) struct StreamMedia {
    pub(super) asset: Arc<Asset>,
    pub(super) shown: ShownTracks,
    /// Its segments; or the reason why its packets cannot be sent as they lie in the file.
    plan: Result<SegmentPlan, String>,
    /// True when every segment is a range of the file, without tables to be put in front.
    pub(super) is_ranges: bool,
    /// Its key frames; or the reason why there is no list of them.
    key_frames: Result<Box<StreamKeyFrames>, String>,
    /// Bytes of the file that are the tables of each key frame, where these can be ranges.
    pub(super) key_tables: Option<Vec<Range<u64>>>,
}

impl StreamMedia {
    /// Reads the tables of the stream of an asset whose content is in `file`. May wait.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn of(
        asset: &Arc<Asset>,
        file: &OpenFile,
        cipher: Option<SegmentCipher>,
    ) -> Result<StreamMedia, String> {
        let starts = entry_points(&asset.plan, file)
            .map_err(|error| format!("reading the tables of the stream: {error}"))?;
        let plan = SegmentPlan::cut_however_long(&asset.plan, starts.clone(), TARGET_S);
        let is_ranges = cipher.is_none()
            && plan.as_ref().is_ok_and(|plan| {
                plan.list().iter().all(|segment| plan.tables(segment).is_empty())
            });
        let plan = plan.map_err(|refusal| refusal.to_string());
        let plan = match cipher {
            None => plan,
            Some(SegmentCipher::Aes128) => plan.and_then(|plan| enciphered(plan, COPIED_BYTES_MAX)),
            Some(SegmentCipher::Cbcs) => Err("cbcs enciphers fragments of MP4".to_owned()),
        };
        let shown = shown(asset, file)
            .map_err(|error| format!("reading the beginning of the stream: {error}"))?;
        let key_frames = match &plan {
            Ok(plan) => StreamKeyFrames::of(&asset.plan, &starts, plan, file)
                .map_err(|error| format!("reading the key frames of the stream: {error}"))?
                .map(Box::new)
                .map_err(str::to_owned),
            Err(reason) => Err(reason.clone()),
        };
        let key_tables = key_frames.as_deref().ok().filter(|_| is_ranges);
        let key_tables = key_tables.and_then(StreamKeyFrames::file_tables);
        let asset = asset.clone();
        Ok(StreamMedia { asset, shown, plan, is_ranges, key_frames, key_tables })
    }

    /// Returns its segments, if it can be sent as it is.
    pub(super) fn segments(&self) -> Option<&SegmentPlan> {
        self.plan.as_ref().ok()
    }

    /// Returns its key frames.
    ///
    /// # Errors
    /// The reason why there is no list of them.
    pub(super) fn key_frames(&self) -> Result<&StreamKeyFrames, &str> {
        self.key_frames.as_deref().map_err(String::as_str)
    }

    /// Returns a segment; `None` past the last.
    pub(super) fn segment(&self, number: usize) -> Option<SegmentParts> {
        let plan = self.segments()?;
        let segment = plan.list().get(number)?;
        Some(SegmentParts { head: plan.tables(segment), ranges: vec![segment.file.clone()] })
    }

    /// Returns a key frame that is sent alone; `None` past the last.
    pub(super) fn key_frame(&self, number: usize) -> Option<SegmentParts> {
        let frames = self.key_frames().ok()?;
        let frame = frames.list().get(number)?;
        Some(SegmentParts { head: frames.tables(frame), ranges: vec![frame.file.clone()] })
    }

    /// Returns the memory it takes, with its playlists and the plan of the file that it holds.
    pub(super) fn memory_bytes(&self) -> usize {
        // A line of a playlist has about as many bytes as its segment takes here.
        let segments = self.segments().map_or(0, |plan| 2 * size_of_val(plan.list()));
        let key_frames = self.key_frames().map_or(0, |frames| 3 * frames.memory_bytes());
        let held = &self.asset.plan;
        segments + key_frames + size_of_val(held.clock()) + size_of_val(held.entries())
    }

    /// True where players accept the packets as they are: HLS carries HEVC only in fragments, and
    /// players use only the first of several sounds.
    pub(super) fn plays_as_it_is(&self) -> bool {
        let codings =
            || self.asset.plan.streams().iter().map(|one| Coding::of(one.stream_type, &[]));
        let sounds = codings().filter(|coding| coding.is_audio()).count();
        self.plan.is_ok() && sounds <= 1 && codings().all(|coding| coding != Coding::H265)
    }
}

/// The segments, if each has at most so many bytes, since it is held in memory to be enciphered.
fn enciphered(plan: SegmentPlan, bytes_max: u64) -> Result<SegmentPlan, String> {
    let bytes = |file: &Range<u64>| file.end - file.start;
    let is_too_long = |file: &&Range<u64>| bytes(file) > bytes_max;
    let Some(file) = plan.list().iter().map(|segment| &segment.file).find(is_too_long) else {
        return Ok(plan);
    };
    Err(format!(
        "a segment would have {} bytes, and {bytes_max} at most are enciphered; make key frames \
         come more often",
        bytes(file)
    ))
}

#[cfg(test)]
mod tests {
    use media::{RtpIdentity, Scanner};

    use super::*;
    use crate::library::byte_name_trials::CLIP;

    #[test]
    fn segments_that_are_too_long_to_be_enciphered_are_refused_by_name() {
        let mut scanner = Scanner::new();
        scanner.feed(CLIP);
        let identity = RtpIdentity { ssrc: 0, first_sequence: 0, first_timestamp: 0 };
        let (plan, starts) = scanner.finish_with_starts(CLIP.len() as u64, identity).unwrap();
        let plan = SegmentPlan::cut_however_long(&plan, starts, TARGET_S).unwrap();
        let sizes = plan.list().iter().map(|segment| segment.file.end - segment.file.start);
        let most = sizes.max().unwrap();
        assert_eq!(enciphered(plan.clone(), most), Ok(plan.clone()));
        let reason = enciphered(plan, most - 1).unwrap_err();
        assert!(reason.starts_with(&format!("a segment would have {most} bytes")), "{reason}");
    }
}
