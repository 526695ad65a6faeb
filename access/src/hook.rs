// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asks a server of the operator about each client and path.
//!
//! It receives a JSON object by POST: `user` and `password` (Basic), or `token` (Bearer or
//! `access_token`), `address`, `verb`, `path` and `protocol`. A status of 2xx allows, any other
//! refuses; 401 means that the password is wrong, which is counted. Answers are cached by
//! credentials, address, verb and path: for the seconds of `Cache-Control: max-age` or of `cache_s`
//! in a JSON answer, otherwise for the default; refusals for five seconds at most. No answer within
//! [`LIMIT`] counts as a refusal, and so does a queue that is too long.
//!
//! Costs a look-up where the answer is cached, otherwise a request; at most 16 at a time, even if
//! clients hang up: a request holds its turn until it ends.
//!
//! Sources: RFC 9110 §9.3.3, §15.5.2 (401), RFC 9111 §5.2.2.1 (max-age).
//! Does not send digest responses, which only the holder of the password can verify.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use ureq::Agent;

use crate::error::Error;
use crate::fetch::{Fetched, agent, check_url, post_json, shown_url};
use crate::remembered::{Fingerprint, FingerprintKey, Remembered};
use crate::waiting::WaitingPlaces;

/// The server to ask.
pub(crate) struct Hook {
    url: Arc<str>,
    agent: Agent,
    kept_s: u64,
    answers: Arc<Remembered<HookResult>>,
    requests: Arc<Semaphore>,
    waiting: WaitingPlaces,
}

/// Result of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HookResult {
    Allows,
    /// The user's password or the token is wrong (401).
    WrongCredentials,
    Refuses,
    /// Too late, too many questions, or no connection.
    NoAnswer,
    /// Not asked; the client may try again after this many milliseconds.
    Slowed(u64),
}

/// A question.
#[derive(Serialize)]
pub(crate) struct HookQuestion<'a> {
    pub(crate) user: Option<&'a str>,
    pub(crate) password: Option<&'a str>,
    pub(crate) token: Option<&'a str>,
    pub(crate) address: IpAddr,
    pub(crate) verb: &'a str,
    pub(crate) path: &'a str,
    pub(crate) protocol: &'a str,
}

/// A question as it is sent, and the key of its cached answer.
pub(crate) struct WrittenQuestion {
    json: String,
    print: Fingerprint,
    address: IpAddr,
}

impl HookQuestion<'_> {
    pub(crate) fn written(&self, prints: &FingerprintKey) -> WrittenQuestion {
        let json = serde_json::to_string(self).expect("texts are JSON");
        let print = prints.of(&[b"hook", json.as_bytes()]);
        WrittenQuestion { json, print, address: self.address }
    }
}

#[derive(Deserialize)]
struct HookAnswer {
    cache_s: Option<u64>,
}

impl Hook {
    pub(crate) fn new(url: &str, kept_s: u64) -> Result<Hook, Error> {
        check_url("--auth-url", url)?;
        Ok(Hook {
            url: url.into(),
            agent: agent(LIMIT),
            kept_s,
            answers: Arc::new(Remembered::new(ANSWERS_KEPT)),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            waiting: WaitingPlaces::new(WAITING_MAX, WAITING_OF_ADDRESS_MAX),
        })
    }

    /// Returns a cached answer.
    pub(crate) fn kept(&self, question: &WrittenQuestion, now_ms: u64) -> Option<HookResult> {
        self.answers.find(&question.print, now_ms)
    }

    /// Asks a question. `on_wrong` is called when the server reports a wrong password, even if the
    /// client has hung up meanwhile.
    pub(crate) async fn ask(
        &self,
        question: WrittenQuestion,
        now_ms: u64,
        on_wrong: impl FnOnce() + Send + 'static,
    ) -> HookResult {
        let Some(_place) = self.waiting.take(question.address) else {
            tracing::debug!("--auth-url: too many questions wait, or of this address; refused");
            return HookResult::NoAnswer;
        };
        let asking = async {
            let turn = self.requests.clone().acquire_owned().await.ok()?;
            // Another request of the same client may have been answered meanwhile.
            if let Some(known) = self.kept(&question, now_ms) {
                return Some(known);
            }
            let (agent, url) = (self.agent.clone(), self.url.clone());
            let (answers, default_s) = (self.answers.clone(), self.kept_s);
            let ask = move || {
                // Held until the request has ended, even if its client no longer waits for it.
                let _turn = turn;
                let answer = match post_json(&agent, &url, &question.json) {
                    Ok(answer) => answer,
                    Err(error) => {
                        tracing::warn!("--auth-url {}: {error}; refused", shown_url(&url));
                        return HookResult::NoAnswer;
                    }
                };
                let (result, kept_s) = read(&answer, default_s);
                answers.keep(question.print, now_ms + kept_s * 1000, result);
                if result == HookResult::WrongCredentials {
                    on_wrong();
                }
                result
            };
            tokio::task::spawn_blocking(ask).await.ok()
        };
        let answered = tokio::time::timeout(LIMIT, asking).await;
        answered.ok().flatten().unwrap_or(HookResult::NoAnswer)
    }
}

/// Returns an answer and the seconds for which it is good.
fn read(answer: &Fetched, default_s: u64) -> (HookResult, u64) {
    let result = match answer.status {
        200..300 => HookResult::Allows,
        401 => HookResult::WrongCredentials,
        _ => HookResult::Refuses,
    };
    let control = answer.cache_control.as_deref().unwrap_or_default();
    let directives = || control.split(',').map(str::trim);
    let max_age = directives().find_map(|word| word.strip_prefix("max-age=")?.parse().ok());
    let is_unkept = directives().any(|word| word == "no-store" || word == "no-cache");
    let json: Option<HookAnswer> = serde_json::from_slice(&answer.body).ok();
    let named = json.and_then(|json| json.cache_s);
    let kept_s = match is_unkept {
        true => 0,
        false => named.or(max_age).unwrap_or(default_s).min(KEPT_S_MAX),
    };
    (result, if result == HookResult::Allows { kept_s } else { kept_s.min(REFUSAL_S) })
}

const LIMIT: Duration = Duration::from_secs(5);
const REQUESTS_MAX: usize = 16;
const WAITING_MAX: u32 = 256;
/// The players of an office; a small part of all places, so that no address occupies every place.
const WAITING_OF_ADDRESS_MAX: u32 = 16;
const ANSWERS_KEPT: usize = 16_384;
const KEPT_S_MAX: u64 = 86_400;
const REFUSAL_S: u64 = 5;
