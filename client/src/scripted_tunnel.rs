// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scripted server's end of a tunnel of RTSP over HTTP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Reads the head of an HTTP request byte by byte.
pub(super) async fn http_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Decodes and removes complete groups of four characters; padding may occur in the middle.
pub(super) fn decode_groups(encoded: &mut Vec<u8>, bytes: &mut Vec<u8>) {
    let whole = encoded.len() / 4 * 4;
    for group in encoded.drain(..whole).collect::<Vec<_>>().chunks(4) {
        bytes.extend(STANDARD.decode(group).unwrap());
    }
}
