// SPDX-License-Identifier: MIT OR Apache-2.0
//! Omitted tracks, each with its reason, beside one that is sent.

use super::made::*;
use super::*;
use crate::tracks::{SAMPLES_MAX, SampleFault};

/// The reason why `track`, number 9, is left out.
fn reason(track: Trak) -> String {
    let found = demux(&file(&[Trak::of(1, PLACE), track])).unwrap();
    assert_eq!(found.tracks().len(), 1);
    let [left_out] = found.left_out() else { panic!("{:?}", found.left_out()) };
    assert_eq!(left_out.id, 9);
    left_out.reason.clone()
}

fn other() -> Trak {
    Trak::of(9, PLACE + 100)
}

fn described(entry: Vec<u8>) -> Trak {
    Trak { entries: vec![entry], ..other() }
}

#[test]
fn other_codecs_are_named() {
    for (code, word) in [
        (b"tx3g", "subtitles"),
        (b"tmcd", "neither pictures nor sound"),
        (b"encv", "encrypted"),
        (b"mp4s", "subtitles, which"),
        (b"fLaC", "a codec that is not streamed"),
    ] {
        let reason = reason(described(sound_entry(code, &[])));
        let name = String::from_utf8_lossy(code);
        assert!(reason.starts_with(&format!("track 9 ({name}): {word}")), "{reason}");
    }
    let odd = reason(described(sound_entry(b"\xff\n\x1bx", &[])));
    assert!(odd.starts_with(r"track 9 (\xff\n\x1bx): "), "{odd}");
}

/// The reason does not mention pictures if only the sound is at fault, and vice versa.
#[test]
fn other_codecs_have_cures_by_the_handler() {
    for (handler, words, codec, other) in [
        (b"soun", "sound of a codec", "-c:a aac", "-c:v"),
        (b"vide", "pictures of a codec", "-c:v libx264", "-c:a"),
        (b"text", "subtitles or chapters", "-vf subtitles=IN", "-c:"),
        (b"meta", "neither pictures", "", "ffmpeg"),
    ] {
        let media = boxed(b"hdlr", &[&[0; 8], handler, &[0; 13]]);
        let reason = reason(Trak { media, ..described(sound_entry(b"abcd", &[])) });
        assert!(reason.starts_with(&format!("track 9 (abcd): {words}")), "{reason}");
        assert!(reason.contains(codec) && !reason.contains(other), "{reason}");
    }
    let short = Trak { media: boxed(b"hdlr", &[&[0; 4]]), ..described(sound_entry(b"abcd", &[])) };
    assert!(reason(short).contains("a codec that is not streamed"));
}

#[test]
fn broken_configurations_leave_the_track_out() {
    let avc = |record: &[u8]| picture_entry(b"avc1", &boxed(b"avcC", &[record]));
    let three = reason(described(avc(&[1, 100, 0, 31, 0xfe, 0xe0, 0])));
    assert!(three.contains("lengths of three bytes"), "{three}");
    let missing = reason(described(picture_entry(b"hvc1", &[])));
    assert!(missing.contains("no hvcC box"), "{missing}");
    for record in [&[1, 100, 0, 31, 0xff, 0xe1, 0, 9][..], &[0; 9], &[], &[1; 5]] {
        assert!(reason(described(avc(record))).contains("configuration record (avcC)"));
    }
    let six = boxed(b"dOps", &[&[0, 6, 0, 0, 0, 0, 0xbb, 0x80, 0, 0, 1, 4, 2, 0, 1, 2, 3, 4, 5]]);
    assert!(reason(described(sound_entry(b"Opus", &six))).contains("Opus of 6 channels"));
    let short = boxed(b"hvcC", &[&[1; 11]]);
    assert!(
        reason(described(picture_entry(b"hev1", &short))).contains("configuration record (hvcC)")
    );
    assert!(reason(Trak { entries: Vec::new(), ..other() }).contains("no sample description"));
}

#[test]
fn samples_of_two_descriptions() {
    let both = Trak { entries: vec![mp3_entry(), mp3_entry()], ..other() };
    let change = Trak { stsc: table(b"stsc", 3, &[1, 2, 1, 3, 2, 2]), ..both.clone() };
    assert!(reason(change).contains("samples of descriptions 1 and 2"));
    let second = Trak { stsc: table(b"stsc", 3, &[1, 2, 2]), ..both.clone() };
    let found = demux(&file(&[second])).unwrap();
    assert_eq!(found.tracks()[0].samples.len(), 6, "one of several is no change");
    let unknown = Trak { stsc: table(b"stsc", 3, &[1, 2, 3]), ..both };
    assert!(reason(unknown).contains("samples of description 3, and 2 are known"));
}

#[test]
fn samples_in_another_file() {
    let url = |flags: u32| boxed(b"url ", &[&words(&[flags]), b"file://a\0"]);
    let data = |flags| boxed(b"dinf", &[&boxed(b"dref", &[&words(&[0, 1]), &url(flags)])]);
    assert!(reason(Trak { data: data(0), ..other() }).contains("another file"));
    let inside = Trak { data: data(1), ..other() };
    assert_eq!(demux(&file(&[inside])).unwrap().tracks().len(), 1);
}

#[test]
fn edit_lists_of_several_pieces() {
    let one = 1 << 16;
    let edited = |list: &[(u32, i32, u32)]| reason(Trak { edits: edits(list), ..other() });
    assert!(edited(&[(60, 0, one), (60, 72, one)]).contains("an edit list of 2 edits"));
    assert!(edited(&[(60, 0, one / 2)]).contains("0.500 of its speed"));
    assert!(edited(&[(60, -1, one)]).contains("shows nothing"));
    assert!(edited(&[(60, 144, one)]).contains("begins at 144 where its samples end at 144"));
}

#[test]
fn tracks_without_samples() {
    assert!(reason(Trak::empty(9)).ends_with("no samples"));
    let never = Trak { tables: table(b"stss", 1, &[]), ..described(h264_entry()) };
    assert!(reason(never).contains("no random-access point"));
}

#[test]
fn a_file_without_a_track_names_all_reasons() {
    let refusal = demux(&file(&[described(sound_entry(b"tx3g", &[]))])).unwrap_err();
    assert!(refusal.to_string().contains("track 9 (tx3g): subtitles"), "{refusal}");
    assert!(matches!(demux(&file(&[])), Err(Refusal::NoTrack { .. })));
    let many: Vec<_> = (1..=17).map(|id| Trak::of(id, PLACE + id * 50)).collect();
    assert!(matches!(demux(&file(&many)), Err(Refusal::TooManyTracks { found: 17, .. })));
}

#[test]
fn tracks_share_the_samples_that_a_file_may_have() {
    // Two tables of nine million samples, both of the same bytes.
    let count = SAMPLES_MAX / 2 + (1 << 19);
    let sparse = |id| Trak {
        stts: table(b"stts", 2, &[count, 1]),
        stsz: boxed(b"stsz", &[&words(&[0, 1, count])]),
        stsc: table(b"stsc", 3, &[1, count, 1]),
        stco: table(b"stco", 1, &[PLACE]),
        timescale: 4000,
        ..Trak::of(id, PLACE)
    };
    let mut bytes = file(&[sparse(1), sparse(2)]);
    bytes.resize(bytes.len() + count as usize, 0);
    let found = demux(&bytes);
    let Err(Refusal::Sample { track: 2, fault: SampleFault::TooMany { limit }, .. }) = found else {
        panic!("{found:?}");
    };
    assert_eq!(limit, SAMPLES_MAX);
}
