// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes a text track of a file: the format of its samples, its language and its name.
//!
//! The demuxers of MP4 and Matroska create the descriptions; [`super::tracks`] lists them.
//!
//! Sources: those of [`super::track_samples`]; RFC 5646 §2.1 (language tags).
//! Does not read files.

use super::track_samples::{SampleText, tx3g, utf8, webm_vtt, webvtt, wvtt};

/// A track of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextTrack {
    /// Its number in the file.
    pub id: u32,
    /// Format of its samples.
    pub coding: TextCoding,
    /// Language (RFC 5646, or ISO 639-2 with three letters); `None` if the file names none.
    pub language: Option<String>,
    /// Name for viewers, from the file.
    pub name: Option<String>,
    /// True if it is to be shown for any choice of the viewer, as for signs in a film.
    pub is_forced: bool,
}

/// Format of a text track's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextCoding {
    /// 3GPP timed text in MP4.
    Tx3g,
    /// WebVTT in MP4.
    Wvtt,
    /// TTML in MP4, which is not converted to cues.
    Stpp,
    /// SubRip in Matroska.
    Utf8,
    /// WebVTT in Matroska.
    WebVtt,
    /// WebVTT in WebM: identifier and settings precede the text.
    WebmVtt,
}

impl TextCoding {
    /// That of a sample entry.
    pub(crate) fn of_entry(code: [u8; 4]) -> Option<TextCoding> {
        match &code {
            b"tx3g" => Some(TextCoding::Tx3g),
            b"wvtt" => Some(TextCoding::Wvtt),
            b"stpp" => Some(TextCoding::Stpp),
            _ => None,
        }
    }

    /// Returns the texts of a sample.
    pub(super) fn texts(self, sample: &[u8]) -> Vec<SampleText> {
        match self {
            TextCoding::Tx3g => vec![tx3g(sample)],
            TextCoding::Wvtt => wvtt(sample),
            TextCoding::Stpp => Vec::new(),
            TextCoding::Utf8 => vec![utf8(sample)],
            TextCoding::WebVtt => vec![webvtt(sample)],
            TextCoding::WebmVtt => vec![webm_vtt(sample)],
        }
    }
}

impl TextTrack {
    pub(crate) fn new(id: u32, coding: TextCoding, language: Option<String>) -> TextTrack {
        let language = language.filter(|language| is_language(language) && language != "und");
        TextTrack { id, coding, language, name: None, is_forced: false }
    }
}

/// True for a language tag (RFC 5646 §2.1) whose language is a code of ISO 639.
pub fn is_language(tag: &str) -> bool {
    let mut parts = tag.split('-');
    let is_code = parts.next().is_some_and(|code| {
        matches!(code.len(), 2 | 3) && code.bytes().all(|byte| byte.is_ascii_alphabetic())
    });
    let is_part = |part: &str| {
        (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    is_code && tag.len() <= 35 && parts.all(is_part)
}
