// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the names current, by a walk of the folder at start and inotify from then on.
//!
//! When watches run out (fs.inotify.max_user_watches) or inotify is missing, one warning is logged
//! and the folder is walked again every [`WALK_AGAIN`]; a large one less often, since walks take at
//! most one part in [`WALK_SHARE`] of the time. Each walk tries to set the missing watches.
//!
//! Sources: inotify(7), eventfd(2).
//! Does not look at files ([`super::listing`]) or set watches ([`super::inotify`]).

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::inotify::{FolderEvent, Watches};
use super::touched::{QUIET, Touched};
use super::{Library, background};
use crate::error::Error;

/// The librarian (the thread that keeps the names current) and the planning threads.
pub(crate) struct FolderWatch {
    library: Arc<Library>,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

/// Stop signal for the librarian, also while it waits for events.
struct Stop {
    is_set: AtomicBool,
    event: OwnedFd,
}

/// State of the thread that keeps the names current.
pub(super) struct Librarian<'a> {
    pub(super) library: &'a Library,
    stop: &'a Stop,
    pub(super) watches: Option<Watches>,
    /// True when some folder is not watched.
    is_blind: bool,
    is_blind_said: bool,
    touched: Touched,
    /// Names of recordings: no event reports that a lock was released.
    pub(super) recorded: BTreeSet<String>,
    /// Folders that could not be listed, each of which the log has named.
    pub(super) unread: BTreeSet<String>,
    /// Time of the next look at the recordings.
    recorded_at: Instant,
    /// Time of the next walk.
    walk_at: Option<Instant>,
    /// Earliest time of a walk after lost events.
    walked_until: Instant,
    looks: u32,
}

impl FolderWatch {
    pub(crate) fn start(library: &Arc<Library>) -> Result<FolderWatch, Error> {
        let event = eventfd(0, EventfdFlags::CLOEXEC).map_err(|source| Error::Host {
            call: "eventfd",
            object: "the librarian".to_owned(),
            source: source.into(),
        })?;
        let stop = Arc::new(Stop { is_set: AtomicBool::new(false), event });
        let mut threads = background::start(library)?;
        let (librarian, end) = (library.clone(), stop.clone());
        threads.push(spawn("librarian", move || Librarian::new(&librarian, &end).run())?);
        Ok(FolderWatch { library: library.clone(), stop, threads })
    }

    pub(crate) fn stop(self) {
        self.library.scans.stop();
        self.library.following.stop();
        self.stop.is_set.store(true, Ordering::Relaxed);
        // An eventfd can always be incremented by one.
        let _ = rustix::io::write(&self.stop.event, &1_u64.to_ne_bytes());
        let deadline = Instant::now() + STOP_WAIT;
        for thread in self.threads {
            // A thread that waits for a dead disk has no state to be saved.
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

pub(super) fn spawn(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|source| Error::Host {
        call: "clone",
        object: format!("thread {name}"),
        source,
    })
}

impl<'a> Librarian<'a> {
    fn new(library: &'a Library, stop: &'a Stop) -> Librarian<'a> {
        Librarian {
            library,
            stop,
            watches: None,
            is_blind: false,
            is_blind_said: false,
            touched: Touched::default(),
            recorded: BTreeSet::new(),
            unread: BTreeSet::new(),
            recorded_at: Instant::now(),
            walk_at: Some(Instant::now()),
            walked_until: Instant::now(),
            looks: 0,
        }
    }

    fn run(&mut self) {
        while !self.is_stopping() {
            self.walk_when_due();
            self.touch_recorded(Instant::now());
            while let Some(name) = self.touched.pop(Instant::now()) {
                if !self.look(&name) {
                    self.touched.touch(name, Instant::now());
                }
                self.drain_now_and_then();
                if self.is_stopping() {
                    return;
                }
            }
            self.wait();
            self.drain();
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_set.load(Ordering::Relaxed)
    }

    /// Walks the folder if a walk is due.
    fn walk_when_due(&mut self) {
        let began = Instant::now();
        if self.walk_at.is_none_or(|at| at > began) {
            return;
        }
        self.is_blind = false;
        if self.watches.is_none() {
            match Watches::open() {
                Ok(watches) => self.watches = Some(watches),
                Err(error) => self.note_blind("", error),
            }
        }
        self.walk_at = None;
        let is_whole = self.walk("");
        let took = began.elapsed();
        self.walked_until = Instant::now() + took;
        let again = match (is_whole, self.is_blind) {
            (false, _) => Some(QUIET),
            (true, true) => Some(WALK_AGAIN.max(took * WALK_SHARE)),
            (true, false) => None,
        };
        let again_at = again.map(|wait| Instant::now() + wait);
        self.walk_at = [self.walk_at, again_at].into_iter().flatten().min();
    }

    /// Queues the recordings for another look if it is due.
    fn touch_recorded(&mut self, now: Instant) {
        if now >= self.recorded_at {
            self.recorded_at = now + RECORDED_AGAIN;
            self.recorded.iter().for_each(|name| self.touched.touch(name.clone(), now));
        }
    }

    /// Sets a watch on an open folder.
    pub(super) fn watch_folder(&mut self, name: &str, folder: &OwnedFd) {
        if let Some(watches) = &mut self.watches
            && let Err(error) = watches.add(name, folder.as_fd())
        {
            self.note_blind(name, error);
        }
    }

    fn note_blind(&mut self, folder: &str, error: Errno) {
        self.is_blind = true;
        self.walk_at.get_or_insert(Instant::now() + WALK_AGAIN);
        if !self.is_blind_said {
            self.is_blind_said = true;
            let path = self.library.folder.path_of(folder);
            tracing::warn!(
                "inotify on {}: {error}; the folder is walked every {} s or more \
                 (raise fs.inotify.max_user_watches)",
                path.display(),
                WALK_AGAIN.as_secs()
            );
        }
    }

    /// Waits for an event, the next due time or the stop signal.
    fn wait(&self) {
        let recorded_at = (!self.recorded.is_empty()).then_some(self.recorded_at);
        let due = [self.touched.next_at(), self.walk_at, recorded_at].into_iter().flatten().min();
        let wait = due.map(|at| at.saturating_duration_since(Instant::now()));
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        let mut sources = vec![PollFd::new(&self.stop.event, PollFlags::IN)];
        sources.extend(self.watches.as_ref().map(|w| PollFd::new(w, PollFlags::IN)));
        // After an interruption the loop finds nothing due and waits again.
        let _ = poll(&mut sources, wait.as_ref());
    }

    /// Reads all pending events, which frees space in the kernel's queue.
    fn drain(&mut self) {
        let Some(watches) = &mut self.watches else { return };
        let (now, touched) = (Instant::now(), &mut self.touched);
        let mut is_overflown = false;
        watches.read(|heard| match heard {
            FolderEvent::Touched(name) => touched.touch(name, now),
            FolderEvent::Overflowed => is_overflown = true,
        });
        if is_overflown {
            let at = self.walked_until.max(now + QUIET);
            self.walk_at = Some(self.walk_at.map_or(at, |before| before.min(at)));
        }
    }

    /// Reads events once per [`LOOKS_A_DRAIN`] looks: the kernel's queue holds 16,384.
    pub(super) fn drain_now_and_then(&mut self) {
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_A_DRAIN) {
            self.drain();
        }
    }
}

/// Longest delay until a recording's end is seen; a look costs four system calls.
const RECORDED_AGAIN: Duration = Duration::from_secs(1);
const WALK_AGAIN: Duration = Duration::from_secs(10);
const WALK_SHARE: u32 = 20;
const LOOKS_A_DRAIN: u32 = 64;
const STOP_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::library::served_folder::Folder;
    use media::PlanStore;

    fn library() -> (tempfile::TempDir, Library) {
        let place = tempfile::tempdir().unwrap();
        for folder in ["served/a/b", "served/c", "outside/d/e"] {
            fs::create_dir_all(place.path().join(folder)).unwrap();
        }
        let folder = Arc::new(Folder::open(&place.path().join("served")).unwrap());
        let cache = PlanStore::open(Some(place.path().join("cache")));
        (place, Library::new(folder, cache))
    }

    fn names(library: &Library) -> Vec<String> {
        library.entries().into_iter().map(|file| file.name).collect()
    }

    /// Names that differ in a byte that is no UTF-8 are two files, and a rename of one is followed.
    #[test]
    fn names_of_any_bytes_are_listed_and_followed() {
        let (place, library) = library();
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let stop = Stop { is_set: AtomicBool::new(false), event };
        let mut librarian = Librarian::new(&library, &stop);
        let at = |name: &[u8]| place.path().join("served").join(OsStr::from_bytes(name));
        fs::create_dir(at(b"d\xe9")).unwrap();
        for name in [&b"caf\xe9.bin"[..], b"caf\xea.bin", b"d\xe9/1.bin"] {
            fs::write(at(name), name).unwrap();
        }
        librarian.walk_when_due();
        let listed = ["caf\u{10ffe9}.bin", "caf\u{10ffea}.bin", "d\u{10ffe9}/1.bin"];
        assert_eq!(names(&library), listed);
        fs::rename(at(b"caf\xe9.bin"), at(b"d\xe9/\xff.bin")).unwrap();
        fs::rename(at(b"d\xe9"), at(b"d\xf1")).unwrap();
        librarian.drain();
        let later = Instant::now() + 2 * QUIET;
        while let Some(name) = librarian.touched.pop(later) {
            assert!(librarian.look(&name), "{name}");
        }
        let listed = ["caf\u{10ffea}.bin", "d\u{10fff1}/1.bin", "d\u{10fff1}/\u{10ffff}.bin"];
        assert_eq!(names(&library), listed);
    }

    #[test]
    fn watches_and_names_follow_what_lies_beneath_and_nothing_else() {
        let (place, library) = library();
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let stop = Stop { is_set: AtomicBool::new(false), event };
        let mut librarian = Librarian::new(&library, &stop);
        let served = place.path().join("served");
        symlink("../outside", served.join("planted")).unwrap();
        symlink("..", served.join("a/up")).unwrap();
        fs::write(served.join("a/b/1.bin"), "1").unwrap();
        fs::write(place.path().join("outside/d/2.bin"), "2").unwrap();
        librarian.walk_when_due();
        let watched =
            |librarian: &Librarian<'_>| librarian.watches.as_ref().unwrap().names().join(" ");
        assert_eq!(
            (watched(&librarian), names(&library)),
            (" a a/b c".into(), vec!["a/b/1.bin".into()])
        );
        let before = library.generation();

        // A renamed folder, one that is moved out, and a link in place of a folder.
        fs::rename(served.join("a/b"), served.join("c/b")).unwrap();
        fs::rename(served.join("a"), place.path().join("outside/a")).unwrap();
        symlink(place.path().join("outside/d"), served.join("a")).unwrap();
        librarian.drain();
        let later = Instant::now() + 2 * QUIET;
        while let Some(name) = librarian.touched.pop(later) {
            assert!(librarian.look(&name), "{name}");
        }
        assert_eq!(
            (watched(&librarian), names(&library)),
            (" c c/b".into(), vec!["c/b/1.bin".into()])
        );
        assert!(library.generation() > before);

        // A folder moved out causes no more events.
        fs::write(place.path().join("outside/a/3.bin"), "3").unwrap();
        fs::write(served.join("c/b/4.bin"), "4").unwrap();
        librarian.drain();
        // Not `later`: between the two, more time than that may have passed.
        let later = Instant::now() + 2 * QUIET;
        let mut heard = std::iter::from_fn(|| librarian.touched.pop(later));
        assert_eq!((heard.next().as_deref(), heard.next()), (Some("c/b/4.bin"), None));
    }
}
