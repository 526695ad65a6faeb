// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording in progress as DASH: its description followed to the end, every fragment of it
//! fetched and decoded, and dash.js in Chromium without a stall, to the end.
//!
//! Sources: ISO/IEC 23009-1 §5.3.1, §5.3.9.6 (dynamic descriptions, timelines).
//! Does not make segments of HLS ([`crate::live_playlists`] does).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dash_mpd_core::{MPD, SegmentTemplate};
use serde::Deserialize;

use crate::clips::{LIMIT, ffmpeg};
use crate::fragments::{TrackFragment, timescales, track_fragments};
use crate::harness::answer::{Answer, get_in_turn};
use crate::harness::browser::Browser;
use crate::harness::watchdog;
use crate::harness::{Server, await_ok, await_true};
use crate::live::{Film, LiveScene};
use crate::live_playlists::Recording;
use crate::mpd_schema::faults;
use crate::page_server::{PageServer, Served};
use crate::site::{fetch, resolved};
use crate::tool;

/// A player that loads the description repeatedly, and everything that it lists.
#[derive(Default)]
pub(crate) struct Follower {
    pub(crate) path: String,
    /// By period and representation.
    pub(crate) streams: BTreeMap<(String, String), Followed>,
}

#[derive(Default)]
pub(crate) struct Followed {
    /// The initialization section, followed by all fragments.
    pub(crate) bytes: Vec<u8>,
    pub(crate) fragments: Vec<TrackFragment>,
    pub(crate) timescale: u32,
}

impl Follower {
    /// Loads the description and its new fragments.
    #[track_caller]
    pub(crate) fn load(&mut self, server: &Server) -> MPD {
        let (text, mpd) = description(server, &self.path);
        for period in &mpd.periods {
            let number = period.id.clone().expect("an identifier");
            for set in &period.adaptations {
                let [one] = &set.representations[..] else { panic!("{text}") };
                let template = one.SegmentTemplate.as_ref().expect("a template");
                let id = (number.clone(), one.id.clone().expect("an identifier"));
                self.streams.entry(id).or_default().load(server, &self.path, template);
            }
        }
        mpd
    }

    /// Loads until it is complete; returns the last description.
    #[track_caller]
    pub(crate) fn load_to_the_end(&mut self, server: &Server) -> MPD {
        await_ok(|| {
            let mpd = self.load(server);
            let is_whole = mpd.mpdtype.as_deref() == Some("static");
            if is_whole { Ok(mpd) } else { Err(format!("{mpd:?}")) }
        })
    }

    /// Returns the number of fragments of pictures in the first period.
    pub(crate) fn pictures(&self) -> usize {
        self.streams[&("0".to_owned(), "1".to_owned())].fragments.len()
    }
}

impl Followed {
    /// Returns the number of frames that ffmpeg decodes.
    fn frames(&self) -> usize {
        let folder = tempfile::tempdir().expect("a folder");
        let joined = folder.path().join("joined.mp4");
        fs::write(&joined, &self.bytes).expect("written");
        digests(&joined, &["-fps_mode", "passthrough"]).len()
    }

    fn load(&mut self, server: &Server, path: &str, template: &SegmentTemplate) {
        if self.bytes.is_empty() {
            let init = template.initialization.as_ref().expect("an initialization section");
            let init = media(server, &resolved(path, init));
            self.timescale = *timescales(&init.body).values().next().expect("a track");
            assert_eq!(template.timescale, Some(self.timescale.into()));
            self.bytes = init.body;
        }
        let timeline = template.SegmentTimeline.as_ref().expect("a timeline");
        let address = template.media.as_ref().expect("a template of segments");
        let mut time = 0;
        for entry in &timeline.segments {
            time = entry.t.unwrap_or(time);
            for _ in 0..=entry.r.unwrap_or(0) {
                let end = time + entry.d;
                // Fragments that have left the list are already known.
                let known = self.fragments.iter().position(|one| one.start == time);
                let number = known.unwrap_or(self.fragments.len());
                if known.is_none() {
                    let numbered =
                        (template.startNumber.unwrap_or(0) as usize + number).to_string();
                    let address = address.replace("$Time$", &time.to_string());
                    let path = resolved(path, &address.replace("$Number$", &numbered));
                    let answer = media(server, &path);
                    let track = track_fragments(&answer.body).into_values().next();
                    self.fragments.push(track.expect("a track"));
                    self.bytes.extend(answer.body);
                }
                let known = self.fragments[number];
                assert_eq!((known.start, known.end), (time, end), "{number}: {known:?}");
                time = end;
            }
        }
    }
}

/// Returns an existing, valid description.
#[track_caller]
pub(crate) fn description(server: &Server, path: &str) -> (String, MPD) {
    let answer = get_in_turn(server.http, path);
    assert_eq!(answer.status, 200, "{path}: {} {}", answer.head, answer.text());
    assert_eq!(answer.header("Content-Type"), Some("application/dash+xml"));
    assert_eq!(answer.header("Cache-Control"), Some("no-cache"));
    let text = answer.text();
    assert_eq!(faults(&text), [""; 0], "{text}");
    let mpd = dash_mpd_core::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(dash_mpd_core::check_conformity(&mpd), [""; 0], "{text}");
    (text, mpd)
}

/// Returns a fragment or initialization section, which never changes.
#[track_caller]
fn media(server: &Server, path: &str) -> Answer {
    let answer = fetch(server, path, None);
    assert_eq!(answer.status, 200, "{path}: {}", answer.head);
    assert!(answer.header("Cache-Control").expect("a field").contains("immutable"));
    assert_eq!(answer.header("Content-Type"), Some("video/mp4"));
    let part = fetch(server, path, Some((10, 90)));
    assert_eq!((part.status, &part.body[..]), (206, &answer.body[10..100]), "{path}");
    answer
}

/// Returns digests of the frames or packets of the only matching stream of a file.
pub(crate) fn digests(path: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = ffmpeg();
    command.args(["-v", "error"]).arg("-i").arg(path).args(arguments);
    let outcome = watchdog::run(command.args(["-f", "framemd5", "-"]), LIMIT);
    let outcome = outcome.unwrap_or_else(|reason| panic!("{reason}"));
    assert!(outcome.stderr.is_empty(), "{}", outcome.stderr);
    let text = String::from_utf8(outcome.succeeded()).expect("UTF-8");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    // The fields after stream, times, duration and size.
    lines.filter_map(|line| line.split(',').nth(5)).map(|one| one.trim().to_owned()).collect()
}

#[test]
fn fragments_are_the_samples_of_the_recording_to_its_end() {
    let test = "live_dash::fragments_are_the_samples_of_the_recording_to_its_end";
    let Some(mut recording) = Recording::begin(test, 30) else { return };
    recording.send_until(13.0);
    let (mut player, mpd) = begun(&recording.server, DESCRIPTION);
    let first = player.path.clone();
    assert_dynamic(&mpd);
    let listed = || {
        let index = recording.server.index();
        let files = index["files"].as_array().expect("a list").clone();
        files.into_iter().find(|one| one["name"] == "0.ts").map(|one| one["dash"].clone())
    };
    let address = recording.server.http_url("0.ts/manifest.mpd");
    await_true("its address is in the index", || listed() == Some(address.clone().into()));

    // A player continues at the address that the description names.
    let location = &mpd.locations[0].url;
    let followed = resolved(&first, location);
    let mut listed = player.pictures();
    player.path = followed;
    for seconds in [17.0, 21.0, 25.0, 30.0] {
        recording.send_until(seconds);
        listed = await_ok(|| {
            assert_dynamic(&player.load(&recording.server));
            let now = player.pictures();
            let found = || format!("nothing new behind {listed} at {seconds} s");
            if now > listed { Ok(now) } else { Err(found()) }
        });
    }
    let last = player.streams.first_key_value().expect("pictures").1.fragments[listed - 1];
    let early = last.end;
    let early = resolved(&player.path, &format!("live/1-0-{early}.m4s"));
    let early = fetch(&recording.server, &early, None);
    assert_eq!(early.status, 404, "{}", early.head);

    let Recording { recorder, server, place, .. } = recording;
    recorder.stop().well();
    let last = player.load_to_the_end(&server);
    let lasts = last.mediaPresentationDuration.expect("it has an end").as_secs_f64();
    // A player that stays at the first address gets the same, for a while.
    let (same, _) = description(&server, &first);
    assert!(same.contains("live/") && same.contains("static"), "{same}");
    assert_is_the_file(&player, &place.folder().join("0.ts"), lasts);
    server.stop();
}

/// Returns a player of a recording as soon as that has a description.
#[track_caller]
pub(crate) fn begun(server: &Server, path: &str) -> (Follower, MPD) {
    await_ok(|| {
        let answer = fetch(server, path, None);
        if answer.status == 200 { Ok(()) } else { Err(answer.text()) }
    });
    let mut player = Follower { path: path.to_owned(), ..Follower::default() };
    let mpd = player.load(server);
    (player, mpd)
}

#[test]
fn a_source_that_begins_anew_begins_a_period() {
    let test = "live_dash::a_source_that_begins_anew_begins_a_period";
    let Some(mut recording) = Recording::begin(test, 14) else { return };
    recording.send_until(13.0);
    let (mut player, mpd) = begun(&recording.server, DESCRIPTION);
    player.path = resolved(&player.path, &mpd.locations[0].url);
    recording.begin_anew();
    recording.send_until(13.0);
    let Recording { recorder, server, .. } = recording;
    recorder.stop().well();
    let mpd = player.load_to_the_end(&server);
    let [_, second] = &mpd.periods[..] else { panic!("{mpd:?}") };
    let start_s = second.start.expect("a start").as_secs_f64();
    assert!((11.0..14.0).contains(&start_s), "{start_s}");
    assert_eq!(player.streams.len(), 4);
    for ((period, id), followed) in &player.streams {
        let first = followed.fragments[0].start as f64 / f64::from(followed.timescale);
        let expected = ORIGIN_S + if period == "0" { 0.0 } else { start_s };
        assert!((first - expected).abs() < 0.05, "{period} {id}: {first} {expected}");
        let frames = followed.frames();
        let expected = if id == "1" { 290 } else { 540 };
        assert!(frames >= expected, "{period} {id}: {frames}");
    }
    server.stop();
}

#[test]
fn other_codecs_begin_a_period_and_a_discontinuity() {
    let test = "live_dash::other_codecs_begin_a_period_and_a_discontinuity";
    let Some(mut recording) = Recording::begin(test, 10) else { return };
    let Some(other) = Film::of_other_codecs(test, 10, 10) else { return };
    recording.send_until(10.0);
    let (mut player, mpd) = begun(&recording.server, DESCRIPTION);
    player.path = resolved(&player.path, &mpd.locations[0].url);
    recording.go_on_with(other);
    recording.send_until(10.0);
    let text = recording.playlist_with(8).text;
    let breaks: Vec<&str> = text.split("#EXT-X-DISCONTINUITY\n").collect();
    assert_eq!(breaks.len(), 2, "{text}");
    let listed = breaks[0].matches("#EXTINF").count();
    assert!((5..=6).contains(&listed), "{text}");
    let Recording { recorder, server, .. } = recording;
    recorder.stop().well();
    let mpd = player.load_to_the_end(&server);
    let codecs = mpd.periods.iter().map(|period| {
        let sets = period.adaptations.iter().flat_map(|set| &set.representations);
        sets.map(|one| one.codecs.as_deref().unwrap_or_default()[..4].to_owned()).collect()
    });
    let codecs: Vec<Vec<String>> = codecs.collect();
    assert_eq!(codecs, [["avc1", "mp4a"], ["hvc1", "ac-3"]]);
    for ((period, id), followed) in &player.streams {
        let frames = followed.frames();
        // Out of 250 pictures, and of 469 or 312 frames of sound.
        let expected = if id == "1" { 240 } else { 290 };
        assert!(frames >= expected, "{period} {id}: {frames}");
    }
    server.stop();
}

/// The description of the file that recorders here write.
const DESCRIPTION: &str = "/0.ts/manifest.mpd";

#[track_caller]
pub(crate) fn assert_dynamic(mpd: &MPD) {
    assert_eq!(mpd.mpdtype.as_deref(), Some("dynamic"));
    assert!(mpd.availabilityStartTime.is_some() && mpd.publishTime.is_some(), "{mpd:?}");
    let seconds = |duration: Option<Duration>| duration.expect("a duration").as_secs();
    assert_eq!(seconds(mpd.minimumUpdatePeriod), 1);
    assert_eq!(seconds(mpd.suggestedPresentationDelay), 6);
    assert_eq!(seconds(mpd.timeShiftBufferDepth), 4 * 3600);
    assert_eq!(mpd.UTCTiming.len(), 1);
    let [period] = &mpd.periods[..] else { panic!("{mpd:?}") };
    assert_eq!(period.adaptations.len(), 2);
}

/// Asserts that fragments follow each other without a gap and have the samples of the file.
fn assert_is_the_file(player: &Follower, file: &Path, lasts_s: f64) {
    let folder = tempfile::tempdir().expect("a folder");
    for ((_, id), followed) in &player.streams {
        for pair in followed.fragments.windows(2) {
            assert_eq!(pair[0].decode + pair[0].duration, pair[1].decode, "stream {id}");
        }
        let last = followed.fragments.last().expect("fragments");
        let end_s = last.end as f64 / f64::from(followed.timescale) - ORIGIN_S;
        assert!((lasts_s - end_s).abs() < 0.3 && end_s < lasts_s + 0.001, "{end_s} {lasts_s}");
        let joined = folder.path().join(format!("{id}.mp4"));
        fs::write(&joined, &followed.bytes).expect("written");
        if id == "1" {
            let frames = |path| digests(path, &["-map", "0:v", "-fps_mode", "passthrough"]);
            let (found, expected) = (frames(&joined), frames(file));
            assert!(expected.len() > 700 && found == expected, "{}", found.len());
            continue;
        }
        let packets =
            |path, more: &[&str]| digests(path, &[&["-map", "0:a", "-c", "copy"], more].concat());
        let found = packets(&joined, &[]);
        let expected = packets(file, &["-bsf:a", "aac_adtstoasc"]);
        // Sound before the first picture is left out, and half a frame at the end.
        let before = expected.iter().position(|one| *one == found[0]).expect("the first");
        let (first, own) = (before + found.len(), &expected[before..]);
        assert!(before < 10 && first + 1 >= expected.len(), "{first} {before}");
        assert!(own.starts_with(&found), "{} {before}", found.len());
        assert!(digests(&joined, &[]).len() >= found.len(), "they are decoded");
    }
}

/// State of the player at one moment.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DashSample {
    pub(crate) wall_s: f64,
    pub(crate) time_s: f64,
    latency_s: f64,
    ahead_s: f64,
    pub(crate) frames: u32,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DashReport {
    pub(crate) samples: Vec<DashSample>,
    pub(crate) errors: Vec<String>,
    pub(crate) width: u32,
    ended: bool,
    time_s: f64,
    duration_s: f64,
}

/// Figures of a run.
#[derive(Debug)]
#[allow(dead_code, reason = "they are printed")]
struct DashFigures {
    behind_min_s: f64,
    behind_max_s: f64,
    /// The same by dash.js, from the start of availability on.
    latency_max_s: f64,
    stalled_s: f64,
    ahead_min_s: f64,
    frames: u32,
}

fn figures(samples: &[DashSample], began_s: f64) -> Option<DashFigures> {
    let fold = |of: &dyn Fn(&DashSample) -> f64, best: fn(f64, f64) -> f64| {
        samples.iter().map(of).reduce(best)
    };
    let behind = |sample: &DashSample| sample.wall_s - began_s - sample.time_s;
    let (first, last) = (samples.first()?, samples.last()?);
    let (mut since, mut at, mut stalled_s) = (first.wall_s, first.time_s, 0.0);
    for sample in samples {
        if sample.time_s > at {
            (since, at) = (sample.wall_s, sample.time_s);
        }
        stalled_s = f64::max(stalled_s, sample.wall_s - since);
    }
    Some(DashFigures {
        behind_min_s: fold(&behind, f64::min)?,
        behind_max_s: fold(&behind, f64::max)?,
        latency_max_s: fold(&|sample| sample.latency_s, f64::max)?,
        stalled_s,
        ahead_min_s: fold(&|sample| sample.ahead_s, f64::min)?,
        frames: last.frames - first.frames,
    })
}

/// A recording in progress that is played.
pub(crate) struct LivePlay {
    /// Address of its description.
    pub(crate) url: String,
    /// Time at which its first picture was sent.
    pub(crate) began: SystemTime,
    /// Ends the recording; the server continues.
    pub(crate) over: Box<dyn FnOnce() -> Server>,
}

/// Plays for so long and to the end; returns `None` where a component is missing.
fn played(
    test: &str,
    play: LivePlay,
    pages: &PageServer,
) -> Option<(Option<DashFigures>, DashReport)> {
    let LivePlay { url, began, over } = play;
    let plan = serde_json::json!({"url": url, "seconds": PLAYED_S, "end_s": END_S});
    let escape = |byte: u8| format!("%{byte:02X}");
    let plan: String = plan.to_string().bytes().map(escape).collect();
    let address = format!("{}#{plan}", pages.url("live_dash.html"));
    let browser = Browser::open(test, &address, &[])?;
    let next = |limit: u64| {
        let report = pages.report(Duration::from_secs(limit)).expect("a report in time");
        serde_json::from_slice::<DashReport>(&report).expect("a report in JSON")
    };
    let began = began.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let played = next(PLAYED_S as u64 + 60);
    let figures = figures(&played.samples, began.as_secs_f64());
    let server = over();
    let ended = if played.errors.is_empty() { next(END_S + 30) } else { played };
    drop(browser);
    server.stop();
    Some((figures, ended))
}

pub(crate) const PAGE: &str = include_str!("live_dash.html");
pub(crate) const SCRIPT: &str = include_str!("live_dash.js");
pub(crate) const LIBRARY: &str = "node_modules/dashjs/dist/modern/umd/dash.all.min.js";
/// Time of the recording's beginning in fragments.
const ORIGIN_S: f64 = 10.0;
/// Time for which it plays beside its source; it then plays to the end.
pub(crate) const PLAYED_S: usize = 30;
const END_S: u64 = 60;
pub(crate) const BEFORE_AND_AFTER_S: usize = 45;
/// Three segments of 2 s, and the time a player needs to load the last.
const BEHIND_S: f64 = 10.0;
const STALL_S: f64 = 1.0;
const ATTEMPTS_MAX: usize = 3;

/// Plays recordings in dash.js, until one was played without a stall to its end.
pub(crate) fn plays_to_its_end(test: &str, begin: impl Fn() -> LivePlay) {
    let Some(dash_js) = tool(test, LIBRARY) else { return };
    let page = tempfile::tempdir().expect("a folder");
    for (name, text) in [("live_dash.html", PAGE), ("live_dash.js", SCRIPT)] {
        fs::write(page.path().join(name), text).expect("written");
    }
    for attempt in 1..=ATTEMPTS_MAX {
        let library = Some(("dash.js", dash_js.clone()));
        let folder = Some(page.path().to_owned());
        let pages = PageServer::start(Served { library, folder, ..Served::default() });
        let Some((figures, ended)) = played(test, begin(), &pages) else { return };
        eprintln!("{test}: {figures:?} {ended:?}");
        let is_good = figures.as_ref().is_some_and(|figures| {
            figures.stalled_s < STALL_S
                && (0.0..BEHIND_S).contains(&figures.behind_min_s)
                && figures.behind_max_s < BEHIND_S
                && figures.frames as usize > PLAYED_S * 20
        });
        let is_over = ended.ended
            && ended.errors.is_empty()
            && (ended.time_s - ended.duration_s).abs() < 0.1
            && ended.duration_s > PLAYED_S as f64;
        if is_good && is_over {
            assert_eq!(ended.width, 320);
            return;
        }
        // Source, recorder, server and browser share two cores with other tests.
        assert!(attempt < ATTEMPTS_MAX, "{figures:?} {ended:?}");
        eprintln!("{test}: once more, as the machine may have been busy");
    }
}

mod timed {
    use super::*;

    #[test]
    fn dash_js_plays_a_recording_without_a_stall_to_its_end() {
        let test = "live_dash::timed::dash_js_plays_a_recording_without_a_stall_to_its_end";
        let Some(film) = Film::make(test, PLAYED_S + BEFORE_AND_AFTER_S).map(Arc::new) else {
            return;
        };
        plays_to_its_end(test, || {
            let scene = LiveScene::begin(&film);
            let url = scene.url_of("manifest.mpd");
            LivePlay { url, began: scene.began, over: Box::new(|| scene.over()) }
        });
    }
}
