// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hook and sets of keys at an address: answers that are kept, servers that are down or slow to
//! change, keys that are new; the hook beside users of a file.
//!
//! The servers are threads of the test, on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};

use access::rules::{Rule, RuleDraft, Verb};
use access::{Access, AccessConfig, AccessRequest, AccessVerdict, Policy, Protocol, htpasswd_line};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

/// A server that answers each request by a function of its body, and keeps the bodies.
struct Remote {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Remote {
    fn start(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> Remote {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let bodies = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let (mut length, mut line) = (0, String::new());
                while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                    let lower = line.to_lowercase();
                    if let Some(value) = lower.strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                let body = String::from_utf8(body).unwrap();
                let (status, text) = answer(&body);
                bodies.lock().unwrap().push(body);
                let head = format!("HTTP/1.1 {status} x\r\nConnection: close\r\nContent-Length: ");
                let _ = write!(stream.get_mut(), "{head}{}\r\n\r\n{text}", text.len());
            }
        });
        Remote { url, asked }
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn config(allow: &str) -> AccessConfig {
    let mut config = AccessConfig::default();
    config.rules = vec![rule("", "play", &[allow])];
    config
}

fn rule(path: &str, verb: &str, allow: &[&str]) -> Rule {
    let draft = RuleDraft {
        path: Some(path.to_owned()),
        channel: None,
        verbs: vec![verb.to_owned()],
        allow: allow.iter().map(|one| (*one).to_owned()).collect(),
    };
    draft.check().unwrap()
}

async fn decide(access: &Access, path: &str, authorization: Option<&str>) -> AccessVerdict {
    access.decide(&request(Verb::Play, path, authorization)).await
}

fn request<'a>(verb: Verb, path: &'a str, authorization: Option<&'a str>) -> AccessRequest<'a> {
    AccessRequest {
        verb,
        path,
        asset: path,
        target: path,
        method: "GET",
        query: None,
        authorization: authorization.map(str::as_bytes),
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        protocol: Protocol::Http,
        known: None,
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

fn is_admitted(verdict: &AccessVerdict) -> bool {
    matches!(verdict, AccessVerdict::Admitted(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_is_asked_once_for_each_client_and_film() {
    let remote = Remote::start(|body| {
        let question: Value = serde_json::from_str(body).unwrap();
        let is_right = question["user"] == "anna" && question["password"] == "a:b";
        match (is_right, question["path"].as_str()) {
            (true, Some("unkept.ts")) => (200, json!({"cache_s": 0}).to_string()),
            (true, _) => (204, String::new()),
            (false, _) => (401, String::new()),
        }
    });
    let mut config = config("hook");
    config.auth_url = Some(remote.url.clone());
    let access = Access::new(Policy::load(&config).unwrap());
    let right = format!("Basic {}", STANDARD.encode("anna:a:b"));
    for _ in 0..3 {
        assert!(is_admitted(&decide(&access, "/film.ts", Some(&right)).await));
        assert!(is_admitted(&decide(&access, "//./film.ts", Some(&right)).await), "of one name");
    }
    assert_eq!(remote.asked(), 1, "the answer is kept");
    let body = remote.asked.lock().unwrap()[0].clone();
    let expected = json!({"user": "anna", "password": "a:b", "token": null,
        "address": "127.0.0.1", "verb": "play", "path": "film.ts", "protocol": "http"});
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
    for _ in 0..2 {
        assert!(is_admitted(&decide(&access, "/unkept.ts", Some(&right)).await));
    }
    assert_eq!(remote.asked(), 3, "the answer forbids to keep it");
    let wrong = format!("Basic {}", STANDARD.encode("anna:b"));
    for _ in 0..2 {
        let verdict = decide(&access, "/film.ts", Some(&wrong)).await;
        assert!(matches!(verdict, AccessVerdict::Unauthorized { .. }), "{verdict:?}");
    }
    assert_eq!(remote.asked(), 4, "a refusal is kept for some seconds");
    // Guesses are slowed like wrong passwords.
    for number in 0..10 {
        let guess = format!("Basic {}", STANDARD.encode(format!("anna:{number}")));
        decide(&access, "/film.ts", Some(&guess)).await;
    }
    assert!(remote.asked() <= 9, "{} guesses were passed on", remote.asked());
    assert!(is_admitted(&decide(&access, "/film.ts", Some(&right)).await), "its answer is kept");
    let slowed = decide(&access, "/other.ts", Some(&right)).await;
    assert!(matches!(slowed, AccessVerdict::Slowed { .. }), "{slowed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_of_a_path_or_a_server_that_is_down_is_no_wrong_password() {
    let remote = Remote::start(|body| {
        let question: Value = serde_json::from_str(body).unwrap();
        let status = if question["path"] == "own.ts" { 200 } else { 403 };
        (status, json!({"cache_s": 0}).to_string())
    });
    let mut config = config("hook");
    config.auth_url = Some(remote.url.clone());
    let access = Access::new(Policy::load(&config).unwrap());
    let anna = basic("anna", "a");
    for _ in 0..12 {
        let verdict = decide(&access, "/other.ts", Some(&anna)).await;
        assert!(matches!(verdict, AccessVerdict::Unauthorized { .. }), "{verdict:?}");
    }
    assert!(is_admitted(&decide(&access, "/own.ts", Some(&anna)).await));
    // Nobody listens there, and the kernel assigns the port to nobody.
    config.auth_url = Some("http://127.0.0.1:1/".to_owned());
    access.replace(Policy::load(&config).unwrap());
    for _ in 0..12 {
        let verdict = decide(&access, "/own.ts", Some(&anna)).await;
        assert!(matches!(verdict, AccessVerdict::Unauthorized { .. }), "{verdict:?}");
    }
}

/// A hook that accepts ben, and anna with a password that differs from the file's.
fn beside_users(rules: Vec<Rule>) -> (Remote, Access) {
    let remote = Remote::start(|body| {
        let question: Value = serde_json::from_str(body).unwrap();
        let shown = (question["user"].as_str(), question["password"].as_str());
        let is_right = matches!(shown, (Some("ben"), Some("b")) | (Some("anna"), Some("hook")));
        (if is_right { 200 } else { 401 }, json!({"cache_s": 0}).to_string())
    });
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, htpasswd_line("anna", b"file").unwrap() + "\n").unwrap();
    let mut config = AccessConfig::default();
    config.rules = rules;
    config.users = Some(users);
    config.auth_url = Some(remote.url.clone());
    (remote, Access::new(Policy::load(&config).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_the_hook_are_not_slowed_by_the_file_of_others() {
    let (remote, access) = beside_users(vec![rule("", "play", &["users", "hook"])]);
    let ben = basic("ben", "b");
    for _ in 0..12 {
        assert!(is_admitted(&decide(&access, "/film.ts", Some(&ben)).await));
    }
    assert_eq!(remote.asked(), 12);
    for number in 0..10 {
        let guess = basic("ben", &number.to_string());
        assert!(!is_admitted(&decide(&access, "/film.ts", Some(&guess)).await));
    }
    assert_eq!(remote.asked(), 17, "guesses that the hook refuses are counted, once each");
    assert!(is_admitted(&decide(&access, "/film.ts", Some(&basic("anna", "file"))).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn user_of_the_hook_is_no_user_of_a_file() {
    let rules = vec![rule("", "list", &["hook"]), rule("private", "list", &["user:anna"])];
    let (_remote, access) = beside_users(rules);
    for (password, is_of_file) in [("hook", false), ("file", true)] {
        let anna = basic("anna", password);
        let class = access.listing(&request(Verb::List, "", Some(&anna))).await.unwrap();
        assert_eq!(class.is_listed("a.ts"), !is_of_file, "{password}");
        assert_eq!(class.is_listed("private/a.ts"), is_of_file, "{password}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_an_issuer_are_fetched_when_they_are_needed_and_not_more_often() {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let public = pair.public_key().as_ref();
    let [x, y] = [&public[1..33], &public[33..65]].map(|part| URL_SAFE_NO_PAD.encode(part));
    let jwk = json!({"kty": "EC", "crv": "P-256", "kid": "one", "x": x, "y": y});
    let set = json!({"keys": [jwk]}).to_string();
    let remote = Remote::start(move |_| (200, set.clone()));
    let mut config = config("token");
    config.jwks = Some(remote.url.clone());
    config.jwt_audience = vec!["films".to_owned()];
    let access = Access::new(Policy::load(&config).unwrap());
    assert_eq!(remote.asked(), 0, "a start does not wait for the issuer");
    let document = pair.to_pkcs8v1().unwrap();
    let key = EncodingKey::from_ec_der(document.as_ref());
    let token = |id: &str, subject: &str| {
        let header = Header { kid: Some(id.to_owned()), ..Header::new(Algorithm::ES256) };
        let claims = json!({"aud": "films", "exp": u32::MAX, "sub": subject});
        format!("Bearer {}", encode(&header, &claims, &key).unwrap())
    };
    let good = token("one", "anna");
    match decide(&access, "/film.ts", Some(&good)).await {
        AccessVerdict::Admitted(grant) => {
            assert_eq!(grant.user.as_deref(), Some("token:anna"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(remote.asked(), 1);
    for number in 0..20 {
        let unknown = token(&format!("key {number}"), "anna");
        assert!(!is_admitted(&decide(&access, "/film.ts", Some(&unknown)).await));
    }
    assert_eq!(remote.asked(), 1, "strangers do not make it ask again so soon");
    assert!(is_admitted(&decide(&access, "/film.ts", Some(&token("one", "ben"))).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_policy_holds_for_the_next_request() {
    let access = Access::new(Policy::load(&AccessConfig::default()).unwrap());
    assert!(access.is_open() && is_admitted(&decide(&access, "/a", None).await));
    access.replace(Policy::load(&config("address:10.0.0.0/8")).unwrap());
    let verdict = decide(&access, "/a", None).await;
    assert!(matches!(verdict, AccessVerdict::Forbidden { .. }), "{verdict:?}");
    access.replace(Policy::load(&config("address:127.0.0.0/8")).unwrap());
    assert!(is_admitted(&decide(&access, "/a", None).await));
}
