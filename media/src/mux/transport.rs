// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes MPEG transport streams of one programme.
//!
//! Units of all tracks are written in the order of their decoding times, each as one PES packet.
//! The clock runs [`LEAD`] ahead of decoding. Its PID is that of the first video track, or of the
//! first audio track if there is no video; it is written at least every 40 ms, in packets of its
//! own if no unit begins then. The tables are written at least every 100 ms, and before each key
//! frame.
//!
//! Units wait for a track that has none, for at most [`WAIT_TICKS`] of media; a unit that then
//! arrives behind the clock is refused. Presentation times are moved by a constant so that
//! decoding, which precedes presentation if pictures are reordered, begins after the clock's start.
//! Tables and clock cost 40 kbit/s, and each frame of sound has a PES packet: 72 kbit/s of AAC
//! alone become 174.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3 (packets, PES packets), §2.4.4 (tables), §2.7.2 (interval of the
//! clock: 100 ms; ETSI TR 101 290 §5.2.2, 2.3: 40 ms), §2.7.5 (DTS).
//! Does not keep a constant bit rate, and writes no service information (SDT).

use std::collections::VecDeque;
use std::time::Duration;

use super::elementary::Elementary;
use super::input::{TimedUnit, TrackInput};
use super::{HELD_BYTES_MAX, WriterKind, check_tracks, refused};
use crate::tracks::{Codec, TrackMedia};
use crate::ts::{TIME_MODULUS, clock_packet, put_pcr, put_timestamp, section, section_packets};
use crate::{AccessUnit, MuxRefusal, TICKS_PER_SECOND, TS_PACKET_BYTES};

/// Units of PTS and DTS per millisecond.
const PER_MS: i64 = 90;

/// Time from the clock to decoding: the buffering of a decoder.
const LEAD: i64 = 500 * PER_MS;

/// Largest step of the clock, and largest interval of the tables.
const CLOCK_STEP_MAX: i64 = 40 * PER_MS;
const TABLES_STEP_MAX: i64 = 100 * PER_MS;

/// Largest gap that is filled with clock references; a longer one is announced as a discontinuity.
const GAP_MAX: i64 = 10_000 * PER_MS;

/// Media time for which a unit waits for a track that has no unit.
const WAIT_TICKS: i64 = TICKS_PER_SECOND as i64;

/// Media time for which pictures wait for pictures presented before them.
const REORDER_TICKS_MAX: i64 = 2 * TICKS_PER_SECOND as i64;

const PAT_PID: u16 = 0;
const MAP_PID: u16 = 0x1000;
const FIRST_PID: u16 = 0x100;
const PROGRAMME: u16 = 1;

const BYTES_OF_HEADER: usize = 4;

/// discontinuity_indicator of an adaptation field.
const DISCONTINUITY: u8 = 0x80;

/// A track of the stream.
#[derive(Debug)]
struct Track {
    elementary: Elementary,
    input: TrackInput,
    /// Units with their DTS and PTS, without `shift`.
    queue: VecDeque<(i64, i64, TimedUnit)>,
    queued_bytes: usize,
    is_video: bool,
    /// DTS of the last unit that was queued.
    last: i64,
    /// Next continuity counter.
    continuity: u8,
}

impl Track {
    /// Converts a time of the track to units of PTS and DTS, each of 300 ticks of 27 MHz.
    fn at_90k(&self, time: i64) -> i64 {
        self.input.ticks(time).div_euclid(300)
    }
}

/// Writes the packets of a stream.
#[derive(Debug)]
pub struct TsWriter {
    tracks: Vec<Track>,
    /// Index of the track that carries the clock.
    clock: usize,
    /// Offset added to DTS and PTS; known after the first unit is written.
    shift: Option<i64>,
    /// First value of the clock.
    begins: i64,
    /// The last clock reference, without `shift`.
    pcr: Option<i64>,
    /// Time of the last tables, without `shift`.
    tables_at: i64,
    /// Continuity counters of PAT and PMT.
    counters: [u8; 2],
    /// Latest presentation time so far, in ticks.
    newest: Option<i64>,
}

impl TsWriter {
    /// Creates a writer of a stream with these tracks.
    ///
    /// # Errors
    /// No tracks or too many; a codec that transport streams do not support.
    pub fn new(tracks: &[Codec]) -> Result<TsWriter, MuxRefusal> {
        const KIND: WriterKind = WriterKind::TransportStream;
        check_tracks(KIND, tracks)?;
        let is_video = |codec: &Codec| codec.media() == TrackMedia::Video;
        let clock = tracks.iter().position(is_video).unwrap_or(0);
        let track = |(index, codec): (usize, &Codec)| {
            let elementary = Elementary::of(codec);
            Ok(Track {
                elementary: elementary.map_err(|reason| refused(KIND, index, codec, reason))?,
                input: TrackInput::new(index, codec),
                queue: VecDeque::new(),
                queued_bytes: 0,
                is_video: is_video(codec),
                last: i64::MIN,
                continuity: 0,
            })
        };
        Ok(TsWriter {
            tracks: tracks.iter().enumerate().map(track).collect::<Result<_, _>>()?,
            clock,
            shift: None,
            begins: 0,
            pcr: None,
            tables_at: i64::MIN / 2,
            counters: [0; 2],
            newest: None,
        })
    }

    pub(super) fn set_languages(&mut self, languages: &[Option<[u8; 3]>]) {
        for (track, language) in self.tracks.iter_mut().zip(languages) {
            if let Some([a, b, c]) = *language {
                // ISO_639_language_descriptor (§2.6.18), without a type of audio.
                track.elementary.descriptors.extend([0x0a, 4, a, b, c, 0]);
            }
        }
    }

    /// Starts the stream at time `at`, after another stream.
    pub(super) fn begin_behind(&mut self, at: Duration) {
        self.begins = (at.as_millis() as i64).saturating_mul(PER_MS);
    }

    /// Adds the next unit of a track; see [`super::MediaWriter::push`].
    ///
    /// # Errors
    /// The unit is dropped.
    pub fn push(
        &mut self,
        track: usize,
        unit: AccessUnit,
        out: &mut Vec<u8>,
    ) -> Result<(), MuxRefusal> {
        let tracks = self.tracks.len();
        let about = self.tracks.get_mut(track).ok_or(MuxRefusal::NoTrack { track, tracks })?;
        let (bytes, limit) = (unit.bytes.len(), about.elementary.bytes_max());
        if bytes > limit {
            return Err(MuxRefusal::TooLarge { track, bytes, limit });
        }
        let (time, is_start) = (unit.time, unit.is_start);
        about.input.check_time(time, self.newest)?;
        // Accepted units never become late: the clock does not pass units that wait.
        let (presented, written) = (about.at_90k(time), self.pcr.unwrap_or(i64::MIN));
        let behind = about.last.max(written);
        if presented < behind {
            let by_ms = (behind - presented).div_euclid(PER_MS);
            return Err(MuxRefusal::Late { track, by_ms });
        }
        let Track { input, elementary, .. } = about;
        input.push(unit, self.newest, |unit, known| elementary.form(unit, is_start, known))?;
        let ticks = about.input.ticks(time);
        let newest = self.newest.map_or(ticks, |newest| newest.max(ticks));
        self.newest = Some(newest);
        for about in &mut self.tracks {
            about.input.release_until(about.input.units(newest - REORDER_TICKS_MAX));
        }
        let held = |track: &Track| track.input.held_bytes() + track.queued_bytes;
        if self.tracks.iter().map(held).sum::<usize>() > HELD_BYTES_MAX {
            self.write_all(out);
        } else {
            self.queue_ready();
            self.write_ready(newest - WAIT_TICKS, out);
        }
        Ok(())
    }

    /// Appends all units whose times are known.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        self.write_ready(i64::MAX, out);
    }

    /// Appends all units still held; no other may follow.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        self.write_all(out);
    }

    /// True if the bytes appended so far form a playable stream.
    pub fn ends_whole(&self) -> bool {
        self.pcr.is_some()
    }

    fn write_all(&mut self, out: &mut Vec<u8>) {
        self.tracks.iter_mut().for_each(|track| track.input.release_all());
        self.queue_ready();
        self.write_ready(i64::MAX, out);
    }

    /// Queues the units with known times, with their DTS and PTS.
    fn queue_ready(&mut self) {
        let written = self.pcr.unwrap_or(i64::MIN);
        for track in &mut self.tracks {
            while let Some(unit) = track.input.take() {
                let presented = track.at_90k(unit.presented);
                let decode = track.at_90k(unit.decode).max(track.last).max(written);
                assert!(decode <= presented, "a unit is late that was taken in time");
                track.last = decode;
                track.queued_bytes += unit.held_bytes();
                track.queue.push_back((decode, presented, unit));
            }
        }
    }

    /// Writes units in decoding order as long as every track has one. Units at `until` (in ticks)
    /// or before do not wait for a track without any, unless pictures of that track still lack
    /// their decoding times.
    fn write_ready(&mut self, until: i64, out: &mut Vec<u8>) {
        let until = until.div_euclid(300);
        loop {
            let heads = self.tracks.iter().enumerate();
            let heads = heads.filter_map(|(index, track)| Some((track.queue.front()?.0, index)));
            let Some((decode, index)) = heads.min() else { return };
            let is_awaited = |track: &Track| {
                track.queue.is_empty() && (decode > until || track.input.is_waiting())
            };
            if self.tracks.iter().any(is_awaited) {
                return;
            }
            let track = &mut self.tracks[index];
            let (decode, presented, unit) = track.queue.pop_front().expect("it has a head");
            track.queued_bytes -= unit.held_bytes();
            self.write_unit(index, (decode, presented), &unit, out);
        }
    }

    /// Writes a unit, preceded by the clock and the tables that are due.
    fn write_unit(
        &mut self,
        index: usize,
        (decode, presented): (i64, i64),
        unit: &TimedUnit,
        out: &mut Vec<u8>,
    ) {
        let now = decode - LEAD;
        if self.shift.is_none() && self.begins > 0 {
            self.announce_anew(out);
        }
        let shift = *self.shift.get_or_insert(self.begins - now);
        let is_key = unit.is_start && self.tracks[index].is_video;
        self.run_clock(now, out);
        if is_key && self.tables_at < now {
            self.write_tables(now, out);
        }
        let has_clock = index == self.clock && self.pcr.is_none_or(|pcr| pcr < now);
        if self.pcr.is_none() && !has_clock {
            self.write_clock(now, false, out);
        }
        if has_clock {
            self.pcr = Some(now);
        }
        let track = &mut self.tracks[index];
        let pes = PesHeader {
            stream_id: track.elementary.stream_id,
            presented: wrapped(presented + shift),
            decode: wrapped(decode + shift),
            is_video: track.is_video,
        };
        let start = UnitStart {
            pid: FIRST_PID + index as u16,
            // In a stream without video, play can begin at any frame of sound.
            is_random_access: is_key || (index == self.clock && !track.is_video),
            pcr: has_clock.then(|| wrapped(now + shift) * 300),
        };
        let head = pes.bytes(unit.bytes.len());
        write_packets(&start, &head, &unit.bytes, &mut track.continuity, out);
    }

    /// Announces for each PID that its counter restarts (§2.4.3.5), as it does after another
    /// stream.
    fn announce_anew(&self, out: &mut Vec<u8>) {
        let others = (FIRST_PID..).take(self.tracks.len());
        for pid in [PAT_PID, MAP_PID].into_iter().chain(others) {
            let mut packet = [0xff; TS_PACKET_BYTES];
            let [high, low] = pid.to_be_bytes();
            let field = (TS_PACKET_BYTES - BYTES_OF_HEADER - 1) as u8;
            // A packet without payload repeats the counter before the first packet.
            packet[..6].copy_from_slice(&[0x47, high, low, 0x20 | 0x0f, field, DISCONTINUITY]);
            out.extend(packet);
        }
    }

    /// Advances the clock to `now`, with references and tables as often as they are due.
    fn run_clock(&mut self, now: i64, out: &mut Vec<u8>) {
        match self.pcr {
            None => self.write_tables(now, out),
            Some(pcr) if now - pcr > GAP_MAX => {
                self.write_tables(now, out);
                self.write_clock(now, true, out);
            }
            Some(mut pcr) => {
                while now - pcr > CLOCK_STEP_MAX {
                    pcr += CLOCK_STEP_MAX;
                    self.write_clock(pcr, false, out);
                    self.write_due_tables(pcr, out);
                }
                self.write_due_tables(now, out);
            }
        }
    }

    /// Writes the tables if their interval could be exceeded at the next clock step.
    fn write_due_tables(&mut self, now: i64, out: &mut Vec<u8>) {
        if now - self.tables_at > TABLES_STEP_MAX - CLOCK_STEP_MAX {
            self.write_tables(now, out);
        }
    }

    fn write_clock(&mut self, now: i64, is_discontinuous: bool, out: &mut Vec<u8>) {
        let pcr = wrapped(now + self.shift.expect("it is known")) * 300;
        let pid = FIRST_PID + self.clock as u16;
        // A packet without payload repeats the counter of the one before it (§2.4.3.3).
        let before = self.tracks[self.clock].continuity.wrapping_sub(1) & 0x0f;
        let mut packet = clock_packet(pid, before, pcr);
        packet[5] |= if is_discontinuous { DISCONTINUITY } else { 0 };
        out.extend(packet);
        self.pcr = Some(now);
    }

    fn write_tables(&mut self, now: i64, out: &mut Vec<u8>) {
        let mut pat = PROGRAMME.to_be_bytes().to_vec();
        pat.extend((0xe000 | MAP_PID).to_be_bytes());
        let mut map = (0xe000 | (FIRST_PID + self.clock as u16)).to_be_bytes().to_vec();
        map.extend([0xf0, 0]);
        for (track, pid) in self.tracks.iter().zip(FIRST_PID..) {
            let Elementary { descriptors, .. } = &track.elementary;
            map.push(track.elementary.stream_type(&track.input.parameters));
            map.extend((0xe000 | pid).to_be_bytes());
            map.extend((0xf000 | descriptors.len() as u16).to_be_bytes());
            map.extend(descriptors);
        }
        let [pat_counter, map_counter] = &mut self.counters;
        section_packets(PAT_PID, &section(0x00, 1, 0, &pat), pat_counter, out);
        section_packets(MAP_PID, &section(0x02, PROGRAMME, 0, &map), map_counter, out);
        self.tables_at = now;
    }
}

/// Wraps a time of 90 kHz to 33 bits.
fn wrapped(time: i64) -> u64 {
    time.rem_euclid(TIME_MODULUS as i64) as u64
}

/// Fields of a PES packet.
struct PesHeader {
    stream_id: u8,
    presented: u64,
    decode: u64,
    is_video: bool,
}

impl PesHeader {
    /// Returns the header of a packet with `payload` bytes after it.
    fn bytes(&self, payload: usize) -> Vec<u8> {
        const ALIGNED: u8 = 0x84;
        let has_decode = self.decode != self.presented;
        let times = if has_decode { 10 } else { 5 };
        // The length of video is zero (unbounded), which only video may use (§2.4.3.7).
        let length = u16::try_from(3 + times + payload).ok().filter(|_| !self.is_video);
        let mut bytes = vec![0, 0, 1, self.stream_id];
        bytes.extend(length.unwrap_or(0).to_be_bytes());
        bytes.extend([ALIGNED, if has_decode { 0xc0 } else { 0x80 }, times as u8]);
        let fields = bytes.len();
        bytes.resize(fields + times, 0);
        put_timestamp(&mut bytes[fields..], if has_decode { 0x30 } else { 0x20 }, self.presented);
        if has_decode {
            put_timestamp(&mut bytes[fields + 5..], 0x10, self.decode);
        }
        bytes
    }
}

/// Fields of the first packet of a unit.
struct UnitStart {
    pid: u16,
    is_random_access: bool,
    /// Clock reference, in ticks.
    pcr: Option<u64>,
}

/// Writes a PES packet (`head` and `body`) in transport packets; the adaptation field pads the last
/// one.
fn write_packets(
    start: &UnitStart,
    head: &[u8],
    mut body: &[u8],
    continuity: &mut u8,
    out: &mut Vec<u8>,
) {
    const RANDOM_ACCESS: u8 = 0x40;
    const HAS_PCR: u8 = 0x10;
    const UNIT_START: u16 = 0x4000;
    let mut head = head;
    let mut is_first = true;
    while !(head.is_empty() && body.is_empty()) {
        let mut packet = [0xff; TS_PACKET_BYTES];
        let has_pcr = is_first && start.pcr.is_some();
        let flags = if is_first && start.is_random_access { RANDOM_ACCESS } else { 0 }
            | if has_pcr { HAS_PCR } else { 0 };
        // Length byte, flags and clock reference of the adaptation field.
        let needed = match (flags, has_pcr) {
            (0, _) => 0,
            (_, false) => 2,
            (_, true) => 8,
        };
        let left = head.len() + body.len();
        let sent = left.min(TS_PACKET_BYTES - BYTES_OF_HEADER - needed);
        let field = TS_PACKET_BYTES - BYTES_OF_HEADER - sent;
        let unit_start = if is_first { UNIT_START } else { 0 };
        let [high, low] = (unit_start | start.pid).to_be_bytes();
        let control = if field > 0 { 0x30 } else { 0x10 };
        packet[..4].copy_from_slice(&[0x47, high, low, control | *continuity]);
        if field > 0 {
            packet[4] = (field - 1) as u8;
        }
        if field > 1 {
            packet[5] = flags;
        }
        if let Some(pcr) = start.pcr.filter(|_| has_pcr) {
            put_pcr(&mut packet, pcr);
        }
        let payload = &mut packet[BYTES_OF_HEADER + field..];
        let (from_head, rest) = head.split_at(head.len().min(sent));
        let (from_body, others) = body.split_at(sent - from_head.len());
        payload[..from_head.len()].copy_from_slice(from_head);
        payload[from_head.len()..].copy_from_slice(from_body);
        (head, body) = (rest, others);
        out.extend(packet);
        *continuity = (*continuity + 1) & 0x0f;
        is_first = false;
    }
}
