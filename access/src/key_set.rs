// SPDX-License-Identifier: MIT OR Apache-2.0
//! Public keys that verify tokens, from a JWKS file or address.
//!
//! A set is loaded again when it is an hour old, and when a token names a key that the set lacks,
//! but not twice within [`PAUSE`]: tokens of a stranger cost the issuer at most two requests a
//! minute, even if the stranger hangs up. A set that cannot be loaded again stays in use.
//!
//! Sources: RFC 7517 §4 (members), §5 (sets), RFC 8725 §3.1.
//! Does not hold secret keys: keys of kind `oct` are left out, so that nobody signs with a key that
//! is public.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use parking_lot::RwLock;
use ureq::Agent;

use crate::error::{Error, text_of};
use crate::fetch::{agent, check_url, get, shown_url};

/// A key of a set.
pub(crate) struct TokenKey {
    /// Name by which tokens refer to it.
    id: Option<String>,
    /// The only algorithm that the key may be used with, if the set names one.
    algorithm: Option<Algorithm>,
    pub(crate) key: DecodingKey,
}

enum KeySetSource {
    File(PathBuf),
    Url(String, Agent),
}

/// Keys, and where they are from.
pub(crate) struct KeySet {
    source: Arc<KeySetSource>,
    held: Arc<RwLock<HeldKeys>>,
    /// Time of the last attempt to load them; locked while they are loaded.
    tried: Arc<tokio::sync::Mutex<Option<Instant>>>,
}

/// Keys, with the time at which they were loaded.
struct HeldKeys {
    keys: Arc<Vec<TokenKey>>,
    loaded: Option<Instant>,
}

impl KeySet {
    /// Opens a set: a file is read at once, an address when it is first needed.
    pub(crate) fn open(text: &str) -> Result<KeySet, Error> {
        let is_url = text.contains("://");
        let (source, keys) = if is_url {
            check_url(JWKS, text)?;
            (KeySetSource::Url(text.to_owned(), agent(FETCH_LIMIT)), Vec::new())
        } else {
            let path = PathBuf::from(text);
            let keys = read(&path)?;
            (KeySetSource::File(path), keys)
        };
        Ok(KeySet {
            source: Arc::new(source),
            held: Arc::new(RwLock::new(HeldKeys {
                keys: Arc::new(keys),
                loaded: (!is_url).then(Instant::now),
            })),
            tried: Arc::default(),
        })
    }

    /// Returns the key that a token names; `None` if there is none. May wait for the issuer.
    pub(crate) async fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Option<(Arc<Vec<TokenKey>>, usize)> {
        let loaded = self.held.read().loaded;
        let is_old = loaded.is_none_or(|loaded| loaded.elapsed() > AGE_MAX);
        if !is_old && let Some(found) = self.known(id, algorithm) {
            return Some(found);
        }
        self.load_again().await;
        self.known(id, algorithm)
    }

    fn known(&self, id: Option<&str>, algorithm: Algorithm) -> Option<(Arc<Vec<TokenKey>>, usize)> {
        let keys = self.held.read().keys.clone();
        let fits = |key: &TokenKey| {
            key.key.family() == algorithm.family()
                && key.algorithm.is_none_or(|own| own == algorithm)
        };
        let mut fitting = keys.iter().enumerate().filter(|(_, key)| fits(key));
        let at = match id {
            Some(id) => fitting.find(|(_, key)| key.id.as_deref() == Some(id))?.0,
            // Without a name the key must be the only one.
            None => match (fitting.next(), fitting.next()) {
                (Some((at, _)), None) => at,
                _ => return None,
            },
        };
        Some((keys, at))
    }

    async fn load_again(&self) {
        // Requests that arrive meanwhile wait for the one that loads.
        let mut tried = self.tried.clone().lock_owned().await;
        if tried.is_some_and(|tried| tried.elapsed() < PAUSE) {
            return;
        }
        *tried = Some(Instant::now());
        let (source, held) = (self.source.clone(), self.held.clone());
        // The load owns the lock: it completes and is kept even if the requesting client hangs up.
        let load = move || {
            match source.load() {
                Ok(keys) => {
                    let loaded = HeldKeys { keys: Arc::new(keys), loaded: Some(Instant::now()) };
                    *held.write() = loaded;
                }
                Err(error) => tracing::warn!("{error}; the keys that were known stay in use"),
            }
            *tried = Some(Instant::now());
        };
        if let Err(panic) = tokio::task::spawn_blocking(load).await {
            tracing::error!("{JWKS}: {panic}");
        }
    }
}

impl KeySetSource {
    fn load(&self) -> Result<Vec<TokenKey>, String> {
        match self {
            KeySetSource::File(path) => read(path).map_err(|error| error.to_string()),
            KeySetSource::Url(url, agent) => {
                let shown = shown_url(url);
                let found = get(agent, url).map_err(|error| format!("{JWKS} {shown}: {error}"))?;
                match found.status {
                    200 => keys_of(&found.body).map_err(|error| format!("{JWKS} {shown}: {error}")),
                    status => Err(format!("{JWKS} {shown}: status {status}")),
                }
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<TokenKey>, Error> {
    let cure = "name a file of public keys (JWKS), or their address";
    let text = text_of(JWKS, path, cure)?;
    keys_of(text.as_bytes())
        .map_err(|error| Error::option(JWKS, format!("{}: {error}", path.display()), cure))
}

fn keys_of(json: &[u8]) -> Result<Vec<TokenKey>, String> {
    let set: JwkSet = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let keys: Vec<TokenKey> = set.keys.iter().take(KEYS_MAX).filter_map(key_of).collect();
    match keys.is_empty() {
        true => Err("no public key that signs".to_owned()),
        false => Ok(keys),
    }
}

fn key_of(jwk: &Jwk) -> Option<TokenKey> {
    let is_public = matches!(
        jwk.algorithm,
        AlgorithmParameters::RSA(_)
            | AlgorithmParameters::EllipticCurve(_)
            | AlgorithmParameters::OctetKeyPair(_)
    );
    let signs = jwk.common.public_key_use.as_ref().is_none_or(|of| *of == PublicKeyUse::Signature);
    if !is_public || !signs {
        return None;
    }
    let algorithm = match jwk.common.key_algorithm {
        Some(named) => Some(named.try_into().ok()?),
        None => None,
    };
    let key = DecodingKey::from_jwk(jwk).ok()?;
    Some(TokenKey { id: jwk.common.key_id.clone(), algorithm, key })
}

const JWKS: &str = "--jwks";
const KEYS_MAX: usize = 256;
const AGE_MAX: Duration = Duration::from_secs(3600);
const PAUSE: Duration = Duration::from_secs(30);
const FETCH_LIMIT: Duration = Duration::from_secs(5);
