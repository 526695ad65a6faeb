// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the transport of a session in SETUP and enters the session in a pacer.
//!
//! SETUP accepts the client's first transport offer that this server supports (RFC 2326 §12.39).
//! Over UDP a session costs a connected socket; an interleaved session uses the connection of its
//! SETUP, and ends with it. A channel that is sent to a multicast group is granted as that group,
//! and costs nothing.
//!
//! Sources: RFC 2326 §10.4, §10.12, §12.39.
//! The tracks of a file are set up one by one into one session, all over one kind of transport; a
//! transport stream is one stream.

use std::sync::Arc;

use media::payload::rtp_format;
use media::tracks::Presentation;
use parking_lot::Mutex;
use paths::{Destination, SendStats};
use wire::rtsp::{
    ChannelPair, GrantedTransport, PortPair, Request, Response, Status, TransportOffer, asset_track,
};

use super::describe::dynamic_payload_type;
use super::{RtspConnection, control, no_asset};
use crate::channel::{ChannelConfig, SendFormat, SendTarget, name_at};
use crate::library::asset::{LibraryAsset, Source};
use crate::library::track_asset::TrackSource;
use crate::limits::{Refused, SessionPermit};
use crate::listener::is_exhausted;
use crate::meter::Meters;
use crate::pacer::media_target::{MediaTarget, StreamTarget};
use crate::pacer::{Handle, PacedSession, PacedStream, PacedTrack, PacedTracks};
use crate::play::Link;
use crate::rtsp::media_ports::{is_own_address, media_socket};
use crate::rtsp::session_transport::{SessionTransport, UdpTransport};
use crate::rtsp::stream_session::{
    NewSession, RtpStream, SessionContent, SessionControl, StreamSession,
};

/// Transport chosen for a session.
#[derive(Debug, Clone, Copy)]
enum ChosenTransport {
    Udp(PortPair),
    Interleaved(ChannelPair),
    /// The group to which the channel sends regardless of sessions.
    Multicast(GrantedTransport),
}

impl RtspConnection {
    pub(super) async fn setup(
        &self,
        request: &Request,
        offers: &[TransportOffer],
    ) -> Result<Response, Response> {
        if request.session.is_some() {
            return self.setup_track(request, offers).await;
        }
        let chosen = self.choose(request, offers)?;
        let full = |refused| self.refuse(request, Status::NotEnoughBandwidth, refused);
        let mut permit = self.server.limits.set_up(self.peer.ip(), &self.sessions).map_err(full)?;
        let asset = self.asset(request).await?;
        // The look-up above has admitted the request; that grant is remembered.
        let user = self.admit(request).await?.user;
        self.reserve(chosen, &asset, user.clone(), &mut permit).map_err(full)?;
        let opened = |error| no_asset(request, &error);
        let library = &self.server.library;
        let session = match &asset {
            LibraryAsset::Stream(asset) => {
                let open = || library.open(&asset.name, &asset.key);
                let source = asset.source(open).map_err(opened)?;
                self.open_session(chosen, source, permit)
            }
            LibraryAsset::Tracks(asset) => {
                let track = track_of(request, &asset.presentation)?;
                let open = || library.open(&asset.name, &asset.key);
                let source = asset.source(open).map_err(opened)?;
                self.open_track_session(chosen, (source, track), permit)
            }
        };
        let session = session.map_err(|error| self.not_opened(request, &error))?;
        if let Some(user) = user {
            let _ = session.user.set(user.to_string());
        }
        Ok(self.granted(request, &session, &session.first_stream(), chosen))
    }

    /// Reserves the session's share of the permitted rates, and refuses the session if it would
    /// make others late. Media to a group reserves nothing: it is sent regardless of sessions.
    fn reserve(
        &self,
        chosen: ChosenTransport,
        asset: &LibraryAsset,
        user: Option<Arc<str>>,
        permit: &mut SessionPermit,
    ) -> Result<(), Refused> {
        let (limits, is_group) =
            (&self.server.limits, matches!(chosen, ChosenTransport::Multicast(_)));
        let bits_per_s = match asset {
            _ if is_group => 0,
            LibraryAsset::Stream(asset) => asset.plan.bits_per_second(),
            LibraryAsset::Tracks(asset) => asset.presentation.bits_per_second(),
        };
        permit.take_share(user, (asset.name(), bits_per_s))?;
        let Some(load_max) = limits.limits().admit_load.filter(|_| !is_group) else {
            return Ok(());
        };
        let all = limits.session_bits_per_s();
        match self.server.capacity.has_room(&self.server.meters, all, load_max) {
            true => Ok(()),
            false => Err(Refused::Load),
        }
    }

    /// Adds a track to a session that already has one of the same file.
    async fn setup_track(
        &self,
        request: &Request,
        offers: &[TransportOffer],
    ) -> Result<Response, Response> {
        let session = self.session(request)?;
        let set_up = session.control.lock().state.setup(self.server.now());
        let refusal = |status| Response::new(status, request);
        let SessionContent::Tracks(source) = &session.content else {
            // A transport stream is one stream: no second can be added to its session.
            return Err(refusal(Status::AggregateOperationNotAllowed));
        };
        set_up.map_err(|no| Response::not_in_this_state(request, no.allow))?;
        let asset = self.asset(request).await?;
        let track = track_of(request, &source.asset.presentation)?;
        let is_other = asset.name() != source.asset.name;
        if is_other || session.streams().iter().any(|stream| stream.track == track) {
            return Err(refusal(Status::AggregateOperationNotAllowed));
        }
        let chosen = self.choose(request, offers)?;
        let is_interleaved = matches!(chosen, ChosenTransport::Interleaved(_));
        if is_interleaved != session.is_interleaved() {
            let body = "all tracks of a session use one transport\n";
            return Err(refusal(Status::UnsupportedTransport).body("text/plain", body));
        }
        let opened = self.open_stream(chosen, source, track);
        let (stream, paced) = opened.map_err(|error| self.not_opened(request, &error))?;
        if !self.server.sessions.add_stream(&session, stream.clone()) {
            return Err(refusal(Status::SessionNotFound));
        }
        session.control.lock().has_new_track = true;
        if let Some(pacer) = &session.pacer {
            self.server.pacers.add_track(pacer, paced);
        }
        self.take_channels(chosen, &session);
        Ok(self.granted(request, &session, &stream, chosen))
    }

    /// Returns the response to a SETUP for which there is no port, socket or route.
    fn not_opened(&self, request: &Request, error: &std::io::Error) -> Response {
        if is_exhausted(error) || error.kind() == std::io::ErrorKind::AddrInUse {
            return self.refuse(request, Status::NotEnoughBandwidth, Refused::Sessions);
        }
        Meters::count(&self.server.meters.sessions_refused);
        tracing::warn!("session for {}: {error}", self.peer);
        Response::new(Status::DestinationUnreachable, request)
    }

    fn granted(
        &self,
        request: &Request,
        session: &StreamSession,
        stream: &RtpStream,
        chosen: ChosenTransport,
    ) -> Response {
        let ssrc = stream.ssrc;
        let granted = match (&stream.transport, chosen) {
            (SessionTransport::Udp(udp), ChosenTransport::Udp(client)) => GrantedTransport::Udp {
                client,
                server: PortPair { rtp: udp.lease.rtp, rtcp: udp.lease.rtp + 1 },
                ssrc,
                source: Some(self.local.ip().to_canonical()),
            },
            (SessionTransport::Interleaved { channels, .. }, _) => {
                GrantedTransport::Interleaved { channels: *channels, ssrc }
            }
            (SessionTransport::Multicast { .. }, ChosenTransport::Multicast(group)) => group,
            (SessionTransport::Udp(_) | SessionTransport::Multicast { .. }, _) => {
                unreachable!("a stream has the chosen transport")
            }
        };
        Response::setup(request, &session.id, session.timeout, &granted)
    }

    /// Returns the transport of the first offer that can be served.
    fn choose(
        &self,
        request: &Request,
        offers: &[TransportOffer],
    ) -> Result<ChosenTransport, Response> {
        let mut forbidden_port = false;
        for offer in offers {
            match offer {
                // Streaming to a third party's address on a client's request would make this server
                // a tool for floods.
                TransportOffer::Udp { destination: Some(address), .. }
                    if address.parse().ok() != Some(self.peer.ip().to_canonical()) => {}
                TransportOffer::Udp { ports, .. } if self.may_send_to(*ports) => {
                    return Ok(ChosenTransport::Udp(*ports));
                }
                TransportOffer::Udp { .. } => forbidden_port = true,
                TransportOffer::Interleaved { channels } => {
                    if let Some(channels) = self.free_channels(*channels) {
                        return Ok(ChosenTransport::Interleaved(channels));
                    }
                }
                TransportOffer::Multicast => {
                    if let Some(group) = self.channel(request).and_then(|c| self.group_of(&c)) {
                        return Ok(ChosenTransport::Multicast(group));
                    }
                }
            }
        }
        if forbidden_port {
            return Err(self.refuse(request, Status::UnsupportedTransport, Refused::ClientPort));
        }
        let refusal = Response::new(Status::UnsupportedTransport, request);
        Err(refusal.body("text/plain", format!("{TRANSPORTS}\n")))
    }

    /// Returns the settings of the channel that a request names.
    fn channel(&self, request: &Request) -> Option<ChannelConfig> {
        let name = name_at(wire::rtsp::asset_path(&request.path))?;
        self.server.live.current().channel(name).cloned()
    }

    /// Returns the first group of a channel that a client of this address family can join.
    fn group_of(&self, channel: &ChannelConfig) -> Option<GrantedTransport> {
        let is_v4 = self.peer.ip().to_canonical().is_ipv4();
        let joins = |target: &&SendTarget| {
            let is_rtp = target.format == SendFormat::Rtp;
            target.is_multicast() && is_rtp && target.address.is_ipv4() == is_v4
        };
        let target = channel.targets.iter().find(joins)?;
        let port = target.address.port();
        Some(GrantedTransport::Multicast {
            group: target.address.ip(),
            ports: PortPair { rtp: port, rtcp: port + 1 },
            ttl: channel.ttl,
            source: channel.source_of(target),
            ssrc: channel.ssrc(),
        })
    }

    /// Returns the channels the client wants if they are free, otherwise the first free pair;
    /// `None` when the connection has none left.
    fn free_channels(&self, wanted: Option<ChannelPair>) -> Option<ChannelPair> {
        let mut used = self.channels.lock();
        used.retain(|_, session| session.strong_count() > 0);
        let is_free =
            |pair: &ChannelPair| !used.contains_key(&pair.rtp) && !used.contains_key(&pair.rtcp);
        let pairs = (0..=254).step_by(2).map(|rtp| ChannelPair { rtp, rtcp: rtp + 1 });
        wanted.filter(is_free).or_else(|| pairs.into_iter().find(is_free))
    }

    /// True if media may be sent to these ports: neither a system port nor one of this server.
    fn may_send_to(&self, ports: PortPair) -> bool {
        let (server, wanted) = (&self.server, [ports.rtp, ports.rtcp]);
        let is_low = wanted.iter().any(|&port| port < USER_PORTS);
        let is_own = || wanted.iter().any(|&port| server.ports.own(port));
        (!is_low || server.limits.limits().low_ports)
            && !(is_own() && is_own_address(self.peer.ip().to_canonical()))
    }

    fn open_session(
        &self,
        chosen: ChosenTransport,
        source: Arc<Source>,
        permit: SessionPermit,
    ) -> std::io::Result<Arc<StreamSession>> {
        let rate = source.asset.plan.bits_per_second();
        let (transport, target) = self.open_transport(chosen, rate)?;
        let link = Arc::new(Link::default());
        let number = self.server.sessions.number();
        let pacer = target.map(|target| {
            let stream = Box::new(PacedStream::new(source.clone(), target, link.clone()));
            self.server.pacers.add(number, PacedSession::Stream(stream))
        });
        let stream = Arc::new(RtpStream {
            track: 0,
            ssrc: source.asset.plan.identity().ssrc,
            clock_rate_hz: wire::mp2t::CLOCK_RATE_HZ,
            link,
            transport,
            receiver: Mutex::default(),
        });
        let content = SessionContent::Stream(source);
        Ok(self.enter(chosen, (number, content), stream, pacer, permit))
    }

    fn open_track_session(
        &self,
        chosen: ChosenTransport,
        (source, track): (Arc<TrackSource>, usize),
        permit: SessionPermit,
    ) -> std::io::Result<Arc<StreamSession>> {
        let (stream, paced) = self.open_stream(chosen, &source, track)?;
        let number = self.server.sessions.number();
        let tracks = Box::new(PacedTracks::new(source.clone(), paced));
        let pacer = self.server.pacers.add(number, PacedSession::Tracks(tracks));
        let content = SessionContent::Tracks(source);
        Ok(self.enter(chosen, (number, content), stream, Some(pacer), permit))
    }

    /// Opens the transport of a track; returns its control half and its pacer half.
    fn open_stream(
        &self,
        chosen: ChosenTransport,
        source: &Arc<TrackSource>,
        track: usize,
    ) -> std::io::Result<(Arc<RtpStream>, PacedTrack)> {
        let presentation = &source.asset.presentation;
        let about = &presentation.tracks()[track];
        // One connection carries all tracks, so the rate is that of the presentation.
        let (transport, target) = self.open_transport(chosen, presentation.bits_per_second())?;
        let target = target.ok_or(std::io::ErrorKind::Unsupported)?;
        let link = Arc::new(Link::default());
        let payload_type = rtp_format(&about.codec, dynamic_payload_type(track)).payload_type;
        let paced = PacedTrack::new(source, (track, payload_type), target, link.clone());
        let stream = RtpStream {
            track,
            ssrc: about.identity.ssrc,
            clock_rate_hz: about.codec.clock_rate_hz(),
            link,
            transport,
            receiver: Mutex::default(),
        };
        Ok((Arc::new(stream), paced))
    }

    /// Enters a new session in the tables.
    fn enter(
        &self,
        chosen: ChosenTransport,
        (number, content): (u64, SessionContent),
        stream: Arc<RtpStream>,
        pacer: Option<Handle>,
        permit: SessionPermit,
    ) -> Arc<StreamSession> {
        let server = &self.server;
        let timeout = server.live.current().session_timeout;
        let play_within = server.limits.limits().play_within;
        let state = wire::rtsp::RtspSession::new(server.now(), timeout, play_within);
        let session = Arc::new(StreamSession::new(NewSession {
            timeout,
            number,
            began: server.clock.now(),
            peer: self.peer.ip(),
            connection: self.number,
            stream,
            pacer,
            control: SessionControl::new(&content, state),
            content,
            permit,
        }));
        self.take_channels(chosen, &session);
        server.sessions.insert(session.clone());
        Meters::count(&server.meters.sessions_total);
        session
    }

    /// Enters the channels of an interleaved transport in the connection's table.
    fn take_channels(&self, chosen: ChosenTransport, session: &Arc<StreamSession>) {
        if let ChosenTransport::Interleaved(channels) = chosen {
            let mut by_channel = self.channels.lock();
            for channel in [channels.rtp, channels.rtcp] {
                by_channel.insert(channel, Arc::downgrade(session));
            }
        }
    }

    /// Opens a transport; media to a group has no target of its own.
    fn open_transport(
        &self,
        chosen: ChosenTransport,
        bits_per_second: u64,
    ) -> std::io::Result<(SessionTransport, Option<MediaTarget>)> {
        Ok(match chosen {
            ChosenTransport::Udp(ports) => {
                let (transport, target) = self.open_udp(ports)?;
                (transport, Some(target))
            }
            ChosenTransport::Interleaved(channels) => {
                let (transport, target) = self.open_interleaved(channels, bits_per_second);
                (transport, Some(target))
            }
            ChosenTransport::Multicast(_) => {
                (SessionTransport::Multicast { peer: self.peer }, None)
            }
        })
    }

    fn open_udp(&self, ports: PortPair) -> std::io::Result<(SessionTransport, MediaTarget)> {
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
        let rtcp_task = lease.own.then(|| {
            let receive = control::receive_rtcp(lease.rtcp.clone(), Arc::downgrade(server));
            tokio::spawn(receive).abort_handle()
        });
        let rtcp = lease.rtcp.clone();
        let udp = UdpTransport { rtp_peer, rtcp_peer, rtcp, rtcp_task, lease };
        Ok((SessionTransport::Udp(udp), MediaTarget::Datagrams(Box::new(to))))
    }

    fn open_interleaved(
        &self,
        channels: ChannelPair,
        bits_per_second: u64,
    ) -> (SessionTransport, MediaTarget) {
        let output = self.output.clone();
        // A second of media: more would hide a slow reader, less would starve a fast one far away.
        let unsent = (bits_per_second / 8).clamp(UNSENT_BYTES.0, UNSENT_BYTES.1) as u32;
        let limited = output.lock().set_unsent_bytes_max(unsent, &mut SendStats::default());
        if let Err(error) = limited {
            // The socket's own limit applies then.
            tracing::debug!("{error}");
        }
        let target = MediaTarget::Stream(StreamTarget::new(output.clone(), channels.rtp));
        (SessionTransport::Interleaved { output, channels, peer: self.peer }, target)
    }
}

/// Returns the index of the track that a SETUP names. A presentation with one track is also named
/// by its own URL.
fn track_of(request: &Request, presentation: &Presentation) -> Result<usize, Response> {
    let tracks = presentation.tracks().len();
    match asset_track(&request.path) {
        Some(track) if track < tracks => Ok(track),
        Some(_) => Err(Response::new(Status::NotFound, request)),
        None if tracks == 1 => Ok(0),
        None => Err(Response::new(Status::AggregateOperationNotAllowed, request)),
    }
}

/// First user port (RFC 6335 §6).
const USER_PORTS: u16 = 1024;
/// Least and most bytes that the kernel holds unsent for a reader over TCP.
const UNSENT_BYTES: (u64, u64) = (128 << 10, 4 << 20);
/// Body of the 461 response.
const TRANSPORTS: &str = "RTP over UDP (Transport: RTP/AVP;unicast;client_port=PORT-PORT) to the \
    client's own address and RTP on this connection (Transport: \
    RTP/AVP/TCP;unicast;interleaved=0-1) are offered, with two channels of 0 to 255; \
    RTP/AVP;multicast for a channel with an RTP group";
