// SPDX-License-Identifier: MIT OR Apache-2.0
//! Observation of a running server for its administrator: sessions with the cause where one is
//! slow, the last hour, traces of packets.
//!
//! Pacers and connections count for themselves; this module reads the counts and compares them with
//! those of some seconds before: every [`history::INTERVAL`], and every two seconds while an
//! administrator polls. Costs about a microsecond a session and look, and a `getsockopt` for one
//! over TCP; without an administrator's listener it costs only the counts themselves.
//!
//! Does not answer requests ([`crate::admin`] does).

mod cause;
pub(crate) mod history;
mod http_viewers;
mod session_row;
mod session_watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wire::rtcp::ReceptionReport;

pub(crate) use cause::CAUSES;
pub(crate) use history::HistorySample;
use history::{History, ServerTotals};
pub(crate) use http_viewers::{HttpViewer, HttpViewers, ViewerGuard};
pub(crate) use session_row::{PROTOCOLS, SessionId, SessionRow};
use session_watch::SessionWatch;

use crate::server_state::ServerState;

/// State of the watching.
pub(crate) struct Watch {
    pub(crate) viewers: Arc<HttpViewers>,
    /// Packets expected and lost, by reports of receivers.
    expected: AtomicU64,
    lost: AtomicU64,
    history: Mutex<History>,
    sessions: Mutex<SessionWatch>,
    /// Time of the last request for sessions.
    asked: Mutex<Option<Instant>>,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch {
            viewers: HttpViewers::new(),
            expected: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            history: Mutex::new(History::new()),
            sessions: Mutex::default(),
            asked: Mutex::new(None),
        }
    }

    /// Adds the difference between two successive reports of a receiver.
    pub(crate) fn reported(&self, before: &ReceptionReport, now: &ReceptionReport) {
        let expected = now.highest_sequence.wrapping_sub(before.highest_sequence);
        // More than a receiver can be sent between two reports is a forged or a first one.
        if expected > REPORTED_MAX {
            return;
        }
        let lost = now.lost.saturating_sub(before.lost).clamp(0, expected.cast_signed());
        self.expected.fetch_add(expected.into(), Ordering::Relaxed);
        self.lost.fetch_add(u64::from(lost.unsigned_abs()), Ordering::Relaxed);
    }

    /// Returns packets expected and lost, by reports of receivers.
    pub(crate) fn reports(&self) -> (u64, u64) {
        (self.expected.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }

    /// Returns a row for each session, now.
    pub(crate) fn rows(&self, server: &ServerState) -> Vec<SessionRow> {
        *self.asked.lock() = Some(Instant::now());
        let mut sessions = self.sessions.lock();
        sessions.look(server, Instant::now());
        sessions.rows(server)
    }

    pub(crate) fn history(&self) -> Vec<HistorySample> {
        self.history.lock().samples()
    }

    fn is_asked(&self) -> bool {
        self.asked.lock().is_some_and(|asked| asked.elapsed() < ASKED)
    }
}

/// Keeps history and figures of sessions up to date until it is aborted.
pub(crate) async fn keep_watch(server: Arc<ServerState>) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut sampled: Option<Instant> = None;
    loop {
        looks.tick().await;
        let now = Instant::now();
        // An early tick by some milliseconds counts.
        let is_due = |at: Instant| now.duration_since(at) + LOOK_EVERY / 2 >= history::INTERVAL;
        let is_sample = sampled.is_none_or(is_due);
        if is_sample {
            sampled = Some(now);
            server.watch.history.lock().add(now, totals(&server));
        }
        if is_sample || server.watch.is_asked() {
            let server = server.clone();
            let look = move || server.watch.sessions.lock().look(&server, Instant::now());
            // Thousands of sessions take milliseconds, which RTSP should not wait for.
            let _ = tokio::task::spawn_blocking(look).await;
        }
    }
}

fn totals(server: &ServerState) -> ServerTotals {
    let counters = server.meters.pacer_counters();
    ServerTotals {
        bytes: counters.stats.bytes + server.watch.viewers.bytes(),
        sessions: server.sessions.len() + server.watch.viewers.all().len(),
        connections: server.limits.connections(),
        late_us: counters.late_us,
        reported: server.watch.reports(),
    }
}

/// Interval of looks while an administrator polls.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Time after a request for which an administrator counts as polling.
const ASKED: Duration = Duration::from_secs(30);
/// Ten seconds of a gigabit a second in packets of 1328 bytes.
const REPORTED_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_between_reports_add_up() {
        let watch = Watch::new();
        let report = |highest_sequence, lost| ReceptionReport {
            highest_sequence,
            lost,
            ..ReceptionReport::default()
        };
        watch.reported(&report(1000, 3), &report(1200, 13));
        watch.reported(&report(u32::MAX, 13), &report(99, 12));
        // The first report of a receiver that began at a high number.
        watch.reported(&report(0, 0), &report(4_000_000_000, 9));
        assert_eq!(watch.reports(), (300, 10));
    }
}
