// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads TOML values by type; reports each mismatch with its line and its cure.
//!
//! Sources: TOML 1.0, "Integer", "Offset Date-Time", "Array of Tables". Does not interpret
//! settings: `channels` does.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::faults::Faults;
use super::nearest::nearest;

/// Reads values of one text and collects the faults found in them.
pub(super) struct Reader<'a, 'f> {
    pub(super) text: &'a str,
    pub(super) faults: &'f mut Faults<'a>,
}

/// Kind of value that a setting accepts, and the cure where another is found.
#[derive(Clone, Copy)]
pub(super) enum Expected {
    Text,
    Texts,
    Number,
    Switch,
    Time,
    Channels,
    Channel,
    Slots,
    Seconds,
    TimeRange,
    Groups,
    Rules,
    UserGroups,
    Amount,
    Cameras,
}

impl Expected {
    fn cure(self) -> &'static str {
        match self {
            Expected::Text => "write text in quotes",
            Expected::Texts => "write texts in quotes, such as [\"a\", \"b\"]",
            Expected::Number => "write a whole number",
            Expected::Switch => "write true or false",
            Expected::Time => "write a time in quotes",
            Expected::Channels | Expected::Channel => "write tables [channel.NAME]",
            Expected::Slots => "write tables [[channel.NAME.at]]",
            Expected::Seconds => "write a number of seconds",
            Expected::TimeRange => "write seconds, or the least and the most, such as [2, 8]",
            Expected::Groups => "write tables [[group]]",
            Expected::Rules => "write tables [[access]]",
            Expected::UserGroups => "write a table [groups] of lists of users",
            Expected::Amount => "write a number, such as 2.5",
            Expected::Cameras => "write tables [camera.NAME]",
        }
    }
}

impl<'a> Reader<'a, '_> {
    /// Adds a fault about a key of `table` (`channel.news`, or empty for the file).
    pub(super) fn unknown(&mut self, table: &str, key: &str, place: Range<usize>, known: &[&str]) {
        let cure = match nearest(key, known) {
            Some(known) => format!("write {known}"),
            None if known.len() > KEYS_LISTED_MAX => {
                "see pagewire config example for all there are".to_owned()
            }
            None => format!("write one of {}", known.join(", ")),
        };
        let key: String = without_password(key).chars().take(SHOWN_CHARS_MAX).collect();
        let of = if table.is_empty() { String::new() } else { format!("{table}: ") };
        self.faults.add(Some(place), format!("{of}{key}: no such setting; {cure}"));
    }

    /// Adds a fault about a value of another type; `setting` is `channel.news: ttl` or the like.
    pub(super) fn mismatch(
        &mut self,
        setting: &str,
        value: &Spanned<DeValue<'_>>,
        expected: Expected,
    ) {
        let kind = value.get_ref().type_str();
        let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
        let shown = match value.get_ref() {
            DeValue::Table(_) => String::new(),
            _ => format!(" = {}", self.as_written(value.span())),
        };
        let text = format!("{setting}{shown}: {article} {kind}; {}", expected.cure());
        self.faults.add(Some(value.span()), text);
    }

    pub(super) fn text(&mut self, setting: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.clone().into_owned()),
            _ => {
                self.mismatch(setting, value, Expected::Text);
                None
            }
        }
    }

    /// Reads a list of texts, or one text in place of a list of one; returns the place of each.
    pub(super) fn texts(
        &mut self,
        setting: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Vec<(String, Range<usize>)> {
        let items: &[Spanned<DeValue<'_>>] = match value.get_ref() {
            DeValue::Array(items) => items,
            DeValue::String(_) => std::slice::from_ref(value),
            _ => {
                self.mismatch(setting, value, Expected::Texts);
                return Vec::new();
            }
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            match item.get_ref() {
                DeValue::String(text) => texts.push((text.clone().into_owned(), item.span())),
                _ => self.mismatch(setting, item, Expected::Texts),
            }
        }
        texts
    }

    pub(super) fn number(&mut self, setting: &str, value: &Spanned<DeValue<'_>>) -> Option<i64> {
        let DeValue::Integer(number) = value.get_ref() else {
            self.mismatch(setting, value, Expected::Number);
            return None;
        };
        // A number of more than 64 bits is outside every range, and that range is then reported.
        let is_negative = number.as_str().starts_with('-');
        let limit = if is_negative { i64::MIN } else { i64::MAX };
        Some(i64::from_str_radix(number.as_str(), number.radix()).unwrap_or(limit))
    }

    /// Reads a number of seconds that may have decimals.
    pub(super) fn decimal(&mut self, setting: &str, value: &Spanned<DeValue<'_>>) -> Option<f64> {
        self.decimal_of(setting, value, Expected::Seconds)
    }

    /// Reads a number that may have decimals; `expected` is its unit.
    pub(super) fn decimal_of(
        &mut self,
        setting: &str,
        value: &Spanned<DeValue<'_>>,
        expected: Expected,
    ) -> Option<f64> {
        let number = decimal(value.get_ref());
        if number.is_none() {
            self.mismatch(setting, value, expected);
        }
        number
    }

    /// Reads `[LEAST, MOST]`, or one number in place of two equal ones.
    pub(super) fn time_range(
        &mut self,
        setting: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<(f64, f64)> {
        let [least, most] = match value.get_ref() {
            DeValue::Array(items) => match &items[..] {
                [least, most] => [least, most],
                _ => {
                    self.mismatch(setting, value, Expected::TimeRange);
                    return None;
                }
            },
            _ => [value, value],
        };
        let wrong = [least, most].into_iter().find(|value| decimal(value.get_ref()).is_none());
        if let Some(wrong) = wrong {
            self.mismatch(setting, wrong, Expected::TimeRange);
        }
        decimal(least.get_ref()).zip(decimal(most.get_ref()))
    }

    pub(super) fn switch(&mut self, setting: &str, value: &Spanned<DeValue<'_>>) -> Option<bool> {
        let switch = value.get_ref().as_bool();
        if switch.is_none() {
            self.mismatch(setting, value, Expected::Switch);
        }
        switch
    }

    /// Reads a time in quotes, or a TOML date-time.
    pub(super) fn time(&mut self, setting: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.clone().into_owned()),
            DeValue::Datetime(time) => Some(time.to_string()),
            _ => {
                self.mismatch(setting, value, Expected::Time);
                None
            }
        }
    }

    pub(super) fn table<'t, 'i>(
        &mut self,
        setting: &str,
        value: &'t Spanned<DeValue<'i>>,
        expected: Expected,
    ) -> Option<&'t DeTable<'i>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.mismatch(setting, value, expected);
        }
        table
    }

    pub(super) fn array<'t, 'i>(
        &mut self,
        setting: &str,
        value: &'t Spanned<DeValue<'i>>,
        expected: Expected,
    ) -> Option<&'t DeArray<'i>> {
        let array = value.get_ref().as_array();
        if array.is_none() {
            self.mismatch(setting, value, expected);
        }
        array
    }

    /// Returns the first line of a value, as the file has it, without a password.
    fn as_written(&self, place: Range<usize>) -> String {
        let written = client::without_userinfo(self.text.get(place).unwrap_or_default());
        written.lines().next().unwrap_or_default().chars().take(SHOWN_CHARS_MAX).collect()
    }
}

/// Returns a key or name of the file for messages, without user and password where it is a URL.
pub(super) fn without_password(text: &str) -> String {
    match text.contains("://") {
        true => client::without_userinfo(text),
        false => text.to_owned(),
    }
}

/// A number with or without decimals.
fn decimal(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number as f64)
        }
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    }
}

const SHOWN_CHARS_MAX: usize = 80;
/// Most known keys that a message lists.
const KEYS_LISTED_MAX: usize = 25;
