// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks announced by a session description alone: they are received at its ports, without RTSP.
//!
//! Such descriptions are written by encoders (`ffmpeg -f rtp -sdp_file`) and studios. Multicast
//! groups are joined. The sender of each port is the source of its first packet. The caller
//! restarts in two cases: the sender has been silent for [`REPLACED_AFTER`] and another one sends,
//! such as a restarted encoder; or another one sends ten times as much as its few packets.
//!
//! Sources: RFC 8866 §5.7, §5.14; RFC 3550 §11 (ports).
//! Does not read `a=rtcp` or `a=source-filter`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use clock::Clock;
use socket2::{Domain, Protocol, Socket, Type};
use wire::rtsp::client::{DescribedSession, StreamStart};
use wire::sources::{CONTEST_RATIO, WEAK_PACKETS};

use super::camera_thread::CameraThread;
use super::chosen_stream::{ChosenStream, StreamChoice};
use super::frame_reader::FrameQueue;
use super::packet_intake::PacketInput;
use super::recorded_media::RecordedMedia;
use super::refused_senders::RefusedSenders;
use super::rtcp_reporter::RtcpLink;
use super::socket_pair::enlarge;
use super::track_packetizer::TrackContainer;
use super::track_stream::{HeardTrack, TrackCounts, TrackInput, TrackStream};
use crate::error::{ClientSetting, Error};

/// A session known by its description, received as the packets of one file.
pub struct DescribedTracks {
    stream: TrackStream,
    tracks: usize,
    clock: Clock,
    /// Announced source address of its packets: that of the first track.
    pub address: SocketAddr,
    /// Names of the tracks that are recorded.
    pub recorded: Vec<String>,
    /// Streams that are left out, each with its reason.
    pub left_out: Vec<String>,
}

/// How the tracks of a description are recorded.
#[derive(Debug, Clone)]
pub struct DescribedOptions {
    /// Time at which the stream begins.
    pub at: Duration,
    /// Container of the tracks.
    pub container: TrackContainer,
    /// Tracks that are recorded.
    pub media: RecordedMedia,
    /// Sends receiver reports.
    pub reports: bool,
}

/// Sockets of a track.
#[derive(Debug)]
pub struct TrackSockets {
    /// Receives the packets of media.
    pub rtp: UdpSocket,
    /// Receives and sends reports.
    pub rtcp: UdpSocket,
}

impl DescribedTracks {
    /// Binds the ports of a description, joins its groups, and starts to receive. Must be called
    /// within a tokio runtime. `name` names the description in messages.
    ///
    /// # Errors
    /// Caller: no description, or no track of `media` with a depayloader. Host: ports.
    pub fn start(
        text: &[u8],
        name: &str,
        options: DescribedOptions,
    ) -> Result<(DescribedTracks, FrameQueue), Error> {
        let opened = DescribedTracks::open(text, name, options, &Clock::HOST, TrackSockets::bind)?;
        let (mut tracks, frames, camera) = opened;
        tracks.stream.run(camera)?;
        Ok((tracks, frames))
    }

    /// Does the same on a clock, with the sockets that `bind` returns for each address, and without
    /// a thread: the tracks are received by the [turns](CameraThread::turn) of the camera.
    ///
    /// # Errors
    /// As [`start`](Self::start), and those of `bind`.
    pub fn open(
        text: &[u8],
        name: &str,
        options: DescribedOptions,
        clock: &Clock,
        mut bind: impl FnMut(SocketAddr) -> Result<TrackSockets, Error>,
    ) -> Result<(DescribedTracks, FrameQueue, CameraThread), Error> {
        let DescribedOptions { at, container, media, reports } = options;
        let wrong = |cure: String| Error::Setting {
            setting: ClientSetting::Description,
            found: name.to_owned(),
            cure,
        };
        let offer = wire::sdp::parse_tracks(text).map_err(|fault| {
            wrong(format!("{fault}; write a description as `ffmpeg -sdp_file` does"))
        })?;
        let stream_urls = vec![String::new(); offer.tracks.len()];
        let described = DescribedSession { offer, stream_urls };
        let choice = StreamChoice::to_record(described, container.kind(), media);
        let StreamChoice { streams, left_out, .. } = choice.map_err(wrong)?;
        if streams.iter().any(|stream| stream.depayloader.is_none()) {
            let cure = "it describes an MPEG transport stream; receive udp://ADDRESS:PORT instead";
            return Err(wrong(cure.to_owned()));
        }
        if streams.is_empty() {
            return Err(wrong(left_out.join("; ")));
        }
        let recorded =
            streams.iter().map(|stream| stream.recorded_name(container.kind())).collect();
        let mut inputs = Vec::with_capacity(streams.len());
        let mut first = None;
        for stream in streams {
            let place = address(&stream).ok_or_else(|| {
                wrong(format!(
                    "{} has no port or no address; write m=… PORT and c=IN IP4 ADDRESS",
                    stream.offer.format_name()
                ))
            })?;
            first.get_or_insert(place);
            inputs.push(bind(place)?.into_input(stream)?);
        }
        let (address, tracks) = (first.expect("there is one"), inputs.len());
        let opened = TrackStream::open(name, inputs, address, reports, container, clock)?;
        let (stream, frames, camera) = opened;
        stream.begin(&vec![StreamStart::default(); tracks], at);
        let clock = clock.clone();
        let tracks = DescribedTracks { stream, tracks, clock, address, recorded, left_out };
        Ok((tracks, frames, camera))
    }

    /// Number of tracks.
    pub fn tracks(&self) -> usize {
        self.tracks
    }

    /// SSRC of the packets.
    pub fn ssrc(&self) -> u32 {
        self.stream.ssrc
    }

    /// Waits until all senders have sent BYE, a sender has been replaced, or no packet has arrived
    /// for `silence` after the first; returns the reason.
    pub async fn ended(&self, silence: Duration) -> String {
        let quiet = async {
            let mut foreign = ForeignSenders::new(self.tracks, self.clock.now());
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let heard: Vec<_> = self.stream.heard().collect();
                let now = self.clock.now();
                if foreign.have_replaced(&heard, now) {
                    break "another sender has begun on its port".to_owned();
                }
                let last = heard.iter().filter_map(|track| track.last).max();
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

    /// Counts so far, and the senders that were refused since the last call.
    pub fn news(&self) -> (TrackCounts, RefusedSenders) {
        self.stream.news()
    }

    /// Stops the tracks, and waits until the last packets are in the queue. Returns the last
    /// [`news`](Self::news). With `is_cut` the tracks continue without this receiver.
    pub async fn finish(self, is_cut: bool) -> (TrackCounts, RefusedSenders) {
        self.stream.finish(is_cut).await
    }
}

/// Senders that are not followed, for each track, by the rules of `wire::sources`.
struct ForeignSenders {
    tracks: Vec<ForeignSender>,
    /// Start of the current second.
    since: Instant,
}

#[derive(Clone, Copy, Default)]
struct ForeignSender {
    /// State at the last packet of the followed sender.
    at_last: HeardTrack,
    /// State at the start of the current second.
    at_second: HeardTrack,
}

impl ForeignSenders {
    fn new(tracks: usize, now: Instant) -> ForeignSenders {
        ForeignSenders { tracks: vec![ForeignSender::default(); tracks], since: now }
    }

    /// True when the sender of a track is silent while another sends, or sends next to nothing
    /// while another sends a stream.
    fn have_replaced(&mut self, heard: &[HeardTrack], now: Instant) -> bool {
        let is_second_over = now.saturating_duration_since(self.since) >= SECOND;
        let mut is_replaced = false;
        for (track, heard) in self.tracks.iter_mut().zip(heard) {
            if track.at_last.last != heard.last {
                track.at_last = *heard;
            }
            let is_silent = heard
                .last
                .is_some_and(|last| now.saturating_duration_since(last) >= REPLACED_AFTER);
            is_replaced |= is_silent && heard.foreign - track.at_last.foreign >= REPLACED_BY;
            if is_second_over {
                let packets = heard.packets.saturating_sub(track.at_second.packets);
                let foreign = heard.foreign - track.at_second.foreign;
                is_replaced |= packets > 0
                    && packets < WEAK_PACKETS.into()
                    && foreign >= packets * u64::from(CONTEST_RATIO);
                track.at_second = *heard;
            }
        }
        if is_second_over {
            self.since = now;
        }
        is_replaced
    }
}

/// Address of a stream by its description; none without an address or with port 0.
fn address(stream: &ChosenStream) -> Option<SocketAddr> {
    let port = Some(stream.offer.port).filter(|port| *port != 0)?;
    let ip = stream.offer.address?;
    Some(SocketAddr::new(ip, port))
}

impl TrackSockets {
    /// Binds the address of a track, and the port behind it for RTCP.
    fn bind(at: SocketAddr) -> Result<TrackSockets, Error> {
        let host = |call, at: SocketAddr| {
            move |source| Error::Host { call, object: format!("UDP {at}"), source }
        };
        let rtp = bound(at).map_err(host("bind", at))?;
        enlarge(&rtp).map_err(host("setsockopt SO_RCVBUF", at))?;
        let rtcp_at = SocketAddr::new(at.ip(), at.port().wrapping_add(1));
        let rtcp = bound(rtcp_at).map_err(host("bind", rtcp_at))?;
        Ok(TrackSockets { rtp, rtcp })
    }

    fn into_input(self, stream: ChosenStream) -> Result<TrackInput, Error> {
        let (input, rtcp) = (PacketInput::Socket(self.rtp), RtcpLink::udp(self.rtcp, None, None)?);
        Ok(TrackInput { stream, input, rtcp, host: None, ssrc: None })
    }
}

/// Binds an address, or the unspecified one where it is not local; joins a multicast group.
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
        // The description may contain the sender's address of a unicast stream.
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
const SECOND: Duration = Duration::from_secs(1);
/// Silence of a sender after which another may replace it: longer than the picture interval of a
/// slow camera.
const REPLACED_AFTER: Duration = Duration::from_secs(1);
/// Datagrams of other senders within that silence: a stray one replaces no sender.
const REPLACED_BY: u64 = 4;

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use clock::SetClock;
    use wire::rtp::Header;

    use super::*;
    use crate::camera_thread::CameraTurn;

    /// A microphone, its receiver, and the address of its packets, on a clock that the test sets.
    fn microphone(set: &SetClock) -> (DescribedTracks, CameraThread, SocketAddr) {
        let text = b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
            m=audio 5004 RTP/AVP 97\r\na=rtpmap:97 opus/48000/2\r\n";
        let mut to = None;
        let bind = |_| {
            let [rtp, rtcp] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
            to = Some(rtp.local_addr().unwrap());
            Ok(TrackSockets { rtp, rtcp })
        };
        let options = DescribedOptions {
            at: Duration::ZERO,
            container: TrackContainer::TransportStream,
            media: RecordedMedia::All,
            reports: false,
        };
        let opened = DescribedTracks::open(text, "microphone", options, &set.clock(), bind);
        let (tracks, _, camera) = opened.unwrap();
        (tracks, camera, to.expect("it has a track"))
    }

    /// Sends this number of packets, one each 20 ms of a set clock; returns the reason why the
    /// stream ended, and the time.
    async fn end_behind(packets: u16) -> (String, Duration) {
        let set = SetClock::at(UNIX_EPOCH);
        let (tracks, mut camera, to) = microphone(&set);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let began = set.now();
        let send = async {
            for sequence in 0..5000 {
                if sequence < packets {
                    let (timestamp, marker) = (u32::from(sequence) * 960, false);
                    let header = Header { payload_type: 97, marker, sequence, timestamp, ssrc: 7 };
                    socket.send_to(&[&header.write()[..], b"\x08a"].concat(), to).unwrap();
                }
                assert_eq!(camera.turn(), CameraTurn::Empty);
                tokio::time::sleep(Duration::from_millis(20)).await;
                set.advance(Duration::from_millis(20));
            }
        };
        tokio::select! {
            biased;
            () = send => panic!("it does not end"),
            why = tracks.ended(Duration::from_secs(10)) => (why, set.now() - began),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_of_ten_seconds_ends_a_stream_at_the_next_look() {
        let (why, at) = end_behind(100).await;
        // The last packet arrives at 1.98 s.
        assert_eq!((&why[..], at), ("nothing came for 10 s", Duration::from_secs(12)));
    }

    #[test]
    fn another_sender_takes_the_place_of_a_silent_one_alone() {
        let begun = Instant::now();
        let mut foreign = ForeignSenders::new(2, begun);
        let at = |ms| begun + Duration::from_millis(ms);
        let mut replaced = |ms, tracks: [(u64, u64, u64); 2]| {
            let heard = tracks.map(|(last_ms, packets, foreign)| HeardTrack {
                last: (packets > 0).then(|| at(last_ms)),
                packets,
                foreign,
            });
            foreign.have_replaced(&heard, at(ms))
        };
        assert!(!replaced(0, [(0, 0, 0), (0, 0, 0)]), "nothing has come");
        // Another sender is active beside the followed one.
        assert!(!replaced(100, [(90, 10, 50), (80, 10, 0)]));
        assert!(!replaced(990, [(980, 100, 500), (80, 10, 0)]), "silent, and alone");
        // The second track's sender is replaced, independently of the first's.
        assert!(!replaced(1050, [(1040, 110, 500), (80, 10, 3)]));
        assert!(!replaced(1070, [(1040, 110, 500), (80, 10, 4)]), "not for long enough");
        assert!(replaced(1080, [(1040, 110, 500), (80, 10, 4)]));
        assert!(!replaced(1100, [(1090, 130, 600), (1095, 20, 900)]), "it is back");
    }

    #[test]
    fn a_trickle_does_not_hold_a_place_against_a_stream() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let heard = |ms, packets, foreign| [HeardTrack { last: Some(at(ms)), packets, foreign }];
        let mut foreign = ForeignSenders::new(1, begun);
        assert!(!foreign.have_replaced(&heard(900, 2, 19), at(950)));
        assert!(!foreign.have_replaced(&heard(900, 2, 19), at(1000)), "too little more");
        assert!(foreign.have_replaced(&heard(1900, 4, 60), at(2000)));
        // A flood does not displace a stream.
        assert!(!foreign.have_replaced(&heard(2990, 104, 9000), at(3000)));
    }
}
