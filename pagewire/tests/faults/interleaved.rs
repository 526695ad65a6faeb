// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTP on the RTSP connection, and through HTTP: readers that do not read, or a little at a time,
//! close half, put requests into frames, use channels of nobody; tunnels cut in the middle. Nobody
//! else is late or loses a packet, and nothing leaks.
//!
//! Sources: RFC 2326 §10.12; `wire::rtsp::tunnel`.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::Server;
use crate::harness::clip::{Clip, PAYLOAD_BYTES};
use crate::harness::rtsp::{Player, base64};
use crate::resource_snapshot::{ResourceSnapshot, await_nobody, sessions};
use crate::serve;

/// One message or frame of a server.
#[derive(Debug, PartialEq)]
enum Item {
    Reply(String),
    Frame(u8, Vec<u8>),
}

/// A client that plays on its connection and parses what comes with a reader of its own.
pub(crate) struct Reader {
    stream: TcpStream,
    server: SocketAddr,
    bytes: VecDeque<u8>,
    cseq: u32,
    /// Frames that came while a reply was awaited.
    frames: Vec<(u8, Vec<u8>)>,
}

impl Reader {
    pub(crate) fn to(server: &Server) -> Reader {
        let stream = TcpStream::connect(server.rtsp).expect("the server listens");
        stream.set_read_timeout(Some(WAIT)).expect("a time limit");
        Reader { stream, server: server.rtsp, bytes: VecDeque::new(), cseq: 0, frames: Vec::new() }
    }

    fn request(&mut self, method: &str, name: &str, headers: &[&str]) -> String {
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
    fn reply(&mut self) -> String {
        loop {
            match self.next().expect("a reply") {
                Item::Reply(reply) => return reply,
                Item::Frame(channel, data) => self.frames.push((channel, data)),
            }
        }
    }

    /// The next frame, of those that came before first.
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
    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.parse() {
                return Some(item);
            }
            let mut buffer = [0; 65_536];
            match self.stream.read(&mut buffer) {
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

    /// Drops the frames that came while a reply was awaited.
    pub(crate) fn drop_frames(&mut self) {
        self.frames.clear();
    }

    /// Takes the frames that came while a reply was awaited.
    pub(crate) fn take_frames(&mut self) -> Vec<(u8, Vec<u8>)> {
        std::mem::take(&mut self.frames)
    }

    /// Makes the socket's buffer as small as it can be.
    pub(crate) fn keep_small(&self) {
        socket2::SockRef::from(&self.stream)
            .set_recv_buffer_size(16 << 10)
            .expect("a small buffer");
    }

    /// SETUP on these channels, PLAY; returns the Session header.
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
        let session = reply.lines().find_map(|line| line.strip_prefix("Session: "));
        let session = session.and_then(|line| line.split(';').next()).expect("a session");
        format!("Session: {session}")
    }

    /// Reads media of `channel` up to BYE on the next; returns the payload, in order and whole.
    #[track_caller]
    pub(crate) fn media_to_bye(&mut self, channel: u8) -> Vec<u8> {
        let (mut payload, mut expected) = (Vec::new(), None);
        loop {
            let (found, data) = self.frame();
            if found == channel {
                let sequence = u16::from_be_bytes([data[2], data[3]]);
                assert!(
                    expected.is_none_or(|expected| sequence == expected),
                    "a packet is missing"
                );
                expected = Some(sequence.wrapping_add(1));
                payload.extend_from_slice(&data[12..]);
            } else if found == channel + 1 && has_bye(&data) {
                return payload;
            }
        }
    }
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
fn heavy(seconds: u64) -> Vec<u8> {
    let rate = 4_000_000;
    let clip =
        Clip { seed: 9, milliseconds: seconds * 1000, bits_per_second: rate, with_clock: true };
    clip.bytes()
}

fn figure(server: &Server, name: &str) -> u64 {
    server.index()["server"][name].as_u64().unwrap_or_else(|| panic!("{name} is a number"))
}

#[test]
fn plays_to_the_end_between_requests() {
    let clip = Clip::of_seconds(4, 2).bytes();
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
    let clips = [Clip::of_seconds(4, 2).bytes(), Clip::of_seconds(5, 2).bytes()];
    let server = serve(&[("a.ts", &clips[0]), ("b.ts", &clips[1])], &[]);
    let mut reader = Reader::to(&server);
    let first = reader.set_up("a.ts", "0-1");
    // The channels are taken: the server chooses others.
    let taken = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1";
    let reply = reader.ask("SETUP", "b.ts", &[taken]);
    assert!(reply.contains("interleaved=2-3"), "{reply}");
    let second = reply.lines().find_map(|line| line.split(';').next()?.strip_prefix("Session: "));
    let second = format!("Session: {}", second.expect("a session"));
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

/// Its session skips, is told apart in the figures and ends; a neighbour over UDP and one over TCP
/// lose nothing.
#[test]
fn a_reader_that_never_reads_disturbs_nobody() {
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

/// It reads less than the stream has, so it misses some; what it gets are whole packets in order.
#[test]
fn a_slow_reader_gets_whole_packets_with_gaps() {
    let clip = heavy(12);
    let server = serve(&[("a.ts", &clip)], &[]);
    let mut slow = Reader::to(&server);
    slow.keep_small();
    slow.play("a.ts", "0-1");
    let (mut packets, mut gaps, mut last) = (0, 0, None::<u16>);
    let began = Instant::now();
    loop {
        let (channel, data) = slow.frame();
        if channel == 1 {
            if has_bye(&data) {
                break;
            }
            continue;
        }
        let sequence = u16::from_be_bytes([data[2], data[3]]);
        if let Some(last) = last {
            let step = sequence.wrapping_sub(last);
            assert!((1..0x8000).contains(&step), "{last} then {sequence}: order is kept");
            gaps += u32::from(step > 1);
        }
        last = Some(sequence);
        assert_eq!(data.len(), 12 + PAYLOAD_BYTES);
        assert!(data[12..].chunks(188).all(|packet| packet[0] == 0x47), "whole packets");
        packets += 1;
        // A third of the rate for eight seconds, then all that comes.
        if began.elapsed() < Duration::from_secs(8) {
            thread::sleep(Duration::from_millis(8));
        }
    }
    assert!(gaps >= 1, "{packets} packets and no gap");
    assert!(gaps <= 8, "{gaps} gaps: a skip reaches a later place to start");
    let reader = slow.stream.local_addr().expect("it is bound");
    drop(slow);
    let late_ms = logged_late_ms(&server, reader);
    assert!(late_ms < 1000.0, "{late_ms} ms late: the reader's lateness is not the server's");
    await_nobody_playing(&server);
    server.stop();
}

/// Lateness in the line that the log has of an ended session.
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

/// Its socket is full when the stream ends: BYE waits behind the media.
#[test]
fn a_reader_that_is_behind_at_the_end_gets_bye() {
    let clip = heavy(5);
    let server = serve(&[("a.ts", &clip)], &[]);
    let mut slow = Reader::to(&server);
    slow.keep_small();
    slow.play("a.ts", "0-1");
    thread::sleep(Duration::from_secs(7));
    while !matches!(slow.frame(), (1, data) if has_bye(&data)) {}
    server.stop();
}

#[test]
fn requests_inside_frames_are_data_and_channels_of_nobody_are_counted() {
    let clip = Clip::of_seconds(4, 3).bytes();
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
    assert!(figure(&server, "frames_unexpected") >= 3);
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

/// Opens the halves of a tunnel with this cookie; the upload half and the reader of the other.
fn tunnel(server: &Server, cookie: &str) -> (TcpStream, Reader) {
    let mut reader = Reader::to(server);
    let head = format!(
        "GET /a.ts HTTP/1.0\r\nx-sessioncookie: {cookie}\r\n\
         Accept: application/x-rtsp-tunnelled\r\n\r\n"
    );
    reader.stream.write_all(head.as_bytes()).expect("the server reads");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        reader.stream.read_exact(&mut byte).expect("an answer");
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.0 200 "), "{}", String::from_utf8_lossy(&answer));
    (upload(server, cookie), reader)
}

fn upload(server: &Server, cookie: &str) -> TcpStream {
    let mut upload = TcpStream::connect(server.rtsp).expect("the server listens");
    let head = format!(
        "POST /a.ts HTTP/1.0\r\nx-sessioncookie: {cookie}\r\nContent-Length: 32767\r\n\
         Content-Type: application/x-rtsp-tunnelled\r\n\r\n"
    );
    upload.write_all(head.as_bytes()).expect("the server reads");
    upload
}

#[track_caller]
fn ask_through(
    upload: &mut TcpStream,
    reader: &mut Reader,
    method: &str,
    headers: &[&str],
) -> String {
    let request = reader.request(method, "a.ts", headers);
    upload.write_all(base64(&request).as_bytes()).expect("the server reads");
    reader.reply()
}

#[test]
fn a_tunnel_plays_and_goes_on_with_another_upload() {
    let clip = Clip::of_seconds(4, 4).bytes();
    let server = serve(&[("a.ts", &clip)], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let (mut up, mut reader) = tunnel(&server, "one");
    let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1";
    let reply = ask_through(&mut up, &mut reader, "SETUP", &[transport]);
    let session = reply.lines().find_map(|line| line.split(';').next()?.strip_prefix("Session: "));
    let session = format!("Session: {}", session.expect("a session"));
    // The client closes its POST and opens the next.
    drop(up);
    let mut up = upload(&server, "one");
    let reply = ask_through(&mut up, &mut reader, "PLAY", &[&session]);
    assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
    assert!(reader.media_to_bye(0) == clip, "not the file");
    drop((up, reader));
    snapshot.assert_restored(&server);
}

#[test]
fn tunnels_that_are_cut_or_have_no_partner_end() {
    let clip = heavy(60);
    let server = serve(&[("a.ts", &clip)], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1";
    let playing = |cookie: &str| {
        let (mut up, mut reader) = tunnel(&server, cookie);
        let reply = ask_through(&mut up, &mut reader, "SETUP", &[transport]);
        let id = reply.lines().find_map(|line| line.split(';').next()?.strip_prefix("Session: "));
        let session = format!("Session: {}", id.expect("a session"));
        ask_through(&mut up, &mut reader, "PLAY", &[&session]);
        reader.frame();
        (up, reader)
    };
    // The download half ends.
    let (up, reader) = playing("a");
    drop(reader);
    await_nobody(&server);
    drop(up);
    // Bytes that are no base64.
    let (mut up, mut reader) = playing("b");
    up.write_all(b"\x01\x02\x03\x04\x05\x06\x07\x08").expect("the server reads");
    while reader.next().is_some() {}
    await_nobody(&server);
    // An upload half without a download half, a second tunnel of one cookie, a head without one.
    let mut refusal = String::new();
    let mut alone = upload(&server, "nobody's");
    alone.read_to_string(&mut refusal).expect("an answer");
    assert!(refusal.starts_with("HTTP/1.0 404 "), "{refusal}");
    let (_up, _reader) = tunnel(&server, "c");
    let mut second = TcpStream::connect(server.rtsp).expect("the server listens");
    second.write_all(b"GET / HTTP/1.0\r\nx-sessioncookie: c\r\n\r\n").expect("the server reads");
    refusal.clear();
    second.read_to_string(&mut refusal).expect("an answer");
    assert!(refusal.starts_with("HTTP/1.0 409 Conflict\r\n"), "{refusal}");
    assert!(refusal.contains("choose another"), "{refusal}");
    let mut browser = TcpStream::connect(server.rtsp).expect("the server listens");
    browser.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("the server reads");
    refusal.clear();
    browser.read_to_string(&mut refusal).expect("an answer");
    assert!(refusal.starts_with("HTTP/1.0 400 ") && refusal.contains("this port speaks RTSP"));
    drop((up, reader, alone, second, browser, _up, _reader));
    snapshot.assert_restored(&server);
}

const WAIT: Duration = Duration::from_secs(20);
