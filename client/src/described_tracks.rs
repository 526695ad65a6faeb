// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks that a description alone tells of: they are received at its ports, and nobody is asked.
//!
//! Such descriptions come from encoders (`ffmpeg -f rtp -sdp_file`) and studios. Groups are joined.
//! A sender is the one whose packet comes first on each port; where it has been silent for
//! [`REPLACED_AFTER`] and another sends, as an encoder that was started anew, the caller begins
//! again.
//!
//! Sources: RFC 8866 §5.7, §5.14; RFC 3550 §11 (ports).
//! Does not read `a=rtcp` or `a=source-filter`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

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

    /// Waits until all senders have said BYE, another has taken the place of one, or nothing has
    /// come for `silence` after something has; returns which.
    pub async fn ended(&self, silence: Duration) -> String {
        let quiet = async {
            let mut foreign = ForeignSenders::new(self.tracks);
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let heard: Vec<_> = self.stream.heard().collect();
                let now = Instant::now();
                if foreign.have_replaced(&heard, now) {
                    break "another sender has begun on its port".to_owned();
                }
                let last = heard.iter().filter_map(|(last, _)| *last).max();
                if last.is_some_and(|last| now.saturating_duration_since(last) >= silence) {
                    break format!("nothing came for {} s", silence.as_secs());
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

/// Senders that are not followed, track by track.
struct ForeignSenders {
    /// The last packet that was followed, and the datagrams of others until then.
    seen: Vec<(Option<Instant>, u64)>,
}

impl ForeignSenders {
    fn new(tracks: usize) -> ForeignSenders {
        ForeignSenders { seen: vec![(None, 0); tracks] }
    }

    /// True when the sender of a track has fallen silent while another sends.
    fn have_replaced(&mut self, heard: &[(Option<Instant>, u64)], now: Instant) -> bool {
        let mut is_replaced = false;
        for (seen, &(last, foreign)) in self.seen.iter_mut().zip(heard) {
            if seen.0 != last {
                *seen = (last, foreign);
            }
            let is_silent =
                last.is_some_and(|last| now.saturating_duration_since(last) >= REPLACED_AFTER);
            is_replaced |= is_silent && foreign - seen.1 >= REPLACED_BY;
        }
        is_replaced
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
/// Silence of a sender after which another may take its place: longer than the time between the
/// pictures of a slow camera.
const REPLACED_AFTER: Duration = Duration::from_secs(1);
/// Datagrams of others meanwhile: a stray one replaces nobody.
const REPLACED_BY: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_sender_takes_the_place_of_a_silent_one_alone() {
        let mut foreign = ForeignSenders::new(2);
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut replaced = |ms, first, second| foreign.have_replaced(&[first, second], at(ms));
        let none = (None, 0);
        assert!(!replaced(0, none, none), "nothing has come");
        // Another sends beside the one that is followed.
        assert!(!replaced(100, (Some(at(90)), 50), (Some(at(80)), 0)));
        assert!(!replaced(1000, (Some(at(990)), 500), (Some(at(80)), 0)), "silent, and alone");
        // The second track's sender is replaced, whatever the first's does.
        assert!(!replaced(1050, (Some(at(1040)), 500), (Some(at(80)), 3)));
        assert!(!replaced(1070, (Some(at(1040)), 500), (Some(at(80)), 4)), "not for long enough");
        assert!(replaced(1080, (Some(at(1040)), 500), (Some(at(80)), 4)));
        assert!(!replaced(1100, (Some(at(1090)), 600), (Some(at(1095)), 900)), "it is back");
    }
}
