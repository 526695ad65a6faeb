// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verifies the credentials of one request: users, tokens, signatures, the hook.
//!
//! Verifying a new password costs 20 ms of a core: at most half of the cores, and at most four,
//! verify passwords, and [`CHECKS_WAITING`] requests may wait. A right password is remembered for
//! five minutes from its last use; the key of the memory includes the user's line, so that a
//! changed line is verified anew. The verifying thread records the result, so an attempt counts
//! even if its client hangs up meanwhile.
//!
//! Where the hook may be asked as well, a name that is in no file is neither verified nor counted
//! here: it is left to the hook. So the time of an answer reveals there which names are in the
//! files.
//!
//! Sources: RFC 7617, RFC 7616, RFC 6750.
//! Does not know which credentials a rule needs ([`crate::decision`] does).

use std::net::IpAddr;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::authorization::{Authorization, DigestFields, parse};
use crate::decision::{Access, AccessRequest, Protocol, now_ms};
use crate::digest::{self, DigestRequest, DigestResult};
use crate::digest_users::DigestHash;
use crate::hook::{Hook, HookQuestion, HookResult};
use crate::nonces::NonceState;
use crate::passwords::{PASSWORD_BYTES_MAX, is_password};
use crate::paths::canonical;
use crate::policy::Policy;
use crate::query::value;
use crate::request_credentials::{FoundUser, RequestCredentials};
use crate::rules::{Allow, Verb};
use crate::signed_url::SignatureState;

/// Credentials of a request, as they were found.
#[derive(Default)]
pub(crate) struct Shown {
    /// User of a file whose password was right.
    pub(crate) user: Option<Arc<str>>,
    /// User that the hook allows. It is not a user of the files, so it opens no rule for users.
    pub(crate) hook_user: Option<Arc<str>>,
    /// Subject of a valid token, with [`SUBJECT`] before it.
    pub(crate) subject: Option<Arc<str>>,
    /// True where one of the rules asks the hook.
    pub(crate) asks_hook: bool,
    /// True once the user was looked up.
    pub(crate) is_user_checked: bool,
    /// True when credentials were sent and are not right.
    pub(crate) is_wrong: bool,
    /// True when a wrong password was counted.
    pub(crate) is_counted: bool,
    pub(crate) is_stale: bool,
    pub(crate) slowed_ms: u64,
    pub(crate) signature: Option<&'static str>,
}

impl Shown {
    /// Records the result of the user look-up.
    fn note(&mut self, found: FoundUser) {
        match found {
            FoundUser::Right(user) => self.user = Some(user),
            FoundUser::Wrong => (self.is_wrong, self.is_counted) = (true, true),
            FoundUser::Stale => self.is_stale = true,
            FoundUser::Slowed(wait_ms) => self.slowed_ms = wait_ms,
        }
    }
}

impl Access {
    pub(crate) async fn has_token(
        &self,
        policy: &Policy,
        path: &str,
        request: &AccessRequest<'_>,
        shown: &mut Shown,
    ) -> bool {
        let (Some(tokens), Some(token)) = (&policy.tokens, token_of(request)) else {
            return false;
        };
        match tokens.claims(token, &self.prints, (self.steady_ms(), now_ms())).await {
            Some(claims) => {
                let subject = claims.sub.as_deref().map(|name| format!("{SUBJECT}{name}"));
                shown.subject = subject.map(Arc::from);
                claims.opens(path)
            }
            None => {
                shown.is_wrong = true;
                false
            }
        }
    }

    /// Finds the user of a request by Basic or Digest.
    pub(crate) async fn find_user(
        &self,
        policy: &Policy,
        request: &AccessRequest<'_>,
        shown: &mut Shown,
    ) {
        if std::mem::replace(&mut shown.is_user_checked, true) {
            return;
        }
        if let Some(found) = request.known.and_then(RequestCredentials::found) {
            return shown.note(found.clone());
        }
        let found = match request.authorization.and_then(parse) {
            Some(Authorization::Basic { user, password }) => {
                let asked = (request.address, shown.asks_hook);
                match self.check_password(policy, (&user, &password), asked).await {
                    Checked::Right => FoundUser::Right(user.into()),
                    Checked::Wrong => FoundUser::Wrong,
                    Checked::Slowed(wait_ms) => FoundUser::Slowed(wait_ms),
                    Checked::Unknown => return,
                }
            }
            Some(Authorization::Digest(fields)) => self.check_digest(policy, request, fields),
            Some(Authorization::Bearer(_)) | None => return,
        };
        if let Some(known) = request.known {
            known.keep_found(found.clone());
        }
        shown.note(found);
    }

    /// Verifies a digest response.
    fn check_digest(
        &self,
        policy: &Policy,
        request: &AccessRequest<'_>,
        fields: DigestFields<'_>,
    ) -> FoundUser {
        let (steady_ms, now_s) = (self.steady_ms(), now_ms() / 1000);
        let wait_ms = self.attempts.wait_ms(request.address, &fields.user, steady_ms);
        if wait_ms > 0 {
            match self.nonces.state(fields.nonce, request.address, now_s) {
                // A new nonce shows nothing of the password, so it need not wait.
                NonceState::Stale => return FoundUser::Stale,
                // The mistakes of others do not slow a client that has used this nonce
                // successfully.
                NonceState::Fresh(nonce, _) if self.nonces.is_used(nonce) => {}
                NonceState::Fresh(..) | NonceState::Unknown => return FoundUser::Slowed(wait_ms),
            }
        }
        let for_request = DigestRequest {
            method: request.method,
            path: request.target,
            query: request.query,
            address: request.address,
            is_rtsp: request.protocol == Protocol::Rtsp,
        };
        let users = (&policy.digest_users, policy.realm.as_str());
        match digest::verify(&fields, &for_request, users, &self.nonces, now_s) {
            DigestResult::Right => FoundUser::Right(fields.user.into()),
            DigestResult::Stale => FoundUser::Stale,
            DigestResult::Wrong => {
                self.attempts.note_wrong(request.address, &fields.user, steady_ms);
                FoundUser::Wrong
            }
        }
    }

    /// Verifies a password, unless it was verified lately. `asks_hook` is true where the hook may
    /// recognise a name that is in no file.
    pub(crate) async fn check_password(
        &self,
        policy: &Policy,
        (user, password): (&str, &[u8]),
        (address, asks_hook): (IpAddr, bool),
    ) -> Checked {
        let hash = policy.passwords.hash(user);
        let is_of_digest = hash.is_none() && policy.digest_users.any_hash(user).is_some();
        if hash.is_none() && !is_of_digest && asks_hook {
            return Checked::Unknown;
        }
        if password.len() > PASSWORD_BYTES_MAX {
            return Checked::Wrong;
        }
        if is_of_digest {
            return self.check_digest_password(policy, (user, password), address);
        }
        let print = self.prints.of(&[
            b"password",
            user.as_bytes(),
            password,
            hash.unwrap_or_default().as_bytes(),
        ]);
        // Without verifying the password: it was verified lately, or none may be tried yet.
        let known = |now_ms| {
            let found = || self.verified.find_and_renew(&print, now_ms, VERIFIED_MS);
            if hash.is_some() && found().is_some() {
                return Some(Checked::Right);
            }
            let wait_ms = self.attempts.wait_ms(address, user, now_ms);
            (wait_ms > 0).then_some(Checked::Slowed(wait_ms))
        };
        if let Some(known) = known(self.steady_ms()) {
            return known;
        }
        let Some(place) = self.checks_waiting.take(address) else {
            return Checked::Slowed(CHECKS_RETRY_MS);
        };
        let turn = self.checks.clone().acquire_owned().await;
        drop(place);
        let Ok(turn) = turn else { return Checked::Wrong };
        // Other requests of the same client may have been verified meanwhile.
        let now_ms = self.steady_ms();
        if let Some(known) = known(now_ms) {
            return known;
        }
        let (hash, password) = (hash.map(str::to_owned), Zeroizing::new(password.to_vec()));
        let (attempts, verified) = (self.attempts.clone(), self.verified.clone());
        let name = user.to_owned();
        let check = move || {
            let _turn = turn;
            let is_right = is_password(&password, hash.as_deref());
            match is_right {
                true => verified.keep(print, now_ms + VERIFIED_MS, ()),
                false => attempts.note_wrong(address, &name, now_ms),
            }
            is_right
        };
        match tokio::task::spawn_blocking(check).await {
            Ok(true) => Checked::Right,
            Ok(false) => {
                tracing::debug!("a wrong password from {address}");
                Checked::Wrong
            }
            Err(panic) => {
                tracing::error!("verifying a password: {panic}");
                Checked::Wrong
            }
        }
    }

    /// Verifies a password of the file for Digest, which costs a hash.
    fn check_digest_password(
        &self,
        policy: &Policy,
        (user, password): (&str, &[u8]),
        address: IpAddr,
    ) -> Checked {
        let now_ms = self.steady_ms();
        match self.attempts.wait_ms(address, user, now_ms) {
            0 if is_digest_password(policy, user, password) == Some(true) => Checked::Right,
            0 => {
                self.attempts.note_wrong(address, user, now_ms);
                Checked::Wrong
            }
            wait_ms => Checked::Slowed(wait_ms),
        }
    }

    pub(crate) async fn is_allowed_by_hook(
        &self,
        policy: &Policy,
        request: &AccessRequest<'_>,
        shown: &mut Shown,
    ) -> bool {
        let Some(hook) = &policy.hook else { return false };
        // The name is canonical, because the hook compares names of files.
        let Some(path) = canonical(request.asset) else { return false };
        let parsed = request.authorization.and_then(parse);
        let (user, password) = match &parsed {
            Some(Authorization::Basic { user, password }) => {
                (Some(user.as_str()), str::from_utf8(password).ok())
            }
            _ => (None, None),
        };
        let token = token_of(request);
        let question = HookQuestion {
            user,
            password,
            token,
            address: request.address.to_canonical(),
            verb: request.verb.name(),
            path: &path,
            protocol: request.protocol.name(),
        };
        shown.is_counted |= request.known.is_some_and(RequestCredentials::is_counted);
        let has_shown = user.is_some() || token.is_some();
        match self.ask_hook(hook, &question, shown.is_counted).await {
            HookResult::Allows => {
                shown.hook_user = user.map(Arc::from);
                return true;
            }
            HookResult::WrongCredentials => {
                shown.is_wrong |= has_shown;
                shown.is_counted |= user.is_some();
                if let Some(known) = request.known.filter(|_| user.is_some()) {
                    known.note_counted();
                }
            }
            HookResult::Refuses => shown.is_wrong |= has_shown,
            HookResult::Slowed(wait_ms) => shown.slowed_ms = wait_ms,
            HookResult::NoAnswer => {}
        }
        false
    }

    /// Asks the hook, unless its answer is kept. Counts a user's wrong password, unless this
    /// request has counted one.
    pub(crate) async fn ask_hook(
        &self,
        hook: &Hook,
        question: &HookQuestion<'_>,
        is_counted: bool,
    ) -> HookResult {
        let now_ms = self.steady_ms();
        let written = question.written(&self.prints);
        // The mistakes of others do not slow an allowed client.
        if let Some(kept) = hook.kept(&written, now_ms) {
            return kept;
        }
        let address = question.address;
        if let Some(user) = question.user {
            let wait_ms = self.attempts.wait_ms(address, user, now_ms);
            if wait_ms > 0 {
                return HookResult::Slowed(wait_ms);
            }
        }
        let attempts = self.attempts.clone();
        let counted = question.user.filter(|_| !is_counted).map(str::to_owned);
        let note_wrong = move || {
            if let Some(user) = counted {
                attempts.note_wrong(address, &user, now_ms);
            }
        };
        hook.ask(written, now_ms, note_wrong).await
    }
}

/// Result of verifying a password.
pub(crate) enum Checked {
    Right,
    Wrong,
    /// Not verified; the client may try again after this many milliseconds.
    Slowed(u64),
    /// The name is in no file; the hook may recognise it.
    Unknown,
}

pub(crate) fn is_user_of(policy: &Policy, allow: &Allow, user: &str) -> bool {
    allow.users
        || allow.named.iter().any(|name| name == user)
        || allow.groups.iter().any(|group| policy.groups.has(group, user))
}

/// Verifies a password of the file for Digest; `None` for a user that is not in it.
fn is_digest_password(policy: &Policy, user: &str, password: &[u8]) -> Option<bool> {
    let users = &policy.digest_users;
    let mut text = format!("{user}:{}:", policy.realm).into_bytes();
    text.extend_from_slice(password);
    let kinds = [DigestHash::Sha256, DigestHash::Md5];
    let stored = kinds.into_iter().find_map(|kind| Some((kind, users.hash(kind, user)?)));
    stored.map(|(kind, hash)| {
        let made = kind.hex(&text);
        let (made, hash) = (made.as_bytes(), hash.as_bytes());
        aws_lc_rs::constant_time::verify_slices_are_equal(made, hash).is_ok()
    })
}

pub(crate) fn is_signed(policy: &Policy, request: &AccessRequest<'_>, shown: &mut Shown) -> bool {
    let (Some(keys), Some(query)) = (&policy.url_keys, request.query) else { return false };
    // The signed address is the requested one, or a folder above it. RTSP clients append the name
    // of a stream to it; a key is covered by the signature of its film.
    let target = match request.protocol {
        Protocol::Http if request.verb != Verb::Key => request.target,
        _ => request.asset,
    };
    let Some(target) = canonical(target) else { return false };
    match keys.state(query, (&target, request.address), now_ms() / 1000) {
        SignatureState::Right => true,
        SignatureState::Missing => false,
        SignatureState::Wrong(reason) => {
            shown.signature = Some(reason);
            false
        }
    }
}

/// Returns the token of a request, from its field or its query.
fn token_of<'a>(request: &AccessRequest<'a>) -> Option<&'a str> {
    match request.authorization.and_then(parse) {
        Some(Authorization::Bearer(token)) => Some(token),
        _ => request.query.and_then(|query| value(query, "access_token")),
    }
}

/// Prefix of a token's subject in places that also hold user names (limits, logs). No user has such
/// a name: neither the files nor Basic allow a colon in a name.
const SUBJECT: &str = "token:";
const VERIFIED_MS: u64 = 300_000;
/// A second and a half of work for one core.
pub(crate) const CHECKS_WAITING: u32 = 64;
const CHECKS_RETRY_MS: u64 = 2_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::passwords::tests::file;
    use crate::{AccessConfig, htpasswd_line};

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn access() -> (Access, Arc<Policy>) {
        let (_folder, path) = file(&htpasswd_line("anna", b"secret").unwrap());
        let config = AccessConfig { users: Some(path), ..AccessConfig::default() };
        let access = Access::new(Policy::load(&config).unwrap());
        let policy = access.policy();
        (access, policy)
    }

    #[tokio::test]
    async fn clients_that_hang_up_leave_no_place_behind() {
        let (access, policy) = access();
        let turns = access.checks.available_permits() as u32;
        let held = access.checks.clone().acquire_many_owned(turns).await.unwrap();
        for number in 0..CHECKS_WAITING + 6 {
            let password = number.to_string();
            let asked = (("anna", password.as_bytes()), (ADDRESS, false));
            let check = access.check_password(&policy, asked.0, asked.1);
            let found = tokio::time::timeout(Duration::from_millis(1), check).await;
            assert!(found.is_err(), "{number} waits");
        }
        drop(held);
        let found = access.check_password(&policy, ("anna", b"secret"), (ADDRESS, false)).await;
        assert!(matches!(found, Checked::Right));
    }

    #[tokio::test]
    async fn wrong_password_of_a_client_that_hangs_up_is_counted() {
        let (access, policy) = access();
        let turns = access.checks.available_permits() as u32;
        for number in 0..5 {
            let password = number.to_string();
            let check =
                access.check_password(&policy, ("anna", password.as_bytes()), (ADDRESS, false));
            let _ = tokio::time::timeout(Duration::from_micros(1), check).await;
            // The verifying thread holds the turn until it has counted the result.
            drop(access.checks.acquire_many(turns).await.unwrap());
        }
        let found = access.check_password(&policy, ("anna", b"secret"), (ADDRESS, false)).await;
        assert!(matches!(found, Checked::Slowed(_)));
    }

    #[tokio::test]
    async fn name_in_no_file_is_left_to_the_hook() {
        let (access, policy) = access();
        for _ in 0..20 {
            let found = access.check_password(&policy, ("ben", b"secret"), (ADDRESS, true)).await;
            assert!(matches!(found, Checked::Unknown));
        }
        assert_eq!(access.attempts.wait_ms(ADDRESS, "ben", access.steady_ms()), 0);
        let found = access.check_password(&policy, ("ben", b"secret"), (ADDRESS, false)).await;
        assert!(matches!(found, Checked::Wrong));
    }
}
