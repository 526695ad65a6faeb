// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filters the packets of the playing file and rewrites the accepted ones as packets of the
//! channel.
//!
//! A stream begins with its first PES packet. From then on its packets pass, except repetitions
//! (ISO/IEC 13818-1 §2.4.3.3 allows one of each) and PES packets that are dropped as a whole: those
//! whose timestamps are unreadable, are more than 10 s from their due time, lie before the end of
//! the previous file, or have no end because the file is left. Packets without payload are not
//! forwarded; their clock references are.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.3 (continuity), §2.4.3.5 (discontinuity), §2.4.3.7 (PES).
//! Does not repair losses of the file; counts them.

use super::item::{FIRST_PID, SpliceItem};
use super::sound_length::SoundLength;
use super::time_base::{TimeBase, difference};
use super::{OutputStream, QueuedPacket, SpliceCounts};
use crate::ts::format::Coding;
use crate::ts::pes_times::{PesTimes, TIME_MODULUS};
use crate::ts::rewrite::renew_adaptation;
use crate::ts::{Adaptation, PCR_MODULUS, PIDS, TsPacket};
use crate::{TICKS_PER_SECOND, TICKS_PER_TIMESTAMP, TS_PACKET_BYTES};

/// Timestamps farther from their due time belong to another time base: no decoder has to buffer
/// data for longer (ISO/IEC 13818-1 §2.14.3.1 allows H.264 10 s).
pub(super) const FAR_TICKS: i64 = 10 * TICKS_PER_SECOND.cast_signed();

/// Longest plausible duration of an audio PES packet, 90 kHz: longer results come from wrong
/// headers. Frames of a very low rate fill the usual packet of 3 KB with 1.5 s.
const UNIT_MAX: u64 = 2 * 90_000;

/// Assumed time between decoding and presentation of a picture: one picture at 25 a second, where
/// files have zero to two pictures of reordering. The constant is the same for all files, so that
/// the room between files stays bounded in every order of them. With a constant per file, two
/// alternating files, one with longer audio and the other with an earlier start of video, would
/// need more room at each change.
const REORDER_TICKS: i64 = TICKS_PER_SECOND.cast_signed() / 25;

/// A longer step between timestamps does not indicate the duration of an access unit.
const STEP_MAX: u64 = 90_000;

/// Flag of the clock's PID in the table of PIDs; the bits below hold 1 + the stream's index.
const CLOCK: u8 = 0x80;

/// The playing file.
pub(super) struct PlayingItem {
    wanted: Box<[u8; PIDS]>,
    base: TimeBase,
    /// Ticks by which timestamps are moved further than the clock.
    delay: u64,
    /// Ticks from its first packet to its first clock reference.
    before_clock: u64,
    /// Ticks by which packets leave ahead of the clock.
    ahead: u64,
    /// True if packets before the next clock reference are dropped.
    awaits_clock: bool,
    /// Due time of the last forwarded video or audio packet.
    media_left: Option<u64>,
    /// True if a clock discontinuity was announced and the first reference after it was not yet
    /// received.
    is_announced: bool,
    streams: Vec<PlayingStream>,
}

struct PlayingStream {
    output: usize,
    coding: Coding,
    /// Ticks from the first clock reference to the first decoding time, if that is near.
    lead: Option<i64>,
    /// Duration of its last PES packet, for audio.
    length: Option<SoundLength>,
    /// True if a PES packet has begun.
    is_started: bool,
    /// True if a PES packet with timestamps has passed since the start or the last discontinuity.
    is_joined: bool,
    /// True if the rest of the PES packet is dropped.
    is_dropping: bool,
    /// True if no more PES packets are accepted.
    is_over: bool,
    /// The last packet with payload.
    last: Option<[u8; TS_PACKET_BYTES]>,
    /// True if that packet was repeated.
    is_repeated: bool,
}

/// Result of one input packet.
#[derive(Default)]
pub(super) struct ForwardedPacket {
    /// Its clock reference on the channel's clock.
    pub(super) pcr: Option<u64>,
    /// The packet to send, without final counter and clock reference.
    pub(super) media: Option<QueuedPacket>,
}

impl PlayingItem {
    /// Starts an item whose clock reference `pcr` is due at `due`.
    pub(super) fn new(item: &SpliceItem, (pcr, due): (u64, u64), delay: u64) -> Self {
        let mut wanted = Box::new([0; PIDS]);
        let mut streams = Vec::new();
        for stream in &item.streams {
            streams.push(PlayingStream {
                output: stream.output,
                coding: stream.coding,
                lead: item.lead(stream),
                length: stream.coding.frame_parser().map(SoundLength::new),
                is_started: false,
                is_joined: false,
                is_dropping: false,
                is_over: false,
                last: None,
                is_repeated: false,
            });
            wanted[usize::from(stream.pid)] = streams.len() as u8;
        }
        wanted[usize::from(item.pcr_pid)] |= CLOCK;
        let base = TimeBase::new(pcr, due, delay);
        let before_clock = item.before_clock();
        Self {
            wanted,
            base,
            delay,
            before_clock,
            ahead: 0,
            awaits_clock: false,
            media_left: None,
            is_announced: false,
            streams,
        }
    }

    /// Consumes the next packet, due at `due`.
    pub(super) fn take(
        &mut self,
        packet: &TsPacket<'_>,
        due: u64,
        outputs: &mut [OutputStream],
        counts: &mut SpliceCounts,
    ) -> ForwardedPacket {
        let wanted = self.wanted[usize::from(packet.header.pid())];
        if wanted == 0 {
            return ForwardedPacket::default();
        }
        let adaptation = match packet.header.has_adaptation() {
            true => packet.adaptation(),
            false => Adaptation::default(),
        };
        let at = usize::from(wanted & !CLOCK).checked_sub(1);
        if at.is_some_and(|at| self.streams[at].is_repetition(packet, &adaptation, counts)) {
            return ForwardedPacket::default();
        }
        let pcr = match wanted & CLOCK {
            0 => None,
            _ => self.follow_clock(&adaptation, due, counts),
        };
        let accepts_media = packet.header.has_payload() && !self.awaits_clock;
        let media = at.filter(|_| accepts_media).and_then(|at| {
            let stream = &mut self.streams[at];
            let start = Start { base: &self.base, due: due + self.ahead + self.delay };
            let is_kept = stream.admit(packet, &start, outputs, counts);
            let has_pcr = pcr.is_some() && stream.output == 0;
            let made = if is_kept { stream.rewrite(packet, &self.base, has_pcr) } else { None };
            if let Some(length) = stream.length.as_mut().filter(|_| is_kept) {
                length.add(packet);
            }
            counts.dropped_packets += u64::from(made.is_none());
            if stream.coding.is_media() && made.is_some() {
                self.media_left = Some(due);
            }
            made
        });
        ForwardedPacket { pcr, media }
    }

    /// Tracks the clock of the file and converts a reference to the channel's clock.
    fn follow_clock(
        &mut self,
        adaptation: &Adaptation,
        due: u64,
        counts: &mut SpliceCounts,
    ) -> Option<u64> {
        self.is_announced |= adaptation.discontinuity;
        let pcr = adaptation.pcr?;
        if std::mem::take(&mut self.awaits_clock) {
            self.base = TimeBase::new(pcr, due + self.ahead, self.delay);
        }
        if self.base.follow(pcr, due + self.ahead, std::mem::take(&mut self.is_announced)) {
            counts.clock_discontinuities += 1;
            self.streams.iter_mut().for_each(|stream| stream.is_joined = false);
        }
        Some((self.base.pcr(pcr) + PCR_MODULUS - self.ahead % PCR_MODULUS) % PCR_MODULUS)
    }

    /// Returns the start time of the next file at which its first stream directly follows the last
    /// end of a stream here, assuming that it has the same time between start and first stream as
    /// this one.
    pub(super) fn media_end(&self, outputs: &[OutputStream], now: u64) -> Option<u64> {
        let media = || self.streams.iter().filter(|stream| stream.coding.is_media());
        let starts = media().filter_map(|stream| Some(stream.lead? + stream.before_shown()));
        let ends = media().filter(|stream| stream.is_joined).filter_map(|stream| {
            let output = OutputStream { duration: stream.duration(), ..outputs[stream.output] };
            let end = output.end()? * TICKS_PER_TIMESTAMP + PCR_MODULUS;
            let end = end.wrapping_add_signed(-self.base.moved_beyond());
            Some(difference(end, now, PCR_MODULUS) + stream.before_shown())
        });
        let clock = now.saturating_add_signed(ends.max()? - starts.min()?);
        Some(clock.saturating_sub(self.before_clock))
    }

    /// Stores the durations of the last PES packets.
    pub(super) fn note_durations(&self, outputs: &mut [OutputStream]) {
        for stream in self.streams.iter().filter(|stream| stream.is_joined) {
            outputs[stream.output].duration = stream.duration();
        }
    }

    /// Rejects further PES packets of the stream with this PID in the file.
    pub(super) fn end_stream(&mut self, pid: u16) {
        let wanted = self.wanted.get(usize::from(pid)).map_or(0, |wanted| wanted & !CLOCK);
        if let Some(at) = usize::from(wanted).checked_sub(1) {
            self.streams[at].is_over = true;
        }
    }

    /// Makes packets leave this many ticks ahead of the clock.
    pub(super) fn run_ahead(&mut self, ticks: u64) {
        self.ahead = ticks;
    }

    /// Continues at another position of the file.
    pub(super) fn skip(&mut self) {
        (self.awaits_clock, self.media_left) = (true, None);
        for stream in &mut self.streams {
            (stream.is_started, stream.is_joined, stream.last) = (false, false, None);
        }
    }

    /// Due time of the last forwarded video or audio packet.
    pub(super) fn media_left(&self) -> Option<u64> {
        self.media_left
    }

    /// Drops the rest of the current PES packet of an output stream.
    pub(super) fn drop_unit(&mut self, output: usize) {
        for stream in self.streams.iter_mut().filter(|stream| stream.output == output) {
            stream.is_dropping = true;
        }
    }
}

/// Parameters for the decision about the start of a PES packet.
struct Start<'a> {
    base: &'a TimeBase,
    /// Due time, moved like the timestamps.
    due: u64,
}

impl PlayingStream {
    /// Returns the duration of the last audio PES packet from its frames, in units of 90 kHz.
    fn duration(&self) -> Option<u64> {
        let counted = self.length.as_ref().and_then(SoundLength::ticks);
        counted.filter(|&ticks| ticks <= UNIT_MAX)
    }

    /// Returns the usual time from decoding to presentation, in ticks.
    fn before_shown(&self) -> i64 {
        if self.coding.is_video() { REORDER_TICKS } else { 0 }
    }

    /// True for a repetition of the previous packet; also counts losses.
    fn is_repetition(
        &mut self,
        packet: &TsPacket<'_>,
        adaptation: &Adaptation,
        counts: &mut SpliceCounts,
    ) -> bool {
        if !packet.header.has_payload() {
            return false;
        }
        let Some(last) = &self.last else {
            self.last = Some(*packet.bytes);
            return false;
        };
        let before = last[3] & 0x0f;
        let continuity = packet.header.continuity();
        if continuity == before && !self.is_repeated && is_alike(packet.bytes, last) {
            self.is_repeated = true;
            counts.repeated_packets += 1;
            return true;
        }
        let is_next = continuity == (before + 1) & 0x0f;
        counts.input_losses += u64::from(!is_next && !adaptation.discontinuity);
        self.is_repeated = false;
        self.last = Some(*packet.bytes);
        false
    }

    /// Decides if a packet with payload passes.
    fn admit(
        &mut self,
        packet: &TsPacket<'_>,
        start: &Start<'_>,
        outputs: &mut [OutputStream],
        counts: &mut SpliceCounts,
    ) -> bool {
        if packet.header.is_scrambled() {
            counts.scrambled_packets += 1;
            self.is_dropping = true;
            return false;
        }
        if !packet.header.starts_unit() {
            return self.is_started && !self.is_dropping;
        }
        if self.is_over {
            counts.cut_units += 1;
            self.is_dropping = true;
            return false;
        }
        self.is_started = true;
        let times = PesTimes::find(packet.payload());
        self.is_dropping = match times.decoding() {
            None => {
                let is_broken = times == PesTimes::Unreadable;
                counts.broken_units += u64::from(is_broken);
                is_broken
            }
            Some(time) => {
                let time = (time + start.base.time_offset()) % TIME_MODULUS;
                !self.pass(time, start.due, &mut outputs[self.output], counts)
            }
        };
        !self.is_dropping
    }

    /// Decides if a PES packet with decoding time `time` on the channel's clock passes.
    fn pass(
        &mut self,
        time: u64,
        due: u64,
        output: &mut OutputStream,
        counts: &mut SpliceCounts,
    ) -> bool {
        let due = due / TICKS_PER_TIMESTAMP;
        let apart = difference(time, due, TIME_MODULUS) * TICKS_PER_TIMESTAMP.cast_signed();
        if apart.abs() > FAR_TICKS {
            counts.far_units += 1;
            return false;
        }
        let step = output.time.map(|last| difference(time, last, TIME_MODULUS));
        let is_far = step.is_some_and(|step| step * 300 < -FAR_TICKS);
        if !self.is_joined && step.is_some_and(|step| step <= 0) && !is_far {
            counts.overlapping_units += 1;
            return false;
        }
        output.note(time, self.is_joined);
        self.is_joined = true;
        true
    }

    /// Returns the packet as the channel sends it.
    fn rewrite(
        &self,
        packet: &TsPacket<'_>,
        base: &TimeBase,
        has_pcr: bool,
    ) -> Option<QueuedPacket> {
        let mut bytes = *packet.bytes;
        let [high, low] = (FIRST_PID + self.output as u16).to_be_bytes();
        // payload_unit_start_indicator and transport_priority are preserved.
        bytes[1] = bytes[1] & 0x60 | high;
        bytes[2] = low;
        let payload = renew_adaptation(&mut bytes, has_pcr)?;
        let starts_unit = packet.header.starts_unit();
        if starts_unit {
            let payload = &mut bytes[payload..];
            PesTimes::find(payload).shift(base.time_offset(), payload);
        }
        Some(QueuedPacket::Media { bytes, output: self.output, has_pcr, starts_unit })
    }
}

impl OutputStream {
    /// Returns the end of the last PES packet, in 90 kHz. The duration is at least two units, also
    /// if unknown, so that rounding preserves the order of times.
    pub(super) fn end(&self) -> Option<u64> {
        Some(self.time? + self.duration.unwrap_or(self.step).max(2))
    }

    /// Records the decoding time of a PES packet. The step from the previous time is the duration
    /// if both are in one file.
    pub(super) fn note(&mut self, time: u64, is_same_file: bool) {
        self.duration = None;
        if let Some(last) = self.time.replace(time).filter(|_| is_same_file) {
            let step = difference(time, last, TIME_MODULUS);
            if let Ok(step @ 1..=STEP_MAX) = u64::try_from(step) {
                self.step = step;
            }
        }
    }
}

/// True if packets of one PID and counter are equal except for their clock references.
fn is_alike(a: &[u8; TS_PACKET_BYTES], b: &[u8; TS_PACKET_BYTES]) -> bool {
    let has_clock = a[3] & 0x20 != 0 && a[4] >= 7 && a[5] & 0x10 != 0;
    let clock_end = if has_clock { 12 } else { 6 };
    a[1..6] == b[1..6] && a[clock_end..] == b[clock_end..]
}
