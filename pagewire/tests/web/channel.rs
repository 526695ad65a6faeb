// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel of two small files as HLS: its playlist slides over changes of programme and of the
//! window's parts, its segments are one stream that ffmpeg decodes, and hls.js plays it.
//!
//! The files differ in picture size, so each change of programme changes the parameters. A run in
//! the browser that misses the limits is repeated, up to three runs in all.
//!
//! Sources: RFC 8216 §4.3.2.3, §4.3.3.2, §4.3.3.3, §6.2.2. Does not test other transports of a
//! channel (`channels`).

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::clips::{H264, LIMIT, ffmpeg};
use crate::harness::answer::{Answer, Line};
use crate::harness::{PROGRAM, Place, Server, await_ok, film, watchdog};
use crate::live::{self, LiveReport};
use crate::live_rules::broken_by_reload;
use crate::playlist_rules::broken;
use crate::site::{Playlist, fetch, resolved};

const MASTER: &str = "/channel/news/master.m3u8";

/// Starts a server of a channel that plays two files; returns `None`, with the reason printed,
/// without ffmpeg.
pub(crate) fn serve(test: &str, options: &[&str]) -> Option<Server> {
    let place = Place::new();
    for (name, size, seconds) in [("a.ts", "320x180", "9"), ("b.ts", "426x240", "7")] {
        let mut command = ffmpeg();
        for input in [&format!("testsrc2=size={size}:rate=25"), "sine=sample_rate=48000"] {
            command.args(["-f", "lavfi", "-t", seconds, "-i", input]);
        }
        command.args(H264).args(["-b:v", "400k", "-c:a", "aac", "-b:a", "64k", "-f", "mpegts"]);
        film::put(test, &mut command, &place.folder().join(name))?;
    }
    let config = place.top().join("channels.toml");
    let text = "[channel.news]\nplaylist = [\"a.ts\", \"b.ts\"]\n\
                [channel.closed]\nplaylist = [\"a.ts\"]\nsend = [\"udp://127.0.0.1:9\"]\n\
                rtsp = false\n";
    fs::write(&config, text).expect("room for a configuration");
    let config = config.to_str().expect("a path in UTF-8");
    let options = [&["--config", config, "--http-pace", "off"], options].concat();
    Some(Server::at(&place, Command::new(PROGRAM), &options))
}

/// Returns the multivariant playlist as soon as there is one.
#[track_caller]
fn master(server: &Server) -> Playlist {
    await_ok(|| {
        let answer = fetch(server, MASTER, None);
        if answer.status == 200 {
            let master = Playlist { path: MASTER.to_owned(), text: answer.text() };
            assert_eq!(broken(&master), [""; 0], "{}", master.text);
            return Ok(master);
        }
        assert_eq!(answer.status, 503, "{}", answer.head);
        assert_eq!(answer.header("Retry-After"), Some("1"), "{}", answer.head);
        Err(answer.text())
    })
}

/// A segment of a playlist.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListedSegment {
    pub(crate) uri: String,
    duration: String,
    /// Discontinuities before it since the channel began.
    breaks: usize,
    pub(crate) is_break: bool,
}

/// Returns the segments of a playlist, by their media sequence numbers.
#[track_caller]
pub(crate) fn listed(playlist: &Playlist) -> BTreeMap<usize, ListedSegment> {
    let number = |tag| playlist.values(tag)[0].parse::<usize>().expect("a number");
    let (mut at, mut breaks) =
        (number("EXT-X-MEDIA-SEQUENCE"), number("EXT-X-DISCONTINUITY-SEQUENCE"));
    let (mut segments, mut duration, mut is_break) = (BTreeMap::new(), String::new(), false);
    for line in playlist.text.lines() {
        if let Some(found) = line.strip_prefix("#EXTINF:") {
            found.clone_into(&mut duration);
        } else if line == "#EXT-X-DISCONTINUITY" {
            (breaks, is_break) = (breaks + 1, true);
        } else if !line.starts_with('#') {
            let (uri, duration) = (line.to_owned(), std::mem::take(&mut duration));
            segments.insert(at, ListedSegment { uri, duration, breaks, is_break });
            (at, is_break) = (at + 1, false);
        }
    }
    segments
}

/// Segments that a player has seen.
#[derive(Default)]
struct Follower {
    known: BTreeMap<usize, ListedSegment>,
    bytes: BTreeMap<usize, Vec<u8>>,
    first: usize,
    /// Number after the last segment that was found to be gone.
    gone: usize,
    last: Option<Playlist>,
}

impl Follower {
    /// Reads a playlist and fetches its new segments.
    #[track_caller]
    fn look(&mut self, server: &Server, playlist: &Playlist) {
        let text = &playlist.text;
        // A known defect: the last part but one before a change of programme may be short.
        let is_new = |rule: &String| !rule.starts_with("bis 4.4.4.9: a part lasts 85 %");
        let broken: Vec<String> = broken(playlist).into_iter().filter(is_new).collect();
        assert_eq!(broken, [""; 0], "{text}");
        if let Some(before) = self.last.replace(playlist.clone()) {
            assert_eq!(broken_by_reload(&before, playlist), [""; 0], "{}{text}", before.text);
        }
        assert!(!text.contains("PLAYLIST-TYPE") && !text.contains("ENDLIST"), "{text}");
        let segments = listed(playlist);
        let first = *segments.keys().next().expect("a segment");
        assert!(first >= self.first, "{first} after {}: {text}", self.first);
        self.first = first;
        for (number, segment) in segments {
            let before = self.known.entry(number).or_insert_with(|| segment.clone());
            assert_eq!(*before, segment, "{number}: {text}");
            self.bytes.entry(number).or_insert_with(|| {
                let answer = fetch(server, &resolved(&playlist.path, &segment.uri), None);
                assert_eq!(answer.status, 200, "{number}: {}", answer.head);
                assert_parts(server, playlist, &segment.uri, &answer.body);
                answer.body
            });
        }
        self.look_back(server, playlist);
    }

    /// Asserts that a segment that has left the playlist has its bytes, or is gone permanently.
    #[track_caller]
    fn look_back(&mut self, server: &Server, playlist: &Playlist) {
        for (number, segment) in self.known.range(..self.first) {
            let answer = fetch(server, &resolved(&playlist.path, &segment.uri), None);
            match answer.status {
                200 => {
                    assert!(*number >= self.gone, "{number} came back");
                    assert!(answer.body == self.bytes[number], "{number} has other bytes");
                }
                status => {
                    assert_eq!(status, 410, "{number}: {}", answer.head);
                    self.gone = self.gone.max(number + 1);
                }
            }
        }
    }
}

/// Asserts that the listed parts of a segment equal that segment.
#[track_caller]
fn assert_parts(server: &Server, playlist: &Playlist, uri: &str, segment: &[u8]) {
    let stem = uri.strip_suffix("ts").expect("a name");
    let values = playlist.values("EXT-X-PART");
    let uris = values.iter().filter_map(|value| value.split("URI=\"").nth(1)?.split('"').next());
    let own = uris.filter(|uri| uri.starts_with(stem));
    let bytes: Vec<u8> =
        own.flat_map(|uri| fetch(server, &resolved(&playlist.path, uri), None).body).collect();
    assert!(bytes.is_empty() || bytes == segment, "{uri}: its parts are others");
}

/// Asserts that the last date is recent.
#[track_caller]
fn assert_dates(playlist: &Playlist) {
    let (mut at, mut end) = (None, None);
    for line in playlist.text.lines() {
        if let Some(date) = line.strip_prefix("#EXT-X-PROGRAM-DATE-TIME:") {
            at = Some(time_of_day_s(date));
        } else if let Some(lasts) = line.strip_prefix("#EXTINF:") {
            let lasts: f64 = lasts.trim_end_matches(',').parse().expect("a duration");
            at = at.map(|at| at + lasts);
            end = at;
        }
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let behind = (now.as_secs_f64() - end.expect("dates") + DAY_S / 2.0).rem_euclid(DAY_S);
    // On a busy machine the playlist is some time old.
    assert!((-0.5..6.0).contains(&(behind - DAY_S / 2.0)), "{behind} s: {}", playlist.text);
}

/// Returns the time of day of a date such as 2026-11-25T23:11:33.110Z, in seconds.
#[track_caller]
fn time_of_day_s(date: &str) -> f64 {
    let time = date.split(['T', 'Z']).nth(1).expect("a time");
    let parts = time.split(':').map(|part| part.parse::<f64>().expect("a number"));
    parts.fold(0.0, |sum, part| sum * 60.0 + part)
}

/// Asserts that ffmpeg decodes the segments one after the other, from a change of programme on, and
/// that pictures follow each other.
#[track_caller]
fn assert_decoded(follower: &Follower) {
    let folder = tempfile::tempdir().expect("a folder");
    let join = |segments: Vec<&[u8]>| {
        let path = folder.path().join(format!("{}.ts", segments.len()));
        fs::write(&path, segments.concat()).expect("room for a file");
        path
    };
    for (number, segment) in &follower.bytes {
        assert!(segment.len().is_multiple_of(188), "{number}");
        assert_eq!((segment[0], segment[1] & 0x1f, segment[2]), (0x47, 0, 0), "{number}: the PAT");
    }
    let decoded = |path| {
        let mut command = Command::new("ffprobe");
        command.args(["-v", "error", "-select_streams", "v", "-show_frames", "-show_entries"]);
        command.args(["frame=best_effort_timestamp_time,width", "-of", "json"]);
        let outcome = watchdog::run(command.arg(path), LIMIT).expect("it comes with ffmpeg");
        assert_eq!(outcome.stderr, "", "a file that is left ends with a whole picture");
        outcome.succeeded()
    };
    decoded(join(follower.bytes.values().map(|bytes| &bytes[..]).collect()));
    // Earlier segments are the end of a file that was entered in the middle.
    let from = follower.known.iter().find(|(_, segment)| segment.is_break).expect("one").0;
    let path = join(follower.bytes.range(from..).map(|(_, bytes)| &bytes[..]).collect());
    let report: Value = serde_json::from_slice(&decoded(path)).expect("JSON");
    let frames = report["frames"].as_array().expect("a list").iter();
    let pictures: Vec<(f64, u64)> = frames
        .map(|frame| {
            let time = frame["best_effort_timestamp_time"].as_str().expect("a time");
            (time.parse().expect("a number"), frame["width"].as_u64().expect("a number"))
        })
        .collect();
    let mut changes = 0;
    for pair in pictures.windows(2) {
        let ((before, width_before), (time, width)) = (pair[0], pair[1]);
        // The clock of a channel follows the time of day: it may wrap after 26 hours.
        let step = (time - before).rem_euclid(CLOCK_S);
        assert!(step > 0.0 && step < STEP_MAX_S, "{step} s from {before} to {time}");
        changes += usize::from(width != width_before);
    }
    let segments = follower.known.range(from..);
    assert_eq!(changes + 1, segments.filter(|(_, segment)| segment.is_break).count());
    assert!(pictures.len() > 25 * 20, "{} pictures", pictures.len());
}

/// Asserts that answers have the fields of those for files, and that invalid requests are refused.
#[track_caller]
fn assert_answers(server: &Server, playlist: &Playlist, follower: &Follower) {
    let (number, segment) = follower.known.last_key_value().expect("a segment");
    let path = resolved(&playlist.path, &segment.uri);
    let ask = |method: &str, fields: &str| -> Answer {
        let mut line = Line::to(server.http);
        line.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n"
        ));
        line.answer().expect("an answer")
    };
    let whole = ask("GET", "");
    let bytes = &follower.bytes[number];
    assert!(whole.body == *bytes);
    assert_eq!(whole.header("Content-Type"), Some("video/mp2t"));
    assert_eq!(whole.header("Access-Control-Allow-Origin"), Some("*"));
    assert!(whole.header("Cache-Control").expect("a field").contains("immutable"));
    let etag = whole.header("ETag").expect("a tag").to_owned();
    assert_eq!(ask("GET", &format!("If-None-Match: {etag}\r\n")).status, 304);
    let range = ask("GET", "Range: bytes=188-999\r\n");
    assert_eq!((range.status, &range.body[..]), (206, &bytes[188..1000]));
    assert_eq!(ask("POST", "").status, 405);
    // Ranges of two different playlists would be joined.
    let answer = fetch(server, &playlist.path, Some((0, 10)));
    assert_eq!((answer.status, answer.header("Accept-Ranges")), (200, Some("none")));
    assert!(answer.body.starts_with(b"#EXTM3U") && answer.body.len() > 11);
    let mut line = Line::to(server.http);
    line.send(format!("HEAD {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
    let head = line.head().expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", bytes.len())), "{head}");
    let other = path.replace('~', "~1");
    assert_eq!(fetch(server, &other, None).status, 410, "another start of the channel");
    let next = path.replace(&format!("/{number}.ts"), "/999999.ts");
    assert_eq!(fetch(server, &next, None).status, 404);
    for (query, status) in [("_HLS_msn=x", 400), ("_HLS_msn=999999", 400), ("_HLS_msn=0", 200)] {
        let answer = fetch(server, &format!("{}?{query}", playlist.path), None);
        assert_eq!(answer.status, status, "{query}");
    }
    for name in ["master.m3u8", "manifest.mpd"] {
        let refused = fetch(server, &format!("/channel/closed/{name}"), None);
        assert!(refused.status == 404 && refused.text().contains("rtsp"), "{}", refused.text());
        assert_eq!(fetch(server, &format!("/channel/none/{name}"), None).status, 404);
    }
    assert_eq!(fetch(server, "/channel/news/player.html", None).status, 200);
}

#[test]
fn a_channel_is_refused_where_segments_are_enciphered() {
    let test = "channel::a_channel_is_refused_where_segments_are_enciphered";
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    fs::write(&secret, [7; 32]).expect("room for a secret");
    let secret = secret.to_str().expect("a path in UTF-8");
    let cipher = ["--hls-cipher", "aes-128", "--hls-key-file", secret];
    let Some(server) = serve(test, &cipher) else { return };
    for path in [MASTER, "/channel/news/manifest.mpd"] {
        let refused = fetch(&server, path, None);
        assert_eq!(refused.status, 404, "{}", refused.head);
        assert!(refused.text().contains("--hls-cipher"), "{}", refused.text());
    }
    server.stop();
}

/// Plays by hls.js for so many seconds and asserts that it does not stall.
fn plays(test: &str, low_latency: bool, seconds: usize, behind_max_s: f64) {
    for attempt in 1.. {
        let Some(server) = serve(test, &["--allow-origin", "*"]) else { return };
        master(&server);
        let url = server.http_url(MASTER.trim_start_matches('/'));
        let Some(report) = live::reported(test, &url, low_latency, seconds) else { return };
        server.stop();
        let samples = &report.samples;
        let stalled_s = report.stalled_s();
        let behind = samples.iter().filter_map(|sample| Some(sample.wall_s - sample.date_s?));
        let behind_s = behind.reduce(f64::max).unwrap_or(f64::MAX);
        let frames = |report: &LiveReport| {
            let (first, last) = (report.samples.first()?, report.samples.last()?);
            Some(last.frames - first.frames)
        };
        let frames = frames(&report).unwrap_or(0);
        eprintln!(
            "{test}: {behind_s} s behind, stalled {stalled_s} s, {frames} frames, {} parts, \
                   {} segments, {:?}",
            report.parts, report.segments, report.errors
        );
        let is_fatal = report.errors.iter().any(|error| error.starts_with("fatal"));
        let is_good = !is_fatal
            && behind_s < behind_max_s
            && stalled_s < STALL_S
            && frames as usize > seconds * 20;
        if is_good {
            assert!([320, 426].contains(&report.width), "{}", report.width);
            assert_eq!(report.parts as usize > seconds, low_latency, "{}", report.parts);
            return;
        }
        assert!(attempt < ATTEMPTS_MAX, "{:?}", report.errors);
        eprintln!("{test}: once more, as the machine may have been busy");
    }
}

/// Longer than the files, the playlist, the time until its segments leave it, and a part of the
/// window.
const FOLLOWED: Duration = Duration::from_secs(42);
const PLAYED_S: usize = 25;
const PLAIN_S: f64 = 10.0;
const LOW_S: f64 = 5.0;
const STALL_S: f64 = 1.0;
const ATTEMPTS_MAX: usize = 3;
const DAY_S: f64 = 86_400.0;
/// Seconds after which timestamps of 33 bits wrap.
const CLOCK_S: f64 = (1_u64 << 33) as f64 / 90_000.0;
/// Longest distance of two pictures: sound may last longer than the pictures of a file.
const STEP_MAX_S: f64 = 0.1;

mod clients {
    use super::*;

    /// By the browser's own player, where it has one.
    #[test]
    fn the_page_of_a_channel_plays_it() {
        let test = "channel::clients::the_page_of_a_channel_plays_it";
        let Some(server) = serve(test, &[]) else { return };
        master(&server);
        let report = live::page_report(test, &server, "channel/news");
        server.stop();
        let Some(report) = report else { return };
        assert!([320, 426].contains(&report["width"].as_u64().unwrap_or(0)), "{report}");
    }
}

mod timed {
    use super::*;

    #[test]
    fn a_playlist_slides_over_programmes_and_its_segments_are_one_stream() {
        let test =
            "channel::timed::a_playlist_slides_over_programmes_and_its_segments_are_one_stream";
        let Some(server) = serve(test, &["--allow-origin", "*"]) else { return };
        assert_eq!(fetch(&server, MASTER, None).status, 503, "nothing is sent yet");
        let master = master(&server);
        let uri = master.text.lines().find(|line| !line.starts_with('#')).expect("an address");
        let path = resolved(MASTER, uri);
        let mut follower = Follower::default();
        let began = Instant::now();
        let mut text = String::new();
        while began.elapsed() < FOLLOWED {
            text = fetch(&server, &path, None).text();
            follower.look(&server, &Playlist { path: path.clone(), text: text.clone() });
            thread::sleep(Duration::from_millis(500));
        }
        let playlist = Playlist { path, text };
        assert!(follower.first >= 10 && follower.gone > 0, "{} {}", follower.first, follower.gone);
        let breaks = follower.known.values().filter(|segment| segment.is_break).count();
        assert!(breaks >= 3, "{breaks} changes of programme: {:?}", follower.known);
        assert_dates(&playlist);
        let master = fetch(&server, MASTER, None).text();
        for attribute in ["CODECS=\"avc1.", ",mp4a.40.2\"", "RESOLUTION=", "FRAME-RATE=25.000"] {
            assert!(master.contains(attribute), "{attribute}: {master}");
        }
        assert_decoded(&follower);
        assert_answers(&server, &playlist, &follower);
        server.stop();
    }

    #[test]
    fn hls_js_plays_a_channel() {
        plays("channel::timed::hls_js_plays_a_channel", false, PLAYED_S, PLAIN_S);
    }

    #[test]
    fn hls_js_plays_a_channel_in_low_latency_mode() {
        plays("channel::timed::hls_js_plays_a_channel_in_low_latency_mode", true, PLAYED_S, LOW_S);
    }

    #[test]
    #[ignore = "takes LIVE_MINUTES minutes of real time"]
    fn hls_js_plays_a_channel_for_minutes() {
        let test = "channel::timed::hls_js_plays_a_channel_for_minutes";
        plays(test, false, live::minutes() * 60, PLAIN_S);
    }

    #[test]
    #[ignore = "takes LIVE_MINUTES minutes of real time"]
    fn hls_js_plays_a_channel_for_minutes_in_low_latency_mode() {
        let test = "channel::timed::hls_js_plays_a_channel_for_minutes_in_low_latency_mode";
        plays(test, true, live::minutes() * 60, LOW_S);
    }
}
