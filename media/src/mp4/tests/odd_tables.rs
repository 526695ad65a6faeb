// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files whose tables lack entries or contradict each other, and which are played with a warning.

use super::made::*;
use super::*;
use crate::tracks::SampleFault;

/// The only warning of a file with this track, and its samples.
fn warned(track: Trak) -> (String, Vec<MediaSample>) {
    let found = demux(&file(&[track])).unwrap();
    let [warning] = found.warnings() else { panic!("{:?}", found.warnings()) };
    assert!(warning.ends_with("; make its tables anew (ffmpeg -i IN -map 0 -c copy OUT.mp4)"));
    (warning.clone(), samples(&found, 0))
}

fn plain() -> Vec<MediaSample> {
    samples(&demux(&file(&[Trak::of(1, PLACE)])).unwrap(), 0)
}

#[test]
fn last_entry_holds_where_times_end_early() {
    let short = Trak { stts: table(b"stts", 2, &[2, 24, 0, 7]), ..Trak::of(1, PLACE) };
    let (warning, found) = warned(short);
    assert!(warning.starts_with("track 1: stts ends before sample 2, and its"), "{warning}");
    assert_eq!(found, plain());
    let offsets =
        |entries: &[u32]| Trak { tables: table(b"ctts", 2, entries), ..Trak::of(1, PLACE) };
    let (warning, found) = warned(offsets(&[1, 48, 3, 24]));
    assert!(warning.starts_with("track 1: ctts ends before sample 4, and its"), "{warning}");
    let found: Vec<_> = found.iter().map(|sample| sample.offset).collect();
    assert_eq!(found, [48, 24, 24, 24, 24, 24]);
    let none = demux(&file(&[offsets(&[])])).unwrap();
    assert!(none.warnings().is_empty() && samples(&none, 0) == plain());
}

#[test]
fn chunks_that_are_not_named_have_the_first_entry() {
    let late = Trak { stsc: table(b"stsc", 3, &[2, 2, 1]), ..Trak::of(1, PLACE) };
    let (warning, found) = warned(late);
    assert!(warning.starts_with("track 1: stsc begins with chunk 2, and"), "{warning}");
    assert_eq!(found, plain());
    // A chunk without samples has none.
    let empty = Trak { stsc: table(b"stsc", 3, &[1, 3, 1, 2, 0, 1, 3, 3, 1]), ..Trak::of(1, 0) };
    let empty = Trak { stco: table(b"stco", 1, &[PLACE, 1 << 30, PLACE + 30]), ..empty };
    let found = demux(&file(&[empty])).unwrap();
    assert!(found.warnings().is_empty() && samples(&found, 0) == plain());
}

#[test]
fn marks_that_go_back_are_ignored() {
    let tables = table(b"stss", 1, &[0, 1, 1, 4, 2, 6]);
    let (warning, found) =
        warned(Trak { entries: vec![h264_entry()], tables, ..Trak::of(1, PLACE) });
    assert!(warning.starts_with("track 1: stss has 3 entries out of order, which"), "{warning}");
    let starts: Vec<_> = found.iter().map(|sample| sample.is_start).collect();
    assert_eq!(starts, [true, false, false, true, false, true]);
}

/// Six adjacent pictures of 12 bytes: P, IDR, P, P with a recovery point, P, P.
const PICTURES: [[u8; 12]; 6] = {
    const IDR: [u8; 12] = [0, 0, 0, 8, 0x65, 0x88, 0, 0, 0, 0, 0, 0];
    const P: [u8; 12] = [0, 0, 0, 8, 0x41, 0xc0, 0, 0, 0, 0, 0, 0];
    const RECOVERY: [u8; 12] = [0, 0, 0, 2, 6, 6, 0, 0, 0, 2, 0x41, 0xc0];
    [P, IDR, P, RECOVERY, P, P]
};

#[test]
fn starts_that_no_table_marks_are_found_in_the_pictures() {
    let listed = Trak {
        entries: vec![h264_entry()],
        stsz: boxed(b"stsz", &[&words(&[0, 12, 6])]),
        stsc: table(b"stsc", 3, &[1, 6, 1]),
        stco: table(b"stco", 1, &[PLACE]),
        tables: table(b"stss", 1, &[]),
        ..Trak::of(1, PLACE)
    };
    let mut tables = file(&[listed]);
    tables[PLACE as usize..][..72].copy_from_slice(&PICTURES.concat());
    let mut fragments = fragmented(&[0, 240], 12, 0x1_0000);
    for (at, pictures) in [PLACE as usize, PLACE as usize + 36].into_iter().zip(PICTURES.chunks(3))
    {
        fragments[at..at + 36].copy_from_slice(&pictures.concat());
    }
    for film in [tables, fragments] {
        for step in [1, 2, 1000] {
            let found = demux_by(&film, step).unwrap();
            let [warning] = found.warnings() else { panic!("{:?}", found.warnings()) };
            assert!(warning.contains("marked as a random-access point, and 2 were"), "{warning}");
            let starts: Vec<_> = samples(&found, 0).iter().map(|one| one.is_start).collect();
            assert_eq!(starts, [false, true, false, true, false, false]);
        }
    }
}

#[test]
fn a_table_of_starts_that_were_found_is_the_table_of_starts_that_were_marked() {
    let pictures = [PICTURES[1]; 3].concat();
    let [found, marked] = [0x1_0000, 0].map(|flags| {
        let mut film = fragmented(&[0], 12, flags);
        film[PLACE as usize..][..36].copy_from_slice(&pictures);
        demux(&film).unwrap()
    });
    assert!(found.warnings()[0].contains("and 3 were found"), "{:?}", found.warnings());
    assert_eq!(found.tracks()[0].samples, marked.tracks()[0].samples);
}

/// Creates a file of fragments of three pictures of this many bytes, of 40 ms each and with these
/// flags, which begin at these times.
fn fragmented(times: &[u64], bytes: u32, flags: u32) -> Vec<u8> {
    let pictures = Trak { entries: vec![h264_entry()], ..Trak::empty(1) };
    let trex = boxed(b"trex", &[&words(&[0, 1, 1, 40, bytes, flags])]);
    let moov = boxed(b"moov", &[&mvhd(), &pictures.bytes(), &boxed(b"mvex", &[&trex])]);
    let mut film =
        [boxed(b"ftyp", &[b"isom\0\0\0\0"]), boxed(b"mdat", &[&[7; 1000]]), moov].concat();
    for (&time, place) in times.iter().zip((PLACE..).step_by(3 * bytes as usize)) {
        let header = boxed(b"tfhd", &[&words(&[1, 1, 0, place])]);
        let time = boxed(b"tfdt", &[&words(&[1 << 24]), &time.to_be_bytes()]);
        let run = boxed(b"trun", &[&words(&[0, 3])]);
        film.extend(boxed(b"moof", &[&boxed(b"traf", &[&header, &time, &run])]));
    }
    film
}

#[test]
fn fragments_that_step_back_by_a_little_wait_for_the_last_sample() {
    let found = demux(&fragmented(&[0, 0, 120, 400], 10, 0)).unwrap();
    let [warning] = found.warnings() else { panic!("{:?}", found.warnings()) };
    assert!(warning.contains("(tfdt) step back by up to 80 ms, and"), "{warning}");
    let track = &found.tracks()[0];
    let times = samples(&found, 0).into_iter().map(|one| (one.decode, track.presented(&one)));
    let expected = [
        [(0, 0), (40, 40), (80, 80)],
        [(80, 0), (80, 40), (80, 80)],
        [(120, 120), (160, 160), (200, 200)],
        [(400, 400), (440, 440), (480, 480)],
    ];
    assert_eq!(times.collect::<Vec<_>>(), expected.concat());
    assert!(demux(&fragmented(&[0, 100], 10, 0)).unwrap().warnings().is_empty(), "a short sample");
    for far in [1000, 1 << 61, (1 << 62) - 200] {
        let refusal = demux(&fragmented(&[far, 800], 10, 0)).unwrap_err();
        let Refusal::Sample { sample: 3, fault: SampleFault::Time { decode: 800 }, .. } = refusal
        else {
            panic!("{far}: {refusal:?}")
        };
    }
}
