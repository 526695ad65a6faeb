// SPDX-License-Identifier: MIT OR Apache-2.0
//! Digest where one request is decided about several times, as those for the index of a folder and
//! for pictures of a title are.
//!
//! Sources: RFC 7616 §3.4.1 (response), §3.4 (nc).

#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr};

use access::rules::Verb;
use access::{
    Access, AccessConfig, AccessRequest, AccessVerdict, Policy, Protocol, RequestCredentials,
    htdigest_line,
};
use aws_lc_rs::digest::{SHA256, digest};

const TARGET: &str = "/films/";

fn sha256(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn access() -> Access {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    let mut config = AccessConfig::default();
    std::fs::write(&users, htdigest_line("anna", &config.realm, b"secret", false).unwrap() + "\n")
        .unwrap();
    config.digest_users = Some(users);
    Access::new(Policy::load(&config).unwrap())
}

fn request<'a>(
    authorization: Option<&'a str>,
    known: Option<&'a RequestCredentials>,
) -> AccessRequest<'a> {
    AccessRequest {
        verb: Verb::List,
        path: TARGET,
        asset: TARGET,
        target: TARGET,
        method: "GET",
        query: None,
        authorization: authorization.map(str::as_bytes),
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        protocol: Protocol::Http,
        known,
    }
}

/// Returns the response of a client with this password to a challenge of the server's.
async fn response(access: &Access, password: &str) -> String {
    let verdict = access.decide(&request(None, None)).await;
    let AccessVerdict::Unauthorized { challenges, .. } = verdict else { panic!("{verdict:?}") };
    let (_, behind) = challenges[0].split_once("nonce=\"").unwrap();
    let (nonce, _) = behind.split_once('"').unwrap();
    let realm = AccessConfig::REALM;
    let first = sha256(&format!("anna:{realm}:{password}"));
    let second = sha256(&format!("GET:{TARGET}"));
    let response = sha256(&format!("{first}:{nonce}:00000001:c:auth:{second}"));
    format!(
        "Digest username=\"anna\", realm=\"{realm}\", nonce=\"{nonce}\", uri=\"{TARGET}\", \
         algorithm=SHA-256, qop=auth, nc=00000001, cnonce=\"c\", response=\"{response}\""
    )
}

#[tokio::test]
async fn response_holds_for_every_decision_about_its_request_and_no_other() {
    let access = access();
    let sent = response(&access, "secret").await;
    let known = RequestCredentials::default();
    for _ in 0..2 {
        let verdict = access.decide(&request(Some(&sent), Some(&known))).await;
        let AccessVerdict::Admitted(grant) = verdict else { panic!("{verdict:?}") };
        assert_eq!(grant.user.as_deref(), Some("anna"));
        let class = access.listing(&request(Some(&sent), Some(&known))).await.unwrap();
        assert!(class.is_listed("a.ts"));
    }
    assert_eq!(known.user(), Some("anna"));
    let next = RequestCredentials::default();
    let verdict = access.decide(&request(Some(&sent), Some(&next))).await;
    let AccessVerdict::Unauthorized { challenges, .. } = verdict else { panic!("{verdict:?}") };
    assert!(challenges[0].contains("stale=true"), "a replay: {challenges:?}");
    assert_eq!(next.user(), None);
}

#[tokio::test]
async fn wrong_response_is_counted_once_for_its_request() {
    let access = access();
    let sent = response(&access, "wrong").await;
    let known = RequestCredentials::default();
    for _ in 0..12 {
        let verdict = access.decide(&request(Some(&sent), Some(&known))).await;
        assert!(matches!(verdict, AccessVerdict::Unauthorized { .. }), "{verdict:?}");
    }
    let sent = response(&access, "secret").await;
    let verdict = access.decide(&request(Some(&sent), None)).await;
    assert!(matches!(verdict, AccessVerdict::Admitted(_)), "{verdict:?}");
}
