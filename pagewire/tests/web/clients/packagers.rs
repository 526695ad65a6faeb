// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same file by independent packagers: ffmpeg and Shaka Packager write HLS and DASH of the
//! clip, and ffmpeg decodes theirs and ours to the same frames at the same times.
//!
//! Sound begins with a frame before zero that an edit list of the file cuts away; segments carry
//! it, with all packagers.
//!
//! Sources: ffmpeg-formats(1) (hls, dash, framemd5); Shaka Packager's documentation.
//! Does not compare bytes: boxes are laid out otherwise by each.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use m3u8_rs::parse_media_playlist_res;

use crate::clips::{Clip, FRAMES_PER_SECOND, LIMIT, SECONDS, clip, ffmpeg, serve};
use crate::harness::watchdog;
use crate::site::{manifest, playlists};
use crate::tool;

/// A decoded frame: time since the first of its stream, in units of the stream, and MD5.
type Frame = (i64, String);

/// The frames of an address or file: of pictures, and of sound.
#[derive(Debug, PartialEq)]
struct Decoded {
    pictures: Vec<Frame>,
    sound: Vec<Frame>,
    /// Seconds from the first frame of sound to the first picture.
    sound_leads_s: f64,
}

fn decoded(source: &str) -> Decoded {
    let mut command = ffmpeg();
    command.args(["-copyts", "-i", source, "-map", "0:v:0", "-map", "0:a:0"]);
    command.args(["-f", "framemd5", "-"]);
    let output = watchdog::run(&mut command, LIMIT).expect("ffmpeg made the clip").succeeded();
    let text = String::from_utf8(output).expect("text");
    let of = |stream: &str| {
        let lines = text.lines().filter(|line| line.starts_with(stream));
        let fields = lines.map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
        let frames = fields.map(|fields| (fields[2].parse().expect("a time"), fields[5].into()));
        let frames: Vec<Frame> = frames.collect();
        let first = frames.first().unwrap_or_else(|| panic!("{source}: no frame of {stream}")).0;
        (first, frames.into_iter().map(|(time, hash)| (time - first, hash)).collect())
    };
    let ((picture, pictures), (tone, sound)) = (of("0,"), of("1,"));
    let sound_leads_s = picture as f64 / FRAMES_PER_SECOND - tone as f64 / 48_000.0;
    Decoded { pictures, sound, sound_leads_s }
}

/// HLS and DASH of a packager.
pub(crate) struct Packaged {
    name: &'static str,
    master: String,
    media: String,
    mpd: String,
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("a path in UTF-8").to_owned()
}

fn by_ffmpeg(film: &Path, folder: &Path) -> Packaged {
    let (master, mpd) = (path(folder, "ffmpeg.m3u8"), path(folder, "ffmpeg.mpd"));
    let hls: &[&str] = &["-f", "hls", "-hls_segment_type", "fmp4", "-hls_time", "6"];
    let hls = [hls, &["-hls_playlist_type", "vod", &master]].concat();
    let dash = ["-f", "dash", "-seg_duration", "6", &mpd];
    for options in [&hls[..], &dash] {
        let mut command = ffmpeg();
        command.current_dir(folder).arg("-i").arg(film).args(["-c", "copy"]).args(options);
        watchdog::run(&mut command, LIMIT).expect("ffmpeg made the clip").succeeded();
    }
    Packaged { name: "ffmpeg", media: master.clone(), master, mpd }
}

/// HLS and DASH by Shaka Packager, with further options: `shaka.m3u8`, `shaka.mpd`.
pub(crate) fn by_shaka(
    test: &str,
    film: &Path,
    folder: &Path,
    options: &[&str],
) -> Option<Packaged> {
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let program = format!("node_modules/shaka-packager/bin/packager-linux-{machine}");
    let mut command = Command::new(tool(test, &program)?);
    for stream in ["video", "audio"] {
        command.arg(format!(
            "in={},stream={stream},init_segment={stream}/init.mp4,\
             segment_template={stream}/$Number$.m4s,playlist_name={stream}.m3u8",
            film.display()
        ));
    }
    let (master, mpd) = (path(folder, "shaka.m3u8"), path(folder, "shaka.mpd"));
    command.args(["--segment_duration", "6", "--generate_static_live_mpd"]);
    command.args(["--hls_master_playlist_output", &master, "--mpd_output", &mpd]);
    command.args(options);
    watchdog::run(command.current_dir(folder), LIMIT).expect("it is there").succeeded();
    Some(Packaged { name: "Shaka Packager", media: path(folder, "video.m3u8"), master, mpd })
}

#[test]
fn frames_and_durations_are_those_of_two_packagers() {
    let test = "clients::packagers::frames_and_durations_are_those_of_two_packagers";
    let Some(film) = clip(test, Clip::Mp4) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let Some(server) = serve(test) else { return };
    let url = |name: &str| server.http_url(&format!("{}/{name}", Clip::Mp4.name()));
    let ours = decoded(&url("master.m3u8"));
    let frames = (SECONDS * FRAMES_PER_SECOND) as usize;
    assert_eq!(ours.pictures.len(), frames);
    assert!(ours.sound.len() >= (SECONDS * 48_000.0 / 1024.0) as usize, "{}", ours.sound.len());
    assert_same("DASH of pagewire", &decoded(&url("manifest.mpd")), &ours);
    // Nothing is lost against the file itself, whose first frame of sound is cut away.
    let whole = decoded(film.to_str().expect("a path in UTF-8"));
    assert!(whole.pictures == ours.pictures, "the pictures of the file");
    let hashes = |frames: &[Frame]| -> Vec<String> {
        frames.iter().rev().map(|(_, hash)| hash.clone()).take(frames.len() - 1).collect()
    };
    let (file, sent) = (hashes(&whole.sound), hashes(&ours.sound));
    assert_eq!(file, sent[..file.len()], "the sound of the file, from its end");

    let all = playlists(&server, Clip::Mp4);
    let own = (hls_seconds(&all[1].text), mpd_seconds(&manifest(&server, Clip::Mp4).0));
    let shaka = by_shaka(test, &film, folder.path(), &[]);
    for packaged in [Some(by_ffmpeg(&film, folder.path())), shaka].into_iter().flatten() {
        let read = |path: &str| fs::read_to_string(path).expect("a packager wrote it");
        let theirs = (hls_seconds(&read(&packaged.media)), mpd_seconds(&read(&packaged.mpd)));
        let (hls, dash) = (own.0 - theirs.0, own.1 - theirs.1);
        assert!(hls.abs() < 0.03 && dash.abs() < 0.06, "{}: {own:?} {theirs:?}", packaged.name);
        for source in [&packaged.master, &packaged.mpd] {
            assert_same(packaged.name, &decoded(source), &ours);
        }
    }
    server.stop();
}

#[track_caller]
fn assert_same(name: &str, theirs: &Decoded, ours: &Decoded) {
    for (kind, theirs, ours) in
        [("pictures", &theirs.pictures, &ours.pictures), ("sound", &theirs.sound, &ours.sound)]
    {
        let same = theirs.iter().zip(ours).take_while(|(a, b)| a == b).count();
        let counts = (theirs.len(), ours.len());
        assert!(theirs == ours, "{name}: {kind}: {counts:?} frames, {same} the same");
    }
    // Pictures have times in whole frames.
    let apart = theirs.sound_leads_s - ours.sound_leads_s;
    assert!(apart.abs() < 1.0 / FRAMES_PER_SECOND, "{name}: {apart}");
}

/// Seconds of a media playlist.
fn hls_seconds(text: &str) -> f64 {
    let read = parse_media_playlist_res(text.as_bytes()).expect("a playlist");
    read.segments.iter().map(|segment| f64::from(segment.duration)).sum()
}

/// Seconds of a description.
fn mpd_seconds(text: &str) -> f64 {
    let mpd = dash_mpd_core::parse(text).expect("a description");
    mpd.mediaPresentationDuration.map_or(0.0, |duration: Duration| duration.as_secs_f64())
}
