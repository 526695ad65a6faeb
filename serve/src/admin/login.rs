// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logins of administrators, by cookie.
//!
//! A successful login returns a cookie of 256 random bits, which no script can read and no other
//! site can have sent. It is valid for a working day, at most two hours of them without use, and
//! while the user's password and permission are unchanged: a reload that changes either ends the
//! login.
//!
//! Costs: a login costs the check of a password (`access`); each request after it a MAC and a
//! look-up.
//!
//! Sources: RFC 6265 §4.1.2, RFC 6265bis §5.5 (SameSite); OWASP Authentication Cheat Sheet.
//! Does not check passwords or slow down guesses: [`Access::login`] does both.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::rules::Verb;
use access::{Access, Login, LoginFingerprint};
use parking_lot::Mutex;

use crate::random::random_hex;

/// Logins of administrators.
pub(super) struct Logins {
    access: Arc<Access>,
    tokens: Mutex<HashMap<String, LoggedIn>>,
}

struct LoggedIn {
    user: Arc<str>,
    fingerprint: LoginFingerprint,
    began: Instant,
    used: Instant,
}

/// Result of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Logged in, with this token.
    Token(String),
    /// User or password is wrong.
    Wrong,
    /// The configuration has no administrators.
    NoAdministrators,
    /// The user is not an administrator.
    NotAllowed,
    /// The attempt follows wrong ones too soon.
    TooSoon { retry_after_s: u32 },
}

impl Logins {
    /// Creates the logins for users and rules; without any rules no login is needed.
    pub(super) fn new(access: Arc<Access>) -> Logins {
        Logins { access, tokens: Mutex::default() }
    }

    /// True if a login is needed.
    pub(super) fn is_needed(&self) -> bool {
        !self.access.is_open()
    }

    /// Returns the user of a token that is valid at `now`.
    pub(super) fn user(&self, token: &str, now: Instant) -> Option<Arc<str>> {
        let mut tokens = self.tokens.lock();
        tokens.retain(|_, login| login.is_valid(now));
        let login = tokens.get_mut(token)?;
        if self.access.login_fingerprint(&login.user, Verb::Admin) != Some(login.fingerprint) {
            tokens.remove(token);
            return None;
        }
        login.used = now;
        Some(login.user.clone())
    }

    pub(super) fn log_out(&self, token: &str) {
        self.tokens.lock().remove(token);
    }

    /// Checks an attempt to log in.
    pub(super) async fn attempt(&self, user: &str, password: &str, peer: IpAddr) -> Attempt {
        let login = self.access.login((user, password.as_bytes()), Verb::Admin, peer);
        match Box::pin(login).await {
            // A reload may have happened in between.
            Login::Admitted(user) => match self.access.login_fingerprint(&user, Verb::Admin) {
                Some(fingerprint) => Attempt::Token(self.enter(user, fingerprint, Instant::now())),
                None => Attempt::NotAllowed,
            },
            Login::Wrong => Attempt::Wrong,
            Login::NotAllowed => Attempt::NotAllowed,
            Login::Slowed { retry_after_s } => Attempt::TooSoon { retry_after_s },
            Login::NoUsers => Attempt::NoAdministrators,
        }
    }

    fn enter(&self, user: Arc<str>, fingerprint: LoginFingerprint, now: Instant) -> String {
        let token = random_hex::<32>();
        let mut tokens = self.tokens.lock();
        tokens.retain(|_, login| login.is_valid(now));
        if tokens.len() >= TOKENS_MAX
            && let Some(oldest) = tokens.iter().min_by_key(|(_, login)| login.used)
        {
            let oldest = oldest.0.clone();
            tokens.remove(&oldest);
        }
        let login = LoggedIn { user, fingerprint, began: now, used: now };
        tokens.insert(token.clone(), login);
        token
    }
}

impl LoggedIn {
    fn is_valid(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) < TOKEN_LASTS
            && now.saturating_duration_since(self.used) < UNUSED_MAX
    }
}

/// Name of the cookie.
pub(super) const COOKIE: &str = "pagewire_admin";
/// A working day.
pub(super) const TOKEN_LASTS: Duration = Duration::from_secs(12 * 3600);
const UNUSED_MAX: Duration = Duration::from_secs(2 * 3600);
const TOKENS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use access::{AccessConfig, Policy, htpasswd_line};

    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const LOOK_EVERY: Duration = Duration::from_millis(20);
    /// Guards against hanging; not a measure of speed.
    const HANGING: Duration = Duration::from_secs(120);

    fn write_users(path: &Path, users: &[(&str, &str)]) {
        let lines = users.iter().map(|(user, password)| {
            let line = htpasswd_line(user, password.as_bytes()).expect("a name and a password");
            format!("{line}\n")
        });
        std::fs::write(path, lines.collect::<String>()).expect("room for a file");
    }

    fn policy(path: &Path) -> Policy {
        let mut config = AccessConfig::default();
        config.users = Some(path.to_owned());
        Policy::load(&config).expect("a file of users")
    }

    /// Logins of a server whose only user is `ada`, with the password `right`.
    fn logins(folder: &Path) -> Logins {
        let path = folder.join("users");
        write_users(&path, &[("ada", "right")]);
        Logins::new(Arc::new(Access::new(policy(&path))))
    }

    async fn token(logins: &Logins, password: &str) -> String {
        match logins.attempt("ada", password, PEER).await {
            Attempt::Token(token) => token,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn wrong_passwords_are_slowed_for_their_address_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let logins = logins(folder.path());
        let (mut wrong, deadline) = (0, Instant::now() + HANGING);
        // More than five where they take so long that the first ones no longer count.
        loop {
            assert!(Instant::now() < deadline, "not slowed after {wrong} wrong passwords");
            match logins.attempt("ada", "wrong", PEER).await {
                Attempt::Wrong => wrong += 1,
                Attempt::TooSoon { retry_after_s: 3..=10 } => break,
                // It may be over before the next assertion: waits until it is, and tries again.
                Attempt::TooSoon { retry_after_s: 1..=2 } => {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(wrong >= 5, "slowed after {wrong} wrong passwords");
        let slowed = logins.attempt("ada", "right", PEER).await;
        let Attempt::TooSoon { retry_after_s: 1..=10 } = slowed else { panic!("{slowed:?}") };
        let other = logins.attempt("ada", "right", [198, 51, 100, 2].into()).await;
        let Attempt::Token(token) = other else { panic!("{other:?}") };
        assert_eq!(logins.user(&token, Instant::now()).as_deref(), Some("ada"));
        logins.log_out(&token);
        assert_eq!(logins.user(&token, Instant::now()), None);
    }

    #[tokio::test]
    async fn logins_end_with_the_password_and_the_permission() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("users");
        let logins = logins(folder.path());
        let kept = token(&logins, "right").await;
        logins.access.replace(policy(&path));
        assert!(logins.user(&kept, Instant::now()).is_some(), "nothing has changed");
        write_users(&path, &[("ada", "another"), ("ben", "right")]);
        logins.access.replace(policy(&path));
        assert!(logins.user(&kept, Instant::now()).is_none(), "the password has changed");
        let kept = token(&logins, "another").await;
        write_users(&path, &[("ben", "right")]);
        logins.access.replace(policy(&path));
        assert!(logins.user(&kept, Instant::now()).is_none(), "she is no user any more");
    }

    #[tokio::test]
    async fn tokens_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let logins = logins(folder.path());
        let token = token(&logins, "right").await;
        let began = Instant::now();
        assert!(logins.user(&token, began + UNUSED_MAX / 2).is_some());
        assert!(logins.user(&token, began + UNUSED_MAX).is_some(), "it was used meanwhile");
        assert!(logins.user(&token, began + UNUSED_MAX * 3).is_none());
        assert!(logins.user("", began).is_none());
    }

    #[tokio::test]
    async fn table_of_tokens_is_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let logins = logins(folder.path());
        let first = token(&logins, "right").await;
        let fingerprint = logins.access.login_fingerprint("ada", Verb::Admin).expect("she may");
        let later = Instant::now() + Duration::from_secs(1);
        (0..TOKENS_MAX).for_each(|_| drop(logins.enter("ada".into(), fingerprint, later)));
        assert!(logins.user(&first, later).is_none());
        assert_eq!(logins.tokens.lock().len(), TOKENS_MAX);
    }
}
