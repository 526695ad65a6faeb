// SPDX-License-Identifier: MIT OR Apache-2.0
//! An RTSP server that announces, refuses and ends as a test specifies: the behaviour of
//! third-party servers and cameras.
//!
//! It parses requests by hand and shares no code with the client under test.
//!
//! Sources: RFC 2326 §10, C.1.5; RFC 3550 §6.6. Does not seek: a PLAY sends the stream from its
//! start, or the part that the test specifies.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::Range;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::await_true;
use crate::harness::clip::PAYLOAD_BYTES;
use crate::harness::recorder::await_read;
use crate::harness::rtsp::cname;

/// Media and answers of the fake server.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) stream: Vec<u8>,
    /// Duration of sending the stream.
    pub(crate) length: Duration,
    /// The description's media section, and the lines before it.
    pub(crate) range: &'static str,
    pub(crate) media: &'static str,
    /// Payload type of the packets.
    pub(crate) payload_type: u8,
    /// Headers of the answer to PLAY, whole lines.
    pub(crate) play: &'static str,
    /// Parts of the stream for the next sessions, in thousandths, and headers of the answers to
    /// PLAY; later sessions get the whole.
    pub(crate) parts: Vec<(Range<u32>, &'static str)>,
    /// PLAY is answered when the client has received the first [`EARLY`] packets.
    pub(crate) answers_late: bool,
    /// RTP timestamps advance with time, multiplied by this rate.
    pub(crate) clock_rate: f64,
    pub(crate) says_bye: bool,
    pub(crate) closes: bool,
    /// Upcoming requests that are refused: the method, and the rest of the status line.
    pub(crate) refusals: Vec<(&'static str, &'static str)>,
}

impl Script {
    pub(crate) fn title(stream: Vec<u8>, length: Duration) -> Script {
        Script {
            stream,
            length,
            range: "a=range:npt=0-2.0\r\n",
            media: MP2T,
            payload_type: 33,
            play: "",
            parts: Vec::new(),
            answers_late: false,
            clock_rate: 1.0,
            says_bye: true,
            closes: false,
            refusals: Vec::new(),
        }
    }
}

/// The server, and the request lines it has received.
pub(crate) struct Fake {
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    cnames: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    pub(crate) fn start(script: Script) -> Fake {
        Fake::by(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"), script)
    }

    pub(crate) fn by(listener: TcpListener, script: Script) -> Fake {
        let address = listener.local_addr().expect("it is bound");
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let cnames = Arc::<Mutex<Vec<String>>>::default();
        let (log, names) = (asked.clone(), cnames.clone());
        let script = Arc::new(Mutex::new(script));
        // It ends with the test program.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (log, script, names) = (log.clone(), script.clone(), names.clone());
                thread::spawn(move || converse(stream, &script, &log, names));
            }
        });
        Fake { url: format!("rtsp://{address}/title"), address, asked, cnames }
    }

    /// Waits for canonical names in receiver reports, one for each datagram.
    #[track_caller]
    pub(crate) fn await_cnames(&self, count: usize) -> Vec<String> {
        let names = || self.cnames.lock().expect("nobody panics with it").clone();
        await_true("reports have come", || names().len() >= count);
        names()
    }

    /// Returns the number of requests of a method.
    pub(crate) fn asked(&self, method: &str) -> usize {
        self.asked_urls(method).len()
    }

    /// Returns the URLs of the requests of a method.
    pub(crate) fn asked_urls(&self, method: &str) -> Vec<String> {
        let asked = self.asked.lock().expect("nobody panics with it");
        let url = |line: &String| Some(line.strip_prefix(method)?.split(' ').nth(1)?.to_owned());
        asked.iter().filter_map(url).collect()
    }
}

fn converse(
    stream: TcpStream,
    script: &Mutex<Script>,
    log: &Mutex<Vec<String>>,
    cnames: Arc<Mutex<Vec<String>>>,
) {
    let rtp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let rtcp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = |socket: &UdpSocket| socket.local_addr().expect("it is bound").port();
    let ports = format!("{}-{}", port(&rtp), port(&rtcp));
    let mut client = (0, 0);
    let mut answers = stream.try_clone().expect("a descriptor");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let (rtp, rtcp, has_begun) = (Arc::new(rtp), Arc::new(rtcp), Arc::new(Barrier::new(2)));
    let ear = rtcp.clone();
    thread::spawn(move || {
        let mut datagram = [0; 2048];
        while let Ok(bytes) = ear.recv(&mut datagram) {
            cnames.lock().expect("nobody panics with it").extend(cname(&datagram[..bytes]));
        }
    });
    while let Some(request) = lines.next() {
        let headers: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let header = |name| headers.iter().find_map(|line| line.strip_prefix(name));
        let cseq = header("CSeq: ").unwrap_or_default();
        let method = request.split(' ').next().unwrap_or_default().to_owned();
        log.lock().expect("nobody panics with it").push(request.clone());
        let mut script = script.lock().expect("nobody panics with it");
        if let Some(at) = script.refusals.iter().position(|(refused, _)| *refused == method) {
            let (_, status) = script.refusals.remove(at);
            let _ = write!(answers, "RTSP/1.0 {status}\r\nCSeq: {cseq}\r\n\r\n");
            continue;
        }
        let rest = match method.as_str() {
            "DESCRIBE" => {
                let sdp = format!("{SDP}{}{}", script.range, script.media);
                let bytes = sdp.len();
                format!("Content-Type: application/sdp\r\nContent-Length: {bytes}\r\n\r\n{sdp}")
            }
            "SETUP" => {
                let transport = header("Transport: ").unwrap_or_default();
                let pair = transport.split("client_port=").nth(1).and_then(|p| p.split_once('-'));
                let (first, second) = pair.expect("client_port");
                client = (first.parse().expect("a port"), second.parse().expect("a port"));
                format!("Session: 1\r\nTransport: {transport};server_port={ports}\r\n\r\n")
            }
            "PLAY" => {
                let (part, headers) = match script.parts.is_empty() {
                    true => (0..1000, script.play),
                    false => script.parts.remove(0),
                };
                let (script, sockets) = (script.clone(), (rtp.clone(), rtcp.clone()));
                let connection = answers.try_clone().expect("a descriptor");
                let begun = has_begun.clone();
                thread::spawn(move || play(&script, part, &sockets, client, (&connection, &begun)));
                format!("Session: 1\r\n{headers}\r\n")
            }
            _ => "\r\n".to_owned(),
        };
        if method == "PLAY" && script.answers_late {
            has_begun.wait();
        }
        if write!(answers, "RTSP/1.0 200 OK\r\nCSeq: {cseq}\r\n{rest}").is_err() {
            return;
        }
    }
}

fn play(
    script: &Script,
    part: Range<u32>,
    (rtp, rtcp): &(Arc<UdpSocket>, Arc<UdpSocket>),
    client: (u16, u16),
    (connection, has_begun): (&TcpStream, &Barrier),
) {
    let began = Instant::now();
    let packets = script.stream.len().div_ceil(PAYLOAD_BYTES) as u32;
    let part = packets * part.start / 1000..packets * part.end / 1000;
    let at = |number: u32| script.length * number / packets;
    for (number, payload) in (0..).zip(script.stream.chunks(PAYLOAD_BYTES)) {
        if !part.contains(&number) {
            continue;
        }
        if script.answers_late && number == part.start + EARLY {
            await_read(client.0);
            has_begun.wait();
        }
        let due = began + at(number - part.start);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let ticks = (at(number).as_secs_f64() * script.clock_rate * 90_000.0) as u32;
        let mut packet = vec![0x80, script.payload_type];
        packet.extend((number as u16).to_be_bytes());
        packet.extend(FIRST_TIMESTAMP.wrapping_add(ticks).to_be_bytes());
        packet.extend(SSRC.to_be_bytes());
        packet.extend_from_slice(payload);
        let _ = rtp.send_to(&packet, (Ipv4Addr::LOCALHOST, client.0));
    }
    if script.says_bye {
        let ssrc = SSRC.to_be_bytes();
        // An empty receiver report before it makes it a compound packet (RFC 3550 §6.1).
        let report = [&[0x80, 201, 0, 1][..], &ssrc, &[0x81, 203, 0, 1], &ssrc].concat();
        let _ = rtcp.send_to(&report, (Ipv4Addr::LOCALHOST, client.1));
    }
    if script.closes {
        let _ = connection.shutdown(std::net::Shutdown::Both);
    }
}

pub(crate) const MP2T: &str = "m=video 0 RTP/AVP 33\r\n";
/// A typical description by a camera.
pub(crate) const JPEG: &str = "m=video 0 RTP/AVP 26\r\n\
    m=audio 0 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";
const SDP: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=title\r\nt=0 0\r\n";
const SSRC: u32 = 0x0bad_cafe;
/// Packets that a server sends before it answers late, fewer than any part has.
const EARLY: u32 = 15;
/// Timestamps wrap while the stream is played.
const FIRST_TIMESTAMP: u32 = u32::MAX - 90_000;
