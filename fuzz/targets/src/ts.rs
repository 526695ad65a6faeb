// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes transport streams: `media::Scanner` and its plan; `media::Survey` and the formats that it
//! reads; and `media::Extract`.
//!
//! Half of the inputs are used directly. The others are scripts with a few bytes a step, which
//! build a transport stream: tables with the right CRC, clock references, access units, stuffing,
//! junk and cuts. Mutation of raw bytes hardly ever gets past the search for sync.
//!
//! Checked: every division of the bytes into pieces gives the same plan or refusal; the packets of
//! the plan start with sync bytes; every byte of the file is accounted for; the invariants of
//! [`crate::plan::check`], of [`crate::elementary`] and of [`crate::trick`].
//!
//! Sources: ISO/IEC 13818-1 §2.4.3, §2.4.4.

use media::{
    Extract, PacketPlan, Refusal, RtpIdentity, Scanner, SegmentPlan, StreamKeyFrames, Survey,
    TS_PACKET_BYTES,
};

use crate::FuzzTarget;
use crate::pieces::pieces;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "ts", run };

const IDENTITY: RtpIdentity =
    RtpIdentity { ssrc: 0x1234_5678, first_sequence: 0xfff0, first_timestamp: 0xffff_0000 };

const STEP_BYTES: usize = 6;
/// Longest built stream: longer ones find nothing new and are slow to build.
const STREAM_BYTES_MAX: usize = 24 << 10;
const NULL_PID: u16 = 0x1fff;

fn run(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let built;
    let bytes = match choice & 3 {
        0 | 1 => rest,
        2 => {
            built = build(rest, 0);
            &built
        }
        _ => {
            built = build(rest, 4);
            &built
        }
    };
    check_programmes(bytes);
    check_programmes(&units(choice, rest));
    let timed = timed_units(choice, rest);
    if let Ok(plan) = scan(&[&timed], timed.len(), IDENTITY) {
        crate::elementary::check(&plan, &timed);
    }
    let plan = scan(&[bytes], bytes.len(), IDENTITY);
    assert_eq!(plan, scan(&pieces(bytes, choice >> 2), bytes.len(), IDENTITY), "the cut matters");
    match plan {
        Ok(plan) => {
            check_bytes(&plan, bytes);
            check_segments(bytes, u64::from(choice >> 4));
            crate::plan::check(&plan);
            crate::trick::check_stream(&plan, bytes);
            crate::elementary::check(&plan, bytes);
        }
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
}

/// Checks programmes, formats and extraction: the output has whole packets of one programme only,
/// and is the same when a second extractor resumes in the middle.
fn check_programmes(bytes: &[u8]) {
    let survey = |bytes: &[u8]| {
        let mut survey = Survey::default();
        survey.feed(bytes);
        survey.finish()
    };
    let packets = bytes.len() / TS_PACKET_BYTES;
    for programme in survey(bytes) {
        if let Ok(codecs) = media::codecs(&programme.tracks) {
            assert!(
                codecs.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".,-".contains(&byte))
            );
        }
        for only in std::iter::once(None).chain(programme.tracks.iter().map(|t| Some(t.pid))) {
            let mut extract = Extract::new(&programme, only);
            let (mut made, mut again) = (Vec::new(), Vec::new());
            for (index, packet) in bytes.chunks_exact(TS_PACKET_BYTES).enumerate() {
                if index == packets / 2 {
                    let counters = extract.counters();
                    extract = Extract::new(&programme, only);
                    extract.resume(counters);
                }
                extract.feed(packet.try_into().expect("a packet"), &mut made);
            }
            let mut whole = Extract::new(&programme, only);
            for packet in bytes.chunks_exact(TS_PACKET_BYTES) {
                whole.feed(packet.try_into().expect("a packet"), &mut again);
            }
            assert!(made == again && made.len().is_multiple_of(TS_PACKET_BYTES));
            let found = survey(&made);
            assert!(found.iter().all(|found| found.number == programme.number));
        }
        for track in &programme.tracks {
            assert!(track.language().is_none_or(|language| language.len() == 3));
        }
    }
}

/// Builds a stream that carries the bytes as access units of the formats that are read.
fn units(choice: u8, bytes: &[u8]) -> Vec<u8> {
    const TYPES: [u8; 8] = [0x1b, 0x24, 0x02, 0x10, 0x03, 0x0f, 0x11, 0x81];
    let mut stream = StreamBuilder { bytes: Vec::new(), arrival_bytes: 0 };
    stream.section(0, &[0x00], &[0, 1, 0xe1, 0]);
    let first = TYPES[usize::from(choice) % TYPES.len()];
    let second = if choice & 0x80 == 0 { 0x87 } else { 0x02 };
    stream.section(0x100, &[0x02], &map(0, 0, first, second));
    for pid in [0x200, 0x201] {
        let mut parts = bytes.chunks(150).take(8);
        let head = [0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0];
        stream.packet(pid, true, &[], &[&head[..], parts.next().unwrap_or_default()].concat());
        parts.for_each(|part| stream.packet(pid, false, &[], part));
    }
    stream.bytes
}

/// Builds a stream with a clock and two elementary streams, whose PES packets have times. Each part
/// of the bytes begins with flags and a time, and may follow a header of its coding.
fn timed_units(choice: u8, bytes: &[u8]) -> Vec<u8> {
    const TYPES: [u8; 6] = [0x1b, 0x24, 0x0f, 0x03, 0x81, 0x87];
    let kinds = [choice, choice >> 4].map(|at| TYPES[usize::from(at & 15) % TYPES.len()]);
    let mut stream = StreamBuilder { bytes: Vec::new(), arrival_bytes: 0 };
    stream.section(0, &[0x00], &[0, 1, 0xe1, 0]);
    stream.section(0x100, &[0x02], &map(3, 0, kinds[0], kinds[1]));
    stream.packet(0x203, false, &[0x10, 0, 0, 0, 0, 0x7e, 0], &[]);
    let mut counters = [0_u8; 2];
    for part in bytes.chunks(48).take(96) {
        let [flags, high, low, code, body @ ..] = part else { break };
        let which = usize::from(flags & 1);
        let mut unit = Vec::new();
        let is_start = flags & 2 != 0;
        if is_start {
            let time = u64::from(u16::from_be_bytes([*high, *low])) << (flags >> 6 << 3);
            let bits = |shift: u32| (time >> shift) as u8;
            unit.extend([0, 0, 1, 0xe0, *high, *low, 0x80 | flags & 0x10, 0x80, 5]);
            unit.extend([
                0x21 | bits(29) & 0x0e,
                bits(22),
                bits(14) | 1,
                bits(7),
                bits(0) << 1 | 1,
            ]);
        }
        if flags & 4 != 0 {
            let size = body.len() + 7;
            match kinds[which] {
                0x1b | 0x24 => unit.extend([0, 0, 0, 1, *code]),
                0x0f => unit.extend([
                    0xff,
                    0xf1,
                    0x50,
                    0x80 | (size >> 11) as u8,
                    (size >> 3) as u8,
                    (size << 5) as u8 | 0x1f,
                    0xfc,
                ]),
                0x03 => unit.extend([0xff, 0xfb, 0x10 | code & 0x0c, 0]),
                _ => unit.extend([0x0b, 0x77, code & 0xc0, 23, 0x3f, 0x80 | code & 0x1f]),
            }
        }
        unit.extend(body);
        // Stuffing is before the payload: frames follow each other.
        let stuffing = vec![0; TS_PACKET_BYTES - 5 - unit.len()];
        stream.packet(0x200 + which as u16, is_start, &stuffing, &unit);
        let control = stream.bytes.len() - TS_PACKET_BYTES + 3;
        counters[which] = counters[which].wrapping_add(1 + (flags >> 3 & 1));
        stream.bytes[control] |= counters[which] & 15 | if flags & 0x20 != 0 { 0x80 } else { 0 };
    }
    stream.packet(0x203, false, &[0x10, 0, 1, 0x5f, 0x90, 0x7e, 0], &[]);
    stream.bytes
}

fn scan(pieces: &[&[u8]], bytes: usize, identity: RtpIdentity) -> Result<PacketPlan, Refusal> {
    let mut scanner = Scanner::new();
    for piece in pieces {
        scanner.feed(piece);
    }
    scanner.finish(bytes as u64, identity)
}

/// Checks the segments against their file: together they cover it in order, in whole packets, and
/// each starts with tables.
fn check_segments(bytes: &[u8], target_s: u64) {
    let mut scanner = Scanner::new();
    scanner.feed(bytes);
    let scanned = scanner.finish_with_starts(bytes.len() as u64, IDENTITY);
    let (plan, starts) = scanned.expect("it was a plan before");
    let segments = match SegmentPlan::cut(&plan, starts.clone(), target_s) {
        Ok(segments) => segments,
        Err(refusal) => return assert!(!refusal.to_string().is_empty()),
    };
    let mut end = 0;
    for segment in segments.list() {
        assert_eq!(segment.file.start, end);
        end = segment.file.end;
        assert!(segment.file.start < end && end % TS_PACKET_BYTES as u64 == 0);
        let tables = segments.tables(segment);
        assert!(tables.len().is_multiple_of(TS_PACKET_BYTES));
        let first = tables.first_chunk().unwrap_or_else(|| {
            bytes[segment.file.start as usize..].first_chunk().expect("a packet")
        });
        assert!(matches!(first, [0x47, pid, 0] if pid & 0x1f == 0), "no PAT: {first:?}");
    }
    assert_eq!(end + segments.tail_bytes(), bytes.len() as u64);
    assert!(segments.target_s() <= 4 * target_s.max(1));
    let frames = StreamKeyFrames::of(&plan, &starts, &segments, bytes).expect("it is in memory");
    let Ok(frames) = frames else { return };
    let mut end = 0;
    for frame in frames.list() {
        assert!(end <= frame.file.start && frame.file.start < frame.file.end);
        end = frame.file.end;
        assert!(
            frames.tables(frame).first_chunk().is_some_and(|&[sync, ..]: &[u8; 3]| sync == 0x47)
        );
    }
    assert!(end <= bytes.len() as u64);
    let ticks: u64 = frames.list().iter().map(|frame| frame.ticks).sum();
    assert_eq!(ticks, segments.list().iter().map(|segment| segment.ticks).sum::<u64>());
    let tables = frames.file_tables();
    assert!(tables.is_none_or(|tables| tables.len() == frames.list().len()));
}

/// Checks the plan against its file.
fn check_bytes(plan: &PacketPlan, bytes: &[u8]) {
    assert_eq!(plan.file_bytes(), bytes.len() as u64);
    let mut end = 0;
    let mut between = 0;
    for extent in plan.extents() {
        between += extent.file_offset - end;
        for packet in 0..extent.ts_packets {
            let offset = extent.file_offset + packet * plan.stride();
            assert_eq!(bytes[offset as usize], 0x47, "no packet at {offset}");
        }
        end = extent.file_offset + (extent.ts_packets - 1) * plan.stride() + TS_PACKET_BYTES as u64;
    }
    between += plan.file_bytes() - end;
    // A byte outside packets was lost, or belongs to the tail or to an arrival time. Arrival times
    // have four bytes: one before each row of packets, and one left over after the row.
    let reported = plan.lost_bytes() + plan.tail_bytes();
    let arrivals = if plan.stride() == 192 { 8 * (plan.losses_seen() + 1) } else { 0 };
    let what = || format!("{between} bytes unused, {reported} told: {plan:?}");
    assert!(reported <= between && between <= reported + arrivals, "{}", what());
    let listed: u64 = plan.losses().iter().map(|loss| loss.bytes).sum();
    if plan.losses().len() as u64 == plan.losses_seen() {
        assert_eq!(listed, plan.lost_bytes());
    }
}

/// Returns a plan of a handful of packets.
pub(crate) fn smallest_plan(identity: RtpIdentity) -> PacketPlan {
    let script = [
        [0, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0x1b, 0x0f],
        [2, 0, 0, 0, 0, 1],
        [4, 0, 9, 0, 0, 0],
        [2, 0, 0, 0, 1, 1],
    ];
    let bytes = build(script.as_flattened(), 0);
    scan(&[&bytes], bytes.len(), identity).expect("a good transport stream")
}

/// Builds the transport stream of a script, with `arrival_bytes` before each packet.
fn build(script: &[u8], arrival_bytes: usize) -> Vec<u8> {
    let mut stream = StreamBuilder { bytes: Vec::new(), arrival_bytes };
    for step in script.chunks_exact(STEP_BYTES) {
        if stream.bytes.len() > STREAM_BYTES_MAX {
            break;
        }
        let [kind, a, b, c, d, e] = [step[0], step[1], step[2], step[3], step[4], step[5]];
        let pid = 0x200 + u16::from(a & 3);
        match kind % 8 {
            0 => {
                let map_pid = 0x100 + u16::from(a & 3);
                stream.section(0, &[0x00], &[0, 1, 0xe0 | (map_pid >> 8) as u8, map_pid as u8]);
            }
            1 => stream.section(0x100 + u16::from(a & 3), &[0x02], &map(b, c, d, e)),
            2 => {
                let flags = (b & 0xc0) | 0x10;
                stream.packet(pid, false, &[flags, c, d, e, 0, 0x7e, b & 1], &[]);
            }
            3 => {
                let unit = [0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, b, c, d, 0, 0, 1, e];
                stream.packet(pid, true, &[b & 0x40], &unit);
            }
            4 => (0..=b % 32).for_each(|_| stream.packet(pid, false, &[], &[c, d, e])),
            5 => (0..=b % 32).for_each(|_| stream.packet(NULL_PID, false, &[], &[])),
            6 => stream.bytes.extend((0..a).map(|index| if index % 3 == 0 { b } else { c })),
            _ => stream.bytes.truncate(stream.bytes.len().saturating_sub(usize::from(a))),
        }
    }
    stream.bytes
}

/// Returns the part of a programme map after its section header: clock PID and two streams.
fn map(clock: u8, first: u8, first_type: u8, second_type: u8) -> [u8; 14] {
    let clock_pid = if clock & 0x80 != 0 { NULL_PID } else { 0x200 + u16::from(clock & 3) };
    let [high, low] = (0xe000 | clock_pid).to_be_bytes();
    let first_pid = first & 3;
    let stream = |kind, pid| [kind, 0xe2, pid, 0xf0, 0];
    let [s0, s1, s2, s3, s4] = stream(first_type, first_pid);
    let [t0, t1, t2, t3, t4] = stream(second_type, first_pid ^ 1);
    [high, low, 0xf0, 0, s0, s1, s2, s3, s4, t0, t1, t2, t3, t4]
}

struct StreamBuilder {
    bytes: Vec<u8>,
    arrival_bytes: usize,
}

impl StreamBuilder {
    /// Appends a packet: an adaptation field unless it is empty (flags and the bytes after them),
    /// the payload, and stuffing after it.
    fn packet(&mut self, pid: u16, starts_unit: bool, adaptation: &[u8], payload: &[u8]) {
        self.bytes.extend(std::iter::repeat_n(0x47, self.arrival_bytes));
        let start = self.bytes.len();
        let [high, low] = pid.to_be_bytes();
        let control = if adaptation.is_empty() { 0x10 } else { 0x30 };
        self.bytes.extend([0x47, u8::from(starts_unit) << 6 | high, low, control]);
        if !adaptation.is_empty() {
            self.bytes.push(adaptation.len() as u8);
            self.bytes.extend(adaptation);
        }
        self.bytes.extend(payload);
        self.bytes.resize(start + TS_PACKET_BYTES, 0xff);
    }

    /// Appends a packet with one section: table, the usual header fields, the body and the CRC.
    fn section(&mut self, pid: u16, table: &[u8; 1], body: &[u8]) {
        let length = (5 + body.len() + 4) as u8;
        let mut section = vec![table[0], 0xb0, length, 0, 1, 0xc1, 0, 0];
        section.extend(body);
        section.extend(crc_32_mpeg(&section).to_be_bytes());
        section.insert(0, 0);
        self.packet(pid, true, &[], &section);
    }
}

/// Computes the CRC of ISO/IEC 13818-1 annex A.
pub(crate) fn crc_32_mpeg(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte) << 24, |crc, _| {
            if crc >> 31 == 1 { crc << 1 ^ 0x04c1_1db7 } else { crc << 1 }
        })
    })
}
