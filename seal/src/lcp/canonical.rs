// SPDX-License-Identifier: MIT OR Apache-2.0
//! The canonical form of a licence: the bytes that are signed.
//!
//! Keys are sorted by code point (the order of their UTF-8 bytes). There is no white space. Only
//! characters that JSON requires to be escaped are escaped, with hexadecimal digits in upper case.
//! Control characters with a short escape get the short one: the specification leaves that open,
//! and the reference server, whose signatures must verify here, does so.
//!
//! Source: Readium LCP 1.0.4 §5.3. Does not remove the signature: signing and verifying do.

use std::fmt::Write;

use serde_json::{Number, Value};

/// Returns the canonical form of `value`.
pub(super) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(is) => text.push_str(if *is { "true" } else { "false" }),
        Value::Number(number) => write_number(text, number),
        Value::String(string) => write_string(text, string),
        Value::Array(elements) => {
            text.push('[');
            for (at, element) in elements.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_value(text, element);
            }
            text.push(']');
        }
        Value::Object(members) => {
            // Members are sorted here: the order of serde_json's maps depends on a feature that any
            // crate of the build may enable.
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (at, (name, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_string(text, name);
                text.push(':');
                write_value(text, value);
            }
            text.push('}');
        }
    }
}

fn write_number(text: &mut String, number: &Number) {
    let fraction = number.as_f64().filter(|_| !number.is_i64() && !number.is_u64());
    let wrote = match fraction {
        None => write!(text, "{number}"),
        Some(value) => write!(text, "{value:E}"),
    };
    wrote.expect("a String takes all");
}

fn write_string(text: &mut String, string: &str) {
    text.push('"');
    for letter in string.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\0'..='\x1f' => {
                write!(text, "\\u{:04X}", letter as u32).expect("a String takes all");
            }
            letter => text.push(letter),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LCP 1.0.4 §5.3.1 and §5.4.1: the licence of the example, and the hash of its canonical form.
    /// The example does not sort the members of its link, against rule 2 of §5.3 and the reference
    /// server; the test restores that order before it compares the hash.
    #[test]
    fn the_example_of_the_specification_has_the_hash_it_gives() {
        let licence = include_str!("example.lcpl");
        let licence: Value = serde_json::from_str(licence).unwrap();
        let sorted = r#"{"href":"https://www.imaginaryebookretailer.com/lcp/hint","rel":"hint","#;
        let printed = r#"{"rel":"hint","href":"https://www.imaginaryebookretailer.com/lcp/hint","#;
        let canonical = canonical(&licence);
        assert!(canonical.contains(sorted), "{canonical}");
        let hash = openssl::sha::sha256(canonical.replace(sorted, printed).as_bytes());
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "23c68442c7214ba294ddd1a2902756e9fe575116a88f36e55baf94590a90c2ad");
    }

    #[test]
    fn members_are_sorted_by_code_point_at_every_depth() {
        let value: Value =
            serde_json::from_str(r#"{"b": [3, {"z": 1, "a": 2}], "\uFF5E": 1, "😀": 2, "B": 3}"#)
                .unwrap();
        assert_eq!(canonical(&value), r#"{"B":3,"b":[3,{"a":2,"z":1}],"～":1,"😀":2}"#);
    }

    #[test]
    fn only_what_must_be_is_escaped_and_numbers_have_one_form() {
        let value: Value = serde_json::from_str(
            r#"["a\/\u0026\"\\\u001f\n", 0, -1, 10, 1.5, 25.0e1, true, null]"#,
        )
        .unwrap();
        let expected = r#"["a/&\"\\\u001F\n",0,-1,10,1.5E0,2.5E2,true,null]"#;
        assert_eq!(canonical(&value), expected);
    }
}
