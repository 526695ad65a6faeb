// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports which kept files have changed.
//!
//! Each kept file has a watch on its inode, which sees writes, truncation and changes of mode under
//! every name of it, its removal, and a file that is renamed over it (its link count changes). Each
//! folder on its way has a watch for its own move and mode. Watches are set by open descriptors,
//! opened beneath the served folder without following links. Costs a kilobyte of kernel memory
//! each.
//!
//! Sources: inotify(7), proc_pid_fd(5), Linux 6.18 `fs/namei.c` (`vfs_rename`:
//! `fsnotify_link_count` of the replaced inode).
//! Does not see writes by mmap or of other hosts.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::library::served_folder::Folder;

/// The inotify descriptor and its watches.
pub(super) struct Watches {
    inotify: Arc<OwnedFd>,
    /// Names of kept files by their watch; several for hard links.
    files: HashMap<i32, Vec<Box<str>>>,
    /// Watches of folders by name.
    folders: HashMap<Box<str>, i32>,
}

/// Result of reading events.
pub(super) enum Changed {
    /// These files.
    Files(Vec<Box<str>>),
    /// Any of them: a folder was moved, or events were lost.
    Unknown,
}

impl Watches {
    pub(super) fn open() -> Result<Watches, Errno> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let inotify = Arc::new(inotify);
        Ok(Watches { inotify, files: HashMap::new(), folders: HashMap::new() })
    }

    /// Returns the descriptor, readable when events are pending.
    pub(super) fn descriptor(&self) -> Arc<OwnedFd> {
        self.inotify.clone()
    }

    /// Watches an open file and the folders on its way; `None` where the user has no watch left, or
    /// a folder cannot be opened.
    pub(super) fn add(&mut self, name: &str, folder: &Folder, file: BorrowedFd<'_>) -> Option<i32> {
        let path = name.trim_matches('/');
        // The served folder itself first: its mode may change, too.
        let ends = std::iter::once(0).chain(path.match_indices('/').map(|(end, _)| end));
        for parent in ends.map(|end| &path[..end]) {
            if self.folders.contains_key(parent) {
                continue;
            }
            if self.folders.len() >= FOLDERS_MAX {
                return None;
            }
            let opened = folder.subfolder(parent).ok()?;
            let watch = self.watch(opened.as_raw_fd(), FOLDER_EVENTS)?;
            self.folders.insert(parent.into(), watch);
        }
        let watch = self.watch(file.as_raw_fd(), FILE_EVENTS)?;
        self.files.entry(watch).or_default().push(name.into());
        Some(watch)
    }

    fn watch(&self, descriptor: i32, events: WatchFlags) -> Option<i32> {
        // The kernel resolves this path to the open file and to nothing else.
        inotify::add_watch(&*self.inotify, format!("/proc/self/fd/{descriptor}"), events).ok()
    }

    /// Ends the watch of a file that is no longer kept by this name.
    pub(super) fn remove(&mut self, watch: i32, name: &str) {
        let Some(names) = self.files.get_mut(&watch) else { return };
        names.retain(|kept| **kept != *name);
        if names.is_empty() {
            self.files.remove(&watch);
            // The kernel removes the watch of a deleted file itself.
            let _ = inotify::remove_watch(&*self.inotify, watch);
        }
        if self.files.is_empty() {
            self.clear();
        }
    }

    /// Ends all watches.
    pub(super) fn clear(&mut self) {
        let folders = self.folders.drain().map(|(_, watch)| watch);
        for watch in self.files.drain().map(|(watch, _)| watch).chain(folders) {
            let _ = inotify::remove_watch(&*self.inotify, watch);
        }
    }

    /// Reads all pending events.
    pub(super) fn read(&mut self) -> Changed {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&*self.inotify, &mut buffer);
        let (mut changed, mut is_unknown) = (Vec::new(), false);
        // Any error except "no event" is returned again by the call after the next wait.
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                is_unknown = true;
            } else if let Some(names) = self.files.get(&event.wd()) {
                changed.extend(names.iter().cloned());
            } else {
                // Events of ended watches are still on their way.
                is_unknown |= self.folders.values().any(|&folder| folder == event.wd());
            }
        }
        if is_unknown { Changed::Unknown } else { Changed::Files(changed) }
    }

    /// Numbers of watched files and folders.
    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, usize) {
        (self.files.len(), self.folders.len())
    }
}

const FILE_EVENTS: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DELETE_SELF);
const FOLDER_EVENTS: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ONLYDIR);
/// Folders of kept files; files of further folders are not kept.
const FOLDERS_MAX: usize = 1024;
/// Holds some hundred events; they have no names.
const BUFFER_BYTES: usize = 8 << 10;
