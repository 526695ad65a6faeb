// SPDX-License-Identifier: MIT OR Apache-2.0
//! Films whose key frames are far apart, few or missing, and whose tracks do not begin or end
//! together: every second of them is in a segment, and the declared properties of segments are
//! true.
//!
//! Sources: RFC 8216 §4.3.2.1 (EXTINF), §4.3.5.1 (EXT-X-INDEPENDENT-SEGMENTS);
//! ISO/IEC 23009-1 §5.3.9.6 (SegmentTimeline); ISO/IEC 14496-12 §8.6.2 (`stss`).
//! Does not decode.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::clips::ffmpeg;
use crate::fragments::track_fragments;
use crate::harness::{PROGRAM, Place, Server, film};
use crate::listed::{ListedPlaylist, dash, encode, hls, remux, segment, whole};
use crate::segment_list::attribute;
use crate::site::playlists_below;

/// Returns a film as MP4 and, with the same packets, as a transport stream.
fn in_both(test: &str, mut command: Command) -> Option<[PathBuf; 2]> {
    let mp4 = film::or_skip(test, film::made(&mut command, "film.mp4"))?;
    let ts = film::or_skip(test, film::made(&mut remux(&mp4, &[]), "film.ts"))?;
    Some([mp4, ts])
}

fn serve([mp4, ts]: &[PathBuf; 2]) -> Server {
    Server::start(&[("film.mp4", mp4), ("film.ts", ts)])
}

#[test]
fn key_frames_30_s_apart_make_segments_of_30_s() {
    let test = "odd_films::key_frames_30_s_apart_make_segments_of_30_s";
    let Some(films) = in_both(test, encode(70, 30, 70)) else { return };
    let server = serve(&films);
    for name in ["film.mp4", "film.ts"] {
        let (master, media) = hls(&server, name);
        assert!(master.text.contains("#EXT-X-INDEPENDENT-SEGMENTS"), "{}", master.text);
        let [media] = &media[..] else { panic!("{}", master.text) };
        assert_eq!(media.seconds(), [30, 30, 10], "{}", media.playlist.text);
        assert_eq!(media.target_s, 30);
        media.segments.iter().for_each(|one| drop(segment(&server, one)));
        let (total, tracks) = dash(&server, name);
        assert!((total - 70.0).abs() < 0.1, "{name}: {total}");
        assert_eq!(tracks.len(), 2);
        for track in tracks {
            assert!(track.is_independent, "{name}: {track:?}");
            assert_eq!(track.fetched(&server).len(), 3, "{name}: {track:?}");
            assert!((track.span_s().1 - total).abs() < 0.1, "{name}: {track:?}");
        }
    }
    let frames = playlists_below(&server, "film.mp4", "").into_iter();
    let frames = frames.filter(|one| !one.values("EXT-X-I-FRAMES-ONLY").is_empty());
    let frames: Vec<usize> = frames.map(|one| one.values("EXTINF").len()).collect();
    assert_eq!(frames, [3]);
    server.stop();
}

/// Without another key frame for more than a minute, fragments are cut at other pictures, and no
/// player is told that play could start there. Segments of transport packets end only at key
/// frames.
#[test]
fn one_key_frame_in_minutes_is_cut_by_time_and_not_called_independent() {
    let test = "odd_films::one_key_frame_in_minutes_is_cut_by_time_and_not_called_independent";
    let Some(films) = in_both(test, encode(100, 1000, 100)) else { return };
    let server = serve(&films);
    assert_cut_by_time(&server, "film.mp4");
    let (master, media) = hls(&server, "film.ts");
    let [media] = &media[..] else { panic!("{}", master.text) };
    assert_eq!((media.seconds(), media.target_s), (vec![100], 100), "{}", media.playlist.text);
    assert_eq!(segment(&server, &media.segments[0]).len() as u64, size(&films[1]));
    assert_fragments_by_time(&server, "film.ts");
    server.stop();
}

/// An empty table of key frames means that no picture is one (`stss`). Play can start with the
/// first all the same; the rest is cut by time.
#[test]
fn a_film_without_key_frames_is_cut_by_time() {
    let test = "odd_films::a_film_without_key_frames_is_cut_by_time";
    let Some([mp4, _]) = in_both(test, encode(100, 1000, 100)) else { return };
    let mut bytes = fs::read(mp4).expect("it was made");
    let table = bytes.windows(4).position(|kind| kind == b"stss").expect("a table");
    assert_eq!(bytes[table + 8..table + 12], [0, 0, 0, 1], "one key frame");
    // The box keeps its size; its number of entries is 0.
    bytes[table + 11] = 0;
    let place = Place::new();
    place.put("film.mp4", &bytes);
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    assert_cut_by_time(&server, "film.mp4");
    server.stop();
}

/// Where no decoder can start with a picture of a transport stream, the packets are one segment,
/// and fragments are made of the other streams.
#[test]
fn packets_without_a_key_frame_are_one_segment() {
    let test = "odd_films::packets_without_a_key_frame_are_one_segment";
    let Some([_, ts]) = in_both(test, encode(100, 1000, 100)) else { return };
    let bytes = fs::read(ts).expect("it was made");
    // From the middle on; ffmpeg repeats the tables.
    let rest = &bytes[bytes.len() / 376 * 188..];
    let place = Place::new();
    place.put("film.ts", rest);
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    let (master, media) = hls(&server, "film.ts");
    let [media] = &media[..] else { panic!("{}", master.text) };
    assert_eq!(media.seconds(), [50], "{}", media.playlist.text);
    assert!(segment(&server, &media.segments[0]) == rest, "the segment is the file");
    let (total, tracks) = dash(&server, "film.ts");
    assert!((total - 50.0).abs() < 1.0, "{total}");
    let [sound] = &tracks[..] else { panic!("{tracks:?}") };
    assert!(!sound.is_video && sound.fetched(&server).len() > 5, "{sound:?}");
    server.stop();
}

#[track_caller]
fn assert_cut_by_time(server: &Server, name: &str) {
    let (master, media) = hls(server, name);
    assert!(!master.text.contains("INDEPENDENT"), "{}", master.text);
    let frames = master.text.matches("I-FRAME-STREAM-INF").count();
    assert_eq!(frames, 1, "{}", master.text);
    let [media] = &media[..] else { panic!("{}", master.text) };
    let expected: Vec<u64> = [6; 16].into_iter().chain([4]).collect();
    assert_eq!(media.seconds(), expected, "{}", media.playlist.text);
    let fragments = media.segments.iter().map(|one| track_fragments(&segment(server, one))[&1]);
    let independent = fragments.filter(|fragment| fragment.begins_with_sync).count();
    assert_eq!(independent, 1, "{}", media.playlist.text);
    assert_fragments_by_time(server, name);
}

#[track_caller]
fn assert_fragments_by_time(server: &Server, name: &str) {
    for track in dash(server, name).1 {
        let fragments = track.fetched(server);
        assert_eq!(fragments.len(), 17, "{name}: {track:?}");
        let independent = fragments.iter().filter(|(_, one)| one.begins_with_sync).count();
        let expected = if track.is_video { 1 } else { 17 };
        assert_eq!((track.is_independent, independent), (!track.is_video, expected), "{track:?}");
    }
}

/// Sound that continues after the end of the pictures gets segments of its own, up to its last
/// frame; so do pictures that continue after the end of the sound.
#[test]
fn tracks_of_other_lengths_are_whole() {
    let test = "odd_films::tracks_of_other_lengths_are_whole";
    for (pictures_s, sound_s) in [(10, 25), (25, 10)] {
        let Some(films) = in_both(test, encode(pictures_s, 2, sound_s)) else { return };
        let server = serve(&films);
        let longest = f64::from(pictures_s.max(sound_s));
        let mut frames = Vec::new();
        for name in ["film.mp4", "film.ts"] {
            let (master, media) = hls(&server, name);
            let [media] = &media[..] else { panic!("{}", master.text) };
            let seconds = media.total_s();
            assert!((seconds - longest).abs() < 0.1, "{name}: {}", media.playlist.text);
            let sent: Vec<Vec<u8>> =
                media.segments.iter().map(|one| segment(&server, one)).collect();
            if name == "film.ts" {
                assert_eq!(sent.concat(), fs::read(&films[1]).expect("it was made"));
            } else {
                let all = sent.iter().map(|one| track_fragments(one));
                frames = all.fold(vec![0; 2], |mut frames, fragments| {
                    fragments.iter().for_each(|(id, one)| frames[*id as usize - 1] += one.samples);
                    frames
                });
                assert_eq!(frames[0], 5 * pictures_s, "{}", media.playlist.text);
            }
            let (total, tracks) = dash(&server, name);
            assert!((total - longest).abs() < 0.1, "{name}: {total}");
            assert_eq!(tracks.len(), 2, "{name}: {tracks:?}");
            for track in tracks {
                let fetched = track.fetched(&server);
                let samples: u32 = fetched.iter().map(|(_, fragment)| fragment.samples).sum();
                let index = usize::from(!track.is_video);
                assert_eq!(samples, frames[index], "{name}: {track:?}");
                let lasts = f64::from([pictures_s, sound_s][index]);
                let end = track.span_s().1;
                assert!((end - lasts).abs() < 0.1, "{name}: {end} of {lasts}: {track:?}");
            }
        }
        server.stop();
    }
}

/// Sound that begins when a film has played for a while has no earlier segments: none is empty.
#[test]
fn sound_that_begins_late_has_no_empty_segments() {
    let test = "odd_films::sound_that_begins_late_has_no_empty_segments";
    let Some([mp4, _]) = in_both(test, encode(25, 2, 10)) else { return };
    let mut late = ffmpeg();
    late.arg("-i").arg(&mp4).args(["-itsoffset", "14", "-i"]).arg(&mp4);
    late.args(["-map", "0:v", "-map", "1:a", "-map", "1:a", "-c", "copy"]);
    let Some(films) = in_both(test, late) else { return };
    let server = serve(&films);
    for name in ["film.mp4", "film.ts"] {
        for media in hls(&server, name).1 {
            media.segments.iter().for_each(|one| drop(segment(&server, one)));
        }
        let (total, tracks) = dash(&server, name);
        assert!((total - 25.0).abs() < 0.1, "{name}: {total}");
        assert_eq!(tracks.len(), 3, "{name}: {tracks:?}");
        for track in tracks {
            whole(&server, &track.init);
            track.fetched(&server);
            let start = if track.is_video { 0.0 } else { 14.0 };
            assert!((track.span_s().0 - start).abs() < 0.1, "{name}: {track:?}");
        }
    }
    server.stop();
}

/// A film of one picture is one segment, of HLS and of DASH.
#[test]
fn a_film_of_one_picture_is_one_segment() {
    let test = "odd_films::a_film_of_one_picture_is_one_segment";
    let mut command = encode(1, 1, 0);
    command.args(["-frames:v", "1"]);
    let mp4 = film::made(&mut command, "film.mp4");
    let Some(mp4) = film::or_skip(test, mp4) else { return };
    let server = Server::start(&[("film.mp4", &mp4)]);
    let (_, media) = hls(&server, "film.mp4");
    let [media] = &media[..] else { panic!("{media:?}") };
    assert_eq!(media.segments.len(), 1, "{}", media.playlist.text);
    assert!((media.total_s() - 0.2).abs() < 0.01, "{}", media.playlist.text);
    let body = segment(&server, &media.segments[0]);
    assert_eq!(track_fragments(&body)[&1].samples, 1);
    let (total, tracks) = dash(&server, "film.mp4");
    assert!((total - 0.2).abs() < 0.01 && tracks.len() == 1, "{total}: {tracks:?}");
    assert_eq!(tracks[0].fetched(&server).len(), 1);
    server.stop();
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).expect("it was made").len()
}

/// A film that is cut out of another without encoding begins with the previous key frame: an edit
/// list cuts that away. Players of DASH begin with the period, players of HLS at the declared
/// start.
#[test]
fn a_film_that_was_cut_out_of_another_starts_at_its_own_first_picture() {
    let test = "odd_films::a_film_that_was_cut_out_of_another_starts_at_its_own_first_picture";
    let Some([whole, _]) = in_both(test, encode(30, 5, 30)) else { return };
    let mut command = ffmpeg();
    command.args(["-ss", "8", "-i"]).arg(&whole).args(["-c", "copy"]);
    let Some(cut) = film::or_skip(test, film::made(&mut command, "cut.mp4")) else { return };
    let server = Server::start(&[("whole.mp4", &whole), ("cut.mp4", &cut)]);
    let (master, _) = hls(&server, "whole.mp4");
    assert_eq!(master.values("EXT-X-START"), [""; 0], "{}", master.text);
    let (master, media) = hls(&server, "cut.mp4");
    let [start] = &master.values("EXT-X-START")[..] else { panic!("{}", master.text) };
    let offset = attribute(start, "TIME-OFFSET").expect("an offset");
    let offset: f64 = offset.parse().expect("a number");
    assert!((offset - 3.0).abs() < 0.2, "{start}");
    assert_eq!(attribute(start, "PRECISE"), Some("YES"));
    let all = media.iter().map(ListedPlaylist::total_s).fold(0.0, f64::max);
    let (total, tracks) = dash(&server, "cut.mp4");
    assert!((all - offset - total).abs() < 0.1 && (total - 22.0).abs() < 0.2, "{all} {total}");
    let (start_s, _) = tracks.iter().find(|track| track.is_video).expect("pictures").span_s();
    assert!((start_s + offset).abs() < 0.01, "{start_s} {offset}");
    server.stop();
}
