// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of the run, `key=value`: one list of the known keys with their limits, and the values.
//!
//! A word `MODULE.PARAMETER=VALUE` is a parameter of a kernel module; it is passed on unchecked.
//!
//! Does not contain defaults: each workload and job has its own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::Error;

/// Settings of the form `key=value`.
#[derive(Debug, Default)]
pub(crate) struct GuestSettings {
    values: BTreeMap<&'static str, String>,
    parameters: Vec<(String, String)>,
}

/// A known setting.
pub(crate) struct SettingKey {
    name: &'static str,
    kind: SettingKind,
}

enum SettingKind {
    /// Least and greatest value; the suffixes `K`, `M` and `G` are powers of 1024.
    Number(u64, u64),
    Text,
}

/// All settings, beside `MODULE.PARAMETER=VALUE`.
static KEYS: &[SettingKey] = &[
    // Number of times each workload is measured.
    SettingKey { name: "rounds", kind: SettingKind::Number(1, 1000) },
    // Bytes that a workload moves in one round; rounded up to its buffers.
    SettingKey { name: "bytes", kind: SettingKind::Number(1, 1 << 40) },
    // Size of the file that the tmpfs workloads read and write.
    SettingKey { name: "file_bytes", kind: SettingKind::Number(1, 512 << 20) },
    // Calls that a workload makes in one round.
    SettingKey { name: "calls", kind: SettingKind::Number(1, 1 << 32) },
    // Percentage of each workload's default amount, where `bytes` and `calls` suit only some.
    SettingKey { name: "percent", kind: SettingKind::Number(1, 10_000) },
    // Settings of `paths` and `verify`: members by transport and name, packets that each sends, and
    // segments that the kernel cuts a call into.
    SettingKey { name: "members", kind: SettingKind::Text },
    SettingKey { name: "packets", kind: SettingKind::Number(1, 1 << 32) },
    SettingKey { name: "segments", kind: SettingKind::Number(1, 64) },
    // Modules of the root folder to load, in this order; by default all of them.
    SettingKey { name: "modules", kind: SettingKind::Text },
    // Folder of a compiled UnixBench, and seconds that each of its programs runs.
    SettingKey { name: "unixbench", kind: SettingKind::Text },
    SettingKey { name: "seconds", kind: SettingKind::Number(1, 600) },
];

impl GuestSettings {
    /// Checks and stores a word `name=value`; an error has the value to write instead.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        if let Some((module, parameter)) = name.split_once('.') {
            let setting = format!("{parameter}={value}");
            self.parameters.push((module.replace('-', "_"), setting));
            return Ok(());
        }
        let refused = |need: String| {
            let (key, value) = (name.to_owned(), value.to_owned());
            Err(Error::Setting { key, value, need })
        };
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let known: Vec<_> = KEYS.iter().map(|key| key.name).collect();
            let known = known.join("=, ");
            return refused(format!("no such setting; write one of run=, {known}="));
        };
        if let SettingKind::Number(at_least, at_most) = key.kind
            && !number(value).is_some_and(|found| (at_least..=at_most).contains(&found))
        {
            return refused(format!("write a number from {at_least} to {at_most}"));
        }
        if self.values.insert(key.name, value.to_owned()).is_some() {
            return refused("given twice; write it once".to_owned());
        }
        Ok(())
    }

    /// Returns the value of a number's key; none when it was not given.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.text(key).and_then(number)
    }

    /// Returns the value of a key as given.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        debug_assert!(KEYS.iter().any(|known| known.name == key), "no setting {key}");
        self.values.get(key).map(String::as_str)
    }

    /// Returns the parameters of a module in the form of insmod.
    pub(crate) fn module_parameters(&self, module: &str) -> String {
        let own = self.parameters.iter().filter(|(of, _)| of == module);
        own.map(|(_, setting)| setting.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Selects the modules to load from the found ones.
    pub(crate) fn wanted_modules(&self, found: Vec<PathBuf>) -> Result<Vec<PathBuf>, Error> {
        let Some(wanted) = self.text("modules") else { return Ok(found) };
        let names = wanted.split(',').filter(|name| !name.is_empty());
        names
            .map(|name| {
                let is_it = |path: &&PathBuf| path.file_stem().is_some_and(|stem| stem == name);
                found.iter().find(is_it).cloned().ok_or_else(|| Error::Unavailable {
                    what: format!("module {name}"),
                    found: "no such file in /lib/modules".into(),
                    cure: "give guest/root.sh MODULE.ko=/lib/modules/MODULE.ko",
                })
            })
            .collect()
    }
}

fn number(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    // Rejects a sign, which `parse` would accept.
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str) -> Result<GuestSettings, Error> {
        let mut settings = GuestSettings::default();
        for word in line.split_whitespace() {
            let (key, value) = word.split_once('=').expect("key=value");
            settings.set(key, value)?;
        }
        Ok(settings)
    }

    #[test]
    fn a_number_may_have_a_binary_suffix() {
        let settings = settings("rounds=3 bytes=64K").expect("settings");
        assert_eq!(settings.number("rounds"), Some(3));
        assert_eq!(settings.number("bytes"), Some(65536));
        assert_eq!(settings.number("calls"), None);
    }

    #[test]
    fn a_wrong_setting_is_refused_with_the_value_to_write() {
        for (line, begins, names) in [
            ("round=2", "setting round=2: no such setting; write one of run=, ", "rounds="),
            ("rounds=0", "setting rounds=0: write a number from 1 to ", "1000"),
            ("rounds=+1", "setting rounds=+1: write a number from 1 to ", "1000"),
            ("bytes=1T", "setting bytes=1T: write a number from 1 to ", "1099511627776"),
            ("bytes=99999999999G", "setting bytes=99999999999G: write a number", "from 1"),
            ("bytes=", "setting bytes=: write a number from 1 to ", "1099511627776"),
            ("rounds=1 rounds=2", "setting rounds=2: given twice", "write it once"),
        ] {
            let text = settings(line).expect_err(line).to_string();
            assert!(text.starts_with(begins), "{line}: {text}");
            assert!(text.contains(names), "{line}: {text}");
        }
    }

    #[test]
    fn parameters_go_to_their_module() {
        let settings =
            settings("pagewire_rtp.sessions=4 pagewire-rtp.debug=1 other.x=2").expect("settings");
        assert_eq!(settings.module_parameters("pagewire_rtp"), "sessions=4 debug=1");
        assert_eq!(settings.module_parameters("none"), "");
    }

    #[test]
    fn modules_are_chosen_by_name() {
        let found = || vec![PathBuf::from("/lib/modules/a.ko"), PathBuf::from("/lib/modules/b.ko")];
        let of = |line: &str| settings(line).expect("settings").wanted_modules(found());
        assert_eq!(of("").expect("all"), found());
        assert_eq!(of("modules=b").expect("one"), found()[1..]);
        assert!(of("modules=").expect("none").is_empty());
        let error = of("modules=c").expect_err("there is no c").to_string();
        assert!(error.starts_with("module c: no such file in /lib/modules; "), "{error}");
    }
}
