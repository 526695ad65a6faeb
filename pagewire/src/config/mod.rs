// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of `pagewire serve --config FILE`, `pagewire receive --config FILE` and `pagewire load
//! --scenario FILE`, read into checked settings.
//!
//! A file is judged as a whole: every fault is reported with its line, so that one reading of the
//! messages is enough to correct the file. Unknown keys are faults: a misspelt setting would
//! otherwise silently keep its default. The file of `serve` holds the flags of `serve`, by their
//! names, and tables of channels and of access.
//!
//! Modules that read: `faults` (findings with lines), `grammar` (text to tables), `reader` (typed
//! values of a table), `keys` (flags as keys), `settings` (values of keys), `channels`
//! (`[channel.NAME]`), `access` (`[[access]]`, `[groups]`), `cameras` (the file of `receive`),
//! `scenario` (the file of `load`), `nearest` (the known key that a misspelt one is close to).
//! Modules that combine: `sources` (command line, environment, file), `relations` (rules between
//! settings). Modules of `pagewire config`: `verbs`, `check`, `show`, `schema`, `example`.
//!
//! Cost: one pass over a file of 1 MiB at most, before the server opens anything.
//!
//! Sources: TOML 1.0; parsed by the crate `toml`. Does not examine the served folder: playlists may
//! name files that are added later.

mod access;
mod cameras;
mod channels;
mod check;
mod example;
mod faults;
mod grammar;
pub(crate) mod keys;
mod nearest;
mod reader;
mod relations;
mod scenario;
mod schema;
mod settings;
mod show;
mod sources;
mod tables;
mod verbs;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use access::FileAccess;
use client::load::Scenario;
use faults::Faults;
use reader::{Expected, Reader};
use serve::channel::ChannelConfig;
use settings::FileSetting;

pub(crate) use nearest::nearest;
pub(crate) use sources::{Loaded, Sources};
pub(crate) use verbs::{Verbs, run};

/// Settings of a configuration file.
#[derive(Debug, Default)]
pub(crate) struct FileConfig {
    /// Flags of `serve`, in the order of the file.
    pub(crate) settings: Vec<FileSetting>,
    /// Channels, in the order of the file.
    pub(crate) channels: Vec<ChannelConfig>,
    /// Rules of access and groups of users.
    pub(crate) access: FileAccess,
    /// Text of the file's tables as TOML.
    pub(crate) tables: String,
}

/// Reads a configuration file.
///
/// # Errors
/// Every fault of the file, one text each, in order of lines; at most [`faults::FAULTS_MAX`].
pub(crate) fn read(path: &Path) -> Result<FileConfig, Vec<String>> {
    let FileText { shown, text, .. } = text_of("--config", path)?;
    // Without a current folder a relative path stays as it is.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    parse(&shown, &text, path.parent().unwrap_or(Path::new("/")))
}

/// Reads a scenario of a load.
///
/// # Errors
/// As for [`read`].
pub(crate) fn read_scenario(path: &Path) -> Result<Scenario, Vec<String>> {
    let FileText { shown, text, .. } = text_of("--scenario", path)?;
    scenario::parse(&shown, &text)
}

/// Reads the cameras of a recorder, in the order of the file, and their logins.
///
/// # Errors
/// As for [`read`]. No text repeats a password.
pub(crate) fn read_cameras(path: &Path) -> Result<Vec<receive::StreamOptions>, Vec<String>> {
    let file = text_of("--config", path)?;
    cameras::parse(&file, &folder_of(path))
}

/// Reads the files of the cameras of a recorder, in the order of the file; no passwords.
///
/// # Errors
/// As for [`read_cameras`].
pub(crate) fn read_camera_files(
    path: &Path,
) -> Result<Vec<::recordings::CameraFiles>, Vec<String>> {
    let file = text_of("--config", path)?;
    cameras::parse_files(&file, &folder_of(path))
}

/// Returns the folder of a file, absolute.
fn folder_of(path: &Path) -> PathBuf {
    // Without a current folder a relative path stays as it is.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.parent().unwrap_or(Path::new("/")).to_owned()
}

/// A file as it is read.
struct FileText {
    /// Name in messages.
    shown: String,
    text: String,
    /// Mode of a file that others than its owner can use.
    mode_for_others: Option<u32>,
}

/// Reads the file that an option names.
fn text_of(option: &str, path: &Path) -> Result<FileText, Vec<String>> {
    let shown = path.display().to_string();
    let unread = |found: &dyn std::fmt::Display| {
        vec![format!("{option} {shown}: {found}; name a file that can be read")]
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| unread(&error))?;
    let metadata = file.metadata().map_err(|error| unread(&error))?;
    let mode_for_others = crate::login::mode_for_others(&metadata);
    let limit = FILE_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(|error| unread(&error))?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(unread(&format!("larger than {FILE_BYTES_MAX} bytes")));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(FileText { shown, text, mode_for_others }),
        Err(error) => {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
            Err(vec![format!("{shown}:{line}: text that is not UTF-8; save it as UTF-8")])
        }
    }
}

/// Parses the text of a configuration file; `shown` is the file's name in messages, `base` its
/// folder.
fn parse(shown: &str, text: &str, base: &Path) -> Result<FileConfig, Vec<String>> {
    let mut faults = Faults::new(shown, text);
    let table = grammar::parse(text, &mut faults);
    // The values of a text with faults of grammar are guesses.
    if !faults.is_empty() {
        return Err(faults.into_texts());
    }
    let mut config = FileConfig::default();
    let mut reader = Reader { text, faults: &mut faults };
    let mut in_order: Vec<_> = table.get_ref().iter().collect();
    in_order.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in in_order {
        match (key.get_ref().as_ref(), keys::named(key.get_ref())) {
            (CHANNEL, _) => {
                if let Some(tables) = reader.table(CHANNEL, value, Expected::Channels) {
                    config.channels = channels::read(&mut reader, tables);
                }
            }
            (access::ACCESS, _) => config.access.rules = access::read(&mut reader, value),
            (access::GROUPS, _) => {
                config.access.groups = access::read_groups(&mut reader, value);
            }
            (_, Some(known)) => {
                config.settings.extend(settings::read(&mut reader, known, value, base));
            }
            ("camera", None) => reader.faults.add(
                Some(key.span()),
                "camera: of a recorder; check its file by pagewire receive --config FILE --check"
                    .to_owned(),
            ),
            (other, None) => {
                let flags = keys::all().iter().map(|key| key.name.as_str());
                let known: Vec<&str> = flags.chain(TABLES.iter().copied()).collect();
                reader.unknown("", other, key.span(), &known);
            }
        }
    }
    config.tables = tables::written(table.get_ref(), TABLES);
    if faults.is_empty() { Ok(config) } else { Err(faults.into_texts()) }
}

const CHANNEL: &str = "channel";
/// Keys of the file that are not flags.
const TABLES: &[&str] = &[CHANNEL, access::ACCESS, access::GROUPS];
/// Enough for thousands of channels or cameras; a larger file is a mistake, such as a film.
const FILE_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_sources;
