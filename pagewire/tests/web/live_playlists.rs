// SPDX-License-Identifier: MIT OR Apache-2.0
//! Playlists of a recording in progress: parts, blocking reloads, a silent source, a player that
//! disconnects, the end of the recorder, and a file that is truncated or replaced.
//!
//! Sources: draft-pantos-hls-rfc8216bis §4.4.3, §4.4.4.9, §6.2.5.
//! Does not play ([`crate::live`] does).

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::answer::{Answer, Line};
use crate::harness::ports::free_port;
use crate::harness::recorder::{Recorder, Sender, url};
use crate::harness::{PROGRAM, Place, Server, await_ok};
use crate::live::Film;
use crate::live_rules::{broken_by_reload, is_update_of};
use crate::playlist_rules::broken;
use crate::site::{Playlist, fetch, resolved};

/// A recording of a film that the test sends in parts.
pub(crate) struct Recording {
    film: Film,
    pub(crate) place: Place,
    pub(crate) recorder: Recorder,
    pub(crate) server: Server,
    sender: Sender,
    /// Bytes of the film since its last restart.
    sent: usize,
    /// Time up to which the film was sent since then.
    sent_s: f64,
}

impl Recording {
    pub(crate) fn begin(test: &str, seconds: usize) -> Option<Recording> {
        let film = Film::make(test, seconds)?;
        let (place, port) = (Place::new(), free_port());
        let recorder = Recorder::start(&place, &[url(port)], &[]);
        let server = Server::at(&place, Command::new(PROGRAM), &["--http-pace", "off"]);
        Some(Recording {
            film,
            place,
            recorder,
            server,
            sender: Sender::bare(port),
            sent: 0,
            sent_s: 0.0,
        })
    }

    /// Sends the film up to this time, as fast as the recorder receives it.
    pub(crate) fn send_until(&mut self, seconds: f64) {
        let end = self.film.offset_at(seconds).max(self.sent);
        self.sender.send_all(&self.film.bytes[self.sent..end]);
        (self.sent, self.sent_s) = (end, seconds);
    }

    /// Restarts the source, with the film's clock.
    pub(crate) fn begin_anew(&mut self) {
        self.sent = 0;
    }

    /// Continues the source with another film.
    pub(crate) fn go_on_with(&mut self, film: Film) {
        (self.film, self.sent) = (film, 0);
    }

    fn text(&self, path: &str) -> Answer {
        fetch(&self.server, path, None)
    }

    /// Returns the multivariant playlist as soon as there is one, and the media playlist.
    #[track_caller]
    fn playlists(&self) -> (String, Playlist) {
        let path = "/0.ts/master.m3u8";
        let master = await_ok(|| {
            let master = self.text(path);
            let is_there = master.status == 200;
            let found = || format!("{}: {}", master.head, master.text());
            if is_there { Ok(master.text()) } else { Err(found()) }
        });
        let uri = master.lines().find(|line| !line.starts_with('#')).expect("an address");
        let path = resolved(path, uri);
        let text = self.text(&path).text();
        (master, Playlist { path, text })
    }

    /// Returns the media playlist once it lists at least so many segments.
    #[track_caller]
    pub(crate) fn playlist_with(&self, segments: usize) -> Playlist {
        await_ok(|| {
            let (_, playlist) = self.playlists();
            let is_it = uris(&playlist).len() >= segments;
            if is_it { Ok(playlist) } else { Err(playlist.text) }
        })
    }

    /// Asserts 410. A file that changes while it is read is answered with 503 until it has been
    /// read again.
    #[track_caller]
    fn assert_gone(&self, path: &str) {
        let answer = await_ok(|| {
            let answer = self.text(path);
            if answer.status == 503 { Err(answer.text()) } else { Ok(answer) }
        });
        assert_eq!(answer.status, 410, "{path}: {}", answer.text());
    }

    /// Returns the media playlist when it lists everything that was sent: the part that it
    /// announces has no end yet.
    #[track_caller]
    fn settled(&self) -> Playlist {
        await_ok(|| {
            let (_, playlist) = self.playlists();
            let (_, segment, part) = announced(&playlist);
            let end_s = SEGMENT_S * segment as f64 + PART_S * (part + 1) as f64;
            if end_s > self.sent_s { Ok(playlist) } else { Err(playlist.text) }
        })
    }
}

/// Returns the segments of a playlist.
fn uris(playlist: &Playlist) -> Vec<&str> {
    playlist.text.lines().filter(|line| !line.starts_with('#')).collect()
}

/// Returns addresses of the parts that a playlist lists.
fn parts(playlist: &Playlist) -> Vec<&str> {
    let uri = |value: &'_ &str| value.split("URI=\"").nth(1).is_some();
    let values = playlist.values("EXT-X-PART").into_iter().filter(uri);
    values.map(|value| value.split('"').nth(1).expect("a URI")).collect()
}

/// Returns the address of the part that a playlist announces, and its segment and number.
#[track_caller]
fn announced(playlist: &Playlist) -> (&str, usize, usize) {
    let hint = playlist.values("EXT-X-PRELOAD-HINT");
    let uri = hint[0].split('"').nth(1).expect("a URI");
    let numbers = uri.strip_prefix("live/").and_then(|uri| uri.strip_suffix(".ts"));
    let (segment, part) = numbers.and_then(|numbers| numbers.split_once('.')).expect("a part");
    (uri, segment.parse().expect("a number"), part.parse().expect("a number"))
}

/// Requests in a thread, for an answer that may be delayed; its delay is sent with it.
fn later(server: SocketAddr, path: String) -> Receiver<(Answer, Duration)> {
    let (sender, answers) = mpsc::channel();
    thread::spawn(move || {
        let mut line = Line::to(server);
        let asked = Instant::now();
        line.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"));
        // The test may have failed meanwhile.
        let _ = line.answer().map(|answer| sender.send((answer, asked.elapsed())));
    });
    answers
}

/// Returns the answer to a request that waits for media still to be sent: a slow machine may first
/// answer it with the current content, as when the source is silent, and as late.
#[track_caller]
fn awaited(
    server: &Server,
    path: &str,
    first: &Receiver<(Answer, Duration)>,
    is_it: impl Fn(&Answer) -> bool,
) -> Answer {
    let deadline = Instant::now() + ANSWER_WAIT;
    let (mut answer, delay) = first.recv_timeout(ANSWER_WAIT).expect("in time");
    assert!(is_it(&answer) || delay >= SILENCE_LEAST, "{path}: answered after {delay:?}");
    while !is_it(&answer) {
        assert!(Instant::now() < deadline, "{path}: {} {}", answer.head, answer.text());
        answer = fetch(server, path, None);
    }
    answer
}

#[test]
fn a_reload_waits_for_the_part_that_it_names_and_ends_with_the_recorder() {
    let test =
        "live_playlists::a_reload_waits_for_the_part_that_it_names_and_ends_with_the_recorder";
    let Some(mut recording) = Recording::begin(test, 30) else { return };
    recording.send_until(21.0);
    let (master, first) = recording.playlists();
    let list = Playlist { path: "/0.ts/master.m3u8".to_owned(), text: master.clone() };
    assert_eq!(broken(&list), [""; 0], "{master}");
    let mut copies = vec![first];
    for attribute in ["CODECS=\"avc1.", ",mp4a.40.2\"", "RESOLUTION=320x180", "FRAME-RATE=25.000"] {
        assert!(master.contains(attribute), "{attribute}: {master}");
    }
    recording.playlist_with(9);
    let playlist = recording.settled();
    assert_listed(&playlist);
    assert_parts_are_the_segment(&recording, &playlist);
    assert_refused(&recording, &playlist);
    assert_update(&recording, &playlist);
    copies.push(playlist);

    // The source is silent: the answer is the current content, after three target durations.
    let playlist = recording.settled();
    let (hint, segment, part) = announced(&playlist);
    let part_path = resolved(&playlist.path, hint);
    let reload = format!("{}?_HLS_msn={segment}&_HLS_part={part}", playlist.path);
    let silent = later(recording.server.http, reload.clone()).recv_timeout(ANSWER_WAIT);
    let (silent, delay) = silent.expect("an answer in time");
    assert!(delay >= SILENCE_LEAST, "{delay:?}");
    assert_eq!((silent.status, silent.text()), (200, playlist.text.clone()));

    // A client that disconnects no longer waits.
    await_connections(&recording.server, "those of the answers above are closed", 0);
    let mut line = Line::to(recording.server.http);
    line.send(format!("GET {reload} HTTP/1.1\r\nHost: test\r\n\r\n"));
    await_connections(&recording.server, "it waits", 1);
    line.shut();
    await_connections(&recording.server, "it waits for nobody", 0);

    // The source continues: both requests are answered with the part.
    let waiting = [&reload, &part_path].map(|path| later(recording.server.http, path.clone()));
    await_connections(&recording.server, "they wait", 2);
    recording.send_until(22.5);
    let in_playlist = |answer: &Answer| {
        let (path, text) = (playlist.path.clone(), answer.text());
        answer.status == 200 && parts(&Playlist { path, text }).contains(&hint)
    };
    awaited(&recording.server, &reload, &waiting[0], in_playlist);
    let bytes = awaited(&recording.server, &part_path, &waiting[1], |part| part.status == 200);
    assert!(bytes.body.len() > 188 && bytes.body.len().is_multiple_of(188), "{}", bytes.head);
    assert_eq!(bytes.body[0], 0x47);

    // The recorder ends while a player waits.
    let last = recording.settled();
    let (_, segment, _) = announced(&last);
    copies.extend([playlist.clone(), last.clone()]);
    let next = format!("{}?_HLS_msn={}", playlist.path, segment + 1);
    let waiting = later(recording.server.http, next.clone());
    await_connections(&recording.server, "it waits", 1);
    let Recording { recorder, server, place, .. } = recording;
    recorder.stop().well();
    let is_end = |answer: &Answer| answer.text().ends_with("#EXT-X-ENDLIST\n");
    let ended = awaited(&server, &next, &waiting, is_end);
    let ended = Playlist { path: playlist.path, text: ended.text() };
    assert!(parts(&ended).is_empty() && !ended.text.contains("SERVER-CONTROL"), "{}", ended.text);
    assert_eq!(broken(&ended), [""; 0], "{}", ended.text);
    copies.push(ended.clone());
    for pair in copies.windows(2) {
        let broken = broken_by_reload(&pair[0], &pair[1]);
        assert_eq!(broken, [""; 0], "{}{}", pair[0].text, pair[1].text);
    }
    let whole = fs::read(place.folder().join("0.ts")).expect("it was recorded");
    let segments = uris(&ended).into_iter().map(|uri| resolved(&ended.path, uri));
    let segments: Vec<_> = segments.collect();
    let bodies = segments.iter().map(|path| fetch(&server, path, None).body);
    assert!(bodies.collect::<Vec<_>>().concat() == whole, "the segments are the file");
    server.stop();
    // The finished file does not record where its segments were cut. Regression: a restarted server
    // sent other bytes under the same addresses.
    let server = Server::at(&place, Command::new(PROGRAM), &["--http-pace", "off"]);
    for path in segments.iter().chain([&ended.path]) {
        let answer = fetch(&server, path, None);
        assert_eq!(answer.status, 410, "{path}: {}", answer.text());
    }
    assert_eq!(fetch(&server, "/0.ts/master.m3u8", None).status, 200);
    server.stop();
}

/// Waits until clients have so many connections.
#[track_caller]
fn await_connections(server: &Server, what: &str, count: u64) {
    // One more requests the index.
    server.await_index(what, |index| index["server"]["connections"] == count + 1);
}

/// Asserts tags of a growing playlist.
#[track_caller]
fn assert_listed(playlist: &Playlist) {
    let text = &playlist.text;
    assert_eq!(broken(playlist), [""; 0], "{text}");
    let control = playlist.values("EXT-X-SERVER-CONTROL")[0];
    for attribute in
        ["CAN-BLOCK-RELOAD=YES", "CAN-SKIP-UNTIL=12", "HOLD-BACK=6", "PART-HOLD-BACK=1.5"]
    {
        assert!(control.split(',').any(|one| one == attribute), "{attribute}: {text}");
    }
    assert_eq!(playlist.values("EXT-X-PART-INF"), ["PART-TARGET=0.400000"]);
    let date = playlist.values("EXT-X-PROGRAM-DATE-TIME");
    assert!(!date.is_empty(), "{text}");
    let listed = playlist.values("EXT-X-PART");
    // Of three target durations, and of the incomplete segment.
    assert!((15..=25).contains(&listed.len()), "{text}");
    let independent = listed.iter().filter(|part| part.ends_with(",INDEPENDENT=YES")).count();
    assert!((3..=5).contains(&independent), "{text}");
    for part in &listed {
        let lasts = part.split(['=', ',']).nth(1).expect("a duration");
        assert!(lasts.parse::<f64>().expect("a number") <= 0.4, "{part}");
    }
}

/// Asserts that the parts of the last complete segment equal that segment.
#[track_caller]
fn assert_parts_are_the_segment(recording: &Recording, playlist: &Playlist) {
    let segment = *uris(playlist).last().expect("a segment");
    let stem = segment.strip_suffix("ts").expect("a name");
    let own = parts(playlist).into_iter().filter(|part| part.starts_with(stem));
    let bytes = |uri: &str| {
        let answer = recording.text(&resolved(&playlist.path, uri));
        assert_eq!(answer.status, 200, "{uri}: {}", answer.head);
        assert!(answer.header("Cache-Control").expect("a field").contains("immutable"));
        assert_eq!(answer.header("Content-Type"), Some("video/mp2t"));
        answer.body
    };
    let own: Vec<Vec<u8>> = own.map(bytes).collect();
    assert_eq!(own.len(), 5, "{}", playlist.text);
    assert!(own.concat() == bytes(segment), "{segment}");
    // The tables are at the beginning.
    let pids: Vec<u16> = own[0]
        .chunks(188)
        .map(|packet| u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff)
        .filter(|&pid| pid != 0x11)
        .collect();
    assert_eq!(pids[0], 0, "the PAT");
}

/// Asserts that requests for media that no playlist will soon list are refused at once.
#[track_caller]
fn assert_refused(recording: &Recording, playlist: &Playlist) {
    let (_, segment, part) = announced(playlist);
    for (query, status) in [
        ("_HLS_msn=x".to_owned(), 400),
        ("_HLS_part=1".to_owned(), 400),
        (format!("_HLS_msn={}", segment + 2), 400),
        (format!("_HLS_msn={segment}&_HLS_part={}", part + 8), 400),
        (format!("_HLS_msn={}&_HLS_part=0", usize::MAX), 400),
        ("_HLS_msn=0&_HLS_part=99".to_owned(), 200),
        (format!("_HLS_msn={}", segment - 1), 200),
        ("token=a".to_owned(), 200),
    ] {
        let answer = recording.text(&format!("{}?{query}", playlist.path));
        assert_eq!(answer.status, status, "{query}: {}", answer.text());
    }
    for uri in [format!("live/{segment}.{}.ts", part + 1), format!("live/{}.ts", segment + 1)] {
        assert_eq!(recording.text(&resolved(&playlist.path, &uri)).status, 404, "{uri}");
    }
}

/// Asserts that an update leaves out the segments older than the last twelve seconds.
#[track_caller]
fn assert_update(recording: &Recording, playlist: &Playlist) {
    let answer = recording.text(&format!("{}?_HLS_skip=YES", playlist.path));
    let update = Playlist { path: playlist.path.clone(), text: answer.text() };
    let skipped = update.values("EXT-X-SKIP");
    let skipped = skipped[0].strip_prefix("SKIPPED-SEGMENTS=").expect("a number");
    let skipped: usize = skipped.parse().expect("a number");
    assert!((2..=5).contains(&skipped), "{}", update.text);
    assert_eq!(uris(&update)[..], uris(playlist)[skipped..], "{}", update.text);
    assert!(is_update_of(&update, playlist), "{}{}", playlist.text, update.text);
    assert_eq!(broken(&update), [""; 0], "{}", update.text);
}

#[test]
fn a_recording_that_is_cut_short_or_replaced_is_gone() {
    let test = "live_playlists::a_recording_that_is_cut_short_or_replaced_is_gone";
    let Some(mut recording) = Recording::begin(test, 14) else { return };
    recording.send_until(13.0);
    recording.playlist_with(4);
    let playlist = recording.settled();
    let last = resolved(&playlist.path, uris(&playlist).last().expect("a segment"));
    assert_eq!(recording.text(&last).status, 200);
    let mpd = "/0.ts/manifest.mpd";
    let text = recording.text(mpd).text();
    let address = |part: &str| {
        let name = text.split(part).nth(1).and_then(|rest| rest.split(['<', '"']).next());
        resolved(mpd, name.unwrap_or_else(|| panic!("no {part} in {text}")))
    };
    let fragment = address("media=\"").replace("$Time$", "1440000");
    let manifest = address("<Location>");
    assert_eq!(recording.text(&fragment).status, 200, "{fragment}");
    let path = recording.place.folder().join("0.ts");
    let file = File::options().write(true).open(&path).expect("it is recorded");
    file.set_len(188 * 100).expect("cut");
    recording.assert_gone(&last);
    recording.assert_gone(&fragment);
    // Regression: once the server had seen it, and until the recorder, which has the file still
    // open, had written another second, the answer was 503: the file is being written.
    recording.server.await_log("the recording is complete");
    for gone in [&last, &fragment, &manifest] {
        assert_eq!(recording.text(gone).status, 410, "{gone}");
    }
    // Another file replaces it under its name.
    recording.place.put("0.ts", &recording.film.bytes);
    for gone in [&last, &playlist.path, &fragment, &manifest] {
        recording.assert_gone(gone);
    }
    fs::remove_file(&path).expect("removed");
    assert_eq!(recording.text(&playlist.path).status, 404);
    recording.recorder.kill();
    recording.server.stop();
}

/// Durations of the film's groups of pictures, and of a part.
const SEGMENT_S: f64 = 2.0;
const PART_S: f64 = 0.4;
/// Less than three target durations, for which a request waits while the source is silent.
const SILENCE_LEAST: Duration = Duration::from_secs(5);
/// The same on a busy machine, at most.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
