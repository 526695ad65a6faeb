// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire recordings list|export`: finds recordings of the cameras of a file by the time of the
//! clock, and cuts a time out of them.
//!
//! Exit status 0 when it was done, also when the list is empty; 1 when a folder or a file cannot be
//! read or written, also one of several in the time, or on Ctrl-C; 2 for a wrong option, and for an
//! export of a time without a recording.
//!
//! Cost: that of [`::recordings::list`], a read of the camera's folder and its index; an export
//! also has the kernel copy the bytes of the cut.
//!
//! Does not record or delete: `pagewire receive --config` does.

mod export;
mod list;
mod time;

use std::path::Path;
use std::process::ExitCode;

use ::recordings::{CameraFiles, CameraListing, Error, RecordedTime};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::config;
use crate::escape::Escaped;

#[derive(Subcommand)]
pub(crate) enum Verbs {
    /// Lists the recordings of a camera with the gaps between them, or the cameras of a file with
    /// their first and last recording.
    List(list::Options),
    /// Cuts a time out of a camera's recordings into a new file, without encoding. It begins at the
    /// last key frame before --from, and gaps are left out and named.
    #[command(after_help = EXPORT_HELP)]
    Export(export::Options),
}

const EXPORT_HELP: &str = "Example: pagewire recordings export --config cameras.toml \
                           --camera door --from 14:20 --to 14:35 --output door.mp4";

/// Runs one of the verbs.
pub(crate) fn run(verb: &Verbs) -> ExitCode {
    match verb {
        Verbs::List(options) => list::run(options),
        Verbs::Export(options) => export::run(options),
    }
}

/// Returns the cameras of a file, or the one with a name.
///
/// # Errors
/// Every fault of the file, or that it has no camera with this name.
fn cameras(config: &Path, name: Option<&str>) -> Result<Vec<CameraFiles>, Vec<String>> {
    let mut cameras = config::read_camera_files(config)?;
    let Some(name) = name else { return Ok(cameras) };
    match cameras.iter().position(|files| files.camera == name) {
        Some(at) => Ok(vec![cameras.swap_remove(at)]),
        None => {
            let known: Vec<&str> = cameras.iter().map(|files| &*files.camera).collect();
            Err(vec![unknown(name, config, &known)])
        }
    }
}

/// Formats the fault of a camera that the file does not have.
fn unknown(name: &str, config: &Path, known: &[&str]) -> String {
    let cure = match config::nearest(name, known) {
        Some(near) => format!("write {near}"),
        None if known.is_empty() => "add a table [camera.NAME]".to_owned(),
        None => format!("write one of {}", known.join(", ")),
    };
    format!("--camera {name}: no camera of {}; {cure}", config.display())
}

/// Lists a camera's recordings, with a bar on a terminal while new ones are read.
///
/// # Errors
/// As for [`::recordings::list`].
fn recordings_of(files: &CameraFiles) -> Result<CameraListing, Error> {
    let style = ProgressStyle::with_template("reading {msg} {wide_bar} {pos} of {len} recordings");
    let bar = ProgressBar::new(0).with_style(style.expect("the template is a constant"));
    bar.set_message(Escaped(&files.camera).to_string());
    let listed = ::recordings::list(files, &mut |read, all| {
        bar.set_length(all as u64);
        bar.set_position(read as u64);
    });
    bar.finish_and_clear();
    listed
}

/// A gap in JSON.
#[derive(Debug, Serialize)]
struct GapObject {
    from: String,
    to: String,
    seconds: f64,
}

impl GapObject {
    fn new(gap: &RecordedTime, zone: &TimeZone) -> GapObject {
        GapObject {
            from: time::shown_exact(gap.from, zone),
            to: time::shown_exact(gap.to, zone),
            seconds: seconds(gap),
        }
    }
}

/// Length of a range to the nearest millisecond.
fn seconds(range: &RecordedTime) -> f64 {
    rounded(range.to.duration_since(range.from).as_secs_f64())
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_cameras_are_refused_with_the_nearest_or_all() {
        let fault = |name, known: &[&str]| unknown(name, Path::new("cameras.toml"), known);
        let known = ["door", "yard"];
        assert_eq!(fault("dor", &known), "--camera dor: no camera of cameras.toml; write door");
        assert_eq!(
            fault("kitchen", &known),
            "--camera kitchen: no camera of cameras.toml; write one of door, yard"
        );
        assert_eq!(
            fault("door", &[]),
            "--camera door: no camera of cameras.toml; add a table [camera.NAME]"
        );
    }

    #[test]
    fn cameras_are_those_of_the_file_and_a_new_one_has_no_recordings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cameras.toml");
        let text = "time_zone = \"Europe/Berlin\"\ncredentials = \"none\"\n\
                    [camera.door]\nurl = \"rtsp://h/1\"\n\
                    [camera.yard]\nurl = \"rtsp://h/2\"\nform = \"ts\"\n";
        std::fs::write(&path, text).unwrap();
        let all = cameras(&path, None).unwrap();
        let names: Vec<_> = all.iter().map(|files| (&*files.camera, files.is_mp4)).collect();
        assert_eq!(names, [("door", true), ("yard", false)]);
        let yard = cameras(&path, Some("yard")).unwrap();
        assert_eq!((yard.len(), &*yard[0].camera), (1, "yard"));
        assert_eq!(yard[0].folder, folder.path().join("yard"));
        assert_eq!(recordings_of(&yard[0]).unwrap().files, []);
        let fault = cameras(&path, Some("yrad")).unwrap_err();
        assert!(fault.len() == 1 && fault[0].ends_with("; write yard"), "{fault:?}");
        std::fs::write(&path, "[camera.door]\nurl = 5\n").unwrap();
        assert!(cameras(&path, Some("door")).is_err());
    }
}
