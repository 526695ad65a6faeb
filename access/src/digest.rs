// SPDX-License-Identifier: MIT OR Apache-2.0
//! Challenges of Digest, and the responses to them.
//!
//! HTTP clients must count their requests (`qop=auth`). RTSP clients of RFC 2326 do not (live555,
//! GStreamer): their response is bound to method, address and nonce. It can be replayed from the
//! same address within the nonce's life, which only repeats the same SETUP.
//!
//! Sources: RFC 7616 §3.3 to §3.7, RFC 2617 §3.2, RFC 2069 §2.1 (without qop), RFC 2326 §14.
//! Does not offer auth-int, sessions of algorithms (`-sess`), userhash, or Authentication-Info.

use std::net::IpAddr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use wire::http::decoded_path;

use crate::authorization::DigestFields;
use crate::digest_users::{DigestHash, DigestUsers};
use crate::nonces::{NonceState, Nonces};
use crate::paths::{canonical, is_below};

/// The request that a response must be for.
pub(crate) struct DigestRequest<'a> {
    pub(crate) method: &'a str,
    /// Path, decoded.
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) address: IpAddr,
    /// True where the protocol's clients may omit `qop`, and may name the asset in place of a
    /// stream.
    pub(crate) is_rtsp: bool,
}

/// Result of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DigestResult {
    Right,
    /// The nonce has expired or its count was used before: the client may try again at once.
    Stale,
    Wrong,
}

/// Returns a challenge.
pub(crate) fn challenge(kind: DigestHash, realm: &str, nonce: &str, is_stale: bool) -> String {
    let stale = if is_stale { ", stale=true" } else { "" };
    let name = kind.name();
    format!("Digest realm=\"{realm}\", qop=\"auth\", algorithm={name}, nonce=\"{nonce}\"{stale}")
}

/// Verifies a response.
pub(crate) fn verify(
    fields: &DigestFields<'_>,
    request: &DigestRequest<'_>,
    (users, realm): (&DigestUsers, &str),
    nonces: &Nonces,
    now_s: u64,
) -> DigestResult {
    let kind = match fields.algorithm {
        Some(name) if name.eq_ignore_ascii_case("SHA-256") => DigestHash::Sha256,
        Some(name) if name.eq_ignore_ascii_case("MD5") => DigestHash::Md5,
        None => DigestHash::Md5,
        Some(_) => return DigestResult::Wrong,
    };
    if fields.realm != realm || !is_same_target(&fields.uri, request) {
        return DigestResult::Wrong;
    }
    let nonce = match nonces.state(fields.nonce, request.address, now_s) {
        NonceState::Fresh(random, expires_s) => Some((random, expires_s)),
        NonceState::Stale => None,
        NonceState::Unknown => return DigestResult::Stale,
    };
    let second = kind.hex(format!("{}:{}", request.method, fields.uri).as_bytes());
    let (count, rest) = match (fields.qop, fields.count, &fields.client_nonce) {
        (Some("auth"), Some(count), Some(client_nonce)) => {
            let number = u32::from_str_radix(count, 16).ok().filter(|_| count.len() == 8);
            let Some(number) = number.filter(|number| *number > 0) else {
                return DigestResult::Wrong;
            };
            (Some(number), format!("{}:{count}:{client_nonce}:auth:{second}", fields.nonce))
        }
        (None, None, _) if request.is_rtsp => (None, format!("{}:{second}", fields.nonce)),
        _ => return DigestResult::Wrong,
    };
    // A name that is not in the file takes as long, and is never right.
    let first = users.hash(kind, &fields.user);
    let expected = kind.hex(format!("{}:{rest}", first.unwrap_or(NOBODY)).as_bytes());
    let given = fields.response.to_ascii_lowercase();
    let is_equal = verify_slices_are_equal(expected.as_bytes(), given.as_bytes()).is_ok();
    if !is_equal || first.is_none() {
        return DigestResult::Wrong;
    }
    match (nonce, count) {
        (None, _) => DigestResult::Stale,
        (Some(nonce), Some(count)) => match nonces.enter(nonce, count, (&fields.user, now_s)) {
            true => DigestResult::Right,
            false => DigestResult::Stale,
        },
        (Some(_), None) => DigestResult::Right,
    }
}

/// True when the address in a response is that of the request (RFC 7616 §3.4.6).
fn is_same_target(uri: &str, request: &DigestRequest<'_>) -> bool {
    let local = match uri.split_once("://") {
        Some((_, rest)) => rest.find(['/', '?']).map_or("/", |at| &rest[at..]),
        None => uri,
    };
    let (path, query) = match local.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (local, None),
    };
    let path = decoded_path(path);
    let (Some(named), Some(asked)) = (canonical(&path), canonical(request.path)) else {
        return false;
    };
    match request.is_rtsp {
        // Clients name the asset or one of its streams, with or without the query.
        true => is_below(&named, &asked) || is_below(&asked, &named),
        false => named == asked && query == request.query,
    }
}

const NOBODY: &str = "";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest_users::htdigest_line;
    use crate::passwords::tests::file;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn users() -> DigestUsers {
        let lines = [
            htdigest_line("anna", "r", b"secret", false).unwrap(),
            htdigest_line("anna", "r", b"secret", true).unwrap(),
        ];
        let (_folder, path) = file(&lines.join("\n"));
        DigestUsers::read(&path, "r", true).unwrap()
    }

    /// A client's response, by the formula of RFC 7616 §3.4.1.
    fn respond<'a>(
        kind: DigestHash,
        (password, method, uri): (&str, &str, &str),
        (nonce, count): (&'a str, Option<&'a str>),
        response: &'a mut String,
    ) -> DigestFields<'a> {
        let first = kind.hex(format!("anna:r:{password}").as_bytes());
        let second = kind.hex(format!("{method}:{uri}").as_bytes());
        let middle = count.map_or(String::new(), |count| format!("{count}:cn:auth:"));
        *response = kind.hex(format!("{first}:{nonce}:{middle}{second}").as_bytes());
        DigestFields {
            user: "anna".into(),
            realm: "r".into(),
            nonce,
            uri: uri.into(),
            response,
            algorithm: Some(kind.name()),
            qop: count.map(|_| "auth"),
            count,
            client_nonce: count.map(|_| "cn".into()),
        }
    }

    #[test]
    fn right_responses_are_accepted_once() {
        let (users, nonces) = (users(), Nonces::new());
        let nonce = nonces.make(ADDRESS, 1000);
        let get = |path| DigestRequest {
            method: "GET",
            path,
            query: Some("x=1"),
            address: ADDRESS,
            is_rtsp: false,
        };
        for (kind, count) in [(DigestHash::Sha256, "00000001"), (DigestHash::Md5, "00000002")] {
            let mut text = String::new();
            let sent = ("secret", "GET", "/a%20b.ts?x=1");
            let fields = respond(kind, sent, (&nonce, Some(count)), &mut text);
            let verify = |path, now_s| verify(&fields, &get(path), (&users, "r"), &nonces, now_s);
            assert_eq!(verify("/a.ts", 1000), DigestResult::Wrong, "another path");
            assert_eq!(verify("/a b.ts", 1000), DigestResult::Right);
            assert_eq!(verify("/a b.ts", 1000), DigestResult::Stale, "a replay");
            assert_eq!(verify("/a b.ts", 1400), DigestResult::Stale, "an old nonce");
        }
        let mut text = String::new();
        let sent = ("Secret", "GET", "/a.ts?x=1");
        let wrong = respond(DigestHash::Sha256, sent, (&nonce, Some("00000003")), &mut text);
        let found = verify(&wrong, &get("/a.ts"), (&users, "r"), &nonces, 1000);
        assert_eq!(found, DigestResult::Wrong);
    }

    #[test]
    fn clients_without_counts_are_those_of_rtsp() {
        let (users, nonces) = (users(), Nonces::new());
        let nonce = nonces.make(ADDRESS, 1000);
        let mut text = String::new();
        let sent = ("secret", "SETUP", "rtsp://h:8554/a.ts/");
        let fields = respond(DigestHash::Md5, sent, (&nonce, None), &mut text);
        for (is_rtsp, expected) in [(true, DigestResult::Right), (false, DigestResult::Wrong)] {
            let (path, query) = ("/a.ts/stream", None);
            let request = DigestRequest { method: "SETUP", path, query, address: ADDRESS, is_rtsp };
            assert_eq!(verify(&fields, &request, (&users, "r"), &nonces, 1000), expected);
        }
        let request = DigestRequest {
            method: "SETUP",
            path: "/b.ts",
            query: None,
            address: ADDRESS,
            is_rtsp: true,
        };
        let found = verify(&fields, &request, (&users, "r"), &nonces, 1000);
        assert_eq!(found, DigestResult::Wrong, "another asset");
        let request = DigestRequest { path: "/a.ts", method: "DESCRIBE", ..request };
        let found = verify(&fields, &request, (&users, "r"), &nonces, 1000);
        assert_eq!(found, DigestResult::Wrong, "another method");
    }
}
