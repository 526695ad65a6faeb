// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes fragmented MP4: `ftyp`, `moov` without samples, then a `moof` and an `mdat` a fragment.
//!
//! A fragment holds all tracks. It ends before a key frame of the first video track, or after
//! [`FRAGMENT_S_MAX`] seconds, also in files of sound alone; key frames less than half a second
//! apart share a fragment. The last unit of each track is held until the next one, whose decoding
//! time ends it, unless the track pauses; the last block of PCM ([`super::pcm_blocks`]) has the
//! duration of its frames. All tracks of a fragment end at the same time, so that sound is not
//! ahead of reordered pictures by their delay. `moov` is written with the first fragment, when the
//! parameters of all tracks are known. A track without any unit for [`PARAMETERS_WAIT_S`] by then
//! is omitted if its description needs a unit.
//!
//! A recording with [`Rotation`] continues in another file, with a `moov` and times of its own,
//! where [`FileSplit`] decides; no unit is lost or in two files. The caller asks where files begin
//! by [`Fmp4Writer::take_file_starts`].
//!
//! Times are those of the tracks' RTP clocks, moved so that the earliest unit is decoded at zero;
//! if pictures are reordered, all tracks are presented later by the same amount. Presentation
//! offsets are not negative, though `trun` version 1 allows it: libavformat (5.1), and the players
//! based on it, would present such a track later than the others by the largest of them.
//!
//! Sources: ISO/IEC 14496-12 §8.8 (fragments).
//! Does not write an index (`mfra`, `sidx`): demuxers read live recordings without one.

use std::time::Duration;

use mp4_atom::{Mfhd, Moof, Tfdt, Tfhd, Traf, Trun, TrunEntry};

use super::entries;
use super::file_split::{FileSplit, Rotation, time_from};
use super::fmp4_track::Track;
use super::input::TimedUnit;
use super::movie_header::{OTHER_SAMPLE, SYNC_SAMPLE, TrackHeader, put, write_movie_header};
use super::{FRAGMENT_S_MAX, HELD_BYTES_MAX, WriterKind, check_tracks};
use crate::tracks::{Codec, Display, TrackMedia};
use crate::{AccessUnit, MuxRefusal, TICKS_PER_SECOND};

/// Seconds of media for which the start of the file waits for the parameters of a track.
const PARAMETERS_WAIT_S: i64 = 30;

const FRAGMENT_TICKS_MAX: i64 = FRAGMENT_S_MAX * TICKS_PER_SECOND as i64;

/// Time without a unit after which the leading track does not end fragments.
const LEADING_PAUSE_TICKS: i64 = TICKS_PER_SECOND as i64;

/// Time by which sound may be ahead of the leading track without ending a fragment.
const SOUND_AHEAD_TICKS_MAX: i64 = TICKS_PER_SECOND as i64;

/// Shortest fragment that a key frame may end: the boxes then cost about 1 kbit/s.
const FRAGMENT_TICKS_MIN: i64 = TICKS_PER_SECOND as i64 / 2;

/// Extent of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// All tracks end before the next unit of the leading track.
    Aligned,
    /// All units whose times are known.
    All,
    /// These, and the file begins without tracks whose parameters are still missing.
    Forced,
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
    /// The current file of a recording; `None` if all units go into one file.
    split: Option<FileSplit>,
    /// Files that began in the caller's buffer.
    file_starts: Vec<FileStart>,
}

/// Start of a file of a recording in the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileStart {
    /// Offset of its first byte.
    pub offset: usize,
    /// Media time from its first unit to the latest one that was pushed.
    pub age: Duration,
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
        let track = |(index, codec): (usize, &Codec)| Track::new(index, codec);
        Ok(Fmp4Writer {
            tracks: tracks.iter().enumerate().map(track).collect(),
            leading,
            has_begun: false,
            fragment: 0,
            newest: None,
            oldest: None,
            split: None,
            file_starts: Vec::new(),
        })
    }

    /// Continues in another file at these limits, and where the parameters of a track change. Call
    /// it before the first unit.
    pub fn rotate(&mut self, limits: Rotation) {
        self.split = Some(FileSplit::new(limits));
    }

    /// Removes and returns the files that have begun since the last call: their offsets in `out`
    /// hold as long as the same buffer is passed, from which nothing is removed.
    pub fn take_file_starts(&mut self) -> Vec<FileStart> {
        std::mem::take(&mut self.file_starts)
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
            self.cut(Cut::Forced, out);
        } else if self.fragment_ticks() >= FRAGMENT_TICKS_MAX {
            self.cut(Cut::Aligned, out);
            let has_keys = self.tracks[self.leading].codec.media() == TrackMedia::Video;
            if !has_keys && self.is_file_over() && self.fragment > 0 {
                self.end_file();
            }
        }
        Ok(())
    }

    /// Checks a unit and adds it to its track.
    fn take(&mut self, track: usize, unit: AccessUnit) -> Result<(), MuxRefusal> {
        let tracks = self.tracks.len();
        let about = self.tracks.get_mut(track).ok_or(MuxRefusal::NoTrack { track, tracks })?;
        if !about.is_written {
            if self.split.is_some() {
                // The next file may describe the track.
                let _ = about.input.parameters.observe(&unit.bytes);
            }
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
        match &mut about.pcm {
            None => about.input.push(unit, self.newest, |bytes, _| bytes)?,
            Some(pcm) => {
                for block in pcm.push(&unit)? {
                    about.input.push(block, None, |bytes, _| bytes)?;
                }
            }
        }
        // A later unit may change the parameters.
        about.describe();
        let ticks = about.input.ticks(time);
        // The times of the other tracks may be hours apart from those of the leading one.
        let leading = self.tracks[self.leading].input.newest().filter(|_| track != self.leading);
        if let Some(split) = &mut self.split {
            // Requests before the first file are for that one.
            split.unit_arrived(leading.map_or(ticks, |newest| newest + 1), self.newest.is_none());
        }
        self.newest = Some(self.newest.map_or(ticks, |newest| newest.max(ticks)));
        self.oldest = Some(self.oldest.map_or(ticks, |oldest| oldest.min(ticks)));
        Ok(())
    }

    /// Appends all units whose times are known, except the last of each track.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        self.cut(Cut::All, out);
    }

    /// Appends all units still held and ends the file.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.end(out);
    }

    /// Appends all units still held; no other may follow.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        self.release_all(out);
        for track in &mut self.tracks {
            track.release_all();
            if let Some(last) = track.last.take() {
                let duration = track.last_duration(&last);
                track.put(last, duration);
            }
        }
        self.cut(Cut::Forced, out);
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
            if is_key && is_video {
                let is_over = self.is_file_over();
                if is_over || self.fragment_ticks() >= FRAGMENT_TICKS_MIN {
                    self.cut(Cut::Aligned, out);
                }
                if is_over && self.fragment > 0 {
                    self.end_file();
                }
            }
        }
    }

    /// True if the file ends before the next unit of the leading track, with which playback can
    /// start.
    fn is_file_over(&mut self) -> bool {
        let unwritten = self.unwritten_bytes();
        let leading = &self.tracks[self.leading];
        let ticks = |unit: &TimedUnit| {
            (leading.input.ticks(unit.decode), leading.input.ticks(unit.presented))
        };
        let next = leading.last.as_ref().map(ticks);
        let first = leading.samples.first().map(|(unit, _)| leading.input.ticks(unit.decode));
        let Some((split, (next, presented))) = self.split.as_mut().zip(next) else { return false };
        if !self.has_begun {
            // The file begins with the fragment that ends here.
            split.begin(first.unwrap_or(next));
        }
        let has_changed = || self.tracks.iter().any(Track::has_changed);
        split.ends_before_key(next, presented, unwritten) || split.may_change(next) && has_changed()
    }

    /// Ends the file: the next fragment begins another one.
    fn end_file(&mut self) {
        (self.has_begun, self.fragment) = (false, 0);
        let leading = &self.tracks[self.leading];
        let next = leading.last.as_ref().map(|unit| leading.input.ticks(unit.presented));
        let next = next.or_else(|| self.begin_ticks());
        if let Some((split, next)) = self.split.as_mut().zip(next) {
            split.end(next);
        }
        for track in &mut self.tracks {
            track.entry = None;
            track.describe();
            track.is_written = true;
        }
    }

    /// Returns the media time in the fragment: that of the leading track, so that a key frame ends
    /// it even if sound arrives earlier, or the longest if that track pauses. Each track counts
    /// from its own first unit: tracks may be hours apart.
    fn fragment_ticks(&self) -> i64 {
        let longest = self.tracks.iter().map(Track::fragment_ticks).max().unwrap_or(0);
        match self.leading_ticks() {
            Some(_) => {
                let leading = self.tracks[self.leading].fragment_ticks();
                leading.max(longest - SOUND_AHEAD_TICKS_MAX)
            }
            None => longest,
        }
    }

    /// Decoding time of the next unit of the leading track; `None` if that track pauses.
    fn leading_ticks(&self) -> Option<i64> {
        let leading = &self.tracks[self.leading];
        let next = leading.last.as_ref().map(|unit| leading.input.ticks(unit.decode))?;
        let pause = self.newest?.saturating_sub(leading.input.newest()?);
        (pause < LEADING_PAUSE_TICKS).then_some(next)
    }

    /// Ends the fragment.
    fn cut(&mut self, cut: Cut, out: &mut Vec<u8>) {
        if let Some(newest) = self.newest {
            self.tracks.iter_mut().for_each(|track| track.end_if_paused(newest));
        }
        if self.tracks.iter().all(|track| track.samples.is_empty()) {
            return;
        }
        if !self.has_begun {
            let span = self.newest.zip(self.oldest).map_or(0, |(newest, oldest)| newest - oldest);
            let waits = span < PARAMETERS_WAIT_S * TICKS_PER_SECOND as i64;
            if waits && cut != Cut::Forced && self.tracks.iter().any(Track::is_awaited) {
                return;
            }
            self.begin(out);
        } else if self.is_file_full() {
            self.end_file();
            self.begin(out);
        }
        self.fragment += 1;
        let bytes_before = out.len();
        let until = self.leading_ticks().filter(|_| cut == Cut::Aligned);
        // A fragment has a unit, also where all are behind the end of the leading track.
        let until = until.filter(|&until| self.tracks.iter().any(|track| track.begins_by(until)));
        let later: Vec<_> = self.tracks.iter_mut().map(|track| track.split_off(until)).collect();
        write_fragment(self.fragment, &mut self.tracks, out);
        for (track, later) in self.tracks.iter_mut().zip(later) {
            later.into_iter().for_each(|(unit, duration)| track.put(unit, duration));
        }
        if let Some(split) = &mut self.split {
            split.add_bytes(out.len() - bytes_before);
        }
    }

    /// True if the file ends before the next fragment, wherever that begins.
    fn is_file_full(&self) -> bool {
        let split = self.split.as_ref().zip(self.begin_ticks());
        split.is_some_and(|(split, at)| split.ends_before(at, self.unwritten_bytes()))
    }

    /// Most bytes of the current fragment.
    fn unwritten_bytes(&self) -> u64 {
        let samples: usize = self.tracks.iter().map(|track| track.samples.len()).sum();
        let media: usize = self.tracks.iter().map(|track| track.sample_bytes).sum();
        let boxes = if samples > 0 { FRAGMENT_BOX_BYTES + samples * SAMPLE_BOX_BYTES } else { 0 };
        (media + boxes) as u64
    }

    /// Decoding time of the first unit not yet written, in ticks.
    fn begin_ticks(&self) -> Option<i64> {
        let first = |track: &Track| track.first().map(|first| track.input.ticks(first));
        self.tracks.iter().filter_map(first).min()
    }

    /// Appends `ftyp` and `moov`.
    fn begin(&mut self, out: &mut Vec<u8>) {
        let origin = self.begin_ticks().expect("a fragment has a unit");
        let begins_at = out.len();
        let mut headers = Vec::new();
        for (track, id) in self.tracks.iter_mut().zip(1..) {
            track.base = track.input.units(origin);
            track.describe();
            // Parameters that cannot be read do not replace those before.
            let Some(entry) = track.entry.take().or_else(|| track.written_entry.clone()) else {
                track.leave_out();
                continue;
            };
            track.written_entry = Some(entry.clone());
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
        if let Some(split) = &mut self.split {
            let leading = &self.tracks[self.leading];
            // Sound may lag behind the pictures that begin the file.
            split.begin(leading.first().map_or(origin, |first| leading.input.ticks(first)));
            split.add_bytes(out.len() - begins_at);
            let age = time_from(origin, self.newest.unwrap_or(origin));
            self.file_starts.push(FileStart { offset: begins_at, age });
        }
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

/// Most bytes of the boxes of a fragment, and of a sample in them.
const FRAGMENT_BOX_BYTES: usize = 32 + super::TRACKS_MAX * 80;
const SAMPLE_BOX_BYTES: usize = 16;

/// Describes the samples of a track in a fragment; values shared by all of them are written once.
fn traf(id: u32, track: &Track) -> Traf {
    let samples = &track.samples;
    let (first, duration) = &samples[0];
    let is_even = samples.iter().all(|(_, other)| other == duration);
    let bytes = first.bytes.len();
    let is_one_size = samples.iter().all(|(unit, _)| unit.bytes.len() == bytes);
    let is_sync = samples.iter().all(|(unit, _)| unit.is_start);
    let is_in_order = samples.iter().all(|(unit, _)| unit.decode == unit.presented);
    let entry = |(unit, duration): &(TimedUnit, u32)| TrunEntry {
        duration: (!is_even).then_some(*duration),
        size: (!is_one_size).then_some(unit.bytes.len() as u32),
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
            default_sample_size: is_one_size.then_some(bytes as u32),
            default_base_is_moof: true,
            ..Tfhd::default()
        },
        tfdt: Some(Tfdt { base_media_decode_time: (first.decode - track.base).max(0) as u64 }),
        trun: vec![Trun { data_offset: Some(0), samples: entries.into() }],
        ..Traf::default()
    }
}
