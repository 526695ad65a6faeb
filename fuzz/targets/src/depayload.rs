// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes the depayloaders (`media::depayload::Depayloader`) with the packets of a track.
//!
//! The first byte selects the format. Each packet is a byte of length, a byte of flags (marker,
//! steps of timestamp and sequence number) and its payload.
//!
//! Checked: no unit is larger than the bytes received, nor than the limit; counts add up.

use media::depayload::{Depayloader, TrackPacket, UNIT_BYTES_MAX};
use wire::sdp::TrackOffer;

use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "depayload", run };

/// Names and values of an `a=fmtp` line (RFC 8866 §6.15).
type Parameters = &'static [(&'static str, &'static str)];

/// Encoding name, clock rate and parameters of each format.
const FORMATS: &[(&str, u32, Parameters)] = &[
    ("H264", 90_000, &[]),
    ("H265", 90_000, &[]),
    ("AV1", 90_000, &[]),
    ("MPA", 90_000, &[]),
    ("AC3", 48_000, &[]),
    ("EAC3", 48_000, &[]),
    ("opus", 48_000, &[]),
    (
        "mpeg4-generic",
        44_100,
        &[
            ("mode", "AAC-hbr"),
            ("sizelength", "13"),
            ("indexlength", "3"),
            ("indexdeltalength", "3"),
            ("config", "1210"),
        ],
    ),
    ("L24", 48_000, &[]),
];

fn run(data: &[u8]) {
    let Some((&format, mut rest)) = data.split_first() else { return };
    let (encoding, clock_rate_hz, parameters) = FORMATS[usize::from(format) % FORMATS.len()];
    let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    let offer = TrackOffer {
        media: "video".to_owned(),
        port: 0,
        address: None,
        payload_type: 96,
        encoding: encoding.to_owned(),
        clock_rate_hz,
        channels: None,
        parameters: parameters.iter().map(owned).collect(),
        control: None,
        language: None,
    };
    let mut depayloader = Depayloader::new(&offer).expect("all of them are put together");
    let (mut sequence, mut timestamp) = (u16::MAX - 3, u32::MAX - 9000);
    let (mut emitted_max, mut emitted, mut units) = (0, 0, 0);
    while let [length, flags, behind @ ..] = rest {
        let (payload, after) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = after;
        sequence = sequence.wrapping_add(1 + u16::from(flags >> 1 & 3));
        timestamp = timestamp.wrapping_add(u32::from(flags >> 3) * 300);
        let packet = TrackPacket { sequence, timestamp, marker: flags & 1 == 1, payload };
        // Lengths of NAL units and sizes of OBUs are added, one for each two bytes at most.
        emitted_max += payload.len() * 4 + 16;
        for unit in depayloader.push(packet) {
            assert!(unit.bytes.len() <= UNIT_BYTES_MAX);
            (emitted, units) = (emitted + unit.bytes.len(), units + 1);
        }
    }
    for unit in depayloader.finish() {
        (emitted, units) = (emitted + unit.bytes.len(), units + 1);
    }
    assert!(emitted <= emitted_max, "{emitted} bytes out of {emitted_max}");
    let counts = depayloader.counts();
    assert_eq!((counts.units, counts.bytes), (units, emitted as u64));
}
