// SPDX-License-Identifier: MIT OR Apache-2.0
//! What keeps a recording from beginning, or ends one of its streams: a caller's wrong option, a
//! host's refusal. What a sender does wrong is counted and never becomes an [`Error`].

use std::fmt;
use std::io;

use paths::ReceiveSpec;
use rustix::io::Errno;

/// Why a recording did not start, or a stream of it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Caller: a setting that cannot be taken.
    #[error("{setting}: {found}; {cure}")]
    Setting {
        /// The setting.
        setting: RecordSetting,
        /// What was found.
        found: String,
        /// What to write.
        cure: String,
    },
    /// Host: a system call failed.
    #[error("{call} {object}: {source}")]
    Host {
        /// The call.
        call: &'static str,
        /// On what.
        object: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Host: no path of receiving can be used for these ports. The reason is that of the plainest
    /// path, which stands in the way of all.
    #[error("receiving: {0}")]
    NoPath(RefusedPath),
    /// Host: the relay cannot be used for these ports.
    #[error("receiving: {0}")]
    Relay(paths::Error),
}

impl Error {
    /// True when a setting of the caller is at fault.
    pub fn is_caller(&self) -> bool {
        matches!(self, Error::Setting { .. })
    }
}

/// A path of receiving that this host refused.
#[derive(Debug, Clone)]
pub struct RefusedPath {
    /// Name of the path.
    pub path: &'static ReceiveSpec,
    /// Reason of the refusal.
    pub reason: PathRefusal,
}

/// Reason why a path of receiving was refused.
#[derive(Debug, Clone)]
pub enum PathRefusal {
    /// The host lacks something that the path needs.
    Unavailable(paths::Unavailable),
    /// A system call failed, or a port was refused.
    Failed(paths::Error),
}

impl fmt::Display for RefusedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            PathRefusal::Unavailable(unavailable) => write!(f, "{}: {unavailable}", self.path),
            PathRefusal::Failed(error) => write!(f, "{}: {error}{}", self.path, cure(error)),
        }
    }
}

/// Words for what to write instead, behind a refusal that the URL is the reason of.
fn cure(error: &paths::Error) -> &'static str {
    let paths::Error::Host { errno, .. } = error else { return "" };
    match Errno::from_raw_os_error(errno.code()) {
        Errno::ADDRNOTAVAIL => {
            "; no interface of this machine has that address: write one that `ip address` lists, \
             or 0.0.0.0 or [::] for all of them"
        }
        Errno::NODEV => {
            "; there is no such interface: write interface=NAME with a name that `ip link` lists"
        }
        _ => "",
    }
}

/// A setting of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordSetting {
    /// One of `urls`.
    Url,
    /// `output`.
    Output,
    /// `path`.
    Path,
    /// One of `relay`.
    Relay,
}

impl fmt::Display for RecordSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecordSetting::Url => "URL",
            RecordSetting::Output => "name of the files",
            RecordSetting::Path => "receive path",
            RecordSetting::Relay => "relay",
        })
    }
}
