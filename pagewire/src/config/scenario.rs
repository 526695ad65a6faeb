// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of `pagewire load --scenario FILE` as a checked scenario.
//!
//! The client checks values and names settings; this file records the position of each in the text.
//!
//! Does not check values.

use std::borrow::Cow;
use std::ops::Range;

use client::load::{GroupDraft, InvalidScenario, Scenario, ScenarioDraft, ScenarioKey};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::faults::Faults;
use super::reader::{Expected, Reader};

/// Place of each setting: the setting, the index of its group, the bytes of its value.
type Places = Vec<(ScenarioKey, Option<usize>, Range<usize>)>;

/// Parses the text of a scenario file; `shown` is the file's name in messages.
///
/// # Errors
/// Every fault of the file, one text each, in order of lines.
pub(super) fn parse(shown: &str, text: &str) -> Result<Scenario, Vec<String>> {
    let mut faults = Faults::new(shown, text);
    let table = super::grammar::parse(text, &mut faults);
    if !faults.is_empty() {
        return Err(faults.into_texts());
    }
    let mut reader = Reader { text, faults: &mut faults };
    let mut file = ScenarioFile { reader: &mut reader, places: Vec::new() };
    let draft = file.draft(table.get_ref());
    let places = file.places;
    // The rules apply only to a file that was read without faults.
    if !faults.is_empty() {
        return Err(faults.into_texts());
    }
    let names: Vec<_> = draft.groups.iter().map(|group| group.name.clone()).collect();
    draft.check().map_err(|invalid| {
        invalid.iter().for_each(|invalid| report(&mut faults, invalid, &places, &names));
        faults.into_texts()
    })
}

/// Adds a fault at the place of its setting; where it is missing, at its group.
fn report(
    faults: &mut Faults<'_>,
    invalid: &InvalidScenario,
    places: &Places,
    names: &[Option<String>],
) {
    let of = |key| places.iter().find(|(is, group, _)| (*is, *group) == (key, invalid.group));
    let place = of(invalid.key).or_else(|| of(ScenarioKey::Group));
    let group = match invalid.group {
        Some(group) => format!("{}: ", label(group, names[group].as_deref())),
        None => String::new(),
    };
    faults.add(place.map(|(.., place)| place.clone()), format!("{group}{invalid}"));
}

/// Returns the label of a group in messages: its name, or otherwise its number.
fn label(group: usize, name: Option<&str>) -> String {
    let name: Option<String> = name.map(|name| name.chars().take(NAME_CHARS_SHOWN).collect());
    format!("group {}", name.unwrap_or_else(|| (group + 1).to_string()))
}

struct ScenarioFile<'r, 'a, 'f> {
    reader: &'r mut Reader<'a, 'f>,
    places: Places,
}

impl ScenarioFile<'_, '_, '_> {
    fn draft(&mut self, table: &DeTable<'_>) -> ScenarioDraft {
        let mut draft = ScenarioDraft::default();
        for (key, value) in table {
            let known = ScenarioKey::OF_FILE;
            let Some(setting) = self.setting("", key, known) else { continue };
            self.places.push((setting, None, value.span()));
            match setting {
                ScenarioKey::Seconds => draft.seconds = self.reader.decimal("seconds", value),
                ScenarioKey::Seed => draft.seed = self.reader.number("seed", value),
                ScenarioKey::Group => draft.groups = self.groups(value),
                other => unreachable!("{other:?} is no key of a file"),
            }
        }
        draft
    }

    fn groups(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<GroupDraft> {
        let Some(items) = self.reader.array("group", value, Expected::Groups) else {
            return Vec::new();
        };
        let mut groups = Vec::with_capacity(items.len());
        for (index, value) in items.iter().enumerate() {
            self.places.push((ScenarioKey::Group, Some(index), value.span()));
            let table = self.reader.table("group", value, Expected::Groups);
            groups.push(table.map_or_else(GroupDraft::default, |table| self.group(index, table)));
        }
        groups
    }

    fn group(&mut self, index: usize, table: &DeTable<'_>) -> GroupDraft {
        let mut group = GroupDraft::default();
        let name = table.get("name").and_then(|name| name.get_ref().as_str());
        let label = label(index, name);
        for (key, value) in table {
            let Some(setting) = self.setting(&label, key, ScenarioKey::OF_GROUP) else { continue };
            self.places.push((setting, Some(index), value.span()));
            let named = format!("{label}: {}", setting.key());
            let (named, reader) = (&*named, &mut *self.reader);
            match setting {
                ScenarioKey::Name => group.name = reader.text(named, value),
                ScenarioKey::Share => group.share = reader.number(named, value),
                ScenarioKey::Transport => group.transport = reader.text(named, value),
                ScenarioKey::Behaviour => group.behaviour = reader.text(named, value),
                ScenarioKey::Every => group.every_s = reader.time_range(named, value),
                ScenarioKey::Pause => group.pause_s = reader.time_range(named, value),
                ScenarioKey::Stay => group.stay_s = reader.time_range(named, value),
                ScenarioKey::Away => group.away_s = reader.time_range(named, value),
                ScenarioKey::Rate => group.bytes_per_second = reader.number(named, value),
                other => unreachable!("{other:?} is no key of a group"),
            }
        }
        group
    }

    /// Returns the setting of a key; an unknown key is a fault.
    fn setting(
        &mut self,
        table: &str,
        key: &Spanned<Cow<'_, str>>,
        known: &[ScenarioKey],
    ) -> Option<ScenarioKey> {
        let found = known.iter().find(|setting| setting.key() == key.get_ref()).copied();
        if found.is_none() {
            let keys: Vec<&str> = known.iter().map(|setting| setting.key()).collect();
            self.reader.unknown(table, key.get_ref(), key.span(), &keys);
        }
        found
    }
}

const NAME_CHARS_SHOWN: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use client::StreamTransport;
    use client::load::Behaviour;

    use super::*;

    const EVENING: &str = r#"# All of it.
seconds = 2.5
seed = 7
[[group]]
name = "watch"
share = 70
transport = "tcp"
behaviour = "steady"
[[group]]
behaviour = "seek"
every_s = [2, 8.5]
[[group]]
behaviour = "pause"
every_s = 3
pause_s = [1, 5]
[[group]]
behaviour = "slow"
transport = "http"
bytes_per_second = 100_000
"#;

    #[track_caller]
    fn faults(text: &str) -> Vec<String> {
        parse("evening.toml", text).expect_err("a fault")
    }

    #[test]
    fn all_settings_of_a_scenario_arrive() {
        let scenario = parse("evening.toml", EVENING).unwrap();
        assert_eq!((scenario.seed, scenario.length), (7, Some(Duration::from_millis(2500))));
        let [watch, seek, pause, slow] = &scenario.groups[..] else { panic!("{scenario:?}") };
        assert_eq!((&*watch.name, watch.share), ("watch", 70));
        assert_eq!(watch.transport, Some(StreamTransport::Tcp));
        assert_eq!((&*seek.name, seek.share, seek.transport), ("seek", 1, None));
        let Behaviour::Seek { every } = seek.behaviour else { panic!("{seek:?}") };
        assert_eq!((every.least.as_millis(), every.most.as_millis()), (2000, 8500));
        let Behaviour::Pause { every, .. } = pause.behaviour else { panic!("{pause:?}") };
        assert_eq!(every.least, every.most);
        assert_eq!(slow.behaviour, Behaviour::Slow { bytes_per_second: 100_000 });
    }

    #[test]
    fn faults_of_a_scenario_have_their_line_and_cure() {
        let cases = [
            ("share = 70", "share = 0", "6: group watch: share: 0; write 1 to 1000000"),
            ("share = 70", "share = 1.5", "6: group watch: share = 1.5: a float; write a whole"),
            ("seconds = 2.5", "seconds = -1", "2: seconds: -1; write 0.1 to 86400 seconds"),
            ("seed = 7", "sede = 7", "3: sede: no such setting; write seed"),
            ("every_s = 3", "every = 3", "14: group 3: every: no such setting; write every_s"),
            ("every_s = 3", "", "12: group 3: every_s: missing; write every_s = [2, 8], say"),
            ("every_s = 3", "every_s = [1, 2, 3]", "14: group 3: every_s = [1, 2, 3]: an array; "),
            ("every_s = 3", "every_s = [1, \"a\"]", "14: group 3: every_s = \"a\": a string; "),
            ("every_s = 3", "every_s = 0.0", "14: group 3: every_s: 0; write 0.1 to 86400"),
            ("\"http\"", "\"udp\"", "18: group 4: transport: udp: nothing holds a sender back"),
            ("\"slow\"", "\"steady\"", "19: group 4: bytes_per_second: no setting of behaviour"),
            ("[[group]]\nname", "[group]\nname", "9: "),
            ("seed = 7", "seed = ", "3: "),
        ];
        for (from, to, expected) in cases {
            let found = faults(&EVENING.replacen(from, to, 1));
            let expected = format!("evening.toml:{expected}");
            assert!(found[0].starts_with(&expected), "{to}: {found:?}");
        }
        assert!(faults("")[0].starts_with("evening.toml:1: group: no group; write one table"));
        let all = EVENING.replace("share = 70", "share = 0").replace("every_s = 3", "every_s = -1");
        assert_eq!(faults(&all).len(), 2);
    }
}
