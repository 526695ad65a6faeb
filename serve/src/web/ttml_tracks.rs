// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracks of TTML of a film, sent as fragments of MP4 at the film's borders.
//!
//! Times in documents are those of the file and cannot be moved without rewriting them. An MPD
//! states where the times of a representation begin; a playlist cannot, so HLS has them only where
//! the times of the film's fragments are those of the file, too. The TTML of HLS is IMSC:
//! players such as hls.js read no other.
//!
//! Costs a pass over the tables of such tracks when the plan of the film is made; a segment is
//! ranges of the file behind a few hundred bytes.
//!
//! Sources: ISO/IEC 14496-30 §5.3; ISO/IEC 23009-1 §5.3.9.2 (presentationTimeOffset); RFC 8216bis
//! §3.1.5 (IMSC), §4.4.6.2 (CODECS).
//! Does not encipher: subtitles are sent clear.

use std::collections::HashMap;
use std::fmt::Write;

use media::cmaf::{SegmentParts, TtmlSegments};
use media::text::{TextCoding, TextTrack, ttml_tracks};

use super::address::{SubtitleId, WebItem};
use super::media_playlist;
use super::mpd_elements::write_entries;
use super::text_segments::TextSegments;
use super::web_media::{TrackMedia, WebMedia};
use crate::http::open_files::OpenFile;

/// Tracks of TTML by their number in the file.
#[derive(Default)]
pub(super) struct TtmlTracks(HashMap<u32, TtmlSegments>);

impl TtmlTracks {
    /// Cuts the tracks of TTML among the text tracks of a film, and drops tracks without segments
    /// from those. May read and wait.
    pub(super) fn of(
        (film, file): (&str, &OpenFile),
        media: &WebMedia,
        text_tracks: &mut Vec<TextTrack>,
    ) -> TtmlTracks {
        let mut tracks = HashMap::new();
        let is_ttml = |track: &TextTrack| track.coding == TextCoding::Stpp;
        let WebMedia::Tracks(media) = media else { return TtmlTracks::default() };
        if !text_tracks.iter().any(is_ttml) {
            return TtmlTracks::default();
        }
        let found = ttml_tracks(file, file.entity().bytes);
        let found = found.unwrap_or_else(|error| {
            tracing::warn!("{film}: played without subtitles of TTML: {error}");
            Vec::new()
        });
        for (id, track) in found {
            if !text_tracks.iter().any(|one| one.id == id && is_ttml(one)) {
                continue;
            }
            let made = track.and_then(|track| {
                let made = TtmlSegments::of(track, &media.asset.presentation, &media.plan);
                made.map_err(|reason| reason.to_string())
            });
            match made {
                Ok(made) => drop(tracks.insert(id, made)),
                Err(reason) => tracing::warn!("{film}: subtitles s{id}: left out: {reason}"),
            }
        }
        text_tracks.retain(|track| !is_ttml(track) || tracks.contains_key(&track.id));
        TtmlTracks(tracks)
    }

    /// Returns the track of subtitles, if they are TTML.
    pub(super) fn get(&self, id: SubtitleId) -> Option<&TtmlSegments> {
        match id {
            SubtitleId::Track(number) => self.0.get(&number),
            SubtitleId::SideCar(_) => None,
        }
    }

    /// Returns the bytes and file ranges of an item; `None` where there is no such segment, or no
    /// playlist of these subtitles.
    pub(super) fn parts(&self, item: &WebItem, film: &TrackMedia) -> Option<SegmentParts> {
        let of_head = |head: Vec<u8>| SegmentParts { head, ranges: Vec::new() };
        match item {
            WebItem::SubtitlePlaylist(id) => {
                self.get(*id).filter(|track| has_playlist(track, film))?;
                let segments = TextSegments::of_tracks(&film.plan)?;
                Some(of_head(segments.playlist(*id, media_playlist::TextForm::Ttml)))
            }
            WebItem::SubtitleInit(id) => Some(of_head(self.get(*id)?.init_section())),
            WebItem::SubtitleFragment(id, number) => self.get(*id)?.parts(*number),
            _ => None,
        }
    }

    /// Returns the memory of all tracks.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.values().map(TtmlSegments::memory_bytes).sum()
    }
}

/// True where HLS has a track beside the fragments of a film.
pub(super) fn has_playlist(track: &TtmlSegments, film: &TrackMedia) -> bool {
    film.plan.origin_s() == 0 && track.origin() == 0 && track.is_imsc()
}

/// Writes the representation of a track, whose addresses begin with `below`.
pub(super) fn representation(
    text: &mut String,
    (below, id): (&str, SubtitleId),
    track: &TtmlSegments,
    number: usize,
) {
    let _ = write!(
        text,
        "      <Representation id=\"{number}\" bandwidth=\"{}\" codecs=\"{}\">\n        \
         <SegmentTemplate timescale=\"{}\" presentationTimeOffset=\"{}\" startNumber=\"0\" \
         initialization=\"{below}/{id}/init.mp4\" media=\"{below}/{id}/$Number$.m4s\">\n          \
         <SegmentTimeline>\n",
        track.bits_per_second().0,
        track.codecs(),
        track.timescale(),
        track.origin(),
    );
    write_entries(text, &track.timeline());
    text.push_str(
        "          </SegmentTimeline>\n        </SegmentTemplate>\n      </Representation>\n",
    );
}
