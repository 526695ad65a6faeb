// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the packets of a channel's stream from its files, ahead of time.
//!
//! [`Producer::advance`] plays the timeline up to a channel time: it reads packets of the file on
//! the air, has the [`Splicer`] join them, and fills RTP payloads of seven. A file that fails in
//! the middle is dropped, and the filler plays in the rest of its time; without a filler, tables
//! and clock continue until the timeline has another programme. A file that ends early, since it
//! was entered in the middle or the schedule cuts it, ends with the last whole picture and audio
//! unit.
//!
//! Costs a read of 64 KiB for 340 packets, the splicer's 80 ns a packet, and a read of three
//! seconds of a file that ends early.
//!
//! Sources: RFC 2250 §2 (whole transport stream packets; timestamps are those of the first byte).
//! Does not send, and does not read a clock.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use media::{SpliceSettings, Splicer, TICKS_PER_SECOND, TS_PACKET_BYTES, ticks_of};

use super::channel_clock::ChannelClock;
use super::channel_file::{ChannelFile, ChannelFileReader, UNIT_TICKS, Unplayable};
use super::lineup_watch::ChannelPlan;
use crate::channel::name_hash::name_hash;
use crate::channel::settings::ChannelConfig;
use crate::channel::timeline::{AirReason, OnAir};

/// Transport stream packets that leave in one datagram.
pub(super) struct ChannelPacket {
    /// Channel time at which the last of its packets is due.
    pub(super) due: u64,
    /// Channel time of its first.
    pub(super) begins: u64,
    /// True when another programme begins in it.
    pub(super) is_join: bool,
    /// One to seven packets.
    pub(super) payload: Vec<u8>,
}

/// Plays the timeline of one channel.
pub(super) struct Producer {
    name: String,
    splicer: Splicer,
    /// Channel time up to which packets are made.
    at: u64,
    on_air: Option<OnAir>,
    playing: Option<Playing>,
    /// Channel time at which the programme ends.
    ends_at: u64,
    /// True when the programme is to be chosen anew.
    is_cut: bool,
    /// Packets that wait for their datagram to be full.
    pending: Vec<u8>,
    pending_begins: u64,
    pending_last: u64,
    /// Programmes that the splicer has begun, and true when one waits for its first datagram.
    joins: u64,
    is_join: bool,
    made: VecDeque<ChannelPacket>,
    added: Vec<u8>,
    has_constant_rate: bool,
    /// Name of the filler.
    filler: Option<String>,
    /// File that could not be read; not tried again while the plan has it.
    failed: Weak<ChannelFile>,
}

/// The file on the air.
struct Playing {
    file: Arc<ChannelFile>,
    reader: ChannelFileReader,
    /// Next of the reader's packets.
    index: usize,
    /// Channel time minus time in the file.
    shift: u64,
    /// Time by the file's clock at which play began.
    entry_ticks: u64,
    /// Packets of the file from which on a stream is left out, and its PID, the first at the end;
    /// none until the end of the programme is near.
    ends: Option<Vec<(u64, u16)>>,
}

impl Producer {
    /// Makes the producer of a channel that begins at channel time `at`.
    pub(super) fn new(config: &ChannelConfig, at: u64) -> Producer {
        let mut name = config.title.clone();
        while name.len() > SERVICE_NAME_BYTES_MAX {
            name.pop();
        }
        let constant_rate = config.constant_rate_kbps.map(|rate| u64::from(rate) * 1000);
        let settings = SpliceSettings {
            // The values are the same on both servers of a pair, and differ among the channels of a
            // network.
            transport_stream_id: name_hash(config.name.as_bytes()) as u16,
            service_name: name,
            constant_rate,
            ..SpliceSettings::default()
        };
        Producer {
            name: config.name.clone(),
            splicer: Splicer::new(&settings).expect("the settings are checked"),
            at,
            on_air: None,
            playing: None,
            ends_at: at,
            is_cut: true,
            pending: Vec::new(),
            pending_begins: at,
            pending_last: at,
            joins: 0,
            is_join: false,
            made: VecDeque::new(),
            added: Vec::new(),
            has_constant_rate: constant_rate.is_some(),
            filler: config.filler.clone(),
            failed: Weak::new(),
        }
    }

    /// Channel time up to which packets are made.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The programme on the air.
    pub(super) fn on_air(&self) -> Option<&OnAir> {
        self.on_air.as_ref()
    }

    /// Returns the number of PES packets for which the constant rate had no room.
    pub(super) fn overfull_units(&self) -> u64 {
        self.splicer.counts().late_units
    }

    /// Returns the mean rate of the file on the air.
    pub(super) fn bits_per_second(&self) -> Option<u64> {
        self.playing.as_ref().map(|playing| playing.file.asset.plan.bits_per_second())
    }

    /// Adopts counters from a packet of the other server.
    pub(super) fn observe(&mut self, payload: &[u8]) {
        for packet in payload.chunks_exact(TS_PACKET_BYTES) {
            self.splicer.observe(packet.try_into().expect("chunks are exact"));
        }
    }

    /// Begins at another channel time, with the programme of that time; drops packets that were
    /// made and not fetched.
    pub(super) fn restart_at(&mut self, at: u64) {
        self.made.clear();
        self.pending.clear();
        self.at = self.at.max(at);
        self.splicer.skip_to(self.at);
        self.cut();
    }

    /// Makes the next call choose the programme anew.
    pub(super) fn cut(&mut self) {
        self.is_cut = true;
        self.playing = None;
    }

    /// Makes packets up to channel time `until`; returns the number of programmes begun.
    pub(super) fn advance(&mut self, until: u64, clock: &ChannelClock, plan: &ChannelPlan) -> u64 {
        let mut begun = 0;
        while self.at < until {
            if self.is_cut || self.at >= self.ends_at {
                begun += 1;
                self.begin(clock, plan);
            }
            // Clock and tables keep their intervals, however late the thread is.
            let end = until.min(self.ends_at).min(self.at + STEP_TICKS);
            self.play_to(end);
            self.added.clear();
            self.splicer.fill_to(end, &mut self.added);
            self.take(end);
            self.at = self.at.max(end);
            self.flush_old();
        }
        begun
    }

    /// Returns the next packet if it is due before `until`.
    pub(super) fn next(&mut self, until: u64) -> Option<ChannelPacket> {
        let is_due = self.made.front().is_some_and(|packet| packet.due < until);
        if is_due { self.made.pop_front() } else { None }
    }

    /// Begins the programme of the current channel time.
    fn begin(&mut self, clock: &ChannelClock, plan: &ChannelPlan) {
        // Ticks are rounded down: a moment later is certainly within the programme that begins.
        let wall = clock.wall_of(self.at) + ROUNDING;
        let mut on_air = plan.timeline.programme_at(wall);
        self.is_cut = false;
        self.playing = None;
        self.ends_at = match on_air.reason {
            // The timeline is queried again soon: new files may have appeared.
            AirReason::Nothing => {
                (self.at + NOTHING_TICKS).min(clock.ticks_of_wall(on_air.ends_at))
            }
            _ => clock.ticks_of_wall(on_air.ends_at),
        };
        // A wall clock's rounding must not make a programme of no length.
        self.ends_at = self.ends_at.max(self.at + 1);
        if let Some(file) = on_air.entry.as_ref().and_then(|name| plan.files.get(name))
            && !self.play(file, ticks_of(on_air.offset))
        {
            self.play_filler(&mut on_air, plan);
        }
        self.on_air = Some(on_air);
    }

    /// Puts a file on the air; false when it cannot be read.
    fn play(&mut self, file: &Arc<ChannelFile>, offset: u64) -> bool {
        if Weak::as_ptr(&self.failed) == Arc::as_ptr(file) {
            return false;
        }
        let entered = self.enter(file, offset);
        if let Err(reason) = &entered {
            self.leave(file, reason);
        }
        entered.is_ok()
    }

    /// Puts the filler on the air in place of a file that failed.
    fn play_filler(&mut self, on_air: &mut OnAir, plan: &ChannelPlan) {
        let filler = self.filler.as_deref().and_then(|name| plan.files.get_key_value(name));
        let found = filler.map(|(name, file)| (name.clone(), file.clone()));
        on_air.instead_of = on_air.entry.take();
        on_air.reason = AirReason::Nothing;
        if let Some((name, file)) = found
            && self.play(&file, 0)
        {
            on_air.entry = Some(name);
            on_air.reason = AirReason::Filler;
            let once = self.at.saturating_add(ticks_of(file.duration).max(1));
            self.ends_at = self.ends_at.min(once);
        }
    }

    /// Records that a file failed; the programme is chosen anew.
    fn leave(&mut self, file: &Arc<ChannelFile>, reason: &dyn fmt::Display) {
        self.failed = Arc::downgrade(file);
        let (channel, name) = (&self.name, &file.asset.name);
        tracing::warn!("channel.{channel}: {name}: {reason}; the filler, if any, plays instead");
    }

    /// Puts a file on the air from `offset` on, at the place to start at or before it.
    fn enter(&mut self, file: &Arc<ChannelFile>, offset: u64) -> Result<(), Unplayable> {
        // The start of a programme is the start of its file, regardless of a clock's rounding.
        let entry = match offset < START_TICKS {
            true => 0,
            false => file.entry(offset),
        };
        let item = file.item(entry, self.at)?;
        let splice = self.splicer.begin(&item).map_err(Unplayable::Refused)?;
        if splice.overlap_ticks > 0 {
            let ms = splice.overlap_ticks * 1000 / TICKS_PER_SECOND;
            tracing::debug!("channel.{}: {}: {ms} ms overlap", self.name, file.asset.name);
        }
        let entry_ticks = file.asset.plan.ticks(entry);
        self.playing = Some(Playing {
            file: file.clone(),
            reader: file.reader(entry),
            index: 0,
            shift: self.at,
            entry_ticks,
            ends: None,
        });
        Ok(())
    }

    /// Finds the ends of the streams of the file on the air, once they are near.
    fn find_ends(&self, playing: &mut Playing, end: u64) {
        if playing.ends.is_some() || self.ends_at.saturating_sub(end) > END_NEAR_TICKS {
            return;
        }
        let entered = playing.file.played_at(playing.entry_ticks);
        let ticks = self.ends_at.saturating_sub(playing.shift) + entered;
        let mut ends = playing.file.open_units(ticks).unwrap_or_else(|error| {
            let (channel, name) = (&self.name, &playing.file.asset.name);
            tracing::debug!("channel.{channel}: {name}: reading its end: {error}");
            Vec::new()
        });
        ends.reverse();
        playing.ends = Some(ends);
    }

    /// Pushes the packets of the file on the air that are due before `end`.
    fn play_to(&mut self, end: u64) {
        let Some(mut playing) = self.playing.take() else { return };
        self.find_ends(&mut playing, end);
        let entered = playing.file.played_at(playing.entry_ticks);
        loop {
            let Some((packet, ticks)) = playing.reader.packet(playing.index) else {
                match playing.reader.fill(&playing.file) {
                    Ok(true) => playing.index = 0,
                    Ok(false) => return,
                    Err(error) => {
                        self.leave(&playing.file, &Unplayable::Unreadable(error));
                        self.is_cut = true;
                        return;
                    }
                }
                continue;
            };
            let by_clock = ticks.saturating_sub(playing.entry_ticks);
            let played = playing.file.played_at(ticks).saturating_sub(entered);
            let due = playing.shift + played;
            if due >= end {
                break;
            }
            let number = playing.reader.number(playing.index);
            while let Some(ends) = &mut playing.ends
                && let Some((_, pid)) = ends.pop_if(|(first, _)| *first <= number)
            {
                self.splicer.end_stream(pid);
            }
            self.splicer.run_ahead(by_clock.saturating_sub(played));
            self.added.clear();
            self.splicer.push(packet, due, &mut self.added);
            playing.index += 1;
            self.take(due);
            self.at = self.at.max(due);
        }
        self.playing = Some(playing);
    }

    /// Collects the packets that the splicer has added, due at `due`; at a constant rate each
    /// packet has its slot.
    fn take(&mut self, due: u64) {
        let added = std::mem::take(&mut self.added);
        let packets = (added.len() / TS_PACKET_BYTES) as u64;
        let next_slot = self.splicer.next_slot();
        let joins = self.splicer.joins();
        self.is_join |= std::mem::replace(&mut self.joins, joins) != joins;
        for (index, packet) in added.chunks_exact(TS_PACKET_BYTES).enumerate() {
            let slot = next_slot.map(|next| next - packets + index as u64);
            let due = slot.and_then(|slot| self.splicer.slot_time(slot)).unwrap_or(due);
            if self.pending.is_empty() {
                self.pending_begins = due;
            }
            self.pending.extend_from_slice(packet);
            self.pending_last = due;
            if self.pending.len() == PAYLOAD_BYTES {
                self.flush();
            }
        }
        self.added = added;
    }

    fn flush(&mut self) {
        let payload = std::mem::take(&mut self.pending);
        let (due, begins) = (self.pending_last, self.pending_begins);
        let is_join = std::mem::take(&mut self.is_join);
        self.made.push_back(ChannelPacket { due, begins, is_join, payload });
        if self.made.len() > MADE_MAX {
            self.made.pop_front();
        }
    }

    /// Emits a datagram that has waited too long to be full.
    fn flush_old(&mut self) {
        let is_old = self.at.saturating_sub(self.pending_begins) > PENDING_TICKS_MAX;
        if !self.pending.is_empty() && is_old && !self.has_constant_rate {
            self.flush();
        }
    }
}

/// Seven packets: the usual payload of RTP and of bare UDP.
pub(super) const PAYLOAD_BYTES: usize = 7 * TS_PACKET_BYTES;
/// Longest service name (`media::SpliceSettings`).
const SERVICE_NAME_BYTES_MAX: usize = 120;
/// Offsets into a file up to this play it from its start.
const START_TICKS: u64 = TICKS_PER_SECOND / 20;
/// Time that is made at once: less than the maximum interval of clock references and tables.
const STEP_TICKS: u64 = TICKS_PER_SECOND / 50;
/// More than the rounding of a time to ticks and back.
const ROUNDING: Duration = Duration::from_micros(1);
/// Time before the end of a programme at which it is near: before a PES packet that it cuts.
const END_NEAR_TICKS: u64 = UNIT_TICKS + TICKS_PER_SECOND;
/// Interval at which an empty timeline is queried again.
const NOTHING_TICKS: u64 = TICKS_PER_SECOND / 2;
/// Time that packets of a slow stream wait for a full datagram.
const PENDING_TICKS_MAX: u64 = TICKS_PER_SECOND / 20;
/// Most packets made and not fetched: a thread that was stopped for long begins anew.
const MADE_MAX: usize = 100_000;

#[cfg(test)]
#[path = "producer_tests.rs"]
pub(super) mod tests;
