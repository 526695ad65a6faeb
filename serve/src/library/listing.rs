// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of files, by a walk over the folder and by a look at one name after an event.
//!
//! Everything is opened beneath the served folder without following links to folders, so a link
//! costs as much as a file. A look at a name costs O(log n) for n listed files; a walk costs one
//! look for each name below its folder.
//!
//! Sources: openat2(2), getdents64(2).
//! Does not descend into symbolic links to folders; their files are served but not listed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use wire::http::path_text;

use super::segments::is_playlist;
use super::watch::Librarian;
use super::{Library, LibraryEntry, State};
use crate::library::formats::{is_recorded_format, is_streamed};
use crate::library::growing_file::is_recorded;
use crate::library::served_folder::{Denied, is_hidden};

/// Result of a look at a name.
enum Look {
    Listed {
        /// True while a recorder writes the file.
        is_live: bool,
    },
    /// A folder, or a link to one.
    NotAFile,
    /// No file of this name can be served.
    Gone,
    /// No descriptor was free: the entry stays and the name has to be looked at again.
    Unknown,
}

impl Librarian<'_> {
    /// Looks at every name below the folder `top`, sets watches and forgets missing files. False
    /// when descriptors ran out.
    pub(super) fn walk(&mut self, top: &str) -> bool {
        let mut is_whole = true;
        let mut folders = vec![top.to_owned()];
        while let Some(folder) = folders.pop() {
            if self.is_stopping() {
                return true;
            }
            match self.list(&folder) {
                // Playlists come first: files that they list are not planned.
                Ok(Listing { playlists, others, folders: below }) => {
                    self.unread.remove(&folder);
                    for name in playlists.into_iter().chain(others) {
                        let look = self.library.look_at_file(&name);
                        self.note_recorded(&name, &look);
                        match look {
                            Look::NotAFile => folders.push(name),
                            Look::Unknown => is_whole = false,
                            Look::Listed { .. } | Look::Gone => {}
                        }
                        self.drain_now_and_then();
                    }
                    folders.extend(below);
                }
                Err(Errno::MFILE | Errno::NFILE) => is_whole = false,
                // The folder is gone meanwhile, or is a link.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) if self.unread.insert(folder.clone()) => {
                    tracing::warn!("walking the folder /{folder}: {error}; passed over");
                }
                // Every walk finds it again.
                Err(_) => {}
            }
        }
        self.library.forget_missing(top);
        is_whole
    }

    /// Looks at a name again. False when no descriptor was free.
    pub(super) fn look(&mut self, name: &str) -> bool {
        let look = self.library.look_at_file(name);
        self.note_recorded(name, &look);
        match look {
            Look::Listed { .. } => true,
            Look::Unknown => false,
            Look::NotAFile => self.walk(name),
            Look::Gone => {
                if let Some(watches) = &mut self.watches {
                    watches.remove(name);
                }
                self.library.forget(name);
                true
            }
        }
    }

    /// Keeps the names of recordings, which are looked at again periodically.
    fn note_recorded(&mut self, name: &str, look: &Look) {
        match look {
            Look::Listed { is_live: true } => drop(self.recorded.insert(name.to_owned())),
            Look::Listed { is_live: false } | Look::NotAFile | Look::Gone => {
                self.recorded.remove(name);
            }
            Look::Unknown => {}
        }
    }

    /// Watches a folder and lists its names.
    fn list(&mut self, folder: &str) -> Result<Listing, Errno> {
        let open = self.library.folder.subfolder(folder)?;
        self.watch_folder(folder, &open);
        let mut listing = Listing::default();
        for entry in Dir::new(open)? {
            let entry = entry?;
            let name = path_text(entry.file_name().to_bytes());
            if is_hidden(&name) || name == "." {
                continue;
            }
            let separator = if folder.is_empty() { "" } else { "/" };
            let name = format!("{folder}{separator}{name}");
            match entry.file_type() {
                FileType::Directory => listing.folders.push(name),
                _ if is_playlist(&name) => listing.playlists.push(name),
                _ => listing.others.push(name),
            }
        }
        Ok(listing)
    }
}

/// A file as it was found last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) modified: SystemTime,
}

/// Names in a folder, hidden ones excluded.
#[derive(Default)]
struct Listing {
    playlists: Vec<String>,
    others: Vec<String>,
    folders: Vec<String>,
}

impl Library {
    /// Returns a number that differs after any entry has changed, appeared or disappeared.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Counts a change. Call it with the entries locked.
    pub(super) fn count_change(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns the files whose names begin so, with their sizes and times of change, by name;
    /// looks at `limit` names at most.
    pub(crate) fn beginning_with(&self, name: &str, limit: usize) -> Vec<ListedFile> {
        let entries = self.entries.read();
        let known = entries.range(name.to_owned()..).take(limit);
        let known = known.take_while(|(found, _)| found.starts_with(name));
        let listed = known.map(|(name, entry)| ListedFile {
            name: name.clone(),
            bytes: entry.bytes,
            modified: entry.modified,
        });
        listed.collect()
    }

    /// Lists the names directly in this folder, whose name ends with `/`, that are or may be media
    /// to be played, at most `limit`; none in a folder of more than [`NAMES_LOOKED_AT_MAX`] files
    /// and folders.
    pub(crate) fn playable_in(&self, folder: &str, limit: usize) -> Vec<String> {
        let entries = self.entries.read();
        let mut found = Vec::new();
        for (looked_at, next) in directly_in(&entries, folder).enumerate() {
            if looked_at == NAMES_LOOKED_AT_MAX {
                return Vec::new();
            }
            match next {
                Some((_, entry)) if matches!(entry.state, State::Download) || entry.is_live => {}
                Some((name, _)) => found.push(name.clone()),
                None => {}
            }
            if found.len() == limit {
                break;
            }
        }
        found
    }

    fn look_at_file(&self, name: &str) -> Look {
        if name.split('/').any(is_hidden) {
            return Look::Gone;
        }
        // Opened as for requests: a listed file can be fetched.
        let (file, metadata) = match self.folder.file(name) {
            Ok(opened) => opened,
            Err(denied) => return self.look_at_unopened(name, &denied),
        };
        let bytes = metadata.len();
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let is_part = self.is_part(name);
        let is_live = !is_part && is_recorded_format(name) && is_recorded(&file);
        let mut entries = self.entries.write();
        let known = entries.get(name);
        if known.is_some_and(|known| {
            (known.bytes, known.modified, known.is_live) == (bytes, modified, is_live)
        }) {
            return Look::Listed { is_live };
        }
        let is_played = known.is_some_and(|k| !matches!(k.state, State::Download));
        let playable = !is_part && (is_streamed(name) || is_played);
        let state = if playable { State::Waiting } else { State::Download };
        entries.insert(name.to_owned(), LibraryEntry { bytes, modified, state, is_live });
        self.count_change();
        drop(entries);
        if is_playlist(name) {
            self.look_at_playlist(name, &file);
        }
        // A recording is planned on request or when it is complete.
        if playable && !is_live {
            self.scans.queue(name.to_owned(), bytes, Instant::now());
        }
        Look::Listed { is_live }
    }

    /// Lists a file that is there and cannot be read, with the reason: it is not left out silently.
    fn look_at_unopened(&self, name: &str, denied: &Denied) -> Look {
        match denied {
            Denied::DescriptorsExhausted => return Look::Unknown,
            Denied::NotAFile => return Look::NotAFile,
            Denied::Missing | Denied::Outside => return Look::Gone,
            Denied::Unreadable | Denied::Host(_) => {}
        }
        // An entry in a folder that may not be searched is not listed; of the others only files
        // are.
        match self.folder.kind_of(name) {
            Some(kind) if kind.is_file() => {}
            Some(_) => return Look::NotAFile,
            None => return Look::Gone,
        }
        let state = State::Refused(denied.to_string());
        let (bytes, modified) = (0, SystemTime::UNIX_EPOCH);
        let entry = LibraryEntry { bytes, modified, state, is_live: false };
        let mut entries = self.entries.write();
        if entries.get(name) != Some(&entry) {
            tracing::warn!("{name}: {denied}; listed, and not served");
            entries.insert(name.to_owned(), entry);
            self.count_change();
        }
        Look::Listed { is_live: false }
    }

    /// Forgets a name and all names below it.
    fn forget(&self, name: &str) {
        self.at_and_below(name).iter().for_each(|name| self.forget_file(name));
    }

    fn at_and_below(&self, name: &str) -> Vec<String> {
        let entries = self.entries.read();
        at_and_below(&entries, name).map(|(name, _)| name.clone()).collect()
    }

    fn forget_file(&self, name: &str) {
        let mut entries = self.entries.write();
        entries.remove(name);
        self.count_change();
        drop(entries);
        if is_playlist(name) {
            self.forget_playlist(name);
        }
    }

    /// Forgets entries below the folder `top` that are no files any more.
    fn forget_missing(&self, top: &str) {
        for name in self.at_and_below(top) {
            let is_gone = |denied: Denied| match denied {
                Denied::Missing | Denied::Outside | Denied::NotAFile => true,
                Denied::Unreadable => self.folder.kind_of(&name).is_none(),
                Denied::DescriptorsExhausted | Denied::Host(_) => false,
            };
            if self.folder.file(&name).is_err_and(is_gone) {
                self.forget_file(&name);
            }
        }
    }

    pub(super) fn is_waiting(&self, name: &str) -> bool {
        let entries = self.entries.read();
        let is_waiting =
            |entry: &LibraryEntry| matches!(entry.state, State::Waiting) && !entry.is_live;
        entries.get(name).is_some_and(is_waiting)
    }
}

/// Returns the entry of `name` and those below it; all for the empty name. Visits no other.
pub(super) fn at_and_below<'a, T>(
    entries: &'a BTreeMap<String, T>,
    name: &str,
) -> impl Iterator<Item = (&'a String, &'a T)> {
    let all = name.is_empty();
    // `0` directly follows `/` in ASCII.
    let (first, end) = (format!("{name}/"), format!("{name}0"));
    let from = if all { Bound::Unbounded } else { Bound::Included(first) };
    let to = if all { Bound::Unbounded } else { Bound::Excluded(end) };
    let at = entries.get_key_value(name).filter(|_| !all);
    at.into_iter().chain(entries.range((from, to)))
}

/// Returns the entries directly in a folder, whose name ends with `/`, and `None` in the place of
/// each folder. Visits none of theirs but the first.
fn directly_in<'a, T>(
    entries: &'a BTreeMap<String, T>,
    folder: &str,
) -> impl Iterator<Item = Option<(&'a String, &'a T)>> {
    let mut below = entries.range(folder.to_owned()..);
    std::iter::from_fn(move || {
        let (name, entry) = below.next().filter(|(name, _)| name.starts_with(folder))?;
        let Some(slash) = name[folder.len()..].find('/') else { return Some(Some((name, entry))) };
        let behind = format!("{}0", &name[..folder.len() + slash]);
        below = entries.range(behind..);
        Some(None)
    })
}

/// Names of a folder that are looked at for renditions of a title, on the event loop of a request:
/// a tenth of a millisecond.
const NAMES_LOOKED_AT_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use media::PlanStore;

    use super::*;
    use crate::library::served_folder::Folder;

    /// The user of tests may be root, which may read everything.
    #[test]
    fn file_that_cannot_be_read_is_listed_with_the_reason_until_it_can() {
        let place = tempfile::tempdir().unwrap();
        let folder = Arc::new(Folder::open(place.path()).unwrap());
        let library = Library::new(folder, PlanStore::open(Some(place.path().join(".cache"))));
        std::fs::create_dir(place.path().join("folder")).unwrap();
        std::fs::write(place.path().join("a.bin"), "a").unwrap();
        let state = || library.entries.read().get("a.bin").map(|a| a.state.clone());
        let looked = |denied| library.look_at_unopened("a.bin", &denied);
        for denied in [Denied::Missing, Denied::Outside] {
            assert!(matches!(looked(denied), Look::Gone) && state().is_none());
        }
        let before = library.generation();
        for _ in 0..2 {
            assert!(matches!(looked(Denied::Unreadable), Look::Listed { is_live: false }));
        }
        assert_eq!(state(), Some(State::Refused("not readable by the server".to_owned())));
        assert_eq!(library.generation(), before + 1, "one change");
        let of_folder = library.look_at_unopened("folder", &Denied::Unreadable);
        assert!(matches!(of_folder, Look::NotAFile));
        library.look_at_file("a.bin");
        assert_eq!(state(), Some(State::Waiting), "for its plan, if there is one");
    }

    #[test]
    fn names_below_a_folder_are_found_without_looking_at_others() {
        let names = ["a", "a-b", "a.ts", "a/b", "a/c/d", "a0", "b", "b/a/c"];
        let entries: BTreeMap<_, _> = names.map(|name| (name.to_owned(), ())).into();
        let below = |name| at_and_below(&entries, name).map(|(n, ())| n.as_str()).collect();
        let (of_a, of_c, all): (Vec<_>, Vec<_>, Vec<_>) = (below("a"), below("a/c"), below(""));
        assert_eq!((of_a, of_c, all), (vec!["a", "a/b", "a/c/d"], vec!["a/c/d"], names.to_vec()));
        assert_eq!(at_and_below(&entries, "c").count(), 0);
    }

    #[test]
    fn names_in_a_folder_are_found_without_a_walk_through_its_folders() {
        let below = (0..5000).map(|number| format!("a/b/{number}"));
        let names = ["a/a.mp4", "a/b-c", "a/b0", "a/c/d/e", "b/a.mp4"].map(str::to_owned);
        let entries: BTreeMap<_, _> = below.chain(names).map(|name| (name, ())).collect();
        let named = |(name, ()): (&String, &())| name.clone();
        let found: Vec<_> = directly_in(&entries, "a/").map(|entry| entry.map(named)).collect();
        let file = |name: &str| Some(name.to_owned());
        assert_eq!(found, [file("a/a.mp4"), file("a/b-c"), None, file("a/b0"), None]);
    }
}
