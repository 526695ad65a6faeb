// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests valid files: tables and fragments of every shape.

use std::ops::Range;

use super::made::*;
use super::*;
use crate::tracks::PixelAspect;
use crate::{Codec, Container};

fn places(found: &Presentation, track: usize) -> Vec<u64> {
    samples(found, track).iter().map(|sample| sample.file_offset).collect()
}

#[test]
fn files_are_known_by_their_first_bytes() {
    assert!(is_mp4(&file(&[])) && is_mp4(b"\0\0\0\x14ftypisom"));
    assert!(is_mp4(b"\0\0\0\x01mdat") && is_mp4(b"\0\0\0\0mdat") && is_mp4(b"\0\0\x01\0moov"));
    for other in [&b"\0\0\0\x14ftyp"[..7], b"\x47\x40\0\x10\0\0\xb0\x0d", b"\0\0\0\x07ftyp"] {
        assert!(!is_mp4(other));
    }
}

#[test]
fn tables_give_every_sample_its_place_and_times() {
    let offsets = table(b"ctts", 2, &[1, 48, 2, (-24_i32) as u32, 3, 0]);
    let starts = table(b"stss", 1, &[1, 4]);
    let track = Trak {
        entries: vec![h264_entry()],
        stts: table(b"stts", 2, &[2, 24, 0, 9, 3, 48, 1, 24]),
        stsc: table(b"stsc", 3, &[1, 1, 1, 2, 3, 1, 3, 2, 1]),
        stco: table(b"stco", 1, &[PLACE + 500, PLACE, PLACE + 100]),
        tables: [offsets, starts].concat(),
        edits: edits(&[(300, -1, 1 << 16), (0, 24, 1 << 16)]),
        ..Trak::of(1, 0)
    };
    let found = demux(&file(&[track])).unwrap();
    assert_eq!(found.container(), Container::Mp4);
    let place = u64::from(PLACE);
    let expected = [(500, 0, 48), (0, 24, -24), (10, 48, -24), (20, 96, 0), (100, 144, 0)];
    let all = samples(&found, 0);
    assert_eq!(all.len(), 6);
    for (sample, (at, decode, offset)) in all.iter().zip(expected) {
        assert_eq!((sample.file_offset, sample.bytes), (place + at, 10));
        assert_eq!((sample.decode, sample.offset), (decode, offset));
    }
    let starts: Vec<_> = all.iter().map(|sample| sample.is_start).collect();
    assert_eq!(starts, [true, false, false, true, false, false]);
    let track = &found.tracks()[0];
    assert_eq!(track.shift, 500 - 24);
    assert_eq!(track.language, Some(*b"deu"));
}

#[test]
fn parts_of_any_size_give_the_same_presentation() {
    let films = [file(&[Trak::of(1, PLACE), Trak::of(7, PLACE + 100)]), fragmented(0x2_0000)];
    for film in films {
        let whole = demux(&film).unwrap();
        for samples in [0, 1, 2, 3, 5, 17, 100] {
            assert_eq!(demux_by(&film, samples).as_ref(), Ok(&whole), "{samples} at a time");
        }
    }
}

#[test]
fn pictures_that_are_to_be_turned_have_a_warning() {
    const ONE: i32 = 1 << 16;
    let warnings = |matrix, entries| {
        let track = Trak { matrix, entries, ..Trak::of(5, PLACE) };
        demux(&file(&[track])).unwrap().warnings().to_vec()
    };
    for (matrix, degrees) in
        [([0, ONE, -ONE, 0], 90), ([-ONE, 0, 0, -ONE], 180), ([0, -ONE, ONE, 0], 270)]
    {
        let found = warnings(matrix, vec![h264_entry()]);
        let [warning] = &found[..] else { panic!("{found:?}") };
        let begins = format!("track 5: its pictures are to be turned by {degrees} degrees");
        assert!(warning.starts_with(&begins) && warning.contains("ffmpeg -i IN"), "{warning}");
        assert!(warnings(matrix, vec![mp3_entry()]).is_empty(), "sound is not turned");
    }
    let mirrored = warnings([-ONE, 0, 0, ONE], vec![h264_entry()]);
    assert!(mirrored[0].starts_with("track 5: its pictures are to be mirrored"), "{mirrored:?}");
    for matrix in [[0; 4], [ONE, 0, 0, ONE], [2 * ONE, 0, 0, ONE], [ONE, ONE, -ONE, ONE]] {
        assert!(warnings(matrix, vec![h264_entry()]).is_empty(), "{matrix:?}");
    }
}

#[test]
fn forms_of_pixels_are_those_of_the_entry() {
    let found = |pasp: &[u8]| {
        let config = boxed(b"avcC", &[&[1, 100, 0, 31, 0xff, 0xe0, 0]]);
        let entry = picture_entry(b"avc1", &[config, pasp.to_vec()].concat());
        let track = Trak { entries: vec![entry], ..Trak::of(5, PLACE) };
        let aspect = demux(&file(&[track])).unwrap().tracks()[0].display.pixel_aspect;
        aspect.map(PixelAspect::numbers)
    };
    let named = |width, height| found(&boxed(b"pasp", &[&words(&[width, height])]));
    assert_eq!(named(32, 22), Some((16, 11)));
    assert_eq!(named(1, 1), Some((1, 1)));
    for (width, height) in [(0, 0), (0, 1), (1, 0), (u32::MAX, 1), (1, u32::MAX)] {
        assert_eq!(named(width, height), None, "{width}:{height}");
    }
    assert_eq!(found(&[]), None);
    assert_eq!(found(&boxed(b"pasp", &[&[0, 0, 0, 4, 0, 0, 0]])), None, "a byte is missing");
}

#[test]
fn sizes_of_other_tables() {
    let constant = boxed(b"stsz", &[&words(&[0, 10, 6])]);
    let plain = demux(&file(&[Trak::of(1, PLACE)])).unwrap();
    for (bits, bytes) in
        [(4, &[0xaa; 3][..]), (8, &[10; 6]), (16, &[0, 10, 0, 10, 0, 10, 0, 10, 0, 10, 0, 10])]
    {
        let compact = boxed(b"stz2", &[&words(&[0, bits, 6]), bytes]);
        let track = Trak { stsz: compact, ..Trak::of(1, PLACE) };
        assert_eq!(samples(&demux(&file(&[track])).unwrap(), 0), samples(&plain, 0));
    }
    let track = Trak { stsz: constant, ..Trak::of(1, PLACE) };
    assert_eq!(samples(&demux(&file(&[track])).unwrap(), 0), samples(&plain, 0));
}

/// A file of 100 GB: one piece at the beginning, one at the end, zeros in between.
struct Sparse {
    beginning: Vec<u8>,
    end: Vec<u8>,
    end_at: u64,
}

impl ReadAt for Sparse {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
        match offset.checked_sub(self.end_at) {
            Some(offset) => self.end.read_exact_at(bytes, offset),
            None => self.beginning.read_exact_at(bytes, offset),
        }
    }
}

#[test]
fn offsets_of_64_bits() {
    let end_at = 100_000_000_000_u64;
    let far = end_at - 60;
    let high = (far >> 32) as u32;
    let low = [0, 20, 40].map(|at| (far + at) as u32);
    let entries = [high, low[0], high, low[1], high, low[2]];
    let track = Trak { stco: table(b"co64", 2, &entries), ..Trak::of(1, 0) };
    let beginning = [&[0, 0, 0, 1], b"mdat".as_slice(), &end_at.to_be_bytes(), &[0; 64]].concat();
    let end = long_boxed(b"moov", &[mvhd(), track.bytes()].concat());
    let bytes = end_at + end.len() as u64;
    let file = Sparse { beginning, end, end_at };
    let mut demuxer = Mp4Demuxer::new(bytes);
    while !demuxer.advance(&file, 2).unwrap() {}
    let found = demuxer.finish(|| IDENTITY).unwrap();
    let expected: Vec<_> = (0..6).map(|sample| far + sample * 10).collect();
    assert_eq!(places(&found, 0), expected);
}

/// A track fragment: flags and fields of `tfhd`, runs with their flags and fields.
fn traf(track: u32, flags: u32, fields: &[u32], runs: &[(u32, &[u32])]) -> Vec<u8> {
    let header = boxed(b"tfhd", &[&words(&[flags, track]), &words(fields)]);
    let runs: Vec<_> = runs
        .iter()
        .flat_map(|&(flags, fields)| boxed(b"trun", &[&words(&[flags]), &words(fields)]))
        .collect();
    boxed(b"traf", &[&header, &runs])
}

/// `moov` of a track of pictures, one of subtitles and one of sound, and two fragments. The flags
/// `base` of `tfhd` select the origin of the data offsets: the fragment, or the track fragment
/// before.
pub(super) fn fragmented(base: u32) -> Vec<u8> {
    let pictures = Trak { entries: vec![h264_entry()], ..Trak::empty(1) };
    let subtitles = Trak { entries: vec![sound_entry(b"tx3g", &[])], ..Trak::empty(2) };
    let sound = Trak::empty(3);
    let trex = |track| boxed(b"trex", &[&words(&[0, track, 1, 40, 5, 0x1_0000])]);
    let mvex = boxed(b"mvex", &[&trex(1), &trex(2), &trex(3)]);
    let tracks = [pictures.bytes(), subtitles.bytes(), sound.bytes()].concat();
    let moov = boxed(b"moov", &[&mvhd(), &tracks, &mvex]);
    let fragment = |is_first: bool| {
        // Flags of the first sample; sizes and presentation offsets of three; then of one more.
        let listed: &[u32] = &[3, 408, 0x200_0000, 20, 0, 10, 80, 12, (-40_i32) as u32];
        let behind: &[u32] = &[1, 7];
        let pictures = traf(1, base, &[], &[(0x0100_0a05, listed), (0x200, behind)]);
        let mut subtitles = traf(2, base | 0x10, &[4], &[(0, &[2])]);
        let mut sound = traf(3, base | 0x8, &[20], &[(0x200, &[2, 30, 31])]);
        if base != 0 {
            // Offsets count from the fragment: each run has to give its own.
            subtitles = traf(2, base | 0x10, &[4], &[(1, &[2, 457])]);
            sound = traf(3, base | 0x8, &[20], &[(0x201, &[2, 465, 30, 31])]);
        }
        let mut moof = boxed(b"moof", &[&pictures, &subtitles, &sound]);
        if !is_first {
            let time = boxed(b"tfdt", &[&words(&[1 << 24, 0, 1000])]);
            let mut pictures = pictures;
            pictures.splice(24..24, time.clone());
            let bytes = pictures.len() as u32;
            pictures[..4].copy_from_slice(&bytes.to_be_bytes());
            moof = boxed(b"moof", &[&pictures, &subtitles, &sound]);
        }
        assert!(moof.len() <= 400, "{} bytes", moof.len());
        let padding = boxed(b"free", &[&vec![0; 392 - moof.len()]]);
        [moof, padding, boxed(b"mdat", &[&[7; 600]])].concat()
    };
    [boxed(b"ftyp", &[b"iso5\0\0\0\0"]), moov, fragment(true), fragment(false)].concat()
}

#[test]
fn fragments_continue_their_tracks() {
    for base in [0, 0x2_0000] {
        let film = fragmented(base);
        let found = demux(&film).unwrap();
        assert_eq!(found.container(), Container::FragmentedMp4);
        assert_eq!((found.tracks().len(), found.left_out().len()), (2, 1));
        let starts: Vec<_> = film.windows(4).enumerate().filter(|(_, at)| at == b"moof").collect();
        let [first, second] = [0, 1].map(|at| starts[at].0 as u64 - 4);
        let rows = [408, 428, 438, 450];
        let expected: Vec<_> =
            [first, second].iter().flat_map(|at| rows.map(|row| at + row)).collect();
        assert_eq!(places(&found, 0), expected);
        let rows = [465, 495];
        let expected: Vec<_> =
            [first, second].iter().flat_map(|at| rows.map(|row| at + row)).collect();
        assert_eq!(places(&found, 1), expected);
        let times = |track: usize| -> Vec<_> {
            samples(&found, track).iter().map(|sample| sample.decode).collect()
        };
        assert_eq!(times(0), [0, 40, 80, 120, 1000, 1040, 1080, 1120]);
        assert_eq!(times(1), [0, 20, 40, 60]);
        let pictures = samples(&found, 0);
        assert_eq!(pictures[3].duration, 880, "until the time of the next fragment");
        assert_eq!(pictures.iter().map(|sample| sample.offset).max(), Some(80));
        assert_eq!(pictures.iter().map(|sample| sample.offset).min(), Some(-40));
        let starts: Vec<_> = pictures.iter().map(|sample| sample.is_start).collect();
        assert_eq!(starts, [true, false, false, false, true, false, false, false]);
        assert!(samples(&found, 1).iter().all(|sample| sample.is_start), "sound");
    }
}

#[test]
fn samples_in_moov_and_in_fragments() {
    let mvex = boxed(b"mvex", &[&boxed(b"trex", &[&words(&[0, 1, 1, 24, 10, 0])])]);
    let moov = boxed(b"moov", &[&mvhd(), &Trak::of(1, PLACE).bytes(), &mvex]);
    let fragment = |place: &[u32]| boxed(b"moof", &[&traf(1, 1, place, &[(0, &[3])])]);
    let fragments = [fragment(&[0, PLACE + 60]), fragment(&[0, PLACE + 90])].concat();
    let ftyp = boxed(b"ftyp", &[b"isom\0\0\0\0"]);
    let film = [ftyp, boxed(b"mdat", &[&[7; 1000]]), moov, fragments].concat();
    let found = demux(&film).unwrap();
    let expected: Vec<_> = (0..12).map(|sample| u64::from(PLACE) + sample * 10).collect();
    assert_eq!(places(&found, 0), expected);
    assert_eq!(samples(&found, 0)[11].decode, 11 * 24);
}

#[test]
fn quicktime_descriptions_of_sound() {
    // Descriptor of AAC-LC, 48 kHz, two channels: ISO/IEC 14496-1 §7.2.6.
    let config = [&[4, 17, 0x40, 0x15][..], &[0; 11], &[5, 2, 0x11, 0x90]].concat();
    let stream = [&[3, 25, 0, 1, 0][..], &config, &[6, 1, 2]].concat();
    let esds = boxed(b"esds", &[&[0; 4], &stream]);
    let wave = boxed(b"wave", &[&boxed(b"frma", &[b"mp4a"]), &esds, &[0, 0, 0, 8, 0, 0, 0, 0]]);
    let plain = sound_entry(b"mp4a", &esds);
    let mut first = sound_entry(b"mp4a", &[&[0; 16], &wave[..]].concat());
    first[17] = 1;
    let rate = 48_000_f64.to_be_bytes();
    let fields = [&[0, 0, 0, 72][..], &rate, &words(&[6]), &[0; 20]].concat();
    let mut second = sound_entry(b"mp4a", &[&fields, &wave[..]].concat());
    second[17] = 2;
    let mut iso = plain.clone();
    iso[17] = 1;
    for entry in [plain, first, second, iso] {
        let track = Trak { entries: vec![entry], ..Trak::of(1, PLACE) };
        let found = demux(&file(&[track])).unwrap();
        let Codec::Aac(config) = &found.tracks()[0].codec else { panic!("{found:?}") };
        assert_eq!((config.rate_hz, config.channels, config.object_type), (48_000, 2, 2));
        assert_eq!(config.specific, [0x11, 0x90]);
    }
}

/// A file of which no byte of a sample may be read.
struct WithoutSamples<'a> {
    bytes: &'a [u8],
    samples: Range<u64>,
}

impl ReadAt for WithoutSamples<'_> {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
        let end = offset + bytes.len() as u64;
        let Range { start, end: behind } = self.samples.clone();
        assert!(end <= start || behind <= offset, "{offset}..{end} is read");
        self.bytes.read_exact_at(bytes, offset)
    }
}

#[test]
fn no_byte_of_a_sample_is_read() {
    let moov = boxed(b"moov", &[&mvhd(), &Trak::of(1, PLACE).bytes()]);
    let ftyp = boxed(b"ftyp", &[b"isom\0\0\0\0"]);
    for mdat in [boxed(b"mdat", &[&[7; 1000]]), long_boxed(b"mdat", &[7; 1000])] {
        let bytes = [&ftyp[..], &mdat, &moov].concat();
        let behind = (ftyp.len() + mdat.len()) as u64;
        let file = WithoutSamples { bytes: &bytes, samples: behind - 1000..behind };
        let mut demuxer = Mp4Demuxer::new(bytes.len() as u64);
        while !demuxer.advance(&file, 1).unwrap() {}
        assert_eq!(demuxer.finish(|| IDENTITY).unwrap().tracks()[0].samples.len(), 6);
    }
}

/// Samples a second of a film of a million samples: `cargo test --release -p pagewire-media --
/// --ignored --nocapture million`.
#[test]
#[ignore = "a measurement"]
fn a_million_samples_are_read_in_less_than_three_seconds() {
    let count = 1_000_000_u32;
    let sizes: Vec<_> = (0..count).map(|sample| 1 + sample % 7).collect();
    let bytes: u32 = sizes.iter().sum();
    let offsets: Vec<_> = (0..count).flat_map(|sample| [1, sample % 3 * 512]).collect();
    let starts: Vec<_> = (0..count / 50).map(|group| group * 50 + 1).collect();
    let mut places = vec![PLACE];
    for chunk in sizes.chunks(10) {
        places.push(places[places.len() - 1] + chunk.iter().sum::<u32>());
    }
    places.pop();
    let track = Trak {
        entries: vec![h264_entry()],
        stts: table(b"stts", 2, &[count, 40]),
        stsz: boxed(b"stsz", &[&words(&[0, 0, count]), &words(&sizes)]),
        stsc: table(b"stsc", 3, &[1, 10, 1]),
        stco: table(b"stco", 1, &places),
        tables: [table(b"ctts", 2, &offsets), table(b"stss", 1, &starts)].concat(),
        ..Trak::of(1, 0)
    };
    let moov = boxed(b"moov", &[&mvhd(), &track.bytes()]);
    let samples = vec![7; bytes as usize];
    let film = [boxed(b"ftyp", &[b"isom\0\0\0\0"]), boxed(b"mdat", &[&samples]), moov].concat();
    let mut disk = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut disk, &film).unwrap();
    let begun = std::time::Instant::now();
    let mut demuxer = Mp4Demuxer::new(film.len() as u64);
    while !demuxer.advance(&disk, 10_000).unwrap() {}
    let found = demuxer.finish(|| IDENTITY).unwrap();
    let elapsed_s = begun.elapsed().as_secs_f64();
    assert_eq!(found.tracks()[0].samples.len(), count as usize);
    assert_eq!(found.sample_bytes(), u64::from(bytes));
    println!("{:.1} million samples a second", f64::from(count) / elapsed_s / 1e6);
    assert!(elapsed_s < 3.0, "{elapsed_s} s");
}

#[test]
fn index_behind_media_is_noticed() {
    let is_behind = |file: &[u8]| is_index_behind_media(file, file.len() as u64);
    let behind = file(&[Trak::of(1, PLACE)]);
    assert!(is_behind(&behind).unwrap());
    let moov = boxed(b"moov", &[&mvhd()]);
    let media = boxed(b"mdat", &[&[7; 100]]);
    assert!(!is_behind(&[&moov[..], &media].concat()).unwrap());
    let empty = boxed(b"mdat", &[]);
    assert!(!is_behind(&[&empty[..], &moov, &media].concat()).unwrap());
    let free = boxed(b"free", &[]).repeat(BOXES_BEFORE_MEDIA_MAX);
    assert!(!is_behind(&[&free[..], &media, &moov].concat()).unwrap(), "it is not sought for ever");
    assert!(is_behind(&[0, 0, 0, 9, b'f', b'r', b'e', b'e']).is_err(), "longer than the file");
}
