// SPDX-License-Identifier: MIT OR Apache-2.0
//! stream_media: the segments of a transport stream that is sent as it is.
//!
//! Sources: `media::segments`.
//! Does not make playlists ([`super::media_playlist`]).

use std::sync::Arc;

use media::cmaf::TARGET_S;
use media::{Coding, SegmentPlan, entry_points};

use super::live::shown;
use super::live_state::ShownTracks;
use super::protection::SegmentCipher;
use super::web_asset::OpenBytes;
use crate::http::open_files::OpenFile;
use crate::library::asset::Asset;

/// A transport stream.
pub(super) struct StreamMedia {
    pub(super) asset: Arc<Asset>,
    pub(super) shown: ShownTracks,
    /// Its segments; or the reason why its packets cannot be sent as they lie in the file.
    plan: Result<SegmentPlan, String>,
    /// True when every segment is a range of the file, without tables to be put in front.
    pub(super) is_ranges: bool,
}

impl StreamMedia {
    /// Reads the tables of the stream of an asset whose content `file` has. May wait.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn of(
        asset: &Arc<Asset>,
        file: &OpenFile,
        cipher: Option<SegmentCipher>,
    ) -> Result<StreamMedia, String> {
        let starts = entry_points(&asset.plan, &OpenBytes(file))
            .map_err(|error| format!("reading the tables of the stream: {error}"))?;
        let plan = SegmentPlan::cut_however_long(&asset.plan, starts, TARGET_S);
        let is_ranges = cipher.is_none()
            && plan.as_ref().is_ok_and(|plan| {
                plan.list().iter().all(|segment| plan.tables(segment).is_empty())
            });
        let plan = match cipher {
            Some(SegmentCipher::Cbcs) => Err("cbcs enciphers fragments of MP4".to_owned()),
            _ => plan.map_err(|refusal| refusal.to_string()),
        };
        let shown = shown(asset, file)
            .map_err(|error| format!("reading the beginning of the stream: {error}"))?;
        Ok(StreamMedia { asset: asset.clone(), shown, plan, is_ranges })
    }

    /// Returns its segments, if it can be sent as it is.
    pub(super) fn segments(&self) -> Option<&SegmentPlan> {
        self.plan.as_ref().ok()
    }

    /// True where players take the packets as they are: HLS has HEVC in fragments alone, and of
    /// several sounds players take the first.
    pub(super) fn plays_as_it_is(&self) -> bool {
        let codings =
            || self.asset.plan.streams().iter().map(|one| Coding::of(one.stream_type, &[]));
        let sounds = codings().filter(|coding| coding.is_audio()).count();
        self.plan.is_ok() && sounds <= 1 && codings().all(|coding| coding != Coding::H265)
    }
}
