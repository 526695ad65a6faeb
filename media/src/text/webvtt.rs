// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes WebVTT files, and writes segments.
//!
//! A file without the signature at its start is refused, as by browsers. Cues are kept unchanged;
//! style sheets and regions are kept up to a limit; notes, header lines and blocks without a
//! meaning are dropped.
//!
//! Sources: WebVTT (W3C) §4.1 (syntax), §6.1 (parser); RFC 8216 §3.5 (X-TIMESTAMP-MAP).
//! Does not check markup within cues: a browser ignores unknown markup.

use std::fmt::Write;
use std::ops::Range;

use super::{CueList, TextCue, TextFault, lines, timing};

/// Reads the blocks of a text.
pub(super) fn read(text: &str, list: &mut CueList) -> Result<(), TextFault> {
    let mut lines = lines(text);
    let signature = lines.next().and_then(|line| line.strip_prefix("WEBVTT"));
    if !signature.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t'])) {
        return Err(TextFault::NoSignature);
    }
    // Header lines end with an empty one; times without one begin the first cue.
    let mut block: Vec<&str> = Vec::new();
    let mut is_header = true;
    for line in lines.chain([""]) {
        let is_timing = line.contains("-->");
        if is_header {
            is_header = !line.is_empty() && !is_timing;
            if !is_timing {
                continue;
            }
        }
        if line.is_empty() {
            push(list, &std::mem::take(&mut block))?;
            continue;
        }
        // Times end the text before them, of which the last line may be the identifier.
        if is_timing && block.iter().any(|line| line.contains("-->")) {
            push(list, &std::mem::take(&mut block))?;
        }
        block.push(line);
    }
    Ok(())
}

/// Adds a block of lines.
fn push(list: &mut CueList, block: &[&str]) -> Result<(), TextFault> {
    let Some(at) = block.iter().position(|line| line.contains("-->")) else {
        let is_kept = block.first().is_some_and(|line| {
            let name = line.trim_end();
            name == "STYLE" || name == "REGION"
        });
        if is_kept && list.cues.is_empty() {
            list.push_block(&block.join("\n"));
        }
        return Ok(());
    };
    let Some((start_ms, end_ms, settings)) = timing(block[at]) else {
        list.left_out += 1;
        return Ok(());
    };
    let settings = if settings.contains("-->") { "" } else { settings };
    list.push(TextCue {
        start_ms,
        end_ms,
        identifier: at.checked_sub(1).map_or("", |before| block[before]).to_owned(),
        settings: settings.to_owned(),
        text: block[at + 1..].join("\n"),
    })
}

/// Returns the media timestamp of a time of the cues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampMap {
    /// Timestamp of 90 kHz, 33 bits.
    pub mpegts: u64,
    /// Time of the cues, in milliseconds.
    pub local_ms: u64,
}

impl CueList {
    /// The list as a file.
    pub fn whole(&self) -> String {
        let mut text = String::with_capacity(16 + self.blocks.len() + self.text_bytes * 2);
        text.push_str("WEBVTT\n\n");
        text.push_str(&self.blocks);
        self.cues.iter().for_each(|cue| write_cue(&mut text, cue));
        text
    }

    /// A segment: the cues that are shown within these milliseconds, with their own times.
    pub fn segment(&self, shown_ms: Range<u64>, map: TimestampMap) -> String {
        let mut text = String::from("WEBVTT\nX-TIMESTAMP-MAP=");
        let _ = write!(text, "MPEGTS:{},LOCAL:", map.mpegts);
        write_time(&mut text, map.local_ms);
        text.push_str("\n\n");
        text.push_str(&self.blocks);
        let begun = self.cues.partition_point(|cue| cue.start_ms < shown_ms.end);
        let shown = self.cues[..begun].iter().filter(|cue| cue.end_ms > shown_ms.start);
        shown.for_each(|cue| write_cue(&mut text, cue));
        text
    }
}

/// Writes a cue. Writing to a String cannot fail.
fn write_cue(text: &mut String, cue: &TextCue) {
    if !cue.identifier.is_empty() {
        let _ = writeln!(text, "{}", cue.identifier);
    }
    write_time(text, cue.start_ms);
    text.push_str(" --> ");
    write_time(text, cue.end_ms);
    if !cue.settings.is_empty() {
        let _ = write!(text, " {}", cue.settings);
    }
    let _ = write!(text, "\n{}\n\n", cue.text);
}

fn write_time(text: &mut String, ms: u64) {
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    let _ = write!(text, "{:02}:{:02}:{seconds:02}.{ms:03}", minutes / 60, minutes % 60);
}
