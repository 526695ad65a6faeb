// SPDX-License-Identifier: MIT OR Apache-2.0
//! Media in front of a play of a transport stream that begins where parameter sets are lacking.
//!
//! The control side reads it from the file ([`media::entry_lead`]) before the play begins; the
//! pacer sends it with the first burst, in as many packets as it fills, and goes on in the plan
//! behind it. Sequence numbers behind it move by the difference ([`StreamLead::room`]), so there is
//! no gap. What it adds to the rate is made up for: the next play begins later by the time for
//! which it lasts. Costs one call and one copy a packet, at such a start alone.
//!
//! Sources: RFC 2250 §2 (a packet has whole packets of transport stream); RFC 2326 §10.12 (frames).
//! Does not send it by a path: it lies in no file.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use media::{EntryLead, TS_PACKET_BYTES, TS_PACKETS_PER_PAYLOAD, entry_lead};
use paths::SendStats;
use wire::rtsp::interleaved_header;

use super::media_target::MediaTarget;
use super::{PacedStream, Tools};
use crate::library::asset::Source;
use crate::play::{Sent, Shift};

/// Bytes of transport stream in a full packet.
const PAYLOAD_BYTES: usize = TS_PACKETS_PER_PAYLOAD as usize * TS_PACKET_BYTES;

/// Packets to send in place of the first of a play.
#[derive(Debug, Clone)]
pub(crate) struct StreamLead {
    /// Packet of the file or channel that the play begins with.
    pub(crate) from: u64,
    /// Its first packet that is sent as it is.
    pub(super) next: u64,
    /// Packets of transport stream.
    content: Arc<[u8]>,
    /// Packets that are sent.
    sent: u16,
}

impl StreamLead {
    /// Reads what play from a packet of the file or channel on begins with; `None` where nothing
    /// is lacking. Reads and waits on another thread where something is.
    pub(crate) async fn read(source: &Arc<Source>, from: u64) -> Option<StreamLead> {
        let source = source.holding(from);
        let first = source.asset.first_packet();
        let packet = from.checked_sub(first)?;
        if !source.asset.plan.lacks_parameters(packet) {
            return None;
        }
        let read = move || (entry_lead(&source.asset.plan, packet, source.media.file()), source);
        let (read, source) = tokio::task::spawn_blocking(read).await.ok()?;
        let name = &source.asset.name;
        // The play itself says more of a file that cannot be read.
        let lead = read.inspect_err(|error| tracing::warn!("{name}: {error}")).ok()?;
        lead.map(|EntryLead { packets, next }| StreamLead {
            from,
            next: first + next,
            content: packets.into(),
            sent: 0,
        })
    }

    /// Creates one of these packets of transport stream.
    #[cfg(test)]
    pub(super) fn of(packets: Range<u64>, content: &[u8]) -> StreamLead {
        StreamLead { from: packets.start, next: packets.end, content: content.into(), sent: 0 }
    }

    /// True when a play of these packets begins with it.
    pub(crate) fn is_of(&self, packets: &Range<u64>) -> bool {
        self.from == packets.start && self.next < packets.end
    }

    fn packets(&self) -> u16 {
        self.content.len().div_ceil(PAYLOAD_BYTES) as u16
    }

    /// Returns how far the sequence numbers behind it move.
    pub(crate) fn room(&self) -> u16 {
        self.packets().wrapping_sub(self.next.wrapping_sub(self.from) as u16)
    }

    /// Returns how far the numbers behind it are ahead of the next that is sent, by its position.
    pub(super) fn ahead(&self) -> u16 {
        self.room().wrapping_sub(self.sent)
    }
}

impl Shift {
    /// Returns the shift of the packets behind a lead.
    pub(crate) fn behind(self, lead: Option<&StreamLead>) -> Shift {
        let room = lead.map_or(0, StreamLead::room);
        Shift { sequence: self.sequence.wrapping_add(room), ..self }
    }

    /// Returns the shift of the next packet where that of the packets behind it is so far ahead.
    pub(crate) fn before(self, ahead: u16) -> Shift {
        Shift { sequence: self.sequence.wrapping_sub(ahead), ..self }
    }
}

impl PacedStream {
    /// Sends what is left of the lead; false while the socket has no room for it.
    pub(super) fn send_lead(&mut self, tools: &mut Tools) -> bool {
        let Some(mut lead) = self.lead.take() else { return true };
        let plan = &self.source.asset.plan;
        let from = lead.from.saturating_sub(self.source.asset.first_packet());
        let timestamp = plan.timestamp(plan.ticks(from)).wrapping_add(self.shift.timestamp);
        let first = self.next.wrapping_add(self.shift.sequence.into());
        let first = first.wrapping_sub(lead.packets().into());
        let mut sent = Sent { path: "lead", ..Sent::default() };
        let payloads = lead.content.chunks(PAYLOAD_BYTES).enumerate();
        for (number, payload) in payloads.skip(lead.sent.into()) {
            let header = plan.header_at(first.wrapping_add(number as u64), timestamp);
            let mut stats = SendStats::default();
            if !self.to.send_packet(&[&header, payload].concat(), &mut stats) {
                break;
            }
            tools.counters().record(&stats, Duration::ZERO, 1);
            lead.sent += 1;
            self.lead_lasts += self.speed.time(1.0 / self.packets_per_s.max(1) as f64);
            sent.add(1, payload.len() as u64, Duration::ZERO);
        }
        let is_sent = lead.sent == lead.packets();
        if !is_sent {
            sent.ahead = lead.ahead();
            self.lead = Some(lead);
        }
        self.link.count(self.position(), sent);
        is_sent
    }
}

impl MediaTarget {
    /// Sends one packet that lies in memory; false when the socket has no room for it.
    fn send_packet(&mut self, packet: &[u8], stats: &mut SendStats) -> bool {
        match self {
            // One that the network refuses is lost like any other; the path's own sends tell why.
            MediaTarget::Datagrams(to) => {
                stats.calls += 1;
                match to.socket().send(packet) {
                    Ok(sent) => {
                        stats.packets += 1;
                        stats.bytes += sent as u64;
                        stats.copied_bytes += sent as u64;
                        true
                    }
                    Err(error) => error.kind() != ErrorKind::WouldBlock,
                }
            }
            MediaTarget::Stream(to) => {
                let bytes = packet.len() as u16;
                let frame = [&interleaved_header(to.channel, bytes)[..], packet].concat();
                let sent = to.output.lock().write(&frame, stats);
                to.is_blocked |= sent.is_err();
                stats.packets += u64::from(sent.is_ok());
                sent.is_ok()
            }
        }
    }
}
