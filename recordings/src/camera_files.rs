// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a camera that is recorded for long: their names, which tell their start, and the
//! rules by which they are begun, kept and deleted.
//!
//! A file is `CAMERA-TIME.mp4` or `.ts` in the camera's folder, with the time of its start, to the
//! nearest second, in the camera's time zone: `door-20261130T140000+0100.mp4`, or with `Z` for UTC.
//! A second file of the same second is `…-2.mp4`. Only names of this form are a camera's files:
//! nothing else in its folder is ever deleted.
//!
//! Sources: ISO 8601 (basic format). Does not delete: the recorder's keeper does.

use std::fs::DirBuilder;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::fmt::strtime;
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Unit};
use media::mux::WriterKind;

/// The files of a camera.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CameraFiles {
    /// Name of the camera; without `/` and braces.
    pub camera: String,
    /// Folder of the files, which is made if it is missing; the folder above it exists.
    pub folder: PathBuf,
    /// Fragmented MP4, or a transport stream.
    pub is_mp4: bool,
    /// A file ends at the first place where play can start once the clock shows a multiple of this
    /// many minutes since midnight; a divisor of a day.
    pub clock_minutes: Option<u32>,
    /// Time zone of that clock, and of names.
    pub time_zone: TimeZone,
    /// Files to keep.
    pub retention: Retention,
    /// Program that is run with each complete file, and its arguments; empty for none. `{file}` and
    /// `{camera}` are filled in.
    pub on_file: Vec<String>,
}

/// Limits of the files that are kept. The oldest are deleted first; a file that is being written
/// never is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Time from the end of a file until it is deleted.
    pub age: Option<Duration>,
    /// Most bytes of all files of the camera.
    pub bytes: Option<u64>,
    /// Bytes of the disk that are left free.
    pub free_bytes: Option<u64>,
}

impl CameraFiles {
    /// Files of MP4 without limits, in a folder, with times in UTC.
    pub fn new(camera: String, folder: PathBuf) -> CameraFiles {
        CameraFiles {
            camera,
            folder,
            is_mp4: true,
            clock_minutes: None,
            time_zone: TimeZone::UTC,
            retention: Retention::default(),
            on_file: Vec::new(),
        }
    }

    /// Pattern of the files' names.
    pub fn pattern(&self) -> String {
        format!("{}-{{time}}.{}", self.camera, self.extension())
    }

    /// Parses the name at the end of a path.
    pub fn parse_path(&self, path: &Path) -> Option<FileStartName> {
        self.parse_name(path.file_name()?.to_str()?)
    }

    /// Parses the name of a file of this camera, of any container.
    pub fn parse_name(&self, name: &str) -> Option<FileStartName> {
        let rest = name.strip_prefix(&*self.camera)?.strip_prefix('-')?;
        let (stem, extension) = rest.split_once('.')?;
        if !EXTENSIONS.contains(&extension) {
            return None;
        }
        let (time, copy) = match stem.get(TIME_BYTES..).and_then(|end| end.find(['+', '-', 'Z'])) {
            Some(0) => {
                let zone_bytes = if stem.as_bytes()[TIME_BYTES] == b'Z' { 1 } else { OFFSET_BYTES };
                stem.split_at_checked(TIME_BYTES + zone_bytes)?
            }
            _ => return None,
        };
        let is_copy = |number: &u32| *number > 1 && copy[1..] == number.to_string();
        let copy = match copy.strip_prefix('-') {
            Some(number) => number.parse().ok().filter(is_copy)?,
            None if copy.is_empty() => 1,
            None => return None,
        };
        let (began, offset_s) = parse_time(time)?;
        Some(FileStartName { began, copy, is_mp4: extension == EXTENSIONS[0], offset_s })
    }

    /// The container of the files.
    pub fn kind(&self) -> WriterKind {
        if self.is_mp4 { WriterKind::FragmentedMp4 } else { WriterKind::TransportStream }
    }

    fn extension(&self) -> &'static str {
        if self.is_mp4 { "mp4" } else { "ts" }
    }
}

/// The start of a file, as its name tells it. In the order of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileStartName {
    /// To the second.
    pub began: Timestamp,
    /// 1, or the number behind a name that was taken.
    pub copy: u32,
    /// Fragmented MP4, or a transport stream.
    pub is_mp4: bool,
    /// Offset of the time zone.
    pub offset_s: i32,
}

/// Formats the start of a file, to the nearest second.
pub fn shown_time(began: SystemTime, zone: &TimeZone) -> String {
    let began = Timestamp::try_from(began).unwrap_or(Timestamp::UNIX_EPOCH);
    let began = began.round(Unit::Second).unwrap_or(began);
    let format = if *zone == TimeZone::UTC { UTC_FORMAT } else { FORMAT };
    began.to_zoned(zone.clone()).strftime(format).to_string()
}

/// Parses a time in the format of [`shown_time`], and no other; returns its offset in seconds, too.
fn parse_time(text: &str) -> Option<(Timestamp, i32)> {
    let utc = text.strip_suffix('Z').map(|time| format!("{time}+0000"));
    let parsed = strtime::parse(FORMAT, utc.as_deref().unwrap_or(text)).ok()?;
    let (began, offset) = (parsed.to_timestamp().ok()?, parsed.offset()?);
    let format = if utc.is_some() { UTC_FORMAT } else { FORMAT };
    let shown = began.to_zoned(TimeZone::fixed(offset)).strftime(format).to_string();
    let is_own = OFFSETS.contains(&offset) && shown == text;
    is_own.then_some((began, offset.seconds()))
}

/// Makes the folder of a camera, if it is missing.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        made => made,
    }
}

const EXTENSIONS: [&str; 2] = ["mp4", "ts"];
const UTC_FORMAT: &str = "%Y%m%dT%H%M%SZ";
const FORMAT: &str = "%Y%m%dT%H%M%S%z";
/// `20261130T140000`, and `+0100` behind it.
const TIME_BYTES: usize = 15;
const OFFSET_BYTES: usize = 5;
/// Offsets of time zones.
const OFFSETS: RangeInclusive<Offset> = Offset::constant(-12)..=Offset::constant(14);

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn door() -> CameraFiles {
        CameraFiles::new("door".to_owned(), "/srv".into())
    }

    #[test]
    fn times_are_those_of_the_calendar_to_the_nearest_second() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let at = |millis| UNIX_EPOCH + Duration::from_millis(millis);
        let utc = |millis| shown_time(at(millis), &TimeZone::UTC);
        assert_eq!(utc(0), "19700101T000000Z");
        assert_eq!(utc(951_782_399_000), "20000228T235959Z");
        assert_eq!(utc(951_782_399_500), "20000229T000000Z");
        assert_eq!(utc(1_709_164_800_499), "20240229T000000Z");
        assert_eq!(utc(4_107_542_400_000), "21000301T000000Z");
        assert_eq!(shown_time(at(1_796_043_600_000), &berlin), "20261130T140000+0100");
        // The hour that comes twice.
        assert_eq!(shown_time(at(1_792_888_200_000), &berlin), "20261025T023000+0200");
        assert_eq!(shown_time(at(1_792_891_800_000), &berlin), "20261025T023000+0100");
    }

    #[test]
    fn names_tell_the_start_and_only_those_of_the_camera_do() {
        let named =
            |name: &str| door().parse_name(name).map(|start| (start.began.to_string(), start.copy));
        let at = |time: &str, copy| Some((time.to_owned(), copy));
        for (name, found) in [
            ("door-20261130T140000Z.mp4", at("2026-11-30T14:00:00Z", 1)),
            ("door-20261130T140000Z-2.ts", at("2026-11-30T14:00:00Z", 2)),
            ("door-20261130T140000+0100.mp4", at("2026-11-30T13:00:00Z", 1)),
            ("door-20261130T140000-0330-12.mp4", at("2026-11-30T17:30:00Z", 12)),
            ("door-20261130T140000+0000.mp4", at("2026-11-30T14:00:00Z", 1)),
            ("door-20261130T140000Z-1.mp4", None),
            ("door-20261130T140000Z-02.mp4", None),
            ("door-20261130T140000Z-+2.mp4", None),
            ("door--2026113T140000Z.mp4", None),
            ("door-+2026113T140000Z.mp4", None),
            ("door-20261130t140000Z.mp4", None),
            ("door-20261130T14 000Z.mp4", None),
            ("door-20261130T140060Z.mp4", None),
            ("door-20261130T140000-0000.mp4", None),
            ("door-20261130T140000+2500.mp4", None),
            ("door-20261130T240000Z.mp4", None),
            ("door-20261130T140000Z-.mp4", None),
            ("door-20261130T140000Z-x.mp4", None),
            ("door-20261130T140000Z.mkv", None),
            ("door-20261130T140000Z.mp4.part", None),
            ("door-20261330T140000Z.mp4", None),
            ("door-20261130T140000.mp4", None),
            ("door-20261130T140000+01.mp4", None),
            ("door-2-20261130T140000Z.mp4", None),
            ("yard-20261130T140000Z.mp4", None),
            ("door-20261130T140000Zé.mp4", None),
            ("door-2026113éT140000Z.mp4", None),
            ("door-.mp4", None),
            ("door", None),
        ] {
            assert_eq!(named(name), found, "{name}");
        }
        for zone in ["America/St_Johns", "Europe/London", "Etc/UTC", "UTC", "Asia/Kathmandu"] {
            let zone = TimeZone::get(zone).unwrap();
            let began = UNIX_EPOCH + Duration::from_secs(1_796_043_600);
            let name = door().pattern().replace("{time}", &shown_time(began, &zone));
            let start = door().parse_name(&name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(SystemTime::from(start.began), began, "{name}");
        }
    }
}
