// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that a channel's settings name at the moment, and the faults of these entries.
//!
//! Files appear, disappear and break while a channel plays. Each expansion queries the caller for
//! every name and returns a [`Lineup`] for the timeline and a list of [`EntryFault`]s for the log
//! and the page. A refresh reports the faults that are new and those that are gone, so that each is
//! logged once.
//!
//! Rules: a folder means its files in order of name (by bytes), without the folders within it. A
//! file in a folder that is no stream is left out without a fault, unless its name is that of a
//! transport stream: then it is broken, and keeps its place for the filler. A file that the server
//! is still scanning has no duration yet, and is skipped or filled like a missing one; the caller
//! refreshes when the scan is done. At most [`ENTRIES_MAX`] entries are used, those of the schedule
//! included.
//!
//! Cost: one question per file.
//!
//! Sources: ARCHITECTURE.md, "The words" (asset, packet plan).
//! Does not read the disk: the caller answers from its library.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use wire::http::path_text;

use super::ENTRIES_MAX;
use super::settings::ChannelConfig;
use super::shown_text::one_line;
use super::timeline::{Lineup, TimelineEntry};
use crate::library::formats::is_transport_stream;

/// Answer of a library to a query for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryLookup {
    /// A file with a packet plan.
    Stream {
        /// Duration of play.
        duration: Duration,
    },
    /// A folder, with the names of its files relative to it, in any order.
    Folder {
        /// Names without slashes.
        files: Vec<String>,
    },
    /// Neither file nor folder.
    Missing,
    /// A file that cannot be streamed.
    Unstreamable {
        /// Reason, as the index shows it.
        reason: String,
    },
    /// A file whose scan is not done.
    Pending,
}

/// Entry of a channel that cannot be played as written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryFault {
    /// Name of the file or folder, relative to the served folder. File names are hostile text.
    pub name: String,
    /// The fault.
    pub kind: EntryFaultKind,
}

/// Fault of an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EntryFaultKind {
    /// No such file or folder.
    Missing,
    /// The file cannot be streamed.
    Broken {
        /// Reason, as the index shows it.
        reason: String,
    },
    /// The file plays for no time.
    Empty,
    /// The scan of the file is not done.
    Pending,
    /// The folder has no file that can be streamed.
    EmptyFolder,
    /// The filler is a folder.
    NotAFile,
    /// Entries beyond the limit, this one and the following ones.
    TooMany,
}

impl fmt::Display for EntryFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = one_line(&self.name, SHOWN_CHARS_MAX);
        let name = if name.is_empty() { "the served folder" } else { &name };
        match &self.kind {
            EntryFaultKind::Missing => write!(out, "{name}: no such file or folder"),
            EntryFaultKind::Broken { reason } => {
                write!(out, "{name}: {}", one_line(reason, SHOWN_CHARS_MAX))
            }
            EntryFaultKind::Empty => write!(out, "{name}: nothing in it that takes time to play"),
            EntryFaultKind::Pending => write!(out, "{name}: not scanned yet"),
            EntryFaultKind::EmptyFolder => write!(out, "{name}: a folder without a stream"),
            EntryFaultKind::NotAFile => write!(out, "{name}: a folder; name a file as the filler"),
            EntryFaultKind::TooMany => {
                write!(out, "{name}: beyond {ENTRIES_MAX} entries; divide the channel")
            }
        }
    }
}

/// Result of a refresh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlaylistChange {
    /// True when the lineup differs, so that a timeline is made anew.
    pub lineup: bool,
    /// Faults that were not there before.
    pub appeared: Vec<EntryFault>,
    /// Faults that are gone.
    pub healed: Vec<EntryFault>,
}

/// The names of a channel, and its files of the last refresh.
#[derive(Debug)]
pub struct Playlist {
    listed: Vec<String>,
    filler: Option<String>,
    schedule: Vec<Vec<String>>,
    lineup: Lineup,
    faults: BTreeSet<EntryFault>,
}

impl Playlist {
    /// A playlist of a channel that has no files until its first refresh.
    pub fn new(config: &ChannelConfig) -> Playlist {
        // Characters of a setting are those of the name, never bytes of one.
        let named = |name: &String| path_text(name.as_bytes()).into_owned();
        let all_named = |names: &[String]| names.iter().map(named).collect();
        Playlist {
            listed: all_named(&config.playlist),
            filler: config.filler.as_ref().map(named),
            schedule: config.schedule.iter().map(|slot| all_named(&slot.play)).collect(),
            lineup: Lineup::default(),
            faults: BTreeSet::new(),
        }
    }

    /// Files of the last refresh.
    pub fn lineup(&self) -> &Lineup {
        &self.lineup
    }

    /// Faults of the last refresh, in order of name.
    pub fn faults(&self) -> impl Iterator<Item = &EntryFault> {
        self.faults.iter()
    }

    /// True when a change of the file or folder `name` may change the lineup: it is an entry, lies
    /// in one, or holds one.
    pub fn concerns(&self, name: &str) -> bool {
        let name = name.trim_matches('/');
        let names = self.listed.iter().chain(&self.filler).chain(self.schedule.iter().flatten());
        let holds = |folder: &str, name: &str| {
            folder.is_empty()
                || name == folder
                || name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        };
        names.into_iter().any(|entry| holds(entry, name) || holds(name, entry))
    }

    /// Queries every name again.
    pub fn refresh(&mut self, mut find: impl FnMut(&str) -> EntryLookup) -> PlaylistChange {
        let mut expansion =
            Expansion { find: &mut find, faults: BTreeSet::new(), left: ENTRIES_MAX };
        let filler = self.filler.as_deref().map(|name| expansion.filler(name));
        let entries = expansion.entries(&self.listed);
        let schedule = self.schedule.iter().map(|names| expansion.entries(names)).collect();
        let faults = expansion.faults;
        let lineup = Lineup { entries, filler, schedule };
        let change = PlaylistChange {
            lineup: lineup != self.lineup,
            appeared: faults.difference(&self.faults).cloned().collect(),
            healed: self.faults.difference(&faults).cloned().collect(),
        };
        (self.lineup, self.faults) = (lineup, faults);
        change
    }
}

/// One pass over the names of a channel.
struct Expansion<'a> {
    find: &'a mut dyn FnMut(&str) -> EntryLookup,
    faults: BTreeSet<EntryFault>,
    /// Entries that still have room.
    left: usize,
}

impl Expansion<'_> {
    fn filler(&mut self, name: &str) -> TimelineEntry {
        let found = (self.find)(name);
        match found {
            EntryLookup::Folder { .. } => self.fault(name, EntryFaultKind::NotAFile),
            found => self.file(name, found),
        }
    }

    fn entries(&mut self, names: &[String]) -> Vec<TimelineEntry> {
        let mut entries = Vec::new();
        for name in names {
            match (self.find)(name) {
                EntryLookup::Folder { files } => self.folder(name, files, &mut entries),
                found if self.has_room(name) => entries.push(self.file(name, found)),
                _ => break,
            }
        }
        entries
    }

    fn folder(&mut self, folder: &str, mut files: Vec<String>, entries: &mut Vec<TimelineEntry>) {
        files.sort_unstable();
        files.dedup();
        let before = entries.len();
        for file in files {
            if file.is_empty() || file.starts_with('.') || file.contains('/') {
                continue;
            }
            let name = match folder {
                "" => file,
                folder => format!("{folder}/{file}"),
            };
            let found = (self.find)(&name);
            let is_entry = match &found {
                EntryLookup::Stream { .. } | EntryLookup::Pending => true,
                EntryLookup::Unstreamable { .. } => is_transport_stream(&name),
                EntryLookup::Folder { .. } | EntryLookup::Missing => false,
            };
            if is_entry {
                if !self.has_room(&name) {
                    return;
                }
                entries.push(self.file(&name, found));
            }
        }
        if entries.len() == before {
            self.fault(folder, EntryFaultKind::EmptyFolder);
        }
    }

    fn file(&mut self, name: &str, found: EntryLookup) -> TimelineEntry {
        match found {
            EntryLookup::Stream { duration } if duration.is_zero() => {
                self.fault(name, EntryFaultKind::Empty)
            }
            EntryLookup::Stream { duration } => {
                TimelineEntry { name: name.into(), duration: Some(duration) }
            }
            EntryLookup::Unstreamable { reason } => {
                self.fault(name, EntryFaultKind::Broken { reason })
            }
            EntryLookup::Pending => self.fault(name, EntryFaultKind::Pending),
            EntryLookup::Missing | EntryLookup::Folder { .. } => {
                self.fault(name, EntryFaultKind::Missing)
            }
        }
    }

    /// Records a fault; returns the entry without a duration.
    fn fault(&mut self, name: &str, kind: EntryFaultKind) -> TimelineEntry {
        self.faults.insert(EntryFault { name: name.to_owned(), kind });
        TimelineEntry { name: Arc::from(name), duration: None }
    }

    /// Reserves room for one entry; reports a fault for the first entry without room.
    fn has_room(&mut self, name: &str) -> bool {
        let has_room = self.left > 0;
        self.left = self.left.saturating_sub(1);
        let is_known = self.faults.iter().any(|fault| fault.kind == EntryFaultKind::TooMany);
        if !has_room && !is_known {
            self.fault(name, EntryFaultKind::TooMany);
        }
        has_room
    }
}

const SHOWN_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::settings::{ChannelDraft, ScheduleDraft};
    use super::*;

    fn playlist(names: &[&str], filler: Option<&str>) -> Playlist {
        let draft = ChannelDraft {
            playlist: names.iter().map(|name| (*name).to_owned()).collect(),
            filler: filler.map(str::to_owned),
            at: vec![ScheduleDraft {
                time: Some("20:00".to_owned()),
                play: vec!["evening/".to_owned()],
                ..ScheduleDraft::default()
            }],
            ..ChannelDraft::default()
        };
        Playlist::new(&draft.check("news").unwrap())
    }

    fn stream(seconds: u64) -> EntryLookup {
        EntryLookup::Stream { duration: Duration::from_secs(seconds) }
    }

    fn folder(files: &[&str]) -> EntryLookup {
        EntryLookup::Folder { files: files.iter().map(|file| (*file).to_owned()).collect() }
    }

    fn library() -> BTreeMap<String, EntryLookup> {
        let broken = || EntryLookup::Unstreamable { reason: "no\nsync byte".to_owned() };
        let files = [
            ("intro.ts", stream(5)),
            (
                "archive",
                folder(&["b.ts", "a.ts", "notes.txt", "sub", "bad.ts", ".hidden.ts", "b.ts"]),
            ),
            ("archive/a.ts", stream(1)),
            ("archive/b.ts", stream(2)),
            ("archive/notes.txt", broken()),
            ("archive/bad.ts", broken()),
            ("archive/sub", folder(&["c.ts"])),
            ("evening", folder(&["e.ts"])),
            ("evening/e.ts", stream(9)),
            ("filler.ts", stream(3)),
        ];
        files.into_iter().map(|(name, found)| (name.to_owned(), found)).collect()
    }

    fn find(library: &BTreeMap<String, EntryLookup>) -> impl FnMut(&str) -> EntryLookup + '_ {
        |name| library.get(name).cloned().unwrap_or(EntryLookup::Missing)
    }

    fn names(entries: &[TimelineEntry]) -> Vec<String> {
        let one = |entry: &TimelineEntry| match entry.duration {
            Some(duration) => format!("{} {}", entry.name, duration.as_secs()),
            None => format!("{} -", entry.name),
        };
        entries.iter().map(one).collect()
    }

    #[test]
    fn folders_are_their_streams_in_order_of_name() {
        let mut playlist = playlist(&["intro.ts", "archive/", "gone.ts"], Some("filler.ts"));
        let change = playlist.refresh(find(&library()));
        let lineup = playlist.lineup();
        let expected =
            ["intro.ts 5", "archive/a.ts 1", "archive/b.ts 2", "archive/bad.ts -", "gone.ts -"];
        assert_eq!(names(&lineup.entries), expected);
        assert_eq!(lineup.filler.as_ref().unwrap().duration, Some(Duration::from_secs(3)));
        assert_eq!(names(&lineup.schedule[0]), ["evening/e.ts 9"]);
        let faults: Vec<String> = change.appeared.iter().map(EntryFault::to_string).collect();
        assert_eq!(faults, ["archive/bad.ts: no sync byte", "gone.ts: no such file or folder"]);
        assert!(change.lineup && change.healed.is_empty());
    }

    #[test]
    fn a_refresh_names_what_has_changed() {
        let mut playlist = playlist(&["archive", "intro.ts"], None);
        let mut library = library();
        playlist.refresh(find(&library));
        assert_eq!(playlist.refresh(find(&library)), PlaylistChange::default());
        library.insert("archive/bad.ts".to_owned(), stream(7));
        library.remove("intro.ts");
        let change = playlist.refresh(find(&library));
        assert!(change.lineup);
        let faults =
            |faults: &[EntryFault]| faults.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
        assert_eq!(faults(&change.appeared), ["intro.ts"]);
        assert_eq!(faults(&change.healed), ["archive/bad.ts"]);
        let pending = EntryLookup::Pending;
        library.insert("intro.ts".to_owned(), pending);
        let change = playlist.refresh(find(&library));
        assert!(!change.lineup, "a file without a duration is one whatever the reason");
        assert_eq!(change.appeared[0].kind, EntryFaultKind::Pending);
    }

    #[test]
    fn faults_of_every_kind_are_named() {
        let mut library = library();
        library.insert("empty.ts".to_owned(), stream(0));
        library.insert("bare".to_owned(), folder(&["notes.txt"]));
        let mut playlist = playlist(&["empty.ts", "bare/", "./"], Some("archive/"));
        library.insert(String::new(), folder(&[]));
        playlist.refresh(find(&library));
        let faults: Vec<String> = playlist.faults().map(EntryFault::to_string).collect();
        let expected = [
            "the served folder: a folder without a stream",
            "archive: a folder; name a file as the filler",
            "bare: a folder without a stream",
            "empty.ts: nothing in it that takes time to play",
        ];
        assert_eq!(faults, expected);
        assert_eq!(names(&playlist.lineup().entries), ["empty.ts -"]);
    }

    #[test]
    fn the_served_folder_itself_is_a_folder() {
        let mut playlist = playlist(&["./"], None);
        let mut library = library();
        library.insert(String::new(), folder(&["intro.ts", "archive", "filler.ts"]));
        playlist.refresh(find(&library));
        assert_eq!(names(&playlist.lineup().entries), ["filler.ts 3", "intro.ts 5"]);
    }

    #[test]
    fn entries_are_bounded_and_the_first_left_out_is_named() {
        let files: Vec<String> = (0..ENTRIES_MAX + 5).map(|n| format!("{n:06}.ts")).collect();
        let mut playlist = playlist(&["large", "large"], None);
        let change = playlist.refresh(|name| match name {
            "large" => EntryLookup::Folder { files: files.clone() },
            "evening" => EntryLookup::Missing,
            _ => stream(1),
        });
        assert_eq!(playlist.lineup().entries.len(), ENTRIES_MAX);
        let named: Vec<&EntryFault> =
            change.appeared.iter().filter(|fault| fault.kind == EntryFaultKind::TooMany).collect();
        assert_eq!(named.len(), 1);
        assert_eq!(named[0].name, "large/010000.ts");
    }

    #[test]
    fn changes_that_concern_a_playlist_are_told_from_others() {
        let playlist = playlist(&["a/intro.ts", "archive/"], Some("filler.ts"));
        for name in ["a/intro.ts", "a", "a/", "archive", "archive/x.ts", "filler.ts", "evening/e"] {
            assert!(playlist.concerns(name), "{name}");
        }
        for name in ["a/other.ts", "archive2", "filler.ts2", "b"] {
            assert!(!playlist.concerns(name), "{name}");
        }
        assert!(playlist.concerns(""), "the served folder holds all");
    }

    #[test]
    fn hostile_names_make_one_line() {
        let fault = EntryFault {
            name: "a\nERROR b\u{1b}[2K\u{202e}.ts".to_owned(),
            kind: EntryFaultKind::Broken { reason: "x".repeat(10_000) },
        };
        let shown = fault.to_string();
        assert!(shown.starts_with("a ERROR b [2K .ts: xxx") && shown.len() < 500, "{shown}");
        assert!(!shown.contains('\n'));
    }
}
