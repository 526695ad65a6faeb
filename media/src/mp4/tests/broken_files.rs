// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests broken and malicious files: each is refused, and no sample is outside of the file.

use super::made::*;
use super::*;
use crate::tracks::{SAMPLES_MAX, SampleFault};

/// The finding of a file with this track.
fn finding(track: Trak) -> String {
    match demux(&file(&[track])) {
        Err(Refusal::Broken { container: "MP4", what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

/// The fault of a sample of a file with this track.
fn fault(track: Trak) -> (usize, SampleFault) {
    match demux(&file(&[track])) {
        Err(Refusal::Sample { container: "MP4", track: 1, sample, fault }) => (sample, fault),
        other => panic!("{other:?}"),
    }
}

fn track() -> Trak {
    Trak::of(1, PLACE)
}

#[test]
fn counts_beyond_the_box_are_refused_at_once() {
    let lying = |code: &[u8; 4], fields: &[u32]| boxed(code, &[&words(fields)]);
    let tables = [
        Trak { stsz: lying(b"stsz", &[0, 0, u32::MAX, 10]), ..track() },
        Trak { stsz: lying(b"stsz", &[0, 0]), ..track() },
        Trak { stsz: lying(b"stz2", &[0, 4, u32::MAX, 10]), ..track() },
        Trak { stsz: lying(b"stz2", &[0, 5, 6, 10]), ..track() },
        Trak { stts: lying(b"stts", &[0, u32::MAX, 6, 24]), ..track() },
        Trak { stsc: lying(b"stsc", &[0, 2, 1, 2, 1]), ..track() },
        Trak { stco: lying(b"stco", &[0, u32::MAX]), ..track() },
        Trak { stco: lying(b"co64", &[0, 2, 0, 24]), ..track() },
        Trak { tables: lying(b"ctts", &[0, 7, 1, 1]), ..track() },
        Trak { tables: lying(b"stss", &[0, 7, 1, 1]), ..track() },
    ];
    for table in tables {
        let what = finding(table);
        assert!(!what.is_empty());
    }
    // A constant size needs no table, so its count is held against the file.
    for count in [1 << 20, u32::MAX] {
        let constant = Trak { stsz: lying(b"stsz", &[0, 1000, count]), ..track() };
        assert!(matches!(fault(constant).1, SampleFault::Overlap | SampleFault::TooMany { .. }));
    }
}

#[test]
fn tables_that_contradict_each_other() {
    let empty = Trak { stts: table(b"stts", 2, &[0, 24]), ..track() };
    assert_eq!(finding(empty), "stts without a sample");
    let none = Trak { stts: table(b"stts", 2, &[0; 3000]), ..track() };
    assert_eq!(finding(none), "stts with runs of no sample");
    let few = Trak { stco: table(b"stco", 1, &[PLACE, PLACE + 20]), ..track() };
    assert_eq!(finding(few), "stco of 2 chunks, which are not all samples");
    let empty = Trak { stsc: table(b"stsc", 3, &[]), ..track() };
    assert_eq!(finding(empty), "stsc without an entry");
    let empty = Trak { stsc: table(b"stsc", 3, &[1, 0, 1]), ..track() };
    assert_eq!(finding(empty), "stco of 3 chunks, which are not all samples");
    let chunks = Trak { stco: table(b"stco", 1, &[PLACE; 3000]), ..track() };
    let chunks = Trak { stsc: table(b"stsc", 3, &[1, 0, 1, 2900, 2, 1]), ..chunks };
    assert_eq!(finding(chunks), "stsc with no sample in chunk 1025");
    let back = Trak { stsc: table(b"stsc", 3, &[1, 2, 1, 1, 2, 1]), ..track() };
    assert_eq!(finding(back), "stsc with chunk 1 behind chunk 1");
    let starts = Trak { tables: table(b"stss", 1, &[3; 3000]), ..track() };
    assert_eq!(finding(starts), "stss with sample 3 behind sample 3");
    for missing in [
        Trak { stsz: Vec::new(), ..track() },
        Trak { stts: Vec::new(), ..track() },
        Trak { stsc: Vec::new(), ..track() },
        Trak { stco: Vec::new(), ..track() },
    ] {
        assert!(finding(missing).starts_with("stbl without "));
    }
    let more = Trak { stts: table(b"stts", 2, &[60, 24]), ..track() };
    assert!(demux(&file(&[more])).is_ok(), "what no sample needs is ignored");
}

#[test]
fn samples_outside_of_the_file_or_on_each_other() {
    let outside = Trak { stco: table(b"stco", 1, &[PLACE, 1 << 30, 0]), ..track() };
    assert!(matches!(fault(outside), (2, SampleFault::OutsideFile { .. })));
    let end = Trak { stco: table(b"co64", 2, &[u32::MAX, u32::MAX - 9, 0, 0, 0, 0]), ..track() };
    assert!(matches!(fault(end), (0, SampleFault::OutsideFile { .. })));
    let sizes = boxed(b"stsz", &[&words(&[0, 0, 6]), &words(&[900; 6])]);
    let same = Trak { stsz: sizes, stsc: table(b"stsc", 3, &[1, 1, 1]), ..track() };
    let same = Trak { stco: table(b"stco", 1, &[PLACE; 6]), ..same };
    assert!(matches!(fault(same), (1, SampleFault::Overlap)));
    let slow = Trak { stts: table(b"stts", 2, &[6, u32::MAX]), timescale: 1, ..track() };
    assert!(matches!(demux(&file(&[slow])), Err(Refusal::TooLong { .. })));
}

#[test]
fn headers_without_sense() {
    assert_eq!(finding(Trak { timescale: 0, ..track() }), "mdhd with a time scale of 0");
    let mut film = file(&[track()]);
    let at = film.windows(4).position(|code| code == b"mvhd").unwrap();
    film[at + 16..at + 20].fill(0);
    assert!(matches!(demux(&film), Err(Refusal::Broken { offset, .. }) if offset == at as u64 - 4));
    let twice = demux(&file(&[track(), track()])).unwrap_err();
    assert!(twice.to_string().contains("a second track 1"), "{twice}");
    let nothing = demux(&boxed(b"ftyp", &[b"isom\0\0\0\0"])).unwrap_err();
    assert!(
        nothing.to_string().contains("without its index (moov): it was never written"),
        "{nothing}"
    );
    let early = [boxed(b"ftyp", &[b"isom\0\0\0\0"]), boxed(b"moof", &[])].concat();
    assert!(demux(&early).unwrap_err().to_string().contains("moof in front of moov"));
    let large = Trak { entries: vec![sound_entry(b"mp4a", &vec![0; 1 << 20])], ..track() };
    assert!(finding(large).contains("box stsd of"));
}

#[test]
fn runs_of_fragments_that_lie() {
    let mvex = boxed(b"mvex", &[&boxed(b"trex", &[&words(&[0, 1, 1, 1000, 0, 0])])]);
    let moov = boxed(b"moov", &[&mvhd(), &track().bytes(), &mvex]);
    let film = |size: u32, flags: u32, fields: &[u32]| {
        let header = boxed(b"tfhd", &[&words(&[0x2_0010, 1, size])]);
        let run = boxed(b"trun", &[&words(&[flags]), &words(fields)]);
        let moof = boxed(b"moof", &[&boxed(b"traf", &[&header, &run])]);
        let ftyp = boxed(b"ftyp", &[b"isom\0\0\0\0"]);
        demux(&[ftyp, boxed(b"mdat", &[&[7; 1000]]), moov.clone(), moof].concat())
    };
    let is_broken = |found| matches!(found, Err(Refusal::Broken { .. }));
    assert!(is_broken(film(0, 0, &[u32::MAX])), "samples without bytes are not bounded");
    assert!(is_broken(film(1000, 0, &[u32::MAX])));
    assert!(is_broken(film(1, 0x100, &[u32::MAX, 1])));
    assert!(is_broken(film(1, 1, &[0])), "an offset that is not there");
    assert!(is_broken(film(1, 1, &[1, i32::MIN as u32])), "in front of the file");
    assert!(matches!(film(10, 1, &[1, i32::MAX as u32]), Err(Refusal::Sample { .. })));
    assert!(matches!(film(1, 0x200, &[1, u32::MAX]), Err(Refusal::Sample { .. })));
    assert!(film(10, 1, &[1, 0]).is_ok());
}

/// Checks the invariants of every presentation.
fn check(found: &Presentation, bytes: usize) {
    for track in found.tracks() {
        let mut decode = 0;
        for sample in track.samples.samples(0..track.samples.len()) {
            assert!(sample.file_offset + u64::from(sample.bytes) <= bytes as u64);
            assert!(sample.decode >= decode);
            decode = sample.decode;
        }
    }
}

#[test]
fn cut_and_damaged_files_never_panic() {
    let lists = [table(b"ctts", 2, &[6, 1]), table(b"stss", 1, &[1])].concat();
    let pictures = Trak {
        entries: vec![h264_entry()],
        tables: lists,
        edits: edits(&[(30, -1, 1 << 16), (60, 1, 1 << 16)]),
        ..Trak::of(2, PLACE + 100)
    };
    let whole = file(&[track(), pictures]);
    let moov = PLACE as usize + 1000;
    for end in (0..PLACE as usize).chain(moov..whole.len()) {
        if let Ok(found) = demux(&whole[..end]) {
            check(&found, end);
        }
    }
    let mut film = whole.clone();
    for at in (0..PLACE as usize).chain(moov..whole.len()) {
        for value in [0, 1, 0x7f, 0x80, 0xff, whole[at] ^ 1, whole[at].wrapping_add(1)] {
            film[at] = value;
            if let Ok(found) = demux_by(&film, 3) {
                check(&found, film.len());
            }
        }
        film[at] = whole[at];
    }
}

#[test]
fn damaged_fragments_never_panic() {
    let films = [pieces::fragmented(0), pieces::fragmented(0x2_0000)];
    let cut_off = films.clone().map(|film| film[..film.len() - 560].to_vec());
    for whole in films.into_iter().chain(cut_off) {
        let mut film = whole.clone();
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, whole[at] ^ 1] {
                film[at] = value;
                if let Ok(found) = demux_by(&film, 3) {
                    check(&found, film.len());
                }
            }
            film[at] = whole[at];
        }
    }
}

/// Runs of a track that the file does not have, of samples of one size each: 12,000 runs of 8
/// million samples once were walked sample by sample, minutes of a core for a file of 240 KB.
#[test]
fn samples_of_one_size_that_are_not_sent_cost_nothing() {
    let header = boxed(b"tfhd", &[&words(&[0x2_0010, 9, 1])]);
    let runs = boxed(b"trun", &[&words(&[0, 1 << 23])]).repeat(4000);
    let moof = boxed(b"moof", &[&boxed(b"traf", &[&header, &runs])]);
    let film = [file(&[track()]), moof.repeat(3)].concat();
    let padded = Padded { film: film.clone(), bytes: 1 << 24 };
    let mut demuxer = Mp4Demuxer::new(padded.bytes);
    let begun = std::time::Instant::now();
    while !demuxer.advance(&padded, 4096).unwrap() {}
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    assert_eq!(demuxer.finish(|| IDENTITY).unwrap().tracks().len(), 1);
}

/// A file followed by a box of zeros, to its end.
struct Padded {
    film: Vec<u8>,
    bytes: u64,
}

impl ReadAt for Padded {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
        let all = &self.film[(offset as usize).min(self.film.len())..];
        let (there, behind) = bytes.split_at_mut(bytes.len().min(all.len()));
        there.copy_from_slice(&all[..there.len()]);
        behind.fill(0);
        Ok(())
    }
}

#[test]
fn listed_samples_that_are_not_sent_are_bounded_over_all_fragments() {
    let mut movie = {
        let film = file(&[track()]);
        let mut demuxer = Mp4Demuxer::new(film.len() as u64);
        while !demuxer.advance(&film, 1).unwrap() {}
        demuxer.movie.unwrap()
    };
    assert!(movie.pass_over(SAMPLES_MAX, 7).is_ok());
    let refused = movie.pass_over(1, 7).unwrap_err().to_string();
    assert!(refused.contains("samples of tracks that are not sent"), "{refused}");
}

/// 400 MB of boxes once were read in one call, which nothing could interrupt.
#[test]
fn boxes_of_a_fragment_are_bounded_over_all_its_tracks() {
    let header = boxed(b"tfhd", &[&words(&[0, 1])]);
    let free = boxed(b"free", &[]).repeat(60_000);
    let traf = boxed(b"traf", &[&header, &free]);
    let film = |trafs| {
        let mvex = boxed(b"mvex", &[]);
        let moov = boxed(b"moov", &[&mvhd(), &track().bytes(), &mvex]);
        let ftyp = boxed(b"ftyp", &[b"isom\0\0\0\0"]);
        let moof = boxed(b"moof", &[&traf.repeat(trafs)]);
        [ftyp, boxed(b"mdat", &[&[7; 1000]]), moov, moof].concat()
    };
    assert!(demux(&film(2)).is_ok());
    let refused = demux(&film(3)).unwrap_err().to_string();
    assert!(refused.contains("too many boxes"), "{refused}");
}
