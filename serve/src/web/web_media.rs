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

use media::cmaf::{CopiedSegment, TARGET_S, TrackSegments, copy_samples, init_section};
use media::copy_elementary;
use media::tracks::MediaSample;

use super::address::{TrackList, WebItem};
use super::protection::{AssetKeys, SegmentCipher};
use super::stream_media::StreamMedia;
use crate::http::open_files::OpenFile;
use crate::library::track_asset::TrackAsset;

/// The content of the file in the form that players accept.
pub(super) enum WebMedia {
    Tracks(TrackMedia),
    Stream(StreamMedia),
}

/// A file with tracks.
pub(super) struct TrackMedia {
    pub(super) asset: Arc<TrackAsset>,
    pub(super) plan: TrackSegments,
    /// Initialization sections of the renditions that have one.
    pub(super) inits: HashMap<TrackList, Vec<u8>>,
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
            false => Ok(TrackMedia { asset: asset.clone(), plan, inits }),
        }
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
