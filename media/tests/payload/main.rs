// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests packets of tracks with depacketisers that share no code with the payloaders: the units
//! reassembled from the packets equal the samples.
//!
//! Sources: RFC 6184 §5, RFC 7798 §4.4, RFC 3640 §3.2, RFC 2250 §3.5, RFC 4184 §4.1, RFC 4598 §4.1,
//! RFC 3551 §4.5, RTP Payload Format For AV1 §4.4.

use std::cell::Cell;
use std::io;

use media::ReadAt;
use media::payload::layout::{PACKETS_MAX, UNITS_READ_MAX};
use media::payload::{Layout, LayoutWriter, PACKET_BYTES_MAX, RtpValues, UnitTimes, lay_out};
use media::plan::RtpIdentity;
use media::tracks::{
    AacConfig, Av1Config, Codec, Container, H264Config, H265Config, MediaSample, Presentation,
    SampleTableBuilder, Track,
};
use proptest::collection::vec;
use proptest::prelude::*;

mod cameras;
mod depayload;

const VALUES: RtpValues = RtpValues { payload_type: 96, ssrc: 7, sequence: 65_530, timestamp: 9 };
const SETS: [&[u8]; 2] = [&[0x67, 1, 2, 3], &[0x68, 4]];

/// A packet in sent form.
struct Packet {
    marker: bool,
    timestamp: u32,
    payload: Vec<u8>,
}

/// Creates a presentation of one track with these samples, which are contiguous in the returned
/// file; all are due within a second.
fn presentation(codec: Codec, samples: &[(Vec<u8>, bool)]) -> (Presentation, Vec<u8>) {
    let bytes: Vec<u8> = samples.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    // Samples without bytes are as few as the file has bytes.
    let file_bytes = (bytes.len() + samples.len()) as u64;
    let mut table = SampleTableBuilder::new(90_000, file_bytes);
    let mut file_offset = 0;
    for (number, (sample, is_start)) in samples.iter().enumerate() {
        let sample = MediaSample {
            file_offset,
            bytes: sample.len() as u32,
            decode: 1000 * number as u64,
            offset: if number % 2 == 0 { 500 } else { 0 },
            duration: 1000,
            is_start: *is_start || number == 0,
        };
        table.push(sample).unwrap();
        file_offset += u64::from(sample.bytes);
    }
    let identity = RtpIdentity { ssrc: 7, first_sequence: 0, first_timestamp: 0 };
    let samples = table.finish().unwrap();
    let track = Track::new(1, codec, samples, identity);
    let whole = Presentation::assemble(Container::Mp4, file_bytes, vec![track], Vec::new());
    (whole.unwrap(), bytes)
}

/// The packets of the first second, with everything checked that holds for each codec.
fn packets(codec: Codec, samples: &[(Vec<u8>, bool)]) -> (Vec<Packet>, u32) {
    let (presentation, file) = presentation(codec, samples);
    let layout = lay_out(&presentation, 0, 0, &file).unwrap();
    check(&layout);
    let packets = (0..layout.packets()).map(|number| {
        let mut head = Vec::new();
        layout.write_head(number, &VALUES, &mut head);
        assert_eq!(head.len(), layout.head_bytes(number));
        let sequence = u16::from_be_bytes([head[2], head[3]]);
        assert_eq!(sequence, 65_530_u16.wrapping_add(number as u16));
        let mut payload = head.split_off(12);
        layout.write_pieces(number..number + 1, |piece| {
            let from = piece.file_offset as usize;
            payload.extend(&file[from..from + piece.bytes as usize]);
        });
        assert!(12 + payload.len() <= PACKET_BYTES_MAX && !payload.is_empty());
        let bytes = layout.wire_offset(number + 1) - layout.wire_offset(number);
        assert_eq!(bytes, 12 + payload.len() as u64, "packet {number}");
        let timestamp = u32::from_be_bytes([head[4], head[5], head[6], head[7]]).wrapping_sub(9);
        Packet { marker: head[1] & 0x80 != 0, timestamp, payload }
    });
    (packets.collect(), layout.faults())
}

/// Checks the properties that the pacer relies on: due times in order and found again, rows of
/// equal packets.
fn check(layout: &Layout) {
    let mut before = 0;
    for packet in 0..layout.packets() {
        let ticks = layout.ticks(packet);
        assert!(ticks >= before, "packet {packet} is due before the one before it");
        assert!(
            layout.packets_before(ticks) <= packet && layout.packets_before(ticks + 1) > packet
        );
        before = ticks;
        let row = layout.row(packet, u32::MAX);
        let bytes = |at| layout.wire_offset(at + 1) - layout.wire_offset(at);
        let all = packet..packet + row.packets;
        let (last, others) = (all.end - 1, all.start..all.end - 1);
        assert!(others.clone().all(|at| bytes(at) == u64::from(row.packet_bytes)));
        assert!(bytes(last) <= u64::from(row.packet_bytes));
        assert_eq!(layout.payload_bytes(all.clone()), all.map(|at| bytes(at) - 12).sum::<u64>());
    }
    assert_eq!(layout.packets_before(u64::MAX), layout.packets());
    assert_eq!(layout.wire_offset(layout.packets()), layout.wire_bytes());
}

/// Bytes that distinguish samples.
fn noise(seed: u32, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..bytes).map(step).collect()
}

/// Access units as lists of NAL units: single packets, aggregates and fragments by their types.
fn nal_units(packets: &[Packet], is_h265: bool) -> Vec<Vec<Vec<u8>>> {
    let header_bytes = if is_h265 { 2 } else { 1 };
    let (aggregate, fragment) = if is_h265 { (48, 49) } else { (24, 28) };
    let (mut units, mut unit): (Vec<Vec<Vec<u8>>>, Vec<Vec<u8>>) = Default::default();
    let mut open: Option<Vec<u8>> = None;
    for packet in packets {
        let payload = &packet.payload;
        let kind = if is_h265 { payload[0] >> 1 & 0x3f } else { payload[0] & 0x1f };
        if kind == aggregate {
            let mut rest = &payload[header_bytes..];
            let mut count = 0;
            while let [a, b, behind @ ..] = rest {
                let (one, others) = behind.split_at(usize::from(u16::from_be_bytes([*a, *b])));
                unit.push(one.to_vec());
                (rest, count) = (others, count + 1);
            }
            assert!(rest.is_empty() && count > 1, "an aggregate of {count}");
        } else if kind == fragment {
            let fu = payload[header_bytes];
            let body = &payload[header_bytes + 1..];
            assert_eq!(fu & 0x80 != 0, open.is_none(), "S marks the first");
            assert!(fu & 0xc0 != 0xc0, "not both S and E");
            let header = match is_h265 {
                true => vec![payload[0] & 0x81 | (fu & 0x3f) << 1, payload[1]],
                false => vec![payload[0] & 0xe0 | fu & 0x1f],
            };
            let whole = open.get_or_insert(header);
            whole.extend_from_slice(body);
            if fu & 0x40 != 0 {
                unit.extend(open.take());
            }
        } else {
            unit.push(payload.clone());
        }
        if packet.marker {
            assert!(open.is_none(), "an access unit ends within a NAL unit");
            units.push(std::mem::take(&mut unit));
        }
    }
    assert!(unit.is_empty() && open.is_none(), "the last packet is marked");
    units
}

/// Samples of NAL units with lengths of this many bytes before them.
fn with_lengths(samples: &[(Vec<Vec<u8>>, bool)], length_bytes: u8) -> Vec<(Vec<u8>, bool)> {
    let prefixed = |unit: &Vec<u8>| {
        let length = (unit.len() as u32).to_be_bytes();
        [&length[4 - usize::from(length_bytes)..], unit].concat()
    };
    let sample = |(units, is_start): &(Vec<Vec<u8>>, bool)| {
        (units.iter().flat_map(prefixed).collect(), *is_start)
    };
    samples.iter().map(sample).collect()
}

/// Main profile, with these units before the first sample.
fn av1(units: Vec<u8>) -> Codec {
    Codec::Av1(Av1Config { profile: 0, level: 0, is_high_tier: false, bit_depth: 8, units })
}

fn h264(length_bytes: u8) -> Codec {
    Codec::H264(H264Config {
        length_bytes,
        profile: [0x64, 0, 0x1f],
        sequence_sets: vec![SETS[0].to_vec()],
        picture_sets: vec![SETS[1].to_vec()],
    })
}

/// Sizes of NAL units, and whether play can start.
fn shapes(most: usize) -> impl Strategy<Value = Vec<(Vec<usize>, bool)>> {
    vec((vec(prop_oneof![2..60_usize, 1000..most.max(1001)], 1..6), any::<bool>()), 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn h264_units_come_whole_and_in_order(shapes in shapes(9000), length_bytes in 0_usize..3) {
        let length_bytes = [1, 2, 4][length_bytes];
        let most = if length_bytes == 1 { 255 } else { usize::MAX };
        let unit = |(seed, bytes): (usize, &usize)| {
            let mut unit = noise(seed as u32, (*bytes).min(most));
            unit[0] = [0x41, 0x65, 0x06, 0x21][seed % 4];
            unit
        };
        let samples: Vec<_> = shapes
            .iter()
            .map(|(sizes, is_start)| (sizes.iter().enumerate().map(unit).collect(), *is_start))
            .collect();
        let (packets, faults) = packets(h264(length_bytes), &with_lengths(&samples, length_bytes));
        prop_assert_eq!(faults, 0);
        let received = nal_units(&packets, false);
        prop_assert_eq!(received.len(), samples.len());
        for (number, (units, is_start)) in samples.iter().enumerate() {
            let sets = SETS.iter().map(|set| set.to_vec());
            let sets = sets.filter(|_| *is_start || number == 0);
            let expected: Vec<_> = sets.chain(units.iter().cloned()).collect();
            prop_assert_eq!(&received[number], &expected);
        }
        let mut times: Vec<_> = packets.iter().map(|packet| packet.timestamp).collect();
        times.dedup();
        let time = |n: u32| 1000 * n + if n.is_multiple_of(2) { 500 } else { 0 };
        let expected: Vec<_> = (0..samples.len() as u32).map(time).collect();
        // Neighbours of equal times would be merged.
        prop_assert_eq!(times, expected);
    }

    #[test]
    fn h265_units_come_whole_and_in_order(shapes in shapes(9000)) {
        let unit = |(seed, bytes): (usize, &usize)| {
            let mut unit = noise(seed as u32, *bytes);
            (unit[0], unit[1]) = ([0x02, 0x28, 0x4e][seed % 3], 1 + (seed % 3) as u8);
            unit
        };
        let samples: Vec<_> = shapes
            .iter()
            .map(|(sizes, _)| (sizes.iter().enumerate().map(unit).collect(), false))
            .collect();
        let codec = Codec::H265(H265Config {
            length_bytes: 4,
            profile: [0; 12],
            video_sets: Vec::new(),
            sequence_sets: Vec::new(),
            picture_sets: Vec::new(),
        });
        let (packets, faults) = packets(codec, &with_lengths(&samples, 4));
        prop_assert_eq!(faults, 0);
        let expected: Vec<_> = samples.into_iter().map(|(units, _)| units).collect();
        prop_assert_eq!(nal_units(&packets, true), expected);
    }

    #[test]
    fn aac_units_come_whole_and_in_order(sizes in vec(1..8191_usize, 1..40)) {
        let samples: Vec<_> =
            sizes.iter().enumerate().map(|(n, &bytes)| (noise(n as u32, bytes), true)).collect();
        let codec = Codec::Aac(AacConfig {
            specific: vec![0x12, 0x10],
            object_type: 2,
            rate_hz: 90_000,
            channels: 2,
        });
        let (packets, faults) = packets(codec, &samples);
        prop_assert_eq!(faults, 0);
        let mut received = Vec::new();
        let mut open: Vec<u8> = Vec::new();
        for packet in &packets {
            let payload = &packet.payload;
            let headers = usize::from(u16::from_be_bytes([payload[0], payload[1]])) / 16;
            let size = |n: usize| {
                usize::from(u16::from_be_bytes([payload[2 + 2 * n], payload[3 + 2 * n]]) >> 3)
            };
            let mut body = &payload[2 + 2 * headers..];
            if headers == 1 && size(0) > body.len() {
                open.extend_from_slice(body);
                prop_assert_eq!(packet.marker, open.len() == size(0));
                if packet.marker {
                    received.push(std::mem::take(&mut open));
                }
                continue;
            }
            prop_assert!(packet.marker && open.is_empty());
            for n in 0..headers {
                let (unit, rest) = body.split_at(size(n));
                received.push(unit.to_vec());
                body = rest;
            }
            prop_assert!(body.is_empty());
        }
        let expected: Vec<_> = samples.into_iter().map(|(bytes, _)| bytes).collect();
        prop_assert_eq!(received, expected);
    }

    #[test]
    fn av1_units_come_whole_without_their_sizes(sizes in vec(vec(1..9000_usize, 1..4), 1..12)) {
        // Each sample: a temporal delimiter, then frames with sizes.
        let frame = |seed: usize, bytes: usize| {
            let payload = noise(seed as u32, bytes);
            let size = [(bytes & 0x7f) as u8 | 0x80, (bytes >> 7) as u8];
            let kept = [&[6 << 3][..], &payload].concat();
            ([&[6 << 3 | 2], &size[..], &payload].concat(), kept)
        };
        let (mut samples, mut expected) = (Vec::new(), Vec::new());
        for (number, sizes) in sizes.iter().enumerate() {
            let (mut bytes, mut units) = (vec![2 << 3 | 2, 0], Vec::new());
            for (at, &size) in sizes.iter().enumerate() {
                let (stored, sent) = frame(number * 7 + at, size);
                bytes.extend(stored);
                units.push(sent);
            }
            samples.push((bytes, number == 0));
            expected.push(units);
        }
        // A sequence header of three bytes with its size, and a padding OBU before it.
        let units = vec![15 << 3 | 2, 0, 1 << 3 | 2, 3, 9, 8, 7];
        let codec = Codec::Av1(Av1Config {
            profile: 0,
            level: 4,
            is_high_tier: false,
            bit_depth: 8,
            units,
        });
        expected[0].insert(0, vec![1 << 3, 9, 8, 7]);
        let (packets, faults) = packets(codec, &samples);
        prop_assert_eq!(faults, 0);
        let (mut received, mut unit, mut open) = (Vec::new(), Vec::new(), Vec::new());
        for (number, packet) in packets.iter().enumerate() {
            let aggregation = packet.payload[0];
            prop_assert_eq!(aggregation & 0x37, 0x10, "one element, reserved bits zero");
            prop_assert_eq!(aggregation & 0x08 != 0, number == 0, "N in the first packet alone");
            prop_assert_eq!(aggregation & 0x80 != 0, !open.is_empty(), "Z goes on");
            open.extend_from_slice(&packet.payload[1..]);
            if aggregation & 0x40 == 0 {
                unit.push(std::mem::take(&mut open));
            }
            if packet.marker {
                received.push(std::mem::take(&mut unit));
            }
        }
        prop_assert_eq!(received, expected);
    }

    #[test]
    fn frames_of_sound_come_whole_and_in_order(
        sizes in vec(1..4000_usize, 1..40), format in 0_usize..3,
    ) {
        let (codec, head_bytes) = [
            (Codec::MpegAudio, 4),
            (Codec::Ac3 { rate_hz: 90_000, channels: 6 }, 2),
            (Codec::Eac3 { rate_hz: 90_000, channels: 6 }, 2),
        ][format].clone();
        let samples: Vec<_> =
            sizes.iter().enumerate().map(|(n, &bytes)| (noise(n as u32, bytes), true)).collect();
        let (packets, faults) = packets(codec, &samples);
        prop_assert_eq!(faults, 0);
        let mut received = Vec::new();
        let (mut offset, mut fragments) = (0, 0);
        for packet in &packets {
            let (head, body) = packet.payload.split_at(head_bytes);
            match format {
                0 => {
                    let at = usize::from(u16::from_be_bytes([head[2], head[3]]));
                    offset = if at == 0 { 0 } else { offset };
                    prop_assert_eq!(at, offset);
                    offset += body.len();
                }
                1 => {
                    fragments = match head[0] {
                        0 => 0,
                        2 => 1,
                        3 => fragments + 1,
                        other => panic!("frame type {other}"),
                    };
                    let is_last = fragments == 0 || fragments == u32::from(head[1]);
                    prop_assert_eq!(packet.marker, is_last);
                }
                _ => prop_assert!(head[0] <= 1 && head[1] > 0),
            }
            received.extend_from_slice(body);
        }
        let expected: Vec<u8> = samples.into_iter().flat_map(|(bytes, _)| bytes).collect();
        prop_assert_eq!(received, expected);
    }

    #[test]
    fn noise_in_place_of_samples_is_laid_out_within_them(
        samples in vec(vec(any::<u8>(), 0..300), 1..12), codec in 0_usize..2,
    ) {
        let codec = match codec {
            0 => h264(4),
            _ => av1(vec![0x0a, 0xff]),
        };
        let samples: Vec<_> = samples.into_iter().map(|bytes| (bytes, true)).collect();
        // Every check is in there.
        packets(codec, &samples);
    }
}

#[test]
fn broken_nal_units_are_counted_and_the_rest_is_sent() {
    let good = [&[0, 0, 0, 5][..], &[0x65, 1, 2, 3, 4]].concat();
    let beyond = [&good[..], &[0, 0, 1, 0, 0x41]].concat();
    let forbidden = [&good[..], &[0, 0, 0, 2, 0xe5, 1]].concat();
    let own_type = [&good[..], &[0, 0, 0, 2, 0x7c, 1]].concat();
    let cut_off = [&good[..], &[0, 0]].concat();
    for sample in [beyond, forbidden, own_type, cut_off] {
        let (packets, faults) = packets(h264(4), &[(sample, true)]);
        assert_eq!(faults, 1);
        let units = nal_units(&packets, false);
        assert_eq!(units.len(), 1);
        assert_eq!(units[0].last().unwrap(), &[0x65, 1, 2, 3, 4]);
    }
    let opus = vec![(noise(1, 5000), true), (noise(2, 100), true)];
    let (packets, faults) = packets(Codec::Opus { channels: 2 }, &opus);
    assert_eq!((packets.len(), faults), (1, 1), "a frame larger than a packet is no sound");
}

#[test]
fn a_file_of_nothing_but_units_is_read_to_a_bound() {
    // Padding in lengths of a byte, and temporal delimiters of AV1: no packet, and no end.
    let av1 = av1(Vec::new());
    for (codec, unit) in [(h264(1), &[0_u8][..]), (h264(1), &[1, 0xff]), (av1, &[0x12, 0])] {
        let sample = unit.repeat(200_000);
        let units = sample.len() / unit.len();
        let (presentation, file) = presentation(codec, &[(sample, true)]);
        let reads = Reads { bytes: &file, count: Cell::new(0) };
        let layout = lay_out(&presentation, 0, 0, &reads).unwrap();
        assert_eq!(reads.count.get(), UNITS_READ_MAX as usize, "{units} units");
        assert!(layout.faults() > 0);
    }
}

/// A receiver times each frame of a packet by the one before; a fragmented file's first frame may
/// last longer, by the priming that was cut off.
#[test]
fn a_frame_of_another_duration_is_the_last_of_its_packet() {
    let config =
        AacConfig { specific: vec![0x11, 0x90], object_type: 2, rate_hz: 48_000, channels: 2 };
    let mut table = SampleTableBuilder::new(48_000, 1 << 20);
    let (mut decode, mut begins) = (0, Vec::new());
    for number in 0..9_u64 {
        let duration = if number == 0 || number == 4 { 3840 } else { 1024 };
        begins.push(decode as u32);
        let (bytes, offset, is_start) = (100, 0, true);
        let file_offset = 100 * number;
        table
            .push(MediaSample { file_offset, bytes, decode, offset, duration, is_start })
            .expect("a sample");
        decode += u64::from(duration);
    }
    let (samples, codec) = (table.finish().expect("a table"), Codec::Aac(config));
    let identity = RtpIdentity { ssrc: 7, first_sequence: 0, first_timestamp: 0 };
    let track = Track::new(1, codec, samples, identity);
    let whole = Presentation::assemble(Container::Mp4, 1 << 20, vec![track], Vec::new()).unwrap();
    let layout = lay_out(&whole, 0, 0, &vec![0; 1 << 20]).unwrap();
    let timed = (0..layout.packets()).flat_map(|packet| {
        let mut head = Vec::new();
        layout.write_head(packet, &VALUES, &mut head);
        let units = u32::from(u16::from_be_bytes([head[12], head[13]]) / 16);
        (0..units).map(move |unit| (packet, unit))
    });
    let found: Vec<_> =
        timed.map(|(packet, unit)| layout.timestamp(packet) + 1024 * unit).collect();
    assert_eq!(found, begins);
    assert_eq!(layout.packets(), 4, "the others share");
}

/// ffmpeg's depacketiser loses a unit if another track's packets are between its packets.
#[test]
fn packets_of_a_temporal_unit_are_due_together() {
    let codec = av1(Vec::new());
    // Frames without a size field: the size is that of the sample.
    let samples: Vec<_> =
        (1..4).map(|seed| ([&[6 << 3][..], &noise(seed, 5000)].concat(), true)).collect();
    let (presentation, file) = presentation(codec, &samples);
    let layout = lay_out(&presentation, 0, 0, &file).unwrap();
    check(&layout);
    let due: Vec<_> = (0..layout.packets()).map(|packet| layout.ticks(packet)).collect();
    let units: Vec<_> = due.chunk_by(|one, next| one == next).map(<[u64]>::len).collect();
    assert_eq!(units, [4, 4, 4], "{due:?}");
}

/// Sixteen tracks on the same bytes could once request a million packets a second.
#[test]
fn tracks_share_what_a_chapter_may_have() {
    let written = |tracks: usize| {
        let mut writer = LayoutWriter::shared_by(tracks);
        let times = UnitTimes { due_ticks: 0, duration_ticks: 1, timestamp: 0, is_start: true };
        writer.unit(times);
        let units = (0..).take_while(|_| writer.reads_unit()).count();
        while writer.packet(&[1], &[], false) {}
        assert!(writer.is_full());
        (units, writer.finish().packets() as usize)
    };
    let (units, packets) = (UNITS_READ_MAX as usize, PACKETS_MAX as usize);
    assert_eq!(written(1), (units, packets));
    assert_eq!(written(3), (units / 3, packets / 3));
    assert_eq!(
        (written(16), written(99)),
        ((units / 16, packets / 16), (units / 16, packets / 16))
    );
}

/// A file that counts how often it is read.
struct Reads<'a> {
    bytes: &'a [u8],
    count: Cell<usize>,
}

impl ReadAt for Reads<'_> {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.count.set(self.count.get() + 1);
        self.bytes.read_exact_at(buffer, offset)
    }
}

#[test]
fn samples_with_their_own_parameter_sets_keep_them_alone() {
    let own = vec![vec![0x09, 0xf0], vec![0x67, 9], vec![0x68, 9], noise(3, 3000)];
    let mut own = own;
    own[3][0] = 0x65;
    let (received, _) = packets(h264(4), &with_lengths(&[(own.clone(), true)], 4));
    assert_eq!(nal_units(&received, false), [own]);
    let mut bare = vec![vec![0x09, 0xf0], noise(3, 3000)];
    bare[1][0] = 0x65;
    let (received, _) = packets(h264(4), &with_lengths(&[(bare.clone(), true)], 4));
    bare.splice(1..1, SETS.map(<[u8]>::to_vec));
    assert_eq!(nal_units(&received, false), [bare], "the sets come behind the delimiter");
}

/// Found by the fuzz target `payload`: the delimiter was counted as a fault, and in the second
/// sample the sets followed the packet that ends it.
#[test]
fn a_delimiter_is_a_unit_like_others() {
    let mut large = vec![noise(4, 3000), noise(5, 20)];
    (large[0][0], large[1][0]) = (0x09, 0x65);
    let alone = vec![vec![0x09, 0xf0]];
    let samples = with_lengths(&[(large.clone(), true), (alone.clone(), true)], 4);
    let (packets, faults) = packets(h264(4), &samples);
    assert_eq!(faults, 0);
    large.splice(1..1, SETS.map(<[u8]>::to_vec));
    assert_eq!(nal_units(&packets, false), [large, alone]);
}
