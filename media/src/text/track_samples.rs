// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts samples of text tracks to text in WebVTT's syntax.
//!
//! Of `tx3g`, bold, italic and underlined are kept. A cue of `wvtt` that is shown across a border
//! of samples is in both; equal neighbours are joined ([`Joined`]).
//!
//! Sources: 3GPP TS 26.245 §5.17 (text samples, `styl`); ISO/IEC 14496-30 §7.4 (`vttc`, `payl`,
//! `sttg`, `iden`); Matroska subtitle specifications (S_TEXT/UTF8, S_TEXT/WEBVTT).
//! Does not keep colours, fonts or boxes of tx3g.

use encoding_rs::UTF_16BE;

use super::subrip::marked_up;
use super::{CueList, TextCue, TextFault};

/// Bytes of a record of `styl`.
const STYLE_BYTES: usize = 12;

/// Tags of the bits of a face.
const FACES: [(u8, char); 3] = [(1, 'b'), (2, 'i'), (4, 'u')];

/// A text with its settings; times are those of its sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SampleText {
    pub(super) identifier: String,
    pub(super) settings: String,
    pub(super) text: String,
}

/// Returns the text of a sample of `tx3g`; empty if nothing is shown.
pub(super) fn tx3g(sample: &[u8]) -> SampleText {
    let Some((&[high, low], rest)) = sample.split_first_chunk::<2>() else {
        return SampleText::default();
    };
    let bytes = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
    let (text, boxes) = rest.split_at(bytes);
    let text = match text.strip_prefix(&[0xfe, 0xff]) {
        Some(wide) => UTF_16BE.decode_without_bom_handling(wide).0,
        None => String::from_utf8_lossy(text),
    };
    let styles = find(boxes, b"styl").unwrap_or_default();
    SampleText { text: styled(&text, styles), ..SampleText::default() }
}

/// The text with the faces of the records of a `styl` box, which are in order.
fn styled(text: &str, styles: &[u8]) -> String {
    let mut records = styles.get(2..).unwrap_or_default().chunks_exact(STYLE_BYTES).peekable();
    let number =
        |record: &[u8], at: usize| usize::from(u16::from_be_bytes([record[at], record[at + 1]]));
    let mut out = String::with_capacity(text.len());
    let mut shown = 0;
    for (index, character) in text.chars().filter(|&character| character != '\0').enumerate() {
        while records.next_if(|record| number(record, 2) <= index).is_some() {}
        let face = match records.peek() {
            Some(record) if number(record, 0) <= index => record[6] & 7,
            _ => 0,
        };
        change_face(shown, face, &mut out);
        shown = face;
        super::escape(character.encode_utf8(&mut [0; 4]), &mut out);
    }
    change_face(shown, 0, &mut out);
    out
}

fn change_face(from: u8, to: u8, out: &mut String) {
    if from == to {
        return;
    }
    for (_, tag) in FACES.iter().rev().filter(|(bit, _)| from & bit != 0) {
        out.extend(['<', '/', *tag, '>']);
    }
    for (_, tag) in FACES.iter().filter(|(bit, _)| to & bit != 0) {
        out.extend(['<', *tag, '>']);
    }
}

/// The texts of a sample of `wvtt`.
pub(super) fn wvtt(sample: &[u8]) -> Vec<SampleText> {
    let text = |bytes: Option<&[u8]>| {
        String::from_utf8_lossy(bytes.unwrap_or_default()).replace('\0', "\u{fffd}")
    };
    let one_line = |bytes| text(bytes).replace(['\n', '\r'], " ").replace("-->", "");
    let cues = boxes(sample).filter(|(code, _)| *code == b"vttc");
    let cues = cues.map(|(_, cue)| SampleText {
        identifier: one_line(find(cue, b"iden")),
        settings: one_line(find(cue, b"sttg")),
        text: text(find(cue, b"payl")),
    });
    cues.collect()
}

/// Returns the text of a block of S_TEXT/UTF8, which has the syntax of SubRip.
pub(super) fn utf8(block: &[u8]) -> SampleText {
    let text = marked_up(&String::from_utf8_lossy(block).replace('\0', "\u{fffd}"));
    SampleText { text, ..SampleText::default() }
}

/// Returns the text of a block of S_TEXT/WEBVTT, whose identifier and settings are in its
/// additions.
pub(super) fn webvtt(block: &[u8]) -> SampleText {
    let text = String::from_utf8_lossy(block).replace('\0', "\u{fffd}");
    SampleText { text, ..SampleText::default() }
}

/// Returns the text of a block of WebM: lines of the identifier and of the settings precede it.
pub(super) fn webm_vtt(block: &[u8]) -> SampleText {
    let SampleText { text, .. } = webvtt(block);
    let mut parts = text.splitn(3, '\n').map(|part| part.trim_end_matches('\r').to_owned());
    let mut next = || parts.next().unwrap_or_default().replace("-->", "");
    SampleText { identifier: next(), settings: next(), text: next() }
}

/// Iterates over consecutive boxes, up to the first invalid one.
fn boxes(mut bytes: &[u8]) -> impl Iterator<Item = (&[u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let (size, rest) = bytes.split_first_chunk::<4>()?;
        let code = rest.first_chunk::<4>()?;
        let size = u32::from_be_bytes(*size) as usize;
        let body = bytes.get(8..size)?;
        bytes = &bytes[size..];
        Some((code, body))
    })
}

fn find<'a>(bytes: &'a [u8], wanted: &[u8; 4]) -> Option<&'a [u8]> {
    boxes(bytes).find(|(code, _)| *code == wanted).map(|(_, body)| body)
}

/// A list under construction: the cues of neighbouring samples that are one.
#[derive(Default)]
pub(super) struct Joined {
    list: CueList,
    /// Cues of the sample before.
    open: Vec<TextCue>,
}

impl Joined {
    /// Adds the texts of a sample.
    pub(super) fn push(
        &mut self,
        (start_ms, end_ms): (u64, u64),
        texts: Vec<SampleText>,
    ) -> Result<(), TextFault> {
        let mut before = std::mem::take(&mut self.open);
        for SampleText { identifier, settings, text } in texts {
            let cue = TextCue { start_ms, end_ms, identifier, settings, text };
            let continued = before.iter().position(|one| {
                one.end_ms == start_ms
                    && (&one.identifier, &one.settings, &one.text)
                        == (&cue.identifier, &cue.settings, &cue.text)
            });
            match continued {
                Some(at) => {
                    let begun = before.swap_remove(at);
                    self.open.push(TextCue { end_ms, ..begun });
                }
                None => self.open.push(cue),
            }
        }
        before.into_iter().try_for_each(|cue| self.list.push(cue))
    }

    pub(super) fn finish(mut self) -> Result<CueList, TextFault> {
        let open = std::mem::take(&mut self.open);
        open.into_iter().try_for_each(|cue| self.list.push(cue))?;
        Ok(self.list.sorted())
    }
}
