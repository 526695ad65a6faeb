// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends one HTTP request to a server of the operator: the hook, or a set of keys.
//!
//! Blocks, so callers run it on a thread that may block. Every part of it has a time limit, the
//! answer a limit of bytes; redirects are not followed, and proxies of the environment are not
//! used. Certificates are verified against the system's.
//!
//! Sources: RFC 9110.
//! Does not retry.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use crate::error::Error;

/// An answer.
pub(crate) struct Fetched {
    pub(crate) status: u16,
    /// Value of Cache-Control.
    pub(crate) cache_control: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// Returns a client that gives up after `limit`.
pub(crate) fn agent(limit: Duration) -> Agent {
    let roots = rustls_native_certs::load_native_certs();
    for error in &roots.errors {
        tracing::debug!("certificates of the system: {error}");
    }
    let roots = roots.certs.iter().map(|found| Certificate::from_der(found).to_owned());
    let roots: Vec<Certificate<'static>> = roots.collect();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(provider)
        .root_certs(RootCerts::from(roots))
        .build();
    Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(limit))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .proxy(None)
        .user_agent("pagewire")
        .build()
        .new_agent()
}

/// Gets a resource.
///
/// # Errors
/// The reason why there is no answer.
pub(crate) fn get(agent: &Agent, url: &str) -> Result<Fetched, String> {
    check_clock(url, SystemTime::now())?;
    let answer = agent.get(url).call().map_err(|error| error.to_string())?;
    fetched(answer)
}

/// Posts a JSON text.
///
/// # Errors
/// The reason why there is no answer.
pub(crate) fn post_json(agent: &Agent, url: &str, json: &str) -> Result<Fetched, String> {
    check_clock(url, SystemTime::now())?;
    let request = agent.post(url).header("Content-Type", "application/json");
    fetched(request.send(json).map_err(|error| error.to_string())?)
}

fn fetched(mut answer: ureq::http::Response<ureq::Body>) -> Result<Fetched, String> {
    let cache_control = answer.headers().get("cache-control");
    let cache_control = cache_control.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let status = answer.status().as_u16();
    let body = answer.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_vec();
    Ok(Fetched { status, cache_control, body: body.map_err(|error| error.to_string())? })
}

/// Checks that TLS works at this time: before 1970 `rustls-pki-types` panics.
fn check_clock(url: &str, now: SystemTime) -> Result<(), String> {
    match url.starts_with("https://") && now < UNIX_EPOCH {
        true => Err("this host's clock is before 1970; set it".to_owned()),
        false => Ok(()),
    }
}

/// Checks an address of an option.
pub(crate) fn check_url(option: &'static str, url: &str) -> Result<(), Error> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let is_url = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        && url.bytes().all(|byte| byte.is_ascii_graphic());
    match is_url {
        true => Ok(()),
        false => {
            let cure = "write an address such as https://example.org/path";
            Err(Error::option(option, format!("{url:?}"), cure))
        }
    }
}

/// Returns an address for messages: without a user, a password and a query, which may be secrets.
pub(crate) fn shown_url(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

const BODY_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tls_is_spoken_while_the_clock_is_before_1970() {
        let (before, after) = (UNIX_EPOCH - Duration::from_secs(1), UNIX_EPOCH);
        assert!(check_clock("https://example.org", before).unwrap_err().contains("set it"));
        assert_eq!(check_clock("https://example.org", after), Ok(()));
        assert_eq!(check_clock("http://example.org", before), Ok(()));
    }

    #[test]
    fn shown_addresses_have_no_secret() {
        for (url, expected) in [
            ("https://a:b@example.org/x?key=1", "https://example.org/x"),
            ("http://127.0.0.1:80", "http://127.0.0.1:80"),
            ("https://example.org?key=a@b/c", "https://example.org"),
        ] {
            assert_eq!(shown_url(url), expected);
        }
    }
}
