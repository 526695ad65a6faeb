// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fragments of a recording in MP4, as places of the file: to find one by time without reading
//! those before it, and to copy them, with other times, to another file.
//!
//! A fragment is a `moof` and the `mdat` behind it. Without an index (`mfra`) they are found by
//! their box type: a search from any byte on finds the next one. A match counts if a whole fragment
//! of the file's tracks begins there and the file ends behind it or continues with the fragment of
//! the next number. Media that a hostile camera has made alike pass; where they lead to no end, the
//! fragments are followed from the first on, which nothing misleads. A time is found by bisection:
//! a dozen reads of [`WINDOW_BYTES`] in an hour of video, and none of media that are only copied.
//!
//! Bytes behind the last fragment that are none, as a loss of power may leave, end the file.
//!
//! Sources: ISO/IEC 14496-12 §8.8 (fragments), §8.8.12 (tfdt).
//! Does not read files of other writers than [`crate::mux`] in general: times of 32 bits and places
//! that count from the start of the file are refused, because they could not be changed in place.

use std::io;
use std::ops::Range;

use mp4_atom::{Decode, Mdhd, Moof, Tkhd, Traf, Trex};

use super::boxes::{FileBox, Input, broken, spelled, with_input};
use super::fragments::IS_NO_START;
use super::track_boxes::handler_type;
use crate::{DemuxError, ReadAt, TICKS_PER_SECOND};

/// Bytes that are searched in one read.
const WINDOW_BYTES: u64 = 256 << 10;

/// Bytes in which most `moof` boxes fit, and the header of the `mdat` behind them.
const MOOF_BYTES_USUAL: u64 = 4 << 10;

/// Largest `moof`: two seconds of a hundred tracks.
const MOOF_BYTES_MAX: u64 = 1 << 20;

/// Places that look like a fragment and are none, after which a search ends: media may hold any
/// bytes.
const MISTAKEN_MAX: usize = 64;

/// Largest beginning of a file before its first fragment: descriptions of tracks.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Boxes before the first fragment: `ftyp`, `moov` and perhaps padding.
const HEADER_BOXES_MAX: usize = 16;

/// Bytes in which a search finds a fragment or ends: more than the largest has, two seconds of
/// 250 Mb/s.
const SEARCH_BYTES_MAX: u64 = 64 << 20;

/// Distance at which a bisection ends and fragments are followed one by one.
const WALK_BYTES: u64 = 8 << 20;

/// Time before a moment in which a fragment is searched with which play can start.
const KEY_DISTANCE_TICKS: u64 = 30 * TICKS_PER_SECOND;

const BOX_HEADER_BYTES: u64 = 8;
const TRACKS_MAX: usize = 64;

/// A file of fragmented MP4.
#[derive(Debug)]
pub struct FragmentedFile<F> {
    file: F,
    bytes: u64,
    /// All bytes before the first fragment.
    header: Vec<u8>,
    tracks: Vec<FragmentedTrack>,
    /// Index of the track whose key frames begin fragments.
    leading: usize,
}

/// A track of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FragmentedTrack {
    id: u32,
    /// Units of its times a second.
    pub timescale: u32,
    /// True for pictures.
    pub is_video: bool,
    defaults: Trex,
}

/// A fragment: a `moof` and its `mdat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFragment {
    /// Bytes of the file.
    pub file: Range<u64>,
    /// Number in its file.
    pub number: u32,
    /// By track; `None` where it has no sample.
    pub runs: Vec<Option<FragmentRun>>,
    moof: Vec<u8>,
    /// Offset of the number in `moof`.
    number_at: usize,
}

/// Samples of a track in a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentRun {
    /// Decoding time of the first, in units of the track.
    pub decode: u64,
    /// Duration of all, in units of the track.
    pub duration: u64,
    /// True if the first needs no other.
    pub is_start: bool,
    /// Offset of the time in `moof`.
    decode_at: usize,
}

impl FragmentRun {
    /// Decoding time of the unit behind it.
    pub fn end(&self) -> u64 {
        self.decode.saturating_add(self.duration)
    }
}

impl FileFragment {
    /// The `mdat`, as bytes of the file.
    pub fn media(&self) -> Range<u64> {
        self.file.start + self.moof.len() as u64..self.file.end
    }

    /// Returns the `moof` with another number and, by track, other decoding times.
    pub fn moved(&self, number: u32, decode: &[Option<u64>]) -> Vec<u8> {
        let mut moof = self.moof.clone();
        moof[self.number_at..][..4].copy_from_slice(&number.to_be_bytes());
        for (run, decode) in self.runs.iter().zip(decode) {
            if let Some((run, decode)) = run.as_ref().zip(*decode) {
                moof[run.decode_at..][..8].copy_from_slice(&decode.to_be_bytes());
            }
        }
        moof
    }
}

impl<F: ReadAt> FragmentedFile<F> {
    /// Reads the descriptions of a file of `bytes` bytes; it may still grow.
    ///
    /// # Errors
    /// The file cannot be read, or is no fragmented MP4 with a whole `moov`.
    pub fn open(file: F, bytes: u64) -> Result<FragmentedFile<F>, DemuxError> {
        let (tracks, header_bytes) = with_input(&file, bytes, read_header)?;
        let mut header = vec![0; header_bytes as usize];
        file.read_exact_at(&mut header, 0)?;
        let leading = tracks.iter().position(|track| track.is_video).unwrap_or(0);
        Ok(FragmentedFile { file, bytes, header, tracks, leading })
    }

    /// All bytes before the first fragment: `ftyp` and `moov`.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// The tracks, in the order of the file.
    pub fn tracks(&self) -> &[FragmentedTrack] {
        &self.tracks
    }

    /// Index of the first track of pictures, or of the first track.
    pub fn leading(&self) -> usize {
        self.leading
    }

    /// The file.
    pub fn file(&self) -> &F {
        &self.file
    }

    /// Returns the first fragment; `None` if none is whole.
    ///
    /// # Errors
    /// As [`FragmentedFile::at`].
    pub fn first(&self) -> Result<Option<FileFragment>, DemuxError> {
        self.at(self.header.len() as u64)
    }

    /// Returns the fragment behind `before`; `None` if it is not whole.
    ///
    /// # Errors
    /// As [`FragmentedFile::at`].
    pub fn next(&self, before: &FileFragment) -> Result<Option<FileFragment>, DemuxError> {
        self.at(before.file.end)
    }

    /// Returns the fragment behind `before`; `None` also where bytes that are none follow, as after
    /// a loss of power.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn following(&self, before: &FileFragment) -> Result<Option<FileFragment>, DemuxError> {
        Ok(self.next_or_end(before)?.0)
    }

    /// Returns the fragment that begins at byte `start`; `None` where the file, or what is whole of
    /// it, ends.
    ///
    /// # Errors
    /// The file cannot be read, or no fragment as [`crate::mux`] writes it begins there.
    pub fn at(&self, start: u64) -> Result<Option<FileFragment>, DemuxError> {
        let left = self.bytes.saturating_sub(start);
        if left < BOX_HEADER_BYTES {
            return Ok(None);
        }
        let mut head = vec![0; left.min(MOOF_BYTES_USUAL) as usize];
        self.file.read_exact_at(&mut head, start)?;
        let (code, moof_bytes) = box_head(&head).expect("eight bytes were read");
        match &code {
            b"moof" => {}
            b"mfra" => return Ok(None),
            _ => return Err(broken(start, format!("box {} for a fragment", spelled(code)))),
        }
        if !(BOX_HEADER_BYTES..=MOOF_BYTES_MAX).contains(&moof_bytes) {
            return Err(broken(start, format!("moof of {moof_bytes} bytes")));
        }
        let head_bytes = moof_bytes + BOX_HEADER_BYTES;
        if left < head_bytes {
            return Ok(None);
        }
        if (head.len() as u64) < head_bytes {
            let held = head.len();
            head.resize(head_bytes as usize, 0);
            self.file.read_exact_at(&mut head[held..], start + held as u64)?;
        }
        let (code, mdat_bytes) = box_head(&head[moof_bytes as usize..]).expect("it was read");
        if &code != b"mdat" || mdat_bytes < BOX_HEADER_BYTES {
            let what = format!("box {} of {mdat_bytes} bytes for media", spelled(code));
            return Err(broken(start + moof_bytes, what));
        }
        let end = start + moof_bytes + mdat_bytes;
        if end > self.bytes {
            return Ok(None);
        }
        head.truncate(moof_bytes as usize);
        self.fragment(head, start..end).map(Some).map_err(|what| broken(start, what))
    }

    /// Returns the first whole fragment that begins at byte `start` or behind; `None` also after
    /// [`SEARCH_BYTES_MAX`], and after many places that only look like one.
    ///
    /// # Errors
    /// The file cannot be read.
    fn from(&self, start: u64) -> io::Result<Option<FileFragment>> {
        let mut from = start.max(self.header.len() as u64);
        let mut window = Vec::new();
        let mut mistaken = 0;
        let end = self.bytes.min(from.saturating_add(SEARCH_BYTES_MAX));
        while from + BOX_HEADER_BYTES <= end {
            window.resize(WINDOW_BYTES.min(end - from) as usize, 0);
            self.file.read_exact_at(&mut window, from)?;
            let types = window.windows(4).enumerate().skip(4);
            for (at, _) in types.filter(|(_, code)| code == b"moof") {
                if let Some(found) = self.confirmed(from + at as u64 - 4)? {
                    return Ok(Some(found));
                }
                mistaken += 1;
                if mistaken == MISTAKEN_MAX {
                    return Ok(None);
                }
            }
            // A box may begin in the last bytes of the window.
            from += (window.len() as u64).saturating_sub(BOX_HEADER_BYTES - 1).max(1);
        }
        Ok(None)
    }

    /// Returns the last whole fragment; `None` if there is none.
    ///
    /// # Errors
    /// As [`FragmentedFile::at`].
    pub fn last(&self) -> Result<Option<FileFragment>, DemuxError> {
        let mut back = WINDOW_BYTES;
        while back <= SEARCH_BYTES_MAX && back < self.bytes {
            if let Some(found) = self.from(self.bytes - back)? {
                match self.follow(found, u64::MAX)? {
                    (last, true) => return Ok(Some(last)),
                    (_, false) => break,
                }
            }
            back *= 4;
        }
        self.last_of_all()
    }

    /// Does the same from the first fragment on, where no media mislead.
    ///
    /// # Errors
    /// As [`FragmentedFile::at`].
    pub fn last_of_all(&self) -> Result<Option<FileFragment>, DemuxError> {
        let Some(first) = self.first()? else { return Ok(None) };
        Ok(Some(self.follow(first, u64::MAX)?.0))
    }

    /// Returns the last fragment with which play can start that begins at `ticks` or before, or
    /// else the first behind; `None` if play can start nowhere.
    ///
    /// # Errors
    /// As [`FragmentedFile::at`].
    pub fn start_before(&self, ticks: u64) -> Result<Option<FileFragment>, DemuxError> {
        let begun = self.bisect(ticks.saturating_sub(KEY_DISTANCE_TICKS))?;
        match self.last_start(begun, ticks)? {
            (Some(found), true) if self.ticks(&found) <= ticks => Ok(Some(found)),
            // Key frames are further apart, or media was mistaken for a fragment.
            _ => Ok(self.last_start(self.first()?, ticks)?.0),
        }
    }

    /// Returns the last fragment that begins before `ticks`, from `first` on; `first` if none does.
    ///
    /// # Errors
    /// As [`FragmentedFile::at`].
    pub fn last_before(
        &self,
        first: &FileFragment,
        ticks: u64,
    ) -> Result<FileFragment, DemuxError> {
        let near = self.bisect(ticks.saturating_sub(1))?;
        let near = near.filter(|near| near.file.start > first.file.start);
        if let Some(near) = near
            && let (last, true) = self.follow(near, ticks)?
        {
            return Ok(last);
        }
        Ok(self.follow(first.clone(), ticks)?.0)
    }

    /// Returns the next fragment, and false if bytes that are none are in its place.
    fn next_or_end(
        &self,
        before: &FileFragment,
    ) -> Result<(Option<FileFragment>, bool), DemuxError> {
        match self.next(before) {
            Err(DemuxError::Refused(_)) => Ok((None, false)),
            next => next.map(|next| (next, true)),
        }
    }

    /// Follows the fragments to the last that begins before `ticks`; false if bytes that are no
    /// fragment have ended this.
    fn follow(
        &self,
        mut last: FileFragment,
        ticks: u64,
    ) -> Result<(FileFragment, bool), DemuxError> {
        loop {
            match self.next_or_end(&last)? {
                (Some(next), _) if self.ticks(&next) < ticks => last = next,
                (_, is_whole) => return Ok((last, is_whole)),
            }
        }
    }

    /// Start of a fragment in ticks: the decoding time of its leading track, or else of the
    /// earliest.
    pub fn ticks(&self, fragment: &FileFragment) -> u64 {
        let ticks = |(track, run): (&FragmentedTrack, &Option<FragmentRun>)| {
            run.as_ref().map(|run| track.ticks(run.decode))
        };
        let leading = (&self.tracks[self.leading], &fragment.runs[self.leading]);
        let all = || self.tracks.iter().zip(&fragment.runs).filter_map(ticks).min();
        ticks(leading).or_else(all).unwrap_or(0)
    }

    /// End of a fragment in ticks: that of its longest track.
    pub fn end_ticks(&self, fragment: &FileFragment) -> u64 {
        let runs = self.tracks.iter().zip(&fragment.runs);
        let ends = runs.filter_map(|(track, run)| Some(track.ticks(run.as_ref()?.end())));
        ends.max().unwrap_or(0)
    }

    /// True if play can start with a fragment.
    pub fn is_start(&self, fragment: &FileFragment) -> bool {
        fragment.runs[self.leading].is_some_and(|run| run.is_start)
    }

    /// Follows the fragments from `fragment` on to the last start at `ticks` or before, or else the
    /// first start behind; false if bytes that are no fragment have ended this.
    fn last_start(
        &self,
        mut fragment: Option<FileFragment>,
        ticks: u64,
    ) -> Result<(Option<FileFragment>, bool), DemuxError> {
        let (mut start, mut is_whole) = (None, true);
        while let Some(here) = fragment {
            let is_behind = self.ticks(&here) > ticks;
            if is_behind && start.is_some() {
                break;
            }
            (fragment, is_whole) = self.next_or_end(&here)?;
            if self.is_start(&here) {
                start = Some(here);
                if is_behind {
                    break;
                }
            }
        }
        Ok((start, is_whole))
    }

    /// Returns a fragment that begins at `ticks` or before, near the last one, or else the first.
    fn bisect(&self, ticks: u64) -> Result<Option<FileFragment>, DemuxError> {
        let mut best = self.first()?;
        let Some(first) = &best else { return Ok(None) };
        let (mut low, mut high) = (first.file.end, self.bytes);
        while high.saturating_sub(low) > WALK_BYTES {
            let middle = low + (high - low) / 2;
            match self.from(middle)? {
                Some(found) if found.file.start < high && self.ticks(&found) <= ticks => {
                    low = found.file.end;
                    best = Some(found);
                }
                _ => high = middle,
            }
        }
        Ok(best)
    }

    /// Returns the fragment at `start` if there is one: it is whole, and the fragment of the next
    /// number or the end of the file is behind it.
    fn confirmed(&self, start: u64) -> io::Result<Option<FileFragment>> {
        let found = match self.at(start) {
            Ok(found) => found,
            Err(DemuxError::Refused(_)) => return Ok(None),
            Err(DemuxError::Unreadable(error)) => return Err(error),
        };
        let Some(found) = found else { return Ok(None) };
        match self.next(&found) {
            Ok(Some(next)) if next.number != found.number.wrapping_add(1) => Ok(None),
            Ok(_) => Ok(Some(found)),
            Err(DemuxError::Refused(_)) => Ok(None),
            Err(DemuxError::Unreadable(error)) => Err(error),
        }
    }

    /// Reads a `moof` of these bytes of the file.
    fn fragment(&self, moof: Vec<u8>, file: Range<u64>) -> Result<FileFragment, String> {
        let read = Moof::decode(&mut moof.as_slice())
            .map_err(|error| format!("moof that has no meaning: {error}"))?;
        let mut number_at = None;
        let mut decodes_at = Vec::new();
        for (code, body) in children(&moof, 0..moof.len()) {
            match &code {
                b"mfhd" if body.len() >= 8 => number_at = Some(body.start + 4),
                b"traf" => decodes_at.push(decode_at(&moof, body)),
                _ => {}
            }
        }
        let number_at = number_at.ok_or("moof without a number")?;
        let mut runs = vec![None; self.tracks.len()];
        for (traf, decode_at) in read.traf.iter().zip(decodes_at) {
            let id = traf.tfhd.track_id;
            let Some(index) = self.tracks.iter().position(|track| track.id == id) else {
                return Err(format!("samples of track {id}, which moov lacks"));
            };
            if traf.tfhd.base_data_offset.is_some() || !traf.tfhd.default_base_is_moof {
                return Err("samples at places that do not count from moof".to_owned());
            }
            let decode_at = decode_at.ok_or("track fragment without a time of 64 bits")?;
            let decode = traf.tfdt.as_ref().map_or(0, |time| time.base_media_decode_time);
            let (duration, is_start) = samples(traf, &self.tracks[index].defaults);
            let run = FragmentRun { decode, duration, is_start, decode_at };
            if runs[index].replace(run).is_some() {
                return Err(format!("two track fragments of track {id}"));
            }
        }
        if runs.iter().all(Option::is_none) {
            return Err("moof without samples".to_owned());
        }
        Ok(FileFragment { file, number: read.mfhd.sequence_number, runs, moof, number_at })
    }
}

impl FragmentedTrack {
    /// A time of the track in ticks.
    pub fn ticks(&self, units: u64) -> u64 {
        let ticks = u128::from(units) * u128::from(TICKS_PER_SECOND) / u128::from(self.timescale);
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Ticks in units of the track, to the nearest.
    pub fn units(&self, ticks: u64) -> u64 {
        let scaled = u128::from(ticks) * u128::from(self.timescale);
        let units = (scaled + u128::from(TICKS_PER_SECOND / 2)) / u128::from(TICKS_PER_SECOND);
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}

/// Duration of the samples of a track, and whether the first needs no other.
fn samples(traf: &Traf, defaults: &Trex) -> (u64, bool) {
    let tfhd = &traf.tfhd;
    let duration = tfhd.default_sample_duration.unwrap_or(defaults.default_sample_duration);
    let flags = tfhd.default_sample_flags.unwrap_or(defaults.default_sample_flags);
    let mut sum = 0_u64;
    for run in &traf.trun {
        let durations = match run.samples.get(0).and_then(|first| first.duration) {
            Some(_) => run.samples.iter().map(|one| u64::from(one.duration.unwrap_or(0))).sum(),
            None => run.samples.len() as u64 * u64::from(duration),
        };
        sum = sum.saturating_add(durations);
    }
    let first = traf.trun.iter().find_map(|run| run.samples.get(0));
    let flags = first.and_then(|first| first.flags).unwrap_or(flags);
    (sum, flags & IS_NO_START == 0)
}

/// Offset of the decoding time in a track fragment; `None` if it has none of 64 bits.
fn decode_at(moof: &[u8], traf: Range<usize>) -> Option<usize> {
    let (_, body) = children(moof, traf.start - 8..traf.end).find(|(code, _)| code == b"tfdt")?;
    let is_long = body.len() >= 12 && moof[body.start] == 1;
    is_long.then_some(body.start + 4)
}

/// The boxes in a box, as their types and bodies; bytes that are no box end them.
fn children(bytes: &[u8], whole: Range<usize>) -> impl Iterator<Item = ([u8; 4], Range<usize>)> {
    let mut next = whole.start + BOX_HEADER_BYTES as usize;
    std::iter::from_fn(move || {
        let (code, size) = box_head(bytes.get(next..whole.end)?)?;
        let size =
            usize::try_from(size).ok().filter(|size| (8..=whole.end - next).contains(size))?;
        let body = next + BOX_HEADER_BYTES as usize..next + size;
        next += size;
        Some((code, body))
    })
}

/// Type and size of the box at the start of `bytes`; `None` if a header does not fit.
fn box_head(bytes: &[u8]) -> Option<([u8; 4], u64)> {
    let [a, b, c, d, code @ ..] = *bytes.first_chunk::<8>()?;
    Some((code, u32::from_be_bytes([a, b, c, d]).into()))
}

/// Reads the tracks of a file, and the number of bytes before its first fragment.
fn read_header(input: &Input<'_>) -> Result<(Vec<FragmentedTrack>, u64), DemuxError> {
    let mut tracks = None;
    let mut next = 0;
    for _ in 0..HEADER_BOXES_MAX {
        let Some(found) = FileBox::outermost_header(input, next)? else { break };
        match &found.code {
            b"moof" | b"mdat" => break,
            b"moov" if tracks.is_none() => {
                tracks = Some(read_tracks(input, &found.within(input.bytes())?)?);
            }
            _ => {}
        }
        next = found.within(input.bytes())?.end;
        if next > HEADER_BYTES_MAX {
            return Err(broken(found.start, format!("{next} bytes before the first fragment")));
        }
    }
    let tracks = tracks.ok_or_else(|| broken(0, "no whole moov before the first fragment"))?;
    Ok((tracks, next))
}

fn read_tracks(input: &Input<'_>, moov: &FileBox) -> Result<Vec<FragmentedTrack>, DemuxError> {
    let mut tracks = Vec::new();
    let mut defaults: Vec<Trex> = Vec::new();
    let mut is_fragmented = false;
    moov.children(input, |child| {
        match &child.code {
            b"trak" if tracks.len() < TRACKS_MAX => tracks.push(read_track(input, &child)?),
            b"mvex" => {
                is_fragmented = true;
                child.children(input, |trex| {
                    if &trex.code == b"trex" && defaults.len() < TRACKS_MAX {
                        defaults.push(trex.decode(input)?);
                    }
                    Ok(())
                })?;
            }
            _ => {}
        }
        Ok(())
    })?;
    for track in &mut tracks {
        if let Some(of_track) = defaults.iter().find(|trex| trex.track_id == track.id) {
            track.defaults = of_track.clone();
        }
    }
    match is_fragmented && !tracks.is_empty() {
        true => Ok(tracks),
        false => Err(broken(moov.start, "no tracks in fragments")),
    }
}

fn read_track(input: &Input<'_>, trak: &FileBox) -> Result<FragmentedTrack, DemuxError> {
    let [tkhd, mdia] = trak.find(input, [b"tkhd", b"mdia"])?;
    let tkhd: Tkhd = trak.needed(tkhd, b"tkhd")?.decode(input)?;
    let mdia = trak.needed(mdia, b"mdia")?;
    let [mdhd, hdlr] = mdia.find(input, [b"mdhd", b"hdlr"])?;
    let mdhd: Mdhd = mdia.needed(mdhd, b"mdhd")?.decode(input)?;
    let handler = handler_type(input, &mdia.needed(hdlr, b"hdlr")?)?;
    if mdhd.timescale == 0 {
        return Err(broken(mdia.start, "mdhd with zero units a second"));
    }
    let is_video = handler == Some(*b"vide");
    let defaults = Trex { track_id: tkhd.track_id, ..Trex::default() };
    Ok(FragmentedTrack { id: tkhd.track_id, timescale: mdhd.timescale, is_video, defaults })
}
