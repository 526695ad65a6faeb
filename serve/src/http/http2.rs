// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves the streams of one HTTP/2 connection, behind TLS.
//!
//! The `h2` crate implements the protocol: frames, HPACK, flow control, and limits against floods
//! of resets, pings and settings. Each stream is a task of the connection's loop, which finds its
//! answer as HTTP/1 does and sends the body in pieces, each read when the client's windows have
//! room for it and one of the connection's [`PIECES_MAX`] is free. Texts (playlists, subtitles) are
//! made when the connection's [`TEXT_BYTES_MAX`] have room for them. So a connection holds 256 KiB
//! and these texts at most, or one longer text, however many streams it has. A stream that accepts
//! nothing in time is reset; a connection without streams is closed as an idle one of HTTP/1 is.
//! [`crate::http::frame_budget`] bounds frames that request nothing and those that touch all
//! streams; a client that sends more is notified (`ENHANCE_YOUR_CALM`).
//!
//! Costs, beside those of TLS, a frame header of 9 bytes and a task switch a piece.
//!
//! Sources: RFC 9113; §5.1.2 (concurrency), §6.9 (flow control), §8.3 (fields), §10.5 (floods).
//! Does not push (RFC 9113 §8.4, which browsers have removed), order streams by priority, or speak
//! HTTP/2 without TLS (browsers do not).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use paths::SendStats;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use wire::http::{Part, Request, RequestDetails, Response, http2_request};

use crate::http::body_reader::{BodyReader, NotRead};
use crate::http::client::Client;
use crate::http::content::Content;
use crate::http::download_pace::DownloadPace;
use crate::http::frame_budget::{Budget, Budgeted};
use crate::http::long_turns::LongTurns;
use crate::http::resource::answer_unless;
use crate::http::watched::{AnsweredRequest, note_file};
use crate::meter::Meters;
use crate::server_state::ServerState;
use crate::tls::ClientTls;
use crate::watch::ViewerGuard;
use crate::write_deadline::RATE_MIN;

/// Serves one connection to its end.
pub(super) async fn serve_http2(stream: ClientTls, client: Client, server: &Arc<ServerState>) {
    let timeouts = server.config.timeouts;
    let budget: Arc<Budget> = Arc::default();
    let stream = Budgeted::new(stream, budget.clone());
    let shaken = timeout(timeouts.first_request, settings().handshake::<_, Bytes>(stream)).await;
    let mut connection = match shaken {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return tracing::debug!("http2 {}: {error}", client.peer),
        Err(_) => return,
    };
    // Dropped before the connection, whose socket it shows.
    let _watched = ViewerGuard(client.viewer.clone());
    let mut streams = JoinSet::new();
    let room = Room {
        pieces: Arc::new(Semaphore::new(PIECES_MAX)),
        texts: Arc::new(Semaphore::new(TEXT_BYTES_MAX as usize)),
    };
    let mut pace = server.limits.pace(client.peer.ip());
    let mut idle_until = Instant::now() + timeouts.first_request;
    let mut accept_at = Instant::now();
    let mut drained = pin!(server.drain.begun());
    let mut is_drained = false;
    loop {
        // A client that resets its streams at once frees their places in the protocol before their
        // tasks have ended: these are counted here. Requests faster than the limit are accepted
        // later, as those of HTTP/1 are read later.
        let is_open = streams.len() < STREAMS_MAX as usize && accept_at <= Instant::now();
        let accepted = poll_fn(|context| {
            let polled = match is_open {
                true => connection.poll_accept(context),
                false => connection.poll_closed(context).map(|closed| closed.err().map(Err)),
            };
            if polled.is_pending() && budget.is_exhausted() { Poll::Ready(None) } else { polled }
        });
        tokio::select! {
            accepted = accepted => match accepted {
                Some(Ok((request, respond))) => {
                    budget.request();
                    let wait = pace.as_mut().map_or(Duration::ZERO, |p| p.request(server.now()));
                    accept_at = Instant::now() + wait;
                    let mut client = client.clone();
                    client.received = client.files.tick();
                    client.known = server.admission.request_credentials();
                    let (server, room) = (server.clone(), room.clone());
                    streams.spawn(async move {
                        serve_stream(request, respond, &client, &server, &room).await;
                    });
                }
                Some(Err(error)) => {
                    tracing::debug!("http2 {}: {error}", client.peer);
                    if error.is_library() {
                        Meters::count(&server.meters.requests_malformed);
                    }
                    return;
                }
                None if budget.is_exhausted() => break,
                None => return,
            },
            Some(ended) = streams.join_next() => {
                idle_until = Instant::now() + timeouts.idle_http;
                if let Err(error) = ended
                    && error.is_panic()
                {
                    tracing::error!("a stream's task panicked: {error}");
                }
            }
            // The client's next request goes to the successor; requests in transit are answered.
            () = &mut drained, if !is_drained => {
                is_drained = true;
                connection.graceful_shutdown();
            }
            () = sleep_until(accept_at), if !is_open && accept_at > Instant::now() => {}
            () = sleep_until(idle_until), if streams.is_empty() => break,
        }
    }
    if budget.is_exhausted() {
        tracing::debug!("http2 {}: more frames than its requests warrant", client.peer);
        Meters::count(&server.meters.requests_malformed);
        connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
    } else {
        // GOAWAY tells the sender of a request in transit that it was not served.
        connection.graceful_shutdown();
    }
    let _ = timeout(LINGER, poll_fn(|context| connection.poll_closed(context))).await;
}

fn settings() -> h2::server::Builder {
    let mut settings = h2::server::Builder::new();
    settings
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .max_send_buffer_size(PIECE_BYTES)
        // Content of requests is dropped unread: no resource accepts any.
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    settings
}

/// Room of a connection, which its streams share: pieces on their way, bytes of texts made.
#[derive(Clone)]
struct Room {
    pieces: Arc<Semaphore>,
    texts: Arc<Semaphore>,
}

impl Room {
    /// Reserves room for the texts of an answer; the error is their bytes, where there is no room
    /// now.
    fn take(&self, response: &Response) -> Result<OwnedSemaphorePermit, u32> {
        let text = |part: &Part| if let Part::Bytes(text) = part { text.len() } else { 0 };
        let bytes = response.parts.iter().map(text).sum::<usize>() as u64;
        let bytes = bytes.min(TEXT_BYTES_MAX) as u32;
        self.texts.clone().try_acquire_many_owned(bytes).map_err(|_| bytes)
    }
}

/// Answers the request of a stream.
async fn serve_stream(
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    client: &Client,
    server: &Arc<ServerState>,
    room: &Room,
) {
    let (request, content) = request.into_parts();
    let drained = timeout(server.config.timeouts.request, drain(content)).await;
    match drained.unwrap_or(Err(Reason::CANCEL)) {
        Ok(()) => {}
        Err(reason) => {
            Meters::count(&server.meters.requests_malformed);
            let too_large = http::Response::builder().status(413).body(());
            return match too_large {
                // The stream is reset behind the answer.
                Ok(head) if reason == Reason::NO_ERROR => drop(respond.send_response(head, true)),
                _ => respond.send_reset(reason),
            };
        }
    }
    let fields = || request.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let uri = &request.uri;
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    let authority = uri.authority().map(|authority| authority.as_str());
    let read = http2_request(request.method.as_str(), path, authority, fields());
    // Held until the body has left.
    let mut text_share = None;
    let mut answered_request = None;
    let (response, content, pace) = match read {
        Ok(mut request) => {
            if server.access_log.is_some() {
                request.details = Some(Box::new(RequestDetails::of(fields())));
            }
            let answered = answer_in(room, &request, &mut respond, client, server).await;
            let Some((response, content, share)) = answered else { return };
            text_share = Some(share);
            let peer = client.peer.ip();
            let pace = client.pace.begin(peer, (&request, &response, &content), server);
            let pace = pace.watched_by(&client.viewer);
            note_file(client, &request, &response);
            let named = (&request, "HTTP/2.0");
            answered_request = Some(AnsweredRequest::new(client, named, response.status, server));
            (response, content, pace)
        }
        Err(malformed) => {
            Meters::count(&server.meters.requests_malformed);
            tracing::debug!("http2 {}: {malformed}", client.peer);
            (malformed.response(SystemTime::now()), Content::Text, DownloadPace::default())
        }
    };
    let Some(head) = head(&response) else {
        tracing::error!("http2: an answer that HTTP/2 cannot express");
        return respond.send_reset(Reason::INTERNAL_ERROR);
    };
    let body = BodyReader::new(response.parts, content);
    let mut pace = pace;
    match respond.send_response(head, body.left() == 0) {
        Ok(send) if body.left() > 0 => {
            send_body(send, body, &mut pace, server, (&room.pieces, &client.turns)).await;
        }
        Ok(_) => {}
        Err(error) => tracing::debug!("http2 {}: {error}", client.peer),
    }
    if let Some(answered) = answered_request {
        answered.finish(pace.counted(None), server);
    }
    drop(text_share);
}

/// Answers a request once the connection has room for the texts of the answer; `None` for a stream
/// that was reset, by either side.
async fn answer_in(
    room: &Room,
    request: &Request,
    respond: &mut SendResponse<Bytes>,
    client: &Client,
    server: &Arc<ServerState>,
) -> Option<(Response, Content, OwnedSemaphorePermit)> {
    let hung_up = poll_fn(|context| respond.poll_reset(context).map(drop));
    let (response, content) = answer_unless(hung_up, request, client, server).await?;
    let bytes = match room.take(&response) {
        Ok(share) => return Some((response, content, share)),
        Err(bytes) => bytes,
    };
    // The answer is made again when others have left.
    drop((response, content));
    let left = room.texts.clone().acquire_many_owned(bytes);
    let share = tokio::select! {
        share = timeout(server.config.timeouts.write, left) => share.ok().and_then(Result::ok),
        _ = poll_fn(|context| respond.poll_reset(context)) => return None,
    };
    let Some(share) = share else {
        respond.send_reset(Reason::REFUSED_STREAM);
        return None;
    };
    let hung_up = poll_fn(|context| respond.poll_reset(context).map(drop));
    let (response, content) = answer_unless(hung_up, request, client, server).await?;
    Some((response, content, share))
}

/// Reads the content of a request to its end and drops it, as no resource accepts any: only then is
/// the request known to be well formed (RFC 9113 §8.1.1).
async fn drain(mut content: RecvStream) -> Result<(), Reason> {
    let mut bytes = 0;
    while let Some(data) = content.data().await {
        let data = data.map_err(|error| error.reason().unwrap_or(Reason::PROTOCOL_ERROR))?;
        bytes += data.len();
        // The answer does not wait for the rest (RFC 9113 §8.1).
        if bytes > CONTENT_BYTES_MAX {
            return Err(Reason::NO_ERROR);
        }
        let _ = content.flow_control().release_capacity(data.len());
    }
    let trailers = content.trailers().await;
    trailers.map_err(|error| error.reason().unwrap_or(Reason::PROTOCOL_ERROR))?;
    Ok(())
}

/// Returns status and fields of an answer.
fn head(response: &Response) -> Option<http::Response<()>> {
    let mut head = http::Response::builder().status(response.status);
    for (name, value) in response.fields() {
        head = head.header(name, value);
    }
    head.body(()).ok()
}

/// Bytes that wait for the connection; their permit returns when they have left.
struct Piece {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Sends a body as fast as the client accepts it; resets the stream of a client that is gone or too
/// slow.
async fn send_body(
    mut send: SendStream<Bytes>,
    mut body: BodyReader,
    pace: &mut DownloadPace<'_>,
    server: &ServerState,
    (pieces, turns): (&Arc<Semaphore>, &LongTurns),
) {
    let mut stats = SendStats::default();
    let wait = server.config.timeouts.write;
    let mut until = Instant::now() + wait;
    let (mut in_turn, mut may_leave) = (0, 0);
    while body.left() > 0 {
        if may_leave == 0 {
            // A cancelled stream returns its turn at once.
            let (turn, waited) = tokio::select! {
                biased;
                turn = pace.turn(body.left(), None) => turn,
                _ = poll_fn(|context| send.poll_reset(context)) => break,
            };
            until += waited;
            may_leave = turn;
        }
        let wanted = body.left().min(may_leave).min(PIECE_BYTES as u64) as usize;
        send.reserve_capacity(wanted);
        let Some(granted) = capacity(&mut send, until).await else {
            send.send_reset(Reason::CANCEL);
            break;
        };
        let Ok(Ok(permit)) = timeout_at(until, pieces.clone().acquire_owned()).await else {
            send.send_reset(Reason::CANCEL);
            break;
        };
        let mut bytes = vec![0; granted.min(wanted)];
        let filled = match body.fill(&mut bytes) {
            Ok(filled) => filled,
            Err(NotRead::NotInMemory) => {
                body.fetch().await;
                continue;
            }
            Err(NotRead::Failed(error)) => {
                tracing::debug!("http2 download: {error}");
                send.send_reset(Reason::INTERNAL_ERROR);
                break;
            }
        };
        bytes.truncate(filled);
        body.advance(filled);
        let piece = Bytes::from_owner(Piece { bytes, _permit: permit });
        if send.send_data(piece, body.left() == 0).is_err() {
            break;
        }
        pace.sent(filled as u64);
        may_leave -= filled as u64;
        stats.bytes += filled as u64;
        stats.calls += 1;
        // As for HTTP/1 ([`crate::write_deadline`]): progress earns time, up to twice the
        // wait.
        let earned = Duration::from_millis(filled as u64 * 1000 / RATE_MIN);
        until = (until + earned).min(Instant::now() + 2 * wait);
        in_turn += filled;
        if in_turn >= TURN_BYTES {
            in_turn = 0;
            turns.next().await;
        }
    }
    stats.copied_bytes = 3 * stats.bytes;
    *server.meters.downloads.lock() += stats;
}

/// Waits for room to send; `None` when the peer has closed the stream, the connection has ended, or
/// time has run out.
async fn capacity(send: &mut SendStream<Bytes>, until: Instant) -> Option<usize> {
    loop {
        // Only what is granted from now on is reported below.
        if send.capacity() > 0 {
            return Some(send.capacity());
        }
        tokio::select! {
            biased;
            granted = poll_fn(|context| send.poll_capacity(context)) => granted?.ok()?,
            () = sleep_until(until) => return None,
        };
    }
}

/// Streams of a connection, as many as RFC 9113 §6.5.2 advises at least.
pub(super) const STREAMS_MAX: u32 = 100;
/// As much of a head as HTTP/1 accepts.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// As much content of a request as HTTP/1 reads.
const CONTENT_BYTES_MAX: usize = 64 << 10;
/// A frame that fits one TLS record with its header.
const PIECE_BYTES: usize = (16 << 10) - 9;
/// Pieces of all streams of a connection: unread ones occupy 256 KiB.
const PIECES_MAX: usize = 16;
/// Bytes of texts that a connection's streams hold at a time: some ten playlists of a long film.
const TEXT_BYTES_MAX: u64 = 2 << 20;
/// Content of requests on its way; the least that a client may assume (RFC 9113 §6.9.2).
const WINDOW_BYTES: u32 = 65_535;
/// Bytes of a stream after which others have their turn.
const TURN_BYTES: usize = 256 << 10;
/// Time for a client to see the end.
const LINGER: Duration = Duration::from_millis(500);
