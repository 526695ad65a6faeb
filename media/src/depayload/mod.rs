// SPDX-License-Identifier: MIT OR Apache-2.0
//! Depayloaders assemble access units from the RTP packets of a track; one file per payload format.
//!
//! A [`Depayloader`] accepts packets in the order of their sequence numbers and emits
//! [`AccessUnit`]s. A unit with a missing packet is dropped and counted, and the next unit is
//! flagged ([`AccessUnit::is_after_loss`]): a decoder fed with half a picture shows garbage until
//! the next key frame. Costs one copy of each payload, into the unit; memory is that of one unit,
//! at most [`UNIT_BYTES_MAX`].
//!
//! Sources: RFC 6184, 7798, 3640, 2250, 7587, 4184, 4598, 3551, 3190; RTP Payload Format For AV1
//! (AOM); RFC 3550 §5.1.
//! Does not reorder packets (`wire::reorder` does), and supports no interleaving: a description
//! that offers an interleaved format is refused, with the name of the parameter.

mod aac;
mod av1;
mod nal;
mod offer;
mod pcm;
mod sound;

use crate::AccessUnit;
use crate::tracks::{Codec, SAMPLE_BYTES_MAX, TrackMedia};

pub use offer::DepayloadRefusal;

use aac::AacUnits;
use av1::Av1Units;
use nal::NalUnits;
use pcm::PcmUnits;
use sound::{FrameKind, Frames};

/// Most bytes of an access unit: the largest sample that a file may hold.
pub const UNIT_BYTES_MAX: usize = SAMPLE_BYTES_MAX as usize;

/// Most bytes of codec parameters in one access unit. Real ones have some hundred bytes; larger
/// ones stay in the units and are not used to describe the format.
const PARAMETER_BYTES_MAX: usize = 64 << 10;

/// An RTP packet of a track.
#[derive(Debug, Clone, Copy)]
pub struct TrackPacket<'a> {
    /// Sequence number.
    pub sequence: u16,
    /// RTP timestamp.
    pub timestamp: u32,
    /// Marker bit.
    pub marker: bool,
    /// Payload, without the RTP header and padding.
    pub payload: &'a [u8],
}

/// Counts of a depayloader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DepayloadCounts {
    /// Access units emitted, and those that are whole and wait for the next packet.
    pub units: u64,
    /// Units at which decoding can begin.
    pub starts: u64,
    /// Bytes of the units.
    pub bytes: u64,
    /// Access units dropped because a packet of theirs is missing or malformed.
    pub broken_units: u64,
    /// Packets that violate their payload format.
    pub malformed_packets: u64,
    /// Missing packets, counted by gaps in the sequence numbers.
    pub lost_packets: u64,
}

/// Assembles the access units of one track.
#[derive(Debug)]
pub struct Depayloader {
    format: Format,
    /// Clock rate of the RTP timestamps, which need not be that of the codec.
    clock_rate_hz: u32,
    /// Sequence number of the last packet.
    sequence: Option<u16>,
    /// Timestamp of the last packet with a payload, unwrapped.
    time: Option<i64>,
    /// Packets before the next one with a payload are missing. Also true at the start: packets
    /// before the first one are unknown.
    is_after_gap: bool,
    output: Output,
}

#[derive(Debug)]
enum Format {
    Nal(NalUnits),
    Av1(Av1Units),
    Aac(AacUnits),
    Frames(Frames),
    Pcm(PcmUnits),
}

/// A packet whose timestamp has been unwrapped.
#[derive(Debug, Clone, Copy)]
struct TimedPacket<'a> {
    /// Timestamp, in units of the RTP clock.
    time: i64,
    marker: bool,
    payload: &'a [u8],
    /// Packets immediately before it are missing.
    is_after_gap: bool,
}

/// Output of a format; times are still in units of the RTP clock.
#[derive(Debug, Default)]
struct Output {
    units: Vec<AccessUnit>,
    counts: DepayloadCounts,
    is_after_loss: bool,
}

impl Output {
    fn unit(&mut self, time: i64, bytes: Vec<u8>, is_start: bool) {
        self.counts.units += 1;
        self.counts.starts += u64::from(is_start);
        self.counts.bytes += bytes.len() as u64;
        let is_after_loss = std::mem::take(&mut self.is_after_loss);
        self.units.push(AccessUnit { time, bytes, is_start, is_after_loss });
    }

    fn broken_unit(&mut self) {
        self.counts.broken_units += 1;
        self.is_after_loss = true;
    }

    fn malformed(&mut self) {
        self.counts.malformed_packets += 1;
    }
}

impl Depayloader {
    /// Processes the next packet; returns the access units that it completes. Of a packet without a
    /// payload (keep-alive or padding) only the sequence number counts.
    pub fn push(&mut self, packet: TrackPacket<'_>) -> impl Iterator<Item = AccessUnit> + use<'_> {
        let step = self.sequence.map(|last| packet.sequence.wrapping_sub(last).wrapping_sub(1));
        let missing = step.unwrap_or(0);
        self.sequence = Some(packet.sequence);
        if missing > 0 {
            self.output.counts.lost_packets += u64::from(missing);
            self.end_before_gap();
            self.output.is_after_loss = true;
            self.is_after_gap = true;
        }
        if packet.payload.is_empty() {
            return self.ready();
        }
        let time = match self.time {
            None => i64::from(packet.timestamp),
            Some(last) => {
                let step = packet.timestamp.wrapping_sub(last as u32).cast_signed();
                last + i64::from(step)
            }
        };
        self.time = Some(time);
        let TrackPacket { marker, payload, .. } = packet;
        let is_after_gap = std::mem::take(&mut self.is_after_gap);
        let packet = TimedPacket { time, marker, payload, is_after_gap };
        let output = &mut self.output;
        match &mut self.format {
            Format::Nal(format) => format.push(packet, output),
            Format::Av1(format) => format.push(packet, output),
            Format::Aac(format) => format.push(packet, output),
            Format::Frames(format) => format.push(packet, output),
            Format::Pcm(format) => format.push(packet, output),
        }
        self.ready()
    }

    /// Ends the stream: returns the last access unit if it is whole. Some formats and senders do
    /// not mark its end.
    pub fn finish(&mut self) -> impl Iterator<Item = AccessUnit> + use<'_> {
        let output = &mut self.output;
        match &mut self.format {
            Format::Nal(format) => format.finish(output),
            Format::Av1(format) => format.finish(output),
            Format::Aac(format) => format.finish(output),
            Format::Frames(format) => format.finish(output),
            // Each packet is whole.
            Format::Pcm(_) => {}
        }
        self.ready()
    }

    /// Stops before the end of the stream: returns the pending access unit if it is known to be
    /// whole. An incomplete unit is dropped and not counted as lost.
    pub fn cut_off(&mut self) -> impl Iterator<Item = AccessUnit> + use<'_> {
        self.end_before_gap();
        self.ready()
    }

    /// Emits the pending unit if it is known to be whole.
    fn end_before_gap(&mut self) {
        match &mut self.format {
            Format::Nal(format) => format.gap(&mut self.output),
            Format::Av1(format) => format.gap(&mut self.output),
            // These formats emit each unit with its last byte.
            Format::Aac(_) | Format::Frames(_) | Format::Pcm(_) => {}
        }
    }

    /// Codec of the units; `None` until the stream has carried the parameters that the description
    /// lacks. It changes when they change.
    pub fn codec(&self) -> Option<&Codec> {
        match &self.format {
            Format::Nal(format) => format.codec(),
            Format::Av1(format) => format.codec(),
            Format::Aac(format) => Some(format.codec()),
            Format::Frames(format) => format.codec(),
            Format::Pcm(format) => Some(format.codec()),
        }
    }

    /// Medium of the units.
    pub fn media(&self) -> TrackMedia {
        match &self.format {
            Format::Nal(_) | Format::Av1(_) => TrackMedia::Video,
            Format::Aac(_) | Format::Frames(_) | Format::Pcm(_) => TrackMedia::Audio,
        }
    }

    /// Clock rate of the RTP timestamps, in hertz.
    pub fn clock_rate_hz(&self) -> u32 {
        self.clock_rate_hz
    }

    /// Counts so far. Whole units that are still pending are included.
    pub fn counts(&self) -> DepayloadCounts {
        let holds_whole = match &self.format {
            Format::Nal(format) => format.holds_whole(),
            Format::Av1(format) => format.holds_whole(),
            Format::Aac(_) | Format::Frames(_) | Format::Pcm(_) => false,
        };
        let counts = self.output.counts;
        DepayloadCounts { units: counts.units + u64::from(holds_whole), ..counts }
    }

    /// Drains the finished units; converts their times to units of the codec's clock.
    fn ready(&mut self) -> impl Iterator<Item = AccessUnit> + use<'_> {
        let from = i128::from(self.clock_rate_hz);
        let to = self.codec().map_or(from, |codec| i128::from(codec.clock_rate_hz()));
        self.output.units.drain(..).map(move |unit| {
            let time = (i128::from(unit.time) * to).div_euclid(from) as i64;
            AccessUnit { time, ..unit }
        })
    }
}
