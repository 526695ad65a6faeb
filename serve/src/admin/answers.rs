// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations of the administrator's API.
//!
//! Operations that examine each session run on threads that may block.
//!
//! Sources: `docs/openapi.json`.
//! Does not authenticate the client ([`super::answer`] does).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::json;
use tokio::task::spawn_blocking;
use wire::http::{Request, Response, unstored};

use super::exposition::TextFormat;
use super::login::{Attempt, COOKIE, TOKEN_LASTS};
use super::routes::{Operation, ROUTES};
use super::trace_files::{TraceFormat, parameter};
use super::{DESCRIPTION, json, metrics, readiness, refused};
use crate::http::administered;
use crate::pacer::allowed_cores;
use crate::rtsp::control;
use crate::server_state::ServerState;
use crate::watch::{SessionId, history};

/// Returns the answer of an operation; `id` is the part of the path that names a session.
pub(super) async fn answer(
    request: &Request,
    (operation, id): (Operation, &str),
    peer: SocketAddr,
    server: &Arc<ServerState>,
) -> Response {
    match operation {
        Operation::Page => page(request),
        Operation::Health => text(request, 200, "text/plain; charset=utf-8", "ok\n".into()),
        Operation::Readiness => ready(request, server).await,
        Operation::Metrics => scraped(request, server).await,
        Operation::Description => text(request, 200, "application/json", DESCRIPTION.into()),
        Operation::Login => log_in(request, peer, server).await,
        Operation::Logout => log_out(request, server),
        Operation::Status => status(request, server),
        Operation::Sessions => {
            let server = server.clone();
            let rows = spawn_blocking(move || server.watch.rows(&server)).await;
            json(request, 200, &json!({ "sessions": rows.unwrap_or_default() }))
        }
        Operation::EndSession => end_session(request, id, peer, server),
        Operation::Trace => trace(request, id, server).await,
        Operation::History => {
            let samples = server.watch.history();
            let interval_s = history::INTERVAL.as_secs();
            json(request, 200, &json!({ "interval_s": interval_s, "samples": samples }))
        }
        Operation::Channels => {
            text(request, 200, "application/json", administered::channels(server))
        }
        Operation::Assets => administered::assets(request, peer, server).await,
        Operation::Reload => reload(request, server).await,
    }
}

/// Returns the page or a file of it, which are public and contain no data of the server; a client
/// that is no browser receives the list of addresses in place of the page.
pub(super) fn page(request: &Request) -> Response {
    if request.path == "/" && !request.accepts_html {
        let rows: String = ROUTES
            .iter()
            .map(|route| format!("{:<7}{:<28}{}\n", route.method, route.path, route.summary))
            .collect();
        let about = format!("pagewire {}\n\n{rows}", env!("CARGO_PKG_VERSION"));
        return text(request, 200, "text/plain; charset=utf-8", about.into_bytes());
    }
    let page = crate::http::page::admin(request, SystemTime::now());
    page.unwrap_or_else(|| refused(request, 404, "no such address; / lists them"))
}

fn text(request: &Request, status: u16, kind: &str, body: Vec<u8>) -> Response {
    unstored(request, status, kind, body, SystemTime::now())
}

async fn ready(request: &Request, server: &Arc<ServerState>) -> Response {
    let faults = faults(server).await;
    let status = if faults.is_empty() { 200 } else { 503 };
    json(request, status, &json!({ "ready": faults.is_empty(), "faults": faults }))
}

async fn faults(server: &Arc<ServerState>) -> Vec<String> {
    let listeners = server.admin.as_ref().and_then(|admin| admin.listeners.get());
    readiness::faults(server, listeners.map_or(&[], Vec::as_slice)).await
}

async fn scraped(request: &Request, server: &Arc<ServerState>) -> Response {
    let accept = request.details.as_ref().and_then(|details| details.accept.as_deref());
    let format = TextFormat::wanted(accept);
    let is_ready = faults(server).await.is_empty();
    let server = server.clone();
    match spawn_blocking(move || metrics::text(&server, format, is_ready)).await {
        Ok(metrics) => text(request, 200, format.content_type(), metrics.into_bytes()),
        Err(error) => {
            tracing::error!("metrics: {error}");
            refused(request, 500, "internal error")
        }
    }
}

/// Content of a login.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Credentials {
    user: String,
    password: String,
}

async fn log_in(request: &Request, peer: SocketAddr, server: &ServerState) -> Response {
    let Some(admin) = &server.admin else { return refused(request, 404, "no such address") };
    if !admin.logins.is_needed() {
        return json(request, 200, &json!({ "user": null }));
    }
    let content = request.details.as_ref().map_or(&[][..], |details| &details.content);
    let Ok(Credentials { user, password }) = serde_json::from_slice(content) else {
        let reason = "a login is {\"user\": \"…\", \"password\": \"…\"}, with a Content-Length";
        return refused(request, 400, reason);
    };
    match admin.logins.attempt(&user, &password, peer.ip()).await {
        Attempt::Token(token) => {
            tracing::info!("admin {peer}: {user:?} has logged in");
            let lasts_s = TOKEN_LASTS.as_secs();
            let cookie =
                format!("{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={lasts_s}");
            json(request, 200, &json!({ "user": user })).with_field("Set-Cookie", &cookie)
        }
        Attempt::Wrong => {
            tracing::warn!("admin {peer}: a login with a wrong user or password");
            refused(request, 401, "wrong user or password")
        }
        Attempt::NotAllowed => {
            tracing::warn!("admin {peer}: {user:?} is no administrator");
            refused(request, 403, "this user is no administrator")
        }
        Attempt::NoAdministrators => {
            let reason = "no user is an administrator: write a rule with the verb admin";
            refused(request, 403, reason)
        }
        Attempt::TooSoon { retry_after_s } => {
            let refused = refused(request, 429, "too soon after a wrong login; wait");
            refused.with_field("Retry-After", &retry_after_s.to_string())
        }
    }
}

fn log_out(request: &Request, server: &ServerState) -> Response {
    let cookie = request.details.as_ref().and_then(|details| details.cookie(COOKIE));
    if let (Some(admin), Some(token)) = (&server.admin, cookie) {
        admin.logins.log_out(token);
    }
    let cookie = format!("{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
    json(request, 200, &json!({ "user": null })).with_field("Set-Cookie", &cookie)
}

/// Version, load and what is left. Capacity follows from processor time: what all cores could send
/// at the cost that the last samples had.
fn status(request: &Request, server: &ServerState) -> Response {
    let report = server.report();
    let history = server.watch.history();
    let last = history.last();
    let cost = history.iter().rev().find_map(|sample| sample.cpu_s_per_gb);
    let cores = allowed_cores().len();
    let capacity = cost.filter(|&cost| cost > 0.0).map(|cost| cores as f64 / cost * 8e9);
    let cpu_percent = last.map(|sample| sample.cpu_percent);
    let left = cpu_percent.map(|cpu| (100.0 - cpu / cores as f64).clamp(0.0, 100.0));
    let admin = server.admin.as_ref();
    let value = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "started_s": server.started_s,
        "uptime_s": server.now().as_secs(),
        "has_users": admin.is_some_and(|admin| admin.logins.is_needed()),
        "sessions": report.sessions,
        "http_viewers": server.watch.viewers.all().len(),
        "connections": report.connections,
        "cores": cores,
        "cpu_percent": cpu_percent,
        "cpu_s_per_gb": cost,
        "bits_per_s": last.map(|sample| sample.bits_per_s),
        "capacity_bits_per_s": capacity.map(|capacity| capacity as u64),
        "capacity_left_percent": left,
        "memory_bytes": report.memory_bytes,
        "access_log_lines_lost": server.access_log.as_ref().map(|log| log.dropped()),
    });
    json(request, 200, &value)
}

fn end_session(
    request: &Request,
    id: &str,
    peer: SocketAddr,
    server: &Arc<ServerState>,
) -> Response {
    let has_ended = match SessionId::parse(id) {
        Some(SessionId::Rtsp(number)) => server.sessions.by_number(number).is_some_and(|session| {
            control::end(server, &session, "ended by an administrator");
            true
        }),
        Some(SessionId::Http(number)) => {
            let viewer = server.watch.viewers.by_number(number);
            viewer.is_some_and(|viewer| viewer.socket.shut_down())
        }
        None => false,
    };
    if !has_ended {
        return refused(request, 404, "no such session; it has ended");
    }
    tracing::info!("admin {peer}: session {id} is ended");
    json(request, 200, &json!({ "ended": id }))
}

async fn trace(request: &Request, id: &str, server: &Arc<ServerState>) -> Response {
    let session = match SessionId::parse(id) {
        Some(SessionId::Rtsp(number)) => server.sessions.by_number(number),
        Some(SessionId::Http(_)) => {
            return refused(
                request,
                409,
                "HTTP has no packets with due times; trace an RTSP session",
            );
        }
        None => None,
    };
    let Some(session) = session else { return refused(request, 404, "no such session") };
    let query = request.query.as_deref();
    let seconds = parameter(query, "seconds").unwrap_or("10").parse().ok();
    let Some(seconds) = seconds.filter(|seconds| (1..=TRACE_S_MAX).contains(seconds)) else {
        return refused(request, 400, &format!("seconds: write 1 to {TRACE_S_MAX}"));
    };
    let format = TraceFormat::parse(parameter(query, "format").unwrap_or("perfetto"));
    let Some(format) = format else {
        return refused(request, 400, "format: write perfetto or csv");
    };
    let Some(pacer) = session.pacer.clone() else {
        return refused(request, 409, "a multicast session has no packets of its own");
    };
    // The lock is not held over the wait: the session may end meanwhile.
    drop(session);
    let Some(Ok(_place)) = server.admin.as_ref().map(|admin| admin.traces.try_acquire()) else {
        let refused = refused(request, 503, "as many traces as there may be are under way");
        return refused.with_field("Retry-After", "10");
    };
    match pacer.trace(Duration::from_secs(seconds)).await {
        Some(traced) => {
            let name = id.to_owned();
            let file = spawn_blocking(move || format.file(&name, &traced)).await;
            text(request, 200, format.content_type(), file.unwrap_or_default())
        }
        None => refused(request, 404, "the session has ended"),
    }
}

async fn reload(request: &Request, server: &Arc<ServerState>) -> Response {
    let is_set = server.admin.as_ref().is_some_and(|admin| admin.reload.get().is_some());
    if !is_set {
        return refused(request, 501, "this server was started without a file to read again");
    }
    let server = server.clone();
    let read = spawn_blocking(move || {
        let reload = server.admin.as_ref().and_then(|admin| admin.reload.get());
        reload.map(|reload| reload())
    });
    match read.await {
        Ok(Some(Ok(outcome))) => json(request, 200, &outcome),
        Ok(Some(Err(faults))) => refused(request, 422, &faults),
        Ok(None) | Err(_) => refused(request, 500, "internal error"),
    }
}

/// Longest trace.
const TRACE_S_MAX: u64 = 60;
