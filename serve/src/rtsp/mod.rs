// SPDX-License-Identifier: MIT OR Apache-2.0
//! rtsp: carries out the requests of one RTSP connection.
//!
//! The protocol itself, syntax and permitted order of requests, is in [`wire::rtsp`]. Here a
//! DESCRIBE becomes a library look-up, a SETUP a socket and an entry in a pacer, a PLAY a position
//! in the plan. Requests of a connection are carried out one after the other, so answers keep their
//! order. A request over a limit on clients ([`crate::limits`]) is refused with the reason as text,
//! and requests faster than the limit are delayed.
//!
//! Sources: RFC 2326.
//! Does not play a list of ranges or queue PLAY requests (§10.5): a PLAY with a range while playing
//! is a seek, which is what every client in use means by it.

pub(crate) mod control;
pub(crate) mod icmp_faults;
pub(crate) mod media_ports;
#[cfg(test)]
pub(crate) mod player;
pub(crate) mod stream_session;

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use media::{TICKS_PER_SECOND, TICKS_PER_TIMESTAMP};
use paths::Destination;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::sleep;
use wire::rtsp::{
    Command, ControlChannel, GrantedTransport, Limits, NptRange, NptStart, PlayRequest, PortPair,
    Request, RequestReader, Response, RtpInfo, SessionState, Status, TransportOffer,
};

use crate::key_tokens::{Asked, Decision, Subject};
use crate::library::NoAsset;
use crate::library::asset::{Asset, Source};
use crate::library::formats;
use crate::library::served_folder::Denied;
use crate::limits::{Refused, RequestPace, SessionPermit, counted_as};
use crate::listener::{close, is_exhausted, read, write};
use crate::meter::Meters;
use crate::pacer::{PacedStream, ticks};
use crate::rtsp::media_ports::{is_own_address, media_socket};
use crate::rtsp::stream_session::{
    Link, SessionControl, Shift, StreamSession, random_cname, random_id,
};
use crate::server_state::ServerState;

/// Returns the answer to a client that is refused before its first request.
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

/// Serves one connection to its end.
pub(crate) async fn connection(mut stream: TcpStream, peer: SocketAddr, server: Arc<ServerState>) {
    let number = server.next_connection.fetch_add(1, Ordering::Relaxed);
    // Answers are small and the client waits for them: none may wait for a full segment.
    let _ = stream.set_nodelay(true);
    if let Ok(local) = stream.local_addr() {
        let sessions = Arc::<AtomicU32>::default();
        let connection = RtspConnection { number, peer, local, sessions, server: server.clone() };
        converse(&mut stream, &connection).await;
        // Finding them scans all sessions: skipped for a connection without any.
        if connection.sessions.load(Ordering::Relaxed) > 0 {
            let now = server.now();
            for session in server.sessions.all().iter().filter(|s| s.connection == number) {
                session.control.lock().unwrap().state.control_closed(now);
            }
        }
    }
    close(stream).await;
}

/// State of a connection that its requests use.
struct RtspConnection {
    number: u64,
    peer: SocketAddr,
    local: SocketAddr,
    /// Number of sessions set up on the connection and not ended.
    sessions: Arc<AtomicU32>,
    server: Arc<ServerState>,
}

async fn converse(stream: &mut TcpStream, connection: &RtspConnection) {
    let timeouts = connection.server.config.timeouts;
    let mut reader = RequestReader::new(Limits::default());
    let mut buffer = vec![0; READ_BYTES];
    let mut requests = 0_u64;
    let mut pace = connection.server.limits.pace(connection.peer.ip());
    loop {
        let malformed = match reader.next_request() {
            Ok(Some(request)) => {
                requests += 1;
                if !connection.keep_pace(pace.as_mut()).await {
                    write(stream, &connection_refusal(Refused::Requests), timeouts.write).await;
                    return;
                }
                let response =
                    connection.carry_out(&request, stream).await.header("Server", "pagewire");
                let told = write(stream, &response.encode(), timeouts.write).await;
                if !told || request.close {
                    return;
                }
                continue;
            }
            Ok(None) => {
                let now = connection.server.now();
                let wait = match reader.expires_at(now) {
                    Some(expiry) => expiry.saturating_sub(now),
                    None if requests == 0 => timeouts.first_request,
                    None => timeouts.idle_rtsp,
                };
                match read(stream, &mut buffer, wait).await {
                    Ok(Some(count)) => {
                        reader.feed(&buffer[..count]);
                        continue;
                    }
                    Ok(None) => return,
                    Err(_) if reader.is_empty() => return,
                    Err(_) => reader.overdue(),
                }
            }
            Err(malformed) => malformed,
        };
        Meters::count(&connection.server.meters.requests_malformed);
        tracing::debug!("rtsp {}: {malformed}", connection.peer);
        write(stream, &malformed.response(), timeouts.write).await;
        return;
    }
}

impl RtspConnection {
    /// Waits until the next request may be carried out; false when the connection is a flood.
    async fn keep_pace(&self, pace: Option<&mut RequestPace>) -> bool {
        let Some(pace) = pace else { return true };
        let now = self.server.now();
        let wait = pace.request(now);
        if wait.is_zero() {
            return true;
        }
        if pace.is_flood(now) {
            self.server.limits.refusals.note(Refused::Requests, self.peer.ip());
            return false;
        }
        sleep(wait).await;
        true
    }

    /// Counts a refusal and returns the answer.
    fn refuse(&self, request: &Request, status: Status, refused: Refused) -> Response {
        Meters::count(&self.server.meters.sessions_refused);
        self.server.limits.refusals.note(refused, self.peer.ip());
        with_reason(Response::new(status, request), refused)
    }

    async fn carry_out(&self, request: &Request, stream: &TcpStream) -> Response {
        let command = match &request.command {
            Ok(command) => command,
            Err(refusal) => {
                if let Ok(session) = self.session(request) {
                    session
                        .control
                        .lock()
                        .unwrap()
                        .state
                        .note_activity(self.server.now(), ControlChannel::Rtsp);
                }
                return refusal.clone();
            }
        };
        let done = match command {
            Command::Options => self.keep_alive(request).map(|()| Response::options(request)),
            Command::Describe => self.describe(request, stream).await,
            Command::Setup(offers) => self.setup(request, stream, offers).await,
            Command::Play(play) => self.play(request, play).await,
            Command::Pause => self.pause(request).await,
            Command::Teardown => self.session(request).map(|session| {
                control::end(&self.server, &session, "teardown");
                Response::in_session(request, &session.id)
            }),
            Command::GetParameter => self.keep_alive(request).map(|()| match &request.session {
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

    /// Keeps the session alive that OPTIONS or GET_PARAMETER names; they need not name one.
    fn keep_alive(&self, request: &Request) -> Result<(), Response> {
        if request.session.is_some() {
            let session = self.session(request)?;
            session
                .control
                .lock()
                .unwrap()
                .state
                .note_activity(self.server.now(), ControlChannel::Rtsp);
        }
        Ok(())
    }

    /// Returns the asset a request's path names, as written or without the stream's name.
    async fn asset(&self, request: &Request, stream: &TcpStream) -> Result<Arc<Asset>, Response> {
        let whole = request.path.as_str();
        let subject = Subject::Stream(whole);
        let asked = Asked { subject, credentials: None, query: None };
        if self.server.admission.decide(&asked) != Decision::Admitted {
            return Err(Response::new(Status::Forbidden, request));
        }
        let short = wire::rtsp::asset_path(whole);
        let (library, peer) = (&self.server.library, counted_as(self.peer.ip()));
        let mut found = library.asset(short, peer, hung_up(stream)).await;
        if short != whole
            && matches!(&found, Err(NoAsset::Denied(d)) if matches!(**d, Denied::Missing))
        {
            found = library.asset(whole, peer, hung_up(stream)).await;
        }
        found.map_err(|error| no_asset(request, &error))
    }

    async fn describe(&self, request: &Request, stream: &TcpStream) -> Result<Response, Response> {
        let asset = self.asset(request, stream).await?;
        let plan = &asset.plan;
        let description = wire::sdp::Description {
            name: asset.name.rsplit('/').next().unwrap_or_default(),
            origin: self.local.ip().to_canonical(),
            id: u64::from(plan.identity().ssrc),
            version: (asset.key.modified_ns / 1_000_000_000) as u64,
            duration: (!asset.is_growing()).then(|| duration(plan.duration_ticks())),
            bits_per_second: plan.bits_per_second(),
        };
        let base = wire::rtsp::content_base(&self.url(request, &asset));
        Ok(Response::describe(request, &base, wire::sdp::mp2t(&description)))
    }

    async fn setup(
        &self,
        request: &Request,
        stream: &TcpStream,
        offers: &[TransportOffer],
    ) -> Result<Response, Response> {
        let udp = offers.iter().find_map(|offer| match offer {
            TransportOffer::Udp { ports, destination } => Some((*ports, destination.as_deref())),
            _ => None,
        });
        let Some((ports, destination)) = udp else {
            return Err(Response::new(Status::UnsupportedTransport, request));
        };
        if request.session.is_some() {
            let session = self.session(request)?;
            // A presentation has one stream: no second can be added to a session.
            session
                .control
                .lock()
                .unwrap()
                .state
                .note_activity(self.server.now(), ControlChannel::Rtsp);
            return Err(Response::new(Status::AggregateOperationNotAllowed, request));
        }
        // Streaming to a third party's address on a client's request would make this server a tool
        // for floods.
        if destination.is_some_and(|d| d.parse().ok() != Some(self.peer.ip().to_canonical())) {
            return Err(Response::new(Status::UnsupportedTransport, request));
        }
        if !self.may_send_to(ports) {
            return Err(self.refuse(request, Status::UnsupportedTransport, Refused::ClientPort));
        }
        let full = |refused| self.refuse(request, Status::NotEnoughBandwidth, refused);
        let permit = self.server.limits.set_up(self.peer.ip(), &self.sessions).map_err(full)?;
        let asset = self.asset(request, stream).await?;
        let opened = asset.source(|| self.server.library.open(&asset));
        let source = opened.map_err(|error| no_asset(request, &error))?;
        let session = self.open_session(ports, source, permit).map_err(|error| {
            if is_exhausted(&error) || error.kind() == std::io::ErrorKind::AddrInUse {
                return full(Refused::Sessions);
            }
            Meters::count(&self.server.meters.sessions_refused);
            tracing::warn!("session for {}: {error}", self.peer);
            Response::new(Status::DestinationUnreachable, request)
        })?;
        let granted = GrantedTransport::Udp {
            client: ports,
            server: PortPair { rtp: session.lease.rtp, rtcp: session.lease.rtp + 1 },
            ssrc: session.source.asset.plan.identity().ssrc,
            source: Some(self.local.ip().to_canonical()),
        };
        let timeout = self.server.config.session_timeout;
        Ok(Response::setup(request, &session.id, timeout, &granted))
    }

    /// True when media may go to these ports: neither a service's port nor one of this server.
    fn may_send_to(&self, ports: PortPair) -> bool {
        let (server, wanted) = (&self.server, [ports.rtp, ports.rtcp]);
        let is_low = wanted.iter().any(|&port| port < USER_PORTS);
        let is_own = || wanted.iter().any(|&port| server.ports.own(port));
        (!is_low || server.limits.limits.low_ports)
            && !(is_own() && is_own_address(self.peer.ip().to_canonical()))
    }

    fn open_session(
        &self,
        ports: PortPair,
        source: Arc<Source>,
        permit: SessionPermit,
    ) -> std::io::Result<Arc<StreamSession>> {
        let server = &self.server;
        let lease = server.ports.lease()?;
        // The peer's address includes the scope of a link-local one.
        let (mut rtp_peer, mut rtcp_peer) = (self.peer, self.peer);
        rtp_peer.set_port(ports.rtp);
        rtcp_peer.set_port(ports.rtcp);
        let socket = media_socket(self.local.ip(), lease.rtp, rtp_peer)?;
        if !server.limits.has_room_for_session(&socket) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        let to = Destination::new(socket, rtp_peer.to_string()).map_err(std::io::Error::other)?;
        let link = Arc::new(Link::default());
        let number = server.sessions.number();
        let now = server.now();
        let end = source.limit();
        let stream = Box::new(PacedStream::new(source.clone(), to, link.clone()));
        let session = Arc::new(StreamSession {
            number,
            id: random_id(),
            peer: self.peer.ip(),
            source,
            link,
            pacer: server.pacers.add(number, stream),
            rtp_peer,
            rtcp_peer,
            rtcp: lease.rtcp.clone(),
            cname: random_cname(),
            rtcp_task: lease.own.then(|| {
                let receive = control::receive_rtcp(lease.rtcp.clone(), Arc::downgrade(server));
                tokio::spawn(receive).abort_handle()
            }),
            connection: self.number,
            control: Mutex::new(SessionControl {
                state: wire::rtsp::RtspSession::new(
                    now,
                    server.config.session_timeout,
                    server.limits.limits.play_within,
                ),
                receiver: wire::rtcp::ReceiverView::default(),
                resume: 0,
                end,
                report_at: Duration::ZERO,
                shift: Shift::default(),
                bye_sent: false,
                play: 0,
            }),
            permit: Mutex::new(Some(permit)),
            lease,
        });
        server.sessions.insert(session.clone());
        Meters::count(&server.meters.sessions_total);
        Ok(session)
    }

    async fn play(&self, request: &Request, play: &PlayRequest) -> Result<Response, Response> {
        let session = self.session(request)?;
        let source = session.source.newest();
        let (plan, limit) = (&source.asset.plan, source.limit());
        // Checked first: a refused request must not stop a running play.
        let wanted = match play.range {
            Some(range) => resolve(&source, range)
                .ok_or_else(|| Response::new(Status::InvalidRange, request))?,
            None => Wanted { from: None, end: None },
        };
        let before = {
            let mut control = session.control.lock().unwrap();
            let before = control.state.play(self.server.now());
            let end = play.range.map(|_| wanted.end.unwrap_or(limit));
            let is_same = wanted.from.is_none() && end.is_none_or(|end| end == control.end);
            if before == SessionState::Playing && is_same {
                // Only keeps the session alive (RFC 2326 §10.5): the pacer gets no command.
                let packets = session.link.progress().next..control.end;
                return Ok(self.playing(request, &session, play, control.shift, packets));
            }
            before
        };
        let standing = match before {
            SessionState::Playing => session.pacer.pause().await,
            SessionState::Ready => None,
        };
        let (number, shift, packets) = {
            let mut control = session.control.lock().unwrap();
            let from = wanted.from.or(standing).unwrap_or(control.resume);
            // A PLAY without a range after the end starts from the beginning.
            let from = if from >= plan.packets() { 0 } else { from };
            let end = match (wanted.end, play.range) {
                (Some(end), _) => end,
                (None, Some(_)) => limit,
                (None, None) if control.end > from => control.end,
                (None, None) => limit,
            };
            (control.resume, control.end) = (from, end);
            // Repeated: the end of the previous play may have been reported meanwhile.
            control.state.play(self.server.now());
            let sent = session.link.progress();
            if sent.packets > 0 {
                control.shift = control.shift.jump(plan, sent.next, from);
            }
            // The next jump is counted from here, even if nothing is sent before it.
            session.link.start_at(from);
            control.bye_sent = false;
            control.play += 1;
            control.report_at = self.server.now() + FIRST_REPORT;
            (control.play, control.shift, from..end)
        };
        if !source.image_asked.load(Ordering::Relaxed) {
            let provider = (self.server.clone(), source.clone());
            // It opens a file, so it runs on a thread that may block.
            tokio::task::spawn_blocking(move || provider.0.images.provide(&provider.1));
        }
        session.pacer.play(number, shift, packets.clone());
        Ok(self.playing(request, &session, play, shift, packets))
    }

    /// Returns the answer to PLAY: the range really played and the RTP coordinates of its first
    /// packet.
    fn playing(
        &self,
        request: &Request,
        session: &StreamSession,
        play: &PlayRequest,
        shift: Shift,
        packets: Range<u64>,
    ) -> Response {
        let source = session.source.newest();
        let plan = &source.asset.plan;
        let url = format!(
            "{}{}",
            wire::rtsp::content_base(&self.url(request, &session.source.asset)),
            wire::sdp::CONTROL
        );
        let info = RtpInfo {
            url: &url,
            sequence: plan
                .identity()
                .first_sequence
                .wrapping_add(packets.start as u16)
                .wrapping_add(shift.sequence),
            timestamp: plan.timestamp(plan.ticks(packets.start)).wrapping_add(shift.timestamp),
        };
        // Length by RTP timestamps, which clients relate to this range (§12.33).
        let length = plan.ticks(packets.end).saturating_sub(plan.ticks(packets.start));
        let start = plan.presented_ticks(packets.start.min(plan.packets() - 1));
        let is_open = source.asset.is_growing() && packets.end > source.end();
        let end = (!is_open).then(|| duration(start + length));
        Response::play(request, &session.id, play, duration(start), end, info)
    }

    async fn pause(&self, request: &Request) -> Result<Response, Response> {
        let session = self.session(request)?;
        let before = session
            .control
            .lock()
            .unwrap()
            .state
            .pause(self.server.now())
            .map_err(|no| Response::not_in_this_state(request, no.allow))?;
        if before == SessionState::Playing
            && let Some(next) = session.pacer.pause().await
        {
            session.control.lock().unwrap().resume = next;
        }
        Ok(Response::in_session(request, &session.id))
    }

    /// Returns the asset's address with the server's name that this client uses.
    fn url(&self, request: &Request, asset: &Asset) -> String {
        let local = self.local.to_string();
        let authority = request.authority.as_deref().unwrap_or(&local);
        format!("rtsp://{authority}/{}", wire::http::escape_path(&asset.name))
    }
}

/// Range in packets; `None` where the client left an end open.
struct Wanted {
    from: Option<u64>,
    end: Option<u64>,
}

/// Finds a range in the plan. It begins at the entry at or before its start (RFC 2326 §10.5 lets
/// the server choose the nearest playable position and name it in its Range header). Returns `None`
/// for a range beyond the end or one that ends before it begins.
fn resolve(source: &Source, range: NptRange) -> Option<Wanted> {
    let plan = &source.asset.plan;
    let end = range.end.map(presented_ticks);
    let from = match range.start {
        // `now` of a recording is its present end (§3.6).
        NptStart::Now if source.asset.is_growing() => Some(plan.entry(u64::MAX)),
        NptStart::Now => None,
        NptStart::At(start) => {
            let start = presented_ticks(start);
            let empty = end.is_some_and(|end| end <= start);
            if empty || start >= plan.duration_ticks().max(1) {
                return None;
            }
            Some(plan.entry(start))
        }
    };
    let end =
        end.map(|end| plan.packets_presented_before(end).max(from.map_or(1, |from| from + 1)));
    Some(Wanted { from, end: end.filter(|&end| end < source.end()) })
}

/// Converts a client's time to presentation ticks at 90 kHz, rounded to the nearest, because
/// clients write as few decimals as milliseconds or microseconds.
fn presented_ticks(time: Duration) -> u64 {
    let stamps = ticks(time).saturating_add(TICKS_PER_TIMESTAMP / 2) / TICKS_PER_TIMESTAMP;
    stamps.saturating_mul(TICKS_PER_TIMESTAMP)
}

fn duration(ticks: u64) -> Duration {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(TICKS_PER_SECOND);
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
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
        NoAsset::Changing { .. } | NoAsset::Busy { .. } | NoAsset::HungUp => {
            Status::ServiceUnavailable
        }
        NoAsset::Unreadable(_) => Status::InternalServerError,
    };
    tracing::info!("rtsp {}: {error}", request.path);
    let mut response = Response::new(status, request).body("text/plain", format!("{error}\n"));
    if let NoAsset::Refused(reason) = error {
        let name = wire::rtsp::asset_path(&request.path);
        response = response.reason(formats::refused_in_a_phrase(name, reason));
    }
    match error.again_in_s() {
        Some(seconds) => response.header("Retry-After", seconds.to_string()),
        None => response,
    }
}

/// Resolves when the peer has closed its side or the connection is broken. Requests sent ahead stay
/// unread; only they delay the detection, by [`HUNG_UP_LOOK`].
async fn hung_up(stream: &TcpStream) {
    while stream.ready(Interest::READABLE).await.is_ok_and(|ready| !ready.is_read_closed()) {
        sleep(HUNG_UP_LOOK).await;
    }
}

const READ_BYTES: usize = 2048;
/// First port for programs of users (RFC 6335 §6).
const USER_PORTS: u16 = 1024;
const HUNG_UP_LOOK: Duration = Duration::from_millis(250);
/// Time to the first sender report: early, so that a client can soon relate the stream to
/// wall-clock time.
const FIRST_REPORT: Duration = Duration::from_millis(500);
