// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds packets of sources on probation (RFC 3550 A.1): the first of a new source, before its
//! second has come and while another may still be heard.
//!
//! Bounded in bytes, and to three quarters for one sender; what finds no room is gone and counted.
//! It is empty while one source sends, and costs one copy a packet of another.
//!
//! Does not do: decide ([`wire::sources`] does).

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

/// Who sends a packet: its SSRC, none of a bare transport stream, and its address.
pub(crate) type Identity = (Option<u32>, SocketAddr);

/// The packets that wait.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: Vec<u8>,
    waiting: Vec<Waiting>,
    /// An address that has used its share: its packets need no count.
    full_for: Option<SocketAddr>,
    compacted_at: Option<Duration>,
}

#[derive(Debug, Clone)]
struct Waiting {
    who: Identity,
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
    pub(crate) fn keep(&mut self, who: Identity, packet: Waited<'_>) -> bool {
        let start = self.bytes.len();
        let payload = start..start + packet.payload.len();
        if payload.end > ROOM_BYTES || self.waiting.len() == ROOM_PACKETS {
            return false;
        }
        // Looked at in the last quarter alone.
        if (payload.end > OF_ONE_BYTES || self.waiting.len() >= OF_ONE_PACKETS)
            && (self.full_for == Some(who.1) || self.is_share_used(who.1))
        {
            self.full_for = Some(who.1);
            return false;
        }
        self.bytes.extend_from_slice(packet.payload);
        self.waiting.push(Waiting { who, sequence: packet.sequence, payload, came: packet.came });
        true
    }

    fn is_share_used(&self, from: SocketAddr) -> bool {
        let own = self.waiting.iter().filter(|waiting| waiting.who.1 == from);
        let (packets, bytes) = own
            .fold((0, 0), |(packets, bytes), waiting| (packets + 1, bytes + waiting.payload.len()));
        packets >= OF_ONE_PACKETS || bytes >= OF_ONE_BYTES
    }

    /// Those of one source, as they came.
    pub(crate) fn of(&self, who: Identity) -> impl Iterator<Item = Waited<'_>> {
        let of_source = self.waiting.iter().filter(move |waiting| waiting.who == who);
        of_source.map(|waiting| Waited {
            sequence: waiting.sequence,
            payload: &self.bytes[waiting.payload.clone()],
            came: waiting.came,
        })
    }

    /// Sends away those that `stays` is false for; `gone` is told of each.
    pub(crate) fn retain(
        &mut self,
        stays: impl Fn(Identity) -> bool,
        mut gone: impl FnMut(Identity),
    ) {
        let mut end = 0;
        self.full_for = None;
        let Room { bytes, waiting, .. } = self;
        waiting.retain_mut(|one| {
            if !stays(one.who) {
                gone(one.who);
                return false;
            }
            let length = one.payload.len();
            bytes.copy_within(one.payload.clone(), end);
            one.payload = end..end + length;
            end += length;
            true
        });
        bytes.truncate(end);
    }

    /// Whether it is time to look for packets whose source has been forgotten: a full room is
    /// looked through now and then, not for each packet of a flood.
    pub(crate) fn may_compact(&mut self, now: Duration) -> bool {
        let is_due = self.compacted_at.is_none_or(|at| now.saturating_sub(at) >= COMPACT_EVERY);
        if is_due {
            self.compacted_at = Some(now);
        }
        is_due
    }

    /// When the oldest came.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.waiting.first().map(|waiting| waiting.came)
    }
}

/// As much as comes of 45 Mb/s while the source before is waited for.
const ROOM_BYTES: usize = 2 << 20;
const ROOM_PACKETS: usize = 4096;
const COMPACT_EVERY: Duration = Duration::from_millis(100);
const OF_ONE_BYTES: usize = ROOM_BYTES / 4 * 3;
const OF_ONE_PACKETS: usize = ROOM_PACKETS / 4 * 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn who(ssrc: u32, port: u16) -> Identity {
        (Some(ssrc), SocketAddr::from(([10, 0, 0, 1], port)))
    }

    fn packet(sequence: u16, payload: &[u8]) -> Waited<'_> {
        Waited { sequence, payload, came: Duration::ZERO }
    }

    #[test]
    fn packets_wait_by_source_and_no_more_than_fit() {
        let mut room = Room::default();
        let (one, two) = (who(1, 5), who(1, 6));
        assert!(room.keep(one, packet(5, b"a")) && room.keep(two, packet(9, b"bc")));
        assert!(room.keep(one, packet(6, b"d")));
        let of = |room: &Room, who| -> Vec<(u16, Vec<u8>)> {
            room.of(who).map(|waited| (waited.sequence, waited.payload.to_vec())).collect()
        };
        assert_eq!(of(&room, one), [(5, b"a".to_vec()), (6, b"d".to_vec())]);
        let mut gone = Vec::new();
        room.retain(|who| who == two, |who| gone.push(who));
        assert_eq!((gone, of(&room, one).len()), (vec![one, one], 0));
        assert_eq!(of(&room, two), [(9, b"bc".to_vec())]);
        room.retain(|_| false, |_| {});
        assert_eq!((room.oldest(), room.of(two).count()), (None, 0));
    }

    #[test]
    fn one_sender_leaves_room_for_another() {
        let mut room = Room::default();
        let large = vec![0; ROOM_BYTES / 2 + 1];
        assert!(room.keep(who(1, 5), packet(0, &large)));
        assert!(!room.keep(who(1, 5), packet(1, &large)), "more than there is");
        let mut kept = 0;
        while room.keep(who(2 + kept, 5), packet(1, &[0; 1000])) {
            kept += 1;
        }
        assert!((500..600).contains(&kept), "{kept}");
        assert!(room.keep(who(9, 6), packet(1, &[0; 1000])), "another address");
    }
}
