// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments of HTTP Live Streaming: files that a playlist lists, which are no streams of their own.
//!
//! A segment is called like a transport stream. An encrypted one is none, and a clear one is six
//! seconds of a film: neither is to be planned, shown as a stream or complained about. So playlists
//! are read when they are seen, before their neighbours, and what they list is a download. Costs
//! one read of each playlist and about 100 bytes a segment.
//!
//! Sources: RFC 8216 §4.1 (lines that are URIs), RFC 3986 §5.2 (what they are relative to).
//! Does not do: keep a segment from being played over RTSP by whoever asks for it by name.

use std::fs::File;
use std::io::Read;

use super::{Library, State};

/// Longest playlist that is read: 50,000 segments and more.
const PLAYLIST_BYTES_MAX: u64 = 16 << 20;

/// Whether a file is called a playlist.
pub(super) fn is_playlist(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case("m3u8"))
}

impl Library {
    /// Takes note of what the playlist `name` lists.
    pub(super) fn look_at_playlist(&self, name: &str, file: &File) {
        let mut text = Vec::new();
        if let Err(error) = file.take(PLAYLIST_BYTES_MAX).read_to_end(&mut text) {
            return tracing::info!("{name}: {error}");
        }
        let text = String::from_utf8_lossy(&text);
        if !text.starts_with("#EXTM3U") {
            return;
        }
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut segments = self.segments.write().unwrap();
        let mut entries = self.entries.write().unwrap();
        for listed in listed(&text, folder) {
            if let Some(entry) = entries.get_mut(&listed) {
                entry.state = State::Download;
                self.count_change();
            }
            segments.insert(listed);
        }
    }

    /// Whether a playlist lists this file.
    pub(super) fn is_segment(&self, name: &str) -> bool {
        self.segments.read().unwrap().contains(name)
    }
}

/// The names of what a playlist in `folder` lists, as far as it lies below the served folder.
fn listed<'a>(text: &'a str, folder: &'a str) -> impl Iterator<Item = String> + 'a {
    let uris =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    uris.filter_map(move |uri| {
        let path = uri.split(['?', '#']).next().unwrap_or_default();
        if path.contains("://") {
            return None;
        }
        let path = percent_encoding::percent_decode_str(path).decode_utf8().ok()?;
        let base = if path.starts_with('/') { "" } else { folder };
        let mut name: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(name.pop()?),
                part => name.push(part),
            }
        }
        let name = name.join("/");
        (!is_playlist(&name)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_resolved_to_names_below_the_folder() {
        let text = "#EXTM3U\n#EXTINF:6,\n0.ts\n\nsub/1%20a.ts?x=y\r\n../up.ts\n/top.ts\n\
                    https://other/2.ts\n../../../out.ts\nmedia.m3u8\n%ff.ts\n";
        let names: Vec<_> = listed(text, "vod/film").collect();
        assert_eq!(names, ["vod/film/0.ts", "vod/film/sub/1 a.ts", "vod/up.ts", "top.ts"]);
        assert_eq!(listed("0.ts", "").collect::<Vec<_>>(), ["0.ts"]);
        assert!(is_playlist("a/b.M3U8") && !is_playlist("m3u8") && !is_playlist("a.ts"));
    }
}
