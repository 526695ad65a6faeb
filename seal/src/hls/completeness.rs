// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completeness of a film's folder: finds a file that is missing or was changed.
//!
//! The journal lists files with their sizes. Journals of earlier versions do not: then names are
//! those in the playlists, and sizes are unknown.
//!
//! Costs one `stat` a file; with an earlier journal also a read of each playlist. Does not read
//! segments (`verify_film`).

use rustix::fs::FileType;

use super::film_journal::{Journal, NAME};
use super::film_part::is_part;
use super::playlist::{
    MASTER, MEDIA, PLAYLIST_BYTES_MAX, playlist_name, read_playlist, segment_name,
};
use crate::dir_handle::DirHandle;
use crate::folder_walk::modified;
use crate::target_path::c_string;
use crate::trust::{self, Writer};

/// Describes a file of a finished film that is missing, or has another size or a newer time. The
/// journal was written last, so no file of the film is newer.
pub(super) fn harm(folder: &DirHandle, journal: &Journal) -> Option<String> {
    let written = modified(&folder.stat(NAME).ok()?);
    let names = playlists(folder, Some(journal));
    let segments = || {
        let ids = names.iter().filter_map(|name| media_id(name));
        let known = ids.filter_map(|id| Some((read_playlist(folder, id).ok()?.lines.len(), id)));
        known.flat_map(|(count, id)| (0..count as u64).map(move |index| segment_name(id, index)))
    };
    let files: Vec<(String, Option<u64>)> = match journal.files.is_empty() {
        true => names.iter().cloned().chain(segments()).map(|name| (name, None)).collect(),
        false => journal.files.iter().map(|(name, bytes)| (name.clone(), Some(*bytes))).collect(),
    };
    files.into_iter().find_map(|(name, bytes)| {
        let stat = c_string(name.as_ref()).ok().and_then(|name| folder.stat(&name).ok());
        let found = match stat {
            None => "is missing",
            Some(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                "is no regular file"
            }
            Some(stat) if bytes.is_some_and(|bytes| bytes != stat.st_size.unsigned_abs()) => {
                "has another size"
            }
            Some(stat) if modified(&stat) > written => "was changed since",
            Some(_) => return None,
        };
        Some(format!("{name} {found}"))
    })
}

/// Lists the playlists that a film's folder must have: from its journal, else from its multivariant
/// playlist.
pub(super) fn playlists(folder: &DirHandle, journal: Option<&Journal>) -> Vec<String> {
    let listed = journal.iter().flat_map(|journal| &journal.files);
    let listed: Vec<_> =
        listed.map(|(name, _)| name.clone()).filter(|name| is_playlist(name)).collect();
    if !listed.is_empty() {
        return listed;
    }
    let text = c_string(MASTER.as_ref()).ok().and_then(|name| {
        trust::read(folder, &name, Writer::Anybody, PLAYLIST_BYTES_MAX).ok().flatten()
    });
    let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
    let named = text.lines().filter_map(|line| match line.starts_with('#') {
        true => line.split_once("URI=\"")?.1.split_once('"').map(|(uri, _)| uri),
        false => Some(line),
    });
    let mut names = vec![MEDIA.to_owned()];
    // Without a journal the folder may be a copy without hidden files, or for its segments only.
    names.extend(journal.map(|_| MASTER.to_owned()));
    names.extend(named.filter(|name| media_id(name).is_some_and(is_part)).map(str::to_owned));
    names.sort_unstable();
    names.dedup();
    names
}

fn is_playlist(name: &str) -> bool {
    name.ends_with(".m3u8")
}

/// Returns the part whose media playlist has that name; `None` for a multivariant playlist.
pub(super) fn media_id(name: &str) -> Option<&str> {
    let id = if name == MEDIA { "" } else { name.strip_suffix(".m3u8")? };
    (id.is_empty() || is_part(id) && playlist_name(id) == name).then_some(id)
}
