// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that end too early, as a killed recorder or a broken copy leaves them.

use super::made::*;
use super::*;

/// Ends of the samples of a fragment of [`pieces::fragmented`], counted from its beginning.
const PICTURE_ENDS: [usize; 4] = [428, 438, 450, 457];
const SOUND_ENDS: [usize; 2] = [495, 526];

/// Where the last fragment of a film begins.
fn last_fragment(film: &[u8]) -> usize {
    film.windows(4).rposition(|code| code == b"moof").unwrap() - 4
}

/// Such files once were refused whole.
#[test]
fn fragmented_file_is_streamed_up_to_its_last_whole_samples() {
    for base in [0, 0x2_0000] {
        let whole = pieces::fragmented(base);
        assert!(demux(&whole).unwrap().warnings().is_empty());
        let start = last_fragment(&whole);
        for there in 8..whole.len() - start {
            let film = &whole[..start + there];
            let found = demux_by(film, 3).unwrap();
            let count = |ends: &[usize]| ends.iter().filter(|&&end| end <= there).count();
            let expected = (4 + count(&PICTURE_ENDS), 2 + count(&SOUND_ENDS));
            let [pictures, sound] = [0, 1].map(|track| samples(&found, track).len());
            assert_eq!((pictures, sound), expected, "{there} bytes of the last fragment");
            let [warning] = found.warnings() else { panic!("{there} bytes: {found:?}") };
            assert!(warning.starts_with("cut off: ") && warning.contains("ffmpeg"), "{warning}");
            assert_eq!(demux(film), Ok(found));
        }
    }
}

#[test]
fn warning_counts_bytes_and_samples() {
    let whole = pieces::fragmented(0x2_0000);
    let found = demux(&whole[..last_fragment(&whole) + 440]).unwrap();
    let [warning] = found.warnings() else { panic!("{found:?}") };
    let expected = "cut off: by its own sizes 568 bytes are missing at its end; 4 samples of its \
                    last fragment are not streamed; copy it again";
    assert!(warning.starts_with(expected), "{warning}");
}

/// Regression: they were counted if they were read in one step with the sample that is the reason.
#[test]
fn missing_samples_of_a_track_that_is_left_out_are_not_counted() {
    let mut film = pieces::fragmented(0x2_0000);
    // Track and description of the defaults of the sound.
    let defaults = film.windows(8).position(|bytes| bytes == [0, 0, 0, 3, 0, 0, 0, 1]).unwrap();
    film[defaults + 7] = 9;
    let first = film.windows(4).position(|code| code == b"moof").unwrap() - 4;
    film.truncate(first + SOUND_ENDS[0] + 1);
    let found = demux(&film).unwrap();
    assert_eq!(samples(&found, 0).len(), 4);
    let [_, left_out] = found.left_out() else { panic!("{found:?}") };
    assert!(left_out.reason.contains("samples of description 9"), "{left_out:?}");
    let [warning] = found.warnings() else { panic!("{found:?}") };
    assert!(warning.contains("missing at its end; what comes before is streamed;"), "{warning}");
    assert_eq!(demux_by(&film, 1), Ok(found));
}

/// A file that continues after missing samples is broken, not truncated.
#[test]
fn samples_outside_of_the_file_in_an_earlier_fragment_are_refused() {
    let mut film = pieces::fragmented(0x2_0000);
    let first = film.windows(4).position(|code| code == b"moof").unwrap();
    // The size of the fourth picture, which is 7.
    let run = film[first..].windows(4).position(|bytes| bytes == [0, 0, 0, 7]).unwrap();
    film[first + run + 2] = 0xff;
    for end in [film.len(), film.len() - 100, last_fragment(&film) + 20] {
        let refused = demux(&film[..end]);
        assert!(matches!(refused, Err(Refusal::Sample { sample: 3, .. })), "{end}: {refused:?}");
    }
}

#[test]
fn samples_behind_the_media_that_is_missing_are_refused() {
    let mut film = pieces::fragmented(0x2_0000);
    let start = last_fragment(&film);
    let run = film[start..].windows(4).position(|bytes| bytes == [0, 0, 0, 7]).unwrap();
    film[start + run + 2] = 0xff;
    film.truncate(film.len() - 10);
    assert!(matches!(demux(&film), Err(Refusal::Sample { sample: 7, .. })));
}

#[test]
fn samples_behind_a_box_without_an_end_are_refused() {
    let mut film = pieces::fragmented(0x2_0000);
    let start = last_fragment(&film);
    film.truncate(start + 420);
    let endless = [&[0, 0, 0, 1], b"free".as_slice(), &[0xff; 8]].concat();
    film[start + 400..start + 416].copy_from_slice(&endless);
    let refused = demux(&film);
    assert!(matches!(refused, Err(Refusal::Sample { sample: 4, .. })), "{refused:?}");
}

/// Such files once got the advice to remux them, for which ffmpeg needs the index.
#[test]
fn file_without_its_index_is_not_to_be_remuxed() {
    let film = file(&[Trak::of(1, PLACE)]);
    let moov = PLACE as usize + 1000;
    // Within the media, after it, and within moov; a recorder writes the size at the end.
    let mut open = film[..moov].to_vec();
    open[16..20].fill(0);
    for file in [&film[..500], &film[..moov], &film[..moov + 20], &open] {
        let refused = demux(file).unwrap_err().to_string();
        let begins = "MP4 without its index (moov): it was never written";
        assert!(refused.starts_with(begins) && refused.contains("untrunc"), "{refused}");
        assert!(!refused.contains("-c copy"), "{refused}");
    }
}

#[test]
fn progressive_file_that_is_cut_off_is_refused() {
    let ftyp = boxed(b"ftyp", &[b"isom\0\0\0\0"]);
    let moov = |place| boxed(b"moov", &[&mvhd(), &Trak::of(1, place).bytes()]);
    let place = (ftyp.len() + moov(0).len() + 8) as u32;
    let film = [&ftyp[..], &moov(place), &boxed(b"mdat", &[&[7; 100]])].concat();
    assert!(demux(&film).unwrap().warnings().is_empty());
    assert!(matches!(demux(&film[..film.len() - 50]), Err(Refusal::Sample { sample: 5, .. })));
    assert!(matches!(demux(&film[..film.len() - 10]), Err(Refusal::Broken { .. })));
}
