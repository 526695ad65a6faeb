// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subtitles of films that ffmpeg has made: ffmpeg reads each segment and finds the cues with their
//! times, and hostile side-car files are left out while the film is played.
//!
//! Its HLS player does not support subtitles ("Subtitle is not implemented"), so the test fetches
//! segments and passes them to it one by one.
//!
//! Sources: RFC 8216 §3.5, §4.3.4.1, §4.3.4.2.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::client;
use crate::harness::answer::{Answer, Line, http};
use crate::harness::{PROGRAM, Place, Server};

const SUBRIP: &str = "1\n00:00:01,000 --> 00:00:02,500\n<i>Hello</i> & <font \
                      color=\"red\">you</font>\n\n2\n00:00:05,500 --> 00:00:06,500\nOver a \
                      border\n\n3\n00:00:15,000 --> 00:00:17,000\nLast\n";
const CUES: [(f64, f64, &str); 3] =
    [(1.0, 2.5, "<i>Hello</i> &amp; you"), (5.5, 6.5, "Over a border"), (15.0, 17.0, "Last")];

/// Starts a server of films with text tracks, and of a transport stream; returns `None`, with the
/// reason printed, where there is no ffmpeg.
fn films(test: &str) -> Option<Server> {
    let place = Place::new();
    let text = place.top().join("text.srt");
    fs::write(&text, SUBRIP).expect("written");
    for (name, subtitles) in [("film.mp4", "mov_text"), ("film.mkv", "srt"), ("stream.ts", "")] {
        let mut command = Command::new("ffmpeg");
        command.args(["-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=20"]);
        command.args(["-f", "lavfi", "-i", "sine=d=20", "-i"]).arg(&text);
        command.args(["-map", "0", "-map", "1", "-c:v", "libx264", "-preset", "ultrafast"]);
        command.args(["-g", "50", "-bf", "2", "-c:a", "aac"]);
        if !subtitles.is_empty() {
            command.args(["-map", "2", "-c:s", subtitles, "-metadata:s:s:0", "language=fra"]);
        }
        client(test, command.arg(place.folder().join(name)))?.succeeded();
    }
    for stem in ["film", "stream"] {
        place.put(&format!("{stem}.en.srt"), SUBRIP.as_bytes());
    }
    Some(Server::at(&place, Command::new(PROGRAM), &[]))
}

/// Returns the master playlist, as soon as it satisfies `is_wanted`.
#[track_caller]
fn master(server: &Server, film: &str, is_wanted: impl Fn(&str) -> bool) -> String {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = http(server.http, "GET", &format!("/{film}/master.m3u8"));
        if answer.status == 200 && is_wanted(&answer.text()) {
            return answer.text();
        }
        assert!(Instant::now() < end, "{film}: {} {}", answer.status, answer.text());
        thread::sleep(Duration::from_millis(100));
    }
}

/// Returns addresses of the subtitles of a master playlist, below the film.
fn addresses(master: &str) -> Vec<String> {
    let lines = master.lines().filter(|line| line.contains("TYPE=SUBTITLES"));
    let address = |line: &str| Some(line.split_once("URI=\"")?.1.trim_end_matches('"').to_owned());
    lines.filter_map(address).collect()
}

/// Returns cues as ffmpeg reads them; `None`, with the reason printed, where there is no ffmpeg.
fn cues(test: &str, server: &Server, text: &[u8]) -> Option<Vec<(f64, f64, String)>> {
    let file = server.cache().join("segment.vtt");
    fs::write(&file, text).expect("written");
    let mut command = Command::new("ffmpeg");
    command.args(["-loglevel", "error", "-i"]).arg(&file).args(["-c", "copy", "-f", "webvtt", "-"]);
    let text = client(test, &mut command)?.succeeded();
    let text = String::from_utf8(text).expect("it is text");
    let time = |text: &str| {
        let parts = text.split(':').map(|part| part.parse::<f64>().expect("a number"));
        parts.fold(0.0, |all, part| all * 60.0 + part)
    };
    let blocks = text.split("\n\n").filter_map(|block| {
        let (times, text) = block.trim().split_once('\n')?;
        let (start, end) = times.split_once(" --> ")?;
        Some((time(start), time(end), text.to_owned()))
    });
    Some(blocks.collect())
}

/// Returns the time of the first picture, as ffmpeg reads it.
fn first_picture(test: &str, input: &str) -> Option<f64> {
    let mut command = Command::new("ffprobe");
    command.args(["-loglevel", "error", "-select_streams", "v", "-show_entries"]);
    command.args(["stream=start_time", "-of", "csv=p=0", input]);
    let text = String::from_utf8(client(test, &mut command)?.succeeded()).expect("it is text");
    Some(text.lines().next()?.trim_end_matches(',').parse().expect("a time"))
}

#[test]
fn ffmpeg_finds_every_cue_at_its_time() {
    let test = "subtitles::ffmpeg_finds_every_cue_at_its_time";
    let Some(server) = films(test) else { return };
    for (film, subtitles) in [("film.mp4", 2), ("film.mkv", 2), ("stream.ts", 1)] {
        let master = master(&server, film, |text| addresses(text).len() == subtitles);
        let variants = master.lines().filter(|line| line.starts_with("#EXT-X-STREAM-INF:"));
        assert!(variants.clone().count() > 0);
        assert!(variants.clone().all(|line| line.ends_with(",SUBTITLES=\"subs\"")), "{master}");
        let variant = master.lines().find(|line| line.starts_with('~')).expect("a variant");
        let shown = first_picture(test, &server.http_url(&format!("{film}/{variant}")));
        let file = server.folder().join(film);
        let own = first_picture(test, &file.display().to_string());
        let (Some(shown), Some(own)) = (shown, own) else { return };
        // The time of a transport stream begins with its pictures.
        let own = if film.ends_with(".ts") { 0.0 } else { own };
        for address in addresses(&master) {
            let list = http(server.http, "GET", &format!("/{film}/{address}")).text();
            assert!(list.contains("#EXT-X-TARGETDURATION:6\n") && list.contains("#EXT-X-ENDLIST"));
            let folder = address.rsplit_once('/').expect("below the identity").0;
            let mut all = Vec::new();
            for segment in list.lines().filter(|line| !line.starts_with('#')) {
                let segment = http(server.http, "GET", &format!("/{film}/{folder}/{segment}"));
                assert_eq!(segment.header("Content-Type"), Some("text/vtt"));
                let text = segment.text();
                let map = text.lines().nth(1).expect("a map");
                let map = map.strip_prefix("X-TIMESTAMP-MAP=MPEGTS:").expect("a map");
                let (mpegts, local) = map.split_once(",LOCAL:").expect("a time");
                assert_eq!(local, "00:00:00.000");
                let at = mpegts.parse::<f64>().expect("a number") / 90_000.0;
                assert!((at - (shown - own)).abs() < 0.02, "{film}: {at}, not {shown} - {own}");
                let Some(found) = cues(test, &server, &segment.body) else { return };
                all.extend(found);
            }
            // One cue is in two segments.
            all.dedup();
            assert_same(film, &all);
            let whole = address.replace(".m3u8", ".vtt");
            let whole = http(server.http, "GET", &format!("/{film}/{whole}"));
            let Some(found) = cues(test, &server, &whole.body) else { return };
            assert_same(film, &found);
        }
        let manifest = http(server.http, "GET", &format!("/{film}/manifest.mpd")).text();
        assert_eq!(manifest.matches("mimeType=\"text/vtt\"").count(), subtitles, "{manifest}");
    }
    server.stop();
}

/// Matroska includes ffmpeg's delay of sound in all times.
#[track_caller]
fn assert_same(film: &str, found: &[(f64, f64, String)]) {
    let delay = if film.ends_with(".mkv") { 0.03 } else { 0.002 };
    assert_eq!(found.len(), CUES.len(), "{film}: {found:?}");
    for (found, wanted) in found.iter().zip(CUES) {
        let is_near = |a: f64, b: f64| (a - b).abs() < delay;
        let is_same = is_near(found.0, wanted.0) && is_near(found.1, wanted.1);
        assert!(is_same && found.2 == wanted.2, "{film}: {found:?}, not {wanted:?}");
    }
}

/// Returns an answer to a GET with further fields.
fn asked(server: &Server, target: &str, fields: &str) -> Answer {
    let mut line = Line::to(server.http);
    line.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n"));
    line.answer().expect("an answer")
}

#[test]
fn side_cars_made_to_harm_are_left_out_and_the_film_is_played() {
    let test = "subtitles::side_cars_made_to_harm_are_left_out_and_the_film_is_played";
    let Some(server) = films(test) else { return };
    let put = |name: &str, bytes: &[u8]| server.place.put(name, bytes);
    put("film.de.srt", b"");
    put("film.es.srt", &[&b"\x7fELF"[..], &[0; 100_000]].concat());
    put("film.it.vtt", &vec![b'a'; 3 << 20]);
    put("film.nl.vtt", SUBRIP.as_bytes());
    put("film.other.srt", SUBRIP.as_bytes());
    put("film.en.ass", b"[Script Info]\n");
    let huge = File::create(server.folder().join("film.fr.srt")).expect("created");
    huge.set_len(1 << 30).expect("a sparse file");
    symlink("/etc/passwd", server.folder().join("film.pt.srt")).expect("a link");
    symlink("film.en.srt", server.folder().join("film.sv.srt")).expect("a link");
    put(
        "film.zh-Hant.VTT",
        b"\xef\xbb\xbfWEBVTT\r\n\r\n00:01.000 --> 00:02.000\r\n\xe4\xbd\xa0\r\n",
    );
    let is_listed = |text: &str| {
        let listed = ["French", "English", "Swedish", "zh-Hant"];
        let names = listed.map(|name| text.contains(&format!("NAME=\"{name}\"")));
        names == [true; 4] && addresses(text).len() == 4
    };
    let text = master(&server, "film.mp4", is_listed);
    let address = addresses(&text).into_iter().find(|one| one.contains("/s-")).expect("a side-car");
    let segment = format!("/film.mp4/{}/0.vtt", address.trim_end_matches(".m3u8"));
    let whole = asked(&server, &segment, "");
    let etag = whole.header("ETag").expect("an entity tag").to_owned();
    assert!(whole.header("Cache-Control").expect("a rule").contains("immutable"));
    let again = asked(&server, &segment, &format!("If-None-Match: {etag}\r\n"));
    assert_eq!(again.status, 304);
    let part = asked(&server, &segment, "Range: bytes=0-5\r\n");
    assert_eq!((part.status, part.text().as_str()), (206, "WEBVTT"));
    assert_eq!(asked(&server, &segment.replace("/0.vtt", "/99.vtt"), "").status, 404);
    // Replaced: the old address no longer exists, and the playlist has changed.
    let before = http(server.http, "GET", "/film.mp4/master.m3u8");
    put("film.en.srt", b"0:01 --> 0:02\nReplaced\n");
    let replaced = master(&server, "film.mp4", |text| !text.contains(&address) && is_listed(text));
    assert_eq!(asked(&server, &segment, "").status, 404);
    let after = http(server.http, "GET", "/film.mp4/master.m3u8");
    assert_ne!(before.header("ETag"), after.header("ETag"));
    let new = addresses(&replaced).into_iter().filter(|one| one.contains("/s-"));
    let texts = new.map(|one| {
        let whole = one.replace(".m3u8", ".vtt");
        http(server.http, "GET", &format!("/film.mp4/{whole}")).text()
    });
    assert!(texts.into_iter().any(|text| text.ends_with("Replaced\n\n")));
    let log = server.stop();
    for reason in [
        "film.de.srt: left out: empty file",
        "film.es.srt: left out: no text",
        "film.it.vtt: left out: no WebVTT",
        "film.nl.vtt: left out: no WebVTT",
        "film.fr.srt: left out: 1073741824 bytes",
        "film.other.srt: left out: \"other\" is no language",
        "film.en.ass: left out: .ass: SubRip (.srt) and WebVTT (.vtt) are read",
    ] {
        // However many playlists were requested, it is logged with the first.
        assert_eq!(log.matches(reason).count(), 1, "{reason}: {log}");
    }
    assert!(!log.contains("panic"), "{log}");
}
