// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTSP: one connection's requests, carried out.
//!
//! The protocol itself, what is well formed and what may follow what, is in [`wire::rtsp`]; here a
//! DESCRIBE becomes a look into the library, a SETUP a socket and an entry with a pacer, a PLAY a
//! place in the plan. Requests of a connection are carried out one after the other, so answers keep
//! their order.
//!
//! Sources: RFC 2326.
//! Does not do: play a list of ranges, queue PLAY requests (§10.5): a PLAY with a range while
//! playing is a seek, as every client in use means it.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use media::TICKS_PER_SECOND;
use media::plan::Plan;
use paths::Destination;
use tokio::net::TcpStream;
use wire::rtsp::{
    Command, Granted, Limits, NptRange, NptStart, Play, Ports, Reader, Request, Response, RtpInfo,
    State, Status, Voice,
};

use crate::access::Denied;
use crate::admission::{Asked, Decision, Subject};
use crate::asset::{Asset, Source};
use crate::control;
use crate::library::NoAsset;
use crate::listen::{close, is_spent, read, write};
use crate::meter::Meters;
use crate::pacer::{Stream, ticks};
use crate::ports::media_socket;
use crate::session::{Control, Link, Session, Shift, random_id};
use crate::site::Site;

/// What a newcomer is told when no descriptor is left.
pub(crate) const REFUSAL: &[u8] = b"RTSP/1.0 503 Service Unavailable\r\n\r\n";

/// Serves one connection to its end.
pub(crate) async fn connection(mut stream: TcpStream, peer: SocketAddr, site: Arc<Site>) {
    let number = site.next_connection.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // Answers are small and awaited: none must wait for a segment to fill.
    let _ = stream.set_nodelay(true);
    if let Ok(local) = stream.local_addr() {
        let line = Line { number, peer, local, site: site.clone() };
        converse(&mut stream, &line).await;
        let now = site.now();
        for session in site.sessions.all().iter().filter(|s| s.connection == number) {
            session.control.lock().unwrap().state.control_closed(now);
        }
    }
    close(stream).await;
}

/// A connection, as its requests see it.
struct Line {
    number: u64,
    peer: SocketAddr,
    local: SocketAddr,
    site: Arc<Site>,
}

async fn converse(stream: &mut TcpStream, line: &Line) {
    let patience = line.site.config.patience;
    let mut reader = Reader::new(Limits::default());
    let mut buffer = vec![0; READ_BYTES];
    let mut requests = 0_u64;
    loop {
        let malformed = match reader.next() {
            Ok(Some(request)) => {
                requests += 1;
                let response = line.carry_out(&request).await.header("Server", "pagewire");
                let told = write(stream, &response.encode(), patience.write).await;
                if !told || request.close {
                    return;
                }
                continue;
            }
            Ok(None) => {
                let now = line.site.now();
                let wait = match reader.expires_at(now) {
                    Some(expiry) => expiry.saturating_sub(now),
                    None if requests == 0 => patience.first_request,
                    None => patience.idle_rtsp,
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
        Meters::count(&line.site.meters.requests_malformed);
        tracing::debug!("rtsp {}: {malformed}", line.peer);
        write(stream, &malformed.response(), patience.write).await;
        return;
    }
}

impl Line {
    async fn carry_out(&self, request: &Request) -> Response {
        let command = match &request.command {
            Ok(command) => command,
            Err(refusal) => {
                if let Ok(session) = self.session(request) {
                    session.control.lock().unwrap().state.heard(self.site.now(), Voice::Rtsp);
                }
                return refusal.clone();
            }
        };
        let done = match command {
            Command::Options => self.heard(request).map(|()| Response::options(request)),
            Command::Describe => self.describe(request).await,
            Command::Setup { ports, destination } => {
                self.setup(request, *ports, destination.as_deref()).await
            }
            Command::Play(play) => self.play(request, play).await,
            Command::Pause => self.pause(request).await,
            Command::Teardown => self.session(request).map(|session| {
                control::end(&self.site, &session, "teardown");
                Response::in_session(request, &session.id)
            }),
            Command::GetParameter => self.heard(request).map(|()| match &request.session {
                Some(session) => Response::in_session(request, session),
                None => Response::new(Status::Ok, request),
            }),
            _ => Err(Response::new(Status::NotImplemented, request)),
        };
        done.unwrap_or_else(|refusal| refusal)
    }

    /// The session a request names, if its sender made it.
    fn session(&self, request: &Request) -> Result<Arc<Session>, Response> {
        let id = request.session.as_deref().unwrap_or_default();
        let found = self.site.sessions.find(id, self.peer.ip());
        found.ok_or_else(|| Response::new(Status::SessionNotFound, request))
    }

    /// OPTIONS and GET_PARAMETER keep the session alive that they name; they need not name one.
    fn heard(&self, request: &Request) -> Result<(), Response> {
        if request.session.is_some() {
            let session = self.session(request)?;
            session.control.lock().unwrap().state.heard(self.site.now(), Voice::Rtsp);
        }
        Ok(())
    }

    /// The asset a request's path names: as it stands, or with the name of the stream taken off.
    async fn asset(&self, request: &Request) -> Result<Arc<Asset>, Response> {
        let whole = request.path.as_str();
        let subject = Subject::Stream(whole);
        let asked = Asked { subject, credentials: None, query: None };
        if self.site.admission.decide(&asked) != Decision::Admitted {
            return Err(Response::new(Status::Forbidden, request));
        }
        let short = wire::rtsp::asset_path(whole);
        let mut found = self.site.library.asset(short).await;
        if short != whole
            && matches!(&found, Err(NoAsset::Denied(d)) if matches!(**d, Denied::Missing))
        {
            found = self.site.library.asset(whole).await;
        }
        found.map_err(|error| no_asset(request, &error))
    }

    async fn describe(&self, request: &Request) -> Result<Response, Response> {
        let asset = self.asset(request).await?;
        let plan = &asset.plan;
        let description = wire::sdp::Description {
            name: asset.name.rsplit('/').next().unwrap_or_default(),
            origin: self.local.ip().to_canonical(),
            id: u64::from(plan.identity().ssrc),
            version: (asset.key.modified_ns / 1_000_000_000) as u64,
            duration: duration(plan.duration_ticks()),
            bits_per_second: plan.bits_per_second(),
        };
        let base = wire::rtsp::content_base(&self.url(request, &asset));
        Ok(Response::describe(request, &base, wire::sdp::mp2t(&description)))
    }

    async fn setup(
        &self,
        request: &Request,
        ports: Ports,
        destination: Option<&str>,
    ) -> Result<Response, Response> {
        if request.session.is_some() {
            let session = self.session(request)?;
            // One stream a presentation: there is nothing to add to a session.
            session.control.lock().unwrap().state.heard(self.site.now(), Voice::Rtsp);
            return Err(Response::new(Status::AggregateOperationNotAllowed, request));
        }
        // Streaming to somebody else's address at a stranger's word would make this server a
        // weapon.
        if destination.is_some_and(|d| d.parse().ok() != Some(self.peer.ip().to_canonical())) {
            return Err(Response::new(Status::UnsupportedTransport, request));
        }
        let asset = self.asset(request).await?;
        let opened = asset.source(|| self.site.library.open(&asset));
        let source = opened.map_err(|error| no_asset(request, &error))?;
        let session = self.open_session(ports, source).map_err(|error| {
            Meters::count(&self.site.meters.sessions_refused);
            tracing::warn!("session for {}: {error}", self.peer);
            let spent = is_spent(&error) || error.kind() == std::io::ErrorKind::AddrInUse;
            let status =
                if spent { Status::NotEnoughBandwidth } else { Status::DestinationUnreachable };
            Response::new(status, request)
        })?;
        let granted = Granted {
            client: ports,
            server: Ports { rtp: session.lease.rtp, rtcp: session.lease.rtp + 1 },
            ssrc: session.source.asset.plan.identity().ssrc,
            source: Some(self.local.ip().to_canonical()),
        };
        let timeout = self.site.config.session_timeout;
        Ok(Response::setup(request, &session.id, timeout, &granted))
    }

    fn open_session(&self, ports: Ports, source: Arc<Source>) -> std::io::Result<Arc<Session>> {
        let site = &self.site;
        let lease = site.ports.lease()?;
        let rtp_peer = SocketAddr::new(self.peer.ip(), ports.rtp);
        let rtcp_peer = SocketAddr::new(self.peer.ip(), ports.rtcp);
        let socket = media_socket(self.local.ip(), lease.rtp, rtp_peer)?;
        let to = Destination::new(socket, rtp_peer.to_string()).map_err(std::io::Error::other)?;
        let link = Arc::new(Link::default());
        let number = site.sessions.number();
        let now = site.now();
        let end = source.asset.plan.packets();
        let stream = Box::new(Stream::new(source.clone(), to, link.clone()));
        let session = Arc::new(Session {
            number,
            id: random_id(),
            peer: self.peer.ip(),
            source,
            link,
            pacer: site.pacers.add(number, stream),
            rtp_peer,
            rtcp_peer,
            rtcp: lease.rtcp.clone(),
            rtcp_task: lease.own.then(|| {
                let receive = control::receive_rtcp(lease.rtcp.clone(), Arc::downgrade(site));
                tokio::spawn(receive).abort_handle()
            }),
            connection: self.number,
            control: Mutex::new(Control {
                state: wire::rtsp::Session::new(now, site.config.session_timeout),
                receiver: wire::rtcp::ReceiverView::default(),
                resume: 0,
                end,
                report_at: Duration::ZERO,
                shift: Shift::default(),
                said_bye: false,
                play: 0,
            }),
            lease,
        });
        site.sessions.insert(session.clone());
        Meters::count(&site.meters.sessions_total);
        Ok(session)
    }

    async fn play(&self, request: &Request, play: &Play) -> Result<Response, Response> {
        let session = self.session(request)?;
        let plan = &session.source.asset.plan;
        // Checked first: a request that is refused must not stop what is playing.
        let wanted = match play.range {
            Some(range) => {
                resolve(plan, range).ok_or_else(|| Response::new(Status::InvalidRange, request))?
            }
            None => Wanted { from: None, end: None },
        };
        let before = session.control.lock().unwrap().state.play(self.site.now());
        let standing = match before {
            State::Playing => session.pacer.pause().await,
            State::Ready => None,
        };
        let (number, shift, packets) = {
            let mut control = session.control.lock().unwrap();
            let from = wanted.from.or(standing).unwrap_or(control.resume);
            // Played to its end and told to play without saying from where: from the beginning.
            let from = if from >= plan.packets() { 0 } else { from };
            let end = match (wanted.end, play.range) {
                (Some(end), _) => end,
                (None, Some(_)) => plan.packets(),
                (None, None) if control.end > from => control.end,
                (None, None) => plan.packets(),
            };
            (control.resume, control.end) = (from, end);
            // Again: the end of the play before may have been told since.
            control.state.play(self.site.now());
            let sent = session.link.progress();
            if sent.packets > 0 {
                control.shift = control.shift.jump(plan, sent.next, from);
            }
            control.said_bye = false;
            control.play += 1;
            control.report_at = self.site.now() + FIRST_REPORT;
            (control.play, control.shift, from..end)
        };
        let provider = (self.site.clone(), session.source.clone());
        // It opens a file: not on this thread.
        tokio::task::spawn_blocking(move || provider.0.images.provide(&provider.1));
        session.pacer.play(number, shift, packets.clone());
        Ok(self.playing(request, &session, play, shift, packets))
    }

    /// The answer to PLAY: what is really played, and the RTP coordinates of its first packet.
    fn playing(
        &self,
        request: &Request,
        session: &Session,
        play: &Play,
        shift: Shift,
        packets: Range<u64>,
    ) -> Response {
        let plan = &session.source.asset.plan;
        let url = format!(
            "{}{}",
            wire::rtsp::content_base(&self.url(request, &session.source.asset)),
            wire::sdp::CONTROL
        );
        let end = if packets.end >= plan.packets() {
            plan.duration_ticks()
        } else {
            plan.ticks(packets.end)
        };
        let info = RtpInfo {
            url: &url,
            sequence: plan
                .identity()
                .first_sequence
                .wrapping_add(packets.start as u16)
                .wrapping_add(shift.sequence),
            timestamp: plan.timestamp(plan.ticks(packets.start)).wrapping_add(shift.timestamp),
        };
        let start = duration(plan.ticks(packets.start));
        Response::play(request, &session.id, play, start, Some(duration(end)), info)
    }

    async fn pause(&self, request: &Request) -> Result<Response, Response> {
        let session = self.session(request)?;
        let before = session
            .control
            .lock()
            .unwrap()
            .state
            .pause(self.site.now())
            .map_err(|no| Response::not_in_this_state(request, no.allow))?;
        if before == State::Playing
            && let Some(next) = session.pacer.pause().await
        {
            session.control.lock().unwrap().resume = next;
        }
        Ok(Response::in_session(request, &session.id))
    }

    /// The asset's address as this client knows the server.
    fn url(&self, request: &Request, asset: &Asset) -> String {
        let local = self.local.to_string();
        let authority = request.authority.as_deref().unwrap_or(&local);
        format!("rtsp://{authority}/{}", wire::http::escape_path(&asset.name))
    }
}

/// A range in packets; `None` where the client left it open.
struct Wanted {
    from: Option<u64>,
    end: Option<u64>,
}

/// Where a range lies in the plan: it begins at the entry at or before its start (RFC 2326 §10.5
/// lets the server choose the nearest place that can be played and say so in its Range header).
/// `None` if it lies beyond the end or ends before it begins.
fn resolve(plan: &Plan, range: NptRange) -> Option<Wanted> {
    let end = range.end.map(ticks);
    let from = match range.start {
        NptStart::Now => None,
        NptStart::At(start) => {
            let start = ticks(start);
            let empty = end.is_some_and(|end| end <= start);
            if empty || start >= plan.duration_ticks().max(1) {
                return None;
            }
            Some(plan.entry(start))
        }
    };
    let end = end.map(|end| plan.packets_before(end).max(from.map_or(1, |from| from + 1)));
    Some(Wanted { from, end: end.filter(|&end| end < plan.packets()) })
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
            Denied::DescriptorsSpent => Status::NotEnoughBandwidth,
            Denied::Host(_) => Status::InternalServerError,
        },
        NoAsset::Refused(_) => Status::UnsupportedMediaType,
        NoAsset::Changing => Status::ServiceUnavailable,
        NoAsset::Unreadable(_) => Status::InternalServerError,
    };
    tracing::info!("rtsp {}: {error}", request.path);
    Response::new(status, request).body("text/plain", format!("{error}\n"))
}

const READ_BYTES: usize = 2048;
/// Early, so that a client can relate the stream to the clock on the wall soon.
const FIRST_REPORT: Duration = Duration::from_millis(500);
