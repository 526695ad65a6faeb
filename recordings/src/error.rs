// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of lists and cuts.

use std::io;
use std::path::PathBuf;

use jiff::Timestamp;

use crate::recording::RecordedTime;

/// Reason why recordings could not be listed or cut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Caller: nothing was recorded in this time.
    #[error("nothing was recorded from {} to {}", range.from, range.to)]
    NothingRecorded {
        /// The time.
        range: RecordedTime,
        /// End of the last recording before it.
        before: Option<Timestamp>,
        /// Start of the first recording after it.
        after: Option<Timestamp>,
    },
    /// Caller: one file cannot hold both parts.
    #[error(
        "{}: its tracks or their parameters differ from those before: export the time before it \
         and the time from it on apart",
        path.display()
    )]
    Changed {
        /// The first file that differs.
        path: PathBuf,
        /// Its start.
        at: Timestamp,
    },
    /// A file that cannot be read as a recording.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: media::DemuxError,
    },
    /// The caller stopped it.
    #[error("stopped; nothing was written")]
    Stopped,
    /// Host: media cannot be read or written.
    #[error("copying {} to {}: {source}", from.display(), to.display())]
    Copy {
        /// The recording.
        from: PathBuf,
        /// The new file.
        to: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Host: a system call failed.
    #[error("{}: {source}", path.display())]
    Host {
        /// File or folder.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
}

impl Error {
    /// True when the request of the caller cannot be met, on any host.
    pub fn is_caller(&self) -> bool {
        matches!(self, Error::NothingRecorded { .. } | Error::Changed { .. })
    }
}
