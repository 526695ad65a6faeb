// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads RTSP requests as a server receives them and prints the answer to each.
//!
//! `cargo run -p pagewire-wire --example answer_request [FILE]`: FILE holds the bytes that a client
//! sent, as saved from a capture; without it, the requests of ffmpeg are read.

use std::error::Error;
use std::net::Ipv4Addr;
use std::time::Duration;

use wire::rtsp::{
    Command, GrantedTransport, Limits, PortPair, Request, RequestReader, Response, RtpInfo, Status,
    TransportOffer, content_base,
};
use wire::sdp;

fn main() -> Result<(), Box<dyn Error>> {
    let bytes = match std::env::args_os().nth(1) {
        Some(path) => std::fs::read(path)?,
        None => FFMPEG.as_bytes().to_vec(),
    };
    let mut reader = RequestReader::new(Limits::default());
    // TCP may deliver pieces of any size; the reader accepts them all.
    for piece in bytes.chunks(100) {
        reader.feed(piece);
        while let Some(request) = reader.next_request()? {
            println!("{} {} -> {:?}\n", request.method_name, request.path, request.command);
            println!("{}", String::from_utf8_lossy(&answer(&request).encode()));
        }
    }
    Ok(())
}

/// Answers like a server with one film at every path.
fn answer(request: &Request) -> Response {
    let duration = Duration::from_secs(60);
    match &request.command {
        Err(refusal) => refusal.clone(),
        Ok(Command::Options) => Response::options(request),
        Ok(Command::Describe) => {
            let description = sdp::Description {
                name: "film.ts",
                origin: Ipv4Addr::LOCALHOST.into(),
                id: 1,
                version: 1,
                duration: Some(duration),
                bits_per_second: 5_000_000,
            };
            let base = content_base(&request.url);
            Response::describe(request, &base, sdp::mp2t(&description))
        }
        Ok(Command::Setup(offers)) => {
            let server = PortPair { rtp: 6970, rtcp: 6971 };
            let granted = offers.iter().find_map(|offer| match *offer {
                TransportOffer::Udp { ports: client, .. } => {
                    Some(GrantedTransport::Udp { client, server, ssrc: 7, source: None })
                }
                TransportOffer::Interleaved { channels: Some(channels) } => {
                    Some(GrantedTransport::Interleaved { channels, ssrc: 7 })
                }
                _ => None,
            });
            match granted {
                Some(granted) => {
                    Response::setup(request, SESSION, Duration::from_secs(60), &granted)
                }
                None => Response::new(Status::UnsupportedTransport, request),
            }
        }
        Ok(Command::Play(play)) => {
            let info = RtpInfo { url: &request.url, sequence: Some(1), timestamp: 0 };
            Response::play(request, SESSION, play, Duration::ZERO, Some(duration), &[info])
        }
        Ok(_) => Response::in_session(request, SESSION),
    }
}

const SESSION: &str = "0123456789abcdef";

const FFMPEG: &str = "\
    OPTIONS rtsp://127.0.0.1:8554/film.ts RTSP/1.0\r\nCSeq: 1\r\n\r\n\
    DESCRIBE rtsp://127.0.0.1:8554/film.ts RTSP/1.0\r\nAccept: application/sdp\r\nCSeq: 2\r\n\r\n\
    SETUP rtsp://127.0.0.1:8554/film.ts/stream RTSP/1.0\r\n\
    Transport: RTP/AVP/UDP;unicast;client_port=5000-5001\r\nCSeq: 3\r\n\r\n\
    PLAY rtsp://127.0.0.1:8554/film.ts/ RTSP/1.0\r\nRange: npt=0.000-\r\nCSeq: 4\r\n\
    Session: 0123456789abcdef\r\n\r\n\
    TEARDOWN rtsp://127.0.0.1:8554/film.ts/ RTSP/1.0\r\nCSeq: 5\r\n\
    Session: 0123456789abcdef\r\n\r\n";
