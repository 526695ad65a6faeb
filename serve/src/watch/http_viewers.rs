// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP connections that moved more than a megabyte, with the files that they are sent.
//!
//! Each connection has an [`HttpViewer`], in which its own task counts bytes: an addition a step of
//! up to a mebibyte. A connection enters the table once, when it has moved [`VIEWER_BYTES_MIN`], so
//! requests for playlists and pages enter nothing; it leaves when it closes. The name of the file
//! is stored when another file is sent than before, so a viewer of HLS takes no lock a segment.
//!
//! Does not keep connections open: their sockets are seen through a [`WatchedSocket`].

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use paths::WatchedSocket;

/// Record of one connection.
pub(crate) struct HttpViewer {
    pub(crate) number: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) is_tls: bool,
    pub(crate) began: Instant,
    pub(crate) socket: WatchedSocket,
    bytes: AtomicU64,
    /// Times that bytes of a file were not in memory.
    stalls: AtomicU64,
    is_listed: AtomicBool,
    /// Hash of the name in `asset`; 0 for none.
    file: AtomicU64,
    asset: Mutex<String>,
    user: Mutex<Option<String>>,
    viewers: Weak<HttpViewers>,
}

/// Table of viewers, by number.
pub(crate) struct HttpViewers {
    listed: Mutex<HashMap<u64, Arc<HttpViewer>>>,
    next_number: AtomicU64,
    /// Bytes of answers of all connections.
    bytes: AtomicU64,
}

impl HttpViewers {
    pub(crate) fn new() -> Arc<HttpViewers> {
        let next_number = AtomicU64::new(1);
        Arc::new(HttpViewers { listed: Mutex::default(), next_number, bytes: AtomicU64::new(0) })
    }

    /// Returns the record of a new connection.
    pub(crate) fn connected(
        self: &Arc<HttpViewers>,
        peer: SocketAddr,
        is_tls: bool,
        socket: Option<BorrowedFd<'_>>,
    ) -> Arc<HttpViewer> {
        let viewer = HttpViewer {
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            peer,
            is_tls,
            began: Instant::now(),
            socket: WatchedSocket::default(),
            bytes: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            is_listed: AtomicBool::new(false),
            file: AtomicU64::new(0),
            asset: Mutex::default(),
            user: Mutex::default(),
            viewers: Arc::downgrade(self),
        };
        socket.into_iter().for_each(|socket| viewer.socket.show(socket));
        Arc::new(viewer)
    }

    pub(crate) fn all(&self) -> Vec<Arc<HttpViewer>> {
        self.listed.lock().values().cloned().collect()
    }

    pub(crate) fn by_number(&self, number: u64) -> Option<Arc<HttpViewer>> {
        self.listed.lock().get(&number).cloned()
    }

    /// Returns the bytes of answers so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl HttpViewer {
    /// Counts bytes that were handed to the kernel.
    pub(crate) fn sent(self: &Arc<HttpViewer>, bytes: u64) {
        let sum = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Some(viewers) = self.viewers.upgrade() else { return };
        viewers.bytes.fetch_add(bytes, Ordering::Relaxed);
        if sum >= VIEWER_BYTES_MIN && !self.is_listed.swap(true, Ordering::Relaxed) {
            viewers.listed.lock().insert(self.number, self.clone());
        }
    }

    pub(crate) fn count_stall(&self) {
        self.stalls.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the file that is sent next, by the hash of its name.
    pub(crate) fn note_file(&self, file: u64, name: impl FnOnce() -> String) {
        if self.file.swap(file, Ordering::Relaxed) != file {
            *self.asset.lock() = name();
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }

    pub(crate) fn asset(&self) -> String {
        self.asset.lock().clone()
    }

    /// Stores the user of an admitted request.
    pub(crate) fn admit(&self, user: Option<&str>) {
        if let Some(user) = user {
            let mut known = self.user.lock();
            if known.as_deref() != Some(user) {
                *known = Some(user.to_owned());
            }
        }
    }

    pub(crate) fn user(&self) -> Option<String> {
        self.user.lock().clone()
    }
}

/// Removes a connection from the table before its socket is closed.
pub(crate) struct ViewerGuard(pub(crate) Arc<HttpViewer>);

impl Drop for ViewerGuard {
    fn drop(&mut self) {
        self.0.socket.close();
        if self.0.is_listed.load(Ordering::Relaxed)
            && let Some(viewers) = self.0.viewers.upgrade()
        {
            viewers.listed.lock().remove(&self.0.number);
        }
    }
}

/// Bytes from which a connection counts as a session.
const VIEWER_BYTES_MIN: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn connection_is_listed_from_a_megabyte_until_it_closes() {
        let viewers = HttpViewers::new();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let viewer = viewers.connected(socket.local_addr().unwrap(), false, Some(socket.as_fd()));
        let guard = ViewerGuard(viewer.clone());
        viewer.note_file(1, || "a".to_owned());
        viewer.note_file(1, || unreachable!("the same file"));
        viewer.sent(999_999);
        assert!(viewers.all().is_empty());
        viewer.sent(1);
        viewer.sent(1);
        let listed = viewers.all();
        assert_eq!((listed.len(), listed[0].bytes(), viewers.bytes()), (1, 1_000_001, 1_000_001));
        assert_eq!(viewers.by_number(1).unwrap().asset(), "a");
        drop(guard);
        assert!(viewers.all().is_empty() && viewer.socket.figures().is_none());
    }
}
