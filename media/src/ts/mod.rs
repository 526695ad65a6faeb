// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses MPEG transport stream packets and scans files into packet plans.
//!
//! Each concern has one file: `sync` finds packets in bytes, `psi` assembles sections, `tables`
//! follows one programme, `clock` builds a timeline of clock references, `access` finds entry
//! points, `unit_starts` records the last access units, `stream_units` does so for a channel,
//! `lead` stores the tables current at entry points and `parameter_sets` the sets that a unit
//! lacks, `content` passes each packet to the others, and `scan` drives all of them. `survey` finds
//! the programmes and their tracks, `format` parses the tracks' headers, `codecs` names them,
//! `extract` makes a stream of some of them, `splice` joins several streams end to end, `pictures`
//! sends single pictures at other times and `rewrite` writes packet fields for both and for
//! [`crate::mux`]; `elementary` makes tracks of a programme's streams; `monitor` measures an
//! incoming stream; `clock_ends` finds the length of a recorded one. `stream_ends` finds the end of
//! media that continue after the last clock reference. `stream_types` classifies the streams of a
//! map, and `pes_times` reads and writes the timestamps of PES packets.
//!
//! Sources: ISO/IEC 13818-1 (ITU-T H.222.0), §2.4.3.2 (packet), §2.4.3.4 (adaptation field).
//! Does not decode payloads; scrambled payloads are served unchanged.

mod access;
mod clock;
mod clock_ends;
mod codecs;
mod content;
mod elementary;
mod extract;
mod format;
mod lead;
mod monitor;
mod packet_reader;
mod parameter_sets;
mod pes_times;
mod pictures;
mod psi;
mod rewrite;
mod scan;
mod splice;
mod starts;
mod stream_ends;
mod stream_types;
mod stream_units;
mod survey;
mod sync;
mod tables;
mod unit_starts;

pub use clock_ends::clock_span;
pub use codecs::codecs;
pub use elementary::{
    ElementaryDemuxer, PartLimit, RecordedPart, RecordedStreams, copy_elementary,
    lay_out_elementary,
};
pub(crate) use elementary::{PartContext, PartTrack, apart};
pub use extract::{ContinuityCounters, Extract};
pub(crate) use extract::{packets as section_packets, section};
pub use format::{Coding, TrackFormat};
pub use lead::EntryPoints;
pub(crate) use lead::{EntryContext, PlayedStreams, TABLE_SETS_MAX};
pub use monitor::{Monitor, MonitorCounts};
pub(crate) use parameter_sets::{ParameterSets, SETS_BYTES_MAX, SETS_MAX};
pub(crate) use pes_times::{TIME_MODULUS, put_timestamp};
pub(crate) use pictures::{TrickPicture, key_unit, lay_out as lay_out_pictures};
pub(crate) use rewrite::{clock_packet, put_pcr};
pub use scan::Scanner;
pub use splice::{
    OpenUnits, SPLICE_RATES, Splice, SpliceCounts, SpliceItem, SpliceSettings, Splicer,
};
pub use starts::{EntryLead, entry_lead, entry_points};
pub(crate) use stream_types::is_video;
pub use stream_units::{StreamEntry, StreamUnits};
pub use survey::{Programme, Survey, Track};
pub use unit_starts::RecordedStarts;

use wire::mp2t::TS_SYNC_BYTE;

use crate::TS_PACKET_BYTES;

/// First byte of every packet.
const SYNC_BYTE: u32 = TS_SYNC_BYTE as u32;

/// PID of stuffing (null) packets.
const NULL_PID: u16 = 0x1fff;

/// Number of different PIDs.
const PIDS: usize = 0x2000;

/// Number of values of a program clock reference: 33 bits of 90 kHz, each of 300 ticks.
const PCR_MODULUS: u64 = (1 << 33) * 300;

/// Bytes of the header word.
const HEADER_BYTES: usize = 4;

/// The first four bytes of a packet, as one big-endian word.
///
/// | bits | field |
/// |---|---|
/// | 31–24 | sync byte |
/// | 23 | transport error indicator |
/// | 22 | payload unit start indicator |
/// | 21 | transport priority |
/// | 20–8 | PID |
/// | 7–6 | transport scrambling control |
/// | 5–4 | adaptation field control |
/// | 3–0 | continuity counter |
#[derive(Clone, Copy)]
struct TsHeader(u32);

impl TsHeader {
    /// Reads the word; `bytes` has at least four bytes.
    #[inline]
    fn read(bytes: &[u8]) -> Self {
        Self(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// True if a packet can begin with this word: sync byte, and an adaptation field control other
    /// than the reserved 00, which distinguishes packets from a run of 0x47 bytes. Null packets
    /// skip the second test: no decoder reads them, and some multiplexers set the field to 00
    /// there.
    #[inline]
    fn is_sync(self) -> bool {
        self.0 >> 24 == SYNC_BYTE && (self.0 & 0x30 != 0 || self.pid() == NULL_PID)
    }

    #[inline]
    fn pid(self) -> u16 {
        (self.0 >> 8) as u16 & 0x1fff
    }

    fn is_damaged(self) -> bool {
        self.0 & 0x0080_0000 != 0
    }

    #[inline]
    fn starts_unit(self) -> bool {
        self.0 & 0x0040_0000 != 0
    }

    fn is_scrambled(self) -> bool {
        self.0 & 0xc0 != 0
    }

    #[inline]
    fn has_adaptation(self) -> bool {
        self.0 & 0x20 != 0
    }

    fn has_payload(self) -> bool {
        self.0 & 0x10 != 0
    }

    fn continuity(self) -> u8 {
        self.0 as u8 & 0x0f
    }
}

/// The fields of an adaptation field that are used here.
#[derive(Clone, Copy, Default)]
struct Adaptation {
    discontinuity: bool,
    random_access: bool,
    /// Program clock reference in ticks, below [`PCR_MODULUS`].
    pcr: Option<u64>,
}

/// A whole packet.
#[derive(Clone, Copy)]
struct TsPacket<'a> {
    header: TsHeader,
    bytes: &'a [u8; TS_PACKET_BYTES],
}

impl<'a> TsPacket<'a> {
    /// Returns the adaptation field; an empty one or one of an impossible length yields the
    /// default.
    fn adaptation(&self) -> Adaptation {
        let bytes = self.bytes;
        let length = usize::from(bytes[4]);
        if !self.header.has_adaptation() || length == 0 || length >= TS_PACKET_BYTES - 4 {
            return Adaptation::default();
        }
        let flags = bytes[5];
        let pcr = (flags & 0x10 != 0 && length >= 7).then(|| {
            let base = (u64::from(bytes[6]) << 25)
                | (u64::from(bytes[7]) << 17)
                | (u64::from(bytes[8]) << 9)
                | (u64::from(bytes[9]) << 1)
                | (u64::from(bytes[10]) >> 7);
            let extension = (u64::from(bytes[10] & 1) << 8) | u64::from(bytes[11]);
            (base * 300 + extension) % PCR_MODULUS
        });
        Adaptation { discontinuity: flags & 0x80 != 0, random_access: flags & 0x40 != 0, pcr }
    }

    /// Returns the payload; empty if there is none.
    fn payload(&self) -> &'a [u8] {
        let bytes: &'a [u8] = self.bytes;
        let start = match (self.header.has_payload(), self.header.has_adaptation()) {
            (false, _) => return &[],
            (true, false) => HEADER_BYTES,
            (true, true) => HEADER_BYTES + 1 + usize::from(bytes[4]),
        };
        bytes.get(start..).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(start: &[u8]) -> [u8; TS_PACKET_BYTES] {
        let mut bytes = [0xff; TS_PACKET_BYTES];
        bytes[..start.len()].copy_from_slice(start);
        bytes
    }

    #[test]
    fn header_fields_are_where_the_standard_puts_them() {
        let header = TsHeader::read(&[0x47, 0x5f, 0xfe, 0x3a]);
        assert!(header.is_sync() && header.starts_unit() && !header.is_damaged());
        assert_eq!((header.pid(), header.continuity()), (0x1ffe, 10));
        assert!(header.has_adaptation() && header.has_payload() && !header.is_scrambled());
        assert!(TsHeader::read(&[0x47, 0x80, 0, 0xd0]).is_damaged());
        assert!(TsHeader::read(&[0x47, 0x80, 0, 0xd0]).is_scrambled());
    }

    #[test]
    fn a_row_of_sync_bytes_is_no_packet_but_a_careless_null_packet_is() {
        assert!(!TsHeader::read(&[0x47; 4]).is_sync());
        assert!(TsHeader::read(&[0x47, 0x1f, 0xff, 0x00]).is_sync());
        assert!(!TsHeader::read(&[0x48, 0x1f, 0xff, 0x10]).is_sync());
    }

    #[test]
    fn clock_reference_of_all_ones_is_the_last_tick_before_the_wrap() {
        // Base 2^33 - 1, reserved bits one, extension 299 = 0x12b.
        let bytes = packet(&[0x47, 1, 0, 0x20, 183, 0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0x2b]);
        let packet = TsPacket { header: TsHeader::read(&bytes), bytes: &bytes };
        assert_eq!(packet.adaptation().pcr, Some(PCR_MODULUS - 1));
        assert!(packet.payload().is_empty());
    }

    #[test]
    fn adaptation_field_longer_than_the_packet_is_not_read() {
        for length in [0, 184, 255] {
            let bytes = packet(&[0x47, 1, 0, 0x30, length, 0xff]);
            let packet = TsPacket { header: TsHeader::read(&bytes), bytes: &bytes };
            assert_eq!(packet.adaptation().pcr, None);
            assert!(!packet.adaptation().random_access);
            assert_eq!(packet.payload().len(), if length == 0 { 183 } else { 0 });
        }
    }
}
