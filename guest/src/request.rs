// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the command line: jobs in their order, and settings for all of them.
//!
//! The words are those after `--` of a kernel's command line. All words are checked before the
//! first measurement. The kernel adds words of its own (`console=`, `root=`), which are skipped;
//! any other unknown word ends the run.
//!
//! A quoted part with spaces is one word to the kernel; `run=` takes both forms:
//! `run=/bin/check 3 fast then udp` and `"run=/bin/check 3 fast" udp`.
//!
//! Source: the kernel's `Documentation/admin-guide/kernel-parameters.rst` (words after `--`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::Error;
use crate::jobs::JOBS;
use crate::workloads::{self, WorkloadSpec};

/// Parsed command line.
#[derive(Debug)]
pub(crate) struct CommandLine {
    /// Tasks, in this order.
    pub(crate) tasks: Vec<Task>,
    /// Settings of all tasks.
    pub(crate) settings: GuestSettings,
}

/// One task.
#[derive(Debug)]
pub(crate) enum Task {
    /// Successive workloads; each round runs all of them, so that they interleave.
    Workloads(Vec<&'static WorkloadSpec>),
    /// A member of the list of other jobs.
    Job(&'static crate::jobs::GuestJob),
    /// A program and its arguments.
    Program(Vec<String>),
}

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

/// Words that the kernel adds to the arguments of the first process.
const WORDS_OF_KERNEL: &[&str] = &["console=", "root="];
/// Word that ends the arguments of `run=`.
const THEN: &str = "then";

impl CommandLine {
    /// Parses the words; an error names the word that is not understood.
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<CommandLine, Error> {
        let mut request = CommandLine { tasks: Vec::new(), settings: GuestSettings::default() };
        let of_kernel = |word: &String| WORDS_OF_KERNEL.iter().any(|own| word.starts_with(own));
        let mut words = words.into_iter().filter(|word| !of_kernel(word));
        while let Some(word) = words.next() {
            if let Some(program) = word.strip_prefix("run=") {
                let inside = program.split_whitespace().map(str::to_owned);
                let after = words.by_ref().take_while(|word| word != THEN);
                request.tasks.push(program_of(inside.chain(after).collect())?);
            } else if let Some((key, value)) = word.split_once('=') {
                request.settings.set(key, value)?;
            } else {
                request.add(&word)?;
            }
        }
        if request.settings.text("unixbench").is_some() {
            request.tasks.push(Task::Job(&crate::unixbench::JOB));
        }
        Ok(request)
    }

    fn add(&mut self, word: &str) -> Result<(), Error> {
        if let Some(job) = JOBS.iter().find(|job| job.name == word) {
            self.tasks.push(Task::Job(job));
            return Ok(());
        }
        let named = workloads::named(word);
        if named.is_empty() {
            return Err(Error::Word { word: word.to_owned(), known: known_words() });
        }
        match self.tasks.last_mut() {
            Some(Task::Workloads(list)) => list.extend(named),
            _ => self.tasks.push(Task::Workloads(named)),
        }
        Ok(())
    }
}

fn program_of(words: Vec<String>) -> Result<Task, Error> {
    if words.is_empty() {
        let need = "write run=PROGRAM with its arguments behind it".to_owned();
        return Err(Error::Setting { key: "run".into(), value: String::new(), need });
    }
    Ok(Task::Program(words))
}

/// Lists every word that stands alone, without `=`.
fn known_words() -> String {
    let jobs = JOBS.iter().map(|job| job.name);
    jobs.chain(workloads::names()).collect::<Vec<_>>().join(", ")
}

impl GuestSettings {
    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
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

    fn parse(line: &str) -> Result<CommandLine, Error> {
        CommandLine::parse(line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned))
    }

    fn refusal(line: &str) -> String {
        parse(line).expect_err(line).to_string()
    }

    #[test]
    fn workloads_in_a_row_are_one_task_and_settings_stand_anywhere() {
        let request = parse("pipe_4k rounds=3 udp_1400 bytes=64K console=tty0").expect("a request");
        assert_eq!(request.settings.number("rounds"), Some(3));
        assert_eq!(request.settings.number("bytes"), Some(65536));
        assert_eq!(request.settings.number("calls"), None);
        let [Task::Workloads(list)] = &request.tasks[..] else { panic!("one task") };
        assert_eq!(list.iter().map(|spec| spec.name).collect::<Vec<_>>(), ["pipe_4k", "udp_1400"]);
    }

    #[test]
    fn a_program_takes_what_follows_up_to_then() {
        let request = parse("run=/bin/check a=1 -v then pipe_4k").expect("a request");
        let [Task::Program(words), Task::Workloads(_)] = &request.tasks[..] else {
            panic!("{:?}", request.tasks)
        };
        assert_eq!(words[..], ["/bin/check", "a=1", "-v"]);
        let quoted =
            CommandLine::parse(["run=/bin/check 3 4".to_owned(), "console=tty0".to_owned()]);
        let tasks = quoted.expect("a request").tasks;
        assert!(
            matches!(&tasks[..], [Task::Program(words)] if words[..] == ["/bin/check", "3", "4"])
        );
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (line, begins, names) in [
            ("pipe_5k", "word pipe_5k: not known; write one of: ", "pipe_4k"),
            ("pipe_4k round=2", "setting round=2: no such setting; write one of run=, ", "rounds="),
            ("rounds=0", "setting rounds=0: write a number from 1 to ", "1000"),
            ("rounds=+1", "setting rounds=+1: write a number from 1 to ", "1000"),
            ("bytes=1T", "setting bytes=1T: write a number from 1 to ", "1099511627776"),
            ("bytes=99999999999G", "setting bytes=99999999999G: write a number", "from 1"),
            ("bytes=", "setting bytes=: write a number from 1 to ", "1099511627776"),
            ("rounds=1 rounds=2", "setting rounds=2: given twice", "write it once"),
            ("run=", "setting run=: write run=PROGRAM", "arguments"),
        ] {
            let text = refusal(line);
            assert!(text.starts_with(begins), "{line}: {text}");
            assert!(text.contains(names), "{line}: {text}");
        }
    }

    #[test]
    fn parameters_go_to_their_module() {
        let request = parse("pagewire_rtp.sessions=4 pagewire-rtp.debug=1 other.x=2");
        let settings = request.expect("a request").settings;
        assert_eq!(settings.module_parameters("pagewire_rtp"), "sessions=4 debug=1");
        assert_eq!(settings.module_parameters("none"), "");
    }

    #[test]
    fn modules_are_chosen_by_name() {
        let found = || vec![PathBuf::from("/lib/modules/a.ko"), PathBuf::from("/lib/modules/b.ko")];
        let of = |line: &str| parse(line).expect("a request").settings.wanted_modules(found());
        assert_eq!(of("").expect("all"), found());
        assert_eq!(of("modules=b").expect("one"), found()[1..]);
        assert!(of("modules=").expect("none").is_empty());
        let error = of("modules=c").expect_err("there is no c").to_string();
        assert!(error.starts_with("module c: no such file in /lib/modules; "), "{error}");
    }
}
