// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packet plan in figures: packets, segment runs, bytes on the wire and bytes of headers.
//!
//! The figures of a transport stream are arithmetic. Tracks are laid out chapter by chapter, as a
//! server does when they are played; each layout is dropped at once. This reads a few bytes per NAL
//! unit of pictures, all bytes of PCM that RTP sends in the other byte order, and no other sound.
//! Where a track has more chapters than the limit, or than the time allows, an evenly spread sample
//! of chapters is laid out and the figures are scaled by bytes: they are exact for the same
//! chapters, and an estimate for the track.
//!
//! Sources: udp(7), UDP_SEGMENT (segments of a call, 64 KiB). Does not model the batches of a path:
//! a burst that is due at once may cut a run.

use std::io;
use std::time::Instant;

use media::payload::{Layout, lay_out};
use media::{PacketPlan, Presentation, ReadAt, TS_PACKET_BYTES, TS_PACKETS_PER_PAYLOAD};
use serde::Serialize;

/// Figures of a packet plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct PlanFigures {
    /// True where not all chapters were laid out, and the figures are scaled.
    pub(super) estimated: bool,
    /// RTP packets.
    pub(super) packets: u64,
    /// Rows of packets of equal size, each of which one system call can send.
    pub(super) segment_runs: u64,
    pub(super) packets_per_run: f64,
    /// Bytes of all RTP packets, without the headers of UDP and IP.
    pub(super) wire_bytes: u64,
    /// Bytes of headers among them: RTP headers and payload-format headers, parameter sets
    /// included.
    pub(super) header_bytes: u64,
    /// Headers as a share of the bytes on the wire.
    pub(super) header_share: f64,
    /// Parts of samples that cannot be laid out, in the chapters that were laid out.
    pub(super) faults: u64,
    /// Seconds of tracks that were laid out; absent for a transport stream.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) chapters: u64,
}

fn is_zero(&count: &u64) -> bool {
    count == 0
}

impl PlanFigures {
    /// Computes the shares from the sums.
    fn with_shares(self) -> PlanFigures {
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        PlanFigures {
            packets_per_run: share(self.packets, self.segment_runs),
            header_share: share(self.header_bytes, self.wire_bytes),
            ..self
        }
    }

    /// Returns the sum of two plans.
    pub(super) fn and(self, other: &PlanFigures) -> PlanFigures {
        let sum = PlanFigures {
            estimated: self.estimated || other.estimated,
            packets: self.packets + other.packets,
            segment_runs: self.segment_runs + other.segment_runs,
            wire_bytes: self.wire_bytes + other.wire_bytes,
            header_bytes: self.header_bytes + other.header_bytes,
            faults: self.faults + other.faults,
            chapters: self.chapters + other.chapters,
            ..self
        };
        sum.with_shares()
    }

    /// Adds the packets of a chapter; packets that hold media in memory have only the RTP header.
    fn add(&mut self, layout: &Layout, holds_media: bool) {
        let mut packet = 0;
        while packet < layout.packets() {
            let row = layout.row(packet, u32::MAX);
            let run = run_packets(row.packet_bytes.into());
            self.segment_runs += u64::from(row.packets).div_ceil(run);
            let head_bytes = match holds_media {
                true => RTP_HEADER_BYTES,
                false => layout.head_bytes(packet) as u64,
            };
            self.header_bytes += u64::from(row.packets) * head_bytes;
            packet += row.packets;
        }
        self.packets += u64::from(layout.packets());
        self.wire_bytes += layout.wire_bytes();
        self.faults += u64::from(layout.faults());
        self.chapters += 1;
    }

    /// Scales the sums of chapters with `laid_out` bytes to a track of `bytes`.
    fn scaled(self, laid_out: u64, bytes: u64) -> PlanFigures {
        let scaled = |sum: u64| {
            let product = u128::from(sum) * u128::from(bytes) / u128::from(laid_out.max(1));
            u64::try_from(product).unwrap_or(u64::MAX)
        };
        PlanFigures {
            estimated: true,
            packets: scaled(self.packets),
            segment_runs: scaled(self.segment_runs),
            wire_bytes: scaled(self.wire_bytes),
            header_bytes: scaled(self.header_bytes),
            ..self
        }
    }
}

/// Returns the figures of a transport stream.
pub(super) fn of_transport_stream(plan: &PacketPlan) -> PlanFigures {
    let full = TS_PACKETS_PER_PAYLOAD * TS_PACKET_BYTES as u64 + RTP_HEADER_BYTES;
    let runs = plan.extents().iter().map(|extent| extent.packets().div_ceil(run_packets(full)));
    let figures = PlanFigures {
        packets: plan.packets(),
        segment_runs: runs.sum(),
        wire_bytes: plan.wire_bytes(),
        header_bytes: plan.packets() * RTP_HEADER_BYTES,
        ..PlanFigures::default()
    };
    figures.with_shares()
}

/// Returns the figures of a track. Lays out at most `limit` of its chapters, and at least one, but
/// starts none after `until`; calls `observe` for each with the number laid out and the number
/// planned.
///
/// # Errors
/// `file` cannot be read.
pub(super) fn of_track(
    presentation: &Presentation,
    track: usize,
    file: &(impl ReadAt + ?Sized),
    (limit, until): (u32, Option<Instant>),
    mut observe: impl FnMut(u64, u64),
) -> io::Result<PlanFigures> {
    let about = &presentation.tracks()[track];
    let (mut chapters, mut is_all) = chosen(presentation, track, limit);
    if until.is_some() {
        spread(&mut chapters);
    }
    let (mut figures, mut laid_out) = (PlanFigures::default(), 0);
    for (index, &chapter) in chapters.iter().enumerate() {
        if index > 0 && until.is_some_and(|until| Instant::now() >= until) {
            is_all = false;
            break;
        }
        figures.add(&lay_out(presentation, track, chapter, file)?, about.codec.is_swapped());
        let numbers = presentation.chapter_samples(track, chapter);
        let samples = about.samples.samples(numbers);
        laid_out += samples.map(|sample| u64::from(sample.bytes)).sum::<u64>();
        observe(index as u64 + 1, chapters.len() as u64);
    }
    let figures = if is_all { figures } else { figures.scaled(laid_out, about.samples.bytes()) };
    Ok(figures.with_shares())
}

/// Returns the chapters to lay out, and true where these are all that have samples.
fn chosen(presentation: &Presentation, track: usize, limit: u32) -> (Vec<u32>, bool) {
    let about = &presentation.tracks()[track];
    let chapter_of = |number: usize| {
        presentation.chapter_at(presentation.due_ticks(about, &about.samples.sample(number)))
    };
    let mut chapters = Vec::new();
    let mut next = Some(chapter_of(0));
    while let Some(chapter) = next.filter(|_| chapters.len() <= limit as usize) {
        chapters.push(chapter);
        next = presentation.following_chapter(track, chapter);
    }
    if chapters.len() <= limit as usize {
        return (chapters, true);
    }
    let (samples, limit) = (about.samples.len() as u64, u64::from(limit));
    let mut spread: Vec<_> = (0..limit)
        .map(|part| chapter_of(((2 * part + 1) * samples / (2 * limit)) as usize))
        .collect();
    spread.dedup();
    (spread, false)
}

/// Orders elements so that any prefix of them is spread evenly: by the reversed bits of their index
/// (the van der Corput sequence).
fn spread<T: Copy>(elements: &mut Vec<T>) {
    let mut order: Vec<_> = (0..elements.len()).collect();
    order.sort_by_key(|index| index.reverse_bits());
    *elements = order.iter().map(|&index| elements[index]).collect();
}

/// Returns the number of packets of this size, RTP header included, that one call can carry: 64
/// segments, and a datagram before segmentation has 64 KiB with the headers of UDP and IPv4.
fn run_packets(packet_bytes: u64) -> u64 {
    (RUN_BYTES_MAX / packet_bytes.max(1)).clamp(1, RUN_PACKETS_MAX)
}

const RUN_PACKETS_MAX: u64 = 64;
const RUN_BYTES_MAX: u64 = (64 << 10) - 1 - 20 - 8;
const RTP_HEADER_BYTES: u64 = 12;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use media::plan::RtpIdentity;
    use media::tracks::SampleTableBuilder;
    use media::{Codec, Container, MediaSample, MediaTrack};

    use super::*;

    #[test]
    fn first_chapters_are_spread_evenly() {
        let mut chapters: Vec<_> = (0..8).collect();
        spread(&mut chapters);
        assert_eq!(chapters, [0, 4, 2, 6, 1, 5, 3, 7]);
        let mut chapters: Vec<_> = (0..3600).collect();
        spread(&mut chapters);
        let mut first = chapters[..100].to_vec();
        first.sort_unstable();
        assert!(first.windows(2).all(|pair| (20..=70).contains(&(pair[1] - pair[0]))), "{first:?}");
        chapters.sort_unstable();
        assert!(chapters.into_iter().eq(0..3600));
    }

    /// Regression: a file of nothing but NAL units took minutes and printed nothing.
    #[test]
    fn chapters_that_there_is_no_time_for_are_estimated() {
        let file = vec![7; 1000];
        let mut samples = SampleTableBuilder::new(1, file.len() as u64);
        for number in 0..10 {
            let (file_offset, decode) = (number * 100, number);
            let sample = MediaSample {
                file_offset,
                bytes: 100,
                decode,
                offset: 0,
                duration: 1,
                is_start: true,
            };
            samples.push(sample).unwrap();
        }
        let identity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
        let track =
            MediaTrack::new(1, Codec::Opus { channels: 2 }, samples.finish().unwrap(), identity);
        let (container, bytes) = (Container::Matroska, file.len() as u64);
        let film = Presentation::assemble(container, bytes, vec![track], Vec::new()).unwrap();
        let figures = |until| of_track(&film, 0, &file, (u32::MAX, until), |_, _| ()).unwrap();
        let whole = figures(None);
        assert_eq!((whole.estimated, whole.chapters, whole.packets), (false, 10, 10));
        assert_eq!(figures(Some(Instant::now() + Duration::from_secs(60))), whole);
        let part = figures(Some(Instant::now()));
        assert_eq!((part.estimated, part.chapters, part.packets), (true, 1, 10));
    }

    #[test]
    fn run_is_what_one_call_carries() {
        assert_eq!(run_packets(1328), 49, "a transport stream's");
        assert_eq!((run_packets(20), run_packets(0), run_packets(70_000)), (64, 64, 1));
    }

    #[test]
    fn sums_are_scaled_by_bytes_and_shares_follow() {
        let part = PlanFigures {
            packets: 10,
            segment_runs: 4,
            wire_bytes: 1000,
            header_bytes: 100,
            faults: 1,
            chapters: 2,
            ..PlanFigures::default()
        };
        let whole = part.clone().scaled(880, 8800).with_shares();
        assert!(whole.estimated);
        assert_eq!((whole.packets, whole.segment_runs, whole.wire_bytes), (100, 40, 10_000));
        assert_eq!((whole.packets_per_run, whole.header_share), (2.5, 0.1));
        assert_eq!((whole.faults, whole.chapters), (1, 2), "of the chapters that were laid out");
        let both = part.with_shares().and(&whole);
        assert_eq!((both.packets, both.header_share, both.estimated), (110, 0.1, true));
    }
}
