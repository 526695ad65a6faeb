// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the client, of three kinds: a wrong setting of the caller, a refusal by this host, and
//! a server that breaks its protocol or refuses a request.
//!
//! Losses and lateness are not errors: the verdict counts them.

use std::fmt;
use std::io;
use std::path::Path;

use crate::login::LoginRefusal;
use crate::tls::TlsFault;

/// Reason why a client did not begin or did not finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Caller: an invalid setting.
    #[error("{setting}: {found}; {cure}")]
    Setting {
        /// The setting.
        setting: ClientSetting,
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
        /// Answer of the kernel.
        source: io::Error,
    },
    /// Peer: an answer of a server is unusable.
    #[error("{peer}: {found}")]
    Peer {
        /// Name of the peer.
        peer: String,
        /// The fault, and its place.
        found: String,
    },
    /// Peer: a server's description has no stream that can be received.
    #[error(
        "{peer}: it offers {offered}; what can be received is an MPEG transport stream, or H.264, \
         H.265, AAC, MPEG audio, Opus, AC-3 and E-AC-3; AV1 and PCM in MP4 alone (receive --output \
         NAME.mp4)"
    )]
    NoTransportStream {
        /// Name of the peer.
        peer: String,
        /// Its media by common names, such as `H.264 video`.
        offered: String,
    },
    /// Peer: a server refused an RTSP request.
    #[error("{peer}: {found}")]
    Refused {
        /// Name of the peer.
        peer: String,
        /// The status code of the answer.
        status: u16,
        /// The request, and the answer's status, reason and body.
        found: String,
    },
    /// Peer: a server asks for a login that was not given, or refused it.
    #[error("{peer}: {request}: 401 Unauthorized: {reason}")]
    Login {
        /// Name of the peer.
        peer: String,
        /// Method of the request.
        request: String,
        /// The reason. It repeats neither user nor password.
        reason: LoginRefusal,
    },
    /// Peer: a server of `rtsps:` is not trusted, or does not speak TLS.
    #[error("{peer}: {fault}")]
    Tls {
        /// Name of the peer.
        peer: String,
        /// The reason.
        fault: TlsFault,
    },
    /// Peer: a server granted PLAY, and no packet arrived.
    #[error("{peer}: {found}")]
    NoPacket {
        /// Name of the peer.
        peer: String,
        /// Place where packets were expected, and the time waited.
        found: String,
    },
    /// Peer: an RTSP connection ended, or a request was not answered in time.
    #[error("{peer}: {found}")]
    Lost {
        /// Name of the peer.
        peer: String,
        /// The request, and the fault.
        found: String,
    },
}

impl Error {
    /// Returns the error of a call on a file.
    pub(crate) fn on_file(call: &'static str, path: &Path, source: io::Error) -> Error {
        Error::Host { call, object: path.display().to_string(), source }
    }

    /// True when a setting of the caller is at fault.
    pub fn is_caller(&self) -> bool {
        matches!(self, Error::Setting { .. })
    }
}

/// A setting of a play or a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientSetting {
    /// `url` of any operation.
    Url,
    /// `length` of a play.
    Length,
    /// `pause` of a play.
    Pause,
    /// `output` of a play.
    Output,
    /// A session description.
    Description,
    /// `sessions` of a load.
    Sessions,
    /// `length` of a load.
    Seconds,
    /// `ramp` of a load.
    Ramp,
    /// `source` of a load.
    SourceAddress,
    /// `file` of a load.
    File,
    /// `transport` of a play or a load.
    Transport,
    /// `scenario` of a load.
    Scenario,
}

impl fmt::Display for ClientSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClientSetting::Url => "URL",
            ClientSetting::Length => "length",
            ClientSetting::Pause => "pause",
            ClientSetting::Output => "output",
            ClientSetting::Description => "description",
            ClientSetting::Sessions => "sessions",
            ClientSetting::Seconds => "measured time",
            ClientSetting::Ramp => "ramp",
            ClientSetting::SourceAddress => "source address",
            ClientSetting::File => "file",
            ClientSetting::Transport => "transport",
            ClientSetting::Scenario => "scenario",
        })
    }
}
