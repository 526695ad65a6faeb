// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small player for the server's tests: plays the start of a stream and counts losses.
//!
//! The crate `client` verifies far more, but serve may not depend on it (ARCHITECTURE.md, "The
//! crates").
//!
//! Sources: RFC 2326 §10; RFC 3550 §6.6, A.1.
//! Does not pause, report, or keep a session alive.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;
use wire::mp2t::CLOCK_RATE_HZ;
use wire::rtcp::{self, RtcpItem};
use wire::rtp::{Header, Reception};
use wire::rtsp::client::{Client, PlayReply, Reply, ReplyReader};
use wire::rtsp::{Limits, NptRange, NptStart, PortPair, TransportOffer};

/// Result of a play.
#[derive(Debug, Default)]
pub(crate) struct Played {
    pub(crate) packets: u64,
    pub(crate) lost: u64,
    /// True when the sender has sent BYE.
    pub(crate) bye: bool,
    /// Media time from the announced first timestamp to the last packet's.
    pub(crate) media: Duration,
    length: Duration,
}

impl Played {
    /// True when nothing is lost up to half a second before the end of the range.
    pub(crate) fn is_whole(&self) -> bool {
        self.bye && self.lost == 0 && self.media + Duration::from_millis(500) >= self.length
    }
}

pub(super) struct Connection {
    stream: TcpStream,
    reader: ReplyReader,
}

/// A client that has set up a stream, and its sockets.
pub(super) struct Player {
    pub(super) client: Client,
    pub(super) connection: Connection,
    pub(super) rtp: UdpSocket,
    pub(super) rtcp: UdpSocket,
    /// SSRC of the stream.
    pub(super) ssrc: u32,
}

impl Player {
    /// Asks for the asset at `url` by DESCRIBE and SETUP.
    pub(super) async fn set_up(url: &str) -> Player {
        let mut client = Client::new(url).unwrap();
        let stream = TcpStream::connect((client.host(), client.port())).await.unwrap();
        let mut connection = Connection { stream, reader: ReplyReader::new(Limits::default()) };
        let local = connection.stream.local_addr().unwrap().ip();
        let (rtp, rtcp) = (bound(local).await, bound(local).await);
        let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
        let ports = PortPair { rtp: port(&rtp), rtcp: port(&rtcp) };
        let reply = connection.ask(client.describe()).await;
        client.described(&reply).unwrap();
        let offer = TransportOffer::Udp { ports, destination: None };
        let reply = connection.ask(client.setup(&offer)).await;
        let ssrc = client.set_up(&reply).unwrap().ssrc.unwrap();
        Player { client, connection, rtp, rtcp, ssrc }
    }

    /// Plays a range of the asset.
    pub(super) async fn play(&mut self, range: Option<NptRange>) -> PlayReply {
        let reply = self.connection.ask(self.client.play(range)).await;
        self.client.started(&reply).unwrap()
    }
}

impl Connection {
    pub(super) async fn ask(&mut self, request: Vec<u8>) -> Reply {
        self.stream.write_all(&request).await.unwrap();
        loop {
            if let Some(reply) = self.reader.next_reply().unwrap() {
                assert_eq!(reply.status(), 200, "{}", reply.reason());
                return reply;
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).await.unwrap();
            assert!(count > 0, "the server has closed the connection");
            self.reader.feed(&bytes[..count]);
        }
    }
}

/// Plays the first `length` of the asset at `url` until BYE or a minute of silence.
pub(crate) async fn play((url, length): (String, Duration)) -> Played {
    let mut player = Player::set_up(&url).await;
    let range = NptRange { start: NptStart::At(Duration::ZERO), end: Some(length) };
    let started = player.play(Some(range)).await;
    let Player { rtp, rtcp, .. } = &player;
    let mut reception = Reception::starting_at(CLOCK_RATE_HZ, started.sequence.unwrap());
    let mut played = Played { length, ..Played::default() };
    let (mut packet, mut report) = ([0; 2048], [0; 2048]);
    while !played.bye {
        tokio::select! {
            biased;
            received = timeout(SILENCE, rtp.recv(&mut packet)) => {
                let Ok(received) = received else { break };
                let (header, _) = Header::parse(&packet[..received.unwrap()]).unwrap();
                reception.receive(&header, Duration::ZERO);
                let stamps = header.timestamp.wrapping_sub(started.timestamp.unwrap());
                played.media = Duration::from_secs(stamps.into()) / CLOCK_RATE_HZ;
            }
            received = rtcp.recv(&mut report) => {
                let mut seen = rtcp::parse(&report[..received.unwrap()]).unwrap();
                played.bye = seen.any(|item| matches!(item, RtcpItem::Bye { .. }));
            }
        }
    }
    (played.packets, played.lost) = (reception.received(), reception.lost());
    played
}

async fn bound(local: std::net::IpAddr) -> UdpSocket {
    UdpSocket::bind((local, 0)).await.unwrap()
}

const SILENCE: Duration = Duration::from_secs(60);
