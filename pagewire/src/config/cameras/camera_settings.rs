// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the settings of one table: those of a camera, or the defaults at the top.
//!
//! Each value is checked for itself here; the rules between settings are in `source`, `folders` and
//! `logins`. A fault shows a value without the password of a URL, whichever key the URL stands at.
//!
//! Sources: tz database (names of time zones). Does not open files of credentials and certificates
//! ([`super::logins`] does).

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{CertificateFingerprint, RecordedMedia, StreamTransport, TransportChoice};
use jiff::tz::TimeZone;
use toml::Spanned;
use toml::de::DeValue;

use super::super::reader::{Expected, Reader};
use super::camera_key::CameraKey;
use crate::server_trust::fingerprint_alone;

/// A value, and the bytes of the file that it stands at.
#[derive(Clone)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) place: Range<usize>,
}

/// Settings of a table; `None` where a key is not there or its value has a fault.
#[derive(Default)]
pub(super) struct CameraSettings {
    pub(super) url: Option<Placed<String>>,
    pub(super) sdp: Option<Placed<PathBuf>>,
    pub(super) folder: Option<Placed<PathBuf>>,
    /// True for MP4, false for a transport stream.
    pub(super) is_mp4: Option<Placed<bool>>,
    pub(super) transport: Option<Placed<TransportChoice>>,
    pub(super) media: Option<Placed<RecordedMedia>>,
    pub(super) credentials: Option<Placed<PathBuf>>,
    pub(super) allow_basic: Option<Placed<bool>>,
    pub(super) ca: Option<Placed<PathBuf>>,
    pub(super) fingerprint: Option<Placed<CertificateFingerprint>>,
    pub(super) clock_minutes: Option<Placed<u32>>,
    pub(super) length: Option<Placed<Duration>>,
    pub(super) file_bytes: Option<Placed<u64>>,
    pub(super) time_zone: Option<Placed<TimeZone>>,
    pub(super) keep_age: Option<Placed<Duration>>,
    pub(super) keep_bytes: Option<Placed<u64>>,
    pub(super) keep_free_bytes: Option<Placed<u64>>,
    pub(super) on_file: Option<Placed<Vec<String>>>,
    /// Keys with a fault. One that seems missing may be one of them, or the unknown key.
    pub(super) unread: Vec<CameraKey>,
    pub(super) has_unknown: bool,
}

/// Returns the place of a setting that was read.
pub(super) fn place_of<T>(setting: &Option<Placed<T>>) -> Option<&Range<usize>> {
    setting.as_ref().map(|placed| &placed.place)
}

impl CameraSettings {
    /// True if the value of one of these keys has a fault, or an unknown key may be one of them.
    pub(super) fn may_have(&self, keys: &[CameraKey]) -> bool {
        self.has_unknown || keys.iter().any(|key| self.unread.contains(key))
    }
}

/// Reads the values of one table.
pub(super) struct TableReader<'r, 'a, 'f> {
    pub(super) reader: &'r mut Reader<'a, 'f>,
    /// `camera.NAME`; empty for the top.
    pub(super) table: &'r str,
    /// Folder of the file, which relative paths are relative to.
    pub(super) base: &'r Path,
}

type Value<'v> = Spanned<DeValue<'v>>;

impl TableReader<'_, '_, '_> {
    /// Reads the value of a key.
    pub(super) fn set(&mut self, settings: &mut CameraSettings, key: CameraKey, value: &Value<'_>) {
        if self.value(settings, key, value).is_none() {
            settings.unread.push(key);
        }
    }

    /// Reads a value; returns none after a fault.
    fn value(
        &mut self,
        settings: &mut CameraSettings,
        key: CameraKey,
        value: &Value<'_>,
    ) -> Option<()> {
        match key {
            CameraKey::Url => settings.url = placed(self.text(key, value)?, value),
            CameraKey::Sdp => settings.sdp = placed(self.description(key, value)?, value),
            CameraKey::Folder => settings.folder = placed(self.path(key, value)?, value),
            CameraKey::Form => settings.is_mp4 = placed(self.form(key, value)?, value),
            CameraKey::Transport => {
                settings.transport = placed(self.transport(key, value)?, value);
            }
            CameraKey::Tracks => settings.media = placed(self.media(key, value)?, value),
            CameraKey::Credentials => settings.credentials = placed(self.path(key, value)?, value),
            CameraKey::AllowBasic => {
                let switch = self.reader.switch(&key.shown(self.table), value)?;
                settings.allow_basic = placed(switch, value);
            }
            CameraKey::Ca => settings.ca = placed(self.path(key, value)?, value),
            CameraKey::Fingerprint => {
                settings.fingerprint = placed(self.fingerprint(key, value)?, value);
            }
            CameraKey::RotateAtMinutes => {
                settings.clock_minutes = placed(self.clock_minutes(key, value)?, value);
            }
            CameraKey::RotateSeconds => {
                let length = self.time(key, value, Expected::Seconds, 1, SECONDS_MAX)?;
                settings.length = placed(length, value);
            }
            CameraKey::RotateBytes => {
                settings.file_bytes = placed(self.file_bytes(key, value)?, value);
            }
            CameraKey::TimeZone => settings.time_zone = placed(self.time_zone(key, value)?, value),
            CameraKey::KeepDays => {
                let age = self.time(key, value, Expected::Amount, DAY_S, DAYS_MAX)?;
                settings.keep_age = placed(age, value);
            }
            CameraKey::KeepGb => settings.keep_bytes = placed(self.bytes(key, value)?, value),
            CameraKey::KeepFreeGb => {
                settings.keep_free_bytes = placed(self.bytes(key, value)?, value);
            }
            CameraKey::OnFile => settings.on_file = placed(self.program(key, value)?, value),
        }
        Some(())
    }

    /// Adds a fault at a place; returns none, so that the setting counts as unread.
    fn refuse<T>(&mut self, key: CameraKey, place: Range<usize>, fault: &str) -> Option<T> {
        self.reader.faults.add(Some(place), key.fault(self.table, fault));
        None
    }

    fn text(&mut self, key: CameraKey, value: &Value<'_>) -> Option<String> {
        self.reader.text(&key.shown(self.table), value)
    }

    /// Returns a path joined to the folder of the file.
    fn path(&mut self, key: CameraKey, value: &Value<'_>) -> Option<PathBuf> {
        let text = self.text(key, value)?;
        let kind = if key == CameraKey::Folder { "folder" } else { "file" };
        if text.is_empty() {
            return self.refuse(key, value.span(), &format!("empty; name a {kind}"));
        }
        if text.contains("://") {
            let fault = format!("{}: an address; name a {kind}", shown(&text));
            return self.refuse(key, value.span(), &fault);
        }
        Some(self.base.join(text))
    }

    /// Returns the path of a session description that exists.
    fn description(&mut self, key: CameraKey, value: &Value<'_>) -> Option<PathBuf> {
        let path = self.path(key, value)?;
        let found = match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => "a folder".to_owned(),
            Ok(metadata) if !metadata.is_file() => "a pipe or a device".to_owned(),
            Ok(_) => return Some(path),
            Err(error) => without_code(&error),
        };
        let fault = format!("{}: {found}; name a file of a session description", path.display());
        self.refuse(key, value.span(), &fault)
    }

    fn form(&mut self, key: CameraKey, value: &Value<'_>) -> Option<bool> {
        match &*self.text(key, value)? {
            "mp4" => Some(true),
            "ts" => Some(false),
            other => {
                let fault = format!("{}: no such form; write mp4 or ts", shown(other));
                self.refuse(key, value.span(), &fault)
            }
        }
    }

    fn transport(&mut self, key: CameraKey, value: &Value<'_>) -> Option<TransportChoice> {
        let text = self.text(key, value)?;
        match text.parse() {
            Ok(TransportChoice::Only(StreamTransport::Multicast)) => {
                let cure = "write auto, udp, tcp or http; a group is recorded by udp://GROUP:PORT";
                self.refuse(key, value.span(), &format!("multicast; {cure}"))
            }
            Ok(transport) => Some(transport),
            Err(fault) => self.refuse_text(key, value, &text, &fault),
        }
    }

    fn media(&mut self, key: CameraKey, value: &Value<'_>) -> Option<RecordedMedia> {
        let text = self.text(key, value)?;
        match text.parse() {
            Ok(media) => Some(media),
            Err(fault) => self.refuse_text(key, value, &text, &fault),
        }
    }

    fn fingerprint(&mut self, key: CameraKey, value: &Value<'_>) -> Option<CertificateFingerprint> {
        let text = self.text(key, value)?;
        match fingerprint_alone(&text) {
            Ok(fingerprint) => Some(fingerprint),
            Err(fault) => self.refuse_text(key, value, &text, &fault),
        }
    }

    /// Adds the fault of a parser, which may begin with the value.
    fn refuse_text<T>(
        &mut self,
        key: CameraKey,
        value: &Value<'_>,
        text: &str,
        fault: &str,
    ) -> Option<T> {
        let rest = fault.strip_prefix(text).and_then(|rest| rest.strip_prefix(": "));
        let fault = match rest {
            Some(rest) if rest.starts_with("write ") => format!("{}; {rest}", shown(text)),
            Some(rest) => format!("{}: {rest}", shown(text)),
            None => format!("{}; {fault}", shown(text)),
        };
        self.refuse(key, value.span(), &fault)
    }

    fn clock_minutes(&mut self, key: CameraKey, value: &Value<'_>) -> Option<u32> {
        let minutes = self.reader.number(&key.shown(self.table), value)?;
        match u32::try_from(minutes) {
            Ok(minutes @ 1..=DAY_MINUTES) if DAY_MINUTES.is_multiple_of(minutes) => Some(minutes),
            _ => {
                let fault = format!(
                    "{minutes}: no divisor of the {DAY_MINUTES} minutes of a day; write 1 to \
                     {DAY_MINUTES}, such as 15, 60 or {DAY_MINUTES}"
                );
                self.refuse(key, value.span(), &fault)
            }
        }
    }

    /// Reads a time above zero, in units of `unit_s` seconds and at most `most` of them.
    fn time(
        &mut self,
        key: CameraKey,
        value: &Value<'_>,
        expected: Expected,
        unit_s: u32,
        most: u32,
    ) -> Option<Duration> {
        let number = self.decimal(key, value, expected, most)?;
        match Duration::try_from_secs_f64(number * f64::from(unit_s)) {
            Ok(time) if !time.is_zero() => Some(time),
            _ => self.refuse_decimal(key, value, number, most),
        }
    }

    /// Reads a size above zero in gigabytes of 10⁹ bytes.
    fn bytes(&mut self, key: CameraKey, value: &Value<'_>) -> Option<u64> {
        let number = self.decimal(key, value, Expected::Amount, GB_MAX)?;
        // In range: a conversion saturates.
        match (number * GB).round() as u64 {
            0 => self.refuse_decimal(key, value, number, GB_MAX),
            bytes => Some(bytes),
        }
    }

    /// Reads a number above zero that may have decimals.
    fn decimal(
        &mut self,
        key: CameraKey,
        value: &Value<'_>,
        expected: Expected,
        most: u32,
    ) -> Option<f64> {
        let number = self.reader.decimal_of(&key.shown(self.table), value, expected)?;
        match number > 0.0 && number <= f64::from(most) {
            true => Some(number),
            false => self.refuse_decimal(key, value, number, most),
        }
    }

    fn refuse_decimal<T>(
        &mut self,
        key: CameraKey,
        value: &Value<'_>,
        number: f64,
        most: u32,
    ) -> Option<T> {
        let fault = format!("{number}; write a number above 0, at most {most}");
        self.refuse(key, value.span(), &fault)
    }

    fn file_bytes(&mut self, key: CameraKey, value: &Value<'_>) -> Option<u64> {
        let number = self.reader.number(&key.shown(self.table), value)?;
        match u64::try_from(number) {
            Ok(bytes @ FILE_BYTES_MIN..) => Some(bytes),
            _ => {
                let fault = format!("{number}; write {FILE_BYTES_MIN} or more");
                self.refuse(key, value.span(), &fault)
            }
        }
    }

    fn time_zone(&mut self, key: CameraKey, value: &Value<'_>) -> Option<TimeZone> {
        let name = self.text(key, value)?;
        if let Ok(zone) = TimeZone::get(&name) {
            return Some(zone);
        }
        let fault = format!(
            "{}: no time zone that this machine or this program has; write an IANA name such as \
             Europe/Berlin (timedatectl list-timezones lists them)",
            shown(&name)
        );
        self.refuse(key, value.span(), &fault)
    }

    /// Reads a program and its arguments.
    fn program(&mut self, key: CameraKey, value: &Value<'_>) -> Option<Vec<String>> {
        let count = value.get_ref().as_array().map_or(1, |items| items.len());
        let texts = self.reader.texts(&key.shown(self.table), value);
        if texts.len() < count {
            return None;
        }
        let cure = "write a program and its arguments, such as [\"/usr/local/bin/upload\", \
                    \"{file}\"]";
        let place = texts.first().map_or(value.span(), |(_, place)| place.clone());
        let has_nul = texts.iter().any(|(text, _)| text.contains('\0'));
        let mut words: Vec<String> = texts.into_iter().map(|(text, _)| text).collect();
        let Some(program) = words.first_mut().filter(|program| !program.is_empty()) else {
            return self.refuse(key, place, &format!("no program; {cure}"));
        };
        if has_nul {
            return self.refuse(key, place, "a NUL character; leave it out");
        }
        // A name without a slash is looked for in PATH when it is run.
        if program.contains('/') {
            let path = self.base.join(&*program);
            if let Err(found) = check_program(&path) {
                return self.refuse(key, place, &format!("{}: {found}", shown(program)));
            }
            let Ok(path) = path.into_os_string().into_string() else {
                let fault = "below a folder whose name is not UTF-8; write an absolute path";
                return self.refuse(key, place, &format!("{}: {fault}", shown(program)));
            };
            *program = path;
        }
        Some(words)
    }
}

/// Checks that a file can be run.
fn check_program(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err("a folder; name a program".to_owned()),
        Ok(metadata) if metadata.mode() & RUNNABLE == 0 => {
            Err("not executable; chmod +x it, or name another".to_owned())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{}; name a program that is there", without_code(&error))),
    }
}

/// Returns the text of an error without its number.
pub(super) fn without_code(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

fn placed<T>(value: T, at: &Value<'_>) -> Option<Placed<T>> {
    Some(Placed { value, place: at.span() })
}

/// Returns a text of the file for a message, in one line and without a password.
pub(super) fn shown(text: &str) -> String {
    let text = client::without_userinfo(text);
    text.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect()
}

const SHOWN_CHARS_MAX: usize = 80;
const DAY_MINUTES: u32 = 24 * 60;
const DAY_S: u32 = 86_400;
/// A year.
const SECONDS_MAX: u32 = 365 * DAY_S;
/// A century.
const DAYS_MAX: u32 = 36_500;
const GB: f64 = 1e9;
/// A petabyte.
const GB_MAX: u32 = 1_000_000;
/// A packet of a transport stream, as for `--rotate-bytes`.
const FILE_BYTES_MIN: u64 = 188;
/// Bits of a mode with which somebody can run a file.
const RUNNABLE: u32 = 0o111;
