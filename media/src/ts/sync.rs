// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds packets in a byte sequence: the first sync byte of a run, and the packet distance.
//!
//! A single sync byte proves nothing, because payloads contain many 0x47 bytes. Five at one
//! distance are accepted as proof (ISO/IEC 13818-1 annex G.1 recommends at least that many for a
//! decoder); by chance this happens once in 10¹¹ bytes. Near the end of a file there may be fewer;
//! then every sync byte up to the end must be present.
//!
//! The result depends only on the bytes, never on their division into buffers: if the available
//! bytes do not suffice, the result asks for more.

use wire::mp2t::TS_SYNC_BYTE;

use super::{HEADER_BYTES, TsHeader};
use crate::TS_PACKET_BYTES;

/// Consecutive packets that prove a distance.
const LOCK_PACKETS: usize = 5;

/// Consecutive packets that prove it if the file ends after them within a packet.
const LOCK_PACKETS_AT_END: usize = 3;

/// Consecutive packets that prove it if the file ends exactly with the last of them.
const LOCK_PACKETS_TO_END: usize = 2;

/// Packet distances: plain; with a 4-byte arrival time in front (Blu-ray M2TS); with 16 bytes of
/// parity behind.
pub(super) const STRIDES: [usize; 3] = [TS_PACKET_BYTES, 192, 204];

/// Bytes of the arrival time in front of a 192-byte packet.
pub(super) const ARRIVAL_BYTES: usize = 4;

/// Bytes that [`search`] may need behind a candidate to decide.
pub(super) const LOOKAHEAD_BYTES: usize =
    (LOCK_PACKETS - 1) * STRIDES[2] + ARRIVAL_BYTES + HEADER_BYTES;

/// Result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SyncSearch {
    /// A run of packets starts at `at`.
    Found { at: usize, stride: usize },
    /// A run may start at `at`; more bytes are needed to decide.
    Unresolved { at: usize },
    /// There is no run.
    Absent,
}

/// Searches `window` for a run of packets that starts at one of `candidates`. `at_end` is true if
/// the file ends with the window.
pub(super) fn search(
    window: &[u8],
    candidates: std::ops::Range<usize>,
    strides: &[usize],
    at_end: bool,
) -> SyncSearch {
    let mut from = candidates.start;
    while from < candidates.end {
        let Some(step) = window[from..candidates.end].iter().position(|&byte| byte == TS_SYNC_BYTE)
        else {
            return SyncSearch::Absent;
        };
        let at = from + step;
        for &stride in strides {
            match fit(window, at, stride, at_end) {
                RowFit::No => {}
                RowFit::Unknown => return SyncSearch::Unresolved { at },
                RowFit::Yes if stride != 192 => return SyncSearch::Found { at, stride },
                // The first byte of the arrival time is 0x47 for 0.6 s at a time. If the bytes four
                // further on are sync bytes too, those are the real ones.
                RowFit::Yes => match fit(window, at + ARRIVAL_BYTES, stride, at_end) {
                    RowFit::Yes => return SyncSearch::Found { at: at + ARRIVAL_BYTES, stride },
                    RowFit::Unknown => return SyncSearch::Unresolved { at },
                    RowFit::No => return SyncSearch::Found { at, stride },
                },
            }
        }
        from = at + 1;
    }
    SyncSearch::Absent
}

enum RowFit {
    Yes,
    No,
    Unknown,
}

/// Checks for a run of packets that starts at `at`.
fn fit(window: &[u8], at: usize, stride: usize, at_end: bool) -> RowFit {
    for seen in 0..LOCK_PACKETS {
        let position = at + seen * stride;
        match window.get(position..position + HEADER_BYTES) {
            Some(bytes) if TsHeader::read(bytes).is_sync() => {}
            Some(_) => return RowFit::No,
            None if !at_end => return RowFit::Unknown,
            None => {
                let ends_with_packet =
                    seen > 0 && position - stride + TS_PACKET_BYTES == window.len();
                let enough =
                    if ends_with_packet { LOCK_PACKETS_TO_END } else { LOCK_PACKETS_AT_END };
                return if seen >= enough { RowFit::Yes } else { RowFit::No };
            }
        }
    }
    RowFit::Yes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(lead: usize, stride: usize, packets: usize) -> Vec<u8> {
        let mut bytes = vec![0; lead + stride * packets];
        for start in (lead..bytes.len()).step_by(stride) {
            bytes[start..start + 4].copy_from_slice(&[0x47, 0x01, 0x00, 0x10]);
        }
        bytes
    }

    fn search_all(window: &[u8], at_end: bool) -> SyncSearch {
        search(window, 0..window.len(), &STRIDES, at_end)
    }

    #[test]
    fn every_distance_is_found_behind_any_lead() {
        for stride in STRIDES {
            for lead in [0, 1, 4, 100, 187, 188, 191, 1000] {
                let found = search_all(&row(lead, stride, 6), false);
                assert_eq!(found, SyncSearch::Found { at: lead, stride }, "{lead} {stride}");
            }
        }
    }

    #[test]
    fn too_few_packets_are_unresolved_before_the_end_of_the_file() {
        let bytes = row(3, 188, 5);
        let short = &bytes[..3 + 4 * 188 + 3];
        assert_eq!(search_all(short, false), SyncSearch::Unresolved { at: 3 });
        assert_eq!(search_all(short, true), SyncSearch::Found { at: 3, stride: 188 });
    }

    #[test]
    fn at_the_end_two_packets_count_only_when_the_file_ends_with_them() {
        let bytes = row(0, 188, 2);
        assert_eq!(search_all(&bytes, true), SyncSearch::Found { at: 0, stride: 188 });
        assert_eq!(search_all(&bytes[..375], true), SyncSearch::Absent);
        assert_eq!(search_all(&bytes[..188], true), SyncSearch::Absent);
        assert_eq!(search_all(&[], true), SyncSearch::Absent);
    }

    #[test]
    fn arrival_times_that_look_like_sync_bytes_are_passed_over() {
        let mut bytes = row(4, 192, 8);
        for start in (0..bytes.len() - 8).step_by(192) {
            bytes[start..start + 4].copy_from_slice(&[0x47, 0x12, 0x34, 0x56]);
        }
        assert_eq!(search_all(&bytes, false), SyncSearch::Found { at: 4, stride: 192 });
    }
}
