// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of the credentials of one request, for further decisions about it.
//!
//! Some requests are decided about several times: the index of a folder, the picture of a title,
//! the licence of its renditions. A digest response is accepted once (RFC 7616 §3.4), and a wrong
//! password is to be counted once; so the first result holds for the whole request.
//!
//! Costs an allocation for each request of a server with rules.
//!
//! Sources: RFC 7616 §3.4 (nc).
//! Must not be used for two requests: the second would have the user of the first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Results about the credentials of one request.
#[derive(Debug, Default)]
pub struct RequestCredentials {
    /// Result of the user look-up in the files.
    found: OnceLock<FoundUser>,
    /// True when a wrong password of this request was counted.
    is_counted: AtomicBool,
    /// User of the permission that the request was given.
    granted: OnceLock<Arc<str>>,
}

/// Result of the look-up of a request's user.
#[derive(Debug, Clone)]
pub(crate) enum FoundUser {
    Right(Arc<str>),
    Wrong,
    /// The nonce has expired or its count was used.
    Stale,
    /// Not verified; the client may try again after this many milliseconds.
    Slowed(u64),
}

impl RequestCredentials {
    /// Returns the user to whom the request was permitted, if there is one.
    pub fn user(&self) -> Option<&str> {
        self.granted.get().map(AsRef::as_ref)
    }

    pub(crate) fn found(&self) -> Option<&FoundUser> {
        self.found.get()
    }

    pub(crate) fn keep_found(&self, found: FoundUser) {
        // Of two concurrent decisions the first is kept.
        let _ = self.found.set(found);
    }

    pub(crate) fn is_counted(&self) -> bool {
        self.is_counted.load(Ordering::Relaxed)
    }

    pub(crate) fn note_counted(&self) {
        self.is_counted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn note_granted(&self, user: Option<&Arc<str>>) {
        if let Some(user) = user {
            let _ = self.granted.set(user.clone());
        }
    }
}
