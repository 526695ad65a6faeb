// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transport streams whose timestamps wrap or restart, and films with segments of 100 MB and of
//! more than the limit.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.6 (timestamps of 33 bits); RFC 8216 §4.3.2.3 (discontinuity);
//! ISO/IEC 14496-12 §8.7 (`stsz`, `stsc`, `stco`).
//! Does not decode.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use crate::clips::{Clip, SECONDS, clip};
use crate::fragments::{at_path, boxes, u32_at};
use crate::harness::{PROGRAM, Place, Server, film};
use crate::listed::{ListedTrack, dash, encode, hls, remux, segment};
use crate::site::{fetch, manifest_of};

/// Returns the clip as a transport stream whose times begin at so many seconds.
fn from_s(test: &str, seconds: &str) -> Option<Vec<u8>> {
    let film = clip(test, Clip::Ts)?;
    let mut command = remux(&film, &["-output_ts_offset", seconds]);
    let path: PathBuf = film::or_skip(test, film::made(&mut command, "film.ts"))?;
    Some(fs::read(path).expect("it was made"))
}

/// Returns clock references in order, in units of 90 kHz.
fn clock(bytes: &[u8]) -> Vec<u64> {
    let packets = bytes.chunks_exact(188);
    let clocked = packets.filter(|one| one[3] & 0x20 != 0 && one[4] >= 7 && one[5] & 0x10 != 0);
    clocked.map(|one| u64::from(u32_at(one, 6)) << 1 | u64::from(one[10] >> 7)).collect()
}

fn serve(files: &[(&str, &[u8])]) -> Server {
    let place = Place::new();
    for (name, bytes) in files {
        place.put(name, bytes);
    }
    Server::at(&place, Command::new(PROGRAM), &[])
}

/// Returns a text without the identity of the file in its addresses.
fn anonymous(text: &str, path: &str) -> String {
    let identity = path.split('/').find(|part| part.starts_with('~')).expect("an identity");
    text.replace(identity, "~")
}

/// A film whose timestamps wrap gives the same HLS and DASH as one whose timestamps do not.
#[test]
fn timestamps_that_wrap_change_nothing() {
    let test = "far_films::timestamps_that_wrap_change_nothing";
    // 2^33 / 90000 is 95443.7.
    let films = ["10", "95434"].map(|seconds| from_s(test, seconds));
    let [Some(plain), Some(wrapping)] = films else { return };
    let (before, after) = (clock(&plain), clock(&wrapping));
    assert!(before.is_sorted() && !after.is_sorted(), "the second wraps");
    let server = serve(&[("plain.ts", &plain), ("wraps.ts", &wrapping)]);
    let [one, other] = ["plain.ts", "wraps.ts"].map(|name| {
        let (_, media) = hls(&server, name);
        let [media] = &media[..] else { panic!("{media:?}") };
        assert_eq!(media.breaks(), [0; 0], "{}", media.playlist.text);
        assert!((media.total_s() - SECONDS).abs() < 0.1, "{}", media.playlist.text);
        let sent: Vec<u8> = media.segments.iter().flat_map(|one| segment(&server, one)).collect();
        (media.seconds(), sent)
    });
    assert_eq!(one.0, other.0);
    assert!(one.1 == plain && other.1 == wrapping, "segments are the file");
    let texts = ["plain.ts", "wraps.ts"].map(|name| {
        let text = manifest_of(&server, name).0;
        anonymous(&text, &dash(&server, name).1[0].init)
    });
    assert_eq!(texts[0], texts[1]);
    let [one, other] = ["plain.ts", "wraps.ts"].map(|name| dash(&server, name).1);
    for (one, other) in one.iter().zip(&other) {
        let bodies = |track: &ListedTrack| -> Vec<Vec<u8>> {
            track.fetched(&server).into_iter().map(|(body, _)| body).collect()
        };
        assert!(bodies(one) == bodies(other), "{other:?}");
    }
    server.stop();
}

/// Where timestamps restart, forward, back or near a wrap, a segment begins, and it alone is
/// marked. Times of DASH continue.
#[test]
fn timestamps_that_are_set_anew_are_a_discontinuity_of_hls_and_none_of_dash() {
    let test =
        "far_films::timestamps_that_are_set_anew_are_a_discontinuity_of_hls_and_none_of_dash";
    let films = ["10", "5000", "95434"].map(|seconds| from_s(test, seconds));
    let [Some(first), Some(later), Some(wrapping)] = films else { return };
    let joined = [
        ("again.ts", [&first[..], &first].concat(), first.len()),
        ("back.ts", [&later[..], &first].concat(), later.len()),
        ("forward.ts", [&first[..], &later].concat(), first.len()),
        ("wraps.ts", [&wrapping[..], &later].concat(), wrapping.len()),
    ];
    let files: Vec<(&str, &[u8])> =
        joined.iter().map(|(name, bytes, _)| (*name, &bytes[..])).collect();
    let server = serve(&files);
    for (name, bytes, joint) in &joined {
        let (_, media) = hls(&server, name);
        let [media] = &media[..] else { panic!("{media:?}") };
        assert_eq!(media.seconds(), [6, 6, 4, 6, 6, 4], "{name}: {}", media.playlist.text);
        assert_eq!(media.breaks(), [3], "{name}: {}", media.playlist.text);
        assert!((media.total_s() - 2.0 * SECONDS).abs() < 0.2, "{}", media.playlist.text);
        let begin = media.segments[3].range.expect("ranges of the file").0;
        assert_eq!(begin, *joint as u64, "{name}: {}", media.playlist.text);
        let sent: Vec<u8> = media.segments.iter().flat_map(|one| segment(&server, one)).collect();
        assert!(sent == *bytes, "{name}: segments are the file");
        let (total, tracks) = dash(&server, name);
        assert!((total - 2.0 * SECONDS).abs() < 0.2, "{name}: {total}");
        assert_eq!(tracks.len(), 2, "{name}: {tracks:?}");
        for track in tracks {
            // Each begins where the previous one ends.
            let samples = track.fetched(&server).iter().map(|(_, one)| one.samples).sum::<u32>();
            let (start, end) = track.span_s();
            assert!((end - start - total).abs() < 0.2, "{name}: {start} {end}: {track:?}");
            if track.is_video {
                assert_eq!(samples, 2 * 16 * 25, "{name}: {track:?}");
            }
        }
    }
    server.stop();
}

/// Makes a film of 60 s in two segments, of samples of this many bytes: a sparse file, each sample
/// with its number at its begin and end. Returns the film and the position of its samples.
pub(crate) fn with_samples_of(test: &str, bytes: u32, sound_s: u32) -> Option<(Place, u64)> {
    let made = film::made(&mut encode(60, 30, sound_s), "film.mp4");
    let small = fs::read(film::or_skip(test, made)?).expect("it was made");
    let found = boxes(&small);
    let content = |kind: &str| found.iter().find(|(found, _)| found == kind).expect("a box").1;
    let (ftyp, mut moov) = (content("ftyp"), content("moov").to_vec());
    let media = 16 + 8 + ftyp.len() + 8 + moov.len();
    let table = |moov: &[u8], kind: &[u8; 4]| {
        // The table of the first track, the pictures.
        moov.windows(4).position(|found| found == kind).expect("a table") + 4
    };
    let [sizes, chunks, offsets] = [b"stsz", b"stsc", b"stco"].map(|kind| table(&moov, kind));
    let samples = u32_at(&moov, sizes + 8);
    assert_eq!((u32_at(&moov, sizes + 4), samples), (0, 300), "a size for each sample");
    let mut at = sizes + 12;
    for _ in 0..samples {
        moov[at..at + 4].copy_from_slice(&bytes.to_be_bytes());
        at += 4;
    }
    let entries = u32_at(&moov, chunks + 4) as usize;
    let entry = |entry: usize| {
        let at = chunks + 8 + 12 * entry;
        (u32_at(&moov, at), u32_at(&moov, at + 4))
    };
    let entries: Vec<(u32, u32)> = (0..entries).map(entry).collect();
    let mut before = 0_u32;
    for chunk in 0..u32_at(&moov, offsets + 4) {
        let at = offsets + 8 + 4 * chunk as usize;
        let offset = media as u32 + before * bytes;
        moov[at..at + 4].copy_from_slice(&offset.to_be_bytes());
        let entry = entries.iter().rfind(|(first, _)| *first <= chunk + 1);
        before += entry.expect("the first chunk has one").1;
    }
    assert_eq!(before, samples);
    let end = media as u64 + u64::from(samples) * u64::from(bytes);
    // The sound, if any, keeps its places: its bytes are others, and are not decoded.
    let place = Place::new();
    let unfinished = place.top().join("film.mp4");
    let file = File::create(&unfinished).expect("room for a file");
    let with_head = |kind: &[u8; 4], content: &[u8]| {
        [&(content.len() as u32 + 8).to_be_bytes()[..], kind, content].concat()
    };
    let mut head = [with_head(b"ftyp", ftyp), with_head(b"moov", &moov)].concat();
    head.extend(1_u32.to_be_bytes());
    head.extend(b"mdat");
    head.extend((end - head.len() as u64 + 8).to_be_bytes());
    assert_eq!(head.len(), media);
    file.write_all_at(&head, 0).expect("room for a head");
    for sample in 0..samples {
        let at = media as u64 + u64::from(sample) * u64::from(bytes);
        file.write_all_at(&sample.to_be_bytes(), at).expect("written");
        let last = at + u64::from(bytes) - 4;
        file.write_all_at(&sample.to_be_bytes(), last).expect("written");
    }
    fs::rename(&unfinished, place.folder().join("film.mp4")).expect("one file system");
    Some((place, media as u64))
}

/// Segments of 105 MB are served completely, by HLS, by DASH, and in ranges.
#[test]
fn segments_of_100_mb_come_whole() {
    let test = "far_films::segments_of_100_mb_come_whole";
    let sample_bytes = 700_000;
    let Some((place, from)) = with_samples_of(test, sample_bytes, 0) else { return };
    let server = Server::at(&place, Command::new(PROGRAM), &["--http-pace", "off"]);
    let film = File::open(place.folder().join("film.mp4")).expect("it was made");
    let (_, media) = hls(&server, "film.mp4");
    let [media] = &media[..] else { panic!("{media:?}") };
    assert_eq!(media.seconds(), [30, 30], "{}", media.playlist.text);
    let bytes = 150 * u64::from(sample_bytes);
    for (number, one) in media.segments.iter().enumerate() {
        let body = segment(&server, one);
        let mut expected = vec![0; bytes as usize];
        film.read_exact_at(&mut expected, from + number as u64 * bytes).expect("it is there");
        assert!(at_path(&body, "mdat") == [&expected[..]], "{one:?}");
        let (offset, length) = (body.len() as u64 - 700_010, 700_005);
        let part = fetch(&server, &one.path, Some((offset, length)));
        assert_eq!(part.status, 206, "{}", part.head);
        assert!(part.body == body[offset as usize..][..length as usize], "{one:?}");
    }
    let (total, tracks) = dash(&server, "film.mp4");
    assert!((total - 60.0).abs() < 0.1 && tracks.len() == 1, "{total}: {tracks:?}");
    assert_eq!(tracks[0].segments.len(), 2);
    server.stop();
}

/// A film with a segment of more than 256 MiB is refused, and the segment is named; it is not
/// played as sound alone.
#[test]
fn segments_of_more_than_256_mib_are_refused_by_name() {
    let test = "far_films::segments_of_more_than_256_mib_are_refused_by_name";
    for sound_s in [0, 60] {
        let Some((place, _)) = with_samples_of(test, 1_800_000, sound_s) else { return };
        let server = Server::at(&place, Command::new(PROGRAM), &[]);
        for item in ["master.m3u8", "manifest.mpd"] {
            let answer = fetch(&server, &format!("/film.mp4/{item}"), None);
            let text = answer.text();
            assert_eq!(answer.status, 404, "{item}: {text}");
            for part in ["track 1", "from 0 s to 30 s", "270", "256 MiB", "key frames"] {
                assert!(text.contains(part), "{item}: no {part:?} in {text}");
            }
        }
        server.stop();
    }
}
