// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags of `pagewire serve` for access: users, signed addresses, tokens, and the hook.
//!
//! Rules are tables of the configuration file (`crate::config`). The defaults are those of
//! [`AccessConfig`].

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serve::AccessConfig;
use serve::access::rules::Rule;
use serve::access::{Groups, TokenAlgorithm};

#[derive(Args)]
#[command(next_help_heading = "Access")]
pub(super) struct AccessOptions {
    /// File of users with hashed passwords (htpasswd; argon2id or bcrypt): `pagewire passwd FILE
    /// NAME` adds one. Without [[access]] rules everything needs a user, a signed address, a token
    /// or the hook, whichever are given.
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    /// File of users for Digest (htdigest; SHA-256, or MD5 with --digest-md5): `pagewire passwd
    /// --digest FILE NAME` adds one.
    #[arg(long, value_name = "FILE")]
    digest_users: Option<PathBuf>,
    /// Digest with MD5, for players of RTSP that know no other.
    #[arg(long)]
    digest_md5: bool,
    /// Realm that players show when they ask for a password.
    #[arg(long, value_name = "TEXT", default_value = AccessConfig::REALM)]
    realm: String,
    /// File of keys of signed addresses, a name and a secret a line; `pagewire sign` signs with the
    /// first.
    #[arg(long, value_name = "FILE")]
    url_key_file: Option<PathBuf>,
    /// Public keys of tokens (JWT): a JWKS file, or its address.
    #[arg(long, value_name = "FILE|URL", requires = "jwt_audience")]
    jwks: Option<String>,
    /// Audience of tokens; one of several is enough.
    #[arg(long, value_name = "TEXT", requires = "jwks")]
    jwt_audience: Vec<String>,
    /// Issuer of tokens; one of several is enough [default: any].
    #[arg(long, value_name = "TEXT", requires = "jwks")]
    jwt_issuer: Vec<String>,
    /// Algorithms of tokens, with commas between: RS256, RS384, RS512, PS256, PS384, PS512, ES256,
    /// ES384, EdDSA.
    #[arg(long, value_name = "NAMES", default_value = "RS256,ES256", value_parser = algorithms)]
    jwt_algorithm: Algorithms,
    /// Difference of clocks that is overlooked in the times of tokens.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = leeway())]
    jwt_leeway: u64,
    /// Address that is asked by POST whether a client may; 2xx is yes.
    #[arg(long, value_name = "URL")]
    auth_url: Option<String>,
    /// Time for which an answer of --auth-url is good that names none.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = kept())]
    auth_cache: u64,
}

impl AccessOptions {
    /// Returns the files that the server reads.
    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let keys = self.jwks.iter().filter(|jwks| !jwks.contains("://")).map(PathBuf::from);
        let named = [&self.users, &self.digest_users, &self.url_key_file];
        named.into_iter().flatten().cloned().chain(keys)
    }

    pub(super) fn access(self, rules: Vec<Rule>, groups: Groups) -> AccessConfig {
        let mut access = AccessConfig::default();
        access.rules = rules;
        access.groups = groups;
        access.users = self.users;
        access.digest_users = self.digest_users;
        access.digest_md5 = self.digest_md5;
        access.realm = self.realm;
        access.url_key_file = self.url_key_file;
        access.jwks = self.jwks;
        access.jwt_audience = self.jwt_audience;
        access.jwt_issuer = self.jwt_issuer;
        access.jwt_algorithm = self.jwt_algorithm.0;
        access.jwt_leeway = Duration::from_secs(self.jwt_leeway);
        access.auth_url = self.auth_url;
        access.auth_cache = Duration::from_secs(self.auth_cache);
        access
    }
}

/// Algorithms of one argument, separated by commas.
#[derive(Clone, Debug)]
struct Algorithms(Vec<TokenAlgorithm>);

fn algorithms(text: &str) -> Result<Algorithms, String> {
    text.split(',').map(|name| name.trim().parse()).collect::<Result<_, _>>().map(Algorithms)
}

/// Parses a leeway of at most ten minutes: a longer one would defeat expiry.
fn leeway() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(0..=600)
}

/// Parses the seconds for which an answer is kept.
fn kept() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(0..=86_400)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        access: AccessOptions,
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        let found = Line::parse_from(["serve"]).access.access(Vec::new(), Groups::default());
        assert_eq!(found, AccessConfig::default());
    }

    #[test]
    fn tokens_need_an_audience_and_an_asymmetric_algorithm() {
        for wrong in [
            &["serve", "--jwks", "keys"][..],
            &["serve", "--jwks", "keys", "--jwt-audience", "a", "--jwt-algorithm", "HS256"],
            &["serve", "--jwks", "keys", "--jwt-audience", "a", "--jwt-algorithm", "none"],
            &["serve", "--jwt-leeway", "100000"],
        ] {
            assert!(Line::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
        let line = ["serve", "--jwks", "k", "--jwt-audience", "a", "--jwt-algorithm", "EdDSA"];
        assert!(Line::try_parse_from(line).is_ok());
    }
}
