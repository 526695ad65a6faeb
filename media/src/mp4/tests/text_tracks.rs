// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks of text, which are read beside the presentation.

use super::made::*;
use super::*;
use crate::text::{NoCues, TextCoding, TextTrack, text_cues};
use crate::tracks::SampleFault;

/// Texts of 10 bytes, six of them, in the place of the samples of [`file`].
fn with_texts(tracks: &[Trak]) -> Vec<u8> {
    let mut file = file(tracks);
    for number in 0..6 {
        let at = PLACE as usize + 100 + number * 10;
        let text = format!("\0\x08text <{number}>");
        file[at..at + 10].copy_from_slice(&text.as_bytes()[..10]);
    }
    file
}

fn text_track() -> Trak {
    let entry = boxed(b"tx3g", &[&[0, 0, 0, 0, 0, 0, 0, 1], &[0; 30]]);
    Trak { entries: vec![entry], ..Trak::of(9, PLACE + 100) }
}

#[test]
fn text_is_listed_and_read_while_it_is_not_sent() {
    let edits = edits(&[(300, -1, 1 << 16), (600, 24, 1 << 16)]);
    let file = with_texts(&[Trak::of(1, PLACE), Trak { edits, ..text_track() }]);
    assert_eq!(demux(&file).unwrap().left_out().len(), 1);
    let bytes = file.len() as u64;
    let track = TextTrack {
        id: 9,
        coding: TextCoding::Tx3g,
        language: Some("deu".to_owned()),
        name: None,
        is_forced: false,
    };
    assert_eq!(text_tracks(&file[..], bytes).unwrap(), [track]);
    let cues = text_cues(&file[..], bytes, 9, 0).unwrap();
    let times: Vec<_> = cues.cues().iter().map(|cue| (cue.start_ms, cue.end_ms)).collect();
    // Half a second later, and without the first sample.
    assert_eq!(times[..2], [(476, 500), (500, 524)]);
    assert_eq!(cues.cues().len(), 6);
    assert_eq!(cues.cues()[3].text, "text &lt;3&gt;");
    let of_late_film = text_cues(&file[..], bytes, 9, crate::TICKS_PER_SECOND / 2).unwrap();
    let cue = &of_late_film.cues()[0];
    assert_eq!((cue.start_ms, cue.end_ms), (0, 24), "the first ended before the film");
    for other in [0, 1, 7] {
        assert!(matches!(text_cues(&file[..], bytes, other, 0), Err(NoCues::NoTrack)), "{other}");
    }
}

#[test]
fn text_that_cannot_be_read_has_its_reason() {
    let silent = Trak { entries: text_track().entries, ..Trak::empty(9) };
    let entries = [text_track().entries, text_track().entries].concat();
    let stsc = table(b"stsc", 3, &[1, 2, 1, 2, 2, 2]);
    let changing = Trak { entries, stsc, ..text_track() };
    for (track, expected) in [(silent, "no samples"), (changing, "samples of descriptions 1 and 2")]
    {
        let file = with_texts(&[Trak::of(1, PLACE), track]);
        let bytes = file.len() as u64;
        assert_eq!(text_tracks(&file[..], bytes).unwrap().len(), 1);
        let none = text_cues(&file[..], bytes, 9, 0).unwrap_err().to_string();
        assert!(none.starts_with(expected), "{none}");
    }
}

#[test]
fn chapters_are_no_subtitles() {
    let chapters = boxed(b"tref", &[&boxed(b"chap", &[&words(&[9])])]);
    let sound = Trak { edits: chapters, ..Trak::of(1, PLACE) };
    let file = with_texts(&[sound, text_track()]);
    assert_eq!(text_tracks(&file[..], file.len() as u64).unwrap(), []);
}

#[test]
fn broken_tables_are_refused_when_the_text_is_read() {
    let outside = Trak { stco: table(b"stco", 1, &[PLACE, 1 << 30, 9]), ..text_track() };
    let short = Trak { stco: table(b"stco", 1, &[PLACE]), ..text_track() };
    let none = Trak { stsz: boxed(b"stsz", &[&words(&[0, 10, 1 << 30])]), ..text_track() };
    for track in [outside, short, none] {
        let file = with_texts(&[Trak::of(1, PLACE), track]);
        let bytes = file.len() as u64;
        assert_eq!(demux(&file).unwrap().tracks().len(), 1, "it is sent as before");
        assert_eq!(text_tracks(&file[..], bytes).unwrap().len(), 1);
        assert!(matches!(text_cues(&file[..], bytes, 9, 0), Err(NoCues::File(_))));
    }
}

/// A track of TTML in the place of the samples of [`file`], with this auxiliary type.
fn ttml_track(id: u32, resources: &str) -> Trak {
    let strings = format!("http://www.w3.org/ns/ttml\0\0{resources}\0");
    let entry = boxed(b"stpp", &[&[0, 0, 0, 0, 0, 0, 0, 1], strings.as_bytes()]);
    Trak { entries: vec![entry], ..Trak::of(id, PLACE + 100) }
}

#[test]
fn documents_of_ttml_are_listed_and_have_no_cues() {
    let edits = edits(&[(600, 24, 1 << 16)]);
    let sound = Trak::of(1, PLACE);
    let images = ttml_track(4, "image/png");
    let file = file(&[sound, text_track(), Trak { edits, ..ttml_track(3, "") }, images]);
    let bytes = file.len() as u64;
    let listed = text_tracks(&file[..], bytes).unwrap();
    let codings: Vec<_> = listed.iter().map(|track| (track.id, track.coding)).collect();
    let expected = [(9, TextCoding::Tx3g), (3, TextCoding::Stpp), (4, TextCoding::Stpp)];
    assert_eq!(codings, expected);
    assert!(matches!(text_cues(&file[..], bytes, 3, 0), Err(NoCues::NoTrack)));
    let found = ttml_tracks(&file[..], bytes).unwrap();
    let [(3, Ok(track)), (4, Err(reason))] = &found[..] else { panic!("{found:?}") };
    assert_eq!((track.shift, track.samples.len()), (-24, 6));
    assert_eq!(track.samples.sample(1).file_offset, u64::from(PLACE) + 110);
    assert_eq!(reason, "resources beside its text: image/png");
}

#[test]
fn hostile_tables_of_ttml_are_refused() {
    let outside = Trak { stco: table(b"stco", 1, &[PLACE, 1 << 30, 9]), ..ttml_track(3, "") };
    let short = Trak { stco: table(b"stco", 1, &[PLACE]), ..ttml_track(3, "") };
    // As many samples as a plan of a film may have.
    let count = 1 << 20;
    let many = Trak {
        stts: table(b"stts", 2, &[count, 24]),
        stsz: boxed(b"stsz", &[&words(&[0, 0, count]), &vec![0; 4 << 20]]),
        stsc: table(b"stsc", 3, &[1, count, 1]),
        stco: table(b"stco", 1, &[PLACE]),
        ..ttml_track(3, "")
    };
    for track in [outside, short] {
        let file = file(&[Trak::of(1, PLACE), track]);
        assert!(ttml_tracks(&file[..], file.len() as u64).is_err());
    }
    let file = file(&[Trak::of(1, PLACE), many]);
    let refused = ttml_tracks(&file[..], file.len() as u64);
    let Err(DemuxError::Refused(Refusal::Sample { fault, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(fault, SampleFault::TooMany { limit: 1 << 17 });
}
