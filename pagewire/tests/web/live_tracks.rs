// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording in MP4 while it is written: its playlists and description followed to the end, every
//! segment fetched and compared with the file; a recorder that is killed, a sound that begins
//! later, a file that is truncated.
//!
//! Sources: RFC 8216 §6.2.1, §6.2.2; ISO/IEC 23009-1 §5.3.9.6.
//! [`timed`] plays in Chromium.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::harness::growing_film::{GrowingFilm, film};
use crate::harness::{PROGRAM, Place, Server, await_ok, await_true};
use crate::live_dash::{
    BEFORE_AND_AFTER_S, LivePlay, PLAYED_S, assert_dynamic, begun, description, digests,
    plays_to_its_end,
};
use crate::live_rules::broken_by_reload;
use crate::playlist_rules::broken;
use crate::site::{Playlist, fetch, resolved};

/// A recording that the test writes, and a server of it.
struct Scene {
    place: Place,
    film: GrowingFilm,
    server: Server,
}

impl Scene {
    /// Records the first fragments of a film.
    fn begin(film: &Path, fragments: usize) -> Scene {
        let place = Place::new();
        let mut film = GrowingFilm::begin(&place, "a.mp4", film);
        film.write(fragments);
        let server = Server::at(&place, Command::new(PROGRAM), &["--http-pace", "off"]);
        Scene { place, film, server }
    }

    /// Returns the media playlist that the multivariant one lists, once that is there.
    #[track_caller]
    fn playlist(&self) -> Playlist {
        let path = "/a.mp4/master.m3u8";
        let text = await_ok(|| {
            let answer = fetch(&self.server, path, None);
            let is_there = answer.status == 200;
            if is_there { Ok(answer.text()) } else { Err(answer.head.clone()) }
        });
        let master = Playlist { path: path.to_owned(), text };
        assert_eq!(broken(&master), [""; 0], "{}", master.text);
        let uri = master.text.lines().find(|line| !line.starts_with('#')).expect("an address");
        self.reload(&resolved(path, uri))
    }

    #[track_caller]
    fn reload(&self, path: &str) -> Playlist {
        let answer = fetch(&self.server, path, None);
        assert_eq!(answer.status, 200, "{path}: {} {}", answer.head, answer.text());
        let may_change = answer.header("Cache-Control") == Some("no-cache");
        assert_eq!(may_change, path.contains("/live/"), "{path}: {}", answer.head);
        let playlist = Playlist { path: path.to_owned(), text: answer.text() };
        assert_eq!(broken(&playlist), [""; 0], "{}", playlist.text);
        playlist
    }

    /// Loads a playlist again until it lists so many segments; it breaks no rule.
    #[track_caller]
    fn reload_until(&self, before: &Playlist, segments: usize) -> Playlist {
        let next = await_ok(|| {
            let next = self.reload(&before.path);
            if uris(&next).len() >= segments { Ok(next) } else { Err(next.text) }
        });
        assert_eq!(broken_by_reload(before, &next), [""; 0], "{}{}", before.text, next.text);
        next
    }
}

/// Returns the addresses of segments.
fn uris(playlist: &Playlist) -> Vec<&str> {
    playlist.text.lines().filter(|line| !line.starts_with('#')).collect()
}

/// The initialization section and all segments of a playlist, as a file.
#[track_caller]
fn joined(server: &Server, playlist: &Playlist) -> Vec<u8> {
    let map = playlist.values("EXT-X-MAP")[0].split('"').nth(1).expect("an address");
    let media = |uri: &str| {
        let answer = fetch(server, &resolved(&playlist.path, uri), None);
        assert_eq!(answer.status, 200, "{uri}: {}", answer.head);
        assert!(answer.header("Cache-Control").expect("a field").contains("immutable"));
        assert_eq!(answer.header("Content-Type"), Some("video/mp4"));
        answer.body
    };
    [map].into_iter().chain(uris(playlist)).flat_map(media).collect()
}

/// Returns the packets of a stream of a file, and those of a film.
fn packets(bytes: &[u8], film: &Path, stream: &str) -> (Vec<String>, Vec<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("joined.mp4");
    fs::write(&path, bytes).expect("written");
    let packets = |path: &Path| digests(path, &["-map", stream, "-c", "copy"]);
    (packets(&path), packets(film))
}

/// Asserts that a file has the packets of a film's streams.
#[track_caller]
fn assert_is_film(bytes: &[u8], film: &Path, streams: &[&str]) {
    for stream in streams {
        let (found, expected) = packets(bytes, film, stream);
        assert!(found == expected, "{stream}: {} of {}", found.len(), expected.len());
    }
}

#[test]
fn segments_are_the_samples_of_the_recording_to_its_end() {
    let test = "live_tracks::segments_are_the_samples_of_the_recording_to_its_end";
    let Some(path) = film(test, 30, 0) else { return };
    let mut scene = Scene::begin(&path, 2);
    let early = fetch(&scene.server, "/a.mp4/master.m3u8", None);
    assert_eq!((early.status, early.header("Retry-After")), (503, Some("1")), "{}", early.text());
    scene.film.write(4);
    let first = scene.playlist();
    let (mut player, mpd) = begun(&scene.server, "/a.mp4/manifest.mpd");
    assert_dynamic(&mpd);
    let listed = || {
        let files = scene.server.index()["files"].as_array().expect("a list").clone();
        let row = files.into_iter().find(|one| one["name"] == "a.mp4").expect("a row");
        (row["live"].clone(), row["hls"].clone(), row["dash"].clone())
    };
    let address = |name| scene.server.http_url(&format!("a.mp4/{name}")).into();
    let expected = (true.into(), address("master.m3u8"), address("manifest.mpd"));
    await_true("the index has its addresses", || listed() == expected);

    assert!(first.text.contains("#EXT-X-PLAYLIST-TYPE:EVENT\n"), "{}", first.text);
    assert_eq!(first.values("EXT-X-TARGETDURATION"), ["2"]);
    assert_eq!(first.values("EXT-X-PROGRAM-DATE-TIME").len(), 1);
    player.path = resolved(&player.path, &mpd.locations[0].url);
    let (mut last, mut pictures) = (first, player.pictures());
    for fragments in [7, 9, 12] {
        scene.film.write(fragments - uris(&last).len() - 1);
        // All but the last one, which may become longer.
        last = scene.reload_until(&last, fragments - 1);
        assert_eq!(uris(&last).len(), fragments - 1, "{}", last.text);
        let before = pictures;
        pictures = await_ok(|| {
            assert_dynamic(&player.load(&scene.server));
            let now = player.pictures();
            if now > before { Ok(now) } else { Err(format!("{now} segments")) }
        });
    }
    let stem = last.path.strip_suffix(".m3u8").expect("a playlist");
    let early = fetch(&scene.server, &format!("{stem}/{}.m4s", uris(&last).len()), None);
    assert_eq!(early.status, 404, "{}", early.head);

    scene.film.write_rest();
    scene.film.end();
    let ended = scene.reload_until(&last, 15);
    let ended = await_ok(|| {
        let next = scene.reload(&ended.path);
        if next.text.ends_with("#EXT-X-ENDLIST\n") { Ok(next) } else { Err(next.text) }
    });
    assert_eq!(broken_by_reload(&last, &ended), [""; 0], "{}", ended.text);
    assert_is_film(&joined(&scene.server, &ended), &path, &["0:v", "0:a"]);
    let whole = player.load_to_the_end(&scene.server);
    let lasts_s = whole.mediaPresentationDuration.expect("it has an end").as_secs_f64();
    assert!((29.9..30.2).contains(&lasts_s), "{lasts_s}");
    for (stream, followed) in ["0:v", "0:a"].iter().zip(player.streams.values()) {
        assert_is_film(&followed.bytes, &path, &[stream]);
    }
    // A player that stays at the first address gets the same, for a while.
    let (same, _) = description(&scene.server, "/a.mp4/manifest.mpd");
    assert!(same.contains("/live/1-0.mp4") && same.contains("static"), "{same}");
    // A new player gets the segments of the whole file.
    let now = scene.playlist();
    assert!(!now.path.contains("/live/"), "{}", now.path);
    assert_is_film(&joined(&scene.server, &now), &path, &["0:v", "0:a"]);

    // A restarted server does not know where it was cut.
    scene.server.stop();
    let server = Server::at(&scene.place, Command::new(PROGRAM), &["--http-pace", "off"]);
    for path in [&ended.path, &resolved(&ended.path, uris(&ended)[0])] {
        assert_eq!(fetch(&server, path, None).status, 410, "{path}");
    }
    server.stop();
}

#[test]
fn a_recorder_that_is_killed_leaves_a_playlist_that_ends() {
    let test = "live_tracks::a_recorder_that_is_killed_leaves_a_playlist_that_ends";
    let Some(path) = film(test, 16, 0) else { return };
    let mut scene = Scene::begin(&path, 6);
    let first = scene.playlist();
    scene.film.write(1);
    scene.film.write_half();
    scene.film.end();
    let ended = await_ok(|| {
        let next = scene.reload(&first.path);
        if next.text.ends_with("#EXT-X-ENDLIST\n") { Ok(next) } else { Err(next.text) }
    });
    assert_eq!(broken_by_reload(&first, &ended), [""; 0], "{}{}", first.text, ended.text);
    assert!(uris(&ended).len() >= 7, "{}", ended.text);
    // The film up to what is there of the last fragment.
    let there = joined(&scene.server, &ended);
    for (stream, least) in [("0:v", 7 * 50 + 1), ("0:a", 7 * 90)] {
        let (found, expected) = packets(&there, &path, stream);
        assert!(expected.starts_with(&found), "{stream}");
        assert!((least..expected.len()).contains(&found.len()), "{stream}: {}", found.len());
    }
    scene.server.stop();
}

#[test]
fn a_sound_that_begins_later_is_there_for_new_players_and_others_play_on() {
    let test = "live_tracks::a_sound_that_begins_later_is_there_for_new_players_and_others_play_on";
    let Some(path) = film(test, 30, 16) else { return };
    let mut scene = Scene::begin(&path, 6);
    let silent = scene.playlist();
    assert!(silent.path.ends_with("/live/1.m3u8"), "{}", silent.path);
    scene.film.write(6);
    let both = await_ok(|| {
        let now = scene.playlist();
        if now.path.ends_with("/live/1-2.m3u8") { Ok(now) } else { Err(now.path) }
    });
    let last = scene.reload_until(&silent, 10);
    scene.film.write_rest();
    scene.film.end();
    for (before, streams) in [(&last, &["0:v"][..]), (&both, &["0:v", "0:a"])] {
        let ended = await_ok(|| {
            let next = scene.reload(&before.path);
            if next.text.ends_with("#EXT-X-ENDLIST\n") { Ok(next) } else { Err(next.text) }
        });
        assert_eq!(broken_by_reload(before, &ended), [""; 0], "{}{}", before.text, ended.text);
        assert_is_film(&joined(&scene.server, &ended), &path, streams);
    }
    scene.server.stop();
}

#[test]
fn segments_of_a_recording_that_is_cut_short_are_gone() {
    let test = "live_tracks::segments_of_a_recording_that_is_cut_short_are_gone";
    let Some(path) = film(test, 16, 0) else { return };
    let mut scene = Scene::begin(&path, 6);
    let first = scene.playlist();
    let (manifest, _) = begun(&scene.server, "/a.mp4/manifest.mpd");
    scene.film.recording().set_len(3000).expect("a shorter file");
    let gone = [first.path.clone(), resolved(&first.path, uris(&first)[0])];
    let description = resolved(&manifest.path, &format!("{}.mpd", identity(&first.path)));
    for path in gone.iter().chain([&description]) {
        await_ok(|| {
            let answer = fetch(&scene.server, path, None);
            if answer.status == 410 { Ok(()) } else { Err(format!("{path}: {}", answer.head)) }
        });
    }
    scene.server.stop();
}

/// Returns the part of an address that identifies the recording.
fn identity(path: &str) -> &str {
    path.split('/').find(|part| part.starts_with('~')).expect("an identity")
}

/// Records a film at its own pace; returns the player's view of this text of it.
fn live(film: &Path, text: &str) -> LivePlay {
    let place = Place::new();
    let growing = GrowingFilm::begin(&place, "a.mp4", film);
    let server = Server::at(&place, Command::new(PROGRAM), &["--allow-origin", "*"]);
    let (stop, began) = (Arc::<AtomicBool>::default(), SystemTime::now());
    let writer = growing.write_in_time(stop.clone());
    let path = format!("/a.mp4/{text}");
    await_ok(|| {
        let answer = fetch(&server, &path, None);
        if answer.status == 200 { Ok(()) } else { Err(answer.head.clone()) }
    });
    let url = server.http_url(&format!("a.mp4/{text}"));
    let over = move || {
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("the film is written");
        server
    };
    LivePlay { url, began, over: Box::new(over) }
}

mod timed {
    use super::*;
    use crate::live::{Limits, plays};

    #[test]
    fn hls_js_plays_a_recording_in_mp4_without_a_stall() {
        let test = "live_tracks::timed::hls_js_plays_a_recording_in_mp4_without_a_stall";
        let Some(film) = film(test, PLAYED_S + BEFORE_AND_AFTER_S, 0) else { return };
        // Three segments, a fragment that is not whole yet, and the time to load.
        let limits = Limits { low_latency: false, seconds: PLAYED_S, behind_max_s: 11.0 };
        plays(test, limits, || Some(live(&film, "master.m3u8")));
    }

    #[test]
    fn dash_js_plays_a_recording_in_mp4_without_a_stall_to_its_end() {
        let test =
            "live_tracks::timed::dash_js_plays_a_recording_in_mp4_without_a_stall_to_its_end";
        let Some(film) = film(test, PLAYED_S + BEFORE_AND_AFTER_S, 0) else { return };
        plays_to_its_end(test, || live(&film, "manifest.mpd"));
    }
}
