// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds packets of sources on probation (RFC 3550 A.1): the first packet of a new source until its
//! second arrives, and packets that arrive while another source may still be active.
//!
//! The buffer is bounded in bytes, and one sender may fill three quarters of it; the caller refuses
//! and counts a packet that does not fit. It is empty while only one source sends, and costs one
//! copy of each packet of another.
//!
//! Does not choose a source ([`wire::sources`] does).

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

/// Identity of a sender: its SSRC, none for a bare transport stream, and its address.
pub(crate) type Identity = (Option<u32>, SocketAddr);

/// Held packets of all sources on probation.
#[derive(Debug, Default)]
pub(crate) struct ProbationBuffer {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// An address that has used up its share, so that its packets are not counted again.
    full_for: Option<SocketAddr>,
    compacted_at: Option<Duration>,
}

#[derive(Debug, Clone)]
struct Entry {
    who: Identity,
    sequence: u16,
    payload: Range<usize>,
    arrived_at: Duration,
}

/// A held packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldPacket<'a> {
    pub(crate) sequence: u16,
    pub(crate) payload: &'a [u8],
    pub(crate) arrived_at: Duration,
}

impl ProbationBuffer {
    /// Holds a packet; returns false for one that does not fit.
    pub(crate) fn hold(&mut self, who: Identity, packet: HeldPacket<'_>) -> bool {
        let start = self.bytes.len();
        let payload = start..start + packet.payload.len();
        if payload.end > BUFFER_BYTES || self.entries.len() == BUFFER_PACKETS {
            return false;
        }
        // Shares are checked only once three quarters are full.
        if (payload.end > OF_ONE_BYTES || self.entries.len() >= OF_ONE_PACKETS)
            && (self.full_for == Some(who.1) || self.is_share_used(who.1))
        {
            self.full_for = Some(who.1);
            return false;
        }
        self.bytes.extend_from_slice(packet.payload);
        self.entries.push(Entry {
            who,
            sequence: packet.sequence,
            payload,
            arrived_at: packet.arrived_at,
        });
        true
    }

    fn is_share_used(&self, from: SocketAddr) -> bool {
        let own = self.entries.iter().filter(|entry| entry.who.1 == from);
        let (packets, bytes) =
            own.fold((0, 0), |(packets, bytes), entry| (packets + 1, bytes + entry.payload.len()));
        packets >= OF_ONE_PACKETS || bytes >= OF_ONE_BYTES
    }

    /// Packets of one source, in the order of arrival.
    pub(crate) fn of(&self, who: Identity) -> impl Iterator<Item = HeldPacket<'_>> {
        let of_source = self.entries.iter().filter(move |entry| entry.who == who);
        of_source.map(|entry| HeldPacket {
            sequence: entry.sequence,
            payload: &self.bytes[entry.payload.clone()],
            arrived_at: entry.arrived_at,
        })
    }

    /// Removes the packets for which `stays` returns false, and calls `gone` for each.
    pub(crate) fn retain(
        &mut self,
        stays: impl Fn(Identity) -> bool,
        mut gone: impl FnMut(Identity),
    ) {
        let mut end = 0;
        self.full_for = None;
        let ProbationBuffer { bytes, entries, .. } = self;
        entries.retain_mut(|one| {
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

    /// Returns true where it is time to remove packets whose source has been forgotten: a full
    /// buffer is searched ten times a second, not for each packet of a flood.
    pub(crate) fn may_compact(&mut self, now: Duration) -> bool {
        let is_due = self.compacted_at.is_none_or(|at| now.saturating_sub(at) >= COMPACT_EVERY);
        if is_due {
            self.compacted_at = Some(now);
        }
        is_due
    }

    /// Time of arrival of the oldest packet.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.entries.first().map(|entry| entry.arrived_at)
    }
}

/// Payload of 45 Mb/s during the wait for the previous source.
const BUFFER_BYTES: usize = 2 << 20;
const BUFFER_PACKETS: usize = 4096;
const COMPACT_EVERY: Duration = Duration::from_millis(100);
const OF_ONE_BYTES: usize = BUFFER_BYTES / 4 * 3;
const OF_ONE_PACKETS: usize = BUFFER_PACKETS / 4 * 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn who(ssrc: u32, port: u16) -> Identity {
        (Some(ssrc), SocketAddr::from(([10, 0, 0, 1], port)))
    }

    fn packet(sequence: u16, payload: &[u8]) -> HeldPacket<'_> {
        HeldPacket { sequence, payload, arrived_at: Duration::ZERO }
    }

    #[test]
    fn packets_are_held_by_source() {
        let mut buffer = ProbationBuffer::default();
        let (one, two) = (who(1, 5), who(1, 6));
        assert!(buffer.hold(one, packet(5, b"a")) && buffer.hold(two, packet(9, b"bc")));
        assert!(buffer.hold(one, packet(6, b"d")));
        let of = |buffer: &ProbationBuffer, who| -> Vec<(u16, Vec<u8>)> {
            buffer.of(who).map(|waited| (waited.sequence, waited.payload.to_vec())).collect()
        };
        assert_eq!(of(&buffer, one), [(5, b"a".to_vec()), (6, b"d".to_vec())]);
        let mut gone = Vec::new();
        buffer.retain(|who| who == two, |who| gone.push(who));
        assert_eq!((gone, of(&buffer, one).len()), (vec![one, one], 0));
        assert_eq!(of(&buffer, two), [(9, b"bc".to_vec())]);
        buffer.retain(|_| false, |_| {});
        assert_eq!((buffer.oldest(), buffer.of(two).count()), (None, 0));
    }

    #[test]
    fn one_sender_leaves_a_quarter_to_others() {
        let mut buffer = ProbationBuffer::default();
        let large = vec![0; BUFFER_BYTES / 2 + 1];
        assert!(buffer.hold(who(1, 5), packet(0, &large)));
        assert!(!buffer.hold(who(1, 5), packet(1, &large)), "larger than the buffer");
        let mut kept = 0;
        while buffer.hold(who(2 + kept, 5), packet(1, &[0; 1000])) {
            kept += 1;
        }
        assert!((500..600).contains(&kept), "{kept}");
        assert!(buffer.hold(who(9, 6), packet(1, &[0; 1000])), "another address");
    }
}
