// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong when a server is started, in the four kinds of the house: a host's refusal, a
//! caller's wrong option. Peers' mistakes are answered on the wire and never become an [`Error`].

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What a path is, and what to do, where a folder cannot be opened.
fn folder_refused(path: &Path, source: &io::Error) -> String {
    let shown = path.display();
    match source.kind() {
        io::ErrorKind::NotFound => {
            format!("no such folder; name a folder that exists, or make this one: mkdir -p {shown}")
        }
        io::ErrorKind::NotADirectory => {
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            let above = above.unwrap_or(Path::new(".")).display();
            format!("a file; name a folder, such as the one that it lies in: {above}")
        }
        _ => format!("{source}; name a folder that the user of this server may read"),
    }
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Caller: the folder to serve.
    #[error("serve {}: {}", path.display(), folder_refused(path, source))]
    Folder {
        /// What was asked for.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Caller: an option that cannot be taken.
    #[error("{option}: {found}; {cure}")]
    Option {
        /// The option as written on the command line.
        option: &'static str,
        /// What was found.
        found: String,
        /// What to write.
        cure: String,
    },
    /// Host: a listening socket or the media ports.
    #[error("{what} {address}: {source}; {cure}")]
    Listen {
        /// Which listener.
        what: &'static str,
        /// The address asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
        /// What to do.
        cure: &'static str,
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
    /// Host: the process may open too few descriptors to serve anybody.
    #[error(
        "ulimit -n: {found} file descriptors, of which a server here holds {held} before its first \
         client; raise it to {needed} at least"
    )]
    Descriptors {
        /// How many it may open.
        found: u64,
        /// How many it has open.
        held: u64,
        /// How many it needs for a few clients.
        needed: u64,
    },
    /// Host: a path cannot be used on this machine.
    #[error(transparent)]
    Path(#[from] paths::Error),
}

impl Error {
    /// True when the command line is at fault (exit status 2).
    pub fn is_caller(&self) -> bool {
        matches!(self, Error::Folder { .. } | Error::Option { .. })
    }
}
