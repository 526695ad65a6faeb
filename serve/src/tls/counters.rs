// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handshakes and reloads since the start of the server.
//!
//! Does not keep reasons: those are in the log.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of TLS, part of [`crate::meter::Meters`].
#[derive(Debug, Default)]
pub(crate) struct TlsCounters {
    /// Completed handshakes, resumed ones included.
    pub(crate) handshakes: AtomicU64,
    /// Completed handshakes that resumed an earlier session.
    pub(crate) resumed: AtomicU64,
    /// Connections that the kernel encrypts, since their handshake.
    pub(crate) in_kernel: AtomicU64,
    /// Handshakes that did not complete. A peer that left without a byte is not counted.
    pub(crate) failed: AtomicU64,
    /// Certificates loaded while the server ran.
    pub(crate) reloads: AtomicU64,
    /// Changes of the files that could not be loaded.
    pub(crate) reloads_failed: AtomicU64,
}

impl TlsCounters {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
