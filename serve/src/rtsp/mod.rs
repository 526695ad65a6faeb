// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes the requests of one RTSP connection.
//!
//! The protocol itself (syntax and permitted order of requests) is in [`wire::rtsp`]. This module
//! maps a DESCRIBE to a library look-up, a SETUP ([`setup`]) to a transport and an entry in a
//! pacer, and a PLAY to a position in the packet plan. A client that tunnels RTSP over HTTP
//! ([`tunnels`]) has two TCP connections, which serve as one RTSP connection. Requests of a
//! connection are processed one after the other, so responses keep their order. A request over a
//! limit on clients ([`crate::limits`]) is refused with the reason as text, and requests above the
//! permitted rate are delayed. The same applies to interleaved frames and to reads that complete no
//! request (RTCP, frames of unknown channels, blank lines, requests in small fragments). One turn
//! of a connection's task processes one request or one read of at most [`READ_BYTES`], regardless
//! of the bytes that the peer sends.
//!
//! Sources: RFC 2326.
//! A PLAY with a range while playing is queued behind pieces that the client plays one after the
//! other (§10.5, [`play_queue`]). Behind any other play it is a seek, as players without PAUSE
//! expect.
//! Does not play a list of ranges in one request.

mod channel_lookup;
pub(crate) mod control;
mod describe;
pub(crate) mod media_ports;
mod pending_play;
mod play;
mod play_change;
mod play_queue;
mod play_range;
mod play_span;
#[cfg(test)]
pub(crate) mod player;
mod resume_position;
pub(crate) mod rtsp_input;
pub(crate) mod session_transport;
mod setup;
pub(crate) mod stream_session;
pub(crate) mod tls_relay;
pub(crate) mod tunnels;
mod wanted_play;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use access::{AccessVerdict, Grant, counted_as};
use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use wire::rtsp::tunnel::{TunnelHalf, begins_tunnel, tunnel_opened, tunnel_refused};
use wire::rtsp::{
    Command, ControlChannel, InterleavedFrame, Limits, Received, Request, RequestReader, Response,
    Status,
};

use crate::admission::{Asked, Subject};
use crate::library::NoAsset;
use crate::library::asset::LibraryAsset;
use crate::library::formats;
use crate::library::served_folder::Denied;
use crate::limits::{InputPace, Refused};
use crate::listener::{close_shared, write};
use crate::meter::Meters;
use crate::play::RtspOutput;
use crate::rtsp::pending_play::PendingPlay;
use crate::rtsp::rtsp_input::{NoInput, RtspInput, TunnelInput, read_some};
use crate::rtsp::session_transport::SessionTransport;
use crate::rtsp::stream_session::{RtpStream, StreamSession};
use crate::rtsp::tunnels::{OTHER_HALF_WAIT, read_head, without_partner};
use crate::server_state::ServerState;
use crate::turn::behind_others;

/// Returns the response to a client that is refused before its first request.
pub(crate) fn connection_refusal(refused: Refused) -> Vec<u8> {
    with_reason(Response::unasked(Status::ServiceUnavailable), refused).encode()
}

fn with_reason(response: Response, refused: Refused) -> Response {
    let response = match refused.retry_after_s() {
        Some(seconds) => response.header("Retry-After", seconds.to_string()),
        None => response,
    };
    response.body("text/plain", format!("{}\n", refused.reason()))
}

/// Addresses of a connection.
#[derive(Clone, Copy)]
struct Endpoints {
    local: SocketAddr,
    peer: SocketAddr,
}

/// Serves one connection to its end.
pub(crate) async fn connection(stream: TcpStream, peer: SocketAddr, server: Arc<ServerState>) {
    let Ok(local) = stream.local_addr() else { return };
    serve_stream(stream, Endpoints { local, peer }, server).await;
}

/// Serves a connection whose client may have other addresses than the stream.
async fn serve_stream(stream: TcpStream, endpoints: Endpoints, server: Arc<ServerState>) {
    // Responses are small and the client waits for them: none may wait for a full segment.
    let _ = stream.set_nodelay(true);
    let stream = Arc::new(stream);
    let Some(first) = first_bytes(&stream, server.config.timeouts.first_request).await else {
        return;
    };
    match begins_tunnel(&first) {
        Some(true) => tunnel_half(&stream, first, endpoints, server).await,
        _ => {
            let output = RtspOutput::new(stream.clone(), endpoints.peer);
            let input = RtspInput::Direct { stream: stream.clone(), first };
            converse(input, output, endpoints, server).await;
        }
    }
    close_shared(&stream).await;
}

/// Reads until the first bytes distinguish RTSP from HTTP; `None` if the peer closes or sends
/// nothing.
async fn first_bytes(stream: &TcpStream, wait: Duration) -> Option<Vec<u8>> {
    let reading = async {
        let mut first = Vec::new();
        loop {
            let mut buffer = [0; READ_BYTES];
            match read_some(stream, &mut buffer).await {
                0 => return None,
                bytes => first.extend_from_slice(&buffer[..bytes]),
            }
            if begins_tunnel(&first).is_some() {
                return Some(first);
            }
        }
    };
    timeout(wait, reading).await.unwrap_or(None)
}

/// Serves a GET or POST to the end of its tunnel; `first` holds the bytes already read.
async fn tunnel_half(
    stream: &Arc<TcpStream>,
    first: Vec<u8>,
    endpoints: Endpoints,
    server: Arc<ServerState>,
) {
    let peer = endpoints.peer;
    let timeouts = server.config.timeouts;
    let (request, rest) = match read_head(stream, first, timeouts.request).await {
        Some(Ok(read)) => read,
        Some(Err(malformed)) => {
            Meters::count(&server.meters.requests_malformed);
            tracing::debug!("rtsp {peer}: {malformed}");
            let reason = format!("{malformed}; this port speaks RTSP, {TUNNEL_CURE}");
            write(stream, &tunnel_refused("400 Bad Request", &reason), timeouts.write).await;
            return;
        }
        None => return,
    };
    let refused = match request.half {
        TunnelHalf::Upload => {
            let tunnels = &server.tunnels;
            !tunnels.hand_over(peer.ip(), &request.cookie, stream.clone(), rest).await
        }
        TunnelHalf::Download => match server.tunnels.enter(peer.ip(), &request.cookie) {
            Some(mut place) => {
                let output = RtspOutput::new(stream.clone(), peer);
                if output.write(&tunnel_opened(), timeouts.write).await {
                    let upload = timeout(OTHER_HALF_WAIT, place.next_upload()).await;
                    if let Ok(Some(upload)) = upload {
                        let input = TunnelInput::new(stream.clone(), place, upload);
                        let input = RtspInput::Tunnel(Box::new(input));
                        converse(input, output, endpoints, server).await;
                    }
                }
                false
            }
            None => true,
        },
    };
    if refused {
        let (status, reason) = without_partner(request.half);
        write(stream, &tunnel_refused(status, reason), timeouts.write).await;
    }
}

/// State of a connection that its requests use.
struct RtspConnection {
    number: u64,
    peer: SocketAddr,
    local: SocketAddr,
    /// Number of sessions set up on the connection and not ended.
    sessions: Arc<AtomicU32>,
    server: Arc<ServerState>,
    output: Arc<RtspOutput>,
    /// Sessions whose media the connection carries, entered under both of their channels.
    channels: Mutex<HashMap<u8, Weak<StreamSession>>>,
    /// Latest assets to which an access rule admitted the connection; at most [`ADMITTED_MAX`].
    admitted: Mutex<Vec<(String, Grant)>>,
    /// Play that the pacer begins once its reply is written.
    pending_play: Mutex<Option<PendingPlay>>,
}

/// Processes the requests of a connection until it ends, then ends or orphans its sessions.
async fn converse(
    input: RtspInput,
    output: Arc<RtspOutput>,
    Endpoints { local, peer }: Endpoints,
    server: Arc<ServerState>,
) {
    let number = server.next_connection.fetch_add(1, Ordering::Relaxed);
    let connection = RtspConnection {
        number,
        peer,
        local,
        sessions: Arc::default(),
        server,
        output,
        channels: Mutex::default(),
        admitted: Mutex::default(),
        pending_play: Mutex::default(),
    };
    connection.serve(input).await;
    // The search scans all sessions of the server, so a connection without any skips it.
    if connection.sessions.load(Ordering::Relaxed) > 0 {
        let server = &connection.server;
        let now = server.now();
        for session in server.sessions.all().iter().filter(|s| s.connection == number) {
            if session.is_interleaved() {
                control::end(server, session, "its connection has ended");
            } else {
                session.control.lock().state.control_closed(now);
            }
        }
    }
}

impl RtspConnection {
    /// Reads and answers requests until the connection ends.
    async fn serve(&self, mut input: RtspInput) {
        let timeouts = self.server.config.timeouts;
        let mut reader = RequestReader::new(Limits::default());
        let mut received = Vec::with_capacity(READ_BYTES);
        let mut requests = 0_u64;
        let mut pace = self.server.limits.pace(self.peer.ip());
        let mut beside = self.server.limits.pace_beside();
        // True while the latest read has completed no request.
        let mut is_beside = false;
        // Time of the last request, or of the last RTCP frame of a session.
        let mut heard_at = self.server.now();
        loop {
            let malformed = match reader.next() {
                Ok(Some(Received::Interleaved(frame))) => {
                    if self.take_frame(&frame) {
                        heard_at = self.server.now();
                    }
                    if !self.keep_pace(Some(&mut beside), Refused::Input).await {
                        return;
                    }
                    continue;
                }
                Ok(Some(Received::Message(request))) => {
                    (requests, is_beside) = (requests + 1, false);
                    if !self.keep_pace(pace.as_mut(), Refused::Requests).await {
                        return;
                    }
                    let response = self.carry_out(&request).await.header("Server", "pagewire");
                    let is_written = self.output.write(&response.encode(), timeouts.write).await;
                    let pending_play = self.pending_play.lock().take();
                    if let Some(pending_play) = pending_play {
                        pending_play.begin();
                    }
                    if !is_written || request.close {
                        return;
                    }
                    heard_at = self.server.now();
                    behind_others().await;
                    continue;
                }
                Ok(None) => {
                    if is_beside && !self.keep_pace(Some(&mut beside), Refused::Input).await {
                        return;
                    }
                    let now = self.server.now();
                    let idle = match requests {
                        0 => timeouts.first_request,
                        // New connections reach the successor process; so does this client when it
                        // reconnects.
                        _ if self.is_let_go() => timeouts.idle_rtsp.min(LET_GO_AFTER),
                        _ => timeouts.idle_rtsp,
                    };
                    let expiry = reader.expires_at(now).unwrap_or(heard_at + idle);
                    received.clear();
                    match input.read(&mut received, expiry.saturating_sub(now)).await {
                        Ok(()) => {
                            reader.feed(&received);
                            is_beside = true;
                            behind_others().await;
                            continue;
                        }
                        Err(NoInput::Closed) => return,
                        Err(NoInput::TimedOut) if reader.is_empty() => return,
                        Err(NoInput::TimedOut) => reader.overdue(),
                        Err(NoInput::Malformed(malformed)) => malformed,
                    }
                }
                Err(malformed) => malformed,
            };
            Meters::count(&self.server.meters.requests_malformed);
            tracing::debug!("rtsp {}: {malformed}", self.peer);
            self.output.write(&malformed.response(), timeouts.write).await;
            return;
        }
    }

    /// True when a drain has begun and the connection has no session.
    fn is_let_go(&self) -> bool {
        self.server.drain.is_begun() && self.sessions.load(Ordering::Relaxed) == 0
    }

    /// Processes a client's RTCP frame; returns false for frames of other channels, which are
    /// counted and dropped.
    fn take_frame(&self, frame: &InterleavedFrame) -> bool {
        let session = self.channels.lock().get(&frame.channel).and_then(Weak::upgrade);
        let is_rtcp = |stream: &Arc<RtpStream>| match &stream.transport {
            SessionTransport::Interleaved { channels, .. } => channels.rtcp == frame.channel,
            SessionTransport::Udp(_) | SessionTransport::Multicast { .. } => false,
        };
        let rtcp = |session: &Arc<StreamSession>| session.streams().iter().any(is_rtcp);
        match session {
            Some(session) if rtcp(&session) => {
                control::take_rtcp(&self.server, &session, &frame.data);
                true
            }
            // A client sends no media; the channel of an ended session may still carry a report.
            _ => {
                Meters::count(&self.server.meters.frames_unexpected);
                false
            }
        }
    }

    /// Waits until the next request, frame or read may be processed. Returns false if the client
    /// floods the connection; the refusal is sent by then.
    async fn keep_pace(&self, pace: Option<&mut InputPace>, refused: Refused) -> bool {
        let Some(pace) = pace else { return true };
        let now = self.server.now();
        let wait = pace.request(now);
        if wait.is_zero() {
            return true;
        }
        if pace.is_flood(now) {
            self.server.limits.refusals.note(refused, self.peer.ip());
            self.output
                .write(&connection_refusal(refused), self.server.config.timeouts.write)
                .await;
            return false;
        }
        sleep(wait).await;
        true
    }

    /// Counts a refusal and returns the response.
    fn refuse(&self, request: &Request, status: Status, refused: Refused) -> Response {
        Meters::count(&self.server.meters.sessions_refused);
        self.server.limits.refusals.note(refused, self.peer.ip());
        with_reason(Response::new(status, request), refused)
    }

    async fn carry_out(&self, request: &Request) -> Response {
        let command = match &request.command {
            Ok(command) => command,
            Err(refusal) => {
                if let Ok(session) = self.session(request) {
                    session
                        .control
                        .lock()
                        .state
                        .note_activity(self.server.now(), ControlChannel::Rtsp);
                }
                return refusal.clone();
            }
        };
        let done = match command {
            Command::Options => self.keep_alive(request).map(|()| Response::options(request)),
            Command::Describe => self.describe(request).await,
            Command::Setup(offers) => self.setup(request, offers).await,
            Command::Play(play) => self.play(request, play).await,
            Command::Pause => self.pause(request).await,
            Command::Teardown => self.session(request).map(|session| {
                control::end(&self.server, &session, "teardown");
                Response::in_session(request, &session.id)
            }),
            Command::KeepAlive => self.keep_alive(request).map(|()| match &request.session {
                Some(session) => Response::in_session(request, session),
                None => Response::new(Status::Ok, request),
            }),
            _ => Err(Response::new(Status::NotImplemented, request)),
        };
        done.unwrap_or_else(|refusal| refusal)
    }

    /// Returns the session a request names, if its sender created it.
    fn session(&self, request: &Request) -> Result<Arc<StreamSession>, Response> {
        let id = request.session.as_deref().unwrap_or_default();
        let found = self.server.sessions.find(id, self.peer.ip());
        found.ok_or_else(|| Response::new(Status::SessionNotFound, request))
    }

    /// Renews the time-out of the session that OPTIONS or GET_PARAMETER names; naming one is
    /// optional.
    fn keep_alive(&self, request: &Request) -> Result<(), Response> {
        if request.session.is_some() {
            let session = self.session(request)?;
            session.control.lock().state.note_activity(self.server.now(), ControlChannel::Rtsp);
        }
        Ok(())
    }

    /// Returns the asset that a request names. The query `es`, or the name of a track behind the
    /// path, selects the elementary streams of a transport stream.
    async fn asset(&self, request: &Request) -> Result<LibraryAsset, Response> {
        let found = self.asset_of_path(request).await?;
        let LibraryAsset::Stream(stream) = &found else { return Ok(found) };
        let names_track = || {
            let is_part = wire::rtsp::asset_track(&request.path).is_some();
            // A channel is one stream: any name behind the channel's own refers to it.
            is_part && !stream.continues() && !request.path.ends_with(&stream.name)
        };
        if !request.asks_elementary() && !names_track() {
            return Ok(found);
        }
        let (library, peer) = (&self.server.library, counted_as(self.peer.ip()));
        let asked = library.elementary(stream, peer, hung_up(self.output.stream())).await;
        asked.map_err(|error| no_asset(request, &error))
    }

    /// Checks a request for an asset against the access rules. The connection keeps its admission
    /// to an asset: players send credentials with each request, compute Digest responses for the
    /// URLs of the asset's streams, or omit the query of a signed URL.
    async fn admit(&self, request: &Request) -> Result<Grant, Response> {
        let admission = &self.server.admission;
        if admission.is_open() {
            return Ok(Grant::default());
        }
        let name = self.admitted_name(&request.path);
        let known = {
            let admitted = self.admitted.lock();
            admitted.iter().find(|(known, _)| known == name).map(|(_, grant)| grant.clone())
        };
        if let Some(grant) = known {
            return Ok(grant);
        }
        let asked = Asked {
            method: &request.method_name,
            target: &request.path,
            query: request.query.as_deref(),
            credentials: request.credentials.as_ref(),
            address: self.peer.ip(),
            known: None,
        };
        let subject = Subject::Stream(&request.path);
        match admission.decide(subject, &asked, &self.server.library).await {
            AccessVerdict::Admitted(grant) => {
                let mut admitted = self.admitted.lock();
                if admitted.len() == ADMITTED_MAX {
                    admitted.remove(0);
                }
                admitted.push((name.to_owned(), grant.clone()));
                Ok(grant)
            }
            AccessVerdict::Unauthorized { challenges, reason } => {
                let add =
                    |response: Response, challenge| response.header("WWW-Authenticate", challenge);
                let refused = Response::new(Status::Unauthorized, request);
                let refused = challenges.into_iter().fold(refused, add);
                Err(refused.body("text/plain", format!("{reason}\n")))
            }
            AccessVerdict::Forbidden { reason } => {
                let refused = Response::new(Status::Forbidden, request);
                Err(refused.body("text/plain", format!("{reason}\n")))
            }
            AccessVerdict::Slowed { retry_after_s } => {
                let refused = Response::new(Status::ServiceUnavailable, request);
                let refused = refused.header("Retry-After", retry_after_s.to_string());
                Err(refused.body("text/plain", "too many wrong passwords from your address\n"))
            }
        }
    }

    /// Returns the name under which an admission is remembered: the name of the asset. A file at
    /// the path of one of its streams keeps its own name, since another rule may apply to it.
    fn admitted_name<'p>(&self, path: &'p str) -> &'p str {
        let whole = path.trim_matches('/');
        let is_file = self.server.library.beginning_with(whole, 1).iter().any(|f| f.name == whole);
        if is_file { whole } else { wire::rtsp::asset_path(path).trim_start_matches('/') }
    }

    /// Returns the asset at a request's path, as written or without the stream's name at its end.
    async fn asset_of_path(&self, request: &Request) -> Result<LibraryAsset, Response> {
        self.admit(request).await?;
        let whole = request.path.as_str();
        let short = wire::rtsp::asset_path(whole);
        if let Some(asset) = self.channel_asset(request, short)? {
            return Ok(LibraryAsset::Stream(asset));
        }
        let (library, peer) = (&self.server.library, counted_as(self.peer.ip()));
        let stream = self.output.stream();
        let mut found = library.asset(short, peer, hung_up(stream)).await;
        if short != whole
            && matches!(&found, Err(NoAsset::Denied(d)) if matches!(**d, Denied::Missing))
        {
            found = library.asset(whole, peer, hung_up(stream)).await;
        }
        found.map_err(|error| match error {
            NoAsset::Denied(denied) if matches!(*denied, Denied::Missing) => {
                let missing = || no_asset(request, &NoAsset::Denied(denied.clone()));
                self.no_channel(request, short).unwrap_or_else(missing)
            }
            error => no_asset(request, &error),
        })
    }

    /// Returns the asset's URL with the server name that this client uses.
    fn url(&self, request: &Request, name: &str) -> String {
        let local = self.local.to_string();
        let authority = request.authority.as_deref().unwrap_or(&local);
        format!("rtsp://{authority}/{}", wire::http::escape_path(name))
    }
}

fn no_asset(request: &Request, error: &NoAsset) -> Response {
    let status = match error {
        NoAsset::Denied(denied) => match **denied {
            Denied::Missing | Denied::NotAFile => Status::NotFound,
            Denied::Outside | Denied::Unreadable => Status::Forbidden,
            Denied::DescriptorsExhausted => Status::NotEnoughBandwidth,
            Denied::Host(_) => Status::InternalServerError,
        },
        NoAsset::Refused(_) => Status::UnsupportedMediaType,
        NoAsset::NoChannel { .. } => Status::NotFound,
        NoAsset::Changing { .. }
        | NoAsset::Busy { .. }
        | NoAsset::NotOnAir
        | NoAsset::OnStandby { .. }
        | NoAsset::HungUp => Status::ServiceUnavailable,
        NoAsset::Unreadable(_) => Status::InternalServerError,
    };
    tracing::info!("rtsp {}: {error}", request.path);
    let mut response = Response::new(status, request);
    let text = match error {
        NoAsset::Refused(reason) => {
            let name = wire::rtsp::asset_path(&request.path);
            let (phrase, whole) = formats::refused_in_words(name, reason);
            response = response.reason(phrase);
            whole
        }
        error => error.to_string(),
    };
    let response = response.body("text/plain", format!("{text}\n"));
    match error.again_in_s() {
        Some(seconds) => response.header("Retry-After", seconds.to_string()),
        None => response,
    }
}

/// Resolves when the peer has closed its side or the connection has failed. Pipelined requests stay
/// unread; only they delay the detection, by [`HUNG_UP_LOOK`].
async fn hung_up(stream: &TcpStream) {
    while stream.ready(Interest::READABLE).await.is_ok_and(|ready| !ready.is_read_closed()) {
        sleep(HUNG_UP_LOOK).await;
    }
}

const READ_BYTES: usize = 2048;
/// Most admissions remembered. Players request one asset per connection; a connection with many
/// sessions requests as many.
const ADMITTED_MAX: usize = 16;
/// Advice for an HTTP request on the RTSP port.
const TUNNEL_CURE: &str = "or RTSP through HTTP with an x-sessioncookie; the index of files is \
    on the HTTP port";
/// Idle time-out of a connection without a session while the server drains.
const LET_GO_AFTER: Duration = Duration::from_secs(5);
const HUNG_UP_LOOK: Duration = Duration::from_millis(250);
