// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings in a configuration file, sorted by line and bounded in number.
//!
//! Does not judge: its callers do.

use std::ops::Range;

/// Limit on the faults reported for one file.
pub(super) const FAULTS_MAX: usize = 20;

/// Faults found so far.
pub(super) struct Faults<'a> {
    shown: &'a str,
    text: &'a str,
    /// Byte offset and text of each fault.
    found: Vec<(usize, String)>,
}

impl<'a> Faults<'a> {
    /// Creates an empty list for `text`, the content of the file called `shown`.
    pub(super) fn new(shown: &'a str, text: &'a str) -> Faults<'a> {
        Faults { shown, text, found: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds a fault at a place; without one it is a fault of the file.
    pub(super) fn add(&mut self, place: Option<Range<usize>>, text: String) {
        self.found.push((place.map_or(0, |place| place.start), text));
    }

    /// Returns the line of an offset, from 1.
    pub(super) fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().iter().take(offset);
        1 + before.filter(|byte| **byte == b'\n').count()
    }

    /// Returns `FILE:LINE: TEXT` of each fault, in order of lines.
    pub(super) fn into_texts(mut self) -> Vec<String> {
        self.found.sort_by_key(|(offset, _)| *offset);
        let left = self.found.len().saturating_sub(FAULTS_MAX);
        self.found.truncate(FAULTS_MAX);
        let lines = self
            .found
            .iter()
            .map(|(offset, text)| format!("{}:{}: {text}", self.shown, self.line(*offset)));
        let mut texts: Vec<String> = lines.collect();
        if left > 0 {
            texts.push(format!("{}: {left} faults more; correct these first", self.shown));
        }
        texts
    }
}
