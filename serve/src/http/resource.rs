// SPDX-License-Identifier: MIT OR Apache-2.0
//! resource: finds the answer to a request: a file, the index, a key, a channel's export.
//!
//! [`crate::key_tokens`] admits each request before anything is opened. A sealed film consists of
//! ordinary files, except that its keys ([`crate::http::film_keys`]) may not be cached and its
//! playlists are revalidated each time: a film sealed again keeps its address.
//!
//! Sources: RFC 9110, RFC 8216 (HLS), the Fetch standard §3.2 (CORS).
//! Does not send ([`crate::http::transmit`]).

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use wire::http::{Method, Request, Response, answer_method, error, respond, unstored};

use crate::http::channel_exports::ChannelExport;
use crate::http::download_pace::ConnectionPace;
use crate::http::film_keys;
use crate::http::index::Body;
use crate::http::open_files::{NotOpened, OpenFile, OpenFiles};
use crate::key_tokens::{Asked, Decision, Subject};
use crate::library::served_folder::{Denied, is_hidden};
use crate::limits::Refused;
use crate::server_state::ServerState;

/// Client of a connection.
#[derive(Clone)]
pub(crate) struct Client {
    pub(super) peer: SocketAddr,
    /// Address of this server that the client has connected to.
    pub(super) local: SocketAddr,
    /// Open files of the connection's loop.
    pub(super) files: Arc<OpenFiles>,
    /// Tick of the last receipt of bytes.
    pub(super) received: u64,
    pub(super) is_tls: bool,
    /// Pace of the connection's downloads.
    pub(super) pace: Arc<ConnectionPace>,
}

impl Client {
    /// Returns the scheme of the addresses by which the client knows this server.
    pub(super) fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }
}

/// Source of those parts of an answer that are not text.
pub(super) enum Content {
    Text,
    File(Arc<OpenFile>),
    Rows(Body),
}

/// Returns the answer to a request.
pub(super) async fn answer(
    request: &Request,
    client: &Client,
    server: &Arc<ServerState>,
) -> (Response, Content) {
    let now = SystemTime::now();
    let (response, content) = match answer_method(request, now) {
        Some(answer) => (answer, Content::Text),
        None => resource(request, client, server, now).await,
    };
    (with_origin(request, response, server), content)
}

/// Adds the time after which a refused client may try again.
pub(super) fn retry_after(response: Response, refused: Refused) -> Response {
    match refused.retry_after_s() {
        Some(seconds) => response.with_field("Retry-After", &seconds.to_string()),
        None => response,
    }
}

/// Resolves the path of a GET or HEAD for an admitted client.
async fn resource(
    request: &Request,
    client: &Client,
    server: &Arc<ServerState>,
    now: SystemTime,
) -> (Response, Content) {
    let path = request.path.as_str();
    let has_keys = server.keys.is_some() && path.starts_with(film_keys::PREFIX);
    let subject = match film_keys::named(path).filter(|_| has_keys) {
        Some((film, number)) => Subject::Key { film, number },
        None if has_keys => return (error(request, 404, "no such key", now), Content::Text),
        // Every spelling of the top-level path names the served folder.
        None if path == "/index.json" || components(path).next().is_none() => Subject::Index,
        None => Subject::File(path),
    };
    let (credentials, query) = (request.credentials.as_ref(), request.query.as_deref());
    match server.admission.decide(&Asked { subject, credentials, query }) {
        Decision::Admitted => {}
        Decision::TokenNeeded { is_wrong } => {
            let challenge = if is_wrong {
                "Bearer realm=\"keys\", error=\"invalid_token\""
            } else {
                "Bearer realm=\"keys\""
            };
            let refused = error(request, 401, "a token is needed", now);
            return (refused.with_field("WWW-Authenticate", challenge), Content::Text);
        }
    }
    if let Some(export) = ChannelExport::named(path).filter(|_| !server.config.channels.is_empty())
    {
        let answer = match export.answer(server, client) {
            Ok((kind, text)) => unstored(request, 200, kind, text, now),
            Err(missing) => error(request, 404, &missing, now),
        };
        return (answer, Content::Text);
    }
    match subject {
        Subject::Index => {
            let at = (client, now);
            let (response, body) = server.index.answer(request, None, server, at).await;
            (response, body.map_or(Content::Text, Content::Rows))
        }
        Subject::Key { film, number } => {
            (key(film, number, request, server, now).await, Content::Text)
        }
        Subject::File(_) | Subject::Stream(_) => file(path, request, client, server, now).await,
    }
}

/// Returns the answer without a file: the index of a folder, the icon that browsers request, or the
/// reason of a refusal.
async fn without_file(
    denied: &Denied,
    request: &Request,
    client: &Client,
    server: &Arc<ServerState>,
    now: SystemTime,
) -> (Response, Content) {
    let path = request.path.as_str();
    let status = match denied {
        Denied::Missing if path == "/favicon.ico" => {
            let icon = ICON.as_bytes().to_vec();
            return (unstored(request, 200, "image/svg+xml", icon, now), Content::Text);
        }
        // A path with a trailing slash names no file.
        Denied::Missing | Denied::NotAFile
            if matches!(denied, Denied::NotAFile) || path.ends_with('/') =>
        {
            let parts: Vec<&str> = components(path).collect();
            let folder = parts.join("/");
            let library = server.library.clone();
            let name = folder.clone() + "/";
            let is_served = !parts.iter().any(|part| is_hidden(part));
            // A folder without listed files is opened: it may be empty, or a link.
            let open = move || library.folder.subfolder(&folder).is_ok();
            let is_folder = is_served
                && (server.library.has_below(&name)
                    || tokio::task::spawn_blocking(open).await.unwrap_or(false));
            if is_folder {
                let at = (client, now);
                let answer = server.index.answer(request, Some(name), server, at).await;
                return (answer.0, answer.1.map_or(Content::Text, Content::Rows));
            }
            404
        }
        Denied::Missing | Denied::NotAFile => 404,
        Denied::Outside | Denied::Unreadable => 403,
        Denied::DescriptorsExhausted => 503,
        Denied::Host(_) => 500,
    };
    if status >= 500 {
        tracing::warn!("http {path}: {denied}");
    }
    (error(request, status, &denied.to_string(), now), Content::Text)
}

async fn file(
    path: &str,
    request: &Request,
    client: &Client,
    server: &Arc<ServerState>,
    now: SystemTime,
) -> (Response, Content) {
    let is_reserved = |file: &_| !server.limits.has_room_for_file(file);
    let name = plain_name(path);
    let found =
        client.files.find(&name, client.received, &server.library.folder, is_reserved).await;
    let file = match found {
        Ok(file) => file,
        Err(NotOpened::Denied(denied)) => {
            return without_file(&denied, request, client, server, now).await;
        }
        Err(NotOpened::Reserved) => {
            server.limits.refusals.note(Refused::Files, client.peer.ip());
            let refused = error(request, 503, Refused::Files.reason(), now);
            return (retry_after(refused, Refused::Files), Content::Text);
        }
        Err(NotOpened::Failed(reason)) => {
            tracing::error!("http {path}: {reason}");
            return (error(request, 500, "internal error", now), Content::Text);
        }
    };
    let entity = file.entity();
    let mut response = respond(request, &entity, now, crate::rtsp::stream_session::random_id);
    if entity.content_type == PLAYLIST && response.status < 400 {
        response = response.with_field("Cache-Control", "no-cache");
    }
    (response, Content::File(file))
}

/// Returns the path in its shortest spelling, so that a file has one name: empty parts and `.` are
/// left out. A path with a trailing slash names no file and stays as it is.
fn plain_name(path: &str) -> Cow<'_, str> {
    let is_plain = !path.contains("//") && !path.contains("/.");
    if is_plain || path.ends_with('/') || path.ends_with("/.") {
        return Cow::Borrowed(path);
    }
    Cow::Owned(components(path).collect::<Vec<_>>().join("/"))
}

/// Splits a path into names.
fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !matches!(*part, "" | "."))
}

async fn key(
    film: &str,
    number: u64,
    request: &Request,
    server: &Arc<ServerState>,
    now: SystemTime,
) -> Response {
    let (keys, film) = (server.keys.clone(), film.to_owned());
    let found = tokio::task::spawn_blocking(move || keys?.key(&film, number)).await;
    match found {
        Ok(Some(key)) => unstored(request, 200, "application/octet-stream", key.to_vec(), now),
        Ok(None) => error(request, 404, "no such key", now),
        Err(panic) => {
            tracing::error!("http key: {panic}");
            error(request, 500, "internal error", now)
        }
    }
}

/// Adds the CORS headers that let a page of another server read the answer.
fn with_origin(request: &Request, response: Response, server: &ServerState) -> Response {
    let Some(origin) = &server.config.allow_origin else { return response };
    let response = response.with_field("Access-Control-Allow-Origin", origin);
    if request.method == Method::Options {
        return response
            .with_field("Access-Control-Allow-Methods", "GET, HEAD")
            .with_field("Access-Control-Allow-Headers", "Authorization, Range")
            .with_field("Access-Control-Max-Age", "86400");
    }
    response.with_field("Access-Control-Expose-Headers", "Content-Range, ETag")
}

/// Icon: a triangle, as on a play button.
const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 16 16\">\
    <path fill=\"#2a7\" d=\"M3 1l11 7-11 7z\"/></svg>";
const PLAYLIST: &str = "application/vnd.apple.mpegurl";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_name() {
        for (path, name) in [
            ("/a/b", "/a/b"),
            ("//a/./b", "a/b"),
            ("/././a//b", "a/b"),
            ("/a/../b", "a/../b"),
            ("/a//b/", "/a//b/"),
            ("/a/b/.", "/a/b/."),
            ("/.a", ".a"),
        ] {
            assert_eq!(plain_name(path), name, "{path}");
        }
    }
}
