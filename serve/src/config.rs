// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a server, checked before anything is opened.
//!
//! Every limit has a default with its reason here; the command line offers those that operators
//! change.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::AccessConfig;

use crate::access_log::AccessLogTarget;
use crate::admission::KeyTokens;
use crate::channel::{ChannelConfig, check_channels};
use crate::error::{Error, Setting};
use crate::handover::Predecessor;
use crate::http::film_keys::KeySource;
use crate::limits::ClientLimits;
use crate::pacer::PacketPacing;
use crate::path_choice::{self, PathCost, PathSettings};
use crate::posters::ThumbnailSource;
use crate::rtsp::media_ports::MediaPorts;
use crate::sockets::{ListenerName, ListeningSockets};
use crate::tls::TlsSource;
use crate::web::SegmentCipher;

/// Options of a server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The folder whose files are served.
    pub folder: PathBuf,
    /// Listening address of RTSP; port 0 picks one.
    pub rtsp: SocketAddr,
    /// Listening address of HTTP; port 0 picks one.
    pub http: SocketAddr,
    /// Listening address of HTTPS; port 0 picks one.
    pub https: Option<SocketAddr>,
    /// Listening address of RTSPS (RTSP over TLS, RFC 7826 §19.2); port 0 picks one.
    pub rtsps: Option<SocketAddr>,
    /// Certificate of HTTPS and RTSPS.
    pub tls: Option<TlsSource>,
    /// True for downloads over HTTPS to be encrypted by the kernel where it can (kernel TLS).
    pub kernel_tls: bool,
    /// Cache folder; the XDG cache by default.
    pub cache: Option<PathBuf>,
    /// Disk space for wire images, bytes; 0 for none.
    pub cache_bytes_max: u64,
    /// Source of posters and thumbnails.
    pub thumbnails: ThumbnailSource,
    /// Disk space for posters and thumbnails, bytes; 0 for none.
    pub thumbnail_bytes_max: u64,
    /// Longest time by which a packet is sent ahead. Larger bursts cost less CPU time and add
    /// jitter.
    pub burst: Duration,
    /// Way in which a burst's packets are spread over its time.
    pub pacing: PacketPacing,
    /// Ports that media is sent from.
    pub media_ports: MediaPorts,
    /// Paths forced by name: at most one for streams and one for downloads.
    pub paths: Vec<String>,
    /// CPU cost of paths on this machine; the cheapest are used. Empty: a default order.
    pub path_costs: Vec<PathCost>,
    /// Pacer threads; one per core by default.
    pub pacers: Option<usize>,
    /// Time of silence after which a session ends (RFC 2326 §12.37).
    pub session_timeout: Duration,
    /// Source of the keys of sealed films, served at `/keys/NAME/NUMBER.key`.
    pub keys: Option<KeySource>,
    /// How segments of HLS are enciphered, with keys made from a secret; `None`: they are clear.
    pub segment_cipher: Option<SegmentCipher>,
    /// Tokens that clients need for keys; without tokens keys are open.
    pub key_tokens: Option<KeyTokens>,
    /// Rules and credentials: who may do what; everybody everything by default.
    pub access: AccessConfig,
    /// Origins whose pages may read answers (the Fetch standard's CORS), or one of `*` for all and
    /// `none`. Without any, all pages may read media of a server that asks for no credentials.
    pub allow_origins: Vec<String>,
    /// Listening address of metrics and the administrator's API; port 0 picks one.
    pub admin: Option<SocketAddr>,
    /// Host names by which browsers may open that address, beside IP addresses and localhost.
    pub admin_hosts: Vec<String>,
    /// Log of answers and sessions.
    pub access_log: Option<AccessLogTarget>,
    /// Time-outs of connections.
    pub timeouts: Timeouts,
    /// Limits on clients.
    pub limits: ClientLimits,
    /// Channels.
    pub channels: Vec<ChannelConfig>,
    /// Sockets that are open already; the server opens those that are missing.
    pub sockets: ListeningSockets,
    /// Server that this one follows: it accepts no more once this one serves.
    pub predecessor: Option<Arc<Predecessor>>,
}

/// Time-outs of a connection.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Timeouts {
    /// From the first byte of a request to its last: ends a peer that sends a byte a second.
    pub request: Duration,
    /// Until the first byte on a new connection.
    pub first_request: Duration,
    /// Between requests of an HTTP connection.
    pub idle_http: Duration,
    /// Between requests of an RTSP connection.
    pub idle_rtsp: Duration,
    /// For a peer that accepts no byte of an answer; others have as long as they make progress (1
    /// KiB/s).
    pub write: Duration,
}

impl Config {
    /// Returns the default options for `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Config {
        Config {
            folder: folder.into(),
            rtsp: (Ipv4Addr::LOCALHOST, 8554).into(),
            http: (Ipv4Addr::LOCALHOST, 8080).into(),
            https: None,
            rtsps: None,
            tls: None,
            kernel_tls: true,
            cache: None,
            cache_bytes_max: 10 << 30,
            thumbnails: ThumbnailSource::None("thumbnails are off".to_owned()),
            thumbnail_bytes_max: 1 << 30,
            burst: Duration::from_millis(20),
            pacing: PacketPacing::User,
            media_ports: MediaPorts::One(0),
            paths: Vec::new(),
            path_costs: Vec::new(),
            pacers: None,
            session_timeout: Duration::from_secs(60),
            keys: None,
            segment_cipher: None,
            key_tokens: None,
            access: AccessConfig::default(),
            allow_origins: Vec::new(),
            admin: None,
            admin_hosts: Vec::new(),
            access_log: None,
            timeouts: Timeouts {
                request: Duration::from_secs(10),
                first_request: Duration::from_secs(10),
                idle_http: Duration::from_secs(30),
                idle_rtsp: Duration::from_secs(180),
                write: Duration::from_secs(30),
            },
            limits: ClientLimits::default(),
            channels: Vec::new(),
            sockets: ListeningSockets::default(),
            predecessor: None,
        }
    }

    /// Returns each listener with its address, if it has one.
    pub(crate) fn listeners(&self) -> [(ListenerName, Option<SocketAddr>); 5] {
        [
            (ListenerName::Rtsp, Some(self.rtsp)),
            (ListenerName::Http, Some(self.http)),
            (ListenerName::Https, self.https),
            (ListenerName::Rtsps, self.rtsps),
            (ListenerName::Admin, self.admin),
        ]
    }

    /// Returns the options on which the choice of paths depends.
    pub(crate) fn path_settings(&self) -> PathSettings<'_> {
        let (named, costs) = (&self.paths[..], &self.path_costs[..]);
        PathSettings { named, costs, has_images: self.cache_bytes_max > 0 }
    }

    /// Checks the settings, as [`Server::start`](crate::Server::start) does, without opening
    /// anything.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn check(&self) -> Result<(), Error> {
        let burst_ms = self.burst.as_millis();
        if !(1..=BURST_MS_MAX).contains(&burst_ms) {
            return Err(Error::Setting {
                setting: Setting::Burst,
                found: format!("{burst_ms} ms"),
                cure: format!("write 1 to {BURST_MS_MAX}"),
            });
        }
        if let PacketPacing::Txtime { packets } = self.pacing
            && !(1..=PacketPacing::PACKETS_MAX).contains(&packets)
        {
            return Err(Error::Setting {
                setting: Setting::Pacing,
                found: format!("{packets} packets a departure"),
                cure: format!("write 1 to {}", PacketPacing::PACKETS_MAX),
            });
        }
        if self.pacers == Some(0) {
            return Err(Error::Setting {
                setting: Setting::Pacers,
                found: "0".to_owned(),
                cure: "write 1 or more, or leave it out for one per core".to_owned(),
            });
        }
        self.media_ports.check()?;
        path_choice::check(self.path_settings())?;
        self.check_tls()?;
        self.check_admin()?;
        self.limits.check()?;
        if self.key_tokens.is_some() && self.keys.is_none() {
            return Err(Error::Setting {
                setting: Setting::KeyTokens,
                found: "tokens for keys, and no keys".to_owned(),
                cure: "write where keys come from, or leave it out".to_owned(),
            });
        }
        if self.segment_cipher.is_some() && !matches!(self.keys, Some(KeySource::Made(_))) {
            return Err(Error::Setting {
                setting: Setting::SegmentCipher,
                found: "segments to be enciphered, and no secret to make keys from".to_owned(),
                cure: "write the file of the secret".to_owned(),
            });
        }
        if let Err(faults) = check_channels(&self.channels) {
            let first = faults.into_iter().next().expect("a fault at least");
            return Err(Error::Channel(Box::new(first)));
        }
        let refused = |found: String, cure: &str| {
            Err(Error::Setting { setting: Setting::AllowOrigins, found, cure: cure.to_owned() })
        };
        let origins = &self.allow_origins;
        if let Some(other) = origins.iter().find(|origin| !is_origin(origin)) {
            return refused(other.clone(), "write * or an origin such as https://example.org");
        }
        match origins.iter().find(|origin| is_of_all(origin)).filter(|_| origins.len() > 1) {
            Some(all) => refused(format!("{all} beside others"), "write it alone, or leave it out"),
            None => Ok(()),
        }
    }

    /// Enters the addresses of sockets that a service manager keeps, which win over others.
    pub fn enter_managed(&mut self, sockets: &ListeningSockets) {
        let managed = |name| sockets.managed_address(name);
        self.rtsp = managed(ListenerName::Rtsp).unwrap_or(self.rtsp);
        self.http = managed(ListenerName::Http).unwrap_or(self.http);
        self.https = managed(ListenerName::Https).or(self.https);
        self.rtsps = managed(ListenerName::Rtsps).or(self.rtsps);
        self.admin = managed(ListenerName::Admin).or(self.admin);
    }

    /// Checks that strangers cannot administer, and that not every viewer can from everywhere.
    fn check_admin(&self) -> Result<(), Error> {
        let Some(address) = self.admin else { return Ok(()) };
        let local = format!("write 127.0.0.1:{}", address.port());
        let cures = [
            format!("{local} and forward it (ssh -L), or name users"),
            format!("{local}, or rules, one of them with the verb admin"),
        ];
        self.check_admin_at(address, "", cures)
    }

    /// Checks the same for a listener that is open and stays so until a restart, whatever address
    /// this configuration names.
    pub(crate) fn check_open_admin(&self, address: SocketAddr) -> Result<(), Error> {
        let cures = [
            "name users, or restart the server without this address".to_owned(),
            "write rules, one of them with the verb admin, or restart the server without this \
             address"
                .to_owned(),
        ];
        self.check_admin_at(address, " until a restart", cures)
    }

    /// `cures`: where nobody has to log in, and where everybody who does would be an administrator.
    fn check_admin_at(
        &self,
        address: SocketAddr,
        until: &str,
        [cure_of_open, cure_of_all]: [String; 2],
    ) -> Result<(), Error> {
        if address.ip().is_loopback() {
            return Ok(());
        }
        let (why, cure) = match (self.access.has_logins(), self.access.rules.is_empty()) {
            (false, _) => ("nobody has to log in", cure_of_open),
            (true, true) => ("every user would be an administrator", cure_of_all),
            (true, false) => return Ok(()),
        };
        Err(Error::Setting {
            setting: Setting::Admin,
            found: format!("{address} can be reached by others{until}, and {why}"),
            cure: format!("{cure} (docs/access.md)"),
        })
    }

    /// Checks that listeners with TLS have a certificate, and the other way round.
    fn check_tls(&self) -> Result<(), Error> {
        let listener = match (self.https, self.rtsps) {
            (Some(address), _) => Some((Setting::Https, address)),
            (None, Some(address)) => Some((Setting::Rtsps, address)),
            (None, None) => None,
        };
        match (listener, &self.tls) {
            (Some((setting, address)), None) => Err(Error::Setting {
                setting,
                found: format!("{address} without a certificate"),
                cure: "give a certificate with its key, or choose a self-signed one".to_owned(),
            }),
            (None, Some(source)) => Err(Error::Setting {
                setting: match source {
                    TlsSource::Files { .. } => Setting::TlsCert,
                    TlsSource::SelfSigned => Setting::TlsSelfSigned,
                },
                found: "a certificate, and nothing listens with TLS".to_owned(),
                cure: "write an address of HTTPS or RTSPS, or leave it out".to_owned(),
            }),
            (Some(_), Some(_)) | (None, None) => Ok(()),
        }
    }
}

/// Value of `allow_origins` with which no page of another server may read answers (CORS).
pub(crate) const NO_ORIGIN: &str = "none";

/// True for `*` and `none`, and for scheme, host and port as a browser sends them.
fn is_origin(text: &str) -> bool {
    let authority = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte);
    is_of_all(text) || authority.is_some_and(|a| !a.is_empty() && a.bytes().all(is_letter))
}

/// True of the two values that stand for all origins and for none.
fn is_of_all(text: &str) -> bool {
    ["*", NO_ORIGIN].contains(&text)
}

/// Longest burst; a longer one would overflow receivers' default socket buffers at common rates.
const BURST_MS_MAX: u128 = 200;
