// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the small boxes of a track: its kind, name and language, and its references.
//!
//! Costs a read a box, of at most 64 KiB.
//!
//! Sources: ISO/IEC 14496-12 §8.4.2 (mdhd), §8.4.3 (hdlr), §8.7.2 (dref); QuickTime File Format,
//! "Chapter Lists", "Track User Data".
//! Does not read sample descriptions or tables.

use super::boxes::{FULL_BYTES, FileBox, FourCode, Input, broken};
use crate::DemuxError;
use crate::tracks::{TRACKS_READ_MAX, TrackLabel};

const REFERENCES_BYTES_MAX: u64 = 64 << 10;

/// Numbers of the tracks of chapters that a track refers to (QuickTime File Format, "Chapter
/// Lists").
pub(super) fn chapter_tracks(
    input: &Input<'_>,
    references: &FileBox,
) -> Result<Vec<u32>, DemuxError> {
    let Some(chapters) = references.find(input, [b"chap"])?[0] else { return Ok(Vec::new()) };
    let body = chapters.read_body(input, REFERENCES_BYTES_MAX)?;
    let numbers = body.chunks_exact(4).take(TRACKS_READ_MAX);
    Ok(numbers.map(|number| u32::from_be_bytes(number.try_into().expect("four"))).collect())
}

/// Returns the name of a track; `None` if its user data cannot be read: nothing else depends on it.
pub(super) fn name(input: &Input<'_>, user_data: &FileBox) -> Option<String> {
    let [name] = user_data.find(input, [b"name"]).ok()?;
    TrackLabel::name_of(&name?.read_body(input, NAME_BOX_BYTES_MAX).ok()?)
}

/// Bytes of a name that is read.
const NAME_BOX_BYTES_MAX: u64 = 1 << 10;

/// Returns the kind of a track's media (ISO/IEC 14496-12 §8.4.3); `None` if the box is too short
/// for it.
pub(super) fn handler_type(
    input: &Input<'_>,
    found: &FileBox,
) -> Result<Option<FourCode>, DemuxError> {
    if found.body_bytes() < 12 {
        return Ok(None);
    }
    let [.., a, b, c, d] = found.fields::<12>(input)?;
    Ok(Some([a, b, c, d]))
}

/// The language, unless it is undetermined or one of the Macintosh numbers of QuickTime.
pub(super) fn language(name: &str) -> Option<[u8; 3]> {
    let letters: [u8; 3] = name.as_bytes().try_into().ok()?;
    let is_name = letters.iter().all(u8::is_ascii_lowercase) && &letters != b"und";
    is_name.then_some(letters)
}

/// Returns the numbers of the data references to other files. Bit 0 of an entry's flags means this
/// file, for QuickTime's aliases as for URLs.
pub(super) fn outside_references(
    input: &Input<'_>,
    data: &FileBox,
) -> Result<Vec<u16>, DemuxError> {
    let mut outside = Vec::new();
    let Some(found) = data.find(input, [b"dref"])?[0] else { return Ok(outside) };
    let body = found.read_body(input, REFERENCES_BYTES_MAX)?;
    let mut rest = body.get(FULL_BYTES as usize + 4..).unwrap_or_default();
    for number in 1..=u16::MAX {
        let Some(&[a, b, c, d, .., flags]) = rest.first_chunk::<12>() else { break };
        if flags & 1 == 0 {
            outside.push(number);
        }
        let bytes = u32::from_be_bytes([a, b, c, d]) as usize;
        match rest.get(bytes.max(12)..) {
            Some(behind) => rest = behind,
            None => {
                let what = format!("dref whose entry {number} does not lie in it");
                return Err(broken(found.start, what));
            }
        }
    }
    Ok(outside)
}
