// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses playlists into a player's form: absolute addresses, byte ranges with offsets, and the
//! init section and the key method of every segment.
//!
//! The crate `m3u8-rs` parses. It stops without an error at an invalid line, treats a tag with
//! invalid attributes as an unknown one, reads an attribute past the end of its line, and mistakes
//! a title with a comma for a segment; so lines are checked before and after. A playlist is
//! untrusted text: its size and the number of its segments are limited.
//!
//! Sources: RFC 8216 §4 (tags), §4.1 (text), §6.3.1; draft-pantos-hls-rfc8216bis (EXT-X-GAP).
//! Does not read EXT-X-PART, EXT-X-DATERANGE, subtitles, I-frame playlists or variables.

use std::sync::Arc;
use std::time::Duration;

use m3u8_rs::{AlternativeMediaType, ByteRange, ExtTag, KeyMethod, Playlist};

use crate::http_url::UrlParts;
use crate::one_line;

/// A playlist that can be played.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FetchedPlaylist {
    Master(FetchedMaster),
    Media(Arc<FetchedMedia>),
}

/// A master playlist.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FetchedMaster {
    /// The variants in the order of the playlist, at least one.
    pub(super) variants: Vec<ListedVariant>,
    pub(super) audio: Vec<ListedAudio>,
    /// Video and subtitle renditions, which are not fetched.
    pub(super) beside: Vec<String>,
}

/// A variant stream (EXT-X-STREAM-INF).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListedVariant {
    pub(super) address: UrlParts,
    pub(super) bandwidth: u64,
    pub(super) average_bandwidth: Option<u64>,
    pub(super) codecs: Option<String>,
    pub(super) resolution: Option<(u64, u64)>,
    pub(super) audio_group: Option<String>,
}

/// An audio rendition (EXT-X-MEDIA).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListedAudio {
    pub(super) group: String,
    /// None where the variant's own segments contain the audio.
    pub(super) address: Option<UrlParts>,
    pub(super) is_default: bool,
    /// Its kind, name and language.
    pub(super) label: String,
}

/// A media playlist.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FetchedMedia {
    /// EXT-X-TARGETDURATION.
    pub(super) target: Duration,
    /// EXT-X-MEDIA-SEQUENCE: number of the first segment.
    pub(super) sequence: u64,
    pub(super) segments: Vec<ListedSegment>,
    /// EXT-X-ENDLIST: no segment will be added.
    pub(super) has_end: bool,
}

/// A media segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedSegment {
    pub(super) resource: ListedResource,
    pub(super) duration: Duration,
    pub(super) init: Option<Arc<ListedResource>>,
    pub(super) is_discontinuity: bool,
    /// EXT-X-GAP: the segment is known to be missing.
    pub(super) is_gap: bool,
    /// The whole segment is encrypted: its container cannot be checked.
    pub(super) is_enciphered: bool,
}

/// A file, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedResource {
    pub(super) address: UrlParts,
    pub(super) span: Option<ByteSpan>,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteSpan {
    pub(super) offset: u64,
    /// Length, at least 1; its sum with the offset does not overflow.
    pub(super) bytes: u64,
}

/// Parses the playlist at this address.
///
/// # Errors
/// The fault, and its line if there is one.
pub(super) fn read_playlist(text: &[u8], address: &UrlParts) -> Result<FetchedPlaylist, String> {
    let prepared = prepared(text)?;
    let (rest, playlist) = m3u8_rs::parse_playlist(prepared.as_bytes())
        .map_err(|_| "a playlist that cannot be parsed".to_owned())?;
    if !rest.is_empty() {
        let found = String::from_utf8_lossy(rest).lines().next().unwrap_or_default().to_owned();
        return Err(format!("a line cannot be read: {}", one_line(&found, LINE_CHARS_SHOWN)));
    }
    match playlist {
        Playlist::MasterPlaylist(_) if prepared.contains("\n#EXTINF:") => {
            Err("tags of a master and of a media playlist (RFC 8216 §4.3)".to_owned())
        }
        Playlist::MasterPlaylist(master) => master_of(master, address).map(FetchedPlaylist::Master),
        Playlist::MediaPlaylist(media) => {
            if !prepared.contains("\n#EXT-X-TARGETDURATION:") {
                return Err("no EXT-X-TARGETDURATION (RFC 8216 §4.3.3.1)".to_owned());
            }
            media_of(media, address).map(|media| FetchedPlaylist::Media(Arc::new(media)))
        }
    }
}

/// Checks the lines. Removes titles of segments, which the parser splits at commas, and comments,
/// since the parser would use some hundred bytes for each.
fn prepared(text: &[u8]) -> Result<String, String> {
    // A byte order mark is reported below with a reason of its own.
    if !text.starts_with(b"#EXT") && text.iter().any(|byte| *byte < b'\t') {
        return Err(NO_PLAYLIST.to_owned());
    }
    let text = str::from_utf8(text)
        .map_err(|error| format!("byte {}: not UTF-8 (RFC 8216 §4.1)", error.valid_up_to()))?;
    let mut prepared = String::with_capacity(text.len() + 1);
    let (mut lines, mut addresses) = (0_usize, 0_usize);
    for (number, line) in text.lines().enumerate() {
        if number == 0 && line.trim_end() != "#EXTM3U" {
            let found = one_line(line, LINE_CHARS_SHOWN);
            return Err(format!("it begins with \"{found}\", not #EXTM3U (RFC 8216 §4.3.1.1)"));
        }
        if line.trim().is_empty() || line.starts_with('#') && !line.starts_with("#EXT") {
            continue;
        }
        lines += 1;
        if !line.starts_with('#') {
            addresses += 1;
        }
        if lines > LINES_MAX {
            return Err(format!("more than {LINES_MAX} lines"));
        }
        if addresses > SEGMENTS_MAX {
            return Err(format!("more than {SEGMENTS_MAX} addresses"));
        }
        if !is_readable(line) {
            let found = one_line(line, LINE_CHARS_SHOWN);
            return Err(format!("line {} cannot be read: {found}", number + 1));
        }
        match line.strip_prefix("#EXTINF:") {
            Some(value) => {
                let seconds = value.split(',').next().unwrap_or_default().trim();
                let is_number = seconds.parse::<f64>().is_ok_and(|s| (0.0..=DAY_S).contains(&s));
                let is_plain = seconds.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
                if !is_number || !is_plain {
                    let found = one_line(line, LINE_CHARS_SHOWN);
                    return Err(format!("line {}: {found}: no duration in seconds", number + 1));
                }
                // The parser stops at "4." and at ".5".
                let seconds = format!("{:.6}", seconds.parse::<f64>().unwrap_or_default());
                prepared.push_str("#EXTINF:");
                prepared.push_str(&seconds);
                prepared.push(',');
            }
            None => prepared.push_str(line),
        }
        prepared.push('\n');
    }
    if prepared.is_empty() {
        return Err("an empty playlist".to_owned());
    }
    Ok(prepared)
}

/// False for tags whose number or attributes the parser would read past the end of the line.
fn is_readable(line: &str) -> bool {
    let Some((tag, value)) = line.split_once(':') else { return !line.contains('\r') };
    let is_number = || !value.is_empty() && value.trim_end().parse::<u64>().is_ok();
    !line.contains('\r')
        && (!NUMBER_TAGS.contains(&tag) || is_number())
        && (!ATTRIBUTE_TAGS.contains(&tag) || is_attribute_list(value.trim_end()))
}

/// True for `NAME=value` and `NAME="value"` between commas (RFC 8216 §4.2).
fn is_attribute_list(text: &str) -> bool {
    let (mut is_quoted, mut has_name, mut has_value) = (false, false, false);
    for c in text.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '=' => has_value = true,
            ',' if !has_name || !has_value => return false,
            ',' => (has_name, has_value) = (false, false),
            _ => has_name = true,
        }
    }
    !is_quoted && has_name && has_value
}

fn master_of(master: m3u8_rs::MasterPlaylist, at: &UrlParts) -> Result<FetchedMaster, String> {
    refuse_unread(&master.unknown_tags)?;
    let mut read = FetchedMaster::default();
    for variant in master.variants.into_iter().filter(|variant| !variant.is_i_frame) {
        if variant.uri.is_empty() {
            return Err("EXT-X-STREAM-INF without an address (RFC 8216 §4.3.4.2)".to_owned());
        }
        read.variants.push(ListedVariant {
            address: joined(at, &variant.uri)?,
            bandwidth: variant.bandwidth,
            average_bandwidth: variant.average_bandwidth,
            codecs: variant.codecs.map(|codecs| one_line(&codecs, LINE_CHARS_SHOWN)),
            resolution: variant.resolution.map(|size| (size.width, size.height)),
            audio_group: variant.audio,
        });
    }
    for media in master.alternatives {
        let label = label_of(&media);
        let address = media.uri.as_deref().map(|uri| joined(at, uri)).transpose()?;
        if media.media_type == AlternativeMediaType::Audio {
            let (group, is_default) = (media.group_id, media.default);
            read.audio.push(ListedAudio { group, address, is_default, label });
        } else if address.is_some() && read.beside.len() < VARIANTS_MAX {
            // A rendition without an address is contained in the variant's own segments.
            read.beside.push(label);
        }
    }
    if read.variants.is_empty() {
        return Err("a master playlist without a variant".to_owned());
    }
    if read.variants.len() > VARIANTS_MAX || read.audio.len() > VARIANTS_MAX {
        return Err(format!("more than {VARIANTS_MAX} variants"));
    }
    Ok(read)
}

/// Kind, name and language of a rendition.
fn label_of(media: &m3u8_rs::AlternativeMedia) -> String {
    let kind = match media.media_type {
        AlternativeMediaType::Audio => "audio",
        AlternativeMediaType::Video => "video",
        AlternativeMediaType::Subtitles => "subtitles",
        _ => "captions",
    };
    let language = media.language.as_ref().map(|language| format!(" ({language})"));
    let label = format!("{kind} {}{}", media.name, language.unwrap_or_default());
    one_line(&label, LINE_CHARS_SHOWN)
}

fn media_of(media: m3u8_rs::MediaPlaylist, at: &UrlParts) -> Result<FetchedMedia, String> {
    if media.i_frames_only {
        return Err("an I-frame playlist, which is for trick play alone".to_owned());
    }
    let mut segments = Vec::<ListedSegment>::with_capacity(media.segments.len());
    let (mut init, mut is_enciphered) = (None, false);
    for (index, segment) in media.segments.into_iter().enumerate() {
        let wrong = |found: String| format!("segment {index} of the playlist: {found}");
        refuse_unread(&segment.unknown_tags).map_err(wrong)?;
        // The parser attaches a map and a key only to the segment directly after their tags.
        if let Some(map) = segment.map {
            let span = map.byte_range.map(|range| span_of(&range, Some(0))).transpose();
            let span = span.map_err(wrong)?;
            let address = joined(at, &map.uri).map_err(wrong)?;
            init = Some(Arc::new(ListedResource { address, span }));
        }
        if segment.unknown_tags.iter().any(is_no_key) {
            is_enciphered = false;
        }
        if let Some(key) = segment.key {
            is_enciphered = match &key.method {
                KeyMethod::None | KeyMethod::SampleAES => false,
                KeyMethod::AES128 => true,
                KeyMethod::Other(method) => !method.starts_with("SAMPLE-AES"),
            };
        }
        let address = joined(at, &segment.uri).map_err(wrong)?;
        let span = match segment.byte_range {
            None => None,
            Some(range) => {
                let before = segments.last().map(|segment| &segment.resource);
                let before = before.filter(|before| before.address == address);
                let end = before.and_then(|before| before.span).map(ByteSpan::end);
                Some(span_of(&range, end).map_err(wrong)?)
            }
        };
        segments.push(ListedSegment {
            resource: ListedResource { address, span },
            duration: Duration::try_from_secs_f32(segment.duration).unwrap_or_default(),
            init: init.clone(),
            is_discontinuity: segment.discontinuity,
            is_gap: segment.unknown_tags.iter().any(|tag| tag.tag == "X-GAP"),
            is_enciphered,
        });
    }
    if media.media_sequence.checked_add(segments.len() as u64).is_none() {
        return Err(format!("EXT-X-MEDIA-SEQUENCE {}", media.media_sequence));
    }
    let target = Duration::from_secs(media.target_duration.min(DAY_S as u64));
    let (sequence, has_end) = (media.media_sequence, media.end_list);
    Ok(FetchedMedia { target, sequence, segments, has_end })
}

/// Refuses known tags that the parser could not parse.
fn refuse_unread(unknown: &[ExtTag]) -> Result<(), String> {
    let is_known = |tag: &&ExtTag| KNOWN_TAGS.contains(&tag.tag.as_str()) && !is_no_key(tag);
    match unknown.iter().find(is_known) {
        None => Ok(()),
        Some(tag) => {
            let rest = one_line(tag.rest.as_deref().unwrap_or_default(), LINE_CHARS_SHOWN);
            Err(format!("EXT-{}:{rest} cannot be read", tag.tag))
        }
    }
}

/// True for METHOD=NONE: the parser requires an IV there, although none is allowed.
fn is_no_key(tag: &ExtTag) -> bool {
    tag.tag == "X-KEY" && tag.rest.as_deref().is_some_and(|rest| rest.trim() == "METHOD=NONE")
}

fn joined(at: &UrlParts, reference: &str) -> Result<UrlParts, String> {
    let refused = || {
        let found = one_line(reference, LINE_CHARS_SHOWN);
        format!("{found}: no http:// address, and this client fetches no other")
    };
    if reference.len() > ADDRESS_BYTES_MAX {
        return Err(format!("an address of {} bytes", reference.len()));
    }
    at.join(reference).ok_or_else(refused)
}

/// Returns the span of a byte range; a range without an offset begins at `next`.
fn span_of(range: &ByteRange, next: Option<u64>) -> Result<ByteSpan, String> {
    let offset = range.offset.or(next).ok_or_else(|| {
        "EXT-X-BYTERANGE without an offset, behind no range of the same file (RFC 8216 §4.3.2.2)"
            .to_owned()
    })?;
    let (bytes, end) = (range.length, offset.checked_add(range.length));
    match end {
        Some(_) if bytes > 0 => Ok(ByteSpan { offset, bytes }),
        _ => Err(format!("a byte range of {bytes} bytes at {offset}")),
    }
}

impl ByteSpan {
    pub(super) fn end(self) -> u64 {
        self.offset + self.bytes
    }
}

impl FetchedMedia {
    /// Number of the segment after the last.
    pub(super) fn end_sequence(&self) -> u64 {
        self.sequence + self.segments.len() as u64
    }

    pub(super) fn segment(&self, sequence: u64) -> Option<&ListedSegment> {
        let index = sequence.checked_sub(self.sequence)?;
        self.segments.get(usize::try_from(index).ok()?)
    }

    /// Length of all segments.
    pub(super) fn duration(&self) -> Duration {
        self.segments.iter().map(|segment| segment.duration).sum()
    }

    /// Number and start time of the segment that contains this time.
    pub(super) fn segment_at(&self, time: Duration) -> (u64, Duration) {
        let mut start = Duration::ZERO;
        for (index, segment) in self.segments.iter().enumerate() {
            if start + segment.duration > time {
                return (self.sequence + index as u64, start);
            }
            start += segment.duration;
        }
        (self.end_sequence(), start)
    }
}

/// Size limit of a playlist: a day of segments of two seconds with long names.
pub(super) const PLAYLIST_BYTES_MAX: usize = 8 << 20;
const SEGMENTS_MAX: usize = 100_000;
/// Limit of lines other than comments: several for each segment.
const LINES_MAX: usize = 400_000;
const VARIANTS_MAX: usize = 500;
const ADDRESS_BYTES_MAX: usize = 4096;
/// The fault when a media file was fetched as a playlist.
const NO_PLAYLIST: &str =
    "media, and no playlist; the HLS of a file is at its address and /master.m3u8";
const LINE_CHARS_SHOWN: usize = 120;
const DAY_S: f64 = 86_400.0;
/// Tags that the parser reports as unknown where their attributes are invalid.
const KNOWN_TAGS: &[&str] =
    &["X-STREAM-INF", "X-MEDIA", "X-MAP", "X-KEY", "X-BYTERANGE", "X-TARGETDURATION"];

const NUMBER_TAGS: &[&str] =
    &["#EXT-X-TARGETDURATION", "#EXT-X-MEDIA-SEQUENCE", "#EXT-X-DISCONTINUITY-SEQUENCE"];
const ATTRIBUTE_TAGS: &[&str] = &[
    "#EXT-X-STREAM-INF",
    "#EXT-X-I-FRAME-STREAM-INF",
    "#EXT-X-MEDIA",
    "#EXT-X-SESSION-DATA",
    "#EXT-X-SESSION-KEY",
    "#EXT-X-START",
    "#EXT-X-KEY",
    "#EXT-X-MAP",
    "#EXT-X-DATERANGE",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<FetchedPlaylist, String> {
        read_playlist(text.as_bytes(), &UrlParts::parse("http://h/film/m.m3u8").unwrap())
    }

    fn media(text: &str) -> Arc<FetchedMedia> {
        match read(text).unwrap() {
            FetchedPlaylist::Media(media) => media,
            master => panic!("{master:?}"),
        }
    }

    #[test]
    fn maps_keys_and_ranges_go_on_to_the_segments_behind() {
        let seen = media(
            "#EXTM3U\r\n#EXT-X-VERSION:7\r\n#EXT-X-TARGETDURATION:4\r\n\
             #EXT-X-MEDIA-SEQUENCE:7\r\n#EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"100\"\r\n\
             #EXTINF:4,one, two, three\r\n#EXT-X-BYTERANGE:50@100\r\nf.mp4\r\n\
             #EXT-X-KEY:METHOD=AES-128,URI=\"k\"\r\n#EXTINF:3.5\r\n#EXT-X-BYTERANGE:60\r\n\
             f.mp4\r\n#EXT-X-DISCONTINUITY\r\n#EXT-X-GAP\r\n#EXT-X-KEY:METHOD=NONE\r\n\
             #EXTINF:2.,\r\n/g.mp4\r\n#EXT-X-ENDLIST",
        );
        assert_eq!((seen.sequence, seen.end_sequence(), seen.has_end), (7, 10, true));
        assert_eq!(seen.target, Duration::from_secs(4));
        assert_eq!(seen.duration(), Duration::from_millis(9500));
        let spans: Vec<_> = seen.segments.iter().map(|segment| segment.resource.span).collect();
        let span = |offset, bytes| Some(ByteSpan { offset, bytes });
        assert_eq!(spans, [span(100, 50), span(150, 60), None]);
        let inits = seen.segments.iter().map(|segment| segment.init.as_deref().unwrap().clone());
        for init in inits {
            assert_eq!((init.address.path.as_str(), init.span), ("/film/i.mp4", span(0, 100)));
        }
        let enciphered: Vec<_> =
            seen.segments.iter().map(|segment| segment.is_enciphered).collect();
        assert_eq!(enciphered, [false, true, false]);
        let last = seen.segment(9).unwrap();
        assert!(last.is_discontinuity && last.is_gap);
        assert_eq!(last.resource.address.path, "/g.mp4");
        assert!(seen.segment(6).is_none() && seen.segment(10).is_none());
        let at = |ms| seen.segment_at(Duration::from_millis(ms));
        assert_eq!(at(0), (7, Duration::ZERO));
        assert_eq!(at(4000), (8, Duration::from_secs(4)));
        assert_eq!(at(9500).0, 10);
    }

    #[test]
    fn master_playlists_have_variants_and_audio() {
        let text = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"en\",DEFAULT=YES,\
            AUTOSELECT=YES,URI=\"audio.m3u8\"\n\
            #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"s\",NAME=\"en\",URI=\"s.m3u8\"\n\
            #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=9,URI=\"i.m3u8\"\n\
            #EXT-X-STREAM-INF:BANDWIDTH=1000,AVERAGE-BANDWIDTH=900,AUDIO=\"a\",\
            CODECS=\"avc1.64001f,mp4a.40.2\",RESOLUTION=1280x720\n../v.m3u8\n";
        let FetchedPlaylist::Master(master) = read(text).unwrap() else { panic!("a master") };
        let [variant] = &master.variants[..] else { panic!("{master:?}") };
        assert_eq!((variant.bandwidth, variant.average_bandwidth), (1000, Some(900)));
        assert_eq!(
            (variant.resolution, variant.address.path.as_str()),
            (Some((1280, 720)), "/v.m3u8")
        );
        let [audio] = &master.audio[..] else { panic!("{master:?}") };
        assert!(audio.is_default && variant.audio_group.as_ref() == Some(&audio.group));
    }

    #[test]
    fn wrong_playlists_are_refused_with_their_line() {
        let head = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n";
        for (text, found) in [
            (String::new(), "an empty playlist"),
            ("<html>".to_owned(), "begins with \"<html>\", not #EXTM3U"),
            ("\u{feff}#EXTM3U\n".to_owned(), "not #EXTM3U"),
            ("#EXTM3U\n#EXTINF:4,\na.ts\n".to_owned(), "no EXT-X-TARGETDURATION"),
            (format!("{head}#EXTINF:-1,\na.ts\n"), "line 3: #EXTINF:-1,: no duration"),
            (format!("{head}#EXTINF:1e3,\na.ts\n"), "line 3"),
            (format!("{head}#EXTINF:NaN,\na.ts\n"), "line 3"),
            (format!("{head}#EXTINF:99999999,\na.ts\n"), "line 3"),
            (format!("{head}#EXT-X-BYTERANGE:5\n#EXTINF:4,\na.ts\n"), "without an offset"),
            (format!("{head}#EXT-X-BYTERANGE:0@5\n#EXTINF:4,\na.ts\n"), "range of 0 bytes at 5"),
            (format!("{head}#EXT-X-BYTERANGE:x\n#EXTINF:4,\na.ts\n"), "EXT-X-BYTERANGE:x cannot"),
            (
                format!("{head}#EXT-X-BYTERANGE:2@18446744073709551615\n#EXTINF:4,\na.ts\n"),
                "range of 2 bytes",
            ),
            (format!("{head}#EXT-X-MAP:BYTERANGE=\"5\"\n#EXTINF:4,\na.ts\n"), "EXT-X-MAP:BYTER"),
            (format!("{head}#EXTINF:4,\nhttps://h/a.ts\n"), "no http:// address"),
            (format!("{head}#EXTINF:4,\n{}\n", "a".repeat(5000)), "address of 5000 bytes"),
            (format!("{head}#EXT-X-I-FRAMES-ONLY\n"), "I-frame playlist"),
            (
                format!("{head}#EXT-X-MEDIA-SEQUENCE:18446744073709551615\n#EXTINF:4,\na.ts\n"),
                "EXT-X-MEDIA-SEQUENCE 18446744073709551615",
            ),
            ("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n".to_owned(), "without an address"),
            ("#EXTM3U\n#EXT-X-STREAM-INF:X=1\nv.m3u8\n".to_owned(), "EXT-X-STREAM-INF:X=1 cannot"),
            (
                "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nv\n#EXTINF:4,\na.ts\n".to_owned(),
                "a master and of a media",
            ),
            (format!("{head}#EXTINF:4,\na\rb.ts\n"), "line 4 cannot be read: a b.ts"),
            (format!("{head}#EXT-X-KEY:METHOD\n#X=\n"), "line 3 cannot be read: #EXT-X-KEY:ME"),
            (format!("{head}#EXT-X-KEY:METHOD=NONE,A\n#=\n"), "line 3 cannot be read"),
            (format!("{head}#EXT-X-MAP:URI=\"a\n#\"\n"), "line 3 cannot be read"),
            ("#EXTM3U\n#EXT-X-TARGETDURATION:4.5\n".to_owned(), "line 2 cannot be read"),
            (format!("{head}#EXT-X-DISCONTINUITY-SEQUENCE:x\n"), "line 3 cannot be read"),
        ] {
            let seen = read(&text).expect_err(&text);
            assert!(seen.contains(found), "{text}: {seen}");
        }
        let binary = read_playlist(b"#EXTM3U\n\xff", &UrlParts::parse("http://h/").unwrap());
        assert!(binary.unwrap_err().starts_with("byte 8: not UTF-8"));
        let media = read_playlist(b"\0\0\0\x18ftypmp42", &UrlParts::parse("http://h/").unwrap());
        assert!(media.unwrap_err().starts_with("media, and no playlist"));
    }

    #[test]
    fn foreign_lines_are_read_or_refused_without_a_panic() {
        let lines = [
            "#EXT-X-TARGETDURATION:4",
            "#EXT-X-MEDIA-SEQUENCE:18446744073709551615",
            "#EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"1@2\"",
            "#EXT-X-BYTERANGE:5@18446744073709551611",
            "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x00",
            "#EXTINF:4.0,a,b",
            "#EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"a\"",
            "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"n\",URI=\"\"",
            "#EXT-X-DISCONTINUITY",
            "#EXT-X-ENDLIST",
            "#",
            "",
            "http://[::1/a.ts",
            "../../a.ts?b#c",
            "\u{fc}.ts",
        ];
        let mut noise = 1_u64;
        let mut next = |below: usize| {
            // xorshift64.
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            (noise >> 11) as usize % below
        };
        let (mut good, mut bad) = (0, 0);
        for _ in 0..4000 {
            let mut text = b"#EXTM3U\n#EXT-X-TARGETDURATION:4\n".to_vec();
            for _ in 0..next(12) {
                text.extend_from_slice(lines[next(lines.len())].as_bytes());
                text.extend_from_slice([&b"\n"[..], b"\r\n"][next(2)]);
            }
            if next(2) == 0 {
                let at = next(text.len());
                text[at] = b" ,=:\"\n@#0"[next(9)];
            }
            match read_playlist(&text, &UrlParts::parse("http://h/m.m3u8").unwrap()) {
                Ok(_) => good += 1,
                Err(_) => bad += 1,
            }
        }
        assert!(good > 50 && bad > 50, "{good} read, {bad} refused");
    }

    #[test]
    fn too_many_segments_are_refused() {
        let mut text = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n".to_owned();
        text.push_str(&"#EXTINF:1,\na\n".repeat(SEGMENTS_MAX));
        assert_eq!(media(&text).segments.len(), SEGMENTS_MAX);
        text.push_str("#EXTINF:1,\na\n");
        assert!(read(&text).unwrap_err().contains("more than 100000 addresses"));
        let head = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n";
        let tags = "#EXT-X-GAP\n".repeat(LINES_MAX);
        assert!(read(&format!("{head}{tags}")).unwrap_err().contains("more than 400000 lines"));
        let comments = "#\n\n".repeat(PLAYLIST_BYTES_MAX / 3);
        assert!(media(&format!("{head}{comments}")).segments.is_empty());
    }
}
