// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire recordings export`: cuts a time out of a camera's recordings into a new file, and
//! names the gaps in it.
//!
//! The end of the file's name must fit the container of the recordings, because nothing is
//! converted. An existing file is never overwritten. After Ctrl-C there is no file.
//!
//! Does not cut: [`::recordings::export`] does.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::recordings::{CameraFile, CameraFiles, Error, Exported, RecordedTime};
use clap::Args;
use client::counted;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::{GapObject, cameras, recordings_of, seconds, time};
use crate::escape::{Escaped, EscapedLines};
use crate::output;
use crate::seal::size;

#[derive(Args)]
pub(crate) struct Options {
    /// File of cameras, as of `pagewire receive --config`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Camera whose recordings are cut.
    #[arg(long, value_name = "NAME")]
    camera: String,
    /// Begin of the cut: 2026-11-30T14:20, 14:20 (today) or 10m (ago); in the camera's time zone,
    /// or with an offset. The file begins at the last key frame before it.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: String,
    /// End of the cut; a date means the end of its day. [default: now]
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// New file: .mp4 or .m4v for recordings of MP4, .ts for transport streams.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> ExitCode {
    let files = match cameras(&options.config, Some(&options.camera)) {
        Ok(mut cameras) => cameras.remove(0),
        Err(faults) => return crate::all_wrong(&faults),
    };
    let zone = &files.time_zone;
    let (from, to) = (Some(&*options.from), options.to.as_deref());
    let range = match time::range(from, to, zone, Timestamp::now()) {
        Ok(range) => range.expect("--from was given"),
        Err(fault) => return crate::wrong(&fault),
    };
    if options.output.symlink_metadata().is_ok() {
        return crate::wrong(&exists(&options.output));
    }
    if is_recording(&files, &options.output) {
        return crate::wrong(&format!(
            "--output {}: the name of a recording of camera {}, which its rules may delete; write \
             another name",
            options.output.display(),
            options.camera
        ));
    }
    let listing = match recordings_of(&files) {
        Ok(listing) => listing,
        Err(error) => return crate::failed(&error, error.is_caller()),
    };
    let recordings = &listing.files;
    let chosen = ::recordings::in_range(recordings, range);
    let first = recordings[chosen].first();
    if let Some(fault) = first.and_then(|first| wrong_end(&options.output, first.start.is_mp4)) {
        return crate::wrong(&fault);
    }
    let status = match listing.lacks_part_of(range) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    };
    let stop = Arc::new(AtomicBool::new(false));
    match cut(recordings, range, &options.output, &stop) {
        Ok(exported) => {
            let report = ExportReport::new(options, zone.clone(), exported);
            if options.json {
                let text = serde_json::to_string_pretty(&report.object()).expect("plain data");
                output::line(EscapedLines(text));
            } else {
                output::print(report.text());
            }
            status
        }
        Err(_) if stop.load(Ordering::Relaxed) => {
            crate::failed(&format!("{}: stopped; not made", options.output.display()), false)
        }
        Err(Error::NothingRecorded { .. }) if listing.lacks_part_of(range) => {
            let fault = "a recording of that time cannot be read (see above)";
            crate::failed(&format!("camera {}: {fault}", options.camera), false)
        }
        Err(error) => failed(&error, options, &files, !recordings.is_empty()),
    }
}

/// Exports with a bar on a terminal; `stop` is set at Ctrl-C.
fn cut(
    recordings: &[CameraFile],
    range: RecordedTime,
    output: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<Exported, Error> {
    let asked = stop.clone();
    crate::interrupt::on_interrupt("no file is left", move || {
        asked.store(true, Ordering::Relaxed);
    });
    let style = ProgressStyle::with_template("{wide_bar} {decimal_bytes} of {decimal_total_bytes}");
    let bar = ProgressBar::new(0).with_style(style.expect("the template is a constant"));
    let exported = ::recordings::export(recordings, range, output, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
        !stop.load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    exported
}

/// True for a file in the camera's folder with the name of a recording.
fn is_recording(files: &CameraFiles, output: &Path) -> bool {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok();
    files.parse_path(output).is_some() && folder == files.folder.canonicalize().ok()
}

/// Returns the fault of a file's name whose end does not fit the container of the recordings.
fn wrong_end(output: &Path, is_mp4: bool) -> Option<String> {
    let extension = output.extension().and_then(|end| end.to_str()).unwrap_or_default();
    let ends: &[&str] = if is_mp4 { &["mp4", "m4v"] } else { &["ts"] };
    if ends.iter().any(|end| extension.eq_ignore_ascii_case(end)) {
        return None;
    }
    Some(format!(
        "--output {}: the recordings are {}; write a name that ends in .{}",
        output.display(),
        container(is_mp4),
        ends.join(" or .")
    ))
}

fn container(is_mp4: bool) -> &'static str {
    if is_mp4 { "MP4" } else { "transport streams" }
}

fn exists(output: &Path) -> String {
    format!("--output {}: exists; write another name, or delete the file", output.display())
}

/// Reports why nothing was exported.
fn failed(error: &Error, options: &Options, files: &CameraFiles, has_any: bool) -> ExitCode {
    match error {
        Error::NothingRecorded { range, before, after } => {
            crate::failed(&nothing_recorded(files, has_any, range, *before, *after), true)
        }
        Error::Changed { path, at } => crate::failed(&changed(path, *at, &files.time_zone), true),
        Error::Host { path, source }
            if source.kind() == io::ErrorKind::AlreadyExists && *path == options.output =>
        {
            crate::wrong(&exists(path))
        }
        error => crate::failed(error, error.is_caller()),
    }
}

/// Formats the fault of a time without a recording, with the nearest recorded times. `has_any` is
/// true for a camera with recordings.
fn nothing_recorded(
    files: &CameraFiles,
    has_any: bool,
    range: &RecordedTime,
    before: Option<Timestamp>,
    after: Option<Timestamp>,
) -> String {
    let camera = &files.camera;
    let shown = |moment| time::shown(moment, &files.time_zone);
    let nearest = match (before.map(shown), after.map(shown)) {
        (Some(before), Some(after)) => format!(
            "the recording before ends at {before}, the next begins at {after}; write an earlier \
             --from or a later --to"
        ),
        (Some(before), None) => {
            format!("the last recording ends at {before}; write an earlier --from")
        }
        (None, Some(after)) => {
            format!("the first recording begins at {after}; write a later --to")
        }
        (None, None) if has_any => {
            let fault = "play can start nowhere in what was recorded then: it lacks a key frame";
            return format!("camera {camera}: {fault}; write a longer time");
        }
        (None, None) => {
            return format!("camera {camera}: no recordings in {} yet", files.folder.display());
        }
    };
    let (from, to) = (shown(range.from), shown(range.to));
    format!("camera {camera}: nothing was recorded from {from} to {to}: {nearest}")
}

/// Formats the fault of recordings that one file cannot hold.
fn changed(path: &Path, at: Timestamp, zone: &TimeZone) -> String {
    let at = time::shown(at, zone);
    format!(
        "{}: its container, tracks or their parameters differ from those before {at}; export two \
         files, one with --to {at} and one with --from {at}",
        path.display()
    )
}

/// Result of an export.
#[derive(Debug)]
struct ExportReport {
    output: PathBuf,
    camera: String,
    zone: TimeZone,
    range: RecordedTime,
    bytes: u64,
    recordings: usize,
    gaps: Vec<RecordedTime>,
}

impl ExportReport {
    fn new(options: &Options, zone: TimeZone, exported: Exported) -> ExportReport {
        ExportReport {
            output: options.output.clone(),
            camera: options.camera.clone(),
            zone,
            range: exported.range,
            bytes: exported.bytes,
            recordings: exported.files,
            gaps: exported.gaps,
        }
    }

    /// Formats a line for the file, and one for each gap.
    fn text(&self) -> String {
        let between = |range: &RecordedTime, middle: &str| {
            let (from, to) = (time::shown(range.from, &self.zone), range.to);
            format!("{from} {middle} {}", time::shown(to, &self.zone))
        };
        let mut text = format!(
            "{}: {}, {}, cut from {}\n",
            Escaped(self.output.display()),
            between(&self.range, "to"),
            size(self.bytes),
            counted(self.recordings as u64, "recording", "recordings"),
        );
        for gap in &self.gaps {
            let length = time::length_shown(seconds(gap).round() as u64);
            let range = between(gap, "to");
            text.push_str(&format!(
                "nothing was recorded from {range} ({length}): it is left out\n"
            ));
        }
        text
    }

    fn object(&self) -> ExportObject<'_> {
        ExportObject {
            file: self.output.to_string_lossy().into_owned(),
            camera: &self.camera,
            from: time::shown_exact(self.range.from, &self.zone),
            to: time::shown_exact(self.range.to, &self.zone),
            bytes: self.bytes,
            files: self.recordings,
            gaps: self.gaps.iter().map(|gap| GapObject::new(gap, &self.zone)).collect(),
        }
    }
}

/// The result in JSON.
#[derive(Serialize)]
struct ExportObject<'a> {
    file: String,
    camera: &'a str,
    from: String,
    to: String,
    bytes: u64,
    /// Number of recordings that it was cut from.
    files: usize,
    gaps: Vec<GapObject>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(time: &str) -> Timestamp {
        format!("2026-11-30T{time}+01:00").parse().unwrap()
    }

    fn between(from: &str, to: &str) -> RecordedTime {
        RecordedTime { from: at(from), to: at(to) }
    }

    fn berlin() -> TimeZone {
        TimeZone::get("Europe/Berlin").unwrap()
    }

    fn door() -> CameraFiles {
        let mut files = CameraFiles::new("door".to_owned(), "/srv/door".into());
        files.time_zone = berlin();
        files
    }

    fn report() -> ExportReport {
        ExportReport {
            output: "door\n.mp4".into(),
            camera: "door".to_owned(),
            zone: berlin(),
            range: between("14:19:58.5", "14:35:01"),
            bytes: 412_300_000,
            recordings: 2,
            gaps: vec![between("14:29:37", "14:30:00")],
        }
    }

    #[test]
    fn an_export_is_a_line_and_one_for_each_gap() {
        let expected = "\
door\\n.mp4: 2026-11-30T14:19:59+01:00 to 2026-11-30T14:35:01+01:00, 412 MB, \
                        cut from 2 recordings
nothing was recorded from 2026-11-30T14:29:37+01:00 to 2026-11-30T14:30:00+01:00 \
                        (23 s): it is left out
";
        assert_eq!(report().text(), expected);
        let one = ExportReport { recordings: 1, gaps: Vec::new(), ..report() };
        assert!(one.text().ends_with(", cut from 1 recording\n"), "{}", one.text());
    }

    #[test]
    fn json_of_an_export_has_its_range_and_gaps() {
        assert_eq!(
            serde_json::to_value(report().object()).unwrap(),
            json!({
                "file": "door\n.mp4",
                "camera": "door",
                "from": "2026-11-30T14:19:58.5+01:00",
                "to": "2026-11-30T14:35:01+01:00",
                "bytes": 412_300_000,
                "files": 2,
                "gaps": [{
                    "from": "2026-11-30T14:29:37+01:00",
                    "to": "2026-11-30T14:30:00+01:00",
                    "seconds": 23.0,
                }],
            })
        );
    }

    #[test]
    fn the_end_of_the_name_fits_the_recordings() {
        let check = |name: &str, is_mp4| wrong_end(Path::new(name), is_mp4);
        for (name, is_mp4) in [("a.mp4", true), ("a.m4v", true), ("a.MP4", true), ("a.ts", false)] {
            assert_eq!(check(name, is_mp4), None, "{name}");
        }
        let mp4 = "the recordings are MP4; write a name that ends in .mp4 or .m4v";
        let ts = "the recordings are transport streams; write a name that ends in .ts";
        for (name, is_mp4, fault) in
            [("a.ts", true, mp4), ("a.mkv", true, mp4), ("a", true, mp4), ("a.mp4", false, ts)]
        {
            assert_eq!(check(name, is_mp4), Some(format!("--output {name}: {fault}")));
        }
    }

    #[test]
    fn the_name_of_a_recording_is_none_for_a_cut() {
        let folder = tempfile::tempdir().unwrap();
        let files = CameraFiles::new("door".to_owned(), folder.path().to_owned());
        let is_recording = |name: &str| is_recording(&files, &folder.path().join(name));
        assert!(is_recording("door-20261130T150000Z.mp4") && !is_recording("door.mp4"));
        assert!(!is_recording("../door-20261130T150000Z.mp4"));
    }

    #[test]
    fn a_time_without_a_recording_is_refused_with_the_nearest() {
        let fault = |before: Option<&str>, after: Option<&str>| {
            let range = between("14:20:00", "14:30:00");
            let fault = nothing_recorded(&door(), true, &range, before.map(at), after.map(at));
            let start = "camera door: nothing was recorded from 2026-11-30T14:20:00+01:00 to \
                         2026-11-30T14:30:00+01:00: ";
            fault.strip_prefix(start).unwrap_or_else(|| panic!("{fault}")).to_owned()
        };
        assert_eq!(
            fault(Some("14:00:00"), Some("15:00:00")),
            "the recording before ends at 2026-11-30T14:00:00+01:00, the next begins at \
             2026-11-30T15:00:00+01:00; write an earlier --from or a later --to"
        );
        assert_eq!(
            fault(Some("14:00:00"), None),
            "the last recording ends at 2026-11-30T14:00:00+01:00; write an earlier --from"
        );
        assert_eq!(
            fault(None, Some("15:00:00")),
            "the first recording begins at 2026-11-30T15:00:00+01:00; write a later --to"
        );
    }

    #[test]
    fn a_camera_without_a_recording_or_a_key_frame_is_named() {
        let range = between("14:20:00", "14:30:00");
        let fault = |has_any| nothing_recorded(&door(), has_any, &range, None, None);
        assert_eq!(fault(false), "camera door: no recordings in /srv/door yet");
        assert_eq!(
            fault(true),
            "camera door: play can start nowhere in what was recorded then: it lacks a key frame; \
             write a longer time"
        );
    }

    #[test]
    fn changed_tracks_are_refused_with_the_time_to_cut_at() {
        assert_eq!(
            changed(Path::new("/srv/b.mp4"), at("14:00:00"), &berlin()),
            "/srv/b.mp4: its container, tracks or their parameters differ from those before \
             2026-11-30T14:00:00+01:00; export two files, one with --to 2026-11-30T14:00:00+01:00 \
             and one with --from 2026-11-30T14:00:00+01:00"
        );
    }
}
