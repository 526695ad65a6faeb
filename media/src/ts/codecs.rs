// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the CODECS attribute of a playlist from a programme's tracks: `avc1.64001f,mp4a.40.2`.
//!
//! A player reads it before it has any media, to decide if it can play the stream. If one track has
//! no name the whole attribute is omitted, because an incomplete list is worse than none. Subtitles
//! and metadata are not listed: no player needs them to play.
//!
//! Sources: RFC 6381 §3.3 (names), RFC 8216 §4.3.4.2 (CODECS).
//! Does not parse headers; [`super::format`] does.

use super::survey::Track;
use crate::CodecsFault;

/// Returns the names of `tracks`, each once, or the reason why there are none.
///
/// # Errors
/// A track has a type without a name here, or its headers were not found; or there is no track.
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
