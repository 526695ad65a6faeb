// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the committed seeds and the dictionary of a fuzz target.
//!
//! Sources: libFuzzer's documentation, "Dictionaries".
//!
//! Does not read `fuzz/corpus/`, which differs from machine to machine.

use std::fs;
use std::path::Path;

/// Committed inputs of a target.
pub(crate) struct Corpus {
    /// In order of their names; at least one.
    pub(crate) seeds: Vec<Seed>,
    /// Words of the dictionary; none without one.
    pub(crate) words: Vec<Vec<u8>>,
}

/// A file of `seeds/TARGET`.
pub(crate) struct Seed {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Corpus {
    /// Reads `seeds/TARGET` and `seeds/TARGET.dict` below `folder`. A target without a seed is an
    /// error.
    pub(crate) fn read(folder: &Path, target: &str) -> Result<Self, String> {
        let files = folder.join("seeds").join(target);
        let at = |fault| format!("{}: {fault}; add a typical input", files.display());
        let mut seeds = Vec::new();
        for entry in fs::read_dir(&files).map_err(|fault| at(fault.to_string()))? {
            let entry = entry.map_err(|fault| at(fault.to_string()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let bytes = fs::read(entry.path()).map_err(|fault| at(format!("{name}: {fault}")))?;
            seeds.push(Seed { name, bytes });
        }
        if seeds.is_empty() {
            return Err(at("no seeds".to_owned()));
        }
        seeds.sort_by(|one, other| one.name.cmp(&other.name));

        let dictionary = files.with_extension("dict");
        let mut words = Vec::new();
        if dictionary.exists() {
            let text = fs::read_to_string(&dictionary)
                .map_err(|fault| format!("{}: {fault}", dictionary.display()))?;
            for (index, line) in text.lines().map(str::trim).enumerate() {
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                let place = || format!("{}:{}: {line}: no word", dictionary.display(), index + 1);
                words.push(word(line).ok_or_else(place)?);
            }
        }
        Ok(Self { seeds, words })
    }
}

/// The bytes of a line `"word"` or `name="word"`, in which `\xAB`, `\\` and `\"` are escapes.
fn word(line: &str) -> Option<Vec<u8>> {
    let (_, quoted) = line.split_once('"')?;
    let mut rest = quoted.strip_suffix('"')?.bytes();
    let mut word = Vec::new();
    while let Some(byte) = rest.next() {
        word.push(match byte {
            b'\\' => match rest.next()? {
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
                }
                escaped @ (b'\\' | b'"') => escaped,
                _ => return None,
            },
            byte => byte,
        });
    }
    Some(word)
}
