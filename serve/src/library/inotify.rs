// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches on the folders below the served one, and their events.
//!
//! Each folder is opened beneath the served one without following a symbolic link
//! ([`super::served_folder`]) and watched by its descriptor, so neither a link nor a concurrent
//! rename leads a watch outside. Costs one inotify watch a folder, about a kilobyte of kernel
//! memory.
//!
//! Sources: inotify(7), proc_pid_fd(5).
//! Does not decide which folders to watch ([`super::listing`] does).

use std::collections::{BTreeMap, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use wire::http::path_text;

/// The inotify descriptor and its watches.
pub(super) struct Watches {
    inotify: OwnedFd,
    by_watch: HashMap<i32, String>,
    by_name: BTreeMap<String, i32>,
}

/// Event on a watched folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FolderEvent {
    /// The file or folder of this name changed, appeared or disappeared.
    Touched(String),
    /// Events were lost.
    Overflowed,
}

impl Watches {
    pub(super) fn open() -> Result<Watches, Errno> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Watches { inotify, by_watch: HashMap::new(), by_name: BTreeMap::new() })
    }

    /// Watches the open folder `name`.
    ///
    /// # Errors
    /// [`Errno::NOSPC`] where the user has no watch left.
    pub(super) fn add(&mut self, name: &str, folder: BorrowedFd<'_>) -> Result<(), Errno> {
        // The kernel resolves this path to the open folder and to nothing else.
        let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
        let watch = inotify::add_watch(&self.inotify, path, EVENTS)?;
        if let Some(before) = self.by_watch.insert(watch, name.to_owned())
            && before != name
        {
            self.by_name.remove(&before);
        }
        if let Some(before) = self.by_name.insert(name.to_owned(), watch)
            && before != watch
        {
            self.unwatch(before);
        }
        Ok(())
    }

    /// Removes the watches of the folder `name` and of those below it.
    pub(super) fn remove(&mut self, name: &str) {
        let below: Vec<_> = super::listing::at_and_below(&self.by_name, name)
            .map(|(name, watch)| (name.clone(), *watch))
            .collect();
        for (name, watch) in below {
            self.by_name.remove(&name);
            self.unwatch(watch);
        }
    }

    fn unwatch(&mut self, watch: i32) {
        self.by_watch.remove(&watch);
        // The kernel removes the watch of a deleted folder itself.
        let _ = inotify::remove_watch(&self.inotify, watch);
    }

    /// Passes all pending events to `on_event`.
    pub(super) fn read(&mut self, mut on_event: impl FnMut(FolderEvent)) {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut ended = Vec::new();
        // Any error except "no event" is returned again by the call after the next wait.
        while let Ok(event) = reader.next() {
            let (events, watch) = (event.events(), event.wd());
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                on_event(FolderEvent::Overflowed);
            } else if events.contains(ReadFlags::IGNORED) {
                ended.push(watch);
            } else if let Some(folder) = self.by_watch.get(&watch)
                && let Some(name) = event.file_name()
            {
                let name = path_text(name.to_bytes());
                let separator = if folder.is_empty() { "" } else { "/" };
                on_event(FolderEvent::Touched(format!("{folder}{separator}{name}")));
            }
        }
        for watch in ended {
            if let Some(name) = self.by_watch.remove(&watch) {
                self.by_name.remove(&name);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> Vec<&str> {
        self.by_name.keys().map(String::as_str).collect()
    }
}

/// Readable when events are pending.
impl AsFd for Watches {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

const EVENTS: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR);
/// Holds a thousand events with usual names.
const BUFFER_BYTES: usize = 64 << 10;
