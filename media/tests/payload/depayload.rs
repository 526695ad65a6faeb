// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests depayloaders: units reassembled from the payloaders' packets equal the samples, and a
//! stream with losses gives only whole units.
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
pub(super) fn offer(codec: &Codec) -> TrackOffer {
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

/// Checks lossy input: each unit emitted is one of the samples, in their order, and the first one
/// after a loss is flagged.
fn check_lossy(codec: &Codec, samples: &[(Vec<u8>, bool)], expected: &[Vec<u8>], lost: &[bool]) {
    let (packets, _) = packets(codec.clone(), samples);
    let mut depayloader = Depayloader::new(&offer(codec)).unwrap();
    let units = feed(&mut depayloader, &packets, lost);
    let mut rest = expected.iter();
    let mut is_first = true;
    for unit in &units {
        // After a gap parameter sets may be missing, which the decoder has.
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

pub(super) fn h265() -> Codec {
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

/// Frames with headers that give their size.
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
        // H.264: a key frame's parameter sets precede it.
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
        // In network order, a packet a unit.
        let codec = Codec::Pcm(config);
        let width = if codec.is_swapped() { config.form.bytes() as usize } else { 1 };
        let expected: Vec<_> = samples.iter().flat_map(|(block, _)| {
            let swapped: Vec<u8> = block
                .chunks(width)
                .flat_map(|sample| sample.iter().rev().copied())
                .collect();
            swapped.chunks((each * frame) as usize).map(<[u8]>::to_vec).collect::<Vec<_>>()
        }).collect();
        check_whole(&codec, &samples, &expected);
        let (packets, _) = packets(codec.clone(), &samples);
        let mut depayloader = Depayloader::new(&offer(&codec)).unwrap();
        let units = feed(&mut depayloader, &packets, &lost);
        prop_assert_eq!(depayloader.codec().map(Codec::name), Some(codec.name()));
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
        let (mut sequence, mut emitted_max, mut emitted) = (0_u16, 0, 0);
        for (payload, marker, step) in &packets {
            sequence = sequence.wrapping_add(1 + u16::from(*step == 3));
            let timestamp = u32::from(*step) * 3000;
            let packet = TrackPacket { sequence, timestamp, marker: *marker, payload };
            // An AU header of AAC and an OBU's size add bytes.
            emitted_max += payload.len() * 6 + 16;
            emitted += depayloader.push(packet).map(|unit| unit.bytes.len()).sum::<usize>();
        }
        emitted += depayloader.finish().map(|unit| unit.bytes.len()).sum::<usize>();
        prop_assert!(emitted <= emitted_max);
    }
}

/// A sequence header of AV1 without its OBU header: profile 0, level 8, 8 bits, 320 x 240.
pub(super) const SEQUENCE: [u8; 11] = [0, 0, 0, 0x42, 0x1e, 0x7f, 0xde, 0x7f, 0xfc, 0xc0, 0x20];

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
