// SPDX-License-Identifier: MIT OR Apache-2.0
//! Result of an HLS play: figures for programs (serde), a short report for people (`Display`).
//!
//! Sources: RFC 8216 §4.3.4.2 (BANDWIDTH: peak rate of a variant with its renditions).
//! Does not judge bit rates: the report shows the announced rate beside the measured one.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use serde::Serialize;

use super::buffer_model::PlayStall;
use super::segment_check::SegmentContainer;
use super::viewer::Viewer;
use crate::plural::counted;

/// Reason of the end of an HLS play.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HlsEnd {
    /// All segments of a playlist with an end were played.
    Complete,
    /// The requested length was played.
    Length,
    /// The caller stopped the play.
    Stopped,
    /// A live playlist did not change.
    Quiet {
        /// Seconds without a change.
        seconds: u64,
    },
    /// Several segments in a row, or the playlist, could not be fetched.
    Failed {
        /// The last fault.
        found: String,
    },
}

/// A fault, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HlsFault {
    /// Address of the playlist or the segment.
    pub address: String,
    /// Offset in the file, if any.
    pub offset: Option<u64>,
    /// The fault.
    pub found: String,
}

/// A played variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PlayedVariant {
    /// Address of its playlist.
    pub address: String,
    /// BANDWIDTH, in bits a second.
    pub bandwidth: u64,
    /// AVERAGE-BANDWIDTH, in bits a second.
    pub average_bandwidth: Option<u64>,
    /// CODECS.
    pub codecs: Option<String>,
    /// RESOLUTION: width and height.
    pub resolution: Option<(u64, u64)>,
}

/// A played rendition.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PlayedRendition {
    /// Address of its playlist; of the last one where variants were switched.
    pub address: String,
    /// Container of its segments.
    pub container: Option<SegmentContainer>,
    /// Segments received completely.
    pub segments: u64,
    /// Bytes of these segments and of init sections.
    pub bytes: u64,
    /// Length of these segments, in seconds.
    pub media_s: f64,
    /// Mean bit rate, in bits a second.
    pub bit_rate: f64,
    /// Bit rate of the segment with the highest rate.
    pub bit_rate_peak: f64,
    /// Discontinuities marked in the playlist.
    pub discontinuities: u64,
    /// Segments that the playlist marks as missing.
    pub gaps: u64,
    /// Segments that could not be fetched, or that left the playlist before.
    pub missed: u64,
    /// Init sections.
    pub init_sections: u64,
}

/// Result of an HLS play.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HlsVerdict {
    /// URL that was played.
    pub url: String,
    /// Reason of the end.
    pub end: HlsEnd,
    /// The playlist had no end when play began.
    pub is_live: bool,
    /// The variant that was played last; none without a master playlist.
    pub variant: Option<PlayedVariant>,
    /// Variants of the master playlist.
    pub variants: usize,
    /// Changes of the variant.
    pub switches: u64,
    /// The main rendition, and the separately fetched audio.
    pub renditions: Vec<PlayedRendition>,
    /// Renditions of the master playlist that were not fetched, each with the reason.
    pub left_out: Vec<String>,
    /// Time from the first request to the start of play, in seconds; none where play never began.
    pub start_s: Option<f64>,
    /// Media played, in seconds.
    pub media_s: f64,
    /// Length of all segments of a playlist with an end, in seconds.
    pub duration_s: Option<f64>,
    /// Time from the first request to the end, in seconds.
    pub wall_s: f64,
    /// Fetched without waiting for the clock.
    pub is_fast: bool,
    /// Number of stalls.
    pub stalls: u64,
    /// Length of all stalls, in seconds.
    pub stalled_s: f64,
    /// The first stalls.
    pub first_stalls: Vec<PlayStall>,
    /// Bytes of segments and init sections.
    pub bytes: u64,
    /// Bytes of playlists.
    pub playlist_bytes: u64,
    /// Times that a playlist was loaded.
    pub playlist_loads: u64,
    /// Requests.
    pub requests: u64,
    /// Connections.
    pub connections: u64,
    /// Number of faults.
    pub fault_count: u64,
    /// The first faults.
    pub faults: Vec<HlsFault>,
    /// File with the segments' bytes, and its length.
    pub output: Option<(PathBuf, u64)>,
}

impl HlsVerdict {
    pub(super) fn new(url: String, end: HlsEnd, viewer: &Viewer<'_>) -> HlsVerdict {
        let state = viewer.lock();
        let model = state.model.as_ref();
        let (stalls, stalled, listed) = model.map(|model| model.stalls()).unwrap_or_default();
        let renditions: Vec<_> = state
            .renditions
            .iter()
            .map(|stats| {
                let media_s = stats.media.as_secs_f64();
                PlayedRendition {
                    address: stats.address.clone(),
                    container: stats.container,
                    segments: stats.segments,
                    bytes: stats.bytes,
                    media_s,
                    bit_rate: if media_s > 0.0 { stats.bytes as f64 * 8.0 / media_s } else { 0.0 },
                    bit_rate_peak: stats.peak_bits_per_second,
                    discontinuities: stats.discontinuities,
                    gaps: stats.gaps,
                    missed: stats.missed,
                    init_sections: stats.init_sections,
                }
            })
            .collect();
        let variant = state.variant.as_ref().map(|variant| PlayedVariant {
            address: variant.address.to_string(),
            bandwidth: variant.bandwidth,
            average_bandwidth: variant.average_bandwidth,
            codecs: variant.codecs.clone(),
            resolution: variant.resolution,
        });
        HlsVerdict {
            url,
            end,
            is_live: state.is_live,
            variant,
            variants: state.variants,
            switches: state.switches,
            bytes: renditions.iter().map(|rendition| rendition.bytes).sum(),
            start_s: model.and_then(|model| model.start()).map(|start| start.as_secs_f64()),
            media_s: renditions.iter().map(|rendition| rendition.media_s).fold(0.0, f64::max),
            renditions,
            left_out: state.left_out.clone(),
            duration_s: state.duration.map(|duration| duration.as_secs_f64()),
            wall_s: viewer.began.elapsed().as_secs_f64(),
            is_fast: false,
            stalls,
            stalled_s: stalled.as_secs_f64(),
            first_stalls: listed.to_vec(),
            playlist_bytes: state.playlist_bytes,
            playlist_loads: state.playlist_loads,
            requests: viewer.counts.requests.load(Ordering::Relaxed),
            connections: viewer.counts.connections.load(Ordering::Relaxed),
            fault_count: state.fault_count,
            faults: state.faults.clone(),
            output: None,
        }
    }

    /// Returns true where every segment was received without a fault, and play did not stall.
    /// Segments that the playlist itself marks as missing are ignored.
    pub fn is_whole(&self) -> bool {
        let is_ended = matches!(self.end, HlsEnd::Complete | HlsEnd::Length | HlsEnd::Stopped);
        is_ended
            && self.fault_count == 0
            && self.stalls == 0
            && self.renditions.iter().all(|rendition| rendition.missed == 0)
            && self.renditions.first().is_some_and(|rendition| rendition.segments > 0)
    }
}

impl fmt::Display for HlsEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HlsEnd::Complete => f.write_str("played to the end"),
            HlsEnd::Length => f.write_str("played for the length asked for"),
            HlsEnd::Stopped => f.write_str("stopped"),
            HlsEnd::Quiet { seconds } => {
                write!(f, "the playlist did not change for {seconds} s, and has no end")
            }
            HlsEnd::Failed { found } => write!(f, "given up: {found}"),
        }
    }
}

impl fmt::Display for HlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "{} byte {offset}: {}", self.address, self.found),
            None => write!(f, "{}: {}", self.address, self.found),
        }
    }
}

impl fmt::Display for SegmentContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SegmentContainer::TransportStream => "TS",
            SegmentContainer::Fmp4 => "fMP4",
            SegmentContainer::PackedAudio => "packed audio",
            SegmentContainer::WebVtt => "WebVTT",
            SegmentContainer::Enciphered => "enciphered",
        })
    }
}

impl fmt::Display for PlayedVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "announced {:.3} Mb/s", self.bandwidth as f64 / 1e6)?;
        if let Some(average) = self.average_bandwidth {
            write!(f, ", {:.3} on average", average as f64 / 1e6)?;
        }
        if let Some((width, height)) = self.resolution {
            write!(f, ", {width}x{height}")?;
        }
        match &self.codecs {
            Some(codecs) => write!(f, ", {codecs}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for PlayedRendition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segments = counted(self.segments, "segment", "segments");
        if let Some(container) = self.container {
            write!(f, "{container}, ")?;
        }
        write!(
            f,
            "{segments}, {} bytes, {:.3} s: {:.3} Mb/s, peak {:.3}",
            self.bytes,
            self.media_s,
            self.bit_rate / 1e6,
            self.bit_rate_peak / 1e6
        )?;
        let counts = [
            (self.missed, "missed"),
            (self.gaps, "named as missing"),
            (self.discontinuities, "discontinuities"),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, ", {count} {what}")?;
        }
        Ok(())
    }
}

/// A short report, each line with its line end.
impl fmt::Display for HlsVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.url, self.end)?;
        if let Some(variant) = &self.variant {
            let variants = counted(self.variants as u64, "variant", "variants");
            let switches = counted(self.switches, "switch", "switches");
            writeln!(f, "  variant     {variant}; {variants}, {switches}")?;
        }
        for (index, rendition) in self.renditions.iter().enumerate() {
            let name = if index == 0 { "main " } else { "audio" };
            writeln!(f, "  {name}       {rendition}")?;
        }
        for left_out in &self.left_out {
            writeln!(f, "  not played  {left_out}")?;
        }
        match self.start_s {
            Some(start) => write!(f, "  start       {start:.3} s after the first request")?,
            None => write!(f, "  start       never")?,
        }
        writeln!(f, "{}", if self.is_live { ", live" } else { "" })?;
        write!(f, "  stalls      {}", self.stalls)?;
        if self.stalls > 0 {
            write!(f, ", {:.3} s:", self.stalled_s)?;
            for stall in &self.first_stalls {
                write!(f, " {:.3} s at {:.3},", stall.length_s, stall.at_s)?;
            }
        }
        write!(f, "\n  time        {:.3} s of media in {:.3} s", self.media_s, self.wall_s)?;
        if self.is_fast {
            f.write_str(", without waiting")?;
        }
        match self.duration_s {
            Some(duration) => writeln!(f, "; the playlist has {duration:.3} s")?,
            None => writeln!(f)?,
        }
        writeln!(
            f,
            "  http        {} on {}, {} of playlists",
            counted(self.requests, "request", "requests"),
            counted(self.connections, "connection", "connections"),
            counted(self.playlist_loads, "load", "loads")
        )?;
        for fault in &self.faults {
            writeln!(f, "  fault       {fault}")?;
        }
        let more = self.fault_count - self.faults.len() as u64;
        if more > 0 {
            writeln!(f, "  fault       and {more} more")?;
        }
        match &self.output {
            Some((path, bytes)) => writeln!(f, "  file        {}, {bytes} bytes", path.display()),
            None => Ok(()),
        }
    }
}
