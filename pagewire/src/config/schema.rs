// SPDX-License-Identifier: MIT OR Apache-2.0
//! A JSON Schema of the configuration file, made from the definitions of the flags and of channels,
//! for editors (Even Better TOML, taplo).
//!
//! Sources: JSON Schema draft 2020-12, Core and Validation. Does not contain the rules between
//! settings, which `config check` judges.

use serde_json::{Map, Value, json};
use serve::access::rules::{Allow, Verb};
use serve::channel::ChannelSetting;

use super::keys::{self, Key, KeyKind};

/// Returns the schema.
pub(super) fn schema() -> String {
    let mut properties = Map::new();
    for key in keys::all() {
        properties.insert(key.name.clone(), of_key(key));
    }
    for table in super::TABLES {
        properties.insert((*table).to_owned(), of_table(table));
    }
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of pagewire serve",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    format!("{schema:#}\n")
}

fn of_key(key: &Key) -> Value {
    let mut of = Map::new();
    let reload = match key.is_reloaded() {
        true => "A reload applies it.",
        false => "A change needs a restart.",
    };
    of.insert("description".to_owned(), json!(format!("{} {reload}", key.help())));
    let text = || {
        let choices = key.choices();
        match choices.is_empty() {
            true => json!({ "type": "string" }),
            false => json!({ "type": "string", "enum": choices }),
        }
    };
    match key.kind {
        KeyKind::Switch => of.insert("type".to_owned(), json!("boolean")),
        KeyKind::Number => {
            let (least, most) = key.range().unwrap_or((0, i64::MAX as u64));
            of.insert("minimum".to_owned(), json!(least));
            of.insert("maximum".to_owned(), json!(most));
            of.insert("type".to_owned(), json!("integer"))
        }
        KeyKind::Text => {
            let mut text = text();
            // A size or a rate may be a number; a name or an address may not.
            if key.check("1000000".as_ref()).is_ok() && !key.is_path() && key.choices().is_empty() {
                text = json!({ "type": ["string", "number"] });
            }
            of.extend(text.as_object().cloned().unwrap_or_default());
            None
        }
        KeyKind::Texts => {
            let text = text();
            let list = json!({ "type": "array", "items": text });
            of.insert("oneOf".to_owned(), json!([text, list]))
        }
    };
    if let Some(default) = key.default() {
        let default = match key.kind {
            KeyKind::Switch => json!(default == "true"),
            KeyKind::Number => json!(default.parse::<u64>().unwrap_or_default()),
            KeyKind::Text => json!(default),
            KeyKind::Texts => json!([default]),
        };
        of.insert("default".to_owned(), default);
    }
    Value::Object(of)
}

/// Returns the schema of the tables of a name.
fn of_table(name: &str) -> Value {
    match name {
        super::CHANNEL => channels(),
        super::access::ACCESS => rules(),
        super::access::GROUPS => groups(),
        _ => unreachable!("{name} is in the list of tables and has no schema"),
    }
}

/// Returns the schema of tables `[[access]]`.
fn rules() -> Value {
    let text = json!({ "type": "string" });
    let texts = |items: Value| json!({ "oneOf": [items, { "type": "array", "items": items }] });
    let verbs = Verb::ALL.map(Verb::name);
    let credentials = format!("^({})$", Allow::PATTERN);
    json!({
        "description": "Rules of access: who may do what below a path (docs/access.md).",
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "path": text,
                "channel": text,
                "verbs": texts(json!({ "type": "string", "enum": verbs })),
                "allow": texts(json!({ "type": "string", "pattern": credentials })),
            },
            "required": ["verbs", "allow"],
            "additionalProperties": false,
        },
    })
}

/// Returns the schema of table `[groups]`.
fn groups() -> Value {
    json!({
        "description": "Groups of users, for group:NAME in rules of access.",
        "type": "object",
        "additionalProperties": { "type": "array", "items": { "type": "string" } },
    })
}

/// Returns the schema of tables `[channel.NAME]`.
fn channels() -> Value {
    let settings = |list: &[ChannelSetting]| {
        let of = |setting: &ChannelSetting| (setting.key().to_owned(), of_channel(*setting));
        Value::Object(list.iter().map(of).collect())
    };
    let channel = json!({
        "type": "object",
        "properties": settings(ChannelSetting::OF_CHANNEL),
        "additionalProperties": false,
    });
    json!({
        "description": "Channels by name: files that play one after the other (docs/channels.md).",
        "type": "object",
        "additionalProperties": channel,
    })
}

/// Returns the schema of a setting of a channel or of a schedule item.
fn of_channel(setting: ChannelSetting) -> Value {
    let text = json!({ "type": "string" });
    let list = json!({ "type": "array", "items": text });
    let texts = json!({ "oneOf": [text, list] });
    let number =
        |least: u64, most: u64| json!({ "type": "integer", "minimum": least, "maximum": most });
    let choice = |names: &[&str]| json!({ "type": "string", "enum": names });
    let mut of = match setting {
        ChannelSetting::Playlist
        | ChannelSetting::Send
        | ChannelSetting::Source
        | ChannelSetting::AtPlay => texts,
        ChannelSetting::AtDays => {
            let day = choice(&["mon", "tue", "wed", "thu", "fri", "sat", "sun"]);
            json!({ "oneOf": [day, { "type": "array", "items": day }] })
        }
        ChannelSetting::Order => choice(&["loop", "shuffle", "once"]),
        ChannelSetting::Role => choice(&["primary", "standby"]),
        ChannelSetting::Program => number(1, 65_535),
        ChannelSetting::Ttl => number(1, 255),
        ChannelSetting::Dscp => number(0, 63),
        ChannelSetting::ConstantRate | ChannelSetting::TimeShift => {
            json!({ "type": "integer", "minimum": 0 })
        }
        ChannelSetting::Announce | ChannelSetting::Rtsp => json!({ "type": "boolean" }),
        ChannelSetting::At => {
            let settings = ChannelSetting::OF_SCHEDULE.iter();
            let settings = settings.map(|one| (one.key().to_owned(), of_channel(*one)));
            let slot = json!({
                "type": "object",
                "properties": Value::Object(settings.collect()),
                "additionalProperties": false,
            });
            json!({ "type": "array", "items": slot })
        }
        _ => text,
    };
    if let (Some(of), Some(words)) = (of.as_object_mut(), words(setting)) {
        of.insert("description".to_owned(), json!(words));
    }
    of
}

/// Returns the description of a setting: its row in the document of channels.
fn words(setting: ChannelSetting) -> Option<String> {
    let begin = format!("| `{}` |", setting.key());
    let row = CHANNELS.lines().find_map(|line| line.strip_prefix(&begin))?;
    Some(row.trim_end_matches('|').rsplit(" | ").next()?.trim().to_owned())
}

const CHANNELS: &str = include_str!("../../../docs/channels.md");
