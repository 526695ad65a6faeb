// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a server is told to do, checked before anything is opened.
//!
//! Every limit has a default with its reason here; the command line offers those that operators
//! change.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use paths::{Feed, Host, Open, Spec, Transport};

use crate::error::Error;
use crate::pacer::Choice;
use crate::ports::MediaPorts;

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
    /// Pacer threads; one per core by default.
    pub pacers: Option<usize>,
    /// A session nobody has heard from for this long ends (RFC 2326 §12.37).
    pub session_timeout: Duration,
    /// Limits on connections.
    pub patience: Patience,
}

/// How long a connection is waited for.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Patience {
    /// From the first byte of a request to its last: ends a peer that sends a byte a second.
    pub request: Duration,
    /// A connection that has said nothing yet.
    pub first_request: Duration,
    /// Between requests of an HTTP connection.
    pub idle_http: Duration,
    /// Between requests of an RTSP connection.
    pub idle_rtsp: Duration,
    /// A peer that takes no byte of an answer.
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
            pacers: None,
            session_timeout: Duration::from_secs(60),
            patience: Patience {
                request: Duration::from_secs(10),
                first_request: Duration::from_secs(10),
                idle_http: Duration::from_secs(30),
                idle_rtsp: Duration::from_secs(180),
                write: Duration::from_secs(30),
            },
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let burst_ms = self.burst.as_millis();
        if !(1..=BURST_MS_MAX).contains(&burst_ms) {
            return Err(Error::Option {
                option: "--burst",
                found: format!("{burst_ms} ms"),
                cure: format!("write 1 to {BURST_MS_MAX}"),
            });
        }
        if self.pacers == Some(0) {
            return Err(Error::Option {
                option: "--pacers",
                found: "0".to_owned(),
                cure: "write 1 or more, or leave it out for one per core".to_owned(),
            });
        }
        Ok(())
    }

    /// The paths to use: the forced ones, else the cheapest this host has.
    pub(crate) fn choose(&self) -> Result<Chosen, Error> {
        let host = Host::here();
        let mut chosen = Chosen {
            streams: Choice {
                gathered: cheapest(Transport::Rtp, GATHERED, &host)
                    .expect("the reference has no needs"),
                image: cheapest(Transport::Rtp, IMAGED, &host).filter(|_| self.cache_bytes_max > 0),
            },
            download: cheapest(Transport::Tcp, DOWNLOADS, &host)
                .expect("the reference has no needs"),
        };
        let (mut stream, mut download) = (None, None);
        for name in &self.paths {
            let served = [Transport::Rtp, Transport::Tcp];
            let spec = served.iter().find_map(|&transport| paths::find(transport, name));
            let spec = spec.ok_or_else(|| unknown(name))?;
            (spec.probe)(&host).map_err(|unavailable| Error::Option {
                option: "--path",
                found: name.clone(),
                cure: unavailable.to_string(),
            })?;
            let slot = match spec.open {
                Open::Stream { .. } => &mut stream,
                Open::Download(_) => &mut download,
            };
            if slot.replace(spec).is_some_and(|other: &Spec| other.name != spec.name) {
                return Err(Error::Option {
                    option: "--path",
                    found: self.paths.join(", "),
                    cure: "force one path for streams and one for downloads at most".to_owned(),
                });
            }
        }
        if let Some(spec) = stream {
            chosen.streams = self.forced(spec, chosen.streams)?;
        }
        chosen.download = download.unwrap_or(chosen.download);
        Ok(chosen)
    }

    fn forced(&self, spec: &'static Spec, default: Choice) -> Result<Choice, Error> {
        match spec.open {
            Open::Stream { feed: Feed::Image, .. } if self.cache_bytes_max == 0 => {
                Err(Error::Option {
                    option: "--path",
                    found: spec.name.to_owned(),
                    cure: "it sends wire images, which --cache-size 0 forbids; write a size"
                        .to_owned(),
                })
            }
            Open::Stream { feed: Feed::Image, .. } => Ok(Choice { image: Some(spec), ..default }),
            _ => Ok(Choice { gathered: spec, image: None }),
        }
    }
}

/// The paths of a running server.
#[derive(Clone, Copy)]
pub(crate) struct Chosen {
    pub(crate) streams: Choice,
    pub(crate) download: &'static Spec,
}

/// The first of `names` that this host has.
fn cheapest(transport: Transport, names: &[&str], host: &Host) -> Option<&'static Spec> {
    let specs =
        names.iter().map(|name| paths::find(transport, name).expect("a member of the list"));
    specs.into_iter().find(|spec| match (spec.probe)(host) {
        Ok(()) => true,
        Err(unavailable) => {
            tracing::warn!("path {}: {unavailable}", spec.name);
            false
        }
    })
}

fn unknown(name: &str) -> Error {
    let known: Vec<_> = paths::PATHS.iter().map(|spec| spec.name).collect();
    Error::Option {
        option: "--path",
        found: name.to_owned(),
        cure: format!("write one of {}", known.join(", ")),
    }
}

/// By their bill (`pagewire lab paths`), the cheapest first and the reference last.
const GATHERED: &[&str] = &["mmap_gso", "mmap_writev", "read_writev"];
const IMAGED: &[&str] = &["wire_sendfile"];
const DOWNLOADS: &[&str] = &["sendfile", "read_write"];
/// Beyond this a burst would overflow the receivers' default socket buffers at common rates.
const BURST_MS_MAX: u128 = 200;
