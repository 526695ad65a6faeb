// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes RTSP requests (`wire::rtsp::RequestReader`), and the responses to the requests that it
//! reads.
//!
//! Checked: every division of the bytes into pieces gives the same requests and the same fault;
//! memory stays within the limits; paths are absolute, decoded, and the same after escaping and
//! parsing again; pagewire's client reads each response, which repeats words of the request, as
//! exactly one reply.
//!
//! Sources: RFC 2326 §4, §6, §7, §12.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use wire::rtsp::client::ReplyReader;
use wire::rtsp::{
    ChannelPair, Command, GrantedTransport, Limits, Malformed, PlayRequest, PortPair, Received,
    Request, RequestReader, Response, RtpInfo, Status, TransportOffer, content_base,
};
use wire::sdp;

use crate::FuzzTarget;
use crate::pieces::pieces;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "rtsp", run };

/// Limits so small that the fuzzer exceeds them.
const TIGHT: Limits =
    Limits { head_bytes_max: 300, body_bytes_max: 40, headers_max: 8, interleaved_bytes_max: 16 };
/// Limits for a response: it repeats parts of a request within the usual limits, and adds more.
const ROOMY: Limits = Limits {
    head_bytes_max: 1 << 20,
    body_bytes_max: 1 << 20,
    headers_max: 64,
    interleaved_bytes_max: 1 << 16,
};

fn run(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let limits = if choice & 1 == 0 { Limits::default() } else { TIGHT };
    let (received, fault) = read(limits, &[bytes]);
    let (received_cut, fault_cut) = read(limits, &pieces(bytes, choice >> 1));
    // Leaves out the fault's offset: the LF of a CRLF that is cut may count to either line.
    let kind = |fault: &Option<Malformed>| fault.as_ref().map(|malformed| malformed.fault.clone());
    assert_eq!(received, received_cut, "the cut matters");
    assert_eq!(kind(&fault), kind(&fault_cut), "the cut matters");

    for received in &received {
        match received {
            Received::Message(request) => {
                check_path(request);
                for response in responses(request) {
                    check_response(request, &response);
                }
            }
            Received::Interleaved(frame) => {
                assert!(frame.data.len() <= limits.interleaved_bytes_max, "{frame:?}");
            }
        }
    }
    if let Some(fault) = fault {
        assert!(fault.offset <= bytes.len() as u64, "{fault}: behind what was sent");
        let (status, replies) = (fault.status(), replies(&fault.response()));
        assert_eq!(replies.first().map(|reply| reply.0), Some(status.code()), "{fault}");
        assert_eq!(replies.len(), 1, "{fault}");
    }
}

/// Reads all requests and interleaved frames, and the fault that ended them, if any.
fn read(limits: Limits, pieces: &[&[u8]]) -> (Vec<Received<Request>>, Option<Malformed>) {
    let mut reader = RequestReader::new(limits);
    let mut received = Vec::new();
    let mut fed = 0;
    for piece in pieces {
        reader.feed(piece);
        fed += piece.len();
        loop {
            match reader.next() {
                Ok(Some(next)) => received.push(next),
                Ok(None) => break,
                Err(fault) => {
                    assert_eq!(reader.next(), Err(fault.clone()), "a fault repeats");
                    return (received, Some(fault));
                }
            }
        }
        assert!(reader.byte_offset() <= fed as u64);
        // The limit allows a head twice (as received, and cleaned with three bytes for a byte that
        // is not UTF-8), buffers of twice their content, and the piece.
        let held_max = 2 * 4 * limits.head_bytes_max + 4 * piece.len() + 4096;
        assert!(reader.held_bytes() <= held_max, "{} bytes held", reader.held_bytes());
    }
    (received, None)
}

/// Checks that a path can be looked up below a folder, and that its escaped URL resolves to it
/// again.
fn check_path(request: &Request) {
    let path = &request.path;
    if path == "*" || path.is_empty() {
        assert!(request.command.is_err() || path == "*", "no path and no refusal");
        return;
    }
    assert!(path.starts_with('/'), "{path:?}");
    assert!(!path.split('/').any(|segment| segment == ".."), "{path:?}");
    let escaped = wire::http::escape_path(path);
    let again = format!("OPTIONS rtsp://h{escaped} RTSP/1.0\r\nCSeq: 1\r\n\r\n");
    let (again, fault) = read(ROOMY, &[again.as_bytes()]);
    assert_eq!(fault, None, "{path:?} as {escaped:?}");
    let Some(Received::Message(again)) = again.first() else { panic!("{escaped:?}: no request") };
    assert_eq!(&again.path, path, "as {escaped:?}");
}

/// Returns responses that a server may give to the request.
fn responses(request: &Request) -> Vec<Response> {
    let base = content_base(&request.url);
    let mut responses = match &request.command {
        Err(refusal) => vec![refusal.clone()],
        Ok(Command::Describe) => {
            let description = sdp::Description {
                name: &request.path,
                origin: IpAddr::V4(Ipv4Addr::LOCALHOST),
                id: 1,
                version: 2,
                duration: Some(Duration::from_secs(3)),
                bits_per_second: 4_000_000,
            };
            let text = sdp::mp2t(&description);
            assert!(sdp::parse(&text).is_ok(), "{:?}", String::from_utf8_lossy(&text));
            vec![Response::describe(request, &base, text)]
        }
        Ok(Command::Setup(offers)) => {
            assert!((1..=8).contains(&offers.len()), "{offers:?}");
            let set_up = |offer| {
                Response::setup(request, "1a2b3c", Duration::from_secs(60), &granted(offer))
            };
            offers.iter().map(set_up).collect()
        }
        Ok(Command::Play(play)) => vec![play_response(request, play)],
        Ok(_) => vec![Response::options(request), Response::in_session(request, "1a2b3c")],
    };
    responses.push(Response::new(Status::NotFound, request).header("Content-Base", base));
    responses
}

/// Returns the grant of an offer, with the ports and channels of the client.
fn granted(offer: &TransportOffer) -> GrantedTransport {
    let server = PortPair { rtp: 5004, rtcp: 5005 };
    match *offer {
        TransportOffer::Udp { ports: client, .. } => {
            assert!(client.rtp != 0 && client.rtcp != 0, "{client:?}");
            GrantedTransport::Udp { client, server, ssrc: 7, source: None }
        }
        TransportOffer::Interleaved { channels } => {
            let channels = channels.unwrap_or(ChannelPair { rtp: 0, rtcp: 1 });
            assert_ne!(channels.rtp, channels.rtcp);
            GrantedTransport::Interleaved { channels, ssrc: 7 }
        }
        TransportOffer::Multicast => {
            let group = IpAddr::V4(Ipv4Addr::new(239, 1, 1, 1));
            GrantedTransport::Multicast { group, ports: server, ttl: 8, source: None, ssrc: 7 }
        }
    }
}

fn play_response(request: &Request, play: &PlayRequest) -> Response {
    let info = RtpInfo { url: &request.url, sequence: Some(1), timestamp: 2 };
    let end = play.range.and_then(|range| range.end);
    let session = request.session.as_deref().unwrap_or_default();
    Response::play(request, session, play, Duration::ZERO, end, &[info])
}

/// Checks that no word of the client adds a second message to the response.
fn check_response(request: &Request, response: &Response) {
    let bytes = response.encode();
    let shown = || String::from_utf8_lossy(&bytes);
    let replies = replies(&bytes);
    let cseq = (request.cseq != 0).then_some(request.cseq);
    assert_eq!(replies.len(), 1, "{:?}", shown());
    let (status, reply_cseq) = replies[0];
    assert_eq!(status, response.status().code(), "{:?}", shown());
    assert!(cseq.is_none() || reply_cseq == cseq, "{:?}", shown());
}

/// Returns status and CSeq of each reply in the bytes, and checks that no bytes are left.
fn replies(bytes: &[u8]) -> Vec<(u16, Option<u32>)> {
    let mut reader = ReplyReader::new(ROOMY);
    reader.feed(bytes);
    let mut replies = Vec::new();
    loop {
        match reader.next_reply() {
            Ok(Some(reply)) => replies.push((reply.status(), reply.cseq())),
            Ok(None) => break,
            Err(fault) => panic!("{fault}: {:?}", String::from_utf8_lossy(bytes)),
        }
    }
    assert!(reader.is_empty(), "{:?}", String::from_utf8_lossy(bytes));
    replies
}
