// SPDX-License-Identifier: MIT OR Apache-2.0
//! Depayloaders: access units from the RTP packets of a track, one file per payload format.
//!
//! A [`Depayloader`] takes packets in the order of their sequence numbers and gives out
//! [`AccessUnit`]s. One that lacks a packet is left out and counted, and the next one says so
//! ([`AccessUnit::is_after_loss`]): a decoder fed with half a picture shows garbage until the next
//! key frame. Costs one copy of each payload, into the unit; memory is that of one unit, at most
//! [`UNIT_BYTES_MAX`].
//!
//! Sources: RFC 6184, 7798, 3640, 2250, 7587, 4184, 4598, 3551, 3190; RTP Payload Format For AV1
//! (AOM); RFC 3550 §5.1.
//! Does not put packets in order (`wire::reorder`), and knows no interleaving: formats that a
//! description offers with it are refused by name.

mod aac;
mod av1;
mod nal;
mod offer;
mod pcm;
mod sound;

use crate::AccessUnit;
use crate::tracks::{Codec, SAMPLE_BYTES_MAX};

pub use offer::DepayloadRefusal;

use aac::AacUnits;
use av1::Av1Units;
use nal::NalUnits;
use pcm::PcmUnits;
use sound::{FrameKind, Frames};

/// Bytes of an access unit: those of a sample that a file may have.
pub const UNIT_BYTES_MAX: usize = SAMPLE_BYTES_MAX as usize;

/// Bytes of the parameters of a codec that one access unit brings. Real ones have some hundred
/// bytes; larger ones stay in the units, and tell nothing of the format.
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
    /// Access units that were given out, or wait whole for the packet behind them.
    pub units: u64,
    /// Those of them at which decoding can begin.
    pub starts: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Access units that were left out, because a packet of theirs is missing or malformed.
    pub broken_units: u64,
    /// Packets that do not keep to their payload format.
    pub malformed_packets: u64,
    /// Missing packets, by the sequence numbers.
    pub lost_packets: u64,
}

/// Puts the access units of one track together.
#[derive(Debug)]
pub struct Depayloader {
    format: Format,
    /// Clock rate of the RTP timestamps, which need not be that of the codec.
    clock_rate_hz: u32,
    /// The last sequence number.
    sequence: Option<u16>,
    /// The last timestamp, unwrapped.
    time: Option<i64>,
    /// Packets before the next one with a payload are missing; nobody knows what came before the
    /// first.
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
    /// Packets before it are missing.
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
    /// Takes the next packet; returns the access units that it completes. One without a payload (it
    /// keeps a way open, or fills it) is but a sequence number.
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

    /// The sender has ended the stream: returns the last access unit, if it is whole without a mark
    /// of its end.
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

    /// The receiver stops while the sender goes on: returns the access unit that waits, if it is
    /// known to be whole. Another is cut off, which is no loss.
    pub fn cut_off(&mut self) -> impl Iterator<Item = AccessUnit> + use<'_> {
        self.end_before_gap();
        self.ready()
    }

    /// Gives out the unit that waits, if it is known to be whole.
    fn end_before_gap(&mut self) {
        match &mut self.format {
            Format::Nal(format) => format.gap(&mut self.output),
            Format::Av1(format) => format.gap(&mut self.output),
            // They give out each unit with its last byte.
            Format::Aac(_) | Format::Frames(_) | Format::Pcm(_) => {}
        }
    }

    /// The format of the units; none until parameters that the description lacks have come in the
    /// stream. It changes where they change.
    pub fn codec(&self) -> Option<&Codec> {
        match &self.format {
            Format::Nal(format) => format.codec(),
            Format::Av1(format) => format.codec(),
            Format::Aac(format) => Some(format.codec()),
            Format::Frames(format) => format.codec(),
            Format::Pcm(format) => Some(format.codec()),
        }
    }

    /// Clock rate of the RTP timestamps, in hertz.
    pub fn clock_rate_hz(&self) -> u32 {
        self.clock_rate_hz
    }

    /// Counts so far.
    pub fn counts(&self) -> DepayloadCounts {
        let holds_whole = match &self.format {
            Format::Nal(format) => format.holds_whole(),
            Format::Av1(format) => format.holds_whole(),
            Format::Aac(_) | Format::Frames(_) | Format::Pcm(_) => false,
        };
        let counts = self.output.counts;
        DepayloadCounts { units: counts.units + u64::from(holds_whole), ..counts }
    }

    /// The units that are ready, with times in units of the codec's clock.
    fn ready(&mut self) -> impl Iterator<Item = AccessUnit> + use<'_> {
        let from = i128::from(self.clock_rate_hz);
        let to = self.codec().map_or(from, |codec| i128::from(codec.clock_rate_hz()));
        self.output.units.drain(..).map(move |unit| {
            let time = (i128::from(unit.time) * to).div_euclid(from) as i64;
            AccessUnit { time, ..unit }
        })
    }
}
