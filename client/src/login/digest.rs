// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers to a challenge of Digest, counted as the nonce requires.
//!
//! Each costs two or three hashes of some hundred bytes, once a request.
//!
//! Sources: RFC 7616 §3.4 (with its erratum 4897 for the example of SHA-512-256), RFC 2617 §3.2.2,
//! RFC 2069 §2.1.2.
//! Does not protect bodies (`auth-int`): requests of this client have none.

use aws_lc_rs::digest::{Algorithm, SHA256, SHA512_256, digest};
use md5::{Digest as _, Md5};
use wire::http::unquoted;
use zeroize::Zeroizing;

use super::credentials::UserCredentials;
use crate::random::random_u32;

/// Hash function of Digest, the least preferred first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DigestHash {
    Md5,
    Sha512_256,
    Sha256,
}

impl DigestHash {
    pub(super) fn of_name(name: &str) -> Option<DigestHash> {
        let all = [
            ("MD5", DigestHash::Md5),
            ("SHA-256", DigestHash::Sha256),
            ("SHA-512-256", DigestHash::Sha512_256),
        ];
        let named = all.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, hash)| hash)
    }

    /// Hash in hexadecimal digits.
    fn hex(self, text: &str) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let secure = |kind: &'static Algorithm| hex(digest(kind, text.as_bytes()).as_ref());
        match self {
            DigestHash::Md5 => hex(&Md5::digest(text.as_bytes())),
            DigestHash::Sha512_256 => secure(&SHA512_256),
            DigestHash::Sha256 => secure(&SHA256),
        }
    }
}

/// A challenge. Values are those between the quotes, with their escapes.
#[derive(Debug, Clone)]
pub(super) struct DigestChallenge {
    pub(super) hash: DigestHash,
    /// The key is bound to the nonces (`-sess`).
    pub(super) is_session: bool,
    /// As the server writes it; `None` if it does not.
    pub(super) algorithm: Option<String>,
    pub(super) realm: String,
    pub(super) nonce: String,
    pub(super) opaque: Option<String>,
    /// The server offers `qop=auth`: requests are counted.
    pub(super) counts: bool,
    /// The last answer was right, but for its nonce.
    pub(super) is_stale: bool,
    /// The user is sent as a hash.
    pub(super) hashes_user: bool,
}

/// Answers to one challenge.
#[derive(Debug)]
pub(super) struct DigestAnswers {
    challenge: DigestChallenge,
    client_nonce: String,
    /// Requests with this nonce so far.
    count: u32,
}

impl DigestAnswers {
    pub(super) fn new(challenge: DigestChallenge) -> DigestAnswers {
        let client_nonce = format!("{:08x}{:08x}", random_u32(), random_u32());
        DigestAnswers { challenge, client_nonce, count: 0 }
    }

    pub(super) fn nonce(&self) -> &str {
        &self.challenge.nonce
    }

    /// Value of Authorization for the next request.
    pub(super) fn next(
        &mut self,
        credentials: &UserCredentials,
        method: &str,
        uri: &str,
    ) -> String {
        self.count = self.count.wrapping_add(1);
        let DigestAnswers { challenge, client_nonce, count } = self;
        let DigestChallenge { hash, realm, nonce, .. } = &*challenge;
        let user = &credentials.user;
        let (plain_realm, plain_nonce) = (unquoted(realm), unquoted(nonce));
        let pair = Zeroizing::new(format!("{user}:{plain_realm}:{}", credentials.password()));
        let mut first = Zeroizing::new(hash.hex(&pair));
        if challenge.is_session {
            let bound = Zeroizing::new(format!("{}:{plain_nonce}:{client_nonce}", *first));
            first = Zeroizing::new(hash.hex(&bound));
        }
        let second = hash.hex(&format!("{method}:{uri}"));
        let count = format!("{count:08x}");
        let middle = match challenge.counts {
            true => format!("{count}:{client_nonce}:auth:"),
            false => String::new(),
        };
        let keyed = Zeroizing::new(format!("{}:{plain_nonce}:{middle}{second}", *first));
        let response = hash.hex(&keyed);
        let uri = escaped(uri);
        let shown_user = match challenge.hashes_user {
            true => hash.hex(&format!("{user}:{plain_realm}")),
            false => escaped(user),
        };
        let mut value = format!(
            "Digest username=\"{shown_user}\", realm=\"{realm}\", nonce=\"{nonce}\", \
             uri=\"{uri}\", response=\"{response}\""
        );
        let mut add = |part: String| value.push_str(&part);
        if let Some(algorithm) = &challenge.algorithm {
            add(format!(", algorithm={algorithm}"));
        }
        if let Some(opaque) = &challenge.opaque {
            add(format!(", opaque=\"{opaque}\""));
        }
        if challenge.counts {
            add(format!(", qop=auth, nc={count}"));
        }
        if challenge.counts || challenge.is_session {
            add(format!(", cnonce=\"{client_nonce}\""));
        }
        if challenge.hashes_user {
            add(", userhash=true".to_owned());
        }
        value
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login::challenge::{Challenge, choose};

    /// The first answer to a challenge, with a given client nonce.
    fn answer(
        field: &str,
        client_nonce: &str,
        (user, password): (&str, &str),
        (method, uri): (&str, &str),
    ) -> String {
        let Ok(Challenge::Digest(challenge)) = choose(field, false) else { panic!("{field}") };
        let mut answers = DigestAnswers::new(challenge);
        answers.client_nonce = client_nonce.to_owned();
        answers.next(&UserCredentials::new(user, password).unwrap(), method, uri)
    }

    #[test]
    fn the_exchanges_of_rfc_7616_are_answered_as_it_does() {
        let nonces = "qop=\"auth, auth-int\", \
                      nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", \
                      opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\"";
        let client_nonce = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
        let mufasa = ("Mufasa", "Circle of Life");
        for (algorithm, response) in [
            ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
            ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
        ] {
            let field =
                format!("Digest realm=\"http-auth@example.org\", {nonces}, algorithm={algorithm}");
            let value = answer(&field, client_nonce, mufasa, ("GET", "/dir/index.html"));
            let fields = [
                "username=\"Mufasa\"".to_owned(),
                "realm=\"http-auth@example.org\"".to_owned(),
                "uri=\"/dir/index.html\"".to_owned(),
                format!("algorithm={algorithm}"),
                "nc=00000001, ".to_owned(),
                format!("cnonce=\"{client_nonce}\""),
                "qop=auth,".to_owned(),
                format!("response=\"{response}\""),
                "opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\"".to_owned(),
            ];
            assert!(fields.iter().all(|field| value.contains(field)), "{value}");
        }
    }

    #[test]
    fn a_hashed_user_of_rfc_7616_is_answered_by_its_erratum() {
        let field = "Digest realm=\"api@example.org\", qop=\"auth\", algorithm=SHA-512-256, \
                     nonce=\"5TsQWLVdgBdmrQ0XsxbDODV+57QdFR34I9HAbC/RVvkK\", \
                     opaque=\"HRPCssKJSGjCrkzDg8OhwpzCiGPChXYjwrI2QmXDnsOS\", charset=UTF-8, \
                     userhash=true";
        let value = answer(
            field,
            "NTg6RKcb9boFIAS3KrFK9BGeh+iDa/sm6jUMp2wds69v",
            ("Jäsøn Doe", "Secret, or not?"),
            ("GET", "/doe.json"),
        );
        let user = "793263caabb707a56211940d90411ea4a575adeccb7e360aeb624ed06ece9b0b";
        let response = "3798d4131c277846293534c3edc11bd8a5e4cdcbff78b05db9d95eeb1cec68a5";
        assert!(value.contains(&format!("username=\"{user}\"")), "{value}");
        assert!(value.contains(&format!("response=\"{response}\"")), "{value}");
        assert!(value.ends_with("userhash=true"), "{value}");
    }

    #[test]
    fn the_exchange_of_rfc_2617_and_one_without_counts_are_answered() {
        let field = "Digest realm=\"testrealm@host.com\", qop=\"auth,auth-int\", \
                     nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", \
                     opaque=\"5ccc069c403ebaf9f0171e9517f40e41\"";
        let mufasa = ("Mufasa", "Circle Of Life");
        let asked = ("GET", "/dir/index.html");
        let value = answer(field, "0a4f113b", mufasa, asked);
        assert!(value.contains("response=\"6629fae49393a05397450978507c4ef1\""), "{value}");
        assert!(!value.contains("algorithm"), "{value}");
        let without = field.replace("qop=\"auth,auth-int\", ", "");
        let value = answer(&without, "0a4f113b", mufasa, asked);
        assert!(value.contains("response=\"670fd8c2df070c60b045671b8b24ff02\""), "{value}");
        assert!(!["qop", "nc=", "cnonce"].iter().any(|name| value.contains(name)), "{value}");
    }

    #[test]
    fn quotes_cannot_leave_their_field() {
        let field = "Digest realm=\"a \\\"b\\\"\", nonce=\"n\"";
        let value = answer(field, "", ("x\", uri=\"/b\\", "p"), ("GET", "/a\""));
        let shown = r#"username="x\", uri=\"/b\\", realm="a \"b\"", nonce="n", uri="/a\"","#;
        assert!(value.contains(shown), "{value}");
    }
}
