// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes a refusal of an RTSP server: status, reason, body, and the cure where it is known.
//!
//! Sources: RFC 2326 §7.1.1, §11.3.

use wire::rtsp::client::Reply;

use super::{one_line, without_userinfo};

/// Describes a status other than 200.
pub(super) fn refusal(reply: &Reply) -> String {
    let reason = one_line(reply.reason(), WORDS_CHARS_MAX);
    let body = one_line(&String::from_utf8_lossy(&reply.body), WORDS_CHARS_MAX);
    // A body that begins with the reason replaces it.
    let text = match body.strip_prefix(reason.as_str()) {
        _ if body.is_empty() => format!("{} {reason}", reply.status()),
        Some(_) => format!("{} {body}", reply.status()),
        None => format!("{} {reason}: {body}", reply.status()),
    };
    let moved = reply.header("Location").filter(|_| (300..=399).contains(&reply.status()));
    let moved = moved.filter(|address| !address.trim().is_empty());
    match (cure(reply.status(), &body), moved) {
        (_, Some(address)) => {
            let address = one_line(&without_userinfo(address), WORDS_CHARS_MAX);
            format!("{text}; it moved: give {address} instead")
        }
        ("", None) => text,
        (cure, None) => format!("{text}; {cure}"),
    }
}

/// Returns the advice for a status; empty where the body already contains advice: after a
/// semicolon, or in any form where the server is full.
fn cure(status: u16, body: &str) -> &'static str {
    match status {
        404 if body.contains(';') => "",
        453 | 503 if !body.is_empty() => "",
        300..=399 => "give the address it moved to",
        407 => "it wants a password for a proxy, which this client cannot give",
        404 => "the index of the server lists what is there",
        415 => "it can be downloaded over HTTP",
        453 | 503 => "the server is full; try again later",
        454 => "the server has ended the session, or was restarted",
        457 => "start before the end of the asset",
        461 => "it does not send RTP by this transport to this address",
        _ => "",
    }
}

/// Words of a server in a message.
pub(super) const WORDS_CHARS_MAX: usize = 300;
