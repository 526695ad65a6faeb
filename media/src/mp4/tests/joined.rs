// SPDX-License-Identifier: MIT OR Apache-2.0
//! Concatenated files (`cat a.mp4 b.mp4`): the first is streamed, and the rest is named.

use super::made::*;
use super::*;

/// A whole film: six samples of sound.
fn film() -> Vec<u8> {
    file(&[Trak::of(1, PLACE)])
}

/// A film of fragments of which the first gives its decoding time.
fn fragmented(time: u32) -> Vec<u8> {
    let film = pieces::fragmented(0);
    let moof = |number: usize| {
        let found = film.windows(4).enumerate().filter(|(_, code)| code == b"moof");
        found.map(|(at, _)| at - 4).nth(number).unwrap()
    };
    let mut film = [&film[..moof(0)], &film[moof(1)..]].concat();
    let at = film.windows(4).position(|code| code == b"tfdt").unwrap();
    film[at + 12..at + 16].copy_from_slice(&time.to_be_bytes());
    film
}

/// Returns the samples of each streamed track, and the start of the rest, from the warning.
fn streamed(file: &[u8]) -> (Vec<usize>, Option<usize>) {
    let found = demux(file).unwrap();
    assert_eq!(demux_by(file, 3), Ok(found.clone()));
    let counts = (0..found.tracks().len()).map(|track| samples(&found, track).len()).collect();
    let Some(warning) = found.warnings().first() else { return (counts, None) };
    let [before, rest] = ["another file begins at byte ", ", and the last "];
    let place = warning.strip_prefix(before).and_then(|place| place.split_once(rest));
    let Some((at, left)) = place else { panic!("{warning}") };
    let at: usize = at.parse().unwrap();
    assert!(left.starts_with(&format!("{} bytes are not streamed; ", file.len() - at)), "{left}");
    (counts, Some(at))
}

#[test]
fn a_film_behind_another_is_named() {
    let (whole, parts) = (film(), [fragmented(0), fragmented(90_000)].concat());
    let other = file(&[Trak::of(1, PLACE), Trak::of(2, PLACE)]);
    let joined = |first: &[u8], second: &[u8]| streamed(&[first, second].concat());
    for first in [&whole, &parts] {
        let (counts, none) = streamed(first);
        assert_eq!(none, None);
        for second in [&whole, &other, &parts, &other[..200], &whole[..1040]] {
            assert_eq!(joined(first, second), (counts.clone(), Some(first.len())));
        }
    }
}

/// Recorders write both before each part, or the index at the end as well.
#[test]
fn an_index_that_is_repeated_begins_no_film() {
    assert_eq!(streamed(&[fragmented(0), fragmented(90_000)].concat()), (vec![8, 4], None));
    let whole = film();
    let moov = &whole[PLACE as usize + 1000..];
    assert_eq!(streamed(&[&whole, moov].concat()), (vec![6], None));
}
