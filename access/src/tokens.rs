// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON web tokens: signature, algorithm, audience, issuer, times, and paths.
//!
//! The configuration lists the accepted algorithms, all of them asymmetric; the token's header only
//! selects among them. A token needs `exp` and `aud`. The claim `paths` (a text or a list) limits
//! it to the paths below; without it the token opens every path whose rule accepts tokens.
//!
//! Costs 30 to 100 us for a signature; a verified token is remembered until it expires, five
//! minutes at most.
//!
//! Sources: RFC 7519 §4.1, §7.2, RFC 7515 §4.1.11 (crit), RFC 8725 §3 (best current practice).
//! Does not decrypt tokens or ask the issuer about one.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde::Deserialize;

use crate::key_set::KeySet;
use crate::paths::{canonical_of_written, is_below};
use crate::remembered::{FingerprintKey, Remembered};

/// Algorithm of a signature; asymmetric, so that the public key cannot sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenAlgorithm(Algorithm);

impl TokenAlgorithm {
    const ALL: [(&str, Algorithm); 9] = [
        ("RS256", Algorithm::RS256),
        ("RS384", Algorithm::RS384),
        ("RS512", Algorithm::RS512),
        ("PS256", Algorithm::PS256),
        ("PS384", Algorithm::PS384),
        ("PS512", Algorithm::PS512),
        ("ES256", Algorithm::ES256),
        ("ES384", Algorithm::ES384),
        ("EdDSA", Algorithm::EdDSA),
    ];
}

impl FromStr for TokenAlgorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<TokenAlgorithm, String> {
        let found = TokenAlgorithm::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, algorithm)| TokenAlgorithm(*algorithm)).ok_or_else(|| {
            let names: Vec<&str> = TokenAlgorithm::ALL.iter().map(|(name, _)| *name).collect();
            format!("write one of {}", names.join(", "))
        })
    }
}

impl fmt::Display for TokenAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = TokenAlgorithm::ALL.iter().find(|(_, algorithm)| *algorithm == self.0);
        f.write_str(found.map_or("unknown", |(name, _)| name))
    }
}

/// Terms of tokens.
pub(crate) struct Tokens {
    keys: KeySet,
    validation: Validation,
    known: Remembered<Arc<Claims>>,
}

/// Claims that are used.
#[derive(Debug, Deserialize)]
pub(crate) struct Claims {
    pub(crate) sub: Option<String>,
    exp: u64,
    #[serde(default)]
    paths: Option<PathClaim>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PathClaim {
    One(String),
    Several(Vec<String>),
}

impl Claims {
    /// True when the token is for this path, which is in its shortest spelling.
    pub(crate) fn opens(&self, path: &str) -> bool {
        let is_above = |claim: &String| {
            canonical_of_written(claim).is_some_and(|above| is_below(path, &above))
        };
        match &self.paths {
            None => true,
            Some(PathClaim::One(claim)) => is_above(claim),
            Some(PathClaim::Several(claims)) => claims.iter().any(is_above),
        }
    }
}

impl Tokens {
    pub(crate) fn new(
        keys: KeySet,
        algorithms: &[TokenAlgorithm],
        (audiences, issuers): (&[String], &[String]),
        leeway_s: u64,
    ) -> Tokens {
        let mut validation = Validation::new(Algorithm::RS256);
        validation.algorithms = algorithms.iter().map(|algorithm| algorithm.0).collect();
        validation.leeway = leeway_s;
        validation.validate_nbf = true;
        validation.set_audience(audiences);
        let mut needed = vec!["exp", "aud"];
        if !issuers.is_empty() {
            validation.set_issuer(issuers);
            needed.push("iss");
        }
        validation.set_required_spec_claims(&needed);
        Tokens { keys, validation, known: Remembered::new(TOKENS_KEPT) }
    }

    /// Returns the claims of a token; `None` for one that is not valid now. `steady_ms` is the
    /// clock of remembered results, `wall_ms` that of claims.
    pub(crate) async fn claims(
        &self,
        token: &str,
        prints: &FingerprintKey,
        (steady_ms, wall_ms): (u64, u64),
    ) -> Option<Arc<Claims>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let print = prints.of(&[b"token", token.as_bytes()]);
        let leeway_s = self.validation.leeway;
        let lives = |claims: &Arc<Claims>| {
            claims.exp.saturating_add(leeway_s).saturating_mul(1000) > wall_ms
        };
        if let Some(known) = self.known.find(&print, steady_ms).filter(lives) {
            return Some(known);
        }
        let header = decode_header(token).ok()?;
        if !self.validation.algorithms.contains(&header.alg) || has_critical(token) {
            return None;
        }
        let (keys, at) = self.keys.find(header.kid.as_deref(), header.alg).await?;
        let mut validation = self.validation.clone();
        // The library accepts only algorithms of the key's family.
        validation.algorithms = vec![header.alg];
        let claims = decode::<Claims>(token, &keys[at].key, &validation);
        let claims = claims.inspect_err(|error| tracing::debug!("token: {error}")).ok()?.claims;
        let claims = Arc::new(claims);
        self.known.keep(print, steady_ms + KEPT_MS, claims.clone());
        Some(claims)
    }
}

/// True when a header has extensions that its reader must understand: none is supported here.
fn has_critical(token: &str) -> bool {
    let header = token.split('.').next().unwrap_or_default();
    let json = URL_SAFE_NO_PAD.decode(header).unwrap_or_default();
    let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&json);
    parsed.map_or(true, |header| header.get("crit").is_some())
}

const TOKEN_BYTES_MAX: usize = 8 << 10;
const TOKENS_KEPT: usize = 4096;
const KEPT_MS: u64 = 300_000;
