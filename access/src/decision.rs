// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decision about a client, a verb and a path: the one function that every request passes.
//!
//! A policy can be replaced while clients are served: verified credentials stay remembered where
//! the user's line is unchanged, and nonces stay valid.
//!
//! Costs one atomic load where everything is open. Otherwise it costs a lock held for a moment, the
//! look-up of the rule, and a keyed hash for credentials that were verified before; a microsecond
//! together. New passwords cost more ([`crate::credentials`]).
//!
//! Sources: RFC 9110 §15.5.2 (401), §15.5.4 (403); RFC 6585 §4 (429).
//! Does not log names of users that were refused at a level above debug.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use tokio::sync::Semaphore;

use crate::attempts::Attempts;
use crate::credentials::{CHECKS_WAITING, Checked, Shown, is_signed, is_user_of};
use crate::digest;
use crate::hook::{HookQuestion, HookResult};
use crate::nonces::Nonces;
use crate::paths::canonical;
use crate::policy::Policy;
use crate::remembered::{Fingerprint, FingerprintKey, Remembered};
use crate::request_credentials::RequestCredentials;
use crate::rules::{Allow, Verb};
use crate::waiting::WaitingPlaces;

/// Protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP and HTTPS.
    Http,
    /// RTSP and RTSPS.
    Rtsp,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Http => "http",
            Protocol::Rtsp => "rtsp",
        }
    }
}

/// The parts of a request that a decision needs.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest<'a> {
    /// Use of the path.
    pub verb: Verb,
    /// Path by which rules are chosen, decoded: that of the request, or the film of a key.
    pub path: &'a str,
    /// File or folder that the request is about; for a segment, its film.
    pub asset: &'a str,
    /// Path of the request itself, decoded.
    pub target: &'a str,
    /// Method, to which digest responses are bound.
    pub method: &'a str,
    /// Query, as it was sent.
    pub query: Option<&'a str>,
    /// Value of the Authorization field.
    pub authorization: Option<&'a [u8]>,
    /// Address of the client.
    pub address: IpAddr,
    /// Protocol.
    pub protocol: Protocol,
    /// Results of earlier decisions about the same request; `None` where there is only one.
    pub known: Option<&'a RequestCredentials>,
}

/// Permission.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Name of the client's user, in a file or by the hook, or `token:` with the subject of its
    /// token.
    pub user: Option<Arc<str>>,
}

/// Result of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessVerdict {
    /// The request is admitted.
    Admitted(Grant),
    /// Credentials are needed, or others (401).
    Unauthorized {
        /// Values of WWW-Authenticate, the strongest first.
        challenges: Vec<String>,
        /// Reason for the client's user.
        reason: &'static str,
    },
    /// No credentials of this client help (403).
    Forbidden {
        /// Reason for the client's user.
        reason: &'static str,
    },
    /// Too many wrong attempts (429), or too many at once (503 where a protocol has no 429).
    Slowed {
        /// Time after which the client may try again.
        retry_after_s: u32,
    },
}

/// Result of a login with user name and password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// The user may do it.
    Admitted(Arc<str>),
    /// Name or password is wrong.
    Wrong,
    /// The user is not permitted.
    NotAllowed,
    /// Too many wrong attempts.
    Slowed {
        /// Time after which the client may try again.
        retry_after_s: u32,
    },
    /// No rule opens it to a user: the configuration has no administrators.
    NoUsers,
}

/// Fingerprint of the basis of a login: it changes when the user's password or permission changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginFingerprint(Fingerprint);

/// Decides about requests.
pub struct Access {
    policy: RwLock<Arc<Policy>>,
    is_open: AtomicBool,
    pub(crate) nonces: Nonces,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) prints: FingerprintKey,
    pub(crate) verified: Arc<Remembered<()>>,
    pub(crate) checks: Arc<Semaphore>,
    pub(crate) checks_waiting: WaitingPlaces,
    /// Start of [`Access::steady_ms`].
    began: Instant,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Access")
    }
}

impl Access {
    /// Starts with a policy.
    pub fn new(policy: Policy) -> Access {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Access {
            is_open: AtomicBool::new(policy.is_open()),
            policy: RwLock::new(Arc::new(policy)),
            nonces: Nonces::new(),
            attempts: Arc::new(Attempts::new()),
            prints: FingerprintKey::new(),
            verified: Arc::new(Remembered::new(VERIFIED_KEPT)),
            checks: Arc::new(Semaphore::new((cores / 2).clamp(1, 4))),
            // Attempts are bounded for each address already, and all clients may be of one office.
            checks_waiting: WaitingPlaces::new(CHECKS_WAITING, CHECKS_WAITING),
            began: Instant::now(),
        }
    }

    /// Replaces the policy. Requests that are being decided finish under the old one; sessions that
    /// were admitted play on.
    pub fn replace(&self, policy: Policy) {
        let is_open = policy.is_open();
        let mut current = self.policy.write();
        *current = Arc::new(policy);
        self.is_open.store(is_open, Ordering::Release);
    }

    /// True when everybody may do everything.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.read().clone()
    }

    /// Milliseconds since the start, for waits and for remembered results: setting the wall clock
    /// neither lengthens nor ends them.
    pub(crate) fn steady_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Decides about a request, before anything is opened.
    pub async fn decide(&self, request: &AccessRequest<'_>) -> AccessVerdict {
        if self.is_open() {
            return AccessVerdict::Admitted(Grant::default());
        }
        // On the heap, so that a server without rules has small tasks.
        Box::pin(self.decided(&self.policy(), request)).await
    }

    async fn decided(&self, policy: &Policy, request: &AccessRequest<'_>) -> AccessVerdict {
        let Some(path) = canonical(request.path) else {
            return AccessVerdict::Forbidden { reason: "a path with .. is not served" };
        };
        let needed = policy.rules.find(&path, request.verb);
        if needed.is_empty() {
            return AccessVerdict::Forbidden { reason: "no rule opens this" };
        }
        let asks_hook = policy.hook.is_some() && needed.iter().any(|allow| allow.hook);
        let mut shown = Shown { asks_hook, ..Shown::default() };
        for allow in &needed {
            if !self.admits(policy, (allow, &path), request, &mut shown).await {
                return self.refusal(policy, (allow, request), &shown);
            }
        }
        let user = shown.user.or(shown.hook_user).or(shown.subject);
        if let Some(known) = request.known {
            known.note_granted(user.as_ref());
        }
        AccessVerdict::Admitted(Grant { user })
    }

    /// Returns which permissions of listing a client has, by their number; `None` where everything
    /// is open. Names are filtered by [`ListingClass::is_listed`] with the same numbers.
    pub async fn listing(&self, request: &AccessRequest<'_>) -> Option<ListingClass> {
        if self.is_open() {
            return None;
        }
        let policy = self.policy();
        let rules = policy.rules.listing();
        let asks_hook = policy.hook.is_some() && rules.iter().any(|allow| allow.hook);
        let mut shown = Shown { asks_hook, ..Shown::default() };
        let path = canonical(request.path).unwrap_or_default();
        let mut has = Vec::with_capacity(rules.len());
        for allow in rules {
            has.push(Box::pin(self.admits(&policy, (allow, &path), request, &mut shown)).await);
        }
        if let Some(known) = request.known {
            let user = shown.user.or(shown.hook_user).or(shown.subject);
            known.note_granted(user.as_ref());
        }
        Some(ListingClass { policy, has })
    }

    /// True when one of the credentials opens the path.
    async fn admits(
        &self,
        policy: &Policy,
        (allow, path): (&Allow, &str),
        request: &AccessRequest<'_>,
        shown: &mut Shown,
    ) -> bool {
        let address = request.address.to_canonical();
        if allow.anyone || allow.networks.iter().any(|network| network.contains(address)) {
            return true;
        }
        if allow.signed && is_signed(policy, request, shown) {
            return true;
        }
        if allow.token && self.has_token(policy, path, request, shown).await {
            return true;
        }
        if allow.has_users() {
            self.find_user(policy, request, shown).await;
            if let Some(user) = &shown.user
                && is_user_of(policy, allow, user)
            {
                return true;
            }
        }
        allow.hook && self.is_allowed_by_hook(policy, request, shown).await
    }

    /// Returns the answer to a request that a rule does not open.
    pub(crate) fn refusal(
        &self,
        policy: &Policy,
        (allow, request): (&Allow, &AccessRequest<'_>),
        shown: &Shown,
    ) -> AccessVerdict {
        if shown.slowed_ms > 0 {
            let retry_after_s = shown.slowed_ms.div_ceil(1000) as u32;
            return AccessVerdict::Slowed { retry_after_s };
        }
        if let Some(reason) = shown.signature {
            return AccessVerdict::Forbidden { reason };
        }
        let known = [&shown.user, &shown.hook_user, &shown.subject];
        let is_known = known.iter().any(|user| user.is_some());
        let challenges = self.challenges(policy, (allow, request), shown);
        match (challenges.is_empty(), is_known) {
            (_, true) => AccessVerdict::Forbidden { reason: "this user may not" },
            (true, false) => AccessVerdict::Forbidden { reason: "not open to this client" },
            (false, false) if shown.is_wrong => {
                AccessVerdict::Unauthorized { challenges, reason: "the credentials are not right" }
            }
            (false, false) => {
                AccessVerdict::Unauthorized { challenges, reason: "credentials are needed" }
            }
        }
    }

    fn challenges(
        &self,
        policy: &Policy,
        (allow, request): (&Allow, &AccessRequest<'_>),
        shown: &Shown,
    ) -> Vec<String> {
        let realm = &policy.realm;
        let mut challenges = Vec::new();
        if allow.has_users() {
            for kind in policy.digest_users.kinds() {
                let nonce = self.nonces.make(request.address, now_ms() / 1000);
                challenges.push(digest::challenge(kind, realm, &nonce, shown.is_stale));
            }
        }
        if (allow.has_users() && policy.has_passwords) || allow.hook {
            challenges.push(format!("Basic realm=\"{realm}\", charset=\"UTF-8\""));
        }
        if allow.token {
            let error = if shown.is_wrong { ", error=\"invalid_token\"" } else { "" };
            challenges.push(format!("Bearer realm=\"{realm}\"{error}"));
        }
        challenges
    }

    /// Verifies a user for a verb that is not about a path, such as [`Verb::Admin`].
    pub async fn login(&self, (user, password): (&str, &[u8]), verb: Verb, from: IpAddr) -> Login {
        let policy = self.policy();
        let needed = policy.rules.find("", verb);
        let [allow] = needed[..] else { return Login::NoUsers };
        if !allow.has_users() && !allow.hook {
            return Login::NoUsers;
        }
        let mut is_counted = false;
        if allow.has_users() {
            let asked = (from, allow.hook && policy.hook.is_some());
            match self.check_password(&policy, (user, password), asked).await {
                Checked::Right if is_user_of(&policy, allow, user) => {
                    return Login::Admitted(user.into());
                }
                Checked::Right => return Login::NotAllowed,
                Checked::Slowed(wait_ms) => {
                    return Login::Slowed { retry_after_s: wait_ms.div_ceil(1000) as u32 };
                }
                Checked::Wrong if !allow.hook => return Login::Wrong,
                Checked::Wrong => is_counted = true,
                Checked::Unknown => {}
            }
        }
        let Some(hook) = &policy.hook else { return Login::Wrong };
        let question = HookQuestion {
            user: Some(user),
            password: str::from_utf8(password).ok(),
            token: None,
            address: from.to_canonical(),
            verb: verb.name(),
            path: "",
            protocol: Protocol::Http.name(),
        };
        match self.ask_hook(hook, &question, is_counted).await {
            HookResult::Allows => Login::Admitted(user.into()),
            HookResult::Slowed(wait_ms) => {
                Login::Slowed { retry_after_s: wait_ms.div_ceil(1000) as u32 }
            }
            HookResult::WrongCredentials | HookResult::Refuses | HookResult::NoAnswer => {
                Login::Wrong
            }
        }
    }

    /// Returns the fingerprint of a login of this user for a verb; `None` when the user is not
    /// permitted now. A login is valid while this equals the fingerprint at login.
    pub fn login_fingerprint(&self, user: &str, verb: Verb) -> Option<LoginFingerprint> {
        let policy = self.policy();
        let needed = policy.rules.find("", verb);
        let [allow] = needed[..] else { return None };
        let hash = policy.passwords.hash(user).or_else(|| policy.digest_users.any_hash(user));
        if let Some(hash) = hash
            && is_user_of(&policy, allow, user)
        {
            let parts = [&b"standing"[..], user.as_bytes(), hash.as_bytes()];
            return Some(LoginFingerprint(self.prints.of(&parts)));
        }
        let is_asked = allow.hook && policy.hook.is_some();
        is_asked.then(|| LoginFingerprint(self.prints.of(&[b"standing by hook", user.as_bytes()])))
    }
}

/// Permissions of listing of one client. Clients with equal ones see the same names.
#[derive(Clone)]
pub struct ListingClass {
    policy: Arc<Policy>,
    has: Vec<bool>,
}

impl ListingClass {
    /// True when the client sees no name at all.
    pub fn is_empty(&self) -> bool {
        !self.has.contains(&true)
    }

    /// True when the client may see a name.
    pub fn is_listed(&self, name: &str) -> bool {
        canonical(name).is_some_and(|path| self.policy.rules.is_listed(&path, &self.has))
    }
}

/// Equal where the same policy gives the same permissions.
impl PartialEq for ListingClass {
    fn eq(&self, other: &ListingClass) -> bool {
        Arc::ptr_eq(&self.policy, &other.policy) && self.has == other.has
    }
}

impl Eq for ListingClass {}

/// Milliseconds since 1970, for times that are written in credentials.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

/// Passwords that are remembered: the users of a large server.
const VERIFIED_KEPT: usize = 4096;
