// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks MPEG-TS segments: sync bytes, continuity counters across segments, a PAT in each.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.2 (packets), §2.4.3.3 (continuity_counter), §2.4.3.5
//! (discontinuity_indicator); RFC 8216 §3.2.
//! Does not read PES packets, clocks or sections.

use super::segment_check::FoundFaults;

/// Checks of one rendition's transport stream.
pub(super) struct TsCheck {
    /// The last counter of each PID, or [`UNKNOWN`], with the flag [`REPEATED`].
    counters: Box<[u8]>,
    packet: [u8; PACKET_BYTES],
    filled: usize,
    /// Bytes of the segment before `packet`.
    offset: u64,
    has_pat: bool,
    is_lost: bool,
}

impl TsCheck {
    pub(super) fn new() -> TsCheck {
        TsCheck {
            counters: vec![UNKNOWN; PIDS].into(),
            packet: [0; PACKET_BYTES],
            filled: 0,
            offset: 0,
            has_pat: false,
            is_lost: false,
        }
    }

    /// Begins a segment; a discontinuity resets the counters. A segment with an init section has
    /// its PAT there.
    pub(super) fn begin(&mut self, is_discontinuity: bool, has_init: bool) {
        if is_discontinuity {
            self.counters.fill(UNKNOWN);
        }
        (self.filled, self.offset, self.has_pat, self.is_lost) = (0, 0, has_init, false);
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8], faults: &mut FoundFaults) {
        while !bytes.is_empty() && !self.is_lost {
            if self.filled == 0 && bytes.len() >= PACKET_BYTES {
                let (packet, rest) = bytes.split_at(PACKET_BYTES);
                self.packet(packet, faults);
                bytes = rest;
                continue;
            }
            let count = bytes.len().min(PACKET_BYTES - self.filled);
            self.packet[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            bytes = &bytes[count..];
            if self.filled == PACKET_BYTES {
                self.filled = 0;
                let packet = self.packet;
                self.packet(&packet, faults);
            }
        }
    }

    pub(super) fn end(&mut self, faults: &mut FoundFaults) {
        if self.filled > 0 {
            let (at, left) = (self.offset, self.filled);
            faults.add(at, || format!("{left} bytes at the end are no whole TS packet"));
        }
        if !self.has_pat && !self.is_lost && self.offset > 0 {
            faults.add(0, || "no PAT in the segment (RFC 8216 §3.2)".to_owned());
        }
    }

    fn packet(&mut self, packet: &[u8], faults: &mut FoundFaults) {
        let at = self.offset;
        self.offset += PACKET_BYTES as u64;
        if packet[0] != SYNC {
            self.is_lost = true;
            return faults.add(at, || format!("sync byte 0x{:02x}, not 0x47", packet[0]));
        }
        let pid = usize::from(packet[1] & 0x1f) << 8 | usize::from(packet[2]);
        if packet[1] & 0x80 != 0 {
            faults.add(at, || format!("PID {pid}: transport_error_indicator is set"));
        }
        self.has_pat |= pid == 0;
        if pid == NULL_PID {
            return;
        }
        let has_payload = packet[3] & 0x10 != 0;
        let counter = packet[3] & 0x0f;
        let has_field = packet[3] & 0x20 != 0 && packet[4] > 0;
        let before = self.counters[pid];
        if (has_field && packet[5] & 0x80 != 0) || before == UNKNOWN {
            self.counters[pid] = counter;
            return;
        }
        let last = before & 0x0f;
        let is_next = counter == (last + 1) & 0x0f;
        let is_repeated = counter == last && before & REPEATED == 0;
        match has_payload {
            // A packet without payload does not increment the counter.
            false if counter == last => {}
            true if is_next => self.counters[pid] = counter,
            true if is_repeated => self.counters[pid] = counter | REPEATED,
            _ => {
                faults.add(at, || format!("PID {pid}: continuity counter {counter} after {last}"));
                self.counters[pid] = counter;
            }
        }
    }
}

pub(super) const SYNC: u8 = 0x47;
const PACKET_BYTES: usize = 188;
const PIDS: usize = 1 << 13;
const NULL_PID: usize = PIDS - 1;
/// No packet of the PID was received.
const UNKNOWN: u8 = 0xff;
/// The last packet was received twice.
const REPEATED: u8 = 0x10;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn packet(pid: u16, counter: u8) -> Vec<u8> {
        let mut packet = vec![SYNC, (pid >> 8) as u8, pid as u8, 0x10 | counter & 0x0f];
        packet.resize(PACKET_BYTES, 0xaa);
        packet
    }

    /// Faults of segments that are fed in pieces of this size.
    fn check(segments: &[(Vec<u8>, bool)], piece: usize) -> Vec<(u64, String)> {
        let (mut check, mut all) = (TsCheck::new(), Vec::new());
        for (bytes, is_discontinuity) in segments {
            let mut faults = FoundFaults::default();
            check.begin(*is_discontinuity, false);
            bytes.chunks(piece).for_each(|piece| check.feed(piece, &mut faults));
            check.end(&mut faults);
            all.extend(faults.listed);
        }
        all
    }

    fn segment(pat: u8, counters: &[u8]) -> Vec<u8> {
        let mut bytes = packet(0, pat);
        counters.iter().for_each(|counter| bytes.extend(packet(256, *counter)));
        bytes
    }

    #[test]
    fn counters_go_on_over_segments_and_begin_anew_at_a_discontinuity() {
        let good = [(segment(0, &[14, 15, 15, 0]), false), (segment(1, &[1, 2]), false)];
        let anew = [good[0].clone(), (segment(7, &[9]), true)];
        for piece in [1, 7, 188, 189, 10_000] {
            assert_eq!(check(&good, piece), []);
            assert_eq!(check(&anew, piece), []);
        }
        let gap = [good[0].clone(), (segment(1, &[2]), false)];
        let found = "PID 256: continuity counter 2 after 0".to_owned();
        assert_eq!(check(&gap, 100), [(188, found)]);
        let thrice = [(segment(0, &[5, 5, 5]), false)];
        assert_eq!(check(&thrice, 188)[0].0, 3 * 188);
    }

    #[test]
    fn fields_of_the_header_are_obeyed() {
        let mut jump = packet(256, 9);
        jump[3] = 0x30 | 9;
        (jump[4], jump[5]) = (1, 0x80);
        let mut still = packet(256, 9);
        still[3] = 0x20 | 9;
        (still[4], still[5]) = (183, 0);
        let null = [packet(0x1fff, 3), packet(0x1fff, 9)].concat();
        let bytes = [segment(0, &[1]), jump, still, null, packet(256, 10)].concat();
        assert_eq!(check(&[(bytes, false)], 188), []);
        let mut broken = segment(0, &[1]);
        broken[189] |= 0x80;
        assert!(check(&[(broken, false)], 188)[0].1.contains("transport_error_indicator"));
    }

    #[test]
    fn lost_sync_and_cut_packets_are_told_once_with_their_place() {
        let mut bytes = segment(0, &[1, 2, 3]);
        bytes[2 * 188] = 0;
        bytes[3 * 188] = 0;
        let found = "sync byte 0x00, not 0x47".to_owned();
        assert_eq!(check(&[(bytes, false)], 50), [(376, found)]);
        let cut = segment(0, &[1])[..200].to_vec();
        assert_eq!(check(&[(cut, false)], 188)[0].0, 188);
        let no_pat = check(&[(packet(256, 0), false)], 188);
        assert!(no_pat[0].1.starts_with("no PAT"), "{no_pat:?}");
        let (mut check, mut faults) = (TsCheck::new(), FoundFaults::default());
        check.begin(false, true);
        check.feed(&packet(256, 0), &mut faults);
        check.end(&mut faults);
        assert_eq!(faults.count, 0, "the init section has it");
    }
}
