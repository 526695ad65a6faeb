// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of the recorded files, made from a pattern.
//!
//! `{stream}` is the source's label, `{index}` its position in the list of URLs, `{number}` counts
//! a stream's files, `{time}` is the start of the file in UTC, to the nearest second
//! (`20261121T133923Z`), so that names sort by time. Files of cameras that are recorded for long
//! have names of one form ([`CameraFiles`]). If a name exists, the new file gets `-2`,
//! `-3` and so on before its extension: a recording never overwrites a file. A pipe or a device
//! that the pattern names without placeholders is opened as it is, and is the stream's only file. A
//! pipe at a generated name belongs to another program and counts as an existing name: opening a
//! pipe without a reader would block for ever.
//!
//! Sources: ISO 8601 (basic format); open(2) O_EXCL.
//! Does not make folders, except that of a camera when it was removed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::tz::TimeZone;
use media::mux::WriterKind;

use recordings::CameraFiles;

use crate::error::{Error, RecordSetting};

/// Names of one stream's files.
#[derive(Debug, Clone)]
pub(crate) struct FileNames {
    folder: PathBuf,
    /// Pattern of the names in the folder.
    pattern: String,
    time_zone: TimeZone,
    label: String,
    index: usize,
    number: u64,
    /// Device of a camera's folder, which is made again on this disk if somebody removes it: never
    /// on another, while its disk is not mounted.
    device: Option<u64>,
}

/// A newly created file of a recording.
#[derive(Debug)]
pub(crate) struct CreatedFile {
    pub(crate) file: File,
    /// Absolute path without symbolic links, for a regular file.
    pub(crate) path: PathBuf,
    /// True for a regular file, which can be cut, synced and indexed.
    pub(crate) is_regular: bool,
}

impl FileNames {
    pub(crate) fn new(pattern: &str, label: &str, index: usize) -> FileNames {
        let (folder, pattern) = pattern.split_at(pattern.rfind('/').map_or(0, |at| at + 1));
        FileNames {
            folder: folder.into(),
            pattern: pattern.to_owned(),
            time_zone: TimeZone::UTC,
            label: label.to_owned(),
            index,
            number: 0,
            device: None,
        }
    }

    /// Names of a camera's files.
    pub(crate) fn of_camera(files: &CameraFiles) -> FileNames {
        FileNames {
            folder: files.folder.clone(),
            pattern: files.pattern(),
            time_zone: files.time_zone.clone(),
            label: String::new(),
            index: 0,
            number: 0,
            device: fs::metadata(&files.folder).ok().map(|about| about.dev()),
        }
    }

    /// Creates the next file, which begins at `began`.
    pub(crate) fn make(&mut self, began: SystemTime) -> io::Result<CreatedFile> {
        self.number += 1;
        let wanted = self.folder.join(self.name(began));
        let is_written_out = self.number == 1 && !self.pattern.contains('{');
        if is_written_out
            && let Ok(found) = fs::metadata(&wanted)
            && (found.file_type().is_fifo() || found.file_type().is_char_device())
        {
            let file = OpenOptions::new().write(true).open(&wanted)?;
            return Ok(CreatedFile { file, path: wanted, is_regular: false });
        }
        let device_of = |folder: &Path| fs::metadata(folder).ok().map(|about| about.dev());
        if self.device.is_some()
            && device_of(&self.folder).is_none()
            && self.folder.parent().and_then(device_of) == self.device
        {
            recordings::make_folder(&self.folder)?;
        }
        for attempt in 1..=ATTEMPTS_MAX {
            let path = alternative(&wanted, attempt);
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    // Servers distinguish a recording from a complete file by this lock, even when
                    // this program is killed. Without locks, a file is served only once it is
                    // complete.
                    if let Err(error) = paths::lock_to_write(&file) {
                        let shown = path.display();
                        tracing::info!(
                            "fcntl F_OFD_SETLK {shown}: {error}; no server follows it as it grows"
                        );
                    }
                    let path = path.canonicalize()?;
                    return Ok(CreatedFile { file, path, is_regular: true });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Folder of the files; empty for the current one.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn name(&self, began: SystemTime) -> String {
        self.pattern
            .replace("{index}", &self.index.to_string())
            .replace("{number}", &format!("{:06}", self.number))
            .replace("{time}", &recordings::shown_time(began, &self.time_zone))
            .replace("{stream}", &self.label)
    }
}

/// Refuses a pattern that names no file or contains an unknown placeholder; `streams` have it.
pub(crate) fn check(pattern: &str, streams: usize) -> Result<(), Error> {
    let wrong = |cure: &str| {
        let (found, cure) = (pattern.to_owned(), cure.to_owned());
        Err(Error::Setting { setting: RecordSetting::Output, found, cure })
    };
    let rest = WORDS.iter().fold(pattern.to_owned(), |rest, word| rest.replace(word, ""));
    if rest.contains(['{', '}']) {
        return wrong("between braces write stream, index, number or time");
    }
    if pattern.is_empty() || pattern.ends_with('/') || Path::new(pattern).is_dir() {
        return wrong("write a file's name, such as FOLDER/{stream}-{time}.ts");
    }
    if streams > 1 && !["{stream}", "{index}"].iter().any(|word| pattern.contains(word)) {
        return wrong("with several streams write {stream} or {index} somewhere in it");
    }
    let extension = Path::new(pattern).extension().unwrap_or_default().to_string_lossy();
    if OTHER_FORMATS.iter().any(|other| extension.eq_ignore_ascii_case(other)) {
        return wrong(
            "name recordings .ts (transport streams), or .mp4 (fragmented MP4, for the tracks of \
             cameras)",
        );
    }
    let folder = Path::new(pattern).parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if folder.to_string_lossy().contains('{') => {
            wrong("write the words in braces into the file's name, not the folder's")
        }
        Some(folder) if !folder.is_dir() => wrong("name a folder that exists"),
        _ => Ok(()),
    }
}

/// The kind of the files: fragmented MP4 by its extensions, else transport streams.
pub(crate) fn kind(pattern: &str) -> WriterKind {
    WriterKind::of_name(Path::new(pattern)).unwrap_or(WriterKind::TransportStream)
}

/// Extensions of media that are not recorded.
const OTHER_FORMATS: &[&str] =
    &["mov", "mkv", "mka", "webm", "avi", "flv", "mp3", "aac", "wav", "ogg", "opus"];

/// Returns the name with a number before its extension, from the second attempt on.
fn alternative(path: &Path, attempt: u32) -> PathBuf {
    if attempt == 1 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map(|e| format!(".{}", e.to_string_lossy()));
    path.with_file_name(format!("{stem}-{attempt}{}", extension.unwrap_or_default()))
}

const WORDS: &[&str] = &["{stream}", "{index}", "{number}", "{time}"];
const ATTEMPTS_MAX: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let pattern = folder.path().join("{stream}.{number}.ts");
        let mut names = FileNames::new(pattern.to_str().unwrap(), "a", 0);
        let mut again = names.clone();
        let name =
            |made: CreatedFile| made.path.file_name().unwrap().to_string_lossy().into_owned();
        let now = SystemTime::now();
        assert_eq!(name(names.make(now).unwrap()), "a.000001.ts");
        assert_eq!(name(names.make(now).unwrap()), "a.000002.ts");
        assert_eq!(name(again.make(now).unwrap()), "a.000001-2.ts");
    }

    #[test]
    fn the_folder_of_a_camera_is_made_again_on_its_disk_alone() {
        let top = tempfile::tempdir().unwrap();
        let files = CameraFiles::new("door".to_owned(), top.path().join("door"));
        fs::create_dir(&files.folder).unwrap();
        let mut names = FileNames::of_camera(&files);
        fs::remove_dir(&files.folder).unwrap();
        let made = names.make(SystemTime::UNIX_EPOCH).unwrap();
        assert!(made.path.ends_with("door/door-19700101T000000Z.mp4"), "{made:?}");
        fs::remove_dir_all(&files.folder).unwrap();
        names.device = names.device.map(|device| device + 1);
        let refused = names.make(SystemTime::UNIX_EPOCH).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        assert!(!files.folder.exists());
    }

    #[test]
    fn a_pipe_is_written_to_only_where_its_name_was_written_out() {
        use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let now = SystemTime::now();
        for name in ["rec-000002.ts", "rec.ts"] {
            mkfifoat(CWD, at(name), Mode::RUSR | Mode::WUSR).unwrap();
        }
        let mut names = FileNames::new(at("rec-{number}.ts").to_str().unwrap(), "a", 0);
        names.make(now).unwrap();
        let second = names.make(now).unwrap();
        assert!(second.is_regular && second.path.ends_with("rec-000002-2.ts"), "{second:?}");

        let mut names = FileNames::new(at("rec.ts").to_str().unwrap(), "a", 0);
        // The pipe has a reader, so that opening it succeeds.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let _reader = open(at("rec.ts"), flags, Mode::empty()).unwrap();
        assert!(!names.make(now).unwrap().is_regular);
        // A later file of the stream is never the pipe.
        let second = names.make(now).unwrap();
        assert!(second.is_regular && second.path.ends_with("rec-2.ts"), "{second:?}");
    }

    #[test]
    fn patterns_that_cannot_be_are_refused_with_a_cure() {
        let cure = |pattern: &str, streams| check(pattern, streams).unwrap_err().to_string();
        assert!(check("{stream}-{time}.ts", 2).is_ok() && check("a.ts", 1).is_ok());
        assert!(cure("a.ts", 2).contains("{stream} or {index}"));
        assert!(cure("{name}.ts", 1).contains("between braces"));
        assert!(cure("nowhere/a.ts", 1).contains("a folder that exists"));
        assert!(cure("{stream}/a.ts", 1).contains("not the folder's"));
        assert!(cure("a.MKV", 1).contains("name recordings .ts"));
        assert_eq!(kind("a-{time}.MP4"), WriterKind::FragmentedMp4);
        assert_eq!(kind("a.mp4.ts"), WriterKind::TransportStream);
        assert!(cure("", 1).contains("a file's name") && cure(".", 1).contains("a file's name"));
    }
}
