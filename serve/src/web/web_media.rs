// SPDX-License-Identifier: MIT OR Apache-2.0
//! The media of a file in the form that players accept: tracks, cut into fragments of MP4, or a
//! transport stream that is sent as it is ([`super::stream_media`]).
//!
//! Costs, once a file: a look at its sample tables.
//!
//! Sources: `media::cmaf`.
//! Does not make playlists or keep segments.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use media::cmaf::{CopiedSegment, Rendition, TARGET_S, TrackSegments, copy_samples, init_section};
use media::tracks::MediaSample;
use media::{TICKS_PER_SECOND, copy_elementary};

use super::address::{TrackList, WebItem};
use super::live_playlist::LISTED_MAX;
use super::protection::{AssetKeys, SegmentCipher};
use super::stream_media::StreamMedia;
use crate::http::open_files::OpenFile;
use crate::library::track_asset::TrackAsset;

/// The content of the file in the form that players accept.
pub(super) enum WebMedia {
    Tracks(TrackMedia),
    Stream(StreamMedia),
}

/// Segments on either side of a time whose media may begin then.
const SEGMENTS_NEAR: usize = 3;

/// A file with tracks.
pub(super) struct TrackMedia {
    pub(super) asset: Arc<TrackAsset>,
    pub(super) plan: TrackSegments,
    /// Initialization sections of the renditions that have one.
    pub(super) inits: HashMap<TrackList, Vec<u8>>,
    /// Set for a recording, while it is written and until its players have learned its end.
    pub(super) growing: Option<GrowingList>,
}

/// Facts of the playlists of a recording.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrowingList {
    pub(super) target_s: u64,
    /// Wall time of its start.
    pub(super) began: SystemTime,
    /// True when no more follows.
    pub(super) is_complete: bool,
}

impl TrackMedia {
    /// Plans the segments of the tracks of `asset`, whose content is in `file`. May read and wait.
    ///
    /// # Errors
    /// The reason why no rendition has segments.
    pub(super) fn of(
        asset: &Arc<TrackAsset>,
        file: &OpenFile,
        keys: Option<&AssetKeys>,
    ) -> Result<TrackMedia, String> {
        let presentation = &asset.presentation;
        let plan = match asset.stream_plan() {
            Some(_) => TrackSegments::of_elementary(presentation, TARGET_S),
            None => TrackSegments::of(presentation, TARGET_S),
        };
        let plan = plan.map_err(|reason| reason.to_string())?;
        TrackMedia::with_plan(asset, plan, file, keys)
    }

    /// Plans the segments of a recording so far, likewise, continuing those of a shorter one.
    ///
    /// # Errors
    /// The reason why no rendition has segments.
    pub(super) fn growing(
        asset: &Arc<TrackAsset>,
        file: &OpenFile,
        (list, before): (GrowingList, Option<&TrackSegments>),
    ) -> Result<TrackMedia, String> {
        let cut = (list.target_s, list.is_complete);
        let plan = TrackSegments::of_growing(before, &asset.presentation, cut);
        let plan = plan.map_err(|reason| reason.to_string())?;
        let media = TrackMedia::with_plan(asset, plan, file, None)?;
        Ok(TrackMedia { growing: Some(list), ..media })
    }

    fn with_plan(
        asset: &Arc<TrackAsset>,
        plan: TrackSegments,
        file: &OpenFile,
        keys: Option<&AssetKeys>,
    ) -> Result<TrackMedia, String> {
        let presentation = &asset.presentation;
        let read = |track: usize, number: usize| {
            let mut bytes = Vec::new();
            copy(asset, track, number..number + 1, file, &mut bytes).map(|_| bytes)
        };
        let encryption = keys.filter(|keys| keys.cipher() == SegmentCipher::Cbcs);
        let encryption = encryption.map(AssetKeys::common_encryption);
        let (mut inits, mut reasons) = (HashMap::new(), Vec::new());
        for rendition in plan.renditions() {
            match init_section(presentation, rendition.tracks(), encryption.as_ref(), read) {
                Ok(section) => {
                    inits.insert(TrackList(rendition.tracks().to_vec()), section);
                }
                Err(reason) => reasons.push(reason.to_string()),
            }
        }
        // Sound alone is no film.
        let has_pictures = |index: usize| inits.contains_key(&TrackList(vec![index]));
        let is_lost = encryption.is_some() && !plan.pictures(presentation).is_none_or(has_pictures);
        match inits.is_empty() || is_lost {
            true => Err(reasons.join("; ")),
            false => Ok(TrackMedia { asset: asset.clone(), plan, inits, growing: None }),
        }
    }

    /// Returns the numbers of the segments of a rendition that playlists list.
    pub(super) fn listed(&self, rendition: &Rendition) -> Range<usize> {
        let segments = rendition.segments();
        if self.growing.is_none() {
            return 0..segments.len();
        }
        let settled = &segments[..self.plan.settled()];
        // A track may end before the others.
        let end = match settled.len() == segments.len() {
            true => settled.iter().rposition(|one| one.bytes > 0).map_or(0, |last| last + 1),
            false => settled.len(),
        };
        end.saturating_sub(LISTED_MAX)..end
    }

    /// True if playlists list a segment of a rendition that has media.
    pub(super) fn is_offered(&self, rendition: &Rendition) -> bool {
        let listed = &rendition.segments()[self.listed(rendition)];
        self.growing.is_none() || listed.iter().any(|one| one.bytes > 0)
    }

    /// True if play can start with each segment of a rendition; a recording may have others later.
    pub(super) fn is_independent(&self, rendition: &Rendition) -> bool {
        self.growing.is_none() && rendition.is_independent()
    }

    /// Returns the number of the segment of a track of a recording that starts at this time of its
    /// timeline.
    pub(super) fn segment_at(&self, track: usize, start: u64) -> Option<usize> {
        let rendition = self.plan.rendition(&[track])?;
        let presentation = &self.asset.presentation;
        let timescale = u64::from(presentation.tracks()[track].samples.timescale());
        let ticks =
            i64::try_from(u128::from(start) * u128::from(TICKS_PER_SECOND) / u128::from(timescale));
        let ticks = ticks.ok()? - i64::try_from(self.plan.origin_s() * TICKS_PER_SECOND).ok()?;
        let listed = self.listed(rendition);
        // Sound begins up to a frame before or behind the cut, reordered pictures later.
        let segments = &rendition.segments()[listed.clone()];
        let near = listed.start + segments.partition_point(|one| one.start <= ticks);
        let near = near.saturating_sub(SEGMENTS_NEAR).max(listed.start)
            ..(near + SEGMENTS_NEAR).min(listed.end);
        let times = rendition.recorded_timeline(presentation, &self.plan, near);
        times.iter().find(|one| one.start == start).map(|one| one.number)
    }

    /// Returns a segment whose samples are copied out of the file; `None` past the last.
    pub(super) fn copied(
        &self,
        item: &WebItem,
        file: &OpenFile,
        is_protected: bool,
    ) -> io::Result<Option<CopiedSegment>> {
        let (plan, presentation) = (&self.plan, &self.asset.presentation);
        let mut read = |track: usize, numbers: Range<usize>, media: &mut Vec<u8>| {
            copy(&self.asset, track, numbers, file, media)
        };
        match item {
            WebItem::Segment(list, number) => match plan.rendition(&list.0) {
                Some(one) => one.copied(presentation, plan, *number, is_protected, &mut read),
                None => Ok(None),
            },
            WebItem::KeyFrame(number) => {
                plan.copied_key_frame(presentation, *number, is_protected, &mut read)
            }
            _ => Ok(None),
        }
    }

    /// True where samples have to be extracted from the file's packets.
    pub(super) fn is_copied(&self) -> bool {
        self.asset.stream_plan().is_some()
    }
}

/// Appends samples of a track (index in the presentation) to `media`, and returns them with their
/// offsets there.
fn copy(
    asset: &TrackAsset,
    track: usize,
    numbers: Range<usize>,
    file: &OpenFile,
    media: &mut Vec<u8>,
) -> io::Result<Vec<MediaSample>> {
    let presentation = &asset.presentation;
    match asset.stream_plan() {
        Some(stream) => copy_elementary(stream, presentation, (track, numbers), file, media),
        None => copy_samples(&presentation.tracks()[track], numbers, file, media),
    }
}
