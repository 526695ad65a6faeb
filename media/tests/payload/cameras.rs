// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests streams of cameras that violate their payload formats: markers on each slice, start codes
//! in payloads, parameter sets with the times of other units, packets without a payload.
//!
//! Sources: RFC 6184 §5, RFC 7798 §4.4, RTP Payload Format For AV1 §4.4.

use media::AccessUnit;
use media::depayload::{Depayloader, TrackPacket};
use media::tracks::Codec;

use super::depayload::{SEQUENCE, h265, offer};
use super::{av1, h264};

/// Units of packets by sequence number, timestamp and marker, in unit of NAL units each, with the
/// counts of broken units and malformed packets.
fn received(codec: &Codec, packets: &[(u16, u32, bool, Vec<u8>)]) -> (Vec<AccessUnit>, (u64, u64)) {
    let mut depayloader = Depayloader::new(&offer(codec)).unwrap();
    let mut units = fed(&mut depayloader, packets);
    units.extend(depayloader.finish());
    let counts = depayloader.counts();
    (units, (counts.broken_units, counts.malformed_packets))
}

/// Units that these packets complete.
fn fed(depayloader: &mut Depayloader, packets: &[(u16, u32, bool, Vec<u8>)]) -> Vec<AccessUnit> {
    let mut units = Vec::new();
    for &(sequence, timestamp, marker, ref payload) in packets {
        units.extend(depayloader.push(TrackPacket { sequence, timestamp, marker, payload }));
    }
    units
}

/// The NAL units of a sample.
fn sized(nals: &[&[u8]]) -> Vec<u8> {
    nals.iter().flat_map(|nal| [&(nal.len() as u32).to_be_bytes()[..], nal].concat()).collect()
}

/// Parameter sets, key picture and other picture of two slices each, of H.264 and of H.265.
type Stream = (Vec<&'static [u8]>, [&'static [u8]; 2], [&'static [u8]; 2]);

fn streams() -> [(Codec, Stream); 2] {
    let h264_sets: Vec<&[u8]> = vec![&[0x67, 0x4d, 0, 0x29, 9], &[0x68, 7]];
    let h265_sets: Vec<&[u8]> = vec![&[0x40, 1, 7], &[0x42, 1, 8], &[0x44, 1, 9]];
    [
        (
            h264(4),
            (h264_sets, [&[0x65, 0x88, 1], &[0x65, 0x44, 2]], [&[0x41, 0x9a, 3], &[0x41, 0x46, 4]]),
        ),
        (
            h265(),
            (
                h265_sets,
                [&[0x26, 1, 0x80, 1], &[0x26, 1, 0x40, 2]],
                [&[2, 1, 0x80, 3], &[2, 1, 0x40, 4]],
            ),
        ),
    ]
}

/// Packets with numbers in a row.
fn in_a_row(packets: Vec<(u32, bool, Vec<u8>)>) -> Vec<(u16, u32, bool, Vec<u8>)> {
    let number = |(at, (time, marker, payload))| (at as u16, time, marker, payload);
    packets.into_iter().enumerate().map(number).collect()
}

#[test]
fn markers_on_each_slice_part_no_picture() {
    for (codec, (sets, key, other)) in streams() {
        let mut packets: Vec<_> = sets.iter().map(|set| (0, true, set.to_vec())).collect();
        for time in 0..6 {
            let slices = if time == 0 { key } else { other };
            packets.extend(slices.map(|slice| (time * 3600, true, slice.to_vec())));
        }
        let (units, counts) = received(&codec, &in_a_row(packets.clone()));
        assert_eq!((units.len(), counts), (6, (0, 0)));
        assert_eq!(units[0].bytes, sized(&[&sets[..], &key].concat()));
        assert!(units[0].is_start && units[1..].iter().all(|unit| unit.bytes == sized(&other)));
        // Such a marker does not prove that a picture is whole: the second slice is lost.
        let mut lossy = in_a_row(packets);
        lossy.remove(lossy.len() - 3);
        let (units, counts) = received(&codec, &lossy);
        assert_eq!((units.len(), counts), (5, (1, 0)));
        assert!(units[4].is_after_loss && units[..4].iter().all(|unit| !unit.is_after_loss));
    }
    let units = [0x0a, 11].iter().chain(&SEQUENCE).copied().collect();
    let codec = av1(units);
    let header = [&[0x18, 1 << 3][..], &SEQUENCE].concat();
    let part = |tile: u8| vec![0x10, 4 << 3, tile];
    let packets = [(0, true, header), (1, true, part(1)), (1, true, part(2)), (2, true, part(3))];
    let (units, counts) = received(&codec, &in_a_row(packets.to_vec()));
    assert_eq!(counts, (0, 0));
    let of_first = [&[0x0a, 11][..], &SEQUENCE, &[0x22, 1, 1, 0x22, 1, 2]].concat();
    assert_eq!(
        units.iter().map(|unit| unit.bytes.clone()).collect::<Vec<_>>(),
        [of_first, vec![0x22, 1, 3],]
    );
}

/// A receiver stops after any packet, before the end of the stream.
#[test]
fn a_unit_that_the_stop_cuts_off_is_neither_given_out_nor_lost() {
    for (codec, (sets, key, other)) in streams() {
        for (marks_each, marks_last) in [(true, true), (false, true), (false, false)] {
            let mut packets: Vec<_> =
                sets.iter().map(|set| (0, marks_each, set.to_vec())).collect();
            for time in 0..4 {
                let [first, last] = if time == 0 { key } else { other };
                packets.push((time * 3600, marks_each, first.to_vec()));
                packets.push((time * 3600, marks_last, last.to_vec()));
            }
            let packets = in_a_row(packets);
            // The stop is after the first picture, whose slices show how the sender sets marker
            // bits.
            for stop in sets.len() + 3..=packets.len() {
                let mut depayloader = Depayloader::new(&offer(&codec)).unwrap();
                let mut units = fed(&mut depayloader, &packets[..stop]);
                units.extend(depayloader.cut_off());
                let slices = stop - sets.len();
                let is_marked_whole = slices % 2 == 0 && marks_last && !marks_each;
                let whole = if is_marked_whole { slices / 2 } else { (slices - 1) / 2 };
                assert_eq!(units.len(), whole, "{stop} packets, {marks_each}, {marks_last}");
                assert!(units[1..].iter().all(|unit| unit.bytes == sized(&other)));
                assert_eq!(depayloader.counts().broken_units, 0);
            }
            // If the sender has ended the stream, all units are whole.
            assert_eq!(received(&codec, &packets).0.len(), 4);
        }
    }
    let codec = av1(Vec::new());
    let header = [&[0x18, 1 << 3][..], &SEQUENCE].concat();
    let part = |tile: u8| vec![0x10, 4 << 3, tile];
    for marks_each in [true, false] {
        let mut packets = vec![(0, marks_each, header.clone())];
        for time in 0..3 {
            packets.extend([(time, marks_each, part(1)), (time, true, part(2))]);
        }
        let packets = in_a_row(packets);
        for stop in 4..=packets.len() {
            let mut depayloader = Depayloader::new(&offer(&codec)).unwrap();
            let mut units = fed(&mut depayloader, &packets[..stop]);
            units.extend(depayloader.cut_off());
            let parts = stop - 1;
            let is_marked_whole = parts % 2 == 0 && !marks_each;
            let whole = if is_marked_whole { parts / 2 } else { (parts - 1) / 2 };
            assert_eq!((units.len(), depayloader.counts().broken_units), (whole, 0), "{stop}");
        }
    }
}

#[test]
fn start_codes_in_payloads_part_nal_units() {
    for (codec, (sets, key, other)) in streams() {
        let header = if codec == h264(4) { 1 } else { 2 };
        let joined = |nals: &[&[u8]], code: &[u8]| nals.join(code);
        let fragments = |nal: &[u8]| {
            let head: &[u8] = match header {
                1 => &[nal[0] & 0xe0 | 28, nal[0] & 0x1f],
                _ => &[nal[0] & 0x81 | 49 << 1, nal[1], nal[0] >> 1 & 0x3f],
            };
            let count = nal[header..].len();
            let part = |(at, byte): (usize, &u8)| {
                let mut part = [head, &[*byte]].concat();
                part[header] |= u8::from(at == 0) << 7 | u8::from(at + 1 == count) << 6;
                part
            };
            nal[header..].iter().enumerate().map(part).collect::<Vec<_>>()
        };
        let all = [&sets[..], &key].concat();
        let four = [0, 0, 0, 1];
        let led = [&four[..], &joined(&all, &four)].concat();
        for payloads in [
            vec![joined(&all, &four)],
            vec![joined(&all, &four[1..])],
            vec![led.clone()],
            fragments(&joined(&all, &four)),
            fragments(&led),
            all.iter().map(|nal| [&four[..], nal, &[0]].concat()).collect(),
            vec![[&four[..], sets[0]].concat(), joined(&[&sets[1..], &key].concat(), &four)],
        ] {
            let mut packets: Vec<_> = payloads.iter().map(|p| (0, false, p.clone())).collect();
            packets.last_mut().unwrap().1 = true;
            packets.push((3600, true, joined(&other, &four)));
            let (units, counts) = received(&codec, &in_a_row(packets));
            assert_eq!(counts, (0, 0), "{payloads:x?}");
            let bytes: Vec<_> = units.iter().map(|unit| unit.bytes.clone()).collect();
            assert_eq!(bytes, [sized(&all), sized(&other)], "{payloads:x?}");
        }
    }
}

#[test]
fn parameter_sets_belong_to_the_picture_behind_them_whatever_their_times() {
    for (codec, (sets, key, other)) in streams() {
        // With the time of the picture before or of none; marked or not; repeated.
        for (time, marker) in [(3600, true), (3600, false), (9, true), (9, false)] {
            let set = |set: &&[u8]| (time, marker, set.to_vec());
            let picture = |slices: [&[u8]; 2], time| {
                [(time, false, slices[0].to_vec()), (time, true, slices[1].to_vec())]
            };
            let packets = [
                &picture(other, 0)[..],
                &picture(other, 3600),
                &sets.iter().map(set).collect::<Vec<_>>(),
                &picture(key, 7200),
                &picture(other, 10_800),
                // Nothing follows these.
                &sets.iter().map(set).collect::<Vec<_>>(),
            ];
            let (units, counts) = received(&codec, &in_a_row(packets.concat()));
            assert_eq!(counts, (0, 0));
            let times: Vec<_> = units.iter().map(|unit| unit.time).collect();
            assert_eq!(times, [0, 3600, 7200, 10_800]);
            assert_eq!(units[2].bytes, sized(&[&sets[..], &key].concat()));
            assert!(units.iter().all(|unit| unit.is_start == (unit.time == 7200)));
            assert_eq!(units[3].bytes, sized(&other));
        }
    }
}

#[test]
fn packets_without_a_payload_are_none() {
    for (codec, (_, key, other)) in streams() {
        let whole = in_a_row(vec![
            (0, false, key[0].to_vec()),
            (7, true, Vec::new()),
            (0, true, key[1].to_vec()),
            (7, false, Vec::new()),
            (3600, false, other[0].to_vec()),
            (3600, true, other[1].to_vec()),
        ]);
        let (units, counts) = received(&codec, &whole);
        assert_eq!((units.len(), counts), (2, (0, 0)));
        // A gap before one is a gap before the next.
        let mut lossy = whole;
        lossy.drain(2..3);
        let (units, counts) = received(&codec, &lossy);
        assert_eq!((units.len(), counts), (1, (1, 0)));
        assert!(units[0].time == 3600 && units[0].is_after_loss);
    }
}
