// SPDX-License-Identifier: MIT OR Apache-2.0
//! Web players in Chromium: each plays, seeks forward and back, and plays to the end; it also
//! switches between two sounds, and between pictures of two sizes.
//!
//! Judged by the media element's own time, its decoded frames, its buffer, and the audible pitch;
//! late pictures are caused by a busy host and not judged. Clear keys are tried with content that
//! Shaka Packager has enciphered, so that a failure is not caused by a missing key system of the
//! browser. Does not compare pictures ([`super::packagers`] does).

use std::fs;

use super::packagers::by_shaka;
use crate::clips::{Clip, FRAMES_PER_SECOND, PITCHES_HZ, SECONDS, clip, serve};
use crate::playing::{Play, Player, Report, State, Step, StepReport, played};

/// A second, a seek into the last segment, a second, a seek back into the first and over a cut, and
/// the rest of the film from the last seconds on.
pub(crate) const WALK: &[Step] = &[
    Step::Play { seconds: 1.5 },
    Step::Seek { seconds: 13.1 },
    Step::Play { seconds: 1.0 },
    Step::Seek { seconds: 3.3 },
    Step::Play { seconds: 4.0 },
    Step::Seek { seconds: 14.5 },
    Step::End,
];

/// The other sound, a seek, and the first sound again. Players continue for a moment with their
/// buffer.
const SOUNDS: &[Step] = &[
    Step::Play { seconds: 1.5 },
    Step::Sound { index: 1 },
    Step::Play { seconds: 3.0 },
    Step::Seek { seconds: 11.2 },
    Step::Play { seconds: 1.0 },
    Step::Sound { index: 0 },
    Step::Play { seconds: 3.0 },
];

/// The other pictures, a seek, and the first pictures again.
pub(crate) const PICTURES: &[Step] = &[
    Step::Play { seconds: 1.0 },
    Step::Picture { size: "160x90" },
    Step::Play { seconds: 2.0 },
    Step::Seek { seconds: 10.1 },
    Step::Play { seconds: 1.0 },
    Step::Picture { size: "320x180" },
    Step::Play { seconds: 2.0 },
];

/// Asserts all steps: times, frames and buffer. The end may be `late_s` later.
#[track_caller]
pub(crate) fn assert_walk(report: &Report, steps: &[Step], late_s: f64) {
    let (mut sound, mut size) = (0, None);
    for (step, about) in steps.iter().zip(&report.steps) {
        let details = || format!("{step:?}: {about:#?}\n{:?}", report.errors);
        let after = &about.after;
        match *step {
            Step::Play { seconds } => {
                let played = about.after.time_s - about.before.time_s;
                let expected = seconds - ROUNDING_S..seconds + LATE_STEP_S;
                assert!(expected.contains(&played), "{}", details());
                assert_played(about, &details);
                let pitch = after.pitch_hz.expect("a sound is heard");
                assert!((pitch - PITCHES_HZ[sound]).abs() < PITCH_HZ, "{}", details());
                assert!(report.stalled_s(about) < STALL_S, "{}", details());
            }
            Step::Seek { seconds } => {
                assert!((after.time_s - seconds).abs() < ROUNDING_S, "{}", details());
                let shown = after.shown_s.expect("a frame was composed");
                let since = seconds - 1.0 / FRAMES_PER_SECOND - ROUNDING_S;
                assert!((since..seconds + ROUNDING_S).contains(&shown), "{}", details());
                assert!(after.has(seconds, seconds + 0.1), "{}", details());
            }
            Step::Sound { index } => sound = index,
            Step::Picture { size: chosen } => size = Some(chosen),
            Step::Text {} => {}
            Step::End => {
                let duration = after.duration_s.expect("it ends");
                assert!(after.ended && (duration - SECONDS).abs() < late_s, "{}", details());
                assert!((after.time_s - duration).abs() < END_S, "{}", details());
                assert_played(about, &details);
            }
        }
        let shown = format!("{}x{}", after.width, after.height);
        let sizes = size.map_or(SIZES.to_vec(), |size| vec![size]);
        assert!(sizes.contains(&shown.as_str()), "{}", details());
    }
    // hls.js reports this error when a busy host decodes too late.
    let is_fault = |error: &&String| !error.starts_with("bufferStalledError");
    assert_eq!(report.errors.iter().find(is_fault), None, "{:?}", report.errors);
}

/// Asserts frames and buffer of a time that was played.
#[track_caller]
fn assert_played(about: &StepReport, details: &dyn Fn() -> String) {
    let (before, after): (&State, &State) = (&about.before, &about.after);
    // Frames are decoded ahead; late ones are not counted at once, and a busy host leaves some out.
    let frames = f64::from(after.frames - before.frames);
    let until = after.time_s.min(SECONDS);
    let expected = (until - before.time_s) * FRAMES_PER_SECOND;
    assert!(frames > expected / 2.0 && frames < expected + AHEAD_FRAMES, "{}", details());
    assert!(after.sound_bytes > before.sound_bytes, "{}", details());
    // Media already played may have been dropped from the buffer; the current media may not.
    assert!(after.has(until - 0.5, until), "{}", details());
}

/// Plays a clip by the address of its playlist or description.
#[track_caller]
fn plays(test: &str, player: Player, clip: Clip, steps: &[Step]) {
    let Some(server) = serve(test) else { return };
    let is_dash = matches!(player, Player::DashJs | Player::Shaka);
    let below = if is_dash { "manifest.mpd" } else { "master.m3u8" };
    let url = server.http_url(&format!("{}/{below}", clip.name()));
    let play = Play { url: &url, steps, ..Play::default() };
    let Some(report) = played(test, player, &play) else { return };
    // Chromium lets a segment begin with its earliest sound, which in a transport stream lies
    // behind the pictures it belongs to: after a seek all times are later by that difference.
    let is_late = player == Player::Native && clip == Clip::Ts;
    assert_walk(&report, steps, if is_late { LATE_S } else { END_S });
    if clip == Clip::TwoSounds {
        assert_eq!(report.sounds, ["de", "fr"], "{report:?}");
    }
    if player != Player::Native && clip != Clip::Ts {
        let mut pictures = report.pictures.clone();
        pictures.sort_unstable_by_key(|size| std::cmp::Reverse(size.clone()));
        assert_eq!(pictures, SIZES[..clip.pictures()], "{report:?}");
    }
    server.stop();
}

#[test]
fn hls_js_plays_mp4() {
    plays("clients::browsers::hls_js_plays_mp4", Player::HlsJs, Clip::Mp4, WALK);
}

#[test]
fn hls_js_plays_ts() {
    plays("clients::browsers::hls_js_plays_ts", Player::HlsJs, Clip::Ts, WALK);
}

#[test]
fn hls_js_changes_sounds() {
    plays("clients::browsers::hls_js_changes_sounds", Player::HlsJs, Clip::TwoSounds, SOUNDS);
}

#[test]
fn hls_js_changes_pictures() {
    plays("clients::browsers::hls_js_changes_pictures", Player::HlsJs, Clip::Renditions, PICTURES);
}

#[test]
fn chromium_plays_mp4() {
    plays("clients::browsers::chromium_plays_mp4", Player::Native, Clip::Mp4, WALK);
}

#[test]
fn chromium_plays_ts() {
    plays("clients::browsers::chromium_plays_ts", Player::Native, Clip::Ts, WALK);
}

#[test]
fn dash_js_plays_mp4() {
    plays("clients::browsers::dash_js_plays_mp4", Player::DashJs, Clip::Mp4, WALK);
}

#[test]
fn dash_js_plays_ts() {
    plays("clients::browsers::dash_js_plays_ts", Player::DashJs, Clip::Ts, WALK);
}

#[test]
fn dash_js_changes_sounds() {
    plays("clients::browsers::dash_js_changes_sounds", Player::DashJs, Clip::TwoSounds, SOUNDS);
}

#[test]
fn dash_js_changes_pictures() {
    plays(
        "clients::browsers::dash_js_changes_pictures",
        Player::DashJs,
        Clip::Renditions,
        PICTURES,
    );
}

#[test]
fn shaka_player_plays_mp4() {
    plays("clients::browsers::shaka_player_plays_mp4", Player::Shaka, Clip::Mp4, WALK);
}

#[test]
fn shaka_player_plays_ts() {
    plays("clients::browsers::shaka_player_plays_ts", Player::Shaka, Clip::Ts, WALK);
}

#[test]
fn shaka_player_changes_sounds() {
    plays("clients::browsers::shaka_player_changes_sounds", Player::Shaka, Clip::TwoSounds, SOUNDS);
}

#[test]
fn shaka_player_changes_pictures() {
    plays(
        "clients::browsers::shaka_player_changes_pictures",
        Player::Shaka,
        Clip::Renditions,
        PICTURES,
    );
}

/// The page plays content enciphered with cbcs, with a clear key, by each library.
#[test]
fn clear_keys_open_what_shaka_packager_enciphers() {
    let test = "clients::browsers::clear_keys_open_what_shaka_packager_enciphers";
    let Some(film) = clip(test, Clip::Mp4) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let keys = format!("label=:key_id={}:key={}", CLEAR_KEY[0].0, CLEAR_KEY[1].0);
    let options = ["--enable_raw_key_encryption", "--keys", &keys, "--protection_scheme", "cbcs"];
    let options = [&options[..], &["--clear_lead", "0", "--protection_systems", "common"]].concat();
    if by_shaka(test, &film, folder.path(), &options).is_none() {
        return;
    }
    // hls.js requests a licence where the format of a key is that of the key system.
    for name in ["video.m3u8", "audio.m3u8"] {
        let path = folder.path().join(name);
        let text = fs::read_to_string(&path).expect("it was packaged");
        let replaced = text.replace("KEYFORMAT=\"identity\"", "KEYFORMAT=\"org.w3.clearkey\"");
        assert_ne!(replaced, text);
        fs::write(path, replaced).expect("written");
    }
    let steps = &WALK[..3];
    let clear_key = Some([CLEAR_KEY[0].1, CLEAR_KEY[1].1]);
    for (player, url) in
        [(Player::HlsJs, "shaka.m3u8"), (Player::DashJs, "shaka.mpd"), (Player::Shaka, "shaka.mpd")]
    {
        let folder = Some(folder.path().to_owned());
        let play = Play { url, steps, folder, clear_key, ..Play::default() };
        let Some(report) = played(test, player, &play) else { return };
        assert_walk(&report, steps, END_S);
    }
}

/// Identifier and key, in hexadecimal digits and in base64url.
const CLEAR_KEY: [(&str, &str); 2] = [
    ("abba271e8bcf552bbd2e86a434a9a5d9", "q7onHovPVSu9LoakNKml2Q"),
    ("00112233445566778899aabbccddeeff", "ABEiM0RVZneImaq7zN3u_w"),
];

/// Sizes of pictures, the larger first.
const SIZES: [&str; 2] = ["320x180", "160x90"];
/// Of the times in a container of 90,000 ticks, and of the element.
const ROUNDING_S: f64 = 0.002;
/// Sound may last some frames longer than pictures.
pub(crate) const END_S: f64 = 0.15;
pub(crate) const LATE_S: f64 = 0.5;
/// Twice the width of a line of the spectrum.
const PITCH_HZ: f64 = 12.0;
/// Delay that a busy host may cause; a hole in the media causes a longer one, or a permanent one.
const STALL_S: f64 = 5.0;
const LATE_STEP_S: f64 = 3.0;
/// Frames that a player decodes ahead.
const AHEAD_FRAMES: f64 = 10.0;
