// SPDX-License-Identifier: MIT OR Apache-2.0
//! Media playlists of a film and its parts, written and read again.
//!
//! Data for `unseal` beyond the standard are in comments (lines that begin with `#` but not with
//! `#EXT`, which players skip): the film's name and size, how often keys change, and for each
//! segment the count of packets in front (tables, parameter sets) and a hash of its number, these
//! packets and the data after them. With keys the hash is keyed, so it reveals nothing without
//! them. Playlists written before `CHECKS=2` have hashes of the data after these packets only.
//!
//! Sources: RFC 8216 §4.1 (lines, peak bit rate), §4.3 (tags), §5.2 (IV by sequence number).
//! Does not read playlists of other programs, which do not describe the source.

use std::fmt::Write;

use super::FilmFault;
use super::keys::{escape, unescape};
use crate::dir_handle::DirHandle;
use crate::error::Error;
use crate::target_path::c_string;
use crate::trust::{self, Writer};

/// Name of the multivariant playlist in a film's folder.
pub const MASTER: &str = "master.m3u8";
/// Name of the media playlist.
pub const MEDIA: &str = "media.m3u8";

/// Most bytes of a playlist that are read: a segment a second for ten years would not fit.
pub(super) const PLAYLIST_BYTES_MAX: u64 = 256 << 20;

/// Ticks of the system clock in a microsecond.
const TICKS_PER_US: u64 = media::TICKS_PER_SECOND / 1_000_000;

/// A segment in a playlist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentLine {
    /// Duration in ticks of the system clock.
    pub(super) ticks: u64,
    /// Bytes of its file.
    pub(super) bytes: u64,
    /// True when timestamps do not continue those of the segment before.
    pub(super) is_break: bool,
    /// Packets in front: tables, and parameter sets behind them.
    pub(super) tables: u64,
    /// Hash of the segment.
    pub(super) check: [u8; 16],
    /// IV of the segment, where it is not the sequence number.
    pub(super) iv: Option<[u8; 16]>,
}

/// A film or part in its media playlist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Playlist {
    /// Name in the derivation of keys: the film's, followed by the part's.
    pub(super) name: String,
    /// The part of the film; empty for the whole stream.
    pub(super) id: String,
    /// Bytes of the source; `tail_bytes` of them, at the end, are in no segment.
    pub(super) source_bytes: u64,
    pub(super) tail_bytes: u64,
    /// Segments a key; 0 when all have one key. `None` without encryption.
    pub(super) rotation: Option<u64>,
    /// True when hashes are of whole segments; false: of their bytes of the source.
    pub(super) checks_all: bool,
    pub(super) target_s: u64,
    pub(super) lines: Vec<SegmentLine>,
}

/// Returns the name of a segment's file in the part `id`; the whole stream has no `id`.
pub(super) fn segment_name(id: &str, index: u64) -> String {
    match id {
        "" => format!("{index:05}.ts"),
        id => format!("{id}-{index:05}.ts"),
    }
}

/// Returns the name of the media playlist of the part `id`.
pub(super) fn playlist_name(id: &str) -> String {
    match id {
        "" => MEDIA.to_owned(),
        id => format!("{id}.m3u8"),
    }
}

/// Returns the name from which keys of the part `id` of a film are derived.
pub(super) fn key_name(film: &str, id: &str) -> String {
    match id {
        "" => film.to_owned(),
        id => format!("{film}/{id}"),
    }
}

impl Playlist {
    /// Returns the number of the key of segment `index`.
    pub(super) fn key_number(&self, index: u64) -> u64 {
        key_number(self.rotation, index)
    }

    /// Returns the IV of segment `index`.
    pub(super) fn iv(&self, index: u64) -> [u8; 16] {
        let line = usize::try_from(index).ok().and_then(|index| self.lines.get(index));
        line.and_then(|line| line.iv).unwrap_or_else(|| u128::from(index).to_be_bytes())
    }

    /// Returns the text of the media playlist; `uri` returns the URI of a key.
    pub(super) fn media(&self, uri: impl Fn(u64) -> String) -> String {
        let mut text = String::with_capacity(512 + self.lines.len() * 128);
        let version = 3;
        let name = escape(&self.name);
        let rotation = self.rotation.map_or("none".to_owned(), |segments| segments.to_string());
        let checks = if self.checks_all { ",CHECKS=2" } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "#EXTM3U\n#EXT-X-VERSION:{version}\n#EXT-X-TARGETDURATION:{}\n\
             #EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n\
             {FILM}NAME={name},BYTES={},TAIL={},ROTATION={rotation}{checks}\n",
            self.target_s, self.source_bytes, self.tail_bytes,
        );
        let mut key: Option<(u64, Option<[u8; 16]>)> = None;
        for (index, line) in (0..).zip(&self.lines) {
            let wanted = (self.key_number(index), line.iv);
            if self.rotation.is_some() && key != Some(wanted) {
                key = Some(wanted);
                let _ = write!(text, "#EXT-X-KEY:METHOD=AES-128,URI=\"{}\"", uri(wanted.0));
                if let Some(iv) = line.iv {
                    let _ = write!(text, ",IV=0x{:032X}", u128::from_be_bytes(iv));
                }
                text.push('\n');
            }
            if line.is_break {
                text.push_str("#EXT-X-DISCONTINUITY\n");
            }
            let check = u128::from_be_bytes(line.check);
            let us = line.ticks / TICKS_PER_US;
            let _ = writeln!(
                text,
                "{SEGMENT}TABLES={},CHECK={check:032x}\n#EXTINF:{}.{:06},\n{}",
                line.tables,
                us / 1_000_000,
                us % 1_000_000,
                segment_name(&self.id, index)
            );
        }
        text.push_str("#EXT-X-ENDLIST\n");
        text
    }

    /// Returns peak and average segment bit rate (RFC 8216 §4.1). The peak is the highest rate of
    /// neighbours that together play half to one and a half of the target duration. Segments that
    /// together play less than a sixteenth of it count as one, so each is visited about twenty
    /// times at most, however short they are.
    pub(super) fn bits_per_second(&self) -> (u64, u64) {
        let target = self.target_s.saturating_mul(media::TICKS_PER_SECOND);
        let (shortest, longest) = (target / 2, target.saturating_add(target / 2));
        let mut together: Vec<(u64, u64)> = Vec::new();
        for line in &self.lines {
            match together.last_mut() {
                Some((bytes, ticks)) if *ticks < target / 16 => {
                    *bytes += line.bytes;
                    *ticks += line.ticks;
                }
                _ => together.push((line.bytes, line.ticks)),
            }
        }
        let mut peak = 0;
        for first in 0..together.len() {
            let (mut bytes, mut ticks) = (0, 0);
            for (more_bytes, more_ticks) in &together[first..] {
                bytes += more_bytes;
                ticks += more_ticks;
                if ticks > longest {
                    break;
                }
                if ticks >= shortest {
                    peak = peak.max(rate(bytes, ticks));
                }
            }
        }
        let bytes = self.lines.iter().map(|line| line.bytes).sum();
        let ticks = self.lines.iter().map(|line| line.ticks).sum();
        let average = rate(bytes, ticks);
        (peak.max(average), average)
    }

    /// Reads a media playlist that [`Playlist::media`] wrote; the error is the line of the fault.
    pub(super) fn read(text: &str, id: &str) -> Result<Self, u64> {
        let mut playlist: Option<Self> = None;
        let mut target_s = 0;
        let mut line = SegmentLine::default();
        let mut has_ended = false;
        for (number, text) in (1..).zip(text.lines()) {
            let bad = || number;
            if number == 1 && text != "#EXTM3U" || has_ended {
                return Err(number);
            }
            if let Some(seconds) = text.strip_prefix("#EXT-X-TARGETDURATION:") {
                target_s = seconds.parse().map_err(|_| number)?;
            } else if let Some(attributes) = text.strip_prefix(FILM) {
                playlist = Some(film(attributes, id, target_s).ok_or_else(bad)?);
            } else if let Some(attributes) = text.strip_prefix("#EXT-X-KEY:") {
                line.iv = iv(attributes).ok_or_else(bad)?;
            } else if text == "#EXT-X-DISCONTINUITY" {
                line.is_break = true;
            } else if let Some(attributes) = text.strip_prefix(SEGMENT) {
                let tables = attribute(attributes, "TABLES").and_then(|n| n.parse().ok());
                line.tables = tables.filter(|&n| n <= TABLES_MAX).ok_or_else(bad)?;
                line.check = attribute(attributes, "CHECK").and_then(hex).ok_or_else(bad)?;
            } else if let Some(seconds) = text.strip_prefix("#EXTINF:") {
                line.ticks = ticks(seconds).ok_or_else(bad)?;
            } else if text == "#EXT-X-ENDLIST" {
                has_ended = true;
            } else if !text.starts_with('#') {
                let playlist = playlist.as_mut().ok_or(number)?;
                if text != segment_name(id, playlist.lines.len() as u64) || line.ticks == u64::MAX {
                    return Err(number);
                }
                // The IV of a key tag is for all segments up to the next one.
                let next = SegmentLine { iv: line.iv, ..SegmentLine::default() };
                playlist.lines.push(std::mem::replace(&mut line, next));
            }
        }
        let end = text.lines().count() as u64;
        let whole = playlist.filter(|playlist| has_ended && !playlist.lines.is_empty());
        whole.ok_or(end)
    }
}

impl Default for SegmentLine {
    fn default() -> Self {
        // Ticks that no segment has: no EXTINF was read yet.
        let ticks = u64::MAX;
        Self { ticks, bytes: 0, is_break: false, tables: 0, check: [0; 16], iv: None }
    }
}

/// Reads the media playlist of the part `id` in a film's `folder`.
///
/// # Errors
/// The playlist is missing, is not one that [`Playlist::media`] wrote, or cannot be read.
pub(super) fn read_playlist(folder: &DirHandle, id: &str) -> Result<Playlist, Error> {
    let name = c_string(playlist_name(id).as_ref())?;
    let path = folder.shown(&name);
    let refuse = |line| Error::file(&path, FilmFault::Playlist { line }.into());
    let text = trust::read(folder, &name, Writer::Anybody, PLAYLIST_BYTES_MAX)?
        .ok_or_else(|| Error::file(&path, FilmFault::Missing.into()))?;
    let text = String::from_utf8(text).map_err(|_| refuse(1))?;
    Playlist::read(&text, id).map_err(refuse)
}

/// Returns the number of the key of segment `index`; `rotation` is segments a key.
pub(super) fn key_number(rotation: Option<u64>, index: u64) -> u64 {
    index.checked_div(rotation.unwrap_or(0)).unwrap_or(0)
}

fn rate(bytes: u64, ticks: u64) -> u64 {
    let bits = u128::from(bytes) * 8 * u128::from(media::TICKS_PER_SECOND);
    u64::try_from(bits.div_ceil(u128::from(ticks.max(1)))).unwrap_or(u64::MAX)
}

fn film(attributes: &str, id: &str, target_s: u64) -> Option<Playlist> {
    let number = |name| attribute(attributes, name)?.parse().ok();
    let rotation = match attribute(attributes, "ROTATION")? {
        "none" => None,
        segments => Some(segments.parse().ok()?),
    };
    let checks_all = match attribute(attributes, "CHECKS") {
        None => false,
        Some("2") => true,
        Some(_) => return None,
    };
    Some(Playlist {
        name: unescape(attribute(attributes, "NAME")?)?,
        id: id.to_owned(),
        source_bytes: number("BYTES")?,
        tail_bytes: number("TAIL")?,
        rotation,
        checks_all,
        target_s,
        lines: Vec::new(),
    })
}

/// Returns the value of an attribute in a list without quotes.
fn attribute<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    list.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// Returns the IV of a key tag, `Some(None)` without one; its URI is quoted and holds no quotes.
fn iv(attributes: &str) -> Option<Option<[u8; 16]>> {
    let after = attributes.strip_prefix("METHOD=AES-128,URI=\"")?.split_once('"')?.1;
    match after {
        "" => Some(None),
        iv => Some(Some(hex(iv.strip_prefix(",IV=0x")?)?)),
    }
}

fn hex(digits: &str) -> Option<[u8; 16]> {
    let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = u128::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
    Some(value.to_be_bytes())
}

/// Parses `SECONDS.MICROSECONDS,` into ticks.
fn ticks(text: &str) -> Option<u64> {
    let (seconds, us) = text.strip_suffix(',')?.split_once('.')?;
    if us.len() != 6 || !us.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let us: u64 = us.parse().ok()?;
    let seconds: u64 = seconds.parse().ok()?;
    seconds.checked_mul(1_000_000)?.checked_add(us)?.checked_mul(TICKS_PER_US)
}

/// Most packets of tables, which are two sections, and of the parameter sets behind them, which are
/// 4 KiB.
const TABLES_MAX: u64 = 16 + 32;
const FILM: &str = "#PAGEWIRE-FILM:";
const SEGMENT: &str = "#PAGEWIRE-SEGMENT:";

#[cfg(test)]
mod tests {
    use super::*;

    fn playlist(rotation: Option<u64>, with_iv: bool) -> Playlist {
        let line = |index: u8| SegmentLine {
            ticks: 6 * media::TICKS_PER_SECOND + u64::from(index) * TICKS_PER_US,
            bytes: 0,
            is_break: index == 2,
            tables: 2,
            check: [index; 16],
            iv: with_iv.then_some([0xa0 | index; 16]),
        };
        Playlist {
            name: "a, b/\"ü\"".to_owned(),
            id: String::new(),
            source_bytes: 1_880_100,
            tail_bytes: 100,
            rotation,
            checks_all: rotation != Some(0),
            target_s: 6,
            lines: (0..5).map(line).collect(),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for rotation in [None, Some(0), Some(2)] {
            for with_iv in [false, rotation.is_some()] {
                let written = playlist(rotation, with_iv);
                let text = written.media(|number| format!("/keys/{number}?a=1,b"));
                assert_eq!(Playlist::read(&text, ""), Ok(written.clone()), "{text}");
                let part = Playlist { id: "audio-257".to_owned(), ..written };
                let text = part.media(|number| number.to_string());
                assert_eq!(Playlist::read(&text, "audio-257"), Ok(part), "{text}");
                assert!(Playlist::read(&text, "").is_err(), "segments of another part");
            }
        }
    }

    #[test]
    fn key_tags_are_as_many_as_there_are_keys_or_ivs() {
        let tags = |rotation, with_iv| {
            let text = playlist(rotation, with_iv).media(|number| number.to_string());
            text.lines().filter(|line| line.starts_with("#EXT-X-KEY")).count()
        };
        assert_eq!(tags(None, false), 0);
        assert_eq!(tags(Some(0), false), 1);
        assert_eq!(tags(Some(2), false), 3);
        assert_eq!(tags(Some(2), true), 5);
    }

    #[test]
    fn playlists_that_are_not_ours_or_cut_off_are_refused_with_the_line() {
        let text = playlist(Some(2), true).media(|number| number.to_string());
        assert_eq!(Playlist::read("", ""), Err(0));
        assert_eq!(Playlist::read("#EXTM3U\n#EXTINF:6.0,\na.ts\n", ""), Err(2));
        let digits = text.split_once(",IV=0x").expect("a vector").1;
        let digits = digits.split_once('\n').expect("its end").0;
        let is_digit = |c: char| c.is_ascii_digit() || ('A'..='F').contains(&c);
        assert!(digits.len() == 32 && digits.chars().all(is_digit), "RFC 8216 §4.2: {digits}");
        for (at, _) in text.match_indices('\n') {
            assert!(at + 1 == text.len() || Playlist::read(&text[..at], "").is_err());
        }
        for (from, to) in [
            ("00002.ts", "../../etc/passwd"),
            ("TABLES=2", "TABLES=2000000"),
            ("CHECK=0", "CHECK=+"),
            ("IV=0x", "IV=1x"),
            ("BYTES=1", "BYTES=-1"),
            ("#EXTINF:6.", "#EXTINF:99999999999999999999."),
        ] {
            assert!(
                text.contains(from) && Playlist::read(&text.replacen(from, to, 1), "").is_err()
            );
        }
    }

    #[test]
    fn peak_is_that_of_neighbours_and_the_average_of_all() {
        let mut list = playlist(None, false);
        // A short segment of a high rate counts only with its neighbours.
        let second = media::TICKS_PER_SECOND;
        for (line, (ticks, bytes)) in list.lines.iter_mut().zip([
            (6 * second, 6_000),
            (second, 10_000),
            (6 * second, 6_000),
            (6 * second, 12_000),
            (3 * second, 3_000),
        ]) {
            (line.ticks, line.bytes) = (ticks, bytes);
        }
        // 16,000 bytes in 7 s; the whole is 37,000 bytes in 22 s.
        assert_eq!(list.bits_per_second(), (18_286, 13_455));
    }

    #[test]
    fn half_a_million_segments_of_no_length_have_their_peak_at_once() {
        let mut list = playlist(None, false);
        let line = |at: u64| SegmentLine {
            ticks: if at.is_multiple_of(100_000) { media::TICKS_PER_SECOND } else { 0 },
            bytes: 576,
            ..list.lines[0].clone()
        };
        list.lines = (0..500_000).map(line).collect();
        let began = std::time::Instant::now();
        let (peak, average) = list.bits_per_second();
        // Unjoined, each segment was added to all of the next 9 s: 10¹¹ additions.
        assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
        assert_eq!(average, 576 * 100_000 * 8);
        assert!((average..=average * 2).contains(&peak), "{peak}");
    }
}
