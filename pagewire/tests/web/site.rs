// SPDX-License-Identifier: MIT OR Apache-2.0
//! All playlists of a served file, fetched as a player does: the multivariant playlist and all that
//! it names.
//!
//! Sources: RFC 3986 §5 (relative references); RFC 8216 §4.1.
//! Does not follow references to other servers: there are none.

use std::collections::BTreeSet;

use crate::clips::Clip;
use crate::harness::Server;
use crate::harness::answer::{Answer, Line};

/// A playlist of HLS.
#[derive(Debug, Clone)]
pub(crate) struct Playlist {
    /// Path of its address.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Playlist {
    /// True of a multivariant playlist.
    pub(crate) fn is_master(&self) -> bool {
        self.path.split('?').next().is_some_and(|path| path.ends_with("/master.m3u8"))
    }

    /// Returns the values of a tag, in order; a tag without a value gives an empty one.
    pub(crate) fn values(&self, tag: &str) -> Vec<&str> {
        let of = |line: &'_ str| {
            let line = line.to_owned();
            line.split_once(':').map_or(line.clone(), |(name, _)| name.to_owned())
        };
        let lines = self.text.lines().filter(|line| of(line) == format!("#{tag}"));
        lines.map(|line| line.split_once(':').map_or("", |(_, value)| value)).collect()
    }

    /// Returns the playlists that it names.
    fn references(&self) -> BTreeSet<String> {
        let lines = self.text.lines();
        let uris = lines.clone().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let quoted = lines.filter_map(|line| line.split_once("URI=\"")?.1.split('"').next());
        uris.chain(quoted).map(|uri| resolved(&self.path, uri)).collect()
    }
}

/// Returns the multivariant playlist of a clip, then all media playlists.
pub(crate) fn playlists(server: &Server, clip: Clip) -> Vec<Playlist> {
    playlists_below(server, clip.name(), "")
}

/// As [`playlists`], for a file or folder of this name; `query` is appended to the address of the
/// first.
#[track_caller]
pub(crate) fn playlists_below(server: &Server, name: &str, query: &str) -> Vec<Playlist> {
    let master = format!("/{name}/master.m3u8{query}");
    let master = Playlist { text: text(server, &master), path: master };
    let references = master.references().into_iter();
    let media = references.map(|path| Playlist { text: text(server, &path), path });
    let media: Vec<Playlist> = media.collect();
    assert!(!media.is_empty(), "{}", master.text);
    [master].into_iter().chain(media).collect()
}

/// Returns the DASH description of a clip, and the path of its address.
pub(crate) fn manifest(server: &Server, clip: Clip) -> (String, String) {
    manifest_of(server, clip.name())
}

/// As [`manifest`], for a file of this name.
#[track_caller]
pub(crate) fn manifest_of(server: &Server, name: &str) -> (String, String) {
    let path = format!("/{name}/manifest.mpd");
    (text(server, &path), path)
}

/// Returns an existing text.
#[track_caller]
fn text(server: &Server, path: &str) -> String {
    let answer = fetch(server, path, None);
    assert_eq!(answer.status, 200, "{path}: {}", answer.head);
    String::from_utf8(answer.body).expect("UTF-8")
}

/// Fetches a resource, or a range of it: offset and number of bytes.
#[track_caller]
pub(crate) fn fetch(server: &Server, path: &str, range: Option<(u64, u64)>) -> Answer {
    let range =
        range.map(|(offset, bytes)| format!("Range: bytes={offset}-{}\r\n", offset + bytes - 1));
    let range = range.unwrap_or_default();
    let mut line = Line::to(server.http);
    line.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{range}\r\n"));
    line.answer().unwrap_or_else(|| panic!("{path}: closed without an answer"))
}

/// Returns the path that a relative reference names.
pub(crate) fn resolved(base: &str, reference: &str) -> String {
    assert!(!reference.contains("://") && !reference.contains(".."), "{reference}");
    if reference.starts_with('/') {
        return reference.to_owned();
    }
    let folder = base.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{folder}/{reference}")
}
