// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of a programme's pictures and sounds in a playlist: `avc1.64001f,mp4a.40.2`.
//!
//! A player reads them before it has a byte of media, to know whether it can play at all. Where
//! one stream has no name, the whole list is left out, as a list that is not whole is worse than
//! none. Subtitles and metadata have none there: no player needs them to play.
//!
//! Sources: RFC 6381 §3.3 (names), RFC 8216 §4.3.4.2 (CODECS).
//! Does not do: read headers; [`super::format`] does.

use super::survey::Track;

/// The names of `tracks`, each once; else why there are none.
///
/// # Errors
/// A sentence: a track of a type without a name here, or whose headers were not found.
pub fn codecs<'a>(tracks: impl IntoIterator<Item = &'a Track>) -> Result<String, String> {
    let mut names: Vec<&str> = Vec::new();
    let played = |track: &&Track| track.coding.is_video() || track.coding.is_audio();
    for track in tracks.into_iter().filter(played).filter(|track| track.has_packets) {
        let name = track.format.as_ref().map(|format| format.codec.as_str());
        let name = name.ok_or_else(|| {
            let (pid, stream_type) = (track.pid, track.stream_type);
            format!("PID {pid} of stream type 0x{stream_type:02x} does not tell its profile")
        })?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.is_empty() {
        true => Err("no picture and no sound".to_owned()),
        false => Ok(names.join(",")),
    }
}
