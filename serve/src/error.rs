// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of starting a server: a host's refusal or a caller's wrong option. Mistakes of peers are
//! answered on the wire and never become an [`Error`].

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::channel::InvalidChannel;

/// Describes a folder that cannot be opened, with the cure.
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

/// Setting of a server, as named in errors; the command line adds its flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// [`crate::Config::rtsp`].
    Rtsp,
    /// [`crate::Config::http`].
    Http,
    /// [`crate::Config::https`].
    Https,
    /// [`crate::Config::rtsps`].
    Rtsps,
    /// [`crate::Config::tls`]: the certificate of [`crate::TlsSource::Files`].
    TlsCert,
    /// [`crate::Config::tls`]: the private key of [`crate::TlsSource::Files`].
    TlsKey,
    /// [`crate::Config::tls`]: [`crate::TlsSource::SelfSigned`].
    TlsSelfSigned,
    /// [`crate::Config::media_ports`].
    MediaPorts,
    /// [`crate::Config::burst`].
    Burst,
    /// [`crate::Config::pacing`].
    Pacing,
    /// [`crate::Config::paths`].
    Paths,
    /// [`crate::Config::admin`].
    Admin,
    /// [`crate::Config::access_log`].
    AccessLog,
    /// [`crate::Config::pacers`].
    Pacers,
    /// [`crate::Config::keys`].
    Keys,
    /// [`crate::Config::key_tokens`].
    KeyTokens,
    /// [`crate::Config::segment_cipher`].
    SegmentCipher,
    /// [`crate::Config::allow_origins`].
    AllowOrigins,
    /// [`crate::Config::channels`].
    Channels,
    /// [`crate::ClientLimits::http_pace`].
    HttpPace,
    /// [`crate::ClientLimits::http_rate_per_connection`].
    HttpRatePerConnection,
    /// [`crate::ClientLimits::http_rate_per_address`].
    HttpRatePerAddress,
    /// [`crate::ClientLimits::http_rate`].
    HttpRate,
    /// [`crate::ClientLimits::rate`].
    Rate,
    /// [`crate::ClientLimits::rate_per_user`].
    RatePerUser,
    /// [`crate::ClientLimits::admit_load`].
    AdmitLoad,
}

impl std::fmt::Display for Setting {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Setting::Rtsp => "RTSP address",
            Setting::Http => "HTTP address",
            Setting::Https => "HTTPS address",
            Setting::Rtsps => "RTSPS address",
            Setting::TlsCert => "TLS certificate",
            Setting::TlsKey => "TLS key",
            Setting::TlsSelfSigned => "self-signed TLS certificate",
            Setting::MediaPorts => "media ports (RTP, and RTCP on the next)",
            Setting::Burst => "burst",
            Setting::Pacing => "pacing",
            Setting::Paths => "path",
            Setting::Admin => "administrator's address",
            Setting::AccessLog => "access log",
            Setting::Pacers => "pacer threads",
            Setting::Channels => "channels",
            Setting::Keys => "keys of sealed films",
            Setting::KeyTokens => "tokens for keys",
            Setting::SegmentCipher => "cipher of segments",
            Setting::AllowOrigins => "allowed origin",
            Setting::HttpPace => "pace of downloads",
            Setting::HttpRatePerConnection => "rate of a connection's downloads",
            Setting::HttpRatePerAddress => "rate of an address's downloads",
            Setting::HttpRate => "rate of all downloads",
            Setting::Rate => "rate of all sessions",
            Setting::RatePerUser => "rate of a user's sessions",
            Setting::AdmitLoad => "load up to which sessions are admitted",
        })
    }
}

/// Reason why the server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Caller: the folder to serve cannot be opened.
    #[error("serve {}: {}", path.display(), folder_refused(path, source))]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Caller: a setting of [`crate::Config`] that cannot be used.
    #[error("{setting}: {found}; {cure}")]
    Setting {
        /// The setting.
        setting: Setting,
        /// Its value.
        found: String,
        /// Values that can be used.
        cure: String,
    },
    /// Caller: a path of wire images is forced, and the cache has no space for them.
    #[error("path {path}: it sends wire images, and their share of the cache is 0 bytes")]
    NoImages {
        /// The path's name.
        path: &'static str,
    },
    /// Caller: an option has an unusable value.
    #[error("{option}: {found}; {cure}")]
    Option {
        /// The option as written on the command line.
        option: &'static str,
        /// Value found.
        found: String,
        /// Value to write.
        cure: String,
    },
    /// Host: a listening socket or the media ports cannot be opened.
    #[error("{setting} {address}: {source}")]
    Listen {
        /// The setting that gives the address.
        setting: Setting,
        /// The requested address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
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
    /// Host: the process may open too few descriptors to serve a client.
    #[error(
        "ulimit -n: {found} file descriptors, of which a server here holds {held} before its first \
         client; raise it to {needed} at least"
    )]
    Descriptors {
        /// Number of descriptors it may open.
        found: u64,
        /// Number of descriptors it has open.
        held: u64,
        /// Number of descriptors needed for a few clients.
        needed: u64,
    },
    /// Caller: a setting of a channel that cannot be used.
    #[error(transparent)]
    Channel(Box<InvalidChannel>),
    /// Caller: an option of access control cannot be used.
    #[error(transparent)]
    Access(#[from] access::Error),
    /// Host: a path cannot be used on this machine.
    #[error(transparent)]
    Path(#[from] paths::Error),
}

impl Error {
    /// True when the command line is at fault (exit status 2).
    pub fn is_caller(&self) -> bool {
        matches!(
            self,
            Error::Folder { .. }
                | Error::Setting { .. }
                | Error::NoImages { .. }
                | Error::Option { .. }
                | Error::Channel(_)
                | Error::Access(_)
        )
    }
}
