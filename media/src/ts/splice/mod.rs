// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins the transport streams of several files to one continuous channel stream.
//!
//! Players stop, or lose seconds, where PIDs, counters or clocks jump. The output therefore has
//! fixed PIDs, continuous counters, one clock, and its own tables. `item` describes a file to join,
//! `playing` filters and rewrites its packets, `time_base` converts its clock, `announce` generates
//! tables, `slots` times the packets of a constant rate, `sound_length` finds the end of audio,
//! `cut` finds the last whole PES packets of a file that is left in the middle; [`super::rewrite`]
//! and [`super::pes_times`] write fields.
//!
//! Output PIDs: PAT 0, SDT 0x11, PMT 0x1000, video 0x100 to 0x10f, audio 0x110 to 0x11f, others
//! 0x120 to 0x12f. The clock is always on 0x100: in the video packets if the file has it there,
//! otherwise in packets without payload.
//!
//! Time is an argument: 27 MHz ticks of channel time, which is also the channel's clock (PCR).
//! Without a constant rate the packets appended by a call are due at the time passed to it, and
//! clock references keep the differences of the file, unless a caller makes packets leave ahead of
//! their clock ([`Splicer::run_ahead`]). With a constant rate, packet `k` is due at `k` × 188 × 8 /
//! rate, clock references are computed from that time, and null packets fill the rest. Media then
//! waits at most 250 ms, and PES packets without room in that time are dropped.
//!
//! Costs 79 ns per packet of H.264 at 2 Mb/s, including three copies of it, and 22 ns per packet at
//! a constant rate of mostly null packets (best of 20 runs of `cost_of_a_packet` in
//! `tests/splice.rs`, optimised with overflow checks, one core of an EPYC VM with other work).
//! Bounded: 32 streams, the queue of 250 ms, 10 s of slots per call.
//!
//! Sources: ISO/IEC 13818-1 §2.4.2, §2.4.3; ETSI TR 101 290 §5.2; ETSI TS 101 154 §4.1.5 (clock
//! references every 40 ms).
//! Does not follow map changes inside a file, and does not decode.

mod announce;
mod cut;
mod item;
mod playing;
mod slots;
mod sound_length;
mod time_base;

pub use cut::OpenUnits;
pub use item::SpliceItem;

use announce::Announce;
use item::{FIRST_PID, OUTPUTS};
use playing::PlayingItem;
pub use slots::SPLICE_RATES;
use slots::{DELAY_TICKS, Slots};
use time_base::difference;

use super::pes_times::{PesTimes, TIME_MODULUS};
use super::rewrite::{clock_packet, put_pcr};
use super::{PCR_MODULUS, SYNC_BYTE, TsHeader, TsPacket};
use crate::{
    SpliceRefusal, SpliceSettingsFault, TICKS_PER_SECOND, TICKS_PER_TIMESTAMP, TS_PACKET_BYTES,
};

/// Latest time: keeps sums of times within 64 bits.
const TIME_MAX: u64 = 1 << 62;

/// Largest distance of clock references: 40 ms, less two ticks of rounding.
const CLOCK_TICKS: u64 = TICKS_PER_SECOND / 25 - 2;

/// Most ticks by which packets leave ahead of their clock.
const AHEAD_TICKS_MAX: u64 = 60 * TICKS_PER_SECOND;

/// Most time filled by one call; more than that is skipped and counted.
const FILL_TICKS_MAX: u64 = 10 * TICKS_PER_SECOND;

/// Most ticks by which timestamps are moved to make room for the end of the previous file: files of
/// ffmpeg have up to 2 s between their clock and their pictures, others 0.1 s.
const ROOM_TICKS_MAX: u64 = 3 * TICKS_PER_SECOND;

/// Bytes of a name: two names and the rest of their descriptor share one length byte.
const TEXT_BYTES_MAX: usize = 120;

/// Names and identifiers of a channel's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpliceSettings {
    /// transport_stream_id of PAT and SDT.
    pub transport_stream_id: u16,
    /// original_network_id of the SDT.
    pub original_network_id: u16,
    /// Programme number, not 0.
    pub service_id: u16,
    /// Name of the service; 120 bytes at most.
    pub service_name: String,
    /// Name of its provider; 120 bytes at most.
    pub provider: String,
    /// Bits per second of all packets, null packets included; none sends only the files' packets.
    pub constant_rate: Option<u64>,
}

impl Default for SpliceSettings {
    fn default() -> Self {
        Self {
            transport_stream_id: 1,
            // The range for unregistered private networks (ETSI TS 101 162).
            original_network_id: 0xff00,
            service_id: 1,
            service_name: "channel".to_owned(),
            provider: "pagewire".to_owned(),
            constant_rate: None,
        }
    }
}

/// Packets consumed, sent and dropped so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpliceCounts {
    /// Packets pushed.
    pub pushed_packets: u64,
    /// Packets added to outputs, null packets included.
    pub sent_packets: u64,
    /// Null packets among them.
    pub null_packets: u64,
    /// Files begun.
    pub items: u64,
    /// Clock discontinuities inside files.
    pub clock_discontinuities: u64,
    /// Gaps in the continuity counters of files.
    pub input_losses: u64,
    /// Packets without a sync byte, or with the transport_error_indicator set.
    pub damaged_packets: u64,
    /// Scrambled packets of streams that were unscrambled when the file began.
    pub scrambled_packets: u64,
    /// Repeated packets that were dropped.
    pub repeated_packets: u64,
    /// Packets of joined streams that were dropped for any of the reasons here, or because they
    /// preceded the first PES packet of their stream.
    pub dropped_packets: u64,
    /// PES packets dropped because their header is unreadable.
    pub broken_units: u64,
    /// PES packets dropped because their time is more than 10 s from their due time.
    pub far_units: u64,
    /// PES packets dropped because their time lies before the end of the previous file.
    pub overlapping_units: u64,
    /// PES packets dropped because the file is left before their end.
    pub cut_units: u64,
    /// PES packets dropped because the constant rate had no room for them.
    pub late_units: u64,
    /// Slots of the constant rate that were skipped because more than 10 s passed between calls.
    pub skipped_slots: u64,
}

/// Result of beginning a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Splice {
    /// Ticks by which its timestamps were moved further than its clock, so that they follow those
    /// of the previous file.
    pub room_ticks: u64,
    /// Ticks that still overlap, because at most 3 s of room is made: PES packets of this time are
    /// dropped. A caller avoids this by starting the file as much later.
    pub overlap_ticks: u64,
}

/// A stream of the output.
#[derive(Debug, Clone, Copy, Default)]
struct OutputStream {
    /// Counter of the last packet with payload.
    continuity: u8,
    /// Decoding time of the last PES packet, and the step to it, in 90 kHz.
    time: Option<u64>,
    step: u64,
    /// Duration of that PES packet from its frames, for audio; known when its item ends.
    duration: Option<u64>,
}

/// Entry of the queue of a constant rate.
enum QueuedPacket {
    /// A packet whose counter, and clock reference if it has one, are written when it is sent.
    Media { bytes: [u8; TS_PACKET_BYTES], output: usize, has_pcr: bool, starts_unit: bool },
    /// The map for the packets that follow.
    Map(Vec<u8>),
}

/// Joins many files to one stream.
pub struct Splicer {
    announce: Announce,
    slots: Option<Slots>,
    outputs: [OutputStream; OUTPUTS],
    item: Option<PlayingItem>,
    now: u64,
    /// Time of the last clock reference sent.
    clock_sent: Option<u64>,
    /// Table packets that wait for slots, and the number of their bytes already sent.
    tables: Vec<u8>,
    tables_sent: usize,
    joins: u64,
    counts: SpliceCounts,
}

impl Splicer {
    /// Creates a channel without an item.
    pub fn new(settings: &SpliceSettings) -> Result<Self, SpliceSettingsFault> {
        if settings.service_id == 0 {
            return Err(SpliceSettingsFault::ServiceId);
        }
        for (setting, text) in
            [("service_name", &settings.service_name), ("provider", &settings.provider)]
        {
            if text.len() > TEXT_BYTES_MAX {
                let (bytes, limit) = (text.len(), TEXT_BYTES_MAX);
                return Err(SpliceSettingsFault::TextBytes { setting, bytes, limit });
            }
        }
        if let Some(rate) = settings.constant_rate.filter(|rate| !SPLICE_RATES.contains(rate)) {
            let (least, most) = (*SPLICE_RATES.start(), *SPLICE_RATES.end());
            return Err(SpliceSettingsFault::Rate { rate, least, most });
        }
        Ok(Self {
            announce: Announce::new(settings),
            slots: settings.constant_rate.map(Slots::new),
            outputs: [OutputStream { continuity: 0x0f, ..OutputStream::default() }; OUTPUTS],
            item: None,
            now: 0,
            clock_sent: None,
            tables: Vec::new(),
            tables_sent: 0,
            joins: 0,
            counts: SpliceCounts::default(),
        })
    }

    /// Ends the playing item and begins this one, at any entry position. Packets of the previous
    /// item that wait for slots are still sent.
    pub fn begin(&mut self, item: &SpliceItem) -> Result<Splice, SpliceRefusal> {
        let (pcr, due) = item.check()?;
        let map = announce::map(item)?;
        let due = due.clamp(self.now, TIME_MAX);
        let fixed = if self.slots.is_some() { DELAY_TICKS } else { 0 };
        if let Some(before) = &self.item {
            before.note_durations(&mut self.outputs);
        }
        let overlap = self.overlap(item, due + fixed);
        let room = overlap.min(ROOM_TICKS_MAX);
        self.item = Some(PlayingItem::new(item, (pcr, due), fixed + room));
        self.counts.items += 1;
        match &mut self.slots {
            None => {
                self.announce.put_map(map);
                self.joins += 1;
            }
            Some(slots) => match slots.queue.back_mut() {
                Some(QueuedPacket::Map(last)) => *last = map,
                _ => slots.queue.push_back(QueuedPacket::Map(map)),
            },
        }
        Ok(Splice { room_ticks: room, overlap_ticks: overlap - room })
    }

    /// Returns the largest time by which the streams sent so far extend beyond the start of an
    /// item's streams, in ticks, if the item's clock begins at `due`.
    fn overlap(&self, item: &SpliceItem, due: u64) -> u64 {
        let overlaps =
            item.streams.iter().filter(|stream| stream.coding.is_media()).filter_map(|stream| {
                let output = &self.outputs[stream.output];
                let end = output.end()? * TICKS_PER_TIMESTAMP;
                let start = (due % PCR_MODULUS).wrapping_add_signed(item.lead(stream)?);
                let apart = difference(end, start.wrapping_add(PCR_MODULUS), PCR_MODULUS);
                u64::try_from(apart).ok().filter(|&ticks| ticks < FILL_TICKS_MAX)
            });
        overlaps.max().unwrap_or(0)
    }

    /// Consumes the next packet of the playing item, due at `due`, and appends all packets due
    /// until then to `out`. Times do not go back: an earlier time is replaced by the last one.
    pub fn push(&mut self, packet: &[u8; TS_PACKET_BYTES], due: u64, out: &mut Vec<u8>) {
        let due = due.clamp(self.now, TIME_MAX);
        self.now = due;
        self.counts.pushed_packets += 1;
        if self.slots.is_some() {
            self.fill_slots(due, out);
        }
        let packet = TsPacket { header: TsHeader::read(packet), bytes: packet };
        if !packet.header.is_sync() || packet.header.is_damaged() {
            self.counts.damaged_packets += 1;
            return;
        }
        let Some(item) = &mut self.item else { return };
        let forwarded = item.take(&packet, due, &mut self.outputs, &mut self.counts);
        if self.slots.is_some() {
            if let Some(media) = forwarded.media {
                self.queue(media);
            }
            return;
        }
        if forwarded.media.is_some() || forwarded.pcr.is_some() {
            self.send_tables(out);
        }
        if let Some(pcr) = forwarded.pcr {
            self.clock_sent = Some(due);
            if !matches!(forwarded.media, Some(QueuedPacket::Media { has_pcr: true, .. })) {
                self.send_clock(pcr, out);
            }
        }
        if let Some(media) = forwarded.media {
            self.send(media, forwarded.pcr, out);
        }
    }

    /// Rejects further PES packets of the playing item's stream with this PID in the file, because
    /// the next one would be truncated ([`OpenUnits`]). Its clock is still followed.
    pub fn end_stream(&mut self, pid: u16) {
        if let Some(item) = &mut self.item {
            item.end_stream(pid);
        }
    }

    /// Makes packets of the playing item leave this many ticks ahead of its clock, from the next
    /// packet on: clock references decrease by the same time, timestamps are unchanged.
    pub fn run_ahead(&mut self, ticks: u64) {
        if let Some(item) = &mut self.item {
            item.run_ahead(ticks.min(AHEAD_TICKS_MAX));
        }
    }

    /// Continues at another position of the playing item, from the next clock reference on, which
    /// may have another time base.
    pub fn skip(&mut self) {
        if let Some(item) = &mut self.item {
            item.skip();
        }
    }

    /// Appends all packets due before `time` to `out`, except packets not yet pushed. A call every
    /// 20 ms or so while nothing plays, or between packets that are far apart, keeps tables and
    /// clock alive.
    pub fn fill_to(&mut self, time: u64, out: &mut Vec<u8>) {
        let time = time.clamp(self.now, TIME_MAX);
        self.now = time;
        if self.slots.is_some() {
            return self.fill_slots(time, out);
        }
        self.send_tables(out);
        if self.clock_sent.is_none_or(|sent| time - sent.min(time) >= CLOCK_TICKS) {
            self.clock_sent = Some(time);
            self.send_clock(time % PCR_MODULUS, out);
        }
    }

    /// Skips all slots before `time` and drops the media that waits for them. Used after a pause in
    /// which nothing was sent, or another server sent in place of this one.
    pub fn skip_to(&mut self, time: u64) {
        let time = time.clamp(self.now, TIME_MAX);
        self.now = time;
        if let Some(slots) = &mut self.slots
            && slots.is_started
            && slots.time() < time
        {
            self.counts.skipped_slots += slots.seek(time);
            let before = slots.queue.len();
            // The map of the playing item must still be sent.
            slots.queue.retain(|entry| matches!(entry, QueuedPacket::Map(_)));
            self.counts.dropped_packets += (before - slots.queue.len()) as u64;
        }
    }

    /// Adopts the state of a packet that another server sent for this channel, so that the next
    /// packets from here continue its counters, table versions and times.
    pub fn observe(&mut self, packet: &[u8; TS_PACKET_BYTES]) {
        let packet = TsPacket { header: TsHeader::read(packet), bytes: packet };
        let is_usable = packet.header.is_sync() && !packet.header.is_damaged();
        if !is_usable || self.announce.observe(&packet) || !packet.header.has_payload() {
            return;
        }
        let at = usize::from(packet.header.pid()).checked_sub(usize::from(FIRST_PID));
        let Some(output) = at.and_then(|at| self.outputs.get_mut(at)) else { return };
        output.continuity = packet.header.continuity();
        if packet.header.starts_unit()
            && let Some(time) = PesTimes::find(packet.payload()).decoding()
        {
            output.note(time % TIME_MODULUS, true);
        }
    }

    /// Returns the start time of the next file at which its first picture or audio directly follows
    /// the last of this one, assuming that it has the same time between start and media as the
    /// playing one. Files often have a picture or two more than their clock has time for, or a
    /// clock that continues after their pictures. If starts followed the clock alone, the first
    /// kind would make [`Splice::room_ticks`] grow without limit, and the second would leave gaps.
    pub fn media_end(&self) -> Option<u64> {
        self.item.as_ref()?.media_end(&self.outputs, self.now)
    }

    /// Returns the due time of the last video or audio packet of the playing item; none if none has
    /// passed since it began or was last skipped.
    pub fn media_left(&self) -> Option<u64> {
        self.item.as_ref()?.media_left()
    }

    /// Packets consumed, sent and dropped so far.
    pub fn counts(&self) -> &SpliceCounts {
        &self.counts
    }

    /// Returns the number of files that have reached the output; packets of all but the latest are
    /// no longer sent.
    pub fn joins(&self) -> u64 {
        self.joins
    }

    /// Returns the index of the next slot of a constant rate: the next appended packet is packet
    /// `k` of the channel and leaves at `k` × 188 × 8 / rate. None without a rate, and before the
    /// first call with a time.
    pub fn next_slot(&self) -> Option<u64> {
        self.slots.as_ref().filter(|slots| slots.is_started).map(Slots::index)
    }

    /// Returns the start time of a slot of the constant rate, in ticks, rounded down. None without
    /// a rate.
    pub fn slot_time(&self, slot: u64) -> Option<u64> {
        self.slots.as_ref().map(|slots| slots.time_of(slot).0)
    }

    fn send_tables(&mut self, out: &mut Vec<u8>) {
        let before = out.len();
        self.announce.write(self.now, out);
        self.counts.sent_packets += ((out.len() - before) / TS_PACKET_BYTES) as u64;
    }

    fn send_clock(&mut self, pcr: u64, out: &mut Vec<u8>) {
        self.counts.sent_packets += 1;
        out.extend(clock_packet(FIRST_PID, self.outputs[0].continuity, pcr));
    }

    /// Sends a packet with its counter and, if it has one, its clock reference.
    fn send(&mut self, packet: QueuedPacket, pcr: Option<u64>, out: &mut Vec<u8>) {
        let QueuedPacket::Media { mut bytes, output, has_pcr, .. } = packet else { return };
        let continuity = &mut self.outputs[output].continuity;
        *continuity = (*continuity + 1) & 0x0f;
        bytes[3] = bytes[3] & 0xf0 | *continuity;
        if let Some(pcr) = pcr.filter(|_| has_pcr) {
            put_pcr(&mut bytes, pcr);
        }
        self.counts.sent_packets += 1;
        out.extend_from_slice(&bytes);
    }

    /// Puts a packet into the queue, or drops its PES packet if the queue is full.
    fn queue(&mut self, packet: QueuedPacket) {
        let (Some(slots), Some(item)) = (&mut self.slots, &mut self.item) else { return };
        if slots.queue.len() < slots.capacity {
            return slots.queue.push_back(packet);
        }
        let QueuedPacket::Media { output: full, starts_unit, .. } = packet else { return };
        item.drop_unit(full);
        self.counts.late_units += 1;
        self.counts.dropped_packets += 1;
        let begins = |entry: &QueuedPacket| {
            matches!(entry, QueuedPacket::Media { output, starts_unit: true, .. }
                if *output == full)
        };
        let start = slots.queue.iter().rposition(begins);
        if let Some(start) = start.filter(|_| !starts_unit) {
            let before = slots.queue.len();
            let mut index = 0;
            slots.queue.retain(|entry| {
                index += 1;
                let is_of_stream =
                    matches!(entry, QueuedPacket::Media { output, .. } if *output == full);
                index <= start || !is_of_stream
            });
            self.counts.dropped_packets += (before - slots.queue.len()) as u64;
        }
    }

    /// Fills the slots before `time`.
    fn fill_slots(&mut self, time: u64, out: &mut Vec<u8>) {
        let Some(slots) = &mut self.slots else { return };
        if !slots.is_started {
            slots.seek(time);
        } else if time.saturating_sub(slots.time()) > FILL_TICKS_MAX {
            self.counts.skipped_slots += slots.seek(time);
        }
        while self.slots.as_ref().is_some_and(|slots| slots.time() < time) {
            self.fill_slot(out);
        }
    }

    /// Fills the next slot: with an overdue clock reference, a table, media, or a null packet.
    fn fill_slot(&mut self, out: &mut Vec<u8>) {
        let Some(slots) = &mut self.slots else { return };
        let (time, pcr) = (slots.time(), slots.pcr());
        slots.advance();
        let next = slots.time();
        while let Some(QueuedPacket::Map(map)) = slots.queue.front_mut() {
            self.announce.put_map(std::mem::take(map));
            slots.queue.pop_front();
            self.joins += 1;
        }
        if self.tables_sent == self.tables.len() && time >= self.announce.due() {
            self.tables.clear();
            self.tables_sent = 0;
            self.announce.write(time, &mut self.tables);
        }
        let has_tables = self.tables_sent < self.tables.len();
        let front = slots.queue.front();
        let has_clock = matches!(front, Some(QueuedPacket::Media { has_pcr: true, .. }));
        let is_clock_due =
            self.clock_sent.is_none_or(|sent| next.saturating_sub(sent) >= CLOCK_TICKS);
        if is_clock_due && (has_tables || !has_clock) {
            self.clock_sent = Some(time);
            self.send_clock(pcr % PCR_MODULUS, out);
        } else if has_tables {
            let end = self.tables_sent + TS_PACKET_BYTES;
            out.extend_from_slice(&self.tables[self.tables_sent..end]);
            self.tables_sent = end;
            self.counts.sent_packets += 1;
        } else if let Some(packet) = slots.queue.pop_front() {
            if has_clock {
                self.clock_sent = Some(time);
            }
            self.send(packet, Some(pcr % PCR_MODULUS), out);
        } else {
            self.counts.null_packets += 1;
            self.counts.sent_packets += 1;
            out.extend_from_slice(&NULL_PACKET);
        }
    }
}

/// A null packet.
const NULL_PACKET: [u8; TS_PACKET_BYTES] = {
    let mut bytes = [0xff; TS_PACKET_BYTES];
    (bytes[0], bytes[1], bytes[2], bytes[3]) = (SYNC_BYTE as u8, 0x1f, 0xff, 0x10);
    bytes
};

#[cfg(test)]
mod tests;
