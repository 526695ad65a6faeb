// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel as DASH: a period for each programme, whose fragments have the samples of the segments
//! of HLS, and dash.js in Chromium over a change of programme.
//!
//! Sources: ISO/IEC 23009-1 §5.3.1, §5.3.2 (periods). Does not test segments that have left the
//! window (`serve/src/web/channel_trials.rs`).

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use dash_mpd_core::MPD;

use crate::channel::listed;
use crate::clips::{H264, ffmpeg};
use crate::harness::answer::Answer;
use crate::harness::{PROGRAM, Place, Server, await_ok, film};
use crate::live_dash::{Follower, digests};
use crate::site::{Playlist, fetch, resolved};

const MANIFEST: &str = "/channel/news/manifest.mpd";

/// Starts a server of a channel that alternates between two short files, and of one whose pictures
/// DASH does not carry; returns `None`, with the reason printed, without ffmpeg.
fn serve(test: &str) -> Option<Server> {
    let place = Place::new();
    for (name, size, sounds) in [("a.ts", "320x180", 1), ("b.ts", "426x240", 2)] {
        let mut command = ffmpeg();
        for input in [&format!("testsrc2=size={size}:rate=25"), "sine=sample_rate=48000"] {
            command.args(["-f", "lavfi", "-t", "5", "-i", input]);
        }
        command.args(["-map", "0:v"]);
        for _ in 0..sounds {
            command.args(["-map", "1:a"]);
        }
        command.args(H264).args(["-b:v", "200k", "-c:a", "aac", "-b:a", "64k", "-f", "mpegts"]);
        film::put(test, &mut command, &place.folder().join(name))?;
    }
    let mut command = ffmpeg();
    command.args(["-f", "lavfi", "-t", "8", "-i", "testsrc2=size=176x144:rate=25"]);
    command.args(["-c:v", "mpeg2video", "-g", "25", "-f", "mpegts"]);
    film::put(test, &mut command, &place.folder().join("old.ts"))?;
    let config = place.top().join("channels.toml");
    let text = "[channel.news]\nplaylist = [\"a.ts\", \"b.ts\"]\n\
                [channel.old]\nplaylist = [\"old.ts\"]\n";
    fs::write(&config, text).expect("room for a configuration");
    let config = config.to_str().expect("a path in UTF-8");
    Some(Server::at(&place, Command::new(PROGRAM), &["--config", config, "--http-pace", "off"]))
}

/// Returns the first answer to a request that is not a 503 with a time to retry.
#[track_caller]
fn begun(server: &Server, path: &str) -> Answer {
    await_ok(|| {
        let answer = fetch(server, path, None);
        if answer.status != 503 {
            return Ok(answer);
        }
        assert_eq!(answer.header("Retry-After"), Some("1"), "{}", answer.head);
        Err(answer.text())
    })
}

/// The segments of HLS so far, by their numbers.
#[derive(Default)]
struct Segments {
    bytes: BTreeMap<usize, Vec<u8>>,
    breaks: Vec<usize>,
}

impl Segments {
    #[track_caller]
    fn load(&mut self, server: &Server, path: &str) {
        let text = fetch(server, path, None).text();
        let playlist = Playlist { path: path.to_owned(), text };
        for (number, segment) in listed(&playlist) {
            if segment.is_break && !self.breaks.contains(&number) {
                self.breaks.push(number);
            }
            self.bytes.entry(number).or_insert_with(|| {
                let answer = fetch(server, &resolved(path, &segment.uri), None);
                assert_eq!(answer.status, 200, "{number}: {}", answer.head);
                answer.body
            });
        }
    }
}

#[track_caller]
fn assert_dynamic(mpd: &MPD) {
    assert_eq!(mpd.mpdtype.as_deref(), Some("dynamic"));
    assert!(mpd.availabilityStartTime.is_some() && mpd.publishTime.is_some(), "{mpd:?}");
    assert_eq!(mpd.UTCTiming.len(), 1);
    let depth_s = mpd.timeShiftBufferDepth.expect("a depth").as_secs_f64();
    assert!((8.0..20.0).contains(&depth_s), "six segments of 2 s are listed: {depth_s}");
}

#[test]
fn each_programme_of_a_channel_is_a_period_with_the_samples_of_its_segments() {
    let test = "channel_dash::each_programme_of_a_channel_is_a_period_with_the_samples_of_its_\
                segments";
    let Some(server) = serve(test) else { return };
    let early = fetch(&server, MANIFEST, None);
    assert!([200, 503].contains(&early.status), "{}", early.head);
    let first = begun(&server, MANIFEST);
    assert_eq!(first.status, 200, "{}", first.text());
    let master = fetch(&server, "/channel/news/master.m3u8", None).text();
    let uri = master.lines().find(|line| !line.starts_with('#')).expect("an address");
    let playlist = resolved(MANIFEST, uri);
    let mut player = Follower { path: MANIFEST.to_owned(), ..Follower::default() };
    let mut segments = Segments::default();
    let mpd = await_ok(|| {
        let mpd = player.load(&server);
        assert_dynamic(&mpd);
        segments.load(&server, &playlist);
        // A player continues at the address that the description names.
        player.path = resolved(MANIFEST, &mpd.locations[0].url);
        match segments.breaks.len() {
            0..2 => Err(format!("{} segments", segments.bytes.len())),
            _ if player.streams.len() < 6 => Err(format!("{} streams", player.streams.len())),
            _ => Ok(mpd),
        }
    });
    let [.., second] = &mpd.periods[..] else { panic!("{mpd:?}") };
    let start_s = second.start.expect("a start").as_secs_f64();
    assert_samples(&player, &segments);
    for (path, status) in [
        (player.path.replace('~', "~1"), 410),
        (resolved(&player.path, &format!("{}/live/1-0.mp4", own(&player.path))), 200),
        (resolved(&player.path, &format!("{}/live/9-0.mp4", own(&player.path))), 404),
        (resolved(&player.path, &format!("{}/live/1-0-7.m4s", own(&player.path))), 404),
    ] {
        let answer = fetch(&server, &path, None);
        assert_eq!(answer.status, status, "{path}: {} {start_s}", answer.text());
    }
    let refused = begun(&server, "/channel/old/manifest.mpd");
    assert_eq!(refused.status, 404, "{}", refused.head);
    assert!(refused.text().contains("H.264, H.265"), "{}", refused.text());
    server.stop();
}

/// Returns the folder of a description's media.
fn own(path: &str) -> &str {
    path.rsplit('/').next().and_then(|name| name.strip_suffix(".mpd")).expect("an identity")
}

/// Asserts that the fragments of a finished period are the samples of its segments, and that sizes
/// and sounds are those of its programme.
#[track_caller]
fn assert_samples(player: &Follower, segments: &Segments) {
    let folder = tempfile::tempdir().expect("a folder");
    let [first, second] = segments.breaks[..2] else { panic!("two programmes begin") };
    let sounds = |period: usize| {
        let name = period.to_string();
        player.streams.keys().filter(|(of, id)| *of == name && id != "1").count()
    };
    let mut all = [sounds(first), sounds(second)];
    all.sort_unstable();
    assert_eq!(all, [1, 2], "the files have one sound and two: {:?}", player.streams.keys());
    let own: Vec<&[u8]> = segments.bytes.range(first..second).map(|(_, one)| &one[..]).collect();
    let whole = folder.path().join("segments.ts");
    fs::write(&whole, own.concat()).expect("written");
    for ((_, id), followed) in player.streams.iter().filter(|((of, _), _)| *of == first.to_string())
    {
        for pair in followed.fragments.windows(2) {
            assert_eq!(pair[0].decode + pair[0].duration, pair[1].decode, "stream {id}");
        }
        assert_eq!(followed.fragments.len(), own.len(), "stream {id}");
        let joined = folder.path().join(format!("{id}.mp4"));
        fs::write(&joined, &followed.bytes).expect("written");
        if id == "1" {
            let frames = |path| digests(path, &["-map", "0:v", "-fps_mode", "passthrough"]);
            let (found, expected) = (frames(&joined), frames(&whole));
            assert!(expected.len() > 120 && found == expected, "{}", found.len());
            continue;
        }
        let sound: usize = id.parse().expect("a number");
        let map = format!("0:a:{}", sound - 2);
        let found = digests(&joined, &["-map", "0:a", "-c", "copy"]);
        let expected = digests(&whole, &["-map", &map, "-c", "copy", "-bsf:a", "aac_adtstoasc"]);
        // Sound before the first picture is left out.
        let before = expected.iter().position(|one| *one == found[0]).expect("the first");
        assert!(before < 10 && expected[before..] == found[..], "{before} {}", found.len());
    }
}

mod clients {
    use std::time::Duration;

    use super::*;
    use crate::channel;
    use crate::harness::browser::Browser;
    use crate::live_dash::{DashReport, LIBRARY, PAGE, SCRIPT};
    use crate::page_server::{PageServer, Served};
    use crate::tool;

    /// Longer than a file.
    const PLAYED_S: usize = 14;

    #[test]
    fn dash_js_plays_a_channel_over_a_change_of_programme() {
        let test = "channel_dash::clients::dash_js_plays_a_channel_over_a_change_of_programme";
        let Some(dash_js) = tool(test, LIBRARY) else { return };
        let Some(server) = channel::serve(test, &["--allow-origin", "*"]) else { return };
        assert_eq!(begun(&server, MANIFEST).status, 200);
        let page = tempfile::tempdir().expect("a folder");
        for (name, text) in [("live_dash.html", PAGE), ("live_dash.js", SCRIPT)] {
            fs::write(page.path().join(name), text).expect("written");
        }
        let (library, folder) = (Some(("dash.js", dash_js)), Some(page.path().to_owned()));
        let pages = PageServer::start(Served { library, folder, ..Served::default() });
        let url = server.http_url(MANIFEST.trim_start_matches('/'));
        let plan = serde_json::json!({"url": url, "seconds": PLAYED_S, "end_s": 0});
        let escape = |byte: u8| format!("%{byte:02X}");
        let plan: String = plan.to_string().bytes().map(escape).collect();
        let address = format!("{}#{plan}", pages.url("live_dash.html"));
        let Some(browser) = Browser::open(test, &address, &[]) else { return };
        let report = pages.report(Duration::from_secs(PLAYED_S as u64 + 90));
        drop(browser);
        server.stop();
        let report: DashReport =
            serde_json::from_slice(&report.expect("a report in time")).expect("JSON");
        let (Some(first), Some(last)) = (report.samples.first(), report.samples.last()) else {
            panic!("{report:?}")
        };
        eprintln!("{test}: {first:?} {last:?} {:?}", report.errors);
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        assert!([320, 426].contains(&report.width), "{}", report.width);
        // The files last 9 s and 7 s: every 10 s contain a change of programme.
        let played_s = last.time_s - first.time_s;
        assert!(played_s > 10.0 && last.frames > first.frames + 200, "{played_s} {report:?}");
    }
}
