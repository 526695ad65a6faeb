// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tokens that are expired, for another audience, issuer or path, unsigned, signed with the public
//! key, or signed with another key.
//!
//! Sources: RFC 8725 §2 (attacks on tokens).

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::access::get;
use crate::harness::{PROGRAM, Place, Server};

/// A key of an issuer.
struct Issuer {
    key: EncodingKey,
    /// Its public part, in the form of a key set.
    jwk: Value,
}

impl Issuer {
    fn new(id: &str) -> Issuer {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = EcdsaKeyPair::generate(algorithm).expect("random bits");
        let document = pair.to_pkcs8v1().expect("a key");
        let public = pair.public_key().as_ref();
        let [x, y] = [&public[1..33], &public[33..65]].map(|part| URL_SAFE_NO_PAD.encode(part));
        let jwk = json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": id,
            "x": x, "y": y});
        Issuer { key: EncodingKey::from_ec_der(document.as_ref()), jwk }
    }

    fn token(&self, id: &str, claims: &Value) -> String {
        let header = Header { kid: Some(id.to_owned()), ..Header::new(Algorithm::ES256) };
        encode(&header, claims, &self.key).expect("it signs")
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Returns valid claims, some of them replaced by these.
fn claims(others: &Value) -> Value {
    let mut claims = json!({"sub": "anna", "aud": "films", "iss": "https://issuer.example",
        "exp": now_s() + 600, "nbf": now_s() - 10});
    for (name, value) in others.as_object().expect("claims") {
        match value.is_null() {
            true => drop(claims.as_object_mut().expect("claims").remove(name)),
            false => claims[name] = value.clone(),
        }
    }
    claims
}

#[test]
fn forged_and_foreign_tokens_open_nothing() {
    let place = Place::new();
    place.put("films/a.bin", b"film");
    place.put("other/b.bin", b"other");
    let (issuer, stranger) = (Issuer::new("one"), Issuer::new("one"));
    let path = |name: &str| place.top().join(name).to_str().expect("UTF-8").to_owned();
    let (jwks, config) = (path("jwks.json"), path("pagewire.toml"));
    let set = json!({"keys": [issuer.jwk, {"kty": "oct", "kid": "two", "k": "c2VjcmV0"}]});
    std::fs::write(&jwks, set.to_string()).expect("room");
    let rules = "[[access]]\npath = \"\"\nverbs = [\"list\", \"download\"]\nallow = [\"token\"]\n";
    std::fs::write(&config, rules).expect("room");
    let options = [
        "--config",
        &config,
        "--jwks",
        &jwks,
        "--jwt-audience",
        "films",
        "--jwt-issuer",
        "https://issuer.example",
        "--jwt-algorithm",
        "ES256",
    ];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    let status = |path: &str, token: &str| {
        let field = format!("Authorization: Bearer {token}");
        get(server.http, path, &[&field]).status
    };
    let good = issuer.token("one", &claims(&json!({})));
    assert_eq!(status("/films/a.bin", &good), 200);
    assert_eq!(status("/films/a.bin", &good), 200, "remembered");
    let query = format!("/films/a.bin?access_token={good}");
    assert_eq!(get(server.http, &query, &[]).status, 200);
    let limited = issuer.token("one", &claims(&json!({"paths": ["/films", "more"]})));
    assert_eq!(status("/films/a.bin", &limited), 200);
    assert_eq!(status("/other/b.bin", &limited), 403);
    // Clocks may differ by a minute.
    let just_over = issuer.token("one", &claims(&json!({"exp": now_s() - 10})));
    assert_eq!(status("/films/a.bin", &just_over), 200);
    for wrong in [
        json!({"exp": now_s() - 120}),
        json!({"exp": null}),
        json!({"exp": "tomorrow"}),
        json!({"nbf": now_s() + 120}),
        json!({"aud": "music"}),
        json!({"aud": null}),
        json!({"iss": "https://other.example"}),
        json!({"iss": null}),
    ] {
        let token = issuer.token("one", &claims(&wrong));
        assert_eq!(status("/films/a.bin", &token), 401, "{wrong}");
    }
    let foreign = stranger.token("one", &claims(&json!({})));
    assert_eq!(status("/films/a.bin", &foreign), 401, "signed by another");
    let unknown = issuer.token("three", &claims(&json!({})));
    assert_eq!(status("/films/a.bin", &unknown), 401, "of a key that is not there");
    // Without a signature, and signed with the public key.
    let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let body = part(claims(&json!({})));
    for name in ["none", "None", "NONE"] {
        let header = part(json!({"alg": name, "typ": "JWT", "kid": "one"}));
        assert_eq!(status("/films/a.bin", &format!("{header}.{body}.")), 401, "{name}");
    }
    let public = URL_SAFE_NO_PAD.decode(issuer.jwk["x"].as_str().expect("text")).expect("it is");
    for (id, secret) in [("one", &public[..]), ("two", b"secret"), ("one", b"")] {
        let header = Header { kid: Some(id.to_owned()), ..Header::new(Algorithm::HS256) };
        let key = EncodingKey::from_secret(secret);
        let token = encode(&header, &claims(&json!({})), &key).expect("it signs");
        assert_eq!(status("/films/a.bin", &token), 401, "HS256 with the key {id}");
    }
    let altered = good.replacen('.', "A.", 2);
    assert_eq!(status("/films/a.bin", &altered), 401);
    let critical = part(json!({"alg": "ES256", "kid": "one", "crit": ["x"], "x": 1}));
    let signed = good.split_once('.').expect("three parts").1;
    assert_eq!(status("/films/a.bin", &format!("{critical}.{signed}")), 401);
    server.stop();
}
