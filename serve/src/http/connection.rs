// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of one HTTP/1 connection, plain or TLS, answered one after the other.
//!
//! Sources: RFC 9112 §9.3 (persistence), §9.3.2 (pipelining), §9.6 (closing).
//! Does not resolve paths ([`crate::http::resource`]).

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use wire::http::{Limits, Request, RequestReader, Response, refusal};

use crate::http::client::Client;
use crate::http::client_stream::{ClientStream, Deadline, Received, receive};
use crate::http::content::Content;
use crate::http::download_pace::{ConnectionPace, DownloadPace};
use crate::http::event_loops::LoopPlace;
use crate::http::http2::serve_http2;
use crate::http::refusals::retry_after;
use crate::http::resource::answer_unless;
use crate::http::transmit::{PlainTarget, text, transmit, transmit_text};
use crate::http::transmit_encrypted::transmit_encrypted;
use crate::http::watched::{AnsweredRequest, note_file};
use crate::limits::Refused;
use crate::meter::Meters;
use crate::server_state::ServerState;
use crate::tls::{self, TlsUse};
use crate::turn::behind_others;
use crate::watch::ViewerGuard;

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

/// Serves one connection to its end.
pub(crate) async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    server: Arc<ServerState>,
    place: LoopPlace,
) {
    let client = client(&stream, peer, &server, &place, false);
    serve_http1(ClientStream::Plain(stream), client, &server).await;
}

/// Serves one TLS connection to its end: HTTP/2 if the client has chosen it, else HTTP/1.
pub(crate) async fn tls_connection(
    stream: TcpStream,
    peer: SocketAddr,
    server: Arc<ServerState>,
    place: LoopPlace,
) {
    let client = client(&stream, peer, &server, &place, true);
    let terms = server.tls.as_ref().expect("a listener of HTTPS has terms");
    let wait = server.config.timeouts.first_request;
    // On the heap: a handshake takes more memory than the connection afterwards.
    let shaken = Box::pin(tls::accept(stream, terms, TlsUse::Https, wait)).await;
    let mut stream = match shaken {
        Ok(stream) => stream,
        Err(failure) => return tracing::debug!("https {peer}: {failure}"),
    };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        stream.get_mut().0.read_freely();
        return Box::pin(serve_http2(stream, client, &server)).await;
    }
    match ClientStream::encrypted(stream, terms) {
        Ok(stream) => serve_http1(stream, client, &server).await,
        Err(error) => tracing::warn!("https {peer}: handing its keys to the kernel: {error}"),
    }
}

fn client(
    stream: &TcpStream,
    peer: SocketAddr,
    server: &ServerState,
    place: &LoopPlace,
    is_tls: bool,
) -> Client {
    // An answer's last segment must not wait for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let local = stream.local_addr().unwrap_or(server.config.http);
    let (files, turns) = (place.files().clone(), place.turns().clone());
    let pace = Arc::<ConnectionPace>::default();
    let viewer = server.watch.viewers.connected(peer, is_tls, Some(stream.as_fd()));
    Client { peer, local, files, turns, received: 0, is_tls, pace, viewer, known: None }
}

async fn serve_http1(mut stream: ClientStream, mut client: Client, server: &Arc<ServerState>) {
    let watched = ViewerGuard(client.viewer.clone());
    let is_to_close = serve(&mut stream, &mut client, server).await;
    // Before the socket is closed.
    drop(watched);
    if is_to_close {
        stream.close(server.config.timeouts.write).await;
    }
}

/// Serves requests; true when the connection is to be closed after its last answer, false when the
/// peer has left.
async fn serve(stream: &mut ClientStream, client: &mut Client, server: &Arc<ServerState>) -> bool {
    let mut reader = RequestReader::new(Limits::default());
    if server.access_log.is_some() {
        reader = reader.with_details();
    }
    let mut deadline = Deadline::new();
    let timeouts = server.config.timeouts;
    let mut until = Instant::now() + timeouts.first_request;
    let mut in_a_row = 0;
    let mut pace = server.limits.pace(client.peer.ip());
    loop {
        match reader.next() {
            Ok(Some(mut request)) => {
                // The client's next request goes to the successor.
                request.keep_alive &= !server.drain.is_begun();
                // A client that copies a folder of small files is slowed down, never disconnected
                // for it.
                let wait = pace.as_mut().map(|pace| pace.request(server.now()));
                if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                    sleep(wait).await;
                }
                client.known = server.admission.request_credentials();
                match serve_request(stream, &request, client, server).await {
                    Answered::Whole { keep_alive: true } => {}
                    Answered::Whole { keep_alive: false } => return true,
                    // A peer that has just been too slow gets no second allowance.
                    Answered::InPart => return !stream.is_in_kernel(),
                }
                in_a_row += 1;
                if in_a_row == IN_A_ROW_MAX {
                    in_a_row = 0;
                    yield_now().await;
                }
                if reader.is_empty() {
                    until = Instant::now() + timeouts.idle_http;
                } else {
                    until = Instant::now() + timeouts.request;
                }
            }
            Ok(None) => {
                let was_empty = reader.is_empty();
                in_a_row = 0;
                match receive(stream, &mut reader, &mut deadline, until).await {
                    Received::Bytes => {
                        client.received = client.files.tick();
                        if was_empty {
                            until = Instant::now() + timeouts.request;
                        }
                        // The other connections of this turn receive first: one read of events
                        // serves all.
                        behind_others().await;
                    }
                    // Each side of TLS ends with an alert of its own (RFC 8446 §6.1).
                    Received::Closed => return stream.is_encrypted(),
                    Received::TimedOut if was_empty => return stream.is_encrypted(),
                    Received::TimedOut => {
                        Meters::count(&server.meters.requests_malformed);
                        let what = "the request was not whole in time";
                        let late = refusal(408, what, SystemTime::now());
                        transmit_refusal(stream, late, (server, client)).await;
                        return true;
                    }
                }
            }
            Err(malformed) => {
                Meters::count(&server.meters.requests_malformed);
                tracing::debug!("http {}: {malformed}", client.peer);
                let answer = malformed.response(SystemTime::now());
                transmit_refusal(stream, answer, (server, client)).await;
                return true;
            }
        }
    }
}

/// Result of a request.
enum Answered {
    Whole {
        keep_alive: bool,
    },
    /// The peer did not accept all of it, or the file was shorter than promised.
    InPart,
}

/// Answers one request.
async fn serve_request(
    stream: &mut ClientStream,
    request: &Request,
    client: &Client,
    server: &Arc<ServerState>,
) -> Answered {
    let answered = answer_unless(stream.hung_up(), request, client, server).await;
    let Some((mut response, content)) = answered else { return Answered::InPart };
    let mut keep_alive = response.keep_alive;
    let answered = AnsweredRequest::new(client, (request, "HTTP/1.1"), response.status, server);
    note_file(client, request, &response);
    let bytes_total = response.bytes_total() - response.head.len() as u64;
    let is_long = response.parts.len() > LONG_PARTS || bytes_total > LONG_BYTES;
    let pace = client.pace.begin(client.peer.ip(), (request, &response, &content), server);
    let mut pace = pace.watched_by(&client.viewer);
    let sent = match stream {
        ClientStream::Plain(stream) => {
            let (downloads, ranges) = (&server.downloads, &server.range_downloads);
            let turns = &client.turns;
            let target = PlainTarget { stream, downloads, ranges, turns, is_encrypted: false };
            transmit(&target, request, response, content, &mut pace, server).await
        }
        ClientStream::Tls(stream) => {
            let turns = &client.turns;
            transmit_encrypted(stream, response, content, &mut pace, (server, turns)).await
        }
        ClientStream::KernelTls(stream) => {
            keep_alive &= stream.may_send(&mut response);
            let (stream, downloads) = (stream.tcp(), &server.kernel_tls_downloads);
            let (ranges, turns) = (downloads, &client.turns);
            let target = PlainTarget { stream, downloads, ranges, turns, is_encrypted: true };
            transmit(&target, request, response, content, &mut pace, server).await
        }
    };
    let bytes = pace.counted(sent.then_some(bytes_total));
    answered.finish(bytes, server);
    pace.end(stream.socket());
    if is_long {
        yield_now().await;
    }
    if sent { Answered::Whole { keep_alive } } else { Answered::InPart }
}

/// Sends an answer to a request that could not be read.
async fn transmit_refusal(
    stream: &mut ClientStream,
    refusal: Response,
    (server, client): (&ServerState, &Client),
) {
    match stream {
        ClientStream::Plain(stream) => {
            transmit_text(stream, &refusal, server.config.timeouts).await;
        }
        ClientStream::Tls(stream) => {
            let mut pace = DownloadPace::default();
            let turns = &client.turns;
            transmit_encrypted(stream, refusal, Content::Text, &mut pace, (server, turns)).await;
        }
        ClientStream::KernelTls(stream) => {
            transmit_text(stream.tcp(), &refusal, server.config.timeouts).await;
        }
    }
}

/// Parts of an answer after which other connections get a turn: each part costs some microseconds.
const LONG_PARTS: usize = 8;
/// Bytes of an answer with the same effect: pipelined requests for long answers fill the socket.
const LONG_BYTES: u64 = 256 << 10;
/// Pipelined requests that are answered before other connections have a turn.
const IN_A_ROW_MAX: u32 = 16;
