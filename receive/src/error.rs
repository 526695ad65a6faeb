// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of a recorder, which keep a recording from starting or end one of its streams. They are
//! wrong settings of the caller, or refusals of this host. Faults of a sender are counted and never
//! become an [`Error`].

use std::fmt;
use std::io;

use paths::ReceiveSpec;
use rustix::io::Errno;

/// Reason why a recording did not start, or a stream of it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Caller: an unusable setting.
    #[error("{setting}: {found}; {cure}")]
    Setting {
        /// The setting.
        setting: RecordSetting,
        /// The value, or the fault that was found.
        found: String,
        /// The value to write instead.
        cure: String,
    },
    /// Host: a system call failed.
    #[error("{call} {object}: {source}")]
    Host {
        /// Name of the call.
        call: &'static str,
        /// Object of the call.
        object: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Host: no receive path can be used for these ports. The reason is that of the last path
    /// tried, normally the simplest; its obstacle affects all paths.
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

/// A receive path that this host refused.
#[derive(Debug, Clone)]
pub struct RefusedPath {
    /// The path.
    pub path: &'static ReceiveSpec,
    /// Reason of the refusal.
    pub reason: PathRefusal,
}

/// Reason why a receive path was refused.
#[derive(Debug, Clone)]
pub enum PathRefusal {
    /// The host lacks a need of the path.
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

/// Returns the cure for a refusal that the URL causes.
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
    /// `transport`.
    Transport,
    /// `media`.
    Tracks,
    /// Free bytes of a camera's retention.
    FreeSpace,
}

impl fmt::Display for RecordSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecordSetting::Url => "URL",
            RecordSetting::Output => "name of the files",
            RecordSetting::Path => "receive path",
            RecordSetting::Relay => "relay",
            RecordSetting::Transport => "transport",
            RecordSetting::Tracks => "tracks",
            RecordSetting::FreeSpace => "keep_free_gb",
        })
    }
}
