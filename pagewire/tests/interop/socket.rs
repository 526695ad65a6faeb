// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client of plain sockets: checks the wire traffic around a pause and a seek, packet by packet.
//!
//! It shares no code with the project's RTSP, so the two cannot be wrong in the same way.
//!
//! Sources: RFC 2326 §10.5, §10.6, §12.33, appendix B; RFC 3550 §5.1, §6.4.1, §6.6.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::harness::Server;
use crate::harness::film::GROUP_SECONDS;
use crate::{TS_PACKET_BYTES, assert_bytes, serve_film};

const PAYLOAD_BYTES: usize = 7 * TS_PACKET_BYTES;

struct Client {
    connection: BufReader<TcpStream>,
    url: String,
    cseq: u32,
    session: Option<String>,
    rtp: UdpSocket,
    rtcp: UdpSocket,
}

struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
        &found.unwrap_or_else(|| panic!("no {name} in {:?}", self.headers)).1
    }

    /// `seq` and `rtptime` of RTP-Info.
    fn rtp_info(&self) -> (u16, u32) {
        let info = self.header("RTP-Info");
        let value = |name: &str| {
            let (_, rest) = info.split_once(name).unwrap_or_else(|| panic!("no {name} in {info}"));
            rest.split(';').next().and_then(|text| text.parse::<u32>().ok()).expect("a number")
        };
        (u16::try_from(value(";seq=")).expect("16 bits"), value(";rtptime="))
    }

    /// Start of the range, seconds.
    fn start(&self) -> f64 {
        let range = self.header("Range");
        let start = range.strip_prefix("npt=").and_then(|range| range.split('-').next());
        start.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("Range: {range}"))
    }
}

struct Packet {
    sequence: u16,
    timestamp: u32,
    payload: Vec<u8>,
}

impl Client {
    /// A client with a session, not yet playing.
    fn set_up(server: &Server) -> Client {
        let connection = TcpStream::connect(server.rtsp).expect("RTSP listens");
        connection.set_read_timeout(Some(REPLY_WAIT)).expect("a time limit");
        let (rtp, rtcp) = port_pair();
        let mut client = Client {
            connection: BufReader::new(connection),
            url: server.rtsp_url("film.ts"),
            cseq: 0,
            session: None,
            rtp,
            rtcp,
        };
        let described = client.ask("DESCRIBE", "Accept: application/sdp\r\n");
        assert!(described.body.contains("m=video 0 RTP/AVP 33"), "{}", described.body);
        let port = |socket: &UdpSocket| socket.local_addr().expect("it is bound").port();
        let ports = format!("{}-{}", port(&client.rtp), port(&client.rtcp));
        let transport = format!("Transport: RTP/AVP;unicast;client_port={ports}\r\n");
        let reply = client.ask("SETUP", &transport);
        let session = reply.header("Session").split(';').next().expect("a name").to_owned();
        client.session = Some(session);
        client
    }

    /// Sends a request that must succeed.
    #[track_caller]
    fn ask(&mut self, method: &str, headers: &str) -> Reply {
        self.cseq += 1;
        let session = self.session.as_ref().map(|session| format!("Session: {session}\r\n"));
        let request = format!(
            "{method} {} RTSP/1.0\r\nCSeq: {}\r\n{}{headers}\r\n",
            self.url,
            self.cseq,
            session.unwrap_or_default()
        );
        self.connection.get_mut().write_all(request.as_bytes()).expect("the request goes out");
        let reply = self.reply();
        assert_eq!(reply.status, 200, "{request}: {:?} {}", reply.headers, reply.body);
        assert_eq!(reply.header("CSeq"), self.cseq.to_string());
        reply
    }

    fn reply(&mut self) -> Reply {
        let mut line = || {
            let mut line = String::new();
            self.connection.read_line(&mut line).expect("a reply in time");
            line.trim_end().to_owned()
        };
        let status = line().split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        let mut headers = Vec::new();
        loop {
            let header = line();
            let Some((name, value)) = header.split_once(':') else { break };
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let length = headers.iter().find(|(name, _)| name == "Content-Length");
        let length = length.map_or(0, |(_, value)| value.parse().expect("a length"));
        let mut body = vec![0; length];
        self.connection.read_exact(&mut body).expect("a body in time");
        Reply { status, headers, body: String::from_utf8(body).expect("text") }
    }

    /// Returns the packets received within a time.
    fn receive(&self, time: Duration) -> Vec<Packet> {
        let deadline = Instant::now() + time;
        let mut packets = Vec::new();
        let mut datagram = [0; 2048];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return packets;
            }
            self.rtp.set_read_timeout(Some(left)).expect("a time limit");
            if let Ok(count) = self.rtp.recv(&mut datagram) {
                packets.push(packet(&datagram[..count]));
            }
        }
    }

    /// Returns the types of the RTCP packets received since the last call (RFC 3550 §12.1).
    fn rtcp_types(&self) -> Vec<u8> {
        self.rtcp.set_read_timeout(Some(RTCP_WAIT)).expect("a time limit");
        let mut types = Vec::new();
        let mut datagram = [0; 2048];
        while let Ok(count) = self.rtcp.recv(&mut datagram) {
            let mut rest = &datagram[..count];
            while let [first, kind, high, low, ..] = *rest {
                assert_eq!(first >> 6, 2, "version of RTCP");
                types.push(kind);
                let bytes = 4 * (usize::from(u16::from_be_bytes([high, low])) + 1);
                rest = rest.get(bytes..).expect("lengths that add up");
            }
        }
        types
    }
}

/// Opens two sockets with neighbouring ports, the first one even (RFC 3550 §11).
fn port_pair() -> (UdpSocket, UdpSocket) {
    for _ in 0..1000 {
        let rtp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = rtp.local_addr().expect("it is bound").port();
        if port.is_multiple_of(2)
            && let Ok(rtcp) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port + 1))
        {
            return (rtp, rtcp);
        }
    }
    panic!("no two neighbouring ports are free");
}

fn packet(datagram: &[u8]) -> Packet {
    let (header, payload) = datagram.split_at(12);
    assert_eq!(header[..2], [0x80, 33], "version 2 and nothing more; MP2T, no marker");
    Packet {
        sequence: u16::from_be_bytes([header[2], header[3]]),
        timestamp: u32::from_be_bytes(header[4..8].try_into().expect("four bytes")),
        payload: payload.to_vec(),
    }
}

/// Asserts that the packets follow each other, beginning with the announced one.
#[track_caller]
fn assert_continuous(packets: &[Packet], (mut sequence, mut timestamp): (u16, u32)) {
    assert!(!packets.is_empty(), "no packets");
    assert_eq!(packets[0].timestamp, timestamp, "the timestamp announced");
    for packet in packets {
        assert_eq!(packet.sequence, sequence);
        // Less than half the number space ahead: not behind.
        assert!(packet.timestamp.wrapping_sub(timestamp) < 1 << 31, "time runs backwards");
        (sequence, timestamp) = (sequence.wrapping_add(1), packet.timestamp);
    }
}

fn payloads(packets: &[Packet]) -> Vec<u8> {
    packets.iter().flat_map(|packet| packet.payload.iter().copied()).collect()
}

#[test]
fn a_pause_loses_nothing() {
    let Some((server, film)) = serve_film("socket::a_pause_loses_nothing") else { return };
    let mut client = Client::set_up(&server);
    let played = client.ask("PLAY", "Range: npt=0-\r\n");
    let announced = played.rtp_info();
    let mut packets = client.receive(Duration::from_secs(3));
    client.ask("PAUSE", "");
    // Packets sent before the answer: a pause has begun once it is answered.
    packets.extend(client.receive(Duration::from_millis(100)));
    let next = announced.0.wrapping_add(packets.len() as u16);
    let in_pause = client.receive(Duration::from_secs(3));
    assert_eq!(in_pause.len(), 0, "packets in the pause");

    let resumed = client.ask("PLAY", "");
    assert_eq!(resumed.rtp_info().0, next, "the next packet");
    packets.extend(client.receive(Duration::from_secs(3)));
    client.ask("TEARDOWN", "");
    packets.extend(client.receive(Duration::from_millis(100)));
    let after = client.receive(Duration::from_millis(300));
    assert_eq!(after.len(), 0, "packets after the end");

    // Six seconds of a film of 8231 packets in 60 s.
    assert!(packets.len() > 500, "{} packets in six seconds", packets.len());
    assert_continuous(&packets, announced);
    assert_bytes(&payloads(&packets), &film.bytes[..packets.len() * PAYLOAD_BYTES]);
    let rtcp = client.rtcp_types();
    let (sender_report, bye) = (200, 203);
    assert!(rtcp.contains(&sender_report), "{rtcp:?}");
    assert_eq!(rtcp.last(), Some(&bye), "{rtcp:?}");
    server.stop();
}

/// Returns the position of these bytes in the film.
fn place(film: &[u8], bytes: &[u8]) -> usize {
    let same = |at: &usize| film[*at..].starts_with(bytes);
    (0..film.len()).step_by(TS_PACKET_BYTES).find(same).expect("bytes of the film")
}

#[test]
fn a_seek_leaves_the_stream_continuous() {
    let Some((server, film)) = serve_film("socket::a_seek_leaves_the_stream_continuous") else {
        return;
    };
    let mut client = Client::set_up(&server);
    let played = client.ask("PLAY", "Range: npt=20-\r\n");
    let announced = played.rtp_info();
    let mut packets = Vec::new();
    let mut parts = Vec::new();
    for (wanted, mut reply) in [(20.0, Some(played)), (40.0, None), (5.0, None)] {
        // Forward and back, without a pause before.
        let reply = reply
            .take()
            .unwrap_or_else(|| client.ask("PLAY", &format!("Range: npt={wanted}-\r\n")));
        let (sequence, _) = reply.rtp_info();
        packets.extend(client.receive(Duration::from_secs(1)));
        parts.push((wanted, reply.start(), sequence));
    }
    client.ask("TEARDOWN", "");
    assert_continuous(&packets, announced);
    for (wanted, start, sequence) in parts {
        let back = wanted - start;
        // The data of key frames arrives every 2 s, give or take the smoothing of the encoder's
        // buffer.
        assert!((0.0..GROUP_SECONDS as f64 + 0.2).contains(&back), "from {start}, not {wanted}");
        let first = sequence.wrapping_sub(announced.0) as usize;
        let bytes = payloads(&packets[first..first + 50]);
        let place = place(&film.bytes, &bytes[..PAYLOAD_BYTES]);
        assert_bytes(&bytes, &film.bytes[place..][..bytes.len()]);
        // By the film's mean rate, to a second.
        let second = place as f64 * 60.0 / film.bytes.len() as f64;
        assert!((second - start).abs() < 1.0, "{second} s of the film, not {start}");
    }
    server.stop();
}

const REPLY_WAIT: Duration = Duration::from_secs(20);
const RTCP_WAIT: Duration = Duration::from_millis(500);
