// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scans the bytes of a file, fed in order in pieces of any size, and builds its plan.
//!
//! While in sync the scanner reads one header word per packet and copies nothing. A packet is
//! accepted when the next one starts at the expected offset. Otherwise a search begins one byte
//! after the packet's own start. If a run of packets starts within the packet, it was truncated and
//! is omitted. Otherwise it is whole, and the bytes after it are lost up to the next run. Losses
//! are recorded with their offsets.
//!
//! Needs about 20 KiB, up to 4 MiB for clock references (64 MiB while several PIDs compete), 10 MiB
//! for entry points and 1 MiB for extents. Between two calls it retains at most [`KEPT_BYTES_MAX`]
//! bytes.
//!
//! Does not read files. Refuses a file without a clock instead of guessing one.

use super::content::PacketDispatch;
use super::lead::{EntryContext, EntryPoints};
use super::sync::{self, ARRIVAL_BYTES, LOOKAHEAD_BYTES, STRIDES, SyncSearch};
use super::unit_starts::RecordedStarts;
use super::{HEADER_BYTES, TsHeader};
use crate::plan::{
    EXTENTS_MAX, EntryPoint, LOSSES_MAX, PacketPlan, PlanParts, RtpIdentity, SyncLoss,
    TIMELINE_TICKS_MAX, present,
};
use crate::{Damage, Refusal, TICKS_PER_TIMESTAMP, TS_PACKET_BYTES};

/// A file without a packet in this many bytes from the start is no transport stream.
const SEARCH_BYTES_MAX: u64 = 1 << 20;

/// Below this number of packets the detected distance is uncertain: after a loss of synchronisation
/// another distance that fits replaces it.
const STRIDE_TRUST_PACKETS: u64 = 64;

/// Most bytes that must be examined together: an undecided packet and the bytes that decide it.
const KEPT_BYTES_MAX: usize = TS_PACKET_BYTES + LOOKAHEAD_BYTES;

/// Bytes of a new piece appended to the retained ones to decide them; then the piece itself is
/// scanned.
const JOIN_BYTES: usize = 4 * KEPT_BYTES_MAX;

/// Builds a plan from a file's bytes.
#[derive(Clone)]
pub struct Scanner {
    /// The last bytes fed, which are still undecided.
    kept: Vec<u8>,
    /// Bytes fed so far.
    fed: u64,
    state: ScanState,
    /// Distance of packets; 0 before the first.
    stride: usize,
    /// Offset and number of packets of each extent.
    extents: Vec<(u64, u64)>,
    /// Packets in the extents before the last.
    packets_before: u64,
    losses: Vec<SyncLoss>,
    losses_seen: u64,
    lost_bytes: u64,
    tail_bytes: u64,
    content: PacketDispatch,
}

#[derive(Clone)]
enum ScanState {
    /// In sync: the next byte is a sync byte.
    InStep,
    /// Searching for packets; the bytes from `since` on belong to none.
    Searching {
        since: u64,
    },
    /// The file has ended.
    Ended,
    Refused(Refusal),
}

/// Result of one step of the scanner.
enum ScanStep {
    /// The scanner advanced to this offset.
    To(usize),
    /// The scanner needs more bytes to continue from this offset.
    Wait(usize),
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// Creates a scanner for one file.
    pub fn new() -> Self {
        Self {
            kept: Vec::new(),
            fed: 0,
            state: ScanState::Searching { since: 0 },
            stride: 0,
            extents: Vec::new(),
            packets_before: 0,
            losses: Vec::new(),
            losses_seen: 0,
            lost_bytes: 0,
            tail_bytes: 0,
            content: PacketDispatch::new(),
        }
    }

    /// Consumes the file's next bytes. The division of a file into pieces does not affect its plan;
    /// pieces of 64 KiB to 1 MiB are best.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        let base = self.fed - self.kept.len() as u64;
        self.fed += bytes.len() as u64;
        let mut base_of_bytes = self.fed - bytes.len() as u64;
        if !self.kept.is_empty() {
            let old = self.kept.len();
            let mut kept = std::mem::take(&mut self.kept);
            let joined = bytes.len().min(JOIN_BYTES);
            kept.extend_from_slice(&bytes[..joined]);
            let walked = self.walk(&kept, base, false);
            if joined == bytes.len() {
                kept.drain(..walked);
                self.kept = kept;
                return;
            }
            assert!(walked >= old, "{JOIN_BYTES} bytes decide about the {old} before them");
            bytes = &bytes[walked - old..];
            base_of_bytes += (walked - old) as u64;
            kept.clear();
            self.kept = kept;
        }
        let walked = self.walk(bytes, base_of_bytes, false);
        self.kept.extend_from_slice(&bytes[walked..]);
    }

    /// True if the file will be refused, so that the rest need not be read;
    /// [`finish`](Self::finish) returns the reason.
    pub fn is_refused(&self) -> bool {
        matches!(self.state, ScanState::Refused(_))
    }

    /// Returns the plan of the bytes fed so far, for a file that grows. Packets before
    /// [`PacketPlan::settled_packets`] are the same in each later plan of the file with this
    /// identity.
    pub fn plan_so_far(&self, identity: RtpIdentity) -> Result<PacketPlan, Refusal> {
        self.clone().finish(self.fed, identity)
    }

    /// Returns the plan as [`plan_so_far`](Self::plan_so_far) does, and the points at which the
    /// file can be cut, for [`GrowingSegments`](crate::GrowingSegments).
    pub fn recorded_so_far(
        &self,
        identity: RtpIdentity,
    ) -> Result<(PacketPlan, RecordedStarts), Refusal> {
        let (plan, entries) = self.clone().finish_with_starts(self.fed, identity)?;
        Ok((plan, self.content.units().with(entries)))
    }

    /// Returns the plan of the file, which has `file_bytes` bytes, all of them fed.
    pub fn finish(self, file_bytes: u64, identity: RtpIdentity) -> Result<PacketPlan, Refusal> {
        self.finish_with_starts(file_bytes, identity).map(|(plan, _)| plan)
    }

    /// Returns the plan as [`finish`](Self::finish) does, and the entry points, for
    /// [`segments`](crate::segments).
    pub fn finish_with_starts(
        mut self,
        file_bytes: u64,
        identity: RtpIdentity,
    ) -> Result<(PacketPlan, EntryPoints), Refusal> {
        if let ScanState::Refused(refusal) = self.state {
            return Err(refusal);
        }
        if self.fed != file_bytes {
            return Err(Refusal::Changed { fed_bytes: self.fed, file_bytes });
        }
        let kept = std::mem::take(&mut self.kept);
        let base = self.fed - kept.len() as u64;
        self.walk(&kept, base, true);
        if let ScanState::Refused(refusal) = self.state {
            return Err(refusal);
        }
        if file_bytes == 0 {
            return Err(Refusal::Empty);
        }
        if file_bytes < 2 * TS_PACKET_BYTES as u64 {
            return Err(Refusal::TooShort { bytes: file_bytes });
        }
        if self.extents.is_empty() {
            return Err(Refusal::NotTransportStream { searched_bytes: file_bytes });
        }
        let bad_tables = self.content.bad_sections();
        let (mut timeline, mut starts, ends, streams) = self.content.finish()?;
        present(&timeline.points, &mut starts);
        let timed = |(entry, context): &(EntryPoint, EntryContext)| {
            context.timestamp().map(|time| (entry.access_unit, time, entry.presented_ticks))
        };
        if let Some((access_unit, time, ticks)) = starts.entries.iter().rev().find_map(timed)
            && let Some(passed) = ends.passed((access_unit, time))
            && let Some(end) = timeline.points.last_mut()
        {
            let last = (ticks + passed * TICKS_PER_TIMESTAMP).min(TIMELINE_TICKS_MAX);
            if last > end.ticks {
                starts.clock_end = Some(std::mem::replace(&mut end.ticks, last));
            }
        }
        let parts = PlanParts {
            identity,
            stride: self.stride as u64,
            file_bytes,
            extents: self.extents,
            clock: timeline.points,
            discontinuities: timeline.discontinuities,
            entries: starts.entries.iter().map(|&(entry, _)| entry).collect(),
            parameters: starts.parameters.clone(),
            lacking: starts.lacking(),
            units: starts.units(),
            streams,
            losses: self.losses,
            losses_seen: self.losses_seen,
            lost_bytes: self.lost_bytes,
            tail_bytes: self.tail_bytes,
            bad_tables,
            codecs: None,
            unsent: Vec::new(),
        };
        let plan = PacketPlan::assemble(parts).expect("a scan yields a plan that is consistent");
        Ok((plan, starts))
    }

    /// Scans the decidable part of `window`, all of it if `at_end`, and returns its length. The
    /// window's first byte is at `base` in the file.
    fn walk(&mut self, window: &[u8], base: u64, at_end: bool) -> usize {
        let mut at = 0;
        loop {
            let step = match self.state {
                ScanState::InStep => self.follow(window, at, base, at_end),
                ScanState::Searching { since } => self.search(window, at, base, since, at_end),
                ScanState::Ended | ScanState::Refused(_) => ScanStep::Wait(window.len()),
            };
            match step {
                ScanStep::To(next) => at = next,
                ScanStep::Wait(next) => return next,
            }
        }
    }

    /// Accepts packets from `at` on while they are in sync.
    fn follow(&mut self, window: &[u8], mut at: usize, base: u64, at_end: bool) -> ScanStep {
        let stride = self.stride;
        let Some(bytes) = window.get(at..at + HEADER_BYTES) else {
            return self.follow_to_end(window, at, at_end);
        };
        let mut header = TsHeader::read(bytes);
        while let Some(ahead) = window.get(at..at + stride + HEADER_BYTES) {
            let next = TsHeader::read(&ahead[stride..]);
            if !next.is_sync() {
                return self.lose_sync(window, at, base, at_end);
            }
            let (packet, _) = ahead.split_first_chunk().expect("longer than a packet");
            self.content.feed(header, packet);
            header = next;
            at += stride;
        }
        self.follow_to_end(window, at, at_end)
    }

    /// Accepts the file's last packet, which has no next one.
    fn follow_to_end(&mut self, window: &[u8], at: usize, at_end: bool) -> ScanStep {
        if !at_end {
            return ScanStep::Wait(at);
        }
        let mut rest = &window[at..];
        if let Some((packet, after)) = rest.split_first_chunk() {
            self.content.feed(TsHeader::read(packet), packet);
            rest = after;
        }
        self.tail_bytes = rest.len() as u64;
        self.close_extent();
        self.state = ScanState::Ended;
        ScanStep::Wait(window.len())
    }

    /// Handles a packet at `at` without a sync byte after it.
    fn lose_sync(&mut self, window: &[u8], at: usize, base: u64, at_end: bool) -> ScanStep {
        let end = at + TS_PACKET_BYTES;
        if !at_end && window.len() < end + LOOKAHEAD_BYTES {
            return ScanStep::Wait(at);
        }
        let start = base + at as u64;
        match sync::search(window, at + 1..end, self.strides(), at_end) {
            SyncSearch::Found { at, stride } => {
                self.close_extent();
                self.lock(base + at as u64, stride, start);
                ScanStep::To(at)
            }
            SyncSearch::Unresolved { .. } | SyncSearch::Absent => {
                let (packet, _) = window[at..].split_first_chunk().expect("a packet is there");
                self.content.feed(TsHeader::read(packet), packet);
                self.close_extent();
                self.state = ScanState::Searching { since: start + TS_PACKET_BYTES as u64 };
                ScanStep::To(end)
            }
        }
    }

    /// Searches for packets from `at` on.
    fn search(
        &mut self,
        window: &[u8],
        at: usize,
        base: u64,
        since: u64,
        at_end: bool,
    ) -> ScanStep {
        let mut end = window.len();
        if self.stride == 0 {
            let left = SEARCH_BYTES_MAX.saturating_sub(base);
            end = end.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        match sync::search(window, at..end, self.strides(), at_end) {
            SyncSearch::Found { at, stride } => {
                self.lock(base + at as u64, stride, since);
                ScanStep::To(at)
            }
            SyncSearch::Unresolved { at } => ScanStep::Wait(at),
            SyncSearch::Absent if self.stride == 0 && base + end as u64 >= SEARCH_BYTES_MAX => {
                self.refuse(Refusal::NotTransportStream { searched_bytes: SEARCH_BYTES_MAX });
                ScanStep::Wait(window.len())
            }
            SyncSearch::Absent => {
                if at_end {
                    self.record_loss(since, base + end as u64 - since);
                    self.state = ScanState::Ended;
                }
                ScanStep::Wait(end)
            }
        }
    }

    /// Returns the packet distances to search for.
    fn strides(&self) -> &'static [usize] {
        match STRIDES.iter().position(|&stride| stride == self.stride) {
            Some(at) if self.content.packets() >= STRIDE_TRUST_PACKETS => &STRIDES[at..=at],
            _ => &STRIDES,
        }
    }

    /// Begins an extent at `offset`; the bytes from `since` to there belong to no packet.
    fn lock(&mut self, offset: u64, stride: usize, mut since: u64) {
        if !matches!(stride, TS_PACKET_BYTES | 192) {
            return self.refuse(Refusal::PacketBytes { found: stride as u64 });
        }
        let is_first = self.stride == 0;
        if !is_first && self.stride != stride {
            *self = Self { fed: self.fed, ..Self::new() };
            since = 0;
        }
        self.stride = stride;
        let arrival_bytes = if stride == TS_PACKET_BYTES { 0 } else { ARRIVAL_BYTES as u64 };
        let lost = (offset - since).saturating_sub(arrival_bytes);
        if !is_first || lost > 0 {
            self.record_loss(since, lost);
        }
        if self.extents.len() == EXTENTS_MAX {
            let limit = EXTENTS_MAX as u64;
            return self.refuse(Refusal::TooDamaged { damage: Damage::SyncLosses, limit });
        }
        self.packets_before = self.content.packets();
        self.extents.push((offset, 0));
        self.state = ScanState::InStep;
    }

    fn refuse(&mut self, refusal: Refusal) {
        *self = Self { fed: self.fed, state: ScanState::Refused(refusal), ..Self::new() };
    }

    fn record_loss(&mut self, offset: u64, bytes: u64) {
        self.losses_seen += 1;
        self.lost_bytes += bytes;
        if self.losses.len() < LOSSES_MAX {
            self.losses.push(SyncLoss { offset, bytes });
        }
    }

    /// Stores the number of packets of the last extent; removes an extent without packets.
    fn close_extent(&mut self) {
        let packets = self.content.packets() - self.packets_before;
        match self.extents.last_mut() {
            Some((_, count)) if packets > 0 => *count = packets,
            _ => {
                self.extents.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scanner_without_a_file_is_small() {
        let content = size_of::<Scanner>() + super::super::PIDS;
        assert!(content < 20 * 1024, "{content}");
    }
}
