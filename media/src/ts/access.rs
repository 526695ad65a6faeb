// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds entry points: access units of one elementary stream at which play can start.
//!
//! The multiplexer may signal them (random_access_indicator, ISO/IEC 13818-1 §2.4.3.5). Otherwise
//! the first bytes of each PES packet are searched for a start code that decides: a sequence header
//! or intra picture of MPEG-1/2 (ISO/IEC 13818-2 §6.2) or MPEG-4 part 2, or a random access point
//! of H.264 and H.265 ([`crate::random_access`]). For H.264 and H.265 the bytes up to the first
//! slice also contain the active parameter sets, and show which entry points lack them. In a stream
//! without video every audio PES packet is an entry point.
//!
//! Costs a byte-by-byte scan of the start of each video frame, at most [`PROBE_BYTES_MAX`].
//! Pictures are not decoded. A PES packet is assumed to hold one access unit, as it does in
//! practice.

use super::TsPacket;
use super::lead::EntryContext;
use super::parameter_sets::{ParameterReader, ParameterSets};
use super::psi::ProgrammeMap;
use super::stream_types::{is_audio, is_video};
use super::unit_starts::UnitStarts;
use crate::plan::EntryPoint;
use crate::random_access::AccessReader;

/// Bytes of a PES packet searched for a deciding start code. Delimiters, parameter sets and
/// captions or metadata (SEI) may precede the first slice.
const PROBE_BYTES_MAX: u32 = 4096;

/// Entry points stored: 10 MiB. Above the limit every second one is dropped.
pub(super) const ENTRIES_MAX: usize = 1 << 18;

/// Rule, by coding, that decides if play can start at an access unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryRule {
    /// MPEG-1 and MPEG-2 video.
    Mpeg2,
    Mpeg4,
    H264,
    H265,
    /// Audio: always.
    Audio,
    /// Only the multiplexer's indicator decides.
    Indicated,
}

fn rule(stream_type: u8) -> EntryRule {
    match stream_type {
        0x01 | 0x02 => EntryRule::Mpeg2,
        0x10 => EntryRule::Mpeg4,
        0x1b => EntryRule::H264,
        0x24 => EntryRule::H265,
        other if is_audio(other) => EntryRule::Audio,
        _ => EntryRule::Indicated,
    }
}

/// Chooses the elementary stream that is searched: the first video of the programme, otherwise its
/// first audio, otherwise its first stream.
fn chosen(map: &ProgrammeMap) -> Option<(u16, EntryRule)> {
    let streams = || map.streams.iter().map(|&(pid, stream_type)| (pid, stream_type));
    streams()
        .find(|&(_, stream_type)| is_video(stream_type))
        .or_else(|| streams().find(|&(_, stream_type)| is_audio(stream_type)))
        .or_else(|| streams().next())
        .map(|(pid, stream_type)| (pid, rule(stream_type)))
}

/// Returns the PID of the stream that is searched for entry points.
pub(super) fn chosen_pid(map: &ProgrammeMap) -> Option<u16> {
    chosen(map).map(|(pid, _)| pid)
}

/// Search of one access unit for a deciding start code.
#[derive(Clone)]
struct Probe {
    entry: (EntryPoint, EntryContext),
    /// Remaining bytes of the PES header.
    skip: usize,
    budget: u32,
    /// The last bytes, the latest in the lowest bits. The initial value is all ones, because zeros
    /// would look like the start of a start code.
    window: u64,
    /// Only for H.264 and H.265.
    access: Option<AccessReader>,
    /// True if the multiplexer announced the entry point; then the search only collects parameter
    /// sets.
    is_announced: bool,
}

/// Collects the entry points of a stream.
#[derive(Clone, Default)]
pub(super) struct EntryFinder {
    watched: Option<(u16, EntryRule)>,
    probe: Option<Probe>,
    /// True if the multiplexer announced an entry point for the next access unit.
    is_announced: bool,
    parameters: ParameterReader,
    entries: Vec<(EntryPoint, EntryContext)>,
    units: UnitStarts,
    /// The first access unit and its presentation time; the inner value is none if it has no time.
    begin: Option<Option<(u64, u32)>>,
    /// Access unit of the last entry point, stored or not.
    last: Option<u64>,
    /// The current access unit, and the last packet of the stream so far.
    unit: Option<u64>,
    last_packet: u64,
    found: u64,
    /// One in this many entry points is stored.
    keep_one_in: u64,
}

impl EntryFinder {
    /// Creates the finder of an endless stream.
    pub(super) fn of_channel() -> EntryFinder {
        EntryFinder { parameters: ParameterReader::of_channel(), ..EntryFinder::default() }
    }

    /// Chooses a stream of `map` to search and returns its PID.
    pub(super) fn watch(&mut self, map: &ProgrammeMap) -> Option<u16> {
        let chosen = chosen(map);
        if chosen != self.watched {
            self.watched = chosen;
            self.probe = None;
            self.unit = None;
            self.is_announced = false;
            let (pid, rule) = chosen.unwrap_or((0, EntryRule::Indicated));
            self.parameters.watch(pid, rule == EntryRule::H265);
        }
        chosen.map(|(pid, _)| pid)
    }

    /// Drops the entry points found so far, which belong to another programme.
    pub(super) fn forget(&mut self) {
        *self = Self { watched: self.watched, ..Self::default() };
    }

    /// Records a packet of the searched stream.
    #[inline]
    pub(super) fn note_packet(&mut self, index: u64) {
        self.last_packet = index;
    }

    /// True if packets that do not start a unit are needed.
    #[inline]
    pub(super) fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// Returns the first access unit of the stream and its presentation time, modulo 2³² at 90 kHz.
    pub(super) fn begin(&self) -> Option<(u64, u32)> {
        self.begin.flatten()
    }

    /// Returns the starts of the last access units.
    pub(super) fn units(&self) -> &UnitStarts {
        &self.units
    }

    /// Returns the stored entry points.
    pub(super) fn entries(&self) -> &[(EntryPoint, EntryContext)] {
        &self.entries
    }

    /// Returns the first packet of the access unit whose search is not finished.
    pub(super) fn undecided(&self) -> Option<u64> {
        self.probe.as_ref().map(|probe| probe.entry.0.access_unit)
    }

    /// Drops the entry points and units of an endless stream before a packet.
    pub(super) fn drop_before(&mut self, packet: u64) {
        self.entries.retain(|(entry, _)| entry.access_unit >= packet);
        self.units.drop_before(packet);
    }

    /// Records a timestamp discontinuity at an access unit.
    pub(super) fn note_break(&mut self, access_unit: u64) {
        self.units.note_break(access_unit);
    }

    /// Returns the parameter sets that entry points lack.
    pub(super) fn parameters(&self) -> &[ParameterSets] {
        self.parameters.kept()
    }

    /// Returns the stored entry points, and the parameter sets that they lack.
    pub(super) fn into_entries(mut self) -> (Vec<(EntryPoint, EntryContext)>, Vec<ParameterSets>) {
        self.end_unit();
        (self.entries, self.parameters.kept().to_vec())
    }

    /// Ends the probed access unit, and that of the last entry point.
    fn end_unit(&mut self) {
        if let Some(probe) = self.probe.take() {
            self.parameters.end_unit();
            if probe.is_announced {
                self.enter(probe.entry);
            }
        }
        let unit = self.unit.take();
        if let Some((entry, context)) = self.entries.last_mut()
            && unit == Some(entry.access_unit)
        {
            let packets = (self.last_packet + 1).checked_sub(entry.access_unit);
            *context = context.of_packets(packets);
        }
    }

    /// Adds a probed entry point, with the parameter sets that it lacks.
    fn enter(&mut self, (entry, context): (EntryPoint, EntryContext)) {
        let lacking = self.parameters.lacking();
        self.push((entry, context.lacking(lacking)));
    }

    /// Consumes a packet of the searched stream. `tables_from` is the packet from which a decoder
    /// receives the tables in time; `start` holds the current tables.
    pub(super) fn feed(
        &mut self,
        index: u64,
        packet: &TsPacket<'_>,
        is_random_access: bool,
        tables_from: Option<u64>,
        start: EntryContext,
    ) {
        let Some((_, coding)) = self.watched else { return };
        self.is_announced |= is_random_access;
        let mut bytes = packet.payload();
        if packet.header.starts_unit() && !bytes.is_empty() {
            self.end_unit();
            self.unit = Some(index);
            let clear = if packet.header.is_scrambled() { &[][..] } else { bytes };
            self.units.push(index, clear, start);
            let after_last = |&at: &u64| self.last.is_none_or(|last| at > last);
            let ts_packet = tables_from.filter(after_last).unwrap_or(index);
            let start = start.of_unit(packet);
            self.begin.get_or_insert(start.presented().map(|time| (index, time)));
            let entry = EntryPoint { ts_packet, access_unit: index, presented_ticks: 0 };
            let entry = (entry, start);
            let is_announced = std::mem::take(&mut self.is_announced);
            let is_probed = !packet.header.is_scrambled()
                && match coding {
                    EntryRule::H264 | EntryRule::H265 => true,
                    EntryRule::Mpeg2 | EntryRule::Mpeg4 => !is_announced,
                    EntryRule::Audio | EntryRule::Indicated => false,
                };
            match *bytes {
                [0, 0, 1, _, _, _, _, _, header_bytes, ..] if is_probed => {
                    let skip = 9 + usize::from(header_bytes);
                    self.parameters.begin_unit();
                    self.probe = Some(Probe::new(entry, skip, coding, is_announced));
                }
                _ if is_announced || coding == EntryRule::Audio => return self.push(entry),
                _ => return,
            }
        }
        let Some(probe) = &mut self.probe else { return };
        let skipped = probe.skip.min(bytes.len());
        probe.skip -= skipped;
        bytes = &bytes[skipped..];
        if let Some(verdict) = probe.walk(bytes, coding, &mut self.parameters) {
            let (entry, is_announced) = (probe.entry, probe.is_announced);
            self.probe = None;
            if verdict || is_announced {
                self.enter(entry);
            }
        }
    }

    fn push(&mut self, entry: (EntryPoint, EntryContext)) {
        self.last = Some(entry.0.access_unit);
        self.keep_one_in = self.keep_one_in.max(1);
        let is_kept = self.found.is_multiple_of(self.keep_one_in);
        self.found += 1;
        if !is_kept {
            return;
        }
        self.entries.push(entry);
        if self.entries.len() == ENTRIES_MAX {
            let mut keep = false;
            self.entries.retain(|_| {
                keep = !keep;
                keep
            });
            self.keep_one_in *= 2;
        }
    }
}

impl Probe {
    fn new(
        entry: (EntryPoint, EntryContext),
        skip: usize,
        coding: EntryRule,
        is_announced: bool,
    ) -> Probe {
        let access = match coding {
            EntryRule::H264 | EntryRule::H265 => Some(AccessReader::new(coding == EntryRule::H265)),
            _ => None,
        };
        let (budget, window) = (PROBE_BYTES_MAX, u64::MAX);
        Probe { entry, skip, budget, window, access, is_announced }
    }

    /// Scans further bytes. Returns true if play can start here, false if not, none if undecided.
    fn walk(
        &mut self,
        bytes: &[u8],
        coding: EntryRule,
        parameters: &mut ParameterReader,
    ) -> Option<bool> {
        for &byte in bytes {
            let begins = self.window & 0xff_ffff == 1;
            self.window = self.window << 8 | u64::from(byte);
            if let Some(access) = &mut self.access {
                match begins {
                    true => {
                        parameters.begin_nal(byte);
                        access.begin_nal();
                    }
                    false => parameters.take(byte),
                }
                access.take(byte);
                if access.verdict().is_some() {
                    return access.verdict();
                }
                continue;
            }
            // Start code prefix 00 00 01, the code, and the two bytes after it.
            if self.window >> 24 & 0xff_ffff == 1 {
                let [.., code, first, second] = self.window.to_be_bytes();
                if let Some(verdict) = decide(coding, code, first, second) {
                    return Some(verdict);
                }
            }
        }
        self.budget = self.budget.saturating_sub(bytes.len() as u32);
        if self.budget == 0 {
            parameters.give_up();
        }
        (self.budget == 0).then_some(false)
    }
}

/// Decides by a start code and the two bytes after it; none if they do not decide.
fn decide(coding: EntryRule, code: u8, first: u8, second: u8) -> Option<bool> {
    match coding {
        EntryRule::Mpeg2 => match code {
            0xb3 => Some(true),
            // picture_coding_type follows ten bits of temporal_reference; 1 is intra.
            0x00 => Some(second >> 3 & 7 == 1),
            _ => None,
        },
        EntryRule::Mpeg4 => match code {
            0xb0 => Some(true),
            // vop_coding_type; 0 is intra.
            0xb6 => Some(first >> 6 == 0),
            _ => None,
        },
        EntryRule::H264 | EntryRule::H265 | EntryRule::Audio | EntryRule::Indicated => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen_of(streams: &[(u16, u8)]) -> Option<(u16, EntryRule)> {
        chosen(&ProgrammeMap { pcr_pid: 1, streams: streams.to_vec() })
    }

    #[test]
    fn a_stream_type_with_a_rule_of_its_own_is_video_or_audio() {
        for stream_type in 0..=u8::MAX {
            match rule(stream_type) {
                EntryRule::Audio => assert!(is_audio(stream_type), "{stream_type:#x}"),
                EntryRule::Indicated => {}
                _ => assert!(is_video(stream_type), "{stream_type:#x}"),
            }
        }
    }

    #[test]
    fn video_is_watched_before_sound_and_sound_before_data() {
        assert_eq!(chosen_of(&[(6, 0x06), (4, 0x0f), (5, 0x1b)]), Some((5, EntryRule::H264)));
        assert_eq!(chosen_of(&[(6, 0x06), (4, 0x0f)]), Some((4, EntryRule::Audio)));
        assert_eq!(chosen_of(&[(4, 0x0f), (7, 0xea)]), Some((7, EntryRule::Indicated)));
        assert_eq!(chosen_of(&[(6, 0x06)]), Some((6, EntryRule::Indicated)));
        assert_eq!(chosen_of(&[]), None);
    }

    fn walk(coding: EntryRule, bytes: &[u8]) -> Option<bool> {
        let entry = (
            EntryPoint { ts_packet: 0, access_unit: 0, presented_ticks: 0 },
            EntryContext::default(),
        );
        let mut probe = Probe::new(entry, 0, coding, false);
        let mut parameters = ParameterReader::default();
        // One byte at a time, because a start code may straddle packets.
        bytes.iter().find_map(|&byte| probe.walk(&[byte], coding, &mut parameters))
    }

    #[test]
    fn start_codes_tell_intra_pictures_from_others() {
        let delimiter = [0, 0, 0, 1, 9, 0x10];
        let h264 =
            |nal: u8| walk(EntryRule::H264, &[&delimiter[..], &[0, 0, 1, nal, 0, 0]].concat());
        assert_eq!(
            [0x65, 0x67, 0x41, 0x01, 0x06].map(h264),
            [Some(true), None, Some(false), Some(false), None]
        );
        let set = [&delimiter[..], &[0, 0, 1, 0x67, 0x64, 0, 0x1f, 0, 0, 1, 0x68, 9]].concat();
        let behind =
            |slice: [u8; 2]| walk(EntryRule::H264, &[&set[..], &[0, 0, 1], &slice].concat());
        // An I slice and a P slice.
        assert_eq!([[0x41, 0x88], [0x41, 0x98]].map(behind), [Some(true), Some(false)]);
        let recovery = [&delimiter[..], &[0, 0, 1, 6, 6, 1, 0xc4, 0x80, 0, 0, 1, 0x41, 0x98]];
        assert_eq!(walk(EntryRule::H264, &recovery.concat()), Some(true));
        let h265 = |nal: u8| walk(EntryRule::H265, &[0, 0, 1, nal << 1, 1, 0]);
        assert_eq!([19, 21, 1, 33].map(h265), [Some(true), Some(true), Some(false), None]);
        let mpeg2 = |kind: u8| walk(EntryRule::Mpeg2, &[0, 0, 1, 0, 0xff, 0xc0 | kind << 3, 0]);
        assert_eq!([1, 2, 3].map(mpeg2), [Some(true), Some(false), Some(false)]);
        assert_eq!(walk(EntryRule::Mpeg2, &[0, 0, 1, 0xb3, 1, 2]), Some(true));
        let mpeg4 = |kind: u8| walk(EntryRule::Mpeg4, &[0, 0, 1, 0xb6, kind << 6, 0]);
        assert_eq!([0, 1].map(mpeg4), [Some(true), Some(false)]);
    }

    #[test]
    fn search_of_an_access_unit_ends() {
        assert_eq!(walk(EntryRule::H264, &[0; PROBE_BYTES_MAX as usize - 1]), None);
        assert_eq!(walk(EntryRule::H264, &[0; PROBE_BYTES_MAX as usize]), Some(false));
    }
}
