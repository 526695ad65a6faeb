// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules with the credentials that they name, read from files and checked together.
//!
//! A server without rules and without credentials is open. With credentials and without rules every
//! request needs one of them: a configured file of users means restricted access.
//!
//! Does not decide ([`crate::Access`] does).

use std::path::PathBuf;
use std::time::Duration;

use crate::digest_users::{DigestUsers, check_realm};
use crate::error::Error;
use crate::groups::Groups;
use crate::hook::Hook;
use crate::key_set::KeySet;
use crate::passwords::Passwords;
use crate::paths::is_below;
use crate::rules::{Rule, RuleDraft, Rules};
use crate::signed_url::UrlKeys;
use crate::tokens::{TokenAlgorithm, Tokens};

/// Options of access.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AccessConfig {
    /// Rules, in any order.
    pub rules: Vec<Rule>,
    /// Groups of users.
    pub groups: Groups,
    /// File of users with their hashed passwords (htpasswd).
    pub users: Option<PathBuf>,
    /// File of users for Digest (htdigest).
    pub digest_users: Option<PathBuf>,
    /// True where Digest with MD5 is allowed, for players that support nothing else.
    pub digest_md5: bool,
    /// Realm of challenges.
    pub realm: String,
    /// File of keys that sign addresses.
    pub url_key_file: Option<PathBuf>,
    /// File or address of the public keys of tokens.
    pub jwks: Option<String>,
    /// Audiences of tokens: one of them must be the token's.
    pub jwt_audience: Vec<String>,
    /// Issuers of tokens; any where it is empty.
    pub jwt_issuer: Vec<String>,
    /// Algorithms of tokens.
    pub jwt_algorithm: Vec<TokenAlgorithm>,
    /// Tolerated difference of clocks.
    pub jwt_leeway: Duration,
    /// Address of the hook.
    pub auth_url: Option<String>,
    /// Validity of a hook's answer that states none.
    pub auth_cache: Duration,
}

impl Default for AccessConfig {
    fn default() -> AccessConfig {
        AccessConfig {
            rules: Vec::new(),
            groups: Groups::default(),
            users: None,
            digest_users: None,
            digest_md5: false,
            realm: AccessConfig::REALM.to_owned(),
            url_key_file: None,
            jwks: None,
            jwt_audience: Vec::new(),
            jwt_issuer: Vec::new(),
            jwt_algorithm: ["RS256", "ES256"].map(|name| name.parse().expect("known")).to_vec(),
            jwt_leeway: Duration::from_secs(60),
            auth_url: None,
            auth_cache: Duration::from_secs(60),
        }
    }
}

impl AccessConfig {
    /// True where a user can log in by a password.
    pub fn has_logins(&self) -> bool {
        self.users.is_some() || self.digest_users.is_some() || self.auth_url.is_some()
    }

    /// Checks that a server can be started with it: reads its files.
    ///
    /// # Errors
    /// The first fault, with its option and what to write.
    pub fn check(&self) -> Result<(), Error> {
        Policy::load(self).map(drop)
    }

    /// Returns the path of the rules that decide about a path without rules of its own, in its
    /// shortest spelling; `None` where no rule names it.
    pub fn rule_of(&self, path: &str) -> Option<&str> {
        let paths = self.rules.iter().map(|rule| &rule.path[..]);
        paths.filter(|rule| is_below(path, rule)).max_by_key(|rule| rule.len())
    }

    /// Realm by default.
    pub const REALM: &'static str = "pagewire";
}

/// Rules and credentials of one configuration.
pub struct Policy {
    pub(crate) rules: Rules,
    pub(crate) groups: Groups,
    pub(crate) passwords: Passwords,
    pub(crate) has_passwords: bool,
    pub(crate) digest_users: DigestUsers,
    pub(crate) realm: String,
    pub(crate) url_keys: Option<UrlKeys>,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) hook: Option<Hook>,
}

/// Shows no secret.
impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Policy")
    }
}

impl Policy {
    /// Reads the files of a configuration and checks that rules name credentials that exist.
    ///
    /// # Errors
    /// The first fault, with its option and what to write.
    pub fn load(config: &AccessConfig) -> Result<Policy, Error> {
        check_realm(&config.realm)?;
        let passwords = config.users.as_deref().map(Passwords::read).transpose()?;
        let digest_users = config.digest_users.as_deref();
        let digest_users = digest_users
            .map(|path| DigestUsers::read(path, &config.realm, config.digest_md5))
            .transpose()?;
        let url_keys = config.url_key_file.as_deref();
        let url_keys = url_keys.map(|path| UrlKeys::read(URL_KEYS, path)).transpose()?;
        let tokens = config.jwks.as_deref().map(|jwks| tokens(jwks, config)).transpose()?;
        let hook = config.auth_url.as_deref();
        let hook = hook.map(|url| Hook::new(url, config.auth_cache.as_secs())).transpose()?;
        let has_users = passwords.is_some() || digest_users.is_some();
        let rules = match config.rules.is_empty() {
            true => {
                let credentials = [
                    ("users", has_users),
                    ("signed", url_keys.is_some()),
                    ("token", tokens.is_some()),
                    ("hook", hook.is_some()),
                ];
                default_rules(&credentials)
            }
            false => config.rules.clone(),
        };
        let has = Has { users: has_users, url_keys: url_keys.is_some(), tokens: tokens.is_some() };
        rules.iter().try_for_each(|rule| check_rule(rule, config, &has))?;
        Ok(Policy {
            rules: Rules::new(&rules),
            groups: config.groups.clone(),
            has_passwords: passwords.is_some(),
            passwords: passwords.unwrap_or_default(),
            digest_users: digest_users.unwrap_or_default(),
            realm: config.realm.clone(),
            url_keys,
            tokens,
            hook,
        })
    }

    /// True when everybody may do everything.
    pub(crate) fn is_open(&self) -> bool {
        self.rules.is_empty()
    }
}

/// Rules of a server that has credentials and no rules.
fn default_rules(credentials: &[(&str, bool)]) -> Vec<Rule> {
    let present = credentials.iter().filter(|(_, is_there)| *is_there);
    let allow: Vec<String> = present.map(|(name, _)| (*name).to_owned()).collect();
    let draft = |verbs: &[&str], allow: Vec<String>| RuleDraft {
        path: Some(String::new()),
        channel: None,
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        allow,
    };
    let is_admin = |name: &&String| *name == "users" || *name == "hook";
    let admin: Vec<String> = allow.iter().filter(is_admin).cloned().collect();
    let drafts = [draft(&["list", "play", "download", "key"], allow), draft(&["admin"], admin)];
    drafts.into_iter().filter_map(|draft| draft.check().ok()).collect()
}

/// Credentials that a configuration has.
struct Has {
    users: bool,
    url_keys: bool,
    tokens: bool,
}

/// Checks that a rule's credentials can be shown: otherwise it would refuse everybody.
fn check_rule(rule: &Rule, config: &AccessConfig, has: &Has) -> Result<(), Error> {
    let allow = &rule.allow;
    let shown = if rule.path.is_empty() { "everything" } else { &rule.path };
    let lacks = |entry: &str, cure: &str| {
        Err(Error::option("[[access]]", format!("{shown}: allow = {entry:?}"), cure))
    };
    if let Some(group) = allow.groups.iter().find(|group| !config.groups.is_known(group)) {
        let cure = format!("write the group's users below [groups]: {group} = [\"anna\"]");
        return lacks(&format!("group:{group}"), &cure);
    }
    if allow.has_users() && !has.users {
        return lacks("users", "name a file of users: --users or --digest-users");
    }
    if allow.signed && !has.url_keys {
        return lacks("signed", "name a file of keys: --url-key-file");
    }
    if allow.token && !has.tokens {
        return lacks("token", "name the issuer's keys: --jwks");
    }
    if allow.hook && config.auth_url.is_none() {
        return lacks("hook", "name the address to ask: --auth-url");
    }
    Ok(())
}

fn tokens(jwks: &str, config: &AccessConfig) -> Result<Tokens, Error> {
    if config.jwt_audience.is_empty() {
        let cure = "write --jwt-audience: the issuer's tokens for other services would open this";
        return Err(Error::option("--jwks", "tokens of any audience", cure));
    }
    if config.jwt_algorithm.is_empty() {
        let cure = "write one or more, such as RS256";
        return Err(Error::option("--jwt-algorithm", "no algorithm", cure));
    }
    let names = (&config.jwt_audience[..], &config.jwt_issuer[..]);
    let leeway_s = config.jwt_leeway.as_secs();
    Ok(Tokens::new(KeySet::open(jwks)?, &config.jwt_algorithm, names, leeway_s))
}

const URL_KEYS: &str = "--url-key-file";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passwords::tests::file;

    #[test]
    fn rule_without_its_credentials_is_refused() {
        for (allow, expected) in [
            ("users", "--users"),
            ("user:anna", "--users"),
            ("group:family", "[groups]"),
            ("signed", "--url-key-file"),
            ("token", "--jwks"),
            ("hook", "--auth-url"),
        ] {
            let draft = RuleDraft {
                path: Some("films".into()),
                verbs: vec!["play".into()],
                allow: vec![allow.into()],
                ..RuleDraft::default()
            };
            let config =
                AccessConfig { rules: vec![draft.check().unwrap()], ..AccessConfig::default() };
            let error = Policy::load(&config).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("films: "), "{error}");
        }
    }

    #[test]
    fn credentials_without_rules_shut_everything() {
        assert!(Policy::load(&AccessConfig::default()).unwrap().is_open());
        let (_folder, path) = file(&crate::htpasswd_line("anna", b"secret").unwrap());
        let config = AccessConfig { users: Some(path), ..AccessConfig::default() };
        assert!(!Policy::load(&config).unwrap().is_open());
        let jwks = AccessConfig { jwks: Some("keys".into()), ..AccessConfig::default() };
        let error = Policy::load(&jwks).unwrap_err().to_string();
        assert!(error.contains("--jwt-audience"), "{error}");
    }
}
