// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTP on the RTSP connection: readers that do not read, or read slowly, close one direction, put
//! requests into frames, or use unassigned channels. No other client loses a packet, and nothing
//! leaks.
//!
//! `timed` asserts that no other client gets late packets, and waits for readers that are slow for
//! seconds.
//!
//! Sources: RFC 2326 §10.12.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::clip::{Clip, PAYLOAD_BYTES};
use crate::harness::rtsp::Player;
use crate::harness::{Server, uninterrupted};
use crate::resource_snapshot::{ResourceSnapshot, await_nobody, sessions};
use crate::serve;

/// One message or frame of a server.
#[derive(Debug, PartialEq)]
pub(crate) enum Item {
    Reply(String),
    Frame(u8, Vec<u8>),
}

/// A client that plays on its connection and parses the received bytes with its own reader.
pub(crate) struct Reader {
    pub(crate) stream: TcpStream,
    server: SocketAddr,
    bytes: VecDeque<u8>,
    cseq: u32,
    /// Frames that were received while a reply was awaited.
    frames: Vec<(u8, Vec<u8>)>,
}

impl Reader {
    pub(crate) fn to(server: &Server) -> Reader {
        let stream = TcpStream::connect(server.rtsp).expect("the server listens");
        stream.set_read_timeout(Some(WAIT)).expect("a time limit");
        Reader { stream, server: server.rtsp, bytes: VecDeque::new(), cseq: 0, frames: Vec::new() }
    }

    pub(crate) fn request(&mut self, method: &str, name: &str, headers: &[&str]) -> String {
        self.cseq += 1;
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let (server, cseq) = (self.server, self.cseq);
        format!("{method} rtsp://{server}/{name} RTSP/1.0\r\nCSeq: {cseq}\r\n{headers}\r\n")
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, name: &str, headers: &[&str]) -> String {
        let request = self.request(method, name, headers);
        self.stream.write_all(request.as_bytes()).expect("the server reads");
        self.reply()
    }

    #[track_caller]
    pub(crate) fn reply(&mut self) -> String {
        loop {
            match self.next().expect("a reply") {
                Item::Reply(reply) => return reply,
                Item::Frame(channel, data) => self.frames.push((channel, data)),
            }
        }
    }

    /// Returns the next frame, first from those received earlier.
    #[track_caller]
    pub(crate) fn frame(&mut self) -> (u8, Vec<u8>) {
        if !self.frames.is_empty() {
            return self.frames.remove(0);
        }
        match self.next() {
            Some(Item::Frame(channel, data)) => (channel, data),
            other => panic!("{other:?}, not a frame"),
        }
    }

    /// Reads the next reply or frame; `None` at the end of the connection.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.parse() {
                return Some(item);
            }
            let mut buffer = [0; 65_536];
            match uninterrupted(|| self.stream.read(&mut buffer)) {
                Ok(0) => return None,
                Ok(bytes) => self.bytes.extend(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("read: {error}; {} bytes held", self.bytes.len()),
            }
        }
    }

    fn parse(&mut self) -> Option<Item> {
        match *self.bytes.front()? {
            b'$' => {
                let head: Vec<u8> = self.bytes.iter().take(4).copied().collect();
                let &[_, channel, high, low] = head.as_slice() else { return None };
                let end = 4 + usize::from(u16::from_be_bytes([high, low]));
                if self.bytes.len() < end {
                    return None;
                }
                let data = self.bytes.drain(..end).skip(4).collect();
                Some(Item::Frame(channel, data))
            }
            first => {
                assert_eq!(first, b'R', "neither a frame nor a reply begins here");
                let bytes = self.bytes.make_contiguous();
                let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
                let text = String::from_utf8(bytes[..head].to_vec()).expect("a head is text");
                let body = text.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                let end = head + body.map_or(0, |bytes| bytes.parse::<usize>().expect("a number"));
                if bytes.len() < end {
                    return None;
                }
                self.bytes.drain(..end);
                Some(Item::Reply(text))
            }
        }
    }

    /// Drops the frames that were received while a reply was awaited.
    pub(crate) fn drop_frames(&mut self) {
        self.frames.clear();
    }

    /// Returns and clears the frames that were received while a reply was awaited.
    pub(crate) fn take_frames(&mut self) -> Vec<(u8, Vec<u8>)> {
        std::mem::take(&mut self.frames)
    }

    /// Makes the socket's buffer as small as possible.
    pub(crate) fn keep_small(&self) {
        socket2::SockRef::from(&self.stream)
            .set_recv_buffer_size(16 << 10)
            .expect("a small buffer");
    }

    /// Sends SETUP on these channels and PLAY; returns the Session header.
    #[track_caller]
    pub(crate) fn play(&mut self, name: &str, channels: &str) -> String {
        let session = self.set_up(name, channels);
        let reply = self.ask("PLAY", name, &[&session]);
        assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
        session
    }

    #[track_caller]
    pub(crate) fn set_up(&mut self, name: &str, channels: &str) -> String {
        let transport = format!("Transport: RTP/AVP/TCP;unicast;interleaved={channels}");
        let reply = self.ask("SETUP", name, &[&transport]);
        assert!(reply.contains(&format!("RTP/AVP/TCP;unicast;interleaved={channels}")), "{reply}");
        session_of(&reply)
    }

    /// Reads media of `channel` up to BYE on the next; returns the complete payload, in order.
    #[track_caller]
    pub(crate) fn media_to_bye(&mut self, channel: u8) -> Vec<u8> {
        let (mut payload, mut expected) = (Vec::new(), None);
        for packet in self.packets_to_bye(channel) {
            let sequence = u16::from_be_bytes([packet[2], packet[3]]);
            assert!(expected.is_none_or(|expected| sequence == expected), "a packet is missing");
            expected = Some(sequence.wrapping_add(1));
            payload.extend_from_slice(&packet[12..]);
        }
        payload
    }

    /// Reads the packets of `channel` up to BYE on the next.
    #[track_caller]
    pub(crate) fn packets_to_bye(&mut self, channel: u8) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        loop {
            match self.frame() {
                (found, packet) if found == channel => packets.push(packet),
                (found, data) if found == channel + 1 && has_bye(&data) => return packets,
                _ => {}
            }
        }
    }
}

/// Returns the Session header of an answer to SETUP.
#[track_caller]
pub(crate) fn session_of(reply: &str) -> String {
    let id = reply.lines().find_map(|line| line.split(';').next()?.strip_prefix("Session: "));
    format!("Session: {}", id.unwrap_or_else(|| panic!("no session in {reply}")))
}

/// True when a compound RTCP packet holds a BYE (RFC 3550 §6.6).
fn has_bye(mut rtcp: &[u8]) -> bool {
    while rtcp.len() >= 4 {
        if rtcp[1] == 203 {
            return true;
        }
        let bytes = 4 * (1 + usize::from(u16::from_be_bytes([rtcp[2], rtcp[3]])));
        rtcp = rtcp.get(bytes..).unwrap_or_default();
    }
    false
}

/// 4 Mb/s: a socket's buffers hold no more than some seconds of it.
pub(crate) fn heavy(seconds: u64) -> Vec<u8> {
    Clip { bits_per_second: 4_000_000, ..Clip::of_seconds(9, seconds) }.bytes()
}

/// 16 Mb/s: a socket's buffers hold about a second of it. No RTP packet of it is short.
fn heaviest(seconds: u64) -> Vec<u8> {
    let clip = Clip { bits_per_second: 16_000_000, ..Clip::of_seconds(9, seconds) };
    let mut bytes = clip.bytes();
    bytes.truncate(bytes.len() / PAYLOAD_BYTES * PAYLOAD_BYTES);
    bytes
}

fn figure(server: &Server, name: &str) -> u64 {
    server.index()["server"][name].as_u64().unwrap_or_else(|| panic!("{name} is a number"))
}

#[test]
fn plays_to_the_end_between_requests() {
    let clip = Clip::of_seconds(4, 1).bytes();
    let server = serve(&[("a.ts", &clip)], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let mut reader = Reader::to(&server);
    let session = reader.play("a.ts", "2-3");
    for _ in 0..20 {
        let reply = reader.ask("GET_PARAMETER", "a.ts", &[&session]);
        assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
    }
    assert!(reader.media_to_bye(2) == clip, "not the file");
    let reply = reader.ask("TEARDOWN", "a.ts", &[&session]);
    assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
    drop(reader);
    snapshot.assert_restored(&server);
}

#[test]
fn sessions_of_one_connection_have_channels_of_their_own() {
    let clips = [Clip::of_seconds(4, 1).bytes(), Clip::of_seconds(5, 1).bytes()];
    let server = serve(&[("a.ts", &clips[0]), ("b.ts", &clips[1])], &[]);
    let mut reader = Reader::to(&server);
    let first = reader.set_up("a.ts", "0-1");
    // The channels are in use: the server chooses others.
    let in_use = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1";
    let reply = reader.ask("SETUP", "b.ts", &[in_use]);
    assert!(reply.contains("interleaved=2-3"), "{reply}");
    let second = session_of(&reply);
    for (name, session) in [("a.ts", &first), ("b.ts", &second)] {
        let reply = reader.ask("PLAY", name, &[session]);
        assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
    }
    let mut payloads = [Vec::new(), Vec::new()];
    let mut byes = 0;
    while byes < 2 {
        match reader.frame() {
            (channel @ (0 | 2), data) => {
                payloads[usize::from(channel / 2)].extend_from_slice(&data[12..]);
            }
            (1 | 3, data) => byes += usize::from(has_bye(&data)),
            (channel, _) => panic!("channel {channel}"),
        }
    }
    assert!(payloads == clips, "not the files");
    server.stop();
}

/// Its session skips, is counted separately in the figures and ends; a neighbour over UDP and one
/// over TCP lose nothing meanwhile.
#[test]
fn a_reader_that_never_reads_disturbs_nobody() {
    let clip = Clip::of_seconds(5, 120).bytes();
    let server = serve(&[("heavy.ts", &heaviest(8)), ("a.ts", &clip)], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let mut silent = Reader::to(&server);
    silent.keep_small();
    silent.play("heavy.ts", "0-1");
    let mut neighbour = Player::set_up(server.rtsp, "a.ts");
    let first = neighbour.play();
    let mut reader = Reader::to(&server);
    reader.play("a.ts", "0-1");
    server.await_index("the slow reader misses packets", |index| {
        index["server"]["reader_skips"].as_u64() > Some(0)
    });
    assert!(figure(&server, "packets_skipped") > 0);
    let before = neighbour.heard().packets.len();
    neighbour.hear("it plays on", |heard| heard.packets.len() > before + 10);
    neighbour.heard().assert_gapless(&clip, first);
    let mut media = Vec::new();
    while media.len() < before * PAYLOAD_BYTES {
        let (channel, data) = reader.frame();
        if channel == 0 {
            media.extend_from_slice(&data[12..]);
        }
    }
    assert!(clip.starts_with(&media), "not the file");
    let local = silent.stream.local_addr().expect("it is bound");
    drop(silent);
    server.await_log(&format!("of {local}: "));
    server.await_log("the reader was slow over TCP and missed");
    assert_eq!(neighbour.command("TEARDOWN", &[]).status, 200);
    drop((neighbour, reader));
    snapshot.assert_restored(&server);
}

/// It stops reading until the server has skipped; it gets whole packets in order, and at most one
/// gap for each skip.
#[test]
fn a_slow_reader_gets_whole_packets_with_gaps() {
    let server = serve(&[("a.ts", &heaviest(12))], &[]);
    let mut slow = Reader::to(&server);
    slow.keep_small();
    slow.play("a.ts", "0-1");
    let gaps = read_with_gaps(&mut slow, |packets| {
        if packets == 20 {
            server.await_index("the slow reader misses packets", |index| {
                index["server"]["reader_skips"].as_u64() > Some(0)
            });
        }
    });
    let skips = figure(&server, "reader_skips");
    assert!((1..=skips).contains(&gaps), "{gaps} gaps, {skips} skips");
    drop(slow);
    server.await_log("the reader was slow over TCP and missed");
    server.stop();
}

/// Reads to BYE and calls `pause` with the number of packets after each; asserts that all packets
/// are whole and in order; returns the number of gaps.
#[track_caller]
fn read_with_gaps(reader: &mut Reader, mut pause: impl FnMut(u32)) -> u64 {
    let (mut packets, mut gaps, mut last) = (0, 0, None::<u16>);
    loop {
        let (channel, data) = reader.frame();
        if channel == 1 {
            if has_bye(&data) {
                return gaps;
            }
            continue;
        }
        let sequence = u16::from_be_bytes([data[2], data[3]]);
        if let Some(last) = last {
            let step = sequence.wrapping_sub(last);
            assert!((1..0x8000).contains(&step), "{last} then {sequence}: order is kept");
            gaps += u64::from(step > 1);
        }
        last = Some(sequence);
        assert_eq!(data.len(), 12 + PAYLOAD_BYTES);
        assert!(data[12..].chunks(188).all(|packet| packet[0] == 0x47), "whole packets");
        packets += 1;
        pause(packets);
    }
}

/// A client that waits for the reply drops the frames before it, and with them the key frame.
#[test]
fn media_begins_behind_the_reply_to_its_play() {
    let clip = heavy(20);
    let server = serve(&[("a.ts", &clip)], &[]);
    let plays = |_| {
        let mut reader = Reader::to(&server);
        let session = reader.set_up("a.ts", "0-1");
        for from in 0..10 {
            let range = format!("Range: npt={from}-");
            let reply = reader.ask("PLAY", "a.ts", &[&session, &range]);
            assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
            assert_eq!(reader.frames.len(), 0, "frames before the reply to PLAY from {from} s");
            reader.frame();
            reader.ask("PAUSE", "a.ts", &[&session]);
            reader.frames.clear();
        }
    };
    thread::scope(|scope| {
        for number in 0..16 {
            scope.spawn(move || plays(number));
        }
    });
    server.stop();
}

/// Its socket is full when the stream ends, but it continues to read: BYE follows the media.
#[test]
fn a_reader_that_is_behind_at_the_end_gets_bye() {
    let clip = heaviest(3);
    let server = serve(&[("a.ts", &clip)], &[]);
    let mut slow = Reader::to(&server);
    slow.keep_small();
    slow.play("a.ts", "0-1");
    let mut reader = Reader::to(&server);
    reader.play("a.ts", "0-1");
    assert!(reader.media_to_bye(0) == clip, "not the file");
    while !matches!(slow.frame(), (1, data) if has_bye(&data)) {}
    server.stop();
}

#[test]
fn requests_inside_frames_are_data_and_channels_of_nobody_are_counted() {
    let clip = Clip::of_seconds(4, 1).bytes();
    let server = serve(&[("a.ts", &clip)], &[]);
    let mut reader = Reader::to(&server);
    let session = reader.play("a.ts", "0-1");
    let teardown = reader.request("TEARDOWN", "a.ts", &[&session]);
    for channel in [0, 1, 7, 255] {
        let bytes = teardown.len() as u16;
        let mut frame = vec![b'$', channel, (bytes >> 8) as u8, bytes as u8];
        frame.extend_from_slice(teardown.as_bytes());
        reader.stream.write_all(&frame).expect("the server reads");
    }
    // A frame of the greatest length is skipped, in pieces.
    let mut long = vec![b'$', 1, 0xff, 0xff];
    long.resize(4 + 0xffff, b'T');
    reader.stream.write_all(&long).expect("the server reads");
    assert!(reader.media_to_bye(0) == clip, "the session lives on");
    server.await_index("three frames are of nobody", |index| {
        index["server"]["frames_unexpected"].as_u64() >= Some(3)
    });
    assert!(figure(&server, "requests_malformed") >= 1, "the frame on the RTCP channel");
    server.stop();
}

#[test]
fn sessions_end_with_their_connection() {
    let clip = heavy(60);
    let server = serve(&[("a.ts", &clip)], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let ends: [fn(&TcpStream); 3] = [
        |stream| stream.shutdown(Shutdown::Write).expect("it is open"),
        |stream| stream.shutdown(Shutdown::Both).expect("it is open"),
        // Half a frame, then the end.
        |mut stream| {
            stream.write_all(b"$\x01\x00").expect("the server reads");
            stream.shutdown(Shutdown::Write).expect("it is open");
        },
    ];
    for end in ends {
        let mut reader = Reader::to(&server);
        reader.play("a.ts", "0-1");
        reader.frame();
        assert_eq!(sessions(&server), 1);
        end(&reader.stream);
        await_nobody(&server);
    }
    snapshot.assert_restored(&server);
}

/// Guards against hanging; not a measure of speed.
const WAIT: Duration = Duration::from_secs(60);

mod timed {
    use super::*;

    /// Its session skips twice, is counted separately in the figures and ends; a neighbour over UDP
    /// and one over TCP get all of the same file in time.
    #[test]
    fn packets_beside_a_reader_that_never_reads_are_in_time() {
        let clip = heavy(20);
        let server = serve(&[("a.ts", &clip)], &[]);
        let snapshot = ResourceSnapshot::of(&server);
        let mut silent = Reader::to(&server);
        silent.keep_small();
        silent.play("a.ts", "0-1");
        let mut neighbour = Player::set_up(server.rtsp, "a.ts");
        let first = neighbour.play();
        let mut reader = Reader::to(&server);
        reader.play("a.ts", "0-1");
        let whole = thread::spawn(move || reader.media_to_bye(0));
        let began = Instant::now();
        while figure(&server, "reader_skips") < 2 {
            assert!(began.elapsed() < Duration::from_secs(15), "nothing is skipped");
            thread::sleep(Duration::from_millis(100));
        }
        assert!(figure(&server, "packets_skipped") > 0);
        neighbour.hear("the end", |heard| !heard.byes.is_empty());
        assert_eq!(neighbour.heard().assert_gapless(&clip, first).len(), clip.len());
        assert!(whole.join().expect("the reader reads") == clip, "not the file");
        let late_ms = figure_late_ms(&server);
        assert!(late_ms < 1000, "{late_ms} ms late: the slow reader's own packets are not counted");
        let reader = silent.stream.local_addr().expect("it is bound");
        drop(silent);
        server.await_log(&format!("of {reader}: "));
        server.await_log("the reader was slow over TCP and missed");
        drop(neighbour);
        snapshot.assert_restored(&server);
    }

    fn figure_late_ms(server: &Server) -> u64 {
        server.index()["server"]["late_us"]["p99"].as_u64().expect("a number") / 1000
    }

    /// It reads more slowly than the rate of the stream, so it misses some packets.
    #[test]
    fn a_reader_at_a_third_of_the_rate_has_few_gaps() {
        let server = serve(&[("a.ts", &heavy(12))], &[]);
        let mut slow = Reader::to(&server);
        slow.keep_small();
        slow.play("a.ts", "0-1");
        let began = Instant::now();
        let gaps = read_with_gaps(&mut slow, |_| {
            // A third of the rate for eight seconds, then all received data.
            if began.elapsed() < Duration::from_secs(8) {
                thread::sleep(Duration::from_millis(8));
            }
        });
        assert!((1..=8).contains(&gaps), "{gaps} gaps: a skip reaches a later place to start");
        let reader = slow.stream.local_addr().expect("it is bound");
        drop(slow);
        let late_ms = logged_late_ms(&server, reader);
        assert!(late_ms < 1000.0, "{late_ms} ms late: the reader's lateness is not the server's");
        await_nobody_playing(&server);
        server.stop();
    }

    /// Returns the lateness in the log line of an ended session.
    #[track_caller]
    fn logged_late_ms(server: &Server, reader: SocketAddr) -> f64 {
        let of = format!("of {reader}: ");
        server.await_log(&of);
        let log = server.log();
        let line = log.lines().find(|line| line.contains(&of)).expect("it was just there");
        let words = line.split(" ms late at most").next().and_then(|head| head.rsplit(' ').next());
        words.and_then(|late| late.parse().ok()).unwrap_or_else(|| panic!("no lateness in {line}"))
    }

    fn await_nobody_playing(server: &Server) {
        assert!(sessions(server) <= 1, "only the session of this test");
    }
}
