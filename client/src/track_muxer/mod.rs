// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multiplexes the units of several tracks into the bytes of one file.
//!
//! The tracks' clocks are mapped to one origin: that of the played range (RTP-Info), or, where a
//! server does not name it for each track, the time of the sender reports. Without reports a track
//! begins at the arrival of its first unit. The muxer waits for reports for [`REPORTS_WAIT`] at
//! most. Where they arrive later, tracks are moved once, each at its next unit where decoding
//! begins, and never back: all tracks that lag behind the others are moved forward. A file's tables
//! name the codec of every track, so units wait until all codecs are known, for [`CODECS_WAIT`] at
//! most; a track whose codec is still unknown then is left out. One whose codec the description
//! names, and that sends nothing, such as a microphone that is switched off, is awaited for
//! [`SILENT_WAIT`], so that files begin with the units of all tracks; it is in the tables, and its
//! units are whenever they arrive. Where a sender sets its clock, the timeline of its track
//! continues without a jump ([`super::unit_clock`]).
//!
//! Sources: RFC 2326 §12.33 (RTP-Info); RFC 3550 §6.4.1 (sender reports); those of `media::mux`.
//! Does not write files.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use clock::Clock;
use media::mux::{FileStart, MediaWriter, Rotation, TRACKS_MAX, WriterKind};
use media::tracks::TrackMedia;
use media::{AccessUnit, Codec, MuxRefusal};

use super::sender_clock::{APART_S_MAX, SenderClock};
use super::track_queue::{TrackEvent, unit_bytes};
use super::unit_clock::UnitClock;

/// Start of a track: an RTP timestamp and its clock rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackOrigin {
    /// RTP timestamp of time zero.
    pub timestamp: u32,
    /// RTP clock rate, in hertz.
    pub clock_rate_hz: u32,
}

/// Multiplexes the units of several tracks into one file.
#[derive(Debug)]
pub struct TrackMuxer {
    kind: WriterKind,
    clock: Clock,
    tracks: Vec<MuxedTrack>,
    writer: Option<MediaWriter>,
    /// True if no track can be written: all units are left out.
    is_refused: bool,
    /// Limits of files; `None` if all units go into one.
    limits: Option<Rotation>,
    /// Units that wait for the codecs, with their arrivals relative to the first unit's.
    waiting: VecDeque<(usize, AccessUnit, Duration)>,
    waiting_bytes: usize,
    first_arrival: Option<Instant>,
    /// The waits for codecs and reports began: units may have been held until PLAY was answered.
    first_taken: Option<Instant>,
    /// Arrival of the unit that was written last, relative to the first unit's.
    last_arrival: Duration,
    /// Files that have begun in the caller's buffer.
    file_starts: Vec<MuxedFileStart>,
    /// Start of the last file, relative to the first unit's arrival.
    last_start: Duration,
    /// Times of units from the origin, and their arrivals, both relative to the first.
    arrivals: VecDeque<(Duration, Duration)>,
    /// Time at which the file begins.
    begins: Duration,
    /// Time of the latest unit, from the origin.
    reached: Duration,
    counts: MuxCounts,
}

/// Start of a file in the buffer of a [`TrackMuxer`]'s caller.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MuxedFileStart {
    /// Offset of its first byte.
    pub offset: usize,
    /// Arrival of its first unit, to a tenth of a second.
    pub arrived: Instant,
}

/// Counts of a [`TrackMuxer`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MuxCounts {
    /// Units that were left out.
    pub left_out_units: u64,
    /// Units among them that a decoder could have shown: their times did not follow the others, or
    /// the writer refused them.
    pub lost_units: u64,
    /// Jumps of a sender's clock: all units were written, and the track's timeline continued.
    pub clock_jumps: u64,
    /// Reasons for leaving out units, each once, and for leaving out tracks.
    pub faults: Vec<String>,
}

#[derive(Debug, Default)]
struct MuxedTrack {
    codec: Option<Codec>,
    /// A unit of it has arrived.
    has_sent: bool,
    /// ISO 639-2.
    language: Option<[u8; 3]>,
    origin: Option<TrackOrigin>,
    /// Its last plausible sender report.
    report: Option<SenderClock>,
    /// It is synchronised with the other tracks, as far as sender reports allow.
    is_in_step: bool,
    /// Its timeline, from the first unit on.
    clock: Option<UnitClock>,
    /// Its track number in the file.
    number: Option<usize>,
}

impl TrackMuxer {
    /// A muxer of this number of tracks. It waits for codecs and reports by `clock`.
    pub fn new(kind: WriterKind, tracks: usize, clock: &Clock) -> TrackMuxer {
        TrackMuxer {
            kind,
            clock: clock.clone(),
            tracks: (0..tracks).map(|_| MuxedTrack::default()).collect(),
            writer: None,
            is_refused: false,
            limits: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            first_arrival: None,
            first_taken: None,
            last_arrival: Duration::ZERO,
            file_starts: Vec::new(),
            last_start: Duration::ZERO,
            arrivals: VecDeque::new(),
            begins: Duration::ZERO,
            reached: Duration::ZERO,
            counts: MuxCounts::default(),
        }
    }

    /// Continues in another file at these limits, if the format of the files has parts of its own
    /// ([`MediaWriter::rotate`]). Call it before the first unit.
    pub fn rotate(&mut self, limits: Rotation) {
        self.limits = Some(limits);
    }

    /// Removes and returns the files that have begun in the caller's buffer since the last call.
    pub fn take_file_starts(&mut self) -> Vec<MuxedFileStart> {
        self.note_file_starts();
        std::mem::take(&mut self.file_starts)
    }

    /// Notes the files that began with the last unit written, or at the end.
    fn note_file_starts(&mut self) {
        let Some((writer, first)) = self.writer.as_mut().zip(self.first_arrival) else { return };
        for FileStart { offset, age, .. } in writer.take_file_starts() {
            let arrived = first + self.start_of_file(age);
            self.file_starts.push(MuxedFileStart { offset, arrived });
        }
    }

    /// Arrival of the first unit of a file, whose times are `age` before the latest, relative to
    /// the first unit's. A sender may pause or hurry in between, so it is looked up. Tracks may be
    /// far ahead of each other: no file begins before the one in front of it.
    fn start_of_file(&mut self, age: Duration) -> Duration {
        let begins = self.reached.saturating_sub(age);
        let before = self.arrivals.partition_point(|(reached, _)| *reached <= begins);
        let found = self.arrivals.get(before.saturating_sub(1)).map(|(_, arrival)| *arrival);
        // The times of a sender may be hours apart: they do not tell when a unit arrived.
        let found = found.filter(|_| age <= AGE_MAX).unwrap_or(self.last_arrival);
        self.last_start = self.last_start.max(found);
        self.last_start
    }

    /// Notes that the times have reached a new place with a unit of this arrival.
    fn note_arrival(&mut self, arrival: Duration) {
        let is_far = |(reached, arrived): &(Duration, Duration)| {
            self.reached >= *reached + ARRIVALS_APART
                || self.reached > *reached && arrival >= *arrived + ARRIVALS_APART
        };
        if self.arrivals.back().is_none_or(is_far) {
            self.arrivals.push_back((self.reached, arrival));
            if self.arrivals.len() > ARRIVALS_MAX {
                self.arrivals.pop_front();
            }
        }
    }

    /// The kind of the files.
    pub fn kind(&self) -> WriterKind {
        self.kind
    }

    /// Sets the origin of each track, before the first unit, and the time `at` of the origin in the
    /// file, which is not zero after an earlier session.
    pub fn begin_at(&mut self, origins: &[Option<TrackOrigin>], at: Duration) {
        self.begins = at;
        for (track, origin) in self.tracks.iter_mut().zip(origins) {
            track.origin = *origin;
        }
    }

    /// Sets the languages of the tracks before the first unit; ignores codes that are not of ISO
    /// 639-2.
    pub fn name_languages<'a>(&mut self, languages: impl Iterator<Item = Option<&'a str>>) {
        for (track, language) in self.tracks.iter_mut().zip(languages) {
            let code = language.and_then(|language| language.as_bytes().try_into().ok());
            track.language = code.filter(|code: &[u8; 3]| code.iter().all(u8::is_ascii_lowercase));
        }
    }

    /// Handles an event of a track; appends finished bytes to `out`.
    pub fn take(&mut self, track: usize, event: TrackEvent, out: &mut Vec<u8>) {
        match event {
            // Later changes of parameters are contained in the units as well.
            TrackEvent::Codec(codec) => drop(self.tracks[track].codec.get_or_insert(codec)),
            TrackEvent::Report(report) => {
                if report.follows(self.tracks[track].report.as_ref()) {
                    self.tracks[track].report = Some(report);
                    self.keep_step();
                }
            }
            TrackEvent::Undecodable(units) => {
                self.counts.left_out_units += units;
                self.add_fault(format!(
                    "track {track}: {units} units left out: the parameters of its codec came later"
                ));
            }
            TrackEvent::Unit(unit, arrived) => {
                self.first_taken.get_or_insert_with(|| self.clock.now());
                let first = *self.first_arrival.get_or_insert(arrived);
                let arrival = arrived.saturating_duration_since(first);
                self.tracks[track].has_sent = true;
                if self.is_refused {
                    self.counts.left_out_units += 1;
                } else if self.writer.is_none() {
                    self.waiting_bytes += unit_bytes(&unit);
                    self.waiting.push_back((track, unit, arrival));
                } else {
                    self.write(track, unit, arrival, out);
                }
            }
        }
        self.begin_if_known(out);
    }

    /// Begins the file once the wait for codecs has expired; must be called periodically.
    pub fn check_time(&mut self, out: &mut Vec<u8>) {
        self.begin_if_known(out);
    }

    /// Appends the units whose times are known: the media hardly advances.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if let Some(writer) = &mut self.writer {
            writer.flush(out);
        }
    }

    /// Counts so far.
    pub fn counts(&self) -> &MuxCounts {
        &self.counts
    }

    /// Time of the latest accepted unit, from the origin.
    pub fn reached(&self) -> Duration {
        self.reached
    }

    /// Appends all waiting units and ends the file, which accepts no more.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if self.writer.is_none() && !self.waiting.is_empty() {
            self.begin(out);
        }
        let waiting = |track: &MuxedTrack| track.clock.as_ref().map_or(0, UnitClock::waiting);
        for index in 0..self.tracks.len() {
            self.drop_off_clock(index, waiting(&self.tracks[index]));
        }
        if let Some(writer) = &mut self.writer {
            writer.end(out);
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
        let have_sent = self.tracks.iter().all(|track| track.has_sent);
        let since = |first| self.clock.now().saturating_duration_since(first);
        let waited = self.first_taken.map_or(Duration::ZERO, since);
        let are_timed = self.tracks.len() < 2
            || self.have_origins()
            || self.tracks.iter().all(|track| track.report.is_some())
            || waited >= REPORTS_WAIT;
        if are_known && are_timed && (have_sent || waited >= SILENT_WAIT)
            || waited >= CODECS_WAIT
            || self.waiting_bytes >= WAITING_BYTES_MAX
        {
            self.begin(out);
        }
    }

    /// Begins the file with the tracks whose codecs are known.
    fn begin(&mut self, out: &mut Vec<u8>) {
        let (mut codecs, mut languages, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for (index, track) in self.tracks.iter_mut().enumerate() {
            let Some(codec) = &track.codec else {
                let fault = format!("track {index}: left out, no parameters of its codec came");
                faults.push(fault);
                continue;
            };
            // Each codec is tested alone, so that an unsupported one excludes no other.
            if let Err(refusal) = MediaWriter::new(self.kind, std::slice::from_ref(codec)) {
                faults.push(format!("track {index}: left out: {refusal}"));
                continue;
            }
            if codecs.len() == TRACKS_MAX {
                faults.push(format!("track {index}: left out: a file has {TRACKS_MAX} at most"));
                continue;
            }
            track.number = Some(codecs.len());
            codecs.push(codec.clone());
            languages.push(track.language);
        }
        match MediaWriter::behind(self.begins, self.kind, &codecs) {
            Ok(mut writer) => {
                writer.set_languages(&languages);
                if let Some(limits) = self.limits.clone() {
                    writer.rotate(limits);
                }
                self.writer = Some(writer);
            }
            Err(refusal) => {
                self.is_refused = true;
                faults.push(refusal.to_string());
            }
        }
        faults.into_iter().for_each(|fault| self.add_fault(fault));
        self.waiting_bytes = 0;
        self.begin_clocks();
        for (track, unit, arrival) in std::mem::take(&mut self.waiting) {
            self.write(track, unit, arrival, out);
        }
    }

    /// True where the server has announced the start of each track.
    fn have_origins(&self) -> bool {
        self.tracks.iter().all(|track| track.origin.is_some())
    }

    /// Number of the track with which the others are synchronised: the first video track.
    fn reference(&self) -> usize {
        let is_video = |track: &MuxedTrack| {
            track.codec.as_ref().is_some_and(|codec| codec.media() == TrackMedia::Video)
        };
        self.tracks.iter().position(is_video).unwrap_or(0)
    }

    /// Starts the clocks of the tracks that have waiting units.
    fn begin_clocks(&mut self) {
        let reference = self.reference();
        let mut earliest = 0.0_f64;
        let others = (0..self.tracks.len()).filter(|&track| track != reference);
        for track in std::iter::once(reference).chain(others) {
            let first = self.waiting.iter().find(|(of, ..)| *of == track);
            let Some(&(_, AccessUnit { time, .. }, arrival)) = first else { continue };
            earliest = earliest.min(self.begin_clock(track, time, arrival));
        }
        if !self.have_origins() {
            for clock in self.tracks.iter_mut().filter_map(|track| track.clock.as_mut()) {
                clock.move_on(-earliest);
            }
        }
    }

    /// Starts the clock of a track with a unit; returns its time in seconds.
    fn begin_clock(&mut self, track: usize, unit_time: i64, arrival: Duration) -> f64 {
        let Some(codec) = &self.tracks[track].codec else { return 0.0 };
        let rate = codec.clock_rate_hz();
        let mut start_s = arrival.as_secs_f64();
        let is_near = |time_s: &f64| (time_s - start_s).abs() <= APART_S_MAX;
        let origin = self.tracks[track].origin.filter(|_| self.have_origins());
        let announced_s = origin.map(|origin| {
            let announced_s = (unit_time - origin.shift(unit_time, rate)) as f64 / f64::from(rate);
            // Timestamps may have wrapped before the first unit.
            let turn_s = 2_f64.powi(32) / f64::from(origin.clock_rate_hz.max(1));
            announced_s + ((start_s - announced_s) / turn_s).round() * turn_s
        });
        let reported_s = self.reported_s(track, unit_time, rate).filter(is_near);
        // A title may be sent faster than it plays. A microphone that is switched on may have other
        // timestamps than PLAY was answered with.
        let apart_s_max = if self.waiting.is_empty() { APART_S_MAX } else { TITLE_APART_S_MAX };
        let reached_s = self.reached.as_secs_f64();
        let is_in_title = |time_s: &f64| (time_s - reached_s).abs() <= apart_s_max;
        let is_reported = |time_s: &f64| {
            reported_s.is_none_or(|reported_s| (time_s - reported_s).abs() <= APART_S_MAX)
        };
        let announced_s = announced_s
            .filter(|time_s| (is_near(time_s) || is_in_title(time_s)) && is_reported(time_s));
        let reported_s = announced_s.or(reported_s);
        start_s = reported_s.unwrap_or(start_s);
        let start = (start_s * f64::from(rate)).round() as i64;
        let about = &mut self.tracks[track];
        about.is_in_step = reported_s.is_some();
        about.clock = Some(UnitClock::new(rate, unit_time, start));
        start_s
    }

    /// Time of a unit in the file, in seconds, by the sender reports of its track and of the
    /// reference track; none where a report is missing.
    fn reported_s(&self, track: usize, unit_time: i64, rate: u32) -> Option<f64> {
        let to = &self.tracks[self.reference()];
        let (clock, at) = to.clock.as_ref().zip(to.report)?;
        let report_time = at.origin.shift(clock.last_time(), clock.rate_hz());
        let report = self.tracks[track].report?;
        Some(clock.seconds(report_time) + report.unit_s(unit_time, rate, at.ntp))
    }

    /// Moves tracks that are not yet synchronised, by their sender's reports; never moves one back.
    fn keep_step(&mut self) {
        for track in 0..self.tracks.len() {
            let about = &self.tracks[track];
            let Some(clock) = about.clock.as_ref().filter(|_| !about.is_in_step) else { continue };
            let time = clock.last_time();
            let Some(reported_s) = self.reported_s(track, time, clock.rate_hz()) else { continue };
            let by_s = reported_s - clock.seconds(time);
            if by_s.abs() > APART_S_MAX {
                continue;
            }
            self.tracks[track].is_in_step = true;
            if by_s.abs() < STEP_S_MIN {
                continue;
            }
            for (other, about) in self.tracks.iter_mut().enumerate() {
                let is_behind = (other == track) == (by_s > 0.0);
                if let Some(clock) = about.clock.as_mut().filter(|_| is_behind) {
                    clock.move_on(by_s.abs());
                }
            }
        }
    }

    fn write(&mut self, track: usize, unit: AccessUnit, arrival: Duration, out: &mut Vec<u8>) {
        if self.tracks[track].clock.is_none() {
            self.begin_clock(track, unit.time, arrival);
        }
        let about = &mut self.tracks[track];
        let (Some(number), Some(clock), Some(writer)) =
            (about.number, &mut about.clock, &mut self.writer)
        else {
            self.counts.left_out_units += 1;
            return;
        };
        let rate = clock.rate_hz();
        let step = clock.push(unit, arrival);
        self.last_arrival = self.last_arrival.max(arrival);
        let mut refusals = Vec::new();
        let is_placed = !step.units.is_empty();
        for unit in step.units {
            let reached = unit.time.max(0) as f64 / f64::from(rate);
            self.reached = self.reached.max(Duration::from_secs_f64(reached));
            refusals.extend(writer.push(number, unit, out).err());
        }
        if is_placed {
            self.note_arrival(arrival);
        }
        refusals.iter().for_each(|refusal| self.note(refusal));
        self.note_file_starts();
        if let Some(by_s) = step.jump_s {
            self.counts.clock_jumps += 1;
            // Earlier reports do not apply to the new clock.
            self.tracks[track].report = None;
            let is_reference = track == self.reference();
            for (other, about) in self.tracks.iter_mut().enumerate() {
                about.is_in_step &= other != track && !is_reference;
            }
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
        self.counts.lost_units += units;
        self.add_fault(format!(
            "track {track}: {units} units left out: their times do not follow those before"
        ));
    }

    /// Records a fault once.
    fn add_fault(&mut self, fault: String) {
        let faults = &mut self.counts.faults;
        if faults.contains(&fault) {
            return;
        }
        match faults.len() {
            ..FAULTS_MAX => faults.push(fault),
            FAULTS_MAX => faults.push("further faults of the tracks are not named".to_owned()),
            _ => {}
        }
    }

    fn note(&mut self, refusal: &MuxRefusal) {
        // A decoder could not show these units: the file is complete without them.
        let is_missed = !matches!(refusal, MuxRefusal::Leading { .. });
        self.counts.left_out_units += u64::from(is_missed);
        let has_no_use = matches!(
            refusal,
            MuxRefusal::NoStart { .. } | MuxRefusal::Leading { .. } | MuxRefusal::Empty { .. }
        );
        self.counts.lost_units += u64::from(!has_no_use);
        self.add_fault(match refusal {
            // The stream was joined midway; no action is needed.
            MuxRefusal::NoStart { track } => {
                format!("track {track}: pictures before its first key frame are left out")
            }
            MuxRefusal::Leading { track } => {
                format!("track {track}: pictures that refer to those before the first are left out")
            }
            // One text, however late each is: further faults are named, too.
            MuxRefusal::Late { track, .. } => {
                format!("track {track}: units that are behind those of the file are left out")
            }
            refusal => refusal.to_string(),
        });
    }
}

impl TrackOrigin {
    /// The time of the origin on the timeline of a unit that is less than half the timestamps'
    /// range away. Both are in units of a clock of `rate`.
    pub(super) fn shift(self, unit_time: i64, rate: u32) -> i64 {
        let scaled = |stamps: i64| {
            (i128::from(stamps) * i128::from(rate) / i128::from(self.clock_rate_hz.max(1))) as i64
        };
        let (origin, turn) = (scaled(self.timestamp.into()), scaled(1 << 32).max(1));
        let turns = (unit_time - origin + turn / 2).div_euclid(turn);
        origin + turns * turn
    }
}

/// Parameter sets are sent with key frames, which are some seconds apart, and up to twenty where
/// little moves. Less than the time after which a recorder asks its camera anew.
const CODECS_WAIT: Duration = Duration::from_secs(25);
/// Time for which the first unit of a track of known codec is awaited: sound may be sent seconds
/// behind its pictures.
const SILENT_WAIT: Duration = Duration::from_secs(5);
/// Most senders report at the start; the others some seconds later.
const REPORTS_WAIT: Duration = Duration::from_secs(1);
/// Largest plausible time of the first unit of a track when a file begins: a title may be sent many
/// times faster than it plays.
const TITLE_APART_S_MAX: f64 = 600.0;
/// Half a picture: a smaller offset is imperceptible, and within the precision of reports.
const STEP_S_MIN: f64 = 0.02;
/// Distance of the times whose arrivals are held, and of these: 600 in [`AGE_MAX`], and as many
/// where times and arrivals diverge; 38 kB.
const ARRIVALS_APART: Duration = Duration::from_millis(100);
const ARRIVALS_MAX: usize = 1200;
/// Longest media time of a file that begins: twice as long as its start waits for parameters.
const AGE_MAX: Duration = Duration::from_secs(60);
const WAITING_BYTES_MAX: usize = 64 << 20;
const FAULTS_MAX: usize = 16;

#[cfg(test)]
mod tests;
