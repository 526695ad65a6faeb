// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that the tests serve: 16 seconds of H.264 with B-frames and AAC, made by ffmpeg.
//!
//! A key frame every 2 s, so segments last 6, 6 and 4 s.
//! Does not make files of other codecs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{Server, film};

pub(crate) const SECONDS: f64 = 16.0;
pub(crate) const FRAMES_PER_SECOND: f64 = 25.0;
const SIZE: (u32, u32) = (320, 180);
const SMALL_SIZE: (u32, u32) = (160, 90);
/// Pitch of the first sound, and of the second.
pub(crate) const PITCHES_HZ: [f64; 2] = [440.0, 880.0];

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clip {
    /// Pictures and a sound.
    Mp4,
    /// Pictures and two sounds of one codec, German and French.
    TwoSounds,
    /// The content of [`Clip::Mp4`] as a transport stream.
    Ts,
    /// A folder: [`Clip::Mp4`], and the same with smaller pictures.
    Renditions,
}

impl Clip {
    /// Returns the name under which it is served.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Clip::Mp4 => "film.mp4",
            Clip::TwoSounds => "two.mp4",
            Clip::Ts => "film.ts",
            Clip::Renditions => "title",
        }
    }

    /// Returns the number of picture sizes to choose from.
    pub(crate) fn pictures(self) -> usize {
        if self == Clip::Renditions { 2 } else { 1 }
    }
}

/// All kinds.
pub(crate) const CLIPS: [Clip; 4] = [Clip::Mp4, Clip::TwoSounds, Clip::Ts, Clip::Renditions];

/// Names under which the files are served.
const FILES: [&str; 5] = ["film.mp4", "two.mp4", "film.ts", "title/large.mp4", "title/small.mp4"];

/// Returns a file; `None`, with the reason printed, where ffmpeg cannot make it.
///
/// # Panics
/// For renditions, which are a folder.
pub(crate) fn clip(test: &str, clip: Clip) -> Option<PathBuf> {
    film::or_skip(test, made(clip.name()))
}

/// Starts a server of all clips to pages of every origin.
pub(crate) fn serve(test: &str) -> Option<Server> {
    serve_with(test, &[])
}

/// As [`serve`], with additional options of `pagewire serve`.
pub(crate) fn serve_with(test: &str, options: &[&str]) -> Option<Server> {
    let mut files = Vec::new();
    for name in FILES {
        files.push((name, film::or_skip(test, made(name))?));
    }
    let files: Vec<(&str, &Path)> = files.iter().map(|(name, path)| (*name, &**path)).collect();
    Some(Server::with_options(&files, &[&["--allow-origin", "*"], options].concat()))
}

/// Starts a server of these files of [`made`] and of texts, with options of `pagewire serve`;
/// returns `None`, with the reason printed, where ffmpeg cannot make one.
pub(crate) fn serve_files(
    test: &str,
    names: &[&str],
    texts: &[(&str, &str)],
    options: &[&str],
) -> Option<Server> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut files = Vec::new();
    for name in names {
        files.push((*name, film::or_skip(test, made(name))?));
    }
    for (at, (name, text)) in texts.iter().enumerate() {
        let path = folder.path().join(at.to_string());
        std::fs::write(&path, text).expect("room for a text");
        files.push((*name, path));
    }
    let files: Vec<(&str, &Path)> = files.iter().map(|(name, path)| (*name, &**path)).collect();
    Some(Server::with_options(&files, options))
}

/// Makes one of [`FILES`], or of the films of several codecs.
fn made(name: &str) -> Result<PathBuf, String> {
    let mut command = ffmpeg();
    match name {
        "two.mp4" => {
            let (width, height) = SIZE;
            let picture = format!("testsrc2=size={width}x{height}:rate={FRAMES_PER_SECOND}");
            let sounds = PITCHES_HZ.map(|pitch| format!("sine=frequency={pitch}"));
            for input in [&picture, &sounds[0], &sounds[1]] {
                command.args(["-f", "lavfi", "-t", &SECONDS.to_string(), "-i", input]);
            }
            command.args(["-map", "0", "-map", "1", "-map", "2"]);
            command.args(H264).args(["-b:v", "300k"]);
            command.args(["-c:a", "aac", "-ar", "48000", "-ac", "2", "-b:a", "64k"]);
            command.args(["-metadata:s:a:0", "language=deu"]);
            command.args(["-metadata:s:a:1", "language=fra"]);
        }
        "film.mp4" | "film.ts" => {
            command.arg("-i").arg(made("two.mp4")?);
            command.args(["-map", "0:v", "-map", "0:a:0", "-c", "copy"]);
        }
        // German, French, and German of another codec.
        "codecs.mp4" => sounds(&mut command, &["0:a:0", "0:a:1", "0:a:0"], 2)?,
        // German in two codecs.
        "alike.mp4" => sounds(&mut command, &["0:a:0", "0:a:0"], 1)?,
        // German, and French of another codec.
        "apart.mp4" => sounds(&mut command, &["0:a:0", "0:a:1"], 1)?,
        // Two sounds without pictures.
        "sounds.mp4" => {
            command.arg("-i").arg(made("two.mp4")?);
            command.args(["-map", "0:a", "-c:a:0", "copy", "-c:a:1", "aac", "-b:a:1", "160k"]);
        }
        "title/large.mp4" => return made("film.mp4"),
        "title/small.mp4" => {
            let scale = format!("scale={}:{}", SMALL_SIZE.0, SMALL_SIZE.1);
            command.arg("-i").arg(made("film.mp4")?).args(["-vf", &scale]).args(H264);
            command.args(["-b:v", "100k", "-c:a", "copy"]);
        }
        other => panic!("{other}: is no clip"),
    }
    film::made(&mut command, name.trim_start_matches("title/"))
}

/// Makes ffmpeg write the pictures and these sounds of the film of two; from index `from` on they
/// are AC-3.
fn sounds(command: &mut Command, maps: &[&str], from: usize) -> Result<(), String> {
    command.arg("-i").arg(made("two.mp4")?).args(["-map", "0:v", "-c", "copy"]);
    for (at, map) in maps.iter().enumerate() {
        command.args(["-map", map]);
        if at >= from {
            command.args([&format!("-c:a:{at}"), "ac3", &format!("-b:a:{at}"), "128k"]);
        }
    }
    Ok(())
}

/// A key frame every 2 s and two B-frames between reference pictures.
pub(crate) const H264: &[&str] = &[
    "-c:v",
    "libx264",
    "-preset",
    "veryfast",
    "-bf",
    "2",
    "-sc_threshold",
    "0",
    "-g",
    "50",
    "-keyint_min",
    "50",
    "-pix_fmt",
    "yuv420p",
];

/// Returns an ffmpeg command that prints only errors and overwrites files.
pub(crate) fn ffmpeg() -> Command {
    let mut command = film::ffmpeg();
    command.arg("-y");
    command
}

pub(crate) const LIMIT: Duration = Duration::from_secs(60);
