// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules between settings that a file or variable breaks: one setting requires another, or two
//! exclude each other.
//!
//! clap judges the rules and names the arguments of the command line; this file finds the place
//! where each was written. clap names the missing argument and not the argument that requires it.
//! The latter is found by removal: without it the fault disappears.
//!
//! Costs one parse per setting for a missing one, only where there is a fault.
//!
//! Sources: clap 4.6, `ContextKind::InvalidArg`, `PriorArg`.
//! Does not judge values.

use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::keys::FOLDER;
use super::sources::{Given, Origin};

/// Returns the faults of settings, one text each; `parse` returns the first fault of a list of
/// settings.
pub(super) fn faults(
    given: &[Given],
    file: Option<&Path>,
    parse: impl Fn(&[Given]) -> Option<clap::Error>,
) -> Vec<String> {
    let mut given = given.to_vec();
    let mut faults = Vec::new();
    while let Some(error) = parse(&given) {
        let (fault, culprit) = fault(&error, &given, file, &parse);
        faults.push(fault);
        let Some(culprit) = culprit else { break };
        // The other settings are judged without it.
        given.remove(culprit);
    }
    faults
}

/// Returns the text of a fault, and the index of the setting at fault.
fn fault(
    error: &clap::Error,
    given: &[Given],
    file: Option<&Path>,
    parse: &impl Fn(&[Given]) -> Option<clap::Error>,
) -> (String, Option<usize>) {
    let index = |name: &str| given.iter().position(|given| given.key.name == name);
    let named = names(error.get(ContextKind::InvalidArg));
    match error.kind() {
        ErrorKind::MissingRequiredArgument if named.iter().any(|name| name == FOLDER) => {
            let place = file.map_or_else(String::new, |file| format!("{}: ", file.display()));
            let cure = "write folder = \"/srv/media\", or the folder on the command line";
            (format!("{place}folder: none to serve; {cure}"), None)
        }
        ErrorKind::MissingRequiredArgument => {
            let is_among = |others: &[String]| named.iter().all(|name| others.contains(name));
            let is_same = |other: &clap::Error| {
                other.kind() == error.kind() && is_among(&names(other.get(ContextKind::InvalidArg)))
            };
            let culprit = (0..given.len()).find(|&without| {
                let mut others = given.to_vec();
                others.remove(without);
                !parse(&others).is_some_and(|other| is_same(&other))
            });
            let by = culprit.map_or_else(String::new, |at| placed(&given[at]));
            (format!("{by}needs {}; write it, too", named.join(" or ")), culprit)
        }
        ErrorKind::ArgumentConflict => {
            // clap names either of the two; the one written last is at fault.
            let prior = names(error.get(ContextKind::PriorArg));
            let all = || named.iter().take(1).chain(&prior);
            let culprit = all().filter_map(|name| index(name)).max();
            let is_other = |name: &&String| index(name) != culprit || culprit.is_none();
            let others = all().filter(is_other).map(|name| match index(name) {
                Some(at) => format!("{name} ({})", given[at].origin),
                None => name.clone(),
            });
            let others: Vec<String> = others.collect();
            let by = culprit.map_or_else(String::new, |at| placed(&given[at]));
            (format!("{by}cannot stand beside {}; leave one out", others.join(", ")), culprit)
        }
        // Faults of the command line itself: a value that its parser refuses.
        _ => {
            let text = error.render().to_string();
            let text = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            (text.to_owned(), None)
        }
    }
}

/// Returns the beginning of a message about a setting.
fn placed(given: &Given) -> String {
    let name = &given.key.name;
    match &given.origin {
        Origin::CommandLine => format!("{}: ", given.key.flag().unwrap_or_else(|| name.clone())),
        origin => format!("{origin}: {name}: "),
    }
}

/// Returns the names of the keys in clap's text, such as `--tls-key <FILE>` or, for a group,
/// `<--tls-cert <FILE>|--tls-self-signed>`.
fn names(context: Option<&ContextValue>) -> Vec<String> {
    let texts = match context {
        Some(ContextValue::String(text)) => std::slice::from_ref(text),
        Some(ContextValue::Strings(texts)) => texts,
        _ => &[],
    };
    let is_group = |text: &str| text.starts_with("<-");
    let words = texts.iter().flat_map(|text| match is_group(text) {
        true => text.split('|').collect::<Vec<_>>(),
        false => vec![text.as_str()],
    });
    let name = |word: &str| {
        let word = word.trim_start_matches('<');
        let word = word.split([' ', '=']).next().unwrap_or_default().trim_end_matches(['>', '.']);
        word.trim_start_matches('-').replace('-', "_").to_ascii_lowercase()
    };
    words.map(name).filter(|name| !name.is_empty()).collect()
}
