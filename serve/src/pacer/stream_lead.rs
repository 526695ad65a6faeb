// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends media before a play of a transport stream that begins where parameter sets are missing.
//!
//! The control side reads this lead from the file ([`media::entry_lead`]) before the play begins.
//! The pacer sends it with the first burst, in as many packets as it fills, and continues in the
//! plan after it. The sequence numbers after it move by the difference ([`StreamLead::room`]), so
//! there is no gap. The lead adds to the rate; in return the next play begins later by the lead's
//! duration. Costs one call and one copy a packet, at such a start only.
//!
//! Sources: RFC 2250 §2 (a packet has whole packets of transport stream); RFC 2326 §10.12 (frames).
//! Does not use a path to send it: its bytes are in no file.

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

/// Packets to send in place of the first packets of a play.
#[derive(Debug, Clone)]
pub(crate) struct StreamLead {
    /// First packet of the play, in the file or channel.
    pub(crate) from: u64,
    /// First packet of the play that is sent unchanged.
    pub(super) next: u64,
    /// Packets of transport stream.
    content: Arc<[u8]>,
    /// Packets sent so far.
    sent: u16,
}

impl StreamLead {
    /// Reads the lead of a play that begins at a packet of the file or channel; `None` if no
    /// parameter set is missing. Otherwise reads the file on a blocking thread and waits for it.
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
        // The play itself reports the details of an unreadable file.
        let lead = read.inspect_err(|error| tracing::warn!("{name}: {error}")).ok()?;
        lead.map(|EntryLead { packets, next }| StreamLead {
            from,
            next: first + next,
            content: packets.into(),
            sent: 0,
        })
    }

    /// Creates a lead from these packets of transport stream.
    #[cfg(test)]
    pub(super) fn of(packets: Range<u64>, content: &[u8]) -> StreamLead {
        StreamLead { from: packets.start, next: packets.end, content: content.into(), sent: 0 }
    }

    /// True if a play of these packets begins with the lead.
    pub(crate) fn is_of(&self, packets: &Range<u64>) -> bool {
        self.from == packets.start && self.next < packets.end
    }

    fn packets(&self) -> u16 {
        self.content.len().div_ceil(PAYLOAD_BYTES) as u16
    }

    /// Returns the distance by which the sequence numbers after it move.
    pub(crate) fn room(&self) -> u16 {
        self.packets().wrapping_sub(self.next.wrapping_sub(self.from) as u16)
    }

    /// Returns the number by which the sequence shift after the lead exceeds that of the next
    /// packet, whose position is `from` until the lead is sent.
    pub(super) fn ahead(&self) -> u16 {
        self.room().wrapping_sub(self.sent)
    }
}

impl Shift {
    /// Returns the shift of the packets after a lead.
    pub(crate) fn behind(self, lead: Option<&StreamLead>) -> Shift {
        let room = lead.map_or(0, StreamLead::room);
        Shift { sequence: self.sequence.wrapping_add(room), ..self }
    }

    /// Returns the shift of the next packet if that of the packets after it is `ahead` of it.
    pub(crate) fn before(self, ahead: u16) -> Shift {
        Shift { sequence: self.sequence.wrapping_sub(ahead), ..self }
    }
}

impl PacedStream {
    /// Sends the rest of the lead; returns false if the socket has no room for it.
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
    /// Sends one packet from memory; returns false if the socket has no room for it.
    fn send_packet(&mut self, packet: &[u8], stats: &mut SendStats) -> bool {
        match self {
            // A refused packet is lost like any other; the path's own sends report the reason.
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
