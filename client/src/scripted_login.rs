// SPDX-License-Identifier: MIT OR Apache-2.0
//! The login that a scripted server asks for: Digest with MD5, verified by a formula of its own.
//!
//! Sources: RFC 2617 §3.2, RFC 2069 §2.1.

use md5::{Digest as _, Md5};

pub(super) const USER: &str = "anna";
pub(super) const PASSWORD: &str = "p@ss";
const REALM: &str = "Höhe, \\\"5\\\"";
const REALM_UNQUOTED: &str = "Höhe, \"5\"";

/// Login that a server asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScriptedLogin {
    pub(super) nonces: Nonces,
    /// The challenge offers `qop=auth`.
    pub(super) counts: bool,
}

/// Requests for which a nonce is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nonces {
    /// Any number.
    Lasting,
    /// One; the next challenge does not call it stale.
    OfOneRequest,
    /// So many; it is called stale afterwards.
    Expiring(u32),
    /// So many; afterwards there is another one, which lasts and is not called new.
    ChangedAfter(u32),
    /// None: each is called stale.
    Stale,
}

/// Verifies the requests of a connection.
#[derive(Debug)]
pub(super) struct LoginGate {
    login: ScriptedLogin,
    nonce: u32,
    /// Requests with this nonce.
    uses: u32,
}

/// Result of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verified {
    Granted,
    /// Refused with this field; true if the response was not that of the password.
    Refused {
        field: String,
        is_wrong: bool,
    },
}

impl LoginGate {
    pub(super) fn new(login: ScriptedLogin) -> LoginGate {
        LoginGate { login, nonce: 1, uses: 0 }
    }

    pub(super) fn verify(&mut self, request: &str) -> Verified {
        let Some(value) = authorization(request) else { return self.refuse("", false) };
        match self.has_right_response(request, value) {
            true => self.use_nonce(value),
            false => self.refuse("", true),
        }
    }

    fn use_nonce(&mut self, value: &str) -> Verified {
        let is_known = value.contains(&format!("nonce=\"{}\"", self.nonce));
        let uses_max = match self.login.nonces {
            Nonces::Lasting => u32::MAX,
            Nonces::OfOneRequest => 1,
            Nonces::ChangedAfter(_) if self.nonce > 1 => u32::MAX,
            Nonces::Expiring(uses) | Nonces::ChangedAfter(uses) => uses,
            Nonces::Stale => 0,
        };
        if is_known {
            self.uses += 1;
            if self.uses <= uses_max {
                let counted = format!("nc={:08x},", self.uses);
                assert!(!self.login.counts || value.contains(&counted), "{value}");
                return Verified::Granted;
            }
            (self.nonce, self.uses) = (self.nonce + 1, 0);
        }
        let is_named = matches!(self.login.nonces, Nonces::Expiring(_) | Nonces::Stale);
        self.refuse(if is_named { ", stale=TRUE" } else { "" }, false)
    }

    fn refuse(&self, stale: &str, is_wrong: bool) -> Verified {
        let counts = if self.login.counts { ", qop=\"auth\"" } else { "" };
        let nonce = self.nonce;
        let field = format!(
            "WWW-Authenticate: Basic realm=\"{REALM}\"\r\n\
             WWW-Authenticate: Digest realm=\"{REALM}\", nonce=\"{nonce}\"{counts}{stale}\r\n"
        );
        Verified::Refused { field, is_wrong }
    }

    /// True for the response of the password to the nonce that the client names.
    fn has_right_response(&self, request: &str, value: &str) -> bool {
        let mut words = request.split(' ');
        let (method, uri) = (words.next().unwrap(), words.next().unwrap());
        let field = |name: &str| {
            let (_, rest) = value.split_once(&format!("{name}=\""))?;
            rest.split('"').next()
        };
        let (nonce, given) = (field(" nonce").unwrap(), field("uri").unwrap());
        assert_eq!(given, uri, "the address of the request");
        let first = hex(&format!("{USER}:{REALM_UNQUOTED}:{PASSWORD}"));
        let second = hex(&format!("{method}:{uri}"));
        let middle = match self.login.counts {
            true => {
                let count = value.split_once("nc=").unwrap().1.split(',').next().unwrap();
                format!("{count}:{}:auth:", field("cnonce").unwrap())
            }
            false => String::new(),
        };
        field("response") == Some(&hex(&format!("{first}:{nonce}:{middle}{second}")))
    }
}

/// Value of the Authorization field of a request.
pub(super) fn authorization(request: &str) -> Option<&str> {
    request.lines().find_map(|line| line.strip_prefix("Authorization: "))
}

fn hex(text: &str) -> String {
    Md5::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
