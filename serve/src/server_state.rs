// SPDX-License-Identifier: MIT OR Apache-2.0
//! server_state: the parts of a running server that all connections share.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::channel::playout::Channels;
use crate::config::Config;
use crate::http::download_paths::Downloads;
use crate::http::film_keys::FilmKeys;
use crate::http::index::Index;
use crate::key_tokens::Admission;
use crate::library::Library;
use crate::limits::Limiter;
use crate::meter::{Meters, ServerMetrics};
use crate::pacer::Pacers;
use crate::rtsp::media_ports::MediaPortPool;
use crate::rtsp::stream_session::StreamSessions;
use crate::rtsp::tunnels::Tunnels;
use crate::tls::TlsTerms;
use crate::wire_image::WireImages;

/// The parts of a running server.
pub(crate) struct ServerState {
    pub(crate) config: Config,
    pub(crate) rtsp: SocketAddr,
    /// Address of RTSP over TLS, if it listens.
    pub(crate) rtsps: Option<SocketAddr>,
    pub(crate) admission: Admission,
    /// Keys of sealed films; `None` when this server has none.
    pub(crate) keys: Option<Arc<FilmKeys>>,
    pub(crate) library: Arc<Library>,
    pub(crate) sessions: StreamSessions,
    pub(crate) meters: Arc<Meters>,
    pub(crate) ports: MediaPortPool,
    pub(crate) pacers: Pacers,
    pub(crate) images: WireImages,
    pub(crate) index: Index,
    pub(crate) downloads: Downloads,
    /// Paths for connections that the kernel encrypts.
    pub(crate) kernel_tls_downloads: Downloads,
    pub(crate) began: Instant,
    /// Start of the server, in seconds since the Unix epoch.
    pub(crate) started_s: u64,
    pub(crate) limits: Arc<Limiter>,
    pub(crate) next_connection: AtomicU64,
    pub(crate) tunnels: Arc<Tunnels>,
    pub(crate) channels: Mutex<Channels>,
    /// Certificate and terms of HTTPS and RTSPS; `None` when neither listens.
    pub(crate) tls: Option<Arc<TlsTerms>>,
}

impl ServerState {
    /// Time since the server began, the clock of all state machines.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn report(&self) -> ServerMetrics {
        let refusals = self.limits.refusals.counts();
        let sessions = (self.sessions.len(), self.sessions.interleaved());
        self.meters.report(sessions, self.limits.connections(), refusals)
    }
}
