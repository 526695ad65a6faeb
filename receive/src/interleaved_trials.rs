// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of recordings from a small server that sends media on the RTSP connection.
//!
//! The server shares no code with the server side of `wire`, so that a fault there cannot hide one
//! here.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use client::{StreamTransport, TransportChoice};
use wire::rtcp::{self, SenderInfo};
use wire::rtp::Header;

use crate::{RecordOptions, Recording, StreamFigures, StreamOptions, StreamOutputFiles, Summary};

const SSRC: u32 = 7;
const PACKETS: u16 = 300;
const STAMPS: u32 = 900;
const TCP: TransportChoice = TransportChoice::Only(StreamTransport::Tcp);

fn payload(n: u16) -> Vec<u8> {
    (0..7 * 188).map(|at| if at % 188 == 0 { 0x47 } else { (at as u16 ^ n) as u8 }).collect()
}

/// Reads a request; returns its method, its CSeq, and true if it offers UDP. Skips frames.
fn request(stream: &mut TcpStream) -> Option<(String, String, bool)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        if head.is_empty() && byte == *b"$" {
            let mut header = [0; 3];
            stream.read_exact(&mut header).ok()?;
            let mut data = vec![0; usize::from(u16::from_be_bytes([header[1], header[2]]))];
            stream.read_exact(&mut data).ok()?;
            assert_eq!(header[0] % 2, 1, "reports are frames of an RTCP channel");
            assert!(rtcp::parse(&data).unwrap().count() > 0);
            continue;
        }
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let cseq = head.lines().find_map(|line| line.strip_prefix("CSeq: ")).unwrap().to_owned();
    let is_udp = head.contains("client_port");
    Some((head.split(' ').next().unwrap().to_owned(), cseq, is_udp))
}

fn frame(channel: u8, data: &[u8]) -> Vec<u8> {
    let [high, low] = (data.len() as u16).to_be_bytes();
    [&[b'$', channel, high, low], data].concat()
}

/// All packets of the title and BYE, as frames.
fn media() -> Vec<u8> {
    let mut frames = Vec::new();
    for n in 0..PACKETS {
        let timestamp = u32::from(n) * STAMPS;
        let header = Header { marker: false, payload_type: 33, sequence: n, timestamp, ssrc: SSRC };
        frames.extend(frame(0, &[&header.write()[..], &payload(n)].concat()));
    }
    let packets = PACKETS.into();
    let sender =
        SenderInfo { ssrc: SSRC, ntp: 1 << 32, rtp_timestamp: 0, packets, octets: packets * 1316 };
    frames.extend(frame(1, &rtcp::sender_bye(&sender, "fake", "end of stream")));
    frames
}

/// Serves one connection; returns the number of refused offers of UDP.
fn serve(mut stream: TcpStream) -> u32 {
    let mut refused = 0;
    while let Some((method, cseq, is_udp)) = request(&mut stream) {
        let ok = format!("RTSP/1.0 200 OK\r\nCSeq: {cseq}\r\n");
        let end = u32::from(PACKETS) * STAMPS / 90_000;
        let answer = match method.as_str() {
            "DESCRIBE" => {
                let sdp = format!(
                    "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=a\r\nt=0 0\r\na=range:npt=0-{end}\r\n\
                     m=video 0 RTP/AVP 33\r\n"
                );
                let length = sdp.len();
                format!(
                    "{ok}Content-Type: application/sdp\r\nContent-Length: {length}\r\n\r\n{sdp}"
                )
            }
            "SETUP" if is_udp => {
                refused += 1;
                format!("RTSP/1.0 461 Unsupported Transport\r\nCSeq: {cseq}\r\n\r\n")
            }
            "SETUP" => {
                format!("{ok}Session: 1\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n\r\n")
            }
            "PLAY" => format!("{ok}Range: npt=0-{end}\r\nRTP-Info: url=a;seq=0;rtptime=0\r\n\r\n"),
            _ => format!("{ok}\r\n"),
        };
        stream.write_all(answer.as_bytes()).unwrap();
        if method == "PLAY" {
            // Pieces that do not end at frame boundaries.
            for piece in media().chunks(5000) {
                stream.write_all(piece).unwrap();
            }
        }
    }
    refused
}

/// A frame of MPEG audio, layer II of 192 kb/s at 48 kHz, as RFC 2250 §3.5 sends it.
fn sound(_: u16) -> Vec<u8> {
    [&[0; 4][..], &[0xff, 0xfd, 0xa4, 0x00], &[0; 572]].concat()
}

/// Step of a server.
#[derive(Clone, Copy)]
enum Step {
    /// A sender report.
    Report,
    /// A report with BYE.
    Bye,
    /// From now on a packet each few milliseconds, or no more.
    Flow(bool),
    /// Answers requests again.
    End,
}

/// Serves one connection with a stream that has no announced end: sends all packets, what the steps
/// ask for, and after the last step a report with BYE.
fn serve_steps(mut stream: TcpStream, payload_type: u8, steps: &mpsc::Receiver<Step>) {
    serve_tracks(&mut stream, (payload_type, ""), steps);
}

/// Does the same with media sections of further tracks, which send nothing.
fn serve_tracks(
    stream: &mut TcpStream,
    (payload_type, silent): (u8, &str),
    steps: &mpsc::Receiver<Step>,
) {
    let mut channels = (0..).step_by(2);
    let media = if payload_type == 33 { "video" } else { "audio" };
    let payload = if payload_type == 33 { payload } else { sound };
    while let Some((method, cseq, _)) = request(stream) {
        let ok = format!("RTSP/1.0 200 OK\r\nCSeq: {cseq}\r\nSession: 1\r\n");
        let answer = match method.as_str() {
            "DESCRIBE" => {
                let sdp = format!(
                    "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=a\r\nt=0 0\r\n\
                     m={media} 0 RTP/AVP {payload_type}\r\n{silent}"
                );
                format!("{ok}Content-Length: {}\r\n\r\n{sdp}", sdp.len())
            }
            "SETUP" => {
                let first: u8 = channels.next().unwrap();
                let second = first + 1;
                format!("{ok}Transport: RTP/AVP/TCP;unicast;interleaved={first}-{second}\r\n\r\n")
            }
            _ => format!("{ok}\r\n"),
        };
        stream.write_all(answer.as_bytes()).unwrap();
        if method != "PLAY" {
            continue;
        }
        let mut packets = (0..).map(|sequence| {
            let timestamp = u32::from(sequence) * 2160;
            let header = Header { marker: false, payload_type, sequence, timestamp, ssrc: SSRC };
            frame(0, &[&header.write()[..], &payload(sequence)].concat())
        });
        packets.by_ref().take(PACKETS.into()).for_each(|one| stream.write_all(&one).unwrap());
        let sender =
            SenderInfo { ssrc: SSRC, ntp: 1 << 32, rtp_timestamp: 0, packets: 300, octets: 1 };
        let report = frame(1, &rtcp::sender_report(&sender, "fake"));
        let bye = frame(1, &rtcp::sender_bye(&sender, "fake", "end"));
        let mut flows = false;
        loop {
            let sent = match steps.recv_timeout(Duration::from_millis(5)) {
                Ok(Step::Report) => report.clone(),
                Ok(Step::Bye) => bye.clone(),
                Ok(Step::Flow(on)) => {
                    flows = on;
                    continue;
                }
                Err(mpsc::RecvTimeoutError::Timeout) if flows => packets.next().unwrap(),
                Err(mpsc::RecvTimeoutError::Timeout) => continue,
                Ok(Step::End) => break,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let _ = stream.write_all(&bye);
                    break;
                }
            };
            if stream.write_all(&sent).is_err() {
                // The client has left.
                break;
            }
        }
    }
}

#[test]
fn each_sender_report_is_counted_once_of_a_transport_stream_and_of_tracks() {
    for payload_type in [33, 14] {
        let folder = tempfile::tempdir().unwrap();
        let (listener, url) = listen(Ipv4Addr::LOCALHOST.into());
        let (step, steps) = mpsc::channel();
        let serving = std::thread::spawn(move || {
            serve_steps(listener.accept().unwrap().0, payload_type, &steps);
        });
        let recording = recording_of(url, folder.path(), TCP);
        let await_that = |comes: &dyn Fn(&StreamFigures) -> bool| await_figures(&recording, comes);
        await_that(&|figures| figures.packets > 0);
        for sent in 1..=5 {
            step.send(Step::Report).unwrap();
            let counted = await_that(&|figures| figures.sender_reports >= sent);
            assert_eq!(counted.sender_reports, sent, "{payload_type}");
        }
        drop(step);
        // The sixth report is in the packet with the BYE.
        await_that(&|figures| figures.sender_reports >= 6);
        assert_eq!(recording.stop().streams[0].sender_reports, 6, "{payload_type}");
        serving.join().unwrap();
    }
}

/// Binds a port of a host; returns the URL of a stream there.
fn listen(host: IpAddr) -> (TcpListener, String) {
    let listener = TcpListener::bind((host, 0)).unwrap();
    let url = format!("rtsp://{}/a.ts", listener.local_addr().unwrap());
    (listener, url)
}

/// Starts a recording to `out.ts` in a folder.
fn recording_of(url: String, folder: &Path, transport: TransportChoice) -> Recording {
    let mut stream = StreamOptions::new(url);
    stream.output = StreamOutputFiles::Pattern(folder.join("out.ts").display().to_string());
    stream.transport = transport;
    let mut options = RecordOptions::new(vec![stream]);
    options.cache = Some(folder.join("cache"));
    Recording::start(&options).unwrap()
}

/// Waits for figures of the only stream; a minute only guards against a hang.
fn await_figures(recording: &Recording, comes: &dyn Fn(&StreamFigures) -> bool) -> StreamFigures {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let figures = recording.summary().streams.remove(0);
        if comes(&figures) {
            return figures;
        }
        assert!(Instant::now() < until, "{figures:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Regression: BYE on all tracks never ended a session, which was found silent 10 s later.
#[test]
fn bye_of_a_camera_ends_its_session_unless_packets_follow_it() {
    let folder = tempfile::tempdir().unwrap();
    let (listener, url) = listen(Ipv4Addr::LOCALHOST.into());
    let (step, steps) = mpsc::channel();
    let serving = std::thread::spawn(move || {
        for _ in 0..2 {
            serve_steps(listener.accept().unwrap().0, 14, &steps);
        }
    });
    let recording = recording_of(url, folder.path(), TCP);
    let await_that = |comes: &dyn Fn(&StreamFigures) -> bool| await_figures(&recording, comes);
    await_that(&|figures| figures.packets > 0);
    step.send(Step::Flow(true)).unwrap();
    for refused in 1..=2 {
        step.send(Step::Bye).unwrap();
        let is_judged =
            |figures: &StreamFigures| figures.byes_refused == refused || figures.trouble.is_some();
        if await_that(&is_judged).trouble.is_some() {
            eprintln!("skip: busy machine: the server stood still for half a second");
            return;
        }
    }
    step.send(Step::Flow(false)).unwrap();
    let before = await_that(&|_| true);
    assert_eq!((before.sessions, before.has_sent_bye, &before.trouble), (1, false, &None));
    step.send(Step::Bye).unwrap();
    let after = await_that(&|figures| figures.trouble.is_some());
    assert_eq!((after.trouble.as_deref(), after.has_sent_bye), (Some("the server said BYE"), true));
    step.send(Step::End).unwrap();
    let packets = after.packets;
    await_that(&|figures| figures.sessions == 2 && figures.packets > packets);
    drop(step);
    let last = &recording.stop().streams[0];
    assert_eq!((last.byes_refused, last.lost), (2, 0));
    serving.join().unwrap();
}

mod timed {
    use super::*;

    /// Regression: such a camera was asked anew after 10 s, because nothing had been recorded.
    #[test]
    fn a_camera_whose_microphone_is_off_is_recorded_in_one_session() {
        let folder = tempfile::tempdir().unwrap();
        let (listener, url) = listen(Ipv4Addr::LOCALHOST.into());
        let (step, steps) = mpsc::channel();
        let silent = "a=control:1\r\nm=audio 0 RTP/AVP 97\r\na=control:2\r\n\
                      a=rtpmap:97 mpeg4-generic/48000/2\r\n\
                      a=fmtp:97 mode=AAC-hbr;config=1190;sizelength=13;indexlength=3\r\n";
        let serving = std::thread::spawn(move || {
            serve_tracks(&mut listener.accept().unwrap().0, (14, silent), &steps);
        });
        let began = Instant::now();
        let recording = recording_of(url, folder.path(), TCP);
        step.send(Step::Flow(true)).unwrap();
        let is_over = |_: &StreamFigures| began.elapsed() >= Duration::from_secs(14);
        let figures = await_figures(&recording, &is_over);
        assert_eq!((figures.sessions, &figures.trouble), (1, &None));
        assert!(figures.packets > 0 && figures.tracks.len() == 2, "{figures:?}");
        step.send(Step::End).unwrap();
        recording.stop();
        serving.join().unwrap();
    }
}

/// Records from a server at a host; returns the figures, the file and the refused offers.
fn record(host: IpAddr, transport: TransportChoice) -> (Summary, Vec<u8>, u32) {
    let folder = tempfile::tempdir().unwrap();
    let (listener, url) = listen(host);
    let connections = if transport == TransportChoice::Auto { 2 } else { 1 };
    let serving = std::thread::spawn(move || {
        (0..connections).map(|_| serve(listener.accept().unwrap().0)).sum::<u32>()
    });
    let recording = recording_of(url, folder.path(), transport);
    let until = Instant::now() + Duration::from_secs(60);
    while !recording.is_over() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let summary = recording.stop();
    let file = std::fs::read(folder.path().join("out.ts")).unwrap();
    (summary, file, serving.join().unwrap())
}

fn is_whole(summary: &Summary, file: &[u8]) {
    assert!(summary.is_whole(), "{summary:?}");
    assert_eq!(summary.packets, u64::from(PACKETS));
    let asset: Vec<u8> = (0..PACKETS).flat_map(payload).collect();
    assert!(file == asset, "{} bytes of {}", file.len(), asset.len());
}

#[test]
fn a_title_over_tcp_is_recorded_whole() {
    let (summary, file, refused) = record(Ipv4Addr::LOCALHOST.into(), TCP);
    is_whole(&summary, &file);
    assert_eq!(refused, 0);
}

#[test]
fn a_server_that_refuses_udp_is_recorded_by_tcp() {
    let (summary, file, refused) = record(Ipv4Addr::LOCALHOST.into(), TransportChoice::Auto);
    is_whole(&summary, &file);
    assert_eq!(refused, 1);
}

#[test]
fn a_title_over_tcp_and_ipv6_is_recorded_whole() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("skip: no IPv6 on this machine's loopback");
        return;
    }
    let (summary, file, _) = record(Ipv6Addr::LOCALHOST.into(), TCP);
    is_whole(&summary, &file);
}

#[test]
fn a_group_of_a_server_is_refused_with_the_cure() {
    let mut stream = StreamOptions::new("rtsp://127.0.0.1/a".to_owned());
    stream.transport = TransportChoice::Only(StreamTransport::Multicast);
    let options = RecordOptions::new(vec![stream]);
    let error = Recording::start(&options).err().unwrap().to_string();
    assert!(error.starts_with("transport: multicast; write auto, udp, tcp or http"), "{error}");
}
