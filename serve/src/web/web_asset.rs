// SPDX-License-Identifier: MIT OR Apache-2.0
//! The segment plan of a file, and the playlists made of it.
//!
//! A plan is made at the first request for one of a file's addresses, on a thread that may read:
//! for a file with tracks from its sample tables, for a transport stream from some packets at each
//! place where play can start. Playlists are made once and kept.
//!
//! Costs: a plan of two hours takes 10 ms; 100 KB of memory, and its playlists another 60 KB each.
//!
//! Sources: `media::cmaf`, `media::segments`.
//! Does not keep segments.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use media::cmaf::{CopiedSegment, SegmentParts};
use media::text::{CueList, TextTrack, text_tracks};
use media::{Coding, ReadAt};
use parking_lot::Mutex;
use wire::http::Entity;

use super::address::{TrackList, VERSION, WebItem};
use super::master::Listed;
use super::media_playlist::{self, TextForm};
use super::protection::{AssetKeys, SegmentCipher};
use super::segment_copies::Pieces;
use super::stream_media::{COPIED_BYTES_MAX, StreamMedia};
use super::subtitles::ListedSubtitle;
use super::text_segments::TextSegments;
use super::ts_form::TsForm;
use super::ttml_tracks::TtmlTracks;
use super::web_media::{GrowingList, TrackMedia, WebMedia};
use super::{manifest, master};
use crate::http::open_files::OpenFile;
use crate::library::asset::LibraryAsset;
use crate::library::track_asset::TrackAsset;
use crate::segment_key::SAMPLE_KEY;

/// Number of the key of the segments of a transport stream as it lies, before that of its key
/// frames; those of the renditions of its elementary streams begin at 0.
const STREAM_KEY: u64 = 1 << 16;

/// A file as HLS and DASH.
pub(crate) struct WebAsset {
    /// Number that is unique among all plans of this process.
    pub(super) number: u64,
    /// Identity of the content in addresses.
    pub(super) identity: String,
    pub(super) media: WebMedia,
    /// Tracks of text of the file, beside its tracks of media.
    pub(super) text_tracks: Vec<TextTrack>,
    /// Tracks of TTML.
    pub(super) ttml: TtmlTracks,
    /// Set where segments are enciphered.
    pub(super) keys: Option<AssetKeys>,
    playlists: Playlists,
}

/// Texts by item, made at their first request.
#[derive(Default)]
struct Playlists {
    /// By the form of a transport stream.
    masters: [NewestText; 2],
    manifest: NewestText,
    key: OnceLock<Option<Bytes>>,
    streams: [OnceLock<Option<Bytes>>; 2],
    stream_keys: [OnceLock<Option<Bytes>>; 2],
    tracks: HashMap<TrackList, OnceLock<Bytes>>,
}

/// The text with the subtitles of its last request.
#[derive(Default)]
struct NewestText(Mutex<Option<(Vec<ListedSubtitle>, MadeText)>>);

/// A text; `None` where the file has none of its kind.
type MadeText = Option<Bytes>;

impl NewestText {
    fn get(
        &self,
        subtitles: &[ListedSubtitle],
        make: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Option<Bytes> {
        let mut newest = self.0.lock();
        match &*newest {
            Some((made_with, text)) if made_with == subtitles => text.clone(),
            _ => {
                let text = make().map(Bytes::from);
                *newest = Some((subtitles.to_vec(), text.clone()));
                text
            }
        }
    }
}

impl WebAsset {
    /// Time of the file that is the film's start, in ticks; zero of a transport stream, which has
    /// no tracks of text.
    pub(super) fn file_origin_ticks(&self) -> u64 {
        match &self.media {
            WebMedia::Tracks(media) => media.asset.presentation.file_origin_ticks(),
            WebMedia::Stream(_) => 0,
        }
    }

    /// Makes the plan of an asset with this identity whose content is in `file`. May read and wait.
    ///
    /// # Errors
    /// The reason why it has no segments.
    pub(super) fn of(
        asset: &LibraryAsset,
        file: &OpenFile,
        identity: String,
        keys: Option<AssetKeys>,
    ) -> Result<WebAsset, String> {
        let media = match asset {
            LibraryAsset::Tracks(asset) => {
                WebMedia::Tracks(TrackMedia::of(asset, file, keys.as_ref())?)
            }
            LibraryAsset::Stream(asset) => {
                let cipher = keys.as_ref().map(AssetKeys::cipher);
                WebMedia::Stream(StreamMedia::of(asset, file, cipher)?)
            }
        };
        let mut text_tracks = listed_text(asset, file);
        let ttml = TtmlTracks::of((asset.name(), file), &media, &mut text_tracks);
        Ok(WebAsset { text_tracks, ttml, keys, ..WebAsset::with_media(media, identity) })
    }

    /// Makes the plan of a recording so far, likewise, continuing that of a shorter one. It has no
    /// subtitles.
    ///
    /// # Errors
    /// The reason why it has no segments.
    pub(super) fn of_recording(
        asset: &Arc<TrackAsset>,
        file: &OpenFile,
        identity: String,
        (list, before): (GrowingList, Option<&WebAsset>),
    ) -> Result<WebAsset, String> {
        let before = before.and_then(WebAsset::track_media).map(|media| &media.plan);
        let media = TrackMedia::growing(asset, file, (list, before))?;
        Ok(WebAsset::with_media(WebMedia::Tracks(media), identity))
    }

    fn with_media(media: WebMedia, identity: String) -> WebAsset {
        let mut playlists = Playlists::default();
        if let WebMedia::Tracks(media) = &media {
            let lists = media.inits.keys().cloned();
            playlists.tracks = lists.map(|list| (list, OnceLock::new())).collect();
        }
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let (text_tracks, ttml) = (Vec::new(), TtmlTracks::default());
        WebAsset { number, identity, media, text_tracks, ttml, keys: None, playlists }
    }

    /// Returns the media of a file with tracks.
    pub(super) fn track_media(&self) -> Option<&TrackMedia> {
        match &self.media {
            WebMedia::Tracks(media) => Some(media),
            WebMedia::Stream(_) => None,
        }
    }

    /// Returns the facts of a recording's playlists.
    pub(super) fn growing(&self) -> Option<&GrowingList> {
        self.track_media()?.growing.as_ref()
    }

    /// Returns the text of a master playlist or MPD with these subtitles, and a transport stream in
    /// this form; `None` where the file has none of this kind.
    pub(super) fn first_text(
        &self,
        (item, form): (&WebItem, TsForm),
        subtitles: &[ListedSubtitle],
    ) -> Option<Bytes> {
        let playlists = &self.playlists;
        match (item, &self.media) {
            (WebItem::Master, _) => playlists.masters[form as usize].get(subtitles, || {
                Some(master::text(&[self.listed(String::new(), "", subtitles)], form))
            }),
            (WebItem::Manifest, WebMedia::Tracks(_)) if !self.has_cipher(SegmentCipher::Aes128) => {
                let text = || manifest::text(&[self.listed(String::new(), "", subtitles)], None);
                playlists.manifest.get(subtitles, text)
            }
            _ => None,
        }
    }

    /// Returns the text of subtitles; `None` where there is no such segment.
    pub(super) fn subtitle_text(&self, item: &WebItem, cues: &CueList) -> Option<String> {
        let segments = || match &self.media {
            WebMedia::Tracks(media) => TextSegments::of_tracks(&media.plan),
            WebMedia::Stream(media) => media.segments().map(TextSegments::of_stream),
        };
        match item {
            WebItem::SubtitlePlaylist(id) => {
                String::from_utf8(segments()?.playlist(*id, TextForm::WebVtt)).ok()
            }
            WebItem::SubtitleSegment(_, number) => segments()?.text(*number, cues),
            WebItem::SubtitleFile(_) => Some(cues.whole()),
            _ => None,
        }
    }

    /// Returns the text of a playlist of media; `None` where the file has none of this kind.
    pub(super) fn text(&self, item: &WebItem) -> Option<Bytes> {
        let playlists = &self.playlists;
        let text = match (item, &self.media) {
            (WebItem::Playlist(list), WebMedia::Tracks(media)) => {
                let text = || media_playlist::of_tracks(media, list, &self.key_tag(item));
                playlists.tracks.get(list)?.get_or_init(text)
            }
            (WebItem::KeyPlaylist, WebMedia::Tracks(media)) => {
                let text = || media_playlist::of_key_frames(media, &self.key_tag(item));
                playlists.key.get_or_init(text).as_ref()?
            }
            (WebItem::TsPlaylist(form), WebMedia::Stream(media)) => {
                let text = || media_playlist::of_stream(media, *form, &self.key_tag(item));
                playlists.streams[*form as usize].get_or_init(text).as_ref()?
            }
            (WebItem::TsKeyPlaylist(form), WebMedia::Stream(media)) => {
                let text = || media_playlist::of_stream_keys(media, *form, &self.key_tag(item));
                playlists.stream_keys[*form as usize].get_or_init(text).as_ref()?
            }
            _ => return None,
        };
        Some(text.clone())
    }

    /// Returns the reason why a file has no playlist of the key frames of its transport stream.
    pub(super) fn no_key_frames(&self) -> String {
        let reason = match &self.media {
            WebMedia::Stream(media) => media.key_frames().err(),
            WebMedia::Tracks(_) => None,
        };
        let reason = reason.unwrap_or("it is no transport stream");
        format!("the file has no playlist of key frames as they lie in it: {reason}")
    }

    /// Returns the file as an entry of a playlist that lies at `path` before its name, a path with
    /// a slash at its end.
    pub(super) fn listed<'a>(
        &'a self,
        path: String,
        suffix: &str,
        subtitles: &'a [ListedSubtitle],
    ) -> Listed<'a> {
        let live = if self.growing().is_some() { "/live" } else { "" };
        let below = format!("{path}~{}{live}", self.identity);
        Listed { asset: self, below, suffix: suffix.to_owned(), subtitles }
    }

    /// Returns the times at which segments begin, from the first on, in ticks; `None` where it has
    /// no pictures.
    pub(super) fn cuts(&self) -> Option<Vec<u64>> {
        match &self.media {
            WebMedia::Tracks(media) => {
                let pictures = media.plan.pictures(&media.asset.presentation)?;
                let segments = media.plan.rendition(&[pictures])?.segments();
                let first = segments.first()?.start;
                let since = |start: i64| u64::try_from(start - first).unwrap_or(0);
                Some(segments.iter().map(|segment| since(segment.start)).collect())
            }
            WebMedia::Stream(media) => {
                let starts = media.segments()?.list().iter().scan(0, |at, segment| {
                    let start = *at;
                    *at += segment.ticks;
                    Some(start)
                });
                let codings = media.asset.plan.streams().iter();
                let mut codings = codings.map(|one| Coding::of(one.stream_type, &[]));
                codings.any(Coding::is_video).then(|| starts.collect())
            }
        }
    }

    /// Returns the time for which its first segment has media that the film's edit list cuts away,
    /// in ticks.
    pub(super) fn cut_away_ticks(&self) -> u64 {
        let WebMedia::Tracks(media) = &self.media else { return 0 };
        let first = media.plan.renditions().iter().flat_map(|one| one.segments().first());
        first.map(|first| first.start).min().map_or(0, |start| start.min(0).unsigned_abs())
    }

    /// True where an item is made of the elementary streams of this transport stream.
    pub(super) fn needs_elementary(&self, item: &WebItem) -> bool {
        let WebMedia::Stream(media) = &self.media else { return false };
        match item {
            // Times of subtitles are those of the media that the playlist names.
            WebItem::Master | WebItem::SubtitlePlaylist(_) | WebItem::SubtitleSegment(..) => {
                !media.plays_as_it_is()
            }
            WebItem::TsPlaylist(_)
            | WebItem::TsSegment(_)
            | WebItem::TsKeyPlaylist(_)
            | WebItem::TsKeyFrame(_)
            | WebItem::Ts
            | WebItem::Player
            | WebItem::Poster
            | WebItem::Thumbnails
            | WebItem::ThumbnailSheet(_)
            | WebItem::SubtitleFile(_)
            | WebItem::SubtitleInit(_)
            | WebItem::SubtitleFragment(..)
            | WebItem::LivePlaylist
            | WebItem::LiveSegment(_)
            | WebItem::LivePart(..)
            | WebItem::LiveManifest
            | WebItem::LiveTracksPlaylist(_)
            | WebItem::LiveTracksInit(_)
            | WebItem::LiveTracksSegment(..)
            | WebItem::LiveInit(..)
            | WebItem::LiveFragment(..) => false,
            WebItem::Manifest
            | WebItem::Playlist(_)
            | WebItem::Init(_)
            | WebItem::Segment(..)
            | WebItem::KeyPlaylist
            | WebItem::KeyFrame(_) => true,
        }
    }

    /// Returns the bytes and file ranges of a segment or initialization section; `None` where there
    /// is no such segment.
    pub(super) fn parts(&self, item: &WebItem) -> Option<SegmentParts> {
        match (item, &self.media) {
            (WebItem::Init(list), WebMedia::Tracks(media)) => {
                let head = media.inits.get(list)?.clone();
                Some(SegmentParts { head, ranges: Vec::new() })
            }
            (WebItem::Segment(list, number), WebMedia::Tracks(media)) => {
                // Only renditions that playlists name.
                media.inits.get(list)?;
                let presentation = &media.asset.presentation;
                let rendition = media.plan.rendition(&list.0)?;
                let is_final = *number < media.listed(rendition).end;
                let parts = || rendition.parts(presentation, &media.plan, *number);
                is_final.then(parts).flatten()
            }
            (WebItem::KeyFrame(number), WebMedia::Tracks(media)) => {
                media.plan.key_frame_parts(&media.asset.presentation, *number)
            }
            (WebItem::TsSegment(number), WebMedia::Stream(media)) => media.segment(*number),
            (WebItem::TsKeyFrame(number), WebMedia::Stream(media)) => media.key_frame(*number),
            (WebItem::Ts, WebMedia::Stream(media)) if self.keys.is_none() => {
                let whole = 0..media.asset.plan.file_bytes();
                Some(SegmentParts { head: Vec::new(), ranges: vec![whole] })
            }
            (_, WebMedia::Tracks(media)) => self.ttml.parts(item, media),
            _ => None,
        }
    }

    /// Returns the number of the key of an item's playlist.
    fn key_number(&self, item: &WebItem) -> u64 {
        let media = match (&self.media, item) {
            (WebMedia::Tracks(media), _) => media,
            (_, WebItem::TsKeyPlaylist(_) | WebItem::TsKeyFrame(_)) => return STREAM_KEY + 1,
            _ => return STREAM_KEY,
        };
        if self.has_cipher(SegmentCipher::Cbcs) {
            return SAMPLE_KEY;
        }
        let renditions = media.plan.renditions();
        let index = match item {
            WebItem::Playlist(list) | WebItem::Segment(list, _) => {
                renditions.iter().position(|rendition| rendition.tracks() == list.0)
            }
            _ => None,
        };
        index.unwrap_or(renditions.len()) as u64
    }

    /// Returns the tag of the key of an item's segments; empty where they are clear.
    fn key_tag(&self, item: &WebItem) -> String {
        let keys = self.keys.as_ref();
        keys.map_or(String::new(), |keys| keys.tag(self.key_number(item)))
    }

    /// True for a segment whose bytes have to be made ([`WebAsset::copied`]).
    pub(super) fn is_copied(&self, item: &WebItem) -> bool {
        let is_segment = matches!(
            item,
            WebItem::Segment(..)
                | WebItem::KeyFrame(_)
                | WebItem::TsSegment(_)
                | WebItem::TsKeyFrame(_)
        );
        if self.keys.is_some() && is_segment {
            return self.parts(item).is_some();
        }
        let (WebItem::Segment(list, number), WebMedia::Tracks(media)) = (item, &self.media) else {
            return false;
        };
        let Some(rendition) = media.plan.rendition(&list.0) else { return false };
        (media.is_copied() || rendition.is_scattered())
            && media.inits.contains_key(list)
            && *number < media.listed(rendition).end
    }

    /// True where segments are enciphered with this cipher.
    pub(super) fn has_cipher(&self, cipher: SegmentCipher) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.cipher() == cipher)
    }

    /// Returns the approximate number of bytes of such a segment.
    pub(super) fn copied_bytes(&self, item: &WebItem) -> u64 {
        match (item, &self.media) {
            (WebItem::Segment(list, number), WebMedia::Tracks(media)) => {
                let segments = media.plan.rendition(&list.0).map(|rendition| rendition.segments());
                segments.and_then(|segments| segments.get(*number)).map_or(0, |one| one.bytes)
            }
            _ => self.parts(item).map_or(0, |parts| parts.bytes()),
        }
    }

    /// Returns the bytes of such a segment. May read and wait.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn copied(&self, item: &WebItem, file: &OpenFile) -> io::Result<Pieces> {
        let is_protected = self.has_cipher(SegmentCipher::Cbcs);
        let copied = match &self.media {
            WebMedia::Tracks(media) if media.is_copied() || is_protected => {
                media.copied(item, file, is_protected)?
            }
            _ => None,
        };
        let copied = match copied {
            Some(copied) => copied,
            None => {
                let none = || io::Error::other("there is no such segment");
                bytes_of(self.parts(item).ok_or_else(none)?, file)?
            }
        };
        // A file that was written meanwhile may have bytes of both contents; one whose name or
        // owner was changed looks the same. A recording has the same bytes and more.
        if self.growing().is_none() && !file.is_unchanged() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let Some(keys) = &self.keys else { return Ok(vec![copied.head, copied.media]) };
        let number = match item {
            WebItem::Segment(_, number)
            | WebItem::KeyFrame(number)
            | WebItem::TsSegment(number)
            | WebItem::TsKeyFrame(number) => *number,
            _ => 0,
        };
        Ok(keys.encipher(self.key_number(item), number, copied))
    }

    /// Returns the memory it takes, with the plan of the file that it holds.
    pub(super) fn memory_bytes(&self) -> usize {
        match &self.media {
            WebMedia::Tracks(media) => {
                let inits: usize = media.inits.values().map(Vec::capacity).sum();
                let texts = media.plan.memory_bytes();
                let tracks = self.text_tracks.capacity() * size_of::<TextTrack>();
                let held = media.asset.presentation.memory_bytes() as usize;
                let ttml = self.ttml.memory_bytes();
                media.plan.memory_bytes() + inits + texts + tracks + ttml + held
            }
            WebMedia::Stream(media) => media.memory_bytes(),
        }
    }
}

/// Returns the tracks of text of a file. A file that the plan was made of rarely has faults; where
/// there is one, the film is played without them.
fn listed_text(asset: &LibraryAsset, file: &OpenFile) -> Vec<TextTrack> {
    let LibraryAsset::Tracks(asset) = asset else { return Vec::new() };
    if asset.presentation.left_out().is_empty() || asset.stream_plan().is_some() {
        return Vec::new();
    }
    text_tracks(file, file.entity().bytes).unwrap_or_else(|error| {
        tracing::warn!("{}: played without subtitles: {error}", asset.name);
        Vec::new()
    })
}

/// Reads a segment.
fn bytes_of(parts: SegmentParts, file: &OpenFile) -> io::Result<CopiedSegment> {
    if parts.bytes() > COPIED_BYTES_MAX {
        return Err(io::Error::other("the segment is too long: its key frames lie far apart"));
    }
    let mut media = Vec::new();
    for range in &parts.ranges {
        let from = media.len();
        media.resize(from + (range.end - range.start) as usize, 0);
        file.read_exact_at(&mut media[from..], range.start)?;
    }
    Ok(CopiedSegment { head: parts.head, media, protected: Vec::new() })
}

/// Returns the identity of a file's content in addresses, with the mark of its protection.
pub(super) fn identity(entity: &Entity<'_>, mark: &str) -> String {
    format!("{}.{VERSION}{mark}", entity.etag.trim_matches('"'))
}
