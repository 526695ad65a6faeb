// SPDX-License-Identifier: MIT OR Apache-2.0
//! Costs of decisions: without rules, by an address, by a password that was verified before, and by
//! a signed address. A benchmark without thresholds.
//!
//! `cargo test --release -p access --test cost -- --ignored --nocapture` prints the medians.

#![forbid(unsafe_code)]

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use access::rules::{RuleDraft, Verb};
use access::{
    Access, AccessConfig, AccessRequest, AccessVerdict, Policy, Protocol, SignedUrl, UrlKeys,
    htpasswd_line,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Name, policy, path, query and Authorization of a request.
type Case<'a> = (&'a str, &'a Access, &'a str, Option<&'a str>, Option<&'a [u8]>);

const ROUNDS: usize = 21;
const DECISIONS: usize = 20_000;

fn rule(path: &str, allow: &[&str]) -> access::rules::Rule {
    let draft = RuleDraft {
        path: Some(path.to_owned()),
        channel: None,
        verbs: vec!["play".to_owned()],
        allow: allow.iter().map(|one| (*one).to_owned()).collect(),
    };
    draft.check().expect("a rule")
}

/// A policy with a hundred rules beside those that are asked about.
fn policy(folder: &Path) -> Policy {
    let mut config = AccessConfig::default();
    config.rules = (0..100).map(|number| rule(&format!("other/{number}"), &["users"])).collect();
    config.rules.push(rule("house", &["address:192.0.2.0/24"]));
    config.rules.push(rule("family", &["users"]));
    config.rules.push(rule("sent", &["signed"]));
    let (users, keys) = (folder.join("users"), folder.join("keys"));
    fs::write(&users, htpasswd_line("anna", b"secret").expect("a user") + "\n").expect("room");
    fs::write(&keys, format!("2026 {}\n", "5a".repeat(32))).expect("room");
    config.users = Some(users);
    config.url_key_file = Some(keys);
    Policy::load(&config).expect("a policy")
}

#[test]
#[ignore = "a benchmark; its header has the command"]
fn decisions_cost() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let policy = policy(folder.path());
    let keys = UrlKeys::read("url-key-file", &folder.path().join("keys")).expect("keys");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let signed = SignedUrl {
        path: "sent/season/film.mp4".to_owned(),
        is_prefix: true,
        expires_s: now + 3600,
        address: None,
    };
    let query = keys.sign(&signed).expect("a path without ..");
    let authorization = format!("Basic {}", BASE64_STANDARD.encode("anna:secret"));
    let open = Access::new(Policy::load(&AccessConfig::default()).expect("no rules"));
    let ruled = Access::new(policy);
    let cases: [Case<'_>; 4] = [
        ("no rules", &open, "film.mp4", None, None),
        ("address", &ruled, "house/season/film.mp4/video/1.m4s", None, None),
        (
            "password, verified before",
            &ruled,
            "family/season/film.mp4/video/1.m4s",
            None,
            Some(authorization.as_bytes()),
        ),
        ("signed address", &ruled, "sent/season/film.mp4/video/1.m4s", Some(&query), None),
    ];
    for (name, access, path, query, authorization) in cases {
        let request = AccessRequest {
            verb: Verb::Play,
            path,
            asset: path,
            target: path,
            method: "GET",
            query,
            authorization,
            address: [192, 0, 2, 7].into(),
            protocol: Protocol::Http,
            known: None,
        };
        runtime.block_on(async {
            let verdict = access.decide(&request).await;
            assert!(matches!(verdict, AccessVerdict::Admitted(_)), "{name}: {verdict:?}");
            let mut rounds: Vec<Duration> = Vec::with_capacity(ROUNDS);
            for _ in 0..ROUNDS {
                let began = Instant::now();
                for _ in 0..DECISIONS {
                    black_box(access.decide(black_box(&request)).await);
                }
                rounds.push(began.elapsed());
            }
            rounds.sort();
            let ns = |at: usize| rounds[at].as_nanos() / DECISIONS as u128;
            println!("{name}: {} ns ({} to {})", ns(ROUNDS / 2), ns(0), ns(ROUNDS - 1));
        });
    }
}
