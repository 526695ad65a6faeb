// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the fields of `moov` and `moof` that the checks of fMP4 segments compare.
//!
//! The parser is independent of the crates that write such boxes: a verifier that shared their code
//! would share their faults.
//!
//! Sources: ISO/IEC 14496-12 §4.2, §8.3.2 (tkhd), §8.4.2 (mdhd), §8.8.3 (trex), §8.8.5 (mfhd),
//! §8.8.7 (tfhd), §8.8.8 (trun), §8.8.12 (tfdt).
//! Does not read other fields of these boxes.

/// A track in an init section.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct MovieTrack {
    pub(super) id: u32,
    pub(super) timescale: u32,
    sample_duration: u32,
    sample_bytes: u32,
}

/// A `moof`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) sequence: u32,
    pub(super) tracks: Vec<FragmentTrack>,
}

/// A `traf`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FragmentTrack {
    pub(super) id: u32,
    /// tfdt.
    pub(super) decode_time: Option<u64>,
    /// Data offsets are relative to the `moof`.
    pub(super) is_moof_based: bool,
    sample_duration: Option<u32>,
    sample_bytes: Option<u32>,
    runs: Vec<SampleRun>,
}

/// A `trun`. The sums are over samples with explicit values.
#[derive(Debug, PartialEq, Eq)]
struct SampleRun {
    samples: u32,
    data_offset: Option<i32>,
    duration: Option<u64>,
    bytes: Option<u64>,
}

type FoundBox<'a> = (u64, [u8; 4], &'a [u8]);
type ChildBox<'a> = ([u8; 4], &'a [u8]);

/// The boxes of a payload: offset, type, payload. Ends after the first fault, which includes its
/// offset.
pub(super) fn boxes(bytes: &[u8]) -> impl Iterator<Item = Result<FoundBox<'_>, (u64, String)>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let begins = at as u64;
        let Some((size, kind)) = word(rest, 0).zip(rest.get(4..8)) else {
            at = bytes.len();
            return Some(Err((begins, format!("{} bytes are no box", rest.len()))));
        };
        let kind: [u8; 4] = kind.try_into().expect("four bytes");
        let (size, header) = match size {
            0 => (rest.len() as u64, 8),
            1 => (long(rest, 8).unwrap_or(0), 16),
            size => (u64::from(size), 8),
        };
        let payload = usize::try_from(size).ok().and_then(|size| rest.get(header..size));
        let Some(payload) = payload else {
            at = bytes.len();
            let name = String::from_utf8_lossy(&kind).escape_default().to_string();
            let left = rest.len();
            return Some(Err((begins, format!("box {name} of {size} bytes, {left} are there"))));
        };
        at += size as usize;
        Some(Ok((begins, kind, payload)))
    })
}

/// Parses a `moov`'s payload: the tracks that fragments may have.
pub(super) fn movie(payload: &[u8]) -> Result<Vec<MovieTrack>, String> {
    let (mut tracks, mut defaults) = (Vec::<MovieTrack>::new(), Vec::new());
    for (kind, payload) in children(payload)? {
        match &kind {
            b"trak" => tracks.push(movie_track(payload)?),
            b"mvex" => {
                for (kind, trex) in children(payload)? {
                    if &kind == b"trex" {
                        let field = |at| word(trex, at).ok_or("trex is cut off");
                        defaults.push((field(4)?, field(12)?, field(16)?));
                    }
                }
            }
            _ => {}
        }
    }
    tracks.retain_mut(|track| {
        let own = defaults.iter().find(|(id, ..)| *id == track.id);
        if let Some((_, duration, bytes)) = own {
            (track.sample_duration, track.sample_bytes) = (*duration, *bytes);
        }
        own.is_some()
    });
    match tracks.is_empty() {
        true => Err("moov without a track that has fragments".to_owned()),
        false => Ok(tracks),
    }
}

fn movie_track(payload: &[u8]) -> Result<MovieTrack, String> {
    let mut track = MovieTrack::default();
    for (kind, payload) in children(payload)? {
        match &kind {
            b"tkhd" => {
                let at = if payload.first() == Some(&1) { 20 } else { 12 };
                track.id = word(payload, at).ok_or("tkhd is cut off")?;
            }
            b"mdia" => {
                let mdhd = children(payload)?.into_iter().find(|(kind, _)| kind == b"mdhd");
                let (_, mdhd) = mdhd.ok_or("mdia without mdhd")?;
                let at = if mdhd.first() == Some(&1) { 20 } else { 12 };
                track.timescale = word(mdhd, at).ok_or("mdhd is cut off")?;
            }
            _ => {}
        }
    }
    Ok(track)
}

/// Parses a `moof`'s payload.
pub(super) fn fragment(payload: &[u8]) -> Result<Fragment, String> {
    let (mut sequence, mut tracks) = (None, Vec::new());
    for (kind, payload) in children(payload)? {
        match &kind {
            b"mfhd" => sequence = Some(word(payload, 4).ok_or("mfhd is cut off")?),
            b"traf" => tracks.push(fragment_track(payload)?),
            _ => {}
        }
    }
    Ok(Fragment { sequence: sequence.ok_or("no mfhd")?, tracks })
}

fn fragment_track(payload: &[u8]) -> Result<FragmentTrack, String> {
    let mut track = FragmentTrack::default();
    let mut has_header = false;
    for (kind, payload) in children(payload)? {
        match &kind {
            b"tfhd" => {
                has_header = true;
                let flags = word(payload, 0).ok_or("tfhd is cut off")?;
                track.id = word(payload, 4).ok_or("tfhd is cut off")?;
                let mut at = 8;
                let mut field = |flag: u32, bytes: usize| {
                    (flags & flag != 0).then(|| {
                        at += bytes;
                        word(payload, at - bytes).ok_or("tfhd is cut off")
                    })
                };
                let has_base = field(0x1, 8).transpose()?.is_some();
                field(0x2, 4).transpose()?;
                track.sample_duration = field(0x8, 4).transpose()?;
                track.sample_bytes = field(0x10, 4).transpose()?;
                track.is_moof_based = flags & 0x2_0000 != 0 && !has_base;
            }
            b"tfdt" => {
                let time = match payload.first() {
                    Some(1) => long(payload, 4),
                    _ => word(payload, 4).map(u64::from),
                };
                track.decode_time = Some(time.ok_or("tfdt is cut off")?);
            }
            b"trun" => track.runs.push(sample_run(payload)?),
            _ => {}
        }
    }
    if has_header { Ok(track) } else { Err("traf without tfhd".to_owned()) }
}

fn sample_run(payload: &[u8]) -> Result<SampleRun, String> {
    let cut = || "trun is cut off".to_owned();
    let flags = word(payload, 0).ok_or_else(cut)?;
    let samples = word(payload, 4).ok_or_else(cut)?;
    let mut at = 8;
    let data_offset = match flags & 0x1 {
        0 => None,
        _ => {
            at += 4;
            Some(word(payload, at - 4).ok_or_else(cut)? as i32)
        }
    };
    at += if flags & 0x4 != 0 { 4 } else { 0 };
    let has = |flag: u32| flags & flag != 0;
    let fields = [0x100, 0x200, 0x400, 0x800].into_iter().filter(|flag| has(*flag)).count();
    let table = payload.get(at..).ok_or_else(cut)?;
    let needed = (samples as usize).checked_mul(fields * 4).ok_or_else(cut)?;
    let table = table.get(..needed).ok_or_else(cut)?;
    let (mut duration, mut bytes) = (0_u64, 0_u64);
    if fields > 0 {
        for row in table.chunks_exact(fields * 4) {
            let mut at = 0;
            if has(0x100) {
                duration += u64::from(word(row, at).unwrap_or(0));
                at += 4;
            }
            if has(0x200) {
                bytes += u64::from(word(row, at).unwrap_or(0));
            }
        }
    }
    let (duration, bytes) = (has(0x100).then_some(duration), has(0x200).then_some(bytes));
    Ok(SampleRun { samples, data_offset, duration, bytes })
}

impl FragmentTrack {
    /// Returns the duration of all samples, and the offset and the length of each run's data.
    pub(super) fn totals(&self, movie: &MovieTrack) -> (u64, Vec<(i64, u64)>) {
        let each_duration = u64::from(self.sample_duration.unwrap_or(movie.sample_duration));
        let each_bytes = u64::from(self.sample_bytes.unwrap_or(movie.sample_bytes));
        let (mut duration, mut ranges) = (0_u64, Vec::with_capacity(self.runs.len()));
        let mut place = 0_i64;
        for run in &self.runs {
            let samples = u64::from(run.samples);
            // A sum of 2^32 values of 32 bits fits.
            duration = duration.saturating_add(run.duration.unwrap_or(samples * each_duration));
            let bytes = run.bytes.unwrap_or(samples * each_bytes);
            place = run.data_offset.map_or(place, i64::from);
            ranges.push((place, bytes));
            place = place.saturating_add_unsigned(bytes);
        }
        (duration, ranges)
    }
}

/// Type and payload of each box in a payload.
fn children(payload: &[u8]) -> Result<Vec<ChildBox<'_>>, String> {
    let children = boxes(payload).map(|found| match found {
        Ok((_, kind, payload)) => Ok((kind, payload)),
        Err((_, found)) => Err(found),
    });
    children.collect()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hls::fmp4_check::tests::{boxed, init};

    #[test]
    fn runs_have_values_of_their_own_or_those_of_the_track() {
        let movie = MovieTrack { id: 1, timescale: 1000, sample_duration: 5, sample_bytes: 9 };
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
        let own = sample_run(&words(&[0x301, 2, 100, 7, 11, 8, 12])).unwrap();
        let usual = sample_run(&words(&[0x0, 3])).unwrap();
        let track = FragmentTrack { id: 1, runs: vec![own, usual], ..FragmentTrack::default() };
        assert_eq!(track.totals(&movie), (7 + 8 + 15, vec![(100, 23), (123, 27)]));
        assert!(sample_run(&words(&[0x301, 2, 100, 7, 11, 8])).is_err());
        assert!(sample_run(&words(&[0x100, u32::MAX])).is_err());
    }

    #[test]
    fn every_cut_is_an_error_and_no_panic() {
        let init = init();
        let moov = init.windows(4).position(|four| four == b"moov").unwrap() + 4;
        assert_eq!(movie(&init[moov..]).unwrap()[0].timescale, 1000);
        for end in moov..init.len() {
            assert!(movie(&init[moov..end]).is_err(), "{end}");
        }
        assert!(fragment(&boxed(b"traf", &[])).is_err());
        assert!(boxes(&[0, 0, 0, 1, b'a', b'b', b'c', b'd']).next().unwrap().is_err());
    }
}
