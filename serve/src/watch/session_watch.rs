// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks at each session's counters, and compares them with those of seconds before.
//!
//! A cause is shown for [`CAUSE_KEPT`] after it has applied, so that a client that reads the list
//! every few seconds sees short ones. Keeps two looks for each session, 400 bytes.
//!
//! Sources: RFC 3550 §6.4.1.
//! Does not hold sessions open.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use paths::TcpFigures;

use super::cause::{ClientFigures, SlowCause, TcpChange, cause_of};
use super::http_viewers::HttpViewer;
use super::session_row::{HTTP, HTTPS, LateMs, RTSP_MULTICAST, RTSP_TCP, RTSP_UDP};
use super::{SessionId, SessionRow};
use crate::play::LateBuckets;
use crate::rtsp::control::total;
use crate::rtsp::session_transport::SessionTransport;
use crate::rtsp::stream_session::{RtpStream, StreamSession};
use crate::server_state::ServerState;

/// Looks at all sessions.
#[derive(Default)]
pub(super) struct SessionWatch(HashMap<SessionId, Watched>);

/// Counters of one session at a moment.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: Instant,
    bytes: u64,
    late: LateBuckets,
    stalls: u64,
    refused: u64,
    tcp: Option<TcpFigures>,
}

impl Look {
    /// Returns the counters of a session that begins.
    fn first(at: Instant) -> Look {
        let late = LateBuckets::default();
        Look { at, bytes: 0, late, stalls: 0, refused: 0, tcp: None }
    }
}

/// A session between two looks.
struct Watched {
    before: Look,
    last: Look,
    /// Receiver reports so far, and the time at which they were seen to grow.
    reports: u64,
    reported: Option<Instant>,
    cause: (SlowCause, String),
    caused: Instant,
}

impl SessionWatch {
    /// Looks at all sessions, unless that has just been done.
    pub(super) fn look(&mut self, server: &ServerState, now: Instant) {
        let sessions = server.sessions.all();
        let viewers = server.watch.viewers.all();
        for session in &sessions {
            let id = SessionId::Rtsp(session.number);
            let streams = session.streams();
            let reports = streams.iter().map(|stream| stream.receiver_view().reports).sum();
            let watched = self.watched(id, session.began);
            watched.note_reports(reports, now);
            if watched.is_due(now) {
                let lost = watched.has_recent_report(now).then(|| lost_percent(&streams)).flatten();
                watched.take(look_at(session, &streams, now), lost);
            }
        }
        for viewer in &viewers {
            let watched = self.watched(SessionId::Http(viewer.number), viewer.began);
            if watched.is_due(now) {
                watched.take(look_at_viewer(viewer, now), None);
            }
        }
        if self.0.len() > sessions.len() + viewers.len() {
            let rtsp = sessions.iter().map(|session| SessionId::Rtsp(session.number));
            let http = viewers.iter().map(|viewer| SessionId::Http(viewer.number));
            let present: std::collections::HashSet<_> = rtsp.chain(http).collect();
            self.0.retain(|id, _| present.contains(id));
        }
    }

    fn watched(&mut self, id: SessionId, began: Instant) -> &mut Watched {
        let first = Look::first(began);
        self.0.entry(id).or_insert_with(|| Watched {
            before: first,
            last: first,
            reports: 0,
            reported: None,
            cause: Default::default(),
            caused: began,
        })
    }

    /// Returns a row for each session of the last look that still exists.
    pub(super) fn rows(&self, server: &ServerState) -> Vec<SessionRow> {
        let now = Instant::now();
        let epoch_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut rows = Vec::with_capacity(self.0.len());
        for session in server.sessions.all() {
            if let Some(watched) = self.0.get(&SessionId::Rtsp(session.number)) {
                rows.push(watched.rtsp_row(&session, now, epoch_s));
            }
        }
        for viewer in server.watch.viewers.all() {
            if let Some(watched) = self.0.get(&SessionId::Http(viewer.number)) {
                rows.push(watched.http_row(&viewer, now, epoch_s));
            }
        }
        rows.sort_by_key(|row| row.id);
        rows
    }
}

impl Watched {
    fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last.at) >= LOOK_MIN
    }

    fn note_reports(&mut self, reports: u64, now: Instant) {
        if reports != self.reports {
            (self.reports, self.reported) = (reports, Some(now));
        }
    }

    fn has_recent_report(&self, now: Instant) -> bool {
        self.reported.is_some_and(|at| now.saturating_duration_since(at) < REPORT_KEPT)
    }

    /// Stores a look, and finds the cause for the time since the preceding one.
    fn take(&mut self, look: Look, lost_percent: Option<f64>) {
        (self.before, self.last) = (self.last, look);
        let figures = ClientFigures {
            over: look.at.saturating_duration_since(self.before.at),
            lost_percent,
            tcp: self.tcp_change(),
            refused: look.refused.saturating_sub(self.before.refused),
            stalls: look.stalls.saturating_sub(self.before.stalls),
            late_p99_ms: look.late.since(&self.before.late).quantile_ms(0.99),
        };
        let cause = cause_of(&figures);
        let is_old = look.at.saturating_duration_since(self.caused) >= CAUSE_KEPT;
        if cause.0 != SlowCause::None || is_old {
            (self.cause, self.caused) = (cause, look.at);
        }
    }

    fn tcp_change(&self) -> Option<TcpChange> {
        let now = self.last.tcp?;
        let before = self.before.tcp.unwrap_or_default();
        Some(TcpChange {
            segments: now.segments.saturating_sub(before.segments),
            segments_again: now.segments_again.saturating_sub(before.segments_again),
            window_limited: now.window_limited.saturating_sub(before.window_limited),
            unsent_bytes: now.unsent_bytes,
            window_bytes: now.window_bytes,
        })
    }

    fn bits_per_s(&self) -> u64 {
        let over = self.last.at.saturating_duration_since(self.before.at).as_secs_f64();
        let bytes = self.last.bytes.saturating_sub(self.before.bytes);
        if over > 0.0 { (bytes as f64 * 8.0 / over) as u64 } else { 0 }
    }

    fn rtsp_row(&self, session: &StreamSession, now: Instant, epoch: Duration) -> SessionRow {
        let streams = session.streams();
        let progress = total(&streams);
        let age = now.saturating_duration_since(session.began);
        let views = || streams.iter().map(|stream| (stream.receiver_view(), stream.clock_rate_hz));
        let jitter = |(view, rate): (wire::rtcp::ReceiverView, u32)| {
            (view.reports > 0).then(|| f64::from(view.last.jitter) * 1e3 / f64::from(rate))
        };
        let is_tcp = self.last.tcp.is_some();
        let again = self.tcp_change().and_then(|change| change.again_percent());
        let reported = self.has_recent_report(now).then(|| lost_percent(&streams)).flatten();
        let round_trip = views().find_map(|(view, _)| view.round_trip);
        let round_trip = round_trip.or(self.last.tcp.map(|tcp| tcp.round_trip));
        SessionRow {
            id: SessionId::Rtsp(session.number),
            user: session.user.get().cloned(),
            address: session.peer_address().to_string(),
            protocol: match &session.first_stream().transport {
                SessionTransport::Udp(_) => RTSP_UDP,
                SessionTransport::Interleaved { .. } => RTSP_TCP,
                SessionTransport::Multicast { .. } => RTSP_MULTICAST,
            },
            asset: session.content.name().to_owned(),
            started_s: epoch.saturating_sub(age).as_secs(),
            duration_s: rounded(age.as_secs_f64()),
            bits_per_s: self.bits_per_s(),
            packets: progress.packets,
            bytes: progress.octets,
            late_ms: Some(LateMs {
                p50: progress.late.quantile_ms(0.5),
                p99: progress.late.quantile_ms(0.99),
                max: rounded(progress.late_max.as_secs_f64() * 1e3),
            }),
            lost_percent: if is_tcp { again } else { reported }.map(rounded),
            jitter_ms: views().filter_map(jitter).reduce(f64::max).map(rounded),
            round_trip_ms: round_trip.map(|time| rounded(time.as_secs_f64() * 1e3)),
            path: Some(progress.path).filter(|path| !path.is_empty()),
            cause: self.cause.0,
            cause_text: self.cause.1.clone(),
        }
    }

    fn http_row(&self, viewer: &HttpViewer, now: Instant, epoch: Duration) -> SessionRow {
        let age = now.saturating_duration_since(viewer.began);
        let again = self.tcp_change().and_then(|change| change.again_percent());
        SessionRow {
            id: SessionId::Http(viewer.number),
            user: viewer.user(),
            address: viewer.peer.to_string(),
            protocol: if viewer.is_tls { HTTPS } else { HTTP },
            asset: viewer.asset(),
            started_s: epoch.saturating_sub(age).as_secs(),
            duration_s: rounded(age.as_secs_f64()),
            bits_per_s: self.bits_per_s(),
            packets: 0,
            bytes: viewer.bytes(),
            late_ms: None,
            lost_percent: again.map(rounded),
            jitter_ms: None,
            round_trip_ms: self.last.tcp.map(|tcp| rounded(tcp.round_trip.as_secs_f64() * 1e3)),
            path: None,
            cause: self.cause.0,
            cause_text: self.cause.1.clone(),
        }
    }
}

fn look_at(session: &StreamSession, streams: &[Arc<RtpStream>], at: Instant) -> Look {
    let progress = total(streams);
    let tcp = match &session.first_stream().transport {
        SessionTransport::Interleaved { output, .. } => output.figures(),
        SessionTransport::Udp(_) | SessionTransport::Multicast { .. } => None,
    };
    Look {
        at,
        bytes: progress.octets,
        late: progress.late,
        stalls: progress.stalls,
        refused: if tcp.is_some() { 0 } else { progress.refused },
        tcp,
    }
}

fn look_at_viewer(viewer: &HttpViewer, at: Instant) -> Look {
    let (bytes, stalls, tcp) = (viewer.bytes(), viewer.stalls(), viewer.socket.figures());
    Look { bytes, stalls, tcp, ..Look::first(at) }
}

/// Returns the largest share of packets that a stream's receiver lost by its last report.
fn lost_percent(streams: &[Arc<RtpStream>]) -> Option<f64> {
    let lost = |stream: &Arc<RtpStream>| {
        let view = stream.receiver_view();
        (view.reports > 0).then(|| f64::from(view.last.fraction_lost) * 100.0 / 256.0)
    };
    streams.iter().filter_map(lost).reduce(f64::max)
}

/// Three decimals are enough for readers of JSON.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Shortest time between two looks that are compared.
const LOOK_MIN: Duration = Duration::from_millis(1500);
/// Receivers report every five seconds (RFC 3550 §6.2), at random within half as much.
const REPORT_KEPT: Duration = Duration::from_secs(15);
const CAUSE_KEPT: Duration = Duration::from_secs(10);
