// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments of a media playlist, each with the tags that apply to it.
//!
//! Sources: RFC 8216 §3, §4.3.2 (reach of tags), §4.3.3.2, §4.3.3.3 (numbers);
//! draft-pantos-hls-rfc8216bis §4.4.4.9 (parts), §4.4.5.2 (EXT-X-SKIP). Does not judge: the rules
//! do.

use crate::site::Playlist;

/// A segment, or the parts of an incomplete one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MediaSegment<'a> {
    /// Media sequence number.
    pub(crate) number: u64,
    /// Discontinuity sequence number; true where the segment has the tag.
    pub(crate) discontinuity: u64,
    pub(crate) is_break: bool,
    /// Empty for an incomplete segment.
    pub(crate) uri: &'a str,
    pub(crate) duration: &'a str,
    pub(crate) range: &'a str,
    pub(crate) date: Option<&'a str>,
    /// Attribute lists of the keys and of the map in force.
    pub(crate) keys: Vec<&'a str>,
    pub(crate) map: Option<&'a str>,
    /// Attribute lists.
    pub(crate) parts: Vec<&'a str>,
}

impl MediaSegment<'_> {
    pub(crate) fn is_whole(&self) -> bool {
        !self.uri.is_empty()
    }

    pub(crate) fn seconds(&self) -> f64 {
        let number = self.duration.split(',').next().unwrap_or_default();
        number.parse().unwrap_or(f64::NAN)
    }
}

/// Returns the segments of a playlist, without those that EXT-X-SKIP replaces; the last may be the
/// parts of an incomplete one.
pub(crate) fn segments(playlist: &Playlist) -> Vec<MediaSegment<'_>> {
    let number = |tag: &str| playlist.values(tag).first().and_then(|value| value.parse().ok());
    let skipped = playlist.values("EXT-X-SKIP").first().map_or(0, |list| {
        let count = attribute(list, "SKIPPED-SEGMENTS").and_then(|count| count.parse().ok());
        count.unwrap_or(0)
    });
    let mut next = MediaSegment {
        number: number("EXT-X-MEDIA-SEQUENCE").unwrap_or(0) + skipped,
        discontinuity: number("EXT-X-DISCONTINUITY-SEQUENCE").unwrap_or(0),
        ..MediaSegment::default()
    };
    let mut found = Vec::new();
    for line in playlist.text.lines() {
        let (tag, value) = line.split_once(':').unwrap_or((line, ""));
        match tag {
            "#EXTINF" => next.duration = value,
            "#EXT-X-BYTERANGE" => next.range = value,
            "#EXT-X-PROGRAM-DATE-TIME" => next.date = Some(value),
            "#EXT-X-MAP" => next.map = Some(value),
            "#EXT-X-PART" => next.parts.push(value),
            "#EXT-X-DISCONTINUITY" => {
                (next.discontinuity, next.is_break) = (next.discontinuity + 1, true);
            }
            "#EXT-X-KEY" => {
                let format = |list: &str| attribute(list, "KEYFORMAT").map(str::to_owned);
                let is_none = attribute(value, "METHOD") == Some("NONE");
                next.keys.retain(|list| !is_none && format(list) != format(value));
                next.keys.extend((!is_none).then_some(value));
            }
            _ if line.is_empty() || line.starts_with('#') => {}
            _ => {
                next.uri = line;
                let MediaSegment { number, discontinuity, ref keys, map, .. } = next;
                let keys = keys.clone();
                let behind = MediaSegment {
                    number: number + 1,
                    discontinuity,
                    keys,
                    map,
                    ..MediaSegment::default()
                };
                found.push(std::mem::replace(&mut next, behind));
            }
        }
    }
    found.extend((!next.parts.is_empty()).then_some(next));
    found
}

/// Parses an attribute list; returns `None` where it is invalid.
pub(crate) fn attributes(list: &str) -> Option<Vec<(&str, &str)>> {
    let mut found = Vec::new();
    let mut rest = list;
    loop {
        let (name, value) = rest.split_once('=')?;
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(is_name) {
            return None;
        }
        let end = match value.strip_prefix('"') {
            Some(quoted) => quoted.find('"')? + 2,
            None => value.find(',').unwrap_or(value.len()),
        };
        let (value, behind) = value.split_at(end);
        if value.is_empty() || !value.starts_with('"') && value.contains([' ', '"']) {
            return None;
        }
        found.push((name, value));
        match behind.strip_prefix(',') {
            Some(next) => rest = next,
            None => return behind.is_empty().then_some(found),
        }
    }
}

pub(crate) fn attribute<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    attributes(list)?.into_iter().find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// True of a string in quotes that is not empty.
pub(crate) fn is_quoted(value: &str) -> bool {
    value.len() > 2 && value.starts_with('"')
}

/// Parses a number with or without fraction, and without a sign (RFC 8216 §4.2).
pub(crate) fn decimal(text: &str) -> Option<f64> {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    (is_digits(whole) && is_digits(fraction)).then(|| text.parse().ok()).flatten()
}
