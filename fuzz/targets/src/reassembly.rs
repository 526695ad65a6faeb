// SPDX-License-Identifier: MIT OR Apache-2.0
//! Depayloaders of the target `payload`, which share no code with the payloaders: split samples
//! into units, and reassemble units from packets.
//!
//! A unit is a NAL unit, an open bitstream unit without its size, an access unit of AAC or a frame.
//! Frames of MPEG audio, AC-3 and E-AC-3 that share a packet contain their sizes, but those of the
//! fuzzer do not: for these formats all bytes together are one unit, as are the whole frames of
//! PCM.
//!
//! Sources: RFC 6184 §5, RFC 7798 §4.4, RFC 3640 §3.2, RFC 2250 §3.5, RFC 4184 §4.1, RFC 4598 §4.1,
//! RFC 3551 §4.5, RTP Payload Format For AV1 §4.4, §5.

use media::payload::PAYLOAD_BYTES_MAX;
use media::tracks::Codec;

/// A packet without its RTP header.
pub(crate) struct Packet {
    pub(crate) marker: bool,
    pub(crate) payload: Vec<u8>,
}

/// Expected result for samples.
#[derive(Default)]
pub(crate) struct Expected {
    pub(crate) units: Vec<Vec<u8>>,
    /// True if a part of them cannot be sent.
    pub(crate) has_faults: bool,
    /// Number of access units of pictures, each of which a marker ends.
    pub(crate) access_units: Option<usize>,
}

impl Expected {
    /// Returns the units of samples, each with a flag for places where play can start.
    pub(crate) fn of<'a>(
        codec: &Codec,
        samples: impl Iterator<Item = (&'a [u8], bool)>,
    ) -> Expected {
        let mut expected = Expected::default();
        for (sample, is_start) in samples.filter(|(sample, _)| !sample.is_empty()) {
            match codec {
                Codec::H264(config) => {
                    let sets = [&config.sequence_sets[..], &config.picture_sets].concat();
                    expected.pictures(nal_units(sample, config.length_bytes, false), |units| {
                        is_start.then(|| put_sets(units, sets, false))
                    });
                }
                Codec::H265(config) => {
                    let sets = [&config.video_sets, &config.sequence_sets, &config.picture_sets];
                    let sets = sets.map(|sets| &sets[..]).concat();
                    expected.pictures(nal_units(sample, config.length_bytes, true), |units| {
                        is_start.then(|| put_sets(units, sets, true))
                    });
                }
                Codec::Av1(config) => expected.pictures(open_units(sample), |units| {
                    is_start.then(|| put_sequence_header(units, &config.units))
                }),
                Codec::Pcm(config) => {
                    let whole = sample.len() - sample.len() % config.frame_bytes() as usize;
                    expected.has_faults |= whole < sample.len();
                    let width = if codec.is_swapped() { config.form.bytes() as usize } else { 1 };
                    let samples = sample[..whole].chunks(width);
                    expected
                        .units
                        .push(samples.flat_map(|one| one.iter().rev().copied()).collect());
                }
                _ => {
                    let limit = match codec {
                        // 13 bits of size; 16 of an offset; a frame is a packet.
                        Codec::Aac(_) => (1 << 13) - 1,
                        Codec::MpegAudio => (1 << 16) - 1,
                        Codec::Opus { .. } => PAYLOAD_BYTES_MAX,
                        _ => usize::MAX,
                    };
                    expected.has_faults |= sample.len() > limit;
                    expected.units.extend((sample.len() <= limit).then(|| sample.to_vec()));
                }
            }
        }
        if is_one_unit(codec) {
            expected.units = vec![expected.units.concat()];
        }
        expected
    }

    /// Adds the units of a sample of pictures; `complete` adds those of the configuration, and
    /// returns whether all of them fit.
    fn pictures(
        &mut self,
        (mut units, is_whole): (Vec<Vec<u8>>, bool),
        complete: impl FnOnce(&mut Vec<Vec<u8>>) -> Option<bool>,
    ) {
        *self.access_units.get_or_insert(0) += usize::from(!units.is_empty());
        let is_complete = complete(&mut units).unwrap_or(true);
        self.has_faults |= !is_whole || !is_complete;
        self.units.append(&mut units);
    }
}

/// The NAL units of a sample that are sent, and false where others are not.
fn nal_units(sample: &[u8], length_bytes: u8, is_h265: bool) -> (Vec<Vec<u8>>, bool) {
    let (mut rest, mut units, mut is_whole) = (sample, Vec::new(), true);
    while !rest.is_empty() && units.len() < UNITS_MAX {
        let Some((length, behind)) = rest.split_at_checked(length_bytes.into()) else {
            return (units, false);
        };
        let length = length.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
        let Some((unit, behind)) = behind.split_at_checked(length) else {
            return (units, false);
        };
        rest = behind;
        let is_sent = match (is_h265, unit) {
            (false, &[header, ..]) => header & 0x80 == 0 && (1..24).contains(&(header & 0x1f)),
            (true, &[header, _, ..]) => header & 0x80 == 0 && header >> 1 < 48,
            _ => false,
        };
        if is_sent {
            units.push(unit.to_vec());
        }
        is_whole &= is_sent || unit.is_empty();
    }
    (units, is_whole && rest.is_empty())
}

/// Inserts parameter sets before the units of a sample that has none, after its delimiter and
/// before a unit to decode; false if one does not fit a packet.
fn put_sets(units: &mut Vec<Vec<u8>>, sets: Vec<Vec<u8>>, is_h265: bool) -> bool {
    let kind = |unit: &Vec<u8>| if is_h265 { unit[0] >> 1 } else { unit[0] & 0x1f };
    let (set_kinds, delimiter) = if is_h265 { (32..=34, 35) } else { (7..=8, 9) };
    if units.iter().any(|unit| set_kinds.contains(&kind(unit))) {
        return true;
    }
    let count = sets.len();
    let at = usize::from(units.first().is_some_and(|first| kind(first) == delimiter));
    if units.len() == at {
        return true;
    }
    let fitting = sets.into_iter().filter(|set| set.len() <= PAYLOAD_BYTES_MAX);
    let before = units.len();
    units.splice(at..at, fitting);
    units.len() - before == count
}

/// Returns the sent open bitstream units of a sample, without sizes, and false if the sample is
/// broken.
fn open_units(sample: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let (mut rest, mut units) = (sample, Vec::new());
    while !rest.is_empty() && units.len() < UNITS_MAX {
        let header_bytes = if rest[0] & 4 != 0 { 2 } else { 1 };
        let Some((header, behind)) = rest.split_at_checked(header_bytes) else {
            return (units, false);
        };
        let (bytes, behind) = match header[0] & 2 != 0 {
            false => (behind.len(), behind),
            true => {
                let size_bytes = behind.iter().take(8).position(|byte| byte & 0x80 == 0);
                let Some((size, behind)) = size_bytes.map(|last| behind.split_at(last + 1)) else {
                    return (units, false);
                };
                let value = |size: usize, &byte: &u8| size << 7 | usize::from(byte & 0x7f);
                (size.iter().rev().fold(0, value), behind)
            }
        };
        let Some((payload, behind)) = behind.split_at_checked(bytes) else {
            return (units, false);
        };
        if header[0] & 0x80 != 0 {
            return (units, false);
        }
        rest = behind;
        let mut unit = [header, payload].concat();
        unit[0] &= !2;
        if !matches!(unit[0] >> 3, 2 | 8 | 15) {
            units.push(unit);
        }
    }
    (units, rest.is_empty())
}

/// Inserts the sequence header of the configuration before the units of a sample that has none;
/// false if it does not fit a packet.
fn put_sequence_header(units: &mut Vec<Vec<u8>>, configured: &[u8]) -> bool {
    let is_header = |unit: &Vec<u8>| unit[0] >> 3 == 1;
    if units.is_empty() || units.iter().any(is_header) {
        return true;
    }
    let Some(header) = open_units(configured).0.into_iter().find(is_header) else { return true };
    let fits = header.len() < PAYLOAD_BYTES_MAX;
    units.splice(..0, fits.then_some(header));
    fits
}

/// Units reassembled from packets; each is whole at the end.
pub(crate) fn units(codec: &Codec, packets: &[Packet]) -> Vec<Vec<u8>> {
    let mut open = Vec::new();
    let mut units = Vec::new();
    for Packet { marker, payload } in packets {
        match codec {
            Codec::H264(_) => nal(payload, false, &mut open, &mut units),
            Codec::H265(_) => nal(payload, true, &mut open, &mut units),
            Codec::Av1(_) => {
                let head = payload[0];
                assert_eq!(head & 0x37, 0x10, "one element, reserved bits zero");
                assert_eq!(head & 0x80 != 0, !open.is_empty(), "Z goes on");
                open.extend_from_slice(&payload[1..]);
                if head & 0x40 == 0 {
                    units.push(std::mem::take(&mut open));
                }
            }
            Codec::Aac(_) => aac(*marker, payload, &mut open, &mut units),
            Codec::Opus { .. } | Codec::Pcm(_) => units.push(payload.clone()),
            Codec::MpegAudio => {
                let (head, body) = payload.split_at(4);
                let offset = usize::from(u16::from_be_bytes([head[2], head[3]]));
                assert!(head[..2] == [0, 0] && (offset == 0 || offset == open.len()));
                if offset == 0 {
                    units.push(std::mem::take(&mut open));
                }
                open.extend_from_slice(body);
            }
            Codec::Ac3 { .. } | Codec::Eac3 { .. } => {
                assert!(payload[0] <= 3 && payload[1] > 0, "{:?}", &payload[..2]);
                units.push(payload[2..].to_vec());
            }
            _ => unreachable!("no codec of the target"),
        }
    }
    if is_one_unit(codec) {
        units.push(open);
        return vec![units.concat()];
    }
    assert!(open.is_empty(), "the last packet ends within a unit");
    units
}

/// True for a codec whose packets do not show the start of units.
fn is_one_unit(codec: &Codec) -> bool {
    matches!(codec, Codec::MpegAudio | Codec::Ac3 { .. } | Codec::Eac3 { .. } | Codec::Pcm(_))
}

/// A single NAL unit, an aggregate or a fragment, by the type of the payload.
fn nal(payload: &[u8], is_h265: bool, open: &mut Vec<u8>, units: &mut Vec<Vec<u8>>) {
    let header_bytes = if is_h265 { 2 } else { 1 };
    let kind = if is_h265 { payload[0] >> 1 & 0x3f } else { payload[0] & 0x1f };
    match (is_h265, kind) {
        (false, 24) | (true, 48) => {
            let mut rest = &payload[header_bytes..];
            while let [a, b, behind @ ..] = rest {
                let (unit, others) = behind.split_at(usize::from(u16::from_be_bytes([*a, *b])));
                units.push(unit.to_vec());
                rest = others;
            }
            assert!(rest.is_empty() && open.is_empty());
        }
        (false, 28) | (true, 49) => {
            let (fu, body) = (payload[header_bytes], &payload[header_bytes + 1..]);
            assert_eq!(fu & 0x80 != 0, open.is_empty(), "S marks the first");
            assert!(fu & 0xc0 != 0xc0, "not both S and E");
            if open.is_empty() {
                match is_h265 {
                    true => open.extend([payload[0] & 0x81 | (fu & 0x3f) << 1, payload[1]]),
                    false => open.push(payload[0] & 0xe0 | fu & 0x1f),
                }
            }
            open.extend_from_slice(body);
            if fu & 0x40 != 0 {
                units.push(std::mem::take(open));
            }
        }
        _ => {
            assert!(open.is_empty(), "a unit within another one");
            units.push(payload.to_vec());
        }
    }
}

/// Access units of AAC with a header each, or a fragment of one, which has the header of the whole.
fn aac(is_marked: bool, payload: &[u8], open: &mut Vec<u8>, units: &mut Vec<Vec<u8>>) {
    let header = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
    let count = usize::from(header(0)) / 16;
    let size = |number: usize| usize::from(header(2 + 2 * number) >> 3);
    let mut body = &payload[2 + 2 * count..];
    if count == 1 && size(0) > body.len() {
        open.extend_from_slice(body);
        assert_eq!(is_marked, open.len() == size(0), "the last fragment is marked");
        if is_marked {
            units.push(std::mem::take(open));
        }
        return;
    }
    assert!(is_marked && open.is_empty());
    for number in 0..count {
        let (unit, rest) = body.split_at(size(number));
        units.push(unit.to_vec());
        body = rest;
    }
    assert!(body.is_empty());
}

/// Units of a sample that are sent, others are a fault.
const UNITS_MAX: usize = 4096;
