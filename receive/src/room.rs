// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where packets wait whose source may yet be followed: the first of a new source, before its
//! second has come and while another may still be heard.
//!
//! Bounded in bytes; what finds no room is gone and counted. It is empty while one source sends,
//! and costs one copy a packet of another.
//!
//! Does not do: decide ([`wire::sources`] does).

use std::ops::Range;
use std::time::Duration;

/// The packets that wait.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: Vec<u8>,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    ssrc: u32,
    sequence: u16,
    payload: Range<usize>,
    came: Duration,
}

/// A packet that has waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waited<'a> {
    pub(crate) sequence: u16,
    pub(crate) payload: &'a [u8],
    pub(crate) came: Duration,
}

impl Room {
    /// Has a packet wait; false if there is no room.
    pub(crate) fn keep(&mut self, ssrc: u32, packet: Waited<'_>) -> bool {
        let start = self.bytes.len();
        if start + packet.payload.len() > ROOM_BYTES || self.waiting.len() == ROOM_PACKETS {
            return false;
        }
        self.bytes.extend_from_slice(packet.payload);
        let payload = start..self.bytes.len();
        self.waiting.push(Waiting { ssrc, sequence: packet.sequence, payload, came: packet.came });
        true
    }

    /// Those of one source, as they came.
    pub(crate) fn of(&self, ssrc: u32) -> impl Iterator<Item = Waited<'_>> {
        let of_source = self.waiting.iter().filter(move |waiting| waiting.ssrc == ssrc);
        of_source.map(|waiting| Waited {
            sequence: waiting.sequence,
            payload: &self.bytes[waiting.payload.clone()],
            came: waiting.came,
        })
    }

    /// Sends all away; how many there were.
    pub(crate) fn clear(&mut self) -> u64 {
        let count = self.waiting.len() as u64;
        self.bytes.clear();
        self.waiting.clear();
        count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// As much as comes of 60 Mb/s while the source before is waited for.
const ROOM_BYTES: usize = 2 << 20;
const ROOM_PACKETS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_wait_by_source_and_no_more_than_fit() {
        let mut room = Room::default();
        let packet = |sequence, payload| Waited { sequence, payload, came: Duration::ZERO };
        assert!(room.keep(1, packet(5, b"a")) && room.keep(2, packet(9, b"bc")));
        assert!(room.keep(1, packet(6, b"d")));
        let of_1: Vec<_> = room.of(1).map(|waited| (waited.sequence, waited.payload)).collect();
        assert_eq!(of_1, [(5, &b"a"[..]), (6, &b"d"[..])]);
        assert_eq!((room.clear(), room.is_empty(), room.of(1).count()), (3, true, 0));
        let large = vec![0; ROOM_BYTES / 2 + 1];
        assert!(room.keep(1, packet(0, &large)) && !room.keep(1, packet(1, &large)));
    }
}
