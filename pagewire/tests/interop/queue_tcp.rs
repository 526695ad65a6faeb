// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queued PLAYs that arrive in one segment, over TCP and through a tunnel of HTTP, of all tracks of
//! a file together: each track's packets are those of the ranges played alone.
//!
//! Sources: RFC 2326 §10.5, §10.12, Appendix B.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use crate::harness::rtsp::base64;
use crate::queue::{STREAM, serve};
use crate::trick::coordinates;

/// RTP packets by channel.
type Received = BTreeMap<u8, Vec<Vec<u8>>>;

/// A connection that carries requests, answers and media.
struct Interleaved {
    requests: TcpStream,
    answers: BufReader<TcpStream>,
    is_tunnel: bool,
    received: Received,
}

impl Interleaved {
    fn to(server: SocketAddr, is_tunnel: bool) -> Interleaved {
        let answers = TcpStream::connect(server).expect("the server listens");
        answers.set_read_timeout(Some(SILENCE)).expect("a time limit");
        let mut requests = answers.try_clone().expect("a free descriptor");
        let mut answers = BufReader::new(answers);
        if is_tunnel {
            let cookie = answers.get_ref().local_addr().expect("it is connected").port();
            let half = |method: &str| {
                format!(
                    "{method} / HTTP/1.0\r\nx-sessioncookie: queue-{cookie}\r\n\
                     Content-Length: 32767\r\n\r\n"
                )
            };
            requests.write_all(half("GET").as_bytes()).expect("the server reads");
            assert!(head(&mut answers).starts_with("HTTP/1.0 200"));
            requests = TcpStream::connect(server).expect("the server listens");
            requests.write_all(half("POST").as_bytes()).expect("the server reads");
        }
        Interleaved { requests, answers, is_tunnel, received: Received::new() }
    }

    /// Sends requests in one segment; returns the heads of the answers.
    fn ask(&mut self, requests: &[String]) -> Vec<String> {
        let text = requests.concat();
        let text = if self.is_tunnel { base64(&text) } else { text };
        self.requests.write_all(text.as_bytes()).expect("the server reads");
        requests.iter().map(|_| self.answer().expect("an answer")).collect()
    }

    /// Reads frames until an answer arrives; returns `None` when the connection is silent.
    fn answer(&mut self) -> Option<String> {
        loop {
            if *self.answers.fill_buf().ok()?.first()? != b'$' {
                return Some(head(&mut self.answers));
            }
            let mut header = [0; 4];
            self.answers.read_exact(&mut header).expect("a frame");
            let mut frame = vec![0; u16::from_be_bytes([header[2], header[3]]).into()];
            self.answers.read_exact(&mut frame).expect("a frame");
            if header[1].is_multiple_of(2) {
                self.received.entry(header[1]).or_default().push(frame);
            }
        }
    }
}

/// Reads a head to its empty line.
fn head(from: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(from.read_line(&mut head).expect("a head") > 0, "closed after {head:?}");
    }
    head
}

/// Returns the packets of ranges that are requested at once, to their end.
fn played(
    server: SocketAddr,
    (name, tracks): (&str, &[&str]),
    is_tunnel: bool,
    ranges: &[&str],
) -> Received {
    let mut client = Interleaved::to(server, is_tunnel);
    let mut session = String::new();
    let request = |method: &str, track: &str, headers: &str| {
        format!("{method} rtsp://{server}/{name}{track} RTSP/1.0\r\nCSeq: 1\r\n{headers}\r\n")
    };
    for (index, track) in tracks.iter().enumerate() {
        let (rtp, rtcp) = (2 * index, 2 * index + 1);
        let transport = format!("Transport: RTP/AVP/TCP;unicast;interleaved={rtp}-{rtcp}\r\n");
        let answer = client.ask(&[request("SETUP", track, &format!("{session}{transport}"))]);
        assert!(answer[0].starts_with("RTSP/1.0 200"), "{answer:?}");
        let found = answer[0].lines().find_map(|line| line.strip_prefix("Session: "));
        let id =
            found.and_then(|value| value.split(';').next()).expect("SETUP is answered with one");
        session = format!("Session: {id}\r\n");
    }
    let play = |range: &&str| request("PLAY", "", &format!("{session}Range: npt={range}\r\n"));
    for answer in client.ask(&ranges.iter().map(play).collect::<Vec<_>>()) {
        assert!(answer.starts_with("RTSP/1.0 200"), "{answer}");
    }
    assert_eq!(client.answer(), None, "nothing more is asked for");
    client.received
}

fn payloads(packets: &[Vec<u8>]) -> Vec<&[u8]> {
    packets.iter().map(|packet| &packet[12..]).collect()
}

#[test]
fn queued_plays_arrive_over_tcp_and_through_a_tunnel() {
    let (server, names) = serve("queue_tcp::queued_plays_arrive_over_tcp_and_through_a_tunnel");
    let mut titles: Vec<(&str, &[&str])> = vec![(STREAM, &[""])];
    if names.len() > 1 {
        titles.push(("film.mp4", &["/track0", "/track1"]));
    }
    let ranges = ["2-4", "7-8.5", "10-"];
    let rtsp = server.rtsp;
    for title in titles {
        thread::scope(|scope| {
            let alone =
                ranges.map(|range| scope.spawn(move || played(rtsp, title, false, &[range])));
            let queued = [false, true]
                .map(|is_tunnel| scope.spawn(move || played(rtsp, title, is_tunnel, &ranges)));
            let alone = alone.map(|thread| thread.join().expect("it is played"));
            for queued in queued {
                let queued = queued.join().expect("it is played");
                assert_eq!(queued.len(), title.1.len(), "{}: all tracks", title.0);
                for (channel, packets) in &queued {
                    let pieces: Vec<_> =
                        alone.iter().flat_map(|piece| payloads(&piece[channel])).collect();
                    assert!(payloads(packets) == pieces, "{}: channel {channel}", title.0);
                    let all: Vec<_> = packets.iter().map(|packet| coordinates(packet)).collect();
                    let runs_on = |pair: &[(u16, u32)]| pair[1].0 == pair[0].0.wrapping_add(1);
                    assert!(all.windows(2).all(runs_on), "{}: channel {channel}", title.0);
                }
            }
        });
    }
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
}

/// Longer than the interval between two packets, and shorter than the time to the session's end.
const SILENCE: Duration = Duration::from_secs(3);
