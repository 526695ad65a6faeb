// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the units of several tracks to the bytes of one file.
//!
//! The tracks' clocks are brought to one origin here: that of the range that is played (RTP-Info),
//! or, where a server names none, the arrival of the first unit. A file's tables name the codec of
//! every track, so units wait until all codecs are known, for [`CODECS_WAIT`] at most; a track that
//! is not known by then is left out. Where a sender sets its clock, its units go on from where
//! their track was ([`super::unit_clock`]).
//!
//! Sources: RFC 2326 §12.33 (RTP-Info); those of `media::mux`.
//! Does not write files.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use media::mux::{MediaWriter, WriterKind};
use media::{AccessUnit, Codec, MuxRefusal};

use super::track_queue::TrackEvent;
use super::unit_clock::UnitClock;

/// Start of a track: an RTP timestamp, and the rate that it counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackOrigin {
    /// RTP timestamp of time zero.
    pub timestamp: u32,
    /// RTP clock rate, in hertz.
    pub clock_rate_hz: u32,
}

/// Makes one file of the units of several tracks.
#[derive(Debug)]
pub struct TrackMuxer {
    kind: WriterKind,
    tracks: Vec<MuxedTrack>,
    writer: Option<MediaWriter>,
    /// Units that wait for the codecs, with their arrivals from the first one on.
    waiting: VecDeque<(usize, AccessUnit, Duration)>,
    waiting_bytes: usize,
    first_arrival: Option<Instant>,
    /// Time of the file at which it begins.
    begins: Duration,
    /// Time of the latest unit, from the origin.
    reached: Duration,
    counts: MuxCounts,
}

/// Counts of a [`TrackMuxer`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MuxCounts {
    /// Units that were left out.
    pub left_out_units: u64,
    /// Those of them whose times did not follow the others of their track.
    pub off_clock_units: u64,
    /// Times that the sender's clock was set: all units were written, from where the track was.
    pub clock_jumps: u64,
    /// Reasons of them, each once, and of tracks that were left out.
    pub faults: Vec<String>,
}

#[derive(Debug, Default)]
struct MuxedTrack {
    codec: Option<Codec>,
    /// ISO 639-2.
    language: Option<[u8; 3]>,
    origin: Option<TrackOrigin>,
    /// Its timeline, from the first unit on.
    clock: Option<UnitClock>,
    /// Its number in the file.
    number: Option<usize>,
}

impl TrackMuxer {
    /// A muxer of so many tracks.
    pub fn new(kind: WriterKind, tracks: usize) -> TrackMuxer {
        TrackMuxer {
            kind,
            tracks: (0..tracks).map(|_| MuxedTrack::default()).collect(),
            writer: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            first_arrival: None,
            begins: Duration::ZERO,
            reached: Duration::ZERO,
            counts: MuxCounts::default(),
        }
    }

    /// Sets the origin of each track, before the first unit, and where in its file that lies: not
    /// at zero behind an earlier session.
    pub fn begin_at(&mut self, origins: &[Option<TrackOrigin>], at: Duration) {
        self.begins = at;
        for (track, origin) in self.tracks.iter_mut().zip(origins) {
            track.origin = *origin;
        }
    }

    /// Names the languages of the tracks, as far as they are those of files (ISO 639-2), before the
    /// first unit.
    pub fn name_languages<'a>(&mut self, languages: impl Iterator<Item = Option<&'a str>>) {
        for (track, language) in self.tracks.iter_mut().zip(languages) {
            let code = language.and_then(|language| language.as_bytes().try_into().ok());
            track.language = code.filter(|code: &[u8; 3]| code.iter().all(u8::is_ascii_lowercase));
        }
    }

    /// Takes an event of a track; appends what is ready to `out`.
    pub fn take(&mut self, track: usize, event: TrackEvent, out: &mut Vec<u8>) {
        match event {
            // Parameters that change later are in the units as well.
            TrackEvent::Codec(codec) => drop(self.tracks[track].codec.get_or_insert(codec)),
            TrackEvent::Unit(unit) => {
                let now = Instant::now();
                let arrival = now - *self.first_arrival.get_or_insert(now);
                if self.writer.is_none() {
                    self.waiting_bytes += unit.bytes.len();
                    self.waiting.push_back((track, unit, arrival));
                } else {
                    self.write(track, unit, arrival, out);
                }
            }
        }
        self.begin_if_known(out);
    }

    /// Begins the file where codecs have been waited for long enough; to be called now and then.
    pub fn check_time(&mut self, out: &mut Vec<u8>) {
        self.begin_if_known(out);
    }

    /// Counts so far.
    pub fn counts(&self) -> &MuxCounts {
        &self.counts
    }

    /// Time of the latest unit that was taken, from the origin.
    pub fn reached(&self) -> Duration {
        self.reached
    }

    /// Appends all that waits; the file ends there, and takes no more units.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if self.writer.is_none() && !self.waiting.is_empty() {
            self.begin(out);
        }
        let waiting = |track: &MuxedTrack| track.clock.as_ref().map_or(0, UnitClock::waiting);
        for index in 0..self.tracks.len() {
            self.drop_off_clock(index, waiting(&self.tracks[index]));
        }
        if let Some(writer) = self.writer.take() {
            writer.finish(out);
        }
        self.tracks.clear();
    }

    /// Does the same, and returns the counts.
    pub fn finish(mut self, out: &mut Vec<u8>) -> MuxCounts {
        self.end(out);
        self.counts
    }

    fn begin_if_known(&mut self, out: &mut Vec<u8>) {
        if self.writer.is_some() || self.waiting.is_empty() {
            return;
        }
        let are_known = self.tracks.iter().all(|track| track.codec.is_some());
        let waited = self.first_arrival.map_or(Duration::ZERO, |first| first.elapsed());
        if are_known || waited >= CODECS_WAIT || self.waiting_bytes >= WAITING_BYTES_MAX {
            self.begin(out);
        }
    }

    /// Begins the file with the tracks whose codecs are known.
    fn begin(&mut self, out: &mut Vec<u8>) {
        let (mut codecs, mut languages) = (Vec::new(), Vec::new());
        for (index, track) in self.tracks.iter_mut().enumerate() {
            let Some(codec) = &track.codec else {
                let fault = format!("track {index}: left out, no parameters of its codec came");
                self.counts.faults.push(fault);
                continue;
            };
            // Each alone, so that one that the file does not hold costs no other.
            if let Err(refusal) = MediaWriter::new(self.kind, std::slice::from_ref(codec)) {
                self.counts.faults.push(format!("track {index}: left out: {refusal}"));
                continue;
            }
            track.number = Some(codecs.len());
            codecs.push(codec.clone());
            languages.push(track.language);
        }
        match MediaWriter::behind(self.begins, self.kind, &codecs) {
            Ok(mut writer) => {
                writer.set_languages(&languages);
                self.writer = Some(writer);
            }
            Err(refusal) => self.note(&refusal),
        }
        self.waiting_bytes = 0;
        for (track, unit, arrival) in std::mem::take(&mut self.waiting) {
            self.write(track, unit, arrival, out);
        }
    }

    fn write(&mut self, track: usize, unit: AccessUnit, arrival: Duration, out: &mut Vec<u8>) {
        let about = &mut self.tracks[track];
        let (Some(number), Some(codec), Some(writer)) =
            (about.number, &about.codec, &mut self.writer)
        else {
            self.counts.left_out_units += 1;
            return;
        };
        let rate = codec.clock_rate_hz();
        let clock = about.clock.get_or_insert_with(|| {
            let shift = match about.origin {
                Some(origin) => origin.shift(unit.time, rate),
                None => unit.time - (arrival.as_secs_f64() * f64::from(rate)) as i64,
            };
            UnitClock::new(rate, -shift)
        });
        let step = clock.push(unit, arrival);
        let mut refusals = Vec::new();
        for unit in step.units {
            let reached = unit.time.max(0) as f64 / f64::from(rate);
            self.reached = self.reached.max(Duration::from_secs_f64(reached));
            refusals.extend(writer.push(number, unit, out).err());
        }
        refusals.iter().for_each(|refusal| self.note(refusal));
        if let Some(by_s) = step.jump_s {
            self.counts.clock_jumps += 1;
            self.add_fault(format!(
                "track {track}: the sender's clock jumped by {by_s:.3} s; its units go on from \
                 where the track was"
            ));
        }
        if step.placed > 0 {
            self.add_fault(format!(
                "track {track}: times of units did not follow those before; they have those of \
                 their neighbours"
            ));
        }
    }

    /// Counts units whose times did not follow the others.
    fn drop_off_clock(&mut self, track: usize, units: u64) {
        if units == 0 {
            return;
        }
        self.counts.left_out_units += units;
        self.counts.off_clock_units += units;
        self.add_fault(format!(
            "track {track}: {units} units left out: their times do not follow those before"
        ));
    }

    /// Keeps a fault, once.
    fn add_fault(&mut self, fault: String) {
        if self.counts.faults.len() < FAULTS_MAX && !self.counts.faults.contains(&fault) {
            self.counts.faults.push(fault);
        }
    }

    fn note(&mut self, refusal: &MuxRefusal) {
        // Nobody could show these: the file is no less whole without them.
        let is_missed = !matches!(refusal, MuxRefusal::Leading { .. });
        self.counts.left_out_units += u64::from(is_missed);
        self.counts.off_clock_units += u64::from(matches!(refusal, MuxRefusal::TimeJump { .. }));
        self.add_fault(match refusal {
            // A stream that was joined on its way; nobody has to do anything.
            MuxRefusal::NoStart { track } => {
                format!("track {track}: pictures before its first key frame are left out")
            }
            MuxRefusal::Leading { track } => {
                format!("track {track}: pictures that refer to those before the first are left out")
            }
            refusal => refusal.to_string(),
        });
    }
}

impl TrackOrigin {
    /// The time of the origin on the timeline of a unit, which is less than half a turn of the
    /// timestamps away. Both in units of a clock of `rate`.
    fn shift(self, unit_time: i64, rate: u32) -> i64 {
        let scaled = |stamps: i64| {
            (i128::from(stamps) * i128::from(rate) / i128::from(self.clock_rate_hz.max(1))) as i64
        };
        let (origin, turn) = (scaled(self.timestamp.into()), scaled(1 << 32).max(1));
        let turns = (unit_time - origin + turn / 2).div_euclid(turn);
        origin + turns * turn
    }
}

/// Parameter sets come with key frames, and these some seconds apart.
const CODECS_WAIT: Duration = Duration::from_secs(10);
const WAITING_BYTES_MAX: usize = 64 << 20;
const FAULTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_is_the_nearest_turn_of_the_timestamps() {
        let origin = TrackOrigin { timestamp: u32::MAX - 99, clock_rate_hz: 90_000 };
        let at = i64::from(u32::MAX) - 99;
        assert_eq!(origin.shift(at + 500, 90_000), at);
        // The first unit came after the wrap, and its depayloader began there.
        assert_eq!(origin.shift(400, 90_000), at - (1 << 32));
        assert_eq!(origin.shift(200, 45_000), (at - (1 << 32)) / 2);
    }
}
