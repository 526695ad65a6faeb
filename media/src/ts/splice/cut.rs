// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the PES packets that a cut would truncate.
//!
//! A decoder treats a truncated picture as damaged, and some players stop there. If playback leaves
//! a file in the middle, each of its streams must therefore end with its last whole PES packet. The
//! caller passes in the packets around the cut and then ends the streams in time
//! ([`super::Splicer::end_stream`]).
//!
//! Examines the header of each packet passed in. Bounded: an entry for each PID.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.3 (payload_unit_start_indicator).
//! Does not read files or PES lengths: a PES packet ends where the next one begins.

use std::collections::BTreeMap;

use crate::TS_PACKET_BYTES;
use crate::ts::TsHeader;

/// The PES packets that are incomplete at a position of a file.
#[derive(Debug, Default)]
pub struct OpenUnits {
    by_pid: BTreeMap<u16, LastUnit>,
}

#[derive(Debug)]
struct LastUnit {
    /// Number of its first packet; none if that was not passed in.
    start: Option<u64>,
    /// True if it continues after the cut; none until the next packet of its PID.
    continues: Option<bool>,
}

impl OpenUnits {
    /// Consumes a packet before the cut, with its number.
    pub fn show_before(&mut self, packet: &[u8; TS_PACKET_BYTES], number: u64) {
        let Some((pid, starts)) = seen(packet) else { return };
        let unit = self.by_pid.entry(pid).or_insert(LastUnit { start: None, continues: None });
        if starts {
            unit.start = Some(number);
        }
    }

    /// Consumes a packet after the cut. Returns true if no more are needed.
    pub fn show_behind(&mut self, packet: &[u8; TS_PACKET_BYTES]) -> bool {
        if let Some((pid, starts)) = seen(packet)
            && let Some(unit) = self.by_pid.get_mut(&pid)
        {
            unit.continues.get_or_insert(!starts);
        }
        self.by_pid.values().all(|unit| unit.continues.is_some())
    }

    /// Returns the first packets of the PES packets that continue after the cut, by number, with
    /// their PIDs, in order.
    pub fn finish(self) -> Vec<(u64, u16)> {
        let open = |(pid, unit): (u16, LastUnit)| {
            unit.start.filter(|_| unit.continues == Some(true)).map(|start| (start, pid))
        };
        let mut starts: Vec<_> = self.by_pid.into_iter().filter_map(open).collect();
        starts.sort_unstable();
        starts
    }
}

/// Returns the PID of a packet with payload, and true if a PES packet begins in it.
fn seen(packet: &[u8; TS_PACKET_BYTES]) -> Option<(u16, bool)> {
    let header = TsHeader::read(packet);
    let is_usable = header.is_sync() && !header.is_damaged() && header.has_payload();
    is_usable.then(|| (header.pid(), header.starts_unit()))
}
