// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire recordings list`: a table of cameras, or of the recordings of one with the gaps
//! between them; the same as JSON.
//!
//! A camera whose folder cannot be read is reported, and the others are listed.
//!
//! Does not read recordings whose lengths are in the index.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::recordings::{CameraFile, CameraFiles, RecordedTime};
use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::{GapObject, cameras, recordings_of, rounded, seconds, time};
use crate::escape::{Escaped, EscapedLines};
use crate::output;
use crate::seal::size;

#[derive(Args)]
pub(crate) struct Options {
    /// File of cameras, as of `pagewire receive --config`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Lists the recordings of this camera, a line each. Without, a line for each camera.
    #[arg(long, value_name = "NAME")]
    camera: Option<String>,
    /// Lists recordings that end after this time: 2026-11-30T14:20, 14:20 (today) or 10m (ago); in
    /// the camera's time zone, or with an offset.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Lists recordings that begin before this time; a date means the end of its day. [default: now
    /// with --from]
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Recordings of a camera in a range.
#[derive(Debug)]
struct CameraList {
    camera: String,
    zone: TimeZone,
    files: Vec<ListedFile>,
    gaps: Vec<RecordedTime>,
}

/// A recording in a list.
#[derive(Debug)]
struct ListedFile {
    time: RecordedTime,
    length: Duration,
    bytes: u64,
    path: PathBuf,
    is_growing: bool,
}

pub(super) fn run(options: &Options) -> ExitCode {
    let cameras = match cameras(&options.config, options.camera.as_deref()) {
        Ok(cameras) => cameras,
        Err(faults) => return crate::all_wrong(&faults),
    };
    let now = Timestamp::now();
    let mut lists = Vec::with_capacity(cameras.len());
    let mut status = ExitCode::SUCCESS;
    for files in &cameras {
        let (from, to) = (options.from.as_deref(), options.to.as_deref());
        let range = match time::range(from, to, &files.time_zone, now) {
            Ok(range) => range,
            Err(fault) => return crate::wrong(&fault),
        };
        match recordings_of(files) {
            Ok(listing) => {
                let has_fault = match range {
                    Some(range) => listing.lacks_part_of(range),
                    None => !listing.unreadable.is_empty(),
                };
                if has_fault {
                    status = ExitCode::FAILURE;
                }
                lists.push(CameraList::new(files, listing.files, range));
            }
            Err(error) => status = crate::failed(&error, error.is_caller()),
        }
    }
    if lists.iter().all(|list| list.files.is_empty()) && !lists.is_empty() {
        eprintln!("pagewire: {}", Escaped(nothing(options)));
    }
    if options.json {
        let objects = ListObject { cameras: lists.iter().map(CameraList::object).collect() };
        let text = serde_json::to_string_pretty(&objects).expect("plain data");
        output::line(EscapedLines(text));
    } else if options.camera.is_some() {
        output::print(lists.iter().map(CameraList::table).collect::<String>());
    } else if lists.iter().any(|list| !list.files.is_empty()) {
        output::print(table_of_cameras(&lists));
    }
    status
}

fn nothing(options: &Options) -> String {
    let who = options
        .camera
        .as_deref()
        .map_or_else(|| "the cameras have".to_owned(), |camera| format!("camera {camera} has"));
    let is_all = options.from.is_none() && options.to.is_none();
    format!("{who} no recordings{}", if is_all { "" } else { " in this time" })
}

impl CameraList {
    fn new(
        files: &CameraFiles,
        mut recordings: Vec<CameraFile>,
        range: Option<RecordedTime>,
    ) -> CameraList {
        if let Some(range) = range {
            recordings.retain(|recording| recording.is_in(range));
        }
        let gaps = ::recordings::gaps(&recordings);
        let listed = |recording: CameraFile| ListedFile {
            time: RecordedTime { from: recording.from(), to: recording.to() },
            length: recording.length,
            bytes: recording.bytes,
            path: recording.path,
            is_growing: recording.is_growing,
        };
        CameraList {
            camera: files.camera.clone(),
            zone: files.time_zone.clone(),
            files: recordings.into_iter().map(listed).collect(),
            gaps,
        }
    }

    fn from(&self) -> Option<Timestamp> {
        self.files.first().map(|file| file.time.from)
    }

    fn to(&self) -> Option<Timestamp> {
        self.files.iter().map(|file| file.time.to).max()
    }

    fn length(&self) -> Duration {
        self.files.iter().fold(Duration::ZERO, |sum, file| sum.saturating_add(file.length))
    }

    fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Formats a line for each recording, and one for each gap between two.
    fn table(&self) -> String {
        if self.files.is_empty() {
            return String::new();
        }
        let heads = ["from", "to", "length", "size", "file"].map(str::to_owned);
        let rows = self.files.iter().map(|file| {
            let name = file.path.file_name().unwrap_or_default().to_string_lossy();
            let state = if file.is_growing { ", being recorded" } else { "" };
            let seconds = (file.length.as_millis() + 500) / 1000;
            [
                time::shown(file.time.from, &self.zone),
                time::shown(file.time.to, &self.zone),
                format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
                size(file.bytes),
                format!("{}{state}", Escaped(name)),
            ]
        });
        let lines = aligned(&std::iter::once(heads).chain(rows).collect::<Vec<_>>());
        let (head, lines) = lines.split_first().expect("the heads");
        let mut text = format!("{head}\n");
        let mut gaps = self.gaps.iter().peekable();
        for (line, file) in lines.iter().zip(&self.files) {
            if let Some(gap) = gaps.next_if(|gap| gap.to <= file.time.from) {
                let length = time::length_shown(seconds(gap).round() as u64);
                let _ = writeln!(text, "nothing recorded for {length}");
            }
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn object(&self) -> CameraObject {
        let time = |moment| time::shown_exact(moment, &self.zone);
        let file = |file: &ListedFile| FileObject {
            from: time(file.time.from),
            to: time(file.time.to),
            seconds: rounded(file.length.as_secs_f64()),
            bytes: file.bytes,
            file: file.path.to_string_lossy().into_owned(),
            growing: file.is_growing,
        };
        CameraObject {
            camera: self.camera.clone(),
            from: self.from().map(time),
            to: self.to().map(time),
            seconds: rounded(self.length().as_secs_f64()),
            bytes: self.bytes(),
            recordings: self.files.iter().map(file).collect(),
            gaps: self.gaps.iter().map(|gap| GapObject::new(gap, &self.zone)).collect(),
        }
    }
}

/// Formats a line for each camera.
fn table_of_cameras(lists: &[CameraList]) -> String {
    let heads = ["camera", "first", "last", "files", "hours", "gaps", "size"].map(str::to_owned);
    let rows = lists.iter().map(|list| {
        let time = |moment: Option<Timestamp>| {
            moment.map_or_else(|| "-".to_owned(), |moment| time::shown(moment, &list.zone))
        };
        [
            Escaped(&list.camera).to_string(),
            time(list.from()),
            time(list.to()),
            list.files.len().to_string(),
            format!("{:.1}", list.length().as_secs_f64() / 3600.0),
            list.gaps.len().to_string(),
            size(list.bytes()),
        ]
    });
    let lines = aligned(&std::iter::once(heads).chain(rows).collect::<Vec<_>>());
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Formats rows as lines with equal columns; the first row has the heads. Columns of [`COUNTS`] are
/// aligned to the right.
fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let chars = |text: &str| text.chars().count();
    let widths: [usize; N] =
        std::array::from_fn(|at| rows.iter().map(|row| chars(&row[at])).max().unwrap_or(0));
    let is_count = |at: usize| COUNTS.contains(&&*rows[0][at]);
    let line = |row: &[String; N]| {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            let blanks = " ".repeat(width - chars(cell));
            let (before, after) = if is_count(at) { (&*blanks, "") } else { ("", &*blanks) };
            let _ = write!(line, "{before}{cell}{after}  ");
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Heads of columns with numbers.
const COUNTS: [&str; 5] = ["files", "hours", "gaps", "size", "length"];

/// The list in JSON.
#[derive(Serialize)]
struct ListObject {
    cameras: Vec<CameraObject>,
}

#[derive(Serialize)]
struct CameraObject {
    camera: String,
    from: Option<String>,
    to: Option<String>,
    seconds: f64,
    bytes: u64,
    recordings: Vec<FileObject>,
    gaps: Vec<GapObject>,
}

#[derive(Serialize)]
struct FileObject {
    from: String,
    to: String,
    seconds: f64,
    bytes: u64,
    file: String,
    growing: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(name: &str, from: &str, milliseconds: u64, bytes: u64) -> ListedFile {
        let length = Duration::from_millis(milliseconds);
        let from: Timestamp = from.parse().unwrap();
        ListedFile {
            time: RecordedTime { from, to: from + length },
            length,
            bytes,
            path: PathBuf::from("/srv/door").join(name),
            is_growing: false,
        }
    }

    /// An hour, 23 s without a recording, and a file that grows.
    fn door() -> CameraList {
        let mut files = vec![
            file("door-20261130T140000+0100.mp4", "2026-11-30T13:00:00Z", 3_600_040, 1_234_567_890),
            file("door-20261130T150023+0100.mp4", "2026-11-30T14:00:23Z", 723_000, 98_000_000),
        ];
        files[1].is_growing = true;
        let gaps = vec![RecordedTime { from: files[0].time.to, to: files[1].time.from }];
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        CameraList { camera: "door".to_owned(), zone, files, gaps }
    }

    fn empty() -> CameraList {
        let (camera, zone) = ("attic\n\u{1b}[2K".to_owned(), TimeZone::UTC);
        CameraList { camera, zone, files: Vec::new(), gaps: Vec::new() }
    }

    #[test]
    fn recordings_are_a_table_with_gaps() {
        let expected = "\
from                       to                          length     size  file
2026-11-30T14:00:00+01:00  2026-11-30T15:00:00+01:00  1:00:00  1.23 GB  \
                        door-20261130T140000+0100.mp4
nothing recorded for 23 s
2026-11-30T15:00:23+01:00  2026-11-30T15:12:26+01:00  0:12:03  98.0 MB  \
                        door-20261130T150023+0100.mp4, being recorded
";
        assert_eq!(door().table(), expected);
        assert_eq!(empty().table(), "");
    }

    #[test]
    fn cameras_are_a_table() {
        let expected = "\
camera            first                      last                       \
                        files  hours  gaps     size
door              2026-11-30T14:00:00+01:00  2026-11-30T15:12:26+01:00  \
                        \x20   2    1.2     1  1.33 GB
attic\\n\\u001b[2K  -                          -                          \
                        \x20   0    0.0     0      0 B
";
        assert_eq!(table_of_cameras(&[door(), empty()]), expected);
    }

    #[test]
    fn the_last_end_is_that_of_the_longest_recording() {
        let mut door = door();
        door.files[0].time.to = "2026-11-30T16:00:00Z".parse().unwrap();
        assert_eq!(door.to(), Some(door.files[0].time.to));
    }

    #[test]
    fn json_has_times_with_offset_seconds_bytes_and_paths() {
        let object = |list: CameraList| serde_json::to_value(list.object()).unwrap();
        assert_eq!(
            object(door()),
            json!({
                "camera": "door",
                "from": "2026-11-30T14:00:00+01:00",
                "to": "2026-11-30T15:12:26+01:00",
                "seconds": 4323.04,
                "bytes": 1_332_567_890_u64,
                "recordings": [
                    {
                        "from": "2026-11-30T14:00:00+01:00",
                        "to": "2026-11-30T15:00:00.04+01:00",
                        "seconds": 3600.04,
                        "bytes": 1_234_567_890_u64,
                        "file": "/srv/door/door-20261130T140000+0100.mp4",
                        "growing": false,
                    },
                    {
                        "from": "2026-11-30T15:00:23+01:00",
                        "to": "2026-11-30T15:12:26+01:00",
                        "seconds": 723.0,
                        "bytes": 98_000_000,
                        "file": "/srv/door/door-20261130T150023+0100.mp4",
                        "growing": true,
                    },
                ],
                "gaps": [{
                    "from": "2026-11-30T15:00:00.04+01:00",
                    "to": "2026-11-30T15:00:23+01:00",
                    "seconds": 22.96,
                }],
            })
        );
        let nothing = object(empty());
        assert_eq!((&nothing["from"], &nothing["recordings"]), (&json!(null), &json!([])));
        assert_eq!((&nothing["bytes"], &nothing["gaps"]), (&json!(0), &json!([])));
    }
}
