// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests fragments of generated recordings: they contain the samples of the whole file, each once
//! and without gaps, and periods begin where required.

use super::tests::{IDENTITY, Muxer, PICTURE, PICTURES, SEQUENCE, SOUND, demux, plan};
use super::*;
use crate::plan::PacketPlan;
use crate::tracks::LeftOut;
use crate::ts::RecordedStarts;
use crate::{
    Extent, FragmentPeriod, GrowingFragment, GrowingFragments, GrowingSegment, GrowingSegments,
    RecordedStreams, Scanner, StreamUnits, TICKS_PER_SECOND, TS_PACKET_BYTES,
};

/// Pictures of a title of 20 s.
const TITLE: u64 = 500;
const ORIGIN: u64 = GrowingFragments::ORIGIN_S;

/// State of a recording so far.
struct Recorded {
    plan: PacketPlan,
    segments: GrowingSegments,
    streams: RecordedStreams,
    fragments: GrowingFragments,
    left_out: Vec<LeftOut>,
}

impl Recorded {
    /// Creates the state of a complete file.
    fn of(file: &[u8], late: impl Fn(usize) -> u64) -> Recorded {
        let mut scanner = Scanner::new();
        scanner.feed(file);
        let (plan, starts) = scanner.recorded_so_far(IDENTITY).expect("a good stream");
        let segments = GrowingSegments::of(&plan, true).expect("a place to start");
        let streams = RecordedStreams::find(&plan, file).expect("read").expect("streams");
        let fragments = GrowingFragments::new(streams.len(), 0);
        let left_out = streams.left_out().to_vec();
        let mut recorded = Recorded { plan, segments, streams, fragments, left_out };
        recorded.extend(file, &starts, (true, &late));
        recorded
    }

    /// Adds the segments whose parts are settled.
    fn extend(
        &mut self,
        file: &[u8],
        starts: &RecordedStarts,
        (is_complete, late): (bool, &dyn Fn(usize) -> u64),
    ) {
        self.segments.extend(&self.plan, starts, is_complete);
        let limit = GrowingSegments::settled_packets(&self.plan, is_complete);
        let limit = PartLimit::Packet(limit);
        while let Some(segment) = self.segments.list().get(self.fragments.next()) {
            let pids = self.fragments.pids(&self.streams);
            let part = self.streams.part(&self.plan, (segment, &pids), limit, file);
            let part = part.expect("read");
            if !part.is_settled && !is_complete {
                break;
            }
            self.left_out.extend(part.left_out.iter().cloned());
            let number = self.fragments.next();
            self.fragments.push(&self.streams, part, segment, late(number));
        }
    }

    fn all(&self, stream: usize) -> Vec<GrowingFragment> {
        let periods = 0..self.fragments.periods().len();
        let of = |period| self.fragments.in_period(stream, period, 0..usize::MAX).to_vec();
        periods.flat_map(of).collect()
    }

    /// Returns the media of all fragments of a stream.
    fn media(&self, stream: usize, file: &[u8]) -> Vec<u8> {
        let made = self.all(stream).into_iter().map(|one| {
            let begun = |period: &&FragmentPeriod| period.first <= one.segment;
            let period = self.fragments.periods().iter().rfind(begun).expect("it has one").first;
            let source = self.fragments.find(stream, period, one.start).expect("it is listed");
            let segment: &GrowingSegment = &self.segments.list()[one.segment];
            let made = source.make(&self.streams, &self.plan, segment, file).expect("made");
            assert_eq!(&made.head[4..8], b"moof");
            assert!(made.head.len() + made.media.len() <= one.bytes as usize, "{one:?}");
            made.media
        });
        made.collect::<Vec<_>>().concat()
    }
}

/// Writes a title of this many pictures, preceded by tables.
fn title(muxer: &mut Muxer, from: u64, pictures: u64) {
    muxer.tables(&[PICTURES, SOUND]);
    muxer.title(from, pictures, [PICTURES.0, SOUND.0]);
}

/// Returns the samples of a whole file, from sample `from` on.
fn copied(file: &[u8], stream: usize, from: usize) -> Vec<u8> {
    let whole = demux(file).expect("tracks");
    let mut media = Vec::new();
    let numbers = from..whole.tracks()[stream].samples.len();
    copy_elementary(&plan(file), &whole, (stream, numbers), file, &mut media).expect("read");
    media
}

#[test]
fn fragments_have_all_samples_one_behind_the_other() {
    // The times wrap after five seconds.
    let mut muxer = Muxer::default();
    title(&mut muxer, (1 << 33) - 5 * 90_000, TITLE);
    let file = muxer.bytes;
    let recorded = Recorded::of(&file, |_| 0);
    let [period] = recorded.fragments.periods() else { panic!("one period") };
    assert_eq!((period.first, period.start), (0, 0));
    let scales = [90_000, 48_000];
    for (stream, scale) in scales.into_iter().enumerate() {
        let track = period.tracks[stream].as_ref().expect("it is in the period");
        assert_eq!((u64::from(track.timescale), &track.init[4..8]), (scale, &b"ftyp"[..]));
        let all = recorded.all(stream);
        assert_eq!(all.len(), recorded.segments.list().len());
        assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start), "{stream}: {all:?}");
        assert_eq!(all[0].start, ORIGIN * scale, "the recording begins with its pictures");
        let seconds = (all[all.len() - 1].end - all[0].start) as f64 / scale as f64;
        assert!((seconds - 20.0).abs() < 0.1, "{seconds}");
        assert!(recorded.media(stream, &file) == copied(&file, stream, 0), "stream {stream}");
    }
    let start = recorded.all(0)[0].start;
    let is_found = |stream, period, start| recorded.fragments.find(stream, period, start).is_some();
    assert!(is_found(0, 0, start) && !is_found(0, 0, 1) && !is_found(2, 0, start));
    assert!(!is_found(0, 1, start), "no period begins there");
    let borders = recorded.segments.list().iter().zip(recorded.all(0));
    for (segment, fragment) in borders {
        let start = fragment.start - ORIGIN * 90_000;
        assert_eq!(start, segment.start * 90_000 / TICKS_PER_SECOND, "times of the playlist");
        assert!(fragment.is_independent);
    }
}

#[test]
fn fragments_do_not_depend_on_when_they_were_looked_for() {
    let mut muxer = Muxer::default();
    title(&mut muxer, 900_000, TITLE);
    let file = muxer.bytes;
    let whole = Recorded::of(&file, |_| 0);
    for packets in [37, 500] {
        let mut scanner = Scanner::new();
        let mut growing: Option<Recorded> = None;
        for bytes in file.chunks(packets * TS_PACKET_BYTES) {
            scanner.feed(bytes);
            let Ok((plan, starts)) = scanner.recorded_so_far(IDENTITY) else { continue };
            let read = &file[..plan.file_bytes() as usize];
            let begin = || {
                let segments = GrowingSegments::of(&plan, false)?;
                let streams = RecordedStreams::find(&plan, read).expect("read")?;
                let fragments = GrowingFragments::new(streams.len(), 0);
                Some(Recorded {
                    plan: plan.clone(),
                    segments,
                    streams,
                    fragments,
                    left_out: Vec::new(),
                })
            };
            growing = growing.or_else(begin);
            let Some(growing) = &mut growing else { continue };
            growing.plan = plan;
            growing.extend(read, &starts, (false, &|_| 0));
            for stream in 0..2 {
                let found = growing.all(stream);
                assert_eq!(found[..], whole.all(stream)[..found.len()], "{packets} {stream}");
            }
        }
        let growing = growing.expect("it grew");
        // The last one begins within 2 s of the end.
        assert!(growing.fragments.next() + 2 >= whole.fragments.next(), "{packets}");
        let found = growing.media(1, &file);
        assert!(copied(&file, 1, 0).starts_with(&found), "made with a plan of less");
    }
}

#[test]
fn a_clock_that_is_set_anew_begins_a_period() {
    let mut muxer = Muxer::default();
    title(&mut muxer, 50_000_000, TITLE);
    title(&mut muxer, 900_000, TITLE);
    // The third title has other PIDs.
    muxer.tables(&[(0x200, PICTURES.1), (0x201, SOUND.1)]);
    muxer.title(50_000_000, TITLE, [0x200, 0x201]);
    let recorded = Recorded::of(&muxer.bytes, |_| 0);
    let [first, second, third] = recorded.fragments.periods() else { panic!("three periods") };
    assert!(third.start.abs_diff(2 * TITLE * PICTURE) < 9000, "{}", third.start);
    let rests = [0, 1].map(|stream| recorded.fragments.in_period(stream, 2, 0..usize::MAX).len());
    assert_eq!(rests, [recorded.segments.list().len() - third.first; 2]);
    let lasts = TITLE * PICTURE;
    assert!(second.start.abs_diff(lasts) < 9000, "{} {lasts}", second.start);
    assert!(recorded.segments.list()[second.first].is_break);
    assert_eq!((first.first, first.start), (0, 0));
    let of = |period| recorded.fragments.in_period(0, period, 0..usize::MAX);
    let (before, behind) = (of(0), of(1));
    assert_eq!(behind[0].start, ORIGIN * 90_000 + second.start);
    assert!(before[before.len() - 1].end <= behind[0].start, "{before:?} {behind:?}");
    let lasts = behind[behind.len() - 1].end - behind[0].start;
    assert!(lasts.abs_diff(TITLE * PICTURE) < 9000, "{lasts}");
    // Audio begins with the pictures.
    let sound = recorded.fragments.in_period(1, 1, 0..usize::MAX);
    let start = sound[0].start * 90_000 / 48_000;
    assert!(start.abs_diff(behind[0].start) < 9000, "{start} {:?}", behind[0]);
    let [.., last] = recorded.fragments.periods() else { panic!("three periods") };
    assert!(recorded.fragments.init(0, last.first).is_some());
    assert!(recorded.fragments.init(0, last.first + 1).is_none());
}

#[test]
fn other_parameters_begin_a_period_without_a_gap() {
    let mut muxer = Muxer::default();
    title(&mut muxer, 900_000, TITLE);
    let first = muxer.bytes.len();
    title(&mut muxer, 900_000 + TITLE * PICTURE, TITLE);
    // The second title has another level.
    let mut file = muxer.bytes;
    let mut replaced = 0;
    for at in first..file.len() - SEQUENCE.len() {
        if file[at..].starts_with(&SEQUENCE) {
            file[at + 3] += 1;
            replaced += 1;
        }
    }
    assert_eq!(replaced, TITLE / 5);
    let recorded = Recorded::of(&file, |_| 0);
    let periods = recorded.fragments.periods();
    let segments: Vec<usize> = periods.iter().map(|period| period.first).collect();
    let second = recorded.segments.list().iter().position(|one| one.start >= 20 * TICKS_PER_SECOND);
    assert_eq!(segments, [0, second.expect("of the second title")]);
    assert_eq!(periods[1].start, TITLE * PICTURE);
    let [one, other] = [0, 1].map(|period| {
        let first = recorded.fragments.periods()[period].first;
        recorded.fragments.init(0, first).unwrap().to_vec()
    });
    assert!(one != other && one.len() == other.len());
    let all = recorded.all(0);
    assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start), "{all:?}");
}

#[test]
fn a_source_that_comes_late_begins_a_period_by_the_wall_clock() {
    let mut muxer = Muxer::default();
    title(&mut muxer, 900_000, TITLE);
    let late = |segment: usize| if segment >= 4 { 30 * TICKS_PER_SECOND } else { 0 };
    let recorded = Recorded::of(&muxer.bytes, late);
    let [_, second] = recorded.fragments.periods() else { panic!("two periods") };
    assert_eq!(second.first, 4);
    let due = recorded.segments.list()[4].start / 300 + 30 * 90_000;
    assert_eq!(second.start, due);
    assert_eq!(recorded.all(0)[4].start, ORIGIN * 90_000 + due);
}

#[test]
fn half_a_picture_at_the_end_is_left_out() {
    let mut muxer = Muxer::default();
    title(&mut muxer, 900_000, TITLE);
    let whole = Recorded::of(&muxer.bytes, |_| 0);
    let is_video = |packet: &&[u8]| packet[1] & 0x1f == 1 && packet[2] == 0;
    let full = |packet: &&[u8]| is_video(packet) && packet[3] & 0x20 == 0;
    let packets: Vec<&[u8]> = muxer.bytes.chunks(TS_PACKET_BYTES).collect();
    let last = packets.iter().rposition(full).expect("a picture of several packets");
    let file = &muxer.bytes[..(last + 1) * TS_PACKET_BYTES];
    let cut = Recorded::of(file, |_| 0);
    let (whole_end, cut_end) = (whole.all(0).pop().unwrap().end, cut.all(0).pop().unwrap().end);
    assert!(cut_end < whole_end, "{cut_end} {whole_end}");
    let media = cut.media(0, file);
    assert!(whole.media(0, &muxer.bytes).starts_with(&media), "whole pictures");
}

#[test]
fn a_stream_that_stops_for_good_is_not_waited_for_to_the_end() {
    let mut muxer = Muxer::default();
    title(&mut muxer, 900_000, TITLE);
    let mut file = Vec::new();
    let packets: Vec<&[u8]> = muxer.bytes.chunks(TS_PACKET_BYTES).collect();
    for (number, packet) in packets.iter().enumerate() {
        let pid = u16::from_be_bytes([packet[1] & 0x1f, packet[2]]);
        let is_late = number > packets.len() / 2;
        if is_late && pid == SOUND.0 {
            continue;
        }
        file.extend_from_slice(packet);
        // Many packets follow the end of the audio.
        let null = [[0x47, 0x1f, 0xff, 0x10].as_slice(), &[0xff; 184]].concat();
        if is_late && pid == PICTURES.0 && packet[1] & 0x40 != 0 {
            file.extend(null.repeat(400));
        }
    }
    let recorded = Recorded::of(&file, |_| 0);
    let plan = &recorded.plan;
    let limit = GrowingSegments::settled_packets(plan, true);
    let mut furthest = 0;
    for segment in recorded.segments.list() {
        let pids = recorded.streams.pids();
        let most = PartLimit::Packet(limit);
        let part = recorded.streams.part(plan, (segment, &pids), most, &file[..]).expect("read");
        let end = plan.ts_packets_before_byte(segment.file.end);
        assert!(part.is_settled || part.context.limit == most);
        let PartLimit::Packet(until) = part.context.limit else { panic!("it is not the last") };
        furthest = furthest.max(until - end);
    }
    assert!(furthest >= 1 << 15, "{furthest} packets: the sound stopped");
    assert!(limit > 3 << 15 && furthest < 2 << 15, "{furthest} of {limit} packets");
    assert!(recorded.media(0, &file) == copied(&file, 0, 0), "pictures are all there");
}

#[test]
fn streams_that_fragments_leave_out_are_named() {
    let mut muxer = Muxer::default();
    let [further, mpeg2] = [(0x120, PICTURES.1), (0x110, 0x02)];
    let beginning = [PICTURES, SOUND, further, mpeg2];
    muxer.tables(&beginning);
    muxer.unit(further.0, (900_000, 900_000), &[0, 0, 1, 9]);
    muxer.title(900_000, TITLE, [PICTURES.0, SOUND.0]);
    let later = muxer.bytes.len();
    muxer.tables(&[&beginning[..], &[(0x130, SOUND.1)]].concat());
    muxer.title(900_000 + TITLE * PICTURE, TITLE, [PICTURES.0, SOUND.0]);
    muxer.is_scrambled = true;
    let scrambled = muxer.bytes.len();
    let time = 900_000 + 2 * TITLE * PICTURE;
    muxer.unit(SOUND.0, (time, time), &[0; 100]);
    let recorded = Recorded::of(&muxer.bytes, |_| 0);
    let of = |pid: u16| -> Vec<&str> {
        let all = recorded.left_out.iter().filter(|one| one.id == u32::from(pid));
        all.map(|one| &one.reason[..]).collect()
    };
    assert_eq!(of(further.0).len(), 1, "{:?}", recorded.left_out);
    assert!(of(further.0)[0].starts_with("PID 288, H.264: pictures beside the first"));
    assert_eq!(of(mpeg2.0).len(), 1, "{:?}", recorded.left_out);
    assert!(of(mpeg2.0)[0].starts_with("PID 272, MPEG-2 video: a codec that is not sent"));
    let named = of(0x130)[0];
    assert!(named.starts_with("PID 304, AAC: named by a map at byte "), "{named}");
    let byte = named.split_once("byte ").unwrap().1.split_once(',').unwrap().0;
    assert!(byte.parse::<usize>().unwrap() >= later, "{named}, not from {later} on");
    let reason = format!("PID 257, AAC: scrambled at byte {scrambled}; descramble the file first");
    assert_eq!(of(SOUND.0), [reason]);

    // In the last segment of a programme this is the map of the next programme.
    let Recorded { plan, streams, .. } = &recorded;
    let has_it = |segment: &&GrowingSegment| segment.file.contains(&(later as u64));
    let segment = recorded.segments.list().iter().find(has_it).expect("a segment");
    let is_named = |limit| {
        let part = streams.part(plan, (segment, &streams.pids()), limit, &muxer.bytes[..]);
        part.expect("read").left_out.iter().any(|one| one.id == 0x130)
    };
    assert!(is_named(PartLimit::Packet(plan.ts_packets())) && !is_named(PartLimit::Part));
}

/// Compares the samples of programmes that a splicer would send in sequence, each cut and read by
/// itself, with those of the channel.
#[test]
fn programmes_of_a_channel_have_fragments_of_their_own_on_one_timeline() {
    let mut muxer = Muxer::default();
    title(&mut muxer, 900_000, TITLE);
    let seam = muxer.bytes.len() as u64 / TS_PACKET_BYTES as u64;
    title(&mut muxer, 900_000 + TITLE * 3600, TITLE);
    let file = muxer.bytes;
    let mut units = StreamUnits::default();
    units.note_join(seam);
    units.feed(&file);
    let mut segments = GrowingSegments::of_channel(&units, 0).expect("a place to start");
    segments.extend_channel(&units);
    let list = segments.list();
    let second = list.iter().position(|segment| segment.is_break).expect("another programme");
    let extent = Extent::of_packets(file.len() as u64 / TS_PACKET_BYTES as u64);
    let streams = |segment: &GrowingSegment| {
        let bytes = &file[segment.file.start as usize..segment.file.end as usize];
        RecordedStreams::of_programme(&[&segment.tables, bytes].concat()).expect("streams")
    };
    let mut programmes = vec![(streams(&list[0]), GrowingFragments::new(2, 0))];
    for (number, segment) in list.iter().enumerate() {
        if number == second {
            let next = programmes[0].1.followed_by(2, second);
            programmes.push((streams(segment), next));
        }
        let (streams, fragments) = programmes.last_mut().expect("it has begun");
        let limit = match list.get(number + 1) {
            Some(next) if next.is_break => PartLimit::Part,
            _ => PartLimit::Packet(extent.ts_packets),
        };
        let pids = fragments.pids(streams);
        let part = streams.part(extent.places(), (segment, &pids), limit, &file[..]);
        fragments.push(streams, part.expect("read"), segment, 0);
    }
    let mut found = [Vec::new(), Vec::new()];
    for (streams, fragments) in &programmes {
        let [period] = fragments.periods() else { panic!("one period") };
        let ticks = list[period.first].start * 90_000 / TICKS_PER_SECOND;
        assert!(period.start.abs_diff(ticks) <= 1, "{} {ticks}", period.start);
        for (stream, found) in found.iter_mut().enumerate() {
            for one in fragments.in_period(stream, 0, 0..usize::MAX) {
                let source = fragments.find(stream, period.first, one.start).expect("it is there");
                let segment = &list[one.segment];
                let made = source.make(streams, extent.places(), segment, &file[..]);
                found.extend(made.expect("made").media);
            }
        }
    }
    for (stream, found) in found.iter().enumerate() {
        let all = copied(&file, stream, 0);
        // The last segment is incomplete.
        assert!(all.starts_with(found), "stream {stream}");
        assert!(found.len() * 10 > all.len() * 9, "{} of {}", found.len(), all.len());
    }
    let (_, fragments) = &mut programmes[0];
    let all = fragments.in_period(0, 0, 0..usize::MAX).to_vec();
    fragments.forget_before(2);
    assert_eq!((fragments.first(), fragments.next()), (2, second));
    assert_eq!(fragments.in_period(0, 0, 0..usize::MAX), &all[2..]);
    assert!(fragments.find(0, 0, all[1].start).is_none(), "it is forgotten");
    assert!(fragments.find(0, 0, all[2].start).is_some() && fragments.init(0, 0).is_some());
    assert!(fragments.is_forgotten(0, 0, all[1].start));
    for (stream, period, start) in [(0, 0, all[2].start), (0, 1, 0), (2, 0, 0)] {
        assert!(!fragments.is_forgotten(stream, period, start), "{stream} {period} {start}");
    }
    fragments.forget_before(usize::MAX);
    assert_eq!(fragments.first(), second);
}
