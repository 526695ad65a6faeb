// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to paths by listing, playing and downloading: rules, users, signed URLs, tokens, a hook.
//!
//! [`Access::decide`] answers one question for every protocol: may this client do this with this
//! path. Rules ([`rules`]) name the kinds of credentials that open a path; each kind has a file:
//! `passwords` and `digest_users` (users), `digest` (RFC 7616), `signed_url`, `tokens` with
//! `key_set` (JWT), `hook`. Passwords cost 20 ms of a core on purpose; so a verified one is
//! remembered (`remembered`), few are verified at once, and wrong ones are slowed (`attempts`).
//!
//! Costs: without rules one atomic load (13 ns); with rules a hash look-up for each component of
//! the path (0.35 us), and a keyed hash of the credentials where they were verified before (1.0 us)
//! or the MAC of a signed address (1.7 us): tests/cost.rs on an EPYC with a hundred rules.
//! Nothing here is called while media is sent.
//!
//! Sources: RFC 9110 §11, RFC 7617 (Basic), RFC 7616 and RFC 2617 (Digest), RFC 6750 (Bearer).
//! Does not open files, know protocols or answer requests. The only sockets are those of `fetch`.

#![forbid(unsafe_code)]

mod attempts;
mod authorization;
mod client_prefix;
mod credentials;
mod decision;
mod digest;
mod digest_users;
mod error;
mod fetch;
mod groups;
mod hook;
mod identify;
mod key_set;
mod nonces;
mod passwords;
mod paths;
mod policy;
mod query;
mod remembered;
mod request_credentials;
pub mod rules;
mod signed_url;
mod tokens;
mod waiting;

pub use client_prefix::{ClientPrefix, InvalidPrefix, counted_as};
pub use decision::{
    Access, AccessRequest, AccessVerdict, Grant, ListingClass, Login, LoginFingerprint, Protocol,
};
pub use digest_users::htdigest_line;
pub use error::Error;
pub use groups::Groups;
pub use passwords::htpasswd_line;
pub use paths::canonical;
pub use policy::{AccessConfig, Policy};
pub use query::{carried, with_query, without_credentials};
pub use request_credentials::RequestCredentials;
pub use signed_url::{SignedUrl, UrlKeys};
pub use tokens::TokenAlgorithm;
pub use wire::http::decoded_path;
