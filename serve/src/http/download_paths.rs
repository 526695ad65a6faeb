// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pool of open download paths; a response borrows one.
//!
//! Opening a path may create a ring, a pipe or a buffer, even for files of a few bytes. So opened
//! paths are kept, as many as were in use at once, at most [`KEPT_MAX`]. Costs a lock at each end
//! of a response. A path serves any connection (`paths`, [`DownloadPath`]); a response keeps its
//! own to the end, because a path may hold state of its socket.
//!
//! When the chosen path cannot be opened (descriptors or locked memory are exhausted), the response
//! uses one of [`FALLBACKS`], which need next to nothing, and the next one tries again.
//!
//! Does not choose the path ([`crate::path_choice`]).

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use paths::{DownloadPath, Open, Spec, Transport};

/// Pool of a server's open paths.
pub(crate) struct Downloads {
    spec: &'static Spec,
    free: Mutex<Vec<Box<dyn DownloadPath>>>,
    /// True when it was logged that the chosen path cannot be opened.
    is_logged: AtomicBool,
}

/// A path in use; dropping it returns it to the pool.
pub(crate) struct BorrowedPath<'a> {
    path: Option<Box<dyn DownloadPath>>,
    /// `None` for a fallback path, which is not kept.
    home: Option<&'a Downloads>,
}

impl Downloads {
    pub(crate) fn new(spec: &'static Spec) -> Downloads {
        Downloads { spec, free: Mutex::default(), is_logged: AtomicBool::new(false) }
    }

    /// Pool of `sendfile`, for connections that the kernel encrypts: it refuses `MSG_ZEROCOPY`
    /// there, and no other path is tested with it.
    pub(crate) fn sendfile() -> Downloads {
        Downloads::new(paths::find(Transport::Tcp, FALLBACKS[0]).expect("it is in the list"))
    }

    /// Borrows a path for a response; `None` when not even the simplest can be opened.
    pub(crate) fn take(&self) -> Option<BorrowedPath<'_>> {
        let kept = self.free.lock().pop();
        if let Some(path) = kept.or_else(|| self.open()) {
            return Some(BorrowedPath { path: Some(path), home: Some(self) });
        }
        let fallback = FALLBACKS.iter().filter_map(|name| paths::find(Transport::Tcp, name));
        let path = fallback.filter_map(|spec| open(spec).ok()).next()?;
        Some(BorrowedPath { path: Some(path), home: None })
    }

    fn open(&self) -> Option<Box<dyn DownloadPath>> {
        match open(self.spec) {
            Ok(path) => Some(path),
            Err(reason) => {
                if !self.is_logged.swap(true, Ordering::Relaxed) {
                    let (chosen, fallback) = (self.spec.name, FALLBACKS[0]);
                    tracing::error!("downloads by {fallback} where {chosen} fails: {reason}");
                }
                None
            }
        }
    }
}

fn open(spec: &Spec) -> Result<Box<dyn DownloadPath>, String> {
    match spec.open {
        Open::Download(open) => open().map_err(|error| error.to_string()),
        Open::Stream { .. } | Open::Interleaved { .. } => Err(format!("{spec} sends streams")),
    }
}

impl BorrowedPath<'_> {
    /// True unless the chosen path could not be opened.
    pub(crate) fn is_chosen(&self) -> bool {
        self.home.is_some()
    }

    pub(crate) fn path(&mut self) -> &mut dyn DownloadPath {
        &mut **self.path.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for BorrowedPath<'_> {
    fn drop(&mut self) {
        let Some((home, path)) = self.home.zip(self.path.take()) else { return };
        let mut free = home.free.lock();
        if free.len() < KEPT_MAX {
            free.push(path);
        }
    }
}

/// Fallback paths, the better first.
const FALLBACKS: [&str; 2] = ["sendfile", "read_write"];
/// Most kept paths: at most 64 MiB of rings, and three descriptors each. Further concurrent
/// downloads open a path each.
const KEPT_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::AtomicUsize;

    use paths::{Errno, Error, MappedFile, SendError, SendStats, SystemCalls};

    use super::*;

    struct Nowhere;

    impl DownloadPath for Nowhere {
        fn send(
            &mut self,
            _: &MappedFile,
            _: u64,
            bytes: u64,
            _: BorrowedFd<'_>,
            stats: &mut SendStats,
        ) -> Result<u64, SendError> {
            stats.bytes += bytes;
            Ok(bytes)
        }
    }

    const fn spec(open: fn() -> Result<Box<dyn DownloadPath>, Error>) -> Spec {
        Spec {
            name: "nowhere",
            transport: Transport::Tcp,
            summary: "",
            copies_per_byte: 0,
            header_copies: 0,
            system_calls: SystemCalls::PerStep(0),
            sources: &[],
            probe: |_| Ok(()),
            open: Open::Download(open),
        }
    }

    #[test]
    fn what_was_opened_is_used_again() {
        static OPENED: AtomicUsize = AtomicUsize::new(0);
        static SPEC: Spec = spec(|| {
            OPENED.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(Nowhere))
        });
        let downloads = Downloads::new(&SPEC);
        for _ in 0..3 {
            assert!(downloads.take().is_some());
        }
        assert_eq!(OPENED.load(Ordering::Relaxed), 1);
        let many: Vec<_> = (0..KEPT_MAX + 9).map(|_| downloads.take().unwrap()).collect();
        assert_eq!(OPENED.load(Ordering::Relaxed), KEPT_MAX + 9, "each has its own");
        drop(many);
        assert_eq!(downloads.free.lock().len(), KEPT_MAX);
    }

    #[test]
    fn what_cannot_be_opened_is_done_another_way_and_tried_again() {
        static REFUSED: AtomicBool = AtomicBool::new(true);
        static SPEC: Spec = spec(|| match REFUSED.load(Ordering::Relaxed) {
            true => {
                let (object, errno) = ("a pipe".into(), Errno::new(24));
                Err(Error::Host { call: "pipe2", object, errno })
            }
            false => Ok(Box::new(Nowhere)),
        });
        let downloads = Downloads::new(&SPEC);
        for _ in 0..3 {
            let mut borrowed = downloads.take().expect("sendfile needs nothing");
            assert!(borrowed.home.is_none() && downloads.is_logged.load(Ordering::Relaxed));
            let media = MappedFile::open(tempfile::tempfile().unwrap(), "empty").unwrap();
            let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
            let socket = std::os::fd::AsFd::as_fd(&socket);
            let sent = borrowed.path().send(&media, 0, 1, socket, &mut SendStats::default());
            assert_eq!(sent, Err(SendError::Shrunk { at: 0 }), "it has no byte to send");
        }
        REFUSED.store(false, Ordering::Relaxed);
        let borrowed = downloads.take().unwrap();
        assert!(borrowed.home.is_some(), "by the chosen one again");
        drop(borrowed);
        assert_eq!(downloads.free.lock().len(), 1, "no other is kept");
    }
}
