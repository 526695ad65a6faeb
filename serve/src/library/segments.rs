// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of HTTP Live Streaming titles: the segments that a playlist lists, and the media playlists
//! that a multivariant one lists.
//!
//! A segment is named like a transport stream. An encrypted one is not a stream, and a clear one is
//! six seconds of a film: neither is planned, shown as a stream or warned about. So playlists are
//! read before the other files of their folder, and a listed file stays a download as long as a
//! playlist lists it. A playlist is part of a title only if a multivariant one lists it; a
//! multivariant one never is: two that list each other are two titles.
//!
//! Durations of segments are kept for the pace of their downloads ([`super::media_rate`]).
//!
//! Costs one read of each playlist and about 100 bytes a segment, freed when the playlist is
//! removed or changes its list. Locks are held for [`STEP`] names at a time.
//!
//! Sources: RFC 8216 §4.1 (lines that are URIs), §4.3.2.1 (EXTINF), §4.3.4 (tags of multivariant
//! playlists), RFC 3986 §5.2 (base of relative URIs).
//! Does not keep a segment from being played over RTSP by its name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use wire::http::decoded_path;

use super::{Library, LibraryEntry, State};
use crate::library::formats::is_transport_stream;

/// Playlists of the folder with the names they list.
#[derive(Default)]
pub(super) struct Playlists {
    known: HashMap<String, Playlist>,
    /// Names that playlists list.
    listed: HashMap<Arc<str>, Listing>,
    /// Number of names in all lists together.
    names: usize,
    is_full_said: bool,
}

/// Listing of a name; no larger than the padding of its map allows.
#[derive(Default)]
struct Listing {
    /// Number of playlists that list it.
    playlists: u32,
    /// Media time of the segments in this file, by the playlist that gives most; 0: none.
    milliseconds: u32,
}

#[derive(Default)]
struct Playlist {
    kind: Kind,
    parts: Vec<Arc<str>>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Kind {
    /// True when the playlist lists playlists, not segments.
    is_multivariant: bool,
    /// True when some of its segments are encrypted.
    is_sealed: bool,
}

/// An HTTP Live Streaming title, identified by its playlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LibraryTitle {
    /// Bytes of the playlist and of all its existing parts.
    pub(crate) bytes: u64,
    /// Number of existing parts.
    pub(crate) parts: u64,
    /// True when some segments are encrypted.
    pub(crate) is_sealed: bool,
}

impl Playlists {
    /// True when a playlist lists this file or it is another playlist of a title.
    pub(super) fn is_part(&self, name: &str) -> bool {
        let is_multivariant = || self.known.get(name).is_some_and(|own| own.kind.is_multivariant);
        self.listed.contains_key(name) && !is_multivariant() || self.is_beside_master(name)
    }

    /// True when `seal hls` wrote this playlist beside `master.m3u8` for the same title: the first
    /// programme by its own name, or the list of the whole stream, which `unseal` reads.
    fn is_beside_master(&self, name: &str) -> bool {
        let Some(own) = self.known.get(name) else { return false };
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
        if file == MASTER {
            return false;
        }
        let beside = if folder.is_empty() { MASTER } else { &format!("{folder}/{MASTER}") };
        let master = self.known.get(beside).filter(|master| master.kind.is_multivariant);
        master.is_some_and(|master| match own.kind.is_multivariant {
            true => own.parts == master.parts,
            false => file == WHOLE,
        })
    }

    /// Returns the media time of the segments in this file by its playlists' durations; `None` when
    /// none lists it as a segment.
    pub(super) fn milliseconds(&self, name: &str) -> Option<u32> {
        self.listed.get(name).map(|listing| listing.milliseconds).filter(|&time| time > 0)
    }

    /// Returns the title whose playlist this file is. `looks` is the number of look-ups left for
    /// the index; a title that needs more is counted without its parts.
    pub(super) fn title(
        &self,
        name: &str,
        entries: &BTreeMap<String, LibraryEntry>,
        looks: &mut usize,
    ) -> Option<LibraryTitle> {
        let playlist = self.known.get(name).filter(|_| !self.is_part(name))?;
        let own = entries.get(name).map_or(0, |entry| entry.bytes);
        let is_multivariant = playlist.kind.is_multivariant;
        let media = |part: &Arc<str>| self.known.get(&**part).filter(|_| is_multivariant);
        let is_sealed = playlist.kind.is_sealed
            || playlist.parts.iter().filter_map(media).any(|media| media.kind.is_sealed);
        let mut title = LibraryTitle { bytes: own, parts: 0, is_sealed };
        let of_part = |part: &Arc<str>| 1 + media(part).map_or(0, |media| media.parts.len());
        match looks.checked_sub(playlist.parts.iter().map(of_part).sum()) {
            Some(left) => *looks = left,
            None => return Some(title),
        }
        let mut seen = HashSet::new();
        let mut count = |part: &Arc<str>| {
            if seen.insert(part.clone())
                && let Some(entry) = entries.get(&**part)
            {
                title.bytes += entry.bytes;
                title.parts += 1;
            }
        };
        for part in playlist.parts.iter().filter(|part| self.is_part(part)) {
            count(part);
            for segment in media(part).into_iter().flat_map(|media| &media.parts) {
                count(segment);
            }
        }
        Some(title)
    }

    /// Counts listed names; returns each name as stored, and those that were not listed before.
    fn list(&mut self, names: &[Listed]) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let (mut held, mut new) = (Vec::with_capacity(names.len()), Vec::new());
        for Listed { name, milliseconds } in names {
            let known = self.listed.get_key_value(name.as_str());
            let text = known.map_or_else(|| Arc::from(name.as_str()), |(text, _)| text.clone());
            let listing = self.listed.entry(text.clone()).or_default();
            listing.playlists += 1;
            listing.milliseconds = listing.milliseconds.max(*milliseconds);
            if listing.playlists == 1 {
                new.push(text.clone());
            }
            held.push(text);
        }
        self.names += names.len();
        (held, new)
    }

    /// Uncounts listed names; returns those that no playlist lists any more.
    fn unlist(&mut self, names: &[Arc<str>]) -> Vec<Arc<str>> {
        let mut gone = Vec::new();
        for name in names {
            let Some(listing) = self.listed.get_mut(name) else { continue };
            listing.playlists -= 1;
            if listing.playlists == 0 {
                self.listed.remove(name);
                gone.push(name.clone());
            }
        }
        self.names -= names.len();
        if self.listed.is_empty() {
            // Replaced, not cleared: frees the capacity, too.
            self.listed = HashMap::new();
        }
        gone
    }
}

/// True when the name is a playlist's.
pub(crate) fn is_playlist(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case("m3u8"))
}

impl Library {
    /// Reads what the playlist `name` lists now. Called by the librarian's thread only.
    pub(super) fn look_at_playlist(&self, name: &str, file: &File) {
        let mut text = Vec::new();
        if let Err(error) = file.take(PLAYLIST_BYTES_MAX).read_to_end(&mut text) {
            return tracing::info!("{name}: {error}");
        }
        let text = String::from_utf8_lossy(&text);
        match text.starts_with("#EXTM3U") {
            true => self.set_playlist(name, Some((kind(&text), listed(&text, name)))),
            false => self.set_playlist(name, None),
        }
    }

    /// Forgets what the playlist `name` listed. Called by the same thread.
    pub(super) fn forget_playlist(&self, name: &str) {
        self.set_playlist(name, None);
    }

    /// Replaces the list of a playlist; `None` when the file is no playlist.
    fn set_playlist(&self, name: &str, now: Option<(Kind, Vec<Listed>)>) {
        let is_playlist = now.is_some();
        let (kind, mut names) = now.unwrap_or_default();
        let before = {
            let mut playlists = self.playlists.write();
            let before = match is_playlist {
                true => playlists.known.insert(name.to_owned(), Playlist { kind, parts: vec![] }),
                false => playlists.known.remove(name),
            };
            let before = before.unwrap_or_default().parts;
            let room = PARTS_MAX.saturating_sub(playlists.names - before.len());
            let is_full = names.len() > room;
            names.truncate(room);
            if !std::mem::replace(&mut playlists.is_full_said, is_full) && is_full {
                tracing::warn!("{name}: {PARTS_MAX} parts of playlists are known; no more");
            }
            before
        };
        // Names in both lists stay counted throughout.
        let mut parts = Vec::with_capacity(names.len());
        for step in names.chunks(STEP) {
            let mut playlists = self.playlists.write();
            let (held, new) = playlists.list(step);
            self.set_parts(&new);
            parts.extend(held);
        }
        if let Some(own) = self.playlists.write().known.get_mut(name) {
            own.parts = parts;
        }
        for step in before.chunks(STEP) {
            let mut playlists = self.playlists.write();
            let gone = playlists.unlist(step);
            self.set_titles(&gone);
        }
        let _entries = self.entries.write();
        self.count_change();
    }

    /// Marks parts as downloads. Call it with the playlists locked.
    fn set_parts(&self, names: &[Arc<str>]) {
        let mut entries = self.entries.write();
        for name in names {
            if let Some(entry) = entries.get_mut(&**name) {
                (entry.state, entry.is_live) = (State::Download, false);
            }
        }
    }

    /// Queues files that are no longer parts for planning, as ordinary files. Call it with the
    /// playlists locked.
    fn set_titles(&self, names: &[Arc<str>]) {
        let mut entries = self.entries.write();
        for name in names.iter().filter(|name| is_transport_stream(name)) {
            if let Some(entry) = entries.get_mut(&**name) {
                entry.state = State::Waiting;
                self.scans.queue(name.to_string(), entry.bytes, Instant::now());
            }
        }
    }

    /// True when a playlist lists this file.
    pub(crate) fn is_part(&self, name: &str) -> bool {
        self.playlists.read().is_part(name)
    }
}

/// Determines the kind of a playlist from its tags.
fn kind(text: &str) -> Kind {
    let is_multivariant =
        |tag: &str| tag.starts_with("#EXT-X-STREAM-INF:") || tag.starts_with("#EXT-X-MEDIA:");
    let is_key = |tag: &str| {
        let is_one = tag.starts_with("#EXT-X-KEY:") || tag.starts_with("#EXT-X-SESSION-KEY:");
        is_one && !tag.contains("METHOD=NONE")
    };
    let mut tags = text.lines().map(str::trim);
    Kind { is_multivariant: tags.clone().any(is_multivariant), is_sealed: tags.any(is_key) }
}

/// A name in a playlist with the media time of all its segments.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    name: String,
    milliseconds: u32,
}

/// Returns the names that the playlist `name` lists, each once: lines that are URIs, and URIs in
/// tags (renditions, initialization sections). Names outside the playlist's own folder are left
/// out, so that a user who may write one folder cannot hide the titles of another. Playlists are
/// left out unless the list is multivariant.
fn listed(text: &str, name: &str) -> Vec<Listed> {
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
    let is_multivariant = kind(text).is_multivariant;
    let uri = |line| -> Option<&str> {
        let Some(tag) = str::strip_prefix(line, "#") else {
            return Some(line).filter(|line| !line.is_empty());
        };
        // Keys are no parts of a film.
        let is_key = tag.starts_with("EXT-X-KEY") || tag.starts_with("EXT-X-SESSION-KEY");
        tag.split_once("URI=\"").filter(|_| !is_key)?.1.split('"').next()
    };
    let resolved = |uri: &str| {
        let path = uri.split(['?', '#']).next().unwrap_or_default();
        if path.contains("://") {
            return None;
        }
        let path = decoded_path(path);
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
    };
    let is_part = |listed: &String| {
        let is_own = match folder {
            "" => true,
            folder => listed.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')),
        };
        is_own && listed != name && (is_multivariant || !is_playlist(listed))
    };
    let mut names: Vec<Listed> = Vec::new();
    let mut duration = 0;
    for line in text.lines().map(str::trim) {
        if let Some(tag) = line.strip_prefix("#EXTINF:") {
            duration = tag_milliseconds(tag);
        }
        let is_uri = !line.is_empty() && !line.starts_with('#');
        let milliseconds = if !is_uri { 0 } else { std::mem::take(&mut duration) };
        let name = uri(line).and_then(resolved).filter(is_part);
        names.extend(name.map(|name| Listed { name, milliseconds }));
    }
    names.sort_by(|one, other| one.name.cmp(&other.name));
    // Segments that are ranges of one file share its name.
    names.dedup_by(|next, kept| {
        let is_same = next.name == kept.name;
        if is_same {
            kept.milliseconds = kept.milliseconds.saturating_add(next.milliseconds);
        }
        is_same
    });
    names
}

/// Returns the milliseconds of an EXTINF tag (RFC 8216 §4.3.2.1), 0 when it has no duration.
fn tag_milliseconds(tag: &str) -> u32 {
    let seconds = tag.split(',').next().and_then(|seconds| seconds.trim().parse::<f64>().ok());
    // A cast saturates, and of NaN makes 0.
    (seconds.unwrap_or(0.0) * 1000.0) as u32
}

/// Names of the multivariant playlist and of the whole stream's playlist.
const MASTER: &str = "master.m3u8";
const WHOLE: &str = "media.m3u8";
/// Longest playlist that is read; holds 50,000 segments and more.
const PLAYLIST_BYTES_MAX: u64 = 16 << 20;
/// Most parts in all lists together: some 200 MB with names of usual length.
const PARTS_MAX: usize = if cfg!(test) { 10_000 } else { 1_000_000 };
/// Most look-ups for the titles of an index: each part twice, if it is part of one title. Playlists
/// that list the same parts repeatedly need many more.
pub(super) const LOOKS_MAX: usize = 2 * PARTS_MAX;
/// Names looked up while locks are held: some 100 µs.
const STEP: usize = 256;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

    use super::*;
    use crate::library::served_folder::Folder;
    use media::PlanStore;

    #[test]
    fn uris_are_resolved_to_names_below_the_folder() {
        let text = "#EXTM3U\n#EXTINF:6,\n0.ts\n\nsub/1%20a.ts?x=y\r\n../up.ts\n/top.ts\n\
                    https://other/2.ts\n../../../out.ts\nmedia.m3u8\n%ff.ts\nmaster.m3u8\n0.ts\n\
                    #EXT-X-MEDIA:TYPE=AUDIO,URI=\"aac.m3u8\",NAME=\"a\"\n\
                    #EXT-X-SESSION-KEY:METHOD=AES-128,URI=\"1.key\"\n\
                    #EXT-X-KEY:METHOD=AES-128,URI=\"0.key\"\n#EXT-X-ENDLIST\n";
        let expected = ["0.ts", "aac.m3u8", "media.m3u8", "sub/1 a.ts", "\u{10ffff}.ts"];
        let names = |text: &str, name: &str| -> Vec<String> {
            listed(text, name).into_iter().map(|listed| listed.name).collect()
        };
        assert_eq!(
            names(text, "vod/film/master.m3u8"),
            expected.map(|name| format!("vod/film/{name}"))
        );
        assert_eq!(listed("/top.ts\nvod/0.ts", "m.m3u8").len(), 2, "all is below the top");
        assert!(listed("../filmed/0.ts", "vod/film/m.m3u8").is_empty(), "a neighbour's");
        assert_eq!(names("0.ts", "m.m3u8"), ["0.ts"]);
        assert!(is_playlist("a/b.M3U8") && !is_playlist("m3u8") && !is_playlist("a.ts"));
    }

    #[test]
    fn durations_are_those_of_all_segments_in_a_file() {
        let text = "#EXTM3U\n#EXT-X-MAP:URI=\"a.mp4\",BYTERANGE=\"9@0\"\n#EXTINF:6.006,title\n\
                    #EXT-X-BYTERANGE:9@9\na.mp4\n#EXTINF:4\na.mp4\n#EXTINF:x,\n\nb.ts\nc.ts\n\
                    #EXTINF:-1,\nd.ts\n#EXTINF:1e99,\ne.ts\n#EXTINF:NaN,\nf.ts\n";
        let expected = [10_006, 0, 0, 0, u32::MAX, 0];
        let found = listed(text, "m.m3u8").into_iter().map(|listed| listed.milliseconds);
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn kinds_of_playlists_are_told_apart_by_their_tags() {
        let kind = |tags: &str| {
            let Kind { is_multivariant, is_sealed } = kind(&format!("#EXTM3U\r\n{tags}\r\n"));
            (is_multivariant, is_sealed)
        };
        assert_eq!(kind("#EXT-X-MEDIA-SEQUENCE:1\n#EXT-X-KEY:METHOD=NONE"), (false, false));
        assert_eq!(kind("#EXT-X-STREAM-INF:BANDWIDTH=1"), (true, false));
        assert_eq!(kind("#EXT-X-MEDIA:TYPE=AUDIO"), (true, false));
        assert_eq!(kind("#EXT-X-KEY:METHOD=AES-128,URI=\"0.key\""), (false, true));
    }

    struct Scene {
        place: tempfile::TempDir,
        library: Library,
    }

    impl Scene {
        /// Creates a scene with these files known, as by the librarian.
        fn with(names: &[&str]) -> Scene {
            let place = tempfile::tempdir().unwrap();
            let folder = Arc::new(Folder::open(place.path()).unwrap());
            let library = Library::new(folder, PlanStore::open(Some(place.path().join(".cache"))));
            let modified = SystemTime::UNIX_EPOCH;
            for name in names {
                let state =
                    if is_transport_stream(name) { State::Waiting } else { State::Download };
                let entry = LibraryEntry { bytes: 10, modified, state, is_live: false };
                library.entries.write().insert((*name).to_owned(), entry);
            }
            Scene { place, library }
        }

        fn set(&self, name: &str, text: &str) {
            let path = self.place.path().join(name);
            fs::write(&path, format!("#EXTM3U\n{text}")).unwrap();
            self.library.look_at_playlist(name, &File::open(path).unwrap());
        }

        /// Returns the names that are no parts; a `*` follows those to be planned.
        fn titles(&self) -> String {
            let shown = self.library.entries().into_iter().filter(|file| !file.is_part);
            let named = shown.map(|file| {
                let is_waiting = file.entry.state == State::Waiting;
                file.name + if is_waiting { "*" } else { "" }
            });
            named.collect::<Vec<_>>().join(" ")
        }
    }

    /// Regression: parts stayed hidden until a restart, and their names were kept for ever.
    #[test]
    fn parts_are_titles_again_when_no_playlist_lists_them() {
        let scene = Scene::with(&["0.ts", "1.ts", "2.ts", "a.m3u8", "b.m3u8"]);
        assert_eq!(scene.titles(), "0.ts* 1.ts* 2.ts* a.m3u8 b.m3u8");
        scene.set("a.m3u8", "0.ts\n1.ts\n1.ts\n");
        scene.set("b.m3u8", "1.ts\n2.ts\n");
        assert_eq!(scene.titles(), "a.m3u8 b.m3u8");
        scene.set("a.m3u8", "1.ts\n");
        assert_eq!(scene.titles(), "0.ts* a.m3u8 b.m3u8");
        scene.library.forget_playlist("b.m3u8");
        assert_eq!(scene.titles(), "0.ts* 2.ts* a.m3u8 b.m3u8");
        // A playlist by its name only.
        fs::write(scene.place.path().join("a.m3u8"), "1.ts\n").unwrap();
        let file = File::open(scene.place.path().join("a.m3u8")).unwrap();
        scene.library.look_at_playlist("a.m3u8", &file);
        assert_eq!(scene.titles(), "0.ts* 1.ts* 2.ts* a.m3u8 b.m3u8");
        let playlists = scene.library.playlists.read();
        let left = (playlists.known.len(), playlists.listed.capacity(), playlists.names);
        assert_eq!(left, (0, 0, 0), "nothing is kept");
    }

    /// Regression: two that listed each other both disappeared.
    #[test]
    fn multivariant_playlists_hide_media_playlists_and_none_of_their_own_kind() {
        let scene = Scene::with(&["0.ts", "a.m3u8", "b.m3u8", "m.m3u8", "n.m3u8", "x.ts"]);
        let multivariant = "#EXT-X-STREAM-INF:BANDWIDTH=1\n";
        scene.set("a.m3u8", &format!("{multivariant}b.m3u8\nm.m3u8\n"));
        scene.set("b.m3u8", &format!("{multivariant}a.m3u8\n"));
        scene.set("m.m3u8", "#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n0.ts\nn.m3u8\n");
        scene.set("n.m3u8", "m.m3u8\n");
        assert_eq!(scene.titles(), "a.m3u8 b.m3u8 n.m3u8 x.ts*");
        let title = |name: &str| {
            let files = scene.library.entries();
            files.into_iter().find(|file| file.name == name).and_then(|file| file.title)
        };
        // The playlist itself, the media playlist and its segment.
        assert_eq!(title("a.m3u8"), Some(LibraryTitle { bytes: 30, parts: 2, is_sealed: true }));
        assert_eq!(title("b.m3u8"), Some(LibraryTitle { bytes: 10, parts: 0, is_sealed: false }));
        assert_eq!((title("m.m3u8"), title("x.ts")), (None, None));
    }

    /// Regression: two programmes appeared as four films.
    #[test]
    fn programme_of_a_film_is_one_title() {
        let names = ["f/0.ts", "f/1.ts", "f/a.ts"];
        let lists = ["f/master.m3u8", "f/media.m3u8", "f/program-1.m3u8", "f/program-2.m3u8"];
        let media = ["f/program-1-media.m3u8", "f/program-2-media.m3u8"];
        let scene = Scene::with(&[&names[..], &lists, &media].concat());
        fs::create_dir(scene.place.path().join("f")).unwrap();
        scene.set("f/media.m3u8", "a.ts\n");
        for number in [1, 2] {
            scene.set(&format!("f/program-{number}-media.m3u8"), &format!("{}.ts\n", number - 1));
            let own = format!("#EXT-X-STREAM-INF:BANDWIDTH=1\nprogram-{number}-media.m3u8\n");
            scene.set(&format!("f/program-{number}.m3u8"), &own);
            if number == 1 {
                scene.set("f/master.m3u8", &own);
            }
        }
        assert_eq!(scene.titles(), "f/master.m3u8 f/program-2.m3u8");
        scene.library.forget_playlist("f/master.m3u8");
        assert_eq!(scene.titles(), "f/master.m3u8 f/media.m3u8 f/program-1.m3u8 f/program-2.m3u8");
    }

    #[test]
    fn titles_beyond_the_looks_of_an_index_have_their_playlist_alone() {
        let scene = Scene::with(&["0.ts", "1.ts", "a.m3u8", "b.m3u8", "m.m3u8"]);
        scene.set("m.m3u8", "0.ts\n1.ts\n");
        for name in ["a.m3u8", "b.m3u8"] {
            scene.set(name, "#EXT-X-STREAM-INF:BANDWIDTH=1\nm.m3u8\n");
        }
        let playlists = scene.library.playlists.read();
        let entries = scene.library.entries.read();
        let mut looks = 5;
        let mut parts = |name: &str| playlists.title(name, &entries, &mut looks).unwrap().parts;
        assert_eq!([parts("a.m3u8"), parts("b.m3u8")], [3, 0]);
        assert_eq!(looks, 2);
    }

    #[test]
    fn lists_end_where_all_parts_together_are_too_many() {
        let scene = Scene::with(&["0.ts", "a.m3u8", "b.m3u8"]);
        let listed = |name: String| Listed { name, milliseconds: 0 };
        let names = (0..PARTS_MAX).map(|number| listed(format!("a/{number}.ts"))).collect();
        let set = |name: &str, names: Vec<Listed>| {
            scene.library.set_playlist(name, Some((Kind::default(), names)));
        };
        set("a.m3u8", names);
        set("b.m3u8", vec![listed("0.ts".to_owned())]);
        assert_eq!(scene.titles(), "0.ts* a.m3u8 b.m3u8", "there is no room");
        scene.library.forget_playlist("a.m3u8");
        set("b.m3u8", vec![listed("0.ts".to_owned())]);
        assert_eq!(scene.titles(), "a.m3u8 b.m3u8", "the room was given back");
    }
}
