// SPDX-License-Identifier: MIT OR Apache-2.0
//! Depayloaders: what is put together of the payloaders' packets is what the samples have, and of a
//! stream with losses nothing comes out that is not whole.
//!
//! It is over 600 lines because all payload formats are fed by the same few functions.
//!
//! Sources: those of `media::depayload`.

use media::AccessUnit;
use media::depayload::{Depayloader, TrackPacket};
use media::payload::rtp_format;
use media::tracks::{AacConfig, Codec, H265Config, PcmConfig, PcmForm};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::sdp::TrackOffer;

use super::{Packet, SETS, av1, h264, noise, packets, shapes, with_lengths};

/// The stream of a codec as our own description offers it.
fn offer(codec: &Codec) -> TrackOffer {
    let format = rtp_format(codec, 96);
    let parameters = format.parameters.iter();
    TrackOffer {
        media: if format.is_video { "video" } else { "audio" }.to_owned(),
        port: 0,
        address: None,
        payload_type: format.payload_type,
        encoding: format.encoding.to_owned(),
        clock_rate_hz: format.clock_rate_hz,
        channels: format.channels,
        parameters: parameters.map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        control: None,
        language: None,
    }
}

/// Feeds all packets but those whose numbers are `lost`.
fn feed(depayloader: &mut Depayloader, packets: &[Packet], lost: &[bool]) -> Vec<AccessUnit> {
    let mut units = Vec::new();
    for (number, packet) in packets.iter().enumerate() {
        if lost.get(number).copied().unwrap_or(false) {
            continue;
        }
        let Packet { marker, timestamp, ref payload } = *packet;
        let sequence = 65_530_u16.wrapping_add(number as u16);
        units.extend(depayloader.push(TrackPacket { sequence, timestamp, marker, payload }));
    }
    units.extend(depayloader.finish());
    units
}

/// Everything arrives: the units are the samples.
fn check_whole(
    codec: &Codec,
    samples: &[(Vec<u8>, bool)],
    expected: &[Vec<u8>],
) -> Vec<AccessUnit> {
    let (packets, faults) = packets(codec.clone(), samples);
    assert_eq!(faults, 0);
    let mut depayloader = Depayloader::new(&offer(codec)).unwrap();
    let units = feed(&mut depayloader, &packets, &[]);
    let found: Vec<_> = units.iter().map(|unit| unit.bytes.clone()).collect();
    assert!(found == expected, "{} units of {}", found.len(), expected.len());
    let counts = depayloader.counts();
    assert_eq!((counts.broken_units, counts.malformed_packets, counts.lost_packets), (0, 0, 0));
    assert!(units.iter().all(|unit| !unit.is_after_loss));
    units
}

/// Some are lost: each unit that comes out is one of the samples, in their order, and the first
/// behind a hole says so.
fn check_lossy(codec: &Codec, samples: &[(Vec<u8>, bool)], expected: &[Vec<u8>], lost: &[bool]) {
    let (packets, _) = packets(codec.clone(), samples);
    let mut depayloader = Depayloader::new(&offer(codec)).unwrap();
    let units = feed(&mut depayloader, &packets, lost);
    let mut rest = expected.iter();
    let mut is_first = true;
    for unit in &units {
        // Behind a hole parameter sets may be missing, which the decoder has.
        let is_it = |sample: &Vec<u8>| match unit.is_after_loss || is_first {
            true => sample.ends_with(&unit.bytes),
            false => *sample == unit.bytes,
        };
        let skipped = rest.position(is_it);
        let skipped = skipped.expect("a unit that is no sample, or out of order");
        assert!(skipped == 0 || unit.is_after_loss || is_first, "a hole is not told");
        is_first = false;
    }
    let is_any_lost = (0..packets.len()).any(|number| lost.get(number) == Some(&true));
    assert!(is_any_lost || units.len() == expected.len());
}

/// A picture of NAL units of these sizes: slices, of which the first begins the picture.
fn slices(number: usize, sizes: &[usize], header: &[u8]) -> Vec<Vec<u8>> {
    let slice = |(at, &bytes): (usize, &usize)| {
        let mut unit = noise((number * 31 + at) as u32, bytes + header.len() + 1);
        // No NAL unit has a start code in it.
        unit.iter_mut().for_each(|byte| *byte = (*byte).max(1));
        unit[..header.len()].copy_from_slice(header);
        unit[header.len()] = if at == 0 { 0x80 } else { 0x40 };
        unit
    };
    sizes.iter().enumerate().map(slice).collect()
}

fn h265() -> Codec {
    Codec::H265(H265Config {
        length_bytes: 4,
        profile: [0; 12],
        video_sets: Vec::new(),
        sequence_sets: Vec::new(),
        picture_sets: Vec::new(),
    })
}

fn aac() -> Codec {
    let specific = vec![0x12, 0x10];
    Codec::Aac(AacConfig { specific, object_type: 2, rate_hz: 44_100, channels: 2 })
}

/// Frames with headers that tell their size.
fn frames(head: &[u8], bytes: usize, count: usize) -> Vec<(Vec<u8>, bool)> {
    let frame = |number| {
        let mut frame = noise(number as u32, bytes);
        frame[..head.len()].copy_from_slice(head);
        (frame, true)
    };
    (0..count).map(frame).collect()
}

fn bytes(samples: &[(Vec<u8>, bool)]) -> Vec<Vec<u8>> {
    samples.iter().map(|(bytes, _)| bytes.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pictures_are_put_together(shapes in shapes(9000), lost in vec(any::<u8>(), 0..200)) {
        let lost: Vec<_> = lost.iter().map(|&chance| chance < 12).collect();
        // H.264: a key frame's parameter sets go first.
        let samples: Vec<_> = shapes.iter().enumerate().map(|(number, (sizes, is_start))| {
            let is_start = *is_start || number == 0;
            (slices(number, sizes, &[if is_start { 0x65 } else { 0x41 }]), is_start)
        }).collect();
        let expected: Vec<_> = samples.iter().map(|(units, is_start)| {
            let sets = SETS.iter().map(|set| set.to_vec()).filter(|_| *is_start);
            (sets.chain(units.iter().cloned()).collect(), *is_start)
        }).collect();
        let (stored, expected) = (with_lengths(&samples, 4), bytes(&with_lengths(&expected, 4)));
        let units = check_whole(&h264(4), &stored, &expected);
        for (number, unit) in units.iter().enumerate() {
            prop_assert_eq!(unit.is_start, samples[number].1);
            let time = 1000 * number as i64 + if number % 2 == 0 { 500 } else { 0 };
            prop_assert_eq!(unit.time, time);
        }
        check_lossy(&h264(4), &stored, &expected, &lost);
        let samples: Vec<_> = shapes.iter().enumerate().map(|(number, (sizes, is_start))| {
            (slices(number, sizes, &[if *is_start { 0x26 } else { 0x02 }, 1]), *is_start)
        }).collect();
        let stored = with_lengths(&samples, 4);
        let units = check_whole(&h265(), &stored, &bytes(&stored));
        prop_assert!(units.iter().zip(&samples).all(|(unit, sample)| unit.is_start == sample.1));
        check_lossy(&h265(), &stored, &bytes(&stored), &lost);
    }

    #[test]
    fn sound_is_put_together(
        sizes in vec(1..8191_usize, 1..40), lost in vec(any::<u8>(), 0..200),
    ) {
        let lost: Vec<_> = lost.iter().map(|&chance| chance < 12).collect();
        let samples: Vec<_> =
            sizes.iter().enumerate().map(|(n, &bytes)| (noise(n as u32, bytes), true)).collect();
        check_whole(&aac(), &samples, &bytes(&samples));
        check_lossy(&aac(), &samples, &bytes(&samples), &lost);
        let count = sizes.len();
        for (codec, samples) in [
            (Codec::MpegAudio, frames(&[0xff, 0xfb, 0x90, 0], 417, count)),
            // 320 kb/s at 32 kHz: 1440 bytes, in fragments.
            (Codec::MpegAudio, frames(&[0xff, 0xfb, 0xe8, 0], 1440, count)),
            (
                Codec::Ac3 { rate_hz: 48_000, channels: 6 },
                frames(&[0x0b, 0x77, 0, 0, 0x1e, 0x40, 0xe1, 0], 1792, count),
            ),
            (
                Codec::Ac3 { rate_hz: 44_100, channels: 2 },
                frames(&[0x0b, 0x77, 0, 0, 0x41, 0x40, 0x40, 0], 140, count),
            ),
            (
                Codec::Eac3 { rate_hz: 48_000, channels: 6 },
                frames(&[0x0b, 0x77, 0x02, 0xff, 0x3f, 0x80, 0], 1536, count),
            ),
        ] {
            check_whole(&codec, &samples, &bytes(&samples));
            check_lossy(&codec, &samples, &bytes(&samples), &lost);
        }
        let samples: Vec<_> = samples.into_iter().filter(|(bytes, _)| bytes.len() < 1300).collect();
        if !samples.is_empty() {
            check_whole(&Codec::Opus { channels: 2 }, &samples, &bytes(&samples));
            check_lossy(&Codec::Opus { channels: 2 }, &samples, &bytes(&samples), &lost);
        }
    }

    #[test]
    fn samples_of_sound_come_as_packets_of_whole_frames(
        form in 0..PcmForm::ALL.len(), channels in 1_u8..9, rate_hz in 8000_u32..192_000,
        blocks in vec(1_u32..1500, 1..20), lost in vec(any::<u8>(), 0..200),
    ) {
        let lost: Vec<_> = lost.iter().map(|&chance| chance < 12).collect();
        let config = PcmConfig { form: PcmForm::ALL[form], rate_hz, channels };
        let (frame, each) = (config.frame_bytes(), config.packet_frames());
        let samples: Vec<_> = blocks.iter().enumerate().map(|(number, frames)| {
            (noise(number as u32, (frames * frame) as usize), true)
        }).collect();
        // In the other order of bytes, a packet a unit.
        let expected: Vec<_> = samples.iter().flat_map(|(block, _)| {
            let swapped: Vec<u8> = block
                .chunks(config.form.bytes() as usize)
                .flat_map(|sample| sample.iter().rev().copied())
                .collect();
            swapped.chunks((each * frame) as usize).map(<[u8]>::to_vec).collect::<Vec<_>>()
        }).collect();
        let codec = Codec::Pcm(config);
        check_whole(&codec, &samples, &expected);
        let (packets, _) = packets(codec.clone(), &samples);
        let mut depayloader = Depayloader::new(&offer(&codec)).unwrap();
        let units = feed(&mut depayloader, &packets, &lost);
        prop_assert_eq!(depayloader.codec(), Some(&codec));
        let arrived = (0..packets.len()).filter(|&number| lost.get(number) != Some(&true));
        let arrived: Vec<_> = arrived.map(|number| &expected[number]).collect();
        prop_assert_eq!(units.iter().map(|unit| &unit.bytes).collect::<Vec<_>>(), arrived);
    }

    #[test]
    fn av1_is_put_together(
        sizes in vec(vec(1..9000_usize, 1..4), 1..12), lost in vec(any::<u8>(), 0..200),
    ) {
        let lost: Vec<_> = lost.iter().map(|&chance| chance < 12).collect();
        let frame = |seed: usize, bytes: usize| {
            let mut size = vec![(bytes & 0x7f) as u8];
            if bytes > 0x7f {
                size = vec![(bytes & 0x7f) as u8 | 0x80, (bytes >> 7) as u8];
            }
            [&[6 << 3 | 2], &size[..], &noise(seed as u32, bytes)].concat()
        };
        let samples: Vec<_> = sizes.iter().enumerate().map(|(number, sizes)| {
            let frames = sizes.iter().enumerate();
            let frames = frames.flat_map(|(at, &bytes)| frame(number * 7 + at, bytes)).collect();
            (frames, number == 0)
        }).collect();
        // Main profile, level 8 (4.0), of the main tier: what ffmpeg's libaom writes.
        let units = [&[0x0a, 11][..], &SEQUENCE].concat();
        let codec = av1(units.clone());
        let mut expected = bytes(&samples);
        expected[0].splice(0..0, units);
        check_whole(&codec, &samples, &expected);
        check_lossy(&codec, &samples, &expected, &lost);
    }

    #[test]
    fn noise_is_no_unit_and_no_panic(
        packets in vec((vec(any::<u8>(), 0..80), any::<bool>(), 0_u8..4), 0..60),
        format in 0_usize..9,
    ) {
        let codec = [
            h264(4), h265(), aac(), Codec::MpegAudio, Codec::Opus { channels: 1 },
            Codec::Ac3 { rate_hz: 48_000, channels: 2 },
            Codec::Eac3 { rate_hz: 48_000, channels: 2 },
            Codec::Pcm(PcmConfig { form: PcmForm::L24, rate_hz: 48_000, channels: 2 }),
            av1(Vec::new()),
        ];
        let mut depayloader = Depayloader::new(&offer(&codec[format])).unwrap();
        let (mut sequence, mut taken, mut given) = (0_u16, 0, 0);
        for (payload, marker, step) in &packets {
            sequence = sequence.wrapping_add(1 + u16::from(*step == 3));
            let timestamp = u32::from(*step) * 3000;
            let packet = TrackPacket { sequence, timestamp, marker: *marker, payload };
            // An AU header of AAC and an OBU's size add bytes.
            taken += payload.len() * 6 + 16;
            given += depayloader.push(packet).map(|unit| unit.bytes.len()).sum::<usize>();
        }
        given += depayloader.finish().map(|unit| unit.bytes.len()).sum::<usize>();
        prop_assert!(given <= taken);
    }
}

/// A sequence header of AV1 without its OBU header: profile 0, level 8, 8 bits, 320 x 240.
const SEQUENCE: [u8; 11] = [0, 0, 0, 0x42, 0x1e, 0x7f, 0xde, 0x7f, 0xfc, 0xc0, 0x20];

/// Feeds payloads of one timestamp, the last marked.
fn one(offer: &TrackOffer, payloads: &[&[u8]]) -> (Vec<AccessUnit>, Option<Codec>, u64) {
    let mut depayloader = Depayloader::new(offer).unwrap();
    let mut units = Vec::new();
    for (number, payload) in payloads.iter().enumerate() {
        let (sequence, marker) = (number as u16, number + 1 == payloads.len());
        units.extend(depayloader.push(TrackPacket { sequence, timestamp: 9, marker, payload }));
    }
    units.extend(depayloader.finish());
    let codec = depayloader.codec().cloned();
    (units, codec, depayloader.counts().malformed_packets)
}

#[test]
fn parameter_sets_of_the_stream_make_up_for_a_description_without_them() {
    let mut bare = offer(&h264(4));
    bare.parameters.clear();
    let stap = [&[24, 0, 5][..], &[0x67, 0x4d, 0, 0x29, 9], &[0, 2], &[0x68, 7]].concat();
    let (units, codec, _) = one(&bare, &[&[0x09, 0xf0], &stap, &[0x65, 0x88, 1]]);
    let [unit] = &units[..] else { panic!("{units:?}") };
    assert!(unit.is_start && unit.bytes.len() == 4 + 5 + 4 + 2 + 4 + 3);
    let Some(Codec::H264(config)) = codec else { panic!("no codec") };
    assert_eq!(config.profile, [0x4d, 0, 0x29]);
    assert_eq!(config.sequence_sets, [[0x67, 0x4d, 0, 0x29, 9]]);
    assert_eq!(config.picture_sets, [[0x68, 7]]);
    let (_, codec, _) = one(&bare, &[&[0x65, 0x88, 1]]);
    assert!(codec.is_none(), "nobody could decode it");
}

#[test]
fn parameters_of_more_bytes_than_any_real_ones_are_not_kept() {
    const BYTES: usize = 70_000;
    let mut bare = offer(&h264(4));
    bare.parameters.clear();
    let small = [0x67, 0x4d, 0, 0x29, 9];
    let large = [&small[..], &[1; BYTES]].concat();
    let (units, codec, _) = one(&bare, &[&large, &small, &[0x68, 7], &[0x65, 0x88, 1]]);
    assert!(units[0].bytes.len() > BYTES, "they are in the unit");
    let Some(Codec::H264(config)) = codec else { panic!("no codec") };
    assert_eq!(config.sequence_sets, [small]);
    let many: Vec<_> = (0..9_u8).map(|number| [&small[..], &[number; 10_000]].concat()).collect();
    let payloads: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    let (_, codec, _) = one(&bare, &[&payloads[..], &[&[0x68, 7], &[0x65, 0x88, 1]]].concat());
    let Some(Codec::H264(config)) = codec else { panic!("no codec") };
    assert_eq!(config.sequence_sets, many[..6]);
    // A sequence header and a frame of AV1, one to a packet.
    let header = [&[0x18, 0x08][..], &SEQUENCE, &vec![1; BYTES]].concat();
    let (units, codec, _) = one(&offer(&av1(Vec::new())), &[&header, &[0x10, 6 << 3, 1, 2, 3]]);
    assert!(units[0].bytes.len() > BYTES && codec.is_none());
}

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
        // Such a mark does not tell that a picture is whole: the second slice is lost.
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

/// A receiver stops behind any packet, while the sender goes on.
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
            // Behind the first picture, by whose slices a sender shows how it marks.
            for stop in sets.len() + 3..=packets.len() {
                let mut depayloader = Depayloader::new(&offer(&codec)).unwrap();
                let mut units = fed(&mut depayloader, &packets[..stop]);
                units.extend(depayloader.cut_off());
                let slices = stop - sets.len();
                let is_told = slices % 2 == 0 && marks_last && !marks_each;
                let whole = if is_told { slices / 2 } else { (slices - 1) / 2 };
                assert_eq!(units.len(), whole, "{stop} packets, {marks_each}, {marks_last}");
                assert!(units[1..].iter().all(|unit| unit.bytes == sized(&other)));
                assert_eq!(depayloader.counts().broken_units, 0);
            }
            // Where the sender has ended the stream, all is whole.
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
            let is_told = parts % 2 == 0 && !marks_each;
            let whole = if is_told { parts / 2 } else { (parts - 1) / 2 };
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

#[test]
fn several_units_of_av1_share_a_packet() {
    let codec = av1(Vec::new());
    let sequence = [&[0x08][..], &SEQUENCE].concat();
    let frame = [6 << 3, 1, 2, 3];
    // W = 2: the second has no length. W = 0: both have.
    let two = [&[0x28, 12][..], &sequence, &frame].concat();
    let lengths = [&[0x08, 12][..], &sequence, &[4], &frame].concat();
    for payload in [two, lengths] {
        let (units, codec, malformed) = one(&offer(&codec), &[&payload]);
        assert_eq!(malformed, 0);
        let expected = [&[0x0a, 11][..], &SEQUENCE, &[6 << 3 | 2, 3, 1, 2, 3]].concat();
        assert!(units[0].is_start && units[0].bytes == expected, "{units:?}");
        let Some(Codec::Av1(config)) = codec else { panic!("no codec") };
        assert_eq!((config.profile, config.level, config.bit_depth), (0, 8, 8));
    }
}

#[test]
fn streams_that_are_not_put_together_are_refused_by_name() {
    let change = |codec: &Codec, change: fn(&mut TrackOffer)| {
        let mut offer = offer(codec);
        change(&mut offer);
        Depayloader::new(&offer).unwrap_err()
    };
    for (refusal, words) in [
        (change(&h264(4), |offer| offer.encoding = "JPEG".to_owned()), "video JPEG/90000: not a"),
        (
            change(&h264(4), |offer| offer.parameters[0].1 = "2".to_owned()),
            "interleaved (packetization-mode=2); have the sender use packetization-mode=1",
        ),
        (
            change(&h265(), |offer| {
                offer.parameters.push(("sprop-max-don-diff".to_owned(), "3".to_owned()));
            }),
            "interleaved (sprop-max-don-diff=3)",
        ),
        (
            change(&aac(), |offer| offer.parameters.retain(|(name, _)| name != "config")),
            "config= in its fmtp; without it nothing can be decoded",
        ),
        (
            change(&aac(), |offer| offer.parameters.retain(|(name, _)| name != "sizelength")),
            "sizelength=0 in its fmtp",
        ),
        (
            change(&aac(), |offer| offer.parameters.retain(|(name, _)| name != "mode")),
            "audio mpeg4-generic/44100 mode=: not a format",
        ),
    ] {
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
}
