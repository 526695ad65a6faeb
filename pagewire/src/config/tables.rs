// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes tables of a parsed file as TOML text again, for `config show`.
//!
//! Comments and the order of keys within a table are not kept; values are.
//!
//! Sources: TOML 1.0, "Keys", "String", "Inline Table". Does not interpret settings. Alternative:
//! the `display` feature of the crate `toml`, which writes its own values but none borrowed from a
//! text.

use std::fmt::Write;

use toml::de::{DeTable, DeValue};

/// Writes the tables with these names.
pub(super) fn written(root: &DeTable<'_>, names: &[&str]) -> String {
    let mut out = String::new();
    for (key, value) in in_order(root).filter(|(key, _)| names.contains(key)) {
        write_table(&mut out, &bare(key), value);
    }
    out
}

/// Writes the tables below a path; other values are written within their table.
fn write_table(out: &mut String, path: &str, value: &DeValue<'_>) {
    match value {
        DeValue::Table(table) => {
            let mut own = String::new();
            for (key, value) in in_order(table).filter(|(_, value)| !is_table(value)) {
                let _ = writeln!(own, "{} = {}", bare(key), inline(value));
            }
            if !own.is_empty() || table.is_empty() {
                let _ = write!(out, "\n[{path}]\n{own}");
            }
            for (key, value) in in_order(table).filter(|(_, value)| is_table(value)) {
                write_table(out, &format!("{path}.{}", bare(key)), value);
            }
        }
        DeValue::Array(items) => {
            for item in items.iter() {
                let Some(table) = item.get_ref().as_table() else { continue };
                let _ = writeln!(out, "\n[[{path}]]");
                for (key, value) in in_order(table) {
                    let _ = writeln!(out, "{} = {}", bare(key), inline(value));
                }
            }
        }
        _ => {}
    }
}

/// True for a value with a header of its own: a table, or a list of tables.
fn is_table(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Table(_) => true,
        DeValue::Array(items) => {
            !items.is_empty() && items.iter().all(|item| item.get_ref().is_table())
        }
        _ => false,
    }
}

fn in_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> impl Iterator<Item = (&'t str, &'t DeValue<'i>)> + use<'t, 'i> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries.into_iter().map(|(key, value)| (key.get_ref().as_ref(), value.get_ref()))
}

/// Returns a value in one line.
fn inline(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => {
            let digits = number.as_str();
            let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
            let radix = match number.radix() {
                16 => "0x",
                8 => "0o",
                2 => "0b",
                _ => "",
            };
            format!("{sign}{radix}{digits}")
        }
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(switch) => switch.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| inline(item.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(table) => {
            let entries = in_order(table);
            let entries = entries.map(|(key, value)| format!("{} = {}", bare(key), inline(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Returns a text as a basic string.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(out, "\\U{:08X}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// Returns a key, in quotes where it needs them.
fn bare(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match !key.is_empty() && key.bytes().all(is_bare) {
        true => key.to_owned(),
        false => quoted(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_read_back_are_equal() {
        let text = "a = 1\n[channel.\"n w\"]\ntitle = \"a\\\"\\u0007é\"\nttl = 0x10\nx = -0.5\n\
                    t = 2026-01-01T00:00:00Z\nl = [\"a\", { b = true }]\n[[channel.\"n w\".at]]\n\
                    time = 06:30:15\n[[channel.\"n w\".at]]\nplay = [\"b\"]\n[other]\nz = 1\n";
        let (parsed, faults) = DeTable::parse_recoverable(text);
        assert!(faults.is_empty(), "{faults:?}");
        let first = written(parsed.get_ref(), &["channel"]);
        assert!(!first.contains("other") && !first.contains("a = 1"), "{first}");
        let (again, faults) = DeTable::parse_recoverable(&first);
        assert!(faults.is_empty(), "{faults:?}: {first}");
        assert_eq!(written(again.get_ref(), &["channel"]), first);
        for part in ["[channel.\"n w\"]", "ttl = 0x10", "06:30:15", "x = -0.5", "{ b = true }"] {
            assert!(first.contains(part), "{part}: {first}");
        }
        assert_eq!(first.matches("[[channel.\"n w\".at]]").count(), 2);
    }
}
