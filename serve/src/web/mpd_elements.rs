// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements that descriptions of MPEG-DASH share: the beginning and the end of one that is loaded
//! again and again, representations, roles, and entries of timelines.
//!
//! Writing to a String cannot fail.
//!
//! Sources: ISO/IEC 23009-1 §5.3.1 (MPD), §5.3.5 (representations), §5.3.9.6 (SegmentTimeline),
//! §5.15 (Location), §5.8.4.11 (UTCTiming), §5.8.5.5 (roles); ISO/IEC 23001-8 (channel
//! configurations).
//! Does not write whole descriptions ([`super::manifest`], [`super::live_manifest`]).

use std::fmt::Write;
use std::time::SystemTime;

use jiff::Timestamp;
use media::tracks::{Codec, Display, PixelAspect, ShownPictures};

use super::sounds::channels;

pub(super) const PROFILES: &str =
    "urn:mpeg:dash:profile:isoff-live:2011,urn:mpeg:dash:profile:cmaf:2019";

/// Target durations by which players stay behind the last segment, as those of HLS do.
const DELAY_TARGETS: u64 = 3;

/// Times of a description that is loaded again and again.
pub(super) struct DynamicTimes<'a> {
    /// Date of the time zero of recording or channel.
    pub(super) began: SystemTime,
    pub(super) now: SystemTime,
    pub(super) target_s: u64,
    pub(super) is_complete: bool,
    pub(super) identity: &'a str,
}

/// Writes the beginning of a description of media that end at `end_s`, of which `listed_s` are
/// listed, with segments of `longest_s` at most, all in seconds.
pub(super) fn write_beginning(
    text: &mut String,
    times: &DynamicTimes<'_>,
    (end_s, listed_s, longest_s): (f64, f64, f64),
) {
    let DynamicTimes { began, now, target_s, is_complete, identity } = *times;
    text.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = write!(
        text,
        "<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" profiles=\"{PROFILES}\" type=\"{}\" \
         availabilityStartTime=\"{}\" publishTime=\"{}\"",
        if is_complete { "static" } else { "dynamic" },
        date(began),
        date(now),
    );
    if is_complete {
        let _ = write!(text, " mediaPresentationDuration=\"PT{end_s:.3}S\"");
    } else {
        let _ = write!(
            text,
            " minimumUpdatePeriod=\"PT{}S\" timeShiftBufferDepth=\"PT{listed_s:.3}S\" \
             suggestedPresentationDelay=\"PT{}S\"",
            (target_s / 2).max(1),
            DELAY_TARGETS * target_s
        );
    }
    let _ = write!(
        text,
        " maxSegmentDuration=\"PT{longest_s:.3}S\" minBufferTime=\"PT{target_s}S\">\n  \
         <Location>~{identity}.mpd</Location>\n"
    );
}

/// Returns the end of a description that is sent `now`.
pub(super) fn end(now: SystemTime) -> String {
    format!(
        "  <UTCTiming schemeIdUri=\"urn:mpeg:dash:utc:direct:2014\" value=\"{}\"/>\n</MPD>\n",
        date(now)
    )
}

fn date(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(|_| String::new(), |time| format!("{time:.3}"))
}

/// Writes a role of a set (ISO/IEC 23009-1 §5.8.5.5).
pub(super) fn write_role(text: &mut String, role: &str) {
    let _ =
        writeln!(text, "      <Role schemeIdUri=\"urn:mpeg:dash:role:2011\" value=\"{role}\"/>");
}

/// Begins a representation of this peak rate, bits a second.
pub(super) fn begin_representation(
    text: &mut String,
    id: usize,
    peak: u64,
    (codec, display): (&Codec, Display),
) {
    let _ = write!(
        text,
        "      <Representation id=\"{id}\" bandwidth=\"{peak}\" codecs=\"{}\"",
        codec.name()
    );
    if let Some(shown) = ShownPictures::of(codec, display) {
        let (width, height) = shown.size;
        let _ = write!(text, " width=\"{width}\" height=\"{height}\"");
        if shown.pixel_aspect != PixelAspect::SQUARE {
            let (width, height) = shown.pixel_aspect.numbers();
            let _ = write!(text, " sar=\"{width}:{height}\"");
        }
    }
    if let Some(rate) = sampling_rate(codec) {
        let _ = write!(text, " audioSamplingRate=\"{rate}\"");
    }
    text.push_str(">\n");
    if let Some(channels) = channels(codec) {
        let _ = writeln!(
            text,
            "        <AudioChannelConfiguration \
             schemeIdUri=\"urn:mpeg:dash:23003:3:audio_channel_configuration:2011\" \
             value=\"{channels}\"/>"
        );
    }
}

/// Writes start and duration of segments; neighbours of one duration share an element.
pub(super) fn write_entries(text: &mut String, entries: &[(u64, u64)]) {
    let mut at = 0;
    let mut expected = None;
    while let Some(&(start, duration)) = entries.get(at) {
        let same = entries[at + 1..].iter().zip(1..);
        let same = same.take_while(|&(&(next, other), count)| {
            other == duration && next == start + count * duration
        });
        let repeated = same.count();
        text.push_str("            <S");
        if expected != Some(start) {
            let _ = write!(text, " t=\"{start}\"");
        }
        let _ = write!(text, " d=\"{duration}\"");
        if repeated > 0 {
            let _ = write!(text, " r=\"{repeated}\"");
        }
        text.push_str("/>\n");
        expected = Some(start + duration * (repeated as u64 + 1));
        at += repeated + 1;
    }
}

fn sampling_rate(codec: &Codec) -> Option<u32> {
    match codec {
        Codec::Aac(config) => Some(config.rate_hz),
        Codec::Opus { .. } => Some(codec.clock_rate_hz()),
        Codec::Ac3 { rate_hz, .. } | Codec::Eac3 { rate_hz, .. } => Some(*rate_hz),
        _ => None,
    }
}
