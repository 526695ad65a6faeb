// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts keys of the file that are flags into texts for the parsers of the flags.
//!
//! A value is written in its TOML type: a switch is `true` or `false`, a number is a number, and a
//! flag that may be repeated is a list. A relative path is relative to the folder of the file, so
//! that the file means the same wherever the server is started.
//!
//! Does not define the keys ([`super::keys`] does) and does not read other sources.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::DeValue;

use super::keys::{Key, KeyKind};
use super::reader::{Expected, Reader};

/// A setting in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSetting {
    pub(crate) key: String,
    /// Its values; more than one for a list.
    pub(crate) values: Vec<OsString>,
    /// Line of the value, from 1.
    pub(crate) line: usize,
}

/// Reads and judges the value of a key; `None` after a fault. `base` is the folder of the file.
pub(super) fn read(
    reader: &mut Reader<'_, '_>,
    key: &Key,
    value: &Spanned<DeValue<'_>>,
    base: &Path,
) -> Option<FileSetting> {
    let texts = texts(reader, key, value)?;
    let mut values = Vec::with_capacity(texts.len());
    let mut is_usable = true;
    for (text, place) in texts {
        if let Err(refusal) = key.check(OsStr::new(&text)) {
            let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
            reader.faults.add(Some(place), format!("{} = {shown}: {refusal}", key.name));
            is_usable = false;
        }
        values.push(located(key, text.into(), base));
    }
    let line = reader.faults.line(value.span().start);
    is_usable.then(|| FileSetting { key: key.name.clone(), values, line })
}

/// Returns the path joined to `base` where a value is a relative path.
pub(super) fn located(key: &Key, value: OsString, base: &Path) -> OsString {
    let is_elsewhere = value == "-" || value.to_string_lossy().contains("://");
    match key.is_path() && !is_elsewhere && !value.is_empty() {
        true => base.join(value).into_os_string(),
        false => value,
    }
}

/// Returns the texts of a value with their places.
fn texts(
    reader: &mut Reader<'_, '_>,
    key: &Key,
    value: &Spanned<DeValue<'_>>,
) -> Option<Vec<(String, Range<usize>)>> {
    let expected = match key.kind {
        KeyKind::Switch => Expected::Switch,
        KeyKind::Number => Expected::Number,
        KeyKind::Text => Expected::Text,
        KeyKind::Texts => Expected::Texts,
    };
    let items: &[Spanned<DeValue<'_>>] = match (key.kind, value.get_ref()) {
        (KeyKind::Texts, DeValue::Array(items)) => items,
        _ => std::slice::from_ref(value),
    };
    let mut texts = Vec::with_capacity(items.len());
    for item in items {
        let text = match (key.kind, item.get_ref()) {
            (KeyKind::Switch, DeValue::Boolean(switch)) => switch.to_string(),
            (KeyKind::Text | KeyKind::Texts, DeValue::String(text)) => text.to_string(),
            // TOML allows 1_000 and 0x10; the flag accepts decimal digits only.
            (KeyKind::Number | KeyKind::Text, DeValue::Integer(number)) => {
                match i128::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => number.to_string(),
                    Err(_) => number.as_str().to_owned(),
                }
            }
            // A factor or a rate.
            (KeyKind::Text, DeValue::Float(number)) => number.as_str().to_owned(),
            _ => {
                reader.mismatch(&key.name, item, expected);
                return None;
            }
        };
        texts.push((text, item.span()));
    }
    Some(texts)
}

const SHOWN_CHARS_MAX: usize = 80;
