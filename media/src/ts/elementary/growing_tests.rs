// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests segments of generated recordings, cut while they grow: each is playable by itself and
//! keeps the promised durations, whatever the source sends.

use super::tests::{IDENTITY, Muxer, PICTURE, PICTURES, SOUND, picture};
use crate::growing_segments::{GrowingSegment, GrowingSegments};
use crate::{Scanner, SegmentPlan, TICKS_PER_SECOND, TS_PACKET_BYTES};

/// Units of 90 kHz per second, and pictures per second.
const SECOND: u64 = 90_000;
const RATE: u64 = SECOND / PICTURE;

/// Packets between two looks at the file: a few pictures, or the whole file.
const LOOKS: [usize; 2] = [13, usize::MAX / TS_PACKET_BYTES];

/// Stream types of audio.
const AAC: u8 = SOUND.1;
const MPEG_SOUND: u8 = 0x04;

/// A source of pictures, each with a clock reference; tables follow every tenth.
struct Source {
    muxer: Muxer,
    /// Times of the next picture and of the clock.
    time: u64,
    clock: u64,
    /// Distance of key frames, in pictures.
    keys: u64,
    number: u64,
    pictures: (u16, u8),
    sound: u8,
    others: Vec<(u16, u8)>,
}

impl Source {
    fn new(keys: u64) -> Source {
        let mut source = Source {
            muxer: Muxer::default(),
            time: 10 * SECOND,
            clock: 10 * SECOND,
            keys,
            number: 0,
            pictures: PICTURES,
            sound: AAC,
            others: Vec::new(),
        };
        source.tables();
        source
    }

    fn tables(&mut self) {
        let streams = [&[self.pictures, (SOUND.0, self.sound)][..], &self.others].concat();
        self.muxer.tables(&streams);
    }

    fn send(mut self, pictures: u64) -> Source {
        for _ in 0..pictures {
            self.muxer.clock(self.clock);
            let is_key = self.number.is_multiple_of(self.keys);
            let unit = picture(if is_key { 0 } else { self.number * 5 + 1 });
            self.muxer.unit(self.pictures.0, (self.time + PICTURE, self.time), &unit);
            (self.time, self.clock) = (self.time + PICTURE, self.clock + PICTURE);
            self.number += 1;
            if self.number.is_multiple_of(10) {
                self.tables();
            }
        }
        self
    }

    /// Sends only clock references.
    fn send_clock(mut self, pictures: u64) -> Source {
        for _ in 0..pictures {
            self.muxer.clock(self.clock);
            self.clock += PICTURE;
        }
        self
    }

    /// Skips this much time of the pictures and of the clock.
    fn skip(mut self, [pictures, clock]: [u64; 2]) -> Source {
        self.time += pictures;
        self.clock += clock;
        self
    }

    /// Changes the streams from the next tables on.
    fn with(self, sound: u8, others: &[(u16, u8)]) -> Source {
        Source { sound, others: others.to_vec(), ..self }
    }

    /// Sends tables immediately.
    fn now(mut self) -> Source {
        self.tables();
        self
    }

    /// Returns its segments, cut during recording; each look adds `packets` packets. Checks that
    /// the segments and their parts follow the rules of playlists.
    fn recorded(&self, packets: usize) -> GrowingSegments {
        let file = &self.muxer.bytes[..];
        let mut scanner = Scanner::new();
        let mut growing: Option<GrowingSegments> = None;
        let mut looks = file.chunks(packets * TS_PACKET_BYTES).peekable();
        while let Some(bytes) = looks.next() {
            scanner.feed(bytes);
            let is_complete = looks.peek().is_none();
            let Ok((plan, starts)) = scanner.recorded_so_far(IDENTITY) else { continue };
            growing = growing.or_else(|| GrowingSegments::of(&plan, is_complete));
            if let Some(growing) = &mut growing {
                let before = growing.list().to_vec();
                growing.extend(&plan, &starts, is_complete);
                assert!(growing.list().starts_with(&before), "what was cut stays");
            }
        }
        let growing = growing.expect("a place to start");
        assert_rules(&growing, file);
        growing
    }
}

fn assert_rules(growing: &GrowingSegments, file: &[u8]) {
    let mut end = (0, 0);
    for (number, segment) in growing.list().iter().enumerate() {
        let GrowingSegment { tables, file: bytes, start, ticks, .. } = segment;
        assert!(bytes.start == end.0 && *start >= end.1, "{number}: {segment:?} {end:?}");
        end = (bytes.end, start + ticks);
        let rounded = (ticks + TICKS_PER_SECOND / 2) / TICKS_PER_SECOND;
        assert!(rounded <= growing.target_s(), "{number}: {segment:?}");
        assert!(*ticks >= TICKS_PER_SECOND / 50, "{number}: {segment:?}");
        let first = [tables, &file[bytes.start as usize..bytes.end as usize]].concat();
        let is_table = |packet: usize| first[packet * TS_PACKET_BYTES + 4..].starts_with(&[0]);
        assert!(first[1..3] == [0x40, 0] && is_table(0) && is_table(1), "{number}: {tables:?}");

        let parts = growing.parts(number);
        for (at, part) in parts.iter().enumerate() {
            let is_last = at + 1 == parts.len();
            let least = if is_last || part.is_independent { 1 } else { 85 };
            assert!(part.ticks <= growing.part_ticks(), "{number}.{at}: {part:?}");
            assert!(part.ticks * 100 >= growing.part_ticks() * least, "{number}.{at}: {part:?}");
        }
        if let [first, .., last] = parts {
            assert_eq!(first.file.start..last.file.end, bytes.clone(), "{number}: {parts:?}");
        }
    }
    assert_eq!(end.0, file.len() as u64);
}

/// Returns the gaps between segments that exceed rounding, in units of 90 kHz.
fn holes(growing: &GrowingSegments) -> Vec<u64> {
    let pairs = growing.list().windows(2);
    let holes = pairs.map(|pair| pair[1].start - pair[0].start - pair[0].ticks);
    holes.map(|ticks| ticks / 300).filter(|&hole| hole > PICTURE).collect()
}

/// Returns the starts of segments that begin with a discontinuity, in seconds.
fn breaks(growing: &GrowingSegments) -> Vec<u64> {
    let starts = growing.list().iter().filter(|one| one.is_break).map(|one| one.start);
    starts.map(|start| start / TICKS_PER_SECOND).collect()
}

#[test]
fn what_was_not_sent_is_between_segments() {
    for into in [0, 7, 32, 49] {
        let source = Source::new(50).send(10 * RATE + into).skip([5 * SECOND; 2]).send(10 * RATE);
        for packets in LOOKS {
            let growing = source.recorded(packets);
            let holes = holes(&growing);
            assert!(holes.len() == 1 && holes[0].abs_diff(5 * SECOND) < 9000, "{into}: {holes:?}");
            assert!(growing.list().len() <= 12, "{into}: {:?}", growing.list());
        }
    }
}

#[test]
fn streams_without_pictures_are_cut_by_the_clock() {
    let silent = || Source::new(50).send(10 * RATE + 7).send_clock(8 * RATE);
    // The times of pictures either continue with the clock or lag behind it.
    for source in [silent().skip([8 * SECOND, 0]).send(10 * RATE), silent().send(20 * RATE)] {
        for packets in LOOKS {
            let growing = source.recorded(packets);
            assert_eq!(holes(&growing), []);
            let lasts = growing.next_start() / TICKS_PER_SECOND;
            let sent = (source.clock - 10 * SECOND) / SECOND;
            assert!(lasts.abs_diff(sent) <= 1, "{lasts} s of {sent}");
        }
    }
}

#[test]
fn pictures_that_seldom_come_are_no_holes() {
    for apart in [RATE * 5 / 4, RATE * 3] {
        let mut source = Source::new(1);
        for _ in 0..20 {
            source = source.send(1).send_clock(apart - 1).skip([(apart - 1) * PICTURE, 0]);
        }
        for packets in LOOKS {
            let growing = source.recorded(packets);
            assert_eq!(holes(&growing), []);
            let lasts = 20 * apart * PICTURE * 300;
            let least = lasts / ((growing.target_s() + 1) * TICKS_PER_SECOND);
            let most = least + least / 2 + 2;
            assert!((growing.list().len() as u64) <= most, "{apart}: {:?}", growing.list());
        }
    }
}

#[test]
fn pictures_that_come_early_or_late_keep_segments_short() {
    for [pictures, clock] in [[0, 9 * SECOND / 10], [0, SECOND], [3 * SECOND, 0]] {
        let source = Source::new(50).send(11 * RATE + 7).skip([pictures, clock]).send(4 * RATE);
        let source = source.skip([clock, pictures]).send(10 * RATE);
        for packets in LOOKS {
            source.recorded(packets);
        }
    }
}

#[test]
fn other_pictures_are_a_break_before_their_first_key_frame() {
    let mut source = Source::new(50).send(10 * RATE + 20);
    source.pictures = (PICTURES.0 + 0x20, PICTURES.1);
    let growing = source.now().send(10 * RATE).recorded(LOOKS[0]);
    let start = growing.list().iter().find(|one| one.is_break).expect("a break").start;
    assert!(start.abs_diff(TICKS_PER_SECOND * 54 / 5) <= 300 * PICTURE, "{start}");
}

#[test]
fn parts_go_on_behind_pictures_that_are_missing() {
    for missing in [SECOND / 2, 3 * SECOND / 4] {
        let source = Source::new(50).send(10 * RATE + 7).skip([missing, missing]).send(10 * RATE);
        for packets in LOOKS {
            let growing = source.recorded(packets);
            for number in 3..growing.list().len() {
                assert!(!growing.parts(number).is_empty(), "{missing}: {number}");
            }
        }
    }
}

#[test]
fn segments_without_a_key_frame_begin_with_tables() {
    let source = Source::new(30 * RATE).send(65 * RATE);
    for packets in LOOKS {
        let growing = source.recorded(packets);
        assert!(growing.list().len() > 10);
        assert_eq!(growing.list()[1].tables.len(), 2 * TS_PACKET_BYTES);
    }
}

#[test]
fn tables_that_name_other_sound_are_a_break() {
    const DATA: (u16, u8) = (0x1a0, 0x06);
    let source = Source::new(50).send(9 * RATE).with(MPEG_SOUND, &[]).send(10 * RATE);
    // A data stream causes no discontinuity.
    let source = source.with(MPEG_SOUND, &[DATA]).send(10 * RATE);
    let source = source.with(AAC, &[DATA]).send(10 * RATE);
    for packets in LOOKS {
        assert_eq!(breaks(&source.recorded(packets)), [10, 30]);
    }
    // The same at any position of the tables within a segment.
    for into in [3, 15, 24, 25, 26] {
        let source = Source::new(1).send(10 * RATE + into).with(MPEG_SOUND, &[]).send(5 * RATE);
        let growing = source.recorded(LOOKS[0]);
        let next_tables = (10 * RATE + into).next_multiple_of(10);
        let start = growing.list().iter().find(|one| one.is_break).expect("a break").start;
        let picture = start.div_ceil(300) / PICTURE;
        assert!(picture.abs_diff(next_tables) <= 1, "{into}: {picture} {next_tables}");
    }
    // Together with a clock reset they cause one discontinuity.
    let jump = [1000 * SECOND; 2];
    let set = Source::new(50).send(10 * RATE + 5).with(MPEG_SOUND, &[]).skip(jump);
    assert_eq!(breaks(&set.now().send(10 * RATE).recorded(LOOKS[0])), [10]);
    // Tables that change with every tenth picture do not each cause a discontinuity.
    let mut flapping = Source::new(2);
    for number in 0..200 {
        flapping = flapping.with([AAC, MPEG_SOUND][number % 2], &[]).send(10);
    }
    let breaks = breaks(&flapping.recorded(LOOKS[0]));
    assert!((80..=100).contains(&breaks.len()), "{breaks:?}");

    // The same discontinuities are in the complete file.
    let file = &source.muxer.bytes[..];
    let mut scanner = Scanner::new();
    scanner.feed(file);
    let (plan, starts) = scanner.finish_with_starts(file.len() as u64, IDENTITY).expect("good");
    let whole = SegmentPlan::cut(&plan, starts, 2).expect("a place to start");
    assert_eq!(whole.list().iter().filter(|segment| segment.is_break).count(), 2);
}
