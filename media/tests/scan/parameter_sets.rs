// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that segments whose first picture lacks its parameter sets are preceded by those in force,
//! and that no packet seems to be missing.
//!
//! Sources: RFC 8216 §3; ISO/IEC 13818-1 §2.4.3.3 (continuity), §2.4.3.6 (PES packets).

use std::time::Duration;

use media::ts::{Monitor, entry_points};
use media::{
    EntryLead, GrowingSegments, PacketPlan, PlanKey, SegmentPlan, StreamUnits, entry_lead,
};

use crate::writer::{Adaptation, FRAME_TICKS, H264, PMT_PID, VIDEO_PID, Writer};
use crate::{IDENTITY, fed};

const H265: u8 = 0x24;

const SPS: &[u8] = &[0x67, 0x64, 0, 0x1f, 0xac, 0xd9];
const OTHER_SPS: &[u8] = &[0x67, 0x64, 0, 0x28, 0xac, 0xd9];
const PPS: &[u8] = &[0x68, 0xee, 0x3c, 0x80];
const SECOND_PPS: &[u8] = &[0x68, 0x4e, 0x3c, 0x80];
const IDR: &[u8] = &[0x65, 0x88, 0x84];
const PREDICTED: &[u8] = &[0x41, 0x9a, 0x84];

const VIDEO_SET: &[u8] = &[0x40, 1, 0x0c, 1, 0xff];
const SEQUENCE_SET: &[u8] =
    &[0x42, 1, 1, 1, 0x60, 0, 0, 3, 0, 0x90, 0, 0, 3, 0, 0, 3, 0, 0x3c, 0xa0, 0x0a, 8, 0x0c, 0x1f];
const PICTURE_SET: &[u8] = &[0x44, 1, 0xc1, 0x72];

/// Presentation time of a frame, which is decoded earlier.
const EARLY: u64 = 7200;

/// A film in the making, of a picture of three packets each 40 ms.
struct Film {
    writer: Writer,
    stream_type: u8,
    frame: u64,
    /// The multiplexer announces key frames.
    is_announced: bool,
}

impl Film {
    fn new(stream_type: u8, is_announced: bool) -> Film {
        Film { writer: Writer::default(), stream_type, frame: 0, is_announced }
    }

    fn tables(&mut self) {
        self.writer.pat(&[(1, PMT_PID)]);
        self.writer.pmt(VIDEO_PID, &[(VIDEO_PID, self.stream_type)]);
    }

    /// A PES packet of these NAL units, of the next frame.
    fn unit(&mut self, is_key: bool, nals: &[&[u8]]) {
        let decoded = self.frame * 3600 + 90_000;
        let mut bytes = vec![0, 0, 1, 0xe3, 0, 0, 0x80, 0xc0, 10];
        for (prefix, time) in [(0x30, decoded + EARLY), (0x10, decoded)] {
            bytes.push(prefix | (time >> 29 & 0x0e) as u8 | 1);
            bytes.extend(((time >> 14 & 0xfffe) as u16 | 1).to_be_bytes());
            bytes.extend(((time << 1 & 0xfffe) as u16 | 1).to_be_bytes());
        }
        for nal in nals {
            bytes.extend([0, 0, 0, 1]);
            bytes.extend_from_slice(nal);
        }
        let pcr = Some(self.frame * FRAME_TICKS);
        let random_access = is_key && self.is_announced;
        let first = Adaptation { pcr, random_access, ..Adaptation::default() };
        let mut rest = self.writer.packet(VIDEO_PID, true, Some(first), &bytes);
        while !rest.is_empty() {
            rest = self.writer.packet(VIDEO_PID, false, None, rest);
        }
    }

    /// A group of 25 pictures after tables, of which the first has these NAL units.
    fn group(&mut self, key: &[&[u8]]) {
        self.tables();
        let predicted = if self.stream_type == H265 { &[2, 1, 0xd0][..] } else { PREDICTED };
        self.unit(true, key);
        self.frame += 1;
        for _ in 1..25 {
            self.unit(false, &[predicted]);
            (0..2).for_each(|_| self.writer.middle(VIDEO_PID));
            self.frame += 1;
        }
    }
}

/// Returns the plan of a file and its segments of a second, which are the same from the stored
/// plan.
fn cut(file: &[u8]) -> (PacketPlan, SegmentPlan) {
    let (plan, starts) = fed(file, []).finish_with_starts(file.len() as u64, IDENTITY).unwrap();
    let segments = SegmentPlan::cut(&plan, starts, 1).unwrap();
    let bytes = file.len() as u64;
    let key = PlanKey { path: vec![b'a'], bytes, modified_ns: 1, inode: 2 };
    let stored = PacketPlan::decode(&plan.encode(&key), &key).unwrap();
    assert_eq!(stored, plan);
    let again = SegmentPlan::cut(&stored, entry_points(&stored, file).unwrap(), 1).unwrap();
    assert_eq!(in_front(&again), in_front(&segments));
    (plan, segments)
}

/// Packets sent before each segment.
fn in_front(segments: &SegmentPlan) -> Vec<Vec<u8>> {
    segments.list().iter().map(|segment| segments.tables(segment)).collect()
}

/// Each segment in sent form.
fn sent(segments: &SegmentPlan, file: &[u8]) -> Vec<Vec<u8>> {
    let bytes = |range: &std::ops::Range<u64>| &file[range.start as usize..range.end as usize];
    let list = segments.list().iter();
    list.map(|segment| [&segments.tables(segment)[..], bytes(&segment.file)].concat()).collect()
}

/// Continuity errors of segments played one after the other, and of each alone.
fn assert_continuous(sent: &[Vec<u8>]) {
    let errors = |stream: &[u8]| {
        let mut monitor = Monitor::new();
        monitor.feed(stream, Duration::ZERO);
        monitor.counts().continuity_errors
    };
    assert_eq!(errors(&sent.concat()), 0, "one after the other");
    assert!(sent.iter().all(|segment| errors(segment) == 0), "alone");
}

/// The payload of a PID's packets.
fn payload(packets: &[u8], pid: u16) -> Vec<u8> {
    let mut payload = Vec::new();
    for packet in packets.as_chunks::<188>().0 {
        if u16::from_be_bytes([packet[1] & 0x1f, packet[2]]) == pid {
            let stuffing = if packet[3] & 0x20 != 0 { usize::from(packet[4]) + 1 } else { 0 };
            payload.extend_from_slice(&packet[4 + stuffing..]);
        }
    }
    payload
}

/// Returns the NAL units of the first PES packet, each after its start code; its times are
/// `frame`'s.
fn sets_in_front(packets: &[u8], frame: u64) -> Vec<u8> {
    let pes = payload(packets, VIDEO_PID);
    assert_eq!(pes[..4], [0, 0, 1, 0xe3]);
    assert_eq!(usize::from(u16::from_be_bytes([pes[4], pes[5]])), pes.len() - 6);
    let time = |at: usize| {
        let field = pes[at..at + 5].iter().fold(0, |all, &byte| all << 8 | u64::from(byte));
        field >> 3 & 7 << 30 | field >> 2 & 0x7fff << 15 | field >> 1 & 0x7fff
    };
    let decoded = frame * 3600 + 90_000;
    assert_eq!((time(9), time(14)), (decoded + EARLY, decoded));
    pes[19..].to_vec()
}

fn started(nals: &[&[u8]]) -> Vec<u8> {
    nals.iter().flat_map(|nal| [&[0, 0, 0, 1], *nal].concat()).collect()
}

#[test]
fn pictures_with_their_own_sets_get_nothing() {
    for is_announced in [false, true] {
        let mut film = Film::new(H264, is_announced);
        (0..4).for_each(|_| film.group(&[SPS, PPS, IDR]));
        let (plan, segments) = cut(&film.writer.file);
        assert_eq!(plan.entries().len(), 4);
        assert!(in_front(&segments).iter().all(Vec::is_empty));
        let mut film = Film::new(H265, is_announced);
        let idr = &[19 << 1, 1, 0x80][..];
        (0..4).for_each(|_| film.group(&[VIDEO_SET, SEQUENCE_SET, PICTURE_SET, idr]));
        assert!(in_front(&cut(&film.writer.file).1).iter().all(Vec::is_empty));
    }
}

#[test]
fn pictures_without_sets_get_those_of_the_films_beginning() {
    for (stream_type, sets, key) in [
        (H264, &[SPS, PPS, SECOND_PPS][..], IDR),
        (H265, &[VIDEO_SET, SEQUENCE_SET, PICTURE_SET], &[21 << 1, 1, 0x80]),
    ] {
        for is_announced in [false, true] {
            let mut film = Film::new(stream_type, is_announced);
            film.group(&[sets, &[key]].concat());
            (0..3).for_each(|_| film.group(&[key]));
            let file = &film.writer.file;
            let (_, segments) = cut(file);
            let in_front = in_front(&segments);
            assert!(in_front[0].is_empty() && in_front.len() == 4);
            for (number, packets) in (0..).zip(&in_front).skip(1) {
                assert_eq!(packets.len(), (2 + 16) * 188, "the tables, then the sets");
                assert_eq!(sets_in_front(packets, number * 25), started(sets));
            }
            let sent = sent(&segments, file);
            assert_continuous(&sent);
            // Nothing of the film is lost or moved.
            let files = segments.list().iter().zip(&in_front).zip(&sent);
            let rest: Vec<u8> = files.flat_map(|((_, lead), s)| s[lead.len()..].to_vec()).collect();
            assert!(rest == *file);
        }
    }
}

/// A stream of a play from a packet of the plan on, as RTP carries it.
fn played(plan: &PacketPlan, file: &[u8], from: u64) -> (Option<EntryLead>, Vec<u8>) {
    let lead = entry_lead(plan, from, file).unwrap();
    let (mut stream, next) = match &lead {
        Some(lead) => (lead.packets.clone(), lead.next),
        None => (Vec::new(), from),
    };
    for packet in next..plan.packets() {
        let payload = plan.payload(packet);
        let bytes = payload.ts_packets as usize * 188;
        stream.extend_from_slice(&file[payload.file_offset as usize..][..bytes]);
    }
    (lead, stream)
}

#[test]
fn a_play_that_begins_where_sets_are_lacking_begins_with_them() {
    let mut film = Film::new(H264, true);
    film.group(&[SPS, PPS, IDR]);
    (0..3).for_each(|_| film.group(&[IDR]));
    film.group(&[SPS, PPS, IDR]);
    let file = &film.writer.file;
    let (plan, _) = cut(file);
    let rtp_packet = |ts_packet: u64| ts_packet / 7;
    for (number, entry) in (0..).zip(plan.entries()) {
        let from = rtp_packet(entry.ts_packet);
        let (lead, stream) = played(&plan, file, from);
        assert_eq!(lead.is_some(), (1..4).contains(&number), "{number}");
        assert_eq!(plan.lacks_parameters(from), lead.is_some());
        let Some(lead) = lead else { continue };
        assert_eq!(lead.next, rtp_packet(entry.access_unit) + 1, "it goes on in the plan");
        let mut monitor = Monitor::new();
        monitor.feed(&stream, Duration::ZERO);
        assert_eq!(monitor.counts().continuity_errors, 0);
        let (in_front, rest) = stream.split_at((2 + 16) * 188);
        assert_eq!(sets_in_front(in_front, number * 25), started(&[SPS, PPS]));
        let unit = &file[entry.access_unit as usize * 188..];
        assert!(rest == unit, "nothing is lost or moved from the access unit on");
        assert!(!plan.lacks_parameters(from + 1), "no place to start");
    }
    // Truncated in its first packets: nothing follows with which play could continue.
    let last = plan.entries()[3];
    let cut_off = &file[..(last.access_unit as usize + 1) * 188];
    let (plan, _) = cut(cut_off);
    let from = rtp_packet(last.ts_packet);
    assert_eq!(entry_lead(&plan, from, cut_off).unwrap(), None);
    // Tables that are only at the start are found there.
    let mut film = Film::new(H264, true);
    film.group(&[SPS, PPS, IDR]);
    film.unit(true, &[IDR]);
    (0..9).for_each(|_| film.writer.middle(VIDEO_PID));
    let (plan, _) = cut(&film.writer.file);
    let last = plan.entries().last().unwrap();
    let lead = entry_lead(&plan, rtp_packet(last.ts_packet), &film.writer.file[..]).unwrap();
    assert_eq!(sets_in_front(&lead.unwrap().packets[..18 * 188], 25), started(&[SPS, PPS]));
}

#[test]
fn sets_that_change_are_in_force_from_there_on() {
    let mut film = Film::new(H264, true);
    film.group(&[SPS, PPS, IDR]);
    film.group(&[IDR]);
    film.group(&[OTHER_SPS, PPS, IDR]);
    film.group(&[IDR]);
    // Sets in a PES packet by themselves, and before a predicted picture.
    film.unit(false, &[SPS]);
    film.group(&[IDR]);
    film.unit(false, &[OTHER_SPS, SECOND_PPS, PREDICTED]);
    film.group(&[IDR]);
    // A sequence set without a picture set: the sets from before are sent first.
    film.group(&[SPS, IDR]);
    let (_, segments) = cut(&film.writer.file);
    let found: Vec<_> = (0..)
        .zip(in_front(&segments))
        .map(
            |(number, packets)| {
                if packets.is_empty() { packets } else { sets_in_front(&packets, number * 25) }
            },
        )
        .collect();
    let expected = [
        vec![],
        started(&[SPS, PPS]),
        vec![],
        started(&[OTHER_SPS, PPS]),
        started(&[SPS, PPS]),
        started(&[OTHER_SPS, PPS, SECOND_PPS]),
        started(&[SPS, PPS, SECOND_PPS]),
    ];
    assert_eq!(found, expected);
}

#[test]
fn sets_across_packets_are_whole() {
    let long = [SPS, &[0x55; 700]].concat();
    let pps = [PPS, &[0x2a; 2600]].concat();
    for fill in [0, 120, 150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 161, 170] {
        let mut film = Film::new(H264, true);
        let message = [&[6, 200][..], &vec![0x99; fill]].concat();
        film.group(&[&message, &long, &pps, IDR]);
        (0..2).for_each(|_| film.group(&[IDR]));
        let (_, segments) = cut(&film.writer.file);
        let in_front = in_front(&segments);
        // More than 16 packets hold.
        assert_eq!(in_front[1].len(), (2 + 32) * 188);
        assert_eq!(sets_in_front(&in_front[1], 25), started(&[&long, &pps]), "{fill}");
        assert_continuous(&sent(&segments, &film.writer.file));
    }
}

#[test]
fn sets_without_end_and_without_number_are_bounded() {
    // Longer than the limit for examination: pictures get none, as before.
    let mut film = Film::new(H264, true);
    film.group(&[&[SPS, &[0x55; 60_000]].concat(), PPS, IDR]);
    (0..2).for_each(|_| film.group(&[IDR]));
    assert!(in_front(&cut(&film.writer.file).1).iter().all(Vec::is_empty));

    // Other sets before each picture that lacks them.
    let mut film = Film::new(H264, true);
    film.tables();
    for number in 0..2000_u16 {
        let [high, low] = number.to_be_bytes();
        film.unit(false, &[&[SPS, &[high | 0x40, low | 1, 9]].concat(), PPS]);
        film.unit(true, &[IDR]);
        film.frame += 1;
    }
    let file = &film.writer.file;
    let (plan, starts) = fed(file, []).finish_with_starts(file.len() as u64, IDENTITY).unwrap();
    assert_eq!(plan.entries().len(), 2001 - 1);
    let key = PlanKey { path: vec![], bytes: file.len() as u64, modified_ns: 0, inode: 0 };
    assert!(plan.encode(&key).len() < 2000 * 16 + 256 * 32, "{}", plan.encode(&key).len());
    let segments = SegmentPlan::cut(&plan, starts, 1).unwrap();
    let of = |number: usize| segments.tables(&segments.list()[number]).len() / 188;
    assert_eq!((of(1), of(segments.list().len() - 1)), (2 + 16, 2), "the first are kept");
    // Of a channel the last.
    let mut units = StreamUnits::default();
    let mut leads = Vec::new();
    for packets in file.chunks(188 * 4) {
        units.feed(packets);
        while let Some(start) = units.next_start() {
            leads.push(units.lead(&start).len());
        }
    }
    assert!(leads.len() > 1900 && leads[1..].iter().all(|&bytes| bytes == 18 * 188), "{leads:?}");
}

#[test]
fn recordings_and_channels_have_them_too() {
    let mut film = Film::new(H264, true);
    film.group(&[SPS, PPS, IDR]);
    (0..30).for_each(|_| film.group(&[IDR]));
    let file = &film.writer.file;
    let (plan, starts) = fed(file, []).recorded_so_far(IDENTITY).unwrap();
    let mut recording = GrowingSegments::of(&plan, true).expect("a place to start");
    recording.extend(&plan, &starts, true);
    let mut units = StreamUnits::default();
    let mut channel = None;
    for (number, packets) in file.chunks(188 * 10).enumerate() {
        units.feed(packets);
        if number % 20 == 0 {
            channel = channel.or_else(|| GrowingSegments::of_channel(&units, 0));
            channel.iter_mut().for_each(|channel| channel.extend_channel(&units));
        }
    }
    for segments in [recording, channel.expect("enough is sent")] {
        let list = segments.list();
        assert!(list.len() > 8 && list[0].tables.is_empty());
        let mut all = Vec::new();
        for segment in list {
            let bytes = &file[segment.file.start as usize..segment.file.end as usize];
            all.push([&segment.tables, bytes].concat());
            let unit = payload(&segment.tables, VIDEO_PID);
            assert!(segment.file.start == 0 || unit.ends_with(&started(&[SPS, PPS])));
        }
        assert_continuous(&all);
    }
}
