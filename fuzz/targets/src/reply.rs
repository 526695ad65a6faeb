// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTSP replies and session descriptions that a hostile server sends to `pagewire play`.
//!
//! Checked: every division of the bytes into pieces gives the same replies and the same fault;
//! after any reply (its URLs and session included) a server reads the client's requests as one
//! message or refuses them.
//!
//! Sources: RFC 2326 §7, §12, Appendix C; RFC 8866 §5.

use wire::rtsp::client::{Client, Reply, ReplyReader};
use wire::rtsp::{Limits, Malformed, RequestReader, TransportOffer};
use wire::sdp;

use crate::FuzzTarget;
use crate::pieces::pieces;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "reply", run };

const TIGHT: Limits =
    Limits { head_bytes_max: 300, body_bytes_max: 400, headers_max: 8, interleaved_bytes_max: 16 };
const ROOMY: Limits = Limits {
    head_bytes_max: 1 << 20,
    body_bytes_max: 1 << 20,
    headers_max: 64,
    interleaved_bytes_max: 1 << 16,
};

fn run(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    // The fuzzer gets further into a session description without a head around it.
    if choice == u8::MAX {
        let _ = sdp::parse(bytes);
        return;
    }
    let limits = if choice & 1 == 0 { Limits::default() } else { TIGHT };
    let (replies, fault) = read(limits, &[bytes]);
    let (replies_cut, fault_cut) = read(limits, &pieces(bytes, choice >> 1));
    // Leaves out the fault's offset: the LF of a CRLF that is cut may count to either line.
    let kind = |fault: &Option<Malformed>| fault.as_ref().map(|malformed| malformed.fault.clone());
    assert_eq!(replies, replies_cut, "the cut matters");
    assert_eq!(kind(&fault), kind(&fault_cut), "the cut matters");

    for reply in &replies {
        let mut client = Client::new("rtsp://host:8554/its/path.ts").expect("a good URL");
        let _ = client.described(reply);
        let _ = client.set_up(reply);
        let _ = client.started(reply);
        check_request(&client.setup(&TransportOffer::Interleaved { channels: None }));
        check_request(&client.play(None));
        check_request(&client.teardown());
    }
}

fn read(limits: Limits, pieces: &[&[u8]]) -> (Vec<Reply>, Option<Malformed>) {
    let mut reader = ReplyReader::new(limits);
    let mut replies = Vec::new();
    for piece in pieces {
        reader.feed(piece);
        loop {
            match reader.next_reply() {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                Err(fault) => return (replies, Some(fault)),
            }
        }
    }
    (replies, None)
}

/// Checks that the bytes are one request or are refused, never a second one added by the server.
fn check_request(bytes: &[u8]) {
    let mut reader = RequestReader::new(ROOMY);
    reader.feed(bytes);
    if let Ok(first) = reader.next_request() {
        let shown = String::from_utf8_lossy(bytes);
        assert!(first.is_some() && reader.is_empty(), "not one request: {shown:?}");
    }
}
