// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a running server that all connections share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use clock::Clock;
use parking_lot::Mutex;

use crate::access_log::AccessLog;
use crate::admin::Admin;
use crate::admission::Admission;
use crate::channel::playout::Channels;
use crate::drain::Drain;
use crate::handover::OldSessions;
use crate::http::channel_lists::ChannelLists;
use crate::http::download_paths::Downloads;
use crate::http::film_keys::{FilmKeys, KeySource};
use crate::http::index::Index;
use crate::library::Library;
use crate::limits::Limiter;
use crate::limits::capacity::Capacity;
use crate::live_settings::{FixedSettings, LiveSettings};
use crate::meter::{Meters, ServerMetrics};
use crate::pacer::Pacers;
use crate::posters::Posters;
use crate::rtsp::media_ports::MediaPortPool;
use crate::rtsp::stream_session::StreamSessions;
use crate::rtsp::tunnels::Tunnels;
use crate::swapped::Swapped;
use crate::tls::TlsTerms;
use crate::watch::Watch;
use crate::web::WebAssets;
use crate::wire_image::WireImages;

/// The parts of a running server.
pub(crate) struct ServerState {
    pub(crate) config: FixedSettings,
    pub(crate) live: Swapped<LiveSettings>,
    pub(crate) rtsp: SocketAddr,
    pub(crate) http: SocketAddr,
    /// Address of RTSP over TLS, if it listens.
    pub(crate) rtsps: Option<SocketAddr>,
    pub(crate) admission: Admission,
    /// Keys of sealed films; `None` when this server has none.
    pub(crate) keys: Swapped<Option<FilmKeys>>,
    /// Source of `keys`.
    pub(crate) key_source: Swapped<Option<KeySource>>,
    pub(crate) library: Arc<Library>,
    pub(crate) sessions: StreamSessions,
    pub(crate) meters: Arc<Meters>,
    pub(crate) ports: MediaPortPool,
    pub(crate) pacers: Pacers,
    pub(crate) images: WireImages,
    pub(crate) index: Index,
    pub(crate) channel_lists: ChannelLists,
    pub(crate) web: WebAssets,
    pub(crate) posters: Posters,
    pub(crate) downloads: Downloads,
    /// Paths for many ranges of a file.
    pub(crate) range_downloads: Downloads,
    /// Paths for connections that the kernel encrypts.
    pub(crate) kernel_tls_downloads: Downloads,
    /// Clock of all that its sessions and channels do.
    pub(crate) clock: Clock,
    pub(crate) began: Instant,
    /// Start of the server, in seconds since the Unix epoch.
    pub(crate) started_s: u64,
    pub(crate) limits: Arc<Limiter>,
    pub(crate) capacity: Capacity,
    pub(crate) drain: Drain,
    /// Sessions of the server before this one, which plays on.
    pub(crate) old_sessions: Option<OldSessions>,
    pub(crate) next_connection: AtomicU64,
    pub(crate) tunnels: Arc<Tunnels>,
    pub(crate) channels: Mutex<Channels>,
    pub(crate) watch: Watch,
    pub(crate) access_log: Option<AccessLog>,
    /// State of the administrator's listener; `None` where it does not listen.
    pub(crate) admin: Option<Admin>,
    /// Certificate and terms of HTTPS and RTSPS; `None` when neither listens.
    pub(crate) tls: Option<Arc<TlsTerms>>,
}

impl ServerState {
    /// Time since the server began, the clock of all state machines.
    pub(crate) fn now(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.began)
    }

    pub(crate) fn report(&self) -> ServerMetrics {
        let refusals = self.limits.refusals.counts();
        let sessions = (self.sessions.len(), self.sessions.interleaved());
        self.meters.report(sessions, self.limits.connections(), refusals)
    }
}
