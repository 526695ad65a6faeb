// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of fMP4 segments: boxes, sequence numbers, decode times of each track, sample data.
//!
//! Only `moov` and `moof` are buffered; the other boxes are not.
//!
//! Sources: ISO/IEC 14496-12 §4.2 (boxes), §8.8.3 (trex), §8.8.5 (mfhd), §8.8.7 (tfhd), §8.8.8
//! (trun), §8.8.12 (tfdt); RFC 8216 §3.3.
//! Does not read samples, edit lists, sample groups or encryption boxes.

use std::collections::BTreeMap;

use super::fmp4_boxes::{Fragment, MovieTrack, boxes, fragment, movie};
use super::segment_check::FoundFaults;

/// Checks of one rendition's fragments.
#[derive(Default)]
pub(super) struct Fmp4Check {
    tracks: BTreeMap<u32, TrackClock>,
    sequence: Option<u32>,
    /// First bytes of the current box; the whole of a `moof`.
    held: Vec<u8>,
    /// Remaining bytes of the current box, which are not buffered.
    left: u64,
    /// The last box extends to the end of the segment.
    is_open: bool,
    /// Offset of the current box, and of the next byte.
    box_at: u64,
    offset: u64,
    is_lost: bool,
    has_fragment: bool,
    /// Sample data of the last fragment, and the content of `mdat` boxes; offsets in the segment.
    samples: Vec<(u64, u64)>,
    data: Vec<(u64, u64)>,
    samples_at: u64,
}

#[derive(Default)]
struct TrackClock {
    movie: MovieTrack,
    /// Decode time of the next fragment.
    next: Option<u64>,
}

impl Fmp4Check {
    /// Parses the init section. Clocks of tracks continue across it.
    pub(super) fn init(&mut self, bytes: &[u8], faults: &mut FoundFaults) {
        let mut kinds = Vec::new();
        let mut tracks = None;
        for found in boxes(bytes) {
            match found {
                Ok((_, kind, payload)) => {
                    kinds.push(kind);
                    if &kind == b"moov" {
                        tracks = Some(movie(payload));
                    }
                }
                Err((at, found)) => return faults.add(at, || format!("init section: {found}")),
            }
        }
        if !kinds.contains(b"ftyp") {
            faults.add(0, || "init section: no ftyp (RFC 8216 §3.3)".to_owned());
        }
        match tracks {
            None => faults.add(0, || "init section: no moov (RFC 8216 §3.3)".to_owned()),
            Some(Err(found)) => faults.add(0, || format!("init section: {found}")),
            Some(Ok(tracks)) => {
                let mut before = std::mem::take(&mut self.tracks);
                for movie in tracks {
                    let next = before.remove(&movie.id).and_then(|clock| {
                        Some(clock.next?).filter(|_| clock.movie.timescale == movie.timescale)
                    });
                    self.tracks.insert(movie.id, TrackClock { movie, next });
                }
            }
        }
    }

    pub(super) fn begin(&mut self, is_discontinuity: bool) {
        if is_discontinuity {
            self.sequence = None;
            self.tracks.values_mut().for_each(|track| track.next = None);
        }
        self.held.clear();
        self.samples.clear();
        self.data.clear();
        (self.left, self.box_at, self.offset) = (0, 0, 0);
        (self.is_open, self.is_lost, self.has_fragment) = (false, false, false);
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8], faults: &mut FoundFaults) {
        while !bytes.is_empty() && !self.is_lost && !self.is_open {
            if self.left > 0 {
                let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= count as u64;
                self.offset += count as u64;
                bytes = &bytes[count..];
                continue;
            }
            if self.held.is_empty() {
                self.box_at = self.offset;
            }
            let wanted = self.held_bytes();
            let count = (wanted - self.held.len()).min(bytes.len());
            self.held.extend_from_slice(&bytes[..count]);
            self.offset += count as u64;
            bytes = &bytes[count..];
            if self.held.len() == wanted && self.held_bytes() == wanted {
                self.held_box(faults);
            }
        }
    }

    pub(super) fn end(&mut self, faults: &mut FoundFaults) {
        if self.is_lost {
            return;
        }
        let (at, end) = (self.box_at, self.offset);
        if self.left > 0 || !self.held.is_empty() {
            return faults.add(at, || format!("a box goes beyond the segment's end at {end}"));
        }
        self.end_fragment(faults);
        if !self.has_fragment {
            faults.add(0, || "no moof in the segment (RFC 8216 §3.3)".to_owned());
        }
    }

    /// Bytes of the current box to buffer: its header, or all of a `moof`.
    fn held_bytes(&self) -> usize {
        match box_size(&self.held) {
            None if self.held.len() >= 8 => 16,
            None => 8,
            Some((size, header)) if &self.held[4..8] == b"moof" => {
                usize::try_from(size).unwrap_or(usize::MAX).clamp(header, MOOF_BYTES_MAX)
            }
            Some((_, header)) => header,
        }
    }

    fn held_box(&mut self, faults: &mut FoundFaults) {
        let held = std::mem::take(&mut self.held);
        let at = self.box_at;
        let (size, header) = box_size(&held).expect("the header is there");
        let kind = &held[4..8];
        if !kind.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b' ') {
            self.is_lost = true;
            return faults.add(at, || format!("no box: its type is {kind:02x?}"));
        }
        let name = String::from_utf8_lossy(kind).into_owned();
        self.is_open = size == 0;
        if size > 0 && size < header as u64 {
            self.is_lost = true;
            return faults.add(at, || format!("box {name} of {size} bytes"));
        }
        let (starts, ends) = (at + header as u64, at.saturating_add(size));
        match kind {
            b"moof" if size != held.len() as u64 => {
                self.is_lost = true;
                faults.add(at, || format!("moof of {size} bytes"));
            }
            b"moof" => {
                self.end_fragment(faults);
                self.has_fragment = true;
                match fragment(&held[header..]) {
                    Ok(fragment) => self.fragment(&fragment, at, faults),
                    Err(found) => faults.add(at, || format!("moof: {found}")),
                }
            }
            b"mdat" if self.is_open => self.data.push((starts, u64::MAX)),
            b"mdat" => self.data.push((starts, ends)),
            _ => {}
        }
        if self.data.len() > DATA_MAX {
            self.data.remove(0);
        }
        if !self.is_open && kind != b"moof" {
            self.left = size - header as u64;
        }
    }

    fn fragment(&mut self, fragment: &Fragment, at: u64, faults: &mut FoundFaults) {
        self.samples_at = at;
        let number = fragment.sequence;
        if let Some(before) = self.sequence.filter(|before| number <= *before) {
            faults.add(at, || format!("moof sequence number {number} after {before}"));
        }
        self.sequence = Some(number);
        if fragment.tracks.is_empty() {
            faults.add(at, || "moof without a track".to_owned());
        }
        for track in &fragment.tracks {
            let id = track.id;
            let Some(clock) = self.tracks.get_mut(&id) else {
                faults.add(at, || format!("track {id} is not in the init section"));
                continue;
            };
            let Some(time) = track.decode_time else {
                faults.add(at, || format!("track {id}: no tfdt (RFC 8216 §3.3)"));
                continue;
            };
            let scale = u64::from(clock.movie.timescale.max(1));
            if let Some(next) = clock.next.filter(|next| next.abs_diff(time) > scale / 1000 + 1) {
                let by_ms = (time as f64 - next as f64) / scale as f64 * 1e3;
                faults.add(at, || {
                    format!("track {id}: tfdt {time}, expected {next} ({by_ms:+.1} ms)")
                });
            }
            let (duration, ranges) = track.totals(&clock.movie);
            clock.next = Some(time.saturating_add(duration));
            // Without default-base-is-moof the data offset depends on the previous tracks.
            if track.is_moof_based {
                let absolute = |(offset, bytes): (i64, u64)| {
                    let from = at.checked_add_signed(offset).unwrap_or(u64::MAX);
                    (from, from.saturating_add(bytes))
                };
                self.samples.extend(ranges.into_iter().map(absolute));
            }
        }
    }

    /// Compares the sample data of the last fragment with the `mdat` boxes after it.
    fn end_fragment(&mut self, faults: &mut FoundFaults) {
        let holds = |(from, to): &(u64, u64)| {
            from == to || self.data.iter().any(|(start, end)| start <= from && to <= end)
        };
        let at = self.samples_at;
        if let Some((from, to)) = self.samples.iter().find(|range| !holds(range)) {
            faults.add(at, || format!("samples at {from} to {to} are in no mdat"));
        }
        self.samples.clear();
        self.data.clear();
    }
}

/// Returns the size of a box, 0 for one without an end, and the length of its header; none where
/// more bytes are needed.
fn box_size(held: &[u8]) -> Option<(u64, usize)> {
    let size = u32::from_be_bytes(held.get(..4)?.try_into().ok()?);
    held.get(4..8)?;
    match size {
        1 => Some((u64::from_be_bytes(held.get(8..16)?.try_into().ok()?), 16)),
        size => Some((u64::from(size), 8)),
    }
}

const MOOF_BYTES_MAX: usize = 8 << 20;
const DATA_MAX: usize = 1000;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn boxed(kind: &[u8; 4], payload: &[u8]) -> Vec<u8> {
        let size = (payload.len() as u32 + 8).to_be_bytes();
        [&size[..], kind, payload].concat()
    }

    fn full(kind: &[u8; 4], flags: u32, words: &[u32]) -> Vec<u8> {
        let bytes: Vec<u8> =
            std::iter::once(&flags).chain(words).flat_map(|word| word.to_be_bytes()).collect();
        boxed(kind, &bytes)
    }

    /// An init section of one track, 1000 ticks a second.
    pub(crate) fn init() -> Vec<u8> {
        let tkhd = full(b"tkhd", 0, &[0, 0, 1, 0, 0]);
        let mdia = boxed(b"mdia", &full(b"mdhd", 0, &[0, 0, 1000, 0, 0]));
        let trak = boxed(b"trak", &[tkhd, mdia].concat());
        let mvex = boxed(b"mvex", &full(b"trex", 0, &[1, 1, 100, 0, 0]));
        [boxed(b"ftyp", b"iso6\0\0\0\0"), boxed(b"moov", &[trak, mvex].concat())].concat()
    }

    /// A fragment of ten samples of 10 bytes and 100 ms.
    pub(crate) fn segment(sequence: u32, time: u32) -> Vec<u8> {
        let mut moof = Vec::new();
        // The offset of the data depends on the length of the moof.
        for _ in 0..2 {
            let place = moof.len() as u32 + 8;
            let traf = [
                full(b"tfhd", 0x02_0010, &[1, 10]),
                full(b"tfdt", 0, &[time]),
                full(b"trun", 1, &[10, place]),
            ];
            let mfhd = full(b"mfhd", 0, &[sequence]);
            moof = boxed(b"moof", &[mfhd, boxed(b"traf", &traf.concat())].concat());
        }
        [boxed(b"styp", b"msdh"), moof, boxed(b"mdat", &[7; 100])].concat()
    }

    fn check(segments: &[(Vec<u8>, bool)]) -> Vec<(u64, String)> {
        let mut seen = None;
        for piece in [1, 13, 100_000] {
            let (mut check, mut all) = (Fmp4Check::default(), FoundFaults::default());
            check.init(&init(), &mut all);
            for (bytes, is_discontinuity) in segments {
                check.begin(*is_discontinuity);
                bytes.chunks(piece).for_each(|piece| check.feed(piece, &mut all));
                check.end(&mut all);
            }
            assert_eq!(*seen.get_or_insert(all.listed.clone()), all.listed);
        }
        seen.unwrap()
    }

    #[test]
    fn good_segments_follow_each_other() {
        assert_eq!(check(&[(segment(1, 0), false), (segment(2, 1000), false)]), []);
        assert_eq!(check(&[(segment(9, 5000), false), (segment(1, 0), true)]), []);
        let two = [segment(1, 0), segment(2, 1000)].concat();
        assert_eq!(check(&[(two, false)]), []);
    }

    #[test]
    fn wrong_clocks_and_numbers_are_found() {
        let seen = check(&[(segment(2, 0), false), (segment(2, 1100), false)]);
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert_eq!(seen[0], (12, "moof sequence number 2 after 2".to_owned()));
        assert_eq!(seen[1].1, "track 1: tfdt 1100, expected 1000 (+100.0 ms)");
    }

    #[test]
    fn wrong_boxes_are_found_with_their_place() {
        let good = segment(1, 0);
        let cut = check(&[(good[..good.len() - 1].to_vec(), false)]);
        let mdat = good.len() as u64 - 108;
        assert_eq!((cut[0].0, cut.len()), (mdat, 1), "{cut:?}");
        assert!(cut[0].1.starts_with("a box goes beyond"), "{cut:?}");
        let mut short = good.clone();
        let at = mdat as usize;
        short[at + 3] = 90;
        short.truncate(at + 90);
        let seen = check(&[(short, false)]);
        assert!(seen[0].1.ends_with("are in no mdat"), "{seen:?}");
        let mut junk = good.clone();
        junk[at + 4] = 0;
        assert!(check(&[(junk, false)])[0].1.starts_with("no box: its type"));
        let mut tiny = good.clone();
        tiny[at + 3] = 7;
        assert_eq!(check(&[(tiny, false)])[0], (mdat, "box mdat of 7 bytes".to_owned()));
        assert!(check(&[(boxed(b"styp", b"msdh"), false)])[0].1.starts_with("no moof"));
        let huge = [&0x7fff_ffff_u32.to_be_bytes()[..], b"moof", &[0; 64]].concat();
        assert!(check(&[(huge, false)])[0].1.starts_with("a box goes beyond"));
        let mut foreign = good;
        let track = foreign.windows(4).position(|four| four == b"tfhd").unwrap() + 11;
        foreign[track] = 5;
        assert_eq!(check(&[(foreign, false)])[0].1, "track 5 is not in the init section");
    }

    #[test]
    fn init_sections_have_a_file_type_and_a_movie() {
        let faults = |bytes: &[u8]| {
            let mut faults = FoundFaults::default();
            Fmp4Check::default().init(bytes, &mut faults);
            faults.listed.into_iter().map(|(_, found)| found).collect::<Vec<_>>()
        };
        assert!(faults(&init()).is_empty());
        assert!(faults(b"")[0].contains("no ftyp"));
        assert!(faults(&boxed(b"ftyp", b"iso6"))[0].contains("no moov"));
        let no_mvex = [boxed(b"ftyp", b"iso6"), boxed(b"moov", &[])].concat();
        assert_eq!(faults(&no_mvex), ["init section: moov without a track that has fragments"]);
        assert!(faults(&init()[..40])[0].contains("box moov of"));
    }
}
