// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multiplexes the units of several tracks into the bytes of one file.
//!
//! The tracks' clocks are mapped to one origin: that of the played range (RTP-Info), or, where a
//! server does not name it for each track, the time of the sender reports. Without reports a track
//! begins at the arrival of its first unit. The muxer waits for reports for [`REPORTS_WAIT`] at
//! most. Where they arrive later, tracks are moved once, each at its next unit where decoding
//! begins, and never back: all tracks that lag behind the others are moved forward. A file's tables
//! name the codec of every track, so units wait until all codecs are known, for [`CODECS_WAIT`] at
//! most; a track whose codec is still unknown then is left out. Where a sender sets its clock, the
//! timeline of its track continues without a jump ([`super::unit_clock`]).
//!
//! Sources: RFC 2326 §12.33 (RTP-Info); RFC 3550 §6.4.1 (sender reports); those of `media::mux`.
//! Does not write files.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use media::mux::{MediaWriter, WriterKind};
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
    tracks: Vec<MuxedTrack>,
    writer: Option<MediaWriter>,
    /// Units that wait for the codecs, with their arrivals relative to the first unit's.
    waiting: VecDeque<(usize, AccessUnit, Duration)>,
    waiting_bytes: usize,
    first_arrival: Option<Instant>,
    /// Time at which the file begins.
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
    /// Units among them whose times did not follow the others of their track.
    pub off_clock_units: u64,
    /// Jumps of a sender's clock: all units were written, and the track's timeline continued.
    pub clock_jumps: u64,
    /// Reasons for leaving out units, each once, and for leaving out tracks.
    pub faults: Vec<String>,
}

#[derive(Debug, Default)]
struct MuxedTrack {
    codec: Option<Codec>,
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
    /// A muxer of this number of tracks.
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
            TrackEvent::Unit(unit) => {
                let now = Instant::now();
                let arrival = now - *self.first_arrival.get_or_insert(now);
                if self.writer.is_none() {
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
        let are_timed = self.tracks.len() < 2
            || self.have_origins()
            || self.tracks.iter().all(|track| track.report.is_some())
            || waited >= REPORTS_WAIT;
        if are_known && are_timed
            || waited >= CODECS_WAIT
            || self.waiting_bytes >= WAITING_BYTES_MAX
        {
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
            // Each codec is tested alone, so that an unsupported one excludes no other.
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
        let origin = self.tracks[track].origin.filter(|_| self.have_origins());
        let reported_s = match origin {
            Some(origin) => {
                Some((unit_time - origin.shift(unit_time, rate)) as f64 / f64::from(rate))
            }
            None => self.reported_s(track, unit_time, rate),
        };
        let is_plausible =
            |reported: &f64| origin.is_some() || (reported - start_s).abs() <= APART_S_MAX;
        let reported_s = reported_s.filter(is_plausible);
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
        let mut refusals = Vec::new();
        for unit in step.units {
            let reached = unit.time.max(0) as f64 / f64::from(rate);
            self.reached = self.reached.max(Duration::from_secs_f64(reached));
            refusals.extend(writer.push(number, unit, out).err());
        }
        refusals.iter().for_each(|refusal| self.note(refusal));
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
        self.counts.off_clock_units += units;
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
        self.counts.off_clock_units += u64::from(matches!(refusal, MuxRefusal::TimeJump { .. }));
        self.add_fault(match refusal {
            // The stream was joined midway; no action is needed.
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

/// Parameter sets are sent with key frames, which are some seconds apart.
const CODECS_WAIT: Duration = Duration::from_secs(10);
/// Most senders report at the start; the others some seconds later.
const REPORTS_WAIT: Duration = Duration::from_secs(1);
/// Half a picture: a smaller offset is imperceptible, and within the precision of reports.
const STEP_S_MIN: f64 = 0.02;
const WAITING_BYTES_MAX: usize = 64 << 20;
const FAULTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_bounded_in_number_and_the_rest_is_told_of_once() {
        let mut muxer = TrackMuxer::new(WriterKind::TransportStream, 1);
        (0..40).for_each(|n| muxer.add_fault(format!("clock jumped by {} s", n % 20)));
        let faults = &muxer.counts.faults;
        assert_eq!((faults.len(), &faults[15][..]), (FAULTS_MAX + 1, "clock jumped by 15 s"));
        assert_eq!(faults[FAULTS_MAX], "further faults of the tracks are not named");
    }

    #[test]
    fn the_origin_is_the_nearest_turn_of_the_timestamps() {
        let origin = TrackOrigin { timestamp: u32::MAX - 99, clock_rate_hz: 90_000 };
        let at = i64::from(u32::MAX) - 99;
        assert_eq!(origin.shift(at + 500, 90_000), at);
        // The first unit arrived after the wrap, and its depayloader began there.
        assert_eq!(origin.shift(400, 90_000), at - (1 << 32));
        assert_eq!(origin.shift(200, 45_000), (at - (1 << 32)) / 2);
    }

    const VIDEO: u32 = 90_000;
    const SOUND: u32 = 48_000;
    /// Start timestamps of the video and audio clocks; the second soon wraps.
    const STARTS: [u32; 2] = [111_111, u32::MAX - 1000];

    fn unit(time: i64) -> AccessUnit {
        let bytes = vec![0, 0, 0, 2, 0x65, 0x88];
        AccessUnit { time, bytes, is_start: true, is_after_loss: false }
    }

    fn muxer() -> TrackMuxer {
        let mut muxer = TrackMuxer::new(WriterKind::TransportStream, 2);
        let video = media::tracks::H264Config {
            length_bytes: 4,
            profile: [0x4d, 0, 0x29],
            sequence_sets: vec![vec![0x67, 0x4d, 0x00, 0x0a, 0xf2, 0xbc, 0x80]],
            picture_sets: vec![vec![0x68, 7]],
        };
        let codecs = [Codec::H264(video), Codec::Ac3 { rate_hz: SOUND, channels: 2 }];
        for (track, codec) in codecs.into_iter().enumerate() {
            muxer.take(track, TrackEvent::Codec(codec), &mut Vec::new());
        }
        muxer
    }

    /// A report of a track for the time `at_s` after its start; the sender read the wall clock
    /// `late_s` too late.
    fn report(track: usize, at_s: f64, late_s: f64) -> TrackEvent {
        let clock_rate_hz = [VIDEO, SOUND][track];
        let stamps = (at_s * f64::from(clock_rate_hz)) as u32;
        let timestamp = STARTS[track].wrapping_add(stamps);
        // The NTP era ends between the reports.
        let ntp = ((at_s + late_s - 0.1) * 4_294_967_296.0) as i64;
        let origin = TrackOrigin { timestamp, clock_rate_hz };
        TrackEvent::Report(SenderClock { ntp: ntp.cast_unsigned(), origin })
    }

    /// Time in the file of a unit `at_s` after the start of its track's clock.
    fn place(muxer: &TrackMuxer, track: usize, at_s: f64) -> f64 {
        let rate = f64::from([VIDEO, SOUND][track]);
        let time = i64::from(STARTS[track]) + (at_s * rate) as i64;
        muxer.tracks[track].clock.as_ref().unwrap().seconds(time)
    }

    fn places(muxer: &TrackMuxer, at_s: f64) -> [f64; 2] {
        [0, 1].map(|track| place(muxer, track, at_s))
    }

    /// Passes a unit of each track to the muxer.
    fn take_units(muxer: &mut TrackMuxer, at_s: f64) {
        for (track, rate) in [VIDEO, SOUND].into_iter().enumerate() {
            let time = i64::from(STARTS[track]) + (at_s * f64::from(rate)) as i64;
            muxer.take(track, TrackEvent::Unit(unit(time)), &mut Vec::new());
        }
    }

    #[track_caller]
    fn assert_apart(places: [f64; 2], sound_s: f64) {
        let [video, sound] = places;
        assert!((sound - video - sound_s).abs() < 0.001, "{places:?}, not {sound_s} s apart");
        assert!(video >= 0.0 && sound >= 0.0, "{places:?}");
    }

    #[test]
    fn tracks_keep_step_by_the_reports_that_come_before_the_file_begins() {
        for late_s in [-0.4, 0.0, 0.4, 5.0] {
            let mut muxer = muxer();
            take_units(&mut muxer, 0.0);
            assert!(muxer.writer.is_none(), "reports are waited for");
            muxer.take(1, report(1, 1.0, late_s), &mut Vec::new());
            muxer.take(0, report(0, 0.5, 0.0), &mut Vec::new());
            assert!(muxer.writer.is_some());
            assert_apart(places(&muxer, 0.0), late_s);
            // Reports with a zero NTP time or after a clock change are ignored.
            let zero = SenderClock { ntp: 0, origin: muxer.tracks[1].report.unwrap().origin };
            muxer.take(1, TrackEvent::Report(zero), &mut Vec::new());
            muxer.take(1, report(1, 1.5, 3600.0), &mut Vec::new());
            take_units(&mut muxer, 2.0);
            assert_apart(places(&muxer, 2.0), late_s);
        }
    }

    #[test]
    fn tracks_are_moved_on_and_never_back_by_reports_that_come_later() {
        for late_s in [-0.4, 0.4, 0.01, 60.0] {
            let mut muxer = muxer();
            take_units(&mut muxer, 0.0);
            muxer.begin(&mut Vec::new());
            take_units(&mut muxer, 1.0);
            let before = places(&muxer, 1.0);
            let by_arrival = before[1] - before[0];
            muxer.take(0, report(0, 1.0, 0.0), &mut Vec::new());
            muxer.take(1, report(1, 1.0, late_s), &mut Vec::new());
            take_units(&mut muxer, 1.04);
            let after = places(&muxer, 1.04);
            let is_moved = late_s.abs() == 0.4;
            assert_apart(after, if is_moved { late_s } else { by_arrival });
            assert!(after[0] > before[0] && after[1] > before[1], "{before:?}, {after:?}");
            // Tracks are moved only once.
            muxer.take(1, report(1, 2.0, late_s + 0.3), &mut Vec::new());
            take_units(&mut muxer, 2.0);
            assert_apart(places(&muxer, 2.0), after[1] - after[0]);
            assert_eq!(muxer.counts(), &MuxCounts::default());
        }
    }

    #[test]
    fn starts_that_the_server_has_named_for_each_track_hold() {
        let origin = |track: usize| {
            let clock_rate_hz = [VIDEO, SOUND][track];
            Some(TrackOrigin { timestamp: STARTS[track], clock_rate_hz })
        };
        for origins in [[origin(0), origin(1)], [origin(0), None]] {
            let mut muxer = muxer();
            muxer.begin_at(&origins, Duration::ZERO);
            muxer.take(0, report(0, 0.0, 0.0), &mut Vec::new());
            muxer.take(1, report(1, 0.0, 0.4), &mut Vec::new());
            take_units(&mut muxer, 0.0);
            assert_apart(places(&muxer, 0.0), if origins[1].is_some() { 0.0 } else { 0.4 });
        }
    }
}
