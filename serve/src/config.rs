// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a server is told to do, checked before anything is opened.
//!
//! Every limit has a default with its reason here; the command line offers those that operators
//! change.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Setting};
use crate::film_keys::KeySource;
use crate::key_tokens::KeyTokens;
use crate::limits::ClientLimits;
use crate::media_ports::MediaPorts;
use crate::path_choice::PathCost;

/// Options of a server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The folder whose files are served.
    pub folder: PathBuf,
    /// Where RTSP listens; port 0 picks one.
    pub rtsp: SocketAddr,
    /// Where HTTP listens; port 0 picks one.
    pub http: SocketAddr,
    /// Cache folder; the XDG cache by default.
    pub cache: Option<PathBuf>,
    /// Wire images may take this much disk, bytes; 0 for none.
    pub cache_bytes_max: u64,
    /// A packet is sent at most this long before it is due. Larger bursts cost less and jitter
    /// more.
    pub burst: Duration,
    /// Where media leaves from.
    pub media_ports: MediaPorts,
    /// Paths forced by name: at most one for streams and one for downloads.
    pub paths: Vec<String>,
    /// What paths cost on this machine; the cheapest are used. Empty: a usual order.
    pub path_costs: Vec<PathCost>,
    /// Pacer threads; one per core by default.
    pub pacers: Option<usize>,
    /// A session nobody has heard from for this long ends (RFC 2326 §12.37).
    pub session_timeout: Duration,
    /// Where keys of sealed films come from; they are given at `/keys/NAME/NUMBER.key`.
    pub keys: Option<KeySource>,
    /// Who gets them: without tokens, everybody.
    pub key_tokens: Option<KeyTokens>,
    /// Pages of this origin, or `*` for all, may play what is served (the Fetch standard's CORS).
    pub allow_origin: Option<String>,
    /// How long connections are waited for.
    pub timeouts: Timeouts,
    /// What clients may hold at most.
    pub limits: ClientLimits,
}

/// How long a connection is waited for.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Timeouts {
    /// From the first byte of a request to its last: ends a peer that sends a byte a second.
    pub request: Duration,
    /// A connection that has said nothing yet.
    pub first_request: Duration,
    /// Between requests of an HTTP connection.
    pub idle_http: Duration,
    /// Between requests of an RTSP connection.
    pub idle_rtsp: Duration,
    /// A peer that takes no byte of an answer; whoever takes some has as long as it makes progress
    /// (1 KiB/s).
    pub write: Duration,
}

impl Config {
    /// The defaults, for `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Config {
        Config {
            folder: folder.into(),
            rtsp: (Ipv4Addr::LOCALHOST, 8554).into(),
            http: (Ipv4Addr::LOCALHOST, 8080).into(),
            cache: None,
            cache_bytes_max: 10 << 30,
            burst: Duration::from_millis(20),
            media_ports: MediaPorts::One(0),
            paths: Vec::new(),
            path_costs: Vec::new(),
            pacers: None,
            session_timeout: Duration::from_secs(60),
            keys: None,
            key_tokens: None,
            allow_origin: None,
            timeouts: Timeouts {
                request: Duration::from_secs(10),
                first_request: Duration::from_secs(10),
                idle_http: Duration::from_secs(30),
                idle_rtsp: Duration::from_secs(180),
                write: Duration::from_secs(30),
            },
            limits: ClientLimits::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let burst_ms = self.burst.as_millis();
        if !(1..=BURST_MS_MAX).contains(&burst_ms) {
            return Err(Error::Setting {
                setting: Setting::Burst,
                found: format!("{burst_ms} ms"),
                cure: format!("write 1 to {BURST_MS_MAX}"),
            });
        }
        if self.pacers == Some(0) {
            return Err(Error::Setting {
                setting: Setting::Pacers,
                found: "0".to_owned(),
                cure: "write 1 or more, or leave it out for one per core".to_owned(),
            });
        }
        if self.key_tokens.is_some() && self.keys.is_none() {
            return Err(Error::Setting {
                setting: Setting::KeyTokens,
                found: "tokens for keys, and no keys".to_owned(),
                cure: "write where keys come from, or leave it out".to_owned(),
            });
        }
        match &self.allow_origin {
            Some(origin) if !is_origin(origin) => Err(Error::Setting {
                setting: Setting::AllowOrigin,
                found: origin.clone(),
                cure: "write * or an origin such as https://example.org".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

/// `*`, or scheme, host and port as a browser sends them.
fn is_origin(text: &str) -> bool {
    let authority = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte);
    text == "*" || authority.is_some_and(|a| !a.is_empty() && a.bytes().all(is_letter))
}

/// Beyond this a burst would overflow the receivers' default socket buffers at common rates.
const BURST_MS_MAX: u128 = 200;
