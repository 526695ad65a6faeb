// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes fragmented MP4: `ftyp`, `moov` without samples, then a `moof` and an `mdat` a fragment.
//!
//! A fragment holds all tracks. It ends before a key frame of the first video track, or after
//! [`FRAGMENT_S_MAX`] seconds, also in files of sound alone; key frames less than half a second
//! apart share a fragment. The last unit of each track is held until the next one, whose decoding
//! time ends it. `moov` is written with the first fragment, when the parameters of all tracks are
//! known. A track without any unit for [`PARAMETERS_WAIT_S`] by then is omitted if its description
//! needs a unit.
//!
//! Times are those of the tracks' RTP clocks, moved so that the earliest unit is decoded at zero;
//! if pictures are reordered, all tracks are presented later by the same amount. Presentation
//! offsets are not negative, though `trun` version 1 allows it: libavformat (5.1), and the players
//! based on it, would present such a track later than the others by the largest of them.
//!
//! Sources: ISO/IEC 14496-12 §8.8 (fragments).
//! Does not write an index (`mfra`, `sidx`): demuxers read live recordings without one.

use mp4_atom::{Mfhd, Moof, Tfdt, Tfhd, Traf, Trun, TrunEntry};

use super::entries::{self, entry};
use super::input::{TimedUnit, TrackInput};
use super::movie_header::{OTHER_SAMPLE, SYNC_SAMPLE, TrackHeader, put, write_movie_header};
use super::parameters::needs_first_unit;
use super::{FRAGMENT_S_MAX, HELD_BYTES_MAX, WriterKind, check_tracks};
use crate::tracks::{Codec, Display, TrackMedia};
use crate::{AccessUnit, MuxRefusal, TICKS_PER_SECOND};

/// Seconds of media for which the start of the file waits for the parameters of a track.
const PARAMETERS_WAIT_S: i64 = 30;

const FRAGMENT_TICKS_MAX: i64 = FRAGMENT_S_MAX * TICKS_PER_SECOND as i64;

/// Shortest fragment that a key frame may end: the boxes then cost about 1 kbit/s.
const FRAGMENT_TICKS_MIN: i64 = TICKS_PER_SECOND as i64 / 2;

/// A track of the file.
#[derive(Debug)]
struct Track {
    codec: Codec,
    input: TrackInput,
    /// Its sample description, from the parameters of its first unit.
    entry: Option<mp4_atom::Codec>,
    size: (u32, u32),
    /// Units of the current fragment, with their durations.
    samples: Vec<(TimedUnit, u32)>,
    /// Memory of `samples`.
    sample_bytes: usize,
    /// The unit after `samples`, until its end is known.
    last: Option<TimedUnit>,
    /// Duration of the unit before `last`.
    duration: u32,
    /// Decoding time that becomes zero in the file.
    base: i64,
    /// False if the file was started without this track.
    is_written: bool,
    language: Option<[u8; 3]>,
}

impl Track {
    /// Returns the decoding time of the first unit not yet written.
    fn first(&self) -> Option<i64> {
        let next = self.samples.first().map(|(unit, _)| unit).or(self.last.as_ref());
        next.map(|unit| unit.decode).or_else(|| self.input.earliest())
    }

    fn held_bytes(&self) -> usize {
        let last = self.last.as_ref().map_or(0, TimedUnit::held_bytes);
        self.input.held_bytes() + self.sample_bytes + last
    }

    /// Creates the sample description if the parameters are known.
    fn describe(&mut self) {
        if self.entry.is_none() {
            self.entry = entry(&self.codec, &self.input.parameters);
            self.size = self.input.parameters.size().unwrap_or((0, 0));
        }
    }

    /// True if `moov` needs parameters that are still unknown.
    fn is_awaited(&self) -> bool {
        !self.input.has_begun() && needs_first_unit(&self.codec)
    }

    /// Appends a unit; the unit before it ends at its decoding time.
    fn enter(&mut self, mut unit: TimedUnit) {
        unit.decode = unit.decode.max(self.base);
        if let Some(last) = self.last.take() {
            // Equal times would create samples without duration, which some players drop.
            unit.decode = unit.decode.max(last.decode + 1);
            self.duration = u32::try_from(unit.decode - last.decode).unwrap_or(u32::MAX);
            self.put(last);
        }
        self.last = Some(unit);
    }

    /// Adds a unit of known duration to the fragment.
    fn put(&mut self, unit: TimedUnit) {
        self.sample_bytes += unit.held_bytes();
        self.samples.push((unit, self.duration));
    }
}

/// Writes the fragments of a file.
#[derive(Debug)]
pub struct Fmp4Writer {
    tracks: Vec<Track>,
    /// Index of the track whose key frames start fragments.
    leading: usize,
    has_begun: bool,
    /// Sequence number of the last fragment.
    fragment: u32,
    /// Latest and earliest presentation time so far, in ticks.
    newest: Option<i64>,
    oldest: Option<i64>,
}

impl Fmp4Writer {
    pub(super) fn set_languages(&mut self, languages: &[Option<[u8; 3]>]) {
        for (track, language) in self.tracks.iter_mut().zip(languages) {
            track.language = *language;
        }
    }

    /// Creates a writer of a file with these tracks.
    ///
    /// # Errors
    /// No tracks or too many; a codec that MP4 does not support.
    pub fn new(tracks: &[Codec]) -> Result<Fmp4Writer, MuxRefusal> {
        check_tracks(WriterKind::FragmentedMp4, tracks)?;
        let is_video = |codec: &Codec| codec.media() == TrackMedia::Video;
        let leading = tracks.iter().position(is_video).unwrap_or(0);
        let track = |(index, codec): (usize, &Codec)| Track {
            codec: codec.clone(),
            input: TrackInput::new(index, codec),
            entry: None,
            size: (0, 0),
            samples: Vec::new(),
            sample_bytes: 0,
            last: None,
            duration: 0,
            base: i64::MIN,
            is_written: true,
            language: None,
        };
        Ok(Fmp4Writer {
            tracks: tracks.iter().enumerate().map(track).collect(),
            leading,
            has_begun: false,
            fragment: 0,
            newest: None,
            oldest: None,
        })
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
        self.take(track, unit)?;
        let newest = self.newest.expect("a unit was taken");
        for index in 0..self.tracks.len() {
            let input = &mut self.tracks[index].input;
            input.release_until(input.units(newest - FRAGMENT_TICKS_MAX));
            self.enter_ready(index, out);
        }
        if self.tracks.iter().map(Track::held_bytes).sum::<usize>() > HELD_BYTES_MAX {
            self.release_all(out);
            self.cut(true, out);
        } else if self.fragment_ticks() >= FRAGMENT_TICKS_MAX {
            self.cut(false, out);
        }
        Ok(())
    }

    /// Checks a unit and adds it to its track.
    fn take(&mut self, track: usize, unit: AccessUnit) -> Result<(), MuxRefusal> {
        let tracks = self.tracks.len();
        let about = self.tracks.get_mut(track).ok_or(MuxRefusal::NoTrack { track, tracks })?;
        if !about.is_written {
            return Err(MuxRefusal::LeftOut { track, waited_s: PARAMETERS_WAIT_S });
        }
        about.input.check_time(unit.time, self.newest)?;
        if self.has_begun && unit.time < about.base {
            let by_ticks =
                about.input.ticks(about.base).saturating_sub(about.input.ticks(unit.time));
            return Err(MuxRefusal::Late {
                track,
                by_ms: by_ticks / (TICKS_PER_SECOND as i64 / 1000),
            });
        }
        if !about.input.has_begun() && !entries::is_frame(&about.codec, &unit.bytes) {
            let what = "the unit does not begin with a frame of the track's codec";
            return Err(MuxRefusal::Malformed { track, what });
        }
        let time = unit.time;
        about.input.push(unit, self.newest, |bytes, _| bytes)?;
        // A later unit may change the parameters.
        about.describe();
        let ticks = about.input.ticks(time);
        self.newest = Some(self.newest.map_or(ticks, |newest| newest.max(ticks)));
        self.oldest = Some(self.oldest.map_or(ticks, |oldest| oldest.min(ticks)));
        Ok(())
    }

    /// Appends all units whose times are known, except the last of each track.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        self.cut(false, out);
    }

    /// Appends all units still held.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.release_all(out);
        for track in &mut self.tracks {
            if let Some(last) = track.last.take() {
                // It gets the duration of the unit before it, or 1 if it is the only one.
                track.duration = track.duration.max(1);
                track.put(last);
            }
        }
        self.cut(true, out);
    }

    /// True if the bytes appended so far form a playable file.
    pub fn ends_whole(&self) -> bool {
        self.fragment > 0
    }

    fn release_all(&mut self, out: &mut Vec<u8>) {
        for index in 0..self.tracks.len() {
            self.tracks[index].input.release_all();
            self.enter_ready(index, out);
        }
    }

    /// Moves a track's units with known times into the fragment; ends the fragment before a key
    /// frame.
    fn enter_ready(&mut self, index: usize, out: &mut Vec<u8>) {
        while let Some(unit) = self.tracks[index].input.take() {
            let is_key = unit.is_start && index == self.leading;
            self.tracks[index].enter(unit);
            let is_video = self.tracks[index].codec.media() == TrackMedia::Video;
            if is_key && is_video && self.fragment_ticks() >= FRAGMENT_TICKS_MIN {
                self.cut(false, out);
            }
        }
    }

    /// Returns the media time in the fragment, from its first unit to the newest unit.
    fn fragment_ticks(&self) -> i64 {
        let first =
            |track: &Track| track.samples.first().map(|(unit, _)| track.input.ticks(unit.decode));
        let first = self.tracks.iter().filter_map(first).min();
        first.zip(self.newest).map_or(0, |(first, newest)| newest.saturating_sub(first))
    }

    /// Ends the fragment. `is_forced` starts the file without tracks whose parameters are still
    /// missing.
    fn cut(&mut self, is_forced: bool, out: &mut Vec<u8>) {
        if self.tracks.iter().all(|track| track.samples.is_empty()) {
            return;
        }
        if !self.has_begun {
            let span = self.newest.zip(self.oldest).map_or(0, |(newest, oldest)| newest - oldest);
            let waits = span < PARAMETERS_WAIT_S * TICKS_PER_SECOND as i64;
            if waits && !is_forced && self.tracks.iter().any(Track::is_awaited) {
                return;
            }
            self.begin(out);
        }
        self.fragment += 1;
        write_fragment(self.fragment, &mut self.tracks, out);
    }

    /// Appends `ftyp` and `moov`.
    fn begin(&mut self, out: &mut Vec<u8>) {
        let first = |track: &Track| track.first().map(|first| track.input.ticks(first));
        let origin = self.tracks.iter().filter_map(first).min().expect("a fragment has a unit");
        let mut headers = Vec::new();
        for (track, id) in self.tracks.iter_mut().zip(1..) {
            track.base = track.input.units(origin);
            track.describe();
            let Some(entry) = track.entry.take() else {
                track.is_written = false;
                continue;
            };
            headers.push(TrackHeader {
                id,
                is_video: track.codec.media() == TrackMedia::Video,
                timescale: track.codec.clock_rate_hz(),
                language: track.language,
                size: track.size,
                display: Display::default(),
                entry,
            });
        }
        // iso5: offsets from the fragment (default-base-is-moof); iso6: signed presentation
        // offsets.
        write_movie_header(&[*b"iso6", *b"iso5", *b"mp41"], headers, out);
        self.has_begun = true;
    }
}

/// Appends `moof` and `mdat` with the tracks' samples, and removes these from the tracks.
fn write_fragment(number: u32, tracks: &mut [Track], out: &mut Vec<u8>) {
    let mut moof = Moof { mfhd: Mfhd { sequence_number: number }, traf: Vec::new() };
    let mut sizes = Vec::new();
    for (track, id) in tracks.iter().zip(1..).filter(|(track, _)| !track.samples.is_empty()) {
        moof.traf.push(traf(id, track));
        sizes.push(track.samples.iter().map(|(unit, _)| unit.bytes.len()).sum::<usize>());
    }
    // The offsets count from the start of `moof`, whose size does not depend on them.
    let mut head = Vec::new();
    put(&moof, &mut head);
    let media: usize = sizes.iter().sum();
    let mut offset = head.len() + MDAT_HEADER_BYTES;
    for (traf, bytes) in moof.traf.iter_mut().zip(sizes) {
        traf.trun[0].data_offset = Some(offset as i32);
        offset += bytes;
    }
    out.reserve(offset);
    put(&moof, out);
    out.extend(((MDAT_HEADER_BYTES + media) as u32).to_be_bytes());
    out.extend(b"mdat");
    for track in tracks {
        track.samples.drain(..).for_each(|(unit, _)| out.extend(unit.bytes));
        track.sample_bytes = 0;
    }
}

const MDAT_HEADER_BYTES: usize = 8;

/// Describes the samples of a track in a fragment; values shared by all of them are written once.
fn traf(id: u32, track: &Track) -> Traf {
    let samples = &track.samples;
    let (first, duration) = &samples[0];
    let is_even = samples.iter().all(|(_, other)| other == duration);
    let is_sync = samples.iter().all(|(unit, _)| unit.is_start);
    let is_in_order = samples.iter().all(|(unit, _)| unit.decode == unit.presented);
    let entry = |(unit, duration): &(TimedUnit, u32)| TrunEntry {
        duration: (!is_even).then_some(*duration),
        size: Some(unit.bytes.len() as u32),
        flags: (!is_sync).then_some(if unit.is_start { SYNC_SAMPLE } else { OTHER_SAMPLE }),
        cts: (!is_in_order).then(|| {
            let offset = unit.presented - unit.decode;
            offset.clamp(i32::MIN.into(), i32::MAX.into())
        }),
    };
    let entries: Vec<_> = samples.iter().map(entry).collect();
    Traf {
        tfhd: Tfhd {
            track_id: id,
            default_sample_duration: is_even.then_some(*duration),
            default_base_is_moof: true,
            ..Tfhd::default()
        },
        tfdt: Some(Tfdt { base_media_decode_time: (first.decode - track.base).max(0) as u64 }),
        trun: vec![Trun { data_offset: Some(0), samples: entries.into() }],
        ..Traf::default()
    }
}
