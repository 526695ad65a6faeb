// SPDX-License-Identifier: MIT OR Apache-2.0
//! A configuration file with every setting, its help and its default, as
//! `/etc/pagewire/pagewire.toml` of the package; and the table of keys of the documents.
//!
//! Settings with a default are in comments with that default, others with an example of their
//! value. The file as printed therefore serves `/srv/media` and changes nothing else.
//!
//! Does not choose values: they are in the definitions of the flags.

use std::fmt::Write;

use super::keys::{self, FOLDER, Key, KeyKind};
use super::tables::quoted;

/// Returns the file.
pub(super) fn example() -> String {
    let mut out = String::from(HEAD);
    let mut heading = None;
    for key in keys::all() {
        if key.heading() != heading && key.heading().is_some() {
            heading = key.heading();
            let _ = writeln!(out, "\n## {}", heading.unwrap_or_default());
        }
        out.push('\n');
        for line in wrapped(&key.help(), COLUMNS - 2) {
            let _ = writeln!(out, "# {line}");
        }
        let mark = if key.name == FOLDER { "" } else { "# " };
        let _ = writeln!(out, "{mark}{} = {}", key.name, example_value(key));
    }
    out.push_str(CHANNELS);
    out
}

/// Returns the rows of the table of keys, for docs/configuration.md.
#[cfg(test)]
pub(super) fn table() -> String {
    let mut out = String::from("| key | value | default | on reload | |\n|---|---|---|---|---|\n");
    for key in keys::all() {
        let kind = match key.kind {
            KeyKind::Switch => "switch".to_owned(),
            KeyKind::Number => "number".to_owned(),
            KeyKind::Text if !key.choices().is_empty() => {
                key.choices().iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", ")
            }
            KeyKind::Text => format!("text: {}", key.value_name()),
            KeyKind::Texts => "list of texts".to_owned(),
        };
        let default = key.default().map_or(String::new(), |value| format!("`{value}`"));
        let reload = if key.is_reloaded() { "applies" } else { "restart" };
        let help = key.help().replace('|', "\\|");
        let kind = kind.replace('|', " or ");
        let _ = writeln!(out, "| `{}` | {kind} | {default} | {reload} | {help} |", key.name);
    }
    out
}

/// Returns an example value: the default, or otherwise one that shows the format.
pub(super) fn example_value(key: &Key) -> String {
    let text = match key.default() {
        Some(default) => default,
        None => match key.value_name() {
            _ if key.name == FOLDER => "/srv/media".to_owned(),
            "ADDRESS:PORT" => "0.0.0.0:8443".to_owned(),
            "RATE" => "100M".to_owned(),
            "URL" => "https://example.org/allow".to_owned(),
            "ORIGIN" => "https://example.org".to_owned(),
            "N" => "4".to_owned(),
            _ if key.takes_file() => format!("/etc/pagewire/{}", key.name),
            _ if key.takes_folder() => format!("/var/lib/pagewire/{}", key.name),
            _ => key.choices().into_iter().next().unwrap_or_else(|| key.value_name().to_owned()),
        },
    };
    match key.kind {
        KeyKind::Switch | KeyKind::Number => text,
        KeyKind::Text => quoted(&text),
        KeyKind::Texts => format!("[{}]", quoted(&text)),
    }
}

/// Wraps a text into lines.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one");
        if !last.is_empty() && last.len() + 1 + word.len() > columns {
            lines.push(word.to_owned());
            continue;
        }
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(word);
    }
    lines
}

const COLUMNS: usize = 100;

const HEAD: &str = "\
# Configuration of pagewire serve. Every flag of the command line is a key here, and the other way
# round; what stands here in comments is the default, or an example where there is no default.
#
#   pagewire config check FILE    faults of a file with their lines, and what this host lacks
#   pagewire config show          what is in force, and where it is from
#   systemctl reload pagewire     (or SIGHUP) reads this file again; sessions play on
#
# A relative path is relative to the folder of this file. The environment wins over this file
# (PAGEWIRE_BURST=10 is burst = 10), and the command line over both.
";

const CHANNELS: &str = "
## Channels: files one after the other, for everybody at once (docs/channels.md)

# [channel.news]
# title = \"News\"
# playlist = [\"intro.ts\", \"archive/\"]   # below the served folder
# filler = \"filler.ts\"
# send = [\"rtp://239.1.1.7:5004\"]

## Access: who may list, play and download what (docs/access.md)

# [groups]
# family = [\"anna\", \"ben\"]
#
# [[access]]
# channel = \"news\"   # or a path, such as \"films\"
# verbs = [\"list\", \"play\"]
# allow = [\"anyone\"]
";
