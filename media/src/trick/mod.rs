// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trick play shows the pictures of a file at another rate, or backwards, as a separate
//! presentation.
//!
//! Only pictures at random-access points are sent: they need no other. A [`TrickPlan`] chooses them
//! for one [`PlayScale`], in display order, and gives each its display time on a timeline that runs
//! at the speed of a wall clock ([`TrickTimeline`]). The result is a [`Presentation`] with one
//! track, so every player of tracks plays it; sequence numbers and timestamps continue (RFC 2326
//! §12.34). Pictures are at least a tenth of a second apart, and further if they would need more
//! than twice the bitrate of the title.
//!
//! Costs a look-up for each random-access point, once a file and scale, and 32 bytes of memory for
//! each picture.
//!
//! Sources: RFC 2326 §12.34 (Scale).
//! Does not read files, but for [`TrickPlan::lay_out`].

mod timeline;

use std::io;

pub use timeline::{PlayScale, TrickTimeline};

use crate::payload::{self, Layout, LayoutWriter, UnitTimes};
use crate::plan::PacketPlan;
use crate::tracks::{
    Codec, Container, MediaSample, Presentation, SampleTable, SampleTableBuilder, Track, TrackMedia,
};
use crate::ts::{TrickPicture, is_video, lay_out_elementary, lay_out_pictures};
use crate::{ReadAt, TICKS_PER_SECOND, TICKS_PER_TIMESTAMP, TS_PACKET_BYTES};

/// The pictures of a file at one scale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrickPlan {
    /// Times in the file and times of its pictures.
    timeline: TrickTimeline,
    /// The pictures: one track.
    presentation: Presentation,
    /// Numbers of their places to start in the plan of a transport stream; empty for a file with
    /// tracks.
    entries: Option<Vec<u32>>,
}

/// A picture to be chosen.
struct Candidate {
    /// Its time on the timeline of trick play.
    ticks: u64,
    file_offset: u64,
    bytes: u32,
    number: u32,
}

impl TrickPlan {
    /// Chooses the pictures of a file with tracks; `None` if it has no pictures.
    pub fn of_tracks(presentation: &Presentation, scale: PlayScale) -> Option<TrickPlan> {
        let track = presentation.leading_track();
        if track.codec.media() != TrackMedia::Video {
            return None;
        }
        let timeline = TrickTimeline::new(scale, presentation.presented_end_ticks());
        let samples = &track.samples;
        let candidate = |index: usize| {
            let sample = samples.sample(samples.start(index));
            let presented = track.presented_ticks(&sample).max(0) as u64;
            Candidate {
                ticks: timeline.ticks(presented),
                file_offset: sample.file_offset,
                bytes: sample.bytes,
                number: 0,
            }
        };
        let rate = presentation.track_bits_per_second(presentation.leading_index());
        let chosen = choose(samples.starts(), scale, candidate, |candidate| {
            let bits = u64::from(candidate.bytes) * 8;
            let limit = rate.saturating_mul(RATE_LIMIT).max(RATE_MIN);
            u64::try_from(u128::from(bits) * u128::from(TICKS_PER_SECOND) / u128::from(limit))
                .unwrap_or(u64::MAX)
        });
        let about = |samples| Track {
            id: track.id,
            codec: track.codec.clone(),
            language: track.language,
            label: track.label.clone(),
            display: track.display,
            samples,
            shift: 0,
            identity: track.identity,
        };
        let kind = (presentation.container(), presentation.file_bytes());
        let presentation = assemble(kind, about, &chosen, timeline)?;
        Some(TrickPlan { timeline, presentation, entries: None })
    }

    /// Chooses the pictures of a transport stream; `None` if it has no pictures, or only one place
    /// to start.
    pub fn of_stream(plan: &PacketPlan, scale: PlayScale) -> Option<TrickPlan> {
        let has_pictures = plan.streams().iter().any(|stream| is_video(stream.stream_type));
        let entries = plan.entries();
        if !has_pictures || entries.len() < 2 {
            return None;
        }
        let timeline = TrickTimeline::new(scale, plan.duration_ticks());
        let candidate = |index: usize| {
            let entry = &entries[index];
            let next = entries.get(index + 1).map_or(plan.ts_packets(), |next| next.ts_packet);
            let (file_offset, _) = plan.ts_run(entry.ts_packet, 1).unwrap_or_default();
            // The range contains the picture; its size is not known yet.
            let bytes = (next - entry.ts_packet).min(RANGE_PACKETS_MAX) * TS_PACKET_BYTES as u64;
            let ticks = timeline.ticks(entry.presented_ticks);
            Candidate { ticks, file_offset, bytes: bytes as u32, number: index as u32 }
        };
        let chosen = choose(entries.len(), scale, candidate, |_| 0);
        let about = |samples| Track::new(0, Codec::Mp2t, samples, plan.identity());
        let kind = (Container::TransportStream, plan.file_bytes());
        let presentation = assemble(kind, about, &chosen, timeline)?;
        let entries = chosen.iter().map(|picture| picture.number).collect();
        Some(TrickPlan { timeline, presentation, entries: Some(entries) })
    }

    /// The pictures: one track, whose samples are in the order in which they are shown.
    pub fn presentation(&self) -> &Presentation {
        &self.presentation
    }

    /// Times in the file and times of its pictures.
    pub fn timeline(&self) -> TrickTimeline {
        self.timeline
    }

    /// Lays out the packets of a chapter; `plan` is that of the transport stream with the pictures,
    /// whole or as an elementary stream; `None` for a file with tracks.
    ///
    /// # Errors
    /// `file` cannot be read.
    pub fn lay_out(
        &self,
        plan: Option<&PacketPlan>,
        chapter: u32,
        file: &(impl ReadAt + ?Sized),
    ) -> io::Result<Layout> {
        let (plan, entries) = match (plan, &self.entries) {
            (Some(plan), Some(entries)) => (plan, entries),
            (Some(plan), None) => {
                return lay_out_elementary(plan, &self.presentation, (0, chapter), file);
            }
            (None, _) => return payload::lay_out(&self.presentation, 0, chapter, file),
        };
        let track = &self.presentation.tracks()[0];
        let numbers = self.presentation.chapter_samples(0, chapter);
        let mut writer = LayoutWriter::default();
        for (number, sample) in numbers.clone().zip(track.samples.samples(numbers)) {
            let ticks = sample.decode * TICKS_PER_TIMESTAMP;
            let picture = TrickPicture {
                number: number as u64,
                entry: plan.entries()[entries[number] as usize],
                ticks,
                times: UnitTimes {
                    due_ticks: self.presentation.due_ticks(track, &sample),
                    duration_ticks: u64::from(sample.duration) * TICKS_PER_TIMESTAMP,
                    timestamp: track.rtp_units(track.presented(&sample)),
                    is_start: true,
                },
            };
            lay_out_pictures(plan, &picture, file, &mut writer)?;
        }
        Ok(writer.finish())
    }
}

/// Chooses from `count` candidates, given in file order: returns them in display order, each at
/// least `apart` or [`APART_TICKS`] after the one before.
fn choose(
    count: usize,
    scale: PlayScale,
    candidate: impl Fn(usize) -> Candidate,
    apart: impl Fn(&Candidate) -> u64,
) -> Vec<Candidate> {
    let mut chosen = Vec::new();
    let mut earliest = 0;
    for index in 0..count {
        let index = if scale.is_backwards() { count - 1 - index } else { index };
        let found = candidate(index);
        if found.ticks >= earliest {
            earliest = found.ticks.saturating_add(apart(&found).max(APART_TICKS));
            chosen.push(found);
        }
    }
    chosen
}

/// Creates a presentation of the chosen pictures; `None` without any.
fn assemble(
    (container, file_bytes): (Container, u64),
    about: impl FnOnce(SampleTable) -> Track,
    chosen: &[Candidate],
    timeline: TrickTimeline,
) -> Option<Presentation> {
    let mut table = SampleTableBuilder::new(TIMESCALE, file_bytes);
    let units = |ticks: u64| ticks / TICKS_PER_TIMESTAMP;
    for (index, picture) in chosen.iter().enumerate() {
        let decode = units(picture.ticks);
        let end = match chosen.get(index + 1) {
            Some(next) => units(next.ticks),
            // The last picture is shown for the duration that it represents.
            None => units(timeline.end_ticks().max(picture.ticks + APART_TICKS)),
        };
        // Its place is one of a plan that has passed these checks.
        let sample = MediaSample {
            file_offset: picture.file_offset,
            bytes: picture.bytes,
            decode,
            offset: 0,
            duration: u32::try_from(end - decode).unwrap_or(u32::MAX),
            is_start: true,
        };
        table.push(sample).ok()?;
    }
    let track = about(table.finish()?);
    Presentation::assemble(container, file_bytes, vec![track], Vec::new()).ok()
}

/// Least distance of pictures: a viewer who searches for a place cannot use more than ten a second,
/// and each is a key frame.
const APART_TICKS: u64 = TICKS_PER_SECOND / 10;

/// Largest bitrate of the pictures, as a multiple of that of the track in normal play; and the
/// least limit, for a track whose rate is too low for a key frame a second.
const RATE_LIMIT: u64 = 2;
const RATE_MIN: u64 = 2_000_000;

/// Units of a second in the table: those of RTP timestamps.
const TIMESCALE: u32 = (TICKS_PER_SECOND / TICKS_PER_TIMESTAMP) as u32;

/// Most transport stream packets of a range that holds a picture: 4 MiB.
const RANGE_PACKETS_MAX: u64 = (4 << 20) / TS_PACKET_BYTES as u64;

#[cfg(test)]
mod tests;
