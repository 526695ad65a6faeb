// SPDX-License-Identifier: MIT OR Apache-2.0
//! config: the files of `pagewire serve --config FILE` and `pagewire load --scenario FILE`, read
//! into checked settings.
//!
//! A file is judged as a whole: every fault is reported with its line, so that one reading of the
//! messages corrects the file. Unknown keys are faults, for a misspelt setting would otherwise be a
//! setting that silently has its default. So far the file holds channels.
//!
//! Modules: `faults` (findings with lines), `grammar` (text to tables), `reader` (typed values of a
//! table), `channels` (`[channel.NAME]`), `scenario` (the file of `load`), `nearest` (the known key
//! that a misspelt one is close to).
//!
//! Cost: one pass over a file of 1 MiB at most, before the server opens anything.
//!
//! Sources: TOML 1.0; parsed by the crate `toml`.
//! Does not look at the served folder: playlists may name files that come later.

mod channels;
mod faults;
mod grammar;
mod nearest;
mod reader;
mod scenario;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use client::load::Scenario;
use faults::Faults;
use reader::{Expected, Reader};
use serve::channel::ChannelConfig;

/// Settings of a configuration file.
#[derive(Debug, Default)]
pub(crate) struct FileConfig {
    /// Channels, in the order of the file.
    pub(crate) channels: Vec<ChannelConfig>,
}

/// Reads a configuration file.
///
/// # Errors
/// Every fault of the file, one text each, in order of lines; at most [`faults::FAULTS_MAX`].
pub(crate) fn read(path: &Path) -> Result<FileConfig, Vec<String>> {
    let (shown, text) = text_of("--config", path)?;
    parse(&shown, &text)
}

/// Reads a scenario of a load.
///
/// # Errors
/// As for [`read`].
pub(crate) fn read_scenario(path: &Path) -> Result<Scenario, Vec<String>> {
    let (shown, text) = text_of("--scenario", path)?;
    scenario::parse(&shown, &text)
}

/// Reads the file that an option names; returns its name in messages, and its text.
fn text_of(option: &str, path: &Path) -> Result<(String, String), Vec<String>> {
    let shown = path.display().to_string();
    let unread = |found: &dyn std::fmt::Display| {
        vec![format!("{option} {shown}: {found}; name a file that can be read")]
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| unread(&error))?;
    let limit = FILE_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(|error| unread(&error))?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(unread(&format!("larger than {FILE_BYTES_MAX} bytes")));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok((shown, text)),
        Err(error) => {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
            Err(vec![format!("{shown}:{line}: text that is not UTF-8; save it as UTF-8")])
        }
    }
}

/// Parses the text of a configuration file; `shown` is the file's name in messages.
fn parse(shown: &str, text: &str) -> Result<FileConfig, Vec<String>> {
    let mut faults = Faults::new(shown, text);
    let table = grammar::parse(text, &mut faults);
    // The values of a text with faults of grammar are guesses.
    if !faults.is_empty() {
        return Err(faults.into_texts());
    }
    let mut config = FileConfig::default();
    let mut reader = Reader { text, faults: &mut faults };
    for (key, value) in table.get_ref() {
        match key.get_ref().as_ref() {
            CHANNEL => {
                if let Some(tables) = reader.table(CHANNEL, value, Expected::Channels) {
                    config.channels = channels::read(&mut reader, tables);
                }
            }
            other => reader.unknown("", other, key.span(), &[CHANNEL]),
        }
    }
    if faults.is_empty() { Ok(config) } else { Err(faults.into_texts()) }
}

const CHANNEL: &str = "channel";
/// Room for thousands of channels; a larger file is a mistake, such as a film.
const FILE_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
