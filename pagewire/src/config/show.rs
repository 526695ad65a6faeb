// SPDX-License-Identifier: MIT OR Apache-2.0
//! Effective settings and their origins, as TOML that can be read back or as JSON.
//!
//! A secret is never shown: neither a value read from the file of a secret, nor a password within
//! an address, nor the query of a service's address; the line is then a comment. Paths are
//! absolute, so that the output means the same in another folder.
//!
//! Sources: TOML 1.0; RFC 3986 §3.2.1 (user information). Does not show the content of files that
//! settings name.

use std::ffi::OsStr;
use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::keys::{self, Key, KeyKind};
use super::sources::{Given, Loaded, Origin};
use super::tables::quoted;

/// A setting in its shown form.
struct Shown {
    key: &'static Key,
    /// Its values; none where it is not set and has no default.
    values: Option<Vec<String>>,
    origin: Origin,
    is_hidden: bool,
}

/// Returns the settings as a configuration file.
pub(super) fn toml(loaded: &Loaded) -> String {
    let mut out = String::new();
    for shown in all(loaded) {
        let (name, origin) = (&shown.key.name, &shown.origin);
        let value = shown.values.as_ref().map(|values| value(shown.key, values));
        let _ = match value {
            _ if shown.is_hidden => writeln!(out, "# {name} = a secret  # {origin}"),
            Some(value) => writeln!(out, "{name} = {value}  # {origin}"),
            None => writeln!(out, "# {name} is not set"),
        };
    }
    out.push_str(&loaded.file.tables);
    out
}

/// Returns the settings as JSON.
pub(super) fn json(loaded: &Loaded) -> String {
    let mut settings = Map::new();
    for shown in all(loaded) {
        let value = match (shown.key.kind, &shown.values) {
            _ if shown.is_hidden => Value::Null,
            (_, None) => Value::Null,
            (KeyKind::Switch, Some(values)) => json!(values[0] == "true"),
            (KeyKind::Number, Some(values)) => {
                values[0].parse::<u64>().map_or_else(|_| json!(values[0]), |number| json!(number))
            }
            (KeyKind::Text, Some(values)) => json!(values[0]),
            (KeyKind::Texts, Some(values)) => json!(values),
        };
        let mut row = Map::new();
        row.insert("value".to_owned(), value);
        if shown.is_hidden {
            row.insert("secret".to_owned(), json!(true));
        }
        let (from, details) = match &shown.origin {
            Origin::Default => ("default", vec![]),
            Origin::File { path, line } => {
                ("file", vec![("file", json!(path.to_string_lossy())), ("line", json!(line))])
            }
            Origin::Environment(name) => ("environment", vec![("variable", json!(name))]),
            Origin::Credential(path) => {
                ("credential", vec![("file", json!(path.to_string_lossy()))])
            }
            Origin::CommandLine => ("command line", vec![]),
        };
        row.insert("from".to_owned(), json!(from));
        row.extend(details.into_iter().map(|(name, value)| (name.to_owned(), value)));
        settings.insert(shown.key.name.clone(), Value::Object(row));
    }
    let channels: Vec<&str> = loaded.file.channels.iter().map(|channel| &*channel.name).collect();
    let whole = json!({ "settings": settings, "channels": channels });
    format!("{whole:#}\n")
}

/// Returns all settings in the order of the help.
fn all(loaded: &Loaded) -> impl Iterator<Item = Shown> + '_ {
    keys::all().iter().map(|key| {
        match loaded.given.iter().find(|given| given.key.name == key.name) {
            Some(given) => Shown {
                key,
                values: Some(given.values.iter().map(|value| absolute(key, value)).collect()),
                origin: given.origin.clone(),
                is_hidden: is_hidden(given),
            },
            None => Shown {
                key,
                values: key.default().map(|value| vec![value]),
                origin: Origin::Default,
                is_hidden: false,
            },
        }
    })
}

/// True for a value that is, or contains, a secret.
fn is_hidden(given: &Given) -> bool {
    // Services often authenticate the caller by a token in the query.
    let has_token = |value: &OsStr| {
        let text = value.to_string_lossy();
        ADDRESSES.contains(&given.key.name.as_str()) && text.contains("://") && text.contains('?')
    };
    let has_password = |value: &OsStr| {
        let text = value.to_string_lossy();
        let authority = text.split_once("://").map(|(_, rest)| rest);
        let authority = authority.and_then(|rest| rest.split(['/', '?', '#']).next());
        authority.is_some_and(|authority| authority.contains('@'))
    };
    let has_secret = |value: &OsStr| has_password(value) || has_token(value);
    given.is_secret || given.values.iter().any(|value| has_secret(value))
}

fn absolute(key: &Key, value: &OsStr) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    super::settings::located(key, value.to_owned(), &here).to_string_lossy().into_owned()
}

/// A value in TOML.
fn value(key: &Key, values: &[String]) -> String {
    match key.kind {
        KeyKind::Switch | KeyKind::Number => values[0].clone(),
        KeyKind::Text => quoted(&values[0]),
        KeyKind::Texts => {
            let items: Vec<String> = values.iter().map(|item| quoted(item)).collect();
            format!("[{}]", items.join(", "))
        }
    }
}

/// Settings that are addresses of services that the server queries.
const ADDRESSES: &[&str] = &["auth_url", "jwks"];
