// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[access]]` tables as checked rules, and `[groups]`; the line of each fault.
//!
//! Does not check values (the crate `access` does), nor that credentials exist.

use std::ops::Range;

use serve::access::Groups;
use serve::access::rules::{InvalidRule, Rule, RuleDraft, RuleSetting};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::reader::{Expected, Reader};

/// Rules and groups of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileAccess {
    pub(crate) rules: Vec<Rule>,
    pub(crate) groups: Groups,
}

/// Reads all `[[access]]` tables; rules with faults are left out.
pub(super) fn read(reader: &mut Reader<'_, '_>, value: &Spanned<DeValue<'_>>) -> Vec<Rule> {
    let Some(tables) = reader.array(ACCESS, value, Expected::Rules) else { return Vec::new() };
    let mut rules = Vec::new();
    for value in tables {
        let Some(table) = reader.table(ACCESS, value, Expected::Rules) else { continue };
        rules.extend(rule(reader, table, value.span()));
    }
    rules
}

/// Reads one table.
fn rule(reader: &mut Reader<'_, '_>, table: &DeTable<'_>, place: Range<usize>) -> Option<Rule> {
    let mut draft = RuleDraft::default();
    let mut places = Vec::new();
    let mut is_whole = true;
    for (key, value) in table {
        let known = RuleSetting::ALL.into_iter().find(|known| known.key() == key.get_ref());
        let Some(setting) = known else {
            let keys = RuleSetting::ALL.map(RuleSetting::key);
            reader.unknown(ACCESS, key.get_ref(), key.span(), &keys);
            is_whole = false;
            continue;
        };
        let named = format!("{ACCESS}: {}", setting.key());
        places.push((setting, None, value.span()));
        match setting {
            RuleSetting::Path => draft.path = reader.text(&named, value),
            RuleSetting::Channel => draft.channel = reader.text(&named, value),
            RuleSetting::Verbs | RuleSetting::Allow => {
                let texts = reader.texts(&named, value);
                let mut list = Vec::with_capacity(texts.len());
                for (item, (text, place)) in texts.into_iter().enumerate() {
                    places.push((setting, Some(item), place));
                    list.push(text);
                }
                // A list of another type has been reported already, so it does not also count as
                // missing.
                is_whole &= !list.is_empty() || is_empty_list(value);
                match setting {
                    RuleSetting::Verbs => draft.verbs = list,
                    _ => draft.allow = list,
                }
            }
        }
        is_whole &= setting != RuleSetting::Path || draft.path.is_some();
        is_whole &= setting != RuleSetting::Channel || draft.channel.is_some();
    }
    match draft.check() {
        Ok(rule) => is_whole.then_some(rule),
        Err(faults) => {
            // A setting that seems missing may be one that could not be read.
            let own = faults.iter().filter(|fault| is_whole || !fault.found.is_empty());
            own.for_each(|fault| report(reader, fault, (&places, &place)));
            None
        }
    }
}

/// Place of a setting, or of an item of its list.
type Place = (RuleSetting, Option<usize>, Range<usize>);

/// Adds a fault at the place of its setting; where it is missing, at the table.
fn report(
    reader: &mut Reader<'_, '_>,
    fault: &InvalidRule,
    (places, table): (&[Place], &Range<usize>),
) {
    let key = (fault.setting, fault.item);
    let exact = places.iter().find(|(setting, item, _)| (*setting, *item) == key);
    let place = exact.map_or(table, |(.., place)| place);
    reader.faults.add(Some(place.clone()), fault.to_string());
}

fn is_empty_list(value: &Spanned<DeValue<'_>>) -> bool {
    value.get_ref().as_array().is_some_and(|items| items.is_empty())
}

/// Reads `[groups]`: the users of each group by its name.
pub(super) fn read_groups(reader: &mut Reader<'_, '_>, value: &Spanned<DeValue<'_>>) -> Groups {
    let mut groups = Groups::default();
    let Some(table) = reader.table(GROUPS, value, Expected::UserGroups) else { return groups };
    for (name, users) in table {
        let named = format!("{GROUPS}: {}", name.get_ref());
        let users = reader.texts(&named, users).into_iter().map(|(user, _)| user);
        groups.add(name.get_ref(), users);
    }
    groups
}

pub(super) const ACCESS: &str = "access";
pub(super) const GROUPS: &str = "groups";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::FileConfig;

    fn parse(name: &str, text: &str) -> Result<FileConfig, Vec<String>> {
        super::super::parse(name, text, Path::new("/"))
    }

    fn faults(text: &str) -> Vec<String> {
        parse("a.toml", text).unwrap_err()
    }

    #[test]
    fn rules_and_groups_are_read() {
        let text = "[groups]\nfamily = [\"anna\", \"ben\"]\n\n[[access]]\npath = \"films\"\n\
            verbs = [\"list\", \"play\"]\nallow = [\"group:family\", \"address:10.0.0.0/8\"]\n\n\
            [[access]]\nchannel = \"news\"\nverbs = \"play\"\nallow = \"anyone\"\n";
        let config = parse("a.toml", text).unwrap();
        assert_eq!(config.access.rules.len(), 2);
    }

    #[test]
    fn faults_have_line_and_cure() {
        let text = "[[access]]\npath = \"../films\"\nverbs = [\"watch\"]\nallow = [\"user\"]\n\
            [[access]]\npth = \"films\"\nverbs = [\"play\"]\nallow = [\"anyone\"]\n\
            [[access]]\npath = 1\nverbs = []\n";
        let found = faults(text);
        for (start, part) in [
            ("a.toml:2: ", "without .."),
            ("a.toml:3: ", "write list, play"),
            ("a.toml:4: ", "user:NAME"),
            ("a.toml:6: ", "write path"),
            ("a.toml:10: ", "text in quotes"),
        ] {
            let is_it = |text: &String| text.starts_with(start) && text.contains(part);
            assert!(found.iter().any(is_it), "{start}{part}: {found:#?}");
        }
        let missing = faults("[[access]]\npath = \"a\"\nverbs = []\nallow = [\"anyone\"]\n");
        assert!(missing[0].contains("verbs is missing"), "{missing:?}");
        let table = faults("[access]\npath = \"a\"\n");
        assert!(table[0].contains("write tables [[access]]"), "{table:?}");
    }
}
