// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the PES packets that a cut leaves without their end.
//!
//! A decoder takes half a picture for a damaged one; some players stop at it. So where a file is
//! left in the middle, each of its streams ends with its last whole PES packet: the caller shows
//! what lies around the cut, and then ends the streams in time ([`super::Splicer::end_stream`]).
//!
//! Costs a look at the header of each packet shown. Bounded: an entry for each PID.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.3 (payload_unit_start_indicator).
//! Does not read files, and does not know lengths: a PES packet ends where the next one begins.

use std::collections::BTreeMap;

use crate::TS_PACKET_BYTES;
use crate::ts::TsHeader;

/// The PES packets that are open at a place of a file.
#[derive(Debug, Default)]
pub struct OpenUnits {
    by_pid: BTreeMap<u16, LastUnit>,
}

#[derive(Debug)]
struct LastUnit {
    /// Number of the packet with which it begins; none where that was not shown.
    start: Option<u64>,
    /// True when it goes on behind the cut; none until the next packet of its PID.
    goes_on: Option<bool>,
}

impl OpenUnits {
    /// Shows a packet before the cut, with its number.
    pub fn show_before(&mut self, packet: &[u8; TS_PACKET_BYTES], number: u64) {
        let Some((pid, starts)) = seen(packet) else { return };
        let unit = self.by_pid.entry(pid).or_insert(LastUnit { start: None, goes_on: None });
        if starts {
            unit.start = Some(number);
        }
    }

    /// Shows a packet behind the cut; true when no more is needed.
    pub fn show_behind(&mut self, packet: &[u8; TS_PACKET_BYTES]) -> bool {
        if let Some((pid, starts)) = seen(packet)
            && let Some(unit) = self.by_pid.get_mut(&pid)
        {
            unit.goes_on.get_or_insert(!starts);
        }
        self.by_pid.values().all(|unit| unit.goes_on.is_some())
    }

    /// Returns the packets with which PES packets begin that go on behind the cut, by their
    /// numbers, and their PIDs; in order.
    pub fn finish(self) -> Vec<(u64, u16)> {
        let open = |(pid, unit): (u16, LastUnit)| {
            unit.start.filter(|_| unit.goes_on == Some(true)).map(|start| (start, pid))
        };
        let mut starts: Vec<_> = self.by_pid.into_iter().filter_map(open).collect();
        starts.sort_unstable();
        starts
    }
}

/// Returns the PID of a packet with payload, and if a PES packet begins in it.
fn seen(packet: &[u8; TS_PACKET_BYTES]) -> Option<(u16, bool)> {
    let header = TsHeader::read(packet);
    let is_usable = header.is_sync() && !header.is_damaged() && header.has_payload();
    is_usable.then(|| (header.pid(), header.starts_unit()))
}
