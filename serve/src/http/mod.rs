// SPDX-License-Identifier: MIT OR Apache-2.0
//! http: requests of one connection, answered from the folder or the index.
//!
//! A body goes from page cache to socket by the download path ([`paths`]), in steps of at most
//! [`STEP_BYTES`], so that many downloads share the threads of the runtime. Before each step the
//! server checks that it is in memory (one byte every 64 KiB); if not, a thread that may block
//! fetches it. Costs, with `sendfile`: no copy, 18 system calls a mebibyte, 17 of them that check.
//!
//! [`crate::key_tokens`] admits each request before anything is opened. A sealed film consists of
//! ordinary files, except that its keys ([`crate::http::film_keys`]) may not be cached and its
//! playlists are revalidated each time: a film sealed again keeps its address.
//!
//! Sources: RFC 9110, RFC 9112; the protocol itself is in [`wire::http`]; RFC 8216 (HLS); the Fetch
//! standard §3.2 (CORS), for players in pages of other servers.
//! Does not do TLS (put a proxy before it), compression of files, or uploads.

mod channel_exports;
pub(crate) mod download_paths;
pub(crate) mod film_keys;
pub(crate) mod index;
pub(crate) mod runtime;
pub(crate) mod write_deadline;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use paths::{DownloadPath, MappedFile, SendError, SendStats};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::sleep;
use wire::http::{
    Entity, Limits, Method, Part, Request, RequestReader, Response, answer_method, error,
    file_etag, refusal, unstored,
};

use crate::config::Timeouts;
use crate::http::channel_exports::ChannelExport;
use crate::http::index::Body;
use crate::http::write_deadline::Allowance;
use crate::key_tokens::{Asked, Decision, Subject};
use crate::library::served_folder::{Denied, is_hidden};
use crate::limits::Refused;
use crate::listener::{close, read, write};
use crate::meter::Meters;
use crate::server_state::ServerState;

/// Returns the answer to a client that is refused before its first request.
pub(crate) fn connection_refusal(refused: Refused) -> Vec<u8> {
    let status = match refused {
        Refused::ConnectionsPerAddress => 429,
        _ => 503,
    };
    let response = refusal(status, refused.reason(), SystemTime::now());
    let response = retry_after(response, refused);
    let mut bytes = response.head;
    bytes.extend(response.parts.iter().flat_map(text));
    bytes
}

fn retry_after(response: Response, refused: Refused) -> Response {
    match refused.retry_after_s() {
        Some(seconds) => response.with_field("Retry-After", &seconds.to_string()),
        None => response,
    }
}

/// Serves one connection to its end.
pub(crate) async fn connection(mut stream: TcpStream, peer: SocketAddr, server: Arc<ServerState>) {
    let mut reader = RequestReader::new(Limits::default());
    let mut buffer = vec![0; READ_BYTES];
    let timeouts = server.config.timeouts;
    let mut began: Option<Instant> = None;
    let mut requests = 0_u64;
    let mut pace = server.limits.pace(peer.ip());
    loop {
        match reader.next() {
            Ok(Some(request)) => {
                (began, requests) = (None, requests + 1);
                // A client that copies a folder of small files is slowed down, never disconnected
                // for it.
                let wait = pace.as_mut().map(|pace| pace.request(server.now()));
                if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                    sleep(wait).await;
                }
                if !answer(&mut stream, &request, &server).await {
                    return close(stream).await;
                }
            }
            Ok(None) => {
                let wait = if reader.is_empty() {
                    if requests == 0 { timeouts.first_request } else { timeouts.idle_http }
                } else {
                    let first = *began.get_or_insert_with(Instant::now);
                    timeouts.request.saturating_sub(first.elapsed())
                };
                match read(&mut stream, &mut buffer, wait).await {
                    Ok(Some(count)) => reader.feed(&buffer[..count]),
                    Ok(None) => return,
                    Err(_) if reader.is_empty() => return,
                    Err(_) => {
                        Meters::count(&server.meters.requests_malformed);
                        let what = "the request was not whole in time";
                        send_whole(&mut stream, &refusal(408, what, SystemTime::now()), timeouts)
                            .await;
                        return close(stream).await;
                    }
                }
            }
            Err(malformed) => {
                Meters::count(&server.meters.requests_malformed);
                tracing::debug!("http {peer}: {malformed}");
                send_whole(&mut stream, &malformed.response(SystemTime::now()), timeouts).await;
                return close(stream).await;
            }
        }
    }
}

/// Sends an answer without a file; false when the peer does not accept it.
async fn send_whole(stream: &mut TcpStream, response: &Response, timeouts: Timeouts) -> bool {
    let mut bytes = response.head.clone();
    bytes.extend(response.parts.iter().flat_map(text));
    write(stream, &bytes, timeouts.write).await
}

/// Answers one request; false when the connection is to be closed.
async fn answer(stream: &mut TcpStream, request: &Request, server: &Arc<ServerState>) -> bool {
    let now = SystemTime::now();
    let (response, content) = match answer_method(request, now) {
        Some(answer) => (answer, Content::Text),
        None => resource(stream, request, server, now).await,
    };
    let response = with_origin(request, response, server);
    let is_text = response.parts.iter().all(|part| matches!(part, Part::Bytes(_)));
    let media = match content {
        Content::File(media) if !is_text => media,
        Content::Rows(body) if !is_text => {
            let sent = send_listing(stream, &response, &body, server.config.timeouts).await;
            return sent && response.keep_alive;
        }
        _ => {
            let sent = send_whole(stream, &response, server.config.timeouts).await;
            return sent && response.keep_alive;
        }
    };
    // Taken before the head is sent, which promises the file.
    let Some(mut path) = server.downloads.take() else {
        let spent = error(request, 503, "nothing to send it by is left", now);
        let sent = send_whole(stream, &spent, server.config.timeouts).await;
        return sent && spent.keep_alive;
    };
    // The head leaves with the first bytes of the file, and only full segments follow (tcp(7)). The
    // cork is only an optimization, so its result is ignored.
    let _ = SockRef::from(&*stream).set_tcp_cork(true);
    let sent = send_parts(stream, &response, &media, path.path(), server).await;
    let _ = SockRef::from(&*stream).set_tcp_cork(false);
    sent && response.keep_alive
}

/// Source of those parts of an answer that are not text.
enum Content {
    Text,
    File(Arc<MappedFile>),
    Rows(Body),
}

/// Resolves the path of a GET or HEAD for an admitted client.
async fn resource(
    stream: &TcpStream,
    request: &Request,
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
        let local = stream.local_addr().unwrap_or(server.config.http);
        let answer = match export.answer(server, local) {
            Ok((kind, text)) => unstored(request, 200, kind, text, now),
            Err(missing) => error(request, 404, &missing, now),
        };
        return (answer, Content::Text);
    }
    match subject {
        Subject::Index => {
            let local = stream.local_addr().unwrap_or(server.config.http);
            let (response, body) = server.index.answer(request, None, server, (local, now)).await;
            (response, body.map_or(Content::Text, Content::Rows))
        }
        Subject::Key { film, number } => {
            (key(film, number, request, server, now).await, Content::Text)
        }
        Subject::File(_) | Subject::Stream(_) => {
            let peer = stream.peer_addr().map_or(server.config.http.ip(), |peer| peer.ip());
            let local = stream.local_addr().unwrap_or(server.config.http);
            file(path, (peer, local), request, server, now).await
        }
    }
}

/// Returns the answer without a file: the index of a folder, the icon that browsers request, or the
/// reason of a refusal.
async fn without_file(
    denied: &Denied,
    local: SocketAddr,
    request: &Request,
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
                let answer = server.index.answer(request, Some(name), server, (local, now)).await;
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

/// Sends an answer with a file; false when the peer left or the file is shorter than promised.
async fn send_parts(
    stream: &mut TcpStream,
    response: &Response,
    media: &Arc<MappedFile>,
    path: &mut dyn DownloadPath,
    server: &ServerState,
) -> bool {
    let timeouts = server.config.timeouts.write;
    if !write(stream, &response.head, timeouts).await {
        return false;
    }
    for part in &response.parts {
        let sent = match part {
            Part::File { offset, bytes } => {
                send_file(stream, media, *offset, *bytes, path, server).await
            }
            part => write(stream, text(part), timeouts).await,
        };
        if !sent {
            return false;
        }
    }
    true
}

/// Returns the bytes of a part that is not a file.
fn text(part: &Part) -> &[u8] {
    match part {
        Part::Bytes(bytes) => bytes,
        Part::File { .. } => unreachable!("file parts come from an open file"),
        Part::Held { .. } => unreachable!("rows come from the index"),
    }
}

/// Sends a listing through a buffer; false when the peer does not accept it.
async fn send_listing(
    stream: &TcpStream,
    response: &Response,
    body: &Body,
    timeouts: Timeouts,
) -> bool {
    let mut allowance = Allowance::new(timeouts.write);
    // Head and pieces are sent in as few writes as the buffer allows.
    let mut filled = response.head.clone();
    filled.reserve_exact(ROWS_BYTES);
    for part in &response.parts {
        let pieces = match part {
            Part::Held { .. } => body.pieces(),
            part => Box::new(std::iter::once(text(part))),
        };
        for piece in pieces {
            if filled.len() + piece.len() > ROWS_BYTES {
                if !allowance.write(stream, &filled).await {
                    return false;
                }
                filled.clear();
            }
            // Long pieces are compressed rows: they are written without a copy.
            if piece.len() > ROWS_BYTES {
                if !allowance.write(stream, piece).await {
                    return false;
                }
            } else {
                filled.extend_from_slice(piece);
            }
        }
    }
    allowance.write(stream, &filled).await
}

async fn file(
    path: &str,
    (peer, local): (IpAddr, SocketAddr),
    request: &Request,
    server: &Arc<ServerState>,
    now: SystemTime,
) -> (Response, Content) {
    let plain = |status, text: &str| (error(request, status, text, now), Content::Text);
    let (folder, name) = (server.library.folder.clone(), path.to_owned());
    let opened = tokio::task::spawn_blocking(move || folder.file(&name)).await;
    let (file, metadata) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(denied)) => return without_file(&denied, local, request, server, now).await,
        Err(panic) => {
            tracing::error!("http {path}: {panic}");
            return plain(500, "internal error");
        }
    };
    if !server.limits.has_room_for_file(&file) {
        server.limits.refusals.note(Refused::Files, peer);
        let refused = error(request, 503, Refused::Files.reason(), now);
        return (retry_after(refused, Refused::Files), Content::Text);
    }
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let etag = file_etag(metadata.len(), modified, metadata.ino());
    let entity = Entity {
        bytes: metadata.len(),
        modified,
        etag: &etag,
        content_type: wire::http::content_type(path),
    };
    let boundary = crate::rtsp::stream_session::random_id();
    let mut response = wire::http::respond(request, &entity, now, &boundary);
    if entity.content_type == PLAYLIST && response.status < 400 {
        response = response.with_field("Cache-Control", "no-cache");
    }
    match MappedFile::open(file, path) {
        Ok(media) => (response, Content::File(Arc::new(media))),
        Err(error) => plain(500, &error.to_string()),
    }
}

/// Sends a range of the file; false when the peer left or the file was shortened.
async fn send_file(
    stream: &TcpStream,
    media: &Arc<MappedFile>,
    offset: u64,
    bytes: u64,
    path: &mut dyn DownloadPath,
    server: &ServerState,
) -> bool {
    let mut tally = SendStats::default();
    let mut allowance = Allowance::new(server.config.timeouts.write);
    let (mut at, end) = (offset, offset + bytes);
    let mut resident = at;
    let whole = loop {
        if at == end {
            break true;
        }
        if at >= resident {
            resident = (at + STEP_BYTES).min(end);
            fetch(media, at..resident).await;
        }
        let step = stream.try_io(Interest::WRITABLE, || {
            path.send(media, at, resident - at, stream.as_fd(), &mut tally).map_err(as_io)
        });
        match step {
            Ok(sent) => {
                at += sent;
                allowance.handed(sent);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if !allowance.writable(stream).await {
                    break false;
                }
            }
            Err(error) => {
                tracing::debug!("http download, byte {at}: {error}");
                break false;
            }
        }
        tokio::task::consume_budget().await;
    };
    *server.meters.downloads.lock().unwrap() += tally;
    whole
}

/// Loads the range into memory on a thread that may block, unless it is there.
async fn fetch(media: &Arc<MappedFile>, range: std::ops::Range<u64>) {
    if media.is_in_cache(range.clone()) {
        return;
    }
    let media = media.clone();
    let fetched = tokio::task::spawn_blocking(move || media.prefetch_unless(range, false)).await;
    if let Ok(Err(error)) = fetched {
        // The following send reports the error with its consequences.
        tracing::debug!("http download: {error}");
    }
}

fn as_io(error: SendError) -> std::io::Error {
    match error {
        SendError::Blocked => std::io::ErrorKind::WouldBlock.into(),
        other => std::io::Error::other(other.to_string()),
    }
}

/// Icon: a triangle, as on a play button.
const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 16 16\">\
    <path fill=\"#2a7\" d=\"M3 1l11 7-11 7z\"/></svg>";
const PLAYLIST: &str = "application/vnd.apple.mpegurl";
const READ_BYTES: usize = 4096;
/// Buffer of a listing: rows with addresses filled in, until they are written.
const ROWS_BYTES: usize = 16 << 10;
/// Bytes of a step: large enough that checking the page cache adds no measurable CPU cost.
const STEP_BYTES: u64 = 1 << 20;
