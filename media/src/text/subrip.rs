// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses SubRip: cues of a number, a line of times, and text.
//!
//! The format has no specification; files are read as by players. A line of times begins a cue
//! wherever it is: numbers may be missing or wrong, empty lines may occur within a text. Of markup,
//! `<i>`, `<b>` and `<u>` are kept, `<font>` and `<s>` and overrides of ASS in braces (`{\an8}`)
//! are dropped, everything else is text.
//!
//! Sources: the SubRip program's own files; libavcodec `htmlsubtitles.c` (markup in use).
//! Does not keep colours or positions.

use super::{CUE_BYTES_MAX, CueList, TextCue, TextFault, lines, timing};

/// Bytes of a tag or an override; a longer one is text.
const TAG_BYTES_MAX: usize = 256;

/// Reads the cues of a text.
pub(super) fn read(text: &str, list: &mut CueList) -> Result<(), TextFault> {
    let mut open: Option<(u64, u64)> = None;
    let mut gathered: Vec<&str> = Vec::new();
    for line in lines(text) {
        let times = timing(line);
        if times.is_none() && !is_broken_timing(line) {
            if open.is_some() {
                gathered.push(line);
            }
            continue;
        }
        if let Some(times) = open {
            // The number of the cue that begins.
            if gathered.last().is_some_and(|last| is_number(last)) {
                gathered.pop();
            }
            push(list, times, &gathered)?;
        }
        gathered.clear();
        // A cue whose times cannot be read is not part of the one before.
        list.left_out += usize::from(times.is_none());
        open = times.map(|(start_ms, end_ms, _)| (start_ms, end_ms));
    }
    match open {
        Some(times) => push(list, times, &gathered),
        None => Ok(()),
    }
}

/// True for a line of times with a fault: nothing else begins with a digit and has an arrow between
/// two colons.
fn is_broken_timing(line: &str) -> bool {
    let begins = line.trim_start().starts_with(|first: char| first.is_ascii_digit());
    let Some((from, to)) = line.split_once("-->") else { return false };
    begins && from.contains(':') && to.contains(':')
}

fn is_number(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit())
}

fn push(
    list: &mut CueList,
    (start_ms, end_ms): (u64, u64),
    lines: &[&str],
) -> Result<(), TextFault> {
    let lines = lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join("\n");
    if text.len() > CUE_BYTES_MAX {
        list.left_out += 1;
        return Ok(());
    }
    let text = marked_up(&text);
    let (identifier, settings) = (String::new(), String::new());
    list.push(TextCue { start_ms, end_ms, identifier, settings, text })
}

/// The text in WebVTT's syntax. Tags are closed in order.
pub(super) fn marked_up(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut open: Vec<char> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['<', '>', '&', '{']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (inside, end) = enclosed(rest, '<', '>').unwrap_or(("", 0));
        if let Some(tag) = Tag::read(inside) {
            tag.write(&mut open, &mut out);
            rest = &rest[end..];
            continue;
        }
        if let Some((_, end)) = enclosed(rest, '{', '}').filter(|_| rest.starts_with("{\\")) {
            rest = &rest[end..];
            continue;
        }
        super::escape(&rest[..1], &mut out);
        rest = &rest[1..];
    }
    out.push_str(rest);
    Tag::close_all(&mut open, &mut out);
    out
}

/// Returns the text within brackets at the start of a text, and the offset after them. Brackets do
/// not nest, so that a text of opening ones is searched once.
fn enclosed(text: &str, from: char, to: char) -> Option<(&str, usize)> {
    let inside = text.strip_prefix(from)?;
    let near = inside.bytes().take(TAG_BYTES_MAX);
    let end = near.zip(0..).find(|&(byte, _)| char::from(byte) == to || char::from(byte) == from);
    let (_, end) = end.filter(|&(byte, _)| char::from(byte) == to)?;
    Some((&inside[..end], end + 2))
}

/// A tag of markup.
enum Tag {
    Open(char),
    Close(char),
    /// One without a counterpart in WebVTT.
    Dropped,
}

impl Tag {
    /// Returns the tag of this content; `None` if it is text.
    fn read(content: &str) -> Option<Tag> {
        let (is_end, name) = match content.strip_prefix('/') {
            Some(name) => (true, name),
            None => (false, content),
        };
        let name = name.split([' ', '\t']).next().unwrap_or("").to_ascii_lowercase();
        match name.as_str() {
            "i" | "b" | "u" if is_end => Some(Tag::Close(name.chars().next()?)),
            "i" | "b" | "u" => Some(Tag::Open(name.chars().next()?)),
            "font" | "s" | "strike" | "span" => Some(Tag::Dropped),
            _ => None,
        }
    }

    fn write(&self, open: &mut Vec<char>, out: &mut String) {
        match *self {
            // An italic within an italic is one.
            Tag::Open(name) if !open.contains(&name) => {
                open.push(name);
                out.extend(['<', name, '>']);
            }
            Tag::Close(name) if open.contains(&name) => {
                while let Some(last) = open.pop() {
                    out.extend(['<', '/', last, '>']);
                    if last == name {
                        break;
                    }
                }
            }
            Tag::Open(_) | Tag::Close(_) | Tag::Dropped => {}
        }
    }

    fn close_all(open: &mut Vec<char>, out: &mut String) {
        while let Some(last) = open.pop() {
            out.extend(['<', '/', last, '>']);
        }
    }
}
