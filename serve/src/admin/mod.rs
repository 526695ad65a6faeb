// SPDX-License-Identifier: MIT OR Apache-2.0
//! The administrator's listener: health, metrics, a JSON API and the page that uses it.
//!
//! The listener serves HTTP/1.1 with the reader and the responses of the served files
//! ([`wire::http`]), on the control side's threads: a scrape or a list of sessions delays no
//! download. Requests that other sites make are refused first ([`request_guard`]), then [`routes`]
//! finds the operation; all but health and metrics need a login if there are users ([`login`]).
//!
//! Sources: RFC 9110, RFC 9112; W3C CSP 3.
//! Does not speak TLS: bind it to loopback, or put a proxy in front.

mod admin_state;
mod answers;
mod exposition;
mod login;
mod metrics;
mod readiness;
mod request_guard;
mod routes;
mod trace_files;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout_at;
use wire::http::{Limits, Part, Request, RequestReader, Response, refusal, unstored};

pub(crate) use admin_state::Admin;
pub use admin_state::ReloadOutcome;
use login::COOKIE;
use routes::{Found, find};

use crate::listener::close;
use crate::rtsp::rtsp_input::read_some;
use crate::server_state::ServerState;
use crate::write_deadline::Allowance;

/// Serves connections until it is aborted, which also aborts them, or until a successor accepts in
/// its place and they have ended.
pub(crate) async fn serve(listener: TcpListener, server: Arc<ServerState>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut served = JoinSet::new();
    let draining = server.clone();
    let mut drained = pin!(draining.drain.begun());
    let mut listener = Some(listener);
    loop {
        let Some(open) = &listener else {
            if served.join_next().await.is_none() {
                return;
            }
            continue;
        };
        tokio::select! {
            () = &mut drained => listener = None,
            accepted = open.accept() => match accepted {
                Ok((stream, peer)) => match places.clone().try_acquire_owned() {
                    Ok(place) => {
                        let server = server.clone();
                        served.spawn(async move {
                            connection(stream, peer, server).await;
                            drop(place);
                        });
                    }
                    // Only administrators, or programs on their host, hold such connections.
                    Err(_) => drop(stream),
                },
                Err(error) => {
                    tracing::debug!("admin: accept: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(ended) = served.join_next() => {
                if let Err(error) = ended
                    && error.is_panic()
                {
                    tracing::error!("an administrator's connection panicked: {error}");
                }
            }
        }
    }
}

/// Serves one connection to its end.
async fn connection(stream: TcpStream, peer: SocketAddr, server: Arc<ServerState>) {
    let _ = stream.set_nodelay(true);
    let timeouts = server.config.timeouts;
    let limits = Limits { body_bytes_max: CONTENT_BYTES_MAX, ..Limits::default() };
    let mut reader = RequestReader::new(limits).with_content();
    let mut buffer = [0; READ_BYTES];
    // Of the request under way, or of its absence.
    let deadline = |wait| tokio::time::Instant::now() + wait;
    let mut until = deadline(timeouts.idle_http);
    loop {
        let response = match reader.next() {
            Ok(Some(mut request)) => {
                request.keep_alive &= !server.drain.is_begun();
                hardened(answer(&request, peer, &server).await)
            }
            Ok(None) => {
                let was_empty = reader.is_empty();
                match timeout_at(until, read_some(&stream, &mut buffer)).await {
                    Ok(bytes @ 1..) => {
                        reader.feed(&buffer[..bytes]);
                        if was_empty {
                            until = deadline(timeouts.request);
                        }
                        continue;
                    }
                    Ok(0) => return,
                    Err(_) if was_empty => return,
                    Err(_) => refusal(408, "the request was not whole in time", SystemTime::now()),
                }
            }
            Err(malformed) => malformed.response(SystemTime::now()),
        };
        if !send(&stream, &response, timeouts.write).await {
            return;
        }
        if !response.keep_alive {
            return close(stream).await;
        }
        until = deadline(if reader.is_empty() { timeouts.idle_http } else { timeouts.request });
    }
}

/// Sends an answer; false if the peer does not accept it.
async fn send(stream: &TcpStream, response: &Response, wait: Duration) -> bool {
    let mut bytes = response.head.clone();
    for part in &response.parts {
        if let Part::Bytes(text) = part {
            bytes.extend_from_slice(text);
        }
    }
    Allowance::new(wait).write(stream, &bytes).await
}

/// Adds the fields that keep a browser from doing what the page does not need.
fn hardened(response: Response) -> Response {
    response
        .with_field("Content-Security-Policy", POLICY)
        .with_field("X-Frame-Options", "DENY")
        .with_field("Referrer-Policy", "no-referrer")
        .with_field("Cross-Origin-Resource-Policy", "same-origin")
        .with_field("Cross-Origin-Opener-Policy", "same-origin")
}

/// Returns the answer to a request.
async fn answer(request: &Request, peer: SocketAddr, server: &Arc<ServerState>) -> Response {
    let admin = server.admin.as_ref().expect("its listener is configured");
    if let Err((status, reason)) = request_guard::check(request, &admin.hosts) {
        tracing::debug!("admin {peer}: {reason}");
        return refused(request, status, &reason);
    }
    let (route, id) = match find(&request.method, &request.path) {
        Found::Route(route, id) => (route, id),
        Found::OtherMethod(allow) => {
            let refused = refused(request, 405, "this address has other methods");
            return refused.with_field("Allow", &allow);
        }
        Found::Missing => return answers::page(request),
    };
    if route.is_closed && admin.logins.is_needed() {
        let cookie = request.details.as_ref().and_then(|details| details.cookie(COOKIE));
        let user = cookie.and_then(|token| admin.logins.user(token, Instant::now()));
        if user.is_none() {
            return refused(request, 401, "log in first: POST /v1/login");
        }
    }
    answers::answer(request, (route.operation, id), peer, server).await
}

/// Returns an answer in JSON, which no cache may keep.
fn json(request: &Request, status: u16, value: &impl Serialize) -> Response {
    let text = serde_json::to_vec(value).expect("figures and texts are JSON");
    unstored(request, status, "application/json", text, SystemTime::now())
}

/// Returns a refusal.
fn refused(request: &Request, status: u16, reason: &str) -> Response {
    json(request, status, &serde_json::json!({ "error": reason }))
}

/// Description of the API, served as it stands.
const DESCRIPTION: &str = include_str!("../../../docs/openapi.json");
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; \
    frame-ancestors 'none'";
/// Browsers of several administrators, scrapers, scripts.
const CONNECTIONS_MAX: usize = 64;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A login is the longest content.
const CONTENT_BYTES_MAX: u64 = 16 << 10;
const READ_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::{Config, Server};

    /// A peer that sends a byte of its request each second.
    #[tokio::test]
    async fn a_request_has_one_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::new(folder.path().to_owned());
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        (config.rtsp, config.http, config.admin) = (any, any, Some(any));
        let most = config.timeouts.request.as_secs();
        let server = Server::start(config).await.unwrap();
        let stream = TcpStream::connect(server.admin().unwrap()).await.unwrap();
        let (mut answer, mut request) = stream.into_split();
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let dripping = tokio::spawn(async move {
            request.write_all(b"GET /v1/sessions HTTP/1.1\r\nX: ").await.unwrap();
            while request.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let mut text = [0; 12];
        answer.read_exact(&mut text).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&text), "HTTP/1.1 408");
        assert_eq!(began.elapsed().as_secs(), most);
        dripping.abort();
        tokio::time::resume();
        server.stop().await;
    }
}
