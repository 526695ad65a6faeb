// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fault in received bytes: not HTTP/1.1, or over a limit.
//!
//! Has the offset in the connection, so that it can be found in a capture. Quotes no byte of the
//! peer's, so that it can be logged and sent as an answer.

use std::fmt;
use std::time::SystemTime;

use super::response::{Response, refusal};

/// A request that cannot be read further; the connection ends after its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Malformed {
    /// Offset of the fault in bytes from the start of the connection.
    pub offset: u64,
    /// Description of the fault.
    pub what: &'static str,
    /// Document and section that it violates, or that allows the refusal.
    pub section: &'static str,
    /// The status code to answer with: 400, 413, 414, 417, 431, 501 or 505.
    pub status: u16,
}

impl Malformed {
    /// Creates a fault at `offset` from an origin of the caller; see [`Malformed::shifted`].
    pub(super) fn new(
        status: u16,
        offset: usize,
        what: &'static str,
        section: &'static str,
    ) -> Malformed {
        Malformed { offset: offset as u64, what, section, status }
    }

    /// Returns the same fault, with the offset counted from `base` bytes earlier.
    pub(super) fn shifted(mut self, base: u64) -> Malformed {
        self.offset = self.offset.saturating_add(base);
        self
    }

    /// The answer to send before closing.
    pub fn response(&self, now: SystemTime) -> Response {
        refusal(self.status, &self.to_string(), now)
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {} ({})", self.offset, self.what, self.section)
    }
}

impl std::error::Error for Malformed {}
