// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of HTTP Live Streaming: what a playlist lists, which are no titles of their own: segments,
//! and playlists that another one lists.
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

/// Parts of all playlists together: some 200 MB with names of usual length.
const SEGMENTS_MAX: usize = 1_000_000;

/// Whether a file is called a playlist.
pub(crate) fn is_playlist(name: &str) -> bool {
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
        let mut segments = self.segments.write().unwrap();
        let mut entries = self.entries.write().unwrap();
        for listed in listed(&text, name) {
            if segments.len() == SEGMENTS_MAX {
                return tracing::warn!(
                    "{name}: {SEGMENTS_MAX} parts of playlists are known; no more"
                );
            }
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

/// The names of what the playlist `name` lists, as far as it lies below the served folder: lines
/// that are URIs, and the URIs in tags (renditions, initialization sections). What does not lie in
/// the playlist's own folder or below is no part of it: whoever may write one folder shall not hide
/// the titles of another.
fn listed<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
    let uri = |line: &'a str| match line.strip_prefix('#') {
        None => Some(line).filter(|line| !line.is_empty()),
        // Keys are not listed here: they are no part of a film.
        Some(tag) if tag.starts_with("EXT-X-KEY") => None,
        Some(tag) => tag.split_once("URI=\"")?.1.split('"').next(),
    };
    let uris = text.lines().map(str::trim).filter_map(uri);
    let names = uris.filter_map(move |uri| {
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
        Some(name.join("/"))
    });
    let is_own = move |listed: &String| match folder {
        "" => true,
        folder => listed.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')),
    };
    names.filter(move |listed| listed != name && is_own(listed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_resolved_to_names_below_the_folder() {
        let text = "#EXTM3U\n#EXTINF:6,\n0.ts\n\nsub/1%20a.ts?x=y\r\n../up.ts\n/top.ts\n\
                    https://other/2.ts\n../../../out.ts\nmedia.m3u8\n%ff.ts\nmaster.m3u8\n\
                    #EXT-X-MEDIA:TYPE=AUDIO,URI=\"aac.m3u8\",NAME=\"a\"\n\
                    #EXT-X-KEY:METHOD=AES-128,URI=\"0.key\"\n#EXT-X-ENDLIST\n";
        let names: Vec<_> = listed(text, "vod/film/master.m3u8").collect();
        let below = ["0.ts", "sub/1 a.ts"].map(|name| format!("vod/film/{name}"));
        let others = ["vod/film/media.m3u8", "vod/film/aac.m3u8"];
        assert_eq!(names, [&below.each_ref().map(String::as_str)[..], &others].concat());
        assert_eq!(listed("/top.ts\nvod/0.ts", "m.m3u8").count(), 2, "all is below the top");
        assert_eq!(listed("../filmed/0.ts", "vod/film/m.m3u8").count(), 0, "a neighbour's");
        assert_eq!(listed("0.ts", "m.m3u8").collect::<Vec<_>>(), ["0.ts"]);
        assert!(is_playlist("a/b.M3U8") && !is_playlist("m3u8") && !is_playlist("a.ts"));
    }
}
