// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same file by independent packagers: ffmpeg and Shaka Packager write HLS and DASH of films,
//! and ffmpeg decodes their output and pagewire's to the same frames at the same times.
//!
//! The films: MP4 with B-frames, a transport stream, HEVC, two sounds, and one whose edit list cuts
//! pictures away. Sound of MP4 begins with a frame before zero that an edit list of the file cuts
//! away; segments carry it, with all packagers.
//!
//! Sources: ffmpeg-formats(1) (hls, dash, framemd5); Shaka Packager's documentation. Does not
//! compare bytes: each packager lays out boxes differently.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use m3u8_rs::parse_media_playlist_res;

use crate::clips::{Clip, FRAMES_PER_SECOND, LIMIT, SECONDS, clip, ffmpeg, serve};
use crate::harness::{Server, film, watchdog};
use crate::site::{manifest, playlists, playlists_below};
use crate::tool;

/// A decoded frame: time since the first of its stream, in units of the stream, and MD5.
type Frame = (i64, String);

/// The frames of an address or file: of pictures, and of a sound.
#[derive(Debug, PartialEq)]
struct Decoded {
    pictures: Vec<Frame>,
    sound: Vec<Frame>,
    /// Seconds from the first frame of sound to the first picture.
    sound_leads_s: f64,
}

fn decoded(source: &str) -> Decoded {
    decoded_with(source, 0)
}

/// Returns the pictures, and the sound of this number.
fn decoded_with(source: &str, sound: usize) -> Decoded {
    let mut command = ffmpeg();
    let sound = format!("0:a:{sound}");
    command.args(["-copyts", "-i", source, "-map", "0:v:0", "-map", &sound]);
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

/// Returns the MD5 of the frames of sound as they are stored.
fn packets(source: &str) -> Vec<String> {
    let mut command = ffmpeg();
    command.args(["-i", source, "-map", "0:a:0", "-c", "copy", "-f", "framemd5", "-"]);
    let output = watchdog::run(&mut command, LIMIT).expect("ffmpeg made the film").succeeded();
    let text = String::from_utf8(output).expect("text");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(',').nth(5)).map(|hash| hash.trim().to_owned()).collect()
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

/// Writes HLS and DASH by Shaka Packager, with further options: `shaka.m3u8`, `shaka.mpd`.
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
    // No frame of the file itself is lost; its first frame of sound is cut away.
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

/// Options with which ffmpeg writes the content of a transport stream as MP4.
const OF_STREAM: &[&str] = &["-tag:v", "avc1", "-tag:a", "mp4a", "-bsf:a", "aac_adtstoasc"];

/// Writes HLS and DASH by ffmpeg with all streams, HLS with the first sound alone: `-f hls` has no
/// others without a list of renditions.
fn by_ffmpeg_with(film: &Path, folder: &Path, options: &[&str]) -> Packaged {
    let (master, mpd) = (path(folder, "all.m3u8"), path(folder, "all.mpd"));
    let hls: &[&str] = &["-f", "hls", "-hls_segment_type", "fmp4", "-hls_time", "6"];
    let hls = [hls, &["-hls_playlist_type", "vod", &master]].concat();
    let dash = ["-map", "0", "-f", "dash", "-seg_duration", "6", &mpd];
    for muxer in [&hls[..], &dash] {
        let mut command = ffmpeg();
        command.current_dir(folder).arg("-i").arg(film).args(["-c", "copy"]).args(options);
        watchdog::run(command.args(muxer), LIMIT).expect("ffmpeg made the film").succeeded();
    }
    Packaged { name: "ffmpeg", media: master.clone(), master, mpd }
}

/// Writes HLS and DASH by Shaka Packager with so many sounds; returns `Err` with its message for a
/// film that it refuses.
fn by_shaka_with(
    test: &str,
    film: &Path,
    folder: &Path,
    sounds: usize,
) -> Option<Result<Packaged, String>> {
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let program = format!("node_modules/shaka-packager/bin/packager-linux-{machine}");
    let mut command = Command::new(tool(test, &program)?);
    for stream in 0..=sounds {
        let group = if stream > 0 { ",hls_group_id=sounds" } else { "" };
        command.arg(format!(
            "in={},stream={stream},init_segment=s{stream}/init.mp4,\
             segment_template=s{stream}/$Number$.m4s,playlist_name=s{stream}.m3u8,\
             hls_name=s{stream}{group}",
            film.display()
        ));
    }
    let (master, mpd) = (path(folder, "streams.m3u8"), path(folder, "streams.mpd"));
    command.args(["--segment_duration", "6", "--generate_static_live_mpd"]);
    command.args(["--hls_master_playlist_output", &master, "--mpd_output", &mpd]);
    let outcome = watchdog::run(command.current_dir(folder), LIMIT).expect("it is there");
    if !outcome.status.success() {
        return Some(Err(outcome.stderr));
    }
    let media = path(folder, "s0.m3u8");
    Some(Ok(Packaged { name: "Shaka Packager", media, master, mpd }))
}

/// Compares HLS and DASH of a film with those of both packagers.
#[track_caller]
fn assert_as_packaged(test: &str, film: &Path, sounds: usize, options: &[&str]) {
    let name = film.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::with_options(&[(name, film)], &[]);
    let url = |text: &str| server.http_url(&format!("{name}/{text}"));
    let all = playlists_below(&server, name, "");
    let pictures = all.iter().find(|one| !one.is_master() && !one.text.contains("I-FRAMES"));
    let pictures = hls_seconds(&pictures.expect("a playlist").text);
    let ours: Vec<Decoded> =
        (0..sounds).map(|sound| decoded_with(&url("master.m3u8"), sound)).collect();
    let frames = (SECONDS * FRAMES_PER_SECOND) as usize;
    for (sound, ours) in ours.iter().enumerate() {
        assert_eq!(ours.pictures.len(), frames, "{name}");
        assert!(ours.sound.len() >= (SECONDS * 48_000.0 / 1024.0) as usize, "{name} {sound}");
        assert_same("DASH of pagewire", &decoded_with(&url("manifest.mpd"), sound), ours);
    }
    assert!(ours.windows(2).all(|pair| pair[0].sound != pair[1].sound), "{name}: sounds differ");
    let shaka = by_shaka_with(test, film, folder.path(), sounds);
    let shaka = shaka.map(|packaged| packaged.unwrap_or_else(|reason| panic!("{name}: {reason}")));
    let read = |path: &str| fs::read_to_string(path).expect("a packager wrote it");
    for packaged in [Some(by_ffmpeg_with(film, folder.path(), options)), shaka] {
        let Some(packaged) = packaged else { continue };
        let (hls, dash) = (hls_seconds(&read(&packaged.media)), mpd_seconds(&read(&packaged.mpd)));
        // ffmpeg counts the delay of pictures as one more frame.
        let most = 1.01 / FRAMES_PER_SECOND;
        assert!((hls - pictures).abs() < most, "{}: {hls} {pictures}", packaged.name);
        assert!((dash - SECONDS).abs() < 0.06, "{}: {dash}", packaged.name);
        for (sound, ours) in ours.iter().enumerate() {
            assert_same(packaged.name, &decoded_with(&packaged.mpd, sound), ours);
            if packaged.name != "ffmpeg" || sound == 0 {
                assert_same(packaged.name, &decoded_with(&packaged.master, sound), ours);
            }
        }
    }
    server.stop();
}

#[test]
fn a_transport_stream_is_as_packaged() {
    let test = "clients::packagers::a_transport_stream_is_as_packaged";
    let Some(film) = clip(test, Clip::Ts) else { return };
    assert_as_packaged(test, &film, 1, OF_STREAM);
}

#[test]
fn a_film_of_two_sounds_is_as_packaged() {
    let test = "clients::packagers::a_film_of_two_sounds_is_as_packaged";
    let Some(film) = clip(test, Clip::TwoSounds) else { return };
    assert_as_packaged(test, &film, 2, &[]);
}

#[test]
fn a_film_of_hevc_is_as_packaged() {
    let test = "clients::packagers::a_film_of_hevc_is_as_packaged";
    let mut command = ffmpeg();
    let length = SECONDS.to_string();
    for input in ["testsrc2=size=320x180:rate=25", "sine=frequency=440:sample_rate=48000"] {
        command.args(["-f", "lavfi", "-t", &length, "-i", input]);
    }
    command.args(["-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1", "-b:v", "300k"]);
    let keys = "log-level=error:keyint=50:min-keyint=50:scenecut=0:bframes=2";
    command.args(["-x265-params", keys, "-pix_fmt", "yuv420p", "-c:a", "aac", "-ac", "2"]);
    let Some(film) = film::or_skip(test, film::made(&mut command, "hevc.mp4")) else { return };
    assert_as_packaged(test, &film, 1, &[]);
}

/// Pictures before the start in the edit list are sent, by ffmpeg's HLS and by pagewire's; Shaka
/// Packager refuses such a file.
#[test]
fn a_film_that_an_edit_list_cuts_is_as_packaged() {
    let test = "clients::packagers::a_film_that_an_edit_list_cuts_is_as_packaged";
    let Some(whole) = clip(test, Clip::Mp4) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = ffmpeg();
    command.args(["-ss", "1", "-i"]).arg(whole).args(["-c", "copy"]);
    let Some(film) = film::or_skip(test, film::made(&mut command, "cut.mp4")) else { return };
    let server = Server::with_options(&[("cut.mp4", &film)], &[]);
    let ours = decoded(&server.http_url("cut.mp4/master.m3u8"));
    let packaged = by_ffmpeg_with(&film, folder.path(), &[]);
    let theirs = decoded(&packaged.master);
    assert!(theirs.pictures == ours.pictures, "{} pictures", theirs.pictures.len());
    // ffmpeg leaves out the first frame of sound.
    let ours = packets(&server.http_url("cut.mp4/master.m3u8"));
    assert_eq!(packets(&packaged.master)[..], ours[1..]);
    // The duration of the description is the presentation time of the film.
    let text = crate::site::fetch(&server, "/cut.mp4/manifest.mpd", None).text();
    assert!((mpd_seconds(&text) - (SECONDS - 1.0)).abs() < 0.06, "{text}");
    if let Some(packaged) = by_shaka_with(test, &film, folder.path(), 1) {
        let reason = packaged.err().expect("it takes it now: compare with it");
        assert!(reason.contains("PARSER_FAILURE"), "{reason}");
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

/// Returns the seconds of a media playlist.
fn hls_seconds(text: &str) -> f64 {
    let read = parse_media_playlist_res(text.as_bytes()).expect("a playlist");
    read.segments.iter().map(|segment| f64::from(segment.duration)).sum()
}

/// Returns the seconds of a description.
fn mpd_seconds(text: &str) -> f64 {
    let mpd = dash_mpd_core::parse(text).expect("a description");
    mpd.mediaPresentationDuration.map_or(0.0, |duration: Duration| duration.as_secs_f64())
}
