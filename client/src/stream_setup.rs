// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends SETUP of a play by each transport, and returns the sources of packets and reports.
//!
//! Sources: RFC 2326 §10.4, §10.12, §12.39.
//! Does not send PLAY.

use std::net::IpAddr;

use wire::rtsp::client::SetupReply;
use wire::rtsp::{ChannelPair, TransportOffer};

use super::frame_reader::FrameQueue;
use super::multicast;
use super::packet_intake::PacketInput;
use super::read_pace::ReadPace;
use super::rtcp_reporter::{RtcpLink, report_target};
use super::rtsp_connection::RtspConnection;
use super::socket_pair::{SocketPair, udp_offer};
use super::transport::StreamTransport;
use crate::error::Error;

/// A stream after SETUP.
pub(super) struct StreamSetup {
    pub(super) reply: SetupReply,
    /// Host that sends the media.
    pub(super) host: IpAddr,
    pub(super) input: PacketInput,
    pub(super) rtcp: RtcpLink,
    /// Place where packets are expected, for messages.
    pub(super) place: String,
    /// Receive buffer that the kernel granted for RTP; zero where TCP chooses it.
    pub(super) buffer_bytes: usize,
}

/// Sends SETUP of each stream by its URL, over one transport.
pub(super) async fn set_up_streams(
    control: &mut RtspConnection,
    transport: StreamTransport,
    urls: &[String],
) -> Result<Vec<StreamSetup>, Error> {
    let mut streams = Vec::with_capacity(urls.len());
    if transport.is_interleaved() {
        streams = interleaved(control, urls).await?;
    } else {
        for url in urls {
            streams.push(match transport {
                StreamTransport::Multicast => of_group(control, url).await?,
                _ => udp(control, url).await?,
            });
        }
    }
    for StreamSetup { reply, .. } in &streams {
        control.note_ignored("SETUP", &reply.ignored);
    }
    Ok(streams)
}

async fn udp(control: &mut RtspConnection, url: &str) -> Result<StreamSetup, Error> {
    let SocketPair { rtp, rtcp, ports, buffer_bytes } = SocketPair::bind(control.local)?;
    let reply = ask(control, url, &udp_offer(ports)).await?;
    let host = sender_of(&reply, control);
    let to = report_target(&reply, host, control.remote);
    Ok(StreamSetup {
        reply,
        host,
        input: PacketInput::Socket(rtp),
        rtcp: RtcpLink::udp(rtcp, Some(host), to)?,
        place: format!("to UDP port {}", ports.rtp),
        buffer_bytes,
    })
}

async fn interleaved(
    control: &mut RtspConnection,
    urls: &[String],
) -> Result<Vec<StreamSetup>, Error> {
    let mut granted = Vec::with_capacity(urls.len());
    let (mut sinks, mut queues) = (Vec::new(), Vec::new());
    let mut used = Vec::new();
    for (number, url) in urls.iter().enumerate() {
        let (reply, channels) = set_up_channels_of(control, url, number, &mut used).await?;
        let (sink, queue) = FrameQueue::new(control.server);
        sinks.push((channels, sink));
        queues.push(queue);
        granted.push((reply, channels));
    }
    let rtcp = control.read_streams(sinks, ReadPace::Prompt);
    let streams = granted.into_iter().zip(queues).zip(rtcp);
    Ok(streams
        .map(|(((reply, channels), queue), rtcp)| StreamSetup {
            reply,
            host: control.remote,
            input: PacketInput::Frames(queue),
            rtcp: RtcpLink::Channel(rtcp),
            place: format!("on channel {}", channels.rtp),
            buffer_bytes: 0,
        })
        .collect())
}

async fn of_group(control: &mut RtspConnection, url: &str) -> Result<StreamSetup, Error> {
    let reply = ask(control, url, &TransportOffer::Multicast).await?;
    let group = reply.multicast.clone();
    let group = group.and_then(|group| Some((multicast::group_address(&group)?, group)));
    let Some((address, group)) = group else {
        return Err(control.fault("SETUP", "no multicast group was granted (RFC 2326 §12.39)"));
    };
    let source = reply.source.as_deref().and_then(|source| source.parse::<IpAddr>().ok());
    let sockets = multicast::join(address, &group, source, control.local)?;
    let host = source.unwrap_or(control.remote);
    // RFC 3550 §6: reports go to the group; RFC 5760 §7.2: to the sender of a source-specific
    // group.
    let to = source.is_none().then_some(sockets.rtcp_address);
    Ok(StreamSetup {
        reply,
        host,
        input: PacketInput::Socket(sockets.rtp),
        rtcp: RtcpLink::udp(sockets.rtcp, Some(host), to)?,
        place: format!("to the group {}", sockets.address),
        buffer_bytes: sockets.buffer_bytes,
    })
}

/// Sends SETUP for RTP of the only stream on this connection; the server may choose other channels
/// than the offered ones.
pub(super) async fn set_up_channels(
    control: &mut RtspConnection,
) -> Result<(SetupReply, ChannelPair), Error> {
    let url = control.client.stream_url().to_owned();
    let set_up = set_up_channels_of(control, &url, 0, &mut Vec::new()).await?;
    control.note_ignored("SETUP", &set_up.0.ignored);
    Ok(set_up)
}

/// Sends SETUP of the stream with this number on this connection. Where the answer names no
/// channels, or those of an earlier stream (`used`), the requested ones are used: a server cannot
/// mean the same channels for two streams.
pub(super) async fn set_up_channels_of(
    control: &mut RtspConnection,
    url: &str,
    number: usize,
    used: &mut Vec<ChannelPair>,
) -> Result<(SetupReply, ChannelPair), Error> {
    let first = (2 * number) as u8;
    let requested = ChannelPair { rtp: first, rtcp: first + 1 };
    let offer = TransportOffer::Interleaved { channels: Some(requested) };
    let reply = ask(control, url, &offer).await?;
    if !reply.is_interleaved {
        return Err(control.fault("SETUP", "another transport than interleaved was granted"));
    }
    let both = |pair: &ChannelPair| [pair.rtp, pair.rtcp];
    let is_free = |channels: &ChannelPair| {
        !used.iter().flat_map(both).any(|before| both(channels).contains(&before))
    };
    let channels = reply.channels.filter(is_free).unwrap_or(requested);
    used.push(channels);
    Ok((reply, channels))
}

/// Sends SETUP of a stream by its URL.
pub(super) async fn ask(
    control: &mut RtspConnection,
    url: &str,
    offer: &TransportOffer,
) -> Result<SetupReply, Error> {
    let reply = control.ask("SETUP", |client| client.setup_stream(url, offer)).await?;
    let set_up = control.client.set_up(&reply);
    set_up.map_err(|malformed| control.fault("SETUP", malformed))
}

/// Host that sends the media: the one in the answer, otherwise the server.
pub(super) fn sender_of(reply: &SetupReply, control: &RtspConnection) -> IpAddr {
    let source = reply.source.as_deref().and_then(|source| source.parse::<IpAddr>().ok());
    source.unwrap_or(control.remote)
}
