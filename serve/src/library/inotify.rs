// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches on the folders below the served one, and the events of them.
//!
//! A watch is set on a folder that was opened beneath the served one without following a symbolic
//! link ([`Folder::subfolder`]), by its descriptor: neither a link nor a rename beside the walk
//! leads a watch outside. Costs one inotify watch a folder, about a kilobyte of kernel memory.
//!
//! Sources: inotify(7), proc_pid_fd(5).
//! Does not do: decide which folders to watch ([`super::listing`] does).

use std::collections::{BTreeMap, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// See the module.
pub(super) struct Watches {
    inotify: OwnedFd,
    by_watch: HashMap<i32, String>,
    by_name: BTreeMap<String, i32>,
}

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Something has become of this name.
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
        // The kernel itself resolves this name, to what is open and nothing else.
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

    /// Watches the folder `name` and those below it no longer.
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
        // The kernel removes that of a folder that was deleted by itself.
        let _ = inotify::remove_watch(&self.inotify, watch);
    }

    /// Gives all events there are to `hear`.
    pub(super) fn read(&mut self, mut hear: impl FnMut(Heard)) {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut ended = Vec::new();
        // Any error but that there is none comes again at the next call, after the next wait.
        while let Ok(event) = reader.next() {
            let (events, watch) = (event.events(), event.wd());
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                hear(Heard::Overflowed);
            } else if events.contains(ReadFlags::IGNORED) {
                ended.push(watch);
            } else if let Some(folder) = self.by_watch.get(&watch)
                && let Some(Ok(name)) = event.file_name().map(|name| name.to_str())
            {
                let separator = if folder.is_empty() { "" } else { "/" };
                hear(Heard::Touched(format!("{folder}{separator}{name}")));
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

/// Ready to read when there are events.
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
/// A thousand events of usual names a call.
const BUFFER_BYTES: usize = 64 << 10;
