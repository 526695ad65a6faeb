// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every connection of a running server shares.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crate::admission::Admission;
use crate::config::Config;
use crate::downloads::Downloads;
use crate::image::Images;
use crate::index::Index;
use crate::keys::Keys;
use crate::library::Library;
use crate::limits::Limiter;
use crate::meter::{Meters, Report};
use crate::pacer::Pacers;
use crate::ports::Ports;
use crate::session::Sessions;

/// The parts of a running server.
pub(crate) struct Site {
    pub(crate) config: Config,
    pub(crate) rtsp: SocketAddr,
    pub(crate) admission: Admission,
    /// Keys of sealed films, if this server has them.
    pub(crate) keys: Option<Arc<Keys>>,
    pub(crate) library: Arc<Library>,
    pub(crate) sessions: Sessions,
    pub(crate) meters: Arc<Meters>,
    pub(crate) ports: Ports,
    pub(crate) pacers: Pacers,
    pub(crate) images: Images,
    pub(crate) index: Index,
    pub(crate) downloads: Downloads,
    pub(crate) began: Instant,
    pub(crate) limits: Arc<Limiter>,
    pub(crate) next_connection: AtomicU64,
}

impl Site {
    /// Time since the server began: the clock of all state machines.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn report(&self) -> Report {
        let refusals = self.limits.refusals.counts();
        self.meters.report(self.sessions.len(), self.limits.connections(), refusals)
    }
}
