// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks that a description alone tells of: they are received at its ports, and nobody is asked.
//!
//! Such descriptions come from encoders (`ffmpeg -f rtp -sdp_file`) and studios. Groups are joined.
//! A sender is the one whose packet comes first on each port; where it has fallen silent and
//! another sends, the caller begins again.
//!
//! Sources: RFC 8866 §5.7, §5.14; RFC 3550 §11 (ports).
//! Does not read `a=rtcp` or `a=source-filter`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use wire::rtsp::client::{DescribedSession, StreamStart};

use super::chosen_stream::{ChosenStream, StreamChoice};
use super::frame_reader::FrameQueue;
use super::receive_thread::PacketInput;
use super::rtcp_reporter::RtcpLink;
use super::socket_pair::enlarge;
use super::track_stream::{TrackInput, TrackStream};
use crate::error::{ClientSetting, Error};

/// A session that a description tells of, received as one transport stream.
pub struct DescribedTracks {
    stream: TrackStream,
    tracks: usize,
    /// Address that its packets are said to come from: the first track's own.
    pub address: SocketAddr,
    /// Streams that are left out, each with its reason.
    pub left_out: Vec<String>,
}

impl DescribedTracks {
    /// Binds the ports of a description, joins its groups, and receives. Call it within a runtime
    /// of tokio. `name` is that of the description, for messages.
    ///
    /// # Errors
    /// Caller: no description, or one without tracks that can be put together. Host: ports.
    pub fn start(
        text: &[u8],
        name: &str,
        reports: bool,
    ) -> Result<(DescribedTracks, FrameQueue), Error> {
        let wrong = |cure: String| Error::Setting {
            setting: ClientSetting::Description,
            found: name.to_owned(),
            cure,
        };
        let offer = wire::sdp::parse_tracks(text).map_err(|fault| {
            wrong(format!("{fault}; write a description as `ffmpeg -sdp_file` does"))
        })?;
        let stream_urls = vec![String::new(); offer.tracks.len()];
        let StreamChoice { streams, left_out, .. } =
            StreamChoice::to_record(DescribedSession { offer, stream_urls });
        if streams.iter().any(|stream| stream.depayloader.is_none()) {
            let cure = "it describes an MPEG transport stream; receive udp://ADDRESS:PORT instead";
            return Err(wrong(cure.to_owned()));
        }
        if streams.is_empty() {
            return Err(wrong(left_out.join("; ")));
        }
        let mut inputs = Vec::with_capacity(streams.len());
        let mut first = None;
        for stream in streams {
            let at = address(&stream).ok_or_else(|| {
                wrong(format!(
                    "{} has no port or no address; write m=… PORT and c=IN IP4 ADDRESS",
                    stream.offer.format_name()
                ))
            })?;
            first.get_or_insert(at);
            inputs.push(input(stream, at)?);
        }
        let (address, tracks) = (first.expect("there is one"), inputs.len());
        let (stream, frames) = TrackStream::start(inputs, address, reports)?;
        stream.begin(&vec![StreamStart::default(); tracks]);
        Ok((DescribedTracks { stream, tracks, address, left_out }, frames))
    }

    /// Number of tracks.
    pub fn tracks(&self) -> usize {
        self.tracks
    }

    /// SSRC of the transport stream.
    pub fn ssrc(&self) -> u32 {
        self.stream.ssrc
    }

    /// Waits until all senders have said BYE, or nothing has come for `silence` after something
    /// has; returns which.
    pub async fn ended(&self, silence: Duration) -> String {
        let quiet = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let last = self.stream.last_packet();
                if last.is_some_and(|last| last.elapsed() >= silence) {
                    let seconds = silence.as_secs();
                    break match self.stream.unexpected() {
                        0 => format!("nothing came for {seconds} s"),
                        _ => format!("nothing came for {seconds} s, and another sends"),
                    };
                }
            }
        };
        tokio::select! {
            () = self.stream.bye() => "the sender said BYE".to_owned(),
            why = quiet => why,
        }
    }

    /// Ends the tracks, and waits until the last packets are in the queue.
    pub async fn finish(self) {
        self.stream.finish().await;
    }
}

/// Address at which a stream is received: its group, or all of this host's own by its family.
fn address(stream: &ChosenStream) -> Option<SocketAddr> {
    let port = Some(stream.offer.port).filter(|port| *port != 0)?;
    let ip = stream.offer.address?;
    Some(SocketAddr::new(ip, port))
}

fn input(stream: ChosenStream, at: SocketAddr) -> Result<TrackInput, Error> {
    let host = |call, at: SocketAddr| {
        move |source| Error::Host { call, object: format!("UDP {at}"), source }
    };
    let rtp = bound(at).map_err(host("bind", at))?;
    enlarge(&rtp).map_err(host("setsockopt SO_RCVBUF", at))?;
    let rtcp_at = SocketAddr::new(at.ip(), at.port().wrapping_add(1));
    let rtcp = bound(rtcp_at).map_err(host("bind", rtcp_at))?;
    let rtcp = RtcpLink::udp(rtcp, None, None)?;
    Ok(TrackInput { stream, input: PacketInput::Socket(rtp), rtcp, host: None, ssrc: None })
}

/// Binds a group's address and joins it; for any other, this host's own if it is that, or all.
fn bound(at: SocketAddr) -> io::Result<UdpSocket> {
    let open = |address: SocketAddr| {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if at.ip().is_multicast() {
            socket.set_reuse_address(true)?;
        }
        socket.bind(&address.into())?;
        io::Result::Ok(socket)
    };
    let socket = match open(at) {
        // The description may name the sender's side of a unicast stream.
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            let any: IpAddr = match at {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
            };
            open(SocketAddr::new(any, at.port()))?
        }
        opened => opened?,
    };
    match at.ip() {
        IpAddr::V4(group) if group.is_multicast() => {
            socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?;
        }
        IpAddr::V6(group) if group.is_multicast() => socket.join_multicast_v6(&group, 0)?,
        _ => {}
    }
    Ok(socket.into())
}

const LOOK_EVERY: Duration = Duration::from_millis(100);
