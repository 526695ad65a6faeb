// SPDX-License-Identifier: MIT OR Apache-2.0
//! The asset the tests serve: a minute of H.264 and AAC in a transport stream, made by ffmpeg.
//!
//! Made once by the first test program that needs it, in about three seconds. A key frame every 2 s
//! with PAT and PMT before it, so wherever play starts a decoder has what it needs.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use super::watchdog;

pub(crate) const SECONDS: u64 = 60;
/// Between key frames.
pub(crate) const GROUP_SECONDS: u64 = 2;
pub(crate) const FRAMES_PER_SECOND: u64 = 25;

/// A file, and what is in it.
pub(crate) struct Film {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

/// The film; `None`, with the reason printed for `test`, where there is no ffmpeg or no encoder.
pub(crate) fn film(test: &str) -> Option<&'static Film> {
    static FILM: OnceLock<Result<Film, String>> = OnceLock::new();
    match FILM.get_or_init(|| make(SECONDS)) {
        Ok(film) => Some(film),
        Err(reason) => {
            eprintln!("skip: {test}: no film: {reason}");
            None
        }
    }
}

/// A film of six seconds with one or two programmes, each of a picture and a sound: streams 0 and
/// 1, 2 and 3. `None` as for [`film`].
pub(crate) fn short_film(test: &str, programmes: usize) -> Option<Vec<u8>> {
    film(test)?;
    match make_short(programmes) {
        Ok(bytes) => Some(bytes),
        Err(reason) => {
            eprintln!("skip: {test}: no film of {programmes} programmes: {reason}");
            None
        }
    }
}

fn make_short(programmes: usize) -> Result<Vec<u8>, String> {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error"]);
    let contents = &[("480x270", 440), ("320x180", 880)][..programmes];
    for (size, tone) in contents {
        let picture = format!("testsrc2=size={size}:rate={FRAMES_PER_SECOND}:duration=6");
        let sound = format!("sine=frequency={tone}:sample_rate=48000:duration=6");
        command.args(["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound]);
    }
    for programme in 0..programmes {
        let (picture, sound) = (2 * programme, 2 * programme + 1);
        command.args(["-map", &picture.to_string(), "-map", &sound.to_string(), "-program"]);
        command.arg(format!("program_num={}:st={picture}:st={sound}", programme + 1));
    }
    let group = (GROUP_SECONDS * FRAMES_PER_SECOND).to_string();
    command
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-sc_threshold", "0"])
        .args(["-g", &group, "-keyint_min", &group, "-b:v", "600k", "-c:a", "aac", "-b:a", "96k"])
        .args(["-mpegts_flags", "+pat_pmt_at_frames", "-f", "mpegts", "-"]);
    Ok(watchdog::run(&mut command, LIMIT)?.succeeded())
}

fn make(seconds: u64) -> Result<Film, String> {
    let encoders = ["-hide_banner", "-encoders"];
    let known = watchdog::run(Command::new("ffmpeg").args(encoders), LIMIT)?.succeeded();
    let known = String::from_utf8_lossy(&known);
    for encoder in ["libx264", "aac"] {
        if !known.split_whitespace().any(|word| word == encoder) {
            return Err(format!("encoder {encoder} of ffmpeg: not installed"));
        }
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let picture = format!("testsrc2=size=480x270:rate={FRAMES_PER_SECOND}:duration={seconds}");
    let sound = format!("sine=frequency=440:sample_rate=48000:duration={seconds}");
    let group = (GROUP_SECONDS * FRAMES_PER_SECOND).to_string();
    let mut command = Command::new("ffmpeg");
    command
        .args(["-hide_banner", "-loglevel", "error", "-y"])
        .args(["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound])
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-sc_threshold", "0"])
        .args(["-g", &group, "-keyint_min", &group])
        .args(["-b:v", "1200k", "-maxrate", "1500k", "-bufsize", "1500k"])
        .args(["-c:a", "aac", "-b:a", "96k", "-mpegts_flags", "+pat_pmt_at_frames"])
        .args(["-f", "mpegts"]);
    // Two test programs may be at it at once, and on a busy machine ffmpeg makes two films of one
    // command. The first that has the name is that of all, also of later runs.
    let mut hash = DefaultHasher::new();
    format!("{command:?}").hash(&mut hash);
    let folder = folder.join(format!("film-{:016x}", hash.finish()));
    fs::create_dir_all(&folder).expect("room for a folder");
    let path = folder.join("film.ts");
    if !path.exists() {
        let unfinished = folder.join(format!("film-{}.ts", std::process::id()));
        command.arg(&unfinished);
        watchdog::run(&mut command, LIMIT)?.succeeded();
        match fs::hard_link(&unfinished, &path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => panic!("{error}"),
            _ => fs::remove_file(&unfinished).expect("it was just made"),
        }
    }
    let bytes = fs::read(&path).expect("it has its name");
    Ok(Film { path, bytes })
}

const LIMIT: Duration = Duration::from_secs(120);
