// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of a programme's pictures and sounds in a playlist: `avc1.64001f,mp4a.40.2`.
//!
//! A player reads them before it has a byte of media, to know whether it can play at all. Where
//! one stream has no name, the whole list is left out, as a list that is not whole is worse than
//! none. Subtitles and metadata have none there: no player needs them to play.
//!
//! Sources: RFC 6381 §3.3 (names), RFC 8216 §4.3.4.2 (CODECS).
//! Does not read headers; [`super::format`] does.

use super::survey::Track;
use crate::CodecsFault;

/// The names of `tracks`, each once; else why there are none.
///
/// # Errors
/// A track of a type without a name here or whose headers were not found; no track at all.
pub fn codecs<'a>(tracks: impl IntoIterator<Item = &'a Track>) -> Result<String, CodecsFault> {
    let mut names: Vec<&str> = Vec::new();
    let played = |track: &&Track| track.coding.is_video() || track.coding.is_audio();
    for track in tracks.into_iter().filter(played).filter(|track| track.has_packets) {
        let name = track.format.as_ref().map(|format| format.codec.as_str());
        let name =
            name.ok_or(CodecsFault::NoProfile { pid: track.pid, stream_type: track.stream_type })?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.is_empty() {
        true => Err(CodecsFault::NoMedia),
        false => Ok(names.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Coding, TrackFormat};

    fn track(pid: u16, stream_type: u8, codec: Option<&str>) -> Track {
        let format =
            codec.map(|codec| TrackFormat { codec: codec.to_owned(), ..TrackFormat::default() });
        let coding = Coding::of(stream_type, &[]);
        let (descriptors, unit, times) = (Vec::new(), Vec::new(), Vec::new());
        Track { pid, stream_type, coding, descriptors, format, has_packets: true, unit, times }
    }

    #[test]
    fn a_track_without_a_name_leaves_the_list_out() {
        let (video, sound) = (track(256, 0x1b, Some("avc1.64001f")), track(257, 0x0f, None));
        assert_eq!(codecs([&video]), Ok("avc1.64001f".to_owned()));
        let fault = CodecsFault::NoProfile { pid: 257, stream_type: 0x0f };
        assert_eq!(codecs([&video, &sound]), Err(fault));
        assert_eq!(codecs([&track(258, 0x06, None)]), Err(CodecsFault::NoMedia));
    }
}
