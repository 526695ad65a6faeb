// SPDX-License-Identifier: MIT OR Apache-2.0
//! Films that the tests serve: H.264 and AAC in transport streams, made by ffmpeg.
//!
//! Each film is made once on disk, by the first process that needs it, and kept for later runs.
//! Every 2 s a key frame follows PAT and PMT, so that a decoder can start at each key frame.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use super::watchdog;

pub(crate) const SECONDS: u64 = 60;
/// Seconds between key frames.
pub(crate) const GROUP_SECONDS: u64 = 2;
pub(crate) const FRAMES_PER_SECOND: u64 = 25;

/// A file and its content.
pub(crate) struct Film {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the film of a minute; `None`, with the reason printed for `test`, where there is no
/// ffmpeg or no encoder.
pub(crate) fn film(test: &str) -> Option<&'static Film> {
    static FILM: OnceLock<Option<Film>> = OnceLock::new();
    let film = FILM.get_or_init(|| {
        let path = or_skip(test, minute())?;
        let bytes = fs::read(&path).expect("it was made");
        Some(Film { path, bytes })
    });
    film.as_ref()
}

/// Returns a film of some seconds with one or two programmes, each of a video and an audio stream:
/// streams 0 and 1, 2 and 3. `None` as for [`film`].
pub(crate) fn short_film(test: &str, programmes: usize, seconds: u64) -> Option<PathBuf> {
    or_skip(test, short(programmes, seconds))
}

/// Puts the output of an ffmpeg command at `path`, by [`made`]. `None` as for [`film`].
pub(crate) fn put(test: &str, command: &mut Command, path: &Path) -> Option<()> {
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
    let made = or_skip(test, made(command, name))?;
    fs::copy(made, path).expect("room for a film");
    Some(())
}

/// Runs an ffmpeg command whose output is a file of this name, once for all tests: the first
/// process runs it, others wait, and later runs find the file. Returns `Err`, with the reason,
/// where ffmpeg or one of its encoders is missing.
pub(crate) fn made(command: &mut Command, name: &str) -> Result<PathBuf, String> {
    let mut hash = DefaultHasher::new();
    format!("{command:?} {name}").hash(&mut hash);
    let folder = format!("film-{:016x}", hash.finish());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let path = folder.join(name);
    if path.exists() {
        return Ok(path);
    }
    fs::create_dir_all(&folder).expect("room for a folder");
    let lock = File::create(folder.join("lock")).expect("room for a file");
    // The kernel unlocks it when this process ends in any way.
    lock.lock().expect("the file system has locks");
    if path.exists() {
        return Ok(path);
    }
    let unfinished = folder.join(format!("unfinished-{name}"));
    let outcome = watchdog::run(command.arg("-y").arg(&unfinished), LIMIT)?;
    if outcome.stderr.contains("Unknown encoder") {
        return Err(format!("encoder of ffmpeg: not installed: {}", outcome.stderr.trim()));
    }
    outcome.succeeded();
    fs::rename(&unfinished, &path).expect("both names are in one folder");
    Ok(path)
}

/// Returns the film, or `None`, with the reason printed.
pub(crate) fn or_skip(test: &str, made: Result<PathBuf, String>) -> Option<PathBuf> {
    made.inspect_err(|reason| eprintln!("skip: {test}: no film: {reason}")).ok()
}

/// Returns an ffmpeg command that prints only errors.
pub(crate) fn ffmpeg() -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error"]);
    command
}

/// Adds the options of the picture's encoder.
fn picture(command: &mut Command) -> &mut Command {
    let group = (GROUP_SECONDS * FRAMES_PER_SECOND).to_string();
    command
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-sc_threshold", "0"])
        .args(["-g", &group, "-keyint_min", &group])
}

fn short(programmes: usize, seconds: u64) -> Result<PathBuf, String> {
    let mut command = ffmpeg();
    let contents = &[("480x270", 440), ("320x180", 880)][..programmes];
    for (size, tone) in contents {
        let picture = format!("testsrc2=size={size}:rate={FRAMES_PER_SECOND}:duration={seconds}");
        let sound = format!("sine=frequency={tone}:sample_rate=48000:duration={seconds}");
        command.args(["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound]);
    }
    for programme in 0..programmes {
        let (picture, sound) = (2 * programme, 2 * programme + 1);
        command.args(["-map", &picture.to_string(), "-map", &sound.to_string(), "-program"]);
        command.arg(format!("program_num={}:st={picture}:st={sound}", programme + 1));
    }
    picture(&mut command).args(["-b:v", "600k", "-c:a", "aac", "-b:a", "96k"]).args([
        "-mpegts_flags",
        "+pat_pmt_at_frames",
        "-f",
        "mpegts",
    ]);
    made(&mut command, "short.ts")
}

fn minute() -> Result<PathBuf, String> {
    let contents = format!("testsrc2=size=480x270:rate={FRAMES_PER_SECOND}:duration={SECONDS}");
    let sound = format!("sine=frequency=440:sample_rate=48000:duration={SECONDS}");
    let mut command = ffmpeg();
    command.args(["-f", "lavfi", "-i", &contents, "-f", "lavfi", "-i", &sound]);
    picture(&mut command)
        .args(["-b:v", "1200k", "-maxrate", "1500k", "-bufsize", "1500k"])
        .args(["-c:a", "aac", "-b:a", "96k", "-mpegts_flags", "+pat_pmt_at_frames"])
        .args(["-f", "mpegts"]);
    made(&mut command, "film.ts")
}

/// Guards against a hanging ffmpeg; making the film takes three seconds on an idle core.
const LIMIT: Duration = Duration::from_secs(120);
