// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses of a file's playlists and segments, read and written.
//!
//! | below the file's name | what it is |
//! |---|---|
//! | `master.m3u8` | multivariant playlist of HLS |
//! | `manifest.mpd` | media presentation description of DASH |
//! | `player.html` | a page that plays it |
//! | `poster.jpg` | a picture of it |
//! | `thumbnails.vtt`, `thumbnails-0.jpg` | list of thumbnails, the first sheet of them |
//! | `~I/1-2.m3u8` | media playlist of tracks 1 and 2 together |
//! | `~I/1-2/init.mp4`, `~I/1-2/0.m4s` | their initialization section, their first segment |
//! | `~I/key.m3u8`, `~I/key/0.m4s` | playlist of the key frames, the first of them |
//! | `~I/ts.m3u8` | media playlist of a transport stream, of ranges where they can be segments |
//! | `~I/ts-segments.m3u8`, `~I/ts/0.ts` | the same without ranges, its first segment |
//! | `~I/ts-key.m3u8`, `~I/ts-key-segments.m3u8` | playlists of its key frames, likewise |
//! | `~I/ts-key/0.ts` | the first of them, with tables in front |
//! | `~R/live.m3u8`, `~R/live/0.ts` | media playlist of a recording, its first segment |
//! | `~R/live/0.1.ts` | second part of this segment |
//! | `~R.mpd` | description of a recording |
//! | `~R/live/1-2.m3u8` | media playlist of tracks 1 and 2 of a recording in MP4 |
//! | `~R/live/1-2/init.mp4`, `~R/live/1-2/0.m4s` | their initialization section and first segment |
//! | `~R/live/1-7.mp4` | initialization section of stream 1 in the period from segment 7 on |
//! | `~R/live/1-7-900000.m4s` | its fragment that starts at this time |
//! | `~I/media.ts` | the transport stream, whose byte ranges are segments |
//! | `~I/s3.m3u8`, `~I/s3/0.vtt`, `~I/s3.vtt` | subtitles of track 3: playlist, a segment, all |
//! | `~I/s3/init.mp4`, `~I/s3/0.m4s` | the same of TTML: initialization section, a segment |
//! | `~I/s-C.m3u8`, `~I/s-C/0.vtt`, `~I/s-C.vtt` | the same of a side-car file of subtitles |
//!
//! `I` is the identity of the file's content: its entity tag without quotes, then after a point the
//! version of the rule by which files are cut ([`VERSION`]), and, where segments are enciphered,
//! the mark of cipher and secret ([`super::protection`]). `R` is that of a recording, which stays
//! while it is written ([`super::live`]); `C` is that of a side-car file beside it, in sixteen
//! hexadecimal digits. A file or folder that has such a name itself takes precedence where the
//! identity differs from that of the file before it.
//!
//! Sources: RFC 3986 §3.3 (path segments; `~` is unreserved).
//! Does not look at files.

use std::fmt;

use super::ts_form::TsForm;

/// Version of everything that addresses refer to. Segments may be kept by caches for a year:
/// another rule of cutting, or other boxes, need other addresses.
pub(super) const VERSION: u8 = 6;

/// Tracks that an address names at most.
const TRACKS_MAX: usize = 2;

/// Meaning of an address below a file's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum WebItem {
    Master,
    Manifest,
    Player,
    Poster,
    /// List of thumbnails.
    Thumbnails,
    /// A sheet of thumbnails.
    ThumbnailSheet(usize),
    /// Playlist of these tracks (index in the presentation).
    Playlist(TrackList),
    Init(TrackList),
    Segment(TrackList, usize),
    KeyPlaylist,
    KeyFrame(usize),
    TsPlaylist(TsForm),
    TsSegment(usize),
    /// Playlist of the key frames of a transport stream.
    TsKeyPlaylist(TsForm),
    TsKeyFrame(usize),
    /// The transport stream itself.
    Ts,
    LivePlaylist,
    LiveSegment(usize),
    /// A part of a segment.
    LivePart(usize, usize),
    LiveManifest,
    /// The same as those without `Live`, of a recording with tracks.
    LiveTracksPlaylist(TrackList),
    LiveTracksInit(TrackList),
    LiveTracksSegment(TrackList, usize),
    /// Initialization section of a stream (its index) in the period that begins with a segment.
    LiveInit(usize, usize),
    /// Fragment of a stream in a period, likewise, that starts at this time.
    LiveFragment(usize, usize, u64),
    SubtitlePlaylist(SubtitleId),
    SubtitleSegment(SubtitleId, usize),
    /// All cues in one file.
    SubtitleFile(SubtitleId),
    /// Initialization section of TTML.
    SubtitleInit(SubtitleId),
    /// Segment of TTML.
    SubtitleFragment(SubtitleId, usize),
}

/// Subtitles of one language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SubtitleId {
    /// A text track, by its number in the file.
    Track(u32),
    /// A side-car file, by the identity of its content.
    SideCar(u64),
}

/// Tracks that are sent together, by their index in the presentation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TrackList(pub(crate) Vec<usize>);

/// An address below a file's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebAddress<'a> {
    /// Name of the file, without a leading slash.
    pub(crate) file: &'a str,
    /// Identity of the content; `None` for items that are found by the file's name alone.
    pub(crate) identity: Option<&'a str>,
    pub(crate) item: WebItem,
}

/// Reads the path of a request that is in its shortest spelling.
pub(crate) fn parse(path: &str) -> Option<WebAddress<'_>> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (before, name) = path.rsplit_once('/')?;
    let first = match name {
        "master.m3u8" => Some(WebItem::Master),
        "manifest.mpd" => Some(WebItem::Manifest),
        "player.html" => Some(WebItem::Player),
        "poster.jpg" => Some(WebItem::Poster),
        "thumbnails.vtt" => Some(WebItem::Thumbnails),
        _ => name
            .strip_prefix("thumbnails-")
            .and_then(|rest| rest.strip_suffix(".jpg"))
            .and_then(whole)
            .map(WebItem::ThumbnailSheet),
    };
    if let Some(item) = first {
        return Some(WebAddress { file: before, identity: None, item });
    }
    if let Some((file, identity)) = path.strip_suffix(".mpd").and_then(identity_of) {
        return Some(WebAddress { file, identity: Some(identity), item: WebItem::LiveManifest });
    }
    if let Some(found) = tracks_of_recording(before, name) {
        return Some(found);
    }
    // The identity is followed by one name, or by two.
    let one = identity_of(before).map(|(file, identity)| (file, identity, None));
    let two = || {
        let (before, list) = before.rsplit_once('/')?;
        identity_of(before).map(|(file, identity)| (file, identity, Some(list)))
    };
    let (file, identity, list) = one.or_else(two)?;
    let (stem, extension) = name.rsplit_once('.')?;
    let item = match (list, stem, extension) {
        (None, "key", "m3u8") => WebItem::KeyPlaylist,
        (None, "ts", "m3u8") => WebItem::TsPlaylist(TsForm::Ranges),
        (None, "ts-segments", "m3u8") => WebItem::TsPlaylist(TsForm::Segments),
        (None, "ts-key", "m3u8") => WebItem::TsKeyPlaylist(TsForm::Ranges),
        (None, "ts-key-segments", "m3u8") => WebItem::TsKeyPlaylist(TsForm::Segments),
        (None, "media", "ts") => WebItem::Ts,
        (None, one, "m3u8") if one.starts_with('s') => {
            WebItem::SubtitlePlaylist(SubtitleId::parse(one)?)
        }
        (None, one, "vtt") => WebItem::SubtitleFile(SubtitleId::parse(one)?),
        (Some(one), number, "vtt") => {
            WebItem::SubtitleSegment(SubtitleId::parse(one)?, whole(number)?)
        }
        (None, "live", "m3u8") => WebItem::LivePlaylist,
        (None, list, "m3u8") => WebItem::Playlist(TrackList::parse(list)?),
        (Some("key"), number, "m4s") => WebItem::KeyFrame(whole(number)?),
        (Some("live"), number, "ts") => match number.split_once('.') {
            None => WebItem::LiveSegment(whole(number)?),
            Some((segment, part)) => WebItem::LivePart(whole(segment)?, whole(part)?),
        },
        (Some("live"), stem, "mp4") => {
            let (stream, period) = stem.split_once('-')?;
            WebItem::LiveInit(whole(stream)?.checked_sub(1)?, whole(period)?)
        }
        (Some("live"), stem, "m4s") => {
            let (stream, rest) = stem.split_once('-')?;
            let (period, start) = rest.split_once('-')?;
            let (stream, start) = (whole(stream)?.checked_sub(1)?, whole(start)? as u64);
            WebItem::LiveFragment(stream, whole(period)?, start)
        }
        (Some("ts"), number, "ts") => WebItem::TsSegment(whole(number)?),
        (Some("ts-key"), number, "ts") => WebItem::TsKeyFrame(whole(number)?),
        (Some(one), "init", "mp4") if one.starts_with('s') => {
            WebItem::SubtitleInit(SubtitleId::parse(one)?)
        }
        (Some(one), number, "m4s") if one.starts_with('s') => {
            WebItem::SubtitleFragment(SubtitleId::parse(one)?, whole(number)?)
        }
        (Some(list), "init", "mp4") => WebItem::Init(TrackList::parse(list)?),
        (Some(list), number, "m4s") => WebItem::Segment(TrackList::parse(list)?, whole(number)?),
        _ => return None,
    };
    Some(WebAddress { file, identity: Some(identity), item })
}

/// Reads the address of an item of a recording with tracks, whose last part is `name`.
fn tracks_of_recording<'a>(before: &'a str, name: &str) -> Option<WebAddress<'a>> {
    let (stem, extension) = name.rsplit_once('.')?;
    let (before, item) = match before.strip_suffix("/live") {
        Some(before) if extension == "m3u8" => {
            (before, WebItem::LiveTracksPlaylist(TrackList::parse(stem)?))
        }
        _ => {
            let (before, list) = before.rsplit_once('/')?;
            let (before, list) = (before.strip_suffix("/live")?, TrackList::parse(list)?);
            match (stem, extension) {
                ("init", "mp4") => (before, WebItem::LiveTracksInit(list)),
                (number, "m4s") => (before, WebItem::LiveTracksSegment(list, whole(number)?)),
                _ => return None,
            }
        }
    };
    let (file, identity) = identity_of(before)?;
    Some(WebAddress { file, identity: Some(identity), item })
}

/// Splits a path without a leading slash into the name of a file and an identity of its content.
pub(crate) fn identity_of(path: &str) -> Option<(&str, &str)> {
    let (file, identity) = path.rsplit_once('/')?;
    let identity = identity.strip_prefix('~')?;
    let (content, version) = identity.split_once('.')?;
    let (version, mark) = version.split_once('-').map_or((version, None), |(v, m)| (v, Some(m)));
    whole(version)?;
    let is_mark = |mark: &str| mark.len() == 8 && mark.bytes().all(|b| b.is_ascii_hexdigit());
    if !mark.is_none_or(is_mark) {
        return None;
    }
    let is_part = |part: &str| {
        let digits = part.strip_prefix('-').unwrap_or(part);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let (inode, rest) = content.split_once('-')?;
    let (bytes, time) = rest.split_once('-')?;
    [inode, bytes, time].into_iter().all(is_part).then_some((file, identity))
}

/// A number as it is written here: decimal, without leading zeros.
fn whole(text: &str) -> Option<usize> {
    let is_written_so = text == "0" || !text.starts_with('0');
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    (is_written_so && is_number).then(|| text.parse().ok())?
}

impl WebItem {
    /// True for an item that only a recording has.
    pub(crate) fn is_live(&self) -> bool {
        let is_hls =
            matches!(self, WebItem::LivePlaylist | WebItem::LiveSegment(_) | WebItem::LivePart(..));
        is_hls || self.is_live_tracks() || self.is_live_dash() && *self != WebItem::Manifest
    }

    /// True for an item that only a recording with tracks has.
    fn is_live_tracks(&self) -> bool {
        matches!(
            self,
            WebItem::LiveTracksPlaylist(_)
                | WebItem::LiveTracksInit(_)
                | WebItem::LiveTracksSegment(..)
        )
    }

    /// True for an item of DASH that only a recording has.
    pub(super) fn is_live_dash(&self) -> bool {
        let is_media = matches!(self, WebItem::LiveInit(..) | WebItem::LiveFragment(..));
        is_media || matches!(self, WebItem::Manifest | WebItem::LiveManifest)
    }
}

impl TrackList {
    fn parse(text: &str) -> Option<TrackList> {
        let tracks = text.split('-').map(|number| whole(number)?.checked_sub(1));
        let tracks: Vec<usize> = tracks.collect::<Option<_>>()?;
        (tracks.len() <= TRACKS_MAX).then_some(TrackList(tracks))
    }
}

impl SubtitleId {
    fn parse(text: &str) -> Option<SubtitleId> {
        let text = text.strip_prefix('s')?;
        let Some(identity) = text.strip_prefix('-') else {
            return Some(SubtitleId::Track(u32::try_from(whole(text)?).ok()?));
        };
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_identity = identity.len() == 16 && identity.bytes().all(is_hex);
        let number = u64::from_str_radix(identity, 16).ok().filter(|_| is_identity)?;
        Some(SubtitleId::SideCar(number))
    }
}

impl fmt::Display for SubtitleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubtitleId::Track(number) => write!(f, "s{number}"),
            SubtitleId::SideCar(identity) => write!(f, "s-{identity:016x}"),
        }
    }
}

impl fmt::Display for TrackList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, track) in self.0.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { "-" } else { "" }, track + 1)?;
        }
        Ok(())
    }
}

/// The address below the identity; of items that need none below the name of the file, where the
/// description of a recording lies, too, behind its identity.
impl fmt::Display for WebItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WebItem::Master => f.write_str("master.m3u8"),
            WebItem::Manifest => f.write_str("manifest.mpd"),
            WebItem::Player => f.write_str("player.html"),
            WebItem::Poster => f.write_str("poster.jpg"),
            WebItem::Thumbnails => f.write_str("thumbnails.vtt"),
            WebItem::ThumbnailSheet(number) => write!(f, "thumbnails-{number}.jpg"),
            WebItem::Playlist(list) => write!(f, "{list}.m3u8"),
            WebItem::Init(list) => write!(f, "{list}/init.mp4"),
            WebItem::Segment(list, number) => write!(f, "{list}/{number}.m4s"),
            WebItem::KeyPlaylist => f.write_str("key.m3u8"),
            WebItem::KeyFrame(number) => write!(f, "key/{number}.m4s"),
            WebItem::TsPlaylist(TsForm::Ranges) => f.write_str("ts.m3u8"),
            WebItem::TsPlaylist(TsForm::Segments) => f.write_str("ts-segments.m3u8"),
            WebItem::TsSegment(number) => write!(f, "ts/{number}.ts"),
            WebItem::TsKeyPlaylist(TsForm::Ranges) => f.write_str("ts-key.m3u8"),
            WebItem::TsKeyPlaylist(TsForm::Segments) => f.write_str("ts-key-segments.m3u8"),
            WebItem::TsKeyFrame(number) => write!(f, "ts-key/{number}.ts"),
            WebItem::Ts => f.write_str("media.ts"),
            WebItem::SubtitlePlaylist(id) => write!(f, "{id}.m3u8"),
            WebItem::SubtitleSegment(id, number) => write!(f, "{id}/{number}.vtt"),
            WebItem::SubtitleFile(id) => write!(f, "{id}.vtt"),
            WebItem::SubtitleInit(id) => write!(f, "{id}/init.mp4"),
            WebItem::SubtitleFragment(id, number) => write!(f, "{id}/{number}.m4s"),
            WebItem::LivePlaylist => f.write_str("live.m3u8"),
            WebItem::LiveSegment(number) => write!(f, "live/{number}.ts"),
            WebItem::LivePart(segment, part) => write!(f, "live/{segment}.{part}.ts"),
            WebItem::LiveManifest => f.write_str("mpd"),
            WebItem::LiveTracksPlaylist(list) => write!(f, "live/{list}.m3u8"),
            WebItem::LiveTracksInit(list) => write!(f, "live/{list}/init.mp4"),
            WebItem::LiveTracksSegment(list, number) => write!(f, "live/{list}/{number}.m4s"),
            WebItem::LiveInit(stream, period) => write!(f, "live/{}-{period}.mp4", stream + 1),
            WebItem::LiveFragment(stream, period, start) => {
                write!(f, "live/{}-{period}-{start}.m4s", stream + 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let identity = "1a-ff00-18bcd.1";
        for (below, item) in [
            ("1-2.m3u8", WebItem::Playlist(TrackList(vec![0, 1]))),
            ("3.m3u8", WebItem::Playlist(TrackList(vec![2]))),
            ("1-2/init.mp4", WebItem::Init(TrackList(vec![0, 1]))),
            ("1-2/17.m4s", WebItem::Segment(TrackList(vec![0, 1]), 17)),
            ("key.m3u8", WebItem::KeyPlaylist),
            ("key/0.m4s", WebItem::KeyFrame(0)),
            ("ts.m3u8", WebItem::TsPlaylist(TsForm::Ranges)),
            ("ts-segments.m3u8", WebItem::TsPlaylist(TsForm::Segments)),
            ("ts/9.ts", WebItem::TsSegment(9)),
            ("ts-key.m3u8", WebItem::TsKeyPlaylist(TsForm::Ranges)),
            ("ts-key-segments.m3u8", WebItem::TsKeyPlaylist(TsForm::Segments)),
            ("ts-key/10.ts", WebItem::TsKeyFrame(10)),
            ("media.ts", WebItem::Ts),
            ("s3.m3u8", WebItem::SubtitlePlaylist(SubtitleId::Track(3))),
            ("s3/17.vtt", WebItem::SubtitleSegment(SubtitleId::Track(3), 17)),
            ("s-00000000000000ff.vtt", WebItem::SubtitleFile(SubtitleId::SideCar(255))),
            ("s3/init.mp4", WebItem::SubtitleInit(SubtitleId::Track(3))),
            ("s3/17.m4s", WebItem::SubtitleFragment(SubtitleId::Track(3), 17)),
            ("live.m3u8", WebItem::LivePlaylist),
            ("live/12.ts", WebItem::LiveSegment(12)),
            ("live/12.3.ts", WebItem::LivePart(12, 3)),
            ("live/1-2.mp4", WebItem::LiveInit(0, 2)),
            ("live/1-2.m3u8", WebItem::LiveTracksPlaylist(TrackList(vec![0, 1]))),
            ("live/2/init.mp4", WebItem::LiveTracksInit(TrackList(vec![1]))),
            ("live/1-2/17.m4s", WebItem::LiveTracksSegment(TrackList(vec![0, 1]), 17)),
            ("live/2-7-900000.m4s", WebItem::LiveFragment(1, 7, 900_000)),
        ] {
            let path = format!("/films/a.mp4/~{identity}/{below}");
            assert_eq!(item.to_string(), below);
            let expected = WebAddress { file: "films/a.mp4", identity: Some(identity), item };
            assert_eq!(parse(&path), Some(expected), "{path}");
        }
        let item = WebItem::LiveManifest;
        let description = WebAddress { file: "x/a.ts", identity: Some(identity), item };
        assert_eq!(parse(&format!("/x/a.ts/~{identity}.mpd")), Some(description));
        let master = WebAddress { file: "a.ts", identity: None, item: WebItem::Master };
        assert_eq!(parse("/a.ts/master.m3u8"), Some(master));
        for (name, item) in [
            ("poster.jpg", WebItem::Poster),
            ("thumbnails.vtt", WebItem::Thumbnails),
            ("thumbnails-12.jpg", WebItem::ThumbnailSheet(12)),
        ] {
            assert_eq!(item.to_string(), name);
            let expected = WebAddress { file: "x/a.ts", identity: None, item };
            assert_eq!(parse(&format!("/x/a.ts/{name}")), Some(expected));
        }
        let manifest = WebAddress { file: "x/a.ts", identity: None, item: WebItem::Manifest };
        assert_eq!(parse("x/a.ts/manifest.mpd"), Some(manifest));
        assert_eq!(TrackList(vec![0, 11]).to_string(), "1-12");
    }

    #[test]
    fn other_names_are_those_of_files() {
        for path in [
            "/master.m3u8",
            "/a.mp4",
            "/a.mp4/playlist.m3u8",
            "/a.mp4/~1-2.1/1.m3u8",
            "/a.mp4/~1-2-x.1/1.m3u8",
            "/a.mp4/~1-2-3-4.1/1.m3u8",
            "/a.mp4/~1-2-3/1.m3u8",
            "/a.mp4/~1-2-3.x/1.m3u8",
            "/a.mp4/~1-2-3.1-0123456/1.m3u8",
            "/a.mp4/~1-2-3.1-0123456x/1.m3u8",
            "/a.mp4/~1-2-3.1/0.m3u8",
            "/a.mp4/~1-2-3.1/01.m3u8",
            "/a.mp4/~1-2-3.1/1-2-3.m3u8",
            "/a.mp4/~1-2-3.1/1/+1.m4s",
            "/a.mp4/~1-2-3.1/1/99999999999999999999999.m4s",
            "/a.mp4/~1-2-3.1/1/2/3.m4s",
            "/a.mp4/~1-2-3.1/ts/1.m4s",
            "/a.mp4/~1-2-3.1/live/1.2.3.ts",
            "/a.mp4/~1-2-3.1/live/0.m3u8",
            "/a.mp4/~1-2-3.1/live/1-2-3.m3u8",
            "/a.mp4/~1-2-3.1/live/1-2/01.m4s",
            "/a.mp4/~1-2-3.1/live/0/init.mp4",
            "/a.mp4/~1-2-3.1/live/1/init.m4s",
            "/a.mp4/~1-2-3.1/live/1/2/0.m4s",
            "/a.mp4/~1-2-3.1/live/1.02.ts",
            "/a.mp4/~1-2-3.1/live/1..ts",
            "/a.mp4/~1-2-3.1/live.mpd",
            "/a.mp4/~1-2-3.mpd",
            "/a.mp4/~1-2-3.1/live/0-1.m4s",
            "/a.mp4/~1-2-3.1/live/1.m4s",
            "/a.mp4/~1-2-3.1/live/1-2-3.mp4",
            "/a.mp4/~1-2-3.1/s.m3u8",
            "/a.mp4/~1-2-3.1/s01.vtt",
            "/a.mp4/~1-2-3.1/s4294967296.vtt",
            "/a.mp4/~1-2-3.1/s-ff/1.vtt",
            "/a.mp4/~1-2-3.1/s-00000000000000FF.vtt",
            "/a.mp4/~1-2-3.1/s-+000000000000ff.vtt",
            "/a.mp4/~1-2-3.1/3/1.vtt",
            "/a.mp4/~1-2-3.1/s3/01.m4s",
            "/a.mp4/~1-2-3.1/s/init.mp4",
            "~1-2-3.1/1.m3u8",
        ] {
            assert_eq!(parse(path), None, "{path}");
        }
        // A time before 1970; a mark.
        assert!(parse("/a/~1-2--3.1/ts.m3u8").is_some());
        assert!(parse("/a/~1-2-3.1-01234567/ts.m3u8").is_some());
    }
}
