// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of `pagewire receive --config FILE` as streams of cameras.
//!
//! Settings at the top are defaults of all cameras; `[camera.NAME]` has those of one. Values are
//! checked where they stand, so that a fault of a default is reported once. The files that logins
//! need are read when the file itself has no fault.
//!
//! `camera_key` lists the keys; `camera_settings` reads the values of a table; `source`, `folders`
//! and `logins` have the rules between them.
//!
//! Sources: TOML 1.0. Does not open sources, and makes no folder: the recorder does.

mod camera_key;
mod camera_settings;
mod folders;
mod logins;
mod source;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::ClientLogin;
use receive::{Rotation, StreamOptions, StreamOutputFiles, StreamSource};
use recordings::{CameraFiles, Retention};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use self::camera_key::CameraKey;
use self::camera_settings::{CameraSettings, Placed, TableReader};
use self::folders::TopFolder;
use self::logins::SourcedCamera;
use self::source::CameraTable;
use super::FileText;
use super::faults::Faults;
use super::reader::{Expected, Reader, without_password};

/// Parses the text of a file of cameras; `base` is its folder. The streams are in the order of the
/// file.
///
/// # Errors
/// Every fault of the file, one text each, in order of lines.
pub(super) fn parse(file: &FileText, base: &Path) -> Result<Vec<StreamOptions>, Vec<String>> {
    let mut faults = Faults::new(&file.shown, &file.text);
    let described = described(file, base, &mut faults, true);
    // Logins of a file with faults might be those of other servers.
    let Some(found) = described.filter(|_| faults.is_empty()) else {
        return Err(faults.into_texts());
    };
    let Described { top, cameras, files, pins } = found;
    let logins = logins::logins(&mut faults, &cameras, &top, &pins);
    if !faults.is_empty() {
        return Err(faults.into_texts());
    }
    let all = cameras.iter().zip(files).zip(logins);
    Ok(all.map(|((camera, files), login)| stream(camera, files, login, &top)).collect())
}

/// Parses the same text for the files of the cameras alone: no password is read, and a folder may
/// be out of reach.
///
/// # Errors
/// As for [`parse`].
pub(super) fn parse_files(file: &FileText, base: &Path) -> Result<Vec<CameraFiles>, Vec<String>> {
    let mut faults = Faults::new(&file.shown, &file.text);
    let described = described(file, base, &mut faults, false).filter(|_| faults.is_empty());
    described.map(|found| found.files).ok_or_else(|| faults.into_texts())
}

/// The cameras of a file, before their logins are read.
struct Described {
    top: CameraSettings,
    cameras: Vec<SourcedCamera>,
    files: Vec<CameraFiles>,
    pins: logins::Pins,
}

fn described<'a>(
    file: &'a FileText,
    base: &Path,
    faults: &mut Faults<'a>,
    needs_folders: bool,
) -> Option<Described> {
    let text = &file.text;
    let table = super::grammar::parse(text, faults);
    if !faults.is_empty() {
        return None;
    }
    let mut reader = Reader { text, faults };
    let (top, tables) = tables(&mut reader, table.get_ref(), base);
    let mut of_folders = Faults::new(&file.shown, text);
    let top_folder = match needs_folders {
        true => TopFolder::new(faults, &top, base),
        false => TopFolder::new(&mut of_folders, &top, base),
    };
    let mut cameras = Vec::with_capacity(tables.len());
    let mut files = Vec::with_capacity(tables.len());
    for table in tables {
        let has_name = check_name(faults, &table);
        check_rotation(faults, &table.shown, &table.own);
        let folder = match has_name || table.own.folder.is_some() {
            true if needs_folders => table.folder(faults, &top_folder),
            true => table.folder(&mut of_folders, &top_folder),
            false => PathBuf::new(),
        };
        let Some(source) = table.source(faults) else { continue };
        table.check_fit(faults, &source, &top);
        let port = StreamSource::parse(&source.url).ok().filter(|_| source.is_udp);
        let is_same = |other: &&SourcedCamera| {
            port.is_some() && StreamSource::parse(&other.source.url).ok() == port
        };
        if let Some(other) = cameras.iter().find(is_same) {
            let fault =
                format!("{} has the same port; leave one of the two out", other.table.shown);
            table.refuse(faults, (CameraKey::Url, &source.place), &fault);
        }
        let camera = SourcedCamera { table, source };
        let mut of_camera = CameraFiles::new(camera.table.name.clone(), folder);
        set_files(&mut of_camera, &camera, &top);
        files.push(of_camera);
        cameras.push(camera);
    }
    check_privacy(faults, &cameras, file.mode_for_others);
    check_programs(faults, &cameras, &top, file.mode_for_others);
    let pins = logins::pins(faults, &cameras);
    Some(Described { top, cameras, files, pins })
}

/// Reads the defaults at the top and the tables of cameras, in the order of the file.
fn tables(
    reader: &mut Reader<'_, '_>,
    file: &DeTable<'_>,
    base: &Path,
) -> (CameraSettings, Vec<CameraTable>) {
    let mut top = CameraSettings::default();
    let mut tables = Vec::new();
    let mut has_cameras = false;
    for (key, value) in file {
        match CameraKey::named(key.get_ref()) {
            Some(known) if known.is_of_one_camera() => {
                let fault = "a setting of one camera; write it below its [camera.NAME]";
                reader.faults.add(Some(key.span()), known.fault("", fault));
            }
            Some(known) => TableReader { reader, table: "", base }.set(&mut top, known, value),
            None if key.get_ref() == CAMERA => {
                has_cameras = true;
                if let Some(cameras) = reader.table(CAMERA, value, Expected::Cameras) {
                    tables = camera_tables(reader, cameras, base);
                }
            }
            None => {
                top.has_unknown = true;
                let keys = CameraKey::ALL.iter().filter(|key| !key.is_of_one_camera());
                let known: Vec<&str> = keys.map(|key| key.name()).chain([CAMERA]).collect();
                reader.unknown("", key.get_ref(), key.span(), &known);
            }
        }
    }
    check_rotation(reader.faults, "", &top);
    if !has_cameras && !top.has_unknown {
        reader.faults.add(None, NO_CAMERA.to_owned());
    }
    (top, tables)
}

/// Reads all tables below `[camera]`.
fn camera_tables(
    reader: &mut Reader<'_, '_>,
    cameras: &DeTable<'_>,
    base: &Path,
) -> Vec<CameraTable> {
    let mut in_order: Vec<_> = cameras.iter().collect();
    in_order.sort_by_key(|(name, _)| name.span().start);
    if in_order.is_empty() {
        reader.faults.add(None, NO_CAMERA.to_owned());
    }
    if let Some((name, _)) = in_order.get(CAMERAS_MAX) {
        let count = in_order.len();
        let fault = format!("{CAMERA}: {count} cameras; write {CAMERAS_MAX} at most in a file");
        reader.faults.add(Some(name.span()), fault);
        in_order.truncate(CAMERAS_MAX);
    }
    in_order.into_iter().filter_map(|(name, value)| camera(reader, name, value, base)).collect()
}

/// Reads one table.
fn camera(
    reader: &mut Reader<'_, '_>,
    name: &Spanned<Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    base: &Path,
) -> Option<CameraTable> {
    let (place, name) = (name.span(), name.get_ref().clone().into_owned());
    let label = without_password(&name);
    let label = label.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX);
    let shown = format!("{CAMERA}.{}", label.collect::<String>());
    let table = reader.table(&shown, value, Expected::Cameras)?;
    let mut own = CameraSettings::default();
    for (key, value) in table {
        match CameraKey::named(key.get_ref()) {
            Some(known) => {
                TableReader { reader, table: &shown, base }.set(&mut own, known, value);
            }
            None => {
                own.has_unknown = true;
                let known: Vec<&str> = CameraKey::ALL.iter().map(|key| key.name()).collect();
                reader.unknown(&shown, key.get_ref(), key.span(), &known);
            }
        }
    }
    Some(CameraTable { name, shown, place, own })
}

/// Adds a fault of a name that cannot be that of a folder and of files; true without one.
fn check_name(faults: &mut Faults<'_>, table: &CameraTable) -> bool {
    let name = &table.name;
    let is_odd = |c: char| c.is_control() || "/{}".contains(c);
    let fault = if name.is_empty() {
        "no letter"
    } else if name.chars().count() > NAME_CHARS_MAX || name.len() > NAME_BYTES_MAX {
        "too long"
    } else if name.starts_with(['.', '-']) {
        "a dot or dash in front"
    } else if name.contains(is_odd) {
        "a letter that names of files do not have"
    } else {
        return true;
    };
    let cure = format!(
        "write a name of 1 to {NAME_CHARS_MAX} letters ({NAME_BYTES_MAX} bytes), without / {{ }} \
         and control characters"
    );
    faults.add(Some(table.place.clone()), format!("{}: {fault}; {cure}", table.shown));
    false
}

/// Adds a fault where a table has two rules for the length of files.
fn check_rotation(faults: &mut Faults<'_>, table: &str, settings: &CameraSettings) {
    let Some((minutes, length)) = settings.clock_minutes.as_ref().zip(settings.length.as_ref())
    else {
        return;
    };
    let (minutes, length) =
        ((CameraKey::RotateAtMinutes, &minutes.place), (CameraKey::RotateSeconds, &length.place));
    let is_in_order = minutes.1.start < length.1.start;
    let (first, (key, place)) = if is_in_order { (minutes, length) } else { (length, minutes) };
    let fault = format!("beside {}; leave one of the two out", first.0.name());
    faults.add(Some(place.clone()), key.fault(table, &fault));
}

/// Adds a fault where others can read a file with a password.
fn check_privacy(faults: &mut Faults<'_>, cameras: &[SourcedCamera], mode: Option<u32>) {
    let camera = cameras.iter().find(|camera| camera.source.has_password);
    let Some((SourcedCamera { table, source }, mode)) = camera.zip(mode) else { return };
    let fault = format!(
        "a password, and others can read this file (mode {mode:04o}); chmod 600 it, and change the \
         passwords that others may know"
    );
    table.refuse(faults, (CameraKey::Url, &source.place), &fault);
}

/// Adds a fault where others can write the programs that are run.
fn check_programs(
    faults: &mut Faults<'_>,
    cameras: &[SourcedCamera],
    top: &CameraSettings,
    mode: Option<u32>,
) {
    let of_camera = |camera: &SourcedCamera| {
        let own = camera.table.own.on_file.as_ref()?;
        Some((camera.table.shown.clone(), own.place.clone()))
    };
    let of_top = || Some((String::new(), top.on_file.as_ref()?.place.clone()));
    let program = cameras.iter().find_map(of_camera).or_else(of_top);
    let Some(((table, place), mode)) = program.zip(mode.filter(|mode| mode & WRITABLE != 0)) else {
        return;
    };
    let fault = format!("others can write this file (mode {mode:04o}); chmod go-w it");
    faults.add(Some(place), CameraKey::OnFile.fault(&table, &fault));
}

/// Sets the rules of a camera's files.
fn set_files(files: &mut CameraFiles, camera: &SourcedCamera, top: &CameraSettings) {
    let SourcedCamera { table: CameraTable { own, .. }, source } = camera;
    let form = own.is_mp4.as_ref().or(top.is_mp4.as_ref());
    files.is_mp4 = !source.is_udp && form.is_none_or(|form| form.value);
    files.clock_minutes = match rotation(own, top) {
        (None, None) => Some(CLOCK_MINUTES_USUAL),
        (minutes, _) => minutes.map(|minutes| minutes.value),
    };
    if let Some(zone) = own.time_zone.as_ref().or(top.time_zone.as_ref()) {
        files.time_zone = zone.value.clone();
    }
    files.retention = Retention {
        age: inherited(&own.keep_age, &top.keep_age),
        bytes: inherited(&own.keep_bytes, &top.keep_bytes),
        free_bytes: inherited(&own.keep_free_bytes, &top.keep_free_bytes),
    };
    files.on_file = inherited(&own.on_file, &top.on_file).unwrap_or_default();
}

/// Returns the camera's rule for the length of files: either of its own replaces both defaults.
fn rotation<'s>(
    own: &'s CameraSettings,
    top: &'s CameraSettings,
) -> (Option<&'s Placed<u32>>, Option<&'s Placed<Duration>>) {
    let has_own = own.clock_minutes.is_some() || own.length.is_some();
    let of = if has_own { own } else { top };
    (of.clock_minutes.as_ref(), of.length.as_ref())
}

fn stream(
    camera: &SourcedCamera,
    files: CameraFiles,
    (url, login): (String, ClientLogin),
    top: &CameraSettings,
) -> StreamOptions {
    let SourcedCamera { table, source } = camera;
    let mut stream = StreamOptions::new(url);
    stream.login = login;
    stream.output = StreamOutputFiles::Camera(Box::new(files));
    stream.rotation = Rotation {
        bytes: inherited(&table.own.file_bytes, &top.file_bytes),
        time: rotation(&table.own, top).1.map(|length| length.value),
        ..Rotation::default()
    };
    stream.transport = table.transport(source, top);
    stream.media = inherited(&table.own.media, &top.media).unwrap_or_default();
    stream.live = true;
    stream
}

/// Returns a camera's own value, or else the default at the top.
fn inherited<T: Clone>(own: &Option<Placed<T>>, top: &Option<Placed<T>>) -> Option<T> {
    own.as_ref().or(top.as_ref()).map(|placed| placed.value.clone())
}

/// Bits of a mode with which others can write a file.
const WRITABLE: u32 = 0o022;
const CAMERA: &str = "camera";
const NO_CAMERA: &str = "camera: no camera; write a table [camera.NAME] for each";
/// Most cameras of a recorder.
const CAMERAS_MAX: usize = 1000;
const NAME_CHARS_MAX: usize = 64;
/// A name of a file has 255 bytes, with a time and an ending behind that of the camera.
const NAME_BYTES_MAX: usize = 200;
/// Minutes of a file where neither a clock nor a length is written.
const CLOCK_MINUTES_USUAL: u32 = 60;

#[cfg(test)]
mod tests;
