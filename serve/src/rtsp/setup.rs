// SPDX-License-Identifier: MIT OR Apache-2.0
//! setup: SETUP: chooses the transport of a session and enters the session in a pacer.
//!
//! The first offer of the client that this server can serve is taken (RFC 2326 §12.39). Over UDP a
//! session costs a connected socket; interleaved it uses the connection it was set up on, and ends
//! with it. A channel that is sent to a multicast group is granted as that group, and costs
//! nothing.
//!
//! Sources: RFC 2326 §10.4, §10.12, §12.39.
//! Does not add a second stream to a session: a presentation has one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use paths::{Destination, SendStats};
use wire::rtsp::{
    ChannelPair, ControlChannel, GrantedTransport, PortPair, Request, Response, Status,
    TransportOffer,
};

use super::{RtspConnection, control, no_asset};
use crate::channel::{ChannelConfig, SendFormat, SendTarget, name_at};
use crate::library::asset::Source;
use crate::limits::{Refused, SessionPermit};
use crate::listener::is_exhausted;
use crate::meter::Meters;
use crate::pacer::PacedStream;
use crate::pacer::media_target::{MediaTarget, StreamTarget};
use crate::rtsp::media_ports::{is_own_address, media_socket};
use crate::rtsp::session_transport::{SessionTransport, UdpTransport};
use crate::rtsp::stream_session::{
    Link, SessionControl, Shift, StreamSession, random_cname, random_id,
};

/// Transport that a session is to have.
#[derive(Debug, Clone, Copy)]
enum ChosenTransport {
    Udp(PortPair),
    Interleaved(ChannelPair),
    /// The group to which the channel sends in any case.
    Multicast(GrantedTransport),
}

impl RtspConnection {
    pub(super) async fn setup(
        &self,
        request: &Request,
        offers: &[TransportOffer],
    ) -> Result<Response, Response> {
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
        let chosen = self.choose(request, offers)?;
        let full = |refused| self.refuse(request, Status::NotEnoughBandwidth, refused);
        let permit = self.server.limits.set_up(self.peer.ip(), &self.sessions).map_err(full)?;
        let asset = self.asset(request).await?;
        let opened = asset.source(|| self.server.library.open(&asset));
        let source = opened.map_err(|error| no_asset(request, &error))?;
        let session = self.open_session(chosen, source, permit).map_err(|error| {
            if is_exhausted(&error) || error.kind() == std::io::ErrorKind::AddrInUse {
                return full(Refused::Sessions);
            }
            Meters::count(&self.server.meters.sessions_refused);
            tracing::warn!("session for {}: {error}", self.peer);
            Response::new(Status::DestinationUnreachable, request)
        })?;
        let ssrc = session.source.asset.plan.identity().ssrc;
        let granted = match (&session.transport, chosen) {
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
                unreachable!("a session has the chosen transport")
            }
        };
        let timeout = self.server.config.session_timeout;
        Ok(Response::setup(request, &session.id, timeout, &granted))
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
                    if let Some(group) = self.channel(request).and_then(|c| self.group_of(c)) {
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
    fn channel(&self, request: &Request) -> Option<&ChannelConfig> {
        let name = name_at(wire::rtsp::asset_path(&request.path))?;
        self.server.config.channels.iter().find(|channel| channel.name == name)
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
        let mut taken = self.channels.lock().unwrap();
        taken.retain(|_, session| session.strong_count() > 0);
        let is_free =
            |pair: &ChannelPair| !taken.contains_key(&pair.rtp) && !taken.contains_key(&pair.rtcp);
        let pairs = (0..=254).step_by(2).map(|rtp| ChannelPair { rtp, rtcp: rtp + 1 });
        wanted.filter(is_free).or_else(|| pairs.into_iter().find(is_free))
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
        chosen: ChosenTransport,
        source: Arc<Source>,
        permit: SessionPermit,
    ) -> std::io::Result<Arc<StreamSession>> {
        let server = &self.server;
        let (transport, target) = match chosen {
            ChosenTransport::Udp(ports) => {
                let (transport, target) = self.open_udp(ports)?;
                (transport, Some(target))
            }
            ChosenTransport::Interleaved(channels) => {
                let rate = source.asset.plan.bits_per_second();
                let (transport, target) = self.open_interleaved(channels, rate);
                (transport, Some(target))
            }
            ChosenTransport::Multicast(_) => {
                (SessionTransport::Multicast { peer: self.peer }, None)
            }
        };
        let link = Arc::new(Link::default());
        let number = server.sessions.number();
        let end = source.limit();
        let pacer = target.map(|target| {
            let stream = Box::new(PacedStream::new(source.clone(), target, link.clone()));
            server.pacers.add(number, stream)
        });
        let session = Arc::new(StreamSession {
            number,
            id: random_id(),
            peer: self.peer.ip(),
            source: source.clone(),
            link,
            pacer,
            transport,
            cname: random_cname(),
            connection: self.number,
            control: Mutex::new(SessionControl {
                state: wire::rtsp::RtspSession::new(
                    server.now(),
                    server.config.session_timeout,
                    server.limits.limits.play_within,
                ),
                receiver: wire::rtcp::ReceiverView::default(),
                // A viewer of a channel joins where it is when he plays.
                resume: if source.asset.window().is_some() { u64::MAX } else { 0 },
                end,
                report_at: Duration::ZERO,
                shift: Shift::default(),
                bye_sent: false,
                play: 0,
            }),
            permit: Mutex::new(Some(permit)),
        });
        if let ChosenTransport::Interleaved(channels) = chosen {
            let mut by_channel = self.channels.lock().unwrap();
            for channel in [channels.rtp, channels.rtcp] {
                by_channel.insert(channel, Arc::downgrade(&session));
            }
        }
        server.sessions.insert(session.clone());
        Meters::count(&server.meters.sessions_total);
        Ok(session)
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
            // The socket's own limit holds.
            tracing::debug!("{error}");
        }
        let target = MediaTarget::Stream(StreamTarget::new(output.clone(), channels.rtp));
        (SessionTransport::Interleaved { output, channels, peer: self.peer }, target)
    }
}

/// First port for programs of users (RFC 6335 §6).
const USER_PORTS: u16 = 1024;
/// Least and most bytes that the kernel holds unsent for a reader over TCP.
const UNSENT_BYTES: (u64, u64) = (128 << 10, 4 << 20);
/// Body of 461.
const TRANSPORTS: &str = "RTP over UDP (Transport: RTP/AVP;unicast;client_port=PORT-PORT) to the \
    client's own address and RTP on this connection (Transport: \
    RTP/AVP/TCP;unicast;interleaved=0-1) are offered, with two channels of 0 to 255; \
    RTP/AVP;multicast for a channel with an RTP group";
